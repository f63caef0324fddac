"""What step values bring on runs that they were not fitted on, next to the conductors that made these runs.

Three figures. `predictive_gain`: how much better they predict which runs are right than each worker's average does.
`estimated_gain`: dollars of worth a run, if steps went to the workers that one half of the other runs chooses, valued
by what the other half says; the half that values has not chosen, so that luck is not counted as skill. It is doubly
robust: where the workers of a run were drawn, and are those that would be chosen, the run's grade corrects what the
values say of it, by how unlikely the draw was. `trial_gain`:
the measured difference between tasks on which values acted and tasks that they left to the conductor in force, by a
draw.

Invariants: a task's runs are in one fold; all intervals are 95 %; a trial goes before an estimate. `is_shown` is the
one place that decides whether values may be written, and whether they may act alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import log, prod, sqrt

import numpy as np

from shikisha.evals.statistics import mean_interval
from shikisha.learned.fit_step_value import fit_step_value, run_chance
from shikisha.learned.learned_file import LearnedGain
from shikisha.learned.step_encoder import NgramEncoder
from shikisha.learned.step_samples import ACTS, DRAWN, STANDS_BY, RunSample, StepUnit
from shikisha.learned.step_value import StepValue

MIN_RUNS = 60  # graded runs with steps; below, nothing is said
MIN_ARM = 30  # graded runs of each arm of a trial
_FOLDS = 3
_CLIP = 0.01
_MOST_WEIGHT = 20.0  # of one drawn run's grade in an estimate: rarer draws would decide it alone


@dataclass(frozen=True, slots=True)
class StepValueEvidence:
    """The three figures (None: cannot be said), and the conductors in force with runs, right share and dollars."""

    predictive: LearnedGain | None
    estimated: LearnedGain | None
    trial: LearnedGain | None
    in_force: tuple[tuple[str, int, float, float], ...]

    @property
    def gain(self) -> LearnedGain | None:
        """The figure that decides: the trial's where there is one, else the estimate."""
        return self.trial or self.estimated

    @property
    def is_shown(self) -> bool:
        """Whether values predict better than averages, and their gain excludes harm."""
        gain, predictive = self.gain, self.predictive
        if self.trial is not None:
            return self.trial.excludes_harm
        return gain is not None and predictive is not None and predictive.excludes_harm and gain.excludes_harm


def evaluate_step_value(samples: Sequence[RunSample], worth: float) -> StepValueEvidence:
    """Return what values fitted on these runs bring, by folds of tasks."""
    graded = [run for run in samples if run.right is not None and any(unit.used is not None for unit in run.units)]
    trial = trial_gain(graded, worth)
    if len(graded) < MIN_RUNS:
        return StepValueEvidence(None, None, trial, conductors_in_force(graded))
    better, worths = list[float](), list[float]()
    for fold in range(_FOLDS):
        test = [run for run in graded if _part(run, _FOLDS) == fold]
        rest = [run for run in samples if _part(run, _FOLDS) != fold]
        halves = [[run for run in rest if _part(run, 2, "half") == half] for half in range(2)]
        models = [fit_step_value(half) for half in halves]
        plain = fit_step_value(rest, NgramEncoder(*_no_texts()), ())
        for run in test:
            chance = sqrt(prod(_clipped(run_chance(model, run)) for model in models))
            better.append(_likelihood(chance, run) - _likelihood(_clipped(run_chance(plain, run)), run))
            worths.append(sum(worth_gained(models[at], models[1 - at], run, worth) for at in range(2)) / 2)
    estimate = "estimated by values of other runs, doubly robust"
    return StepValueEvidence(
        _gain("log-likelihood of a run's grade", better, "measured"),
        _gain("dollars of worth a run", worths, estimate),
        trial,
        conductors_in_force(graded),
    )


def trial_gain(graded: Sequence[RunSample], worth: float) -> LearnedGain | None:
    """Return the measured difference of worth a run between the arms of a trial; None without two full arms."""
    arms = [[worth * (run.right or 0.0) - run.dollars for run in graded if run.arm == arm] for arm in (ACTS, STANDS_BY)]
    if min(map(len, arms)) < MIN_ARM:
        return None
    means = [float(np.mean(arm)) for arm in arms]
    error = sqrt(sum(float(np.var(arm, ddof=1)) / len(arm) for arm in arms))
    mean = means[0] - means[1]
    basis = "measured in a randomized trial"
    return LearnedGain(
        "dollars of worth a run", mean, mean - 1.96 * error, mean + 1.96 * error, sum(map(len, arms)), basis
    )


def conductors_in_force(graded: Sequence[RunSample]) -> tuple[tuple[str, int, float, float], ...]:
    """Return by conductor: its graded runs, the share that is right, and mean dollars; most runs first."""
    names = sorted({run.conductor for run in graded})
    rows = []
    for name in names:
        own = [run for run in graded if run.conductor == name]
        right, dollars = sum(run.right or 0.0 for run in own) / len(own), sum(run.dollars for run in own) / len(own)
        rows.append((name, len(own), right, dollars))
    return tuple(sorted(rows, key=lambda row: -row[1]))


def worth_gained(chooses: StepValue, values: StepValue, run: RunSample, worth: float) -> float:
    """Return what `values` says that the choices of `chooses` are worth more than those that were made."""
    names = tuple(name for name in chooses.workers if name in values.workers)
    used = [unit for unit in run.units if unit.used is not None]
    if not names or not used:
        return 0.0
    texts = [unit.subtask for unit in used]
    prices = np.array([chooses.price(name) or 0.0 for name in names])
    own = chooses.chances(texts, names)
    rest = float(np.prod(own.max(axis=1)))
    picked = [int(np.argmax(worth * rest / max(row.max(), _CLIP) * row - prices)) for row in own]
    seen = values.chances(texts, names)
    paid = np.array([values.price(name) or 0.0 for name in names])
    after = worth * float(np.prod([seen[at, pick] for at, pick in enumerate(picked)])) - float(paid[picked].sum())
    before = worth * run_chance(values, replace(run, units=tuple(map(_unproposed, used)))) - sum(
        one.dollars for unit in used for one in unit.answers
    )
    return after - before + worth * _correction(values, [names[pick] for pick in picked], used, run)


def _correction(values: StepValue, picked: Sequence[str], used: Sequence[StepUnit], run: RunSample) -> float:
    """Return by how much a drawn run with the picked workers was better than `values` said, weighed by its rarity."""
    if run.arm != DRAWN or run.right is None or any(unit.checks or unit.together > 1 for unit in used):
        return 0.0
    weight = 1.0
    for unit, name in zip(used, picked, strict=True):
        one = unit.answers[unit.used or 0]
        if one.worker != name or one.propensity is None:
            return 0.0
        weight = min(_MOST_WEIGHT, weight / one.propensity)
    return weight * (run.right - run_chance(values, run))


def _unproposed(unit: StepUnit) -> StepUnit:
    """Return the unit without whom a planner named: both sides are valued by what is known of workers alone."""
    return replace(unit, answers=tuple(replace(one, proposed=False) for one in unit.answers))


def _gain(measure: str, values: Sequence[float], basis: str) -> LearnedGain:
    low, high = mean_interval(values)
    return LearnedGain(measure, float(np.mean(values)), low, high, len(values), basis)


def _part(run: RunSample, parts: int, word: str = "fold") -> int:
    return int.from_bytes(sha256(f"{word} {run.task}".encode()).digest()[:4], "big") % parts


def _clipped(chance: float) -> float:
    return min(max(chance, _CLIP), 1 - _CLIP)


def _likelihood(chance: float, run: RunSample) -> float:
    return log(chance if run.right else 1 - chance)


def _no_texts() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the parts of an encoder that knows no text, so that a worker's average is all there is."""
    return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 1)), np.zeros((1, 1))
