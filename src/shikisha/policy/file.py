"""Policy files: one archive of arrays (npz) with one more member, `policy.json`, that says what they are.

Invariants: a file is data (nothing in it is ever executed; an array is one of little-endian floats, whose header is
read here and by no parser of expressions); the same policy makes the same bytes, so its version, a hash of them, names
it; a file of another format, or one that is damaged, is a ConfigError that says so; what it says of its own size is
checked before anything is unpacked, so reading one is bounded work. Deliberately absent: several versions of the format
(there is one).
"""

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from math import prod
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from shikisha.errors import ConfigError
from shikisha.policy.arrays import Floats
from shikisha.policy.cascade import Cascade
from shikisha.policy.habits import Habits
from shikisha.policy.hearing import Hearing
from shikisha.policy.induction import Induction
from shikisha.policy.parts import Held, Part
from shikisha.policy.policy import About, Known, Policy, Rung, Yardstick
from shikisha.policy.router import Router
from shikisha.policy.table import Table
from shikisha.policy.types import Types
from shikisha.policy.whole import flaws

FORMAT = 1
KINDS: Mapping[str, Callable[[Held], Part]] = {
    Table.kind: Table.of,
    Router.kind: Router.of,
    Cascade.kind: Cascade.of,
    Induction.kind: Induction.of,
}
_STAMP = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal policies are equal files
_HABITS, _HEARING = "habits/", "hearing/"
LARGEST = 2**26  # bytes of a file; those in use have some hundred thousand
_MOST, _MOST_SAID = 2**27, 2**23  # bytes that all of it, and what it says of itself, may come to once it is unpacked
_MOST_LISTED = 2**20  # bytes of the archive's directory: some ten thousand members
# the record that ends an archive, and how many bytes of a remark may stand behind it
_END, _END_LENGTH, _FARTHEST = b"PK\x05\x06", 22, 2**16
_ARRAY = re.compile(  # what `write_array` puts before floats in C order; a header's length, two bytes, may be any
    rb"\x93NUMPY\x01\x00..\{'descr': '<f([48])', 'fortran_order': False, 'shape': \(([0-9, ]{0,80})\), \} *\n",
    re.DOTALL,
)
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, IndexError, ValueError, EOFError, OSError)
_HOSTILE = (MemoryError, OverflowError, RuntimeError)  # texts nested without end, locked or odd archives


class _File(BaseModel):
    """What `policy.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    kept: str
    about: About
    workers: tuple[Known, ...]
    types: tuple[str, ...]
    forms: tuple[str, ...]
    form: str
    parts: tuple[str, ...]
    rungs: tuple[Rung, ...]
    yardsticks: tuple[Yardstick, ...] = ()


def dumps(policy: Policy) -> bytes:
    """Return a policy as the bytes of a file."""
    said = {
        "format": FORMAT,
        "kept": policy.kept,
        "about": asdict(policy.about),
        "workers": [asdict(worker) for worker in policy.workers],
        "types": policy.types.names,
        "forms": policy.types.forms,
        "form": policy.types.form,
        "parts": [part.kind for part in policy.parts],
        "rungs": [asdict(rung) for rung in policy.rungs],
        "yardsticks": [asdict(yardstick) for yardstick in policy.yardsticks],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _write(archive, "policy.json", json.dumps(said, ensure_ascii=False, indent=1).encode())
        if len(policy.types.centres):
            _write(archive, "centres.npy", _npy(policy.types.centres))
        for place, part in enumerate(policy.parts):
            for name, array in sorted(part.held().items()):
                _write(archive, f"{place}/{name}.npy", _npy(array))
        for name, array in sorted(policy.habits.held().items() if policy.habits else ()):
            _write(archive, f"{_HABITS}{name}.npy", _npy(array))
        for name, array in sorted(policy.hearing.held().items() if policy.hearing else ()):
            _write(archive, f"{_HEARING}{name}.npy", _npy(array))
    return buffer.getvalue()


def save(policy: Policy, path: Path) -> str:
    """Write a policy and return its version."""
    held = dumps(policy)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(held)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return version_of(held)


def version_of(held: bytes) -> str:
    """Return the version of a policy file's bytes."""
    return sha256(held).hexdigest()[:12]


def load(path: Path) -> tuple[Policy, str]:
    """Read a policy and its version; ConfigError when this is none."""
    try:
        held = read_whole(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return loads(held, str(path)), version_of(held)


def read_whole(path: Path) -> bytes:
    """Return a policy file's bytes; OSError where it cannot be read, ConfigError where it is larger than any policy."""
    with path.open("rb") as opened:
        held = opened.read(LARGEST + 1)
    if len(held) > LARGEST:
        raise ConfigError(f"{path}: not a policy file: more than {LARGEST:,} bytes")
    return held


def loads(held: bytes, where: str) -> Policy:
    """Return the policy of a file's bytes; ConfigError, naming `where`, when it is none."""
    try:
        _check_directory(held)
        with zipfile.ZipFile(io.BytesIO(held)) as archive:
            _check_size(archive)
            said = json.loads(archive.read("policy.json"))
            found = said.get("format") if isinstance(said, dict) else None
            if found != FORMAT:
                raise ConfigError(f"{where}: a policy file of format {found!r}; this version reads format {FORMAT}")
            file = _File.model_validate(said)
            arrays = {name.removesuffix(".npy"): _array(archive, name) for name in _arrays(archive)}
    except ConfigError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{where}: policy.json: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (*_DAMAGED, *_HOSTILE) as error:
        raise ConfigError(f"{where}: not a policy file: {error or type(error).__name__}") from None
    return _policy(file, arrays, where)


def _policy(file: _File, arrays: Mapping[str, Floats], where: str) -> Policy:
    parts = []
    for place, kind in enumerate(file.parts):
        if kind not in KINDS:
            raise ConfigError(f"{where}: a part of unknown kind {kind!r}: known are {', '.join(KINDS)}")
        try:
            parts.append(KINDS[kind](_below(f"{place}/", arrays)))
        except KeyError as missing:
            raise ConfigError(f"{where}: part {place} ({kind}) lacks the array {missing}") from None
        except (ValueError, IndexError, TypeError) as error:
            raise ConfigError(f"{where}: part {place} ({kind}): {error}") from None
    centres = {"centres": arrays["centres"]} if "centres" in arrays else {}
    types = Types(file.types, file.forms, file.form, **centres)
    made = Policy(file.about, file.workers, types, tuple(parts), file.rungs, file.kept, file.yardsticks)
    counted, heard = _below(_HABITS, arrays), _below(_HEARING, arrays)
    try:
        habits = Habits.of(counted) if counted else None
        whole = replace(made, habits=habits, hearing=Hearing.of(heard) if heard else None)
    except KeyError as missing:
        raise ConfigError(f"{where}: its habits or its hearing lack the array {missing}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: its habits or its hearing: {error}") from None
    for flaw in flaws(whole):
        raise ConfigError(f"{where}: {flaw}")
    return whole


def _below(prefix: str, arrays: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _arrays(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name.endswith(".npy")]


def _check_directory(held: bytes) -> None:
    """Refuse an archive whose directory is long: it is read whole before anything can be asked of it."""
    tail = held[-_END_LENGTH - _FARTHEST :]
    for place in (len(tail) - _END_LENGTH, tail.rfind(_END)):
        record = tail[max(0, place) : max(0, place) + _END_LENGTH]
        if record.startswith(_END) and len(record) == _END_LENGTH:
            (size,) = struct.unpack_from("<I", record, 12)
            if size > _MOST_LISTED:
                raise ValueError(f"a directory of {size:,} bytes, and {_MOST_LISTED:,} are the most")


def _check_size(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if size > _MOST:
        raise ValueError(f"unpacked it would have {size:,} bytes, and {_MOST:,} are the most")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two of its members have one name")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise ValueError("a member that is packed in another way than ours")
    if (said := archive.getinfo("policy.json").file_size) > _MOST_SAID:
        raise ValueError(f"policy.json has {said:,} bytes, and {_MOST_SAID:,} are the most")


def _array(archive: zipfile.ZipFile, name: str) -> Floats:
    held = archive.read(name)
    told = _ARRAY.match(held)
    if told is None:
        raise ValueError(f"{name}: not an array of floats as we write them")
    shape = tuple(int(size) for size in told[2].decode().replace(",", " ").split())
    wide = int(told[1])
    if len(held) - told.end() != wide * prod(shape):
        raise ValueError(f"{name}: {len(held) - told.end():,} bytes are no array of the shape {shape}")
    array = np.frombuffer(held, f"<f{wide}", offset=told.end()).reshape(shape).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: not all in it are numbers")
    return array


def _npy(array: Floats) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array, np.float32), allow_pickle=False)
    return buffer.getvalue()


def _write(archive: zipfile.ZipFile, name: str, held: bytes) -> None:
    member = zipfile.ZipInfo(name, _STAMP)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, held)
