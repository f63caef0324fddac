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
from itertools import pairwise

from shikisha.evals.graders.answer_extraction import (
    StatedAnswer,
    canonical_text,
    fold_characters,
    is_alternative,
    is_compared_after,
    is_compared_before,
    is_corrected,
    is_denied,
    is_label_retracted,
    is_negated,
    is_refusal,
    is_retracted,
    plain_latex,
    stated_answers,
    strip_reasoning,
)
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
_LEAD = (  # words that lead to a chosen letter and say nothing else, in the languages that models answer in
    r"(?:(?:it['’]?s|i['’](?:d|ll)|option|opt|here|for|get|mark|je|ich|choisis|wähle|elijo|escolho|scelgo|kies|wybieram|choice|letter|answers?|ans|alternative|the|is|be|must|would|should|has|have|to|will|so|therefore|thus"
    r"|hence|clearly|most|likely|probably|definitely|certainly|surely|obviously|indeed|just|final|finally|correct|right|best|true|only|my|our|it|this|that|which|one"
    r"|i(?= \w{3})|we|say|think|guess|believe|choose|chose|pick|select|selected|go|going|with|left|solution|result"
    r"|conclusion|overall|leaves?|leaving|matches|corresponds|gives|die|der|antwort|richtige|ist|lautet|daher|la|le"
    r"|bonne|réponse|est|donc|respuesta|correcta|opción|es|por|lo|tanto|a(?=: | (?:resposta|alternativa|opção))"
    r"|resposta|alternativa|opção|é|risposta|corretta|correta|è|quindi|ответ|правильный|верный|вариант|это|het"
    r"|antwoord|juiste|odpowiedź|poprawna|to|cevap|doğru|yanıt|svar|rätt|svaret|är|đáp|án|đúng|là|chọn|jawaban"
    r"|jawabannya|benar|yang|adalah|उत्तर|सही|है|الإجابة|الجواب|الصحيحة|الصحيح|هو|هي)\b|答案|正确|正確|正解|答え|应|應|该|該|所以|因此|故"
    r"|选项|選項|選択肢|选|選|择|擇|为|為|是|は|が|정답|답|은|는)"
)
_MARKUP = r"[\s:*_$`'\"(\[{}<\\.,=>–—→⇒∴✅✔✓👉-]*"
_CHOSEN_LETTER = re.compile(
    rf"{_MARKUP}(?P<lead>(?:{_LEAD}{_MARKUP}){{0,12}})"
    r"(?P<letter>[A-Za-z])(?!['’]?[A-Za-z0-9^]|_\w)(?P<close>[*_$`'\"\]})>\\]*)(?P<next>\s*)(?P<rest>[^\n]{0,60})",
    re.IGNORECASE,
)
_COMMITTED_END = re.compile(  # what may follow a letter that a whole sentence chose
    r"[\s✅✔✓👍😀🙂]*(?:[.,;:!。，、)\]–—-]|$|(?:because|since|as|due|given|it is|is (?:the )?(?:correct|right|best"
    r"|answer)|fits|remains|works|でしょう|です|입니다|이다|。|है)(?![A-Za-z]))"
)
_SENTENCE_END = re.compile(r"(?<![Aa]ns\.)(?<!pt\.)(?<=[.!;。])\s+|(?<=[。])")
_SMALL_LABEL = re.compile(r"\(?[b-z](?:[):]| is (?=correct|right))[^\n]{0,99}")
_UNSURE = re.compile(r"\b(?:if|unless|could|might|may|either|or|maybe|perhaps|else|when|whether|nor)\b", re.IGNORECASE)
_REASON = re.compile(
    r",?\s*(?:(?:because|since|as|due to|given|it is)\b|; (?:the )?(?:other|rest|all other)"
    r"|です|입니다|\((?!\d)[^()]*\)\W*$)"
)
_OR = re.compile(r"\W*(?:or|and)\b", re.IGNORECASE)
_NAMES_ANSWER = re.compile(r"(?:answer|option|choice|letter|is|be)\W*$", re.IGNORECASE)
_ALSO_WORDS = frozenset("AI")
_ONLY_LETTER = re.compile(r"(?<![\w'’=^+/#&])([A-Z])(?![\w'’=^+/#&])")
_AT_AN_END = re.compile(
    r"^[\W_]*[B-HJ-Z]\s?(?:[,;:=]|--?|–|—)\s?\w|\b[A-Z](?:[\W_]*|['’ ][^\W\d_A-Za-z]\w*\W*| là đúng\W*)$|: ?[A-Z]\b"
)
_NO_CHOICE = re.compile(  # a denial or another thing with a letter
    r"\b(?:wrong|incorrect|false|not?|none|all|any\w*|never|without|except|but|trap|distractor|fails|worst|bad|least|eliminate\w*|exclude\w*"
    r"|reject\w*|unlikely|hardly|other than|ruled?|impossible|cannot|minus|plus|grade|vitamin|depends|idea"
    r"|possibl\w+|perhaps|maybe|nicht|kein\w*|pas|non|não|nie|ne|не|нет"
    r"|ikke|inte|niet|değil|không|phải|bukan|नहीं|ليس|ليست|לא|אינה|δεν|ei|nem)\b|"
    r"n['’]t\b|[?%\d✗✘❌≠¬~\\]|!(?!\W*$)|不|非|ない|아니",
    re.IGNORECASE,
)
_CLAUSE_FOLLOWS = re.compile(
    r"(?:because|since|as|for|due|which|with|if|is|and|or|in|by|from|given|but|not|would|according|where|this|it|so"
    r"|on)\b"
)
_SECOND_LETTER = re.compile(
    r"\s*(?:,\s*|\(\s*)?(?:or|and|and/or|/|,|&|\+|\||または|或|和|oder|ou|o|vs\.?|versus)\s*(?:(?:option|choice|possibly"
    r"|maybe|perhaps|both|also|go|going|with|may|might|could|be|it|is|the|answer)\s+)*"
    r"[(*\['\"]*([A-Z])(?![A-Za-z0-9'])(?!\s+(?:is|was|are)\b)"
)
_LATER_LETTER = re.compile(  # anywhere behind the letter on its line
    r"(?<![A-Za-z'(])\(?([A-Z])[)*]{0,3}\s+(?:is|could be|might be|may be|can be|would be)\s+(?:also|too(?=\W*$)"
    r"|possible|equally|just as|another|likewise|plausible|an option)|\b(?:could|might|may|can)\s+(?:also\s+"
    r"|well\s+)?be\s+(?:option\s+)?\(?([A-Z])(?![A-Za-z0-9'])|(?<![A-Za-z'(])\(?([A-Z])[)*]{0,3}\s+(?:could|might"
    r"|may)\s+(?:also\s+|well\s+)?be\b|\balternatively,?\s+\(?([A-Z])(?![A-Za-z0-9'])|\b(?:or|else|otherwise|unless"
    r"|failing|maybe|perhaps|although|though|but)\b(?:\s+(?:even|it|is|that|if not|option|could"
    r"|might))*\s+\(?([B-HJ-Z])(?![A-Za-z0-9'])(?!\s+(?:is|was|are|does|can|must|would)\s?(?:n't|not|wrong|in|un|ir"
    r"|false))|\b(?:also|[Ss]o is)\s+\(?([A-Z])(?![A-Za-z0-9'])|\bif not\s+\(?([B-HJ-Z])\b"
    r"|(?<![A-Za-z'(])([B-HJ-Z])[)*]{0,3}\s+is\s+(?:better|preferable|more likely)|\b(?:or"
    r"|and)\s+\(?([A-Z])\)?\s+(?:is|was)(?:\s+(?:too|as well|right|correct|also))?[\s.!]*$"
)
_TRAILING_LETTER = re.compile(r"[\s,;/.|)*→=>?-]*[(*\[]*([A-Z])[)*.\]!?]*\s*$")
_FINAL_NO = re.compile(r"\bno\W*$", re.IGNORECASE)
_NEGATING_MARKS = (
    re.compile(r"[¬!≠~❌✗✘]=?[\s*_`(]*$|(?:\bnot|n't|\b(?:anything|everything|all) but)\W*$", re.IGNORECASE),
    re.compile(r"[\s*_`)]*(?:[#✗✘❌≠]|\++(?!\s*\w))"),
)
_OPTION_LABEL = re.compile(
    r"(?:\A|\n)[\s*_#>`$\"\\-]{0,12}(?:[([]\s?([A-Z])\s?[)\]]|(?:\*\*|__)([A-Z])(?:\*\*|__):?|([A-Z])\s?"
    r"(?:[).:]{1,2}|\s[-—:/|]))"
    r"(?=[\s*_]|$)"
)
_SAID_CORRECT = re.compile(
    r"(?<![A-Za-z'])\(?([A-Z])[)*_.]{0,3}\s+(?:is|must be|has to be|seems)\s+(?:also\s+|therefore\s+|thus\s+"
    r"|clearly\s+)?(?:(?:the|my|our)\s+)?(?:most\s+likely\s+|single\s+|only\s+)?(?:correct|right|best|true|answer|accurate)\b"
    r"|(?<![A-Za-z'])\(?([B-HJ-Z])[)*_]{0,3}\s+(?:fits|works|remains|matches)\b(?: best)?[\s.!]*$"
)
_SAID_WRONG = re.compile(
    r"(?<![A-Za-z'])\(?([A-Z])[)*_.]{0,3}\s+(?:is|must be|seems)\s+(?:wrong|incorrect|false|not)\b"
)
_PICK_PHRASE = re.compile(
    r"\b(?:leaves|leaving|only|[Oo]ption|[Cc]hoice|[Cc]hoose|[Cc]hose|[Pp]ick|[Ss]elect|go(?:ing)? with|[Mm]atches"
    r"|corresponds? to)"
    r"(?:\s+is)?[\s:*_`]{1,4}(?:(?:option|choice|letter)\s+)?[(\[*]{0,3}([A-Z])(?![A-Za-z0-9'])(?!\s(?:is|are|was)\s+"
    r"(?:not|in|wr|un|ir|false))|[选選]择?項?项?\s?[:(]?\s?([A-Z])(?![A-Za-z0-9])"
)
_BRACKETED_LETTER = re.compile(r"(?<![A-Za-z])\(([A-Z])\)")
_CAPITAL_LETTER = re.compile(r"(?<![A-Za-z'])([B-HJ-Z])(?![A-Za-z'])")
_DENIAL_BEFORE = re.compile(
    r"(?:\b(?:wrong|incorrect|false|worst|bad|least \w{1,12})\s+(?:answer|option|choice)|\b(?:answer|option"
    r"|choice)\s+(?:that|which)\s+is\s+(?:not|wrong|false|incorrect)|\bnever)\b[^,.;:]*$",
    re.IGNORECASE,
)
_LABEL_MARK = re.compile(r"[*_`\s]*[.):\]]|[*_`]+\s")
# Characters from the end that are searched for unannounced letters.
_CHOICE_TAIL = 600
_CHOICE_HEAD = 200
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
    if len(text) <= _SHORT_CHOICE and (is_refusal(text) or _FINAL_NO.search(text)):
        return _AMBIGUOUS
    for letters in _unstated_letters(text):
        if letters:
            return _valid_option(letters.pop(), options) if len(letters) == 1 else _AMBIGUOUS
    return None


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
    return _stated_letter(said, options)


def _stated_letter(said: str, options: int | None) -> str | None:
    """Read the letter at the beginning of an announced answer."""
    found = _CHOSEN_LETTER.match(said)
    if found is None or not _means_a_letter(found):
        return None
    letter = found["letter"].upper()
    if _is_contested(letter, said[: found.start("letter")], said[found.end("letter") :], options):
        return _AMBIGUOUS
    return _valid_option(letter, options)


def _is_contested(letter: str, before: str, after: str, options: int | None) -> bool:
    """Whether the words around a chosen letter deny it, correct it, or choose a second one."""
    line = after.partition("\n")[0]
    taken_back = is_label_retracted if _LABEL_MARK.match(line) else is_retracted
    if is_negated(before) or taken_back(line) or is_corrected(line):
        return True
    bare = line.lstrip("*_`$'\"])}\\")
    others = [_SECOND_LETTER.match(bare), _TRAILING_LETTER.fullmatch(line), *_LATER_LETTER.finditer(line)]
    return any(
        _valid_option(other, options) not in (letter, _AMBIGUOUS)
        for one in others
        if one
        for other in one.groups()
        if other
    )


def _means_a_letter(found: re.Match[str]) -> bool:
    letter, rest = found["letter"], found["rest"]
    if ")" in found["close"]:
        return True
    if found["close"] or not found["next"] or not rest[:1].isalpha():
        return letter.isupper() or not rest[:1].isalpha()
    if letter in "AI" or letter.islower():
        return bool(_CLAUSE_FOLLOWS.match(rest)) or (letter == "A" and rest[0].isupper())
    return True


def _unstated_letters(text: str) -> Iterator[set[str]]:
    """Yield the letters of each way to choose without "the answer is", the clearest way first."""
    text = text[:2].upper() + text[2:] if _SMALL_LABEL.fullmatch(text) else text
    head, tail = text[:_CHOICE_HEAD], text[-_CHOICE_TAIL:]
    first, _, after = text.partition("\n")
    last = text.rpartition("\n")[2][-_LONGEST_LINE:]
    committed = list(_committed_letters(tail))
    alone = {letter for one in (tail.split("\n")) if (letter := _bare_letter(one.strip()))}
    right = [match for match in _SAID_CORRECT.finditer(tail) if not is_retracted(tail[match.end() :])]
    correct = set().union(*(_matched_letters(match, tail) for match in right))
    opening = _bare_letter(first.strip()) or next(_committed_letters(first[:_SHORT_CHOICE]), None)
    if opening and after.strip():  # the reasons come after it
        reasons = f" {after.strip()[:_SHORT_CHOICE]}"
        contested = is_retracted(reasons) or is_corrected(reasons) or _OR.match(after)
        yield {opening, *alone, *correct, *committed[-1:], *([_AMBIGUOUS] if contested else [])}
    yield correct
    lone = _bare_letter(last)
    above = _bare_letter(text[: len(text) - len(last)].rstrip().rpartition("\n")[2].strip()) if lone else None
    yield {lone, above or lone} if lone else set()
    yield set(committed[-1:])
    picked = list(_PICK_PHRASE.finditer(tail))
    yield _matched_letters(picked[-1], tail) if picked else set()
    labels = list(_OPTION_LABEL.finditer(text[: 20 * _CHOICE_TAIL]))
    kept = {_first_group(match) for match in labels if not is_label_retracted(text[match.end() : match.end() + 90])}
    order = [_first_group(match) for match in labels]
    if len(set(order)) == len(order) > 1 and text.startswith(labels[0][0].strip("\n")) and order[0] > order[1]:
        yield {order[0]}  # the chosen option, then the others
    label = _OPTION_LABEL.match(head)
    if label and {_first_group(label)} == (kept or {_first_group(label)}) and (kept or len(labels) == 1):
        line = text[label.end() :].partition("\n")[0]
        another = _SECOND_LETTER.match(line) or _TRAILING_LETTER.fullmatch(line)
        denies = is_label_retracted(line) or _NEGATING_MARKS[1].match(line) is not None
        yield {_first_group(label)} | ({another[1]} if another else {_AMBIGUOUS} if denies else set())
    before = text[: -len(last)].rstrip().rpartition("\n")[2][:20]
    label = _OPTION_LABEL.match(last)
    yield {_first_group(label)} if label and not _OPTION_LABEL.match(before) else set()
    yield _bracketed_letters(last) or _bracketed_letters(tail)
    only = _ONLY_LETTER.findall(text) if len(text) <= _SHORT_CHOICE and not _NO_CHOICE.search(text) else []
    yield set(only) if len(only) == 1 and _AT_AN_END.search(text) else set()


def _committed_letters(text: str) -> Iterator[str]:
    """Yield the letter of each sentence that chooses one and says nothing else: "Therefore D", "I'd say B", "選B"."""
    for line in text.split("\n"):
        ends = [0, *(one.end() for one in _SENTENCE_END.finditer(line)), len(line)]
        for start, end in pairwise(ends):
            letter = _committed_letter(line[start:end], line[end:])
            if letter is not None:
                yield letter


def _committed_letter(sentence: str, rest: str) -> str | None:
    said = plain_latex(sentence[:_LONGEST_LINE])
    for start in (0, said.rfind(",") + 1, said.rfind(":") + 1):
        found = _CHOSEN_LETTER.match(said, start)
        if found is None or "?" in found["rest"] or _UNSURE.search(said[:start]) or "不" in said[:start]:
            continue
        letter, bare = found["letter"].upper(), not found["close"]
        ends = _COMMITTED_END.match(said, found.end("close"))
        if not found["lead"]:
            ends = _REASON.match(said, found.end("close")) if start == 0 and bare else None
        if letter in _ALSO_WORDS and bare and ends and not ends[0].strip() and not _NAMES_ANSWER.search(found["lead"]):
            ends = None  # "Therefore I" was cut off
        if ends or (")" in found["close"] and found["lead"] and not is_retracted(said[found.end("close") :])):
            contested = _is_contested(letter, said[: found.start("letter")], said[found.end("letter") :] + rest, None)
            return _AMBIGUOUS if contested else letter
    return None


def _bracketed_letters(text: str) -> set[str]:
    """Return the letters in brackets: C for "the statement that is not true is (C)", none for "not (C)"."""
    return {
        _AMBIGUOUS if _NEGATING_MARKS[0].search(text, 0, found.start()) else found[1]
        for found in _BRACKETED_LETTER.finditer(text)
    }


def _matched_letters(found: re.Match[str], text: str) -> set[str]:
    """Return the matched letter, and a second one where the text around it is ambiguous."""
    letter = str(next(filter(None, found.groups())))
    at = found.start(next(index for index, group in enumerate(found.groups(), 1) if group))
    before = text[max(0, at - _SHORT_CHOICE) : at].rpartition("\n")[2]
    line = text[found.end() :].partition("\n")[0]
    unsettled = is_negated(before) or _DENIAL_BEFORE.search(before) or _is_contested(letter, "", line, None)
    earlier = _CAPITAL_LETTER.search(before) if is_alternative(before) else None
    denied_too = any(one[1] == letter for one in _SAID_WRONG.finditer(before + line)) and len(text) <= _SHORT_CHOICE
    return {letter, _AMBIGUOUS} if unsettled or denied_too or (earlier and earlier[1] != letter) else {letter}


def _first_group(match: re.Match[str]) -> str:
    return str(next(filter(None, match.groups())))


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
