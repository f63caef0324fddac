"""What a chat reply says it used, believed only as far as it can be true.

Invariants: tokens and dollars are counts from zero; a number far beyond what request and limit allow is absurd and is
taken for absent. The bounds are generous (an endpoint may add a long prompt of its own), because their purpose is to
catch nonsense, not to audit. Tokens that an orchestrating endpoint bills besides its own are added in. Deliberately
absent: a tokenizer; no byte-level tokenizer makes more tokens than bytes, and that is the only bound that always holds.
"""

from dataclasses import replace
from math import isfinite
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from shikisha.budget import Usage
from shikisha.call import NO_WISHES, Wishes
from shikisha.context import bound, most_output
from shikisha.worker import Card, Turn

_FACTOR = 10
_SLACK = 100_000
_MOST_DOLLARS = 100.0  # for one call, where no price says better

Count = Annotated[int, Field(strict=True, ge=0)]


class _PromptDetails(BaseModel):
    cached_tokens: Count | None = None
    orchestration_input_tokens: Count | None = None
    orchestration_input_cached_tokens: Count | None = None


class _CompletionDetails(BaseModel):
    reasoning_tokens: Count | None = None
    orchestration_output_tokens: Count | None = None


class _Counts(BaseModel):
    """The `usage` of a reply: only what is billed."""

    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


def read_usage(raw: object, said: tuple[Turn, ...], card: Card, wishes: Wishes = NO_WISHES) -> Usage | None:
    """Return the usage that a reply states; None when it states none, or nonsense."""
    try:
        counts = _Counts.model_validate(raw)
    except ValidationError:
        return None
    into = counts.prompt_tokens_details or _PromptDetails()
    out = counts.completion_tokens_details or _CompletionDetails()
    usage = Usage(
        input_tokens=counts.prompt_tokens + (into.orchestration_input_tokens or 0),
        output_tokens=counts.completion_tokens + (out.orchestration_output_tokens or 0),
        cached_tokens=(into.cached_tokens or 0) + (into.orchestration_input_cached_tokens or 0),
        reasoning_tokens=out.reasoning_tokens or 0,
    )
    return usage if _plausible(usage, most_tokens(said, card, wishes)) else None


def _plausible(usage: Usage, most: Usage) -> bool:
    return (
        usage.cached_tokens <= usage.input_tokens <= _FACTOR * most.input_tokens + _SLACK
        and usage.output_tokens <= _FACTOR * most.output_tokens + _SLACK
    )


def most_tokens(said: tuple[Turn, ...], card: Card, wishes: Wishes = NO_WISHES) -> Usage:
    """Return what this call can use at most, however little the model's context holds."""
    tokens = bound(said, replace(card, context_tokens=None), wishes).tokens
    output = most_output(card, wishes)
    return Usage(tokens - output, output)


def read_cost(raw: object, usage: Usage, card: Card) -> float | None:
    """Return the dollars that a gateway states in `usage.cost`; None when it states none, or nonsense.

    A call that the card prices is not believed to be free, nor to cost many times its price.
    """
    cost = raw.get("cost") if isinstance(raw, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not isfinite(cost) or cost < 0:
        return None
    price = card.price.of(usage) if card.price is not None else 0.0
    if price > 0:
        return float(cost) if 0 < cost <= _FACTOR * price else None
    return float(cost) if cost <= _MOST_DOLLARS else None
