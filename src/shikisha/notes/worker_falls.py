"""Notices that a worker fell silently: which worker's fall explains its runs better than what its notes foretold.

Where only whole runs are graded, a worker's many good outcomes clear it, and its colleagues are blamed in its place. So
every worker is suspected apart: had it fallen before some run, how likely would the runs since then be (`run_chances`),
compared with how likely they are if nobody fell? The suspicions of all workers share one probability, so that a worker
that was only near a fall is cleared by the one that explains more (Shiryaev's change-point statistic). A worker fell
where that is more likely than everything else together.

Invariants: what is found depends on the runs and their order alone; a run costs time in its parts and the workers that
are suspected, whatever came before. Deliberately absent: two falls at once, falls at one kind of work alone, and
rises, which outcomes show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log

from shikisha.notes.run_chances import PartTrial, RunModel

HAZARD = 1 / 500  # of a fall, at each run of a worker
LIMIT = 0.5  # probability of a fall from which on it counts as one; below .5, two workers could have fallen at once
SEVERITIES = (0.2, 0.5)  # what a fall may leave of a worker's chances
# No run surprises by more: wrong runs come in clusters, and three of a worker that is nearly always right are no fall.
MOST_CHANCE = 0.85
LEAST_KNOWN = 20.0  # outcomes that a worker's notes rest on; below, nothing that matters could be forgotten
MOST_EVIDENCE = 20  # runs kept as evidence


@dataclass(frozen=True, slots=True)
class WorkerFall:
    """Why what was known of a worker counts no more: since run `since` it explains the runs better if it fell.

    `run` is the one that showed it. Of the last `runs` runs since then `right` were right, and `foretold` expected;
    `evidence` are these runs. `outcomes` from before `since`, `outcomes_right` of which were right, are forgotten.
    """

    worker: str
    since: str
    run: str
    runs: int
    right: int
    foretold: float
    probability: float
    outcomes: int
    outcomes_right: float
    evidence: tuple[str, ...]


@dataclass(slots=True)
class _FallPath:
    """One worker's fall to `left` of its chances: its odds, and since which of the worker's runs it is likeliest."""

    left: float
    odds: float = 0.0
    gain: float = 0.0  # of log-likelihood since then
    since: tuple[int, str] = (0, "")


@dataclass(slots=True)
class _SuspectedWorker:
    """Paths of a fall, and the last runs: their number among the worker's, id, grade, and foretold chance."""

    paths: list[_FallPath] = field(default_factory=lambda: [_FallPath(left) for left in SEVERITIES])
    runs: int = 0
    last: list[tuple[int, str, bool, float]] = field(default_factory=list)

    @property
    def odds(self) -> float:
        """The odds of any fall."""
        return sum(path.odds for path in self.paths)


@dataclass(slots=True)
class FallWatch:
    """Weighs each run, in the order in which they are given, and learns how parts go (`model`)."""

    limit: float = LIMIT
    model: RunModel = field(default_factory=RunModel)
    _suspected: dict[str, _SuspectedWorker] = field(default_factory=dict)

    def observe_run(
        self, run: str, trials: Sequence[PartTrial], known: Mapping[str, float], *, right: bool
    ) -> WorkerFall | None:
        """Add a graded run, and return who fell; `known` says how many outcomes each worker's notes rest on."""
        foretold = self.model.chance(trials)
        trials = [replace(one, chance=min(MOST_CHANCE, one.chance)) for one in trials]
        before = self.model.likelihood(trials, right=right)
        for worker in dict.fromkeys(one.worker for one in trials):
            if known[worker] < LEAST_KNOWN:
                continue
            suspected = self._suspected.setdefault(worker, _SuspectedWorker())
            for path in suspected.paths:
                fallen = [
                    replace(one, chance=one.chance * path.left) if one.worker == worker else one for one in trials
                ]
                ratio = self.model.likelihood(fallen, right=right) / before
                path.odds = (path.odds + HAZARD / len(SEVERITIES)) * ratio
                if path.gain <= 0:
                    path.gain, path.since = 0.0, (suspected.runs, run)
                path.gain += log(ratio)
            suspected.last = [*suspected.last[1 - MOST_EVIDENCE :], (suspected.runs, run, right, foretold)]
            suspected.runs += 1
        everything = 1 + sum(one.odds for one in self._suspected.values())
        worst = max(self._suspected, key=lambda worker: self._suspected[worker].odds, default=None)
        probability = 0.0 if worst is None else self._suspected[worst].odds / everything
        self.model.learn(trials, right=right, weight=1 - probability)
        if worst is None or probability <= self.limit:
            return None
        fall = _fall_of(worst, self._suspected[worst], probability)
        self._suspected.clear()  # what the others are suspected of, this fall explains
        return fall


def _fall_of(worker: str, suspected: _SuspectedWorker, probability: float) -> WorkerFall:
    first, since = max(suspected.paths, key=lambda path: path.odds).since
    last = [one for one in suspected.last if one[0] >= first]
    return WorkerFall(
        worker, since, last[-1][1], len(last), sum(right for *_, right, _ in last),
        round(sum(foretold for *_, foretold in last), 3), round(probability, 4), 0, 0.0,
        tuple(run for _, run, *_ in last),
    )  # fmt: skip
