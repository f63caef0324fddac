"""The benchmarks of other words and of a fall: that they change what they say they change, and nothing else."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from office_own_words import read_questions, read_words, recarded, reworded
from office_robust import (
    CALM,
    CARD_WORDS,
    CrewNotes,
    Fall,
    Known,
    Streams,
    long_card,
    perform_step,
    with_long_cards,
)
from shikisha.conductors.pointer_conductor import load_pointer, shipped_pointer
from shikisha.core.errors import ConfigError
from shikisha.simulation.office.company import OFFICE_OPERATIONS
from shikisha.simulation.office.office_tasks import office_tasks
from shikisha.simulation.office.questions import AuthorSplit
from shikisha.simulation.office.staff import KINDS, CardHonesty

ITEMS = list(office_tasks(AuthorSplit.HELDOUT, 5, CALM, 60))


def test_the_same_task_is_asked_in_other_words(tmp_path: Path) -> None:
    lines = []
    for name, operation in OFFICE_OPERATIONS.items():
        more = " and {y}" * operation.joins + " by {c}" * bool(operation.constants)
        lines.append(f'{name} = ["{name} of {{x}}{more}, {{braces}} stay"]')
    (tmp_path / "questions.toml").write_text("\n".join(lines))
    words = read_questions(tmp_path / "questions.toml")
    for item in ITEMS:
        own = reworded(item, words)
        assert own is not None
        assert (own.question.answer, own.question.parts, own.crew) == (
            item.question.answer,
            item.question.parts,
            item.crew,
        )
        assert all(sentence in own.task.prompt for sentence in own.question.sentences)
        assert own.task.prompt.count("{braces} stay") == len(item.question)
        assert "{x}" not in own.task.prompt
    assert any(reworded(item, {"room": words["room"]}) is None for item in ITEMS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rooms = ['where is {x}?']", "rooms: expected one of room, "),
        ("room = 'where is {x}?'", "room: expected a list of one sentence or more"),
        ("room = []", "room: expected a list of one sentence or more"),
        ("percent = ['{c} of it']", "percent: expected {x} and {c} in each sentence"),
        ("room = [", "expected TOML"),
    ],
)
def test_words_that_cannot_be_used_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "questions.toml").write_text(text)
    with pytest.raises(ConfigError) as found:
        read_questions(tmp_path / "questions.toml")
    assert told in str(found.value)
    with pytest.raises(ConfigError, match="expected TOML"):
        read_words(tmp_path / "nothing.toml", ["people"])


def test_cards_are_reworded_and_lengthened_and_claim_the_same() -> None:
    words = {str(kind): [f"does {kind}"] for kind in KINDS} | {"vague": ["helps"], "generalist": ["does it all"]}
    for item in ITEMS[:20]:
        own = recarded(item, words)
        assert own.crew.claims == item.crew.claims
        for card, claimed, how in zip(own.crew.cards, own.crew.claims, own.crew.honesty, strict=True):
            if claimed and len(claimed) < len(KINDS) and how is not CardHonesty.VAGUE:
                assert {kind for kind in KINDS if f"does {kind}" in card} == claimed
        for before, after in zip(item.crew.cards, with_long_cards(item).crew.cards, strict=True):
            assert len(after.split()) >= CARD_WORDS
            assert before in after
    assert long_card("", random.Random(1))


def test_a_fall_lowers_levels_and_each_task_teaches_the_notes() -> None:
    model, rng = load_pointer(shipped_pointer()), np.random.default_rng(1)
    streams = Streams.draw(3, 40, rng)
    before = streams.truth.levels.copy()
    fallen = np.zeros(40, np.int64)
    streams.fall(fallen)
    assert (streams.truth.levels[:, 0] <= 0.15).all()
    assert (streams.truth.levels[:, 1:] == before[:, 1:]).all()
    step = perform_step(model, streams, rng)
    parts, right = step.given.parts.sum(), step.right.all(-1)
    for known in Known:
        taught = replace(streams, notes=[array.copy() for array in streams.notes])
        notes = CrewNotes.begin(40, known, None, None)
        assert notes.learn(step, taught) == 0
        assert taught.notes[0].sum() - streams.notes[0].sum() == pytest.approx(parts, rel=1e-3)
        shares = [[one.share for one in runs[0][1]] for runs in notes.runs]
        assert all(0 <= share <= 1 for crew in shares for share in crew)
        alone = [step.alone[crew, step.given.parts[crew]].tolist() for crew in range(40)]
        if known is Known.STEPS:
            assert shares == alone
        if known is Known.REPLACED:
            assert all(shares[crew] == alone[crew] for crew in np.nonzero(right)[0])
        if known is Known.GRADE:  # a right run may have been mended
            assert any(0 < share < 1 for crew in np.nonzero(right)[0] for share in shares[crew])
    fading = replace(streams, notes=[array.copy() for array in streams.notes])
    CrewNotes.begin(40, Known.STEPS, 5.0, None).learn(step, fading)
    assert fading.notes[0].sum() < streams.notes[0].sum()


def test_who_fell_is_forgotten_and_its_later_runs_are_kept() -> None:
    model, rng = load_pointer(shipped_pointer()), np.random.default_rng(1)
    streams = Streams.draw(3, 20, rng)
    streams.fall(perform_step(model, streams, rng).choices.workers[:, 0, 0, 0])
    notes, fallen = CrewNotes.begin(20, Known.REPLACED, None, 0.25), 0
    for _ in range(25):
        before = streams.notes[0].sum((1, 2))
        count = notes.learn(perform_step(model, streams, rng), streams)
        fallen += count
        assert (streams.notes[0].sum((1, 2)) < before).sum() == count
    assert fallen >= 2
    counted = streams.notes[0].sum(-1)
    assert counted[counted < 50].size == fallen  # a hundred before, and some since
    assert counted.min() > 0
    for array in streams.notes:
        assert array.min() >= -1e-3


def test_half_of_the_loss_is_regained_where_the_mean_of_ten_tasks_crosses_it() -> None:
    assert Fall(1.0, 0.0, 1.0, np.linspace(0, 1, 101)).regained == 46
    assert Fall(1.0, 0.0, 1.0, np.zeros(50)).regained is None
