r"""Words around an answer that change it: they take it back, bound it, or put another one next to it.

"not 42", "42 is wrong", "> 42" and "43 or 42" all hold the number 42, and none of them answers 42. Whoever extracts an
answer asks here about the text before and after it. Invariants: pure; only a fixed window on either side is read, so
the work does not grow with the text; a double negation ("nothing but", "no doubt") is none. Deliberately absent: how
sure a writer sounds ("maybe 42", "about 42", "42?" answer 42, since one answer is given and no other); bounds that
hold the number itself ("at least 42", as an honest answer to "what is the least …" says it); irony.
"""

import re

_WINDOW = 80

_DOUBLE = re.compile(  # "nothing but C", "no doubt that it is C", "the statement that is not true is C"
    r"(?<!answer )(?<!option )(?<!choice )(?<!one )\b(?:that|which) (?:is|are) (?:not (?:true|correct)|false"
    r"|incorrect)\b|"
    r"\b(?:nothing|none|no) (?:but|other than|except)\b|\b(?:no|without(?: a| any)?|little|beyond(?: a| any)?)"
    r"(?: reasonable)? doubt\b|\bnot only\b|\bwhy not\b"
    r"|(?:n['’]t|\bcannot) be (?:anything|other)\b[^.;\n]{0,20}\b(?:but|than)\b",
    re.IGNORECASE,
)
_FILLERS = (
    r"(?:[\s*_`$\"'(\[{:]*(?:\b(?:the|a|an|be|been|to|of|is|it|this|that|say|choos(?:e|ing)|pick|select|go|with"
    r"|for|answers?"
    r"|options?|choices?|letter|equals?|even|in|fact|quite|including|close|near|really|actually|simply|just"
    r"|necessarily|likely|correct|right|true"
    r"|either|both|value|number|result|solution|think|believe|final|my|one|out|sure|if|whether)\b|\\(?:text"
    r"|mathrm)\s*\{))"
    r"{0,7}[\s*_`$\"'(\[{:\\]*$"
)
_NEGATION = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|without|except|excluding|excludes?|excluded|(?:anything|everything"
    r"|all) but"
    r"|other than|rather than|instead of|differ(?:s|ent)? from|(?:apart|aside|far) from|besides|nowhere near"
    r"|numbers? but|rules?|ruled|ruling|eliminat(?:e|es|ed|ing)|reject(?:s|ed|ing)?|doubt(?:s|ful)?"
    r"|unlikely|hardly|scarcely|refuse|avoid|unless|false|untrue)\b(?!\s+(?:only|out of)\b)|n['’]t\b|[¬≠❌✗✘]|!="
    r"|(?<!\w)!"
    rf"|<>|/=(?=\s)|\\(?:neq?|neg|lnot|not)\b|~\s?\()(?!\s*\w+\s*,){_FILLERS}",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"(?:(?<![-=])[<>≤≥≮≯≪≫]=?|\\(?:le|leq|ge|geq|lt|gt|ll|gg|leqslant|geqslant)\b|\b(?:more|less|fewer|greater"
    r"|larger|smaller|higher"
    r"|lower|bigger|later|earlier|older|younger)\s+than(?:\s+or\s+equal(?:\s+to)?)?|[<>]\s?or\s?=|\b(?:over"
    r"|under|above|below|beneath|beyond|exceed(?:s|ing)?|twice"
    r"|doubles?|half|triple|thrice|near(?!ly)|such as|for example,?|for instance,?|e\.g\.,?|past|times"
    r"|(?:square|cube|cube root|square root|root|factorial|logarithm|sine|cosine|opposite|reciprocal|inverse"
    r"|negative|negation|multiple|percent|per cent|%)\s+of|number like)"
    r"|\b(?:sqrt|log|ln|lg|exp|sin|cos|tan|gcd|lcm|max|min|floor|ceil|abs)\s*\(?)"
    r"(?:\s+(?:the|a|an|of|to))*[\s*_`$(\[{\\]*$",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"(?:\bbetween\b[^.;\n]{1,30}\band|[(\[]\s?-?[\d.]+\s?,|[\d%°](?:\s?[a-z]{1,10})?"
    r"(?:--?|\s?(?:--|\bto\b|\btill\b|\buntil\b|\bthrough\b|\.\.+|…)))[\s$]*$",
    re.IGNORECASE,
)
_BELIED = re.compile(  # "I don't think the answer is", "the wrong answer is"
    r"(?:(?:\b(?:doubt(?:ful)?|cannot|deny|never|false|untrue)|n['’]t|\bnot|\bunlikely)\b"
    r"(?:\s+(?:think|believe|say|mean|claim|sure|certain|it|is|be|true|if|whether|that|the|my|true)\b){0,6}"
    r"|\b(?:wrong|incorrect|false|worst|bad|not the|least \w{1,12}))\s*$",
    re.IGNORECASE,
)
_CLOSE = r"[\s*_`$\"')\]}\\!]*"
_LINK = r"(?:[,:;(\[—=>-]+\s*)?(?:(?:but|and|though|which|that|this|it|so)\s+){0,3}"
_VERB = (
    r"(?:is|was|are|were|would be|must be|may be|might be|can be|could be|has to be|seems(?: to be)?|looks|can"
    r"|could|does"
    r"|do|did|should|will|would|must)"
)
_WRONG = (
    r"(?:(?:clearly|definitely|obviously|probably|surely|also|a|an|the|one of the|simply|just|therefore)\s+){0,3}"
    r"(?:wrong|incorrect|false|untrue|impossible|invalid|mistaken|ruled out|eliminated|excluded|rejected"
    r"|unlikely|out\b|(?:distractor|trap)\b|too (?:high|low|big|small|large|much|little|many|few)"
    r"|(?:not|never)\b(?!\s*(?:only|just)\b)(?!\s*(?:the\s+)?(?:option|choice|answer"
    r"|letter)?\s*[($]*(?:-?[\d\\]|[A-Z]\b)))"
)
_TAKEN_BACK = re.compile(
    rf"{_CLOSE}(?:[✗✘❌×](?!\s*\d)|[(]?\s*{_LINK}(?:{_VERB}\s*(?:n['’]t\b|{_WRONG})\b|(?:ca|is|was|are|does|did"
    rf"|wo|would|could)n['’]t\b"
    rf"|cannot\b|fails?\b|no\W*$|{_WRONG}\b))",
    re.IGNORECASE,
)
_TAKEN_BACK_BY_VERB = re.compile(
    rf"{_CLOSE}(?:[✗✘❌]|{_LINK}(?:{_VERB}\s*(?:n['’]t\b|{_WRONG}\b)|(?:ca|is|was|does|wo|would|could)n['’]t\b))",
    re.IGNORECASE,
)
_COMPARES = re.compile(
    r"[\s*_`$\"')\]}]*(?:\b(?:squared|cubed|factorial|exclusive|choose \d)\b|,?\s?(?:plus or minus"
    r"|give or take)\b|[<>≤≥≠≮≯≪≫]|!=|\\(?:le|leq|ge|geq|lt|gt|neq?|leqslant|geqslant)\b)",
    re.IGNORECASE,
)
_CORRECTED = re.compile(
    r"[\s*_`$\"')\]}\\]*(?:[.,;:?!-]*\s*\(?(?:wait|sorry|scratch that|correction|i mean|actually,?\s+(?:no\b"
    r"|\(?[A-Z]\b|-?\d))\b"
    r"|\?\s*no\b|[.,;:!-]+\s*no[,;.:!]?\s+(?:it is |it's )?[($]*(?:[B-HJ-Z]\b|-?\d))",
    re.IGNORECASE,
)
_HEDGE = (
    r"(?:it|that|the|my|answer|is|could|may|might|can|be|maybe|perhaps|possibly|probably|option|choice|letter"
    r"|either|else"
    r"|also|even|go|going|with|i|i'd|would|pick|choose|say|alternatively|otherwise|as well|more|likely|rather|better)"
)
_OR = (
    r"(?:\b(?:(?:but|though|although) (?:it )?(?:could|might|may|can)|else|or|alternatively|otherwise|xor|vs|versus"
    r"|oder)\b|または|或|[/|∨])"
)
_JOINED = re.compile(rf"{_OR}[\s,.:*_`$(\[]*(?:{_HEDGE}\b[\s,.:*_`$(\[]*){{0,8}}$", re.IGNORECASE)


def _near(before: str) -> str:
    """Return the end of the text before an answer, without what only looks like a negation of it."""
    return _DOUBLE.sub(" ", before[-_WINDOW:])


def negated(before: str) -> bool:
    """Whether the words before an answer deny it: "not", "anything but", "rule out", `≠`, `¬`."""
    return _NEGATION.search(_near(before)) is not None


def belied(before: str) -> bool:
    """Whether what leads to "the answer is" makes it none: "I don't think", "the wrong"."""
    return _BELIED.search(_near(before)) is not None


def compared(before: str) -> bool:
    """Whether what stands before a number makes another of it: a bound, a range's other end, a function, a multiple."""
    near = before[-_WINDOW:]
    return _COMPARED.search(near) is not None or _RANGE.search(near) is not None


def withdrawn(after: str) -> bool:
    """Whether the words after an answer deny it: "is wrong", "(not)", "isn't right", "can be ruled out"."""
    return _TAKEN_BACK.match(after[:_WINDOW]) is not None


def withdrawn_label(after: str) -> bool:
    """Whether the words after a label ("C.", "(C)") deny it; "False" or "No, …" there is the option's own text."""
    return _TAKEN_BACK_BY_VERB.match(after[:_WINDOW]) is not None


def compares(after: str) -> bool:
    """Whether an inequality follows a number, so that the number is a bound."""
    return _COMPARES.match(after[:_WINDOW]) is not None


def corrected(after: str) -> bool:
    """Whether a correction follows at once: ", no, …", ". Wait, …"."""
    return _CORRECTED.match(after[:_WINDOW]) is not None


def joined(before: str) -> bool:
    """Whether "or" and nothing but hedging leads from what stood before to the answer."""
    return _JOINED.search(before[-_WINDOW:]) is not None


def denied(before: str, after: str) -> bool:
    """Whether what stands around an answer takes it back."""
    return negated(before) or withdrawn(after)
