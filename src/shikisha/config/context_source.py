"""The two ends of a run as the configuration has them: what gathers context, and what changes answers before they ship.

Invariant: without [context] and [answer] nothing of it is imported.
"""

from functools import partial

from shikisha.config import adapters
from shikisha.config.container import Container
from shikisha.core.errors import ConfigError
from shikisha.engine.gatherer import AnswerStep, ContextSource
from shikisha.workers.mcp import McpServer, McpWorker


def context_source(own: Container) -> ContextSource | None:
    """Return what gathers context for runs, built once; None without [context] sources. ConfigError."""
    table = own.settings.context
    if not table.sources:
        return None
    if own.gathers is None:
        adapters.require_extra("eval", "context", "numpy")
        from shikisha.config.context_parts import build_context

        find = partial(_mcp_server, own)
        own.gathers = build_context(table, own.folder, own.guarded_labels, own.file, find)
    return own.gathers


def answer_steps(own: Container) -> tuple[AnswerStep, ...]:
    """Return what changes answers before they ship."""
    if not own.settings.answer.steps:
        return ()
    from shikisha.config.context_parts import build_answer_steps

    return build_answer_steps(own.settings.answer.steps)


def _mcp_server(own: Container, name: str) -> McpServer:
    worker = own.pool([name])[0].worker
    if not isinstance(worker, McpWorker):
        raise ConfigError(f"worker: {name!r} is no worker of kind mcp")
    return worker.server
