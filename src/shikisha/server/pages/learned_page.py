"""`/ui/learned`: what was learned from which runs, what it brought, what was retired and why, and a switch for each.

Invariants: only an admin reads what was learned, turns a switch or retires a lesson, for it is made of all tenants'
runs; every turn has its row in the audit; a switch takes effect with the next run. Everything stands next to its
evidence, and what was not measured says so. A page lists at most `_PAGE` lessons. Needs numpy (extra `eval`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.config.adapters import require_extra
from shikisha.config.container import Container
from shikisha.config.learned_switches import check_switch
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.server.http.api_errors import ApiError
from shikisha.server.pages.login import AdminLogin, CheckedForm, PageRoute, Service, form_text, redirect
from shikisha.server.pages.templates import UI_ROOT, render_page

if TYPE_CHECKING:
    from shikisha.config.learned_overview import LearnedRow
    from shikisha.learned.learned_file import LearnedGain
    from shikisha.learned.lessons import Lesson
    from shikisha.learned.skills import Skill

_PAGE = 50
_MOST_FOUND = 20
_MOST_RUNS = 12  # of the evidence, as links
_MAX_QUERY = 2_000
_STATES = ("kept", "trial", "retired")


@dataclass(frozen=True, slots=True)
class GainDrawing:
    """A mean and its interval on a line of 100 with zero in its middle, and the largest amount to either side."""

    low: float
    mean: float
    high: float
    reach: float

    @classmethod
    def of(cls, gain: "LearnedGain") -> "GainDrawing":
        """Draw a gain."""
        reach = max(abs(gain.low), abs(gain.high), abs(gain.mean)) or 1.0
        low, mean, high = (round(50 + 48 * each / reach, 1) for each in (gain.low, gain.mean, gain.high))
        return cls(low, mean, high, reach)


@dataclass(frozen=True, slots=True)
class LearnedItem:
    """A row, its interval as a drawing (None: not measured), the first runs of its evidence, and advice in words."""

    row: "LearnedRow"
    drawn: GainDrawing | None
    runs: Sequence[str]
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LessonView:
    """A lesson, its interval as a drawing once both sides have tasks, and the first runs of its evidence."""

    lesson: "Lesson"
    drawn: GainDrawing | None
    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class LearnedView:
    """All that was learned; `lessons` are those of a state, or those that a text brings up; `counts` by state."""

    items: tuple[LearnedItem, ...]
    lessons: tuple[LessonView, ...]
    skills: tuple["Skill", ...]
    counts: dict[str, int]
    text: str
    state: str
    page: int
    more: bool


def learned_view(container: Container, text: str = "", state: str = "", page: int = 0) -> LearnedView:
    """Read what was learned; MissingExtra without numpy."""
    require_extra("eval", "what was learned", "numpy")
    from shikisha.config.learned_overview import learned_advice, learned_lessons, learned_rows, learned_skills

    items = tuple(
        LearnedItem(
            row,
            None if row.gain is None else GainDrawing.of(row.gain),
            row.runs[:_MOST_RUNS],
            learned_advice(row) if row.switch == "prompt" and not row.refused else "",
        )
        for row in learned_rows(container)
    )
    book = learned_lessons(container)
    every = () if book is None else book.lessons
    counts = {name: sum(one.state == name for one in every) for name in _STATES}
    if book is not None and text:
        chosen: Sequence[Lesson] = book.recall(text, book.source.scope, _MOST_FOUND)
    else:
        chosen = sorted(
            (one for one in every if not state or one.state == state), key=lambda one: _STATES.index(one.state)
        )
    shown = chosen[page * _PAGE : (page + 1) * _PAGE]
    lessons = tuple(
        LessonView(
            one,
            GainDrawing.of(one.gain) if min(one.shown[0], one.withheld[0]) else None,
            one.evidence[:_MOST_RUNS],
        )
        for one in shown
    )
    more = len(chosen) > (page + 1) * _PAGE
    return LearnedView(items, lessons, tuple(learned_skills(container)), counts, text, state, page, more)


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/learned")
async def show_learned(request: Request, session: AdminLogin, service: Service) -> Response:  # noqa: ARG001 - asked for
    """Show what was learned."""
    query = request.query_params
    state, page = query.get("state", ""), query.get("page", "")
    view = await asyncio.to_thread(
        learned_view,
        service.container,
        query.get("text", "").strip()[:_MAX_QUERY],
        state if state in _STATES else "",
        int(page) if page.isascii() and page.isdigit() and len(page) < 5 else 0,
    )
    return render_page(request, "learned.html.jinja", {"view": view, "shown_at": time(), "states": _STATES})


@router.post(f"{UI_ROOT}/learned/switch")
async def turn_switch(session: AdminLogin, service: Service, form: CheckedForm) -> Response:
    """Switch something learned on or off."""
    name, on = form_text(form, "what"), form_text(form, "to") == "on"
    switches = service.container.switches
    try:
        check_switch(name)
    except ConfigError as error:
        raise ApiError(404, str(error), "not_found") from None
    # The row comes first, as everywhere: what cannot be noted is not done.
    await service.keys.note(session.by.key, "learned.on" if on else "learned.off", name)
    await asyncio.to_thread(switches.turn, name, on=on, by=session.by.name, at=time())
    return redirect(f"{UI_ROOT}/learned")


@router.post(f"{UI_ROOT}/learned/lessons/{{lesson}}")
async def change_lesson_state(lesson: str, session: AdminLogin, service: Service, form: CheckedForm) -> Response:
    """Retire a lesson, or put it on trial again."""
    require_extra("eval", "lessons", "numpy")
    from shikisha.learned.lessons import LessonState, change_lesson

    file = service.container.settings.learned.lessons
    if file is None:
        raise ApiError(404, "no lessons are configured: [learned] lessons", "not_found")
    state = LessonState.TRIAL if form_text(form, "to") == "trial" else LessonState.RETIRED
    await service.keys.note(session.by.key, f"lesson.{state}", lesson)
    path = Path(service.container.folder / file)
    try:
        await asyncio.to_thread(change_lesson, path, lesson, state, time())
    except UnknownName as error:
        raise ApiError(404, str(error), "not_found") from None
    return redirect(f"{UI_ROOT}/learned#lessons")
