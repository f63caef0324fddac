"""`eval grade`: scores for the answers of an outcome log that nobody graded, by a grader or by a judge.

Invariant: what is graded, and at what price, is said before the first call; the log itself is never changed.
"""

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, JsonOption
from shikisha.config.container import Container, load_config
from shikisha.config.log_grading import GradingRequest, parse_settings, perform_grading, plan_grading
from shikisha.core.errors import ConfigError
from shikisha.outcomes.log_writer import LogSummary

LogFolder = Annotated[Path, typer.Argument(metavar="LOG", help="The folder of an outcome log.")]
GradedFolder = Annotated[Path, typer.Option("--out", "-o", help="The folder to write the graded log into.")]
GraderName = Annotated[
    str | None,
    typer.Option(
        "--grader", metavar="KIND", help="choice, number, text, math, regex, json_schema, code or entry_point."
    ),
]
GraderSetting = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="NAME=VALUE", help="A setting of the grader; may be repeated."),
]
JudgeName = Annotated[
    str | None, typer.Option("--judge", metavar="WORKER", help="Let this worker judge; its scores are marked so.")
]
JudgeDollars = Annotated[
    float | None, typer.Option("--dollars", min=0, help="The most US dollars that the judge may cost.")
]
JudgeItself = Annotated[bool, typer.Option("--judge-itself", help="Let a judge judge its own answers, too.")]
OnlyPrice = Annotated[bool, typer.Option("--price", help="Show what would be graded, at what price, and stop.")]


def grade(
    log: LogFolder,
    to: GradedFolder,
    grader: GraderName = None,
    setting: GraderSetting = None,
    judge: JudgeName = None,
    dollars: JudgeDollars = None,
    judge_itself: JudgeItself = False,
    price: OnlyPrice = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Grade the answers of an outcome log that have no score.

    A grader compares with the tasks' right answers, or checks a form. A judge is a worker that is asked about every
    answer. Equal answers are graded once. What it will cost is shown first.
    """
    if grader is not None and judge is not None and grader != "judge":
        raise ConfigError("--grader and --judge: expected one of them")
    request = GradingRequest(log, grader or "judge", parse_settings(setting or ()), judge, dollars, judge_itself)
    if price:
        request = GradingRequest(log, request.grader, request.settings, judge, float("inf"), judge_itself)
    written = session.run_async(lambda: _grade(load_config(config), request, to, only_price=price))
    if written is None:
        return ExitCode.OK
    if json:
        output.print_json({"written": str(to), "outcomes": written.outcomes, "graded": written.graded})
        return ExitCode.OK
    for what, count in {**written.remarks, **written.left}.items():
        output.print_note(f"note: {what}: {count:,}")
    output.print_answer(f"{to}: {written.graded:,} of {written.outcomes:,} outcomes have a score")
    return ExitCode.OK


async def _grade(container: Container, request: GradingRequest, to: Path, *, only_price: bool) -> LogSummary | None:
    """Tell what is graded at what price, then grade; None where only the price was asked for."""
    async with aclosing(container):
        plan = plan_grading(container, request)
        output.print_note(plan.describe())
        return None if only_price else await perform_grading(plan, to, _progress(len(plan.answers)))


def _progress(total: int) -> Callable[[int], None]:
    """Return what prints how far grading is, some ten times."""
    step = max(1, total // 10)

    def tell(done: int) -> None:
        if done % step == 0 and done < total and total > step:
            output.print_note(f"graded: {done:,} of {total:,}")

    return tell
