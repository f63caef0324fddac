"""Policies in use: `policy shelf`, `add`, `shadow`, `canary` and `rollback` of a shelf.

Invariant: whoever changes a shelf is named in its history, with the reason given. Deliberately absent: promotion, which
needs a trial (`trials`).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.clean import one_line
from shikisha.cli import out
from shikisha.cli.exits import Exit
from shikisha.cli.options import JsonOption
from shikisha.errors import MissingExtra, TaskError

if TYPE_CHECKING:
    from shikisha.policy.shelf import By, Shelf

ShelfFolder = Annotated[Path, typer.Argument(metavar="SHELF", help="A shelf's folder.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file, as `learn --out` writes it.")]
Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="A policy on the shelf: its version, the beginning of it, or its file.")
]
MaybeVersion = Annotated[
    str, typer.Argument(metavar="[VERSION]", help="A policy on the shelf; none with --off.", show_default=False)
]
Why = Annotated[str, typer.Option("--why", help="Why, for the shelf's history.")]
Off = Annotated[bool, typer.Option("--off", help="Let it act so no more.")]
Share = Annotated[float | None, typer.Option("--share", help="Its share of the tasks, between 0 and 1.")]


def shelf(folder: ShelfFolder, json: JsonOption = False) -> Exit:
    """Show what is live, canary and shadow on a shelf, and its history."""
    _need_numpy()
    from shikisha.policy.shelf_file import read

    held = read(folder)
    if json:
        out.value(as_json(held))
    else:
        out.report("\n".join(_lines(held)))
    return Exit.OK


def add(folder: ShelfFolder, file: PolicyFile, why: Why = "", json: JsonOption = False) -> Exit:
    """Put a policy on a shelf, which is made if need be.

    The first one is live at once; another acts for nobody until it is made a shadow, a canary or live.
    """
    _need_numpy()
    from shikisha.policy.shelf_file import put

    version, held = put(folder, file, signed(why))
    if json:
        out.value({"added": version, **as_json(held)})
    elif version == held.live:
        out.note(f"{version} is live. Use it: shikisha run --conductor policy:{folder} ...")
    else:
        out.note(f"{version} is on the shelf. Next: shikisha policy shadow {folder} {version}, or policy canary")
    return Exit.OK


def shadow(folder: ShelfFolder, version: Version, off: Off = False, why: Why = "", json: JsonOption = False) -> Exit:
    """Let a policy decide beside whoever acts; it calls nothing."""
    by = signed(why)

    def changed(held: "Shelf") -> "Shelf":
        name = held.named(version)
        return held.without_shadow(name, by) if off else held.with_shadow(name, by)

    return _change(folder, changed, json=json)


def canary(
    folder: ShelfFolder,
    version: MaybeVersion = "",
    share: Share = None,
    off: Off = False,
    why: Why = "",
    json: JsonOption = False,
) -> Exit:
    """Let a policy act for a share of the tasks, drawn by their content."""
    by = signed(why)
    if off == (share is not None):
        raise TaskError("expected --share X, or --off, one of them")
    if not off and not version:
        raise TaskError("expected the VERSION of a policy on the shelf")

    def changed(held: "Shelf") -> "Shelf":
        if share is None:
            return held.without_canary(by)
        return held.trying(held.named(version), share, by)

    return _change(folder, changed, json=json)


def rollback(folder: ShelfFolder, why: Why = "", json: JsonOption = False) -> Exit:
    """Make the policy live again that was so before the present one."""
    by = signed(why)
    return _change(folder, lambda held: held.rolled_back(by), json=json)


def signed(why: str) -> "By":
    """Return who sits here, now, with this reason."""
    _need_numpy()
    from shikisha.cli.desk import actor
    from shikisha.cli.session import storable
    from shikisha.policy.shelf import By

    return By(who=actor() or "unknown", at=time(), why=storable(why, "--why"))


def as_json(held: "Shelf") -> Mapping[str, object]:
    """Return a shelf as `--json` prints it."""
    return held.model_dump(mode="json")


def told(at: float) -> str:
    """Return a time as people here read it."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M}"


def _change(folder: Path, by: "Callable[[Shelf], Shelf]", *, json: bool) -> Exit:
    from shikisha.policy.shelf_file import change

    held = change(folder, by)
    if json:
        out.value(as_json(held))
    else:
        out.report("\n".join(_roles(held)))
    return Exit.OK


def _lines(held: "Shelf") -> Iterator[str]:
    yield from _roles(held)
    yield ""
    width = max((len(entry.by.who) for entry in held.history), default=0)
    for entry in held.history:
        share = f" for {entry.share:.0%} of the tasks" if entry.share is not None else ""
        forced = " against the trial" if entry.forced else ""
        why = f": {one_line(entry.by.why, 200)}" if entry.by.why else ""
        yield f"{told(entry.by.at)}  {entry.by.who:{width}}  {entry.version} {entry.deed}{share}{forced}{why}"


def _roles(held: "Shelf") -> Iterator[str]:
    """Say of each policy what it does, the live one first."""
    order = [*held.shares, *held.shadows]
    policies = sorted(held.policies, key=lambda one: order.index(one.version) if one.version in order else len(order))
    for policy in policies:
        role, does = _role(held, policy.version), _does(held, policy.version)
        yield f"{role:6}  {policy.version}  {does} ({one_line(policy.name, 60)})"


def _role(held: "Shelf", version: str) -> str:
    if version == held.live:
        return "live"
    if version in held.shares:
        return "canary"
    return "shadow" if version in held.shadows else ""


def _does(held: "Shelf", version: str) -> str:
    if version in held.shares:
        return f"acts for {held.shares[version]:.3g} of the tasks" if held.canary else "acts for all tasks"
    return "decides beside" if version in held.shadows else "rests"


def _need_numpy() -> None:
    if find_spec("numpy") is None:
        raise MissingExtra("eval", "a shelf of policies")
