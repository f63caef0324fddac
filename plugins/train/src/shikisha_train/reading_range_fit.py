"""Fits what a trained conductor can read: a logistic regression of own against ordinary sentences, and a threshold.

The threshold is calibrated on own tasks that the regression did not see, group by group: whole authors or kinds of task
are left out where their names are known. Invariant: the same texts give the same range on every machine.
"""

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha_train.pointer.reading_range import (
    KNOWN_FEATURES,
    Doubles,
    HashedSentences,
    ReadingRange,
    background,
    hash_sentences,
    split_sentences,
)

REFUSED_OWN = 0.02  # of own tasks that were left out, where the threshold is put
_GROUPS = 5  # where none are named
_RIDGE = 5e-6
_STEPS, _MEMORY, _LEAST_STEP, _LEAST_GAIN = 100, 8, 1e-6, 1e-6


def fit_reading_range(
    own: Sequence[str],
    groups: Sequence[str] = (),
    sentences: Sequence[Sequence[str]] = (),
    refused: float = REFUSED_OWN,
    highest: float = 0.0,
) -> ReadingRange:
    """Fit on own tasks. `groups` name what each is of (an author, a kind); `sentences` carry each task's question.

    Without `sentences` every sentence of a task counts as own, greetings too. The threshold refuses the share `refused`
    of tasks whose group was left out, or fewer, and is never above `highest` (0: even odds): where all tasks are alike,
    so are the scores of those that were left out. ConfigError for fewer than ten tasks.
    """
    if len(own) < 2 * _GROUPS:
        raise ConfigError(f"{len(own)} tasks: a reading range needs at least {2 * _GROUPS}")
    named = list(groups) or [str(crc32(text.encode(errors="surrogatepass")) % _GROUPS) for text in own]
    carrying = list(sentences) or [split_sentences(text) for text in own]
    rows = list(dict.fromkeys((group, each) for group, said in zip(named, carrying, strict=True) for each in said))
    hashed = hash_sentences([sentence for _, sentence in rows])
    left_out: list[float] = []
    for group in sorted(set(named)):
        inside = [at for at, (name, _) in enumerate(rows) if name != group]
        asked = [text for text, name in zip(own, named, strict=True) if name == group]
        if inside:
            left_out += _fit(_rows(hashed, inside), 0.0).familiarities(asked).tolist()
    return _fit(hashed, min(highest, float(np.quantile(left_out, refused))) if left_out else 0.0)


def _fit(own: HashedSentences, threshold: float) -> ReadingRange:
    """Fit a logistic regression of own against ordinary sentences, each side counting half, by L-BFGS."""
    other = background()
    both = HashedSentences(
        np.concatenate([own.starts, own.starts[-1] + other.starts[1:]]),
        np.concatenate([own.places, other.places]),
        np.concatenate([own.weights, other.weights]),
    )
    signs = np.concatenate([np.ones(len(own)), -np.ones(len(other))])
    shares = np.concatenate([np.full(len(own), 0.5 / len(own)), np.full(len(other), 0.5 / len(other))])

    def loss(at: Doubles) -> tuple[float, Doubles]:
        margins = signs * (both.dot(at[:-1]) + at[-1])
        value = float(shares @ np.logaddexp(0, -margins)) + _RIDGE / 2 * float(at[:-1] @ at[:-1])
        pull = -signs * shares / (1 + np.exp(np.clip(margins, -50, 50)))
        return value, np.append(_transposed_dot(both, pull) + _RIDGE * at[:-1], pull.sum())

    found = _minimize(loss, np.zeros(KNOWN_FEATURES + 1))
    return ReadingRange(found[:-1].astype(np.float32), float(found[-1]), threshold)


def _minimize(loss: Callable[[Doubles], tuple[float, Doubles]], at: Doubles) -> Doubles:
    """Return where a smooth convex loss is smallest: L-BFGS (Liu and Nocedal 1989) with halved steps."""
    value, slope = loss(at)
    steps: list[tuple[Doubles, Doubles]] = []
    for _ in range(_STEPS):
        way = slope.copy()
        kept = []
        for moved, changed in reversed(steps):
            share = (moved @ way) / (moved @ changed)
            kept.append(share)
            way -= share * changed
        if steps:
            moved, changed = steps[-1]
            way *= (moved @ changed) / (changed @ changed)
        for (moved, changed), share in zip(steps, reversed(kept), strict=True):
            way += moved * (share - (changed @ way) / (moved @ changed))
        size, fall = 1.0, float(slope @ way)
        while size > _LEAST_STEP:
            there, (next_value, next_slope) = at - size * way, loss(at - size * way)
            if next_value <= value - 1e-4 * size * fall:
                break
            size /= 2
        else:
            return at
        if (there - at) @ (next_slope - slope) > 0:
            steps = [*steps, (there - at, next_slope - slope)][-_MEMORY:]
        done = value - next_value < _LEAST_GAIN
        at, value, slope = there, next_value, next_slope
        if done:
            break
    return at


def _transposed_dot(sentences: HashedSentences, values: Doubles) -> Doubles:
    """Return [features]: the columns times a vector [N]."""
    spread = np.repeat(values, np.diff(sentences.starts))
    return np.bincount(sentences.places, sentences.weights * spread, KNOWN_FEATURES).astype(np.float64)


def _rows(sentences: HashedSentences, kept: Sequence[int]) -> HashedSentences:
    """Return these rows."""
    spans = [slice(int(sentences.starts[row]), int(sentences.starts[row + 1])) for row in kept]
    starts = np.concatenate([[0], np.cumsum([span.stop - span.start for span in spans])]).astype(np.int64)
    places = np.concatenate([sentences.places[:0], *(sentences.places[span] for span in spans)])
    weights = np.concatenate([sentences.weights[:0], *(sentences.weights[span] for span in spans)])
    return HashedSentences(starts, places, weights)
