"""Budgets and rate limits of keys, as runs use them: checked before each run and each call, counted after it.

Invariants: the runs of a key never pass a cap of that key, in total or per day, on any number of servers. Usage is
durable in the very commit that reports it. What cannot be checked is refused: an unknown price under a dollar cap, a
database that is away, a clock before the last day of use. A refused request is charged nothing. Requests per minute
are counted per server.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Protocol

from sqlalchemy import Connection

from shikisha.core.budget import ZERO as UNUSED
from shikisha.core.budget import Amount, format_dollars
from shikisha.core.errors import CapReached, JournalUnavailable
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal import Journal
from shikisha.journal.chain import TransactionWork
from shikisha.journal.records import note_event, recorded
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import KeyManager
from shikisha.server.keys.grants import (
    NO_AMOUNT,
    ONE_REQUEST,
    BudgetAmount,
    BudgetRefusal,
    BudgetUnit,
    KeyAccount,
    RefusalReason,
    UsageCount,
    return_all_unused,
)
from shikisha.server.keys.key import Key, Principal

_MINUTE_SECONDS = 60.0


@dataclass(slots=True)
class RequestRate:
    """A token bucket of requests, which fills with time and holds a minute's worth."""

    clock: Callable[[], float] = monotonic
    left: float | None = None
    at: float = 0.0

    def take(self, per_minute: int) -> float:
        """Take one request; return 0, or the seconds until one is available."""
        self._fill(per_minute)
        if self.left is not None and self.left >= 1:
            self.left -= 1
            return 0.0
        return _MINUTE_SECONDS / per_minute * (1 - (self.left or 0.0)) if per_minute else _MINUTE_SECONDS

    def headers(self, per_minute: int) -> dict[str, str]:
        """Return OpenAI's rate limit headers."""
        self._fill(per_minute)
        left = self.left or 0.0
        full = _MINUTE_SECONDS / per_minute * (per_minute - left) if per_minute else _MINUTE_SECONDS
        return {
            "x-ratelimit-limit-requests": str(per_minute),
            "x-ratelimit-remaining-requests": str(int(left)),
            "x-ratelimit-reset-requests": f"{full:.3f}s",
        }

    def _fill(self, per_minute: int) -> None:
        now = self.clock()
        gained = (now - self.at) / _MINUTE_SECONDS * per_minute
        self.left = float(per_minute) if self.left is None else min(float(per_minute), self.left + gained)
        self.at = now


_DAY_SECONDS = 86400.0


class HasMemberId(Protocol):
    """A member."""

    @property
    def id(self) -> str:
        """Its id, which is never reused."""
        ...


class HasMember(Protocol):
    """Knows as which member this server uses the database (the store does)."""

    @property
    def member(self) -> HasMemberId:
        """This server."""
        ...


class KeyLimitReached(ApiError):
    """A limit of the key refuses the request; the headers report the limit and what is left of it."""

    def __init__(self, status: int, message: str, code: str, wait: float | None, told: Mapping[str, str]) -> None:
        super().__init__(status, message, code, wait=wait)
        self._told = told

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        return {**super().headers(), **self._told}


class KeyBudgets:
    """The budgets of all keys at this server."""

    def __init__(
        self, journal: Journal, store: HasMember, keys: KeyManager, clock: Callable[[], float] = monotonic
    ) -> None:
        self._journal = journal
        self._store = store
        self._keys = keys
        self._clock = clock
        self._accounts: dict[str, KeyAccount] = {}
        self._rates: dict[str, RequestRate] = {}
        self._returning: set[asyncio.Task[None] | None] = set()
        self._changed: dict[str, KeyAccount] = {}
        journal.on_batch(self._cut)

    async def admit(self, principal: Principal) -> "RunKeyBudget":
        """Return the budget for a new run of this key; KeyLimitReached when it may not start one now.

        The caller calls `count_request` once the run is acknowledged, and `release` when it ends or could not start.
        """
        key = await self._keys.get(principal.key)
        if key is None or key.refused(self._keys.now()):
            raise ApiError(401, "this key was revoked", "revoked_api_key")
        account, told = self._account(key.id), self._rated(key)
        most = key.caps.runs_at_once
        if most is not None and account.runs >= most:
            raise KeyLimitReached(429, f"the key may have {most} runs at once, and has", "too_many_runs", 1.0, told)
        account.runs += 1
        try:
            day = await account.hold(_least_amount(key), key.caps)
            if isinstance(day, BudgetRefusal):
                raise self._refused(day, told)
        except BaseException:
            account.runs -= 1
            raise
        account.settle(day, _least_amount(key).minus(ONE_REQUEST), NO_AMOUNT)
        return RunKeyBudget(self._keys, account, self._run_over, told, day)

    def of(self, principal: Principal) -> "RunKeyBudget":
        """Return the budget for a run that was admitted before."""
        return self.budget_of_key(principal.key)

    def budget_of_key(self, key: str) -> "RunKeyBudget":
        """Return the budget for a run of this key that was admitted before, here or by another server."""
        account = self._account(key)
        account.runs += 1
        return RunKeyBudget(self._keys, account, self._run_over, {}, None)

    async def return_unused(self) -> None:
        """Return what is granted and neither used nor held; call it periodically."""
        for account in tuple(self._accounts.values()):
            await account.return_unused()

    async def close(self) -> None:
        """Return all grants: nothing is performed here anymore."""
        await self._journal.flush()
        member = self._store.member.id
        await self._journal.write(partial(_count_and_return, member=member, used=self._told()))
        self.forget()

    def forget(self) -> None:
        """Forget everything: this server was declared dead, and what it used since is not in the journal."""
        self._accounts, self._changed = {}, {}

    def _account(self, key: str) -> KeyAccount:
        member, known = self._store.member.id, self._accounts.get(key)
        if known is None or known.member != member:  # another member: this server was declared dead, and rejoined
            known = self._accounts[key] = KeyAccount(key, member, self._journal, self._keys.now, self._change)
        return known

    def _run_over(self, account: KeyAccount) -> None:
        """Return at once what a run did not use, where there is so little left that another server may need it."""
        if not account.runs and any(grant.tight and grant.spare for grant in account.grants.values()):
            self._returning.add(asyncio.get_running_loop().create_task(self._return(account), name="budget"))

    async def _return(self, account: KeyAccount) -> None:
        with suppress(JournalUnavailable):  # maintenance tries again
            await account.return_unused()
        self._returning.discard(asyncio.current_task())

    def _rated(self, key: Key) -> Mapping[str, str]:
        per_minute = key.caps.requests_per_minute
        if per_minute is None:
            return {}
        rate = self._rates.setdefault(key.id, RequestRate(self._clock))
        wait = rate.take(per_minute)
        told = rate.headers(per_minute)
        if wait:
            raise KeyLimitReached(
                429, f"the key may make {per_minute} requests a minute", "rate_limit_exceeded", wait, told
            )
        return told

    def _refused(self, refusal: BudgetRefusal, told: Mapping[str, str]) -> ApiError:
        why = f"the key's budget: {refusal}"
        if refusal.why is not RefusalReason.CAP:
            return KeyLimitReached(403 if refusal.why is RefusalReason.GONE else 503, why, "budget_unknown", None, told)
        wait = _DAY_SECONDS - self._keys.now() % _DAY_SECONDS if refusal.daily else None
        status = 429 if refusal.daily else 402
        return KeyLimitReached(status, why, "insufficient_quota", wait, told)

    def _change(self, account: KeyAccount) -> None:
        if self._accounts.get(account.key) is account:
            self._changed[account.key] = account

    def _told(self) -> dict[tuple[str, str], BudgetAmount]:
        changed, self._changed = self._changed, {}
        return {place: used for account in changed.values() for place, used in account.take_unreported().items()}

    def _cut(self) -> Iterable[TransactionWork]:
        used = self._told()
        return (UsageCount(self._store.member.id, used),) if used else ()


@dataclass(slots=True)
class RunKeyBudget:
    """The budget of one run (the engine's port): its calls are reserved in its key's budget."""

    keys: KeyManager
    account: KeyAccount
    over: Callable[[KeyAccount], None]
    headers: Mapping[str, str]
    _asked: str | None  # the day on which the request is held, until the run is acknowledged
    _counted: str | None = None  # the day on which it was counted
    _days: dict[Amount, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    _over: bool = False

    def count_request(self) -> None:
        """Count the request, since its run is acknowledged."""
        if self._asked is not None:
            self.account.settle(self._asked, ONE_REQUEST, ONE_REQUEST)
            self._counted, self._asked = self._asked, None

    def uncount_request(self) -> None:
        """Take the count back: the run was refused after all, as its start may not be stored."""
        if self._counted is not None:
            self.account.settle(self._counted, NO_AMOUNT, NO_AMOUNT.minus(ONE_REQUEST))
            self._counted = None

    def release(self) -> None:
        """Make room for another run; a request without a run is not counted. Calling it again does nothing."""
        if self._asked is not None:
            self.account.settle(self._asked, ONE_REQUEST, NO_AMOUNT)
            self._asked = None
        if not self._over:
            self._over = True
            self.account.runs -= 1
            self.over(self.account)

    async def hold(self, need: Amount, worker: str) -> None:
        """Reserve what a call may use at most; CapReached when that is too much or cannot be known."""
        key = await self.keys.get(self.account.key)
        if key is None or key.refused(self.keys.now()):
            raise CapReached("key", f"{worker} is not called: the key was revoked")
        in_dollars = key.caps.dollars is not None or key.caps.dollars_per_day is not None
        if need.dollars is None and in_dollars:
            raise CapReached("dollars", f"{worker} has no price, so it cannot be called under a dollar cap")
        day = await self.account.hold(BudgetAmount.of(need), key.caps)
        if isinstance(day, BudgetRefusal):
            cap = day.kind.value if day.why is RefusalReason.CAP else "key"
            raise CapReached(cap, f"{worker} may need {_format_need(need, day.kind)}: {day}")
        self._days[need].append(day)

    def settle(self, held: Amount, used: Amount, uncertain: Amount = UNUSED) -> None:
        """Release what was reserved for a call and count what it used, on the day of the reservation.

        What the call may have used counts in full: a cap must hold even if every uncertain call was charged.
        """
        days = self._days.get(held)
        day = days.popleft() if days else None
        if not days:
            self._days.pop(held, None)
        self.account.settle(day, NO_AMOUNT if day is None else BudgetAmount.of(held), BudgetAmount.of(used + uncertain))


def _least_amount(key: Key) -> BudgetAmount:
    """Return what must be left of a key's budget to start a run: one request, and a bit of every capped unit."""
    caps = key.caps
    dollars = int(any((caps.dollars, caps.dollars_per_day)))
    return BudgetAmount(dollars, int(any((caps.tokens, caps.tokens_per_day))), 1)


def _format_need(need: Amount, kind: BudgetUnit) -> str:
    return format_dollars(need.dollars or 0.0, 6) if kind is BudgetUnit.DOLLARS else f"{need.tokens:,} tokens"


@recorded
def _count_and_return(connection: Connection, member: str, used: Mapping[tuple[str, str], BudgetAmount]) -> None:
    counted = UsageCount(member, used)
    counted(connection)
    note_event(connection, counted.records())
    return_all_unused(connection, member)
