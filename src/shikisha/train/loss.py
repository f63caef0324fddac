"""GRPO's loss, as pure functions of tensors (arXiv 2402.03300; clip-higher after DAPO, arXiv 2503.14476).

Invariants: with ratio 1 (samples of this very policy) its gradient is that of -advantage × log-probability; padding
counts for nothing. Deliberately absent: sampling, rewards, optimizers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Terms:
    """A loss in its parts, each a scalar: `policy`, `kl` to the reference, `entropy` of the tokens' distributions."""

    policy: Tensor
    kl: Tensor
    entropy: Tensor


def clipped(logprobs: Tensor, sampled: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Return the clipped surrogate loss of each token [..., C]; `advantages` [...] are their completions'."""
    ratio = (logprobs - sampled).exp()
    wished = advantages[..., None]
    return -torch.minimum(ratio * wished, ratio.clamp(1 - low, 1 + high) * wished)


def divergence(spread: Tensor, reference: Tensor) -> Tensor:
    """Return the exact KL divergence [..., C] of distributions [..., C, V], given as log-probabilities."""
    return (spread.exp() * (spread - reference)).sum(-1)


def entropy(spread: Tensor) -> Tensor:
    """Return the entropy [..., C] in nats of distributions [..., C, V], given as log-probabilities."""
    return -(spread.exp() * spread).sum(-1)


def mean_of(values: Tensor, real: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over completions [...] of their tokens' means [..., C]; `weights` [...] count completions."""
    each = (values * real).sum(-1) / real.sum(-1).clamp(min=1)
    return (each * weights).sum() / weights.sum().clamp(min=1)
