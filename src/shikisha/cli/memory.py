"""`memory`: lessons from failed runs, and notes of all runs: write, search, say why they are there, retire, export.

Invariants: a lesson has evidence; a book is made from the runs that are still there; retiring is recorded in the file
and holds until somebody brings the lesson back.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, TenantOption, command
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.learned.learned_file import write_learned
from shikisha.learned.lessons import (
    Lesson,
    LessonState,
    book_file,
    change_lesson,
    failed_runs,
    failure_lessons,
    judge_lessons,
    load_book,
    merge_lessons,
    named_lesson,
    reflected_lesson,
    widen_lessons,
)
from shikisha.learned.memory_index import MemoryIndex, MemoryNote
from shikisha.learned.run_feedback import describe_run

if TYPE_CHECKING:
    from shikisha.config.container import Container
    from shikisha.journal import Journal

_LESSON_TOKENS = 1_000  # a lesson is a sentence or two, and a model may think before
_MOST_REFLECTIONS = 20  # a call
_QUESTION = (
    "Below is what came of a task that went wrong. Write one lesson, one sentence, that would have helped and holds "
    "for other tasks of this kind. Name no answer of this task. Reply with the sentence only."
)
group = typer.Typer(
    help="Lessons from failed runs, and notes of finished ones: write, search, judge, retire and export.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
Book = Annotated[Path, typer.Option("--file", help="The file of lessons.")]
AnyBook = Annotated[Path | None, typer.Option("--file", help="The file of lessons; by default [memory] file.")]
Count = Annotated[int, typer.Option("--count", min=1, max=200, help="The most notes to show.")]
LessonId = Annotated[str, typer.Argument(metavar="LESSON", help="A lesson by the beginning of its id.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="A task, or words of one.")]
Reflector = Annotated[str, typer.Option("--reflector", help="A worker that writes a lesson for each failed run.")]
Dollars = Annotated[float, typer.Option("--dollars", min=0, help="The most US dollars that reflection may cost.")]
Labels = Annotated[str, typer.Option("--labels", help="Learn from runs with these labels (a,b), for tasks with them.")]


@group.command("learn")
@command
def learn(
    shared: SharedOptions,
    file: Book,
    reflector: Reflector = "",
    dollars: Dollars = 0.0,
    labels: Labels = "",
    tenant: TenantOption = None,
) -> ExitCode:
    """Write lessons from failed runs, and judge those that were on trial.

    Without a reflector, lessons say which worker failed most at which work. Lessons whose runs were erased vanish.
    """
    output.refuse_unwritable(file)
    if reflector and not dollars:
        raise ConfigError("--reflector: say how much reflection may cost with --dollars")
    scope, runs = session.read_runs(shared, tenant, labels)
    known = load_book(file) if file.exists() else None
    if known is not None and known.lessons and known.source.scope != scope:
        raise ConfigError(f"{file}: it has lessons of {known.source.scope}: name another file for those of {scope}")

    async def reflect() -> list[Lesson]:
        async with (
            session.open_existing_journal(shared) as journal,
            session.open_container(shared) as container,
        ):
            return await _reflect(container, journal, runs, reflector, dollars)

    old = () if known is None else known.lessons
    new = [*failure_lessons(runs), *(session.run_async(reflect) if reflector else ())]
    lessons = widen_lessons(judge_lessons(merge_lessons(old, new), runs), runs)
    book = book_file(lessons, scope, time())
    write_learned(file, book)
    _show(lessons, as_json=shared.json)
    output.print_note(f"{file}: {len(lessons)} lessons, version {book.short_version}; use it with [learned] lessons")
    return ExitCode.OK


async def _reflect(
    container: "Container", journal: "Journal", runs: Sequence[Run], reflector: str, dollars: float
) -> list[Lesson]:
    """Return a lesson for each of the newest failed runs, as far as the dollars go."""
    from shikisha.conductors.fixed_conductors import fixed_conductor

    pool = container.pool([reflector])
    engine = Engine(journal, secret_store=container.secret_store, guarded_labels=container.guarded_labels)
    spent, refused, found = 0.0, 0, list[Lesson]()
    for run in reversed(failed_runs(runs)[-_MOST_REFLECTIONS:]):
        if spent >= dollars or run.started.domain == "reflection":
            continue
        score = run.grade.score if run.grade is not None else None
        task = Task(
            f"{_QUESTION}\n\n{describe_run(run, score)}",
            domain="reflection",
            labels=tuple(sorted(run.scope.labels)),
            tenant=run.started.tenant,
            options={"max_completion_tokens": _LESSON_TOKENS},
        )
        caps = replace(container.caps, dollars=dollars - spent)
        written = await engine.run(task, pool, fixed_conductor(f"single?worker={reflector}"), caps)
        spent += written.counted.dollars or 0.0
        lesson = reflected_lesson(written.answer or "", run.started.prompt, run.id)
        found += [] if lesson is None else [lesson]
        refused += lesson is None
    none = f"; {refused} answers were no lesson" if refused else ""
    output.print_note(f"{len(found)} lessons written for {format_dollars(spent)}{none}")
    return found


@group.command("show")
@command
def show(shared: SharedOptions, file: Book) -> ExitCode:
    """Show the lessons, and what runs with and without them came to."""
    _show(load_book(file).lessons, as_json=shared.json)
    return ExitCode.OK


@group.command("search")
@command
def search(shared: SharedOptions, text: Text, file: AnyBook = None, count: Count = 10, labels: Labels = "") -> ExitCode:
    """Show what a task would bring up: lessons of --file, else notes of finished runs ([memory] file).

    Notes are taken from the journal first, and those of erased runs go.
    """
    if file is not None:
        book = load_book(file)
        _show(book.recall(text, book.source.scope), as_json=shared.json)
        return ExitCode.OK
    with _synchronized(shared) as memory:
        found = memory.recall(text, count, tenant=None, labels=session.read_labels(labels), now=time())
    if shared.json:
        output.print_json({"notes": [{**asdict(one.note), "score": one.score} for one in found]})
        return ExitCode.OK
    rows = [(f"{one.score:.2f}", one.note.kind, ",".join(one.note.evidence)[:40], _line(one.note)) for one in found]
    output.print_table(("score", "kind", "runs", "note"), rows, right=("score",))
    return ExitCode.OK


@group.command("export")
@command
def export(shared: SharedOptions, file: AnyBook = None, labels: Labels = "") -> ExitCode:
    """Print lessons of --file, else notes of finished runs ([memory] file), as JSON lines."""
    if file is not None:
        for lesson in load_book(file).lessons:
            output.print_answer(json.dumps(_row(lesson), ensure_ascii=False))
        return ExitCode.OK
    wanted = session.read_labels(labels)
    with _synchronized(shared) as memory:
        for note in memory.notes():
            if set(note.labels) <= wanted:
                output.print_answer(json.dumps(asdict(note), ensure_ascii=False))
    return ExitCode.OK


def _line(note: MemoryNote) -> str:
    return " ".join(note.text.split())[:160]


def _synchronized(shared: SharedOptions) -> MemoryIndex:
    """Return the configured memory after taking in what the journal has since; the caller closes it."""
    from shikisha.config.container import load_config
    from shikisha.learned.journal_memory import sync_memory

    container = load_config(shared.config)
    table = container.settings.memory
    if table.file is None:
        raise ConfigError("name lessons with --file, or a memory with [memory] file")
    memory = MemoryIndex(container.folder / table.file, table.half_life_days)

    async def main() -> None:
        async with session.open_existing_journal(shared) as journal:
            done = await sync_memory(memory, journal)
            if done.runs:
                output.print_note(f"{table.file}: {done.runs} runs read, {done.added} notes added, {done.gone} gone")

    try:
        session.run_async(main)
    except BaseException:
        memory.close()
        raise
    return memory


@group.command("why")
@command
def why(shared: SharedOptions, lesson: LessonId, file: Book) -> ExitCode:
    """Say which runs taught a lesson, and what it brought."""
    found = named_lesson(load_book(file), lesson)
    if shared.json:
        output.print_json(_row(found))
        return ExitCode.OK
    output.print_answer(f"{found.id} ({found.state}): {found.text}")
    output.print_answer(f"about: {found.about[:200]}")
    output.print_answer(f"runs: {', '.join(found.evidence)}")
    output.print_answer(found.gain.describe())
    return ExitCode.OK


@group.command("retire")
@command
def retire(shared: SharedOptions, lesson: LessonId, file: Book) -> ExitCode:
    """Show a lesson to no task any more; it stays in the file."""
    return _change(shared, lesson, file, LessonState.RETIRED)


@group.command("restore")
@command
def restore(shared: SharedOptions, lesson: LessonId, file: Book) -> ExitCode:
    """Put a lesson on trial again."""
    return _change(shared, lesson, file, LessonState.TRIAL)


def _change(shared: SharedOptions, lesson: str, file: Path, state: LessonState) -> ExitCode:
    chosen, changed = change_lesson(file, lesson, state, time())
    if shared.json:
        output.print_json({"lesson": chosen.id, "state": str(state), "version": changed.version})
    output.print_note(f"{chosen.id} is {state}; version {changed.short_version}")
    return ExitCode.OK


def _row(lesson: Lesson) -> dict[str, object]:
    gain = lesson.gain
    return {
        "id": lesson.id,
        "text": lesson.text,
        "state": str(lesson.state),
        "shown": list(lesson.shown),
        "withheld": list(lesson.withheld),
        "gain": [gain.mean, gain.low, gain.high],
        "runs": list(lesson.evidence),
    }


def _show(lessons: Sequence[Lesson], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"lessons": [_row(one) for one in lessons]})
        return
    rows = [
        (one.id, str(one.state), f"{one.shown[1]:g}/{one.shown[0]}", f"{one.withheld[1]:g}/{one.withheld[0]}", one.text)
        for one in lessons
    ]
    output.print_table(("lesson", "state", "right with", "without", "text"), rows, right=("right with", "without"))
