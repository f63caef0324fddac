"""`learned`: one place to see what was learned from what, what it brought, what was retired, and whether it is used.

Invariants: only files that the configuration names are shown; a file whose hash does not fit is named as such and never
read further; runs that were erased since are counted, so that a file can be made again without them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.core.errors import ConfigError
from shikisha.core.run import Run

if TYPE_CHECKING:
    from shikisha.config.container import Container
    from shikisha.learned.learned_file import LearnedFile

Erased = Annotated[
    bool, typer.Option("--check", help="Look in the journal which runs of the evidence are still there.")
]
Other = Annotated[
    Path | None, typer.Option("--diff", help="Say what differs between this learned file and the one in use.")
]


Reader: TypeAlias = "Callable[[str, Path, bool], LearnedRow]"


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """One thing learned: what and which file, its version, runs, labels, what it brought, and whether it is used."""

    what: str
    file: str
    version: str
    runs: tuple[str, ...]
    labels: tuple[str, ...]
    brought: str
    retired: str
    used: bool
    made: float = 0.0


def learned(shared: SharedOptions, check: Erased = False, diff: Other = None) -> ExitCode:
    """Show what was learned from runs, what it brought, and what of it is used.

    Switches are in [learned] use. To roll back, name an earlier file; each file has its version and its evidence.
    """
    from shikisha.config.container import load_config

    container = load_config(shared.config)
    rows = list(learned_rows(container))
    if diff is not None:
        return _show_difference(rows, diff, as_json=shared.json)
    gone = session.run_async(lambda: _gone(shared, rows)) if check else {}
    if shared.json:
        output.print_json(
            {
                "learned": [
                    {"what": row.what, "file": row.file, "version": row.version, "runs": len(row.runs)}
                    | {"labels": list(row.labels), "brought": row.brought, "retired": row.retired, "used": row.used}
                    | {"erased": gone.get(row.file, 0)}
                    for row in rows
                ]
            }
        )
        return ExitCode.OK
    if not rows:
        output.print_note("nothing learned is configured: see `shikisha learn steps`, `tune`, `memory` and `skills`")
        return ExitCode.OK
    shown = [
        (row.what, "on" if row.used else "off", row.version[:12], str(len(row.runs)), _day(row.made), row.brought)
        for row in rows
    ]
    output.print_table(("what", "use", "version", "runs", "made", "what it brought"), shown, right=("runs",))
    for row in rows:
        if row.retired:
            output.print_note(f"{row.what}: {row.retired}")
        if gone.get(row.file):
            output.print_note(f"{row.file}: {gone[row.file]} of its runs were erased: make it again")
    return ExitCode.OK


def learned_rows(container: "Container") -> Iterator[LearnedRow]:
    """Yield what the configuration names; a file that cannot be read is a row that says why."""
    settings, folder = container.settings, container.folder
    table = settings.learned
    used = table.use
    if settings.notes.file is not None:
        yield _guarded("notes", folder / settings.notes.file, "notes" in used, _notes_row)
    for name, conductor in settings.conductors.items():
        if conductor.kind == "value":
            yield _guarded(f"values ({name})", folder / conductor.file, "values" in used, _file_row)
    if settings.conductor.startswith("value:"):
        target = settings.conductor.removeprefix("value:").partition("?")[0]
        yield _guarded("values", Path(target), "values" in used, _file_row)
    if table.prompt is not None:
        yield _guarded("prompt", folder / table.prompt, "prompt" in used, _file_row)
    if table.lessons is not None:
        yield _guarded("lessons", folder / table.lessons, "lessons" in used, _lessons_row)
    if table.skills is not None:
        yield from _skill_rows(folder / table.skills, "skills" in used)


def _guarded(what: str, file: Path, used: bool, read: Reader) -> LearnedRow:
    try:
        return read(what, file, used)
    except ConfigError as error:
        return LearnedRow(what, str(file), "", (), (), f"refused: {error}", "", used=False)


def _file_row(what: str, file: Path, used: bool) -> LearnedRow:
    from shikisha.learned.learned_file import read_learned

    found = read_learned(file)
    brought = "not measured" if found.gain is None else found.gain.describe()
    return LearnedRow(what, str(file), found.version, found.evidence, found.labels, brought, "", used, found.made)


def _notes_row(what: str, file: Path, used: bool) -> LearnedRow:
    from shikisha.notes.worker_notes import load_notes

    found = load_notes(file)
    runs = tuple(dict.fromkeys(run for note in found.notes for run in note.runs))
    labels = tuple(sorted({label for note in found.notes for label in note.labels}))
    return LearnedRow(what, str(file), found.version, runs, labels, "not measured", "", used, file.stat().st_mtime)


def _lessons_row(what: str, file: Path, used: bool) -> LearnedRow:
    from shikisha.learned.lessons import LessonState, load_book

    book = load_book(file)
    kept = [one for one in book.lessons if one.state is LessonState.KEPT]
    trial = [one for one in book.lessons if one.state is LessonState.TRIAL]
    retired = [one for one in book.lessons if one.state is LessonState.RETIRED]
    best = max(kept, key=lambda one: one.gain.low, default=None)
    brought = f"{len(kept)} kept, {len(trial)} on trial" + ("" if best is None else f"; best: {best.gain.describe()}")
    why = "; ".join(f"retired {one.id}: {one.gain.describe()}" for one in retired[:5])
    source = book.source
    return LearnedRow(what, str(file), source.version, source.evidence, source.labels, brought, why, used, source.made)


def _skill_rows(folder: Path, used: bool) -> Iterator[LearnedRow]:
    from shikisha.learned.learned_file import read_learned
    from shikisha.learned.skills import read_skill

    def row(_: str, file: Path, used: bool) -> LearnedRow:
        skill, source = read_skill(file), read_learned(file / "plan.json")
        tried, same = skill.replays
        state = "" if skill.admitted else "not used: not every replay was right"
        brought = f"right in {same} of {tried} replays"
        return LearnedRow(
            f"skill {skill.name}", str(file), source.version, skill.evidence, skill.labels, brought, state,
            used and skill.admitted, source.made,
        )  # fmt: skip

    for path in sorted(folder.glob("*/plan.json")):
        yield _guarded(f"skill {path.parent.name}", path.parent, used, row)


async def _gone(shared: SharedOptions, rows: list[LearnedRow]) -> Mapping[str, int]:
    """Return by file how many runs of its evidence were erased, or are not in the journal."""
    async with session.open_existing_journal(shared) as journal:
        there = {one.id for one in await journal.runs(limit=2**31)}
        found = {}
        for row in rows:
            erased = 0
            for run in row.runs:
                erased += run not in there or Run.fold(await journal.read(run)).erased is not None
            found[row.file] = erased
        return found


def _show_difference(rows: list[LearnedRow], other: Path, *, as_json: bool) -> ExitCode:
    from shikisha.learned.learned_file import read_learned

    theirs = read_learned(other)
    same_kind = [
        found
        for row in rows
        if row.version and Path(row.file).is_file()
        if (found := read_learned_or_none(Path(row.file))) is not None and found.kind == theirs.kind
    ]
    if not same_kind:
        raise ConfigError(f"{other}: no file of this kind ({theirs.kind}) is in use")
    ours = same_kind[0]
    changed = sorted(
        key for key in {*ours.content, *theirs.content} if ours.content.get(key) != theirs.content.get(key)
    )
    added, gone = set(ours.evidence) - set(theirs.evidence), set(theirs.evidence) - set(ours.evidence)
    if as_json:
        output.print_json(
            {"in_use": ours.version, "other": theirs.version, "changed": changed}
            | {"runs_added": len(added), "runs_gone": len(gone)}
        )
        return ExitCode.OK
    output.print_answer(f"in use {ours.short_version}, other {theirs.short_version}")
    output.print_answer(f"differs in: {', '.join(changed) or 'nothing'}")
    output.print_answer(f"runs: {len(added)} only in use, {len(gone)} only in the other")
    return ExitCode.OK


def read_learned_or_none(file: Path) -> "LearnedFile | None":
    """Read a learned file; None for a file of another format, such as notes."""
    from shikisha.learned.learned_file import read_learned

    try:
        return read_learned(file)
    except ConfigError:
        return None


def _day(made: float) -> str:
    return datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d") if made else ""
