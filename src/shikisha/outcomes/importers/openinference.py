"""OpenInference spans: as Phoenix and Arize export them, as OTLP JSON, or as the SDK's exporters print them.

A row an LLM span, as parquet, CSV, JSON or JSON Lines: its attributes stand in columns `attributes.llm.model_name`, or
in one object `attributes`, flat or nested; or a line is an OTLP document. The worker is the model asked for, else the
one that answered. Messages are `llm.input_messages` and `llm.output_messages`, as a list or numbered, else
`input.value` and `output.value`. A score is the column `eval.NAME.score` that Phoenix adds, or any column or attribute
named by --column score=NAME. Invariants: equal chats are the same task, and each further call is another sample; other
spans and calls without a prompt are left out, and counted; a failed call is an outcome without a response.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from shikisha.core.errors import ConfigError
from shikisha.outcomes.importers import chat_text
from shikisha.outcomes.importers.otel import read_spans
from shikisha.outcomes.importers.source_files import CSV_ENDINGS, JSON_LINES_ENDINGS, SourceRow, Sources
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer

_MODELS = ("llm.request.model_name", "llm.model_name", "llm.response.model_name")
_COLUMN, _SCORE_START, _SCORE_END = "attributes.", "eval.", ".score"
_LLM = "LLM"


def import_openinference(given: Sources, log: LogBuilder) -> None:
    """Read spans."""
    scored, fields = list[float](), dict[str, None]()

    def take(row: SourceRow) -> None:
        for values, seconds, failed, call in _spans(row):
            fields.update(dict.fromkeys(values.values))
            if (values.get("openinference.span.kind", "span_kind") or _LLM) != _LLM or values.get(*_MODELS) is None:
                log.skip("spans that are no model call")
                continue
            asked = _messages(values, "llm.input_messages") or _input(values)
            prompt = chat_text.chat_text(asked)
            if prompt is None:
                log.skip("model calls whose prompt was not captured")
                continue
            score = _score(values, given.score)
            scored.extend([] if score is None else [score])
            answered = LoggedAnswer(
                values.text(*_MODELS),
                values.where,
                score,
                response=None if failed else _response(values),
                input_tokens=values.integer("llm.token_count.prompt"),
                output_tokens=values.integer("llm.token_count.completion"),
                dollars=values.number("llm.cost.total"),
                seconds=seconds,
                call=call,
            )
            task = ("", given.domain_of(values))
            log.add(row.logged_task(prompt, ReferenceAnswer(None, None), task, "llm.input_messages"), answered)

    for row in given.rows(*CSV_ENDINGS, ".json", ".parquet", *JSON_LINES_ENDINGS):
        given.take(row, take)
    if given.score is not None and not scored:
        raise ConfigError(
            f"{', '.join(given.names)}: expected scores under {given.score!r} or eval.{given.score}.score; "
            f"there are {', '.join(list(fields)[:40]) or 'no spans'}"
        )


def _spans(row: SourceRow) -> Iterator[tuple[SourceRow, float | None, bool, str]]:
    """Yield the attributes, seconds, failure and id of each span of a row, which is one span or an OTLP document."""
    if "resourceSpans" in row.values:
        for span in read_spans(row):
            yield span.values, span.seconds, span.failed, span.id
        return
    if not any(name.startswith("attributes") for name in row.values):
        raise ConfigError(
            f"{row.where}: expected a span with `attributes` (or columns like attributes.llm.model_name), or OTLP JSON "
            f"with resourceSpans; there are {', '.join(row.values)}"
        )
    values: dict[str, object] = {name: value for name, value in row.values.items() if name != "attributes"}
    values |= {name.removeprefix(_COLUMN): value for name, value in row.values.items() if name.startswith(_COLUMN)}
    held = chat_text.parse_json_text(row.get("attributes"))
    if isinstance(held, Mapping):
        values |= dict(_flat(held, ""))
    status = row.get("status_code") or _inside(row.get("status"), "status_code", "code")
    failed = str(status).upper() in ("ERROR", "STATUS_CODE_ERROR", "2")
    call = row.get("context.span_id") or _inside(row.get("context"), "span_id")
    yield SourceRow(row.where, values), _seconds(row), failed, str(call or "")


def _inside(value: object, *names: str) -> object:
    held = chat_text.parse_json_text(value)
    return next((held[name] for name in names if name in held), None) if isinstance(held, Mapping) else None


def _flat(held: Mapping[str, object], start: str) -> Iterator[tuple[str, object]]:
    """Yield an object's values under dotted names; lists stay as they are."""
    for name, value in held.items():
        if isinstance(value, Mapping) and not start.count(".") > 8:
            yield from _flat(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", value


def _messages(values: SourceRow, name: str) -> list[object]:
    """Return the messages of an attribute, as a list of objects or spread over numbered attributes."""
    held = chat_text.parse_json_text(values.get(name))
    if isinstance(held, list):
        return [_message(one) for one in held if isinstance(one, Mapping)]
    found: dict[int, dict[str, object]] = {}
    for key, value in values.values.items():
        if key.startswith(f"{name}.") and value is not None:
            number, _, rest = key.removeprefix(f"{name}.").partition(".")
            if number.isdecimal() and len(number) < 6:
                found.setdefault(int(number), {})[rest] = value
    return [_message(found[number]) for number in sorted(found)]


def _message(held: Mapping[str, object]) -> Mapping[str, object]:
    """Return a message as OpenAI writes it."""
    flat = dict(_flat(held, ""))
    content = flat.get("message.content", flat.get("content"))
    if content is None:
        content = _parts(flat)
    message: dict[str, object] = {"role": flat.get("message.role", flat.get("role")), "content": content}
    if calls := flat.get("message.tool_calls"):
        message["tool_calls"] = calls
    return message


def _parts(flat: Mapping[str, object]) -> str | None:
    """Return the texts of a message of several parts."""
    held = flat.get("message.contents")
    listed = [dict(_flat(one, "")) for one in held if isinstance(one, Mapping)] if isinstance(held, list) else [flat]
    texts = [
        value
        for part in listed
        for name, value in sorted(part.items())
        if name.endswith("message_content.text") and isinstance(value, str)
    ]
    return "\n".join(texts) or None


def _input(values: SourceRow) -> object:
    """Return the messages of a provider's request object, or the text itself."""
    held = chat_text.parse_json_text(values.get("input.value"))
    if isinstance(held, Mapping):
        return next(
            (held[name] for name in ("messages", "input", "prompt") if held.get(name)), values.get("input.value")
        )
    return held


def _response(values: SourceRow) -> str | None:
    said = _messages(values, "llm.output_messages")
    return chat_text.message_text(said[0]) if said else chat_text.response_text(values.get("output.value"))


def _score(values: SourceRow, wanted: str | None) -> float | None:
    """Return the score of the name that was asked for, or of the only evaluation there is."""
    if wanted is not None:
        return values.score(wanted, f"{_SCORE_START}{wanted}{_SCORE_END}")
    columns = [name for name in values.values if name.startswith(_SCORE_START) and name.endswith(_SCORE_END)]
    if len(columns) > 1:
        names = ", ".join(name.removeprefix(_SCORE_START).removesuffix(_SCORE_END) for name in columns)
        raise ConfigError(
            f"{values.where}: there are evaluations of several names: choose one with --column score=NAME: {names}"
        )
    return values.score(columns[0]) if columns else None


def _seconds(row: SourceRow) -> float | None:
    start, end = (_time(row, name) for name in ("start_time", "end_time"))
    if start is None or end is None:
        return None
    if end < start:
        raise row.error_at("end_time", "expected a time after start_time")
    return end - start


def _time(row: SourceRow, name: str) -> float | None:
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise row.type_error("a time (ISO 8601)", name) from None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    number = row.number(name)
    # Nanoseconds since 1970 where no number of seconds could be meant.
    return number / 1e9 if number is not None and number > 1e15 else number
