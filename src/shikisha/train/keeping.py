"""Checkpoints: a folder that is there whole or not at all, and from which a run goes on as if it had never stopped.

    step-000050/   model.safetensors  config.json  tokenizer.json     the conductor, as anybody loads it
                   tokenizer_config.json  generation_config.json      for transformers' Auto classes and `generate`
                   card.json  README.md                               what it is (`card`)
                   state/tensors.safetensors  state/facts.json        what training hangs on besides the weights
                   state/manifest.json                                SHA-256 of every other file, written last

Invariants: a checkpoint is written beside its place, on the disk to the last byte, and then renamed; one that does not
hold what its manifest says is set aside with a note, and the newest good one counts; nothing is pickled, so nothing in
a checkpoint can be executed. The checkpoint of the first step (0) is always kept: divergences are measured from it.
Deliberately absent: what is in a state (`memory`), and whether it fits a run (`session`).
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from torch import Tensor

from shikisha.conductors.exported import unknown_token
from shikisha.errors import ConfigError
from shikisha.train.adapted import merged

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

FORMAT = 1
STAGES = ("warm", "step")  # in the order in which training goes through them
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"
TOKENIZER_CONFIG, GENERATION = "tokenizer_config.json", "generation_config.json"  # for others
_NAME = re.compile(rf"({'|'.join(STAGES)})-(\d{{6,}})")
_TENSORS, _FACTS, _MANIFEST = "state/tensors.safetensors", "state/facts.json", "state/manifest.json"
_PARTIAL = ".partial-"
_WRITING = 19.0  # times as long as a checkpoint takes to write passes before the clock asks for another


@dataclass(frozen=True, slots=True)
class State:
    """What training hangs on besides the weights: tensors by name, and facts, which are JSON data."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """How far training has come: so many steps of a stage."""

    stage: str
    step: int

    @property
    def name(self) -> str:
        """The checkpoint's folder."""
        return f"{self.stage}-{self.step:06}"

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in time."""
        return STAGES.index(self.stage), self.step

    @classmethod
    def of(cls, name: str) -> "Place | None":
        """Return the place that a folder's name says, if it is a checkpoint's."""
        found = _NAME.fullmatch(name)
        return cls(found[1], int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint that is whole: where it is, how far it had come, its state."""

    folder: Path
    place: Place
    state: State


class Shelf:
    """The checkpoints of one run; the newest `last` stay, and the one that the run began with.

    `note` is told of every one that is set aside; `clock` tells the seconds by which one gets old.
    """

    def __init__(
        self, folder: Path, last: int, note: Callable[[str], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self.folder, self._last, self._note, self._clock = folder, last, note, clock
        self._saved, self._took = clock(), 0.0  # when the last one was written, and in how many seconds

    def is_old(self, minutes: float) -> bool:
        """Whether the last was written so many minutes ago (0: that is no reason), and writing one is not dear."""
        return bool(minutes) and self._clock() - self._saved > max(60 * minutes, _WRITING * self._took)

    def places(self) -> list[Place]:
        """Return what is there, oldest first, whole or not."""
        names = [each.name for each in self.folder.iterdir() if each.is_dir()] if self.folder.is_dir() else []
        found = [place for place in map(Place.of, names) if place is not None]
        return sorted(found, key=lambda place: place.rank)

    def newest(self) -> Kept | None:
        """Return the newest checkpoint that is whole; newer ones are set aside. ConfigError where none is."""
        there = self.places()
        for place in reversed(there):
            try:
                return self.read(place)
            except ConfigError as error:
                aside = self.folder / f"broken-{place.name}"
                self._note(f"{error}; it is set aside as {aside.name}")
                _cleared(aside)
                (self.folder / place.name).rename(aside)
        if there:
            raise ConfigError(f"{self.folder}: none of its {len(there)} checkpoints is whole: begin anew elsewhere")
        return None

    def read(self, place: Place) -> Kept:
        """Return a checkpoint; ConfigError where it is not what was written, or of another format."""
        folder = self.folder / place.name
        _refuse_broken(folder)
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        return Kept(folder, place, State(tensors_of(folder / _TENSORS), facts))

    def save(self, place: Place, fill: Callable[[Path], None], state: State) -> Path:
        """Write a checkpoint, the files besides its state by `fill`; then let go of those that are too many."""
        from safetensors.torch import save_file

        target, begun = self.folder / place.name, self._clock()
        with written(target) as partial:
            fill(partial)
            (partial / "state").mkdir()
            save_file({name: each.contiguous() for name, each in state.tensors.items()}, partial / _TENSORS)
            write_json(partial / _FACTS, dict(state.facts))
            hashes = {name: hash_of(partial / name) for name in _files(partial)}
            write_json(partial / _MANIFEST, {"format": FORMAT, "files": hashes})
        stay = [each for each in self.places() if each.rank <= place.rank]
        for old in stay[: -self._last]:
            if old != Place("step", 0):
                shutil.rmtree(self.folder / old.name)
        self._saved = self._clock()
        self._took = self._saved - begun
        return target

    def tidy(self) -> None:
        """Remove what a kill left half-written."""
        for each in self.folder.glob(f".*{_PARTIAL}*"):
            shutil.rmtree(each)


@contextmanager
def written(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; it is renamed to `target`, replacing what is there, once all of it is on the disk."""
    partial = target.with_name(f".{target.name}{_PARTIAL}{os.getpid()}")
    _cleared(partial)
    try:
        partial.mkdir(parents=True)
        yield partial
        for name in _files(partial):
            _synced(partial / name)
        for folder in (*(each for each in partial.rglob("*") if each.is_dir()), partial):
            _synced(folder)
        old = target.with_name(f".{target.name}{_PARTIAL}old")
        _cleared(old)
        if target.exists():
            target.rename(old)
        partial.rename(target)
        _synced(target.parent)
        _cleared(old)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        _cleared(partial)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder of a run for this process; ConfigError when another one trains in it.

    Where nothing came to be kept there, it is not there afterwards. What is refused (ConfigError) before anything was
    learned leaves nothing that would stand in the way of the corrected command; replies that were paid for stay.
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
            _unlearned(folder, before)
            raise
        finally:
            there = list(folder.iterdir())
            if made and all(each.is_file() and not each.stat().st_size for each in there):
                for each in there:
                    each.unlink()
                with suppress(OSError):  # somebody else put something beside it meanwhile
                    for each in made:  # from the innermost
                        each.rmdir()
    finally:
        os.close(lock)


def _unlearned(folder: Path, before: set[Path]) -> None:
    """Remove the checkpoint of the beginning that was written now, where it is the only one."""
    there = [each for each in folder.iterdir() if Place.of(each.name) is not None]
    begun = [each for each in there if (place := Place.of(each.name)) and not place.step]
    if len(begun) == len(there) == 1 and begun[0] not in before and not _taught(begun[0]):
        shutil.rmtree(begun[0])


def _taught(folder: Path) -> bool:
    """Whether lessons were taken before this checkpoint: then it was hard-earned."""
    try:
        settings = json.loads((folder / _FACTS).read_text(encoding="utf-8"))["settings"]
        return folder.name.startswith(STAGES[1]) and bool(settings["warm.steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"{path.parent}: another process trains in this folder") from None
    if not path.exists() or os.fstat(lock).st_ino != path.stat().st_ino:  # it was let go of, file and all, just now
        raise ConfigError(f"{path.parent}: another process trained in this folder a moment ago: try again")


def save_model(
    model: "PreTrainedModel",
    folder: Path,
    tokens: Mapping[str, int | None],
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights and architecture as `transformers` reads them; weights that are tied are written once.

    `tokens` are those that pad and end, by the names that `config.json` has for them; `weights` are given where the
    model does not hold all of them.
    """
    from safetensors.torch import save_file

    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in (merged(model) if weights is None else weights).items():
        once.setdefault(tensor.data_ptr(), (name, tensor))
    save_file({name: each.contiguous() for name, each in once.values()}, folder / WEIGHTS, metadata={"format": "pt"})
    named = model.config.architectures or [type(model).__name__]  # FSDP gives the model's class a name of its own
    config = {name: each for name, each in model.config.to_dict().items() if name != "_name_or_path"}  # whence it came
    write_json(folder / CONFIG, {**config, **tokens, "architectures": named})


def save_for_others(
    folder: Path, tokenizer: "Tokenizer", model: "PreTrainedModel", tokens: Mapping[str, int | None]
) -> None:
    """Write what the Auto classes and `generate` of transformers go by: which tokenizer it is, and where a text ends.

    Our own readers take `tokenizer.json` and `config.json` alone. Ends that the model began with stay.
    """
    pad, end, unknown = tokens["pad_token_id"], tokens["eos_token_id"], unknown_token(tokenizer)
    special = {"pad_token": pad, "eos_token": end, "unk_token": unknown}
    named = {name: tokenizer.id_to_token(token) for name, token in special.items() if token is not None}
    told: dict[str, object] = {"tokenizer_class": _TOKENIZER_CLASS, "clean_up_tokenization_spaces": False, **named}
    if json.loads(tokenizer.to_str())["model"]["type"] != "BPE":
        # transformers 5 knows better than any class named here which tokenizer a model of type "qwen2" has, and makes
        # an empty one of words; it trusts the class again where a map of code stands beside it (and runs none of it)
        told["auto_map"] = {"AutoTokenizer": [None, None]}
    write_json(folder / TOKENIZER_CONFIG, {**told, "model_max_length": model.config.max_position_embeddings})
    before = model.generation_config
    known = before.eos_token_id if before is not None else None
    others = known if isinstance(known, list) else [known]
    ends = sorted({token for token in (end, *others) if token is not None})
    write_json(
        folder / GENERATION,
        {"pad_token_id": pad, "eos_token_id": ends[0] if len(ends) == 1 else ends, "do_sample": False},
    )


def tensors_of(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors, each in memory of its own: on a processor the last bit may hang on alignment."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {name: each.clone() for name, each in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: not a file of tensors: {error}") from None


def write_json(path: Path, data: object) -> None:
    """Write JSON; numbers that are none are refused."""
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def hash_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _refuse_broken(folder: Path) -> None:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        written_as, hashes = manifest["format"], dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{folder}: not a whole checkpoint: {_MANIFEST} is missing or damaged") from None
    if written_as != FORMAT:
        raise ConfigError(f"{folder}: a checkpoint of format {written_as!r}; this version reads format {FORMAT}")
    for name, expected in hashes.items():
        if not (folder / name).is_file() or hash_of(folder / name) != expected:
            raise ConfigError(f"{folder}: not a whole checkpoint: {name} is not what was written")


def _files(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def _synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cleared(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
