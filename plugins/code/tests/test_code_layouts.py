"""The field's sets of programs: rows of our own in their layouts, graded in a real sandbox; bad fields are named."""

import base64
import json
import os
import pickle
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.evals.taskset import TaskItem
from shikisha.evals.tasksets.taskset_loader import load_taskset
from shikisha.sandbox import Sandbox, ScriptedSandbox
from shikisha.sandbox.process_sandbox import ProcessSandbox

Fields = Mapping[str, object]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    jail = ProcessSandbox()
    yield jail
    await jail.aclose()


@dataclass(frozen=True)
class Known:
    """A set's row, a right and a wrong program, its id, what workers see, and what makes a row bad."""

    name: str
    row: Fields
    right: str
    wrong: str
    task_id: str
    shown: tuple[str, ...]
    bad: tuple[tuple[str, object, str], ...]


def block(code: str) -> str:
    return f"Here it is:\n\n```python\n{code}\n```\n"


HUMANEVAL = Known(
    "humaneval",
    {
        "task_id": "Ours/0",
        "prompt": 'from typing import List\n\n\ndef last(values: List[int]) -> int:\n    """Return the last."""\n',
        "canonical_solution": "    return values[-1]  # hidden\n",
        "test": "def check(candidate):\n    assert candidate([1, 2]) == 2\n    assert candidate([5]) == 5\n",
        "entry_point": "last",
    },
    "    return values[-1]",  # a completion
    block("def last(values):\n    return values[0]"),
    "Ours/0",
    ("Return the last.", "def last"),
    (
        ("task_id", 3, "expected text, found '3'"),
        ("prompt", "", "expected text, found ''"),
        ("test", None, "expected text, found null"),
        ("test", "def check(", "code"),
        ("entry_point", "no name", "expected the name of a function, found 'no name'"),
    ),
)
MBPP = Known(
    "mbpp",
    {
        "task_id": 601,
        "text": "Write a function that doubles a number.",
        "code": "def double(x):\n    return 2 * x  # hidden",
        "test_list": ["assert double(2) == 4", "assert double(-1) == -2"],
        "test_setup_code": "",
        "challenge_test_list": ["assert double(0.5) == 1"],
    },
    block("def double(x):\n    return x + x"),
    block("def double(x):\n    return x + 2"),
    "mbpp/601",
    ("doubles a number", "assert double(-1) == -2"),
    (
        ("task_id", None, "expected text or a whole number, found null"),
        ("text", 1, "expected text, found '1'"),
        ("test_list", [], "expected a list of at least 1 texts, found '[]'"),
        ("test_list", ["assert ("], "code"),
        ("test_setup_code", [], "expected text, found '[]'"),
        ("challenge_test_list", "assert 1", "expected a list of at least 0 texts, found 'assert 1'"),
    ),
)
BIGCODEBENCH = Known(
    "bigcodebench",
    {
        "task_id": "Ours/7",
        "complete_prompt": 'import math\n\ndef task_func(x):\n    """Return the root."""\n',
        "instruct_prompt": "Return the root of x. The function is task_func(x).",
        "canonical_solution": "    return math.sqrt(x)  # hidden",
        "test": "import unittest\n\n\nclass TestCases(unittest.TestCase):\n    def test_nine(self):\n"
        "        self.assertEqual(task_func(9), 3)\n",
        "entry_point": "task_func",
        "libs": "['math']",
    },
    block("def task_func(x):\n    return math.sqrt(x)"),  # the import is the prompt's
    block("def task_func(x):\n    return x"),
    "Ours/7",
    ("Return the root of x.",),
    (
        ("task_id", None, "expected text, found null"),
        ("complete_prompt", None, "expected text, found null"),
        ("instruct_prompt", "", "expected text, found ''"),
        ("test", 5, "expected text, found '5'"),
        ("entry_point", None, "expected text, found null"),
        ("libs", "['math'", "cannot be decoded"),
        ("libs", "[1]", "libs[0]: expected text, found '1'"),
    ),
)


def lcb(tests: list[tuple[str, str]], kind: str = "stdin") -> list[dict[str, str]]:
    return [{"input": given, "output": expected, "testtype": kind} for given, expected in tests]


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


STDIN_TESTS = lcb([("10 20\n", "30\n"), ("-1 1\n", "0\n")])
STDIN = Known(
    "livecodebench",
    {
        "question_title": "Sums",
        "question_content": "Read two numbers and print their sum.",
        "platform": "ours",
        "question_id": "ours_a",
        "contest_id": "ours",
        "contest_date": "2031-05-03T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(lcb([("1 2\n", "3\n")])),
        "private_test_cases": packed(STDIN_TESTS),
        "metadata": "{}",
    },
    block("print(sum(map(int, input().split())))"),
    block("a, b = map(int, input().split())\nprint(abs(a) + b)"),  # fails a private test only
    "livecodebench/ours_a",
    ("Sums", "Read two numbers"),
    (
        ("question_title", None, "expected text, found null"),
        ("question_content", 3, "expected text, found '3'"),
        ("platform", "", "expected text, found ''"),
        ("question_id", None, "expected text or a whole number, found null"),
        ("contest_date", "soon", "expected a date, found 'soon'"),
        ("difficulty", None, "expected text, found null"),
        ("public_test_cases", "[", "cannot be decoded"),
        ("public_test_cases", "{}", "expected a list of objects"),
        ("public_test_cases", json.dumps([{"input": "1"}]), "[0].testtype: this field is missing"),
        (
            "public_test_cases",
            json.dumps(lcb([("", "")], "other")),
            "expected tests all of testtype stdin or all functional",
        ),
        (
            "public_test_cases",
            json.dumps([{"input": 1, "output": "", "testtype": "stdin"}]),
            "[0].input: expected text",
        ),
        ("private_test_cases", "Zm9v", "neither JSON nor base64 of zlib of JSON"),
        ("private_test_cases", packed(STDIN_TESTS)[:-8], "cut off"),
        ("private_test_cases", base64.b64encode(zlib.compress(b"\x80\x04\x95")).decode(), "a pickle that is cut off"),
    ),
)
FUNCTIONAL = Known(
    "livecodebench",
    {
        **STDIN.row,
        "question_content": "Return the sum of two numbers.",
        "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
        "public_test_cases": json.dumps(lcb([("1\n2", "3")], "functional")),
        "private_test_cases": lcb([("10\n20", "30"), ("-1\n1", "0")], "functional"),  # decoded already
        "metadata": '{"func_name": "add"}',
    },
    block("class Solution:\n    def add(self, a, b):\n        return a + b"),
    block("class Solution:\n    def add(self, a, b):\n        return abs(a) + b"),
    "livecodebench/ours_a",
    ("class Solution:", "Return the sum"),
    (
        ("starter_code", "", "expected text, found ''"),
        ("metadata", "{}", "metadata.func_name: this field is missing"),
        ("metadata", "[", "cannot be decoded"),
        ("metadata", '{"func_name": "a b"}', "metadata.func_name: expected the name of a function"),
        ("private_test_cases", lcb([("1 2", "3")]), "found functional, stdin"),
        ("private_test_cases", lcb([("one", "3")], "functional"), "not JSON"),
    ),
)
SETS = (HUMANEVAL, MBPP, BIGCODEBENCH, STDIN, FUNCTIONAL)
IDS = ("humaneval", "mbpp", "bigcodebench", "livecodebench-stdin", "livecodebench-functional")


def one(folder: Path, known: Known, sandbox: Sandbox, **change: object) -> TaskItem:
    file = folder / "test.jsonl"
    file.write_text(json.dumps({**known.row, **change}) + "\n", encoding="utf-8")
    (item,) = load_taskset(f"{known.name}:{file}", tools=GraderTools(sandbox))
    return item


@pytest.mark.parametrize("known", SETS, ids=IDS)
async def test_a_right_program_is_right_and_a_wrong_one_wrong(tmp_path: Path, sandbox: Sandbox, known: Known) -> None:
    item = one(tmp_path, known, sandbox)
    right, wrong, none = [await item.grader.grade(answer) for answer in (known.right, known.wrong, "I do not know.")]
    assert (right.mark, wrong.mark, none.mark) == (GradeMark.RIGHT, GradeMark.WRONG, GradeMark.NO_ANSWER), (
        right,
        wrong,
        none,
    )


@pytest.mark.parametrize("known", SETS, ids=IDS)
def test_workers_see_the_question_and_no_solution(tmp_path: Path, known: Known) -> None:
    task = one(tmp_path, known, ScriptedSandbox([])).task
    assert task.id == known.task_id
    assert all(part in task.prompt for part in known.shown)
    assert "hidden" not in str(task)


@pytest.mark.parametrize(("known", "field", "value", "problem"), [(known, *bad) for known in SETS for bad in known.bad])
def test_a_bad_field_is_named(tmp_path: Path, known: Known, field: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(tmp_path, known, ScriptedSandbox([]), **{field: value})
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/test.jsonl: line 1: ")
    assert problem in said
    assert field in said or problem.startswith("code")


@pytest.mark.parametrize("known", SETS, ids=IDS)
def test_without_a_sandbox_nothing_is_loaded(tmp_path: Path, known: Known) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps(known.row) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="need a sandbox"):
        load_taskset(f"{known.name}:{file}")


def test_labels_and_difficulty_are_kept(tmp_path: Path) -> None:
    contest, libraries = (
        one(tmp_path, STDIN, ScriptedSandbox([])),
        one(tmp_path, BIGCODEBENCH, ScriptedSandbox([]), libs=["math", "re"]),
    )
    assert (contest.task.labels, contest.difficulty) == (("ours", "2031-05-03"), "easy")
    assert libraries.task.labels == ("math", "re")


async def test_the_sanitized_mbpp(tmp_path: Path, sandbox: Sandbox) -> None:
    row = {name: value for name, value in MBPP.row.items() if name in ("task_id", "code", "test_list")}
    other = Known("mbpp", {**row, "prompt": "Double it.", "test_imports": ["import math"]}, "", "", "", (), ())
    item = one(tmp_path, other, sandbox, test_list=["assert math.isclose(double(2), 4)"])
    assert (await item.grader.grade(MBPP.right)).mark is GradeMark.RIGHT


async def test_a_task_whose_library_is_missing_is_left_ungraded(tmp_path: Path, sandbox: Sandbox) -> None:
    item = one(tmp_path, BIGCODEBENCH, sandbox, libs="['no_such_library']")
    assert (await item.grader.grade(BIGCODEBENCH.right)).mark is GradeMark.UNGRADED


@pytest.mark.parametrize("empty", [[], "[]", packed([])])
async def test_one_of_the_two_lists_of_tests_may_be_empty(tmp_path: Path, sandbox: Sandbox, empty: object) -> None:
    item = one(tmp_path, STDIN, sandbox, private_test_cases=empty)
    assert (await item.grader.grade(STDIN.wrong)).mark is GradeMark.RIGHT  # the public test alone is passed
    with pytest.raises(ConfigError, match="public_test_cases: there is no test, and none in private_test_cases"):
        one(tmp_path, STDIN, sandbox, private_test_cases=empty, public_test_cases=empty)


def pickled(value: object, protocol: int) -> str:
    """Return a value as LiveCodeBench publishes private tests: base64 of zlib of a pickle."""
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("long", ["x", "é" * 40_000, "0" * 70_000])
def test_private_tests_are_read_as_they_are_published(tmp_path: Path, protocol: int, long: str) -> None:
    tests = [{"input": long, "output": "1", "testtype": "stdin"}]
    published = pickled(json.dumps(tests, ensure_ascii=False), protocol)
    plain = one(tmp_path, STDIN, ScriptedSandbox([]), private_test_cases=json.dumps(tests))
    assert one(tmp_path, STDIN, ScriptedSandbox([]), private_test_cases=published).task == plain.task


class Runs:
    """What leaves a file behind when its pickle is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("value", [1, b"[]", None, ["[]"], ("[]", "[]"), {"a": "[]"}, [], 2**70, 1.5, True])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_of_anything_but_a_text_is_refused(tmp_path: Path, value: object, protocol: int) -> None:
    with pytest.raises(ConfigError, match="cannot be decoded: a pickle of something other than one"):
        one(tmp_path, STDIN, ScriptedSandbox([]), private_test_cases=pickled(value, protocol))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_runs_something_runs_nothing(tmp_path: Path, protocol: int) -> None:
    file = tmp_path / "run"
    for value in (Runs(file), ["[]", Runs(file)]):
        with pytest.raises(ConfigError, match="private_test_cases: cannot be decoded"):
            one(tmp_path, STDIN, ScriptedSandbox([]), private_test_cases=pickled(value, protocol))
    assert not file.exists()


@pytest.mark.parametrize("cut", [2, 5, 12, 20, -1])
def test_a_pickled_text_that_is_cut_off_or_goes_on_is_refused(tmp_path: Path, cut: int) -> None:
    whole = pickle.dumps("[]" * 40, 4)
    for wrong in (whole[:cut], whole + whole):
        text = base64.b64encode(zlib.compress(wrong)).decode()
        with pytest.raises(ConfigError, match="private_test_cases: cannot be decoded"):
            one(tmp_path, STDIN, ScriptedSandbox([]), private_test_cases=text)
