"""The rule: who is worth most by type and price, shared out by lots where it has to be, and what it ships."""

import numpy as np
import pytest
from panels import Made, keeps_its_word, panel

from shikisha.routing.fit.log_replay import replay
from shikisha.routing.state import NO_ANSWER, NO_WORKER, SHIP, TaskBatch
from shikisha.routing.table_rule import TableRule, random_offsets

GOOD, FAST = 0, 1
TYPES = 2
SUCCESS = np.array([[0.9, 0.2], [0.3, 0.8], [0.7, 0.6]])  # the last row is for unknown types
TACITURN = {"good": Made(0.9, silent=0.2), "fast": Made(0.2, silent=0.2)}


def table(price: float = 0.0, bonus: float = 0.0, sway: float = 0.0) -> TableRule:
    """A table of two workers and one setting; the first costs 1, the second nothing and gets the bonus."""
    cost = np.tile([1.0, 0.0], (TYPES + 1, 1))
    return TableRule(SUCCESS, cost, np.array([[0.0, bonus]]), np.array([price]), sway)


def batch(*types: int) -> TaskBatch:
    return TaskBatch(tuple(f"task {place}" for place in range(len(types))), np.array(types, np.int64))


@pytest.mark.parametrize(
    ("price", "bonus", "chosen"),
    [
        (0.0, 0.0, [GOOD, FAST, GOOD]),
        (0.2, 0.0, [GOOD, FAST, FAST]),  # 0.7 - 0.2 < 0.6
        (0.8, 0.0, [FAST, FAST, FAST]),
        (0.0, 0.11, [GOOD, FAST, FAST]),
        (0.0, -0.6, [GOOD, GOOD, GOOD]),
    ],
)
def test_who_is_asked_follows_the_price_and_the_bonus(price: float, bonus: float, chosen: list[int]) -> None:
    assert table(price, bonus).choose(batch(0, 1, -1), 0).tolist() == chosen


@pytest.mark.parametrize(
    ("there", "chosen"), [((True, False), [GOOD] * 3), ((False, True), [FAST] * 3), ((False, False), [SHIP] * 3)]
)
def test_nobody_is_asked_who_is_not_there(there: tuple[bool, bool], chosen: list[int]) -> None:
    assert table().choose(batch(0, 1, -1), 0, np.array(there)).tolist() == chosen


def test_one_is_asked_once_and_its_answer_is_shipped() -> None:
    held = panel(TACITURN, tasks=60)
    played = replay(table(), 0, held)
    assert (played.asked.sum(axis=1) == 1).all()
    asked = played.asked.argmax(axis=1)
    silent = held.codes[np.arange(60), asked] == NO_ANSWER
    assert silent.any()
    assert (played.shipped == np.where(silent, NO_WORKER, asked)).all()


def test_whatever_has_been_asked_is_shipped_if_it_was_given() -> None:
    held = panel(TACITURN, tasks=40)
    acts = table().act(held.state_after(np.ones(held.codes.shape, bool)), 0)
    given = held.codes > NO_ANSWER
    assert (acts.ask == SHIP).all()
    assert ((acts.ship == NO_WORKER) == ~given.any(axis=1)).all()
    shipped = np.flatnonzero(acts.ship != NO_WORKER)
    assert given[shipped, acts.ship[shipped]].all()


def test_lots_hang_on_the_prompt_alone_and_fill_their_range() -> None:
    prompts = [f"task {place}" for place in range(4000)]
    drawn = random_offsets(prompts, 3)
    assert drawn.shape == (4000, 3)
    assert (drawn[7] == random_offsets([prompts[7]], 3)[0]).all()
    assert random_offsets(["2 + 2?"], 2)[0] == pytest.approx([0.36876, -0.46526], abs=1e-5)  # the same on every machine
    assert np.abs(drawn.mean(axis=0)).max() < 0.02
    assert drawn.std(axis=0) == pytest.approx([12**-0.5] * 3, abs=0.01)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.05


def test_sway_shares_a_type_out_between_workers_that_are_worth_about_the_same() -> None:
    many = batch(*[-1] * 2000)  # worth 0.7 and 0.6
    assert (table(sway=0.05).choose(many, 0) == GOOD).all()
    assert (table(bonus=0.1, sway=0.05).choose(many, 0) == GOOD).mean() == pytest.approx(0.5, abs=0.04)
    assert (table(bonus=0.2, sway=0.05).choose(many, 0) == FAST).all()


def test_a_table_is_its_arrays() -> None:
    held = table(0.3, 0.1, 0.02)
    again = TableRule.of(held.to_arrays())
    assert again.sway == held.sway
    assert (again.worth(0) == held.worth(0)).all()
    assert again.settings == 1


def test_a_table_asks_once_those_who_are_there_and_ships_what_was_given() -> None:
    keeps_its_word(table(0.2, sway=0.05), panel(TACITURN, tasks=50))
