"""The algorithm: advantages by hand, the loss and its gradient next to TRL's own."""

import numpy as np
import pytest
import torch
from trainings import chat_words, model, settings, stream
from trl.trainer.grpo_trainer import GRPOTrainer

from shikisha.evals.reward import RewardWeights
from shikisha_train.environment import TaskCurriculum
from shikisha_train.grpo import estimated_kl, group_relative, grpo_loss, step_advantages
from shikisha_train.plan_reward import PlanScorer, ScoredPlan
from shikisha_train.settings import GrpoTable
from shikisha_train.trl import PlanGRPOTrainer

GROUPS = np.array([0, 0, 0, 0, 1, 1, 2, 2], np.int64)
REWARDS = np.array([1.0, 0.5, 0.0, np.nan, 0.5, 0.5, 1.0, 0.0])


def test_an_advantage_is_the_rewards_distance_from_its_groups_mean_in_deviations() -> None:
    found = group_relative(REWARDS, GROUPS)
    std = np.std([1.0, 0.5, 0.0])
    assert found == pytest.approx([0.5 / std, 0.0, -0.5 / std, 0.0, 0.0, 0.0, 1.0, -1.0])
    assert group_relative(REWARDS, GROUPS, scaled=False) == pytest.approx([0.5, 0.0, -0.5, 0.0, 0.0, 0.0, 0.5, -0.5])
    assert group_relative(REWARDS, GROUPS, least_spread=2.0) == pytest.approx([0.25, 0, -0.25, 0, 0, 0, 0.25, -0.25])


def test_roundings_are_no_variance() -> None:
    assert not group_relative(np.array([0.3, 0.1 + 0.2, 0.3]), np.zeros(3, np.int64)).any()


def scored(*rewards: float | None) -> list[ScoredPlan]:
    return [ScoredPlan(reward) for reward in rewards]


def test_a_group_without_variance_teaches_nothing_and_is_counted() -> None:
    groups = [scored(1.0, 1.0), scored(1.0, 0.0), scored(None, 0.5)]
    found, flat = step_advantages(groups, [False] * 3, ["a", "b", "c"], settings())
    assert found == pytest.approx([0, 0, 1, -1, 0, 0])
    assert flat == pytest.approx(2 / 3)


def test_a_first_round_that_is_followed_is_discounted_and_rounds_of_a_task_are_compared() -> None:
    groups, second, tasks = (
        [scored(1.0, 0.0), scored(1.0, 0.0), scored(1.0, 0.5)],
        [False, False, True],
        ["a", "b", "a"],
    )
    table = settings(second={"discount": 0.5, "across": True}, grpo={"scaled": False})
    found, _ = step_advantages(groups, second, tasks, table)
    mean = (0.5 + 0.0 + 1.0 + 0.5) / 4
    assert found == pytest.approx([0.5 - mean, -mean, 0.5, -0.5, 1.0 - mean, 0.5 - mean])
    apart, _ = step_advantages(groups, second, tasks, settings(grpo={"scaled": False}))
    assert apart == pytest.approx([0.5, -0.5, 0.5, -0.5, 0.25, -0.25])


def test_a_ratio_beyond_the_clip_has_no_gradient() -> None:
    logprobs = torch.tensor([[0.0, 1.0], [0.0, -1.0]], requires_grad=True)
    mask, advantages = torch.ones(2, 2), torch.tensor([1.0, -1.0])
    table = GrpoTable(clip=0.2)
    loss = grpo_loss(logprobs, mask, advantages, table, old_logprobs=torch.zeros(2, 2))
    assert float(loss.total.detach()) == pytest.approx((-1.0 - 1.2 + 1.0 + 0.8) / 4)
    torch.autograd.backward(loss.total)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-0.25, 0.0], [0.25, 0.0]]


def test_the_kl_is_an_unbiased_estimate() -> None:
    torch.manual_seed(0)
    policy, reference = torch.randn(7).log_softmax(-1), torch.randn(7).log_softmax(-1)
    exact = (policy.exp() * (policy - reference)).sum()
    assert float((policy.exp() * estimated_kl(policy, reference)).sum()) == pytest.approx(float(exact), abs=1e-6)
    assert bool((estimated_kl(policy, reference) >= 0).all())


@pytest.mark.parametrize("kl", [0.0, 0.2])
@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_the_loss_and_its_gradient_are_trls_own(kl: float, moved: float) -> None:
    table = settings(grpo={"steps": 1, "kl": kl, "clip_high": 0.3, "longest": 4})
    begun = model()
    source = TaskCurriculum(stream)
    trainer = PlanGRPOTrainer(begun, chat_words(), source, PlanScorer(RewardWeights()), table, model(1) if kl else None)
    trainer.current_gradient_accumulation_steps = 1
    trainer.epsilon_low, trainer.epsilon_high, trainer.loss_type = 0.2, 0.3, "grpo"
    rows = trainer._generate_and_score_completions([])
    with torch.no_grad():
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        old = trainer._get_per_token_logps_and_entropies(begun, ids, mask, rows["completion_ids"].size(1))[0]
    rows["old_per_token_logps"] = old + moved * torch.sin(rows["completion_ids"].float())
    gradients = []
    for loss_of in (trainer.compute_loss, lambda *given: GRPOTrainer.compute_loss(trainer, *given)):
        begun.zero_grad()
        loss = loss_of(begun, rows)
        torch.autograd.backward(loss)
        gradients.append(
            (float(loss.detach()), [each.grad.clone() for each in begun.parameters() if each.grad is not None])
        )
    (ours, own), (theirs, other) = gradients
    assert ours == pytest.approx(theirs, abs=1e-6)
    apart = max(float((one - two).abs().max()) for one, two in zip(own, other, strict=True))
    largest = max(float(each.abs().max()) for each in own)
    assert apart < 1e-4 * largest
    assert largest > 1e-5
    assert float(trainer.current.terms[1]) > 0 if kl else float(trainer.current.terms[1]) == 0


def test_a_sampler_that_computes_otherwise_is_corrected() -> None:
    logprobs, mask = torch.zeros(2, 3), torch.ones(2, 3)
    table, advantages = GrpoTable(), torch.tensor([1.0, -1.0])
    plain = grpo_loss(logprobs, mask, advantages, table)
    found = grpo_loss(logprobs, mask, advantages, table, correction=torch.tensor([[0.5], [1.0]]))
    assert float(plain.total) == 0
    assert float(found.total) == pytest.approx((-0.5 + 1.0) / 2)
