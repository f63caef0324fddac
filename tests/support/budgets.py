"""What the tests of budgets share: a server's view of a journal with its keys and budgets, and the tables."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic, time

from sqlalchemy import Connection, text

from shikisha.core.budget import Amount
from shikisha.core.errors import CapReached
from shikisha.journal import Journal, open_journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import Key, KeyCaps, KeyManager, KeySpec
from shikisha.server.keys.budgets import KeyBudgets, RunKeyBudget
from shikisha.server.keys.grants import DailySpend, read_spend
from shikisha.server.store import RunStore, open_store

NOON = 1_800_000_000.0  # of some day, by UTC: 2027-01-15 08:00


@dataclass(slots=True)
class Desk:
    """A server's keys and key_budgets."""

    journal: Journal
    store: RunStore
    keys: KeyManager
    key_budgets: KeyBudgets

    async def key(self, caps: KeyCaps | None = None) -> Key:
        """A key with these caps."""
        return (await self.keys.issue(KeySpec("a", caps=caps or KeyCaps()), "tests")).key

    async def used(self, key: Key) -> list[DailySpend]:
        """What the database says was used, all told."""
        await self.tell()
        return await self.journal.query(lambda connection: read_spend(connection, key.id))

    async def tell(self) -> None:
        """See what was used stored."""
        self.journal.add_work(lambda _: None)
        await self.journal.flush()


@asynccontextmanager
async def approver(
    url: str, now: Callable[[], float] = time, clock: Callable[[], float] = monotonic
) -> AsyncIterator[Desk]:
    """Open a journal as a server does."""
    async with open_journal(url) as journal, open_store(journal) as store:
        keys = KeyManager(journal, now=now)
        yield Desk(journal, store, keys, KeyBudgets(journal, store, keys, clock))


def promised(connection: Connection, key: str) -> tuple[int, int]:
    """What is used or granted of a key, in all: nanodollars and tokens."""
    used = connection.execute(text("SELECT dollars, tokens FROM spend WHERE key = :key AND day = ''"), {"key": key})
    dollars, tokens = used.one_or_none() or (0, 0)
    grants = connection.execute(
        text("SELECT dollars - used_dollars, tokens - used_tokens FROM grants WHERE key = :key"), {"key": key}
    )
    for more_dollars, more_tokens in grants:
        dollars, tokens = dollars + max(0, more_dollars), tokens + max(0, more_tokens)
    return dollars, tokens


@dataclass(slots=True)
class Count:
    """What some runs hold and used, by our own count, and the most that it ever was."""

    dollars: float = 0.0
    most: float = 0.0
    refused: int = 0

    def add(self, dollars: float) -> None:
        """Count more (or less)."""
        self.dollars += dollars
        self.most = max(self.most, self.dollars)


async def spender(shared_budget: RunKeyBudget, chance: random.Random, count: Count, calls: int) -> None:
    """A run: calls that need something at most and use some of it, all, or nothing."""
    for _ in range(calls):
        need = Amount(chance.randrange(1, 50), round(chance.uniform(0.001, 0.02), 6))
        try:
            await shared_budget.hold(need, "ann")
        except CapReached:
            count.refused += 1
            continue
        count.add(need.dollars or 0.0)
        await asyncio.sleep(chance.choice([0, 0, 0.001]))
        share = chance.choice([0.0, 0.5, 1.0])
        used = Amount(int(need.tokens * share), (need.dollars or 0.0) * share)
        shared_budget.settle(need, used)
        count.add((used.dollars or 0.0) - (need.dollars or 0.0))


async def admitted(one: Desk, key: Key) -> RunKeyBudget:
    """The purse of a run that has begun."""
    shared_budget = await one.key_budgets.admit(key.principal())
    shared_budget.count_request()
    return shared_budget


async def refusal(one: Desk, key: Key) -> ApiError:
    """The refusal of a request."""
    try:
        await one.key_budgets.admit(key.principal())
    except ApiError as problem:
        return problem
    raise AssertionError("it was let in")
