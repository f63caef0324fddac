"""`shikisha eval show`: a small server on this machine that shows one evaluation's folder to whoever started it.

Invariants: it listens on the loopback address, answers only requests to that address, and shows nothing without the
secret of its first address, which becomes a cookie that no script reads and no other site sends. It starts no run and
writes nothing. The journal is opened only where the folder has one. Deliberately absent: keys, scopes, other people.
"""

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response

from shikisha.evals.samples import RUNS_FILE
from shikisha.journal import open_journal
from shikisha.server.pages import evaluation_page, login
from shikisha.server.pages.evaluation_page import EvaluationFolder
from shikisha.server.pages.templates import NO_STORE, SECURITY_HEADERS, UI_ROOT

_HOST = "127.0.0.1"
_NAMES = (_HOST, "localhost")


async def open_folder(folder: Path, journal: str, stack: AsyncExitStack) -> EvaluationFolder:
    """Return an evaluation's folder, with the journal of its runs where there is one; ConfigError when it is none."""
    found = EvaluationFolder(folder)
    _ = found.samples
    url = journal or str(folder / RUNS_FILE)
    if "://" in url or await asyncio.to_thread(Path(url).exists):
        found.journal = await stack.enter_async_context(open_journal(url))
    return found


def create_viewer(folder: EvaluationFolder, token: str) -> FastAPI:
    """Return the application that shows a folder to whoever has the token."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.evaluation = folder
    app.include_router(evaluation_page.router)
    app.add_api_route(f"{UI_ROOT}/static/{{version}}/{{name}}", login.static_file, include_in_schema=False)
    app.include_router(login.missing_page_router)

    @app.middleware("http")
    async def check_token(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        return await _checked(request, answer, token)

    return app


async def _checked(request: Request, answer: Callable[[Request], Awaitable[Response]], token: str) -> Response:
    """Answer a request that was sent here and bears the token; take it from the first address into a cookie."""
    headers = {**SECURITY_HEADERS, **NO_STORE}
    if request.headers.get("host", "").rpartition(":")[0] not in _NAMES:  # a name that another site points at us
        return PlainTextResponse("this address is shown as 127.0.0.1 only", 421, headers)
    cookie = f"shikisha_view_{request.url.port}"
    given = request.query_params.get("token", "")
    if given and secrets.compare_digest(given.encode(), token.encode()):
        led = login.redirect(f"{UI_ROOT}/evaluation")
        led.set_cookie(cookie, token, path="/", httponly=True, samesite="strict")
        return led
    if not secrets.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
        return PlainTextResponse("use the whole address that `shikisha eval show` printed", 403, headers)
    return await answer(request)


async def serve_folder(folder: Path, journal: str, port: int, ready: Callable[[str], None]) -> None:
    """Show a folder until this is cancelled or interrupted; `ready` is told the address."""
    token = secrets.token_urlsafe(24)
    async with AsyncExitStack() as stack:
        found = await open_folder(folder, journal, stack)
        listening = stack.enter_context(socket.create_server((_HOST, port)))
        config = uvicorn.Config(create_viewer(found, token), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        address = f"http://{_HOST}:{listening.getsockname()[1]}/?token={token}"
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not (server.started or serving.done()):  # noqa: ASYNC110 - uvicorn tells it in no other way
            await asyncio.sleep(0.01)
        if server.started:
            ready(address)
        await serving
