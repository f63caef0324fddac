"""Arrays in one file of the format of safetensors: numbers in half precision, large tables in 8 bits a number.

A packed array of N rows is stored as whole numbers from -127 to 127 and as N scales beside it (`NAME.scale`).

Invariants: reading runs nothing from the file and takes bounded memory; every number read is finite and has the place
and shape that the reader asked for. Deliberately absent: what the arrays mean.
"""

import json
import struct
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Floats32

MAX_FILE, _MAX_HEADER = 2**26, 2**20
_MOST = 127
_HASH = "sha256"  # in a file's metadata: of everything else in it


@dataclass(frozen=True)
class WeightFile:
    """A file's metadata, and its arrays on request; `version` is the hash of its bytes."""

    header: Mapping[str, object]
    body: bytes
    version: str

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the file says of itself."""
        told = self.header["__metadata__"]
        if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
            raise ValueError("its header holds no metadata")
        return told

    def read(self, name: str, shape: tuple[int, ...]) -> Floats32:
        """Return an array of this shape; ValueError or KeyError where the file has none."""
        entry = self.header[name]
        packed = isinstance(entry, dict) and entry["dtype"] == "I8"
        found = self._numbers(name, shape, "I8" if packed else "F16").astype(np.float32)
        if packed:
            scale = self._numbers(f"{name}.scale", shape[:1], "F16").astype(np.float32)
            found = found * scale.reshape(-1, *[1] * (len(shape) - 1))
        return found

    def _numbers(self, name: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
        entry = self.header[name]
        if not isinstance(entry, dict) or entry["dtype"] != kind or tuple(entry["shape"]) != shape:
            raise ValueError(f"{name}: expected numbers of type {kind} and shape {shape}")
        begin, end = entry["data_offsets"]
        size = 1 if kind == "I8" else 2
        if end - begin != size * int(np.prod(shape)) or not 0 <= begin <= end <= len(self.body):
            raise ValueError(f"{name}: its place in the file does not fit its shape")
        found = np.frombuffer(self.body[begin:end], np.int8 if kind == "I8" else np.float16).reshape(shape)
        if not np.isfinite(found).all():
            raise ValueError(f"{name}: not all of its numbers are finite")
        return found


def write_weights(
    file: Path, arrays: Mapping[str, Floats32], metadata: Mapping[str, str], packed: Collection[str] = ()
) -> None:
    """Write arrays, those of the `packed` names in 8 bits a number."""
    stored = dict[str, np.ndarray]()
    for name, array in arrays.items():
        if name in packed:
            stored[name], stored[f"{name}.scale"] = _pack(np.asarray(array, np.float32))
        else:
            stored[name] = np.asarray(array, np.float16)
    entries = dict[str, object]()
    at, held = 0, list[bytes]()
    for name, array in sorted(stored.items()):
        raw = array.tobytes()
        kind = "I8" if array.dtype == np.int8 else "F16"
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        held.append(raw)
    body = b"".join(held)
    hashed = _hash_of({**entries, "__metadata__": dict(metadata)}, body)
    whole = {**entries, "__metadata__": {**metadata, _HASH: hashed}}
    header = json.dumps(whole, separators=(",", ":")).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + body)


def _hash_of(entries: Mapping[str, object], body: bytes) -> str:
    """Return the hash of all that a file holds but this hash."""
    return sha256(json.dumps(entries, sort_keys=True).encode() + body).hexdigest()


def _pack(array: Floats32) -> tuple[np.ndarray, np.ndarray]:
    flat = array.reshape(len(array), -1)
    most = np.abs(flat).max(1)
    scale = (most / _MOST).astype(np.float16).clip(np.float16(1e-7))
    # Rounded up where the largest number would not fit; what was read from a file is then stored as it was.
    scale = np.where(scale.astype(np.float32) * _MOST < most, np.nextafter(scale, np.float16(np.inf)), scale)
    whole = np.rint(flat / scale.astype(np.float32)[:, None]).clip(-_MOST, _MOST)
    return whole.astype(np.int8).reshape(array.shape), scale


def open_weights(file: Path, what: str) -> WeightFile:
    """Open a file; ConfigError where there is none or where it is not `what`."""
    try:
        with file.open("rb") as opened:  # whatever size a device or a growing file states
            held = opened.read(MAX_FILE + 1)
        if len(held) > MAX_FILE:
            raise ConfigError(f"{file}: {what} has at most {MAX_FILE} bytes")
        (size,) = struct.unpack("<Q", held[:8])
        if size > min(_MAX_HEADER, len(held) - 8):
            raise ConfigError(f"{file}: no {what}: its header is longer than the file")
        header = json.loads(held[8 : 8 + size])
        if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
            raise ValueError("its header is no object with metadata")
        bare = {name: told for name, told in header["__metadata__"].items() if name != _HASH}
        known = header["__metadata__"].get(_HASH)
        if known is not None and known != _hash_of({**header, "__metadata__": bare}, held[8 + size :]):
            raise ValueError("it is damaged: its content does not have the hash that it states")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, struct.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{file}: no {what}: {type(error).__name__}: {error}") from None
    return WeightFile(header, held[8 + size :], sha256(held).hexdigest()[:12])
