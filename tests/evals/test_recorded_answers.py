"""Canonical forms against what others extracted from the full texts of real models, and how they scored them.

The recorded extraction is a chain of regular expressions whose last guesses at any letter; ours says None there. The
files are described in `../shared/recorded/README.md` and are no part of the project; without them these tests skip.
"""

from collections.abc import Iterator

import pytest
from paths import ROOT

from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.outcomes.log_reader import open_log

FOLDER = ROOT.parent / "shared" / "recorded"

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded answers in {FOLDER}"),
]


def texts(name: str, worker: str) -> Iterator[tuple[str, str, str | None, float]]:
    """Yield the right answer, the full text, and the answer and score that were recorded for it."""
    log = open_log(FOLDER / name)
    responses = log.responses(worker)
    for outcome in log.outcomes_of(worker):
        gold, response = log.gold(outcome.task_id), responses.get(outcome.task_id)
        if response is not None and gold.kind in ("choice", "number"):
            yield gold.answer or "", response, outcome.answer, outcome.score or 0.0


@pytest.mark.full
@pytest.mark.parametrize(
    "worker",
    [
        "gpt4o@hist",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("mathstral-7B", "Meta-Llama-3_1-70B-Instruct")),
    ],
)
def test_the_letter_is_the_recorded_one_wherever_both_found_one(worker: str) -> None:
    pairs = [(canonicalize(text, AnswerForm.CHOICE, 10), answer) for _, text, answer, _ in texts("mmlu-pro", worker)]
    both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    assert len(both) > 0.95 * len(pairs)
    assert sum(ours == theirs for ours, theirs in both) > 0.998 * len(both)


@pytest.mark.parametrize("worker", ["gpt-4o-2024-08-06", "Llama-3.1-405B-Inst@sambanova", "gemma-2-9b-it"])
def test_the_number_is_right_where_it_was_recorded_as_right(worker: str) -> None:
    found = [
        (canonicalize(text, AnswerForm.NUMBER) == canonicalize(gold, AnswerForm.NUMBER), score >= 1)
        for gold, text, _, score in texts("zeroeval", worker)
    ]
    assert len(found) > 1_000
    assert sum(ours == theirs for ours, theirs in found) > 0.99 * len(found)
