"""An exported checkpoint (`model.onnx` and `tokenizer.json`), run by ONNX Runtime on one core, without torch.

ONNX Runtime computes, numpy samples, `tokenizers` encodes and decodes; the prompt is the compact one. The metadata in
the model file say which weights and tokenizer it was made of. Invariants: a tokenizer other than the model's, a model
of another format, and weights beside it that it was not made of are ConfigErrors; nothing leaves the machine.
"""

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from shikisha.conductors.plan_grammar import count_ordinals, read_token_pieces
from shikisha.conductors.trained_model import CausalModel, DecodingSession
from shikisha.core.errors import ConfigError
from shikisha.core.prompts import compact_prompt, with_nearest_prices
from shikisha.engine.conductor import Situation
from shikisha.routing.arrays import Floats32

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ONNX_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "model.onnx", "tokenizer.json", "model.safetensors"
ONNX_FORMAT = "1"
# Tokens of a plan with its thought, unless configured.
PLAN_TOKENS = 256
SHIPPED = "shipped"
_PACKAGE = "shikisha"
_VERSION_DIGITS = 12


class OnnxSession(Protocol):
    """The part of ONNX Runtime that is used here."""

    def run(self, names: Sequence[str], feed: Mapping[str, object]) -> list[Floats32]:
        """Run the graph."""
        ...


@dataclass(frozen=True, slots=True)
class KVCacheShape:
    """Keys and values of so many layers, each [1, heads, P, depth] after P tokens."""

    layers: int
    heads: int
    depth: int

    def names(self, of: str) -> list[str]:
        """Return the names of the graph's inputs or outputs."""
        return [f"{of}.{layer}.{part}" for layer in range(self.layers) for part in ("key", "value")]


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An exported model; `metadata` is what its file states."""

    session: OnnxSession
    caches: KVCacheShape
    longest: int
    metadata: Mapping[str, str]

    def begin(self) -> DecodingSession:
        """Start a session."""
        return _OnnxDecodingSession(self)


class _OnnxDecodingSession:
    """A text as the graph has read it."""

    def __init__(self, model: OnnxModel) -> None:
        self._session = model.session
        self._inputs = model.caches.names("past_key_values")
        self._outputs = ["logits", *model.caches.names("present")]
        nothing = np.zeros((1, model.caches.heads, 0, model.caches.depth), np.float32)
        self._held: Sequence[Floats32] = [nothing] * len(self._inputs)
        self._read = 0

    def feed(self, tokens: Sequence[int]) -> Floats32:
        """Read on."""
        begun, self._read = self._read, self._read + len(tokens)
        feed = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, self._read), np.int64),
            "position_ids": np.arange(begun, self._read, dtype=np.int64)[None],
            **dict(zip(self._inputs, self._held, strict=True)),
        }
        logits, *self._held = self._session.run(self._outputs, feed)
        last: Floats32 = logits[0, -1]
        return last


def open_onnx(held: bytes, where: str) -> OnnxModel:
    """Return the model of a file's bytes; ConfigError, naming `where`, for a model that this package did not export."""
    import onnxruntime  # type: ignore[import-untyped]
    from onnxruntime.capi import onnxruntime_pybind11_state as raised  # type: ignore[import-untyped]

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(held, options, providers=["CPUExecutionProvider"])
        told = dict(session.get_modelmeta().custom_metadata_map)
        shapes = {one.name: one.shape for one in session.get_inputs()}
    except (raised.Fail, raised.InvalidArgument, raised.InvalidGraph, raised.InvalidProtobuf, raised.NotImplemented):
        raise ConfigError(f"{where}: cannot be read as an ONNX model") from None
    except (raised.RuntimeException, UnicodeDecodeError):  # the graph cannot be built, or has a name that is not UTF-8
        raise ConfigError(f"{where}: cannot be read as an ONNX model") from None
    if told.get("format") != ONNX_FORMAT:
        raise ConfigError(
            f"{where}: a model of format {told.get('format')!r}; this version reads format {ONNX_FORMAT!r}"
        )
    try:
        _, heads, _, depth = shapes["past_key_values.0.key"]
        heads, depth, longest = operator.index(heads), operator.index(depth), int(told["context"])
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: what it says of itself is not whole: {error}") from None
    layers = sum(name.endswith(".key") for name in shapes)
    return OnnxModel(cast("OnnxSession", session), KVCacheShape(layers, heads, depth), longest, told)


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The facts about a checkpoint that are stored beside its weights.

    Hashes of weights and tokenizer, the tokens that end a text, those without a text, how many rounds it was trained to
    plan, and how many tokens a plan may have.
    """

    weights: str
    tokenizer: str
    ends: tuple[int, ...]
    silent: tuple[int, ...] = ()
    rounds: int = 1
    longest: int = PLAN_TOKENS

    def metadata(self) -> dict[str, str]:
        """Return the metadata for an exported file."""
        ends, silent = (" ".join(map(str, tokens)) for tokens in (self.ends, self.silent))
        numbers = {"ends": ends, "silent": silent, "rounds": str(self.rounds), "plan_tokens": str(self.longest)}
        return {"format": ONNX_FORMAT, "weights": self.weights, "tokenizer": self.tokenizer, **numbers}

    @classmethod
    def read(cls, told: Mapping[str, str], where: str) -> "CheckpointFacts":
        """Read the metadata of an exported file; ConfigError where something is missing."""
        try:
            ends, silent = (tuple(int(token) for token in told[key].split()) for key in ("ends", "silent"))
            rounds, longest = int(told["rounds"]), int(told["plan_tokens"])
            return cls(told["weights"], told["tokenizer"], ends, silent, rounds, longest)
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{where}: what it says of itself is not whole: {error}") from None


class BriefPromptModel:
    """A model with its tokenizer that reads the compact prompt: a `PlanModel`."""

    def __init__(self, model: CausalModel, tokenizer: "Tokenizer", facts: CheckpointFacts, where: str) -> None:
        self.model = model
        self.version = checkpoint_version(facts.weights, facts.tokenizer)
        self.rounds, self.longest = facts.rounds, facts.longest
        self.ends = frozenset(facts.ends)
        # So that no text can spell a special token.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        silent = {*facts.ends, *facts.silent}
        self.lexicon = read_token_pieces(self.encode, self.decode, tokenizer.get_vocab_size(), silent, where)
        self.ordinals = count_ordinals(self.encode, self.decode)
        self._unknown = unknown_token(tokenizer)
        self._prices = known_price_levels(tokenizer)
        self.words = None if self._unknown is None else tokenizer.get_vocab_size()

    def prompt(self, situation: Situation) -> Sequence[int]:
        """Return the tokens of the compact prompt."""
        text = compact_prompt(situation.task, situation.cards, situation.rounds)
        return self.encode(with_nearest_prices(text, self._prices))

    def encode(self, text: str) -> Sequence[int]:
        """Return a text's tokens."""
        return self._tokenizer.encode(text).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of these tokens."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=False)

    def unknown(self, text: str) -> tuple[int, int]:
        """Return how many of a text's tokens are unknown, and how many there are."""
        return unknown_count(self.encode(text), self._unknown)


def open_onnx_checkpoint(folder: Path) -> BriefPromptModel:
    """Return the checkpoint in a folder; ConfigError that says what is missing or does not fit."""
    held = _read_bytes(folder / ONNX_FILE)
    model = open_onnx(held, str(folder / ONNX_FILE))
    facts = CheckpointFacts.read(model.metadata, str(folder / ONNX_FILE))
    tokenizer, spelled = read_tokenizer(folder / TOKENIZER_FILE)
    if spelled != facts.tokenizer:
        raise ConfigError(f"{folder / TOKENIZER_FILE}: not the tokenizer that {ONNX_FILE} was exported with")
    if (folder / WEIGHTS_FILE).is_file() and file_hash(folder / WEIGHTS_FILE) != facts.weights:
        raise ConfigError(f"{folder / ONNX_FILE}: not made of the {WEIGHTS_FILE} next to it: export it again")
    return BriefPromptModel(model, tokenizer, facts, str(folder))


def read_tokenizer(path: Path) -> "tuple[Tokenizer, str]":
    """Return a tokenizer and its hash; ConfigError where the file holds none."""
    from tokenizers import Tokenizer

    held = _read_bytes(path)
    try:
        return Tokenizer.from_buffer(held), sha256(held).hexdigest()
    except ValueError as error:
        raise ConfigError(f"{path}: no tokenizer: {error}") from None


def unknown_token(tokenizer: "Tokenizer") -> int | None:
    """Return a tokenizer's unknown token; None where it knows every byte."""
    model = json.loads(tokenizer.to_str())["model"]
    named, place = model.get("unk_token"), model.get("unk_id")
    if isinstance(named, str):
        return tokenizer.token_to_id(named)
    return place if isinstance(place, int) else None


def known_price_levels(tokenizer: "Tokenizer") -> tuple[int, ...]:
    """Return the price levels that a tokenizer has as words; none where it knows every byte, or every level."""
    known = tuple(level for level in range(10) if tokenizer.token_to_id(f"${level}") is not None)
    return known if 0 < len(known) < 10 and unknown_token(tokenizer) is not None else ()


def unknown_count(tokens: Sequence[int], unknown: int | None) -> tuple[int, int]:
    """Return how many of these tokens are the unknown one, and how many there are."""
    return sum(token == unknown for token in tokens), len(tokens)


def shipped_checkpoint() -> Path:
    """Return the folder of the checkpoint that comes with the package; ConfigError where there is none."""
    folder = Path(str(files(_PACKAGE) / SHIPPED))
    if not (folder / ONNX_FILE).is_file():
        raise ConfigError(
            f"lm:{SHIPPED}: this build of {_PACKAGE} has no {SHIPPED}/{ONNX_FILE}; "
            f"`{_PACKAGE} export DIR --out {folder}` puts a checkpoint there"
        )
    return folder


def checkpoint_version(*hashes: str) -> str:
    """Return the version of a checkpoint of these hashes (weights, tokenizer), however it is run."""
    return sha256(" ".join(hashes).encode()).hexdigest()[:_VERSION_DIGITS]


def file_hash(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
