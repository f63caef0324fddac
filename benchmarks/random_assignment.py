"""A/B traffic without propensities: how good estimates are where assignment was random, and what is refused.

    python benchmarks/random_assignment.py [--logs 200] [--tasks 3000]

Needs `../shared/recorded` and the extra `learn`. Logs are made of four of MP13's workers, one a task unless said,
from as many tasks as said. Assignment is random (even, by type, a tenth for one), or looks at the task: by length, by a
word, by how hard the task is for others, as a cascade. Estimates are of each worker alone, against its mean score.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from common import machine
from routers_sets import FOLDER, recorded
from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.fit.model_selection import assign_folds
from shikisha.routing.fit.off_policy import CrossFitSplit, PolicyValue, estimate_value
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.random_assignment import estimate_propensities

WORKERS = ("gpt4o@hist", "gemini-1.5-pro-002", "gemini-1.5-flash-002", "Meta-Llama-3_1-70B-Instruct")
Draw = Callable[[OutcomeMatrix, np.random.Generator], Flags]


def one_of(chances: Floats, random: np.random.Generator) -> Flags:
    """Return [T, J]: one worker for each task, by chances [T, J]."""
    drawn = (chances.cumsum(axis=1) < random.random((len(chances), 1))).sum(axis=1)
    asked: Flags = np.arange(chances.shape[1]) == np.minimum(drawn, chances.shape[1] - 1)[:, None]
    return asked


def tilted(flag: Flags) -> Floats:
    """Return chances that favor the first worker where a flag [T] is set, .4 for .2."""
    return np.where(flag[:, None], (0.4, 0.2, 0.2, 0.2), (0.2, 0.4, 0.2, 0.2))


def by_type(panel: OutcomeMatrix, random: np.random.Generator) -> Flags:
    """Assign by chances of the type."""
    chances = np.random.default_rng(1).dirichlet(np.full(4, 3.0), len(panel.types.names))
    return one_of(chances[panel.batch.types], random)


def by_hardness(panel: OutcomeMatrix, random: np.random.Generator) -> Flags:
    """Favor the first worker where two of the others fail; a fifth of the tasks goes to a second worker at random."""
    asked = one_of(tilted(panel.won[:, 1:].sum(axis=1) < 2), random)
    return asked | (one_of(np.full(asked.shape, 0.25), random) & (random.random((len(asked), 1)) < 0.2))


def cascade(panel: OutcomeMatrix, random: np.random.Generator) -> Flags:
    """Ask a cheap worker, and the best one where it fails, or in a tenth of the other cases."""
    asked = np.zeros(panel.there.shape, bool)
    asked[:, 2] = True
    asked[:, 0] = (panel.won[:, 2] < 0.5) | (random.random(len(panel)) < 0.1)
    return asked


DRAWS: dict[str, Draw] = {
    "random, even": lambda panel, random: one_of(np.full(panel.there.shape, 0.25), random),
    "random, by type": by_type,
    "random, a tenth for one": lambda panel, random: one_of(np.tile((0.1, 0.3, 0.3, 0.3), (len(panel), 1)), random),
    "random, a fifth to two": lambda panel, random: (
        one_of(np.full(panel.there.shape, 0.25), random)
        | (one_of(np.full(panel.there.shape, 0.25), random) & (random.random((len(panel), 1)) < 0.2))
    ),
    "longer half to the best": lambda panel, random: one_of(
        tilted(panel.batch.shape[:, 0] > np.median(panel.batch.shape[:, 0])), random
    ),
    "by a word ('which')": lambda panel, random: one_of(
        tilted(np.array(["which" in prompt.lower() for prompt in panel.batch.prompts])), random
    ),
    "hard ones to the best": by_hardness,
    "a cascade": cascade,
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=3_000)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    panel = recorded("MP13", arguments.folder).panel.select_workers(WORKERS)
    panel = replace(panel, texts=(), evidence=None)
    panel.batch.words, panel.batch.shape  # noqa: B018 - once for all logs
    truth = panel.won.mean(axis=0)
    print(f"{arguments.logs} logs of {arguments.tasks:,} tasks each ({machine()})")
    for name, draw in DRAWS.items():
        refused, estimates, held = [], [], []
        for number in range(arguments.logs):
            random = np.random.default_rng(number)
            some = panel.at(np.sort(random.permutation(len(panel))[: arguments.tasks]))
            log = some.without_outcomes(~draw(some, random))
            log = replace(log, propensities=np.full(log.there.shape, np.nan))
            try:
                known, _ = estimate_propensities(log)
            except ConfigError as error:
                refused.append(str(error))
                continue
            split = CrossFitSplit.of(known, assign_folds(known.hashes, "bench"))
            for worker in range(len(WORKERS)):
                shares = np.tile(np.arange(len(WORKERS)) == worker, (len(known), 1)).astype(float)
                value = estimate_value(split.single_ask_terms(shares))
                if isinstance(value, PolicyValue):
                    estimates.append(value.accuracy.mean - truth[worker])
                    held.append(value.accuracy.low <= truth[worker] <= value.accuracy.high)
        told = ""
        if estimates:
            told = (
                f"; others: mean error {np.mean(estimates):+.4f}, 95 % intervals hold the truth in {np.mean(held):.1%}"
            )
        why = f" ({refused[0][21:110]}…)" if refused else ""
        print(f"  {name:<24} refused {len(refused) / arguments.logs:.1%}{why}{told}", flush=True)


if __name__ == "__main__":
    main()
