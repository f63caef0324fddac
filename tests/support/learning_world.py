"""A small world to learn in: three workers, each right at one kind of work, and a planner that believes the first."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shikisha.core.budget import Caps, Price
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms, fit_outcomes
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import RunEvidence, run_evidence
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha_train.office.seeded_random import hash_fraction

KINDS = {
    "sum": ("Add up the invoices of {}.", "What do the invoices of {} come to?", "Sum the bills of {}."),
    "letter": ("Write a letter to {}.", "Draft a reply to {}.", "Compose a note for {}."),
    "law": ("Which clause binds {}?", "Cite the rule that holds for {}.", "What does the contract ask of {}?"),
}
WORKERS = ("adder", "writer", "lawyer")
SKILLS: Mapping[str, Mapping[str, float]] = {
    "adder": {"sum": 0.95, "letter": 0.1, "law": 0.1},
    "writer": {"sum": 0.1, "letter": 0.95, "law": 0.1},
    "lawyer": {"sum": 0.1, "letter": 0.1, "law": 0.95},
}
NAMES = ("Ada", "Bo", "Cyd", "Dan", "Eve", "Flo", "Gus", "Hal")
TERMS = LearningTerms(0.05, 0.1, ("Reply with the result only.",))
CAPS = Caps(steps=12, rounds=4)


@dataclass
class Skilled:
    """Answers right as often as its skill at the kind of work that the subtask's words say."""

    name: str
    skills: Mapping[str, Mapping[str, float]]
    seen: list[str] = field(default_factory=list)

    async def perform(self, request: Request) -> Reply:
        """Reply `right` or something wrong of its own."""
        self.seen.append(request.subtask)
        kind = next(kind for kind, texts in KINDS.items() if any(text[:8] in request.subtask for text in texts))
        right = hash_fraction(self.name, request.task.id, request.subtask) < self.skills[self.name][kind]
        return Reply("right" if right else f"wrong by {self.name}", dollars=0.001)


@dataclass(frozen=True)
class FirstPlanner:
    """Plans each sentence of a task as a step for the first worker, and names its kind."""

    name: str = "planner"
    kinds: bool = True

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan; nothing after it."""
        if situation.rounds:
            return Proposal(Plan())
        steps = []
        for at, text in enumerate(situation.task.prompt.split(" | ")):
            kind = next(kind for kind, texts in KINDS.items() if any(text[:8] == one[:8] for one in texts))
            steps.append(Step(text, 0, (at - 1,) if at else (), kind=kind if self.kinds else ""))
        return Proposal(Plan(tuple(steps)), final=True)


def world_pool(
    names: Sequence[str] = WORKERS, skills: Mapping[str, Mapping[str, float]] = SKILLS, **card: object
) -> Pool:
    """Return the workers as a pool."""
    return Pool([Member(Card(name, "", "chat", Price(call=0.001), **card), Skilled(name, skills)) for name in names])  # type: ignore[arg-type]


def world_task(number: int, parts: int = 1, seed: int = 0, **more: object) -> Task:
    """Return a task of so many sentences."""
    said = []
    for part in range(parts):
        draw = int(hash_fraction("task", seed, number, part) * 9)
        text = KINDS[list(KINDS)[draw % 3]][draw // 3]
        said.append(text.format(NAMES[(number + part) % len(NAMES)]))
    return Task(" | ".join(said), id=f"{seed}/{number}", **more)  # type: ignore[arg-type]


def graded(run: Run, *, right: bool | None = None) -> Run:
    """Return the run with its true grade, or with this one."""
    answers = [step.result for turn in run.rounds for step in turn.steps.values()]
    true = all(one is not None and one.text == "right" for one in answers)
    score = float(true if right is None else right)
    mark = GradeMark.RIGHT if score else GradeMark.WRONG
    run.grades.append(AnswerGraded(run=run.id, at=run.started.at, checker="test", mark=mark, score=score, actor="t"))
    return run


async def perform(task: Task, conductor: Conductor, pool: Pool | None = None) -> Run:
    """Return the run of a task."""
    return await Engine(MemoryRecorder()).run(task, pool or world_pool(), conductor, CAPS)


@dataclass(frozen=True)
class DrawnPlanner:
    """The first planner's plans with drawn workers."""

    seed: int = 0
    name: str = "drawn"

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan."""
        first = await FirstPlanner().propose(situation)
        count = len(situation.cards)
        draws = [int(hash_fraction(self.seed, situation.task.id, at) * count) for at in range(len(first.plan))]
        steps = zip(first.plan.steps, draws, strict=True)
        return replace(first, plan=Plan(tuple(replace(step, worker=draw) for step, draw in steps)))


def drawn_runs(count: int, parts: int = 1, seed: int = 0, **more: object) -> list[Run]:
    """Return graded runs with drawn workers."""

    async def main() -> list[Run]:
        tasks = [world_task(at, parts, seed, **more) for at in range(count)]
        return [graded(await perform(task, DrawnPlanner(seed))) for task in tasks]

    return asyncio.run(main())


def evidence_of(runs: Sequence[Run], terms: LearningTerms = TERMS) -> list[RunEvidence]:
    """Return what runs tell, in their order."""
    found = [run_evidence(run, terms.phrases) for run in runs]
    return [replace(one, at=float(at)) for at, one in enumerate(found) if one is not None]


def fitted(runs: Sequence[Run], terms: LearningTerms = TERMS) -> OutcomeModel:
    """Return the model that runs teach."""
    evidence = evidence_of(runs, terms)
    return replace(fit_outcomes(evidence, terms, evidence[0].scope, shipped_encoder().encode), version="v1")


def chance(model: OutcomeModel, worker: str, kind: str) -> float:
    """Return the model's chance of a worker at a kind of work."""
    return model.kind_chances(worker)[kind]


def learning_files(folder: object) -> LearningFiles:
    """Return the learner's folder."""
    return LearningFiles(folder, TERMS.phrases, shipped_encoder().encode)  # type: ignore[arg-type]
