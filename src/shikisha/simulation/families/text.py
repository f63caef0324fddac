"""Text: words turned round, counted up letter by letter (a is 1, z is 26), and put together."""

import random
from collections.abc import Sequence

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

_NAME = "text"


def _reverse(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return str(inputs[0])[::-1]


def _no_trailing_zero(_dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return None if str(inputs[0]).endswith("0") else ()


def _score(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return sum(int(sign) if sign.isdigit() else ord(sign) - ord("a") + 1 for sign in str(inputs[0]))


def _together(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return f"{inputs[0]}{inputs[1]}"


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "text.reverse",
            _NAME,
            (ValueKind.TEXT,),
            ValueKind.WORD,
            compile_paraphrases(
                "{x} (spelled|written) (backwards|in reverse|from last to first)",
                "the (mirror|reverse) (spelling|writing) of {x}",
                "the (signs|spelling) of {x} (backwards|in reverse|from last to first)",
            ),
            _reverse,
            _no_trailing_zero,
        ),
        Operation(
            "text.score",
            _NAME,
            (ValueKind.WORD,),
            ValueKind.NUMBER,
            compile_paraphrases(
                "the (letter|alphabet) (score|points|worth) of {x}",
                "the (score|points|worth) of the letters (in|of) {x}",
                "the (score|points|worth) that the letters (in|of) {x} (give|have)",
            ),
            _score,
        ),
        Operation(
            "text.join",
            _NAME,
            (ValueKind.TEXT, ValueKind.TEXT),
            ValueKind.WORD,
            compile_paraphrases(
                "{x} (directly|closely) (followed by|glued to) {y}",
                "the word that {x} and {y} (form|give) (glued|written|put) together",
                "the (letters|signs) of {x} (followed by|glued to) those of {y}",
            ),
            _together,
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
