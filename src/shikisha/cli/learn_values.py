"""`learn steps` and `learn plans`: learn from the journal who should do which step of a plan, and in what form.

Invariants: nothing is written that is not shown to be at least as good as what is in force, by a trial where there was
one, else by an estimate on runs that were held out; what rests on an estimate alone is marked to act on half of the
tasks, so that the next `learn` has a trial; what could not be written at the end is refused at the beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, TenantOption
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.learned.fit_step_value import PHRASES, fit_step_value
from shikisha.learned.learned_file import LearnedFile, write_learned
from shikisha.learned.step_samples import RunSample, run_samples
from shikisha.learned.step_value_gain import MIN_RUNS, StepValueEvidence, evaluate_step_value


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """From which runs step values are learned, and where they are written."""

    to: Annotated[Path, typer.Option("--out", "-o", help="The file of step values to write.")]
    worth: Annotated[float, typer.Option("--worth", min=1e-6, help="US dollars that a right answer is worth.")] = 0.05
    labels: Annotated[
        str, typer.Option("--labels", help="Learn from runs with these labels (a,b), and act on tasks that bear them.")
    ] = ""
    tenant: TenantOption = None
    trial: Annotated[
        bool, typer.Option("--trial", help="Write what is not shown to gain, too: it acts on half of the tasks.")
    ] = False


def steps(shared: SharedOptions, options: ValueOptions) -> ExitCode:
    """Learn from the journal which worker should do which step.

    Uses graded runs, failed checks and workers' agreement. Use the file as `value:FILE?over=CONDUCTOR`.
    """
    return _learn(shared, options, forms=False)


def plans(shared: SharedOptions, options: ValueOptions) -> ExitCode:
    """Learn from the journal which plan to perform: workers, checks of steps, phrases that help a worker.

    Uses graded runs, failed checks and agreement. Use it as `value:FILE?over=CONDUCTOR&also=fixed:single`.
    """
    return _learn(shared, options, forms=True)


def _learn(shared: SharedOptions, options: ValueOptions, *, forms: bool) -> ExitCode:
    to, worth, trial = options.to, options.worth, options.trial
    output.refuse_unwritable(to)
    _, runs = session.read_runs(shared, options.tenant, options.labels)
    samples = run_samples(runs)
    evidence = evaluate_step_value(samples, worth)
    _show(evidence, shared.json)
    refusal = refusal_of(evidence, samples)
    if refusal and not trial:
        raise ConfigError(f"{refusal}. Nothing is written; --trial writes it, to act on half of the tasks")
    if not samples:
        raise ConfigError("there is no run with steps to learn from. Nothing is written")
    model = fit_step_value(samples, phrases=PHRASES if forms else ())
    model = model if forms else replace(model, check_gain=0.0)
    used = [run.run for run in samples]
    learned = model.to_file(used, evidence.gain, time())
    measured = evidence.trial is not None and evidence.trial.excludes_harm
    learned = replace(learned, content={**learned.content, "forms": forms, "trial": not measured})
    write_learned(to, learned)
    _say(to, learned, len(samples), measured=measured)
    return ExitCode.OK


def refusal_of(evidence: StepValueEvidence, samples: Sequence[RunSample]) -> str:
    """Say why step values are not shown to gain; empty where they are."""
    graded = sum(run.right is not None for run in samples)
    if evidence.is_shown:
        return ""
    if evidence.trial is not None:
        return f"a trial did not exclude harm: {evidence.trial.describe()}"
    if evidence.predictive is None:
        return f"expected at least {MIN_RUNS} graded runs with steps, found {graded}"
    if not evidence.predictive.excludes_harm:
        return f"step values predict no better than averages of workers: {evidence.predictive.describe()}"
    gain = evidence.gain
    return "no gain is shown" + ("" if gain is None else f": {gain.describe()}")


def _show(evidence: StepValueEvidence, as_json: bool) -> None:
    gains = {"predicts": evidence.predictive, "estimated": evidence.estimated, "trial": evidence.trial}
    if as_json:
        rows = [dict(zip(("conductor", "runs", "right", "dollars"), row, strict=True)) for row in evidence.in_force]
        found = {
            name: None if gain is None else {"mean": gain.mean, "low": gain.low, "high": gain.high, "tasks": gain.tasks}
            for name, gain in gains.items()
        }
        output.print_json({"in_force": rows, **found, "shown": evidence.is_shown})
        return
    rows_shown = [
        (name, str(runs), f"{right:.1%}", format_dollars(dollars)) for name, runs, right, dollars in evidence.in_force
    ]
    output.print_table(("in force", "runs", "right", "$ a run"), rows_shown, right=("runs", "right", "$ a run"))
    for name, gain in gains.items():
        if gain is not None:
            output.print_note(f"{name}: {gain.describe()}")


def _say(to: Path, learned: LearnedFile, runs: int, *, measured: bool) -> None:
    acts = "" if measured else "; it acts on half of the tasks, until a trial shows its gain"
    output.print_note(f"{to}: step values of {runs} runs, version {learned.short_version}{acts}")
