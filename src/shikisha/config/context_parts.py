"""What [context] and [answer] describe, built: gatherers with their budget, and changes of answers."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from shikisha.config import adapters
from shikisha.config.context_settings import (
    AnswerStepTable,
    ContextTable,
    FilesSourceTable,
    GitSourceTable,
    McpSourceTable,
    PluggedSourceTable,
)
from shikisha.context.git_history import GitRepository
from shikisha.core.text import fenced_blocks
from shikisha.core.toml import error_location
from shikisha.core.visibility import Labels
from shikisha.engine.gatherer import AnswerStep, Gatherer
from shikisha.gatherers.file_gatherer import (
    ContextBudget,
    FileGatherer,
    HistoryGatherer,
    WeightedGatherer,
    folder_inside,
)
from shikisha.workers.mcp import McpResourceGatherer, McpServer

FindServer = Callable[[str], McpServer]


def build_context(table: ContextTable, folder: Path, guarded: Labels, where: str, server: FindServer) -> ContextBudget:
    """Return what gathers; ConfigError names the source that cannot be read."""
    sources = []
    for name, source in table.sources.items():
        with error_location(f"{where}: context.sources.{name}"):
            match source:
                case FilesSourceTable():
                    place = folder_inside(source.folder, folder)
                    gatherer: Gatherer = FileGatherer(
                        name, place, source.include, source.exclude, source.labels, source.history
                    )
                case GitSourceTable():
                    gatherer = HistoryGatherer(name, GitRepository(folder_inside(source.folder, folder)), source.labels)
                case McpSourceTable():
                    gatherer = McpResourceGatherer(name, server(source.worker), source.labels)
                case PluggedSourceTable():
                    own = adapters.read_plugged(adapters.GATHERER_KINDS, source, where, f"context.sources.{name}")
                    gatherer = adapters.GATHERER_KINDS[source.kind].make(own, folder, name, source.labels)
        sources.append(WeightedGatherer(name, gatherer, source.share))
    return ContextBudget(tuple(sources), table.tokens, table.seconds, table.trial, guarded)


def build_answer_steps(tables: tuple[AnswerStepTable, ...]) -> tuple[AnswerStep, ...]:
    """Return the changes of answers."""
    made: Mapping[str, Callable[[AnswerStepTable], Callable[[str], str]]] = {
        "strip": lambda _: str.strip,
        "unfence": lambda _: _unfence,
        "replace": lambda table: partial(_replace, table.text, table.by),
    }
    return tuple(AnswerStep(table.kind, made[table.kind](table)) for table in tables)


def _unfence(answer: str) -> str:
    """Return the content of an answer that is one fenced block and nothing else."""
    text = answer.strip()
    blocks = fenced_blocks(text)
    alone = len(blocks) == 1 and text.startswith(("```", "~~~")) and text.endswith(("```", "~~~"))
    return blocks[0] if alone else answer


def _replace(text: str, by: str, answer: str) -> str:
    return answer.replace(text, by)
