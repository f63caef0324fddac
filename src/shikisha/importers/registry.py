"""Which sources outcomes can be imported from, and the one way to do it.

A module exposes `gather(given, log)`. Invariant: the log is written when everything was read, or not at all.
Deliberately absent: guessing the kind from the files, and plug-in discovery. A module is imported when it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from shikisha.errors import ConfigError, UnknownName
from shikisha.importers.files import Sources
from shikisha.outcomes_writing import LogBuilder, Repeats, Written, check_free


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of source: its module, what a second answer of one worker to one task is, and if it names scores."""

    home: str
    repeats: Repeats = Repeats.REFUSED
    scores: str = ""  # what --score names


KINDS: Mapping[str, Kind] = {
    "journal": Kind("shikisha.importers.journal", Repeats.MERGED),
    "litellm": Kind("shikisha.importers.litellm", Repeats.MERGED, "the field that holds the score"),
    "llmrouter": Kind("shikisha.importers.llmrouter", Repeats.MERGED),
    "mmlu-pro": Kind("shikisha.importers.mmlu_pro"),
    "otel": Kind("shikisha.importers.otel", Repeats.MERGED, "the evaluation to take the score from"),
    "routellm": Kind("shikisha.importers.routellm", Repeats.MERGED),
    "routerbench": Kind("shikisha.importers.routerbench"),
    "table": Kind("shikisha.importers.table", Repeats.MERGED, "the column that holds the score"),
    "zeroeval": Kind("shikisha.importers.zeroeval"),
}


class Importer(Protocol):
    """What an importer's module exposes."""

    def gather(self, given: Sources, log: LogBuilder) -> None:
        """Read everything into the log; ConfigError names the place of what is wrong."""
        ...


def import_outcomes(
    kind: str, given: Sources, folder: Path, *, as_lines: bool = False, replace: bool = False
) -> Written:
    """Read the sources and write their outcomes as a log into the folder; `replace` a log that is there.

    UnknownName when there is no such kind; ConfigError says what cannot be read, where, and why.
    """
    if kind not in KINDS:
        raise UnknownName("kind of source", kind, KINDS)
    if given.score is not None and not KINDS[kind].scores:
        raise ConfigError(f"{kind}: expected no name for scores: this source has one kind of score")
    if not replace:
        check_free(folder)
    log = LogBuilder(kind, KINDS[kind].repeats)
    cast("Importer", import_module(KINDS[kind].home)).gather(given, log)
    return log.write(folder, as_lines=as_lines)
