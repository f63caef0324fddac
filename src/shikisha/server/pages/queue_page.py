"""`/ui/queue`: runs judged one after another by keyboard, disputed ones first; by one person, or by two apart.

Invariants: a judgment is in the journal before the next run is shown, and whose turn it is follows from the journal
alone, so a reload loses nothing. Nobody sees what another person said of a run before judging it. A login judges the
runs that it may see and that ended with an answer. Where two people differ, a third is asked. Deliberately absent:
assigning runs to people.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.events import AnswerGraded, CheckStatus
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Run
from shikisha.explain import explain, other_answers
from shikisha.explain.explanation import Explanation
from shikisha.journal.queries import fold_readable
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.login import PageRoute, PageSession, RunnerLogin, Service
from shikisha.server.pages.run_exports import read_texts
from shikisha.server.pages.run_page import visible_events
from shikisha.server.pages.runs_page import INDEX_PAGES, RunListQuery, search_scope
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.store import ServedState
from shikisha.server.store.served_rows import RIGHT_SCORE

_PAGE, _PAGES = 200, 5  # runs that are looked at together, and how often while none of them is due
_MOST_SKIPPED = 100
_DECIDING = 3  # people, where two of them differ


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the first two people who judged a run agree; `kappa` is Cohen's, None where chance explains it all."""

    same: int
    of: int
    kappa: float | None


def person_grades(grades: Iterable[AnswerGraded]) -> dict[str, AnswerGraded]:
    """Return the last judgment of each person among a run's grades."""
    return {grade.actor: grade for grade in grades if grade.actor}


def is_due(grades: Iterable[AnswerGraded], actor: str, people: int) -> bool:
    """Whether this person is to judge a run with these grades: too few have, or they differ."""
    verdicts = {name: _is_right(grade) for name, grade in person_grades(grades).items()}
    wanted = people if len(set(verdicts.values())) < 2 else _DECIDING
    return actor not in verdicts and len(verdicts) < wanted


def dispute_rank(run: Run) -> int:
    """Return 0 where grades differ, 1 where workers do or a check refused an answer, and 2 otherwise."""
    last = person_grades(run.grades).values()
    grades = [*last, *(grade for grade in run.grades if not grade.actor and grade.score is not None)]
    if len(set(map(_is_right, grades))) > 1:
        return 0
    story = explain(run)
    return 1 if other_answers(story) or _refusals(story) else 2


def _is_right(grade: AnswerGraded) -> bool:
    return (grade.score or 0.0) >= RIGHT_SCORE


def _refusals(story: Explanation) -> list[str]:
    steps = [step for turn in story.rounds for step in turn.steps]
    return [
        f"{check.check} (step {step.step}): {check.reason}"
        for step in steps
        for check in step.checks
        if check.status is CheckStatus.FAIL
    ]


def measure_agreement(runs: Iterable[Iterable[AnswerGraded]]) -> Agreement | None:
    """Return how far the first two people agree on the runs that both judged, from each run's grades; None of none."""
    found = [[_is_right(grade) for _, grade in sorted(person_grades(grades).items())] for grades in runs]
    pairs = [(one[0], one[1]) for one in found if len(one) > 1]
    if not pairs:
        return None
    of, same = len(pairs), sum(one is other for one, other in pairs)
    sides = [Counter(pair[side] for pair in pairs) for side in (0, 1)]
    chance = sum(sides[0][verdict] * sides[1][verdict] for verdict in (True, False)) / of**2
    return Agreement(same, of, None if chance == 1 else (same / of - chance) / (1 - chance))


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/queue")
async def show_queue(request: Request, session: RunnerLogin, service: Service) -> Response:
    """Show the next run that this person is to judge, or the one that is named."""
    query = request.query_params
    asked, people = RunListQuery.of(query), 2 if query.get("people") == "2" else 1
    skipped = tuple(filter(None, query.get("skip", "").split(",")))[-_MOST_SKIPPED:]
    runs = await _read_runs(service, session, asked, people)
    due = [run for run, grades in runs.items() if run not in skipped and is_due(grades, session.by.actor, people)]
    told = await service.journal.query(partial(fold_readable, names=due))
    waiting = [run.id for run in sorted(told, key=dispute_rank)]
    name = query.get("run", "") or next(iter(waiting), "")
    story = explain(Run.fold(await visible_events(service, session, name))) if name else None
    kept = asked.query() + ("&people=2" if people > 1 else "")
    shown = {
        "story": story,
        "others": other_answers(story) if story else (),
        "refused": _refusals(story) if story else (),
        "judged": sum(session.by.actor in person_grades(grades) for grades in runs.values()),
        "left": len(waiting),
        "looked_at": len(runs),
        "people": people,
        "agreement": measure_agreement(runs.values()),
        "kept": kept,
        "filters": asked.query(),
        "further": urlencode({"skip": ",".join((*skipped, name))}),
        "skipped": skipped,
        "last": query.get("last", ""),
    }
    return render_page(request, "queue.html.jinja", shown)


async def _read_runs(
    service: RunService, session: PageSession, asked: RunListQuery, people: int
) -> dict[str, tuple[AnswerGraded, ...]]:
    """Return the grades of the newest runs with an answer that are asked for, so many pages that one run is due."""
    await service.journal.index(INDEX_PAGES)
    wanted = replace(asked.filter(session.tenant, _PAGE, search_scope(service, session)), states=(ServedState.ENDED,))
    found: dict[str, tuple[AnswerGraded, ...]] = {}
    for _ in range(_PAGES):
        page = await service.store.search(wanted)
        names = [served.run for served in page.runs if served.erased is None]
        said = await read_texts(service, names)
        found |= {name: said[name].grades for name in names if name in said and said[name].answer is not None}
        if page.after is None or any(is_due(grades, session.by.actor, people) for grades in found.values()):
            break
        wanted = replace(wanted, after=page.after)
    return found
