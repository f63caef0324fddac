"""OpenTelemetry GenAI spans: traces as OTLP JSON (a document, or a line an export), with their log records.

A model call is a span with `gen_ai.request.model` (or `gen_ai.response.model`) that is a chat or a completion: its
worker is the model asked for, its seconds are the span's, its dollars `gen_ai.usage.cost` where an instrumentation adds
that. A score is the value of a `gen_ai.evaluation.result`, an event of the span or a log record that names the span or
the response; it must lie in [0, 1], and where there are evaluations of several names one must be chosen. Equal chats
are the same task; each further call is another sample. Left out, and counted: other spans, calls whose prompt was not
captured, and evaluations of anything else. A failed call is an outcome without a response.

Prompts and responses are read in the ways that the conventions have had so far, in this order and never mixed:
`gen_ai.input.messages` and `gen_ai.output.messages` (with `gen_ai.system_instructions`), on the span or on its
`gen_ai.client.inference.operation.details` event; one event a message (`gen_ai.user.message`, `gen_ai.choice`, ...);
the events `gen_ai.content.prompt` and `gen_ai.content.completion`; numbered attributes (`gen_ai.prompt.0.content`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.outcomes.importers import chat_text
from shikisha.outcomes.importers.source_files import JSON_LINES_ENDINGS, SourceRow, Sources
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer

_SIGNALS = ("resourceSpans", "resourceLogs", "resourceMetrics")


@dataclass(frozen=True, slots=True)
class OTLPEvent:
    """A span's event, or a log record that belongs to a span: its name, attributes and body in one."""

    name: str
    values: SourceRow


@dataclass(frozen=True, slots=True)
class OTLPSpan:
    """A span: its key (trace and span id), times in nanoseconds, if it failed, its attributes and events."""

    key: tuple[str, str]
    row: SourceRow
    values: SourceRow
    events: tuple[OTLPEvent, ...]
    failed: bool

    @property
    def id(self) -> str:
        """Its key as one text; "" where it has none."""
        return "/".join(filter(None, self.key))

    @property
    def seconds(self) -> float | None:
        """How long it took; None where it has no end."""
        start, end = self.row.integer("startTimeUnixNano"), self.row.integer("endTimeUnixNano")
        if not start or not end:
            return None
        if end < start:
            raise self.row.error_at("endTimeUnixNano", "expected a time after startTimeUnixNano")
        return (end - start) / 1e9


def read_spans(document: SourceRow) -> Iterator[OTLPSpan]:
    """Yield the spans of one line or document."""
    _check(document)
    for resource in document.parts("resourceSpans"):
        for scope in resource.parts("scopeSpans"):
            for row in scope.parts("spans"):
                status = row.get("status")
                code = status.get("code") if isinstance(status, Mapping) else None
                events = tuple(OTLPEvent(event.text("name"), _attributes(event)) for event in row.parts("events"))
                yield OTLPSpan(_key(row), row, _attributes(row), events, code in (2, "STATUS_CODE_ERROR"))


def read_log_records(document: SourceRow) -> Iterator[tuple[tuple[str, str], OTLPEvent]]:
    """Yield the log records of one line or document that have a name, with the key of their span."""
    _check(document)
    for resource in document.parts("resourceLogs"):
        for scope in resource.parts("scopeLogs"):
            for row in scope.parts("logRecords"):
                values = _attributes(row)
                name = row.maybe_text("eventName") or values.maybe_text("event.name")
                body = any_value(row, row.get("body"))
                fields = body if isinstance(body, dict) else {"body": body}
                if name is not None:
                    yield _key(row), OTLPEvent(name, SourceRow(values.where, {**fields, **values.values}))


def any_value(row: SourceRow, value: object) -> object:
    """Return what an AnyValue holds, None where it holds nothing."""
    if not isinstance(value, Mapping):
        return None
    match next(iter(value.items()), None):
        case ("intValue", int() | str() as number):
            try:
                return int(number)
            except ValueError:
                raise row.error_at("intValue", f"expected a whole number, found {str(number)[:40]!r}") from None
        case ("arrayValue", Mapping() as array):
            return [any_value(row, one) for one in array.get("values") or ()]
        case ("kvlistValue", Mapping() as pairs):
            return dict(_pairs(SourceRow(row.where, pairs), "values"))
        case (_, held):
            return held
    return None


def _attributes(row: SourceRow) -> SourceRow:
    return SourceRow(row.where, dict(_pairs(row, "attributes")))


def _pairs(row: SourceRow, name: str) -> Iterator[tuple[str, object]]:
    for pair in row.parts(name):
        yield pair.text("key"), any_value(pair, pair.get("value"))


def _key(row: SourceRow) -> tuple[str, str]:
    return row.maybe_text("traceId") or "", row.maybe_text("spanId") or ""


def _check(document: SourceRow) -> None:
    if not any(signal in document.values for signal in _SIGNALS):
        raise ConfigError(f"{document.where}: expected OTLP JSON with one of {', '.join(_SIGNALS)}")


_DETAILS = "gen_ai.client.inference.operation.details"
_ROLES = ("system", "user", "assistant", "tool")


def span_prompt(values: SourceRow, events: Sequence[OTLPEvent]) -> str | None:
    """Return what the model was shown as one text; None where it was not captured."""
    for found in _prompts(_with_details(values, events), events):
        if (text := chat_text.chat_text(found)) is not None:
            return text
    return None


def span_response(values: SourceRow, events: Sequence[OTLPEvent]) -> str | None:
    """Return the model's first answer; None where it was not captured."""
    for found in _responses(_with_details(values, events), events):
        first = found[0] if isinstance(found, list) and found else found
        if (text := chat_text.message_text(first)) is not None:
            return text
    return None


def _with_details(values: SourceRow, events: Sequence[OTLPEvent]) -> SourceRow:
    details = [event.values.values for event in events if event.name == _DETAILS]
    return SourceRow(values.where, {**details[0], **values.values}) if details else values


def _prompts(values: SourceRow, events: Sequence[OTLPEvent]) -> Iterator[object]:
    messages = chat_text.parse_json_text(values.get("gen_ai.input.messages"))
    rules = chat_text.parse_json_text(values.get("gen_ai.system_instructions"))
    if isinstance(messages, list):
        yield [*([{"role": "system", "parts": rules}] if rules else []), *messages]
    yield [_message(event, role) for event in events for role in _ROLES if event.name == f"gen_ai.{role}.message"]
    yield from (
        event.values.get("gen_ai.prompt", "content") for event in events if event.name == "gen_ai.content.prompt"
    )
    yield _numbered_messages(values, "gen_ai.prompt")
    yield values.get("gen_ai.prompt")


def _responses(values: SourceRow, events: Sequence[OTLPEvent]) -> Iterator[object]:
    yield chat_text.parse_json_text(values.get("gen_ai.output.messages"))
    for event in events:
        if event.name == "gen_ai.choice":
            yield chat_text.parse_json_text(event.values.get("message")) or event.values.values
        elif event.name == "gen_ai.content.completion":
            yield chat_text.parse_json_text(event.values.get("gen_ai.completion", "content"))
    yield _numbered_messages(values, "gen_ai.completion")
    yield chat_text.parse_json_text(values.get("gen_ai.completion"))


def _message(event: OTLPEvent, role: str) -> Mapping[str, object]:
    return {"role": role, **event.values.values}


def _numbered_messages(values: SourceRow, name: str) -> list[object]:
    """Return the messages that are spread over attributes like `gen_ai.prompt.0.role`."""
    messages: list[object] = []
    while (content := values.get(f"{name}.{len(messages)}.content")) is not None:
        messages.append({"role": values.get(f"{name}.{len(messages)}.role"), "content": content})
    return messages


_MODEL_OPERATIONS = ("chat", "text_completion", "generate_content", None)
_EVALUATION = "gen_ai.evaluation.result"
_SUFFIXES = (".json", *JSON_LINES_ENDINGS)


def import_otel(given: Sources, log: LogBuilder) -> None:
    """Read log records first, then spans, so that it does not matter in which order they were written."""
    apart = _LogRecords()
    for document in given.rows(*_SUFFIXES):
        for key, happening in read_log_records(document):
            apart.add(key, happening)
    scores = _EvaluationScores(given.score)
    for document in given.rows(*_SUFFIXES):
        for span in read_spans(document):
            given.take(span.row, partial(_take_span, span, apart, scores, log, given))
    scores.check(", ".join(given.names))
    for _ in range(apart.evaluations_left()):
        log.skip("evaluations of something else than a model call")


def _take_span(
    span: OTLPSpan, apart: "_LogRecords", scores: "_EvaluationScores", log: LogBuilder, given: Sources, row: SourceRow
) -> None:
    values, domain = span.values, given.domain_of(span.values)
    worker = values.maybe_text("gen_ai.request.model", "gen_ai.response.model")
    if worker is None or values.get("gen_ai.operation.name") not in _MODEL_OPERATIONS:
        log.skip("spans that are no model call")
        return
    events = (*span.events, *apart.take(span))
    asked = span_prompt(values, events)
    if asked is None:
        log.skip("model calls whose prompt was not captured")
        return
    answered = LoggedAnswer(
        worker,
        row.where,
        scores.of(events),
        response=None if span.failed else span_response(values, events),
        input_tokens=values.integer("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output_tokens=values.integer("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        dollars=values.number("gen_ai.usage.cost"),
        seconds=span.seconds,
        call=span.id,
    )
    log.add(span.row.logged_task(asked, ReferenceAnswer(None, None), ("", domain), "gen_ai.input.messages"), answered)


class _LogRecords:
    """Log records by the span that they name, else by the response."""

    def __init__(self) -> None:
        self._of_spans: dict[tuple[str, str], list[OTLPEvent]] = defaultdict(list)
        self._of_responses: dict[str, list[OTLPEvent]] = defaultdict(list)

    def add(self, key: tuple[str, str], happening: OTLPEvent) -> None:
        """Keep a record."""
        if key[1]:
            self._of_spans[key].append(happening)
        else:
            self._of_responses[happening.values.maybe_text("gen_ai.response.id") or ""].append(happening)

    def take(self, span: OTLPSpan) -> Sequence[OTLPEvent]:
        """Return a span's records and forget them."""
        response_id = span.values.maybe_text("gen_ai.response.id")
        named = self._of_responses.pop(response_id, []) if response_id else []
        return [*self._of_spans.pop(span.key, []), *named]

    def evaluations_left(self) -> int:
        """How many evaluations belong to no model call."""
        left = [*self._of_spans.values(), *self._of_responses.values()]
        return sum(happening.name == _EVALUATION for happenings in left for happening in happenings)


class _EvaluationScores:
    """Scores by the evaluation's name: the one wanted, or the only one there is."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self._names: set[str] = set()

    def of(self, events: Sequence[OTLPEvent]) -> float | None:
        """Return the mean of the wanted evaluation's values; None where it has none."""
        found = []
        for event in events:
            if event.name == _EVALUATION:
                name = event.values.text("gen_ai.evaluation.name")
                self._names.add(name)
                if self._wanted in (None, name):
                    found.append(event.values.score("gen_ai.evaluation.score.value"))
        known = [score for score in found if score is not None]
        return sum(known) / len(known) if known else None

    def check(self, where: str) -> None:
        """Raise ConfigError when it was not clear which evaluation is wanted, or there was none of that name."""
        there = ", ".join(sorted(self._names)) or "none"
        if self._wanted is None and len(self._names) > 1:
            raise ConfigError(
                f"{where}: there are evaluations of several names: choose one with --column score=NAME: {there}"
            )
        if self._wanted is not None and self._wanted not in self._names:
            raise ConfigError(f"{where}: expected evaluations named {self._wanted!r}; there are {there}")
