"""Removed workers: whoever is gone, every part goes on, asks those who are there, and ships what they say."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from panels import Made, panel, replay_mix
from policies import of_every_kind, write

from shikisha.conductors.learned_policy import policy_conductor
from shikisha.core.errors import UnknownName
from shikisha.engine.pool import Member, Pool
from shikisha.evals.statistics import difference_interval
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.drift_detection import WorkerDrift, remeasure_policy, reroute_policy
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import parse_policy, policy_version, serialize_policy
from shikisha.routing.state import NO_ANSWER, NO_WORKER
from shikisha.routing.trade_off import OperatingTarget, TargetMetric
from shikisha.workers.replay import ReplayWorker, replay_card
from support import engine

FIVE = {
    "tiny": Made((0.5, 0.35), 0.01, silent=0.1),
    "cheap": Made((0.75, 0.45), 0.02),
    "middle": Made((0.6, 0.7), 0.2, tokens=150.0),
    "good": Made((0.75, 0.72), 0.5, tokens=200.0),
    "dear": Made((0.85, 0.8), 1.0, tokens=300.0),
}
DEAR = 4


@cache
def trained() -> OutcomeMatrix:
    return panel(FIVE, tasks=600, alike=0.3)


@cache
def fresh(tasks: int = 200) -> OutcomeMatrix:
    return panel(FIVE, tasks=tasks, alike=0.3, seed=1)


@cache
def policy() -> Policy:
    return of_every_kind(trained())


def without(names: Sequence[str], measured_on: OutcomeMatrix | None = None) -> Policy:
    """The policy after these workers fell."""
    fallen = [WorkerDrift(name, "task-4", "task-9", 300, 0.8, 0.4, 0.35, 0.45) for name in names]
    return reroute_policy(policy(), fallen, measured_on)


def pools() -> list[tuple[str, ...]]:
    return [names for size in range(1, 6) for names in combinations(FIVE, size)]


@pytest.mark.parametrize("there", pools(), ids="+".join)
def test_every_part_goes_on_with_whoever_is_there(there: tuple[str, ...]) -> None:
    held, may_ask = fresh(), policy().may_ask(there)
    for part in policy().parts:
        for setting in range(0, part.settings, 3):
            played = replay(part, setting, held, may_ask)
            assert not played.asked[:, ~may_ask].any()
            assert played.asked.any(axis=1).all()
            answered = (played.asked & (held.codes > NO_ANSWER)).any(axis=1)
            assert ((played.shipped != NO_WORKER) == answered).all()
            assert may_ask[played.shipped[answered]].all()


def test_where_nobody_is_there_nobody_is_asked() -> None:
    for part in policy().parts:
        played = replay(part, 0, fresh(), np.zeros(5, bool))
        assert not played.asked.any()
        assert (played.shipped == NO_WORKER).all()


def test_without_the_best_it_is_still_no_worse_than_the_best_that_remains() -> None:
    held, there = fresh(2000), policy().may_ask(("tiny", "cheap", "middle", "good"))
    played = replay_mix(policy().parts, policy().mix(OperatingTarget()), held, there)
    best = held.select_workers(held.workers[:DEAR]).best_worker()
    low, _ = difference_interval((played.won - held.won[:, best]).tolist())
    assert low > -0.01
    assert played.won.mean() > held.won[:, best].mean() - 0.005


async def test_a_run_without_some_workers_is_what_was_played_without_them(tmp_path: Path) -> None:
    write(fresh(), tmp_path / "log")
    log, file, names = OutcomeLog.read(tmp_path / "log"), tmp_path / "it.policy", ("tiny", "middle", "good")
    held = build_outcome_matrix(log, tuple(FIVE), policy().types)
    file.write_bytes(serialize_policy(policy()))
    loaded = parse_policy(serialize_policy(policy()), "it")
    played = replay_mix(loaded.parts, loaded.mix(OperatingTarget(TargetMetric.COST, 0.5)), held, loaded.may_ask(names))
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name)) for name in names])
    made = policy_conductor(f"{file}?max_cost=50%")
    for row in range(0, len(held), 4):
        run = await engine().run(log.task(held.ids[row]), pool, made)
        asked = {attempt.started.worker for attempt in run.attempts}
        assert asked == {name for name, some in zip(held.workers, played.asked[row], strict=True) if some}
        score = log.recorded_score(held.ids[row], run.answer) if run.answer else 0.0
        assert score == played.won[row]


def test_a_policy_made_to_do_without_a_worker_never_asks_it_though_it_is_there() -> None:
    found = without(["dear"])
    there = found.may_ask(tuple(FIVE))
    assert there.tolist() == [True, True, True, True, False]
    assert "dear fell from 0.800 to 0.400 from task-4 on" in found.about.notes
    assert found.workers[DEAR].shunned
    assert all(rung.evidence is None for rung in found.rungs)
    assert policy().may_ask(tuple(FIVE)).all()


def test_it_is_another_version_and_a_file_keeps_it() -> None:
    found = without(["dear"])
    assert policy_version(serialize_policy(found)) != policy_version(serialize_policy(policy()))
    kept = parse_policy(serialize_policy(found), "it")
    assert kept.workers == found.workers
    assert kept.may_ask(tuple(FIVE)).tolist() == found.may_ask(tuple(FIVE)).tolist()


def test_the_dial_is_measured_again_without_the_worker() -> None:
    found = without(["dear"], trained())
    there = found.may_ask(tuple(FIVE))
    for point in found.rung().dial.points:
        played = replay(found.parts[point.part], point.setting, trained(), there)
        assert point.accuracy == pytest.approx(played.won.mean())
        assert point.cost == pytest.approx(played.paid.mean() / found.rung().dial.unit)


def test_a_budget_is_kept_without_the_cheapest_worker_once_the_dial_is_measured_again() -> None:
    names, wish = ("tiny", "cheap"), OperatingTarget(TargetMetric.COST, 0.4)
    before, after = policy(), without(names, trained())
    held, there = fresh(1000), after.may_ask(tuple(FIVE))
    spent = [
        replay_mix(each.parts, each.mix(wish), held, there).paid.mean() / held.cost_unit() for each in (before, after)
    ]
    assert spent[1] == pytest.approx(0.4, abs=0.06)
    assert abs(spent[1] - 0.4) <= abs(spent[0] - 0.4)


def test_a_panel_of_other_workers_is_no_ground_to_measure_on() -> None:
    with pytest.raises(UnknownName, match="worker of the policy in the log to measure on 'dear'"):
        remeasure_policy(policy(), trained().select_workers(("tiny", "cheap", "middle", "good")))
