"""Replies of any shape: heard as text, or refused as a bad reply; usage and cost believed only where they can be."""

import json
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.budget import Price, Usage
from shikisha.core.errors import FaultKind
from shikisha.engine.worker import Card, ChatMessage, Speaker
from shikisha.workers.chat_reply import ChatReply, read_cost, read_usage

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
def test_any_usage_is_believable_or_none(raw: object) -> None:
    usage = read_usage(raw, SAID, CARD)
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
    assert read_usage(raw, SAID, CARD) == Usage(40, 12, 6, 3)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        {"prompt_tokens": 5},
        {"prompt_tokens": "5", "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 5.0, "completion_tokens": 1},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}},
        {"prompt_tokens": 10**9, "completion_tokens": 1},
        {"prompt_tokens": 5, "completion_tokens": 10**9},
    ],
)
def test_usage_that_cannot_be_true_is_no_usage(raw: object) -> None:
    assert read_usage(raw, SAID, CARD) is None


def test_a_long_prompt_that_the_endpoint_adds_is_believed() -> None:
    assert read_usage({"prompt_tokens": 50_000, "completion_tokens": 1}, SAID, CARD) == Usage(50_000, 1)


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
