"""The policy registry: which policy version is live, which are on trial, and who changed that, when and why.

The live policy acts; the canary acts for its share of the tasks, drawn by their content; shadows decide next to the
policy that acts, without effect. A registry is a folder of policy files by version and `shelf.json`. Invariants: a
registry is frozen, and a change creates a new one with one more history entry; as soon as there is a policy, one is
live, and the canary is another; `shelf.json` is replaced atomically, by one process at a time where the system has file
locks; a policy file never changes, and its version is checked on every read. Policies are never removed, since runs
that they began may continue.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.toml import Table, first_invalid
from shikisha.routing.policy_file import parse_policy, policy_version, read_policy_bytes

# Shortest prefix that may name a version.
_MIN_PREFIX = 4
REGISTRY_FILE = "shelf.json"
_SUFFIX = ".policy"
# Its history grows by a few hundred bytes per change.
_MAX_REGISTRY_BYTES = 2**23


class RegistryAction(StrEnum):
    """What was done with a policy."""

    ADDED = "added"  # it was added to the registry
    SHADOWED = "shadowed"  # it became a shadow of the live policy
    UNSHADOWED = "unshadowed"  # it is no longer a shadow
    TRIED = "tried"  # it became the canary, or its share changed
    STOPPED = "stopped"  # it is no longer the canary
    PROMOTED = "promoted"  # it became live
    RESTORED = "restored"  # it became live again by a rollback


_TRAFFIC_ACTIONS = frozenset(
    {RegistryAction.TRIED, RegistryAction.STOPPED, RegistryAction.PROMOTED, RegistryAction.RESTORED}
    # Actions that change which policy acts for which tasks.
)


class ChangeAuthor(Table):
    """Who changes the registry, when (Unix time), and why."""

    who: str
    at: float
    why: str = ""


class RegistryEntry(Table):
    """A change: by whom, what, of which policy. `share` is a canary's; `forced`: against the trial's verdict."""

    by: ChangeAuthor
    deed: RegistryAction
    version: str
    share: float | None = None
    forced: bool = False


class Canary(Table):
    """The policy that acts for a share of the tasks."""

    version: str
    share: float = Field(gt=0, lt=1)


class RegisteredPolicy(Table):
    """A policy in the registry, and the name of its original file."""

    version: str = Field(pattern=r"^[0-9a-f]{12}$")
    name: str


class PolicyRegistry(Table):
    """The content of `shelf.json`. `live` is empty before the first policy is added."""

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
        """Return whether this version is registered."""
        return any(policy.version == version for policy in self.policies)

    def resolve(self, name: str) -> str:
        """Return the version of this name, prefix or file name; UnknownName where none or several match."""
        fitting = [
            policy.version
            for policy in self.policies
            if policy.name == name or (len(name) >= _MIN_PREFIX and policy.version.startswith(name))
        ]
        if len(fitting) != 1:
            raise UnknownName("registered policy", name, [policy.version for policy in self.policies])
        return fitting[0]

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of the tasks for which each policy acts."""
        if self.canary is None:
            return {self.live: 1.0}
        return {self.live: 1 - self.canary.share, self.canary.version: self.canary.share}

    def assign(self, content_hash: str) -> str:
        """Return which policy acts for the task of this content: constant while the shares are."""
        if self.canary is not None and _canary_draw(self.canary.version, content_hash) < self.canary.share:
            return self.canary.version
        return self.live

    @property
    def since(self) -> float:
        """The time of the last change of shares."""
        return max((entry.by.at for entry in self.history if entry.deed in _TRAFFIC_ACTIONS), default=0.0)

    @property
    def previous(self) -> str:
        """The version that was live before the present one; empty if there was none."""
        lives: list[str] = []
        for entry in self.history:
            if entry.deed is RegistryAction.PROMOTED:
                lives.append(entry.version)
            elif entry.deed is RegistryAction.RESTORED and lives:
                lives.pop()
        return lives[-2] if len(lives) > 1 else ""

    def with_policy(self, policy: RegisteredPolicy, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the registry with one more policy; the first one becomes live."""
        if self.contains(policy.version):
            return self
        added = RegistryEntry(by=by, deed=RegistryAction.ADDED, version=policy.version)
        grown = self._after(added, policies=(*self.policies, policy))
        first = ChangeAuthor(who=by.who, at=by.at, why="the first policy")
        return grown if self.live else grown.with_live(policy.version, first)

    def with_shadow(self, version: str, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the registry with this policy among the shadows."""
        if version in self.shares:
            raise ConfigError(f"{version} already acts: a shadow is a policy that does not")
        if version in self.shadows:
            return self
        return self._after(
            RegistryEntry(by=by, deed=RegistryAction.SHADOWED, version=version), shadows=(*self.shadows, version)
        )

    def without_shadow(self, version: str, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the registry with this policy not among the shadows."""
        if version not in self.shadows:
            raise ConfigError(f"{version} is not a shadow")
        return self._after(
            RegistryEntry(by=by, deed=RegistryAction.UNSHADOWED, version=version), shadows=self._shadows_but(version)
        )

    def with_canary(self, version: str, share: float, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the registry with this policy as its canary."""
        if version == self.live:
            raise ConfigError(f"{version} is live: the canary must be another policy")
        if not 0 < share < 1:
            raise ConfigError(f"a canary's share of the tasks is between 0 and 1, not {share:g}")
        canary = Canary(version=version, share=share)
        if canary == self.canary:
            return self
        tried = RegistryEntry(by=by, deed=RegistryAction.TRIED, version=version, share=share)
        return self._after(tried, canary=canary, shadows=self._shadows_but(version))

    def without_canary(self, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the registry without a canary."""
        if self.canary is None:
            raise ConfigError("there is no canary")
        return self._after(RegistryEntry(by=by, deed=RegistryAction.STOPPED, version=self.canary.version), canary=None)

    def with_live(self, version: str, by: ChangeAuthor, *, forced: bool = False) -> "PolicyRegistry":
        """Return the registry with this policy live; `forced`: against the trial's verdict."""
        if version == self.live:
            raise ConfigError(f"{version} is already live")
        return self._live(RegistryEntry(by=by, deed=RegistryAction.PROMOTED, version=version, forced=forced))

    def with_rollback(self, by: ChangeAuthor) -> "PolicyRegistry":
        """Return the registry with the previously live policy live again."""
        if not self.previous:
            raise ConfigError(f"{self.live} was the first live policy: there is nothing to roll back to")
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
            raise UnknownName("registered policy", entry.version, [policy.version for policy in self.policies])
        return changed


def _canary_draw(canary: str, content_hash: str) -> float:
    """Return a task's position in [0, 1): deterministic, and different for each canary."""
    return int.from_bytes(sha256(f"canary\0{canary}\0{content_hash}".encode()).digest()[:6]) / 2**48


def read_registry(folder: Path) -> PolicyRegistry:
    """Return the registry of this folder; ConfigError where there is none, or it is damaged."""
    path = folder / REGISTRY_FILE
    try:
        stat = path.stat()
        return _parse_registry(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError as error:
        raise ConfigError(
            f"{path}: no policy registry: {error.strerror} (`shikisha policy canary SHELF FILE` creates one)"
        ) from None


def update_registry(folder: Path, by: Callable[[PolicyRegistry], PolicyRegistry]) -> PolicyRegistry:
    """Change the registry of this folder, and return the new one."""
    with _locked_folder(folder):
        return _apply_change(folder, by)


def add_policy(
    folder: Path,
    file: Path,
    by: ChangeAuthor,
    then: Callable[[PolicyRegistry, str], PolicyRegistry] = lambda held, _: held,
) -> tuple[str, PolicyRegistry]:
    """Add a policy file to the registry, creating it if needed; return its version and the new registry.

    `then` changes the registry with the new version in the same step: where it raises, the policy is not in it either.
    """
    try:
        data = read_policy_bytes(file)
        parse_policy(data, str(file))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    version = policy_version(data)
    with _locked_folder(folder):
        if not policy_path(folder, version).exists():
            _write_atomically(policy_path(folder, version), data)
        return version, _apply_change(
            folder,
            lambda shelf: then(shelf.with_policy(RegisteredPolicy(version=version, name=file.name), by), version),
        )


def policy_path(folder: Path, version: str) -> Path:
    """Return the path of a version."""
    return folder / f"{version}{_SUFFIX}"


@lru_cache(maxsize=8)
def _parse_registry(path: Path, stamp: tuple[int, int, int]) -> PolicyRegistry:  # noqa: ARG001 - another stamp, another shelf
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_REGISTRY_BYTES + 1)
        if len(data) > _MAX_REGISTRY_BYTES:
            raise ConfigError(f"{path}: more than {_MAX_REGISTRY_BYTES:,} bytes: not a policy registry")
        return PolicyRegistry.model_validate_json(data)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_invalid(error)}") from None


def _apply_change(folder: Path, by: Callable[[PolicyRegistry], PolicyRegistry]) -> PolicyRegistry:
    before = read_registry(folder) if (folder / REGISTRY_FILE).exists() else PolicyRegistry()
    after = by(before)
    if after != before:
        _write_atomically(folder / REGISTRY_FILE, f"{after.model_dump_json(indent=1)}\n".encode())
    return after


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system releases it when the process ends."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{folder}: no policy registry: {error.strerror}") from None
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
