"""A key's budget, as the runs of the key share it: asked before every run and every call, counted after each.

Invariants: no key's runs pass a cap of the key, in all or on a day, however many there are, on however many servers,
and whoever holds the key (admins too); what is used is durable in the very commit that says so; what cannot be checked
is refused: an unknown price under a cap on dollars, a store that is away, a clock before the last day seen. A refused
request is charged nothing. Deliberately absent: the arithmetic (`keys.accounts`) and the database (`keys.spend`).

How many requests a minute a key may make of this server.

Invariant: in any minute no more are let in than a minute's worth beyond what was saved up, which is at most a minute's
worth. Deliberately absent: a count that several servers share (each lets in what it is told to; a budget is shared).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

from sqlalchemy import Connection

from shikisha.core.budget import ZERO as UNUSED
from shikisha.core.budget import Amount, format_dollars
from shikisha.core.errors import CapReached
from shikisha.journal import Journal
from shikisha.journal.chain import TransactionWork
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
    count_usage,
    return_all_unused,
)
from shikisha.server.keys.key import Key, Principal

_MINUTE_SECONDS = 60.0


@dataclass(slots=True)
class RequestRate:
    """A bucket of requests, which fills with time."""

    clock: Callable[[], float] = monotonic
    left: float | None = None
    at: float = 0.0

    def take(self, per_minute: int) -> float:
        """Take one request; return 0, or the seconds after which there will be one."""
        self._fill(per_minute)
        if self.left is not None and self.left >= 1:
            self.left -= 1
            return 0.0
        return _MINUTE_SECONDS / per_minute * (1 - (self.left or 0.0)) if per_minute else _MINUTE_SECONDS

    def headers(self, per_minute: int) -> dict[str, str]:
        """Return OpenAI's headers for it."""
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
_IDLE_SECONDS = 2.0  # seconds after which a key's tranche is given back


class HasMemberId(Protocol):
    """A member."""

    @property
    def id(self) -> str:
        """Its name, which is never used again."""
        ...


class HasMember(Protocol):
    """Whoever knows as which member this server uses the database (the store)."""

    @property
    def member(self) -> HasMemberId:
        """This server."""
        ...


class KeyLimitReached(ApiError):
    """A limit of the key refuses the request; the headers say how much there is of it."""

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
        self._touched: dict[str, float] = {}
        self._changed: dict[str, KeyAccount] = {}
        journal.on_cut(self._cut)

    async def admit(self, principal: Principal) -> "RunKeyBudget":
        """Return the purse for a new run of this key; Limited when the key may begin none now.

        Whoever asked says `begun` when the run is acknowledged, and `over` when it is over or could not be begun.
        """
        key = await self._keys.get(principal.key)
        if key is None or key.refused(self._keys.now()):
            raise ApiError(401, "this key was taken back", "revoked_api_key")
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
        return RunKeyBudget(self._keys, account, self._touch, told, day)

    def of(self, principal: Principal) -> "RunKeyBudget":
        """Return the purse for a run that was admitted before."""
        return self.of_key(principal.key)

    def of_key(self, key: str) -> "RunKeyBudget":
        """Return the purse for a run of this key that was admitted before, here or by another server."""
        account = self._account(key)
        account.runs += 1
        return RunKeyBudget(self._keys, account, self._touch, {}, None)

    async def rest(self) -> None:
        """Give back what is granted and not used of keys that nobody uses just now; call it now and then."""
        now = self._clock()
        for key, account in tuple(self._accounts.items()):
            if not account.runs and now - self._touched.get(key, 0.0) >= _IDLE_SECONDS:
                await account.rest()

    async def close(self) -> None:
        """Give everything back: nothing is performed here any more."""
        await self._journal.flush()
        member = self._store.member.id
        await self._journal.write(partial(_count_and_return, member=member, used=self._told()))
        self.forget()

    def forget(self) -> None:
        """Forget everything: this server was taken for dead, and what it used since is not in the journal."""
        self._accounts, self._changed = {}, {}

    def _account(self, key: str) -> KeyAccount:
        self._touch(key)
        member, known = self._store.member.id, self._accounts.get(key)
        if known is None or known.member != member:  # another member: this server was taken for dead, and came back
            known = self._accounts[key] = KeyAccount(key, member, self._journal, self._keys.now, self._change)
        return known

    def _touch(self, key: str) -> None:
        self._touched[key] = self._clock()

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
        return {place: used for account in changed.values() for place, used in account.told().items()}

    def _cut(self) -> Iterable[TransactionWork]:
        used = self._told()
        return (partial(count_usage, member=self._store.member.id, used=used),) if used else ()


@dataclass(slots=True)
class RunKeyBudget:
    """The purse of one run (the engine's port): its calls are held against its key's budget."""

    keys: KeyManager
    account: KeyAccount
    touch: Callable[[str], None]
    headers: Mapping[str, str]
    _asked: str | None  # the day on which the request is held, until the run is acknowledged
    _counted: str | None = None  # the day on which it was counted
    _days: dict[Amount, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    _over: bool = False

    def begun(self) -> None:
        """Count the request: its run is acknowledged."""
        if self._asked is not None:
            self.account.settle(self._asked, ONE_REQUEST, ONE_REQUEST)
            self._counted, self._asked = self._asked, None

    def unbegun(self) -> None:
        """Count the request no more: its run was refused after all, since nobody knows whether its start is stored."""
        if self._counted is not None:
            self.account.settle(self._counted, NO_AMOUNT, NO_AMOUNT.minus(ONE_REQUEST))
            self._counted = None

    def over(self) -> None:
        """Make room for another run; a request that came to nothing is not counted. Saying it again says nothing."""
        if self._asked is not None:
            self.account.settle(self._asked, ONE_REQUEST, NO_AMOUNT)
            self._asked = None
        if not self._over:
            self._over = True
            self.account.runs -= 1
            self.touch(self.account.key)

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold what a call may use at most; CapReached when there is no room, or nobody can say."""
        key = await self.keys.get(self.account.key)
        if key is None or key.refused(self.keys.now()):
            raise CapReached("key", f"{worker} is not called any more: the key was taken back")
        in_dollars = key.caps.dollars is not None or key.caps.dollars_per_day is not None
        if need.dollars is None and in_dollars:
            raise CapReached("dollars", f"{worker} has no price, and what cannot be priced is not called under a cap")
        day = await self.account.hold(BudgetAmount.of(need), key.caps)
        if isinstance(day, BudgetRefusal):
            cap = day.kind.value if day.why is RefusalReason.CAP else "key"
            raise CapReached(cap, f"{worker} may need {_format_need(need, day.kind)}: {day}")
        self._days[need].append(day)

    def settle(self, held: Amount, used: Amount, uncertain: Amount = UNUSED) -> None:
        """Release what was held for a call and count what it used, on the day on which it was held.

        What it may have used counts as if it had: a budget that trusts luck is none, and the day's is new tomorrow.
        """
        days = self._days.get(held)
        day = days.popleft() if days else None
        if not days:
            self._days.pop(held, None)
        self.account.settle(day, NO_AMOUNT if day is None else BudgetAmount.of(held), BudgetAmount.of(used + uncertain))


def _least_amount(key: Key) -> BudgetAmount:
    """Return what must be left of a key's budget for a run to be begun: a request, and anything of the rest."""
    caps = key.caps
    dollars = int(any((caps.dollars, caps.dollars_per_day)))
    return BudgetAmount(dollars, int(any((caps.tokens, caps.tokens_per_day))), 1)


def _format_need(need: Amount, kind: BudgetUnit) -> str:
    return format_dollars(need.dollars or 0.0, 6) if kind is BudgetUnit.DOLLARS else f"{need.tokens:,} tokens"


def _count_and_return(connection: Connection, member: str, used: Mapping[tuple[str, str], BudgetAmount]) -> None:
    count_usage(connection, member, used)
    return_all_unused(connection, member)
