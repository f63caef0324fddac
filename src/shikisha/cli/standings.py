"""How `policy watch` says what it found: a table of the workers, what fell and since when, and what to do next.

Invariants: a row is one line in 80 columns, names are cut before figures; shares are in %; what is not known is a dash
on the screen and null in JSON. Deliberately absent: finding anything out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shikisha.clean import one_line
from shikisha.cli import out

if TYPE_CHECKING:
    from rich.table import Table

    from shikisha.config.traffic import Traffic
    from shikisha.learn.drift import Drift
    from shikisha.learn.watching import Standing, Told
    from shikisha.policy.policy import Policy

_GAP, _EARLIER = 2, "earlier"
_BESIDE = 49  # columns that stand beside a worker's name, the one of earlier outcomes left out
_LEAST, _LONGEST = 12, 48  # of a name


@dataclass(frozen=True, slots=True)
class Watched:
    """A policy, its version, and the shelf that it stands on, if that is known."""

    policy: "Policy"
    version: str
    shelf: Path | None


@dataclass(frozen=True, slots=True)
class Found:
    """How a policy's workers stand by its traffic, who told what is usual, what else must be said.

    `file` and `written` are the policy that makes do, and its version, if it was written.
    """

    watched: Watched
    traffic: "Traffic"
    told: "Told"
    standings: "tuple[Standing, ...]"
    notes: tuple[str, ...]
    file: Path | None = None
    written: str = ""

    @property
    def next(self) -> tuple[str, ...]:
        """Commands that look at what was written and put it on trial."""
        if not self.written:
            return ()
        shelf = self.watched.shelf or "SHELF"
        each = (
            f"show {self.file}",
            f"add {shelf} {self.file}",
            f"canary {shelf} {self.written} --share 0.1",
            f"trial {shelf}",
        )
        return tuple(f"shikisha policy {one}" for one in each)


def as_json(found: Found) -> Mapping[str, object]:
    """Return what was found as `--json` prints it."""
    return {
        "policy": found.watched.version,
        "source": found.traffic.source,
        "rows": len(found.traffic.panel),
        "usual": found.told,
        "fallen": [standing.worker for standing in found.standings if standing.drift is not None],
        "workers": [asdict(standing) for standing in found.standings],
        "notes": list(found.notes),
        "written": {"file": str(found.file), "version": found.written} if found.written else None,
        "next": list(found.next),
    }


def show(found: Found) -> None:
    """Print what was found."""
    console = out.console(to_stdout=True)
    out.report("\n".join(_heads(found)))
    console.print(_table(found, console.width))
    out.report("\n".join([*_tells(found), *(f"! {note}" for note in found.notes)]))
    fell = any(standing.drift for standing in found.standings)
    if found.written:
        out.note(f"written: {found.file} (version {found.written})")
        out.report("\n".join(["Put it on trial:", *(f"  {line}" for line in found.next)]))
    elif fell:
        out.report("--out NEW writes the policy that makes do with that.")
    elif found.file is not None:
        out.note(f"{found.file} is not written: there is nothing to make do with")


def _heads(found: Found) -> Iterator[str]:
    from shikisha.learn.watching import Told

    traffic = found.traffic
    rows = f"{len(traffic.panel):,} {'runs, the oldest first' if traffic.runs else 'tasks, in the order of the log'}"
    yield f"policy {found.watched.version} in {one_line(traffic.source)}: {rows}"
    if found.told is Told.POLICY:
        yield "Usual is what the policy knows of each worker, by type of task."
    else:
        yield "Usual is what each worker's earlier outcomes were, by type of task."


def _table(found: Found, width: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from shikisha.learn.naming import labels
    from shikisha.learn.watching import Told

    earlier = found.told is Told.EARLIER
    room = min(_LONGEST, max(_LEAST, width - _BESIDE - (len(_EARLIER) + _GAP) * earlier))
    short = labels([standing.worker for standing in found.standings], room)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    table.add_column("worker", no_wrap=True, min_width=max(map(len, short.values()), default=0))
    for name in (*((_EARLIER,) if earlier else ()), "outcomes", "usual", "found, with 95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for standing in found.standings:
        early = (f"{standing.early:,}",) if earlier else ()
        cells = (short[standing.worker], *early, *_figures(standing), str(standing.state))
        style = "bold red" if standing.drift else "dim" if standing.found is None else ""
        table.add_row(*(Text(cell, style) for cell in cells))
    return table


def _figures(standing: "Standing") -> tuple[str, str, str]:
    from shikisha.evaluate.wording import UNKNOWN

    outcomes = f"{standing.outcomes:,}"
    known = (standing.usual, standing.found, standing.low, standing.high)
    if standing.usual is None or standing.found is None or standing.low is None or standing.high is None:
        return outcomes, UNKNOWN, UNKNOWN
    usual, right, low, high = (f"{100 * share:.1f}" for share in known if share is not None)
    return outcomes, usual, f"{right} {low} to {high}"


def _tells(found: Found) -> Iterator[str]:
    """Say who fell, and when; or that nobody did."""
    from shikisha.learn.watching import FEW, State

    fell = [standing.drift for standing in found.standings if standing.drift is not None]
    for drift in fell:
        yield from _told(drift, found.traffic)
    if not fell:
        yield "No worker has fallen below what is usual for it."
    few = sum(standing.state is State.FEW for standing in found.standings)
    if few:
        yield f"Too few: fewer than {FEW} outcomes with a score that could tell what is usual, or be compared with it."


def _told(drift: "Drift", traffic: "Traffic") -> Iterator[str]:
    row = "run" if traffic.runs else "task"
    places = [traffic.panel.ids.index(each) + 1 for each in (drift.since, drift.noticed)]
    yield f"{one_line(drift.worker)} fell: right on {100 * drift.found:.1f} % instead of {100 * drift.usual:.1f} %"
    yield f"  in {drift.outcomes:,} outcomes since {row} {places[0]:,} ({one_line(drift.since)}),"
    yield f"  noticed at {row} {places[1]:,} ({one_line(drift.noticed)})."
