"""The plain loop against the bare formula, and TRL against the plain loop: one curve, one gradient."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from train_world import foreign, model, scorer, settings, source, tokenizer
from transformers import Qwen2ForCausalLM

from shikisha.core.errors import TrainingDiverged
from shikisha.training.grpo import GRPOLoop, compute_advantages
from shikisha.training.metrics import StepMetrics
from shikisha.training.plan_reward import reward_array
from shikisha.training.rollout import PlanPrompt, RolloutGroup, SamplingParams, full_logprobs, sample, training_batch
from shikisha.training.settings import AdvantageSettings, TrainSettings
from shikisha.training.trl import PlanGRPOTrainer

VARIANTS = {
    "as it is": settings(),
    "no scaling": settings(grpo={"scaled": False}),
    "divergence": settings(grpo={"kl": 0.05}),
    "warm": settings(grpo={"temperature": 0.7}),
    "entropy": settings(grpo={"entropy": 0.05, "entropy_floor": 9.0}),
    "phases": settings(grpo={"phases": [{"begin": 0, "compare": "within"}, {"begin": 0.5, "compare": "between"}]}),
    "second rounds": settings(second={"share": 0.5}, grpo={"kl": 0.05}),
    "in parts": settings(second={"share": 1.0, "firsts": 3}, grpo={"kl": 0.05}, trl={"rows": 8}),
}


def loop(table: TrainSettings, begun: Qwen2ForCausalLM | None = None, faulty: bool = False) -> GRPOLoop:
    held = model() if table.grpo.kl else None
    return GRPOLoop(begun or model(), tokenizer(), source(faulty), scorer(), table, held)


async def steps(plain: GRPOLoop) -> list[StepMetrics]:
    return [await plain.advance() for _ in range(plain.settings.grpo.steps)]


def gradients(moved: Qwen2ForCausalLM, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The first step's gradients, as the optimizer has kept a tenth of them."""
    return {name: 10 * optimizer.state[each]["exp_avg"] for name, each in moved.named_parameters()}


def farthest(one: Qwen2ForCausalLM, other: Qwen2ForCausalLM) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def figures(step: StepMetrics) -> dict[str, object]:
    """What a step came to, but for how long it took; floats to five places."""
    told = {name: getattr(step, name) for name in step.__slots__ if name != "seconds"}
    return {name: pytest.approx(one, abs=1e-5) if isinstance(one, float) else one for name, one in told.items()}


def compared(groups: Sequence[RolloutGroup], table: TrainSettings) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rewards = np.concatenate([reward_array(group.scored) for group in groups])
    numbers = np.repeat(np.arange(len(groups)), [len(group.scored) for group in groups])
    return compute_advantages(rewards, numbers, AdvantageSettings(scale_by_std=table.grpo.scaled))


def test_completions_of_one_text_in_other_tokens_are_read_apart() -> None:
    """What was sampled is what is learned from (7): merged by text, the second would have no gradient."""
    tokens = torch.tensor([[11, 12, 13], [14, 13, 0], [11, 12, 13]])
    mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    group = RolloutGroup(cast("PlanPrompt", None), [1], tokens, mask, torch.zeros(3, 3), ("same",) * 3, ())
    batch = training_batch([group], np.array([1.0, -1.0, 0.5]))
    assert batch is not None
    assert batch.tokens.tolist() == [[[11, 12, 13], [14, 13, 0]]]
    assert (batch.counts.tolist(), batch.advantages.tolist()) == ([[2.0, 1.0]], [[0.75, -1.0]])


async def test_the_same_settings_give_the_same_curve() -> None:
    one, other = loop(VARIANTS["second rounds"]), loop(VARIANTS["second rounds"])
    told = [[replace(step, seconds={}) for step in await steps(each)] for each in (one, other)]
    assert told[0] == told[1]
    assert farthest(one.model, other.model) == 0


async def test_it_learns_whom_to_ask() -> None:
    told = await steps(loop(settings(grpo={"steps": 40, "rate": 5e-3, "group": 16})))
    assert np.mean([step.right for step in told[:3]]) < 0.4
    assert np.mean([step.right for step in told[-3:]]) > 0.8


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_sample_is_as_likely_as_the_sampler_said(temperature: float) -> None:
    prompts = [[3, 4, 5], [6, 7, 8, 9]]
    drawn = sample(model(), prompts, 5, 6, torch.Generator().manual_seed(1), SamplingParams(temperature))
    spread = full_logprobs(model(), prompts, drawn.tokens, temperature).detach()
    found = spread.gather(-1, drawn.tokens[..., None])[..., 0] * drawn.mask
    assert torch.allclose(found, drawn.logprobs, atol=1e-5)


async def test_a_step_follows_the_bare_formula() -> None:
    plain, bare = loop(settings()), model()
    [group, *_] = groups = await plain.rollout([_asked(plain) for _ in range(3)], 8)
    wished = compared(groups, plain.settings)
    plain.update(groups, wished)
    each = []
    for number, one in enumerate(groups):
        for place, real in enumerate(one.mask.sum(-1).tolist()):
            written = one.tokens[place, :real].tolist()
            logits = bare(torch.tensor([one.prompt + written])).logits[0, len(one.prompt) - 1 : -1]
            likely = logits.log_softmax(-1)[range(real), written]
            each.append(-wished[number * 8 + place] * likely.mean())
    (sum(each) / np.count_nonzero(wished)).backward()
    torch.nn.utils.clip_grad_norm_(bare.parameters(), 1.0)
    assert len(group.texts) == 8
    for name, found in gradients(plain.model, plain.optimizer).items():
        assert torch.allclose(found, _gradient(bare, name), atol=1e-5), name


async def test_a_worker_that_fails_is_nobodys_reward() -> None:
    plain = loop(settings(grpo={"group": 96}), faulty=True)
    groups = await plain.rollout([_asked(plain)], 96)
    spoilt = np.array([one.total is None for one in groups[0].scored])
    assert 0 < spoilt.sum() < 96
    assert not compared(groups, plain.settings)[spoilt].any()
    assert (await plain.advance()).masked > 0


@pytest.mark.parametrize("backend", [GRPOLoop, PlanGRPOTrainer])
async def test_a_loss_that_is_no_number_moves_no_weight(backend: type[GRPOLoop] | type[PlanGRPOTrainer]) -> None:
    broken, begun = model(), model()
    broken.model.norm.weight.data.fill_(torch.nan)
    made = backend(begun, tokenizer(), source(), scorer(), VARIANTS["divergence"], broken)
    with pytest.raises(TrainingDiverged, match="step 0: the loss is"):
        made.run() if isinstance(made, PlanGRPOTrainer) else await made.advance()
    assert farthest(begun, model()) == 0


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
async def test_trl_takes_the_same_steps(variant: str) -> None:
    table = VARIANTS[variant]
    plain, told = loop(table), list[StepMetrics]()
    trainer = PlanGRPOTrainer(
        begun := model(), tokenizer(), source(), scorer(), table, model() if table.grpo.kl else None
    )
    assert trainer.own_forward
    trainer.run(told.append)
    assert [figures(step) for step in await steps(plain)] == [figures(step) for step in told]
    assert farthest(plain.model, begun) < 1e-4
    assert farthest(plain.model, model()) > 1e-2


@pytest.mark.parametrize("variant", ["as it is", "no scaling", "warm", "in parts"])
async def test_trls_own_pass_has_the_same_gradient(variant: str) -> None:
    table = settings(**{**VARIANTS[variant].model_dump(exclude={"grpo"}), "grpo": _once(VARIANTS[variant])})
    trainer = PlanGRPOTrainer(begun := foreign(), tokenizer(), source(), scorer(), table)
    assert not trainer.own_forward
    trainer.run()
    plain = loop(table)
    groups = [_likely(group, plain.model, table) for group in trainer.current.groups]
    plain.update(groups, compared(groups, table))
    found = gradients(plain.model, plain.optimizer)
    for name, other in gradients(begun, trainer.policy_optimizer).items():
        assert torch.allclose(found[name], other, atol=1e-5), name


@pytest.mark.parametrize("clips", [{}, {"clip_high": 0.6}, {"clip": 0.05, "clip_high": 0.05}, {"kl": 0.2}])
async def test_off_policy_samples_are_clipped_alike(clips: dict[str, float]) -> None:
    table = settings(grpo={**clips, "steps": 1})
    plain = loop(table)
    trainer = PlanGRPOTrainer(
        begun := model(), tokenizer(), source(), scorer(), table, model(1) if table.grpo.kl else None
    )
    plain.reference = model(1) if table.grpo.kl else None
    trainer.current_gradient_accumulation_steps = 1
    rows = trainer._generate_and_score_completions([])
    rows["old_per_token_logps"] = rows["old_per_token_logps"] + _shift(rows["completion_ids"])
    trainer.compute_loss(begun, rows).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(begun.parameters(), 1.0)
    moved = [replace(group, logprobs=group.logprobs + _shift(group.tokens)) for group in trainer.current.groups]
    terms, _ = plain.update(moved, compared(moved, table))
    assert float(trainer.current.terms[0]) == pytest.approx(float(terms.policy.detach()), abs=1e-5)
    assert float(trainer.current.terms[1]) == pytest.approx(float(terms.kl.detach()), abs=1e-5)
    for name, found in gradients(plain.model, plain.optimizer).items():
        assert torch.allclose(found, _gradient(begun, name), atol=1e-5), name


def _asked(plain: GRPOLoop) -> PlanPrompt:
    return PlanPrompt(plain.curriculum.draw(1)[0])


def _once(table: TrainSettings) -> dict[str, object]:
    return {**table.grpo.model_dump(), "steps": 1, "kl": 0.0}


def _gradient(moved: Qwen2ForCausalLM, name: str) -> torch.Tensor:
    found = moved.get_parameter(name).grad
    assert found is not None
    return found


def _shift(tokens: torch.Tensor) -> torch.Tensor:
    """How much likelier each token is said to have been than it was."""
    return 0.5 * torch.sin(tokens.float())


def _likely(group: RolloutGroup, begun: Qwen2ForCausalLM, table: TrainSettings) -> RolloutGroup:
    """The group with what its tokens' log-probabilities were."""
    spread = full_logprobs(begun, [group.prompt], group.tokens[None], table.grpo.temperature)[0].detach()
    return replace(group, logprobs=spread.gather(-1, group.tokens[..., None])[..., 0])
