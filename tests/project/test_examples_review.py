"""The code review: tests and a linter first, a model for the files where both are silent, and one list of all."""

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from example_scripts import example
from paths import ROOT

from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose last commit has a failing test, an undefined name, a file without a finding, and prose."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (folder / "old.py").write_text("import os\nx = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)  # noqa: S603 - git in a folder of ours
    (folder / "old.py").write_text("import os\nx = 1\ny = z\n")
    (folder / "quiet.py").write_text("def last(xs):\n    return xs[len(xs)]\n")
    (folder / "test_one.py").write_text("def test_it():\n    assert 1 == 2\n")
    (folder / "notes.md").write_text("Notes.\n")
    for command in (["add", "."], ["commit", "-qm", "second"]):
        subprocess.run([*git, *command], check=True)  # noqa: S603 - git in a folder of ours
    return folder


def remark(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """What a model says of the one file that it is shown."""
    shown = any("b/quiet.py" in text for _, text in asked.messages)
    return ScriptedAnswer(text="Line 2 reads one beyond the end." if shown else "nothing")


async def reviewed(repository: Path, folder: Path, *more: str) -> None:
    """Review the last commit with a double in the place of the model."""
    async with chat_server(remark) as url:
        settings = folder / "settings.toml"
        text = (ROOT / "examples" / "review" / "shikisha.toml").read_text()
        settings.write_text(text.replace('"local:"', f'"{url}"'))
        given = ["--repository", str(repository), "--folder", str(folder / "made"), "--settings", str(settings)]
        await example("review/review.py").main([*given, *more])


@pytest.mark.full
@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed: run scripts/setup dev")
def test_tests_and_linter_come_first_and_a_model_reads_where_they_are_silent(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = f"{sys.executable} -m pytest -q -p no:cacheprovider {{files}}"
    asyncio.run(reviewed(repository, tmp_path, "--tests", tests, "--controls"))
    said = capsys.readouterr().out
    assert "1. make it pass: FAILED test_one.py::test_it" in said
    assert "2. old.py:3: Undefined name `z` (F821)" in said
    assert "3. quiet.py: a model says: Line 2 reads one beyond the end." in said
    assert "unused" not in said  # the import was there before
    assert "2 findings, 1 remarks, 1 files read by the model" in said
    assert "2 findings, 1 remarks, 3 files read by the model" in said
    assert "<svg" in (tmp_path / "made" / "money.svg").read_text()


def test_a_linter_that_is_not_there_is_named(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    asyncio.run(reviewed(repository, tmp_path))
    assert "1. could not look: ruff:" in capsys.readouterr().out


def test_a_folder_that_is_no_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not a git repository"):
        asyncio.run(example("review/review.py").main(["--repository", str(tmp_path), "--folder", str(tmp_path)]))
