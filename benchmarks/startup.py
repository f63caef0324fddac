"""What starting costs: `import shikisha` and `shikisha --help` in fresh processes, less what Python itself takes.

    python benchmarks/startup.py [--json]

Wall-clock medians of 20 processes each, after one that warms the disk's cache. The plain interpreter's start is
printed beside them; the aims are for the whole process, interpreter included.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from common import Figure, report

TIMES = 20
HEAVY = ("torch", "openai", "fastapi", "sqlalchemy", "pydantic", "rich", "typer")
SCRIPT = str(Path(sys.executable).with_name("shikisha"))
COMMANDS = {
    "python": ([sys.executable, "-c", ""], None),
    "import shikisha": ([sys.executable, "-c", "import shikisha"], 0.15),
    "import shikisha, and its Engine": ([sys.executable, "-c", "from shikisha import Engine"], None),
    "shikisha --help": ([SCRIPT, "--help"], 0.3),
    **{f"shikisha {name} --help": ([SCRIPT, name, "--help"], 0.3) for name in ("run", "learn", "serve", "train")},
}


def seconds(command: list[str]) -> float:
    """Return the median wall-clock time of this command."""
    taken = []
    for _ in range(TIMES + 1):
        begun = perf_counter()
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own commands
        taken.append(perf_counter() - begun)
    return median(taken[1:])


def imported(command: list[str]) -> set[str]:
    """Return the modules that this command imports."""
    script = command if command[0] == sys.executable else [sys.executable, *command]
    told = [sys.executable, "-X", "importtime", *script[1:]]
    done = subprocess.run(told, check=True, capture_output=True, text=True)  # noqa: S603 - our own commands
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def main() -> None:
    """Measure and print."""
    figures = []
    for name, (command, aim) in COMMANDS.items():
        modules = imported(command)
        heavy = ", ".join(one for one in HEAVY if one in modules) or "none of the heavy ones"
        figures.append(Figure(name, seconds(command), "s", aim))
        figures.append(Figure(f"  modules ({heavy})", len(modules), ""))
    report("Starting", figures)


if __name__ == "__main__":
    main()
