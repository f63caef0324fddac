"""A span before any SDK sees it: its ids, its times, its attributes, events and links.

Every server that performs a part of a run agrees on the ids, because they are computed from the run's: a trace id is
the BLAKE2b hash (16 bytes) of the id of the root run, unless the client named a trace (`traceparent`), and a span id is
the hash (8 bytes) of run, part and place. So a run that another server resumes continues in the same trace, and can
link to spans of the part before without having seen them. Invariant: times are those of the events that a span was made
of (Unix seconds). Deliberately absent: OpenTelemetry, which only `export` needs; and chance, since samplers that go by
the trace id see bits as even as random ones.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A span, as others refer to it."""

    trace_id: int
    span: int
    remote: bool = False
    sampled: bool = True


def trace_id(root: str) -> int:
    """Return the trace id of a root run and all its child runs."""
    return int.from_bytes(blake2b(root.encode("utf-8", "surrogatepass"), digest_size=16).digest()) or 1


def span_id(run: str, part: int, place: str) -> int:
    """Return the id of the span at a place in a run's part; `part` counts how often the run had been resumed."""
    name = f"{run}\n{part}\n{place}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest()) or 1


def parse_traceparent(header: str | None) -> SpanRef | None:
    """Return the span that a W3C `traceparent` header names; None for none, and for what is no such header."""
    found = _TRACEPARENT.fullmatch(header.strip().lower()) if header else None
    if found is None:
        return None
    trace, span, flags = (int(part, 16) for part in found.groups())
    return SpanRef(trace, span, remote=True, sampled=bool(flags & 1)) if trace and span else None


SpanValue: TypeAlias = str | bool | int | float | Sequence[str] | Sequence[int]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened in a span."""

    name: str
    at: float
    attributes: dict[str, SpanValue]


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A reference from a span to another that is not its parent."""

    place: SpanRef
    attributes: dict[str, SpanValue]


@dataclass(slots=True)
class RunSpan:
    """A stretch of a run. `error` is the kind of fault (few values); empty: none."""

    name: str
    place: SpanRef
    parent: SpanRef | None
    start: float
    attributes: dict[str, SpanValue]
    client: bool = False
    events: list[SpanEvent] = field(default_factory=list)
    links: list[SpanLink] = field(default_factory=list)
    end: float = 0.0
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took; never below 0, even if a clock was set back."""
        return max(0.0, self.end - self.start)


SpanCallback: TypeAlias = Callable[[RunSpan], None]
