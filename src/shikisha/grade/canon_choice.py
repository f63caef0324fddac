r"""The letter that an answer chooses among lettered options.

Invariants: a letter counts where it is said to be the answer, stands alone, or labels the answer, and never as the
article "a" or the pronoun "I"; who names two letters has chosen none, as examiners have it (to take the first of them
would pay for hedging); a letter beyond the options is no choice. A bare small letter counts, a small letter in prose
only where a sentence or label ends with it. Deliberately absent: options that are numbered, and matching an option's
text (`choice`, which knows the options).
"""

import re
from collections.abc import Iterator

from shikisha.grade.canon_fold import fold, plain_math
from shikisha.grade.canon_place import Stated, spoken, stated
from shikisha.grade.canon_qualifier import corrected, joined, negated, withdrawn, withdrawn_label
from shikisha.grade.canon_text import refuses

_TWO = ""  # more than one letter, or one that is no option: nothing else in the text can mend that

_BARE = re.compile(r"[\W_]*([A-Za-z])[\W_]*")
_WORD = r"(?:option|choice|letter|answer|alternative|the|is|be|must|would|should|therefore|thus|clearly|most likely)"
_MARKS = r"[\s:*_$`'\"(\[{}\\.-]*"
_LETTER = re.compile(
    rf"{_MARKS}(?:{_WORD}\b{_MARKS}){{0,4}}"
    r"(?P<letter>[A-Za-z])(?![A-Za-z0-9'^]|_\w)(?P<close>[*_$`'\"\]})\\]*)(?P<next>\s*)(?P<rest>[^\n]{0,60})",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"(?:because|since|as|for|due|which|with|if|is|and|or|in|by|from|given|but|not|would|according|where|this"
    r"|it|so|on)\b"
)
_ANOTHER = re.compile(
    r"\s*(?:,\s*|\(\s*)?(?:or|and|and/or|/|,|&|\+|\||または|或|和|oder|ou|o|vs\.?|versus)\s*"
    r"(?:(?:option|choice|possibly|maybe|perhaps|both|also|go|going|with|may|might|could|be|it|is|the|answer)\s+)*"
    r"[(*\['\"]*([A-Z])(?![A-Za-z0-9'])(?!\s+(?:is|was|are)\b)"
)
_ALSO = re.compile(  # anywhere behind the letter on its line
    r"(?<![A-Za-z'(])\(?([A-Z])[)*]{0,3}\s+(?:is|could be|might be|may be|can be|would be)\s+(?:also|too\b"
    r"|possible|equally"
    r"|just as|another|likewise|plausible|an option)|\b(?:could|might|may|can)\s+(?:also\s+"
    r"|well\s+)?be\s+(?:option\s+)?\(?([A-Z])(?![A-Za-z0-9'])"
    r"|(?<![A-Za-z'(])\(?([A-Z])[)*]{0,3}\s+(?:could|might|may)\s+(?:also\s+|well\s+)?be\b"
    r"|\balternatively,?\s+\(?([A-Z])(?![A-Za-z0-9'])"
    r"|\b(?:or|else|otherwise|unless|failing|maybe|perhaps|although|though|but)\b(?:\s+(?:even|it|is|that"
    r"|if not|option"
    r"|could|might))*\s+\(?([B-HJ-Z])(?![A-Za-z0-9'])(?!\s+(?:is|was|are|does|can|must|would)\s?(?:n't|not"
    r"|wrong|in|un|ir|false))"
    r"|\bif not\s+\(?([B-HJ-Z])\b|(?<![A-Za-z'(])([B-HJ-Z])[)*]{0,3}\s+is\s+(?:better|preferable|more likely)"
    r"|\b(?:or|and)\s+\(?([A-Z])\)?\s+(?:is|was)(?:\s+(?:too|as well|right|correct|also))?[\s.!]*$"
)
_ALONE_TOO = re.compile(r"[\s,;/.|)*→=>?-]*[(*\[]*([A-Z])[)*.\]!?]*\s*$")
_NO_AT_LAST = re.compile(r"\bno\W*$", re.IGNORECASE)
_CHANGED = (
    re.compile(r"[¬!≠~❌✗✘]=?[\s*_`(]*$|(?:\bnot|n't|\b(?:anything|everything|all) but)\W*$", re.IGNORECASE),
    re.compile(r"[\s*_`)]*(?:[#✗✘❌≠]|\++(?!\s*\w))"),
)
_LABEL = re.compile(
    r"(?:\A|\n)[\s*_#>`$\\-]{0,12}(?:[([]\s?([A-Z])\s?[)\]]|\*\*([A-Z])\*\*|([A-Z])\s?(?:[).:]|\s[-—:]))(?=[\s*_]|$)"
)
_IS_RIGHT = re.compile(
    r"(?<![A-Za-z'])\(?([A-Z])[)*_.]{0,3}\s+(?:is|must be|has to be|seems)\s+(?:therefore\s+|thus\s+|clearly\s+)?"
    r"(?:the\s+)?(?:most\s+likely\s+|single\s+|only\s+)?(?:correct|right|best|true|answer|accurate)\b"
)
_IS_WRONG = re.compile(r"(?<![A-Za-z'])\(?([A-Z])[)*_.]{0,3}\s+(?:is|must be|seems)\s+(?:wrong|incorrect|false|not)\b")
_PICKED = re.compile(
    r"\b(?:[Oo]ption|[Cc]hoice|[Cc]hoose|[Cc]hose|[Pp]ick|[Ss]elect|go(?:ing)? with|[Mm]atches|corresponds? to)"
    r"(?:\s+is)?[\s:*_`]{1,4}(?:(?:option|choice|letter)\s+)?[(\[*]{0,3}([A-Z])(?![A-Za-z0-9'])(?!\s(?:is|are|was)\s+"
    r"(?:not|in|wr|un|ir|false))|[选選]择?項?项?\s?[:(]?\s?([A-Z])(?![A-Za-z0-9])"
)
_ENDS = re.compile(r"(?:\b(?:is|[Aa]ns)|'s|^A:|\nA:)\s*:?\s*[(*]{0,3}([A-Z])[)*.!]{0,4}$")
_BRACKETED = re.compile(r"(?<![A-Za-z])\(([A-Z])\)")
_LETTERS = re.compile(r"(?<![A-Za-z'])([B-HJ-Z])(?![A-Za-z'])")
_DENYING = re.compile(
    r"(?:\b(?:wrong|incorrect|false|worst|bad|least \w{1,12})\s+(?:answer|option|choice)"
    r"|\b(?:answer|option|choice)\s+(?:that|which)\s+is\s+(?:not|wrong|false|incorrect)|\bnever)\b[^,.;:]*$",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"[*_`\s]*[.):\]]|[*_`]+\s")
_TAIL = 600  # characters from the end in which letters that nothing announces are looked for
_HEAD = 200
_SHORT = 100  # characters of an answer that can only be meant as one
_LONGEST_LINE = 400
_LINE = 40


def choice(answer: str, options: int | None = None) -> str | None:
    """Return the letter (a capital) that an answer chooses; None for none, two, or one that is no option."""
    if len(answer) == 1 and answer.isascii():
        return _among(answer.upper(), options) or None if answer.isalpha() else None
    found = _read(spoken(fold(answer)), options)
    return found or None


def _among(letter: str, options: int | None) -> str:
    return letter if letter and (options is None or ord(letter) - 64 <= options) else _TWO


def _read(text: str, options: int | None) -> str | None:
    bare = _bare(text)
    if bare:
        return _among(bare, options)
    for place in stated(text):
        if not place.text:
            return _TWO
        found = _of_place(place, options)
        if found is not None:
            return found
    if len(text) <= _SHORT and (refuses(text) or _NO_AT_LAST.search(text)):
        return _TWO
    for letters in _unannounced(text):
        if letters:
            return _among(letters.pop(), options) if len(letters) == 1 else _TWO
    return None


def _bare(text: str) -> str | None:
    """Return the letter that a text is, when nothing but marks stands around it, and none of them changes it."""
    found = _BARE.fullmatch(text) if len(text) <= _LINE else None
    if found is None:
        return None
    before, after = _CHANGED
    changed = before.search(text[: found.start(1)]) or after.match(text[found.end(1) :])
    return None if changed else found[1].upper()


def _of_place(place: Stated, options: int | None) -> str | None:
    said = plain_math(place.text[:_LONGEST_LINE])
    if place.whole:
        bare = _bare(said)
        if bare:
            return _among(bare, options)
        if len(place.text) > 2 and "answer" in place.text:
            return _read(place.text, options)
    return _announced(said, options)


def _announced(said: str, options: int | None) -> str | None:
    """Read the letter at the beginning of what was announced as the answer."""
    found = _LETTER.match(said)
    if found is None or not _means_a_letter(found):
        return None
    letter = found["letter"].upper()
    if _unsettled(letter, said[: found.start("letter")], said[found.end("letter") :], options):
        return _TWO
    return _among(letter, options)


def _unsettled(letter: str, before: str, after: str, options: int | None) -> bool:
    """Whether the words around a chosen letter deny it, correct it, or choose another too."""
    line = after.partition("\n")[0]
    taken_back = withdrawn_label if _LABELLED.match(line) else withdrawn
    if negated(before) or taken_back(line) or corrected(line):
        return True
    bare = line.lstrip("*_`$'\"])}\\")
    others = [_ANOTHER.match(bare), _ALONE_TOO.fullmatch(line), *_ALSO.finditer(line)]
    return any(_among(other, options) not in (letter, _TWO) for one in others if one for other in one.groups() if other)


def _means_a_letter(found: re.Match[str]) -> bool:
    letter, rest = found["letter"], found["rest"]
    if ")" in found["close"]:
        return True
    if found["close"] or not found["next"] or not rest[:1].isalpha():
        return letter.isupper() or not rest[:1].isalpha()
    if letter in "AI" or letter.islower():
        return bool(_GOES_ON.match(rest)) or (letter == "A" and rest[0].isupper())
    return True


def _unannounced(text: str) -> Iterator[set[str]]:
    """Yield the letters of each way to choose without saying "the answer is", the clearest way first."""
    head, tail = text[:_HEAD], text[-_TAIL:]
    last = text.rpartition("\n")[2][-_LONGEST_LINE:]
    ends = _ENDS.search(text[-_SHORT:]) if len(text) <= _SHORT else None
    if ends:
        yield _settled(ends, text[-_SHORT:]) | ({_TWO} if _DENYING.search(text[-_SHORT:], 0, ends.start()) else set())
    right = [match for match in _IS_RIGHT.finditer(tail) if not withdrawn(tail[match.end() :])]
    yield set().union(*(_settled(match, tail) for match in right))
    alone = _bare(last)
    above = _bare(text[: len(text) - len(last)].rstrip().rpartition("\n")[2].strip()) if alone else None
    yield {alone, above or alone} if alone else set()
    picked = list(_PICKED.finditer(tail))
    yield _settled(picked[-1], tail) if picked else set()
    labels = [_first(match) for match in _LABEL.finditer(text[: 20 * _TAIL])]
    first = _LABEL.match(head)
    if first and len(set(labels)) == 1:
        line = text[first.end() :].partition("\n")[0]
        another = _ANOTHER.match(line) or _ALONE_TOO.fullmatch(line)
        denies = withdrawn_label(line) or _CHANGED[1].match(line) is not None
        yield set(labels) | ({another[1]} if another else {_first(first), _TWO} if denies else set())
    before = text[: -len(last)].rstrip().rpartition("\n")[2][:20]
    label = _LABEL.match(last)
    yield {_first(label)} if label and not _LABEL.match(before) else set()
    yield _bracketed(last) or _bracketed(tail)


def _bracketed(text: str) -> set[str]:
    """Return the letters in brackets; of "the statement that is not true is (C)" that is C, of "not (C)" none."""
    return {_TWO if _CHANGED[0].search(text, 0, found.start()) else found[1] for found in _BRACKETED.finditer(text)}


def _settled(found: re.Match[str], text: str) -> set[str]:
    """Return the letter that was found, and another where it is not the only one; two letters are none."""
    letter = str(next(filter(None, found.groups())))
    at = found.start(next(index for index, group in enumerate(found.groups(), 1) if group))
    before = text[max(0, at - _SHORT) : at].rpartition("\n")[2]
    line = text[found.end() :].partition("\n")[0]
    unsettled = negated(before) or _unsettled(letter, "", line, None)
    earlier = _LETTERS.search(before) if joined(before) else None
    denied_too = any(one[1] == letter for one in _IS_WRONG.finditer(before + line)) and len(text) <= _SHORT
    return {letter, _TWO} if unsettled or denied_too or (earlier and earlier[1] != letter) else {letter}


def _first(match: re.Match[str]) -> str:
    return str(next(filter(None, match.groups())))
