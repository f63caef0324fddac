r"""The mathematical expression that an answer gives, written one way as far as spelling alone can tell.

`\dfrac12`, `0.5` and `1/2` are the same here, and so are sets in any order; `(x+1)^2` and `x^2+2x+1` are not: whether
two expressions are equal is for `math` to find out. Invariants: order counts in pairs and intervals, and so do their
brackets; bounded work; nothing is evaluated. Deliberately absent: algebra.
"""

import re
from collections.abc import Iterator

from shikisha.grade.canon_figure import QUICK, Quantity, lone, plain_digits, undelimited
from shikisha.grade.canon_fold import fold, plain_math
from shikisha.grade.canon_number import number
from shikisha.grade.canon_place import Stated, spoken, stated
from shikisha.grade.canon_qualifier import compared, compares, corrected, denied, withdrawn
from shikisha.grade.canon_text import refuses
from shikisha.grade.units import unit

_LONGEST = 2_000
_SHORT = 200
_TAIL = 2_000
_DEEPEST = 4
_INLINE = re.compile(
    r"\$\$(.{1,1000}?)\$\$|(?<![\\$])\$([^$\n]{1,500})(?<!\\)\$|\\\[(.{1,1000}?)\\\]|\\\((.{1,500}?)\\\)", re.DOTALL
)
_JOINS = re.compile(r"\s?[,;/]?\s?(?:\b(?:and|or)\b\s?(?:(?:also|maybe|perhaps|possibly)\s)?)?(?=[$\\])")
_LEADING_WORDS = 4
_CLAUSE = re.compile(r"\.(?:\s|$)|;|\n|,?\s(?:because|since|where|which|so)\s")
_ASSIGNED = re.compile(r"(?:[A-Za-z](?:_\{?\w\}?)?|[a-zA-Z]\([a-z]\))\s*(?:=|∈)\s*(?=[^=])")
_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]+")
_BASE = re.compile(r"(?<![A-Za-z_}\d])\d+\s*_\s*\{?\d")
_EQUAL = re.compile(r"(?<![<>!:\\])=+")
_LETTER = re.compile(r"(?<![A-Za-z\\])[a-zA-Z](?![a-zA-Z])")
_NAME = re.compile(r"[A-Za-z](?:_\{?\w\}?)?|[a-zA-Z]\([a-z]\)")
_BOUND = re.compile(r"or\b|and\b|maybe\b|perhaps\b", re.IGNORECASE)
_PROSE = re.compile(r"(?:[A-Za-z]{2,}[ ,]+){5}")
_JOINED = re.compile(r"\s(?:and|or)\s|,")
_APART = re.compile(r"\s+(?=\^)|\s+(?=\s)")
_OPEN, _CLOSE = "([{", ")]}"
_ROOT = (re.compile(r"√(?:(\d+|[a-zA-Zπ])|[({]([^(){}]*)[)}])|\bsqrt\(([^()]*)\)|\\sqrt(\d)"), r"\\sqrt{\1\2\3\4}")
_PI = (re.compile(r"(?<![A-Za-z\\])pi\b"), "π")
_COMMANDS = str.maketrans(
    {
        "×": r"\times ",
        "·": r"\cdot ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "±": r"\pm ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "°": r"^\circ ",
        "≈": "=",
        "$": "",
        "\n": " ",
    }
)
_SAME = [
    (re.compile(r"\s+|·|(?<=[\w)}])[*×](?=[\w(\\])"), ""),
    (re.compile(r"\\frac(\d)(\d)"), r"\\frac{\1}{\2}"),
    _ROOT,
    (re.compile(r"\\frac\{([^{}]*)\}\{([^{}]*)\}"), r"(\1)/(\2)"),
    _PI,
    (re.compile(r"\(([\w.π]+)\)/"), r"\1/"),
    (re.compile(r"/\((\w+)\)"), r"/\1"),
    (re.compile(r"([\^_])\{([^{}])\}"), r"\1\2"),
]


def math(answer: str) -> str | None:
    """Return the canonical text of the expression that an answer gives, or None when it gives none."""
    if QUICK.fullmatch(answer):
        return plain_digits(answer)
    found = expression(answer)
    return None if found is None else canonical_expression(found)


def expression(answer: str) -> str | None:
    """Return the expression that an answer gives, as written but for delimiters, or None."""
    text = spoken(fold(answer))
    for place in stated(text):
        return _tidied(place.text if place.whole else _in_prose(place)) or None
    if not text or refuses(text):
        return None
    if len(text) <= _SHORT and "\n" not in text and not _PROSE.search(text):
        return _tidied(text)
    inline = _last_inline(text[-_TAIL:])
    return _tidied(inline) if inline else number(text)


def canonical_expression(latex: str) -> str | None:
    """Return an expression's canonical text; None for an empty one."""
    return _canonical(_tidied(latex)[:_LONGEST], _DEEPEST) or None


def latex(expression: str) -> str:
    """Return an expression with LaTeX's commands for the characters that `expression` writes plainly."""
    text = _ROOT[0].sub(_ROOT[1], _PI[0].sub(_PI[1], expression))
    return text.translate(_COMMANDS)


def _tidied(latex: str) -> str:
    return _APART.sub("", plain_math(undelimited(latex))).strip().rstrip(".,;:").strip(" *`")


def _in_prose(place: Stated) -> str:
    """Return the mathematics at the beginning of announced prose: between delimiters, else up to the clause's end.

    Several that "or", "and" or a comma joins are one answer, a list; what the words around it deny or bound is none.
    """
    inline = _INLINE.search(place.text)
    if inline and len(place.text[: inline.start()].split()) <= _LEADING_WORDS:
        return _unqualified(place.text, inline)
    for end in _CLAUSE.finditer(place.text):
        if place.text[: end.start()].strip():
            return place.text[: end.start()]
    return place.text


def _last_inline(text: str) -> str | None:
    found = list(_INLINE.finditer(text))
    return _unqualified(text, found[-1]) if found else None


def _unqualified(text: str, inline: re.Match[str]) -> str:
    """Return what is between delimiters, with what is joined to it; empty where the words around it change it."""
    before, after = text[: inline.start()], text[inline.end() :]
    if denied(before, after) or compared(before) or corrected(after):
        return ""
    said = [_content(inline)]
    at = inline.end()
    while (join := _JOINS.match(text, at)) and (another := _INLINE.match(text, join.end())):
        said.append(_content(another))
        at = another.end()
    return ", ".join(dict.fromkeys(said))


def _content(inline: re.Match[str]) -> str:
    return str(next(filter(None, inline.groups())))


def _canonical(math: str, depth: int) -> str:
    math = math.strip()
    assigned = _ASSIGNED.match(math)
    if assigned and "=" not in math[assigned.end() :]:
        math = math[assigned.end() :]
    number_alone = _figure(math)
    if number_alone is not None:
        return number_alone.text
    if (_WORDS.fullmatch(math) and " " in math) or (math.isalpha() and len(math) > 2):
        joined = _JOINED.split(math)
        return (
            "{" + ",".join(sorted(word.strip().casefold() for word in joined)) + "}"
            if len(joined) > 1
            else math.casefold()
        )
    return _structured(math, depth) if depth else _spelled(math)


def figure(latex: str) -> Quantity | None:
    """Return the number that an expression is, with its unit if it has one, or None when it is not one number."""
    math = _tidied(latex)[:_LONGEST]
    assigned = _ASSIGNED.match(math)
    return _figure(math[assigned.end() :] if assigned else math)


def brackets(latex: str) -> str:
    """Return "{" for a set in braces, "(" for a pair or an interval, and nothing for what has no brackets around it."""
    math = _tidied(latex)[:_LONGEST]
    assigned = _ASSIGNED.match(math)
    math = math[assigned.end() :].strip() if assigned else math
    if math.startswith("\\{") and math.endswith("\\}"):
        return "{"
    if (
        math[:1] in _OPEN
        and math[:1]
        and math[-1:] in _CLOSE
        and _enclosed(math)
        and len(list(_split(math[1:-1], ","))) > 1
    ):
        return "{" if math[0] == "{" else "("
    return ""


def has_base(latex: str) -> bool:
    """Whether a number's base is written below it: `1010_2`."""
    return _BASE.search(_tidied(latex)[:_LONGEST]) is not None


def contradicts(latex: str) -> bool:
    """Whether an answer says that two different numbers are equal, or that a number is what holds an unknown."""
    sides = _sides(latex)
    numbers = [_figure(side) for side in sides]
    known = {number.text for number in numbers if number is not None}
    return len(sides) > 1 and (
        len(known) > 1 or (numbers[-1] is None and numbers[0] is not None and _LETTER.search(sides[-1]) is not None)
    )


def equated(latex: str) -> Iterator[tuple[str, str]]:
    """Yield the sides of an answer's equations that must be equal: those in no unknown that the last side lacks."""
    sides = _sides(latex)
    for side in sides[:-1]:
        unknowns = set(_LETTER.findall(side))
        reckoned = not unknowns and _figure(side) is None and sides[-1].lstrip("-").isdigit()
        if reckoned or (
            unknowns
            and unknowns <= set(_LETTER.findall(sides[-1]))
            and (_NAME.fullmatch(side) is None or len(sides) > 2)
        ):
            yield side, sides[-1]


def _sides(latex: str) -> list[str]:
    """Return what an answer says to be equal, the sides of all its equations."""
    math = _tidied(latex)[:_LONGEST]
    return [side.strip() for side in _EQUAL.split(math)] if "," not in math else [math]


def _figure(math: str) -> Quantity | None:
    found = lone(math)
    if found is not None:
        return found if found.text else None
    digits, _, words = math.partition(" ")
    words = words.strip()
    if withdrawn(f" {words}") or compares(words) or _BOUND.match(words):
        return None
    known = unit(words) is not None or (_WORDS.fullmatch(words) and not _JOINED.search(f" {words} "))
    if not (words and digits[-1:].isdigit() and known):
        return None
    found = lone(digits)
    return Quantity(found.text, found.value, words) if found and found.text else None


def _structured(math: str, depth: int) -> str:
    """Return sets, unions, pairs, intervals and lists with canonical members."""
    unions = list(_split(math, "∪"))
    if len(unions) > 1:
        return "∪".join(sorted(_canonical(part, depth - 1) for part in unions))
    if math.startswith("\\{") and math.endswith("\\}"):
        return _set(math[2:-2], depth)
    if math[:1] == "{" and math[-1:] == "}" and _enclosed(math):
        return _set(math[1:-1], depth)
    if math[:1] in ("(", "[") and math[-1:] in (")", "]") and _enclosed(math):
        members = [_canonical(part, depth - 1) for part in _split(math[1:-1], ",")]
        return f"{math[0]}{','.join(members)}{math[-1]}" if len(members) > 1 else _canonical(math[1:-1], depth - 1)
    listed = list(_split(re.sub(r"\s(?:and|or)\s", ",", math), ","))
    return _set(",".join(listed), depth) if len(listed) > 1 else _spelled(math)


def _set(members: str, depth: int) -> str:
    found = {_canonical(part, depth - 1) for part in _split(members, ",") if part.strip()}
    return "{" + ",".join(sorted(found)) + "}"


def _enclosed(math: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    level = 0
    for place, char in enumerate(math):
        level += (char in _OPEN) - (char in _CLOSE)
        if level == 0:
            return place == len(math) - 1
    return False


def _split(math: str, at: str) -> Iterator[str]:
    level, start = 0, 0
    for place, char in enumerate(math):
        level += (char in _OPEN) - (char in _CLOSE)
        if char == at and level == 0:
            yield math[start:place]
            start = place + 1
    yield math[start:]


def _spelled(math: str) -> str:
    for pattern, same in _SAME:
        math = pattern.sub(same, math)
    return math
