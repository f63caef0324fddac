"""Every code block of the README, the contributing guide and the documentation is executed.

The tutorial's commands run for real, in order, against a scripted chat server in place of its endpoints. On the other
pages a command line is parsed by the command that it names, options and choices included; TOML is validated by the
models that read it, rows of JSON are loaded as tasks, Python is compiled and its imports are resolved.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from shikisha.cli import COMMANDS, PLUGGED, load_command
from shikisha.config.settings import ShikishaSettings
from shikisha.config.template import config_schema
from shikisha_train.settings import TrainSettings

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL = ROOT / "docs" / "tutorial.md"
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
SCRIPT = [
    {"when": "Reply with the one word", "text": "ready"},
    {"when": "Your reasoning and plan", "text": 'model_id = [0]\nsubtasks = ["answer"]\naccess_list = [[]]'},
    {"when": "17 * 23", "text": "391"},
    {"when": "2 to the power of 10", "text": "1024"},
    {"when": "leap year", "text": "366"},
    {"when": "", "text": "yes"},
]


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a page in these languages, without their indentation."""
    for indent, language, text in FENCE.findall(page.read_text()):
        if language in languages:
            yield "\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n"


def commands() -> Iterator[tuple[str, str]]:
    """Every shell line of every page, continued lines joined."""
    for page in PAGES:
        for block in blocks(page, "sh", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                if shlex.split(line, comments=True):
                    yield str(page.relative_to(ROOT)), line


def parse(words: list[str]) -> None:
    """Parse a command line of ours as the program does; the command itself is not run."""
    if words[0].startswith("--"):
        return
    name = words.pop(0)
    assert name in COMMANDS or name in PLUGGED, f"no command {name}"
    if words and (f"{name} {words[0]}" in COMMANDS or f"{name} {words[0]}" in PLUGGED):
        name = f"{name} {words.pop(0)}"
    command: Any = load_command(name)
    context = command.make_context(name, [], resilient_parsing=True)
    while hasattr(command, "get_command"):
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"no command {name}"
    try:
        command.make_context(command.name, words)
    except Exception as error:
        if "does not exist" not in str(error):  # a file of the reader's own
            raise


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_each_shell_line_is_a_command(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    for ends in ("|", ">"):
        words = words[: words.index(ends)] if ends in words else words
    match words:
        case ["shikisha", *rest]:
            parse([word for word in rest if word not in ("&", "2>&1")])
        case ["make", *targets]:
            made = (ROOT / "Makefile").read_text()
            names = [target for target in targets if "=" not in target]
            assert all(
                re.search(rf"^{re.escape(name)}\b|^.*{re.escape(name)}.*:", made, re.MULTILINE) for name in names
            )
        case ["python", script, *_] if not script.startswith("-"):
            assert (ROOT / script).is_file(), page


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_each_page_of_a_path_ends_in_something_that_runs(page: Path) -> None:
    text = page.read_text()
    last = list(FENCE.finditer(text))[-1]
    assert last[2] in ("sh", "python")
    assert len(text[last.end() :].split()) <= 70


def pages_with(language: str) -> pytest.MarkDecorator:
    """A case for each page that has a block in this language."""
    pages = [page for page in PAGES if any(blocks(page, language))]
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@pages_with("python")
def test_each_block_of_python_compiles_and_imports_what_is_there(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("shikisha"):
                home = import_module(node.module)
                for alias in node.names:
                    assert hasattr(home, alias.name) or find_spec(f"{node.module}.{alias.name}"), alias.name


@pytest.mark.parametrize(
    "block", list(blocks(ROOT / "CONTRIBUTING.md", "python")), ids=["plug-in", "grader", "conductor", "taskset"]
)
def test_each_example_of_a_contribution_runs(block: str) -> None:
    exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page


@cache
def known_keys() -> frozenset[str]:
    """The tables and keys of `shikisha.toml`."""
    properties = config_schema()["properties"]
    assert isinstance(properties, dict)
    return frozenset(properties)


@pages_with("toml")
def test_each_block_of_toml_has_keys_that_there_are(page: Path) -> None:
    known = known_keys()
    for block in blocks(page, "toml"):
        table = tomllib.loads(block)
        if "project" in table:  # a plug-in's pyproject.toml
            continue
        if table.keys() <= known:
            ShikishaSettings.model_validate(
                {k: v for k, v in table.items() if k not in ("workers", "checks", "conductors")}
            )
        else:
            assert table.keys() <= TrainSettings.model_fields.keys(), table.keys()


def test_contributings_plug_in_comes_from_an_empty_folder_to_an_answer(tmp_path: Path) -> None:
    """Its files, built and installed as they stand, without a network; then the commands of the page."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    walk = page[page.index("## Add a kind") : page.index("## Add a grader")]
    fences = [(language, text) for _, language, text in FENCE.findall(walk)]
    texts = {language: [text for each, text in fences if each == language] for language in ("toml", "python", "sh")}
    package, site = tmp_path / "empty", tmp_path / "site"
    package.mkdir()
    (package / "pyproject.toml").write_text(texts["toml"][0])
    (package / "shikisha_echo.py").write_text(texts["python"][0])
    (package / "shikisha.toml").write_text(texts["toml"][1])
    install, *commands = texts["sh"][0].splitlines()
    assert install == "pip install --no-build-isolation -e ."
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(site), "."], cwd=package, check=True, capture_output=True)  # noqa: S603 - our own
    path = os.pathsep.join((str(site), str(ROOT / "src")))
    said = {}
    for line in commands:
        words = shlex.split(line, comments=True)
        done = subprocess.run(  # noqa: S603 - our own page
            [sys.executable, "-m", *words],
            cwd=package,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        said[words[1]] = done.stdout
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    assert (
        "ok    plug-in workers echo: shikisha-echo 1.0.0 (shikisha.workers: echo = shikisha_echo:KIND)"
        in said["doctor"]
    )
    assert "how often the task is repeated" in said["init"]
    assert said["run"] == "Hello? Hello?\n"


@pytest.mark.full
def test_the_tutorial_runs_from_top_to_end(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    server = [sys.executable, "-m", "shikisha.testing", "--script", str(tmp_path / "script.json")]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as endpoint:  # noqa: S603 - our own program
        assert endpoint.stdout is not None
        try:
            url = endpoint.stdout.readline().strip()
            (toml,) = blocks(TUTORIAL, "toml")
            (tmp_path / "shikisha.toml").write_text(re.sub(r'base_url = "[^"]*"', f'base_url = "{url}"', toml))
            (rows,) = blocks(TUTORIAL, "jsonl")
            (tmp_path / "tasks.jsonl").write_text(rows)
            lines = [
                line for block in blocks(TUTORIAL, "sh") for line in block.splitlines() if line.startswith("shikisha ")
            ]
            ran = [run_line(line, tmp_path) for line in lines if line != "shikisha serve"]
        finally:
            endpoint.terminate()
    assert len(ran) >= 8
    assert "yes" in ran[1]
    assert (tmp_path / "report.html").stat().st_size > 10_000


def run_line(line: str, folder: Path) -> str:
    """Run a line of the page in this folder and return what it printed on stdout."""
    command = [sys.executable, "-m", *shlex.split(line)]
    environment = {**os.environ, "OPENAI_API_KEY": "sk-a-key-of-nobody", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own page
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout
