"""`/mcp`: MCP over streamable HTTP, without sessions.

Invariants: every message is authorized by the key that comes with it (the scope `run`, `read` or `approve`); an answer
that may take long is a stream with keep-alives, and its run is canceled when the client leaves, unless it is a task.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from shikisha.server.http.api_errors import SSE_CONTENT, ApiError, error_responses
from shikisha.server.http.auth import authenticate
from shikisha.server.http.streams import event_stream, limit_stream, named_event
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService
from shikisha.server.mcp.messages import answer_message, is_long, read_message
from shikisha.server.mcp.tools import Fields

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
