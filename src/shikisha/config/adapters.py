"""The registry: which kinds of workers and checks there are, and the module that builds each.

A worker's module exposes `Settings` (pydantic) and `build(settings, card, vault)`; a check's `Settings` and
`build(settings, name)`. A table of the file is validated in one go against what all kinds share plus the adapter's own
keys. Invariant: what is not in these tables cannot be configured; a module is imported when its kind is used.
Deliberately absent: plug-in discovery.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from pydantic import BaseModel, Field, create_model

from shikisha.config.settings import BudgetTable, CheckTable, ConfigTable, WorkerTable
from shikisha.core import toml
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.secrets import SecretStore
from shikisha.engine.checker import Check
from shikisha.engine.worker import Card, Worker

CONDUCTOR, HUMAN = "conductor", "human"
_UPPERCASE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """Where a kind lives; `billed`: unless a price is given nobody can say what a call costs; a limit on answers.

    `any_task`: what is attached to a task hinders none of its calls (a tool gets its subtask alone, a child run has
    workers of its own that can take an attachment or not).
    """

    module: str
    billed: bool = False
    max_output_tokens: int = 0
    any_task: bool = False


WORKER_KINDS: Mapping[str, WorkerKind] = {
    "chat": WorkerKind("shikisha.workers.chat", billed=True, max_output_tokens=4096),
    "http": WorkerKind("shikisha.workers.http", billed=True, any_task=True),
    HUMAN: WorkerKind("shikisha.workers.human"),
    "mcp": WorkerKind("shikisha.workers.mcp", billed=True, any_task=True),
    "python": WorkerKind("shikisha.workers.python", any_task=True),
    "replay": WorkerKind("shikisha.workers.replay"),
    "scripted": WorkerKind("shikisha.workers.scripted", any_task=True),
    "vote": WorkerKind("shikisha.workers.vote", any_task=True),
    CONDUCTOR: WorkerKind("shikisha.workers.conductor", any_task=True),
}

CHECK_MODULES: Mapping[str, str] = {
    kind: f"shikisha.checks.{kind}" for kind in ("fixed", "json_schema", "length", "opinion", "pattern", "predicate")
}


class WorkerAdapter(Protocol):
    """What a worker's module exposes."""

    Settings: type[BaseModel]

    def build(self, settings: BaseModel, card: Card, vault: SecretStore) -> Worker:
        """Build the worker."""
        ...


class CheckAdapter(Protocol):
    """What a check's module exposes."""

    Settings: type[BaseModel]

    def build(self, settings: BaseModel, name: str) -> Check:
        """Build the check."""
        ...


class ChildRunSettings(ConfigTable):
    """A child run as a worker: who conducts it, with which workers of the pool, under which caps of its own."""

    conductor: str = "fixed:single"
    pool: tuple[str, ...] | None = Field(default=None, min_length=1, description="by default all but child runs")
    budgets: BudgetTable = BudgetTable()


def worker_module(kind: str) -> WorkerAdapter:
    """Import a kind's adapter; UnknownName when there is none."""
    if kind not in WORKER_KINDS:
        raise UnknownName("kind of worker", kind, WORKER_KINDS)
    return cast("WorkerAdapter", import_module(WORKER_KINDS[kind].module))


def check_module(kind: str) -> CheckAdapter:
    """Import a kind of check; UnknownName when there is none."""
    if kind not in CHECK_MODULES:
        raise UnknownName("kind of check", kind, CHECK_MODULES)
    return cast("CheckAdapter", import_module(CHECK_MODULES[kind]))


def worker_table(kind: str) -> type[WorkerTable]:
    """Return the model of [workers.NAME] for a kind: the shared keys and the adapter's."""
    own = ChildRunSettings if kind == CONDUCTOR else worker_module(kind).Settings
    return create_model(f"{kind} worker", __base__=(WorkerTable, cast("type[WorkerTable]", own)))


def check_table(kind: str) -> type[CheckTable]:
    """Return the model of [checks.NAME] for a kind."""
    own = check_module(kind).Settings
    return create_model(f"{kind} check", __base__=(CheckTable, cast("type[CheckTable]", own)))


def read_worker(name: str, data: Mapping[str, object], file: str) -> WorkerTable:
    """Validate [workers.NAME]."""
    kind = _read_kind(data, WORKER_KINDS, f"{file}: workers.{name}", "worker")
    _refuse_secrets(data, f"{file}: workers.{name}")
    return toml.validate_model(worker_table(kind), data, file, f"workers.{name}")


def read_check(name: str, data: Mapping[str, object], file: str) -> CheckTable:
    """Validate [checks.NAME]."""
    kind = _read_kind(data, CHECK_MODULES, f"{file}: checks.{name}", "check")
    return toml.validate_model(check_table(kind), data, file, f"checks.{name}")


def own_settings(model: type[BaseModel], table: BaseModel) -> BaseModel:
    """Return an adapter's own part of a validated table."""
    return model.model_validate({key: getattr(table, key) for key in model.model_fields})


def _read_kind(data: Mapping[str, object], known: Mapping[str, object], where: str, what: str) -> str:
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.kind: expected one of {', '.join(known)}")
    if kind not in known:
        raise ConfigError(f"{where}.kind: {UnknownName(f'kind of {what}', kind, known)}")
    return kind


def _refuse_secrets(data: object, where: str) -> None:
    """Refuse a value that stands where the name of an environment variable belongs, without repeating it."""
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
