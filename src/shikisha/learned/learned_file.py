"""The one form of a learned file: what was learned, from which runs, and a hash over all of it.

Invariants: a file is JSON and holds no code; its version is the hash of its content, and a file that was edited by hand
is refused; reading takes bounded work; a file is written completely or not at all. `evidence` names the runs that it
comes from, so that it can be made again, or dropped, when these are erased; `scope` says whose data it is made of and
with which labels, and it is used only for tasks of that tenant that bear all of them.
"""

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import asdict, dataclass, field
from shikisha.core.messages import Json
from shikisha.core.task import Scope, read_scope, scope_as_json
from shikisha.journal import make_private

if TYPE_CHECKING:
    from shikisha.routing.arrays import Floats

MAX_LEARNED_BYTES = 2**26
_FORMAT = 2
_SHOWN = 12  # characters of a version


@dataclass(frozen=True, slots=True)
class LearnedFile:
    """Content of one kind, and where it comes from. `made` is a Unix time and no part of the version."""

    kind: str
    content: Mapping[str, Json]
    evidence: tuple[str, ...]
    scope: Scope
    made: float = field(default=0.0, compare=False)

    @property
    def version(self) -> str:
        """The hash of all but the time."""
        return _hash_of(self.as_json())

    @property
    def short_version(self) -> str:
        """The version as people see it."""
        return self.version[:_SHOWN]

    def as_json(self) -> dict[str, object]:
        """Return its fields."""
        return {**asdict(self), "scope": scope_as_json(self.scope), "gain": None}  # earlier versions read a gain


def _hash_of(body: Mapping[str, object]) -> str:
    return sha256(json.dumps({**body, "made": 0.0}, sort_keys=True).encode()).hexdigest()


def write_learned(file: Path, learned: LearnedFile) -> str:
    """Write a learned file; return its version. ConfigError where it cannot be written."""
    body = {"format": f"shikisha-{learned.kind}/{_FORMAT}", "version": learned.version, **learned.as_json()}
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        make_private(part).write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", "utf-8")
        part.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror or error}") from None
    return learned.version


def read_learned(file: Path, kind: str = "") -> LearnedFile:
    """Read a learned file of this kind (any, if empty); ConfigError where there is none, or it was changed."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_LEARNED_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    return parse_learned(data, str(file), kind)


def parse_learned(data: bytes, name: str, kind: str = "") -> LearnedFile:
    """Return the learned file in these bytes; ConfigError where they are none, or were changed."""
    if len(data) > MAX_LEARNED_BYTES:
        raise ConfigError(f"{name}: a learned file has at most {MAX_LEARNED_BYTES:,} bytes")
    try:
        body = json.loads(data)
        version, form = body["version"], body["format"]
        if form == f"shikisha-{body['kind']}/1":
            raise ConfigError(f"{name}: an earlier version wrote it, which kept no tenant of its runs: learn it again")
        found = LearnedFile(
            _text(body["kind"]),
            _mapping(body["content"]),
            _texts(body["evidence"]),
            read_scope(body["scope"]),
            _number(body["made"]),
        )
        same = version == _hash_of({key: value for key, value in body.items() if key not in ("format", "version")})
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ConfigError(f"{name}: no learned file: {type(error).__name__}: {error}") from None
    if form != f"shikisha-{found.kind}/{_FORMAT}" or (kind and found.kind != kind):
        raise ConfigError(f"{name}: expected the format shikisha-{kind or found.kind}/{_FORMAT}, found {form!r}")
    if not same:
        raise ConfigError(f"{name}: its content is not that of version {str(version)[:_SHOWN]}: it was changed by hand")
    return found


def _mapping(value: object) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r:.40}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of texts, found {value!r:.40}")
    return tuple(_text(one) for one in value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"expected a number, found {value!r:.40}")
    return value


def encode_array(values: "Floats") -> Mapping[str, Json]:
    """Return an array as JSON: its shape, and its numbers as 32-bit floats in base64."""
    import numpy as np  # of an extra, which texts do without

    flat = np.ascontiguousarray(values, dtype="<f4")
    return {"shape": list(flat.shape), "data": b64encode(flat.tobytes()).decode("ascii")}


def decode_array(given: object, shape: Sequence[int | None]) -> "Floats":
    """Return an array of this shape (None: any length); ValueError where it is another, or not all numbers."""
    import numpy as np

    body = _mapping(given)
    sizes = body["shape"]
    if not isinstance(sizes, list) or len(sizes) != len(shape):
        raise ValueError(f"expected an array of {len(shape)} dimensions")
    found = [int(_number(size)) for size in sizes]
    if any(size < 0 or (wanted is not None and size != wanted) for size, wanted in zip(found, shape, strict=True)):
        raise ValueError(f"expected an array of shape {tuple(shape)}, found {tuple(found)}")
    data = b64decode(_text(body["data"]), validate=True)
    if len(data) != 4 * prod(found):
        raise ValueError("an array's bytes do not fit its shape")
    values = np.frombuffer(data, dtype="<f4").astype(np.float64).reshape(found)
    if not np.isfinite(values).all():
        raise ValueError("an array holds what is no number")
    return values
