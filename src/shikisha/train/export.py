"""A checkpoint's folder → `model.onnx` beside the weights: what the demo, a phone and a small server run without torch.

The file is written only once it has been held against transformers: on every prompt the same tokens are written, one by
one, and no logit is further off than rounding. Invariants: one file, fp32, with the hashes of the weights and of the
tokenizer it was made of; a checkpoint that cannot be exported leaves the old file as it was. Deliberately absent:
quantisation (a small model gains nothing), other layouts than Qwen2's (`graph`), chat templates (`serving`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shikisha.brief import brief
from shikisha.conductors.decoding import Model
from shikisha.conductors.exported import MODEL, open_onnx
from shikisha.errors import ConfigError, MissingExtra
from shikisha.train.serving import TorchModel, facts_of, read, settings_of

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


def export(folder: Path, rounds: int | None = None, prompts: Sequence[str] = ()) -> Proof:
    """Write `model.onnx`; ConfigError where it cannot be, or comes out different.

    `rounds` is how many the model was trained to plan (by default what its card says). `prompts` are what is compared
    after (by default briefings of the rehearsal).
    """
    try:
        from shikisha.train.graph import Layout, written
    except ModuleNotFoundError:
        raise MissingExtra("train", "an export to ONNX") from None

    begun, settings = read(folder, "float32"), settings_of(folder)
    if settings and not settings.model.brief:
        raise ConfigError(f"{folder}: reads a chat, and an exported model reads short briefings: serve it")
    layout = Layout.of(begun.model.config.to_dict(), str(folder / "config.json"))
    if (size := begun.tokenizer.get_vocab_size()) > layout.vocabulary:
        raise ConfigError(f"{folder}: a tokenizer of {size} tokens, and a model of {layout.vocabulary}")
    facts = facts_of(folder, begun, settings)
    facts = replace(facts, rounds=rounds or facts.rounds)
    weights = {name: one.detach().numpy() for name, one in begun.model.named_parameters()}
    held = written(layout, weights, {**facts.told(), "context": str(layout.longest)})
    tokens = [begun.tokenizer.encode(prompt).ids for prompt in prompts or rehearsed(PROMPTS)]
    count, apart = _compared(TorchModel(begun.model), open_onnx(held, MODEL), tokens, frozenset(facts.ends))
    beside = folder / f".{MODEL}.{os.getpid()}"
    beside.write_bytes(held)
    beside.replace(folder / MODEL)
    return Proof(folder / MODEL, len(held), len(tokens), count, apart)


def rehearsed(count: int) -> list[str]:
    """Return briefings of the rehearsal's training split."""
    from shikisha.tasksets.rehearsal import rehearsal

    return [brief(item.task, item.pool.cards) for item in rehearsal("train", 0, count)]


def _compared(
    ours: Model, exported: Model, prompts: Sequence[Sequence[int]], ends: frozenset[int]
) -> tuple[int, float]:
    """Return how many tokens both wrote, and how far apart their logits were; ConfigError where they differ."""
    count, apart = 0, 0.0
    for number, prompt in enumerate(prompts):
        readings, given = (ours.begin(), exported.begin()), prompt
        for place in range(min(_WRITTEN, ours.longest - len(prompt))):
            one, other = (reading.feed(given) for reading in readings)
            off, token = float(np.abs(one - other).max()), int(one.argmax())
            if int(other.argmax()) != token or not off <= _NEAR:
                raise ConfigError(f"prompt {number}, token {place}: the exported model's logits are {off:g} off")
            count, apart = count + 1, max(apart, off)
            if token in ends:
                break
            given = [token]
    return count, apart
