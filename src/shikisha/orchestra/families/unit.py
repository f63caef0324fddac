"""Units: lengths, volumes and old money, from a larger unit into a smaller one."""

from collections.abc import Sequence

from shikisha.orchestra.operation import Apply, Family, Operation
from shikisha.orchestra.values import Sort, Value
from shikisha.orchestra.wording import Wordings, bag, wordings

_NAME = "unit"


def _times(factor: int) -> Apply:
    def convert(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
        return factor * int(str(inputs[0]))

    return convert


def _from_into(large: str, small: str, nouns: str) -> Wordings:
    return wordings(
        f"the ({nouns}) of {{x}} {large} (in|put into|told in) {small}",
        f"the {small} (in|within|contained in) {{x}} {large}",
        f"the {small} that {{x}} {large} (make|hold|amount to) when converted",
    )


FAMILY = Family(
    name=_NAME,
    operations=(
        Operation(
            "unit.feet", _NAME, (Sort.NUMBER,), Sort.NUMBER, _from_into("yards", "feet", "length|span"), _times(3)
        ),
        Operation(
            "unit.pints", _NAME, (Sort.NUMBER,), Sort.NUMBER, _from_into("quarts", "pints", "volume|content"), _times(2)
        ),
        Operation(
            "unit.shillings",
            _NAME,
            (Sort.NUMBER,),
            Sort.NUMBER,
            _from_into("crowns", "shillings", "money|sterling"),
            _times(5),
        ),
    ),
    tell=("convert the unit", "do the conversion"),
    offers=(
        "(converts|changes) (lengths|volumes|money) from unit to unit",
        "(does|handles) conversions of (lengths|volumes|money)",
        "(turns|puts) (lengths|volumes|money) into other units",
    ),
    cues=bag("unit units convert converts converted conversion conversions yards feet quarts pints crowns shillings"),
)
