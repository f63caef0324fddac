"""Scouts: completions that choose what a policy has all but stopped choosing, to find out what it is worth by now.

A form of plan that loses while its steps cannot be written yet is not sampled any more when they can, and what is not
sampled is not learned. So the last few completions of each group are scouts: where one of some tokens is chosen (those
that begin with the same words hold more than half of what comes next) they draw it evenly. What a scout found counts if
it is better than what the group's others came to, and is nobody's loss otherwise: the policy would not have written it.
Invariants: others' samples are what they would be without scouts, and so are their advantages, but for what `diversity`
gives for being rare in a group; log-probabilities stay the policy's. Deliberately absent: when to scout (the phases say
that), and rewards for it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shikisha.errors import ConfigError
from shikisha.train.advantage import SLIGHT, Comparison, Floats, Ints
from shikisha.train.settings import TrainSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_CHOICE = 0.5  # of what comes next: more than this makes a place one where the choice is made


@dataclass(frozen=True, slots=True)
class Explore:
    """Tokens of which one is chosen, and how many scouts each group ends with."""

    tokens: tuple[int, ...]
    scouts: int

    def instead(self, drawn: Tensor, odds: Tensor, numbers: Tensor, group: int, lots: Tensor) -> Tensor:
        """Return the tokens drawn [M], by scouts evenly where they choose.

        `odds` [M] is what the choice's tokens hold of what comes next; `numbers` [M] count completions, which come in
        groups of this size; `lots` [M] are in [0, 1).
        """
        here = (odds > _CHOICE) & (numbers % group >= group - self.scouts)
        choice = torch.tensor(self.tokens, device=drawn.device)
        return torch.where(here, choice[(lots * len(choice)).long()], drawn)


def explore_at(settings: TrainSettings, tokenizer: "Tokenizer", step: int) -> Explore | None:
    """Return who scouts in this step, and what; None: nobody."""
    scouts = settings.scouts_at(step)
    return Explore(choice(settings, tokenizer), scouts) if scouts else None


def choice(settings: TrainSettings, tokenizer: "Tokenizer") -> tuple[int, ...]:
    """Return the tokens of which one is chosen; ConfigError where fewer than two begin with the settings' words."""
    words = settings.grpo.choice
    tokens = sorted(number for token, number in tokenizer.get_vocab().items() if words and token.startswith(words))
    if len(tokens) < 2:
        raise ConfigError(f"grpo.choice: expected what two tokens or more begin with, found {words!r}")
    return tuple(tokens)


def found_better(rewards: Floats, groups: Ints, scouts: "NDArray[np.bool_]", how: Comparison) -> Floats:
    """Return [N] scouts' advantages: by how many deviations of their group they beat the others' mean, else 0."""
    found: Floats = np.zeros(len(rewards))
    for name in np.unique(groups[scouts]):
        group = (groups == name) & ~np.isnan(rewards)
        rows, others = np.flatnonzero(group & scouts), rewards[group & ~scouts]
        if len(rows) and len(others):
            spread = max(float(rewards[group].std()), how.least) if how.scaled else 1.0
            gain = (rewards[rows] - others.mean()) / spread if spread else np.zeros(len(rows))
            found[rows] = np.where(gain >= SLIGHT, gain, 0.0)
    return found
