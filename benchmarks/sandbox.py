"""What sandboxes cost and withstand: milliseconds a run, what is left of 1,000 runs, a second of flood, every attack.

    python benchmarks/sandbox.py [--json]

A run is `print(1)`. "plain" starts the interpreter without any sandbox, as subprocess.run does. The flood is read in a
process of its own, whose peak memory is compared with what it was after a few quiet runs.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter

from common import Figure, report
from shikisha.sandbox import security_probes
from shikisha.sandbox.availability import SANDBOX_NAMES, build_sandbox, probe_sandbox
from shikisha.sandbox.process_sandbox import ProcessSandbox, interpreter_path

ROUNDS = 100
MIB = 2**20
CAP = 500_000
FLOOD = f"""
import asyncio
from pathlib import Path
from shikisha.sandbox import SandboxLimits as Limits
from shikisha.sandbox.process_sandbox import ProcessSandbox as Jail

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

async def main():
    async with Jail(Limits(1, 2**28, {CAP}, 1_000), 1) as jail:
        for _ in range(3):
            await jail.run("print(1)", {{}})
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        await jail.run("import os\\nwhile True: os.write(1, b'x' * 2**20), os.write(2, b'x' * 2**20)", {{}})
        print(peak() - before)

asyncio.run(main())
"""


async def timed(what: str, once: Callable[[], Awaitable[object]], aim: float | None = None) -> Figure:
    """Return the median milliseconds of a call."""
    await once()
    taken = []
    for _ in range(ROUNDS):
        begun = perf_counter()
        await once()
        taken.append(perf_counter() - begun)
    return Figure(what, 1000 * median(taken), "ms", aim)


async def plain(*options: str) -> None:
    """Start the interpreter without a sandbox."""
    command = [interpreter_path(), *options, "-c", "print(1)"]
    await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, check=True))  # noqa: S603 - our own


async def costs() -> list[Figure]:
    """Return milliseconds a run: plain, and in every sandbox that there is."""
    figures = [await timed("plain", plain), await timed("plain, isolated and without site", lambda: plain("-I", "-S"))]
    for name in SANDBOX_NAMES:
        if probe_sandbox(name).trouble is not None:
            continue
        sandbox = build_sandbox(name)
        begun = perf_counter()
        await sandbox.run("print(1)", {})
        figures.append(Figure(f"{name}, the first run", 1000 * (perf_counter() - begun), "ms"))
        aim = figures[1].value + 20 if name == "jail" else None
        figures.append(await timed(name, lambda sandbox=sandbox: sandbox.run("print(1)", {}), aim))  # type: ignore[misc]
        await sandbox.aclose()
    return figures


async def left_over() -> list[Figure]:
    """Return what 1,000 runs leave, 100 at a time, a tenth of each kind of ending."""
    endings = ["1", "1 / 0", "import os\nos._exit(3)", "import os\nos.fork()", "import os\nos.abort()"]
    ours = {entry.process for entry in security_probes.descendant_processes(security_probes.list_processes())}
    descriptors = len(os.listdir("/proc/self/fd"))
    begun = perf_counter()
    async with ProcessSandbox() as jail:
        for _ in range(10):
            await asyncio.gather(*(jail.run(endings[i % len(endings)], {}) for i in range(100)))
        seconds = perf_counter() - begun
        base = str((await jail.run("import os\nos.path.dirname(os.getcwd())", {})).value)
        folders = len(os.listdir(base))
    left = {entry.process for entry in security_probes.descendant_processes(security_probes.list_processes())} - ours
    return [
        Figure("1,000 runs: processes left", len(left), "", 0),
        Figure("1,000 runs: folders left", folders, "", 0),
        Figure("1,000 runs: descriptors left", len(os.listdir("/proc/self/fd")) - descriptors, "", 0),
        Figure("1,000 runs", seconds, "s"),
    ]


def flood() -> Figure:
    """Return by how much we grow while a program floods us."""
    told = subprocess.run([sys.executable, "-c", FLOOD], capture_output=True, text=True, check=True)  # noqa: S603
    return Figure("growth under a flood, cap of 0.48 MiB", int(told.stdout) * 1024 / MIB, "MiB", CAP / MIB + 1)


def probes() -> list[Figure]:
    """Return how many attacks got through, in every sandbox that there is."""
    verdicts = [verdict for verdict in map(probe_sandbox, SANDBOX_NAMES) if verdict.trouble is None]
    return [
        Figure(f"{v.name}: of {len(v.findings)} attacks not blocked", sum(not f.blocked for f in v.findings), "", 0)
        for v in verdicts
    ]


def main() -> None:
    """Measure and report."""
    figures = probes() + asyncio.run(costs()) + asyncio.run(left_over()) + [flood()]
    report("Sandboxes", figures)


if __name__ == "__main__":
    main()
