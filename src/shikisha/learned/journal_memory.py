"""From the journal to memory: which notes a finished run leaves, and keeping the index as the journal is.

A run leaves what was asked and answered; if it was right, also its plan; and the checks that said no. Invariants: the
evidence of every note is its run; a run that was erased leaves nothing, and what it left goes with its erasure
(`learned_erasure`) or the next synchronization, which comes before every search.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy import Connection, select

from shikisha.core.events import AnswerGraded, BodiesErased, CheckStatus, RunFinished
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run
from shikisha.journal import Journal
from shikisha.journal.run_index import SESSION_NAMES
from shikisha.journal.schema import EVENTS, HEAD, SERVED
from shikisha.learned.memory_index import MAX_NOTE, MemoryIndex, MemoryNote

_RIGHT = 0.999
_MOST_FAILURES = 5  # a run
_CUT = 1_000  # characters of a task or answer
_CHANGES = (RunFinished.kind, AnswerGraded.kind, BodiesErased.kind)
_EVENTS_PER_QUERY = 5_000
_RUNS_PER_QUERY = 500
_DEAR = 0.05  # dollars from which a run is as important as one that failed


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Whose run it is, and its session."""

    tenant: str = ""
    session: str = ""


def run_notes(run: Run, origin: RunOrigin = RunOrigin()) -> Iterator[MemoryNote]:
    """Yield what a finished run leaves; nothing for one that was erased, or is a part of another."""
    begun, end = run.started, run.finished
    if run.erased is not None or end is None or begun.parent is not None:
        return
    grade = run.grade
    score = None if grade is None else grade.score
    wrong = score is not None and score < _RIGHT
    labels, tenant = tuple(sorted(run.scope.labels)), origin.tenant if begun.tenant is None else begun.tenant
    session = origin.session and f"{tenant}/{origin.session}"
    important = 1.0 if wrong else min(1.0, (run.charged.dollars or 0.0) / _DEAR)

    def note(kind: str, text: str, speaker: str, importance: float) -> MemoryNote:
        return MemoryNote(text[:MAX_NOTE], (run.id,), tenant, labels, kind, speaker, session, 0, begun.at, importance)

    asked = _cut(begun.prompt)
    if run.answer:
        verdict = "" if score is None else " (graded right)" if not wrong else f" (graded {score:g})"
        yield note("fact", f"{asked}\nAnswer{verdict}: {_cut(run.answer)}", begun.conductor, important)
    failures = 0
    for turn in run.rounds:
        steps = turn.plan.steps if turn.plan is not None else ()
        if score is not None and not wrong and steps:
            plan = "; ".join(f"{begun.pool[step.worker]}: {_cut(step.subtask)}" for step in steps)
            yield note("plan", f"{asked}\nPlan that was right: {plan}", begun.conductor, important)
        for index, record in sorted(turn.steps.items()):
            for check in record.checks:
                if check.status is CheckStatus.FAIL and failures < _MOST_FAILURES:
                    failures += 1
                    subtask = _cut(steps[index].subtask) if index < len(steps) else asked
                    name = begun.pool[steps[index].worker] if index < len(steps) else ""
                    said = f"{subtask}\nCheck {check.check} refused it: {_cut(check.reason)}"
                    yield note("failure", said, name, 1.0)


async def sync_memory(memory: MemoryIndex, journal: Journal) -> tuple[int, int, int]:
    """Take in runs that ended, were graded or erased since the last time; return runs read, notes added, notes gone."""
    await journal.flush()
    first, read, added, gone = memory.position(), 0, 0, 0
    last: int = await journal.query(lambda connection: connection.execute(select(HEAD.c.count)).scalar_one())
    while first < last:
        until = min(last, first + _EVENTS_PER_QUERY)
        changed = await journal.query(partial(_changed_runs, first=first, until=until))
        origins = await journal.query(partial(_origins, runs=changed))
        erased = False
        for name in changed:
            run = Run.fold(await journal.read(name))
            # What an earlier end or grade left goes first: a run is read anew as a whole.
            gone += memory.forget([name])
            erased |= run.erased is not None
            added += memory.add(run_notes(run, origins.get(name, RunOrigin())))
            read += 1
        if erased:  # before it counts as done: a process may die at any of these lines
            memory.scrub()
        memory.advance(until)
        first = until
    return read, added, gone


def _changed_runs(connection: Connection, first: int, until: int) -> list[str]:
    where = (EVENTS.c.seq >= first, EVENTS.c.seq < until, EVENTS.c.kind.in_(_CHANGES))
    rows = connection.execute(select(EVENTS.c.run).where(*where).order_by(EVENTS.c.seq))
    return list(dict.fromkeys(row.run for row in rows))


def _origins(connection: Connection, runs: Sequence[str]) -> dict[str, RunOrigin]:
    """Return whose the served ones of these runs are; a run that no server was asked for is nobody's."""
    found = dict[str, RunOrigin]()
    for at in range(0, len(runs), _RUNS_PER_QUERY):
        own = SERVED.c.run.in_(runs[at : at + _RUNS_PER_QUERY])
        for row in connection.execute(select(SERVED.c.run, SERVED.c.tenant, SERVED.c.metadata).where(own)):
            told = json.loads(row.metadata or "{}")
            session = next((str(told[name]) for name in SESSION_NAMES if told.get(name)), "")
            found[row.run] = RunOrigin(row.tenant, session)
    return found


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _CUT else f"{flat[:_CUT]} …"
