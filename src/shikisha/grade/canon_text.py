"""The text that an answer is, but for case and space: what is said to be the answer, else all of it.

Invariant: linear, and nothing is dropped from inside an answer; punctuation and articles count (a program's output is
a text too), save marks of emphasis around it and the full stop after it. Deliberately absent: likeness (edit distance,
stems, synonyms); what the checker's normalised mode drops besides is in `bare_words`.
"""

import re

from shikisha.grade.canon_fold import fold, plain_math
from shikisha.grade.canon_place import spoken, stated

_LONG = 200_000
_REFUSAL = re.compile(
    r"(?:(?:i(?: am|'m) (?:sorry|afraid)|sorry|unfortunately|as an ai[\w ]{0,30})\W{1,3}(?:but )?)*"
    r"(?:i (?:do not|don't|really don't|cannot|can't|can not|am unable to|am not able to|could not|couldn't|won't)"
    r" (?:know|answer|determine|tell|say|help|assist|provide|find|comply|do that)\b"
    r"|i(?: am|'m) (?:not sure|unable|not able)\b"
    r"|i have no idea|idk\b|no answer\b|n/a\W*$|(?:i(?: am|'m) )?sorry\W*$)",
    re.IGNORECASE,
)
_ARTICLES = re.compile(r"(?<![\w'\"])(?:a|an|the)\s+(?=\w)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))(?![^\[({]*[\])}])")
_MARKS = re.compile(  # what no answer depends on; each exception is where one does
    r"['\"`()…°?&@]|(?<!\d)\.(?!\d)|\.(?!\d)|(?<=[^\W\d])\.(?=\d)|!(?![\w=])|(?<!\w)_{1,3}(?=\w)|(?<=\w)_{1,3}(?!\w)|(?<!\w)\*{1,3}(?=[^\W\d])|(?<=[^\W\d])\*{1,3}(?!\w)"
    r"|(?<=[^\W\d])-(?=\w)|(?<=\w)-(?=[^\W\d])|-(?![\w.])|(?<=[^\W\d])/|/(?=[^\W\d])|\\(?=['\"])"
)
_SEPARATORS = re.compile(r"[,;]|:(?!\d)|(?<!\d):")
_APART = re.compile(r"\s*([+#<>=≠≤≥¬!±√%$€£¥₹^|\[\]{}])\s*")
_BULLET = re.compile(r"^(?:#{1,6}\s+|[-*•]\s+|>\s+(?=[^\W\d]))")
_WRAPS = frozenset((("'", "'"), ('"', '"'), ("`", "`"), ("*", "*"), ("_", "_"), ("$", "$"), ("(", ")")))


def text(answer: str) -> str | None:
    """Return an answer's text, in small letters and with single spaces; None when it is empty or declines to answer."""
    return text_of(answer, stated_text(answer))


def text_of(answer: str, said: str | None) -> str | None:
    """Return the same, knowing what `stated_text` found."""
    if said is None:
        said = answer if len(answer) > _LONG else spoken(answer)
    if len(said) <= _LONG:
        said = _undressed(fold(said))
    return None if refuses(said) else " ".join(said.split()).casefold() or None


def stated_text(answer: str) -> str | None:
    """Return what an answer says to be its answer, letter for letter, or None when it says nothing of the kind."""
    if len(answer) > _LONG:
        return None
    for place in stated(spoken(answer)):
        if place.whole or place.opens:
            return plain_math(place.text) if "\\text" in place.text else place.text
    return None


def refuses(answer: str) -> bool:
    """Whether an answer begins by declining to give one."""
    return _REFUSAL.match(fold(answer[:200]).lstrip(" \n\t\"'*")) is not None


def bare_words(text: str) -> str:
    """Return a text without case, idle space, leading articles and punctuation, as SQuAD compares answers.

    What SQuAD drops too, but makes another answer of it, stays: signs, decimal points, operators, currency, `%`, and
    the brackets of lists: `-1` is not `1`, `1.5` not `15`, `C++` not `C`, and `> 42` not `42`.
    """
    bare = _ARTICLES.sub("", fold(text).casefold())
    bare = _THOUSANDS.sub("", _unwrapped(bare.strip()))
    bare = _SEPARATORS.sub(" ", _MARKS.sub("", bare))
    return " ".join(_APART.sub(r"\1", bare).split())


def unquoted(text: str) -> str:
    """Return a text of marks alone without the quotes around it, in small letters and with single spaces."""
    return _unwrapped(" ".join(fold(text).split()).casefold())


def _unwrapped(text: str) -> str:
    """Take quotes, emphasis, dollars and a heading's or an item's mark from around a text."""
    text = _BULLET.sub("", text)
    while len(text) > 1 and (text[0], text[-1]) in _WRAPS and text[1:-1].strip(" *_`$'\"()"):
        text = text[1:-1].strip()
    return text


def _undressed(said: str) -> str:
    """Take emphasis from around a text and the full stop from behind it; an ellipsis stays."""
    said = said.strip()
    for mark in ("**", "__", "`", "*"):
        inner = said.removeprefix(mark).removesuffix(mark)
        if len(inner) == len(said) - 2 * len(mark) and mark[0] not in inner:
            said = inner.strip()
    if said.endswith(".") and not said.endswith("..") and "." not in said[:-1] and said[-2:-1].isalnum():
        said = said[:-1]
    return said
