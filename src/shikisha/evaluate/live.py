"""An evaluation while it goes on: who has done how much, how well so far, what it cost, how long it will take.

Invariants: hearing a sample only adds to counters (it may happen thousands of times a second, between other work);
drawing is done four times a second, by rich's own thread, and never waits for a lock. On what is no terminal a line is
printed every few seconds instead. Names are cleaned. Deliberately absent: intervals (they are for finished figures) and
keeping anything (samples are kept by who made them).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from shikisha.budget import format_dollars
from shikisha.clean import one_line
from shikisha.evaluate.names import short_names, shortened
from shikisha.evaluate.samples import Sample
from shikisha.evaluate.wording import percent, plural, seconds
from shikisha.events import Status

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Clock = Callable[[], float]

_WINDOW = 30.0  # seconds over which the rate is taken
_LINE_EVERY = 5.0  # seconds between lines where there is no terminal
_PER_SECOND = 4
_UNANNOUNCED = "others"
_WIDE = 100  # cells from which bars and names are longer


class Progress(Protocol):
    """Who is told how an evaluation goes."""

    def begin(self, name: str, total: int) -> None:
        """Note that an entrant has so many tasks before it; told again, they are added."""
        ...

    def heard(self, sample: Sample, cached: bool = False) -> None:
        """Note a sample."""
        ...

    def __enter__(self) -> "Progress": ...

    def __exit__(self, *_: object) -> None: ...


def progress(console: "Console") -> Progress:
    """Return the progress that suits a console: drawn in place on a terminal, else in lines."""
    return Drawn(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)


@dataclass(slots=True)
class Standing:
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
class Tally:
    """All standings, and what concerns everybody: dollars paid now, samples from a cache, faults by kind.

    Samples of somebody who was not announced (candidates that are tried on dev tasks) count for who was announced last.
    """

    clock: Clock = monotonic
    standings: dict[str, Standing] = field(default_factory=dict)
    paid: float = 0.0
    done: int = 0
    cached: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    _latest: Standing = field(default_factory=lambda: Standing(_UNANNOUNCED))
    _began: float = field(init=False)
    _past: deque[tuple[float, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._past = deque([(self._began, 0)])

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant."""
        self._latest = self.standings.setdefault(name, Standing(name))
        self._latest.total += total

    def add(self, sample: Sample, cached: bool) -> None:
        """Count a sample."""
        standing = self.standings.get(sample.entrant) or self._latest
        standing.done += 1
        self.done += 1
        if sample.score is not None:
            standing.scored += 1
            standing.score += sample.score
        if sample.dollars is not None:
            standing.dollars += sample.dollars
        self.paid += sample.paid
        self.cached += cached
        if sample.status is not Status.DONE:
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


class Lines:
    """Prints where everybody stands every few seconds, and at the end how each stands."""

    def __init__(self, console: "Console", clock: Clock = monotonic) -> None:
        self.tally = Tally(clock)
        self._console = console
        self._next = clock() + _LINE_EVERY

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant."""
        self.tally.begin(name, total)

    def heard(self, sample: Sample, cached: bool = False) -> None:
        """Count a sample; print a line if it is time."""
        self.tally.add(sample, cached)
        if (now := self.tally.clock()) >= self._next:
            self._next = now + _LINE_EVERY
            self._print(self.tally.summary())

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        for standing in self.tally.standings.values():
            if standing.total:
                self._print(_in_words(standing))
        self._print(self.tally.summary())

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Drawn:
    """Keeps a table of all entrants at the foot of a terminal, and leaves one line of it behind."""

    def __init__(self, console: "Console", clock: Clock = monotonic) -> None:
        self.tally = Tally(clock)
        self._console = console
        self._live: Live | None = None

    def begin(self, name: str, total: int) -> None:
        """Announce an entrant."""
        self.tally.begin(name, total)

    def heard(self, sample: Sample, cached: bool = False) -> None:
        """Count a sample; the next drawing shows it."""
        self.tally.add(sample, cached)

    def __enter__(self) -> "Drawn":
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
            self._console.print(self.tally.summary(), markup=False, highlight=False)

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
            cells = (shortened(names[standing.name], name), *_cells(standing, bar))
            table.add_row(*map(Text, cells))
        rest = [Text(f"… and {plural(hidden, 'entrant')} more", "dim")] if hidden else []
        return Group(table, *rest, Text(self.tally.summary()))

    def _shown(self) -> tuple[list[Standing], int]:
        """Return the standings there is room for: who is at work before who has not begun, finished ones last."""
        standings = list(self.tally.standings.values())
        room = max(1, self._console.size.height - 5)
        if len(standings) <= room:
            return standings, 0
        ranked = sorted(standings, key=lambda each: (each.done >= each.total, not each.done))
        kept = {id(each) for each in ranked[:room]}
        return [each for each in standings if id(each) in kept], len(standings) - room


def _cells(standing: Standing, bar: int) -> tuple[str, ...]:
    share = min(1.0, standing.done / standing.total) if standing.total else 1.0
    full = int(share * bar)
    return (
        "━" * full + "╌" * (bar - full),
        f"{standing.done:,}/{standing.total:,}",
        percent(standing.accuracy),
        format_dollars(standing.dollars),
        f"{standing.failed:,} failed" if standing.failed else "",
    )


def _in_words(standing: Standing) -> str:
    failed = f", {plural(standing.failed, 'failure')}" if standing.failed else ""
    done = f"{standing.done:,} of {standing.total:,}"
    return (
        f"{one_line(standing.name)}: {done}, {percent(standing.accuracy)}, {format_dollars(standing.dollars)}{failed}"
    )
