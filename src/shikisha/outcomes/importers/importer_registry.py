"""Which sources outcomes can be imported from, and the one way to do it.

A module exposes `gather(given, log)`. Invariant: the log is written when everything was read, or not at all.
Deliberately absent: guessing the kind from the files, and plug-in discovery. A module is imported when it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.outcomes.importers.source_files import Sources
from shikisha.outcomes.log_writer import LogBuilder, LogSummary, RepeatPolicy, check_folder_empty


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source: its module, what a second answer of one worker to one task is, and if it names scores."""

    home: str
    repeats: RepeatPolicy = RepeatPolicy.REFUSED
    scores: str = ""  # what --score names


SOURCE_KINDS: Mapping[str, SourceKind] = {
    "journal": SourceKind("shikisha.outcomes.importers.journal_runs", RepeatPolicy.MERGED),
    "litellm": SourceKind(
        "shikisha.outcomes.importers.litellm_spend", RepeatPolicy.MERGED, "the field that holds the score"
    ),
    "llmrouter": SourceKind("shikisha.outcomes.importers.router_benchmarks", RepeatPolicy.MERGED),
    "mmlu-pro": SourceKind("shikisha.outcomes.importers.mmlu_pro"),
    "otel": SourceKind(
        "shikisha.outcomes.importers.otel", RepeatPolicy.MERGED, "the evaluation to take the score from"
    ),
    "routellm": SourceKind("shikisha.outcomes.importers.router_benchmarks", RepeatPolicy.MERGED),
    "routerbench": SourceKind("shikisha.outcomes.importers.router_benchmarks"),
    "table": SourceKind(
        "shikisha.outcomes.importers.answer_table", RepeatPolicy.MERGED, "the column that holds the score"
    ),
    "zeroeval": SourceKind("shikisha.outcomes.importers.zeroeval"),
}


class ImporterModule(Protocol):
    """What an importer's module exposes."""

    def gather(self, given: Sources, log: LogBuilder) -> None:
        """Read everything into the log; ConfigError names the place of what is wrong."""
        ...


def import_outcomes(
    kind: str, given: Sources, folder: Path, *, as_lines: bool = False, replace: bool = False
) -> LogSummary:
    """Read the sources and write their outcomes as a log into the folder; `replace` a log that is there.

    UnknownName when there is no such kind; ConfigError says what cannot be read, where, and why.
    """
    if kind not in SOURCE_KINDS:
        raise UnknownName("kind of source", kind, SOURCE_KINDS)
    if given.score is not None and not SOURCE_KINDS[kind].scores:
        raise ConfigError(f"{kind}: expected no name for scores: this source has one kind of score")
    if not replace:
        check_folder_empty(folder)
    log = LogBuilder(kind, SOURCE_KINDS[kind].repeats)
    cast("ImporterModule", import_module(SOURCE_KINDS[kind].home)).gather(given, log)
    return log.write(folder, as_lines=as_lines)
