"""The lock file of a catalogue: its tools as they were when somebody pinned them, each with its hash, and one for all.

A lock file is JSON lines: a header, then one tool a line, in the order of names, so that a review shows what changed.
Invariants: what is not in the lock is never offered and never called; a line that no longer fits its hash, a missing
line or a second one is refused with its name, before any call; reading takes bounded work. A lock says nothing of who
wrote it: keep it in version control, or its hash in `shikisha.toml`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from shikisha.core.budget import FREE, Price
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.toml import first_invalid
from shikisha.core.tools import Tool, ToolEffect
from shikisha.tools.catalogue_entry import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_TOOLS,
    CatalogueEntry,
    OperationCall,
    OperationParameter,
    catalogue_pin,
)
from shikisha.workers.endpoint import origin

M = TypeVar("M", bound=BaseModel)

FORMAT = 1
_MAX_BYTES = 2**30
_MAX_LINE = 2**22
_SHA256 = "^[0-9a-f]{64}$"


class _LockHeader(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1]
    catalogue: str
    source: str
    tools: Annotated[int, Field(ge=0, le=MAX_TOOLS)]
    sha256: Annotated[str, Field(pattern=_SHA256)]
    server: str | None = None


class _LockParameter(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    argument: str
    wire: str
    place: Literal["path", "query", "header"]
    style: str = ""
    explode: bool = True


class _LockCall(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    method: Literal["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"]
    path: str
    base_url: str = ""
    parameters: list[_LockParameter] = []
    body: str = ""
    media: Literal["", "json", "form"] = ""


class _LockLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    sha256: Annotated[str, Field(pattern=_SHA256)]
    effect: Literal["read", "write", "unknown"]
    idempotent: bool = False
    group: str = ""
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARACTERS)] = ""
    parameters: dict[str, JsonValue]
    call: _LockCall | None = None
    wire: str = ""


@dataclass(frozen=True)
class CatalogueLock:
    """A pinned catalogue: what it was read from, its tools, and the one hash over them.

    `server`: the URL that the configuration named for calls, empty for none; None in a lock that does not say.
    """

    catalogue: str
    source: str
    entries: tuple[CatalogueEntry, ...]
    server: str | None = None

    @cached_property
    def pin(self) -> str:
        """The hash over all tools."""
        return catalogue_pin(self.entries)


@dataclass(frozen=True, slots=True)
class CatalogueDifference:
    """How a source differs from what was pinned, by names; `changed` has what changed of each, `moved` of servers."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, str]
    moved: str = ""

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed or self.moved)


def dump_lock(lock: CatalogueLock) -> Iterator[str]:
    """Yield the lines of a lock file."""
    header = {
        "format": FORMAT,
        "catalogue": lock.catalogue,
        "source": lock.source,
        "tools": len(lock.entries),
        "sha256": lock.pin,
        **({} if lock.server is None else {"server": lock.server}),
    }
    yield json.dumps(header, ensure_ascii=False)
    for entry in sorted(lock.entries, key=lambda each: each.tool.name):
        tool = entry.tool
        line: dict[str, object] = {"name": tool.name, "sha256": entry.pin, "effect": str(tool.effect)}
        line |= {"idempotent": True} if tool.idempotent else {}
        line |= {"group": entry.group} if entry.group else {}
        line |= {"description": tool.description, "parameters": tool.schema}
        line |= {"call": entry.call.to_json()} if entry.call is not None else {}
        line |= {"wire": entry.wire} if entry.wire else {}
        yield json.dumps(line, ensure_ascii=False)


def write_lock(lock: CatalogueLock, path: Path) -> None:
    """Write a lock file, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in dump_lock(lock))
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: the lock cannot be written: {error.strerror}") from None


def read_lock(
    path: Path, catalogue: str, sha256: str = "", labels: Sequence[str] = (), price: Price | None = FREE
) -> CatalogueLock:
    """Read a lock file and check every hash; ConfigError names the tool that does not fit.

    `sha256`, where given, is the hash that the whole must have. `labels` and `price` are those of every call.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"catalogue {catalogue}: {path}: more than {_MAX_BYTES:,} bytes")
        with path.open(encoding="utf-8") as file:
            header = _read_line(_LockHeader, file.readline(_MAX_LINE), f"catalogue {catalogue}: {path}: line 1")
            if header.catalogue != catalogue:
                raise ConfigError(f"catalogue {catalogue}: {path} is the lock of {header.catalogue!r}")
            entries: dict[str, CatalogueEntry] = {}
            number = 1
            while line := file.readline(_MAX_LINE):
                number += 1
                where = f"catalogue {catalogue}: {path}: line {number}"
                entry = _entry(_read_line(_LockLine, line, where), catalogue, labels, price, where)
                if entry.tool.name in entries or len(entries) >= header.tools:
                    raise ConfigError(f"{where}: tool {entry.tool.name}: one more than was pinned")
                entries[entry.tool.name] = entry
    except FileNotFoundError:
        pin = f"run `shikisha tools pin {catalogue}`, and look at what it lists"
        raise ConfigError(f"catalogue {catalogue} is not pinned: {path} does not exist; {pin}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"catalogue {catalogue}: {path}: cannot be read: {error}") from None
    lock = CatalogueLock(catalogue, header.source, tuple(entries.values()), header.server)
    if len(entries) < header.tools or lock.pin != header.sha256:
        found = f"{len(entries)} tools with the hash {lock.pin}"
        raise ConfigError(
            f"catalogue {catalogue}: {path}: expected {header.tools} tools with the hash {header.sha256}, found {found}"
        )
    if sha256 and lock.pin != sha256:
        raise ConfigError(f"catalogue {catalogue}: {path}: expected the hash {sha256}, found {lock.pin}")
    return lock


def _read_line(model: type[M], line: str, where: str) -> M:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        raise ConfigError(f"{where}: not a line of a lock: {first_invalid(error, 'the line')}") from None


def _entry(line: _LockLine, catalogue: str, labels: Sequence[str], price: Price | None, where: str) -> CatalogueEntry:
    effect = ToolEffect(line.effect)
    tool = Tool(
        line.name,
        line.description,
        line.parameters,
        catalogue,
        tuple(labels),
        price,
        effect,
        idempotent=line.idempotent,
    )
    call = None
    if line.call is not None:
        parameters = tuple(  # by name: a model's own dict() takes half of what reading a lock does
            OperationParameter(each.argument, each.wire, each.place, each.style, each.explode)
            for each in line.call.parameters
        )
        call = OperationCall(
            line.call.method, line.call.path, line.call.base_url, parameters, line.call.body, line.call.media
        )
    entry = CatalogueEntry(tool, line.group, call, line.wire)
    if entry.pin != line.sha256:
        raise ConfigError(
            f"{where}: tool {line.name} is not what was pinned: expected {line.sha256}, found {entry.pin}"
        )
    return entry


def compare_catalogues(
    pinned: Sequence[CatalogueEntry], found: Sequence[CatalogueEntry], named: Sequence[str] = ("", "")
) -> CatalogueDifference:
    """Return how what a source holds now differs from what was pinned.

    `named` are the URLs that the configuration named for calls, then and now.
    """
    before = {each.tool.name: each for each in pinned}
    after = {each.tool.name: each for each in found}
    changed = {
        name: _what_changed(before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name].pin != after[name].pin
    }
    then, now = (
        ", ".join(sorted({origin(url) for url in (own, *(each.call.base_url for each in all_ if each.call))} - {""}))
        for own, all_ in zip(named, (pinned, found), strict=True)
    )
    added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    moved = f"{then} → {now or 'none'}" if then and then != now else ""
    return CatalogueDifference(tuple(added), tuple(removed), changed, moved)


def _what_changed(before: CatalogueEntry, after: CatalogueEntry) -> str:
    old, new = before.tool, after.tool
    parts = {
        "description": old.description != new.description,
        "schema": old.schema != new.schema,
        "effect": (old.effect, old.idempotent) != (new.effect, new.idempotent),
        "call": (before.call, before.wire) != (after.call, after.wire),
    }
    return ", ".join(name for name, differs in parts.items() if differs)
