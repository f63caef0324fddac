"""A user's own function as a grader: what it may return, and that nothing it does is more than a grade."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import SUPPORT
from pydantic import ValidationError

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import Grade, GradeMark, GraderTools
from shikisha.evals.graders.entry_point import EntryPointSettings, build_entry_point_grader
from shikisha.evals.tasksets.taskset_loader import load_taskset


async def grade(function: str, answer: str, **more: object) -> Grade:
    given = {"function": f"grading_functions:{function}", "gold": "five", "prompt": "Say it.", **more}
    return await build_entry_point_grader(EntryPointSettings.model_validate(given), GraderTools()).grade(answer)


@pytest.mark.parametrize("function", ["same", "same_later", "lazily", "Checks.same"])
async def test_a_function_is_given_answer_prompt_and_gold(function: str) -> None:
    right, wrong = await grade(function, "five"), await grade(function, "six")
    assert (right.mark, right.score, wrong.mark, wrong.score) == (GradeMark.RIGHT, 1.0, GradeMark.WRONG, 0.0)
    assert right.grader == "entry_point"
    assert right.evidence == f"grading_functions:{function} returned True"
    assert (await grade(function, "five", prompt="Another.")).mark is GradeMark.WRONG


@pytest.mark.parametrize(
    ("function", "answer", "mark", "score", "evidence"),
    [
        ("as_number", "0.25", GradeMark.PARTIAL, 0.25, "returned 0.25"),
        ("as_number", "1", GradeMark.RIGHT, 1.0, "returned 1.0"),
        ("as_number", "", GradeMark.NO_ANSWER, 0.0, "returned None"),
        ("as_number", "1.5", GradeMark.UNGRADED, None, "returned 1.5: expected a number from 0 to 1"),
        ("as_number", "-0.1", GradeMark.UNGRADED, None, "returned -0.1: expected a number from 0 to 1"),
        ("as_number", "nan", GradeMark.UNGRADED, None, "returned nan: expected a number from 0 to 1"),
        ("as_number", "x", GradeMark.UNGRADED, None, "ValueError: could not convert string to float: 'x'"),
        ("as_grade", "x", GradeMark.PARTIAL, 0.5, "half of it"),
        ("as_grade", "nothing", GradeMark.UNGRADED, None, "I do not know"),
        ("as_grade", "nonsense", GradeMark.UNGRADED, None, "a grade right with the score None"),
        ("as_grade", "beyond", GradeMark.UNGRADED, None, "a grade right with the score 7.0"),
        ("of_any_type", "text", GradeMark.UNGRADED, None, "returned a str: expected a bool, a number"),
        ("of_any_type", "list", GradeMark.UNGRADED, None, "returned a list: expected a bool, a number"),
        ("of_any_type", "scalar", GradeMark.RIGHT, 1.0, "returned True"),
        ("of_any_type", "wide", GradeMark.UNGRADED, None, "returned 2: expected a number from 0 to 1"),
        ("failing", "x", GradeMark.UNGRADED, None, "failing: ValueError: x"),
        ("failing", "exit", GradeMark.UNGRADED, None, "failing: SystemExit: exit"),
        ("failing", "stop", GradeMark.UNGRADED, None, "failing: StopIteration: stop"),
        ("failing", "mute", GradeMark.UNGRADED, None, "failing: MuteError"),
        ("failing_later", "x", GradeMark.UNGRADED, None, "failing_later: ValueError: x"),
        ("failing_later", "exit", GradeMark.UNGRADED, None, "failing_later: SystemExit: exit"),
        ("failing_later", "cancel", GradeMark.UNGRADED, None, "failing_later: it was cancelled"),
    ],
)
async def test_what_it_returns_or_raises_is_a_grade(
    function: str, answer: str, mark: GradeMark, score: float | None, evidence: str
) -> None:
    given = await grade(function, answer)
    assert (given.grader, given.mark, given.score) == ("entry_point", mark, score)
    assert evidence in given.evidence


async def test_a_row_of_a_user_s_file_hands_its_prompt_on(tmp_path: Path) -> None:
    row = {"prompt": "Say it.", "checker": "entry_point", "function": "grading_functions:same", "gold": "five"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    (item,) = load_taskset(str(tmp_path / "mine.jsonl"), tools=GraderTools())
    assert (await item.grader.grade("five")).mark is GradeMark.RIGHT


async def test_a_grade_of_its_own_keeps_who_judged() -> None:
    assert (await grade("as_grade", "nothing")).judged
    assert (await grade("as_grade", "x")).found == "x"


@pytest.mark.parametrize("function", ["endless", "endless_later"])
async def test_one_that_does_not_end_is_ungraded_and_the_loop_goes_on(function: str) -> None:
    grading = asyncio.create_task(grade(function, "x", seconds=0.2))
    turns = 0
    while not grading.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert grading.result().mark is GradeMark.UNGRADED
    assert "no end after 0.2 s" in grading.result().evidence
    assert turns > 1


@pytest.mark.parametrize("function", ["endless", "endless_later"])
async def test_cancelling_a_grade_ends_the_waiting(function: str) -> None:
    grading = asyncio.create_task(grade(function, "x"))
    await asyncio.sleep(0.05)
    grading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grading


def test_no_exit_waits_for_a_function_that_never_ends() -> None:
    program = (
        "import asyncio\nfrom shikisha.evals.graders import GraderTools\n"
        "from shikisha.evals.graders.entry_point import EntryPointSettings, build_entry_point_grader\n"
        "settings = EntryPointSettings(function='grading_functions:endless', seconds=0.1)\n"
        "grader = build_entry_point_grader(settings, GraderTools())\n"
        "print(asyncio.run(grader.grade('x')).mark)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program],
        cwd=SUPPORT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("ungraded\n", "")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("no_such_module:f", "no_such_module:f: there is no module 'no_such_module' on Python's path"),
        ("shikisha.nowhere.at_all:f", "there is no module 'shikisha.nowhere' on Python's path"),
        ("grading_functions:nothing", "grading_functions has no 'nothing'"),
        ("grading_functions:Checks.nothing", "grading_functions has no 'Checks.nothing'"),
        ("grading_functions:NUMBER", "expected a function, found a int"),
        ("grading_functions:of_one", r"expected a function of \(answer, prompt, gold\): too many positional arguments"),
        ("broken_module:f", "importing broken_module failed: ZeroDivisionError: division by zero"),
        ("lacking_module:f", "importing lacking_module failed: ModuleNotFoundError: No module named 'not_installed'"),
    ],
)
def test_a_name_that_leads_to_no_grader_is_an_error_that_says_why(
    function: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    (tmp_path / "lacking_module.py").write_text("import not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=problem):
        build_entry_point_grader(EntryPointSettings(function=function), GraderTools())


@pytest.mark.parametrize(
    "name", ["", "module", "module:", ":f", "mo dule:f", "module:f()", "../module:f", "a..b:f", "1:f"]
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="function"):
        EntryPointSettings(function=name)
