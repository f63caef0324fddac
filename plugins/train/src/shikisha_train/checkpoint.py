"""Checkpoints: a folder that is there complete or not at all, from which a run continues as if it had never stopped.

    step-000050/   model.safetensors  config.json  tokenizer.json     the conductor, as anybody loads it
                   tokenizer_config.json  generation_config.json      for transformers' Auto classes and `generate`
                   card.json  README.md                               what it is (`model_card`)
                   state/tensors.safetensors  state/facts.json        what training depends on besides the weights
                   state/manifest.json                                SHA-256 of every other file, written last

The state holds the optimizer, every random generator, and LoRA adapters next to the weights that they are merged into.

Invariants: a checkpoint is written next to its place, synced to the last byte, and then renamed; one that does not hold
what its manifest says is set aside with a note, and the newest complete one counts; nothing is pickled, so nothing in a
checkpoint can be executed; a restored process is in the captured state to the bit. The checkpoint of step 0 is always
kept: the KL divergence is measured from it. Deliberately absent: whether a state fits a run (`training_run`).
"""

import fcntl
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from shikisha.core.errors import ConfigError

_BASE_LAYER, _LORA = ".base_layer", ".lora_"
_ADAPTER_PREFIX = "adapters/"


class _LoraLayer(Protocol):
    """A layer with LoRA adapters, as `peft` makes them."""

    active_adapters: list[str]

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Return what an adapter adds to the weights."""
        ...


def merged_weights(model: Module) -> dict[str, Tensor]:
    """Return the model's weights by their names without adapters, adapters added in."""
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if _LORA in name:
            continue
        if name.endswith(f"{_BASE_LAYER}.weight"):
            layer = cast("_LoraLayer", model.get_submodule(name.removesuffix(f"{_BASE_LAYER}.weight")))
            with torch.no_grad():
                for adapter in layer.active_adapters:
                    tensor = tensor + layer.get_delta_weight(adapter)
        found[name.replace(_BASE_LAYER, "")] = tensor
    return found


def adapter_tensors(model: Module) -> dict[str, Tensor]:
    """Return the adapters alone."""
    return {f"{_ADAPTER_PREFIX}{name}": each for name, each in model.state_dict().items() if _LORA in name}


def load_adapters(model: Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore adapters; ConfigError where the model has others."""
    held = {
        name.removeprefix(_ADAPTER_PREFIX): each for name, each in tensors.items() if name.startswith(_ADAPTER_PREFIX)
    }
    if {name for name in model.state_dict() if _LORA in name} != set(held):
        raise ConfigError("a checkpoint's state does not fit this training: it has other adapters (model.lora)")
    model.load_state_dict(held, strict=False)


if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

CHECKPOINT_FORMAT = 1
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"
TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer_config.json", "generation_config.json"  # for others
_NAME = re.compile(r"step-(\d{6,})")
_TENSORS, _FACTS, _MANIFEST = "state/tensors.safetensors", "state/facts.json", "state/manifest.json"
_PARTIAL = ".partial-"
# Times as long as a checkpoint takes to write passes before the clock asks for another.
_WRITE_TIME_FACTOR = 19.0


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What training depends on besides the weights: tensors by name, and facts, which are JSON data."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """How far training has come, in steps. It names the checkpoint's folder."""

    step: int

    @property
    def folder_name(self) -> str:
        """The checkpoint's folder."""
        return f"step-{self.step:06}"

    @classmethod
    def parse(cls, name: str) -> "CheckpointName | None":
        """Return what a folder's name says, if it is a checkpoint's."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1])) if found else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is complete: where it is, how far it had come, its state."""

    folder: Path
    name: CheckpointName
    state: TrainingState


class CheckpointStore:
    """The checkpoints of one run; the newest `last` stay, and the one that the run began with.

    `note` gets a line for every one that is set aside; `clock` returns the seconds that `is_old` counts.
    """

    def __init__(
        self, folder: Path, last: int, note: Callable[[str], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self.folder, self._last, self._note, self._clock = folder, last, note, clock
        # When the last one was written, and in how many seconds.
        self._saved, self._took = clock(), 0.0

    def is_old(self, minutes: float) -> bool:
        """Whether the last one was written so many minutes ago (0: never), and writing takes little of the time."""
        return bool(minutes) and self._clock() - self._saved > max(60 * minutes, _WRITE_TIME_FACTOR * self._took)

    def places(self) -> list[CheckpointName]:
        """Return what is there, oldest first, complete or not."""
        names = [each.name for each in self.folder.iterdir() if each.is_dir()] if self.folder.is_dir() else []
        found = [place for place in map(CheckpointName.parse, names) if place is not None]
        return sorted(found)

    def newest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint; newer ones are set aside. ConfigError where none is complete."""
        there = self.places()
        for place in reversed(there):
            try:
                return self.read(place)
            except ConfigError as error:
                aside = self.folder / f"broken-{place.folder_name}"
                self._note(f"{error}; it is set aside as {aside.name}")
                _remove_folder(aside)
                (self.folder / place.folder_name).rename(aside)
        if there:
            raise ConfigError(f"{self.folder}: none of its {len(there)} checkpoints is complete: use another --out")
        return None

    def read(self, place: CheckpointName) -> Checkpoint:
        """Return a checkpoint; ConfigError where it is not what was written, or has another format."""
        folder = self.folder / place.folder_name
        try:
            manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
            written_as, hashes = manifest["format"], dict(manifest["files"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{folder}: not a complete checkpoint: {_MANIFEST} is missing or damaged") from None
        if written_as != CHECKPOINT_FORMAT:
            raise ConfigError(
                f"{folder}: a checkpoint of format {written_as!r}; this version reads format {CHECKPOINT_FORMAT}"
            )
        for name, expected in hashes.items():
            if not (folder / name).is_file() or hash_file(folder / name) != expected:
                raise ConfigError(f"{folder}: not a complete checkpoint: {name} is not what was written")
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        return Checkpoint(folder, place, TrainingState(load_tensors(folder / _TENSORS), facts))

    def save(self, place: CheckpointName, fill: Callable[[Path], None], state: TrainingState) -> Path:
        """Write a checkpoint, `fill` writing the files besides its state; then remove those that are too many."""
        from safetensors.torch import save_file

        target, started = self.folder / place.folder_name, self._clock()
        with atomic_folder(target) as partial:
            fill(partial)
            (partial / "state").mkdir()
            save_file({name: each.contiguous() for name, each in state.tensors.items()}, partial / _TENSORS)
            write_json(partial / _FACTS, dict(state.facts))
            hashes = {name: hash_file(partial / name) for name in _files(partial)}
            write_json(partial / _MANIFEST, {"format": CHECKPOINT_FORMAT, "files": hashes})
        stay = [each for each in self.places() if each <= place]
        for old in stay[: -self._last]:
            if old.step:
                shutil.rmtree(self.folder / old.folder_name)
        self._saved = self._clock()
        self._took = self._saved - started
        return target

    def tidy(self) -> None:
        """Remove what a kill left half-written."""
        for each in self.folder.glob(f".*{_PARTIAL}*"):
            shutil.rmtree(each)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; once all of it is on disk it is renamed to `target`, replacing what is there."""
    partial = target.with_name(f".{target.name}{_PARTIAL}{os.getpid()}")
    _remove_folder(partial)
    try:
        partial.mkdir(parents=True)
        yield partial
        for name in _files(partial):
            _fsync(partial / name)
        for folder in (*(each for each in partial.rglob("*") if each.is_dir()), partial):
            _fsync(folder)
        old = target.with_name(f".{target.name}{_PARTIAL}old")
        _remove_folder(old)
        if target.exists():
            target.rename(old)
        partial.rename(target)
        _fsync(target.parent)
        _remove_folder(old)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        _remove_folder(partial)


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Lock the folder of a run for this process; ConfigError when another one trains in it.

    A folder in which nothing was kept is removed. A ConfigError before anything was learned leaves nothing that would
    stop the corrected command; replies that were paid for stay.
    """
    path = folder / "train.lock"
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    before = set(folder.iterdir()) if folder.exists() else set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConfigError(f"{folder}: nothing can be kept there: {error.strerror}") from None
    try:
        _lock(lock, path)
        try:
            yield
        except ConfigError:
            _remove_untrained(folder, before)
            raise
        finally:
            there = list(folder.iterdir())
            if made and all(each.is_file() and not each.stat().st_size for each in there):
                for each in there:
                    each.unlink()
                # Another process has put something next to it.
                with suppress(OSError):
                    for each in made:  # from the innermost
                        each.rmdir()
    finally:
        os.close(lock)


def _remove_untrained(folder: Path, before: set[Path]) -> None:
    """Remove the checkpoint of step 0 that this process wrote, where it is the only one."""
    there = [each for each in folder.iterdir() if CheckpointName.parse(each.name) is not None]
    firsts = [each for each in there if (place := CheckpointName.parse(each.name)) and not place.step]
    if len(firsts) == len(there) == 1 and firsts[0] not in before:
        shutil.rmtree(firsts[0])


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"{path.parent}: another process trains in this folder") from None
    # Its owner removed it just now.
    if not path.exists() or os.fstat(lock).st_ino != path.stat().st_ino:
        raise ConfigError(f"{path.parent}: another process trained in this folder a moment ago: try again")


def save_model(
    model: "PreTrainedModel",
    folder: Path,
    tokens: Mapping[str, int | None],
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights and architecture as `transformers` reads them; tied weights are written once.

    `tokens` are the pad and end tokens, by their names in `config.json`; `weights` are given where the model does not
    hold all of them.
    """
    from safetensors.torch import save_file

    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in (merged_weights(model) if weights is None else weights).items():
        once.setdefault(tensor.data_ptr(), (name, tensor))
    save_file({name: each.contiguous() for name, each in once.values()}, folder / WEIGHTS, metadata={"format": "pt"})
    # FSDP changes the name of the model's class.
    named = model.config.architectures or [type(model).__name__]
    # `_name_or_path` is a path of this machine.
    config = {name: each for name, each in model.config.to_dict().items() if name != "_name_or_path"}
    write_json(folder / CONFIG, {**config, **tokens, "architectures": named})


def save_transformers_files(
    folder: Path, tokenizer: "Tokenizer", model: "PreTrainedModel", tokens: Mapping[str, int | None]
) -> None:
    """Write what the Auto classes and `generate` of transformers need: which tokenizer it is, and where a text ends.

    Our own readers need `tokenizer.json` and `config.json` alone. End tokens that the model started with stay.
    """
    pad, end, unknown = tokens["pad_token_id"], tokens["eos_token_id"], _unknown_token(tokenizer)
    special = {"pad_token": pad, "eos_token": end, "unk_token": unknown}
    named = {name: tokenizer.id_to_token(token) for name, token in special.items() if token is not None}
    settings: dict[str, object] = {"tokenizer_class": _TOKENIZER_CLASS, "clean_up_tokenization_spaces": False, **named}
    if json.loads(tokenizer.to_str())["model"]["type"] != "BPE":
        # transformers 5 ignores the class named here for a model of type "qwen2" and makes an empty word tokenizer.
        # With a map of code next to it, it uses the class again (and runs no code).
        settings["auto_map"] = {"AutoTokenizer": [None, None]}
    write_json(folder / TOKENIZER_CONFIG, {**settings, "model_max_length": model.config.max_position_embeddings})
    before = model.generation_config
    known = before.eos_token_id if before is not None else None
    others = known if isinstance(known, list) else [known]
    ends = sorted({token for token in (end, *others) if token is not None})
    write_json(
        folder / GENERATION_CONFIG,
        {"pad_token_id": pad, "eos_token_id": ends[0] if len(ends) == 1 else ends, "do_sample": False},
    )


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors, each in memory of its own: on a processor the last bit may depend on alignment."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {name: each.clone() for name, each in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: not a file of tensors: {error}") from None


def write_json(path: Path, data: object) -> None:
    """Write JSON; NaN and infinities are refused."""
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def hash_file(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _unknown_token(tokenizer: "Tokenizer") -> int | None:
    """Return a tokenizer's unknown token; None where it knows every byte."""
    model = json.loads(tokenizer.to_str())["model"]
    named, place = model.get("unk_token"), model.get("unk_id")
    if isinstance(named, str):
        return tokenizer.token_to_id(named)
    return place if isinstance(place, int) else None


def _files(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


_OPTIMIZER_PREFIX, _RNG_PREFIX = "optimizer/", "random/"
_TORCH_RNG = f"{_RNG_PREFIX}torch"
_RNG_FACTS = ("python", "numpy")  # facts


def capture_state(optimizer: torch.optim.Optimizer | None) -> TrainingState:
    """Return the state of an optimizer (None: of none), and of the process-wide random generators."""
    held = {"state": {}, "param_groups": []} if optimizer is None else optimizer.state_dict()
    tensors = {f"{_OPTIMIZER_PREFIX}{place}/{name}": value for place, name, value in _optimizer_slots(held["state"])}
    tensors[_TORCH_RNG] = torch.get_rng_state()
    facts = {"optimizer": held["param_groups"], "python": random.getstate(), "numpy": _numpy_state()}
    return TrainingState({name: each.detach().clone() for name, each in tensors.items()}, facts)


def restore_state(state: TrainingState, optimizer: torch.optim.Optimizer | None) -> None:
    """Restore everything; ConfigError where something is missing."""
    try:
        if optimizer is not None:
            slots: dict[int, dict[str, Tensor]] = {}
            for key, tensor in state.tensors.items():
                if key.startswith(_OPTIMIZER_PREFIX):
                    place, _, name = key.removeprefix(_OPTIMIZER_PREFIX).partition("/")
                    slots.setdefault(int(place), {})[name] = tensor.clone()
            given = [each for group in optimizer.param_groups for each in group["params"]]
            for number, held in slots.items():
                for name, tensor in held.items():
                    if tensor.dim() and tensor.shape != given[number].shape:
                        was, found = tuple(tensor.shape), tuple(given[number].shape)
                        raise ValueError(f"weights {number} had the shape {was}, and have {found} ({name})")
            groups = cast("list[dict[str, object]]", state.facts["optimizer"])
            optimizer.load_state_dict(
                {
                    "state": slots,
                    "param_groups": [
                        {
                            name: tuple(each) if name == "betas" and isinstance(each, list) else each
                            for name, each in group.items()
                        }
                        for group in groups
                    ],
                }
            )
        torch.set_rng_state(state.tensors[_TORCH_RNG])
        version, numbers, gauss = cast("tuple[int, list[int], float | None]", state.facts["python"])
        random.setstate((version, tuple(numbers), gauss))
        _set_numpy_state(cast("list[object]", state.facts["numpy"]))
    except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
        raise ConfigError(f"a checkpoint's state does not fit this training: {error}") from None


def rng_state_json(state: TrainingState) -> str:
    """Return the random generators of a state, which each process has its own of, as one line of JSON."""
    tensors = {name: each.tolist() for name, each in state.tensors.items() if name.startswith(_RNG_PREFIX)}
    return json.dumps({"tensors": tensors, **{name: state.facts[name] for name in _RNG_FACTS}})


def with_rng_state(state: TrainingState, text: str) -> TrainingState:
    """Return the state with the random generators that `rng_state_json` wrote."""
    held = json.loads(text)
    tensors = {name: torch.tensor(each, dtype=torch.uint8) for name, each in held["tensors"].items()}
    return TrainingState({**state.tensors, **tensors}, {**state.facts, **{name: held[name] for name in _RNG_FACTS}})


def _optimizer_slots(held: Mapping[int, Mapping[str, object]]) -> Iterator[tuple[int, str, Tensor]]:
    """Yield what an optimizer holds of each parameter; numbers become tensors."""
    for place, slots in held.items():
        for name, value in slots.items():
            yield place, name, value if isinstance(value, Tensor) else torch.tensor(value)


def _numpy_state() -> list[object]:
    name, numbers, place, has_gauss, gauss = np.random.get_state(legacy=True)
    return [name, np.asarray(numbers).tolist(), place, has_gauss, gauss]


def _set_numpy_state(state: list[object]) -> None:
    name, numbers, place, has_gauss, gauss = state
    found = (
        str(name),
        np.asarray(numbers, np.uint32),
        cast("int", place),
        cast("int", has_gauss),
        cast("float", gauss),
    )
    np.random.set_state(found)
