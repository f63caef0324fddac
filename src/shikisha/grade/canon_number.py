r"""The number that an answer gives, written one way: `-1234.5`, `1/3`, `inf`, however it was spelled.

Invariants: a number that is only a part of an expression is none, so neither `2\pi` nor the 2 in it counts; as graders
of word problems have it, the last number counts where none is announced, and `%`, currency and unit stand beside the
number and not in it; `3 or 4` are two answers, hence none. Deliberately absent: numbers in words (five), Roman
numerals, and a comma's meaning by country: `1,234` is a thousand and more, `1,5` is one and a half.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from shikisha.grade.canon_figure import FIGURE, INFINITE, QUICK, Quantity, cleaned, infinity, plain_digits, quantity_of
from shikisha.grade.canon_fold import fold
from shikisha.grade.canon_place import spoken, stated
from shikisha.grade.canon_qualifier import compared, compares, corrected, denied, joined
from shikisha.grade.canon_text import refuses
from shikisha.grade.units import unit as known_unit

_NONE = Quantity("", None)  # something is said to be the answer, and it is not one number


_JUNK = " \t*_`'\"~≈:=#"
_LEAD = re.compile(
    r"(?:(?:approximately|approx\.?|about|around|roughly|nearly"
    r"|exactly|only|therefore|thus|equal to|a total of|is)\b\s*|[-=]>"
    rf"|[{re.escape(_JUNK)}])+",
    re.IGNORECASE,
)
_MINUS = re.compile(r"\A(?:minus|negative)\s+(?=\d)", re.IGNORECASE)
_CLAUSE = re.compile(r"\.(?:\s|$)|;|\n|,?\s(?:because|since|as|where|which|so)\s|\s\(")
_MATH_AFTER = re.compile(
    r"\s*(?:π|√|\\[A-Za-z{]|[\^!·×÷]|\*(?![*\s.]|$)|\*\s[\d\\(]|\.\d|[+/]\s*[\w\\(]|-\s*(?:\d*[a-z]\b|\\|\()|\((?:[\d\\]|[a-z]\b)|[:][\d]|[)}\]]\s*[\^{])"
    r"|[a-zA-Z](?![a-zA-Z°])"
)
_MATH_BEFORE = re.compile(
    r"(?:[√^_{±:/÷·×]|\\[A-Za-z]+\s?\{?|[\w)}]\s?[+*]|[\dA-Za-z)}] -|(?:\b[a-z]|[)}])-|\b[a-z]\(|-\("
    r"|\d[-/]\d{1,2}[-/])\s?[({]?\s?$"
)
_RAISED = re.compile(r"[\^_]\{?$")
_EQUALS = re.compile(r"(?<![<>!≠/])[=≈]+")
_DIGIT = re.compile(r"\d")
_UNKNOWN = re.compile(r"(?:^|[,;]|\b(?:and|or))\s*\$?([A-Za-z](?:_\w)?)\s*=")
_INSTEAD = re.compile(r"\s*[;,]?\s*[(\[]?\s*(?:(?:or|maybe|perhaps|possibly|also)\s+){0,3}\$?(?=[-\d.])")
_ENDS = re.compile(r"\s?[\w%°$]{0,12}\s*[)\].;!?$*]*\s*(?:$|\n|or\b)")
_ROUNDED = Fraction(1, 20)  # "1/3 = 0.33", "1.96 (about 2)"
_EITHER = re.compile(r"\s*(?:[A-Za-z%°]{1,12}\s+)?,?\s?(?:or|または|或|oder)\s+(?:[a-z]\s*=\s*|\$)?", re.IGNORECASE)
_SEVERAL = re.compile(r"\s|\s?(?:,|,?\s?and|to|through|thru|until|till|-|,?\s?&)\s?(?:[a-z]\s?=\s?|\$)?")
_PAIR = re.compile(r"\\?[(\[{].*[,;].*[)\]}]")
_UNIT_WORDS = re.compile(
    r"\s?-?([A-Za-z°µμΩ¢$€£¥₹Å]+(?:(?:\^?-?\d)?(?:\s?[/·*]\s?|\s)[A-Za-z°µμΩ$]+){0,3}(?:\^?-?\d)?)"
)
_MORE_THAN_NUMBERS = re.compile(r"[^\d\s.,;|&+$%-]")
_JOINING = re.compile(r"\b(?:and|or)\b")
_NO_AT_LAST = re.compile(r"\n\W*no\W*$", re.IGNORECASE)
_LISTED = re.compile(r"\s?[,;]\s?(?:(?:and|or)\s)?")
_FEW = 2  # numbers with a comma between ("in 2020, 42") may be of two things; more are a list
_WINDOW, _BEYOND, _SHORT = 300, 80, 400


def number(answer: str) -> str | None:
    """Return the canonical text of the number that an answer gives, or None."""
    if QUICK.fullmatch(answer):
        return plain_digits(answer)
    found = quantity(answer)
    return None if found is None else found.text


def quantity(answer: str) -> Quantity | None:
    """Return the number that an answer gives, with its unit, or None when it gives none, or two."""
    if QUICK.fullmatch(answer):
        return Quantity(plain_digits(answer), Fraction(answer if "." in answer else int(answer)))
    text = spoken(fold(answer))
    for place in stated(text):
        found = _read(place.text, announced=True)
        if found is None and place.whole:
            return None  # "infinitely many" in a box: whatever number stands elsewhere is not the answer
        if found is not None:
            return found if found.text else None
    if len(text) <= _SHORT:
        if refuses(text) or _enumerates(text) or _NO_AT_LAST.search(text):
            return None
        if "\n" not in text:
            found = _read(text, announced=False)
            return found if found is not None and found.text else None
    return _last(text)


def _read(said: str, announced: bool) -> Quantity | None:
    """Read what is said to be the answer: None when there is no number in it, _NONE when it is not one number."""
    text = cleaned(said[:_SHORT])
    lead = _LEAD.match(text)
    text = _MINUS.sub("-", text[lead.end() :] if lead else text)
    infinite = INFINITE.fullmatch(text.strip(" .$"))
    if infinite:
        return infinity(infinite)
    if _PAIR.fullmatch(text.strip(" .")) and not FIGURE.fullmatch(text.strip(" .()[]{}\\")):
        return _NONE
    clause = _first_clause(text)
    tokens = [token for token in FIGURE.finditer(clause) if not _RAISED.search(clause, 0, token.start())]
    if not tokens:
        return None
    if _two_answers(clause, tokens, announced) or _another_follows(tokens, text[len(clause) :]):
        return _NONE
    tokens = [token for token in tokens if not denied(text[: token.start()], text[token.end() :])]
    if not tokens or (announced and corrected(text[tokens[0].end() :])):
        return _NONE
    first = tokens[0].start() <= len(clause) - len(clause.lstrip(" ([")) + 1
    meant = tokens[0] if first and announced else tokens[-1]
    if _bounds(text, meant):
        return _NONE
    return next(_sides(clause), _NONE) if _EQUALS.search(clause) else _in_context(clause, meant)


def _first_clause(text: str) -> str:
    for end in _CLAUSE.finditer(text):
        if any(char.isdigit() for char in text[: end.start()]):
            return text[: end.start()]
    return text


def _two_answers(clause: str, tokens: list[re.Match[str]], announced: bool) -> bool:
    for one, other in pairwise(tokens):
        between = clause[one.end() : other.start()]
        either = _EITHER.fullmatch(between) or joined(between) or (announced and _SEVERAL.fullmatch(between))
        if either and quantity_of(one).text != quantity_of(other).text:
            return True
    return len(tokens) > _FEW and all(
        _LISTED.fullmatch(clause[one.end() : other.start()]) for one, other in pairwise(tokens[-_FEW - 1 :])
    )


def _bounds(text: str, token: re.Match[str]) -> bool:
    """Whether the words around a number make it a bound, or a part of another number."""
    return compared(text[: token.start()]) or compares(text[token.end() :])


def _another_follows(tokens: list[re.Match[str]], rest: str) -> bool:
    """Whether a clause's last number is followed by another in its place: "42 (43)", "42; 43", "42 (or 43)"."""
    follows = _INSTEAD.match(rest)
    one = quantity_of(tokens[-1])
    other = quantity_of(again) if follows and (again := FIGURE.match(rest, follows.end())) else None
    if follows is None or other is None or not _ENDS.match(rest, again.end() if again else 0):
        return False
    return not _alike(one, other)


def _alike(one: Quantity, other: Quantity) -> bool:
    """Whether two numbers may be the same one, rounded or in another unit."""
    if one.value is None or other.value is None or one.unit != other.unit:
        return one.text == other.text or one.unit != other.unit
    if one.value.denominator == other.value.denominator == 1:
        return one.value == other.value
    return abs(one.value - other.value) <= _ROUNDED * max(abs(one.value), abs(other.value))


def _sides(clause: str) -> Iterator[Quantity]:
    """Yield what an equation's sides come to, the last side first, where a side is a number and nothing else.

    Nothing where two of them differ ("41 = 42"), or where several unknowns are given ("x = 43, y = 42").
    """
    if len({name[1] for name in _UNKNOWN.finditer(clause)}) > 1:
        return
    found: list[Quantity] = []
    alone: list[Quantity] = []
    for side in reversed(_EQUALS.split(clause)):
        token = FIGURE.search(side)
        if token and not side[: token.start()].strip(" ($"):
            whole = _in_context(side, token)
            if whole.text:
                found.append(whole)
                alone += [] if _DIGIT.search(side, token.end()) else [whole]
    if all(_alike(one, other) for one, other in pairwise(alone)):
        yield from found


def _in_context(text: str, token: re.Match[str]) -> Quantity:
    """Return the number with its unit, unless it is but a part of an expression."""
    before, after = text[max(0, token.start() - 20) : token.start()], text[token.end() : token.end() + 60]
    if _MATH_BEFORE.search(before):
        return _NONE
    label = _unit_after(after, alone=token.end() + 60 >= len(text))
    attached = _MATH_AFTER.match(after)
    if attached and not (attached[0].isalpha() and label):
        return _NONE
    return quantity_of(token, label)


def _unit_after(after: str, alone: bool) -> str:
    """Return the unit that follows a number: the most words that are one, else the words if nothing else follows."""
    words = _UNIT_WORDS.match(after)
    if words is None:
        return ""
    rest = after[words.end() :].strip(" .)]*_`$\"'")
    parts = re.split(r"(?=[\s/·*])", words[1])
    for count in range(len(parts), 0, -1):
        candidate = "".join(parts[:count]).strip()
        last = count == len(parts) and not rest[:1].isalpha()
        if known_unit(candidate) and (last or len(candidate) > 3):
            return candidate
    single = len(words[1]) == 1
    return words[1] if alone and not rest and len(parts) <= 3 and not single else ""


def _enumerates(text: str) -> bool:
    """Whether a text is several numbers and nothing else."""
    if _MORE_THAN_NUMBERS.search(_JOINING.sub(" ", text)):
        return False
    return len({quantity_of(token).text for token in FIGURE.finditer(text)}) > 1


def _last(text: str) -> Quantity | None:
    """Return the last number of a text in which none is announced."""
    last = max(text.rfind(digit) for digit in "0123456789")
    if last < 0:
        return None
    start = max(0, last - _WINDOW)
    window = text[start : last + _BEYOND]
    if start:
        window = window[re.search(r"\s|$", window).end() :]  # type: ignore[union-attr] # $ always matches
    window = cleaned(window)
    tokens = [token for token in FIGURE.finditer(window) if not denied(window[: token.start()], window[token.end() :])]
    if not tokens or _bounds(window, tokens[-1]):
        return None
    found = _in_context(window, tokens[-1])
    return found if found.text else None
