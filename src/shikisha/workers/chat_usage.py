"""What a chat reply says that it used: read from wherever it stands, believed as far as it can be true, or estimated.

Stated usage is believed only as far as it can be true: a number far beyond what request and limit allow is a lie, and
one below what any tokenizer needs for these texts is replaced by an estimate, so no endpoint is free because it says
so. The bounds are generous (an endpoint may add a long prompt of its own): they catch nonsense, they do not audit. The
words for each kind of tokens come from the providers' profiles. Deliberately absent: a tokenizer. No byte-level
tokenizer makes more tokens than bytes, which is the only upper bound that always holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import inf

from shikisha.core.budget import Amount, Usage, byte_length
from shikisha.core.call import NO_CLIENT_OPTIONS, ClientOptions
from shikisha.core.visibility import max_usage, output_limit
from shikisha.engine.worker import Card, ChatMessage
from shikisha.workers.provider_profile import vocabulary

# A run of one character (spaces, a ruler, "aaaa") can be a single token, so what is counted is where the character
# changes. cl100k_base and o200k_base have 0.9 to 5.2 such changes a token in prose, code, JSON and tables of eight
# languages, and to 15.9 at most in patterns ("-=-=-="); beyond 16 are only texts that repeat one very long word, of
# which the two vocabularies have 443 and 43 in all. Images, files and schemas of tools are not counted at all.
_MOST_CHANGES_A_TOKEN = 16
# The usual ratio, for the estimate that replaces an impossible number.
_CHANGES_A_TOKEN = 4
_TOLERANCE_FACTOR = 10
_TOLERANCE_TOKENS = 100_000
_BYTES_A_TOKEN = 4
_TOKENS_A_TURN = 4
# For one call of a worker without a price.
_MAX_DOLLARS = 100.0


class UntrueUsage(ValueError):
    """Usage that is no usage: a count that is none, below zero, or more than can be."""


def find_usage(holder: object) -> object:
    """Return the usage that stands in a chunk, a choice or a message, whatever it is called there; None for none."""
    if not isinstance(holder, dict) or holder.keys().isdisjoint(vocabulary().usage_keys):
        return None
    for names in _usage_paths("places"):
        if names[0] in holder and isinstance(found := _at(holder, names), dict) and found:
            return found
    return None


@cache
def _usage_paths(kind: str) -> tuple[tuple[str, ...], ...]:
    """Return where counts of this kind may stand: most of these no endpoint sends at once."""
    return tuple(tuple(path.split(".")) for path in vocabulary().usage[kind])


def _at(holder: object, names: tuple[str, ...]) -> object:
    for name in names:
        holder = holder.get(name) if isinstance(holder, dict) else None
    return holder


def _count(raw: Mapping[str, object], kind: str) -> int | None:
    """Return the first count of this kind that is stated; UntrueUsage for what is no count of tokens."""
    for names in _usage_paths(kind):
        if names[0] in raw and (stated := _at(raw, names)) is not None:
            if type(stated) is not int or stated < 0:
                raise UntrueUsage(f"{'.'.join(names)} is no number of tokens")
            return stated
    return None


def stated_usage(
    raw: object, said: tuple[ChatMessage, ...], card: Card, client_options: ClientOptions = NO_CLIENT_OPTIONS
) -> Usage | None:
    """Return the usage that a reply states; None where it states none, UntrueUsage where it cannot be true."""
    if not isinstance(raw, dict):
        return None
    into, out, beside = _count(raw, "input"), _count(raw, "output"), _count(raw, "beside")
    if (into is None and beside is None) or out is None:
        return None
    minutes, hour = _count(raw, "cache_write_5m"), _count(raw, "cache_write_1h") or 0
    written = _count(raw, "cache_write")
    parts = {
        "output_tokens": out,
        "cached_tokens": _count(raw, "cached") or 0,
        "reasoning_tokens": _count(raw, "reasoning") or 0,
        "cache_write_tokens": minutes if minutes is not None else max(0, (written or 0) - hour),
        "cache_write_1h_tokens": hour,
        "image_tokens": _count(raw, "image") or 0,
        "audio_tokens": _count(raw, "audio") or 0,
        "image_output_tokens": _count(raw, "image_output") or 0,
        "audio_output_tokens": _count(raw, "audio_output") or 0,
    }
    total = raw.get("total_tokens", raw.get("totalTokenCount"))
    usage = Usage(_whole_input(Usage(**parts), into, beside, total), **parts)
    if usage.cacheable_tokens > usage.input_tokens:
        raise UntrueUsage("more tokens of a cache than of the whole input")
    more = [_count(raw, kind) or 0 for kind in ("more_input", "more_output", "more_cached")]
    if any(more):
        usage += Usage(*more)
    most, output = max_tokens(said, card, client_options), _with_reasoning(usage, total)
    for each in (usage,) if output == usage.output_tokens else (replace(usage, output_tokens=output), usage):
        if _is_plausible(each, most):
            return each
    raise UntrueUsage("more tokens than the request and its limit allow")


def _whole_input(usage: Usage, into: int | None, beside: int | None, total: object) -> int:
    """Return all input tokens; some count beside the cache, and some gateways do so under the words of others."""
    if into is None:
        own = beside or 0
        details_are_parts = type(total) is int and total == own + usage.output_tokens
        return own if details_are_parts and usage.cacheable_tokens <= own else own + usage.cacheable_tokens
    with_cache = into + usage.cacheable_tokens
    if usage.cacheable_tokens > into and type(total) is int and total >= with_cache + usage.output_tokens:
        return with_cache
    return into


def _with_reasoning(usage: Usage, total: object) -> int:
    """Return the output tokens with the reasoning that xAI and Gemini count in the total only, and bill."""
    output = usage.output_tokens
    if type(total) is int and total > usage.total:
        return total - usage.input_tokens
    return output + usage.reasoning_tokens if usage.reasoning_tokens > output else output


def max_tokens(said: tuple[ChatMessage, ...], card: Card, client_options: ClientOptions = NO_CLIENT_OPTIONS) -> Usage:
    """Return the most that this call can use, whatever the model's context holds."""
    tokens = max_usage(said, card, client_options, by_context=False).tokens
    output = output_limit(card, client_options)
    return Usage(tokens - output, output)


def with_minimum_tokens(usage: Usage, sent: Iterable[str], received: Iterable[str]) -> Usage:
    """Return the usage, with an estimate where a number is below what any tokenizer makes of these texts."""
    read = _minimum_tokens(usage.input_tokens, tuple(filter(None, sent)))
    wrote = _minimum_tokens(usage.output_tokens, tuple(filter(None, received)))
    if (read, wrote) == (usage.input_tokens, usage.output_tokens):
        return usage
    return replace(usage, input_tokens=read, output_tokens=wrote)


def _minimum_tokens(stated: int, texts: tuple[str, ...]) -> int:
    """Return the stated number unless it is impossible; characters are counted only where the cheap bound fails."""
    if stated >= len(texts) + sum(map(len, texts)) // _MOST_CHANGES_A_TOKEN:
        return stated
    changes = sum(map(count_changes, texts))
    least = max(1, changes // _MOST_CHANGES_A_TOKEN) if texts else 0
    return stated if stated >= least else -(-changes // _CHANGES_A_TOKEN)


def count_changes(text: str) -> int:
    """Return how many characters are not as the one before them, in one operation over the whole text.

    One by one, the 100 kB of a long prompt took longer than all else that its call does here.
    """
    wide = b"" if text.isascii() else text.encode("utf-32-le", "surrogatepass")
    planes = [wide[place::4] for place in range(4)] if wide else [text.encode()]
    differing = 0
    for plane in planes:
        differing |= int.from_bytes(plane[:-1], "little") ^ int.from_bytes(plane[1:], "little")
    return len(text) - differing.to_bytes(max(0, len(text) - 1), "little").count(0)


def merge_usage(before: object, now: object) -> object:
    """Merge the usage of several chunks into the first: the larger of each count, in time linear in `now`.

    Some endpoints repeat the whole so far in each chunk; others state the input first and the output last.
    """
    if not isinstance(before, dict) or not isinstance(now, dict):
        return before if now is None else now
    for name, count in now.items():
        before[name] = _larger_count(before[name], count) if name in before else count
    return before


def _larger_count(before: object, now: object) -> object:
    if isinstance(before, dict):
        return merge_usage(before, now)
    if now is None or (isinstance(before, int | float) and isinstance(now, int | float) and before > now):
        return before
    return now


def _is_plausible(usage: Usage, most: Usage) -> bool:
    return (
        usage.input_tokens <= _TOLERANCE_FACTOR * most.input_tokens + _TOLERANCE_TOKENS
        and usage.output_tokens <= _TOLERANCE_FACTOR * most.output_tokens + _TOLERANCE_TOKENS
    )


def read_cost(raw: object, usage: Usage, card: Card) -> float | None:
    """Return the dollars that a gateway states in `usage.cost`; None for none, or an impossible amount.

    A call that the card prices is not believed to be free, nor to cost a small part of its price or many times as
    much; what is cached may cost next to nothing.
    """
    cost = raw.get("cost") if isinstance(raw, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < inf:
        return None
    price = card.price.of(usage) if card.price is not None else 0.0
    if card.price is not None and price > 0:
        fresh = Usage(usage.input_tokens - usage.cached_tokens, usage.output_tokens)
        believed = card.price.of(fresh) <= _TOLERANCE_FACTOR * cost and 0 < cost <= _TOLERANCE_FACTOR * price
        return float(cost) if believed else None
    return float(cost) if cost <= _MAX_DOLLARS else None


def estimated_usage(
    sent: tuple[ChatMessage, ...], received: tuple[str, ...], card: Card, client_options: ClientOptions
) -> Usage:
    """Return what a call has used as far as its texts say, for an endpoint that does not say it."""
    texts = [turn.text for turn in sent] + [call.arguments for turn in sent for call in turn.calls]
    most = max_tokens(sent, card, client_options)
    usual = Usage(_usual_tokens(texts), min(_usual_tokens(received), most.output_tokens))
    return replace(usual, input_tokens=min(most.input_tokens, usual.input_tokens + len(sent) * _TOKENS_A_TURN))


def _usual_tokens(texts: Iterable[str]) -> int:
    return sum([-(-byte_length(text) // _BYTES_A_TOKEN) for text in texts])


def bounded_use(usage: Usage, most: Usage, card: Card) -> Amount:
    """Return what a call may have used besides an estimate of it, at most."""
    beside = most - usage
    dollars = 0.0 if card.price is None else max(0.0, card.price.of(usage + beside) - card.price.of(usage))
    return Amount(beside.total, dollars)
