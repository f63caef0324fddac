"""The router by prompt on logs that have scores only, against the rule by type: LR9, and RouteLLM's pair on MMLU.

    python benchmarks/router.py [LR9|RL] [--json]

Both are fitted on one part of the tasks and judged on the rest: five folds of all tasks by content, and five seeds of
80/20 by SHA-256 of seed and task. LR9: mean score at no price. RL: the tasks in which the strong worker is thought to
gain most go to it; APGR and CPT of the curve. Intervals are paired bootstraps over tasks, and do not hold the noise of
the fits. The recipe was chosen on the training part of seed 10, so only what is left of seed 10 is quite clean.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from resource import RUSAGE_SELF, getrusage
from time import process_time, thread_time

import numpy as np

from common import Figure, report
from routers_sets import Split, outer, recorded, seeded
from shikisha.evals.router_curves import RouterPoint, WorkerOutcomes, apgr, cpt, threshold_sweep
from shikisha.evals.statistics import bootstrap
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.fit_router import fit_router
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.router_rule import RouterRule
from shikisha.routing.state import TaskBatch

SEEDS = range(10, 15)
RESAMPLES = 400
TIMED = 300  # prompts


@dataclass(frozen=True)
class Judged:
    """Held-back tasks with what the rule and the router thought of each worker, [T, J]."""

    panel: OutcomeMatrix
    rule: Floats
    router: Floats

    def at(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> "Judged":
        """Return these tasks."""
        return Judged(self.panel.at(rows), self.rule[rows], self.router[rows])


def judged(split: Split) -> tuple[Judged, RouterRule]:
    """Fit on the training part, and say what is thought of the other."""
    router = fit_router(split.train, split.folds).part
    batch = split.held.batch
    return Judged(split.held, router.table.success[batch.types], router.success(batch)), router


def joined(parts: Sequence[Judged]) -> Judged:
    """Return the held-back tasks of several folds as one; of their panels only what is scored is kept."""
    first = parts[0].panel
    panel = replace(
        first.at(np.zeros(0, np.int64)),
        ids=tuple(name for part in parts for name in part.panel.ids),
        scores=np.concatenate([part.panel.scores for part in parts]),
    )
    rule, router = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rule", "router"))
    return Judged(panel, rule, router)


def chosen(held: Judged) -> tuple[Floats, Floats]:
    """Return [T] what the rule and the router win, each asking whom it thinks best."""
    rows = np.arange(len(held.rule))
    scores = np.nan_to_num(held.panel.scores)
    return scores[rows, held.rule.argmax(axis=1)], scores[rows, held.router.argmax(axis=1)]


def recovered(scores: Floats, thought: Floats) -> Floats:
    """Return APGR, CPT50 and CPT80 of asking the better of two by what is thought of them."""
    strong = int(scores.mean(axis=0).argmax())
    weak, high = scores[:, 1 - strong].tolist(), scores[:, strong].tolist()
    steps: list[RouterPoint] = threshold_sweep(
        WorkerOutcomes("weak", weak),
        WorkerOutcomes("strong", high),
        (thought[:, strong] - thought[:, 1 - strong]).tolist(),
    )
    points, ends = [(step.share, step.score) for step in steps], (float(np.mean(weak)), float(np.mean(high)))
    return np.array([apgr(points, *ends), *(cpt(points, *ends, gap) or np.nan for gap in (0.5, 0.8))])


def interval(held: Judged) -> tuple[Floats, Floats, Floats]:
    """Return the router's figures, 95 % intervals of them [2, 3], and of their differences to the rule's [2, 3]."""
    random, scores = np.random.default_rng(0), np.nan_to_num(held.panel.scores)
    drawn = []
    for _ in range(RESAMPLES):
        rows = random.integers(0, len(scores), len(scores))
        mine = recovered(scores[rows], held.router[rows])
        drawn.append([mine, mine - recovered(scores[rows], held.rule[rows])])
    own, less = np.nanpercentile(np.array(drawn), (2.5, 97.5), axis=0).transpose(1, 0, 2)
    return recovered(scores, held.router), own, less


def decisions(router: RouterRule, panel: OutcomeMatrix) -> list[float]:
    """Return the milliseconds of CPU in which it decides on each of some tasks, one at a time."""
    asked = np.zeros((1, len(panel.workers)), bool)
    found = []
    for row in np.linspace(0, len(panel) - 1, TIMED).astype(np.int64):
        one = panel.at(row[None])
        seen = replace(
            one.state_after(asked), batch=TaskBatch(one.batch.prompts, one.batch.types)
        )  # nothing known of it yet
        begun = thread_time()
        router.act(seen, 0)
        found.append(1e3 * (thread_time() - begun))
    return found


def tried(panel: OutcomeMatrix, splits: Iterable[Split]) -> tuple[list[Judged], list[Figure]]:
    """Judge every split, and say what fitting and deciding took."""
    found, seconds, router = [], [], None
    for split in splits:
        begun = process_time()
        held, router = judged(split)
        seconds.append(process_time() - begun)
        found.append(held)
    assert router is not None
    times = decisions(router, panel)
    return found, [
        Figure("a fit, CPU: longest", max(seconds), "s", 60.0),
        Figure("memory of this process at most", getrusage(RUSAGE_SELF).ru_maxrss / 2**10, "MiB", 1024.0),
        Figure("a decision, CPU: median", float(np.median(times)), "ms"),
        Figure("a decision, CPU: p99", float(np.percentile(times, 99)), "ms", 2.0),
    ]


def lr9() -> list[Figure]:
    """Mean scores, asking whom each thinks best."""
    panel = recorded("LR9").panel
    panel = replace(panel, dollars=np.zeros_like(panel.dollars))
    found, cost = tried(panel, [*outer(panel, 5), *(seeded(panel, seed) for seed in SEEDS)])
    rule, router = chosen(joined(found[:5]))
    figures = [
        Figure("five folds: the rule", float(rule.mean()), ""),
        Figure("five folds: the router", float(router.mean()), "", 0.675, True),
    ]
    figures += _bounds("five folds: router less rule", router - rule)
    pairs = [chosen(held) for held in found[5:]]
    gains = [float((router - rule).mean()) for rule, router in pairs]
    figures.append(Figure("mean of the seeds: router less rule", float(np.mean(gains)), ""))
    for seed, (rule, router) in zip(SEEDS, pairs, strict=True):
        figures.append(Figure(f"seed {seed}: the rule", float(rule.mean()), ""))
        figures += _bounds(f"seed {seed}: router less rule", router - rule)
    return figures + cost


def _bounds(what: str, differences: Floats) -> list[Figure]:
    low, high = bootstrap(differences.tolist())
    return [
        Figure(what, float(differences.mean()), ""),
        Figure(f"{what}, from", low, "", 0.0, True),
        Figure(f"{what}, to", high, ""),
    ]


def rl() -> list[Figure]:
    """APGR, CPT50 and CPT80 of RouteLLM's pair."""
    panel = recorded("RL").panel
    found, cost = tried(panel, [*outer(panel, 5), *(seeded(panel, seed) for seed in SEEDS)])
    whole = joined(found[:5])
    mine, own, less = interval(whole)
    rule = recovered(whole.panel.scores, whole.rule)
    figures = []
    names = ("APGR", "CPT50", "CPT80")
    aims = ((0.69, True), (0.27, False), (0.55, False))
    for place, (name, aim) in enumerate(zip(names, aims, strict=True)):
        figures.append(Figure(f"five folds: {name}: the rule", float(rule[place]), ""))
        figures.append(Figure(f"five folds: {name}: the router", float(mine[place]), "", *aim))
        for end, bound in zip(("from", "to"), own[:, place], strict=True):
            figures.append(Figure(f"five folds: {name}, {end}", float(bound), ""))
        for end, bound in zip(("from", "to"), less[:, place], strict=True):
            figures.append(Figure(f"five folds: {name}, router less rule, {end}", float(bound), ""))
    seeds = [[recovered(held.panel.scores, thought) for thought in (held.rule, held.router)] for held in found[5:]]
    for seed, (other, own_) in zip(SEEDS, seeds, strict=True):
        for place, name in enumerate(names):
            figures.append(Figure(f"seed {seed}: {name}: the rule", float(other[place]), ""))
            figures.append(Figure(f"seed {seed}: {name}: the router", float(own_[place]), ""))
    means = np.mean(seeds, axis=0)
    for place, (name, aim) in enumerate(zip(names, aims, strict=True)):
        figures.append(Figure(f"mean of the seeds: {name}: the rule", float(means[0, place]), ""))
        figures.append(Figure(f"mean of the seeds: {name}: the router", float(means[1, place]), "", *aim))
    return figures + cost


SETS = {"LR9": lr9, "RL": rl}

if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if name in SETS] or list(SETS)
    for name in wanted:
        report(f"The router, {name}", SETS[name]())
