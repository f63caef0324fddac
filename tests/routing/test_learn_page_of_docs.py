"""The page on learning says what is so: its rows are a log, its commands work on a small one, its options exist."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from panels import POOL as MADE
from panels import panel
from paths import ROOT
from policies import write
from test_learn_cli import perform
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.model_selection import MIN_TASKS, POLICY, TABLE
from shikisha.routing.trade_off import TargetMetric

SHELF = ("show", "canary", "promote", "watch")
PAGE = ROOT / "docs" / "how-to" / "learn.md"
POOL = "".join(
    f'[workers.{name}]\nkind = "scripted"\nanswers = "A"\nprice = {{ call = 0.01 }}\n'
    for name in ("cheap", "middle", "expensive")
)


def blocks(language: str, page: Path = PAGE) -> list[str]:
    """The contents of a page's blocks in this language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_rows_of_the_page_are_a_log(tmp_path: Path) -> None:
    for stem in ("tasks", "outcomes"):
        (rows,) = blocks(f"jsonl {stem}", PAGE.with_name("outcomes.md"))
        (tmp_path / f"{stem}.jsonl").write_text(rows)
    log = OutcomeLog.read(tmp_path)
    assert (log.task_ids, log.workers) == (("t1",), ("cheap", "expensive"))


@pytest.mark.full
def test_every_command_of_the_page_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workers = dict(zip(("cheap", "middle", "expensive"), MADE.values(), strict=True))
    write(panel(workers, MIN_TASKS + 10), tmp_path / "outcomes")
    (tmp_path / "shikisha.toml").write_text(POOL)
    asyncio.run(perform(tmp_path / "runs.db", 60))
    commands = [shlex.split(line)[1:] for block in blocks("sh") for line in block.splitlines()]
    assert [command[0] for command in commands] == ["learn", "policy", "run", "eval", "learn"]
    for command in commands:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, (command, result.output, result.stderr)


@pytest.mark.parametrize("name", [TABLE, POLICY, *(f"?{aim}=" for aim in TargetMetric if aim is not TargetMetric.BEST)])
def test_the_page_names_every_rung_and_every_way_to_turn_the_dial(name: str) -> None:
    assert f"| `{name}" in PAGE.read_text()


def test_every_option_that_the_page_names_is_one() -> None:
    known = "".join(
        CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).stdout
        for command in (
            ["learn"],
            ["run"],
            ["eval"],
            ["feedback"],
            ["grade"],
            ["import", "outcomes"],
            *(["policy", name] for name in SHELF),
        )
    )
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text()))
    assert named
    assert {option for option in named if option not in known} == set()
