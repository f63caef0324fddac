"""The house: begins runs for whoever may have them, goes on with those that were left, and ends them.

Invariants: a run is durable, with its row, before `begin` returns (4); none outlives the house; a run that is cut short
by a stopping server is released and taken up again, by this server or another, and one that was cancelled is not.
Deliberately absent: HTTP, and who may ask (`doors`): what arrives here is an Order that is already allowed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import time

from shikisha.budget import Amount
from shikisha.conduct import Engine, new_run_id
from shikisha.conductor import Conductor
from shikisha.config.compose import Composition
from shikisha.errors import ShikishaError, UnknownRun
from shikisha.events import QuestionAnswered, RunFinished, RunPaused, Status
from shikisha.journal import Journal
from shikisha.pool import Pool
from shikisha.run import Attempt, Run
from shikisha.server.catalogue import Catalogue
from shikisha.server.clerk import Clerk
from shikisha.server.expiring import Expiring
from shikisha.server.following import follow
from shikisha.server.keys import KeyKeeper
from shikisha.server.live import Heard, Live
from shikisha.server.ordering import Ordering
from shikisha.server.orders import Order
from shikisha.server.performing import Performing
from shikisha.server.problems import Problem
from shikisha.server.purses import Purses
from shikisha.server.retaining import Retaining
from shikisha.server.running import Running
from shikisha.server.shown import conducting
from shikisha.server.store import Served, State, Store

_LOG = logging.getLogger(__name__)
_EXCERPT = 200
_MOST_CASTS = 256  # clients choose workers by header, so pools could be made without end


class House(Performing):
    """What requests work with. Made by `opening.open_house`."""

    def __init__(
        self, composition: Composition, journal: Journal, store: Store, keys: KeyKeeper, purses: Purses
    ) -> None:
        super().__init__(journal, purses, composition.settings.server.drain)
        self.composition = composition
        self.settings = composition.settings.server
        self.store = store
        self.keys = keys
        self.ordering = Ordering(composition, Catalogue(composition))
        self.clerk = Clerk(journal, store, self.running)
        engine = Engine(self.clerk, vault=composition.vault, guarded=composition.guarded)
        self.engine = engine.overseen(composition.oversight(composition.settings.server.waiting))
        self.expiring = Expiring(root_of)
        self.retaining = Retaining()
        self.watchers.append(self.expiring.note)
        self.first_key: str | None = None
        self._casts: OrderedDict[tuple[str, tuple[str, ...]], tuple[Pool, Conductor]] = OrderedDict()
        self._resolved = composition.resolved()

    # beginning ------------------------------------------------------------------------------------------------------

    def cast(self, conductor: str, pool: Sequence[str]) -> tuple[Pool, Conductor]:
        """Return the pool of these workers and the conductor for it, built once; ConfigError for unknown names."""
        key = (conductor, tuple(pool))
        if key not in self._casts:
            members = self.composition.pool(pool)
            self._casts[key] = (members, self.composition.conductor(conductor, members))
            if len(self._casts) > _MOST_CASTS:
                self._casts.popitem(last=False)
        self._casts.move_to_end(key)
        return self._casts[key]

    @property
    def catalogue(self) -> Catalogue:
        """The names of models."""
        return self.ordering.catalogue

    async def begin(self, order: Order) -> Live:
        """Begin a run and return it live once it is durable; Problem when it cannot be begun: nothing is charged."""
        if self.closing:
            raise Problem(503, "this server is being stopped", "server_stopping", wait=self.settings.drain)
        if len(self.running) >= self.settings.most_runs:
            raise Problem(
                429, f"{len(self.running)} runs are under way, which is the most here", "too_many_runs", wait=1
            )
        order = order.scrubbed(self.composition.vault.scrub)
        pool, conductor = self.cast(order.conductor, order.pool)
        purse = await self.purses.admit(order.by)
        name = new_run_id()
        running = Running(Live(name), purse)
        try:
            await self.store.enlist(_served(name, order))
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
            raise
        return running.live

    # going on -------------------------------------------------------------------------------------------------------

    async def go_on(self, name: str) -> Live | None:
        """Go on with a run that waits, or was released; None when somebody else does already."""
        if name in self.running:
            return self.running[name].live
        if not await self.store.take(name):
            return None
        try:
            return await self.resume(name)
        except BaseException:
            if name not in self.running:
                self.store.drop(name)  # it comes with the next claim
            raise

    def given_up(self, name: str, running: Running) -> None:
        """Note that a run cannot be performed any further: nobody is to take it up by itself."""
        if running.acknowledged:
            self.store.mark(name, State.STOPPED, status=Status.INTERRUPTED)

    async def waited(self, name: str) -> None:
        """Go on with a run that waits, and has got what it waits for meanwhile."""
        await self.go_on(name)

    async def resume(self, name: str, served: Served | None = None) -> Live:
        """Perform a run that is ours from where the journal ends."""
        served, events = served or await self.served(name), await self.journal.read(name)
        past = Run.fold(events)
        for recall in self.recallers:
            recall(events)
        running = Running(Live(name, events), self.purses.of_key(served.key), acknowledged=True)
        calls = await _calls(self, past)
        running.used = sum((call.charged for call in calls), Amount())
        if past.finished is not None:
            self.store.mark(
                name, State.ENDED, status=past.status, tokens=running.used.tokens, dollars=running.used.dollars
            )
            running.purse.over()
            running.live.end()
            return running.live
        try:
            pool, conductor = self.cast(served.conductor, past.started.pool)
            conductor = conducting(conductor, served.api, served.wire, len(pool))
        except ShikishaError as error:  # the configuration has changed: it ends here, and says why
            self.running[name] = running
            self._end(name, running, f"cannot go on: {error}")
            return running.live
        for call in calls:
            if call.uncertain:
                running.purse.settle(Amount(), call.charged)
        self.perform(name, running, self.lent(self.engine, running).resume(name, pool, conductor))
        return running.live

    def _end(self, name: str, running: Running, why: str) -> None:
        event = RunFinished(run=name, at=time(), status=Status.FAILED, why=self.composition.vault.scrub(why))
        self.clerk.add(event)
        running.live.observe(event)
        self.running.pop(name, None)
        running.purse.over()
        running.live.end()

    async def answer(self, answered: QuestionAnswered) -> Live | None:
        """Write down what somebody answered, and go on with the run that waited for it."""
        root = root_of(answered.run)
        running = self.running.get(root)
        answered = replace(answered, text=self.composition.vault.scrub(answered.text))
        self.clerk.add(answered)
        if running is not None:
            running.live.observe(answered)
            running.answered = True
        await self.journal.flush()
        return running.live if running is not None else await self.go_on(root)

    # stopping -------------------------------------------------------------------------------------------------------

    async def cancel(self, name: str) -> None:
        """Stop a run for good, wherever it is; a run that is over stays as it is."""
        running = self.running.get(name)
        if running is not None and running.task is not None:
            running.stopped = True
            running.task.cancel()
            await asyncio.wait([running.task])
            return
        served = await self.served(name)
        if served.state is State.WAITING and await self.store.take(name):
            self.clerk.add(RunPaused(run=name, at=time(), status=Status.INTERRUPTED, why="cancelled"))
            self.store.mark(name, State.STOPPED, status=Status.INTERRUPTED)
            await self.journal.flush()
        elif served.state is State.OPEN:
            await self.store.stop(name)  # whoever performs it sees it with its next look

    # looking --------------------------------------------------------------------------------------------------------

    def live(self, name: str) -> Live | None:
        """Return a run that is being performed here."""
        running = self.running.get(name)
        return running.live if running else None

    def listen(self, name: str, after: int = -1) -> AsyncGenerator[Heard]:
        """Yield a run's events after a number, and everything that follows until it ends or waits."""
        return follow(self.journal, self.store, partial(self.live, name), name, after)

    async def served(self, name: str) -> Served:
        """Return what is known of a run that was ordered here; UnknownRun when there is none."""
        served = await self.store.find(name)
        if served is None:
            raise UnknownRun(f"there is no run {name}")
        return served

    async def past(self, name: str) -> Run:
        """Return a run as the journal has it; UnknownRun when there is none."""
        return Run.fold(await self.journal.read(name))

    async def family(self, name: str) -> dict[str, Run]:
        """Return a run and its child runs, by id, the run itself first."""
        found = {name: await self.past(name)}
        for child in await self.journal.children(name):
            with suppress(UnknownRun):
                found |= await self.family(child.id)
        return found


def root_of(run: str) -> str:
    """Return the id of the run that a run belongs to: a child's id begins with it (`scope.child_id`)."""
    return "-".join(run.split("-")[:3])


async def _calls(house: House, past: Run) -> list[Attempt]:
    """Return the calls of a run and its child runs, each once: what is answered by a child run is counted there."""
    names = house.composition.names
    cards = house.composition.cards(past.started.pool) if set(past.started.pool) <= set(names) else ()
    parents = {card.name for card in cards if card.kind == "conductor"}
    alone = not any(call.started.worker in parents for call in past.attempts)
    family = (past,) if alone else (await house.family(past.id)).values()
    return [call for run in family for call in run.attempts if call.started.worker not in parents]


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
