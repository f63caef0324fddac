"""A conductor that was trained: a checkpoint writes the plan in this process, token after token.

`lm:DIR` and `lm:shipped`, with `?temperature=0.7&seed=1&rounds=2&constrained=false`. The likeliest text is taken, or
one by lot: then the lot hangs on the seed, the task and the round, so a resumed run draws the same. Unless told
otherwise, only plans can be written (`grammar`). An `Author` is a model with its tokenizer and its prompt: `exported`
runs one without torch, `train.serving` by transformers. Invariants: what was written goes through the one strict
parser, limits or not; a text that is no plan and the fallback's name are in the Proposal (9); the same situation leads
to the same proposal. The propensity is that of the text, thought included: other thoughts may lead to the same plan.
Deliberately absent: a second try (the likeliest text would be the same), calls to anybody.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import exp
from typing import Protocol

from shikisha.conductor import Conductor, NoPlan, Proposal, Rejection, Situation
from shikisha.conductors.decoding import Lot, Model, Order, Written, write
from shikisha.conductors.grammar import Grammar
from shikisha.conductors.lexicon import Held, Lexicon
from shikisha.errors import ConfigError, PlanError
from shikisha.parse import parse_plan

_WHERE = "prompt"
_COLDEST, _HOTTEST = 0.01, 10.0


class Author(Protocol):
    """A model that writes plans, with how it is addressed."""

    @property
    def model(self) -> Model:
        """What tells how texts go on."""
        ...

    @property
    def version(self) -> str:
        """The checkpoint's."""
        ...

    @property
    def rounds(self) -> int:
        """How many rounds it was trained to plan."""
        ...

    @property
    def longest(self) -> int:
        """How many tokens it may write for a plan."""
        ...

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a text."""
        ...

    @property
    def ordinals(self) -> int:
        """How many ordinals it can write."""
        ...

    @property
    def lexicon(self) -> Lexicon:
        """What each token writes."""
        ...

    def prompt(self, situation: Situation) -> Sequence[int]:
        """Return the tokens after which it writes."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return a text's tokens."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of these tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Manner:
    """How it writes: at a `temperature` (0: the likeliest) by this `seed`, and whether only plans can be written."""

    temperature: float = 0.0
    seed: int = 0
    constrained: bool = True

    def __post_init__(self) -> None:
        if self.temperature and not _COLDEST <= self.temperature <= _HOTTEST:
            raise ConfigError(f"temperature: expected 0, or {_COLDEST} to {_HOTTEST}, found {self.temperature:g}")


@dataclass(frozen=True, slots=True)
class TrainedConductor:
    """Asks `author` for each plan; `fallback` proposes when it writes none. It plans `rounds` times at most."""

    name: str
    author: Author
    fallback: Conductor | None = None
    manner: Manner = Manner()
    rounds: int | None = None

    async def propose(self, situation: Situation) -> Proposal:
        """Write a plan; without a fallback PlanError where it is none."""
        try:
            return await self._written(situation)
        except PlanError as error:
            if self.fallback is None:
                raise
            proposal = await self.fallback.propose(situation)
            note = f"{self.name}: {error.what}; {proposal.note}"
            rejected = error.rejected if isinstance(error, NoPlan) else ()
            return replace(proposal, note=note, substituted=self.fallback.name, rejected=rejected)

    async def _written(self, at: Situation) -> Proposal:
        prompt, order = self._order(at)
        written = await asyncio.to_thread(write, self.author.model, prompt, order)
        text = self.author.decode(written.tokens)
        try:
            plan = parse_plan(text, len(at.cards), _most_steps(at))
            if plan.ships and not at.rounds:
                raise PlanError("there is no answer to keep yet: the first plan needs a step", "plan")
        except PlanError as error:
            why = error.what if written.ended else f"broken off after {len(written.tokens)} tokens: {error.what}"
            raise NoPlan(why, error.where, [Rejection(text, why, error.where)]) from None
        return Proposal(
            plan,
            text,
            version=self.author.version,
            final=len(at.rounds) + 1 >= (self.rounds or self.author.rounds),
            propensity=self._chance(written),
        )

    def _order(self, at: Situation) -> tuple[Sequence[int], Order]:
        """Return the prompt and how to write on; PlanError where the pool or the text is too large for the model."""
        if len(at.cards) > self.author.ordinals:
            known = f"the model can write the ordinals of {self.author.ordinals}"
            raise PlanError(f"a pool of {len(at.cards)} workers is too large: {known}", _WHERE)
        grammar = Grammar(len(at.cards), _most_steps(at), keeps=bool(at.rounds))
        reserve = len(self.author.encode(grammar.longest_end()))
        prompt, most = self.author.prompt(at), self.author.model.longest
        room = min(self.author.longest, most - len(prompt))
        if room < reserve:
            said = f"{len(prompt)} tokens, and {reserve} for a plan, are more than the {most} that the model can read"
            raise PlanError(said, _WHERE)
        limits = Held(self.author.lexicon, grammar, reserve) if self.manner.constrained else None
        lot = Lot(self.manner.temperature, self._seed(at)) if self.manner.temperature else None
        return prompt, Order(room, self.author.ends, lot, limits)

    def _seed(self, at: Situation) -> int:
        drawn = f"{self.manner.seed} {at.task.content_hash} {len(at.rounds)}"
        return int.from_bytes(sha256(drawn.encode()).digest()[:8])

    def _chance(self, written: Written) -> float | None:
        """Return the probability of what was written; None where chance had no part, or it is below all numbers."""
        return exp(written.logprob) or None if self.manner.temperature else None


def _most_steps(at: Situation) -> int:
    return max(1, min(at.left.plan_steps, at.left.steps))
