"""Which kinds of source outcomes can be imported from, and the one way to do it.

An importer is a function that reads sources into a LogBuilder. Invariant: the log is written when everything was read,
or not at all. The user names the kind; nothing is guessed from the files. To add a kind, write its function in a module
of this package and one line in `SOURCE_KINDS`, or a plug-in: `plugins/published` has those of published answers.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.kinds import Registry
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.outcomes.importers.answer_table import import_table
from shikisha.outcomes.importers.journal_runs import import_journals
from shikisha.outcomes.importers.litellm_spend import import_litellm
from shikisha.outcomes.importers.openinference import import_openinference
from shikisha.outcomes.importers.otel import import_otel
from shikisha.outcomes.importers.source_files import Sources, TableShape
from shikisha.outcomes.log_writer import LogBuilder, LogSummary, RepeatPolicy, check_folder_empty

_MERGED = RepeatPolicy.MERGED


class SourceKind(NamedTuple):
    """A kind of source: its importer, what a second answer of one worker to one task is, and what `score=` names.

    `typed`: --column domain= names where types of tasks are found.
    """

    read: Callable[[Sources, LogBuilder], None]
    repeats: RepeatPolicy = RepeatPolicy.REFUSED
    scores: str = ""
    typed: bool = False


SOURCE_KINDS: Registry[SourceKind] = Registry(
    "importers",
    "kind of source",
    SourceKind,
    {
        "journal": SourceKind(import_journals, _MERGED),
        "litellm": SourceKind(import_litellm, _MERGED, "the field that holds the score", typed=True),
        "openinference": SourceKind(
            import_openinference, _MERGED, "the evaluation or column with the score", typed=True
        ),
        "otel": SourceKind(import_otel, _MERGED, "the evaluation to take the score from", typed=True),
        "table": SourceKind(import_table, _MERGED, "the column that holds the score", typed=True),
    },
    dict.fromkeys(("llmrouter", "mmlu-pro", "routellm", "routerbench", "zeroeval"), "shikisha-published"),
)


def import_outcomes(
    kind: str, given: Sources, folder: Path, *, as_lines: bool = False, replace: bool = False
) -> LogSummary:
    """Read the sources and write their outcomes as a log into the folder; `replace` a log that is there.

    UnknownName when there is no such kind; ConfigError says what cannot be read, where, and why.
    """
    source = SOURCE_KINDS[kind]
    if given.score is not None and not source.scores:
        raise ConfigError(f"{kind}: expected no --column score=NAME: this source has one kind of score")
    if given.domain is not None and not source.typed:
        raise ConfigError(f"{kind}: expected no --column domain=NAME: this source has types of its own, or none")
    if given.columns and kind != "table":
        raise ConfigError(f"{kind}: expected no --column: only a table's columns have names of your own")
    if given.shape != TableShape() and kind != "table":
        raise ConfigError(f"{kind}: expected no --scale, --clip, --wide or --pairs: they are for a table of your own")
    if given.form is not None and given.form not in set(AnswerForm):
        raise UnknownName("kind of answer", given.form, [str(form) for form in AnswerForm])
    if not replace:
        check_folder_empty(folder)
    reading = None if given.form is None else (given.form, partial(canonicalize, form=AnswerForm(given.form)))
    log = LogBuilder(kind, source.repeats, reading)
    source.read(given, log)
    given.count_bad(log)
    if given.domain is not None and not log.typed:
        raise ConfigError(
            f"{', '.join(given.names)}: expected types of tasks under {given.domain!r} (--column domain=): "
            "no row has one there"
        )
    return log.write(folder, as_lines=as_lines)
