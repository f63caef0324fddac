"""The first program of the README: short, typed as an editor sees it, and the fixture that tests such programs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from shikisha.pytest_plugin import ScriptedPool

PROGRAM = ROOT / "examples" / "first_program.py"  # `scripts/check` runs mypy, strict, over it


def test_the_readme_shows_the_program_that_is_checked() -> None:
    shown = re.search(r"## Five lines of Python\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == PROGRAM.read_text()


def test_a_useful_first_program_has_at_most_six_lines() -> None:
    lines = [line for line in PROGRAM.read_text().splitlines() if line.strip()]
    assert len(lines) <= 6
    assert isinstance(ast.parse(PROGRAM.read_text()), ast.Module)


@pytest.mark.slow
def test_an_editor_finds_no_error_in_it() -> None:
    told = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(PROGRAM)]
    done = subprocess.run(told, capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603 - our own command
    assert done.returncode == 0, done.stdout


def test_scripted_workers_answer_and_keep_what_they_were_asked() -> None:
    made = ScriptedPool()
    s = made(cheap=["no idea", "42"], strong="strong")
    assert s.run("What is the answer?").answer == "no idea"
    assert s.run("And now?").answer == "42"
    assert [each.task.prompt for each in made.workers["cheap"].requests] == ["What is the answer?", "And now?"]
    assert not made.workers["strong"].requests  # the first worker of the list gets the task
    assert made("only one").run("?").answer == "only one"
    made.close()


def test_a_vote_shows_its_graph_in_a_notebook() -> None:
    made = ScriptedPool()
    shown = made(a="<b>x</b>", b="y", c="y", conductor="fixed:vote").run("Which?")._repr_html_()
    made.close()
    assert shown.count("<rect") == 4
    assert "<circle" in shown
    assert "<b>x</b>" not in shown
    assert "&lt;b&gt;x" in shown


@pytest.mark.full
def test_pytest_offers_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        'def test_it(scripted_shikisha):\n    assert scripted_shikisha("yes").run("?").answer == "yes"\n'
    )
    told = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(told, capture_output=True, text=True, cwd=tmp_path, check=False)  # noqa: S603 - our own command
    assert "1 passed" in done.stdout, done.stdout + done.stderr
