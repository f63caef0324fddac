"""The terminal's table of an evaluation: caveats, headline, a row an entrant, and what conductors did.

Invariants: every text from the evaluation is cleaned and printed without markup, so no name moves a cursor or colours a
line; whatever the width, a row is one line, since columns are left out, the least telling first, until it fits.
Deliberately absent: plots (the page has them), and figures of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shikisha.budget import format_dollars
from shikisha.clean import one_line
from shikisha.evaluate.entries import Entry, Report
from shikisha.evaluate.names import abbreviated, shortened
from shikisha.evaluate.samples import Part
from shikisha.evaluate.summary import caveats, headline, ordered
from shikisha.evaluate.wording import (
    PARTS,
    UNKNOWN,
    count,
    percent,
    plural,
    points,
    seconds,
    span,
    total_dollars,
)

if TYPE_CHECKING:
    from rich.console import Console

_SHORTEST, _SHORT, _LONG = 12, 22, 44  # cells of a name: beside vital columns, beside others, with room to spare
_VITAL = 3  # columns for which names are shortened most: accuracy, difference, its interval
_GAP = 2
_MOST_LISTED = 6
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading and how an entry fills it; those of the lowest `rank` are given up last."""

    head: str
    cell: Callable[[Entry], str]
    rank: int


def show(report: Report, console: "Console") -> None:
    """Print the evaluation, with long names abbreviated and explained below the table."""
    report, whole = abbreviated(report)
    _line(console, f"{one_line(report.taskset)}: {plural(len(report.tasks), 'task')}", "bold")
    for caveat in caveats(report):
        _line(console, f"! {caveat}", "yellow", 2)
    for index, sentence in enumerate(headline(report)):
        _line(console, sentence, "bold" if not index else "")
    entries = ordered(report)
    if entries:
        console.print()
        _print_table(entries, report, console)
        console.print()
        for short, full in whole.items():
            _line(console, f"{short} is {full}", "", 2)
        for line in _details(entries, report):
            _line(console, line, "", 2)


def columns(report: Report) -> tuple[Column, ...]:
    """Return all columns there are, in the order in which they stand."""
    return (
        Column("accuracy", lambda entry: percent(entry.accuracy), 0),
        Column("95 % interval", lambda entry: span(entry.interval), 4),
        Column("difference", lambda entry: points(entry.against.mean) if entry.against else UNKNOWN, 1),
        Column("95 % interval", lambda entry: span(entry.against.interval, signed=True) if entry.against else "", 2),
        Column("valid", lambda entry: percent(entry.valid), 5),
        Column("given valid", lambda entry: percent(entry.accuracy_given_valid), 9),
        Column("$ in total", total_dollars, 7),
        Column("$ a task", lambda entry: format_dollars(entry.dollars_a_task), 3),
        Column("tokens", lambda entry: count(entry.tokens), 10),
        Column("steps", lambda entry: f"{entry.steps:.2f}", 6),
        Column("p50", lambda entry: seconds(entry.seconds_p50), 8),
        Column("p95", lambda entry: seconds(entry.seconds_p95), 11),
        Column("entropy", lambda entry: f"{entry.entropy:.2f}", 12),
        Column("gap", lambda entry: percent(report.pgr.get(entry.name)), 13),
        Column("no answer", lambda entry: count(entry.no_answer), 14),
        Column("ungraded", lambda entry: count(entry.ungraded), 15),
        Column("judged", lambda entry: count(entry.judged), 16),
        Column("tasks", lambda entry: count(entry.tasks), 17),
    )


def fitting(available: Sequence[Column], entries: Sequence[Entry], width: int) -> tuple[int, tuple[Column, ...]]:
    """Return how wide the name may be in cells, and the columns that fit beside it, in their order.

    Columns are taken by rank for as long as they fit beside shortened names; names then get what is left over.
    """
    from rich.cells import cell_len

    longest = max(cell_len(name(entry)) for entry in entries)
    chosen: list[Column] = []
    used = 0
    for column in sorted(available, key=lambda column: column.rank):
        needed = _GAP + max(cell_len(text) for text in (column.head, *map(column.cell, entries)))
        least = min(longest, _SHORT if len(chosen) >= _VITAL else _SHORTEST)
        if chosen and used + needed + least > width:
            break
        chosen.append(column)
        used += needed
    named = min(longest, _LONG, max(_SHORTEST, width - used))
    return named, tuple(column for column in available if column in chosen)


def name(entry: Entry, longest: int = _LONG) -> str:
    """Return an entrant's name as it is printed."""
    return shortened(one_line(entry.name), longest)


def _print_table(entries: Sequence[Entry], report: Report, console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    width, shown = fitting(columns(report), entries, console.width)
    table = Table(box=None, padding=(0, 0, 0, _GAP), collapse_padding=True, pad_edge=False, header_style="bold")
    table.add_column("entrant", no_wrap=True, overflow="ellipsis", width=width)
    for column in shown:
        table.add_column(column.head, justify="right", no_wrap=True, overflow="ellipsis")
    part = None
    for entry in entries:
        if entry.part is not part:
            part = entry.part
            if entry.name != PARTS[part]:
                table.add_row(Text(PARTS[part], "dim italic"))
        best = entry.name == report.best_single
        cells = [Text(name(entry, width), "bold" if best else ""), *(Text(column.cell(entry)) for column in shown)]
        table.add_row(*cells)
    console.print(table)


def _details(entries: Sequence[Entry], report: Report) -> Iterator[str]:
    conductors = [entry for entry in entries if entry.part not in (Part.SINGLE, Part.ORACLE)]
    for entry in conductors:
        yield from _work(entry)
    alone: Counter[str] = Counter()
    for entry in entries:
        if entry.part is Part.SINGLE:
            alone.update(entry.failures)
    for who, failures in [*((name(entry), entry.failures) for entry in conductors), ("single workers", alone)]:
        if any(failures.values()):
            yield f"{who}: ended without an answer, by fault: {_listed(failures, count)}"
    for curve in report.curves:
        pair = f"{one_line(curve.weak, 80)} to {one_line(curve.strong, 80)}"
        half, most = ("never" if share is None else percent(share) for share in (curve.cpt50, curve.cpt80))
        figures = f"APGR {curve.apgr:.3f}, CPT50 {half}, CPT80 {most}"
        yield f"router {one_line(curve.name, 80)} from {pair}: {figures}"
    if report.aiq is not None:
        yield f"AIQ of all that ran: {report.aiq:.3f}"


def _work(entry: Entry) -> Iterator[str]:
    """Say who did a conductor's steps, in which shapes, and what further rounds changed."""
    if len(entry.workers) > 1:
        yield f"{name(entry)}: steps by {_listed(entry.workers, percent)}"
    if len(entry.topologies) > 1:
        yield f"{name(entry)}: shapes {_listed(entry.topologies, count)}"
    further = entry.second_round
    if further is not None and further.runs:
        yield (
            f"{name(entry)}: further rounds in {plural(further.runs, 'run')} repaired {further.repaired:,} "
            f"and broke {further.broke:,}"
        )


def _listed(shares: Mapping[str, float], write: Callable[[float], str]) -> str:
    """Return the largest with their figures, most first, and how many more there are."""
    ranked = sorted(((key, value) for key, value in shares.items() if value), key=lambda pair: -pair[1])
    said = [f"{one_line(key, 80)} {write(value)}" for key, value in ranked[:_MOST_LISTED]]
    more = len(ranked) - len(said)
    return ", ".join(said) + (f" and {more} more" if more else "")


def _line(console: "Console", text: str, style: str, indent: int = 0) -> None:
    """Print a text cleaned, wrapped at words; lines that go on are indented."""
    from rich.text import Text

    lines = Text(one_line(text, _LONGEST), style).wrap(console, max(20, console.width - indent))
    for index, line in enumerate(lines):
        line.rstrip()
        console.print(Text(" " * indent if index else "").append_text(line), soft_wrap=True)
