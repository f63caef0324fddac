"""Conductors from a checkpoint's folder: which runtime runs it, and its conductor as `lm:DIR` or as a table says.

`model.onnx` goes before weights: it needs no torch. A folder is loaded once, and again when its files have changed.
Invariant: what is missing, a file or an extra, is an error that names it. Deliberately absent: downloads.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from shikisha.clean import one_line
from shikisha.conductor import Conductor
from shikisha.config.settings import TrainedTable
from shikisha.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.conductors.trained import Author

SHIPPED = "shipped"
_CARD, _LARGEST_CARD, _LONGEST = "card.json", 1 << 22, 100
_RUNTIMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "model.onnx": ("edge", ("numpy", "onnxruntime", "tokenizers")),
    "*.safetensors": ("train", ("numpy", "tokenizers", "torch", "transformers")),
}


def is_checkpoint(path: str, folder: Path = Path()) -> bool:
    """Say whether this names a checkpoint: the shipped one, or a folder that there is."""
    return path == SHIPPED or (bool(path) and (folder / path).is_dir())


def trained(name: str, table: TrainedTable, folder: Path, fallback: Conductor | None) -> Conductor:
    """Return the conductor of a table whose relative path begins in `folder`; ConfigError when there is none."""
    if find_spec("numpy") is None:
        raise MissingExtra("edge", name)
    from shikisha.conductors.trained import Manner, TrainedConductor

    place = _place(table.path, folder)
    stamps = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in _files(place))
    manner = Manner(table.temperature, table.seed, table.constrained, table.unknown)
    return TrainedConductor(name, _opened(place, stamps), fallback, manner, table.rounds, _taskset(place))


def hashes(path: str, folder: Path) -> Iterator[str]:
    """Yield the hashes of a checkpoint's files, none where there is no such folder."""
    from shikisha.conductors.exported import file_hash

    place = _place(path, folder)
    if place.is_dir():
        yield from (file_hash(one) for one in _files(place))


def _taskset(folder: Path) -> str:
    """Return what a checkpoint was trained on, by its card; empty where it has none, or one of another kind."""
    try:
        with (folder / _CARD).open("rb") as opened:
            told = json.loads(opened.read(_LARGEST_CARD))["data"]["taskset"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return one_line(told, _LONGEST) if isinstance(told, str) else ""


def _place(path: str, folder: Path) -> Path:
    if path != SHIPPED:
        return folder / path
    from shikisha.conductors.exported import shipped

    return shipped()


def _files(folder: Path) -> list[Path]:
    """Return the files that a checkpoint's plans hang on."""
    return sorted(path for pattern in (*_RUNTIMES, "*.json") for path in folder.glob(pattern))


@lru_cache(maxsize=4)
def _opened(folder: Path, stamps: tuple[object, ...]) -> "Author":  # noqa: ARG001 - they tell one state from the next
    """Load a checkpoint by the first runtime that can."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    lacking = ""
    for pattern, (extra, modules) in _RUNTIMES.items():
        if not any(folder.glob(pattern)):
            continue
        if all(find_spec(module) for module in modules):
            return _loaded(folder, extra)
        lacking = lacking or extra
    if lacking:
        raise MissingExtra(lacking, f"the checkpoint in {folder}")
    raise ConfigError(f"{folder}: no checkpoint: expected {' or '.join(_RUNTIMES)}")


def _loaded(folder: Path, extra: str) -> "Author":
    if extra == "edge":
        from shikisha.conductors.exported import open_exported

        return open_exported(folder)
    from shikisha.train.serving import open_served

    return open_served(folder)
