"""Workers as they are shown: what came of the calls to each lately, by kind of task, and how that went over time.

Invariant: every share and every time stands beside the number of calls that it was counted from; where there were none
there is a dash and a gap. Deliberately absent: intervals (an evaluation has them) and advice.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from shikisha.call import Card
from shikisha.server.pages.recent import Recent, Tried
from shikisha.server.pages.spark import Spark, spark

PERIODS = 24
_WIDE = 92.0  # pixels of a line


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of some calls. Times are seconds of those that gave an answer; `dollars` None: not all are known."""

    calls: int
    ok: int
    p50: float | None
    p95: float | None
    tokens: int
    dollars: float | None

    @property
    def share(self) -> float | None:
        """The share that gave an answer which no check refused."""
        return self.ok / self.calls if self.calls else None

    @property
    def dollars_a_call(self) -> float | None:
        """The mean cost."""
        return None if self.dollars is None or not self.calls else self.dollars / self.calls


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker: all its calls, those of each kind of task, and three lines over time."""

    name: str
    kind: str
    description: str
    configured: bool
    all: Figures
    by_domain: tuple[tuple[str, Figures], ...]
    shares: Spark
    times: Spark
    costs: Spark


@dataclass(frozen=True, slots=True)
class WorkersView:
    """All workers; `since` is when what is counted begins (Unix time)."""

    workers: tuple[WorkerView, ...]
    since: float | None
    until: float
    calls: int


def view(recent: Recent, cards: Sequence[Card], now: float) -> WorkersView:
    """Return the workers that are configured, in their order, and then those that were called and are no more."""
    by_worker: dict[str, list[Tried]] = defaultdict(list)
    for tried in recent.tried:
        by_worker[tried.worker].append(tried)
    known = {card.name: card for card in cards}
    since = recent.tried[0].at if recent.tried else now
    names = [*known, *sorted(set(by_worker) - set(known))]
    found = tuple(_worker(name, known.get(name), by_worker[name], (since, now)) for name in names)
    return WorkersView(found, recent.since, now, len(recent.tried))


def figures(tried: Sequence[Tried]) -> Figures:
    """Count calls."""
    times = sorted(each.seconds for each in tried if each.ok)
    costs = [each.dollars for each in tried]
    dollars = None if None in costs else sum(cost for cost in costs if cost is not None)
    return Figures(
        len(tried),
        sum(each.ok for each in tried),
        quantile(times, 0.5),
        quantile(times, 0.95),
        sum(each.tokens for each in tried),
        dollars,
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which this share lies (nearest rank); None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, ceil(share * len(ordered) - 1e-9) - 1)]


def _worker(name: str, card: Card | None, tried: Sequence[Tried], span: tuple[float, float]) -> WorkerView:
    by_domain: dict[str, list[Tried]] = defaultdict(list)
    for each in tried:
        by_domain[each.domain].append(each)
    parts = [figures(part) for part in _periods(tried, *span)]
    return WorkerView(
        name=name,
        kind=card.kind if card else "",
        description=card.description if card else "",
        configured=card is not None,
        all=figures(tried),
        by_domain=tuple((domain, figures(by_domain[domain])) for domain in sorted(by_domain)),
        shares=spark([part.share for part in parts], width=_WIDE, top=1.0),
        times=spark([part.p50 for part in parts], width=_WIDE),
        costs=spark([part.dollars if part.calls else None for part in parts], width=_WIDE),
    )


def _periods(tried: Iterable[Tried], since: float, until: float) -> list[list[Tried]]:
    periods: list[list[Tried]] = [[] for _ in range(PERIODS)]
    length = max(until - since, 1e-9)
    for each in tried:
        periods[min(PERIODS - 1, max(0, int((each.at - since) / length * PERIODS)))].append(each)
    return periods
