"""`/ui/turns`: what agents' sessions cost and would have cost, why each turn went where, and what the shadow shows.

Invariants: a reader sees the sessions of its tenant alone, an admin all; no text of a conversation is shown, only the
numbers and names that were decided from. What would have been is the router's expectation, and is named so.
"""

import json
from collections.abc import Iterable, Sequence
from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.budget import format_dollars
from shikisha.core.events import AttemptFinished, TurnRouted
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run
from shikisha.server.pages.login import PageRoute, ReaderLogin, Service
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.store import RunFilter

_MOST_RUNS = 60
router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class RoutedTurnView:
    """A turn: in which run, by whom, why, what it cost, and what finishing was expected to cost with whom."""

    run: str
    turn: int
    worker: str
    instead_of: str | None
    note: str
    dollars: float | None
    prompt: int
    cached: int
    expected: str


@dataclass(frozen=True, slots=True)
class AgentSession:
    """The turns of a session, oldest first."""

    name: str
    last: float
    turns: Sequence[RoutedTurnView]
    paid: float
    stays: float
    best: float

    @property
    def switches(self) -> int:
        """How many turns went to another worker than the turn before."""
        return sum(each.instead_of is not None for each in self.turns)


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
        used = (None, 0, 0) if reply is None else (reply.dollars, reply.usage.input_tokens, reply.usage.cached_tokens)
        turns.append(RoutedTurnView(run.id, row.turn, row.worker, row.instead_of, row.note, *used, shown))
    first = rows[0][2].get("dollars")
    expected = first if isinstance(first, dict) else {}
    stays, best = expected.get(rows[0][1].worker, 0.0), min(expected.values(), default=0.0)
    paid = sum(each.dollars or 0.0 for each in turns)
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
