r"""Where in a text its answer stands: the places at which writers say "this is my answer", the most binding first.

In this order: the `answer` of a JSON object, an <answer> tag, the last box (`\boxed{…}`), a last line `#### …`, the
last phrase like "the answer is …". Invariants: of several places of one kind the last counts, since whoever corrects an
answer does so afterwards; what stands before a closing </think> counts for nothing; linear in the text, of which the
last 200,000 characters are read. Deliberately absent: what the answer means (`canon_choice`, `canon_number`, …), and
guessing where nothing is said.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shikisha.fences import fenced
from shikisha.grade.canon_qualifier import belied, denied

_READ = 200_000
_LONGEST = 4_000  # characters of one stated answer
_NEAR = 2_000  # an answer nearly always stands near the end
_BOXES = 20  # that are looked into, from the last


@dataclass(frozen=True, slots=True)
class Stated:
    """What is said to be the answer; `whole` when nothing else can stand there (a box, a JSON value).

    `opens`: a phrase begins its line, as a conclusion does ("Paris, since the answer is plain" has none that does).
    """

    text: str
    whole: bool
    opens: bool = True


def spoken(text: str) -> str:
    """Return the part of a text in which answers are looked for: the end, without what was thought aloud before."""
    text = text[-_READ:]
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    text = text.strip()
    if text.startswith("```"):
        blocks = fenced(text)
        if len(blocks) == 1 and text.endswith("```"):
            text = blocks[0].strip()
    if "~~" in text:
        text = _STRUCK.sub("", text).strip()
    return _EMPTY.sub("", text).strip() if "ox" in text and _EMPTY.search(text) else text


_STRUCK = re.compile(r"~~[^~\n]{1,200}~~")
_EMPTY = re.compile(r"\$?\\(?:boxed|fbox)\{\s{0,9}\}\$?")


def stated(text: str) -> Iterator[Stated]:
    """Yield what a text (as `spoken` returned it) says to be its answer, the most binding place first.

    An empty text means that it says outright to have none: a JSON null, or what it names is taken back ("not …").
    """
    if "nswer" in text:
        if '"' in text or "'" in text:
            yield from _of_json(text)
        if "</answer>" in text:
            yield from _of_tag(text)
    if "\\boxed" in text or "\\fbox" in text:
        yield from _of_box(text)
    if "####" in text:
        yield from _of_hashes(text)
    yield from _of_phrase(text)


_KEY = re.compile(r"""["'](?:[Ff]inal[_ ]?)?[Aa]nswer["']\s{0,20}:\s{0,20}""")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"' + r"|'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_BARE = re.compile(r"[^,}\n]*")
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|([\"'/\\])|(n(?!eq?\b|u\b)|t(?!ext|imes|an|heta|au|o\b|frac)|r(?!ight|ho|m\b|angle)))"
)
_SPACES = {"n": "\n", "t": "\t", "r": "\r"}


def _of_json(text: str) -> Iterator[Stated]:
    """Read the value of the last key `answer`, in JSON that may be broken elsewhere or have LaTeX in it unescaped."""
    if "{" not in text:
        return
    keys = list(_KEY.finditer(text))
    if not keys:
        return
    at = keys[-1].end()
    opening = text[at : at + 1]
    if opening in ("[", "{"):
        try:
            value, _ = json.JSONDecoder().raw_decode(text[at : at + _LONGEST])
        except (ValueError, RecursionError):
            return
        yield Stated(json.dumps(value, ensure_ascii=False), whole=True)
        return
    string = _STRING.match(text, at, at + _LONGEST)
    if string:
        yield Stated(_ESCAPE.sub(_unescaped, string[1] or string[2] or "").strip(), whole=True)
    elif opening not in ('"', "'"):
        bare = _BARE.match(text, at, at + _LONGEST)
        value = bare[0].strip() if bare else ""
        yield Stated("" if value in ("null", "None") else value, whole=True)


def _unescaped(escape: re.Match[str]) -> str:
    code, char, space = escape.groups()
    return chr(int(code, 16)) if code else char or _SPACES[space]


def _of_tag(text: str) -> Iterator[Stated]:
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end)
    if start >= 0 and end - start < _LONGEST:
        after = end + len("</answer>")
        said = text[start + len("<answer>") : end].strip()
        last = text.rfind("</answer>", 0, start)
        first = text.rfind("<answer>", 0, max(0, last))
        if first >= 0 and last - first < _LONGEST and _IN_ROW.fullmatch(text, last + len("</answer>"), start):
            said = f"{text[first + len('<answer>') : last].strip()}, {said}"
        yield Stated("" if _denied(text, start, after) else said, whole=True)


def _denied(text: str, start: int, end: int) -> bool:
    """Whether the words around a marked answer, on its own line, take it back."""
    before = text[max(0, start - _AROUND) : start].rpartition("\n")[2]
    after = text[end : end + _AROUND].partition("\n")[0]
    return denied(before, after)


_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_IN_ROW = re.compile(
    r"[ \t$]*(?:\\[()\[\]])?[ \t]*[,;/]?[ \t]*(?:\b(?:or|and|maybe|perhaps|also)\b[ \t]*){0,3}(?:\\[(\[])?[ \t$]*"
)
_AROUND = 80
_UNBRACED = re.compile(r"[^\n$]{1,200}(?=\$)|\S+")


def _of_box(text: str) -> Iterator[Stated]:
    """Read the last box that is closed and not empty, with those that stand in a row with it as one answer."""
    end, taken_back = len(text), False
    for _ in range(_BOXES):
        at = max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))
        if at < 0:
            break
        end = at
        content, after = _boxed(text, at)
        if content and _denied(text, at, after):
            taken_back = True  # "\boxed{42}, not \boxed{43}" answers 42
        elif content:
            row = [content, *_in_row(text, at)]
            yield Stated(", ".join(dict.fromkeys(reversed(row))), whole=True)
            return
    if taken_back:
        yield Stated("", whole=True)


def _in_row(text: str, at: int) -> Iterator[str]:
    """Yield what is in the boxes that stand right before this one, with at most "or", "and" or a comma between."""
    for _ in range(_BOXES):
        start = max(text.rfind("\\boxed", 0, at), text.rfind("\\fbox", 0, at))
        content, after = _boxed(text, start) if start >= 0 else (None, 0)
        if not content or not _IN_ROW.fullmatch(text, after, at):
            return
        yield content
        at = start


def _boxed(text: str, at: int) -> tuple[str | None, int]:
    """Return what is in the box that begins here (None: it is not closed), and where the box ends."""
    start = _BOX.match(text, at)
    if start is None:
        return None, at
    at = start.end()
    if text[at : at + 1] != "{":
        token = _UNBRACED.match(text, at)
        return (token[0].strip().rstrip(".,"), token.end()) if token and start[0][-1].isspace() else (None, at)
    depth = 0
    for brace in _BRACE.finditer(text, at, at + _LONGEST):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[at + 1 : brace.start()].strip(), brace.end()
    return None, at


def _of_hashes(text: str) -> Iterator[Stated]:
    """Read the last line, where it is one of GSM8K's; elsewhere such a line is a heading."""
    line = text.rpartition("\n")[2]
    if line.startswith("####"):
        yield Stated(line.lstrip("#").strip(), whole=True)


_ENGLISH = re.compile(
    r"\b[Aa](?:nswers?|NSWER)\b"
    r"(?:(?P<gap>[^\n.:=?!]{0,60}?)(?:\b(?:is|are|was|be|IS|equals)\b(?!\s*(?:not|n't)\b)|[:=])|(?P<head>[*_\s]{0,10}$))",
    re.MULTILINE,
)
_OTHERS = re.compile(
    r"(?:答え|答案|正解|解答|回答)[^\n:=]{0,10}?[はが是为為:=]|(?:정답|답)\s?[은:=]"
    r"|\bAntwort\b[^\n.:=]{0,30}?(?:\bist\b|\blautet\b|[:=])|\b[Rr]espuesta\b[^\n.:=]{0,30}?(?:\bes\b|[:=])"
    r"|\b[Rr]éponse\b[^\n.:=]{0,30}?(?:\best\b|[:=])|\b[Rr](?:esposta|isposta)\b[^\n.:=]{0,30}?(?:[éè]|[:=])"
    r"|\b[Оо]твет\b\s{0,3}[:=-]"
)
_NEGATED = re.compile(
    r"\b(?:not|cannot|never|no|avoid|wrong|incorrect|false|anything but|everything but|hardly|unlikely)\b|n['’]t\b"
)
_JOINS = re.compile(
    r"\b(?:or|and|alternatively|otherwise|else)\b[\s,]*(?:(?:maybe|perhaps|possibly|also|that|the|my|it)\s+)*$",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?:^|\n)[\s#*_>]*(?:(?:the|my)\s+)?(?:final\s+|correct\s+)?$", re.IGNORECASE)
_LEAD = 60
_OPENING = re.compile(
    r"[\W_]*(?:(?:so|thus|therefore|hence|then|and|the|my|our|final|correct|best|right|la|die|a)\b[\W_]*)*",
    re.IGNORECASE,
)
_IDLE = frozenset(("", "```", "$$", "\\[", "**", "__", "\\", "*"))


def _of_phrase(text: str) -> Iterator[Stated]:
    """Read on after the last phrase that announces an answer; the near end is searched first."""
    near = _line_start(text, len(text) - _NEAR)
    far = ((_ENGLISH, 0),) if near and ("nswer" in text or "NSWER" in text) else ()
    for pattern, start in ((_ENGLISH, near), (_OTHERS, near), *far):
        for found in reversed(list(pattern.finditer(text, start))):
            said = _said(text, found.end()) if _announces(text, found) else ""
            if said:
                before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
                opens = _OPENING.fullmatch(before[-_LEAD:]) is not None
                if belied(before) or (_JOINS.search(before) and _another_is_said(text, found, pattern)):
                    yield Stated("", whole=True)
                else:
                    yield Stated(said, whole=False, opens=opens)
                return


def _another_is_said(text: str, found: re.Match[str], pattern: re.Pattern[str]) -> bool:
    """Whether an answer is announced earlier on the line too: "the answer is 43 or the answer is 42"."""
    return pattern.search(text, text.rfind("\n", 0, found.start()) + 1, found.start()) is not None


def _line_start(text: str, at: int) -> int:
    """Return where the line begins in which this place is, unless that is far away."""
    if at <= 0:
        return 0
    return max(text.rfind("\n", max(0, at - _NEAR), at) + 1, at - _NEAR, 0)


def _announces(text: str, found: re.Match[str]) -> bool:
    groups = found.groupdict()
    if groups.get("head") is not None:  # a heading: the word stands alone on its line
        return _HEADING.search(text, max(0, found.start() - 60), found.start()) is not None
    return not _NEGATED.search(groups.get("gap") or "")


def _said(text: str, at: int) -> str:
    """Return the rest of the line, or the next line that says something."""
    for line in text[at : at + _LONGEST].split("\n"):
        said = line.strip().lstrip(":*_= ").strip()
        if said not in _IDLE and not said.startswith("```"):
            return said
    return ""
