"""How long `learn` takes: real pools, and a large one of recorded workers with noisy copies.

    python benchmarks/learn_speed.py [--workers 124] [--tasks 500]

Needs `../shared/recorded` and the extra `learn`. The large pool has the 31 recorded workers of MMLU-Pro and copies of
them that give another worker's answer on a fifth of the tasks (simulated copies). Processor seconds of the whole
selection and of the baselines, on one core.
"""

import argparse
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np

from common import machine
from routers_sets import FOLDER, SETS
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.baselines import measure_baselines
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix

SPOILT = 0.2


def enlarged(panel: OutcomeMatrix, workers: int) -> OutcomeMatrix:
    """Return the panel with noisy copies of its workers, in turn, until there are so many."""
    random, own = np.random.default_rng(0), len(panel.workers)
    columns = np.arange(workers) % own
    names = tuple(f"{panel.workers[place]} #{number // own}" for number, place in enumerate(columns))
    wide = replace(panel.select_workers([panel.workers[place] for place in columns]), workers=names)
    other = random.integers(0, own, (len(panel), workers))
    spoilt = (random.random((len(panel), workers)) < SPOILT) & (np.arange(workers) >= own)
    rows = np.arange(len(panel))[:, None]
    codes, scores = (np.where(spoilt, table[rows, other], getattr(wide, name)) for name, table in _answers(panel))
    return replace(wide, codes=codes, scores=scores)


def _answers(panel: OutcomeMatrix) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]:
    return ("codes", panel.codes), ("scores", panel.scores)


def main() -> None:
    """Print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=124)
    parser.add_argument("--tasks", type=int, default=500)
    arguments = parser.parse_args()
    panel = build_outcome_matrix(OutcomeLog.read(FOLDER / SETS["MP13"]), whole=True)
    rows = np.sort(np.argsort(np.array(panel.hashes), kind="stable")[: arguments.tasks])
    held = enlarged(panel.at(rows), arguments.workers)
    print(f"Learning from {len(held):,} tasks of {len(held.workers)} workers ({machine()})")
    begun, wall = process_time(), perf_counter()

    def progress(what: str) -> None:
        print(f"  {process_time() - begun:6.1f} s: {what}", flush=True)

    policy = select_policy(held, report=progress)
    progress(f"selected: {policy.kept}")
    measure_baselines(held, 0, progress)
    progress(f"baselines measured; wall time {perf_counter() - wall:.0f} s")


if __name__ == "__main__":
    main()
