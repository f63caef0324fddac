"""The cascade: whom it asks next, where it stops, and what it ships when answers or workers are missing."""

from dataclasses import replace

import numpy as np
import pytest

from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.policy_file import END_OF_ORDER, CascadeRule, confidence_features, sigmoid
from shikisha.routing.state import NO_ANSWER, NO_WORKER, NOT_ASKED, SHIP, DecisionState, LengthScales, TaskBatch

CHEAP, MIDDLE, DEAR, SPARE = range(4)
SCALES = LengthScales(np.full((2, 4), np.log1p(100.0)), np.ones(4))  # one type; outputs of 100 tokens are usual


def weights(constant: float, agreement: float = 0.0) -> Floats:
    """Weights after the first step or, with an agreement, after the second."""
    first = [constant, 0.0, 0.0, 0.0]
    return np.array([*first, 0.0, agreement, 0.0]) if agreement else np.array(first)


def made(first: float = 0.5, second: float = 0.5, order: tuple[int, ...] = (CHEAP, MIDDLE, DEAR)) -> CascadeRule:
    """A cascade that is 0.62 sure of a first answer, and 0.27 or 0.88 of a second one that disagrees or agrees."""
    confidences = {(CHEAP,): weights(0.5), (CHEAP, MIDDLE): weights(-1.0, 3.0), (MIDDLE,): weights(2.0)}
    orders = np.full((1, 2, 3), END_OF_ORDER)
    orders[0, :, : len(order)] = order
    thresholds = np.tile([first, second, 0.0], (1, 2, 1))
    return CascadeRule(orders, thresholds, confidences, SCALES, np.array([SPARE, DEAR, MIDDLE, CHEAP]))


def seen(*codes: int, there: str = "1111", kind: int = 0, tokens: float = 100.0) -> DecisionState:
    """One task; the workers said this, in order."""
    said = np.array([[*codes, *[NOT_ASKED] * (4 - len(codes))]])
    may_ask = np.array([mark == "1" for mark in there])
    return DecisionState(
        TaskBatch(("task",), np.array([kind])), said, np.ones_like(said), np.full(said.shape, tokens), may_ask
    )


def act(part: CascadeRule, state: DecisionState) -> tuple[int, int]:
    """Whom it asks, and whose answer it would ship."""
    acts = part.act(state, 0)
    return int(acts.ask[0]), int(acts.ship[0])


@pytest.mark.parametrize(
    ("part", "codes", "expected"),
    [
        (made(), (), (CHEAP, NO_WORKER)),
        (made(0.6), (0,), (SHIP, CHEAP)),
        (made(0.7), (0,), (MIDDLE, CHEAP)),
        (made(0.7), (0, 0), (SHIP, MIDDLE)),  # they agree: 0.88
        (made(0.7), (0, 1), (DEAR, MIDDLE)),
        (made(0.7, 0.2), (0, 1), (SHIP, MIDDLE)),
        (made(0.7), (0, 1, 1), (SHIP, DEAR)),
        (made(0.7), (0, 1, NO_ANSWER), (SHIP, MIDDLE)),  # the last answer that was given
        (made(0.0), (NO_ANSWER,), (MIDDLE, NO_WORKER)),  # no answer leads on, whatever the threshold
        (made(0.0, 0.0), (0, NO_ANSWER), (DEAR, CHEAP)),
        (made(0.7), (NO_ANSWER, NO_ANSWER, NO_ANSWER), (SHIP, NO_WORKER)),
        (made(order=(MIDDLE,)), (NOT_ASKED, 0), (SHIP, MIDDLE)),
    ],
)
def test_it_asks_in_order_until_it_is_sure(
    part: CascadeRule, codes: tuple[int, ...], expected: tuple[int, int]
) -> None:
    assert act(part, seen(*codes)) == expected


@pytest.mark.parametrize(
    ("part", "there", "codes", "expected"),
    [
        (made(0.7), "0111", (), (MIDDLE, NO_WORKER)),
        (made(0.7, 0.9), "0111", (NOT_ASKED, 0), (DEAR, MIDDLE)),  # sure by 0.88, its own threshold is 0.9
        (made(0.7, 0.8), "0111", (NOT_ASKED, 0), (SHIP, MIDDLE)),
        (made(0.7), "1011", (0,), (DEAR, CHEAP)),
        (made(0.7), "1000", (0,), (SHIP, CHEAP)),
        (made(0.7), "0001", (), (SPARE, NO_WORKER)),  # nobody of the order is there
        (made(0.7), "0001", (NOT_ASKED, NOT_ASKED, NOT_ASKED, 0), (SHIP, SPARE)),
        (made(0.7), "0000", (), (SHIP, NO_WORKER)),
        (made(0.7), "0111", (0,), (MIDDLE, CHEAP)),  # it went after it was asked: its answer stays
        (made(0.7), "1111", (NOT_ASKED, NOT_ASKED, NOT_ASKED, 0), (CHEAP, SPARE)),  # somebody else asked it
        (made(0.7), "1111", (NOT_ASKED, NOT_ASKED, 0), (SHIP, DEAR)),
    ],
)
def test_whoever_is_not_there_is_left_out(
    part: CascadeRule, there: str, codes: tuple[int, ...], expected: tuple[int, int]
) -> None:
    assert act(part, seen(*codes, there=there)) == expected


def test_each_type_has_its_order_and_unknown_types_one_of_their_own() -> None:
    part = made()
    part.orders[0, 1] = [DEAR, END_OF_ORDER, END_OF_ORDER]
    both = DecisionState(TaskBatch(("one", "two"), np.array([0, -1])), *fresh(2), np.ones(4, bool))
    assert part.act(both, 0).ask.tolist() == [CHEAP, DEAR]


def fresh(tasks: int) -> tuple[Ints, Ints, Floats]:
    """Codes, lengths and tokens of tasks for which nobody has been asked."""
    codes = np.full((tasks, 4), NOT_ASKED)
    return codes, np.zeros_like(codes), np.full(codes.shape, np.nan)


def test_confidence_is_read_from_type_length_silence_and_agreement() -> None:
    found = confidence_features(seen(0, 0, tokens=100 * np.e), (CHEAP, MIDDLE), SCALES)
    assert found[0] == pytest.approx([1.0, 0.993, 0.0, 1.0, 0.0, 1.0, 1.0], abs=1e-3)
    assert confidence_features(seen(NO_ANSWER, 0, kind=-1), (CHEAP, MIDDLE), SCALES)[0].tolist() == [
        1,
        0,
        0,
        0,
        1,
        0,
        0,
    ]


def test_a_sequence_that_it_was_not_fitted_for_is_not_trusted() -> None:
    assert made().confidence(seen(0, 0), (DEAR,)).tolist() == [0.0]
    assert made().confidence(seen(0), (CHEAP,)) == pytest.approx(1 / (1 + np.exp(-0.5)))


@pytest.mark.parametrize(("odds", "expected"), [(0.0, 0.5), (1e4, 1.0), (-1e4, 0.0)])
def test_a_chance_lies_between_0_and_1(odds: float, expected: float) -> None:
    assert sigmoid(np.array([[odds]]), np.ones(1)) == pytest.approx([expected], abs=1e-9)


def test_a_cascade_is_its_arrays_in_single_precision() -> None:
    part = made()
    again = CascadeRule.of({name: array.astype(np.float32).astype(float) for name, array in part.to_arrays().items()})
    for state in (seen(0), seen(0, 0), seen(0, 1), seen(NO_ANSWER, 0)):
        assert act(part, state) == act(again, state)


def test_a_call_that_others_wait_for_must_promise_more() -> None:
    """A first answer is .62 sure: below a threshold of .65 the next is asked, unless it is nearly full."""
    idle, waiting = (replace(seen(0), pressure=np.array([0.0, load, 0.0, 0.0])) for load in (0.02, 0.05))
    assert act(made(0.65), idle) == (MIDDLE, CHEAP)
    assert act(made(0.65), waiting) == (SHIP, CHEAP)
    assert act(made(0.65), replace(waiting, pressure=np.array([9.0, 0.0, 9.0, 9.0]))) == (MIDDLE, CHEAP)
