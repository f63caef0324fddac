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

from shikisha import toml
from shikisha.checker import Check
from shikisha.config.settings import BudgetTable, CheckTable, WorkerTable
from shikisha.config.table import Table
from shikisha.errors import ConfigError, UnknownName
from shikisha.secrets import Vault
from shikisha.worker import Card, Worker

CONDUCTOR, HUMAN = "conductor", "human"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a kind lives; `billed`: unless a price is given nobody can say what a call costs; a limit on answers.

    `any_task`: what is attached to a task hinders none of its calls (a tool gets its subtask alone, a child run has
    workers of its own that can take an attachment or not).
    """

    module: str
    billed: bool = False
    max_output_tokens: int = 0
    any_task: bool = False


WORKERS: Mapping[str, Kind] = {
    "chat": Kind("shikisha.workers.chat", billed=True, max_output_tokens=4096),
    "http": Kind("shikisha.workers.http", billed=True, any_task=True),
    HUMAN: Kind("shikisha.workers.human"),
    "mcp": Kind("shikisha.workers.mcp", billed=True, any_task=True),
    "python": Kind("shikisha.workers.python", any_task=True),
    "replay": Kind("shikisha.workers.replay"),
    "scripted": Kind("shikisha.workers.scripted", any_task=True),
    "vote": Kind("shikisha.workers.vote", any_task=True),
    CONDUCTOR: Kind("shikisha.workers.conductor", any_task=True),
}

CHECKS: Mapping[str, str] = {
    kind: f"shikisha.checks.{kind}" for kind in ("fixed", "json_schema", "length", "opinion", "pattern", "predicate")
}


class WorkerModule(Protocol):
    """What a worker's module exposes."""

    Settings: type[BaseModel]

    def build(self, settings: BaseModel, card: Card, vault: Vault) -> Worker:
        """Build the worker."""
        ...


class CheckModule(Protocol):
    """What a check's module exposes."""

    Settings: type[BaseModel]

    def build(self, settings: BaseModel, name: str) -> Check:
        """Build the check."""
        ...


class ChildSettings(Table):
    """A child run as a worker: who conducts it, with which workers of the pool, under which caps of its own."""

    conductor: str = "fixed:single"
    pool: tuple[str, ...] | None = Field(default=None, min_length=1, description="by default all but child runs")
    budgets: BudgetTable = BudgetTable()


def worker_module(kind: str) -> WorkerModule:
    """Import a kind's adapter; UnknownName when there is none."""
    if kind not in WORKERS:
        raise UnknownName("kind of worker", kind, WORKERS)
    return cast("WorkerModule", import_module(WORKERS[kind].module))


def check_module(kind: str) -> CheckModule:
    """Import a kind of check; UnknownName when there is none."""
    if kind not in CHECKS:
        raise UnknownName("kind of check", kind, CHECKS)
    return cast("CheckModule", import_module(CHECKS[kind]))


def worker_table(kind: str) -> type[WorkerTable]:
    """Return the model of [workers.NAME] for a kind: the shared keys and the adapter's."""
    own = ChildSettings if kind == CONDUCTOR else worker_module(kind).Settings
    return create_model(f"{kind} worker", __base__=(WorkerTable, cast("type[WorkerTable]", own)))


def check_table(kind: str) -> type[CheckTable]:
    """Return the model of [checks.NAME] for a kind."""
    own = check_module(kind).Settings
    return create_model(f"{kind} check", __base__=(CheckTable, cast("type[CheckTable]", own)))


def read_worker(name: str, data: Mapping[str, object], file: str) -> WorkerTable:
    """Validate [workers.NAME]."""
    kind = _kind(data, WORKERS, f"{file}: workers.{name}", "worker")
    _refuse_keys(data, f"{file}: workers.{name}")
    return toml.validate(worker_table(kind), data, file, f"workers.{name}")


def read_check(name: str, data: Mapping[str, object], file: str) -> CheckTable:
    """Validate [checks.NAME]."""
    kind = _kind(data, CHECKS, f"{file}: checks.{name}", "check")
    return toml.validate(check_table(kind), data, file, f"checks.{name}")


def own_settings(model: type[BaseModel], table: BaseModel) -> BaseModel:
    """Return an adapter's own part of a validated table."""
    return model.model_validate({key: getattr(table, key) for key in model.model_fields})


def _kind(data: Mapping[str, object], known: Mapping[str, object], where: str, what: str) -> str:
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.kind: expected one of {', '.join(known)}")
    if kind not in known:
        raise ConfigError(f"{where}.kind: {UnknownName(f'kind of {what}', kind, known)}")
    return kind


def _refuse_keys(data: object, where: str) -> None:
    """Refuse a value that stands where the name of an environment variable belongs, without repeating it."""
    for path, key, value in _strings(data, where):
        if key.endswith("_env") and not _VARIABLE.fullmatch(value):
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
