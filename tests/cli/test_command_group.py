"""The lazy command group: what `--help` lists is what the commands say, and a missing library names its extra."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from shikisha import __version__
from shikisha.cli import (
    COMMANDS,
    FRONT,
    PLUGGED,
    REMOVED,
    RENAMED,
    app,
    complete_json_option,
    load_command,
    rename_options,
)
from shikisha.cli.exit_codes import ExitCode


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    assert (load_command(name).help or "").split("\n")[0] == COMMANDS[name][2]


def test_the_help_lists_every_command_in_order() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    front, more = (part.split("Exit codes")[0] for part in shown.partition("Commands:")[2].split("More:"))
    assert [line.split()[0] for line in front.splitlines() if re.match(r"  \w", line)] == list(FRONT)
    listed = [line.split()[0] for line in more.splitlines() if re.match(r"  \w", line)]
    own = [name for name in COMMANDS if name not in FRONT and " " not in name]
    assert sorted(listed) == sorted([*own, *(name for name in PLUGGED if " " not in name)])


@pytest.mark.parametrize("command", [name for name in COMMANDS if " " in name])
def test_a_nested_command_has_its_own_help_and_its_noun_names_it(command: str) -> None:
    name, nested = command.split()
    assert f"{command} [OPTIONS]" in CliRunner().invoke(app, [name, nested, "--help"]).stdout
    further = CliRunner().invoke(app, [name, "--help"]).stdout.partition("Further: ")[2]
    assert nested in further.split("; each")[0].split()


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_spelling_works_and_names_the_new_one(old: str, new: str) -> None:
    done = CliRunner().invoke(app, [*old.split(), "--help"])
    words = new.split()
    assert any(f" {' '.join(words[:count])} [OPTIONS]" in done.stdout for count in range(1, len(words) + 1))
    assert done.stderr == f"shikisha: `{old}` is now `{new}`\n"


@pytest.mark.parametrize(("name", "word"), REMOVED)
@pytest.mark.parametrize("rest", [[], ["=1"], ["more"]])
def test_what_was_removed_says_so_and_what_to_use(name: str, word: str, rest: list[str]) -> None:
    written = [word + rest[0]] if rest == ["=1"] and word.startswith("-") else [word, *rest]
    before = ["log", "--out", "x.policy"] if word.startswith("-") else []
    done = CliRunner().invoke(app, [*name.split(), *before, *written])
    assert done.exit_code == ExitCode.CONFIG
    assert f"{name} {word} was removed; instead {REMOVED[name, word]}" in done.stderr


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed(option: str) -> None:
    assert CliRunner().invoke(app, [option]).stdout == f"shikisha {__version__}\n"


@pytest.mark.parametrize("arguments", [["-h"], ["run", "-h"], ["journal", "verify", "-h"]])
def test_h_shows_the_help(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).stdout.strip().startswith("Usage: ")


def test_a_shell_completes_commands_and_their_options() -> None:
    def completed(line: str) -> list[str]:
        asked = {"_SHIKISHA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        found = CliRunner().invoke(app, [], env=asked, prog_name="shikisha")
        return found.stdout.split()

    assert completed("shikisha ru") == ["run", "runs"]
    assert completed("shikisha run --quie") == ["--quiet"]


def leaves(name: str, found: object) -> Iterator[tuple[str, list[object]]]:
    """Every command with its parameters; those of groups too."""
    commands = getattr(found, "commands", None)
    if commands is None:
        yield name, list(getattr(found, "params", []))
    for inner, each in (commands or {}).items():
        yield from leaves(f"{name} {inner}", each)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_means_one_thing_everywhere(name: str) -> None:
    for path, parameters in leaves(name, load_command(name)):
        said = [str(getattr(each, "help", "")) for each in parameters if "--json" in getattr(each, "opts", [])]
        assert [text.startswith("Print one JSON value to stdout") for text in said] == [True], path


@pytest.mark.parametrize("name", COMMANDS)
def test_the_usage_brackets_an_argument_that_may_be_left_out_once(name: str) -> None:
    for path, parameters in leaves(name, load_command(name)):
        arguments = [each for each in parameters if getattr(each, "param_type_name", "") == "argument"]
        assert [each for each in arguments if str(getattr(each, "metavar", "")).startswith("[")] == [], path


def test_json_without_a_file_is_printed() -> None:
    assert complete_json_option("eval", ["--json", "--tasks", "3"]) == ["--json", "-", "--tasks", "3"]
    assert complete_json_option("learn", ["x", "--json"]) == ["x", "--json", "-"]
    assert complete_json_option("eval", ["--json", "a.json", "-q"]) == ["--json", "a.json", "-q"]
    assert complete_json_option("eval", ["--json", "-"]) == ["--json", "-"]
    assert complete_json_option("run", ["--json", "-q"]) == ["--json", "-q"]


@pytest.mark.parametrize(
    ("library", "arguments", "extra"),
    [
        ("torch", ["train", "x.toml"], "train"),
        ("numpy", ["policy", "show", "x"], "eval"),
        ("fastapi", ["serve"], "server"),
    ],
)
def test_a_missing_library_is_reported_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, library: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "shikisha.toml").write_text('pool = ["simulated"]\n')
    monkeypatch.setenv("SHIKISHA_CONFIG", str(tmp_path / "shikisha.toml"))
    shared = ("shikisha.core.", "shikisha.cli.options", "shikisha.cli.exit_codes", "shikisha.cli.output")
    for name in list(sys.modules):
        if name.split(".")[0] == library or (name.startswith("shikisha.") and not name.startswith(shared)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == ExitCode.CONFIG
    assert f"pip install 'shikisha[{extra}]'" in result.stderr
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == ExitCode.CONFIG
    assert f"shikisha[{extra}]" in result.stdout


def test_a_command_that_is_not_there_is_answered_by_a_similar_one() -> None:
    assert "did you mean learn?" in CliRunner().invoke(app, ["leran"]).stderr


def test_every_group_has_commands() -> None:
    groups = {name: load_command(name) for name in ("journal", "import", "policy", "keys")}
    assert all(isinstance(group, typer.core.TyperGroup) and group.commands for group in groups.values())


def test_an_old_option_works_and_names_the_new_one() -> None:
    assert rename_options("keys", ["create", "Ann", "--tokens", "5", "--dollars=2", "--json"]) == [
        *("create", "Ann", "--cap", "tokens=5", "--cap", "dollars=2", "--json")
    ]
    assert rename_options("policy", ["show", "x.policy", "--max-cost", "20%"])[2:] == ["--at", "max_cost=20%"]
    assert rename_options("import", ["outcomes", "otel", "x", "--score", "Truth", "--domain=team"])[3:] == [
        *("--column", "score=Truth", "--column", "domain=team")
    ]
    assert rename_options("run", ["--dollars", "2"]) == ["--dollars", "2"]
    done = CliRunner().invoke(app, ["policy", "show", "nothing.policy", "--quality", "0.9"])
    assert "`--quality X` is now `--at quality=X`" in done.stderr
