"""The learner's folder: for each scope (tenant, labels) the versions of its outcome model, and which one is live.

`index.json` says what is live, pinned and switched off; models are learned files beside it. It is read whenever a task
is planned, so that a command, a page and every server process that shares the folder agree.

Invariants: a file is written completely or not at all; a model answers only for its scope; what cannot be read is an
error and never a silent absence; a version with an erased run is deleted.
"""

import fcntl
import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import asdict, dataclass, field, replace
from shikisha.core.task import Scope, read_scope, scope_as_json
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.outcome_model import OUTCOMES, EncodeTexts, OutcomeModel, outcome_model_of, prior_model

_FORMAT = "shikisha-learning/1"
_INDEX = "index.json"
_MAX_BYTES = 2**24
_MOST_VERSIONS = 10  # kept of each scope, the live one besides
_MOST_LOADED = 32


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of a scope's model: when it was made (Unix time), and of how many runs, how many of them graded."""

    version: str
    made: float
    runs: int
    graded: int


@dataclass(frozen=True, slots=True)
class ScopeModels:
    """The versions of one scope, the newest last, the live one, the one that a person pinned, and the position in the
    journal up to which the live one was learned.
    """

    scope: Scope
    live: str
    versions: tuple[ModelVersion, ...]
    pinned: str = ""
    position: int = 0

    @property
    def key(self) -> str:
        """The name of the scope's files."""
        named = json.dumps([self.scope.tenant, sorted(self.scope.labels)])
        return sha256(named.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class LearningIndex:
    """What is in the folder: who switched learning off (empty: it is on), and the scopes."""

    off: str = ""
    scopes: tuple[ScopeModels, ...] = ()


@dataclass
class LearningFiles:
    """Reads and writes the folder; `encode` turns texts into vectors for the models that are read."""

    folder: Path
    phrases: tuple[str, ...] = ()
    encode: EncodeTexts | None = None
    _loaded: "OrderedDict[tuple[str, str], OutcomeModel]" = field(default_factory=OrderedDict)
    _stamp: tuple[int, int] | None = None
    _index: LearningIndex = field(default_factory=LearningIndex)

    def index(self) -> LearningIndex:
        """Return the index; empty where nothing was learned; ConfigError where the file says something else."""
        file = self.folder / _INDEX
        try:
            found = file.stat()
        except FileNotFoundError:
            return LearningIndex()
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
        stamp = found.st_mtime_ns, found.st_size
        if stamp != self._stamp:
            self._index, self._stamp = _read_index(file), stamp
        return self._index

    def model(self, scope: Scope, version: str = "") -> OutcomeModel | None:
        """Return the live model for tasks of a scope, or the named version; None while learning is switched off."""
        index = self.index()
        if index.off:
            return None
        able = [one for one in index.scopes if one.scope.admits(scope)]
        if version:
            named = next((one for one in able if any(each.version == version for each in one.versions)), None)
            if named is not None:
                return self.read(named, version)
        if not able:
            return prior_model(self.phrases, Scope(scope.tenant, frozenset()))
        best = max(able, key=lambda one: (len(one.scope.labels), one.key))
        return self.read(best, best.pinned or best.live)

    def read(self, models: ScopeModels, version: str) -> OutcomeModel:
        """Return a version of a scope's model."""
        key = models.key, version
        if key not in self._loaded:
            file = self.file(models, version)
            read = outcome_model_of(read_learned(file, OUTCOMES), str(file), self.encode)
            if read.scope != models.scope:  # a file that was copied must show no tenant what others' runs taught
                raise ConfigError(
                    f"{file}: it is made of other runs than this scope's: `shikisha learn` makes it again"
                )
            self._loaded[key] = replace(read, version=version)
            while len(self._loaded) > _MOST_LOADED:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def reads(self, scope: Scope) -> bool:
        """Whether a scope's newest model can be read, or there is none; one of another version cannot."""
        made = [one for one in self.index().scopes if one.scope == scope]
        with suppress(ConfigError):
            return all(self.read(one, one.live) is not None for one in made)
        return False

    def file(self, models: ScopeModels, version: str) -> Path:
        """Return the file of a version of a scope's model."""
        return self.folder / f"{models.key}-{version}.json"

    def publish(self, model: OutcomeModel, evidence: Sequence[str], made: float, position: int) -> OutcomeModel:
        """Write a model, learned up to this position, as its scope's newest; it is live unless another is pinned."""
        self._make()
        learned = model.to_file(evidence, made)
        version = learned.short_version
        index = self.index()
        old = next((one for one in index.scopes if one.scope == model.scope), ScopeModels(model.scope, "", ()))
        row = ModelVersion(version, made, model.learning.runs, model.learning.graded)
        versions = (*(one for one in old.versions if one.version != version), row)
        new = replace(old, live=version, versions=versions[-_MOST_VERSIONS:], position=position)
        kept = [one for one in old.versions if one.version == old.pinned and one not in new.versions]
        new = replace(new, versions=(*kept, *new.versions))
        write_learned(self.file(new, version), learned)
        self._write(replace(index, scopes=(*(one for one in index.scopes if one.scope != model.scope), new)))
        for one in versions:
            if one not in new.versions:
                self.file(new, one.version).unlink(missing_ok=True)
        return replace(model, version=version)

    def switch(self, off: str) -> None:
        """Switch learning off, by whom and when, in words; empty: on again."""
        self._make()
        self._write(replace(self.index(), off=off))

    def pin(self, scope: Scope, version: str) -> ScopeModels:
        """Keep a version live whatever is learned; empty: the newest is live again. ConfigError for an unknown one."""
        index = self.index()
        old = next((one for one in index.scopes if one.scope == scope), None)
        known = [] if old is None else [one.version for one in old.versions]
        found = [one for one in known if one.startswith(version)] if version else [""]
        if old is None or len(found) != 1:
            raise ConfigError(f"no version {version!r} of the model; known are {', '.join(known) or 'none'}")
        new = replace(old, pinned=found[0])
        self._write(replace(index, scopes=tuple(new if one is old else one for one in index.scopes)))
        return new

    def drop(self, erased: frozenset[str]) -> list[Scope]:
        """Delete every version that an erased run is evidence of; return the scopes that have to be learned again."""
        index, hit, left = self.index(), list[Scope](), list[ScopeModels]()
        gone = list[Path]()
        for models in index.scopes:
            bad = {one.version for one in models.versions if _is_made_of(self.file(models, one.version), erased)}
            if not bad:
                left.append(models)
                continue
            hit.append(models.scope)
            gone += [self.file(models, version) for version in bad]
            versions = tuple(one for one in models.versions if one.version not in bad)
            if versions:
                pinned = "" if models.pinned in bad else models.pinned
                live = versions[-1].version
                left.append(replace(models, live=live, versions=versions, pinned=pinned, position=0))
        if hit:
            self._write(replace(index, scopes=tuple(left)))
            self._loaded.clear()
            for file in gone:
                file.unlink(missing_ok=True)
        return hit

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Yield whether it is this process's turn to learn; another one's ends with it."""
        self._make()
        with (self.folder / ".turn").open("w", encoding="utf-8") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def _make(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.folder}: cannot be made: {error.strerror or error}") from None

    def _write(self, index: LearningIndex) -> None:
        scopes = [
            {**asdict(one), "scope": scope_as_json(one.scope), "versions": [asdict(each) for each in one.versions]}
            for one in index.scopes
        ]
        body = {"format": _FORMAT, "off": index.off, "scopes": scopes}
        part = self.folder / f".{_INDEX}.{os.getpid()}"
        try:
            part.write_text(json.dumps(body, indent=1) + "\n", "utf-8")
            part.chmod(0o600)
            part.replace(self.folder / _INDEX)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise ConfigError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
        self._stamp = None


def _is_made_of(file: Path, runs: frozenset[str]) -> bool:
    """Whether any of these runs is evidence of a model; that of a file which cannot be read is not known, so it is."""
    try:
        return not runs.isdisjoint(read_learned(file, OUTCOMES).evidence)
    except ConfigError:
        return True


def _read_index(file: Path) -> LearningIndex:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        body = json.loads(data) if len(data) <= _MAX_BYTES else {}
        if body["format"] != _FORMAT:
            raise ValueError(f"expected the format {_FORMAT}, found {body['format']!r}")
        return LearningIndex(str(body["off"]), tuple(map(_read_models, body["scopes"])))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ConfigError(
            f"{file}: no index of what was learned: {error}; remove the folder, and `shikisha learn` makes it again"
        ) from None


def _read_models(row: Mapping[str, object]) -> ScopeModels:
    versions = row["versions"]
    if not isinstance(versions, list):
        raise TypeError("expected a list of versions")
    made = tuple(
        ModelVersion(str(one["version"]), float(one["made"]), int(one["runs"]), int(one["graded"])) for one in versions
    )
    live, pinned = str(row["live"]), str(row["pinned"])
    known = {one.version for one in made}
    if live not in known or (pinned and pinned not in known) or any(not one.isalnum() for one in known):
        raise ValueError("the live version is none of the known ones")
    return ScopeModels(read_scope(row["scope"]), live, made, pinned, int(str(row["position"])))
