"""Logs that nobody here wrote: is the verdict of `learn` safe to obey, and are its promises kept?

    python benchmarks/strangers.py CACHE [--clones FOLDER] [--splits 20] [--sets bfcl,digit] [--json]

Reads public repositories into CACHE, outside this repository: function-calling results (BFCL-Result, fifteen settings
with measured tokens, costs from list prices), twelve sets of paid APIs (FrugalML, prices as published there), and
BIG-Bench-Hard, direct or step by step (tokens are characters / 4). FOLDER holds clones that are there. Of each set at
most 2,400 tasks count, by SHA-256. Each split learns on one half and obeys the verdict on the other: `loses` counts
the splits in which that half lost more than the tolerance, `surely` those beyond 1.65 standard errors of that half
besides. A null log has each worker's scores shuffled over the tasks: routing can gain nothing there. `cost` and
`accuracy` are the largest errors of promises over the settings of the dial, averaged over splits.
"""

import argparse
import csv
import io
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import which
from time import process_time

import numpy as np

from shikisha.core.task import Task
from shikisha.outcomes.log_reader import OutcomeLog, ReferenceAnswer
from shikisha.outcomes.log_writer import CostKind, LogBuilder, LoggedAnswer, LoggedTask
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.fit.verdict import TOLERANCE
from shikisha.routing.policy_data import Policy, VerdictKind
from shikisha.routing.trade_off import OperatingMix, parse_target

MOST_TASKS = 2_400
# Dollars for a million tokens of input and output, list prices of 2024.
PRICES = {
    "claude-3-5-sonnet-20240620": (3.0, 15.0),
    "claude-3-haiku-20240307": (0.25, 1.25),
    "claude-3-opus-20240229": (15.0, 75.0),
    "gpt-3.5-turbo-0125": (0.5, 1.5),
    "gpt-4-0613": (30.0, 60.0),
    "gpt-4-1106-preview": (10.0, 30.0),
    "gpt-4o-2024-05-13": (5.0, 15.0),
    "gpt-4o-2024-08-06": (2.5, 10.0),
    "gpt-4o-mini-2024-07-18": (0.15, 0.6),
    "gemini-1.5-flash-preview-0514": (0.35, 1.05),
    "gemini-1.5-pro-preview-0514": (3.5, 10.5),
    "mistral-large-2407": (2.0, 6.0),
    "mistral-small-2402": (1.0, 3.0),
    "open-mistral-nemo-2407": (0.15, 0.15),
    "open-mixtral-8x22b": (2.0, 6.0),
}
REPOSITORIES = ("HuanzhiMao/BFCL-Result", "lchen001/FrugalML", "suzgunmirac/BIG-Bench-Hard")
Row = tuple[str, str, str, str, float, str | None, float]  # id, domain, prompt, worker, score, answer, dollars


def run_git(*arguments: str) -> str:
    """Return what a git command prints."""
    command = [which("git") or "git", *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()  # noqa: S603 - fixed commands


@dataclass(frozen=True)
class Clone:
    """A git repository, with or without a work tree."""

    path: Path

    @classmethod
    def of(cls, name: str, cache: Path, clones: Path | None) -> "Clone":
        """Return the clone of OWNER/NAME, from the folder of clones or fetched into the cache."""
        there = [] if clones is None else [clones / name.replace("/", "+") / "repo", clones / name.rpartition("/")[2]]
        own = cache / name.rpartition("/")[2]
        for path in (*there, own):
            if path.exists():
                return cls(path)
        run_git("clone", "-q", "--depth", "1", f"https://github.com/{name}", str(own))
        return cls(own)

    def git(self, *arguments: str) -> str:
        """Return what a git command prints."""
        return run_git("-C", str(self.path), *arguments)

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder."""
        return self.git("ls-tree", "--name-only", f"HEAD:{folder}").split()

    def read(self, path: str) -> str:
        """Return a file's text."""
        return self.git("show", f"HEAD:{path}")


def bfcl(clone: Clone) -> Iterator[Row]:
    """Yield calls of functions: right where the score file does not name them as wrong."""
    folder, start = "2024-08-11", "gorilla_openfunctions_v1_test_"
    prompts: dict[tuple[str, int], str] = {}
    wrong: dict[tuple[str, str], set[int]] = {}
    kinds = [name.removesuffix("_score.json") for name in clone.names(f"{folder}/score/gpt-4o-mini-2024-07-18")]
    for worker in PRICES:
        for kind in kinds:
            rows = [json.loads(line) for line in clone.read(f"{folder}/score/{worker}/{kind}_score.json").splitlines()]
            wrong[worker, kind] = {row["id"] - 1 for row in rows[1:]}
            prompts |= {(kind, row["id"] - 1): str(row["prompt"]["question"]) for row in rows[1:] if "prompt" in row}
    for worker, (first, second) in PRICES.items():
        for kind in kinds:
            lines = clone.read(f"{folder}/result/{worker}/{start}{kind}_result.json").splitlines()
            for place, row in enumerate(map(json.loads, lines)):
                tokens = [np.sum(row.get(f"{end}_token_count") or 0) for end in ("input", "output")]
                dollars = float(tokens[0] * first + tokens[1] * second) / 1e6
                prompt = prompts.get((kind, place), f"{kind} {place}")
                right = float(place not in wrong[worker, kind])
                yield f"{kind}/{place}", kind, prompt, worker, right, str(row["result"]), dollars


def frugal(clone: Clone, name: str) -> Iterator[Row]:
    """Yield labels of paid APIs; the published table has dollars for 10,000 calls."""
    folder = f"dataset/mlserviceperformance_{name}"
    for row in csv.reader(io.StringIO(clone.read(f"{folder}/meta.csv").partition("\n")[2])):
        given = clone.read(f"{folder}/Model{row[0]}_PredictedLabel.txt").split()
        right = clone.read(f"{folder}/Model{row[0]}_Reward.txt").split()
        for place, (label, score) in enumerate(zip(given, right, strict=True)):
            if float(score) in (0.0, 1.0):
                yield f"{place}", "", f"{name} {place}", row[1], float(score), label, float(row[2]) / 10_000


def big_bench(clone: Clone) -> Iterator[Row]:
    """Yield hard questions, answered directly or step by step by one model."""
    for way in ("direct", "cot"):
        folder = f"code-davinci-002-outputs/code-davinci-002-{way}"
        for file in clone.names(folder):
            if not file.endswith("000.json"):
                continue
            kind = file.partition("_few_shot")[0]
            for place, one in enumerate(json.loads(clone.read(f"{folder}/{file}"))["outputs"]):
                said = one["prediction"]
                found = re.findall(r"answer is (.*?)\.?\s*$", said.strip().split("\n\n")[0])
                answer = found[-1] if found else said.strip().split("\n")[0]
                prompt = one["input"].rpartition("\n\nQ:")[2]
                dollars = (len(one["input"]) + len(said)) / 4 * 20e-6
                yield f"{kind}/{place}", kind, prompt, way, float(answer.strip() == one["target"]), answer, dollars


def build_log(rows: Iterator[Row], folder: Path) -> None:
    """Write the tasks that all workers answered as an outcome log, a sample of them by content."""
    by_task: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_task[row[0]].append(row)
    most = max(Counter(len(held) for held in by_task.values()))
    whole = [held for held in by_task.values() if len(held) == most]
    whole.sort(key=lambda held: sha256(f"{held[0][0]}\0{held[0][2]}".encode()).digest())
    log = LogBuilder("stranger")
    for held in whole[:MOST_TASKS]:
        for task, domain, prompt, worker, score, answer, dollars in held:
            asked = LoggedTask(Task(prompt, id=task, domain=domain), ReferenceAnswer(None, "text"))
            log.add(asked, LoggedAnswer(worker, task, score, answer=answer, dollars=dollars, cost=CostKind.DERIVED))
    log.write(folder)


@dataclass(frozen=True)
class Obeyed:
    """What came of a verdict on the half that it was not reached on."""

    kind: VerdictKind
    gain: float = 0.0
    error: float = 0.0
    spent: float = 1.0
    cost_off: float = 0.0
    accuracy_off: float = 0.0


def obey(train: OutcomeMatrix, test: OutcomeMatrix) -> Obeyed:
    """Learn on one half, and do on the other what the verdict says."""
    policy, unit = select_policy(train).policy, train.cost_unit()
    verdict, dial = policy.about.verdict, policy.rung().dial
    assert verdict is not None
    best = train.best_worker()
    ends = [(point, replay(policy.parts[point.part], point.setting, test)) for point in dial.points]
    cost = max(abs(float(came.paid.mean()) / unit / max(point.cost, 1e-9) - 1) for point, came in ends)
    se = max(1e-9, float(test.won[:, best].std()) / len(test) ** 0.5)
    right = max(abs(float(came.won.mean()) - point.accuracy) / se for point, came in ends)
    if verdict.gain is None:
        return Obeyed(verdict.kind, cost_off=cost, accuracy_off=right)
    name, equals, value = verdict.option.partition("=")
    won, paid = played(policy, policy.mix(parse_target([(name, value)] if equals else [])), test)
    gain = won - test.won[:, best]
    spent = float(paid.mean() / test.paid[:, best].mean()) if test.paid[:, best].any() else 1.0
    return Obeyed(verdict.kind, float(gain.mean()), float(gain.std()) / len(gain) ** 0.5, spent, cost, right)


def played(policy: Policy, mix: OperatingMix, matrix: OutcomeMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Return score and dollars [T] of a mix, as expectations."""
    low, high = (replay(policy.parts[point.part], point.setting, matrix) for point in (mix.low, mix.high))
    return tuple((1 - mix.share) * getattr(low, what) + mix.share * getattr(high, what) for what in ("won", "paid"))


def shuffled(matrix: OutcomeMatrix, seed: int) -> OutcomeMatrix:
    """Return the log with each worker's scores shuffled: no task or answer says anything about them."""
    random = np.random.default_rng(seed)
    scores = np.stack([random.permutation(column) for column in matrix.scores.T], axis=1)
    return replace(matrix, scores=scores, answers=False, evidence=None)


def halves(matrix: OutcomeMatrix, split: int) -> tuple[OutcomeMatrix, OutcomeMatrix]:
    """Return two halves by content."""
    first = np.array([sha256(f"{split}\0{content}".encode()).digest()[0] < 128 for content in matrix.hashes])
    return matrix.at(first), matrix.at(~first)


def main() -> None:
    """Fetch, learn, obey, and print a row a set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--sets", default="")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    clones = {name: Clone.of(name, arguments.cache, arguments.clones) for name in REPOSITORIES}
    paid, hard = clones[REPOSITORIES[1]], clones[REPOSITORIES[2]]
    readers: dict[str, Callable[[], Iterator[Row]]] = {"bfcl": lambda: bfcl(clones[REPOSITORIES[0]])}
    for folder in paid.names("dataset"):
        name = folder.partition("_")[2]
        readers[name.lower()] = partial(frugal, paid, name)
    readers["big-bench-hard"] = lambda: big_bench(hard)
    for name in arguments.sets.split(",") if arguments.sets else readers:
        folder = arguments.cache / "logs" / name
        if not folder.exists():
            build_log(readers[name](), folder)
        matrix, begun = build_outcome_matrix(OutcomeLog.read(folder)), process_time()
        came = [obey(*halves(matrix, split)) for split in range(arguments.splits)]
        seconds = (process_time() - begun) / len(came)
        null = [obey(*halves(shuffled(matrix, split), split)) for split in range(min(5, arguments.splits))]
        row = {
            "set": name,
            "tasks": len(matrix),
            "workers": len(matrix.workers),
            "verdicts": dict(Counter(str(one.kind) for one in came)),
            "gain": float(np.mean([one.gain for one in came])),
            "spent": float(np.mean([one.spent for one in came])),
            "loses": sum(one.gain < -TOLERANCE for one in came),
            "surely": sum(one.gain + 1.65 * one.error < -TOLERANCE for one in came),
            "cost": float(np.mean([one.cost_off for one in came])),
            "accuracy": float(np.mean([one.accuracy_off for one in came])),
            "null": dict(Counter(str(one.kind) for one in null)),
            "seconds": seconds,
        }
        print(
            json.dumps(row) if arguments.json else "  ".join(f"{key} {value}" for key, value in row.items()), flush=True
        )


if __name__ == "__main__":
    main()
