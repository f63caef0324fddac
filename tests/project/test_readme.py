"""What the README shows is what happens."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from shikisha.config.container import load_config
from shikisha.testing import ScriptedAnswer, ScriptedToolCall, chat_server

README = (ROOT / "README.md").read_text()


POOL_PAGE = (ROOT / "docs" / "how-to" / "pool.md").read_text()
PYTHON_PAGE = (ROOT / "docs" / "reference" / "python.md").read_text()
SCRIPT = [
    ScriptedAnswer(
        calls=(ScriptedToolCall(name="invoices", arguments={"customer": "ACME"}),),
        results=0,
        when="What does ACME owe us?",
    ),
    ScriptedAnswer(text='{"customer": "ACME", "dollars": 42.5}', results=1),
]


def perform(code: str, folder: Path, **environment: str) -> str:
    """What a program prints."""
    (folder / "example.py").write_text(code)
    command = [sys.executable, "example.py"]
    done = subprocess.run(  # noqa: S603 - our own page
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", [README, PYTHON_PAGE], ids=["readme", "reference"])
async def test_the_few_lines_of_python_ask_a_model_that_calls_the_function(page: str, tmp_path: Path) -> None:
    (found,) = [
        code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if ".run(" in code and "Shikisha(" in code
    ]
    async with chat_server(SCRIPT) as url:
        spec = '"openai:gpt-5-mini"'
        code = found.replace(f'{{"spec": {spec}', f'{{"spec": {spec}, "base_url": "{url}"')
        code = code.replace(f"workers=[{spec}", f'workers=[{{"spec": {spec}, "base_url": "{url}"}}')
        printed = await asyncio.to_thread(perform, code, tmp_path, OPENAI_API_KEY="sk-a-key-of-nobody")
    assert "42.5" in printed
    assert "openai:gpt-5-mini" in printed


def test_the_engine_by_hand_prints_what_it_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"## By hand.*?```python\n(.*?)```", PYTHON_PAGE, re.DOTALL)
    assert perform(code, tmp_path) == "HELLO WORLD 0.0\n"


def test_the_readme_stays_one_screen() -> None:
    assert len(README.encode()) <= 6_000, "what a person needs later stands in docs/"


async def test_the_configuration_makes_a_pool_and_a_conductor(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    (written,) = re.findall(r"```toml\n(# shikisha.toml is sparse.*?)```", POOL_PAGE, re.DOTALL)
    file.write_text(written)
    composition = load_config(file, {"OPENAI_API_KEY": "sk-not-a-real-one"})
    pool = composition.pool()
    assert pool.names == ("cheap", "expensive", "calculator")
    assert composition.conductor("", pool).name == "lm:planner"
    assert (composition.caps.dollars, composition.caps.seconds) == (0.25, 120)
    await composition.aclose()
