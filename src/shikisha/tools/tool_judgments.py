"""Reads from journals which tools were right: what an agent was offered, what it called, and how the step came out.

A tool that was called with a result, in a step whose checks passed, is right for that step's subtask; a tool that was
offered there and not called is a weak negative. A tool that was called in the end but not offered at first counts as
right for the first search too: that search missed it. Invariants: a step that failed, or whose run was graded wrong,
says nothing; a tool that has changed since (its hash is another) says nothing; a run whose texts were erased says
nothing. The weight of a step is its evidence: a check that passed or a grade counts 1, none counts less.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from shikisha.core.errors import ConfigError
from shikisha.core.events import AttemptFinished, CallRole, CheckStatus, ToolsOffered
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run, StepRecord
from shikisha.core.tools import load_offer
from shikisha.journal import Journal
from shikisha.retrieval.ranker import MAX_DEPTH, DocumentSearch, Ranker, RankerOrigin, candidate_features
from shikisha.retrieval.text_index import Candidates, Floats, Ints
from shikisha.tools.catalogue_entry import CatalogueEntry

# Fit a ranker from which documents were right, and keep it only where its interval excludes harm.
#
# A judgment is a query with documents that were right (they were called in a step whose check passed) and documents
# that were offered and not used (weak negatives). Candidates that were never offered, where others were, count half of
# those. Invariants: queries are split by their words, so that one query is never on both sides; the same judgments and
# seed give the same ranker; the selection is paired, on queries that the fit did not see. Needs scikit-learn.

_TREES, _LEAVES, _LEARNING_RATE = 150, 16, 0.05
_LEAST_QUERIES = 30
_NEVER_OFFERED_WEIGHT = 0.5
_BOOTSTRAPS = 2_000
TOP = 5


@dataclass(frozen=True, slots=True)
class Judgment:
    """A query, the documents that were right (`weights` say how sure that is), and those offered without use."""

    query: str
    right: tuple[int, ...]
    unused: tuple[int, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RankerGain:
    """Recall of the right documents among the best five, on held-out queries, with the paired interval of the gain."""

    queries: int
    before: float
    after: float
    low: float
    high: float

    @property
    def excludes_harm(self) -> bool:
        """Whether the interval says that the new ranker is not worse."""
        return self.low > 0 or (self.low >= 0 and self.after > self.before)


@dataclass(frozen=True, slots=True)
class _JudgedQuery:
    judgment: Judgment
    found: Candidates
    features: Floats = field(repr=False)


def fit_ranker(search: DocumentSearch, judgments: Sequence[Judgment], source: str, seed: int = 0) -> Ranker:
    """Fit a ranker on all of these judgments; ConfigError where there are too few."""
    return _fit_trees([_judge(search, each) for each in judgments], source, seed)


def select_ranker(
    search: DocumentSearch, judgments: Sequence[Judgment], current: Ranker | None, source: str, seed: int = 0
) -> tuple[Ranker, RankerGain]:
    """Fit on one half of the queries and compare with the current ranker on the other; the ranker is of the first half.

    The caller keeps the ranker only if the gain `excludes_harm`.
    """
    judged = [_judge(search, each) for each in judgments]
    fitted_on = [each for each in judged if _half(each.judgment.query, seed)]
    held_out = [each for each in judged if not _half(each.judgment.query, seed)]
    if len(held_out) < _LEAST_QUERIES:
        raise ConfigError(
            f"{len(judgments)} judged queries: expected at least {3 * _LEAST_QUERIES} to compare on a half"
        )
    ranker = _fit_trees(fitted_on, source, seed)
    return ranker, compare_rankers(held_out, current, ranker, seed)


def compare_rankers(
    held_out: "Sequence[_JudgedQuery]", current: Ranker | None, candidate: Ranker, seed: int
) -> RankerGain:
    """Return the paired gain in recall at five, with a 95 % bootstrap interval over queries."""
    before = np.array([_recall(each, current) for each in held_out])
    after = np.array([_recall(each, candidate) for each in held_out])
    draws = np.random.default_rng(seed).integers(0, len(held_out), (_BOOTSTRAPS, len(held_out)))
    low, high = np.quantile((after - before)[draws].mean(axis=1), (0.025, 0.975))
    return RankerGain(len(held_out), float(before.mean()), float(after.mean()), float(low), float(high))


def mean_recall(search: DocumentSearch, judgments: Sequence[Judgment]) -> float:
    """Return the recall at five without a ranker, over all judgments: nothing was fitted to them."""
    return float(np.mean([_recall(_judge(search, each), None) for each in judgments])) if judgments else 0.0


def _half(query: str, seed: int) -> bool:
    return sha256(f"{seed}:{query}".encode(errors="surrogatepass")).digest()[0] < 128


def _judge(search: DocumentSearch, judgment: Judgment) -> _JudgedQuery:
    found, _ = search.find(judgment.query)
    return _JudgedQuery(judgment, found, candidate_features(search.index, found))


def _recall(judged: _JudgedQuery, ranker: Ranker | None) -> float:
    scores = judged.found.fused if ranker is None else ranker.log_odds(judged.features)
    best = judged.found.positions[np.lexsort((np.arange(len(scores)), -scores))[:TOP]]
    return float(np.isin(judged.judgment.right, best).mean())


def _fit_trees(judged: Sequence[_JudgedQuery], source: str, seed: int) -> Ranker:
    usable = [each for each in judged if len(each.found.positions) and each.judgment.right]
    right = [np.isin(each.found.positions, each.judgment.right) for each in usable]
    if len(usable) < _LEAST_QUERIES or not any(flags.any() for flags in right):
        raise ConfigError(f"{len(usable)} judged queries with candidates: expected at least {_LEAST_QUERIES}")
    # A query counts the same however many documents were right.
    weights = [_candidate_weights(each) * each.judgment.weight / len(each.judgment.right) for each in usable]
    model = HistGradientBoostingClassifier(
        max_iter=_TREES,
        learning_rate=_LEARNING_RATE,
        max_leaf_nodes=_LEAVES,
        max_depth=MAX_DEPTH,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    features = np.concatenate([each.features for each in usable])
    model.fit(features, np.concatenate(right), sample_weight=np.concatenate(weights))
    origin = RankerOrigin(source, len(usable), int(sum(flags.sum() for flags in right)))
    fields = len(usable[0].found.matches)
    return Ranker(_tree_arrays(model), fields, origin)


def _candidate_weights(judged: _JudgedQuery) -> Floats:
    """Return [C]: how much each candidate says. Where tools were offered, those that were not are only half known."""
    judgment, positions = judged.judgment, judged.found.positions
    known = np.isin(positions, [*judgment.right, *judgment.unused])
    return np.where(known | (not judgment.unused), 1.0, _NEVER_OFFERED_WEIGHT).astype(np.float32)


def _tree_arrays(model: HistGradientBoostingClassifier) -> dict[str, Ints | Floats]:
    """Return the trees of a fitted model as arrays; a leaf leads to itself."""
    trees = [stage[0].nodes for stage in model._predictors]
    nodes = max(len(tree) for tree in trees)
    shape = (len(trees), nodes)
    feature, left, right = (np.zeros(shape, np.int64) for _ in range(3))
    threshold, value = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for row, tree in enumerate(trees):
        count, leaf = len(tree), tree["is_leaf"].astype(bool)
        places = np.arange(count)
        feature[row, :count] = np.where(leaf, 0, tree["feature_idx"])
        left[row, :count] = np.where(leaf, places, tree["left"])
        right[row, :count] = np.where(leaf, places, tree["right"])
        threshold[row, :count] = np.where(leaf, 0, tree["num_threshold"])
        value[row, :count] = np.where(leaf, tree["value"], 0)
    return {"feature": feature, "left": left, "right": right, "threshold": threshold, "value": value}


_UNCHECKED_WEIGHT = 0.5
_RIGHT = 0.5


@dataclass(frozen=True, slots=True)
class ToolJudgments:
    """Judgments over the tools of one catalogue, and what was left out, counted."""

    judgments: tuple[Judgment, ...]
    skipped: Mapping[str, int]


async def gather_judgments(journal: Journal, catalogue: str, entries: Sequence[CatalogueEntry]) -> ToolJudgments:
    """Read every run of an open journal, oldest first."""
    gathering = _JudgmentReader(catalogue, entries)
    for run in await journal.all_runs():
        gathering.add_run(run)
    return ToolJudgments(tuple(gathering.judgments), dict(gathering.skipped))


class _JudgmentReader:
    def __init__(self, catalogue: str, entries: Sequence[CatalogueEntry]) -> None:
        self._catalogue = catalogue
        self._places = {each.tool.name: place for place, each in enumerate(entries)}
        self._hashes = {each.tool.name: each.tool.sha256 for each in entries}
        self.judgments: list[Judgment] = []
        self.skipped: Counter[str] = Counter()

    def add_run(self, run: Run) -> None:
        """Take the steps of a run."""
        if run.erased is not None:
            self.skipped["runs whose texts were erased"] += 1
            return
        right = None if run.grade is None else bool((run.grade.score or 0.0) >= _RIGHT)
        for record in run.rounds:
            for index, step in record.steps.items():
                offers = [each for each in step.tools if isinstance(each, ToolsOffered)]
                if not offers:
                    continue
                subtask = record.plan.step_of(index).subtask if record.plan is not None else ""
                weight = self._weight(step, right)
                if weight:
                    self.judgments += self._judgments(step, offers, subtask, weight)

    def _weight(self, step: StepRecord, right: bool | None) -> float:
        """Return how much a step's outcome says; 0 where it says nothing."""
        result = step.result
        if result is None or result.fault is not None:
            self.skipped["steps without a result"] += 1
            return 0.0
        statuses = {verdict.status for verdict in result.verdicts}
        if CheckStatus.FAIL in statuses or right is False:
            self.skipped["steps that a check or a grade says were wrong"] += 1
            return 0.0
        return 1.0 if CheckStatus.PASS in statuses or right else _UNCHECKED_WEIGHT

    def _judgments(
        self, step: StepRecord, offers: Sequence[ToolsOffered], subtask: str, weight: float
    ) -> Iterator[Judgment]:
        called = list(dict.fromkeys(self._called(step)))
        if not called:
            self.skipped["steps in which no tool of the catalogue was called"] += 1
            return
        for offer in offers:
            offered = [
                each.tool
                for each in load_offer(offer.tools)
                if each.server == f"@{self._catalogue}" and self._hashes.get(each.tool) == each.sha256
            ]
            # A search of the agent's own was for something in particular: what it brought and was then called.
            right = [name for name in called if not offer.call or name in offered]
            query = offer.query or subtask
            if right and query.strip():
                unused = tuple(self._places[name] for name in offered if name not in called)
                yield Judgment(query, tuple(self._places[name] for name in right), unused, weight)

    def _called(self, step: StepRecord) -> Iterator[str]:
        for attempt in step.attempts:
            begun = attempt.started
            ours = begun.role is CallRole.TOOL and begun.worker == self._catalogue and begun.tool in self._places
            if ours and isinstance(attempt.outcome, AttemptFinished):
                yield begun.tool
