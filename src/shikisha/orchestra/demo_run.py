"""One run from the inside, for the demo: the question, who was at hand, what the conductor thought, each step, and why.

Invariant: what is shown is read from the run's events alone; only the gold beside the answer and what the workers say
of themselves (a run keeps their names) come from the item. Deliberately absent: a reading of thoughts; they are shown
as they were written, which is in the form that the model was taught.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from shikisha.budget import Amount, format_dollars
from shikisha.clean import one_line
from shikisha.explain import explain, explain_text
from shikisha.orchestra.trials import Trial
from shikisha.plan import Step
from shikisha.run import RoundRecord, Run, StepRecord

_LISTS = "model_id"  # how a plan's text begins
_LONGEST = 300  # characters of a line of thought


def telling(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial that has most to show: right, several kinds of work, many steps in one round."""
    return max(trials, key=lambda trial: (trial.right, len(trial.item.kinds) + _longest(trial.run)), default=None)


def _longest(run: Run) -> int:
    return max((len(record.plan.steps) for record in run.rounds if record.plan), default=0)


def inside(trial: Trial, conductor: str) -> RenderableType:
    """Draw the run of a trial, conducted by whom the table calls so, and explain it."""
    told = explain_text(explain(trial.run)).rstrip().split("\n")
    return Group(_tree(trial, conductor), Text("\nThe same run, explained\n", "bold"), *map(_indented, told))


def _indented(line: str) -> Padding:
    """Return a line that stays under its own beginning where it is wrapped."""
    text = line.lstrip()
    return Padding(Text(text, "dim"), (0, 0, 0, len(line) - len(text)), expand=False)


def _tree(trial: Trial, conductor: str) -> Tree:
    run = trial.run
    verdict = Text("right", "bold green") if trial.right else Text(f"wrong: it is {trial.item.gold}", "bold red")
    tree = Tree(Text.assemble((f"One run, conducted by: {conductor}\n", "bold"), run.task.prompt), guide_style="dim")
    at_hand = tree.add("at hand")
    for ordinal, card in enumerate(trial.item.pool.cards):
        at_hand.add(Text.assemble(f"{ordinal} ", (card.name, "cyan"), (f": {card.description}", "dim")))
    for record in run.rounds:
        _round(tree, run, record)
    tree.add(
        Text.assemble(
            "answer ", (run.answer or "none", "bold"), ", ", verdict, (f", {format_dollars(trial.dollars)}", "dim")
        )
    )
    return tree


def _round(tree: Tree, run: Run, record: RoundRecord) -> None:
    if thought := _thought(record):
        again = "on second thoughts " if record.index else "thinks "
        tree.add(Text.assemble((again, "bold magenta"), (thought, "magenta")))
    for index, step in enumerate(record.plan.steps if record.plan else ()):
        tree.add(_step(run, record.step(index), index, step))
    if record.plan is not None and record.plan.ships:
        tree.add(Text("and keeps the answer", "dim"))


def _thought(record: RoundRecord) -> str:
    """Return what was written before the plan; its lines stand one after another, and break at their ends only."""
    text = record.proposed.text if record.proposed is not None else ""
    before, lists, _ = text.partition(_LISTS)
    lines = [one_line(line, _LONGEST).replace(" ", "\N{NO-BREAK SPACE}") for line in before.split("\n")]
    return " · ".join(filter(None, lines)) if lists else ""


def _step(run: Run, record: StepRecord, index: int, step: Step) -> Text:
    spent = sum((attempt.charged for attempt in record.attempts), Amount())
    return Text.assemble(
        f"{index} ",
        (run.started.pool[step.worker], "cyan"),
        f" “{step.subtask}”",
        (f" with {', '.join(map(str, step.access))}" if step.access else "", "dim"),
        " → ",
        (_said(record), "bold"),
        (f"  {format_dollars(spent.dollars or 0.0)}", "dim"),
    )


def _said(record: StepRecord) -> str:
    if record.result is None:
        return "not performed"
    return record.result.text if record.result.text is not None else str(record.result.fault)
