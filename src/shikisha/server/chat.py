"""`/v1/chat/completions`: a request, checked whole, becomes a run, or goes on with the one that waits for its tools.

Invariant: a client is told no before anything is begun, reserved or charged. Deliberately absent: what is honoured
(`wire.chat`), who may do what (`ordering`), and how the answer is written (`completing`).
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from shikisha.conductor import Conductor
from shikisha.events import Event
from shikisha.pool import Pool
from shikisha.run import Run
from shikisha.server import sse
from shikisha.server.audible import conclusive, hears_all
from shikisha.server.awaiting import unless_left
from shikisha.server.completing import Completing
from shikisha.server.doors import asker
from shikisha.server.headers import of_begun
from shikisha.server.house import House
from shikisha.server.idempotency import begun, key_of
from shikisha.server.narrowing import Narrowing, narrowing
from shikisha.server.ordering import Wish
from shikisha.server.orders import Api
from shikisha.server.principal import Principal, Scope
from shikisha.server.refusals import SSE, refusals
from shikisha.server.streaming import Head
from shikisha.server.telling import Teller, Terms
from shikisha.server.toolcalls import Resumption, resumption
from shikisha.server.usage import bill
from shikisha.server.wire.asking import task_of
from shikisha.server.wire.chat import ChatRequest, check_honoured
from shikisha.server.wire.reading import documented, fit, read
from shikisha.server.wire.schemas import check_schemas, check_sizes

_ask = asker(Scope.RUN)
Asker = Annotated[Principal, Depends(_ask)]


class _Straight(APIRoute):
    """A route whose endpoint takes the request and who asks, documented as others are: what FastAPI does at each
    request to find that out costs as much as the door itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """Return what answers a request."""
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            given: Response = await endpoint(request, await _ask(request))
            return given

        return answer


router = APIRouter(tags=["chat"], route_class=_Straight)
_GRACE = 0.9  # of the seconds that runs get to end when the server is stopped
_GIVEN: dict[int | str, dict[str, object]] = {
    200: {
        "description": "A chat completion, or with stream its chunks",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["id", "choices", "model", "usage"]}},
            "text/event-stream": SSE,
        },
    }
}


@router.post(
    "/v1/chat/completions",
    summary="Create a chat completion",
    responses={**refusals(402, 404, 409, 502, 504), **_GIVEN},
    openapi_extra=documented(ChatRequest),
)
async def chat(request: Request, by: Asker) -> Response:
    """Have a conversation's next answer made by the pool, under a conductor."""
    house: House = request.app.state.house
    raw = await read(request, lambda raw: check_sizes(raw, Api.CHAT))
    check_honoured(raw)
    asked = fit(raw, ChatRequest)
    completing = await _Asking(house, by, asked, narrowing(request.headers), key_of(request.headers)).begun()
    if asked.stream:
        grace = _GRACE * house.settings.drain
        return sse.stream(completing.chunks(), of_begun(completing.run), completing.gone, grace)
    return await unless_left(request, completing.whole(), completing.gone)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A request that has been read: who asks what, of which house, within which limits."""

    house: House
    by: Principal
    asked: ChatRequest
    narrow: Narrowing
    idempotency: str | None

    async def begun(self) -> Completing:
        """Begin a run, or go on with the one that waits for what the request brings."""
        house, task = self.house, task_of(self.asked)
        await check_schemas(task, Api.CHAT)
        model = house.catalogue.find(self.asked.model, self.by)
        back = await resumption(house, self.by, task.exchanges, model.name, self.narrow)
        if back is not None:
            return await self._resumed(back)
        wish = Wish(
            model.name, task, Api.CHAT, self.narrow, idempotency=self.idempotency, metadata=_metadata(self.asked)
        )
        order = house.ordering.order(wish, self.by)
        made = await begun(house, order)
        live = house.live(made.run)
        events = live.events if live is not None else await house.journal.read(made.run)
        completing = self._completing(events, order.model, house.cast(order.conductor, order.pool), -1)
        completing.theirs = made.fresh
        return completing

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
