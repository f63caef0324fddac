"""A conductor over whatever proposes plans: an outcome model says who does each step, told what, joined and checked.

The proposer gives subtasks, access lists and whom it would ask. The plan is performed in the way of highest worth by
the model: `worth` dollars times the chance that all is right, less the dollars. To learn more, another way is tried,
the best one by a draw from the model's posterior, as far as the share of dollars for that goes. On a share of the tasks
the proposer's plan is performed as it is: that is the trial which shows whether the learner brings anything. After a
round the model sees what came back, and asks a step again where that is worth its price (`StepRedo`).

Invariants: the same task, model and rounds lead to the same proposal; workers outside the pool, tools, people, agents,
approvals and workers that add labels are never assigned (1), and where a task bears labels nothing is explored; what
the proposer planned, what was chosen and drawn, and the model's version are in the proposal. A model that cannot be
read changes no plan, and the proposal says why.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from math import prod
from typing import TypeAlias

import numpy as np

from shikisha.conductors.topologies import VOTE
from shikisha.core.budget import Usage, format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import CHECK_OPENING
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Scope
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.learned.outcome_fit import LearningTerms, answer_states
from shikisha.learned.outcome_model import TOLD, OutcomeModel
from shikisha.learned.step_evidence import (
    EXPLORED,
    MERGED,
    PLANNED,
    STANDS_BY,
    core_wording,
    planned_workers,
    split_phrases,
    state_known,
)
from shikisha.routing.arrays import Floats

# The best way to perform a proposed plan by an outcome model: who does which step, told what, joined, checked.
#
# A plan is cut into blocks: consecutive steps that one call does, where nothing else needs what is between them. Each
# block has a worker and, where it is one step, perhaps a checker. The search keeps, step by step, the ways on the hull
# of chance and dollars, so that what it returns is the best of all cuts and assignments by the model. A worker is told
# the standing phrases that help it by the model: as their weights add up, that is known without a search.
#
# Invariants: workers that may not be assigned keep their steps, alone; a table reads each text once. Deliberately
# absent: who proposes, and what is explored (`learned_conductor`).

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


# After a round: which step is worth asking again, of whom, or whether to ship what there is.
#
# Each answer so far is right with a chance that step values infer from who gave it, who gave the same, and what checks
# said. Another answer to a step may agree, or replace it; two that differ may need a third. Asking again is worth a
# right answer's dollars times what that adds to the chance that all is right, less the call's price and that of the
# steps which would have to follow. Whoever costs more is asked only where more is gained: redo, escalate and stop are
# one comparison.
#
# Invariants: the same rounds lead to the same decision, so that a resumed run goes on; a step that is asked again knows
# what it knew before, stated in its subtask; at most one step is asked again in a round, then what depends on it.
# Deliberately absent: plans with checks, votes, tools or steps over lists; what these bring stays.

MOST_REDONE = 3  # rounds after the first
_MOST_STATED = 200  # characters of a result that a subtask states


@dataclass(frozen=True, slots=True)
class RedoDecision:
    """The next round's plan (empty: ship the answer of round `keeps`), and how likely that answer is right now."""

    plan: Plan
    keeps: int | None
    chance: float
    performs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    worker: int
    text: str | None
    failed: bool | None
    inputs: tuple[str | None, ...]
    round: int


# Answers by step of the first plan, that of its own worker first.
_RedoProgress: TypeAlias = dict[int, list[_Answer]]


class StepRedo:
    """Decides after the rounds of one run; None as a decision: this plan is none that it can judge."""

    def __init__(self, model: OutcomeModel, situation: Situation, worth: float, base: Plan) -> None:
        self.model, self.worth, self.base = model, worth, base
        # What failed is in the verdicts here, so workers are not distrusted for it a second time.
        self.table = StepTable(model, replace(situation, rounds=()), base)
        self.left, self.names = situation.left, self.table.names
        keys = [(step.subtask, step.access) for step in base.steps]
        self.main = [at for at, key in enumerate(keys) if key not in keys[at + 1 :]]
        self._moved = {
            at: max(place for place, other in enumerate(keys) if other == key) for at, key in enumerate(keys)
        }
        self.needed = self._ancestors(len(base.steps) - 1)

    @property
    def judges(self) -> bool:
        """Whether this is a plan of plain steps."""
        steps = self.base.steps
        return (
            len(self.table.able) > 1
            and all(
                step.worker in self.table.able and step.each is None and MERGED not in step.subtask for step in steps
            )
            and not any(step.subtask.startswith(CHECK_OPENING) or '"' in step.subtask for step in steps)
        )

    def decide(self, rounds: Sequence[RoundResult]) -> RedoDecision:
        """Return what comes after these rounds; the first of them performed the plan."""
        progress: _RedoProgress = {at: [] for at in self.main}
        self._absorb_first(progress, rounds[0])
        for number, turn in enumerate(rounds[1:], 1):
            made = self._next(progress, number - 1, past=True)
            performs = made.performs
            values = self._values(progress)
            for at, step, result in zip(performs, turn.plan.steps, turn.results, strict=False):
                inputs = tuple(values[self._moved[seen]][0] for seen in self.base.steps[at].access)
                progress[at].append(self._answer(result, step, inputs, number))
                values[at] = (progress[at][-1].text, 0.0)
        return self._next(progress, len(rounds) - 1)

    def expects_redo(self) -> bool:
        """Whether a step would be asked again if all steps gave answers that nothing more is known of."""
        progress: _RedoProgress = {at: [] for at in self.main}
        for at in self.main:
            step = self.base.steps[at]
            inputs = tuple(f"result {self._moved[seen]}" for seen in step.access)
            progress[at].append(_Answer(step.worker, f"result {at}", None, inputs, 0))
        return bool(self._next(progress, 0).plan.steps)

    def _absorb_first(self, progress: _RedoProgress, turn: RoundResult) -> None:
        answers = [self._answer(one, step, (), 0) for one, step in zip(turn.results, self.base.steps, strict=True)]
        for at, step in enumerate(self.base.steps):
            answer = replace(answers[at], inputs=tuple(answers[self._moved[seen]].text for seen in step.access))
            mine = progress[self._moved[at]]
            mine.insert(0, answer) if at == self._moved[at] else mine.append(answer)

    def _answer(self, result: Result, step: Step, inputs: tuple[str | None, ...], number: int) -> _Answer:
        text = result.text.strip() if result.ok and result.text is not None else None
        spoken = [verdict.status == "fail" for verdict in result.verdicts if verdict.status in ("pass", "fail")]
        worker = self.names.index(result.worker) if result.worker in self.names else step.worker
        return _Answer(worker, text, any(spoken) if spoken else None, inputs, number)

    def _values(self, progress: _RedoProgress) -> dict[int, tuple[str | None, float]]:
        """Return for each step the answer that is most likely right, given its inputs, and how likely (None: none)."""
        found = dict[int, tuple[str | None, float]]()
        for at in self.main:
            states = self._states(progress, at, found)
            best = max((text for text in states if text is not None), key=lambda text: states[text], default=None)
            found[at] = (best, 0.0 if best is None else states[best])
        return found

    def _valid(self, progress: _RedoProgress, at: int, values: dict[int, tuple[str | None, float]]) -> list[_Answer]:
        inputs = tuple(values[self._moved[seen]][0] for seen in self.base.steps[at].access)
        if None in inputs:
            return []
        return [one for one in progress[at] if one.inputs == inputs and one.text is not None]

    def _states(
        self, progress: _RedoProgress, at: int, values: dict[int, tuple[str | None, float]]
    ) -> dict[str | None, float]:
        valid = self._valid(progress, at, values)
        chances = self.table.chances[at]
        answers = [(one.text or "", one.failed, float(chances[one.worker])) for one in valid]
        return answer_states(answers, self.model.verdicts)

    def _next(self, progress: _RedoProgress, last_round: int, *, past: bool = False) -> RedoDecision:
        """Return the decision after a round; what the budget leaves now did not bind one that was made before."""
        values = self._values(progress)
        stale = [at for at in self.needed if values[at][0] is None]
        chance = prod(values[at][1] for at in self.needed)
        if last_round >= MOST_REDONE or (self.left.rounds < 1 and not past):
            return RedoDecision(Plan(), self._shipped_round(progress, values), chance)
        if stale:
            return self._follow(progress, values, stale, past=past)
        best, pick = 0.0, None
        for at in self.needed:
            states = self._states(progress, at, values)
            rest = chance / values[at][1] if values[at][1] else 0.0
            follows = sum(self.table.prices[self.base.steps[one].worker] for one in self._dependents(at))
            asked = {one.worker for one in progress[at]}
            gain, worker = self._best_gain(at, states, rest, follows, asked)
            if gain > best:
                best, pick = gain, (at, worker)
        if pick is None:
            return RedoDecision(Plan(), self._shipped_round(progress, values), chance)
        plan = self._plan([pick], values)
        if plan is None:
            return RedoDecision(Plan(), self._shipped_round(progress, values), chance)
        return RedoDecision(plan, None, chance, (pick[0],))

    def _follow(
        self, progress: _RedoProgress, values: dict[int, tuple[str | None, float]], stale: Sequence[int], *, past: bool
    ) -> RedoDecision:
        """Do again what is missing, or made from what is no longer believed, if that is worth more than shipping."""
        workers = [(at, self._worker_for(progress, at)) for at in stale]
        price = sum(self.table.prices[worker] for _, worker in workers)
        chances = [self.table.chances[at][one] for at, one in workers]
        then = prod(values[at][1] for at in self.needed if at not in stale) * prod(map(float, chances))
        before = self._first_chance(progress)
        plan = self._plan(workers, values)
        if (
            plan is None
            or self.worth * (then - before) <= price
            or (len(plan) > min(self.left.steps, self.left.plan_steps) and not past)
        ):
            return RedoDecision(Plan(), self._shipped_round(progress, values), before)
        return RedoDecision(plan, None, then, tuple(stale))

    def _worker_for(self, progress: _RedoProgress, at: int) -> int:
        """Return who does a step again: who did it, or the best other one where that one gave no answer."""
        silent = {one.worker for one in progress[at] if one.text is None}
        planned = self.base.steps[at].worker
        if planned not in silent:
            return planned
        chances = self.table.chances[at]
        left = [one for one in self.table.able if one not in silent] or self.table.able
        return max(left, key=lambda one: self.worth * float(chances[one]) - self.table.prices[one])

    def _first_chance(self, progress: _RedoProgress) -> float:
        """Return the chance that the first round's answer is right, whatever is believed of its steps now."""
        values, found = dict[int, tuple[str | None, float]](), 1.0
        for at in self.main:
            first = progress[at][0]
            states = self._states(progress, at, values)
            values[at] = (first.text, states.get(first.text, 0.0) if first.text is not None else 0.0)
            found *= values[at][1] if at in self.needed else 1.0
        return found

    def _best_gain(
        self, at: int, states: dict[str | None, float], rest: float, follows: float, asked: set[int]
    ) -> tuple[float, int]:
        """Return the best worker to ask again, and the dollars that this is worth more than stopping."""
        chances = self.table.chances[at]
        said = [mass for text, mass in states.items() if text is not None]
        top, none = max(said), states.get(None, 0.0)
        worth = self.worth * rest
        best = (0.0, -1)
        others = [one for one in self.table.able if one not in asked]
        for one in others:
            p = float(chances[one])
            agrees = sum(said) * p
            old, new, neither = top * (1 - p), none * p, max(0.0, 1 - agrees - top * (1 - p) - none * p)
            moves = (sum(said) - top) * p + (1 - agrees if new > old else 0.0)
            gain = worth * (agrees + max(old, new) - top) - self.table.prices[one] - moves * follows
            for third in others:
                if third != one:
                    q = float(chances[third])
                    decided = (old + new) * q + max(old * (1 - q), new * (1 - q), neither * q)
                    moved = (sum(said) - top) * p + new * q
                    price = self.table.prices[one] + (1 - agrees) * self.table.prices[third]
                    gain = max(gain, worth * (agrees + decided - top) - price - moved * follows)
            if gain > best[0]:
                best = (gain, one)
        return best

    def _plan(self, performs: Sequence[tuple[int, int]], values: dict[int, tuple[str | None, float]]) -> Plan | None:
        """Return the round that does these steps; None where a result is too long to be stated."""
        steps, places = list[Step](), dict[int, int]()
        for at, worker in performs:
            step = self.base.steps[at]
            seen = [self._moved[one] for one in step.access]
            stated = list[tuple[str, str]]()
            for one in seen:
                value = values[one][0]
                if one in places:
                    continue
                if value is None or len(value) > _MOST_STATED or '"' in value or "\n" in value:
                    return None
                stated.append((split_phrases(self.base.steps[one].subtask, self.model.phrases)[0], value.rstrip(".")))
            access = tuple(sorted(places[one] for one in seen if one in places))
            places[at] = len(steps)
            core = split_phrases(step.subtask, self.model.phrases)[0]
            steps.append(Step(f"{state_known(stated)}{self.table.told(worker, core)}", worker, access, kind=step.kind))
        return Plan(tuple(steps))

    def _shipped_round(self, progress: _RedoProgress, values: dict[int, tuple[str | None, float]]) -> int:
        """Return the round whose last answer is the believed one; the first where there is none."""
        last = self.main[-1]
        for one in self._valid(progress, last, values):
            if one.text == values[last][0]:
                return one.round
        return 0

    def _ancestors(self, last: int) -> list[int]:
        needed, waiting = set[int](), [last]
        while waiting:
            at = self._moved[waiting.pop()]
            if at not in needed:
                needed.add(at)
                waiting += self.base.steps[at].access
        return sorted(needed)

    def _dependents(self, at: int) -> list[int]:
        found = {at}
        for later in self.main:
            if later > at and any(self._moved[seen] in found for seen in self.base.steps[later].access):
                found.add(later)
        return sorted(found - {at})


CHOSEN, DRAWN = "chosen", "drawn"  # in `PlanProposed.beside`: who does each step by the model, and by the draw
# Returns the model for tasks of a scope; by version where a run began with one. None: learning is off.
ModelSource = Callable[[Scope, str], OutcomeModel | None]


@dataclass(frozen=True, slots=True)
class LearnedConductor:
    """Performs the plans of `proposer` as the model of `source` says; as they are while `source` has none.

    `forms` False keeps a plan's steps as they are, for proposers that find their own steps in the results.
    """

    name: str
    proposer: Conductor
    source: ModelSource
    terms: LearningTerms
    forms: bool = True

    async def propose(self, situation: Situation) -> Proposal:
        """Return the proposer's plan in the way of highest worth, another one to learn from, or the plan as it is."""
        began = situation.rounds[0].version if situation.rounds else ""
        try:
            model, unread = self.source(situation.task.scope, began), ""
        except ConfigError as error:  # what runs teach may stop none
            model, unread = None, f"performed as planned: {error}"
        if model is None or not model.scope.admits(situation.task.scope):
            plain = await self.proposer.propose(situation)
            return replace(plain, note=_joined(plain.note, unread)) if unread else plain
        acts = _fraction("acts", model, situation) < model.learning.acts and not bool(
            situation.task.tools or situation.task.attachments
        )
        if acts and situation.rounds and self.forms:
            again = self._again(model, situation)
            if again is not None:
                return again
        most = getattr(self.proposer, "rounds", None)
        if isinstance(most, int) and len(situation.rounds) >= most:
            return Proposal(Plan())  # its last plan was to be the final one
        first = await self.proposer.propose(situation)
        cards = situation.cards
        if not is_searchable(first.plan) or any(cards[step.worker].adds for step in first.plan.steps):
            return first
        if not acts:
            said = _joined(first.note, f"model {model.version} stands by")
            return replace(
                first, note=said, propensity=1 - model.learning.acts, beside={**first.beside, PLANNED: STANDS_BY}
            )
        return self._chosen(model, first, situation)

    def _chosen(self, model: OutcomeModel, first: Proposal, situation: Situation) -> Proposal:
        table, worth = StepTable(model, situation, first.plan), self.terms.worth
        planned, best = table.as_planned(), table.best(worth, forms=self.forms)
        plan, beside = table.build(best), {CHOSEN: best.summary()}
        fixed = situation.task.labels or situation.rounds
        share = 0.0 if fixed else self.terms.explored_share(model.learning.runs)
        said = "best by"
        propensity = model.learning.acts
        if share:
            rng = np.random.default_rng(int.from_bytes(_hash("draw", model, situation)[:8], "big"))
            table.sample(rng)
            drawn = table.best(worth, forms=self.forms)
            tried = table.build(drawn)
            table.sample(None)
            others = [block for block in drawn.blocks if block not in best.blocks]
            cost = sum(map(table.price_of, others)) + worth * max(0.0, best.chance - table.chance_of(drawn))
            # A worker that joins later has its part of the first free runs, too.
            joins = any(model.is_new(table.names[block.worker], len(table.names)) for block in others)
            free = not cost or share >= 1 or joins
            taken = 1.0 if free else min(1.0, model.learning.credit / cost)
            if tried != plan:
                beside[DRAWN] = drawn.summary()
                explores = _fraction("explores", model, situation) < taken
                propensity *= taken if explores else 1 - taken
                if explores:
                    plan, said = tried, "drawn from"
                    beside[EXPLORED] = f"{cost:.9g}"
        beside[PLANNED] = planned_workers(plan, first.plan, model.phrases)
        note = (
            f"{said} model {model.version}: right with {best.chance:.0%}, {format_dollars(best.dollars)}; as planned "
            f"{planned.chance:.0%}, {format_dollars(planned.dollars)}"
        )
        made = replace(
            first,
            plan=plan,
            note=_joined(first.note, note),
            version=model.version,
            propensity=propensity,
            beside={**first.beside, **beside},
        )
        if self.forms and made.final and not situation.rounds:
            return replace(made, final=not StepRedo(model, situation, worth, made.plan).judges)
        return made

    def _again(self, model: OutcomeModel, situation: Situation) -> Proposal | None:
        """Return the round that asks a step again, or what ships; None where the proposer is to say what comes."""
        base, rounds = situation.rounds[0].plan, situation.rounds
        redo = StepRedo(model, situation, self.terms.worth, base)
        if not redo.judges:
            return None
        made = redo.decide(rounds)
        if made.plan.steps:
            beside = {PLANNED: planned_workers(made.plan, base, model.phrases)}
            note = f"model {model.version}: asks again, right with {made.chance:.0%}"
            return Proposal(made.plan, note=note, version=model.version, beside=beside)
        if len(rounds) > 1 or redo.expects_redo():
            note = f"model {model.version}: ships, right with {made.chance:.0%}"
            return Proposal(Plan(), note=note, version=model.version, keeps=made.keeps)
        return None


def _hash(what: str, model: OutcomeModel, situation: Situation) -> bytes:
    return sha256(f"{what}\n{model.version}\n{situation.task.content_hash}".encode()).digest()


def _fraction(what: str, model: OutcomeModel, situation: Situation) -> float:
    """Return a draw from 0 to 1 that the task and the model decide."""
    return int.from_bytes(_hash(what, model, situation)[:8], "big") / 2**64


def _joined(note: str, said: str) -> str:
    return f"{note}; {said}" if note else said
