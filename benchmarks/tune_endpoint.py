"""`shikisha tune` over HTTP: the paired gain over the untuned prompt at equal dollars, and what `kill -9` costs.

    python benchmarks/tune_endpoint.py --config shikisha.toml --conductor lm:planner --reflector big \
        --taskset tasks.jsonl --held-out others.jsonl --dollars 5
    python benchmarks/tune_endpoint.py [--kills 5]      # without a configuration: the scripted chat server

With a configuration it spends real dollars, `--dollars` to tune and what the held-out tasks cost twice: once with the
prompt in force, once with the tuned advice. Reported are the paired difference in right answers (95 %), the dollars of
both, and the difference at equal dollars: less what the extra dollars would have bought at the untuned prompt's own
rate of right answers a dollar.

Without one, a scripted chat server is planner, worker and reflector (named so, no model): advice to be exact makes
answers right. `tune` is run undisturbed, and again with so many `kill -9`; counted are keys charged twice, and paid
calls beyond the undisturbed ones.
"""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import numpy as np

from common import machine
from shikisha.evals.statistics import mean_interval

TASKS = 60
ADVICE = "Tell the model to be exact."
ANSWERS = [
    {"text": json.dumps({"advice": ADVICE}), "when": "You improve the advice", "latency": 0.02},
    {
        "text": 'model_id = [0]\nsubtasks = ["Be exact here."]\naccess_list = [[]]',
        "first": f"| {ADVICE}",
        "latency": 0.02,
    },
    {"text": "4", "when": "Be exact here.", "latency": 0.02},
    {"text": 'model_id = [0]\nsubtasks = ["Answer."]\naccess_list = [[]]', "first": "access_list", "latency": 0.02},
    {"text": "5", "latency": 0.02},
]
CONFIG = """
pool = ["worker"]
[journal]
file = "{journal}.db"
[budgets]
dollars = 0.05
"""
WORKER = """
[workers.{name}]
kind = "chat"
base_url = "{url}"
model = "{name}"
price = {{ input = 1.0, output = 1.0 }}
max_output_tokens = 200
"""


@contextmanager
def chat_server(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Start the scripted chat server; yield its URL and its ledger."""
    script, ledger = folder / "script.json", folder / f"{name}.jsonl"
    script.write_text(json.dumps(ANSWERS))
    command = [sys.executable, "-m", "shikisha.testing", "--script", str(script), "--ledger", str(ledger)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), ledger
    finally:
        server.terminate()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def write_inputs(folder: Path, name: str, url: str) -> list[str]:
    """Write a configuration and tasks; return the command that tunes on them."""
    config, tasks = folder / f"{name}.toml", folder / "tasks.jsonl"
    workers = [WORKER.format(name=each, url=url) for each in ("worker", "planner", "reflector")]
    config.write_text(CONFIG.format(journal=name) + "".join(workers))
    rows = [{"prompt": f"Task {at}: 2 + 2?", "checker": "text", "answer": "4"} for at in range(TASKS)]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tune_command(config, "lm:planner", "reflector", tasks, 1.0, folder / f"{name}.json")


def tune_command(config: Path, conductor: str, reflector: str, tasks: Path, dollars: float, to: Path) -> list[str]:
    """Return the command line of a tune."""
    words = f"tune -C {conductor} --reflector {reflector} --dollars {dollars} --run-cost 0.002 --json"
    files = ["--taskset", str(tasks), "--out", str(to), "-c", str(config)]
    return [sys.executable, "-m", "shikisha", *shlex.split(words), *files]


def run(command: Sequence[str]) -> str:
    """Run a command and return what it says; its errors end the benchmark."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])}\n{done.stderr}")
    return done.stdout


def killed(command: Sequence[str], ledger: Path, more: int) -> bool:
    """Start a command and kill it once it has made so many requests; return whether it was still at work."""
    goal = requests(ledger) + more
    process = subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None:
        if requests(ledger) >= goal:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        sleep(0.02)
    return False


def requests(ledger: Path) -> int:
    """Return how many requests the server has seen."""
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def charged(ledger: Path, field: str) -> Counter[str]:
    """Return how often each key, or each hash of messages, was charged."""
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    return Counter(str(row[field]) for row in rows if row["charged"])


def kill_and_resume(kills: int, seed: int = 0) -> dict[str, object]:
    """Tune undisturbed and with kills; return what was paid."""
    rng, met = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with chat_server(folder, "calm") as (url, calm):
            first = json.loads(run(write_inputs(folder, "calm", url)))
        share = requests(calm) // (kills + 1)
        with chat_server(folder, "wild") as (url, wild):
            command = write_inputs(folder, "wild", url)
            for _ in range(kills):
                met += killed(command, wild, rng.randint(1, share))
            second = json.loads(run(command))
        expected, found = charged(calm, "messages"), charged(wild, "messages")
        asked = requests(wild)
        return {
            "kills that met it at work": met,
            "paid calls undisturbed / with kills": [expected.total(), found.total()],
            "paid calls beyond the undisturbed": sum((found - expected).values()),
            "keys charged twice": sum(n > 1 for n in charged(wild, "key").values()),
            "asked again under their key, not charged": asked - found.total(),
            "the same advice accepted": first["accepted"]
            and second["accepted"]
            and first["advice"] == second["advice"],
            "gain in worth": second["gain"],
        }


def gain_on_held_out(config: Path, conductor: str, advice: Path, held_out: Path, folder: Path) -> dict[str, object]:
    """Evaluate a conductor without and with advice on held-out tasks; return the paired gain."""
    tuned = config.with_name(f".tuned-{config.name}")
    tuned.write_text(f'{config.read_text()}\n[learned]\nprompt = "{advice.resolve()}"\n')
    reports = []
    try:
        for name, file in (("untuned", config), ("tuned", tuned)):
            to = folder / f"{name}.json"
            words = ["eval", "--taskset", str(held_out), "--conductor", conductor, "--json", str(to)]
            run([sys.executable, "-m", "shikisha", *words, "-c", str(file), "--keep", str(folder / name)])
            reports.append(json.loads(to.read_text()))
    finally:
        tuned.unlink()
    scores, dollars = [], []
    for report in reports:
        entry = next(each for each in report["entries"] if each["name"] == conductor)
        scores.append(np.array([float(score or 0) for score in report["scores"][conductor]]))
        dollars.append(float(entry["dollars"]))
    before, after = scores
    low, high = mean_interval(list(after - before))
    rate = float(before.sum()) / dollars[0] if dollars[0] else 0.0
    extra = rate * (dollars[1] - dollars[0]) / len(before)
    gain = float((after - before).mean())
    return {
        "tasks": len(before),
        "right untuned / tuned": [round(float(before.mean()), 3), round(float(after.mean()), 3)],
        "paired gain": [round(gain, 3), round(low, 3), round(high, 3)],
        "dollars untuned / tuned": dollars,
        "gain at equal dollars": [round(each - extra, 3) for each in (gain, low, high)],
    }


def main() -> None:
    """Tune an endpoint of yours, or the scripted one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--conductor", default="lm:planner")
    parser.add_argument("--reflector", default="reflector")
    parser.add_argument("--taskset", type=Path)
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--dollars", type=float, default=1.0)
    parser.add_argument("--kills", type=int, default=5)
    asked = parser.parse_args()
    print(f"tune over HTTP ({machine()})")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.config is not None:
            if asked.taskset is None or asked.held_out is None:
                raise SystemExit("expected --taskset and --held-out")
            to = folder / "advice.json"
            said = run(tune_command(asked.config, asked.conductor, asked.reflector, asked.taskset, asked.dollars, to))
            print(said)
            if to.exists():
                print(gain_on_held_out(asked.config, asked.conductor, to, asked.held_out, folder))
            return
        with chat_server(folder, "own") as (url, _):
            run(write_inputs(folder, "own", url))
            held_out = folder / "held.jsonl"
            rows = [{"prompt": f"Other {at}: 2 + 2?", "checker": "text", "answer": "4"} for at in range(30)]
            held_out.write_text("".join(json.dumps(row) + "\n" for row in rows))
            print(gain_on_held_out(folder / "own.toml", "lm:planner", folder / "own.json", held_out, folder))
    print(kill_and_resume(asked.kills))


if __name__ == "__main__":
    main()
