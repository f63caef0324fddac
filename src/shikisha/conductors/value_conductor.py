"""A conductor that weighs plans by step values learned from the journal: who does each step, checked by whom, or none.

`proposers` offer plans: the conductor in force first, then whatever else is to be considered (topologies, skills). Each
plan is also offered with its steps given to other workers, and with checks. The plan of highest worth is performed:
`worth` dollars times the chance that all its steps are right, less its dollars. Later rounds go the same way; a worker
that gave no answer in this run is worth less in it.

On a share `explore` of the tasks workers are drawn instead, the doubtful and the good ones more often, and where there
is room a second worker does a step too, so that their agreement tells. On a share `1 - share` the conductor in force
plans alone: that is the trial which shows whether the values bring anything. Content decides both draws.

Invariants: workers outside the pool, tools, people and approvals are never assigned (1); the same task leads to the
same plan; the planner's own plan and the propensity of the one performed are in the proposal. Deliberately absent:
wording. A step's subtask stays as its proposer wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from pathlib import Path

import numpy as np

from shikisha.conductors.topologies import VOTE
from shikisha.core.budget import Usage, format_dollars
from shikisha.core.errors import PlanError, WorkerError
from shikisha.core.plan import Plan, Step
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.learned.learned_file import LearnedFile, read_learned
from shikisha.learned.registered_file import registered_file
from shikisha.learned.step_samples import DRAWN, PLANNED, STANDS_BY, check_subtask, planned_workers, step_text
from shikisha.learned.step_value import STEP_VALUE, StepValue, check_chance, step_value_of
from shikisha.routing.arrays import Floats

_NON_TEXT = frozenset({VOTE, "human", "http", "local", "mcp", "python", "tool", "conductor"})
_TYPICAL = Usage(300, 60)
TRIAL_SHARE = 0.5
_MOST_IMPROVED = 40  # offers whose steps are given to other workers; all are weighed as they are
_SWEEPS = 3
_CHECK_SHARE = 0.5  # of a call's price that a check is taken to cost
_SILENT = 0.2  # what is left of the chance of a worker that gave no answer in this run
_UNIFORM = 0.3  # share of even draws in exploration
_LEAST_HELP = 0.05  # of a phrase, added to a logit
_CHECK_EXPLORED = 0.3  # how often an explored plan has a check where there is room


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A proposed plan with who does its steps, its chance to be right, its dollars, and who proposed it in what form.

    The plan itself is built for the best candidate alone.
    """

    proposed: Plan
    choices: "tuple[_Choice, ...]"
    chance: float
    dollars: float
    source: str
    helped: bool


@dataclass(frozen=True, slots=True)
class ValueConductor:
    """Chooses among the plans of `proposers` by `model`; `forms` False: never adds a check."""

    name: str
    model: StepValue
    proposers: tuple[Conductor, ...]
    worth: float = 0.05
    explore: float = 0.0
    share: float = 1.0
    forms: bool = True

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan of highest worth; the first proposer's own where the model may not be used."""
        first = await self.proposers[0].propose(situation)
        allowed = set(self.model.labels) <= set(situation.task.labels)
        if first.plan.ships or not allowed or any(step.each is not None for step in first.plan.steps):
            return first  # a step that is done for each of many items has no one chance
        acts = _draw(self.model.version, "acts", situation) < self.share
        if not acts:
            said = _joined(first.note, f"values {self.model.version} stand by (trial)")
            return replace(first, note=said, propensity=1 - self.share, beside={**first.beside, PLANNED: STANDS_BY})
        offers: list[tuple[str, Plan]] = [(self.proposers[0].name, first.plan), *await self._others(situation)]
        table = _StepTable(self.model, situation, first.plan)
        if _draw(self.model.version, "explores", situation) < self.explore:
            plan, chance = table.drawn(first.plan, self.forms)
            said = f"values {self.model.version}: explores"
            drawn = self._proposal(first, plan, said, self.share * self.explore * chance)
            return replace(drawn, beside={**drawn.beside, DRAWN: "workers, phrases, checks"})
        candidates = [table.as_planned(name, plan) for name, plan in offers]
        for name, plan in table.most_promising(offers, self.worth):
            candidates += table.improved(name, plan, self.worth, forms=self.forms)
        best = max(candidates, key=lambda one: self.worth * one.chance - one.dollars)
        said = (
            f"values {self.model.version}: {best.source} of {len(candidates)} plans, right with {best.chance:.0%}, "
            f"{format_dollars(best.dollars)}; as planned {candidates[0].chance:.0%}, "
            f"{format_dollars(candidates[0].dollars)}"
        )
        chance = self.share * (1 - self.explore)
        return self._proposal(first, table.build(best), said, chance if chance < 1 else None)

    async def _others(self, situation: Situation) -> list[tuple[str, Plan]]:
        found = list[tuple[str, Plan]]()
        for one in self.proposers[1:]:
            try:
                plan = (await one.propose(situation)).plan
            except (PlanError, WorkerError):
                continue  # it offers nothing here; what is in force has its plan
            if not plan.ships and all(step.each is None for step in plan.steps):
                found.append((one.name, plan))
        return found

    def _proposal(self, first: Proposal, plan: Plan, said: str, propensity: float | None) -> Proposal:
        return replace(
            first,
            plan=plan,
            note=_joined(first.note, said),
            version=self.model.version,
            propensity=propensity,
            beside={**first.beside, PLANNED: planned_workers(plan, first.plan, self.model.phrases)},
        )


def value_conductor(
    name: str, file: Path, proposers: tuple[Conductor, ...], worth: float, explore: float, share: float | None
) -> "ValueConductor | RegisteredValueConductor":
    """Return the conductor of a file, or of a registry's folder; ConfigError where it cannot be read.

    `share` None: values act on all tasks if the file says that a trial showed their gain, else on half.
    """
    if file.is_dir():
        return RegisteredValueConductor(name, file, proposers, worth, explore, share)
    learned = read_learned(file, STEP_VALUE)
    return _of_learned(name, learned, learned.short_version, proposers, worth, explore, share)


def _of_learned(
    name: str,
    learned: LearnedFile,
    version: str,
    proposers: tuple[Conductor, ...],
    worth: float,
    explore: float,
    share: float | None,
) -> ValueConductor:
    model = replace(step_value_of(learned, name), version=version)
    acts = share if share is not None else TRIAL_SHARE if learned.content.get("trial") is not False else 1.0
    return ValueConductor(name, model, proposers, worth, explore, acts, learned.content.get("forms") is not False)


@dataclass(frozen=True, slots=True)
class RegisteredValueConductor:
    """Acts by the step values of a policy registry: the live ones, a canary's on its share of the tasks."""

    name: str
    folder: Path
    proposers: tuple[Conductor, ...]
    worth: float
    explore: float
    share: float | None

    async def propose(self, situation: Situation) -> Proposal:
        """Return what the values that act for this task propose; a run keeps the version that began it."""
        began = situation.rounds[0].version if situation.rounds else ""
        found = registered_file(self.folder, situation.task.content_hash, STEP_VALUE, began)
        parts = (found.learned, found.version, self.proposers, self.worth, self.explore, self.share)
        return await _of_learned(self.name, *parts).propose(situation)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Who does a step, who checks it (None: nobody), and which phrases are added to its subtask."""

    worker: int
    checker: int | None = None
    phrases: tuple[str, ...] = ()


class _StepTable:
    """Chances and prices of all workers at all subtasks that come up in one decision; each text is read once."""

    def __init__(self, model: StepValue, situation: Situation, planned: Plan) -> None:
        self.model, self.situation = model, situation
        self.names = [card.name for card in situation.cards]
        self.able = [place for place, card in enumerate(situation.cards) if is_assignable(card)]
        self.prices = [call_price(model, card) for card in situation.cards]
        self.planned = {(step.subtask, step.worker) for step in planned.steps}
        self.left = min(situation.left.plan_steps, situation.left.steps)
        self.added = model.phrase_weights(self.names)
        silent = silent_workers(situation)
        self.trust = np.array([_SILENT if name in silent else 1.0 for name in self.names])
        self.paid = np.array(self.prices)[self.able]
        self._logits = dict[str, tuple[Floats, Floats]]()
        self._known = dict[tuple[str, bool], Floats]()
        self._best = dict[str, float]()
        self.least = float(self.paid.min(initial=np.inf)) if len(self.able) else 0.0

    def as_planned(self, name: str, plan: Plan) -> PlanCandidate:
        """Return a plan as it is."""
        own = [_Choice(step.worker) for step in plan.steps]
        return self._candidate(f"{name} as planned", plan, own, helped=False)

    def most_promising(self, offers: Sequence[tuple[str, Plan]], worth: float) -> list[tuple[str, Plan]]:
        """Return the first offer, and of the others those whose steps could be worth most with the best workers."""
        if len(offers) <= _MOST_IMPROVED:
            return list(offers)

        def bound(offer: tuple[str, Plan]) -> float:
            able = [step for step in offer[1].steps if step.worker in self.able]
            return worth * prod(self._best_chance(step.subtask) for step in able) - self.least * len(able)

        return [offers[0], *sorted(offers[1:], key=bound, reverse=True)[: _MOST_IMPROVED - 1]]

    def _best_chance(self, subtask: str) -> float:
        if subtask not in self._best:
            self._best[subtask] = float(self._chances(subtask, helped=True)[self.able].max(initial=0.0))
        return self._best[subtask]

    def improved(self, name: str, plan: Plan, worth: float, *, forms: bool) -> list[PlanCandidate]:
        """Return a plan with its steps given to the best workers, and with checks where they pay."""
        best = self._ascend(plan, [_Choice(step.worker) for step in plan.steps], worth, checks=False)
        found = [self._candidate(f"{name} with other workers", plan, best, helped=True)]
        if forms and self.model.check_gain and len(plan) < self.left:
            checked = self._ascend(plan, best, worth, checks=True)
            found.append(self._candidate(f"{name} with checks", plan, checked, helped=True))
        return found

    def drawn(self, plan: Plan, forms: bool) -> tuple[Plan, float]:
        """Return a plan with drawn workers and the probability of this draw, given that it explores."""
        rng = np.random.default_rng(int.from_bytes(_hash("draw", self.model.version, self.situation)[:8], "big"))
        chance, choices = 1.0, list[_Choice]()
        for step in plan.steps:
            if step.worker not in self.able:
                choices.append(_Choice(step.worker))
                continue
            shares = self._draw_shares(step)
            at = int(rng.choice(len(self.able), p=shares))
            chance *= float(shares[at])
            said = [phrase for phrase in self.model.phrases if phrase not in step.subtask and rng.random() < 0.5]
            chance *= 0.5 ** sum(phrase not in step.subtask for phrase in self.model.phrases)
            choices.append(_Choice(self.able[at], phrases=tuple(said)))
        roomy = forms and len(plan) < self.left and len(self.able) > 1
        able = [at for at, step in enumerate(plan.steps) if step.worker in self.able]
        if roomy and able and rng.random() < _CHECK_EXPLORED:
            at = able[int(rng.integers(len(able)))]
            others = [worker for worker in self.able if worker != choices[at].worker]
            choices[at] = replace(choices[at], checker=others[int(rng.integers(len(others)))])
            chance *= _CHECK_EXPLORED / len(able) / len(others)
        elif roomy and able:
            chance *= 1 - _CHECK_EXPLORED
        drawn = with_choices(plan, choices)
        return self._with_twins(drawn, rng), chance

    def _with_twins(self, plan: Plan, rng: np.random.Generator) -> Plan:
        """Return the plan with steps done by a second worker as well, just before, as far as there is room."""
        able = [at for at, step in enumerate(plan.steps) if step.worker in self.able]
        room = self.left - len(plan)
        if len(self.able) < 2 or room <= 0 or not able:
            return plan
        twinned = {able[int(at)] for at in rng.permutation(len(able))[:room]}
        steps, moved = list[Step](), dict[int, int]()
        for at, step in enumerate(plan.steps):
            here = replace(step, access=tuple(moved[seen] for seen in step.access))
            if at in twinned:
                others = [worker for worker in self.able if worker != step.worker]
                steps.append(replace(here, worker=others[int(rng.integers(len(others)))]))
            moved[at] = len(steps)
            steps.append(here)
        return Plan(tuple(steps))

    def _draw_shares(self, step: Step) -> Floats:
        means, spread = self._read(step.subtask)
        hopeful = np.array([means[at] + np.sqrt(spread[at]) for at in self.able])
        shares = np.exp(hopeful - hopeful.max())
        return np.asarray((1 - _UNIFORM) * shares / shares.sum() + _UNIFORM / len(self.able))

    def _read(self, subtask: str) -> tuple[Floats, Floats]:
        """Return mean and variance of each worker's logit at a subtask."""
        if subtask not in self._logits:
            text = step_text(subtask, self.situation.task.prompt)
            chosen = np.array([[float((subtask, at) in self.planned) for at in range(len(self.names))]])
            means, spread = self.model.logits([text], self.names, chosen)
            self._logits[subtask] = (means[0], spread[0])
        return self._logits[subtask]

    def helpful(self, subtask: str, worker: int) -> tuple[str, ...]:
        """Return the phrases that are not in a subtask and were seen to help this worker."""
        weights = zip(self.model.phrases, self.added[worker], strict=True)
        return tuple(phrase for phrase, weight in weights if weight > _LEAST_HELP and phrase not in subtask)

    def _chances(self, subtask: str, *, helped: bool) -> Floats:
        """Return each worker's chance at a subtask; `helped`: with the phrases that help it."""
        key = (subtask, helped)
        if key not in self._known:
            self._known[key] = self._count_chances(subtask, helped=helped)
        return self._known[key]

    def _count_chances(self, subtask: str, *, helped: bool) -> Floats:
        means, spread = self._read(subtask)
        if helped and self.model.phrases:
            absent = [phrase not in subtask for phrase in self.model.phrases]
            means = means + np.where((self.added > _LEAST_HELP) & absent, self.added, 0.0).sum(axis=1)
        chances = 1 / (1 + np.exp(-means / np.sqrt(1 + np.pi / 8 * spread)))
        return np.asarray(chances * self.trust)

    def _step_chance(self, chances: Floats, choice: _Choice, *, worker_is_able: bool) -> float:
        if not worker_is_able:
            return 1.0  # a counter of votes, a tool: its part is in the steps that it sees
        first = float(chances[choice.worker])
        return (
            first
            if choice.checker is None
            else float(check_chance(first, float(chances[choice.checker]), self.model.check_gain))
        )

    def _step_price(self, choice: _Choice) -> float:
        return self.prices[choice.worker] + (
            0.0 if choice.checker is None else _CHECK_SHARE * self.prices[choice.checker]
        )

    def _candidate(self, source: str, plan: Plan, choices: Sequence[_Choice], *, helped: bool) -> PlanCandidate:
        chance = prod(
            self._step_chance(
                self._chances(step.subtask, helped=helped), choice, worker_is_able=step.worker in self.able
            )
            for step, choice in zip(plan.steps, choices, strict=True)
        )
        dollars = sum(map(self._step_price, choices))
        return PlanCandidate(plan, tuple(choices), chance, dollars, source, helped)

    def build(self, one: PlanCandidate) -> Plan:
        """Return a candidate's plan, with the phrases that help its workers."""
        if not one.helped:
            return with_choices(one.proposed, one.choices)
        told = [
            replace(choice, phrases=self.helpful(step.subtask, choice.worker)) if step.worker in self.able else choice
            for choice, step in zip(one.choices, one.proposed.steps, strict=True)
        ]
        return with_choices(one.proposed, told)

    def _best_check(self, chances: Floats, worth: float, plain: _Choice) -> _Choice:
        """Return the best worker and checker, or the plain choice where no check pays."""

        def value(one: _Choice) -> float:
            return worth * self._step_chance(chances, one, worker_is_able=True) - self._step_price(one)

        pairs = [_Choice(worker, other) for worker in self.able for other in self.able if other != worker]
        return max([plain, *pairs], key=value)

    def _ascend(self, plan: Plan, start: Sequence[_Choice], worth: float, *, checks: bool) -> list[_Choice]:
        """Return choices of which no single change is better, from these on."""
        choices = list(start)
        tables = [self._chances(step.subtask, helped=True) for step in plan.steps]
        each = [
            self._step_chance(tables[at], choices[at], worker_is_able=step.worker in self.able)
            for at, step in enumerate(plan.steps)
        ]
        for _ in range(_SWEEPS):
            before = list(choices)
            for at, step in enumerate(plan.steps):
                if step.worker not in self.able:
                    continue
                rest = prod(each[:at]) * prod(each[at + 1 :])
                room = (
                    self.left
                    - len(plan)
                    - sum(one.checker is not None for one in choices)
                    + (choices[at].checker is not None)
                )
                best = _Choice(self.able[int(np.argmax(worth * rest * tables[at][self.able] - self.paid))])
                if checks and room > 0:
                    best = self._best_check(tables[at], worth * rest, best)
                choices[at], each[at] = best, self._step_chance(tables[at], best, worker_is_able=True)
            if choices == before:
                break
        return choices


def with_choices(plan: Plan, choices: Sequence[_Choice]) -> Plan:
    """Return the plan with these workers and checks; who saw a checked step's result sees its check's instead."""
    steps, gives = list[Step](), dict[int, int]()
    for at, (step, choice) in enumerate(zip(plan.steps, choices, strict=True)):
        access = tuple(sorted(gives[seen] for seen in step.access))
        subtask = " ".join([step.subtask, *choice.phrases])
        steps.append(Step(subtask, choice.worker, access))
        if choice.checker is not None:
            seen = tuple(sorted({*access, len(steps) - 1}))
            steps.append(Step(check_subtask(subtask), choice.checker, seen))
        gives[at] = len(steps) - 1
    return Plan(tuple(steps))


def is_assignable(card: Card) -> bool:
    """Whether a learned conductor may give this worker a step that it was not planned for."""
    return card.kind not in _NON_TEXT and card.approval is ApprovalMode.NEVER


def call_price(model: StepValue, card: Card) -> float:
    """Return the expected dollars of a call: what calls did cost, else what a typical one costs by its price."""
    paid = model.price(card.name)
    if paid is not None:
        return paid
    return 0.0 if card.price is None else card.price.of(_TYPICAL)


def silent_workers(situation: Situation) -> frozenset[str]:
    """Return the workers that gave no answer, or failed a check, earlier in this run."""
    return frozenset(
        result.worker
        for turn in situation.rounds
        for result in turn.results
        if not result.ok or any(verdict.status == "fail" for verdict in result.verdicts)
    )


def _hash(word: str, version: str, situation: Situation) -> bytes:
    text = f"{word} {version} {len(situation.rounds)} {situation.task.content_hash}"
    return sha256(text.encode()).digest()


def _draw(version: str, word: str, situation: Situation) -> float:
    """Return a number from 0 to 1 that the task's content decides; the same in all rounds of a run."""
    text = f"{word} {version} {situation.task.content_hash}"
    return int.from_bytes(sha256(text.encode()).digest()[:6], "big") / 2**48


def _joined(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more
