"""What a server counts of itself and of the runs that it performs, as Prometheus reads it.

Invariants: counting is adding to a dictionary, on the event loop, and costs next to nothing; labels have few values: a
route's template, never its path, a worker's name, a key's id, never the key. A child run's calls are counted where they
are made, so what its parent is charged for them is not counted again. Deliberately absent: what other servers count,
and anything that would have to be asked of the database (`watching` asks, when it is scraped).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from shikisha.events import AttemptFailed, AttemptFinished, Event, RunFinished, RunPaused, RunStarted

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
Labels = tuple[str, ...]
KeyOf = Callable[[str], str]


class Tallies:
    """Counts since the process began. `key_of` says whose run it is; `parents` are workers that are child runs."""

    def __init__(self, key_of: KeyOf, parents: Collection[str] = ()) -> None:
        self._key_of = key_of
        self._parents = frozenset(parents)
        self._requests: defaultdict[Labels, int] = defaultdict(int)
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}
        self._refused: defaultdict[Labels, int] = defaultdict(int)
        self._begun = 0
        self._runs: defaultdict[Labels, int] = defaultdict(int)
        self._caps: defaultdict[Labels, int] = defaultdict(int)
        self._calls: defaultdict[Labels, int] = defaultdict(int)
        self._tokens: defaultdict[Labels, int] = defaultdict(int)
        self._dollars: defaultdict[Labels, float] = defaultdict(float)
        self._uncertain: defaultdict[Labels, float] = defaultdict(float)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[method, route, str(status)] += 1
        counts, total = self._seconds.setdefault(route, ([0] * (len(SECONDS) + 1), [0.0]))
        counts[bisect_left(SECONDS, seconds)] += 1
        total[0] += seconds

    def refuse(self, reason: str) -> None:
        """Count a request that was refused, by the code that its client was told."""
        self._refused[reason,] += 1

    def observe(self, event: Event) -> None:
        """Count what happens in a run."""
        match event:
            case AttemptFinished():
                self._called(event, "ok", event.dollars, event.usage.total)
            case AttemptFailed():
                self._called(event, event.fault.value, event.charged.dollars, event.charged.tokens)
            case RunStarted(parent=None):
                self._begun += 1
            case RunFinished() | RunPaused():
                self._runs[event.status.value,] += 1
                if isinstance(event, RunFinished) and event.cap is not None:
                    self._caps[event.cap,] += 1
            case _:
                pass

    def _called(self, event: AttemptFinished | AttemptFailed, outcome: str, dollars: float | None, tokens: int) -> None:
        self._calls[event.worker, outcome] += 1
        if event.worker in self._parents:
            return
        place = (event.worker, self._key_of(event.run))
        self._tokens[place] += tokens
        if dollars:
            self._dollars[place] += dollars
        if event.uncertain.dollars:
            self._uncertain[place] += event.uncertain.dollars

    @property
    def keys(self) -> set[str]:
        """The ids of the keys that anything was counted for."""
        return {key for _, key in (*self._tokens, *self._dollars, *self._uncertain)}

    def families(self, shown: Callable[[str], bool], gauges: Mapping[str, tuple[str, float]]) -> Iterable[Metric]:
        """Yield the metrics; of keys those that may be shown. `gauges` are figures of this moment, with their help."""
        yield _counter("shikisha_requests", "Requests answered", ("method", "route", "status"), self._requests)
        yield self._durations()
        yield _counter("shikisha_refusals", "Requests refused, by the code that was told", ("reason",), self._refused)
        yield _counter("shikisha_runs_begun", "Runs begun, child runs left out", (), {(): self._begun})
        yield _counter("shikisha_runs", "Runs that ended or stopped, child runs included", ("status",), self._runs)
        yield _counter("shikisha_runs_capped", "Runs that a cap ended", ("cap",), self._caps)
        yield _counter("shikisha_calls", "Calls of workers, by outcome", ("worker", "outcome"), self._calls)
        for name, words, counts in (
            ("shikisha_tokens", "Tokens charged", self._tokens),
            ("shikisha_dollars", "Dollars charged, where known", self._dollars),
            ("shikisha_uncertain_dollars", "Dollars that calls without a known outcome may have cost", self._uncertain),
        ):
            yield _counter(name, words, ("worker", "key"), {at: n for at, n in counts.items() if shown(at[1])})
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(name, words, value=value)

    def _durations(self) -> Metric:
        family = HistogramMetricFamily("shikisha_request_seconds", "Seconds to the end of an answer", labels=("route",))
        for route, (counts, total) in self._seconds.items():
            grown, buckets = 0, []
            for bound, count in zip((*map(str, SECONDS), "+Inf"), counts, strict=True):
                grown += count
                buckets.append((bound, float(grown)))
            family.add_metric((route,), buckets, sum_value=total[0])
        return family


def _counter(name: str, words: str, labels: Labels, counts: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(name, words, labels=labels)
    for at, count in counts.items():
        family.add_metric(at, count)
    return family
