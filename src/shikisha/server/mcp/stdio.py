"""MCP on stdio: one message a line, for clients that start the server themselves.

Invariants: standard output holds messages and nothing else; a message is answered while others are under way; the end
of the input ends the server, and what it performs is canceled unless it is a task. Whoever starts the process may do
what its configuration allows, under a key of its own whose budget can be set like any other.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress

from shikisha.core.errors import ConfigError
from shikisha.server.keys import Key, KeySpec
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService
from shikisha.server.mcp.messages import answer_message, dump_message, error_message, read_message

_KEY_NAME = "shikisha mcp on stdio"
_SCOPES = frozenset({KeyScope.RUN, KeyScope.READ, KeyScope.APPROVE})
_MAX_LINE = 20 * 2**20
_MAX_UNDER_WAY = 64
_CANCELLED = "notifications/cancelled"


async def local_principal(service: RunService, presented: str | None) -> Principal:
    """Return the holder of the presented key, or of the key that stands for this machine's user, made once."""
    if presented is not None:
        found = await service.keys.find(presented)
        if not isinstance(found, Key):
            raise ConfigError("the key in $SHIKISHA_KEY is unknown here, expired or revoked")
        return found.principal()
    for key in await service.keys.keys():
        if key.name == _KEY_NAME and not key.refused(service.keys.now()):
            return key.principal()
    issued = await service.keys.issue(KeySpec(_KEY_NAME, "default", _SCOPES), _KEY_NAME)
    return issued.key.principal()


class StdioServer:
    """Answers the messages of one client."""

    def __init__(self, service: RunService, by: Principal, write: Callable[[str], None]) -> None:
        self._service, self._by, self._write = service, by, write
        self._under_way: dict[object, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer what comes until the input ends."""
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # longer than the reader holds: the rest of it is no message either
                    self._write(dump_message(error_message(-32700, f"a message is longer than {_MAX_LINE:,} bytes")))
                    continue
                if not line:
                    return
                if line.strip():
                    await self._take(line)
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _take(self, line: bytes) -> None:
        message = read_message(line)
        name = message.get("id")
        if "error" in message:
            self._write(dump_message(message))
        elif name is None:
            params = message.get("params")
            if message.get("method") == _CANCELLED and isinstance(params, dict):
                with suppress(TypeError):  # an id that is no id
                    if (task := self._under_way.get(params.get("requestId"))) is not None:
                        task.cancel()
        elif len(self._under_way) >= _MAX_UNDER_WAY or name in self._under_way:
            said = f"{len(self._under_way)} requests are under way, or one of this id is"
            self._write(dump_message(error_message(-32600, said, name)))
        else:
            self._under_way[name] = asyncio.create_task(self._answer(name, message))

    async def _answer(self, name: object, message: dict[str, object]) -> None:
        try:
            async for told in answer_message(self._service, self._by, message):
                self._write(dump_message(told))
        finally:
            self._under_way.pop(name, None)


async def serve_stdio(service: RunService, presented: str | None) -> None:
    """Serve this process's standard input and output."""
    by = await local_principal(service, presented)
    reader = asyncio.StreamReader(limit=_MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    await StdioServer(service, by, write).serve(reader)
