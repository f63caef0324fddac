"""The composition root: settings in, wired members, pools and conductors out.

Invariants: a name that nobody configured is an error that lists the known ones, with file and key; a worker is built,
and its key read, when the pool that is used has it, so that a missing key stops only those who need it (8). Whoever
composes closes (`aclose`). Deliberately absent: defaults of any adapter.

Finding and reading the configuration: `--config`, else $SHIKISHA_CONFIG, else ./shikisha.toml, else none at all.

Without workers of one's own the embedded orchestra plays, so that everything works without a key. Invariant: after
`load` every reference inside the file (stand-ins, checks, pool, endpoints) names something that is there; errors name
file, key and what was expected. Deliberately absent: merging of several files, and looking in parent folders.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from pydantic import BaseModel

from shikisha.config import adapters
from shikisha.config.conductors import SIMULATION_CONDUCTOR, ConductorFactory, PlannerEndpoint
from shikisha.config.settings import CheckTable, HandoffTable, LmTable, ShikishaSettings, WorkerTable
from shikisha.core import toml
from shikisha.core.budget import FREE, Caps
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.messages import MediaKind
from shikisha.core.secrets import SecretStore
from shikisha.core.visibility import join_labels
from shikisha.engine.autonomy import AutonomyPolicy
from shikisha.engine.checker import OutputCheck
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Member, Pool, without_strangers
from shikisha.engine.worker import ApprovalMode, Card, Worker

_NOT_FINGERPRINTED = frozenset(WorkerTable.model_fields) - {
    "kind",
    "max_output_tokens",
}  # what no worker's answer hangs on


@runtime_checkable
class _AsyncClosable(Protocol):
    async def aclose(self) -> None:
        """Let go of connections and processes."""
        ...


@dataclass(slots=True)
class Container:
    """What a configuration comes to. `file` names it in errors; `folder` is where its relative paths begin.

    `wrap`, if there is one, stands between every configured worker and whoever calls it (a cache of replies).
    """

    settings: ShikishaSettings
    file: str
    folder: Path
    vault: SecretStore
    workers: Mapping[str, WorkerTable]
    checks: Mapping[str, CheckTable]
    embedded: Callable[[], Pool] | None = None
    wrap: Callable[[Member], Member] | None = None
    _members: dict[str, Member] = field(default_factory=dict)
    _orchestra: Pool | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All workers that can be named, in order."""
        return tuple(self.workers) if self.simulated_pool is None else self.simulated_pool.names

    @property
    def default_pool(self) -> tuple[str, ...]:
        """The workers that a plan may name where the file has no pool: all but those that only undo."""
        undoing = {table.compensate for table in self.workers.values()}
        return tuple(name for name in self.names if name not in undoing)

    @property
    def simulated_pool(self) -> Pool | None:
        """The embedded pool, where the file has no workers."""
        if self._orchestra is None and self.embedded is not None:
            self._orchestra = self.embedded()
        return self._orchestra

    @property
    def guarded_labels(self) -> frozenset[str]:
        """The data labels that only workers which are cleared for them may see."""
        return frozenset(self.settings.labels.guarded)

    def autonomy_policy(self, expires: float | None = None) -> AutonomyPolicy:
        """Return the classes of autonomy; `expires`: seconds that questions wait where the file does not say."""
        return self.settings.autonomy.autonomy_policy(expires)

    @property
    def caps(self) -> Caps:
        """The caps of one run."""
        return self.settings.budgets.caps()

    def pool(self, names: Sequence[str] = ()) -> Pool:
        """Return the configured pool, or the pool of these workers, without stand-ins that are not among them."""
        if names:
            chosen = self._known(names, "--pool")
            return Pool([without_strangers(self._member(name, chosen), chosen) for name in chosen])
        chosen = self._known(self.settings.pool or self.default_pool, f"{self.file}: pool")
        return Pool([self._member(name, chosen) for name in chosen])

    def cards(self, names: Sequence[str] = ()) -> tuple[Card, ...]:
        """Return the cards of the pool of these workers without building any: no key is needed to look."""
        chosen = self._known(
            names or self.settings.pool or self.default_pool, "--pool" if names else f"{self.file}: pool"
        )
        if self.simulated_pool is not None:
            return tuple(self.simulated_pool.named(name).card for name in chosen)
        return tuple(self._card(name, self.workers[name]) for name in chosen)

    def conductor(self, spec: str = "", pool: Pool | None = None) -> Conductor:
        """Return the conductor of this name; with a pool, make sure that it finds the workers it names there."""
        known = self.conductors()
        if spec:
            return known.make(spec, pool)
        if self.simulated_pool is not None and "conductor" not in self.settings.model_fields_set:
            return known.make(SIMULATION_CONDUCTOR, pool)
        with toml.error_location(f"{self.file}: conductor"):
            return known.make(self.settings.conductor, pool)

    def conductors(self, find: Callable[[str], Member] | None = None) -> ConductorFactory:
        """Return what makes conductors; `find` finds a worker that writes plans: by default it is built."""
        found = find or (lambda name: self._member(name, self.names))
        return ConductorFactory(
            self.settings.conductors, self.file, self.folder, lambda name: self._endpoint(name, found)
        )

    def resolved(self) -> str:
        """Return the whole configuration with its defaults as JSON, as it is stored with each run."""
        whole = self.settings.model_dump(mode="json")
        whole["workers"] = {name: table.model_dump(mode="json") for name, table in self.workers.items()}
        whole["checks"] = {name: table.model_dump(mode="json") for name, table in self.checks.items()}
        return json.dumps(whole, ensure_ascii=False)

    def fingerprint(self, name: str) -> str | None:
        """Return what decides a worker's answers, as a hash of its own settings; None for one of the embedded."""
        if name not in self.workers:
            return None
        table = self.workers[name]
        own = table.model_dump(mode="json", exclude=set(_NOT_FINGERPRINTED))
        return sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()

    def journal_url(self) -> str:
        """Return where runs are written: the URL that the file gives, else the path of a SQLite file beside it."""
        journal = self.settings.journal
        if journal.url_env is not None:
            return self.vault.read(journal.url_env)
        return journal.url or str((self.folder / journal.file).absolute())

    async def aclose(self) -> None:
        """Close every worker that was built and holds something."""
        members, self._members = self._members, {}
        for member in members.values():
            if isinstance(member.worker, _AsyncClosable):
                await member.worker.aclose()

    def _known(self, names: Sequence[str], where: str) -> tuple[str, ...]:
        for place, name in enumerate(names):
            if name not in self.names:
                raise ConfigError(f"{where}[{place}]: {UnknownName('worker', name, self.names)}")
        return tuple(names)

    def _member(self, name: str, chosen: Sequence[str]) -> Member:
        """Return a worker with its card and checks, built once; a child run's depends on the pool it is in."""
        if self.simulated_pool is not None:
            return self.simulated_pool.named(name)
        if name not in self._members:
            self._members[name] = self._build(name, chosen)
        return self.wrap(self._members[name]) if self.wrap else self._members[name]

    def _build(self, name: str, chosen: Sequence[str]) -> Member:
        table = self.workers[name]
        with toml.error_location(f"{self.file}: workers.{name}"):
            card = self._card(name, table)
            worker = self._child(table, chosen) if table.kind == adapters.CONDUCTOR else self._adapted(card, table)
            undo = self._undo(table, chosen) if table.compensate else None
            return Member(card, worker, tuple(self._handoff(entry) for entry in table.checks), undo)

    def _undo(self, table: WorkerTable, chosen: Sequence[str]) -> Member:
        """Return the compensating worker, which need not be in the pool: only rollbacks call it."""
        name = table.compensate or ""
        other = self.workers[name]
        if other.kind in {adapters.CONDUCTOR, adapters.HUMAN} or other.compensate is not None:
            wanted = "a worker that answers by itself and has no compensate of its own"
            raise ConfigError(f"compensate: {name!r} cannot undo calls; expected {wanted}")
        return self._member(name, chosen)

    def _adapted(self, card: Card, table: WorkerTable) -> Worker:
        module = adapters.worker_module(table.kind)
        return module.build(self._own(module.Settings, table), card, self.vault)

    def _own(self, model: type[BaseModel], table: BaseModel) -> BaseModel:
        """Return an adapter's part of a table, with its relative paths begun in the file's folder."""
        own = adapters.own_settings(model, table)
        paths = {key: self.folder / value for key, value in own if isinstance(value, Path)}
        return own.model_copy(update=paths)

    def _child(self, table: WorkerTable, chosen: Sequence[str]) -> Worker:
        from shikisha.workers.conductor import ConductorWorker

        own = cast("adapters.ChildRunSettings", table)
        names = own.pool or [name for name in chosen if self.workers[name].kind != adapters.CONDUCTOR]
        if table.concurrency is not None and any(self.workers.get(name) is table for name in names):
            raise ConfigError("a child run may call this worker again, and with a concurrency it may wait for itself")
        return ConductorWorker(self.conductor(own.conductor), tuple(names), own.budgets.caps())

    def _card(self, name: str, table: WorkerTable) -> Card:
        card = _common_card(name, table, self.settings.autonomy.approval)
        if table.kind == adapters.CONDUCTOR:
            own = cast("adapters.ChildRunSettings", table)
            seconds = own.budgets.seconds  # its own cap ends it, not ours
            below = [self.workers[name].adds for name in own.pool or self.workers if name in self.workers]
            card = replace(
                card, adds=tuple(sorted(join_labels(card.adds, *below)))
            )  # whoever answered, it may bear them all
            return card if seconds is None or "timeout" in table.model_fields_set else replace(card, timeout=seconds)
        module = adapters.worker_module(table.kind)
        fit_card = getattr(module, "fit_card", None)
        return fit_card(self._own(module.Settings, table), card) if fit_card else card

    def _handoff(self, entry: HandoffTable) -> OutputCheck:
        table = self.checks[entry.check]
        module = adapters.check_module(table.kind)
        with toml.error_location(f"{self.file}: checks.{entry.check}"):
            own = self._own(module.Settings, table)
            judge = self.workers.get(getattr(own, "worker", ""))
            if judge is not None and judge.kind == adapters.CONDUCTOR:
                raise ConfigError("a child run cannot give an opinion: name a worker that answers by itself")
            check = module.build(own, entry.check)
        return OutputCheck(check, entry.on_fail, entry.redo)

    def _endpoint(self, name: str, find: Callable[[str], Member]) -> PlannerEndpoint:
        if name not in self.names:
            raise UnknownName("worker", name, self.names)
        table = self.workers.get(name)
        if table is not None and table.kind == adapters.CONDUCTOR:
            raise ConfigError(f"{name!r} is a child run; a plan is written by an endpoint")
        return PlannerEndpoint(find(name), bool(getattr(table, "structured_output", False)))


def _common_card(name: str, table: WorkerTable, approval: ApprovalMode) -> Card:
    """Return the card as every kind of worker has it."""
    kind = adapters.WORKER_KINDS[table.kind]
    unsaid = None if kind.billed else FREE
    return Card(
        name=name,
        description=table.description,
        kind=table.kind,
        price=table.price.price() if table.price else unsaid,
        max_output_tokens=table.max_output_tokens or kind.max_output_tokens,
        context_tokens=table.context_tokens,
        concurrency=table.concurrency,
        rate=table.rate,
        timeout=table.timeout,
        attempts=table.attempts,
        fallback=table.fallback,
        escalate=table.escalate,
        approval=table.approval or approval,
        compensate=table.compensate,
        skills=table.skills,
        sees=table.sees,
        adds=table.adds,
        takes=tuple(MediaKind) if kind.any_task else (),
    )


CONFIG_FILE = "shikisha.toml"
CONFIG_VARIABLE = "SHIKISHA_CONFIG"


def find_config(given: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: the one given, the one that $SHIKISHA_CONFIG names, or ./shikisha.toml, if any."""
    if given is not None:
        return given
    if environment.get(CONFIG_VARIABLE):
        return Path(environment[CONFIG_VARIABLE])
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None


def load_config(given: Path | None = None, environment: Mapping[str, str] | None = None) -> Container:
    """Read the configuration; ConfigError names file, key and what was expected."""
    environment = os.environ if environment is None else environment
    path = find_config(given, environment)
    if path is None:
        folder = state_folder(environment)
        return Container(ShikishaSettings(), CONFIG_FILE, folder, SecretStore(environment), {}, {}, _simulated_pool)
    file = str(path)
    settings = toml.validate_model(ShikishaSettings, toml.read_toml(path), file)
    workers = {name: adapters.read_worker(name, data, file) for name, data in settings.workers.items()}
    checks = {name: adapters.read_check(name, data, file) for name, data in settings.checks.items()}
    embedded = None if workers else _simulated_pool
    composition = Container(settings, file, path.parent, SecretStore(environment), workers, checks, embedded)
    for key, what, name, known in _name_references(composition):
        if name not in known:
            raise ConfigError(f"{file}: {key}: {UnknownName(what, name, known)}")
    return composition


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return where a journal lives that no configuration places: $XDG_STATE_HOME/shikisha (XDG base directories)."""
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "shikisha"


def _name_references(composition: Container) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """List every name in the file that must be somewhere else: its key, what it is, the name, and those known."""
    workers, checks = composition.names, tuple(composition.checks)
    for place, name in enumerate(composition.settings.pool or ()):
        yield f"pool[{place}]", "worker", name, workers
    for owner, table in composition.workers.items():
        for stand_in in ("fallback", "escalate", "compensate"):
            if (name := getattr(table, stand_in)) is not None:
                yield f"workers.{owner}.{stand_in}", "worker", name, workers
        for place, entry in enumerate(table.checks):
            yield f"workers.{owner}.checks[{place}]", "check", entry.check, checks
        for place, name in enumerate(_child_pool(table)):
            yield f"workers.{owner}.pool[{place}]", "worker", name, workers
    for place, watched in enumerate(composition.settings.autonomy.classes):
        for number, name in enumerate(watched.workers):
            yield f"autonomy.classes[{place}].workers[{number}]", "worker", name, workers
        for name in watched.conductors:
            if ":" not in name:
                yield f"autonomy.classes[{place}].conductor", "conductor", name, tuple(composition.settings.conductors)
    for owner, check in composition.checks.items():
        if isinstance(judge := getattr(check, "worker", None), str):
            yield f"checks.{owner}.worker", "worker", judge, workers
    for owner, conductor in composition.settings.conductors.items():
        if isinstance(conductor, LmTable):
            yield f"conductors.{owner}.endpoint", "worker", conductor.endpoint, workers


def _child_pool(table: WorkerTable) -> tuple[str, ...]:
    return (table.pool or ()) if isinstance(table, adapters.ChildRunSettings) else ()


def _simulated_pool() -> Pool:
    """Return the embedded orchestra: a specialist of each family, the judge, the two simulated models."""
    from shikisha.simulation.task_generator import build_pool
    from shikisha.simulation.vocabulary import WordingSplit
    from shikisha.simulation.worker_profiles import GENERALIST, JUDGE, NOVICE, PROFILES, SPECIALISTS

    chosen = [*SPECIALISTS, PROFILES[JUDGE], PROFILES[NOVICE], PROFILES[GENERALIST]]
    described = [
        " and ".join(offer.by_split[WordingSplit.TRAIN][0] for offer in profile.descriptions) for profile in chosen
    ]
    return build_pool([(profile.name, text) for profile, text in zip(chosen, described, strict=True)])
