"""`shikisha demo office`."""

import json
from pathlib import Path

from typer.testing import CliRunner

from shikisha.cli import app
from shikisha_train.pointer.pointer_conductor import shipped_pointer


def test_the_office_shows_every_amount_of_notes_next_to_the_controls(tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(shipped_pointer().read_bytes())
    found = CliRunner().invoke(app, ["demo", "office", "--tasks", "2", "--json", "--pointer", str(own)])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert [row["notes"] for row in rows if row["conductor"] == "learned conductor"] == [0, 10, 30, 100, 300]
    assert rows[-1]["conductor"] == "optimum (knows everything)"
    assert all(row["tasks"] == 2 for row in rows)
    text = CliRunner().invoke(app, ["demo", "office", "--tasks", "1"]).stdout
    assert "simulated" in text
    assert "Mistakes of the learned conductor" in text


def test_a_pointer_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["demo", "office", "--pointer", str(tmp_path / "none")])
    assert refused.exit_code == 3
    assert "cannot be read" in refused.stderr
