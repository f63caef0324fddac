"""A conductor that weighs plans by step values learned from the journal: who does each step, and in what form, or none.

`proposers` offer plans: the conductor in force first, then whatever else is to be considered (topologies, skills). Each
plan is also offered with its steps given to other workers, several steps in one call, and checks. The plan of highest
worth is performed: `worth` dollars times the chance that all its steps are right, less its dollars. `free` proposers
cost nothing to ask; where planning would bring less than it costs, the best of their plans is performed, unplanned.

On a share `explore` of the tasks workers are drawn instead, the doubtful and the good ones more often, and
where there is room a second worker does a step too, so that their agreement tells. On a share `1 - share` the conductor
in force plans alone: that is the trial which shows whether the values bring anything. Content decides both draws.

Invariants: workers outside the pool, tools, people and approvals are never assigned (1); the same task leads to the
same plan; the planner's own plan and the propensity of the one performed are in the proposal. Deliberately absent:
wording. A step's subtask stays as its proposer wrote it, next to others in one call and with standing phrases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from shikisha.conductors.plan_search import StepBlock, StepTable, block_subtask, with_blocks
from shikisha.conductors.step_redo import StepRedo
from shikisha.core.budget import format_dollars
from shikisha.core.errors import PlanError, WorkerError
from shikisha.core.plan import Plan, Step
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.learned.learned_file import LearnedFile, read_learned
from shikisha.learned.registered_file import registered_file
from shikisha.learned.step_samples import (
    DRAWN,
    PLANNED,
    PLANNED_ACCESS,
    STANDS_BY,
    planned_access,
    planned_workers,
    split_merged,
    whole_parts,
)
from shikisha.learned.step_value import STEP_VALUE, StepValue, step_value_of
from shikisha.routing.arrays import Floats

TRIAL_SHARE = 0.5
_UNIFORM = 0.3  # share of even draws in exploration
_MOST_IMPROVED = 40  # candidates with other workers that one decision looks at
_CHECK_EXPLORED = 0.3  # how often an explored plan has a check where there is room
_WHOLE_QUESTION = "Answer the question."


@dataclass(frozen=True, slots=True)
class ValueConductor:
    """Chooses among the plans of `proposers` by `model`; `forms` False: one call a step, and never a check."""

    name: str
    model: StepValue
    proposers: tuple[Conductor, ...]
    worth: float = 0.05
    explore: float = 0.0
    share: float = 1.0
    forms: bool = True
    free: tuple[Conductor, ...] = ()

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan of highest worth; the first proposer's own where the model may not be used."""
        allowed = self.model.scope.admits(situation.task.scope)
        acts = allowed and _draw(self.model.version, "acts", situation) < self.share
        explores = acts and _draw(self.model.version, "explores", situation) < self.explore
        if acts and not explores and not situation.rounds and self.forms:
            unplanned = await self._unplanned(situation)
            if unplanned is not None:
                return unplanned
        if acts and situation.rounds and self.forms:
            again = self._again(situation)
            if again is not None:
                return again
        first = await self.proposers[0].propose(situation)
        if not allowed:
            said = f"values {self.model.version} are of another tenant's runs, or have labels that the task lacks"
            return replace(first, note=_joined(first.note, said))
        if first.plan.ships or any(step.each is not None for step in first.plan.steps):
            return first  # a step that is done for each of many items has no one chance
        if not acts:
            said = _joined(first.note, f"values {self.model.version} stand by (trial)")
            return replace(first, note=said, propensity=1 - self.share, beside={**first.beside, PLANNED: STANDS_BY})
        if explores:
            return self._explored(first, situation)
        offers = [(self.proposers[0].name, first.plan), *await self._offers(self.proposers[1:], situation)]
        if self.forms:
            offers += await self._offers(self.free, situation)
        table = StepTable(self.model, situation, first.plan, [plan for _, plan in offers])
        candidates = table.as_planned(offers)
        best = max(candidates, key=lambda one: one.value(self.worth))
        # The most promising offers first: once no bound is above what was found, the rest need no look.
        order = sorted(
            zip(table.bounds(offers, self.worth, forms=self.forms), range(len(offers)), strict=True),
            key=lambda one: -one[0],
        )
        looked = len(candidates)
        for bound, at in order:
            if bound <= best.value(self.worth) and not (self.forms and self.model.check_gain):
                break
            for one in table.improved(*offers[at], self.worth, forms=self.forms):
                best = max(best, one, key=lambda one: one.value(self.worth))
                looked += 1
            if looked > len(candidates) + _MOST_IMPROVED:
                break
        said = (
            f"values {self.model.version}: {best.source} of {looked} plans, right with {best.chance:.0%}, "
            f"{format_dollars(best.dollars)}; as planned {candidates[0].chance:.0%}, "
            f"{format_dollars(candidates[0].dollars)}"
        )
        chance = self.share * (1 - self.explore)
        made = self._proposal(first, first.plan, table.build(best), said, chance if chance < 1 else None)
        if self.forms and made.final and not situation.rounds:
            redo = StepRedo(self.model, situation, self.worth, made.plan)
            made = replace(made, final=not (redo.judges and redo.expects_redo()))
        return made

    async def _unplanned(self, situation: Situation) -> Proposal | None:
        """Return the best plan of the free proposers, where planning would bring less than it costs; else None.

        What planning would bring is guessed from the task's clauses, as if each was a step.
        """
        model, prompt = self.model, situation.task.prompt
        offers = await self._offers(self.free, situation)
        if not offers or not model.planning or situation.task.context:
            return None
        clauses = whole_parts(prompt, prompt)
        guess = Plan(tuple(Step(text, 0, (at - 1,) if at else ()) for at, text in enumerate(clauses)))
        table = StepTable(model, situation, None, [guess, *(plan for _, plan in offers)])
        if not table.able:
            return None
        guess = Plan(tuple(replace(step, worker=table.able[0]) for step in guess.steps))
        planned = max(one.value(self.worth) for one in table.improved("guess", guess, self.worth, forms=True))
        candidates = [one for offer in offers for one in table.improved(*offer, self.worth, forms=True)]
        best = max(candidates, key=lambda one: one.value(self.worth))
        if best.value(self.worth) < planned - model.planning:
            return None
        said = (
            f"values {model.version}: {best.source}, not planned, right with {best.chance:.0%}, "
            f"{format_dollars(best.dollars)}"
        )
        chance = self.share * (1 - self.explore)
        nobody = Plan()
        return self._proposal(Proposal(nobody), nobody, table.build(best), said, chance if chance < 1 else None)

    def _again(self, situation: Situation) -> Proposal | None:
        """Return the round that asks a step again, or what ships; None where the proposers are to say what comes."""
        base, rounds = situation.rounds[0].plan, situation.rounds
        redo = StepRedo(self.model, situation, self.worth, base)
        last = rounds[-1].final
        done = len(rounds) > 1 or (_is_unplanned(base) and last is not None and last.ok)
        if not redo.judges:
            return Proposal(Plan()) if done and len(rounds) == 1 else None
        made = redo.decide(rounds)
        if made.plan.steps:
            said = f"values {self.model.version}: asks again, right with {made.chance:.0%}"
            return replace(self._proposal(Proposal(made.plan), base, made.plan, said, None))
        if done or redo.expects_redo():
            said = f"values {self.model.version}: ships, right with {made.chance:.0%}"
            return Proposal(Plan(), note=said, version=self.model.version, keeps=made.keeps)
        return None

    def _explored(self, first: Proposal, situation: Situation) -> Proposal:
        table = StepTable(self.model, situation, first.plan, [first.plan])
        rng = np.random.default_rng(int.from_bytes(_hash("draw", self.model.version, situation)[:8], "big"))
        plan, chance, shares = _drawn(table, first.plan, rng, forms=self.forms)
        said = f"values {self.model.version}: explores"
        drawn = self._proposal(first, first.plan, plan, said, self.share * self.explore * chance)
        return replace(drawn, beside={**drawn.beside, DRAWN: shares})

    async def _offers(self, proposers: Sequence[Conductor], situation: Situation) -> list[tuple[str, Plan]]:
        found = list[tuple[str, Plan]]()
        for one in proposers:
            try:
                plan = (await one.propose(situation)).plan
            except (PlanError, WorkerError):
                continue  # it offers nothing here; what is in force has its plan
            if not plan.ships and all(step.each is None for step in plan.steps):
                found.append((one.name, plan))
        return found

    def _proposal(self, first: Proposal, planned: Plan, plan: Plan, said: str, propensity: float | None) -> Proposal:
        beside = {**first.beside, PLANNED: planned_workers(plan, planned, self.model.phrases)}
        if len(plan.steps) < len(planned.steps):
            beside[PLANNED_ACCESS] = planned_access(planned)
        return replace(
            first,
            plan=plan,
            note=_joined(first.note, said),
            version=self.model.version,
            propensity=propensity,
            beside=beside,
        )


def value_conductor(
    name: str,
    file: Path,
    proposers: tuple[Conductor, ...],
    free: tuple[Conductor, ...],
    worth: float,
    explore: float,
    share: float | None,
) -> "ValueConductor | RegisteredValueConductor":
    """Return the conductor of a file, or of a registry's folder; ConfigError where it cannot be read.

    `share` None: values act on all tasks if the file says that a trial showed their gain, else on half.
    """
    if file.is_dir():
        return RegisteredValueConductor(name, file, proposers, free, worth, explore, share)
    learned = read_learned(file, STEP_VALUE)
    return _of_learned(name, learned, learned.short_version, proposers, free, worth, explore, share)


def _of_learned(
    name: str,
    learned: LearnedFile,
    version: str,
    proposers: tuple[Conductor, ...],
    free: tuple[Conductor, ...],
    worth: float,
    explore: float,
    share: float | None,
) -> ValueConductor:
    model = replace(step_value_of(learned, name), version=version)
    acts = share if share is not None else TRIAL_SHARE if learned.content.get("trial") is not False else 1.0
    forms = learned.content.get("forms") is not False
    return ValueConductor(name, model, proposers, worth, explore, acts, forms, free)


@dataclass(frozen=True, slots=True)
class RegisteredValueConductor:
    """Acts by the step values of a policy registry: the live ones, a canary's on its share of the tasks."""

    name: str
    folder: Path
    proposers: tuple[Conductor, ...]
    free: tuple[Conductor, ...]
    worth: float
    explore: float
    share: float | None

    async def propose(self, situation: Situation) -> Proposal:
        """Return what the values that act for this task propose; a run keeps the version that began it."""
        began = situation.rounds[0].version if situation.rounds else ""
        found = registered_file(self.folder, situation.task.content_hash, STEP_VALUE, began)
        parts = (found.learned, found.version, self.proposers, self.free, self.worth, self.explore, self.share)
        return await _of_learned(self.name, *parts).propose(situation)


def _drawn(table: StepTable, plan: Plan, rng: np.random.Generator, *, forms: bool) -> tuple[Plan, float, str]:
    """Return a plan with drawn workers, the probability of this draw, given that it explores, and each worker's."""
    chance, blocks, by_step = 1.0, list[StepBlock](), dict[tuple[str, int], float]()
    for at, step in enumerate(plan.steps):
        if step.worker not in table.able:
            blocks.append(StepBlock(at, at, step.worker))
            continue
        shares = _draw_shares(table, step.subtask)
        drawn = int(rng.choice(len(table.able), p=shares))
        unsaid = [phrase for phrase in table.model.phrases if phrase not in step.subtask]
        said = tuple(phrase for phrase in unsaid if rng.random() < 0.5)
        chance *= float(shares[drawn]) * 0.5 ** len(unsaid)
        blocks.append(StepBlock(at, at, table.able[drawn], phrases=said))
        by_step[block_subtask(plan, blocks[-1]), table.able[drawn]] = float(shares[drawn])
    able = [at for at, step in enumerate(plan.steps) if step.worker in table.able]
    if forms and len(blocks) < table.left and len(table.able) > 1 and able:
        checked = rng.random() < _CHECK_EXPLORED
        chance *= _CHECK_EXPLORED if checked else 1 - _CHECK_EXPLORED
        if checked:
            at = able[int(rng.integers(len(able)))]
            others = [worker for worker in table.able if worker != blocks[at].worker]
            blocks[at] = replace(blocks[at], checker=others[int(rng.integers(len(others)))])
            chance /= len(able) * len(others)
    made = _with_twins(table, with_blocks(plan, blocks), rng)
    likely = (by_step.get((step.subtask, step.worker)) for step in made.steps)
    return made, chance, ",".join("-" if share is None else f"{share:.4f}" for share in likely)


def _with_twins(table: StepTable, plan: Plan, rng: np.random.Generator) -> Plan:
    """Return the plan with steps done by a second worker as well, just before, as far as there is room."""
    able = [
        at for at, step in enumerate(plan.steps) if step.worker in table.able and len(split_merged(step.subtask)) == 1
    ]
    room = table.left - len(plan)
    if len(table.able) < 2 or room <= 0 or not able:
        return plan
    twinned = {able[int(at)] for at in rng.permutation(len(able))[:room]}
    steps, moved = list[Step](), dict[int, int]()
    for at, step in enumerate(plan.steps):
        here = replace(step, access=tuple(moved[seen] for seen in step.access))
        if at in twinned:
            others = [worker for worker in table.able if worker != step.worker]
            steps.append(replace(here, worker=others[int(rng.integers(len(others)))]))
        moved[at] = len(steps)
        steps.append(here)
    return Plan(tuple(steps))


def _draw_shares(table: StepTable, subtask: str) -> Floats:
    hopeful = table.hopeful(subtask)[table.able]
    shares = np.exp(hopeful - hopeful.max())
    return np.asarray((1 - _UNIFORM) * shares / shares.sum() + _UNIFORM / len(table.able))


def _is_unplanned(plan: Plan) -> bool:
    """Whether a plan gives the whole task to one worker."""
    return len(plan) == 1 and plan.steps[0].subtask.startswith(_WHOLE_QUESTION)


def _hash(word: str, version: str, situation: Situation) -> bytes:
    text = f"{word} {version} {len(situation.rounds)} {situation.task.content_hash}"
    return sha256(text.encode()).digest()


def _draw(version: str, word: str, situation: Situation) -> float:
    """Return a number from 0 to 1 that the task's content decides; the same in all rounds of a run."""
    text = f"{word} {version} {situation.task.content_hash}"
    return int.from_bytes(sha256(text.encode()).digest()[:6], "big") / 2**48


def _joined(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more
