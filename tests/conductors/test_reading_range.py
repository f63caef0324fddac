"""Reading ranges: own tasks are familiar, ordinary requests are not, and the conductor that cannot read says so."""

import json
from pathlib import Path

import numpy as np
import pytest

from shikisha.conductors.reading_range import (
    ReadingRange,
    background,
    fit_reading_range,
    hash_sentences,
    load_reading_range,
)
from shikisha.core.errors import ConfigError
from shikisha.simulation.office.office_tasks import office_tasks
from shikisha.simulation.office.questions import AuthorSplit, office_authors

EVERYDAY = (Path(__file__).parents[2] / "benchmarks/everyday.txt").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def office() -> ReadingRange:
    taught = list(office_tasks(AuthorSplit.TRAIN, 3, count=250))
    # Six authors are left out at a time: each fit takes a second.
    known = office_authors(AuthorSplit.TRAIN)
    groups = [str(known.index(item.question.author) % 4) for item in taught]
    return fit_reading_range(
        [item.task.prompt for item in taught], groups, [item.question.sentences for item in taught]
    )


def test_held_out_tasks_are_read_and_everyday_ones_are_not(office: ReadingRange) -> None:
    asked = [item.task.prompt for item in office_tasks(AuthorSplit.HELDOUT, 4, count=200)]
    assert np.mean(office.familiarities(asked) < office.threshold) < 0.08
    assert np.mean(office.familiarities(EVERYDAY) < office.threshold) > 0.75
    assert not office.reads("")
    assert not office.reads("指揮者" * 10_000)
    assert not office.reads("\ud800 ?" * 10_000)


def test_a_filler_paragraph_hides_no_question(office: ReadingRange) -> None:
    filler = "I hope your week is going well! Ours has been a bit of a mess, the printer broke twice. "
    assert office.reads(f"{filler}Who is the manager of Ada Abbot?")
    assert not office.reads(filler)


def test_a_range_comes_back_from_its_file_and_another_file_is_refused(office: ReadingRange, tmp_path: Path) -> None:
    file = tmp_path / "reading.json"
    office.save(file)
    again = load_reading_range(file)
    assert np.allclose(again.familiarities(EVERYDAY[:50]), office.familiarities(EVERYDAY[:50]), atol=0.3)
    body = json.loads(file.read_text())
    for wrong, said in (
        ({"format": "x"}, "expected the format"),
        ({"places": [10**6], "weights": [1]}, "expected a weight for each place"),
        ({"threshold": float("nan")}, "expected finite numbers"),
        ({"bias": "much"}, "no reading range"),
    ):
        file.write_text(json.dumps(body | wrong))
        with pytest.raises(ConfigError, match=said):
            load_reading_range(file)
    file.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="no reading range"):
        load_reading_range(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_reading_range(tmp_path / "none.json")


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least 10"):
        fit_reading_range(["one", "two"])


def test_features_mask_names_and_digits_and_the_background_is_there() -> None:
    first, second = hash_sentences(["who is Ada Abbot in B214?"]), hash_sentences(["who is Uma Xu in B905?"])
    assert np.array_equal(first.places, second.places)
    assert len(background()) > 1_000
