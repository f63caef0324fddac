"""Pools: which of the cast stand ready for a question, in which order, and how each is described.

Invariant: a pool is drawn without a look at the question, so it gives no hint of it. The order is random, the dear
generalist is often absent, and a worker's description is one of its split's wordings. Names are unique in a pool and
say what a worker is: conductors that are to read descriptions must not be shown names (`prompt` never shows them).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shikisha.orchestra.cast import JUDGE, Profile
from shikisha.orchestra.edition import EVERYONE, SMALL, Edition
from shikisha.orchestra.players import Player
from shikisha.orchestra.wording import Split
from shikisha.pool import Member, Pool
from shikisha.worker import Card

Casting: TypeAlias = tuple[tuple[str, str], ...]  # (profile's name, description), in the pool's order


@dataclass(frozen=True, slots=True)
class Auditions:
    """How a pool is drawn: its size, how often the extras stand in it, how often a specialist has one skill only.

    `only_new` takes workers of several skills from those that training never meets (held-out split only).
    """

    sizes: tuple[int, ...] = (4, 5, 6)
    generalist: float = 0.4
    novice: float = 0.5
    judge: float = 0.6
    single: float = 0.65
    only_new: bool = False


def draw_cast(auditions: Auditions, split: Split, dice: random.Random, edition: Edition = SMALL) -> Casting:
    """Draw who stands in the pool and how each is described."""
    size = dice.choice(auditions.sizes)
    shares = ((edition.generalist, auditions.generalist), (edition.novice, auditions.novice), (JUDGE, auditions.judge))
    chosen = [EVERYONE[name] for name, often in shares if dice.random() < often]
    if edition.extras:
        chosen += dice.sample(edition.extras, dice.choices(range(len(edition.extra)), edition.extra)[0])
    dice.shuffle(chosen)
    del chosen[max(size - 2, 0) :]
    skilled = _new(split, edition) if auditions.only_new else edition.skilled(split)
    while len(chosen) < size:
        profile = dice.choice(edition.specialists if dice.random() < auditions.single else skilled)
        if profile not in chosen:
            chosen.append(profile)
    dice.shuffle(chosen)
    return tuple((profile.name, describe(profile, split, dice)) for profile in chosen)


def _new(split: Split, edition: Edition) -> tuple[Profile, ...]:
    if split is not Split.HELDOUT:
        raise ValueError(f"the {split} split has no new two-skilled workers")
    return edition.new


def describe(profile: Profile, split: Split, dice: random.Random) -> str:
    """Describe a worker in one of the split's wordings; two skills in either order."""
    offers = [dice.choice(offer.by_split[split]) for offer in profile.offers]
    dice.shuffle(offers)
    return " and ".join(offers)


def cast_pool(casting: Sequence[tuple[str, str]], luck: int = 0, pace: float = 0.0) -> Pool:
    """Return the pool of these workers."""
    return Pool([_member(name, description, luck, pace) for name, description in casting])


@lru_cache(maxsize=1 << 15)
def _member(name: str, description: str, luck: int, pace: float) -> Member:
    profile = EVERYONE[name]
    card = Card(
        name=name,
        description=description,
        kind="simulated" if profile.is_model else "vote" if profile.vote else "tool",
        price=profile.price,
        max_output_tokens=32 if profile.is_model else 0,
    )
    return Member(card, Player(profile, luck, pace))
