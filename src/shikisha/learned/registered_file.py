"""Learned files in a policy registry: which version acts for a task, with the live one, a canary, and rollback.

Invariant: a registered file never changes, so it is read once; the registry is read at every decision, so a promotion
holds from the next run on; its hash and its own version are checked on reading.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.learned.learned_file import LearnedFile, parse_learned
from shikisha.routing.policy_file import parse_policy, policy_version, read_policy_bytes
from shikisha.routing.policy_registry import policy_path, read_registry


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """A learned file, and its version in the registry, which is a hash of its bytes."""

    version: str
    learned: LearnedFile


def check_registrable(data: bytes, name: str) -> None:
    """Raise ConfigError unless these bytes are a routing policy or a learned file."""
    if data.lstrip()[:1] == b"{":
        parse_learned(data, name)
    else:
        parse_policy(data, name)


def registered_file(folder: Path, content_hash: str, kind: str, began: str = "") -> RegisteredFile:
    """Return the learned file that acts for the task of this content.

    `began` is the version that began the run: it is kept as long as it is registered. ConfigError for another kind.
    """
    registry = read_registry(folder)
    version = began if began and registry.contains(began) else registry.assign(content_hash)
    return _read(policy_path(folder, version), version, kind)


@lru_cache(maxsize=8)
def _read(path: Path, version: str, kind: str) -> RegisteredFile:
    try:
        data = read_policy_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if policy_version(data) != version:
        raise ConfigError(f"{path}: its content is not that of version {version}: it was changed")
    return RegisteredFile(version, parse_learned(data, str(path), kind))
