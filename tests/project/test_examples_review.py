"""The code review: every file of a commit by its specialist, failing tests found, a plan made, and nothing sent out."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from example_scripts import example

from shikisha.core.events import MapStarted, RunStarted
from shikisha.journal import open_journal


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose last commit has three files in two languages, one of them no Python, and a failing test."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (folder / "old.py").write_text("x = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)  # noqa: S603 - git in a folder of ours
    (folder / "one.py").write_text("print(12345)  # TODO\n")
    (folder / "two.py").write_text("def broken(:\n")
    (folder / "test_one.py").write_text("def test_it():\n    assert 1 == 2\n")
    (folder / "notes.md").write_text("This is really simply very short.\n")
    for command in (["add", "."], ["commit", "-qm", "second"]):
        subprocess.run([*git, *command], check=True)  # noqa: S603 - git in a folder of ours
    return folder


def test_every_file_is_reviewed_by_its_specialist_and_the_plan_begins_with_what_fails(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    asyncio.run(example("review/review.py").main(["--repository", str(repository), "--folder", str(made)]))
    said = capsys.readouterr().out
    assert "1 commits, 4 files, each reviewed alone" in said
    assert "1. make it pass: two.py: invalid syntax" in said
    assert "prints (1 places)" in said

    async def read() -> list[object]:
        async with open_journal(str(made / "review.db")) as journal:
            return [event for run in await journal.runs() for event in await journal.read(run.id)]

    events = asyncio.run(read())
    assert sorted(event.items for event in events if isinstance(event, MapStarted)) == [1, 3]
    begun = next(event for event in events if isinstance(event, RunStarted))
    assert {"python", "prose", "changes", "tests"} <= set(begun.pool)


@pytest.mark.slow
def test_the_tests_of_a_commit_are_run_and_controls_are_drawn(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = f"{sys.executable} -m pytest -q -p no:cacheprovider {{files}}"
    given = [
        "--repository",
        str(repository),
        "--folder",
        str(tmp_path),
        "--commits",
        "2",
        "--controls",
        "--tests",
        tests,
    ]
    asyncio.run(example("review/review.py").main([*given, "--tests", tests]))
    said = capsys.readouterr().out
    assert "make it pass: FAILED test_one.py::test_it" in said
    assert "always the best" in said
    compared = json.loads((tmp_path / "review.json").read_text())
    assert compared["always the cheapest"]["dollars"] < compared["always the best"]["dollars"]
    assert "<svg" in (tmp_path / "money.svg").read_text()


def test_a_folder_that_is_no_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not a git repository"):
        asyncio.run(example("review/review.py").main(["--repository", str(tmp_path), "--folder", str(tmp_path)]))
