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
from tempfile import TemporaryDirectory

from shikisha.config.training_environment import open_environment
from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.prompts import planner_instructions, planner_message
from shikisha.evals.taskset import TaskItem, content_key
from shikisha.training.settings import load_settings

Row = dict[str, object]


def rows(items: Sequence[TaskItem], split: str, source: str) -> Iterator[Row]:
    """Yield a row for each item, in verl's columns."""
    for index, item in enumerate(items):
        if item.pool is None:
            raise ConfigError(f"task {item.task.id}: no pool to plan for")
        yield {
            "data_source": f"shikisha/{source}",
            "prompt": [
                {"role": "system", "content": planner_instructions()},
                {"role": "user", "content": planner_message(item.task, item.pool.cards)},
            ],
            "ability": item.task.domain or "conducting",
            "reward_model": {"style": "rule", "ground_truth": content_key(item.task)},
            "extra_info": {"index": index, "split": split, "task": item.task.id, "pool": list(item.pool.names)},
        }


async def tasks(file: Path, count: int, config: Path | None = None) -> tuple[str, Mapping[str, Sequence[TaskItem]]]:
    """Return the taskset's name, and the first tasks of the training file's stream and those that it judges by."""
    settings = load_settings(file)
    if not settings.model.described:
        raise ConfigError(f"{file}: model.described: these rows show workers' descriptions: expected true")
    with TemporaryDirectory() as nothing:  # no worker is asked here, so no reply is kept
        async with open_environment(settings, Path(nothing), config) as environment:
            learned = [environment.stream(index) for index in range(count)]
            return environment.origin.taskset, {"train": learned, "val": environment.validation_tasks}


def written(name: str, items: Mapping[str, Sequence[TaskItem]], out: Path) -> list[Path]:
    """Write a file for each split that has tasks; return them."""
    import pyarrow
    from pyarrow import parquet

    out.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for split, given in items.items():
        if given:
            found.append(out / f"{split}.parquet")
            parquet.write_table(pyarrow.Table.from_pylist(list(rows(given, split, name))), found[-1])
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
