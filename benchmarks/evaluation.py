"""What evaluating costs: recorded answers through the whole command, and the overhead over the calls themselves.

    python benchmarks/evaluation.py [--folder ../shared/recorded] [--part recorded|overhead|marginal] [--json]

The first part is `shikisha eval` on all MMLU-Pro tasks that are recorded, 13 workers, one topology and everything that
always stands beside it (random plans, the best fixed topology chosen on dev tasks, the oracle, the page), as a user
would call it; memory is that of all its processes together (PSS, sampled ten times a second). The second part keeps
1,000 tasks in flight for scripted workers that take 100 ms, and holds the evaluation (its response cache included)
against the same calls made by a bare loop in as many processes, in the same run. The third part is what one more call
costs in CPU time, of this process and the one that performs: the difference between evaluations of 5,000 and of 1,000
tasks, so that starting is left out, with a worker in the process, and with a model over HTTP that streams its answer at
once (the endpoint's own time is left out). `PYTHONPATH=CHECKOUT/src` measures another version of the code.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import aiohttp
import psutil

from common import Figure, report
from shikisha.config.eval_processes import start_processes
from shikisha.config.eval_setup import open_stage
from shikisha.config.eval_tasks import EvaluationSetup
from shikisha.evals.baselines import EntrantSpec
from shikisha.evals.runner import Evaluation
from shikisha.evals.samples import SampleStore

FOLDER = Path(__file__).parent.parent.parent / "shared" / "recorded"
MP13 = (
    *("gpt4o@hist", "gemini-1.5-pro-002", "gemini-1.5-flash-002", "Meta-Llama-3_1-70B-Instruct", "jamba-1.5-large"),
    *("Qwen1.5-72B-Chat", "Meta-Llama-3_1-8B-Instruct", "Phi-3-mini-4k-instruct", "Mixtral-8x7B-Instruct-v0.1"),
    *("mathstral-7B", "c4ai-command-r-v01", "gemma-7b", "Mistral-7B-Instruct-v0.2"),
)
IN_FLIGHT = 1_000
CONFIG = '[workers.slow]\nkind = "scripted"\nanswers = "4"\nseconds = [{seconds}]\n'


CALLED = """[workers.slow]
kind = "chat"
model = "m"
base_url = "{url}"
price = {{input = 1.0, output = 1.0, as_of = 2026-01-01}}
"""
FEW, MANY, ROUNDS, CALLED_AT_ONCE = 1_000, 5_000, 3, 64


@dataclass(frozen=True)
class Load:
    """How many processes make how many calls, so many a task one after another, each of so many seconds."""

    processes: int
    calls: int
    seconds: float = 0.1

    @property
    def total(self) -> int:
        """How many calls are made in all."""
        return int(3_000 / self.seconds)

    def __str__(self) -> str:
        processes = f"{self.processes} process{'es' if self.processes > 1 else ''}"
        calls = f"{self.calls} call{'s' if self.calls > 1 else ''} a task"
        return f"{self.seconds:g} s, {calls}, {processes}"


@dataclass
class Memory:
    """The most memory that a process and its children had together, in bytes."""

    most: int = 0

    def watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Look until the process has ended."""
        while process.poll() is None:
            self.most = max(self.most, _together(process.pid))
            threading.Event().wait(0.1)


def _together(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for each in (root, *root.children(recursive=True)):
            total += each.memory_full_info().pss
    except psutil.Error:
        pass
    return total


def recorded(folder: Path) -> list[Figure]:
    """Evaluate as a user would."""
    with tempfile.TemporaryDirectory() as made:
        command = [
            *(sys.executable, "-m", "shikisha", "eval", "--log", str(folder / "mmlu-pro")),
            *("--workers", ",".join(MP13), "--conductor", f"fixed:single?worker={MP13[0]}"),
            *("--keep", f"{made}/kept", "--json", f"{made}/report.json", "--html", f"{made}/report.html"),
        ]
        begun, memory = perf_counter(), Memory()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own
        memory.watch(process)
        seconds = perf_counter() - begun
        data = json.loads(Path(made, "report.json").read_text())
        runs = sum(entry["tasks"] + entry["ungraded"] for entry in data["entries"] if entry["part"] != "oracle")
    return [
        Figure("8,398 MMLU-Pro tasks × 13 workers, one topology, page: in all", seconds, "s", 60),
        Figure("memory of all its processes together", memory.most / 2**20, "MiB", 500),
        Figure("runs reported", runs, "runs"),
        Figure("runs reported a second, all in", runs / seconds, "runs/s"),
    ]


async def bare(load: Load) -> float:
    """Make the calls in a bare loop, 1,000 in flight over all processes; return the seconds it took."""
    script = (
        "import asyncio, time\n"
        "async def pull(left):\n"
        f"    for _ in left: await asyncio.sleep({load.seconds})\n"
        "async def main():\n"
        f"    left = iter(range({load.total // load.processes}))\n"
        f"    await asyncio.gather(*(pull(left) for _ in range({IN_FLIGHT // load.processes})))\n"
        "begun = time.perf_counter(); asyncio.run(main()); print(time.perf_counter() - begun)\n"
    )
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
        for _ in range(load.processes)
    ]
    outputs = [(await process.communicate())[0] for process in processes]
    return max(float(output) for output in outputs)


def write_setup(folder: Path, config: str, tasks: int) -> EvaluationSetup:
    """Write the configuration and as many tasks into a folder."""
    (folder / "shikisha.toml").write_text(config)
    rows = [{"id": f"t{n}", "prompt": f"{n}: 2 + 2?", "checker": "number", "answer": "4"} for n in range(tasks)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return EvaluationSetup(
        str(folder / "kept"), taskset=str(folder / "tasks.jsonl"), config=str(folder / "shikisha.toml")
    )


async def evaluated(load: Load, folder: Path) -> float:
    """Evaluate as many calls; return the seconds until the last sample is kept."""
    tasks = load.total // load.calls
    setup = write_setup(folder, CONFIG.format(seconds=load.seconds), tasks)
    spec = EntrantSpec("slow", "fixed:single" if load.calls == 1 else f"fixed:chain?workers=slow&n={load.calls}")
    async with open_stage(setup) as stage:
        items = stage.tasks.items
        async with start_processes(setup, load.processes, IN_FLIGHT, {spec.name: spec}) as processes:
            keep = SampleStore(Path(setup.keep), {"taskset": "tasks"})
            entrant = stage.entrant(spec)
            await Evaluation(keep, processes).play([entrant], items[:100])  # every part has set its stage
            begun = perf_counter()
            await Evaluation(keep, processes).play([entrant], items)
            seconds = perf_counter() - begun
            await keep.aclose()
    return seconds * tasks / (tasks - 100)


def overhead(cores: int) -> list[Figure]:
    """Hold the evaluation against the bare loop."""
    figures, aimed = [], (Load(cores, 1), Load(cores, 5))
    for load in (Load(1, 1), *aimed, Load(cores, 1, 1.0)):
        with tempfile.TemporaryDirectory() as folder:
            alone, ours = asyncio.run(bare(load)), asyncio.run(evaluated(load, Path(folder)))
        figures += [
            Figure(f"{load.total:,} calls, 1,000 in flight, bare: {load}", alone, "s"),
            Figure(f"the same evaluated: {load}", ours, "s"),
            Figure(f"overhead: {load}", 100 * (ours / alone - 1), "%", 10 if load in aimed else None),
        ]
    return figures


async def evaluate_all(config: str, tasks: int, at_once: int) -> None:
    """Evaluate as many tasks in one process, from its start to its end."""
    with tempfile.TemporaryDirectory() as made:
        setup, spec = write_setup(Path(made), config, tasks), EntrantSpec("slow", "fixed:single")
        async with open_stage(setup) as stage, start_processes(setup, 1, at_once, {spec.name: spec}) as processes:
            keep = SampleStore(Path(setup.keep), {"taskset": "tasks"})
            await Evaluation(keep, processes).play([stage.entrant(spec)], stage.tasks.items)
            await keep.aclose()


async def ask_all(url: str, tasks: int) -> None:
    """Ask the endpoint as often with the HTTP library alone."""
    left = iter(range(tasks))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def pull() -> None:
            for number in left:
                body = {"model": "m", "messages": [{"role": "user", "content": f"{number}: 2 + 2?"}]}
                async with session.post(f"{url}/chat/completions", json=body) as response:
                    json.loads(await response.read())

        await asyncio.gather(*(pull() for _ in range(CALLED_AT_ONCE)))


def marginal(work: Callable[[int], Coroutine[None, None, None]]) -> float:
    """Return the microseconds of CPU time that one more task takes, here and in child processes: the best of three."""

    def spent(tasks: int) -> float:
        begun = _cpu_seconds()
        asyncio.run(work(tasks))
        return _cpu_seconds() - begun

    return min((spent(MANY) - spent(FEW)) / (MANY - FEW) for _ in range(ROUNDS)) * 1e6


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def one_more() -> list[Figure]:
    """Measure what one more call costs."""
    command = [sys.executable, str(Path(__file__).with_name("serving_endpoint.py")), "0"]
    endpoint = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    try:
        assert endpoint.stdout is not None
        url = f"http://127.0.0.1:{int(endpoint.stdout.readline())}/v1"
        inside, called = CONFIG.format(seconds=0.0), CALLED.format(url=url)
        return [
            Figure("one more call, in process", marginal(lambda n: evaluate_all(inside, n, IN_FLIGHT)), "µs", 400),
            Figure("the same over HTTP", marginal(lambda n: evaluate_all(called, n, CALLED_AT_ONCE)), "µs", 400),
            Figure("  the HTTP library alone, not streaming", marginal(lambda n: ask_all(url, n)), "µs"),
        ]
    finally:
        endpoint.kill()
        endpoint.wait()


def main() -> None:
    """Measure the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--part", choices=("recorded", "overhead", "marginal"))
    options, _ = parser.parse_known_args()
    figures = []
    if options.part in (None, "recorded") and options.folder.is_dir():
        figures += recorded(options.folder)
    if options.part in (None, "overhead"):
        figures += overhead(len(os.sched_getaffinity(0)))
    if options.part in (None, "marginal"):
        figures += one_more()
    report("evaluating", figures)


if __name__ == "__main__":
    main()
