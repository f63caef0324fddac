"""`/ui/sessions`: runs that belong together, because their requests named the same session; one session, turn by turn.

A request names its session in its metadata (`session_id` or `session`); the page to try tasks does so for its turns.
Invariants: a session is one tenant's: of two tenants that use the same name, each sees its own turns, and an admin
chooses the tenant. What a run's reader may not read yet is withheld here too. `/ui/turns` shows no text of a
conversation, only the numbers and names that were decided from; what would have been is the router's expectation.
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from time import time
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.budget import format_dollars
from shikisha.core.events import AttemptFinished, QuestionAsked, QuestionKind, TurnRouted
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Run
from shikisha.journal.queries import TaskAndAnswer, read_tasks_and_answers
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle import questions
from shikisha.server.lifecycle.questions import PersonQuestion
from shikisha.server.lifecycle.service import RunService
from shikisha.server.lifecycle.sessions import SpokenTurn, spoken_turns
from shikisha.server.pages.login import PageRoute, PageSession, ReaderLogin, Service
from shikisha.server.pages.runs_page import INDEX_PAGES, shown_status
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.store import RunFilter, RunOrder, ServedRun, ServedState
from shikisha.server.store.run_figures import SessionFigures, list_sessions

_PAGE = 50
_MAX_TURNS = 200
_MAX_HEARD = 20  # of them with what the members of group chats said


@dataclass(frozen=True, slots=True)
class TurnView:
    """A run of a session: what was asked and answered. `answer` None: nothing yet, or nothing at all.

    Of a group chat, `spoken` is who said what. `asked` are questions to a person who is one of its members; `signed`:
    this login answers them with a passkey, so on their own page. `labels` are those of what its steps brought, where
    somebody has asked for them.
    """

    served: ServedRun
    prompt: str
    answer: str | None
    spoken: tuple[SpokenTurn, ...] = ()
    asked: tuple[QuestionAsked, ...] = ()
    signed: bool = False
    labels: frozenset[str] = frozenset()

    @property
    def status(self) -> str:
        """Where the run stands."""
        return str(shown_status(self.served))

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0.0, self.served.updated - self.served.created)


async def session_turns(service: RunService, session: str, tenant: str | None) -> tuple[TurnView, ...]:
    """Return the newest turns of a session, oldest first; answers are those that runs ended with."""
    await service.journal.index(INDEX_PAGES)
    wanted = RunFilter(tenant=tenant, session=session, order=RunOrder.BEGAN, limit=_MAX_TURNS)
    runs = (await service.store.search(wanted)).runs
    said = await service.journal.query(partial(read_tasks_and_answers, runs=[served.run for served in runs]))
    pairs = [(served, said.get(served.run, TaskAndAnswer(served.excerpt))) for served in reversed(runs)]
    return tuple(TurnView(served, each.prompt, each.answer) for served, each in pairs)


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/sessions")
async def show_sessions(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show sessions, that with the newest run first."""
    await service.journal.index(INDEX_PAGES)
    query = request.query_params
    after = _read_cursor(query.get("after", ""))
    found: Sequence[SessionFigures] = await service.journal.query(
        partial(list_sessions, tenant=session.tenant, after=after, limit=_PAGE)
    )
    following = ""
    if len(found) == _PAGE:
        following = urlencode({"after": f"{found[-1].last!r}~{found[-1].tenant}~{found[-1].name}"})
    shown = {"sessions": found, "next": following, "shown_at": time(), "everybody": session.tenant is None}
    return render_page(request, "sessions.html.jinja", shown)


@router.get(f"{UI_ROOT}/sessions/{{name:path}}")
async def show_session(request: Request, name: str, session: ReaderLogin, service: Service) -> Response:
    """Show a session's turns."""
    tenant = session.tenant if session.tenant is not None else request.query_params.get("tenant")
    turns = await session_turns(service, name, tenant)
    if not turns:
        raise ApiError(404, f"there is no session {name}", "not_found")
    heard = [await _with_members(service, session, turn) for turn in turns[-_MAX_HEARD:]]
    shown = {"name": name, "turns": (*turns[:-_MAX_HEARD], *heard), "shown_at": time()}
    return render_page(request, "session.html.jinja", shown)


async def _with_members(service: RunService, session: PageSession, turn: TurnView) -> TurnView:
    """Return a turn with what the members of its group chat said, and what its people are asked."""
    served = turn.served
    if served.erased is not None:
        return turn
    events = await service.journal.read(served.run)
    turn = replace(turn, spoken=spoken_turns(service, served, events))
    if served.state is not ServedState.WAITING or not session.by.may(KeyScope.APPROVE):
        return turn
    run = Run.fold(events)
    asked = tuple(each for each in run.open_questions if each.asks is QuestionKind.ANSWER)
    signed = [await questions.needs_passkey(service, session.by, PersonQuestion(served, run, each)) for each in asked]
    return replace(turn, asked=asked, signed=any(signed))


def _read_cursor(text: str) -> tuple[float, str, str] | None:
    at, _, rest = text.partition("~")
    tenant, _, name = rest.partition("~")
    try:
        return (float(at), tenant, name) if name else None
    except ValueError:
        return None


# `/ui/turns`: each turn of agents

_MOST_RUNS = 60


@dataclass(frozen=True, slots=True)
class AgentSession:
    """The turns of a session, oldest first, with what each was expected to cost, and the reply (None: none) to it."""

    name: str
    last: float
    turns: Sequence[tuple[TurnRouted, str, AttemptFinished | None]]
    paid: float
    stays: float
    best: float

    @property
    def switches(self) -> int:
        """How many turns went to another worker than the turn before."""
        return sum(row.instead_of is not None for row, _, _ in self.turns)


def agent_sessions(runs: Iterable[Run]) -> list[AgentSession]:
    """Return the sessions that these runs' turns are of, the newest first."""
    found: dict[str, list[tuple[Run, TurnRouted, dict[str, object]]]] = {}
    for run in sorted(runs, key=lambda run: run.started.at):
        for row in (row for turn in run.rounds for step in turn.steps.values() for row in step.tools):
            if isinstance(row, TurnRouted) and not row.kept and row.facts:
                facts = json.loads(row.facts)
                found.setdefault(str(facts.get("session", "")), []).append((run, row, facts))
    made = [_session(name, rows) for name, rows in found.items()]
    return sorted(made, key=lambda each: each.last, reverse=True)


def _session(name: str, rows: Sequence[tuple[Run, TurnRouted, dict[str, object]]]) -> AgentSession:
    turns = []
    for run, row, facts in rows:
        attempts = run.round(row.round).step(row.step).attempts
        done = [each.outcome for each in attempts if each.started.at >= row.at]
        reply = next((one for one in done if isinstance(one, AttemptFinished) and one.worker == row.worker), None)
        expected = facts.get("dollars")
        shown = (
            ", ".join(f"{who} {format_dollars(dollars)}" for who, dollars in expected.items())
            if isinstance(expected, dict)
            else ""
        )
        turns.append((row, shown, reply))
    first = rows[0][2].get("dollars")
    expected = first if isinstance(first, dict) else {}
    stays, best = expected.get(rows[0][1].worker, 0.0), min(expected.values(), default=0.0)
    paid = sum(reply.dollars or 0.0 for _, _, reply in turns if reply is not None)
    return AgentSession(name, rows[-1][1].at, turns, paid, stays, best)


@router.get(f"{UI_ROOT}/turns")
async def show_turns(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show sessions turn by turn, and what shadow turns came to."""
    from shikisha.server.lifecycle.shadow_turns import SHADOW_KEY, shadow_figures, shadow_runs  # few servers need it

    served = (await service.store.search(RunFilter(tenant=session.tenant, limit=_MOST_RUNS))).runs
    runs = [await service.read_run(each.run) for each in served if each.erased is None and each.key != SHADOW_KEY]
    routing, table = service.turn_router, service.container.settings.turns
    evidence = routing.evidence.items() if routing is not None else ()
    seen = [found for scope, found in evidence if session.tenant in (None, scope.tenant)]
    figures = shadow_figures(await shadow_runs(service, session.tenant), seen)
    shown = {"sessions": agent_sessions(runs), "figures": figures, "table": table, "shown_at": time()}
    return render_page(request, "turns.html.jinja", shown)
