"""TRL's side of training: going on after a halt, several processes, adapters, money, chats, and what it must not do."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
import trainings
from paths import SUPPORT
from safetensors.torch import load_file
from torch import Tensor
from train_world import foreign, items, model, scorer, settings, source, tokenizer
from transformers import Qwen2ForCausalLM

from shikisha.core.errors import CapReached, ConfigError, TrainingDiverged
from shikisha.core.task import Task
from shikisha.evals.reward import RewardWeights
from shikisha.training.checkpoint import WEIGHTS, TrainingState, capture_state, restore_state
from shikisha.training.grpo import GRPOLoop, compute_advantages
from shikisha.training.metrics import StepMetrics
from shikisha.training.plan_reward import PlanScorer, ScoredPlan, reward_array
from shikisha.training.rollout import PlanPrompt, RolloutGroup, full_logprobs
from shikisha.training.training_run import TrainingJob, train
from shikisha.training.trl import PlanGRPOTrainer, TrlLoop, wrap_tokenizer
from shikisha.training.trl_batch import PlanRewardFunction, deduplicate_rows, join_batches

HERE = SUPPORT


Begin = Callable[[], Qwen2ForCausalLM]


def trainer(begun: Qwen2ForCausalLM | None = None, **tables: object) -> PlanGRPOTrainer:
    return PlanGRPOTrainer(begun or model(), tokenizer(), source(), scorer(), settings(**tables))


def weights(trained: torch.nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in trained.named_parameters()}


def remembered(trained: PlanGRPOTrainer) -> TrainingState:
    """Everything that the next steps hang on besides weights."""
    held = capture_state(trained.policy_optimizer, {"sampling": trained.generator})
    return TrainingState(held.tensors, {**held.facts, "source": trained.curriculum.state()})


@pytest.mark.full
def test_a_resumed_training_is_the_unbroken_one() -> None:
    whole, begun, again = trainer(unbroken := model()), trainer(halted := model()), trainer(resumed := model(5))
    told, state = list[StepMetrics](), remembered(begun)

    def halt(step: StepMetrics) -> None:
        nonlocal state
        if step.number == 2:
            state = remembered(begun)
            resumed.load_state_dict(halted.state_dict())
            raise KeyboardInterrupt

    whole.run()
    with pytest.raises(KeyboardInterrupt):
        begun.run(halt)
    again.step = begun.step
    restore_state(state, again.policy_optimizer, {"sampling": again.generator})
    again.curriculum.restore(cast("dict[str, object]", state.facts["source"]))
    again.run(told.append)
    assert [step.number for step in told] == [3]
    assert weights(unbroken).keys() == weights(resumed).keys()
    assert all(torch.equal(each, weights(resumed)[name]) for name, each in weights(unbroken).items())


@pytest.mark.full
async def test_step_by_step_it_is_the_same_training() -> None:
    table, at_once, by_step = settings(), model(), model()
    PlanGRPOTrainer(at_once, tokenizer(), source(), scorer(), table).run()
    stepped = TrlLoop(by_step, tokenizer(), source(), scorer(), table)
    told = [await stepped.advance() for _ in range(table.grpo.steps)]
    assert [step.number for step in told] == [1, 2, 3]
    assert stepped.step == 3
    assert all(torch.equal(each, weights(by_step)[name]) for name, each in weights(at_once).items())


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
async def test_a_cancelled_step_touches_no_weight_and_can_be_taken_again() -> None:
    begun, slow = model(), Waiting()
    stepped = TrlLoop(begun, tokenizer(), source(), slow, settings())
    step = asyncio.create_task(stepped.advance())
    await slow.asked.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert stepped.step == 0
    assert all(torch.equal(each, weights(begun)[name]) for name, each in weights(model()).items())
    slow.let.set()
    assert (await stepped.advance()).number == 1


@pytest.mark.full
@pytest.mark.parametrize("begun", [model, foreign])
def test_a_worker_that_fails_is_masked_and_counted(begun: Begin) -> None:
    made, masked = PlanGRPOTrainer(begun(), tokenizer(), source(faulty=True), scorer(), settings()), list[float]()

    def look(step: StepMetrics) -> None:
        spoilt = np.array([one.total is None for each in made.current.all_groups for one in each.found])
        assert step.masked == pytest.approx(spoilt.mean())
        assert not made.current.advantages[spoilt].any()
        masked.append(step.masked)

    made.run(look)
    assert len(masked) == 3
    assert max(masked) > 0


@pytest.mark.full
@pytest.mark.parametrize("begun", [model, foreign])
def test_adapters_learn_and_nothing_else_does(begun: Begin) -> None:
    made, told = begun(), list[StepMetrics]()
    before = weights(made)
    trainer(made, model={"brief": True, "lora": 4}, grpo={"kl": 0.05}).run(told.append)
    after = {name.replace(".base_layer", ""): each for name, each in weights(made).items()}
    added = {name: each for name, each in after.items() if "lora_B" in name}
    assert added
    assert all(each.abs().sum() > 0 for each in added.values())
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    assert told[0].kl == pytest.approx(0, abs=1e-6)
    assert told[-1].kl > 0


def test_nothing_to_learn_moves_nothing() -> None:
    made, told = model(), list[StepMetrics]()
    PlanGRPOTrainer(made, tokenizer(), source(), PlanScorer(RewardWeights(format=0.0)), settings()).run(told.append)
    assert [step.even for step in told] == [1.0, 1.0, 1.0]
    assert all(torch.equal(each, weights(made)[name]) for name, each in weights(model()).items())


def test_money_that_is_spent_ends_it() -> None:
    made = PlanGRPOTrainer(model(), tokenizer(), source(), PlanScorer(RewardWeights(), dollars=0.0), settings())
    with pytest.raises(ExceptionGroup) as caught:
        made.run()
    assert caught.group_contains(CapReached)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"trl": {"rows": 5}}, "trl.rows: expected a divisor of the 32 completions of a step, found 5"),
        ({"grpo": {"kl": 0.1}}, "grpo.kl: a divergence needs the model that training began with"),
    ],
)
def test_what_cannot_be_is_refused(tables: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PlanGRPOTrainer(model(), tokenizer(), source(), scorer(), settings(**tables))


def test_nothing_is_explored_where_somebody_else_samples() -> None:
    explored = settings(grpo={"choice": "a", "phases": [{"begin": 0.0, "compare": "group", "explore": 0.1}]})
    theirs = model()
    theirs.config.attention_dropout = 0.1
    TrlLoop(model(), tokenizer(), source(), scorer(), explored)
    with pytest.raises(ConfigError, match="explore: expected 0 where TRL or vLLM samples"):
        TrlLoop(theirs, tokenizer(), source(), scorer(), explored)


def test_a_gradient_that_is_no_number_moves_no_weight() -> None:
    made = model()
    made.model.norm.weight.register_hook(lambda each: each * torch.nan)
    with pytest.raises(TrainingDiverged, match="step 0: the gradient"):
        trainer(made).run()
    assert all(torch.equal(each, weights(made)[name]) for name, each in weights(model()).items())


def test_no_text_can_spell_a_special_token() -> None:
    words = wrap_tokenizer(tokenizer(), 0, 1)(["ask [end] how [pad] many"]).input_ids[0]
    assert not {0, 1} & set(words)
    assert words == tokenizer().encode("ask [end] how [pad] many").ids


def test_a_chat_is_instructions_and_a_briefing() -> None:
    play = PlanRewardFunction(tokenizer(), 1, scorer(), settings(model={"brief": False}))
    chat = play.prompt(PlanPrompt(replace(items()(7), task=Task("how many?", id="x"))))
    assert isinstance(chat, list)
    assert [turn["role"] for turn in chat] == ["system", "user"]
    assert "model_id" in chat[0]["content"]
    assert "| how many?" in chat[1]["content"]


@pytest.mark.full
def test_a_model_that_reads_chats_is_trained_by_its_template() -> None:
    chats = wrap_tokenizer(
        tokenizer(), 0, 1, "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\n{% endfor %}plan\n"
    )
    made, told = foreign(), list[StepMetrics]()
    table = settings(model={"brief": False}, grpo={"steps": 1, "tasks": 2})
    PlanGRPOTrainer(made, chats, source(), scorer(), table).run(told.append)
    assert told[0].valid > 0
    assert any(not torch.equal(each, weights(made)[name]) for name, each in weights(model()).items())


@pytest.mark.full
@pytest.mark.parametrize("table", [{}, {"model": {"lora": 4}}])
async def test_a_run_that_was_broken_off_goes_on_as_the_unbroken_one(table: dict[str, object], tmp_path: Path) -> None:
    given = {"backend": "trl", "second": {"share": 0.5}, **table}
    order = TrainingJob(
        trainings.settings(trainings.start(tmp_path / "start"), **given), trainings.ground(), tmp_path / "run"
    )

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


@pytest.mark.full
async def test_a_run_by_trl_ends_as_one_by_the_plain_loop(tmp_path: Path) -> None:
    started, found = trainings.start(tmp_path / "start"), []
    for backend in ("trl", "plain"):
        table = trainings.settings(started, backend=backend)
        found.append(await train(TrainingJob(table, trainings.ground(), tmp_path / backend)))
    one, other = (load_file(each.folder / WEIGHTS) for each in found)
    apart = torch.cat([(each - other[name]).abs().flatten() for name, each in one.items()])
    assert (apart > 1e-4).float().mean() < 0.005
    assert apart.max() < 1e-3  # the rate: Adam takes a whole step of a gradient that is nothing but roundings
    assert found[0].judged == found[1].judged


def test_batches_are_joined_and_told_apart() -> None:
    short = {"prompt_ids": torch.tensor([[7, 8]]), "prompt_mask": torch.tensor([[1, 1]])}
    short |= {"completion_ids": torch.tensor([[5, 1]]), "completion_mask": torch.tensor([[1, 1]])}
    wide = {"prompt_ids": torch.tensor([[0, 9, 9]] * 2), "prompt_mask": torch.tensor([[0, 1, 1]] * 2)}
    wide |= {"completion_ids": torch.tensor([[6, 6, 1]] * 2), "completion_mask": torch.tensor([[1, 1, 1]] * 2)}
    rows = join_batches([short, wide], 4)
    assert rows["prompt_ids"].tolist() == [[0, 7, 8], [0, 9, 9], [0, 9, 9], [0, 9, 9]]
    assert rows["completion_mask"].tolist()[0] == [1, 1, 0]
    ones = deduplicate_rows(rows)
    assert ones.prompts == [[7, 8], [9, 9]]
    assert ones.tokens.shape == (2, 1, 3)
    assert ones.expand(ones.tokens).tolist() == rows["completion_ids"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("own", ["own", "trl"])
def test_two_processes_do_what_one_does_with_both_batches(own: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    started += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", port]
    command = [*started, str(HERE / "trl_process.py"), str(tmp_path), own]
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent / 'src'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)  # noqa: S603 - ours
    assert done.returncode == 0, done.stderr[-2000:]
    one, other = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    assert all(torch.equal(each, other[name]) for name, each in one.items())
    groups = [_group(told) for rank in range(2) for told in json.loads((tmp_path / f"{rank}.json").read_text())]
    assert [group.prompt for group in groups[:2]] != [group.prompt for group in groups[-2:]]
    plain = GRPOLoop(model(), tokenizer(), source(), scorer(), settings(grpo={"steps": 1}))
    rewards = np.concatenate([reward_array(group.scored) for group in groups])
    numbers = np.repeat(np.arange(len(groups)), [len(group.scored) for group in groups])
    plain.update(groups, compute_advantages(rewards, numbers))
    assert all(torch.allclose(each, one[name], atol=2e-4) for name, each in weights(plain.model).items())
    assert not all(torch.allclose(each, one[name], atol=2e-4) for name, each in weights(model()).items())


def _group(told: dict[str, list[object]]) -> RolloutGroup:
    """The group that a process wrote down, with what its tokens' log-probabilities were."""
    tokens, real = torch.tensor(told["tokens"]), torch.tensor(told["real"])
    prompt = [int(str(token)) for token in told["prompt"]]
    spread = full_logprobs(model(), [prompt], tokens[None])[0].detach()
    found = tuple(ScoredPlan(*one) for one in told["found"] if isinstance(one, list))
    likely = spread.gather(-1, tokens[..., None])[..., 0]
    return RolloutGroup(PlanPrompt(items()(0)), prompt, tokens, real, likely, tuple(map(str, told["texts"])), found)
