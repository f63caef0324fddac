"""Patches graded by a repository's own tests: a repository made here, tasks made of its history, and who cheats."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from code_tasks import kept_jail
from trainings import pool
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.context.git_history import GitRepository
from shikisha.core.errors import ConfigError
from shikisha.evals.graders import Grade, GradeMark, GraderTools
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.taskset import TaskItem
from shikisha.evals.tasksets.taskset_loader import load_taskset
from shikisha.sandbox import Execution, ScriptedSandbox
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha_code.repository_tasks import repository_taskset
from shikisha_code.swebench import read_predictions
from shikisha_code.task_maker import MakerLimits, make_tasks
from shikisha_train.environment import TaskCurriculum

TESTS = ["tests/test_sums.py::test_add", "tests/test_sums.py::test_mean"]
ADD = "def add(a, b):\n    return a + b\n"
MEAN = "\n\ndef mean(numbers):\n    return sum(numbers) / len(numbers)\n"
TEST_ADD = "from sums import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
TEST_MEAN = TEST_ADD.replace("import add", "import add, mean") + "\n\ndef test_mean():\n    assert mean([1, 3]) == 2\n"


@pytest.fixture(scope="module")
def jail() -> Iterator[ProcessSandbox]:
    yield from kept_jail()


def commit(folder: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        place = folder / name.replace("__", "/").replace("_py", ".py")
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    own = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("add", "-A"), (*own, "commit", "-qm", message)):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)  # noqa: S603, S607


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)  # noqa: S603, S607
    commit(folder, "Add two numbers.", sums_py=ADD, tests__test_sums_py=TEST_ADD)
    commit(folder, "Words only, for people.", README=ADD)
    commit(folder, "Take the mean of numbers.\n\nSigned-off-by: A", sums_py=ADD + MEAN, tests__test_sums_py=TEST_MEAN)
    return folder


@pytest.fixture(scope="module")
def made(repository: Path, jail: ProcessSandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    limits = MakerLimits(name="some/sums", test_seconds=20)
    found = asyncio.run(make_tasks(GitRepository(repository), folder, jail, limits))
    assert found.skipped == {"code or tests do not change": 1, "no parent, or many files": 1}
    return folder


def item_of(folder: Path, jail: ProcessSandbox) -> TaskItem:
    (item,) = load_taskset(f"repository:{folder}", tools=GraderTools(jail))
    return item


def row_of(folder: Path) -> dict[str, object]:
    row: dict[str, object] = json.loads((folder / "tasks.jsonl").read_text())
    return row


async def grade(folder: Path, jail: ProcessSandbox, answer: str) -> Grade:
    return await item_of(folder, jail).grader.grade(answer)


def patch_of(old: str, new: str, name: str = "sums.py") -> str:
    taken, given = old.splitlines(), new.splitlines()
    lines = [f"-{line}" for line in taken] + [f"+{line}" for line in given]
    names = f"--- {'a/' + name if old else '/dev/null'}\n+++ b/{name}\n"
    return names + f"@@ -{min(1, len(taken))},{len(taken)} +1,{len(given)} @@\n" + "\n".join(lines) + "\n"


def test_a_task_is_what_a_commit_did_with_its_lists_from_real_runs(made: Path, jail: ProcessSandbox) -> None:
    row, item = row_of(made), item_of(made, jail)
    # Before, the tests could not even be imported, so both of them begin to pass.
    assert json.loads(str(row["FAIL_TO_PASS"])) == TESTS
    assert str(row["instance_id"]).startswith("some__sums-")
    assert row["problem_statement"] == "Take the mean of numbers."
    assert "return sum(numbers)" not in item.task.prompt + item.task.context
    assert item.task.domain == "some/sums"


@pytest.mark.parametrize(
    ("answer", "mark", "evidence"),
    [
        ("I cannot do that.", GradeMark.NO_ANSWER, "there is no patch"),
        (patch_of("def sub():", "def add():"), GradeMark.WRONG, "sums.py: hunk 1 does not apply"),
        (patch_of("", "x = 1", "../outside.py"), GradeMark.WRONG, "leads out of the repository"),
        pytest.param(
            patch_of("", "x = 1", "notes.txt"),
            GradeMark.WRONG,
            "2 of 2 tests fail: tests/test_sums.py::test_add (not run): tests/test_sums.py",
            marks=pytest.mark.full,
        ),
    ],
)
async def test_what_is_no_solution_says_why(
    made: Path, jail: ProcessSandbox, answer: str, mark: GradeMark, evidence: str
) -> None:
    found = await grade(made, jail, answer)
    assert found.mark is mark
    assert evidence in found.evidence


FORGED = f"""
mean = None
TESTS = {TESTS!r}
import sys, os, json
frame = sys._getframe()
while frame:
    nonce = frame.f_locals.get("nonce")
    if isinstance(nonce, str):
        value = nonce + json.dumps({{"tests": dict.fromkeys(TESTS, "passed"), "ever": TESTS, "problems": []}})
        report = json.dumps({{"value": value, "error": None, "parsed": True}}) + chr(10)
        for place in range(3, 64):
            try: os.write(place, report.encode())
            except OSError: pass
        os._exit(0)
    frame = frame.f_back
"""
CHEATS = {  # many more: repository_attacks.py
    "ends the process": "import os\nos._exit(0)\n",
    "forges the report": FORGED,
    "a coin": "import os\nclass Any:\n    def __eq__(self, other): return True\n"
    "def mean(numbers): return Any() if os.urandom(1)[0] & 1 else 0\n",
    "the test's constants": "import sys\ndef mean(numbers):\n"
    "    return [x for x in sys._getframe(1).f_code.co_consts if isinstance(x, int)][-1]\n",
}


async def test_a_patch_is_judged_apart_and_where_it_is_not_its_grade_says_so(
    made: Path, jail: ProcessSandbox, tmp_path: Path
) -> None:
    patch = str(row_of(made)["patch"])
    found = await grade(made, jail, f"Here it is:\n\n```diff\n{patch}```\nDone.")
    assert (found.mark, found.shared, found.evidence) == (GradeMark.RIGHT, False, "2 tests passed")
    assert TaskCurriculum(lambda _: replace(item_of(made, jail), pool=pool("a", "b"))).draw(1)
    shutil.copytree(made / "snapshots", tmp_path / "snapshots")
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row_of(made) | {"patch": "", "apart": False}))
    found = await grade(tmp_path, jail, patch)  # nothing says which tests can be judged apart
    assert (found.mark, found.shared) == (GradeMark.RIGHT, True)
    with pytest.raises(ConfigError, match="learn to cheat"):
        TaskCurriculum(lambda _: replace(item_of(tmp_path, jail), pool=pool("a", "b"))).draw(1)


@pytest.mark.parametrize(
    "cheat", [pytest.param(cheat, marks=() if cheat == "forges the report" else pytest.mark.full) for cheat in CHEATS]
)
async def test_a_patch_that_cheats_is_wrong(made: Path, jail: ProcessSandbox, cheat: str) -> None:
    found = await grade(made, jail, patch_of(ADD, ADD + CHEATS[cheat]))
    assert found.mark is GradeMark.WRONG


async def test_tests_and_their_configuration_come_from_the_task(made: Path, jail: ProcessSandbox) -> None:
    easy = patch_of(TEST_ADD, "def test_add(): pass\ndef test_mean(): pass\n", "tests/test_sums.py")
    plugin = "def pytest_runtest_call(item): item.runtest = lambda: None\n"
    found = await grade(made, jail, easy + patch_of("", plugin, "conftest.py"))
    assert found.mark is GradeMark.WRONG


def test_predictions_in_published_layouts_are_workers_of_an_evaluation(made: Path, tmp_path: Path) -> None:
    row = row_of(made)
    instance = str(row["instance_id"])
    (tmp_path / "snapshots").symlink_to(made / "snapshots")
    for name, patch in (("good", str(row["patch"])), ("idle__v1", patch_of("", "x = 1", "notes.txt"))):
        (tmp_path / "predictions" / name / instance).mkdir(parents=True)
        (tmp_path / "predictions" / name / instance / "patch.diff").write_text(patch)
    listed = {"instance_id": instance, "model_name_or_path": "empty", "model_patch": None}
    (tmp_path / "preds.json").write_text(json.dumps({instance: listed}))
    assert read_predictions(tmp_path).models == ("empty", "good", "idle/v1")


@pytest.mark.full
def test_an_evaluation_grades_predictions_by_running_tests(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    shutil.copytree(made, folder)
    row = row_of(made)
    good = {"instance_id": row["instance_id"], "model_name_or_path": "good", "model_patch": row["patch"]}
    idle = good | {"model_name_or_path": "idle", "model_patch": patch_of("", "x = 1", "notes.txt")}
    (folder / "all_preds.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(idle)}\n")
    line = ["eval", "--taskset", f"repository:{folder}", "--keep", str(tmp_path / "kept"), "--json", "-"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    found = {entry["name"]: entry["accuracy"] for entry in json.loads(result.stdout)["entries"]}
    assert (found["good"], found["idle"]) == (1.0, 0.0)


async def test_the_grader_by_name_finds_its_task(made: Path, jail: ProcessSandbox) -> None:
    settings = {"tasks": str(made), "instance": row_of(made)["instance_id"]}
    found = build_grader("repository", settings, GraderTools(jail), "here")
    assert (await found.grade("no patch")).mark is GradeMark.NO_ANSWER
    with pytest.raises(ConfigError, match="known are some__sums-"):
        build_grader("repository", settings | {"instance": "other-1"}, GraderTools(jail), "here")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS: there is no test that a right patch makes pass"),
        ({"FAIL_TO_PASS": "[3"}, "FAIL_TO_PASS: cannot be decoded"),
        ({"snapshot": "../x.zip"}, "snapshot: '../x.zip' leads out of"),
        ({"snapshot": "none.zip"}, "expected a zip archive of the base's files"),
        ({"files": ["../x.py"]}, "files: '../x.py' leads out of the repository"),
        ({"needs": ["no-such-package-here"]}, "need the package no-such-package-here"),
        (
            {"test_patch": "--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-x\n+y\n"},
            "test_patch: does not apply to the base",
        ),
    ],
)
def test_a_row_that_is_wrong_is_named(made: Path, tmp_path: Path, change: dict[str, object], problem: str) -> None:
    (tmp_path / "snapshots").mkdir()
    for file in (made / "snapshots").iterdir():
        (tmp_path / "snapshots" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row_of(made) | change))
    with pytest.raises(ConfigError) as caught:
        repository_taskset(tmp_path, GraderTools(ScriptedSandbox([])))
    assert problem in str(caught.value)


async def test_a_sandbox_that_runs_nothing_grades_nothing(made: Path) -> None:
    (item,) = repository_taskset(made, GraderTools(ScriptedSandbox([Execution(error="no memory")] * 4)))
    found = await item.grader.grade(str(row_of(made)["patch"]))
    assert (found.mark, found.score) == (GradeMark.UNGRADED, None)


def test_a_repository_without_tests_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True)  # noqa: S603, S607
    commit(tmp_path / "r", "Only code.", sums_py=ADD)
    with pytest.raises(ConfigError, match="a repository without tests gives no tasks"):
        asyncio.run(make_tasks(GitRepository(tmp_path / "r"), tmp_path / "t", ScriptedSandbox([]), MakerLimits()))


def test_a_folder_that_is_no_repository_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", "repository", str(tmp_path), "--out", str(tmp_path / "t")])
    assert result.exit_code == 3
    assert "expected a git repository that can be read" in result.stderr


async def test_a_test_that_passes_apart_without_any_patch_decides_nothing_there(
    tmp_path: Path, jail: ProcessSandbox
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)  # noqa: ASYNC221, S603, S607
    base = "class Deco:\n    def __get__(self, one, kind):\n        raise ValueError\n"
    test = "import sums\n\n\nclass C:\n    m = sums.Deco()\n\n\ndef test_read():\n    assert C.m is not None\n"
    commit(tmp_path / "repo", "Begin.", sums_py=base, tests__test_sums_py="def test_one():\n    assert True\n")
    commit(
        tmp_path / "repo",
        "Return one.\n\nSigned-off-by: A",
        sums_py=base.replace("raise ValueError", "return 1"),
        tests__test_sums_py=test,
    )
    limits = MakerLimits(name="some/sums", test_seconds=20)
    await make_tasks(GitRepository(tmp_path / "repo"), tmp_path / "tasks", jail, limits)
    nothing = patch_of("", "nothing\n", "NOTES.txt")
    assert (await grade(tmp_path / "tasks", jail, nothing)).mark is GradeMark.WRONG
    right = await grade(tmp_path / "tasks", jail, str(row_of(tmp_path / "tasks")["patch"]))
    assert (right.mark, right.shared) == (GradeMark.RIGHT, True)
