"""The kind of conductor `trained`: a checkpoint that `shikisha train` wrote writes the plans in this process.

A table [conductors.NAME], or `lm:DIR`. A checkpoint is loaded once, and again when its files have changed.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.config.adapters import require_extra
from shikisha.config.conductors import checkpoint_files, is_checkpoint
from shikisha.config.config_table import ConfigTable
from shikisha.core.errors import ConfigError
from shikisha.core.prompts import PromptStyle
from shikisha.engine.conductor import ConductorKind, ConductorParts
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Worker


class TrainedTable(ConfigTable):
    """[conductors.NAME] kind = "trained": a checkpoint writes the plans in this process."""

    path: Path = Field(description="the folder of a checkpoint, relative to this file")
    fallback: str | None = Field(
        default=None, description="the conductor that plans when this one writes no valid plan"
    )
    rounds: int | None = Field(default=None, ge=1, description="the most rounds it plans; by default as it was trained")
    longest: int = Field(default=1024, ge=1, description="the most tokens that a plan may have")


def build(table: TrainedTable, parts: ConductorParts) -> LanguageModelConductor:
    """Return the conductor of a checkpoint; ConfigError when there is none."""
    place = table.path
    if not place.is_dir():
        is_checkpoint(place.name)  # says what became of the shipped one
        raise ConfigError(f"{place}: there is no such folder")
    if not any(place.glob("*.safetensors")):
        onnx = (
            "; a model.onnx is no longer run: train it again, or serve it" if (place / "model.onnx").is_file() else ""
        )
        raise ConfigError(f"{place}: no checkpoint: expected *.safetensors{onnx}")
    require_extra("train", parts.name, "tokenizers", "torch", "transformers")
    from shikisha_train.inference import trained_prompt  # torch takes seconds, and a configuration is read at once

    stamps = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in checkpoint_files(place))
    worker = _open_checkpoint(place, table.longest, stamps)
    card = Card(parts.name, kind="trained", max_output_tokens=table.longest, attempts=1)
    described, rounds = trained_prompt(place)
    fallback = parts.conductor(table.fallback, parts.pool) if table.fallback else None
    style = PromptStyle(described=described)
    return LanguageModelConductor(parts.name, Member(card, worker), fallback, style, table.rounds or rounds, shown=40)


@lru_cache(maxsize=4)
def _open_checkpoint(folder: Path, longest: int, stamps: tuple[object, ...]) -> Worker:  # noqa: ARG001 - in the cache key
    from shikisha_train.inference import open_checkpoint

    return open_checkpoint(folder, longest)


def _read(target: str, options: Mapping[str, str]) -> Mapping[str, object]:
    return {**options, "path": target}


KIND = ConductorKind(settings=TrainedTable, build=build, double=lambda: ScriptedConductor(()), read=_read)
