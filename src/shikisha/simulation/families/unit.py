"""Units: lengths, volumes and old money, from a larger unit into a smaller one."""

from collections.abc import Sequence

from shikisha.simulation.operations import ApplyOperation, Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import Paraphrases, compile_paraphrases, word_set

_NAME = "unit"


def _times(factor: int) -> ApplyOperation:
    def convert(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
        return factor * int(str(inputs[0]))

    return convert


def _from_into(large: str, small: str, nouns: str) -> Paraphrases:
    return compile_paraphrases(
        f"the ({nouns}) of {{x}} {large} (in|put into|told in) {small}",
        f"the {small} (in|within|contained in) {{x}} {large}",
        f"the {small} that {{x}} {large} (make|hold|amount to) when converted",
    )


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "unit.feet",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _from_into("yards", "feet", "length|span"),
            _times(3),
        ),
        Operation(
            "unit.pints",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _from_into("quarts", "pints", "volume|content"),
            _times(2),
        ),
        Operation(
            "unit.shillings",
            _NAME,
            (ValueKind.NUMBER,),
            ValueKind.NUMBER,
            _from_into("crowns", "shillings", "money|sterling"),
            _times(5),
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
