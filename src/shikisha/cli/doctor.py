"""`doctor`: whether everything that a run needs is there, and what to do about what is not.

Invariant: it looks at one thing at a time, so that one missing key does not hide the next; nothing is called over the
network unless --call says so, and then inside an engine with caps. Deliberately absent: repair.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha import __version__
from shikisha.clean import one_line
from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.errors import ShikishaError, TaskError
from shikisha.events import Status

if TYPE_CHECKING:
    from shikisha.config.compose import Composition

GOOD, FAIR, BAD = "ok", "note", "FAIL"
_EXTRAS = {"pyarrow": "logs", "mcp": "mcp", "asyncpg": "postgres"}
_LONGEST_CALL = 30.0  # seconds
_WORD = "Reply with the one word: ready"
_ASKED = {"python": 'print("ready")'}  # what each kind understands, where that is no prose
_UNCALLED = {
    "human": "it is a person",
    "http": "a call may change something, and needs its own arguments",
    "mcp": "a call may change something, and needs its own arguments",
    "conductor": "it calls the others",
    "vote": "it counts what others said",
}
Call = Annotated[bool, typer.Option("--call", help="Ask every worker of the pool for one word; this costs a little.")]
Sandbox = Annotated[bool, typer.Option("--sandbox", help="Probe the sandboxes instead: carry out attacks in them.")]
Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help="With --sandbox: monty, jail, bubblewrap, container[:IMAGE].")
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it stands, and what about it."""

    subject: str
    verdict: str
    what: str


def doctor(shared: Shared, name: Name = "", call: Call = False, sandbox: Sandbox = False) -> Exit:
    """Check that everything is there to run.

    Configuration, keys, workers, conductor, journal; exit code 3 if something is missing. With --sandbox: whether code
    is safely locked in here; exit code 3 if the sandbox NAME, or without a name any for full Python, is not offered.
    """
    if name and not sandbox:
        raise TaskError(f"{name!r}: only --sandbox takes a name")
    if sandbox:
        from shikisha.cli import probing

        return probing.probe(name, shared.json)
    findings = list(_look(shared, call))
    if shared.json:
        out.value({"findings": [{"subject": f.subject, "verdict": f.verdict, "what": f.what} for f in findings]})
    else:
        for finding in findings:
            out.answer(f"{finding.verdict:<4}  {finding.subject}: {one_line(finding.what, 500)}")
    return Exit.CONFIG if any(finding.verdict == BAD for finding in findings) else Exit.OK


def _look(shared: Shared, call: bool) -> Iterator[Finding]:
    yield Finding("shikisha", GOOD, f"{__version__} on Python {sys.version.split()[0]}")
    for library, extra in _EXTRAS.items():
        if find_spec(library) is None:
            yield Finding(f"extra {extra}", FAIR, f"not installed; pip install 'shikisha[{extra}]' brings {library}")
    from shikisha.config.load import find

    try:
        composition = session.compose(shared)
    except ShikishaError as error:
        yield Finding("configuration", BAD, str(error))
        return
    embedded = composition.orchestra is not None
    where = "none" if find(shared.config, os.environ) is None else f"{composition.file}, which has no [workers] yet"
    said = f"{where}: the embedded orchestra plays" if embedded else composition.file
    yield Finding("configuration", GOOD, said)
    yield from session.perform(lambda: _look_closer(composition, shared, call))


async def _look_closer(composition: "Composition", shared: Shared, call: bool) -> list[Finding]:
    async with session.closing(composition):
        findings = [*_workers(composition), *_conductor(composition)]
        called = (composition.settings.pool or composition.playing) if call else ()
        for name in called:  # each by itself: what is wrong with one says nothing of the others
            findings += await _called(composition, name)
        return [*findings, await _journal(composition, shared)]


def _workers(composition: "Composition") -> Iterator[Finding]:
    capped = composition.caps.dollars is not None
    for name in composition.names:
        try:
            card = composition.pool([name])[0].card
        except ShikishaError as error:
            yield Finding(f"worker {name}", BAD, str(error))
            continue
        if capped and card.price is None:
            yield Finding(f"worker {name}", BAD, "no price is known, so the dollar cap refuses every call to it")
        elif composition.orchestra is None:
            yield Finding(f"worker {name}", GOOD, card.kind)


def _conductor(composition: "Composition") -> Iterator[Finding]:
    from shikisha.config.foreseeing import foreseen, notices

    try:
        pool = composition.pool()
        yield Finding("pool", GOOD, ", ".join(pool.names))
        yield Finding("conductor", GOOD, composition.conductor("", pool).name)
    except ShikishaError as error:
        yield Finding("pool and conductor", BAD, str(error))
    for where, trouble in foreseen(composition):
        if trouble is not None and where != "conductor":
            yield Finding(where, BAD, str(trouble))
    for notice in notices(composition):
        refuses = FAIR if notice.fallback else BAD
        yield Finding(notice.where, GOOD if notice.unreadable is None else refuses, str(notice))


async def _called(composition: "Composition", name: str) -> list[Finding]:
    from shikisha.budget import Caps
    from shikisha.conduct import Engine
    from shikisha.conductors.fixed import Scripted
    from shikisha.plan import Plan, Step
    from shikisha.recorder import MemoryRecorder
    from shikisha.task import Task

    try:
        pool = composition.pool([name])
    except ShikishaError:  # said already, as the finding on this worker
        return []
    subject, card = f"call {name}", pool[0].card
    if card.kind in _UNCALLED:
        return [Finding(subject, FAIR, f"not called: {_UNCALLED[card.kind]}")]
    engine = Engine(MemoryRecorder(), vault=composition.vault)
    caps = Caps(steps=1, rounds=1, seconds=_LONGEST_CALL)
    asked = _ASKED.get(card.kind, _WORD)
    try:
        run = await engine.run(Task(asked), pool, Scripted([Plan((Step(asked, 0),))]), caps)
    except ShikishaError as error:
        return [Finding(subject, BAD, str(error))]
    if run.answer is not None:
        return [Finding(subject, GOOD, f"{run.active_seconds:.1f} s: {run.answer}")]
    if run.status is Status.SUSPENDED:
        return [Finding(subject, FAIR, "not called: a person must approve each call")]
    results = run.rounds[0].results if run.rounds else ()
    fault = results[0].fault if results and results[0] else None
    return [Finding(subject, BAD, str(fault) if fault else f"no answer ({run.status})")]


async def _journal(composition: "Composition", shared: Shared) -> Finding:
    try:
        url = shared.journal or composition.journal_url()
        absent = _future_journal(url)
        if absent is not None:
            return absent
        async with session.journal(shared, composition) as journal:
            newest = await journal.runs(limit=1)
        return Finding("journal", GOOD, f"{url.split('@')[-1]}{'' if newest else ', no runs yet'}")
    except ShikishaError as error:
        return Finding("journal", BAD, str(error))


def _future_journal(url: str) -> Finding | None:
    """Say whether a journal that is not there yet can be made; None when it is there, or not a file."""
    path = Path(url)
    if "://" in url or path.exists():
        return None
    folder = next((parent for parent in path.absolute().parents if parent.exists()), path.parent)
    if os.access(folder, os.W_OK):
        return Finding("journal", GOOD, f"will be made at {path}")
    return Finding("journal", BAD, f"{path} cannot be made: {folder} is not writable")
