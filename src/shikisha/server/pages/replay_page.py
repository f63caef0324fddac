"""`/ui/runs/RUN/replay`: a run, or one call of it, once more with another prompt, worker or plan, beside the first.

Invariants: a replay is a run of its own that the login orders: keys, labels, caps and approvals hold as for any other,
and the first run's caps, labels and tenant too. Nothing that may change something outside is called again before the
person has confirmed it by name, whatever the plan says, fallbacks included. A call is replayed alone: what it saw of
other steps goes along as context, word for word.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from shikisha.core.budget import Caps
from shikisha.core.call import ApprovalMode, Card
from shikisha.core.errors import PlanError, TaskError
from shikisha.core.fast_dataclass import dataclass, fields, replace
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import parse_plan
from shikisha.core.run import Run, root_run_id
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import RequestOptions
from shikisha.server.lifecycle.authorization import Api, RequestedRun, confirmed_plan_request
from shikisha.server.lifecycle.run_progress import hides_texts
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.login import CheckedForm, PageRoute, PageSession, RunnerLogin, Service, form_text, redirect
from shikisha.server.pages.run_page import visible_events
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.pages.try_page import begin_once, read_dollars
from shikisha.server.pages.workers_page import visible_cards

_NO_EFFECT = frozenset({"chat", "embedding", "replay", "scripted", "vote"})  # kinds that only answer
_NUMBER, _PLACE = re.compile("[0-9]{1,4}"), re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class StepForm:
    """A step as the form has it: texts all."""

    worker: str
    subtask: str
    access: str


def may_change_something(names: Sequence[str], cards: Sequence[Card]) -> list[str]:
    """Return the workers among these, and among those that may stand in for them, whose calls may have effects."""
    by_name, found, waiting = {card.name: card for card in cards}, list[str](), list(dict.fromkeys(names))
    for name in waiting:  # it grows
        card = by_name.get(name)
        if card is None or card.kind not in _NO_EFFECT or card.compensate or card.approval is not ApprovalMode.NEVER:
            found.append(name)
        others = [] if card is None else [each for each in (card.fallback, card.escalate) if each]
        waiting += [each for each in others if each not in waiting]
    return found


def parse_place(text: str) -> tuple[int, int] | None:
    """Read a call's place, its round and step as in 0.1; None for none, ApiError (404) for what is no place."""
    found = _PLACE.fullmatch(text)
    if found is None and text:
        raise ApiError(404, f"expected a call's round and step, as in 0.1, not {one_line(text, 40)!r}", "not_found")
    return None if found is None else (int(found[1]), int(found[2]))


def step_forms(run: Run, place: tuple[int, int] | None) -> list[StepForm]:
    """Return the steps of a run's first plan, or the one at a place; ApiError (404) where there is none."""
    if place is not None:
        turn = run.rounds[place[0]] if place[0] < len(run.rounds) else None
        if turn is None or turn.plan is None or place[1] >= len(turn.plan):
            raise ApiError(404, f"run {run.id} has no step {place[1]} in round {place[0]}", "not_found")
        step = turn.plan.steps[place[1]]
        return [StepForm(run.started.pool[step.worker], step.subtask, "")]
    plan = next((turn.plan for turn in run.rounds if turn.plan), Plan())
    return [
        StepForm(run.started.pool[step.worker], step.subtask, ", ".join(map(str, step.access))) for step in plan.steps
    ]


def replay_context(run: Run, place: tuple[int, int] | None) -> str:
    """Return the task's context, and for one call what it saw of other steps."""
    if place is None:
        return run.task.context
    turn = run.rounds[place[0]]
    seen = [(index, turn.results[index]) for index in (turn.plan or Plan()).steps[place[1]].access]
    parts = [f"Result of step {index}:\n{result.text}" for index, result in seen if result and result.text is not None]
    return "\n\n".join(filter(None, [run.task.context, *parts]))


def plan_of_forms(steps: Sequence[StepForm], pool: Sequence[str], first: Plan | None) -> Plan:
    """Return the plan that a form has; a step without words is left out, and the numbers of those after it still mean
    the same steps. PlanError where it is none.
    """
    made, places = list[Step](), dict[int, int]()
    for index, step in enumerate(steps):
        if not step.subtask.strip():
            continue
        if step.worker not in pool:
            raise PlanError(f"the worker {step.worker!r} is not among {', '.join(pool)}", f"step {index}")
        access = [part.strip() for part in step.access.split(",") if part.strip()]
        if not all(_NUMBER.fullmatch(part) and int(part) in places for part in access):
            raise PlanError(f"expected numbers of earlier steps, found {one_line(step.access, 40)!r}", f"step {index}")
        each = first.steps[index].each if first and index < len(first) else None
        places[index] = len(made)
        made.append(Step(step.subtask, pool.index(step.worker), tuple(places[int(part)] for part in access), each))
    return parse_plan(Plan(tuple(made)).dumps(), len(pool))


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/runs/{{run}}/replay")
async def show_replay(request: Request, run: str, session: RunnerLogin, service: Service, step: str = "") -> Response:
    """Show what a replay would be, to be changed."""
    past, place = await _replayable(service, session, run), parse_place(step)
    served = await service.store.find(run)
    model = served.model if served is not None else ""
    filled = {"prompt": past.task.prompt, "model": model, "dollars": ""}
    steps = step_forms(past, place)
    return _replay_page(
        request, session, service, past, {**filled, "step": step, "context": replay_context(past, place)}, steps
    )


@router.post(f"{UI_ROOT}/runs/{{run}}/replay")
async def replay(request: Request, run: str, session: RunnerLogin, service: Service, form: CheckedForm) -> Response:
    """Begin the replay, and show both side by side; where something may be changed outside, ask first."""
    past = await _replayable(service, session, run)
    filled = {name: form_text(form, name).replace("\r\n", "\n") for name in ("prompt", "context", "model", "dollars")}
    filled["step"] = form_text(form, "step")
    step_forms(past, parse_place(filled["step"]))
    steps = _sent_steps(form)
    try:
        order = service.authorizer.authorize(_requested(service, past, filled), session.by)
        names: Sequence[str] = order.pool
        if form_text(form, "how") != "anew":
            first = next((turn.plan for turn in past.rounds if turn.plan), None)
            plan = plan_of_forms(steps, order.pool, None if filled["step"] else first)
            if plan.ships:
                raise ApiError(400, "the plan is empty: there is nothing to perform", "empty_plan")
            order = replace(order, wire=confirmed_plan_request(plan))
            names = [order.pool[step.worker] for step in plan.steps]
        changing = may_change_something(names, service.container.cards(order.pool))
        if set(changing) - {str(name) for name in form.getlist("again")}:
            why = "These may change something outside, as the first run may have: tick them to call them again."
            return _replay_page(request, session, service, past, filled, steps, why, changing, 409)
        again = await begin_once(service, order, form)
        place = {"step": filled["step"]} if filled["step"] else {}
        return redirect(f"{UI_ROOT}/compare?{urlencode({'left': run, 'right': again, **place})}")
    except (PlanError, TaskError, ApiError) as error:
        status = getattr(error, "status", 400)
        return _replay_page(request, session, service, past, filled, steps, str(error), status=status)


async def _replayable(service: RunService, session: PageSession, run: str) -> Run:
    """Return a run of the login's own tenant whose texts it may see and that still has them; ApiError otherwise."""
    past = Run.fold(await visible_events(service, session, run))
    served = await service.store.find(root_run_id(run))
    if served is not None and served.tenant != session.by.tenant:  # or an admin's tenant would see what is another's
        raise ApiError(403, f"run {run} is of another tenant: only a key of that tenant replays it", "other_tenant")
    if await hides_texts(service, session.by, run):
        raise ApiError(403, "this run can be replayed once a person has let its answer pass", "withheld")
    if past.erased is not None:
        raise ApiError(409, f"the texts of run {run} were erased: there is nothing to replay", "erased")
    return past


def _requested(service: RunService, past: Run, filled: dict[str, str]) -> RequestedRun:
    """Return the order: the first run's task with these words, its labels and its caps."""
    task = past.task
    kept = Task(
        filled["prompt"],
        filled["context"],
        domain=task.domain,
        history=task.history,
        attachments=task.attachments,
        answer_schema=None if filled["step"] else task.answer_schema,
        options=task.options,
    )
    most = past.started.caps.narrowed(service.container.caps)
    caps = {each.name: value for each in fields(Caps) if (value := getattr(most, each.name)) is not None}
    if text := filled["dollars"].strip():
        caps["dollars"] = read_dollars(text)
        if most.dollars is not None and caps["dollars"] > most.dollars:
            raise TaskError(f"dollars: at most {most.dollars:g}, as in the first run")
    options = RequestOptions(caps, labels=tuple(sorted(past.scope.labels)))
    metadata = {"replay_of": f"{past.id} {filled['step']}".strip()}
    return RequestedRun(filled["model"], kept, Api.PAGE, options, detached=True, metadata=metadata)


def _sent_steps(form: FormData) -> list[StepForm]:
    names = ("worker", "subtask", "access")
    lists = [[str(value).replace("\r\n", "\n") for value in form.getlist(name)] for name in names]
    return [StepForm(*row) for row in zip(*lists, strict=False)]


def _replay_page(
    request: Request,
    session: PageSession,
    service: RunService,
    past: Run,
    filled: dict[str, str],
    steps: Sequence[StepForm],
    wrong: str = "",
    changing: Sequence[str] = (),
    status: int = 200,
) -> Response:
    """Show the form; `changing` are workers whose calls may change something, to be ticked."""
    shown = {
        "past": past,
        "filled": filled,
        "steps": steps,
        "wrong": wrong,
        "changing": changing,
        "models": [model.name for model in service.catalogue.listed(session.by)],
        "workers": [card.name for card in visible_cards(service, session)],
        "rounds": sum(turn.plan is not None and len(turn.plan) > 0 for turn in past.rounds),
        "client_tools": bool(past.task.tools or past.task.exchanges),
    }
    return render_page(request, "replay.html.jinja", shown, status)
