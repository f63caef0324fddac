"""What a command works with: the container, the journal, one run of it, and the texts that its arguments name.

Invariants: everything is closed in order, however a command ends; Ctrl-C and SIGTERM cancel the run, which the engine
journals as interrupted, so that it can be resumed.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shikisha.cli.exit_codes import ExitCode, StopSignal
from shikisha.cli.options import NEWEST_RUN, SharedOptions, TaskOptions
from shikisha.config.container import Container, load_config
from shikisha.config.environment import JOURNAL_FILE, state_folder
from shikisha.core.errors import ConfigError, RunStillOpen, TaskError, UnknownRun
from shikisha.core.events import Event, RunStatus
from shikisha.core.run import Run, runs_in_scope
from shikisha.core.task import Scope, Task, storage_problem
from shikisha.journal import open_journal
from shikisha.journal.stored_events import NAMED_RUNS, matching_run
from shikisha.server import store

if TYPE_CHECKING:
    from shikisha.journal import Journal

T = TypeVar("T")

STDIN = "-"
_MAX_TASK_BYTES = 10_000_000


def run_async(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run the coroutine to its end; SIGTERM cancels it as Ctrl-C does, and both raise StopSignal."""

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


@asynccontextmanager
async def open_container(shared: SharedOptions) -> AsyncIterator[Container]:
    """Yield the container of the configuration, and close what it built."""
    async with aclosing(load_config(shared.config)) as container:
        yield container


@asynccontextmanager
async def open_command_journal(shared: SharedOptions, container: Container) -> AsyncIterator["Journal"]:
    """Open the journal that the command line or the configuration names."""
    async with open_journal(journal_place(shared, container)) as opened:
        yield opened


def journal_place(shared: SharedOptions, container: Container) -> str:
    """Return the URL or path of the journal that the command line or the configuration names; its folder is made."""
    url = shared.journal or container.journal_url()
    if "://" not in url:
        make_folder(Path(url).parent)
    return url


@asynccontextmanager
async def open_existing_journal(shared: SharedOptions) -> AsyncIterator["Journal"]:
    """Open the journal for a command that only reads it; a missing file is an error, and no new one is made."""
    container = load_config(shared.config)
    _refuse_absent(shared.journal or container.journal_url())
    async with open_command_journal(shared, container) as opened:
        yield opened


def read_runs(shared: SharedOptions, tenant: str | None, labels: str | None = "") -> tuple[Scope, list[Run]]:
    """Return a tenant's runs with no labels but these (a,b; None: any), the oldest first, and the scope of all."""

    async def main() -> list[Run]:
        async with open_existing_journal(shared) as journal:
            return await journal.all_runs()

    return runs_in_scope(run_async(main), tenant, None if labels is None else read_labels(labels))


def read_labels(text: str) -> frozenset[str]:
    """Return the labels in a,b."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())


async def find_run(journal: "Journal", name: str) -> str:
    """Return the id of a run: `last` for the newest, or the unambiguous beginning of an id."""
    if name != NEWEST_RUN:
        with suppress(UnknownRun):
            await journal.read(name)
            return name
    return matching_run(name, await journal.runs(limit=NAMED_RUNS), NEWEST_RUN)


async def read_run_family(journal: "Journal", run: str) -> dict[str, tuple[Event, ...]]:
    """Return the events of a run and of all its child runs, by run, the run itself first."""
    family = {run: await journal.read(run)}
    for child in await journal.children(run):
        family |= await read_run_family(journal, child.id)
    return family


@asynccontextmanager
async def exclusive_run(journal: "Journal", run: str, lease: float) -> AsyncIterator[None]:
    """Claim a run as a server would, so that no server and no other command works on it meanwhile.

    The claim ends with the context, or after a lease without a sign of life. RunStillOpen when the run is claimed.
    """
    async with store.open_store(journal, lease) as runs:
        served = await runs.find(run)
        with suppress(RunStillOpen):
            if served is not None and served.state is store.ServedState.OPEN:
                await journal.write(partial(store.set_aside, run=run))
        if not await (runs.hold(run) if served is None else runs.take(run, ended=True)):
            raise RunStillOpen(f"run {run} is being performed by a server, or rolled back by another command")
        try:
            yield
        finally:
            if served is not None:
                # The state and the status of a run that is not being performed.
                past = Run.fold(await journal.read(run))
                resting = store.ServedState.WAITING if past.status is RunStatus.SUSPENDED else store.ServedState.STOPPED
                state, status = store.ServedState.ENDED if past.finished else resting, past.status
                orphan = served.state is store.ServedState.OPEN and state is store.ServedState.STOPPED
                rests = store.ServedState.OPEN if orphan else state
                runs.mark(run, rests, status=status, used=served.used, uncertain=served.uncertain)
                await journal.flush()
                if orphan:
                    await runs.release(run)


def read_task(prompt: str, details: TaskOptions) -> Task:
    """Return the task of the command line; TaskError when it cannot be read."""
    if prompt == STDIN and details.context == STDIN:
        raise TaskError("stdin can be the prompt or the context, not both")
    text = read_text(prompt) if prompt == STDIN else prompt
    context = read_text(details.context) if details.context else ""
    labels = tuple(require_storable(label, "--label") for label in details.label or ())
    return Task(text.rstrip("\n"), context, domain=require_storable(details.domain, "--domain"), labels=labels)


def require_storable(text: str, name: str) -> str:
    """Return the text; TaskError where a journal cannot store it, for example because it is not UTF-8."""
    if problem := storage_problem(text):
        raise TaskError(f"{name} holds {problem}")
    return text


def read_text(path: str) -> str:
    """Return the text of a file, or of stdin for `-`; TaskError when it cannot be read."""
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
    if "://" in path or Path(path).exists():
        return
    earlier = state_folder(os.environ) / JOURNAL_FILE
    where = f"; runs without a configuration are in {earlier} (--journal)" if earlier.exists() else ""
    raise UnknownRun(f"there is no journal at {path} yet: `shikisha run` creates one{where}")


def make_folder(folder: Path) -> None:
    """Create the folder of a journal; ConfigError when that fails."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {folder} of the journal cannot be created: {error.strerror}") from None
