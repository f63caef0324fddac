"""The best way to perform a proposed plan by an outcome model: who does which step, told what, joined, checked.

A plan is cut into blocks: consecutive steps that one call does, where nothing else needs what is between them. Each
block has a worker and, where it is one step, perhaps a checker. The search keeps, step by step, the ways on the hull of
chance and dollars, so that what it returns is the best of all cuts and assignments by the model. A worker is told the
standing phrases that help it by the model: as their weights add up, that is known without a search.

Invariants: workers that may not be assigned keep their steps, alone; a table reads each text once. Deliberately absent:
who proposes, and what is explored (`learned_conductor`).
"""

from collections.abc import Iterable

import numpy as np

from shikisha.conductors.topologies import VOTE
from shikisha.core.budget import Usage
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import CHECK_OPENING
from shikisha.engine.conductor import Situation
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.learned.outcome_model import TOLD, OutcomeModel
from shikisha.learned.step_evidence import MERGED, core_wording, split_phrases
from shikisha.routing.arrays import Floats

# Tools, people and runs are called for what they do, and agents for their tools, which may write.
_KEPT_KINDS = frozenset({VOTE, "human", "http", "local", "mcp", "python", "tool", "conductor", "agent", "a2a", "tests"})
_TYPICAL = Usage(300, 60)
_SILENT = 0.2  # what is left of the chance of a worker that gave no answer in this run
_LONGEST_JOINED = 4_000  # characters of the subtask of a call that does several
_MOST_CHECKED = 4  # workers that a check is considered of and by
_MOST_WAYS = 24  # ways kept at a step


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps `first` to `last` of a proposed plan in one call: by whom, and checked by whom."""

    first: int
    last: int
    worker: int
    checker: int | None = None


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """How a plan is to be performed, its chance to be right, and its dollars."""

    blocks: tuple[StepBlock, ...]
    chance: float
    dollars: float

    def summary(self) -> str:
        """Return it as `2,0+1/3`: who does each step, `+` within one call, and after `/` who checks."""
        return ",".join(
            "+".join([str(one.worker)] * (one.last - one.first + 1))
            + ("" if one.checker is None else f"/{one.checker}")
            for one in self.blocks
        )


class StepTable:
    """What a model says of all workers at all steps of a plan."""

    def __init__(self, model: OutcomeModel, situation: Situation, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.names = [card.name for card in situation.cards]
        cards = situation.cards
        needed = {label for card in cards for label in card.sees}.intersection(situation.task.labels)
        self.able = [at for at, card in enumerate(cards) if is_assignable(card) and needed <= {*card.sees}]
        self.prices = [call_price(model, card) for card in situation.cards]
        self.room = min(situation.left.plan_steps, situation.left.steps)
        self._prompt = situation.task.prompt
        self._x = model.reader.read(
            [core_wording(step.subtask, self._prompt, model.phrases) for step in plan.steps],
            [step.kind for step in plan.steps],
        )
        silent = silent_workers(situation)
        self._trust = np.array([_SILENT if name in silent else 1.0 for name in self.names])
        self.sample(None)

    def sample(self, draw: np.random.Generator | None) -> None:
        """Take the mean weights, or draw them."""
        model, count = self.model, len(self.model.phrases)
        self.finds = model.finds if draw is None else float(draw.beta(*model.finds_counts))
        weights = model.weights(self.names, draw, self.prices)
        helps = weights[:, TOLD : TOLD + count]
        self._helps = helps > 0
        logits = weights[:, 0] + self._x @ weights[:, TOLD + count :].T + np.abs(helps).sum(axis=1) / 2
        planned = np.array([[step.worker == at for at in range(len(self.names))] for step in self.plan.steps])
        logits = logits + planned * weights[:, 1]
        self.chances = _logistic(logits) * self._trust
        self._joined = _logistic(logits + weights[:, 2]) * self._trust

    def told(self, worker: int, subtask: str) -> str:
        """Return a subtask with the phrases that help this worker."""
        phrases = zip(self.model.phrases, self._helps[worker], strict=True)
        return " ".join([subtask, *(phrase for phrase, helps in phrases if helps and phrase not in subtask)])

    def as_planned(self) -> PlanChoice:
        """Return the plan with its own workers, each step a call."""
        steps = self.plan.steps
        chances = [self.chances[at][step.worker] if step.worker in self.able else 1.0 for at, step in enumerate(steps)]
        dollars = sum(self.prices[step.worker] for step in steps)
        blocks = tuple(StepBlock(at, at, step.worker) for at, step in enumerate(steps))
        return PlanChoice(blocks, float(np.prod(chances)), dollars)

    def best(self, worth: float, *, forms: bool = True) -> PlanChoice:
        """Return the way of highest worth: dollars of a right answer times its chance, less the dollars.

        Without `forms` each step stays a call of its own, unchecked.
        """
        if not forms:
            return self._search(worth, checks=False, joins=False)
        found = self._search(worth, checks=True)
        steps = len(found.blocks) + sum(one.checker is not None for one in found.blocks)
        return found if steps <= self.room else self._search(worth, checks=False)

    def _search(self, worth: float, *, checks: bool, joins: bool = True) -> PlanChoice:
        count = len(self.plan)
        reached: list[list[PlanChoice]] = [[PlanChoice((), 1.0, 0.0)]]
        for end in range(1, count + 1):
            ways = list[PlanChoice]()
            for start in range(0 if joins else end - 1, end):
                options = self._options(start, end, worth, checks=checks)
                ways += [
                    PlanChoice((*way.blocks, *one.blocks), way.chance * one.chance, way.dollars + one.dollars)
                    for way in (reached[start] if options else ())
                    for one in options
                ]
            reached.append(_hull(ways)[:_MOST_WAYS])
        return max(reached[-1], key=lambda way: worth * way.chance - way.dollars)

    def _options(self, start: int, end: int, worth: float, *, checks: bool) -> list[PlanChoice]:
        step = self.plan.steps[start]
        if end == start + 1 and step.worker not in self.able:
            return [PlanChoice((StepBlock(start, start, step.worker),), 1.0, self.prices[step.worker])]
        if end > start + 1:
            if not self._is_joinable(start, end):
                return []
            chances = np.prod(self._joined[start:end], axis=0)
            more = 1 + self.model.further_share * (end - start - 1)
            return _hull(
                PlanChoice((StepBlock(start, end - 1, at),), float(chances[at]), self.prices[at] * more)
                for at in self.able
            )
        own = self.chances[start]
        found = [PlanChoice((StepBlock(start, start, at),), float(own[at]), self.prices[at]) for at in self.able]
        if checks:
            top = sorted(self.able, key=lambda at: self.prices[at] - worth * own[at])[:_MOST_CHECKED]
            found += [self._checked(start, one, other) for one in top for other in top if one != other]
        return _hull(found)

    def _checked(self, at: int, worker: int, checker: int) -> PlanChoice:
        p, q, model = float(self.chances[at][worker]), float(self.chances[at][checker]), self.model
        chance = p * (model.keeps + (1 - model.keeps) * q) + (1 - p) * self.finds * q * q
        dollars = self.prices[worker] + model.check_share * self.prices[checker]
        return PlanChoice((StepBlock(at, at, worker, checker),), chance, dollars)

    def chance_of(self, choice: PlanChoice) -> float:
        """Return the chance of a way that was found with other weights."""
        found = 1.0
        for block in choice.blocks:
            if block.worker not in self.able:
                continue
            if block.checker is not None:
                found *= self._checked(block.first, block.worker, block.checker).chance
            else:
                chances = self.chances if block.first == block.last else self._joined
                found *= float(np.prod(chances[block.first : block.last + 1, block.worker]))
        return found

    def _is_joinable(self, start: int, end: int) -> bool:
        """Whether one call can do these steps: nothing else needs what is between them, and nothing is left unused."""
        steps = self.plan.steps
        if any(step.worker not in self.able for step in steps[start:end]):
            return False
        if sum(len(step.subtask) for step in steps[start:end]) > _LONGEST_JOINED:
            return False
        inner = set(range(start, end - 1))
        within = {seen for step in steps[start:end] for seen in step.access}
        return inner <= within and not any(inner & set(step.access) for step in steps[end:])

    def price_of(self, block: StepBlock) -> float:
        """Return the dollars of a block."""
        check = 0.0 if block.checker is None else self.model.check_share * self.prices[block.checker]
        return self.prices[block.worker] * (1 + self.model.further_share * (block.last - block.first)) + check

    def build(self, choice: PlanChoice) -> Plan:
        """Return the plan cut and assigned so; who saw a checked step's result sees its check's instead."""
        steps, gives = list[Step](), dict[int, int]()
        for block in choice.blocks:
            own = range(block.first, block.last + 1)
            seen = {at for place in own for at in self.plan.steps[place].access if at < block.first}
            access = tuple(sorted({gives[at] for at in seen}))
            parts = [self.plan.steps[place] for place in own]
            asked = MERGED.join(step.subtask for step in parts)
            kind = parts[-1].kind
            if block.worker not in self.able:
                steps.append(replace(parts[0], access=access))
            else:
                steps.append(Step(self.told(block.worker, asked), block.worker, access, kind=kind))
            if block.checker is not None:
                core = split_phrases(asked, self.model.phrases)[0]
                check = self.told(block.checker, f"{CHECK_OPENING} {core}")
                steps.append(Step(check, block.checker, tuple(sorted({*access, len(steps) - 1})), kind=kind))
            gives |= dict.fromkeys(own, len(steps) - 1)
        return Plan(tuple(steps))


def _logistic(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


def _hull(ways: Iterable[PlanChoice]) -> list[PlanChoice]:
    """Return the ways of which each is the best at some price of a right answer, cheapest first."""
    kept = list[PlanChoice]()
    for way in sorted(ways, key=lambda way: (way.dollars, -way.chance)):
        if kept and way.chance <= kept[-1].chance:
            continue
        while len(kept) > 1:
            one, other = kept[-2], kept[-1]
            rise = (other.chance - one.chance) * (way.dollars - other.dollars)
            if rise > (way.chance - other.chance) * (other.dollars - one.dollars):
                break
            kept.pop()
        kept.append(way)
    return kept


def is_assignable(card: Card) -> bool:
    """Whether a learned conductor may give this worker a step that it was not planned for."""
    return card.kind not in _KEPT_KINDS and card.approval is ApprovalMode.NEVER and not card.adds


def is_searchable(plan: Plan) -> bool:
    """Whether the steps of a plan have chances of their own: none goes over a list, and none repeats another."""
    keys = {(step.subtask, step.access) for step in plan.steps}
    return len(keys) == len(plan) and not plan.ships and not plan.maps


def call_price(model: OutcomeModel, card: Card) -> float:
    """Return the expected dollars of a call: what calls did cost, else what a typical one costs by its price."""
    paid = model.figures.get(card.name)
    if paid is not None and paid.calls:
        return paid.dollars
    return 0.0 if card.price is None else card.price.of(_TYPICAL)


def silent_workers(situation: Situation) -> frozenset[str]:
    """Return the workers that gave no answer, or failed a check, earlier in this run."""
    return frozenset(
        result.worker
        for turn in situation.rounds
        for result in turn.results
        if not result.ok or any(verdict.status == "fail" for verdict in result.verdicts)
    )
