"""Whether anything of one tenant's runs, or of labeled ones, reaches a prompt of another's: canaries, with all learned.

    python benchmarks/tenants.py [--runs 10000]

Workers, planner and reflector are simulated and record every message that they are shown. Tenant "a" performs, without
and with the label "secret", tasks that each hold a canary; what a journal of these runs teaches (advice, lessons,
skills, worker notes, step values, notes of memory) is written to files by the code that the commands use, and put
around one conductor for all. Then "a", "b" and the operator perform like tasks. Printed are messages that hold a
canary of "a" (or of its secret), by who was shown them: 0 for "b" and for the operator, and not for "a".
"""

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.noted import NotedConductor
from shikisha.conductors.value_conductor import value_conductor
from shikisha.config.learned_parts import advised_conductor, load_note_source, skilled_conductor
from shikisha.core.budget import Caps, Price
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run, runs_in_scope
from shikisha.core.task import Task
from shikisha.core.visibility import request_messages
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.gatherers.context_budget import ContextBudget, WeightedGatherer
from shikisha.gatherers.memory_gatherer import MemoryGatherer
from shikisha.journal import open_journal
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.journal_memory import sync_memory
from shikisha.learned.learned_file import write_learned
from shikisha.learned.lessons import LessonState, book_file, load_book, merge_lessons, reflected_lesson
from shikisha.learned.memory_index import MemoryIndex
from shikisha.learned.skills import mine_skills, write_skill
from shikisha.learned.step_samples import run_samples
from shikisha.learned.tuned_prompt import prompt_file
from shikisha.notes.step_outcomes import step_outcomes
from shikisha.notes.worker_notes import WorkerNotes

OPEN, SECRET, LABEL = "kumquat", "zanzibar", "secret"  # the canaries of a's runs, without and with the label
CAPS = Caps(steps=6, rounds=3)
READERS = (("a", ()), ("a", (LABEL,)), ("b", ()), ("b", (LABEL,)), ("", ()), (None, ()))


@dataclass
class Shown:
    """Remembers whose calls held which canary, and how many there were."""

    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, request: Request) -> None:
        """Count what a worker is shown."""
        text = "\n".join(turn.text for turn in (request.turns or request_messages(request)))
        who = f"{request.task.tenant!r} {','.join(request.task.labels)}".strip()
        self.seen[who, "calls"] += 1
        for canary in (OPEN, SECRET):
            self.seen[who, canary] += canary in text


@dataclass(frozen=True)
class Simulated:
    """A planner ("plans") or a worker that records what it is shown; a worker is right unless the task says so."""

    shown: Shown
    plans: bool = False

    async def perform(self, request: Request) -> Reply:
        """Reply with a plan that repeats the task in one step and a check of it, or with an answer."""
        self.shown.take(request)
        if self.plans:
            words = " ".join(request.task.prompt.split()[:24])
            told = json.dumps([f"Work out: {words}", "State the result of the earlier step in one word."])
            return Reply(f'model_id = [0, 1]\nsubtasks = {told}\naccess_list = [[], ["all"]]')
        return Reply("wrong" if "unlucky" in request.task.prompt else "right")


def task_of(number: int, tenant: str | None, labels: tuple[str, ...] = (), canary: str = "plain") -> Task:
    """Return one of many tasks of the same form; every sixth goes wrong."""
    luck = "unlucky" if number % 6 == 5 else "lucky"
    text = f"Compare the {canary} {luck} meter number {number} of the northern harbour with the reading of last week."
    return Task(text, labels=labels, tenant=tenant)


async def taught_files(folder: Path, pool: Pool, planner: LanguageModelConductor, count: int) -> None:
    """Perform runs of "a" in a journal, and write what they teach, each half into a folder of its own."""
    async with open_journal(str(folder / "journal.db")) as journal:
        engine = Engine(journal)
        for number in range(2 * count):
            labels, canary = ((LABEL,), SECRET) if number % 2 else ((), OPEN)
            run = await engine.run(task_of(number // 2, "a", labels, canary), pool, planner, CAPS)
            right = run.answer == "right"
            mark = GradeMark.RIGHT if right else GradeMark.WRONG
            journal.add(AnswerGraded(run=run.id, at=time(), checker="bench", mark=mark, score=float(right), actor="b"))
        runs = await journal.all_runs()
        with MemoryIndex(folder / "memory.db") as memory:
            await sync_memory(memory, journal)
    for labels, canary in (((), OPEN), ((LABEL,), SECRET)):
        _, own = runs_in_scope(runs, "a", labels)
        write_files(folder / canary, [run for run in own if set(run.started.labels) == set(labels)], canary)


def write_files(folder: Path, runs: Sequence[Run], canary: str) -> None:
    """Write what runs teach, as the commands do."""
    scope, _ = runs_in_scope(runs, None, None)
    failed = [run for run in runs if run.answer == "wrong"]
    told = [
        reflected_lesson(f"Before comparing, ask which {canary} meter was read, case {at}.", run.started.prompt, run.id)
        for at, run in enumerate(failed)
    ]
    lessons = merge_lessons([], [lesson for lesson in told if lesson is not None])
    kept = [replace(lesson, state=LessonState.KEPT) for lesson in lessons]
    write_learned(folder / "lessons.json", book_file(kept, scope, 0.0))
    write_learned(folder / "advice.json", prompt_file(f"Name the {canary} meter.", [runs[0].id], scope, None, 0.0))
    samples = run_samples(runs)
    values = fit_step_value(samples).to_file([one.run for one in samples], None, 0.0)
    write_learned(folder / "values.json", replace(values, content={**values.content, "forms": True, "trial": False}))
    WorkerNotes.collect(step_outcomes(runs)).save(folder / "notes.json")
    for skill in mine_skills([run for run in runs if run not in failed]):
        write_skill(folder / "skills", replace(skill, name=f"{canary}-{skill.name}"), 0.0)


def learned(inner: LanguageModelConductor, folder: Path, *, values: bool) -> Conductor:
    """Return a conductor with all files of a folder: step values around it, or skills, notes, advice and lessons."""
    found: Conductor = advised_conductor(inner, folder, Path("advice.json"), Path("lessons.json"), 1.0)
    found = NotedConductor(found, load_note_source(folder / "notes.json", None), 0.2)
    if not values:
        return skilled_conductor(found, folder / "skills")
    return value_conductor("value", folder / "values.json", (found,), (), 0.05, 0.1, 1.0)


async def count_canaries(count: int, taught: int = 60) -> dict[str, dict[str, int]]:
    """Return by reader how many calls there were, and in how many of them which canary; no task has one itself."""
    shown = Shown()
    members = [
        Member(Card(name, "reads meters", price=Price(call=0.001)), Simulated(shown)) for name in ("ann", "bob", "cyd")
    ]
    planner = LanguageModelConductor("lm:planner", Member(Card("planner"), Simulated(shown, plans=True)), rounds=1)
    recalled = Counter[str]()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        await taught_files(folder, Pool(members), planner, taught)
        shown.seen.clear()
        places = [folder / canary for canary in (OPEN, SECRET)]
        kinds = [learned(planner, place, values=which) for place in places for which in (True, False)]
        books = [load_book(place / "lessons.json") for place in places]
        sources = tuple(WeightedGatherer(f"m{at}", MemoryGatherer(f"m{at}", book)) for at, book in enumerate(books))
        context = ContextBudget(sources, 4_000, 5.0, 0.0, frozenset({LABEL}))
        engines = [Engine(MemoryRecorder()), Engine(MemoryRecorder(), context_source=context)]
        with MemoryIndex(folder / "memory.db") as memory:
            for number in range(count):
                tenant, labels = READERS[number % len(READERS)]
                task = task_of(1_000 + number // len(READERS), tenant, labels)
                conductor = kinds[number // len(READERS) % len(kinds)]
                engine = engines[number // len(READERS) // len(kinds) % len(engines)]
                await engine.with_recorder(MemoryRecorder()).run(task, Pool(members), conductor, CAPS)
                if tenant is not None:
                    found = memory.recall("meter of the harbour", 5, tenant=tenant, labels=labels)
                    recalled[f"{tenant!r} {','.join(labels)}".strip()] += sum(
                        OPEN in one.note.text or SECRET in one.note.text for one in found
                    )
    readers = dict.fromkeys(who for who, _ in shown.seen)
    kinds_seen = ("calls", OPEN, SECRET)
    return {who: {what: shown.seen[who, what] for what in kinds_seen} | {"recalled": recalled[who]} for who in readers}


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    asked = parser.parse_args()
    for who, counts in asyncio.run(count_canaries(asked.runs)).items():
        print(f"{who:16}", "  ".join(f"{name} {count:,}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
