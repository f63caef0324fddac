"""Whether a canary may become the live policy: only where a trial excludes harm, by more than a margin, well enough.

Harm is being right less often, ending without an answer more often, or costing more. Invariants: what the interval does
not exclude may be so; a language model's word counts only where one is told to trust it; whoever refuses says why, and
how many more tasks it would take if things are as they seem. Deliberately absent: promoting (a person does), and
weighing a gain in one thing against a loss in another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from shikisha.events import Basis
from shikisha.learn.trial import Change, Trial

_WORDS = {Basis.EXECUTED: "checks", Basis.PERSON: "people", Basis.JUDGE: "a language model"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a trial must exclude: being right, or answering, less often by more than `margin`; costing `dearer` more.

    `dearer` is a share of what the live policy costs; `least` are graded tasks of either, below which nothing counts.
    """

    margin: float = 0.02
    dearer: float = 0.1
    least: int = 50


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to promote, why not, and how many more tasks of the canary may change that (None: no number of them)."""

    promote: bool
    reasons: tuple[str, ...] = ()
    missing: int | None = 0


@dataclass(frozen=True, slots=True)
class _Objection:
    why: str
    missing: int | None


def counted(*, trust_judge: bool) -> tuple[Basis, ...]:
    """Return whose grades count."""
    return tuple(basis for basis in Basis if trust_judge or basis is not Basis.JUDGE)


def verdict(found: Trial, limits: Limits | None = None) -> Verdict:
    """Return what follows from a trial."""
    held = limits or Limits()
    objections = [*_too_few(found, held), *_harm(found, held)]
    needs = [objection.missing for objection in objections]
    missing = None if None in needs else max((need for need in needs if need is not None), default=0)
    return Verdict(not objections, tuple(objection.why for objection in objections), missing)


def _too_few(found: Trial, held: Limits) -> Iterator[_Objection]:
    judged = found.canary.graded[Basis.JUDGE] if Basis.JUDGE not in found.counts else 0
    word = f"; {judged:,} more have a language model's word alone, which does not count" if judged else ""
    for arm, name in ((found.canary, "the canary"), (found.live, "the live policy")):
        tasks = arm.right.tasks if arm.right else 0
        if tasks < held.least:
            by = " or ".join(_WORDS[basis] for basis in found.counts)
            yield _Objection(
                f"{tasks:,} tasks of {name} were graded by {by}: {held.least} are the least{word}", held.least - tasks
            )
        word = ""


def _harm(found: Trial, held: Limits) -> Iterator[_Objection]:
    if found.right is not None:
        yield from _lost("right less often", found.right, held.margin, rare=not found.differing.mean)
    if found.failed is not None:
        failed = [arm.failed.mean for arm in (found.canary, found.live) if arm.failed]
        yield from _lost("without an answer more often", _turned(found.failed), held.margin, rare=not any(failed))
    live = found.live.dollars
    if found.dollars is not None and live is not None:
        saved = _turned(found.dollars)
        if not live.mean:
            yield from _lost("dear, where the live policy costs nothing", saved, 0.0)
        else:
            relative = Change(saved.mean / live.mean, saved.low / live.mean, saved.high / live.mean, *_tasks(saved))
            yield from _lost("dearer", relative, held.dearer)


def _lost(what: str, change: Change, margin: float, *, rare: bool = False) -> Iterator[_Objection]:
    """Object where a change for the better may be one for the worse by more than the margin.

    An interval narrows with the root of the number of tasks, or, about what never happened yet (`rare`), with itself.
    """
    if change.low >= -margin:
        return
    allowed = f"{margin:.1%} is allowed"
    if change.mean <= -margin:
        interval = f"({-change.high:.1%} to {-change.low:.1%})"
        yield _Objection(f"it is {what}, by {-change.mean:.1%} {interval}: {allowed}", None)
        return
    factor = ((change.mean - change.low) / (change.mean + margin)) ** (1 if rare else 2)
    missing = ceil(change.canary * (factor - 1))
    why = f"it may be {what}, by up to {-change.low:.1%}: {allowed}; about {missing:,} more of its tasks may tell"
    yield _Objection(why, missing)


def _turned(change: Change) -> Change:
    return Change(-change.mean, -change.high, -change.low, *_tasks(change))


def _tasks(change: Change) -> tuple[int, int]:
    return change.canary, change.live
