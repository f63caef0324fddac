"""Several processes that train together: what they agree on, one folder, the same weights, going on, refusals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import trainings
from paths import SUPPORT
from test_train_cli import ROWS, TRAINING, WORKERS

from shikisha.core.errors import ConfigError
from shikisha_train.checkpoint import (
    WEIGHTS,
    CheckpointName,
    CheckpointStore,
    TrainingState,
    capture_state,
    restore_state,
    rng_state_json,
    with_rng_state,
)
from shikisha_train.training_run import TrainingJob, train

HERE = SUPPORT
TWO = HERE.parent / "recipes" / "accelerate" / "ddp-cpu.yaml"
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(TWO)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "OMP_NUM_THREADS": "1"}


def test_processes_hear_each_other_and_end_together() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, str(HERE / "crew_talk.py")]
    both = [
        subprocess.Popen(command, env={**ENVIRONMENT, **told, "RANK": rank}, stdout=subprocess.PIPE, text=True)  # noqa: S603
        for rank in "01"
    ]
    heard = [[json.loads(line) for line in process.communicate(timeout=100)[0].splitlines()] for process in both]
    said = ["CapReached: dollars cap reached: spent", "ConfigError: here", "CancelledError: "]
    same = [["I am 0", "I am 1é"], 2.0, ["nothing", False]]
    assert heard[0] == [*same, *([each, False] for each in said)]
    said[1] = "ConfigError: here (process 0)"
    assert heard[1] == [*same, *([each, True] for each in said)]


def test_every_process_has_its_own_sources_of_chance() -> None:
    optimizer = torch.optim.AdamW(trainings.model().parameters())
    torch.manual_seed(3)
    state, other = capture_state(optimizer), rng_state_json(capture_state(None))
    drawn = torch.rand(4), np.random.rand()
    restore_state(
        with_rng_state(TrainingState({**state.tensors, "optimizer/x": torch.ones(1)}, state.facts), other), None
    )
    again = torch.rand(4), np.random.rand()
    assert all(torch.equal(torch.as_tensor(one), torch.as_tensor(two)) for one, two in zip(drawn, again, strict=True))


async def test_a_run_goes_on_with_as_many_processes_as_it_began_with(tmp_path: Path) -> None:
    table = trainings.settings(trainings.start(tmp_path / "start"))
    order = TrainingJob(table, trainings.ground(), tmp_path / "run")
    await train(order)
    shelf = CheckpointStore(order.folder, 2, print)
    kept = shelf.read(CheckpointName(6))
    with_two = TrainingState(kept.state.tensors, {**kept.state.facts, "processes": 2})
    shelf.save(CheckpointName(7), lambda _: None, with_two)
    with pytest.raises(
        ConfigError, match="a checkpoint of 2 processes, and now there are 1: a run continues with as many"
    ):
        await train(replace(order, resume=True))


def launched(folder: Path, *command: str, code: int = 0) -> str:
    """Start two processes of it and wait; return what they said."""
    done = subprocess.run([*LAUNCH, *command], env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=900)  # noqa: S603
    assert done.returncode == code, done.stderr[-3000:]
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trainings.start(tmp_path / "start")
    (tmp_path / "turns.toml").write_text(TRAINING)
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def train_command(run: str) -> tuple[str, ...]:
    return ("-m", "shikisha", "train", "turns.toml", "--quiet", "--out", run, "--steps", "30")


def trained(folder: Path, run: str, *more: str, code: int = 0) -> str:
    return launched(folder, *train_command(run), *more, code=code)


def final(folder: Path, run: str) -> bytes:
    return (folder / run / "final" / WEIGHTS).read_bytes()


@pytest.mark.slow
def test_two_processes_that_are_stopped_go_on_to_the_same(folder: Path) -> None:
    """By dollars that are spent in one of them, by SIGKILL of everything, by SIGTERM."""
    said = trained(folder, "whole")
    assert said.count("the run is kept in whole") == 1
    lines = [line for path in folder.glob("whole/calls-*") for line in path.read_text().splitlines()]
    spent = sum(json.loads(line)["dollars"] for line in lines)
    said = trained(folder, "run", "--set", f"spend.dollars={spent / 2}", code=1)
    assert said.count("shikisha: spend.dollars cap reached") == 1
    for sign in (signal.SIGKILL, signal.SIGTERM):
        done = len((folder / "run" / "steps.jsonl").read_text().splitlines())
        command = [*LAUNCH, *train_command("run"), "--resume"]
        with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as run:  # noqa: S603
            while run.poll() is None and (folder / "run" / "steps.jsonl").read_text().count("\n") < done + 3:
                time.sleep(0.01)
            ours = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
            for process in ours if sign is signal.SIGKILL else ours[:1]:
                process.send_signal(sign)
            psutil.wait_procs(ours, timeout=60)
    assert "resumes after step-" in trained(folder, "run", "--resume")
    assert final(folder, "run") == final(folder, "whole")
    steps = [(folder / name / "steps.jsonl").read_text().splitlines() for name in ("run", "whole")]
    assert [len(lines) for lines in steps] == [30, 30]


@pytest.mark.slow
def test_what_the_main_process_refuses_ends_all_and_is_said_once(folder: Path) -> None:
    said = trained(folder, "run", "--set", "tasks.least=4", code=1)
    assert said.count("shikisha: tasks.least: expected from 2 to 3") == 1
    assert not (folder / "run").exists()
    said = trained(folder, "run", "--set", "grpo.tasks=3", code=1)
    assert said.count("shikisha: grpo.tasks: expected a multiple of the 2 processes, found 3") == 1
