"""Going on with runs that were left: by a server that died, by this one when the journal was away, or for an answer.

Invariants: a run is gone on with by the member that its row names, and by nobody else, however long reading it took;
events keep their numbers; whatever stands in the way of one run is that run's end or its next try, and nothing else's.
Deliberately absent: beginning runs (`house`), and when to look for such runs (`caring`, `expiring`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import time

from shikisha.budget import Amount
from shikisha.conduct import Engine
from shikisha.conductor import Conductor
from shikisha.config.compose import Composition
from shikisha.errors import Expelled, ShikishaError, UnknownRun
from shikisha.events import Event, RunFinished, RunPaused, Status
from shikisha.journal import Journal
from shikisha.pool import Pool
from shikisha.run import Attempt, Run
from shikisha.server.clerk import Clerk
from shikisha.server.live import Live
from shikisha.server.performing import Performing
from shikisha.server.purses import Purses
from shikisha.server.running import Running
from shikisha.server.shown import conducting
from shikisha.server.store import Served, State, Store

_MOST_CASTS = 256  # clients choose workers by header, so pools could be made without end


class Resuming(Performing):
    """What goes on with runs."""

    def __init__(self, composition: Composition, journal: Journal, store: Store, purses: Purses) -> None:
        super().__init__(journal, purses, composition.settings.server.drain)
        self.composition = composition
        self.store = store
        self.clerk = Clerk(journal, store, self.running)
        engine = Engine(self.clerk, vault=composition.vault, guarded=composition.guarded)
        self.engine = engine.overseen(composition.oversight(composition.settings.server.waiting))
        self._casts: OrderedDict[tuple[str, tuple[str, ...]], tuple[Pool, Conductor]] = OrderedDict()
        self._late: dict[str, list[Event]] = {}  # what came for runs while they were read, to be gone on with

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
        if running.live.events:
            amounts = {"used": running.used, "uncertain": running.uncertain}
            self.store.mark(name, State.STOPPED, status=Status.INTERRUPTED, **amounts)

    async def waited(self, name: str, running: Running) -> None:
        """Go on with a run that waits, if it got an answer that it does not know: here, elsewhere, or by hand."""
        if running.answered or answers_of(await self._all_of(await self.past(name))) - running.known:
            await self.go_on(name)

    async def unstick(self, name: str) -> None:
        """Go on with a run that the journal could not take any further, unless it is over or another's meanwhile."""
        await self.journal.flush()  # what it had come to, and its row with it
        served = await self.store.find(name)
        if served is None or name in self.running:
            return
        if served.state is State.WAITING:
            await self.go_on(name)  # it may have been answered
        elif served.state is State.OPEN and served.owner == self.store.member.id:
            await self.resume(name, served)

    async def resume(self, name: str, served: Served | None = None) -> Live:
        """Perform a run that is ours from where the journal ends; Expelled when it is ours no more."""
        late = self._late[name] = []
        try:
            served, events = served or await self.served(name), await self.journal.read(name)
            past = Run.fold(events)
            family = await self._all_of(past)
        finally:
            self._late.pop(name, None)
        if self.expulsions or served.owner != self.store.member.id:
            raise Expelled(f"run {name} is performed by another server now")
        live = Live(name, [*events, *[event for event in late if event not in events]])
        return self._gone_on_with(served, past, family, live)

    def _gone_on_with(self, served: Served, past: Run, family: Iterable[Run], live: Live) -> Live:
        """Perform a run that was read, unless it is over, or is to be, or cannot be performed here any more."""
        name, calls = served.run, self._calls(family)
        used = sum((call.charged for call in calls), Amount())
        amounts = (used, sum((call.uncertain for call in calls), Amount()))
        if past.finished is not None:
            return self._over(live, State.ENDED, past.status, amounts)
        if served.stopping:
            return self._over(live, State.STOPPED, Status.INTERRUPTED, amounts, cancelled(name))
        for recall in self.recallers:
            recall(live.events)
        try:
            pool, conductor = self.cast(served.conductor, past.started.pool)
            conductor = conducting(conductor, served.api, served.wire, len(pool))
        except ShikishaError as error:  # the configuration has changed: it ends here, and says why
            why = self.composition.vault.scrub(f"cannot go on: {error}")
            end = RunFinished(run=name, at=time(), status=Status.FAILED, why=why)
            return self._over(live, State.ENDED, Status.FAILED, amounts, end)
        # A call in flight is counted with the event that ends it, as the engine goes on.
        ended = [call for call in calls if not call.in_flight]
        amounts = (used, sum((call.uncertain for call in ended), Amount()))
        running = Running(live, self.purses.of_key(served.key), *amounts, acknowledged=True, known=answers_of(family))
        self.perform(name, running, self.lent(self.engine, running).resume(name, pool, conductor))
        return live

    def _over(
        self, live: Live, state: State, status: Status, amounts: tuple[Amount, Amount], event: Event | None = None
    ) -> Live:
        """Say that a run is over, or stopped, without performing it."""
        if event is not None:
            self.clerk.add(event)
            for told in (live.observe, *self.watchers):
                told(event)
        self.store.mark(live.run, state, status=status, used=amounts[0], uncertain=amounts[1])
        live.end()
        return live

    async def _all_of(self, past: Run) -> tuple[Run, ...]:
        """Return a run and, where it may have some, its child runs."""
        parents = self._parents(past.started.pool)
        alone = not any(call.started.worker in parents for call in past.attempts)
        return (past,) if alone else tuple((await self.family(past.id)).values())

    def _calls(self, family: Iterable[Run]) -> list[Attempt]:
        """Return the calls of runs, each once: what is answered by a child run is counted there."""
        of = [(run, self._parents(run.started.pool)) for run in family]
        return [call for run, parents in of for call in run.attempts if call.started.worker not in parents]

    def _parents(self, pool: Sequence[str]) -> frozenset[str]:
        """Return the workers of a pool that are child runs."""
        known = set(pool) <= set(self.composition.names)
        cards = self.composition.cards(pool) if known else ()
        return frozenset(card.name for card in cards if card.kind == "conductor")

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


def answers_of(family: Iterable[Run]) -> set[str]:
    """Return the questions that are answered."""
    return {question for run in family for question in run.answers}


def cancelled(name: str) -> RunPaused:
    """Return the event that says that a run which nobody performs was cancelled."""
    return RunPaused(run=name, at=time(), status=Status.INTERRUPTED, why="cancelled")
