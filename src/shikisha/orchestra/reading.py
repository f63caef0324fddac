"""What a person's rules can read: kinds of work from a question's words, and what a worker offers from its description.

Invariant: word lists only (the families' `cues`); the world's own grammar is not used, so this is what a careful person
would write who knows the families and their usual words. It errs where the words mislead, and that is its point.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.wording import bag

_WORD = re.compile(r"[a-z]+")
_STRONG = bag("strong capable dear costly right")
_WEAK = bag("weak small cheap thrifty wrong")
_JUDGES = bag("majority common vote")
_BRINGS_TOGETHER = re.compile(
    r"\b(?:sum|total|between|apart|differ|glued|followed|together|added up|woven|braided|weave|braid)\b"
)
_CLAUSE = re.compile(r"[.;:?,]")
_SAYS_WHAT = re.compile(r"\b(?:it|that|this|one|two) (?:is|means)\b")
_FIRST = ("fact", "gauge", "sensor")  # nothing but a fact can come before a reading, and nothing before a fact


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker's description says of it."""

    families: frozenset[str]
    is_model: bool = False
    strong: bool = False
    weak: bool = False
    judges: bool = False


@lru_cache(maxsize=1024)
def offer(description: str) -> Offer:
    """Read a worker's description."""
    words = frozenset(_WORD.findall(description.lower()))
    if "model" in words:
        return Offer(frozenset(), is_model=True, strong=bool(words & _STRONG), weak=bool(words & _WEAK))
    if words & _JUDGES:
        return Offer(frozenset(), judges=True)
    return Offer(frozenset(name for name, family in FAMILIES.items() if words & family.cues))


def kinds(question: str) -> tuple[str, ...]:
    """Return the kinds of work that the words speak of, in the order in which they must probably be done."""
    text = question.lower()
    clauses = [clause for clause in _CLAUSE.split(text) if clause.strip()]
    explained = [clause for clause in clauses if _SAYS_WHAT.search(clause)]
    in_order = explained + [clause for clause in clauses if clause not in explained]
    found = [name for clause in in_order for name in reversed(_mentioned(clause))]
    order = list(dict.fromkeys(found))
    if len(order) > 2 and (last := _joining(text, order)):
        order.remove(last)
        return (*order, last)
    return tuple(sorted(order, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)))


def joins(question: str) -> bool:
    """Whether the words speak of two things that are brought together."""
    return _BRINGS_TOGETHER.search(question.lower()) is not None


def _joining(text: str, order: list[str]) -> str | None:
    found = _BRINGS_TOGETHER.search(text)
    if found is None:
        return None
    return next((name for name in order if set(_WORD.findall(found[0])) & FAMILIES[name].cues), None)


def _mentioned(clause: str) -> list[str]:
    places: dict[str, int] = {}
    for place, word in enumerate(_WORD.findall(clause)):
        for name, family in FAMILIES.items():
            if word in family.cues:
                places.setdefault(name, place)
    return sorted(places, key=lambda name: places[name])
