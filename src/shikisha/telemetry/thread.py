"""What is remembered of one run while its spans are told.

Invariant: whatever is open here is a span that has begun and that nobody has been told of yet; when the run stops, for
good or not, everything open is closed. A thread whose run is over is small: places, and no spans. Deliberately absent:
what spans say (`attributes`).
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from shikisha.budget import Amount, Caps
from shikisha.events import QuestionAnswered
from shikisha.plan import Plan
from shikisha.telemetry import names
from shikisha.telemetry.ids import Place, span_of, trace_of
from shikisha.telemetry.span import Span, Value

_MOST_OPEN = 20_000  # runs whose end never came (their process lost the journal) must not pile up
_MOST_KEPT = 2_000  # runs that have ended or wait, kept for late grades and for going on
_BELOW = re.compile(r"(?:-\d+-(?:\d+|plan)-\d+(?:\.\d+)?)+$")  # what a child run's id adds to its root's
_NOTHING: dict[str, Value] = {}
V = TypeVar("V")
Spot = tuple[int, int | None]  # a round's step; None: its planning


@dataclass(slots=True)
class Thread:
    """A run: where its spans hang, which are open, and what they share."""

    run: str
    trace: int
    conductor: str = ""
    pool: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)
    about: dict[str, Value] = field(default_factory=dict)  # attributes of every part's root
    parent: Place | None = None
    part: int = 0
    sampled: bool = True
    root: Span | None = None
    root_place: Place | None = None  # of the latest part
    last: float = 0.0
    used: Amount = Amount()
    uncertain: Amount = Amount()  # what calls without a known outcome may have used besides
    plan: Plan | None = None
    plan_hash: str = ""
    version: str = ""
    open: dict[Spot, Span] = field(default_factory=dict)  # steps and plannings
    calls: dict[Spot, tuple[str, Span]] = field(default_factory=dict)  # the attempt of each that is being made
    made: dict[Spot, int] = field(default_factory=dict)  # attempts, by step
    places: dict[Spot, Place] = field(default_factory=dict)  # of steps, for links
    asked: dict[str, Spot | None] = field(default_factory=dict)  # None: about the answer
    answered: dict[Spot, QuestionAnswered] = field(default_factory=dict)

    def place(self, what: str) -> Place:
        """Return the place of a span of this part."""
        return Place(self.trace, span_of(self.run, self.part, what), sampled=self.sampled)

    def left(self) -> dict[str, Value]:
        """Return what is left of the caps, as attributes; nothing where there is no cap or nobody can say."""
        if self.caps.dollars is None and self.caps.tokens is None:
            return _NOTHING
        said: dict[str, Value] = {}
        counted = self.used + self.uncertain
        if self.caps.dollars is not None and counted.dollars is not None:
            said[names.BUDGET_DOLLARS] = max(0.0, self.caps.dollars - counted.dollars)
        if self.caps.tokens is not None:
            said[names.BUDGET_TOKENS] = max(0, self.caps.tokens - counted.tokens)
        return said

    def close(self) -> Iterator[Span]:
        """Take every open span out, the inner ones first, the root last."""
        for _, span in self.calls.values():
            yield span
        yield from self.open.values()
        if self.root is not None:
            yield self.root
        self.calls.clear()
        self.open.clear()
        self.root = None


class Threads:
    """The runs that are being performed, those that are over or wait, and the traces that runs were ordered in."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Thread] = OrderedDict()
        self.over: OrderedDict[str, Thread] = OrderedDict()
        self.ordered: OrderedDict[str, Place] = OrderedDict()

    def begin(self, thread: Thread) -> Thread | None:
        """Take a run in; return one that has to go for it, where there are too many."""
        self.open[thread.run] = thread
        return self.open.popitem(last=False)[1] if len(self.open) > _MOST_OPEN else None

    def end(self, thread: Thread) -> None:
        """Keep little of a run that is over or waits."""
        self.open.pop(thread.run, None)
        keep(self.over, thread.run, thread)

    def trace(self, run: str, parent: Place | None) -> int:
        """Return the trace that a run is in: its parent's, or the one reckoned from its root's id."""
        if parent is not None:
            return parent.trace
        root = _BELOW.sub("", run)
        return self.ordered[root].trace if root in self.ordered else trace_of(root)


def keep(kept: OrderedDict[str, V], name: str, value: V) -> None:
    """Keep a value, and no more of them than there is room for: the oldest goes."""
    kept[name] = value
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)
