"""The office on the console: a learned conductor whose notes fill, next to controls, and its mistakes.

Every question has its own crew, whose cards may be false. The rows play the same questions with the same luck. `notes`
is how many outcomes of each worker a row has seen. Everything is simulated, and said to be.

Invariant: the table is drawn from the runs' own records. Deliberately absent: training.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shikisha.core.budget import Caps
from shikisha.core.run import Run
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha_train.office import office_conductors as play
from shikisha_train.office.office_rollouts import evidence_arrays
from shikisha_train.office.office_tasks import OfficeTask, StaffEvidence, draw_evidence, office_tasks
from shikisha_train.office.questions import AuthorSplit
from shikisha_train.office.staff import FAMILIES, KINDS
from shikisha_train.pointer.part_plans import DOLLAR_WEIGHT, PartPolicy, PartsConductor
from shikisha_train.pointer.pointer_conductor import PointerConductor, PointerModel, PoolKnowledge

NOTES = (0, 10, 30, 100, 300)
_CAPS = Caps(steps=40, rounds=12)
_SHOWN_MISTAKES = 3


@dataclass
class OfficeRow:
    """A row: a conductor for each question, and what came of its runs."""

    label: str
    conductor: Callable[[OfficeTask], Conductor]
    notes: int | None = None
    learned: bool = False
    right: list[bool] = field(default_factory=list)
    dollars: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """Return the row's figures."""
        means = {name: float(np.mean(getattr(self, name))) for name in ("right", "dollars", "values")}
        return {"conductor": self.label, "notes": self.notes, "tasks": len(self.right), **means}


def draw_knowledge(item: OfficeTask, outcomes: int) -> PoolKnowledge:
    """Return what so many outcomes a worker say, the same for every row."""
    evidence = _draw(item, outcomes)
    tries, right, told_tries, told_right = evidence_arrays(evidence, len(item.crew))
    family = np.array([FAMILIES.index(member.family) for member in item.crew.members])
    return PoolKnowledge(tries, right, told_tries, told_right, family)


def _draw(item: OfficeTask, outcomes: int) -> StaffEvidence:
    return draw_evidence(item.crew, outcomes, random.Random(f"{item.task.id} {outcomes}"))  # noqa: S311 - a simulation


def office_rows(model: PointerModel) -> list[OfficeRow]:
    """Return the rows of the table: controls, the learned conductor at any amount of notes, the optimum."""

    def control(policy: Callable[[OfficeTask], PartPolicy]) -> Callable[[OfficeTask], Conductor]:
        return lambda item: play.office_conductor(item, policy(item))

    def learned(outcomes: int) -> Callable[[OfficeTask], Conductor]:
        return lambda item: PointerConductor("pointer", model, draw_knowledge(item, outcomes), tells=True)

    def alone(item: OfficeTask) -> PartsConductor:
        evidence = _draw(item, 100)
        means = [sum(evidence.mean(at, kind) for kind in KINDS) for at in range(len(item.crew))]
        return play.office_conductor(item, play.single_policy(int(np.argmax(means))))

    return [
        OfficeRow("random workers", control(lambda item: play.random_policy(item, random.Random(item.task.id)))),  # noqa: S311
        OfficeRow("cards believed", control(play.card_policy)),
        OfficeRow("best worker alone", alone, 100),
        OfficeRow(
            "hand-written rule: best share of right",
            control(lambda item: play.evidence_policy(item, _draw(item, 100), 0.25)),
            100,
        ),
        *(OfficeRow("learned conductor", learned(count), count, learned=True) for count in NOTES),
        OfficeRow("optimum (knows everything)", control(play.truth_policy)),
    ]


async def run_office_demo(console: Console, model: PointerModel, tasks: int = 60, seed: int = 1) -> list[OfficeRow]:
    """Run the rows on held-out questions and print the table, and some mistakes of the learned conductor."""
    items = list(office_tasks(AuthorSplit.HELDOUT, seed, count=tasks))
    rows = office_rows(model)
    text = Text("The office\n", "bold")
    text.append(
        f"{tasks} questions in the words of authors that training never saw (seed {seed}), each with its own crew. "
        "Workers are simulated, and so are their outcomes. Cards may be vague, boastful, outdated, blank or another "
        "worker's. The controls are told which sentence asks for what; the learned conductor reads.\n"
    )
    console.print(text)
    for row in rows:
        await _play(row, items)
    console.print(_table(rows))
    console.print(_mistakes(next(row for row in rows if row.notes == 100 and row.learned), items))
    return rows


async def _play(row: OfficeRow, items: Sequence[OfficeTask]) -> None:
    recorder = MemoryRecorder()
    engine = Engine(recorder)
    for item in items:
        run = await engine.run(item.task, item.pool, row.conductor(item), _CAPS, run_id=item.task.id)
        recorder.forget(run.id)
        right, dollars = item.grade(run.answer), run.charged.dollars or 0.0
        row.right.append(right)
        row.dollars.append(dollars)
        row.values.append(item.value * right - DOLLAR_WEIGHT * dollars)
        row.runs.append(run)


def _table(rows: Sequence[OfficeRow]) -> Table:
    best = float(np.mean(rows[-1].values))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("conductor", no_wrap=True)
    for name in ("notes", "right", "$", "of the optimum"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.label,
            "" if row.notes is None else str(row.notes),
            f"{np.mean(row.right):.0%}",
            f"{np.mean(row.dollars):.4f}",
            f"{np.mean(row.values) / best:.2f}" if best > 0 else "",
            style="bold" if row.learned else None,
        )
    return table


def _mistakes(row: OfficeRow, items: Sequence[OfficeTask]) -> Text:
    text = Text(f"\nMistakes of the learned conductor with {row.notes} outcomes a worker\n", "bold")
    wrong = [(item, run) for item, run, right in zip(items, row.runs, row.right, strict=True) if not right]
    for item, run in wrong[:_SHOWN_MISTAKES]:
        text.append(f"{one_line(item.task.prompt, 160)}\n")
        for turn in run.rounds:
            for index, step in enumerate(turn.plan.steps if turn.plan else ()):
                result = turn.results[index]
                said = "no result" if result is None or result.text is None else result.text
                worker, subtask = run.started.pool[step.worker], one_line(step.subtask, 90)
                text.append(f"  {worker}: {subtask} → {one_line(said, 30)}\n", "dim")
        text.append(f"  answer {run.answer}, right is {item.question.answer}\n", "red")
    return text
