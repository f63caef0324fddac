"""Gauges: what an instrument shows. Whoever reads one reads it with noise, so several readings and a vote pay."""

from collections.abc import Sequence

from shikisha.simulation.operations import ApplyOperation, Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import Paraphrases, compile_paraphrases, true_reading, word_set

_NAME = "gauge"


def _shown(quantity: str) -> ApplyOperation:
    def show(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
        return true_reading(quantity, str(inputs[0]))

    return show


def _on_the_dial(nouns: str) -> Paraphrases:
    return compile_paraphrases(
        f"the ({nouns}) on the (gauge|dial|meter) of {{x}}",
        f"the ({nouns}) (shown|displayed) by the (gauge|dial|meter) of {{x}}",
        f"the ({nouns}) that the (gauge|dial|meter) of {{x}} (shows|displays)",
    )


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "gauge.level", _NAME, (ValueKind.NAME,), ValueKind.NUMBER, _on_the_dial("level|height"), _shown("level")
        ),
        Operation(
            "gauge.heat", _NAME, (ValueKind.NAME,), ValueKind.NUMBER, _on_the_dial("heat|warmth"), _shown("heat")
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
