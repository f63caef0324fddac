"""A shelf of policies: which version acts, which are tried, and who changed that, when and why.

The live policy acts; the canary, if there is one, acts for its share of the tasks, drawn by their content; shadows
decide beside whoever acts. Invariants: a shelf is frozen, and a change of it is another shelf with one more entry in
its history; once there is a policy one is live, and the canary is another. Deliberately absent: taking policies off a
shelf (runs that they began may go on), files (`shelf_file`), and any opinion on which should act (`learn.trial`).
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shikisha.errors import ConfigError, UnknownName

_SHORTEST = 4  # characters by which a version may be named


class Deed(StrEnum):
    """What was done with a policy."""

    ADDED = "added"  # it was put on the shelf
    SHADOWED = "shadowed"  # it decides beside the live one
    UNSHADOWED = "unshadowed"  # it does so no more
    TRIED = "tried"  # it became the canary, or got another share
    STOPPED = "stopped"  # it is no canary any more
    PROMOTED = "promoted"  # it became the live one
    RESTORED = "restored"  # it became the live one again: the one after it was rolled back


_LOTS = frozenset({Deed.TRIED, Deed.STOPPED, Deed.PROMOTED, Deed.RESTORED})  # who acts for which tasks changed


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class By(_Record):
    """Who changes a shelf, when (Unix time), and why."""

    who: str
    at: float
    why: str = ""


class Entry(_Record):
    """A change: by whom, what, with which policy. `share` is a canary's; `forced`: against what the trial said."""

    by: By
    deed: Deed
    version: str
    share: float | None = None
    forced: bool = False


class Canary(_Record):
    """The policy that acts for a share of the tasks."""

    version: str
    share: float = Field(gt=0, lt=1)


class Shelved(_Record):
    """A policy on the shelf, and the name of the file that it came from."""

    version: str = Field(pattern=r"^[0-9a-f]{12}$")
    name: str


class Shelf(_Record):
    """What `shelf.json` says. `live` is empty before anything was put on the shelf."""

    format: Literal[1] = 1
    live: str = ""
    canary: Canary | None = None
    shadows: tuple[str, ...] = ()
    policies: tuple[Shelved, ...] = ()
    history: tuple[Entry, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        canary = [self.canary.version] if self.canary else []
        for version in filter(None, [self.live, *canary, *self.shadows]):
            if not self.holds(version):
                raise ValueError(f"{version} acts and is not among the policies")
        if self.policies and not self.live:
            raise ValueError("no policy is live")
        if len({self.live, *canary}) != 1 + len(canary):
            raise ValueError("the canary is the live policy")
        return self

    def holds(self, version: str) -> bool:
        """Whether this version is on the shelf."""
        return any(policy.version == version for policy in self.policies)

    def named(self, name: str) -> str:
        """Return the version of this name, beginning or file name; UnknownName where none fits, or several do."""
        fitting = [
            policy.version
            for policy in self.policies
            if policy.name == name or (len(name) >= _SHORTEST and policy.version.startswith(name))
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

    def drawn(self, content_hash: str) -> str:
        """Return which policy acts for the task of this content: always the same while the shares are."""
        if self.canary is not None and _lot(self.canary.version, content_hash) < self.canary.share:
            return self.canary.version
        return self.live

    @property
    def since(self) -> float:
        """Since when the shares are what they are."""
        return max((entry.by.at for entry in self.history if entry.deed in _LOTS), default=0.0)

    @property
    def previous(self) -> str:
        """The version that was live before the present one; empty where there was none."""
        lives: list[str] = []
        for entry in self.history:
            if entry.deed is Deed.PROMOTED:
                lives.append(entry.version)
            elif entry.deed is Deed.RESTORED and lives:
                lives.pop()
        return lives[-2] if len(lives) > 1 else ""

    def with_policy(self, policy: Shelved, by: By) -> "Shelf":
        """Return the shelf with one policy more; the first is live at once."""
        if self.holds(policy.version):
            return self
        added = Entry(by=by, deed=Deed.ADDED, version=policy.version)
        grown = self._after(added, policies=(*self.policies, policy))
        first = By(who=by.who, at=by.at, why="the first on the shelf")
        return grown if self.live else grown.promoted(policy.version, first)

    def with_shadow(self, version: str, by: By) -> "Shelf":
        """Return the shelf with this policy among the shadows."""
        if version in self.shares:
            raise ConfigError(f"{version} acts already: a shadow is a policy that does not")
        if version in self.shadows:
            return self
        return self._after(Entry(by=by, deed=Deed.SHADOWED, version=version), shadows=(*self.shadows, version))

    def without_shadow(self, version: str, by: By) -> "Shelf":
        """Return the shelf with this policy not among the shadows."""
        if version not in self.shadows:
            raise ConfigError(f"{version} is no shadow")
        return self._after(Entry(by=by, deed=Deed.UNSHADOWED, version=version), shadows=self._shadows_but(version))

    def trying(self, version: str, share: float, by: By) -> "Shelf":
        """Return the shelf with this policy as its canary."""
        if version == self.live:
            raise ConfigError(f"{version} is live: a canary is another policy")
        if not 0 < share < 1:
            raise ConfigError(f"a canary's share of the tasks is between 0 and 1, not {share:g}")
        canary = Canary(version=version, share=share)
        if canary == self.canary:
            return self
        tried = Entry(by=by, deed=Deed.TRIED, version=version, share=share)
        return self._after(tried, canary=canary, shadows=self._shadows_but(version))

    def without_canary(self, by: By) -> "Shelf":
        """Return the shelf without a canary."""
        if self.canary is None:
            raise ConfigError("there is no canary")
        return self._after(Entry(by=by, deed=Deed.STOPPED, version=self.canary.version), canary=None)

    def promoted(self, version: str, by: By, *, forced: bool = False) -> "Shelf":
        """Return the shelf with this policy live; `forced`: whatever the trial said."""
        if version == self.live:
            raise ConfigError(f"{version} is live already")
        return self._live(Entry(by=by, deed=Deed.PROMOTED, version=version, forced=forced))

    def rolled_back(self, by: By) -> "Shelf":
        """Return the shelf with the policy live that was so before the present one."""
        if not self.previous:
            raise ConfigError(f"{self.live} is the first that was live: there is nothing to go back to")
        return self._live(Entry(by=by, deed=Deed.RESTORED, version=self.previous))

    def _live(self, entry: Entry) -> "Shelf":
        version = entry.version
        stays = self.canary if self.canary is not None and self.canary.version != version else None
        return self._after(entry, live=version, canary=stays, shadows=self._shadows_but(version))

    def _shadows_but(self, version: str) -> tuple[str, ...]:
        return tuple(shadow for shadow in self.shadows if shadow != version)

    def _after(self, entry: Entry, **after: object) -> "Shelf":
        changed = self.model_copy(update={**after, "history": (*self.history, entry)})
        if not changed.holds(entry.version):
            raise UnknownName("policy on the shelf", entry.version, [policy.version for policy in self.policies])
        return changed


def _lot(salt: str, content_hash: str) -> float:
    """Return a task's place in [0, 1), the same everywhere and always, and another one for each canary."""
    return int.from_bytes(sha256(f"canary\0{salt}\0{content_hash}".encode()).digest()[:6]) / 2**48
