"""Servers of models on loopback, as Ollama, vLLM and providers are: a list of models, and chat at one address."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from aiohttp import web

from shikisha.testing import closed_port


@dataclass(slots=True)
class ModelServer:
    """What a server offers, and what it was asked: path with query, and headers."""

    models: Sequence[object] = ("qwen2.5:7b",)
    path: str = "/v1"
    body: str | None = None  # instead of the list of models
    status: int = 200
    chat_status: int = 200
    extra: Mapping[str, object] = field(default_factory=dict)  # path: JSON
    chat: Callable[[Mapping[str, object]], object] | None = None  # the body of a chat's reply, or its status
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    url: str = ""

    @property
    def chats(self) -> int:
        """How often a model was called."""
        return sum(path.partition("?")[0].endswith("/chat/completions") for path, _ in self.asked)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a request."""
        self.asked.append((request.path_qs, {name.lower(): value for name, value in request.headers.items()}))
        if request.path in self.extra:
            return web.json_response(self.extra[request.path])
        if request.path == f"{self.path}/models":
            rows = [{"id": each} if isinstance(each, str) else each for each in self.models]
            text = json.dumps({"object": "list", "data": rows}) if self.body is None else self.body
            return web.Response(text=text, status=self.status, content_type="application/json")
        if request.path == f"{self.path}/chat/completions" and request.method == "POST":
            return self._chat(json.loads(await request.read()))
        return web.Response(text="<html>no such page</html>", status=404)

    def _chat(self, asked: Mapping[str, object]) -> web.Response:
        if self.chat is not None:
            told = self.chat(asked)
            return web.json_response(
                {} if isinstance(told, int) else told, status=told if isinstance(told, int) else 200
            )
        if self.chat_status != 200:
            error = {"message": "You exceeded your current quota.", "code": "insufficient_quota"}
            return web.json_response({"error": error}, status=self.chat_status)
        said = f"Paris, says {asked['model']}."
        message = {"role": "assistant", "content": said}
        usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
        reply = {"id": "1", "created": 1, "model": asked["model"], "usage": usage}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({**reply, "object": "chat.completion", "choices": [choice]})
        chunks = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        lines = [json.dumps({**reply, "object": "chat.completion.chunk", "choices": [each]}) for each in chunks]
        text = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
        return web.Response(text=text, content_type="text/event-stream")


@asynccontextmanager
async def model_server(server: ModelServer) -> AsyncIterator[ModelServer]:
    """Serve on loopback; the server's `url` is its base URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}{server.path}"
    try:
        yield server
    finally:
        await runner.cleanup()


@contextmanager
def model_servers(*servers: ModelServer) -> Iterator[None]:
    """Serve in a thread of their own, for tests whose commands have the event loop of this one."""
    ready, end = Event(), Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for each in servers:
                await stack.enter_async_context(model_server(each))
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    try:
        yield
    finally:
        end.set()
        thread.join()


def nobody_here() -> dict[str, str]:
    """Return an environment in which no model server or pulled model is where it usually is, whatever is here."""
    names = ("OLLAMA_HOST", "VLLM_BASE_URL", "LM_STUDIO_API_BASE", "LLAMAFILE_API_BASE", "LITELLM_PROXY_API_BASE")
    return {name: closed_port() for name in names} | {"XDG_CACHE_HOME": "/nonexistent"}
