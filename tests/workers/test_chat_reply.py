"""Replies of any shape: heard as text, or refused as a bad reply; usage and cost believed only where they can be."""

import json
import sys
from collections.abc import Callable
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.budget import Price, Usage
from shikisha.core.errors import FaultKind
from shikisha.engine.worker import Card, ChatMessage, Speaker
from shikisha.workers.chat_reply import ChatReply, EventStreamParser
from shikisha.workers.chat_usage import UntrueUsage, merge_usage, read_cost, stated_usage

CARD = Card("x", max_output_tokens=100, price=Price(1.0, 2.0))
SAID = (ChatMessage(Speaker.USER, "x" * 84),)  # 100 tokens at most, with what a turn adds

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
MESSAGES = st.fixed_dictionaries({}, optional={"content": JSON | st.text(), "refusal": JSON, "tool_calls": JSON}) | JSON
CHOICES = st.fixed_dictionaries(
    {},
    optional={"index": JSON, "delta": MESSAGES, "message": MESSAGES, "finish_reason": JSON | st.just("stop")},
)
USAGES = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": JSON | st.integers(0, 200),
        "completion_tokens": JSON | st.integers(0, 200),
        "prompt_tokens_details": JSON | st.fixed_dictionaries({"cached_tokens": JSON | st.integers(0, 9)}),
        "completion_tokens_details": JSON,
        "cost": JSON,
    },
)
REPLIES = JSON | st.fixed_dictionaries(
    {}, optional={"model": JSON, "choices": JSON | st.lists(CHOICES, max_size=3), "usage": USAGES, "error": JSON}
)


@given(st.lists(REPLIES, max_size=4))
def test_any_reply_is_heard_or_is_a_value_error(replies: list[object]) -> None:
    heard = ChatReply()
    for reply in replies:
        try:
            heard.take(json.dumps(reply).encode())
        except ValueError:
            continue
    assert isinstance(heard.text, str)
    assert isinstance(heard.objection(), Exception)  # no end marker came: never an answer


@given(USAGES | JSON)
def test_any_usage_is_believable_or_none_or_a_lie(raw: object) -> None:
    try:
        usage = stated_usage(raw, SAID, CARD)
    except UntrueUsage:
        return
    if usage is None:
        return
    assert 0 <= usage.cached_tokens <= usage.input_tokens
    assert usage.output_tokens >= 0
    cost = read_cost(raw, usage, CARD)
    assert cost is None or (isfinite(cost) and cost >= 0)


def test_tokens_that_an_orchestrating_endpoint_bills_besides_its_own_are_added() -> None:
    raw = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {
            "cached_tokens": 2,
            "orchestration_input_tokens": 30,
            "orchestration_input_cached_tokens": 4,
        },
        "completion_tokens_details": {"reasoning_tokens": 3, "orchestration_output_tokens": 7},
    }
    assert stated_usage(raw, SAID, CARD) == Usage(40, 12, 6, 3)


@pytest.mark.parametrize(
    "raw",
    [
        {"prompt_tokens": "5", "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 5.0, "completion_tokens": 1},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}},
        {"prompt_tokens": 10**9, "completion_tokens": 1},
        {"prompt_tokens": 5, "completion_tokens": 10**9},
    ],
)
def test_usage_that_cannot_be_true_is_a_lie(raw: object) -> None:
    with pytest.raises(UntrueUsage):
        stated_usage(raw, SAID, CARD)


@pytest.mark.parametrize("raw", [None, {}, [], "x", {"prompt_tokens": 5}, {"prompt_tokens": None}])
def test_usage_that_is_not_stated_is_none(raw: object) -> None:
    assert stated_usage(raw, SAID, CARD) is None


def test_a_long_prompt_that_the_endpoint_adds_is_believed() -> None:
    assert stated_usage({"prompt_tokens": 50_000, "completion_tokens": 1}, SAID, CARD) == Usage(50_000, 1)


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        ({"choices": [{"delta": {"refusal": "no"}, "finish_reason": "stop"}]}, FaultKind.REFUSED),
        ({"choices": [{"delta": {}, "finish_reason": "content_filter"}]}, FaultKind.REFUSED),
        ({"choices": [{"delta": {"content": "x"}, "finish_reason": "length"}]}, FaultKind.TRUNCATED),
        ({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, FaultKind.BAD_REPLY),
        ({"choices": [{"delta": {"content": " \n"}, "finish_reason": "stop"}]}, FaultKind.EMPTY),
        ({"choices": [{"delta": {"content": "x"}}]}, FaultKind.CUT_OFF),
        ({"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"}]}, FaultKind.CUT_OFF),
    ],
)
def test_what_is_no_answer_is_objected_to(piece: object, kind: FaultKind) -> None:
    heard = ChatReply(ended=True)
    heard.take(json.dumps(piece).encode())
    objection = heard.objection()
    assert objection is not None
    assert objection.fault.kind is kind


@pytest.mark.parametrize(
    ("given_logprobs", "expected"),
    [
        ({"content": [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.3}]}, 0.8187),
        ({"content": [{"logprob": 0.5}, {"logprob": True}, {"logprob": None}, 3, {"logprob": float("-inf")}]}, None),
        ({"content": "none"}, None),
        (["x"], None),
        (None, None),
    ],
)
def test_confidence_is_the_mean_probability_of_tokens_where_there_are_any(
    given_logprobs: object, expected: float | None
) -> None:
    reply = ChatReply()
    for text in ("to", "day"):  # a stream's chunks have their own
        reply.take(json.dumps({"choices": [{"delta": {"content": text}, "logprobs": given_logprobs}]}))
    assert reply.text == "today"
    assert reply.confidence == (None if expected is None else pytest.approx(expected, abs=1e-4))


def test_a_line_in_many_parts_is_copied_once() -> None:
    parts = [b"data: ", *(bytes([97 + number % 26]) * 1400 for number in range(2000))]
    events, before = EventStreamParser(), [sys.getrefcount(part) for part in parts]
    assert not any(events.take(part) for part in parts)
    # The parts themselves are held: what joins them as they come would hold one copy of all.
    assert [sys.getrefcount(part) for part in parts] == [count + 1 for count in before]
    (data,) = events.take(b"\n\n")
    assert data.encode() == b"".join(parts[1:])
    assert [sys.getrefcount(part) for part in parts] == before


@pytest.mark.parametrize(
    ("pieces", "data", "rest"),
    [
        ([b"data: a\r", b"", b"data: b\r\r"], [], ["a\nb"]),  # the last return may be half of a line break
        ([b"data: a\r", b"", b"data: b\r", b"\r", b"x"], ["a\nb"], []),
        ([b"data: a\r", b"\ndata: b", b"\r\n", b"\r\n"], ["a\nb"], []),
    ],
)
def test_a_line_break_may_be_cut_in_two(pieces: list[bytes], data: list[str], rest: list[str]) -> None:
    events = EventStreamParser()
    assert [each for piece in pieces for each in events.take(piece)] == data
    assert events.take(b"\n\n") == rest


def counted_calls(act: Callable[[], object]) -> int:
    """Return how many Python functions and generators run."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def test_many_calls_of_tools_take_time_in_proportion() -> None:
    def take(number: int) -> int:
        calls = [{"id": f"c{place}", "function": {"name": "f", "arguments": "{}"}} for place in range(number)]
        chunk, reply = json.dumps({"choices": [{"delta": {"tool_calls": calls}}]}), ChatReply()
        made = counted_calls(lambda: reply.take(chunk))
        assert len(reply.calls) == number
        assert (
            reply.take(
                json.dumps({"choices": [{"delta": {"tool_calls": [{"id": "c1", "function": {"arguments": "!"}}]}}]})
            )
            is None
        )
        assert reply.calls[1].arguments == "{}!"
        return made

    assert take(800) < 3 * take(400)


def test_usage_is_merged_in_place_and_a_name_without_end_ends() -> None:
    first: dict[str, object] = {"prompt_tokens": 5, "inner": {"a": 1}}
    assert merge_usage(first, {"prompt_tokens": 3, "inner": {"a": 2}, "completion_tokens": 1}) is first
    assert first == {"prompt_tokens": 5, "inner": {"a": 2}, "completion_tokens": 1}
    reply = ChatReply()
    for letter in "ab" * 2000:
        delta = {"tool_calls": [{"index": 0, "function": {"name": letter}}], "refusal": letter}
        reply.take(json.dumps({"choices": [{"delta": delta}]}))
    assert len(reply.calls[0].name) == 1000
    assert reply.refusal == "ab" * 2000
