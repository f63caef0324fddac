"""What a plan's text is worth: it is performed by the real engine, and its answer is graded. The seam of all training.

One coroutine, `score(text, item, before)`; whoever samples plans (our loop, TRL, verl) awaits it. Invariants: a text
reaches workers only as a plan that the strict parser made of it, within the pool and the caps; what a worker's fault
spoilt has no reward (None) and is never the policy's; equal texts for the same item are performed once, and an earlier
round is performed again to the same results where workers are deterministic. No call is begun once the dollars are
spent. Deliberately absent: advantages, models, and any look into a plan other than its shape.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256

from shikisha.budget import Caps
from shikisha.conduct import Engine
from shikisha.conductor import NoPlan, Proposal, Rejection, Situation
from shikisha.errors import CapReached, ConfigError, PlanError
from shikisha.evaluate.calls import TALLY, Purse, Tally
from shikisha.grade import Grade, Mark, no_answer
from shikisha.parse import parse_plan
from shikisha.plan import Plan, depths
from shikisha.recorder import MemoryRecorder
from shikisha.reward import Reward, Weights, performers, reward
from shikisha.run import Performed, Run
from shikisha.taskset import Item, content_key
from shikisha.train.advantage import NO_PLAN

_NUMBER = re.compile(r"\d+")
_parsed = lru_cache(maxsize=1024)(parse_plan)  # a text that is performed several times is read once


@dataclass(frozen=True, slots=True)
class Scored:
    """What came of a text: `total` is its reward (None: spoilt by a worker), `right` whether the answer was.

    `shape` names the last plan's topology and length; `workers` are who performed steps, `dollars` what all rounds
    cost, `rounds` what was performed; `meant` is how many steps a text that is no plan was to have, `ranks` how many
    steps of a plan wait for none, for those, and so on.
    """

    total: float | None
    right: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    shape: str = NO_PLAN
    workers: tuple[str, ...] = ()
    dollars: float = 0.0
    rounds: tuple[Performed, ...] = field(default=(), repr=False)
    meant: int = 0
    ranks: tuple[int, ...] = ()

    @property
    def compared(self) -> str:
        """What it is compared as: its shape and its ranks; of a text that is no plan, how many steps it was to have."""
        if not self.valid:
            return f"{NO_PLAN} {self.meant}"
        topology, _, length = self.shape.rpartition(" ")
        return f"{topology} {'-'.join(map(str, self.ranks))} {length}" if self.ranks else self.shape

    @property
    def valid(self) -> bool:
        """Whether the text was a plan."""
        return self.shape != NO_PLAN

    @property
    def several(self) -> bool:
        """Whether it was a plan of two steps or more."""
        count = self.shape.rpartition(" ")[2]
        return count.isdigit() and int(count) > 1


@dataclass(frozen=True, slots=True)
class Written:
    """A conductor that has these texts to say, one a round, and after them keeps the answer."""

    texts: tuple[str, ...]
    name: str = "written"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose what the next text says; NoPlan where it is no plan, or keeps an answer before there is one."""
        done = len(situation.rounds)
        if done >= len(self.texts):
            return Proposal(Plan(), final=True)
        text = self.texts[done]
        try:
            plan = _parsed(text, len(situation.cards), min(situation.left.plan_steps, situation.left.steps))
            if plan.ships and not done:
                raise PlanError("there is no answer to keep yet: the first plan needs a step", "plan")
        except PlanError as error:
            raise NoPlan(error.what, error.where, (Rejection(text, error.what, error.where),)) from None
        return Proposal(plan, text, final=done + 1 >= len(self.texts))


class Scorer:
    """Performs texts, `at_once` at a time, and says what each is worth by these weights.

    `dollars` may be spent in all (None: no cap), or what is in `purse`, where calls are really paid; after that
    CapReached. `engine` knows the keys that workers must not repeat. An event loop's own: use one in each loop.
    `cost` is what a dollar costs from now on (None: what the weights say); it may change between calls of `scores`.
    """

    def __init__(
        self,
        weights: Weights,
        caps: Caps | None = None,
        at_once: int = 64,
        dollars: float | None = None,
        purse: Purse | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._weights = weights
        self._caps = caps
        self._gate = asyncio.Semaphore(at_once)
        self._cap = dollars
        self._purse = purse
        self._engine = engine or Engine(MemoryRecorder())
        self.spent = 0.0
        self.cost: float | None = None

    async def score(self, text: str, item: Item, before: tuple[str, ...] = (), times: int = 1) -> Scored:
        """Perform the text as a plan for the item's task, after the rounds `before`; return what it is worth.

        Performed several `times`, the mean reward counts, which takes chance out of it where workers vary (where they
        are steady, once is enough); all else is told of the first. A later round is performed once: it answers what its
        first round really came to.
        """
        found = await self._score(text, item, before)
        if before or not found.valid or times == 1:
            return found
        again = range(1, times)
        more = [found if item.steady else await self._score(text, item, before, number) for number in again]
        known = [one.total for one in (found, *more) if one.total is not None]
        return replace(found, total=sum(known) / len(known) if known else None)

    async def _score(self, text: str, item: Item, before: tuple[str, ...], number: int = 0) -> Scored:
        """Perform it once; `number` makes the run's key another, and with it what hangs on luck."""
        if item.pool is None:
            raise ConfigError(f"task {item.task.id}: no pool to perform a plan with")
        first = (*before, text)[0]
        salt = f"\0{number}" if number else ""
        key = sha256(f"{content_key(item.task)}\0{first}{salt}".encode()).hexdigest()[:24]
        engine = self._engine.apart(
            MemoryRecorder()
        )  # its own: a task may come twice, and a first round's id (its luck) is kept
        async with self._gate:
            if self._cap is not None and self.spent >= self._cap:
                raise CapReached(
                    "spend.dollars", f"${self.spent:.4g} are spent of ${self._cap:g} that training may cost"
                )
            TALLY.set(Tally())
            run = await engine.run(item.task, item.pool, Written((*before, text)), self._caps, run_id=key)
        if self._purse is not None and self._purse.empty:
            raise CapReached(
                "spend.dollars", f"the ${self._purse.limit:g} that training may cost are spent or reserved"
            )
        self.spent += run.counted.dollars or 0.0  # the cap on what training costs counts what is uncertain too
        grade = await _graded(item, run)
        weights = self._weights if self.cost is None else replace(self._weights, cost=self.cost)
        found = _scored(run, grade, reward(run, grade, weights), len(before))
        return found if found.valid else replace(found, meant=_meant(text))

    async def scores(
        self,
        texts: Sequence[Sequence[str]],
        items: Sequence[Item],
        before: Sequence[tuple[str, ...]] = (),
        times: int = 1,
    ) -> list[list[Scored]]:
        """Return what each item's texts are worth; equal texts of an item are performed as one."""
        past = before or [()] * len(items)
        async with asyncio.TaskGroup() as group:
            asked = [
                {text: group.create_task(self.score(text, item, gone, times)) for text in dict.fromkeys(written)}
                for written, item, gone in zip(texts, items, past, strict=True)
            ]
        return [[found[text].result() for text in written] for written, found in zip(texts, asked, strict=True)]


async def _graded(item: Item, run: Run) -> Grade:
    if run.answer is not None:
        return await item.checker.grade(run.answer)
    return no_answer(item.checker.name, run.finished.why if run.finished else "the run has not ended")


def _scored(run: Run, grade: Grade, found: Reward | None, before: int) -> Scored:
    turns = run.rounds[before:]
    plan = turns[0].plan if turns and turns[0].proposed is not None else None
    return Scored(
        None if found is None else found.total,
        grade.mark is Mark.RIGHT,
        {} if found is None else found.parts,
        NO_PLAN if plan is None else shape_of(plan),
        performers(run),
        run.charged.dollars or 0.0,
        tuple(_performed(run)),
        ranks=() if plan is None else ranks_of(plan),
    )


def _performed(run: Run) -> Iterator[Performed]:
    """Yield the rounds that came to results, as the next briefing shows them."""
    for turn in run.rounds:
        results = tuple(result for result in turn.results if result is not None)
        if turn.plan is not None and turn.plan.steps and len(results) == len(turn.plan):
            yield Performed(turn.plan, results)


def _meant(text: str) -> int:
    """Return how many workers the text's last list of them names."""
    return len(_NUMBER.findall(text.rpartition("model_id")[2].partition("]")[0]))


def ranks_of(plan: Plan) -> tuple[int, ...]:
    """Return how many steps see none, how many see those at most, and so on: 1, 3, 1 for one, three after it, a join.

    What is mixed may be many things: a vote that work goes on from, or work whose result is read again and voted on.
    """
    counts = Counter(depths([step.access for step in plan.steps]))
    return tuple(counts[depth] for depth in range(len(counts)))


def shape_of(plan: Plan) -> str:
    """Return a plan's shape: its topology, and its length where it has steps."""
    return f"{plan.topology()} {len(plan)}" if plan.steps else plan.topology()
