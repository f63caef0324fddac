"""`shikisha train export` as a person uses it: what is written, what it says, what it leaves alone."""

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from checkpoints import random, situation
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.onnx_checkpoint import BriefPromptModel, file_hash, open_onnx_checkpoint
from shikisha.conductors.trained_model import TrainedConductor
from shikisha.engine.conductor import Proposal
from shikisha.training import model_card
from shikisha.training.checkpoint import CheckpointName
from shikisha.training.environment import TrainingOrigin
from shikisha.training.inference import open_checkpoint
from shikisha.training.settings import TrainSettings

SHIPPED = ["README.md", "card.json", "config.json", "model.onnx", "tokenizer.json"]


def checkpoint(folder: Path) -> Path:
    """A checkpoint with its card; it was trained to plan two rounds."""
    random(folder)
    origin = TrainingOrigin("rehearsal", {"learned from": "train"}, [{"name": "fact"}], simulated=True)
    settings = TrainSettings.model_validate({"second": {"share": 0.5}, "grpo": {"longest": 200}})
    model_card.write_model_card(folder, model_card.CardFacts(CheckpointName("step", 3), origin, settings))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("trained") / "final")


def export(*arguments: str | Path, code: int = 0) -> tuple[str, str]:
    """Return what it printed to stdout and stderr."""
    done = CliRunner().invoke(app, ["train", "export", *map(str, arguments)])
    assert done.exit_code == code, done.stderr
    return done.stdout, done.stderr


def proposed(author: BriefPromptModel) -> Proposal:
    return asyncio.run(TrainedConductor("lm:it", author).propose(situation()))


@pytest.mark.full
def test_a_folder_of_its_own_holds_all_that_conducting_takes(trained: Path, tmp_path: Path) -> None:
    told, said = export(trained, "--out", tmp_path / "ours")
    assert told.strip() == str(tmp_path / "ours")
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == SHIPPED
    assert "tokens for 24 prompts" in said
    assert all(name in said for name in SHIPPED)
    here, there = open_onnx_checkpoint(tmp_path / "ours"), open_checkpoint(trained)
    assert (here.version, here.rounds, here.longest) == (there.version, 2, 200)
    assert isinstance(there, BriefPromptModel)
    assert proposed(here).text == proposed(there).text


def test_the_card_says_what_the_weights_were_made_into(trained: Path, tmp_path: Path) -> None:
    told = json.loads(export(trained, "--out", tmp_path, "--json")[0])
    before, after = (json.loads((folder / "card.json").read_text()) for folder in (trained, tmp_path))
    assert after["hashes"] == {**before["hashes"], "model.onnx": file_hash(tmp_path / "model.onnx")}
    assert after["exported"] == {key: told[key] for key in ("prompts", "tokens", "apart")}
    assert told["bytes"] == {name: (tmp_path / name).stat().st_size for name in SHIPPED}
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith((trained / "README.md").read_text())
    assert after["hashes"]["model.onnx"] in readme


@pytest.mark.full
def test_without_out_the_model_stands_beside_its_weights(tmp_path: Path) -> None:
    before = {path.name for path in checkpoint(tmp_path).iterdir()}
    assert export(tmp_path)[0].strip() == str(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*before, "model.onnx"}
    assert open_onnx_checkpoint(tmp_path).rounds == 2


@pytest.mark.full
def test_it_takes_the_place_of_what_was_exported_before_and_a_missing_card_is_told(tmp_path: Path) -> None:
    old = tmp_path / "ours"
    old.mkdir()
    for name in SHIPPED:
        (old / name).write_text("of another checkpoint")
    bare = random(tmp_path / "bare", seed=5)
    assert "there is no card.json" in export(bare, "--out", old)[1]
    assert sorted(path.name for path in old.iterdir()) == SHIPPED[2:]
    assert open_onnx_checkpoint(old).version == open_checkpoint(bare).version


@pytest.mark.parametrize(
    ("folder", "to", "says"),
    [
        ("nowhere", None, "nowhere: there is no such folder"),
        ("empty", None, "config.json: cannot be read"),
        ("final", "final", "expected an empty folder, or what was exported before; found generation_config.json there"),
        ("final", "letters", "expected an empty folder, or what was exported before; found dear.txt there"),
        ("final", "letters/dear.txt", "dear.txt: expected a folder, or none yet"),
        ("final", "letters/dear.txt/more", "more: cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_changes(
    folder: str, to: str | None, says: str, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear")
    (tmp_path / "final").symlink_to(trained)
    before = sorted(tmp_path.rglob("*")), sorted(trained.iterdir())
    options = [] if to is None else ["--out", str(tmp_path / to)]
    assert says in export(tmp_path / folder, *options, code=ExitCode.CONFIG)[1]
    assert (sorted(tmp_path.rglob("*")), sorted(trained.iterdir())) == before
