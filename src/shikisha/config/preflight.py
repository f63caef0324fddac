"""Checks every conductor of a configuration when a server starts, instead of at its first request.

Each is made once over workers that are described but not built, so that no key is read and nothing is called. A table
of [conductors] is checked against all workers (a child run may have any of them in its pool), the default conductor
against the configured pool. Invariant: every error names the file and the table, and all errors are reported. Whether
an endpoint answers is for `shikisha doctor --call`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from shikisha.config import adapters
from shikisha.config.container import Container
from shikisha.core import toml
from shikisha.core.call import Reply, Request
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.fast_dataclass import dataclass
from shikisha.engine.conductor import Conductor, ReadingConductor
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card


class _UncallableWorker:
    """A worker that has a card and makes no calls."""

    async def perform(self, request: Request) -> Reply:
        raise NotImplementedError(request.key)


def conductor_problems(composition: Container) -> Iterator[tuple[str, ConfigError | None]]:
    """Yield every place of the configuration that names a conductor, and the error if that one cannot be made."""
    if not composition.names:
        yield "workers", _problem_of(composition.cards)
        return
    all_workers = _described_pool(composition, composition.names)
    known = composition.conductors(all_workers.named)
    for name in composition.settings.teams:
        yield f"teams.{name}", _problem_of(partial(composition.conductors(all_workers.named).make, f"team:{name}"))
    for name in composition.settings.conductors:
        yield f"conductors.{name}", _problem_of(partial(known.make, name, all_workers))
    if composition.simulated_pool is None:
        default_pool = _described_pool(composition, composition.settings.pool or composition.default_pool)
        yield (
            "conductor",
            _problem_of(partial(_make_named, composition, "conductor", composition.settings.conductor, default_pool)),
        )
    for name, given in composition.settings.plans.items():
        plan = adapters.read_plan(given, composition.file, name)
        pool = _described_pool(composition, composition.settings.pool or composition.default_pool)
        for place, spec in enumerate(getattr(plan, "conductors", ())):
            where = f"plans.{name}.conductors[{place}]"
            yield where, _problem_of(partial(_make_named, composition, where, spec, pool))
    for name, table in composition.workers.items():
        if isinstance(table, adapters.ChildRunSettings):
            where = f"workers.{name}.conductor"
            yield where, _problem_of(partial(_make_named, composition, where, table.conductor, all_workers))


@dataclass(frozen=True, slots=True)
class ConductorNotice:
    """The purpose of a conductor that reads tasks, named at `where`; `unreadable`: why it refuses all of its pool."""

    where: str
    purpose: str
    unreadable: str | None
    fallback: bool

    def __str__(self) -> str:
        return self.unreadable or self.purpose


def conductor_notices(composition: Container) -> Iterator[ConductorNotice]:
    """Yield a notice for each conductor that reads tasks of the configuration that can be made."""
    default_pool = _described_pool(composition, composition.settings.pool or composition.default_pool)
    known = composition.conductors(_described_pool(composition, composition.names).named)
    named = [(f"conductors.{name}", name) for name in composition.settings.conductors]
    for where, spec in (("conductor", composition.settings.conductor), *named):
        try:
            made = known.make(spec, default_pool)
        except ConfigError:  # `conductor_problems` reports it
            continue
        if (found := _notice_of(where, made, default_pool)) is not None:
            yield found


def _notice_of(where: str, conductor: Conductor, pool: Pool) -> ConductorNotice | None:
    if not isinstance(conductor, ReadingConductor) or not conductor.purpose:
        return None
    return ConductorNotice(where, conductor.purpose, conductor.unreadable(pool.cards), conductor.fallback is not None)


def check_conductors(composition: Container) -> None:
    """Raise a ConfigError that reports every conductor of the configuration that cannot be made."""
    troubles = [str(trouble) for _, trouble in conductor_problems(composition) if trouble is not None]
    if troubles:
        raise ConfigError("\n".join(dict.fromkeys(troubles)))


def _make_named(composition: Container, where: str, spec: str, pool: Pool) -> Conductor:
    known = composition.conductors(_described_pool(composition, composition.names).named)
    with toml.error_location(f"{composition.file}: {where}"):
        team = composition.team_pool(spec)
        return known.make(spec, _described_pool(composition, team) if team else pool)


def _problem_of(make: Callable[[], object]) -> ConfigError | None:
    try:
        make()
    except ConfigError as error:
        return error
    return None


def _described_pool(composition: Container, names: Sequence[str]) -> Pool:
    members = [Member(_card_of(composition, name), _UncallableWorker()) for name in names]
    return Pool(members)


def _card_of(composition: Container, name: str) -> Card:
    try:
        return composition.cards([name])[0]
    except MissingExtra:  # reported to the runs that need this worker
        return Card(name, kind=composition.workers[name].kind)
