"""Shelves on disk: a folder of policy files by version, and `shelf.json`, which says which of them acts.

Invariants: `shelf.json` is replaced whole or not at all, by one process at a time (where the system has file locks); a
policy file is never changed, and its version, a hash of its bytes, is checked whenever it is read. Deliberately absent:
what may be changed (`shelf`), and watching for changes: whoever reads, reads what is there now.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from shikisha.errors import ConfigError
from shikisha.policy.file import loads, read_whole, version_of
from shikisha.policy.shelf import By, Shelf, Shelved

FILE = "shelf.json"
_SUFFIX = ".policy"
_LARGEST = 2**23  # bytes of what a shelf says: its history grows by some hundred a change


def read(folder: Path) -> Shelf:
    """Return what the shelf in this folder says now; ConfigError where there is none, or it is damaged."""
    path = folder / FILE
    try:
        stat = path.stat()
        return _parsed(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError as error:
        raise ConfigError(f"{path}: no shelf of policies: {error.strerror} (shikisha policy add makes one)") from None


def change(folder: Path, by: Callable[[Shelf], Shelf]) -> Shelf:
    """Change what the shelf in this folder says, and return that."""
    with _alone(folder):
        return _changed(folder, by)


def put(folder: Path, file: Path, by: By) -> tuple[str, Shelf]:
    """Put a policy file on the shelf, which is made if need be; return its version and what the shelf says then."""
    try:
        held = read_whole(file)
        loads(held, str(file))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    version = version_of(held)
    with _alone(folder):
        if not place(folder, version).exists():
            _replace(place(folder, version), held)
        return version, _changed(folder, lambda shelf: shelf.with_policy(Shelved(version=version, name=file.name), by))


def place(folder: Path, version: str) -> Path:
    """Return where the shelf keeps a version."""
    return folder / f"{version}{_SUFFIX}"


@lru_cache(maxsize=8)
def _parsed(path: Path, stamp: tuple[int, int, int]) -> Shelf:  # noqa: ARG001 - another stamp, another shelf
    try:
        with path.open("rb") as opened:
            held = opened.read(_LARGEST + 1)
        if len(held) > _LARGEST:
            raise ConfigError(f"{path}: more than {_LARGEST:,} bytes are no shelf's")
        return Shelf.model_validate_json(held)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from None


def _changed(folder: Path, by: Callable[[Shelf], Shelf]) -> Shelf:
    before = read(folder) if (folder / FILE).exists() else Shelf()
    after = by(before)
    if after != before:
        _replace(folder / FILE, f"{after.model_dump_json(indent=1)}\n".encode())
    return after


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system lets go of when the process ends."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{folder}: no shelf of policies: {error.strerror}") from None
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, held: bytes) -> None:
    """Write a file that is there whole or not at all, also after a crash."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            file.write(held)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
