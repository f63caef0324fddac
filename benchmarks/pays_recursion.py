"""When a conductor that plans for conductors pays: one, two and three levels over the same workers, by the pool's size.

A company has so many departments, each a crew of the office (simulated). One level: the conductor points at workers of
all departments. Two: it points at a department for each part, and the department's conductor, a child run of the
engine, decides who does it, how it is worded and checked. Three: divisions of departments stand between. All levels are
the same pointer network; conducting costs nothing here, so what is compared is who decides better, not what deciding
costs. Departments are mixed as drawn, or sorted: each has the workers that are best at neighboring kinds of work.

A department is known by its workers' outcomes: at each kind of work, by those of the member that is best by outcomes
and price. Nothing is misread at any level. `gain` is a value: right answers less 20 a dollar, compared with one level.
A second control is one level that sees six workers, drawn by lot: where a conductor's view holds no more.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conductor_office import perfectly_read
from pays_settings import Cell, paired_interval
from shikisha import Caps, Engine, Plan, Step
from shikisha.conductors.part_plans import (
    DOLLAR_WEIGHT,
    PartChoice,
    PartedTask,
    PartsConductor,
    read_number,
    write_subtask,
)
from shikisha.conductors.pointer_conductor import PointerModel, PoolKnowledge
from shikisha.conductors.task_reader import ReadTask
from shikisha.core.budget import Price
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card
from shikisha.routing.arrays import Floats, Floats32
from shikisha.simulation.office.office_rollouts import evidence_arrays
from shikisha.simulation.office.office_tasks import OfficeDistribution, OfficeTask, draw_evidence, office_task
from shikisha.simulation.office.questions import AuthorSplit
from shikisha.simulation.office.simulated_staff import SimulatedStaff
from shikisha.simulation.office.staff import FAMILIES, KINDS, Crew, draw_crew
from shikisha.simulation.seeded_random import seeded_generator
from shikisha.workers.conductor import ConductorWorker
from shikisha.workers.vote import VoteWorker

CAPS = Caps(steps=80, rounds=14, depth=4)
GROUPS_IN_DIVISION = 2
SIZES, OUTCOMES = (2, 4, 8), (10, 100)
VIEW, FEW_SEEN = 6, "one level that sees six"


@dataclass(frozen=True)
class Unit:
    """Whom a conductor can point at, as it knows them: claims [W, K], prices [W], outcomes, and names in the pool."""

    names: tuple[str, ...]
    claims: Floats32
    prices: Floats32
    known: PoolKnowledge


@dataclass(frozen=True)
class Company:
    """A question with the workers of all departments: who is in which, and what is known of each worker."""

    item: OfficeTask
    departments: tuple[tuple[int, ...], ...]
    staff: Unit


def company(
    index: int, seed: int, departments: int, outcomes: int, *, is_sorted: bool, tasks: OfficeDistribution
) -> Company:
    """Draw question `index` with a company of so many departments."""
    item = office_task(AuthorSplit.HELDOUT, seed, index, tasks)
    rng = seeded_generator("company", seed, index, departments)
    crews = [draw_crew(tasks.crew, AuthorSplit.HELDOUT, rng) for _ in range(departments)]
    members = [
        (replace(member, name=f"{member.name}-{number}"), crew, at)
        for number, crew in enumerate(crews)
        for at, member in enumerate(crew.members)
    ]
    if is_sorted:
        members.sort(key=lambda each: max(range(len(KINDS)), key=lambda kind: each[0].levels[KINDS[kind]]))
    everybody = Crew(
        tuple(member for member, _, _ in members), tuple(crew.cards[at] for _, crew, at in members),
        tuple(crew.honesty[at] for _, crew, at in members), tuple(crew.claims[at] for _, crew, at in members),
    )  # fmt: skip
    shares = np.array_split(np.arange(len(members)), departments)
    evidence = draw_evidence(everybody, outcomes, random.Random(f"{item.task.id} {outcomes}"))
    tries, right, told_tries, told_right = evidence_arrays(evidence, len(everybody))
    family = np.array([FAMILIES.index(member.family) for member in everybody.members])
    claims = np.array([[kind in claimed for kind in KINDS] for claimed in everybody.claims], np.float32)
    prices = np.array([member.price for member in everybody.members], np.float32)
    names = tuple(member.name for member in everybody.members)
    staff = Unit(names, claims, prices, PoolKnowledge(tries, right, told_tries, told_right, family))
    return Company(item.with_crew(everybody), tuple(tuple(map(int, share)) for share in shares), staff)


def part_of(unit: Unit, rows: Sequence[int]) -> Unit:
    """Return some of those that can be pointed at."""
    at, known = list(rows), unit.known
    some = PoolKnowledge(known.tries[at], known.right[at], known.told_tries[at], known.told_right[at], known.family[at])
    return Unit(tuple(unit.names[row] for row in at), unit.claims[at], unit.prices[at], some)


def grouped(name: str, members: Unit) -> Unit:
    """Return a group as one that can be pointed at: at each kind, the outcomes of its best member by these."""
    means = (members.known.right + 0.5) / (members.known.tries + 2) - DOLLAR_WEIGHT * members.prices[:, None]
    best, kinds = means.argmax(0), np.arange(len(KINDS))
    nothing = PoolKnowledge.nothing(1, len(KINDS))
    known = replace(nothing, tries=members.known.tries[best, kinds][None], right=members.known.right[best, kinds][None])
    return Unit((name,), members.claims[best, kinds][None], members.prices[best].mean(keepdims=True), known)


def together(units: Sequence[Unit]) -> Unit:
    """Return several as one choice."""
    known = [unit.known for unit in units]
    joined = PoolKnowledge(
        np.concatenate([one.tries for one in known]), np.concatenate([one.right for one in known]),
        np.concatenate([one.told_tries for one in known]), np.concatenate([one.told_right for one in known]),
        np.concatenate([one.family for one in known]),
    )  # fmt: skip
    return Unit(
        tuple(name for unit in units for name in unit.names),
        np.concatenate([unit.claims for unit in units]),
        np.concatenate([unit.prices for unit in units]),
        joined,
    )


class PartConductor:
    """Does the one part that its task asks for, with this unit's workers: a department's conductor."""

    name = "department"

    def __init__(self, model: PointerModel, read: ReadTask, unit: Unit) -> None:
        self._model, self._read, self._unit = model, read, unit

    async def propose(self, situation: Situation) -> Proposal:
        """Plan the part as the pointer network does a task of one part."""
        at = asked_part(self._read.parts, situation.task.prompt)
        alone = PartedTask((situation.task.prompt,), ((),))
        read = ReadTask(alone, self._read.kinds[[at]], np.zeros((1, 1), np.float32), self._read.value)
        unit = self._unit
        places = [next(k for k, card in enumerate(situation.cards) if card.name == name) for name in unit.names]
        choose = self._model.plan(read, unit.claims, unit.prices, unit.known).policy()
        votes = next(k for k, card in enumerate(situation.cards) if card.kind == "vote")

        def placed(left: tuple[int, ...]) -> PartChoice:
            choice = choose(left)
            return replace(choice, workers=tuple(places[worker] for worker in choice.workers))

        return await PartsConductor(self.name, alone, placed, votes).propose(situation)


class DelegatingConductor:
    """Gives each part to one of its groups, one part a round, with the results that the part needs."""

    name = "delegating"

    def __init__(self, model: PointerModel, read: ReadTask, unit: Unit) -> None:
        self._model, self._read, self._unit = model, read, unit

    async def propose(self, situation: Situation) -> Proposal:
        """Return the next part's step; the empty plan after the last."""
        read, parts, unit = self._read, self._read.parts, self._unit
        whole = (
            situation.task.prompt
            if situation.task.prompt in parts.sentences or "Known: " in situation.task.prompt
            else None
        )
        choose = self._model.plan(read, unit.claims, unit.prices, unit.known).policy()
        if whole is not None:  # a part that a level above gave: it goes on as it is
            if situation.rounds:
                return Proposal(Plan())
            worker = choose((asked_part(parts, whole),)).workers[0]
            return Proposal(Plan((Step(whole, self._place(situation, worker)),)), final=True)
        known = dict[int, str]()
        rule, path = (
            parts.condition,
            list(parts.taken(None) if parts.condition is None else range(parts.condition.first_then)),
        )
        for turn in situation.rounds:
            result = turn.results[0]
            known[path[len(known)]] = (None if result is None else result.text) or "no result"
            if rule is not None and len(known) == rule.first_then:
                path = list(parts.taken(read_number(known[rule.on])))
        if len(known) == len(path):
            return Proposal(Plan())
        part = path[len(known)]
        stated = {each: known[each] for each in sorted(parts.needs(part)) if each in known}
        worker = choose((part,)).workers[0]
        return Proposal(Plan((Step(write_subtask(parts, (part,), known=stated), self._place(situation, worker)),)))

    def _place(self, situation: Situation, worker: int) -> int:
        return next(at for at, card in enumerate(situation.cards) if card.name == self._unit.names[worker])


def asked_part(parts: PartedTask, text: str) -> int:
    """Return the part that a subtask asks for: what it says after what is known."""
    asked = text.rpartition(" gave ")[2]
    found = [at for at, sentence in enumerate(parts.sentences) if sentence in asked]
    return found[-1] if found else next(at for at, sentence in enumerate(parts.sentences) if sentence in text)


def staffed(firm: Company, model: PointerModel, levels: int) -> tuple[Pool, Conductor]:
    """Return the pool and the conductor at the top, with so many levels (0: one that sees six workers)."""
    item, read = firm.item, perfectly_read(firm.item)
    crew = item.crew
    members = [
        Member(
            Card(member.name, card, "simulated", Price(call=member.price), max_output_tokens=32),
            SimulatedStaff(member, item.question, item.task.id, item.luck),
        )
        for member, card in zip(crew.members, crew.cards, strict=True)
    ]
    vote = Member(Card("votes", "counts votes.", "vote"), VoteWorker())
    if levels <= 1:
        rows = list(range(len(members)))
        if levels == 0:
            rows = sorted(random.Random(item.task.id).sample(rows, min(VIEW, len(rows))))
        seen = part_of(firm.staff, rows)
        choose = model.plan(read, seen.claims, seen.prices, seen.known).policy()
        return Pool([*(members[row] for row in rows), vote]), PartsConductor("flat", read.parts, choose, len(rows))
    units, groups = list[Unit](), list[Member]()
    for number, members_of in enumerate(firm.departments):
        unit = part_of(firm.staff, members_of)
        name, names = f"department-{number}", [*unit.names, "votes"]
        groups.append(Member(Card(name, kind="conductor"), ConductorWorker(PartConductor(model, read, unit), names)))
        units.append(grouped(name, unit))
    lower = list(groups)
    if levels == 3:
        divisions = list[Unit]()
        for first in range(0, len(units), GROUPS_IN_DIVISION):
            inside = together(units[first : first + GROUPS_IN_DIVISION])
            name, below = (
                f"division-{first // GROUPS_IN_DIVISION}",
                range(first, min(first + GROUPS_IN_DIVISION, len(units))),
            )
            reach = [*inside.names, *(firm.staff.names[row] for at in below for row in firm.departments[at]), "votes"]
            lower.append(
                Member(Card(name, kind="conductor"), ConductorWorker(DelegatingConductor(model, read, inside), reach))
            )
            divisions.append(grouped(name, inside))
        units = divisions
    return Pool([*members, vote, *lower]), DelegatingConductor(model, read, together(units))


async def value_of(firms: Sequence[Company], model: PointerModel, levels: int) -> tuple[Floats, Floats]:
    """Perform every question through the engine; return right and dollars by task."""
    recorder, found = MemoryRecorder(), list[tuple[float, float]]()
    engine = Engine(recorder)
    for firm in firms:
        pool, conductor = staffed(firm, model, levels)
        run = await engine.run(firm.item.task, pool, conductor, CAPS, run_id=f"{firm.item.task.id}/{levels}")
        found.append((float(firm.item.grade(run.answer)), run.charged.dollars or 0.0))
        recorder.forget(run.id)
    right, dollars = np.array(found).T
    return right, dollars


async def recursion_cells(
    model: PointerModel, seeds: Sequence[int], count: int, tasks: OfficeDistribution
) -> list[Cell]:
    """Return the cells: two and three levels against one, by departments, outcomes a worker and order."""
    found = list[Cell]()
    for departments, outcomes, is_sorted in _settings():
        firms = [
            company(index, seed, departments, outcomes, is_sorted=is_sorted, tasks=tasks)
            for seed in seeds
            for index in range(count)
        ]
        flat, few = await value_of(firms, model, 1), await value_of(firms, model, 0)
        for levels in (2, 3) if departments >= 2 * GROUPS_IN_DIVISION else (2,):
            came = await value_of(firms, model, levels)
            how = "sorted" if is_sorted else "mixed"
            name = f"{levels} levels, {how}, {outcomes} outcomes"
            for control, other in (("one level", flat), (FEW_SEEN, few)):
                title = f"conductors over conductors, {departments} departments, over {control} (value)"
                found.append(value_cell(title, name, control, came, other))
    return sorted(found, key=lambda cell: cell.dimension)


def value_cell(
    dimension: str, level: str, control: str, ours: tuple[Floats, Floats], other: tuple[Floats, Floats]
) -> Cell:
    """Return the cell of right answers and dollars next to a control's: the gain is in value."""
    (right, dollars), (control_right, control_dollars) = ours, other
    gain = right - control_right - DOLLAR_WEIGHT * (dollars - control_dollars)
    return Cell(
        dimension, level, len(right), float(right.mean()), float(dollars.mean()), control,
        float(control_right.mean()), float(control_dollars.mean() / dollars.mean()), float(gain.mean()),
        *paired_interval(gain), "read perfectly",
    )  # fmt: skip


def _settings() -> Iterator[tuple[int, int, bool]]:
    for is_sorted in (False, True):
        for outcomes in OUTCOMES:
            for departments in SIZES:
                yield departments, outcomes, is_sorted
