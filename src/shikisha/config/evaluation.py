"""Runs an evaluation: the stage, the entrants, the baselines, and the report; also what it may cost at most.

A conductor's calls on a task follow from its kind: the steps of a topology, else as many as rounds, plan length and
caps allow. The cost is what such calls reserve: the longest answer of each worker on the average task. Invariants: both
are upper bounds for one attempt at every step, and an unknown price makes the dollars unknown; samples that are kept
are paid for already; every entrant is looked up before the first call; after a limit, Ctrl-C or a kill the same command
continues.

Evaluation on a Ray cluster (extra `ray`): each machine opens the same stage and runs its shard of the tasks.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Protocol, cast

from rich.console import Console

from shikisha.conductors.fixed_conductors import AgreementConductor, CascadeConductor, FixedConductor
from shikisha.conductors.language_model import PLAN_ATTEMPTS, LanguageModelConductor
from shikisha.conductors.learned_conductor import LearnedConductor
from shikisha.config.eval_processes import EvaluationShard, encode_batch, shard_of, start_processes
from shikisha.config.eval_setup import EvaluationStage, frozen_heap, only_reads, open_stage, refuse_duplicate_names
from shikisha.config.eval_tasks import EvaluationSetup, contamination_note
from shikisha.config.grader_services import open_judge, sandbox_named
from shikisha.core.budget import Amount, Caps, format_dollars
from shikisha.core.call import Card, Request
from shikisha.core.errors import ConfigError, MissingExtra, ShikishaError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.plan import ANSWER, ANSWER_ALONE, MAX_STEPS
from shikisha.core.visibility import max_usage, request_messages
from shikisha.engine.conductor import BoundedConductor, Conductor, ReadingConductor
from shikisha.evals.baselines import BaselineMode, EntrantSpec, EvaluationPlan, requested_entrant
from shikisha.evals.entrant_metrics import EntrantInfo, EvaluationReport
from shikisha.evals.graders import GraderTools
from shikisha.evals.report import EvaluationInfo, build_report
from shikisha.evals.report_text import PARTS
from shikisha.evals.response_cache import UNCACHED_KINDS
from shikisha.evals.runner import (
    Evaluation,
    EvaluationJob,
    EvaluationStop,
    Executor,
    LocalExecutor,
    SampleCallback,
    refusal_of,
)
from shikisha.evals.samples import Entrant, Sample, SampleStore, lock_folder
from shikisha.evals.taskset import TaskItem
from shikisha.evals.terminal_report import console_progress

_BATCH_JOBS = 64  # the most jobs that are lost with a machine, and that come back at a time
_BATCHES_AHEAD = 2  # batches that a shard has ahead of it, so that it never waits


class _RemoteShardHandle(Protocol):
    """A shard on another machine, as Ray returns it."""

    async def play(self, line: str) -> list[str]:
        """Run a batch and return the samples."""
        ...


class RemoteShard:
    """The actor that runs on the cluster."""

    def __init__(self, setup: str, name: str, at_once: int, folder: str) -> None:
        self._setup, self._name, self._at_once, self._folder = setup, name, at_once, folder
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._part: EvaluationShard | None = None

    async def play(self, line: str) -> list[str]:
        """Run a batch; return the samples as lines, or one line `!MESSAGE` after an error."""
        try:
            async with self._opening:
                if self._part is None:
                    os.chdir(self._folder)  # the process belongs to this shard alone
                    stage = await self._stack.enter_async_context(
                        open_stage(EvaluationSetup.loads(self._setup), self._name)
                    )
                    self._part = EvaluationShard(stage, self._at_once)
            found: list[str] = []
            await self._part.play(line, lambda _, line: found.append(line))
        except (ShikishaError, OSError) as error:
            return [f"!{error}"]
        return found


class RayExecutor:
    """Runs jobs on the shards of the cluster."""

    def __init__(self, parts: Sequence[_RemoteShardHandle], specs: Mapping[str, EntrantSpec]) -> None:
        self._parts, self._specs = tuple(parts), specs

    async def play(self, jobs: Sequence[EvaluationJob], heard: SampleCallback) -> None:
        """Run the jobs, each in the shard of its task."""
        shares: list[list[EvaluationJob]] = [[] for _ in self._parts]
        for job in jobs:
            shares[shard_of(job.item, len(shares))].append(job)
        async with asyncio.TaskGroup() as group:
            for part, share in zip(self._parts, shares, strict=True):
                batches = iter([share[start : start + _BATCH_JOBS] for start in range(0, len(share), _BATCH_JOBS)])
                for _ in range(_BATCHES_AHEAD):
                    group.create_task(self._deal(part, batches, heard))

    async def _deal(
        self, part: _RemoteShardHandle, batches: Iterator[Sequence[EvaluationJob]], heard: SampleCallback
    ) -> None:
        for each in batches:
            for line in await part.play(encode_batch(each, self._specs)):
                if line.startswith("!"):
                    raise ConfigError(f"on the cluster: {line[1:]}")
                heard(Sample.loads(line), line)


@asynccontextmanager
async def join_ray_cluster(
    address: str, setup: EvaluationSetup, at_once: int, specs: Mapping[str, EntrantSpec]
) -> AsyncIterator[RayExecutor]:
    """Join the cluster at this address (`auto`: the one this machine belongs to); its shards end with the context."""
    try:
        ray = cast("_RayModule", import_module("ray"))
    except ImportError:
        raise MissingExtra("ray", "--ray") from None
    try:
        await asyncio.to_thread(ray.init, address=address, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--ray {address}: {error}") from None
    # The id of each machine once for each core, machines in the order of their addresses.
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=_node_address)
    found = [str(node["NodeID"]) for node in nodes for _ in range(_core_count(node))]
    if not found:
        raise ConfigError("--ray: no machine of the cluster has a free core")
    places = found
    affinity = cast("_NodeAffinity", import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy)
    lost = cast("type[Exception]", import_module("ray.exceptions").RayError)
    given = (setup.dumps(), max(1, at_once // len(places)), os.getcwd())
    actors = [
        ray.remote(num_cpus=1, scheduling_strategy=affinity(place, soft=False))(RemoteShard).remote(
            given[0], f"ray-{number}", *given[1:]
        )
        for number, place in enumerate(places)
    ]
    try:
        yield RayExecutor([_ActorHandle(actor, lost) for actor in actors], specs)
    finally:
        for actor in actors:
            ray.kill(actor)


def _node_address(node: Mapping[str, object]) -> tuple[str, str]:
    return str(node["NodeManagerAddress"]), str(node["NodeID"])


def _core_count(node: Mapping[str, object]) -> int:
    resources = node["Resources"]
    return int(resources.get("CPU", 0)) if isinstance(resources, Mapping) else 0


class _ActorHandle:
    """An actor behind the protocol of a shard; ConfigError when it is lost."""

    def __init__(self, actor: object, lost: type[Exception]) -> None:
        self._actor, self._lost = actor, lost

    async def play(self, line: str) -> list[str]:
        """Run a batch on the actor."""
        method = cast("_ActorMethod", getattr(self._actor, "play"))  # noqa: B009 - Ray makes its attributes as it goes
        try:
            return await method.remote(line)
        except self._lost as error:
            said = str(error).strip().splitlines() or [""]
            raise ConfigError(f"on the cluster: {type(error).__name__}: {said[-1]}") from None


class _RayModule(Protocol):
    """The part of Ray that is used here; its own annotations are incomplete."""

    def init(self, *, address: str, log_to_driver: bool, ignore_reinit_error: bool) -> object:
        """Join a cluster."""
        ...

    def nodes(self) -> Sequence[Mapping[str, object]]:
        """Return the cluster's machines."""
        ...

    def remote(self, *, num_cpus: int, scheduling_strategy: object) -> Callable[[type[RemoteShard]], "_ActorFactory"]:
        """Return the decorator that makes actors."""
        ...

    def kill(self, actor: object) -> None:
        """End an actor."""
        ...


class _NodeAffinity(Protocol):
    def __call__(self, node_id: str, *, soft: bool) -> object: ...


class _ActorFactory(Protocol):
    def remote(self, setup: str, name: str, at_once: int, folder: str) -> object:
        """Start an actor somewhere."""
        ...


class _ActorMethod(Protocol):
    def remote(self, line: str) -> Awaitable[list[str]]:
        """Send the call."""
        ...


_SAMPLED_TASKS = 50  # tasks that the average call is estimated from
_MAX_REPEATS = MAX_STEPS - 1  # the most calls of self-consistency


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The most calls and dollars (None: a price is unknown)."""

    calls: int = 0
    dollars: float | None = 0.0

    def __add__(self, other: "CostEstimate") -> "CostEstimate":
        unknown = self.dollars is None or other.dollars is None
        return CostEstimate(
            self.calls + other.calls, None if unknown else (self.dollars or 0.0) + (other.dollars or 0.0)
        )

    def __str__(self) -> str:
        calls = f"{self.calls:,} paid call{'' if self.calls == 1 else 's'}"
        return f"{calls} (a price is unknown)" if self.dollars is None else f"{calls}, {format_dollars(self.dollars)}"


def is_paid(card: Card) -> bool:
    """Return whether a call to this worker costs money, or may cost money."""
    return card.kind not in UNCACHED_KINDS and (
        card.price is None or any((card.price.input, card.price.output, card.price.call))
    )


def paid_workers(stage: EvaluationStage) -> tuple[str, ...]:
    """Return the names of the paid workers; none where they are simulated or replayed."""
    pool = stage.tasks.pool
    if pool is None or stage.setup.log is not None or stage.composition.simulated_pool is not None:
        return ()
    return tuple(card.name for card in pool.cards if is_paid(card))


def estimate_costs(
    stage: EvaluationStage,
    controls: BaselineMode,
    conductors: Sequence[str],
    missing: Callable[[Entrant, TaskItem], bool],
) -> tuple[CostEstimate, CostEstimate]:
    """Return what the conductors may cost, and what the baselines may; `missing` says what has not run yet."""
    estimator = _CostEstimator(stage, missing)
    wanted = estimator.of([requested_entrant(name, {}) for name in conductors], stage.tasks.items)
    if controls is not BaselineMode.ALL:
        return wanted, CostEstimate()
    gathered, casts = stage.tasks, stage.tasks.casts
    both = list({item.task.id: item for item in (*gathered.items, *gathered.dev)}.values())
    singles = casts.singles()
    fixed = casts.candidates({}) if gathered.dev else []
    baselines = estimator.of(singles, both) + estimator.of([casts.random()], gathered.items)
    baselines += estimator.of(fixed, gathered.dev)
    most_expensive = max(
        (estimator.of([spec], gathered.items) for spec in fixed), key=_cost_rank, default=CostEstimate()
    )
    again = max(
        (estimator.of([spec], gathered.items, _MAX_REPEATS) for spec in singles), key=_cost_rank, default=CostEstimate()
    )
    return wanted, baselines + most_expensive + again


def _cost_rank(one: CostEstimate) -> tuple[float, int]:
    return one.dollars or 0.0, one.calls


class _CostEstimator:
    """Estimates costs on one stage, from what an average call to each worker may cost at most."""

    def __init__(self, stage: EvaluationStage, missing: Callable[[Entrant, TaskItem], bool]) -> None:
        self._stage, self._missing = stage, missing
        self._dollars: dict[str, float | None] = {}

    def of(self, specs: Iterable[EntrantSpec], items: Sequence[TaskItem], times: int = 1) -> CostEstimate:
        """Return what these entrants may cost on these tasks, each asked so many times."""
        total = CostEstimate()
        for spec in specs:
            entrant = self._stage.entrant(spec)
            count = times * sum(self._missing(entrant, item) for item in items)
            if count and items:
                total += _multiply(self._run(entrant.conductor, entrant.pool(items[0]).cards), count)
        return total

    def _run(self, conductor: Conductor, cards: tuple[Card, ...]) -> CostEstimate:
        """Return what one run may cost at most."""
        caps = self._stage.player.caps
        match conductor:
            case FixedConductor():
                return self._calls([cards[step.worker] for step in conductor.plan(cards).steps])
            case CascadeConductor() | AgreementConductor():
                return self._calls([cards[ordinal] for ordinal in conductor.assign_workers(cards)])
            case BoundedConductor():
                bounds = conductor.bounds(caps)
                asked = self._run(bounds.inner, cards) if bounds.inner is not None else CostEstimate()
                most = self._most(cards, bounds.rounds, replace(caps, plan_steps=1, map_items=0))
                return self._calls(bounds.asks) + asked + most
            case LearnedConductor():
                planned = self._run(conductor.proposer, cards)
                return planned + self._most(cards, caps.rounds, caps)
            case ReadingConductor():
                return self._most(cards, caps.rounds, caps)
            case LanguageModelConductor():
                rounds = min(conductor.rounds, caps.rounds)
                return _multiply(self._calls([conductor.member.card]), PLAN_ATTEMPTS * rounds) + self._most(
                    cards, rounds, caps
                )
            case _:
                return self._most(cards, 1, caps)

    def _most(self, cards: Sequence[Card], rounds: int, caps: Caps) -> CostEstimate:
        """Return what the most allowed steps may cost, each by the most expensive worker."""
        each = max((self._calls([card]) for card in cards), key=_cost_rank, default=CostEstimate())
        return _multiply(each, min(caps.steps, rounds * caps.plan_steps * max(1, caps.map_items)))

    def _calls(self, cards: Sequence[Card]) -> CostEstimate:
        total = CostEstimate()
        for card in cards:
            if is_paid(card):
                total += CostEstimate(1, self._mean(card))
        return total

    def _mean(self, card: Card) -> float | None:
        if card.name not in self._dollars:
            items = self._stage.tasks.items[:_SAMPLED_TASKS]
            needs: list[Amount] = [max_usage(request_messages(Request(item.task, ANSWER)), card) for item in items]
            known = [need.dollars for need in needs if need.dollars is not None]
            self._dollars[card.name] = fmean(known) if known and len(known) == len(needs) else None
        return self._dollars[card.name]


def _multiply(one: CostEstimate, count: int) -> CostEstimate:
    return CostEstimate(one.calls * count, None if one.dollars is None else one.dollars * count)


_MANY_RUNS = 3_000  # runs from which more than one process pays off
_STOP_REASONS = {
    EvaluationStop.DOLLARS: "the limit of dollars was reached",
    EvaluationStop.SECONDS: "the limit of seconds was reached",
}


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """What to evaluate: the setup, the conductors, where to run, and the limits besides the setup's dollars.

    `against` are tasksets that are searched for the same tasks before the first run. `controls` None: all baselines
    where workers are free or no conductor is named, else those without further calls.
    """

    setup: EvaluationSetup
    conductors: tuple[str, ...] = ()
    at_once: int = 64
    processes: int | None = None
    ray: str | None = None
    seconds: float | None = None
    retry_failed: bool = False
    against: tuple[str, ...] = ()
    controls: BaselineMode | None = None


@dataclass(slots=True)
class EntrantFactory:
    """Makes entrants, and keeps the specification of each for other processes."""

    stage: EvaluationStage
    specs: dict[str, EntrantSpec] = field(default_factory=dict)

    def make(self, spec: EntrantSpec) -> Entrant:
        """Return the entrant."""
        known = self.specs.setdefault(spec.name, spec)
        if known != spec:
            raise ConfigError(f"two entrants are called {spec.name!r}")
        return self.stage.entrant(spec)


async def run_evaluation(plan: EvaluationRequest, console: "Console") -> EvaluationReport:
    """Evaluate, and return the report; `console` shows the progress."""
    begun = perf_counter()
    async with AsyncExitStack() as stack:
        stack.enter_context(lock_folder(Path(plan.setup.keep)))
        stage = await stack.enter_async_context(open_stage(plan.setup))
        factory = EntrantFactory(stage)
        wanted = [requested_entrant(name, {}) for name in plan.conductors]
        for spec in wanted:
            stage.entrant(spec)  # an unknown one is an error before the first run
        paid = paid_workers(stage)
        controls = plan.controls or (BaselineMode.FREE if paid and plan.conductors else BaselineMode.ALL)
        casts = stage.tasks.casts
        refuse_duplicate_names([*casts.singles(), casts.random(), *wanted])
        notes = _overlap_notes(plan, stage)
        keep = SampleStore(Path(plan.setup.keep), _identity(stage))
        stack.push_async_callback(keep.aclose)
        console.print(f"samples are kept in {keep.folder}", soft_wrap=True)
        executor = await stack.enter_async_context(_open_executor(plan, stage, factory))
        shown = stack.enter_context(console_progress(console))
        evaluation = Evaluation(keep, executor, _deadline(plan.seconds), plan.retry_failed, shown.add_sample)
        gathered = stage.tasks
        if paid:
            _print_cost(console, controls, estimate_costs(stage, controls, plan.conductors, evaluation.missing))
        course = EvaluationPlan(
            evaluation,
            gathered.casts,
            factory.make,
            gathered.items,
            gathered.dev,
            plan.conductors,
            shown.begin,
            controls,
            ANSWER_ALONE,
            tuple(member.card.name for member in gathered.pool or () if member.agent is not None),
            gathered.pool is not None and only_reads(gathered.pool),
        )
        with frozen_heap():
            await course.run()
    return _build_report(stage, course, perf_counter() - begun, notes)


def _overlap_notes(plan: EvaluationRequest, stage: EvaluationStage) -> tuple[str, ...]:
    if not plan.against:
        return ()
    tools = GraderTools(sandbox_named(plan.setup.sandbox), open_judge(stage.composition, plan.setup.judge))
    return tuple(contamination_note(stage.tasks.items, plan.setup, other, tools) for other in plan.against)


def _print_cost(console: "Console", controls: BaselineMode, found: tuple[CostEstimate, CostEstimate]) -> None:
    """Print what the evaluation may cost, before the first call."""
    wanted, baselines = found
    more = f"; the baselines at most {baselines}" if controls is BaselineMode.ALL else ""
    console.print(f"The conductors make at most {wanted}{more} (--controls {controls})", markup=False, soft_wrap=True)


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _identity(stage: EvaluationStage) -> dict[str, object]:
    caps = stage.composition.settings.budgets.model_dump(mode="json")
    weights = stage.composition.settings.reward.model_dump(mode="json")
    return {"taskset": stage.tasks.name, "budgets": caps, "reward": weights, "judge": stage.setup.judge}


@asynccontextmanager
async def _open_executor(
    plan: EvaluationRequest, stage: EvaluationStage, factory: EntrantFactory
) -> AsyncIterator[Executor]:
    if plan.ray is not None:
        _refuse_limit(plan, "a Ray cluster")
        async with join_ray_cluster(plan.ray, plan.setup, plan.at_once, factory.specs) as cluster:
            yield cluster
        return
    count = plan.processes or _process_count(plan, stage)
    if count == 1:
        yield LocalExecutor(stage.player, plan.at_once)
        return

    _refuse_limit(plan, "several processes")
    async with start_processes(plan.setup, count, plan.at_once, factory.specs) as processes:
        yield processes


def _refuse_limit(plan: EvaluationRequest, where: str) -> None:
    if plan.setup.dollars is not None:
        raise ConfigError(f"--dollars: the budget is kept by one process, and cannot be shared with {where}")


def _process_count(plan: EvaluationRequest, stage: EvaluationStage) -> int:
    """Return how many processes pay off: all cores for many runs that wait for no network, else one."""
    gathered = stage.tasks
    entrants = len(gathered.casts.singles()) + len(plan.conductors) + 1
    waits = plan.setup.log is None or plan.setup.dollars is not None
    return 1 if waits or entrants * len(gathered.items) < _MANY_RUNS else len(os.sched_getaffinity(0))


def _build_report(
    stage: EvaluationStage, course: EvaluationPlan, seconds: float, notes: tuple[str, ...]
) -> EvaluationReport:
    gathered, stopped = stage.tasks, course.evaluation.stopped
    keep = course.evaluation.store
    samples = {entrant.name: keep.samples_of(entrant, items) for entrant, items in course.played}
    refused = {name: why for name, held in samples.items() if (why := refusal_of(held))}
    samples = {name: held for name, held in samples.items() if name not in refused}
    why = "; ".join(f"not measured: {name}, whose every call was refused ({said})" for name, said in refused.items())
    if refused and not any(samples.values()):
        raise ConfigError(why)
    workers = gathered.pool.names if gathered.pool is not None else ()
    if stage.setup.judge and any(sample.judged for held in samples.values() for sample in held):
        said = f"agreement with other grades: not measured (shikisha eval grade LOG --judge {stage.setup.judge})"
        notes += (f"judged by {stage.setup.judge}; {said}",)
    about = EvaluationInfo(
        gathered.name,
        gathered.version,
        {item.task.id: item.task.content_hash for item in gathered.items},
        workers,
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        (*gathered.notes, *notes, *course.notes),
        seconds,
        stopped is None and not refused,
        "; ".join(filter(None, (_STOP_REASONS[stopped] if stopped else "", why))),
        {item.task.id: item.dimensions for item in gathered.items},
    )
    order = list(PARTS)
    asked_first = sorted(course.played, key=lambda played: order.index(played[0].part))
    measured = [EntrantInfo.of(entrant) for entrant, _ in asked_first if entrant.name in samples]
    return build_report(measured, samples, about)
