"""The server process: the run service, the application, uvicorn around it, and an orderly end.

Invariants: on shutdown requests stop before runs, and runs before the journal. Runs get `drain` seconds; the rest is
interrupted, released, and resumed by the next server. A second signal stops at once. One process serves here;
`supervisor` runs several of them behind one port, and several machines share a PostgreSQL database. TLS is left to a
proxy. SIGHUP reads the configuration anew (see `reload`).
"""

import asyncio
import errno
import gc
import json
import logging
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from shikisha.config.container import Container
from shikisha.config.environment import event_loop_factory
from shikisha.config.preflight import check_conductors
from shikisha.config.settings import ServerTable
from shikisha.core.errors import ConfigError, JournalUnavailable, ShikishaError
from shikisha.journal import open_journal
from shikisha.learned.learned_erasure import LearnedErasure, MemoryErasure
from shikisha.server.app import create_app
from shikisha.server.http.connections import (
    ConnectionLimiter,
    ConnectionListener,
    HttpConnection,
    max_connections,
    max_runs,
    raise_file_limit,
)
from shikisha.server.keys import KeyManager, KeySpec
from shikisha.server.keys.budgets import KeyBudgets
from shikisha.server.keys.key import KeyScope
from shikisha.server.keys.manager import CONSOLE_ACTOR
from shikisha.server.lifecycle.service import RunService
from shikisha.server.ops import logs
from shikisha.server.ops.push import PushSender
from shikisha.server.ops.watchdog import Watchdog, run_context, start_watchdog
from shikisha.server.ops.webhooks import WebhookSender
from shikisha.server.store import ServedRun, ServedState, open_store

if TYPE_CHECKING:
    from shikisha.learned.journal_learner import JournalLearner

_MAX_PAUSE = 2.5  # seconds between two looks, however long the lease: people wait for what they approved elsewhere
_INDEX_PAGES = 20  # pages of events that a look takes into the index: an old journal is taken in over some minutes
_RESUMED_AT_ONCE = 8  # runs that are read at once, as many as the database has connections to spare


async def maintain_runs(service: "RunService") -> None:
    """Look after runs until cancelled, several times a lease and every few seconds."""
    while True:
        await maintain_once(service)
        await asyncio.sleep(min(service.settings.lease / 4, _MAX_PAUSE))


async def maintain_once(service: "RunService") -> None:
    """Run all maintenance tasks once."""
    for part in (
        _rejoin_store,
        _stop_cancelled,
        _resume_stuck,
        _return_budgets,
        _expire_approvals,
        _finish_erasures,
        _erase_old_runs,
        _claim_orphans,
        _announce_quarantines,
        _index_runs,
    ):
        try:
            await part(service)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            _LOG.warning("looking after runs: %s: %s", part.__name__.strip("_"), type(error).__name__)


async def _rejoin_store(service: "RunService") -> None:
    if service.expulsions and service.idle:
        await service.store.join()
        service.expulsions = 0


async def _stop_cancelled(service: "RunService") -> None:
    for name in await service.store.stopped():
        if name in service.running or (await service.find_served(name)).state is ServedState.WAITING:
            await service.cancel(name)


async def _resume_stuck(service: "RunService") -> None:
    for name in tuple(service.stuck):
        try:
            await service.retry_stuck(name)
        except JournalUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one run's trouble is no other's
            _give_up_run(service, name, error)
        service.stuck.discard(name)


async def _return_budgets(service: "RunService") -> None:
    await service.key_budgets.return_unused()


async def _expire_approvals(service: "RunService") -> None:
    await service.approval_timeouts.look(service)


async def _finish_erasures(service: "RunService") -> None:
    await service.journal.finish_erasures()


async def _erase_old_runs(service: "RunService") -> None:
    await service.retention.look(service.store, service.settings.keep_days)


async def _claim_orphans(service: "RunService") -> None:
    room = service.settings.max_runs - len(service.running)
    if room > 0 and not service.expulsions:
        claimed = await service.store.claim(room)
        gate = asyncio.Semaphore(_RESUMED_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for served in claimed:
                group.create_task(_resume_claimed(service, served, gate), context=run_context(served.run, served.key))


async def _announce_quarantines(service: "RunService") -> None:
    """Write into the journal which runs are quarantined; the database knows it already."""
    for served in () if service.expulsions else await service.store.unannounced():
        await service.quarantine(served)


async def _index_runs(service: "RunService") -> None:
    """Take what was journaled lately into the index of runs, so that a page never waits for it."""
    await service.journal.index(_INDEX_PAGES)


async def _resume_claimed(service: "RunService", served: ServedRun, gate: asyncio.Semaphore) -> None:
    """Go on with a run that was claimed; while the journal is away it comes with the next claim."""
    async with gate:
        try:
            await service.resume(served.run, served)
        except JournalUnavailable as error:
            service.store.drop(served.run)
            _LOG.warning("run %s cannot be gone on with now: %s", served.run, type(error).__name__)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - what is stored may be anything, and others wait to be gone on with
            _give_up_run(service, served.run, error)


def _give_up_run(service: "RunService", name: str, error: BaseException) -> None:
    """Stop a run that cannot be read or performed, so that no server resumes it by itself."""
    _LOG.error("run %s is given up: %s", name, type(error).__name__)
    service.store.mark(name, ServedState.STOPPED)


def background_learning(service: "RunService") -> Callable[[], Coroutine[object, object, None]]:
    """Return what learns from runs until it is cancelled, where learning is on; erasures take part from now on."""
    table = service.container.settings.learning
    if not table.on and not (service.container.folder / table.folder).exists():
        return partial(asyncio.sleep, 0)
    from shikisha.learned.journal_learner import JournalLearner

    files, terms = service.container.learning_files(), service.container.learning_terms()
    learner = JournalLearner(files, service.journal, terms)
    service.journal.on_erased(learner.forget)
    return partial(_keep_learning, learner) if table.on else partial(asyncio.sleep, 0)


async def watch_turns(service: "RunService") -> Callable[[], Coroutine[object, object, None]]:
    """Return what makes shadow turns until it is cancelled; ConfigError where the mode `on` is not justified yet."""
    router, table = service.turn_router, service.container.settings.turns
    if router is None:
        return partial(asyncio.sleep, 0)
    from shikisha.server.lifecycle.shadow_turns import ShadowTurns

    shadow = ShadowTurns(service, router, table)
    await shadow.check()
    service.observers.append(shadow.note)
    service.history_observers.append(router.recall)
    return shadow.work


async def _keep_learning(learner: "JournalLearner") -> None:
    while True:
        try:
            await learner.look()
        except (ShikishaError, OSError) as error:
            _LOG.warning("learning from runs: %s", error)
        except Exception:  # noqa: BLE001 - numbers that no fit can take must not end the server
            _LOG.exception("learning from runs failed")
        await asyncio.sleep(_MAX_PAUSE)


# The configuration read anew while the server runs, on SIGHUP.
#
# Invariants: a configuration that cannot be used changes nothing, and its errors are logged; nor does one that lacks
# what is in force (a worker, a cap, a guarded label, a key: whatever was written), because a file that is cut or half
# written may still be valid, and who wants to take something away restarts; runs in progress keep the workers,
# conductor and caps that they began with, and their connections close once they have ended; a run that waits and is
# resumed later uses the new ones, as after a restart. What belongs to the process (the address, limits on requests, the
# journal, telemetry, webhooks) stays until a restart, and the log names what of it has changed. A server whose terminal
# is gone is stopped by the same signal, as other programs are.

# Maintenance of runs: takes over runs of dead servers, stops canceled ones, resumes stuck ones, enforces deadlines.
#
# Each look also ends waits whose deadline has passed, erases texts that are older than `keep_days` (both: `deadlines`),
# and keeps the index of runs up to date. Invariant: a look that fails is repeated, and trouble with one run affects no
# other. The store's leases decide which server is dead.

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


PHONE_KEY = KeySpec("phone", scopes=frozenset({KeyScope.RUN, KeyScope.READ, KeyScope.APPROVE}))
_WEBHOOK_CLOSE_SECONDS = 2.0  # seconds that receivers of webhooks get when the service is closed


@asynccontextmanager
async def open_service(container: Container, journal_url: str = "") -> AsyncIterator[RunService]:
    """Open everything that serving needs, and close it in order. ConfigError for conductors that could not conduct."""
    check_conductors(container)
    lease = container.settings.server.lease
    async with (
        open_journal(journal_url or container.journal_url()) as journal,
        open_store(journal, lease) as store,
    ):
        keys = KeyManager(journal, operator=_operator_key(container))
        key_budgets = KeyBudgets(journal, store, keys)
        service = RunService(container, journal, store, keys, key_budgets)
        store.on_expelled(service.expelled)
        for source in service.settings.outcomes:  # a secret that is missing is an error now, not at the first delivery
            service.container.secret_store.read(source.secret_env)
        if (memory := container.settings.memory.file) is not None:
            journal.on_erased(MemoryErasure(container.folder / memory, journal))
        journal.on_erased(LearnedErasure(service.class_files, journal))
        learning = background_learning(service)
        turns = await watch_turns(service)
        webhooks = WebhookSender.of(service)
        if webhooks.receivers:
            service.observers.append(webhooks.note)
        push = PushSender.of(service)
        if push.settings is not None:
            service.observers.append(push.note)
        interrupted: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            service.enter(group)
            service.first_key = await keys.bootstrap()
            caring = group.create_task(maintain_runs(service), name="care")
            learner = group.create_task(learning(), name="learning")
            routing = group.create_task(turns(), name="turns")
            telling = group.create_task(webhooks.deliver(), name="webhooks")
            pushing = group.create_task(push.deliver(), name="push")
            try:
                yield service
            except BaseException as error:  # noqa: BLE001 - the group would wrap it: it is raised again below, as it is
                interrupted = error
            caring.cancel()
            learner.cancel()
            routing.cancel()
            await service.close()
            await webhooks.rest(_WEBHOOK_CLOSE_SECONDS)
            telling.cancel()
            pushing.cancel()
            with suppress(
                JournalUnavailable
            ):  # the journal itself says so as it is closed; what is granted is found again
                await key_budgets.close()
        for end in service.shutdown_callbacks:
            await asyncio.to_thread(end)
        if interrupted is not None:
            raise interrupted


def _operator_key(container: Container) -> str | None:
    """Return the admin key that the operator chose, if they did."""
    variable = container.settings.server.admin_key_env
    return None if variable is None else container.secret_store.read(variable)


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """What each signal means, in turn; once none is left, the process ends as the signal says."""

    def __init__(self) -> None:
        self._meanings: list[Callable[[], None]] = []
        self._heard = False

    def means(self, *meanings: Callable[[], None]) -> None:
        """Have the first signal mean this, the second one that."""
        self._meanings = list(meanings)
        with suppress(NotImplementedError):
            for number in _STOP_SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, self._tell, number)
        self._heard = True

    def _tell(self, number: signal.Signals) -> None:
        if self._meanings:
            self._meanings.pop(0)()
            return
        self.forget()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def forget(self) -> None:
        """Restore the earlier signal handlers."""
        heard, self._heard = self._heard, False
        with suppress(NotImplementedError):
            for number in _STOP_SIGNALS if heard else ():
                asyncio.get_running_loop().remove_signal_handler(number)


@contextmanager
def handle_stop_signals() -> Iterator[StopSignals]:
    """Give signals a meaning until the end of the block."""
    made = StopSignals()
    try:
        yield made
    finally:
        made.forget()


_KEEP_ALIVE_SECONDS = 75  # seconds that an idle connection stays open
_BACKLOG = 2048
_SEND_BUFFER_BYTES = (
    2**16
)  # bytes of an answer that the system keeps for a client that does not read; it would take megabytes
_BIND_HINTS = {
    errno.EADDRINUSE: "another program listens there; --port 0 takes any free one",
    errno.EACCES: "ports below 1024 are not for everybody; try another --port",
}
_GC_THRESHOLDS = (20_000, 20, 20)  # objects, and how often of the generation before
_SWITCH_SECONDS = (
    0.0005  # seconds: the journal's thread asks for the interpreter many times a commit, and waits so long each time
)


def listening_socket(settings: ServerTable, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens where the configuration says, or shares its port; ConfigError when it cannot."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES
        )  # accepted sockets have it from this one
        made.bind((settings.host, settings.port))
        made.listen(_BACKLOG)  # who comes before we are ready waits
    except OSError as error:
        made.close()
        hint = "expected an address of this machine, or 0.0.0.0 for all of them"
        said = f"{error.strerror} ({_BIND_HINTS.get(error.errno or 0, hint)})"
        raise ConfigError(f"server: cannot listen on {settings.host}, port {settings.port}: {said}") from error
    return made


async def serve(
    container: Container,
    listening: socket.socket,
    journal_url: str,
    ready: Callable[[RunService], None],
    watchdog: Watchdog | None = None,
    read_config: Callable[[], Container] | None = None,
    *,
    phone: bool = False,
) -> None:
    """Serve until the process is told to stop; call `ready` once the server accepts requests.

    `read_config`: how SIGHUP reads the configuration anew; `phone`: make a link that logs one device in.
    """
    with handle_stop_signals() as told:  # until the service is closed, and not only until requests have ended
        if watchdog is not None:
            watchdog.mark_on(asyncio.get_running_loop())
        async with open_service(container, journal_url) as service:
            if watchdog is not None:
                watchdog.begin(lambda: service.store.member.id)
            server = HttpServer(
                uvicorn_config(service),
                ConnectionLimiter(service.settings.max_connections or max_connections(raise_file_limit())),
            )

            def stop() -> None:
                server.should_exit = True

            def stop_now() -> None:
                server.force_exit = True
                service.stop_now()

            told.means(stop, stop_now)
            if phone:
                service.first_link = await _open_phone_link(service)
            ready(service)
            tune_garbage_collector()
            reload = None if read_config is None else ConfigReload(service, read_config, stop)
            if reload is not None:
                reload.listen()
            try:
                await server.serve(sockets=[listening])
            finally:
                if reload is not None:
                    await reload.close()


async def _open_phone_link(service: RunService) -> str:
    """Return the token of a link for the key `phone`, which looks and approves, and is issued where there is none.

    Nobody knows the secret of that key: it is reached by links and by the passkeys of its devices.
    """
    valid = [key for key in await service.keys.keys(PHONE_KEY.tenant) if key.refused(service.keys.now()) is None]
    own = (key for key in valid if (key.name, key.scopes) == (PHONE_KEY.name, PHONE_KEY.scopes))
    key = next(own, None) or (await service.keys.issue(PHONE_KEY, CONSOLE_ACTOR)).key
    return await service.passkeys.open_link(key, CONSOLE_ACTOR)


class HttpServer(uvicorn.Server):
    """uvicorn with our connections, which leaves signals alone: it would raise them again before runs have ended."""

    def __init__(self, config: uvicorn.Config, limiter: ConnectionLimiter) -> None:
        super().__init__(config)
        self.limiter = limiter

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `signals`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections from these sockets."""
        await self.lifespan.startup()
        make = partial(HttpConnection, self.limiter, self.config, self.server_state, self.lifespan.state)
        self.servers = [ConnectionListener(each, self.limiter, make) for each in sockets or ()]  # type: ignore[misc]  # closed alike
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let requests end."""
        for server in self.servers:
            server.close()
            await server.wait_closed()  # before uvicorn closes the socket that it reads
        await super().shutdown(sockets)


def uvicorn_config(service: RunService) -> uvicorn.Config:
    """Return how uvicorn serves a service."""
    return uvicorn.Config(
        create_app(service),
        backlog=_BACKLOG,
        log_config=None,
        access_log=False,  # `watching` has one that leaves out query strings
        server_header=False,
        proxy_headers=False,  # nothing here goes by a client's word for its address
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(service.settings.drain)),
        lifespan="off",
        ws="none",  # a connection that becomes something else would leave the limiter
    )


def tune_garbage_collector() -> None:
    """Freeze what lives as long as the process, and make the garbage collector run less often.

    A whole look at all that is imported takes 100 ms, in which nobody is answered; requests leave few cycles behind.
    """
    import_module("shikisha.workers.http_client")  # the first call would import it while others wait
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def run_server(
    container: Container,
    journal_url: str,
    ready: Callable[[RunService, socket.socket], None],
    read_config: Callable[[], Container] | None = None,
    *,
    shared: bool = False,
    phone: bool = False,
) -> None:
    """Serve in this process, on uvloop where there is one; `shared`: on a port that other processes serve too.

    `read_config`: how SIGHUP reads the configuration anew; `phone`: make a link that logs one device in.
    """
    listening = listening_socket(container.settings.server, shared=shared)
    sys.setswitchinterval(_SWITCH_SECONDS)
    logs.configure_logging(container.secret_store, container.settings.telemetry.log)
    # Bound connections, and runs, which may outlive theirs, by what the limit on open files allows
    given, limit = container.settings.server, raise_file_limit()
    most = max_connections(limit, given.max_connections)
    runs = max_runs(limit, given.max_runs)
    fitted = given.model_copy(update={"max_connections": most, "max_runs": runs})
    container.settings = container.settings.model_copy(update={"server": fitted})
    if limit is not None and (fitted.max_runs < given.max_runs or most < (given.max_connections or 0)):
        logging.getLogger(__name__).warning(
            "this process may have %d files open, so %d connections and %d runs at once: ulimit -n raises it",
            *(limit, most, fitted.max_runs),
        )
    with (
        listening,
        start_watchdog(journal_url or container.journal_url(), container.settings.server.longest_stall) as watchdog,
        asyncio.Runner(loop_factory=event_loop_factory()) as runner,
    ):
        runner.run(
            serve(
                container,
                listening,
                journal_url,
                lambda service: ready(service, listening),
                watchdog,
                read_config,
                phone=phone,
            )
        )
