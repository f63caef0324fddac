"""Sensors: what a probe senses at a place. Like a gauge it is read with noise, by other workers."""

from collections.abc import Sequence

from shikisha.orchestra.operation import Apply, Family, Operation
from shikisha.orchestra.values import Sort, Value
from shikisha.orchestra.wording import Wordings, bag, wordings
from shikisha.orchestra.world import truly_shown

_NAME = "sensor"


def _sensed(quantity: str) -> Apply:
    def sense(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
        return truly_shown(quantity, str(inputs[0]))

    return sense


def _at_the_probe(nouns: str) -> Wordings:
    return wordings(
        f"the ({nouns}) (sensed|detected) by the (sensor|probe|detector) (at|of) {{x}}",
        f"the ({nouns}) that the (sensor|probe|detector) (at|of) {{x}} (senses|detects)",
        f"the ({nouns}) at the (sensor|probe|detector) of {{x}}",
    )


FAMILY = Family(
    name=_NAME,
    operations=(
        Operation("sensor.damp", _NAME, (Sort.NAME,), Sort.NUMBER, _at_the_probe("damp|moisture"), _sensed("damp")),
        Operation(
            "sensor.pressure", _NAME, (Sort.NAME,), Sort.NUMBER, _at_the_probe("pressure|strain"), _sensed("pressure")
        ),
    ),
    tell=("ask the sensor", "use the probe"),
    offers=(
        "polls (sensors|probes|detectors) (now and then wrongly|with some noise)",
        "(senses|detects) (damp|pressure) (unsteadily|noisily) (through|by) (sensors|probes|detectors)",
    ),
    cues=bag("sensor sensors probe probes detector detectors sensed senses detected detects"),
    noisy=True,
)
