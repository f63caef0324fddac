"""Who is compared with whom on what: choices on dev tasks only, names apart, and nothing played that cannot count."""

import json
from pathlib import Path

import pytest
from evaluated import ROWS, SPLIT, TWO, Evaluated, accuracies

from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.errors import ConfigError
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.baselines import requested_entrant, self_consistency_spec, vote_weights
from shikisha.evals.graders import ScriptedGrader
from shikisha.evals.runner import Evaluation, LocalExecutor, TaskRunner
from shikisha.evals.samples import Entrant, SampleStore
from shikisha.evals.taskset import TaskItem

THIRD = '[workers.third]\nkind = "scripted"\nanswers = "4"\nprice = { call = 0.02 }\n'
VOTED = """
[conductors.voted]
kind = "fixed"
topology = "vote"
workers = ["rash", "wise", "third"]
roles = { join = "vote" }
[conductors.weighed]
kind = "fixed"
topology = "vote"
workers = ["rash", "wise", "third"]
roles = { join = "weigh" }
"""


def test_the_best_fixed_topology_is_no_entry_where_every_task_was_used_to_choose_it(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    found = evaluated.entries("--split", "dev")
    assert not [name for name in found if name.startswith("best fixed")]
    assert "there is no task that it was not chosen on" in evaluated.notes


def test_dev_tasks_are_drawn_and_not_taken_from_the_beginning(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "id": f"d{n}", "prompt": f"{n}?", "split": "dev"} for n in range(60)]
    evaluated = Evaluated(tmp_path, rows=[*rows, *({**row, "split": "test"} for row in ROWS)])
    evaluated.run("--split", "test", "--tasks", "6")
    lines = (tmp_path / "kept" / "samples.jsonl").read_text().splitlines()
    dev = {str(json.loads(line)["task_id"]) for line in lines} & {str(row["id"]) for row in rows}
    assert len(dev) == 6
    assert dev != {f"d{n}" for n in range(6)}


def test_votes_count_the_same_where_nobody_is_known_to_be_right(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO + THIRD, [{**row, "split": "test"} for row in ROWS])
    line = ("--conductor", "w=fixed:fan-out-join?workers=rash,wise,third&join=weigh")
    found = evaluated.entries(*line, workers="wise,rash,third")
    assert (found["w"]["accuracy"], "counts the same" in str(found["w"]["note"])) == (1.0, True)


def test_weights_are_those_of_the_skilled_or_none() -> None:
    assert vote_weights(["a", "b"], {"a": 0.4, "b": 0.3}) == ()
    assert vote_weights(["a", "b"], {}) == ()
    assert requested_entrant("fixed:fan-out-join?workers=a,b&join=weigh", {"a": 0.9, "b": 0.3}).note == ""


@pytest.mark.parametrize(
    ("alone", "others", "says"),
    [
        (1.0, [3.0], "at about equal cost"),
        (1.0, [40.0], "at 10% of the most expensive one's cost"),
        (0.0, [3.0], "not known, or nothing"),
    ],
)
def test_what_self_consistency_cost_is_said_as_it_is(alone: float, others: list[float], says: str) -> None:
    spec = self_consistency_spec("a", alone, others)
    assert spec is not None
    assert says in spec.note


@pytest.mark.parametrize(
    "conductors",
    [
        ("fixed:single?worker=wise", "fixed:single?worker=wise"),
        ("wise=fixed:chain?workers=rash,wise",),
        ("oracle=fixed:single?worker=wise",),
        ("random plans=fixed:single?worker=wise",),
        ("best fixed (mine)=fixed:single?worker=wise",),
    ],
)
def test_two_entrants_of_one_name_are_refused_before_anyone_is_called(
    tmp_path: Path, conductors: tuple[str, ...]
) -> None:
    evaluated = Evaluated(tmp_path)
    evaluated.run(*(word for name in conductors for word in ("--conductor", name)))
    assert (evaluated.code, evaluated.calls) == (ExitCode.CONFIG, 0)
    assert "LABEL=CONDUCTOR" in evaluated.said


@pytest.mark.parametrize(
    ("table", "arguments", "says"),
    [
        ('kind = "human"', (), "it is a person"),
        ('kind = "scripted"\napproval = "always"', (), "needs a person's approval"),
        ('kind = "http"\nurl = "http://127.0.0.1:9/"', ("--dollars", "5"), "it has no price"),
        ('kind = "conductor"', ("--judge", "odd"), "a child run cannot judge"),
    ],
)
def test_a_worker_that_would_spoil_every_sample_is_refused_before_anyone_is_called(
    tmp_path: Path, table: str, arguments: tuple[str, ...], says: str
) -> None:
    evaluated = Evaluated(tmp_path, f"{TWO}[workers.odd]\n{table}\n")
    evaluated.run(*arguments, workers="wise,odd")
    assert (evaluated.code, evaluated.calls) == (ExitCode.CONFIG, 0)
    assert says in evaluated.said


def test_a_reward_for_dollars_is_refused_where_they_are_not_known(tmp_path: Path) -> None:
    unpriced = '[workers.odd]\nkind = "http"\nurl = "http://127.0.0.1:9/"\n'
    evaluated = Evaluated(tmp_path, f"{TWO}{unpriced}[reward]\ncost = 1.0\n")
    evaluated.run(workers="wise,odd")
    assert (evaluated.code, evaluated.calls) == (ExitCode.CONFIG, 0)
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "tasks.jsonl").write_text(json.dumps({"task_id": "t", "domain": "", "prompt": "?", "answer": "4"}))
    (folder / "outcomes.jsonl").write_text(json.dumps({"task_id": "t", "worker": "a", "score": 1.0, "answer": "4"}))
    evaluated.run("--log", str(folder), workers="")
    assert evaluated.code == ExitCode.CONFIG
    assert "what 'a' cost on task 't'" in evaluated.said


def test_a_worker_called_like_a_counter_of_votes_is_refused(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO.replace("wise", "vote"))
    evaluated.run(workers="vote,rash")
    assert (evaluated.code, evaluated.calls) == (ExitCode.CONFIG, 0)
    assert "choose another" in evaluated.said


def test_a_topology_from_the_configuration_joins_by_counted_votes_too(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO + THIRD + VOTED)
    found = evaluated.entries("--conductor", "voted", workers="wise,rash,third")
    assert (found["voted"]["accuracy"], found["voted"]["valid"]) == (1.0, 1.0)
    evaluated.run("--conductor", "weighed", workers="wise,rash,third")
    assert evaluated.code == ExitCode.CONFIG
    assert "conductors.weighed" in evaluated.said


def test_a_worker_that_the_tasks_do_not_bring_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    folder = tmp_path / "predictions"
    folder.mkdir()
    row = {"instance_id": "some__repo-1", "model_name_or_path": "mine", "model_patch": "diff 1"}
    (folder / "preds.jsonl").write_text(json.dumps(row))
    evaluated = Evaluated(tmp_path)
    evaluated.run("--taskset", f"swebench-verified:{folder}", workers="nobody")
    assert evaluated.code == ExitCode.CONFIG
    assert "'nobody'" in evaluated.said
    assert "mine" in evaluated.said


async def test_what_goes_wrong_in_one_of_many_tasks_is_raised_as_it_is(tmp_path: Path) -> None:
    def none(_: TaskItem) -> Pool:
        raise ConfigError("there is no pool")

    recorder = MemoryRecorder()
    keep = SampleStore(tmp_path, {})
    evaluation = Evaluation(keep, LocalExecutor(TaskRunner(Engine(recorder), recorder, "e"), 4))
    items = [TaskItem(Task(f"{n}?", id=f"t{n}"), ScriptedGrader({})) for n in range(8)]
    with pytest.raises(ConfigError, match="there is no pool"):
        await evaluation.play([Entrant("x", fixed_conductor("single"), none)], items)
    await keep.aclose()


def test_one_task_one_worker_and_nobody_right_still_make_a_report(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, rows=SPLIT[-1:])
    found = evaluated.entries("--conductor", "c=fixed:vote?workers=rash&n=2&join=vote", workers="rash")
    assert accuracies(found, "rash", "c", "oracle") == [0.0, 0.0, 0.0]
    assert evaluated.code == ExitCode.OK
