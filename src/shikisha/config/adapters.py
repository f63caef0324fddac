"""The registries of adapters: the kinds of workers, checks and guards, and the extras.

A table is validated against the shared keys and those of its kind. Invariant: what is neither in these tables nor
brought by an installed distribution (`core.kinds`) cannot be configured. An adapter's module is imported when its kind
is used, because some need an optional library.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar, cast

from pydantic import BaseModel, Field, create_model

from shikisha.config.conductor_settings import OWN_CONDUCTORS
from shikisha.config.config_table import ConfigTable, PluggedTable
from shikisha.config.context_settings import OWN_SOURCES, SourceBase
from shikisha.config.settings import BudgetTable, CheckTable, GuardTable, WorkerTable
from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra, UnknownName, close_name
from shikisha.core.kinds import Kind, Registry
from shikisha.core.tools import ToolEffect
from shikisha.engine.conductor import Conductor, ConductorKind
from shikisha.engine.gatherer import Gatherer
from shikisha.engine.guards import Guard
from shikisha.engine.pool import Check
from shikisha.engine.worker import WorkerKind
from shikisha.guards.grounded import GroundedGuard, ToolFilter

CONDUCTOR, HUMAN, AGENT, EMBEDDING = "conductor", "human", "agent", "embedding"
K = TypeVar("K")
M = TypeVar("M", bound=BaseModel)
KIND = TypeVar("KIND", bound="Kind[Conductor] | Kind[Gatherer]")
_UPPERCASE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)


WORKER_KINDS: Registry[WorkerKind] = Registry(
    "workers",
    "kind of worker",
    WorkerKind,
    {
        "chat": "shikisha.workers.chat",
        EMBEDDING: "shikisha.workers.embedding",
        "http": "shikisha.workers.http",
        HUMAN: "shikisha.workers.human",
        "local": "shikisha.workers.local_tools",
        "mcp": "shikisha.workers.mcp",
        "python": "shikisha.workers.python",
        "replay": "shikisha.workers.replay",
        "scripted": "shikisha.workers.scripted",
        "vote": "shikisha.workers.vote",
        AGENT: "shikisha.workers.agent",
        CONDUCTOR: "shikisha.config.adapters:CHILD_RUN",
    },
    {"a2a": "shikisha-a2a", "tests": "shikisha-role-teams"},
)
CHECK_KINDS: Registry[Kind[Check]] = Registry(
    "checks",
    "kind of check",
    Kind,
    {
        **{
            kind: f"shikisha.checks.text_checks:{kind.upper()}"
            for kind in ("fixed", "json_schema", "length", "pattern", "predicate")
        },
        "opinion": "shikisha.checks.opinion:OPINION",
    },
)
GUARD_KINDS: Registry[Kind[Guard]] = Registry(
    "guards",
    "kind of guard",
    Kind,
    {
        **{kind: f"shikisha.guards.{kind}" for kind in ("grounded", "once")},
        **{kind: f"shikisha.guards.probing_guards:{kind.upper()}" for kind in ("expects", "reaches", "unchanged")},
    },
)
CONDUCTOR_KINDS: Registry[ConductorKind] = Registry(
    "conductors",
    "kind of conductor",
    ConductorKind,
    {},
    {
        "chat": "shikisha-group-chat",
        "head": "shikisha-train",
        "team": "shikisha-role-teams",
        "trained": "shikisha-train",
    },
    OWN_CONDUCTORS,
)
ADMISSIONS: Registry[Kind[object]] = Registry(
    "admissions", "admission", Kind, {}, {"classes": "shikisha-classes", "plans": "shikisha-margin"}
)
GATHERER_KINDS: Registry[Kind[Gatherer]] = Registry("gatherers", "kind of context source", Kind, {}, None, OWN_SOURCES)

# The libraries of each optional extra without which its features cannot work.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "edge": ("numpy", "onnxruntime", "tokenizers"),
    "eval": ("jinja2", "numpy"),
    "learn": ("numpy", "scipy", "sklearn"),
    "server": ("fastapi", "uvicorn"),
    "train": ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "torch", "transformers"),
}


def require_extra(extra: str, purpose: str, *libraries: str) -> None:
    """Raise MissingExtra unless these libraries of an extra are installed; by default all that it needs."""
    if any(find_spec(library) is None for library in libraries or EXTRAS[extra]):
        raise MissingExtra(extra, purpose)


class ChildRunSettings(ConfigTable):
    """A child run as a worker: its conductor, its pool, and its own caps."""

    conductor: str = Field(default="fixed:single", description="the conductor of the child run")
    pool: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="the workers of the child run; by default all workers but child runs"
    )
    budgets: BudgetTable = Field(default=BudgetTable.model_construct(), description="hard caps of the child run")


CHILD_RUN = WorkerKind(settings=ChildRunSettings, any_task=True, uncalled="it calls the others")


def worker_table(kind: str) -> type[WorkerTable]:
    """Return the model of [workers.NAME] for a kind: the shared keys and the adapter's."""
    own = cast("type[WorkerTable]", WORKER_KINDS[kind].settings)
    return create_model(f"{kind} worker", __base__=(WorkerTable, own))


def check_table(kind: str) -> type[CheckTable]:
    """Return the model of [checks.NAME] for a kind."""
    own = cast("type[CheckTable]", CHECK_KINDS[kind].settings)
    return create_model(f"{kind} check", __base__=(CheckTable, own))


def guard_table(kind: str) -> type[GuardTable]:
    """Return the model of [[workers.NAME.guards]] for a kind."""
    own = cast("type[GuardTable]", GUARD_KINDS[kind].settings)
    return create_model(f"{kind} guard", __base__=(GuardTable, own))


def conductor_table(kind: str) -> type[BaseModel]:
    """Return the model of [conductors.NAME] for a kind that a plug-in brings."""
    kinds = (str, Field(description="the kind of conductor"))
    return create_model(f"{kind} conductor", __base__=CONDUCTOR_KINDS[kind].settings, kind=kinds)


def source_table(kind: str) -> type[BaseModel]:
    """Return the model of [context.sources.NAME] for a kind that a plug-in brings."""
    base = (GATHERER_KINDS[kind].settings, SourceBase)
    return create_model(f"{kind} source", __base__=base, kind=(str, Field(description="the kind of source")))


def read_worker(name: str, data: Mapping[str, object], file: str) -> WorkerTable:
    """Validate [workers.NAME], its guards included."""
    where = f"{file}: workers.{name}"
    problems = [  # a value in place of a variable's name may be a secret, and is not repeated
        f"{path}: expected the name of an environment variable, in capitals, never the key itself"
        for path, key, value in _strings(data, where)
        if key.endswith("_env") and not _UPPERCASE_NAME.fullmatch(value)
    ]
    try:
        _, table = _read_kind(data, WORKER_KINDS, worker_table, WorkerTable, file, f"workers.{name}")
    except ConfigError as error:
        raise ConfigError("\n".join([*problems, str(error)])) from None
    if problems:
        raise ConfigError("\n".join(problems))
    build_guards(table.guards, ToolEffect.UNKNOWN, file, f"workers.{name}")
    return table


def read_plugged(registry: Registry[KIND], table: PluggedTable, file: str, where: str) -> BaseModel:
    """Return a plug-in's own keys of a table, validated; ConfigError, where no plug-in brings the kind too."""
    with toml.error_location(f"{file}: {where}.kind"):
        kind = registry[table.kind]
    return toml.validate_model(kind.settings, table.model_extra or {}, file, where)


def find_classes(file: str) -> Kind[object]:
    """Return what reads proposed classes; ConfigError where no plug-in does."""
    with toml.error_location(f"{file}: autonomy.proposed"):
        return ADMISSIONS["classes"]


def read_plan(table: Mapping[str, object], file: str, name: str) -> BaseModel:
    """Return [plans.NAME] as the plug-in that keeps rate plans reads it."""
    with toml.error_location(f"{file}: plans.{name}"):
        kind = ADMISSIONS["plans"]
    return toml.validate_model(kind.settings, table, file, f"plans.{name}")


def build_guards(
    tables: Sequence[Mapping[str, object]], effect: ToolEffect, file: str, owner: str
) -> tuple[Guard, ...]:
    """Return the guards of a tool, in order; ConfigError names the table and key that is wrong.

    A tool that is known to write is guarded by `grounded` first, unless a table of that kind says otherwise.
    """
    guards: list[Guard] = []
    kinds: set[str] = set()
    for place, data in enumerate(tables):
        where = f"{owner}.guards[{place}]"
        kind, table = _read_kind(data, GUARD_KINDS, guard_table, GuardTable, file, where)
        with toml.error_location(f"{file}: {where}"):
            guard = GUARD_KINDS[kind].make(table, Path(), table.name or kind)
        kinds.add(kind)
        if table.enabled:
            guards.append(ToolFilter(guard, table.tools) if table.tools else guard)
    if effect is ToolEffect.WRITE and "grounded" not in kinds:
        guards.insert(0, GroundedGuard())
    return tuple(guards)


def read_check(name: str, data: Mapping[str, object], file: str) -> CheckTable:
    """Validate [checks.NAME]."""
    return _read_kind(data, CHECK_KINDS, check_table, CheckTable, file, f"checks.{name}")[1]


def _read_kind(
    data: Mapping[str, object],
    known: Registry[K],
    table_of: Callable[[str], type[M]],
    shared: type[M],
    file: str,
    where: str,
) -> tuple[str, M]:
    """Return the kind that a table names, and the table; ConfigError where it does not fit the kind.

    Where there is no such kind, the rest is checked all the same: by the keys of the kind that was probably meant, else
    by those that all kinds have.
    """
    kind = data.get("kind")
    try:
        if not isinstance(kind, str):
            raise ConfigError(f"expected one of {', '.join(sorted(known))}")
        known[kind]
    except ConfigError as error:
        problems = [f"{file}: {where}.kind: {error}"]
        meant = close_name(kind, known) if isinstance(kind, str) and isinstance(error, UnknownName) else None
        given = {key: value for key, value in data.items() if meant is not None or key in shared.model_fields}
        try:
            model = shared if meant is None else table_of(meant)
            toml.validate_model(model, {**given, "kind": meant or ""}, file, where)
        except ConfigError as more:
            problems.append(str(more))
        raise ConfigError("\n".join(problems)) from None
    return kind, toml.validate_model(table_of(kind), data, file, where)


def _strings(data: object, path: str, key: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(data, str):
        yield path, key, data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from _strings(value, f"{path}.{name}", str(name))
    elif isinstance(data, Sequence):
        for index, value in enumerate(data):
            yield from _strings(value, f"{path}[{index}]", key)
