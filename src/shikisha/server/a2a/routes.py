"""`/.well-known/agent-card.json` and `/a2a`: a card that says what this agent does, and its messages and tasks.

Invariants: the card names no worker, model or price, because nobody needs a key to read it; every message is authorized
by the key that comes with it (the scope `run`), within the budgets of that key; a message that is repeated under its id
begins no second run. Deliberately absent: streaming and push notifications (clients poll, or wait for the answer),
files, and further messages for a task that waits: a person answers that where approvals are.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from shikisha import __version__
from shikisha.core.errors import ShikishaError
from shikisha.core.events import RunStatus
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import read_request_options
from shikisha.server.http.run_result import api_error_of
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, RequestedRun
from shikisha.server.lifecycle.broadcast import LiveRun, follow_run
from shikisha.server.lifecycle.service import RunService, start_once
from shikisha.server.mcp.messages import dump_message, error_message, read_message, without_keys
from shikisha.server.mcp.tools import Fields, ToolCaller, visible_task

router = APIRouter(tags=["a2a"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]

PROTOCOL_VERSION = "1.0"
_NO_METHOD, _INVALID_PARAMS, _NO_TASK, _UNSUPPORTED, _NOT_CANCELABLE = -32601, -32602, -32001, -32004, -32002
_UNSUPPORTED_METHODS = frozenset({"SendStreamingMessage", "SubscribeToTask", "GetExtendedAgentCard"})
_MAX_PARTS, _MAX_NAME = 100, 256
_STATES: Mapping[RunStatus, str] = {
    RunStatus.RUNNING: "TASK_STATE_WORKING",
    RunStatus.SUSPENDED: "TASK_STATE_INPUT_REQUIRED",
    RunStatus.INTERRUPTED: "TASK_STATE_CANCELED",
    RunStatus.QUARANTINED: "TASK_STATE_FAILED",
    RunStatus.DONE: "TASK_STATE_COMPLETED",
    RunStatus.CAPPED: "TASK_STATE_COMPLETED",
    RunStatus.FAILED: "TASK_STATE_FAILED",
}


class _A2AError(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@router.get("/.well-known/agent-card.json", summary="Read the agent card")
async def read_card(request: Request) -> dict[str, object]:
    """Return the card of A2A: what this agent does, where, and that it takes a key."""
    service: RunService = request.app.state.service
    base = (service.settings.url or str(request.base_url)).rstrip("/")
    return {
        "name": "Shikisha",
        "description": "Performs tasks on a pool of AI workers within a budget; every decision is recorded.",
        "version": __version__,
        "supportedInterfaces": [
            {"url": f"{base}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": PROTOCOL_VERSION}
        ],
        "capabilities": {"streaming": False, "pushNotifications": False, "extendedAgentCard": False},
        "securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": "Bearer", "description": "A virtual key."}}},
        "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {
                "id": "run",
                "name": "Perform a task",
                "description": "Takes a task in plain words and returns its answer, with what it cost.",
                "tags": ["orchestration", "routing"],
                "inputModes": ["text/plain", "application/json"],
                "outputModes": ["text/plain"],
            }
        ],
    }


_DOC: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The response to a request, or an error of JSON-RPC",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    400: {
        "description": "The body is no message: an error of JSON-RPC",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
}


@router.post(
    "/a2a",
    summary="Send a message of the Agent2Agent protocol",
    responses={**error_responses(), **_DOC},
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def take_message(request: Request, by: RunPrincipal) -> JSONResponse:
    """Answer one JSON-RPC request: SendMessage, GetTask, CancelTask."""
    service: RunService = request.app.state.service
    message = read_message(await request.body())
    if "error" in message:
        return JSONResponse(message, 400)
    name, method, params = message.get("id"), str(message.get("method")), message.get("params")
    given: Mapping[str, object] = params if isinstance(params, dict) else {}
    try:
        result = await _answer(request, by, method, given)
        told: Fields = {"jsonrpc": "2.0", "id": name, "result": result}
    except _A2AError as problem:
        told = error_message(problem.code, problem.message, name)
    except ApiError as problem:
        missing = problem.status == 404 and method != "SendMessage"
        told = error_message(_NO_TASK if missing else _INVALID_PARAMS, problem.message, name)
    except ShikishaError as error:
        told = error_message(_INVALID_PARAMS, api_error_of(error).message, name)
    return JSONResponse(without_keys(told, service.container.secret_store.scrub))


async def _answer(request: Request, by: Principal, method: str, given: Mapping[str, object]) -> Fields:
    service: RunService = request.app.state.service
    match method:
        case "SendMessage":
            return {"task": task_fields(await _perform(request, by, given))}
        case "GetTask":
            return task_fields(await _visible(service, by, given))
        case "CancelTask":
            run = await _visible(service, by, given)
            if run.finished is not None:
                raise _A2AError(_NOT_CANCELABLE, f"the task {run.id} has ended")
            await service.cancel(run.id)
            return task_fields(await _visible(service, by, given), canceled=True)
        case _ if method in _UNSUPPORTED_METHODS:
            raise _A2AError(_UNSUPPORTED, f"{method} is not supported here: use SendMessage and GetTask")
        case _:
            raise _A2AError(_NO_METHOD, f"there is no method {method[:80]!r}")


async def _perform(request: Request, by: Principal, given: Mapping[str, object]) -> Run:
    """Begin the run of a message, and return it when it has ended or waits; at once where the client wants that."""
    service: RunService = request.app.state.service
    message, wanted = given.get("message"), given.get("configuration")
    if not isinstance(message, dict):
        raise _A2AError(_INVALID_PARAMS, "message: expected an object")
    if message.get("taskId"):
        raise _A2AError(_UNSUPPORTED, "a task takes no further message here: send a new one without taskId")
    key = message.get("messageId")
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_NAME:
        raise _A2AError(_INVALID_PARAMS, f"messageId: expected a text of 1 to {_MAX_NAME} characters")
    options = read_request_options({name.lower(): value for name, value in request.headers.items()})
    requested = RequestedRun(
        "shikisha",
        Task(_text_of(message.get("parts"))),
        Api.A2A,
        options,
        detached=True,
        idempotency=sha256(f"a2a {key}".encode()).hexdigest(),
    )
    run = (await start_once(service, service.authorizer.authorize(requested, by))).run
    if not (isinstance(wanted, dict) and wanted.get("returnImmediately") is True):
        async for _ in follow_run(service.journal, service.store, lambda: _live(service, run), run, -1):
            pass
    return await visible_task(ToolCaller(service, by), run)


def _live(service: RunService, run: str) -> LiveRun | None:
    running = service.running.get(run)
    return None if running is None else running.live


def _text_of(parts: object) -> str:
    """Return the text of a message's parts; data stands there as JSON, and files are refused."""
    if not isinstance(parts, list) or not 0 < len(parts) <= _MAX_PARTS:
        raise _A2AError(_INVALID_PARAMS, f"message.parts: expected 1 to {_MAX_PARTS} parts")
    texts = []
    for place, part in enumerate(parts):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(str(part["text"]))
        elif isinstance(part, dict) and "data" in part:
            texts.append(dump_message({"data": part["data"]}))
        else:
            raise _A2AError(_INVALID_PARAMS, f"message.parts[{place}]: expected text or data; files are not taken here")
    text = "\n\n".join(texts)
    if not text.strip():
        raise _A2AError(_INVALID_PARAMS, "message.parts: there is no text")
    return text


async def _visible(service: RunService, by: Principal, given: Mapping[str, object]) -> Run:
    name = given.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise _A2AError(_INVALID_PARAMS, "id: expected the id of a task")
    return await visible_task(ToolCaller(service, by), name)


def task_fields(run: Run, *, canceled: bool = False) -> Fields:
    """Return a run as a task: its state, why it is so, and the answer as an artifact."""
    last = run.finished or run.paused or run.started
    at = datetime.fromtimestamp(last.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    state = "TASK_STATE_CANCELED" if canceled else _STATES[run.status]
    said = {"messageId": f"{run.id}-status", "role": "ROLE_AGENT", "parts": [{"text": run.why or str(run.status)}]}
    told: Fields = {
        "id": run.id,
        "contextId": run.id,
        "status": {"state": state, "timestamp": at, "message": said},
        "metadata": {"dollars": run.charged.dollars, "tokens": run.charged.tokens, "run": run.id},
    }
    if run.answer is None:
        return told
    return told | {"artifacts": [{"artifactId": "answer", "name": "answer", "parts": [{"text": run.answer}]}]}
