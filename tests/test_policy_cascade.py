"""The cascade: whom it asks next, where it stops, and what it ships when answers or workers are missing."""

from dataclasses import replace

import numpy as np
import pytest

from panels import POOL, folds, keeps_its_word, panel
from shikisha.learn.cascading import cascade
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import NOBODY, NOT_ASKED, NOTHING, SHIP, Batch, Seen
from shikisha.policy.cascade import END, Cascade, chance, looks
from shikisha.policy.features import Scales

CHEAP, MIDDLE, DEAR, SPARE = range(4)
SCALES = Scales(np.full((2, 4), np.log1p(100.0)), np.ones(4))  # one type; outputs of 100 tokens are usual


def weights(constant: float, agreement: float = 0.0) -> Floats:
    """Weights after the first step or, with an agreement, after the second."""
    first = [constant, 0.0, 0.0, 0.0]
    return np.array([*first, 0.0, agreement, 0.0]) if agreement else np.array(first)


def made(first: float = 0.5, second: float = 0.5, order: tuple[int, ...] = (CHEAP, MIDDLE, DEAR)) -> Cascade:
    """A cascade that is 0.62 sure of a first answer, and 0.27 or 0.88 of a second one that disagrees or agrees."""
    confidences = {(CHEAP,): weights(0.5), (CHEAP, MIDDLE): weights(-1.0, 3.0), (MIDDLE,): weights(2.0)}
    orders = np.full((1, 2, 3), END)
    orders[0, :, : len(order)] = order
    thresholds = np.tile([first, second, 0.0], (1, 2, 1))
    return Cascade(orders, thresholds, confidences, SCALES, np.array([SPARE, DEAR, MIDDLE, CHEAP]))


def seen(*codes: int, there: str = "1111", kind: int = 0, tokens: float = 100.0) -> Seen:
    """One task; the workers said this, in order."""
    said = np.array([[*codes, *[NOT_ASKED] * (4 - len(codes))]])
    may_ask = np.array([mark == "1" for mark in there])
    return Seen(Batch(("task",), np.array([kind])), said, np.ones_like(said), np.full(said.shape, tokens), may_ask)


def act(part: Cascade, state: Seen) -> tuple[int, int]:
    """Whom it asks, and whose answer it would ship."""
    acts = part.act(state, 0)
    return int(acts.ask[0]), int(acts.ship[0])


@pytest.mark.parametrize(
    ("part", "codes", "expected"),
    [
        (made(), (), (CHEAP, NOBODY)),
        (made(0.6), (0,), (SHIP, CHEAP)),
        (made(0.7), (0,), (MIDDLE, CHEAP)),
        (made(0.7), (0, 0), (SHIP, MIDDLE)),  # they agree: 0.88
        (made(0.7), (0, 1), (DEAR, MIDDLE)),
        (made(0.7, 0.2), (0, 1), (SHIP, MIDDLE)),
        (made(0.7), (0, 1, 1), (SHIP, DEAR)),
        (made(0.7), (0, 1, NOTHING), (SHIP, MIDDLE)),  # the last answer that was given
        (made(0.0), (NOTHING,), (MIDDLE, NOBODY)),  # no answer leads on, whatever the threshold
        (made(0.0, 0.0), (0, NOTHING), (DEAR, CHEAP)),
        (made(0.7), (NOTHING, NOTHING, NOTHING), (SHIP, NOBODY)),
        (made(order=(MIDDLE,)), (NOT_ASKED, 0), (SHIP, MIDDLE)),
    ],
)
def test_it_asks_in_order_until_it_is_sure(part: Cascade, codes: tuple[int, ...], expected: tuple[int, int]) -> None:
    assert act(part, seen(*codes)) == expected


@pytest.mark.parametrize(
    ("part", "there", "codes", "expected"),
    [
        (made(0.7), "0111", (), (MIDDLE, NOBODY)),
        (made(0.7, 0.9), "0111", (NOT_ASKED, 0), (DEAR, MIDDLE)),  # sure by 0.88, its own threshold is 0.9
        (made(0.7, 0.8), "0111", (NOT_ASKED, 0), (SHIP, MIDDLE)),
        (made(0.7), "1011", (0,), (DEAR, CHEAP)),
        (made(0.7), "1000", (0,), (SHIP, CHEAP)),
        (made(0.7), "0001", (), (SPARE, NOBODY)),  # nobody of the order is there
        (made(0.7), "0001", (NOT_ASKED, NOT_ASKED, NOT_ASKED, 0), (SHIP, SPARE)),
        (made(0.7), "0000", (), (SHIP, NOBODY)),
        (made(0.7), "0111", (0,), (MIDDLE, CHEAP)),  # it went after it was asked: its answer stays
        (made(0.7), "1111", (NOT_ASKED, NOT_ASKED, NOT_ASKED, 0), (CHEAP, SPARE)),  # somebody else asked it
        (made(0.7), "1111", (NOT_ASKED, NOT_ASKED, 0), (SHIP, DEAR)),
    ],
)
def test_whoever_is_not_there_is_left_out(
    part: Cascade, there: str, codes: tuple[int, ...], expected: tuple[int, int]
) -> None:
    assert act(part, seen(*codes, there=there)) == expected


def test_each_type_has_its_order_and_unknown_types_one_of_their_own() -> None:
    part = made()
    part.orders[0, 1] = [DEAR, END, END]
    both = Seen(Batch(("one", "two"), np.array([0, -1])), *fresh(2), np.ones(4, bool))
    assert part.act(both, 0).ask.tolist() == [CHEAP, DEAR]


def fresh(tasks: int) -> tuple[Ints, Ints, Floats]:
    """Codes, lengths and tokens of tasks for which nobody has been asked."""
    codes = np.full((tasks, 4), NOT_ASKED)
    return codes, np.zeros_like(codes), np.full(codes.shape, np.nan)


def test_confidence_is_read_from_type_length_sound_silence_and_agreement() -> None:
    state = replace(seen(0, 0, tokens=100 * np.e), tells=np.full((1, 4), 0.3))
    found = looks(state, (CHEAP, MIDDLE), SCALES)
    assert found[0] == pytest.approx([1.0, 0.993, 0.3, 1.0, 0.0, 1.0, 1.0], abs=1e-3)
    assert looks(seen(NOTHING, 0, kind=-1), (CHEAP, MIDDLE), SCALES)[0].tolist() == [1, 0, 0, 0, 1, 0, 0]


def test_a_sequence_that_it_was_not_fitted_for_is_not_trusted() -> None:
    assert made().confidence(seen(0, 0), (DEAR,)).tolist() == [0.0]
    assert made().confidence(seen(0), (CHEAP,)) == pytest.approx(1 / (1 + np.exp(-0.5)))


@pytest.mark.parametrize(("odds", "expected"), [(0.0, 0.5), (1e4, 1.0), (-1e4, 0.0)])
def test_a_chance_lies_between_0_and_1(odds: float, expected: float) -> None:
    assert chance(np.array([[odds]]), np.ones(1)) == pytest.approx([expected], abs=1e-9)


@pytest.mark.parametrize("kinds", [("maths", "law"), ()])
def test_a_cascade_asks_once_those_who_are_there_and_ships_what_was_given(kinds: tuple[str, ...]) -> None:
    held = panel({name: replace(made, silent=0.2) for name, made in POOL.items()}, tasks=120, kinds=kinds)
    part = cascade(held, folds(held)).part
    keeps_its_word(part, held)
    keeps_its_word(part, replace(held, batch=Batch(held.batch.prompts, np.full(120, -1))))


def test_a_cascade_is_its_arrays_in_single_precision() -> None:
    held = panel(tasks=200)
    part = cascade(held, folds(held)).part
    again = Cascade.of({name: array.astype(np.float32).astype(float) for name, array in part.held().items()})
    for asked in ([0, 1], [0], [1, 2]):
        state = held.seen(np.isin(np.arange(3), asked) & np.ones(held.codes.shape, bool))
        for setting in range(part.settings):
            one, other = part.act(state, setting), again.act(state, setting)
            assert (one.ask == other.ask).all()
            assert (one.ship == other.ship).all()
