"""Checkpoints: whole or not there, read back to the bit, the last good one found; figures on disk; cards."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from trainings import CONTEXT, TOKENS, ground, settings, start, words
from trainings import model as untrained
from transformers import AutoModelForCausalLM, AutoTokenizer

from shikisha.core.errors import ConfigError
from shikisha_train import model_card
from shikisha_train.checkpoint import (
    TOKENIZER,
    Checkpoint,
    CheckpointName,
    CheckpointStore,
    TrainingState,
    atomic_folder,
    capture_state,
    claim_folder,
    hash_file,
    load_tensors,
    restore_state,
    save_model,
    save_transformers_files,
)
from shikisha_train.metrics import StepMetrics, ValidationResult
from shikisha_train.metrics_log import STEPS_FILE, StepLog

STATE = TrainingState(
    {"optimizer/0/exp_avg": torch.tensor([0.1, -0.0, float("inf")])}, {"source": {"next": 3}, "名": "前"}
)


def shelf(folder: Path, last: int = 2, noted: list[str] | None = None) -> CheckpointStore:
    return CheckpointStore(folder, last, (noted if noted is not None else []).append)


def fill(text: str = "weights") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_text(text)

    return write


def kept(folder: Path, *steps: int, last: int = 9) -> CheckpointStore:
    """A shelf with checkpoints of these steps."""
    made = shelf(folder, last)
    for step in steps:
        made.save(CheckpointName(step), fill(f"weights {step}"), STATE)
    return made


def newest(shelf: CheckpointStore) -> Checkpoint:
    found = shelf.newest()
    assert found is not None
    return found


def step_of(number: int, judged: ValidationResult | None = None) -> StepMetrics:
    nothing: dict[str, float] = {}
    return StepMetrics(
        number, 9, 0.5, nothing, 0.1, 0.9, 0.1, 0.0, 0.0, 0.0, nothing, 0.0, nothing, 1.0, 0.0, 0.1, 0.2, 1e-3, 50, 0.0,
        {"learn": 0.1}, judged=judged,
    )  # fmt: skip


def test_what_is_kept_is_read_back_to_the_bit(tmp_path: Path) -> None:
    found = newest(kept(tmp_path, 7))
    assert (found.name, found.state.facts) == (CheckpointName(7), STATE.facts)
    (name,) = STATE.tensors
    assert found.state.tensors[name].numpy().tobytes() == STATE.tensors[name].numpy().tobytes()
    assert found.state.tensors[name].data_ptr() % 64 == 0


def test_a_checkpoint_holds_nothing_that_only_python_can_read(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".safetensors", ".json"}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / "model.safetensors").write_text("weight"), "model.safetensors is not what was"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is not what was"),
        (lambda folder: (folder / "state/facts.json").write_text("{}"), "state/facts.json is not what was"),
        (lambda folder: (folder / "state/manifest.json").unlink(), "manifest.json is missing or damaged"),
        (lambda folder: (folder / "state/manifest.json").write_text("[]"), "manifest.json is missing or damaged"),
        (lambda folder: (folder / "state/manifest.json").write_text('{"format": 2, "files": {}}'), "of format 2"),
        (lambda folder: [each.unlink() for each in folder.rglob("*.json")], "missing or damaged"),
    ],
)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_counts(
    tmp_path: Path, damage: Callable[[Path], object], told: str
) -> None:
    noted: list[str] = []
    kept(tmp_path, 2, 4)
    damage(tmp_path / "step-000004")
    assert newest(shelf(tmp_path, noted=noted)).name.step == 2
    assert told in noted[0]
    assert (tmp_path / "broken-step-000004").is_dir()
    kept(tmp_path, 4)
    assert newest(shelf(tmp_path)).name.step == 4


def test_where_no_checkpoint_is_whole_nothing_is_made_up(tmp_path: Path) -> None:
    kept(tmp_path, 2)
    (tmp_path / "step-000002/model.safetensors").unlink()
    with pytest.raises(ConfigError, match="none of its 1 checkpoints is complete"):
        shelf(tmp_path).newest()
    assert shelf(tmp_path / "nothing").newest() is None


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    made = kept(tmp_path, 2)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made.save(CheckpointName(2), fail, STATE)
    assert newest(made).name.step == 2
    assert [each.name for each in tmp_path.iterdir()] == ["step-000002"]


def test_what_a_kill_left_half_written_is_no_checkpoint_and_goes(tmp_path: Path) -> None:
    made = kept(tmp_path, 2)
    (tmp_path / ".step-000004.partial-17" / "state").mkdir(parents=True)
    assert [place.step for place in made.places()] == [2]
    made.tidy()
    assert [each.name for each in tmp_path.iterdir()] == ["step-000002"]


def test_the_first_and_the_last_stay(tmp_path: Path) -> None:
    made = kept(tmp_path, 0, 2, 4, 6, 8, last=2)
    assert [place.step for place in made.places()] == [0, 6, 8]
    made.save(CheckpointName(8), fill("again"), STATE)
    assert (tmp_path / "step-000008/model.safetensors").read_text() == "again"
    assert [place.step for place in made.places()] == [0, 6, 8]


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"file/x: cannot be written: Not a directory"),
        atomic_folder(tmp_path / "file/x"),
    ):
        pass


def test_a_run_has_one_process(tmp_path: Path) -> None:
    with claim_folder(tmp_path), pytest.raises(ConfigError, match="another process trains"), claim_folder(tmp_path):
        pass
    with claim_folder(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()


def test_a_model_is_written_as_others_read_it(tmp_path: Path) -> None:
    model = untrained(3, 40)
    save_model(model, tmp_path, TOKENS)
    assert "lm_head.weight" not in load_tensors(tmp_path / "model.safetensors")
    found = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(12)[None]
    assert torch.equal(found(tokens).logits, model(tokens).logits)


def test_the_auto_classes_of_transformers_load_it_and_generate_ends(tmp_path: Path) -> None:
    tokenizer = words()
    model = untrained(3)
    save_model(model, tmp_path, TOKENS)
    tokenizer.save(str(tmp_path / TOKENIZER))
    save_transformers_files(tmp_path, tokenizer, model, TOKENS)
    chat = AutoTokenizer.from_pretrained(tmp_path)
    found = AutoModelForCausalLM.from_pretrained(tmp_path)
    text = "ask turn left or zebra\nplan\n"
    assert chat(text)["input_ids"] == tokenizer.encode(text).ids
    assert (chat.pad_token_id, chat.eos_token_id) == (TOKENS["pad_token_id"], TOKENS["eos_token_id"])
    assert chat.model_max_length == CONTEXT
    assert found.generation_config.eos_token_id == TOKENS["eos_token_id"]
    given = chat([text, text], return_tensors="pt")
    written = found.generate(**given, max_new_tokens=4)  # type: ignore[misc]  # its stub is of a protocol with itself
    assert isinstance(written, torch.Tensor)
    assert len(written) == 2


def optimized(steps: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Take so many steps of something that hangs on every source of chance; return a number drawn at last."""
    for _ in range(steps):
        wish = torch.rand(4) + random.random() + np.random.random()
        loss = ((model(torch.ones(3)) - wish) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return random.random()


def made() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 4)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.9, 0.98))


def test_optimizer_and_chance_go_on_as_if_they_had_not_stopped(tmp_path: Path) -> None:
    model, optimizer = made()
    optimized(3, model, optimizer)
    shelf(tmp_path).save(CheckpointName(3), fill(), capture_state(optimizer))
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    drawn = optimized(3, model, optimizer)
    other, second = made()
    other.load_state_dict(weights)
    restore_state(newest(shelf(tmp_path)).state, second)
    assert optimized(3, other, second) == drawn
    assert torch.equal(other.weight, model.weight)


def test_a_state_of_another_architecture_is_refused() -> None:
    model, optimizer = made()
    optimized(1, model, optimizer)
    other = torch.optim.AdamW(torch.nn.Linear(5, 4).parameters())
    with pytest.raises(ConfigError, match=r"weights 0 had the shape \(4, 3\), and have \(4, 5\)"):
        restore_state(capture_state(optimizer), other)


def test_lines_after_the_checkpoint_are_cut_off_and_a_torn_one_is_none(tmp_path: Path) -> None:
    record = StepLog(tmp_path)
    for number in (1, 2, 3):
        record.add(step_of(number, ValidationResult(4, number / 4, 1.0, 0.0) if number < 3 else None))
    record.close()
    with (tmp_path / STEPS_FILE).open("a") as file:
        file.write('{"number": 4, "of"')
    again = StepLog(tmp_path, 1)
    again.add(step_of(2))
    again.close()
    lines = (tmp_path / STEPS_FILE).read_text().splitlines()
    assert [StepMetrics.loads(line) for line in lines] == [step_of(1, ValidationResult(4, 0.25, 1.0, 0.0)), step_of(2)]
    assert again.last_validation == (1, ValidationResult(4, 0.25, 1.0, 0.0))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([step_of(1).dumps()], "expected a line for each of the 3 steps so far, found 1"),
        ([step_of(1).dumps(), step_of(3).dumps()], "line 2: expected step 2, found step 3"),
        ([step_of(1).dumps(), "{}"], "line 2: not a step"),
    ],
)
def test_a_record_with_a_gap_is_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    (tmp_path / STEPS_FILE).write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ConfigError, match=told):
        StepLog(tmp_path, 3)


def test_a_card_says_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    model = start(tmp_path / "start")
    about = model_card.CardFacts(
        CheckpointName(4), ground().origin, settings(model), spent=1.5, start={"what": "a beginner"}
    )
    model_card.write_model_card(model, about)
    told, text = json.loads((model / model_card.CARD_FILE).read_text()), (model / model_card.README_FILE).read_text()
    assert told["hashes"]["model.safetensors"] == hash_file(model / "model.safetensors")
    assert (told["metrics"], told["training"]["of"], told["pool"]["simulated"]) == (None, 6, True)
    assert torch.__version__.startswith(told["versions"]["torch"])  # a CUDA build adds +cu130 to its wheel's version
    assert str(tmp_path) not in text + json.dumps(told)
    for said in ("Not measured.", "simulated workers", "after 4 of 6 steps", "a beginner", "- left: no description"):
        assert said in text


def test_a_card_shows_the_figures_and_whose_they_are(tmp_path: Path) -> None:
    model = start(tmp_path)
    judged = ValidationResult(200, 0.815, 0.99, 0.0021, {"chain 2": 1.0}, {"rules": 0.868})
    about = model_card.CardFacts(CheckpointName(6), ground().origin, settings(model), (3, judged))
    told = model_card.model_card_data(model, about)
    assert told["metrics"] == {"step": 3} | {name: getattr(judged, name) for name in ValidationResult.__slots__}
    assert "The figures are those of step 3, not of these weights." in str(told["limits"])
    model_card.write_model_card(model, replace(about, judged=(6, judged)))
    text = (model / model_card.README_FILE).read_text()
    assert "| right | 81.5% |" in text
    assert "| for comparison: rules | 86.8% |" in text
    assert "not of these weights" not in text
