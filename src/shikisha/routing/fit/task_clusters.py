"""Task types for logs without domains: clusters of prompts by their words, as many as improve the table rule.

Spherical k-means (Dhillon and Modha 2001) on TF-IDF weighted hashed words, started from clusters of a low-dimensional
projection. Invariants: the same prompts give the same types; outcomes decide only how many types there are, on held-out
folds.
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
from shikisha.routing.text_features import PROMPT_BUCKETS
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

CLUSTER_COUNTS = (4, 8, 16)
# Words in a larger share of prompts are ignored: one limit keeps how a question is phrased, one does not.
COMMON_SHARES = (0.5, 0.05)
# A type must have this many tasks on average.
MIN_TASKS_PER_TYPE = 25
# Half-widths of a 95 % interval: six looks at the same tasks find something by chance.
_MIN_HALF_WIDTHS = 1.5
_DIMENSIONS = 48
_ROUNDS = 15
# Words in fewer prompts are ignored.
_MIN_OCCURRENCES = 3
# Sparse centers keep policy files small.
_WORDS_PER_CENTRE = 500
# Words in the name of a type.
_WORDS_PER_NAME = 3
_WORD = re.compile(r"[^\W\d_]{3,}")


def find_task_types(matrix: OutcomeMatrix, folds: Ints, counts: Sequence[int] = CLUSTER_COUNTS) -> TaskTypes:
    """Return types found from the words of prompts, or the matrix's own types where finding some does not help.

    More types are taken only where the table's gain in area exceeds what several looks at the same tasks find by
    chance.
    """
    types_kept, best = matrix.types, _table_frontier(matrix, folds)
    for count, common in product(counts, COMMON_SHARES):
        if len(matrix) < MIN_TASKS_PER_TYPE * count:
            break
        candidate = cluster_prompts(matrix, count, common)
        area = _table_frontier(assign_types(matrix, candidate), folds)
        difference = paired_gain("", area, best)
        if difference.mean > _MIN_HALF_WIDTHS * (difference.mean - difference.low):
            types_kept, best = candidate, area
    return types_kept


def cluster_prompts(matrix: OutcomeMatrix, count: int, common: float = COMMON_SHARES[0]) -> TaskTypes:
    """Return this many types (fewer where prompts are alike); each compares answers as the matrix's type does."""
    words = matrix.batch.words
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        raise MissingExtra("learn", "finding task types") from None
    word_matrix = csr_matrix((words.weights, words.places, words.starts), shape=(len(words), PROMPT_BUCKETS))
    # [PROMPT_BUCKETS]: the log of the inverse share of prompts that contain a word.
    there = np.unique(words.rows * PROMPT_BUCKETS + words.places) % PROMPT_BUCKETS
    within = np.bincount(there, minlength=PROMPT_BUCKETS)
    telling = (within >= _MIN_OCCURRENCES) & (within <= common * len(words))
    inverse_frequency = np.where(telling, np.log(len(words) / np.maximum(1, within)), 0.0)
    word_rows, rarity = word_matrix, inverse_frequency
    # [T]: clusters of the projected prompts.
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize
    from sklearn.utils.extmath import randomized_svd

    weighted = normalize(word_rows.multiply(rarity).tocsr())
    left, sizes, _ = randomized_svd(weighted, min(_DIMENSIONS, weighted.shape[0]), random_state=0)
    projected = normalize(left * sizes)
    most = min(count, len(np.unique(projected.round(6), axis=0)))
    initial_clusters = np.asarray(KMeans(most, n_init=4, random_state=0).fit_predict(projected), np.int64)
    centres = _refine_centres(word_rows, rarity, initial_clusters)
    form = matrix.types.forms[0] if matrix.types.forms else matrix.types.form
    names = _name_clusters(matrix.batch.prompts, words.times(centres.T).argmax(axis=1), len(centres))
    return TaskTypes(names, (form,) * len(names), matrix.types.form, centres)


def assign_types(matrix: OutcomeMatrix, types: TaskTypes) -> OutcomeMatrix:
    """Return the matrix with tasks of these types."""
    batch = matrix.batch
    nearest = batch.words.times(types.centres.T).argmax(axis=1).astype(np.int64)
    retyped = TaskBatch(batch.prompts, nearest)
    retyped.__dict__.update({name: held for name, held in batch.__dict__.items() if name not in ("prompts", "types")})
    return replace(matrix, types=types, batch=retyped)


def _table_frontier(matrix: OutcomeMatrix, folds: Ints) -> Frontier:
    """Return the frontier of the table on held-out tasks."""
    tabled = fit_table(matrix, folds)
    cost, won = tabled.cost.mean(axis=0), tabled.won.mean(axis=0)
    points = upper_hull(
        OperatingPoint(0, setting, float(c), float(w)) for setting, (c, w) in enumerate(zip(cost, won, strict=True))
    )
    places = [(0, setting) for setting in range(len(cost))]
    return compute_frontier(TradeOff(points, 1.0, 0.0), tabled.won, tabled.cost, places, BUDGETS)


def _refine_centres(word_rows: "csr_matrix", rarity: Floats, nearest: Ints) -> Floats:
    """Return [k, PROMPT_BUCKETS]: centers such that each prompt is nearest to its own, as `TaskTypes.of` measures."""
    for _ in range(_ROUNDS):
        kinds, places = np.unique(nearest, return_inverse=True)
        # Unit rows of the largest entries, rounded as in a policy file.
        sums = np.asarray((word_rows.T @ np.eye(len(kinds))[places]).T) * rarity**2
        least = np.partition(sums, -_WORDS_PER_CENTRE, axis=1)[:, -_WORDS_PER_CENTRE, None]
        largest = np.where(sums >= least, sums, 0.0)
        lengths = np.maximum(1e-12, np.linalg.norm(largest, axis=1, keepdims=True))
        centres = np.asarray((largest / lengths).astype(np.float32), np.float64)
        nearest = np.asarray(word_rows @ centres.T).argmax(axis=1)
        if (nearest == places).all():
            break
    return centres


def _name_clusters(prompts: Sequence[str], nearest: Ints, count: int) -> tuple[str, ...]:
    """Return names of words that are more frequent in a type than elsewhere; a number where there are none."""
    prompt_words = [set(_WORD.findall(prompt.lower())) for prompt in prompts]
    everywhere = Counter(word for words in prompt_words for word in words)
    names: list[str] = []
    for kind in range(count):
        members = np.flatnonzero(nearest == kind)
        within = Counter(word for row in members for word in prompt_words[row])
        share = {word: times / len(members) for word, times in within.items()}
        typical = {word: of * log(of * len(prompt_words) / everywhere[word]) for word, of in share.items()}
        name = ", ".join(sorted(typical, key=lambda word: (-typical[word], word))[:_WORDS_PER_NAME])
        names.append(f"{name} ({kind})" if name in names or not name else name)
    return tuple(names)
