"""`learn` without a log, and `learn show|pin`: the learner's switch, versions and figures.

Invariants: what is shown comes from the models that act; nothing is learned that [learning] would not learn by itself.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.approval_prompt import current_user
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.config.container import Container, load_config
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.task import Scope
from shikisha.learned.journal_learner import JournalLearner
from shikisha.learned.learning_files import ScopeModels
from shikisha.learned.outcome_model import OutcomeModel

Version = Annotated[
    str,
    typer.Argument(
        metavar="VERSION|previous|off",
        help="The beginning of a version; previous: the one before that which acts; off: none, in every process.",
        show_default=False,
    ),
]
Shown = Annotated[
    str,
    typer.Argument(
        metavar="VERSION|live",
        help="Print this model, or all that act, as JSON with the runs that it comes from.",
        show_default=False,
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose model; by default the operator's.")]
Labels = Annotated[str, typer.Option("--labels", help="The model for tasks with these labels (a,b).")]
_FEW_GRADED, _FEW_CALLS = 0.3, 20


def learn_runs(config: Path | None, *, as_json: bool) -> ExitCode:
    """Learn once from the journal's runs, and show what was learned."""
    shared = SharedOptions(config=config, json=as_json)

    async def main() -> int:
        async with session.open_existing_journal(shared) as journal, session.open_container(shared) as container:
            learner = JournalLearner(container.learning_files(), journal, container.learning_terms())
            return len(await learner.look(force=True))

    made = session.run_async(main)
    output.print_note(f"{made} models learned" if made else "no run ended or was graded since the last time")
    return _report(load_config(config), as_json=as_json)


def show(shared: SharedOptions, version: Shown = "") -> ExitCode:
    """Show what was learned from what, what it brought, and what would tell more."""
    container = load_config(shared.config)
    if not version:
        return _report(container, as_json=shared.json)
    files, found = container.learning_files(), list[Path]()
    for one in files.index().scopes:
        live = one.pinned or one.live
        known = [live] if version == "live" else [live, *(each.version for each in one.versions)]
        found += [files.file(one, each) for each in known if version == "live" or each.startswith(version)]
    for file in found if version == "live" else found[:1]:  # live is one of each scope
        output.print_answer(file.read_text("utf-8").rstrip())
    if found:
        return ExitCode.OK
    raise ConfigError(f"no model of version {version} was learned; `shikisha learn show` lists those that act")


def pin(shared: SharedOptions, version: Version = "", tenant: Tenant = "", labels: Labels = "") -> ExitCode:
    """Choose which version of the model acts: one of your choice, none, or the newest.

    A version that is chosen acts whatever is learned. Without VERSION the newest one acts again.
    """
    files = load_config(shared.config).learning_files()
    scope = Scope(tenant, session.read_labels(labels))
    if version == "off":
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        files.switch(f"by {current_user()}, {stamp}")
        output.print_note("learning is off; `shikisha learn pin` switches it on again")
        return ExitCode.OK
    if version == "previous":
        known = next((one for one in files.index().scopes if one.scope == scope), None)
        versions = [] if known is None else [one.version for one in known.versions]
        at = versions.index(known.pinned or known.live) if known is not None else 0
        if not at:
            raise ConfigError("there is no earlier version to go back to")
        version = versions[at - 1]
    if not version:
        files.switch("")
    if version or files.index().scopes:
        files.pin(scope, version)
    output.print_note(
        f"version {version} is pinned; `shikisha learn pin` lets the newest act again"
        if version
        else "the newest version acts"
    )
    return ExitCode.OK


def _report(container: Container, *, as_json: bool) -> ExitCode:
    files, on = container.learning_files(), container.settings.learning.on
    index = files.index()
    models = [(one, files.read(one, one.pinned or one.live)) for one in index.scopes]
    if as_json:
        output.print_json({"on": on and not index.off, "off": index.off, "models": [_as_json(*one) for one in models]})
        return ExitCode.OK
    state = "off: write [learning] on = true" if not on else f"off {index.off}" if index.off else "on"
    output.print_line(f"Learning is {state}.")
    if not models:
        output.print_line(
            "Nothing was learned yet: it begins with the first runs, and is worth more once some are graded."
        )
    for one, model in models:
        _show_model(one, model)
    return ExitCode.OK


def _show_model(one: ScopeModels, model: OutcomeModel) -> None:
    learning, gain = model.learning, model.learning.gain()
    whose = one.scope.tenant or "the operator"
    labels = f" with {', '.join(sorted(one.scope.labels))}" if one.scope.labels else ""
    pinned = ", pinned" if one.pinned else ""
    output.print_line(
        f"Model {model.version}{pinned} of {whose}'s tasks{labels}: {learning.runs} runs, {learning.graded} graded."
    )
    brought = (
        "What it brought is not known yet: too few graded runs went the present way."
        if gain is None
        else f"What it brought: {gain.mean:+.4f} dollars a run [{gain.low:+.4f}, {gain.high:+.4f}], measured on "
        f"{gain.tasks} runs (a right answer's worth less the dollars of steps)."
    )
    output.print_line(brought)
    if learning.acts < 0.9:
        output.print_line(f"It earned less than the plans as they are, so it acts on {learning.acts:.0%} of the tasks.")
    share = learning.explored / learning.paid if learning.paid else 0.0
    output.print_line(f"Exploring took {format_dollars(learning.explored)}, {share:.0%} of the dollars of steps.")
    output.print_table(
        ("worker", "calls", "right", "best at", "$ a call", "s"),
        _worker_rows(model),
        right=("calls", "right", "$ a call", "s"),
    )
    for line in _wants(model):
        output.print_line(line)


def _worker_rows(model: OutcomeModel) -> list[Sequence[str]]:
    rows = list[Sequence[str]]()
    for name, figures in sorted(model.figures.items()):
        chances = model.kind_chances(name)
        best = sorted((kind for kind in chances if kind), key=lambda kind: -chances[kind])[:2]
        said = ", ".join(f"{kind} {chances[kind]:.0%}" for kind in best)
        since = f" (since {figures.since})" if figures.since else ""
        right, dollars = f"{chances['']:.0%}", format_dollars(figures.dollars)
        rows.append((f"{name}{since}", str(figures.calls), right, said, dollars, f"{figures.seconds:.1f}"))
    return rows


def _wants(model: OutcomeModel) -> list[str]:
    """Return what would tell more."""
    learning, found = model.learning, list[str]()
    if learning.graded < _FEW_GRADED * learning.runs:
        found.append(
            f"Grades would tell most: {learning.graded} of {learning.runs} runs have one (`shikisha runs feedback`, "
            "[server.outcomes]). With a tenth graded, expect little before 300 to 600 runs. Checks of steps help, too."
        )
    few = [name for name, figures in sorted(model.figures.items()) if figures.calls < _FEW_CALLS]
    if few:
        found.append(f"Little is known of {', '.join(few)}: less than {_FEW_CALLS} calls.")
    if not model.reader.kinds:
        found.append("The planner names no kinds of work; a JSON planner (structured_output = true) does.")
    return found


def _as_json(one: ScopeModels, model: OutcomeModel) -> dict[str, object]:
    learning, gain = model.learning, model.learning.gain()
    return {
        "tenant": one.scope.tenant,
        "labels": sorted(one.scope.labels),
        "version": model.version,
        "pinned": bool(one.pinned),
        "versions": [each.version for each in one.versions],
        "runs": learning.runs,
        "graded": learning.graded,
        "acts": learning.acts,
        "explored": learning.explored,
        "paid": learning.paid,
        "gain": None if gain is None else [gain.mean, gain.low, gain.high],
        "workers": {
            name: {"calls": each.calls, "dollars": each.dollars, "seconds": each.seconds, "since": each.since,
                   "right": model.kind_chances(name)}
            for name, each in sorted(model.figures.items())
        },
        "wants": _wants(model),
    }  # fmt: skip
