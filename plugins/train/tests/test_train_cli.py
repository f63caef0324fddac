"""`shikisha train` as a person uses it: tasks and workers of one's own, a run that is killed, what is refused."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from pydantic import BaseModel
from safetensors.torch import load_file
from trainings import start
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.core.errors import ConfigError
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.evals.graders.text_match import TextGrader
from shikisha.evals.taskset import TaskItem, Taskset, TaskSplit
from shikisha_train.metrics import StepMetrics
from shikisha_train.settings import TrainSettings, load_settings
from shikisha_train.training_environment import join_tasksets, open_environment, sample_evenly, sample_pool
from support import member

WORKERS = """
[workers.left]
kind = "scripted"
answers = "left"
price = { call = 0.01 }
[workers.right]
kind = "scripted"
answers = "right"
price = { call = 0.02 }
[workers.other]
kind = "scripted"
answers = "neither"
price = { call = 0.08 }
"""
TRAINING = """
[model]
start = "start"
[tasks]
set = "turns.jsonl"
judged = 2
every = 2
[grpo]
steps = 4
tasks = 2
group = 4
rate = 1e-3
longest = 2
[keep]
every = 2
"""
ROWS = [
    {"id": f"{split}{n}", "prompt": f"turn {gold} or {n}", "checker": "text", "answer": gold, "split": split}
    for split, numbers in (("train", range(6)), ("dev", range(10, 13)))
    for n in numbers
    for gold in (("left", "right")[n % 2],)
]
THREE = ("left", "right", "other")


class Training:
    """A folder with a training file, rows, workers and a model, in which `shikisha train` is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""
        start(folder / "start")
        self.write(TRAINING)
        (folder / "shikisha.toml").write_text(WORKERS)
        self.rows(ROWS)

    def write(self, text: str) -> None:
        (self.folder / "turns.toml").write_text(text)

    def rows(self, rows: list[dict[str, str]]) -> None:
        (self.folder / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Train; return stdout, keep stderr in `said`."""
        result = CliRunner().invoke(app, ["train", "turns.toml", *arguments])
        assert result.exit_code == code, (result.output, result.stderr)
        self.said = result.stderr
        return result.stdout

    def steps(self, run: str = "training/turns") -> list[StepMetrics]:
        return [StepMetrics.loads(line) for line in (self.folder / run / "steps.jsonl").read_text().splitlines()]

    def weights(self, run: str = "training/turns") -> bytes:
        return (self.folder / run / "final" / "model.safetensors").read_bytes()

    def paid(self, run: str = "training/turns") -> Counter[str]:
        """How often each call was paid for."""
        lines = (self.folder / run / "calls-0.jsonl").read_text().splitlines()
        return Counter(str(json.loads(line)["key"]) for line in lines)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.chdir(tmp_path)
    return Training(tmp_path)


def test_a_conductor_is_trained_on_tasks_and_workers_of_ones_own(training: Training) -> None:
    assert training().strip() == "training/turns/final"
    for words in ("the run is kept in training/turns", "step 4 of 4", "right after 4 steps: ", "of 2 dev tasks"):
        assert words in training.said
    assert [step.number for step in training.steps()] == [1, 2, 3, 4]
    told = json.loads((training.folder / "training/turns/final/card.json").read_text())
    assert [worker["name"] for worker in told["pool"]["workers"]] == list(THREE)
    assert (told["pool"]["simulated"], told["data"]["splits"]["judged by"]) == (False, "2 tasks of dev")
    assert told["settings"]["model"]["start"] == "start"


def test_json_says_where_the_conductor_is_and_what_it_comes_to(training: Training) -> None:
    told = json.loads(training("--json", "--quiet", "--out", "run", "--steps", "3", "--seed", "7"))
    assert (told["conductor"], told["steps"], told["judged"]["count"]) == ("run/final", 3, 2)
    assert told["dollars"] == pytest.approx(sum(_dollars(training, "run")))
    assert "step 3 of 3" not in training.said
    kept = json.loads((training.folder / "run/final/card.json").read_text())["settings"]
    assert (kept["seed"], kept["grpo"]["steps"]) == (7, 3)


def test_a_model_stands_beside_its_file(training: Training) -> None:
    (training.folder / "elsewhere").mkdir()
    for name in ("turns.toml", "start"):
        (training.folder / name).rename(training.folder / "elsewhere" / name)
    result = CliRunner().invoke(app, ["train", "elsewhere/turns.toml", "--out", "run"])
    assert result.exit_code == ExitCode.OK, result.stderr
    assert "right after 4 steps" in result.stderr
    told = json.loads((training.folder / "run/final/card.json").read_text())
    assert (told["settings"]["model"]["start"], told["training"]["start"]["folder"]) == ("start", "start")


def test_every_core_computes_unless_it_is_told_how_many(training: Training) -> None:
    training.write(TRAINING.replace("steps = 4", "steps = 0"))  # refused once the threads are set
    before, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    try:
        for told, threads in ((None, cores), ("1", 3)):  # told by it, torch has set them when it was loaded
            torch.set_num_threads(3)
            CliRunner().invoke(app, ["train", "turns.toml"], env={"OMP_NUM_THREADS": told})
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def _dollars(training: Training, run: str) -> list[float]:
    lines = (training.folder / run / "calls-0.jsonl").read_text().splitlines()
    return [json.loads(line)["dollars"] for line in lines]


@pytest.mark.full
def test_the_same_command_gives_the_same_conductor_and_another_seed_another(training: Training) -> None:
    for run, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        training("--out", run, "--seed", seed, "--quiet")
    assert training.weights("a") == training.weights("b") != training.weights("c")


@pytest.mark.full
def test_a_run_goes_on_only_when_told_to(training: Training) -> None:
    training("--quiet")
    training(code=ExitCode.CONFIG)
    assert "there is a training run here already (step-000004): --resume continues" in training.said
    training("--resume", "--seed", "3", code=ExitCode.CONFIG)
    assert "a checkpoint of other settings: seed was 0, and is 3" in training.said
    training("--resume", "--quiet")
    assert "resumes after step-000004" in training.said


def test_another_pool_is_another_run(training: Training) -> None:
    training("--quiet")
    (training.folder / "shikisha.toml").write_text(WORKERS.replace("0.02", "0.03"))
    training("--resume", code=ExitCode.CONFIG)
    assert "a checkpoint of another pool: was " in training.said


@pytest.mark.slow
def test_spent_dollars_stop_it_and_more_of_them_let_it_go_on(training: Training) -> None:
    training.write(TRAINING.replace("steps = 4", "steps = 16"))
    training("--out", "whole", "--quiet")
    whole = sum(_dollars(training, "whole"))
    training.write(f"{TRAINING}[spend]\ndollars = {whole * 0.8}\n".replace("steps = 4", "steps = 16"))
    training("--quiet", code=ExitCode.CAPPED)
    assert "spend.dollars cap reached" in training.said
    assert "with --resume continues from there" in training.said
    assert sum(_dollars(training, "training/turns")) <= whole * 0.8
    training.write(f"{TRAINING}[spend]\ndollars = {whole * 2}\n".replace("steps = 4", "steps = 16"))
    training("--resume", "--quiet")
    assert training.weights() == training.weights("whole")
    assert training.paid() == training.paid("whole")


def test_a_diverging_run_ends_with_1_and_says_what_is_kept(training: Training) -> None:
    training.write(
        TRAINING.replace("steps = 4", "steps = 30").replace("1e-3", "1e30\nwarmup = 0.0\nschedule = 'constant'")
    )
    training("--quiet", code=ExitCode.FAILED)
    kept = re.search(r"kept: (training/turns/step-\d{6}); the same command with --resume continues", training.said)
    assert kept
    weights = load_file(training.folder / kept[1] / "model.safetensors")
    assert all(bool(each.isfinite().all()) for each in weights.values())
    assert "no numbers" in training.said or "the loss is" in training.said


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("steps = 4", "steps = 0"), "grpo.steps: expected 1 or more, found 0"),
        (("steps = 4", "stepps = 4"), "turns.toml: grpo.stepps: unknown key"),
        (("judged = 2", "judged = 2\npool = ['left']"), "tasks.pool: expected two workers or more to choose from, fou"),
        (("judged = 2", "judged = 2\npool = ['left', 'up']"), "unknown worker 'up'"),
        (("judged = 2", "judged = 2\nleast = 1"), "tasks.least: expected from 2 to 3 (tasks.most, and the 3 workers)"),
        (("judged = 2", "judged = 2\nleast = 4"), "tasks.least: expected from 2 to 3"),
        (("turns.jsonl", "nothing.jsonl"), "nothing.jsonl"),
        (("turns.jsonl", "rehersal"), "tasks.set: unknown taskset 'rehersal'"),
        (('start = "start"', 'start = "./gone"'), "model.start: ./gone: expected a folder with a model"),
        (("[keep]", "[spend]\ndollars = 0.2\n[keep]"), "$0.2 are not likely to suffice for one group, at $0.3"),
        (("[keep]", '[trl]\nvllm = "nowhere"\n[keep]'), "trl.vllm"),
        (("[model]", 'backend = "plain"\n[model]'), "backend: TRL is the one training loop: remove the key"),
        (("[keep]", "[warm]\nsteps = 9\n[keep]"), "warm: a model from scratch left with the own training loop"),
        (('start = "start"', 'start = "start"\nbrief = true'), "model.brief: the compact prompt left"),
        (("judged = 2", "judged = 2\nnoisy = 0.4"), "tasks.noisy: it shaped tasks of the first simulated world"),
        (("longest = 2", "longest = 2\nhold = 0.3"), "grpo.hold: it left with the own training loop"),
        (('"turns.jsonl"', '"rehearsal"'), "rehearsal"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing_behind(
    training: Training, change: tuple[str, str], told: str
) -> None:
    training.write(TRAINING.replace(*change))
    training(code=ExitCode.CONFIG)
    assert told in training.said
    assert not (training.folder / "training" / "turns").exists()


def test_a_file_of_the_version_before_is_read_where_its_keys_still_mean_something(training: Training) -> None:
    old = TRAINING.replace("[model]", 'backend = "trl"\n[model]\nbrief = false')
    training.write(old.replace("longest = 2", "longest = 2\nentropy = 0.0"))
    settings = load_settings(training.folder / "turns.toml")
    training.write(TRAINING)
    assert settings == load_settings(training.folder / "turns.toml")


def numbers(table: type[BaseModel], before: str = "") -> Iterator[tuple[str, bool]]:
    """Every number of a training file by its key, and whether it stands in a list."""
    for name, field in table.model_fields.items():
        told = field.annotation
        if isinstance(told, type) and issubclass(told, BaseModel):
            yield from numbers(told, f"{before}{name}.")
        elif re.search(r"\b(int|float)\b", f"{told}"):
            yield f"{before}{name}", "tuple" in str(told)


NUMBERS = dict(numbers(TrainSettings))


@pytest.mark.parametrize("value", ["1e38", "-1e38", "nan", "inf", "-inf", str(10**40)])
def test_a_number_that_nobody_can_mean_is_refused_by_its_key(value: str, tmp_path: Path) -> None:
    assert {"grpo.rate", "grpo.temperature", "seed", "grpo.betas", "reward.format", "keep.minutes"} <= set(NUMBERS)
    for key, listed in NUMBERS.items():
        table, _, name = key.rpartition(".")
        given = f"[{value}, 0.5]" if listed else value
        tables = {"model": ['start = "x"'], "tasks": ['set = "x"']}
        tables.setdefault(table, []).append(f"{name} = {given}")
        lines = [*tables.pop("", []), *(line for key, rows in tables.items() for line in (f"[{key}]", *rows))]
        (tmp_path / "x.toml").write_text("\n".join(lines))
        with pytest.raises(ConfigError, match=rf"x.toml: {re.escape(key)}"):
            load_settings(tmp_path / "x.toml")


@pytest.mark.full
def test_a_refused_training_leaves_no_folder_and_the_corrected_command_works(training: Training) -> None:
    for given, told in (("grpo.rate=1e38", "grpo.rate: expected"), ("tasks.least=1", "tasks.least")):
        training("--set", given, code=ExitCode.CONFIG)
        assert told in training.said
        assert not (training.folder / "training").exists()
    (training.folder / "ours").mkdir()
    training("--set", "tasks.least=1", "--out", "ours", code=ExitCode.CONFIG)
    assert not list((training.folder / "ours").glob("step-*"))
    training("--quiet", "--out", "ours")


def test_several_tasksets_are_learned_from_as_many_tasks_of_each(training: Training) -> None:
    others = [{**row, "prompt": f"please {row['prompt']}"} for row in ROWS]  # the same ids, other tasks
    (training.folder / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    sets = ("--set", 'tasks.sets=["others.jsonl"]', "--set", "tasks.count=5", "--quiet")
    training(*sets)
    told = json.loads((training.folder / "training/turns/final/card.json").read_text())["data"]
    assert told["taskset"].count("turns") == 1
    assert "others" in told["taskset"]
    assert told["splits"]["learned from"].startswith("train (5 tasks")
    training("--set", 'tasks.sets=["gone.jsonl"]', "--out", "no", code=ExitCode.CONFIG)
    assert "tasks.sets[0]" in training.said
    training("--set", "tasks.count=1", *sets[:2], "--out", "no", code=ExitCode.CONFIG)
    assert "tasks.count: 1 tasks are fewer than the 2 sets" in training.said


def test_tasks_of_several_sets_are_shared_out_evenly_and_keep_ids_apart() -> None:
    large, small = (
        Taskset(
            name,
            [TaskItem(Task(f"{name} {n}", id=f"t{n}"), TextGrader(("x",)), given=TaskSplit.TRAIN) for n in range(size)],
        )
        for name, size in (("large", 30), ("small", 4))
    )
    chosen = sample_evenly([large, small], 20, 0)
    assert Counter(item.task.prompt.split()[0] for item in chosen) == {"small": 4, "large": 16}
    assert len({item.task.id for item in chosen}) == 20
    assert len(join_tasksets([large, small])) == 34
    assert {item.task.content_hash for item in sample_evenly([large, small], 20, 0)} == {
        item.task.content_hash for item in chosen
    }


async def test_with_bare_ordinals_every_task_is_shown_the_whole_pool_in_its_order(training: Training) -> None:
    table = {"model": {"start": "start", "described": False}}
    told = {**table, "tasks": {"set": "turns.jsonl", "judged": 2}}
    async with open_environment(
        TrainSettings.model_validate(told), training.folder, training.folder / "shikisha.toml"
    ) as ground:
        assert {item.pool.names for item in map(ground.stream, range(12)) if item.pool} == {THREE}
        assert ground.largest == len(THREE)


def test_an_error_is_json_where_json_was_asked_for(training: Training) -> None:
    training.write(TRAINING.replace("steps = 4", "steps = 0"))
    assert "grpo.steps" in json.loads(training("--json", code=ExitCode.CONFIG))["error"]["what"]


def test_tasks_without_a_grader_are_refused(training: Training) -> None:
    training.rows([*ROWS, {"id": "x", "prompt": "turn", "split": "train"}])
    training(code=ExitCode.CONFIG)
    assert "tasks.set: turns.jsonl: line 10: checker: this row has none" in training.said


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[workers.ann]\nkind = "human"\n', "workers.ann: it waits for a person"),
        (
            '[workers.dim]\nkind = "chat"\nbase_url = "http://127.0.0.1:9"\nmodel = "m"\n',
            "workers.dim: it has no price (reward.cost counts",
        ),
    ],
)
def test_workers_that_training_cannot_use_are_refused(training: Training, more: str, told: str) -> None:
    (training.folder / "shikisha.toml").write_text(WORKERS + more)
    training.write(f"{TRAINING}[reward]\ncost = 1.0\n")
    training(code=ExitCode.CONFIG)
    assert told in training.said


def test_a_library_that_is_missing_names_the_extra(training: Training) -> None:
    code = "import sys; sys.modules['torch'] = None; from shikisha.cli import main; main()"
    command = [sys.executable, "-c", code, "train", "turns.toml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=training.folder)  # noqa: S603
    assert done.returncode == ExitCode.CONFIG
    assert "shikisha train needs the extra 'train': pip install 'shikisha[train]'" in done.stderr


def test_pools_are_drawn_anew_in_any_order_and_often_without_the_dearest() -> None:
    pool = Pool([member(name) for name in ("a", "b", "c", "d")])
    dice = Random(3)
    shown = [sample_pool(pool, (2, 4), dice).names for _ in range(2000)]
    assert {len(names) for names in shown} == {2, 3, 4}
    assert len(set(shown)) == 12 + 24 + 24  # every subset in every order
    again = Random(3)
    assert [sample_pool(pool, (2, 4), again).names for _ in range(2000)] == shown


async def test_every_task_is_learned_from_equally_often_with_pools_of_its_own(training: Training) -> None:
    async with open_environment(load_settings(Path("turns.toml")), training.folder / "run", None) as ground:
        items = [ground.stream(place) for place in range(600)]
        again = [ground.stream(place) for place in range(600)]
    assert set(Counter(item.task.id for item in items).values()) == {100}
    assert [item.task.id for item in items[:6]] != [item.task.id for item in items[6:12]]
    pools = [item.pool.names if item.pool else () for item in items]
    assert pools == [item.pool.names if item.pool else () for item in again]
    dear = sum("other" in names for names in pools) / len(pools)
    assert {len(names) for names in pools} == {2, 3}
    assert 0.3 < dear < 0.55
    assert {item.task.id for item in ground.validation_tasks} < {row["id"] for row in ROWS if row["split"] == "dev"}


@pytest.mark.slow
def test_a_run_killed_again_and_again_comes_to_the_same_and_pays_for_nothing_twice(training: Training) -> None:
    """SIGKILL, wherever it strikes: while libraries load, in a step, in a checkpoint, after the last one."""
    training.write(TRAINING.replace("steps = 4", "steps = 60"))
    training("--out", "whole", "--quiet")
    for lines in (0, 1, 17, 30, 59):
        with _started(training, "--resume") as run:
            _wait(training.folder / "training/turns/steps.jsonl", lines, run)
            os.kill(run.pid, signal.SIGKILL)
    training("--resume", "--quiet")
    assert training.weights() == training.weights("whole")
    assert _figures(training.steps()) == _figures(training.steps("whole"))
    assert training.paid() == training.paid("whole")
    assert set(training.paid().values()) == {1}


def _started(training: Training, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "shikisha", "train", "turns.toml", "--quiet", *arguments]
    return subprocess.Popen(command, cwd=training.folder, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command


def _wait(file: Path, lines: int, run: "subprocess.Popen[bytes]") -> None:
    """Wait until the file has so many lines, and one was added since, or the run has ended."""
    while run.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < lines):
        time.sleep(0.002)


def _figures(steps: list[StepMetrics]) -> list[dict[str, object]]:
    lines = [json.loads(step.dumps()) for step in steps]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
