"""Splits: the same everywhere, never overlapping; and tasks that are found again in another set."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shikisha.core.errors import ConfigError
from shikisha.core.task import Task
from shikisha.evals.graders import ScriptedGrader
from shikisha.evals.taskset import DEFAULT_SHARES, TaskItem, Taskset, TaskSplit, content_key, content_split
from shikisha.evals.tasksets.taskset_loader import (
    NUMBER,
    PlacedItem,
    TaskOverlap,
    assign_splits,
    find_contamination,
    split_from_file_name,
    with_instruction,
)
from shikisha_published.published_layouts import format_choice


def item(prompt: str, task_id: str = "", given_split: TaskSplit | None = None) -> TaskItem:
    return TaskItem(Task(prompt, id=task_id or prompt), ScriptedGrader({}), given=given_split)


def placed(*prompts: str, named: TaskSplit | None = None) -> list[PlacedItem]:
    return [PlacedItem(item(prompt), f"{named}.jsonl: line {line}", named) for line, prompt in enumerate(prompts, 1)]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)
PLAIN = st.text(st.sampled_from("abcXYZ012 .?\n"), min_size=1).filter(str.strip)


@settings(deadline=None)
@given(TEXTS, st.sampled_from([" ", "\n", "\t\u00a0", "  "]))
def test_the_split_does_not_see_white_space_and_case_of_any_script(prompt: str, space: str) -> None:
    task = Task(prompt)
    for other in (Task(f"{space}{space.join(prompt.split())}{space}"), Task(prompt.casefold())):
        assert content_key(other) == content_key(task)
        assert content_split(other) is content_split(task)


@settings(deadline=None)
@given(PLAIN)
def test_the_split_does_not_see_capitals(prompt: str) -> None:
    assert content_split(Task(prompt.upper())) is content_split(Task(prompt.lower())) is content_split(Task(prompt))


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_the_context_belongs_to_the_content(prompt: str, context: str) -> None:
    assert content_key(Task(prompt, context)) != content_key(Task(prompt))
    assert content_key(Task(prompt, context)) != content_key(Task(f"{prompt} {context}"))


def test_the_split_of_a_task_is_the_same_for_ever() -> None:
    found = [content_split(Task(f"What is {number} + {number}?")) for number in range(12)]
    assert " ".join(found) == "train test test test dev train train train dev dev test train"


@pytest.mark.parametrize("shares", [DEFAULT_SHARES, {TaskSplit.DEV: 0.5, TaskSplit.TEST: 0.5}, {TaskSplit.TRAIN: 1.0}])
def test_splits_have_their_shares(shares: dict[TaskSplit, float]) -> None:
    counts = Counter(content_split(Task(f"question {number}"), shares) for number in range(4_000))
    assert set(counts) == set(shares)
    for split, share in shares.items():
        assert abs(counts[split] / 4_000 - share) < 0.03


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.jsonl", TaskSplit.TRAIN),
        ("test-00000-of-00001.parquet", TaskSplit.TEST),
        ("validation.csv", TaskSplit.DEV),
        ("gsm8k_test.jsonl", TaskSplit.TEST),
        ("auxiliary_train", TaskSplit.TRAIN),
        ("test6.jsonl", TaskSplit.TEST),
        ("gpqa_diamond.csv", None),
        ("latest.jsonl", None),
        ("train_test.jsonl", None),
    ],
)
def test_a_file_says_its_split_by_a_word_of_its_name(name: str, split: TaskSplit | None) -> None:
    assert split_from_file_name(name) is split


def test_files_that_say_different_splits_divide_the_set_and_dev_comes_out_of_train() -> None:
    train = placed(*(f"train question {number}" for number in range(800)), named=TaskSplit.TRAIN)
    test = placed(*(f"test question {number}" for number in range(40)), named=TaskSplit.TEST)
    counts = Counter(one.split for one in assign_splits([*train, *test], DEFAULT_SHARES)[0])
    assert counts[TaskSplit.TEST] == 40
    assert 150 < counts[TaskSplit.DEV] < 250  # a quarter of 800


def test_a_single_file_is_divided_by_content_whatever_its_name() -> None:
    prompts = [f"question {number}" for number in range(50)]
    found, _ = assign_splits(placed(*prompts, named=TaskSplit.TEST), DEFAULT_SHARES)
    assert [one.split for one in found] == [content_split(Task(prompt)) for prompt in prompts]
    assert {one.split for one in found} == set(TaskSplit)


def test_what_a_row_says_of_its_split_is_kept() -> None:
    own = PlacedItem(item("mine", given_split=TaskSplit.DEV), "own.jsonl: line 1", TaskSplit.TEST)
    (kept, *_), _ = assign_splits([own, *placed("a", named=TaskSplit.TRAIN)], DEFAULT_SHARES)
    assert kept.split is TaskSplit.DEV


def test_of_a_published_set_the_copy_nearer_to_training_is_dropped_and_named() -> None:
    train = placed("one", "Two?", "three", named=TaskSplit.TRAIN)
    dev = placed("two?", "four", named=TaskSplit.DEV)
    test = placed("five", " TWO? ", "three", named=TaskSplit.TEST)
    found, notes = assign_splits([*train, *dev, *test], DEFAULT_SHARES, published=True)
    assert [one.task.prompt for one in found if one.split is TaskSplit.TEST] == ["five", " TWO? ", "three"]
    assert {one.task.prompt for one in found} == {"one", "four", "five", " TWO? ", "three"}
    (note,) = notes
    assert note.startswith("3 tasks were dropped, as they stand in a split further from training too: ")
    assert note.count(" (test)") == 3
    assert assign_splits(test, DEFAULT_SHARES, published=True) == (assign_splits(test, DEFAULT_SHARES)[0], ())


def test_overlapping_splits_are_refused_and_both_rows_named() -> None:
    train = placed("something else", "What is  1 + 1?", named=TaskSplit.TRAIN)
    test = placed("what is 1 + 1?", named=TaskSplit.TEST)
    with pytest.raises(ConfigError) as caught:
        assign_splits([*train, *test], {TaskSplit.TRAIN: 1.0})
    expected = "splits overlap: train.jsonl: line 2 (train) and test.jsonl: line 1 (test) hold the same task"
    assert str(caught.value) == expected


def test_the_same_task_twice_in_one_split_is_no_overlap() -> None:
    twice = [PlacedItem(item("What is 1 + 1?", str(place)), f"row {place}") for place in range(2)]
    assert len(assign_splits(twice, DEFAULT_SHARES)[0]) == 2


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
        (with_instruction(SHORT, NUMBER), SHORT, 1.0, False),  # our own words do not count
        ("Why?", " why? ", 1.0, True),
        ("2 + 2?", "2 - 2!", 1.0, False),  # signs are no words
    ],
)
def test_what_is_found_again_is_reported_with_its_similarity(
    one: str, other: str, similarity: float, same: bool
) -> None:
    noise = [item(words(30, seed)) for seed in range(10, 20)]
    for left, right in ((one, other), (other, one)):
        found = find_contamination([item(left, "left"), *noise[:5]], [*noise[5:], item(right, "right")])
        assert [(pair.one, pair.other, pair.same) for pair in found] == [("left", "right", same)]
        assert found[0].similarity == pytest.approx(similarity)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LONG, words(120, 6)),
        (LONG, " ".join(LONG.split()[:20] + words(100, 7).split())),  # 8 of 108 runs
        (format_choice("Which is red?", ["blood", "snow"]), format_choice("Who was first?", ["Ada", "Alan"])),
        (with_instruction("How many?", NUMBER), with_instruction("How much?", NUMBER)),
        (SHORT, ""),
    ],
)
def test_what_is_not_found_again_is_not_reported(one: str, other: str) -> None:
    assert find_contamination([item(one)], [item(other or "-")]) == ()


def test_what_many_tasks_share_is_boilerplate() -> None:
    intro = words(60, 8)
    left = [item(f"{intro} {words(15, seed)}", f"left {seed}") for seed in range(60)]
    right = [item(f"{intro} {words(15, seed)}", f"right {seed}") for seed in range(59, 120)]
    assert find_contamination(left, right) == (TaskOverlap("left 59", "right 59", 1.0, True),)


def test_overlaps_come_most_similar_first_and_from_the_least_that_is_asked_for() -> None:
    right = [item(changed(changed(LONG, 30), 90), "twice"), item(changed(LONG, 60), "once"), item(LONG, "same")]
    assert [overlap.other for overlap in find_contamination([item(LONG)], right)] == ["same", "once", "twice"]
    assert [overlap.other for overlap in find_contamination([item(LONG)], right, least=0.8)] == ["same", "once"]


def test_a_taskset_can_be_compared_as_it_is() -> None:
    whole = Taskset("mine", [item(LONG, "a"), item(SHORT, "b")])
    assert [(pair.one, pair.other) for pair in find_contamination(whole, whole)] == [("a", "a"), ("b", "b")]
