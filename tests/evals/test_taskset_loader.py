"""Tasksets by name: where rows are looked for, a user's own rows, the datasets library, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from shikisha.core.call import Reply
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.messages import ChatMessage, Json
from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.evals.taskset import Taskset, TaskSplit, content_split
from shikisha.evals.tasksets.taskset_loader import (
    BUILT_IN_SETS,
    LAYOUTS,
    TaskSelection,
    TasksetName,
    data_folder,
    load_taskset,
    parse_taskset_name,
)

Fields = Mapping[str, object]


def written(file: Path, rows: Sequence[Fields]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def sums(count: int, start: int = 0) -> list[Fields]:
    numbers = range(start, start + count)
    return [{"question": f"What is {n} and {n}?", "answer": f"{n}+{n}={2 * n}\n#### {2 * n}"} for n in numbers]


def counts(found: Taskset) -> dict[str, int]:
    return {split: sum(item.split is split for item in found) for split in TaskSplit}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gsm8k", TasksetName("gsm8k")),
        ("gsm8k:some/where.jsonl", TasksetName("gsm8k", Path("some/where.jsonl"))),
        ("gsm8k@hub", TasksetName("gsm8k", hub="hub")),
        ("aime@some/copy", TasksetName("aime", hub="some/copy")),
        ("own:rows.txt", TasksetName("own", Path("rows.txt"))),
        ("my/rows.jsonl", TasksetName("own", Path("my/rows.jsonl"))),
        ("recorded:log", TasksetName("recorded", Path("log"))),
        ("a:b.csv", TasksetName("own", Path("a:b.csv"))),
    ],
)
def test_names_are_taken_apart(name: str, expected: TasksetName) -> None:
    assert parse_taskset_name(name) == expected


@pytest.mark.parametrize("name", ["gsm9k", "", "gsm9k:rows", "rows.txt", "gsm8k:", "@hub"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        parse_taskset_name(name)
    near = "did you mean 'gsm8k'?" in str(caught.value)
    assert near == (name in ("gsm9k", "gsm8k:"))  # what is meant is named alone
    assert near or all(known in str(caught.value) for known in (*BUILT_IN_SETS, *LAYOUTS))


def test_a_set_lies_in_the_folder_of_all_sets(tmp_path: Path) -> None:
    written(tmp_path / "gsm8k" / "train.jsonl", sums(300))
    written(tmp_path / "gsm8k" / "test.jsonl", sums(50, 1000))
    (tmp_path / "gsm8k" / "README.md").write_text("no rows")
    found = load_taskset("gsm8k", tmp_path)
    assert (found.name, len(found), counts(found)["test"]) == ("gsm8k", 350, 50)
    assert found.items[0].task.id == "gsm8k/test/0"
    assert {item.task.id for item in load_taskset("gsm8k", tmp_path, wanted=TaskSelection(TaskSplit.TEST))} == {
        f"gsm8k/test/{place}" for place in range(50)
    }


def test_a_part_of_a_set(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.jsonl", sums(200))
    whole = load_taskset(f"gsm8k:{file}")
    dev = load_taskset(f"gsm8k:{file}", wanted=TaskSelection(TaskSplit.DEV))
    assert [item.task for item in dev] == [item.task for item in whole if content_split(item.task) is TaskSplit.DEV]
    some = load_taskset(f"gsm8k:{file}", wanted=TaskSelection(count=9, seed=1))
    assert [item.task for item in some] == [item.task for item in whole.sample(9, 1)]
    assert some.version != load_taskset(f"gsm8k:{file}", wanted=TaskSelection(count=9, seed=2)).version
    halves = load_taskset(f"gsm8k:{file}", wanted=TaskSelection(shares={TaskSplit.DEV: 0.5, TaskSplit.TEST: 0.5}))
    assert counts(halves)["train"] == 0
    assert 70 < counts(halves)["dev"] < 130


def test_where_the_sets_are_is_told_or_in_the_environment() -> None:
    assert data_folder(Path("a"), {"SHIKISHA_DATA": "b"}) == Path("a")
    assert data_folder(None, {"SHIKISHA_DATA": "b"}) == Path("b")
    with pytest.raises(ConfigError, match="expected SHIKISHA_DATA=FOLDER, or the set's name as NAME:PATH"):
        data_folder(None, {})


def test_a_set_that_is_not_there_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gsm8k: expected a file or folder of rows there \(\.csv, \.json, \.jsonl"):
        load_taskset("gsm8k", tmp_path)
    written(tmp_path / "gsm8k" / "test.jsonl", [])
    with pytest.raises(ConfigError, match="taskset gsm8k: there is no task in it"):
        load_taskset("gsm8k", tmp_path)


def test_one_split_in_two_formats_is_refused(tmp_path: Path) -> None:
    for ending in ("jsonl", "json"):
        written(tmp_path / "gsm8k" / f"test.{ending}", sums(1))
    with pytest.raises(ConfigError, match=r"expected test\.json or test\.jsonl, not both"):
        load_taskset("gsm8k", tmp_path)


def test_overlapping_splits_of_own_rows_are_refused_with_both_rows(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {n}?", "checker": "number", "answer": n} for n in range(5)]
    train, test = written(tmp_path / "train.jsonl", rows), written(tmp_path / "test.jsonl", rows[4:])
    with pytest.raises(ConfigError) as caught:
        load_taskset(f"own:{tmp_path}", wanted=TaskSelection(shares={TaskSplit.TRAIN: 1.0}))
    said = f"splits overlap: {test}: line 1 (test) and {train}: line 5 (train) hold the same task"
    assert str(caught.value) == said


def test_what_a_published_set_has_in_two_splits_is_dropped_from_the_one_nearer_to_training(tmp_path: Path) -> None:
    """As MMLU, whose dev and test share five questions."""
    questions = [
        {"question": f"Which is {n}?", "subject": "logic", "choices": ["a", "b"], "answer": 0} for n in range(12)
    ]
    written(tmp_path / "dev.jsonl", questions[:5])
    written(tmp_path / "validation.jsonl", questions[9:])
    written(tmp_path / "test.jsonl", questions[3:10])
    found = load_taskset(f"mmlu:{tmp_path}")
    assert counts(found) == {"train": 0, "dev": 5, "test": 7}
    (note,) = found.notes
    assert note.startswith(
        "3 tasks were dropped, as they stand in a split further from training too: mmlu/dev/3 (dev) is "
    )
    for part in (
        found.only(TaskSplit.TEST),
        found.sample(2),
        load_taskset(f"mmlu:{tmp_path}", wanted=TaskSelection(TaskSplit.DEV, 2)),
    ):
        assert part.notes == found.notes


def test_an_id_that_is_there_twice_is_refused_with_both_rows(tmp_path: Path) -> None:
    rows = [{"prompt": "1 + 1?", "id": "a", "checker": "number", "answer": 2}] * 2
    file = written(tmp_path / "rows.jsonl", rows)
    with pytest.raises(ConfigError) as caught:
        load_taskset(str(file))
    assert str(caught.value) == f"{file}: line 2: the id 'a' is that of {file}: line 1 too"


OWN: Fields = {
    "prompt": "How far is it?",
    "context": "Ann walks 2 km and then 3 km.",
    "id": "walk",
    "domain": "sums",
    "difficulty": "easy",
    "split": "dev",
    "labels": ["short"],
    "checker": "number",
    "answer": 5,
}


async def test_a_users_own_rows(tmp_path: Path) -> None:
    (item,) = load_taskset(str(written(tmp_path / "mine.jsonl", [OWN])))
    task = item.task
    assert (task.prompt, task.context, task.id, task.domain) == tuple(OWN[name] for name in list(OWN)[:4])
    assert (task.labels, item.difficulty, item.split) == (("short",), "easy", TaskSplit.DEV)
    assert [(await item.grader.grade(answer)).mark for answer in ("5", "6")] == [GradeMark.RIGHT, GradeMark.WRONG]


@pytest.mark.parametrize(
    ("fields", "default"),
    [
        ({"checker": "number", "answer": 5, "absolute": 0.2}, None),
        ({"checker": "number", "check": {"answer": 5, "absolute": 0.2}}, None),
        ({"answer": 5}, {"checker": "number", "absolute": 0.2}),
        ({"answer": 5, "absolute": 0.2}, {"checker": "number"}),
        ({"check": {"answer": 5, "absolute": 0.2}}, {"checker": "number"}),
        ({"answer": 5, "absolute": 0.2}, {"checker": "number", "absolute": 9}),
        ({"checker": "number", "answer": 5, "absolute": 0.2}, {"checker": "text"}),
    ],
)
async def test_ways_to_say_how_a_row_is_graded(tmp_path: Path, fields: Fields, default: Fields | None) -> None:
    file = written(tmp_path / "mine.jsonl", [{"prompt": "How far?", **fields}])
    (item,) = load_taskset(str(file), wanted=TaskSelection(grader=default))
    assert [(await item.grader.grade(answer)).mark for answer in ("5.1", "5.3")] == [GradeMark.RIGHT, GradeMark.WRONG]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prompt": " "}, "prompt: expected text, found ' '"),
        ({"prompt": "a\0b"}, "prompt: holds a NUL character"),
        ({"context": 1.5}, "context: expected text, found '1.5'"),
        ({"id": True}, "id: expected text, found 'True'"),
        ({"domain": []}, "domain: expected text, found '[]'"),
        ({"difficulty": {}}, "difficulty: expected text, found '{}'"),
        ({"split": "exam"}, "split: expected train, dev, test, found 'exam'"),
        ({"labels": "short"}, "labels: expected a list of at least 0 texts, found 'short'"),
        ({"labels": [1]}, "labels[0]: expected text, found '1'"),
        ({"checker": None}, "checker: this row has none, and none is given for the file"),
        ({"checker": 5}, "checker: expected text, found '5'"),
        ({"checker": "nummer"}, "checker: unknown kind of grader 'nummer': known are choice, code"),
        ({"answer": None}, "checker: number.answer: is missing"),
        ({"anwser": 5}, "checker: number.anwser: unknown key"),
        ({"check": {"answer": 5}}, "answer: expected the grader's settings inside check, not next to it"),
        ({"check": 5, "answer": None}, "check: expected an object, found '5'"),
    ],
)
def test_a_row_of_ones_own_that_is_wrong_is_named(tmp_path: Path, change: Fields, problem: str) -> None:
    file = written(tmp_path / "mine.jsonl", [OWN, {**OWN, "id": "other", **change}])
    with pytest.raises(ConfigError) as caught:
        load_taskset(str(file))
    assert str(caught.value).startswith(f"{file}: line 2: {problem}")


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("prompt,answer,checker,absolute\n1 + 1?,2,number,\nA colour?,red,text,\n")
    assert [item.grader.name for item in load_taskset(str(file))] == ["number", "text"]


def test_a_judge_without_a_voice_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.jsonl", [{"prompt": "Write a poem.", "checker": "judge"}])
    with pytest.raises(ConfigError, match=r"mine\.jsonl: line 1: checker: judge: .* no judge is named"):
        load_taskset(str(file))


async def test_a_judge_is_shown_the_rows_context_and_prompt(tmp_path: Path) -> None:
    seen: list[str] = []

    async def ask(turns: Sequence[ChatMessage], schema: Mapping[str, Json]) -> Reply:
        assert schema
        seen.extend(turn.text for turn in turns)
        return Reply("Fine.\nVERDICT: RIGHT")

    rows = [{"prompt": "Write a poem.", "context": "It is about frogs.", "checker": "judge", "gold": "A frog sings."}]
    (item,) = load_taskset(str(written(tmp_path / "mine.jsonl", rows)), tools=GraderTools(judge=ask))
    grade = await item.grader.grade("Frogs hop.")
    assert grade.judged
    assert all(part in "".join(seen) for part in ("Write a poem.", "about frogs", "A frog sings.", "Frogs hop."))


@pytest.mark.parametrize("name", ["gsm8k", "recorded:log"])
def test_a_grader_is_given_for_own_rows_only(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name.partition(':')[0]}: it brings its own graders"):
        load_taskset(name, tmp_path, wanted=TaskSelection(grader={"checker": "text"}))


def test_the_first_world_is_an_error_that_names_what_to_write() -> None:
    with pytest.raises(ConfigError, match="the first simulated world left: name rows of your own"):
        load_taskset("rehearsal")


@pytest.mark.parametrize("name", ["recorded@hub", "swebench-verified@some/copy"])
def test_what_has_no_such_place_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"taskset [a-z-]+: expected "):
        load_taskset(name)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: TaskSelection(shares={TaskSplit.DEV: 0.5}), "expected numbers from 0 that add up to 1"),
        (
            lambda: TaskSelection(shares={TaskSplit.DEV: 1.5, TaskSplit.TEST: -0.5}),
            "expected numbers from 0 that add up to 1",
        ),
        (lambda: TaskSelection(count=0), "number of tasks: expected 1 or more, found 0"),
    ],
)
def test_what_cannot_be_wanted(make: Callable[[], TaskSelection], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("mmlu", {"question": "Which?", "subject": "s", "choices": ["a", "b"], "answer": 1}),
        (
            "rlpr",
            {
                "data_source": "gpqa",
                "prompt": [{"role": "user", "content": "Which?"}],
                "reward_model": {"ground_truth": "B"},
            },
        ),
    ],
)
async def test_parquet_with_lists_and_objects_in_it(tmp_path: Path, name: str, row: Fields) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "test-00000-of-00001.parquet")
    (item,) = load_taskset(f"{name}:{tmp_path}")
    assert (await item.grader.grade("The answer is (B).")).mark is GradeMark.RIGHT
    assert item.task.id == f"{name}/test-00000-of-00001/0"


def test_what_the_datasets_library_saved(tmp_path: Path) -> None:
    import datasets

    train, test = datasets.Dataset.from_list(sums(40)), datasets.Dataset.from_list(sums(7, 100))
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "both")
    test.save_to_disk(tmp_path / "one")
    both = load_taskset(f"gsm8k@{tmp_path}/both")
    assert counts(both)["test"] == 7
    assert both.items[0].task.id == "gsm8k/train/0"
    one = load_taskset(f"gsm8k@{tmp_path}/one")
    assert [item.task.prompt for item in one] == [item.task.prompt for item in both.items[40:]]


def test_what_the_datasets_library_cannot_load(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="empty: the datasets library cannot load it"):
        load_taskset(f"gsm8k@{tmp_path}/empty")
    with pytest.raises(ConfigError, match=r"own: it has no place on the hub; expected own@ID or own:PATH"):
        load_taskset("own@hub")


_BY_THE_LIBRARY = """
import sys
from shikisha.evals.tasksets.taskset_loader import load_taskset
found = load_taskset(sys.argv[1])
print(len(found), found.items[0].task.id)
"""


@pytest.mark.full
def test_a_folder_of_files_by_way_of_the_datasets_library(tmp_path: Path) -> None:
    written(tmp_path / "set" / "test.jsonl", sums(3))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    told = [sys.executable, "-c", _BY_THE_LIBRARY, f"gsm8k@{tmp_path}/set"]
    done = subprocess.run(told, capture_output=True, text=True, check=True, env=environment)  # noqa: S603 - our own
    assert done.stdout == "3 gsm8k/test/0\n"
