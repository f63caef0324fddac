"""A worker that is another agent, reached over Agent2Agent (A2A 1.0, JSON-RPC).

Invariants: the agent's card is read once, and its address must be on the host that the configuration names, so that a
card sends no key elsewhere; what the worker is shown is the whole message, and nothing else leaves; replies are bounded
and redirects not followed; a message carries the step's idempotency key as its id. A task that is not done at once is
asked for until the time limit, then canceled. Deliberately absent: streaming, files, gRPC, and answers to an agent that
asks back: that is a fault, so that a fallback may answer.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Annotated
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

from pydantic import Field

from shikisha.core.call import depth_headers
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.core.visibility import request_messages
from shikisha.engine.worker import Card, Reply, Request, WorkerKind
from shikisha.workers import endpoint
from shikisha.workers.endpoint import redact_and_clip
from shikisha.workers.http_connections import HttpConnections
from shikisha.workers.scripted import ScriptedWorker

_CARD_PATH = "/.well-known/agent-card.json"
_VERSION = "1.0"
_POLL_SECONDS = (0.1, 0.2, 0.5, 1.0)
_CANCEL_SECONDS = 2.0  # of the time limit, to tell the agent to stop
_WORKING = frozenset({"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"})
_ASKING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})


class A2ASettings(Table):
    """One agent: where its card is, and what opens it."""

    url: endpoint.EndpointUrl = Field(description="the agent's address, under which its card is, or the card's own URL")
    api_key_env: str | None = Field(
        default=None, description="the environment variable that holds the key; sent as a bearer token"
    )
    headers: endpoint.HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 * 2**20, description="the largest reply, in bytes")


def build(settings: A2ASettings, card: Card, secret_store: SecretStore) -> "A2AWorker":
    """Return the worker; ConfigError for a missing key."""
    headers = endpoint.key_headers(settings.headers, settings.api_key_env, settings.url, secret_store)
    return A2AWorker(settings, card, secret_store, headers)


KIND = WorkerKind(
    settings=A2ASettings, build=build, double=ScriptedWorker, billed=True, uncalled="a call may change something"
)


class A2AWorker:
    """One agent."""

    def __init__(
        self, settings: A2ASettings, card: Card, secret_store: SecretStore, headers: Mapping[str, str]
    ) -> None:
        self._settings, self._card, self._secret_store = settings, card, secret_store
        self._connections = HttpConnections(card, settings.url, settings.max_bytes, headers, secret_store)
        self._address: str | None = None

    async def perform(self, request: Request) -> Reply:
        """Send the agent what the worker is shown, and return what it answers."""
        text = "\n\n".join(turn.text for turn in request_messages(request) if turn.text)
        task: list[str] = []
        try:
            async with asyncio.timeout(self._card.timeout - min(_CANCEL_SECONDS, self._card.timeout / 4)):
                return Reply(await self._send(text, request.key, task))
        except TimeoutError:
            await self._cancel(task)
            raise WorkerError(FaultKind.TIMEOUT, f"no whole answer within {self._card.timeout:g} s") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _send(self, text: str, key: str, task: list[str]) -> str:
        message = {"messageId": key or uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
        wanted = {"acceptedOutputModes": ["text/plain", "application/json"]}
        told = await self._call("SendMessage", {"message": message, "configuration": wanted}, key)
        if isinstance(said := told.get("message"), Mapping):
            return _text(said.get("parts"))
        found = told.get("task")
        for pause in chain(_POLL_SECONDS, repeat(_POLL_SECONDS[-1])):  # the time limit ends it
            if not isinstance(found, Mapping):
                raise _bad_reply("neither a message nor a task")
            state = _state(found)
            if state not in _WORKING:
                return _result(found, state, self._secret_store)
            task[:] = [str(found.get("id"))]
            await asyncio.sleep(pause)
            found = await self._call("GetTask", {"id": task[0]}, "")
        raise _bad_reply("no end")

    async def _cancel(self, task: Sequence[str]) -> None:
        """Ask the agent to stop, once and briefly: it may go on all the same."""
        for name in task:
            with suppress(WorkerError, TimeoutError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self._call("CancelTask", {"id": name}, "")

    async def _call(self, method: str, params: Mapping[str, object], key: str) -> Mapping[str, object]:
        """Call a method and return its result; an error of the protocol is a fault."""
        if self._address is None:
            self._address = await self._find_address()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", **endpoint.idempotency_header(key), **depth_headers()}
        told = await self._ask("POST", self._address, headers, body)
        error, result = told.get("error"), told.get("result")
        if isinstance(error, Mapping):
            said = redact_and_clip(f"{error.get('code')}: {error.get('message')}", self._secret_store)
            raise WorkerError(FaultKind.BAD_REQUEST, f"the agent refuses {method}: {said}")
        if not isinstance(result, Mapping):
            raise _bad_reply("no result")
        return result

    async def _find_address(self) -> str:
        """Read the card, and return the address of its JSON-RPC interface, which must be on the card's own host."""
        given = self._settings.url
        url = given if given.endswith(".json") else f"{given.rstrip('/')}{_CARD_PATH}"
        told = await self._ask("GET", url, {}, None)
        interfaces = told.get("supportedInterfaces")
        for each in interfaces if isinstance(interfaces, list) else ():
            if not isinstance(each, Mapping) or each.get("protocolBinding") != "JSONRPC":
                continue
            address = urljoin(url, str(each.get("url")))
            if urlsplit(address)[:2] != urlsplit(url)[:2]:
                wanted = urlsplit(url).netloc
                raise _bad_reply(f"a card that points to another host; expected an address on {wanted}")
            if str(each.get("protocolVersion", _VERSION)).partition(".")[0] == "1":
                return address
        raise _bad_reply("a card without a JSON-RPC interface of A2A 1.x")

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Mapping[str, object]:
        sent = {"Accept": "application/json", "A2A-Version": _VERSION, **headers}
        async with self._connections.open().ask(method, url, sent, body) as answer:
            await answer.require_success()
            try:
                told: object = json.loads(await answer.read_all())
            except (ValueError, RecursionError):
                raise _bad_reply("no JSON") from None
        if not isinstance(told, Mapping):
            raise _bad_reply("no JSON object")
        return told


def _state(task: Mapping[str, object]) -> str:
    status = task.get("status")
    return str(status.get("state")) if isinstance(status, Mapping) else ""


def _result(task: Mapping[str, object], state: str, secret_store: SecretStore) -> str:
    """Return the text of a task that is done; WorkerError for every other end."""
    status = task.get("status")
    said = status.get("message") if isinstance(status, Mapping) else None
    words = _text_or_none(said.get("parts")) if isinstance(said, Mapping) else None
    if state == "TASK_STATE_COMPLETED":
        artifacts = task.get("artifacts")
        texts = [
            text
            for each in (artifacts if isinstance(artifacts, list) else ())
            if isinstance(each, Mapping) and (text := _text_or_none(each.get("parts")))
        ]
        answer = "\n\n".join(texts) or words
        if not answer:
            raise WorkerError(FaultKind.EMPTY, "the agent's task is completed, without any text")
        return answer
    detail = redact_and_clip(words, secret_store) if words else "it does not say why"
    if state in _ASKING:
        raise WorkerError(FaultKind.REFUSED, f"the agent asks back, which nobody answers here: {detail}")
    raise WorkerError(FaultKind.TOOL_ERROR, f"the agent's task ended as {state.lower() or 'nothing'}: {detail}")


def _text(parts: object) -> str:
    text = _text_or_none(parts)
    if not text:
        raise WorkerError(FaultKind.EMPTY, "the agent's message has no text")
    return text


def _text_or_none(parts: object) -> str | None:
    """Return the text of parts; data stands there as JSON."""
    texts = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(str(part["text"]))
        elif isinstance(part, Mapping) and "data" in part:
            texts.append(json.dumps(part["data"], ensure_ascii=False))
    return "\n\n".join(texts).strip() or None


def _bad_reply(what: str) -> WorkerError:
    return WorkerError(FaultKind.BAD_REPLY, f"not what A2A says: {what}")
