"""`eval`: any conductors over any taskset, beside the controls that every claim needs.

Invariants: whatever was played stays in the evaluation's folder, so that the same command goes on where it was stopped
or killed; the table goes to stdout, progress to stderr; with `--json -` stdout holds the report and nothing else.
Deliberately absent: opinions on the figures; the report says what the intervals allow.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import ConfigOption, JournalOption
from shikisha.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.config.stage import Setup
    from shikisha.evaluate.course import Controls
    from shikisha.evaluate.entries import Report
    from shikisha.workers.replay import Says

_KEEP = "evaluations"
_REHEARSALS = ("rehearsal", "rehearsal-large")
_YARDSTICKS = {  # written by hand, beside whatever is evaluated on the rehearsal; the last is told every worker's skill
    "keyword router": "rehearsal:keyword-router",
    "hand-written rules": "rehearsal:rules",
    "optimum": "rehearsal:optimal",
}
STDOUT = "-"
_REPLIES: "Mapping[str, Says]" = {"answer": "answer", "response": "response", "both": "both"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is evaluated: which tasks, which workers."""

    log: Annotated[
        Path | None, typer.Option("--log", help="An outcome log: its workers are replayed on its tasks.")
    ] = None
    taskset: Annotated[
        str, typer.Option("--taskset", help="A taskset by name (NAME, NAME:PATH, NAME@hub), or a file of rows.")
    ] = ""
    data: Annotated[Path | None, typer.Option("--data", help="The folder of all tasksets; else $SHIKISHA_DATA.")] = None
    split: Annotated[str, typer.Option("--split", help="train, dev, or test (also: heldout); by default all.")] = ""
    tasks: Annotated[int | None, typer.Option("--tasks", min=1, help="Take so many tasks, chosen by --seed.")] = None
    seed: Annotated[int, typer.Option("--seed", help="Which tasks, and which random plans.")] = 0
    workers: Annotated[str, typer.Option("--workers", "-w", help="Workers by name, as in a,b,c; by default all.")] = ""
    conductor: Annotated[
        list[str] | None, typer.Option("--conductor", "-C", help="A conductor, or LABEL=CONDUCTOR; may be repeated.")
    ] = None
    reply: Annotated[
        str,
        typer.Option("--reply", help="What replayed workers say: the extracted answer, the whole response, or both."),
    ] = "answer"
    checker: Annotated[str, typer.Option("--checker", help="The checker of a user's own rows that name none.")] = ""
    judge: Annotated[str, typer.Option("--judge", help="The worker that judges where a task asks for a judge.")] = ""
    contamination: Annotated[
        list[str] | None,
        typer.Option("--contamination", help="Name the tasks that are in this taskset too; may be repeated."),
    ] = None
    sandbox: Annotated[
        str, typer.Option("--sandbox", help="Where answers that are code are tested; the first that holds by default.")
    ] = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How it is played, and when it stops."""

    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Tasks in flight.")] = 64
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Processes that play; for big logs all cores.")
    ] = None
    ray: Annotated[str, typer.Option("--ray", help="Spread the tasks over a Ray cluster: its address, or `auto`.")] = ""
    dollars: Annotated[float | None, typer.Option("--dollars", min=0, help="Spend at most so many US dollars.")] = None
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.001, help="Stop after so many seconds.")] = None
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Play the tasks that failed once more.")] = False
    controls: Annotated[
        str,
        typer.Option("--controls", help="What plays beside: none, free (no further call), all; free where calls cost."),
    ] = ""
    keep: Annotated[
        Path | None, typer.Option("--keep", help="The folder that keeps what is played; one is made by default.")
    ] = None


@dataclass(frozen=True, slots=True)
class Showing:
    """What is written, and where."""

    json: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - writes it to stdout.")] = None
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")] = None
    frontier: Annotated[
        Path | None,
        typer.Option("--frontier", help="Write what every budget comes to with the policy that is asked for, as JSON."),
    ] = None


def evaluate(
    subject: Subject,
    limits: Limits,
    showing: Showing,
    config: ConfigOption = None,
    journal: JournalOption = None,
) -> Exit:
    """Evaluate conductors on a taskset or an outcome log.

    Every single worker, random plans, the best fixed topology (chosen on other tasks), self-consistency at equal cost
    and the oracle stand beside them; on the rehearsal also a keyword router, hand-written rules and the optimum. Where
    calls cost money only those controls do that need no further call, unless --controls all says so, and how many calls
    there may be, and at which price, is said before the first. The same command goes on where it was stopped, and pays
    for no call twice.
    """
    from shikisha.config.evaluating import Plan, perform

    _refuse_missing(showing)
    setup = _setup(subject, limits, config, journal)
    plan = Plan(
        setup,
        _conductors(subject),
        at_once=limits.at_once,
        processes=limits.processes,
        ray=limits.ray or None,
        seconds=limits.seconds,
        retry_failed=limits.retry_failed,
        against=tuple(subject.contamination or ()),
        controls=_controls(limits.controls),
    )
    if showing.frontier is not None:
        _frontier(showing.frontier, setup, subject.conductor or ())
    console = out.console()
    with redirect_stdout(sys.stderr):  # what a user's function prints is no part of the report
        report = session.perform(lambda: perform(plan, console))
    _write(report, showing)
    if showing.json is None or str(showing.json) != STDOUT:
        from shikisha.evaluate.table import show

        show(report, out.console(to_stdout=True))
    return Exit.OK if report.complete else Exit.CAPPED


def _controls(name: str) -> "Controls | None":
    from shikisha.evaluate.course import Controls

    if name and name not in tuple(Controls):
        raise ConfigError(f"--controls: expected {', '.join(Controls)}, not {name!r}")
    return Controls(name) if name else None


def _conductors(subject: Subject) -> tuple[str, ...]:
    """Return the conductors asked for, and on the rehearsal those that a person would write."""
    asked = tuple(subject.conductor or ())
    if subject.taskset not in _REHEARSALS:
        return asked
    known = {name.rpartition("=")[2] for name in asked}
    large = {"hand-written rules": "rehearsal:rules-large"} if subject.taskset != _REHEARSALS[0] else {}
    beside = _YARDSTICKS | large
    return (*asked, *(f"{label}={name}" for label, name in beside.items() if name not in known))


def _refuse_missing(showing: Showing) -> None:
    """Refuse what would be missing, or could not be written, when everything has been played and paid."""
    for library, purpose in (("numpy", "eval"), *((("jinja2", "eval --html"),) if showing.html else ())):
        if find_spec(library) is None:
            raise MissingExtra("eval", purpose)
    for path in (showing.json, showing.html, showing.frontier):
        if path is not None and str(path) != STDOUT:
            _writable(path)


def _writable(path: Path) -> None:
    """Refuse a path that cannot be written; what was made to find out is taken away again."""
    made = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            for each in made:
                each.unlink(missing_ok=True) if each == path else each.rmdir()


def _setup(subject: Subject, limits: Limits, config: Path | None, journal: str | None) -> "Setup":
    from shikisha.config.stage import Setup
    from shikisha.taskset import split_called

    if subject.reply not in _REPLIES:
        raise ConfigError(f"--reply: expected {', '.join(_REPLIES)}, not {subject.reply!r}")
    setup = Setup(
        keep="",
        log=str(subject.log) if subject.log else None,
        taskset=subject.taskset or None,
        data=str(subject.data) if subject.data else None,
        split=split_called(subject.split).value if subject.split else None,  # one name: the same folder for both
        tasks=subject.tasks,
        seed=subject.seed,
        workers=tuple(name.strip() for name in subject.workers.split(",") if name.strip()),
        config=str(config) if config else None,
        judge=subject.judge or None,
        checker=subject.checker or None,
        sandbox=subject.sandbox,
        dollars=limits.dollars,
        journal=journal,
        reply=_REPLIES[subject.reply],
    )
    keep = limits.keep or Path(_KEEP) / _name(setup)
    return replace(setup, keep=str(keep), evaluation=f"eval-{sha256(str(keep.absolute()).encode()).hexdigest()[:8]}")


def _name(setup: "Setup") -> str:
    """Return a name that the same evaluation always gets: what it is of, and a hash of how."""
    of = Path(setup.log or setup.taskset or "nothing").name.replace(":", "-")
    how = sha256(replace(setup, dollars=None).dumps().encode()).hexdigest()[:8]
    return f"{of}-{how}"


def _frontier(path: Path, setup: "Setup", conductors: Sequence[str]) -> None:
    from shikisha.config.frontier import frontiers

    told = json.dumps(frontiers(setup, conductors), indent=1)
    if str(path) == STDOUT:
        out.line(told)
    else:
        _to_file(path, told)


def _write(report: "Report", showing: Showing) -> None:
    from shikisha.evaluate.report import dumps

    if showing.json is not None and str(showing.json) == STDOUT:
        out.line(dumps(report))
    elif showing.json is not None:
        _to_file(showing.json, dumps(report))
    if showing.html is not None:
        from shikisha.evaluate.page import render

        _to_file(showing.html, render(report))


def _to_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    out.note(f"written: {path}")
