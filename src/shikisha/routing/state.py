"""States: tasks, and what their workers have said so far, many at once.

T tasks, J workers in the policy's order. Invariant: an answer is known by its canonical form alone, as a code that is
the same for answers that agree within a task and means nothing beyond it; what has not been asked is NOT_ASKED and is
told apart from NOTHING, an asked worker without an answer. Deliberately absent: right answers, scores and costs.

What an induction looks at: numbers about a task and about the answers of those who have been asked.

Invariant: the features of one set of asked workers have the same columns whoever asks, one task or many; the first
`light` columns are those that a fit should hardly hold back. Deliberately absent: which worker comes next.

What can act on a state: the parts that policies are put together from.

A part decides by one of its settings, which stand for prices of accuracy in ascending or any other order. Invariants: a
part is pure; it asks nobody twice and nobody who is not there (`may_ask`); it ships an answer that was given, or none.
Deliberately absent: which setting to take (`dial`).

Task types: which type a task is of, and in which canonical form answers of that type are compared.

A type is the task's own domain; where a log has none, it is the nearest of some clusters of hashed words. Invariant: a
task is of a type that the log had, or of an unknown one (-1), and never of a guessed domain. Deliberately absent:
finding the clusters (`learn`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.outcomes.log_reader import marked_answer
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.text_features import (
    PROMPT_BUCKETS,
    HashedWords,
    hash_ngrams,
    hash_prompts,
    prompt_shapes,
    truncate_prompt,
)

NOT_ASKED, NO_ANSWER = -2, -1
SHIP = -1  # the act of asking nobody
NO_WORKER = -1
_FORMULA_SIGNS = "\\^="


@dataclass(frozen=True)
class TaskBatch:
    """Tasks before anyone is asked: prompts and types ([T], -1 unknown)."""

    prompts: tuple[str, ...]
    types: Ints

    def __len__(self) -> int:
        return len(self.prompts)

    @cached_property
    def shape(self) -> Floats:
        """[T, 4]: log length, share of digits, whether there are formulas, how many lettered options; each about 1."""
        return np.array([_prompt_shape(prompt) for prompt in self.prompts], float).reshape(len(self), 4)

    @cached_property
    def words(self) -> HashedWords:
        """The hashed words of the prompts."""
        return hash_prompts(self.prompts)

    @cached_property
    def looks(self) -> Floats:
        """[T, SHAPES]: what the prompts look like (`shapes`)."""
        return prompt_shapes(self.prompts)

    @cached_property
    def grams(self) -> HashedWords:
        """The words, numbers and marks near the prompts' ends, and the pairs of them."""
        return hash_ngrams([truncate_prompt(prompt) for prompt in self.prompts])

    def at(self, rows: Ints | Flags) -> "TaskBatch":
        """Return these tasks; what was computed for the whole is not computed again."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        part = TaskBatch(tuple(self.prompts[place] for place in places), self.types[places])
        for name in ("shape", "words", "looks", "grams"):
            if name in self.__dict__:
                known = self.__dict__[name]
                part.__dict__[name] = known[places] if isinstance(known, np.ndarray) else known.at(places)
        return part


@dataclass(frozen=True, slots=True)
class DecisionState:
    """A batch and what has been seen of it.

    `codes` [T, J] say which answers agree, `lengths` [T, J] how many characters an answer has, `tokens` [T, J] what was
    written for it (NaN: unknown), `tells` [T, J] how sure it sounds (`hearing`; None: nobody listened). `may_ask` [J]
    are the workers that are there.
    """

    batch: TaskBatch
    codes: Ints
    lengths: Ints
    tokens: Floats
    may_ask: Flags
    tells: Floats | None = None

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def asked(self) -> Flags:
        """[T, J]: who has been asked."""
        asked: Flags = self.codes != NOT_ASKED
        return asked

    def at(self, rows: Ints | Flags) -> "DecisionState":
        """Return these tasks."""
        tells = None if self.tells is None else self.tells[rows]
        return DecisionState(
            self.batch.at(rows), self.codes[rows], self.lengths[rows], self.tokens[rows], self.may_ask, tells
        )

    def response_log_odds(self, worker: int) -> Floats:
        """[T]: how sure this worker's answer sounds; 0 where nobody listened."""
        return np.zeros(len(self)) if self.tells is None else self.tells[:, worker]


@dataclass(frozen=True, slots=True)
class Actions:
    """What to do for each task: `ask` [T] a worker, or SHIP; `ship` [T] whose answer is shipped then, or NOBODY."""

    ask: Ints
    ship: Ints


def group_by_asked(seen: DecisionState) -> list[tuple[tuple[int, ...], Ints]]:
    """Return the rows of each set of workers that have been asked."""
    if len(seen) == 1:
        return [(tuple(np.flatnonzero(seen.asked[0]).tolist()), np.zeros(1, np.int64))]
    sets, places = np.unique(seen.asked, axis=0, return_inverse=True)
    flat = places.reshape(-1)
    return [(tuple(np.flatnonzero(one).tolist()), np.flatnonzero(flat == place)) for place, one in enumerate(sets)]


def best_supporter(seen: DecisionState, among: Sequence[int], code: Ints) -> Ints:
    """Return [T] who of these gave the answer of this code in the fewest characters; the first of equals, or NOBODY."""
    if not among:
        return np.full(len(seen), NO_WORKER, np.int64)
    columns = np.array(among)
    said = (seen.codes[:, columns] == code[:, None]) & (code >= 0)[:, None]
    lengths = np.where(said, seen.lengths[:, columns], np.iinfo(np.int64).max)
    return np.where(said.any(axis=1), columns[lengths.argmin(axis=1)], NO_WORKER)


def _prompt_shape(prompt: str) -> tuple[float, float, float, float]:
    size = len(prompt)
    digits = _count_digits(prompt) / max(size, 1)
    options = sum(prompt.count(f"\n{letter}. ") for letter in "ABCDEFGHIJ")
    return float(np.log1p(size)) - 6.0, 10 * digits, float(any(sign in prompt for sign in _FORMULA_SIGNS)), options / 10


def _count_digits(prompt: str) -> int:
    if prompt.isascii():  # the same, and many times as quick
        return sum(map(prompt.count, "0123456789"))
    return sum(map(str.isdigit, prompt))


WEAKLY_PENALIZED = 8  # leading columns of a state in which somebody has been asked
WEAKLY_PENALIZED_AT_START = 5
_MAX_DEVIATIONS = 3.0  # standard deviations


@dataclass(frozen=True, slots=True)
class LengthScales:
    """What is usual: `written` [D + 1, J] and `spread` [J] of log output tokens, the last row for unknown types."""

    written: Floats
    spread: Floats

    def lengths(self, seen: DecisionState, workers: Sequence[int]) -> Floats:
        """Return [T, n], how unusually long each one's output is, in standard deviations; 0 where not known."""
        columns = np.array(workers, np.int64)
        usual = self.written[seen.batch.types][:, columns]
        away = (np.log1p(seen.tokens[:, columns]) - usual) / self.spread[columns]
        held: Floats = np.clip(np.nan_to_num(away), -_MAX_DEVIATIONS, _MAX_DEVIATIONS)
        return held


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


def initial_features(seen: DecisionState, scales: LengthScales) -> Floats:
    """Return [T, p] for tasks of which nobody has been asked."""
    return np.concatenate([np.ones((len(seen), 1)), seen.batch.shape, _type_one_hot(seen, scales)], axis=1)


def state_features(seen: DecisionState, asked: tuple[int, ...], belief: AnswerBelief, scales: LengthScales) -> Floats:
    """Return [T, p] for tasks of which these workers (ascending) have been asked."""
    best, types = belief.best, _type_one_hot(seen, scales)
    held = np.clip(best, 0.01, 0.99)
    odds = np.log(held / (1 - held)) / 3
    lengths = scales.lengths(seen, asked)
    columns = [_belief_features(belief, best, odds), seen.batch.shape, types, types * (best - 0.6)[:, None]]
    for place, worker in enumerate(asked):
        codes = seen.codes[:, worker]
        silent, supports = codes < 0, (codes == belief.top) & (codes >= 0)
        z, told = lengths[:, place], seen.response_log_odds(worker)
        columns.append(np.stack([supports - 0.5, silent, supports * best, z * supports, z * ~supports], axis=1))
        columns.append(np.stack([told * supports, told * ~supports], axis=1))
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


def _type_one_hot(seen: DecisionState, scales: LengthScales) -> Floats:
    """[T, D]: one where the task is of this type; nothing but zeros where its type is not known."""
    known = len(scales.written) - 1
    return np.eye(known + 1)[seen.batch.types][:, :known]


ArrayMap = Mapping[str, Floats]  # what a file keeps of a part: arrays by name


class DecisionRule(Protocol):
    """Something that acts: a table, a cascade, an induction."""

    kind: ClassVar[str]

    @property
    def settings(self) -> int:
        """How many settings it has."""
        ...

    def act(self, seen: DecisionState, setting: int) -> Actions:
        """Return what to do for each task."""
        ...

    def to_arrays(self) -> ArrayMap:
        """Return all there is to it, as arrays."""
        ...


UNKNOWN_TYPE = -1
OPEN_FORM = "open"  # answers have no canonical form: they agree by nothing


@dataclass(frozen=True, slots=True)
class TaskTypes:
    """The types' names, the form (a Form, or OPEN) of each, and of tasks of unknown type.

    `centres` [D, SIZE], rows of length 1, are there where types are clusters.
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
        places = {name: place for place, name in enumerate(self.names)}
        return np.array([places.get(domain, UNKNOWN_TYPE) for domain in domains], np.int64)

    def form_of(self, kind: int) -> str:
        """Return the form in which answers to tasks of this type are compared."""
        return self.form if kind == UNKNOWN_TYPE else self.forms[kind]

    def canonical(self, answer: str | None, kind: int) -> str | None:
        """Return an answer's canonical form, or None where there is no answer in it.

        Answers of an open type are themselves, or what is marked at their end: two agree only to the letter.
        """
        if answer is None:
            return None
        form = self.form_of(kind)
        return (
            (marked_answer(answer.strip()).strip() or None)
            if form == OPEN_FORM
            else canonicalize(answer, AnswerForm(form))
        )


def encode_answers(answers: Sequence[str | None], nothing: int) -> list[int]:
    """Return codes that are equal where answers are, by first appearance; `nothing` for None."""
    known: dict[str, int] = {}
    return [nothing if answer is None else known.setdefault(answer, len(known)) for answer in answers]
