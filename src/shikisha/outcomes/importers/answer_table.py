"""A table of your own: a row an answer, as CSV, TSV, JSON, JSON Lines or parquet.

Columns are found by the names that people give them, or by those that --column gives: the prompt and the worker are
needed, and of score, answer, response, right answer, id, domain, tokens, cost and seconds whatever there is.
Invariants: a missing column is an error that says which names it may have and which are there; a column that is not
taken is named. Deliberately absent: tables with a column a model (see `routellm` and `routerbench`), exchange rates,
and grading: `score` is taken as it stands, in [0, 1].
"""

from collections.abc import Mapping

from shikisha.core.errors import ConfigError
from shikisha.outcomes.importers.source_files import CSV_ENDINGS, JSON_LINES_ENDINGS, SourceRow, Sources
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer

_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "input", "task", "problem", "instruction", "query"),
    "worker": ("worker", "model", "model_name", "model_id", "llm", "assistant"),
    "score": ("score", "correct", "is_correct", "right", "grade", "reward", "passed"),
    "answer": ("answer", "extracted_answer", "prediction", "predicted"),
    "response": ("response", "output", "completion", "generation", "text"),
    "gold": ("gold", "right_answer", "correct_answer", "reference", "expected", "target", "ground_truth"),
    "kind": ("answer_kind",),
    "id": ("task_id", "id", "question_id", "sample_id"),
    "domain": ("domain", "category", "subject", "subset", "dataset"),
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "dollars": ("cost_usd", "dollars", "cost", "spend", "price"),
    "seconds": ("latency_s", "seconds", "latency", "duration"),
    "currency": ("currency", "cost_currency"),
}
_DOLLARS = ("", "USD", "$", "US$", "DOLLARS")
_NEEDED = ("prompt", "worker")


def import_table(given: Sources, log: LogBuilder) -> None:
    """Read tables."""
    for row in given.rows(*CSV_ENDINGS, ".json", ".parquet", *JSON_LINES_ENDINGS):
        _take(row, _columns(row, given, log), given, log)


def _columns(row: SourceRow, given: Sources, log: LogBuilder) -> Mapping[str, str]:
    """Return under which name each thing is in a row; ConfigError names what is missing, and what is there."""
    there = {name.strip().casefold().replace(" ", "_"): name for name in row.values}
    found = {what: there[name] for what, names in _NAMES.items() for name in reversed(names) if name in there}
    named = {**given.columns, **({"score": given.score} if given.score else {})}
    for what, name in named.items():
        if what not in _NAMES:
            raise ConfigError(f"--column {what}={name}: expected one of {', '.join(_NAMES)} before the `=`")
        if name not in row.values:
            raise row.error_at(name, f"expected this column (for the {what}); there are {', '.join(row.values)}")
        found[what] = name
    for what in _NEEDED:
        if what not in found:
            raise ConfigError(
                f"{row.where}: expected a column for the {what} ({', '.join(_NAMES[what])}); "
                f"there are {', '.join(row.values)}; name yours with --column {what}=NAME"
            )
    for name in set(row.values) - set(found.values()):
        log.remark(f"column not taken over: {name}")
    return found


def _take(row: SourceRow, columns: Mapping[str, str], given: Sources, log: LogBuilder) -> None:
    def text(what: str) -> str | None:
        value = row.get(columns[what]) if what in columns else None
        return None if value is None else str(value)

    def number(what: str) -> float | None:
        return row.number(columns[what]) if what in columns else None

    def whole(what: str) -> int | None:
        return row.integer(columns[what]) if what in columns else None

    currency = text("currency")
    if currency is not None and currency.strip().upper() not in _DOLLARS and number("dollars"):
        raise row.error_at(
            columns["currency"],
            f"expected costs in US dollars, found {currency[:20]!r}: convert the column {columns['dollars']}",
        )
    prompt = row.text(columns["prompt"])
    asked = row.logged_task(
        prompt,
        ReferenceAnswer(text("gold"), text("kind")),
        (text("id") or "", given.domain_of(row) or text("domain") or ""),
    )
    answered = LoggedAnswer(
        row.label(columns["worker"]),
        row.where,
        row.score(columns["score"]) if "score" in columns else None,
        answer=text("answer"),
        response=text("response"),
        input_tokens=whole("input_tokens"),
        output_tokens=whole("output_tokens"),
        dollars=number("dollars"),
        seconds=number("seconds"),
    )
    log.add(asked, answered)
