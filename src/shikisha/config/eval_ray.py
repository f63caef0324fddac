"""Evaluation on a Ray cluster (extra `ray`): each machine opens the same stage and runs its shard of the tasks.

The folders that the setup names (log or taskset, configuration, the evaluation's own) and the working directory must
have the same path on every machine. Invariants: samples are those of one process, since the same shards run the same
jobs; a task belongs to one shard, and a shard to one machine; jobs and samples travel as lines of JSON. Replies that a
shard paid for stay on its machine, in the evaluation's folder: share that folder, or use the same cluster again after a
kill.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Protocol, cast

from shikisha.config.eval_processes import EvaluationShard, encode_batch, shard_of
from shikisha.config.eval_setup import open_stage
from shikisha.config.eval_tasks import EvaluationSetup
from shikisha.core.errors import ConfigError, MissingExtra, ShikishaError
from shikisha.evals.baselines import EntrantSpec
from shikisha.evals.runner import EvaluationJob, SampleCallback
from shikisha.evals.samples import Sample

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
