"""The demo: held-out questions through every baseline, live, and one run shown from the inside.

Every figure is counted from runs that the engine performs here and now. The workers are simulated, which the demo says
first, and their seconds really pass (`pace`), so waiting and parallel steps are real. The run shown at the end is one
of the last contender in `more` (how the command line adds a learned conductor), or else of the hand-written rules; it
is drawn from its events alone.

Invariant: a run's id is made of its conductor and its task, so gauge readings, which depend on the key of the call, are
the same every time. Runs stay in memory until they are counted.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from shikisha.core.budget import Amount, format_dollars
from shikisha.core.plan import Step
from shikisha.core.run import RoundRecord, Run, StepRecord
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.statistics import mix_for_cost, wilson
from shikisha.explain import explain, explain_text
from shikisha.simulation import baseline_conductors
from shikisha.simulation.task_generator import SimulatedTask, generate_tasks
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import GENERALIST, JUDGE, NOVICE


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A task, its run under a conductor, whether the answer is right, and the seconds from start to end."""

    item: SimulatedTask
    run: Run
    right: bool
    seconds: float

    @property
    def dollars(self) -> float:
        """What the run cost."""
        return self.run.charged.dollars or 0.0

    @property
    def steps(self) -> int:
        """How many steps were performed."""
        return sum(len(turn.steps) for turn in self.run.rounds)


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """A summary of runs: the share of right answers with its 95 % interval (Wilson), and means per task."""

    count: int = 0
    right: int = 0
    dollars: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """The share of right answers."""
        return self.right / self.count if self.count else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.right, self.count)


def summarize_runs(trials: Sequence[SimulatedRun]) -> SimulationSummary:
    """Summarize the runs."""
    count = len(trials)
    if not count:
        return SimulationSummary()
    return SimulationSummary(
        count,
        sum(trial.right for trial in trials),
        sum(trial.dollars for trial in trials) / count,
        sum(trial.steps for trial in trials) / count,
        sum(trial.seconds for trial in trials) / count,
    )


async def run_tasks(
    items: Iterable[SimulatedTask],
    conductor: Conductor,
    *,
    at_once: int = 24,
    on_run: Callable[[SimulatedRun], None] | None = None,
) -> list[SimulatedRun]:
    """Perform every task, `at_once` at a time; return the runs in order of the tasks, and report each to `on_run`."""
    gate, recorder = asyncio.Semaphore(at_once), MemoryRecorder()
    engine = Engine(recorder)

    async def one(item: SimulatedTask) -> SimulatedRun:
        async with gate:
            begun = perf_counter()
            run = await engine.run(item.task, item.pool, conductor, run_id=f"{conductor.name}-{item.task.id}")
            recorder.forget(run.id)
            trial = SimulatedRun(item, run, item.grade(run.answer), perf_counter() - begun)
        if on_run is not None:
            on_run(trial)
        return trial

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


_SPLIT_NAMES = {WordingSplit.TRAIN: "training", WordingSplit.DEV: "development", WordingSplit.HELDOUT: "held-out"}
# Characters, so that the count of runs fits next to it on a narrow terminal.
_BAR_WIDTH = 8
# A learned conductor takes a core: with more questions at once, its seconds would be those of a queue.
_CONCURRENT_BASELINE, _CONCURRENT_LEARNED = 24, 8


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of the table: a conductor and its workers (none named: each question's own pool)."""

    label: str
    conductor: Conductor
    workers: tuple[str, ...] = ()


RULES_CONTENDER = Contender("hand-written rules", baseline_conductors.RULES)
_CONTROLS = (
    Contender("novice alone", baseline_conductors.ONLY_NOVICE, (NOVICE,)),
    Contender("generalist alone", baseline_conductors.ONLY_GENERALIST, (GENERALIST,)),
    Contender("generalist × 3, then a vote", baseline_conductors.SELF_CONSISTENCY, (GENERALIST, JUDGE)),
    Contender("planner → executor → verifier", baseline_conductors.PLANNER_EXECUTOR_VERIFIER, (GENERALIST, NOVICE)),
    Contender("random plans", baseline_conductors.RANDOM),
    Contender("keyword router", baseline_conductors.KEYWORD_ROUTER),
)
BASELINE_CONTENDERS = (
    *_CONTROLS,
    RULES_CONTENDER,
    Contender("optimum (knows all skills)", baseline_conductors.OPTIMAL),
)


@dataclass(slots=True)
class DemoRow:
    """A contender and its runs so far."""

    contender: Contender
    runs: list[SimulatedRun] = field(default_factory=list)

    @property
    def summary(self) -> SimulationSummary:
        """The summary so far."""
        return summarize_runs(self.runs)


async def run_demo(
    console: Console,
    tasks: int = 120,
    seed: int = 1,
    split: str = "heldout",
    pace: float = 1.0,
    more: Sequence[Contender] = (),
) -> list[DemoRow]:
    """Run the demo on the console and return the table's rows. `pace` 0 lets simulated seconds pass at once."""
    questions = list(generate_tasks(WordingSplit(split), seed, count=tasks))
    rows = [DemoRow(contender) for contender in (*BASELINE_CONTENDERS, *more)]
    console.print(_intro_text(tasks, WordingSplit(split), seed, learned=bool(more)))
    begun = perf_counter()
    with Live(console=console, refresh_per_second=8, get_renderable=lambda: _results_table(rows, tasks)):
        for row in rows:
            staged, conductor = _tasks_for(questions, row.contender, pace), row.contender.conductor
            at_once = _CONCURRENT_BASELINE if row.contender in BASELINE_CONTENDERS else _CONCURRENT_LEARNED
            await run_tasks(staged, conductor, at_once=at_once, on_run=row.runs.append)
    console.print(_footer_text(perf_counter() - begun, learned=bool(more)))
    if more and tasks:
        console.print(_equal_dollars_text(rows[-1], rows))
    shown = rows[-1] if more else next(row for row in rows if row.contender is RULES_CONTENDER)
    shown_run = most_instructive_run(shown.runs)
    if shown_run is not None:
        console.print(render_run(shown_run, shown.contender.label))
    return rows


def _tasks_for(questions: Sequence[SimulatedTask], contender: Contender, pace: float) -> list[SimulatedTask]:
    if contender.workers:
        return [item.with_workers(*contender.workers, pace=pace) for item in questions]
    return [item.with_luck(item.luck, pace) for item in questions]


def _intro_text(tasks: int, split: WordingSplit, seed: int, *, learned: bool) -> Text:
    text = Text()
    text.append("Shikisha demo\n", "bold")
    text.append(
        f"{tasks} {_SPLIT_NAMES[split]} questions (seed {seed}), each with its own pool of workers. The workers are "
        "simulated: small real tools that fail at random now and then, and two simulated language models. No key, no "
        "network.\n"
    )
    if learned:
        text.append(
            "The learned conductor sees only the question and the workers' descriptions. Supervised examples taught it "
            "to read, with labels of who can do what; outcomes of plans then chose which form of plan pays.\n"
        )
    return text


def _footer_text(seconds: float, *, learned: bool) -> Text:
    own_time = " (a learned conductor's own seconds are real and included)" if learned else ""
    return Text(
        f"\nright: share of right answers, with its 95 % interval. $ and s: simulated prices and delays per question"
        f"{own_time}. The demo took {seconds:.0f} s.\n",
        "dim",
    )


def _equal_dollars_text(learned: DemoRow, rows: Sequence[DemoRow]) -> Text:
    """Say what the controls, which conduct nothing, would reach at the learned conductor's dollars."""
    points = {
        (row.summary.dollars, row.summary.share): row.contender.label for row in rows if row.contender in _CONTROLS
    }
    low, high, often = mix_for_cost(points, learned.summary.dollars)
    right = low[1] + often * (high[1] - low[1])
    mix = f"{points[high]} for {often:.1%} of the questions, else {points[low]}" if often else points[low]
    return Text(
        f"At the learned conductor's dollars the best mix of controls ({mix}) is right on {right:.0%}.\n", "dim"
    )


def _results_table(rows: Sequence[DemoRow], tasks: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("conductor", no_wrap=True)
    for name in ("right", "95 %", "$", "steps", "s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(*_row_cells(row, tasks), style=None if row.contender in BASELINE_CONTENDERS else "bold")
    return table


def _row_cells(row: DemoRow, tasks: int) -> tuple[str | Text, ...]:
    found = row.summary
    if not found.count:
        return (Text(row.contender.label, "dim"),)
    low, high = found.interval
    filled = round(_BAR_WIDTH * found.share)
    bar = Text("━" * filled, "green").append("━" * (_BAR_WIDTH - filled), "bright_black")
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


_PLAN_OPENING = "model_id"  # how a plan's text begins
_LONGEST_THOUGHT_LINE = 300  # characters of a line of thought


def most_instructive_run(trials: Sequence[SimulatedRun]) -> SimulatedRun | None:
    """Return the most instructive run: right, several kinds of work, many steps in one round."""
    return max(trials, key=lambda trial: (trial.right, len(trial.item.kinds) + _longest_round(trial.run)), default=None)


def _longest_round(run: Run) -> int:
    return max((len(record.plan.steps) for record in run.rounds if record.plan), default=0)


def render_run(trial: SimulatedRun, conductor: str) -> RenderableType:
    """Render a run as a tree, with its explanation; `conductor` is its label in the table."""
    told = explain_text(explain(trial.run)).rstrip().split("\n")
    return Group(_run_tree(trial, conductor), Text("\nThe same run, explained\n", "bold"), *map(_hanging_indent, told))


def _hanging_indent(line: str) -> Padding:
    """Return a line that keeps its indentation where it wraps."""
    text = line.lstrip()
    return Padding(Text(text, "dim"), (0, 0, 0, len(line) - len(text)), expand=False)


def _run_tree(trial: SimulatedRun, conductor: str) -> Tree:
    run = trial.run
    verdict = Text("right", "bold green") if trial.right else Text(f"wrong: it is {trial.item.gold}", "bold red")
    tree = Tree(Text.assemble((f"One run, conducted by: {conductor}\n", "bold"), run.task.prompt), guide_style="dim")
    workers = tree.add("workers")
    for ordinal, card in enumerate(trial.item.pool.cards):
        workers.add(Text.assemble(f"{ordinal} ", (card.name, "cyan"), (f": {card.description}", "dim")))
    for record in run.rounds:
        _add_round(tree, run, record)
    tree.add(
        Text.assemble(
            "answer ", (run.answer or "none", "bold"), ", ", verdict, (f", {format_dollars(trial.dollars)}", "dim")
        )
    )
    return tree


def _add_round(tree: Tree, run: Run, record: RoundRecord) -> None:
    if thought := _thought_text(record):
        again = "thinks again " if record.index else "thinks "
        tree.add(Text.assemble((again, "bold magenta"), (thought, "magenta")))
    for index, step in enumerate(record.plan.steps if record.plan else ()):
        tree.add(_step_text(run, record.step(index), index, step))
    if record.plan is not None and record.plan.ships:
        tree.add(Text("and keeps the answer", "dim"))


def _thought_text(record: RoundRecord) -> str:
    """Return the text before the plan on one line that wraps between its lines only."""
    text = record.proposed.text if record.proposed is not None else ""
    before, lists, _ = text.partition(_PLAN_OPENING)
    lines = [one_line(line, _LONGEST_THOUGHT_LINE).replace(" ", "\N{NO-BREAK SPACE}") for line in before.split("\n")]
    return " · ".join(filter(None, lines)) if lists else ""


def _step_text(run: Run, record: StepRecord, index: int, step: Step) -> Text:
    spent = sum((attempt.charged for attempt in record.attempts), Amount())
    return Text.assemble(
        f"{index} ",
        (run.started.pool[step.worker], "cyan"),
        f" “{step.subtask}”",
        (f" with {', '.join(map(str, step.access))}" if step.access else "", "dim"),
        " → ",
        (_result_text(record), "bold"),
        (f"  {format_dollars(spent.dollars or 0.0)}", "dim"),
    )


def _result_text(record: StepRecord) -> str:
    if record.result is None:
        return "not performed"
    return record.result.text if record.result.text is not None else str(record.result.fault)
