"""Conductors by name: `fixed:NAME`, `rules:FILE`, `lm:ENDPOINT`, `value:FILE`, ..., or one of [conductors].

Invariants: with a pool, a conductor is made only if every worker that it names is in that pool; an unknown name is an
error that lists the known ones. Of a checkpoint, `model.onnx` takes precedence over weights, because it needs no torch;
a checkpoint is loaded once, and again when its files have changed. Adapters that need an optional library are imported
when their conductor is made.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

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
    ConductorTable,
    FixedTable,
    LmTable,
    PolicyTable,
    RulesTable,
    TrainedTable,
)
from shikisha.config.config_table import PluggedTable
from shikisha.config.learned_settings import ValueTable
from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.core.prompts import PlanFormat, PromptStyle
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor, ConductorParts, Team
from shikisha.engine.pool import Member, Pool

if TYPE_CHECKING:
    from shikisha.conductors.trained_model import PlanModel

SHIPPED_CHECKPOINT = "shipped"
_CARD_FILE, _MAX_CARD_BYTES, _MAX_TASKSET_NAME = "card.json", 1 << 22, 100
_RUNTIMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "model.onnx": ("edge", ("numpy", "onnxruntime", "tokenizers")),
    "*.safetensors": ("train", ("numpy", "tokenizers", "torch", "transformers")),
}


def is_checkpoint(path: str, folder: Path = Path()) -> bool:
    """Return whether this names a checkpoint: the shipped one, or an existing folder."""
    return path == SHIPPED_CHECKPOINT or (bool(path) and (folder / path).is_dir())


def trained_conductor(name: str, table: TrainedTable, folder: Path, fallback: Conductor | None) -> Conductor:
    """Return the conductor of a checkpoint, whose relative path begins in `folder`; ConfigError when it has none."""
    require_extra("edge", name, "numpy")
    from shikisha.conductors.reading_range import READING_FILE, load_reading_range
    from shikisha.conductors.trained_model import PlanDecoding, TrainedConductor

    place = _checkpoint_folder(table.path, folder)
    stamps = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in _checkpoint_files(place))
    manner = PlanDecoding(table.temperature, table.seed, table.constrained, table.unknown)
    author = _open_checkpoint(place, stamps)
    reading = load_reading_range(place / READING_FILE) if (place / READING_FILE).is_file() else None
    return TrainedConductor(name, author, fallback, manner, table.rounds, _taskset_of(place), reading)


def checkpoint_hashes(path: str, folder: Path) -> Iterator[str]:
    """Yield the hashes of the files of a checkpoint; none where there is no such folder."""
    from shikisha.conductors.onnx_checkpoint import file_hash

    place = _checkpoint_folder(path, folder)
    if place.is_dir():
        yield from (file_hash(one) for one in _checkpoint_files(place))


def _taskset_of(folder: Path) -> str:
    """Return the taskset that a checkpoint was trained on, by its card; empty where the card does not say it."""
    try:
        with (folder / _CARD_FILE).open("rb") as opened:
            name = json.loads(opened.read(_MAX_CARD_BYTES))["data"]["taskset"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return one_line(name, _MAX_TASKSET_NAME) if isinstance(name, str) else ""


def _checkpoint_folder(path: str, folder: Path) -> Path:
    if path != SHIPPED_CHECKPOINT:
        return folder / path
    from shikisha.conductors.onnx_checkpoint import shipped_checkpoint

    return shipped_checkpoint()


def _checkpoint_files(folder: Path) -> list[Path]:
    """Return the files that decide the plans of a checkpoint."""
    return sorted(path for pattern in (*_RUNTIMES, "*.json") for path in folder.glob(pattern))


@lru_cache(maxsize=4)
def _open_checkpoint(folder: Path, stamps: tuple[object, ...]) -> "PlanModel":  # noqa: ARG001 - part of the cache key
    """Load a checkpoint with the first runtime that can."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    lacking = ""
    for pattern, (extra, modules) in _RUNTIMES.items():
        if not any(folder.glob(pattern)):
            continue
        if all(find_spec(module) for module in modules):
            return _load_runtime(folder, extra)
        lacking = lacking or extra
    if lacking:
        raise MissingExtra(lacking, f"the checkpoint in {folder}")
    raise ConfigError(f"{folder}: no checkpoint: expected {' or '.join(_RUNTIMES)}")


def _load_runtime(folder: Path, extra: str) -> "PlanModel":
    if extra == "edge":
        from shikisha.conductors.onnx_checkpoint import open_onnx_checkpoint

        return open_onnx_checkpoint(folder)
    from shikisha.training.inference import open_checkpoint

    return open_checkpoint(folder)


SIMULATION_CONDUCTOR = "rehearsal:rules"  # the conductor of the simulated pool when none is named
_PREFIXES = (
    "fixed:NAME",
    "rules:FILE",
    "lm:ENDPOINT",
    "lm:DIR",
    "policy:FILE",
    "value:FILE",
    "pointer:FILE",
    "random:SEED",
    "rehearsal:NAME",
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
    uses: Callable[[str], bool] = lambda _: True  # whether something learned is switched on
    wrap: Callable[[Conductor], Conductor] = lambda conductor: conductor  # with notes, lessons, skills
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
                return _simulation_conductor(name)
            case "policy", _, rest if rest:
                return _policy_conductor(rest)
            case "value", _, rest if rest:
                target, options = _split_options(rest)
                given = {**options, "also": [one for one in options.get("also", "").split(",") if one]}
                table = toml.validate_model(ValueTable, {"kind": "value", "file": target, **given}, name)
                return self._value(name, table, pool, depth, Path())
            case "pointer", _, rest if rest:
                return self._pointer(name, rest, pool, depth)
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
            case TrainedTable() as table:
                return self._trained(name, table, pool, depth, self.folder)
            case ValueTable() as table:
                return self._value(name, table, pool, depth, self.folder)
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
                table = toml.validate_model(TrainedTable, {"kind": "trained", "path": target, **options}, name)
                return self._trained(name, table, pool, depth, Path())
            if "/" in target:
                raise ConfigError(f"{unknown}; nor is there a folder of this name") from None
        return self._lm(
            name, toml.validate_model(LmTable, {"kind": "lm", "endpoint": target, **options}, name), pool, depth
        )

    def _value(self, name: str, table: ValueTable, pool: Pool | None, depth: int, folder: Path) -> Conductor:
        """Return the conductor of step values; where these are switched off, the one in force alone."""
        if not self.uses("values"):
            return self.make(table.over, pool, depth + 1)
        require_extra("eval", "step values", "numpy")
        from shikisha.conductors.value_conductor import value_conductor

        free = tuple(self.make(one, pool, depth + 1) for one in table.also if one.startswith("fixed:"))
        asked = (table.over, *(one for one in table.also if not one.startswith("fixed:")))
        proposers = tuple(self.wrap(self.make(one, pool, depth + 1)) for one in asked)
        return value_conductor(name, folder / table.file, proposers, free, table.worth, table.explore, table.share)

    def _trained(self, name: str, table: TrainedTable, pool: Pool | None, depth: int, folder: Path) -> Conductor:
        fallback = self.make(table.fallback, pool, depth + 1) if table.fallback else None
        return trained_conductor(name, table, folder, fallback)

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
        return ConductorParts(
            name, pool, lambda one: self.endpoint(one).member, partial(self.make, depth=depth + 1), self.wrap
        )

    def _pointer(self, name: str, rest: str, pool: Pool | None, depth: int) -> Conductor:
        """Return the conductor of `pointer:FILE`, or of `pointer:shipped`."""
        require_extra("eval", name, "numpy")
        from shikisha.conductors.pointer_conductor import PointerConductor, load_pointer, shipped_pointer

        target, options = _split_options(rest)
        if unknown := options.keys() - {"fallback"}:
            raise ConfigError(f"{name}: unknown option {min(unknown)!r}; known is fallback")
        fallback = self.make(options["fallback"], pool, depth + 1) if options.get("fallback") else None
        file = shipped_pointer() if target == SHIPPED_CHECKPOINT else Path(target)
        return PointerConductor(name, load_pointer(file), fallback=fallback)

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


def _simulation_conductor(name: str) -> Conductor:
    """Return one of the hand-written conductors of the simulation."""
    from shikisha.simulation import baseline_conductors

    conductors: tuple[Conductor, ...] = (
        baseline_conductors.RULES,
        baseline_conductors.RULES_LARGE,
        baseline_conductors.KEYWORD_ROUTER,
        baseline_conductors.SELF_CONSISTENCY,
        baseline_conductors.PLANNER_EXECUTOR_VERIFIER,
        baseline_conductors.RANDOM,
        baseline_conductors.RANDOM_LARGE,
        baseline_conductors.OPTIMAL,
    )
    by_name = {conductor.name: conductor for conductor in conductors}
    if name not in by_name:
        raise UnknownName("conductor", name, by_name)
    return by_name[name]
