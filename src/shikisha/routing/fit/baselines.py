"""Yardsticks: what others would have made of the same tasks, and what nobody could have made of them.

`yardsticks` has those that are quick to try: the best single worker, a mix of single workers by lot, votes, and an
oracle. Invariants: every one is fitted, and its settings are chosen, on the training part alone; the oracle alone looks
at the scores of what it decides on, and bounds what anybody can reach by shipping a worker's answer. Deliberately
absent: routers that read the prompt (`yard_routers`), which take minutes; the rule and the cascade, which are rungs.

Trials of yardsticks: what a way to decide comes to, setting by setting, so that a dial can be put on it.

A yardstick is fitted on one panel and performed on another; its training curve comes from folds, its figures from tasks
held out. Invariant: settings stand for the same thing in every fit of a yardstick, and those on its dial were chosen on
tasks that were not in the fit, and never on the tasks held out. Deliberately absent: the yardsticks themselves
(`yardsticks`, `yard_votes`, `yard_routers`), and whatever a policy file could hold.

Votes as yardsticks: ask a fixed set of workers, ship the answer that has most behind it.

The sets are the best k of those who cost at most so much each, for every k and every cost; a dial over them finds what
a budget is best spent on. Invariants: equal answers are those of one canonical form; of answers that weigh the same,
the one with the better supporter is shipped, as it was given in the fewest characters. Deliberately absent: looking at
one answer before asking for the next (cascades and inductions do that), and panels without answers.

Comparing: what yardsticks come to on the very tasks that the rungs of a ladder were judged on.

Invariant: the folds are the ladder's own, so that a yardstick's figures stand beside a rung's, and each is fitted on
the tasks outside its fold alone. Deliberately absent: yardsticks that take minutes (they are the benchmarks').

The conductor in force: what made the journal that is learned from, held against what was learned.

Runs of plans with several steps say how good their conductor is, and little of what one worker would make of a task
alone. So a policy that asks workers for whole tasks may be far worse than what it is to replace, however well it does
beside single workers. Invariants: both are judged on the same tasks, the policy by fits that have not seen them; what
is not shown to be right at least as often is an error that says why and what to do; where the two cannot be compared,
that is one too. Deliberately absent: costs (a policy's dial has them), and logs that say nothing of runs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.evals.statistics import difference_interval, score_interval
from shikisha.outcomes.log_reader import RunOutcome
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.cost_frontier import BUDGETS, REPORTED_BUDGETS, Frontier, compute_frontier, mix_for_budget
from shikisha.routing.fit.fit_stopping_rule import fit_scorer
from shikisha.routing.fit.log_quality import LogKind, known_outcomes
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import (
    FOLDS,
    TABLE,
    LearningOptions,
    assign_folds,
    candidate_names,
    concat_frontiers,
    core_executor,
    fit_candidates,
    single_threaded_blas,
)
from shikisha.routing.fit.new_workers import without_new_workers
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Baseline, FrontierPoint, Policy
from shikisha.routing.state import NO_ANSWER, NO_WORKER, best_supporter
from shikisha.routing.stopping_rule import AnswerScorer
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull


@dataclass(frozen=True, slots=True)
class BaselineOutcomes:
    """What each setting came to: `won` (score) and `paid` (dollars) [T, L]; `asks` [L, J], shares of the tasks."""

    won: Floats
    paid: Floats
    asks: Floats


FittedBaseline = Callable[[OutcomeMatrix], BaselineOutcomes]
BaselineFitter = Callable[[OutcomeMatrix], FittedBaseline]  # fitted on a panel, it performs on others


@dataclass(frozen=True, slots=True)
class BaselineTrial:
    """`cost` and `accuracy` [L] on the training part, by folds; `won`, `spent` (units) [T, L] and `asks` held out."""

    cost: Floats
    accuracy: Floats
    won: Floats
    spent: Floats
    asks: Floats
    unit: float
    best_single: float

    @property
    def dial(self) -> TradeOff:
        """The dial over its settings, chosen on the training part."""
        points = (
            OperatingPoint(0, setting, float(cost), float(accuracy))
            for setting, (cost, accuracy) in enumerate(zip(self.cost, self.accuracy, strict=True))
        )
        return TradeOff(upper_hull(points), self.unit, self.best_single)

    def frontier(self, budgets: Floats = BUDGETS) -> Frontier:
        """Return what the dial's budgets came to on the tasks held out."""
        return compute_frontier(
            self.dial, self.won, self.spent, [(0, setting) for setting in range(len(self.cost))], budgets
        )

    def shares(self, budget: float) -> Floats:
        """Return [J], on what share of the tasks held out each worker is asked within this budget."""
        mix = mix_for_budget(self.dial, budget)
        shares: Floats = (1 - mix.share) * self.asks[mix.low.setting] + mix.share * self.asks[mix.high.setting]
        return shares


def try_baseline(yard: BaselineFitter, train: OutcomeMatrix, folds: Ints, held: OutcomeMatrix) -> BaselineTrial:
    """Try a yardstick: by folds ([T]) on the training part, and fitted on all of that on the part held out."""
    unit, cost, accuracy = train.cost_unit(), [], []
    for fold in range(int(folds.max()) + 1):
        inside: Flags = folds == fold
        came = yard(train.at(~inside))(train.at(inside))
        cost.append(came.paid.sum(axis=0) / unit)
        accuracy.append(came.won.sum(axis=0))
    came, count = yard(train)(held), len(train)
    curve = np.sum(cost, axis=0) / count, np.sum(accuracy, axis=0) / count
    return BaselineTrial(*curve, came.won, came.paid / unit, came.asks, unit, float(train.mean_scores().max()))


def score_picks(picks: Ints, panel: OutcomeMatrix) -> BaselineOutcomes:
    """Return what it comes to that one worker is asked for each task: `picks` [T, L]."""
    given = np.where(panel.codes > NO_ANSWER, panel.won, 0.0)
    won, paid = (np.take_along_axis(table, picks, axis=1) for table in (given, panel.paid))
    asks = np.stack([(picks == worker).mean(axis=0) for worker in range(len(panel.workers))], axis=1)
    return BaselineOutcomes(won, paid, asks)


AskedSet = tuple[int, ...]
VoteTally = Callable[[OutcomeMatrix, AskedSet], Ints]  # [T]: the code of the answer that wins, -1 for none
_TINY = 1e-6  # what breaks a tie
_SIZES = (1, 2, 3, 5, 8, 99)
_MIN_WEIGHT = 1e-3  # whoever is asked counts something


@dataclass(frozen=True, slots=True)
class WeightedVote:
    """A vote by weights [J]; ties go to the better supporter: `ranks` [J], 0 for the best."""

    weights: Floats
    ranks: Ints

    def __call__(self, panel: OutcomeMatrix, asked: AskedSet) -> Ints:
        """Return the codes that win."""
        table = np.zeros((len(panel), int(panel.codes.max(initial=0)) + 1))
        for worker in asked:
            rows = np.flatnonzero(panel.codes[:, worker] >= 0)
            table[rows, panel.codes[rows, worker]] += self.weights[worker] + _TINY * 0.5 ** float(self.ranks[worker])
        return np.where(table.max(axis=1) > 0, table.argmax(axis=1), -1)


@dataclass(frozen=True, slots=True)
class ScoredVote:
    """The answer that a scorer holds for the most probable one."""

    scorer: AnswerScorer

    def __call__(self, panel: OutcomeMatrix, asked: AskedSet) -> Ints:
        """Return the codes that win."""
        given = np.zeros(panel.codes.shape, bool)
        given[:, list(asked)] = True
        answers, _ = self.scorer.posterior(panel.state_after(given), sorted(asked))
        return np.where(answers.max(axis=1) > 0, answers.argmax(axis=1), -1)


def fit_majority_vote(panel: OutcomeMatrix) -> FittedBaseline:
    """Fit a vote in which all count the same."""
    return _vote_baseline(WeightedVote(np.ones(len(panel.workers)), _skill_ranks(panel)), affordable_sets(panel))


def fit_weighted_vote(panel: OutcomeMatrix) -> FittedBaseline:
    """Fit a vote in which each counts by the odds that it is right rather than wrong in the same way as others."""
    return _vote_baseline(WeightedVote(vote_weights(panel), _skill_ranks(panel)), affordable_sets(panel))


def fit_learned_vote(panel: OutcomeMatrix) -> FittedBaseline:
    """Fit a vote by our scorer, over sets of a few sizes and all of those who cost at most so much."""
    return _vote_baseline(ScoredVote(fit_scorer(panel)), affordable_sets(panel, _SIZES))


def vote_weights(panel: OutcomeMatrix) -> Floats:
    """[J]: log odds of being right, plus the log of how many ways to be wrong there seem to be (naive Bayes).

    With p the share of right answers and c the share of pairs of wrong ones that agree: log(p / (1 - p) / c).
    """
    known = ~np.isnan(panel.scores)
    right = (panel.won.sum(axis=0) + 1) / (known.sum(axis=0) + 2)
    odds: Floats = np.log(right / (1 - right)) - np.log(_wrong_agreement(panel))
    return np.maximum(odds, _MIN_WEIGHT)


def affordable_sets(panel: OutcomeMatrix, sizes: Sequence[int] = ()) -> tuple[AskedSet, ...]:
    """Return the best k, the best first, of the c cheapest workers, for every c and every k up to c (or these k)."""
    cheap = np.argsort(panel.paid.mean(axis=0), kind="stable").tolist()
    skill = _rank_by_skill(panel)
    return tuple(
        tuple(worker for worker in skill if worker in cheap[:count])[:most]
        for count in range(1, len(cheap) + 1)
        for most in sizes or range(1, count + 1)
    )


def _vote_baseline(tally: VoteTally, sets: tuple[AskedSet, ...]) -> FittedBaseline:
    def perform(panel: OutcomeMatrix) -> BaselineOutcomes:
        known: dict[AskedSet, tuple[Floats, Floats]] = {}
        for asked in sets:
            if asked not in known:
                known[asked] = _vote_outcomes(tally, asked, panel)
        return _stack_outcomes(sets, known, len(panel.workers))

    return perform


def _vote_outcomes(tally: VoteTally, asked: AskedSet, panel: OutcomeMatrix) -> tuple[Floats, Floats]:
    seen = panel.state_after(np.ones(panel.codes.shape, bool))
    shipped = best_supporter(seen, sorted(asked), tally(panel, asked))
    won = np.where(shipped == NO_WORKER, 0.0, panel.won[np.arange(len(panel)), shipped])
    return won, panel.paid[:, list(asked)].sum(axis=1)


def _stack_outcomes(
    sets: tuple[AskedSet, ...], known: Mapping[AskedSet, tuple[Floats, Floats]], workers: int
) -> BaselineOutcomes:
    won, paid = (np.stack([known[asked][place] for asked in sets], axis=1) for place in (0, 1))
    asks = np.zeros((len(sets), workers))
    for row, asked in enumerate(sets):
        asks[row, list(asked)] = 1.0
    return BaselineOutcomes(won, paid, asks)


def _wrong_agreement(panel: OutcomeMatrix) -> float:
    """Return the share of pairs of wrong answers to one task that agree, a little above 0 and below 1."""
    wrong = (panel.won <= 0.5) & (panel.codes >= 0)
    codes = np.where(wrong, panel.codes, -1)
    pairs = wrong.sum(axis=1) * (wrong.sum(axis=1) - 1) / 2
    same = np.zeros(len(panel))
    for code in range(int(codes.max(initial=-1)) + 1):
        count = (codes == code).sum(axis=1)
        same += count * (count - 1) / 2
    return float((same.sum() + 1) / (pairs.sum() + 2))


def _rank_by_skill(panel: OutcomeMatrix) -> AskedSet:
    return tuple(np.argsort(-panel.mean_scores(), kind="stable").tolist())


def _skill_ranks(panel: OutcomeMatrix) -> Ints:
    ranks = np.empty(len(panel.workers), np.int64)
    ranks[list(_rank_by_skill(panel))] = np.arange(len(panel.workers))
    return ranks


BEST_SINGLE, SINGLE_MIX, ORACLE = "best single worker", "mix by lot", "oracle"
MAJORITY_VOTE, WEIGHTED_VOTE, LEARNED_VOTE = "majority vote", "weighted vote", "learned vote"
BASELINE_NOTES: Mapping[str, str] = {
    BEST_SINGLE: "the worker with the highest mean score in training, for every task; it has one cost, whatever the budget",
    SINGLE_MIX: "single workers on the hull of cost and accuracy, drawn by lot (the Zero router of RouterBench)",
    MAJORITY_VOTE: "the best k of those who cost at most so much, one vote each",
    WEIGHTED_VOTE: "the same, each vote counting its log odds",
    LEARNED_VOTE: "our scorer over the answers of growing sets of workers, all asked",
    ORACLE: "knows the scores: the cheapest right worker, else the cheapest; nobody can do better",
}
_ORACLE_PRICES = np.append(
    1e-9, np.geomspace(0.002, 20.0, 60)
)  # the oracle's: at the first, any right answer is worth asking


def quick_frontiers(
    train: OutcomeMatrix, folds: Ints, held: OutcomeMatrix, budgets: Floats = BUDGETS
) -> dict[str, Frontier]:
    """Return the frontiers, on the part held out, of all that is quick to try; no votes where there are no answers."""
    return {
        name: try_baseline(yard, train, folds, held).frontier(budgets) for name, yard in quick_baselines(train).items()
    }


def quick_baselines(panel: OutcomeMatrix) -> dict[str, BaselineFitter]:
    """Return what can be tried in seconds on such a panel, by name."""
    votes: dict[str, BaselineFitter] = (
        {MAJORITY_VOTE: fit_majority_vote, WEIGHTED_VOTE: fit_weighted_vote, LEARNED_VOTE: fit_learned_vote}
        if panel.answers
        else {}
    )
    return {BEST_SINGLE: fit_best_single, SINGLE_MIX: fit_single_mix, **votes, ORACLE: fit_oracle}


def baseline_records(frontiers: Mapping[str, Frontier], first: int = 0) -> tuple[Baseline, ...]:
    """Return these as a policy keeps them; the area is over the budgets from place `first` on."""
    return tuple(
        Baseline(name, float(front.won[:, first:].mean()), front.points(), BASELINE_NOTES.get(name, ""))
        for name, front in frontiers.items()
    )


def fit_best_single(panel: OutcomeMatrix) -> FittedBaseline:
    """Fit the best single worker."""
    best = panel.best_worker()
    return lambda held: score_picks(np.full((len(held), 1), best, np.int64), held)


def fit_single_mix(panel: OutcomeMatrix) -> FittedBaseline:
    """Fit each worker alone, a setting each: a dial over them mixes those on the hull by lot."""
    order = np.arange(len(panel.workers))
    return lambda held: score_picks(np.broadcast_to(order, held.codes.shape), held)


def fit_oracle(panel: OutcomeMatrix) -> FittedBaseline:
    """Return the oracle: for each task whoever is worth most at a price, with all scores known; it fits nothing."""
    unit = panel.cost_unit()

    def perform(held: OutcomeMatrix) -> BaselineOutcomes:
        picks = [(held.won - price * held.paid / unit).argmax(axis=1) for price in _ORACLE_PRICES]
        return score_picks(np.stack(picks, axis=1), held)

    return perform


_MEASURED_BUDGETS = np.array((*REPORTED_BUDGETS, *BUDGETS))


@single_threaded_blas()
def measure_baselines(panel: OutcomeMatrix, seed: int, tell: Callable[[str], None]) -> tuple[Baseline, ...]:
    """Return all that is quick to try, judged on the folds of a ladder with this seed; nothing where tasks are few."""
    if len(set(panel.hashes)) < 2 * FOLDS:
        return ()
    folds = assign_folds(panel.hashes, f"outer {seed}")

    def one(fold: int) -> dict[str, Frontier]:
        tell(f"comparing: fold {fold + 1} of {FOLDS}")
        train, held = panel.at(np.flatnonzero(folds != fold)), panel.at(np.flatnonzero(folds == fold))
        return quick_frontiers(train, assign_folds(train.hashes, f"fit {seed}"), held, _MEASURED_BUDGETS)

    with core_executor() as threads:
        found = list(threads.map(one, range(FOLDS)))
    whole = baseline_records(
        {name: concat_frontiers([fold[name] for fold in found]) for name in found[0]}, len(REPORTED_BUDGETS)
    )
    return tuple(_sort_points(one) for one in whole)


def _sort_points(one: Baseline) -> Baseline:
    return Baseline(one.name, one.area, tuple(sorted(one.frontier, key=lambda met: met.budget)), one.note)


MIN_COMPARED_TASKS = 50  # tasks of which both are known, below which nothing is shown
MIN_RUN_SHARE = 0.05  # share of the journal's runs below which plans of several steps are somebody's trial
_ADVICE = (
    "leave the conductor in force, or run and grade the same tasks with each worker alone "
    "(`--conductor fixed:single?worker=NAME`, the same journal) and learn once more"
)


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A conductor whose plans had several steps: how many runs it made, and mean score and dollars by task id."""

    name: str
    runs: int
    scores: dict[str, float]
    dollars: dict[str, float]


def find_incumbents(runs: Sequence[RunOutcome]) -> tuple[Incumbent, ...]:
    """Return who conducted plans of several steps, if such plans are more than somebody's trial; most runs first."""
    parted = Counter(run.conductor for run in runs if run.parted)
    if parted.total() < MIN_RUN_SHARE * len(runs):
        return ()
    return tuple(
        _build_incumbent(name, [run for run in runs if run.conductor == name]) for name, _ in parted.most_common()
    )


def _build_incumbent(name: str, runs: Sequence[RunOutcome]) -> Incumbent:
    scores, dollars = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for run in runs:
        if run.task_id is not None and run.score is not None:
            scores[run.task_id].append(run.score)
            if run.dollars is not None:
                dollars[run.task_id].append(run.dollars)
    return Incumbent(
        name,
        len(runs),
        {task: fmean(values) for task, values in scores.items()},
        {task: fmean(values) for task, values in dollars.items()},
    )


def refuse_unknown_propensities(runs: Sequence[RunOutcome], kind: LogKind, panel: OutcomeMatrix) -> None:
    """Refuse a journal in which somebody chose whom to ask, nobody knows how, and that made it what it is."""
    asked = [name for column, name in enumerate(panel.workers) if panel.there[:, column].any()]
    if runs and kind is LogKind.UNTOLD and len(asked) > 1:
        by = ", ".join(dict.fromkeys(run.conductor for run in runs))
        raise ConfigError(
            f"whom to ask was chosen by {by}, and the journal does not say with what probability: what a worker came "
            "to on tasks that were chosen for it says little of others, so nothing that is learned here can be held "
            f"against the conductor in force. Nothing is written: {_ADVICE}; a policy with ?explore=5% writes down its "
            "chances"
        )


@single_threaded_blas()
def compare_with_incumbents(
    policy: Policy, panel: OutcomeMatrix, kind: LogKind, rivals: Sequence[Incumbent], seed: int
) -> Policy:
    """Return the policy with a row for each of those in force; ConfigError unless it is shown as good as each."""
    if not rivals:
        return policy
    held = without_new_workers(panel)
    if kind is not LogKind.FULL:
        raise _incumbent_refusal(rivals[0], "not every worker was asked for every task, whole")
    won = _cross_validated_scores(policy, held, seed)
    rows, notes = [], []
    for rival in rivals:
        row, note = _compare_incumbent(rival, held, won, policy.rung().dial.unit)
        rows.append(row)
        notes.append(note)
    about = replace(policy.about, notes=(*policy.about.notes, *notes))
    return replace(policy, about=about, yardsticks=(*policy.yardsticks, *rows))


def _compare_incumbent(rival: Incumbent, held: OutcomeMatrix, won: Floats, unit: float) -> tuple[Baseline, str]:
    places = [
        place for place, task in enumerate(held.ids) if task in rival.scores and known_outcomes(held)[place].all()
    ]
    if len({held.hashes[place] for place in places}) < MIN_COMPARED_TASKS:
        raise _incumbent_refusal(
            rival,
            f"{len(places)} graded tasks of its runs were also put to every worker whole; {MIN_COMPARED_TASKS} are the least",
        )
    theirs = np.array([rival.scores[held.ids[place]] for place in places])
    low, high = difference_interval((won[places] - theirs).tolist())
    mine, mean = float(won[places].mean()), float(theirs.mean())
    more = f"{mine - mean:+.1%} [{low:+.1%}, {high:+.1%}]"
    told = f"right in {mean:.1%} of {len(places):,} tasks; what is learned in {mine:.1%} ({more})"
    if low < 0:
        raise ConfigError(
            f"the conductor in force, {rival.name}, was {told}: it is not shown to be as good, so nothing is written. "
            f"Leave {rival.name} in force, or grade more of its runs and of workers asked for the same tasks whole"
        )
    spent = [rival.dollars[held.ids[place]] for place in places if held.ids[place] in rival.dollars]
    cost = fmean(spent) / unit if spent and unit > 0 else 0.0
    met = FrontierPoint(cost, cost, mean, *score_interval(theirs.tolist()))
    return Baseline(f"in force: {rival.name}", mean, (met,), told), f"the conductor in force, {rival.name}, was {told}"


def _cross_validated_scores(policy: Policy, held: OutcomeMatrix, seed: int) -> Floats:
    """[T]: what the kept rung at its most accurate comes to, each task by a fit that has not seen its content."""
    rungs = candidate_names(held)[0]
    kept = policy.kept if policy.kept in rungs else TABLE
    folds, won = assign_folds(held.hashes, f"in force {seed}"), np.zeros(len(held))
    for fold in range(FOLDS):
        rest = np.flatnonzero(folds == fold)
        if not len(rest):
            continue
        fitted = fit_candidates(held.at(np.flatnonzero(folds != fold)), LearningOptions(seed=seed), rungs)
        best = fitted.dials[kept].points[-1]
        won[rest] = replay(fitted.parts[best.part], best.setting, held.at(rest).with_response_model(fitted.hearing)).won
    return won


def _incumbent_refusal(rival: Incumbent, why: str) -> ConfigError:
    return ConfigError(
        f"{rival.runs:,} runs of this journal were conducted by {rival.name}, with plans of several steps, and what is "
        f"learned from workers cannot be compared with it: {why}. Nothing is written: {_ADVICE}"
    )
