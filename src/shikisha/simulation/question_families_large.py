"""Six more families of questions, which only the large edition has.

`question_families` says what a family is, how to add one, and what its order fixes.
"""

import random
from collections.abc import Callable
from itertools import zip_longest
from typing import TypeAlias

from shikisha.simulation.question_families import (
    ApplyOperation,
    Constants,
    DrawConstants,
    Operation,
    QuestionFamily,
    Values,
    instrument,
)
from shikisha.simulation.values import (
    DIGITS,
    LETTERS,
    SLIP_COUNT,
    SimulatedValue,
    ValueKind,
    corrupt_value,
    to_day,
    to_int,
)
from shikisha.simulation.vocabulary import Paraphrases, word_set

# One digit is the same in every notation, and is its own sum of digits.
_MIN_NUMBER = 10


# Units: lengths, volumes and old money, from a larger unit to a smaller one, so that results stay whole.


def _multiply_by(factor: int) -> ApplyOperation:
    def convert(inputs: Values, _constants: Values) -> SimulatedValue:
        return factor * to_int(inputs[0])

    return convert


def _unit_wordings(large: str, small: str, nouns: str) -> Paraphrases:
    return Paraphrases.of(
        f"the ({nouns}) of {{x}} {large} (in|put into|told in) {small}",
        f"the {small} (in|within|contained in) {{x}} {large}",
        f"the {small} that {{x}} {large} (make|hold|amount to) when converted",
    )


_UNIT_FAMILY = QuestionFamily(
    name="unit",
    operations=(
        Operation(
            "unit.feet",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _unit_wordings("yards", "feet", "length|span"),
            _multiply_by(3),
        ),
        Operation(
            "unit.pints",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _unit_wordings("quarts", "pints", "volume|content"),
            _multiply_by(2),
        ),
        Operation(
            "unit.shillings",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _unit_wordings("crowns", "shillings", "money|sterling"),
            _multiply_by(5),
        ),
    ),
    instructions=("convert the unit", "do the conversion"),
    descriptions=(
        "(converts|changes) (lengths|volumes|money) from unit to unit",
        "(does|handles) conversions of (lengths|volumes|money)",
        "(turns|puts) (lengths|volumes|money) into other units",
    ),
    keywords=word_set(
        "unit units convert converts converted conversion conversions yards feet quarts pints crowns shillings"
    ),
)


# Numerals: a number in another notation, roman, octal or hexadecimal.

_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
# Beyond 3,999 there are no roman numerals, and a slip must have one too.
_MAX_ROMAN = 3_980


def _roman(inputs: Values, _constants: Values) -> SimulatedValue:
    left, written = to_int(inputs[0]), ""
    for worth, sign in _ROMAN:
        times, left = divmod(left, worth) if left > 0 else (0, left)
        # What no right answer leads to stays short.
        written += sign * min(times, 60)
    return written[:60] or "nulla"


def _is_large_enough(_rng: random.Random, inputs: Values) -> Constants:
    return () if to_int(inputs[0]) >= _MIN_NUMBER else None


def _notation_wordings(notation: str) -> Paraphrases:
    return Paraphrases.of(
        f"the value {{x}} (put|set|cast) into {notation} (numerals|notation)",
        f"the {notation} (numerals|notation) (for|of) the value {{x}} in full",
        f"the form that {{x}} (has|takes|gets) in {notation} (numerals|notation)",
    )


_NUMERAL_FAMILY = QuestionFamily(
    name="numeral",
    operations=(
        Operation(
            "numeral.roman",
            (ValueKind.NUMBER,),
            ValueKind.WORD,
            _notation_wordings("roman"),
            _roman,
            lambda _rng, inputs: () if _MIN_NUMBER <= to_int(inputs[0]) <= _MAX_ROMAN else None,
        ),
        Operation(
            "numeral.octal",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _notation_wordings("octal"),
            lambda inputs, _constants: int(format(to_int(inputs[0]), "o")),
            _is_large_enough,
        ),
        Operation(
            "numeral.hexadecimal",
            (ValueKind.NUMBER,),
            ValueKind.WORD,
            _notation_wordings("hexadecimal"),
            lambda inputs, _constants: format(abs(to_int(inputs[0])), "x"),
            _is_large_enough,
        ),
    ),
    instructions=("write the numeral", "change the notation"),
    descriptions=(
        "(writes|sets) (values|amounts) in (roman|octal|hexadecimal) numerals",
        "(knows|handles) (roman|octal|hexadecimal) (notation|numerals)",
        "(changes|puts) values into another notation",
    ),
    keywords=word_set("numeral numerals notation roman octal hexadecimal"),
)


# Weeks: the weekday of a date, and its place in the year.

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


_WEEK_FAMILY = QuestionFamily(
    name="week",
    operations=(
        Operation(
            "week.name",
            (ValueKind.DAY,),
            ValueKind.WORD,
            Paraphrases.of(
                "the weekday (of|on) {x} (by name|in full)",
                "the name that the weekday (of|on) {x} (has|bears|goes by)",
                "the weekday that {x} (makes|falls on)",
            ),
            lambda inputs, _constants: _WEEKDAYS[to_day(inputs[0]).weekday()],
        ),
        Operation(
            "week.place",
            (ValueKind.DAY,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the (rank|place) of {x} (within|inside) its year",
                "the (rank|place) that {x} (takes|holds) (within|inside) its year",
                "the (rank|place) which {x} (takes|holds) in the year",
            ),
            lambda inputs, _constants: to_day(inputs[0]).timetuple().tm_yday,
        ),
    ),
    instructions=("find the weekday", "place it in the year"),
    descriptions=(
        "(tells|names|finds) (weekdays|weeks)",
        "(knows|handles) the (weekdays|weeks) of every year",
        "(places|puts) everything in (weeks|years)",
    ),
    keywords=word_set("weekday weekdays week weeks year years"),
)


# Ciphers: words encoded character by character, and two texts interleaved.

# The place of a sign among so many, to its new place.
_Substitution: TypeAlias = Callable[[int, int], int]


def _caesar(inputs: Values, constants: Values) -> SimulatedValue:
    shift = to_int(constants[0])
    return _encode(str(inputs[0]), lambda place, count: (place + shift) % count)


def _weave(inputs: Values, _constants: Values) -> SimulatedValue:
    pairs = zip_longest(str(inputs[0]), str(inputs[1]), fillvalue="")
    return "".join(one + other for one, other in pairs)


def _encode(text: str, move: _Substitution) -> str:
    found = ""
    for sign in text:
        signs = DIGITS if sign.isdigit() else LETTERS
        found += signs[move(signs.index(sign), len(signs))]
    return found


_CIPHER_FAMILY = QuestionFamily(
    name="cipher",
    operations=(
        Operation(
            "cipher.caesar",
            (ValueKind.WORD,),
            ValueKind.WORD,
            Paraphrases.of(
                "the caesar (cipher|code) of {x} (with|by) a (shift|offset) of {a}",
                "the (cipher|code) of {x} after caesar (with|by) a (shift|offset) of {a}",
            ),
            _caesar,
            lambda rng, inputs: None if str(inputs[0]).isdigit() else (rng.randint(2, 9),),
            slots="a",
        ),
        Operation(
            "cipher.atbash",
            (ValueKind.WORD,),
            ValueKind.WORD,
            Paraphrases.of(
                "the atbash (cipher|code) of {x} in (plain|full) (form|shape)",
                "the atbash (cipher|code) that {x} (gives|yields) in full",
                "the (form|shape) that {x} (takes|gets) in the atbash (cipher|code)",
            ),
            lambda inputs, _constants: _encode(str(inputs[0]), lambda place, count: count - 1 - place),
            lambda _rng, inputs: None if str(inputs[0]).isdigit() else (),
        ),
        Operation(
            "cipher.woven",
            (ValueKind.TEXT, ValueKind.TEXT),
            ValueKind.WORD,
            Paraphrases.of(
                "{x} (woven|braided) (with|into) {y}",
                "{x} in a (weave|braid) with {y}",
                "the cipher that {x} (woven|braided) (with|into) {y} (makes|gives)",
            ),
            _weave,
        ),
    ),
    instructions=("do the cipher", "encode the name"),
    descriptions=(
        "(encodes|enciphers) (names|messages)",
        "(knows|handles) (ciphers|codes) for (names|messages)",
        "(does|is good at) (cipher|code) work",
    ),
    keywords=word_set("cipher ciphers enciphers encode encodes code codes caesar atbash woven braided weave braid"),
)


# Digits: the sum of a number's digits, the sum of their squares, and the number reversed.


def _digits_of(value: SimulatedValue) -> list[int]:
    return [int(sign) for sign in str(abs(to_int(value)))]


def _digit_sum(inputs: Values, _constants: Values) -> SimulatedValue:
    return sum(_digits_of(inputs[0]))


def _digit_square_sum(inputs: Values, _constants: Values) -> SimulatedValue:
    return sum(digit * digit for digit in _digits_of(inputs[0]))


def _flip_digits(inputs: Values, _constants: Values) -> SimulatedValue:
    return int(str(abs(to_int(inputs[0])))[::-1])


def _slips_matter(apply: ApplyOperation) -> DrawConstants:
    """Accept a number if it ends in no zero and every slip in it makes another result."""

    def draw(_rng: random.Random, inputs: Values) -> Constants:
        here = to_int(inputs[0])
        if here < _MIN_NUMBER or here % 10 == 0:
            return None
        right = apply(inputs, ())
        slips = (corrupt_value(here, slip / SLIP_COUNT) for slip in range(SLIP_COUNT))
        return None if any(apply((slip,), ()) == right for slip in slips) else ()

    return draw


_DIGITS_FAMILY = QuestionFamily(
    name="digits",
    operations=(
        Operation(
            "digits.heap",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the digits of {x} (heaped|piled|stacked) up",
                "the (heap|pile|stack) (of|from) the digits (in|of) {x} as one figure",
            ),
            _digit_sum,
            _slips_matter(_digit_sum),
        ),
        Operation(
            "digits.squares",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the squares of the digits (in|of) {x} (heaped|piled|stacked) up",
                "the (heap|pile|stack) of the squares of the digits (in|of) {x} as one figure",
            ),
            _digit_square_sum,
            _slips_matter(_digit_square_sum),
        ),
        Operation(
            "digits.flipped",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the digits of {x} (flipped|turned|swapped) (round|over)",
                "the figure that {x} (makes|becomes) with its digits (flipped|turned|swapped) (round|over)",
            ),
            _flip_digits,
            _slips_matter(_flip_digits),
        ),
    ),
    instructions=("work on the digits", "handle the digits"),
    descriptions=(
        "(works on|handles|heaps up) (digits|single digits)",
        "(flips|squares|stacks) the digits of (numbers|figures)",
        "(does|is good at) digit (work|questions)",
    ),
    keywords=word_set("digit digits"),
)


# Sensors are read with noise, as gauges are, by other workers.


def _sensor_wordings(nouns: str) -> Paraphrases:
    return Paraphrases.of(
        f"the ({nouns}) (sensed|detected) by the (sensor|probe|detector) (at|of) {{x}}",
        f"the ({nouns}) that the (sensor|probe|detector) (at|of) {{x}} (senses|detects)",
        f"the ({nouns}) at the (sensor|probe|detector) of {{x}}",
    )


_SENSOR_FAMILY = QuestionFamily(
    name="sensor",
    operations=(
        Operation(
            "sensor.damp", (ValueKind.NAME,), ValueKind.NUMBER, _sensor_wordings("damp|moisture"), instrument("damp")
        ),
        Operation(
            "sensor.pressure",
            (ValueKind.NAME,),
            ValueKind.NUMBER,
            _sensor_wordings("pressure|strain"),
            instrument("pressure"),
        ),
    ),
    instructions=("ask the sensor", "use the probe"),
    descriptions=(
        "polls (sensors|probes|detectors) (now and then wrongly|with some noise)",
        "(senses|detects) (damp|pressure) (unsteadily|noisily) (through|by) (sensors|probes|detectors)",
    ),
    keywords=word_set("sensor sensors probe probes detector detectors sensed senses detected detects"),
    noisy=True,
)


LARGE_FAMILIES = (_UNIT_FAMILY, _NUMERAL_FAMILY, _WEEK_FAMILY, _CIPHER_FAMILY, _DIGITS_FAMILY, _SENSOR_FAMILY)
