"""How many servers of ours a request has come through, so that one that asks itself does not do so for ever.

Whoever begins runs for requests sets `DEPTH`; calls to chat endpoints tell one more. Invariant: a run bears the depth
of the request that began it, for as long as the process that began it performs it. Deliberately absent: trust. The
number is a header, which whoever asks may set as they like: it guards against mistakes.
"""

from contextvars import ContextVar

HEADER = "X-Shikisha-Depth"
TOO_DEEP = "too_deep"  # the code of the refusal, which every server on the way back repeats
DEPTH: ContextVar[int] = ContextVar("depth", default=0)


def told() -> dict[str, str]:
    """Return the header that tells an endpoint how deep a call to it is."""
    return {HEADER: str(DEPTH.get() + 1)}
