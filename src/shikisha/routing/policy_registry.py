"""A shelf of policies: which version acts, which are tried, and who changed that, when and why.

The live policy acts; the canary, if there is one, acts for its share of the tasks, drawn by their content; shadows
decide beside whoever acts. Invariants: a shelf is frozen, and a change of it is another shelf with one more entry in
its history; once there is a policy one is live, and the canary is another. Deliberately absent: taking policies off a
shelf (runs that they began may go on), files (`shelf_file`), and any opinion on which should act (`learn.trial`).

Shelves on disk: a folder of policy files by version, and `shelf.json`, which says which of them acts.

Invariants: `shelf.json` is replaced whole or not at all, by one process at a time (where the system has file locks); a
policy file is never changed, and its version, a hash of its bytes, is checked whenever it is read. Deliberately absent:
what may be changed (`shelf`), and watching for changes: whoever reads, reads what is there now.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.routing.policy_file import parse_policy, policy_version, read_policy_bytes

_MIN_PREFIX = 4  # characters by which a version may be named


class RegistryAction(StrEnum):
    """What was done with a policy."""

    ADDED = "added"  # it was put on the shelf
    SHADOWED = "shadowed"  # it decides beside the live one
    UNSHADOWED = "unshadowed"  # it does so no more
    TRIED = "tried"  # it became the canary, or got another share
    STOPPED = "stopped"  # it is no canary any more
    PROMOTED = "promoted"  # it became the live one
    RESTORED = "restored"  # it became the live one again: the one after it was rolled back


_TRAFFIC_ACTIONS = frozenset(
    {RegistryAction.TRIED, RegistryAction.STOPPED, RegistryAction.PROMOTED, RegistryAction.RESTORED}
)  # who acts for which tasks changed


class _RegistryRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ChangeAuthor(_RegistryRecord):
    """Who changes a shelf, when (Unix time), and why."""

    who: str
    at: float
    why: str = ""


class RegistryEntry(_RegistryRecord):
    """A change: by whom, what, with which policy. `share` is a canary's; `forced`: against what the trial said."""

    by: ChangeAuthor
    deed: RegistryAction
    version: str
    share: float | None = None
    forced: bool = False


class Canary(_RegistryRecord):
    """The policy that acts for a share of the tasks."""

    version: str
    share: float = Field(gt=0, lt=1)


class RegisteredPolicy(_RegistryRecord):
    """A policy on the shelf, and the name of the file that it came from."""

    version: str = Field(pattern=r"^[0-9a-f]{12}$")
    name: str


class PolicyRegistry(_RegistryRecord):
    """What `shelf.json` says. `live` is empty before anything was put on the shelf."""

    format: Literal[1] = 1
    live: str = ""
    canary: Canary | None = None
    shadows: tuple[str, ...] = ()
    policies: tuple[RegisteredPolicy, ...] = ()
    history: tuple[RegistryEntry, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        canary = [self.canary.version] if self.canary else []
        for version in filter(None, [self.live, *canary, *self.shadows]):
            if not self.contains(version):
                raise ValueError(f"{version} acts and is not among the policies")
        if self.policies and not self.live:
            raise ValueError("no policy is live")
        if len({self.live, *canary}) != 1 + len(canary):
            raise ValueError("the canary is the live policy")
        return self

    def contains(self, version: str) -> bool:
        """Whether this version is on the shelf."""
        return any(policy.version == version for policy in self.policies)

    def resolve(self, name: str) -> str:
        """Return the version of this name, beginning or file name; UnknownName where none fits, or several do."""
        fitting = [
            policy.version
            for policy in self.policies
            if policy.name == name or (len(name) >= _MIN_PREFIX and policy.version.startswith(name))
        ]
        if len(fitting) != 1:
            raise UnknownName("policy on the shelf", name, [policy.version for policy in self.policies])
        return fitting[0]

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of the tasks for which each policy acts."""
        if self.canary is None:
            return {self.live: 1.0}
        return {self.live: 1 - self.canary.share, self.canary.version: self.canary.share}

    def assign(self, content_hash: str) -> str:
        """Return which policy acts for the task of this content: always the same while the shares are."""
        if self.canary is not None and _canary_draw(self.canary.version, content_hash) < self.canary.share:
            return self.canary.version
        return self.live

    @property
    def since(self) -> float:
        """Since when the shares are what they are."""
        return max((entry.by.at for entry in self.history if entry.deed in _TRAFFIC_ACTIONS), default=0.0)

    @property
    def previous(self) -> str:
        """The version that was live before the present one; empty where there was none."""
        lives: list[str] = []
        for entry in self.history:
            if entry.deed is RegistryAction.PROMOTED:
                lives.append(entry.version)
            elif entry.deed is RegistryAction.RESTORED and lives:
                lives.pop()
        return lives[-2] if len(lives) > 1 else ""

    def with_policy(self, policy: RegisteredPolicy, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the shelf with one policy more; the first is live at once."""
        if self.contains(policy.version):
            return self
        added = RegistryEntry(by=by, deed=RegistryAction.ADDED, version=policy.version)
        grown = self._after(added, policies=(*self.policies, policy))
        first = ChangeAuthor(who=by.who, at=by.at, why="the first on the shelf")
        return grown if self.live else grown.with_live(policy.version, first)

    def with_shadow(self, version: str, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the shelf with this policy among the shadows."""
        if version in self.shares:
            raise ConfigError(f"{version} acts already: a shadow is a policy that does not")
        if version in self.shadows:
            return self
        return self._after(
            RegistryEntry(by=by, deed=RegistryAction.SHADOWED, version=version), shadows=(*self.shadows, version)
        )

    def without_shadow(self, version: str, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the shelf with this policy not among the shadows."""
        if version not in self.shadows:
            raise ConfigError(f"{version} is no shadow")
        return self._after(
            RegistryEntry(by=by, deed=RegistryAction.UNSHADOWED, version=version), shadows=self._shadows_but(version)
        )

    def with_canary(self, version: str, share: float, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the shelf with this policy as its canary."""
        if version == self.live:
            raise ConfigError(f"{version} is live: a canary is another policy")
        if not 0 < share < 1:
            raise ConfigError(f"a canary's share of the tasks is between 0 and 1, not {share:g}")
        canary = Canary(version=version, share=share)
        if canary == self.canary:
            return self
        tried = RegistryEntry(by=by, deed=RegistryAction.TRIED, version=version, share=share)
        return self._after(tried, canary=canary, shadows=self._shadows_but(version))

    def without_canary(self, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the shelf without a canary."""
        if self.canary is None:
            raise ConfigError("there is no canary")
        return self._after(RegistryEntry(by=by, deed=RegistryAction.STOPPED, version=self.canary.version), canary=None)

    def with_live(self, version: str, by: ChangeAuthor, *, forced: bool = False) -> "PolicyRegistry":
        """Return the shelf with this policy live; `forced`: whatever the trial said."""
        if version == self.live:
            raise ConfigError(f"{version} is live already")
        return self._live(RegistryEntry(by=by, deed=RegistryAction.PROMOTED, version=version, forced=forced))

    def with_rollback(self, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the shelf with the policy live that was so before the present one."""
        if not self.previous:
            raise ConfigError(f"{self.live} is the first that was live: there is nothing to go back to")
        return self._live(RegistryEntry(by=by, deed=RegistryAction.RESTORED, version=self.previous))

    def _live(self, entry: RegistryEntry) -> "PolicyRegistry":
        version = entry.version
        stays = self.canary if self.canary is not None and self.canary.version != version else None
        return self._after(entry, live=version, canary=stays, shadows=self._shadows_but(version))

    def _shadows_but(self, version: str) -> tuple[str, ...]:
        return tuple(shadow for shadow in self.shadows if shadow != version)

    def _after(self, entry: RegistryEntry, **after: object) -> "PolicyRegistry":
        changed = self.model_copy(update={**after, "history": (*self.history, entry)})
        if not changed.contains(entry.version):
            raise UnknownName("policy on the shelf", entry.version, [policy.version for policy in self.policies])
        return changed


def _canary_draw(salt: str, content_hash: str) -> float:
    """Return a task's place in [0, 1), the same everywhere and always, and another one for each canary."""
    return int.from_bytes(sha256(f"canary\0{salt}\0{content_hash}".encode()).digest()[:6]) / 2**48


REGISTRY_FILE = "shelf.json"
_SUFFIX = ".policy"
_MAX_REGISTRY_BYTES = 2**23  # bytes of what a shelf says: its history grows by some hundred a change


def read_registry(folder: Path) -> PolicyRegistry:
    """Return what the shelf in this folder says now; ConfigError where there is none, or it is damaged."""
    path = folder / REGISTRY_FILE
    try:
        stat = path.stat()
        return _parse_registry(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError as error:
        raise ConfigError(f"{path}: no shelf of policies: {error.strerror} (shikisha policy add makes one)") from None


def update_registry(folder: Path, by: Callable[[PolicyRegistry], PolicyRegistry]) -> PolicyRegistry:
    """Change what the shelf in this folder says, and return that."""
    with _locked_folder(folder):
        return _apply_change(folder, by)


def add_policy(folder: Path, file: Path, by: ChangeAuthor) -> tuple[str, PolicyRegistry]:
    """Put a policy file on the shelf, which is made if need be; return its version and what the shelf says then."""
    try:
        held = read_policy_bytes(file)
        parse_policy(held, str(file))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    version = policy_version(held)
    with _locked_folder(folder):
        if not policy_path(folder, version).exists():
            _write_atomically(policy_path(folder, version), held)
        return version, _apply_change(
            folder, lambda shelf: shelf.with_policy(RegisteredPolicy(version=version, name=file.name), by)
        )


def policy_path(folder: Path, version: str) -> Path:
    """Return where the shelf keeps a version."""
    return folder / f"{version}{_SUFFIX}"


@lru_cache(maxsize=8)
def _parse_registry(path: Path, stamp: tuple[int, int, int]) -> PolicyRegistry:  # noqa: ARG001 - another stamp, another shelf
    try:
        with path.open("rb") as opened:
            held = opened.read(_MAX_REGISTRY_BYTES + 1)
        if len(held) > _MAX_REGISTRY_BYTES:
            raise ConfigError(f"{path}: more than {_MAX_REGISTRY_BYTES:,} bytes are no shelf's")
        return PolicyRegistry.model_validate_json(held)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from None


def _apply_change(folder: Path, by: Callable[[PolicyRegistry], PolicyRegistry]) -> PolicyRegistry:
    before = read_registry(folder) if (folder / REGISTRY_FILE).exists() else PolicyRegistry()
    after = by(before)
    if after != before:
        _write_atomically(folder / REGISTRY_FILE, f"{after.model_dump_json(indent=1)}\n".encode())
    return after


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
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


def _write_atomically(path: Path, held: bytes) -> None:
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
