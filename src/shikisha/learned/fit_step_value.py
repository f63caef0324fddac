"""Fit step values on runs: whose answers were right is inferred from the grades of whole runs, by expectation
maximization.

E: within a unit at most one distinct answer is right; two workers that agree are right together, or wrong together with
a small chance; a check's verdict counts by how often checks are wrong, which is inferred as well. A right run had right
answers in all units it depends on. In a wrong run not all of them were right: with P the product of their chances, a
unit was right all the same with (s − P) / (1 − P). M: one logistic regression with Gaussian priors for all workers,
then one for each, drawn to it. `check_gain` is the value under which the runs with checks are most likely; with none of
them it is 0, so that checks are proposed only where they were seen to help.

Invariants: the same runs give the same model; a run without a grade moves nothing but by agreement within its units.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np

from shikisha.core.task import join_scopes
from shikisha.learned.step_encoder import NgramEncoder, fit_encoder
from shikisha.learned.step_samples import ACTS, RunSample, StepAnswer, StepUnit
from shikisha.learned.step_value import (
    CHECK_KEEPS,
    OWN_WEIGHTS,
    StepValue,
    Verdicts,
    check_chance,
    design_rows,
    split_phrases,
)
from shikisha.routing.arrays import Floats, Ints

_EM_ROUNDS = 12
_NEWTON_STEPS = 3
_COINCIDENCE = 0.3  # chance that two wrong answers to one subtask are the same
# Failed and passed checks of right answers, and of wrong ones, that are believed before any run.
_ALARM_PRIOR, _CATCH_PRIOR = (0.4, 19.6), (7.0, 3.0)
# Of the constant, the planner's choice, merged, phrases, and the vector's weights: for all workers, and for each.
_COMMON_PRECISION = (0.3, 0.3, 30.0, 8.0, 1.0)
_OWN_PRECISION = (0.7, 2.0, 30.0, 4.0, 0.35)
_PHRASE_HELP = 0.15
_FURTHER = 0.5  # what a further subtask in a call costs, as a share of a call, before one was seen
_MERGED_HARM = -0.5  # of doing many subtasks in one call, before any run, added to a logit
_PLANNER_TRUST = 0.3  # a planner's choice of a worker, before any run, added to a logit
PHRASES = (
    "Reply with the result only.",
    "Mind the units: whole numbers, dates as YYYY-MM-DD.",
    "Go over your result twice.",
)
_GAINS = tuple(step / 10 for step in range(10))
_CLIP = 1e-4


@dataclass(frozen=True, slots=True)
class _Rows:
    """All answers of all units in one table: design matrix, worker, and where each unit's answers are."""

    design: Floats
    workers: Ints
    failed: Floats  # 1 where a check said no, 0 where it said yes, else not a number
    units: tuple[tuple[tuple[int, ...], ...], ...]  # by run, by unit: rows


def fit_step_value(
    samples: Sequence[RunSample], encoder: NgramEncoder | None = None, phrases: Sequence[str] = PHRASES
) -> StepValue:
    """Return the step values that these runs teach; an encoder is fitted on their subtasks if none is given.

    Without any run, every worker has the same chance everywhere, with a large variance.
    """
    names = tuple(sorted({one.worker for run in samples for unit in run.units for one in unit.answers}))
    texts = [split_phrases(unit.subtask, phrases)[0] for run in samples for unit in run.units]
    reads = encoder if encoder is not None else fit_encoder(texts)
    scope = join_scopes(run.scope for run in samples)
    if not names:
        prior = _precisions(_OWN_PRECISION, reads.size + OWN_WEIGHTS + len(phrases), len(phrases))
        empty, none = np.zeros((0, len(prior))), _prior_mean(len(prior), len(phrases))
        return StepValue(reads, (), empty, empty, none, 1 / prior, (), (), scope, 0.0, tuple(phrases))
    rows = _table(samples, reads, names, phrases)
    graded = [run.right for run in samples if run.right is not None]
    start = float(np.clip(np.mean(graded) if graded else 0.5, 0.05, 0.95)) ** 0.5
    chances = np.full(len(rows.workers), start)
    gain, verdicts = 0.0, _verdict_rates(rows, chances, np.zeros(len(chances)))
    model: tuple[Floats, Floats, Floats, Floats] | None = None
    for _ in range(_EM_ROUNDS):
        shares, counts = _responsibilities(samples, rows, chances, gain, verdicts)
        verdicts = _verdict_rates(rows, shares, counts)
        model = _regressions(rows, shares, counts, len(names), len(phrases), model)
        chances = _predict(rows, model[0])
        gain = _most_likely_gain(samples, rows, chances, verdicts)
    assert model is not None  # noqa: S101 - there is a round
    paid, tries = _prices(samples, names)
    merged = _merged_price(samples, dict(zip(names, paid, strict=True)))
    return StepValue(
        reads,
        names,
        *model,
        paid,
        tries,
        scope,
        gain,
        tuple(phrases),
        *merged,
        planning=_planning_dollars(samples),
        verdicts=verdicts,
    )


def run_chance(model: StepValue, sample: RunSample) -> float:
    """Return the model's chance that a run with these units and workers is right."""
    used = [unit for unit in sample.units if unit.used is not None]
    if not used:
        return 0.0
    names = sorted({one.worker for unit in used for one in unit.answers})
    texts = [_told_text(unit, model.phrases) for unit in used]
    together = np.array([unit.together for unit in used])
    plain = model.chances(texts, names, together=together)
    chosen = model.chances(texts, names, np.ones((len(used), len(names))), together)
    found = 1.0
    for row, unit in enumerate(used):
        each = [(chosen if one.proposed else plain)[row, names.index(one.worker)] for one in unit.answers]
        found *= _used_chance(unit, each, model.check_gain, model.verdicts)
    return float(found)


def _table(samples: Sequence[RunSample], encoder: NgramEncoder, names: Sequence[str], phrases: Sequence[str]) -> _Rows:
    design, workers, units = list[Floats](), list[int](), list[tuple[tuple[int, ...], ...]]()
    failed = list[float]()
    place = {name: at for at, name in enumerate(names)}
    for run in samples:
        vectors = design_rows([_told_text(unit, phrases) for unit in run.units], phrases, encoder)
        if run.arm == ACTS:
            # Which phrases were said was learned, and changed with time as all else did: only draws tell.
            vectors[:, 1 : 1 + len(phrases)] = 0.5
        of_run = []
        for vector, unit in zip(vectors, run.units, strict=True):
            rows = []
            vector[1 : 1 + len(phrases)] /= unit.together  # said once for the whole call
            merged = (unit.together - 1) / unit.together
            for one in unit.answers:
                rows.append(len(workers))
                design.append(np.concatenate((vector[:1], [float(one.proposed), merged], vector[1:])))
                workers.append(place[one.worker])
                failed.append(float("nan") if one.failed is None else float(one.failed))
            of_run.append(tuple(rows))
        units.append(tuple(of_run))
    return _Rows(np.array(design), np.array(workers, dtype=np.int64), np.array(failed), tuple(units))


def _told_text(unit: StepUnit, phrases: Sequence[str]) -> str:
    """Return a unit's subtask with the phrases that its whole call had."""
    if not unit.call:
        return unit.subtask
    plain, _ = split_phrases(unit.subtask, phrases)
    return " ".join([plain, *(phrase for phrase in phrases if phrase in unit.call)])


def _used_chance(unit: StepUnit, chances: Sequence[float], gain: float, verdicts: Verdicts) -> float:
    """Return the chance that the answer which a unit went on with is right."""
    if unit.checks:
        return float(check_chance(chances[0], chances[1], gain))
    states = answer_states(unit.answers, chances, verdicts)
    return sum(
        weight
        for answer, weight in states.items()
        if unit.used is not None and answer == unit.answers[unit.used].answer
    )


def answer_states(
    answers: Sequence[StepAnswer], chances: Sequence[float], verdicts: Verdicts
) -> dict[str | None, float]:
    """Return how likely each distinct answer is the right one (None: none of them), given who said what.

    `verdicts` are how often a check fails a right answer, and a wrong one.
    """
    said = list(dict.fromkeys(one.answer for one in answers))
    weights: dict[str | None, float] = {}
    for right in (*said, None):
        weight, wrong = 1.0, defaultdict[str, int](int)
        for one, chance in zip(answers, chances, strict=True):
            is_right = one.answer == right
            if is_right:
                weight *= chance
            else:
                weight *= (1 - chance) * (_COINCIDENCE if wrong[one.answer] else 1.0)
                wrong[one.answer] += 1
            if one.failed is not None:
                fails = verdicts[0] if is_right else verdicts[1]
                weight *= fails if one.failed else 1 - fails
        weights[right] = weight
    total = sum(weights.values()) or 1.0
    return {answer: weight / total for answer, weight in weights.items()}


def _verdict_rates(rows: _Rows, shares: Floats, counts: Floats) -> Verdicts:
    """Return how often checks fail right answers, and wrong ones, given how likely each answer was right."""
    seen = (counts > 0) & ~np.isnan(rows.failed)
    failed, right = rows.failed[seen], shares[seen]
    rates = []
    for weight, (no, yes) in ((right, _ALARM_PRIOR), (1 - right, _CATCH_PRIOR)):
        rates.append(float((weight @ failed + no) / (weight.sum() + no + yes)))
    return rates[0], rates[1]


def _responsibilities(
    samples: Sequence[RunSample], rows: _Rows, chances: Floats, gain: float, verdicts: Verdicts
) -> tuple[Floats, Floats]:
    """Return for each answer how likely it was right, and how much it counts (0 where nothing is known of it)."""
    shares, counts = np.array(chances), np.zeros(len(chances))
    for run, places in zip(samples, rows.units, strict=True):
        used = [(unit, at) for unit, at in zip(run.units, places, strict=True) if unit.used is not None]
        each = [_used_chance(unit, [float(chances[row]) for row in at], gain, verdicts) for unit, at in used]
        together = prod(each)
        after = dict[int, float]()
        for (_, at), chance in zip(used, each, strict=True):
            if run.right is not None:
                left = max(_CLIP, 1 - together)
                after[at[0]] = 1.0 if run.right else max(0.0, (chance - together) / left)
        for unit, at in zip(run.units, places, strict=True):
            _share_unit(unit, at, after.get(at[0]), chances, gain, verdicts, shares, counts)
    return shares, counts


def _share_unit(
    unit: StepUnit,
    rows: tuple[int, ...],
    right: float | None,
    chances: Floats,
    gain: float,
    verdicts: Verdicts,
    shares: Floats,
    counts: Floats,
) -> None:
    """Set the shares of a unit's answers, given the chance that the used one was right (None: not known)."""
    own = [float(chances[row]) for row in rows]
    if unit.checks:
        _share_check(rows, right, own, gain, unit, shares, counts)
        return
    states = answer_states(unit.answers, own, verdicts)
    kept = None if unit.used is None else unit.answers[unit.used].answer
    if right is not None and kept is not None:
        rest = max(_CLIP, 1 - states[kept])
        states = {answer: right if answer == kept else weight * (1 - right) / rest for answer, weight in states.items()}
    elif len(unit.answers) == 1 and unit.answers[0].failed is None:
        return
    for row, one in zip(rows, unit.answers, strict=True):
        shares[row] = states[one.answer]
        counts[row] = 1.0


def _share_check(
    rows: tuple[int, ...],
    right: float | None,
    own: Sequence[float],
    gain: float,
    unit: StepUnit,
    shares: Floats,
    counts: Floats,
) -> None:
    """Share a checked unit: where the checker left the first answer, it is the first one's to be right."""
    if right is None:
        return
    first, second = rows
    if unit.answers[0].answer == unit.answers[1].answer:
        shares[first], counts[first] = right, 1.0
        return
    # The checker changed it: its own answer is the used one, and the first was right only if the check spoiled it.
    spoiled = own[0] * (1 - CHECK_KEEPS)
    shares[second], counts[second] = right, 1.0
    shares[first], counts[first] = (1 - right) * min(1.0, spoiled / max(_CLIP, spoiled + (1 - own[0]) * gain)), 1.0


def _regressions(
    rows: _Rows,
    shares: Floats,
    counts: Floats,
    workers: int,
    phrases: int,
    before: tuple[Floats, Floats, Floats, Floats] | None,
) -> tuple[Floats, Floats, Floats, Floats]:
    width = rows.design.shape[1]
    common_prior, own_prior = (_precisions(parts, width, phrases) for parts in (_COMMON_PRECISION, _OWN_PRECISION))
    common = _prior_mean(width, phrases) if before is None else before[2]
    kept = counts > 0
    middle = _prior_mean(width, phrases)
    common, common_variance = _newton(rows.design[kept], shares[kept], counts[kept], middle, common_prior, common)
    weights, variances = np.zeros((workers, width)), np.zeros((workers, width))
    for worker in range(workers):
        mine = kept & (rows.workers == worker)
        start = common if before is None else before[0][worker]
        weights[worker], variances[worker] = _newton(
            rows.design[mine], shares[mine], counts[mine], common, own_prior, start
        )
    return weights, variances, common, common_variance + 1 / own_prior


def _prior_mean(width: int, phrases: int) -> Floats:
    """Return what is believed before any run: the planner knows something, phrases help a little, all else is even."""
    own = (0.0, _PLANNER_TRUST, _MERGED_HARM)
    return np.array([*own, *([_PHRASE_HELP] * phrases), *([0.0] * (width - OWN_WEIGHTS - phrases))])


def _precisions(parts: tuple[float, float, float, float, float], width: int, phrases: int) -> Floats:
    return np.array([*parts[:3], *([parts[3]] * phrases), *([parts[4]] * (width - OWN_WEIGHTS - phrases))])


def _newton(
    design: Floats, shares: Floats, counts: Floats, mean: Floats, precision: Floats, start: Floats
) -> tuple[Floats, Floats]:
    """Return the posterior mode of a logistic regression, and the variance of each weight."""
    weights = np.array(start)
    hessian = np.diag(precision)
    for _ in range(_NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (counts * (shares - chances)) - precision * (weights - mean)
        curve = counts * np.maximum(chances * (1 - chances), 1e-3)
        hessian = (design * curve[:, None]).T @ design + np.diag(precision)
        step = np.linalg.solve(hessian, slope)
        weights = weights + step / max(1.0, float(np.abs(step).max()) / 2)
    return weights, np.diag(np.linalg.inv(hessian)).copy()


def _predict(rows: _Rows, weights: Floats) -> Floats:
    logits = np.einsum("rf,rf->r", rows.design, weights[rows.workers])
    return np.asarray(np.clip(1 / (1 + np.exp(-np.clip(logits, -30, 30))), _CLIP, 1 - _CLIP))


def _most_likely_gain(samples: Sequence[RunSample], rows: _Rows, chances: Floats, verdicts: Verdicts) -> float:
    """Return the gain of a check under which the graded runs with checks are most likely; 0 without such runs."""
    tried = [
        (run, places)
        for run, places in zip(samples, rows.units, strict=True)
        if run.right is not None and any(unit.checks and unit.used is not None for unit in run.units)
    ]
    if not tried:
        return 0.0

    def likelihood(gain: float) -> float:
        total = 0.0
        for run, places in tried:
            each = [
                _used_chance(unit, [float(chances[row]) for row in at], gain, verdicts)
                for unit, at in zip(run.units, places, strict=True)
                if unit.used is not None
            ]
            right = min(max(prod(each), _CLIP), 1 - _CLIP)
            total += log(right if run.right else 1 - right)
        return total

    return max(_GAINS, key=likelihood)


def _prices(samples: Sequence[RunSample], names: Sequence[str]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the mean dollars and the number of calls that did one subtask (where there is none: of all calls)."""
    alone, any_call = (dict.fromkeys(names, (0.0, 0)) for _ in range(2))
    for run in samples:
        for unit in run.units:
            for place, one in enumerate(unit.answers):
                if unit.checks and place:
                    continue  # a check costs less than an answer
                for sums in (any_call, alone) if unit.together == 1 else (any_call,):
                    sums[one.worker] = (sums[one.worker][0] + one.dollars, sums[one.worker][1] + 1)
    found = [alone[name] if alone[name][1] else any_call[name] for name in names]
    return tuple(paid / max(1, tries) for paid, tries in found), tuple(any_call[name][1] for name in names)


def _merged_price(samples: Sequence[RunSample], prices: Mapping[str, float]) -> tuple[int, float]:
    """Return how many calls did several subtasks, and what a further subtask costs, as a share of a call."""
    calls = paid = whole = 0.0
    prior = float(np.mean([*prices.values()]) if prices else 0.0) + 1e-9
    for run in samples:
        for unit in run.units:
            if unit.together > 1:
                one = unit.answers[0]
                price = prices[one.worker]
                calls += 1 / unit.together
                paid += one.dollars - price / unit.together
                whole += price * (unit.together - 1) / unit.together
    return round(calls), float(np.clip((paid + _FURTHER * prior) / (whole + prior), 0.0, 1.0))


def _planning_dollars(samples: Sequence[RunSample]) -> float:
    """Return the mean dollars that planned runs cost besides their steps."""
    left = [run.dollars - sum(one.dollars for unit in run.units for one in unit.answers) for run in samples]
    planned = [one for one in left if one > 0]
    return float(np.mean(planned)) if planned else 0.0
