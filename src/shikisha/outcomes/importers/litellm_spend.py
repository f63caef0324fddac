"""LiteLLM's spend logs: rows of its table `LiteLLM_SpendLogs` as JSON, JSON Lines, CSV or parquet.

The worker is the `model_group` (the public name that was asked for), else the `model`. The prompt is in `messages`, or
in `proxy_server_request` as newer proxies keep it, when the proxy stores prompts (`store_prompts_in_spend_logs`). Spend
logs know no right answers, so outcomes have no score unless one is named: a column, or a place inside a column's JSON
as in `metadata.feedback`. Equal chats are the same task; each further call is another sample. Left out, and counted:
rows without a prompt or with one that was cut, calls that are no chat or reached no model, and answers from the proxy's
cache, whose cost and time are not the model's. A failed call is an outcome without a response. Deliberately absent:
keys, users and teams.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from shikisha.core.errors import ConfigError
from shikisha.outcomes.importers import chat_text
from shikisha.outcomes.importers.source_files import CSV_ENDINGS, JSON_LINES_ENDINGS, SourceRow, Sources, value_at
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer

_CHAT_CALLS = ("completion", "responses", "messages", "generate_content")
_LITELLM_COLUMNS = frozenset(
    ("messages", "proxy_server_request", "call_type", "request_id", "startTime", "model_group")
)
_SHOWN = 20
_TRUNCATED = "litellm_truncated"  # stands where the proxy cut a long text


def import_litellm(given: Sources, log: LogBuilder) -> None:
    """Read spend logs."""
    named, looked = given.score is None, 0
    seen: dict[str, None] = {}  # what stands where the score was looked for
    for row in given.rows(*CSV_ENDINGS, ".json", ".parquet", *JSON_LINES_ENDINGS):
        if not _LITELLM_COLUMNS.intersection(row.values):
            raise ConfigError(
                f"{row.where}: expected a row of LiteLLM's spend logs (messages, proxy_server_request, call_type, …); "
                f"there are {', '.join(row.values)}; a table of your own: `import outcomes table`"
            )
        looked += 1
        named = named or value_at(row, given.score or "") is not None
        if given.score is not None and not named:
            seen |= dict.fromkeys(_fields_near(row, given.score))
        given.take(row, lambda row: _take_call(row, given, log))
    if not named:
        places = ", ".join(list(seen)[:_SHOWN]) or "nothing"
        raise ConfigError(
            f"{', '.join(given.names)}: expected scores under {given.score!r}: none of {looked:,} rows has one there; "
            f"what stands there is {places}"
        )


def _take_call(row: SourceRow, given: Sources, log: LogBuilder) -> None:
    score, domain = None if given.score is None else _score(row, given.score), given.domain_of(row)
    call = row.maybe_text("call_type")
    worker = row.maybe_text("model_group") or row.maybe_text("model") or ""
    spent, seconds = row.number("spend"), _seconds(row)
    tokens = row.integer("prompt_tokens"), row.integer("completion_tokens")
    prompt = _prompt(row)
    if call and not any(kind in call for kind in _CHAT_CALLS):
        log.skip("calls that are no chat")
    elif not worker.strip():
        log.skip("calls that reached no model")
    elif str(row.get("cache_hit")).lower() == "true":
        log.skip("answers from the proxy's cache")
    elif prompt is None:
        log.skip("calls whose prompt the proxy did not store (store_prompts_in_spend_logs)")
    elif _TRUNCATED in prompt:
        log.skip("calls whose prompt the proxy cut")
    else:
        failed = row.get("status") == "failure"
        known = tokens if any(tokens) else (None, None)
        answered = LoggedAnswer(
            worker,
            row.where,
            score,
            response=None if failed else chat_text.response_text(row.get("response")),
            input_tokens=known[0],
            output_tokens=known[1],
            dollars=spent,
            seconds=seconds,
            call=row.maybe_text("request_id") or "",
        )
        log.add(row.logged_task(prompt, ReferenceAnswer(None, None), ("", domain), "messages"), answered)


def _prompt(row: SourceRow) -> str | None:
    if (prompt := chat_text.chat_text(row.get("messages"))) is not None:
        return prompt
    request = chat_text.parse_json_text(row.get("proxy_server_request"))
    if not isinstance(request, dict):
        return None
    asked = next((request[name] for name in ("messages", "input", "prompt") if request.get(name)), None)
    rules = request.get("system") or request.get("instructions")
    if asked is None or not rules:
        return chat_text.chat_text(asked)
    return chat_text.chat_text([{"role": "system", "content": rules}, *(asked if isinstance(asked, list) else [asked])])


def _fields_near(row: SourceRow, place: str) -> Iterator[str]:
    """Yield the names at the deepest level of a place that a row has: where its score could be."""
    known = ""
    inside: Mapping[str, object] = row.values
    for name in () if place in row.values else place.split("."):
        deeper = chat_text.parse_json_text(inside.get(name))
        if not isinstance(deeper, dict):
            break
        known, inside = f"{known}{name}.", deeper
    yield from (f"{known}{name}" for name in inside)


def _score(row: SourceRow, place: str) -> float | None:
    """Return the score at a place like `metadata.feedback`; a place that a row lacks has none."""
    return SourceRow(row.where, {place: value_at(row, place)}).score(place)


def _seconds(row: SourceRow) -> float | None:
    if (milliseconds := row.number("request_duration_ms")) is not None:
        return milliseconds / 1000
    start, end = _time(row, "startTime"), _time(row, "endTime")
    if start is None or end is None:
        return None
    if end < start:
        raise row.error_at("endTime", "expected a time after startTime")
    return end - start


def _time(row: SourceRow, name: str) -> float | None:
    """Return Unix time in seconds; a time without a zone counts as UTC, which is what the proxy's database keeps."""
    value = row.get(name)
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise row.type_error("a time (ISO 8601)", name) from None
    else:
        return row.number(name)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
