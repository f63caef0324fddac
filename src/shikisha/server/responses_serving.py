"""A response under way: its run attended, its stream written, its object made.

Invariant: a stream ends with `response.completed`, `.incomplete` or `.failed`, or with an `error` that says why it ends
without (a person did not come in time, the server is being stopped): the run goes on then, and can be fetched again.
A run whose client leaves is cancelled, unless it was ordered in the background. Deliberately absent: reading requests.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from shikisha.errors import ConfigError, ShikishaError
from shikisha.server.audible import conclusive, hears_all
from shikisha.server.headers import of_ended
from shikisha.server.house import House
from shikisha.server.live import Happened
from shikisha.server.mapping import NO_RETRY, problem_of
from shikisha.server.problems import Problem
from shikisha.server.responses_course import Course, Terms
from shikisha.server.responses_keeping import Found, Kept, at_leg
from shikisha.server.responses_message import Sent
from shikisha.server.responses_view import bill_of, course_of, problem_with, rendered
from shikisha.server.store import Served, State
from shikisha.server.usage import Bill
from shikisha.server.wire.responses_answer import ResponseObject

_LOOK = 0.25  # seconds between two looks at a run that waits for a person
_WHOLE = ("created", "queued", "in_progress", "completed", "incomplete", "failed")
APPROVALS = "/ui/approvals"


@dataclass(slots=True)
class Responding:
    """A response of a run, for one client. `patient`: a person is waited for however long they take.

    `own`: the client began the run, which is nobody's once it has left. `nested`: the run may have child runs.
    """

    house: House
    served: Served
    kept: Kept
    course: Course
    patient: bool = False
    own: bool = False
    nested: bool = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self.served.run

    async def gone(self) -> None:
        """Cancel the run if it is its client's own: the client has left."""
        if self.own and not self.patient and self.course.standing is None:
            await self.house.cancel(self.run)

    async def answer(self) -> JSONResponse:
        """Return the response once it has ended, or the error that it ended with."""
        async with aclosing(self._heard()) as hearing:
            async for _ in hearing:
                pass
        found, spent = self._found(), await self._spent()
        headers, problem = of_ended(self.run, spent), problem_with(self.course)
        given = self._rendered(found, spent)
        if problem is None:
            return JSONResponse(given.model_dump(mode="json", by_alias=True), headers=headers)
        body = {**problem.body(), "run": self.run}
        body |= {} if given.shikisha is None else {"shikisha": given.shikisha}
        return JSONResponse(body, problem.status, {**problem.headers(), **NO_RETRY, **headers})

    async def object(self) -> ResponseObject:
        """Return the response as it stands."""
        spent = await self._spent() if self.course.standing is not None else None
        return self._rendered(self._found(), spent)

    def _rendered(self, found: Found, spent: Bill | None) -> ResponseObject:
        house = self.house
        return rendered(found, self.course, spent, house.composition.oversight(), house.settings.url)

    async def now(self) -> ResponseObject:
        """Return the response as the journal has it."""
        self.served, events = await self.house.served(self.run), await self.house.journal.read(self.run)
        self.course = course_of(at_leg(self.served, self.kept, events, self.course.terms.leg))
        return await self.object()

    def _found(self) -> Found:
        """Return the response as far as it has been heard."""
        return at_leg(self.served, self.kept, tuple(self.course.events), self.course.terms.leg)

    async def _spent(self) -> Bill:
        return bill_of(self._found(), (await self.house.family(self.run)).values() if self.nested else ())

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the stream as server-sent events."""
        try:
            async with aclosing(self._heard()) as hearing:
                async for sent in hearing:
                    yield await self._written(sent)
        except Problem as problem:
            yield self._error(problem)
        except ShikishaError as error:
            yield self._error(problem_of(error))

    async def refused(self, problem: Problem) -> tuple[bytes]:
        """Return the last event of a stream that may go on no longer; its client has left, as it were."""
        await self.gone()
        return (self._error(problem),)

    async def _heard(self) -> AsyncGenerator[Sent]:
        """Yield what the stream holds, until the response ends; Problem when it does not."""
        heard, until, clock = -1, None, asyncio.get_running_loop().time
        while True:
            async with aclosing(self.house.listen(self.run, heard)) as hearing:
                async for item in hearing:
                    heard = item.number if isinstance(item, Happened) else heard
                    for sent in self.course.hear(item):
                        yield sent
                    if self.course.standing is not None:
                        return
            self.served = await self.house.served(self.run)
            if self.served.state is State.STOPPED:
                for sent in self.course.stop():
                    yield sent
                return
            if self.house.closing:
                said = f"this server is being stopped; run {self.run} is taken up again"
                raise Problem(503, said, "server_stopping", wait=self.house.settings.drain)
            until = clock() + self.house.settings.patience if until is None else until
            if not self.patient and self.served.state is State.WAITING and clock() >= until:
                at = f"{(self.house.settings.url or '').rstrip('/')}{APPROVALS}"
                raise Problem(409, f"run {self.run} waits for a person, at {at}", "approval_required")
            await asyncio.sleep(_LOOK)

    async def _written(self, sent: Sent) -> bytes:
        fields = dict(sent.fields)
        if sent.type.removeprefix("response.") in _WHOLE:
            fields["response"] = await self.object()
        return event(sent.type, {**fields, "sequence_number": sent.number})

    def _error(self, problem: Problem) -> bytes:
        told = {"code": problem.code, "message": problem.message, "param": problem.param}
        return event("error", {**told, "sequence_number": self.course.last + 1})


def event(kind: str, fields: dict[str, object]) -> bytes:
    """Return a server-sent event of this type."""
    told = json.dumps({"type": kind, **fields}, default=_plain, separators=(",", ":"))
    return f"event: {kind}\ndata: {told}\n\n".encode()


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is no part of an event")


def responding(house: House, found: Found, after: int = -1) -> Responding:
    """Return a response of a run that was found, for one who listens from after a number."""
    kept, served = found.kept, found.served
    begun = found.run.started
    terms = Terms(found.leg.number, kept.progress, kept.approves, _audible(house, found), after)
    nested = any(card.kind == "conductor" for card in house.composition.cards() if card.name in begun.pool)
    return Responding(house, served, kept, Course(terms), patient=served.detached, nested=nested)


def _audible(house: House, found: Found) -> Callable[[str], bool]:
    """Return what says of a worker whether its pieces may be passed on; no worker's where the run can't be cast now."""
    run = found.run
    try:
        pool, conductor = house.cast(found.served.conductor, run.started.pool)
    except ConfigError:
        return lambda _: False
    if not hears_all(run.task, conductor, house.composition.oversight()):
        return lambda _: False
    return conclusive(pool)
