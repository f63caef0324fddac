"""`shikisha eval --taskset rehearsal`: held-out tasks, as many and as fresh as wanted, for a conductor of one's own."""

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.core.errors import UnknownName
from shikisha.evals.taskset import TaskSplit, content_key, parse_split
from shikisha.evals.tasksets.simulated import simulated_taskset

Report = Mapping[str, object]


def evaluated(folder: Path, *arguments: str) -> Report:
    """The report that `eval` writes to a file."""
    line = ["eval", "--taskset", "rehearsal", "--tasks", "6", "--json", str(folder / "found.json"), *arguments]
    told = CliRunner().invoke(app, [*line, "--keep", str(folder / "kept")], env={"XDG_STATE_HOME": str(folder)})
    assert told.exit_code == 0, told.output
    return cast("Report", json.loads((folder / "found.json").read_text()))


def entries(report: Report) -> dict[str, Mapping[str, object]]:
    """What was counted, by contender."""
    return {str(entry["name"]): entry for entry in cast("list[Mapping[str, object]]", report["entries"])}


@pytest.mark.parametrize(
    ("name", "split"),
    [("heldout", TaskSplit.TEST), ("test", TaskSplit.TEST), ("dev", TaskSplit.DEV), ("train", TaskSplit.TRAIN)],
)
def test_the_test_split_has_two_names(name: str, split: TaskSplit) -> None:
    assert parse_split(name) is split


def test_what_is_no_split_is_told_the_names_that_there_are() -> None:
    with pytest.raises(UnknownName, match="known are dev, heldout, test, train"):
        parse_split("exam")
    told = CliRunner().invoke(app, ["eval", "--taskset", "rehearsal", "--split", "exam"])
    assert told.exit_code == ExitCode.CONFIG
    assert "heldout" in told.stderr


@pytest.mark.full
def test_held_out_tasks_are_the_test_split_under_either_name(tmp_path: Path) -> None:
    once = evaluated(tmp_path, "--split", "heldout", "--seed", "4")
    again = evaluated(tmp_path, "--split", "test", "--seed", "4")  # goes on with what is kept
    assert once["taskset"] == again["taskset"] == "rehearsal[test]"
    assert once["hashes"] == again["hashes"]
    assert once["hashes"] == [item.task.content_hash for item in simulated_taskset(TaskSplit.TEST, 4, 6)]


def test_another_seed_draws_a_thousand_fresh_tasks() -> None:
    drawn = [{content_key(item.task) for item in simulated_taskset(TaskSplit.TEST, seed, 1000)} for seed in (1, 2)]
    drawn.append({content_key(item.task) for item in simulated_taskset(TaskSplit.TRAIN, 1, 1000)})
    assert all(len(keys) > 990 for keys in drawn)
    assert all(len(one & other) < 10 for one, other in combinations(drawn, 2))


def test_the_yardsticks_that_a_person_wrote_stand_beside(tmp_path: Path) -> None:
    found = entries(evaluated(tmp_path, "--split", "heldout", "--conductor", "rehearsal:rules"))
    assert {"rehearsal:rules", "keyword router", "optimum", "random plans"} <= set(found)
    assert "hand-written rules" not in found  # asked for by its own name
    parts = {name: found[name]["part"] for name in ("rehearsal:rules", "keyword router", "optimum")}
    assert parts == {"rehearsal:rules": "asked", "keyword router": "reference", "optimum": "reference"}
    assert all(found[name]["at_equal_dollars"] for name in parts)
    assert found["simulated-generalist"]["at_equal_dollars"] is None
