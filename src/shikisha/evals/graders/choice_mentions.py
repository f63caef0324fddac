"""Read which option a short text commits to, from what each sentence does with each letter that it mentions.

A sentence denies a letter ("not A", "A is wrong", "A and B are out"), entertains it ("A is tempting", "if it were
Italy, A"), or commits to it: a frame of committing leads to it ("I'd settle on", "which leaves", "so"), something is
said of it that is said of answers ("fits best", "is the only one left", "for sure"), or nothing else is in the
sentence. The last committed letter counts. Two letters in one commitment are no choice, and neither is a text that
commits to none. Invariants: pure, and linear in the text. Deliberately absent: other places of an answer (boxes, JSON,
"the answer is"), which take precedence (`canonical_form`).
"""

import re
from collections.abc import Iterator
from enum import Enum

from shikisha.core.fast_dataclass import dataclass
from shikisha.evals.graders.answer_extraction import (
    is_corrected,
    is_label_retracted,
    is_negated,
    is_retracted,
    plain_latex,
)

_LONGEST_LINE = 400
_HEAD, _TAIL = 200, 600  # characters from both ends of a long text that are read
_MENTION = re.compile(
    r"(?<![A-Za-z0-9_'’=^+/#&\\~≠([{])[(\[{]?[*_`\"']{0,3}([A-Z])[*_`\"']{0,3}[)\]}]?(?![A-Za-z0-9_'’=^+#&≠])(?!-\w\w"
    r")"
)
_ARTICLE = re.compile(
    r"\s+(?!through\b|to\b|plus\b|is\b|was\b|are\b|no\b|yes\b|and\b|or\b|nor\b|to\b|over\b|but\b|because\b"
    r"|since\b|as\b)[a-z]"
)
_PRONOUN = re.compile(r"\s*['’\w]")
_SENTENCE_END = re.compile(
    r"(?<=[.!?;])(?<!\bi\.e\.)(?<!\be\.g\.)(?<!\bopt\.)(?<!\bAns\.)(?:(?<!\bno\.)\s+|\s+(?!\d))"
    r"|\n|\.\.\.+\s*"
)
_LABEL_LINE = re.compile(r"[\s*_#>`$\"\\-]{0,12}[([*]{0,3}([A-Z])(?:[)\].:*]{1,4}|\s[-—:/|])(?=[\s*_]+\S)")
_LABELS = re.compile(r"(?:^|\n|[.!?;] +)[\s*_#>`$-]{0,12}[([*]{0,3}([A-Z])(?:[)\].:*]{1,4}|\s[-—:/|])(?=[\s*_]+\S)")
_BARE = re.compile(r"[\W_]*(?:(?:option|choice|answer|letter)\b[\W_]*)?[A-Z][\W_]*", re.IGNORECASE)
_NUMBERED = re.compile(
    r"^\W*(?:(?:question|problem|item|step|task|no|q|#)?[\s.#]{0,2}\d{1,3}\W{1,4}|a:\s(?=\W*[a-z]\W*$))", re.IGNORECASE
)
_LIST_BEFORE = re.compile(
    r"(?:[(\[*]{0,2}[A-Z][)\]*]{0,2}\s*(?:,|/|&|\band\b|\bor\b|\bnor\b|,\s*(?:and|or|nor)\b)\s*)+$"
)
_LIST_AFTER = re.compile(
    r"^(?:\s*(?:,?\s*\b(?:and/or|and|or|nor|maybe|possibly|plus|through|unless|oder|或|または)\b|[,/&+→–-]|[=-]>"
    r"|\s(?=[A-Z]\b))\s*(?:maybe |possibly |perhaps |even |also |option |choice |go with ){0,2}"
    r"[(\[*]{0,2}(?!I\b)[A-Z][)\]*]{0,2}(?![A-Za-z0-9_'’]))+(?:\s*,)?"
)
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:instead of|rather than|over|than|unlike|(?:preferable|superior|opposed|contrary|compared"
    r"|contrast) (?:to|with)|as opposed to|versus|against|(?<=prefer \w )to)"
    r"|(?<!that is )(?<!which is )\b(?:incorrect|wrong|false|eliminated|excluded|rejected|worst"
    r"|least \w+)(?: \w+)?(?: (?:is|are))?\s*:?"
    r"|(?:n['’]t|\bnot) (?:think|believe|say|see)\b[^,;]*|\b(?:eliminating|excluding|ruling out|ruled out"
    r"|discarding|dismiss\w*|avoid)|\b(?:fails|trap|distractor|mistake)\b[^,;]*\bis"
    r"|\bno:?|^\W*all:?|at (?:least|most)|grade|vitamin|not-|non-|~|\\(?:overline|cancel|bar|neg|not)\s*\{?)"
    r"\s*(?:option|choice)?[\s*_`\"'(\[:]*$|\b(?:answer|option|choice|one) (?:that|which) is (?:not "
    r"|in)?(?:wrong|false"
    r"|correct)\b[^,;]*$|\b(?:nicht|kein\w*|pas|não|nie|ne|не|нет|ikke|inte|niet|không|phải|bukan|elijo no"
    r"|no elijo|no"
    r" es)\b|不|非|ليس|ליס|δεν",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"\W{0,5}(?:(?:are|is|was|were|looks?|seems?|appears?|sounds?|must be|has to be|would be|can be|may be)\s+)?"
    r"(?:all |both |clearly |also |just |simply |too |definitely |probably |mostly )*"
    r"(?:hardly|scarcely|far from|never|as good as|no\b(?! doubt| question)|not\b(?!\W*(?:\w+ )?[A-Z]\b| (?:wrong|false"
    r"|incorrect))|wrong|false|incorrect|untrue"
    r"|invalid|impossible|out\b|gone|ruled|excluded|eliminated"
    r"|too (?:broad|narrow|vague|general|specific|strong|weak|extreme|early|late|high|low|long|short|simple|limited)"
    r"|off\b|irrelevant|incomplete|unsupported|unrelated|rejected|discarded|unlikely|✗|❌|✘"
    r"|a (?:common |tempting )?(?:mistake|distractor|trap)|distractors|traps"
    r"|fails?\b|(?:do|does|ca)n)"
    r"|\s+(?:do|does|did|can|could|will|would)(?:n['’]t|\s?not)\b|\s+(?:isn|aren|wasn|won)['’]t\b|.*(?:değil"
    r"|नहीं|ない|아니|아닙|لي)",
    re.IGNORECASE,
)
_ENTERTAINED = re.compile(
    r"\b(?:if|unless|whether|were|suppose|might|could|(?<!we )may|maybe|perhaps|possibly|some|many|others|most people"
    r"|everyone"
    r"|thought|at first|first guess|initially|previously|i said|tempting|close|(?<!most )(?<!more )plausible"
    r"|similar|both|between"
    r"|either|while|although|though|even though|(?<!i )consider|look at|think about|(?:any|every)thing (?:but"
    r"|even|except)|depends"
    r"|answer is none|options|statements|would be the (?:answer|right \w+) (?:in|if"
    r"|for|of)|seems good"
    r"|good,? but|vitamin|of [A-Z] and|option [A-Z] and)\b",
    re.IGNORECASE,
)
_ENTERTAINED_AFTER = re.compile(
    rf"{_ENTERTAINED.pattern}|\b(?:says|stands for|mentions|almost|partly|nearly|half)\b", re.IGNORECASE
)
_CONDITION = re.compile(
    r"^\W*if\b.*\bthen\b(?! i)|\bif\b.*\b(?:were|was|had|would)\b(?!.*\b(?:i|choose|pick|guess)\b)", re.IGNORECASE
)
_SHORT = 100  # characters of a text that mentions one letter and hence is about it
_REJECTING = (
    r"\b(?:contradict|conflict|miss|too|irrelevant|unsupported|lack|violat|off|skip|drop|cross|ignor|strike|leave out"
    r"|remov|eliminat|exclud|reject|discard|dismiss|suppos|assum|whether|unclear|hardly|far from|merit|arguments for"
    r"|as good as|avoid|unlikely)\w*\b"
)
_NO_CHOICE = re.compile(
    rf"{_REJECTING}|\b(?:anything|no|not|none|never|wrong|false|incorrect|fail|trap|distractor|worst|bad|least|but"
    r"|except|without|impossible|cannot|grade|vitamin|who|why|how|says|stands|say|look|think about|minus|plus"
    r"|let (?:us|me (?:think|look|consider))|would)\w*\b"
    r"|n['’]t\b|[?%\d✗✘❌≠¬~\\+]|不|非|ない|아니",
    re.IGNORECASE,
)
_REJECTED_HERE = re.compile(rf"(?:{_REJECTING})\s+(?:[a-z]+\s+){{0,2}}\W*$", re.IGNORECASE)
_DECLINES = re.compile(
    r"\W*(?:it depends|anything\b|everything (?:but|except)|(?:the )?answer(?: is|:) none|(?:from )?[A-Z] to [A-Z]\b)",
    re.IGNORECASE,
)
_CORRECTS = re.compile(r"\b(?:wait|no|hmm|actually|correction|rather|i mean(?:t)?)\b", re.IGNORECASE)
_STATES = re.compile(
    r"\b(?:wait|no|hmm|actually|correction|answer|choose|pick|go with|therefore|i['’]d|also (?:correct|right"
    r"|true|possible))\b",
    re.IGNORECASE,
)
_BOTH_WAYS = re.compile(r"\bis (?:right|correct|true) (?:and|but) (?:also )?(?:wrong|false|incorrect)\b")
_SMALL = re.compile(
    r"^\W*[b-z](?=[):]|\s+is\s+(?:correct|right))|\([b-z](?=\))|\b(?:option|choice|letter|answer|is|it's|choose|chose"
    r"|pick|select|so|with|say|think)\b\W{0,3}[b-z](?=\)|[\W_]*$)",
    re.IGNORECASE,
)
_COMMITS_AFTER = re.compile(
    r"[)\]*_\s,]*(?:\b(?:is|seems?|looks?|appears?|sounds?|must|has|should|would|remains?)\b(?: like| to)?(?: be)?"
    r"(?: \w+ly)?(?: (?:the|my|our|a))?(?: \w+)?(?: \w+)?\s?\b(?:correct|right|best|better|true|answer|one|it|only"
    r"|winner|closest|likely|plausible|accurate|consistent|supported|left|remains|choice|option|match|fit"
    r"|valid|chosen"
    r"|selected|possible|possibility|statement|preferable|superior|closer|reasonable|sound|logical|exact|precise|perfect"
    r"|ideal|apt|suitable|appropriate|spot.on|defensible)\b"
    r"|\b(?:fits?|works?|wins|holds|stands|follows|matches|satisfies|survives|remains|agrees|beats|captures|describes"
    r"|answers|best|better|correctly|prevails|applies|suffices|meets|explains|does(?: fit| work"
    r"| hold)?\b(?! not|n)|makes (?:the )?(?:most |more"
    r" |best )?sense|gets my|has my|can be chosen|it is|it must be|for sure|for me|definitely|certainly|clearly"
    r"|obviously|of course|no (?:doubt|question)|without (?:a )?doubt"
    r"|most likely|probably|with (?:high |full )?confidence"
    r"|i(?:['’]d| would)? (?:think|believe|guess|say|suppose|reckon)|\(?\d{1,3} ?% ?(?:sure|confident)?)"
    r"|\b(?:ist|wäre|est|es|é|è)\b.{0,20}(?:richtig|correct|corrett|bonne|juste)|\s*[:=-]+\s*(?:yes|true"
    r"|correct|right|✓|✅)|\s*the (?:best |right |correct |only )?(?:answer|choice|option|one)\b|\s*(?:to be "
    r"|as )?(?:the )?(?:best |right |correct )?(?:correct|right|best|answer|first)\W*$|\s*là đúng"
    r"|\s*(?:✓|✅|✔)|\W{1,4}(?:yes|true|correct|right)\b)",
    re.IGNORECASE,
)
_VERDICT_LINE = re.compile(rf"[\W_]*[A-Z](?:{_DENIED_AFTER.pattern}|{_COMMITS_AFTER.pattern})", re.IGNORECASE)
_PLAIN_REST = re.compile(
    r"[\s.!,;:)\]}*_`\"'✅✔✓🙂👍]*(?:$|[-–—=(:,./|]|[^\x00-\x7f]|(?:i\.?e\.?|namely|because|since|as|which|not"
    r"|and not|but not|here|now|then|instead|please|too)\b)"
)
# A verdict on a labeled option, and no option's text that begins with such a word.
_LABEL_DENIED = re.compile(
    r"[\W_]{0,5}(?:no|not|wrong|false|incorrect|untrue|out|eliminated|rejected)\s*[.,;]\s*\W?[A-Z]\W", re.IGNORECASE
)
_ONLY = re.compile(r"\b(?:only|just|none but|nothing but|no option but|none except)\s+(?:\w+\s+)?\W*$", re.IGNORECASE)
_SPLITS = re.compile(
    r"[;—:]|,(?!\s*(?:and\s+|or\s+|nor\s+)?[(]?[A-HJ-Z](?![\w'’]))|\b(?:but|however|yet|so|hence|therefore"
    r"|because|since"
    r"|whereas|now|then|it's|the better one is)\b"
)


_REJECTED = re.compile(r"\W*(?:no|false|wrong|incorrect|not (?:true|correct|right))\W*$|\W*[✗❌✘]", re.IGNORECASE)
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
    r"|false|close|almost|also a|partly|nearly|tempting|similar))|\b(?:also"
    r"|[Ss]o is)\s+\(?([A-Z])(?![A-Za-z0-9'])|\bif not\s+\(?([B-HJ-Z])\b"
    r"|(?<![A-Za-z'(])([B-HJ-Z])[)*]{0,3}\s+is\s+(?:better|preferable|more likely)|\b(?:or"
    r"|and)\s+\(?([A-Z])\)?\s+(?:is|was)(?:\s+(?:too|as well|right|correct|also))?[\s.!]*$"
)
_TRAILING_LETTER = re.compile(r"[\s,;/.|)*→=>?-]*[(*\[]*([A-Z])[)*.\]!?]*\s*$")
_EXCLUDED_LETTERS = re.compile(r"(?<!\bif),?\s(?:and\s)?not\s\(?[A-Z]\)?(?:,?\s(?:or|nor|and)\s\(?[A-Z]\)?(?!\w))*")
_LABEL_MARK = re.compile(r"[*_`\s]*[.):\]]|[*_`]+\s")
_OR = re.compile(r"\W*(?:or|and)\b", re.IGNORECASE)
_STATED = re.compile(
    r"Answer: (?:(?:the|option|choice|letter|answer|is|be|it|clearly|probably|most|likely|definitely|therefore|thus"
    r"|simply|just|indeed|obviously|certainly|surely|correct|right|best) ){0,4}\W*",
    re.IGNORECASE,
)
_NOT_WRONG = re.compile(r"\W*(?:is|are|was) not (?:wrong|false|incorrect)\b", re.IGNORECASE)
_TICKED = re.compile(r"[\s)*:.-]*[✅✔✓]")
_LEADS_TO_LABEL = re.compile(
    r"(?:^|[:–—-]|\b(?:is|be|option|choice|answer|so|therefore|thus|hence))\W*$", re.IGNORECASE
)


class _Stance(Enum):
    DENIED = "denied"
    ENTERTAINED = "entertained"
    COMMITTED = "committed"
    MENTIONED = "mentioned"


@dataclass(frozen=True, slots=True)
class _Mention:
    letter: str
    at: int
    start: int
    end: int


def committed_choice(text: str, options: int | None) -> str | None:
    """Return the letter that a text commits to: "" where it is two or none of the options, None where there is none."""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    plain = plain_latex(text.replace("\\(", "(").replace("\\)", ")"))
    lines = [_NUMBERED.sub("", line) for line in plain.split("\n") if not line.rstrip().endswith("?")]
    labels = _LABELS.findall("\n".join(lines))
    listed = len(set(labels)) > 1
    chosen_first = _LABEL_LINE.match(lines[0]) if lines else None
    last = (
        chosen_first[1] if listed and chosen_first and labels[0] > labels[1] else None
    )  # the chosen option, then the others
    opening, denied, mentioned = last, set[str](), set[str]()
    for line in lines:
        body = _LABEL_LINE.sub("", line) if listed and not _VERDICT_LINE.match(line) else line
        for part in _SENTENCE_END.split(body):
            sentence = _NUMBERED.sub("", part[:_LONGEST_LINE]).strip()
            if not sentence or sentence.endswith("?"):
                continue
            if _DECLINES.match(sentence) or (last and _OR.match(sentence)):
                return ""
            found = _read_sentence(sentence, options, listed=not opening)
            denied |= found[_Stance.DENIED]
            mentioned |= found[_Stance.MENTIONED]
            bare = _BARE.fullmatch(sentence) is not None
            chosen = found[_Stance.COMMITTED]
            if opening and not _STATES.search(sentence) and not bare:
                chosen = chosen & {opening}
            both = chosen == found[_Stance.DENIED] or _BOTH_WAYS.search(sentence)
            if len(chosen) > 1 or (chosen and both):
                last = ""
            elif chosen:
                (letter,) = chosen
                # Behind a bare answer come reasons: another letter there is a second answer.
                if _CORRECTS.search(sentence):
                    opening = letter
                last = "" if opening and opening != letter else letter
                opening = letter if opening is None and (bare or (chosen_first and not listed)) else opening
            elif found[_Stance.DENIED] == {last} and not opening:
                last = ""
            opening = opening or ""
    reasons = text.partition("\n")[2]
    if opening and (is_corrected(f" {reasons.strip()}") or is_retracted(f" {reasons.strip()}") or _OR.match(reasons)):
        return ""
    about_one = len(text) <= _SHORT and len(mentioned | denied) == 1 and len(text.split()) != 2
    if last is None and about_one and not _NO_CHOICE.search(text):
        return next(iter(mentioned), None)
    left = mentioned - denied
    return next(iter(left)) if last is None and denied and len(left) == 1 else last


def _read_sentence(sentence: str, options: int | None, *, listed: bool) -> dict["_Stance", set[str]]:
    """Return the letters of a sentence by its stance to them; where it may be, a list commits to all its letters."""
    found: dict[_Stance, set[str]] = {stance: set() for stance in _Stance}
    for one in _mentions(sentence, options):
        stance = _stance(sentence, one)
        others = _LIST_AFTER.match(sentence[one.end :]) if listed else None
        if stance is _Stance.COMMITTED and is_contested(one.letter, "", sentence[one.at + 1 :], options):
            found[stance].add("")
        if others and stance in (_Stance.COMMITTED, _Stance.MENTIONED):
            found[_Stance.COMMITTED] |= {one.letter, *re.findall(r"\b[A-Z]\b", others[0])}
        found[stance].add(one.letter)
        if stance is _Stance.COMMITTED and _STATED.fullmatch(sentence[: one.start]) and not others:
            break  # what follows are reasons
    return found


def _mentions(sentence: str, options: int | None) -> Iterator[_Mention]:
    sentence = _SMALL.sub(lambda found: found[0][:-1] + found[0][-1].upper(), sentence)
    for found in _MENTION.finditer(sentence):
        letter, rest = found[1], sentence[found.end() :]
        bare = found[0] == letter
        if bare and letter == "A" and _ARTICLE.match(rest) and not _COMMITS_AFTER.match(rest):
            continue
        if bare and letter == "I" and (_PRONOUN.match(rest) or options is None):
            continue
        if options is None or ord(letter) - 64 <= options:
            yield _Mention(letter, found.start(1), found.start(), found.end())


def _stance(sentence: str, one: _Mention) -> _Stance:
    before, after = sentence[: one.start], sentence[one.end :]
    if _TICKED.match(after):
        return _Stance.COMMITTED
    marked = one.end - one.start > 1 or _LABEL_LINE.match(sentence[one.start :]) is not None
    if _LABEL_DENIED.match(after):
        return _Stance.DENIED
    if marked and _LEADS_TO_LABEL.search(before) and not is_label_retracted(after) and not _REJECTED.match(after):
        return _Stance.COMMITTED
    alone = before if _COMMITS_AFTER.match(after) else _LIST_BEFORE.sub("", before)
    rest = _LIST_AFTER.sub("", after)
    if _STATED.fullmatch(before) and not is_retracted(after) and not is_negated(before):
        return _Stance.COMMITTED
    if _NOT_WRONG.match(rest):
        return _Stance.ENTERTAINED
    if is_negated(alone) or _DENIED_BEFORE.search(alone) or is_retracted(rest) or _DENIED_AFTER.match(rest):
        return _Stance.DENIED
    clause = [*_SPLITS.split(before)][-1]
    if _REJECTED_HERE.search(clause) and _PLAIN_REST.match(after):
        return _Stance.DENIED
    if _CONDITION.search(before) or _ENTERTAINED.search(clause) or _ENTERTAINED_AFTER.search(_SPLITS.split(after)[0]):
        return _Stance.ENTERTAINED
    if _COMMITS_AFTER.match(after) or _ONLY.search(before):
        return _Stance.COMMITTED
    if _PLAIN_REST.match(after):
        return _Stance.COMMITTED
    return _Stance.MENTIONED


def is_contested(letter: str, before: str, after: str, options: int | None) -> bool:
    """Whether the words around a chosen letter deny it, correct it, or choose a second one."""
    line = _EXCLUDED_LETTERS.sub("", after.partition("\n")[0])
    taken_back = is_label_retracted if _LABEL_MARK.match(line) else is_retracted
    if is_negated(before) or taken_back(line) or is_corrected(line):
        return True
    bare = line.lstrip("*_`$'\"])}\\")
    others = [_SECOND_LETTER.match(bare), _TRAILING_LETTER.fullmatch(line), *_LATER_LETTER.finditer(line)]
    return any(
        other != letter and (options is None or ord(other) - 64 <= options)
        for one in others
        if one
        for other in one.groups()
        if other
    )
