"""What can go wrong with an endpoint, by name, and the two mishaps that need no server: a closed port, a black hole.

Invariant: every member is acted out by `server` (or changes the content in `shapes`) and nothing else happens for it.
Deliberately absent: what our side should make of it; the tests say that.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum


class Mishap(StrEnum):
    """What a server does instead of simply answering."""

    SILENCE = "silence"  # takes the request and never answers
    RATE_SECONDS = "429-seconds"  # Retry-After in seconds
    RATE_DATE = "429-date"  # Retry-After as an HTTP date
    RATE_NEGATIVE = "429-negative"  # Retry-After below zero
    RATE_HUGE = "429-huge"  # Retry-After of years
    ERROR_500 = "500"  # internal error
    ERROR_503 = "503"  # overloaded, with Retry-After
    UNAUTHORIZED = "401"  # and the body repeats the key it was sent
    BAD_REQUEST = "400"  # the request is refused
    REDIRECT = "307"  # to somewhere else
    TRUNCATED = "truncated"  # the connection ends in the middle of the body
    NO_FINISH = "no-finish"  # a stream without finish reason and end marker
    NO_DONE = "no-done"  # a stream without end marker only
    BAD_JSON = "bad-json"  # JSON that breaks off
    HTML = "html"  # a web page under status 200
    WRONG_TYPE = "wrong-type"  # JSON of another shape
    IN_BAND = "in-band"  # an error inside a stream that began well
    HUGE = "huge"  # a body of 100 MB
    ZIPPED = "zipped"  # a compressed body, which nobody asked for
    DRIP = "drip"  # one byte a second
    RESET = "reset"  # a connection reset instead of an answer
    RESET_MIDWAY = "reset-midway"  # a connection reset in the middle of the body
    NO_USAGE = "no-usage"
    NEGATIVE_USAGE = "negative-usage"
    ABSURD_USAGE = "absurd-usage"  # far more tokens than the request has bytes
    BOOLEAN_USAGE = "boolean-usage"
    TEXT_USAGE = "text-usage"
    EMPTY = "empty"  # a well-formed answer without content
    REFUSAL = "refusal"  # the model declines
    FILTERED = "filtered"  # finish reason content_filter
    LENGTH = "length"  # finish reason length

    @property
    def charged(self) -> bool:
        """Whether the work is done, and charged for, all the same."""
        return self not in _FREE


_FREE = frozenset(
    {
        Mishap.RATE_SECONDS,
        Mishap.RATE_DATE,
        Mishap.RATE_NEGATIVE,
        Mishap.RATE_HUGE,
        Mishap.ERROR_500,
        Mishap.ERROR_503,
        Mishap.UNAUTHORIZED,
        Mishap.BAD_REQUEST,
        Mishap.REDIRECT,
        Mishap.HTML,
    }
)


def closed_port() -> str:
    """Return the base URL of a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@contextmanager
def black_hole() -> Iterator[str]:
    """Yield the base URL of a port on which connections never come about: its queue is full and nobody accepts."""
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
