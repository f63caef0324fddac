"""The demo: held-out questions through every yardstick, live, then one run shown from the inside.

Invariant: every figure is counted from runs that the engine performed here and now; the workers are simulated, which
the demo says before anything else, and their seconds are made to pass (`pace`), so that waiting and parallel steps are
real. The run that is shown is the last of `more`'s, which is how the command line adds a learned conductor, and else
the hand-written rules'. Deliberately absent: learned conductors, which other libraries run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shikisha.conductor import Conductor
from shikisha.orchestra import yardsticks
from shikisha.orchestra.cast import GENERALIST, JUDGE, NOVICE
from shikisha.orchestra.demo_run import inside, telling
from shikisha.orchestra.tasks import Item, items
from shikisha.orchestra.trials import Tally, Trial, rehearse, tally
from shikisha.orchestra.wording import Split

_SPOKEN = {Split.TRAIN: "training", Split.DEV: "development", Split.HELDOUT: "held-out"}
_BAR = 8  # characters, so that how many were played fits beside it on a narrow terminal
_WAITING, _COMPUTING = 24, 8  # questions at once: fewer where conducting takes a core, so that seconds are no queue's


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of the table: who conducts, and over which workers (none named: over each question's own pool)."""

    label: str
    conductor: Conductor
    workers: tuple[str, ...] = ()


RULES = Contender("hand-written rules", yardsticks.RULES)
CONTENDERS = (
    Contender("novice alone", yardsticks.ONLY_NOVICE, (NOVICE,)),
    Contender("generalist alone", yardsticks.ONLY_GENERALIST, (GENERALIST,)),
    Contender("generalist × 3, then a vote", yardsticks.SELF_CONSISTENCY, (GENERALIST, JUDGE)),
    Contender("planner → executor → verifier", yardsticks.PLANNER_EXECUTOR_VERIFIER, (GENERALIST, NOVICE)),
    Contender("random plans", yardsticks.RANDOM),
    Contender("keyword router", yardsticks.KEYWORD_ROUTER),
    RULES,
    Contender("optimum (is told all skills)", yardsticks.OPTIMAL),
)


@dataclass(slots=True)
class Row:
    """A contender and its trials so far."""

    contender: Contender
    trials: list[Trial] = field(default_factory=list)

    @property
    def tally(self) -> Tally:
        """The figures so far."""
        return tally(self.trials)


async def demo(
    console: Console,
    tasks: int = 120,
    seed: int = 1,
    split: str = "heldout",
    pace: float = 1.0,
    more: Sequence[Contender] = (),
) -> list[Row]:
    """Run the demo on the console and return the table's rows. `pace` 0 lets simulated seconds pass at once."""
    questions = list(items(Split(split), seed, count=tasks))
    rows = [Row(contender) for contender in (*CONTENDERS, *more)]
    console.print(_opening(tasks, Split(split), seed, learned=bool(more)))
    begun = perf_counter()
    with Live(console=console, refresh_per_second=8, get_renderable=lambda: _table(rows, tasks)):
        for row in rows:
            staged, conductor = _staged(questions, row.contender, pace), row.contender.conductor
            at_once = _WAITING if row.contender in CONTENDERS else _COMPUTING
            await rehearse(staged, conductor, at_once=at_once, heard=row.trials.append)
    console.print(_closing(perf_counter() - begun, learned=bool(more)))
    shown = rows[-1] if more else next(row for row in rows if row.contender is RULES)
    told = telling(shown.trials)
    if told is not None:
        console.print(inside(told, shown.contender.label))
    return rows


def _staged(questions: Sequence[Item], contender: Contender, pace: float) -> list[Item]:
    if contender.workers:
        return [item.cast(*contender.workers, pace=pace) for item in questions]
    return [item.again(item.luck, pace) for item in questions]


def _opening(tasks: int, split: Split, seed: int, *, learned: bool) -> Text:
    text = Text()
    text.append("Shikisha rehearses\n", "bold")
    text.append(
        f"{tasks} {_SPOKEN[split]} questions (seed {seed}), each with its own pool of workers. The workers are "
        "simulated: small real tools that slip now and then by lot, and two simulated language models. No key, no "
        "network.\n"
    )
    if learned:
        text.append(
            "The learned conductor reads the question and what workers say of themselves, and nothing else. To read "
            "was taught to it by lessons that the generator labelled; which plan pays, it found by performing plans.\n"
        )
    return text


def _closing(seconds: float, *, learned: bool) -> Text:
    thinking = " (a learned conductor's own thinking is real, and counted)" if learned else ""
    return Text(
        f"\nright: share of right answers, with its 95 % interval. $ and s: simulated prices and delays, per question"
        f"{thinking}. All of it took {seconds:.0f} s.\n",
        "dim",
    )


def _table(rows: Sequence[Row], tasks: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("conductor", no_wrap=True)
    for name in ("right", "95 %", "$", "steps", "s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(*_cells(row, tasks), style=None if row.contender in CONTENDERS else "bold")
    return table


def _cells(row: Row, tasks: int) -> tuple[str | Text, ...]:
    found = row.tally
    if not found.count:
        return (Text(row.contender.label, "dim"),)
    low, high = found.interval
    filled = round(_BAR * found.share)
    bar = Text("━" * filled, "green").append("━" * (_BAR - filled), "bright_black")
    if found.count < tasks:
        bar.append(f" {found.count}", "cyan")
    return (
        row.contender.label,
        Text(f"{found.share:.0%}", "bold"),
        Text(f"{low:.0%}–{high:.0%}", "dim"),
        f"{found.dollars:.4f}",
        f"{found.steps:.1f}",
        f"{found.seconds:.2f}",
        bar,
    )
