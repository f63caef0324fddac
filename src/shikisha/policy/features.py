"""What an induction looks at: numbers about a task and about the answers of those who have been asked.

Invariant: the features of one set of asked workers have the same columns whoever asks, one task or many; the first
`light` columns are those that a fit should hardly hold back. Deliberately absent: which worker comes next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import Seen

LIGHT = 8  # leading columns of a state in which somebody has been asked
LIGHT_AT_FIRST = 5
_FAR = 3.0  # standard deviations


@dataclass(frozen=True, slots=True)
class Scales:
    """What is usual: `written` [D + 1, J] and `spread` [J] of log output tokens, the last row for unknown types."""

    written: Floats
    spread: Floats

    def lengths(self, seen: Seen, workers: Sequence[int]) -> Floats:
        """Return [T, n], how unusually long each one's output is, in standard deviations; 0 where not known."""
        columns = np.array(workers, np.int64)
        usual = self.written[seen.batch.types][:, columns]
        away = (np.log1p(seen.tokens[:, columns]) - usual) / self.spread[columns]
        held: Floats = np.clip(np.nan_to_num(away), -_FAR, _FAR)
        return held


@dataclass(frozen=True, slots=True)
class Belief:
    """[T, K] the probability of each candidate answer, [T] of none, and [T] the most probable candidate's code."""

    answers: Floats
    none: Floats
    top: Ints

    @classmethod
    def of(cls, posterior: tuple[Floats, Floats]) -> "Belief":
        """Return the belief of a scorer's posterior."""
        answers, none = posterior
        return cls(answers, none, answers.argmax(axis=1).astype(np.int64))

    @property
    def best(self) -> Floats:
        """[T]: the probability of the most probable candidate."""
        best: Floats = self.answers.max(axis=1)
        return best


def at_first(seen: Seen, scales: Scales) -> Floats:
    """Return [T, p] for tasks of which nobody has been asked."""
    return np.concatenate([np.ones((len(seen), 1)), seen.batch.shape, _types(seen, scales)], axis=1)


def of_state(seen: Seen, asked: tuple[int, ...], belief: Belief, scales: Scales) -> Floats:
    """Return [T, p] for tasks of which these workers (ascending) have been asked."""
    best, types = belief.best, _types(seen, scales)
    held = np.clip(best, 0.01, 0.99)
    odds = np.log(held / (1 - held)) / 3
    lengths = scales.lengths(seen, asked)
    columns = [_light(belief, best, odds), seen.batch.shape, types, types * (best - 0.6)[:, None]]
    for place, worker in enumerate(asked):
        codes = seen.codes[:, worker]
        silent, supports = codes < 0, (codes == belief.top) & (codes >= 0)
        z, told = lengths[:, place], seen.told(worker)
        columns.append(np.stack([supports - 0.5, silent, supports * best, z * supports, z * ~supports], axis=1))
        columns.append(np.stack([told * supports, told * ~supports], axis=1))
    return np.concatenate(columns, axis=1)


def _light(belief: Belief, best: Floats, odds: Floats) -> Floats:
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


def _entropy(belief: Belief) -> Floats:
    shares = np.concatenate([belief.answers, belief.none[:, None]], axis=1)
    entropy: Floats = -(shares * np.log(shares + 1e-9)).sum(axis=1)
    return entropy


def _types(seen: Seen, scales: Scales) -> Floats:
    """[T, D]: one where the task is of this type; nothing but zeros where its type is not known."""
    known = len(scales.written) - 1
    return np.eye(known + 1)[seen.batch.types][:, :known]
