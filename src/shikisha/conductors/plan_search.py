"""The best way to perform proposed plans by step values: who does which step, which steps share a call, who checks.

A plan is cut into blocks: consecutive steps that one call does, where nothing else needs what is between them. For each
cut and each assignment of workers a model says how likely all is right, and what it costs. The search keeps, step by
step, what is not beaten in both; so its best plan without checks is the best there is. Checks are added one by one.

Invariants: workers that may not be assigned keep their steps, alone; a table reads each text once. Deliberately absent:
who proposes, and draws (`value_conductor`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np

from shikisha.conductors.topologies import VOTE
from shikisha.core.budget import Usage
from shikisha.core.plan import Plan, Step
from shikisha.engine.conductor import Situation
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.learned.step_samples import check_subtask, merge_subtasks, split_merged, whole_parts
from shikisha.learned.step_value import StepValue, check_chance
from shikisha.routing.arrays import Floats

_NON_TEXT = frozenset({VOTE, "human", "http", "local", "mcp", "python", "tool", "conductor"})
_TYPICAL = Usage(300, 60)
_SWEEPS = 3
_CHECK_SHARE = 0.5  # of a call's price that a check is taken to cost
_SILENT = 0.2  # what is left of the chance of a worker that gave no answer in this run
_LEAST_HELP = 0.05  # of a phrase, added to a logit
_LONGEST_MERGED = 4_000  # characters of a merged subtask
_Option: TypeAlias = tuple[float, float, int]  # dollars, chance, worker
_Reached: TypeAlias = tuple[float, float, int, int, int]  # dollars, chance, start of the block, place before, worker

_Way = TypeVar("_Way", _Option, _Reached)


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps `first` to `last` of a proposed plan in one call: by whom, checked by whom, and with which phrases."""

    first: int
    last: int
    worker: int
    checker: int | None = None
    phrases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A proposed plan and how it is to be performed, its chance to be right, its dollars, and who proposed it.

    The plan itself is built for the best candidate alone. Without blocks, it is performed as it was proposed.
    """

    proposed: Plan
    blocks: tuple[StepBlock, ...]
    chance: float
    dollars: float
    source: str

    def value(self, worth: float) -> float:
        """Return what it is worth where a right answer is worth so many dollars."""
        return worth * self.chance - self.dollars


class StepTable:
    """Chances and prices of all workers at all subtasks of some plans; texts are read together, each once."""

    def __init__(self, model: StepValue, situation: Situation, planned: Plan | None, plans: Iterable[Plan]) -> None:
        self.model, self.situation = model, situation
        self.names = [card.name for card in situation.cards]
        self.able = [place for place, card in enumerate(situation.cards) if is_assignable(card)]
        self._is_able = [place in set(self.able) for place in range(len(self.names))]
        self.prices = [call_price(model, card) for card in situation.cards]
        self.left = min(situation.left.plan_steps, situation.left.steps)
        self._added = model.phrase_weights(self.names)
        silent = silent_workers(situation)
        self._trust = np.array([_SILENT if name in silent else 1.0 for name in self.names])
        self._least = min((self.prices[at] for at in self.able), default=0.0)
        self._options = dict[tuple[tuple[str, ...], bool], list[_Option]]()
        self._read({} if planned is None else {(step.subtask, step.worker) for step in planned.steps}, plans)

    def _read(self, planned: Iterable[tuple[str, int]], plans: Iterable[Plan]) -> None:
        prompt = self.situation.task.prompt
        self._rows = dict[str, tuple[int, ...]]()
        texts, owners = list[str](), list[str]()
        for plan in plans:
            for step in plan.steps:
                if step.subtask not in self._rows:
                    parts = [one for part in split_merged(step.subtask) for one in whole_parts(part, prompt)]
                    self._rows[step.subtask] = tuple(range(len(texts), len(texts) + len(parts)))
                    texts += parts
                    owners += [step.subtask] * len(parts)
        chosen = np.zeros((len(texts), len(self.names)))
        for subtask, worker in planned:
            chosen[list(self._rows.get(subtask, ())), worker] = 1.0
        self._means, self._spread = self.model.logits(texts, self.names, chosen)
        absent = np.array([[phrase not in owner for phrase in self.model.phrases] for owner in owners])
        helps = np.where(self._added > _LEAST_HELP, self._added, 0.0)
        self._helps = absent.reshape(len(texts), len(self.model.phrases)) @ helps.T
        self._merged = self.model.merged_weights(self.names)
        self._tables = dict[tuple[int, bool], Floats]()

    def _chances(self, together: int, *, helped: bool) -> Floats:
        """Return each worker's chance at each text where its call does so many, shape (texts, workers)."""
        key = (together, helped)
        if key not in self._tables:
            means = self._means + (together - 1) / together * self._merged
            if helped:
                means = means + self._helps / together
            chances = 1 / (1 + np.exp(-means / np.sqrt(1 + np.pi / 8 * self._spread)))
            self._tables[key] = chances * self._trust ** (1 / together)
        return self._tables[key]

    def hopeful(self, subtask: str) -> Floats:
        """Return each worker's logit at a subtask, one deviation above the mean."""
        rows = list(self._rows[subtask])
        return np.asarray((self._means[rows] + np.sqrt(self._spread[rows])).mean(axis=0))

    def _rows_of(self, subtasks: Iterable[str]) -> list[int]:
        return [row for subtask in subtasks for row in self._rows[subtask]]

    def worker_chances(self, subtasks: Sequence[str], *, helped: bool) -> Floats:
        """Return each worker's chance to do all of these right in one call."""
        rows = self._rows_of(subtasks)
        return np.asarray(np.prod(self._chances(len(rows), helped=helped)[rows], axis=0))

    def price(self, worker: int, subtasks: int) -> float:
        """Return the dollars of a call that does so many subtasks."""
        return self.prices[worker] * (1 + self.model.merged_price * (subtasks - 1))

    def as_planned(self, offers: Sequence[tuple[str, Plan]]) -> list[PlanCandidate]:
        """Return plans as they are."""
        alone = self._chances(1, helped=False).tolist()
        found = []
        for name, plan in offers:
            chance, dollars = 1.0, 0.0
            for step in plan.steps:
                dollars += self.prices[step.worker]
                if not self._is_able[step.worker]:
                    continue  # a counter of votes, a tool: its part is in the steps that it sees
                rows = self._rows[step.subtask]
                if len(rows) == 1:
                    chance *= alone[rows[0]][step.worker]
                else:
                    chance *= float(self.worker_chances((step.subtask,), helped=False)[step.worker])
            found.append(PlanCandidate(plan, (), chance, dollars, f"{name} as planned"))
        return found

    def bounds(self, offers: Sequence[tuple[str, Plan]], worth: float, *, forms: bool) -> list[float]:
        """Return what no way to perform each plan, without checks, can be worth more than."""
        most = max((len(plan) for _, plan in offers), default=1) if forms else 1
        tables = [self._chances(count, helped=True)[:, self.able] for count in {1, most}]
        best = np.maximum.reduce([table.max(axis=1, initial=0.0) for table in tables]).tolist()
        found = []
        for _, plan in offers:
            chance, calls = 1.0, 0
            for step in plan.steps:
                if self._is_able[step.worker]:
                    calls += 1
                    for row in self._rows[step.subtask]:
                        chance *= best[row]
            found.append(worth * chance - self._least * (min(calls, 1) if forms else calls))
        return found

    def improved(self, name: str, plan: Plan, worth: float, *, forms: bool) -> list[PlanCandidate]:
        """Return a plan with the best workers and, with `forms`, the best cut into calls, and checks where they pay."""
        best, chance, dollars = self._search(plan, worth, merges=forms)
        found = [PlanCandidate(plan, tuple(best), chance, dollars, f"{name} with other workers")]
        if forms and self.model.check_gain and len(best) < self.left:
            found.append(self._candidate(f"{name} with checks", plan, self._with_checks(plan, best, worth)))
        return found

    def _search(self, plan: Plan, worth: float, *, merges: bool) -> tuple[list[StepBlock], float, float]:
        """Return the cut and the workers of highest worth, its chance and its dollars.

        At each step, what is not beaten in both is kept.
        """
        reached: list[list[_Reached]] = [[(0.0, 1.0, 0, 0, 0)]]
        for end in range(1, len(plan) + 1):
            ways = [
                (dollars + paid, chance * likely, start, place, worker)
                for start in (range(end) if merges else (end - 1,))
                if start == end - 1 or self.is_mergeable(plan, start, end)
                for paid, likely, worker in self._block_options(plan, start, end)
                for place, (dollars, chance, *_) in enumerate(reached[start])
            ]
            reached.append(_unbeaten(ways))
        last = best = max(reached[-1], key=lambda way: worth * way[1] - way[0])
        blocks, end = list[StepBlock](), len(plan)
        while end:
            _, _, start, place, worker = last
            blocks.append(StepBlock(start, end - 1, worker))
            end, last = start, reached[start][place]
        return blocks[::-1], best[1], best[0]

    def _block_options(self, plan: Plan, start: int, end: int) -> list[_Option]:
        """Return whom a block may be given to: who is not beaten in chance and dollars."""
        step = plan.steps[start]
        if not self._is_able[step.worker]:
            return [(self.prices[step.worker], 1.0, step.worker)]
        key = (tuple(one.subtask for one in plan.steps[start:end]), True)
        if key not in self._options:
            chances = self.worker_chances(key[0], helped=True).tolist()
            self._options[key] = _unbeaten([(self.price(at, end - start), chances[at], at) for at in self.able])
        return self._options[key]

    def is_mergeable(self, plan: Plan, start: int, end: int) -> bool:
        """Whether one call can do these steps: nothing else needs what is between them, and nothing is left unused."""
        steps = plan.steps
        if any(not self._is_able[step.worker] or step.each is not None for step in steps[start:end]):
            return False
        if sum(len(step.subtask) for step in steps[start:end]) > _LONGEST_MERGED:
            return False
        inner = set(range(start, end - 1))
        within = {seen for step in steps[start:end] for seen in step.access}
        return inner <= within and not any(inner & set(step.access) for step in steps[end:])

    def _chance_of(self, plan: Plan, block: StepBlock) -> float:
        steps = plan.steps[block.first : block.last + 1]
        if not self._is_able[steps[0].worker]:
            return 1.0
        chances = self.worker_chances([step.subtask for step in steps], helped=True)
        first = float(chances[block.worker])
        if block.checker is None:
            return first
        return float(check_chance(first, float(chances[block.checker]), self.model.check_gain))

    def _price_of(self, block: StepBlock) -> float:
        check = 0.0 if block.checker is None else _CHECK_SHARE * self.prices[block.checker]
        return self.price(block.worker, block.last - block.first + 1) + check

    def _candidate(self, source: str, plan: Plan, blocks: Sequence[StepBlock]) -> PlanCandidate:
        chance = prod(self._chance_of(plan, block) for block in blocks)
        return PlanCandidate(plan, tuple(blocks), chance, sum(map(self._price_of, blocks)), source)

    def _with_checks(self, plan: Plan, blocks: Sequence[StepBlock], worth: float) -> list[StepBlock]:
        """Return the blocks with checks of single steps, from these on until no single change is better."""
        found = list(blocks)
        each = [self._chance_of(plan, block) for block in found]
        for _ in range(_SWEEPS):
            before = list(found)
            for at, block in enumerate(found):
                step = plan.steps[block.first]
                room = self.left - len(found) - sum(one.checker is not None for one in found if one is not block)
                many = block.first < block.last or len(self._rows[step.subtask]) > 1
                if many or not self._is_able[step.worker] or room <= 0:
                    continue
                rest = worth * prod(each[:at]) * prod(each[at + 1 :])
                found[at] = self._best_check(block, self.worker_chances((step.subtask,), helped=True).tolist(), rest)
                each[at] = self._chance_of(plan, found[at])
            if found == before:
                break
        return found

    def _best_check(self, block: StepBlock, chances: Sequence[float], worth: float) -> StepBlock:
        """Return the block by the best worker, checked by another where that pays."""
        gain, at = self.model.check_gain, block.first

        def value(one: StepBlock) -> float:
            first = chances[one.worker]
            chance = first if one.checker is None else float(check_chance(first, chances[one.checker], gain))
            return worth * chance - self._price_of(one)

        plain = [StepBlock(at, at, worker) for worker in self.able]
        pairs = [StepBlock(at, at, one, other) for one in self.able for other in self.able if other != one]
        return max([*plain, *pairs], key=value)

    def helpful(self, subtask: str, worker: int) -> tuple[str, ...]:
        """Return the phrases that are not in a subtask and were seen to help this worker."""
        weights = zip(self.model.phrases, self._added[worker], strict=True)
        return tuple(phrase for phrase, weight in weights if weight > _LEAST_HELP and phrase not in subtask)

    def build(self, one: PlanCandidate) -> Plan:
        """Return a candidate's plan, with the phrases that help its workers."""
        if not one.blocks:
            return one.proposed
        blocks = list(one.blocks)
        for at, block in enumerate(blocks):
            if self._is_able[one.proposed.steps[block.first].worker]:
                phrases = self.helpful(block_subtask(one.proposed, block), block.worker)
                blocks[at] = replace(block, phrases=phrases)
        return with_blocks(one.proposed, blocks)


def _unbeaten(ways: Iterable[_Way]) -> list[_Way]:
    """Return the ways of which none is both as cheap and as likely right as another, cheapest first."""
    kept, best = list[_Way](), -1.0
    for way in sorted(ways, key=lambda way: (way[0], -way[1])):
        if way[1] > best:
            kept.append(way)
            best = way[1]
    return kept


def block_subtask(plan: Plan, block: StepBlock) -> str:
    """Return what a block's worker is asked."""
    subtasks = [step.subtask for step in plan.steps[block.first : block.last + 1]]
    return " ".join([merge_subtasks(subtasks), *block.phrases])


def with_blocks(plan: Plan, blocks: Sequence[StepBlock]) -> Plan:
    """Return the plan cut so; who saw a checked step's result sees its check's instead."""
    steps, gives = list[Step](), dict[int, int]()
    for block in blocks:
        own = range(block.first, block.last + 1)
        seen = {at for place in own for at in plan.steps[place].access if at < block.first}
        access = tuple(sorted({gives[at] for at in seen}))
        subtask = block_subtask(plan, block)
        steps.append(Step(subtask, block.worker, access))
        if block.checker is not None:
            steps.append(Step(check_subtask(subtask), block.checker, tuple(sorted({*access, len(steps) - 1}))))
        gives |= dict.fromkeys(own, len(steps) - 1)
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
