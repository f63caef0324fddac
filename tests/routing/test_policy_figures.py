"""Habits: what settings do with each type of task, counted as they would be played."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from panels import folds, panel, untyped
from policies import policy

from shikisha.core.errors import ConfigError
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import MAX_REPLAYED_TASKS, count_usage, replay
from shikisha.routing.fit.policy_figures import NO_TYPE_LABEL, ask_shares, usage_by_type
from shikisha.routing.policy_data import Candidate, Policy, PolicyUsage
from shikisha.routing.policy_file import parse_policy, serialize_policy
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, TradeOff


def counted(made: Policy) -> PolicyUsage:
    """A policy's habits, which must be there."""
    assert made.habits is not None
    return made.habits


def still(point: OperatingPoint) -> OperatingMix:
    return OperatingMix(point, point, 0.0)


def test_every_setting_of_every_dial_is_counted_once() -> None:
    made = policy()
    on_dials = {(float(point.part), float(point.setting)) for rung in made.rungs for point in rung.dial.points}
    assert sorted(map(tuple, counted(made).places.tolist())) == sorted(on_dials)


@pytest.mark.parametrize("rung", ["table", "policy"])
def test_who_is_asked_is_who_playing_asks(rung: str) -> None:
    made, held = policy(), panel(tasks=200)
    for point in made.rung(rung).dial.points:
        played = replay(made.parts[point.part], point.setting, held)
        asks = counted(made).at(still(point))
        assert asks is not None
        for kind in range(2):
            expected = played.asked[held.batch.types == kind].sum(axis=0)
            assert asks.asked[kind].tolist() == expected.tolist()


def test_somebody_is_first_in_every_task_and_a_second_only_after_a_first() -> None:
    held = counted(policy())
    assert (held.first.sum(axis=2) == held.tasks).all()
    assert (held.second.sum(axis=2) <= held.first.sum(axis=2)).all()
    assert (held.first + held.second <= held.asked).all()
    assert held.second.sum() > 0


def test_a_table_never_asks_a_second() -> None:
    made = policy()
    for point in made.rung("table").dial.points:
        asks = counted(made).at(still(point))
        assert asks is not None
        assert not asks.second.any()


def test_a_mixture_s_habits_are_its_settings_by_their_shares() -> None:
    made = policy()
    low, high = made.rung("policy").dial.points[0], made.rung("policy").dial.points[-1]
    mixed, one, other = (counted(made).at(mix) for mix in (OperatingMix(low, high, 0.25), still(low), still(high)))
    assert mixed is not None
    assert one is not None
    assert other is not None
    assert mixed.asked == pytest.approx(0.75 * one.asked + 0.25 * other.asked)


def test_a_setting_that_was_not_counted_has_no_habits() -> None:
    unknown = still(OperatingPoint(7, 7, 0.1, 0.5))
    assert counted(policy()).at(unknown) is None
    assert usage_by_type(policy(), unknown) == ()
    assert ask_shares(policy(), unknown) is None


def test_beyond_a_limit_some_tasks_stand_for_all() -> None:
    held = panel(tasks=MAX_REPLAYED_TASKS + 100)
    part = fit_table(held, folds(held)).part
    rung = Candidate("table", TradeOff((OperatingPoint(0, 3, 0.1, 0.5),), 1.0, 0.7))
    found = count_usage(held, replace(policy(), parts=(part,), rungs=(rung,), kept="table"))
    assert found.tasks.sum() == MAX_REPLAYED_TASKS + 100
    assert found.played.sum() == found.first.sum() == MAX_REPLAYED_TASKS


def test_tasks_of_unknown_type_are_counted_apart() -> None:
    held = untyped(panel(tasks=60))
    part = fit_table(held, folds(held)).part
    rung = Candidate("table", TradeOff((OperatingPoint(0, 3, 0.1, 0.5),), 1.0, 0.7))
    made = replace(policy(), types=held.types, parts=(part,), rungs=(rung,), kept="table")
    (way,) = usage_by_type(replace(made, habits=count_usage(held, made)), still(rung.dial.points[0]))
    assert (way.kind, way.tasks, way.more, way.second) == (NO_TYPE_LABEL, 60, 0.0, None)


def test_a_way_says_who_is_first_who_second_and_how_often() -> None:
    made, held = policy(), counted(policy())
    mix = still(made.rung().dial.points[-1])
    asks = held.at(mix)
    assert asks is not None
    found = {way.kind: way for way in usage_by_type(made, mix)}
    assert set(found) == {"maths", "law"}
    for kind, name in enumerate(made.types.names):
        way = found[name]
        assert way.share == asks.first[kind].max() / 100
        assert way.first == made.names[int(asks.first[kind].argmax())]
        assert way.more == pytest.approx(asks.second[kind].sum() / 100)
        assert way.asks == pytest.approx(asks.asked[kind].sum() / 100)
        assert way.second != way.first


def test_the_second_is_never_the_first_though_others_may_begin() -> None:
    made, held = policy(), counted(policy())
    first, second = held.first.copy(), held.second.copy()
    first[:, 0], second[:, 0] = (60, 40, 0), (40, 30, 0)
    changed = replace(made, habits=replace(held, first=first, second=second))
    way = next(
        way for way in usage_by_type(changed, still(made.rung().dial.points[-1])) if way.kind == made.types.names[0]
    )
    assert (way.first, way.second, way.more) == ("cheap", "middle", 0.7)


def test_habits_are_kept_in_the_file() -> None:
    made = policy()
    read = parse_policy(serialize_policy(made), "here")
    for name, array in counted(made).to_arrays().items():
        assert counted(read).to_arrays()[name] == pytest.approx(array)
    assert parse_policy(serialize_policy(replace(made, habits=None)), "here").habits is None


@pytest.mark.parametrize(
    ("left_out", "put_in", "why"),
    [
        ("habits/first.npy", None, "lack the array 'first'"),
        ("habits/first.npy", "habits/tasks.npy", "first: expected the shape"),
    ],
)
def test_damaged_habits_are_refused(left_out: str, put_in: str | None, why: str) -> None:
    damaged = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(serialize_policy(policy()))) as whole, zipfile.ZipFile(damaged, "w") as less:
        for name in whole.namelist():
            if name != left_out:
                less.writestr(name, whole.read(name))
            elif put_in:
                less.writestr(name, whole.read(put_in))
    with pytest.raises(ConfigError, match=why):
        parse_policy(damaged.getvalue(), str(Path("broken.policy")))
