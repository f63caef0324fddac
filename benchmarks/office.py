"""The office: the optimum, and what policies of simpler classes reach, before anything is learned there.

    python benchmarks/office.py [--tasks 600] [--seeds 1,2,3] [--split heldout] [--json]

All workers are simulated. Every row plays the same tasks through the engine, with the same luck. `value` is what a
right answer is worth less 20 a dollar, `of the optimum` its ratio to the optimum's, with a paired bootstrap interval
over tasks. Rows with "outcomes" get so many simulated outcomes a worker, kinds and wordings drawn evenly. Every row is
given which sentence is which kind of work; none of them reads.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common import machine
from shikisha import Caps, Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha_train.office import office_conductors as play
from shikisha_train.office.best_plan import best_plan, best_single
from shikisha_train.office.company import WorkKind
from shikisha_train.office.office_tasks import OfficeTask, StaffEvidence, draw_evidence, office_tasks
from shikisha_train.office.part_plans import DOLLAR_WEIGHT, PartPolicy, TreatmentKind
from shikisha_train.office.questions import AuthorSplit

RESAMPLES = 2_000
CHECKED = frozenset({WorkKind.ARITHMETIC, WorkKind.CALENDAR, WorkKind.INVOICES, WorkKind.PEOPLE})
CLASSES = {
    "calls only": {TreatmentKind.CALL},
    "calls and votes": {TreatmentKind.CALL, TreatmentKind.VOTE},
    "calls and checks": {TreatmentKind.CALL, TreatmentKind.CHECK},
    "calls and second opinions": {TreatmentKind.CALL, TreatmentKind.SECOND_OPINION},
}
Policy = Callable[[OfficeTask], PartPolicy]


@dataclass(frozen=True)
class Row:
    """What a policy came to, task by task."""

    name: str
    right: np.ndarray
    dollars: np.ndarray
    values: np.ndarray


def evidence_of(item: OfficeTask, outcomes: int) -> StaffEvidence:
    """Draw the same outcomes for every row."""
    return draw_evidence(item.crew, outcomes, random.Random(f"{item.task.id} {outcomes}"))


def policies() -> dict[str, Policy]:
    """Return every row's policy, the optimum first."""

    def single(item: OfficeTask) -> PartPolicy:
        worker = best_single(item).treatments[0].workers[0]
        return play.single_policy(worker, item.crew.members[worker].wants)

    rows: dict[str, Policy] = {
        "optimum (knows everything)": play.truth_policy,
        "best single worker (chosen and worded by the truth)": single,
        "random workers": lambda item: play.random_policy(item, random.Random(item.task.id)),
        "cards believed": play.card_policy,
    }
    for outcomes in (0, 30, 100, 300):
        rows |= evidence_policies(outcomes)
    rows["100 outcomes: means and cards, neutral wording"] = lambda item: play.evidence_policy(
        item, evidence_of(item, 100), 0.25, tells=False
    )
    return rows


def evidence_policies(outcomes: int) -> dict[str, Policy]:
    """Return the rows that go by so many outcomes a worker."""

    def means(item: OfficeTask) -> PartPolicy:
        return play.evidence_policy(item, evidence_of(item, outcomes))

    def cards(item: OfficeTask) -> PartPolicy:
        return play.evidence_policy(item, evidence_of(item, outcomes), 0.25)

    def checks(item: OfficeTask) -> PartPolicy:
        return play.checked_policy(item, evidence_of(item, outcomes), CHECKED)

    def believed(item: OfficeTask) -> PartPolicy:
        return play.believed_policy(item, evidence_of(item, outcomes))

    return {
        f"{outcomes} outcomes: means": means,
        f"{outcomes} outcomes: means and cards": cards,
        f"{outcomes} outcomes: means, cards and checks": checks,
        f"{outcomes} outcomes: plan of the believed crew (knows the world's constants)": believed,
    }


async def play_row(name: str, policy: Policy, items: list[OfficeTask]) -> Row:
    """Perform every task under a policy."""
    recorder = MemoryRecorder()
    engine = Engine(recorder)
    right, dollars = list[bool](), list[float]()
    for item in items:
        conductor = play.office_conductor(item, policy(item))
        run = await engine.run(item.task, item.pool, conductor, Caps(steps=40, rounds=12), run_id=item.task.id)
        recorder.forget(run.id)
        right.append(item.grade(run.answer))
        dollars.append(run.charged.dollars or 0.0)
    worth = np.array([item.value for item in items])
    return Row(name, np.array(right), np.array(dollars), worth * np.array(right) - DOLLAR_WEIGHT * np.array(dollars))


def ratio_interval(row: Row, optimum: Row) -> tuple[float, float, float]:
    """Return the ratio of two rows' mean values with its paired bootstrap interval."""
    draws = np.random.default_rng(0).integers(0, len(row.values), (RESAMPLES, len(row.values)))
    ratios = row.values[draws].mean(1) / optimum.values[draws].mean(1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(row.values.mean() / optimum.values.mean()), float(low), float(high)


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=600, help="tasks for each seed")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--split", default="heldout", choices=[*AuthorSplit])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    items = [item for seed in seeds for item in office_tasks(AuthorSplit(arguments.split), seed, count=arguments.tasks)]
    rows = [await play_row(name, policy, items) for name, policy in policies().items()]
    ratios = [ratio_interval(row, rows[0]) for row in rows]
    best = np.mean([best_plan(item).value(item.value) for item in items])
    computed = {"optimum": float(best)} | {
        name: float(np.mean([best_plan(item, kinds=frozenset(kinds)).value(item.value) for item in items]) / best)
        for name, kinds in CLASSES.items()
    }
    if arguments.json:
        table = [
            {"policy": row.name, "right": row.right.mean(), "dollars": row.dollars.mean(), "of the optimum": ratio}
            for row, ratio in zip(rows, ratios, strict=True)
        ]
        print(json.dumps({"rows": table, "computed": computed}, indent=1))
        return
    print(f"The office, simulated, {len(items)} {arguments.split} tasks, seeds {arguments.seeds} ({machine()})")
    for row, (ratio, low, high) in zip(rows, ratios, strict=True):
        print(
            f"  {row.name:<76} right {row.right.mean():.3f}  ${row.dollars.mean():.5f}  value {row.values.mean():.3f}"
            f"  of the optimum {ratio:.3f} [{low:.3f}, {high:.3f}]"
        )
    print("Computed from the truth: the optimum's value, and what classes of plans have of it")
    for name, figure in computed.items():
        print(f"  {name:<76} {figure:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
