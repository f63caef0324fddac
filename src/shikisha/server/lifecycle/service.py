"""The house: begins runs for whoever may have them, answers what they wait for, and stops them.

Invariants: a run is durable, with its row, before `begin` returns (4); none outlives the house; a run that is cut short
by a stopping server is released and taken up again, by this server or another, and one that was cancelled is not.
Deliberately absent: HTTP, and who may ask (`doors`): what arrives here is an Order that is already allowed; going on
with what was left (`resuming`).

Going on with runs that were left: by a server that died, by this one when the journal was away, or for an answer.

Invariants: a run is gone on with by the member that its row names, and by nobody else, however long reading it took;
events keep their numbers; whatever stands in the way of one run is that run's end or its next try, and nothing else's.
Deliberately absent: beginning runs (`house`), and when to look for such runs (`caring`, `expiring`).

The same request twice is one run: `Idempotency-Key` on whatever begins runs.

A route reads the key with `key_of(headers)`, puts it into its order (`Order.idempotency`), and begins with `begun`
instead of `house.begin`. What comes back names the run, and whether it is a new one: if it is not, the route answers
from that run, waiting for it if it still goes on, and streams it again from the journal if a stream is asked for; a
client that leaves then takes nobody's run with it. Invariant: a key means one run of its key's holder, on all servers
of a journal (the store's unique index decides), and another request under it is refused; nothing is begun or charged
for either. Headers are no part of what is compared, and neither is whether a stream is wanted. Deliberately absent:
keys that expire (they are kept as long as their run's row).
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from time import time

from shikisha.config.container import Container
from shikisha.core.budget import Amount
from shikisha.core.call import REQUEST_DEPTH
from shikisha.core.errors import IdempotencyConflict, JournalUnavailable, ServerFenced, ShikishaError, UnknownRun
from shikisha.core.events import Event, QuestionAnswered, RunFinished, RunPaused, RunStatus
from shikisha.core.run import Attempt, Run
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine, new_run_id
from shikisha.engine.pool import Pool
from shikisha.engine.run_context import root_run_id as root_run_id
from shikisha.journal import Journal
from shikisha.server.chat.models import ModelCatalog
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import KeyManager
from shikisha.server.keys.budgets import KeyBudgets
from shikisha.server.lifecycle.authorization import AuthorizedRun, RunAuthorizer, conductor_of_request
from shikisha.server.lifecycle.broadcast import LiveRun, RunUpdate, follow_run
from shikisha.server.lifecycle.executor import ActiveRun, RunExecutor, ServedRunRecorder
from shikisha.server.lifecycle.maintenance import ApprovalTimeouts, Retention
from shikisha.server.store import RunStore, ServedRun, ServedState

_MAX_CACHED_CASTS = 256  # clients choose workers by header, so pools could be made without end


class RunRecovery(RunExecutor):
    """What goes on with runs."""

    def __init__(self, composition: Container, journal: Journal, store: RunStore, purses: KeyBudgets) -> None:
        super().__init__(journal, purses, composition.settings.server.drain)
        self.composition = composition
        self.store = store
        self.clerk = ServedRunRecorder(journal, store, self.running)
        engine = Engine(self.clerk, vault=composition.vault, guarded=composition.guarded_labels)
        self.engine = engine.overseen(composition.autonomy_policy(composition.settings.server.approval_timeout))
        self._casts: OrderedDict[tuple[str, tuple[str, ...]], tuple[Pool, Conductor]] = OrderedDict()
        self._late: dict[str, list[Event]] = {}  # what came for runs while they were read, to be gone on with

    def cast(self, conductor: str, pool: Sequence[str]) -> tuple[Pool, Conductor]:
        """Return the pool of these workers and the conductor for it, built once; ConfigError for unknown names."""
        key = (conductor, tuple(pool))
        if key not in self._casts:
            members = self.composition.pool(pool)
            self._casts[key] = (members, self.composition.conductor(conductor, members))
            if len(self._casts) > _MAX_CACHED_CASTS:
                self._casts.popitem(last=False)
        self._casts.move_to_end(key)
        return self._casts[key]

    async def go_on(self, name: str) -> LiveRun | None:
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

    def given_up(self, name: str, running: ActiveRun) -> None:
        """Note that a run cannot be performed any further: nobody is to take it up by itself."""
        if running.live.events:
            amounts = {"used": running.used, "uncertain": running.uncertain}
            self.store.mark(name, ServedState.STOPPED, status=RunStatus.INTERRUPTED, **amounts)

    async def waited(self, name: str, running: ActiveRun) -> None:
        """Go on with a run that waits, if it got an answer that it does not know: here, elsewhere, or by hand."""
        if running.answered or answered_questions(await self._all_of(await self.past(name))) - running.known:
            await self.go_on(name)

    async def unstick(self, name: str) -> None:
        """Go on with a run that the journal could not take any further, unless it is over or another's meanwhile."""
        await self.journal.flush()  # what it had come to, and its row with it
        served = await self.store.find(name)
        if served is None or name in self.running:
            return
        if served.state is ServedState.WAITING:
            await self.go_on(name)  # it may have been answered
        elif served.state is ServedState.OPEN and served.owner == self.store.member.id:
            await self.resume(name, served)

    async def resume(self, name: str, served: ServedRun | None = None) -> LiveRun:
        """Perform a run that is ours from where the journal ends; Expelled when it is ours no more."""
        late = self._late[name] = []
        try:
            served, events = served or await self.served(name), await self.journal.read(name)
            past = Run.fold(events)
            family = await self._all_of(past)
        finally:
            self._late.pop(name, None)
        if self.expulsions or served.owner != self.store.member.id:
            raise ServerFenced(f"run {name} is performed by another server now")
        live = LiveRun(name, [*events, *[event for event in late if event not in events]])
        return self._gone_on_with(served, past, family, live)

    def _gone_on_with(self, served: ServedRun, past: Run, family: Iterable[Run], live: LiveRun) -> LiveRun:
        """Perform a run that was read, unless it is over, or is to be, or cannot be performed here any more."""
        name, calls = served.run, self._calls(family)
        used = sum((call.charged for call in calls), Amount())
        amounts = (used, sum((call.uncertain for call in calls), Amount()))
        if past.finished is not None:
            return self._over(live, ServedState.ENDED, past.status, amounts)
        if served.stopping:
            return self._over(live, ServedState.STOPPED, RunStatus.INTERRUPTED, amounts, cancelled_event(name))
        for recall in self.recallers:
            recall(live.events)
        try:
            pool, conductor = self.cast(served.conductor, past.started.pool)
            conductor = conductor_of_request(conductor, served.api, served.wire, len(pool))
        except ShikishaError as error:  # the configuration has changed: it ends here, and says why
            why = self.composition.vault.scrub(f"cannot go on: {error}")
            end = RunFinished(run=name, at=time(), status=RunStatus.FAILED, why=why)
            return self._over(live, ServedState.ENDED, RunStatus.FAILED, amounts, end)
        # A call in flight is counted with the event that ends it, as the engine goes on.
        ended = [call for call in calls if not call.in_flight]
        amounts = (used, sum((call.uncertain for call in ended), Amount()))
        running = ActiveRun(
            live, self.purses.of_key(served.key), *amounts, acknowledged=True, known=answered_questions(family)
        )
        self.perform(name, running, self.lent(self.engine, running).resume(name, pool, conductor))
        return live

    def _over(
        self,
        live: LiveRun,
        state: ServedState,
        status: RunStatus,
        amounts: tuple[Amount, Amount],
        event: Event | None = None,
    ) -> LiveRun:
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

    async def served(self, name: str) -> ServedRun:
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


def answered_questions(family: Iterable[Run]) -> set[str]:
    """Return the questions that are answered."""
    return {question for run in family for question in run.answers}


def cancelled_event(name: str) -> RunPaused:
    """Return the event that says that a run which nobody performs was cancelled."""
    return RunPaused(run=name, at=time(), status=RunStatus.INTERRUPTED, why="cancelled")


_LOG = logging.getLogger(__name__)
_MAX_EXCERPT = 200
_CANCEL_TRIES, _CANCEL_PAUSE = (
    20,
    0.05,
)  # how often, and after how many seconds, a run that is about to change is looked at


class RunService(RunRecovery):
    """What requests work with. Made by `opening.open_house`."""

    def __init__(
        self, composition: Container, journal: Journal, store: RunStore, keys: KeyManager, purses: KeyBudgets
    ) -> None:
        super().__init__(composition, journal, store, purses)
        self.settings = composition.settings.server
        self.keys = keys
        self.ordering = RunAuthorizer(composition, ModelCatalog(composition))
        self.expiring = ApprovalTimeouts(root_run_id)
        self.retaining = Retention()
        self.watchers.append(self.expiring.note)
        self.first_key: str | None = None
        self._resolved = composition.resolved()

    # beginning ------------------------------------------------------------------------------------------------------

    @property
    def catalogue(self) -> ModelCatalog:
        """The names of models."""
        return self.ordering.catalogue

    async def begin(self, order: AuthorizedRun) -> LiveRun:
        """Begin a run and return it live once it is durable; Problem when it cannot be begun: nothing is charged."""
        self._check_open()
        if len(self.running) >= self.settings.max_runs:
            raise ApiError(
                429, f"{len(self.running)} runs are under way, which is the most here", "too_many_runs", wait=1
            )
        REQUEST_DEPTH.set(order.depth)
        order = order.scrubbed(self.composition.vault.scrub)
        pool, conductor = self.cast(order.conductor, order.pool)
        purse = await self.purses.admit(order.by)
        name = new_run_id()
        running = ActiveRun(LiveRun(name), purse)
        try:
            await self.store.enlist(_new_served_run(name, order))
            self._check_open()
            engine = self.lent(self.engine, running)
            conductor = conductor_of_request(conductor, order.api, order.wire, len(pool))
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
            raise ApiError(503, "this server is being stopped", "server_stopping", wait=self.settings.drain)

    # answering -----------------------------------------------------------------------------------------------------

    async def answer(self, answered: QuestionAnswered) -> LiveRun | None:
        """Write down what somebody answered, and go on with the run that waited for it."""
        root = root_run_id(answered.run)
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
        for _ in range(_CANCEL_TRIES):  # it may come to wait, or be taken up, just now
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
            await asyncio.sleep(_CANCEL_PAUSE)

    async def _stopped(self, served: ServedRun) -> bool:
        """Whether a run is over, is stopped now, or will be by whoever performs it."""
        match served.state:
            case ServedState.OPEN:
                return await self.store.stop(served.run)  # whoever performs it sees it with its next look
            case ServedState.WAITING:
                return await self._give_up_waiting(served)
            case ServedState.STOPPED if served.status is RunStatus.QUARANTINED:
                return await self._give_up_waiting(served)
        return True

    async def _give_up_waiting(self, served: ServedRun) -> bool:
        if not await self.store.take(served.run, ended=served.status is RunStatus.QUARANTINED):
            return False
        self.clerk.add(cancelled_event(served.run))
        self.store.mark(served.run, ServedState.STOPPED, status=RunStatus.INTERRUPTED)
        await self.journal.flush()
        return True

    # poison runs ----------------------------------------------------------------------------------------------------

    async def quarantine(self, served: ServedRun) -> None:
        """Write down that a run is quarantined: its row says so already, and that we are to."""
        why = (
            f"quarantined: {served.strikes} servers ended uncleanly while they performed it; "
            f"to let servers try again: shikisha release {served.run}"
        )
        paused = RunPaused(run=served.run, at=time(), status=RunStatus.QUARANTINED, why=why)
        self.clerk.add(paused)
        self.store.mark(
            served.run, ServedState.STOPPED, status=RunStatus.QUARANTINED, used=served.used, uncertain=served.uncertain
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

    def live(self, name: str) -> LiveRun | None:
        """Return a run that is being performed here."""
        running = self.running.get(name)
        return running.live if running else None

    def listen(self, name: str, after: int = -1) -> AsyncGenerator[RunUpdate]:
        """Yield a run's events after a number, and everything that follows until it ends or waits."""
        return follow_run(self.journal, self.store, partial(self.live, name), name, after)


def _new_served_run(name: str, order: AuthorizedRun) -> ServedRun:
    words = " ".join(order.task.prompt.split())
    return ServedRun(
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
        excerpt=words if len(words) <= _MAX_EXCERPT else words[: _MAX_EXCERPT - 1] + "…",
        domain=order.task.domain,
        labels=order.task.labels,
        detached=order.detached,
    )


IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_IDEMPOTENCY_KEY = 255
_START_TRIES, _START_PAUSE = (
    20,
    0.1,
)  # how often, and after how many seconds, a run that is about to begin is looked for


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The run of a request; `fresh`: this request began it."""

    run: str
    fresh: bool = True


def read_idempotency_key(headers: Mapping[str, str]) -> str | None:
    """Return the hash of the client's key for this request; None without one, 400 for one that cannot be a key.

    Its hash is all that is needed, and all that is kept: who knows what clients take for such a key.
    """
    key = headers.get(IDEMPOTENCY_HEADER.lower())
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY or not (key.isascii() and key.isprintable()):
        said = f"{IDEMPOTENCY_HEADER}: expected 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters"
        raise ApiError(400, said, "invalid_idempotency_key", param=IDEMPOTENCY_HEADER)
    return sha256(key.encode()).hexdigest()


async def start_once(house: RunService, order: AuthorizedRun) -> StartedRun:
    """Begin the order's run, or return the one that its key stands for; 409 when that is another request's."""
    if order.idempotency is None:
        return StartedRun((await house.begin(order)).run)
    order = replace(order, request_hash=order.request_hash or hash_request(order))
    for _ in range(_START_TRIES):
        known = await house.store.recall(order.by.key, order.idempotency or "")
        try:
            if known is None:
                return StartedRun((await house.begin(order)).run)
            run, same = known.run, known.request_hash == order.request_hash
        except IdempotencyConflict as conflict:
            run, same = conflict.run, conflict.same
        if not same:
            said = f"{IDEMPOTENCY_HEADER}: another request was made under this key: run {run}"
            raise ApiError(409, said, "idempotency_mismatch", param=IDEMPOTENCY_HEADER)
        if await _is_acknowledged(house, run, order):
            return StartedRun(run, fresh=False)
        await asyncio.sleep(_START_PAUSE)
    raise ApiError(
        409, f"{IDEMPOTENCY_HEADER}: the run under this key is about to begin", "idempotency_in_progress", wait=1
    )


def hash_request(order: AuthorizedRun) -> str:
    """Return the hash of what a request asks for: the task with everything that belongs to it, and the API's own."""
    task = order.task
    parts = [order.api, order.model, task.prompt, task.context, task.domain, sorted(task.labels), task.bodies()]
    more = [task.parallel_tool_calls, order.detached, order.wire, dict(order.metadata)]
    return sha256(json.dumps([*parts, *more], sort_keys=True).encode()).hexdigest()


async def _is_acknowledged(house: RunService, run: str, order: AuthorizedRun) -> bool:
    """Whether the run under a key is there; another server may have written its row and not yet its first event.

    One that was refused as it began has lost the key by then: the request is a new one.
    """
    try:
        await house.journal.read(run)
    except UnknownRun:
        return False
    known = await house.store.recall(order.by.key, order.idempotency or "")
    return known is not None and known.run == run
