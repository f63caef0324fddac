"""Prompts as the routers among the yardsticks see them: hashed words weighed by how rare they are, and their types.

TF-IDF (Sparck Jones 1972) over the hashed words that policies use too, so that the same text has the same places
everywhere. Invariants: how rare a word is, and the directions of `reduced`, are learned from one panel and used on
others; each row of words has length 1. Deliberately absent: embeddings of sentences, which need a downloaded model.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Floats
from shikisha.policy.batch import Batch
from shikisha.policy.words import SIZE

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_FEW, _COMMON = 2, 0.5  # a word in fewer tasks than this, or in a larger share of them, is left out
_SEED = 0


@dataclass(frozen=True, slots=True)
class Texts:
    """What each hashed word counts, [SIZE]; 0 for those that are left out."""

    rarity: Floats

    @classmethod
    def of(cls, panel: Panel) -> "Texts":
        """Learn from a panel how rare each word is."""
        count = np.bincount(panel.batch.words.places, minlength=SIZE)
        rarity = np.log((1 + len(panel)) / (1 + count)) + 1
        return cls(np.where((count < _FEW) | (count > _COMMON * len(panel)), 0.0, rarity))

    def rows(self, batch: Batch) -> "csr_matrix":
        """Return the words of these tasks, [T, SIZE], sparse."""
        try:
            from scipy.sparse import csr_matrix
            from sklearn.preprocessing import normalize
        except ImportError:
            raise MissingExtra("learn", "a router that reads prompts") from None
        words = batch.words
        held = words.weights * self.rarity[words.places]
        rows = csr_matrix((held, words.places, words.starts), (len(batch), SIZE))
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return normalize(rows, copy=False)


@dataclass(frozen=True, slots=True)
class Reduced:
    """Texts along the directions in which a panel's prompts differ most, with a column for each task type besides."""

    texts: Texts
    directions: Floats
    kinds: int

    @classmethod
    def of(cls, panel: Panel, size: int) -> "Reduced":
        """Learn so many directions from a panel (latent semantic analysis, Deerwester et al. 1990)."""
        from sklearn.decomposition import TruncatedSVD

        texts = Texts.of(panel)
        found = TruncatedSVD(min(size, len(panel) - 1), random_state=_SEED).fit(texts.rows(panel.batch))
        return cls(texts, np.asarray(found.components_.T, np.float64), len(panel.types.names))

    def rows(self, batch: Batch) -> Floats:
        """Return [T, n + D]; a task of unknown type has nothing in the last D columns."""
        along = np.asarray(self.texts.rows(batch) @ self.directions, np.float64)
        spread = np.linalg.norm(along, axis=1, keepdims=True)
        return np.concatenate([along / np.maximum(spread, 1e-9), one_hot(batch, self.kinds)], axis=1)


def one_hot(batch: Batch, kinds: int) -> Floats:
    """Return [T, D]: one where the task is of this type."""
    hot: Floats = np.eye(kinds + 1)[batch.types][:, :kinds]
    return hot
