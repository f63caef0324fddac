"""Decision states: tasks with their types, the answers so far, and the features and protocol that rules decide by.

T tasks, J workers in the policy's order, D task types. A `DecisionRule` maps a state to actions at one of its settings.
Invariants: an answer is represented by the code of its canonical form, which is equal for answers that agree within a
task and means nothing beyond it; NOT_ASKED differs from NO_ANSWER; a task has a type from the log or UNKNOWN_TYPE,
never a guessed one; features of one set of asked workers have the same columns for one task and for many. A rule is
pure, never asks a worker twice or one that is missing from the pool, and ships an answer that was given, or none.
Correct answers, scores and costs are deliberately absent: a policy must not see them.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from shikisha.core.fast_dataclass import dataclass, field
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.outcomes.log_reader import marked_answer
from shikisha.routing.answer_evidence import AnswerEvidence
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.text_features import (
    PROMPT_BUCKETS,
    HashedWords,
    hash_prompts,
)

NOT_ASKED, NO_ANSWER = -2, -1
# The action of asking no further worker.
SHIP = -1
NO_WORKER = -1
_FORMULA_SIGNS = "\\^="
# Leading columns of a state after the first ask.
WEAKLY_PENALIZED = 8
WEAKLY_PENALIZED_AT_START = 5
# The upper bound is this many standard deviations above the mean (one-sided 95 %).
_MAX_DEVIATIONS = 3.0
# The content of a rule as a file stores it: arrays by name.
ArrayMap = Mapping[str, Floats]
UNKNOWN_TYPE = -1
# Answers have no canonical form.
OPEN_FORM = "open"


@dataclass(frozen=True)
class TaskBatch:
    """Tasks before any worker is asked: prompts and types ([T], -1 unknown)."""

    prompts: tuple[str, ...]
    types: Ints

    def __len__(self) -> int:
        return len(self.prompts)

    @cached_property
    def shape(self) -> Floats:
        """[T, 4]: log length, share of digits, whether there are formulas, number of lettered options; each about 1."""
        return np.array([_prompt_shape(prompt) for prompt in self.prompts], float).reshape(len(self), 4)

    @cached_property
    def words(self) -> HashedWords:
        """The hashed words of the prompts."""
        return hash_prompts(self.prompts)

    def at(self, rows: Ints | Flags) -> "TaskBatch":
        """Return these tasks; features already computed are reused."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        batch = TaskBatch(tuple(self.prompts[index] for index in places), self.types[places])
        for name in ("shape", "words"):
            if name in self.__dict__:
                known = self.__dict__[name]
                batch.__dict__[name] = known[places] if isinstance(known, np.ndarray) else known.at(places)
        return batch


@dataclass(frozen=True, slots=True)
class DecisionState:
    """A batch and the answers so far.

    `codes` [T, J] say which answers agree, `lengths` [T, J] are in characters, `tokens` [T, J] of output (NaN:
    unknown). `may_ask` [J] are the available workers. `evidence` is about the candidate answers (None: nobody reads
    them). `pressure` [J] is what a call to each worker costs more because others wait for it, in accuracy (None:
    nothing).
    """

    batch: TaskBatch
    codes: Ints
    lengths: Ints
    tokens: Floats
    may_ask: Flags
    evidence: AnswerEvidence | None = None
    pressure: Floats | None = None

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def asked(self) -> Flags:
        """[T, J]: who has been asked."""
        asked: Flags = self.codes != NOT_ASKED
        return asked

    def at(self, rows: Ints | Flags) -> "DecisionState":
        """Return these tasks."""
        evidence = None if self.evidence is None else self.evidence.at(np.arange(len(self))[rows])
        return DecisionState(
            self.batch.at(rows), self.codes[rows], self.lengths[rows], self.tokens[rows], self.may_ask, evidence,
            self.pressure,
        )  # fmt: skip

    def pressures(self) -> Floats:
        """Return [J]: what a call to each worker costs more now; 0 without load balance."""
        return np.zeros(len(self.may_ask)) if self.pressure is None else self.pressure


@dataclass(frozen=True, slots=True)
class Actions:
    """What to do for each task: `ask` [T] a worker, or SHIP; `ship` [T] that worker's answer, or NO_WORKER."""

    ask: Ints
    ship: Ints


def group_by_asked(state: DecisionState) -> list[tuple[tuple[int, ...], Ints]]:
    """Return the rows of each set of asked workers."""
    if len(state) == 1:
        return [(tuple(np.flatnonzero(state.asked[0]).tolist()), np.zeros(1, np.int64))]
    sets, places = np.unique(state.asked, axis=0, return_inverse=True)
    flat = places.reshape(-1)
    return [
        (tuple(np.flatnonzero(workers).tolist()), np.flatnonzero(flat == index)) for index, workers in enumerate(sets)
    ]


def best_supporter(state: DecisionState, among: Sequence[int], code: Ints) -> Ints:
    """Return [T] which of these gave this code's answer in the fewest characters, or NO_WORKER; ties: the first."""
    if not among:
        return np.full(len(state), NO_WORKER, np.int64)
    columns = np.array(among)
    matching = (state.codes[:, columns] == code[:, None]) & (code >= 0)[:, None]
    lengths = np.where(matching, state.lengths[:, columns], np.iinfo(np.int64).max)
    return np.where(matching.any(axis=1), columns[lengths.argmin(axis=1)], NO_WORKER)


def _prompt_shape(prompt: str) -> tuple[float, float, float, float]:
    size = len(prompt)
    digits = _count_digits(prompt) / max(size, 1)
    options = sum(prompt.count(f"\n{letter}. ") for letter in "ABCDEFGHIJ")
    return float(np.log1p(size)) - 6.0, 10 * digits, float(any(sign in prompt for sign in _FORMULA_SIGNS)), options / 10


def _count_digits(prompt: str) -> int:
    if prompt.isascii():  # the same result, many times faster
        return sum(map(prompt.count, "0123456789"))
    return sum(map(str.isdigit, prompt))


@dataclass(frozen=True, slots=True)
class LengthScales:
    """Mean `written` [D + 1, J] and `spread` [J] of log output tokens, the last row for unknown types."""

    written: Floats
    spread: Floats

    def lengths(self, state: DecisionState, workers: Sequence[int]) -> Floats:
        """Return [T, n], standardized output lengths; 0 where unknown."""
        columns = np.array(workers, np.int64)
        mean = self.written[state.batch.types][:, columns]
        deviation = (np.log1p(state.tokens[:, columns]) - mean) / self.spread[columns]
        clipped: Floats = np.clip(np.nan_to_num(deviation), -_MAX_DEVIATIONS, _MAX_DEVIATIONS)
        return clipped


@dataclass(frozen=True, slots=True)
class AnswerBelief:
    """[T, K] the probability of each candidate answer, [T] of none, and [T] the most probable candidate's code."""

    answers: Floats
    none: Floats
    top: Ints

    @classmethod
    def of(cls, posterior: tuple[Floats, Floats]) -> "AnswerBelief":
        """Return the belief of a scorer's posterior."""
        answers, none = posterior
        return cls(answers, none, answers.argmax(axis=1).astype(np.int64))

    @property
    def best(self) -> Floats:
        """[T]: the probability of the most probable candidate."""
        best: Floats = self.answers.max(axis=1)
        return best


def initial_features(state: DecisionState, scales: LengthScales) -> Floats:
    """Return [T, p] for tasks before the first ask."""
    return np.concatenate([np.ones((len(state), 1)), state.batch.shape, _type_one_hot(state, scales)], axis=1)


def state_features(state: DecisionState, asked: tuple[int, ...], belief: AnswerBelief, scales: LengthScales) -> Floats:
    """Return [T, p] for tasks after these workers (ascending) were asked."""
    best, types = belief.best, _type_one_hot(state, scales)
    clipped = np.clip(best, 0.01, 0.99)
    odds = np.log(clipped / (1 - clipped)) / 3
    lengths = scales.lengths(state, asked)
    columns = [_belief_features(belief, best, odds), state.batch.shape, types, types * (best - 0.6)[:, None]]
    for index, worker in enumerate(asked):
        codes = state.codes[:, worker]
        silent, supports = codes < 0, (codes == belief.top) & (codes >= 0)
        z = lengths[:, index]
        columns.append(np.stack([supports - 0.5, silent, supports * best, z * supports, z * ~supports], axis=1))
        columns.append(np.zeros((len(z), 2)))  # files of earlier versions have two more columns, whose weights are 0
    return np.concatenate(columns, axis=1)


def _belief_features(belief: AnswerBelief, best: Floats, odds: Floats) -> Floats:
    second = np.partition(belief.answers, -2, axis=1)[:, -2] if belief.answers.shape[1] > 1 else np.zeros(len(best))
    return np.stack(
        [
            np.ones(len(best)),
            best,
            second,
            odds,
            _entropy(belief),
            best * best,
            np.minimum(best, 0.5),
            np.maximum(best, 0.8),
        ],
        axis=1,
    )


def _entropy(belief: AnswerBelief) -> Floats:
    shares = np.concatenate([belief.answers, belief.none[:, None]], axis=1)
    entropy: Floats = -(shares * np.log(shares + 1e-9)).sum(axis=1)
    return entropy


def _type_one_hot(state: DecisionState, scales: LengthScales) -> Floats:
    """Return [T, D]: one where the task is of this type; all zeros for an unknown type."""
    known = len(scales.written) - 1
    return np.eye(known + 1)[state.batch.types][:, :known]


class DecisionRule(Protocol):
    """Decides on states: a table, a cascade or a stopping rule.

    Settings are prices of accuracy. Which one to use is up to the trade-off.
    """

    kind: ClassVar[str]

    @property
    def settings(self) -> int:
        """The number of settings."""
        ...

    def act(self, state: DecisionState, setting: int) -> Actions:
        """Return what to do for each task."""
        ...

    def to_arrays(self) -> ArrayMap:
        """Return its complete content as arrays."""
        ...


@dataclass(frozen=True, slots=True)
class TaskTypes:
    """The types' names, the form (a Form, or OPEN_FORM) of each, and of tasks of unknown type.

    `centres` [D, PROMPT_BUCKETS], rows of length 1, exist where types are clusters; a task's type is the nearest one.
    """

    names: tuple[str, ...]
    forms: tuple[str, ...]
    form: str = AnswerForm.TEXT
    centres: Floats = field(default_factory=lambda: np.zeros((0, PROMPT_BUCKETS)))

    def of(self, domains: Sequence[str], prompts: Sequence[str]) -> Ints:
        """Return [T]: each task's type."""
        if len(self.centres):
            nearest: Ints = hash_prompts(prompts).times(self.centres.T).argmax(axis=1).astype(np.int64)
            return nearest
        places = {name: index for index, name in enumerate(self.names)}
        return np.array([places.get(domain, UNKNOWN_TYPE) for domain in domains], np.int64)

    def form_of(self, kind: int) -> str:
        """Return the form in which answers to tasks of this type are compared."""
        return self.form if kind == UNKNOWN_TYPE else self.forms[kind]

    def canonical(self, answer: str | None, kind: int) -> str | None:
        """Return an answer's canonical form, or None where there is no answer in it.

        Answers of an open type are themselves, or what is marked at their end: they agree only if identical.
        """
        if answer is None:
            return None
        form = self.form_of(kind)
        return (
            (marked_answer(answer.strip()).strip() or None)
            if form == OPEN_FORM
            else canonicalize(answer, AnswerForm(form))
        )


def encode_answers(answers: Sequence[str | None], missing: int) -> list[int]:
    """Return codes that are equal where answers are, by first appearance; `nothing` for None."""
    known: dict[str, int] = {}
    return [missing if answer is None else known.setdefault(answer, len(known)) for answer in answers]
