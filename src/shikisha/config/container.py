"""The composition root: finds and reads `shikisha.toml`, and wires workers, pools and conductors from it.

The file is `--config`, else $SHIKISHA_CONFIG, else ./shikisha.toml. Invariants: every name that the file refers to
exists, or an error names file, key and the known names; a worker is built, and its key read, when a pool needs it, so
that a missing key stops only the runs that need it; without [workers] there is no pool, and the simulated workers
perform only where somebody wrote their name (`pool = ["simulated"]`), since an answer of theirs looks like any other.
The caller of `load_config` closes the container (`aclose`).
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from shikisha.conductors.fixed_conductors import AgreementConductor, CascadeConductor
from shikisha.config import adapters
from shikisha.config.conductor_settings import OWN_CONDUCTORS, FixedTable, LmTable
from shikisha.config.conductors import TRAINED, ConductorFactory, PlannerEndpoint
from shikisha.config.config_table import PluggedTable
from shikisha.config.context_settings import OWN_SOURCES, PluggedSourceTable
from shikisha.config.environment import CONFIG_FILE, SIMULATED, find_config, state_folder, with_dotenv
from shikisha.config.providers import address_of, provider_at
from shikisha.config.settings import CheckTable, HandoffTable, ShikishaSettings, TelemetryTable, WorkerTable
from shikisha.core import toml
from shikisha.core.budget import FREE, Caps, Price
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import MediaKind
from shikisha.core.secrets import SecretStore
from shikisha.core.tools import ToolEffect
from shikisha.core.visibility import join_labels
from shikisha.engine.autonomy import AutonomyClass, AutonomyPolicy
from shikisha.engine.conductor import LEARNED, Conductor, ReadingConductor, Team, TeamPlace
from shikisha.engine.gatherer import ContextSource
from shikisha.engine.guards import Guard
from shikisha.engine.pool import Agent, Member, OutputCheck, Pool, cut_outside_stand_ins
from shikisha.engine.worker import ApprovalMode, Card, Worker
from shikisha.telemetry import conventions, make_observer
from shikisha.telemetry.attributes import WorkerFacts, describe_worker
from shikisha.tools.catalogue_settings import CatalogueOptions
from shikisha.workers.agent import AgentSettings, WorkerTool, WorkerTools, agent_card, default_effect, tool_names
from shikisha.workers.conductor import ConductorWorker
from shikisha.workers.endpoint import OPENAI_URL
from shikisha.workers.scripted import simulated_pool

if TYPE_CHECKING:
    from shikisha.learned.learning_files import LearningFiles
    from shikisha.learned.outcome_fit import LearningTerms
    from shikisha.telemetry.observer import TelemetryObserver
    from shikisha.tools.catalogue import ToolCatalogue

T = TypeVar("T")

TEAM = "team"  # the kind of conductor that [teams] is of

_REQUEST_ATTRIBUTES = {
    "max_output_tokens": conventions.REQUEST_MAX_TOKENS,
    "temperature": conventions.REQUEST_TEMPERATURE,
    "top_p": conventions.REQUEST_TOP_P,
    "seed": conventions.REQUEST_SEED,
}
# Keys that no worker's answer depends on, so that cached replies stay valid when they change.
_NOT_FINGERPRINTED = frozenset(WorkerTable.model_fields) - {"kind", "max_output_tokens"}


@runtime_checkable
class _AsyncClosable(Protocol):
    async def aclose(self) -> None:
        """Close connections and processes."""
        ...


@dataclass(slots=True)
class Container:
    """A configuration and what is built from it.

    `file` names it in errors, `folder` is the base of its relative paths. `simulated_pool` performs where
    somebody asked for it by name. `wrap`, if set, wraps every configured worker, for example with a cache of replies;
    `wrap_tool` does so where an agent calls it as a tool, unless the worker is a model, which has no state.
    """

    settings: ShikishaSettings
    file: str
    folder: Path
    secret_store: SecretStore
    workers: Mapping[str, WorkerTable]
    checks: Mapping[str, CheckTable]
    simulated_pool: Pool | None = None
    wrap: Callable[[Member], Member] | None = None
    wrap_tool: Callable[[Member], Member] | None = None
    _members: dict[str, Member] = field(default_factory=dict)
    _catalogues: dict[str, "ToolCatalogue"] = field(default_factory=dict)
    _teams: dict[str, Team] = field(default_factory=dict)
    _confirmed: tuple[AutonomyClass, ...] | None = None
    _learning: "LearningFiles | None" = None
    gathers: ContextSource | None = None  # built by `context_source`

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all workers, in order."""
        return tuple(self.workers) if self.simulated_pool is None else self.simulated_pool.names

    @property
    def default_pool(self) -> tuple[str, ...]:
        """The pool where the file has none: all workers but those that compensate, embed, or are agents' tools."""
        others = {table.compensate for table in self.workers.values()}
        others |= {name for table in self.workers.values() for name in agent_tools(table)}
        others |= {name for name, table in self.workers.items() if table.kind == adapters.EMBEDDING}
        return tuple(name for name in self.names if name not in others)

    @property
    def guarded_labels(self) -> frozenset[str]:
        """The data labels that only workers cleared for them may see."""
        return frozenset(self.settings.labels.guarded)

    def autonomy_policy(self, expires: float | None = None) -> AutonomyPolicy:
        """Return the autonomy classes; `expires` applies where the file does not say how long questions wait."""
        table = self.settings.autonomy
        if table.proposed is not None and self._confirmed is None:
            kind = adapters.ADMISSIONS["classes"]
            self._confirmed = cast("tuple[AutonomyClass, ...]", kind.make(table, self.folder))
        return table.autonomy_policy(expires, self._confirmed or ())

    @property
    def caps(self) -> Caps:
        """The caps of one run."""
        return self.settings.budgets.caps()

    def pool(self, names: Sequence[str] = ()) -> Pool:
        """Return the configured pool, or a pool of these workers, without fallbacks outside it."""
        chosen = self._chosen(names)
        if names:
            return Pool([cut_outside_stand_ins(self._member(name, chosen), chosen) for name in chosen])
        return Pool([self._member(name, chosen) for name in chosen])

    def cards(self, names: Sequence[str] = ()) -> tuple[Card, ...]:
        """Return the cards of a pool without building its workers, so that no key is needed."""
        return tuple(self._card_named(name) for name in self._chosen(names))

    def simulate(self) -> None:
        """Let the simulated workers perform in place of the file's: somebody asked for them by name."""
        self.workers, self.simulated_pool = {}, simulated_pool()
        self.settings = self.settings.model_copy(update={"conductor": ShikishaSettings().conductor, "pool": None})

    def _card_named(self, name: str) -> Card:
        team = self._team_with(name)
        if team is not None:
            return team.card(name, self._card_named)
        if self.simulated_pool is not None:
            return self.simulated_pool.named(name).card
        return _build_card(self, name, self.workers[name])

    def team(self, name: str) -> Team:
        """Return [teams.NAME], built once; ConfigError says what of it cannot work."""
        if name not in self.settings.teams:
            raise UnknownName("team", name, self.settings.teams)
        if name not in self._teams:
            cards = {each: self._card_named(each) for each in self.names}
            rounds, guarded = min(self.caps.rounds, self.caps.steps), self.settings.labels.guarded
            place = TeamPlace(name, self.file, self.folder, cards, rounds, guarded)
            build = adapters.CONDUCTOR_KINDS[TEAM].team
            assert build is not None  # noqa: S101 - the plug-in's own tests hold it
            self._teams[name] = build(_read_team(self.settings.teams[name], self.file, name), place)
        return self._teams[name]

    def team_pool(self, spec: str = "") -> tuple[str, ...]:
        """Return the pool that a conductor brings, a team its roles; none where it conducts any pool."""
        kind, _, rest = (spec or self.settings.conductor).partition(":")
        return self.team(rest.partition("?")[0]).member_names if kind == TEAM and rest else ()

    def team_workers(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the workers behind these names: of a team's roles those that play them."""
        found: dict[str, None] = {}
        for name in names:
            team = self._team_with(name)
            if team is None:
                found[name] = None
            elif (worker := team.worker_of(name)) is not None:
                found[worker] = None
        return tuple(found)

    def _team_with(self, name: str) -> Team | None:
        """Return the team that has a member of this name."""
        owner, slash, _ = name.partition("/")
        if not slash or name in self.names or owner not in self.settings.teams:
            return None
        team = self.team(owner)
        return team if name in team.member_names else None

    def catalogue(self, name: str) -> "ToolCatalogue":
        """Return [catalogues.NAME], built once; nothing is read of it before its first use."""
        if name not in self.settings.catalogues:
            raise UnknownName("catalogue", name, self.settings.catalogues)
        if name not in self._catalogues:
            self._catalogues[name] = _build_catalogue(self, name, self.settings.catalogues[name])
        return self._catalogues[name]

    def lock_path(self, name: str) -> Path:
        """Return where the lock of [catalogues.NAME] is."""
        return self.folder / (self.settings.catalogues[name].lock or f"{name}.tools.jsonl")

    def conductor(self, spec: str = "", pool: Pool | None = None, *, learns: bool = False) -> Conductor:
        """Return a conductor by name; with a pool, check that the workers it names are in there.

        `learns`: where learning is on, the learner performs what it proposes.
        """
        known, learns = self.conductors(), learns and self.settings.learning.on and self.simulated_pool is None
        if spec:
            return known.make(learned_name(self, spec) if learns else spec, pool)
        with toml.error_location(f"{self.file}: conductor"):
            own = self.settings.conductor
            return known.make(learned_name(self, own) if learns else own, pool)

    def conductors(self, find: Callable[[str], Member] | None = None) -> ConductorFactory:
        """Return the factory of conductors; `find` returns a worker that writes plans, by default by building it."""
        find_member = find or (lambda name: self._member(name, self.names))
        return ConductorFactory(
            self.settings.conductors,
            self.file,
            self.folder,
            lambda name: _planner_endpoint(self, name, find_member),
            partial(_put_learner, self),
            self.settings.teams,
            lambda name: (_read_team(self.settings.teams[name], self.file, name), self.team(name)),
        )

    def learning_files(self) -> "LearningFiles":
        """Return the learner's folder, opened once; MissingExtra where its libraries are not installed."""
        if self._learning is None:
            adapters.require_extra("edge", "[learning]", "numpy", "onnxruntime")
            from shikisha.learned.learning_files import LearningFiles
            from shikisha.retrieval.text_encoder import shipped_encoder

            table = self.settings.learning
            encode = shipped_encoder().encode
            self._learning = LearningFiles(self.folder / table.folder, table.phrases, encode)
        return self._learning

    def learning_terms(self) -> "LearningTerms":
        """Return what the learner may do, as configured."""
        from shikisha.learned.outcome_fit import LearningTerms

        table = self.settings.learning
        return LearningTerms(table.worth, table.dollars_share, table.phrases)

    def resolved(self) -> str:
        """Return the whole configuration, defaults included, as the JSON that is stored with each run."""
        whole = self.settings.model_dump(mode="json")
        whole["workers"] = {name: table.model_dump(mode="json") for name, table in self.workers.items()}
        whole["checks"] = {name: table.model_dump(mode="json") for name, table in self.checks.items()}
        return json.dumps(whole, ensure_ascii=False)

    def fingerprint(self, name: str) -> str | None:
        """Return a hash of the settings that decide a worker's answers; None for a simulated worker."""
        if name not in self.workers:
            return None
        table = self.workers[name]
        own = table.model_dump(mode="json", exclude=set(_NOT_FINGERPRINTED))
        parts = [own, self.fingerprint(table.endpoint)] if isinstance(table, AgentSettings) else own
        return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def journal_url(self) -> str:
        """Return where runs are recorded: the configured URL, else the path of the SQLite file."""
        journal = self.settings.journal
        if journal.url_env is not None:
            return self.secret_store.read(journal.url_env)
        return journal.url or str((self.folder / journal.file).absolute())

    def share_secrets(self, secret_store: SecretStore) -> None:
        """Use a store that others scrub with, from now on with this configuration's variables."""
        secret_store.renew(self.secret_store)
        self.secret_store = secret_store
        self._members.clear()  # built to check conductors, with the store that is gone
        self._catalogues.clear()

    async def aclose(self) -> None:
        """Close every worker that was built and can be closed."""
        catalogues, self._catalogues = self._catalogues, {}
        for catalogue in catalogues.values():
            await catalogue.aclose()
        members, self._members = self._members, {}
        for member in members.values():
            if isinstance(member.worker, _AsyncClosable):
                await member.worker.aclose()

    def _chosen(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return these workers, by default the configured ones; ConfigError for unknown ones, or where none are."""
        if not self.names:
            raise ConfigError(
                f'{self.file} names no workers: expected a table [workers.NAME], or pool = ["{SIMULATED}"] to play '
                "with simulated ones"
            )
        asked = [] if self.simulated_pool is not None and list(names) == [SIMULATED] else names
        where = "--pool" if asked else f"{self.file}: pool"
        return self._known(asked or self.settings.pool or self.default_pool, where)

    def _known(self, names: Sequence[str], where: str) -> tuple[str, ...]:
        for place, name in enumerate(names):
            if name not in self.names and self._team_with(name) is None:
                raise ConfigError(f"{where}[{place}]: {UnknownName('worker', name, self.names)}")
        return tuple(names)

    def _member(self, name: str, chosen: Sequence[str]) -> Member:
        """Return a worker with its card and checks, built once; that of a child run depends on the pool it is in."""
        team = self._team_with(name)
        if team is not None:
            return team.member(name, lambda worker: self._member(worker, self.names))
        if self.simulated_pool is not None:
            return self.simulated_pool.named(name)
        if name not in self._members:
            self._members[name] = self._build(name, chosen)
        return self.wrap(self._members[name]) if self.wrap else self._members[name]

    def _build(self, name: str, chosen: Sequence[str]) -> Member:
        table = self.workers[name]
        with toml.error_location(f"{self.file}: workers.{name}"):
            card = _build_card(self, name, table)
            if isinstance(table, AgentSettings):
                return self._agent(card, table, chosen)
            worker = (
                self._child_run(table, chosen)
                if table.kind == adapters.CONDUCTOR
                else adapters.WORKER_KINDS[table.kind].make(table, self.folder, card, self.secret_store)
            )
            undo = self._compensation(table, chosen) if table.compensate else None
            handoffs = tuple(_build_handoff(self, entry) for entry in table.checks)
            return Member(card, worker, handoffs, undo, self._guards(name, table))

    def _agent(self, card: Card, table: WorkerTable, chosen: Sequence[str]) -> Member:
        """Return a worker with tools: its endpoint's, with the loop and the tools that the table names."""
        own = cast("AgentSettings", table)
        sources = [self.catalogue(name[1:]) for name in own.tools if name.startswith("@")]
        names = [name for name in own.tools if not name.startswith("@")]
        tool_names(names)
        tools = [self._tool(name, chosen) for name in names]
        agent = Agent((*([WorkerTools(tools)] if tools else ()), *sources), own.turns, own.offer, own.parallel)
        undo = self._compensation(table, chosen) if table.compensate else None
        handoffs = tuple(_build_handoff(self, entry) for entry in table.checks)
        return Member(card, self._member(own.endpoint, chosen).worker, handoffs, undo, agent=agent)

    def _tool(self, name: str, chosen: Sequence[str]) -> WorkerTool:
        table = self.workers[name]
        if table.kind == adapters.AGENT:
            raise ConfigError(f"tools: {name!r} is an agent; expected a tool, or a child run whose pool has the agent")
        member = self._member(name, chosen)
        own = self._members[name]
        if self.wrap_tool is not None and table.kind != "chat":
            member = self.wrap_tool(own)
        return WorkerTool(member, tool_effect(table), table.idempotent, own.worker)

    def _compensation(self, table: WorkerTable, chosen: Sequence[str]) -> Member:
        """Return the worker that compensates this one. It need not be in the pool, because only rollbacks call it."""
        name = table.compensate or ""
        other = self.workers[name]
        if other.kind in {adapters.CONDUCTOR, adapters.HUMAN} or other.compensate is not None:
            wanted = "a worker that makes its own calls and has no compensate of its own"
            raise ConfigError(f"compensate: {name!r} cannot undo calls; expected {wanted}")
        return self._member(name, chosen)

    def _child_run(self, table: WorkerTable, chosen: Sequence[str]) -> Worker:
        own = cast("adapters.ChildRunSettings", table)
        names = own.pool or [name for name in chosen if self.workers[name].kind != adapters.CONDUCTOR]
        if table.concurrency is not None and any(self.workers.get(name) is table for name in names):
            raise ConfigError(
                "a child run may call this worker again, and with a limited concurrency it would wait for itself"
            )
        return ConductorWorker(self.conductor(own.conductor), tuple(names), own.budgets.caps())

    def _guards(self, name: str, table: WorkerTable) -> tuple[Guard, ...]:
        """Return the guards of a worker that agents call as a tool."""
        return adapters.build_guards(table.guards, tool_effect(table), self.file, f"workers.{name}")


def _read_team(table: Mapping[str, object], file: str, name: str) -> BaseModel:
    """Return [teams.NAME] as the plug-in that brings teams reads it."""
    with toml.error_location(f"{file}: teams.{name}"):
        kind = adapters.CONDUCTOR_KINDS[TEAM]
    return toml.validate_model(kind.settings, table, file, f"teams.{name}")


def _build_catalogue(own: Container, name: str, table: CatalogueOptions) -> "ToolCatalogue":
    # Imported here because few configurations have catalogues, and each command would wait for them.
    from shikisha.tools import catalogue, lock_file

    files = {"ranker": table.ranker, "encoder": table.encoder}
    options = table.model_copy(update={key: file and own.folder / file for key, file in files.items()})
    price = None if table.price is None else Price(call=table.price)
    load = partial(lock_file.read_lock, own.lock_path(name), name, table.sha256 or "", table.adds, price)
    guards = cache(lambda effect: adapters.build_guards(table.guards, effect, own.file, f"catalogues.{name}"))
    guards(ToolEffect.UNKNOWN)  # a wrong table is said at once
    return catalogue.ToolCatalogue(name, options, load, own.secret_store, own.settings.autonomy.approval, guards)


def _build_handoff(own: Container, entry: HandoffTable) -> OutputCheck:
    table = own.checks[entry.check]
    with toml.error_location(f"{own.file}: checks.{entry.check}"):
        judge = own.workers.get(getattr(table, "worker", ""))
        if judge is not None and judge.kind == adapters.CONDUCTOR:
            raise ConfigError("a child run cannot give an opinion: name a worker that makes its own calls")
        check = adapters.CHECK_KINDS[table.kind].make(table, own.folder, entry.check)
    return OutputCheck(check, entry.on_fail, entry.redo)


def _planner_endpoint(own: Container, name: str, find: Callable[[str], Member]) -> PlannerEndpoint:
    if name not in own.names:
        raise UnknownName("worker", name, own.names)
    table = own.workers.get(name)
    if table is not None and table.kind == adapters.CONDUCTOR:
        raise ConfigError(f"{name!r} is a child run; expected a worker that is a chat endpoint")
    return PlannerEndpoint(find(name), bool(getattr(table, "structured_output", False)))


def _build_card(own: Container, name: str, table: WorkerTable) -> Card:
    card = _common_card(name, table, own.settings.autonomy.approval)
    if table.kind == adapters.CONDUCTOR:
        child = cast("adapters.ChildRunSettings", table)
        seconds = child.budgets.seconds  # the cap of the child run ends it, not the time limit of an attempt
        below = [own.workers[name].adds for name in child.pool or own.workers if name in own.workers]
        # The answer may come from any of the workers below, so it carries the labels of all.
        card = replace(card, adds=tuple(sorted(join_labels(card.adds, *below))))
        return card if seconds is None or "timeout" in table.model_fields_set else replace(card, timeout=seconds)
    if isinstance(table, AgentSettings):
        endpoint = _build_card(own, table.endpoint, own.workers[table.endpoint])
        return agent_card(card, endpoint, frozenset(cast("WorkerTable", table).model_fields_set))
    kind = adapters.WORKER_KINDS[table.kind]
    return kind.fit_card(kind.own_settings(table, own.folder), card) if kind.fit_card else card


def learned_name(own: Container, name: str) -> str:
    """Return the name of the learner over a conductor, where that proposes plans and names no workers of its own."""
    table, (kind, _, rest) = own.settings.conductors.get(name), name.partition(":")
    free = isinstance(table, FixedTable) and not table.workers
    if table is None:
        free = kind == "lm" or (kind == "fixed" and "?" not in rest)
    return f"{LEARNED}{name}" if free or isinstance(table, LmTable) or getattr(table, "kind", "") == TRAINED else name


def _put_learner(own: Container, name: str, conductor: Conductor) -> Conductor:
    from shikisha.conductors.learned_conductor import LearnedConductor

    if isinstance(conductor, CascadeConductor | AgreementConductor):
        return conductor  # it decides by its own rounds
    forms = not isinstance(conductor, ReadingConductor)
    return LearnedConductor(name, conductor, own.learning_files().model, own.learning_terms(), forms)


def tool_effect(table: WorkerTable) -> ToolEffect:
    """Return what a call of a worker as a tool may do."""
    return table.effect or default_effect(table.kind, str(getattr(table, "method", "")))


def agent_tools(table: WorkerTable) -> tuple[str, ...]:
    """Return the tools that a worker names, if it is an agent."""
    return table.tools if isinstance(table, AgentSettings) else ()


def _common_card(name: str, table: WorkerTable, approval: ApprovalMode) -> Card:
    """Return the part of a card that every kind of worker shares."""
    kind = adapters.WORKER_KINDS[table.kind]
    default_price = None if kind.billed else FREE
    return Card(
        name=name,
        description=table.description,
        kind=table.kind,
        price=table.price.price() if table.price else default_price,
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


def load_config(given: Path | None = None, environment: Mapping[str, str] | None = None) -> Container:
    """Read the configuration; ConfigError names file, key and what was expected."""
    environment = os.environ if environment is None else environment
    path = find_config(given, environment)
    if path is None:
        folder = state_folder(environment)
        secret_store = SecretStore(with_dotenv(environment, Path()))
        return Container(ShikishaSettings(), CONFIG_FILE, folder, secret_store, {}, {})
    file = str(path)
    return build_container(toml.read_toml(path), file, path.parent, with_dotenv(environment, path.parent))


def build_container(
    data: Mapping[str, object], file: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Container:
    """Validate the tables of a configuration, wherever they came from; `file` names them in errors."""
    problems: list[str] = []
    simulated = data.get("pool") == [SIMULATED] and not data.get("workers")
    if simulated:
        data = {key: value for key, value in data.items() if key != "pool"}
    settings = _read_all(problems, lambda: toml.validate_model(ShikishaSettings, data, file))
    given = {key: named for key in ("workers", "checks") if isinstance(named := data.get(key), Mapping)}
    workers = _read_tables(problems, given.get("workers", {}), file, adapters.read_worker)
    checks = _read_tables(problems, given.get("checks", {}), file, adapters.read_check)
    if settings is not None:
        for name, table in settings.teams.items():
            _read_all(problems, partial(_read_team, table, file, name))
        if settings.autonomy.proposed is not None:
            _read_all(problems, partial(adapters.find_classes, file))
        for name, table in settings.plans.items():
            _read_all(problems, partial(adapters.read_plan, table, file, name))
    # From the file and not from `settings`, which is None where anything else in it is wrong.
    for kinds, own, model, *keys in _PLUGGED:
        tables: object = data
        for key in keys:
            tables = tables.get(key) if isinstance(tables, Mapping) else None
        for name, raw in tables.items() if isinstance(tables, Mapping) else ():
            with suppress(ValidationError):  # which is among the problems of `settings`
                plugged = model.model_validate(raw)
                if plugged.kind not in own:
                    where = f"{'.'.join(keys)}.{name}"
                    _read_all(problems, partial(adapters.read_plugged, kinds, plugged, file, where))
    if problems or settings is None:
        raise ConfigError("\n".join(problems))
    pointed = address_of("openai", os.environ if environment is None else environment)
    workers = {name: _with_address(table, pointed) for name, table in workers.items()}
    pool = simulated_pool() if simulated else None
    composition = Container(settings, file, folder, SecretStore(environment), workers, checks, pool)
    unknown = [
        f"{file}: {key}: {UnknownName(what, name, known)}"
        for key, what, name, known in _name_references(composition)
        if name not in known
    ]
    if unknown:
        raise ConfigError("\n".join(unknown))
    return composition


_PLUGGED: tuple[tuple[Any, ...], ...] = (  # registry, the kinds that are ours, the model of a table, its place
    (adapters.CONDUCTOR_KINDS, OWN_CONDUCTORS, PluggedTable, "conductors"),
    (adapters.GATHERER_KINDS, OWN_SOURCES, PluggedSourceTable, "context", "sources"),
)


def _with_address(table: WorkerTable, pointed: str | None) -> WorkerTable:
    """Return a worker without `base_url` as one where OPENAI_BASE_URL points, as OpenAI's own client reads it."""
    default = getattr(table, "base_url", None) == OPENAI_URL and "base_url" not in table.model_fields_set
    return table.model_copy(update={"base_url": pointed}) if pointed and default else table


def _read_all(problems: list[str], read: Callable[[], T]) -> T | None:
    """Return what is read; where it is wrong, note all that is wrong and go on with what else there is."""
    try:
        return read()
    except ConfigError as error:
        problems.append(str(error))
        return None


def _read_tables(
    problems: list[str],
    tables: Mapping[str, object],
    file: str,
    read: Callable[[str, Mapping[str, object], str], T],
) -> dict[str, T]:
    """Return the tables that are right; note what is wrong with each of the others."""
    found: dict[str, T] = {}
    for name, table in tables.items():
        if isinstance(table, Mapping):
            made = _read_all(problems, partial(read, name, table, file))
            found |= {} if made is None else {name: made}
    return found


def _name_references(composition: Container) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield every reference in the file: its key, what it refers to, the name, and the known names."""
    workers = composition.names
    for place, name in enumerate(composition.settings.pool or ()):
        yield f"pool[{place}]", "worker", name, workers
    for owner, table in composition.workers.items():
        for key, what, name, known in _worker_references(table, composition):
            yield f"workers.{owner}.{key}", what, name, known
    for place, task_class in enumerate(composition.settings.autonomy.classes):
        for number, name in enumerate(task_class.workers):
            yield f"autonomy.classes[{place}].workers[{number}]", "worker", name, workers
        for name in task_class.conductors:
            if ":" not in name:
                yield f"autonomy.classes[{place}].conductor", "conductor", name, tuple(composition.settings.conductors)
    for owner, check in composition.checks.items():
        if isinstance(judge := getattr(check, "worker", None), str):
            yield f"checks.{owner}.worker", "worker", judge, workers
    for owner, conductor in composition.settings.conductors.items():
        if isinstance(conductor, LmTable):
            yield f"conductors.{owner}.endpoint", "worker", conductor.endpoint, workers


def _worker_references(table: WorkerTable, composition: Container) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    workers = composition.names
    for key in ("fallback", "escalate", "compensate"):
        if (name := getattr(table, key)) is not None:
            yield key, "worker", name, workers
    for place, entry in enumerate(table.checks):
        yield f"checks[{place}]", "check", entry.check, tuple(composition.checks)
    for place, name in enumerate((table.pool or ()) if isinstance(table, adapters.ChildRunSettings) else ()):
        yield f"pool[{place}]", "worker", name, workers
    if isinstance(table, AgentSettings):
        chat = tuple(name for name, other in composition.workers.items() if other.kind == "chat")
        yield "endpoint", "chat worker", table.endpoint, chat
        for place, name in enumerate(agent_tools(table)):
            if name.startswith("@"):
                yield f"tools[{place}]", "catalogue", name[1:], tuple(composition.settings.catalogues)
            else:
                yield f"tools[{place}]", "worker", name, workers


def build_observer(
    container: Container,
    table: TelemetryTable,
    figures: Callable[[], Mapping[str, float]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> "TelemetryObserver | None":
    """Return the observer that exports a container's runs, None where nothing is exported; shut it down in a thread."""
    settings = table.wanted(container.secret_store, os.environ if environment is None else environment)
    return (
        None
        if settings is None
        else make_observer(settings, container.secret_store, known_worker_facts(container), figures)
    )


def known_worker_facts(container: Container) -> dict[str, WorkerFacts]:
    """Return what telemetry may report of each worker."""
    if container.simulated_pool is not None:
        cards = [member.card for member in container.simulated_pool]
        return {card.name: describe_worker(card.name, card.kind, card.description) for card in cards}
    tables = container.workers
    return {name: _facts_of_table(name, table, tables) for name, table in tables.items()}


def _facts_of_table(name: str, own: WorkerTable, tables: Mapping[str, WorkerTable]) -> WorkerFacts:
    table = tables[own.endpoint] if isinstance(own, AgentSettings) else own
    url = str(getattr(table, "base_url", "") or getattr(table, "url", "") or "")
    request = {attribute: getattr(table, key, None) for key, attribute in _REQUEST_ATTRIBUTES.items()}
    return describe_worker(
        name,
        own.kind,
        own.description,
        model=str(getattr(table, "model", "")),
        url=url,
        provider=provider_at(urlsplit(url).hostname or ""),
        request={key: value for key, value in request.items() if value is not None},
    )
