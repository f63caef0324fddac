"""Workers: anything that can answer a subtask, behind one method.

Invariant: a worker either returns a Reply or raises WorkerError with a typed fault; it never retries (one place does:
`attempt`), never writes to the journal, and ends at once when it is cancelled. Deliberately absent: a base class. The
shipped fake is `workers.scripted`. The data of a call is in `core.call`, and can be imported from here too.
"""

from typing import Protocol

from shikisha.core.call import ApprovalMode, Card, ChildRunLauncher, ChildRunResult, GrantedStep, Reply, Request
from shikisha.core.messages import ChatMessage, Json, Speaker

__all__ = [
    "ApprovalMode",
    "Card",
    "ChatMessage",
    "ChildRunLauncher",
    "ChildRunResult",
    "GrantedStep",
    "Json",
    "Reply",
    "Request",
    "Speaker",
    "Worker",
]


class Worker(Protocol):
    """The one method."""

    async def perform(self, request: Request) -> Reply:
        """Answer the request's subtask, or raise WorkerError. Cancellation must end the call at once."""
        ...
