"""A pinned catalogue as agents see it: tools found by words, and the worker that performs a call.

Invariants: what is not in the lock is neither found nor called (1); the lock is read and checked once, before the first
use, and a lock that does not hold stops the step with its reason; the index is built when a catalogue holds more tools
than are offered; all calls of a catalogue share one card, so limits are its server's. A tool of an MCP server is called
only while the server describes it as it was pinned.

Performs one HTTP operation of a catalogue: arguments become path, query, headers and body.
"""

import asyncio
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from shikisha.core.budget import Price
from shikisha.core.call import ApprovalMode, depth_headers
from shikisha.core.errors import ConfigError, FaultKind, MissingExtra, ShikishaError, UnknownName, WorkerError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.messages import Json
from shikisha.core.secrets import SecretStore
from shikisha.core.tools import Tool, ToolEffect
from shikisha.engine.guards import Guard
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request, Worker
from shikisha.tools.catalogue_entry import CatalogueEntry, OperationCall, OperationParameter
from shikisha.tools.catalogue_settings import CatalogueOptions, HttpCatalogueOptions, McpCatalogue
from shikisha.tools.lock_file import CatalogueLock
from shikisha.workers.endpoint import (
    ToolArguments,
    fill_headers,
    idempotency_header,
    join_path,
    redact_and_clip,
)
from shikisha.workers.http_connections import HttpConnections
from shikisha.workers.mcp import McpServer, build_server
from shikisha.workers.model_files import cache_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


# Of name, group, description, arguments.
FIELD_WEIGHTS = (3.0, 1.5, 1.0, 0.5)
_MAX_ARGUMENTS_SHOWN = 40
_LEAST_KEPT = 500
_MOST_KEPT = 16


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A tool that a search found, and how well it fits: 0 to 1, or the log odds of a ranker."""

    tool: Tool
    score: float


def document_fields(entry: CatalogueEntry) -> tuple[str, ...]:
    """Return the texts of a tool that are searched: name, group, description, arguments."""
    properties = entry.tool.schema.get("properties")
    shown: list[str] = []
    for name, schema in list(properties.items())[:_MAX_ARGUMENTS_SHOWN] if isinstance(properties, Mapping) else ():
        about = schema.get("description", "") if isinstance(schema, Mapping) else ""
        shown.append(f"{name} {about if isinstance(about, str) else ''}")
        inner = schema.get("properties") if isinstance(schema, Mapping) else None
        shown += list(inner)[:_MAX_ARGUMENTS_SHOWN] if isinstance(inner, Mapping) else []
    return (entry.tool.name, entry.group, entry.tool.description, " ".join(shown))


class ToolSearch:
    """Finds tools among entries by words and by meaning, ordered by a ranker where there is one.

    MissingExtra where numpy or onnxruntime is absent. The index of many tools is kept in the user's cache folder, by
    the hash of what it is made of, so that a run does not wait for it.
    """

    def __init__(
        self, entries: Sequence[CatalogueEntry], ranker_file: Path | None = None, encoder_file: Path | None = None
    ) -> None:
        try:
            from shikisha.retrieval import ranker, text_encoder, text_index
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "numpy":
                raise
            raise MissingExtra("tools", "searching a catalogue") from None
        self.entries = tuple(entries)
        self.ranker = None if ranker_file is None else ranker.load_ranker(ranker_file)
        if self.ranker is not None and self.ranker.fields != len(FIELD_WEIGHTS):
            raise ConfigError(f"a ranker for {self.ranker.fields} fields; tools have {len(FIELD_WEIGHTS)}")
        model = text_encoder.load_encoder(encoder_file)
        documents = [
            text_index.IndexedText(each.group or each.tool.server, document_fields(each)) for each in self.entries
        ]
        if len(documents) >= _LEAST_KEPT:
            # Where the arrays of these documents are kept: named by their texts, the encoder and the code
            code = resources.files("shikisha.retrieval").joinpath("text_index.py").read_bytes()
            digest = sha256(code + json.dumps([model.version, FIELD_WEIGHTS]).encode())
            for each in documents:
                digest.update("\0".join((each.group, *each.fields, "")).encode("utf-8", "replace"))
            kept = cache_folder("catalogues") / f"{digest.hexdigest()}.npz"
        else:
            kept = None
        arrays = None if kept is None else _read_arrays(kept)
        if arrays is None:
            vectors = model.encode([f"{each.fields[0]}: {each.fields[2]}" for each in documents])
            arrays = {**text_index.TextIndex(documents, FIELD_WEIGHTS).arrays(), "vectors": vectors}
            if kept is not None:
                _write_arrays(kept, arrays)
        index = text_index.TextIndex.of_arrays(arrays)
        self.search = ranker.DocumentSearch(index, model.encode, arrays["vectors"])

    def find(self, query: str, limit: int) -> list[FoundTool]:
        """Return the tools that fit best, best first."""
        ranked = self.search.rank(self.ranker, query, limit)
        return [FoundTool(self.entries[position].tool, score) for position, score in ranked]


def _read_arrays(file: Path) -> "dict[str, NDArray[Any]] | None":
    """Return what was kept; None where nothing was, or something damaged."""
    import numpy as np

    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
            return dict(kept)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _write_arrays(file: Path, arrays: "Mapping[str, NDArray[Any]]") -> None:
    """Keep the arrays, and of others the latest; a folder that cannot be written costs time and nothing else."""
    import numpy as np

    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        with part.open("wb") as opened:
            np.savez(opened, allow_pickle=False, **dict(arrays))
        part.replace(file)
        for old in sorted(file.parent.glob("*.npz"), key=lambda each: -each.stat().st_mtime)[_MOST_KEPT:]:
            old.unlink()


class ToolCatalogue:
    """The catalogue NAME, as the source "@NAME" of agents."""

    def __init__(
        self,
        name: str,
        options: CatalogueOptions,
        load: Callable[[], CatalogueLock],
        secret_store: SecretStore,
        approval: ApprovalMode,
        guards: Callable[[ToolEffect], tuple[Guard, ...]],
    ) -> None:
        self._name = name
        self._options = options
        self._load = load
        self._secret_store = secret_store
        self._approval = options.approval_of(approval)
        self._guards = guards
        self._lock: CatalogueLock | None = None
        self._entries: dict[str, CatalogueEntry] = {}
        self._search: ToolSearch | None = None
        self._building = threading.Lock()
        self._connections: dict[str, HttpConnections] = {}
        self._server: McpServer | None = None

    @property
    def name(self) -> str:
        """The name that journals carry."""
        return f"@{self._name}"

    def read(self) -> CatalogueLock:
        """Return the lock, read and checked once; ConfigError says what does not hold."""
        with self._building:
            if self._lock is None:
                self._lock = self._load()
                self._entries = {each.tool.name: each for each in self._lock.entries}
            return self._lock

    def search_now(self, query: str, limit: int) -> list[FoundTool]:
        """Return the tools that fit best with their scores; the index is built once."""
        lock = self.read()
        with self._building:
            if self._search is None:
                self._search = ToolSearch(lock.entries, self._options.ranker, self._options.encoder)
        return self._search.find(query, limit)

    async def pin(self) -> str:
        """Return the hash over all tools; WorkerError where the lock does not hold."""
        return (await self._checked()).pin

    async def count(self) -> int:
        """Return how many tools are pinned."""
        return len((await self._checked()).entries)

    async def search(self, query: str, limit: int) -> Sequence[Tool]:
        """Return the tools that fit best, best first; all of them, in order of names, where there are no more."""
        entries = (await self._checked()).entries
        if len(entries) <= limit:
            return [each.tool for each in entries]
        try:
            return [found.tool for found in await asyncio.to_thread(self.search_now, query, limit)]
        except ShikishaError as error:
            raise WorkerError(FaultKind.BAD_REQUEST, str(error)) from None

    async def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name."""
        await self._checked()
        return self._entries[name].tool if name in self._entries else None

    async def member(self, tool: Tool) -> Member:
        """Return who performs a call of this tool; WorkerError where nobody can."""
        await self._checked()
        entry = self._entries.get(tool.name)
        if entry is None:
            raise UnknownName(f"tool of {self.name}", tool.name, list(self._entries)[:50])
        card = replace(self.card(), approval=self._approval(entry.tool.writes))
        try:
            return Member(card, self._worker(entry, card), guards=self._guards(entry.tool.effect))
        except ConfigError as error:
            raise WorkerError(FaultKind.BAD_REQUEST, str(error)) from None

    def card(self) -> Card:
        """Return the card that all calls share."""
        options = self._options
        return Card(
            name=self._name,
            description=options.description,
            kind="catalogue",
            price=None if options.price is None else Price(call=options.price),
            concurrency=options.concurrency,
            rate=options.rate,
            timeout=options.timeout,
            attempts=options.attempts,
            sees=options.sees,
            adds=options.adds,
        )

    async def aclose(self) -> None:
        """Close the connections, and the MCP server's process where there is one."""
        connections, self._connections = self._connections, {}
        for each in connections.values():
            await each.aclose()
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()

    async def _checked(self) -> CatalogueLock:
        if self._lock is not None:
            return self._lock
        try:
            return await asyncio.to_thread(self.read)
        except ConfigError as error:
            raise WorkerError(FaultKind.BAD_REQUEST, str(error)) from None

    def _worker(self, entry: CatalogueEntry, card: Card) -> Worker:
        options, where = self._options, f"catalogue {self._name}, tool {entry.tool.name}"
        base = options.named_server or (entry.call.base_url if entry.call is not None else "")
        if problem := options.server_problem(base):
            raise ConfigError(f"{where}: {problem}")
        if isinstance(options, McpCatalogue):
            if self._server is None:
                self._server = build_server(options, card, self._secret_store, f"catalogue {self._name}")
            return _PinnedMcpTool(entry, self._server)
        if not isinstance(options, HttpCatalogueOptions) or entry.call is None:
            raise ConfigError(f"{where}: the lock does not say how it is called")
        if not base:
            raise ConfigError(f"{where}: its document names no server; expected base_url")
        if base not in self._connections:
            headers = fill_headers(options.headers, self._secret_store)
            self._connections[base] = HttpConnections(
                card, base, options.max_bytes, headers, self._secret_store, options.address_rule(base)
            )
        query = fill_headers(options.query, self._secret_store)
        return OperationWorker(entry.tool, entry.call, base, self._connections[base], self._secret_store, query)


class _PinnedMcpTool:
    """A tool of an MCP server, called only while it is as it was pinned."""

    def __init__(self, entry: CatalogueEntry, server: McpServer) -> None:
        self._entry, self._server = entry, server

    async def perform(self, request: Request) -> Reply:
        """Call the tool with the arguments in the subtask; WorkerError names catalogue and tool."""
        entry = self._entry
        try:
            text = await self._server.call(entry.wire_name, request.subtask, request.key, entry.wire_sha256, None)
        except WorkerError as error:
            where = f"catalogue {entry.tool.server}, tool {entry.tool.name}"
            raise WorkerError.of(replace(error.fault, message=f"{where}: {error.fault.message}")) from None
        return Reply(text)


def tool_json(found: FoundTool) -> Mapping[str, Json]:
    """Return what a search shows of a tool."""
    tool = found.tool
    return {
        "name": tool.name,
        "catalogue": tool.server,
        "description": tool.description,
        "parameters": tool.schema,
        "effect": str(tool.effect),
        "sha256": tool.sha256,
        "score": round(found.score, 4),
    }
