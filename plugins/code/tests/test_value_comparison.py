"""What programs print and return against what was expected."""

import json
from decimal import Decimal
from fractions import Fraction

import pytest

from shikisha_code.code_tests import OpaqueValue, decode_value, same_output, same_value
from shikisha_code.harness_solution import encode_result


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("1\n2\n", "1\n2", True),
        ("1\n2", "1  \r\n2 \n\n", True),
        ("1\n\n2", "1\n2", True),
        ("1 2", "1  2", False),
        ("1\n2", "1 2", False),
        ("  *\n ***", "  *\n ***\n", True),
        ("  *", "*", False),
        ("Yes", "yes", False),
        ("1.0", "1", False),
        ("", "\n\n", True),
        ("", "0", False),
        ("1", "", False),
    ],
)
def test_outputs_are_the_same_but_for_white_space_at_ends(expected: str, printed: str, same: bool) -> None:
    assert same_output(expected, printed) is same


@pytest.mark.parametrize(
    ("expected", "printed", "tolerance", "same"),
    [
        ("1.0", "1", 0.0, True),
        ("1 2.50 x", "1.000 2.5 x", 0.0, True),
        ("100000000000000000001", "100000000000000000002", 0.0, False),
        ("0.333", "0.3333", 1e-3, True),
        ("0.333", "0.3353", 1e-3, False),
        ("1e6", "1000000.9", 1e-6, True),
        ("1e6", "1000001.1", 1e-6, False),
        ("nan", "nan", 0.0, True),
        ("1", "1_0", 0.9, False),
        ("1", "inf", 0.9, False),
        ("1", "x", 0.9, False),
        ("1 2", "1", 0.9, False),
        ("1e9999", "1e9998", 0.9, False),
        ("1" * 2_000, "1" * 1_999 + "2", 0.9, False),
    ],
)
def test_numbers_in_outputs_are_the_same_within_a_tolerance(
    expected: str, printed: str, tolerance: float, same: bool
) -> None:
    assert same_output(expected, printed, tolerance) is same


@pytest.mark.parametrize(
    ("expected", "found", "tolerance", "same"),
    [
        ([1, [2, 3]], (1, (2, 3)), None, True),
        ([1, 2], [1, 2, 3], None, False),
        ([1, 2], [2, 1], None, False),
        ({"a": [1]}, {"a": (1,)}, None, True),
        ({"a": 1}, {"b": 1}, None, False),
        (1, True, None, True),
        (1.0, 1, None, True),
        (0.3, 0.1 + 0.2, None, False),
        (0.3, 0.1 + 0.2, 1e-9, True),
        ([0.3], [0.30001], 1e-9, False),
        (10**400, 10**400 + 1, 1e-9, False),
        (10**400, 1.5, 1e-9, False),
        (1.0, float("nan"), 0.5, False),
        ("a", ["a"], None, False),
        (None, 0, None, False),
        ([1], OpaqueValue("list"), None, False),
    ],
)
def test_values(expected: object, found: object, tolerance: float | None, same: bool) -> None:
    assert same_value(expected, found, tolerance) is same


NESTED = {"a": [(1, 2.5, "ü\n\ud800"), {3}, frozenset({4})], (5, None): {True: b"\x00"}}


@pytest.mark.parametrize(
    "value",
    [
        NESTED,
        0,
        -7,
        2**59,
        2**60,
        [-(10**5_000)],
        0.1,
        1e300,
        float("inf"),
        1 - 2j,
        Fraction(1, 3),
        Decimal("1.50"),
        "",
        [],
    ],
)
def test_plain_data_arrives_as_it_was(value: object) -> None:
    arrived = decode_value(json.loads(encode_result(value)))
    assert arrived == value
    assert type(arrived) is type(value)


def test_what_is_no_plain_data_arrives_as_its_type_s_name_and_equals_nothing() -> None:
    arrived = decode_value(json.loads(encode_result([object()])))
    assert repr(arrived) == "[<an object of type object>]"
    assert arrived != [object()]
    assert OpaqueValue("x") != OpaqueValue("x")


class Everything:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Shout(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


def test_an_overloaded_comparison_does_not_travel() -> None:
    assert not same_value(5, decode_value(json.loads(encode_result(Everything()))))
    assert not same_value("a", decode_value(json.loads(encode_result(Shout("b")))))


@pytest.mark.parametrize(
    "wire",
    [
        *({}, {"a": 1}, {"tuple": 1}, {"int": 5}, {"int": "x"}, {"fraction": [1, 0]}, {"fraction": ["1", 2]}),
        *({"set": [[]]}, {"dict": [1]}, {"dict": [[1]]}, {"bytes": "x"}, {"tuple": [], "set": []}, [{"float": "x"}]),
    ],
)
def test_what_is_no_value_is_refused(wire: object) -> None:
    with pytest.raises((ValueError, TypeError, ArithmeticError)):
        decode_value(wire)


def test_a_decimal_that_is_no_number_is_opaque() -> None:
    assert isinstance(decode_value({"decimal": "sNaN"}), OpaqueValue)
