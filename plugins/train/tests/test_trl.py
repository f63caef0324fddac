"""Training by TRL: going on after a halt, several processes, adapters, money, and what it must not do."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from paths import SUPPORT
from safetensors.torch import load_file
from torch import Tensor
from trainings import chat_words, ground, model, settings, start, stream
from transformers import Qwen2ForCausalLM

from shikisha.core.errors import CapReached, ConfigError, TrainingDiverged
from shikisha.core.task import Task
from shikisha.evals.reward import RewardWeights
from shikisha_train.checkpoint import WEIGHTS
from shikisha_train.environment import TaskCurriculum
from shikisha_train.metrics import StepMetrics
from shikisha_train.plan_reward import PlanScorer, ScoredPlan
from shikisha_train.rollout import PlanPrompt, RolloutGroup, second_round_prompts
from shikisha_train.training_run import TrainingJob, train
from shikisha_train.trl import PlanGRPOTrainer, TrlLoop
from shikisha_train.trl_batch import join_batches

NO_KL = {"kl": 0.0, "steps": 2}


def trainer(begun: Qwen2ForCausalLM, scorer: PlanScorer | None = None, **tables: object) -> PlanGRPOTrainer:
    grpo = {**NO_KL, **dict(tables.pop("grpo", {}))}  # type: ignore[call-overload]
    faulty = bool(tables.pop("faulty", False))
    source = TaskCurriculum(partial(stream, faulty=faulty))
    table = settings(grpo=grpo, **tables)
    return PlanGRPOTrainer(begun, chat_words(), source, scorer or PlanScorer(RewardWeights()), table)


def weights(trained: torch.nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in trained.named_parameters()}


def unmoved(made: torch.nn.Module) -> bool:
    return all(torch.equal(each, weights(made)[name]) for name, each in weights(model()).items())


class Waiting(PlanScorer):
    """Performs nothing before it is let; says when it is asked."""

    def __init__(self) -> None:
        super().__init__(RewardWeights())
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def scores(
        self,
        texts: Sequence[Sequence[str]],
        items: Sequence[object],  # noqa: ARG002 - as the seam has it
        before: Sequence[tuple[str, ...]] = (),  # noqa: ARG002
        times: int = 1,  # noqa: ARG002
    ) -> list[list[ScoredPlan]]:
        self.asked.set()
        await self.let.wait()
        return [[ScoredPlan(float(len(text) % 2)) for text in written] for written in texts]


@pytest.mark.full
async def test_a_canceled_step_touches_no_weight_and_can_be_taken_again() -> None:
    begun, slow = model(), Waiting()
    stepped = TrlLoop(begun, chat_words(), TaskCurriculum(stream), slow, settings(grpo=NO_KL))
    step = asyncio.create_task(stepped.advance())
    await slow.asked.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert stepped.step == 0
    assert unmoved(begun)
    slow.let.set()
    assert (await stepped.advance()).number == 1


def test_a_worker_that_fails_is_masked_and_counted() -> None:
    made, masked = trainer(model(), faulty=True), list[float]()

    def look(step: StepMetrics) -> None:
        spoilt = np.array([one.total is None for each in made.current.all_groups for one in each.found])
        assert step.masked == pytest.approx(spoilt.mean())
        assert not made.current.advantages[spoilt].any()
        masked.append(step.masked)

    made.run(look)
    assert len(masked) == 2
    assert max(masked) > 0


@pytest.mark.full
def test_adapters_learn_and_nothing_else_does() -> None:
    made, told = model(), list[StepMetrics]()
    before = weights(made)
    trainer(made, model={"lora": 4}, grpo={"kl": 0.05, "rate": 1e-2}).run(told.append)
    after = {name.replace(".base_layer", ""): each for name, each in weights(made).items()}
    added = {name: each for name, each in after.items() if "lora_B" in name}
    assert added
    assert all(each.abs().sum() > 0 for each in added.values())
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    assert told[0].kl == pytest.approx(0, abs=1e-6)
    assert told[-1].kl > 0


def test_nothing_to_learn_moves_nothing() -> None:
    made, told = model(), list[StepMetrics]()
    trainer(made, PlanScorer(RewardWeights(format=0.0))).run(told.append)
    assert [step.even for step in told] == [1.0, 1.0]
    assert unmoved(made)


def test_money_that_is_spent_ends_it() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        trainer(model(), PlanScorer(RewardWeights(), dollars=0.0)).run()
    assert caught.group_contains(CapReached)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"trl": {"rows": 5}}, "trl.rows: expected a divisor of the 16 completions of a step, found 5"),
        ({"grpo": {"kl": 0.1}}, "grpo.kl: a divergence needs the model that training began with"),
    ],
)
def test_what_cannot_be_is_refused(tables: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        trainer(model(), None, **tables)


def test_a_gradient_that_is_no_number_moves_no_weight() -> None:
    made = model()
    made.model.norm.weight.register_hook(lambda each: each * torch.nan)
    with pytest.raises(TrainingDiverged, match="step 0: the gradient"):
        trainer(made).run()
    assert unmoved(made)


def test_a_loss_that_is_no_number_moves_no_weight() -> None:
    begun, broken = model(), model()
    broken.model.norm.weight.data.fill_(torch.nan)
    table = settings(grpo={"steps": 1, "kl": 0.1})
    made = PlanGRPOTrainer(
        begun, chat_words(), TaskCurriculum(stream), PlanScorer(RewardWeights()), table, reference=broken
    )
    with pytest.raises(TrainingDiverged, match="step 0: the loss is"):
        made.run()
    assert unmoved(begun)


def test_a_chat_is_instructions_and_a_briefing() -> None:
    question = PlanPrompt(replace(stream(7), task=Task("how many?", id="x")))
    chat = question.chat(described=True)
    assert [turn["role"] for turn in chat] == ["system", "user"]
    assert "model_id" in chat[0]["content"]
    assert "| how many?" in chat[1]["content"]
    assert "| left" in chat[1]["content"]
    assert "| left" not in question.chat(described=False)[1]["content"]


def test_second_rounds_follow_wrong_first_rounds_and_right_ones() -> None:
    rounds = ("performed",)
    found = [ScoredPlan(1.0, right, rounds=rounds) for right in (True, False, True, False)]  # type: ignore[arg-type]
    groups = [RolloutGroup(PlanPrompt(stream(n)), ("a", "b", "c", "d"), tuple(found), 8) for n in range(4)]
    prompts = second_round_prompts(groups, settings(second={"share": 0.5, "firsts": 2}), 0)
    assert [(prompt.item.task.id, prompt.texts, prompt.right) for prompt in prompts] == [
        ("turn-0", ("b",), False),
        ("turn-0", ("c",), True),
        ("turn-1", ("b",), False),
        ("turn-1", ("c",), True),
    ]
    assert not second_round_prompts(groups, settings(second={"share": 0.5, "begin": 0.5}), 0)


@pytest.mark.full
async def test_adapters_that_were_broken_off_go_on_as_the_unbroken_ones(tmp_path: Path) -> None:
    tables = {"second": {"share": 0.5}, "model": {"lora": 4}, "grpo": {"steps": 4}}  # all weights: test_training_run.py
    order = TrainingJob(settings(start(tmp_path / "start"), **tables), ground(), tmp_path / "run")

    def broken(step: StepMetrics) -> None:
        if step.number == 3:
            raise KeyboardInterrupt

    whole = await train(replace(order, folder=tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        await train(replace(order, watchers=[broken]))
    resumed = await train(replace(order, resume=True))
    assert (resumed.folder / WEIGHTS).read_bytes() == (whole.folder / WEIGHTS).read_bytes()
    assert (resumed.folder / WEIGHTS).read_bytes() != (tmp_path / "start" / WEIGHTS).read_bytes()
    assert {name.rpartition(".")[2] for name in load_file(whole.folder / WEIGHTS)} == {"weight", "bias"}


@pytest.mark.slow
def test_what_pays_is_done_more_often() -> None:
    told = list[StepMetrics]()
    more = {"steps": 24, "tasks": 8, "rate": 5e-3, "schedule": "constant"}
    trainer(model(), grpo=more, curriculum={"near_half": False}).run(told.append)
    first, last = (np.mean([step.reward for step in part]) for part in (told[:5], told[-5:]))
    assert last > first + 0.1


def test_batches_are_joined() -> None:
    short = {"prompt_ids": torch.tensor([[7, 8]]), "prompt_mask": torch.tensor([[1, 1]])}
    short |= {"completion_ids": torch.tensor([[5, 1]]), "completion_mask": torch.tensor([[1, 1]])}
    wide = {"prompt_ids": torch.tensor([[0, 9, 9]] * 2), "prompt_mask": torch.tensor([[0, 1, 1]] * 2)}
    wide |= {"completion_ids": torch.tensor([[6, 6, 1]] * 2), "completion_mask": torch.tensor([[1, 1, 1]] * 2)}
    rows = join_batches([short, wide], 4)
    assert rows["prompt_ids"].tolist() == [[0, 7, 8], [0, 9, 9], [0, 9, 9], [0, 9, 9]]
    assert rows["completion_mask"].tolist()[0] == [1, 1, 0]


@pytest.mark.slow
def test_two_processes_end_with_the_same_weights(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    start(tmp_path / "start")
    started = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    started += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", port]
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{SUPPORT.parent / 'src'}", "OMP_NUM_THREADS": "1"}
    command = [*started, str(SUPPORT / "crew_train.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)  # noqa: S603 - ours
    assert done.returncode == 0, done.stderr[-2000:]
    one, other = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    assert all(torch.equal(each, other[name]) for name, each in one.items())
    assert not all(torch.equal(each, one[name]) for name, each in weights(model()).items())
