"""A checkpoint's folder → `model.onnx` beside the weights: what the demo, a phone and a small server run without torch.

`export` writes it there; `ship` fills a folder of its own, without the weights: `model.onnx`, `tokenizer.json`,
`config.json` and the card, which says what was done. The model is written only once it has been held against
transformers: on every prompt the same tokens are written, one by one, and no logit is further off than rounding.
Invariants: one file, fp32, with the hashes of the weights and of the tokenizer it was made of; a checkpoint that cannot
be exported leaves what was there as it was, and so does a folder in which anything else lies. Deliberately absent:
quantisation (a small model gains nothing), other layouts than Qwen2's (`graph`), chat templates (`serving`).
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shikisha.brief import brief
from shikisha.conductors.decoding import Model
from shikisha.conductors.exported import MODEL, WEIGHTS, file_hash, open_exported, open_onnx
from shikisha.errors import ConfigError, MissingExtra
from shikisha.train.card import CARD, README
from shikisha.train.keeping import CONFIG, TOKENIZER, write_json, written
from shikisha.train.serving import TorchModel, facts_of, read, settings_of

SHIPPED = (MODEL, TOKENIZER, CONFIG, CARD, README)  # what a folder without weights holds
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
    held, proof = _made(folder, folder, rounds, prompts)
    beside = folder / f".{MODEL}.{os.getpid()}"
    beside.write_bytes(held)
    beside.replace(folder / MODEL)
    return proof


def ship(folder: Path, target: Path, rounds: int | None = None, prompts: Sequence[str] = ()) -> Proof:
    """Fill a folder with all that conducts without torch, in the place of what was shipped there before."""
    _refuse_others(target)
    held, proof = _made(folder, target, rounds, prompts)
    with written(target) as partial:
        (partial / MODEL).write_bytes(held)
        for name in SHIPPED[1:]:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, partial / name)
        _note_on_card(partial, proof)
        open_exported(partial)
    return proof


def _refuse_others(target: Path) -> None:
    """Refuse to write over anything but what was shipped before."""
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target}: expected a folder, or none yet")
    there = sorted(each.name for each in target.iterdir()) if target.is_dir() else []
    if others := [name for name in there if name not in SHIPPED]:
        raise ConfigError(f"{target}: expected an empty folder, or what was exported before; found {others[0]} there")


def _note_on_card(folder: Path, proof: Proof) -> None:
    """Say on both cards which file the weights were made into, and how it was held against them."""
    digest = file_hash(folder / MODEL)
    if (folder / CARD).is_file():
        told = json.loads((folder / CARD).read_text(encoding="utf-8"))
        told["hashes"] = {**told.get("hashes", {}), MODEL: digest}
        told["exported"] = {"prompts": proof.prompts, "tokens": proof.tokens, "apart": proof.apart}
        write_json(folder / CARD, told)
    if (folder / README).is_file():
        with (folder / README).open("a", encoding="utf-8") as readme:
            readme.write(
                f"\n## Exported\n\nThe weights stand in `{MODEL}` (SHA-256 `{digest}`), which ONNX\n"
                f"Runtime runs without torch; `{WEIGHTS}` is not in this folder. After {proof.prompts} prompts it\n"
                f"wrote the same {proof.tokens:,} tokens as transformers; logits are at most {proof.apart:.1e} apart.\n"
            )


def _made(folder: Path, target: Path, rounds: int | None, prompts: Sequence[str]) -> tuple[bytes, Proof]:
    """Return the model as a file's bytes, held against transformers."""
    try:
        from shikisha.train.graph import Layout
        from shikisha.train.graph import written as drawn
    except ModuleNotFoundError:
        raise MissingExtra("train", "an export to ONNX") from None

    begun, settings = read(folder, "float32"), settings_of(folder)
    if settings and not settings.model.brief:
        raise ConfigError(f"{folder}: reads a chat, and an exported model reads short briefings: serve it")
    layout = Layout.of(begun.model.config.to_dict(), str(folder / CONFIG))
    if (size := begun.tokenizer.get_vocab_size()) > layout.vocabulary:
        raise ConfigError(f"{folder}: a tokenizer of {size} tokens, and a model of {layout.vocabulary}")
    facts = facts_of(folder, begun, settings)
    facts = replace(facts, rounds=rounds or facts.rounds)
    weights = {name: one.detach().numpy() for name, one in begun.model.named_parameters()}
    held = drawn(layout, weights, {**facts.told(), "context": str(layout.longest)})
    tokens = [begun.tokenizer.encode(prompt).ids for prompt in prompts or rehearsed(PROMPTS)]
    count, apart = _compared(TorchModel(begun.model), open_onnx(held, MODEL), tokens, frozenset(facts.ends))
    return held, Proof(target / MODEL, len(held), len(tokens), count, apart)


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
