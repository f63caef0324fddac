"""What a person's rules can read of the large edition's questions: kinds of work in order, and which feeds which.

Kinds are told by key words as in `reading`; new here is where a phrase opens, since key words of the newer families
often stand at a phrase's end ("the value of ... in octal numerals"), and which clauses are arms of a join ("as one",
"two means"). Invariant: word lists and clauses only, never the world's grammar. It errs where the words mislead.
"""

import re

from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.reading import joins, kinds
from shikisha.orchestra.wording import bag
from shikisha.plan import MAX_STEPS

_WORD = re.compile(r"[a-z]+")
_CLAUSE = re.compile(r"[.;:?,]")
_LINKS = re.compile(r"\b(?:after that|from that|at last|to begin|first|then|next|now|finally)\b")
_ARMS = (re.compile(r"\bas one\b|\bone (?:is|means)\b"), re.compile(r"\bas two\b|\btwo (?:is|means)\b"))
_SAYS_WHAT = re.compile(r"\b(?:it|that|this) (?:is|means)\b")
_FEWEST = 2
_OPENS = {  # words that a phrase of this kind begins with, where its key word may stand at the end
    "unit": bag("length span volume content money sterling feet pints shillings"),
    "numeral": bag("value form roman octal hexadecimal"),
    "week": bag("weekday name rank place"),
    "cipher": bag("caesar atbash cipher code form shape"),
    "digits": bag("digits heap pile stack squares figure"),
    "date": bag("date day days number count"),
    "text": bag("letter alphabet score points worth mirror reverse signs spelling"),
}
Uses = list[tuple[int, ...]]


def parts(question: str) -> tuple[tuple[str, ...], Uses]:
    """Return the kinds of work in an order of work, and for each the places of those that feed it."""
    clauses = [clause for clause in _CLAUSE.split(_LINKS.sub(" ", question.lower())) if clause.strip()]
    arms = [next((clause for clause in clauses if arm.search(clause)), None) for arm in _ARMS]
    if arms[0] is not None and arms[1] is not None:
        return _joined(arms[0], arms[1], [clause for clause in clauses if clause not in arms])
    found = kinds(question)
    if len(found) > _FEWEST and joins(question) and len(clauses) == 1:
        return found, [*[()] * (len(found) - 1), tuple(range(len(found) - 1))]
    explained = [clause for clause in clauses if _SAYS_WHAT.search(clause)]
    order = [*explained, *(clause for clause in clauses if clause not in explained)]
    chain = tuple(dict.fromkeys(name for clause in order for name in _nested(clause)))[:MAX_STEPS]
    return chain, _row(len(chain))


def _joined(one: str, two: str, others: list[str]) -> tuple[tuple[str, ...], Uses]:
    """Return two arms and what brings them together."""
    last = next((name for clause in others for name in reversed(_nested(clause))), None)
    left = [name for name in _nested(one) if name != last]
    right = [name for name in _nested(two) if name != last and name not in left]
    if last is None or not left or not right or len(left) + len(right) >= MAX_STEPS:
        chain = tuple(dict.fromkeys([*left, *right, *([last] if last else [])]))[:MAX_STEPS]
        return chain, _row(len(chain))
    uses = [*_row(len(left)), *((len(left) + at - 1,) if at else () for at in range(len(right)))]
    return (*left, *right, last), [*uses, (len(left) - 1, len(left) + len(right) - 1)]


def _row(count: int) -> Uses:
    return [(at - 1,) if at else () for at in range(count)]


def _nested(clause: str) -> list[str]:
    """Return the kinds that a clause speaks of, the innermost first."""
    words = _WORD.findall(clause)
    found = [name for name, family in FAMILIES.items() if not family.cues.isdisjoint(words)]
    places = {
        name: min(at for at, word in enumerate(words) if word in FAMILIES[name].cues | _OPENS.get(name, frozenset()))
        for name in found
    }
    return sorted(found, key=lambda name: (FAMILIES[name].noisy or name == "fact", places[name]), reverse=True)
