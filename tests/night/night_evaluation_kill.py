"""Kill -9 in the middle of an evaluation, again and again: no paid call is repeated, and the report is the same.

    python tests/night/night_evaluation_kill.py [--minutes 5] [--json]

`shikisha eval` plays a taskset of ours over two chat endpoints (one process that charges a key once and writes its
books with fsync), in a folder of its own; the process is killed at a random moment and the same command is given again.
Counted are: keys charged more than once, calls charged beyond those of an evaluation that nobody killed, and
differences between the two reports, times and dates left out.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from common import Figure, report

TASKS = 220
COUNTED = ("name", "tasks", "accuracy", "dollars", "tokens", "steps", "workers", "topologies", "failures", "no_answer")


@contextmanager
def books(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Start the chat endpoint; yield its URL and its books."""
    script, ledger = folder / "script.json", folder / f"{name}.jsonl"
    answers = [
        {"text": "The answer is 4.", "when": "2 + 2", "latency": 0.05},
        {"text": "The answer is 7.", "when": "odd", "latency": 0.05},
        {"text": "I cannot say: perhaps 5, perhaps 6.", "latency": 0.05},
    ]
    script.write_text(json.dumps(answers))
    command = [sys.executable, "-m", "shikisha.testing", "--script", str(script), "--ledger", str(ledger)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), ledger
    finally:
        server.terminate()
        server.wait()


def configured(folder: Path, url: str) -> Path:
    """Write a configuration of two endpoints."""
    made = folder / "shikisha.toml"
    workers = [
        f'[workers.{name}]\nkind = "chat"\nbase_url = "{url}"\nmodel = "{name}"\n'
        f"price = {{ input = {price}, output = {price} }}"
        for name, price in (("cheap", 0.1), ("dear", 1.0))
    ]
    made.write_text("\n\n".join(workers))
    return made


def rows(folder: Path) -> Path:
    """Write the taskset: a third each has an answer of its own."""
    made = folder / "tasks.jsonl"
    kinds = ("2 + 2", "an odd number below 8", "something else")
    tasks = [
        {"id": f"t{n}", "prompt": f"Task {n}: {kinds[n % 3]}?", "checker": "number", "answer": "4" if n % 2 else "7"}
        for n in range(TASKS)
    ]
    made.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return made


def command(folder: Path, name: str, url: str) -> list[str]:
    """Return the command line of an evaluation."""
    return [
        *(sys.executable, "-m", "shikisha", "eval", "--taskset", str(rows(folder))),
        *(
            "--config",
            str(configured(folder, url)),
            "--keep",
            str(folder / name),
            "--json",
            str(folder / f"{name}.json"),
        ),
        *("--conductor", "fixed:chain?workers=cheap,dear", "--conductor", "fixed:vote?workers=cheap&n=3&join=vote"),
        *("--at-once", "16"),
    ]


def killed(line: list[str], wait: float) -> bool:
    """Start an evaluation and kill it after a while; return whether it had ended before."""
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - our own
    sleep(wait)
    if process.poll() is not None:
        return True
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return False


def charged(ledger: Path) -> Counter[str]:
    """Return how often each messages' hash was charged, and fail on a key that was charged twice."""
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    return Counter(entry["messages"] for entry in entries if entry["charged"])


def twice(ledger: Path) -> int:
    """Count keys that were charged more than once."""
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    return sum(count > 1 for count in Counter(entry["key"] for entry in entries if entry["charged"]).values())


def figures_of(path: Path) -> list[dict[str, object]]:
    """Return what must be the same in both reports, and every task's score."""
    data = json.loads(path.read_text())
    entries = [{name: entry[name] for name in COUNTED} for entry in data["entries"]]
    return [*entries, {"scores": data["scores"], "hashes": data["hashes"]}]


def main() -> int:
    """Evaluate undisturbed, evaluate with kills for so long, compare; how many figures are not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()
    rng, begun, kills, early = random.Random(options.seed), perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with books(folder, "calm") as (url, calm):
            subprocess.run(command(folder, "calm", url), check=True, capture_output=True)  # noqa: S603 - our own
        calm_seconds = perf_counter() - begun
        with books(folder, "wild") as (url, wild):
            line = command(folder, "wild", url)
            while not kills or perf_counter() - begun < 60 * options.minutes:
                kills += 1
                early += killed(line, rng.uniform(0.8, 1.2 + calm_seconds / 25))
            subprocess.run(line, check=True, capture_output=True)  # noqa: S603 - our own
        expected, found = charged(calm), charged(wild)
        same = figures_of(folder / "calm.json") == figures_of(folder / "wild.json")
        requests = len(wild.read_text().splitlines()) - found.total()
        figures = [
            Figure("kills that met it at work", kills - early, "kills"),
            Figure("paid calls of an evaluation that nobody killed", expected.total(), "calls"),
            Figure("paid calls beyond those", sum((found - expected).values()), "calls", 0),
            Figure("keys charged twice", twice(wild), "keys", 0),
            Figure("paid calls missing", sum((expected - found).values()), "calls", 0),
            Figure("calls in flight at a kill, asked again under their key and not charged", requests, "calls"),
            Figure("reports that differ", not same, "", 0),
            Figure("seconds in all", perf_counter() - begun, "s"),
        ]
    report("an evaluation and kill -9", figures)
    return sum(each.reached is False for each in figures)


if __name__ == "__main__":
    sys.exit(min(1, main()))
