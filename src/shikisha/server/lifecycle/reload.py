"""The configuration read anew while the server runs, on SIGHUP.

Invariants: a configuration that cannot be used changes nothing, and its errors are logged; runs in progress keep the
workers, conductor and caps that they began with, and their connections close once they have ended; a run that waits and
is resumed later uses the new ones, as after a restart. What belongs to the process (the address, limits on requests,
the journal, telemetry, webhooks) stays until a restart, and the log names what of it has changed. A server whose
terminal is gone is stopped by the same signal, as other programs are.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shikisha.config.container import Container
from shikisha.config.preflight import check_conductors
from shikisha.core.errors import ShikishaError
from shikisha.server.lifecycle.service import RunService

_LOG = logging.getLogger(__name__)
_OF_THE_PROCESS = ("journal", "server", "telemetry", "webhooks")
_LOOK_SECONDS = 1.0


class ConfigReload:
    """Reads the configuration on a signal and gives it to the service; `stop` is what a hang-up means."""

    def __init__(self, service: RunService, read: Callable[[], Container], stop: Callable[[], None]) -> None:
        self._service, self._read, self._stop = service, read, stop
        self._from_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retired: list[Container] = []

    def listen(self) -> None:
        """Reload on SIGHUP from now on, where the system has it."""
        with suppress(NotImplementedError, AttributeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hear)

    def _hear(self) -> None:
        if self._from_terminal and _terminal_is_gone():
            self._stop()
            return
        task = asyncio.get_running_loop().create_task(self.reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def reload(self) -> None:
        """Read the configuration and use it from the next run on; log why not, where that cannot be."""
        async with self._turn:
            before = self._service.container
            try:
                container = await asyncio.to_thread(self._read)
                check_conductors(container)
                changed = [name for name in _OF_THE_PROCESS if _differs(before, container, name)]
                self._service.use(container)
            except ShikishaError as error:
                _LOG.error("the configuration stays as it was: %s", error)
                return
            self._retired.append(before)
            _LOG.info("the configuration was read anew: %d workers", len(container.names))
            if changed:
                _LOG.warning("%s changed too, which takes effect with a restart", ", ".join(changed))
            running = set(self._service.running)
        while running & set(self._service.running):  # noqa: ASYNC110 - nothing tells when the last of these has ended
            await asyncio.sleep(_LOOK_SECONDS)
        self._retired.remove(before)
        await before.aclose()

    async def close(self) -> None:
        """Stop listening, and close what earlier configurations had opened."""
        with suppress(NotImplementedError, AttributeError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._retired:
            await self._retired.pop().aclose()


def _differs(before: Container, after: Container, name: str) -> bool:
    """Whether a table of the file says something else; the server's address may be that of the command line."""
    if name != "server":
        return bool(getattr(before.settings, name) != getattr(after.settings, name))
    fitted = {"host", "port", "max_runs", "max_connections"}  # by the command line, and by the limit on open files
    return before.settings.server.model_dump(exclude=fitted) != after.settings.server.model_dump(exclude=fitted)


def _terminal_is_gone() -> bool:
    try:
        with Path("/dev/tty").open("rb"):
            return False
    except OSError:
        return True
