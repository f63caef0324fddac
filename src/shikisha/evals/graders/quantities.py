r"""Numbers and units in answers: `-1234.5`, `1/3`, `5 km`, in digits, fractions, powers and LaTeX.

Invariants: values and unit factors are exact fractions, so 5 km and 5000 m are the same number. Work is bounded: a
number with more than 100 digits is compared as text. A number that is only part of an expression does not count, so
neither `2\pi` nor the 2 in it is an answer. Where no number is announced the last one counts, as is usual for word
problems; `3 or 4` is no answer. A unit that is not in the table is compared by its letters alone.

Deliberately absent: numbers in words (five), Roman numerals, and a comma's meaning by country (`1,234` is a thousand
and more, `1,5` is one and a half); exchange rates, calendars (a year is 365.25 days), logarithmic units, and imperial
gallons (a gallon is the US gallon). Values are those of the SI brochure and of the international yard and pound.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from shikisha.core.fast_dataclass import dataclass
from shikisha.evals.graders.answer_extraction import (
    fold_characters,
    is_alternative,
    is_compared_after,
    is_compared_before,
    is_corrected,
    is_denied,
    is_refusal,
    plain_latex,
    stated_answers,
    strip_reasoning,
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as found: its canonical text, its value (None: infinite or too long to reckon with), and its unit."""

    text: str
    value: Fraction | None
    unit: str = ""

    @property
    def percent(self) -> bool:
        """Whether it is a percentage."""
        return self.unit == "%"


# An answer is stated, and it is not one number.
_NOT_ONE_NUMBER = Quantity("", None)


_JUNK = " \t*_`'\"~≈:=#"
_LEAD_IN = re.compile(
    r"(?:(?:approximately|approx\.?|about|around|roughly|nearly|exactly|only|therefore|thus|equal to|a total of"
    r"|is)\b\s*|[-=]>"
    rf"|[{re.escape(_JUNK)}])+",
    re.IGNORECASE,
)
_MINUS_WORD = re.compile(r"\A(?:minus|negative)\s+(?=\d)", re.IGNORECASE)
_CLAUSE_END = re.compile(r"\.(?:\s|$)|;|\n|,?\s(?:because|since|as|where|which|so)\s|\s\(")
_MATH_AFTER = re.compile(
    r"\s*(?:π|√|\\[A-Za-z{]|[\^!·×÷]|\*(?![*\s.]|$)|\*\s[\d\\(]|\.\d|[+/]\s*[\w\\(]|-\s*(?:\d*[a-z]\b|\\|\()|\((?:[\d\\]|[a-z]\b)|[:][\d]|[)}\]]\s*[\^{])"
    r"|[a-zA-Z](?![a-zA-Z°])"
)
_MATH_BEFORE = re.compile(
    r"(?:[√^_{±:/÷·×]|\\[A-Za-z]+\s?\{?|[\w)}]\s?[+*]|[\dA-Za-z)}] -|(?:\b[a-z]|[)}])-|\b[a-z]\(|-\("
    r"|\d[-/]\d{1,2}[-/])\s?[({]?\s?$"
)
_EXPONENT_BEFORE = re.compile(r"[\^_]\{?$")
_EQUALS = re.compile(r"(?<![<>!≠/])[=≈]+")
_DIGIT = re.compile(r"\d")
_STEP = re.compile(
    r"(?:^|[.;,]\s*|\b(?:and|then|first|next|we|i|can|let['’]?s)\s+)(?:convert|subtract|add|multiply|divide|double|halve"
    r"|square|compute|calculate|round|sum)\b(?=[^.;\n]*\d)",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"[=≈:\n]|\b(?:find|obtain|reach|is|are|was|be|gives?|giving|gets?|getting|yields?|makes?|making|equals?|total|result|leaves?|leaving|have|has"
    r"|so|therefore|thus|hence|answer|means)\b|,\s?-?[\d.]+\W*$|[→⇒]|[-=]>",
    re.IGNORECASE,
)
_NUMBER_RUN = re.compile(r"\d[\d.,]*")
_UNKNOWN = re.compile(r"(?:^|[,;]|\b(?:and|or))\s*\$?([A-Za-z](?:_\w)?)\s*=")
_REPLACEMENT = re.compile(r"\s*[;,]?\s*[(\[]?\s*(?:(?:or|maybe|perhaps|possibly|also)\s+){0,3}\$?(?=[-\d.])")
_STATEMENT_END = re.compile(r"\s?[\w%°$]{0,12}\s*[)\].;!?$*]*\s*(?:$|\n|or\b)")
_ROUNDING_SHARE = Fraction(1, 20)  # "1/3 = 0.33", "1.96 (about 2)"
_EITHER = re.compile(r"\s*(?:[A-Za-z%°]{1,12}\s+)?,?\s?(?:or|または|或|oder)\s+(?:[a-z]\s*=\s*|\$)?", re.IGNORECASE)
_SEVERAL = re.compile(r"\s|\s?(?:,|,?\s?and|to|through|thru|until|till|-|,?\s?&)\s?(?:[a-z]\s?=\s?|\$)?")
_PAIR = re.compile(r"\\?[(\[{].*[,;].*[)\]}]")
_UNIT_WORDS = re.compile(
    r"\s?-?([A-Za-z°µμΩ¢$€£¥₹Å]+(?:(?:\^?-?\d)?(?:\s?[/·*]\s?|\s)[A-Za-z°µμΩ$]+){0,3}(?:\^?-?\d)?)"
)
_MORE_THAN_NUMBERS = re.compile(r"[^\d\s.,;|&+$%-]")
_JOINING_WORD = re.compile(r"\b(?:and|or)\b")
_FINAL_NO = re.compile(r"\n\W*no\W*$", re.IGNORECASE)
_LIST_SEPARATOR = re.compile(r"\s?[,;]\s?(?:(?:and|or)\s)?")
# Two numbers with a comma ("in 2020, 42") may measure two things; more are a list.
_FEW = 2
_WINDOW, _BEYOND, _SHORT = 300, 80, 400


def extract_number(answer: str) -> str | None:
    """Return the canonical text of the number that an answer gives, or None."""
    if PLAIN_NUMBER.fullmatch(answer):
        return strip_idle_zeros(answer)
    found = extract_quantity(answer)
    return None if found is None else found.text


def extract_quantity(answer: str) -> Quantity | None:
    """Return the number that an answer gives, with its unit, or None when it gives none, or two."""
    if PLAIN_NUMBER.fullmatch(answer):
        return Quantity(strip_idle_zeros(answer), Fraction(answer if "." in answer else int(answer)))
    text = strip_reasoning(fold_characters(answer))
    for place in stated_answers(text):
        found = _read_quantity(place.text, announced=True)
        if found is None and place.whole:
            # "infinitely many" in a box: no number elsewhere is the answer.
            return None
        if found is not None:
            return found if found.text else None
    if len(text) <= _SHORT:
        if is_refusal(text) or _is_enumeration(text) or _FINAL_NO.search(text):
            return None
        if "\n" not in text:
            found = _read_quantity(text, announced=False)
            return found if found is not None and found.text else None
    # The last number of a text that announces none.
    last = max(text.rfind(digit) for digit in "0123456789")
    if last < 0:
        return None
    start = max(0, last - _WINDOW)
    window = text[start : last + _BEYOND]
    if start:
        window = window[re.search(r"\s|$", window).end() :]  # type: ignore[union-attr] # $ always matches
    window = simplify_latex_numbers(window)
    tokens = [
        token
        for token in NUMBER_TOKEN.finditer(window)
        if not is_denied(window[: token.start()], window[token.end() :])
    ]
    if not tokens or _is_bound(window, tokens[-1]) or _is_instruction(window):
        return None
    found = _quantity_in_context(window, tokens[-1])
    return found if found.text else None


def _read_quantity(said: str, announced: bool) -> Quantity | None:
    """Read a stated answer: None without a number in it, _NOT_ONE_NUMBER when it is not one number."""
    text = simplify_latex_numbers(said[:_SHORT])
    lead = _LEAD_IN.match(text)
    text = _MINUS_WORD.sub("-", text[lead.end() :] if lead else text)
    infinite = INFINITY_TOKEN.fullmatch(text.strip(" .$"))
    if infinite:
        return infinity_from_match(infinite)
    if _PAIR.fullmatch(text.strip(" .")) and not NUMBER_TOKEN.fullmatch(text.strip(" .()[]{}\\")):
        return _NOT_ONE_NUMBER
    clause = _first_clause(text)
    tokens = [token for token in NUMBER_TOKEN.finditer(clause) if not _EXPONENT_BEFORE.search(clause, 0, token.start())]
    if not tokens:
        return None
    if _is_instruction(text):
        return _NOT_ONE_NUMBER
    if _two_answers(clause, tokens, announced) or _another_follows(tokens, text[len(clause) :]):
        return _NOT_ONE_NUMBER
    tokens = [token for token in tokens if not is_denied(text[: token.start()], text[token.end() :])]
    if not tokens or (announced and is_corrected(text[tokens[0].end() :])):
        return _NOT_ONE_NUMBER
    first = tokens[0].start() <= len(clause) - len(clause.lstrip(" ([")) + 1
    meant = tokens[0] if first and announced else tokens[-1]
    if _is_bound(text, meant):
        return _NOT_ONE_NUMBER
    return (
        next(_equation_quantities(clause), _NOT_ONE_NUMBER)
        if _EQUALS.search(clause)
        else _quantity_in_context(clause, meant)
    )


def _is_instruction(text: str) -> bool:
    """Whether the last step that a text names is work to be done, without a result: "subtract 40 from 400"."""
    steps = list(_STEP.finditer(text))
    return len(steps) > 0 and len(_NUMBER_RUN.findall(text)) > 1 and _RESULT.search(text, steps[-1].end()) is None


def _first_clause(text: str) -> str:
    for end in _CLAUSE_END.finditer(text):
        if any(char.isdigit() for char in text[: end.start()]):
            return text[: end.start()]
    return text


def _two_answers(clause: str, tokens: list[re.Match[str]], announced: bool) -> bool:
    for one, other in pairwise(tokens):
        between = clause[one.end() : other.start()]
        either = _EITHER.fullmatch(between) or is_alternative(between) or (announced and _SEVERAL.fullmatch(between))
        if either and quantity_from_match(one).text != quantity_from_match(other).text:
            return True
    return len(tokens) > _FEW and all(
        _LIST_SEPARATOR.fullmatch(clause[one.end() : other.start()]) for one, other in pairwise(tokens[-_FEW - 1 :])
    )


def _is_bound(text: str, token: re.Match[str]) -> bool:
    """Whether the words around a number make it a bound or part of another number."""
    return is_compared_before(text[: token.start()]) or is_compared_after(text[token.end() :])


def _another_follows(tokens: list[re.Match[str]], rest: str) -> bool:
    """Whether another number follows a clause's last one as a replacement: "42 (43)", "42; 43", "42 (or 43)"."""
    follows = _REPLACEMENT.match(rest)
    one = quantity_from_match(tokens[-1])
    other = quantity_from_match(again) if follows and (again := NUMBER_TOKEN.match(rest, follows.end())) else None
    if follows is None or other is None or not _STATEMENT_END.match(rest, again.end() if again else 0):
        return False
    return not _may_be_same(one, other)


def _may_be_same(one: Quantity, other: Quantity) -> bool:
    """Whether two numbers may be the same, rounded or in another unit."""
    if one.value is None or other.value is None or one.unit != other.unit:
        return one.text == other.text or one.unit != other.unit
    if one.value.denominator == other.value.denominator == 1:
        return one.value == other.value
    return abs(one.value - other.value) <= _ROUNDING_SHARE * max(abs(one.value), abs(other.value))


def _equation_quantities(clause: str) -> Iterator[Quantity]:
    """Yield the sides of an equation that are plain numbers, the last side first.

    Yield nothing where two of them differ ("41 = 42"), or with several unknowns ("x = 43, y = 42").
    """
    if len({name[1] for name in _UNKNOWN.finditer(clause)}) > 1:
        return
    found: list[Quantity] = []
    alone: list[Quantity] = []
    for side in reversed(_EQUALS.split(clause)):
        token = NUMBER_TOKEN.search(side)
        if token and not side[: token.start()].strip(" ($"):
            whole = _quantity_in_context(side, token)
            if whole.text:
                found.append(whole)
                alone += [] if _DIGIT.search(side, token.end()) else [whole]
    if all(_may_be_same(one, other) for one, other in pairwise(alone)):
        yield from found


def _quantity_in_context(text: str, token: re.Match[str]) -> Quantity:
    """Return the number with its unit, unless it is only part of an expression."""
    before, after = text[max(0, token.start() - 20) : token.start()], text[token.end() : token.end() + 60]
    if _MATH_BEFORE.search(before):
        return _NOT_ONE_NUMBER
    label = _unit_after(after, alone=token.end() + 60 >= len(text))
    attached = _MATH_AFTER.match(after)
    if attached and not (attached[0].isalpha() and label):
        return _NOT_ONE_NUMBER
    return quantity_from_match(token, label)


def _unit_after(after: str, alone: bool) -> str:
    """Return the unit after a number: the most words that name one, else the words if nothing else follows."""
    words = _UNIT_WORDS.match(after)
    if words is None:
        return ""
    rest = after[words.end() :].strip(" .)]*_`$\"'")
    parts = re.split(r"(?=[\s/·*])", words[1])
    for count in range(len(parts), 0, -1):
        candidate = "".join(parts[:count]).strip()
        last = count == len(parts) and not rest[:1].isalpha()
        if parse_unit(candidate) and (last or len(candidate) > 3):
            return candidate
    single = len(words[1]) == 1
    return words[1] if alone and not rest and len(parts) <= 3 and not single else ""


def _is_enumeration(text: str) -> bool:
    """Whether a text consists of several numbers."""
    if _MORE_THAN_NUMBERS.search(_JOINING_WORD.sub(" ", text)):
        return False
    first: str | None = None
    for token in NUMBER_TOKEN.finditer(text):  # a second number decides: the others need not be read
        value = quantity_from_match(token).text
        if first is not None and value != first:
            return True
        first = value
    return False


# Beyond which a number is compared as text.
_MAX_DIGITS = 100
PLAIN_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_GROUPED_DIGITS = r"[1-9]\d{0,2}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?:[ '_]\d{3})+(?!\d)|[1-9]\d?(?:,\d{2})+,\d{3}(?!\d)"
_DOT_GROUPED_DIGITS = (
    r"[1-9]\d{0,2}(?:\.\d{3})+,\d+(?!\d)|[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.])"  # 1.234,5 and 1.234.567
)
_SEPARATED = re.compile(rf"[^,]*?(?:{_DOT_GROUPED_DIGITS}|{_GROUPED_DIGITS})(?![,\d])[^,]*")
_COMMA = r"(?<!\d,)\d+,\d+(?![,\d])"
_DECIMAL = rf"(?:{_DOT_GROUPED_DIGITS}|(?:{_GROUPED_DIGITS})(?:\.\d+)?|{_COMMA}|\d+(?:\.\d+)?|\.\d+)"
_EXPONENT = r"(?:\s?[×x*·]\s?10\s?\^\s?[{(]?\s?(?P<exponent>[-+]?\d{1,9})\s?[)}]?|[eE](?P<e>[-+]?\d{1,12})(?![\w.]))"
NUMBER_TOKEN = re.compile(
    r"(?P<sign>(?<![\w)\]}%.])[-+](?=[$€£¥₹]?\s?[-\d.∞]))?(?P<money>[$€£¥₹]\s?)?(?P<minus>(?<![\w)])-)?"
    r"(?<![A-Za-z_\d.])(?:"
    rf"(?:(?P<whole>{_GROUPED_DIGITS}|\d+)\s+)?(?P<top>(?:{_GROUPED_DIGITS}|\d+)(?:\.\d+)?)\s?/\s?(?P<bottom>(?:{_GROUPED_DIGITS}|\d+)(?:\.\d+)?)"
    r"(?!\s?/\s?\d)|(?P<base>\d{1,20})\s?\^\s?(?:[{(]\s?(?P<inner>-?\d{1,4})\s?[)}]|(?P<power>-?\d{1,4}))(?!\d)"
    rf"|(?P<decimal>{_DECIMAL}){_EXPONENT}?"
    r"|(?P<inf>∞))(?P<scale>\s?(?:hundred|thousand|million|billion|trillion)\b)?(?P<percent>\s?(?:%|percent(?!age)\b"
    r"|per cent\b))?"
)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
INFINITY_TOKEN = re.compile(r"([-+]?)\s?(?:∞|inf|infinity)", re.IGNORECASE)

_FRACTION = re.compile(
    r"(?P<before>\d\s*|-\s*)?\\frac\s*(?:\{\s*(-?[\d.,]{1,40})\s*\}|(\d))\s*(?:\{\s*(-?[\d.,]{1,40})\s*\}|(\d))"
)
_REPEATING = re.compile(r"(?<![\d.])(\d{0,20})\.(\d{0,20})\\(?:overline|bar)\s*\{(\d{1,20})\}")
_CURRENCY_CODES = re.compile(r"\b(USD|US\$|EUR|GBP|INR|Rs\.?)\s?(?=\d)")
_CURRENCY_SIGNS = {"EUR": "€", "GBP": "£", "INR": "₹", "Rs": "₹", "Rs.": "₹"}
_DELIMITERS = re.compile(r"\\[()\[\]]|(?<!\\)\$\$")
_LATEX_POWER = re.compile(r"\s?\^\s?\{\s?(-?\d{1,9})\s?\}")
# GSM8K's notes of what a calculator was asked.
_CALCULATOR_NOTE = re.compile(r"<<[^<>\n]{0,200}>>")
_SPACES = re.compile(r"[ \t]{2,}")
_DOLLAR = re.compile(r"(?<!\\)\$")


def lone_quantity(math: str) -> Quantity | None:
    """Return the number that a piece of mathematics is, if it is nothing else (except `%`, `°` and currency).

    A comma that does not separate thousands separates numbers here: `1,5` is two.
    """
    text = simplify_latex_numbers(math).strip()
    if "," in text and not _SEPARATED.fullmatch(text):
        return None
    found = NUMBER_TOKEN.fullmatch(text.rstrip("°").rstrip())
    infinite = INFINITY_TOKEN.fullmatch(text)
    return infinity_from_match(infinite) if infinite else quantity_from_match(found) if found else None


def strip_idle_zeros(digits: str) -> str:
    """Return plain digits (as in PLAIN_NUMBER) without leading and trailing zeros."""
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    bare = digits.lstrip("-").lstrip("0")
    bare = bare if bare and bare[0] != "." else f"0{bare}"
    return bare if bare == "0" or digits[0] != "-" else f"-{bare}"


def simplify_latex_numbers(text: str) -> str:
    """Write LaTeX's numbers plainly: `\\frac{1}{2}`, `1{,}000`, `$5$`."""
    if "\\" in text or "$" in text or "{" in text:
        text = plain_latex(strip_math_delimiters(text))
        text = _FRACTION.sub(_fraction_with_slash, _REPEATING.sub(_repeating_decimal, text))
        text = _LATEX_POWER.sub(r"^\1", _SPACES.sub(" ", text))
    if "<<" in text:
        text = _CALCULATOR_NOTE.sub("", text)
    return _CURRENCY_CODES.sub(lambda code: _CURRENCY_SIGNS.get(code[1], "$"), text)


def strip_math_delimiters(text: str) -> str:
    """Remove LaTeX's delimiters: `\\(`, `\\[`, `$$`, and `$` where they come in pairs (a single one is money)."""
    if len(_DOLLAR.findall(text)) % 2 == 0:
        text = _DOLLAR.sub(" ", text)
    return _DELIMITERS.sub(" ", text)


def _fraction_with_slash(fraction: re.Match[str]) -> str:
    before = fraction["before"] or ""
    top, bottom = fraction[2] or fraction[3], fraction[4] or fraction[5]
    if bottom.startswith("-") or (top.startswith("-") and before):
        return fraction[0]
    return f"{before.rstrip()}{' ' if before.strip().isdigit() else ''}{top}/{bottom}"


def _repeating_decimal(decimal: re.Match[str]) -> str:
    whole, once, again = decimal.groups()
    bottom = 10 ** len(once) * (10 ** len(again) - 1)
    value = Fraction(int(whole + once or "0"), 10 ** len(once)) + Fraction(int(again), bottom)
    return f"{value.numerator}/{value.denominator}"


def infinity_from_match(found: re.Match[str]) -> Quantity:
    """Return the quantity of an INFINITY_TOKEN match."""
    return Quantity("-inf" if found[1] == "-" else "inf", None)


def quantity_from_match(token: re.Match[str], label: str = "") -> Quantity:
    """Return the quantity of a NUMBER_TOKEN match; its own `%` or currency takes precedence over the label as unit."""
    negative = (token["sign"] == "-") != (token["minus"] == "-")
    if token["percent"]:
        label = "%"
    elif token["money"]:
        label = label if label in ("cents", "¢") else token["money"].strip()
    if token["inf"]:
        return Quantity("-inf" if negative else "inf", None, label)
    value = _token_value(token)
    if isinstance(value, str):
        return Quantity(f"-{value}" if negative and value else value, None, label)
    value = -value if negative else value
    return Quantity(format_fraction(value), value, label)


def _token_value(token: re.Match[str]) -> Fraction | str:
    """Return a token's value without its sign: as text when it is too long, empty for a division by zero."""
    if token["base"]:
        base = int(token["base"])
        power = int(token["inner"] or token["power"])
        if base.bit_length() * abs(power) > 3 * _MAX_DIGITS:
            return f"{base}^{power}"
        return Fraction(base) ** power if base or power > 0 else ""
    scale = 10 ** _SCALES[token["scale"].strip()] if token["scale"] else 1
    if token["top"]:
        parts = [_decimal_value(token[name] or "0") for name in ("whole", "top", "bottom")]
        if any(isinstance(part, str) for part in parts) or parts[2] == 0:
            return ""
        whole, top, bottom = (Fraction(part) for part in parts)
        return (whole + top / bottom) * scale
    value = _decimal_value(token["decimal"], int(token["exponent"] or token["e"] or 0))
    return value * scale if isinstance(value, Fraction) else value


def _decimal_value(digits: str, exponent: int = 0) -> Fraction | str:
    """Return the value of digits with separators; too many digits are returned as text: 1.5e999."""
    if not exponent and len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit():
        return Fraction(int(digits))
    if re.fullmatch(_DOT_GROUPED_DIGITS, digits):
        digits = digits.replace(".", "").replace(",", ".")
    elif "," in digits and not re.fullmatch(rf"(?:{_GROUPED_DIGITS})(?:\.\d+)?", digits):
        digits = digits.replace(",", ".")
    whole, _, part = re.sub(r"[, '_]", "", digits).partition(".")
    significant = (whole + part).lstrip("0")
    if not significant:
        return Fraction(0)
    if len(whole + part) + abs(exponent) <= _MAX_DIGITS:
        return Fraction(int(significant)) * Fraction(10) ** (exponent - len(part))
    power = len(significant) - 1 - len(part) + exponent
    kept = significant.rstrip("0")
    return f"{kept[0]}{'.' if kept[1:] else ''}{kept[1:]}e{power}"


def format_fraction(value: Fraction) -> str:
    """Return a value's canonical text: a finite decimal, else a fraction in lowest terms."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    if not places:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


Dimension = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit measures, as exponents of base units, and its conversion: base = value × factor + offset."""

    dimension: Dimension
    factor: Fraction
    offset: Fraction = Fraction(0)

    def base(self, value: Fraction) -> Fraction:
        """Return a value in this unit in base units."""
        return value * self.factor + self.offset


_SHORT_PREFIXES = {
    "f": -15, "p": -12, "n": -9, "u": -6, "µ": -6, "μ": -6, "m": -3, "c": -2, "d": -1, "h": 2, "k": 3, "M": 6,
    "G": 9, "T": 12,
}  # fmt: skip
_LONG_PREFIXES = {
    "femto": -15, "pico": -12, "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "hecto": 2, "kilo": 3,
    "mega": 6, "giga": 9, "tera": 12,
}  # fmt: skip

# Symbols and names that take prefixes: base units and exponents, factor.
_METRIC_UNITS = """
m | meter metre | m | 1
g | gram gramme | kg | 1/1000
s | second sec | s | 1
A | ampere amp | A | 1
K | kelvin | K | 1
mol | mole | mol | 1
cd | candela | cd | 1
Hz | hertz | s-1 | 1
N | newton | kg m s-2 | 1
Pa | pascal | kg m-1 s-2 | 1
J | joule | kg m2 s-2 | 1
W | watt | kg m2 s-3 | 1
C | coulomb | A s | 1
V | volt | kg m2 s-3 A-1 | 1
F | farad | kg-1 m-2 s4 A2 | 1
Ω | ohm | kg m2 s-3 A-2 | 1
T | tesla | kg s-2 A-1 | 1
H | henry | kg m2 s-2 A-2 | 1
L l | liter litre | m3 | 1/1000
M | molar | mol m-3 | 1000
eV | electronvolt | kg m2 s-2 | 1.602176634e-19
cal | calorie | kg m2 s-2 | 4.184
bar | bar | kg m-1 s-2 | 100000
Wh | watt-hour | kg m2 s-2 | 3600
B | byte | bit | 8
bit | bit | bit | 1
"""
_OTHER_UNITS = """
min minute | s | 60
h hr hour | s | 3600
d day | s | 86400
week wk | s | 604800
month | s | 2629800
year yr | s | 31557600
in inch inches | m | 0.0254
ft foot feet | m | 0.3048
yd yard | m | 0.9144
mi mile | m | 1609.344
nmi | m | 1852
Å angstrom | m | 1e-10
mph | m s-1 | 0.44704
knot kn | m s-1 | 1852/3600
kph kmh | m s-1 | 1/3.6
acre | m2 | 4046.8564224
ha hectare | m2 | 10000
cc | m3 | 1/1000000
gal gallon | m3 | 0.003785411784
qt quart | m3 | 0.000946352946
pt pint | m3 | 0.000473176473
cup | m3 | 0.0002365882365
oz ounce | kg | 0.028349523125
lb lbs pound | kg | 0.45359237
t tonne ton | kg | 1000
u amu | kg | 1.66053906660e-27
atm atmosphere | kg m-1 s-2 | 101325
mmHg torr Torr | kg m-1 s-2 | 101325/760
psi | kg m-1 s-2 | 6894.757293168
hp horsepower | kg m2 s-3 | 745.69987158227022
rpm | s-1 | 1/60
kwh KWh | kg m2 s-2 | 3600000
KB | bit | 8000
KiB kibibyte | bit | 8192
MiB mebibyte | bit | 8388608
GiB gibibyte | bit | 8589934592
TiB tebibyte | bit | 8796093022208
% percent | | 1/100
° deg degree | degree | 1
rad radian | radian | 1
$ dollar USD US$ usd buck | $ | 1
¢ cent | $ | 1/100
€ euro EUR | € | 1
£ GBP | £ | 1
¥ yen JPY | ¥ | 1
₹ rupee INR Rs | ₹ | 1
"""
_TEMPERATURE_UNITS = {
    ("°c", "degc", "celsius", "degrees celsius", "degree celsius"): (Fraction(1), Fraction("273.15")),
    ("°f", "degf", "fahrenheit", "degrees fahrenheit", "degree fahrenheit"): (
        Fraction(5, 9),
        Fraction("459.67") * Fraction(5, 9),
    ),
}

_BASE_UNIT = re.compile(r"([^\s\d-]+)(-?\d+)?")
_UNIT_FACTOR = re.compile(r"([^\s\d^*·/()]+)(?:\^?\(?(-?\d)\)?)?")
_UNIT_SPLIT = re.compile(r"(/)|[\s*·.]+")
_POWER_WORDS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}  # before the unit
_POWER_SUFFIX = re.compile(r"(\S)\s(squared|cubed)\b")  # after it
_LONGEST_UNIT = 40


def _parse_fraction(text: str) -> Fraction:
    top, _, bottom = text.partition("/")
    return Fraction(top) / Fraction(bottom or 1)


def _make_unit(base: str, factor: str) -> Unit:
    return Unit(
        tuple(sorted((name, int(power or 1)) for name, power in _BASE_UNIT.findall(base))), _parse_fraction(factor)
    )


@lru_cache(maxsize=1)
def _unit_table() -> Mapping[str, Unit]:
    table: dict[str, Unit] = {}
    for line in _METRIC_UNITS.strip().splitlines():
        symbols, names, base, factor = (part.strip() for part in line.split("|"))
        unit = _make_unit(base, factor)
        for words, prefixes in ((symbols, _SHORT_PREFIXES), (names, _LONG_PREFIXES)):
            for word in words.split():
                table[word] = unit
                for prefix, power in prefixes.items():
                    table.setdefault(prefix + word, Unit(unit.dimension, unit.factor * Fraction(10) ** power))
    for line in _OTHER_UNITS.strip().splitlines():
        words, base, factor = (part.strip() for part in line.split("|"))
        table.update(dict.fromkeys(words.split(), _make_unit(base, factor)))
    return table


def _unit_named(word: str) -> Unit | None:
    """Return the unit of one word: as written, then in lowercase, then without its plural."""
    table, small = _unit_table(), word.lower()
    for spelling in (word, small, small.removesuffix("s"), small.removesuffix("es")):
        if spelling in table and (spelling == word or len(spelling) > 1):  # mm is not MM, and c is not C
            return table[spelling]
    return None


@lru_cache(maxsize=4096)
def parse_unit(text: str) -> Unit | None:
    """Return the unit that a text names; None for an unknown one."""
    text = " ".join(text.strip(" .").split())
    if not text or len(text) > _LONGEST_UNIT:
        return None
    for names, (factor, offset) in _TEMPERATURE_UNITS.items():
        if text.lower() in names:
            return Unit((("K", 1),), factor, offset)
    raised = _POWER_SUFFIX.sub(lambda found: found[1] + ("^2" if found[2] == "squared" else "^3"), text)
    text = re.sub(r"\s?\bper\b\s?", "/", raised)
    powers: dict[str, int] = {}
    factor, below, ahead = Fraction(1), False, 1
    for part in _UNIT_SPLIT.split(text):
        if part == "/":
            below = True
        elif part in _POWER_WORDS:
            ahead = _POWER_WORDS[part]
        elif part:
            known = _unit_power(part)
            if known is None:
                return None
            one, power = known
            power *= -ahead if below else ahead
            factor, below, ahead = factor * one.factor**power, False, 1
            for name, exponent in one.dimension:
                powers[name] = powers.get(name, 0) + exponent * power
    return Unit(tuple(sorted((name, power) for name, power in powers.items() if power)), factor)


def _unit_power(part: str) -> tuple[Unit, int] | None:
    match = _UNIT_FACTOR.fullmatch(part)
    known = _unit_named(match[1]) if match else None
    return None if match is None or known is None else (known, int(match[2] or 1))
