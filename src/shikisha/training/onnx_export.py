"""Export: a checkpoint's folder → `model.onnx`, which the demo, a phone or a small server runs without torch.

`export_onnx` writes it next to the weights; `export_folder` fills a folder of its own without them: `model.onnx`,
`tokenizer.json`, `config.json` and the card. The model is written only after it was compared with transformers: on
every prompt both write the same tokens, one by one, and no logit differs by more than rounding.

Invariants: one file, fp32, with the hashes of the weights and of the tokenizer; a checkpoint that cannot be exported
leaves what was there as it was, and so does a folder in which anything else lies. Deliberately absent: quantization (a
small model gains nothing), layouts other than Qwen2's, chat templates (`inference`).
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shikisha.conductors.onnx_checkpoint import ONNX_FILE, WEIGHTS_FILE, file_hash, open_onnx, open_onnx_checkpoint
from shikisha.conductors.trained_model import CausalModel
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.prompts import compact_prompt
from shikisha.training.checkpoint import CONFIG, TOKENIZER, atomic_folder, write_json
from shikisha.training.inference import TransformersModel, checkpoint_facts, load_checkpoint, read_card_settings
from shikisha.training.model_card import CARD_FILE, README_FILE

# What a folder without weights holds.
EXPORTED_FILES = (ONNX_FILE, TOKENIZER, CONFIG, CARD_FILE, README_FILE)
# Of the demo tasks, where none are given.
PROMPT_COUNT = 24
# Tokens at most that are compared after each prompt.
_MAX_NEW_TOKENS = 96
_LOGIT_TOLERANCE = 2e-3  # logits


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was exported: the file, its size in bytes, and how it compares with transformers.

    After `prompts` both wrote the same `tokens`; `max_difference` is the largest between their logits.
    """

    file: Path
    size: int
    prompts: int
    tokens: int
    max_difference: float


def export_onnx(folder: Path, rounds: int | None = None, prompts: Sequence[str] = ()) -> ExportReport:
    """Write `model.onnx`; ConfigError where it cannot be, or comes out different.

    `rounds` is how many the model was trained to plan (by default what its card says). Both models continue `prompts`
    (by default those of the demo tasks).
    """
    held, proof = _build_checked(folder, folder, rounds, prompts)
    partial = folder / f".{ONNX_FILE}.{os.getpid()}"
    partial.write_bytes(held)
    partial.replace(folder / ONNX_FILE)
    return proof


def export_folder(folder: Path, target: Path, rounds: int | None = None, prompts: Sequence[str] = ()) -> ExportReport:
    """Fill a folder with all that conducts without torch, replacing an earlier export there."""
    _refuse_foreign_files(target)
    held, proof = _build_checked(folder, target, rounds, prompts)
    with atomic_folder(target) as partial:
        (partial / ONNX_FILE).write_bytes(held)
        for name in EXPORTED_FILES[1:]:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, partial / name)
        _note_on_card(partial, proof)
        open_onnx_checkpoint(partial)
    return proof


def _refuse_foreign_files(target: Path) -> None:
    """Refuse to overwrite anything but an earlier export."""
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target}: expected a folder, or none yet")
    there = sorted(each.name for each in target.iterdir()) if target.is_dir() else []
    if others := [name for name in there if name not in EXPORTED_FILES]:
        raise ConfigError(f"{target}: expected an empty folder, or what was exported before; found {others[0]} there")


def _note_on_card(folder: Path, proof: ExportReport) -> None:
    """Say on both cards which file holds the weights, and how it was checked."""
    digest = file_hash(folder / ONNX_FILE)
    if (folder / CARD_FILE).is_file():
        card = json.loads((folder / CARD_FILE).read_text(encoding="utf-8"))
        card["hashes"] = {**card.get("hashes", {}), ONNX_FILE: digest}
        card["exported"] = {"prompts": proof.prompts, "tokens": proof.tokens, "apart": proof.max_difference}
        write_json(folder / CARD_FILE, card)
    if (folder / README_FILE).is_file():
        with (folder / README_FILE).open("a", encoding="utf-8") as readme:
            readme.write(
                f"\n## Exported\n\nThe weights are in `{ONNX_FILE}` (SHA-256 `{digest}`), which ONNX\n"
                f"Runtime runs without torch; `{WEIGHTS_FILE}` is not in this folder. After {proof.prompts} prompts\n"
                f"it wrote the same {proof.tokens:,} tokens as transformers; logits differ by at most "
                f"{proof.max_difference:.1e}.\n"
            )


def _build_checked(
    folder: Path, target: Path, rounds: int | None, prompts: Sequence[str]
) -> tuple[bytes, ExportReport]:
    """Return the model as a file's bytes, checked against transformers."""
    try:
        from shikisha.training.onnx_graph import Qwen2OnnxConfig
        from shikisha.training.onnx_graph import build_onnx as drawn
    except ModuleNotFoundError:
        raise MissingExtra("train", "an export to ONNX") from None

    loaded, settings = load_checkpoint(folder, "float32"), read_card_settings(folder)
    if settings and not settings.model.brief:
        raise ConfigError(f"{folder}: reads a chat, and an exported model reads the compact prompt: serve it")
    layout = Qwen2OnnxConfig.of(loaded.model.config.to_dict(), str(folder / CONFIG))
    if (size := loaded.tokenizer.get_vocab_size()) > layout.vocabulary:
        raise ConfigError(f"{folder}: a tokenizer of {size} tokens, and a model of {layout.vocabulary}")
    facts = checkpoint_facts(folder, loaded, settings)
    facts = replace(facts, rounds=rounds or facts.rounds)
    weights = {name: one.detach().numpy() for name, one in loaded.model.named_parameters()}
    held = drawn(layout, weights, {**facts.metadata(), "context": str(layout.longest)})
    tokens = [loaded.tokenizer.encode(prompt).ids for prompt in prompts or demo_prompts(PROMPT_COUNT)]
    count, apart = _compare_logits(
        TransformersModel(loaded.model), open_onnx(held, ONNX_FILE), tokens, frozenset(facts.ends)
    )
    return held, ExportReport(target / ONNX_FILE, len(held), len(tokens), count, apart)


def demo_prompts(count: int) -> list[str]:
    """Return prompts of the demo tasks' training split."""
    from shikisha.evals.tasksets.simulated import simulated_items

    return [compact_prompt(item.task, item.pool.cards) for item in simulated_items("train", 0, count)]


def _compare_logits(
    ours: CausalModel, exported: CausalModel, prompts: Sequence[Sequence[int]], ends: frozenset[int]
) -> tuple[int, float]:
    """Return how many tokens both wrote, and the largest difference of logits; ConfigError where they differ."""
    count, apart = 0, 0.0
    for number, prompt in enumerate(prompts):
        readings, given = (ours.begin(), exported.begin()), prompt
        for place in range(min(_MAX_NEW_TOKENS, ours.longest - len(prompt))):
            one, other = (reading.feed(given) for reading in readings)
            off, token = float(np.abs(one - other).max()), int(one.argmax())
            if int(other.argmax()) != token or not off <= _LOGIT_TOLERANCE:
                raise ConfigError(f"prompt {number}, token {place}: the exported model's logits are {off:g} off")
            count, apart = count + 1, max(apart, off)
            if token in ends:
                break
            given = [token]
    return count, apart
