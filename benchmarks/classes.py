"""Classes proposed from a journal: how many wrong answers their modes let through, next to simpler ways to ask people.

    python benchmarks/classes.py [--runs 2000] [--seeds 1,2,3] [--tolerance 0.05] [--json]

Runs are of the office, simulated: questions of one part by ten authors, in six kinds of work that nobody names; three
workers answer and a count of their votes decides. How good the workers are differs by kind of work: from nearly always
right to right in half of the cases. 60 % of the runs are graded. Classes, risks and modes come from the older half;
every row below is of the newer half, all answers graded. A person looks at what is `asked`; what `passes`, nobody sees.
With `--alike` all three workers are of one family: what they do not know, all get wrong in the same way.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from common import Always, machine
from shikisha import Caps, Engine, Plan, Step, Task
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.engine.autonomy import AutonomyMode
from shikisha.engine.recorder import MemoryRecorder
from shikisha.learned.task_classes import ALL_RULES, ProposedClasses, audit_mode, propose_classes
from shikisha.simulation.office.company import WorkKind
from shikisha.simulation.office.office_tasks import OfficeTask, office_pool
from shikisha.simulation.office.questions import NO_NOISE, AuthorSplit, draw_question, office_authors
from shikisha.simulation.office.staff import FAMILIES, KINDS, CrewDistribution, StaffMember, draw_crew

LEVELS = {
    WorkKind.ARITHMETIC: 0.995,
    WorkKind.CALENDAR: 0.99,
    WorkKind.PEOPLE: 0.97,
    WorkKind.METERS: 0.85,
    WorkKind.INVOICES: 0.75,
    WorkKind.POLICIES: 0.5,
}
GRADED = 0.6


def levelled(member: StaffMember, rng: random.Random) -> StaffMember:
    """Return a worker that is about as good as its colleagues at each kind of work."""
    levels = {kind: min(0.999, LEVELS[kind] + rng.uniform(-0.03, 0.03)) for kind in KINDS}
    return replace(member, levels=levels, wants=frozenset())


async def journaled_runs(count: int, seed: int, *, alike: bool) -> list[tuple[Run, bool]]:
    """Perform so many questions and return their runs with whether the answer was right."""
    rng, recorder = random.Random(f"classes {seed}"), MemoryRecorder()
    crew = draw_crew(CrewDistribution((3,)), AuthorSplit.TRAIN, rng)
    crew = replace(crew, members=tuple(levelled(member, rng) for member in crew.members))
    families = FAMILIES[:1] * 3 if alike else FAMILIES[:3]
    members = [replace(member, family=family) for member, family in zip(crew.members, families, strict=True)]
    crew = replace(crew, members=tuple(members))
    authors = [*office_authors(AuthorSplit.TRAIN), *office_authors(AuthorSplit.HELDOUT)]
    engine, found = Engine(recorder), list[tuple[Run, bool]]()
    for index in range(count):
        question = draw_question(1, rng, authors, NO_NOISE, 0.0)
        task = Task(question.text, id=f"classes/{seed}/{index}")
        item = OfficeTask(task, question, crew, 1.0, seed)
        calls = tuple(Step(question.text, worker) for worker in range(3))
        plan = Plan((*calls, Step(question.text, 3, (0, 1, 2))))
        pool = office_pool(crew, question, task.id, seed)
        run = await engine.run(task, pool, Always(plan), Caps(), run_id=task.id)
        recorder.forget(run.id)
        found.append((run, item.grade(run.answer)))
    return found


def graded(run: Run, right: bool) -> Run:
    """Return the run with a grade."""
    mark = GradeMark.RIGHT if right else GradeMark.WRONG
    run.grades.append(AnswerGraded(run=run.id, at=1.0, checker="office", mark=mark, score=float(right), actor="grader"))
    return run


def ways(proposal: ProposedClasses, rng: random.Random) -> dict[str, Callable[[Sequence[Run]], tuple[int, int]]]:
    """Return ways to ask people: each gives how many of these runs are asked about, and wrong ones let through."""

    def proposed(runs: Sequence[Run]) -> tuple[int, int]:
        told = proposal.find([run.started.prompt for run in runs])
        asked = through = 0
        for run, each in zip(runs, told, strict=True):
            # A task of no class is reviewed: what is not known is not let through.
            mode = AutonomyMode.REVIEW if each is None else each.mode
            audit = audit_mode(mode, ALL_RULES if each is None else each.rules, [run])
            asked, through = asked + audit.asked, through + audit.through
        return asked, through

    def everywhere(mode: AutonomyMode) -> Callable[[Sequence[Run]], tuple[int, int]]:
        def way(runs: Sequence[Run]) -> tuple[int, int]:
            audit = audit_mode(mode, ALL_RULES, runs)
            return audit.asked, audit.through

        return way

    def drawn(runs: Sequence[Run]) -> tuple[int, int]:
        asked = proposed(runs)[0]
        rest = rng.sample(list(runs), len(runs) - asked)
        return asked, audit_mode(AutonomyMode.AUTONOMOUS, ALL_RULES, rest).through

    return {
        "proposed, all confirmed": proposed,
        "escalate everywhere, the same rules": everywhere(AutonomyMode.ESCALATE),
        "as many, drawn by lot": drawn,
        "review everywhere": everywhere(AutonomyMode.REVIEW),
        "autonomous everywhere": everywhere(AutonomyMode.AUTONOMOUS),
    }


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--alike", action="store_true", help="all three workers err alike")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table: dict[str, list[tuple[float, float, float]]] = {}
    print(f"Classes proposed from simulated journals of {arguments.runs:,} runs ({machine()})")
    for seed in map(int, arguments.seeds.split(",")):
        rng = random.Random(seed)
        played = await journaled_runs(arguments.runs, seed, alike=arguments.alike)
        half = len(played) // 2
        older = [graded(run, right) if rng.random() < GRADED else run for run, right in played[:half]]
        # The audit in the proposal is of the second half of what it is given; here all of it is older.
        proposal = propose_classes([*older, *older], arguments.tolerance)
        newer = [graded(run, right) for run, right in played[half:]]
        for each in proposal.classes:
            said = f"{each.risk.wrong} of {each.risk.graded} wrong"
            print(f"  seed {seed}: {each.name:<32} {each.mode:<11} {said}; {each.examples[0]}")
        wrong = sum(not right for _, right in played[half:])
        for name, way in ways(proposal, rng).items():
            asked, through = way(newer)
            passed = len(newer) - asked
            table.setdefault(name, []).append((asked / len(newer), through / max(1, passed), through / max(1, wrong)))
    for name, rows in table.items():
        asked, passed_wrong, missed = np.mean(rows, axis=0)
        told = ", ".join(f"{row[0]:.0%} / {row[1]:.1%}" for row in rows)
        print(f"  {name:<36} asked {asked:.1%}  wrong of what passes {passed_wrong:.2%}, of all {missed:.0%} ({told})")
    if arguments.json:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
