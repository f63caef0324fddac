"""Several processes that train together: what they agree on, one folder, the same weights, going on, refusals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import trainings
from crew_process import TABLES
from paths import SUPPORT
from safetensors.torch import load_file
from test_train_cli import ROWS, TRAINING, WORKERS
from torch import Tensor

from shikisha.core.errors import ConfigError
from shikisha.evals.reward import RewardWeights
from shikisha.training.checkpoint import (
    WEIGHTS,
    CheckpointName,
    CheckpointStore,
    TrainingState,
    capture_state,
    restore_state,
    rng_state_json,
    with_rng_state,
)
from shikisha.training.environment import TaskCurriculum
from shikisha.training.grpo import GRPOLoop, compute_advantages
from shikisha.training.model_loader import load_model, new_qwen2
from shikisha.training.plan_reward import PlanScorer, reward_array
from shikisha.training.rollout import PlanPrompt, RolloutGroup
from shikisha.training.training_run import TrainingJob, train

HERE = SUPPORT
TWO = HERE.parent / "recipes" / "accelerate" / "ddp-cpu.yaml"
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(TWO)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent / 'src'}", "OMP_NUM_THREADS": "1"}


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
    model = new_qwen2(9, trainings.SIZE)
    optimizer, own = torch.optim.AdamW(model.parameters()), torch.Generator().manual_seed(4)
    torch.manual_seed(3)
    state, other = capture_state(optimizer, {"sampling": own}), rng_state_json(capture_state(None, {"sampling": own}))
    drawn = torch.rand(4), torch.rand(4, generator=own), np.random.rand()
    restore_state(
        with_rng_state(TrainingState({**state.tensors, "optimizer/x": torch.ones(1)}, state.facts), other),
        None,
        {"sampling": own},
    )
    again = torch.rand(4), torch.rand(4, generator=own), np.random.rand()
    assert all(torch.equal(torch.as_tensor(one), torch.as_tensor(two)) for one, two in zip(drawn, again, strict=True))


async def test_a_run_goes_on_with_as_many_processes_as_it_began_with(tmp_path: Path) -> None:
    table = trainings.settings(trainings.start(tmp_path / "start"))
    order = TrainingJob(table, trainings.ground(), tmp_path / "run")
    await train(order)
    shelf = CheckpointStore(order.folder, 2, print)
    kept = shelf.read(CheckpointName("step", 6))
    with_two = TrainingState(kept.state.tensors, {**kept.state.facts, "processes": 2})
    shelf.save(CheckpointName("step", 7), lambda _: None, with_two)
    with pytest.raises(
        ConfigError, match="a checkpoint of 2 processes, and now there are 1: a run continues with as many"
    ):
        await train(replace(order, resume=True))


@pytest.mark.slow
async def test_two_processes_come_to_one_folder_and_to_what_one_comes_to_with_the_samples_of_both(
    tmp_path: Path,
) -> None:
    trainings.start(tmp_path / "start")
    launched(tmp_path, str(HERE / "crew_process.py"), str(tmp_path))
    assert {each.name for each in (tmp_path / "run").iterdir()} == {
        "steps.jsonl",
        "step-000000",
        "step-000002",
        "final",
    }
    one, other = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    kept = load_file(tmp_path / "run" / "final" / WEIGHTS)
    assert all(torch.equal(each, other[name]) for name, each in one.items())
    assert all(torch.equal(each, one[name]) for name, each in kept.items())
    alone = await in_one_process(tmp_path / "start", 2)
    # Adam makes whole steps of 1e-3 of gradients that are next to nothing, roundings included
    assert all(torch.allclose(each, one[name], atol=2e-4) for name, each in alone.items())
    before = load_file(tmp_path / "start" / WEIGHTS)
    assert not all(torch.allclose(each, one[name], atol=2e-4) for name, each in before.items())


async def in_one_process(start: Path, processes: int) -> Mapping[str, Tensor]:
    """The weights after the plain loop was given what each of the processes samples with its own dice."""
    settings, begun, ground = trainings.settings(start, **TABLES), load_model(str(start)), trainings.ground()
    source, scorer = TaskCurriculum(ground.stream, settings.seed), PlanScorer(RewardWeights(), ground.caps)
    loop = GRPOLoop(begun.model, begun.tokenizer, source, scorer, settings)  # type: ignore[arg-type]  # it is a Qwen2
    lots = [torch.Generator().manual_seed(settings.seed + rank) for rank in range(processes)]
    for _ in range(settings.grpo.steps):
        groups: list[RolloutGroup] = []
        items = source.draw(settings.grpo.tasks)
        share = len(items) // processes
        for rank, loop.generator in enumerate(lots):
            asked = [PlanPrompt(item) for item in items[rank * share :][:share]]
            groups += await loop.rollout(asked, settings.grpo.group)
        source.update(items, [group.right for group in groups])
        rewards = np.concatenate([reward_array(group.scored) for group in groups])
        loop.update(groups, compute_advantages(rewards, np.repeat(np.arange(len(groups)), settings.grpo.group)))
        loop.step += 1
    return dict(loop.model.named_parameters())


def launched(folder: Path, *command: str, code: int = 0) -> str:
    """Start two processes of it and wait; return what they said."""
    done = subprocess.run([*LAUNCH, *command], env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=900)  # noqa: S603
    assert done.returncode == code, done.stderr[-3000:]
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trainings.start(tmp_path / "start")
    (tmp_path / "turns.toml").write_text(TRAINING.replace('"plain"', '"trl"'))
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
    said = trained(folder, "run", "--set", 'backend="plain"', code=1)
    assert said.count('shikisha: backend: the plain one is a single process, found 2: expected "trl"') == 1
    said = trained(folder, "run", "--set", "grpo.tasks=3", code=1)
    assert said.count("shikisha: grpo.tasks: expected a multiple of the 2 processes, found 3") == 1
