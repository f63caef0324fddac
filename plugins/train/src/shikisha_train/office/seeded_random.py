"""Reproducible random numbers that depend on what they are drawn for, and on nothing else.

Invariant: there is no state. Whether a worker slips, what a gauge shows and which words belong to a split are hashes of
their own circumstances. The same run has the same luck wherever, in whatever order and however often it is performed.
"""

import random
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

_SCALE = 1.0 / (1 << 64)


def hash_number(*circumstances: object) -> int:
    """Return a 64-bit hash of these circumstances."""
    text = "\x1f".join(map(str, circumstances))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def hash_fraction(*circumstances: object) -> float:
    """Return a number in [0, 1), uniformly distributed over circumstances."""
    return hash_number(*circumstances) * _SCALE


def seeded_generator(*circumstances: object) -> random.Random:
    """Return a generator of many draws, seeded by the circumstances."""
    return random.Random(hash_number(*circumstances))  # noqa: S311 - a simulation, no secret
