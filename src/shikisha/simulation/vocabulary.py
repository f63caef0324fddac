"""The vocabulary: wordings, names and facts, each assigned to one of three disjoint splits.

One template stands for many wordings and reads all of them back. It has alternatives, `the (tally|count) of {x}`, and
slots: `{x}` and `{y}` for inputs (phrases of their own), `{a}` to `{c}` for numbers and `{d}` for a day. Facts and
gauge readings follow from a place's name alone; names are made of syllables, so no model can have memorized them.

Invariant: no wording and no name is in two splits, and every word of a held-out wording occurs in a training wording of
the same thing. Only the combination is new: a reader who knows the words understands it, one who learned sentences by
heart does not. Deliberately absent: noise, which belongs to the worker that reads.
"""

import itertools
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from functools import cache, cached_property
from itertools import product

from shikisha.simulation.seeded_random import hash_number, shuffle_by_hash
from shikisha.simulation.values import MONTHS

_CHOICE = re.compile(r"\(([^()]*)\)")
_SLOT = re.compile(r"\{(\w)\}")
_SLOT_PATTERNS = {
    **dict.fromkeys("xyz", r"(?P<{}>.+)"),
    **dict.fromkeys("ABCDE", r"(?P<{}>[^.,:;?]+)"),
    **dict.fromkeys("abc", r"(?P<{}>\d+)"),
    "d": rf"(?P<{{}}>\d+ (?:{'|'.join(MONTHS)}) \d+)",
}
# Shares of the wordings that training can spare.
_SPLIT_SHARES = {"dev": 0.15, "heldout": 0.3}


class WordingSplit(StrEnum):
    """Disjoint sets of wordings and names."""

    TRAIN = "train"
    DEV = "dev"
    HELDOUT = "heldout"


@dataclass(frozen=True)
class Paraphrases:
    """Every wording of one thing, by split, and the patterns that read them.

    Both are made when they are used: the modules of the simulation hold hundreds, and listing workers reads few.
    """

    templates: tuple[str, ...]

    @classmethod
    def of(cls, *templates: str) -> "Paraphrases":
        """Return the wordings that these templates stand for."""
        return cls(templates)

    @cached_property
    def by_split(self) -> dict[WordingSplit, tuple[str, ...]]:
        """The wordings of each split."""
        return split_wordings([wording for template in self.templates for wording in expand_template(template)])

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """What reads the wordings back."""
        return tuple(re.compile(template_pattern(template)) for template in self.templates)

    @cached_property
    def all(self) -> tuple[str, ...]:
        """Every wording of every split."""
        return tuple(itertools.chain.from_iterable(self.by_split.values()))

    def matches(self, text: str) -> Iterable[dict[str, str]]:
        """Yield the slots' texts for every pattern that the whole text fits."""
        for pattern in self.patterns:
            if found := pattern.fullmatch(text):
                yield found.groupdict()


def word_set(words: str) -> frozenset[str]:
    """Return the words as a set."""
    return frozenset(words.split())


def expand_template(template: str) -> list[str]:
    """Return every wording that the template's alternatives make."""
    parts = _CHOICE.split(template)  # text and alternatives alternate
    options = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*options)]


def template_pattern(template: str) -> str:
    """Return the regular expression that reads all of the template's wordings."""
    parts = _CHOICE.split(template)
    return "".join(
        _alternatives_pattern(part) if place % 2 else _literal_pattern(part) for place, part in enumerate(parts)
    )


def split_wordings(everything: Sequence[str]) -> dict[WordingSplit, tuple[str, ...]]:
    """Distribute wordings over the splits: training first gets one with every word, then all share the rest."""
    order = shuffle_by_hash(everything, "wordings", *everything)
    train: list[str] = []
    spare: list[str] = []
    known: set[str] = set()
    for wording in order:
        words = set(wording.split())
        (spare if words <= known else train).append(wording)
        known |= words
    dev, heldout = (max(1, round(len(spare) * part)) for part in _SPLIT_SHARES.values())
    if len(spare) < dev + heldout:
        raise ValueError(f"too few wordings to hold some out: {everything[0]!r} and {len(everything) - 1} more")
    rest = [*train, *spare[dev + heldout :]]
    return {
        WordingSplit.TRAIN: tuple(rest),
        WordingSplit.DEV: tuple(spare[:dev]),
        WordingSplit.HELDOUT: tuple(spare[dev : dev + heldout]),
    }


def _alternatives_pattern(part: str) -> str:
    return f"(?:{'|'.join(map(_literal_pattern, part.split('|')))})"


def _literal_pattern(part: str) -> str:
    texts = _SLOT.split(part)
    return "".join(
        _SLOT_PATTERNS[text].format(text) if place % 2 else re.escape(text) for place, text in enumerate(texts)
    )


# No syllable has an e, so that no name can be a word like "date".
_SYLLABLES = tuple("".join(pair) for pair in product("bdfghklmnprstvz", "aiou"))
_PLACES = {WordingSplit.TRAIN: 1000, WordingSplit.DEV: 200, WordingSplit.HELDOUT: 450}
_KEEPERS = {WordingSplit.TRAIN: 800, WordingSplit.DEV: 150, WordingSplit.HELDOUT: 350}
# Twentieths of all words.
_WORD_SHARES = {
    WordingSplit.TRAIN: range(12),
    WordingSplit.DEV: range(12, 15),
    WordingSplit.HELDOUT: range(15, 20),
}
_FIRST_DAY = date(1950, 1, 1)


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """What the table holds about a place."""

    tally: int
    keeper: str
    founded: date


@cache
def split_names() -> tuple[dict[WordingSplit, tuple[str, ...]], dict[WordingSplit, tuple[str, ...]]]:
    """Return the places and the keepers of every split; no name is both, or in two splits."""
    everyone = iter(shuffle_by_hash(["".join(pair) for pair in product(_SYLLABLES, repeat=2)], "names"))
    places = {split: tuple(next(everyone) for _ in range(count)) for split, count in _PLACES.items()}
    keepers = {split: tuple(next(everyone) for _ in range(count)) for split, count in _KEEPERS.items()}
    return places, keepers


@cache
def fact_table() -> dict[str, PlaceFacts]:
    """Return every place's entry; a place's keeper belongs to the same split."""
    places, keepers = split_names()
    return {place: _place_facts(place, keepers[split]) for split in WordingSplit for place in places[split]}


def _place_facts(place: str, keepers: tuple[str, ...]) -> PlaceFacts:
    tally = 20 + hash_number("tally", place) % 970
    keeper = keepers[hash_number("keeper", place) % len(keepers)]
    return PlaceFacts(tally, keeper, _FIRST_DAY + timedelta(days=hash_number("founded", place) % 25_000))


def true_reading(quantity: str, name: str) -> int:
    """Return what the gauge of this name shows when it is read without error."""
    return 100 + hash_number("gauge", quantity, name) % 890


def draw_name(rng: random.Random, split: WordingSplit) -> str:
    """Draw a place of the split."""
    return rng.choice(split_names()[0][split])


def draw_number(rng: random.Random) -> int:
    """Draw a number as questions have them."""
    return rng.randint(12, 980)


def draw_day(rng: random.Random) -> date:
    """Draw a day as questions have them."""
    return _FIRST_DAY + timedelta(days=rng.randrange(36_000))


def draw_word(rng: random.Random, split: WordingSplit) -> str:
    """Draw a word of three syllables that belongs to the split."""
    while True:
        word = "".join(rng.choice(_SYLLABLES) for _ in range(3))
        if hash_number("word", word) % 20 in _WORD_SHARES[split]:
            return word
