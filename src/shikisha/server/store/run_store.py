"""The run store: which runs this server performs, and what is known of all served runs.

Invariant: of all servers on a journal one performs a run, and what a server still does after it was declared dead
never gets into the journal. Adding and updating a run cost no commit of their own. Erasing a run clears the texts in
its row too, and a run that somebody performs or may claim is not erased.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from sqlalchemy import ColumnElement, Connection, select, update

import shikisha.server.store.claims as blame
import shikisha.server.store.claims as holding
import shikisha.server.store.served_rows as filters
from shikisha.core.budget import ZERO, Amount
from shikisha.core.errors import JournalUnavailable, RunStillOpen, ServerFenced
from shikisha.core.events import RunStatus
from shikisha.journal import ErasureResult, Journal
from shikisha.journal.chain import TransactionWork
from shikisha.journal.schema import SERVED
from shikisha.journal.stored_events import erased_marker
from shikisha.server.store import claims
from shikisha.server.store.members import ServerMember, find_gone, new_member
from shikisha.server.store.served_rows import (
    MAX_INTEGER,
    RowChanges,
    RunFilter,
    RunPage,
    ServedRun,
    ServedState,
    filter_conditions,
    storable,
)

_MAX_IN_LIST = 500  # values in an IN list


def erasable_runs(connection: Connection, asked: RunFilter) -> tuple[str, ...]:
    """Return the runs that are asked for, are not open, and are not erased yet."""
    where = (*filter_conditions(connection, asked), SERVED.c.state != ServedState.OPEN, SERVED.c.erased.is_(None))
    found = select(SERVED.c.run).where(*where).order_by(SERVED.c.created, SERVED.c.run).limit(max(asked.limit, 1))
    return tuple(connection.execute(found).scalars())


def blank_rows(me: ServerMember, connection: Connection, runs: Sequence[str]) -> None:
    """Take the words out of these runs' rows, and end those that rested; StillOpen where one is open."""
    me.fence(connection)
    for start in range(0, len(runs), _MAX_IN_LIST):
        some, now = SERVED.c.run.in_(runs[start : start + _MAX_IN_LIST]), time.time()
        held = select(SERVED.c.run, SERVED.c.state).where(some).order_by(SERVED.c.run).with_for_update()
        for run, state in connection.execute(held).all():
            if state == ServedState.OPEN:
                raise RunStillOpen(f"run {run} is being performed: cancel it before it is erased")
        words = {"wire": "{}", "metadata": "{}", "labels": "[]", "domain": "", "excerpt": erased_marker(now)}
        connection.execute(update(SERVED).where(some).values(state=ServedState.ENDED, erased=now, **words))


BEATS_PER_LEASE = 3  # signs of life in a lease
_TRIAL_LEASES = (
    2  # leases that a suspected run is performed before the next one is: what takes a server down does so soon
)


class RunStore:
    """A server's view of what is served. Made by `open_store`."""

    def __init__(self, journal: Journal, member: ServerMember) -> None:
        self._journal = journal
        self._marks: RowChanges | None = None
        self._ours: set[str] = set()
        self._tried: tuple[str, float] | None = None  # the run on trial here, and until when (monotonic)
        self._gone = frozenset[str]()  # members whose processes were gone at the last look
        self._trusting = 0.0  # until then (monotonic) nobody is taken for dead: we were away ourselves
        self.member = member
        self.expelled = False
        self._left: set[str] | None = None  # by us while a claim is under way: it may still have seen them as open
        self._on_expelled: list[Callable[[], None]] = []
        journal.on_batch(self._seal)

    def on_expelled(self, told: Callable[[], None]) -> None:
        """Register a callback for when this server is declared dead; it runs before waiters of the journal learn it.

        It is to stop all that is performed here; once nothing of that continues, `join` makes this server a new member.
        """
        self._on_expelled.append(told)

    async def add_run(self, served: ServedRun) -> None:
        """Add a new run as open and owned by this server, with the next commit.

        With an idempotency key it is written at once, and Conflict names the run that has the key already.
        """
        row = served.row() | {"owner": self.member.id}
        self._ours.add(served.run)
        if served.idempotency is None:
            self._saying().rows.append(row)
            return
        try:
            await self._journal.write(partial(claims.add_once, me=self.member, row=row))
        except BaseException:
            self.drop(served.run)
            raise

    def mark(
        self,
        run: str,
        state: ServedState,
        *,
        status: RunStatus | None = None,
        used: Amount = ZERO,
        uncertain: Amount = ZERO,
    ) -> None:
        """Update the state of one of this server's runs with the next commit; with a status, also its usage."""
        said, now = self._saying(), time.time()
        owner = self.member.id if state is ServedState.OPEN else None
        said.states[run] = {"of_run": run, "new_state": state, "new_owner": owner, "new_updated": now}
        if status is not None:
            figures = {
                "new_status": status,
                "new_tokens": min(used.tokens, MAX_INTEGER),
                "new_dollars": used.dollars,
                "new_uncertain_tokens": min(uncertain.tokens, MAX_INTEGER),
                "new_uncertain_dollars": uncertain.dollars or 0.0,
            }
            said.figures[run] = {"of_run": run, **figures}
        if state is ServedState.OPEN:
            self._ours.add(run)
        else:
            self.drop(run)

    def drop(self, run: str) -> None:
        """Forget a run that is not performed here anymore: if it is still open, the next claim returns it."""
        self._ours.discard(run)
        if self._left is not None:
            self._left.add(run)

    async def find(self, run: str) -> ServedRun | None:
        """Return a served run; None when there is none. Marks that ride on a later commit are not seen yet."""
        return await self._one(SERVED.c.run == storable(run))

    async def recall(self, key: str, idempotency: str) -> ServedRun | None:
        """Return the run that a key's holder ordered under this idempotency key."""
        return await self._one(SERVED.c.key == storable(key), SERVED.c.idempotency == storable(idempotency))

    async def search(self, asked: RunFilter) -> RunPage:
        """Return a page of runs, newest first."""
        return await self._journal.query(partial(filters.find_page, asked=asked))

    async def count(self, asked: RunFilter) -> dict[ServedState, int]:
        """Return how many runs of each state there are."""
        return await self._journal.query(partial(filters.count_by_state, asked=asked))

    async def claim(self, most: int) -> tuple[ServedRun, ...]:
        """Claim up to `most` open runs that no server performs, and return them, oldest first.

        Whoever asks performs what is returned, or drops it. Only one claim may be under way.
        """
        left = self._left = set[str]()
        try:
            await self._journal.flush()
            trusting = time.monotonic() < self._trusting
            ours = claims.OwnRuns(frozenset(self._ours), self._ours.__contains__, self._tries())
            # A process that ended has a watchdog, which knows why: it has until the next look to say so first.
            before, self._gone = self._gone, await self._journal.query(partial(find_gone, me=self.member.id))
            work = partial(
                claims.claim_runs,
                me=self.member,
                most=most,
                ours=ours,
                also_late=not trusting,
                gone=before & self._gone,
            )
            seen = await self._journal.write(work)
        finally:
            self._left = None
        found = tuple(served for served in seen if served.run not in self._ours | left)
        self._ours.update(served.run for served in found)
        for served in found:
            if served.ends >= blame.TRIAL_ENDS:
                self._tried = served.run, time.monotonic() + _TRIAL_LEASES * self.member.lease
        return found

    def _tries(self) -> bool:
        """Whether a run is on trial here; one that has survived is cleared with the next commit."""
        if self._tried is not None:
            run, until = self._tried
            if run in self._ours and time.monotonic() < until:
                return True
            self._tried = None
            if run in self._ours:
                self._journal.add_work(partial(blame.clear_suspicion, me=self.member.id, run=run))
        return False

    async def unannounced(self) -> tuple[ServedRun, ...]:
        """Return the runs that were quarantined, and of which it is ours now to say so in the journal."""
        if not await self._journal.query(blame.has_unannounced):
            return ()
        return await self._journal.write(partial(blame.take_unannounced, me=self.member.id))

    async def free_quarantined(self, run: str) -> bool:
        """Make a quarantined run claimable again; False when it is not quarantined."""
        return await self._journal.write(partial(blame.release_quarantined, run=run))

    async def take(self, run: str, *, ended: bool = False) -> bool:
        """Take over a waiting or stopped run and open it; False when another server was faster, or it is neither.

        `ended`: a run that is over too. Should we die, whoever claims it sees that it is, and says so again.
        """
        if run in self._ours:
            return False
        self._ours.add(run)
        taken = False
        try:
            await self._journal.flush()
            taken = await self._journal.write(claims.TakeRun(self.member, run, ended))
        finally:
            if not taken:
                self.drop(run)
        return taken

    async def hold(self, run: str) -> bool:
        """Be the only member to work on a run that no server knows, until we leave; False when another is."""
        await self._journal.flush()
        return await self._journal.write(partial(holding.hold_run, me=self.member, run=run))

    async def stop(self, run: str) -> bool:
        """Ask the owner of an open run to stop it (see `stopped`); False when it is not open anymore."""
        return await self._journal.write(partial(claims.request_stop, run=run))

    def free(self, run: str) -> None:
        """Take its idempotency key from a run that was never acknowledged, with the next commit."""
        self._journal.add_work(partial(claims.free_idempotency_key, run=run))

    async def stopped(self) -> tuple[str, ...]:
        """Return the runs to be stopped: open ones of this server, and those that wait by now."""
        return await self._journal.query(partial(claims.stop_requests, me=self.member))

    async def release(self, run: str) -> None:
        """Release an open run of this server, so that any server can claim it."""
        await self._journal.flush()
        await self._journal.write(partial(claims.release_run, me=self.member, run=run))
        self.drop(run)

    async def erase(self, runs: Iterable[str], *, actor: str, why: str = "") -> ErasureResult:
        """Erase every text of these runs, their child runs and their rows; a waiting or stopped run ends thereby.

        StillOpen when one of them is being performed: cancel it first. UnknownRun when one was never there.
        """
        return await self._journal.erase(runs, actor=actor, why=why, hook=partial(blank_rows, self.member))

    async def sweep(self, asked: RunFilter, *, actor: str, why: str = "") -> ErasureResult:
        """Erase what is asked for, the oldest first and up to `limit` runs; open runs are left alone.

        By key, tenant or age (`until`): call it until it returns no runs.
        """
        while runs := await self._journal.query(partial(erasable_runs, asked=asked)):
            with suppress(RunStillOpen):  # somebody took one up meanwhile: the next look leaves it out
                return await self.erase(runs, actor=actor, why=why)
        return ErasureResult()

    async def beat(self) -> None:
        """Renew the lease and flush the journal; ServerFenced when this server was declared dead."""
        try:
            if not await self._journal.write(self.member.renew):
                self._trusting = time.monotonic() + self.member.lease
        except ServerFenced:
            self._journal.add_work(_do_nothing)  # with it the journal's writer learns it, and tells who is to stop
        await self._journal.flush()

    async def join(self) -> None:
        """Become a member, or rejoin after an expulsion once nothing is performed here anymore."""
        self.member = new_member(self.member.lease)
        self._ours.clear()
        self._marks, self._tried = None, None
        await self._journal.write(self.member.join)
        self.expelled = False
        self._journal.admit(self.member, self._expel)

    async def leave(self) -> None:
        """Be a member no longer, once all that was added is stored; our open runs may be claimed at once."""
        with suppress(JournalUnavailable):  # the lease runs out by itself; what is left is stored as the journal closes
            self._journal.add_work(self.member.leave)
            await self._journal.flush()

    async def _one(self, *where: ColumnElement[bool]) -> ServedRun | None:
        def look(connection: Connection) -> ServedRun | None:
            row = connection.execute(select(SERVED).where(*where)).mappings().one_or_none()
            return None if row is None else ServedRun.of(dict(row))

        return await self._journal.query(look)

    def _saying(self) -> RowChanges:
        if self._marks is None:
            said = RowChanges()
            self._journal.add_work(said)
            self._marks = said
        return self._marks

    def _seal(self) -> Iterable[TransactionWork]:
        self._marks = None
        return ()

    def _expel(self) -> None:
        self.expelled = True
        for told in self._on_expelled:
            told()


@asynccontextmanager
async def open_store(journal: Journal, lease: float = 15.0) -> AsyncIterator[RunStore]:
    """Join the servers that share a journal, give signs of life, and leave at the end.

    `lease` is for how many seconds this server is trusted to live without a sign, by the store's clock.
    """
    store = RunStore(journal, new_member(lease))
    await store.join()
    interrupted: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(_send_heartbeats(store), name="heartbeat")
            try:
                yield store
            except BaseException as error:  # noqa: BLE001 - an unexpected error is handled here, whatever its type
                interrupted = error
            beating.cancel()
        if interrupted is not None:
            raise interrupted
    finally:
        await store.leave()


def _do_nothing(_: Connection) -> None:
    """Do nothing, in a transaction that asks whether we live."""


async def _send_heartbeats(store: RunStore) -> None:
    while True:
        await asyncio.sleep(store.member.lease / BEATS_PER_LEASE)
        with suppress(JournalUnavailable):  # the lease runs on; an expelled server has been told by the journal
            await store.beat()
