r"""Canonical forms: what an answer says, written in one way, without knowing the right answer.

Two answers with the same canonical form agree; conductors, votes and evaluations use it to see whether workers agree.
Invariants: pure, at most linear in the answer's length, and nothing is evaluated. None means that no answer of this
form could be extracted, or that two were given.

Choices: a letter counts where it is stated as the answer, stands alone, or labels the answer, and never as the article
"a" or the pronoun "I". An answer with two letters has chosen none: taking the first would reward hedging. A lowercase
letter in prose counts only where a sentence or label ends with it.

Expressions: `\dfrac12`, `0.5` and `1/2` are the same, and so are sets in any order; order and brackets matter in pairs
and intervals. Deliberately absent: algebra (`math` decides whether `(x+1)^2` equals `x^2+2x+1`), right and wrong (the
graders), numbered options, and matching an option's text (`choice`, which knows the options).
"""

import re
from collections.abc import Iterator
from enum import StrEnum

from shikisha.evals.graders.answer_extraction import (
    StatedAnswer,
    canonical_text,
    fold_characters,
    is_compared_after,
    is_compared_before,
    is_corrected,
    is_denied,
    is_refusal,
    is_retracted,
    plain_latex,
    stated_answers,
    strip_reasoning,
)
from shikisha.evals.graders.choice_mentions import committed_choice, is_contested
from shikisha.evals.graders.quantities import (
    PLAIN_NUMBER,
    Quantity,
    extract_number,
    lone_quantity,
    parse_unit,
    strip_idle_zeros,
    strip_math_delimiters,
)


class AnswerForm(StrEnum):
    """What two answers must have in common to be the same."""

    CHOICE = "choice"  # the chosen letter
    NUMBER = "number"  # the number, whatever its unit
    # The whole text, except for case and space.
    TEXT = "text"
    MATH = "math"  # an expression, except for spelling


def canonicalize(answer: str, form: AnswerForm, options: int | None = None) -> str | None:
    """Return an answer's canonical form, or None when nothing or more than one thing can be extracted.

    `options` is how many a CHOICE has (None: any letter).
    """
    match form:
        case AnswerForm.CHOICE:
            return extract_choice(answer, options)
        case AnswerForm.NUMBER:
            return extract_number(answer)
        case AnswerForm.TEXT:
            return canonical_text(answer)
        case AnswerForm.MATH:
            return canonical_math(answer)


# More than one letter, or no valid option: nothing else in the text can repair that.
_AMBIGUOUS = ""

_BARE_LETTER = re.compile(r"[\W_]*([A-Za-z])[\W_]*")
_NEGATING_MARKS = (
    re.compile(r"[¬!≠~❌✗✘]=?[\s*_`(]*$|(?:\bnot|n't|\b(?:anything|everything|all) but)\W*$", re.IGNORECASE),
    re.compile(r"[\s*_`)]*(?:[#✗✘❌≠]|\++(?!\s*\w))"),
)
# An answer this short is nothing but an answer.
_SHORT_CHOICE = 100
_LONGEST_LINE = 400
_BARE_LETTER_LINE = 40


def extract_choice(answer: str, options: int | None = None) -> str | None:
    """Return the letter (uppercase) that an answer chooses; None for no letter, two, or an invalid one."""
    if len(answer) == 1 and answer.isascii():
        return _valid_option(answer.upper(), options) or None if answer.isalpha() else None
    found = _read_choice(strip_reasoning(fold_characters(answer)), options)
    return found or None


def _valid_option(letter: str, options: int | None) -> str:
    return letter if letter and (options is None or ord(letter) - 64 <= options) else _AMBIGUOUS


def _read_choice(text: str, options: int | None) -> str | None:
    bare = _bare_letter(plain_latex(text) if len(text) <= _BARE_LETTER_LINE else "")
    if bare:
        return _valid_option(bare, options)
    for place in stated_answers(text):
        if not place.text:
            return _AMBIGUOUS
        found = _choice_in_statement(place, options)
        if found is not None:
            return found
    if len(text) <= _SHORT_CHOICE and is_refusal(text):
        return _AMBIGUOUS
    return committed_choice(text, options)


def _bare_letter(text: str) -> str | None:
    """Return the only letter of a text, if nothing but punctuation surrounds it and none of it negates the letter."""
    found = _BARE_LETTER.fullmatch(text) if len(text) <= _BARE_LETTER_LINE else None
    if found is None:
        return None
    before, after = _NEGATING_MARKS
    changed = before.search(text[: found.start(1)]) or after.match(text[found.end(1) :])
    return None if changed else found[1].upper()


def _choice_in_statement(place: StatedAnswer, options: int | None) -> str | None:
    said = plain_latex(place.text[:_LONGEST_LINE])
    if place.whole:
        bare = _bare_letter(said)
        if bare:
            return _valid_option(bare, options)
        if len(place.text) > 2 and "answer" in place.text:
            return _read_choice(place.text, options)
    line = said.partition("\n")[0]
    found = committed_choice(f"Answer: {line}", options)
    at = line.find(found) if found else -1
    return _AMBIGUOUS if found and at >= 0 and is_contested(found, "", line[at + 1 :], options) else found


_LONGEST_EXPRESSION = 2_000
_SHORT_EXPRESSION = 200
_EXPRESSION_TAIL = 2_000
_MAX_NESTING = 4
_INLINE_MATH = re.compile(
    r"\$\$(.{1,1000}?)\$\$|(?<![\\$])\$([^$\n]{1,500})(?<!\\)\$|\\\[(.{1,1000}?)\\\]|\\\((.{1,500}?)\\\)", re.DOTALL
)
_MATH_JOINER = re.compile(r"\s?[,;/]?\s?(?:\b(?:and|or)\b\s?(?:(?:also|maybe|perhaps|possibly)\s)?)?(?=[$\\])")
_LEADING_WORDS = 4
_CLAUSE_END = re.compile(r"\.(?:\s|$)|;|\n|,?\s(?:because|since|where|which|so)\s")
_ASSIGNMENT = re.compile(r"(?:[A-Za-z](?:_\{?\w\}?)?|[a-zA-Z]\([a-z]\))\s*(?:=|∈)\s*(?=[^=])")
_WORDS_ONLY = re.compile(r"[A-Za-z][A-Za-z' -]+")
_NUMBER_BASE = re.compile(r"(?<![A-Za-z_}\d])\d+\s*_\s*\{?\d")
_EQUALS_SIGN = re.compile(r"(?<![<>!:\\])=+")
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[a-zA-Z](?![a-zA-Z])")
_VARIABLE_NAME = re.compile(r"[A-Za-z](?:_\{?\w\}?)?|[a-zA-Z]\([a-z]\)")
_ALTERNATIVE_WORD = re.compile(r"or\b|and\b|maybe\b|perhaps\b", re.IGNORECASE)
_PROSE_RUN = re.compile(r"(?:[A-Za-z]{2,}[ ,]+){5}")
_LIST_JOINER = re.compile(r"\s(?:and|or)\s|,")
_EXTRA_SPACE = re.compile(r"\s+(?=\^)|\s+(?=\s)")
_OPENING_BRACKETS, _CLOSING_BRACKETS = "([{", ")]}"
_ROOT_RULE = (re.compile(r"√(?:(\d+|[a-zA-Zπ])|[({]([^(){}]*)[)}])|\bsqrt\(([^()]*)\)|\\sqrt(\d)"), r"\\sqrt{\1\2\3\4}")
_PI_RULE = (re.compile(r"(?<![A-Za-z\\])pi\b"), "π")
_LATEX_COMMANDS = str.maketrans(
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
_SPELLING_RULES = [
    (re.compile(r"\s+|·|(?<=[\w)}])[*×](?=[\w(\\])"), ""),
    (re.compile(r"\\frac(\d)(\d)"), r"\\frac{\1}{\2}"),
    _ROOT_RULE,
    (re.compile(r"\\frac\{([^{}]*)\}\{([^{}]*)\}"), r"(\1)/(\2)"),
    _PI_RULE,
    (re.compile(r"\(([\w.π]+)\)/"), r"\1/"),
    (re.compile(r"/\((\w+)\)"), r"/\1"),
    (re.compile(r"([\^_])\{([^{}])\}"), r"\1\2"),
]


def canonical_math(answer: str) -> str | None:
    """Return the canonical text of the expression that an answer gives, or None when it gives none."""
    if PLAIN_NUMBER.fullmatch(answer):
        return strip_idle_zeros(answer)
    found = extract_expression(answer)
    return None if found is None else canonical_expression(found)


def extract_expression(answer: str) -> str | None:
    """Return the expression that an answer gives, as written but for delimiters, or None."""
    text = strip_reasoning(fold_characters(answer))
    for place in stated_answers(text):
        return _tidy(place.text if place.whole else _expression_in_prose(place)) or None
    if not text or is_refusal(text):
        return None
    if len(text) <= _SHORT_EXPRESSION and "\n" not in text and not _PROSE_RUN.search(text):
        return _tidy(text)
    inline = _last_inline_math(text[-_EXPRESSION_TAIL:])
    return _tidy(inline) if inline else extract_number(text)


def canonical_expression(latex: str) -> str | None:
    """Return an expression's canonical text; None for an empty one."""
    return _canonicalize_math(_tidy(latex)[:_LONGEST_EXPRESSION], _MAX_NESTING) or None


def to_latex(expression: str) -> str:
    """Return an expression with LaTeX commands for the characters that `extract_expression` writes plainly."""
    text = _ROOT_RULE[0].sub(_ROOT_RULE[1], _PI_RULE[0].sub(_PI_RULE[1], expression))
    return text.translate(_LATEX_COMMANDS)


def _tidy(latex: str) -> str:
    return _EXTRA_SPACE.sub("", plain_latex(strip_math_delimiters(latex))).strip().rstrip(".,;:").strip(" *`")


def _expression_in_prose(place: StatedAnswer) -> str:
    """Return the mathematics at the beginning of an announced answer: between delimiters, else up to the clause's end.

    Expressions joined by "or", "and" or a comma are one answer, a list; a denied or bounded one is none.
    """
    inline = _INLINE_MATH.search(place.text)
    if inline and len(place.text[: inline.start()].split()) <= _LEADING_WORDS:
        return _undenied_math(place.text, inline)
    for end in _CLAUSE_END.finditer(place.text):
        if place.text[: end.start()].strip():
            return place.text[: end.start()]
    return place.text


def _last_inline_math(text: str) -> str | None:
    found = list(_INLINE_MATH.finditer(text))
    return _undenied_math(text, found[-1]) if found else None


def _undenied_math(text: str, inline: re.Match[str]) -> str:
    """Return the delimited expression with those joined to it; empty where the words around it deny or bound it."""
    before, after = text[: inline.start()], text[inline.end() :]
    if is_denied(before, after) or is_compared_before(before) or is_corrected(after):
        return ""
    said = [_math_content(inline)]
    at = inline.end()
    while (join := _MATH_JOINER.match(text, at)) and (another := _INLINE_MATH.match(text, join.end())):
        said.append(_math_content(another))
        at = another.end()
    return ", ".join(dict.fromkeys(said))


def _math_content(inline: re.Match[str]) -> str:
    return str(next(filter(None, inline.groups())))


def _canonicalize_math(math: str, depth: int) -> str:
    math = math.strip()
    assigned = _ASSIGNMENT.match(math)
    if assigned and "=" not in math[assigned.end() :]:
        math = math[assigned.end() :]
    number_alone = _math_quantity(math)
    if number_alone is not None:
        return number_alone.text
    if (_WORDS_ONLY.fullmatch(math) and " " in math) or (math.isalpha() and len(math) > 2):
        joined = _LIST_JOINER.split(math)
        return (
            "{" + ",".join(sorted(word.strip().casefold() for word in joined)) + "}"
            if len(joined) > 1
            else math.casefold()
        )
    return _canonical_structure(math, depth) if depth else _respell(math)


def expression_quantity(latex: str) -> Quantity | None:
    """Return the number that an expression is, with its unit if it has one, or None when it is not one number."""
    math = _tidy(latex)[:_LONGEST_EXPRESSION]
    assigned = _ASSIGNMENT.match(math)
    return _math_quantity(math[assigned.end() :] if assigned else math)


def outer_brackets(latex: str) -> str:
    """Return "{" for a set in braces, "(" for a pair or an interval, and "" without brackets around the whole."""
    math = _tidy(latex)[:_LONGEST_EXPRESSION]
    assigned = _ASSIGNMENT.match(math)
    math = math[assigned.end() :].strip() if assigned else math
    if math.startswith("\\{") and math.endswith("\\}"):
        return "{"
    if (
        math[:1] in _OPENING_BRACKETS
        and math[:1]
        and math[-1:] in _CLOSING_BRACKETS
        and _is_enclosed(math)
        and len(list(_split_top_level(math[1:-1], ","))) > 1
    ):
        return "{" if math[0] == "{" else "("
    return ""


def has_base(latex: str) -> bool:
    """Whether a number has its base as a subscript: `1010_2`."""
    return _NUMBER_BASE.search(_tidy(latex)[:_LONGEST_EXPRESSION]) is not None


def has_contradiction(latex: str) -> bool:
    """Whether an answer equates two different numbers, or a number with an expression in an unknown."""
    sides = _equation_parts(latex)
    numbers = [_math_quantity(side) for side in sides]
    known = {number.text for number in numbers if number is not None}
    return len(sides) > 1 and (
        len(known) > 1 or (numbers[-1] is None and numbers[0] is not None and _VARIABLE.search(sides[-1]) is not None)
    )


def equation_sides(latex: str) -> Iterator[tuple[str, str]]:
    """Yield sides of an answer's equations that must be equal: those without unknowns that the last one lacks."""
    sides = _equation_parts(latex)
    for side in sides[:-1]:
        unknowns = set(_VARIABLE.findall(side))
        reckoned = not unknowns and _math_quantity(side) is None and sides[-1].lstrip("-").isdigit()
        if reckoned or (
            unknowns
            and unknowns <= set(_VARIABLE.findall(sides[-1]))
            and (_VARIABLE_NAME.fullmatch(side) is None or len(sides) > 2)
        ):
            yield side, sides[-1]


def _equation_parts(latex: str) -> list[str]:
    """Return the sides of all equations in an answer."""
    math = _tidy(latex)[:_LONGEST_EXPRESSION]
    return [side.strip() for side in _EQUALS_SIGN.split(math)] if "," not in math else [math]


def _math_quantity(math: str) -> Quantity | None:
    found = lone_quantity(math)
    if found is not None:
        return found if found.text else None
    digits, _, words = math.partition(" ")
    words = words.strip()
    if is_retracted(f" {words}") or is_compared_after(words) or _ALTERNATIVE_WORD.match(words):
        return None
    known = parse_unit(words) is not None or (_WORDS_ONLY.fullmatch(words) and not _LIST_JOINER.search(f" {words} "))
    if not (words and digits[-1:].isdigit() and known):
        return None
    found = lone_quantity(digits)
    return Quantity(found.text, found.value, words) if found and found.text else None


def _canonical_structure(math: str, depth: int) -> str:
    """Return sets, unions, pairs, intervals and lists with canonical members."""
    unions = list(_split_top_level(math, "∪"))
    if len(unions) > 1:
        return "∪".join(sorted(_canonicalize_math(part, depth - 1) for part in unions))
    if math.startswith("\\{") and math.endswith("\\}"):
        return _canonical_set(math[2:-2], depth)
    if math[:1] == "{" and math[-1:] == "}" and _is_enclosed(math):
        return _canonical_set(math[1:-1], depth)
    if math[:1] in ("(", "[") and math[-1:] in (")", "]") and _is_enclosed(math):
        members = [_canonicalize_math(part, depth - 1) for part in _split_top_level(math[1:-1], ",")]
        return (
            f"{math[0]}{','.join(members)}{math[-1]}" if len(members) > 1 else _canonicalize_math(math[1:-1], depth - 1)
        )
    listed = list(_split_top_level(re.sub(r"\s(?:and|or)\s", ",", math), ","))
    return _canonical_set(",".join(listed), depth) if len(listed) > 1 else _respell(math)


def _canonical_set(members: str, depth: int) -> str:
    found = {_canonicalize_math(part, depth - 1) for part in _split_top_level(members, ",") if part.strip()}
    return "{" + ",".join(sorted(found)) + "}"


def _is_enclosed(math: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    level = 0
    for place, char in enumerate(math):
        level += (char in _OPENING_BRACKETS) - (char in _CLOSING_BRACKETS)
        if level == 0:
            return place == len(math) - 1
    return False


def _split_top_level(math: str, at: str) -> Iterator[str]:
    level, start = 0, 0
    for place, char in enumerate(math):
        level += (char in _OPENING_BRACKETS) - (char in _CLOSING_BRACKETS)
        if char == at and level == 0:
            yield math[start:place]
            start = place + 1
    yield math[start:]


def _respell(math: str) -> str:
    for pattern, same in _SPELLING_RULES:
        math = pattern.sub(same, math)
    return math
