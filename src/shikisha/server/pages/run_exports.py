"""`/ui/runs/export/…`: the runs of a list as CSV, as JSON lines, as a taskset for `shikisha eval`, or what
people said of them, as a stream.

Invariants: a file holds what its reader may see on the pages, and no more: answers that wait for a person are not in
it. It is written page by page, so that its size costs no memory, has at most `MAX_EXPORTED` runs, and breaks off when
the login ends. No cell of a CSV file is a formula to a spreadsheet. A taskset has only tasks whose answer somebody or
something found right, unless ungraded ones are asked for; what cannot be asked again from its text alone (earlier
turns, attachments, tools) is left out.
"""

import csv
import io
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection, select

from shikisha.core.errors import JournalTampered
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.journal.queries import TaskAndAnswer, read_tasks_and_answers
from shikisha.journal.schema import RUN_WORKERS, RUNS
from shikisha.plots.format import format_timestamp
from shikisha.server.http.api_errors import ApiError
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.login import READER_SCOPES, PageRoute, PageSession, ReaderLogin, Service, require_login
from shikisha.server.pages.runs_page import (
    INDEX_PAGES,
    MAX_EXPORTED,
    RunListQuery,
    key_names,
    search_scope,
    session_of,
    shown_status,
)
from shikisha.server.pages.templates import NO_STORE, SECURITY_HEADERS, UI_ROOT
from shikisha.server.store import RunFilter, ServedRun

_PAGE = 100  # runs whose texts are held at a time
_MAX_CELL = 32_000  # characters; spreadsheets take 32,767
_SHORT_ANSWER = 120  # characters of an answer that is compared as a text; a longer one needs a judge
# What spreadsheets take for the beginning of a formula, also after white space.
_FORMULA = re.compile(r"^\s*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


COLUMNS = (
    "run", "began", "status", "model", "conductor", "key", "tenant", "api", "session", "domain", "labels", "workers",
    "seconds", "tokens", "dollars", "uncertain_dollars", "score", "judged", "prompt", "answer",
)  # fmt: skip
_ANNOTATION_COLUMNS = (
    "run", "began", "domain", "person", "judged", "mark", "score", "note", "prompt", "answer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run as it is exported. `grade`: its score, and whether a language model gave it; None: nobody did.
    `dollars` None: its cost is unknown.
    """

    served: ServedRun
    key: str
    workers: tuple[str, ...]
    grade: tuple[float | None, bool | None]
    said: TaskAndAnswer

    def columns(self) -> dict[str, object]:
        """Return its columns by name."""
        served, said = self.served, self.said
        values = (
            served.run,
            format_timestamp(served.created),
            str(shown_status(served)),
            served.model,
            served.conductor,
            self.key,
            served.tenant,
            served.api,
            session_of(served),
            served.domain,
            list(served.labels),
            list(self.workers),
            round(max(0.0, served.updated - served.created), 3),
            served.tokens,
            served.dollars,
            served.uncertain_dollars,
            *self.grade,
            said.prompt,
            said.answer,
        )
        return dict(zip(COLUMNS, values, strict=True))


def csv_cell(value: object) -> object:
    """Return a value as a cell: a text that a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if not isinstance(value, str):
        return "" if value is None else value
    text = value.replace("\x00", "\ufffd")
    text = text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"
    return f"'{text}" if _FORMULA.match(text) else text


def annotation_rows(page: Sequence[ExportedRun]) -> list[dict[str, object]]:
    """Return a row for the last judgment of each person on each run."""
    return [
        {
            "run": each.served.run,
            "began": format_timestamp(each.served.created),
            "domain": each.served.domain,
            "person": grade.actor,
            "judged": format_timestamp(grade.at),
            "mark": str(grade.mark),
            "score": grade.score,
            "note": grade.evidence,
            "prompt": each.said.prompt,
            "answer": each.said.answer,
        }
        for each in page
        for grade in {grade.actor: grade for grade in each.said.grades if grade.actor}.values()
    ]


def taskset_row(each: ExportedRun) -> dict[str, object] | None:
    """Return a run as a row of a taskset; None where its text alone does not tell the task, or it has no answer."""
    served, said = each.served, each.said
    if not said.prompt.strip() or not (said.answer or "").strip() or said.more or served.erased:
        return None
    row: dict[str, object] = {"id": served.run, "prompt": said.prompt}
    row |= {"context": said.context} if said.context else {}
    row |= {"domain": served.domain} if served.domain else {}
    row |= {"labels": list(served.labels)} if served.labels else {}
    return row | _grader_of((said.answer or "").strip())


def _grader_of(answer: str) -> dict[str, object]:
    """Return how further answers are compared with one that was right."""
    if _NUMBER.fullmatch(answer):
        return {"checker": "number", "answer": answer}
    if len(answer) <= _SHORT_ANSWER:
        return {"checker": "text", "answer": answer}
    return {"checker": "judge", "gold": answer}


_Rows = Sequence[Mapping[str, object]]
_ROWS: Mapping[str, tuple[Callable[[Sequence[ExportedRun]], _Rows], Sequence[str]]] = {
    "runs": (lambda page: [each.columns() for each in page], COLUMNS),
    "annotations": (annotation_rows, _ANNOTATION_COLUMNS),
    "taskset": (lambda page: [row for each in page if (row := taskset_row(each)) is not None], ()),
}
_FILES = ("runs.csv", "runs.jsonl", "annotations.csv", "annotations.jsonl", "taskset.jsonl")


def export_page(name: str, page: Sequence[ExportedRun], *, first: bool) -> str:
    """Return runs as a file of this name has them, as lines of JSON or as CSV, whose first page has a heading."""
    kind, _, form = name.partition(".")
    rows_of, columns = _ROWS[kind]
    if form == "jsonl":
        return "".join(f"{json.dumps(row)}\n" for row in rows_of(page))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerows([columns] if first else [])
    writer.writerows([csv_cell(value) for value in row.values()] for row in rows_of(page))
    return written.getvalue()


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/runs/export/{{name}}")
async def export_runs(request: Request, name: str, session: ReaderLogin, service: Service) -> StreamingResponse:
    """Send the runs that a list's address names, as a file of this kind."""
    if name not in _FILES:
        raise ApiError(404, f"expected one of {', '.join(_FILES)}", "not_found")
    await service.journal.index(INDEX_PAGES)
    asked = RunListQuery.of(request.query_params)
    wanted = replace(asked.filter(session.tenant, _PAGE, search_scope(service, session)), after=None)
    if name == "taskset.jsonl" and not asked.right and request.query_params.get("ungraded") != "yes":
        wanted = replace(wanted, right=True)
    headers = {**SECURITY_HEADERS, **NO_STORE, "Content-Disposition": f'attachment; filename="{name}"'}
    kind = "text/csv" if name.endswith("csv") else "application/jsonl"
    pages = _exported_pages(request, service, session, wanted)
    return StreamingResponse(_written(pages, name), headers=headers, media_type=f"{kind}; charset=utf-8")


async def _written(pages: AsyncIterator[Sequence[ExportedRun]], name: str) -> AsyncGenerator[str]:
    first = True
    async for page in pages:
        yield export_page(name, page, first=first)
        first = False


async def _exported_pages(
    request: Request, service: RunService, session: PageSession, wanted: RunFilter
) -> AsyncGenerator[Sequence[ExportedRun]]:
    """Yield runs page by page, each after a look whether the login still holds."""
    names, left = await key_names(service, session), MAX_EXPORTED
    while left > 0:
        page = await service.store.search(replace(wanted, limit=min(_PAGE, left)))
        runs = page.runs
        ids = [served.run for served in runs]
        workers, scores = await service.journal.query(partial(_read_index, runs=ids))
        said = await read_texts(service, ids)
        export_page = [
            ExportedRun(
                served,
                names.get(served.key, served.key),
                tuple(workers.get(served.run, ())),
                scores.get(served.run, (None, None)),
                said.get(served.run, _UNREADABLE),
            )
            for served in runs
        ]
        yield (export_page)
        left -= len(page.runs)
        if page.after is None:
            return
        wanted = replace(wanted, after=page.after)
        await require_login(*READER_SCOPES)(request)


_UNREADABLE = TaskAndAnswer("[unreadable: see shikisha journal verify]", more=True)


async def read_texts(service: RunService, ids: Sequence[str]) -> Mapping[str, TaskAndAnswer]:
    """Return the texts of these runs; where one cannot be read, of the others."""
    try:
        return await service.journal.query(partial(read_tasks_and_answers, runs=ids))
    except JournalTampered:
        if len(ids) == 1:
            return {}
    halves = (ids[: len(ids) // 2], ids[len(ids) // 2 :])
    return {**await read_texts(service, halves[0]), **await read_texts(service, halves[1])}


def _read_index(
    connection: Connection, runs: Sequence[str]
) -> tuple[dict[str, list[str]], dict[str, tuple[float, bool]]]:
    """Return the workers of each of these runs, and its score with whether that is a language model's."""
    workers: dict[str, list[str]] = {}
    called = select(RUN_WORKERS.c.run, RUN_WORKERS.c.worker).where(RUN_WORKERS.c.run.in_(runs))
    for run, worker in connection.execute(called.order_by(RUN_WORKERS.c.worker)):
        workers.setdefault(run, []).append(worker)
    graded = select(RUNS.c.run, RUNS.c.score, RUNS.c.judged).where(RUNS.c.run.in_(runs), RUNS.c.score.is_not(None))
    return workers, {row.run: (row.score, row.judged) for row in connection.execute(graded)}
