"""Workers: anything that can answer a subtask, behind one method.

Invariant: a worker either returns a Reply or raises WorkerError with a typed fault; it never retries (one place does:
`attempt`), never writes to the journal, and ends at once when it is cancelled. Deliberately absent: a base class. The
shipped fake is `workers.scripted`. The data of a call is in `call` and is importable from here too.
"""

from typing import Protocol

from shikisha.call import (
    Ask,
    Card,
    Granted,
    Reply,
    Request,
    Spawn,
    Spawned,
)
from shikisha.turn import Json, Speaker, Turn

__all__ = [
    "Ask",
    "Card",
    "Granted",
    "Json",
    "Reply",
    "Request",
    "Spawn",
    "Spawned",
    "Speaker",
    "Turn",
    "Worker",
]


class Worker(Protocol):
    """The one method."""

    async def perform(self, request: Request) -> Reply:
        """Answer the request's subtask, or raise WorkerError. Cancellation must end the call at once."""
        ...
