"""Kinds of work as data: operations with their wordings, and the six families of questions of the small edition.

To add a family, describe it like its neighbors and name it in the tuple at the end of its file. Invariant: an operation
is a pure function of its inputs and constants. Its `draw` returns constants under which every slip in an input changes
the result, or None where there are none for these inputs; the generator then draws again. The order of families, of
operations and of wordings is part of the seeded draws: append only.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import TypeAlias

from shikisha.simulation.values import SLIP_COUNT, SimulatedValue, ValueKind, to_day, to_int
from shikisha.simulation.vocabulary import Paraphrases, fact_table, true_reading, word_set

Values: TypeAlias = Sequence[SimulatedValue]
Constants: TypeAlias = tuple[SimulatedValue, ...] | None  # None: these inputs allow none
ApplyOperation: TypeAlias = Callable[[Values, Values], SimulatedValue]
DrawConstants: TypeAlias = Callable[[random.Random, Values], Constants]


def draw_no_constants(_rng: random.Random, _inputs: Values) -> Constants:
    """Draw nothing: the operation needs inputs only."""
    return ()


@dataclass(frozen=True, eq=False)
class Operation:
    """One kind of part: it takes inputs (slots x and y) and constants (slots a to d, in that order) and gives a value.

    Its name is its family's and its own, with a dot between them.
    """

    name: str
    takes: tuple[ValueKind, ...]
    gives: ValueKind
    words: Paraphrases
    apply: ApplyOperation
    draw: DrawConstants = draw_no_constants
    slots: str = ""  # of the constants

    @cached_property
    def family(self) -> str:
        """The kind of work that it is."""
        return self.name.partition(".")[0]

    @property
    def joins(self) -> bool:
        """Whether it combines two results."""
        return len(self.takes) > 1


@dataclass(frozen=True, eq=False)
class QuestionFamily:
    """A kind of work, with short instructions for it and with descriptions of workers that do it.

    `keywords` speak of this kind of work in instructions and questions; hand-written rules and workers look for them.
    `noisy`: every attempt has its own luck, so that independent attempts and a vote pay.
    """

    name: str
    operations: tuple[Operation, ...]
    instructions: tuple[str, ...]
    descriptions: tuple[str, ...]
    keywords: frozenset[str]
    noisy: bool = False


def instrument(quantity: str) -> ApplyOperation:
    """Return the operation that reads an instrument without error; the noise is the reader's."""
    return lambda inputs, _constants: true_reading(quantity, str(inputs[0]))


# Facts that a table states about a place. The tool searches an SQLite full-text index (`fact_lookup`).


def _fact_wordings(nouns: str) -> Paraphrases:
    return Paraphrases.of(
        f"the ({nouns}) (listed|recorded|noted) for {{x}}",
        f"the (listed|recorded|noted) ({nouns}) of {{x}}",
        f"the ({nouns}) that the (table|register|book) (has|gives) for {{x}}",
        f"the ({nouns}) of {{x}} in the (table|register|book)",
    )


_FACT_FAMILY = QuestionFamily(
    name="fact",
    operations=(
        Operation(
            "fact.tally",
            (ValueKind.NAME,),
            ValueKind.NUMBER,
            _fact_wordings("tally|stock|headcount"),
            lambda inputs, _constants: fact_table()[str(inputs[0])].tally,
        ),
        Operation(
            "fact.keeper",
            (ValueKind.NAME,),
            ValueKind.NAME,
            _fact_wordings("keeper|owner|warden"),
            lambda inputs, _constants: fact_table()[str(inputs[0])].keeper,
        ),
        Operation(
            "fact.founded",
            (ValueKind.NAME,),
            ValueKind.DAY,
            _fact_wordings("founding day|opening day|launch day"),
            lambda inputs, _constants: fact_table()[str(inputs[0])].founded,
        ),
    ),
    instructions=("look up the fact", "find the table entry"),
    descriptions=(
        "(looks up|finds|fetches) (facts|entries|records) in the (table|register|book)",
        "(knows|searches) the (table|register|book) of (facts|records|entries)",
    ),
    keywords=word_set("fact facts look lookup table register book listed recorded noted entry entries records"),
)


# Arithmetic on whole numbers. The tool computes these formulas in Monty (`calculator`).

FORMULAS = {"arithmetic.grow": "a * x + b", "arithmetic.shrink": "a * x - b", "arithmetic.sum": "x + y"}


def _factor_and_rest(rng: random.Random, inputs: Values) -> Constants:
    factor = rng.randint(3, 12)
    most = min(99, factor * to_int(inputs[0]) - 20)
    # What is left stays clear of zero.
    return (factor, rng.randint(11, most)) if most > 11 else None


_ARITHMETIC_FAMILY = QuestionFamily(
    name="arithmetic",
    operations=(
        Operation(
            "arithmetic.grow",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "{a} times {x} (plus|increased by|raised by) {b}",
                "{x} (multiplied by|times) {a} with {b} (added|put on top)",
                "{x} taken {a} times (plus|increased by|raised by) {b}",
                "{b} (more than|added to|on top of) {a} times {x}",
                "{b} (more than|added to|on top of) {x} multiplied by {a}",
            ),
            lambda inputs, constants: to_int(constants[0]) * to_int(inputs[0]) + to_int(constants[1]),
            _factor_and_rest,
            slots="ab",
        ),
        Operation(
            "arithmetic.shrink",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "{a} times {x} (minus|reduced by|lowered by) {b}",
                "{x} (multiplied by|times) {a} with {b} (subtracted|taken off)",
                "{x} taken {a} times (minus|reduced by|lowered by) {b}",
                "{b} (less than|subtracted from|taken from) {a} times {x}",
                "{b} (less than|subtracted from|taken from) {x} multiplied by {a}",
            ),
            lambda inputs, constants: to_int(constants[0]) * to_int(inputs[0]) - to_int(constants[1]),
            _factor_and_rest,
            slots="ab",
        ),
        Operation(
            "arithmetic.sum",
            (ValueKind.NUMBER, ValueKind.NUMBER),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the (sum|total) of {x} and {y}",
                "{x} and {y} (added up|taken together)",
                "the (sum|total) that {x} and {y} (make|give|come to)",
                "the (sum|total) of {x} and {y} (added|taken) together",
            ),
            lambda inputs, _constants: to_int(inputs[0]) + to_int(inputs[1]),
        ),
    ),
    instructions=("do the arithmetic", "calculate the number"),
    descriptions=(
        "(does|handles) (arithmetic|sums|calculations)",
        "(is|serves as) (a calculator|a reckoner) for (numbers|sums)",
        "(adds|multiplies|calculates) (numbers|sums)",
    ),
    keywords=word_set(
        "arithmetic calculate calculates calculator calculations times plus minus multiplied multiply multiplies "
        "increased reduced subtracted lowered raised subtract added add adds summed sum sums total compute "
        "more less reckoner"
    ),
)


# Text: words reversed, scored letter by letter (a is 1, z is 26), and concatenated.


_TEXT_FAMILY = QuestionFamily(
    name="text",
    operations=(
        Operation(
            "text.reverse",
            (ValueKind.TEXT,),
            ValueKind.WORD,
            Paraphrases.of(
                "{x} (spelled|written) (backwards|in reverse|from last to first)",
                "the (mirror|reverse) (spelling|writing) of {x}",
                "the (signs|spelling) of {x} (backwards|in reverse|from last to first)",
            ),
            lambda inputs, _constants: str(inputs[0])[::-1],
            lambda _rng, inputs: None if str(inputs[0]).endswith("0") else (),
        ),
        Operation(
            "text.score",
            (ValueKind.WORD,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the (letter|alphabet) (score|points|worth) of {x}",
                "the (score|points|worth) of the letters (in|of) {x}",
                "the (score|points|worth) that the letters (in|of) {x} (give|have)",
            ),
            lambda inputs, _constants: sum(
                int(sign) if sign.isdigit() else ord(sign) - ord("a") + 1 for sign in str(inputs[0])
            ),
        ),
        Operation(
            "text.join",
            (ValueKind.TEXT, ValueKind.TEXT),
            ValueKind.WORD,
            Paraphrases.of(
                "{x} (directly|closely) (followed by|glued to) {y}",
                "the word that {x} and {y} (form|give) (glued|written|put) together",
                "the (letters|signs) of {x} (followed by|glued to) those of {y}",
            ),
            lambda inputs, _constants: f"{inputs[0]}{inputs[1]}",
        ),
    ),
    instructions=("do the text work", "work on the letters"),
    descriptions=(
        "(works on|handles) (words|letters|spelling)",
        "(turns round|spells out|joins) (words|letters|text)",
        "(does|is good at) (text|spelling|letter) work",
    ),
    keywords=word_set(
        "text letter letters spelled spelling backwards reverse mirror signs alphabet score points worth glued "
        "followed word words"
    ),
)


# Dates: days before, after and between, in the proleptic Gregorian calendar.

_FARTHEST = 5_000  # days
_START = date(1990, 1, 1)


def _moved(day: SimulatedValue, days: SimulatedValue, sign: int) -> date:
    try:
        return to_day(day) + timedelta(days=sign * to_int(days))
    except OverflowError:  # a number that no right answer leads to
        return date.max if sign > 0 else date.min


def _some_days(rng: random.Random, _inputs: Values) -> Constants:
    return (rng.randint(11, 400),)


def _some_day(rng: random.Random, inputs: Values) -> Constants:
    if to_int(inputs[0]) > _FARTHEST:
        return None
    return (_START + timedelta(days=rng.randint(0, 18_000)),)


_DATE_FAMILY = QuestionFamily(
    name="date",
    operations=(
        Operation(
            "date.later",
            (ValueKind.DAY,),
            ValueKind.DAY,
            Paraphrases.of(
                "the (date|day) {a} days (after|past) {x}",
                "the (date|day) that (comes|lies|falls) {a} days (after|past) {x}",
            ),
            lambda inputs, constants: _moved(inputs[0], constants[0], 1),
            _some_days,
            slots="a",
        ),
        Operation(
            "date.earlier",
            (ValueKind.DAY,),
            ValueKind.DAY,
            Paraphrases.of(
                "the (date|day) {a} days (before|ahead of) {x}",
                "the (date|day) that (comes|lies|falls) {a} days (before|ahead of) {x}",
            ),
            lambda inputs, constants: _moved(inputs[0], constants[0], -1),
            _some_days,
            slots="a",
        ),
        Operation(
            "date.reached",
            (ValueKind.NUMBER,),
            ValueKind.DAY,
            Paraphrases.of(
                "the (date|day) (reached|met) from {d} (counting|taking) {x} as days",
                "the (date|day) as many days (after|past) {d} as {x} (says|counts)",
                "{d} (moved|put) (on|ahead) by as many days as {x}",
            ),
            lambda inputs, constants: _moved(constants[0], inputs[0], 1),
            _some_day,
            slots="d",
        ),
        Operation(
            "date.until",
            (ValueKind.DAY,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the days (left|remaining|to go) from {x} (until|till|to) {d}",
                "the (number|count) of days from {x} (until|till|to) {d}",
            ),
            lambda inputs, constants: abs((to_day(constants[0]) - to_day(inputs[0])).days),
            lambda rng, inputs: (to_day(inputs[0]) + timedelta(days=rng.randint(20, 900)),),
            slots="d",
        ),
    ),
    instructions=("work out the date", "count the days"),
    descriptions=(
        "(works out|handles|counts) (dates|days)",
        "(is|serves as) (a calendar|an almanac) for (dates|days)",
        "(is good at|does) (calendar|date) (work|questions)",
    ),
    keywords=word_set("date dates days calendar almanac until after before ahead past reached"),
)


# Comparison: the distance of a number from the nearest or farthest mark, or from another number.

# Marks differ so much that a slip never makes another one count.
_MARK_GAP = SLIP_COUNT + 1
# A smaller distance could be the same from the other side after a slip.
_MIN_DISTANCE = 8


def _distances(inputs: Values, constants: Values) -> list[int]:
    return [abs(to_int(inputs[0]) - to_int(mark)) for mark in constants]


def _apart(inputs: Values, _constants: Values) -> SimulatedValue:
    return abs(to_int(inputs[0]) - to_int(inputs[1]))


def _marks(rng: random.Random, inputs: Values) -> Constants:
    here, distance = to_int(inputs[0]), rng.randint(_MIN_DISTANCE, 40)
    marks: list[SimulatedValue] = []
    for _ in range(3):
        below = here - distance
        marks.append(below if below >= _MIN_DISTANCE and rng.random() < 0.5 else here + distance)  # a coin
        distance += rng.randint(_MARK_GAP, 60)
    rng.shuffle(marks)
    return tuple(marks)


_COMPARISON_FAMILY = QuestionFamily(
    name="comparison",
    operations=(
        Operation(
            "comparison.nearest",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the (distance|gap|space) from {x} to the (nearest|closest) of {a} or {b} or {c}",
                "the (distance|gap|space) of {x} from the (nearest|closest) of {a} or {b} or {c}",
                "the (distance|gap|space) that {x} has to the (nearest|closest) of {a} or {b} or {c}",
            ),
            lambda inputs, constants: min(_distances(inputs, constants)),
            _marks,
            slots="abc",
        ),
        Operation(
            "comparison.farthest",
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the (distance|gap|space) from {x} to the (farthest|remotest) of {a} or {b} or {c}",
                "the (distance|gap|space) of {x} from the (farthest|remotest) of {a} or {b} or {c}",
                "the (distance|gap|space) that {x} has to the (farthest|remotest) of {a} or {b} or {c}",
            ),
            lambda inputs, constants: max(_distances(inputs, constants)),
            _marks,
            slots="abc",
        ),
        Operation(
            "comparison.apart",
            (ValueKind.NUMBER, ValueKind.NUMBER),
            ValueKind.NUMBER,
            Paraphrases.of(
                "the (distance|gap|space) between {x} and {y}",
                "the (distance|gap|space) by which {x} and {y} (differ|lie apart)",
                "the (distance|gap|space) that {x} and {y} (are|lie) apart",
            ),
            _apart,
            lambda _rng, inputs: () if to_int(_apart(inputs, ())) >= _MIN_DISTANCE else None,
        ),
    ),
    instructions=("make the comparison", "compare the numbers"),
    descriptions=(
        "(compares|ranks) (numbers|values|amounts)",
        "(does|handles) comparisons of (numbers|values|amounts)",
        "(says|tells) how far (numbers|values|amounts) are apart",
    ),
    keywords=word_set(
        "comparison compare compares comparisons ranks nearest closest farthest "
        "remotest distance gap space apart differ far"
    ),
)


# Gauges are read with noise, so several readings and a vote beat one reading.


def _gauge_wordings(nouns: str) -> Paraphrases:
    return Paraphrases.of(
        f"the ({nouns}) on the (gauge|dial|meter) of {{x}}",
        f"the ({nouns}) (shown|displayed) by the (gauge|dial|meter) of {{x}}",
        f"the ({nouns}) that the (gauge|dial|meter) of {{x}} (shows|displays)",
    )


_GAUGE_FAMILY = QuestionFamily(
    name="gauge",
    operations=(
        Operation(
            "gauge.level", (ValueKind.NAME,), ValueKind.NUMBER, _gauge_wordings("level|height"), instrument("level")
        ),
        Operation(
            "gauge.heat", (ValueKind.NAME,), ValueKind.NUMBER, _gauge_wordings("heat|warmth"), instrument("heat")
        ),
    ),
    instructions=("read the gauge", "take a reading"),
    descriptions=(
        "reads (gauges|dials|meters) (now and then wrongly|with some noise)",
        "(takes|gives) (unsteady|noisy) readings of (gauges|dials|meters)",
    ),
    keywords=word_set("gauge gauges dial dials meter meters reading readings shown displayed shows displays"),
    noisy=True,
)


SMALL_FAMILIES = (_FACT_FAMILY, _ARITHMETIC_FAMILY, _TEXT_FAMILY, _DATE_FAMILY, _COMPARISON_FAMILY, _GAUGE_FAMILY)
