"""The terminal's sides of a policy: the ladder that was climbed (`climbed`), and what a policy does (`portrait`).

Invariants: every text from a log is cleaned and printed without markup; a row is one line in 80 columns, names are cut
before figures; what was not counted is a dash. Deliberately absent: figures of its own, and plots (the page has them).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shikisha.budget import format_dollars
from shikisha.clean import one_line
from shikisha.evaluate.wording import UNKNOWN, percent, plural
from shikisha.learn import summary
from shikisha.learn.figures import BUDGETS, Line, best_single, hardly_known, lines, marks, overspent, settings
from shikisha.learn.naming import labels
from shikisha.learn.ways import Rate, Way, asked, ways
from shikisha.policy.dial import Mix
from shikisha.policy.policy import Met, Policy, Rung

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_WORKERS, _MOST_TYPES, _MOST_NOTES = 13, 15, 2  # rows
_OF_MANY = 10  # rows of a larger pool, those first that are asked
_NAME, _KIND = 16, 14  # cells
_LONGEST = 2_000
_Z = 1.96


def climbed(policy: Policy, console: "Console") -> None:
    """Print the ladder: every rung's accuracy at its budgets, what is kept, and why."""
    _line(console, f"{one_line(summary.name(policy.about))}: {summary.source(policy)}", "bold")
    _line(console, summary.yardstick(policy))
    if told := summary.few(policy):
        _line(console, told, "yellow")
    measured = lines(policy)
    if measured:
        console.print()
        _line(console, "Accuracy on held-back tasks, % ± half the 95 % interval, at a mean cost of", "dim")
        console.print(_ladder(measured, console.width))
        if any(met and overspent(met, budget) for line in measured for budget in BUDGETS for met in (line.at(budget),)):
            _line(console, "! Its dial was wrong: it spent clearly more than that.", "dim")
        for name, met in marks(policy):
            _line(console, f"{one_line(name)}: {percent(met.accuracy)} at a cost of {percent(met.spent)}")
    console.print()
    for place, sentence in enumerate(summary.headline(policy)):
        _line(console, sentence, "bold" if not place else "")
    evidence = policy.rung().evidence
    if evidence is not None and (told := summary.kept_word(evidence)):
        _line(console, told)
    for note in dict.fromkeys(line.note for line in measured if line.rung and line.note):
        _line(console, f"{', '.join(line.name for line in measured if line.note == note)}: {note}")


def _ladder(measured: Sequence[Line], width: int) -> "Table":
    from rich.text import Text

    short = labels([line.name for line in measured], max(10, width - 62))
    table = _table(1)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    for head in (*(f"{100 * budget:g} % " for budget in BUDGETS), "area"):
        table.add_column(head, justify="right", no_wrap=True)
    for place, line in enumerate(measured):
        if not line.rung and place and measured[place - 1].rung:
            table.add_row(Text("for comparison", "dim italic"))
        style = "bold" if line.kept else ""
        cells = [_met(line.at(budget), budget) for budget in BUDGETS]
        table.add_row(
            Text(short[line.name], style), *(Text(cell, style) for cell in (*cells, f"{100 * line.area:.2f}"))
        )
    return table


def _met(met: Met | None, budget: float) -> str:
    if met is None:
        return UNKNOWN
    return f"{100 * met.accuracy:.1f} ±{50 * (met.high - met.low):.1f}{'!' if overspent(met, budget) else ' '}"


def portrait(policy: Policy, version: str, shown: tuple[Rung, Mix, str], console: "Console") -> None:
    """Print a policy on one screen: whence, the pool, the dial, and whom it asks for each type of task.

    `shown` are the rung, the mixture at which its ways are shown, and what that mixture is called.
    """
    from rich.table import Table

    rung, mix, called = shown
    about = policy.about
    _line(console, f"policy {version} from {one_line(summary.name(about))} ({about.log_hash}), {about.made}", "bold")
    _line(console, f"{summary.source(policy)}. {summary.yardstick(policy)}")
    for sentence in summary.ladder(policy) or (f"The {policy.kept} is the only rung.",):
        _line(console, sentence)
    if rung.name != policy.kept:
        _line(console, f"Shown is the {rung.name}, which is not the rung that is kept.", "yellow")
    console.print()
    both = Table.grid(padding=(0, 3, 0, 0))
    both.add_row(_pool(policy, mix), _dial(policy, rung))
    console.print(both)
    if told := summary.few(policy):
        _line(console, f"* {told}", "yellow")
    console.print()
    _line(console, f"{rung.name} at {called}: {_promise(mix, rung)}", "bold")
    found = ways(policy, mix)
    if found:
        console.print(_ways(found, policy.names))
        _line(console, "Right, in %: the first alone, both where they agree, first/second where they differ.", "dim")
    else:
        _line(console, "This file does not hold whom it asks.")
    for note in about.notes[:_MOST_NOTES]:
        _line(console, f"! {note}", "yellow")
    if len(about.notes) > _MOST_NOTES:
        _line(console, f"! and {plural(len(about.notes) - _MOST_NOTES, 'more note')}: --json has them all", "yellow")


def _promise(mix: Mix, rung: Rung) -> str:
    price = f" ({format_dollars(1000 * mix.cost * rung.dial.unit)} for 1,000 tasks)" if rung.dial.unit > 0 else ""
    return f"{percent(mix.accuracy)} expected for {percent(mix.cost)} of the best single worker's cost{price}"


def _pool(policy: Policy, mix: Mix) -> "Table":
    from rich.text import Text

    shares, names = asked(policy, mix), labels(policy.names, _NAME)
    best, few = best_single(policy).name, [worker.name for worker in hardly_known(policy)]
    table = _table()
    for head in ("worker", "right", "$/1,000", "asked"):
        table.add_column(head, justify="left" if head == "worker" else "right", no_wrap=True)
    ranked = sorted(policy.workers, key=lambda worker: (-(shares or {}).get(worker.name, 0.0), -worker.score))
    rows = len(ranked) if len(ranked) <= _MOST_WORKERS else _OF_MANY
    for worker in ranked[:rows]:
        style = "bold" if worker.name == best else ""
        share = "" if shares is None else _whole(shares[worker.name])
        mark = "*" if worker.name in few else " " * bool(few)
        cells = (
            names[worker.name],
            percent(worker.score) + mark,
            format_dollars(1000 * worker.dollars).removeprefix("$"),
            share,
        )
        table.add_row(*(Text(cell, style) for cell in cells))
    if len(ranked) > rows:
        table.add_row(Text(f"and {len(ranked) - rows} more", "dim"))
    return table


def _dial(policy: Policy, rung: Rung) -> "Table":
    table = _table()
    for head in ("cost", "accuracy", "$/1,000", "asks"):
        table.add_column(head, justify="right", no_wrap=True)
    for _, mix in settings(rung):
        counted = asked(policy, mix)
        error = _Z * max(mix.low.error, mix.high.error)
        table.add_row(
            f"{100 * mix.cost:.3g} %",
            f"{100 * mix.accuracy:.1f} ±{100 * error:.1f}",
            format_dollars(1000 * mix.cost * rung.dial.unit).removeprefix("$") if rung.dial.unit > 0 else UNKNOWN,
            UNKNOWN if counted is None else f"{sum(counted.values()):.2f}",
        )
    return table


def _ways(found: Sequence[Way], workers: Sequence[str]) -> "Table":
    from rich.text import Text

    names, kinds = labels(workers, _NAME), labels([way.kind for way in found], _KIND)
    table = _table(1)
    heads = ("task type", "asked first", "in", "asked second", "in", "alone", "agree", "differ")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place in (0, 1, 3) else "right", no_wrap=True, overflow="ellipsis")
    for way in found[:_MOST_TYPES]:
        pair = "" if way.second is None else "/".join(_rate(one) for one in way.differ)
        table.add_row(
            *map(Text, (kinds[way.kind], names[way.first], _whole(way.share))),
            *map(Text, (names[way.second] if way.second else UNKNOWN, _whole(way.more))),
            *map(Text, (_rate(way.alone), _rate(way.agree) if way.second else "", pair)),
        )
    if len(found) > _MOST_TYPES:
        table.add_row(Text(f"and {plural(len(found) - _MOST_TYPES, 'more type')}", "dim"))
    return table


def _rate(rate: Rate) -> str:
    return UNKNOWN if rate.right is None else f"{100 * rate.right:.0f}"


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"


def _table(gap: int = 2) -> "Table":
    from rich.table import Table

    return Table(box=None, padding=(0, 0, 0, gap), collapse_padding=True, pad_edge=False, header_style="dim")


def _line(console: "Console", text: str, style: str = "") -> None:
    """Print a text cleaned, wrapped at words; lines that go on are indented."""
    from rich.text import Text

    for place, line in enumerate(Text(one_line(text, _LONGEST), style).wrap(console, max(20, console.width - 2))):
        line.rstrip()
        console.print(Text("  " if place else "").append_text(line), soft_wrap=True)
