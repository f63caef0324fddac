"""`/ui/try`: a chat of several turns. A turn is performed at once, or its plan is shown with its price first.

Invariants: showing a plan performs nothing, and what is confirmed then is performed exactly; its cost is reserved in
the key's budget before each call. The plan goes to the browser and back word for word, and is parsed as strictly as any
other. Earlier turns are read from the journal, from the sessions of the login's own tenant, never from the form; their
data labels go on with them. What a turn may cost at most is said only where it is known before the turn is performed.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from time import time
from urllib.parse import urlencode
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from shikisha.config.conductor_settings import LmTable
from shikisha.core.budget import upper_bound
from shikisha.core.call import Card
from shikisha.core.errors import PlanError, TaskError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.messages import ChatMessage, Speaker
from shikisha.core.plan import Step
from shikisha.core.plan_parser import parse_plan
from shikisha.core.run import Run
from shikisha.core.task import Task, storage_problem
from shikisha.core.text import one_line
from shikisha.plots import run_charts
from shikisha.server.chat.routing import propose_first
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import RequestOptions
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun, confirmed_plan_request
from shikisha.server.lifecycle.service import RunService, start_once
from shikisha.server.pages.login import (
    CheckedForm,
    PageRoute,
    PageSession,
    RunnerLogin,
    Service,
    form_text,
    form_texts,
    redirect,
)
from shikisha.server.pages.run_page import StepPhase
from shikisha.server.pages.sessions_page import TurnView, session_turns
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.store import ServedState
from shikisha.server.store.run_figures import mean_call_dollars

_FORM_FIELDS = ("model", "prompt", "context", "domain", "labels", "dollars", "session")
_MAX_TURNS = 20  # earlier turns that a conductor and workers are shown
_MAX_HISTORY = 60_000  # characters of them
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class StepPrice:
    """What a step will cost: `about` is the mean of its worker's calls (None: none are known), `most` a bound.

    `most` None: nobody can say before the results that it sees are known.
    """

    about: float | None = None
    most: float | None = None


def _sum_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def form_fields(form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form, all of them, as texts."""
    return {name: form.get(name, "").replace("\r\n", "\n") for name in _FORM_FIELDS}


def read_task_form(told: Mapping[str, str], turns: Sequence[TurnView] = ()) -> RequestedRun:
    """Read the form; ApiError or TaskError for what cannot be asked for. `turns` are the session's earlier ones."""
    caps: dict[str, float] = {}
    if text := told["dollars"].strip():
        caps["dollars"] = read_dollars(text)
    shown = shown_turns(turns)
    labels = [part for label in told["labels"].split(",") if (part := label.strip())]
    labels += [label for turn in shown for label in (*turn.served.labels, *turn.labels)]
    pairs = [
        (ChatMessage(Speaker.USER, turn.prompt), ChatMessage(Speaker.ASSISTANT, turn.answer or "")) for turn in shown
    ]
    task = Task(told["prompt"], told["context"], history=tuple(message for pair in pairs for message in pair))
    options = RequestOptions(caps, labels=tuple(dict.fromkeys(labels)), domain=told["domain"].strip())
    metadata = {"session_id": told["session"]} if told["session"] else {}
    return RequestedRun(told["model"], task, Api.PAGE, options, detached=True, metadata=metadata)


def shown_turns(turns: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """Return the newest turns that have an answer, as many as may be shown, oldest first."""
    kept: list[TurnView] = []
    room = _MAX_HISTORY
    for turn in reversed([turn for turn in turns if turn.answer is not None][-_MAX_TURNS:]):
        room -= len(turn.prompt) + len(turn.answer or "")
        if room < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))


def read_dollars(text: str) -> float:
    """Return the number in a field; ApiError (400) for what is none."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ApiError(400, f"dollars: expected a number from 0, not {one_line(text, 40)!r}", "invalid_request")
    return found


async def propose_plan(service: RunService, order: AuthorizedRun) -> dict[str, object]:
    """Return the plan that would be performed for this order as it is shown, with its price; PlanError for none."""
    proposal, used = await propose_first(service, order)
    plan = proposal.plan
    by_name = {card.name: card for card in service.container.cards(order.pool)}
    cards = [by_name[order.pool[step.worker]] for step in plan.steps]
    names = sorted({card.name for card in cards})
    means = await service.journal.query(partial(mean_call_dollars, workers=names, tenant=order.by.tenant))
    steps, prices = list[dict[str, object]](), list[StepPrice]()
    for index, (card, step) in enumerate(zip(cards, plan.steps, strict=True)):
        free = card.price is not None and not any((card.price.input, card.price.output, card.price.call))
        about = means.get(card.name, 0.0 if free else None)
        prices.append(price := StepPrice(about, _most_dollars(card, order.task, step)))
        withheld = [earlier for earlier in range(index) if earlier not in step.access]
        shown = {"index": index, "worker": card.name, "subtask": step.subtask, "sees": step.access, "price": price}
        steps.append({**shown, "withheld": withheld, "state": StepPhase.PLANNED})
    access = [step.access for step in plan.steps]
    return {
        "round": 0,
        "steps": steps,
        "proposal": proposal,
        "plan": plan.dumps(),
        "shape": plan.topology(),
        "conductor": service.cast(order.conductor, order.pool)[1].name,
        "used": used,
        "price": StepPrice(_sum_known([each.about for each in prices]), _sum_known([each.most for each in prices])),
        "cap": order.caps.dollars,
        "wide": run_charts.wide_plan_graph(access),
        "narrow": run_charts.narrow_plan_graph(access),
    }


def _most_dollars(card: Card, task: Task, step: Step) -> float | None:
    """Return the most that a step's first call can cost; None where that hangs on results that it will see."""
    if card.price is None:
        return None
    texts = [task.prompt, task.context, step.subtask, *(turn.text for turn in task.history)]
    if step.access and card.context_tokens is None and (card.price.input or card.price.cached):
        return None
    unseen = card.context_tokens or 0 if step.access else 0
    return upper_bound(texts, card.max_output_tokens, card.price, card.context_tokens, unseen).dollars


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/try")
async def show_task_form(request: Request, session: RunnerLogin, service: Service) -> Response:
    """Show a chat's turns and the box for the next; a model, a task or a session may stand in the address."""
    query = {name: value[:10_000] for name, value in request.query_params.items()}
    told = form_fields(query)
    return _try_page(request, session, service, told, turns=await _earlier_turns(service, session, told))


@router.post(f"{UI_ROOT}/try")
async def show_plan(request: Request, session: RunnerLogin, service: Service, sent: CheckedForm) -> Response:
    """Show the plan of a turn, and perform nothing."""
    told = form_fields(form_texts(sent))
    turns = await _earlier_turns(service, session, told)
    page = partial(_try_page, request, session, service, told, turns=turns)
    try:
        order = service.authorizer.authorize(read_task_form(told, turns), session.by)
        found = await propose_plan(service, order)
    except (PlanError, TaskError, ApiError) as error:
        return page(wrong=str(error), status=getattr(error, "status", 400))
    return page(found=found)


@router.post(f"{UI_ROOT}/try/perform")
async def perform_plan(request: Request, session: RunnerLogin, service: Service, sent: CheckedForm) -> Response:
    """Perform a turn of a session (a new one for the first), and lead back to it: by the plan that was shown, or by
    one that the conductor makes now where none was asked for. What is refused stays in the box.
    """
    told = form_fields(form_texts(sent))
    turns = await _earlier_turns(service, session, told)
    asked = {**told, "session": told["session"] or f"chat-{(form_key(sent) or uuid4().hex)[:12]}"}
    try:
        order = service.authorizer.authorize(read_task_form(asked, turns), session.by)
        if "plan" in sent:
            shown = parse_plan(form_text(sent, "plan"), len(order.pool))
            if shown.ships:
                raise ApiError(400, "the plan is empty: there is nothing to perform", "empty_plan")
            order = replace(order, wire=confirmed_plan_request(shown))
        run = await begin_once(service, order, sent)
    except (PlanError, TaskError, ApiError) as error:
        page = partial(_try_page, request, session, service, told, turns=turns)
        return page(wrong=str(error), status=getattr(error, "status", 400))
    kept = {name: asked[name] for name in ("session", "model", "dollars", "domain") if asked[name]}
    return redirect(f"{UI_ROOT}/try?{urlencode({**kept, 'run': run})}#last")


def form_key(sent: FormData) -> str | None:
    """Return the idempotency key of a form as it was filled in; None where the form has no number of its own."""
    return sha256(repr(sent.multi_items()).encode()).hexdigest() if form_text(sent, "once") else None


async def begin_once(service: RunService, order: AuthorizedRun, sent: FormData) -> str:
    """Begin the run of a form, and return its id; a form that is sent twice begins one run."""
    key = form_key(sent)
    return (await start_once(service, replace(order, idempotency=key, request_hash=key or ""))).run


async def _earlier_turns(service: RunService, session: PageSession, told: Mapping[str, str]) -> tuple[TurnView, ...]:
    """Return the turns of the session that is named, of the login's own tenant."""
    name = told["session"]
    if not name:
        return ()
    if len(name) > _MAX_NAME or not name.isprintable() or storage_problem(name):
        raise ApiError(400, f"session: expected a name of at most {_MAX_NAME} printable characters", "invalid_request")
    turns = await session_turns(service, name, session.by.tenant)
    repeated = {turn.served.run for turn in shown_turns(turns)}
    return tuple([await _with_labels(service, turn) if turn.served.run in repeated else turn for turn in turns])


async def _with_labels(service: RunService, turn: TurnView) -> TurnView:
    """Return a turn that the next one repeats with the labels that its workers added."""
    if turn.served.erased is not None:
        return turn
    return replace(turn, labels=Run.fold(await service.journal.read(turn.served.run)).scope.labels)


def _try_page(
    request: Request,
    session: PageSession,
    service: RunService,
    told: dict[str, str],
    found: Mapping[str, object] | None = None,
    *,
    turns: Sequence[TurnView] = (),
    wrong: str = "",
    status: int = 200,
) -> Response:
    models = [
        (model.name, _plans_cost_money(service, model.conductor)) for model in service.catalogue.listed(session.by)
    ]
    shown = {
        "models": models,
        "told": told,
        "view": found,
        "turns": turns,
        "going": any(turn.served.state in (ServedState.OPEN, ServedState.WAITING) for turn in turns[-1:]),
        "shown_at": time(),
        "wrong": wrong,
        "caps": service.container.caps,
        "again": urlencode({name: value for name, value in told.items() if value and name != "prompt"}),
    }
    return render_page(request, "try.html.jinja", shown, status)


def _plans_cost_money(service: RunService, conductor: str) -> bool:
    """Whether this conductor asks a paid model for its plans."""
    table = service.container.settings.conductors.get(conductor)
    return conductor.startswith("lm:") or isinstance(table, LmTable)
