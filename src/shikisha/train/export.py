"""A checkpoint's folder → `model.onnx` beside the weights: what the demo, a phone and a small server run without torch.

The file is written only once it has been held against transformers: on every prompt the same tokens are written, one by
one, and no logit is further off than rounding. Invariants: one file, fp32, with the hashes of the weights and of the
tokenizer it was made of; a checkpoint that cannot be exported leaves the old file as it was. Deliberately absent:
quantisation (a small model gains nothing), other layouts than Qwen2's (`graph`), chat templates (`serving`).
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shikisha.brief import brief
from shikisha.conductors.decoding import Model
from shikisha.conductors.exported import MODEL, TOKENIZER, WEIGHTS, open_onnx, read_tokenizer
from shikisha.errors import ConfigError, MissingExtra
from shikisha.train.serving import TorchModel, facts_of

PROMPTS = 24  # of the rehearsal's training split, where none are given
_WRITTEN = 96  # tokens at most that are compared after each prompt
_NEAR = 2e-3  # logits


@dataclass(frozen=True, slots=True)
class Proof:
    """What was exported: the file, its size in bytes, and how it was held against transformers.

    `tokens` were written after `prompts`, the same ones by both; `apart` is how far apart their logits were at most.
    """

    file: Path
    size: int
    prompts: int
    tokens: int
    apart: float


def export(folder: Path, rounds: int = 1, prompts: Sequence[str] = ()) -> Proof:
    """Write `model.onnx`; ConfigError where it cannot be, or comes out different.

    `rounds` is how many the model was trained to plan. `prompts` are compared (by default: of the rehearsal).
    """
    try:
        from shikisha.train.graph import Layout, written
    except ModuleNotFoundError:
        raise MissingExtra("train", "an export to ONNX") from None
    from safetensors.torch import load_file
    from transformers import Qwen2ForCausalLM

    layout = Layout.of(_config(folder), str(folder / "config.json"))
    tokenizer, _ = read_tokenizer(folder / TOKENIZER)
    if (size := tokenizer.get_vocab_size()) > layout.vocabulary:
        raise ConfigError(f"{folder}: a tokenizer of {size} tokens, and a model of {layout.vocabulary}")
    weights = {name: one.float().numpy() for name, one in load_file(folder / WEIGHTS).items()}
    model = Qwen2ForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True, dtype="float32")
    facts = replace(facts_of(folder, model, rounds), end=layout.end)
    held = written(layout, weights, {**facts.told(), "longest": str(layout.longest)})
    tokens = [tokenizer.encode(prompt).ids for prompt in prompts or rehearsed(PROMPTS)]
    count, apart = _compared(TorchModel(model), open_onnx(held, MODEL), tokens, facts.end)
    beside = folder / f".{MODEL}.{os.getpid()}"
    beside.write_bytes(held)
    beside.replace(folder / MODEL)
    return Proof(folder / MODEL, len(held), len(tokens), count, apart)


def rehearsed(count: int) -> list[str]:
    """Return briefings of the rehearsal's training split."""
    from shikisha.tasksets.rehearsal import rehearsal

    return [brief(item.task, item.pool.cards) for item in rehearsal("train", 0, count)]


def _compared(ours: Model, exported: Model, prompts: Sequence[Sequence[int]], end: int) -> tuple[int, float]:
    """Return how many tokens both wrote, and how far apart their logits were; ConfigError where they differ."""
    count, apart = 0, 0.0
    for number, prompt in enumerate(prompts):
        readings, given = (ours.begin(), exported.begin()), prompt
        for place in range(min(_WRITTEN, ours.longest - len(prompt))):
            one, other = (reading.feed(given) for reading in readings)
            apart = max(apart, float(np.abs(one - other).max()))
            token = int(one.argmax())
            if int(other.argmax()) != token or not apart <= _NEAR:
                raise ConfigError(f"prompt {number}, token {place}: the exported model's logits are {apart:g} off")
            count += 1
            if token == end:
                break
            given = [token]
    return count, apart


def _config(folder: Path) -> dict[str, object]:
    path = folder / "config.json"
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(read, dict):
        raise ConfigError(f"{path}: expected a table")
    return read
