"""A whole run over real HTTP: a scripted server in a process of its own, the real SDK, the command line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode

KEY = "sk-planted-0123456789"
PLAN = 'Two parts.\nmodel_id = [0, 1]\nsubtasks = ["add them", "write it up"]\naccess_list = [[], ["all"]]'
REVISION = "model_id = []\nsubtasks = []\naccess_list = []"
SCRIPT = [
    {"when": "Reply with the one word", "text": "ready", "times": 1},
    {"when": "Reply with the one word", "mishap": "401"},  # which repeats the key it was sent
    {"when": "what came of it", "text": REVISION},
    {"when": "Your reasoning and plan", "text": "I would rather not.", "times": 1},
    {"when": "That is not a plan", "text": PLAN},
    {"when": "Your reasoning and plan", "text": PLAN},
    {"when": "add them", "text": "4"},
    {"when": "write it up", "text": "It is 4."},
]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """The base URL of a server that plans badly once, then well, and answers each part."""
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", "shikisha.testing", "--script", str(tmp_path / "script.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own program
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture
def config(tmp_path: Path, endpoint: str) -> Path:
    """Two workers and a planner, all at the endpoint; only the planner needs the key."""
    shared = f'kind = "chat"\nbase_url = "{endpoint}"\nmodel = "m"\nprice = {{ input = 1.0, output = 2.0 }}\n'
    path = tmp_path / "shikisha.toml"
    path.write_text(
        'pool = ["adder", "writer"]\nconductor = "lm:planner"\n'
        + "".join(f"[workers.{name}]\n{shared}" for name in ("adder", "writer", "planner"))
        + 'api_key_env = "PLANTED_KEY"\n'
    )
    return path


def call(config: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--config", str(config)], env=environment)
    assert result.exit_code == code, result.output
    return result.output


def test_an_endpoint_plans_errs_plans_again_and_keeps_the_answer(config: Path) -> None:
    told = json.loads(call(config, "run", "2 + 2?", "-q", "--json", PLANTED_KEY=KEY))
    assert (told["answer"], told["rounds"], told["steps"], told["calls"]) == ("It is 4.", 2, 2, 5)
    assert told["dollars"] > 0.001
    traced = call(config, "runs", "show")
    assert "no plan: text: expected model_id" in traced
    assert "keeps the answer" in traced


def test_invariant_8_the_key_reaches_neither_journal_nor_output(config: Path) -> None:
    shown = call(config, "run", "2 + 2?", PLANTED_KEY=KEY)
    shown += call(config, "runs", "show", "--json") + call(config, "explain") + call(config, "journal", "export")
    assert "It is 4." in shown
    assert KEY not in shown
    stored = b"".join(file.read_bytes() for file in config.parent.glob("shikisha.db*"))
    assert KEY.encode() not in stored


def test_a_missing_key_names_its_variable_before_anything_is_called(config: Path) -> None:
    shown = call(config, "run", "2 + 2?", "-q", code=ExitCode.CONFIG)
    assert "environment variable PLANTED_KEY is not set" in shown


def test_a_plan_can_be_had_without_a_run(config: Path) -> None:
    told = json.loads(call(config, "run", "--plan", "2 + 2?", "--json", PLANTED_KEY=KEY))
    assert [step["subtask"] for step in told["steps"]] == ["add them", "write it up"]
    assert [rejection["text"] for rejection in told["rejected"]] == ["I would rather not."]
    assert told["dollars"] > 0


def test_the_doctor_calls_real_endpoints(config: Path) -> None:
    shown = call(config, "doctor", "--call", code=ExitCode.CONFIG, PLANTED_KEY=KEY)
    assert "s: ready" in shown
    assert "FAIL  call writer: auth: status 401" in shown
