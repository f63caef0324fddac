"""What is kept of a response request with its run, and finding it again.

Invariant: a response of another tenant, one that was not to be stored, one that was deleted and one whose texts were
erased are all told to be absent (404). Deleting makes a run's responses absent here; the run stays in the journal, for
audit, until it is erased there. Deliberately absent: erasure (an admin's).
"""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import Connection, update

from shikisha.clearance import Labels, join
from shikisha.errors import UnknownRun
from shikisha.events import Event
from shikisha.journal.tables import SERVED
from shikisha.run import Run
from shikisha.server.house import House
from shikisha.server.legs import Leg, legs, read_response_id, response_id
from shikisha.server.narrowing import Detail
from shikisha.server.orders import Api, Order
from shikisha.server.principal import Principal
from shikisha.server.problems import Problem
from shikisha.server.store import Served
from shikisha.server.wire.responses_request import ResponseRequest


class Kept(BaseModel):
    """A request as it is kept. `approves`: its key may approve calls; `progress`: steps are told of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: ResponseRequest
    approves: bool = False
    progress: bool = False
    detail: Detail = Detail.NONE

    def dumped(self) -> str:
        """Return it as `Order.wire`."""
        return self.model_dump_json(exclude_unset=True, by_alias=True)


@dataclass(frozen=True, slots=True)
class Found:
    """A response: its run's row and events, what was asked, and its leg; `upto` are the events up to its end."""

    served: Served
    kept: Kept
    events: tuple[Event, ...]
    leg: Leg
    last: bool  # whether the run has come no further

    @property
    def id(self) -> str:
        """The response's id."""
        return response_id(self.served.run, self.leg.number)

    @property
    def run(self) -> Run:
        """The run as it stood at the response's end."""
        return Run.fold(self.events[: self.leg.end])

    @property
    def labels(self) -> Labels:
        """The labels of everything in the run: what goes on with its conversation bears them."""
        results = (result for turn in self.run.rounds for result in turn.results if result is not None)
        return join(self.run.started.labels, *(result.labels for result in results))

    @property
    def before(self) -> Run | None:
        """The run as it stood before the response began; None for the first one."""
        return Run.fold(self.events[: self.leg.begin]) if self.leg.begin else None


def new_row(run: str, order: Order, created: float) -> Served:
    """Return what is known of a run that was begun just now."""
    return Served(
        run=run,
        tenant=order.by.tenant,
        key=order.by.key,
        api=order.api,
        model=order.model,
        conductor=order.conductor,
        created=created,
        wire=order.wire,
        detached=order.detached,
    )


def kept_of(served: Served) -> Kept | None:
    """Return what was kept of a run's request; None where nothing is, or not by this API."""
    if served.api != Api.RESPONSES:
        return None
    try:
        return Kept.model_validate_json(served.wire)
    except ValidationError:
        return None


async def find(house: House, by: Principal, name: str, param: str | None = None) -> Found:
    """Return a response that may be seen; Problem (404) when there is none of this id."""
    absent = Problem(404, f"there is no response {name[:80]!r}", "response_not_found", param=param)
    place = read_response_id(name)
    if place is None:
        raise absent
    run, number = place
    try:
        served = await house.served(run)
        kept = kept_of(served)
        if kept is None or kept.request.store is False or not by.owns(served.tenant):
            raise absent
        return at_leg(served, kept, await house.journal.read(run), number)
    except (UnknownRun, IndexError):
        raise absent from None


def at_leg(served: Served, kept: Kept, events: tuple[Event, ...], number: int) -> Found:
    """Return a run's response of this number; IndexError when there is none."""
    found = legs(events, approves=kept.approves)
    return Found(served, kept, events, found[number], number == len(found) - 1)


async def delete(house: House, found: Found) -> None:
    """Make a run's responses absent; a run that goes on is cancelled, since nobody could read what it comes to."""
    if found.run.finished is None:
        await house.cancel(found.served.run)

    def forget(connection: Connection) -> None:
        connection.execute(update(SERVED).where(SERVED.c.run == found.served.run).values(wire="{}"))

    await house.journal.write(forget)
