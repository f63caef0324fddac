"""The configuration read anew while the server runs, on SIGHUP.

Invariants: a configuration that cannot be used changes nothing, and its errors are logged; nor does one that lacks what
is in force (a worker, a cap, a guarded label, a key: whatever was written), because a file that is cut or half written
may still be valid, and who wants to take something away restarts; runs in progress keep the
workers, conductor and caps that they began with, and their connections close once they have ended; a run that waits and
is resumed later uses the new ones, as after a restart. What belongs to the process (the address, limits on requests,
the journal, telemetry, webhooks) stays until a restart, and the log names what of it has changed. A server whose
terminal is gone is stopped by the same signal, as other programs are.
"""

import asyncio
import json
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from shikisha.config.container import Container
from shikisha.config.preflight import check_conductors
from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.server.lifecycle.service import RunService

_LOG = logging.getLogger(__name__)
_OF_THE_PROCESS = ("journal", "server", "telemetry", "turns", "webhooks")
_FITTED = {"host", "port", "max_runs", "max_connections"}  # by the command line, and by the limit on open files
_NOT_WRITTEN = frozenset({*_OF_THE_PROCESS, *(f"server.{name}" for name in _FITTED)})  # set here, written or not
_VARIABLE = re.compile(r'_env": "(\w+)"|\$\{(\w+)\}')
_MAX_NAMED = 8
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
                _refuse_loss(before, container)
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


def _refuse_loss(before: Container, after: Container) -> None:
    """Raise a ConfigError that names what was written in the configuration in force and is not in the new one."""
    if before.simulated_pool is not None:
        return
    written = before.settings.model_dump(mode="json", exclude_unset=True)
    lost = list(_lost(written, after.settings.model_dump(mode="json", exclude_unset=True)))
    variables = {one or other for one, other in _VARIABLE.findall(json.dumps(written))}
    held = filter(before.secret_store.holds, sorted(variables))
    lost += [f"${name}" for name in held if not after.secret_store.holds(name)]
    if lost:
        more = f" and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
        raise ConfigError(
            f"{after.file} lacks what is in force: {', '.join(lost[:_MAX_NAMED])}{more}. A reload adds and changes; "
            "restart the server to take something away"
        )


def _lost(before: object, after: object, path: str = "") -> Iterator[str]:
    """Yield the paths of written keys that are no more; of lists those of tables, and guarded labels."""
    if isinstance(before, list) and isinstance(after, list):
        if path == "labels.guarded":
            yield from (f"{path}[{label}]" for label in before if label not in after)
        elif before and isinstance(before[0], dict):
            before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict):
        for name, inner in before.items():
            place = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}" if path else name
            known = after if isinstance(after, dict) else {}
            if name in known or place in _NOT_WRITTEN:
                yield from _lost(inner, known.get(name, {}), place)
            else:
                yield place


def _differs(before: Container, after: Container, name: str) -> bool:
    """Whether a table of the file says something else; the server's address may be that of the command line."""
    if name != "server":
        return bool(getattr(before.settings, name) != getattr(after.settings, name))
    return before.settings.server.model_dump(exclude=_FITTED) != after.settings.server.model_dump(exclude=_FITTED)


def _terminal_is_gone() -> bool:
    try:
        with Path("/dev/tty").open("rb"):
            return False
    except OSError:
        return True
