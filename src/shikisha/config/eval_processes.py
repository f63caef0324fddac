"""Evaluation in several processes: each opens the same stage and runs its shard of the tasks.

    python -m shikisha.config.eval_processes NAME    reads a line of JSON with the setup and the tasks at once, then a
                                                     line for each batch of jobs; writes a line for each sample, then
                                                     an empty line at the end of the batch

Invariants: a task always belongs to the same shard, so that no two shards pay for the same call; when the parent
process is gone, the input of a shard ends and so does the shard; an error in a shard ends the evaluation.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TextIO

from shikisha.config.environment import event_loop_factory
from shikisha.config.eval_setup import EvaluationStage, frozen_heap, open_stage
from shikisha.config.eval_tasks import EvaluationSetup
from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.evals.baselines import EntrantSpec
from shikisha.evals.runner import EvaluationJob, LocalExecutor, SampleCallback
from shikisha.evals.samples import Entrant, Sample
from shikisha.evals.taskset import TaskItem

_LONGEST_LINE = 2**26
_STOP_SECONDS = 5.0  # seconds for a shard to end by itself
_LINES_AT_ONCE = 64  # lines written at once; a pipe holds as many
_FLUSH_SECONDS = 0.1  # seconds between writes while there are lines


def encode_batch(jobs: Sequence[EvaluationJob], specs: Mapping[str, EntrantSpec]) -> str:
    """Return jobs as a line of JSON: for each entrant its specification and [task id, attempt] pairs."""
    grouped: dict[str, list[tuple[str, int]]] = {}
    for job in jobs:
        grouped.setdefault(job.entrant.name, []).append((job.item.task.id, job.attempt))
    return json.dumps([{"spec": specs[name].to_json(), "tasks": tasks} for name, tasks in grouped.items()])


def shard_of(item: TaskItem, parts: int) -> int:
    """Return the shard of this task."""
    return int(item.task.content_hash[:12], 16) % parts


class EvaluationShard:
    """The share of an evaluation that one process runs."""

    def __init__(self, stage: EvaluationStage, at_once: int) -> None:
        self._stage = stage
        self._local = LocalExecutor(stage.player, at_once)
        self._items = {item.task.id: item for item in (*stage.tasks.items, *stage.tasks.dev)}
        self._entrants: dict[EntrantSpec, Entrant] = {}

    async def play(self, line: str, heard: SampleCallback) -> None:
        """Run a batch."""
        jobs = [
            EvaluationJob(entrant, self._items[task], attempt)
            for group in json.loads(line)
            for entrant in (self._entrant(EntrantSpec.of(group["spec"])),)
            for task, attempt in group["tasks"]
        ]
        await self._local.play(jobs, heard)

    def _entrant(self, spec: EntrantSpec) -> Entrant:
        if spec not in self._entrants:
            self._entrants[spec] = self._stage.entrant(spec)
        return self._entrants[spec]


class ProcessExecutor:
    """Runs jobs in processes of this machine. `specs` are the specifications of the entrants, by name."""

    def __init__(self, processes: Sequence[Process], specs: Mapping[str, EntrantSpec]) -> None:
        self._processes, self._specs = tuple(processes), specs

    async def play(self, jobs: Sequence[EvaluationJob], heard: SampleCallback) -> None:
        """Run the jobs, each in the shard of its task."""
        shares: list[list[EvaluationJob]] = [[] for _ in self._processes]
        for job in jobs:
            shares[shard_of(job.item, len(shares))].append(job)
        async with asyncio.TaskGroup() as group:
            for process, share in zip(self._processes, shares, strict=True):
                if share:
                    group.create_task(self._deal(process, share, heard))

    async def _deal(self, process: Process, share: Sequence[EvaluationJob], heard: SampleCallback) -> None:
        given, told = _pipes(process)
        with suppress(ConnectionError):  # then its output ends, too
            given.write(encode_batch(share, self._specs).encode() + b"\n")
            await given.drain()
        async for data in told:
            if data == b"\n":
                return
            if not data.endswith(b"\n"):
                break  # it was killed while it wrote
            line = data[:-1].decode()
            heard(Sample.loads(line), line)
        raise ConfigError(f"a process of this evaluation ended early (exit status {await process.wait()})")


@asynccontextmanager
async def start_processes(
    setup: EvaluationSetup, parts: int, at_once: int, specs: Mapping[str, EntrantSpec]
) -> AsyncIterator[ProcessExecutor]:
    """Start the processes; they end with the context."""
    async with AsyncExitStack() as stack:
        processes = []
        for number in range(parts):
            command = (sys.executable, "-m", "shikisha.config.eval_processes", str(number + 1))
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE)
            stack.push_async_callback(_stop_process, process)
            share = max(1, at_once // parts)
            _pipes(process)[0].write(f"{json.dumps([setup.dumps(), share])}\n".encode())
            processes.append(process)
        yield ProcessExecutor(processes, specs)


def _pipes(process: Process) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None:
        raise ConfigError("a process of this evaluation has no pipes")
    return process.stdin, process.stdout


async def _stop_process(process: Process) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def serve_shard(name: str, out: TextIO) -> None:
    """Be a shard: run the batches on stdin until it ends; write the samples to `out`."""
    reader = asyncio.StreamReader(_LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    setup, at_once = json.loads(await reader.readline() or b'["{}", 1]')
    async with open_stage(EvaluationSetup.loads(setup), name) as stage:
        part = EvaluationShard(stage, at_once)
        line = await reader.readline()
        with frozen_heap():
            while line:
                upcoming = asyncio.create_task(reader.readline())  # nothing comes during a batch, unless the input ends
                if not await _play_batch(part, line.decode(), upcoming, out):
                    return
                line = await upcoming


async def _play_batch(part: EvaluationShard, line: str, upcoming: asyncio.Task[bytes], out: TextIO) -> bool:
    """Run a batch and write its samples; False when the input ended meanwhile."""
    told = _SampleWriter(out)
    playing = asyncio.create_task(part.play(line, told.add))
    while not playing.done():
        await asyncio.wait((playing, upcoming), timeout=_FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if upcoming.done() and not playing.done():
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing
            return False
        told.flush()
    await playing
    out.write("\n")
    out.flush()
    return True


class _SampleWriter:
    """Writes samples for the parent process, many at a time, because every write wakes that process up."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: list[str] = []

    def add(self, _: Sample, line: str) -> None:
        """Add a sample's line."""
        self._lines.append(line)
        if len(self._lines) >= _LINES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what there is."""
        if self._lines:
            self._out.write("\n".join(self._lines) + "\n")
            self._out.flush()
            self._lines.clear()


def main() -> int:
    """Be the shard that the command line names; what a grading function of the user prints goes to stderr."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            runner.run(serve_shard(sys.argv[1], out))
    except ShikishaError as error:
        sys.stderr.write(f"shikisha: {error}\n")
        return 3
    except (KeyboardInterrupt, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
