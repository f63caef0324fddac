"""Capacity and load balance in every rung of routing: 100,000 simulated requests over workers with so many places.

    python benchmarks/load_balance.py [--set MP13] [--folder shared/recorded] [--requests 100000] [--load 0.7] [--json]

Requests are held-out tasks of a recorded set, drawn with replacement; they arrive at random (Poisson). What workers
answer is recorded; how long a call takes is simulated: exponential, with a mean by its recorded output (SPEED tokens a
second). Each rung (table, cascade, stepwise policy; router where there are no answers) is fitted on the other tasks and
used at its most accurate setting. A worker's places are what the rung asks of it without limits, divided by `--load`.
So on average each worker is at 70 %, and what overflows are bursts. `even` gives all workers together as many places,
but each the same: what the best workers cannot take then goes to worse ones, whatever the balance.

    wait      nothing is rerouted: calls wait for a place (what the engine does without `?balance`)
    0, 0.02   `?balance`: a full worker is passed over; a loaded one costs up to so much accuracy more

`lost` is accuracy against no limits on the same requests, in per cent of it, with a paired 95 % interval over tasks.
`over` counts moments at which a worker had more calls than places, seen by an independent counter.
"""

import argparse
import heapq
import json
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from common import machine
from routers_sets import FOLDER, SETS, recorded, seeded
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.log_replay import ReplayResult, replay
from shikisha.routing.fit.model_selection import LearningOptions, candidate_names, fit_candidates, single_threaded_blas
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import COMBINED
from shikisha.routing.state import NO_WORKER, SHIP, DecisionRule, DecisionState

SPEED, LEAST_SECONDS = 50.0, 0.2  # tokens a second of a call; what the shortest takes
IN_FLIGHT = 150.0  # calls in flight on average without limits: how large the simulated site is
WAIT = -1.0


@dataclass(frozen=True)
class Rung:
    """A rule with the setting that is used."""

    name: str
    rule: DecisionRule
    setting: int


@dataclass
class Served:
    """What came of the requests: what was won, the order's tasks, and what happened on the way."""

    won: Floats
    over: int = 0
    passed: int = 0
    waited: int = 0
    calls: int = 0
    peaks: tuple[int, ...] = ()


class Site:
    """Workers with places, and the requests that are being served; time is simulated."""

    def __init__(self, held: OutcomeMatrix, rung: Rung, places: Ints, balance: float, seed: int) -> None:
        self._held, self._rung, self._places, self._balance = held, rung, places, balance
        self._rng = np.random.default_rng(seed)
        self._free_acts: dict[tuple[int, bytes], tuple[int, int]] = {}
        tokens = np.where(np.isnan(held.tokens), np.nanmean(held.tokens) if held.answers else 200.0, held.tokens)
        self._seconds = np.maximum(LEAST_SECONDS, tokens / SPEED)
        self._states = dict[int, OutcomeMatrix]()

    def serve(self, rows: Ints, pace: float) -> Served:
        """Serve these requests, which arrive at this pace (a second)."""
        count, workers = len(rows), len(self._places)
        asked = np.zeros((count, workers), bool)
        flying, peak = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
        queues = [deque[int]() for _ in range(workers)]
        found = Served(np.zeros(count))
        arrivals = np.cumsum(self._rng.exponential(1 / pace, count))
        ends: list[tuple[float, int, int, int]] = []
        number, turn = 0, 0

        def begin(now: float, request: int, worker: int) -> None:
            nonlocal turn
            flying[worker] += 1
            found.over += int(flying[worker] > self._places[worker])
            peak[worker] = max(peak[worker], flying[worker])
            lasts = self._rng.exponential(self._seconds[rows[request], worker])
            turn += 1
            heapq.heappush(ends, (now + lasts, turn, request, worker))

        def decide(now: float, request: int) -> None:
            loads = np.array([(flying[at] + len(queues[at])) / self._places[at] for at in range(workers)])
            ask, ship, is_passed = self._act(int(rows[request]), asked[request], loads)
            if ask == SHIP:
                found.won[request] = 0.0 if ship == NO_WORKER else self._held.won[rows[request], ship]
                return
            found.calls, found.passed = found.calls + 1, found.passed + is_passed
            if flying[ask] < self._places[ask]:
                begin(now, request, ask)
            else:
                found.waited += 1
                queues[ask].append(request)

        while number < count or ends:
            if number < count and (not ends or arrivals[number] <= ends[0][0]):
                decide(float(arrivals[number]), number)
                number += 1
                continue
            now, _, request, worker = heapq.heappop(ends)
            flying[worker] -= 1
            asked[request, worker] = True
            if queues[worker]:
                begin(now, queues[worker].popleft(), worker)
            decide(now, request)
        return replace(found, peaks=tuple(int(one) for one in peak))

    def _act(self, row: int, asked: Flags, loads: Floats) -> tuple[int, int, int]:
        free, ship = self._decide(row, asked, None, None)
        if self._balance == WAIT or free == SHIP:
            # Whom no limit would ask need not be asked: pressure only makes a call less worth while.
            return free, ship, 0
        room = loads < 1.0
        if not (room & ~asked).any() or (room.all() and not self._balance):
            return free, ship, 0
        ask, ship = self._decide(row, asked, room, self._balance * np.minimum(loads, 1.0))
        return ask, ship, int(ask != free)

    def _decide(self, row: int, asked: Flags, room: Flags | None, pressure: Floats | None) -> tuple[int, int]:
        key = (row, asked.tobytes())
        if room is None and key in self._free_acts:
            return self._free_acts[key]
        if row not in self._states:
            self._states[row] = self._held.at(np.array([row]))
        state: DecisionState = self._states[row].state_after(asked[None], room)
        acts = self._rung.rule.act(replace(state, pressure=pressure), self._rung.setting)
        found = int(acts.ask[0]), int(acts.ship[0])
        if room is None:
            self._free_acts[key] = found
        return found


@single_threaded_blas()
def fit_rungs(train: OutcomeMatrix) -> list[Rung]:
    """Return every rung at its most accurate setting."""
    options = LearningOptions()
    options = replace(options, config=replace(options.config, boosting=None))
    names = tuple(name for name in candidate_names(train)[0] if name != COMBINED)
    fitted = fit_candidates(train, options, names)
    points = {name: fitted.dials[name].points[-1] for name in names}
    return [Rung(name, fitted.parts[point.part], point.setting) for name, point in points.items()]


def seconds_of(held: OutcomeMatrix) -> Floats:
    """Return [T, J]: the mean seconds of each call."""
    tokens = np.where(np.isnan(held.tokens), np.nanmean(held.tokens) if held.answers else 200.0, held.tokens)
    return np.maximum(LEAST_SECONDS, tokens / SPEED)


def places_for(came: ReplayResult, held: OutcomeMatrix, load: float, *, even: bool) -> tuple[Ints, float]:
    """Return each worker's places and the pace of requests: without limits, workers are at this load."""
    busy = (came.asked * seconds_of(held)).mean(axis=0)
    pace = IN_FLIGHT / busy.sum()
    needs = np.ceil(busy * pace / load).astype(np.int64)
    return (np.full(len(needs), int(np.ceil(needs.sum() / len(needs)))) if even else np.maximum(1, needs)), float(pace)


def lost_of(won: Floats, free: Floats, rows: Ints) -> tuple[float, float, float]:
    """Return what was lost of the accuracy without limits, in per cent, with its interval over tasks."""
    gaps, count = free - won, int(rows.max()) + 1
    sums, sizes = np.bincount(rows, gaps, count), np.bincount(rows, minlength=count)
    base, draws = free.mean(), np.random.default_rng(0).integers(0, count, (1000, count))
    means = sums[draws].sum(1) / np.maximum(1, sizes[draws].sum(1))
    low, high = np.quantile(means, (0.025, 0.975))
    return tuple(float(100 * value / base) for value in (gaps.mean(), low, high))  # type: ignore[return-value]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="MP13", choices=list(SETS))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--balances", default="wait,0,0.02")
    parser.add_argument("--even", action="store_true", help="as many places in all, but the same for each worker")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    split = seeded(recorded(arguments.set, arguments.folder).panel, 1)
    rows = np.random.default_rng(1).integers(0, len(split.held), arguments.requests)
    print(f"{arguments.set}: {arguments.requests:,} simulated requests at a load of {arguments.load:g} ({machine()})")
    told = defaultdict[str, list[Mapping[str, object]]](list)
    for rung in fit_rungs(split.train):
        came = replay(rung.rule, rung.setting, split.held)
        for even in (False, True) if arguments.even else (False,):
            places, pace = places_for(came, split.held, arguments.load, even=even)
            for balance in (WAIT if one == "wait" else float(one) for one in arguments.balances.split(",")):
                served = Site(split.held, rung, places, balance, 1).serve(rows, pace)
                lost = lost_of(served.won, came.won[rows], rows)
                how = f"{rung.name}, {'even' if even else 'by need'}, {'wait' if balance == WAIT else f'{balance:g}'}"
                print(
                    f"  {how:<28} lost {lost[0]:+.2f} % [{lost[1]:+.2f}, {lost[2]:+.2f}]  over {served.over}  "
                    f"calls {served.calls:,}  passed over {served.passed / served.calls:.2%}  "
                    f"waited {served.waited / served.calls:.2%}  places {places.tolist()}",
                    flush=True,
                )
                told[how].append({"lost": lost, "over": served.over, "waited": served.waited, "calls": served.calls})
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
