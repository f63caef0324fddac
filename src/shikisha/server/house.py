"""The house: begins runs for whoever may have them, answers what they wait for, and stops them.

Invariants: a run is durable, with its row, before `begin` returns (4); none outlives the house; a run that is cut short
by a stopping server is released and taken up again, by this server or another, and one that was cancelled is not.
Deliberately absent: HTTP, and who may ask (`doors`): what arrives here is an Order that is already allowed; going on
with what was left (`resuming`).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import time

from shikisha.conduct import new_run_id
from shikisha.config.compose import Composition
from shikisha.depth import DEPTH
from shikisha.errors import JournalUnavailable
from shikisha.events import QuestionAnswered, RunPaused, Status
from shikisha.journal import Journal
from shikisha.server.catalogue import Catalogue
from shikisha.server.expiring import Expiring
from shikisha.server.following import follow
from shikisha.server.keys import KeyKeeper
from shikisha.server.live import Heard, Live
from shikisha.server.ordering import Ordering
from shikisha.server.orders import Order
from shikisha.server.problems import Problem
from shikisha.server.purses import Purses
from shikisha.server.resuming import Resuming, cancelled
from shikisha.server.retaining import Retaining
from shikisha.server.running import Running
from shikisha.server.shown import conducting
from shikisha.server.store import Served, State, Store

_LOG = logging.getLogger(__name__)
_EXCERPT = 200
_TRIES, _PAUSE = 20, 0.05  # how often, and after how many seconds, a run that is about to change is looked at


class House(Resuming):
    """What requests work with. Made by `opening.open_house`."""

    def __init__(
        self, composition: Composition, journal: Journal, store: Store, keys: KeyKeeper, purses: Purses
    ) -> None:
        super().__init__(composition, journal, store, purses)
        self.settings = composition.settings.server
        self.keys = keys
        self.ordering = Ordering(composition, Catalogue(composition))
        self.expiring = Expiring(root_of)
        self.retaining = Retaining()
        self.watchers.append(self.expiring.note)
        self.first_key: str | None = None
        self._resolved = composition.resolved()

    # beginning ------------------------------------------------------------------------------------------------------

    @property
    def catalogue(self) -> Catalogue:
        """The names of models."""
        return self.ordering.catalogue

    async def begin(self, order: Order) -> Live:
        """Begin a run and return it live once it is durable; Problem when it cannot be begun: nothing is charged."""
        self._check_open()
        if len(self.running) >= self.settings.most_runs:
            raise Problem(
                429, f"{len(self.running)} runs are under way, which is the most here", "too_many_runs", wait=1
            )
        DEPTH.set(order.depth)
        order = order.scrubbed(self.composition.vault.scrub)
        pool, conductor = self.cast(order.conductor, order.pool)
        purse = await self.purses.admit(order.by)
        name = new_run_id()
        running = Running(Live(name), purse)
        try:
            await self.store.enlist(_served(name, order))
            self._check_open()
            engine = self.lent(self.engine, running)
            conductor = conducting(conductor, order.api, order.wire, len(pool))
            perform = engine.run(order.task, pool, conductor, order.caps, run_id=name, config=self._resolved)
            self.perform(name, running, perform)
            await self.acknowledged(running)
        except BaseException:
            purse.over()
            self.drop(running)
            if not running.live.events:
                self.store.drop(name)  # its row goes with the next claim
            if order.idempotency is not None:
                with suppress(JournalUnavailable):
                    self.store.free(name)  # the client's next try is a run of its own
            raise
        return running.live

    def _check_open(self) -> None:
        if self.closing:
            raise Problem(503, "this server is being stopped", "server_stopping", wait=self.settings.drain)

    # answering -----------------------------------------------------------------------------------------------------

    async def answer(self, answered: QuestionAnswered) -> Live | None:
        """Write down what somebody answered, and go on with the run that waited for it."""
        root = root_of(answered.run)
        answered = replace(answered, text=self.composition.vault.scrub(answered.text))
        self.clerk.add(answered)
        running = self.running.get(root)
        if running is not None:
            running.live.observe(answered)
            running.answered = True
        elif answered.run in self._late:
            self._late[root].append(answered)
        try:
            await self.journal.flush()
            return running.live if running is not None else await self.go_on(root)
        except JournalUnavailable:
            if not self.expulsions:
                self.stuck.add(root)  # once the answer is written down, the run goes on with it
            raise

    # stopping -------------------------------------------------------------------------------------------------------

    async def cancel(self, name: str) -> None:
        """Stop a run for good, wherever it is; a run that is over stays as it is."""
        for _ in range(_TRIES):  # it may come to wait, or be taken up, just now
            running = self.running.get(name)
            if running is not None and running.task is not None:
                running.stopped = True
                running.task.cancel()
                await asyncio.wait([running.task])
                if not running.live.waits:
                    return
                await self.journal.flush()
            if await self._stopped(await self.served(name)):
                return
            await asyncio.sleep(_PAUSE)

    async def _stopped(self, served: Served) -> bool:
        """Whether a run is over, is stopped now, or will be by whoever performs it."""
        match served.state:
            case State.OPEN:
                return await self.store.stop(served.run)  # whoever performs it sees it with its next look
            case State.WAITING:
                return await self._give_up_waiting(served)
            case State.STOPPED if served.status is Status.QUARANTINED:
                return await self._give_up_waiting(served)
        return True

    async def _give_up_waiting(self, served: Served) -> bool:
        if not await self.store.take(served.run, ended=served.status is Status.QUARANTINED):
            return False
        self.clerk.add(cancelled(served.run))
        self.store.mark(served.run, State.STOPPED, status=Status.INTERRUPTED)
        await self.journal.flush()
        return True

    # poison runs ----------------------------------------------------------------------------------------------------

    async def quarantine(self, served: Served) -> None:
        """Write down that a run is quarantined: its row says so already, and that we are to."""
        why = (
            f"quarantined: {served.strikes} servers ended uncleanly while they performed it; "
            f"to let servers try again: shikisha release {served.run}"
        )
        paused = RunPaused(run=served.run, at=time(), status=Status.QUARANTINED, why=why)
        self.clerk.add(paused)
        self.store.mark(
            served.run, State.STOPPED, status=Status.QUARANTINED, used=served.used, uncertain=served.uncertain
        )
        await self.journal.flush()
        _LOG.error("run %s is %s", served.run, why)
        for watcher in self.watchers:
            watcher(paused)

    async def release(self, run: str, by: str) -> bool:
        """Let servers perform a quarantined run again, in somebody's name; False when it is not quarantined."""
        if not await self.store.free_quarantined(run):
            return False
        await self.keys.note(by, "run.released", run)
        return True

    # looking --------------------------------------------------------------------------------------------------------

    def live(self, name: str) -> Live | None:
        """Return a run that is being performed here."""
        running = self.running.get(name)
        return running.live if running else None

    def listen(self, name: str, after: int = -1) -> AsyncGenerator[Heard]:
        """Yield a run's events after a number, and everything that follows until it ends or waits."""
        return follow(self.journal, self.store, partial(self.live, name), name, after)


def root_of(run: str) -> str:
    """Return the id of the run that a run belongs to: a child's id begins with it (`scope.child_id`)."""
    return "-".join(run.split("-")[:3])


def _served(name: str, order: Order) -> Served:
    words = " ".join(order.task.prompt.split())
    return Served(
        run=name,
        tenant=order.by.tenant,
        key=order.by.key,
        api=order.api,
        created=time(),
        request_hash=order.request_hash,
        model=order.model,
        conductor=order.conductor,
        wire=order.wire,
        idempotency=order.idempotency,
        metadata=dict(order.metadata),
        excerpt=words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…",
        domain=order.task.domain,
        labels=order.task.labels,
        detached=order.detached,
    )
