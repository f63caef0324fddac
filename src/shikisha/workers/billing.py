"""What a chat reply says it used, believed only as far as it can be true.

Invariants: tokens and dollars are counts from zero; a number far beyond what request and limit allow is absurd and is
taken for absent, and one below what any tokenizer makes of the texts that went and came is replaced by an estimate, so
that no endpoint is free for saying so. The bounds are generous (an endpoint may add a long prompt of its own), because
their purpose is to catch nonsense, not to audit. Tokens that an orchestrating endpoint bills besides its own are added
in, and those that are in the total alone (reasoning, at some) are output. Deliberately absent: a tokenizer; no
byte-level tokenizer makes more tokens than bytes, and that is the only upper bound that always holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from operator import ne
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from shikisha.budget import Usage
from shikisha.call import NO_WISHES, Wishes
from shikisha.context import bound, most_output
from shikisha.worker import Card, Turn

# A run of one character (spaces, a ruler, "aaaa") can be a single token, so what is counted is where the character
# changes. cl100k_base and o200k_base come to .9 to 5.2 such changes a token in prose, code, JSON and tables of eight
# languages, and to 15.9 at most in patterns ("-=-=-="); beyond 16 are only texts that repeat one very long word, of
# which the two vocabularies have 443 and 43 in all. Images, files and schemas of tools are not counted at all.
_MOST_CHANGES_A_TOKEN = 16
_CHANGES_A_TOKEN = 4  # what is usual, for the estimate that takes the place of a number that cannot be true
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
    total_tokens: object = None
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
    most = most_tokens(said, card, wishes)
    beside = replace(usage, output_tokens=_with_reasoning(usage, counts.total_tokens))
    return next((each for each in (beside, usage) if _plausible(each, most)), None)


def _with_reasoning(usage: Usage, total: object) -> int:
    """Return the output with what xAI and Gemini leave out of it, and bill: reasoning that is in the total alone."""
    output = usage.output_tokens
    if type(total) is int and total > usage.total:
        return total - usage.input_tokens
    return output + usage.reasoning_tokens if usage.reasoning_tokens > output else output


def at_least(usage: Usage, sent: Iterable[str], received: Iterable[str]) -> Usage:
    """Return the usage, with an estimate for what is less than these texts can come to in any tokenizer."""
    return replace(
        usage,
        input_tokens=_at_least(usage.input_tokens, tuple(filter(None, sent))),
        output_tokens=_at_least(usage.output_tokens, tuple(filter(None, received))),
    )


def _at_least(stated: int, texts: tuple[str, ...]) -> int:
    """Return the number stated, unless it cannot be; a text has a token, and characters are counted only if need be."""
    if stated >= len(texts) + sum(map(len, texts)) // _MOST_CHANGES_A_TOKEN:
        return stated
    changes = sum(1 + sum(map(ne, text, text[1:])) for text in texts)
    least = max(1, changes // _MOST_CHANGES_A_TOKEN) if texts else 0
    return stated if stated >= least else -(-changes // _CHANGES_A_TOKEN)


def merged(before: object, now: object) -> object:
    """Return what a reply says it used, which may come in several pieces: of each count the larger one.

    Endpoints that count as they go repeat the whole each time; others say the input first and the output last.
    """
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return before if now is None else now
    both = {name: _larger(before[name], now[name]) for name in before.keys() & now.keys()}
    return {**before, **now, **both}


def _larger(before: object, now: object) -> object:
    if isinstance(before, Mapping):
        return merged(before, now)
    if now is None or (isinstance(before, int | float) and isinstance(now, int | float) and before > now):
        return before
    return now


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

    A call that the card prices is not believed to be free, nor to cost a small part of its price or many times as
    much; what is cached may cost next to nothing.
    """
    cost = raw.get("cost") if isinstance(raw, Mapping) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < inf:
        return None
    price = card.price.of(usage) if card.price is not None else 0.0
    if card.price is not None and price > 0:
        fresh = Usage(usage.input_tokens - usage.cached_tokens, usage.output_tokens)
        believed = card.price.of(fresh) <= _FACTOR * cost and 0 < cost <= _FACTOR * price
        return float(cost) if believed else None
    return float(cost) if cost <= _MOST_DOLLARS else None
