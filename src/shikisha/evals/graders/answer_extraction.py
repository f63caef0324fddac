r"""Find the final answer in a text: where it stands, whether the words around it change it, and how it is written.

Places, the most binding first: the `answer` of a JSON object, an <answer> tag, the last box (`\boxed{…}`), a line
`#### …`, the last phrase like "the answer is …". Without any of them the text itself may be the answer.

Invariants: pure, and linear in the text, of which the last 200,000 characters are read. Of several places of one kind
the last counts, since writers correct themselves later; text before a closing </think> does not count, nor does what
follows an end token, or a next question that the writer made up. A last box that is not closed was cut off, and is no
answer. "not 42", "42 is wrong", "> 42" and "43 or 42" contain the number 42 but do not answer 42; a double negation
("nothing but") is no negation. ASCII text passes `fold_characters` unchanged, and Unicode's own compatibility forms are
avoided: they sort a long run of combining marks in quadratic time.

Deliberately absent: what an answer means (`canonical_form`, `quantities`); guessing where nothing is stated; how sure a
writer sounds ("maybe 42" answers 42); bounds that include the number ("at least 42" may answer "what is the least …");
irony; letters that merely look alike (Cyrillic С is not C); edit distance, stems and synonyms.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice, pairwise

from shikisha.core.fast_dataclass import dataclass
from shikisha.core.text import fenced_blocks

_LONGEST_READ = 200_000
_LONGEST_STATEMENT = 4_000  # characters of one stated answer
# Characters; an answer is nearly always near the end.
_NEAR_END = 2_000
_MAX_BOXES = 20  # that are looked into, from the last


@dataclass(frozen=True, slots=True)
class StatedAnswer:
    """A stated answer; `whole` when nothing else can be in that place (a box, a JSON value).

    `opens`: the phrase begins its line, as conclusions do ("Paris, since the answer is plain" does not).
    """

    text: str
    whole: bool
    opens: bool = True


def strip_reasoning(text: str) -> str:
    """Return the part of a text that may hold the answer: its end, without reasoning, a fence and struck-out text."""
    text = text[-_LONGEST_READ:]
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    text = _before_next_question(cut_at_end_token(text).strip())
    if text.startswith("```"):
        blocks = fenced_blocks(text)
        if len(blocks) == 1 and text.endswith("```"):
            text = blocks[0].strip()
    if "~~" in text:
        text = _STRIKETHROUGH.sub("", text).strip()
    return _EMPTY_BOX.sub("", text).strip() if "ox" in text and _EMPTY_BOX.search(text) else text


_END_TOKEN = re.compile(
    r"(?<!['\"])(?:<\|(?:im_end|im_start|endoftext|eot_id|eom_id|end_of_text|end|return)\|>|<end_of_turn>|<eos>|</s>)(?!['\"])"
)
_NEXT_QUESTION = re.compile(
    r"\n[ \t#*]{0,9}(?:Question|Q|Problem|Exercise|Human|User|Instruction)[ *]{0,3}:", re.IGNORECASE
)
_GIVEN_ANSWER = re.compile(
    r"(?:answer\b[^\n]{0,60}(?:\bis\b|[:=])|####)\W{0,9}(?!the\b)\w|\\boxed|\A[^\n:?]{1,40}\Z", re.IGNORECASE
)


def cut_at_end_token(text: str) -> str:
    """Return the text before the first end token of a chat template; in quotes or after <s> it is text."""
    found = _END_TOKEN.search(text) if "<" in text else None
    return text if found is None or (found[0] == "</s>" and "<s>" in text) else text[: found.start()]


def _before_next_question(text: str) -> str:
    """Return the text before a question that follows a given answer: base models go on with their examples' form."""
    for question in islice(_NEXT_QUESTION.finditer(text), _MAX_BOXES):
        if _GIVEN_ANSWER.search(text[: question.start()].strip()[-_NEAR_END:]):
            return text[: question.start()].rstrip()
    return text


_STRIKETHROUGH = re.compile(r"~~[^~\n]{1,200}~~")
_EMPTY_BOX = re.compile(r"\$?\\(?:boxed|fbox)\{\s{0,9}\}\$?")


def stated_answers(text: str) -> Iterator[StatedAnswer]:
    """Yield the answers that a text (as `strip_reasoning` returns it) states, the most binding place first.

    An empty answer means that the text explicitly has none: a JSON null, or a denied answer ("not …").
    """
    if ":" in text and ('"' in text or "'" in text):
        yield from _answers_in_json(text)
    if "</" in text:
        yield from _answers_in_tag(text)
    if "\\boxed" in text or "\\fbox" in text:
        yield from _answers_in_box(text)
    if "####" in text:
        yield from _answers_after_hashes(text)
    # Read the text after the last phrase that announces an answer; the end of the text is searched first.
    near = _line_start(text, len(text) - _NEAR_END)
    far = ((_ENGLISH_PHRASE, 0),) if near and ("nswer" in text or "NSWER" in text) else ()
    for pattern, start in ((_ENGLISH_PHRASE, near), (_OTHER_LANGUAGES, near), *far):
        for found in reversed(list(pattern.finditer(text, start))):
            said = _next_statement(text, found.end()) if _announces_answer(text, found) else ""
            before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
            if said and not _CONDITIONAL.search(before + found[0]):
                opens = _OPENING.fullmatch(before[-_LEAD_WINDOW:]) is not None
                if is_disbelieved(before) or (
                    _ALTERNATIVE_LEAD.search(before)
                    and (pattern.search(text, text.rfind("\n", 0, found.start()) + 1, found.start()) is not None)
                ):
                    yield StatedAnswer("", whole=True)
                else:
                    yield StatedAnswer(said, whole=False, opens=opens)
                return


_JSON_KEY = re.compile(r"""["'](?:[Ff]inal[_ ]?)?[Aa]nswer["']\s{0,20}:\s{0,20}""")
_JSON_CHOICE_KEY = re.compile(r"""["'](?:\w{1,9}[_ ])?(?:[Cc]hoice|[Oo]ption|[Ll]etter)["']\s{0,20}:\s{0,20}(?=["'])""")
_JSON_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"' + r"|'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_JSON_BARE_VALUE = re.compile(r"[^,}\n]*")
_JSON_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|([\"'/\\])|(n(?!eq?\b|u\b)|t(?!ext|imes|an|heta|au|o\b|frac)|r(?!ight|ho|m\b|angle)))"
)
_ESCAPED_SPACES = {"n": "\n", "t": "\t", "r": "\r"}


def _answers_in_json(text: str) -> Iterator[StatedAnswer]:
    """Read the value of the last key `answer`, in JSON that may be broken elsewhere or have LaTeX in it unescaped."""
    if "{" not in text:
        return
    keys = list(_JSON_KEY.finditer(text)) or list(_JSON_CHOICE_KEY.finditer(text))
    if not keys:
        return
    at = keys[-1].end()
    opening = text[at : at + 1]
    if opening in ("[", "{"):
        try:
            value, _ = json.JSONDecoder().raw_decode(text[at : at + _LONGEST_STATEMENT])
        except (ValueError, RecursionError):
            return
        yield StatedAnswer(json.dumps(value, ensure_ascii=False), whole=True)
        return
    string = _JSON_STRING.match(text, at, at + _LONGEST_STATEMENT)
    if string:
        yield StatedAnswer(_JSON_ESCAPE.sub(_unescape, string[1] or string[2] or ""), whole=True)
    elif opening not in ('"', "'"):
        bare = _JSON_BARE_VALUE.match(text, at, at + _LONGEST_STATEMENT)
        value = bare[0].strip() if bare else ""
        yield StatedAnswer("" if value in ("null", "None") else value, whole=True)


def _unescape(escape: re.Match[str]) -> str:
    code, char, space = escape.groups()
    return chr(int(code, 16)) if code else char or _ESCAPED_SPACES[space]


_TAG_END = re.compile(r"</((?:final_?)?answer|choice|final)>")


def _answers_in_tag(text: str) -> Iterator[StatedAnswer]:
    """Read the last tag, and one right before it."""
    ends = list(_TAG_END.finditer(text))
    if not ends:
        return
    opening, last = f"<{ends[-1][1]}>", ends[-1]
    start = text.rfind(opening, 0, last.start())
    if start < 0 or last.start() - start >= _LONGEST_STATEMENT:
        return
    said = text[start + len(opening) : last.start()].strip()
    first = text.rfind(opening, 0, ends[-2].start()) if len(ends) > 1 else -1
    if (
        first >= 0
        and ends[-2].start() - first < _LONGEST_STATEMENT
        and _ROW_SEPARATOR.fullmatch(text, ends[-2].end(), start)
    ):
        said = f"{text[first + len(opening) : ends[-2].start()].strip()}, {said}"
    yield StatedAnswer("" if _is_denied_on_line(text, start, last.end()) else said, whole=True)


def _is_denied_on_line(text: str, start: int, end: int) -> bool:
    """Whether the words around a marked answer, on its own line, deny it."""
    before = text[max(0, start - _CONTEXT_WINDOW) : start].rpartition("\n")[2]
    after = text[end : end + _CONTEXT_WINDOW].partition("\n")[0]
    return is_denied(before, after)


_BOX_START = re.compile(r"\\(?:boxed|fbox)\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_ROW_SEPARATOR = re.compile(
    r"[ \t$]*(?:\\[()\[\]])?[ \t]*[,;/]?[ \t]*(?:\b(?:or|and|maybe|perhaps|also)\b[ \t]*){0,3}(?:\\[(\[])?[ \t$]*"
)
_CONTEXT_WINDOW = 80
_UNBRACED = re.compile(r"[^\n$]{1,200}(?=\$)|\S+")


def _answers_in_box(text: str) -> Iterator[StatedAnswer]:
    """Read the last box that is closed and not empty; boxes in a row with it belong to the same answer."""
    end, without = len(text), False
    for _ in range(_MAX_BOXES):
        at = max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))
        if at < 0:
            break
        end = at
        content, after = _box_content(text, at)
        if content is None and text[at + 5 : at + 7].endswith("{"):
            without = "nswer" not in text[at:]
            break
        if content and _is_denied_on_line(text, at, after):
            without = True  # "\boxed{42}, not \boxed{43}" answers 42
        elif content:
            row = [content, *_boxes_in_row(text, at)]
            yield StatedAnswer(", ".join(dict.fromkeys(reversed(row))), whole=True)
            return
    if without:
        yield StatedAnswer("", whole=True)


def _boxes_in_row(text: str, at: int) -> Iterator[str]:
    """Yield the contents of the boxes right before this one, with at most "or", "and" or a comma between."""
    for _ in range(_MAX_BOXES):
        start = max(text.rfind("\\boxed", 0, at), text.rfind("\\fbox", 0, at))
        content, after = _box_content(text, start) if start >= 0 else (None, 0)
        if not content or not _ROW_SEPARATOR.fullmatch(text, after, at):
            return
        yield content
        at = start


def _box_content(text: str, at: int) -> tuple[str | None, int]:
    """Return the content of the box that begins here (None: it is not closed), and where the box ends."""
    start = _BOX_START.match(text, at)
    if start is None:
        return None, at
    at = start.end()
    if text[at : at + 1] != "{":
        token = _UNBRACED.match(text, at)
        return (token[0].strip().rstrip(".,"), token.end()) if token and start[0][-1].isspace() else (None, at)
    depth = 0
    for brace in _BRACE.finditer(text, at, at + _LONGEST_STATEMENT):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[at + 1 : brace.start()].strip(), brace.end()
    return None, at


_HASH_ROW = re.compile(r"^####[ \t]*([-+$€£]{0,2}\d[\d.,/]*[ \t]?[%$€£°\w]{0,12})[ \t.]*$", re.MULTILINE)


def _answers_after_hashes(text: str) -> Iterator[StatedAnswer]:
    """Read GSM8K's line: of several the one before a next question; without a number it must be the last line."""
    rows = list(_HASH_ROW.finditer(text))
    for row, following in pairwise(rows):
        if "?" in text[row.end() : following.start()]:
            yield StatedAnswer(row[1].strip(), whole=True)
            return
    line = text.rpartition("\n")[2]
    if line.startswith("####"):
        yield StatedAnswer(line.lstrip("#").strip(), whole=True)
    elif rows and "nswer" not in text[rows[-1].end() :]:
        yield StatedAnswer(rows[-1][1].strip(), whole=True)


_ENGLISH_PHRASE = re.compile(
    r"\b[Aa](?:nswers?|NSWER)\b(?:(?P<gap>[^\n.:=?!]{0,60}?)(?:\b(?:is|are|was|be|IS|equals)\b(?!\s*(?:not|n't)\b)"
    r"|[:=])|(?P<head>[*_\s]{0,10}$))",
    re.MULTILINE,
)
_OTHER_LANGUAGES = re.compile(
    r"(?:答え|答案|正解|解答|回答)[^\n:=不非]{0,10}?[はが是为為:=]|(?:정답|답)\s?[은:=]|\bAntwort\b[^\n.:=]{0,30}?(?:\bist\b|\blautet\b|[:=])"
    r"|\b[Rr]espuesta\b[^\n.:=]{0,30}?(?:\bes\b|[:=])|\b[Rr]éponse\b[^\n.:=]{0,30}?(?:\best\b|[:=])|\b[Rr](?:esposta"
    r"|isposta)\b[^\n.:=]{0,30}?(?:[éè]|[:=])|\b[Оо]твет\b\s{0,3}[:=-]"
)
_NEGATION_IN_GAP = re.compile(
    r"\b(?:not|cannot|never|no|avoid|wrong|incorrect|false|anything but|everything but|hardly|unlikely)\b|n['’]t\b"
)
_ALTERNATIVE_LEAD = re.compile(
    r"\b(?:or|and|alternatively|otherwise|else)\b[\s,]*(?:(?:maybe|perhaps|possibly|also|that|the|my|it)\s+)*$",
    re.IGNORECASE,
)
_CONDITIONAL = re.compile(r"\b[Ii]f\b[^.;?!]*\b(?:were|was|had)\b[^.;?!]*\bwould\b[^.;?!]*$")
_HEADING = re.compile(r"(?:^|\n)[\s#*_>]*(?:(?:the|my)\s+)?(?:final\s+|correct\s+)?$", re.IGNORECASE)
_LEAD_WINDOW = 60
_OPENING = re.compile(
    r"[\W_]*(?:(?:so|thus|therefore|hence|then|and|the|my|our|final|correct|best|right|la|die|a)\b[\W_]*)*",
    re.IGNORECASE,
)
_BLANK_LINES = frozenset(("", "```", "$$", "\\[", "**", "__", "\\", "*"))


def _line_start(text: str, at: int) -> int:
    """Return where this position's line begins, unless that is far away."""
    if at <= 0:
        return 0
    return max(text.rfind("\n", max(0, at - _NEAR_END), at) + 1, at - _NEAR_END, 0)


def _announces_answer(text: str, found: re.Match[str]) -> bool:
    groups = found.groupdict()
    # A heading: the word is alone on its line.
    if groups.get("head") is not None:
        return _HEADING.search(text, max(0, found.start() - 60), found.start()) is not None
    return not _NEGATION_IN_GAP.search(groups.get("gap") or "")


def _next_statement(text: str, at: int) -> str:
    """Return the rest of the line, or the next line with text."""
    for line in text[at : at + _LONGEST_STATEMENT].split("\n"):
        said = line.strip().lstrip(":*_= ").strip()
        if said not in _BLANK_LINES and not said.startswith("```"):
            return said
    return ""


_LONGEST_TEXT = 200_000
_REFUSAL = re.compile(
    r"(?:(?:i(?: am|'m) (?:sorry|afraid)|sorry|unfortunately|as an ai[\w ]{0,30})\W{1,3}(?:but )?)*(?:i (?:do not"
    r"|don't|really don't|cannot|can't|can not|am unable to|am not able to|could not|couldn't|won't) (?:know|answer"
    r"|determine|tell|say|help|assist|provide|find|comply|do that)\b|i(?: am|'m) (?:not sure|unable|not able)\b"
    r"|i have no idea|idk\b|no answer\b|n/a\W*$|(?:i(?: am|'m) )?sorry\W*$)",
    re.IGNORECASE,
)
_ARTICLES = re.compile(r"(?<![\w'\"])(?:a|an|the)\s+(?=\w)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))(?![^\[({]*[\])}])")
_PUNCTUATION = re.compile(  # no answer depends on these; each lookaround is a case where one does
    r"['\"`()…°?&@]|(?<!\d)\.(?!\d)|\.(?!\d)|(?<=[^\W\d])\.(?=\d)|!(?![\w=])|(?<!\w)_{1,3}(?=\w)|(?<=\w)_{1,3}(?!\w)|(?<!\w)\*{1,3}(?=[^\W\d])|(?<=[^\W\d])\*{1,3}(?!\w)"
    r"|(?<=[^\W\d])-(?=\w)|(?<=\w)-(?=[^\W\d])|-(?![\w.])|(?<=[^\W\d])/|/(?=[^\W\d])|\\(?=['\"])"
)
_SEPARATORS = re.compile(r"[,;]|:(?!\d)|(?<!\d):")
_SPACED_SIGNS = re.compile(r"\s*([+#<>=≠≤≥¬!±√%$€£¥₹^|\[\]{}])\s*")
_BULLET = re.compile(r"^(?:#{1,6}\s+|[-*•]\s+|>\s+(?=[^\W\d]))")
_WRAPS = frozenset((("'", "'"), ('"', '"'), ("`", "`"), ("*", "*"), ("_", "_"), ("$", "$"), ("(", ")")))


def canonical_text(answer: str) -> str | None:
    """Return an answer's text in lowercase with single spaces; None when it is empty or declines to answer."""
    return canonicalize_text(answer, stated_text(answer))


def canonicalize_text(answer: str, said: str | None) -> str | None:
    """Return the same for a known result of `stated_text`."""
    if said is None:
        said = answer if len(answer) > _LONGEST_TEXT else strip_reasoning(answer)
    if len(said) <= _LONGEST_TEXT:
        said = _strip_emphasis(fold_characters(said))
    return None if is_refusal(said) else " ".join(said.split()).casefold() or None


def stated_text(answer: str) -> str | None:
    """Return the answer that a text states, letter for letter, or None when it states none."""
    if len(answer) > _LONGEST_TEXT:
        return None
    for place in stated_answers(strip_reasoning(answer)):
        if place.whole or place.opens:
            return plain_latex(place.text) if "\\text" in place.text else place.text
    return None


def is_refusal(answer: str) -> bool:
    """Whether an answer begins by declining to give one."""
    return _REFUSAL.match(fold_characters(answer[:200]).lstrip(" \n\t\"'*")) is not None


def normalize_words(text: str) -> str:
    """Return a text without case, extra space, leading articles and punctuation, as SQuAD compares answers.

    What would change the answer stays, unlike in SQuAD: signs, decimal points, operators, currency, `%`, and
    the brackets of lists: `-1` is not `1`, `1.5` not `15`, `C++` not `C`, and `> 42` not `42`.
    """
    bare = _ARTICLES.sub("", fold_characters(text).casefold())
    bare = _THOUSANDS.sub("", _unwrap(bare.strip()))
    bare = _SEPARATORS.sub(" ", _PUNCTUATION.sub("", bare))
    return " ".join(_SPACED_SIGNS.sub(r"\1", bare).split())


def strip_quotes(text: str) -> str:
    """Return a text of marks alone without the quotes around it, in lowercase with single spaces."""
    return _unwrap(" ".join(fold_characters(text).split()).casefold())


def _unwrap(text: str) -> str:
    """Remove quotes, emphasis, dollar signs and the mark of a heading or list item around a text."""
    text = _BULLET.sub("", text)
    while len(text) > 1 and (text[0], text[-1]) in _WRAPS and text[1:-1].strip(" *_`$'\"()"):
        text = text[1:-1].strip()
    return text


def _strip_emphasis(said: str) -> str:
    """Remove emphasis around a text and the period after it; an ellipsis stays."""
    said = said.strip()
    for mark in ("**", "__", "`", "*"):
        inner = said.removeprefix(mark).removesuffix(mark)
        if len(inner) == len(said) - 2 * len(mark) and mark[0] not in inner:
            said = inner.strip()
    if said.endswith(".") and not said.endswith("..") and "." not in said[:-1] and said[-2:-1].isalnum():
        said = said[:-1]
    return said


# The words around an answer: only a fixed window is read, so that the work does not grow with the text.

_WINDOW = 80

_DOUBLE_NEGATION = re.compile(  # "nothing but C", "no doubt that it is C", "the statement that is not true is C"
    r"(?<!answer )(?<!option )(?<!choice )(?<!one )\b(?:that|which) (?:is|are) (?:not (?:true|correct)|false"
    r"|incorrect)\b|\b(?:nothing|none|no) (?:but|other than|except)\b|\b(?:no|without(?: a| any)?|little|beyond(?: a"
    r"| any)?)(?: reasonable)? doubt\b|\bnot only\b|\bwhy not\b|(?:n['’]t|\bcannot) be (?:anything"
    r"|other)\b[^.;\n]{0,20}\b(?:but|than)\b",
    re.IGNORECASE,
)
_FILLERS = (
    r"(?:[\s*_`$\"'(\[{:]*(?:\b(?:the|a|an|be|been|to|of|is|it|this|that|say|choos(?:e|ing)|pick|select|go|with"
    r"|for|answers?|options?|choices?|letter|equals?|even|in|fact|quite|including|close|near|really|actually|simply"
    r"|just|necessarily|likely|correct|right|true|either|both|value|number|result|solution|think|believe|final|my|one"
    r"|out|sure|if|whether)\b|\\(?:text|mathrm)\s*\{)){0,7}[\s*_`$\"'(\[{:\\]*$"
)
_NEGATION = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|without|except|excluding|excludes?|excluded|(?:anything|everything|all) but"
    r"|other than|rather than|instead of|differ(?:s|ent)? from|(?:apart|aside|far) from|besides|nowhere near"
    r"|numbers? but|rules?|ruled|ruling|eliminat(?:e|es|ed|ing)|reject(?:s|ed|ing)?|doubt(?:s|ful)?|unlikely|hardly"
    r"|scarcely|refuse|avoid|unless|false|untrue)\b(?!\s+(?:only|out of)\b)|n['’]t\b|[¬≠❌✗✘]|!=|(?<!\w)!"
    rf"|<>|/=(?=\s)|\\(?:neq?|neg|lnot|not)\b|~\s?\()(?!\s*\w+\s*,){_FILLERS}",
    re.IGNORECASE,
)
_COMPARISON_BEFORE = re.compile(
    r"(?:(?<![-=])[<>≤≥≮≯≪≫]=?|\\(?:le|leq|ge|geq|lt|gt|ll|gg|leqslant|geqslant)\b|\b(?:more|less|fewer|greater|larger"
    r"|smaller|higher|lower|bigger|later|earlier|older|younger)\s+than(?:\s+or\s+equal(?:\s+to)?)?|[<>]\s?or\s?="
    r"|\b(?:over|under|above|below|beneath|beyond|exceed(?:s|ing)?|twice|doubles?|half|triple|thrice|near(?!ly)"
    r"|such as|for example,?|for instance,?|e\.g\.,?|past|times|(?:square|cube|cube root|square root|root|factorial"
    r"|logarithm|sine|cosine|opposite|reciprocal|inverse|negative|negation|multiple|percent|per cent|%)\s+of"
    r"|number like)|\b(?:sqrt|log|ln|lg|exp|sin|cos|tan|gcd|lcm|max|min|floor|ceil|abs)\s*\(?)(?:\s+(?:the|a|an|of"
    r"|to))*[\s*_`$(\[{\\]*$",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"(?:\bbetween\b[^.;\n]{1,30}\band|[(\[]\s?-?[\d.]+\s?,|[\d%°](?:\s?[a-z]{1,10})?"
    r"(?:--?|\s?(?:--|\bto\b|\btill\b|\buntil\b|\bthrough\b|\.\.+|…)))[\s$]*$",
    re.IGNORECASE,
)
_DISBELIEF = re.compile(  # "I don't think the answer is", "the wrong answer is"
    r"(?:(?:\b(?:doubt(?:ful)?|cannot|deny|never|false|untrue)|n['’]t|\bnot|\bunlikely)\b(?:\s+(?:think|believe|say"
    r"|mean|claim|sure|certain|it|is|be|true|if|whether|that|the|my|true)\b){0,6}|\b(?:wrong|incorrect|false|worst|bad"
    r"|not the|least \w{1,12}))\s*$",
    re.IGNORECASE,
)
_CLOSING_MARKS = r"[\s*_`$\"')\]}\\!]*"
_LINK = r"(?:[,:;(\[—=>-]+\s*)?(?:(?:but|and|though|which|that|this|it|so)\s+){0,3}"
_VERB = (
    r"(?:is|was|are|were|would be|must be|may be|might be|can be|could be|has to be|seems(?: to be)?|looks|can|could"
    r"|does|do|did|should|will|would|must)"
)
_WRONG = (
    r"(?:(?:clearly|definitely|obviously|probably|surely|also|a|an|the|one of the|simply|just|therefore)\s+){0,3}"
    r"(?:wrong|incorrect|false|untrue|impossible|invalid|mistaken|ruled out|eliminated|excluded|rejected|unlikely"
    r"|out\b|(?:distractor|trap)\b|too (?:high|low|big|small|large|much|little|many|few)|(?:not|never)\b(?!\s*(?:only"
    r"|just)\b)(?!\s*(?:the\s+)?(?:option|choice|answer|letter)?\s*[($]*(?:-?[\d\\]|[A-Z]\b)))"
)
_RETRACTION = re.compile(
    rf"{_CLOSING_MARKS}(?:[✗✘❌×](?!\s*\d)|[(]?\s*{_LINK}(?:{_VERB}\s*(?:n['’]t\b|{_WRONG})\b|(?:ca|is|was|are|does|did"
    rf"|wo|would|could)n['’]t\b|cannot\b|fails?\b|no\W*$|{_WRONG}\b))",
    re.IGNORECASE,
)
_RETRACTION_BY_VERB = re.compile(
    rf"{_CLOSING_MARKS}(?:[✗✘❌]|{_LINK}(?:{_VERB}\s*(?:n['’]t\b|{_WRONG}\b)|(?:ca|is|was|does|wo|would|could)n['’]t\b))",
    re.IGNORECASE,
)
_COMPARISON_AFTER = re.compile(
    r"[\s*_`$\"')\]}]*(?:\b(?:squared|cubed|factorial|exclusive|choose \d)\b|,?\s?(?:plus or minus"
    r"|give or take)\b|[<>≤≥≠≮≯≪≫]|!=|\\(?:le|leq|ge|geq|lt|gt|neq?|leqslant|geqslant)\b)",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"[\s*_`$\"')\]}\\]*(?:[.,;:?!-]*\s*\(?(?:wait|sorry|scratch that|correction|i mean|actually,?\s+(?:no\b"
    r"|\(?[A-Z]\b|-?\d))\b|\?\s*no\b|[.,;:!-]+\s*no[,;.:!]?\s+(?:it is |it's )?[($]*(?:[B-HJ-Z]\b|-?\d))",
    re.IGNORECASE,
)
_HEDGE = (
    r"(?:it|that|the|my|answer|is|could|may|might|can|be|maybe|perhaps|possibly|probably|option|choice|letter|either"
    r"|else|also|even|go|going|with|i|i'd|would|pick|choose|say|alternatively|otherwise|as well|more|likely|rather"
    r"|better)"
)
_OR_WORD = (
    r"(?:\b(?:(?:but|though|although) (?:it )?(?:could|might|may|can)|else|or|alternatively|otherwise|xor|vs|versus"
    r"|oder)\b|または|或|[/|∨])"
)
_ALTERNATIVE_BEFORE = re.compile(rf"{_OR_WORD}[\s,.:*_`$(\[]*(?:{_HEDGE}\b[\s,.:*_`$(\[]*){{0,8}}$", re.IGNORECASE)


def _window_before(before: str) -> str:
    """Return the end of the text before an answer, without double negations."""
    return _DOUBLE_NEGATION.sub(" ", before[-_WINDOW:])


def is_negated(before: str) -> bool:
    """Whether the words before an answer deny it: "not", "anything but", "rule out", `≠`, `¬`."""
    return _NEGATION.search(_window_before(before)) is not None


def is_disbelieved(before: str) -> bool:
    """Whether the words before "the answer is" deny it: "I don't think", "the wrong"."""
    return _DISBELIEF.search(_window_before(before)) is not None


def is_compared_before(before: str) -> bool:
    """Whether the text before a number changes it: a bound, the other end of a range, a function, a multiple."""
    near = before[-_WINDOW:]
    return _COMPARISON_BEFORE.search(near) is not None or _RANGE.search(near) is not None


def is_retracted(after: str) -> bool:
    """Whether the words after an answer deny it: "is wrong", "(not)", "isn't right", "can be ruled out"."""
    return _RETRACTION.match(after[:_WINDOW]) is not None


def is_label_retracted(after: str) -> bool:
    """Whether the words after a label ("C.", "(C)") deny it; "False" or "No, …" there is the option's own text."""
    return _RETRACTION_BY_VERB.match(after[:_WINDOW]) is not None


def is_compared_after(after: str) -> bool:
    """Whether an inequality follows a number, so that the number is a bound."""
    return _COMPARISON_AFTER.match(after[:_WINDOW]) is not None


def is_corrected(after: str) -> bool:
    """Whether a correction follows at once: ", no, …", ". Wait, …"."""
    return _CORRECTION.match(after[:_WINDOW]) is not None


def is_alternative(before: str) -> bool:
    """Whether "or" and nothing but hedging leads from what stood before to the answer."""
    return _ALTERNATIVE_BEFORE.search(before[-_WINDOW:]) is not None


def is_denied(before: str, after: str) -> bool:
    """Whether the text around an answer denies it."""
    return is_negated(before) or is_retracted(after)


_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"
_SUPERSCRIPT_RUN = re.compile(f"[{_SUPERSCRIPTS}]+")
_SUPERSCRIPT_TABLE = str.maketrans(_SUPERSCRIPTS, "0123456789+-")
_SPACED_MINUS = re.compile(r"−\s+(?=\d)")
# The zero of each script whose digits follow it in order.
_SCRIPT_ZEROS = "٠۰߀०০੦૦୦௦౦೦൦๐໐༠၀០᠐"
_EQUIVALENT_CHARACTERS = {
    " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000": " ",
    "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff": "",
    "\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63": "-",
    "‘’‚′ʼ": "'",
    "“”„″«»": '"',
    "。": ".",
    "、٬": ",",
    "٫": ".",
    "⁄∕": "/",
    "✕⨯✖": "×",
    "⋅∙": "·",
    "【〔": "[",
    "】〕": "]",
    "º": "°",
}


def _build_fold_table() -> dict[int, str]:
    table = {ord(char): plain for chars, plain in _EQUIVALENT_CHARACTERS.items() for char in chars}
    table |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full width
    table |= {ord(zero) + digit: str(digit) for zero in _SCRIPT_ZEROS for digit in range(10)}
    for code in (*range(0x249C, 0x24EA), *range(0x1D400, 0x1D7CB), *range(0x1D7CE, 0x1D800)):  # circled; styled
        plain = unicodedata.normalize("NFKC", chr(code))
        if plain.isascii():
            table[code] = plain
    for char in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒":
        table[ord(char)] = " " + unicodedata.normalize("NFKC", char).replace("⁄", "/")
    return table


_FOLD_TABLE = _build_fold_table()


def fold_characters(text: str) -> str:
    """Return a text with equivalent characters written in one way; superscripts become `^2`."""
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPT_TABLE), text)
    return _SPACED_MINUS.sub("-", text).translate(_FOLD_TABLE)


_LATEX_COMMANDS = {
    "times": "×", "cdot": "·", "ast": "*", "div": "/", "infty": "∞", "pi": "π", "approx": "≈", "sim": "≈", "pm": "±",
    "circ": "°", "degree": "°", "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥",
    "lt": "<", "gt": ">", "neq": "≠", "ne": "≠", "cup": "∪", "cap": "∩", "in": "∈", "emptyset": "∅",
    "varnothing": "∅", "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "lbrace": r"\{", "rbrace": r"\}",
    "lbrack": "[", "rbrack": "]", "land": " and ", "lor": " or ", "quad": " ", "qquad": " ", "colon": ":",
    "left": "", "right": "", "big": "", "Big": "", "bigg": "", "Bigg": "", "bigl": "", "bigr": "", "displaystyle": "",
    "textstyle": "", "limits": "", "rm": "", "bf": "", "it": "", "bold": "",
}  # fmt: skip
_LATEX_COMMAND = re.compile(r"\\([A-Za-z]+)(?![A-Za-z])")
_LATEX_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|mbox|operatorname)\s*\{([^{}]*)\}"
)
_LATEX_SPACING = re.compile(r"(?<!\\)\\[!,;:> ]|\{,\}|~")
_SPACING_REPLACEMENTS = {r"\!": "", "{,}": ","}
_DEGREES = re.compile(r"\^\s*(?:\{\s*°\s*\}|°)")
_UNNEST_ROUNDS = 3


def plain_latex(latex: str) -> str:
    """Return a short piece of LaTeX without spacing commands, with plain words and with signs as characters.

    Fractions, roots and braces stay as they are.
    """
    if "\\" not in latex:
        return latex.replace("{,}", ",")
    text = _LATEX_SPACING.sub(lambda thin: _SPACING_REPLACEMENTS.get(thin[0], " "), latex)
    for _ in range(_UNNEST_ROUNDS):  # \textbf{\text{C}}
        bare = _LATEX_TEXT.sub(r" \1 ", text)
        if bare == text:
            break
        text = bare
    text = _LATEX_COMMAND.sub(lambda command: _LATEX_COMMANDS.get(command[1], command[0]), text)
    return _DEGREES.sub("°", text).replace(r"\%", "%").replace(r"\$", "$")
