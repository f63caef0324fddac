"""Caps and amounts: what a run may use, what a call may cost at most, what was used.

Dollars are US dollars, seconds are wall-clock seconds while the run is being performed, tokens are input plus output
tokens of every call (planning, steps, checks, child runs). `None` is "no cap". These are values only: the counting,
and the refusals, are in `ledger`. A share of counted amounts has its interval here, because every layer quotes some.
"""

from collections.abc import Callable, Sequence
from math import floor, inf, isfinite, log10, sqrt
from operator import add, attrgetter
from typing import TypeVar

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, fields

_MOST_PLACES = 9
TOKENS_PER_TURN = 16  # what a chat protocol adds around each turn, rounded up


@dataclass(frozen=True, slots=True)
class Caps:
    """Hard caps of one run, its child runs included; `tool_calls` are those that agents make.

    `map_items` is the most items of one map step; 0: no plan may have one.
    """

    steps: int = 25
    rounds: int = 8
    depth: int = 2
    tokens: int | None = None
    dollars: float | None = None
    seconds: float | None = 600.0
    plan_steps: int = 5
    tool_calls: int | None = 200
    map_items: int = 0

    def __post_init__(self) -> None:
        caps = (self.steps, self.rounds, self.depth, self.tokens, self.dollars, self.seconds, self.plan_steps)
        for name, cap in zip(_CAPS, (*caps, self.tool_calls, self.map_items), strict=True):
            if cap is not None and not 0 <= cap < inf:
                raise ConfigError(f"budget {name}: expected a number from 0, not {cap!r}")

    def narrowed(self, other: "Caps") -> "Caps":
        """Return the tighter of the two caps, each on its own."""
        return Caps(
            steps=min(self.steps, other.steps),
            rounds=min(self.rounds, other.rounds),
            depth=min(self.depth, other.depth),
            tokens=_smaller_cap(self.tokens, other.tokens),
            dollars=_smaller_cap(self.dollars, other.dollars),
            seconds=_smaller_cap(self.seconds, other.seconds),
            plan_steps=min(self.plan_steps, other.plan_steps),
            tool_calls=_smaller_cap(self.tool_calls, other.tool_calls),
            map_items=min(self.map_items, other.map_items),
        )


_CAPS = ("steps", "rounds", "depth", "tokens", "dollars", "seconds", "plan_steps", "tool_calls", "map_items")
N = TypeVar("N", int, float)


def _smaller_cap(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, all of them.

    Parts of `input_tokens`: `cached_tokens` (read from a cache), `cache_write_tokens` (written to one, for minutes),
    `cache_write_1h_tokens` (for an hour), `image_tokens` and `audio_tokens`. Parts of `output_tokens`:
    `reasoning_tokens`, `image_output_tokens` and `audio_output_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    image_tokens: int = 0
    audio_tokens: int = 0
    image_output_tokens: int = 0
    audio_output_tokens: int = 0

    @property
    def cacheable_tokens(self) -> int:
        """Input tokens that were read from a cache or written to one."""
        return self.cached_tokens + self.cache_write_tokens + self.cache_write_1h_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Return the usage of both."""
        return Usage(*map(add, token_counts(self), token_counts(other)))

    def __sub__(self, other: "Usage") -> "Usage":
        """Return what this one has more than the other."""
        return Usage(*[max(0, one - two) for one, two in zip(token_counts(self), token_counts(other), strict=True)])

    @property
    def total(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens


# `dataclasses.astuple` copies each number deeply: a twentieth of what a served request costs.
token_counts: Callable[[Usage], tuple[int, ...]] = attrgetter(*[each.name for each in fields(Usage)])


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens of each kind (None: of the kind that they are part of), and per call.

    What is written to a cache for an hour costs what is written for minutes where no price of its own is known.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    call: float = 0.0
    cache_write: float | None = None
    cache_write_1h: float | None = None
    reasoning: float | None = None
    image: float | None = None
    audio: float | None = None
    image_output: float | None = None
    audio_output: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            dollars = getattr(self, each.name)
            if dollars is not None and not (isfinite(dollars) and dollars >= 0):
                raise ConfigError(f"price {each.name}: expected dollars from 0, not {dollars!r}")

    def of(self, usage: Usage) -> float:
        """Return the dollars for this usage."""
        write = self.cache_write
        parts = (
            (usage.cached_tokens, self.cached, self.input),
            (usage.cache_write_tokens, write, self.input),
            (usage.cache_write_1h_tokens, write if self.cache_write_1h is None else self.cache_write_1h, self.input),
            (usage.image_tokens, self.image, self.input),
            (usage.audio_tokens, self.audio, self.input),
            (usage.reasoning_tokens, self.reasoning, self.output),
            (usage.image_output_tokens, self.image_output, self.output),
            (usage.audio_output_tokens, self.audio_output, self.output),
        )
        dollars = usage.input_tokens * self.input + usage.output_tokens * self.output
        # A token of two kinds (a cached picture) is charged for both differences, never below nothing in sum.
        dollars += sum([tokens * (own - whole) for tokens, own, whole in parts if tokens and own is not None])
        return max(0.0, dollars) / 1e6 + self.call

    @property
    def dearest(self) -> tuple[float, float]:
        """The most that a token of input, and one of output, can cost."""
        into = (self.input, self.cached, self.cache_write, self.cache_write_1h, self.image, self.audio)
        out = (self.output, self.reasoning, self.image_output, self.audio_output)
        return max([each or 0.0 for each in into]), max([each or 0.0 for each in out])


FREE = Price()


@dataclass(frozen=True, slots=True)
class Amount:
    """What a call may use at most, or did use. `dollars` None: nobody can say."""

    tokens: int = 0
    dollars: float | None = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        unknown = self.dollars is None or other.dollars is None
        dollars = None if unknown else (self.dollars or 0.0) + (other.dollars or 0.0)
        return Amount(self.tokens + other.tokens, dollars)


ZERO = Amount()


def upper_bound(
    texts: Sequence[str], max_output_tokens: int, price: Price | None, context_tokens: int | None = None, more: int = 0
) -> Amount:
    """Return what a call with these input texts can use at most, and with `more` tokens of what is no text.

    No byte-level tokenizer makes more tokens than there are UTF-8 bytes, so the bound holds without knowing the
    model's tokenizer; it is about four times what English text uses. No model reads more than its context holds.
    """
    tokens_in = more + TOKENS_PER_TURN * len(texts)
    for text in texts:
        tokens_in += len(text) if text.isascii() else byte_length(text)
    if context_tokens is not None:
        tokens_in = min(tokens_in, context_tokens)
    if price is None:
        return Amount(tokens_in + max_output_tokens, None)
    into, out = price.dearest  # a bound must not hope for a cache
    dollars = (tokens_in * into + max_output_tokens * out) / 1e6 + price.call
    return Amount(tokens_in + max_output_tokens, dollars)


def byte_length(text: str) -> int:
    """Return how many bytes a text has in UTF-8; most are ASCII, which is known at once."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def format_dollars(amount: float | None, digits: int = 3) -> str:
    """Return dollars as people read them, the one way in which they are written: `$?` where nobody can say.

    Cents always, below them so many digits that count; money that is more than nothing never reads as nothing. From 100
    on whole dollars, unless more digits are asked for (where two amounts stand beside each other, as in a refusal).
    """
    if amount is None:
        return "$?"
    if amount == 0 or not isfinite(amount):
        return f"${amount:g}"
    if amount < 0:
        return f"-{format_dollars(-amount, digits)}"
    if amount >= 100 and digits <= 3:
        return f"${amount:,.0f}"
    places = max(2, digits - 1 - floor(log10(amount)))
    if places > _MOST_PLACES + digits - 3:
        return f"${amount:.1e}"
    whole, _, part = f"{amount:,.{places}f}".partition(".")
    return f"${whole}.{part[:2]}{part[2:].rstrip('0')}"


_Z = 1.96  # of a 95 % interval


def wilson(right: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927); (0, 1) where nothing was counted."""
    if not count:
        return 0.0, 1.0
    share, unit = right / count, _Z * _Z / count
    middle = share + unit / 2
    spread = _Z * sqrt(max(0.0, share * (1 - share)) / count + unit / (4 * count))
    return max(0.0, (middle - spread) / (1 + unit)), min(1.0, (middle + spread) / (1 + unit))
