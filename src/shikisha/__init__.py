"""Shikisha (指揮者): a conductor for pools of AI workers.

A conductor proposes a plan, an engine performs it inside hard limits, a journal remembers everything. The names below
are the public surface; each is imported when it is first used, so that `import shikisha` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shikisha.config.facade import Shikisha, TaskAnswer
    from shikisha.core.budget import Amount, Caps, Price, Usage
    from shikisha.core.call import Card, Reply, Request
    from shikisha.core.errors import Fault, FaultKind, RunFailed, ShikishaError
    from shikisha.core.plan import Plan, Step
    from shikisha.core.run import Result, Run
    from shikisha.core.task import Task
    from shikisha.engine.engine import Engine
    from shikisha.engine.pool import Member, Pool
    from shikisha.engine.worker import Worker
    from shikisha.workers.function_tools import worker

__version__ = "0.2.0"

_HOMES = {
    "Amount": "core.budget",
    "Caps": "core.budget",
    "Card": "core.call",
    "Engine": "engine.engine",
    "Fault": "core.errors",
    "FaultKind": "core.errors",
    "Member": "engine.pool",
    "Plan": "core.plan",
    "Pool": "engine.pool",
    "Price": "core.budget",
    "Reply": "core.call",
    "Request": "core.call",
    "Result": "core.run",
    "Run": "core.run",
    "RunFailed": "core.errors",
    "Shikisha": "config.facade",
    "ShikishaError": "core.errors",
    "Step": "core.plan",
    "Task": "core.task",
    "TaskAnswer": "config.facade",
    "Usage": "core.budget",
    "Worker": "engine.worker",
    "worker": "workers.function_tools",
}

__all__ = [
    "Amount",
    "Caps",
    "Card",
    "Engine",
    "Fault",
    "FaultKind",
    "Member",
    "Plan",
    "Pool",
    "Price",
    "Reply",
    "Request",
    "Result",
    "Run",
    "RunFailed",
    "Shikisha",
    "ShikishaError",
    "Step",
    "Task",
    "TaskAnswer",
    "Usage",
    "Worker",
    "worker",
]


def __getattr__(name: str) -> object:
    """Import a public name from its home module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shikisha' has no attribute {name!r}")
    return getattr(import_module(f"shikisha.{_HOMES[name]}"), name)
