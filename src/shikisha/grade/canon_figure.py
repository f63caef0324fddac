r"""Figures: how a number is spelled, in digits, fractions, powers and LaTeX, and what it comes to.

Invariants: values are exact fractions; what is reckoned is bounded (a number of more than 100 digits keeps them and is
compared by them); a figure is one number and nothing is evaluated beyond a fraction and a power of two whole numbers.
Deliberately absent: where in a text the figure stands and what surrounds it (`canon_number`).
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from shikisha.grade.canon_fold import plain_math

_DIGITS = 100  # that are reckoned with


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as found: its canonical text, its value (None: infinite or too long to reckon with), and its unit."""

    text: str
    value: Fraction | None
    unit: str = ""

    @property
    def percent(self) -> bool:
        """Whether it is so many of a hundred."""
        return self.unit == "%"


QUICK = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?:[ '_]\d{3})+(?!\d)|[1-9]\d?(?:,\d{2})+,\d{3}(?!\d)"
_POINTED = r"[1-9]\d{0,2}(?:\.\d{3})+,\d+(?!\d)|[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.])"  # 1.234,5 and 1.234.567
_SEPARATED = re.compile(rf"[^,]*?(?:{_POINTED}|{_GROUPED})(?![,\d])[^,]*")
_COMMA = r"(?<!\d,)\d+,\d+(?![,\d])"
_DECIMAL = rf"(?:{_POINTED}|(?:{_GROUPED})(?:\.\d+)?|{_COMMA}|\d+(?:\.\d+)?|\.\d+)"
_EXPONENT = r"(?:\s?[×x*·]\s?10\s?\^\s?[{(]?\s?(?P<exponent>[-+]?\d{1,9})\s?[)}]?|[eE](?P<e>[-+]?\d{1,12})(?![\w.]))"
FIGURE = re.compile(
    r"(?P<sign>(?<![\w)\]}%.])[-+](?=[$€£¥₹]?\s?[-\d.∞]))?(?P<money>[$€£¥₹]\s?)?(?P<minus>(?<![\w)])-)?"
    r"(?<![A-Za-z_\d.])(?:"
    rf"(?:(?P<whole>{_GROUPED}|\d+)\s+)?(?P<top>(?:{_GROUPED}|\d+)(?:\.\d+)?)\s?/\s?(?P<bottom>(?:{_GROUPED}|\d+)(?:\.\d+)?)"
    r"(?!\s?/\s?\d)"
    r"|(?P<base>\d{1,20})\s?\^\s?(?:[{(]\s?(?P<inner>-?\d{1,4})\s?[)}]|(?P<power>-?\d{1,4}))(?!\d)"
    rf"|(?P<decimal>{_DECIMAL}){_EXPONENT}?"
    r"|(?P<inf>∞)"
    r")(?P<scale>\s?(?:hundred|thousand|million|billion|trillion)\b)?(?P<percent>\s?(?:%|percent(?!age)\b|per cent\b))?"
)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
INFINITE = re.compile(r"([-+]?)\s?(?:∞|inf|infinity)", re.IGNORECASE)

_FRACTION = re.compile(
    r"(?P<before>\d\s*|-\s*)?\\frac\s*(?:\{\s*(-?[\d.,]{1,40})\s*\}|(\d))\s*(?:\{\s*(-?[\d.,]{1,40})\s*\}|(\d))"
)
_REPEATING = re.compile(r"(?<![\d.])(\d{0,20})\.(\d{0,20})\\(?:overline|bar)\s*\{(\d{1,20})\}")
_CODES = re.compile(r"\b(USD|US\$|EUR|GBP|INR|Rs\.?)\s?(?=\d)")
_SIGNS = {"EUR": "€", "GBP": "£", "INR": "₹", "Rs": "₹", "Rs.": "₹"}
_DELIMITERS = re.compile(r"\\[()\[\]]|(?<!\\)\$\$")
_POWER = re.compile(r"\s?\^\s?\{\s?(-?\d{1,9})\s?\}")
_RECKONED = re.compile(r"<<[^<>\n]{0,200}>>")  # GSM8K's notes of what a calculator was asked
_SPACES = re.compile(r"[ \t]{2,}")
_DOLLAR = re.compile(r"(?<!\\)\$")


def lone(math: str) -> Quantity | None:
    """Return the number that a piece of mathematics is, when it is nothing else (but for `%`, `°` and currency).

    A comma that does not separate thousands separates numbers here: `1,5` is two.
    """
    text = cleaned(math).strip()
    if "," in text and not _SEPARATED.fullmatch(text):
        return None
    found = FIGURE.fullmatch(text.rstrip("°").rstrip())
    infinite = INFINITE.fullmatch(text)
    return infinity(infinite) if infinite else quantity_of(found) if found else None


def plain_digits(digits: str) -> str:
    """Return plain digits (as QUICK has them) without idle zeros."""
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    bare = digits.lstrip("-").lstrip("0")
    bare = bare if bare and bare[0] != "." else f"0{bare}"
    return bare if bare == "0" or digits[0] != "-" else f"-{bare}"


def cleaned(text: str) -> str:
    """Write LaTeX's numbers plainly: `\\frac{1}{2}`, `1{,}000`, `$5$`."""
    if "\\" in text or "$" in text or "{" in text:
        text = plain_math(undelimited(text))
        text = _FRACTION.sub(_slashed, _REPEATING.sub(_repeated, text))
        text = _POWER.sub(r"^\1", _SPACES.sub(" ", text))
    if "<<" in text:
        text = _RECKONED.sub("", text)
    return _CODES.sub(lambda code: _SIGNS.get(code[1], "$"), text)


def undelimited(text: str) -> str:
    """Take LaTeX's delimiters away: `\\(`, `\\[`, `$$`, and `$` where they come in pairs (a single one is money)."""
    if len(_DOLLAR.findall(text)) % 2 == 0:
        text = _DOLLAR.sub(" ", text)
    return _DELIMITERS.sub(" ", text)


def _slashed(fraction: re.Match[str]) -> str:
    before = fraction["before"] or ""
    top, bottom = fraction[2] or fraction[3], fraction[4] or fraction[5]
    if bottom.startswith("-") or (top.startswith("-") and before):
        return fraction[0]
    return f"{before.rstrip()}{' ' if before.strip().isdigit() else ''}{top}/{bottom}"


def _repeated(decimal: re.Match[str]) -> str:
    whole, once, again = decimal.groups()
    bottom = 10 ** len(once) * (10 ** len(again) - 1)
    value = Fraction(int(whole + once or "0"), 10 ** len(once)) + Fraction(int(again), bottom)
    return f"{value.numerator}/{value.denominator}"


def infinity(found: re.Match[str]) -> Quantity:
    """Return what INFINITE found."""
    return Quantity("-inf" if found[1] == "-" else "inf", None)


def quantity_of(token: re.Match[str], label: str = "") -> Quantity:
    """Return what FIGURE found; its own `%` or currency goes before the label as its unit."""
    negative = (token["sign"] == "-") != (token["minus"] == "-")
    if token["percent"]:
        label = "%"
    elif token["money"]:
        label = label if label in ("cents", "¢") else token["money"].strip()
    if token["inf"]:
        return Quantity("-inf" if negative else "inf", None, label)
    value = _value(token)
    if isinstance(value, str):
        return Quantity(f"-{value}" if negative and value else value, None, label)
    value = -value if negative else value
    return Quantity(written(value), value, label)


def _value(token: re.Match[str]) -> Fraction | str:
    """Return a token's value without its sign; as text where it is too long; empty for a division by zero."""
    if token["base"]:
        return _powered(int(token["base"]), int(token["inner"] or token["power"]))
    scale = 10 ** _SCALES[token["scale"].strip()] if token["scale"] else 1
    if token["top"]:
        parts = [_decimal(token[name] or "0") for name in ("whole", "top", "bottom")]
        if any(isinstance(part, str) for part in parts) or parts[2] == 0:
            return ""
        whole, top, bottom = (Fraction(part) for part in parts)
        return (whole + top / bottom) * scale
    value = _decimal(token["decimal"], int(token["exponent"] or token["e"] or 0))
    return value * scale if isinstance(value, Fraction) else value


def _powered(base: int, power: int) -> Fraction | str:
    if base.bit_length() * abs(power) > 3 * _DIGITS:
        return f"{base}^{power}"
    return Fraction(base) ** power if base or power > 0 else ""


def _decimal(digits: str, exponent: int = 0) -> Fraction | str:
    """Return the value of digits with separators; too many are returned as text: 1.5e999."""
    if re.fullmatch(_POINTED, digits):
        digits = digits.replace(".", "").replace(",", ".")
    elif "," in digits and not re.fullmatch(rf"(?:{_GROUPED})(?:\.\d+)?", digits):
        digits = digits.replace(",", ".")
    whole, _, part = re.sub(r"[, '_]", "", digits).partition(".")
    significant = (whole + part).lstrip("0")
    if not significant:
        return Fraction(0)
    if len(whole + part) + abs(exponent) <= _DIGITS:
        return Fraction(int(significant)) * Fraction(10) ** (exponent - len(part))
    power = len(significant) - 1 - len(part) + exponent
    kept = significant.rstrip("0")
    return f"{kept[0]}{'.' if kept[1:] else ''}{kept[1:]}e{power}"


def written(value: Fraction) -> str:
    """Return a value's canonical text: a decimal where it ends, else a fraction in lowest terms."""
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
