"""Reading ranges: own tasks are familiar, ordinary requests are not, and the conductor that cannot read says so."""

from pathlib import Path

import numpy as np
import pytest

from shikisha.core.errors import ConfigError
from shikisha_train.office.office_tasks import office_tasks
from shikisha_train.office.questions import AuthorSplit, office_authors
from shikisha_train.pointer.reading_range import ReadingRange, background, hash_sentences
from shikisha_train.reading_range_fit import fit_reading_range

EVERYDAY = (Path(__file__).parents[3] / "benchmarks/everyday.txt").read_text("utf-8").splitlines()


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


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least 10"):
        fit_reading_range(["one", "two"])


def test_features_mask_names_and_digits_and_the_background_is_there() -> None:
    first, second = hash_sentences(["who is Ada Abbot in B214?"]), hash_sentences(["who is Uma Xu in B905?"])
    assert np.array_equal(first.places, second.places)
    assert len(background()) > 1_000
