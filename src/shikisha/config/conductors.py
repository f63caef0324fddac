"""Conductors by name: `fixed:NAME`, `rules:FILE`, `lm:ENDPOINT`, `lm:DIR`, ..., or one of [conductors].

Invariant: with a pool, a conductor is made only if every worker that it names is in that pool; what it cannot find is
an error that lists the known ones. Deliberately absent: conductors found any other way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from shikisha import toml
from shikisha.conductor import Conductor
from shikisha.conductors.agreement import Agreement
from shikisha.conductors.fixed import Cascade, Fixed, fixed
from shikisha.conductors.lm import LmConductor
from shikisha.conductors.random_plans import RandomPlans
from shikisha.conductors.rules import load_rules
from shikisha.conductors.topologies import Options
from shikisha.config import checkpoints
from shikisha.config.settings import ConductorTable, FixedTable, LmTable, PolicyTable, RulesTable, TrainedTable
from shikisha.errors import ConfigError, MissingExtra, UnknownName
from shikisha.pool import Member, Pool
from shikisha.prompt import Form, Style

REHEARSED = "rehearsal:rules"  # who conducts the embedded orchestra when nobody else is named
_PREFIXES = ("fixed:NAME", "rules:FILE", "lm:ENDPOINT", "lm:DIR", "policy:FILE", "random:SEED", "rehearsal:NAME")
_LONGEST_SEED = 9  # digits
_DEEPEST = 8  # conductors that stand in for one another


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who writes plans, and whether it can be held to a schema."""

    member: Member
    structured: bool


@dataclass(frozen=True, slots=True)
class Conductors:
    """Makes conductors. `tables` are those of the file at `file`; `endpoint` finds a configured worker by name."""

    tables: Mapping[str, ConductorTable]
    file: str
    folder: Path
    endpoint: Callable[[str], Endpoint]

    def make(self, name: str, pool: Pool | None = None, depth: int = 0) -> Conductor:
        """Return the conductor of this name; UnknownName or ConfigError when there is none, or it cannot conduct."""
        if depth > _DEEPEST:
            raise ConfigError(f"conductor {name!r} stands in for itself")
        if name in self.tables:
            with toml.placed(f"{self.file}: conductors.{name}"):
                return self._from_table(name, pool, depth)
        match name.partition(":"):
            case "fixed", _, rest if rest:
                return _cast(fixed(rest), pool)
            case "rules", _, rest if rest:
                return load_rules(Path(rest), pool.names if pool else None)
            case "lm", _, rest if rest:
                return self._model(name, rest, pool, depth)
            case "rehearsal", _, rest if rest:
                return _rehearsed(name)
            case "policy", _, rest if rest:
                return _learned(rest)
            case "random", _, rest:
                return RandomPlans(_seed(rest), name=name)
        raise UnknownName("conductor", name, [*self.tables, *_PREFIXES])

    def _from_table(self, name: str, pool: Pool | None, depth: int) -> Conductor:
        match self.tables[name]:
            case LmTable() as table:
                return self._lm(name, table, pool, depth)
            case FixedTable() as table:
                return _cast(fixed(table.topology, Options(table.workers, table.n, table.roles), name), pool)
            case RulesTable() as table:
                return replace(load_rules(self.folder / table.file, pool.names if pool else None), name=name)
            case PolicyTable() as table:
                return _learned(f"{self.folder / table.file}?{table.query()}", name)
            case TrainedTable() as table:
                return self._trained(name, table, pool, depth, self.folder)

    def _model(self, name: str, rest: str, pool: Pool | None, depth: int) -> Conductor:
        """Return the conductor of `lm:ENDPOINT`, a configured worker, or else of `lm:DIR`, a checkpoint."""
        target, options = _options(rest)
        try:
            self.endpoint(target)
        except UnknownName as unknown:
            if checkpoints.is_checkpoint(target):
                table = toml.validate(TrainedTable, {"kind": "trained", "path": target, **options}, name)
                return self._trained(name, table, pool, depth, Path())
            if "/" in target:
                raise ConfigError(f"{unknown}; nor is there a folder of this name") from None
        return self._lm(name, toml.validate(LmTable, {"kind": "lm", "endpoint": target, **options}, name), pool, depth)

    def _trained(self, name: str, table: TrainedTable, pool: Pool | None, depth: int, folder: Path) -> Conductor:
        fallback = self.make(table.fallback, pool, depth + 1) if table.fallback else None
        return checkpoints.trained(name, table, folder, fallback)

    def _lm(self, name: str, table: LmTable, pool: Pool | None, depth: int) -> LmConductor:
        endpoint = self.endpoint(table.endpoint)
        form = table.form or (Form.JSON if endpoint.structured else Form.LISTS)
        fallback = self.make(table.fallback, pool, depth + 1) if table.fallback else None
        return LmConductor(name, endpoint.member, fallback, Style(form, table.described, table.examples), table.rounds)


def _cast(conductor: Conductor, pool: Pool | None) -> Conductor:
    """Return the conductor once it has found the workers that its options name."""
    if pool is not None:
        match conductor:
            case Fixed():
                conductor.plan(pool.cards)
            case Cascade():
                conductor.ladder(pool.cards)
            case Agreement():
                conductor.cast(pool.cards)
    return conductor


def _learned(spec: str, name: str = "") -> Conductor:
    """Return the conductor of a policy file, or of a shelf of them."""
    if find_spec("numpy") is None:
        raise MissingExtra("eval", "a learned policy")
    if Path(spec.partition("?")[0]).is_dir():
        from shikisha.conductors.shelved import shelved_conductor

        return shelved_conductor(spec, name)
    from shikisha.conductors.policy import policy_conductor

    return policy_conductor(spec, name)


def _seed(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_SEED):
        raise ConfigError(f"a seed is a whole number, not {text!r}")
    return int(text or "0")


def _options(rest: str) -> tuple[str, dict[str, str]]:
    """Return what stands before and after the question mark."""
    target, _, query = rest.partition("?")
    return target, dict(part.partition("=")[::2] for part in query.split("&")) if query else {}


def _rehearsed(name: str) -> Conductor:
    """Return one of the hand-written conductors that the embedded orchestra is measured with."""
    from shikisha.orchestra import yardsticks as known

    conductors: tuple[Conductor, ...] = (
        known.RULES,
        known.RULES_LARGE,
        known.KEYWORD_ROUTER,
        known.SELF_CONSISTENCY,
        known.PLANNER_EXECUTOR_VERIFIER,
        known.RANDOM,
        known.RANDOM_LARGE,
        known.OPTIMAL,
    )
    by_name = {conductor.name: conductor for conductor in conductors}
    if name not in by_name:
        raise UnknownName("conductor", name, by_name)
    return by_name[name]
