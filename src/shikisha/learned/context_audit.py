"""Which sources of context earn their tokens: runs that a trial left without a source, against runs that had them all.

Invariants: only draws that the journal has are compared, and only graded runs; a source is said to earn or to harm when
the 95 % interval of the difference says so (Newcombe), and to be undecided otherwise; its tokens stand beside it.
Deliberately absent: pairs of sources, which would need many more runs.
"""

import json
from collections.abc import Iterable
from enum import StrEnum
from math import ceil, sqrt

from shikisha.core.budget import wilson
from shikisha.core.events import ContextGathered
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run

_FEWEST = 20  # runs of each side


class SourceVerdict(StrEnum):
    """What outcomes say of a source."""

    EARNS = "earns its tokens"  # runs without it are worse
    HARMS = "harms"  # runs without it are better
    UNDECIDED = "undecided"  # the interval has both
    TOO_FEW = "too few runs"


@dataclass(frozen=True, slots=True)
class SourceAudit:
    """A source: its tokens in a run that has it, (runs, score) with all sources and without this one, and the gain."""

    name: str
    tokens: float
    shown: tuple[int, float]
    without: tuple[int, float]
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> SourceVerdict:
        """What the interval says."""
        if min(self.shown[0], self.without[0]) < _FEWEST:
            return SourceVerdict.TOO_FEW
        return (
            SourceVerdict.EARNS if self.low > 0 else SourceVerdict.HARMS if self.high < 0 else SourceVerdict.UNDECIDED
        )

    @property
    def missing(self) -> int:
        """How many more runs without it are likely to decide, if the gain is as it looks; 0: it is decided."""
        if self.verdict in (SourceVerdict.EARNS, SourceVerdict.HARMS):
            return 0
        needed = 2 * (1.96 / max(abs(self.gain), 0.02)) ** 2 * 0.25
        return max(_FEWEST - self.without[0], ceil(needed) - self.without[0], 1)


def audit_context(runs: Iterable[Run]) -> list[SourceAudit]:
    """Return an audit of each source that the runs name, in the order in which they are met."""
    graded = [
        (run.context, run.grade.score)
        for run in runs
        if run.erased is None and run.context is not None and run.grade is not None and run.grade.score is not None
    ]
    names = dict.fromkeys(name for context, _ in graded for name in context.sources)
    return [_audit(name, graded) for name in names]


def _audit(name: str, graded: list[tuple[ContextGathered, float]]) -> SourceAudit:
    drawn = [
        (context, score) for context, score in graded if context.propensity is not None and name in context.sources
    ]
    shown = [(context, score) for context, score in drawn if not context.dropped]
    without = [score for context, score in drawn if name in context.dropped]
    tokens = [_tokens_of(name, context) for context, _ in graded if name not in context.dropped]
    sides = [(len(shown), sum(score for _, score in shown)), (len(without), sum(without))]
    rates = [right / max(1, count) for count, right in sides]
    (low, high), (other_low, other_high) = (wilson(right, count) for count, right in sides)
    gain = rates[0] - rates[1]
    return SourceAudit(
        name,
        sum(tokens) / max(1, len(tokens)),
        sides[0],
        sides[1],
        gain,
        gain - sqrt((rates[0] - low) ** 2 + (other_high - rates[1]) ** 2),
        gain + sqrt((high - rates[0]) ** 2 + (rates[1] - other_low) ** 2),
    )


def _tokens_of(name: str, context: ContextGathered) -> int:
    try:
        return sum(int(one["tokens"]) for one in json.loads(context.taken) if one["source"] == name)
    except (ValueError, KeyError, TypeError):
        return 0
