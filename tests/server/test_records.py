"""Governance records are in the hash chain: no edit of their tables, made behind the server's back, goes unnoticed."""

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from budgets import NOON, Desk, admitted, approver
from journals import finished, keep, started
from postgres import Cluster
from sqlalchemy import Connection, TextClause, text
from stores import order
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.budget import Amount
from shikisha.journal import Verification, open_journal
from shikisha.journal.records import check_records
from shikisha.journal.schema import upgrade_tables
from shikisha.server.keys import KeyCaps, KeyManager, KeySpec
from shikisha.server.keys.key import Key, KeyScope
from shikisha.server.keys.manager import LoginSessions
from shikisha.server.keys.passkeys import Passkeys
from shikisha.server.keys.push_subscriptions import PushSubscriptions
from shikisha.server.store import ServedState

CENT = Amount(10, 0.01)
TABLES = ("audit", "keys", "spend", "grants", "served", "sessions", "passkeys", "codes", "push_subscriptions")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


def _execute(statement: TextClause, values: Mapping[str, object], at: Connection) -> None:
    at.execute(statement, values).close()


async def worked(desk: Desk, again: str = "") -> tuple[Key, Key]:
    """Let two tenants' keys spend, log in, and serve two runs each; one more key is revoked."""
    keys = [
        (await desk.keys.issue(KeySpec(name, name, frozenset({KeyScope.RUN}), caps=KeyCaps(dollars=9.0)), "tests")).key
        for name in ("acme", "blue")
    ]
    for place, key in enumerate(keys):
        for number in range(2):
            run = f"{key.name}-{number}{again}"
            once = f"once-{number}" if number else None
            await desk.store.add_run(order(run, 1.0 + place, key=key.id, tenant=key.tenant, idempotency=once))
            desk.store.mark(run, ServedState.ENDED)
            budget = await admitted(desk, key)
            await budget.hold(CENT, "ann")
            budget.settle(CENT, CENT)
            await keep(desk.journal, [started(run), finished(run)])
        await LoginSessions(desk.keys).open_session(key)
        await Passkeys(desk.keys).open_link(key, "tests")
        await PushSubscriptions(desk.keys).add(key.id, f"https://push.example/{key.id}", b"p", b"a")
        await desk.journal.write(partial(_execute, text(PASSKEY), {"key": key.id}))
    gone = await desk.key()
    await desk.keys.revoke(gone.id, "tests")
    await desk.tell()
    await desk.journal.index()
    return keys[0], keys[1]


PASSKEY = (
    "INSERT INTO passkeys (id, key, site, public_key, sign_count, name, created) "
    "VALUES ('pass-' || :key, :key, 'localhost', '', 1, 'phone', 1.5)"
)
EDITS: Mapping[str, str] = {
    "audit: all rows go": "DELETE FROM audit",
    "audit: the last row goes": "DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)",
    "audit: a row in the middle goes": "DELETE FROM audit WHERE number = (SELECT min(number) + 2 FROM audit)",
    "audit: the actor is another": "UPDATE audit SET actor = 'somebody' WHERE action = 'key.revoked'",
    "audit: the action is another": "UPDATE audit SET action = 'key.changed' WHERE action = 'key.revoked'",
    "audit: the target is another": "UPDATE audit SET target = 'x' WHERE action = 'key.revoked'",
    "audit: the time is another": "UPDATE audit SET at = at - 1",
    "audit: the details are others": "UPDATE audit SET details = '{}'",
    "audit: a row is added": "INSERT INTO audit (at, actor, action, target, details) VALUES (1, 'a', 'b', 'c', '{}')",
    "audit: rows change places": (
        "UPDATE audit SET number = -number WHERE number <= (SELECT min(number) + 1 FROM audit);"
        "UPDATE audit SET number = 3 + number WHERE number < 0"
    ),
    "keys: made admin": """UPDATE keys SET scopes = '["admin", "run"]' WHERE name = 'acme'""",
    "keys: no longer revoked": "UPDATE keys SET revoked = NULL",
    "keys: revoked": "UPDATE keys SET revoked = 1 WHERE name = 'acme'",
    "keys: never expires": "UPDATE keys SET expires = 9999999999 WHERE name = 'acme'",
    "keys: another tenant's": "UPDATE keys SET tenant = 'blue' WHERE name = 'acme'",
    "keys: a larger cap": "UPDATE keys SET dollars = 99000000000 WHERE name = 'acme'",
    "keys: no cap": "UPDATE keys SET dollars = NULL",
    "keys: a rate": "UPDATE keys SET requests_per_minute = 1",
    "keys: workers": """UPDATE keys SET workers = '["b"]'""",
    "keys: labels": """UPDATE keys SET labels = '["secret"]'""",
    "keys: opened by another secret": "UPDATE keys SET hash = 'abc' WHERE name = 'acme'",
    "keys: a secret opens another's": "UPDATE keys SET hash = (SELECT k.hash FROM keys k WHERE k.name = 'blue')",
    "keys: one goes": "DELETE FROM keys WHERE name = 'acme'",
    "keys: one is added": (
        "INSERT INTO keys (id, hash, name, tenant, scopes, labels, created, created_by) "
        """VALUES ('new', 'h', 'n', 't', '["admin"]', '[]', 1, 'x')"""
    ),
    "spend: zeroed": "UPDATE spend SET dollars = 0, tokens = 0, requests = 0",
    "spend: a nanodollar less": "UPDATE spend SET dollars = dollars - 1 WHERE day = ''",
    "spend: a token more": "UPDATE spend SET tokens = tokens + 1 WHERE day <> ''",
    "spend: a request less": "UPDATE spend SET requests = requests - 1 WHERE day <> ''",
    "spend: all rows go": "DELETE FROM spend",
    "spend: a day goes": "DELETE FROM spend WHERE day <> ''",
    "spend: another day": "UPDATE spend SET day = '2030-01-01' WHERE day <> ''",
    "spend: a day is added": "INSERT INTO spend VALUES ('acme', '2030-01-01', 0, 0, 0)",
    "spend: a later day": "INSERT INTO spend SELECT id, '2030-01-01', 0, 0, 0 FROM keys WHERE name = 'acme'",
    "grants: more": "UPDATE grants SET dollars = dollars + 1",
    "grants: less is used": "UPDATE grants SET used_dollars = 0",
    "grants: fewer requests": "UPDATE grants SET used_requests = used_requests - 1",
    "grants: all rows go": "DELETE FROM grants",
    "grants: one is added": "INSERT INTO grants SELECT key, day, 'me', 1, 1, 1, 0, 0, 0 FROM grants",
    "grants: another server's": "UPDATE grants SET member = 'me'",
    "served: another tenant's": "UPDATE served SET tenant = 'blue' WHERE run = 'acme-0'",
    "served: tenants are swapped": "UPDATE served SET tenant = CASE tenant WHEN 'blue' THEN 'acme' ELSE 'blue' END",
    "served: another key's": "UPDATE served SET key = 'k' WHERE run = 'acme-1'",
    "served: another time": "UPDATE served SET created = created + 86400",
    "served: another conductor": "UPDATE served SET conductor = 'x' WHERE run = 'blue-0'",
    "served: one goes": "DELETE FROM served WHERE run = 'acme-0'",
    "served: one is added": (
        "CREATE TEMPORARY TABLE copied AS SELECT * FROM served WHERE run = 'acme-0';"
        "UPDATE copied SET run = 'mine';INSERT INTO served SELECT * FROM copied"
    ),
    "served: runs change places": (
        "UPDATE served SET run = 'x' WHERE run = 'acme-0';UPDATE served SET run = 'acme-0' WHERE run = 'blue-0';"
        "UPDATE served SET run = 'blue-0' WHERE run = 'x'"
    ),
    "index: another tenant's": "UPDATE runs SET tenant = 'blue' WHERE run = 'acme-0'",
    "index: another key's": "UPDATE runs SET key = 'k' WHERE run = 'acme-0'",
    "index: found by another tenant": "UPDATE run_texts SET scope = (SELECT max(scope) FROM run_texts)",
    "sessions: another key's": "UPDATE sessions SET key = (SELECT max(id) FROM keys)",
    "sessions: a login is added": "INSERT INTO sessions SELECT 'hash', id, 9e9 FROM keys WHERE name = 'acme'",
    "sessions: all are logged out": "DELETE FROM sessions",
    "codes: a link is added": (
        "INSERT INTO codes SELECT 'hash', purpose, key, site, nonce, expires FROM codes WHERE site = '' LIMIT 1"
    ),
    "codes: a link is another key's": "UPDATE codes SET key = (SELECT max(id) FROM keys)",
    "push: elsewhere": "UPDATE push_subscriptions SET endpoint = 'https://evil.example'",
    "push: one goes": "DELETE FROM push_subscriptions",
}


class Undone(Exception):
    """What verification says of an edit that is taken back."""


async def problems_of(desk: Desk, *statements: str) -> tuple[str, ...]:
    """Return what verification says after these statements; the store is as before."""

    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))
        raise Undone(*check_records(connection).problems)

    try:
        await desk.journal.write(work)
    except Undone as said:
        return said.args
    raise AssertionError("it was not undone")


async def test_no_edit_of_a_table_goes_unnoticed(url: str) -> None:
    async with approver(url, lambda: NOON) as desk:
        await worked(desk)
        await desk.journal.write(lambda at: at.execute(text("DELETE FROM passkeys")).close())  # written by the test
        found = await desk.journal.verify()
        assert (found.problems, found.records_since) == ((), 0)
        assert not await problems_of(desk)
        unnoticed = [name for name, edit in EDITS.items() if not await problems_of(desk, *edit.split(";"))]
        assert (unnoticed, len(EDITS) >= 40) == ([], True)


async def test_a_table_that_is_put_back_to_an_older_copy_is_noticed(url: str) -> None:
    async with approver(url, lambda: NOON) as desk:
        acme, blue = await worked(desk)
        await desk.journal.write(lambda at: at.execute(text("DELETE FROM passkeys")).close())
        for name in TABLES:
            copy = text(f"CREATE TABLE old_{name} AS SELECT * FROM {name}")  # noqa: S608
            await desk.journal.write(partial(_execute, copy, {}))
        await worked(desk, "-again")
        await desk.journal.write(lambda at: at.execute(text("DELETE FROM passkeys")).close())
        await desk.keys.change(acme.id, lambda key: replace(key, caps=KeyCaps(dollars=1.0)), "tests")
        await desk.keys.rotate(blue.id, "tests")
        await desk.key_budgets.close()
        await LoginSessions(desk.keys).open_session(acme)
        assert not await problems_of(desk)
        noticed = [
            name
            for name in TABLES
            if await problems_of(desk, f"DELETE FROM {name}", f"INSERT INTO {name} SELECT * FROM old_{name}")  # noqa: S608
        ]
        assert noticed == [name for name in TABLES if name != "passkeys"]


async def test_a_passkey_that_nobody_added_is_noticed(url: str) -> None:
    async with approver(url, lambda: NOON) as desk:
        await worked(desk)
        assert all("passkeys: row pass-" in problem for problem in await problems_of(desk))
        assert len(await problems_of(desk)) == 2


async def test_a_store_from_before_is_chained_as_it_is_found(url: str) -> None:
    async with approver(url, lambda: NOON) as desk:
        acme, _ = await worked(desk)

        def forget(connection: Connection) -> None:
            connection.execute(text("DELETE FROM events"))
            connection.execute(text(f"UPDATE head SET count = 0, hash = '{'0' * 64}'"))  # noqa: S608 - our own zeros
            connection.execute(text("UPDATE alembic_version SET version_num = '0008'"))
            connection.execute(text("DROP TABLE views"))
            for column in (
                "runs DROP COLUMN judged",
                "run_days DROP COLUMN judged",
                "run_days DROP COLUMN judged_good",
            ):
                connection.execute(text(f"ALTER TABLE {column}"))
            upgrade_tables(connection)

        await desk.journal.write(forget)
        found = await desk.journal.verify()
        assert (found.problems, found.records_since) == ((), 0)
        assert found.records >= len(TABLES)
        await desk.key_budgets.close()
        budget = await admitted(desk, acme)
        await budget.hold(CENT, "ann")
        budget.settle(CENT, CENT)
        await desk.tell()
        assert (await desk.journal.verify()).ok
        assert await problems_of(desk, EDITS["spend: a nanodollar less"])
        assert await problems_of(desk, EDITS["served: another tenant's"])


def test_the_command_finds_it_too_in_processes_and_after_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"

    async def made() -> Verification:
        async with open_journal(str(file)) as journal:
            keys = KeyManager(journal)
            await keys.issue(KeySpec("acme", "acme"), "tests")
            found = await journal.verify()
            await keys.issue(KeySpec("blue", "blue"), "tests")
            return found

    found = asyncio.run(made())
    commands = [[], ["--since", f"{found.count}:{found.hash}"], ["--processes", "2"]]
    verify = ["journal", "verify", "--journal", str(file)]
    for more in commands:
        said = CliRunner().invoke(app, [*verify, *more])
        assert (said.exit_code, "2 changes of records from row 0 on" in said.stdout) == (0, True), said.output
    with closing(sqlite3.connect(file)) as behind:
        behind.execute("UPDATE keys SET tenant = 'blue' WHERE tenant = 'acme'")
        behind.commit()
    for more in commands:
        said = CliRunner().invoke(app, [*verify, *more])
        assert (said.exit_code, "keys: row" in said.output) == (6, True), said.output
