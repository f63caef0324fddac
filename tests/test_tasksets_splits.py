"""Splits: the same everywhere, never overlapping; and tasks that are found again in another set."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shikisha.errors import ConfigError
from shikisha.grade import Given
from shikisha.task import Task
from shikisha.taskset import DEFAULT_SHARES, Item, Split, Taskset, content_key, split_of
from shikisha.tasksets.contamination import Overlap, contamination
from shikisha.tasksets.splits import Placed, divided, split_named
from shikisha.tasksets.wording import choice, number


def item(prompt: str, task_id: str = "", given_split: Split | None = None) -> Item:
    return Item(Task(prompt, id=task_id or prompt), Given({}), given=given_split)


def placed(*prompts: str, named: Split | None = None) -> list[Placed]:
    return [Placed(item(prompt), f"{named}.jsonl: line {line}", named) for line, prompt in enumerate(prompts, 1)]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)
PLAIN = st.text(st.sampled_from("abcXYZ012 .?\n"), min_size=1).filter(str.strip)


@settings(deadline=None)
@given(TEXTS, st.sampled_from([" ", "\n", "\t\u00a0", "  "]))
def test_the_split_does_not_see_white_space_and_case_of_any_script(prompt: str, space: str) -> None:
    task = Task(prompt)
    for other in (Task(f"{space}{space.join(prompt.split())}{space}"), Task(prompt.casefold())):
        assert content_key(other) == content_key(task)
        assert split_of(other) is split_of(task)


@settings(deadline=None)
@given(PLAIN)
def test_the_split_does_not_see_capitals(prompt: str) -> None:
    assert split_of(Task(prompt.upper())) is split_of(Task(prompt.lower())) is split_of(Task(prompt))


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_the_context_belongs_to_the_content(prompt: str, context: str) -> None:
    assert content_key(Task(prompt, context)) != content_key(Task(prompt))
    assert content_key(Task(prompt, context)) != content_key(Task(f"{prompt} {context}"))


def test_the_split_of_a_task_is_the_same_for_ever() -> None:
    found = [split_of(Task(f"What is {number} + {number}?")) for number in range(12)]
    assert " ".join(found) == "train test test test dev train train train dev dev test train"


@pytest.mark.parametrize("shares", [DEFAULT_SHARES, {Split.DEV: 0.5, Split.TEST: 0.5}, {Split.TRAIN: 1.0}])
def test_splits_have_their_shares(shares: dict[Split, float]) -> None:
    counts = Counter(split_of(Task(f"question {number}"), shares) for number in range(4_000))
    assert set(counts) == set(shares)
    for split, share in shares.items():
        assert abs(counts[split] / 4_000 - share) < 0.03


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.jsonl", Split.TRAIN),
        ("test-00000-of-00001.parquet", Split.TEST),
        ("validation.csv", Split.DEV),
        ("gsm8k_test.jsonl", Split.TEST),
        ("auxiliary_train", Split.TRAIN),
        ("test6.jsonl", Split.TEST),
        ("gpqa_diamond.csv", None),
        ("latest.jsonl", None),
        ("train_test.jsonl", None),
    ],
)
def test_a_file_says_its_split_by_a_word_of_its_name(name: str, split: Split | None) -> None:
    assert split_named(name) is split


def test_files_that_say_different_splits_divide_the_set_and_dev_comes_out_of_train() -> None:
    train = placed(*(f"train question {number}" for number in range(800)), named=Split.TRAIN)
    test = placed(*(f"test question {number}" for number in range(40)), named=Split.TEST)
    counts = Counter(one.split for one in divided([*train, *test], DEFAULT_SHARES)[0])
    assert counts[Split.TEST] == 40
    assert 150 < counts[Split.DEV] < 250  # a quarter of 800


def test_a_single_file_is_divided_by_content_whatever_its_name() -> None:
    prompts = [f"question {number}" for number in range(50)]
    found, _ = divided(placed(*prompts, named=Split.TEST), DEFAULT_SHARES)
    assert [one.split for one in found] == [split_of(Task(prompt)) for prompt in prompts]
    assert {one.split for one in found} == set(Split)


def test_what_a_row_says_of_its_split_is_kept() -> None:
    own = Placed(item("mine", given_split=Split.DEV), "own.jsonl: line 1", Split.TEST)
    (kept, *_), _ = divided([own, *placed("a", named=Split.TRAIN)], DEFAULT_SHARES)
    assert kept.split is Split.DEV


def test_of_a_published_set_the_copy_nearer_to_training_is_dropped_and_named() -> None:
    train = placed("one", "Two?", "three", named=Split.TRAIN)
    dev = placed("two?", "four", named=Split.DEV)
    test = placed("five", " TWO? ", "three", named=Split.TEST)
    found, notes = divided([*train, *dev, *test], DEFAULT_SHARES, published=True)
    assert [one.task.prompt for one in found if one.split is Split.TEST] == ["five", " TWO? ", "three"]
    assert {one.task.prompt for one in found} == {"one", "four", "five", " TWO? ", "three"}
    (note,) = notes
    assert note.startswith("3 tasks were dropped, as they stand in a split further from training too: ")
    assert note.count(" (test)") == 3
    assert divided(test, DEFAULT_SHARES, published=True) == (divided(test, DEFAULT_SHARES)[0], ())


def test_overlapping_splits_are_refused_and_both_rows_named() -> None:
    train = placed("something else", "What is  1 + 1?", named=Split.TRAIN)
    test = placed("what is 1 + 1?", named=Split.TEST)
    with pytest.raises(ConfigError) as caught:
        divided([*train, *test], {Split.TRAIN: 1.0})
    expected = "splits overlap: train.jsonl: line 2 (train) and test.jsonl: line 1 (test) hold the same task"
    assert str(caught.value) == expected


def test_the_same_task_twice_in_one_split_is_no_overlap() -> None:
    twice = [Placed(item("What is 1 + 1?", str(place)), f"row {place}") for place in range(2)]
    assert len(divided(twice, DEFAULT_SHARES)[0]) == 2


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices([f"word{place}" for place in range(5_000)], k=count))


def changed(text: str, at: int) -> str:
    parts = text.split()
    return " ".join([*parts[:at], "other", *parts[at + 1 :]])


LONG, SHORT = words(120, 1), words(20, 2)


@pytest.mark.parametrize(
    ("one", "other", "similarity", "same"),
    [
        (LONG, LONG.upper().replace(" ", "\n"), 1.0, True),
        (LONG, f"{words(50, 3)} {LONG} {words(50, 4)}", 1.0, False),  # the one inside the other
        (LONG, changed(LONG, 60), 95 / 108, False),  # 13 of 108 runs hold the changed word
        (SHORT, changed(SHORT, 10), 11 / 16, False),  # 5 of 16
        (SHORT, f"{words(80, 5)} {SHORT}", 1.0, False),  # short in long
        (number(SHORT), SHORT, 1.0, False),  # our own words do not count
        ("Why?", " why? ", 1.0, True),
        ("2 + 2?", "2 - 2!", 1.0, False),  # signs are no words
    ],
)
def test_what_is_found_again_is_reported_with_its_similarity(
    one: str, other: str, similarity: float, same: bool
) -> None:
    noise = [item(words(30, seed)) for seed in range(10, 20)]
    for left, right in ((one, other), (other, one)):
        found = contamination([item(left, "left"), *noise[:5]], [*noise[5:], item(right, "right")])
        assert [(pair.one, pair.other, pair.same) for pair in found] == [("left", "right", same)]
        assert found[0].similarity == pytest.approx(similarity)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LONG, words(120, 6)),
        (LONG, " ".join(LONG.split()[:20] + words(100, 7).split())),  # 8 of 108 runs
        (choice("Which is red?", ["blood", "snow"]), choice("Who was first?", ["Ada", "Alan"])),
        (number("How many?"), number("How much?")),
        (SHORT, ""),
    ],
)
def test_what_is_not_found_again_is_not_reported(one: str, other: str) -> None:
    assert contamination([item(one)], [item(other or "-")]) == ()


def test_what_many_tasks_share_is_boilerplate() -> None:
    intro = words(60, 8)
    left = [item(f"{intro} {words(15, seed)}", f"left {seed}") for seed in range(60)]
    right = [item(f"{intro} {words(15, seed)}", f"right {seed}") for seed in range(59, 120)]
    assert contamination(left, right) == (Overlap("left 59", "right 59", 1.0, True),)


def test_overlaps_come_most_similar_first_and_from_the_least_that_is_asked_for() -> None:
    right = [item(changed(changed(LONG, 30), 90), "twice"), item(changed(LONG, 60), "once"), item(LONG, "same")]
    assert [overlap.other for overlap in contamination([item(LONG)], right)] == ["same", "once", "twice"]
    assert [overlap.other for overlap in contamination([item(LONG)], right, least=0.8)] == ["same", "once"]


def test_a_taskset_can_be_compared_as_it_is() -> None:
    whole = Taskset("mine", [item(LONG, "a"), item(SHORT, "b")])
    assert [(pair.one, pair.other) for pair in contamination(whole, whole)] == [("a", "a"), ("b", "b")]
