"""The stage of an evaluation: its tasks, its workers, and how a specification becomes an entrant, in any process.

Invariants: what a Setup says is plain data, and the same Setup makes the same stage on every machine; workers that cost
money answer through the response cache; a key that is missing, a sandbox that cannot be had, a taskset that cannot be
read are errors before the first call. Whoever sets a stage leaves it (`set_stage` is a context). Deliberately absent:
which entrants play, and when (`evaluate.casting`, `evaluate.course`).
"""

import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from shikisha.conduct import Engine
from shikisha.conductor import Conductor
from shikisha.conductors.fixed import Scripted
from shikisha.config.compose import Composition
from shikisha.config.gathering import Gathered, gather
from shikisha.config.judging import judge_of, sandbox_named
from shikisha.config.load import load
from shikisha.config.refusing import refuse, refuse_counters
from shikisha.config.settings import FixedTable
from shikisha.config.versions import version
from shikisha.errors import ConfigError
from shikisha.evaluate.calls import FREE_KINDS, CachedWorker, Calls, Purse
from shikisha.evaluate.casting import VOTE, WEIGH, Spec
from shikisha.evaluate.playing import Player
from shikisha.evaluate.samples import Entrant
from shikisha.grade import Tools
from shikisha.grade.canon import Form
from shikisha.journal import open_journal
from shikisha.plan import Plan, Step
from shikisha.pool import Member, Pool
from shikisha.recorder import MemoryRecorder, Recorder
from shikisha.taskset import Item
from shikisha.worker import Card
from shikisha.workers.replay import Says
from shikisha.workers.vote import VoteWorker


@dataclass(frozen=True, slots=True)
class Setup:
    """What an evaluation is of, as plain data: an outcome log or a taskset, and who works.

    `keep` is the folder that samples and replies are kept in, and `evaluation` what every run's id begins with.
    `reply` is what a replayed worker answers with: the extracted answer, its full text, or both. `dollars` is the most
    that one command may spend.
    """

    keep: str
    evaluation: str = "evaluation"
    log: str | None = None
    taskset: str | None = None
    data: str | None = None
    split: str | None = None
    tasks: int | None = None
    seed: int = 0
    workers: tuple[str, ...] = ()
    config: str | None = None
    judge: str | None = None
    checker: str | None = None
    sandbox: str = ""
    dollars: float | None = None
    journal: str | None = None
    reply: Says = "answer"

    def dumps(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, line: str) -> "Setup":
        """Return the setup that `dumps` wrote."""
        setup = cls(**json.loads(line))
        return replace(setup, workers=tuple(setup.workers))


@dataclass(slots=True)
class Stage:
    """A set stage: the tasks and workers gathered, who plays, and the composition that conductors come from."""

    setup: Setup
    composition: Composition
    gathered: Gathered
    player: Player
    _pools: dict[tuple[Form, tuple[float, ...]], Pool] = field(default_factory=dict)

    def entrant(self, spec: Spec) -> Entrant:
        """Return the entrant of a specification; UnknownName or ConfigError when it cannot be cast."""
        pool, conductor = self._pool(spec), self._conductor(spec)
        version = self._version(spec)
        return Entrant(spec.name, conductor, pool, spec.part, spec.worker, spec.note, version, spec.kept)

    def _conductor(self, spec: Spec) -> Conductor:
        found = self.gathered.conductor(spec)
        if found is not None:
            return found
        pool = self.gathered.pool
        if spec.subtask and pool is not None and spec.worker is not None:
            return Scripted([Plan((Step(spec.subtask, pool.names.index(spec.worker)),))], spec.conductor)
        if pool is not None and self._counts(spec):
            pool = self._counted(pool, Form.TEXT, spec.weights)
        return self.composition.conductor(spec.conductor, pool)

    def _counts(self, spec: Spec) -> bool:
        """Whether the conductor is a fixed topology, which may join by the counters of votes."""
        table = self.composition.settings.conductors.get(spec.conductor)
        if isinstance(table, FixedTable) and WEIGH in table.roles.values():
            raise ConfigError(
                f"conductors.{spec.conductor}: {WEIGH!r} weighs votes by what an evaluation finds on the dev split: "
                f"ask for it as --conductor fixed:{table.topology}?workers=...&join={WEIGH}"
            )
        return isinstance(table, FixedTable) or spec.conductor.startswith("fixed:")

    def _pool(self, spec: Spec) -> Callable[[Item], Pool]:
        shared = self.gathered.pool
        if shared is None:
            return self._brought(spec)
        if not self._counts(spec):
            return lambda _: shared
        return lambda item: self._counted(shared, form_of(item), spec.weights)

    def _brought(self, spec: Spec) -> Callable[[Item], Pool]:
        own, brought = self.gathered.own, self.gathered.pool_of(spec)
        if own is None or not own.counted or not self._counts(spec):
            return brought
        return lambda item: _with_counters(brought(item), form_of(item), spec.weights)

    def _counted(self, pool: Pool, form: Form, weights: tuple[float, ...]) -> Pool:
        """Return the pool with the counters of votes behind it, which fixed topologies may join by."""
        key = (form, weights)
        if key not in self._pools:
            self._pools[key] = _with_counters(pool, form, weights)
        return self._pools[key]

    def _version(self, spec: Spec) -> str:
        """Return a hash of what decides an entrant's samples besides the task."""
        setup, pool = self.setup, self.gathered.pool
        configured = pool is not None and setup.log is None
        names = pool.names if pool is not None else setup.workers
        judge = setup.judge and self.composition.fingerprint(setup.judge)
        others = [spec.weights, setup.reply, setup.log, judge, () if configured else names]
        others += [more for more in (spec.pool, spec.subtask) if more]
        return version(self.composition, spec.conductor, names if configured else (), others)


@asynccontextmanager
async def set_stage(setup: Setup, part: str = "0") -> AsyncIterator[Stage]:
    """Set the stage; `part` names this process among those that work on the same evaluation."""
    async with AsyncExitStack() as stack:
        composition = load(Path(setup.config) if setup.config else None)
        stack.push_async_callback(composition.aclose)
        calls = Calls(Path(setup.keep), part)
        stack.push_async_callback(calls.aclose)
        purse = Purse(setup.dollars)
        composition.wrap = _cache(composition, calls, purse)
        sandbox = sandbox_named(setup.sandbox)
        tools = Tools(sandbox, judge_of(composition, setup.judge))
        gathered = gather(setup, composition, tools)
        if gathered.pool is not None:
            refuse_counters(gathered.pool)
        if any(item.checker.name == "code" for item in (*gathered.items, *gathered.dev)):
            await sandbox.probed()
        recorder: Recorder = MemoryRecorder()
        if setup.journal:
            recorder = await stack.enter_async_context(open_journal(setup.journal))
        player = Player(
            Engine(recorder, vault=composition.vault, guarded=composition.guarded),
            recorder,
            setup.evaluation,
            composition.caps,
            composition.settings.reward.weights(),
            purse,
            composition.resolved(),
        )
        yield Stage(setup, composition, gathered, player)


def _cache(composition: Composition, calls: Calls, purse: Purse) -> Callable[[Member], Member]:
    def wrap(member: Member) -> Member:
        fingerprint = composition.fingerprint(member.card.name)
        refuse(member.card, composition.settings.reward.cost, purse.limit)
        if fingerprint is None or member.card.kind in FREE_KINDS:
            return member
        return replace(member, worker=CachedWorker(member, fingerprint, calls, purse))

    return wrap


def _with_counters(pool: Pool, form: Form, weights: tuple[float, ...]) -> Pool:
    votes = {VOTE: VoteWorker(form), WEIGH: VoteWorker(form, weights)}
    return Pool(
        [*pool, *(Member(Card(name, kind="vote"), vote) for name, vote in votes.items() if name not in pool.names)]
    )


@contextmanager
def settled_heap() -> Iterator[None]:
    """Keep the garbage collector from looking at every task and sample again and again, and finding nothing."""
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)  # more than a thousand runs in flight hold, or each wave of them is looked at
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def form_of(item: Item) -> Form:
    """Return the canonical form in which answers to this task are compared."""
    form = getattr(item.checker, "form", None)
    return form if isinstance(form, Form) else Form.TEXT
