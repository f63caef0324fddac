"""`shikisha train pointer`: a file that conducts, and what is refused before the first lesson."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha_train.pointer.pointer_conductor import load_pointer, shipped_pointer

torch = pytest.importorskip("torch")


def test_it_writes_a_model_that_pointer_loads(tmp_path: Path) -> None:
    file, threads = tmp_path / "new" / "own.safetensors", torch.get_num_threads()
    given = ["train", "pointer", str(file), "--reader", "shipped", "--updates", "1", "--seed", "5", "--json"]
    done = CliRunner().invoke(app, given)
    torch.set_num_threads(threads)
    assert done.exit_code == ExitCode.OK, done.output
    said = json.loads(done.stdout)
    assert (said["written"], said["seed"], said["updates"]) == (str(file), 5, 1)
    assert "update 1 of 1" in done.stderr
    made, shipped = load_pointer(file), load_pointer(shipped_pointer())
    assert (made.reader.words == shipped.reader.words).all()
    assert made.version != shipped.version
    assert [each.name for each in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{dir}"], "cannot be written"),
        (["{dir}/x.safetensors", "--reader", "{dir}/none"], "none: cannot be read"),
        (["{dir}/x.safetensors", "--reader", "shipped", "--lessons", "100"], "--lessons: a reader that is taken"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_lesson(tmp_path: Path, arguments: list[str], said: str) -> None:
    given = [each.replace("{dir}", str(tmp_path)) for each in arguments]
    done = CliRunner().invoke(app, ["train", "pointer", *given])
    assert done.exit_code == ExitCode.CONFIG
    assert said in done.stderr
    assert "reading" not in done.stderr
    assert not list(tmp_path.iterdir())
