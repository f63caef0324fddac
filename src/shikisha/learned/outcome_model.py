"""The outcome model: how likely a worker's answer to a subtask is right, what it costs, and how sure that is.

    logit P(right) = b + trust [the planner chose this worker] + join [the call does several subtasks] + e . z_w
                       + h . told + k . x  +  b_w + h_w . told + k_w . x

`z_w` is the worker's price on a logarithmic scale, so that what dollars say of a worker is learned from all others. `x`
is the subtask: how near its masked words and their meaning are to those of the journal, and its kind as the planner
named it. `told` says by -1/2 and 1/2 which standing phrases were said. The weights with `_w` are a worker's own and are
drawn to 0, so that a new worker is the average one of its price; how far workers differ by subtask (`kind_precision`)
is learned as well. The posterior is Gaussian (Laplace) and has the form of an arrow: given the shared weights the
workers' own are independent, so that fitting and sampling take linear time in the number of workers.

Invariants: the model is data (a `LearnedFile`); it answers only for tasks of its scope; any text and any name has a
chance. Deliberately absent: fitting (`outcome_fit`), choosing plans (`conductors.learned_conductor`).
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Self, TypeAlias
from zlib import crc32

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import Json
from shikisha.core.task import Scope
from shikisha.learned.learned_file import LearnedFile, decode_array, encode_array
from shikisha.routing.arrays import Floats

OUTCOMES = "outcome-model"
EncodeTexts: TypeAlias = Callable[[Sequence[str]], "np.ndarray[Any, np.dtype[np.floating[Any]]]"]
MOST_COLUMNS, MOST_KINDS = 16, 24
_WORDS, _WORDS_SHARE, _MOST_AXES, _LANDMARKS = 256, 0.7, 8, 128  # hashed words, their weight, axes, known wordings
_LEAST_VALUE = 1e-4  # of nearness among known wordings that makes a column
_KIND_SHARE = 0.75**0.5  # of each column where the planner names kinds
_READER, _ARRAYS = ("mean", "axes", "landmarks", "weights", "offset"), ("shared", "root", "own", "roots", "slopes")
_SHARED_PRECISION = (1.0, 2.0, 11.0, 4.0)  # constant, the planner's choice, joined, price
_SHARED_MEAN = (0.0, 1.0, -0.3, 0.0)
_TOLD_MEAN, _TOLD_PRECISION, _KIND_PRECISION = 0.1, 6.25, 2.0
_OWN_PRECISION = (1.0, 4.0)  # constant, phrases
KIND_PRECISION = 0.2  # of a worker's own weights of the subtask, before any run
FREE_RUNS = 150  # runs that may be explored with whatever that costs
_NEW_SPREAD = 2.0  # how many times as far draws of a new worker spread: its mean is only that of others at its price
_FREE, _MOST_DECADES = 1e-6, 1.5  # dollars a call that count as nothing, and how far prices count from the middle
# What is believed of checks before any: how often one keeps a right result; how often one finds a wrong one, if the
# checker would be right itself; what a check and a further subtask in one call cost, as a share of a call.
KEEPS_PRIOR, FINDS_PRIOR = (9.5, 0.5), (1.8, 1.2)
SHARE_PRIOR = (0.5, 4.0)
_BIAS, _PRICE, TOLD = 0, 3, 4  # columns of a design row; 1 is the planner's choice, 2 joined


@dataclass(frozen=True, eq=False)
class SubtaskReader:
    """Turns wordings and kinds into the vector `x`: how near a subtask is to known ones, and a place by kind.

    A wording's place is its vector on `axes` (width, A) about `mean`. `landmarks` (L, A) are places of known wordings;
    `weights` (L, columns) and `offset` (columns) make columns of the nearness to each, whose products are nearness
    again (Nyström), so that what workers did at some texts says little of others.
    """

    mean: Floats
    axes: Floats
    landmarks: Floats
    weights: Floats
    offset: Floats
    kinds: tuple[str, ...] = ()
    encode: EncodeTexts | None = field(default=None, compare=False)

    @classmethod
    def of_vectors(cls, vectors: Floats, kinds: tuple[str, ...], encode: EncodeTexts | None) -> Self:
        """Return the reader of distinct wordings, from their vectors."""
        mean, most = vectors.mean(axis=0), min(_MOST_AXES, len(vectors) // 3)
        axes = np.linalg.eigh((vectors - mean).T @ (vectors - mean))[1][:, len(mean) - most :]
        places = (vectors - mean) @ axes
        size = max(float(np.sqrt((places**2).sum(axis=1).mean())), 1e-9)
        landmarks = places[np.linspace(0, len(places) - 1, min(len(places), _LANDMARKS)).astype(np.int64)] / size
        values, main = np.linalg.eigh(_nearness(landmarks, landmarks))
        first = max(len(values) - MOST_COLUMNS, int((values < _LEAST_VALUE).sum()))
        weights = main[:, first:] / np.sqrt(values[first:])
        offset = (_nearness(places / size, landmarks) @ weights).mean(axis=0)
        return cls(mean, axes / size, landmarks, weights, offset, kinds, encode)

    @property
    def size(self) -> int:
        """The length of `x`."""
        return len(self.offset) + len(self.kinds)

    def read(self, wordings: Sequence[str], kinds: Sequence[str]) -> Floats:
        """Return `x` for each subtask, shape (subtasks, size)."""
        if not len(self.offset):
            return self.place(np.zeros((len(wordings), 0)), kinds)
        vectors = subtask_vectors(wordings, self.encode)
        if vectors.shape[1] != len(self.mean):
            raise ConfigError("the outcome model needs the text encoder that it was made with")
        return self.place(self.columns(vectors), kinds)

    def columns(self, vectors: Floats) -> Floats:
        """Return what `x` has of texts, from their vectors."""
        return _nearness((vectors - self.mean) @ self.axes, self.landmarks) @ self.weights - self.offset

    def place(self, columns: Floats, kinds: Sequence[str]) -> Floats:
        """Return `x` of subtasks of these kinds; zeros for `columns` mean an average text."""
        if not self.kinds:
            return columns
        named = np.array([[float(kind == one) for one in self.kinds] for kind in kinds]).reshape(len(kinds), -1)
        return np.hstack([columns, named]) * _KIND_SHARE


def subtask_vectors(wordings: Sequence[str], encode: EncodeTexts | None) -> Floats:
    """Return for each wording the roots of the counts of its words, which are hashed, and what `encode` says."""
    counts = np.zeros((len(wordings), _WORDS))
    for row, wording in zip(counts, wordings, strict=True):
        np.add.at(row, [crc32(word.encode("utf-8", "replace")) % _WORDS for word in wording.casefold().split()], 1.0)
    words = _WORDS_SHARE * np.sqrt(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))
    return words if encode is None else np.hstack([words, np.asarray(encode(wordings), dtype=np.float64)])


def _nearness(places: Floats, landmarks: Floats) -> Floats:
    squares = (places**2).sum(axis=1)[:, None] + (landmarks**2).sum(axis=1) - 2 * places @ landmarks.T
    return np.asarray(np.exp(-np.maximum(squares, 0.0) / 2))


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What calls of a worker came to: how many, mean dollars and seconds, since when it counts
    (`since`: the run from which on, after a fall; else empty), and how many runs came before its first call.
    """

    calls: int
    dollars: float
    seconds: float
    since: str = ""
    joined: int = 0


@dataclass(frozen=True, slots=True)
class LearnedGain:
    """What acting brought over standing by, in dollars a run with its 95 % interval, on so many graded runs."""

    mean: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class LearningFigures:
    """What a model was made of and what its arms came to: runs, graded ones, and for both arms graded runs, the sum of
    their values (dollars) and of the squares. `acts` is the share of the tasks on which it acts, `credit` the dollars a
    run that it may explore for now; `explored` of the `paid` dollars of steps it explored for so far.
    """

    runs: int = 0
    graded: int = 0
    acted: tuple[int, float, float] = (0, 0.0, 0.0)
    stood_by: tuple[int, float, float] = (0, 0.0, 0.0)
    acts: float = 0.93
    credit: float = 0.0
    explored: float = 0.0
    paid: float = 0.0

    def gain(self) -> LearnedGain | None:
        """Return what acting brought over standing by; None before two graded runs of each."""
        (n, total, squares), (m, other, others) = self.acted, self.stood_by
        if min(n, m) < 2:
            return None
        mean, base = total / n, other / m
        spread = (squares / n - mean**2) / (n - 1) + (others / m - base**2) / (m - 1)
        reach = 1.96 * max(0.0, spread) ** 0.5
        difference = mean - base
        return LearnedGain(difference, difference - reach, difference + reach, n + m)


@dataclass(frozen=True, eq=False)
class OutcomeModel:
    """Weights and their posterior: `shared` (S), `root` with precision = root root' (S, S), and for each worker `own`
    (O), its `roots` (O, O), and `slopes` (O, S), by which its own weights move with the shared ones.
    """

    reader: SubtaskReader
    phrases: tuple[str, ...]
    workers: tuple[str, ...]
    shared: Floats
    root: Floats
    own: Floats
    roots: Floats
    slopes: Floats
    figures: Mapping[str, WorkerFigures]
    learning: LearningFigures
    scope: Scope
    keeps: float
    finds: float
    finds_counts: tuple[float, float] = FINDS_PRIOR
    verdicts: tuple[float, float] = (0.03, 0.6)
    check_share: float = SHARE_PRIOR[0]
    further_share: float = SHARE_PRIOR[0] / 2
    kind_precision: float = KIND_PRECISION
    price_middle: float = 0.0  # dollars a call
    version: str = ""

    def weights(
        self, workers: Sequence[str], rng: np.random.Generator | None = None, dollars: Sequence[float] | None = None
    ) -> Floats:
        """Return the weights of each worker, own and shared together, shape (workers, S): means, or one draw of all.

        `dollars` a call, by default what calls did cost, are counted in the constant.
        """
        paid = [self.figures[name].dollars if name in self.figures else 0.0 for name in workers]
        columns = own_columns(len(self.shared))
        moved = np.zeros(len(self.shared)) if rng is None else self._draw(self.root, rng)
        rows = np.tile(self.shared + moved, (len(workers), 1))
        rows[:, _BIAS] += rows[:, _PRICE] * price_scale(paid if dollars is None else dollars, self.price_middle)
        spread = 1 / np.sqrt(own_precision(len(self.phrases), self.reader.size, self.kind_precision))
        for row, name in zip(rows, workers, strict=True):
            wide = _NEW_SPREAD if self.is_new(name, len(workers)) else 1.0
            if name in self.workers:
                at = self.workers.index(name)
                mine = self.own[at] - self.slopes[at] @ moved
                mine = mine if rng is None else mine + wide * self._draw(self.roots[at], rng)
            else:
                mine = np.zeros(len(columns)) if rng is None else wide * spread * rng.standard_normal(len(columns))
            row[columns] += mine
        return rows

    @staticmethod
    def _draw(root: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(np.linalg.solve(root.T, rng.standard_normal(len(root))))

    def is_new(self, worker: str, workers: int) -> bool:
        """Whether a worker joined after the free runs, and had fewer calls yet than each of the others had in them."""
        known = self.figures.get(worker, WorkerFigures(0, 0.0, 0.0, joined=self.learning.runs))
        return known.joined >= FREE_RUNS and known.calls * workers < FREE_RUNS

    def kind_chances(self, worker: str) -> dict[str, float]:
        """Return the worker's chance at an average subtask (""), and of each kind, with the phrases that help it."""
        weights = self.weights([worker])[0]
        helps = np.abs(weights[TOLD : TOLD + len(self.phrases)]).sum() / 2
        kinds = ["", *self.reader.kinds]
        x = self.reader.place(np.zeros((len(kinds), len(self.reader.offset))), kinds)
        logits = weights[_BIAS] + helps + x @ weights[TOLD + len(self.phrases) :]
        return dict(zip(["", *self.reader.kinds], (1 / (1 + np.exp(-logits))).tolist(), strict=True))

    def to_file(self, evidence: Sequence[str], made: float) -> LearnedFile:
        """Return the model as a learned file."""
        content: dict[str, Json] = {
            "workers": list(self.workers),
            "phrases": list(self.phrases),
            "kinds": list(self.reader.kinds),
            "figures": {name: [*_plain(one)] for name, one in sorted(self.figures.items())},
            "learning": [*_plain(self.learning)],
            "checks": [self.keeps, self.finds, *self.finds_counts, *self.verdicts],
            "shares": [self.check_share, self.further_share, self.kind_precision, self.price_middle],
        }
        content |= {name: encode_array(getattr(self.reader, name)) for name in _READER}
        content |= {name: encode_array(getattr(self, name)) for name in _ARRAYS}
        return LearnedFile(OUTCOMES, content, tuple(evidence), self.scope, made)


def own_columns(shared: int) -> list[int]:
    """Return which of the shared weights a worker has of its own: all but trust, join and price."""
    return [_BIAS, *range(TOLD, shared)]


def own_precision(phrases: int, size: int, subtask: float = KIND_PRECISION) -> Floats:
    """Return the prior precision of a worker's own weights."""
    bias, told = _OWN_PRECISION
    return np.array([bias, *[told] * phrases, *[subtask] * size])


def price_scale(dollars: Sequence[float], middle: float) -> Floats:
    """Return prices as decades from the middle one."""
    return np.asarray(np.clip(np.log10(np.maximum(dollars, _FREE) / max(middle, _FREE)), -_MOST_DECADES, _MOST_DECADES))


def shared_prior(phrases: int, size: int) -> tuple[Floats, Floats]:
    """Return mean and precision of the shared weights before any run."""
    mean = np.array([*_SHARED_MEAN, *[_TOLD_MEAN] * phrases, *[0.0] * size])
    return mean, np.array([*_SHARED_PRECISION, *[_TOLD_PRECISION] * phrases, *[_KIND_PRECISION] * size])


def prior_model(phrases: Sequence[str], scope: Scope) -> OutcomeModel:
    """Return the model before any run: all workers alike, and whom the planner chose a little better."""
    mean, precision = shared_prior(len(phrases), 0)
    own = len(own_columns(len(mean)))
    keeps = KEEPS_PRIOR[0] / sum(KEEPS_PRIOR)
    finds = FINDS_PRIOR[0] / sum(FINDS_PRIOR)
    nothing = np.zeros((0, own))
    empty = np.zeros((1, 0))
    reader = SubtaskReader(np.zeros(1), empty, empty, empty, np.zeros(0))
    return OutcomeModel(
        reader, tuple(phrases), (), mean, np.diag(np.sqrt(precision)), nothing,
        np.zeros((0, own, own)), np.zeros((0, own, len(mean))), {}, LearningFigures(), scope, keeps, finds,
        version="prior",
    )  # fmt: skip


def outcome_model_of(learned: LearnedFile, name: str, encode: EncodeTexts | None) -> OutcomeModel:
    """Return the model in a learned file; ConfigError where its parts do not fit one another."""
    content: Mapping[str, object] = learned.content
    try:
        workers, phrases, kinds = (_names(content[key]) for key in ("workers", "phrases", "kinds"))
        mean, offset = (decode_array(content[key], (None,)) for key in ("mean", "offset"))
        axes = decode_array(content["axes"], (len(mean), None))
        landmarks = decode_array(content["landmarks"], (None, axes.shape[1]))
        weights = decode_array(content["weights"], (len(landmarks), len(offset)))
        reader = SubtaskReader(mean, axes, landmarks, weights, offset, kinds, encode)
        size = TOLD + len(phrases) + reader.size
        own = len(own_columns(size))
        root, roots = decode_array(content["root"], (size, size)), decode_array(content["roots"], (None, own, own))
        diagonals = [np.diagonal(one, axis1=-2, axis2=-1) for one in (root, roots)]
        if len(roots) != len(workers) or any((one <= 0).any() for one in diagonals):
            raise ValueError("a precision is not positive, or one is missing")
        keeps, finds, found, missed, alarm, catch = _numbers(content["checks"], 6)
        check_share, further_share, kind_precision, price_middle = _numbers(content["shares"], 4)
        figures, learning = content["figures"], content["learning"]
        if not isinstance(figures, dict) or not isinstance(learning, list) or not 0 <= max(keeps, finds) <= 1:
            raise ValueError("figures: expected those of each worker")
        arms: list[Any] = [tuple(one) if isinstance(one, list) else one for one in learning]
        told = LearningFigures(*arms)
        (n, total, squares), (m, other, others) = told.acted, told.stood_by
        numbers = (n, total, squares, m, other, others, told.acts, told.credit, told.explored, told.paid)
        if not all(map(isfinite, (told.runs, told.graded, *numbers))):
            raise ValueError("learning: expected finite numbers")
        return OutcomeModel(
            reader, phrases, workers, decode_array(content["shared"], (size,)), root,
            decode_array(content["own"], (len(workers), own)), roots,
            decode_array(content["slopes"], (len(workers), own, size)),
            {str(worker): _worker_figures(*row) for worker, row in figures.items()}, told, learned.scope, keeps, finds,
            (found, missed), (alarm, catch), check_share, further_share, kind_precision, price_middle,
            learned.short_version,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{name}: no outcome model: {error}; `shikisha learn` makes it again") from None


def _worker_figures(calls: int, dollars: float, seconds: float, since: str = "", joined: int = 0) -> WorkerFigures:
    _numbers([calls, dollars, seconds, joined], 4)
    if not isinstance(since, str):
        raise TypeError("figures: expected the name of a run")
    return WorkerFigures(calls, dollars, seconds, since, joined)


def _plain(record: object) -> list[Json]:
    values = [getattr(record, name) for name in type(record).__slots__]  # type: ignore[attr-defined]  # a dataclass
    return [list(one) if isinstance(one, tuple) else one for one in values]


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value) or len({*value}) < len(value):
        raise ValueError("expected distinct names")
    return tuple(value)


def _numbers(value: object, count: int) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"expected {count} numbers")
    if not all(isinstance(one, int | float) and 0 <= one < 1e12 for one in value):
        raise ValueError("expected numbers from 0")
    return tuple(float(one) for one in value)
