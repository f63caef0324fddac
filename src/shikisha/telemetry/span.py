"""A span as we tell it, before any SDK sees it: its place in a trace, its times, what is known of it.

Invariant: times are those of the events that it was made of (Unix seconds). Deliberately absent: OpenTelemetry; what
makes spans (`spans`) needs none, and what sends them (`export`) turns them into its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from shikisha.telemetry.ids import Place

Value: TypeAlias = str | bool | int | float | Sequence[str] | Sequence[int]


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened in a span."""

    name: str
    at: float
    attributes: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Link:
    """A span that this one goes back to without being part of it."""

    place: Place
    attributes: dict[str, Value]


@dataclass(slots=True)
class Span:
    """A stretch of a run. `error` is what went wrong, as a word with few values; empty: nothing did."""

    name: str
    place: Place
    parent: Place | None
    start: float
    attributes: dict[str, Value]
    client: bool = False
    moments: list[Moment] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    end: float = 0.0
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took; never below 0, whatever the clocks said."""
        return max(0.0, self.end - self.start)


Emit: TypeAlias = Callable[[Span], None]
