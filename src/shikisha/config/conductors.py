"""Conductors by name: `fixed:NAME`, `rules:FILE`, `lm:ENDPOINT`, `learned:CONDUCTOR`, ..., or one of [conductors].

Invariants: with a pool, a conductor is made only if every worker that it names is in that pool; an unknown name is an
error that lists the known ones. Adapters that need an optional library are
imported when their conductor is made.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import file_digest
from pathlib import Path

from pydantic import BaseModel

from shikisha.conductors.fixed_conductors import (
    AgreementConductor,
    CascadeConductor,
    FixedConductor,
    RandomPlanConductor,
    fixed_conductor,
)
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.rules import load_rules
from shikisha.conductors.topologies import TopologyOptions
from shikisha.config.adapters import CONDUCTOR_KINDS, read_plugged, require_extra
from shikisha.config.conductor_settings import (
    REMOVED_KINDS,
    ConductorTable,
    FixedTable,
    LmTable,
    PolicyTable,
    RulesTable,
)
from shikisha.config.config_table import PluggedTable
from shikisha.core import toml
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.prompts import PlanFormat, PromptStyle
from shikisha.engine.conductor import Conductor, ConductorParts, Team
from shikisha.engine.pool import Member, Pool

SHIPPED, TRAINED = "shipped", "trained"
_SHIPPED_LEFT = (
    "lm:shipped left the package: it planned for the first simulated world only. Write lm:WORKER with a chat worker "
    "that plans, lm:DIR with a checkpoint that `shikisha train` wrote, or head:shipped"
)
_WORLD_LEFT = (
    "{}: the first simulated world left; name a conductor for your own tasks, such as "
    "fixed:vote, rules:FILE or lm:WORKER"
)


def is_checkpoint(path: str, folder: Path = Path()) -> bool:
    """Return whether this names an existing folder; ConfigError for the shipped checkpoint of earlier versions."""
    if path == SHIPPED:
        raise ConfigError(_SHIPPED_LEFT)
    return bool(path) and (folder / path).is_dir()


def checkpoint_hashes(path: str, folder: Path) -> Iterator[str]:
    """Yield the hashes of the files of a checkpoint; none where there is no such folder."""
    place = folder / path
    for file in checkpoint_files(place) if place.is_dir() else ():
        with file.open("rb") as opened:
            yield file_digest(opened, "sha256").hexdigest()


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the files that decide the plans of a checkpoint."""
    return sorted(path for pattern in ("*.safetensors", "*.json", "*.jinja") for path in folder.glob(pattern))


_PREFIXES = (
    "fixed:NAME",
    "rules:FILE",
    "lm:ENDPOINT",
    "lm:DIR",
    "policy:FILE",
    "learned:CONDUCTOR",
    "random:SEED",
)
_MAX_SEED_DIGITS = 9
_MAX_FALLBACKS = 8  # length of a chain of fallbacks


@dataclass(frozen=True, slots=True)
class PlannerEndpoint:
    """A worker that writes plans, and whether it can be held to a JSON Schema."""

    member: Member
    structured: bool


@dataclass(frozen=True, slots=True)
class ConductorFactory:
    """Makes conductors. `tables` are those of `file`; `endpoint` returns a configured worker by name."""

    tables: Mapping[str, ConductorTable]
    file: str
    folder: Path
    endpoint: Callable[[str], PlannerEndpoint]
    learned: Callable[[str, Conductor], Conductor] | None = None  # puts the learner over a conductor, by its name
    teams: Mapping[str, object] = field(default_factory=dict)
    team: Callable[[str], tuple[BaseModel, Team]] | None = None  # the validated table, and what it describes

    def make(self, name: str, pool: Pool | None = None, depth: int = 0) -> Conductor:
        """Return a conductor by name; UnknownName or ConfigError when there is none, or it cannot conduct this pool."""
        if depth > _MAX_FALLBACKS:
            raise ConfigError(f"conductor {name!r} is its own fallback")
        if name in self.tables:
            with toml.error_location(f"{self.file}: conductors.{name}"):
                return self._from_table(name, pool, depth)
        match name.partition(":"):
            case "fixed", _, rest if rest:
                return _check_cast(fixed_conductor(rest), pool)
            case "rules", _, rest if rest:
                return load_rules(Path(rest), pool.names if pool else None)
            case "lm", _, rest if rest:
                return self._model(name, rest, pool, depth)
            case "rehearsal", _, rest if rest:
                raise ConfigError(_WORLD_LEFT.format(name))
            case "policy", _, rest if rest:
                return _policy_conductor(rest)
            case "learned", _, rest if rest and self.learned is not None:
                return self.learned(name, self.make(rest, pool, depth + 1))
            case ("value" | "pointer") as kind, _, _:
                raise ConfigError(f"{name}: {REMOVED_KINDS[kind]}")
            case "random", _, rest:
                return RandomPlanConductor(_parse_seed(rest), name=name)
            case kind, ":", rest if rest and CONDUCTOR_KINDS.knows(kind):
                return self._plugged(name, kind, rest, pool, depth)
        raise UnknownName("conductor", name, [*self.tables, *_PREFIXES, *(f"{kind}:..." for kind in CONDUCTOR_KINDS)])

    def _from_table(self, name: str, pool: Pool | None, depth: int) -> Conductor:
        match self.tables[name]:
            case LmTable() as table:
                return self._lm(name, table, pool, depth)
            case FixedTable() as table:
                return _check_cast(
                    fixed_conductor(
                        table.topology, TopologyOptions(table.workers, table.n, table.roles, table=True), name
                    ),
                    pool,
                )
            case RulesTable() as table:
                return replace(load_rules(self.folder / table.file, pool.names if pool else None), name=name)
            case PolicyTable() as table:
                return _policy_conductor(f"{self.folder / table.file}?{table.query()}", name)
            case PluggedTable() as table:
                settings = read_plugged(CONDUCTOR_KINDS, table, self.file, f"conductors.{name}")
                return CONDUCTOR_KINDS[table.kind].make(settings, self.folder, self._parts(name, pool, depth))

    def _model(self, name: str, rest: str, pool: Pool | None, depth: int) -> Conductor:
        """Return the conductor of `lm:ENDPOINT`, a configured worker, or of `lm:DIR`, a checkpoint."""
        target, options = _split_options(rest)
        try:
            self.endpoint(target)
        except UnknownName as unknown:
            if is_checkpoint(target):
                return self._plugged(name, TRAINED, rest, pool, depth)
            if "/" in target:
                raise ConfigError(f"{unknown}; nor is there a folder of this name") from None
        return self._lm(
            name, toml.validate_model(LmTable, {"kind": "lm", "endpoint": target, **options}, name), pool, depth
        )

    def _plugged(self, name: str, kind: str, rest: str, pool: Pool | None, depth: int) -> Conductor:
        """Return the conductor of `KIND:TARGET?key=value`, where a plug-in brings the kind."""
        (target, options), found = _split_options(rest), CONDUCTOR_KINDS[kind]
        parts = replace(self._parts(name, pool, depth), options=options)
        if found.team is not None:
            if target not in self.teams or self.team is None:
                raise UnknownName("team", target, self.teams)
            settings, team = self.team(target)
            return found.make(settings, self.folder, replace(parts, team=team))
        given = found.read(target, options) if found.read is not None else options
        return found.make(toml.validate_model(found.settings, given, name), Path(), parts)

    def _parts(self, name: str, pool: Pool | None, depth: int) -> ConductorParts:
        return ConductorParts(name, pool, lambda one: self.endpoint(one).member, partial(self.make, depth=depth + 1))

    def _lm(self, name: str, table: LmTable, pool: Pool | None, depth: int) -> LanguageModelConductor:
        endpoint = self.endpoint(table.endpoint)
        form = table.form or (PlanFormat.JSON if endpoint.structured else PlanFormat.LISTS)
        return LanguageModelConductor(
            name,
            endpoint.member,
            self.make(table.fallback, pool, depth + 1),
            PromptStyle(form, table.described, table.examples),
            table.rounds,
            table.shown,
            repeats=table.repeats,
        )


def _check_cast(conductor: Conductor, pool: Pool | None) -> Conductor:
    """Return the conductor after a check that the workers which its options name are in the pool."""
    if pool is not None:
        match conductor:
            case FixedConductor():
                conductor.plan(pool.cards)
            case CascadeConductor() | AgreementConductor():
                conductor.assign_workers(pool.cards)
    return conductor


def _policy_conductor(spec: str, name: str = "") -> Conductor:
    """Return the conductor of a policy file, or of a policy registry."""
    require_extra("eval", "a learned policy", "numpy")
    from shikisha.conductors.learned_policy import policy_conductor, registry_conductor

    make = registry_conductor if Path(spec.partition("?")[0]).is_dir() else policy_conductor
    return make(spec, name)


def _parse_seed(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) <= _MAX_SEED_DIGITS):
        raise ConfigError(f"a seed is a whole number, not {text!r}")
    return int(text or "0")


def _split_options(rest: str) -> tuple[str, dict[str, str]]:
    """Split a name at the question mark into target and options."""
    target, _, query = rest.partition("?")
    return target, dict(part.partition("=")[::2] for part in query.split("&")) if query else {}
