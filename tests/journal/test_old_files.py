"""Files that version 0.1 wrote are read by this one: a journal, policies, a training's checkpoint.

They are in `tests/data/v0.1`. The journal holds runs of every end; the training stopped in its sixth step.
"""

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from paths import ROOT
from typer.testing import CliRunner

from shikisha import Caps, Engine, Task
from shikisha.cli import app
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.journal import open_journal
from shikisha.routing.policy_file import load_policy
from shikisha_train.metrics_log import read_steps

HELD = ROOT / "tests" / "data" / "v0.1"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files to work on, as the current folder: the training names its start by a relative path."""
    shutil.copytree(HELD, tmp_path / "held")
    monkeypatch.chdir(tmp_path / "held")
    return tmp_path / "held"


def shikisha(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(
        app, [*arguments, "--journal", "journal.sqlite"], env={"SHIKISHA_CONFIG": "shikisha.toml"}
    )
    assert result.exit_code == code, (result.output, result.stderr)
    return str(result.stdout)


@pytest.mark.usefixtures("held")
def test_a_journal_of_version_0_1_is_verified_and_shown() -> None:
    shikisha("journal", "verify")
    rows = json.loads(shikisha("runs", "--json"))
    assert Counter(row["status"] for row in rows) == {"done": 3, "suspended": 2, "failed": 1, "capped": 1}
    for row in rows:
        assert shikisha("runs", "show", row["run"]).strip()
        assert shikisha("explain", row["run"]).strip()
    debate = json.loads(shikisha("runs", "show", rows[0]["run"], "--json"))
    assert "forty-two" in json.dumps(debate)


@pytest.mark.usefixtures("held")
def test_a_run_that_waits_in_a_journal_of_version_0_1_is_approved_and_ends() -> None:
    (run,) = [row["run"] for row in json.loads(shikisha("runs", "--json")) if row["prompt"] == "may it?"]
    shikisha("runs", "approve", run, "--step", "0", "yes")
    shikisha(
        "runs", "resume", run, "-q", code=5
    )  # what the worker is to see has other words now: a yes to it is one to these
    shikisha("runs", "approve", run, "--step", "0", "yes")
    assert shikisha("runs", "resume", run, "-q").strip() == "allowed"
    shikisha("journal", "verify")


def test_a_policy_of_version_0_1_is_read_and_shown(held: Path) -> None:
    _, version = load_policy(held / "learned.policy")
    shown = CliRunner().invoke(app, ["policy", "show", "learned.policy"])
    assert (version, shown.exit_code, version in shown.stdout) == ("285b1be326c9", 0, True)


@pytest.mark.usefixtures("held")
def test_a_training_of_version_0_1_is_shown_and_its_checkpoint_names_what_left() -> None:
    """Its model read the compact prompt, by the loop that left: steps are read, and nobody goes on with it silently."""
    shown = CliRunner().invoke(app, ["train-page", "training"])
    assert (shown.exit_code, len(read_steps(Path("training")))) == (0, 5), shown.stderr
    for name in ("training/step-000004", "start"):
        with pytest.raises(ConfigError, match="no chat template; the compact prompt is no longer read"):
            load_config(Path("shikisha.toml")).conductor(f"lm:{name}")


@pytest.mark.usefixtures("held")
def test_a_run_that_a_pointer_conductor_began_is_shown_and_its_resumption_says_what_to_write() -> None:
    container = load_config(Path("shikisha.toml"))

    async def begin() -> str:
        async with open_journal("journal.sqlite") as journal:
            conductor = fixed_conductor("single", name="pointer:shipped")
            return (await Engine(journal).run(Task("may it?"), container.pool(("asks",)), conductor, Caps())).id

    run = asyncio.run(begin())
    assert "pointer:shipped" in shikisha("explain", run)
    assert "pointer:shipped" in shikisha("runs", "show", run, "--json")
    refused = CliRunner().invoke(app, ["runs", "resume", run, "-c", "shikisha.toml", "--journal", "journal.sqlite"])
    assert (refused.exit_code, "learned:CONDUCTOR, or head:shipped" in refused.stderr) == (3, True), refused.stderr
