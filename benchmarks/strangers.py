"""Logs that nobody here wrote: is the verdict of `learn` safe to obey, and are its promises kept?

    python benchmarks/strangers.py CACHE [--clones FOLDER] [--recorded FOLDER] [--splits 20] [--sets A,B] [--json]

Reads public repositories into CACHE, outside this repository: function-calling results (BFCL-Result, fifteen settings
with measured tokens, costs from list prices), twelve sets of paid APIs (FrugalML, prices as published there), and
BIG-Bench-Hard, direct or step by step (tokens are characters / 4). FOLDER holds clones that are there; RECORDED holds
logs. Of each set at most 2,400 tasks count, by SHA-256. Each split learns on one half and obeys the verdict on the
other: `loses` counts the splits in which that half lost more than the tolerance, `surely` those beyond 1.65 standard
errors of that half besides. A null log has each worker's scores shuffled over the tasks: routing gains nothing there.
`cost` is the largest error of promised costs over seven settings of the dial, `accuracy` that of accuracies in standard
errors of a half; promises and what came of them are averaged over splits first, and costs are relative to the best
single worker's on the same half. Splits that are done are kept in CACHE/splits.jsonl, and not done again.
"""

import argparse
import csv
import io
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import which
from time import process_time
from typing import Any

import numpy as np

from shikisha.core.task import Task
from shikisha.outcomes.log_reader import OutcomeLog, ReferenceAnswer
from shikisha.outcomes.log_writer import CostKind, LogBuilder, LoggedAnswer, LoggedTask
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.fit.verdict import TOLERANCE
from shikisha.routing.policy_data import Policy
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
                prompt = one["input"].rpartition("\n\nQ:")[2].partition("\nA:")[0].strip()  # the same in both ways
                dollars = (len(one["input"]) + len(said)) / 4 * 20e-6
                yield f"{kind}/{place}", kind, prompt, way, float(answer.strip() == one["target"]), answer, dollars


def recorded_rows(folder: Path) -> Iterator[Row]:
    """Yield the outcomes of a log of recorded answers, of workers that did nearly all tasks."""
    log = OutcomeLog.read(folder)
    whole = [name for name in log.workers if len(list(log.outcomes_of(name))) >= 0.99 * len(log.task_ids)]
    for worker in whole[:: max(1, len(whole) // 12)]:
        for one in log.outcomes_of(worker):
            task = log.task(one.task_id)
            if one.score is not None:
                yield one.task_id, task.domain, task.prompt, worker, one.score, log.answer_text(one), one.dollars or 0.0


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


# Settings whose promises are compared: costs relative to the best single worker's, and the most accurate one.
BUDGETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, None)
Split = dict[str, Any]


def obey(train: OutcomeMatrix, test: OutcomeMatrix) -> Split:
    """Learn on one half, do on the other what the verdict says, and compare promises."""
    begun = process_time()
    policy = select_policy(train).policy
    seconds, verdict, dial, best = process_time() - begun, policy.about.verdict, policy.rung().dial, train.best_worker()
    assert verdict is not None
    base = float(test.paid[:, best].mean()) or train.cost_unit()
    error = max(1e-9, float(test.won[:, best].std()) / len(test) ** 0.5)
    promises: list[list[float] | None] = []
    for budget in BUDGETS:
        if budget is not None and not dial.points[0].cost <= budget < dial.points[-1].cost:
            promises.append(None)
            continue
        mix = OperatingMix(dial.points[-1], dial.points[-1], 0.0) if budget is None else dial.for_cost(budget)
        won, paid = played(policy, mix, test)
        promises.append([mix.cost, float(paid.mean()) / base, mix.accuracy, float(won.mean()), error])
    split: Split = {"kind": str(verdict.kind), "gain": 0.0, "error": 0.0, "spent": 1.0, "seconds": seconds}
    split["promises"] = promises
    if verdict.gain is not None:
        name, equals, value = verdict.option.partition("=")
        won, paid = played(policy, policy.mix(parse_target([(name, value)] if equals else [])), test)
        gain = won - test.won[:, best]
        error = float(gain.std()) / len(gain) ** 0.5
        split |= {"gain": float(gain.mean()), "error": error, "spent": float(paid.mean()) / base}
        split["advised"] = [verdict.cost, verdict.low, verdict.gain, verdict.high]
    return split


def kept(splits: Sequence[Split]) -> tuple[float, float]:
    """Return the largest errors of promised costs and accuracies over settings, of means over splits."""
    off = [(0.0, 0.0)]
    for setting in range(len(BUDGETS)):
        found = np.array([one["promises"][setting] for one in splits if one["promises"][setting]])
        if 2 * len(found) > len(splits):
            cost, came, accuracy, won, error = found.mean(axis=0)
            off.append((abs(came / max(cost, 1e-9) - 1), abs(won - accuracy) / error))
    return max(one for one, _ in off), max(two for _, two in off)


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


def done(cache: Path, name: str, split: int, matrix: OutcomeMatrix, *, null: bool) -> Split:
    """Return what came of a split, from the cache or done now."""
    file, key = cache / "splits.jsonl", [name, split, null]
    for line in file.read_text().splitlines() if file.exists() else ():
        held: Split = json.loads(line)
        if held["key"] == key:
            return held
    found = {"key": key, **obey(*halves(shuffled(matrix, split) if null else matrix, split))}
    with file.open("a") as opened:
        opened.write(json.dumps(found) + "\n")
    return found


def main() -> None:
    """Fetch, learn, obey, and print a row a set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--recorded", type=Path)
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
    for recorded in sorted(arguments.recorded.iterdir()) if arguments.recorded else ():
        if (recorded / "outcomes.parquet").exists():
            readers[recorded.name] = partial(recorded_rows, recorded)
    for name in arguments.sets.split(",") if arguments.sets else readers:
        folder = arguments.cache / "logs" / name
        if not folder.exists():
            build_log(readers[name](), folder)
        log = OutcomeLog.read(folder)
        matrix = build_outcome_matrix(log)
        splits = [done(arguments.cache, name, split, matrix, null=False) for split in range(arguments.splits)]
        null = [done(arguments.cache, name, split, matrix, null=True) for split in range(min(5, arguments.splits))]
        cost, accuracy = kept(splits)
        row = {
            "set": name,
            "tasks": len(matrix),
            "workers": len(matrix.workers),
            "verdicts": dict(Counter(one["kind"] for one in splits)),
            "gain": float(np.mean([one["gain"] for one in splits])),
            "spent": float(np.mean([one["spent"] for one in splits])),
            "loses": sum(one["gain"] < -TOLERANCE for one in splits),
            "surely": sum(one["gain"] + 1.65 * one["error"] < -TOLERANCE for one in splits),
            "cost": cost,
            "accuracy": accuracy,
            "null": dict(Counter(one["kind"] for one in null)),
            "seconds": float(np.mean([one["seconds"] for one in splits])),
        }
        print(
            json.dumps(row) if arguments.json else "  ".join(f"{key} {value}" for key, value in row.items()), flush=True
        )


if __name__ == "__main__":
    main()
