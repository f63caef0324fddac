"""The pages under docs say what is so: their rows are tasks, and their commands have the options they show."""

import re
from pathlib import Path

import pytest
from paths import ROOT
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.call import Reply
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.grader_registry import GRADERS
from shikisha.evals.tasksets.taskset_loader import load_taskset
from shikisha.sandbox import ScriptedSandbox

PAGE = ROOT / "docs" / "how-to" / "graders.md"
PAGES = PAGE.read_text() + PAGE.with_name("evaluate.md").read_text()


async def no_word(*_: object) -> Reply:
    return Reply("")


def rows() -> str:
    return "".join(re.findall(r"```jsonl\n(.*?)```", PAGE.read_text(), re.DOTALL))


def test_the_rows_of_the_page_are_tasks(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(rows())
    found = load_taskset(str(tmp_path / "tasks.jsonl"), tools=GraderTools(ScriptedSandbox([]), no_word))
    assert len(found) == len(rows().splitlines())
    assert {item.grader.name for item in found} == set(GRADERS) - {"entry_point", "repository"}


@pytest.mark.parametrize("kind", GRADERS)
def test_the_page_names_every_grader(kind: str) -> None:
    assert f"\n| `{kind}` " in PAGE.read_text()


def test_every_option_that_the_page_names_is_one() -> None:
    commands = (["eval"], ["compare"], ["grade"], ["import", "repository"])
    known = "".join(CliRunner().invoke(app, [*name, "--help"], env={"COLUMNS": "200"}).stdout for name in commands)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGES)) - {"--help", "--sandbox"}
    assert named
    assert {option for option in named if option not in known} == set()
