"""Where conducting pays and where it does not: one page of figures, a conductor against its controls at equal dollars.

    python benchmarks/where_conducting_pays.py [--model pointer.safetensors] [--tasks 200] [--seeds 1,2,3]
        [--parts office,reliability] [--json pays.json] [--svg pays.svg]

The office is simulated: questions by held-out authors in six kinds of work, conductor and controls with the same 100
outcomes a worker, everything performed through the engine with the same luck. Controls are told which sentence asks for
what; the conductor reads (`as it reads`), and is told too in a second row (`read perfectly`). A right answer counts 1.
Dimensions of a question: `horizon`, its parts; `depth`, the longest chain of parts that need each other; `breadth`, its
kinds of work; `parallelism`, how many parts can be done at once; `how it was read`: a question that the conductor is in
doubt about is left whole, for one worker; of workers: how reliable the best all-rounder is, and how reliable
specialists are.

A control has settings: by what it takes a dollar to be worth it chooses a dearer or cheaper worker, and how often it
asks. In each cell the two settings are mixed that spend, on other tasks (training authors), what the conductor spends,
with the most right answers there. So does the choice of the strongest control. `gain` is the conductor less that
control, paired over tasks, bootstrap 95 %; `$` what the control spent of the conductor's dollars. A cell `pays` where
the interval is above 0, costs (`does not`) where it is below, else nothing can be said. Cells are not corrected for
their number: of 20, one may be wrong by chance.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from common import Always, machine
from conductor_office import Seen, learned_wordings, pointer, seen
from pays_chart import draw_map
from pays_settings import Cell, Setting, compare
from shikisha import Caps, Engine, Plan, Step
from shikisha.conductors.part_plans import (
    PartChoice,
    PartPolicy,
    PartsConductor,
    TreatmentKind,
)
from shikisha.conductors.pointer_conductor import PointerModel, load_pointer, shipped_pointer
from shikisha.core.prompts import CHECK_OPENING, WORDINGS
from shikisha.engine.conductor import Conductor
from shikisha.engine.recorder import MemoryRecorder
from shikisha_train.office.office_tasks import OFFICE, OfficeDistribution, OfficeTask, office_tasks
from shikisha_train.office.questions import AuthorSplit, OfficeQuestion
from shikisha_train.office.staff import CrewDistribution, StaffMember

CAPS = Caps(steps=40, rounds=12)
OUTCOMES = 100
DOLLAR_WORTHS = (0.0, 20.0, 60.0, 250.0)  # what a control takes a dollar to be worth, against a right answer of 1
CHOICE_SEED = 500  # added to a seed: the training authors' tasks on which controls' settings are chosen
PLAIN = replace(OFFICE, stakes=0.0)  # every right answer is worth the same
EVEN = replace(PLAIN, parts=(1.0,) * 6, crew=CrewDistribution(generalist=1.0))
RULE, READS, PERFECT = "rule", "as it reads", "read perfectly"
Make = Callable[[Seen], Conductor]


@dataclass(frozen=True)
class Shape:
    """The dimensions of a question along the path that its answer takes."""

    horizon: int
    depth: int
    breadth: int
    parallelism: int


def shape_of(question: OfficeQuestion) -> Shape:
    """Return a question's dimensions."""
    rule, levels = question.condition, dict[int, int]()
    for part in question.path:
        needs = {*question.parts[part].uses}
        if rule is not None and part >= rule.first_then:
            needs.add(rule.on)
        levels[part] = 1 + max((levels[each] for each in needs if each in levels), default=0)
    counts = np.bincount(list(levels.values()))
    kinds = {question.parts[part].kind for part in question.path}
    return Shape(len(levels), max(levels.values()), len(kinds), int(counts.max()))


def ranked_workers(one: Seen, worth: float) -> list[int]:
    """Return workers by their outcomes at the question's kinds of work less what they cost, the best first."""
    means = (one.known.right + 0.4) / (one.known.tries + 2)
    chance = np.prod([means @ kinds for kinds in one.read.kinds], axis=0)
    return [int(at) for at in np.argsort(-(chance - worth * one.prices), kind="stable")]


def worded(one: Seen, worker: int, text: str) -> str:
    """Return a subtask with what the worker's outcomes were better with."""
    told = sorted(learned_wordings(one.known, worker))
    return " ".join([text, *(WORDINGS[name] for name in told)])


def whole_vote(one: Seen, workers: Sequence[int]) -> Conductor:
    """The whole question to each of these, and a real count of their votes."""
    text = one.item.task.prompt
    steps = [Step(worded(one, worker, text), worker) for worker in workers]
    if len(steps) > 1:
        steps.append(Step(text, len(one.item.crew), tuple(range(len(steps)))))
    return Always(Plan(tuple(steps)))


def whole_check(one: Seen, first: int, second: int) -> Conductor:
    """The whole question to one worker; another checks and corrects its answer."""
    text = one.item.task.prompt
    check = Step(f"{CHECK_OPENING} {worded(one, second, text)}", second, (0,))
    return Always(Plan((Step(worded(one, first, text), first), check)))


def by_parts(one: Seen, policy: PartPolicy) -> Conductor:
    """A policy over the parts that were read."""
    return PartsConductor("pays", one.read.parts, policy, len(one.item.crew))


def agent_policy(one: Seen, worker: int) -> PartPolicy:
    """One worker does every part in turn and sees everything that it did before: one conversation."""
    told = learned_wordings(one.known, worker)

    def choose(left: tuple[int, ...]) -> PartChoice:
        return PartChoice(left[:1], TreatmentKind.CALL, (worker,), (told,), frozenset(range(left[0])))

    return choose


def rule_policy(one: Seen, worth: float) -> PartPolicy:
    """A rule that conducts: each part to the worker with the best share right at its kind of work less its price."""

    def choose(left: tuple[int, ...]) -> PartChoice:
        kind = int(one.read.kinds[left[0]].argmax())
        means = (one.known.right[:, kind] + 2 * (0.2 + 0.3 * one.claims[:, kind])) / (one.known.tries[:, kind] + 2)
        worker = int(np.argmax(means - worth * one.prices))
        return PartChoice(left[:1], TreatmentKind.CALL, (worker,), (learned_wordings(one.known, worker),))

    return choose


def calls_of_best(worth: float, count: int, one: Seen) -> Conductor:
    """The whole question to the worker that is best at this price, so often."""
    return whole_vote(one, ranked_workers(one, worth)[:1] * count)


def vote_of_three(worth: float, one: Seen) -> Conductor:
    """The whole question to the three best workers."""
    return whole_vote(one, ranked_workers(one, worth)[:3])


def checked_by_second(worth: float, one: Seen) -> Conductor:
    """The whole question to the best worker, checked by the second best."""
    first, second = ranked_workers(one, worth)[:2]
    return whole_check(one, first, second)


def one_agent(worth: float, one: Seen) -> Conductor:
    """Every part to the worker that is best at this price for the whole question."""
    return by_parts(one, agent_policy(one, ranked_workers(one, worth)[0]))


def ruled(worth: float, one: Seen) -> Conductor:
    """A rule conducts."""
    return by_parts(one, rule_policy(one, worth))


def controls() -> Iterator[tuple[str, str, Make]]:
    """Yield (control, setting, how it plays a question)."""
    for worth in DOLLAR_WORTHS:
        said = f"${worth:g}"
        yield "best single worker", said, partial(calls_of_best, worth, 1)
        yield "self-consistency", said, partial(calls_of_best, worth, 3)
        yield "self-consistency", f"{said} x4", partial(calls_of_best, worth, 4)
        yield "one agent with everything", said, partial(one_agent, worth)
        yield "fixed topology", f"vote {said}", partial(vote_of_three, worth)
        yield "fixed topology", f"check {said}", partial(checked_by_second, worth)
        yield RULE, said, partial(ruled, worth)


async def perform(views: Sequence[Seen], make: Make) -> Setting:
    """Perform every task through the engine."""
    recorder = MemoryRecorder()
    engine = Engine(recorder)
    right, dollars = list[float](), list[float]()
    for one in views:
        item = one.item
        run = await engine.run(item.task, item.pool, make(one), CAPS, run_id=item.task.id)
        recorder.forget(run.id)
        right.append(float(item.grade(run.answer)))
        dollars.append(run.charged.dollars or 0.0)
    return Setting(np.array(right), np.array(dollars))


@dataclass(frozen=True)
class PlayedOffice:
    """One set of questions with everything that was played on it, by control and setting."""

    items: list[OfficeTask]
    conductors: Mapping[str, Setting]
    played: Mapping[str, Mapping[str, Setting]]


async def play(model: PointerModel, items: list[OfficeTask]) -> PlayedOffice:
    """Perform the conductor as it reads and read perfectly, and every setting of every control."""
    policy, perfect = pointer(model), [seen(model, item, OUTCOMES, perfect=True) for item in items]
    views = {READS: [seen(model, item, OUTCOMES) for item in items], PERFECT: perfect}
    ours = {name: await perform(each, lambda one: by_parts(one, policy(one))) for name, each in views.items()}
    found = defaultdict[str, dict[str, Setting]](dict)
    for control, setting, make in controls():
        found[control][setting] = await perform(perfect, make)
    return PlayedOffice(items, ours, found)


def draw(split: AuthorSplit, seeds: Sequence[int], count: int, distribution: OfficeDistribution) -> list[OfficeTask]:
    """Return so many questions of each seed."""
    return [item for seed in seeds for item in office_tasks(split, seed, distribution, count)]


def cells(
    dimension: str, held: PlayedOffice, choice: PlayedOffice, level: Callable[[OfficeTask], str]
) -> Iterator[Cell]:
    """Yield a cell for each level of a dimension."""
    of_held, of_choice = (np.array([level(item) for item in each.items]) for each in (held, choice))
    for name in sorted(set(of_held)):
        here, there = of_held == name, of_choice == name
        for conductor, ours in held.conductors.items():
            yield compare(
                dimension, name, ours.at(here),
                {control: {key: one.at(here) for key, one in by.items()} for control, by in held.played.items()},
                {control: {key: one.at(there) for key, one in by.items()} for control, by in choice.played.items()},
                aside=(RULE,), conductor=conductor,
            )  # fmt: skip


def office_levels() -> dict[str, Callable[[OfficeTask], str]]:
    """Return the dimensions of questions and the level of one in each."""

    def capped(number: int, most: int) -> str:
        return f"{most} or more" if number >= most else str(number)

    return {
        "all questions": lambda _: "all",
        "horizon (parts)": lambda item: capped(shape_of(item.question).horizon, 5),
        "depth (longest chain)": lambda item: capped(shape_of(item.question).depth, 4),
        "breadth (kinds of work)": lambda item: capped(shape_of(item.question).breadth, 4),
        "parallelism (parts at once)": lambda item: str(shape_of(item.question).parallelism),
    }


def with_levels(item: OfficeTask, change: Callable[[StaffMember], StaffMember]) -> OfficeTask:
    """Return the question for a crew whose workers became others; their cards stay."""
    return item.with_crew(replace(item.crew, members=tuple(change(member) for member in item.crew.members)))


def all_rounder_at(level: float) -> Callable[[StaffMember], StaffMember]:
    """Return the change after which the all-rounder has this level on average."""

    def change(member: StaffMember) -> StaffMember:
        if not member.generalist:
            return member
        moved = {kind: min(0.99, max(0.02, own + level - 0.7)) for kind, own in member.levels.items()}
        return replace(member, levels=moved)

    return change


def specialists_at(share: float) -> Callable[[StaffMember], StaffMember]:
    """Return the change after which specialists have this share of what they are strong at."""

    def change(member: StaffMember) -> StaffMember:
        if member.generalist:
            return member
        return replace(member, levels={kind: own * share if own >= 0.5 else own for kind, own in member.levels.items()})

    return change


async def office(model: PointerModel, seeds: Sequence[int], count: int) -> list[Cell]:
    """Return the cells of the office as it is drawn."""
    held = await play(model, draw(AuthorSplit.HELDOUT, seeds, count, PLAIN))
    choice = await play(model, draw(AuthorSplit.TRAIN, [seed + CHOICE_SEED for seed in seeds], count, PLAIN))
    whole = {item.task.id: seen(model, item, OUTCOMES).read.whole for item in [*held.items, *choice.items]}

    def reading(item: OfficeTask) -> str:
        return "left whole" if whole[item.task.id] else "taken apart"

    levels = {**office_levels(), "how it was read": reading}
    return [cell for name, level in levels.items() for cell in cells(name, held, choice, level)]


async def reliability(model: PointerModel, seeds: Sequence[int], count: int) -> list[Cell]:
    """Return the cells of workers made more or less reliable, and those by horizon too."""
    found = list[Cell]()
    choice_seeds = [seed + CHOICE_SEED for seed in seeds]
    for dimension, levels, make in (
        ("reliability of the all-rounder", (0.55, 0.7, 0.85, 0.95), all_rounder_at),
        ("reliability of specialists", (0.6, 0.8), specialists_at),
    ):
        for level in levels:
            change = make(level)
            held, choice = [
                await play(model, [with_levels(item, change) for item in draw(split, which, count, EVEN)])
                for split, which in ((AuthorSplit.HELDOUT, seeds), (AuthorSplit.TRAIN, choice_seeds))
            ]
            found += cells(dimension, held, choice, partial(_named, f"{level:.2f}"))
            if make is all_rounder_at:
                found += cells(
                    f"{dimension} {level:.2f} by horizon", held, choice,
                    lambda item: "-".join(map(str, _band(shape_of(item.question).horizon))),
                )  # fmt: skip
    return found


def _named(name: str, _: OfficeTask) -> str:
    return name


def _band(horizon: int) -> tuple[int, int]:
    return (1, 1) if horizon == 1 else (2, 3) if horizon <= 3 else (4, 6)


def print_cells(found: Sequence[Cell]) -> None:
    """Print a line for each cell."""
    last = ""
    for cell in found:
        if cell.dimension != last:
            print(f"{cell.dimension}")
            last = cell.dimension
        aside = "".join(
            f"  {name} {share:.3f} ({low:+.3f} to {high:+.3f})" for name, (share, low, high) in cell.aside.items()
        )
        print(
            f"  {cell.level:<14} {cell.conductor:<14} {cell.tasks:>5} tasks  {cell.right:.3f} ${cell.dollars:.5f}  "
            f"{cell.control} {cell.control_right:.3f} at {cell.spent:.2f} $  gain {cell.gain:+.3f} "
            f"[{cell.low:+.3f}, {cell.high:+.3f}] {cell.verdict}{aside}",
            flush=True,
        )
        others = (f"{name} {share:.3f} ({low:+.3f} to {high:+.3f})" for name, (share, low, high) in cell.others.items())
        print(f"      {'; '.join(others)}")


async def main() -> None:
    """Play what is asked for, print the map, draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=shipped_pointer())
    parser.add_argument("--tasks", type=int, default=200, help="tasks for each seed")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--parts", default="office,reliability")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="cells of earlier runs (--json), to draw too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    seeds, wanted = [int(seed) for seed in arguments.seeds.split(",")], arguments.parts.split(",")
    model = load_pointer(arguments.model)
    print(f"Where conducting pays, {arguments.tasks} tasks a seed, seeds {arguments.seeds} ({machine()})", flush=True)
    found, count = list[Cell](), arguments.tasks
    parts: dict[str, Callable[[], Awaitable[list[Cell]]]] = {
        "office": partial(office, model, seeds, count),
        "reliability": partial(reliability, model, seeds, count),
    }
    for name, make in parts.items():
        if name in wanted:
            some = await make()
            print_cells(some)
            found += some
    if arguments.json:
        arguments.json.write_text(json.dumps([cell.as_json() for cell in found], indent=1) + "\n")
    if arguments.svg:
        earlier = [Cell.of(row) for file in arguments.also for row in json.loads(file.read_text())]
        arguments.svg.write_text(draw_map([*earlier, *found]))


if __name__ == "__main__":
    asyncio.run(main())
