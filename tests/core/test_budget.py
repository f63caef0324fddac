"""Caps, prices and amounts: what cannot be a cap is refused, and a bound is never too low."""

import re
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from shikisha.core.budget import Amount, Caps, Price, Usage, format_dollars, upper_bound
from shikisha.core.errors import ConfigError

SOURCES = ROOT / "src"
NUMBERS = st.integers(0, 10**6)
OPTIONAL = st.none() | NUMBERS
caps = st.builds(
    Caps, steps=NUMBERS, rounds=NUMBERS, depth=NUMBERS, tokens=OPTIONAL, dollars=OPTIONAL, seconds=OPTIONAL
)
prices = st.builds(Price, *[st.floats(0, 100)] * 2, cached=st.none() | st.floats(0, 100), call=st.floats(0, 1))
CAPS = ("steps", "rounds", "depth", "tokens", "dollars", "seconds", "plan_steps")


@pytest.mark.parametrize("name", CAPS)
@pytest.mark.parametrize("value", [-1, nan, inf, -inf])
def test_invariant_3_a_number_that_compares_to_nothing_is_no_cap(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"budget {name}: expected a number from 0"):
        Caps(**{name: value})  # type: ignore[arg-type]  # the point of it


def test_nothing_at_all_can_be_a_cap() -> None:
    assert Caps(0, 0, 0, 0, 0.0, 0.0, 0).steps == 0


@given(caps, caps)
def test_narrowed_caps_are_nowhere_wider_than_either(one: Caps, other: Caps) -> None:
    both = one.narrowed(other)
    for name in CAPS:
        given_caps = [cap for cap in (getattr(one, name), getattr(other, name)) if cap is not None]
        assert getattr(both, name) == min(given_caps, default=None)


@given(prices, *[st.integers(0, 10_000)] * 3)
def test_no_usage_within_the_bound_costs_more_than_the_bound(
    price: Price, used: int, written: int, cached: int
) -> None:
    text = "é" * used
    most = upper_bound([text], written, price)
    usage = Usage(input_tokens=len(text.encode()), output_tokens=written, cached_tokens=min(cached, 2 * used))
    assert most.tokens >= usage.total
    assert most.dollars is not None
    assert most.dollars >= price.of(usage) * (1 - 1e-9)


def test_a_bound_counts_bytes_turns_and_the_calls_own_price() -> None:
    assert upper_bound(["ab", "é"], 10, Price(call=0.5)) == Amount(2 + 2 + 2 * 16 + 10, 0.5)


def test_no_model_reads_more_than_its_context() -> None:
    assert upper_bound(["a" * 1000], 10, Price(), context_tokens=100).tokens == 110


def test_a_call_without_a_price_has_no_bound_in_dollars() -> None:
    assert upper_bound(["a"], 1, None).dollars is None


def test_cached_tokens_have_their_own_price_where_it_is_known() -> None:
    usage = Usage(1_000_000, 1_000_000, cached_tokens=400_000)
    assert Price(10, 20).of(usage) == pytest.approx(30)
    assert Price(10, 20, cached=1, call=0.5).of(usage) == pytest.approx(6 + 0.4 + 20 + 0.5)


def test_a_sum_with_something_unknown_is_unknown() -> None:
    assert Amount(1, 0.5) + Amount(2, None) == Amount(3, None)
    assert sum([Amount(1, 0.5), Amount(2, 0.25)], Amount()) == Amount(3, 0.75)


@pytest.mark.parametrize(
    ("amount", "digits", "written"),
    [
        (None, 3, "$?"),
        (0.0, 3, "$0"),
        (7.1e-06, 3, "$0.0000071"),
        (0.000114, 3, "$0.000114"),
        (3e-12, 3, "$3.0e-12"),
        (0.0205, 3, "$0.0205"),
        (0.02051, 3, "$0.0205"),
        (0.02051, 6, "$0.02051"),
        (0.9996, 6, "$0.9996"),
        (0.5, 6, "$0.50"),
        (1.0, 6, "$1.00"),
        (12.34567, 6, "$12.3457"),
        (1234.5, 3, "$1,234"),
        (1234.5, 6, "$1,234.50"),
        (-0.25, 3, "-$0.25"),
    ],
)
def test_dollars_are_written_so_that_no_money_reads_as_none(amount: float | None, digits: int, written: str) -> None:
    assert format_dollars(amount, digits) == written


@given(st.floats(min_value=1e-300, max_value=1e15))
def test_more_than_nothing_never_reads_as_nothing(amount: float) -> None:
    assert re.search("[1-9]", format_dollars(amount))


def test_no_other_way_to_write_dollars_is_left() -> None:
    """A fixed number of decimals is where `$0.0000` for real money came from."""
    fixed = re.compile(r"\$\{[^{}]*:[^{}]*f\}")
    found = [
        (path.name, line)
        for path in SOURCES.rglob("*.py")
        if path.name != "budget.py"
        for line in path.read_text().splitlines()
    ]
    assert [(name, line) for name, line in found if fixed.search(line)] == []
