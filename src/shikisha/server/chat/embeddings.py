"""`POST /v1/embeddings`: texts to a worker of the kind `embedding`, as a run of one call.

Invariants: a call is reserved against the key's budget, journaled and charged as every other; a key's workers, labels
and caps hold; no conductor plans for it. A model's name is the worker's, or its endpoint's name for the model.
"""

import asyncio
import json
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from shikisha.core.call import Card
from shikisha.core.task import Task
from shikisha.core.visibility import is_cleared, join_labels
from shikisha.server.chat.models import embedding_workers
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import (
    RequestModel,
    ignored_header,
    read_json,
    read_request_options,
    request_body_doc,
    validate_known,
)
from shikisha.server.http.run_result import NO_RETRY, answer_or_error, finished_headers, run_usage
from shikisha.server.http.streams import run_unless_disconnected
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun
from shikisha.server.lifecycle.service import RunService, read_idempotency_key, start_once
from shikisha.workers.embedding import MAX_TEXTS, EmbeddingTask, decode_vector

router = APIRouter(tags=["embeddings"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]
_DEFAULT_MODEL = "shikisha"  # the first of these workers
InputText = Annotated[str, Field(min_length=1)]


class EmbeddingRequest(RequestModel):
    """The body of `POST /v1/embeddings`; lists of tokens are refused, since workers have tokenizers of their own."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    input: InputText | Annotated[list[InputText], Field(min_length=1, max_length=MAX_TEXTS)]
    dimensions: Annotated[int, Field(ge=1, le=65_536)] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None


@router.post(
    "/v1/embeddings",
    summary="Create embeddings",
    responses={**error_responses(402, 404, 409, 502, 504), 200: {"description": "The vectors"}},
    openapi_extra=request_body_doc(EmbeddingRequest),
)
async def create_embeddings(request: Request, by: RunPrincipal) -> Response:
    """Return a vector for each text."""
    service: RunService = request.app.state.service
    raw = await read_json(request)
    asked, unknown = validate_known(raw, EmbeddingRequest, refuse=service.settings.unknown == "refuse")
    # The authorized run; ApiError when there is no such worker for this key, these labels and these headers.
    options = read_request_options(request.headers)
    container = service.container
    able = embedding_workers(container, by)
    cards = [card for card in able if options.workers is None or card.name in options.workers]
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    labels = tuple(sorted(join_labels(options.labels, by.labels)))
    card = _find(service, cards, asked.model)
    if not is_cleared(card, labels, container.guarded_labels):
        raise ApiError(403, f"the worker {card.name!r} is not cleared for these labels", "not_cleared")
    order = AuthorizedRun(
        task=Task(
            EmbeddingTask(input=texts, dimensions=asked.dimensions).model_dump_json(exclude_none=True),
            domain=options.domain,
            labels=labels,
        ),
        by=by,
        model=card.name,
        conductor="fixed:single",
        pool=(card.name,),
        caps=options.narrow_caps(container.caps),
        api=Api.EMBEDDINGS,
        metadata={} if asked.user is None else {"user": asked.user},
        depth=options.depth,
    )
    started = await start_once(service, replace(order, idempotency=read_idempotency_key(request.headers)))

    async def gone() -> None:
        if started.fresh:
            await service.cancel(started.run)

    headers = ignored_header(unknown, service.container.secret_store.scrub)
    return await run_unless_disconnected(request, _embeddings(service, asked, started.run, headers), gone)


def _find(service: RunService, cards: list[Card], model: str) -> Card:
    for card in cards:
        if model in (_DEFAULT_MODEL, card.name, endpoint_model(service, card.name)):
            return card
    known = ", ".join(card.name for card in cards) or "none: a worker of the kind embedding is needed"
    raise ApiError(
        404, f"there is no embedding model {model[:80]!r}; known are: {known}", "model_not_found", param="model"
    )


def endpoint_model(service: RunService, worker: str) -> str | None:
    """Return the name of a worker's model at its endpoint, where it has one."""
    table = service.container.workers.get(worker)
    told: object = None if table is None else table.model_dump(mode="json").get("model")
    return told if isinstance(told, str) else None


async def _embeddings(service: RunService, asked: EmbeddingRequest, name: str, headers: dict[str, str]) -> JSONResponse:
    """Wait for the run, and return the vectors or the error."""
    async for _ in service.listen(name):
        pass
    run = await service.read_run(name)
    usage, found = run_usage(run), answer_or_error(run)
    headers = {**headers, **finished_headers(name, usage)}
    if isinstance(found, ApiError):
        return JSONResponse({**found.body(), "run": name}, found.status, {**found.headers(), **NO_RETRY, **headers})
    kept: list[str] = json.loads(found.text)
    whole = asked.encoding_format == "base64"
    vectors = kept if whole else await asyncio.to_thread(lambda: [list(decode_vector(each)) for each in kept])
    data = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(vectors)]
    spent = {"prompt_tokens": usage.tokens, "total_tokens": usage.tokens, "cost": usage.dollars}
    body = {"object": "list", "data": data, "model": run.started.pool[0], "usage": spent}
    return JSONResponse(body, headers=headers)
