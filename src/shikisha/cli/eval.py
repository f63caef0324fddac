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

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, JournalOption
from shikisha.core.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.config.eval_setup import EvaluationSetup
    from shikisha.evals.baselines import BaselineMode
    from shikisha.evals.entrant_metrics import EvaluationReport
    from shikisha.workers.replay import ReplayContent

_DEFAULT_FOLDER = "evaluations"
_SIMULATED_TASKSETS = ("rehearsal", "rehearsal-large")
_SIMULATED_BASELINES = {  # written by hand, beside whatever is evaluated on the rehearsal; the last is told every worker's skill
    "keyword router": "rehearsal:keyword-router",
    "hand-written rules": "rehearsal:rules",
    "optimum": "rehearsal:optimal",
}
STDOUT = "-"
_REPLY_KINDS: "Mapping[str, ReplayContent]" = {"answer": "answer", "response": "response", "both": "both"}


@dataclass(frozen=True, slots=True)
class EvalSubjectOptions:
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
class EvalLimitOptions:
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
class EvalOutputOptions:
    """What is written, and where."""

    json: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - writes it to stdout.")] = None
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")] = None
    frontier: Annotated[
        Path | None,
        typer.Option("--frontier", help="Write what every budget comes to with the policy that is asked for, as JSON."),
    ] = None


def evaluate(
    subject: EvalSubjectOptions,
    limits: EvalLimitOptions,
    showing: EvalOutputOptions,
    config: ConfigOption = None,
    journal: JournalOption = None,
) -> ExitCode:
    """Evaluate conductors on a taskset or an outcome log.

    Every single worker, random plans, the best fixed topology (chosen on other tasks), self-consistency at equal cost
    and the oracle stand beside them; on the rehearsal also a keyword router, hand-written rules and the optimum. Where
    calls cost money only those controls do that need no further call, unless --controls all says so, and how many calls
    there may be, and at which price, is said before the first. The same command goes on where it was stopped, and pays
    for no call twice.
    """
    from shikisha.config.evaluation import EvaluationRequest, run_evaluation

    _refuse_missing(showing)
    setup = _build_setup(subject, limits, config, journal)
    plan = EvaluationRequest(
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
        _write_frontier(showing.frontier, setup, subject.conductor or ())
    console = output.make_console()
    with redirect_stdout(sys.stderr):  # what a user's function prints is no part of the report
        report = session.run_async(lambda: run_evaluation(plan, console))
    _write_report(report, showing)
    if showing.json is None or str(showing.json) != STDOUT:
        from shikisha.evals.terminal_report import print_report

        print_report(report, output.make_console(to_stdout=True))
    return ExitCode.OK if report.complete else ExitCode.CAPPED


def _controls(name: str) -> "BaselineMode | None":
    from shikisha.evals.baselines import BaselineMode

    if name and name not in tuple(BaselineMode):
        raise ConfigError(f"--controls: expected {', '.join(BaselineMode)}, not {name!r}")
    return BaselineMode(name) if name else None


def _conductors(subject: EvalSubjectOptions) -> tuple[str, ...]:
    """Return the conductors asked for, and on the rehearsal those that a person would write."""
    asked = tuple(subject.conductor or ())
    if subject.taskset not in _SIMULATED_TASKSETS:
        return asked
    known = {name.rpartition("=")[2] for name in asked}
    large = {"hand-written rules": "rehearsal:rules-large"} if subject.taskset != _SIMULATED_TASKSETS[0] else {}
    beside = _SIMULATED_BASELINES | large
    return (*asked, *(f"{label}={name}" for label, name in beside.items() if name not in known))


def _refuse_missing(showing: EvalOutputOptions) -> None:
    """Refuse what would be missing, or could not be written, when everything has been played and paid."""
    for library, purpose in (("numpy", "eval"), *((("jinja2", "eval --html"),) if showing.html else ())):
        if find_spec(library) is None:
            raise MissingExtra("eval", purpose)
    for path in (showing.json, showing.html, showing.frontier):
        if path is not None and str(path) != STDOUT:
            _refuse_unwritable(path)


def _refuse_unwritable(path: Path) -> None:
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


def _build_setup(
    subject: EvalSubjectOptions, limits: EvalLimitOptions, config: Path | None, journal: str | None
) -> "EvaluationSetup":
    from shikisha.config.eval_setup import EvaluationSetup
    from shikisha.evals.taskset import parse_split

    if subject.reply not in _REPLY_KINDS:
        raise ConfigError(f"--reply: expected {', '.join(_REPLY_KINDS)}, not {subject.reply!r}")
    setup = EvaluationSetup(
        keep="",
        log=str(subject.log) if subject.log else None,
        taskset=subject.taskset or None,
        data=str(subject.data) if subject.data else None,
        split=parse_split(subject.split).value if subject.split else None,  # one name: the same folder for both
        tasks=subject.tasks,
        seed=subject.seed,
        workers=tuple(name.strip() for name in subject.workers.split(",") if name.strip()),
        config=str(config) if config else None,
        judge=subject.judge or None,
        checker=subject.checker or None,
        sandbox=subject.sandbox,
        dollars=limits.dollars,
        journal=journal,
        reply=_REPLY_KINDS[subject.reply],
    )
    keep = limits.keep or Path(_DEFAULT_FOLDER) / _folder_name(setup)
    return replace(setup, keep=str(keep), evaluation=f"eval-{sha256(str(keep.absolute()).encode()).hexdigest()[:8]}")


def _folder_name(setup: "EvaluationSetup") -> str:
    """Return a name that the same evaluation always gets: what it is of, and a hash of how."""
    of = Path(setup.log or setup.taskset or "nothing").name.replace(":", "-")
    how = sha256(replace(setup, dollars=None).dumps().encode()).hexdigest()[:8]
    return f"{of}-{how}"


def _write_frontier(path: Path, setup: "EvaluationSetup", conductors: Sequence[str]) -> None:
    from shikisha.config.policy_frontier import policy_frontiers

    told = json.dumps(policy_frontiers(setup, conductors), indent=1)
    if str(path) == STDOUT:
        output.print_line(told)
    else:
        _write_file(path, told)


def _write_report(report: "EvaluationReport", showing: EvalOutputOptions) -> None:
    from shikisha.evals.report import dump_report

    if showing.json is not None and str(showing.json) == STDOUT:
        output.print_line(dump_report(report))
    elif showing.json is not None:
        _write_file(showing.json, dump_report(report))
    if showing.html is not None:
        from shikisha.evals.html_report import render_html_report

        _write_file(showing.html, render_html_report(report))


def _write_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    output.print_note(f"written: {path}")
