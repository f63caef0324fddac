"""Kinds by name: this package's own, and those that installed distributions bring through entry points.

`Registry` holds the kinds of one group (`shikisha.workers`, ...). A distribution brings a kind as an entry point of
that group, whose object is a `Kind`: the model of its keys, what builds it, and a double for tests. Invariants: a
kind's module is imported when the kind is named, not before; a plug-in that cannot be used is a ConfigError that names
its distribution, version and entry point; so are two plug-ins of one name. An own kind needs no look at what is
installed, so `doctor` is what names a plug-in that takes the name of one. Deliberately absent: priorities among
plug-ins, and plug-ins from folders.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from shikisha.core.errors import ConfigError, MissingPlugin, UnknownName
from shikisha.core.fast_dataclass import dataclass

if TYPE_CHECKING:  # the command line reads its commands here, and starts without pydantic
    from pydantic import BaseModel

GROUPS = tuple(
    f"shikisha.{each}"
    for each in (
        "workers",
        "conductors",
        "guards",
        "checks",
        "gatherers",
        "graders",
        "tasksets",
        "importers",
        "admissions",
        "commands",
    )
)
P = TypeVar("P")
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[P]):
    """What a kind brings: the model of its keys, what builds it from them, and a double for tests.

    `build` takes the settings first; the group says what else. `double` needs no argument, no network and no key; own
    kinds may have none.
    """

    settings: "type[BaseModel]"
    build: Callable[..., P] | None = None  # None: it takes more than its settings, and the composition root builds it
    double: Callable[[], P] | None = None

    def own_settings(self, table: "BaseModel", folder: Path) -> "BaseModel":
        """Return the kind's own part of a validated table, its relative paths resolved against a folder."""
        own = self.settings.model_validate({key: getattr(table, key) for key in self.settings.model_fields})
        return own.model_copy(update={key: folder / value for key, value in own if isinstance(value, Path)})

    def make(self, table: "BaseModel", folder: Path, *given: object) -> P:
        """Build from a validated table, and from what the group gives."""
        if self.build is None:
            raise TypeError(f"{self.settings.__name__}: built by the composition root")
        return self.build(self.own_settings(table, folder), *given)


class Plugin(NamedTuple):
    """An entry point of an installed distribution: `target` is the object that it names, `place` the folder."""

    group: str
    name: str
    target: str
    distribution: str
    version: str
    place: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.group}: {self.name} = {self.target})"


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Return the entry points of all groups; to find them reads the metadata of every distribution, once."""
    found: dict[str, list[Plugin]] = {}  # by distribution: of two on the path the first is imported
    for each in distributions():
        own = [entry for entry in each.entry_points if entry.group in GROUPS]
        if own:
            made = [
                Plugin(entry.group, entry.name, entry.value, each.name, each.version, str(each.locate_file("")))
                for entry in own
            ]
            found.setdefault(each.name, made)
    return tuple(sorted(plugin for made in found.values() for plugin in made))


class Registry(Mapping[str, K]):
    """The kinds of one group by name; reading one imports it.

    `own` has this package's objects, or where they are: `module` (its KIND) or `module:NAME`. `elsewhere` has the
    distributions of ours that bring a kind, `others` the kinds that stand in no registry. UnknownName lists the known
    ones; MissingPlugin says what to install.
    """

    def __init__(
        self,
        group: str,
        what: str,
        kind: type[K],
        own: Mapping[str, str | K],
        elsewhere: Mapping[str, str] | None = None,
        others: Iterable[str] = (),
    ) -> None:
        self.group, self._what, self._kind = f"shikisha.{group}", what, kind
        self._own, self.elsewhere, self._others = own, elsewhere or {}, tuple(others)

    def __getitem__(self, name: str) -> K:
        own = self._own.get(name)
        if own is not None:
            return self._import(own) if isinstance(own, str) else own
        found = self._plugins(name)
        if not found:
            if name in self.elsewhere:
                raise MissingPlugin(self.elsewhere[name], f"{self._what} {name!r}")
            raise UnknownName(self._what, name, {*self, *self._others, *self.elsewhere})
        plugin = found[0]
        self.refuse_clash(plugin)
        try:
            made = self._import(plugin.target)
        except (Exception, SystemExit) as error:  # whatever a foreign module does when it is imported
            raise ConfigError(f"plug-in {plugin} cannot be loaded: {type(error).__name__}: {error}") from error
        if not isinstance(made, self._kind):
            raise ConfigError(f"plug-in {plugin} cannot be used: expected a {self._kind.__name__} there")
        if isinstance(made, Kind) and (made.double is None or made.build is None):
            raise ConfigError(f"plug-in {plugin} cannot be used: expected its Kind to have `build` and `double`")
        return made

    def knows(self, name: str) -> bool:
        """Whether there is such a kind, or a distribution of ours brings it: reading it says what to install."""
        return name in self.elsewhere or name in self

    def __contains__(self, name: object) -> bool:
        return name in self._own or bool(self._plugins(name))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._own, *(each.name for each in self._plugins()))))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def refuse_clash(self, plugin: Plugin) -> None:
        """Raise a ConfigError where this name is an own kind's, or another plug-in's."""
        others = [str(each) for each in self._plugins(plugin.name) if each != plugin]
        if plugin.name in self._own or others:
            of = " and ".join(others) or "this package's own"
            raise ConfigError(f"plug-in {plugin} cannot be used: the name is that of {of}; uninstall one of them")

    def _plugins(self, name: object = None) -> list[Plugin]:
        return [each for each in installed_plugins() if each.group == self.group and name in (None, each.name)]

    def _import(self, target: str) -> K:
        module, _, attribute = target.partition(":")
        made: K = getattr(import_module(module), attribute or "KIND")
        return made
