"""What the README shows is what happens."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from shikisha.cli import COMMANDS
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


def test_the_picture_of_the_workshop_says_what_its_page_says(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "workshop" / "workshop_picture.py"
    command = [sys.executable, str(script), "--out", str(tmp_path / "new.svg")]
    subprocess.run(command, check=True)  # noqa: S603 - our own script
    assert (tmp_path / "new.svg").read_text() == (ROOT / "docs/images/where-conducting-pays.svg").read_text()


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


MOST_WORDS = 22_500  # aim 22,000: lower it when a page got shorter

# What a native reader stumbles over, and what to write. `docs/research-log.md` and `docs/results/` quote what was said.
IDIOMS = {
    r"dear(er|est)\b": "costs more",
    r"mend(s|ed|ing)?\b(?!-clock)": "fix, correct",
    r"practi[sc]e[sd]?\b": "train, try",
    r"beside\b": "next to",
    r"is none (that|of)\b": "is not a",
    r"shown to (gain|be)\b": "prove, show",
    r"as it were\b": "",
    r"foret(old|ell)\b": "expected, predicted",
    r"nor is there\b": "and there is no",
    r"wont to\b": "usually",
    r"thither\b|whereof\b|therein\b": "there",
}


def prose() -> Iterator[tuple[str, int, str]]:
    """Yield the lines that people read: name, number, text."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    quoting = ("research-log.md", "CHANGELOG.md")
    pages = [each for each in pages if each.name not in quoting and each.parent.name != "results"]
    for page in sorted(pages):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            yield str(page.relative_to(ROOT)), number, line
    for page in sorted((ROOT / "src/shikisha/server/pages/templates").iterdir()):
        shown = re.sub(r"\{[{%#].*?[%#}]\}|<[^>]*>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for number, line in enumerate(shown.splitlines(), 1):
            yield page.name, number, line
    for name, (_, _, summary) in COMMANDS.items():
        yield f"shikisha {name}", 0, summary


def test_the_prose_has_none_of_the_idioms_that_no_native_reader_would_write() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]} (write {better or 'nothing'})"
        for name, number, line in prose()
        for idiom, better in IDIOMS.items()
        if re.search(rf"\b(?:{idiom})", line, re.IGNORECASE)
    ]
    assert found == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    broken = []
    for page in {ROOT / name for name, number, _ in prose() if number and name.endswith(".md")}:
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            generated = re.search(r"(?:use-cases|reference)/([\w-]+)\.md$", target)
            there = page.parent / target
            if not there.exists() and not (generated and ROOT / "docs" in page.parents):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_manual_stays_short() -> None:
    """The pages that people read; results, the research log and the generated reference are looked up."""
    pages = [each for each in (ROOT / "docs").rglob("*.md") if each.name != "research-log.md"]
    words = sum(len(each.read_text(encoding="utf-8").split()) for each in pages if each.parent.name != "results")
    assert words <= MOST_WORDS


def test_nothing_of_the_built_manual_comes_from_elsewhere() -> None:
    """The plug-in `offline` would fetch what makes the search work in a site that was opened as a file."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (scripts,) = re.findall(r"polyfills: \[(.*iframe-worker.*)\]", settings)
    assert all((ROOT / "docs" / each).is_file() for each in scripts.split(", "))
    assert "://" not in settings
