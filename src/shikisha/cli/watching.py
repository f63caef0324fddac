"""`policy watch`: whether a policy's workers are still as good as usual, and the policy that makes do where not.

Invariants: a policy never overwrites the one that it was made from, nor any other file; what is usual, and who told it,
is said; the exit code says whether a worker has fallen. Deliberately absent: the test (`learn.drift`), what counts as
traffic (`config.traffic`), and putting the new policy to use, which is a trial's business (`trials`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.cli.standings import Found, Watched, as_json, show
from shikisha.errors import ConfigError, MissingExtra, TaskError

if TYPE_CHECKING:
    from shikisha.config.traffic import Traffic
    from shikisha.learn.drift import Drift
    from shikisha.learn.watching import Standing
    from shikisha.run import Run

PolicyName = Annotated[
    Path, typer.Argument(metavar="POLICY", help="A policy file, or a shelf's folder: its live policy.")
]
_ALL = 2**31  # runs
_STALE = "the new policy's dial promises what it did before the fall, until shikisha learn measures it anew"
_USUAL = ("policy", "earlier")


@dataclass(frozen=True, slots=True)
class Watching:
    """Which outcomes are watched, and what becomes of it."""

    log: Annotated[
        Path | None, typer.Option("--log", metavar="DIR", help="Outcomes of a log, in its order, not of the journal.")
    ] = None
    since: Annotated[
        str, typer.Option("--since", metavar="ID", help="Watch from this task of the log, or run of the journal, on.")
    ] = ""
    usual: Annotated[
        str,
        typer.Option("--usual", metavar="|".join(_USUAL), help="Who tells what is usual; by default as said above."),
    ] = ""
    to: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="NEW", help="Write the policy that makes do: a new file.")
    ] = None


def watch(policy: PolicyName, watching: Watching, shared: Shared) -> Exit:
    """Tell whether a policy's workers are still as good as usual.

    Reads outcomes in the order of time: the runs of the journal that this policy began, or with --log a log's, in the
    order of its tasks. Exit code 1 if a worker has fallen, 0 if none has. Alarms without cause come once in 20,000
    outcomes of a worker at most, in the mean.

    What is usual is told by the policy where every worker was asked for every task and all is graded; else by earlier
    outcomes, which were asked for as the later ones are: those before --since, or each worker's first 300 (at most half
    of those it has).
    """
    _refuse(watching, shared)
    watched = _opened(policy)
    _refuse_file(watching.to)
    traffic = _traffic(watched, watching, shared)
    found = _judged(watched, traffic, watching)
    fell = [standing.drift for standing in found.standings if standing.drift is not None]
    if fell and watching.to is not None:
        found = _written(found, fell, watching.to)
    if shared.json:
        out.value(as_json(found))
    else:
        show(found)
    return Exit.FAILED if fell else Exit.OK


def _refuse(watching: Watching, shared: Shared) -> None:
    for library, extra in (("numpy", "learn"), ("scipy", "learn")):
        if find_spec(library) is None:
            raise MissingExtra(extra, "policy watch")
    if watching.log is not None and shared.journal is not None:
        raise TaskError("expected --log or --journal, not both")
    if watching.usual not in ("", *_USUAL):
        raise TaskError(f"--usual: expected {' or '.join(_USUAL)}, not {watching.usual!r}")


def _refuse_file(to: Path | None) -> None:
    """Refuse a file that is there: it may be the very policy that is watched, or one on a shelf."""
    if to is not None and to.exists():
        raise ConfigError(f"--out {to}: expected a new file: no policy is written over another")


def _opened(path: Path) -> Watched:
    from shikisha.policy.file import load
    from shikisha.policy.shelf_file import FILE, place, read

    if not path.is_dir():
        beside = path.parent if (path.parent / FILE).exists() else None
        return Watched(*load(path), beside)
    live = read(path).live
    if not live:
        raise ConfigError(f"{path}: there is no policy on this shelf")
    return Watched(*load(place(path, live)), path)


def _traffic(watched: Watched, watching: Watching, shared: Shared) -> "Traffic":
    from shikisha.config.traffic import of_log, of_runs

    if watching.log is not None:
        return of_log(watching.log, watched.policy)
    runs, journal = session.perform(lambda: _runs(shared))
    return of_runs(runs, watched.policy, watched.version, journal)


async def _runs(shared: Shared) -> "tuple[list[Run], str]":
    """Return all runs of the journal, the oldest first, and what the journal is called."""
    from shikisha.run import Run

    async with session.reading(shared) as journal:
        every = reversed(await journal.runs(limit=_ALL))
        runs = [Run.fold(await journal.read(summary.id)) for summary in every]
    named = shared.journal or ""
    return runs, "the journal" if not named or "://" in named else named  # a URL may hold a password


def _judged(watched: Watched, traffic: "Traffic", watching: Watching) -> Found:
    from shikisha.learn.watching import Told, standings

    since = _place(traffic, watching.since)
    by_policy = traffic.whole and since is None
    told = Told(watching.usual) if watching.usual else Told.POLICY if by_policy else Told.EARLIER
    if told is Told.EARLIER and since == 0:
        raise TaskError(f"--since {watching.since}: nothing is before it that could tell what is usual")
    found = standings(watched.policy, traffic.panel, told, since)
    return Found(watched, traffic, told, found, (*traffic.notes, *_caveats(found)), watching.to)


def _place(traffic: "Traffic", name: str) -> int | None:
    """Return the row of a task or run, of whose id the beginning is enough where only one begins so."""
    if not name:
        return None
    ids = traffic.panel.ids
    fitting = [name] if name in ids else [each for each in ids if each.startswith(name)]
    if len(fitting) != 1:
        what = "run" if traffic.runs else "task"
        many = f"{len(fitting):,} of them begin so" if fitting else f"it has {len(ids):,}, the first is {ids[0]!r}"
        raise TaskError(f"--since: no {what} {name!r} that counts in {traffic.source}: {many}")
    return ids.index(fitting[0])


def _caveats(found: "Sequence[Standing]") -> Iterator[str]:
    watched = [each for each in found if each.found is not None]
    aside, fell = sum(each.aside for each in watched), sum(each.drift is not None for each in watched)
    if aside:
        yield f"{aside:,} of the outcomes count for nothing: too little is known of such tasks to say what is usual"
    if 1 < fell == len(watched):
        yield "all workers that are watched fell: look first whether tasks became harder, or grading stricter"
    if not watched:
        yield "nothing can be said yet: too few outcomes have a score"


def _written(found: Found, fell: "Sequence[Drift]", to: Path) -> Found:
    """Write the policy that makes do."""
    from shikisha.config.traffic import learned_from
    from shikisha.learn.rerouting import routed_around
    from shikisha.policy.file import save

    policy, notes = found.watched.policy, found.notes
    panel = learned_from(policy)
    if panel is not None:
        out.note("measuring the dial again, on the log that the policy was learned from")
    else:
        notes += (f"{policy.about.log}, of which the policy was learned, is not there as it was: {_STALE}",)
    made = routed_around(policy, fell, panel)
    if not made.may_ask(made.names).any():
        raise ConfigError(f"--out {to}: workers fell so far that nobody would be asked: nothing is written")
    return replace(found, notes=notes, file=to, written=save(made, to))
