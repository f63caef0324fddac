"""Learns in the background: takes what was journaled lately, fits the outcome models anew, and forgets erased runs.

Each scope (tenant and labels) has its own model, made of runs of that tenant with no labels but these. It is fitted
again after 25 new or newly graded runs (a 40th of them from 1,000 on, at most 100), or where its file is of another
version, in a thread, and becomes live at once.

Invariants: a model is a function of the journal's runs, so that the one after an erasure is the one without the erased
runs; memory is bounded, and no tenant takes another's part of it; of several processes one learns at a time.
"""

import asyncio
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from time import time

from sqlalchemy import Connection, func, select

from shikisha.core.errors import ConfigError, JournalUnavailable
from shikisha.core.events import AnswerGraded, BodiesErased, CheckStatus, RunFinished
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run
from shikisha.core.task import Scope
from shikisha.journal import Journal
from shikisha.journal.queries import count_events
from shikisha.journal.run_index import SESSION_NAMES
from shikisha.journal.schema import EVENTS, HEAD, SERVED
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.memory_index import MAX_NOTE, MemoryIndex, MemoryNote
from shikisha.learned.outcome_fit import MOST_UNITS, LearningTerms, choose_evidence, fit_outcomes
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import RunEvidence, run_evidence

# From the journal to memory: which notes a finished run leaves, and keeping the index as the journal is.
#
# A run leaves what was asked and answered; if it was right, also its plan; and the checks that said no. Invariants: the
# evidence of every note is its run; a run that was erased leaves nothing, and what it left goes with its erasure
# (`learned_erasure`) or the next synchronization, which comes before every search.

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


MOST_RUNS, MOST_STEPS = 20_000, 2 * MOST_UNITS  # newest runs, and steps of them, that are kept in memory
_LOG = logging.getLogger(__name__)
_AT_ONCE, _FOLDED = 500, 50  # runs that one look reads, and that are in memory whole at a time
_TELLING = (RunFinished.kind, AnswerGraded.kind)
_MOST_SCOPES = 20  # sets of labels of a tenant, the frequent ones, that have models


@dataclass
class JournalLearner:
    """Keeps the models of `files` up to date with a journal."""

    files: LearningFiles
    journal: Journal
    terms: LearningTerms
    _evidence: dict[str, RunEvidence] = field(default_factory=dict)
    _touched: dict[str, int] = field(default_factory=dict)  # by run: position of what was journaled of it last
    _unread: dict[str, tuple[str, int]] = field(default_factory=dict)  # by run: whose it is, and that position
    _seen: int = -1
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def is_due(self) -> bool:
        """Whether enough runs ended since the models were made, without reading any, or a model cannot be read."""
        scopes = self.files.index().scopes
        if not all(self.files.reads(one.scope) for one in scopes):
            return True
        first = min((one.position for one in scopes), default=-1)
        made = max((one.versions[-1].runs for one in scopes), default=0)
        new = await self.journal.query(partial(_touched_runs, first=first, kinds=_TELLING, most=100))
        return len(new) >= runs_between_fits(made)

    async def look(self, *, force: bool = False) -> list[OutcomeModel]:
        """Take in what is new, and fit what is due, or all with anything new (`force`); return the new models."""
        async with self._turn:
            last = await self.journal.query(count_events)
            if last == self._seen and not force and not self._unread:
                return []
            hit = await self._take(last, everything=force)
            if self._unread and not hit:
                return []
            with self.files.turn() as own:
                return await self._fit(last, force=force or hit) if own else []

    async def forget(self) -> None:
        """Take erased runs out of the models, as a part of every erasure (`Journal.on_erased`)."""
        async with self._turn:
            last = await self.journal.query(count_events)
            if last == self._seen:
                return
            try:
                if await self._take(last, everything=True):
                    await self._fit(last, force=True)
            except ConfigError as error:
                raise JournalUnavailable(f"{error}: then erase again") from None

    async def _take(self, last: int, *, everything: bool) -> bool:
        """Read the runs that were touched since the last look, newest first, some at a time.

        Return whether models were made of runs that are erased by now: these models are gone.
        """
        gone = await self.journal.query(partial(_touched_runs, first=self._seen, kinds=(BodiesErased.kind,), most=None))
        found = await self.journal.query(partial(_touched_runs, first=self._seen, kinds=_TELLING, most=MOST_RUNS))
        self._unread = found | {run: of for run, of in self._unread.items() if run not in found}
        for run in gone:
            for kept in (self._unread, self._evidence, self._touched):
                kept.pop(run, None)
        dropped = bool(gone) and bool(await asyncio.to_thread(self.files.drop, frozenset(gone)))
        left = len(self._unread) if everything or dropped else _AT_ONCE
        while self._unread and left > 0:
            runs = list(self._unread)[: min(left, _FOLDED)]
            left -= len(runs)
            for read in await self.journal.fold_runs(runs):
                one = run_evidence(read, self.terms.phrases)
                at = self._unread.pop(read.id)[1]
                self._evidence.pop(read.id, None)
                if one is not None:
                    self._evidence[read.id], self._touched[read.id] = one, at
            self._forget_oldest()
            await asyncio.sleep(0)
        self._seen = last
        return dropped

    def _forget_oldest(self) -> None:
        """Drop what is too much for memory: the runs touched longest ago, of whichever tenant has the most steps."""
        total = sum(len(one.units) for one in self._evidence.values())
        if len(self._evidence) <= MOST_RUNS and total <= MOST_STEPS:
            return
        held, steps, until = defaultdict[str | None, list[str]](list), Counter[str | None](), dict[str | None, int]()
        for run in sorted(self._evidence, key=lambda run: -self._touched[run]):
            held[self._evidence[run].scope.tenant].append(run)
            steps[self._evidence[run].scope.tenant] += len(self._evidence[run].units)
        while len(self._evidence) > MOST_RUNS or steps.total() > MOST_STEPS:
            tenant = max(steps, key=lambda one: steps[one])
            run = held[tenant].pop()
            steps[tenant] -= len(self._evidence.pop(run).units)
            until[tenant] = self._touched.pop(run)
        # What is older still need not be read.
        self._unread = {run: one for run, one in self._unread.items() if one[1] > until.get(one[0], -1)}

    async def _fit(self, last: int, *, force: bool) -> list[OutcomeModel]:
        index = self.files.index()
        positions = {one.scope: one.position for one in index.scopes}
        found = list[OutcomeModel]()
        for scope, runs in _by_scope(self._evidence.values()).items():
            new = sum(self._touched[one.run] >= positions.get(scope, 0) for one in runs)
            if new >= (1 if force else runs_between_fits(len(runs))) or not self.files.reads(scope):
                chosen = choose_evidence(runs)
                model = await asyncio.to_thread(fit_outcomes, chosen, self.terms, scope, self.files.encode)
                evidence = [one.run for one in chosen]
                found.append(await asyncio.to_thread(self.files.publish, model, evidence, time(), last))
                _LOG.info("learned from %d runs, version %s", len(chosen), found[-1].version)
        return found


def runs_between_fits(runs: int) -> int:
    """Return after how many runs a model of so many is fitted again: a fall or a new worker waits no longer."""
    return min(100, max(25, runs // 40))


def _by_scope(runs: Collection[RunEvidence]) -> dict[Scope, list[RunEvidence]]:
    """Return for each scope that has runs all runs that its model may be made of."""
    by_tenant = defaultdict[str | None, list[RunEvidence]](list)
    for run in runs:
        by_tenant[run.scope.tenant].append(run)
    found = dict[Scope, list[RunEvidence]]()
    for tenant, own in by_tenant.items():
        sets = Counter(run.scope.labels for run in own)
        for labels, _ in sets.most_common(_MOST_SCOPES):
            found[Scope(tenant, labels)] = [run for run in own if run.scope.labels <= labels]
    return found


def _touched_runs(
    connection: Connection, first: int, kinds: Sequence[str], most: int | None
) -> dict[str, tuple[str, int]]:
    """Return the root runs with such events from a position on, whose each is, and the position of the last one: each
    tenant's newest run comes first, then each one's second, `most` in all (None: no limit).
    """
    last = func.max(EVENTS.c.seq).label("last")
    where = (EVENTS.c.seq >= first, EVENTS.c.kind.in_(kinds), EVENTS.c.run.not_like("%-%-%-%"))
    found = select(EVENTS.c.run, last).where(*where).group_by(EVENTS.c.run).subquery()
    place = func.row_number().over(partition_by=SERVED.c.tenant, order_by=found.c.last.desc())
    rows = select(found.c.run, func.coalesce(SERVED.c.tenant, ""), found.c.last)
    rows = rows.outerjoin(SERVED, SERVED.c.run == found.c.run).order_by(place, found.c.last.desc()).limit(most)
    return {run: (tenant, int(at)) for run, tenant, at in connection.execute(rows)}
