"""What is asked of the house: a task, under whom, by whom, within which limits. The same for every API.

Invariant: an order is complete and valid before anything is done for it: names exist, limits are the tighter of the
request's and the key's. Deliberately absent: the shapes of any API (each makes orders of its own requests).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shikisha.budget import Caps
from shikisha.server.principal import Principal
from shikisha.task import Task


class Api(StrEnum):
    """By which API a run was ordered."""

    CHAT = "chat"
    RESPONSES = "responses"
    RUNS = "runs"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Order:
    """A run to be performed. `model` is the name that the client used, `conductor` and `pool` what it stands for.

    `detached`: the run goes on when the client has gone (background). `wire` is the request as the API needs it again
    later (JSON; it is kept with the run and erased with it). `idempotency` is the client's key for this very request,
    and `request_hash` tells whether another request under it is the same.
    `depth` is how many servers of ours the request has come through.
    """

    task: Task
    by: Principal
    model: str
    conductor: str
    pool: tuple[str, ...]
    caps: Caps
    api: Api = Api.CHAT
    detached: bool = False
    wire: str = "{}"
    idempotency: str | None = None
    request_hash: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    depth: int = 0

    def scrubbed(self, scrub: Callable[[str], str]) -> "Order":
        """Return the order without keys in it; TaskError when that makes something else of its task."""
        metadata = {scrub(name): scrub(value) for name, value in self.metadata.items()}
        return replace(self, task=self.task.scrubbed(scrub), wire=scrub(self.wire), metadata=metadata)
