"""What the learner brings in the world "workshop", from nothing, by its own runs, replayed from the cache.

    python benchmarks/workshop/workshop_learning.py [--clones FOLDER] [--seeds 1,2,3] [--graded 1]

Tasks to learn from come in an order by seed, through engine, journal and files as in `benchmarks/learning.py`; then the
held-out tasks are performed without exploring. A worker is a model in one wording, or a tool; what no call of the cache
covers (SQL about a message) is a fault that costs nothing. The proposer cuts at the true places, names no kind, and
gives each part to the larger model in its answer form. Rows are paired on the same held-out tasks: the plan as it is, a
hand-written rule and a table that are told the families, the oracle. All of it is replay; no step is checked or asked
again, since the cache has no such calls.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from workshop_controls import Outcome, Outcomes, Replay, best_of, fixed_name, interval, learned_table, ruled_name
from workshop_fill import FOLDER, AnswerCache
from workshop_items import Part, load_parts, repositories
from workshop_tasks import WorkshopTask, compose
from workshop_treatments import LARGE, TREATMENTS

from learning import Traffic, remembered
from learning_worlds import CAPS
from shikisha.conductors.learned_conductor import LearnedConductor
from shikisha.core.budget import Price
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Scope, Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal import open_journal
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.retrieval.text_encoder import shipped_encoder

WORTH, SECOND = 0.05, 0.001  # dollars of a right answer, and of a CPU second
NAMES = ("tool", *(each.name for each in TREATMENTS))
_JOIN = "Put the answers together."


@dataclass(frozen=True)
class ReplayedWorker:
    """A worker in one wording (or a tool) that answers from the cache."""

    name: str
    outcomes: Mapping[str, Outcomes]  # by what asks for a part

    async def perform(self, request: Request) -> Reply:
        """Return what it answered to this part; WorkerError where it was not made for such parts."""
        outcome = self.outcomes[request.subtask].get(self.name)
        if outcome is None:
            raise WorkerError(FaultKind.TOOL_ERROR, f"{self.name} is not made for this")
        return Reply(outcome.answer or "(nothing)", dollars=SECOND * outcome.seconds)


@dataclass(frozen=True)
class Joiner:
    """Puts the answers to the parts together, each on a line."""

    async def perform(self, request: Request) -> Reply:
        """Return the answers as JSON."""
        return Reply(json.dumps([step.text for step in request.granted]))


@dataclass(frozen=True)
class TrueCut:
    """Proposes a step a part, all by one worker, and one that puts them together."""

    name: str
    tasks: Mapping[str, WorkshopTask]

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan; none after its round."""
        if situation.rounds:
            return Proposal(Plan())
        task = self.tasks[situation.task.id]
        steps = [
            Step(ask, NAMES.index(fixed_name(LARGE, part))) for ask, part in zip(task.asks, task.parts, strict=True)
        ]
        return Proposal(Plan((*steps, Step(_JOIN, len(NAMES), tuple(range(len(steps)))))), final=True)


@dataclass
class Workshop:
    """The world as `learning.Traffic` wants it: tasks in an order, the pool, and what is right."""

    tasks: Sequence[WorkshopTask]
    replay: Replay
    files: LearningFiles
    terms: LearningTerms
    members: Pool = field(init=False)
    proposer: TrueCut = field(init=False)

    def __post_init__(self) -> None:
        found = {
            ask: self.replay.part(part) or {}
            for task in self.tasks
            for ask, part in zip(task.asks, task.parts, strict=True)
        }
        cards = [Member(Card(name, kind="", price=Price(), attempts=1), ReplayedWorker(name, found)) for name in NAMES]
        self.members = Pool([*cards, Member(Card("join", kind="tool", price=Price()), Joiner())])
        self.proposer = TrueCut("true-cut", {task.name: task for task in self.tasks})

    def task(self, at: int) -> Task:
        """Return task `at`."""
        return Task(self.tasks[at].prompt, id=self.tasks[at].name, tenant="")

    def pool(self, at: int, luck: int) -> Pool:
        """Return the workers."""
        del at, luck
        return self.members

    def planner(self, at: int) -> Conductor:
        """Return the proposer."""
        del at
        return self.proposer

    def grade(self, at: int, answer: str | None) -> float:
        """Return the answer's worth in dollars: it is right where every part is."""
        task = self.tasks[at]
        answers = json.loads(answer) if answer else []
        if len(answers) != len(task.parts):
            return 0.0
        return WORTH * all(self._is_right(part, text) for part, text in zip(task.parts, answers, strict=True))

    def _is_right(self, part: Part, answer: str | None) -> bool:
        outcomes = self.replay.part(part) or {}
        return any(each.right for each in outcomes.values() if (each.answer or "(nothing)") == answer)

    def best(self, at: int) -> float:
        """Return the value of the best outcomes of task `at`."""
        return max(0.0, value_of([best_of(self.replay.part(part) or {}) for part in self.tasks[at].parts]))


def value_of(taken: Sequence[Outcome]) -> float:
    """Return dollars of a task of which these are the parts' outcomes."""
    return WORTH * all(each.right for each in taken) - SECOND * sum(each.seconds for each in taken)


async def learn(
    seed: int, learned: Sequence[WorkshopTask], held: Sequence[WorkshopTask], replay: Replay, graded: float
) -> list[tuple[bool, float]]:
    """Return for each held-out task whether the learner is right, and its CPU seconds."""
    order = list(learned)
    random.Random(seed).shuffle(order)
    with tempfile.TemporaryDirectory() as made:
        terms = LearningTerms(WORTH)
        files = LearningFiles(Path(made) / "learning", (), remembered(shipped_encoder().encode))
        world = Workshop([*order, *held], replay, files, terms)
        acting = LearnedConductor("learned:true-cut", world.proposer, files.model, terms, forms=False)
        async with open_journal(str(Path(made) / "runs.db")) as journal:
            traffic = Traffic(world, journal, len(order), graded, 1, lambda _: acting)
            await traffic.run(measures=False)

        def source(scope: Scope, version: str) -> OutcomeModel | None:
            model = files.model(scope, version)
            return None if model is None else replace(model, learning=replace(model.learning, acts=1.0))

        quiet = LearnedConductor("learned:true-cut", world.proposer, source, replace(terms, share=0.0), forms=False)
        engine, rows = Engine(MemoryRecorder()), list[tuple[bool, float]]()
        for at in range(len(order), len(order) + len(held)):
            run = await engine.run(world.task(at), world.members, quiet, CAPS)
            paid = sum(
                each.charged.dollars or 0.0
                for turn in run.rounds
                for step in turn.steps.values()
                for each in step.attempts
            )
            rows.append((world.grade(at, run.answer) > 0, paid / SECOND))
        return rows


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--cache", type=Path, default=FOLDER / "answers.db")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--graded", type=float, default=1.0)
    chosen = parser.parse_args()
    replay = Replay(AnswerCache(chosen.cache))
    tasks = compose(load_parts(repositories(FOLDER / "data", chosen.clones)))
    whole = [task for task in tasks if all(replay.part(part) for part in task.parts)]
    learned, held = ([each for each in whole if each.split == split] for split in ("train", "test"))
    known = {(part.family, part.name): (part, replay.part(part) or {}) for task in learned for part in task.parts}
    table = learned_table(list(known.values()), SECOND / WORTH)
    print(f"{len(learned)} of 600 tasks to learn from, {len(held)} of 700 held-out tasks have all their parts")

    def named(choose: partial[str], task: WorkshopTask) -> list[Outcome]:
        found = [(part, replay.part(part) or {}) for part in task.parts]
        return [outcomes.get(choose(part)) or outcomes[fixed_name(LARGE, part)] for part, outcomes in found]

    def listed(part: Part) -> str:
        return table.get(part.family) or fixed_name(LARGE, part)

    rows: dict[str, list[tuple[bool, float]]] = {}
    ways = {"1.5B in one wording": partial(fixed_name, LARGE), "rule, told the family": partial(ruled_name),
            "table, told the family": partial(listed)}  # fmt: skip
    for label, way in ways.items():
        done = [named(way, task) for task in held]
        rows[label] = [(all(one.right for one in each), sum(one.seconds for one in each)) for each in done]
    best = [[best_of(replay.part(part) or {}) for part in task.parts] for task in held]
    rows["oracle"] = [(all(one.right for one in each), sum(one.seconds for one in each)) for each in best]
    for seed in map(int, chosen.seeds.split(",")):
        rows[f"learner, seed {seed}"] = asyncio.run(learn(seed, learned, held, replay, chosen.graded))
    top = sum(WORTH * right - SECOND * seconds for right, seconds in rows["oracle"])
    base = rows["table, told the family"]
    for label, each in rows.items():
        value = [WORTH * right - SECOND * seconds for right, seconds in each]
        low, high = interval([float(one[0]) - float(other[0]) for one, other in zip(each, base, strict=True)], held)
        mean, seconds = sum(right for right, _ in each) / len(each), sum(second for _, second in each) / len(each)
        print(f"{label:<26} {mean:.3f} right, {seconds:5.2f} CPU s, {sum(value) / top:.3f} of the oracle's value; "
              f"right over the table [{low:+.3f}, {high:+.3f}]")  # fmt: skip


if __name__ == "__main__":
    main()
