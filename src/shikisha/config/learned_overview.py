"""What a configuration's learned files say: from which runs, what it brought, what was retired, and what is in use.

Invariants: only files that the configuration names are read; one whose hash does not fit is a row that says so and is
read no further. Needs numpy (extra `eval`), so that it is imported where somebody looks.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from shikisha.config.container import Container
from shikisha.config.learned_settings import ValueTable
from shikisha.config.learned_switches import SKILL_SWITCH, SwitchedOff
from shikisha.core.errors import ConfigError
from shikisha.core.task import Scope, join_scopes
from shikisha.learned.learned_file import LearnedGain, read_learned
from shikisha.learned.lessons import Lesson, LessonBook, LessonState, load_book
from shikisha.learned.skills import Skill, read_skill
from shikisha.learned.tuned_prompt import PROMPT, advice_of
from shikisha.notes.worker_notes import load_notes
from shikisha.routing.policy_registry import policy_path, read_registry

_NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """One thing learned: what and which file, its version, runs, scope, what it brought, and whether it is used.

    `switch` is the name of its switch; `off` says who switched it off; `refused` that its file cannot be used.
    """

    what: str
    file: str
    version: str
    runs: tuple[str, ...]
    scope: Scope | None
    brought: str
    retired: str
    used: bool
    made: float = 0.0
    switch: str = ""
    gain: LearnedGain | None = None
    configured: bool = True
    off: SwitchedOff | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Switch:
    """Whether something may be used, by the configuration and by the switches."""

    name: str
    configured: bool
    off: SwitchedOff | None

    @property
    def used(self) -> bool:
        return self.configured and self.off is None


_Reader: TypeAlias = Callable[[str, Path, _Switch], LearnedRow]


def learned_rows(container: Container) -> Iterator[LearnedRow]:
    """Yield what the configuration names; a file that cannot be read is a row that says why."""
    settings, folder, off = container.settings, container.folder, container.switches.read()
    table = settings.learned

    def switch(name: str) -> _Switch:
        return _Switch(name, name in table.use, off.get(name))

    if settings.notes.file is not None:
        yield _guarded("notes", folder / settings.notes.file, switch("notes"), _notes_row)
    for name, conductor in settings.conductors.items():
        if isinstance(conductor, ValueTable):
            yield _guarded(f"values ({name})", folder / conductor.file, switch("values"), _file_row)
    if settings.conductor.startswith("value:"):
        target = settings.conductor.removeprefix("value:").partition("?")[0]
        yield _guarded("values", Path(target), switch("values"), _file_row)
    if table.prompt is not None:
        yield _guarded("prompt", folder / table.prompt, switch("prompt"), _file_row)
    if table.lessons is not None:
        yield _guarded("lessons", folder / table.lessons, switch("lessons"), _lessons_row)
    if table.skills is not None:
        yield from _skill_rows(folder / table.skills, switch("skills"), off)


def learned_lessons(container: Container) -> LessonBook | None:
    """Return the lessons that the configuration names; None where there are none, or their file is refused."""
    file = container.settings.learned.lessons
    try:
        return None if file is None else load_book(container.folder / file)
    except ConfigError:
        return None


def learned_advice(row: LearnedRow) -> str:
    """Return the advice in a row's file; empty for a file of another kind."""
    found = read_learned(Path(row.file))
    return advice_of(found, row.file) if found.kind == PROMPT else ""


def learned_skills(container: Container) -> list[Skill]:
    """Return the skills that the configuration names, without those that are refused."""
    folder, found = container.settings.learned.skills, list[Skill]()
    for path in sorted((container.folder / folder).glob("*/plan.json")) if folder is not None else ():
        with suppress(ConfigError):
            found.append(read_skill(path.parent))
    return found


def _guarded(what: str, file: Path, switch: _Switch, read: _Reader) -> LearnedRow:
    try:
        return read(what, file, switch)
    except ConfigError as error:
        return LearnedRow(
            what, str(file), "", (), None, f"refused: {error}", "", used=False, switch=switch.name,
            configured=switch.configured, off=switch.off, refused=True,
        )  # fmt: skip


def _file_row(what: str, file: Path, switch: _Switch) -> LearnedRow:
    versions = ""
    if file.is_dir():
        registry = read_registry(file)
        canary = registry.canary
        others = f"; canary {canary.version} on {canary.share:.0%} of the tasks" if canary is not None else ""
        versions = f"live {registry.live} of {len(registry.policies)} versions{others}"
        file = policy_path(file, registry.live)
    found = read_learned(file)
    brought = _NOT_MEASURED if found.gain is None else found.gain.describe()
    return LearnedRow(
        what, str(file), found.version, found.evidence, found.scope, brought, versions, switch.used, found.made,
        switch.name, found.gain, switch.configured, switch.off,
    )  # fmt: skip


def _notes_row(what: str, file: Path, switch: _Switch) -> LearnedRow:
    found = load_notes(file)
    runs = tuple(dict.fromkeys(run for note in found.notes for run in note.runs))
    scope = join_scopes(note.scope for note in found.notes)
    made = file.stat().st_mtime
    forgotten = "; ".join(f"forgot {fall.worker} up to run {fall.run}" for fall in found.falls[-5:])
    return LearnedRow(
        what, str(file), found.version, runs, scope, _NOT_MEASURED, forgotten, switch.used, made, switch.name,
        configured=switch.configured, off=switch.off,
    )  # fmt: skip


def _lessons_row(what: str, file: Path, switch: _Switch) -> LearnedRow:
    book = load_book(file)
    kept = [one for one in book.lessons if one.state is LessonState.KEPT]
    trial = [one for one in book.lessons if one.state is LessonState.TRIAL]
    retired = [one for one in book.lessons if one.state is LessonState.RETIRED]
    best = max(kept, key=lambda one: one.gain.low, default=None)
    brought = f"{len(kept)} kept, {len(trial)} on trial" + ("" if best is None else f"; best: {best.gain.describe()}")
    why = "; ".join(f"retired {one.id}: {_why_retired(one)}" for one in retired[:5])
    source = book.source
    return LearnedRow(
        what, str(file), source.version, source.evidence, source.scope, brought, why, switch.used, source.made,
        switch.name, None if best is None else best.gain, switch.configured, switch.off,
    )  # fmt: skip


def _why_retired(lesson: Lesson) -> str:
    measured = min(lesson.shown[0], lesson.withheld[0]) > 0
    return lesson.gain.describe() if measured else "by hand, before it was measured"


def _skill_rows(folder: Path, all_skills: _Switch, off: Mapping[str, SwitchedOff]) -> Iterator[LearnedRow]:
    def row(_: str, file: Path, switch: _Switch) -> LearnedRow:
        skill, source = read_skill(file), read_learned(file / "plan.json")
        tried, same = skill.replays
        state = "" if skill.admitted else "not used: not every replay was right"
        state = f"retired: {skill.retired}" if skill.retired else state
        return LearnedRow(
            f"skill {skill.name}", str(file), source.version, skill.evidence, skill.scope,
            f"right in {same} of {tried} replays", state, switch.used and all_skills.used and skill.admitted,
            source.made, switch.name, None, switch.configured, switch.off or all_skills.off,
        )  # fmt: skip

    for path in sorted(folder.glob("*/plan.json")):
        name = f"{SKILL_SWITCH}{path.parent.name}"
        yield _guarded(name, path.parent, _Switch(name, all_skills.configured, off.get(name)), row)
