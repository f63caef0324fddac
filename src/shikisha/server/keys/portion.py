"""Part of a budget: money, tokens and requests, in whole numbers.

Deliberately absent: caps (`key`), and what of a portion is used, held or granted (`accounts`).
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from shikisha.budget import Amount
from shikisha.server.keys.key import MOST, nanos


class Kind(StrEnum):
    """What is counted."""

    DOLLARS = "dollars"  # in nanodollars
    TOKENS = "tokens"
    REQUESTS = "requests"


class Portion(NamedTuple):
    """So much of each; `dollars` are nanodollars."""

    dollars: int = 0
    tokens: int = 0
    requests: int = 0

    def plus(self, other: "Portion") -> "Portion":
        """Add, each on its own."""
        return Portion(self.dollars + other.dollars, self.tokens + other.tokens, self.requests + other.requests)

    def minus(self, other: "Portion") -> "Portion":
        """Take away, each on its own."""
        return Portion(self.dollars - other.dollars, self.tokens - other.tokens, self.requests - other.requests)

    def positive(self) -> "Portion":
        """Return it without what is less than nothing."""
        return Portion(max(0, self.dollars), max(0, self.tokens), max(0, self.requests))

    def kinds(self) -> Iterator[tuple[Kind, int]]:
        """Yield how much there is of each kind."""
        yield from zip(Kind, self, strict=True)

    @classmethod
    def of(cls, amount: Amount) -> "Portion":
        """Return an amount in whole numbers, money rounded up; money that nobody knows of counts as none."""
        return cls(nanos(amount.dollars or 0.0), min(amount.tokens, MOST))


NOTHING = Portion()
REQUEST = Portion(requests=1)
