"""Step values in words by others: how near the optimum after 300 and 2,000 tasks, and with a worker that is new.

    python benchmarks/value_words.py [--seeds 14,15,16] [--tests 100] [--late 2000] [--json]

A simulated office, named so: one crew of six with misleading cards, questions in the words of the held-out authors, of
whom nothing was looked at while step values were made. Values are learned from whole runs that are performed and graded
by their final answer (exploring as in `value.py`, then a tenth). What they would do with new questions, of which a
planner wrote the steps, is computed from the truth: the chance that all is right, and dollars, without checks and
without asking again. A right answer is worth $.05. `of the optimum` is the value (worth less dollars) as a share of
that of the best plan there is (`best_plan`, calls only). `one worker` is the one that, by the truth and at its best
wording, is worth most if it is given every question whole.

Cold: from the same late runs, each of the first three workers in turn loses the runs that it was in, but for its last
100 answers; the value of what is chosen then, as a share of that with all answers, mean over these workers.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from common import machine
from shikisha.conductors.part_plans import TreatmentKind
from shikisha.conductors.plan_search import StepTable, block_subtask
from shikisha.core.plan import MAX_STEPS, Plan, Step
from shikisha.engine.conductor import Situation
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.step_samples import RunSample
from shikisha.learned.step_value import StepValue
from shikisha.simulation.office.best_plan import best_plan
from shikisha.simulation.office.learning_week import (
    WORTH,
    LearningState,
    LearningSwitches,
    learned_conductor,
    perform_day,
    perform_week,
)
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.questions import AuthorSplit
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.office.simulated_staff import advised_features, call_success

SWITCHES = LearningSwitches(notes=False, skills=False, lessons=False, prompt=False)
COLD_STEPS = 100
Outcome = tuple[float, float]  # chance that all is right, dollars


def values_outcome(model: StepValue, item: OfficeTask) -> Outcome:
    """Return what comes of the plan that step values choose."""
    question = item.question
    steps = (Step(text, 0, tuple(part.uses)) for text, part in zip(question.sentences, question.parts, strict=True))
    plan = Plan(tuple(steps))
    table = StepTable(model, Situation(item.task, tuple(item.pool.cards)), None, [plan])
    chance, dollars = 1.0, 0.0
    for block in table.improved("planned", plan, WORTH, forms=True)[0].blocks:
        member = item.crew.members[block.worker]
        said = advised_features(" ".join(table.helpful(block_subtask(plan, block), block.worker)))
        parts = range(block.first, block.last + 1)
        chance *= float(np.prod([call_success(member, question, part, len(parts), said) for part in parts]))
        dollars += member.price
    return float(chance), dollars


def whole_outcome(item: OfficeTask, worker: int) -> Outcome:
    """Return what comes of giving one worker the whole question at its best wording."""
    member, count = item.crew.members[worker], len(item.question)
    each = [call_success(member, item.question, part, count, member.wants) for part in range(count)]
    return float(np.prod(each)), member.price


def value(outcomes: Sequence[Outcome]) -> float:
    """Return the mean dollars that these outcomes are worth."""
    return float(np.mean([WORTH * right - dollars for right, dollars in outcomes]))


def cold_samples(samples: Sequence[RunSample], worker: str) -> list[RunSample]:
    """Return the runs with a worker known from its last answers alone: earlier runs that it was in are left out."""
    left, kept = COLD_STEPS, list[RunSample]()
    for run in reversed(samples):
        own = sum(one.worker == worker for unit in run.units for one in unit.answers)
        if not own or left > 0:
            kept.append(run)
            left -= own
    return kept[::-1]


async def measure(seed: int, tests: int, late: int) -> dict[str, float]:
    """Return a seed's figures."""
    traffic = RecurringTraffic(seed, AuthorSplit.HELDOUT)
    items = [item for item in traffic.tasks(100_000, tests) if len(item.question) <= MAX_STEPS]
    best = [best_plan(item, 1 / WORTH, frozenset({TreatmentKind.CALL})) for item in items]
    optimum = [(plan.success, plan.dollars) for plan in best]
    single = max(([whole_outcome(item, at) for item in items] for at in range(6)), key=value)
    state, _ = await perform_week(traffic, SWITCHES)
    found = {"one worker, of the optimum": value(single) / value(optimum)}

    def note(name: str, model: StepValue) -> float:
        outcomes = [values_outcome(model, item) for item in items]
        found[f"{name}, of the optimum"] = value(outcomes) / value(optimum)
        found[f"{name}, right"] = float(np.mean([right for right, _ in outcomes]))
        found[f"{name}, dollars of the optimum's"] = float(
            np.mean([paid for _, paid in outcomes]) / np.mean([paid for _, paid in optimum])
        )
        return value(outcomes)

    note("after 301 tasks", state.values)
    state = await go_on(traffic, state, late)
    full = note(f"after {late} tasks", state.values)
    cold = []
    for member in traffic.crew.members[:3]:
        model = fit_step_value(cold_samples(state.samples, member.name))
        cold.append(value([values_outcome(model, item) for item in items]) / full)
    found["a cold worker, of full knowledge"] = float(np.mean(cold))
    return found


async def go_on(traffic: RecurringTraffic, state: LearningState, late: int) -> LearningState:
    """Perform tasks up to `late`, in four nights, a tenth of them explored."""
    conductor = partial(learned_conductor, state=state, switches=SWITCHES, explore=0.1)
    places = np.linspace(301, late, 5).astype(int)
    for start, end in pairwise(places):
        runs, _ = await perform_day(traffic.tasks(int(start), int(end - start)), conductor)
        state.learn(runs, SWITCHES)
    return state


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="14,15,16")
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--late", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [await measure(int(seed), given.tests, given.late) for seed in given.seeds.split(",")]
    table = {name: [round(row[name], 3) for row in rows] for name in rows[0]}
    if given.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Words of held-out authors, seeds {given.seeds} ({machine()})")
    for name, values in table.items():
        print(f"  {name:<46} {np.mean(values):.3f}  {values}")


if __name__ == "__main__":
    asyncio.run(main())
