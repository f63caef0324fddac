"""The large edition: the same quality as the small one, which stays what it was to the letter."""

from collections import Counter
from collections.abc import Iterable
from datetime import date
from functools import cache
from hashlib import sha256
from itertools import product

import pytest

from shikisha.errors import UnknownName
from shikisha.orchestra import encore, forms, thought
from shikisha.orchestra.cast import Profile
from shikisha.orchestra.edition import EVERYONE, LARGE, SMALL, edition_named
from shikisha.orchestra.extras import EXTRAS
from shikisha.orchestra.families import FAMILIES, FIRST, OPERATIONS
from shikisha.orchestra.grammar import readings
from shikisha.orchestra.lessons import Curriculum, lesson, phrases
from shikisha.orchestra.players import Player
from shikisha.orchestra.pools import Auditions
from shikisha.orchestra.scene import CANNOT, LACK
from shikisha.orchestra.tasks import LARGE_STANDARD, STANDARD, Item, Recipe, every_slip_tells, item, items
from shikisha.orchestra.tools import work
from shikisha.orchestra.values import Sort, Value, read, show
from shikisha.orchestra.wording import Split
from shikisha.orchestra.world import names
from shikisha.tasksets.load import NAMES, REHEARSALS, load
from shikisha.tasksets.rehearsal import SETS
from shikisha.worker import Request

MANY = 400
TRAINED = Recipe(parts=(0.3, 0.35, 0.35), lacking=0.2)
EIGHT = Recipe(parts=(0, 0, 0, 1), lacking=0.0, auditions=Auditions(sizes=(8,)))
OURS = sorted(set(FAMILIES) - set(FIRST))


@cache
def drawn(split: Split, count: int = MANY) -> list[Item]:
    return list(items(split, 1, LARGE_STANDARD, count))


def digest(texts: Iterable[object]) -> str:
    return sha256("\n".join(map(repr, texts)).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("split", "recipe", "known"),
    [
        (Split.TRAIN, STANDARD, "edec14c9c4a8ecae"),
        (Split.TRAIN, TRAINED, "f6fd534428a28f12"),
        (Split.DEV, STANDARD, "5c1d0c78b6db202f"),
        (Split.HELDOUT, STANDARD, "83b497e90eff6e30"),
        (Split.HELDOUT, EIGHT, "febc62429bb76f01"),
        (Split.HELDOUT, Recipe(auditions=Auditions(single=0.3, only_new=True)), "4959367b00c90fc5"),
    ],
)
def test_the_small_editions_tasks_are_what_they_were_before_there_was_a_large_one(
    split: Split, recipe: Recipe, known: str
) -> None:
    found = items(split, 1, recipe, 60)
    assert digest((one.task.id, one.task.prompt, one.gold, one.casting, one.lacking) for one in found) == known


@pytest.mark.parametrize(
    ("curriculum", "known"),
    [
        (Curriculum(), "da45fa8161c98c11"),
        (Curriculum(drills=1, plans=0), "0ef7a0c926c90676"),
        (Curriculum(encores=1, drills=0, plans=0), "2e7159edf5ccc70c"),
        (Curriculum(best=1), "095d53ba8653dba6"),
    ],
)
def test_the_small_editions_lessons_are_those_that_the_warm_start_read(curriculum: Curriculum, known: str) -> None:
    found = (lesson(2, index, curriculum) for index in range(200))
    assert digest((one.prompt, one.shown, one.taught, one.whole) for one in found) == known


def test_what_the_small_editions_tokenizer_keeps_whole_is_what_it_was() -> None:
    assert digest([thought.pieces(), forms.pieces(SMALL), encore.PIECES, phrases()]) == "ad3e77a8cbf6481d"


def test_a_large_item_hangs_on_split_seed_and_index_alone() -> None:
    first = drawn(Split.DEV, 20)
    again = [item(Split.DEV, 1, index, LARGE_STANDARD) for index in reversed(range(20))]
    assert [one.task for one in first] == [one.task for one in reversed(again)]
    assert first[0].task.domain == "rehearsal-large"
    assert first[0].task.id == "large-dev-1-0"


@pytest.mark.parametrize("split", Split)
def test_every_question_is_read_as_itself_and_nothing_else(split: Split) -> None:
    for one in drawn(split):
        assert list(readings(one.task.prompt)) == [one.question], one.task.prompt


def test_parts_pools_and_families_come_in_their_shares() -> None:
    found = drawn(Split.TRAIN)
    assert min(Counter(len(one.kinds) for one in found).values()) > MANY / 8
    assert {len(one.pool) for one in found} == {4, 5, 6, 7, 8}
    counted = Counter(kind for one in found for kind in one.kinds)
    assert set(counted) == set(FAMILIES)
    assert min(counted.values()) > MANY / 10
    joined = Counter(one.question.parts[-1].uses[0] for one in found if one.question.joined)
    assert set(joined) == {0, 1, 2}  # first arms of one to three parts


def test_training_never_meets_what_is_held_out() -> None:
    for split in (Split.TRAIN, Split.DEV):
        assert not any(one.unseen_pair or one.new_workers for one in drawn(split))
    pairs = {pair for one in drawn(Split.HELDOUT) for pair in LARGE.held_out if pair <= set(one.kinds)}
    assert pairs == set(LARGE.held_out)
    assert sum(one.new_workers for one in drawn(Split.HELDOUT)) > MANY / 4


@pytest.mark.parametrize("split", Split)
def test_a_split_asks_about_its_own_names_in_its_own_words(split: Split) -> None:
    places, keepers = names()
    others = {name for of in (places, keepers) for other in Split if other is not split for name in of[other]}
    said = {words for other in Split if other is not split for one in drawn(other) for _, words in one.casting}
    for one in drawn(split):
        assert not others & {*one.task.prompt.lower().rstrip("?.").replace(",", "").split(), one.gold}
        assert not said & {words for _, words in one.casting}


def test_every_slip_makes_a_wrong_answer_and_no_answer_stands_in_its_question() -> None:
    for one in drawn(Split.TRAIN):
        assert every_slip_tells(one.question, one.gold)
        assert one.gold not in one.task.prompt.lower().rstrip("?.").split()


def test_a_pool_has_the_specialists_unless_one_is_lacking() -> None:
    for one in drawn(Split.HELDOUT):
        able = {family for name in one.pool.names for family in EVERYONE[name].skills}
        assert len(set(one.kinds) - able) == int(one.lacking)


@pytest.mark.parametrize(
    ("operation", "given", "constants", "gives"),
    [
        ("unit.feet", 12, (), 36),
        ("unit.pints", 12, (), 24),
        ("unit.shillings", 12, (), 60),
        ("numeral.roman", 1994, (), "mcmxciv"),
        ("numeral.octal", 64, (), 100),
        ("numeral.hexadecimal", 255, (), "ff"),
        ("week.name", "2026-11-22", (), "sunday"),
        ("week.place", "2024-12-31", (), 366),
        ("cipher.caesar", "xyz8", (3,), "abc1"),
        ("cipher.atbash", "abz", (), "zya"),
        ("digits.heap", 957, (), 21),
        ("digits.squares", 123, (), 14),
        ("digits.flipped", 123, (), 321),
    ],
)
def test_an_operation_does_what_its_name_says(
    operation: str, given: Value, constants: tuple[Value, ...], gives: Value
) -> None:
    assert work(OPERATIONS[operation], [given], constants) == gives


def test_two_texts_are_woven_sign_by_sign() -> None:
    assert OPERATIONS["cipher.woven"].apply(("abc", 12345), ()) == "a1b2c345"


ODD: dict[Sort, tuple[Value, ...]] = {
    Sort.NUMBER: (-6, 0, 1, 3_999, 4_000, 10**9),
    Sort.DAY: (date.min, date(2024, 2, 29), date.max),
    Sort.WORD: ("a", "z9", "99"),
    Sort.TEXT: ("a", 0, -6),
    Sort.NAME: ("kalo",),
}


@pytest.mark.parametrize("name", [name for name, one in OPERATIONS.items() if one.family in OURS])
def test_an_operation_bears_whatever_slips_lead_to_and_answers_can_be_read(name: str) -> None:
    one = OPERATIONS[name]
    for inputs in product(*(ODD[sort] for sort in one.takes)):
        found = show(one.apply(inputs, (3,) * len(one.slots)))
        assert read(found, one.gives) is not None or found.startswith("-") or "-6" in found


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra.name)
def test_a_worker_of_no_use_says_that_it_cannot_whatever_it_is_told(extra: Profile) -> None:
    player = Player(extra)
    for one in drawn(Split.DEV, 10):
        for phrase in phrases(LARGE):
            assert player.answer(Request(one.task, phrase)).startswith((CANNOT, LACK))


def test_some_pools_have_workers_of_no_use_in_every_split() -> None:
    idle = {profile.name for profile in EXTRAS}
    for split in Split:
        counted = Counter(sum(name in idle for name in one.pool.names) for one in drawn(split))
        assert set(counted) == {0, 1, 2}


def test_the_skills_of_the_simulated_models_go_to_five_parts() -> None:
    for name in (LARGE.generalist, LARGE.novice):
        skills = EVERYONE[name].whole
        assert len(skills) == 5
        assert list(skills) == sorted(skills, reverse=True)


def test_an_unknown_edition_lists_the_known_ones() -> None:
    assert edition_named("large") is LARGE
    assert edition_named("small") is SMALL
    with pytest.raises(UnknownName, match="large, small"):
        edition_named("huge")


async def test_it_is_a_taskset_by_name() -> None:
    assert set(REHEARSALS) == set(SETS) <= set(NAMES)
    found = load("rehearsal-large")
    assert len(found) == 100
    assert {one.difficulty for one in found} == {"1 part", *(f"{count} parts" for count in range(2, 6))}
    assert load("rehearsal").items[0].task != found.items[0].task
