"""Fitting maps: what a prompt's words and looks tell about who is right, beyond what its type does.

For every task: ridge regressions (`words_of`, `looks_map`). For the tasks of one type, of which there are few
(`type_map`): each contrast between workers is a Gaussian process over words, looks or products of looks, averaged over
those and over shares of signal by their evidence, with most of the prior on no signal at all (MacKay 1992). Invariants:
differences between workers are fitted, since a router compares; equal data give equal maps. Deliberately absent: how
far the maps are trusted (`routing`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.policy.arrays import Floats
from shikisha.policy.batch import Batch
from shikisha.policy.maps import ALL, BUCKETS, Lexicon, Map, Scale, drawn
from shikisha.policy.words import Words

FEW, MOST = 20, 500  # tasks: fewer tell nothing, and of a type no more than so many are looked at
_NO_SIGNAL = 0.9  # the prior of it, for each contrast within a type
_SHARES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6])  # of signal in a contrast, where there is any
_WORDS, _LOOKS = 5.0, 100.0  # strengths of the ridges, in tasks
_PLAIN = 0.3  # what looks by themselves count beside their products
_VOCABULARY = 2**17
_ROUNDS, _CLOSE = 40, 1e-8  # of conjugate gradients
_SEEN = 4  # tasks that must look other than is usual
_TINY = 1e-9


def lexicon_of(batch: Batch) -> Lexicon:
    """Return the words that stand in at least two prompts; the most frequent, where those are too many."""
    words = batch.grams
    places, counts = np.unique(words.places, return_counts=True)
    least = 2 if len(counts) <= _VOCABULARY else max(2, int(np.sort(counts)[-_VOCABULARY]))
    kept = counts >= least
    return Lexicon(places[kept].astype(np.int64), np.log((1 + len(words)) / (1 + counts[kept])) + 1)


def scale_of(looks: Floats) -> Scale:
    """Return what looks are usual among these, [T, SHAPES]."""
    spread = looks.std(axis=0)
    differ = ((looks != np.median(looks, axis=0)).sum(axis=0) >= _SEEN) & (spread > _TINY)
    return Scale(np.where(differ, looks.mean(axis=0), 0.0), np.where(differ, 1 / np.where(differ, spread, 1.0), 0.0))


def words_of(read: Words, size: int, left: Floats) -> Floats:
    """Return [V, J], weights of words `read` by a lexicon of this size, for what is `left` to explain, [T, J]."""
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingExtra("learn", "a router that reads prompts") from None
    rows = csr_matrix((read.weights, read.places, read.starts), (len(read), size))
    across = rows.T.tocsr()
    return np.asarray(across @ _solved(lambda dual: rows @ (across @ dual) + _WORDS * dual, left), np.float64)


def looks_map(looks: Floats, left: Floats) -> Map | None:
    """Return the map of looks for every task; None where there is nothing to tell."""
    if len(looks) < FEW:
        return None
    scale, own = scale_of(looks), left - left.mean(axis=0)
    scaled = scale.of(looks)
    strength = _LOOKS * _size(scaled)

    def times(dual: Floats) -> Floats:
        told = drawn(scaled, *_products(scaled, dual - dual.mean(axis=0)))
        return np.asarray(told - told.mean(axis=0) + strength * dual, np.float64)

    lines, squares = _products(scaled, _solved(times, own))
    words = np.zeros((BUCKETS, left.shape[1]))
    return Map(ALL, scale, lines, squares, words, -drawn(scaled, lines, squares).mean(axis=0))


def type_map(kind: int, looks: Floats, words: Words, left: Floats) -> Map | None:
    """Return the map of a type from its tasks' looks and bucketed words; None where there is nothing to tell."""
    if len(left) < FEW:
        return None
    contrasts, across = _contrasts(left - left.mean(axis=0))
    if not len(across):
        return None
    scale = scale_of(looks)
    scaled, said = scale.of(looks), np.zeros((len(left), BUCKETS))
    np.add.at(said, (words.rows, words.places), words.weights)
    along = scaled @ scaled.T
    views = [_View.of(gram) for gram in (said @ said.T, along, along * (along + 2 * _PLAIN))]
    duals = [view.over(dual @ across) for view, dual in zip(views, averaged(views, contrasts), strict=True)]
    weights = said.T @ duals[0]
    lines, squares = _products(scaled, duals[2])
    lines += scaled.T @ duals[1]
    shift = said.mean(axis=0) @ weights + drawn(scaled, lines, squares).mean(axis=0)
    return Map(kind, scale, lines, squares, weights, -shift)


def _products(scaled: Floats, dual: Floats) -> tuple[Floats, Floats]:
    """Return the lines and squares of duals [n, J] of the products of looks, with some of the looks themselves."""
    return 2 * _PLAIN * scaled.T @ dual, np.stack([(scaled * column[:, None]).T @ scaled for column in dual.T])


def _size(scaled: Floats) -> float:
    """Return how long rows of these features are, squared and in the mean, around their middle."""
    lengths, usual = (scaled**2).sum(axis=1), scaled.T @ scaled / len(scaled)
    middle = 2 * _PLAIN * (scaled.mean(axis=0) ** 2).sum() + (usual**2).sum()
    return max(_TINY, float((lengths**2 + 2 * _PLAIN * lengths).mean() - middle))


@dataclass(frozen=True, slots=True)
class _View:
    """How alike tasks are, centred, by eigen-`values` [n] and `vectors` [n, n]; `size` is what they were divided by."""

    values: Floats
    vectors: Floats
    size: float

    @classmethod
    def of(cls, gram: Floats) -> "_View":
        middle = gram.mean(axis=0)
        centred = gram - middle - middle[:, None] + middle.mean()
        size = max(_TINY, float(np.trace(centred)) / len(gram))
        values, vectors = np.linalg.eigh(centred / size)
        return cls(np.maximum(values, 0.0), vectors, size)

    def over(self, dual: Floats) -> Floats:
        """Return duals of features as they are, from duals of the centred and sized ones."""
        held: Floats = (dual - dual.mean(axis=0)) / self.size
        return held


def averaged(views: Sequence[_View], contrasts: Floats) -> list[Floats]:
    """Return for each view the duals [n, r] of what is told of each contrast [n, r], averaged by evidence.

    The noise's size has been profiled out: evidence is relative to that of noise alone.
    """
    count, power = len(contrasts), np.maximum(_TINY, (contrasts**2).mean(axis=0))
    evidence, duals = [], []
    for view in views:
        turned = view.vectors.T @ contrasts
        for share in _SHARES:
            spread = (share * view.values + 1 - share)[:, None]
            fit = (turned**2 / spread).mean(axis=0) / power
            evidence.append(-0.5 * (np.log(spread).sum() + count * np.log(np.maximum(_TINY, fit))))
            duals.append(share * (view.vectors @ (turned / spread)))
    odds = np.array(evidence) + np.log((1 - _NO_SIGNAL) / len(evidence))
    most = np.maximum(odds.max(axis=0), np.log(_NO_SIGNAL))
    chances = np.exp(odds - most)
    chances /= chances.sum(axis=0) + np.exp(np.log(_NO_SIGNAL) - most)
    held = [chance * dual for chance, dual in zip(chances, duals, strict=True)]
    size = len(_SHARES)
    return [np.sum(held[start : start + size], axis=0) for start in range(0, len(held), size)]


def _contrasts(left: Floats) -> tuple[Floats, Floats]:
    """Return the principal contrasts between workers: what each task has of them [n, r], and their workers [r, J]."""
    along, sizes, across = np.linalg.svd(left, full_matrices=False)
    some = np.flatnonzero(sizes > 1e-6 * max(_TINY, sizes.max(initial=0.0)))[: max(0, left.shape[1] - 1)]
    return along[:, some] * sizes[some], across[some]


def _solved(times: Callable[[Floats], Floats], target: Floats) -> Floats:
    """Solve `times(x) = target` [n, J] by conjugate gradients, each column by itself (Hestenes & Stiefel 1952)."""
    found, rest = np.zeros_like(target), target.copy()
    along, size = rest.copy(), (rest**2).sum(axis=0)
    enough = _CLOSE * size
    for _ in range(_ROUNDS):
        if (size <= enough).all():
            break
        turned = times(along)
        far = size / np.maximum((along * turned).sum(axis=0), _TINY**3)
        found, rest = found + far * along, rest - far * turned
        size, before = (rest**2).sum(axis=0), size
        along = rest + size / np.maximum(before, _TINY**3) * along
    return found
