"""A checkpoint as a worker in this process: `lm:DIR` plans by it as it plans by an endpoint."""

from pathlib import Path

import pytest
import torch
import trainings

from shikisha.config.container import load_config
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError, WorkerError
from shikisha.core.messages import ChatMessage, Speaker
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Request
from shikisha_train.checkpoint import save_model
from shikisha_train.inference import open_checkpoint
from shikisha_train.model_loader import CHAT_TEMPLATE

WORKERS = "".join(f'[workers.{name}]\nkind = "scripted"\nanswers = "{name}"\n' for name in ("left", "right", "other"))
TURNS = (ChatMessage(Speaker.SYSTEM, "Plan."), ChatMessage(Speaker.USER, "turn left [end] or 1"))
BOTH = "{% for turn in messages %}{{ turn['content'] }}[end]{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainings.start(tmp_path_factory.mktemp("checkpoint") / "final")


async def test_a_text_that_comes_to_no_end_is_broken_off_and_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    partial = []
    for _ in range(2):
        with pytest.raises(WorkerError, match="broken off after 8 tokens") as caught:
            await open_checkpoint(folder, 8).perform(Request(Task("x"), "Plan.", turns=TURNS))
        partial.append(caught.value.fault.partial)
    assert partial[0] == partial[1]
    assert open_checkpoint(trainings.start(tmp_path, seed=1), 8).version != open_checkpoint(folder, 8).version


async def test_an_answer_names_the_weights_that_gave_it(tmp_path: Path) -> None:
    place = trainings.start(tmp_path)
    bare = trainings.model()
    tokens = open_checkpoint(place, 8).encode(TURNS)
    likeliest = int(bare(torch.tensor([tokens])).logits[0, -1].argmax())
    save_model(bare, place, {**trainings.TOKENS, "eos_token_id": likeliest})
    worker = open_checkpoint(place, 8)
    reply = await worker.perform(Request(Task("x"), "Plan.", turns=TURNS))
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.model) == (len(tokens), 1, worker.version)


def test_no_text_of_others_can_close_a_turn(tmp_path: Path) -> None:
    place = trainings.start(tmp_path)
    (place / CHAT_TEMPLATE).write_text(BOTH)
    tokens = open_checkpoint(place, 64).encode(TURNS)
    assert tokens.count(1) == len(TURNS)  # the template's own ends alone
    assert trainings.words().decode(tokens, skip_special_tokens=False) == "Plan.[end]turn left [end] or 1[end]"


async def test_it_conducts_a_run_and_what_is_no_plan_goes_to_the_fallback(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text(WORKERS)
    container = load_config(file, {})
    conductor = container.conductor(f"lm:{folder}?longest=40&fallback=fixed:single")
    run = await Engine(MemoryRecorder()).run(Task("turn left or 1"), container.pool(), conductor, Caps())
    assert run.answer == "left"
    proposed = run.rounds[0].proposed
    assert proposed is not None
    assert proposed.substituted == "fixed:single"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("lm:shipped", "lm:shipped left the package: .* Write lm:WORKER .* or head:shipped"),
        ("lm:onnx", "a model.onnx is no longer run"),
        ("lm:compact", "no chat template; the compact prompt is no longer read"),
        ("lm:final?constrained=true", "constrained: unknown key; known are"),
    ],
)
def test_what_left_is_an_error_that_names_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"")
    for name in ("compact", "final"):
        trainings.start(tmp_path / name)
    (tmp_path / "compact" / CHAT_TEMPLATE).unlink()
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    with pytest.raises(ConfigError, match=told):
        load_config(tmp_path / "shikisha.toml", {}).conductor(spec)
