"""What is remembered of one run while its spans are told.

Invariant: whatever is open here is a span that has begun and that nobody has been told of yet; when the run stops, for
good or not, everything open is closed. A thread whose run is over is small: places, and no spans. Deliberately absent:
what spans say (`attributes`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shikisha.budget import Amount, Caps
from shikisha.events import QuestionAnswered
from shikisha.plan import Plan
from shikisha.telemetry import names
from shikisha.telemetry.ids import Place, span_of
from shikisha.telemetry.span import Span, Value

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

    def pay(self, amount: Amount) -> None:
        """Count what a call was charged with."""
        self.used += amount

    def left(self) -> dict[str, Value]:
        """Return what is left of the caps, as attributes; nothing where there is no cap or nobody can say."""
        said: dict[str, Value] = {}
        if self.caps.dollars is not None and self.used.dollars is not None:
            said[names.BUDGET_DOLLARS] = max(0.0, self.caps.dollars - self.used.dollars)
        if self.caps.tokens is not None:
            said[names.BUDGET_TOKENS] = max(0, self.caps.tokens - self.used.tokens)
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
