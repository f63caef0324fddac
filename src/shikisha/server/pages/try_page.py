"""`/ui/try`: enter a task, see its plan, then perform exactly that plan.

Invariants: showing a plan performs nothing, and its cost is reserved in the key's budget before each call. The plan
goes to the browser and back word for word, and is parsed as strictly as any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from shikisha.config.settings import LmTable
from shikisha.core.errors import PlanError, TaskError
from shikisha.core.plan import Plan
from shikisha.core.plan_parser import parse_plan
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.engine.conductor import Proposal
from shikisha.plots import run_charts
from shikisha.server.chat.routing import propose_first
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import RequestOptions
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun, confirmed_plan_request
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.login import CheckedForm, PageRoute, PageSession, RunnerLogin, Service, form_text, redirect
from shikisha.server.pages.run_page import StepPhase
from shikisha.server.pages.templates import UI_ROOT, render_page

_FORM_FIELDS = ("model", "prompt", "context", "domain", "labels", "dollars")


@dataclass(frozen=True, slots=True)
class PlannedStepView:
    """A step to be performed."""

    index: int
    worker: str
    subtask: str
    sees: tuple[int, ...]
    withheld: tuple[int, ...]
    state: StepPhase = StepPhase.PLANNED


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as it is shown. `dollars` is what planning cost; None: it is unknown."""

    steps: tuple[PlannedStepView, ...]
    shape: str
    conductor: str
    note: str
    substituted: str | None
    rejected: tuple[str, ...]
    plan: str
    tokens: int
    dollars: float | None
    wide: run_charts.PlanGraph
    narrow: run_charts.PlanGraph
    round: int = 0


@dataclass(frozen=True, slots=True)
class PlanningUsage:
    """Who planned, and what planning used."""

    conductor: str
    tokens: int
    dollars: float | None


def plan_view(proposal: Proposal, pool: Sequence[str], used: PlanningUsage) -> PlanView:
    """Return a proposal as it is shown."""
    plan = proposal.plan
    access = [step.access for step in plan.steps]
    return PlanView(
        steps=tuple(_planned_step(plan, index, pool) for index in range(len(plan))),
        shape=plan.topology(),
        conductor=used.conductor,
        note=proposal.note,
        substituted=proposal.substituted,
        rejected=tuple(f"{each.where}: {each.what}" for each in proposal.rejected),
        plan=plan.dumps(),
        tokens=used.tokens,
        dollars=used.dollars,
        wide=run_charts.wide_plan_graph(access),
        narrow=run_charts.narrow_plan_graph(access),
    )


def _planned_step(plan: Plan, index: int, pool: Sequence[str]) -> PlannedStepView:
    step = plan.steps[index]
    withheld = tuple(earlier for earlier in range(index) if earlier not in step.access)
    return PlannedStepView(index, pool[step.worker], step.subtask, step.access, withheld)


def form_fields(form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form, all of them, as texts."""
    return {name: form.get(name, "").replace("\r\n", "\n") for name in _FORM_FIELDS}


def read_task_form(told: Mapping[str, str], wire: str = "{}") -> RequestedRun:
    """Read the form; ApiError or TaskError for what cannot be asked for."""
    caps: dict[str, float] = {}
    if text := told["dollars"].strip():
        caps["dollars"] = _read_dollars(text)
    labels = tuple(dict.fromkeys(part for label in told["labels"].split(",") if (part := label.strip())))
    task = Task(told["prompt"], told["context"])
    options = RequestOptions(caps, labels=labels, domain=told["domain"].strip())
    return RequestedRun(told["model"], task, Api.PAGE, options, wire, detached=True)


def _read_dollars(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ApiError(400, f"dollars: expected a number from 0, not {one_line(text, 40)!r}", "invalid_request")
    return found


async def propose_plan(service: RunService, order: AuthorizedRun) -> PlanView:
    """Return the plan that would be performed for this order; PlanError when there is none."""
    proposal, used = await propose_first(service, order)
    names, conductor = order.pool, service.cast(order.conductor, order.pool)[1]
    return plan_view(proposal, names, PlanningUsage(conductor.name, used.tokens, used.dollars))


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/try")
async def show_task_form(request: Request, session: RunnerLogin, service: Service) -> Response:
    """Show the box; a model or a task may stand in the address."""
    query = {name: value[:10_000] for name, value in request.query_params.items()}
    return _try_page(request, session, service, form_fields(query))


@router.post(f"{UI_ROOT}/try")
async def show_plan(request: Request, session: RunnerLogin, service: Service, sent: CheckedForm) -> Response:
    """Show the plan of a task, and perform nothing."""
    told = form_fields(_form_texts(sent))
    try:
        order = service.authorizer.authorize(read_task_form(told), session.by)
        found = await propose_plan(service, order)
    except (PlanError, TaskError) as error:
        return _try_page(request, session, service, told, wrong=str(error), status=400)
    except ApiError as problem:
        return _try_page(request, session, service, told, wrong=problem.message, status=problem.status)
    return _try_page(request, session, service, told, found)


@router.post(f"{UI_ROOT}/try/perform")
async def perform_plan(session: RunnerLogin, service: Service, sent: CheckedForm) -> Response:
    """Perform the plan that was shown, and lead to its run."""
    told = form_fields(_form_texts(sent))
    order = service.authorizer.authorize(read_task_form(told), session.by)
    shown = parse_plan(form_text(sent, "plan"), len(order.pool))
    if shown.ships:
        raise ApiError(400, "the plan is empty: there is nothing to perform", "empty_plan")
    order = service.authorizer.authorize(read_task_form(told, confirmed_plan_request(shown)), session.by)
    live = await service.begin(order)
    return redirect(f"{UI_ROOT}/runs/{live.run}")


def _try_page(
    request: Request,
    session: PageSession,
    service: RunService,
    told: dict[str, str],
    found: PlanView | None = None,
    *,
    wrong: str = "",
    status: int = 200,
) -> Response:
    models = [
        (model.name, _plans_cost_money(service, model.conductor)) for model in service.catalogue.listed(session.by)
    ]
    caps = service.container.caps
    shown = {"models": models, "told": told, "view": found, "wrong": wrong, "caps": caps}
    return render_page(request, "try.html.jinja", shown, status)


def _plans_cost_money(service: RunService, conductor: str) -> bool:
    """Whether this conductor asks a paid model for its plans."""
    table = service.container.settings.conductors.get(conductor)
    return conductor.startswith("lm:") or isinstance(table, LmTable)


def _form_texts(sent: FormData) -> dict[str, str]:
    return {name: form_text(sent, name) for name in sent}
