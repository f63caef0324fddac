"""Writing token after token: a model that reads on from what it has read, greedy or by lot, with or without limits.

A `Model` is one method, `begin`; a `Reading` keeps keys and values of what it was fed, so each token is computed once.
What is written by lot hangs on the seed given and on nothing else. Invariants: a model holds no state between readings
and may be used by several threads; a token that `Limits` refuses is never written, and its probability goes to the
others. Deliberately absent: batches (training samples groups, `train.rollout`), beams, penalties. Models are in
`exported` (ONNX Runtime, no torch) and in `train.serving` (transformers).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Protocol

import numpy as np

from shikisha.errors import PlanError
from shikisha.policy.arrays import Flags, Floats, Lean


class Reading(Protocol):
    """A text that is being read."""

    def feed(self, tokens: Sequence[int]) -> Lean:
        """Read these tokens too; return the logits [V] of the next one."""
        ...


class Model(Protocol):
    """What tells how texts go on."""

    @property
    def longest(self) -> int:
        """How many tokens a text may have, what is written included."""
        ...

    def begin(self) -> Reading:
        """Begin a text."""
        ...


class Limits(Protocol):
    """What may be written, as it is being written."""

    def allows(self, token: int) -> bool:
        """Say whether this token may come next."""
        ...

    def allowed(self) -> Flags:
        """Return which tokens [V] may come next."""
        ...

    def take(self, token: int, left: int) -> bool:
        """Note that this token was written and that so many more can be; say whether the text is complete."""
        ...


@dataclass(frozen=True, slots=True)
class Lot:
    """Tokens are drawn at this temperature, by this seed."""

    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Written:
    """Tokens without the end; `logprob` (nats) of all that was drawn, the end too; whether it came to an end."""

    tokens: tuple[int, ...]
    logprob: float
    ended: bool


@dataclass(frozen=True, slots=True)
class Order:
    """How to write: at most `longest` tokens, until one of `ends`; by lot or the likeliest; within limits or not."""

    longest: int
    ends: frozenset[int]
    lot: Lot | None = None
    limits: Limits | None = None


def write(model: Model, prompt: Sequence[int], order: Order) -> Written:
    """Write on from the prompt; PlanError where a logit is no number, or nothing at all may be written."""
    reading, dice = model.begin(), np.random.default_rng(order.lot.seed if order.lot else 0)
    logits = reading.feed(prompt)
    tokens: list[int] = []
    logprobs: list[float] = []
    for left in reversed(range(order.longest)):
        token, logprob = _chosen(logits, order, dice)
        logprobs.append(logprob)
        if token in order.ends:
            return Written(tuple(tokens), fsum(logprobs), ended=True)
        tokens.append(token)
        if order.limits is not None and order.limits.take(token, left):
            return Written(tuple(tokens), fsum(logprobs), ended=True)
        if left:
            logits = reading.feed([token])
    return Written(tuple(tokens), fsum(logprobs), ended=False)


def _chosen(logits: Lean, order: Order, dice: np.random.Generator) -> tuple[int, float]:
    """Return the next token and its log-probability (0 where nothing is left to chance)."""
    if np.isnan(logits).any():
        raise PlanError("the model's logits are no numbers: its weights are damaged", "model")
    best = int(logits.argmax())
    if order.lot is None and (order.limits is None or order.limits.allows(best)):
        return best, 0.0
    if order.limits is not None:
        allowed = order.limits.allowed()[: len(logits)]  # a model may have more places than there are tokens
        logits = np.where(allowed, logits[: len(allowed)], np.float32(-np.inf))
    if logits.max() == -np.inf:
        raise PlanError("no token of the vocabulary may come next", "text")
    if order.lot is None:
        return int(logits.argmax()), 0.0
    spread = _softmax(logits.astype(np.float64) / order.lot.temperature)
    token = int(np.searchsorted(np.cumsum(spread), dice.random(), side="right"))
    token = min(token, int(np.flatnonzero(spread)[-1]))  # what rounding leaves beyond the last
    return token, float(np.log(spread[token]))


def _softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max())
    spread: Floats = raised / raised.sum()
    return spread
