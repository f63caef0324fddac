"""The engine beside other people's engines, on this machine, in turns.

    python benchmarks/peers/compare.py [--rounds 3] [--json]

Makes a virtual environment for the peers once, in `build/peers` (versions as in `requirements.txt`), then runs
`engines.py` for each engine in a process of its own, in turns, and shows the median of each figure over the rounds.
What the figures are stands in `engines.py`. The machine should do nothing else meanwhile.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[1] / "build" / "peers"
NAMES = ("bare", "shikisha", "pydantic-graph", "langgraph", "dbos")
COLUMNS = {
    "step": "µs a step in memory",
    "runs": "runs/s, 1,000 at once",
    "durable": "the same, durable",
    "straggler": "straggler ÷ critical path",
}


def peers_python() -> Path:
    """Return the interpreter of the peers' environment, which is made at the first call."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)  # noqa: S603 - this interpreter
    install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / "requirements.txt")]
    subprocess.run(install, check=True)  # noqa: S603 - a fixed command
    return python


def measure(name: str, python: Path) -> Mapping[str, float]:
    """Run one engine in a process; return its figures."""
    command = [str(python), str(HERE / "engines.py"), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)  # noqa: S603 - our script
    figures: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    python = peers_python()
    rounds = [
        {name: measure(name, Path(sys.executable) if name == "shikisha" else python) for name in NAMES}
        for _ in range(given.rounds)
    ]
    found = {
        name: {key: median(each[name][key] for each in rounds) for key in rounds[0][name] if key in COLUMNS}
        for name in NAMES
    }
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'':<16}" + "".join(f"{title:>28}" for title in COLUMNS.values()))
    for name, figures in found.items():
        cells = (f"{figures[key]:,.3g}" if key in figures else "–" for key in COLUMNS)
        print(f"{name:<16}" + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    main()
