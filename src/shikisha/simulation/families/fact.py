"""Facts: what a table says about a place. The tool looks them up with full-text search (`lookup`)."""

from collections.abc import Sequence

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import Paraphrases, compile_paraphrases, fact_table, word_set

_NAME = "fact"


def _tally(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return fact_table()[str(inputs[0])].tally


def _keeper(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return fact_table()[str(inputs[0])].keeper


def _founded(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return fact_table()[str(inputs[0])].founded


def _about(nouns: str) -> Paraphrases:
    return compile_paraphrases(
        f"the ({nouns}) (listed|recorded|noted) for {{x}}",
        f"the (listed|recorded|noted) ({nouns}) of {{x}}",
        f"the ({nouns}) that the (table|register|book) (has|gives) for {{x}}",
        f"the ({nouns}) of {{x}} in the (table|register|book)",
    )


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation("fact.tally", _NAME, (ValueKind.NAME,), ValueKind.NUMBER, _about("tally|stock|headcount"), _tally),
        Operation("fact.keeper", _NAME, (ValueKind.NAME,), ValueKind.NAME, _about("keeper|owner|warden"), _keeper),
        Operation(
            "fact.founded",
            _NAME,
            (ValueKind.NAME,),
            ValueKind.DAY,
            _about("founding day|opening day|launch day"),
            _founded,
        ),
    ),
    instructions=("look up the fact", "find the table entry"),
    descriptions=(
        "(looks up|finds|fetches) (facts|entries|records) in the (table|register|book)",
        "(knows|searches) the (table|register|book) of (facts|records|entries)",
    ),
    keywords=word_set("fact facts look lookup table register book listed recorded noted entry entries records"),
)
