"""The rehearsal taskset: items, gold answers and grading."""

import io
from itertools import islice

import pytest
from rich.console import Console

from shikisha.core.errors import UnknownName
from shikisha.evals.tasksets.simulated import answer_matches, simulated_items
from shikisha.simulation.demo_run import BASELINE_CONTENDERS, run_demo


def test_a_taskset_is_the_same_sequence_every_time() -> None:
    once, again = (list(simulated_items("heldout", 3, 20)) for _ in range(2))
    assert [(item.task, item.gold) for item in once] == [(item.task, item.gold) for item in again]
    assert [item.task for item in islice(simulated_items("heldout", 3), 5)] == [item.task for item in once[:5]]


def test_an_item_grades_its_own_gold_and_nothing_else() -> None:
    for item in simulated_items("train", 1, 50):
        assert item.grade(f" {item.gold.upper()}. ")
        assert not item.grade(f"{item.gold}0")
        assert not item.grade(None)
        assert not item.grade("")


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("37", "37", True),
        ("37", "037.", True),
        ("2031-05-03", "3 May 2031", True),
        ("kalo", "Kalo", True),
        ("37", "the answer is 37", False),
        ("37", "37 or 38", False),
        ("37", "37.0", False),
    ],
)
def test_grading_compares_normal_forms(gold: str, answer: str, right: bool) -> None:
    assert answer_matches(gold, answer) is right


def test_an_unknown_split_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="dev, heldout, train"):
        simulated_items("test")


async def test_the_demo_shows_every_contender_and_a_run() -> None:
    console = Console(file=io.StringIO(), width=100)
    rows = await run_demo(console, tasks=20, seed=3, pace=0.0)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert [row.contender for row in rows] == list(BASELINE_CONTENDERS)
    assert all(row.summary.count == 20 and row.contender.label in shown for row in rows)
    assert "The workers are simulated" in shown
    assert "One run, conducted by: hand-written rules" in shown
    assert "The same run, explained" in shown
