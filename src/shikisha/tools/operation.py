"""Performs one HTTP operation of a catalogue: arguments become path, query, headers and body.

Invariants: an argument never chooses the host, leaves its segment of the path or adds a header of its own; keys come
from environment variables that the configuration names; a call is one request, its reply is bounded, and redirects are
not followed; a fault names catalogue and tool. What was promised as JSON and is none is a fault, not an answer.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from shikisha.core.call import depth_headers
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.secrets import SecretStore
from shikisha.core.tools import Tool
from shikisha.engine.worker import Reply, Request
from shikisha.tools.catalogue_entry import OperationCall, OperationParameter
from shikisha.workers.endpoint import (
    HttpConnections,
    ToolArguments,
    idempotency_header,
    join_path,
    redact_and_clip,
)

if TYPE_CHECKING:
    from shikisha.workers.http_client import HttpResponse

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}


class OperationWorker:
    """One tool of a catalogue, called by HTTP. `query` are parameters of every call, keys among them."""

    def __init__(
        self,
        tool: Tool,
        call: OperationCall,
        base_url: str,
        connections: HttpConnections,
        secret_store: SecretStore,
        query: Mapping[str, str],
    ) -> None:
        self._where = f"catalogue {tool.server}, tool {tool.name}"
        self._tool, self._call, self._base = tool, call, base_url
        self._connections, self._secret_store, self._query = connections, secret_store, query
        self._arguments: ToolArguments | None = None

    async def perform(self, request: Request) -> Reply:
        """Call the operation with the arguments in the subtask; WorkerError names catalogue and tool."""
        try:
            if self._arguments is None:
                check = await SchemaCheck.create(self._tool.schema, f"{self._where}: schema")
                self._arguments = ToolArguments(check)
            arguments = await self._arguments.read(request.subtask)
            return Reply(await self._ask(arguments, request.key))
        except WorkerError as error:
            raise WorkerError.of(replace(error.fault, message=f"{self._where}: {error.fault.message}")) from None

    async def _ask(self, arguments: Mapping[str, JsonValue], key: str) -> str:
        url, headers, body = build_request(self._call, self._base, arguments, self._query)
        headers |= {"Accept": "application/json, text/*;q=0.5", **idempotency_header(key), **depth_headers()}
        async with self._connections.open().ask(self._call.method, url, headers, body) as answer:
            await answer.require_success()
            return self._answer(answer, await answer.read_all())

    def _answer(self, answer: "HttpResponse", said: bytes) -> str:
        if not said.strip():
            # A deletion rightly says nothing; the status is the result.
            return json.dumps({"status": answer.status})
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind.startswith("text/") and not kind.endswith("json"):
            return said.decode(errors="replace")
        try:
            return json.dumps(json.loads(said), ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError) as error:
            what = redact_and_clip(f"{error} (a body of {kind or 'no stated type'})", self._secret_store)
            raise WorkerError(FaultKind.BAD_REPLY, f"not the JSON that was expected: {what}") from None


def build_request(
    call: OperationCall, base_url: str, arguments: Mapping[str, JsonValue], query: Mapping[str, str]
) -> tuple[str, dict[str, str], bytes | None]:
    """Return URL, headers and body of a call; BAD_ARGUMENTS says which argument cannot be sent, and why."""
    by_place: dict[str, list[OperationParameter]] = {"path": [], "query": [], "header": []}
    for each in call.parameters:
        if each.argument in arguments:
            by_place[each.place].append(each)
    segments = {each.wire: _segment(each, arguments[each.argument]) for each in by_place["path"]}
    if missing := set(_PLACEHOLDER.findall(call.path)) - segments.keys():
        raise WorkerError(FaultKind.BAD_ARGUMENTS, f"{sorted(missing)[0]}: it is a part of the path and is missing")
    path = _PLACEHOLDER.sub(lambda found: segments[found[1]], call.path)
    pairs = [pair for each in by_place["query"] for pair in _query_pairs(each, arguments[each.argument])]
    # The configuration's own parameters stand, whatever an argument says.
    pairs = [(name, value) for name, value in pairs if name not in query] + list(query.items())
    url = join_path(base_url, path)
    if pairs:
        url += ("&" if "?" in url else "?") + urlencode(pairs)
    headers = {each.wire: _header(each, arguments[each.argument]) for each in by_place["header"]}
    body = _body(call, arguments, {each.argument for each in call.parameters})
    if body is not None:
        headers["Content-Type"] = "application/json" if call.media == "json" else "application/x-www-form-urlencoded"
    return url, headers, body


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _joined(value: JsonValue) -> str:
    return ",".join(map(_plain, value)) if isinstance(value, list) else _plain(value)


def _segment(each: OperationParameter, value: JsonValue) -> str:
    """Return an argument as one segment of a path; what could leave it is refused."""
    text = _joined(value)
    if not text or text in (".", ".."):
        raise WorkerError(FaultKind.BAD_ARGUMENTS, f"{each.argument}: {text!r} cannot stand in a path")
    return quote(text, safe=",")


def _query_pairs(each: OperationParameter, value: JsonValue) -> list[tuple[str, str]]:
    match value:
        case list() if each.style in _DELIMITERS:
            return [(each.wire, _DELIMITERS[each.style].join(map(_plain, value)))]
        case list() if each.explode and each.style != "json":
            return [(each.wire, _plain(item)) for item in value]
        case list() if each.style != "json":
            return [(each.wire, _joined(value))]
        case dict() if each.style == "deepObject":
            return [(f"{each.wire}[{name}]", _plain(item)) for name, item in value.items()]
        case dict() if each.style in ("", "form") and each.explode:
            return [(name, _plain(item)) for name, item in value.items()]
        case _:
            return [(each.wire, _plain(value))]


def _header(each: OperationParameter, value: JsonValue) -> str:
    text = _joined(value)
    if not (text.isascii() and text.isprintable()):
        raise WorkerError(FaultKind.BAD_ARGUMENTS, f"{each.argument}: no HTTP header can carry it")
    return text


def _body(call: OperationCall, arguments: Mapping[str, JsonValue], elsewhere: set[str]) -> bytes | None:
    if call.body == "*":
        content: JsonValue = {name: value for name, value in arguments.items() if name not in elsewhere}
    elif call.body and call.body in arguments:
        content = arguments[call.body]
    else:
        return None
    if call.media == "form":
        if not isinstance(content, dict):
            raise WorkerError(FaultKind.BAD_ARGUMENTS, f"{call.body}: a form is an object")
        return urlencode(
            [
                pair
                for name, value in content.items()
                for pair in (
                    [(name, _plain(item)) for item in value] if isinstance(value, list) else [(name, _plain(value))]
                )
            ]
        ).encode()
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
