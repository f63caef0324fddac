"""`/v1/chat/completions`: a request, checked whole, becomes a run, or goes on with the one that waits for its tools.

Invariant: a client is told no before anything is begun, reserved or charged. Deliberately absent: what is honoured
(`wire.chat`), who may do what (`ordering`), and how the answer is written (`completing`).
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from shikisha.events import OnFail
from shikisha.pool import Pool
from shikisha.run import Run
from shikisha.server import sse
from shikisha.server.completing import Completing
from shikisha.server.doors import asker
from shikisha.server.headers import of_begun
from shikisha.server.house import House
from shikisha.server.narrowing import Narrowing, narrowing
from shikisha.server.ordering import Wish
from shikisha.server.orders import Api
from shikisha.server.principal import Principal, Scope
from shikisha.server.streaming import Head
from shikisha.server.telling import Teller, Terms
from shikisha.server.toolcalls import Resumption, resumption
from shikisha.server.usage import bill
from shikisha.server.wire.asking import task_of
from shikisha.server.wire.chat import ChatRequest, check_honoured
from shikisha.server.wire.reading import documented, fit, read
from shikisha.task import Task

router = APIRouter(tags=["chat"])
Asker = Annotated[Principal, Depends(asker(Scope.RUN))]


@router.post("/v1/chat/completions", summary="Create a chat completion", openapi_extra=documented(ChatRequest))
async def chat(request: Request, by: Asker) -> Response:
    """Have a conversation's next answer made by the pool, under a conductor."""
    house: House = request.app.state.house
    raw = await read(request)
    check_honoured(raw)
    asked = fit(raw, ChatRequest)
    completing = await _begin(house, by, asked, narrowing(request.headers))
    if asked.stream:
        return sse.stream(completing.chunks(), of_begun(completing.run), completing.gone)
    return await _awaited(request, completing)


async def _begin(house: House, by: Principal, asked: ChatRequest, narrow: Narrowing) -> Completing:
    task, model = task_of(asked), house.catalogue.find(asked.model, by)
    back = await resumption(house, by, task.exchanges, model.name)
    if back is not None:
        return await _resumed(house, asked, narrow, back)
    order = house.ordering.order(Wish(model.name, task, Api.CHAT, narrow, metadata=_metadata(asked)), by)
    live = await house.begin(order)
    pool, _ = house.cast(order.conductor, order.pool)
    terms = _terms(asked, task, pool, order.caps.rounds)
    return _completing(house, live.run, asked, narrow, (Teller(terms), pool, order.model, live.events[0].at))


async def _resumed(house: House, asked: ChatRequest, narrow: Narrowing, back: Resumption) -> Completing:
    """Hand the results in, and attend the run from there on."""
    if back.answer is not None:
        await house.answer(back.answer)
    served = back.served
    events = await house.journal.read(served.run)
    past = Run.fold(events[: back.after + 1])
    pool, _ = house.cast(served.conductor, past.started.pool)
    terms = _terms(asked, past.task, pool, past.started.caps.rounds)
    made = _completing(
        house, served.run, asked, narrow, (Teller(terms, back.after), pool, served.model, past.started.at)
    )
    family = (await house.family(served.run)).values() if made.nested else ()
    made.before = bill(past, family)
    return made


def _completing(
    house: House, run: str, asked: ChatRequest, narrow: Narrowing, made: tuple[Teller, Pool, str, float]
) -> Completing:
    teller, pool, model, at = made
    nested = any(card.kind == "conductor" for card in pool.cards)
    usage = bool(asked.stream_options and asked.stream_options.include_usage)
    return Completing(house, Head(run, model, int(at)), teller, narrow, nested, usage)


def _terms(asked: ChatRequest, task: Task, pool: Pool, rounds: int) -> Terms:
    """Return when the last step may be heard live: never for a whole answer, nor where something looks at it first."""
    live = bool(asked.stream) and task.answer_schema is None
    return Terms(rounds, lambda worker: _conclusive(pool, worker), live)


def _conclusive(pool: Pool, worker: str) -> bool:
    return all(handoff.on_fail is OnFail.PASS for handoff in pool.named(worker).handoffs)


def _metadata(asked: ChatRequest) -> dict[str, str]:
    """Return what is kept with the run and found again."""
    named = {"user": asked.user, "safety_identifier": asked.safety_identifier}
    return {name: value for name, value in named.items() if value is not None} | dict(asked.metadata or {})


async def _awaited(request: Request, completing: Completing) -> Response:
    """Return the whole answer; a client that leaves meanwhile has its run cancelled."""
    making = asyncio.ensure_future(completing.whole())
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({making, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            await completing.gone()
        return await making
    finally:
        leaving.cancel()
        making.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
