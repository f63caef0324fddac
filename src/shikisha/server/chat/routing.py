"""`POST /v1/route`: a task in, and out who would perform it, with which prompt, seeing what, at which price, and why.

For workflows that call a model themselves (n8n, Zapier) and want the decision only. Invariant: no worker is called for
the task; what the conductor asks a model while it plans is reserved against the key's budget and reported.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from shikisha.core.budget import Amount, Price, upper_bound
from shikisha.core.call import Card
from shikisha.core.errors import PlanError
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.plan import Plan
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.server.chat.conversation import task_from_chat
from shikisha.server.chat.embeddings import endpoint_model
from shikisha.server.chat.schema import ChatInputMessage, ChatRequest
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import (
    RequestModel,
    ignored_header,
    read_json,
    read_request_options,
    request_body_doc,
    validate_known,
)
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun
from shikisha.server.lifecycle.service import RunService

router = APIRouter(tags=["chat"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]


class RouteRequest(RequestModel):
    """The body of `POST /v1/route`: a prompt, or the messages of a chat."""

    model: Annotated[str, Field(min_length=1, max_length=200)] = "shikisha"
    prompt: Annotated[str, Field(min_length=1)] | None = None
    context: str = ""
    messages: Annotated[list[ChatInputMessage], Field(min_length=1, max_length=4096)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None


class RoutePrice(BaseModel):
    """Dollars per million tokens and per call, and the most that this call can cost; null: nobody can say."""

    input: float | None
    output: float | None
    call: float | None
    most: float | None


class RoutedStep(BaseModel):
    """A step of the plan. `access` holds the indices of the earlier steps that the worker would see."""

    worker: str
    description: str
    endpoint_model: str | None
    prompt: str
    access: list[int]
    price: RoutePrice


class PlanningCost(BaseModel):
    """What the conductor used to decide."""

    tokens: int
    cost: float | None


class RouteDecision(BaseModel):
    """Who would give the answer, and all steps of the plan; nothing of it was performed."""

    model: str
    conductor: str
    worker: str
    endpoint_model: str | None
    prompt: str
    access: list[int]
    price: RoutePrice
    why: str
    substituted: str | None
    steps: list[RoutedStep]
    planning: PlanningCost


@dataclass(slots=True)
class _FirstProposalConductor:
    """Asks a conductor, keeps what it proposes first, and has nothing performed."""

    conductor: Conductor
    proposal: Proposal | None = None

    @property
    def name(self) -> str:
        return self.conductor.name

    async def propose(self, situation: Situation) -> Proposal:
        proposal = await self.conductor.propose(situation)
        proposal.plan.check_pool(len(situation.cards))
        self.proposal = proposal
        return Proposal(Plan(), final=True)


async def propose_first(service: RunService, order: AuthorizedRun) -> tuple[Proposal, Amount]:
    """Return the plan that would be performed for this order, and what planning used; PlanError when there is none."""
    pool, conductor = service.cast(order.conductor, order.pool)
    first = _FirstProposalConductor(conductor)
    budget = await service.key_budgets.admit(order.by)
    try:
        budget.count_request()
        engine = service.engine.with_observers(shared_budget=budget).with_recorder(MemoryRecorder())
        run = await engine.run(order.task, pool, first, order.caps)
    finally:
        budget.release()
    if first.proposal is None:
        why = run.finished.why if run.finished else "it waits for a person, and planning ahead cannot wait"
        raise PlanError(why, conductor.name)
    return first.proposal, run.charged


@router.post(
    "/v1/route",
    summary="Decide who performs a task",
    responses=error_responses(402, 404, 502),
    openapi_extra=request_body_doc(RouteRequest),
)
async def route_task(request: Request, by: RunPrincipal, response: Response) -> RouteDecision:
    """Return who would perform a task, and perform nothing."""
    service: RunService = request.app.state.service
    raw = await read_json(request)
    asked, unknown = validate_known(raw, RouteRequest, refuse=service.settings.unknown == "refuse")
    options = read_request_options(request.headers)
    requested = RequestedRun(asked.model, _route_task(asked), Api.CHAT, options)
    order = service.authorizer.authorize(requested, by).scrubbed(service.container.secret_store.scrub)
    proposal, used = await propose_first(service, order)
    if not len(proposal.plan):
        raise ApiError(502, f"{order.conductor} plans no step for this task: {proposal.note}", "no_plan")
    cards = {card.name: card for card in service.container.cards(order.pool)}
    steps = [_routed_step(service, order, proposal.plan, index, cards) for index in range(len(proposal.plan))]
    response.headers.update(ignored_header(unknown, service.container.secret_store.scrub))
    last = steps[-1]
    return RouteDecision(
        model=order.model,
        conductor=order.conductor,
        worker=last.worker,
        endpoint_model=last.endpoint_model,
        prompt=last.prompt,
        access=last.access,
        price=last.price,
        why=proposal.note or f"{order.conductor} plans it so",
        substituted=proposal.substituted,
        steps=steps,
        planning=PlanningCost(tokens=used.tokens, cost=used.dollars),
    )


def _route_task(asked: RouteRequest) -> Task:
    if (asked.prompt is None) == (asked.messages is None):
        raise ApiError(400, "prompt: expected either a prompt or messages", "invalid_value", param="prompt")
    options = {} if asked.max_completion_tokens is None else {"max_completion_tokens": asked.max_completion_tokens}
    if asked.messages is None:
        return Task(asked.prompt or "", asked.context, options=options)
    return task_from_chat(
        ChatRequest(model=asked.model, messages=asked.messages, max_completion_tokens=asked.max_completion_tokens)
    )


def _routed_step(
    service: RunService, order: AuthorizedRun, plan: Plan, index: int, cards: dict[str, Card]
) -> RoutedStep:
    step = plan.steps[index]
    card = cards[order.pool[step.worker]]
    return RoutedStep(
        worker=card.name,
        description=card.description,
        endpoint_model=endpoint_model(service, card.name),
        prompt=step.subtask,
        access=list(step.access),
        price=_route_price(card, order.task, step.subtask, len(step.access)),
    )


def _route_price(card: Card, task: Task, prompt: str, granted: int) -> RoutePrice:
    """Return a worker's price, and the most that this call can cost; earlier answers that it sees are not known yet."""
    price: Price | None = card.price
    texts = [task.prompt, task.context, prompt, *(turn.text for turn in task.history)]
    wished = task.options.get("max_completion_tokens")
    output = min(wished, card.max_output_tokens) if isinstance(wished, int) else card.max_output_tokens
    most = None if granted else upper_bound(texts, output, price, card.context_tokens).dollars
    if price is None:
        return RoutePrice(input=None, output=None, call=None, most=None)
    return RoutePrice(input=price.input, output=price.output, call=price.call, most=most)
