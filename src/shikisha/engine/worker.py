"""Workers: anything that can answer a subtask, behind one method.

Invariant: a worker either returns a Reply or raises WorkerError with a typed fault; it never retries (one place does:
`attempt`), never writes to the journal, and ends at once when it is cancelled. Deliberately absent: a base class. The
shipped fake is `workers.scripted`. The data of a call is in `core.call`, and can be imported from here too.
"""

from collections.abc import Callable
from typing import Protocol

from shikisha.core.call import ApprovalMode, Card, ChildRunLauncher, ChildRunResult, GrantedStep, Reply, Request
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.kinds import Kind
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
    "WorkerKind",
]


class Worker(Protocol):
    """The one method."""

    async def perform(self, request: Request) -> Reply:
        """Answer the request's subtask, or raise WorkerError. Cancellation must end the call at once."""
        ...


@dataclass(frozen=True, kw_only=True)
class WorkerKind(Kind[Worker]):
    """A kind of worker: `build(settings, card, secret_store)`, and the defaults of its cards.

    `fit_card` completes a card from the settings. `billed`: without a price the cost of a call is unknown, not zero.
    `any_task`: attachments of a task never prevent a call, because a tool gets its subtask alone, and a child run has
    workers of its own. `uncalled`: why `doctor --call` leaves it alone; "" where it does not.
    """

    fit_card: Callable[..., Card] | None = None
    billed: bool = False
    max_output_tokens: int = 0
    any_task: bool = False
    uncalled: str = ""
