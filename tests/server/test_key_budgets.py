"""Budgets of keys: held before every call, counted after it, shared by runs and servers, never passed."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from budgets import NOON, Count, Desk, admitted, approver, promised, refusal, spender
from journals import behind
from postgres import Cluster

from shikisha.core.budget import Amount
from shikisha.core.errors import CapReached
from shikisha.journal import open_journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import Key, KeyCaps
from shikisha.server.keys.grants import BudgetAmount, DailySpend, UsageCount, read_spend
from shikisha.server.keys.key import nanodollars
from shikisha.server.store import ServedRun, ServedState

DAY = 86400.0
CENT = Amount(10, 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    """A fresh journal of either kind."""
    if request.param == "sqlite":
        return str(path)
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


@pytest.fixture
def now() -> list[float]:
    return [NOON]


@pytest.fixture
async def one(path: Path, now: list[float]) -> AsyncIterator[Desk]:
    async with approver(str(path), lambda: now[0]) as opened:
        yield opened


async def test_what_calls_use_is_counted_by_day_and_in_all(one: Desk) -> None:
    key = await one.key()
    shared_budget = await admitted(one, key)
    for used in (CENT, Amount(), Amount(5, 0.005)):
        await shared_budget.hold(CENT, "ann")
        shared_budget.settle(CENT, used)
    portion = BudgetAmount(nanodollars(0.015), 15, 1)
    assert await one.used(key) == [DailySpend(key.id, "", portion), DailySpend(key.id, "2027-01-15", portion)]


async def test_what_a_call_may_have_used_counts_in_full(one: Desk) -> None:
    key = await one.key(KeyCaps(dollars=0.015))
    shared_budget = await admitted(one, key)
    await shared_budget.hold(CENT, "ann")
    shared_budget.settle(CENT, Amount(), CENT)  # its outcome is unknown
    with pytest.raises(CapReached, match="not used or reserved"):
        await shared_budget.hold(CENT, "ann")
    assert (await one.used(key))[0].used.dollars == nanodollars(0.01)


@pytest.mark.parametrize(
    ("caps", "cap"),
    [
        (KeyCaps(dollars=0.03), "dollars"),
        (KeyCaps(dollars_per_day=0.03), "dollars"),
        (KeyCaps(tokens=30), "tokens"),
        (KeyCaps(tokens_per_day=30), "tokens"),
        (KeyCaps(dollars=0.03, tokens=1000, tokens_per_day=500), "dollars"),
    ],
)
async def test_a_cap_is_held_to_the_last_digit(one: Desk, caps: KeyCaps, cap: str) -> None:
    shared_budget = await admitted(one, await one.key(caps))
    for _ in range(3):
        await shared_budget.hold(CENT, "ann")
    with pytest.raises(CapReached, match="ann may need") as refused:
        await shared_budget.hold(Amount(1, 1e-9), "ann")
    assert refused.value.cap == cap
    shared_budget.settle(CENT, Amount(9, 0.009))
    await shared_budget.hold(Amount(1, 0.001), "ann")


async def test_a_cap_says_what_there_was(one: Desk) -> None:
    shared_budget = await admitted(one, await one.key(KeyCaps(dollars_per_day=0.025)))
    await shared_budget.hold(CENT, "ann")
    with pytest.raises(CapReached, match=r"\$0\.02: \$0\.015 of the key's \$0\.025 a day"):
        await shared_budget.hold(Amount(1, 0.02), "ann")


async def test_runs_of_a_key_share_its_budget(one: Desk) -> None:
    key = await one.key(KeyCaps(dollars=0.02))
    first, second = await admitted(one, key), await admitted(one, key)
    await first.hold(CENT, "ann")
    await second.hold(CENT, "ann")
    with pytest.raises(CapReached):
        await first.hold(CENT, "ann")


async def test_an_unknown_price_is_refused_under_a_cap_on_dollars_only(one: Desk) -> None:
    unpriced = Amount(10, None)
    shared_budget = await admitted(one, await one.key(KeyCaps(dollars_per_day=1.0)))
    with pytest.raises(CapReached, match="no price"):
        await shared_budget.hold(unpriced, "ann")
    key = await one.key(KeyCaps(tokens=100))
    free = await admitted(one, key)
    await free.hold(unpriced, "ann")
    free.settle(unpriced, Amount(7, None))
    assert (await one.used(key))[0].used == BudgetAmount(0, 7, 1)


async def test_an_admins_key_is_no_exception(url: str) -> None:
    async with approver(url) as one:
        secret = await one.keys.bootstrap()
        key = await one.keys.find(secret or "")
        assert isinstance(key, Key)
        key = await one.keys.change(key.id, lambda key: replace(key, caps=KeyCaps(dollars=0.01)), "tests")
        shared_budget = await admitted(one, key)
        with pytest.raises(CapReached):
            await shared_budget.hold(Amount(1, 0.011), "ann")


async def test_a_day_has_its_own_cap_and_a_call_counts_where_it_began(one: Desk, now: list[float]) -> None:
    key = await one.key(KeyCaps(dollars_per_day=0.01))
    shared_budget = await admitted(one, key)
    await shared_budget.hold(CENT, "ann")
    now[0] += DAY
    await shared_budget.hold(CENT, "ann")
    for _ in range(2):
        shared_budget.settle(CENT, CENT)
    days = {each.day: each.used.dollars for each in await one.used(key)}
    assert days == {"": nanodollars(0.02), "2027-01-15": nanodollars(0.01), "2027-01-16": nanodollars(0.01)}


async def test_a_clock_that_goes_back_is_refused(one: Desk, now: list[float], path: Path) -> None:
    key = await one.key(KeyCaps(dollars=1.0))
    shared_budget = await admitted(one, key)
    await shared_budget.hold(CENT, "ann")
    shared_budget.settle(CENT, CENT)
    await one.tell()
    now[0] -= 2 * DAY
    with pytest.raises(CapReached, match="clock"):
        await shared_budget.hold(CENT, "ann")
    async with approver(str(path), lambda: now[0]) as other:
        refused = await refusal(other, key)
        assert (refused.status, "keys budget --mend-clock" in str(refused)) == (503, True)


async def test_a_clock_that_goes_back_by_a_day_gives_no_budget_twice(one: Desk, now: list[float]) -> None:
    key = await one.key(KeyCaps(dollars_per_day=0.02))
    shared_budget = await admitted(one, key)
    await shared_budget.hold(CENT, "ann")
    shared_budget.settle(CENT, CENT)
    now[0] -= DAY
    await shared_budget.hold(CENT, "ann")
    shared_budget.settle(CENT, CENT)
    with pytest.raises(CapReached, match="a day"):
        await shared_budget.hold(CENT, "ann")
    assert [each.day for each in await one.used(key)] == ["", "2027-01-15"]


@pytest.mark.parametrize("lives", [True, False], ids=["server lives on", "server is new"])
async def test_after_a_clock_a_year_ahead_keys_are_mended(url: str, lives: bool) -> None:
    ahead = [NOON + 366 * DAY]
    async with approver(url, lambda: ahead[0]) as old:
        key = await old.key(KeyCaps(dollars_per_day=0.025))
        shared_budget = await admitted(old, key)
        await shared_budget.hold(CENT, "ann")
        shared_budget.settle(CENT, CENT)
        await old.tell()
        ahead[0] = NOON
        async with approver(url, lambda: NOON) as new:
            each = old if lives else new
            assert (await refusal(each, key)).status == 503
            assert [mended.day for mended in await new.keys.mend_clock(key.id, "tests")] == ["2028-01-16"]
            again = await admitted(each, key)
            await again.hold(CENT, "ann")
            again.settle(CENT, CENT)
            with pytest.raises(CapReached, match="a day"):  # what was used ahead counts today
                await again.hold(CENT, "ann")
            used = {spent.day: spent.used.dollars for spent in await each.used(key)}
            assert used == {"": nanodollars(0.02), "2027-01-15": nanodollars(0.02)}
            assert not await new.keys.mend_clock(None, "tests")
            assert (await new.keys.acts(limit=1))[0].action == "key.clock_mended"
            assert (await new.journal.verify()).ok
        await old.key_budgets.close()
        assert (await old.journal.verify()).ok


async def test_two_clocks_may_differ_a_little_at_midnight(url: str) -> None:
    midnight = NOON - NOON % DAY + DAY
    async with approver(url, lambda: midnight + 1) as ahead, approver(url, lambda: midnight - 1) as behind_it:
        key = await ahead.key(KeyCaps(dollars_per_day=0.025))
        for each in (ahead, behind_it):
            shared_budget = await admitted(each, key)
            await shared_budget.hold(CENT, "ann")
        with pytest.raises(CapReached, match="a day"):
            await shared_budget.hold(CENT, "ann")


async def test_a_revoked_key_calls_nobody_any_more(one: Desk) -> None:
    key = await one.key()
    shared_budget = await admitted(one, key)
    await one.keys.revoke(key.id, "tests")
    with pytest.raises(CapReached, match="revoked"):
        await shared_budget.hold(CENT, "ann")


async def test_caps_that_change_hold_at_once(one: Desk) -> None:
    key = await one.key(KeyCaps(dollars=1.0))
    shared_budget = await admitted(one, key)
    await shared_budget.hold(CENT, "ann")
    await one.keys.change(key.id, lambda key: replace(key, caps=KeyCaps(dollars=0.015)), "tests")
    with pytest.raises(CapReached):
        await shared_budget.hold(CENT, "ann")
    await one.keys.change(key.id, lambda key: replace(key, caps=KeyCaps(dollars=0.02)), "tests")
    await shared_budget.hold(CENT, "ann")


async def test_a_cap_that_comes_late_counts_what_was_used_and_held_before(one: Desk) -> None:
    key = await one.key()
    shared_budget = await admitted(one, key)
    for _ in range(2):
        await shared_budget.hold(CENT, "ann")
    shared_budget.settle(CENT, CENT)
    await one.keys.change(key.id, lambda key: replace(key, caps=KeyCaps(dollars=0.025)), "tests")
    with pytest.raises(CapReached, match=r"\$0\.005 of"):
        await shared_budget.hold(CENT, "ann")


@pytest.mark.parametrize(
    ("caps", "status", "code"),
    [
        (KeyCaps(requests=1), 402, "insufficient_quota"),
        (KeyCaps(requests_per_day=1), 429, "insufficient_quota"),
        (KeyCaps(requests_per_minute=1), 429, "rate_limit_exceeded"),
        (KeyCaps(runs_at_once=1), 429, "too_many_runs"),
        (KeyCaps(dollars=0.01), 402, "insufficient_quota"),
        (KeyCaps(tokens_per_day=10), 429, "insufficient_quota"),
    ],
)
async def test_a_request_is_refused_before_anything_is_done(one: Desk, caps: KeyCaps, status: int, code: str) -> None:
    key = await one.key(caps)
    shared_budget = await admitted(one, key)
    if caps.requests is None and caps.requests_per_day is None:
        await shared_budget.hold(CENT, "ann")
    problem = await refusal(one, key)
    assert (problem.status, problem.code) == (status, code)
    assert (await one.used(key))[0].used.requests == 1


async def test_a_refusal_says_when_to_come_again(one: Desk) -> None:
    daily = await one.key(KeyCaps(requests_per_day=1))
    await admitted(one, daily)
    assert (await refusal(one, daily)).headers()["Retry-After"] == str(16 * 3600)
    rated = await one.key(KeyCaps(requests_per_minute=2))
    shared_budget = await one.key_budgets.admit(rated.principal())
    assert shared_budget.headers["x-ratelimit-remaining-requests"] == "1"
    await one.key_budgets.admit(rated.principal())
    told = (await refusal(one, rated)).headers()
    assert 29 <= int(told["Retry-After"]) <= 30
    assert (told["x-ratelimit-limit-requests"], told["x-ratelimit-remaining-requests"]) == ("2", "0")


async def test_a_run_that_did_not_begin_is_not_counted_and_one_that_is_over_makes_room(one: Desk) -> None:
    key = await one.key(KeyCaps(requests=2, runs_at_once=1))
    for _ in range(5):
        shared_budget = await one.key_budgets.admit(key.principal())
        shared_budget.release()
        shared_budget.release()
    for _ in range(2):
        shared_budget = await admitted(one, key)
        shared_budget.release()
    assert (await refusal(one, key)).code == "insufficient_quota"
    assert (await one.used(key))[0].used.requests == 2


async def test_a_cap_of_nothing_lets_free_work_through(one: Desk) -> None:
    shared_budget = await admitted(one, await one.key(KeyCaps(dollars=0.0)))
    await shared_budget.hold(Amount(10, 0.0), "free")
    with pytest.raises(CapReached):
        await shared_budget.hold(Amount(10, 1e-9), "dear")


async def test_servers_share_a_budget(url: str) -> None:
    async with approver(url) as one, approver(url) as other:
        key = await one.key(KeyCaps(dollars=1.0))
        key_budgets = [await admitted(one, key), await admitted(other, key)]
        held = 80
        for number in range(held):
            await key_budgets[number % 2].hold(CENT, "ann")
        with suppress(CapReached):
            while held <= 100:
                await key_budgets[held % 2].hold(CENT, "ann")
                held += 1
        assert held <= 100
        assert (await one.journal.query(lambda connection: promised(connection, key.id)))[0] <= nanodollars(1.0)


@pytest.mark.parametrize("need", [0.01, 0.02])
@pytest.mark.parametrize("at_once", [False, True], ids=["one after another", "runs open at both"])
async def test_two_servers_spend_all_of_a_small_budget(url: str, need: float, at_once: bool) -> None:
    """Whichever server a request comes to: what another one was granted and does not need is there for it."""
    async with approver(url) as one, approver(url) as other:
        key, spent = await one.key(KeyCaps(dollars=0.05)), 0.0
        open_at = [await admitted(each, key) for each in (one, other)] if at_once else []
        for number in range(20):
            if 0.05 - spent < need - 1e-9:
                break
            desk = (one, other)[number % 2]
            budget = open_at[number % 2] if at_once else await admitted(desk, key)
            await budget.hold(Amount(10, need), "ann")
            budget.settle(Amount(10, need), CENT)  # a call uses less than it may
            spent += 0.01
            if at_once:
                await desk.key_budgets.return_unused()  # as maintenance does, however long runs last
            else:
                budget.release()
            await desk.tell()
            await asyncio.gather(*filter(None, desk.key_budgets._returning))
        assert 0.05 - spent < need - 1e-9
        with pytest.raises((CapReached, ApiError), match="not used or reserved"):
            await (open_at[0] if at_once else await admitted(one, key)).hold(Amount(10, need), "ann")


async def test_what_a_server_leaves_idle_goes_back(url: str) -> None:
    clock = [0.0]
    async with approver(url, clock=lambda: clock[0]) as one, approver(url) as other:
        key = await one.key(KeyCaps(dollars=0.1))
        shared_budget = await admitted(one, key)
        await shared_budget.hold(CENT, "ann")
        shared_budget.settle(CENT, CENT)
        shared_budget.release()
        clock[0] += 60.0
        await one.key_budgets.return_unused()
        another = await admitted(other, key)
        for _ in range(9):
            await another.hold(CENT, "ann")
        with pytest.raises(CapReached):
            await another.hold(CENT, "ann")


async def test_what_a_dead_server_held_is_kept_until_its_runs_are_over(url: str) -> None:
    async with approver(url) as one:
        key = await one.key(KeyCaps(dollars=0.1))
        async with approver(url) as dying:
            shared_budget = await admitted(dying, key)
            await shared_budget.hold(Amount(1, 0.08), "ann")
            await dying.store.add_run(_row(key))
            await dying.tell()
        taken = await admitted(one, key)
        with pytest.raises(CapReached):
            await taken.hold(Amount(1, 0.05), "ann")
        taken.settle(Amount(), Amount(1, 0.08))  # the call may have been made
        one.store.mark("r1", ServedState.ENDED)
        await one.tell()
        with pytest.raises(CapReached):
            await taken.hold(Amount(1, 0.05), "ann")
        await taken.hold(Amount(1, 0.02), "ann")


async def test_a_server_that_stops_gives_everything_back(url: str) -> None:
    async with approver(url) as one:
        key = await one.key(KeyCaps(dollars=0.1))
        await one.store.add_run(_row(key))
        async with approver(url) as other:
            shared_budget = await admitted(other, key)
            await shared_budget.hold(CENT, "ann")
            shared_budget.settle(CENT, CENT)
            await other.key_budgets.close()
        assert await one.journal.query(lambda connection: promised(connection, key.id)) == (nanodollars(0.01), 10)


async def test_a_server_that_was_taken_for_dead_comes_back_under_another_name(one: Desk) -> None:
    key = await one.key(KeyCaps(dollars=0.05))
    shared_budget = await admitted(one, key)
    await shared_budget.hold(CENT, "ann")
    shared_budget.settle(CENT, CENT)
    await one.tell()
    one.key_budgets.forget()
    late = one.key_budgets.budget_of_key(key.id)  # before it has its new name
    await one.store.join()
    again = await admitted(one, key)
    await again.hold(Amount(1, 0.03), "ann")
    again.settle(Amount(1, 0.03), Amount(1, 0.03))
    with pytest.raises(CapReached):
        await again.hold(Amount(1, 0.02), "ann")
    late.settle(Amount(), CENT)  # it is nobody's any more
    assert (await one.used(key))[0].used.dollars == nanodollars(0.04)


async def test_a_store_that_is_away_is_asked_in_vain_and_nothing_is_held(one: Desk, path: Path) -> None:
    key = await one.key(KeyCaps(dollars=0.1))
    shared_budget = await admitted(one, key)
    with behind(path) as connection:
        connection.execute("ALTER TABLE grants RENAME TO away")
    with pytest.raises(Exception, match="journal"):
        await shared_budget.hold(Amount(1, 0.09), "ann")
    with behind(path) as connection:
        connection.execute("ALTER TABLE away RENAME TO grants")
    await shared_budget.hold(Amount(1, 0.1), "ann")


@pytest.mark.parametrize("seed", range(4))
async def test_however_runs_and_servers_take_turns_no_cap_is_passed(url: str, seed: int) -> None:
    chance, counted, cap = random.Random(seed), Count(), 0.25
    async with approver(url) as one, approver(url) as two, approver(url) as three:
        key = await one.key(KeyCaps(dollars=cap, tokens_per_day=3000))
        async with asyncio.TaskGroup() as group:
            for each in (one, two, three):
                for _ in range(3):
                    shared_budget = each.key_budgets.budget_of_key(key.id)
                    group.create_task(spender(shared_budget, random.Random(chance.random()), counted, 12))
            watch = group.create_task(_watch(one, key, nanodollars(cap)))
            group.create_task(_rest(one, two))
        assert watch.result() == 20
        for each in (one, two, three):
            await each.tell()
        assert counted.refused
        assert counted.most <= cap + 1e-9
        used = (await one.used(key))[0].used
        assert abs(used.dollars - nanodollars(counted.dollars)) <= 1000
        assert used.dollars <= nanodollars(cap)


async def _watch(one: Desk, key: Key, cap: int) -> int:
    looks = 20
    for _ in range(looks):
        dollars, tokens = await one.journal.query(lambda connection: promised(connection, key.id))
        assert dollars <= cap
        assert tokens <= 3000
        await asyncio.sleep(0.01)
    return looks


async def _rest(*desks: Desk) -> None:
    for _ in range(5):
        await asyncio.sleep(0.02)
        for each in desks:
            await each.key_budgets.return_unused()


def _row(key: Key) -> ServedRun:
    return ServedRun(
        run="r1", tenant=key.tenant, key=key.id, api="chat", model="m", conductor="fixed:single", created=1.0
    )


@pytest.mark.postgres
async def test_usage_is_counted_alike_as_statements_and_as_a_function(postgres: Cluster) -> None:
    told = []
    for count in (lambda work: work, lambda work: lambda connection: work(connection)):
        async with open_journal(postgres.fresh()) as journal:
            for used in (
                {("k", "2027-01-15"): BudgetAmount(5, 7, 1), ("other", "2027-01-15"): BudgetAmount(0, 1, 1)},
                {("k", "2027-01-15"): BudgetAmount(9, 7, 2), ("k", "2027-01-16"): BudgetAmount(2**60, 3, 1)},
                {("k", ""): BudgetAmount(1, 1, 1)},
            ):
                for member in ("one", "two"):
                    journal.add_work(count(UsageCount(member, used)))
                    await journal.flush()
            told.append(await journal.query(read_spend))
    assert told[0] == told[1]
    assert told[0][0] == DailySpend("k", "", BudgetAmount(2 * (9 + 2**60 + 1), 2 * 11, 2 * 4))
