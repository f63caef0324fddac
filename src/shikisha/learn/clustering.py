"""Finding task types in a log without domains: clusters of prompts by their words, as many as the rule gains by.

Spherical k-means (Dhillon and Modha 2001) on hashed words weighted by how rare they are, started from clusters of a
projection to a few dimensions. Invariants: the same prompts give the same types; outcomes decide only how many types
there are, and those on folds that were held back. Deliberately absent: embeddings, and types for logs with domains.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import log
from typing import TYPE_CHECKING

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.frontier import BUDGETS, Frontier, frontier, gain
from shikisha.learn.panel import Panel
from shikisha.learn.tabling import tabulate
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import Batch
from shikisha.policy.dial import Dial, Point, on_hull
from shikisha.policy.types import Types
from shikisha.policy.words import SIZE, Words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

COUNTS = (4, 8, 16)
COMMON = (0.5, 0.05)  # words in a greater share of the prompts tell nothing: with how a question is put, and without
FEW = 25  # tasks that a type must have in the mean
_SURE = 1.5  # half-widths of a 95 % interval: six looks at the same tasks find something by chance
_DIMENSIONS = 48
_ROUNDS = 15
_RARE = 3  # words in fewer prompts tell nothing
_KEPT = 500  # words of a centre
_NAMED = 3  # words of a name
_WORD = re.compile(r"[^\W\d_]{3,}")


def types_found(panel: Panel, folds: Ints, counts: Sequence[int] = COUNTS) -> Types:
    """Return the types of a panel by its prompts' words, or its own types where finding some brings nothing.

    More types are taken only where what the rule gains in area by them is beyond chance, of which there are several.
    """
    kept, best = panel.types, _area(panel, folds)
    for count, common in product(counts, COMMON):
        if len(panel) < FEW * count:
            break
        found = clusters(panel, count, common)
        area = _area(typed(panel, found), folds)
        more = gain("", area, best)
        if more.mean > _SURE * (more.mean - more.low):
            kept, best = found, area
    return kept


def clusters(panel: Panel, count: int, common: float = COMMON[0]) -> Types:
    """Return this many types (fewer where prompts are all alike); each compares answers as the panel's type does."""
    words = panel.batch.words
    matrix, rarity = _matrix(words), _rarity(words, common)
    centres = _centres(matrix, rarity, _started(matrix, rarity, count))
    form = panel.types.forms[0] if panel.types.forms else panel.types.form
    names = _names(panel.batch.prompts, words.times(centres.T).argmax(axis=1), len(centres))
    return Types(names, (form,) * len(names), panel.types.form, centres)


def typed(panel: Panel, types: Types) -> Panel:
    """Return the panel with tasks of these types."""
    batch = panel.batch
    nearest = batch.words.times(types.centres.T).argmax(axis=1).astype(np.int64)
    changed = Batch(batch.prompts, nearest)
    changed.__dict__.update({name: held for name, held in batch.__dict__.items() if name not in ("prompts", "types")})
    return replace(panel, types=types, batch=changed)


def _area(panel: Panel, folds: Ints) -> Frontier:
    """Return what the rule comes to on held-back tasks."""
    tabled = tabulate(panel, folds)
    cost, won = tabled.cost.mean(axis=0), tabled.won.mean(axis=0)
    points = on_hull(
        Point(0, setting, float(c), float(w)) for setting, (c, w) in enumerate(zip(cost, won, strict=True))
    )
    places = [(0, setting) for setting in range(len(cost))]
    return frontier(Dial(points, 1.0, 0.0), tabled.won, tabled.cost, places, BUDGETS)


def _matrix(words: Words) -> "csr_matrix":
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingExtra("learn", "finding task types") from None
    return csr_matrix((words.weights, words.places, words.starts), shape=(len(words), SIZE))


def _rarity(words: Words, common: float) -> Floats:
    """[SIZE]: how much a word tells, the logarithm of one over the share of prompts that it is in."""
    there = np.unique(words.rows * SIZE + words.places) % SIZE
    within = np.bincount(there, minlength=SIZE)
    telling = (within >= _RARE) & (within <= common * len(words))
    return np.where(telling, np.log(len(words) / np.maximum(1, within)), 0.0)


def _started(matrix: "csr_matrix", rarity: Floats, count: int) -> Ints:
    """[T]: clusters of the prompts' projections."""
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize
    from sklearn.utils.extmath import randomized_svd

    weighted = normalize(matrix.multiply(rarity).tocsr())
    left, sizes, _ = randomized_svd(weighted, min(_DIMENSIONS, weighted.shape[0]), random_state=0)
    held = normalize(left * sizes)
    most = min(count, len(np.unique(held.round(6), axis=0)))
    return np.asarray(KMeans(most, n_init=4, random_state=0).fit_predict(held), np.int64)


def _centres(matrix: "csr_matrix", rarity: Floats, nearest: Ints) -> Floats:
    """[k, SIZE]: centres such that each prompt is nearest to its own, by the product that `Types.of` takes."""
    for _ in range(_ROUNDS):
        kinds, places = np.unique(nearest, return_inverse=True)
        centres = _sparse(np.asarray((matrix.T @ np.eye(len(kinds))[places]).T) * rarity**2)
        nearest = np.asarray(matrix @ centres.T).argmax(axis=1)
        if (nearest == places).all():
            break
    return centres


def _sparse(sums: Floats) -> Floats:
    """Return rows of length 1 of the greatest entries, as a policy file rounds them."""
    least = np.partition(sums, -_KEPT, axis=1)[:, -_KEPT, None]
    kept = np.where(sums >= least, sums, 0.0)
    lengths = np.maximum(1e-12, np.linalg.norm(kept, axis=1, keepdims=True))
    return np.asarray((kept / lengths).astype(np.float32), np.float64)


def _names(prompts: Sequence[str], nearest: Ints, count: int) -> tuple[str, ...]:
    """Return names of words that are more usual in a type than elsewhere; a number where that is nobody's own."""
    said = [set(_WORD.findall(prompt.lower())) for prompt in prompts]
    everywhere = Counter(word for words in said for word in words)
    names: list[str] = []
    for kind in range(count):
        own = np.flatnonzero(nearest == kind)
        within = Counter(word for row in own for word in said[row])
        typical = {word: _typical(times / len(own), everywhere[word] / len(said)) for word, times in within.items()}
        name = ", ".join(sorted(typical, key=lambda word: (-typical[word], word))[:_NAMED])
        names.append(f"{name} ({kind})" if name in names or not name else name)
    return tuple(names)


def _typical(here: float, everywhere: float) -> float:
    return here * log(here / everywhere)
