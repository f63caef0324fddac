"""An evaluation on a terminal: its progress while it runs, and its report as a table.

Invariants: every text from the evaluation is cleaned and printed without markup, so no name moves a cursor or colors a
line; a row is one line at any width, since the least telling columns are left out until it fits. Counting a sample only
adds to counters (thousands of times a second, between other work), and rich's own thread draws four times a second;
`rich.progress` would take a lock for each update. Without a terminal a line is printed every few seconds instead.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from shikisha.core.budget import format_dollars
from shikisha.core.events import RunStatus
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.text import one_line
from shikisha.evals.entrant_metrics import EntrantFigures, EvaluationReport
from shikisha.evals.report_text import (
    PARTS,
    abbreviate_names,
    caveat_sentences,
    dimension_sentences,
    headline_sentences,
    reading_order,
    short_names,
    span,
    total_dollars,
)
from shikisha.evals.samples import EntrantRole, Sample
from shikisha.plots.format import UNKNOWN, count, percent, plural, points, seconds, shorten_middle

if TYPE_CHECKING:
    from rich.console import Console

_SHORTEST, _SHORT, _LONG = 12, 22, 44  # cells of a name: next to vital columns, next to others, with room to spare
_VITAL = 3  # columns for which names are shortened most: accuracy, difference, its interval
_GAP = 2
_MOST_LISTED = 6
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column: its heading and how an entry fills it; those of the lowest `rank` are given up last."""

    head: str
    cell: Callable[[EntrantFigures], str]
    rank: int


def print_report(report: EvaluationReport, console: "Console") -> None:
    """Print the evaluation, with long names abbreviated and explained below the table."""
    report, whole = abbreviate_names(report)
    _print_wrapped(console, f"{one_line(report.taskset)}: {plural(len(report.tasks), 'task')}", "bold")
    for caveat in caveat_sentences(report):
        _print_wrapped(console, f"! {caveat}", "yellow", 2)
    for index, sentence in enumerate(headline_sentences(report)):
        _print_wrapped(console, sentence, "bold" if not index else "")
    entries = reading_order(report)
    if entries:
        console.print()
        from rich.table import Table
        from rich.text import Text

        width, shown = fit_columns(report_columns(report), entries, console.width)
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
            cells = [
                Text(entrant_name(entry, width), "bold" if best else ""),
                *(Text(column.cell(entry)) for column in shown),
            ]
            table.add_row(*cells)
        console.print(table)
        console.print()
        for short, full in whole.items():
            _print_wrapped(console, f"{short} is {full}", "", 2)
        for line in _details(entries, report):
            _print_wrapped(console, line, "", 2)


def report_columns(report: EvaluationReport) -> tuple[ReportColumn, ...]:
    """Return all columns there are, in the order in which they stand."""
    return (
        ReportColumn("accuracy", lambda entry: percent(entry.accuracy), 0),
        ReportColumn("95 % interval", lambda entry: span(entry.interval), 4),
        ReportColumn("difference", lambda entry: points(entry.against.mean) if entry.against else UNKNOWN, 1),
        ReportColumn(
            "95 % interval", lambda entry: span(entry.against.interval, signed=True) if entry.against else "", 2
        ),
        ReportColumn("valid", lambda entry: percent(entry.valid), 5),
        ReportColumn("given valid", lambda entry: percent(entry.accuracy_given_valid), 9),
        ReportColumn("$ in total", total_dollars, 7),
        ReportColumn("$ a task", lambda entry: format_dollars(entry.dollars_a_task), 3),
        ReportColumn("tokens", lambda entry: count(entry.tokens), 10),
        ReportColumn("steps", lambda entry: f"{entry.steps:.2f}", 6),
        ReportColumn("p50", lambda entry: seconds(entry.seconds_p50), 8),
        ReportColumn("p95", lambda entry: seconds(entry.seconds_p95), 11),
        ReportColumn("entropy", lambda entry: f"{entry.entropy:.2f}", 12),
        ReportColumn("gap", lambda entry: percent(report.pgr.get(entry.name)), 13),
        ReportColumn("no answer", lambda entry: count(entry.no_answer), 14),
        ReportColumn("ungraded", lambda entry: count(entry.ungraded), 15),
        ReportColumn("judged", lambda entry: count(entry.judged), 16),
        ReportColumn("tasks", lambda entry: count(entry.tasks), 17),
    )


def fit_columns(
    available: Sequence[ReportColumn], entries: Sequence[EntrantFigures], width: int
) -> tuple[int, tuple[ReportColumn, ...]]:
    """Return how wide the name may be in cells, and the columns that fit next to it, in their order.

    Columns are taken by rank for as long as they fit next to shortened names; names then get the remaining width.
    """
    from rich.cells import cell_len

    longest = max(cell_len(entrant_name(entry)) for entry in entries)
    chosen: list[ReportColumn] = []
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


def entrant_name(entry: EntrantFigures, longest: int = _LONG) -> str:
    """Return an entrant's name as it is printed."""
    return shorten_middle(one_line(entry.name), longest)


def _details(entries: Sequence[EntrantFigures], report: EvaluationReport) -> Iterator[str]:
    conductors = [entry for entry in entries if entry.part not in (EntrantRole.SINGLE, EntrantRole.ORACLE)]
    for entry in conductors:
        # Say who did a conductor's steps, in which shapes, and what further rounds changed.
        if len(entry.workers) > 1:
            yield f"{entrant_name(entry)}: steps by {_list_largest(entry.workers, percent)}"
        if len(entry.topologies) > 1:
            yield f"{entrant_name(entry)}: shapes {_list_largest(entry.topologies, count)}"
        further = entry.second_round
        if further is not None and further.runs:
            yield (
                f"{entrant_name(entry)}: further rounds in {plural(further.runs, 'run')} repaired {further.repaired:,} "
                f"and broke {further.broke:,}"
            )
    alone: Counter[str] = Counter()
    for entry in entries:
        if entry.part is EntrantRole.SINGLE:
            alone.update(entry.failures)
    for who, failures in [*((entrant_name(entry), entry.failures) for entry in conductors), ("single workers", alone)]:
        if any(failures.values()):
            yield f"{who}: ended without an answer, by fault: {_list_largest(failures, count)}"
    for entry in entries:
        if entry.failure_classes:
            yield f"{entrant_name(entry)}: where it failed with tools: {_list_largest(entry.failure_classes, count)}"
    yield from dimension_sentences(report)
    for curve in report.curves:
        pair = f"{one_line(curve.weak, 80)} to {one_line(curve.strong, 80)}"
        half, most = ("never" if share is None else percent(share) for share in (curve.cpt50, curve.cpt80))
        figures = f"APGR {curve.apgr:.3f}, CPT50 {half}, CPT80 {most}"
        yield f"router {one_line(curve.name, 80)} from {pair}: {figures}"
    if report.aiq is not None:
        yield f"AIQ of all that ran: {report.aiq:.3f}"


def _list_largest(shares: Mapping[str, float], write: Callable[[float], str]) -> str:
    """Return the largest with their figures, most first, and how many more there are."""
    ranked = sorted(((key, value) for key, value in shares.items() if value), key=lambda pair: -pair[1])
    said = [f"{one_line(key, 80)} {write(value)}" for key, value in ranked[:_MOST_LISTED]]
    more = len(ranked) - len(said)
    return ", ".join(said) + (f" and {more} more" if more else "")


def _print_wrapped(console: "Console", text: str, style: str, indent: int = 0) -> None:
    """Print a text cleaned, wrapped at words; lines that go on are indented."""
    from rich.text import Text

    lines = Text(one_line(text, _LONGEST), style).wrap(console, max(20, console.width - indent))
    for index, line in enumerate(lines):
        line.rstrip()
        console.print(Text(" " * indent if index else "").append_text(line), soft_wrap=True)


if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Clock = Callable[[], float]

_WINDOW = 30.0  # seconds over which the rate is taken
_LINE_EVERY = 5.0  # seconds between lines where there is no terminal
_PER_SECOND = 4
_OTHER_ENTRANTS = "others"
_WIDE = 100  # cells from which bars and names are longer


class EvaluationProgress(Protocol):
    """Shows how far an evaluation is."""

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant with so many tasks to do; a second call adds to them."""
        ...

    def add_sample(self, sample: Sample, cached: bool = False) -> None:
        """Note a sample."""
        ...

    def __enter__(self) -> "EvaluationProgress": ...

    def __exit__(self, *_: object) -> None: ...


def console_progress(console: "Console") -> EvaluationProgress:
    """Return the progress that suits a console: drawn in place on a terminal, else in lines."""
    return ProgressTable(console) if console.is_terminal and not console.is_dumb_terminal else ProgressLines(console)


@dataclass(slots=True)
class EntrantProgress:
    """How far one entrant is: samples done and to be done, the sum of `scored` scores, dollars, failures."""

    name: str
    total: int = 0
    done: int = 0
    scored: int = 0
    score: float = 0.0
    dollars: float = 0.0
    failed: int = 0

    @property
    def accuracy(self) -> float | None:
        """The mean score so far."""
        return self.score / self.scored if self.scored else None


@dataclass(slots=True)
class ProgressCounts:
    """All standings, and what concerns everybody: dollars paid now, samples from a cache, faults by kind.

    Samples of an entrant that was not announced (a candidate tried on dev tasks) count for the one announced last.
    """

    clock: Clock = monotonic
    standings: dict[str, EntrantProgress] = field(default_factory=dict)
    paid: float = 0.0
    done: int = 0
    cached: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    _latest: EntrantProgress = field(default_factory=lambda: EntrantProgress(_OTHER_ENTRANTS))
    _began: float = field(init=False)
    _past: deque[tuple[float, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._past = deque([(self._began, 0)])

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant."""
        self._latest = self.standings.setdefault(name, EntrantProgress(name))
        self._latest.total += total

    def add(self, sample: Sample, cached: bool) -> None:
        """Count a sample."""
        standing = self.standings.get(sample.entrant) or self._latest
        standing.done += 1
        standing.total = max(standing.total, standing.done)  # tries of a search are announced by nobody
        self.done += 1
        if sample.score is not None:
            standing.scored += 1
            standing.score += sample.score
        if sample.dollars is not None:
            standing.dollars += sample.dollars
        self.paid += sample.paid
        self.cached += cached
        if sample.status is not RunStatus.DONE:
            standing.failed += 1
            self.faults[sample.faults[-1] if sample.faults else sample.status] += 1

    @property
    def total(self) -> int:
        """How many samples were announced."""
        return sum(standing.total for standing in list(self.standings.values()))

    def elapsed(self) -> float:
        """Return the seconds since it began."""
        return self.clock() - self._began

    def rate(self) -> float:
        """Return the samples a second over the last half minute; to be asked again and again."""
        now = self.clock()
        self._past.append((now, self.done))
        while len(self._past) > 2 and now - self._past[1][0] >= _WINDOW:
            self._past.popleft()
        since, before = self._past[0]
        return (self.done - before) / (now - since) if now > since else 0.0

    def summary(self) -> str:
        """Return where everybody together stands, in one line."""
        rate, left = self.rate(), max(0, self.total - self.done)
        speed = f"{rate:,.1f} a second" if rate >= 1 else f"{60 * rate:.1f} a minute"
        parts = [f"{self.done:,} of {max(self.total, self.done):,}", speed]
        if left and rate > 0:
            parts.append(f"{seconds(left / rate)} left")
        parts += [f"{seconds(self.elapsed())} so far", f"{format_dollars(self.paid)} paid now"]
        if self.cached:
            parts.append(f"{self.cached:,} from the cache")
        return " · ".join([*parts, *self._failures()])

    def _failures(self) -> Iterator[str]:
        faults = self.faults.copy()
        if faults:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in faults.most_common(3))
            yield f"{plural(faults.total(), 'failure')} ({kinds})"


class ProgressLines:
    """Prints where everybody stands every few seconds, and at the end how each stands."""

    def __init__(self, console: "Console", clock: Clock = monotonic) -> None:
        self.counts = ProgressCounts(clock)
        self._console = console
        self._next = clock() + _LINE_EVERY

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant."""
        self.counts.begin(name, total)

    def add_sample(self, sample: Sample, cached: bool = False) -> None:
        """Count a sample; print a line if it is time."""
        self.counts.add(sample, cached)
        if (now := self.counts.clock()) >= self._next:
            self._next = now + _LINE_EVERY
            self._print(self.counts.summary())

    def __enter__(self) -> "ProgressLines":
        return self

    def __exit__(self, *_: object) -> None:
        for standing in self.counts.standings.values():
            if standing.total:
                self._print(_describe_entrant(standing))
        self._print(self.counts.summary())

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class ProgressTable:
    """Keeps a table of all entrants at the foot of a terminal, and leaves one line of it behind."""

    def __init__(self, console: "Console", clock: Clock = monotonic) -> None:
        self.counts = ProgressCounts(clock)
        self._console = console
        self._live: Live | None = None

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant."""
        self.counts.begin(name, total)

    def add_sample(self, sample: Sample, cached: bool = False) -> None:
        """Count a sample; the next drawing shows it."""
        self.counts.add(sample, cached)

    def __enter__(self) -> "ProgressTable":
        from rich.live import Live

        self._live = Live(
            console=self._console, get_renderable=self.draw, refresh_per_second=_PER_SECOND, transient=True
        )
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._console.print(self.counts.summary(), markup=False, highlight=False)

    def draw(self) -> "RenderableType":
        """Return the table as it is now, no higher than the terminal."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for justify in ("left", "left", "right", "right", "right", "right"):
            table.add_column(justify=justify, no_wrap=True, overflow="ellipsis")
        shown, hidden = self._shown()
        names = short_names(standing.name for standing in shown)
        name, bar = (36, 20) if self._console.width >= _WIDE else (24, 8)
        for standing in shown:
            cells = (shorten_middle(names[standing.name], name), *_cells(standing, bar))
            table.add_row(*map(Text, cells))
        rest = [Text(f"… and {plural(hidden, 'entrant')} more", "dim")] if hidden else []
        return Group(table, *rest, Text(self.counts.summary()))

    def _shown(self) -> tuple[list[EntrantProgress], int]:
        """Return the standings there is room for: who is at work before who has not begun, finished ones last."""
        standings = list(self.counts.standings.values())
        room = max(1, self._console.size.height - 5)
        if len(standings) <= room:
            return standings, 0
        ranked = sorted(standings, key=lambda each: (each.done >= each.total, not each.done))
        kept = {id(each) for each in ranked[:room]}
        return [each for each in standings if id(each) in kept], len(standings) - room


def _cells(standing: EntrantProgress, bar: int) -> tuple[str, ...]:
    share = min(1.0, standing.done / standing.total) if standing.total else 1.0
    full = int(share * bar)
    return (
        "━" * full + "╌" * (bar - full),
        f"{standing.done:,}/{standing.total:,}",
        percent(standing.accuracy),
        format_dollars(standing.dollars),
        f"{standing.failed:,} failed" if standing.failed else "",
    )


def _describe_entrant(standing: EntrantProgress) -> str:
    failed = f", {plural(standing.failed, 'failure')}" if standing.failed else ""
    done = f"{standing.done:,} of {standing.total:,}"
    return (
        f"{one_line(standing.name)}: {done}, {percent(standing.accuracy)}, {format_dollars(standing.dollars)}{failed}"
    )
