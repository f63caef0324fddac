"""Paraphrases: one template stands for many wordings, is dealt to disjoint splits, and reads all of them back.

A template has alternatives, `the (tally|count) of {x}`, and slots: `{x}` and `{y}` for inputs (a phrase of their own),
`{a}` to `{c}` for numbers and `{d}` for a day. Invariant: no wording is in two splits, and every word of a held-out
wording occurs in a training wording of the same thing: what is new is the combination, so it can be understood by a
reader who never saw it but not by one who learned sentences by heart.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from shikisha.orchestra.chance import shuffled
from shikisha.orchestra.values import MONTHS

_CHOICE = re.compile(r"\(([^()]*)\)")
_SLOT = re.compile(r"\{(\w)\}")
_SHAPES = {
    **dict.fromkeys("xyz", r"(?P<{}>.+)"),
    **dict.fromkeys("ABCDE", r"(?P<{}>[^.,:;?]+)"),
    **dict.fromkeys("abc", r"(?P<{}>\d+)"),
    "d": rf"(?P<{{}}>\d+ (?:{'|'.join(MONTHS)}) \d+)",
}
_SHARES = {"dev": 0.15, "heldout": 0.3}  # of the wordings that training can spare


class Split(StrEnum):
    """Disjoint worlds of words and names."""

    TRAIN = "train"
    DEV = "dev"
    HELDOUT = "heldout"


@dataclass(frozen=True)
class Wordings:
    """Every wording of one thing, by split, and the patterns that read them."""

    by_split: dict[Split, tuple[str, ...]]
    patterns: tuple[re.Pattern[str], ...]

    @cached_property
    def all(self) -> tuple[str, ...]:
        """Every wording of every split."""
        return tuple(itertools.chain.from_iterable(self.by_split.values()))

    def matches(self, text: str) -> Iterable[dict[str, str]]:
        """Yield the slots' texts for every pattern that the whole text fits."""
        for pattern in self.patterns:
            if found := pattern.fullmatch(text):
                yield found.groupdict()


def bag(words: str) -> frozenset[str]:
    """Return the words as a set."""
    return frozenset(words.split())


def wordings(*templates: str) -> Wordings:
    """Expand the templates, deal the wordings to the splits, and compile what reads them."""
    everything = [wording for template in templates for wording in expand(template)]
    return Wordings(deal(everything), tuple(re.compile(pattern(template)) for template in templates))


def expand(template: str) -> list[str]:
    """Return every wording that the template's alternatives make."""
    parts = _CHOICE.split(template)  # text and alternatives take turns
    options = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*options)]


def pattern(template: str) -> str:
    """Return the regular expression that reads all of the template's wordings."""
    parts = _CHOICE.split(template)
    return "".join(_alternatives(part) if place % 2 else _literal(part) for place, part in enumerate(parts))


def deal(everything: Sequence[str]) -> dict[Split, tuple[str, ...]]:
    """Deal wordings to the splits: training gets one with every word first, then shares of the rest."""
    order = shuffled(everything, "wordings", *everything)
    train: list[str] = []
    spare: list[str] = []
    known: set[str] = set()
    for wording in order:
        words = set(wording.split())
        (spare if words <= known else train).append(wording)
        known |= words
    dev, heldout = (max(1, round(len(spare) * part)) for part in _SHARES.values())
    if len(spare) < dev + heldout:
        raise ValueError(f"too few wordings to hold some out: {everything[0]!r} and {len(everything) - 1} more")
    rest = [*train, *spare[dev + heldout :]]
    return {Split.TRAIN: tuple(rest), Split.DEV: tuple(spare[:dev]), Split.HELDOUT: tuple(spare[dev : dev + heldout])}


def _alternatives(part: str) -> str:
    return f"(?:{'|'.join(map(_literal, part.split('|')))})"


def _literal(part: str) -> str:
    texts = _SLOT.split(part)
    return "".join(_SHAPES[text].format(text) if place % 2 else re.escape(text) for place, text in enumerate(texts))
