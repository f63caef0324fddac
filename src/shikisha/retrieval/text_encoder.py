"""A text as a unit vector: one small network in a file of the package, run by onnxruntime.

A text becomes words, and a word becomes rows of one table: itself where it is known, and its runs of three and four
letters. So a word with a typing error, an inflection or a compound is near the word that is meant. A gated convolution
looks at neighboring words, and eight weighted means over the words make the vector. It was trained on pairs of real
texts that say the same thing (`encoder.md` beside the file has the corpus, its licenses and the figures).

Invariants: the same text has the same vector whatever else is encoded with it, up to rounding; time and memory are
bounded by MAX_CHARACTERS and MAX_WORDS a text, whatever the text says; no text raises. A text of which nothing is known
has the zero vector. Needs numpy and onnxruntime (extra `edge`), and never torch. Deliberately absent: languages other
than English, of which little was read, and long documents.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.retrieval.code_probe import check_probe

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

FORMAT = "shikisha-text-encoder/1"
MAX_CHARACTERS = 2_000
MAX_WORDS = 64
MAX_UNITS = 32
MAX_TOKENS = 256
_MAX_WORD = 20
_BATCH = 64
_MAX_FILE_BYTES = 2**31
_REMEMBERED_WORDS = 50_000
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+|[?%+*/=$€£#@<>-]")
_ACCENT = re.compile("[\u0300-\u036f]")
_MOST_DIGITS = 6


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case: identifiers in parts, a number as its digits' count, some marks."""
    plain = text[:MAX_CHARACTERS]
    if not plain.isascii():
        plain = _ACCENT.sub("", unicodedata.normalize("NFKD", plain)[: 2 * MAX_CHARACTERS])
    found = _WORD.findall(plain)[:MAX_WORDS]
    return ["0" * min(len(word), _MOST_DIGITS) if word.isdigit() else word[:_MAX_WORD].lower() for word in found]


def word_units(word: str) -> list[str]:
    """Return what a word may be known by: itself between marks, and its runs of three and four letters."""
    whole = f"<{word}>"
    if not word.isalpha():
        return [whole]
    runs = [whole[at : at + size] for size in (3, 4) for at in range(len(whole) - size + 1)]
    return list(dict.fromkeys([whole, *runs]))[:MAX_UNITS]


class WordTable:
    """Numbers of units by word. Row 0 is nothing."""

    def __init__(self, units: Iterable[str]) -> None:
        self._numbers: Mapping[str, int] = {unit: number for number, unit in enumerate(units, 1)}
        self._words: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._numbers) + 1

    def find_word(self, word: str) -> tuple[int, ...]:
        """Return the numbers of the known units of a word."""
        found = self._words.get(word)
        if found is None:
            if len(self._words) >= _REMEMBERED_WORDS:
                self._words.clear()
            found = tuple(self._numbers[unit] for unit in word_units(word) if unit in self._numbers)
            self._words[word] = found
        return found

    def arrange(self, texts: Sequence[Sequence[str]]) -> tuple[Ints, Ints]:
        """Return the units of the different words [U, F] and the places of each text's words among them [N, W].

        Both are padded with 0; the word at place 0 has no units. Words without a known unit are left out.
        """
        places: dict[tuple[int, ...], int] = {(): 0}
        known = [[found for word in words if (found := self.find_word(word))] for words in texts]
        rows = [[places.setdefault(found, len(places)) for found in row] for row in known]
        units = np.zeros((len(places), max(1, *map(len, [*places, ()]))), np.int64)
        for found, place in places.items():
            units[place, : len(found)] = found
        words = np.zeros((len(rows), max([1, *map(len, rows)])), np.int64)
        for at, row in enumerate(rows):
            words[at, : len(row)] = row
        return units, words


class TextEncoder:
    """Encodes texts with one file; ConfigError where it is none, MissingExtra without onnxruntime.

    `width` is a vector's length, and `version` the hash of the file.
    """

    def __init__(self, file: Path | None = None, *, bound: bool = True) -> None:
        where = str(file or "the shipped text encoder")
        body = _read(file)
        self._session, raised = _open_model(body, where)
        told = _metadata(self._session, where)
        names = {one.name for one in self._session.get_inputs()}
        if told.get("format") != FORMAT or "units" not in told or names != {"units", "words"}:
            raise ConfigError(f"{where}: not a text encoder: expected the format {FORMAT}")
        self.table = WordTable(told["units"].split("\n"))
        self.width = int(self._session.get_outputs()[0].shape[1])
        self.version = sha256(body).hexdigest()
        try:
            if bound:
                check_probe(told.get("probe"), self.behavior())
        except (ValueError, raised.InvalidArgument, raised.Fail) as error:
            raise ConfigError(f"{where}: not a text encoder: {error}") from None

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return [N, width]: a unit vector for each text, or zeros for one of which nothing is known."""
        split = [split_words(text) for text in texts]
        # Texts of like length go together, so that little is padded.
        order = sorted(range(len(texts)), key=lambda at: len(split[at]))
        vectors = np.zeros((len(texts), self.width), np.float32)
        for first in range(0, len(order), _BATCH):
            places = order[first : first + _BATCH]
            units, words = self.table.arrange([split[at] for at in places])
            vectors[places] = self._session.run(None, {"units": units, "words": words})[0]
        return vectors

    def behavior(self) -> Iterator[Floats]:
        """Yield what it makes of fixed texts, which its file keeps (`code_probe`)."""
        yield self.encode(["Who leads Ada's team?", "Add 17 to the meter's reading.", "archive re-sent letters"])


class SentenceEncoder:
    """Encodes texts with somebody's sentence transformer: an ONNX model, and `tokenizer.json` in the same folder.

    What the model gives for each token is averaged over a text's tokens, as most of these models are trained.
    """

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            raise MissingExtra("edge", "a sentence encoder") from None
        words = file.with_name("tokenizer.json")
        if not words.is_file():
            raise ConfigError(f"{file}: expected a text encoder of this package, or a model with {words} beside it")
        body = _read(file)
        self._session, self._raised = _open_model(body, str(file))
        try:
            self._tokenizer = Tokenizer.from_file(str(words))
        except Exception as error:  # noqa: BLE001 - its library raises nothing more specific
            raise ConfigError(f"{words}: not a tokenizer: {error}") from None
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._names = {one.name for one in self._session.get_inputs()}
        self._where = str(file)
        self.version = sha256(body + words.read_bytes()).hexdigest()
        self.width = self.encode(["a"]).shape[1]

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return [N, width]: a unit vector for each text."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors = [np.zeros((0, self.width), np.float32)] if not texts else []
        for first in range(0, len(order), _BATCH):
            batch = self._tokenizer.encode_batch([texts[at][:MAX_CHARACTERS] for at in order[first : first + _BATCH]])
            mask = np.array([one.attention_mask for one in batch], np.int64)
            inputs = {"input_ids": np.array([one.ids for one in batch], np.int64), "attention_mask": mask}
            inputs["token_type_ids"] = np.zeros_like(mask)
            try:
                found = self._session.run(None, {name: inputs[name] for name in self._names})[0]
            except (KeyError, self._raised.InvalidArgument, self._raised.Fail) as error:
                raise ConfigError(f"{self._where}: not a sentence encoder: {error}") from None
            if found.ndim not in (2, 3):
                raise ConfigError(f"{self._where}: not a sentence encoder: an output of {found.ndim} dimensions")
            pooled = found if found.ndim == 2 else (found * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
            vectors.append(pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12))
        back = np.argsort(order, kind="stable")
        whole: Floats = np.concatenate(vectors)[back].astype(np.float32)
        return whole


def load_encoder(file: Path | None) -> TextEncoder | SentenceEncoder:
    """Return the encoder of this file, of this package's kind or a sentence transformer; else the shipped one."""
    if file is None:
        return shipped_encoder()
    session, _ = _open_model(_read(file), str(file))
    return TextEncoder(file) if "format" in _metadata(session, str(file)) else SentenceEncoder(file)


def _open_model(body: bytes, where: str) -> tuple[Any, Any]:
    """Return a session and the module of its errors; ConfigError where the bytes are no model."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
        from onnxruntime.capi import onnxruntime_pybind11_state as raised  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise MissingExtra("edge", "the text encoder") from None
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"]), raised
    except (
        raised.Fail,
        raised.InvalidArgument,
        raised.InvalidGraph,
        raised.InvalidProtobuf,
        raised.NotImplemented,
        raised.RuntimeException,  # the graph cannot be built
        UnicodeDecodeError,  # it has a name that is not in UTF-8
    ):
        raise ConfigError(f"{where}: cannot be read as an ONNX model") from None


def _metadata(session: Any, where: str) -> dict[str, str]:  # noqa: ANN401 - of a library without types
    try:
        return dict(session.get_modelmeta().custom_metadata_map)
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: cannot be read as an ONNX model") from None


@lru_cache(maxsize=1)
def shipped_encoder() -> TextEncoder:
    """Return the encoder in the package, loaded at the first use."""
    return TextEncoder()


def _read(file: Path | None) -> bytes:
    if file is None:
        return (resources.files("shikisha.retrieval") / "encoder.onnx").read_bytes()
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{file}: a text encoder has at most {_MAX_FILE_BYTES:,} bytes")
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: expected a text encoder: {error.strerror or error}") from None
