"""`/v1/chat/completions`: a request, checked whole, becomes a run, or goes on with the one that waits for its tools.

Invariant: a client is told no before anything is begun, reserved or charged. Deliberately absent: what is honoured
(`wire.chat`), who may do what (`ordering`), and how the answer is written (`completing`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from shikisha.conductor import Conductor
from shikisha.events import Event
from shikisha.pool import Pool
from shikisha.run import Run
from shikisha.server import sse
from shikisha.server.audible import conclusive, hears_all
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

router = APIRouter(tags=["chat"])
Asker = Annotated[Principal, Depends(asker(Scope.RUN))]


@router.post("/v1/chat/completions", summary="Create a chat completion", openapi_extra=documented(ChatRequest))
async def chat(request: Request, by: Asker) -> Response:
    """Have a conversation's next answer made by the pool, under a conductor."""
    house: House = request.app.state.house
    raw = await read(request)
    check_honoured(raw)
    asked = fit(raw, ChatRequest)
    completing = await _Asking(house, by, asked, narrowing(request.headers)).begun()
    if asked.stream:
        return sse.stream(completing.chunks(), of_begun(completing.run), completing.gone)
    return await _awaited(request, completing)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A request that has been read: who asks what, of which house, within which limits."""

    house: House
    by: Principal
    asked: ChatRequest
    narrow: Narrowing

    async def begun(self) -> Completing:
        """Begin a run, or go on with the one that waits for what the request brings."""
        house, task = self.house, task_of(self.asked)
        model = house.catalogue.find(self.asked.model, self.by)
        back = await resumption(house, self.by, task.exchanges, model.name)
        if back is not None:
            return await self._resumed(back)
        wish = Wish(model.name, task, Api.CHAT, self.narrow, metadata=_metadata(self.asked))
        order = house.ordering.order(wish, self.by)
        live = await house.begin(order)
        cast = house.cast(order.conductor, order.pool)
        return self._completing(live.events, order.model, cast, -1)

    async def _resumed(self, back: Resumption) -> Completing:
        """Hand the results in, and attend the run from there on."""
        house, served = self.house, back.served
        events = await house.journal.read(served.run)
        past = Run.fold(events[: back.after + 1])
        cast = house.cast(served.conductor, past.started.pool)
        made = self._completing(events, served.model, cast, back.after)
        made.before = bill(past, (await house.family(served.run)).values() if made.nested else ())
        if back.answer is not None:
            await house.answer(back.answer)
        return made

    def _completing(self, events: Sequence[Event], model: str, cast: tuple[Pool, Conductor], after: int) -> Completing:
        (pool, conductor), asked = cast, self.asked
        run = Run.fold(events[:1])
        heard = bool(asked.stream) and hears_all(run.task, conductor, self.house.composition.oversight())
        terms = Terms(run.started.caps.rounds, conclusive(pool), heard)
        head = Head(run.id, model, int(run.started.at))
        made = Completing(self.house, head, Teller(terms, after), self.narrow)
        made.nested = any(card.kind == "conductor" for card in pool.cards)
        made.usage_wanted = bool(asked.stream_options and asked.stream_options.include_usage)
        return made


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
