"""GRPO as pure functions: rewards become advantages, and advantages become the loss. The one place to read it.

    r_i       = reward of completion i of a question (`plan_reward`); NaN where a worker failed
    A_i       = (r_i - mean r) / std r                 over the completions of its question; NaN takes no part
    rho_it    = pi(token t) / pi_old(token t)          1 on the first update after sampling
    loss      = mean_i mean_t [ -min(rho A, clip(rho, 1 - e, 1 + e_high) A) + beta rho KL ]
    KL        = exp(d) - d - 1, d = log pi_ref - log pi    an estimate from the sampled token

`trl` calls `step_advantages` and `grpo_loss` in TRL's trainer, and a test compares the loss and its gradient with TRL's
own. Arrays: N completions of all questions, each with C tokens. Deliberately absent: sampling, processes, optimizers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shikisha_train.plan_reward import Floats, Ints, ScoredPlan, reward_array
from shikisha_train.settings import GrpoTable, TrainSettings

MAX_GRAD_NORM = 1.0
# Means over several performances differ in their last bits.
_ZERO_STD = 1e-6


def group_relative(rewards: Floats, groups: Ints, *, scaled: bool = True, least_spread: float = 0.0) -> Floats:
    """Return [N]: A_i = (r_i − mean(r)) / std(r) within each group, 0 without variance. NaN rewards take no part.

    `scaled` False leaves the division out (Dr. GRPO, arXiv 2503.20783); `least_spread` bounds std(r) from below.
    """
    advantages: Floats = np.zeros(len(rewards))
    for group in np.unique(groups):
        rows = np.flatnonzero((groups == group) & ~np.isnan(rewards))
        if std := _std(rewards[rows]):
            scale = max(std, least_spread) if scaled else 1.0
            advantages[rows] = (rewards[rows] - rewards[rows].mean()) / scale
    return advantages


def step_advantages(
    scored: Sequence[Sequence[ScoredPlan]], second: Sequence[bool], tasks: Sequence[str], settings: TrainSettings
) -> tuple[Floats, float]:
    """Return the advantages [N] of all groups' completions, and the share of groups whose rewards have no variance.

    `second` says which groups are second rounds, `tasks` names each group's task. A first round that a second one
    follows is discounted; rounds of one task are compared with each other where `second.across` says so.
    """
    sizes, table = [len(group) for group in scored], settings.second
    numbers = np.arange(len(scored))
    followed = {task for task, is_second in zip(tasks, second, strict=True) if is_second}
    kept = [
        1.0 if late or task not in followed else 1 - table.discount for task, late in zip(tasks, second, strict=True)
    ]
    rewards = np.concatenate([reward_array(group) for group in scored]) * np.repeat(kept, sizes)
    compared = numbers
    if table.across and followed:
        names = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
        compared = np.array([names[task] for task in tasks], np.int64)
    grpo = settings.grpo
    advantages = group_relative(rewards, np.repeat(compared, sizes), scaled=grpo.scaled, least_spread=grpo.least_spread)
    groups = np.repeat(numbers, sizes)
    flat = [not _std(rewards[(groups == number) & ~np.isnan(rewards)]) for number in numbers]
    return advantages, float(np.mean(flat)) if flat else 0.0


def _std(rewards: Floats) -> float:
    """Return the standard deviation; 0 where it is rounding."""
    std = float(rewards.std()) if len(rewards) > 1 else 0.0
    return std if std >= _ZERO_STD else 0.0


@dataclass(frozen=True, slots=True)
class GRPOLoss:
    """The loss, and its two terms without gradient; scalars. `total` is `policy` plus the weighted `kl`."""

    total: Tensor
    policy: Tensor
    kl: Tensor


def grpo_loss(
    logprobs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    table: GrpoTable,
    *,
    old_logprobs: Tensor | None = None,
    reference: Tensor | None = None,
    correction: Tensor | None = None,
) -> GRPOLoss:
    """Return the loss of sampled tokens: `logprobs` [N, C] with gradient, `mask` [N, C], `advantages` [N].

    `old_logprobs` [N, C] are the sampler's (None: the same weights sampled), `reference` [N, C] those of the model that
    training began with (None: no KL). `correction` [N, C] or [N, 1] multiplies the policy term, for a sampler that
    computes otherwise (vLLM).
    """
    old = logprobs.detach() if old_logprobs is None else old_logprobs
    policy = clipped_surrogate(logprobs, old, advantages, table.clip, table.clip_high)
    policy = mean_over_completions(policy if correction is None else policy * correction, mask)
    if reference is None:
        return GRPOLoss(policy, policy.detach(), torch.zeros_like(policy))
    # The ratio makes the gradient that of the KL itself (DeepSeek-V3.2, arXiv 2512.02556).
    kl = mean_over_completions((logprobs - old).exp() * estimated_kl(logprobs, reference), mask)
    return GRPOLoss(policy + table.kl * kl, policy.detach(), kl.detach())


def clipped_surrogate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: float, clip_high: float | None = None
) -> Tensor:
    """Return −min(ρ A, clip(ρ, 1 − ε, 1 + ε_high) A) of each token [..., C]; `advantages` [...] are completions'.

    ε_high above ε is DAPO's clip-higher (arXiv 2503.14476); None: the same.
    """
    ratio = (logprobs - old_logprobs).exp()
    advantage = advantages[..., None]
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + (clip_high or clip)) * advantage)


def estimated_kl(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return an unbiased, never negative estimate of KL(π ‖ π_ref) at each sampled token [..., C]."""
    apart = reference - logprobs
    return apart.exp() - apart - 1


def mean_over_completions(values: Tensor, mask: Tensor) -> Tensor:
    """Return mean_i mean_t of values [N, C]."""
    return ((values * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()
