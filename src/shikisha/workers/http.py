"""A worker that calls a JSON tool behind one URL.

Invariants: URL, method and headers come from the configuration and from nowhere else; a subtask contributes arguments
that fit a schema; redirects are not followed and the reply is bounded. Deliberately absent: templates in the URL,
methods other than GET, POST and PUT, and replies that are not JSON.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import AfterValidator, Field, JsonValue

from shikisha.core.call import depth_headers
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import Card, Json, Reply, Request, WorkerKind
from shikisha.workers import endpoint
from shikisha.workers.endpoint import ToolArguments, redact_and_clip
from shikisha.workers.http_connections import HttpConnections


def _check_pointer(pointer: str) -> str:
    if pointer and not pointer.startswith("/"):
        raise ValueError("a JSON pointer (RFC 6901) begins with '/'")
    return pointer


class HttpSettings(Table):
    """One tool: where it is, what it takes, and which part of its reply is the answer."""

    url: endpoint.EndpointUrl = Field(description="the URL of the tool")
    method: Literal["GET", "POST", "PUT"] = Field(
        default="POST", description="the HTTP method; GET carries arguments in the query, POST and PUT in a JSON body"
    )
    headers: endpoint.HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    arguments: dict[str, JsonValue] = Field(
        default={"type": "object"}, description="a JSON Schema of the tool's arguments"
    )
    argument: str | None = Field(default=None, description="the argument that receives a subtask in plain words")
    result: Annotated[str, AfterValidator(_check_pointer)] | None = Field(
        default=None, description="a JSON pointer to the answer in the reply; by default the whole reply"
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 * 2**20, description="the largest reply, in bytes")


Settings = HttpSettings  # the name that `config.kinds` looks up


def build(settings: HttpSettings, card: Card, secret_store: SecretStore) -> "HttpWorker":
    """Return the worker; ConfigError for an invalid schema or a missing key."""
    arguments = ToolArguments(SchemaCheck(settings.arguments, f"worker {card.name!r}: arguments"), settings.argument)
    return HttpWorker(settings, card, secret_store, endpoint.fill_headers(settings.headers, secret_store), arguments)


KIND = WorkerKind(
    settings=HttpSettings,
    build=build,
    billed=True,
    any_task=True,
    uncalled="a call may change something, and needs its own arguments",
)


class HttpWorker:
    """One tool."""

    def __init__(
        self,
        settings: HttpSettings,
        card: Card,
        secret_store: SecretStore,
        headers: Mapping[str, str],
        arguments: ToolArguments,
    ) -> None:
        self._settings = settings
        self._secret_store = secret_store
        self._arguments = arguments
        self._connections = HttpConnections(card, settings.url, settings.max_bytes, headers, secret_store)

    @property
    def argument_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of the tool's arguments."""
        return self._settings.arguments

    async def perform(self, request: Request) -> Reply:
        """Call the tool with the arguments in the subtask."""
        return Reply(await self._ask(await self._arguments.read(request.subtask), request.key))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _ask(self, arguments: Mapping[str, object], key: str) -> str:
        url, body, settings = self._settings.url, None, self._settings
        headers = {"Accept": "application/json", **endpoint.idempotency_header(key), **depth_headers()}
        if settings.method == "GET":
            # Add the arguments to the URL's query; parameters from the configuration stay as they are.
            parts = urlsplit(url)
            there = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
            given = [
                (name, value if isinstance(value, str) else _compact_json(value)) for name, value in arguments.items()
            ]
            more = urlencode([(name, value) for name, value in given if name not in there])
            url = urlunsplit(parts._replace(query="&".join(filter(None, (more, parts.query)))))
        else:
            body = _compact_json(arguments).encode()
            headers["Content-Type"] = "application/json"
        async with self._connections.open().ask(settings.method, url, headers, body) as answer:
            await answer.require_success()
            said = await answer.read_all()
            if not said.strip():
                raise WorkerError(FaultKind.EMPTY, f"status {answer.status} without a body")
            return self._answer(said, answer.headers.get("Content-Type", "no stated type"))

    def _answer(self, said: bytes, kind: str) -> str:
        try:
            reply = json.loads(said)
            answer = reply if self._settings.result is None else _follow_pointer(reply, self._settings.result)
        except (ValueError, LookupError, RecursionError) as error:
            what = redact_and_clip(f"{error} (a body of {kind})", self._secret_store)
            raise WorkerError(FaultKind.BAD_REPLY, f"not the JSON that was expected: {what}") from None
        text = answer if isinstance(answer, str) else _compact_json(answer)
        if not text.strip():
            raise WorkerError(FaultKind.EMPTY, "the tool's answer is empty text")
        return text


def _compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _follow_pointer(value: object, pointer: str) -> object:
    """Follow a JSON pointer (RFC 6901); LookupError names the part that leads nowhere."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise LookupError(f"the reply has nothing at {pointer!r}: no {name!r}")
    return value
