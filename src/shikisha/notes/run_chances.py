"""How likely a run is to be right, given how its parts were done, and whose fault a wrong one was.

A part is one call, or a call whose result another worker checks, or opinions of several. What the run went on with may
be another result than the first worker's; where the journal shows that, it tells much of the first worker. Three rates
for each form say how much: how often a wrong result is replaced, how often a right one, and how often a replaced wrong
one ends right. They are learned from runs, and start as ten imagined parts each.

Invariant: without a form and without a replaced result, the chance of a run is the product of its parts' chances, and
the blame for a wrong one is shared as expectation maximization shares it: (p - P) / (1 - P).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import NamedTuple

LEAST_CHANCE = 0.02  # nobody is always right or always wrong
_PRIOR = 10.0  # imagined parts that a rate starts from
_TINY = 1e-9


class PartForm(StrEnum):
    """How a part was done."""

    CALL = "call"
    CHECK = "check"  # another worker saw the result and was to correct it
    OPINIONS = "opinions"  # several workers did the same work, and a majority counted


@dataclass(frozen=True, slots=True)
class PartTrial:
    """A part of a run: its first worker, the chance that this worker's result is right, and what became of the result.

    `replaced` says whether the run went on with another result; None where that is not known.
    """

    worker: str
    chance: float
    form: PartForm = PartForm.CALL
    replaced: bool | None = None


@dataclass(frozen=True, slots=True)
class PartShare:
    """How likely the first worker's result was right, and what the run went on with, once the run's grade is known."""

    own: float
    part: float


class _Chances(NamedTuple):
    """Of what was seen of a part: that and the part is right; that; each of them and the first worker is right."""

    right: float
    seen: float
    own_right: float
    own_seen: float


@dataclass(slots=True)
class _FormRates:
    """Counts [those, of so many] behind each rate of a form."""

    wrong_replaced: list[float] = field(default_factory=lambda: [0.6 * _PRIOR, _PRIOR])
    right_replaced: list[float] = field(default_factory=lambda: [0.04 * _PRIOR, _PRIOR])
    mended: list[float] = field(default_factory=lambda: [0.7 * _PRIOR, _PRIOR])


@dataclass(slots=True)
class RunModel:
    """The chance of a run by its parts, with rates that are learned run by run."""

    _rates: dict[PartForm, _FormRates] = field(
        default_factory=lambda: {form: _FormRates() for form in PartForm if form is not PartForm.CALL}
    )

    def chance(self, trials: Sequence[PartTrial]) -> float:
        """Return how likely such a run is to be right, before anything is seen of it."""
        return prod(self._chances(PartTrial(one.worker, one.chance, one.form)).right for one in trials)

    def likelihood(self, trials: Sequence[PartTrial], *, right: bool) -> float:
        """Return how likely the run's grade is, together with which results were replaced."""
        found = [self._chances(one) for one in trials]
        both, seen = prod(one.right for one in found), prod(one.seen for one in found)
        return max(_TINY, both if right else seen - both)

    def share_blame(self, trials: Sequence[PartTrial], *, right: bool) -> list[PartShare]:
        """Return, for each part of a graded run, how likely it was right."""
        found = [self._chances(one) for one in trials]
        if right:
            return [PartShare(one.own_right / one.right, 1.0) for one in found]
        both, seen = prod(one.right for one in found), prod(one.seen for one in found)
        wrong = max(_TINY, seen - both)

        def share(of_seen: float, of_right: float, one: _Chances) -> float:
            return min(1.0, max(0.0, (of_seen * seen / one.seen - of_right * both / one.right) / wrong))

        return [PartShare(share(one.own_seen, one.own_right, one), share(one.right, one.right, one)) for one in found]

    def learn(self, trials: Sequence[PartTrial], *, right: bool, weight: float = 1.0) -> None:
        """Add a run to the rates, as much as `weight` says that its chances can be trusted."""
        for one, share in zip(trials, self.share_blame(trials, right=right), strict=True):
            if one.form is PartForm.CALL or one.replaced is None:
                continue
            rates, was_wrong = self._rates[one.form], 1 - share.own
            for counts, seen in ((rates.wrong_replaced, was_wrong), (rates.right_replaced, share.own)):
                counts[0] += weight * seen * one.replaced
                counts[1] += weight * seen
            if one.replaced:
                rates.mended[0] += weight * min(share.part, was_wrong)
                rates.mended[1] += weight * was_wrong

    def _chances(self, one: PartTrial) -> _Chances:
        p = min(1 - LEAST_CHANCE, max(LEAST_CHANCE, one.chance))
        if one.form is PartForm.CALL:
            return _Chances(p, 1.0, p, p)
        rates = self._rates[one.form]
        wrong, unjust, mended = (
            counts[0] / counts[1] for counts in (rates.wrong_replaced, rates.right_replaced, rates.mended)
        )
        kept = p * (1 - unjust)
        match one.replaced:
            case None:
                return _Chances(kept + (1 - p) * wrong * mended, 1.0, kept, p)
            case True:
                return _Chances((1 - p) * wrong * mended, p * unjust + (1 - p) * wrong, 0.0, p * unjust)
            case False:
                return _Chances(kept, kept + (1 - p) * (1 - wrong), kept, kept)
