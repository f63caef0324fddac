"""A test signal as a cascade step: cheap workers first, and the next one where the tests fail.

    python benchmarks/test_signal.py [--swebench FILE.jsonl]

Needs `../shared/recorded` and the extra `learn`. The recorded set is LLMRouter's programs (HumanEval and MBPP, scores
of their tests, no answers; costs by list price and the length of prompts). Five folds, each reported in turn.

    scores alone    what `shikisha learn` ships: one worker by the words of the prompt
    test signal     what `shikisha learn --test-signal` ships: the score of an answer is known once it is there
    drawn anew      the test signal where each worker's scores are in another order within types: what it would bring
                    if workers failed independently

`--swebench` reads results by task of public submissions to SWE-bench Verified, one JSON a line with `model`,
`example_id` and `pass1`, as eval-arena publishes them; none of it is shipped. Their costs are unknown and made up here:
a system's cost rises tenfold from half of the best one's solved share to the best. The tests that give the score are
hidden ones; in service a project has only its own.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from common import machine
from routers_sets import FOLDER, outer, recorded
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.check_signal import apply_test_signal
from shikisha.routing.fit.model_selection import (
    LearningOptions,
    candidate_names,
    fit_candidates,
    replay_frontier,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import COMBINED
from shikisha.routing.state import NO_ANSWER, TaskBatch, TaskTypes

PROGRAMS = ("human_eval", "mbpp")
BUDGETS = np.array([0.2, 0.4, 0.65, 1.0, 2.0])
# Submissions that solve less are not worth asking.
LEAST_SOLVED = 0.5
Z = 1.96


def drawn_anew(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel with the scores of each worker in another order, within types."""
    random, scores = np.random.default_rng(0), panel.scores.copy()
    for kind in np.unique(panel.batch.types):
        rows = np.flatnonzero(panel.batch.types == kind)
        for worker in range(len(panel.workers)):
            scores[rows, worker] = panel.scores[random.permutation(rows), worker]
    return replace(panel, scores=scores)


def submissions(file: Path) -> OutcomeMatrix:
    """Read results by task of public submissions."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    tasks, everybody = sorted({row["example_id"] for row in rows}), sorted({row["model"] for row in rows})
    solved = np.zeros((len(tasks), len(everybody)))
    place, column = ({name: index for index, name in enumerate(names)} for names in (tasks, everybody))
    for row in rows:
        solved[place[row["example_id"]], column[row["model"]]] = float(row["pass1"] > 0)
    share = solved.mean(axis=0)
    kept = np.flatnonzero(share >= LEAST_SOLVED * share.max())
    solved, names, share = solved[:, kept], tuple(everybody[index] for index in kept), share[kept]
    dollars = np.tile(10 ** ((share / share.max() - 1) / LEAST_SOLVED), (len(tasks), 1))
    unknown = np.full(solved.shape, np.nan)
    domains = [task.split("__")[0] for task in tasks]
    types = tuple(sorted({domain for domain in domains if domains.count(domain) >= 20}))
    codes = np.where(solved > 0.5, 0, NO_ANSWER)
    return OutcomeMatrix(
        ids=tuple(tasks),
        hashes=tuple(sha256(task.encode()).hexdigest() for task in tasks),
        workers=names,
        types=TaskTypes(types, ("open",) * len(types), "open"),
        batch=TaskBatch(tuple(tasks), np.array([types.index(one) if one in types else -1 for one in domains])),
        codes=codes,
        lengths=np.zeros(solved.shape, np.int64),
        tokens=unknown,
        scores=solved,
        dollars=dollars,
        seconds=unknown,
        there=np.ones(solved.shape, bool),
        propensities=np.ones(solved.shape),
        answers=False,
    )


@single_threaded_blas()
def reached(panel: OutcomeMatrix) -> tuple[Floats, Floats, Floats]:
    """Return what held-out tasks win and cost by budget, [T, B], and with the best worker of training, [T]."""
    won, cost, single = [], [], []
    for split in outer(panel, 5):
        names = candidate_names(split.train)[0]
        made, unit = fit_candidates(split.train, LearningOptions(), names), split.train.cost_unit()
        front = replay_frontier(made, made.dials[COMBINED], split.held, unit, BUDGETS)
        won.append(front.won)
        cost.append(front.cost)
        single.append(split.held.won[:, split.train.best_worker()])
    return np.concatenate(won), np.concatenate(cost), np.concatenate(single)


def report(name: str, panel: OutcomeMatrix) -> None:
    """Print what each way of learning reaches."""
    print(
        f"\n{name}: {len(panel)} tasks, {len(panel.workers)} workers, "
        f"any of them right on {panel.won.max(axis=1).mean():.3f}"
    )
    known, drawn = (apply_test_signal(one)[0] for one in (panel, drawn_anew(panel)))
    print(f"  {'budget':<13} " + " ".join(f"{budget:>14.2f}" for budget in BUDGETS))
    for entrant, one in (("scores alone", panel), ("test signal", known), ("drawn anew", drawn)):
        won, cost, single = reached(one)
        cells = [f"{hit:.3f} at {paid:.2f}" for hit, paid in zip(won.mean(axis=0), cost.mean(axis=0), strict=True)]
        print(f"  {entrant:<13} " + " ".join(f"{cell:>14}" for cell in cells), flush=True)
        if entrant == "test signal":
            told(single, won)


def told(single: Floats, won: Floats) -> None:
    """Print the best single worker, and the paired gain over it at .65 of its cost."""
    gain = won[:, list(BUDGETS).index(0.65)] - single
    error = Z * gain.std() / np.sqrt(len(gain))
    print(
        f"  best single worker {single.mean():.3f} at 1; test signal within .65 of it "
        f"{gain.mean():+.3f} [{gain.mean() - error:+.3f}, {gain.mean() + error:+.3f}]"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--swebench", type=Path)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    if not given.folder.is_dir():
        sys.exit(f"no recorded answers in {given.folder}")
    print(f"Test signals ({machine()}); costs are derived or made up, as said")
    panel = recorded("LR9", given.folder).panel
    kinds = [panel.types.names.index(name) for name in PROGRAMS]
    report("LLMRouter's HumanEval and MBPP", panel.at(np.isin(panel.batch.types, kinds)))
    if given.swebench:
        report("SWE-bench Verified (costs made up)", submissions(given.swebench))


if __name__ == "__main__":
    main()
