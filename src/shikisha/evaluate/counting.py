"""Counting: from an entrant's samples to its Entry.

Invariants: the order of the samples changes nothing; accuracy is over graded samples and nothing else (no answer is a
0, an ungraded sample is left out and counted); what was done and spent is over all samples, since all of them were paid
for. Deliberately absent: who is compared with whom (`report`), and the statistics themselves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum
from typing import TypeVar

from shikisha.evaluate.entries import Bin, Calibration, Difference, Entry, Group, Interval, SecondRound
from shikisha.evaluate.samples import Entrant, Part, Sample
from shikisha.evaluate.statistics import (
    binned,
    calibration_error,
    difference_interval,
    entropy,
    mean,
    quantile,
    score_interval,
)
from shikisha.events import Mark, Status

Scores = Mapping[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Who:
    """Whom an entry is about: an entrant without what it takes to perform it."""

    name: str
    part: Part = Part.ASKED
    worker: str | None = None
    note: str = ""

    @classmethod
    def of(cls, entrant: Entrant) -> "Who":
        """Return whom this entrant's entry is about."""
        return cls(entrant.name, entrant.part, entrant.worker, entrant.note)


def scores_of(samples: Iterable[Sample]) -> dict[str, float]:
    """Return the scores of the graded samples by task id."""
    return {sample.task_id: sample.score for sample in samples if sample.score is not None}


def entry(who: Who, samples: Sequence[Sample], best: Scores | None = None, best_name: str = "") -> Entry:
    """Count an entrant's samples, one a task; `best` are the scores of whom it is compared with, by task id."""
    scores = scores_of(samples)
    graded = [sample for sample in samples if sample.score is not None]
    values = list(scores.values())
    priced = [sample.dollars for sample in samples if sample.dollars is not None]
    planned = [sample for sample in samples if sample.shape]
    workers = shares(chain.from_iterable(sample.workers for sample in samples))
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    seconds = [sample.seconds for sample in samples]
    return Entry(
        who.name,
        who.part,
        len(graded),
        mean(values),
        Interval(*score_interval(values)),
        against=difference(scores, best, best_name) if best is not None else None,
        valid=_valid(samples),
        accuracy_given_valid=_mean_if_any([s.score for s in graded if s.valid and s.score is not None]),
        dollars=fsum(priced),
        uncertain=fsum(sample.uncertain for sample in samples),
        unpriced=len(samples) - len(priced),
        paid=fsum(sample.paid for sample in samples),
        tokens=mean([sample.tokens for sample in samples]),
        steps=mean([len(sample.workers) for sample in samples]),
        rounds=mean([sample.rounds for sample in samples]),
        seconds_p50=quantile(seconds, 0.5),
        seconds_p95=quantile(seconds, 0.95),
        workers=workers,
        entropy=entropy(workers.values()),
        topologies=_most_first(Counter(sample.shape for sample in planned)),
        graphs=tuple(_most_first(Counter(sample.access for sample in planned)).items()),
        multi_step=mean([len(sample.access) > 1 for sample in planned]),
        second_round=_second_round(graded),
        no_answer=sum(sample.mark is Mark.NO_ANSWER for sample in graded),
        ungraded=len(samples) - len(graded),
        judged=sum(sample.judged for sample in graded),
        failures=_most_first(Counter(chain.from_iterable(map(_failures, samples)))),
        domains=_groups(samples, [sample.domain for sample in samples]),
        difficulties=_groups(samples, [sample.difficulty for sample in samples]),
        calibration=_calibration(who.name, graded),
        reward=_mean_if_any(rewards),
        worker=who.worker,
        note=who.note,
    )


def difference(ours: Scores, theirs: Scores, to: str) -> Difference | None:
    """Return the paired difference `ours` - `theirs` over the tasks of both; None where there is no such task."""
    differences = [score - theirs[task] for task, score in ours.items() if task in theirs]
    if not differences:
        return None
    better, worse = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    interval = Interval(*difference_interval(differences))
    return Difference(to, len(differences), mean(differences), interval, better, worse)


def shares(names: Iterable[str]) -> dict[str, float]:
    """Return each name's share of the names, the most frequent first."""
    counts = _most_first(Counter(names))
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}


def oracle(singles: Sequence[Sequence[Sample]], name: str = "oracle") -> list[Sample]:
    """Return what choosing the best single worker for each task would have come to: reckoned, never run.

    For each task it is the graded sample with the best score, among those the one with the least known cost, among
    those the first; where no single worker was graded, a sample that was not.
    """
    best: dict[str, Sample] = {}
    for sample in chain.from_iterable(singles):
        other = best.get(sample.task_id)
        if other is None or _rank(sample) > _rank(other):
            best[sample.task_id] = sample
    return [replace(sample, entrant=name, paid=0.0, confidence=None, reward=None) for sample in best.values()]


def _rank(sample: Sample) -> tuple[float, float]:
    cost = float("inf") if sample.dollars is None else sample.dollars
    return -1.0 if sample.score is None else sample.score, -cost


def _mean_if_any(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _valid(samples: Sequence[Sample]) -> float | None:
    return _mean_if_any([sample.valid for sample in samples if sample.valid is not None])


def _second_round(graded: Sequence[Sample]) -> SecondRound | None:
    pairs = [(s.first_score, s.score) for s in graded if s.first_score is not None and s.score is not None]
    repaired, broke = sum(first < last for first, last in pairs), sum(first > last for first, last in pairs)
    return SecondRound(len(pairs), repaired, broke) if pairs else None


def _failures(sample: Sample) -> Iterable[str]:
    """Return why a run ended without an answer, each kind once; how it ended where no fault was recorded."""
    if sample.faults:
        return {str(kind) for kind in sample.faults}
    if sample.mark is Mark.NO_ANSWER and sample.status is not Status.DONE:
        return (str(sample.status),)
    return ()


def _groups(samples: Sequence[Sample], labels: Sequence[str]) -> dict[str, Group]:
    """Return the groups by label; none where nothing is labelled."""
    members: dict[str, list[Sample]] = {}
    for label, sample in zip(labels, samples, strict=True):
        members.setdefault(label, []).append(sample)
    return {label: _group(members[label]) for label in sorted(members)} if any(members) else {}


def _group(samples: Sequence[Sample]) -> Group:
    scores = [sample.score for sample in samples if sample.score is not None]
    return Group(len(scores), mean(scores), shares(chain.from_iterable(sample.workers for sample in samples)))


def _calibration(of: str, graded: Sequence[Sample]) -> Calibration | None:
    sure = [(s.confidence, s.score) for s in graded if s.confidence is not None and s.score is not None]
    if not sure:
        return None
    bins = binned([confidence for confidence, _ in sure], [score for _, score in sure])
    return Calibration(of, tuple(Bin(*each) for each in bins), calibration_error(bins))


def _most_first(counts: Counter[T]) -> dict[T, int]:
    """Return the counts from the highest down, equal ones by their text, so that no order of counting shows."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0]))))
