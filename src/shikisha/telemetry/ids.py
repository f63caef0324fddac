"""Ids of traces and spans, reckoned from a run's id, so that every server that performs a part of a run agrees on them.

Invariant: a run's trace id is the BLAKE2b hash (16 bytes) of the id of its root run, unless whoever ordered the run
named a trace (`traceparent`); a span's id is the hash (8 bytes) of run, part and place. So a run that another server
goes on with continues in the same trace, and can link to spans of the part before without having seen them.
Deliberately absent: chance; samplers that go by the trace id see bits as even as random ones.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A span, as others refer to it."""

    trace: int
    span: int
    remote: bool = False
    sampled: bool = True


def trace_of(root: str) -> int:
    """Return the trace id of a root run and all its child runs."""
    return int.from_bytes(blake2b(root.encode("utf-8", "surrogatepass"), digest_size=16).digest()) or 1


def span_of(run: str, part: int, place: str) -> int:
    """Return the id of a span: of a run's part (how often it had been resumed), at a place in it."""
    name = f"{run}\n{part}\n{place}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest()) or 1


def parse_traceparent(header: str | None) -> Place | None:
    """Return the span that a W3C `traceparent` header names; None for none, and for what is no such header."""
    found = _TRACEPARENT.fullmatch(header.strip().lower()) if header else None
    if found is None:
        return None
    trace, span, flags = (int(part, 16) for part in found.groups())
    return Place(trace, span, remote=True, sampled=bool(flags & 1)) if trace and span else None
