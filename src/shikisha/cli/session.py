"""What a command works with: the composition, the journal, an engine; opened and closed in order.

Invariants: whatever was opened is closed, however a command ends; Ctrl-C and SIGTERM cancel the run, which the engine
journals as interrupted, so that it can be resumed. Deliberately absent: anything that a server would need too.
"""

import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shikisha.cli.exit_codes import ExitCode, StopSignal
from shikisha.cli.options import SharedOptions, TaskOptions
from shikisha.core.errors import ConfigError, RunStillOpen, TaskError, UnknownRun
from shikisha.core.task import Task, storage_problem

if TYPE_CHECKING:
    from shikisha.config.container import Container
    from shikisha.core.events import Event, RunStatus
    from shikisha.journal import Journal
    from shikisha.server.store import ServedState

T = TypeVar("T")

STDIN = "-"
NEWEST_RUN = "last"
_MAX_TASK_BYTES = 10_000_000


def run_async(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run the coroutine to its end; SIGTERM cancels it as Ctrl-C does, and both end in Stopped."""
    import asyncio
    import signal

    async def guarded() -> T:
        task = asyncio.current_task()
        if task is not None:
            with suppress(NotImplementedError):  # no signals in event loops on Windows
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main()

    try:
        return asyncio.run(guarded())
    except KeyboardInterrupt:
        raise StopSignal(ExitCode.INTERRUPTED) from None
    except asyncio.CancelledError:
        raise StopSignal(ExitCode.TERMINATED) from None


def load_container(shared: SharedOptions) -> "Container":
    """Read the configuration."""
    from shikisha.config.container import load_config

    return load_config(shared.config)


@asynccontextmanager
async def open_container(composition: "Container") -> AsyncIterator["Container"]:
    """Close what the composition built."""
    try:
        yield composition
    finally:
        await composition.aclose()


@asynccontextmanager
async def open_command_journal(shared: SharedOptions, composition: "Container") -> AsyncIterator["Journal"]:
    """Open the journal that the command line or the configuration names."""
    from shikisha.journal import open_journal

    url = shared.journal or composition.journal_url()
    if "://" not in url:
        make_folder(Path(url).parent)
    async with open_journal(url) as opened:
        yield opened


@asynccontextmanager
async def open_existing_journal(shared: SharedOptions) -> AsyncIterator["Journal"]:
    """Open the journal for a command that only looks into it; a file that is not there is an error, not a new one."""
    composition = load_container(shared)
    _refuse_absent(shared.journal or composition.journal_url())
    async with open_command_journal(shared, composition) as opened:
        yield opened


async def find_run(journal: "Journal", name: str) -> str:
    """Return the id of a run: `last` for the newest, or the beginning of an id that fits one run only."""
    if name == NEWEST_RUN:
        newest = [run for run in await journal.runs(limit=50) if run.parent is None]
        if not newest:
            raise UnknownRun("this journal has no runs yet")
        return newest[0].id
    with suppress(UnknownRun):
        await journal.read(name)
        return name
    fitting = [run.id for run in await journal.runs(limit=1000) if run.id.startswith(name) and name]
    if len(fitting) != 1:
        known = f"{len(fitting)} of them begin so" if fitting else "see `shikisha runs`"
        raise UnknownRun(f"no run {name!r} in this journal: {known}")
    return fitting[0]


async def read_run_family(journal: "Journal", run: str) -> "dict[str, tuple[Event, ...]]":
    """Return the events of a run and of all its child runs, by run, the run itself first."""
    told = {run: await journal.read(run)}
    for child in await journal.children(run):
        told |= await read_run_family(journal, child.id)
    return told


@asynccontextmanager
async def exclusive_run(journal: "Journal", run: str, lease: float) -> AsyncIterator[None]:
    """Work on a run as a server would: for whoever else wants to it is ours, until we are done or silent for a lease.

    StillOpen when somebody performs it, or works on it already.
    """
    from shikisha.server.store import ServedState, open_store
    from shikisha.server.store.claims import set_aside

    async with open_store(journal, lease) as store:
        served = await store.find(run)
        with suppress(RunStillOpen):
            if served is not None and served.state is ServedState.OPEN:
                await journal.write(partial(set_aside, run=run))
        if not await (store.hold(run) if served is None else store.take(run, ended=True)):
            raise RunStillOpen(f"run {run} is being performed by a server, or rolled back by somebody")
        try:
            yield
        finally:
            if served is not None:
                state, status = await _resting_state(journal, run)
                orphan = served.state is ServedState.OPEN and state is ServedState.STOPPED
                rests = ServedState.OPEN if orphan else state
                store.mark(run, rests, status=status, used=served.used, uncertain=served.uncertain)
                await journal.flush()
                if orphan:
                    await store.release(run)


async def _resting_state(journal: "Journal", run: str) -> "tuple[ServedState, RunStatus]":
    """Return where a run stands that nobody performs now, and how it did."""
    from shikisha.core.events import RunStatus
    from shikisha.core.run import Run
    from shikisha.server.store import ServedState

    past = Run.fold(await journal.read(run))
    resting = ServedState.WAITING if past.status is RunStatus.SUSPENDED else ServedState.STOPPED
    return ServedState.ENDED if past.finished else resting, past.status


def read_task(prompt: str, about: TaskOptions) -> Task:
    """Return the task that the command line describes; TaskError when it cannot be read."""
    if prompt == STDIN and about.context == STDIN:
        raise TaskError("stdin can be the prompt or the context, not both")
    text = read_text(prompt) if prompt == STDIN else prompt
    context = read_text(about.context) if about.context else ""
    labels = tuple(require_storable(label, "--label") for label in about.label or ())
    return Task(text.rstrip("\n"), context, domain=require_storable(about.domain, "--domain"), labels=labels)


def require_storable(text: str, name: str) -> str:
    """Return the text if a journal can keep it; TaskError otherwise (an argument may be no UTF-8)."""
    if problem := storage_problem(text):
        raise TaskError(f"{name} holds {problem}")
    return text


def read_text(path: str) -> str:
    """Return a file's text, or stdin's for `-`; TaskError when that cannot be had."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(_MAX_TASK_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_TASK_BYTES + 1)
        if len(data) > _MAX_TASK_BYTES:
            raise TaskError(f"{path}: more than {_MAX_TASK_BYTES:,} bytes")
        return data.decode()
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TaskError(f"{path}: expected UTF-8 text") from None


def _refuse_absent(url: str) -> None:
    path = url.removeprefix("sqlite:///")
    if "://" not in path and not Path(path).exists():
        raise UnknownRun(f"there is no journal at {path} yet: `shikisha run` makes one")


def make_folder(folder: Path) -> None:
    """Make a folder for a journal; ConfigError when that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the journal's folder {folder} cannot be made: {error.strerror}") from None
