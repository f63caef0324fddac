"""The registry of adapters: the kinds of workers, checks and guards, the module that builds each, and the extras.

The module of a worker has a pydantic model named `...Settings`, and `build(settings, card, secret_store)`; that of a
guard has one and `build(settings, name)`. The module of a check of kind `length` has `LengthCheckSettings` and
`build_length(settings, name)`; several kinds may share a module. A table is validated against the shared keys and the
adapter's. Invariant: what is not in these tables cannot be configured, and there is no plug-in discovery. An adapter's
module is imported when its kind is used, because some need an optional library.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from pydantic import BaseModel, Field, create_model

from shikisha.config.config_table import ConfigTable
from shikisha.config.settings import BudgetTable, CheckTable, GuardTable, WorkerTable
from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.core.secrets import SecretStore
from shikisha.core.tools import ToolEffect
from shikisha.engine.checker import Check
from shikisha.engine.guards import Guard
from shikisha.engine.worker import Card, Worker
from shikisha.guards.grounded import GroundedGuard
from shikisha.guards.tool_filter import ToolFilter
from shikisha.notes.worker_notes import EncodeTexts

CONDUCTOR, HUMAN, AGENT, EMBEDDING = "conductor", "human", "agent", "embedding"
_UPPERCASE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """An adapter's module, and the defaults of its cards.

    `billed`: without a price the cost of a call is unknown, not zero. `any_task`: attachments of a task never prevent a
    call, because a tool gets its subtask alone, and a child run has workers of its own.
    """

    module: str
    billed: bool = False
    max_output_tokens: int = 0
    any_task: bool = False


WORKER_KINDS: Mapping[str, WorkerKind] = {
    "a2a": WorkerKind("shikisha.workers.a2a", billed=True),
    "chat": WorkerKind("shikisha.workers.chat", billed=True, max_output_tokens=4096),
    EMBEDDING: WorkerKind("shikisha.workers.embedding", billed=True),
    "http": WorkerKind("shikisha.workers.http", billed=True, any_task=True),
    HUMAN: WorkerKind("shikisha.workers.human"),
    "local": WorkerKind("shikisha.workers.local_tools", any_task=True),
    "mcp": WorkerKind("shikisha.workers.mcp", billed=True, any_task=True),
    "python": WorkerKind("shikisha.workers.python", any_task=True),
    "replay": WorkerKind("shikisha.workers.replay"),
    "tests": WorkerKind("shikisha.workers.code_tests", any_task=True),
    "scripted": WorkerKind("shikisha.workers.scripted", any_task=True),
    "vote": WorkerKind("shikisha.workers.vote", any_task=True),
    AGENT: WorkerKind("shikisha.workers.agent"),
    CONDUCTOR: WorkerKind("shikisha.workers.conductor", any_task=True),
}

_TEXT_CHECKS = "shikisha.checks.text_checks"
CHECK_MODULES: Mapping[str, str] = {
    "fixed": _TEXT_CHECKS,
    "json_schema": _TEXT_CHECKS,
    "length": _TEXT_CHECKS,
    "opinion": "shikisha.checks.opinion",
    "pattern": _TEXT_CHECKS,
    "predicate": _TEXT_CHECKS,
}

GUARD_MODULES: Mapping[str, str] = {
    kind: f"shikisha.guards.{kind}" for kind in ("expects", "grounded", "once", "reaches", "unchanged")
}

# The libraries of each optional extra without which its features cannot work.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "edge": ("numpy", "onnxruntime", "tokenizers"),
    "eval": ("jinja2", "numpy"),
    "learn": ("numpy", "scipy", "sklearn"),
    "server": ("fastapi", "uvicorn"),
    "train": ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "torch", "transformers"),
}


def text_encoding() -> EncodeTexts | None:
    """Return how texts are compared by meaning; None where the text encoder cannot run (extra `edge`)."""
    if any(find_spec(library) is None for library in ("numpy", "onnxruntime")):
        return None
    from shikisha.retrieval.text_encoder import shipped_encoder

    return lambda texts: shipped_encoder().encode(texts)


def require_extra(extra: str, purpose: str, *libraries: str) -> None:
    """Raise MissingExtra unless these libraries of an extra are installed; by default all that it needs."""
    if any(find_spec(library) is None for library in libraries or EXTRAS[extra]):
        raise MissingExtra(extra, purpose)


class WorkerAdapter(Protocol):
    """What the module of a worker exposes, besides its settings."""

    __name__: str

    def build(self, settings: BaseModel, card: Card, secret_store: SecretStore) -> Worker:
        """Build the worker."""
        ...


@dataclass(frozen=True, slots=True)
class CheckAdapter:
    """A kind of check: the model of its keys, and what builds it from them and its name."""

    settings: type[BaseModel]
    build: Callable[[BaseModel, str], Check]


class GuardAdapter(Protocol):
    """What the module of a guard exposes, besides its settings."""

    __name__: str

    def build(self, settings: BaseModel, name: str) -> Guard:
        """Build the guard."""
        ...


class ChildRunSettings(ConfigTable):
    """A child run as a worker: its conductor, its pool, and its own caps."""

    conductor: str = Field(default="fixed:single", description="the conductor of the child run")
    pool: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="the workers of the child run; by default all workers but child runs"
    )
    budgets: BudgetTable = Field(default=BudgetTable(), description="hard caps of the child run")


def worker_module(kind: str) -> WorkerAdapter:
    """Import a kind's adapter; UnknownName when there is none."""
    if kind not in WORKER_KINDS:
        raise UnknownName("kind of worker", kind, WORKER_KINDS)
    return cast("WorkerAdapter", import_module(WORKER_KINDS[kind].module))


def check_adapter(kind: str) -> CheckAdapter:
    """Import a kind of check; UnknownName when there is none."""
    if kind not in CHECK_MODULES:
        raise UnknownName("kind of check", kind, CHECK_MODULES)
    module = import_module(CHECK_MODULES[kind])
    settings = f"{kind.title().replace('_', '')}CheckSettings"
    return CheckAdapter(getattr(module, settings), getattr(module, f"build_{kind}"))


def guard_module(kind: str) -> GuardAdapter:
    """Import a kind of guard; UnknownName when there is none."""
    if kind not in GUARD_MODULES:
        raise UnknownName("kind of guard", kind, GUARD_MODULES)
    return cast("GuardAdapter", import_module(GUARD_MODULES[kind]))


def settings_of(module: WorkerAdapter | GuardAdapter) -> type[BaseModel]:
    """Return the keys of an adapter: the one pydantic model of its module whose name ends in `Settings`."""
    own = [each for name, each in vars(module).items() if name.endswith("Settings")]
    models = {each for each in own if isinstance(each, type) and each.__module__ == module.__name__}
    (model,) = (each for each in models if issubclass(each, BaseModel))
    return model


def worker_table(kind: str) -> type[WorkerTable]:
    """Return the model of [workers.NAME] for a kind: the shared keys and the adapter's."""
    own = ChildRunSettings if kind == CONDUCTOR else settings_of(worker_module(kind))
    return create_model(f"{kind} worker", __base__=(WorkerTable, cast("type[WorkerTable]", own)))


def check_table(kind: str) -> type[CheckTable]:
    """Return the model of [checks.NAME] for a kind."""
    own = check_adapter(kind).settings
    return create_model(f"{kind} check", __base__=(CheckTable, cast("type[CheckTable]", own)))


def guard_table(kind: str) -> type[GuardTable]:
    """Return the model of [[workers.NAME.guards]] for a kind."""
    own = settings_of(guard_module(kind))
    return create_model(f"{kind} guard", __base__=(GuardTable, cast("type[GuardTable]", own)))


def read_worker(name: str, data: Mapping[str, object], file: str) -> WorkerTable:
    """Validate [workers.NAME], its guards included."""
    kind = _read_kind(data, WORKER_KINDS, f"{file}: workers.{name}", "worker")
    _refuse_secrets(data, f"{file}: workers.{name}")
    table = toml.validate_model(worker_table(kind), data, file, f"workers.{name}")
    build_guards(table.guards, ToolEffect.UNKNOWN, file, f"workers.{name}")
    return table


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
        kind = _read_kind(data, GUARD_MODULES, f"{file}: {where}", "guard")
        table = toml.validate_model(guard_table(kind), data, file, where)
        module = guard_module(kind)
        with toml.error_location(f"{file}: {where}"):
            guard = module.build(own_settings(settings_of(module), table), table.name or kind)
        kinds.add(kind)
        if table.enabled:
            guards.append(ToolFilter(guard, table.tools) if table.tools else guard)
    if effect is ToolEffect.WRITE and "grounded" not in kinds:
        guards.insert(0, GroundedGuard())
    return tuple(guards)


def read_check(name: str, data: Mapping[str, object], file: str) -> CheckTable:
    """Validate [checks.NAME]."""
    kind = _read_kind(data, CHECK_MODULES, f"{file}: checks.{name}", "check")
    return toml.validate_model(check_table(kind), data, file, f"checks.{name}")


def own_settings(model: type[BaseModel], table: BaseModel) -> BaseModel:
    """Return the adapter's own part of a validated table."""
    return model.model_validate({key: getattr(table, key) for key in model.model_fields})


def _read_kind(data: Mapping[str, object], known: Mapping[str, object], where: str, what: str) -> str:
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.kind: expected one of {', '.join(known)}")
    if kind not in known:
        raise ConfigError(f"{where}.kind: {UnknownName(f'kind of {what}', kind, known)}")
    return kind


def _refuse_secrets(data: object, where: str) -> None:
    """Refuse a value in place of an environment variable's name; the error does not repeat what may be a secret."""
    for path, key, value in _strings(data, where):
        if key.endswith("_env") and not _UPPERCASE_NAME.fullmatch(value):
            raise ConfigError(
                f"{path}: expected the name of an environment variable, in capitals, never the key itself"
            )


def _strings(data: object, path: str, key: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(data, str):
        yield path, key, data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from _strings(value, f"{path}.{name}", str(name))
    elif isinstance(data, Sequence):
        for index, value in enumerate(data):
            yield from _strings(value, f"{path}[{index}]", key)
