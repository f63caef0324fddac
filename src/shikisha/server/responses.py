"""`/v1/responses`: a request becomes a run, or goes on with the one that waits for it; runs are found again.

Invariant: a client is told no before anything is begun, reserved or charged. Deliberately absent: what is honoured
(`wire.responses_request`), how a response is told (`responses_course`), and how it is written (`responses_serving`).
"""

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from shikisha.server import sse
from shikisha.server.awaiting import grace, unless_left
from shikisha.server.doors import asker, seer
from shikisha.server.headers import of_begun
from shikisha.server.house import House
from shikisha.server.idempotency import begun, key_of
from shikisha.server.lapses import door, until
from shikisha.server.listeners import listened
from shikisha.server.narrowing import Narrowing, narrowing
from shikisha.server.ordering import Wish
from shikisha.server.orders import Api, Order
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.refusals import SSE, refusals
from shikisha.server.responses_asking import history_of, task_of
from shikisha.server.responses_inputs import Order as Sorting
from shikisha.server.responses_inputs import page
from shikisha.server.responses_keeping import Found, Kept, at_leg, delete, find, kept_of, new_row
from shikisha.server.responses_resuming import Resumed, hand_in, keeps, resumed
from shikisha.server.responses_serving import Responding, responding
from shikisha.server.responses_view import course_of
from shikisha.server.wire.reading import documented, fit, read
from shikisha.server.wire.responses_answer import Deleted, InputItems, ResponseObject
from shikisha.server.wire.responses_request import ResponseRequest
from shikisha.server.wire.schemas import check_schemas, check_sizes
from shikisha.task import Task

router = APIRouter(prefix="/v1/responses", tags=["responses"])
Asker = Annotated[Principal, Depends(asker(Scope.RUN))]
Seer = Annotated[Principal, Depends(seer)]
Named = Annotated[str, Path(min_length=1, max_length=256)]
_GIVEN: dict[int | str, dict[str, object]] = {200: {"model": ResponseObject, "content": {"text/event-stream": SSE}}}


@router.post(
    "",
    summary="Create a response",
    openapi_extra=documented(ResponseRequest),
    responses={**refusals(402, 404, 409, 502, 504), **_GIVEN},
)
async def create(request: Request, by: Asker) -> Response:
    """Have a conversation's next answer made by the pool, under a conductor."""
    house: House = request.app.state.house
    raw = await read(request, lambda raw: check_sizes(raw, Api.RESPONSES))
    asked = fit(raw, ResponseRequest)
    made = await _Asking(house, by, asked, narrowing(request.headers), key_of(request.headers)).begun()
    headers = of_begun(made.run)
    if asked.stream:
        told = until(door(request, asker(Scope.RUN), made.refused), made.stream())
        return sse.stream(told, headers, made.gone, grace(house))
    if asked.background:
        return _given(await made.now(), headers)
    return await unless_left(request, made.answer(), made.gone)


@router.get("/{response_id}", summary="Look a response up", responses={**refusals(404), **_GIVEN})
async def look(
    request: Request,
    response_id: Named,
    by: Seer,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=-1)] = None,
) -> Response:
    """Return a response as it stands, or its stream, from the event after `starting_after` on."""
    house: House = request.app.state.house
    found = await find(house, by, response_id)
    if starting_after is not None and not stream:
        raise Problem(400, "starting_after: only with stream=true", "invalid_value", param="starting_after")
    headers = of_begun(found.served.run)
    if stream:
        made = responding(house, found, -1 if starting_after is None else starting_after)
        told = until(door(request, seer, made.refused), listened(request, by, made.stream()))
        return sse.stream(told, headers, grace=grace(house))
    return _given(await responding(house, found).now(), headers)


@router.delete("/{response_id}", summary="Delete a response", responses=refusals(404))
async def forget(request: Request, response_id: Named, by: Asker) -> Deleted:
    """Make a run's responses absent; a run that goes on is cancelled. The journal keeps it, for audit."""
    house: House = request.app.state.house
    found = await find(house, by, response_id)
    await delete(house, found)
    return Deleted(id=response_id)


@router.post(
    "/{response_id}/cancel",
    summary="Cancel a background response",
    responses={**refusals(404, 409), 200: {"model": ResponseObject}},
)
async def cancel(request: Request, response_id: Named, by: Asker) -> Response:
    """Stop a response that was ordered in the background; one that is over stays as it is."""
    house: House = request.app.state.house
    found = await find(house, by, response_id)
    if not found.served.detached:
        said = f"response {response_id} was not ordered in the background: it ends when its client leaves"
        raise Problem(409, said, "not_in_background")
    await house.cancel(found.served.run)
    return _given(await responding(house, found).now(), of_begun(found.served.run))


@router.get("/{response_id}/input_items", summary="List a response's input", responses=refusals(404))
async def inputs(
    request: Request,
    response_id: Named,
    by: Seer,
    after: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Sorting = Sorting.DESC,
) -> InputItems:
    """Return the items that a response was made from, a page at a time."""
    return page(await find(request.app.state.house, by, response_id), after, limit, order)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A request that has been read: who asks what, of which house, within which limits, under which key of theirs."""

    house: House
    by: Principal
    asked: ResponseRequest
    narrow: Narrowing
    key: str | None

    async def begun(self) -> Responding:
        """Begin a run, or go on with the one that waits for what the request brings."""
        if self.asked.background and self.asked.store is False:
            raise Problem(
                400, "store: a background response is fetched later, so it is stored", "invalid_value", param="store"
            )
        back = await resumed(self.house, self.by, self.asked, self.narrow)
        return await self._ordered() if back is None else await self._resumed(back)

    async def _ordered(self) -> Responding:
        house, order = self.house, await self._order()
        found = await begun(house, order)
        live = house.live(found.run) if found.fresh else None
        if live is None:
            return responding(house, await self._found(found.run, 0))
        served = new_row(found.run, order, live.events[0].at)
        kept = Kept.model_validate_json(order.wire)
        made = responding(house, at_leg(served, kept, tuple(live.events), 0))  # at once: what is said now is heard
        made.own = True
        return made

    async def _order(self) -> Order:
        house, asked = self.house, self.asked
        kept = keeps(asked, self.by, self.narrow)
        named = {"user": asked.user, "safety_identifier": asked.safety_identifier}
        metadata = {name: value for name, value in named.items() if value is not None} | dict(asked.metadata or {})
        wish = Wish(
            house.catalogue.find(asked.model, self.by).name,
            await self._task(),
            Api.RESPONSES,
            self.narrow,
            kept.dumped(),
            bool(asked.background),
            self.key,
            metadata,
        )
        return house.ordering.order(wish, self.by)

    async def _task(self) -> Task:
        """Return the task, after the conversation that it goes on with, whose labels it bears."""
        task = await self._after(self.asked.previous_response_id)
        await check_schemas(task, Api.RESPONSES)
        return task

    async def _after(self, name: str | None) -> Task:
        if name is None:
            return task_of(self.asked)
        found = await find(self.house, self.by, name, "previous_response_id")
        if not found.last:
            said = f"previous_response_id: {name} was gone on with already"
            raise Problem(409, said, "response_continued", param="previous_response_id")
        if course_of(found).standing is None:
            said = f"previous_response_id: {name} is still in progress"
            raise Problem(409, said, "response_in_progress", param="previous_response_id")
        before = history_of(found.run, instructed=bool(found.kept.request.instructions))
        return replace(task_of(self.asked, before), labels=tuple(sorted(found.labels)))

    async def _resumed(self, back: Resumed) -> Responding:
        await hand_in(self.house, back)
        made = responding(self.house, await self._found(back.served.run, back.leg))
        made.own = bool(back.answers)
        return made

    async def _found(self, run: str, leg: int) -> Found:
        """Return the response of a run that is ours, whether or not it is to be found later."""
        served = await self.house.served(run)
        kept = kept_of(served)
        if kept is None:
            raise Problem(404, f"there is no response of run {run}", "response_not_found")
        return at_leg(served, kept, await self.house.journal.read(run), leg)


def _given(response: ResponseObject, headers: dict[str, str]) -> JSONResponse:
    return JSONResponse(response.model_dump(mode="json", by_alias=True), headers=headers)
