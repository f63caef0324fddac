"""A worker that turns texts into vectors at an OpenAI-compatible `/embeddings`, for the server's door of that name.

Invariants: it is in no pool that a conductor plans for; its task is a JSON object with texts, and its reply a JSON list
of as many vectors of one length, each as float32 in base64, so that a journal holds a quarter of the bytes. Its use
is what the endpoint says, and no less than any tokenizer makes of the texts. Deliberately absent: tokens as input.
"""

import json
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated

from pydantic import BaseModel, Field, StrictInt, StrictStr, ValidationError

from shikisha.core.budget import Usage
from shikisha.core.call import depth_headers
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import Card, Reply, Request, WorkerKind
from shikisha.workers import endpoint
from shikisha.workers.chat_usage import with_minimum_tokens
from shikisha.workers.endpoint import redact_and_clip
from shikisha.workers.endpoint_faults import model_fault, read_error_body
from shikisha.workers.http_connections import HttpConnections
from shikisha.workers.provider_profile import profile_at

_PATH = "/embeddings"
MAX_TEXTS = 256
_MAX_DIMENSIONS = 65_536


class EmbeddingSettings(Table):
    """One embedding model of one endpoint."""

    model: Annotated[str, Field(min_length=1)] = Field(description="the name of the embedding model at its endpoint")
    base_url: endpoint.EndpointUrl = Field(
        default=endpoint.OPENAI_URL, description="the base URL of an OpenAI-compatible API with /embeddings"
    )
    api_key_env: str | None = Field(
        default=None, description="the environment variable that holds the API key; local endpoints may need none"
    )
    headers: endpoint.HeaderTemplates = Field(
        default={}, description="further HTTP headers; ${NAME} stands for the value of an environment variable"
    )
    max_bytes: Annotated[int, Field(ge=1024)] = Field(default=32 * 2**20, description="the largest reply, in bytes")


def build(settings: EmbeddingSettings, card: Card, secret_store: SecretStore) -> "EmbeddingWorker":
    """Return the worker; ConfigError for a missing key."""
    headers = endpoint.key_headers(settings.headers, settings.api_key_env, settings.base_url, secret_store)
    return EmbeddingWorker(settings, card, secret_store, headers)


KIND = WorkerKind(settings=EmbeddingSettings, build=build, billed=True)


class EmbeddingTask(Table):
    """A task of this worker, which is written as the prompt of a task."""

    input: Annotated[list[Annotated[StrictStr, Field(min_length=1)]], Field(min_length=1, max_length=MAX_TEXTS)]
    dimensions: Annotated[StrictInt, Field(ge=1, le=_MAX_DIMENSIONS)] | None = None


class _Embedding(BaseModel):
    index: StrictInt
    embedding: list[float] | StrictStr


class _EmbeddingUsage(BaseModel):
    prompt_tokens: Annotated[StrictInt, Field(ge=0, le=10**12)] = 0


class _EmbeddingReply(BaseModel):
    data: list[_Embedding]
    model: StrictStr = ""
    usage: _EmbeddingUsage = _EmbeddingUsage()


class EmbeddingWorker:
    """One embedding model behind one endpoint."""

    def __init__(
        self, settings: EmbeddingSettings, card: Card, secret_store: SecretStore, headers: Mapping[str, str]
    ) -> None:
        self._settings, self._secret_store = settings, secret_store
        self._connections = HttpConnections(card, settings.base_url, settings.max_bytes, headers, secret_store)

    async def perform(self, request: Request) -> Reply:
        """Return the vectors of the task's texts."""
        task = read_embedding_task(request.task.prompt)
        try:
            answer = await self._ask(task, request.key)
        except (ValueError, RecursionError) as error:
            what = redact_and_clip(str(error).splitlines()[0], self._secret_store)
            raise WorkerError(FaultKind.BAD_REPLY, f"not what the protocol allows: {what}") from None
        wanted = len(task.input)
        found = {each.index: _encode(each.embedding) for each in answer.data}
        sizes = {len(vector) for vector in found.values()}
        if sorted(found) != list(range(wanted)) or len(answer.data) != wanted or len(sizes) != 1:
            said = f"{wanted} texts got {len(answer.data)} vectors of {len(sizes)} lengths"
            raise WorkerError(FaultKind.BAD_REPLY, said)
        vectors = [found[index] for index in range(wanted)]
        usage = with_minimum_tokens(Usage(answer.usage.prompt_tokens), task.input, ())
        return Reply(json.dumps(vectors), usage, model=answer.model)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _ask(self, task: EmbeddingTask, key: str) -> _EmbeddingReply:
        headers = {"Content-Type": "application/json", **endpoint.idempotency_header(key), **depth_headers()}
        url = endpoint.join_path(self._settings.base_url, _PATH)
        fields = {"model": self._settings.model, **task.model_dump(exclude_none=True), "encoding_format": "float"}
        sent = json.dumps(fields).encode()
        async with self._connections.open().ask("POST", url, headers, sent) as response:
            if not response.succeeded:
                stated, _ = read_error_body(await response.error_body())
                profile = profile_at(self._settings.base_url)
                raise model_fault(response.status, response.headers, stated, self._secret_store, profile)
            try:
                return _EmbeddingReply.model_validate_json(await response.read_all())
            except ValidationError as error:
                where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
                raise ValueError(f"no embeddings: {where}") from None


def read_embedding_task(prompt: str) -> EmbeddingTask:
    """Return a task of this worker; BAD_ARGUMENTS for any other task."""
    try:
        return EmbeddingTask.model_validate_json(prompt)
    except ValidationError:
        said = "this worker embeds texts for /v1/embeddings and does nothing else"
        raise WorkerError(FaultKind.BAD_ARGUMENTS, said) from None


def _encode(vector: Sequence[float] | str) -> str:
    """Return a vector as it is kept; BAD_REPLY for what is none."""
    try:
        numbers = decode_vector(vector) if isinstance(vector, str) else vector
        if not 0 < len(numbers) <= _MAX_DIMENSIONS or not all(map(isfinite, numbers)):
            raise ValueError("a vector of no numbers")
        return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    except (ValueError, OverflowError, struct.error) as error:
        raise WorkerError(FaultKind.BAD_REPLY, f"no vector: {error}") from None


def decode_vector(text: str) -> Sequence[float]:
    """Return the numbers of a kept vector; ValueError for what is none."""
    try:
        raw = b64decode(text, validate=True)
    except Base64Error as error:
        raise ValueError(str(error)) from None
    if len(raw) % 4:
        raise ValueError("not a whole number of float32")
    return struct.unpack(f"<{len(raw) // 4}f", raw)
