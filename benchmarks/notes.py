"""Worker notes from finished tasks alone: who is chosen after so many graded runs, in the words of other people.

    python benchmarks/notes.py [--crews 6] [--runs 30,100,300,1000] [--tasks 100] [--json]

All workers are simulated (the office). For each crew: runs of random plans (one worker drawn for each part, neutral
wording) are performed through the engine and graded as right or wrong, as a person would. Notes are made from these
runs: grades of whole runs, no label of a kind of work. Then new questions of the same authors are planned by the
worker with the highest noted chance at each sentence less 20 a dollar, and, with held-out authors, in words that the
notes never saw. Wordings are compared by shared words, and by meaning (the text encoder).

Controls, on the same runs and questions: cards believed, random plans, the worker with the best share over all its work
(notes without the text), and the rule that is told the true kind of each sentence and each step's true outcome.
"""

import argparse
import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from common import machine
from shikisha import Caps, Engine
from shikisha.conductors.part_plans import DOLLAR_WEIGHT, NOTHING_TOLD, PartChoice, PartPolicy, TreatmentKind
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR
from shikisha.engine.recorder import MemoryRecorder
from shikisha.notes.step_outcomes import step_outcomes
from shikisha.notes.worker_notes import WorkerNotes
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.simulation.office import office_conductors as play
from shikisha.simulation.office.best_plan import best_plan
from shikisha.simulation.office.company import WorkKind
from shikisha.simulation.office.office_tasks import QUIET_OFFICE, OfficeTask, office_task
from shikisha.simulation.office.questions import AuthorSplit
from shikisha.simulation.office.staff import Crew

CALLS = frozenset({TreatmentKind.CALL})
CAPS = Caps(steps=40, rounds=12)
Policy = Callable[[OfficeTask], PartPolicy]


async def perform(items: Sequence[OfficeTask], policy: Policy) -> tuple[list[Run], np.ndarray]:
    """Perform tasks; return their graded runs and values."""
    recorder = MemoryRecorder()
    engine, runs, values = Engine(recorder), list[Run](), list[float]()
    for item in items:
        conductor = play.office_conductor(item, policy(item))
        run = await engine.run(item.task, item.pool, conductor, CAPS, run_id=item.task.id)
        recorder.forget(run.id)
        right = item.grade(run.answer)
        mark = GradeMark.RIGHT if right else GradeMark.WRONG
        run.grades.append(
            AnswerGraded(run=run.id, at=0.0, checker="feedback", mark=mark, score=float(right), actor="simulated")
        )
        runs.append(run)
        values.append(item.value * right - DOLLAR_WEIGHT * (run.charged.dollars or 0.0))
    return runs, np.array(values)


def questions(split: AuthorSplit, seed: int, first: int, count: int, crew: Crew) -> list[OfficeTask]:
    """Return tasks for one crew."""
    return [office_task(split, seed, first + at, QUIET_OFFICE).with_crew(crew) for at in range(count)]


def random_plans(item: OfficeTask) -> PartPolicy:
    """Draw a worker for each part."""
    return play.random_policy(item, random.Random(item.task.id))


def by_notes(notes: WorkerNotes, *, reads: bool = True) -> Policy:
    """Give each part to the worker with the highest noted chance less its price."""

    def policy(item: OfficeTask) -> PartPolicy:
        names = [member.name for member in item.crew.members]

        def choose(left: tuple[int, ...]) -> PartChoice:
            text = item.question.sentences[left[0]] if reads else ""
            found = notes.estimate(text, names, OPERATOR)
            values = [one.mean - DOLLAR_WEIGHT * each.price for one, each in zip(found, item.crew.members, strict=True)]
            worker = int(np.argmax(values))
            return PartChoice(left[:1], TreatmentKind.CALL, (worker,), (NOTHING_TOLD,))

        return choose

    return policy


def told_rule(runs: Sequence[Run], items: Sequence[OfficeTask]) -> Policy:
    """Return the rule that is told the kind of each part and whether each step was right."""
    counts = defaultdict[tuple[str, WorkKind], list[float]](lambda: [0.0, 0.0])
    for run, item in zip(runs, items, strict=True):
        truth = [str(value) for value in item.question.solve()]
        for turn in run.rounds:
            for index, step in enumerate(turn.plan.steps if turn.plan else ()):
                part = next(at for at, said in enumerate(item.question.sentences) if said in step.subtask)
                result = turn.results[index]
                if result is None or result.text is None:
                    continue
                entry = counts[run.started.pool[step.worker], item.question.parts[part].kind]
                entry[0] += 1
                entry[1] += result.text == truth[part]

    def policy(item: OfficeTask) -> PartPolicy:
        def choose(left: tuple[int, ...]) -> PartChoice:
            kind = item.question.parts[left[0]].kind
            values = [
                (counts[member.name, kind][1] + 0.7) / (counts[member.name, kind][0] + 2) - DOLLAR_WEIGHT * member.price
                for member in item.crew.members
            ]
            return PartChoice(left[:1], TreatmentKind.CALL, (int(np.argmax(values)),), (NOTHING_TOLD,))

        return choose

    return policy


async def measure(number: int, counts: Sequence[int], tasks: int) -> dict[str, dict[str, float]]:
    """Return, for one crew, the mean value of each policy, by whose words the questions are in."""
    crew = office_task(AuthorSplit.TRAIN, 9_000 + number, 0, QUIET_OFFICE).crew
    past = questions(AuthorSplit.TRAIN, 9_000 + number, 100, max(counts), crew)
    runs, _ = await perform(past, random_plans)
    policies: dict[str, Policy] = {"random plans": random_plans, "cards believed": play.card_policy}
    for count in counts:
        outcomes = step_outcomes(runs[:count])
        notes = WorkerNotes.collect(outcomes)
        policies[f"{count} runs: best share over all work"] = by_notes(notes, reads=False)
        policies[f"{count} runs: notes, by words"] = by_notes(notes)
        by_meaning = WorkerNotes.collect(outcomes, shipped_encoder().encode)
        policies[f"{count} runs: notes, by meaning"] = by_notes(by_meaning)
        policies[f"{count} runs: rule told kinds and steps' outcomes"] = told_rule(runs[:count], past[:count])
    found: dict[str, dict[str, float]] = {}
    for split in AuthorSplit:
        items = questions(split, 9_500 + number, 0, tasks, crew)
        best = float(np.mean([best_plan(item, kinds=CALLS).value(item.value) for item in items]))
        found[split] = {"optimum of calls (best wording too)": best}
        for name, policy in policies.items():
            found[split][name] = float((await perform(items, policy))[1].mean())
    return found


async def main() -> None:
    """Print the table: means over crews of each policy's share of the optimum of calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crews", type=int, default=6)
    parser.add_argument("--runs", default="30,100,300,1000")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.runs.split(",")]
    crews = [await measure(number, counts, arguments.tasks) for number in range(arguments.crews)]
    table: dict[str, dict[str, list[float]]] = {}
    for split in AuthorSplit:
        for name in crews[0][split]:
            values = np.array([crew[split][name] for crew in crews])
            best = np.array([crew[split]["optimum of calls (best wording too)"] for crew in crews])
            draws = np.random.default_rng(0).integers(0, len(crews), (2_000, len(crews)))
            low, high = np.quantile(values[draws].mean(1) / best[draws].mean(1), (0.025, 0.975))
            table.setdefault(name, {})[split] = [float(values.mean() / best.mean()), float(low), float(high)]
    if arguments.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Notes, {arguments.crews} simulated crews, {arguments.tasks} new questions each ({machine()})")
    print("  share of the optimum of calls [95 % over crews]: the same authors; held-out authors")
    for name, shares in table.items():
        cells = "   ".join(f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in shares.values())
        print(f"  {name:<54} {cells}")


if __name__ == "__main__":
    asyncio.run(main())
