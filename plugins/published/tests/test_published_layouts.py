"""The field's sets, one row each in their own layouts: right is graded right, wrong wrong, and bad fields are named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import GradeMark
from shikisha.evals.taskset import TaskItem, Taskset
from shikisha.evals.tasksets.taskset_loader import LAYOUTS, load_taskset

Fields = Mapping[str, object]


@dataclass(frozen=True)
class Known:
    """A set's row, what is right and wrong, how its item shows, and values that make it a bad row."""

    name: str
    row: Fields
    right: str
    wrong: str
    shown: tuple[str, str, str]  # id, domain, difficulty
    bad: tuple[tuple[str, object, str], ...]
    hidden: str  # what no worker may see


MATH = Known(
    "math-500",
    {
        "problem": "Halve $\\frac{1}{2}$.",
        "solution": "Hidden.",
        "answer": "\\frac{1}{4}",
        "subject": "Algebra",
        "level": 2,
    }
    | {"unique_id": "test/algebra/1.json"},
    "So it is $\\boxed{0.25}$.",
    "So it is $\\boxed{\\frac{1}{3}}$.",
    ("test/algebra/1.json", "Algebra", "level 2"),
    (
        ("problem", None, "expected text, found null"),
        ("answer", "", "expected text, found ''"),
        ("subject", 3, "expected text, found '3'"),
        ("level", 6, "expected a whole number from 1 to 5, found '6'"),
        ("unique_id", [], "expected text, found '[]'"),
    ),
    "Hidden",
)
GSM8K = Known(
    "gsm8k",
    {"question": "Ann has 1,000 nuts and eats 2 of them each day for 7 days. How many are left?"}
    | {"answer": "She eats 2*7=<<2*7=14>>14.\nSo 1000-14=986 are left.\n#### 986"},
    "She has 986 nuts left. The answer is 986.",
    "The answer is 14.",
    ("gsm8k/test/0", "gsm8k", ""),
    (
        ("question", 5, "expected text, found '5'"),
        ("answer", "986", "expected a solution that ends with '#### N'"),
        ("answer", "It is #### ", "expected a solution that ends with '#### N'"),
        ("answer", "It is #### some", "number"),
        ("answer", None, "expected text, found null"),
    ),
    "986",
)
MMLU = Known(
    "mmlu",
    {"question": "Which is a metal?", "subject": "chemistry", "choices": ["air", "tin", "ice", "wax"], "answer": 1},
    "It must be tin. The answer is (B).",
    "The answer is (A).",
    ("mmlu/test/0", "chemistry", ""),
    (
        ("question", "", "expected text, found ''"),
        ("subject", None, "expected text, found null"),
        ("choices", ["one"], "expected a list of 2 to 26 texts, found \"['one']\""),
        ("choices", "tin", "expected a list of 2 to 26 texts, found 'tin'"),
        ("answer", 4, "expected a whole number from 0 to 3, found '4'"),
        ("answer", "B", "expected a whole number from 0 to 3, found 'B'"),
    ),
    "The answer is (B)",
)
MMLU_PRO = Known(
    "mmlu-pro",
    {"question_id": 70, "question": "Which is even?", "options": ["1", "3", "5", "7", "8"], "answer": "E"}
    | {"answer_index": 4, "cot_content": "", "category": "math", "src": "ours"},
    "The answer is (E).",
    "The answer is (D).",
    ("mmlu-pro/70", "math", ""),
    (
        ("question_id", None, "expected text or a whole number, found null"),
        ("question", None, "expected text, found null"),
        ("options", ["1", 2], "expected text, found '2'"),
        ("answer", "D", "expected 'E', as answer_index says, found 'D'"),
        ("answer_index", 5, "expected a whole number from 0 to 4, found '5'"),
        ("category", "", "expected text, found ''"),
    ),
    "The answer is (E)",
)
GPQA = Known(
    "gpqa-diamond",
    {"Question": "Which is the heaviest?", "Correct Answer": "lead", "Record ID": "rec1"}
    | {f"Incorrect Answer {place}": text for place, text in enumerate(("cork", "oil", "air"), 1)}
    | {"High-level domain": "Physics", "Writer's Difficulty Estimate": "Easy"},
    "The answer is (B).",
    "The answer is (A).",
    ("gpqa/rec1", "Physics", "Easy"),
    (
        ("Question", "", "expected text, found ''"),
        ("Correct Answer", None, "expected text, found null"),
        ("Incorrect Answer 2", "lead ", "expected another option than the correct answer"),
        ("Incorrect Answer 3", None, "expected text, found null"),
        ("Record ID", None, "expected text, found null"),
    ),
    "Correct",
)
AIME = Known(
    "aime",
    {"ID": "2031-I-1", "Problem": "Find the least number above 41.", "Solution": "Count.", "Answer": 42},
    "Thus \\boxed{042}.",
    "Thus \\boxed{43}.",
    ("aime/2031-I-1", "aime", ""),
    (
        ("Problem", None, "this field is missing (also looked for: Problem, question, Question)"),
        ("Answer", 1000, "expected a whole number from 0 to 999, found '1000'"),
        ("Answer", "about 7", "expected a whole number from 0 to 999, found 'about 7'"),
        ("ID", [], "expected text, found '[]'"),
    ),
    "42",
)
RLPR = Known(
    "rlpr",
    {
        "data_source": "WebInstruct-verified",
        "prompt": [{"role": "system", "content": "Use <think>."}, {"role": "user", "content": "What is a third of 2?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2/3"},
        "extra_info": {"answer_type": "Fraction", "difficulty": "Primary", "index": 3},
    },
    "It is \\boxed{\\frac{2}{3}}.",
    "It is \\boxed{\\frac{3}{2}}.",
    ("rlpr/test/0", "math", "Primary"),
    (
        ("data_source", None, "expected text, found null"),
        ("prompt", "What?", "expected a list of objects, found 'What?'"),
        ("prompt", [{"role": "system", "content": "Use <think>."}], "expected a message of the user"),
        ("reward_model", "2/3", "expected an object, found '2/3'"),
        ("ability", [], "expected text, found '[]'"),
        ("extra_info", 3, "expected an object, found '3'"),
    ),
    "2/3",
)
OPTIONAL = {"solution", "Solution", "src", "cot_content", "High-level domain", "Writer's Difficulty Estimate", "ID"} | {
    "ability",
    "extra_info",
}
PROSE = (MATH, GSM8K, MMLU, MMLU_PRO, GPQA, AIME, RLPR)


def loaded(folder: Path, name: str, *rows: Fields) -> Taskset:
    file = folder / "test.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_taskset(f"{name}:{file}")


def one(folder: Path, name: str, row: Fields) -> TaskItem:
    (item,) = loaded(folder, name, row)
    return item


@pytest.mark.parametrize("known", PROSE, ids=lambda known: known.name)
async def test_right_is_right_and_wrong_is_wrong(tmp_path: Path, known: Known) -> None:
    item = one(tmp_path, known.name, known.row)
    assert (await item.grader.grade(known.right)).mark is GradeMark.RIGHT
    assert (await item.grader.grade(known.wrong)).mark is GradeMark.WRONG
    assert (await item.grader.grade("")).mark is GradeMark.NO_ANSWER
    assert (item.task.id, item.task.domain, item.difficulty) == known.shown
    assert known.hidden not in str(item.task)


@pytest.mark.parametrize(
    ("known", "field", "value", "problem"), [(known, *bad) for known in PROSE for bad in known.bad]
)
def test_a_bad_field_is_named(tmp_path: Path, known: Known, field: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, known.name, known.row, {**known.row, field: value})
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/test.jsonl: line 2: ")
    assert field.casefold() in said.casefold()
    assert problem in said


@pytest.mark.parametrize(
    ("known", "field"), [(known, field) for known in PROSE for field in known.row if field not in OPTIONAL]
)
def test_a_missing_field_is_named(tmp_path: Path, known: Known, field: str) -> None:
    rest = {name: value for name, value in known.row.items() if name != field}
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, known.name, rest)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/test.jsonl: line 1: ")
    assert f"{field}: this field is missing".casefold() in said.casefold()


async def test_the_options_of_gpqa_stand_in_a_fixed_order_that_hangs_on_the_question(tmp_path: Path) -> None:
    rows = [{**GPQA.row, "Question": f"Question {place}?", "Record ID": f"rec{place}"} for place in range(40)]
    places = []
    for item in loaded(tmp_path, "gpqa-diamond", *rows):
        letters = [letter for letter in "ABCD" if (await item.grader.grade(letter)).mark is GradeMark.RIGHT]
        assert [f"{letter}. lead" in item.task.prompt for letter in letters] == [True]
        places += letters
    assert {places.count(letter) > 4 for letter in "ABCD"} == {True}
    again = loaded(tmp_path, "gpqa-diamond", *reversed(rows))
    assert {item.task for item in again} == {item.task for item in loaded(tmp_path, "gpqa-diamond", *rows)}


@pytest.mark.parametrize(
    ("row", "task_id", "labels"),
    [
        ({"id": 60, "problem": "Find 7.", "solution": "-", "answer": "007", "year": "2031"}, "aime/60", ("2031",)),
        ({"ID": "1999-3", "Year": 1999, "Question": "Find 7.", "Answer": "7"}, "aime/1999-3", ("1999",)),
        ({"question": "Find 7 degrees.", "answer": "7^\\circ"}, "aime/test/0", ()),
    ],
)
async def test_copies_of_aime(tmp_path: Path, row: Fields, task_id: str, labels: tuple[str, ...]) -> None:
    item = one(tmp_path, "aime", row)
    assert (item.task.id, item.task.labels) == (task_id, labels)
    assert (await item.grader.grade("\\boxed{7}")).mark is GradeMark.RIGHT


@pytest.mark.parametrize(
    ("source", "answer_type", "gold", "right", "wrong"),
    [
        ("MMLUPro-1000_Avg2", None, "C", "The answer is (C).", "The answer is (D)."),
        ("gpqa_diamond_Avg4", None, "A", "\\boxed{A}", "\\boxed{B}"),
        ("WebInstruct-verified", "Multiple Choice", "B", "The answer is (B).", "The answer is (C)."),
        ("WebInstruct-verified", "Float", "2.50", "\\boxed{2.5}", "\\boxed{2.6}"),
        ("WebInstruct-verified", "String", "the Moon", "The answer is the moon.", "\\boxed{the Sun}"),
        ("WebInstruct-verified", "Float", "between a and b", "\\boxed{between a and b}", "\\boxed{b}"),
        ("WebInstruct-verified", "Boolean", "True", "\\boxed{true}", "\\boxed{false}"),
        ("Math-500_Avg2", None, "x+1", "\\boxed{1+x}", "\\boxed{x-1}"),
    ],
)
async def test_rlpr_grades_as_its_source_or_type_says(
    tmp_path: Path, source: str, answer_type: str | None, gold: str, right: str, wrong: str
) -> None:
    extra = {"answer_type": answer_type} if answer_type else None
    row = {**RLPR.row, "data_source": source, "reward_model": {"ground_truth": gold}, "extra_info": extra}
    item = one(tmp_path, "rlpr", row)
    assert (await item.grader.grade(right)).mark is GradeMark.RIGHT
    assert (await item.grader.grade(wrong)).mark is GradeMark.WRONG


def test_what_stands_inside_a_field_is_named_too(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    for field, value, problem in (
        ("prompt", talk, "prompt[1].role: expected system or user, found 'assistant'"),
        ("prompt", [{"role": "user"}], "prompt[0].content: this field is missing; there are role"),
        ("reward_model", {"style": "rule"}, "reward_model.ground_truth: this field is missing; there are style"),
    ):
        with pytest.raises(ConfigError) as caught:
            loaded(tmp_path, "rlpr", {**RLPR.row, field: value})
        assert str(caught.value) == f"{tmp_path}/test.jsonl: line 1: {problem}"


def test_every_set_says_where_it_is_on_the_hub() -> None:
    hubs = [layout.hub for layout in LAYOUTS.values() if layout.make_item]
    assert len({hub.id for hub in hubs if hub}) == len(hubs)
