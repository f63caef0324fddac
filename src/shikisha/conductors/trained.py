"""A conductor that was trained: a checkpoint writes the plan in this process, token after token.

`lm:DIR` and `lm:shipped`, with `?temperature=0.7&seed=1&rounds=2&constrained=false`. The likeliest text is taken, or
one by lot: then the lot hangs on the seed, the task and the round, so a resumed run draws the same. Unless told
otherwise, only plans can be written (`grammar`). An `Author` is a model with its tokenizer and its prompt: `exported`
runs one without torch, `train.serving` by transformers. Invariants: what was written goes through the one strict
parser, limits or not; a text that is no plan and the fallback's name are in the Proposal (9); the same situation leads
to the same proposal; a model whose tokenizer has words writes nothing about a task, or for workers, in words that it
does not know, since held to plans it would write a valid one by chance (Unreadable). The propensity is that of the
text, thought included: other thoughts may lead to the same plan. Deliberately absent: a second try (the likeliest text
would be the same), calls to anybody.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import exp
from typing import Protocol

from shikisha.brief import UNKNOWN, brief
from shikisha.conductor import Conductor, NoPlan, Proposal, Rejection, Situation
from shikisha.conductors.decoding import Lot, Model, Order, Written, write
from shikisha.conductors.grammar import Grammar
from shikisha.conductors.lexicon import Held, Lexicon
from shikisha.errors import ConfigError, PlanError, Unreadable
from shikisha.parse import parse_plan
from shikisha.task import Task
from shikisha.worker import Card

_WHERE = "prompt"
_COLDEST, _HOTTEST = 0.01, 10.0
_NAMES = 4  # times as many unknown words in a question alone: it is short, and its names are its own


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

    @property
    def words(self) -> int | None:
        """How many words it knows, where it has a token for all others; None where it reads any text."""
        ...

    def unknown(self, text: str) -> tuple[int, int]:
        """Return how many of a text's tokens stand for what it does not know, and how many there are."""
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
    """How it writes: at a `temperature` (0: the likeliest) by this `seed`, and whether only plans can be written.

    `unknown` is the share of what it reads that it may not know; above that it refuses.
    """

    temperature: float = 0.0
    seed: int = 0
    constrained: bool = True
    unknown: float = UNKNOWN

    def __post_init__(self) -> None:
        if self.temperature and not _COLDEST <= self.temperature <= _HOTTEST:
            raise ConfigError(f"temperature: expected 0, or {_COLDEST} to {_HOTTEST}, found {self.temperature:g}")


@dataclass(frozen=True, slots=True)
class TrainedConductor:
    """Asks `author` for each plan; `fallback` proposes when it writes none. It plans `rounds` times at most.

    `taskset` is what it was trained on, as far as its card says so.
    """

    name: str
    author: Author
    fallback: Conductor | None = None
    manner: Manner = Manner()
    rounds: int | None = None
    taskset: str = ""

    @property
    def purpose(self) -> str:
        """What it is for, in words; empty where it reads any text and nobody says what it was trained on."""
        tasks = f"for tasks like those of {self.taskset!r}, which it was trained on" if self.taskset else ""
        if self.author.words is None:
            return tasks
        after = f"{self.fallback.name} then plans" if self.fallback else "it has no fallback"
        known = f"it knows {self.author.words} words and refuses what has too many others ({after})"
        return f"{tasks}; {known}" if tasks else known

    async def propose(self, situation: Situation) -> Proposal:
        """Write a plan; without a fallback PlanError where it is none, Unreadable where words are unknown."""
        try:
            return await self._written(situation)
        except PlanError as error:
            if self.fallback is None:
                raise
            proposal = await self.fallback.propose(situation)
            note = f"{self.name}: {error.what}; {proposal.note}"
            rejected = error.rejected if isinstance(error, NoPlan) else ()
            return replace(proposal, note=note, substituted=self.fallback.name, rejected=rejected)

    def unreadable(self, cards: Sequence[Card], task: Task | None = None) -> str | None:
        """Return why it cannot plan for these workers, or this task of theirs, in words that it knows; None if it can.

        Question and descriptions are held to the limit apart too: each could hide behind the length of the other.
        """
        if self.author.words is None:
            return None
        parts = [("the workers' descriptions", " ".join(card.description for card in cards), 1)]
        if task is not None:
            asked = [task.prompt, task.context, *(turn.text for turn in task.history)]
            parts = [("the question", " ".join(asked), _NAMES), *parts, ("the briefing", brief(task, cards), 1)]
        for what, text, times in parts:
            unknown, count = self.author.unknown(text)
            if unknown > times * self.manner.unknown * count:
                learned = f"tasks of {self.taskset!r}" if self.taskset else "other tasks"
                advice = "" if self.fallback else "; name another conductor, or a fallback of this one"
                return (
                    f"the model knows {self.author.words} words, and {unknown / count:.0%} of {what} are others: "
                    f"it was trained on {learned}{advice}"
                )
        return None

    async def _written(self, at: Situation) -> Proposal:
        written = await asyncio.to_thread(self._write, at)
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

    def _write(self, at: Situation) -> Written:
        prompt, order = self._order(at)
        return write(self.author.model, prompt, order)

    def _order(self, at: Situation) -> tuple[Sequence[int], Order]:
        """Return the prompt and how to write on; PlanError where the model cannot plan for pool or text."""
        if len(at.cards) > self.author.ordinals:
            known = f"the model can write the ordinals of {self.author.ordinals}"
            raise PlanError(f"a pool of {len(at.cards)} workers is too large: {known}", _WHERE)
        if problem := self.unreadable(at.cards, at.task):
            raise Unreadable(problem, _WHERE)
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
