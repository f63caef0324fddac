"""`eval`: evaluate any conductors on any taskset, with the baselines that every claim needs.

Invariants: samples and replies stay in the evaluation's folder, so that the same command continues where it was stopped
or killed; the table goes to stdout, progress to stderr; with `--json -` stdout holds the report and nothing else.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, JournalOption
from shikisha.config.adapters import require_extra
from shikisha.config.eval_tasks import EvaluationSetup
from shikisha.config.evaluation import EvaluationRequest, run_evaluation
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.evals.baselines import BaselineMode
from shikisha.evals.html_report import render_html_report
from shikisha.evals.report import dump_report
from shikisha.evals.samples import RUNS_FILE
from shikisha.evals.taskset import parse_split
from shikisha.evals.terminal_report import print_report
from shikisha.workers.replay import ReplayContent

_DEFAULT_FOLDER = "evaluations"
_REPLY_KINDS: Mapping[str, ReplayContent] = {"answer": "answer", "response": "response", "both": "both"}


@dataclass(frozen=True, slots=True)
class EvalSubjectOptions:
    """What is evaluated: the tasks, the workers and the conductors."""

    log: Annotated[
        Path | None, typer.Option("--log", help="An outcome log, whose workers are replayed on its tasks.")
    ] = None
    taskset: Annotated[
        str, typer.Option("--taskset", help="A taskset by name (NAME, NAME:PATH, NAME@hub), or a file of rows.")
    ] = ""
    split: Annotated[str, typer.Option("--split", help="train, dev or test (or heldout); by default all tasks.")] = ""
    tasks: Annotated[int | None, typer.Option("--tasks", min=1, help="How many tasks to take, sampled by --seed.")] = (
        None
    )
    seed: Annotated[int, typer.Option("--seed", help="The seed of sampled tasks and of random plans.")] = 0
    workers: Annotated[str, typer.Option("--workers", "-w", help="Workers by name, as in a,b,c; by default all.")] = ""
    conductor: Annotated[
        list[str] | None, typer.Option("--conductor", "-C", help="A conductor, or LABEL=CONDUCTOR; may be repeated.")
    ] = None
    reply: Annotated[
        str,
        typer.Option(
            "--reply", help="What replayed workers return: the extracted answer, the whole response, or both."
        ),
    ] = "answer"
    grader: Annotated[
        str, typer.Option("--grader", "--checker", help="The grader of rows of your own that name none.")
    ] = ""
    judge: Annotated[str, typer.Option("--judge", help="The worker that grades where a task needs a judge.")] = ""
    contamination: Annotated[
        list[str] | None,
        typer.Option("--contamination", help="Report which tasks are in this taskset too; may be repeated."),
    ] = None
    sandbox: Annotated[
        str,
        typer.Option(
            "--sandbox", help="The sandbox for answers that are code; by default the first that passes its probes."
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class EvalLimitOptions:
    """How the evaluation runs, and when it stops."""

    at_once: Annotated[int, typer.Option("--at-once", min=1, help="How many tasks run at once.")] = 64
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="How many processes; for large logs all cores.")
    ] = None
    ray: Annotated[
        str, typer.Option("--ray", help="Distribute the tasks over a Ray cluster: its address, or `auto`.")
    ] = ""
    dollars: Annotated[float | None, typer.Option("--dollars", min=0, help="The most US dollars to spend.")] = None
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.001, help="The most seconds to take.")] = None
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run the failed tasks again.")] = False
    controls: Annotated[
        str,
        typer.Option(
            "--controls",
            help="Baselines to run: none, free (no further calls) or all; free is the default where calls cost.",
        ),
    ] = ""
    steps: Annotated[
        bool | None,
        typer.Option(
            "--steps/--no-steps",
            help="Keep plans, steps and answers for `shikisha eval show`; the default for your own workers.",
        ),
    ] = None
    keep: Annotated[
        Path | None, typer.Option("--keep", help="The folder for samples and replies; by default one in ./evaluations.")
    ] = None


@dataclass(frozen=True, slots=True)
class EvalOutputOptions:
    """Which files are written."""

    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="[FILE]", help="Print one JSON value to stdout, or write it to FILE."),
    ] = None
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")] = None
    frontier: Annotated[
        Path | None,
        typer.Option("--frontier", help="Write the cost-accuracy frontier of the policy that is evaluated, as JSON."),
    ] = None


def evaluate(
    subject: EvalSubjectOptions,
    limits: EvalLimitOptions,
    outputs: EvalOutputOptions,
    config: ConfigOption = None,
    journal: JournalOption = None,
) -> ExitCode:
    """Evaluate conductors on a taskset or an outcome log.

    The baselines are every single worker, random plans, the best fixed topology (chosen on other tasks),
    self-consistency at equal cost, and the oracle. Where calls cost money, only baselines without further calls run,
    unless you pass --controls all; the largest number of calls and their price are printed before the first. The same
    command continues where it was stopped, and pays for no call twice.
    """
    # What would be missing, or could not be written, after the last call is refused before the first.
    require_extra("eval", "eval", "numpy")
    if outputs.html is not None:
        require_extra("eval", "eval --html")
    for path in (outputs.json, outputs.html, outputs.frontier):
        if path is not None and str(path) != output.STDOUT:
            output.refuse_unwritable(path)
    setup = _build_setup(subject, limits, config, journal)
    request = EvaluationRequest(
        setup,
        tuple(subject.conductor or ()),
        at_once=limits.at_once,
        processes=limits.processes,
        ray=limits.ray or None,
        seconds=limits.seconds,
        retry_failed=limits.retry_failed,
        against=tuple(subject.contamination or ()),
        controls=_controls(limits.controls),
    )
    if outputs.frontier is not None:
        _write_frontier(outputs.frontier, setup, subject.conductor or ())
    console = output.make_console()
    with redirect_stdout(sys.stderr):  # a grading function of the user may print, and the report must stay valid
        report = session.run_async(lambda: run_evaluation(request, console))
    if outputs.json is not None and str(outputs.json) == output.STDOUT:
        output.print_line(dump_report(report))
    elif outputs.json is not None:
        output.write_file(outputs.json, dump_report(report))
    if outputs.html is not None:
        output.write_file(outputs.html, render_html_report(report))
    if outputs.json is None or str(outputs.json) != output.STDOUT:
        print_report(report, output.make_console(to_stdout=True))
    return ExitCode.OK if report.complete else ExitCode.CAPPED


def _controls(name: str) -> BaselineMode | None:
    if name and name not in tuple(BaselineMode):
        raise ConfigError(f"--controls: expected {', '.join(BaselineMode)}, not {name!r}")
    return BaselineMode(name) if name else None


def _build_setup(
    subject: EvalSubjectOptions, limits: EvalLimitOptions, config: Path | None, journal: str | None
) -> EvaluationSetup:
    if subject.reply not in _REPLY_KINDS:
        raise ConfigError(f"--reply: expected {', '.join(_REPLY_KINDS)}, not {subject.reply!r}")
    setup = EvaluationSetup(
        keep="",
        log=str(subject.log) if subject.log else None,
        taskset=subject.taskset or None,
        split=parse_split(subject.split).value if subject.split else None,  # synonyms share one folder
        tasks=subject.tasks,
        seed=subject.seed,
        workers=tuple(name.strip() for name in subject.workers.split(",") if name.strip()),
        config=str(config) if config else None,
        judge=subject.judge or None,
        grader=subject.grader or None,
        sandbox=subject.sandbox,
        dollars=limits.dollars,
        journal=journal,
        reply=_REPLY_KINDS[subject.reply],
    )
    keep = limits.keep or Path(_DEFAULT_FOLDER) / _folder_name(setup)
    if journal is None and (setup.log is None if limits.steps is None else limits.steps):
        setup = replace(setup, journal=str(keep / RUNS_FILE))
    return replace(setup, keep=str(keep), evaluation=f"eval-{sha256(str(keep.absolute()).encode()).hexdigest()[:8]}")


def _folder_name(setup: EvaluationSetup) -> str:
    """Return the name of an evaluation's folder: its subject, and a hash of its setup."""
    of = Path(setup.log or setup.taskset or "nothing").name.replace(":", "-")
    how = sha256(replace(setup, dollars=None).dumps().encode()).hexdigest()[:8]
    return f"{of}-{how}"


def _write_frontier(path: Path, setup: EvaluationSetup, conductors: Sequence[str]) -> None:
    from shikisha.config.policy_frontier import policy_frontiers  # with numpy, which `eval --help` need not import

    text = json.dumps(policy_frontiers(setup, conductors), indent=1)
    if str(path) == output.STDOUT:
        output.print_line(text)
    else:
        output.write_file(path, text)
