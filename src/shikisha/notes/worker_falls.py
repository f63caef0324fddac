"""Notices that a worker fell silently: the runs that it was in go worse than its notes foretold.

Where only whole runs are graded, a worker's many good outcomes clear it, and its colleagues are blamed in its place.
This test needs no blame. A run's foretold chance is the product of its steps' chances. The runs that a worker was in
are compared with theirs, later ones more; where the sum is too low, what was known of the worker counts no more.

Invariants: what is found depends on the runs and their order alone; a run costs time in its steps, whatever came
before. Deliberately absent: whose fault a run was (`worker_notes` shares the blame), and rises, which outcomes show.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

LIMIT = 2.0  # standard deviations below what was foretold; at 1.3, long journals lose too much without a fall
DECAY = 0.93  # of the sums, with each run of a worker
LEAST_RUNS = 4
LEAST_VARIANCE = 0.1  # of a run: two bad runs of a worker that is nearly always right are no fall
LEAST_KNOWN = 20.0  # outcomes that a worker's notes rest on; below, nothing that matters could be forgotten
MOST_EVIDENCE = 20  # ids of runs kept as evidence


@dataclass(frozen=True, slots=True)
class WorkerFall:
    """Why what was known of a worker counts no more: of its last `runs` runs `right` were right, `foretold` expected.

    `run` is the last of them: the `outcomes` of it and before, `outcomes_right` of which were right, are forgotten. The
    decayed sum lay `deviations` standard deviations from what was foretold; `evidence` are these runs.
    """

    worker: str
    run: str
    runs: int
    right: int
    foretold: float
    deviations: float
    outcomes: int
    outcomes_right: float
    evidence: tuple[str, ...]


@dataclass(slots=True)
class _WorkerSums:
    """One worker's runs since it was watched: decayed surprise and variance, how many, and the last ones."""

    surprise: float = 0.0
    variance: float = 0.0
    runs: int = 0
    last: list[tuple[str, bool, float]] = field(default_factory=list)


@dataclass(slots=True)
class FallWatch:
    """Compares runs with what was foretold, worker by worker, in the order in which they are given."""

    limit: float = LIMIT
    _sums: dict[str, _WorkerSums] = field(default_factory=dict)

    def observe_run(
        self, run: str, foretold: float, known: Mapping[str, tuple[float, float]], *, right: bool
    ) -> list[WorkerFall]:
        """Add a run with its foretold chance, and return who fell.

        `known` has the run's workers, in an order of the caller's, with how many outcomes each one's notes rest on, and
        how many of these were right.
        """
        fallen = list[WorkerFall]()
        for worker, (tries, tries_right) in known.items():
            if tries < LEAST_KNOWN:
                continue
            sums = self._sums.setdefault(worker, _WorkerSums())
            sums.surprise = sums.surprise * DECAY + right - foretold
            sums.variance = sums.variance * DECAY**2 + max(LEAST_VARIANCE, foretold * (1 - foretold))
            sums.runs += 1
            sums.last = [*sums.last[1 - MOST_EVIDENCE :], (run, right, foretold)]
            deviations = sums.surprise / sqrt(sums.variance)
            if deviations < -self.limit and sums.runs >= LEAST_RUNS:
                fallen.append(
                    WorkerFall(
                        worker, run, len(sums.last), sum(was_right for _, was_right, _ in sums.last),
                        round(sum(expected for *_, expected in sums.last), 3), round(deviations, 3),
                        round(tries), round(tries_right, 3), tuple(name for name, *_ in sums.last),
                    )
                )  # fmt: skip
                del self._sums[worker]
        return fallen
