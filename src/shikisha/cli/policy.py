"""`policy`: show a learned policy, and release policies through a registry: canary, promotion, rollback.

Invariants: no policy is promoted without evidence that excludes harm, unless a person says so and why; the registry
that is changed is the one that was judged; whoever changes a registry is named in its history, with the reason. `show`
fits a screen of 80 columns, whatever the names in the pool.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Annotated

import typer
from rich.table import Table

from shikisha.cli import output, session
from shikisha.cli.approval_prompt import current_user
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption, SharedOptions, command
from shikisha.cli.policy_watch import watch
from shikisha.cli.session import require_storable
from shikisha.core.errors import ConfigError, TaskError
from shikisha.core.events import GradeBasis
from shikisha.core.fast_dataclass import asdict, dataclass
from shikisha.core.run import Run
from shikisha.core.text import one_line
from shikisha.routing.fit.online_evaluation import (
    CanaryTrial,
    MeanEstimate,
    PromotionLimits,
    PromotionVerdict,
    ShadowResult,
    TrialDifference,
    decide_promotion,
    evaluate_shadow,
    evaluate_trial,
    shadowed_runs,
    trial_runs,
    trusted_bases,
)
from shikisha.routing.fit.policy_figures import default_setting
from shikisha.routing.fit.policy_report import print_policy, setting_as_json
from shikisha.routing.policy_data import Candidate, Policy
from shikisha.routing.policy_file import load_policy
from shikisha.routing.policy_registry import ChangeAuthor, PolicyRegistry, add_policy, read_registry, update_registry
from shikisha.routing.trade_off import OperatingMix, TargetMetric, parse_target

_WIDE = 90  # columns of a terminal that get wide gaps
Shown = Annotated[Path, typer.Argument(metavar="FILE|SHELF", help="A policy file, or the folder of a policy registry.")]
ShelfFolder = Annotated[Path, typer.Argument(metavar="SHELF", help="The folder of a policy registry.")]
Version = Annotated[
    str,
    typer.Argument(
        metavar="VERSION",
        help="A policy of the registry: its version, the beginning of it, or its file.",
        show_default=False,
    ),
]
Candidacy = Annotated[
    str,
    typer.Argument(
        metavar="POLICY",
        help="A policy file, as `learn --out` writes it, which is added; or one of the registry.",
        show_default=False,
    ),
]
Why = Annotated[str, typer.Option("--why", help="The reason, for the history of the registry.")]
Off = Annotated[bool, typer.Option("--off", help="Take this role from the policy.")]
Share = Annotated[
    float | None,
    typer.Option("--share", help="The share of tasks, between 0 and 1; 0: its decisions are only recorded."),
]
RungName = Annotated[str, typer.Option("--rung", help="The candidate policy to show; by default the selected one.")]


@dataclass(frozen=True, slots=True)
class OperatingPointOptions:
    """The operating point of a policy; one of these options at a time."""

    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="WHAT=NUMBER",
            help="max_cost=0.2 (average cost) or quality=0.99 (accuracy), as shares of the best single worker's; "
            "budget_per_1k, dollars for a thousand tasks; lambda, the accuracy that one unit of cost must bring.",
        ),
    ] = None

    @property
    def given(self) -> list[tuple[str, str]]:
        """The options that are set, by their names in a conductor."""
        return [(name, value) for name, _, value in (text.partition("=") for text in self.at or ())]


def show(file: Shown, point: OperatingPointOptions, rung: RungName = "", json: JsonOption = False) -> ExitCode:
    """Show what a policy does: which worker it asks first, when it asks another, and how it weighs agreement.

    By default it shows the operating point that is as accurate as the best single worker, or the most accurate one.
    Of a registry it shows the live, canary and shadow policies, and the history.
    """
    if file.is_dir():
        held = read_registry(file)
        if json:
            output.print_json(shelf_json(held))
        else:
            output.print_report("\n".join(_shelf_lines(held)))
        return ExitCode.OK
    policy, version = load_policy(file)
    shown = _operating_point(policy, rung, point)
    if json:
        output.print_json(setting_as_json(policy, version, shown))
        return ExitCode.OK

    print_policy(policy, version, shown, output.make_console(to_stdout=True))
    return ExitCode.OK


def _operating_point(policy: Policy, name: str, point: OperatingPointOptions) -> tuple[Candidate, OperatingMix, str]:
    """Return the candidate and the mix to show, and the name of the operating point."""
    rung, given = policy.rung(name), point.given
    if given:
        stated = parse_target(given)
        return rung, rung.dial.at(stated), "=".join(given[0])
    mix, stated = default_setting(rung)
    return rung, mix, "its best" if stated.aim is TargetMetric.BEST else f"{stated.aim}={stated.value:g}"


def canary(
    folder: ShelfFolder,
    policy: Candidacy = "",
    share: Share = None,
    off: Off = False,
    why: Why = "",
    json: JsonOption = False,
) -> ExitCode:
    """Let a policy act for a share of the tasks, chosen by a hash of their content.

    With --share 0 it acts for none: it is a shadow, whose decisions are only recorded, and which calls no worker. A
    file is added to the registry, which is created if necessary: the first policy is live at once, any other is
    inactive without --share.
    """
    by, file = sign_change(why), Path(policy)
    if off and share:
        raise TaskError("expected --share X, or --off, one of them")
    if not off and not policy:
        raise TaskError("expected a POLICY, a file or one of the registry, and --share X")

    def changed(held: PolicyRegistry, name: str) -> PolicyRegistry:
        if off:
            return held.without_shadow(name, by) if name in held.shadows else held.without_canary(by)
        if share is None:
            return held
        return held.with_canary(name, share, by) if share else held.with_shadow(name, by)

    if off or not file.is_file():
        if not off and share is None:
            raise TaskError(f"expected --share X, or --off, one of them: {policy} is no file that could be added")
        return _change_shelf(folder, lambda held: changed(held, held.resolve(policy) if policy else ""), json=json)
    version, held = add_policy(folder, file, by, changed)
    if json:
        output.print_json({"added": version, **shelf_json(held)})
    elif version == held.live:
        output.print_note(f"{version} is live. Use it: shikisha run --conductor policy:{folder} ...")
    elif share is None:
        output.print_note(
            f"{version} is in the registry. Next: shikisha policy canary {folder} {version} --share 0, or more"
        )
    else:
        output.print_report("\n".join(_role_lines(held)))
    return ExitCode.OK


def sign_change(why: str) -> ChangeAuthor:
    """Return the signature of a change: the account at this terminal, the time, the reason."""

    return ChangeAuthor(who=current_user(), at=time(), why=require_storable(why, "--why"))


def shelf_json(held: PolicyRegistry) -> Mapping[str, object]:
    """Return a registry as `--json` prints it."""
    return held.model_dump(mode="json")


def format_time(at: float) -> str:
    """Return a time in the local time zone."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M}"


def _change_shelf(folder: Path, by: Callable[[PolicyRegistry], PolicyRegistry], *, json: bool) -> ExitCode:
    held = update_registry(folder, by)
    if json:
        output.print_json(shelf_json(held))
    else:
        output.print_report("\n".join(_role_lines(held)))
    return ExitCode.OK


def _shelf_lines(held: PolicyRegistry) -> Iterator[str]:
    yield from _role_lines(held)
    yield ""
    width = max((len(entry.by.who) for entry in held.history), default=0)
    for entry in held.history:
        share = f" for {entry.share:.0%} of the tasks" if entry.share is not None else ""
        forced = " against the trial" if entry.forced else ""
        why = f": {one_line(entry.by.why, 200)}" if entry.by.why else ""
        yield f"{format_time(entry.by.at)}  {entry.by.who:{width}}  {entry.version} {entry.deed}{share}{forced}{why}"


def _role_lines(held: PolicyRegistry) -> Iterator[str]:
    """Yield the role of each policy, the live one first."""
    order = [*held.shares, *held.shadows]
    policies = sorted(held.policies, key=lambda one: order.index(one.version) if one.version in order else len(order))
    for policy in policies:
        role, does = _role(held, policy.version), _role_text(held, policy.version)
        yield f"{role:6}  {policy.version}  {does} ({one_line(policy.name, 60)})"


def _role(held: PolicyRegistry, version: str) -> str:
    if version == held.live:
        return "live"
    if version in held.shares:
        return "canary"
    return "shadow" if version in held.shadows else ""


def _role_text(held: PolicyRegistry, version: str) -> str:
    if version in held.shares:
        return f"acts for {held.shares[version]:.3g} of the tasks" if held.canary else "acts for all tasks"
    return "decides without acting" if version in held.shadows else "inactive"


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The criteria of a trial."""

    trust_judge: Annotated[
        bool, typer.Option("--trust-judge", help="Count grades that come from a language model alone.")
    ] = False
    margin: Annotated[
        float,
        typer.Option("--margin", min=0, max=1, help="The accuracy that it may lose, as a share of tasks."),
    ] = 0.02
    dearer: Annotated[
        float, typer.Option("--dearer", min=0, help="The extra cost that is allowed, as a share of the present cost.")
    ] = 0.1


@dataclass(frozen=True, slots=True)
class _TrialReport:
    """A registry, and what the journal says about its canary and shadows."""

    shelf: PolicyRegistry
    trial: CanaryTrial | None
    verdict: PromotionVerdict | None
    shadows: tuple[ShadowResult, ...]


def _report_trial(folder: Path, judging: TrialOptions, shared: SharedOptions) -> ExitCode:
    """Compare the canary of a registry with its live policy, by the runs since it got its share; report on shadows."""
    found = _judge_trial(folder, judging, shared)
    if shared.json:
        output.print_json(_trial_json(found))
    else:
        if found.trial is None or found.verdict is None or found.shelf.canary is None:
            lines = [f"there is no canary: shikisha policy canary {folder} VERSION --share 0.1"]
        else:
            console = output.make_console(to_stdout=True)
            output.print_report(f"{folder}, since {format_time(found.shelf.since)}")
            console.print(_trial_table(found.shelf, found.trial, gap=2 if console.width >= _WIDE else 1))
            lines = [*_change_lines(found.trial), *_verdict_lines(folder, found.shelf.canary.version, found.verdict)]
        output.print_report("\n".join([*lines, *map(_shadow_line, found.shadows)]))
    return ExitCode.OK


def promote(
    folder: ShelfFolder,
    judging: TrialOptions,
    shared: SharedOptions,
    version: Version = "",
    anyway: Annotated[bool, typer.Option("--anyway", help="Promote against the trial; needs --why.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Make the previous live policy live again.")] = False,
    why: Why = "",
) -> ExitCode:
    """Make a policy live.

    Only a canary whose trial excludes harm beyond the margins is promoted. Grades of a language model alone do not
    count. Without VERSION it promotes nothing: it compares the canary with the live policy, by the runs of the journal
    since the canary got its share, and reports on the shadows.
    """
    by = sign_change(why)
    if back:
        return _change_shelf(folder, lambda held: held.with_rollback(by), json=shared.json)
    if not version:
        return _report_trial(folder, judging, shared)
    if anyway and not why.strip():
        raise TaskError("--anyway needs --why TEXT, for the history of the registry")
    before = read_registry(folder)
    name = before.resolve(version)
    if anyway:
        return _print_promotion(update_registry(folder, lambda held: held.with_live(name, by, forced=True)), shared)
    found = _judge_trial(folder, judging, shared) if before.canary and before.canary.version == name else None
    if found is None or found.trial is None or found.verdict is None or not found.verdict.promote:
        return _print_refusal(folder, name, before, found, shared)
    signed = by.model_copy(update={"why": why or f"right {_format_change(found.trial.right)}"})

    def promoted(held: PolicyRegistry) -> PolicyRegistry:
        if held.shares != before.shares:
            raise ConfigError(f"{folder}: the registry was changed meanwhile: look at it again")
        return held.with_live(name, signed)

    return _print_promotion(update_registry(folder, promoted), shared)


def _print_promotion(held: PolicyRegistry, shared: SharedOptions) -> ExitCode:
    if shared.json:
        output.print_json({"promoted": True, **shelf_json(held)})
    else:
        output.print_note(f"{held.live} is live, starting with the next run")
    return ExitCode.OK


def _print_refusal(
    folder: Path, name: str, held: PolicyRegistry, found: _TrialReport | None, shared: SharedOptions
) -> ExitCode:
    if name == held.live:
        raise ConfigError(f"{name} is already live")
    reasons: tuple[str, ...] = ("it is not a canary, so there are no outcomes to judge it by",)
    missing: int | None = None
    if found is not None and found.verdict is not None:
        reasons, missing = found.verdict.reasons, found.verdict.missing
    if shared.json:
        output.print_json({"promoted": False, "reasons": list(reasons), "missing": missing})
        return ExitCode.FAILED
    output.print_note(f"{name} is not promoted:")
    for reason in reasons:
        output.print_note(f"  - {reason}")
    if found is None:
        output.print_note(f"make it the canary: shikisha policy canary {folder} {name} --share 0.1")
    output.print_note(f'promote it anyway: shikisha policy promote {folder} {name} --anyway --why "..."')
    return ExitCode.FAILED


def _judge_trial(folder: Path, judging: TrialOptions, shared: SharedOptions) -> _TrialReport:
    held = read_registry(folder)
    runs = session.run_async(lambda: _read_runs(shared, {policy.version for policy in held.policies}))
    counts = trusted_bases(trust_judge=judging.trust_judge)
    shadows = tuple(
        evaluate_shadow(shadowed_runs(runs, held.live, version, counts), version) for version in held.shadows
    )
    if held.canary is None:
        return _TrialReport(held, None, None, shadows)
    arms = (held.live, held.canary.version)
    found = evaluate_trial(trial_runs(runs, *arms, held.since), *arms, counts)
    return _TrialReport(held, found, decide_promotion(found, PromotionLimits(judging.margin, judging.dearer)), shadows)


async def _read_runs(shared: SharedOptions, versions: Collection[str]) -> list[Run]:
    """Return the runs whose first plan came from one of these versions, the newest first."""
    async with session.open_existing_journal(shared) as journal:
        runs = reversed(await journal.all_runs())
    made = ((run, run.rounds[0].proposed if run.rounds else None) for run in runs)
    return [run for run, first in made if first is not None and first.version in versions]


def _trial_json(found: _TrialReport) -> Mapping[str, object]:
    return {
        "live": found.shelf.live,
        "canary": found.shelf.canary.model_dump() if found.shelf.canary else None,
        "since": found.shelf.since,
        "trial": asdict(found.trial) if found.trial else None,
        "verdict": asdict(found.verdict) if found.verdict else None,
        "shadows": [asdict(shadow) for shadow in found.shadows],
    }


def _trial_table(held: PolicyRegistry, found: CanaryTrial, gap: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for name in ("policy", "", "tasks", "graded", "right, with 95 %", "$ a task", "no answer"):
        table.add_column(name, justify="left" if name in {"policy", ""} else "right", no_wrap=True)
    for arm, role in ((found.live, "live"), (found.canary, f"canary {held.shares[found.canary.version]:.0%}")):
        graded = arm.right.tasks if arm.right else 0
        arm_cells = (
            arm.version,
            role,
            f"{arm.tasks:,}",
            f"{graded:,}",
            _format_share(arm.right),
            "" if arm.dollars is None else f"{arm.dollars.mean:.3g}",
            "" if arm.failed is None else f"{arm.failed.mean:.1%}",
        )
        table.add_row(*(arm_cells))
    return table


def _format_share(figure: MeanEstimate | None) -> str:
    return "" if figure is None else f"{figure.mean:.1%} {100 * figure.low:.1f} to {100 * figure.high:.1f}"


def _change_lines(found: CanaryTrial) -> Iterator[str]:
    """Yield what the canary changes, by line."""
    words = {GradeBasis.EXECUTED: "checks", GradeBasis.PERSON: "people", GradeBasis.JUDGE: "a language model"}
    yield f"they differ on {found.differing.mean:.1%} of the tasks; what the canary changes, with 95 %:"
    by = " and ".join(words[basis] for basis in found.counts)
    yield f"  right      {_format_change(found.right)}, by {by}"
    if len(found.by_basis) > 1 or set(found.by_basis) - set(found.counts):
        for basis, change in found.by_basis.items():
            aside = "" if basis in found.counts else ", which does not count"
            yield f"    by {words[basis]}: {_format_change(change)}{aside}"
    yield f"  no answer  {_format_change(found.failed)}"
    if found.dollars is not None:
        yield f"  $ a task   {found.dollars.mean:+.3g} ({found.dollars.low:+.3g} to {found.dollars.high:+.3g})"


def _format_change(change: TrialDifference | None) -> str:
    if change is None:
        return "unknown: one of the two has no graded run"
    points = [100 * value for value in (change.mean, change.low, change.high)]
    tasks = f"{change.canary:,} and {change.live:,} tasks"
    return f"{points[0]:+.1f} points ({points[1]:+.1f} to {points[2]:+.1f}), {tasks}"


def _shadow_line(shadow: ShadowResult) -> str:
    if shadow.same is None:
        return f"shadow {shadow.version}: no run for which it made decisions has ended"
    same = shadow.same
    does = f"shadow {shadow.version}: decides like the live policy on {same.mean:.1%} of {same.tasks:,} tasks"
    if shadow.known is None:
        return f"{does}; nothing was graded"
    bounds = f"{100 * shadow.low:+.1f} to {100 * shadow.high:+.1f} points more often right"
    return f"{does}; its outcome is known for {shadow.known.mean:.1%}: {bounds}"


def _verdict_lines(folder: Path, version: str, found: PromotionVerdict) -> Iterator[str]:
    if found.promote:
        yield f"harm is excluded: shikisha policy promote {folder} {version}"
        return
    yield "not to be promoted" if found.missing is None else "not to be promoted yet"
    for reason in found.reasons:
        yield f"  - {reason}"


group = typer.Typer(
    help="Show, release and watch learned policies.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
for _act in (show, canary, promote, watch):
    group.command()(command(_act))
