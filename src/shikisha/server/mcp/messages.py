"""The Model Context Protocol, one message at a time: the handshake, tools, and long runs as tasks (2025-11-25).

Invariant: any bytes get an answer or none is due; a message that is no JSON-RPC 2.0, is nested too deeply, or names a
method or tool that is not there gets an error of the protocol and has no effect. No state is kept between messages: a
task is a run, whose id is enough, and every message is authorized by the key that comes with it.

`/mcp`: MCP over streamable HTTP, without sessions.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from shikisha import __version__
from shikisha.core.errors import ShikishaError
from shikisha.core.events import RunStatus
from shikisha.core.run import Run
from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import authenticate
from shikisha.server.http.request import parse_json
from shikisha.server.http.run_result import api_error_of
from shikisha.server.http.streams import event_stream, limit_stream, named_event
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService
from shikisha.server.mcp.tools import (
    RUN_TOOL,
    TOOLS,
    Fields,
    McpStatus,
    ToolCaller,
    begin_task,
    caught,
    ended_task,
    run_task,
    visible_task,
)
from shikisha.server.store import RunFilter

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the newest first
_PARSE_ERROR, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602
_POLL_SECONDS = 0.1
_POLL_MILLISECONDS = 1000
_TASK_MILLISECONDS = 24 * 3600 * 1000  # a client may ask for less; a run is kept as long as the journal keeps it
_MAX_LISTED = 50
_INSTRUCTIONS = (
    "Shikisha performs tasks on a pool of AI workers within budgets. Use `run` for a task, `explain` to see who did "
    "what and what it cost. What waits for a person's yes is listed by `approvals`."
)
_STATUSES: Mapping[RunStatus, McpStatus] = {
    RunStatus.RUNNING: "working",
    RunStatus.SUSPENDED: "input_required",
    RunStatus.INTERRUPTED: "cancelled",
    RunStatus.QUARANTINED: "failed",
    RunStatus.DONE: "completed",
    RunStatus.CAPPED: "completed",
    RunStatus.FAILED: "failed",
}


class _ProtocolError(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def error_message(code: int, message: str, name: object = None) -> Fields:
    """Return an error as a message."""
    return {"jsonrpc": "2.0", "id": name, "error": {"code": code, "message": message}}


def read_message(body: bytes) -> Fields:
    """Return a message that may be answered, or the error that answers it (it has an `error` then)."""
    try:
        message = parse_json(body)
    except ApiError as problem:
        return error_message(_PARSE_ERROR, problem.message)
    name = message.get("id")
    known = name if isinstance(name, str | int) and not isinstance(name, bool) else None
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str) or name != known:
        return error_message(_INVALID_REQUEST, "expected a JSON-RPC 2.0 request or notification", known)
    if not isinstance(message.get("params", {}), dict):
        return error_message(_INVALID_PARAMS, "params: expected an object", known)
    return message


def is_long(message: Fields) -> bool:
    """Whether the answer to a message may take long, or comes with notes on progress."""
    return message.get("method") in ("tools/call", "tasks/result")


async def answer_message(service: RunService, by: Principal, message: Fields) -> AsyncGenerator[Fields]:
    """Yield what answers a message, without keys: notes on progress, the response last; nothing for a notification."""
    async for told in _answers(service, by, message):
        yield without_keys(told, service.container.secret_store.scrub)


def without_keys(message: Fields, scrub: Callable[[str], str]) -> Fields:
    """Return a message scrubbed of keys: an error repeats what its client sent (invariant 8)."""
    written = dump_message(message)
    clean = scrub(written)
    if clean == written:
        return message
    told: Fields = json.loads(clean)
    return told


async def _answers(service: RunService, by: Principal, message: Fields) -> AsyncGenerator[Fields]:
    name, method = message.get("id"), str(message.get("method"))
    params = message.get("params")
    given: Mapping[str, object] = params if isinstance(params, dict) else {}
    if name is None:
        return
    try:
        if method == "tools/call":
            async for told in _call_tool(service, by, given):
                yield told if "method" in told else {"jsonrpc": "2.0", "id": name, "result": told}
            return
        result = await _result(service, by, method, given)
    except _ProtocolError as problem:
        yield error_message(problem.code, problem.message, name)
    except ApiError as problem:
        yield error_message(_INVALID_PARAMS, problem.message, name)
    except ShikishaError as error:
        yield error_message(_INVALID_PARAMS, api_error_of(error).message, name)
    else:
        yield {"jsonrpc": "2.0", "id": name, "result": result}


async def _result(service: RunService, by: Principal, method: str, given: Mapping[str, object]) -> Fields:
    match method:
        case "initialize":
            wanted = given.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
                "capabilities": {
                    "tools": {"listChanged": False},
                    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
                },
                "serverInfo": {"name": "shikisha", "title": "Shikisha", "version": __version__},
                "instructions": _INSTRUCTIONS,
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [tool.fields() for tool in TOOLS.values() if tool.may(by)]}
        case "tasks/get":
            return task_fields(await _task(service, by, given))
        case "tasks/result":
            return await _task_result(service, by, given)
        case "tasks/cancel":
            if not by.may(KeyScope.RUN):
                raise _ProtocolError(_INVALID_PARAMS, f"the key {by.name!r} lacks the scope 'run'")
            run = await _task(service, by, given)
            await service.cancel(run.id)
            return task_fields(await _task(service, by, given)) | {"status": "cancelled"}
        case "tasks/list":
            tenant = None if KeyScope.ADMIN in by.scopes else by.tenant
            found = await service.store.search(RunFilter(tenant, api="mcp", limit=_MAX_LISTED))
            caller = ToolCaller(service, by)
            return {"tasks": [task_fields(await visible_task(caller, each.run)) for each in found.runs]}
        case _:
            raise _ProtocolError(_NO_METHOD, f"there is no method {method[:80]!r}")


async def _call_tool(service: RunService, by: Principal, given: Mapping[str, object]) -> AsyncGenerator[Fields]:
    tool = TOOLS.get(str(given.get("name")))
    if tool is None or not tool.may(by):
        known = ", ".join(each.name for each in TOOLS.values() if each.may(by)) or "none"
        raise _ProtocolError(_INVALID_PARAMS, f"there is no tool {str(given.get('name'))[:80]!r}; there are: {known}")
    arguments = given.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise _ProtocolError(_INVALID_PARAMS, "arguments: expected an object")
    wanted = given.get("task")
    if wanted is not None and (tool is not RUN_TOOL or not isinstance(wanted, dict)):
        raise _ProtocolError(_INVALID_PARAMS, "task: only `run` is called as a task, with an object")
    caller = ToolCaller(service, by, _progress(given))
    if tool.call is not None:
        yield await caught(tool.call(caller, arguments))
    elif wanted is None:
        async for told in run_task(caller, arguments):
            yield told
    else:
        run = await service.read_run(await begin_task(caller, arguments))
        yield {"task": task_fields(run, wanted.get("ttl"))}


def _progress(given: Mapping[str, object]) -> "_Progress | None":
    meta = given.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return _Progress(token) if isinstance(token, str | int) else None


class _Progress:
    """Makes notifications of notes."""

    def __init__(self, token: str | int) -> None:
        self._token, self._count = token, 0

    def __call__(self, line: str) -> Fields:
        self._count += 1
        told = {"progressToken": self._token, "progress": self._count, "message": line}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}


async def _task(service: RunService, by: Principal, given: Mapping[str, object]) -> Run:
    name = given.get("taskId")
    if not isinstance(name, str) or not name or len(name) > 256:
        raise _ProtocolError(_INVALID_PARAMS, "taskId: expected the id of a task")
    return await visible_task(ToolCaller(service, by), name)


async def _task_result(service: RunService, by: Principal, given: Mapping[str, object]) -> Fields:
    """Wait until a task has ended, and return its result."""
    while True:
        run = await _task(service, by, given)
        if run.finished is not None or run.status not in (RunStatus.RUNNING, RunStatus.SUSPENDED):
            told = ended_task(run)
            return told | {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": run.id}}}
        if service.closing:
            raise _ProtocolError(_INVALID_REQUEST, "this server is being stopped: ask again")
        await asyncio.sleep(_POLL_SECONDS)


def task_fields(run: Run, ttl: object = None) -> Fields:
    """Return a run as a task."""
    kept = min(ttl, _TASK_MILLISECONDS) if type(ttl) is int and ttl > 0 else _TASK_MILLISECONDS
    last = run.finished or run.paused or run.started
    return {
        "taskId": run.id,
        "status": _STATUSES[run.status],
        "statusMessage": run.why or str(run.status),
        "createdAt": _timestamp(run.started.at),
        "lastUpdatedAt": _timestamp(last.at),
        "ttl": kept,
        "pollInterval": _POLL_MILLISECONDS,
    }


def _timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dump_message(message: Fields) -> str:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":"))


router = APIRouter(tags=["mcp"])


async def _require_any_scope(request: Request) -> Principal:
    principal = (await authenticate(request)).principal()
    if any(principal.may(scope) for scope in (KeyScope.RUN, KeyScope.READ, KeyScope.APPROVE)):
        return principal
    raise ApiError(403, f"the key {principal.name!r} has none of the scopes run, read and approve", "missing_scope")


AnyPrincipal = Annotated[Principal, Depends(_require_any_scope)]
_MESSAGE_DOC: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The response to a request, after notes on progress if it is a stream",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": SSE_CONTENT},
    },
    202: {"description": "A notification was taken"},
    400: {
        "description": "The body is no message: an error of JSON-RPC",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
}


@router.post(
    "/mcp",
    summary="Send a message of the Model Context Protocol",
    responses={**error_responses(), **_MESSAGE_DOC},
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def take_message(request: Request, by: AnyPrincipal) -> Response:
    """Answer one JSON-RPC message of an MCP client."""
    service: RunService = request.app.state.service
    message = read_message(await request.body())
    if "error" in message:
        return JSONResponse(message, 400)
    if message.get("id") is None:
        return Response(status_code=202)
    answers = answer_message(service, by, message)
    if is_long(message):
        return event_stream(limit_stream(request, by, _events(answers)), {}, grace=0.0)
    async with aclosing(answers):
        return JSONResponse(await anext(answers))


async def _events(answers: AsyncGenerator[Fields]) -> AsyncGenerator[bytes]:
    async with aclosing(answers):
        async for each in answers:
            yield named_event("message", each)
