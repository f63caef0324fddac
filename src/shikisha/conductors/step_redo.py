"""After a round: which step is worth asking again, of whom, or whether to ship what there is.

Each answer so far is right with a chance that step values infer from who gave it, who gave the same, and what checks
said. Another answer to a step may agree, or replace it; two that differ may need a third. Asking again is worth a right
answer's dollars times what that adds to the chance that all is right, less the call's price and that of the steps which
would have to follow. Whoever costs more is asked only where more is gained: redo, escalate and stop are one comparison.

Invariants: the same rounds lead to the same decision, so that a resumed run goes on; a step that is asked again knows
what it knew before, stated in its subtask; at most one step is asked again in a round, then what depends on it.
Deliberately absent: plans with checks, votes, tools or steps over lists; what these bring stays.
"""

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from shikisha.conductors.plan_search import StepTable
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import CHECK_OPENING
from shikisha.core.run import Result, RoundResult
from shikisha.engine.conductor import Situation
from shikisha.learned.outcome_fit import answer_states
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import MERGED, split_phrases, state_known

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
