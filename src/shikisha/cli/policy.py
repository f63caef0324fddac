"""Policies at work: the group `policy`, and its `show`.

Invariant: `show` fits a screen of 80 columns, whatever the pool is called. Deliberately absent: moving policies into
use (a file of its own adds commands to `group`).

Policies in use: `policy shelf`, `add`, `shadow`, `canary` and `rollback` of a shelf.

Invariant: whoever changes a shelf is named in its history, with the reason given. Deliberately absent: promotion, which
needs a trial (`trials`).

What a journal says of policies on a shelf: `policy trial`, and `promote`, which asks it first.

Invariants: without evidence that excludes harm nobody is promoted, unless a person says so and why, which the shelf's
history keeps; the shelf that is changed is the one that was judged. Deliberately absent: the statistics (`learn.trial`)
and what follows from them (`learn.verdict`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption, SharedOptions
from shikisha.core.errors import ConfigError, MissingExtra, TaskError
from shikisha.core.text import one_line

if TYPE_CHECKING:
    from shikisha.routing.policy_data import Candidate, Policy
    from shikisha.routing.trade_off import OperatingMix

group = typer.Typer(help="Look at learned policies.", no_args_is_help=True)

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file, as `learn --out` writes it.")]
RungName = Annotated[str, typer.Option("--rung", help="Show this rung; by default the one that is kept.")]


@dataclass(frozen=True, slots=True)
class OperatingPointOptions:
    """Where the dial stands; one of these at a time."""

    max_cost: Annotated[
        str, typer.Option("--max-cost", help="Mean cost, as a share of the best single worker's: 0.2 or 20%.")
    ] = ""
    quality: Annotated[
        str, typer.Option("--quality", help="Accuracy, as a share of the best single worker's: 0.99.")
    ] = ""
    budget_per_1k: Annotated[str, typer.Option("--budget-per-1k", help="Dollars for a thousand tasks.")] = ""
    price: Annotated[str, typer.Option("--lambda", help="Accuracy that the best single worker's cost must bring.")] = ""

    @property
    def given(self) -> list[tuple[str, str]]:
        """The options given, by the names that conductors know them by."""
        every = {
            "max_cost": self.max_cost,
            "quality": self.quality,
            "budget_per_1k": self.budget_per_1k,
            "lambda": self.price,
        }
        return [(name, text) for name, text in every.items() if text]


def show(file: PolicyFile, dialled: OperatingPointOptions, rung: RungName = "", json: JsonOption = False) -> ExitCode:
    """Show what a policy does: whom it asks first, when one more, and what agreement is worth.

    By default at the setting that is as good as the best single worker, or at its best.
    """
    if find_spec("numpy") is None:
        raise MissingExtra("eval", "a learned policy")
    from shikisha.routing.policy_file import load_policy

    policy, version = load_policy(file)
    shown = _operating_point(policy, rung, dialled)
    if json:
        from shikisha.routing.fit.policy_report import setting_as_json as plain

        output.print_json(plain(policy, version, shown))
        return ExitCode.OK
    from shikisha.routing.fit.policy_report import print_policy

    print_policy(policy, version, shown, output.make_console(to_stdout=True))
    return ExitCode.OK


def _operating_point(
    policy: "Policy", name: str, dialled: OperatingPointOptions
) -> "tuple[Candidate, OperatingMix, str]":
    """Return the rung and the mixture to show, and what it is called."""
    from shikisha.routing.fit.policy_figures import default_setting
    from shikisha.routing.trade_off import TargetMetric, parse_target

    rung, given = policy.rung(name), dialled.given
    if given:
        stated = parse_target(given)
        return rung, rung.dial.at(stated), "=".join(given[0])
    mix, stated = default_setting(rung)
    return rung, mix, "its best" if stated.aim is TargetMetric.BEST else f"{stated.aim}={stated.value:g}"


if TYPE_CHECKING:
    from shikisha.routing.policy_registry import ChangeAuthor, PolicyRegistry

ShelfFolder = Annotated[Path, typer.Argument(metavar="SHELF", help="A shelf's folder.")]
Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="A policy on the shelf: its version, the beginning of it, or its file.")
]
MaybeVersion = Annotated[
    str, typer.Argument(metavar="[VERSION]", help="A policy on the shelf; none with --off.", show_default=False)
]
Why = Annotated[str, typer.Option("--why", help="Why, for the shelf's history.")]
Off = Annotated[bool, typer.Option("--off", help="Let it act so no more.")]
Share = Annotated[float | None, typer.Option("--share", help="Its share of the tasks, between 0 and 1.")]


def shelf(folder: ShelfFolder, json: JsonOption = False) -> ExitCode:
    """Show what is live, canary and shadow on a shelf, and its history."""
    _need_numpy()
    from shikisha.routing.policy_registry import read_registry

    held = read_registry(folder)
    if json:
        output.print_json(shelf_json(held))
    else:
        output.print_report("\n".join(_shelf_lines(held)))
    return ExitCode.OK


def add(folder: ShelfFolder, file: PolicyFile, why: Why = "", json: JsonOption = False) -> ExitCode:
    """Put a policy on a shelf, which is made if need be.

    The first one is live at once; another acts for nobody until it is made a shadow, a canary or live.
    """
    _need_numpy()
    from shikisha.routing.policy_registry import add_policy

    version, held = add_policy(folder, file, sign_change(why))
    if json:
        output.print_json({"added": version, **shelf_json(held)})
    elif version == held.live:
        output.print_note(f"{version} is live. Use it: shikisha run --conductor policy:{folder} ...")
    else:
        output.print_note(
            f"{version} is on the shelf. Next: shikisha policy shadow {folder} {version}, or policy canary"
        )
    return ExitCode.OK


def shadow(
    folder: ShelfFolder, version: Version, off: Off = False, why: Why = "", json: JsonOption = False
) -> ExitCode:
    """Let a policy decide beside whoever acts; it calls nothing."""
    by = sign_change(why)

    def changed(held: "PolicyRegistry") -> "PolicyRegistry":
        name = held.resolve(version)
        return held.without_shadow(name, by) if off else held.with_shadow(name, by)

    return _change_shelf(folder, changed, json=json)


def canary(
    folder: ShelfFolder,
    version: MaybeVersion = "",
    share: Share = None,
    off: Off = False,
    why: Why = "",
    json: JsonOption = False,
) -> ExitCode:
    """Let a policy act for a share of the tasks, drawn by their content."""
    by = sign_change(why)
    if off == (share is not None):
        raise TaskError("expected --share X, or --off, one of them")
    if not off and not version:
        raise TaskError("expected the VERSION of a policy on the shelf")

    def changed(held: "PolicyRegistry") -> "PolicyRegistry":
        if share is None:
            return held.without_canary(by)
        return held.with_canary(held.resolve(version), share, by)

    return _change_shelf(folder, changed, json=json)


def rollback(folder: ShelfFolder, why: Why = "", json: JsonOption = False) -> ExitCode:
    """Make the policy live again that was so before the present one."""
    by = sign_change(why)
    return _change_shelf(folder, lambda held: held.with_rollback(by), json=json)


def sign_change(why: str) -> "ChangeAuthor":
    """Return who sits here, now, with this reason."""
    _need_numpy()
    from shikisha.cli.approval_prompt import current_user
    from shikisha.cli.session import require_storable
    from shikisha.routing.policy_registry import ChangeAuthor

    return ChangeAuthor(who=current_user() or "unknown", at=time(), why=require_storable(why, "--why"))


def shelf_json(held: "PolicyRegistry") -> Mapping[str, object]:
    """Return a shelf as `--json` prints it."""
    return held.model_dump(mode="json")


def format_time(at: float) -> str:
    """Return a time as people here read it."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M}"


def _change_shelf(folder: Path, by: "Callable[[PolicyRegistry], PolicyRegistry]", *, json: bool) -> ExitCode:
    from shikisha.routing.policy_registry import update_registry

    held = update_registry(folder, by)
    if json:
        output.print_json(shelf_json(held))
    else:
        output.print_report("\n".join(_role_lines(held)))
    return ExitCode.OK


def _shelf_lines(held: "PolicyRegistry") -> Iterator[str]:
    yield from _role_lines(held)
    yield ""
    width = max((len(entry.by.who) for entry in held.history), default=0)
    for entry in held.history:
        share = f" for {entry.share:.0%} of the tasks" if entry.share is not None else ""
        forced = " against the trial" if entry.forced else ""
        why = f": {one_line(entry.by.why, 200)}" if entry.by.why else ""
        yield f"{format_time(entry.by.at)}  {entry.by.who:{width}}  {entry.version} {entry.deed}{share}{forced}{why}"


def _role_lines(held: "PolicyRegistry") -> Iterator[str]:
    """Say of each policy what it does, the live one first."""
    order = [*held.shares, *held.shadows]
    policies = sorted(held.policies, key=lambda one: order.index(one.version) if one.version in order else len(order))
    for policy in policies:
        role, does = _role(held, policy.version), _role_text(held, policy.version)
        yield f"{role:6}  {policy.version}  {does} ({one_line(policy.name, 60)})"


def _role(held: "PolicyRegistry", version: str) -> str:
    if version == held.live:
        return "live"
    if version in held.shares:
        return "canary"
    return "shadow" if version in held.shadows else ""


def _role_text(held: "PolicyRegistry", version: str) -> str:
    if version in held.shares:
        return f"acts for {held.shares[version]:.3g} of the tasks" if held.canary else "acts for all tasks"
    return "decides beside" if version in held.shadows else "rests"


def _need_numpy() -> None:
    if find_spec("numpy") is None:
        raise MissingExtra("eval", "a shelf of policies")


if TYPE_CHECKING:
    from rich.table import Table

    from shikisha.core.run import Run
    from shikisha.routing.fit.online_evaluation import (
        CanaryTrial,
        MeanEstimate,
        PromotionVerdict,
        ShadowResult,
        TrialArm,
        TrialDifference,
    )
    from shikisha.routing.policy_registry import PolicyRegistry

_ALL_RUNS = 2**31  # runs
_WIDE = 90  # columns


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """By what a trial is judged."""

    trust_judge: Annotated[
        bool, typer.Option("--trust-judge", help="Count grades that only a language model gave.")
    ] = False
    margin: Annotated[
        float,
        typer.Option("--margin", min=0, max=1, help="How much less often right it may be, as a share of tasks."),
    ] = 0.02
    dearer: Annotated[
        float, typer.Option("--dearer", min=0, help="How much dearer it may be, as a share of what is paid now.")
    ] = 0.1


@dataclass(frozen=True, slots=True)
class _TrialReport:
    """A shelf, and what a journal says of its canary and shadows."""

    shelf: "PolicyRegistry"
    trial: "CanaryTrial | None"
    verdict: "PromotionVerdict | None"
    shadows: "tuple[ShadowResult, ...]"


def trial(folder: ShelfFolder, judging: TrialOptions, shared: SharedOptions) -> ExitCode:
    """Compare a shelf's canary with the live policy, and tell what is known of its shadows.

    From the runs that the journal has since the canary got its share.
    """
    found = _judge_trial(folder, judging, shared)
    if shared.json:
        output.print_json(_trial_json(found))
    else:
        _print_trial(folder, found)
    return ExitCode.OK


def promote(
    folder: ShelfFolder,
    version: Version,
    judging: TrialOptions,
    shared: SharedOptions,
    anyway: Annotated[bool, typer.Option("--anyway", help="Whatever the trial says; needs --why.")] = False,
    why: Why = "",
) -> ExitCode:
    """Make a policy live.

    Only a canary whose trial excludes harm by more than the margins; a language model's word alone does not count.
    """
    by = sign_change(why)
    from shikisha.routing.policy_registry import read_registry, update_registry

    if anyway and not why.strip():
        raise TaskError("--anyway: say why, with --why TEXT: the shelf's history keeps it")
    before = read_registry(folder)
    name = before.resolve(version)
    if anyway:
        return _print_promotion(update_registry(folder, lambda held: held.with_live(name, by, forced=True)), shared)
    found = _judge_trial(folder, judging, shared) if before.canary and before.canary.version == name else None
    if found is None or found.trial is None or found.verdict is None or not found.verdict.promote:
        return _print_refusal(folder, name, before, found, shared)
    told_why = by.model_copy(update={"why": why or _trial_summary(found.trial)})

    def promoted(held: "PolicyRegistry") -> "PolicyRegistry":
        if held.shares != before.shares:
            raise ConfigError(f"{folder}: somebody changed the shelf meanwhile: look at it again")
        return held.with_live(name, told_why)

    return _print_promotion(update_registry(folder, promoted), shared)


def _print_promotion(held: "PolicyRegistry", shared: SharedOptions) -> ExitCode:
    if shared.json:
        output.print_json({"promoted": True, **shelf_json(held)})
    else:
        output.print_note(f"{held.live} is live, from the next run on")
    return ExitCode.OK


def _print_refusal(
    folder: Path, name: str, held: "PolicyRegistry", found: "_TrialReport | None", shared: SharedOptions
) -> ExitCode:
    if name == held.live:
        raise ConfigError(f"{name} is live already")
    reasons: tuple[str, ...] = ("it is no canary, so it has no outcomes of its own to be judged by",)
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
    output.print_note(f'promote it all the same: shikisha policy promote {folder} {name} --anyway --why "..."')
    return ExitCode.FAILED


def _judge_trial(folder: Path, judging: TrialOptions, shared: SharedOptions) -> _TrialReport:
    sign_change("")  # needs what a trial needs
    from shikisha.routing.fit.online_evaluation import (
        PromotionLimits,
        decide_promotion,
        evaluate_shadow,
        shadowed_runs,
        trial_runs,
        trusted_bases,
    )
    from shikisha.routing.fit.online_evaluation import evaluate_trial as tried
    from shikisha.routing.policy_registry import read_registry

    held = read_registry(folder)
    runs = session.run_async(lambda: _read_runs(shared, {policy.version for policy in held.policies}))
    counts = trusted_bases(trust_judge=judging.trust_judge)
    shadows = tuple(
        evaluate_shadow(shadowed_runs(runs, held.live, version, counts), version) for version in held.shadows
    )
    if held.canary is None:
        return _TrialReport(held, None, None, shadows)
    arms = (held.live, held.canary.version)
    found = tried(trial_runs(runs, *arms, held.since), *arms, counts)
    return _TrialReport(held, found, decide_promotion(found, PromotionLimits(judging.margin, judging.dearer)), shadows)


async def _read_runs(shared: SharedOptions, versions: Collection[str]) -> "list[Run]":
    """Return the runs that these versions began."""
    from shikisha.core.run import Run

    found = []
    async with session.open_existing_journal(shared) as journal:
        for summary in await journal.runs(limit=_ALL_RUNS):
            run = Run.fold(await journal.read(summary.id))
            first = run.rounds[0].proposed if run.rounds else None
            if first is not None and first.version in versions:
                found.append(run)
    return found


def _trial_json(found: _TrialReport) -> Mapping[str, object]:
    return {
        "live": found.shelf.live,
        "canary": found.shelf.canary.model_dump() if found.shelf.canary else None,
        "since": found.shelf.since,
        "trial": asdict(found.trial) if found.trial else None,
        "verdict": asdict(found.verdict) if found.verdict else None,
        "shadows": [asdict(shadow) for shadow in found.shadows],
    }


def _print_trial(folder: Path, found: _TrialReport) -> None:
    if found.trial is None or found.verdict is None or found.shelf.canary is None:
        lines = [f"there is no canary: shikisha policy canary {folder} VERSION --share 0.1"]
    else:
        console = output.make_console(to_stdout=True)
        output.print_report(f"{folder}, since {format_time(found.shelf.since)}")
        console.print(_trial_table(found.shelf, found.trial, gap=2 if console.width >= _WIDE else 1))
        lines = [*_change_lines(found.trial), *_verdict_lines(folder, found.shelf.canary.version, found.verdict)]
    output.print_report("\n".join([*lines, *map(_shadow_line, found.shadows)]))


def _trial_table(held: "PolicyRegistry", found: "CanaryTrial", gap: int) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for name in ("policy", "", "tasks", "graded", "right, with 95 %", "$ a task", "no answer"):
        table.add_column(name, justify="left" if name in {"policy", ""} else "right", no_wrap=True)
    for arm, role in ((found.live, "live"), (found.canary, f"canary {held.shares[found.canary.version]:.0%}")):
        table.add_row(*_arm_cells(arm, role))
    return table


def _arm_cells(arm: "TrialArm", role: str) -> tuple[str, ...]:
    graded = arm.right.tasks if arm.right else 0
    return (
        arm.version,
        role,
        f"{arm.tasks:,}",
        f"{graded:,}",
        _format_share(arm.right),
        "" if arm.dollars is None else f"{arm.dollars.mean:.3g}",
        "" if arm.failed is None else f"{arm.failed.mean:.1%}",
    )


def _format_share(figure: "MeanEstimate | None") -> str:
    return "" if figure is None else f"{figure.mean:.1%} {100 * figure.low:.1f} to {100 * figure.high:.1f}"


def _change_lines(found: "CanaryTrial") -> Iterator[str]:
    """Yield what the canary changes, by line."""
    from shikisha.core.events import GradeBasis

    words = {GradeBasis.EXECUTED: "checks", GradeBasis.PERSON: "people", GradeBasis.JUDGE: "a language model"}
    yield f"they part on {found.differing.mean:.1%} of the tasks; what the canary changes, with 95 %:"
    by = " and ".join(words[basis] for basis in found.counts)
    yield f"  right      {_format_change(found.right)}, by {by}"
    if len(found.by_basis) > 1 or set(found.by_basis) - set(found.counts):
        for basis, change in found.by_basis.items():
            aside = "" if basis in found.counts else ", which does not count"
            yield f"    by {words[basis]}: {_format_change(change)}{aside}"
    yield f"  no answer  {_format_change(found.failed)}"
    if found.dollars is not None:
        yield f"  $ a task   {found.dollars.mean:+.3g} ({found.dollars.low:+.3g} to {found.dollars.high:+.3g})"
    if found.reward is not None:
        yield f"  reward     {found.reward.mean:+.3f} ({found.reward.low:+.3f} to {found.reward.high:+.3f})"


def _format_change(change: "TrialDifference | None") -> str:
    if change is None:
        return "not known: one of the two has nothing graded"
    points = [100 * value for value in (change.mean, change.low, change.high)]
    tasks = f"{change.canary:,} and {change.live:,} tasks"
    return f"{points[0]:+.1f} points ({points[1]:+.1f} to {points[2]:+.1f}), {tasks}"


def _shadow_line(shadow: "ShadowResult") -> str:
    if shadow.same is None:
        return f"shadow {shadow.version}: no run of the live policy that it decided beside has ended"
    does = f"shadow {shadow.version}: does as the live one on {shadow.same.mean:.1%} of {shadow.same.tasks:,} tasks"
    if shadow.dollars:
        does += f" and spends {shadow.dollars:+.3g} dollars a task where that is known"
    if shadow.known is None:
        return f"{does}; nothing was graded"
    bounds = f"{100 * shadow.low:+.1f} to {100 * shadow.high:+.1f} points more often right"
    return f"{does}; what it would have come to is known for {shadow.known.mean:.1%}: {bounds}"


def _verdict_lines(folder: Path, version: str, found: "PromotionVerdict") -> Iterator[str]:
    if found.promote:
        yield f"harm is excluded: shikisha policy promote {folder} {version}"
        return
    yield "not to be promoted" if found.missing is None else "not to be promoted yet"
    for reason in found.reasons:
        yield f"  - {reason}"


def _trial_summary(found: "CanaryTrial") -> str:
    return f"right {_format_change(found.right)}"
