"""Rows for verl from a training file: python examples/verl/dataset.py recipes/conductor-7b.toml --count 800 --out data/

Writes `train.parquet` and, where the file judges by tasks (`tasks.judged`), `val.parquet`, in verl's columns: `prompt`
is the chat that `shikisha train` would show, `reward_model.ground_truth` the task's content hash (its answer stays with
its grader), `extra_info` the task's place in the file's stream and the workers shown, from which `reward.py` has the
same task and pool again. Invariant: row i shows what task i of the stream shows. Deliberately absent: the curriculum;
verl shuffles.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shikisha.core.errors import ShikishaError
from shikisha_train.plan_rewards import PlanRow, open_plan_rewards

Row = dict[str, object]


def rows(found: Sequence[PlanRow], source: str) -> Iterator[Row]:
    """Yield each row in verl's columns."""
    for row in found:
        yield {
            "data_source": f"shikisha/{source}",
            "prompt": row["prompt"],
            "ability": "conducting",
            "reward_model": {"style": "rule", "ground_truth": row["content"]},
            "extra_info": {key: row[key] for key in ("index", "split", "task", "pool")},
        }


async def tasks(file: Path, count: int, config: Path | None = None) -> tuple[str, Mapping[str, Sequence[PlanRow]]]:
    """Return the taskset's name, and the first tasks of the training file's stream and those that it judges by."""
    async with open_plan_rewards(file, None, config) as rewards:  # no worker is asked here, so no reply is kept
        return rewards.taskset, {"train": rewards.rows(count), "val": rewards.validation_rows()}


def written(name: str, items: Mapping[str, Sequence[PlanRow]], out: Path) -> list[Path]:
    """Write a file for each split that has tasks; return them."""
    import pyarrow
    from pyarrow import parquet

    out.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for split, given in items.items():
        if given:
            found.append(out / f"{split}.parquet")
            parquet.write_table(pyarrow.Table.from_pylist(list(rows(given, name))), found[-1])
    return found


def main() -> None:
    """Write what the command line says."""
    parser = argparse.ArgumentParser(description="Rows for verl from a training file.")
    parser.add_argument("file", type=Path, help="the training file, as for `shikisha train`")
    parser.add_argument("--count", type=int, default=800, help="rows to learn from: steps × tasks")
    parser.add_argument("--out", type=Path, default=Path("data"))
    parser.add_argument("--config", type=Path, help="the workers; else $SHIKISHA_CONFIG, else ./shikisha.toml")
    given = parser.parse_args()
    try:
        files = written(*asyncio.run(tasks(given.file, given.count, given.config)), given.out)
    except ShikishaError as error:
        raise SystemExit(f"dataset.py: {error}") from None
    sys.stdout.writelines(f"{file}\n" for file in files)


if __name__ == "__main__":
    main()
