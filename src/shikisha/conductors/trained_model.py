"""A conductor that runs a trained checkpoint in this process and decodes the plan token by token.

`lm:DIR` and `lm:shipped` take `?temperature=0.7&seed=1&rounds=2&constrained=false`. Decoding is greedy, or samples from
a seed that depends on the option, the task and the round, so a resumed run draws the same tokens. Unless told
otherwise, `plan_grammar` allows only plans. A `PlanModel` is a model with its tokenizer and prompt: `onnx_checkpoint`
runs one without torch, `training.inference` with transformers.

Invariants: a generated text goes through the one strict parser, so it names workers of the pool only (1, 5);
a model holds no state between sessions and several threads may use it; a token that the constraint forbids is never
written, and its probability goes to the others. Deliberately absent: batches (see `training.rollout`) and beams.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import exp, fsum
from typing import Protocol

import numpy as np

from shikisha.conductors.plan_grammar import GrammarConstraint, PlanGrammar, TokenPieces
from shikisha.conductors.reading_range import ReadingRange
from shikisha.conductors.shortlist import choose_shortlist
from shikisha.core.errors import ConfigError, PlanError, UnreadableTask
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import MAX_UNKNOWN_SHARE, compact_prompt
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor, NoPlan, Proposal, Rejection, Situation
from shikisha.engine.worker import Card
from shikisha.routing.arrays import Flags, Floats, Floats32


class DecodingSession(Protocol):
    """A decoding session: a text with its KV cache."""

    def feed(self, tokens: Sequence[int]) -> Floats32:
        """Append these tokens; return the logits [V] of the next one."""
        ...


class CausalModel(Protocol):
    """A causal language model."""

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a text, generated ones included."""
        ...

    def begin(self) -> DecodingSession:
        """Start a session."""
        ...


class TokenConstraint(Protocol):
    """A constraint on the next token, updated as tokens are written."""

    def allows(self, token: int) -> bool:
        """Say whether this token may come next."""
        ...

    def allowed(self) -> Flags:
        """Return which tokens [V] may come next."""
        ...

    def take(self, token: int, left: int) -> bool:
        """Record that this token was written and that `left` more may follow; say whether the text is complete."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Sampling at this temperature, from this seed."""

    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    """Tokens without the end token; their `logprob` in nats, the end included; whether the text ended."""

    tokens: tuple[int, ...]
    logprob: float
    ended: bool


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How to generate: at most `longest` tokens, until one of `ends`; greedy without `lot`; free without `limits`."""

    longest: int
    ends: frozenset[int]
    lot: SamplingSettings | None = None
    limits: TokenConstraint | None = None


def generate_tokens(model: CausalModel, prompt: Sequence[int], order: GenerationSettings) -> GeneratedTokens:
    """Generate after the prompt; PlanError where a logit is NaN, or the constraint allows no token."""
    reading, dice = model.begin(), np.random.default_rng(order.lot.seed if order.lot else 0)
    logits = reading.feed(prompt)
    tokens: list[int] = []
    logprobs: list[float] = []
    for left in reversed(range(order.longest)):
        token, logprob = _next_token(logits, order, dice)
        logprobs.append(logprob)
        if token in order.ends:
            return GeneratedTokens(tuple(tokens), fsum(logprobs), ended=True)
        tokens.append(token)
        if order.limits is not None and order.limits.take(token, left):
            return GeneratedTokens(tuple(tokens), fsum(logprobs), ended=True)
        if left:
            logits = reading.feed([token])
    return GeneratedTokens(tuple(tokens), fsum(logprobs), ended=False)


def _next_token(logits: Floats32, order: GenerationSettings, dice: np.random.Generator) -> tuple[int, float]:
    """Return the next token and its log-probability (0 for greedy decoding)."""
    if np.isnan(logits).any():
        raise PlanError("the model's logits are no numbers: its weights are damaged", "model")
    best = int(logits.argmax())
    if order.lot is None and (order.limits is None or order.limits.allows(best)):
        return best, 0.0
    if order.limits is not None:
        # A model may have more logits than the tokenizer has tokens.
        allowed = order.limits.allowed()[: len(logits)]
        logits = np.where(allowed, logits[: len(allowed)], np.float32(-np.inf))
    if logits.max() == -np.inf:
        raise PlanError("no token of the vocabulary may come next", "text")
    if order.lot is None:
        return int(logits.argmax()), 0.0
    spread = _softmax(logits.astype(np.float64) / order.lot.temperature)
    token = int(np.searchsorted(np.cumsum(spread), dice.random(), side="right"))
    # Rounding may leave the draw beyond the last token.
    token = min(token, int(np.flatnonzero(spread)[-1]))
    return token, float(np.log(spread[token]))


def _softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max())
    spread: Floats = raised / raised.sum()
    return spread


_ERROR_PLACE = "prompt"
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.01, 10.0
# A question alone may have more unknown words: it is short, and has names.
_QUESTION_UNKNOWN_FACTOR = 4


class PlanModel(Protocol):
    """A model that writes plans, with its tokenizer and prompt."""

    @property
    def model(self) -> CausalModel:
        """A causal language model."""
        ...

    @property
    def version(self) -> str:
        """The checkpoint's version."""
        ...

    @property
    def rounds(self) -> int:
        """How many rounds the model was trained to plan."""
        ...

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a plan."""
        ...

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a text."""
        ...

    @property
    def ordinals(self) -> int:
        """How many ordinals the tokenizer can write."""
        ...

    @property
    def lexicon(self) -> TokenPieces:
        """The text of each token."""
        ...

    @property
    def words(self) -> int | None:
        """The size of the vocabulary where unknown words share a token; None where the tokenizer reads any text."""
        ...

    def unknown(self, text: str) -> tuple[int, int]:
        """Return how many of a text's tokens are unknown, and how many there are."""
        ...

    def prompt(self, situation: Situation) -> Sequence[int]:
        """Return the tokens of the prompt."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return a text's tokens."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of these tokens."""
        ...


@dataclass(frozen=True, slots=True)
class PlanDecoding:
    """Decoding: a `temperature` (0: greedy) and a `seed`; `constrained`: only plans can be written.

    `unknown` is the largest share of unknown tokens in the prompt; the conductor refuses more. At 1 it refuses nothing.
    """

    temperature: float = 0.0
    seed: int = 0
    constrained: bool = True
    unknown: float = MAX_UNKNOWN_SHARE

    def __post_init__(self) -> None:
        if self.temperature and not _MIN_TEMPERATURE <= self.temperature <= _MAX_TEMPERATURE:
            raise ConfigError(
                f"temperature: expected 0, or {_MIN_TEMPERATURE} to {_MAX_TEMPERATURE}, found {self.temperature:g}"
            )


@dataclass(frozen=True, slots=True)
class TrainedConductor:
    """Asks `author` for each plan; `fallback` proposes when it writes none. It plans `rounds` times at most.

    `taskset` is what its model card says it was trained on, and `reading` tells questions that are unlike these.
    """

    name: str
    author: PlanModel
    fallback: Conductor | None = None
    manner: PlanDecoding = PlanDecoding()
    rounds: int | None = None
    taskset: str = ""
    reading: ReadingRange | None = None

    @property
    def purpose(self) -> str:
        """The purpose in words; empty where the model reads any text and its card names no taskset."""
        tasks = f"for tasks like those of {self.taskset!r}, which it was trained on" if self.taskset else ""
        after = f"{self.fallback.name} then plans" if self.fallback else "it has no fallback"
        if self.author.words is None:
            unlike = f"it refuses questions that are unlike its own ({after})" if self.reading else ""
            return "; ".join(filter(None, (tasks, unlike)))
        known = f"it knows {self.author.words} words and refuses what has too many others ({after})"
        return f"{tasks}; {known}" if tasks else known

    async def propose(self, situation: Situation) -> Proposal:
        """Generate a plan; without a fallback, PlanError for no plan and Unreadable for unknown words."""
        try:
            # A larger pool than the model can name is shortened by the words of the task and the cards.
            shown = choose_shortlist(situation.task, situation.cards, situation.rounds, self.author.ordinals)
            return shown.widen(await self._written(shown.narrow(situation)), situation.cards)
        except PlanError as error:
            if self.fallback is None:
                raise
            proposal = await self.fallback.propose(situation)
            note = f"{self.name}: {error.what}; {proposal.note}"
            rejected = error.rejected if isinstance(error, NoPlan) else ()
            return replace(proposal, note=note, substituted=self.fallback.name, rejected=rejected)

    def unreadable(self, cards: Sequence[Card], task: Task | None = None) -> str | None:
        """Return why the model cannot read these workers' descriptions or this task; None if it can.

        The limit holds for question and descriptions separately too: a long one must not hide the other's words.
        """
        return self._unknown_words(cards, task) or self._too_long(cards) or self._unlike(task)

    def _too_long(self, cards: Sequence[Card]) -> str | None:
        """Return that the descriptions alone leave no room for a plan; None if they do not."""
        count, most = sum(len(self.author.encode(card.description)) for card in cards), self.author.model.longest
        if count < most:
            return None
        return f"the workers' descriptions are {count} tokens, and the model can read {most} in all{self._advice}"

    def _unlike(self, task: Task | None) -> str | None:
        """Return why the question is too unlike those that the model was trained on; None if it is not."""
        if task is None or self.reading is None or self.manner.unknown >= 1:
            return None
        found = self.reading.familiarity(task.prompt)
        if found >= self.reading.threshold:
            return None
        least = f"familiarity {found:.1f}, least {self.reading.threshold:.1f}"
        return f"the question is unlike those of {self._learned} that the model was trained on ({least}){self._advice}"

    @property
    def _learned(self) -> str:
        return f"tasks of {self.taskset!r}" if self.taskset else "other tasks"

    @property
    def _advice(self) -> str:
        return "" if self.fallback else "; name another conductor, or a fallback of this one"

    def _unknown_words(self, cards: Sequence[Card], task: Task | None) -> str | None:
        if self.author.words is None:
            return None
        parts = [("the workers' descriptions", " ".join(card.description for card in cards), 1)]
        if task is not None:
            asked = [task.prompt, task.context, *(turn.text for turn in task.history)]
            parts = [
                ("the question", " ".join(asked), _QUESTION_UNKNOWN_FACTOR),
                *parts,
                ("the briefing", compact_prompt(task, cards), 1),
            ]
        for what, text, times in parts:
            unknown, count = self.author.unknown(text)
            if unknown > times * self.manner.unknown * count:
                return (
                    f"the model knows {self.author.words} words, and {unknown / count:.0%} of {what} are others: "
                    f"it was trained on {self._learned}{self._advice}"
                )
        return None

    async def _written(self, at: Situation) -> Proposal:
        written = await asyncio.to_thread(self._write, at)
        text = self.author.decode(written.tokens)
        try:
            plan = parse_plan(text, len(at.cards), _max_steps(at))
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

    def _write(self, at: Situation) -> GeneratedTokens:
        prompt, order = self._order(at)
        return generate_tokens(self.author.model, prompt, order)

    def _order(self, at: Situation) -> tuple[Sequence[int], GenerationSettings]:
        """Return the prompt and the settings; PlanError where the model cannot plan for this pool or text."""
        if len(at.cards) > self.author.ordinals:
            known = f"the model can write the ordinals of {self.author.ordinals}"
            raise PlanError(f"a pool of {len(at.cards)} workers is too large: {known}", _ERROR_PLACE)
        if problem := self.unreadable(at.cards, at.task):
            raise UnreadableTask(problem, _ERROR_PLACE)
        grammar = PlanGrammar(len(at.cards), _max_steps(at), keeps=bool(at.rounds))
        reserve = len(self.author.encode(grammar.longest_end()))
        prompt, most = self.author.prompt(at), self.author.model.longest
        room = min(self.author.longest, most - len(prompt))
        if room < reserve:
            said = f"{len(prompt)} tokens, and {reserve} for a plan, are more than the {most} that the model can read"
            raise PlanError(said, _ERROR_PLACE)
        limits = GrammarConstraint(self.author.lexicon, grammar, reserve) if self.manner.constrained else None
        lot = SamplingSettings(self.manner.temperature, self._seed(at)) if self.manner.temperature else None
        return prompt, GenerationSettings(room, self.author.ends, lot, limits)

    def _seed(self, at: Situation) -> int:
        drawn = f"{self.manner.seed} {at.task.content_hash} {len(at.rounds)}"
        return int.from_bytes(sha256(drawn.encode()).digest()[:8])

    def _chance(self, written: GeneratedTokens) -> float | None:
        """Return the probability of the text; None for greedy decoding, or where it underflows."""
        return exp(written.logprob) or None if self.manner.temperature else None


def _max_steps(at: Situation) -> int:
    return max(1, min(at.left.plan_steps, at.left.steps))
