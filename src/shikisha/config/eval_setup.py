"""The stage of an evaluation: its tasks, its workers, and how a specification becomes an entrant, in any process.

An entrant's version is a hash of what decides its samples besides the task: the conductor with everything it depends
on, the workers with checks, prices and fallbacks, and the judge; not how fast calls are made. Invariants: the same
setup makes the same stage on every machine; paid workers answer through the response cache; a missing key, sandbox or
price, a worker that needs a person, and two entrants of one name are errors before the first call.
"""

import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from shikisha.conductors.fixed_conductors import OneWorkerConductor, ScriptedConductor
from shikisha.config.conductor_settings import FixedTable
from shikisha.config.container import Container, load_config
from shikisha.config.entrant_version import entrant_version
from shikisha.config.environment import SIMULATED
from shikisha.config.eval_tasks import EvaluationSetup, EvaluationTasks, load_evaluation_tasks
from shikisha.config.grader_services import open_judge, sandbox_named
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.plan import ANSWER_ALONE, Plan, Step
from shikisha.core.tools import ToolEffect
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.evals.baselines import ONE_AGENT, VOTE, WEIGH, EntrantSpec
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.report import ORACLE
from shikisha.evals.response_cache import UNCACHED_KINDS, CachedWorker, EvaluationBudget, ResponseCache
from shikisha.evals.runner import TaskRunner
from shikisha.evals.samples import Entrant, EntrantRole
from shikisha.evals.taskset import TaskItem
from shikisha.journal import open_journal
from shikisha.workers.agent import WorkerTools
from shikisha.workers.vote import VoteWorker

_RESERVED_NAMES = ("best fixed (", "self-consistency ×", "one agent, all tools (", "one agent (")


def refuse_worker(card: Card, counts: float, limit: float | None, cap: float | None) -> None:
    """Refuse a worker that needs a person, or has no price where the reward, a limit or the cap counts dollars."""
    if card.kind == "human" or card.approval is not ApprovalMode.NEVER:
        why = "is a person" if card.kind == "human" else "needs a person's approval"
        raise ConfigError(f"workers.{card.name}: it {why}, and an evaluation cannot ask one")
    if card.price is None and card.kind not in UNCACHED_KINDS and (counts or limit is not None):
        what = "--dollars: what cannot be priced is not called" if limit is not None else "reward.cost counts dollars"
        raise ConfigError(f"workers.{card.name}: it has no price ({what})")
    if card.price is None and cap is not None:
        raise ConfigError(f"workers.{card.name}: it has no price, so [budgets] dollars refuses every call to it")


def refuse_vote_counter_names(pool: Pool) -> None:
    """Refuse a worker that has the name of a vote counter and is none."""
    for card in pool.cards:
        if card.name in (VOTE, WEIGH) and card.kind != "vote":
            raise ConfigError(f"workers.{card.name}: fixed topologies join votes by this name: choose another")


def refuse_duplicate_names(specs: Sequence[EntrantSpec]) -> None:
    """Refuse two entrants of one name, and reserved names."""
    seen = {ORACLE.name}
    for spec in specs:
        if spec.name in seen or spec.name.startswith(_RESERVED_NAMES):
            raise ConfigError(
                f"two entrants would be called {spec.name!r}: leave one out, or give it another name as LABEL=CONDUCTOR"
            )
        seen.add(spec.name)


@dataclass(slots=True)
class EvaluationStage:
    """The tasks and workers of an evaluation, its player, and the container that conductors come from."""

    setup: EvaluationSetup
    composition: Container
    tasks: EvaluationTasks
    player: TaskRunner
    _pools: dict[tuple[AnswerForm, tuple[float, ...]], Pool] = field(default_factory=dict)

    def entrant(self, spec: EntrantSpec) -> Entrant:
        """Return the entrant of a specification; UnknownName or ConfigError when it has no such worker."""
        pool, conductor = self._pool(spec), self._conductor(spec)
        version = self._version(spec)
        return Entrant(spec.name, conductor, pool, spec.part, spec.worker, spec.note, version, spec.cache_only)

    def _conductor(self, spec: EntrantSpec) -> Conductor:
        pool = self.tasks.pool
        if spec.part is EntrantRole.ONE_AGENT and pool is not None:
            if spec.repeats:
                vote, one = Step(ANSWER_ALONE, len(pool) + 1, tuple(range(spec.repeats))), Step(ANSWER_ALONE, len(pool))
                return ScriptedConductor([Plan((*[one] * spec.repeats, vote))], f"fixed:one-agent?n={spec.repeats}")
            if spec.conductor:
                return OneWorkerConductor(self.composition.conductor(spec.conductor, pool))
            return ScriptedConductor([Plan((Step(ANSWER_ALONE, len(pool)),))], "fixed:one-agent")
        if spec.subtask and pool is not None and spec.worker is not None:
            return ScriptedConductor([Plan((Step(spec.subtask, pool.names.index(spec.worker)),))], spec.conductor)
        if pool is not None and self._counts(spec):
            pool = self._counted(pool, AnswerForm.TEXT, spec.weights)
        if pool is not None and (team := self.composition.team_pool(spec.conductor or "fixed:single")):
            pool = self.composition.pool(team)
        return self.composition.conductor(spec.conductor, pool)

    def _counts(self, spec: EntrantSpec) -> bool:
        """Return whether the conductor is a fixed topology, which may join answers by the vote counters."""
        table = self.composition.settings.conductors.get(spec.conductor)
        if isinstance(table, FixedTable) and WEIGH in table.roles.values():
            raise ConfigError(
                f"conductors.{spec.conductor}: {WEIGH!r} weighs votes by what an evaluation finds on the dev split: "
                f"ask for it as --conductor fixed:{table.topology}?workers=...&join={WEIGH}"
            )
        return isinstance(table, FixedTable) or spec.conductor.startswith("fixed:")

    def _pool(self, spec: EntrantSpec) -> Callable[[TaskItem], Pool]:
        shared = self.tasks.pool
        if shared is None:
            return self._brought(spec)
        if spec.part is EntrantRole.ONE_AGENT:
            one = unite_agents(shared, spec.worker or "")
            return lambda item: self._with_one(shared, one, answer_form(item), votes=bool(spec.repeats))
        if team := self.composition.team_pool(spec.conductor or "fixed:single"):
            own = self.composition.pool(team)
            return lambda _: own
        if not self._counts(spec):
            return lambda _: shared
        return lambda item: self._counted(shared, answer_form(item), spec.weights)

    @staticmethod
    def _with_one(pool: Pool, one: Member, form: AnswerForm, *, votes: bool) -> Pool:
        """Return the pool with the one agent, and a vote counter where it is asked several times."""
        counter = [Member(Card(VOTE, kind="vote"), VoteWorker(form))] if votes else []
        return Pool([*pool, one, *counter])

    def _brought(self, spec: EntrantSpec) -> Callable[[TaskItem], Pool]:
        if not self.tasks.bundled:
            raise ConfigError(f"taskset {self.tasks.name}: there are no workers")
        if not self._counts(spec):
            return self.tasks.own_pool
        return lambda item: _with_vote_counters(self.tasks.own_pool(item), answer_form(item), spec.weights)

    def _counted(self, pool: Pool, form: AnswerForm, weights: tuple[float, ...]) -> Pool:
        """Return the pool with the vote counters appended, by which fixed topologies may join answers."""
        key = (form, weights)
        if key not in self._pools:
            self._pools[key] = _with_vote_counters(pool, form, weights)
        return self._pools[key]

    def _version(self, spec: EntrantSpec) -> str:
        """Return the version of an entrant."""
        setup, pool = self.setup, self.tasks.pool
        configured = pool is not None and setup.log is None
        names = pool.names if pool is not None else setup.workers
        judge = setup.judge and self.composition.fingerprint(setup.judge)
        others = [spec.weights, setup.reply, setup.log, judge, () if configured else names]
        others += [more for more in (spec.pool, spec.subtask) if more]
        if spec.part is EntrantRole.ONE_AGENT:
            others.append(f"one agent {spec.worker} {spec.repeats}")
        conductor = spec.conductor or f"fixed:single?worker={spec.worker}"
        return entrant_version(self.composition, conductor, names if configured else (), others)


def only_reads(pool: Pool) -> bool:
    """Return whether every tool of the pool's agents is known to read, so that an agent may be asked again."""
    sources = [source for member in pool if member.agent is not None for source in member.agent.sources]
    lists = [source for source in sources if isinstance(source, WorkerTools)]
    return len(lists) == len(sources) and all(each.effect is ToolEffect.READ for one in lists for each in one.workers)


def unite_agents(pool: Pool, model: str) -> Member:
    """Return one agent with the model of this one, the tools of all, and as many turns as all have together."""
    agents = [member.agent for member in pool if member.agent is not None]
    chosen = pool.named(model)
    if chosen.agent is None:
        raise ConfigError(f"{model!r} is no agent: it cannot have the tools of the others")
    sources = [source for agent in agents for source in agent.sources]
    lists = [source for source in sources if isinstance(source, WorkerTools)]
    workers = {each.member.card.name: each for source in lists for each in source.workers}
    catalogues = {source.name: source for source in sources if not isinstance(source, WorkerTools)}
    united = (*([WorkerTools(tuple(workers.values()))] if workers else ()), *catalogues.values())
    turns, offer = sum(agent.turns for agent in agents), max(agent.offer for agent in agents)
    agent = replace(chosen.agent, sources=united, turns=turns, offer=offer)
    return replace(chosen, card=replace(chosen.card, name=ONE_AGENT), agent=agent)


@asynccontextmanager
async def open_stage(setup: EvaluationSetup, part: str = "0") -> AsyncIterator[EvaluationStage]:
    """Open the stage; `part` names this process among those of the same evaluation."""
    async with AsyncExitStack() as stack:
        composition = load_config(Path(setup.config) if setup.config else None)
        if setup.workers == (SIMULATED,) and SIMULATED not in composition.names:
            composition.simulate()
        stack.push_async_callback(composition.aclose)
        calls = ResponseCache(Path(setup.keep), part)
        stack.push_async_callback(calls.aclose)
        purse = EvaluationBudget(setup.dollars)
        composition.wrap = _reply_cache(composition, calls, purse)
        composition.wrap_tool = _reply_cache(composition, calls, purse, keeps=False)
        sandbox = sandbox_named(setup.sandbox)
        tools = GraderTools(sandbox, open_judge(composition, setup.judge))
        gathered = load_evaluation_tasks(setup, composition, tools)
        if gathered.pool is not None:
            refuse_vote_counter_names(gathered.pool)
        for card in gathered.pool.cards if gathered.pool is not None and setup.log is not None else ():
            refuse_worker(card, 0.0, None, composition.caps.dollars)
        if any(item.grader.name == "code" for item in (*gathered.items, *gathered.dev)):
            await sandbox.probe()
        recorder: Recorder = MemoryRecorder()
        if setup.journal:
            recorder = await stack.enter_async_context(open_journal(setup.journal))
        player = TaskRunner(
            Engine(recorder, secret_store=composition.secret_store, guarded_labels=composition.guarded_labels),
            recorder,
            setup.evaluation,
            composition.caps,
            composition.settings.reward.weights(),
            purse,
            composition.resolved(),
        )
        yield EvaluationStage(setup, composition, gathered, player)


def _reply_cache(
    composition: Container, calls: ResponseCache, purse: EvaluationBudget, *, keeps: bool = True
) -> Callable[[Member], Member]:
    def wrap(member: Member) -> Member:
        fingerprint = composition.fingerprint(member.card.name)
        refuse_worker(member.card, composition.settings.reward.cost, purse.limit, composition.caps.dollars)
        if fingerprint is None or member.card.kind in UNCACHED_KINDS:
            return member
        return replace(member, worker=CachedWorker(member, fingerprint, calls, purse, keeps=keeps))

    return wrap


def _with_vote_counters(pool: Pool, form: AnswerForm, weights: tuple[float, ...]) -> Pool:
    votes = {VOTE: VoteWorker(form), WEIGH: VoteWorker(form, weights)}
    return Pool(
        [*pool, *(Member(Card(name, kind="vote"), vote) for name, vote in votes.items() if name not in pool.names)]
    )


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the garbage collector from scanning all tasks and samples again and again; not where objects are frozen."""
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(
        200_000, 20, 100
    )  # more objects than a thousand runs in flight hold, or each wave of them is scanned
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def answer_form(item: TaskItem) -> AnswerForm:
    """Return the canonical form in which answers to this task are compared."""
    form = getattr(item.grader, "form", None)
    return form if isinstance(form, AnswerForm) else AnswerForm.TEXT
