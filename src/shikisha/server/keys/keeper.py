"""Keeps the keys: issues them, finds whose one is, takes them back.

Invariants: what was revoked in this process opens nothing from then on, and what was revoked elsewhere (another server,
the command line) nothing after a second; a store that cannot be asked opens nothing. Every change is a row of the
audit, in the same transaction. Deliberately absent: budgets (`purses`), what a door answers (`doors`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import token_hex
from time import monotonic, time

from sqlalchemy import Connection

import shikisha.server.keys.rows as rows
import shikisha.server.keys.secret as secret
from shikisha.errors import ConfigError
from shikisha.server.keys.accounts import day_of
from shikisha.server.keys.audit import Act, acts, note
from shikisha.server.keys.database import Database
from shikisha.server.keys.fresh import Fresh
from shikisha.server.keys.guesses import Guesses
from shikisha.server.keys.key import Key, Refused, Wanted
from shikisha.server.keys.rows import Kept
from shikisha.server.keys.spend import Mended, mend_clock
from shikisha.server.principal import Scope

OPERATOR = "operator"  # the id of the key that the operator chose, and which no row can open
CONSOLE = "console"  # the actor of acts on the command line
_SHORTEST = 32  # characters of a key that somebody thought up


class Unusable(ConfigError):
    """A key to which that cannot be done."""


class UnknownKey(ConfigError):
    """No key has this id."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A key and its secret, which is told once."""

    key: Key
    secret: str


class KeyKeeper:
    """The keys of one database. `operator` is an admin key from the environment, which no row holds.

    `now` is Unix time; `clock` are seconds that never go back.
    """

    def __init__(
        self,
        database: Database,
        *,
        operator: str | None = None,
        now: Callable[[], float] = time,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if operator is not None and len(operator) < _SHORTEST:
            raise ConfigError(
                f"server.admin_key_env: the key has fewer than {_SHORTEST} characters, and can be guessed"
            )
        self.database = database
        self.now = now
        self._operator = None if operator is None else secret.digest(operator)
        self._nobody = secret.digest(token_hex())
        self.guesses = Guesses(clock)
        self._known: Fresh[Kept | None] = Fresh(self._ask, clock)

    async def find(self, presented: str) -> Key | Refused:
        """Return the key that was presented, or why it opens no door."""
        if self._operator is not None and secret.matches(presented, self._operator):
            return self._valid(await self._operators())
        own_id = secret.id_of(presented)
        kept = None if own_id is None else await self._known.get(own_id)
        if not secret.matches(presented, kept.hash if kept else self._nobody) or kept is None:
            return Refused.UNKNOWN
        return self._valid(kept.key)

    async def get(self, own_id: str) -> Key | None:
        """Return the key of this id, whatever became of it."""
        kept = await self._known.get(own_id)
        return kept.key if kept else None

    async def keys(self, tenant: str | None = None) -> list[Key]:
        """Return all keys, or a tenant's, oldest first."""
        return await self.database.query(lambda connection: rows.many(connection, tenant))

    async def issue(self, wanted: Wanted, by: str) -> Issued:
        """Issue a key; its secret is in the answer and nowhere else."""
        if wanted.expires is not None and not wanted.expires > self.now():
            raise Unusable("expires: that time has passed: the key would open nothing")
        own_id = secret.new_id()
        issued = secret.new_key(own_id)
        key = _key(own_id, wanted, self.now(), by)

        def work(connection: Connection) -> None:
            rows.add(connection, key, secret.digest(issued))
            note(connection, self._act(by, "key.issued", own_id, key.shown()))

        await self.database.write(work)
        self._known.drop(own_id)
        return Issued(key, issued)

    async def change(self, own_id: str, how: Callable[[Key], Key], by: str, action: str = "key.changed") -> Key:
        """Change a key by a function of what it is now; UnknownKey when there is none."""

        def work(connection: Connection) -> Kept:
            kept = _existing(connection, own_id)
            after = replace(how(kept.key), id=own_id)
            old, new = kept.key.shown(), after.shown()
            changed = {name: value for name, value in new.items() if value != old[name]}
            if changed:
                rows.change(connection, own_id, rows.columns(after))
                note(connection, self._act(by, action, own_id, changed))
            return Kept(after, kept.hash)

        return self._remember(own_id, await self.database.write(work)).key

    async def revoke(self, own_id: str, by: str) -> Key:
        """Take a key back: it opens nothing any more. A key that was revoked stays revoked since then."""

        if own_id == OPERATOR:
            raise Unusable("the operator's own key is taken back where it is configured")

        def revoked(key: Key) -> Key:
            return key if key.revoked is not None else replace(key, revoked=self.now())

        return await self.change(own_id, revoked, by, "key.revoked")

    async def rotate(self, own_id: str, by: str) -> Issued:
        """Give a key a new secret; the old one opens nothing any more, and what was used stays with the key."""
        issued = secret.new_key(own_id)

        def work(connection: Connection) -> Kept:
            kept = _existing(connection, own_id)
            if not kept.hash or kept.key.revoked is not None:
                raise Unusable(f"key {own_id} is {'revoked' if kept.hash else 'the operator’s own'}: issue another")
            rows.change(connection, own_id, {"hash": secret.digest(issued)})
            note(connection, self._act(by, "key.rotated", own_id, {}))
            return Kept(kept.key, secret.digest(issued))

        return Issued(self._remember(own_id, await self.database.write(work)).key, issued)

    async def bootstrap(self) -> str | None:
        """Return a fresh admin key where there is none and the operator named none: print it, once."""
        if self._operator is not None or await self.database.query(rows.any_key):
            return None
        own_id = secret.new_id()
        issued = secret.new_key(own_id)
        key = _key(own_id, Wanted("admin", scopes=frozenset(Scope)), self.now(), CONSOLE)

        def work(connection: Connection) -> bool:
            if rows.any_key(connection):  # another server was quicker
                return False
            rows.add(connection, key, secret.digest(issued))
            note(connection, self._act(CONSOLE, "key.issued", own_id, key.shown()))
            return True

        return issued if await self.database.write(work) else None

    async def mend_clock(self, own_id: str | None, by: str) -> list[Mended]:
        """Count what a key (None: every key) used on days that have not come yet as used today; UnknownKey: no key."""
        today = day_of(self.now())

        def work(connection: Connection) -> list[Mended]:
            if own_id is not None:
                _existing(connection, own_id)
            mended = mend_clock(connection, own_id, today)
            for each in mended:
                note(connection, self._act(by, "key.clock_mended", each.key, {"day": each.day, "counts_on": today}))
            return mended

        return await self.database.write(work)

    async def acts(self, before: int | None = None, limit: int = 100) -> "list[Act]":
        """Return the newest rows of the audit, or the newest before a number, newest first."""
        return await self.database.query(lambda connection: acts(connection, before, limit))

    async def note(self, actor: str, action: str, target: str, **details: object) -> None:
        """Add a row to the audit."""
        await self.database.write(lambda connection: note(connection, self._act(actor, action, target, details)))

    async def _ask(self, own_id: str) -> Kept | None:
        return await self.database.query(lambda connection: rows.one(connection, own_id))

    async def _operators(self) -> Key:
        """Return the operator's key; its row is there for its caps and what it used, and is opened by no secret."""
        kept = await self._known.get(OPERATOR)
        if kept is not None:
            return kept.key
        key = _key(OPERATOR, Wanted("operator", scopes=frozenset(Scope)), self.now(), OPERATOR)

        def work(connection: Connection) -> Kept:
            found = rows.one(connection, OPERATOR)
            if found is None:
                rows.add(connection, key, "")
            return found or Kept(key, "")

        return self._remember(OPERATOR, await self.database.write(work)).key

    def _valid(self, key: Key) -> Key | Refused:
        return key.refused(self.now()) or key

    def _act(self, by: str, action: str, target: str, details: "dict[str, object]") -> Act:
        return Act(self.now(), by, action, target, details)

    def _remember(self, own_id: str, kept: Kept) -> Kept:
        self._known.put(own_id, kept)
        return kept


def _key(own_id: str, wanted: Wanted, now: float, by: str) -> Key:
    return Key(
        own_id,
        wanted.name,
        wanted.tenant,
        wanted.scopes,
        now,
        by,
        wanted.workers,
        wanted.conductors,
        wanted.labels,
        wanted.expires,
        None,
        wanted.caps,
    )


def _existing(connection: Connection, own_id: str) -> Kept:
    kept = rows.one(connection, own_id, to_change=True)
    if kept is None:
        raise UnknownKey(f"there is no key {own_id!r}")
    return kept
