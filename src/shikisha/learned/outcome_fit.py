"""Fit the outcome model on runs: whose answers were right is inferred from the grades of whole runs.

Expectation maximization. E: within a unit at most one distinct answer is right, so that equal answers speak for one
another; a check that changed a result, an executed check's verdict and a fault count by how often they are wrong. With
f a unit's chance, A the product of a run's and P = P(all right | grade), a unit was right with P + (1 - P) (f - A) /
(1 - A). M: Newton steps of one logistic regression, worker by worker. A row counts with the information that it has:
p (1 - p) less what is not known of it. How far workers differ by subtask is estimated in each round (empirical Bayes:
their weights' squares against how many of them the rows determine).

A worker is another one since its endpoint names another model, or where its last runs are far likelier if it had
fallen, or risen from where it was mostly wrong: what it did before is left out.

Invariants: the same runs give the same model, whatever was fitted before; a run without a grade moves nothing but by
agreement, checks and faults; work and memory are bounded (`choose_evidence`).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from math import prod

import numpy as np

from shikisha.core.events import GradeBasis
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.task import Scope
from shikisha.learned.outcome_model import (
    FINDS_PRIOR,
    FREE_RUNS,
    KEEPS_PRIOR,
    KIND_PRECISION,
    MOST_KINDS,
    SHARE_PRIOR,
    TOLD,
    EncodeTexts,
    LearningFigures,
    OutcomeModel,
    SubtaskReader,
    WorkerFigures,
    own_columns,
    own_precision,
    price_scale,
    prior_model,
    shared_prior,
    subtask_vectors,
)
from shikisha.learned.step_evidence import MOST_ANSWERS, RunEvidence, StepAnswer
from shikisha.routing.arrays import Flags, Floats, Ints

MOST_UNITS = 60_000  # units that one fit looks at
_RARE = 200  # answers of a worker that are kept before others' newer ones
_EM_ROUNDS, _NEWTON_STEPS = 8, 2
_COINCIDENCE = 0.1  # chance that two wrong answers to one subtask are the same
# How often a grade is wrong, by whose word it is.
_GRADE_ERROR = {GradeBasis.EXECUTED: 0.02, GradeBasis.PERSON: 0.02, GradeBasis.JUDGE: 0.15}
_ALARM_PRIOR, _CATCH_PRIOR = (0.6, 19.4), (6.0, 4.0)  # failed and passed checks of right answers, and of wrong ones
_LEAST_INFORMATION = 0.05
_SPREAD_PRIOR = 5.0  # weights that the prior of how far workers differ by subtask is worth
_SOFT = 0.3  # chances before the first round are at least this, and at most 1 less this
_CHANGED = 0.3  # what a fall leaves of a worker's chance, and a rise of what is missing
_CHANGE_PRIOR = 6.0  # log odds against a change that runs must outweigh
_LEAST_SINCE = 6  # runs before and since a change
_RISES_FROM = 0.5  # chances below it are too low where a worker rose: higher ones are low since they are shrunk
_FORETOLD, _FORETOLD_ROUNDS = 80, 3  # newest runs in which a change is looked for, and rounds without them
_CLIP = 1e-4
_MOST_TEXTS = 4_000  # wordings that their places are taken from
_ARM_RUNS = 1_000  # newest runs that say what the arms came to
_ACTS = 0.93
# The share of tasks on which it acts once it earned less, graded runs of each arm, standard errors: trial and verdict.
_DEMOTIONS = ((0.5, 20, 1.645), (0.07, 50, 2.326))
_CREDIT_WINDOW, _CREDIT_RUNS = 300, 50  # runs whose exploration counts, and over which what is left of it is spread


@dataclass(frozen=True, slots=True)
class LearningTerms:
    """What a right answer is worth in dollars, the share of dollars to explore with, and the standing phrases."""

    worth: float = 0.05
    share: float = 0.1
    phrases: tuple[str, ...] = ()

    def explored_share(self, runs: int) -> float:
        """Return the share of the dollars that may go to exploration after so many runs."""
        if not self.share:
            return 0.0
        return 1.0 if runs < FREE_RUNS else max(0.3, self.share) if runs < 300 else self.share


@dataclass(frozen=True, slots=True)
class _Rows:
    """All answers and checks as rows, and all units as tables of rows; -1 stands for none.

    `answers` (units, MOST_ANSWERS) and `checks` (units) are rows, `same` has the place of the first equal answer,
    `used` the place of the answer that counts, `runs` the run of each unit.
    """

    design: Floats
    workers: Ints
    verdicts: Floats  # 1 yes, -1 no, 0 none
    faults: Floats
    answers: Ints
    same: Ints
    used: Ints
    checks: Ints
    changed: Floats
    runs: Ints
    row_runs: Ints


def choose_evidence(runs: Sequence[RunEvidence], most: int = MOST_UNITS) -> list[RunEvidence]:
    """Return the runs to learn from, oldest first: the newest, and beyond `most` units those of workers seen rarely."""
    kept, units, seen = list[RunEvidence](), 0, Counter[str]()
    for one in sorted(runs, key=lambda run: (run.at, run.run), reverse=True):
        names = {answer.worker for unit in one.units for answer in unit.answers}
        rare = any(seen[name] < _RARE for name in names)
        if units + len(one.units) <= most or (rare and units + len(one.units) <= 2 * most):
            kept.append(one)
            units += len(one.units)
            seen.update(answer.worker for unit in one.units for answer in unit.answers)
    return kept[::-1]


def fit_outcomes(
    runs: Sequence[RunEvidence], terms: LearningTerms, scope: Scope, encode: EncodeTexts | None
) -> OutcomeModel:
    """Return the model that these runs teach (oldest first); the prior without any."""
    if not runs:
        return prior_model(terms.phrases, scope)
    reader, x = _read_subtasks(runs, encode)
    named = _renamed_models(runs)
    figures, check_share, further_share = _figures(runs, named)
    paid = [one.dollars for one in figures.values() if one.dollars]
    middle = float(np.exp(np.mean(np.log(paid)))) if paid else 0.0
    rows, names = _rows_of(runs, x, len(terms.phrases), figures, middle)
    fit = _Fit(rows, runs, len(names), len(terms.phrases))
    fit.forget({names.index(name): run for name, run in named.items()})
    fit.estimate()
    since = fit.changes()
    if since:
        fit.forget(since)
        fit.estimate()
    root, roots, slopes = fit.posterior()
    for name, run in (named | {names[at]: run for at, run in since.items()}).items():
        if name in figures:
            figures[name] = replace(figures[name], since=runs[run].run)
    return OutcomeModel(
        reader, terms.phrases, names, fit.shared, root, fit.own, roots, slopes, figures, _learning(runs, terms), scope,
        fit.keeps, fit.finds, fit.finds_counts, fit.verdicts, check_share, further_share,
        float(fit.own_precision[-1]), middle,
    )  # fmt: skip


def _read_subtasks(runs: Sequence[RunEvidence], encode: EncodeTexts | None) -> tuple[SubtaskReader, Floats]:
    """Return the reader that knows these runs' texts, and `x` of all their units."""
    units = [unit for run in runs for unit in run.units]
    kinds = Counter(unit.kind for unit in units if unit.kind)
    named = tuple(sorted(kind for kind, count in kinds.most_common(MOST_KINDS) if count >= 3))
    wordings = list(dict.fromkeys(unit.wording for unit in units))
    vectors = subtask_vectors(wordings, encode)
    few = np.linspace(0, len(wordings) - 1, min(len(wordings), _MOST_TEXTS)).astype(np.int64)
    reader = SubtaskReader.of_vectors(vectors[few], named, encode)
    at = {wording: place for place, wording in enumerate(wordings)}
    columns = reader.columns(vectors)[[at[unit.wording] for unit in units]]
    return reader, reader.place(columns, [unit.kind for unit in units])


def _rows_of(
    runs: Sequence[RunEvidence], x: Floats, phrases: int, figures: Mapping[str, WorkerFigures], middle: float
) -> tuple[_Rows, tuple[str, ...]]:
    names = tuple(sorted({one.worker for run in runs for unit in run.units for one in (*unit.answers,)}
                         | {unit.checker.worker for run in runs for unit in run.units if unit.checker}))  # fmt: skip
    place = {name: at for at, name in enumerate(names)}
    count = sum(len(run.units) for run in runs)
    answers, same = np.full((count, MOST_ANSWERS), -1), np.zeros((count, MOST_ANSWERS), np.int64)
    used, checks, changed = np.full(count, -1), np.full(count, -1), np.zeros(count)
    owners = np.zeros(count, np.int64)
    said, at_unit, joined = list[StepAnswer](), list[int](), list[float]()
    number = 0
    for order, run in enumerate(runs):
        for unit in run.units:
            owners[number], changed[number] = order, unit.changed
            used[number] = -1 if unit.used is None else unit.used
            for at, one in enumerate(unit.answers):
                answers[number, at], same[number, at] = len(said), one.same
                said.append(one)
                at_unit.append(number)
                joined.append(float(unit.together > 1))
            if unit.checker is not None:
                checks[number] = len(said)
                said.append(unit.checker)
                at_unit.append(number)
                joined.append(0.0)
            number += 1
    told = np.array([one.told for one in said], dtype=np.float64).reshape(len(said), phrases)
    planned = np.array([one.planned for one in said], dtype=np.float64)
    verdict = np.array([0.0 if one.verdict is None else 2.0 * one.verdict - 1.0 for one in said])
    faults = np.array([one.fault for one in said], dtype=np.float64)
    workers = np.array([place[one.worker] for one in said], dtype=np.int64)
    prices = price_scale([figures[name].dollars if name in figures else 0.0 for name in names], middle)
    design = np.column_stack([np.ones(len(said)), planned, joined, prices[workers], told - 0.5, x[at_unit]])
    found = _Rows(
        design, workers, verdict, faults, answers, same, used, checks, changed, owners, owners[np.array(at_unit)]
    )
    return found, names


class _Fit:
    """The state of one fit: weights, what is believed of checks, and the soft labels of the rows."""

    def __init__(self, rows: _Rows, runs: Sequence[RunEvidence], workers: int, phrases: int) -> None:
        self.rows, self.count = rows, len(runs)
        size = rows.design.shape[1]
        self.prior, self.precision = shared_prior(phrases, size - TOLD - phrases)
        self.columns, self.by_subtask = own_columns(size), slice(1 + phrases, None)
        self.own_precision = own_precision(phrases, size - TOLD - phrases)
        self.own = np.zeros((workers, len(self.columns)))
        self.shared = self.prior.copy()
        self.keeps, self.finds = KEEPS_PRIOR[0] / sum(KEEPS_PRIOR), FINDS_PRIOR[0] / sum(FINDS_PRIOR)
        self.finds_counts, self.verdicts = FINDS_PRIOR, (0.03, 0.6)
        self.graded = np.array([run.right is not None for run in runs])
        self.right = np.array([bool(run.right) for run in runs])
        errors = [_GRADE_ERROR.get(run.basis, 0.02) if run.basis else 0.02 for run in runs]
        self.error = np.array(errors)
        self.by_worker = [np.flatnonzero(rows.workers == worker) for worker in range(workers)]
        self.kept = np.ones(len(rows.design))
        self.labels = np.full(len(rows.design), 0.5)
        self.weight = np.zeros(len(rows.design))

    def estimate(self) -> None:
        """Run expectation maximization from the prior."""
        self.shared, self.own = self.prior.copy(), np.zeros_like(self.own)
        self.own_precision[self.by_subtask] = KIND_PRECISION
        self._expect(first=True)
        self._maximize()
        self.expect(_EM_ROUNDS - 1)
        self._expect()

    def expect(self, rounds: int) -> None:
        """Run so many rounds from what is believed now."""
        for _ in range(rounds):
            self._expect()
            self._maximize()
            self._judge_spread()

    def _judge_spread(self) -> None:
        """Estimate the precision of the workers' own weights of the subtask."""
        own, precision = self.own[:, self.by_subtask], self.own_precision[self.by_subtask]
        _, mine, _ = self._blocks(self._information())
        left = np.diagonal(np.linalg.inv(mine), axis1=1, axis2=2)[:, self.by_subtask] * precision
        determined = float((1 - left).sum())
        self.own_precision[self.by_subtask] = (_SPREAD_PRIOR + determined) / (
            _SPREAD_PRIOR / KIND_PRECISION + float((own**2).sum())
        )

    def _maximize(self) -> None:
        for _ in range(_NEWTON_STEPS):
            p = self.chances()
            shared, mine, between = self._blocks(np.maximum(p * (1 - p), 0.02) * self.weight)
            miss = self.weight * (self.labels - p)
            down = self.rows.design.T @ miss - self.precision * (self.shared - self.prior)
            own = np.array([self.rows.design[places][:, self.columns].T @ miss[places] for places in self.by_worker])
            own -= self.own_precision * self.own
            slopes = np.linalg.solve(mine, between)
            steps = np.linalg.solve(mine, own[:, :, None])[:, :, 0]
            reduced = shared - np.einsum("wos,wot->st", between, slopes)
            moved = np.clip(np.linalg.solve(reduced, down - np.einsum("wos,wo->s", between, steps)), -2, 2)
            self.shared = self.shared + moved
            self.own = self.own + np.clip(steps - slopes @ moved, -2, 2)

    def chances(self) -> Floats:
        """Return the model's chance of each row."""
        logits = self.rows.design @ self.shared
        own = self.own[self.rows.workers]
        logits += np.einsum("ij,ij->i", self.rows.design[:, self.columns], own)
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))

    def _unit_chances(self, p: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return for each unit the chance of each answer (units, answers), of the used one before and after its check,
        and the checker's own chance.
        """
        rows, there = self.rows, self.rows.answers >= 0
        alarm, catch = self.verdicts
        verdict = rows.verdicts[rows.answers]
        like = np.where(verdict > 0, 1 - alarm, np.where(verdict < 0, alarm, 1.0))
        unlike = np.where(verdict > 0, 1 - catch, np.where(verdict < 0, catch, 1.0))
        chance = p[rows.answers] * (1 - rows.faults[rows.answers])
        yes, no = np.where(there, chance * like, 1.0), np.where(there, (1 - chance) * unlike, 1.0)
        alike = (rows.same[:, :, None] == rows.same[:, None, :]) & there[:, None, :]
        states = np.where(alike, yes[:, None, :], no[:, None, :]).prod(axis=2)
        first = there & (rows.same == np.arange(MOST_ANSWERS))
        repeats = (there & ~first).sum(axis=1)
        none = no.prod(axis=1) * _COINCIDENCE**repeats
        total = np.maximum((states * first).sum(axis=1) + none, 1e-12)
        each = np.where(there, states / total[:, None], 0.0)
        used = np.where(rows.used >= 0, each[np.arange(len(each)), np.maximum(rows.used, 0)], 1.0)
        checked = rows.checks >= 0
        other = np.where(checked, p[rows.checks], 0.5)
        kept = used * self.keeps / np.maximum(used * self.keeps + (1 - used) * (1 - self.finds * other), 1e-9)
        final = np.where(checked & (rows.used >= 0), np.where(rows.changed > 0, other, kept), used)
        return each, used, np.where(rows.used >= 0, np.clip(final, _CLIP, 1 - _CLIP), 1.0), other

    def _expect(self, *, first: bool = False) -> None:
        rows, p = self.rows, self.chances()
        p = np.clip(p, _SOFT, 1 - _SOFT) if first else p
        each, used, final, other = self._unit_chances(p)
        counts = rows.used >= 0
        all_right = np.exp(np.bincount(rows.runs, np.log(final), self.count))
        like = np.where(self.right, 1 - self.error, self.error)
        unlike = np.where(self.right, self.error, 1 - self.error)
        post = np.where(self.graded, all_right * like / (all_right * like + (1 - all_right) * unlike), all_right)
        a, q = all_right[rows.runs], post[rows.runs]
        believed = np.where(counts, np.clip(q + (1 - q) * (final - a) / np.maximum(1 - a, 1e-9), 0, 1), used)
        checked, changed = rows.checks >= 0, rows.changed > 0
        # The first answer, given what became of it after its check.
        fixed = used * (1 - self.keeps) / np.maximum(
            used * (1 - self.keeps) + (1 - used) * self.finds * other, 1e-9
        )  # fmt: skip
        unit = np.where(checked & changed, fixed, believed)
        units = np.arange(len(unit))
        same = rows.same == rows.same[units, np.maximum(rows.used, 0)][:, None]
        rest = each * np.where(counts, (1 - unit) / np.maximum(1 - used, _CLIP), 1.0)[:, None]
        labels = np.where(counts[:, None] & same, unit[:, None], np.minimum(rest, 1.0))
        several = (rows.answers >= 0).sum(axis=1) > 1
        tells = (counts & (self.graded[rows.runs] | checked)) | several
        there = rows.answers >= 0
        self.labels[rows.answers[there]] = np.clip(labels, 0, 1)[there]
        spoken = (rows.verdicts != 0) | (rows.faults > 0)
        self.weight[:] = 0.0
        self.weight[rows.answers[there]] = np.broadcast_to(tells[:, None], there.shape)[there]
        self.weight[spoken] = 1.0
        self.labels[rows.faults > 0] = 0.0
        self.labels[rows.checks[checked]] = believed[checked]
        self.weight[rows.checks[checked]] = (changed & counts & self.graded[rows.runs])[checked]
        self.weight *= self.kept
        self._judge_checks(unit, other, checked & counts & self.graded[rows.runs], changed)

    def _judge_checks(self, unit: Floats, other: Floats, checked: Flags, changed: Flags) -> None:
        """Update how often checks keep what is right and find what is wrong, and how often verdicts are wrong."""
        right, wrong = unit * checked, (1 - unit) * checked
        self.keeps = float((KEEPS_PRIOR[0] + right[~changed].sum()) / (sum(KEEPS_PRIOR) + right.sum()))
        found = float(FINDS_PRIOR[0] + wrong[changed].sum())
        missed = float(FINDS_PRIOR[1] + max(0.0, (wrong * other).sum() - wrong[changed].sum()))
        self.finds_counts, self.finds = (found, missed), found / (found + missed)
        said, labels = self.rows.verdicts, self.labels
        failed, passed = said < 0, said > 0
        alarm = _ALARM_PRIOR[0] + labels[failed].sum(), _ALARM_PRIOR[1] + labels[passed].sum()
        catch = _CATCH_PRIOR[0] + (1 - labels[failed]).sum(), _CATCH_PRIOR[1] + (1 - labels[passed]).sum()
        self.verdicts = (
            float(np.clip(alarm[0] / sum(alarm), 0.001, 0.5)),
            float(np.clip(catch[0] / sum(catch), 0.05, 0.999)),
        )

    def _blocks(self, information: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the precision: of the shared weights alone, of each worker's own, and between both."""
        size, own = len(self.shared), len(self.columns)
        shared = np.diag(self.precision)
        mine, between = np.zeros((len(self.by_worker), own, own)), np.zeros((len(self.by_worker), own, size))
        for worker, places in enumerate(self.by_worker):
            rows = self.rows.design[places]
            both = (rows * information[places, None]).T @ rows
            shared += both
            between[worker] = both[self.columns]
            mine[worker] = both[np.ix_(self.columns, self.columns)] + np.diag(self.own_precision)
        return shared, mine, between

    def _information(self) -> Floats:
        p = self.chances()
        full = p * (1 - p)
        known = np.maximum(full - self.labels * (1 - self.labels), _LEAST_INFORMATION * full)
        return np.asarray(known * self.weight)

    def posterior(self) -> tuple[Floats, Floats, Floats]:
        """Return the roots of the precision of the shared weights, of each worker's own, and the slopes between."""
        shared, mine, between = self._blocks(self._information())
        slopes = np.linalg.solve(mine, between)
        reduced = shared - np.einsum("wos,wot->st", between, slopes)
        return np.asarray(np.linalg.cholesky(reduced)), np.asarray(np.linalg.cholesky(mine)), np.asarray(slopes)

    def changes(self) -> dict[int, int]:
        """Return for each worker that seems to have fallen or risen the run from which on: a run's order by worker.

        The newest runs are foretold from those before them, since a model of all explains a change by something else.
        """
        rows, newest = self.rows, self.count - min(_FORETOLD, self.count // 4)
        foretells = copy(self)
        foretells.labels, foretells.weight = self.labels.copy(), self.weight.copy()
        foretells.kept = self.kept * (rows.row_runs < newest)
        foretells.expect(_FORETOLD_ROUNDS)
        _, _, final, _ = foretells._unit_chances(foretells.chances())
        all_right = np.clip(np.exp(np.bincount(rows.runs, np.log(final), self.count)), _CLIP, 1 - _CLIP)
        like = np.where(self.right, 1 - self.error, self.error)
        unlike = np.where(self.right, self.error, 1 - self.error)
        told = np.log(all_right * like + (1 - all_right) * unlike)
        units = np.flatnonzero(rows.used >= 0)
        by = rows.workers[rows.answers[units, rows.used[units]]]
        risen = np.where(final < _RISES_FROM, np.log((1 - _CHANGED * (1 - final)) / final), 0.0)
        found = dict[int, int]()
        for worker in range(len(self.own)):
            own = units[by == worker]
            places = np.flatnonzero((np.bincount(rows.runs[own], minlength=self.count) > 0) & self.graded)
            before = int((places < newest).sum())
            if before < _LEAST_SINCE or len(places) - before < _LEAST_SINCE:
                continue
            places = places[before:]
            gains = list[Floats]()
            for change in (np.full(len(final), np.log(_CHANGED)), risen):
                moved = np.bincount(rows.runs[own], change[own], self.count)[places]
                other = np.minimum(all_right[places] * np.exp(moved), 1 - _CLIP)
                ratio = np.log(other * like[places] + (1 - other) * unlike[places]) - told[places]
                gains.append(np.cumsum(ratio[::-1])[::-1][: -_LEAST_SINCE + 1])
            since = max(gains, key=lambda gain: float(gain.max()))
            if since.max() > _CHANGE_PRIOR:
                found[worker] = int(places[since.argmax()])
        return found

    def forget(self, since: Mapping[int, int]) -> None:
        """Leave out what these workers did before these runs."""
        for worker, run in since.items():
            places = self.by_worker[worker]
            self.kept[places[self.rows.row_runs[places] < run]] = 0.0


def _renamed_models(runs: Sequence[RunEvidence]) -> dict[str, int]:
    """Return for each worker whose model is another one by its name the run from which on: its order.

    Where a model comes back, an endpoint chooses among several, and none of them is the worker's. Where names change
    more often than every sixth answer, they say nothing of models: else such a worker would be new for ever.
    """
    named, answers = defaultdict[str, list[tuple[str, int, int]]](list), Counter[str]()
    for order, run in enumerate(runs):
        for one in (one for unit in run.units for one in unit.answers if one.model):
            if not named[one.worker] or named[one.worker][-1][0] != one.model:
                named[one.worker].append((one.model, order, answers[one.worker]))
            answers[one.worker] += 1
    return {
        worker: said[-1][1]
        for worker, said in named.items()
        if 1 < len(said) == len({one for one, *_ in said}) and said[-1][2] >= _LEAST_SINCE * (len(said) - 1)
    }


def _figures(runs: Sequence[RunEvidence], since: Mapping[str, int]) -> tuple[dict[str, WorkerFigures], float, float]:
    """Return dollars and seconds by worker, and what a check and a further subtask cost as a share of a call.

    What a worker did before the run of `since` was another one's.
    """
    units = [unit for run in runs for unit in run.units]
    calls, first = defaultdict[str, list[StepAnswer]](list), dict[str, int]()
    for order, run in enumerate(runs):
        for unit in run.units:
            for one in unit.answers if unit.together == 1 else ():
                if order >= since.get(one.worker, 0):
                    calls[one.worker].append(one)
                    first.setdefault(one.worker, order)
    found = dict[str, WorkerFigures]()
    for worker, said in calls.items():
        paid, took = np.mean([(one.dollars, one.seconds) for one in said if not one.fault] or [(0.0, 0.0)], axis=0)
        found[worker] = WorkerFigures(len(said), float(paid), float(took), joined=first[worker])
    known = {name: one.dollars for name, one in found.items() if one.dollars}
    checks = [unit.checker for unit in units if unit.checker is not None and unit.checker.worker in known]
    joined = [(unit.answers[0], unit.together) for unit in units if unit.together > 1]
    further = [
        (one.dollars * count / known[one.worker] - 1) / (count - 1) for one, count in joined if one.worker in known
    ]
    share, weight = SHARE_PRIOR
    check_share = (share * weight + sum(one.dollars / known[one.worker] for one in checks)) / (weight + len(checks))
    further_share = (share / 2 * weight + sum(further)) / (weight + len(further))
    return found, float(np.clip(check_share, 0, 10)), float(np.clip(further_share, 0, 10))


def _learning(runs: Sequence[RunEvidence], terms: LearningTerms) -> LearningFigures:
    """Return what the arms came to, and what may be spent on exploration."""
    arms = {True: [0, 0.0, 0.0], False: [0, 0.0, 0.0]}
    for run in runs[-_ARM_RUNS:]:
        if run.right is not None and run.acted is not None:
            value = terms.worth * run.right - run.paid
            arm = arms[run.acted]
            arms[run.acted] = [arm[0] + 1, arm[1] + value, arm[2] + value**2]
    acted, stood = ((int(one[0]), one[1], one[2]) for one in (arms[True], arms[False]))
    paid, explored = sum(run.paid for run in runs), sum(run.explored for run in runs)
    recent = runs[-_CREDIT_WINDOW:]
    spent, share = sum(run.paid for run in recent), terms.explored_share(len(runs))
    left = share * spent - sum(run.explored for run in recent)
    credit = share * spent / len(recent) + left / _CREDIT_RUNS if left >= 0 else 0.0
    found = LearningFigures(
        len(runs), sum(run.right is not None for run in runs), acted, stood, _ACTS, credit, explored=explored, paid=paid
    )
    gain = found.gain()
    for share, least, errors in _DEMOTIONS:
        if gain and min(acted[0], stood[0]) >= least and gain.mean + errors * (gain.high - gain.mean) / 1.96 < 0:
            found = replace(found, acts=share)
    return found


def answer_states(
    answers: Sequence[tuple[str, bool | None, float]], verdicts: tuple[float, float]
) -> dict[str | None, float]:
    """Return how likely each distinct answer is right (None: none of them).

    Each answer is its text, whether a check failed it (None: none spoke), and its worker's chance.
    """
    alarm, catch = verdicts
    odds = dict[str | None, float]()
    none, seen = 1.0, set[str]()
    likelihoods = [
        (text, p * (1 if bad is None else alarm if bad else 1 - alarm),
         (1 - p) * (1 if bad is None else catch if bad else 1 - catch))
        for text, bad, p in answers
    ]  # fmt: skip
    for text, _, wrong in likelihoods:
        none *= wrong * (_COINCIDENCE if text in seen else 1.0)
        seen.add(text)
    for text in seen:
        odds[text] = prod(right if other == text else wrong for other, right, wrong in likelihoods)
    odds[None] = none
    total = sum(odds.values()) or 1.0
    return {text: one / total for text, one in odds.items()}
