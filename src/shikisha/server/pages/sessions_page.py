"""`/ui/sessions`: runs that belong together, because their requests named the same session; one session, turn by turn.

A request names its session in its metadata (`session_id` or `session`); the page to try tasks does so for its turns.
Invariants: a session is one tenant's: of two tenants that use the same name, each sees its own turns, and an admin
chooses the tenant. What a run's reader may not read yet is withheld here too.
"""

from collections.abc import Sequence
from functools import partial
from time import time
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.events import QuestionAsked, QuestionKind
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
    return tuple(_turn(served, said.get(served.run, TaskAndAnswer(served.excerpt))) for served in reversed(runs))


def _turn(served: ServedRun, said: TaskAndAnswer) -> TurnView:
    return TurnView(served, said.prompt, said.answer)


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
        following = urlencode({"after": f"{found[-1].last!r}~{found[-1].tenant}~{found[-1].session}"})
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
