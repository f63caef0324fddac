"""What a journal says of policies on a shelf: `policy trial`, and `promote`, which asks it first.

Invariants: without evidence that excludes harm nobody is promoted, unless a person says so and why, which the shelf's
history keeps; the shelf that is changed is the one that was judged. Deliberately absent: the statistics (`learn.trial`)
and what follows from them (`learn.verdict`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.cli.shelving import ShelfFolder, Version, Why, as_json, signed, told
from shikisha.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from rich.table import Table

    from shikisha.learn.shadowing import Shadowed
    from shikisha.learn.trial import Arm, Change, Figure, Trial
    from shikisha.learn.verdict import Verdict
    from shikisha.policy.shelf import Shelf
    from shikisha.run import Run

_ALL = 2**31  # runs
_WIDE = 90  # columns


@dataclass(frozen=True, slots=True)
class Judging:
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
class _Found:
    """A shelf, and what a journal says of its canary and shadows."""

    shelf: "Shelf"
    trial: "Trial | None"
    verdict: "Verdict | None"
    shadows: "tuple[Shadowed, ...]"


def trial(folder: ShelfFolder, judging: Judging, shared: Shared) -> Exit:
    """Compare a shelf's canary with the live policy, and tell what is known of its shadows.

    From the runs that the journal has since the canary got its share.
    """
    found = _judged(folder, judging, shared)
    if shared.json:
        out.value(_as_json(found))
    else:
        _show(folder, found)
    return Exit.OK


def promote(
    folder: ShelfFolder,
    version: Version,
    judging: Judging,
    shared: Shared,
    anyway: Annotated[bool, typer.Option("--anyway", help="Whatever the trial says; needs --why.")] = False,
    why: Why = "",
) -> Exit:
    """Make a policy live.

    Only a canary whose trial excludes harm by more than the margins; a language model's word alone does not count.
    """
    by = signed(why)
    from shikisha.policy.shelf_file import change, read

    if anyway and not why.strip():
        raise TaskError("--anyway: say why, with --why TEXT: the shelf's history keeps it")
    before = read(folder)
    name = before.named(version)
    if anyway:
        return _done(change(folder, lambda held: held.promoted(name, by, forced=True)), shared)
    found = _judged(folder, judging, shared) if before.canary and before.canary.version == name else None
    if found is None or found.trial is None or found.verdict is None or not found.verdict.promote:
        return _refused(folder, name, before, found, shared)
    told_why = by.model_copy(update={"why": why or _summary(found.trial)})

    def promoted(held: "Shelf") -> "Shelf":
        if held.shares != before.shares:
            raise ConfigError(f"{folder}: somebody changed the shelf meanwhile: look at it again")
        return held.promoted(name, told_why)

    return _done(change(folder, promoted), shared)


def _done(held: "Shelf", shared: Shared) -> Exit:
    if shared.json:
        out.value({"promoted": True, **as_json(held)})
    else:
        out.note(f"{held.live} is live, from the next run on")
    return Exit.OK


def _refused(folder: Path, name: str, held: "Shelf", found: "_Found | None", shared: Shared) -> Exit:
    if name == held.live:
        raise ConfigError(f"{name} is live already")
    reasons: tuple[str, ...] = ("it is no canary, so it has no outcomes of its own to be judged by",)
    missing: int | None = None
    if found is not None and found.verdict is not None:
        reasons, missing = found.verdict.reasons, found.verdict.missing
    if shared.json:
        out.value({"promoted": False, "reasons": list(reasons), "missing": missing})
        return Exit.FAILED
    out.note(f"{name} is not promoted:")
    for reason in reasons:
        out.note(f"  - {reason}")
    if found is None:
        out.note(f"make it the canary: shikisha policy canary {folder} {name} --share 0.1")
    out.note(f'promote it all the same: shikisha policy promote {folder} {name} --anyway --why "..."')
    return Exit.FAILED


def _judged(folder: Path, judging: Judging, shared: Shared) -> _Found:
    signed("")  # needs what a trial needs
    from shikisha.learn.shadowing import followed, shadowed
    from shikisha.learn.trial import samples
    from shikisha.learn.trial import trial as tried
    from shikisha.learn.verdict import Limits, counted, verdict
    from shikisha.policy.shelf_file import read

    held = read(folder)
    runs = session.perform(lambda: _runs(shared, {policy.version for policy in held.policies}))
    counts = counted(trust_judge=judging.trust_judge)
    shadows = tuple(shadowed(followed(runs, held.live, version, counts), version) for version in held.shadows)
    if held.canary is None:
        return _Found(held, None, None, shadows)
    arms = (held.live, held.canary.version)
    found = tried(samples(runs, *arms, held.since), *arms, counts)
    return _Found(held, found, verdict(found, Limits(judging.margin, judging.dearer)), shadows)


async def _runs(shared: Shared, versions: Collection[str]) -> "list[Run]":
    """Return the runs that these versions began."""
    from shikisha.run import Run

    found = []
    async with session.reading(shared) as journal:
        for summary in await journal.runs(limit=_ALL):
            run = Run.fold(await journal.read(summary.id))
            first = run.rounds[0].proposed if run.rounds else None
            if first is not None and first.version in versions:
                found.append(run)
    return found


def _as_json(found: _Found) -> Mapping[str, object]:
    return {
        "live": found.shelf.live,
        "canary": found.shelf.canary.model_dump() if found.shelf.canary else None,
        "since": found.shelf.since,
        "trial": asdict(found.trial) if found.trial else None,
        "verdict": asdict(found.verdict) if found.verdict else None,
        "shadows": [asdict(shadow) for shadow in found.shadows],
    }


def _show(folder: Path, found: _Found) -> None:
    if found.trial is None or found.verdict is None or found.shelf.canary is None:
        lines = [f"there is no canary: shikisha policy canary {folder} VERSION --share 0.1"]
    else:
        console = out.console(to_stdout=True)
        out.report(f"{folder}, since {told(found.shelf.since)}")
        console.print(_table(found.shelf, found.trial, gap=2 if console.width >= _WIDE else 1))
        lines = [*_changes(found.trial), *_follows(folder, found.shelf.canary.version, found.verdict)]
    out.report("\n".join([*lines, *map(_known, found.shadows)]))


def _table(held: "Shelf", found: "Trial", gap: int) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for name in ("policy", "", "tasks", "graded", "right, with 95 %", "$ a task", "no answer"):
        table.add_column(name, justify="left" if name in {"policy", ""} else "right", no_wrap=True)
    for arm, role in ((found.live, "live"), (found.canary, f"canary {held.shares[found.canary.version]:.0%}")):
        table.add_row(*_cells(arm, role))
    return table


def _cells(arm: "Arm", role: str) -> tuple[str, ...]:
    graded = arm.right.tasks if arm.right else 0
    return (
        arm.version,
        role,
        f"{arm.tasks:,}",
        f"{graded:,}",
        _share(arm.right),
        "" if arm.dollars is None else f"{arm.dollars.mean:.3g}",
        "" if arm.failed is None else f"{arm.failed.mean:.1%}",
    )


def _share(figure: "Figure | None") -> str:
    return "" if figure is None else f"{figure.mean:.1%} {100 * figure.low:.1f} to {100 * figure.high:.1f}"


def _changes(found: "Trial") -> Iterator[str]:
    """Yield what the canary changes, by line."""
    from shikisha.events import Basis

    words = {Basis.EXECUTED: "checks", Basis.PERSON: "people", Basis.JUDGE: "a language model"}
    yield f"they part on {found.differing.mean:.1%} of the tasks; what the canary changes, with 95 %:"
    by = " and ".join(words[basis] for basis in found.counts)
    yield f"  right      {_points(found.right)}, by {by}"
    if len(found.by_basis) > 1 or set(found.by_basis) - set(found.counts):
        for basis, change in found.by_basis.items():
            aside = "" if basis in found.counts else ", which does not count"
            yield f"    by {words[basis]}: {_points(change)}{aside}"
    yield f"  no answer  {_points(found.failed)}"
    if found.dollars is not None:
        yield f"  $ a task   {found.dollars.mean:+.3g} ({found.dollars.low:+.3g} to {found.dollars.high:+.3g})"
    if found.reward is not None:
        yield f"  reward     {found.reward.mean:+.3f} ({found.reward.low:+.3f} to {found.reward.high:+.3f})"


def _points(change: "Change | None") -> str:
    if change is None:
        return "not known: one of the two has nothing graded"
    points = [100 * value for value in (change.mean, change.low, change.high)]
    tasks = f"{change.canary:,} and {change.live:,} tasks"
    return f"{points[0]:+.1f} points ({points[1]:+.1f} to {points[2]:+.1f}), {tasks}"


def _known(shadow: "Shadowed") -> str:
    if shadow.same is None:
        return f"shadow {shadow.version}: no run of the live policy that it decided beside has ended"
    does = f"shadow {shadow.version}: does as the live one on {shadow.same.mean:.1%} of {shadow.same.tasks:,} tasks"
    if shadow.dollars:
        does += f" and spends {shadow.dollars:+.3g} dollars a task where that is known"
    if shadow.known is None:
        return f"{does}; nothing was graded"
    bounds = f"{100 * shadow.low:+.1f} to {100 * shadow.high:+.1f} points more often right"
    return f"{does}; what it would have come to is known for {shadow.known.mean:.1%}: {bounds}"


def _follows(folder: Path, version: str, found: "Verdict") -> Iterator[str]:
    if found.promote:
        yield f"harm is excluded: shikisha policy promote {folder} {version}"
        return
    yield "not to be promoted" if found.missing is None else "not to be promoted yet"
    for reason in found.reasons:
        yield f"  - {reason}"


def _summary(found: "Trial") -> str:
    return f"right {_points(found.right)}"
