"""JSON on the hot paths says what the standard library says."""

import json
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.messages import decode_json, encode_ascii_json, encode_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(), max_size=5) | st.just("\ud800")  # half a character, as some models write it
VALUES = st.recursive(
    SCALARS | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)


@given(VALUES)
def test_what_is_written_is_what_json_reads_and_the_other_way_round(value: object) -> None:
    written = encode_ascii_json(value)
    assert written.isascii()
    assert "\n" not in written
    assert json.loads(written) == value == decode_json(written)
    assert json.loads(encode_json(value)) == value == decode_json(json.dumps(value))


@pytest.mark.parametrize("number", [nan, inf, -inf])
@pytest.mark.parametrize("shape", ["{}", "in a list", "in a part"])
def test_a_number_that_json_lacks_is_refused(number: float, shape: str) -> None:
    value = {"{}": number, "in a list": [None, [number]], "in a part": {"a": None, "b": {"c": (1, number)}}}[shape]
    for encode in (encode_json, encode_ascii_json):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode(value)


def test_what_is_no_json_is_a_value_error() -> None:
    for text in ("", "{", b"\xff", '{"a":}'):
        with pytest.raises(ValueError, match=r"(?i)expect|char|decode"):
            decode_json(text)
