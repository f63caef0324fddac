"""Sensors: what a probe senses at a place. Like a gauge it is read with noise, by other workers."""

from collections.abc import Sequence

from shikisha.simulation.operations import ApplyOperation, Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import Paraphrases, compile_paraphrases, true_reading, word_set

_NAME = "sensor"


def _sensed(quantity: str) -> ApplyOperation:
    def sense(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
        return true_reading(quantity, str(inputs[0]))

    return sense


def _at_the_probe(nouns: str) -> Paraphrases:
    return compile_paraphrases(
        f"the ({nouns}) (sensed|detected) by the (sensor|probe|detector) (at|of) {{x}}",
        f"the ({nouns}) that the (sensor|probe|detector) (at|of) {{x}} (senses|detects)",
        f"the ({nouns}) at the (sensor|probe|detector) of {{x}}",
    )


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "sensor.damp", _NAME, (ValueKind.NAME,), ValueKind.NUMBER, _at_the_probe("damp|moisture"), _sensed("damp")
        ),
        Operation(
            "sensor.pressure",
            _NAME,
            (ValueKind.NAME,),
            ValueKind.NUMBER,
            _at_the_probe("pressure|strain"),
            _sensed("pressure"),
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
