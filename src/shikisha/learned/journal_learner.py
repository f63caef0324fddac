"""Learns in the background: takes what was journaled lately, fits the outcome models anew, and forgets erased runs.

Each scope (tenant and labels) has its own model, made of runs of that tenant with no labels but these. It is fitted
again after 25 new or newly graded runs (a 40th of them from 1,000 on, at most 100), or where its file is of another
version, in a thread, and becomes live at once.

Invariants: a model is a function of the journal's runs, so that the one after an erasure is the one without the erased
runs; memory is bounded by `MOST_RUNS`; of several processes one learns at a time.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import time

from sqlalchemy import Connection, func, select

from shikisha.core.events import AnswerGraded, BodiesErased, RunFinished
from shikisha.core.run import root_run_id
from shikisha.core.task import Scope
from shikisha.journal import Journal
from shikisha.journal.queries import count_events
from shikisha.journal.schema import EVENTS
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms, choose_evidence, fit_outcomes
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import RunEvidence, run_evidence

MOST_RUNS = 20_000  # newest runs that are kept in mind
_LOG = logging.getLogger(__name__)
_AT_ONCE = 500  # runs that one look reads
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
    _unread: dict[str, int] = field(default_factory=dict)
    _seen: int = -1
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def is_due(self) -> bool:
        """Whether enough runs ended since the models were made, without reading any."""
        scopes = self.files.index().scopes
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
            if await self._take(last, everything=True):
                await self._fit(last, force=True)

    async def _take(self, last: int, *, everything: bool) -> bool:
        """Read the runs that were touched since the last look, newest first, some at a time.

        Return whether models were made of runs that are erased by now: these models are gone.
        """
        gone = await self.journal.query(partial(_touched_runs, first=self._seen, kinds=(BodiesErased.kind,), most=None))
        found = await self.journal.query(partial(_touched_runs, first=self._seen, kinds=_TELLING, most=MOST_RUNS))
        self._unread |= {run: at for run, at in found.items() if root_run_id(run) == run}
        for run in gone:
            for kept in (self._unread, self._evidence, self._touched):
                kept.pop(run, None)
        newest = sorted(self._unread, key=lambda run: -self._unread[run])
        for run in newest[MOST_RUNS:]:
            del self._unread[run]
        for run in newest[: MOST_RUNS if everything else _AT_ONCE]:
            at = self._unread.pop(run)
            (read,) = await self.journal.fold_runs([run])
            one = run_evidence(read, self.terms.phrases)
            self._evidence.pop(run, None)
            if one is not None:
                self._evidence[run] = one
                self._touched[run] = at
            await asyncio.sleep(0)
        if len(self._evidence) > MOST_RUNS:
            oldest = sorted(self._evidence, key=lambda run: self._evidence[run].at)
            for run in oldest[: len(self._evidence) - MOST_RUNS]:
                del self._evidence[run], self._touched[run]
        self._seen = last
        return bool(gone) and bool(await asyncio.to_thread(self.files.drop, frozenset(gone)))

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


def _touched_runs(connection: Connection, first: int, kinds: Sequence[str], most: int | None) -> dict[str, int]:
    """Return the runs with an event of these kinds from a position on, `most` of them (None: all), the newest, and the
    position of the last one.
    """
    last = func.max(EVENTS.c.seq)
    found = select(EVENTS.c.run, last).where(EVENTS.c.seq >= first, EVENTS.c.kind.in_(kinds)).group_by(EVENTS.c.run)
    return {run: int(at) for run, at in connection.execute(found.order_by(last.desc()).limit(most))}
