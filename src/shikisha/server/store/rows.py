"""A served run as its row tells it, and the row as the run's.

Invariant: what a client wrote cannot make a row that a store refuses: NUL and half characters are replaced, numbers
are held within 64 bits. Deliberately absent: what a run came to, but for the figures that lists show.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from shikisha.budget import Amount
from shikisha.events import Status

MOST = 2**63 - 1


class State(StrEnum):
    """What a server may do with a run."""

    OPEN = "open"  # it is performed by its owner, or waits for someone to claim it
    WAITING = "waiting"  # it waits for a person or for its client; whoever has the answer takes it
    STOPPED = "stopped"  # it was stopped by its user, or is quarantined; a person may have it taken up again
    ENDED = "ended"  # it is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A root run that was ordered of a server; times are Unix times, `owner` is the member that performs it.

    `wire` is its request as its API needs it again, `excerpt` the first words of its task, `idempotency` the client's
    own key for the request, and `request_hash` tells whether another request under that key is the same. `dollars`
    None: nobody can say (yet); what may have been used besides is in `uncertain_…`. `stopping`: someone wants its owner
    to stop it. `erased` is when its texts were. `ends` and `strikes` are what it is blamed for (`blame`).
    """

    run: str
    tenant: str
    key: str
    api: str
    model: str
    conductor: str
    created: float = field(default_factory=time.time)
    state: State = State.OPEN
    owner: str | None = None
    updated: float = 0.0
    wire: str = "{}"
    idempotency: str | None = None
    request_hash: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    excerpt: str = ""
    domain: str = ""
    labels: tuple[str, ...] = ()
    detached: bool = False
    status: Status = Status.RUNNING
    tokens: int = 0
    dollars: float | None = None
    stopping: bool = False
    erased: float | None = None
    ends: int = 0
    strikes: int = 0
    uncertain_tokens: int = 0
    uncertain_dollars: float = 0.0

    @property
    def used(self) -> Amount:
        """What it is known to have used."""
        return Amount(self.tokens, self.dollars)

    @property
    def uncertain(self) -> Amount:
        """What it may have used besides."""
        return Amount(self.uncertain_tokens, self.uncertain_dollars)

    def row(self) -> dict[str, object]:
        """Return the values of its row."""
        values = {name: getattr(self, name) for name in COLUMNS}
        made = {
            "updated": self.updated or self.created,
            "metadata": json.dumps(dict(self.metadata)),
            "labels": json.dumps(self.labels),
            "tokens": min(self.tokens, MOST),
            "uncertain_tokens": min(self.uncertain_tokens, MOST),
        }
        return {name: storable(value) for name, value in (values | made).items()}

    @classmethod
    def of(cls, row: Mapping[str, object]) -> "Served":
        """Return the run of a row."""
        made = {
            "state": State(str(row["state"])),
            "status": Status(str(row["status"])),
            "metadata": json.loads(str(row["metadata"])),
            "labels": tuple(json.loads(str(row["labels"]))),
        }
        return cls(**{name: row[name] for name in COLUMNS} | made)  # type: ignore[arg-type]  # as `row` made them


COLUMNS = tuple(each.name for each in fields(Served))


def storable(value: object) -> object:
    """Return the value as every store takes it."""
    if not isinstance(value, str):
        return value
    text = str(value)  # an enum's member is its text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\x00", "\ufffd")
