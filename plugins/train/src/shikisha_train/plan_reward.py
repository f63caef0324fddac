"""The reward of a plan's text: the engine performs it, and a grader scores the answer. The seam of all training.

`PlanScorer.score(text, item, before)` is what every sampler of plans calls: `trl`, verl, or another.

Invariants: a text reaches workers only as a plan that the strict parser accepted, within the pool and the caps; a run
that a worker's fault spoiled has no reward (None) and is never the policy's fault; equal texts for the same item are
performed once, and an earlier round is performed again to the same results where workers are deterministic; no call
begins once the dollars are spent. Deliberately absent: advantages and models.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from shikisha.core.budget import Caps
from shikisha.core.errors import CapReached, ConfigError, PlanError
from shikisha.core.plan import Plan
from shikisha.core.plan_parser import parse_plan
from shikisha.core.run import RoundResult, Run
from shikisha.engine.conductor import NoPlan, Proposal, Rejection, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.graders import Grade, GradeMark, no_answer_grade
from shikisha.evals.response_cache import RUN_ACCOUNT, EvaluationBudget, RunAccount
from shikisha.evals.reward import Reward, RewardWeights, run_reward, step_workers
from shikisha.evals.taskset import TaskItem, content_key

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The shape of a text that is none.
NO_PLAN = "no plan"
# A text that is performed several times is read once.
_parse_cached = lru_cache(maxsize=1024)(parse_plan)


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """The result of a text: `total` is its reward (None: a worker failed), `right` whether the answer was.

    `shape` is the last plan's topology and length, `workers` those that performed steps, `dollars` the cost of all
    rounds, `rounds` what was performed.
    """

    total: float | None
    right: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    shape: str = NO_PLAN
    workers: tuple[str, ...] = ()
    dollars: float = 0.0
    rounds: tuple[RoundResult, ...] = field(default=(), repr=False)

    @property
    def valid(self) -> bool:
        """Whether the text was a plan."""
        return self.shape != NO_PLAN

    @property
    def multi_step(self) -> bool:
        """Whether it was a plan of two steps or more."""
        count = self.shape.rpartition(" ")[2]
        return count.isdigit() and int(count) > 1


@dataclass(frozen=True, slots=True)
class TextConductor:
    """A conductor that proposes these texts, one a round, and then keeps the answer."""

    texts: tuple[str, ...]
    name: str = "written"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the next text's plan; NoPlan where it is none, or keeps an answer before there is one."""
        done = len(situation.rounds)
        if done >= len(self.texts):
            return Proposal(Plan(), final=True)
        text = self.texts[done]
        try:
            plan = _parse_cached(text, len(situation.cards), min(situation.left.plan_steps, situation.left.steps))
            if plan.ships and not done:
                raise PlanError("there is no answer to keep yet: the first plan needs a step", "plan")
        except PlanError as error:
            raise NoPlan(error.what, error.where, (Rejection(text, error.what, error.where),)) from None
        return Proposal(plan, text, final=done + 1 >= len(self.texts))


class PlanScorer:
    """Performs texts as plans, `at_once` at a time, and scores them by these weights.

    `dollars` may be spent in all (None: no cap), or what is in `purse`, where calls are paid; after that CapReached.
    `engine` knows the keys that workers must not repeat. Use one in each event loop.
    """

    def __init__(
        self,
        weights: RewardWeights,
        caps: Caps | None = None,
        at_once: int = 64,
        dollars: float | None = None,
        purse: EvaluationBudget | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._weights = weights
        self._caps = caps
        self._limit = asyncio.Semaphore(at_once)
        self._cap = dollars
        self._purse = purse
        self._engine = engine or Engine(MemoryRecorder())
        self.dollars_spent = 0.0

    async def score(self, text: str, item: TaskItem, before: tuple[str, ...] = (), times: int = 1) -> ScoredPlan:
        """Perform the text as a plan for the item's task, after the rounds `before`; return its score.

        Performed several `times`, the reward is the mean, which reduces chance where workers vary; where they are
        steady, once is enough. All else is that of the first performance. A later round is performed once: it continues
        from what its first round's performance gave.
        """
        found = await self._score(text, item, before)
        if before or not found.valid or times == 1:
            return found
        again = range(1, times)
        more = [found if item.steady else await self._score(text, item, before, number) for number in again]
        known = [one.total for one in (found, *more) if one.total is not None]
        return replace(found, total=sum(known) / len(known) if known else None)

    async def _score(self, text: str, item: TaskItem, before: tuple[str, ...], number: int = 0) -> ScoredPlan:
        """Perform it once; `number` changes the run's id, and with it what simulated workers draw."""
        if item.pool is None:
            raise ConfigError(f"task {item.task.id}: no pool to perform a plan with")
        first = (*before, text)[0]
        salt = f"\0{number}" if number else ""
        key = sha256(f"{content_key(item.task)}\0{first}{salt}".encode()).hexdigest()[:24]
        engine = self._engine.with_recorder(
            MemoryRecorder()
        )  # its own: a task may come twice, and a first round's id (its luck) is kept
        async with self._limit:
            if self._cap is not None and self.dollars_spent >= self._cap:
                raise CapReached(
                    "spend.dollars", f"${self.dollars_spent:.4g} are spent of ${self._cap:g} that training may cost"
                )
            RUN_ACCOUNT.set(RunAccount())
            run = await engine.run(item.task, item.pool, TextConductor((*before, text)), self._caps, run_id=key)
        if self._purse is not None and self._purse.empty:
            raise CapReached(
                "spend.dollars", f"the ${self._purse.limit:g} that training may cost are spent or reserved"
            )
        self.dollars_spent += run.counted.dollars or 0.0  # the cap on what training costs counts what is uncertain too
        grade = await _grade_run(item, run)
        return _score_run(run, grade, run_reward(run, grade, self._weights), len(before))

    async def scores(
        self,
        texts: Sequence[Sequence[str]],
        items: Sequence[TaskItem],
        before: Sequence[tuple[str, ...]] = (),
        times: int = 1,
    ) -> list[list[ScoredPlan]]:
        """Return the scores of each item's texts; equal texts of an item are performed once."""
        past = before or [()] * len(items)
        async with asyncio.TaskGroup() as group:
            asked = [
                {text: group.create_task(self.score(text, item, gone, times)) for text in dict.fromkeys(written)}
                for written, item, gone in zip(texts, items, past, strict=True)
            ]
        return [[found[text].result() for text in written] for written, found in zip(texts, asked, strict=True)]


async def _grade_run(item: TaskItem, run: Run) -> Grade:
    if run.answer is not None:
        return await item.grader.grade(run.answer)
    return no_answer_grade(item.grader.name, run.finished.why if run.finished else "the run has not ended")


def _score_run(run: Run, grade: Grade, found: Reward | None, before: int) -> ScoredPlan:
    turns = run.rounds[before:]
    plan = turns[0].plan if turns and turns[0].proposed is not None else None
    return ScoredPlan(
        None if found is None else found.total,
        grade.mark is GradeMark.RIGHT,
        {} if found is None else found.parts,
        NO_PLAN if plan is None else plan_shape(plan),
        step_workers(run),
        run.charged.dollars or 0.0,
        tuple(_performed_rounds(run)),
    )


def _performed_rounds(run: Run) -> Iterator[RoundResult]:
    """Yield the rounds that have results, as the next prompt shows them."""
    for turn in run.rounds:
        results = tuple(result for result in turn.results if result is not None)
        if turn.plan is not None and turn.plan.steps and len(results) == len(turn.plan):
            yield RoundResult(turn.plan, results)


def plan_shape(plan: Plan) -> str:
    """Return a plan's shape: its topology, and its length where it has steps."""
    return f"{plan.topology()} {len(plan)}" if plan.steps else plan.topology()


def reward_array(scored: Sequence[ScoredPlan]) -> Floats:
    """Return [N] rewards; NaN where a worker failed."""
    return np.array([np.nan if one.total is None else one.total for one in scored], np.float64)
