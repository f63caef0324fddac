"""Keys: issued once, found by their secret, refused when they are wrong, over or taken back."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from journals import behind
from sqlalchemy import text

from shikisha.core.errors import ConfigError, JournalUnavailable
from shikisha.journal import Journal, open_journal
from shikisha.server.keys import Key, KeyCaps, KeyManager, KeyRefusal, KeySpec, LoginSessions
from shikisha.server.keys.key import (
    KEY_PREFIX,
    KeyScope,
    cap_nanodollars,
    dollars_of,
    hash_key,
    nanodollars,
    new_key,
    read_key_id,
)
from shikisha.server.keys.manager import FRESH_SECONDS, FreshCache, is_csrf_token

ALL = KeySpec(
    "Ann's key",
    "acme",
    frozenset({KeyScope.RUN, KeyScope.APPROVE}),
    ("ann", "bob"),
    ("fixed:single",),
    ("confidential",),
    4e9,
    KeyCaps(1.5, 1000, 10, 0.25, 500, 5, 60, 2),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[Journal]:
    async with open_journal(str(path)) as opened:
        yield opened


@pytest.fixture
def keeper(journal: Journal) -> KeyManager:
    return KeyManager(journal)


async def test_a_key_is_found_by_its_secret_with_all_that_it_allows(keeper: KeyManager) -> None:
    issued = await keeper.issue(ALL, "boss")
    assert issued.secret.startswith(KEY_PREFIX)
    assert await keeper.find(issued.secret) == issued.key
    assert issued.key.wanted() == ALL
    assert (issued.key.created_by, issued.key.principal().tenant) == ("boss", "acme")
    assert await keeper.keys() == await keeper.keys("acme") == [issued.key]
    assert await keeper.keys("other") == []


@pytest.mark.parametrize(
    "how", ["", "sk-", "sk-shikisha-", "sk-shikisha-abc", "sk-shikisha-abc-", "schlüssel", "x" * 9999]
)
async def test_what_is_no_key_opens_nothing(keeper: KeyManager, how: str) -> None:
    assert await keeper.find(how) is KeyRefusal.UNKNOWN


async def test_an_id_with_another_secret_opens_nothing(keeper: KeyManager) -> None:
    issued = await keeper.issue(KeySpec("a"), "boss")
    assert await keeper.find(new_key(issued.key.id)) is KeyRefusal.UNKNOWN
    assert await keeper.find(issued.secret[:-1]) is KeyRefusal.UNKNOWN
    assert await keeper.find(f"{issued.secret}x") is KeyRefusal.UNKNOWN
    assert await keeper.find(hash_key(issued.secret)) is KeyRefusal.UNKNOWN


async def test_a_revoked_key_opens_nothing_at_once(keeper: KeyManager) -> None:
    issued = await keeper.issue(KeySpec("a"), "boss")
    assert isinstance(await keeper.find(issued.secret), Key)
    first = await keeper.revoke(issued.key.id, "boss")
    assert await keeper.find(issued.secret) is KeyRefusal.REVOKED
    assert await keeper.revoke(issued.key.id, "boss") == first


async def test_what_another_process_revokes_opens_nothing_a_second_later(journal: Journal) -> None:
    clock = [0.0]
    keeper = KeyManager(journal, clock=lambda: clock[0])
    issued = await keeper.issue(KeySpec("a"), "boss")
    assert isinstance(await keeper.find(issued.secret), Key)
    await KeyManager(journal).revoke(issued.key.id, "cli")
    clock[0] = 1.0
    assert await keeper.find(issued.secret) is KeyRefusal.REVOKED


async def test_a_store_that_is_away_opens_nothing(journal: Journal, path: Path) -> None:
    keeper = KeyManager(journal)
    issued = await keeper.issue(KeySpec("a"), "boss")
    with behind(path) as connection:
        connection.execute("ALTER TABLE keys RENAME TO away")
    with pytest.raises(JournalUnavailable):
        await keeper.find(issued.secret)


async def test_many_who_ask_at_once_cost_one_look() -> None:
    asked = list[str]()

    async def ask(name: str) -> str:
        asked.append(name)
        await asyncio.sleep(0)
        return name

    clock = [0.0]
    fresh = FreshCache(ask, lambda: clock[0])
    assert await asyncio.gather(*(fresh.get("a") for _ in range(9))) == ["a"] * 9
    assert asked == ["a"]
    clock[0] += FRESH_SECONDS
    await fresh.get("a")
    assert asked == ["a", "a"]


async def test_a_key_expires(journal: Journal) -> None:
    now = [100.0]
    keeper = KeyManager(journal, now=lambda: now[0])
    issued = await keeper.issue(KeySpec("a", expires=200.0), "boss")
    assert isinstance(await keeper.find(issued.secret), Key)
    now[0] = 200.0
    assert await keeper.find(issued.secret) is KeyRefusal.EXPIRED


@pytest.mark.parametrize("expires", [99.0, 100.0, -1.0, float("nan")])
async def test_a_key_that_would_open_nothing_is_not_issued(journal: Journal, expires: float) -> None:
    keeper = KeyManager(journal, now=lambda: 100.0)
    with pytest.raises(ConfigError, match="that time has passed"):
        await keeper.issue(KeySpec("a", expires=expires), "boss")
    assert await keeper.keys() == []


async def test_a_rotated_key_has_a_new_secret_only(keeper: KeyManager) -> None:
    issued = await keeper.issue(ALL, "boss")
    again = await keeper.rotate(issued.key.id, "boss")
    assert again.key == issued.key
    assert await keeper.find(issued.secret) is KeyRefusal.UNKNOWN
    assert await keeper.find(again.secret) == issued.key
    await keeper.revoke(issued.key.id, "boss")
    with pytest.raises(ConfigError, match="revoked"):
        await keeper.rotate(issued.key.id, "boss")


async def test_caps_are_changed_and_every_change_is_in_the_audit(keeper: KeyManager) -> None:
    issued = await keeper.issue(KeySpec("a"), "boss")
    changed = await keeper.change(issued.key.id, lambda key: replace(key, caps=KeyCaps(dollars=2.0)), "boss")
    assert changed.caps.dollars == 2.0
    assert await keeper.get(issued.key.id) == changed
    with pytest.raises(ConfigError, match="there is no key 'nobody'"):
        await keeper.revoke("nobody", "boss")
    told = [(act.actor, act.action, act.target) for act in await keeper.acts()]
    assert told == [("boss", "key.changed", issued.key.id), ("boss", "key.issued", issued.key.id)]
    assert (await keeper.acts(limit=1))[0].details == {"caps": changed.shown()["caps"]}


async def test_only_hashes_are_kept(keeper: KeyManager, path: Path) -> None:
    issued = await keeper.issue(ALL, "boss")
    rotated = await keeper.rotate(issued.key.id, "boss")
    opened = await LoginSessions(keeper).open_session(issued.key)
    with behind(path) as connection:
        dump = "\n".join(connection.iterdump())
    for secret in (issued.secret, rotated.secret, opened.token, opened.csrf):
        assert secret[-20:] not in dump
    assert hash_key(rotated.secret) in dump


async def test_the_first_server_on_a_store_without_keys_makes_one_admin_key(keeper: KeyManager) -> None:
    secret = await keeper.bootstrap()
    assert secret is not None
    found = await keeper.find(secret)
    assert isinstance(found, Key)
    assert found.principal().may(KeyScope.ADMIN)
    assert await keeper.bootstrap() is None


async def test_the_operators_key_opens_everything_and_no_row_does_so_in_its_name(journal: Journal, path: Path) -> None:
    chosen = "chosen-by-the-operator-and-long-enough"
    keeper = KeyManager(journal, operator=chosen)
    assert await keeper.bootstrap() is None
    found = await keeper.find(chosen)
    assert isinstance(found, Key)
    assert found.principal().may(KeyScope.ADMIN)
    assert await KeyManager(journal).find(chosen) is KeyRefusal.UNKNOWN
    with behind(path) as connection:
        assert chosen not in "\n".join(connection.iterdump())
        assert connection.execute("SELECT hash FROM keys").fetchall() == [("",)]
    with pytest.raises(ConfigError, match="where it is configured"):
        await keeper.revoke("operator", "boss")
    with pytest.raises(ConfigError, match="guessed"):
        KeyManager(journal, operator="short")


async def test_a_login_lasts_as_long_as_its_key(journal: Journal) -> None:
    now = [100.0]
    keeper = KeyManager(journal, now=lambda: now[0])
    sessions = LoginSessions(keeper)
    issued = await keeper.issue(KeySpec("a", expires=1000.0), "boss")
    opened = await sessions.open_session(issued.key)
    assert opened.expires == 1000.0
    assert await sessions.principal_of(opened.token) == issued.key.principal()
    assert await sessions.principal_of(opened.token[:-1]) is None
    await keeper.revoke(issued.key.id, "boss")
    assert await sessions.principal_of(opened.token) is None


async def test_a_login_ends_when_it_is_closed_and_by_itself(journal: Journal) -> None:
    now = [100.0]
    keeper = KeyManager(journal, now=lambda: now[0])
    sessions = LoginSessions(keeper)
    key = (await keeper.issue(KeySpec("a"), "boss")).key
    first, second = await sessions.open_session(key), await sessions.open_session(key, hours=1)
    await sessions.close_session(first.token)
    assert await sessions.principal_of(first.token) is None
    assert await sessions.principal_of(second.token) is not None
    now[0] += 3600
    assert await sessions.principal_of(second.token) is None


async def test_a_login_that_a_clock_far_ahead_made_is_over(journal: Journal) -> None:
    now = [366 * 86400.0]
    keeper = KeyManager(journal, now=lambda: now[0])
    sessions = LoginSessions(keeper)
    opened = await sessions.open_session((await keeper.issue(KeySpec("a"), "boss")).key)
    assert await sessions.principal_of(opened.token) is not None
    now[0] = 100.0
    assert await sessions.principal_of(opened.token) is None


async def test_a_form_counts_with_the_token_of_its_own_login_only(keeper: KeyManager) -> None:
    sessions, key = LoginSessions(keeper), (await keeper.issue(KeySpec("a"), "boss")).key
    one, other = await sessions.open_session(key), await sessions.open_session(key)
    assert is_csrf_token(one.token, one.csrf)
    assert not is_csrf_token(one.token, other.csrf)
    assert not is_csrf_token(one.token, "")


async def test_the_audit_is_read_in_pages(journal: Journal, keeper: KeyManager) -> None:
    for number in range(5):
        await keeper.note("boss", "run.erased", f"r{number}", bodies=number)
    newest = await keeper.acts(limit=2)
    assert [act.target for act in newest] == ["r4", "r3"]
    assert [act.target for act in await keeper.acts(newest[-1].number, 2)] == ["r2", "r1"]
    assert await journal.query(lambda connection: connection.execute(text("SELECT count(*) FROM audit")).scalar()) == 5


@pytest.mark.parametrize("caps", [{"dollars": -1.0}, {"dollars": float("nan")}, {"tokens": -1}, {"dollars": 1e30}])
def test_a_cap_that_is_none_is_refused(caps: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="expected a number from 0"):
        KeyCaps(**caps)  # type: ignore[arg-type]  # from a table of cases


def test_money_is_rounded_against_the_spender() -> None:
    assert (nanodollars(1e-10), cap_nanodollars(1e-10)) == (1, 0)
    assert (nanodollars(0.1), cap_nanodollars(0.1)) == (10**8, 10**8)
    assert dollars_of(nanodollars(0.3)) == 0.3


def test_an_id_is_read_from_a_key_only() -> None:
    assert read_key_id(new_key("abc")) == "abc"
    assert read_key_id("sk-other-abc-def") is None
