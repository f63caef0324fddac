"""GRPO of the pointer conductor: credit goes to a decision's own call, and outcomes teach."""

import random
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from shikisha.core.prompts import WORDINGS
from shikisha_train.office.language_lessons import OFFICE_KINDS, card_lessons, draw_lesson
from shikisha_train.office.office_batches import OfficeBatches
from shikisha_train.office.office_tasks import OfficeDistribution
from shikisha_train.office_pointer import READER_TRUNK, OfficeProgress, OfficeTraining, train_office_pointer
from shikisha_train.pointer.part_plans import DOLLAR_WEIGHT
from shikisha_train.pointer.part_tagger import encode_words, score_begins, token_features
from shikisha_train.pointer.pointer_conductor import load_pointer, save_pointer, shipped_pointer
from shikisha_train.pointer.pointer_network import PointerChoices, PointerOutcomes
from shikisha_train.pointer_grpo import PointerTraining, decision_returns, train_pointer
from shikisha_train.task_reader_fit import fit_task_reader, read_trunk

ONE_PART = OfficeDistribution(parts=(1.0,), stakes=0.0)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in several threads may round otherwise from run to run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_return_is_that_of_the_own_call_times_how_often_the_others_are_right() -> None:
    given = OfficeBatches.draw_bank(1, 4, OfficeDistribution(parts=(0.0, 1.0), conditional=0.0, stakes=0.0)).given
    shape = (4, 2, given.parts.shape[1])
    nothing = PointerChoices(
        np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros((*shape, 3), np.int64),
        np.zeros((*shape, 3, len(WORDINGS)), bool), np.zeros((*shape, shape[2]), bool),
    )  # fmt: skip
    right, often = np.ones(shape, bool), np.ones(shape, bool)
    right[:, 1, 0] = False
    often[:, 1, 1] = False  # the second part is right half of the time
    dollars = np.zeros(shape, np.float32)
    dollars[..., 0] = 0.01
    found, _ = decision_returns(PointerOutcomes(right, dollars), PointerOutcomes(often, dollars), nothing, given)
    assert found[0, :, 0] == pytest.approx([0.5 - 0.01 * DOLLAR_WEIGHT, -0.01 * DOLLAR_WEIGHT])
    assert found[0, :, 1] == pytest.approx([1 - 0.01 * DOLLAR_WEIGHT] * 2)


@pytest.mark.usefixtures("one_thread")
def test_a_training_of_the_office_reports_its_updates_and_makes_the_same_file_again(tmp_path: Path) -> None:
    settings, reader = OfficeTraining(seed=3, updates=5, bank=60, every=2), load_pointer(shipped_pointer()).reader
    told: list[OfficeProgress] = []
    for name in ("one", "two"):
        save_pointer(tmp_path / name, train_office_pointer(settings, reader, told.append), settings.describe())
    assert [each.updates for each in told] == [0, 2, 4, 5] * 2
    assert all(each.shares.sum() == pytest.approx(1) for each in told if each.updates)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert load_pointer(tmp_path / "one").reader.kinds == OFFICE_KINDS


@pytest.mark.full
@pytest.mark.usefixtures("one_thread")
def test_outcomes_teach_it_and_the_same_seed_teaches_the_same() -> None:
    batches = OfficeBatches.draw_bank(3, 200, ONE_PART, sizes=(4,))
    values: list[float] = []
    settings = PointerTraining(updates=80, tasks=32, samples=8, seed=2)
    weights = train_pointer(batches, 6, settings, lambda _update, value, _shares: values.append(value))
    assert np.mean(values[-10:]) > np.mean(values[:10]) + 0.1
    again = train_pointer(batches, 6, PointerTraining(updates=3, tasks=32, samples=8, seed=2))
    once_more = train_pointer(batches, 6, PointerTraining(updates=3, tasks=32, samples=8, seed=2))
    assert all(np.array_equal(again[name], once_more[name]) for name in weights)


@pytest.mark.full
@pytest.mark.usefixtures("one_thread")
def test_a_reader_learns_from_its_lessons_where_sentences_begin_and_what_cards_claim() -> None:
    rng = random.Random(1)

    def draw(count: int) -> list[list[tuple[str, str, int]]]:
        return [[(one.text, str(one.role), one.uses) for one in draw_lesson(rng, unmarked=0.0)] for _ in range(count)]

    reader = fit_task_reader(OFFICE_KINDS, draw(160), list(card_lessons()), trunk=read_trunk(READER_TRUNK))
    begins, within = list[float](), list[float]()
    for lesson in draw(20):
        words = [sentence.split() for sentence, _, _ in lesson]
        text = " ".join(word for sentence in words for word in sentence)
        spans = [found.span() for found in re.finditer(r"\S+", text)]
        odds = score_begins(reader.tagger, encode_words(reader.tagger, token_features(text, spans)))
        starts = set(accumulate(map(len, words)))
        for at in range(1, len(spans)):
            (begins if at in starts else within).append(odds[at])
    assert np.mean(np.array(begins)[:, None] > np.array(within)) > 0.85
    assert reader.claims("Reads the power and water meters of our rooms.").argmax() == OFFICE_KINDS.index("meters")
    assert reader.claims("").max() == 0
