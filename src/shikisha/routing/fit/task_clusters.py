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

from shikisha.core.errors import MissingExtra
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.cost_frontier import BUDGETS, Frontier, compute_frontier, paired_gain
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import TaskBatch, TaskTypes
from shikisha.routing.text_features import PROMPT_BUCKETS, HashedWords
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

CLUSTER_COUNTS = (4, 8, 16)
COMMON_SHARES = (
    0.5,
    0.05,
)  # words in a greater share of the prompts tell nothing: with how a question is put, and without
MIN_TASKS_PER_TYPE = 25  # tasks that a type must have in the mean
_MIN_HALF_WIDTHS = 1.5  # half-widths of a 95 % interval: six looks at the same tasks find something by chance
_DIMENSIONS = 48
_ROUNDS = 15
_MIN_OCCURRENCES = 3  # words in fewer prompts tell nothing
_WORDS_PER_CENTRE = 500  # words of a centre
_WORDS_PER_NAME = 3  # words of a name
_WORD = re.compile(r"[^\W\d_]{3,}")


def find_task_types(panel: OutcomeMatrix, folds: Ints, counts: Sequence[int] = CLUSTER_COUNTS) -> TaskTypes:
    """Return the types of a panel by its prompts' words, or its own types where finding some brings nothing.

    More types are taken only where what the rule gains in area by them is beyond chance, of which there are several.
    """
    kept, best = panel.types, _table_frontier(panel, folds)
    for count, common in product(counts, COMMON_SHARES):
        if len(panel) < MIN_TASKS_PER_TYPE * count:
            break
        found = cluster_prompts(panel, count, common)
        area = _table_frontier(assign_types(panel, found), folds)
        more = paired_gain("", area, best)
        if more.mean > _MIN_HALF_WIDTHS * (more.mean - more.low):
            kept, best = found, area
    return kept


def cluster_prompts(panel: OutcomeMatrix, count: int, common: float = COMMON_SHARES[0]) -> TaskTypes:
    """Return this many types (fewer where prompts are all alike); each compares answers as the panel's type does."""
    words = panel.batch.words
    matrix, rarity = _word_matrix(words), _inverse_frequency(words, common)
    centres = _refine_centres(matrix, rarity, _initial_clusters(matrix, rarity, count))
    form = panel.types.forms[0] if panel.types.forms else panel.types.form
    names = _name_clusters(panel.batch.prompts, words.times(centres.T).argmax(axis=1), len(centres))
    return TaskTypes(names, (form,) * len(names), panel.types.form, centres)


def assign_types(panel: OutcomeMatrix, types: TaskTypes) -> OutcomeMatrix:
    """Return the panel with tasks of these types."""
    batch = panel.batch
    nearest = batch.words.times(types.centres.T).argmax(axis=1).astype(np.int64)
    changed = TaskBatch(batch.prompts, nearest)
    changed.__dict__.update({name: held for name, held in batch.__dict__.items() if name not in ("prompts", "types")})
    return replace(panel, types=types, batch=changed)


def _table_frontier(panel: OutcomeMatrix, folds: Ints) -> Frontier:
    """Return what the rule comes to on held-back tasks."""
    tabled = fit_table(panel, folds)
    cost, won = tabled.cost.mean(axis=0), tabled.won.mean(axis=0)
    points = upper_hull(
        OperatingPoint(0, setting, float(c), float(w)) for setting, (c, w) in enumerate(zip(cost, won, strict=True))
    )
    places = [(0, setting) for setting in range(len(cost))]
    return compute_frontier(TradeOff(points, 1.0, 0.0), tabled.won, tabled.cost, places, BUDGETS)


def _word_matrix(words: HashedWords) -> "csr_matrix":
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingExtra("learn", "finding task types") from None
    return csr_matrix((words.weights, words.places, words.starts), shape=(len(words), PROMPT_BUCKETS))


def _inverse_frequency(words: HashedWords, common: float) -> Floats:
    """[SIZE]: how much a word tells, the logarithm of one over the share of prompts that it is in."""
    there = np.unique(words.rows * PROMPT_BUCKETS + words.places) % PROMPT_BUCKETS
    within = np.bincount(there, minlength=PROMPT_BUCKETS)
    telling = (within >= _MIN_OCCURRENCES) & (within <= common * len(words))
    return np.where(telling, np.log(len(words) / np.maximum(1, within)), 0.0)


def _initial_clusters(matrix: "csr_matrix", rarity: Floats, count: int) -> Ints:
    """[T]: clusters of the prompts' projections."""
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize
    from sklearn.utils.extmath import randomized_svd

    weighted = normalize(matrix.multiply(rarity).tocsr())
    left, sizes, _ = randomized_svd(weighted, min(_DIMENSIONS, weighted.shape[0]), random_state=0)
    held = normalize(left * sizes)
    most = min(count, len(np.unique(held.round(6), axis=0)))
    return np.asarray(KMeans(most, n_init=4, random_state=0).fit_predict(held), np.int64)


def _refine_centres(matrix: "csr_matrix", rarity: Floats, nearest: Ints) -> Floats:
    """[k, SIZE]: centres such that each prompt is nearest to its own, by the product that `Types.of` takes."""
    for _ in range(_ROUNDS):
        kinds, places = np.unique(nearest, return_inverse=True)
        centres = _sparsify_centres(np.asarray((matrix.T @ np.eye(len(kinds))[places]).T) * rarity**2)
        nearest = np.asarray(matrix @ centres.T).argmax(axis=1)
        if (nearest == places).all():
            break
    return centres


def _sparsify_centres(sums: Floats) -> Floats:
    """Return rows of length 1 of the greatest entries, as a policy file rounds them."""
    least = np.partition(sums, -_WORDS_PER_CENTRE, axis=1)[:, -_WORDS_PER_CENTRE, None]
    kept = np.where(sums >= least, sums, 0.0)
    lengths = np.maximum(1e-12, np.linalg.norm(kept, axis=1, keepdims=True))
    return np.asarray((kept / lengths).astype(np.float32), np.float64)


def _name_clusters(prompts: Sequence[str], nearest: Ints, count: int) -> tuple[str, ...]:
    """Return names of words that are more usual in a type than elsewhere; a number where that is nobody's own."""
    said = [set(_WORD.findall(prompt.lower())) for prompt in prompts]
    everywhere = Counter(word for words in said for word in words)
    names: list[str] = []
    for kind in range(count):
        own = np.flatnonzero(nearest == kind)
        within = Counter(word for row in own for word in said[row])
        typical = {
            word: _distinctiveness(times / len(own), everywhere[word] / len(said)) for word, times in within.items()
        }
        name = ", ".join(sorted(typical, key=lambda word: (-typical[word], word))[:_WORDS_PER_NAME])
        names.append(f"{name} ({kind})" if name in names or not name else name)
    return tuple(names)


def _distinctiveness(here: float, everywhere: float) -> float:
    return here * log(here / everywhere)
