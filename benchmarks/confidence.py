"""A worker's own confidence, said in its text, as a response feature: what it brings, and what it harms.

    python benchmarks/confidence.py [--tasks 2400] [--draws 10] [--json]

Simulated workers of three prices, five times each worker's text: none; words alone; words and a confidence that tells
something ("I am 80 % sure."; right answers say .8 on average, wrong ones .6); one that tells little (.72 and .68); one
that tells nothing. No feature is written for it: the response model reads the numbers as words, and what it finds goes
into the cascade and the stepwise policy as any certainty of a text does. `area`: accuracy over budgets on held-out
tasks, less that of the same candidates without texts, paired, over draws of workers' luck; 95 %.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from hashlib import sha256

import numpy as np

from common import machine
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.statistics import difference_interval
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.cost_frontier import BUDGETS
from shikisha.routing.fit.model_selection import (
    CASCADE,
    POLICY,
    TABLE,
    LearningOptions,
    fit_candidates,
    replay_settings,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import TaskBatch, TaskTypes
from shikisha.routing.text_features import hash_responses

SKILLS, DOLLARS = np.array([[0.7, 0.5], [0.72, 0.68], [0.85, 0.82]]), np.array([0.02, 0.2, 1.0])
SAYS = {"words alone": None, "it tells something": (0.8, 0.6), "it tells little": (0.72, 0.68), "nothing": (0.7, 0.7)}
FILLER = ("the", "value", "follows", "from", "this", "then", "we", "see", "that", "it", "holds", "so", "answer")
KINDS = ("maths", "law")


def made(tasks: int, says: tuple[float, float] | None, seed: int, *, texts: bool = True) -> OutcomeMatrix:
    """Return what three workers did on so many tasks; only texts differ between kinds of confidence."""
    luck, words = np.random.default_rng(seed), np.random.default_rng(seed + 10_000)
    types = np.arange(tasks) % 2
    right = luck.random((tasks, 3)) < SKILLS.T[types]
    first = luck.integers(0, 8, tasks)
    choice = (first[:, None] + np.where(right, 0, luck.integers(1, 8, (tasks, 3)))) % 8
    codes = np.zeros((tasks, 3), np.int64)
    for row, answers in enumerate(choice):
        seen = list(dict.fromkeys(answers.tolist()))
        codes[row] = [seen.index(each) for each in answers]
    prompts = tuple(f"{KINDS[kind]} question {number}?" for number, kind in enumerate(types))
    said = []
    for worker in range(3):
        lines = []
        for row in range(tasks):
            line = " ".join(words.choice(FILLER, 20))
            share = 0.5 if says is None else says[0 if right[row, worker] else 1]
            sure = int(np.clip(round(10 * words.normal(share, 0.15)), 0, 10)) * 10
            lines.append(line if says is None else f"{line} I am {sure} % sure.")
        said.append(hash_responses(lines))
    full = np.ones((tasks, 3), bool)
    return OutcomeMatrix(
        ids=tuple(f"task-{number}" for number in range(tasks)),
        hashes=tuple(sha256(prompt.encode()).hexdigest() for prompt in prompts),
        workers=("cheap", "middle", "dear"),
        types=TaskTypes(KINDS, (AnswerForm.CHOICE,) * 2, AnswerForm.CHOICE),
        batch=TaskBatch(prompts, types.astype(np.int64)),
        codes=codes,
        lengths=np.full((tasks, 3), 100),
        tokens=np.full((tasks, 3), 100.0),
        scores=right.astype(float),
        dollars=np.broadcast_to(DOLLARS, (tasks, 3)).copy(),
        seconds=np.full((tasks, 3), np.nan),
        there=full,
        propensities=np.ones((tasks, 3)),
        texts=tuple(said) if texts else (),
    )


@single_threaded_blas()
def areas(matrix: OutcomeMatrix) -> dict[str, Floats]:
    """Return by candidate each held-out task's contribution to the area: fitted on half of the tasks."""
    half = len(matrix) // 2
    train, held = matrix.at(np.arange(half)), matrix.at(np.arange(half, len(matrix)))
    options = LearningOptions()
    options = replace(options, config=replace(options.config, boosting=None))
    fitted = fit_candidates(train, options, (TABLE, CASCADE, POLICY))
    unit = train.cost_unit()
    heard = held.with_response_model(fitted.hearing)
    return {
        name: replay_settings(fitted, dial.points, heard, unit).frontier(dial, BUDGETS).by_task
        for name, dial in fitted.dials.items()
        if name in (CASCADE, POLICY)
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=2_400)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    gains, base = defaultdict[tuple[str, str], list[Floats]](list), defaultdict[str, list[float]](list)
    for seed in range(arguments.draws):
        plain = areas(made(arguments.tasks, None, seed, texts=False))
        for name, values in plain.items():
            base[name].append(float(values.mean()))
        for kind, says in SAYS.items():
            for name, values in areas(made(arguments.tasks, says, seed)).items():
                gains[kind, name].append(values - plain[name])
    print(f"A worker's own confidence, simulated, {arguments.draws} draws of {arguments.tasks:,} tasks ({machine()})")
    told = {}
    for (kind, name), many in gains.items():
        values = np.concatenate(many)
        low, high = difference_interval(values.tolist())
        told[f"{name}: {kind}"] = [float(values.mean()), float(low), float(high)]
        print(f"  {name:<9} {kind:<20} area {np.mean(base[name]):.4f} {values.mean():+.4f} [{low:+.4f}, {high:+.4f}]")
    if arguments.json:
        print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
