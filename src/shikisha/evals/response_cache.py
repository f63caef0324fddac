"""The response cache: the reply to exactly these messages is kept, and no paid call is made twice.

A reply is found by worker (its settings included), exact messages, and a sample number. A run that asks the same worker
the same thing again gets the next number, so that self-consistency does not see one answer several times; another
entrant that asks for the first time shares number 0. Invariants: a reply is on the disk before anyone acts on it; a
call in flight when the process dies is repeated under the same idempotency key; a failed call is not kept; a call of
an agent's tool is paid for here and never answered from what is kept, since the tool may have changed since; a cached
reply is charged to its run as it was when it was paid, and `paid` counts only what is paid now. A call for which the
evaluation's budget has no money ends its run, which may be played later: it is nobody's failure. Replies never expire,
and messages must be equal: likeness does not count.
"""

import asyncio
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from shikisha.core.budget import Amount, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError, Fault, FaultKind, JournalUnavailable, WorkerError
from shikisha.core.events import FinishReason
from shikisha.core.fast_dataclass import dataclass, field, fields, replace
from shikisha.core.messages import ChatMessage, dump_records, load_tool_calls
from shikisha.core.visibility import max_usage, request_messages, view_hash
from shikisha.engine.pool import Member
from shikisha.engine.worker import Worker
from shikisha.journal import make_private


class LineAppender:
    """Appends lines to one file. Lives on one event loop; `aclose` writes what is left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(make_private(path), os.O_RDWR | os.O_CLOEXEC)
            self.size = _complete_length(self._file)
            if os.fstat(self._file).st_size > self.size:
                os.ftruncate(self._file, self.size)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise JournalUnavailable(f"{path}: cannot be opened for writing: {error.strerror}") from None
        self._pending: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._broken: JournalUnavailable | None = None

    def put(self, line: str) -> tuple[int, int]:
        """Add a line, to be written with the next `sync`; return where it will stand: offset and length in bytes."""
        if self._broken is not None:
            raise self._broken
        data = line.encode() + b"\n"
        place = (self.size, len(data) - 1)
        self._pending.append(data)
        self.size += len(data)
        return place

    async def sync(self) -> None:
        """Return when every line put so far is on the disk; JournalUnavailable when that cannot be had."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await done

    async def aclose(self) -> None:
        """Write what is left and close the file."""
        try:
            if self._pending or (self._writer is not None and not self._writer.done()):  # who waited for it may be gone
                await self.sync()
        finally:
            os.close(self._file)

    def read(self, offset: int, length: int) -> bytes:
        """Return a line that was written."""
        return os.pread(self._file, length, offset)

    async def _write(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            lines, self._pending = self._pending, []
            try:
                if self._broken is None:
                    await asyncio.to_thread(self._append, b"".join(lines))
            except OSError as error:
                self._broken = JournalUnavailable(f"{self.path}: cannot be written: {error.strerror}")
            for future in waiting:
                if not future.done() and self._broken is not None:
                    future.set_exception(self._broken)
                elif not future.done():
                    future.set_result(None)

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)


def _complete_length(file: int, block: int = 1 << 16) -> int:
    """Return the length of the file up to its last end of line."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - block)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


UNCACHED_KINDS = frozenset({"replay", "vote", "python", "conductor"})  # nothing is saved by keeping their replies


@dataclass(slots=True)
class RunAccount:
    """One run's own count: which sample numbers it has asked for, what it paid, what it was spared.

    `attempt` counts earlier failed tries of this run. `spared` are the seconds that replies found here took when they
    were paid, by the request's key. `task` plays the run: it is cancelled (`ended`) when the purse has refused a call
    and no other call of the run is `in_flight`. `cache_only`: no call of this run is paid for.
    """

    attempt: int = 0
    task: "asyncio.Task[object] | None" = None
    paid: float = 0.0
    in_flight: int = 0
    refused: bool = False
    ended: bool = False
    cached_seconds: dict[str, float] = field(default_factory=dict)
    sample_numbers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    cache_only: bool = False

    def take(self, messages: str) -> int:
        """Return the smallest number not taken for these messages, and take it."""
        numbers = self.sample_numbers[messages]
        number = next(each for each in range(len(numbers) + 1) if each not in numbers)
        numbers.add(number)
        return number

    def refuse(self) -> None:
        """Have the run end as soon as no call of it is in flight."""
        self.refused = True
        self._end()

    def finish_call(self, paid: float) -> None:
        """Count a call that was in flight."""
        self.in_flight -= 1
        self.paid += paid
        self._end()

    def _end(self) -> None:
        if self.refused and not self.in_flight and not self.ended and self.task is not None:
            self.ended = True
            self.task.cancel()


RUN_ACCOUNT: ContextVar[RunAccount] = ContextVar("tally")


@dataclass(slots=True)
class EvaluationBudget:
    """The dollars that a whole evaluation may spend now: reserved before each call and settled after it.

    Where money is held that may come back, a call waits for it. `limit` None: no limit. `empty` once one was refused.
    """

    limit: float | None = None
    spent: float = 0.0
    held: float = 0.0
    empty: bool = False
    _holders: int = 0
    _freed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    async def reserve(self, need: Amount, worker: str) -> None:
        """Hold what a call may cost at most; WorkerError (CAP) when it would pass the limit or has no price."""
        if self.limit is None:
            return
        if need.dollars is None:
            raise WorkerError(FaultKind.CAP, f"{worker} has no price, and what cannot be priced is not called here")
        # Money that is held may come back, since a call is reserved at its most and settled at its actual cost.
        while not self.spent + self.held + need.dollars <= self.limit:
            if not self._holders or not self.spent + need.dollars <= self.limit:
                self.empty = True
                raise WorkerError(FaultKind.CAP, f"the evaluation's ${self.limit:g} are spent or reserved")
            self._freed.clear()
            await self._freed.wait()
        self.held += need.dollars
        self._holders += 1

    def settle(self, need: Amount, dollars: float) -> None:
        """Release what was held and count what was paid."""
        self.spent += dollars
        if self.limit is not None:
            self._holders -= 1
            # Without holders the sum is exactly 0: float errors must not eat the budget.
            self.held = self.held - (need.dollars or 0.0) if self._holders else 0.0
            self._freed.set()


class CachedReply(NamedTuple):
    """A reply that is kept, and the seconds it took when it was made."""

    reply: Reply
    seconds: float


class ResponseCache:
    """The replies kept in a folder, in files `calls-*.jsonl`; this process writes to the one named by `own`."""

    def __init__(self, folder: Path, own: str = "0") -> None:
        self._own = LineAppender(folder / f"calls-{own}.jsonl")
        self._places: dict[str, tuple[Path, int, int]] = {}
        self._fresh: dict[str, CachedReply] = {}  # not yet synced to disk
        for path in sorted(folder.glob("calls-*.jsonl")):
            self._places |= {key: (path, offset, length) for key, offset, length in _line_offsets(path)}
        self.flights: dict[str, asyncio.Future[Reply]] = {}
        self.tries: Counter[str] = Counter()  # by key, how often it failed for sure

    def __len__(self) -> int:
        return len(self._places)

    async def find(self, key: str) -> CachedReply | None:
        """Return the reply kept under this key, once it is on the disk."""
        if key in self._fresh:
            kept = self._fresh[key]
            await self._own.sync()
            return kept
        if key not in self._places:
            return None
        path, offset, length = self._places[key]
        if path == self._own.path:
            data = self._own.read(offset, length)
        else:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(length)
        line = json.loads(data)
        dollars, stated = line["dollars"], line.get("stated")
        paid = float(dollars) if isinstance(dollars, int | float) else None
        reply = Reply(
            str(line["text"]),
            _usage_from_json(line["usage"]),
            paid,
            FinishReason(str(line["finish"])),
            str(line["model"]),
            calls=load_tool_calls(str(line.get("calls", ""))),
            envelope=str(line.get("envelope", "")),
            stated=None if stated is None else _usage_from_json(stated),
        )
        return CachedReply(reply, float(str(line.get("seconds", 0.0))))

    async def keep(self, key: str, worker: str, reply: Reply, seconds: float = 0.0) -> None:
        """Keep a reply; it is on the disk when this returns, and found from now on even if the caller stops waiting."""
        line = {
            "key": key,
            "worker": worker,
            "text": reply.text,
            "usage": [getattr(reply.usage, name) for name in _USAGE],
            "dollars": reply.dollars,
            "finish": reply.finish,
            "model": reply.model,
            "seconds": round(seconds, 6),
            **({} if reply.stated is None else {"stated": [getattr(reply.stated, name) for name in _USAGE]}),
            **({"calls": dump_records(reply.calls), "envelope": reply.envelope} if reply.calls else {}),
        }
        offset, length = self._own.put(_ENCODER.encode(line))
        self._places[key], self._fresh[key] = (self._own.path, offset, length), CachedReply(reply, seconds)
        await self._own.sync()
        self._fresh.pop(key, None)

    async def aclose(self) -> None:
        """Close the file."""
        await self._own.aclose()


class CachedWorker:
    """A worker whose replies are kept. `fingerprint` stands for everything that decides what it would answer.

    With `keeps` False, calls are counted and paid for like the others, but each is made: for tools, which may have
    state, so that a kept reply to a read would be wrong after a write.
    """

    def __init__(
        self, member: Member, fingerprint: str, calls: ResponseCache, purse: EvaluationBudget, *, keeps: bool = True
    ) -> None:
        self._keeps = keeps
        self._worker: Worker = member.worker
        self._card, self._fingerprint, self._calls, self._purse = member.card, fingerprint, calls, purse

    async def perform(self, request: Request) -> Reply:
        """Return the reply kept for this request, or call and keep it."""
        tally, card = RUN_ACCOUNT.get(), self._card
        shown = request_messages(request)
        if not self._keeps:
            need = max_usage(shown, card, request.client_options)
            await self._reserve(need, tally, free=need.dollars == 0)
            return await self._paid("", request, need, tally)
        messages = self._messages(request, shown)
        number = tally.take(messages)
        key = f"{messages}-{number}"
        try:
            while True:
                kept = await self._calls.find(key)
                if kept is not None:
                    tally.cached_seconds[request.key] = kept.seconds
                    return kept.reply
                flight = self._calls.flights.get(key)
                if flight is None:
                    return await self._call(key, request, max_usage(shown, card, request.client_options), tally)
                await asyncio.wait([flight])  # another run makes this very call: wait for its result
        except BaseException:
            tally.sample_numbers[messages].discard(number)
            raise

    def _messages(self, request: Request, shown: Sequence[ChatMessage]) -> str:
        schema = json.dumps(request.schema, sort_keys=True) if request.schema else ""
        return sha256(
            f"{self._fingerprint}\n{view_hash(shown, request.client_options)}\n{schema}".encode()
        ).hexdigest()[:40]

    async def _call(self, key: str, request: Request, need: Amount, tally: RunAccount) -> Reply:
        calls = self._calls
        flight = calls.flights[key] = asyncio.get_running_loop().create_future()
        try:
            await self._reserve(need, tally)
            own = request.under(f"{key}-{tally.attempt}-{calls.tries[key]}", request.on_text, request.spawn)
            return await self._paid(key, own, need, tally)
        finally:
            del calls.flights[key]
            flight.cancel()  # the runs that wait look again

    async def _reserve(self, need: Amount, tally: RunAccount, *, free: bool = False) -> None:
        """Hold the money, or end the run: a refused reservation is no fault that retries or substitution may answer."""
        try:
            if tally.refused:
                raise WorkerError(FaultKind.CAP, "an earlier call of this run was refused")
            if tally.cache_only and not free:
                raise WorkerError(FaultKind.CAP, "this call is not in the cache, and this run pays for none")
            await self._purse.reserve(need, self._card.name)
        except asyncio.CancelledError:  # the run is stopped, or its worker's time was spent on waiting for money
            tally.refuse()
            raise
        except WorkerError:
            tally.refuse()
            if tally.task is not None:
                await asyncio.get_running_loop().create_future()  # until the run's cancellation gets here
            raise

    async def _paid(self, key: str, request: Request, need: Amount, tally: RunAccount) -> Reply:
        card, calls, begun = self._card, self._calls, perf_counter()
        paid, possible = 0.0, need.dollars or 0.0  # until it is known better
        tally.in_flight += 1
        try:
            reply = _with_price(await self._worker.perform(request), card)
            paid, possible = reply.dollars or 0.0, reply.uncertain.dollars or 0.0
            if key:
                await calls.keep(key, card.name, reply, perf_counter() - begun)
            return reply
        except WorkerError as error:
            paid, possible = _failure_cost(error.fault, possible)
            # An endpoint may replay a clear failure under its key, so the next try gets another key. After an
            # ambiguous one the key stays, so that a call that did succeed is not paid twice.
            if key and not error.fault.kind.ambiguous:
                calls.tries[key] += 1
            raise
        finally:
            self._purse.settle(need, paid + possible)  # what may have been paid counts against the limit
            tally.finish_call(paid)


def _with_price(reply: Reply, card: Card) -> Reply:
    if reply.dollars is not None or card.price is None:
        return reply
    return replace(reply, dollars=card.price.of(reply.usage))


def _failure_cost(fault: Fault, most: float) -> tuple[float, float]:
    """Return what a call that failed is known to have cost, and what it may have cost besides."""
    if fault.dollars is not None:
        return fault.dollars, fault.uncertain_dollars or 0.0
    return 0.0, 0.0 if fault.unbilled else most


_ENCODER = json.JSONEncoder(separators=(",", ":"))
_USAGE = tuple(each.name for each in fields(Usage))


def _usage_from_json(counts: object) -> Usage:
    return Usage(*[int(count) for count in counts] if isinstance(counts, list) else [])


def _line_offsets(path: Path) -> Iterator[tuple[str, int, int]]:
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # another process was killed while it wrote, or is writing
            try:
                key = str(json.loads(line)["key"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{path}: line {number}: not a reply that was kept here: {error}") from None
            yield key, offset, len(line) - 1
            offset += len(line)
