"""Drawing now and then what a policy has all but stopped writing, so that it is found out what it is worth by now.

A form of plan that loses while its steps cannot be written yet is not sampled any more when they can, and what is not
sampled is not learned. Where the next token is one of a choice (tokens that begin with the same words hold more than
half of it), a share of what is drawn is spread evenly over the choice. Invariants: log-probabilities stay the policy's
own, so what was explored counts like anything that it writes by itself (a weight by how likely it was would take back
what exploring is for); everywhere else what is drawn stays as it was. Deliberately absent: when to explore (the phases
say that), and rewards for it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from shikisha.errors import ConfigError
from shikisha.train.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHOICE = 0.5  # of what comes next: more than this makes a place one where the choice is made


@dataclass(frozen=True, slots=True)
class Explore:
    """Tokens of which one is chosen, and the share in [0, 1] of such choices that is spread evenly over them."""

    tokens: tuple[int, ...]
    share: float

    def over(self, spread: Tensor) -> Tensor:
        """Return the log-probabilities [R, V] that are drawn from, given the policy's own."""
        places = list(self.tokens)
        chosen = spread[:, places].exp().sum(-1) > _CHOICE
        if not bool(chosen.any()):
            return spread
        even = spread.new_zeros(spread.shape[-1])
        even[places] = 1 / len(places)
        mixed = ((1 - self.share) * spread.exp() + self.share * even).log()
        return mixed.where(chosen[:, None], spread)


def explore_at(settings: TrainSettings, tokenizer: "Tokenizer", step: int) -> Explore | None:
    """Return what is explored in this step; None: nothing."""
    share = settings.explore_at(step)
    return Explore(choice(settings, tokenizer), share) if share else None


def choice(settings: TrainSettings, tokenizer: "Tokenizer") -> tuple[int, ...]:
    """Return the tokens of which one is chosen; ConfigError where fewer than two begin with the settings' words."""
    words = settings.grpo.choice
    tokens = sorted(number for token, number in tokenizer.get_vocab().items() if words and token.startswith(words))
    if len(tokens) < 2:
        raise ConfigError(f"grpo.choice: expected what two tokens or more begin with, found {words!r}")
    return tuple(tokens)
