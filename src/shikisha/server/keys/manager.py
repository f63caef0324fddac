"""Issues, finds, changes and revokes keys; opens and closes the logins of the web pages.

Invariants: a key that this process revoked is refused at once, one that another process revoked after a second
(`FRESH_SECONDS`). When the database cannot be asked, no key is accepted. Every change writes an audit row in the same
transaction. A login is worth no more than its key: revoking the key ends it. A form counts only with the CSRF token
of its login. Wrong keys are rate-limited per address in bounded memory, to spare the log; a valid key is never
blocked.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from secrets import token_hex
from time import monotonic, time
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import Connection, insert, or_, select

import shikisha.server.keys.key as secret
import shikisha.server.keys.key_tables as rows
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.journal.records import note_rows, recorded
from shikisha.server.keys.grants import MendedUsage, day_of, mend_clock
from shikisha.server.keys.key import Key, KeyRefusal, KeyScope, KeySpec, Principal, hash_key
from shikisha.server.keys.key_tables import SESSIONS, AuditEntry, KeyDatabase, StoredKey, add_audit_entry, read_audit

T = TypeVar("T")
FRESH_SECONDS = 1.0  # seconds
_MAX_ENTRIES = 10_000


class _CacheLock(asyncio.Lock):
    """A lock that a weak dictionary can hold."""


class FreshCache(Generic[T]):
    """Remembers what `ask(name)` answered."""

    def __init__(self, ask: Callable[[str], Awaitable[T]], clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._turns: WeakValueDictionary[str, _CacheLock] = WeakValueDictionary()

    async def get(self, name: str) -> T:
        """Return the answer, asked for if need be."""
        known = self._known.get(name)
        if known is not None and self._young(known[0]):
            return known[1]
        async with self._turns.setdefault(name, _CacheLock()):
            known = self._known.get(name)
            if known is not None and self._young(known[0]):
                return known[1]
            asked = self._clock()
            answer = await self._ask(name)
            known = self._known.get(name)
            if known is not None and known[0] > asked:
                return known[1]
            self._put(name, asked, answer)
            return answer

    def put(self, name: str, answer: T) -> None:
        """Remember an answer that is known to be right from now on."""
        self._put(name, self._clock(), answer)

    def drop(self, name: str) -> None:
        """Forget an answer: the next one who asks gets a new one."""
        self._known.pop(name, None)

    def _young(self, at: float) -> bool:
        return 0 <= self._clock() - at < FRESH_SECONDS

    def _put(self, name: str, at: float, answer: T) -> None:
        self._known[name] = (at, answer)
        self._known.move_to_end(name)
        while len(self._known) > _MAX_ENTRIES:
            self._known.popitem(last=False)


_WRONG_KEY_BURST = 20.0  # wrong keys at once
_WRONG_KEYS_PER_SECOND = 1.0  # and then
_MAX_ADDRESSES = 10_000  # addresses


class WrongKeyLimiter:
    """Counts wrong keys by address, each with a bucket that empties with time."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wrong(self, address: str) -> float:
        """Count a wrong key; return the seconds after which this address may guess again, 0 when it still may."""
        level, now = self._level(address), self._clock()
        wait = max(0.0, (level + 1 - _WRONG_KEY_BURST) / _WRONG_KEYS_PER_SECOND)
        self._buckets[address] = (min(_WRONG_KEY_BURST, level + 1), now)
        self._buckets.move_to_end(address)
        while len(self._buckets) > _MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return wait

    def _level(self, address: str) -> float:
        level, at = self._buckets.get(address, (0.0, 0.0))
        return max(0.0, level - (self._clock() - at) * _WRONG_KEYS_PER_SECOND) if level else 0.0


OPERATOR_KEY = "operator"  # the id of the key that the operator chose, and which no row can open
CONSOLE_ACTOR = "console"  # the actor of acts on the command line
_MIN_OPERATOR_KEY = 32  # characters of a key that somebody thought up


class UnusableKey(ConfigError):
    """A key to which that cannot be done."""


class UnknownKey(ConfigError):
    """No key has this id."""


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key and its secret, which is shown once."""

    key: Key
    secret: str


class KeyManager:
    """The keys of one database. `operator` is an admin key from the environment, which no row holds.

    `now` is Unix time; `clock` are seconds that never go back.
    """

    def __init__(
        self,
        database: KeyDatabase,
        *,
        operator: str | None = None,
        now: Callable[[], float] = time,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if operator is not None and len(operator) < _MIN_OPERATOR_KEY:
            raise ConfigError(
                f"server.admin_key_env: the key has fewer than {_MIN_OPERATOR_KEY} characters, and can be guessed"
            )
        self.database = database
        self.now = now
        self._operator = None if operator is None else secret.hash_key(operator)
        self._nobody = secret.hash_key(token_hex())
        self.wrong_keys = WrongKeyLimiter(clock)
        self._known: FreshCache[StoredKey | None] = FreshCache(self._ask, clock)

    async def find(self, presented: str) -> Key | KeyRefusal:
        """Return the presented key, or the reason why it is refused."""
        if self._operator is not None and secret.matches_hash(presented, self._operator):
            return self._valid(await self.own(OPERATOR_KEY, KeySpec("operator", scopes=frozenset(KeyScope))))
        own_id = secret.read_key_id(presented)
        kept = None if own_id is None else await self._known.get(own_id)
        if not secret.matches_hash(presented, kept.hash if kept else self._nobody) or kept is None:
            return KeyRefusal.UNKNOWN
        return self._valid(kept.key)

    async def get(self, own_id: str) -> Key | None:
        """Return the key of this id, whatever became of it."""
        kept = await self._known.get(own_id)
        return kept.key if kept else None

    async def keys(self, tenant: str | None = None) -> list[Key]:
        """Return all keys, or a tenant's, oldest first."""
        return await self.database.query(lambda connection: rows.read_keys(connection, tenant))

    async def issue(self, wanted: KeySpec, by: str) -> IssuedKey:
        """Issue a key; its secret is in the answer and nowhere else."""
        if wanted.expires is not None and not wanted.expires > self.now():
            raise UnusableKey("expires: that time has passed: the key would open nothing")
        own_id = secret.new_id()
        issued = secret.new_key(own_id)
        key = _new_key(own_id, wanted, self.now(), by)

        @recorded
        def work(connection: Connection) -> None:
            rows.add_key(connection, key, secret.hash_key(issued))
            add_audit_entry(connection, self._act(by, "key.issued", own_id, key.shown()))

        await self.database.write(work)
        self._known.drop(own_id)
        return IssuedKey(key, issued)

    async def change(self, own_id: str, how: Callable[[Key], Key], by: str, action: str = "key.changed") -> Key:
        """Change a key by a function of what it is now; UnknownKey when there is none."""

        @recorded
        def work(connection: Connection) -> StoredKey:
            kept = _existing_key(connection, own_id)
            after = replace(how(kept.key), id=own_id)
            old, new = kept.key.shown(), after.shown()
            changed = {name: value for name, value in new.items() if value != old[name]}
            if changed:
                rows.change_key(connection, own_id, rows.key_columns(after))
                add_audit_entry(connection, self._act(by, action, own_id, changed))
            if after.revoked is not None:
                rows.forget_devices(connection, own_id)
            return StoredKey(after, kept.hash)

        return self._remember(own_id, await self.database.write(work)).key

    async def revoke(self, own_id: str, by: str) -> Key:
        """Revoke a key; a key that was revoked before keeps its time of revocation."""

        if own_id == OPERATOR_KEY:
            raise UnusableKey("the operator's own key is taken back where it is configured")

        def revoked(key: Key) -> Key:
            return key if key.revoked is not None else replace(key, revoked=self.now())

        return await self.change(own_id, revoked, by, "key.revoked")

    async def rotate(self, own_id: str, by: str) -> IssuedKey:
        """Replace a key's secret; the old one stops working, and the key keeps its spending."""
        issued = secret.new_key(own_id)

        @recorded
        def work(connection: Connection) -> StoredKey:
            kept = _existing_key(connection, own_id)
            if not kept.hash or kept.key.revoked is not None:
                raise UnusableKey(f"key {own_id} is {'revoked' if kept.hash else 'the operator’s own'}: issue another")
            rows.change_key(connection, own_id, {"hash": secret.hash_key(issued)})
            add_audit_entry(connection, self._act(by, "key.rotated", own_id, {}))
            return StoredKey(kept.key, secret.hash_key(issued))

        return IssuedKey(self._remember(own_id, await self.database.write(work)).key, issued)

    async def bootstrap(self) -> str | None:
        """Return a fresh admin key where there is none and the operator named none: print it, once."""
        if self._operator is not None or await self.database.query(rows.has_issued_key):
            return None
        own_id = secret.new_id()
        issued = secret.new_key(own_id)
        key = _new_key(own_id, KeySpec("admin", scopes=frozenset(KeyScope)), self.now(), CONSOLE_ACTOR)

        @recorded
        def work(connection: Connection) -> bool:
            if rows.has_issued_key(connection):  # another server was quicker
                return False
            rows.add_key(connection, key, secret.hash_key(issued))
            add_audit_entry(connection, self._act(CONSOLE_ACTOR, "key.issued", own_id, key.shown()))
            return True

        return issued if await self.database.write(work) else None

    async def mend_clock(self, own_id: str | None, by: str) -> list[MendedUsage]:
        """Count what a key (None: every key) used on days that have not come yet as used today; UnknownKey: no key."""
        today = day_of(self.now())

        @recorded
        def work(connection: Connection) -> list[MendedUsage]:
            if own_id is not None:
                _existing_key(connection, own_id)
            mended = mend_clock(connection, own_id, today)
            for each in mended:
                add_audit_entry(
                    connection, self._act(by, "key.clock_mended", each.key, {"day": each.day, "counts_on": today})
                )
            return mended

        return await self.database.write(work)

    async def acts(self, before: int | None = None, limit: int = 100) -> "list[AuditEntry]":
        """Return the newest rows of the audit, or the newest before a number, newest first."""
        return await self.database.query(lambda connection: read_audit(connection, before, limit))

    async def note(self, actor: str, action: str, target: str, **details: object) -> None:
        """Add a row to the audit."""
        await self.database.write(recorded(partial(add_audit_entry, act=self._act(actor, action, target, details))))

    async def _ask(self, own_id: str) -> StoredKey | None:
        return await self.database.query(lambda connection: rows.read_key(connection, own_id))

    async def own(self, own_id: str, wanted: KeySpec) -> Key:
        """Return a key of the server's own; its row is there for its caps and what it used, and no secret opens it."""
        kept = await self._known.get(own_id)
        if kept is not None:
            return kept.key
        key = _new_key(own_id, wanted, self.now(), own_id)

        @recorded
        def work(connection: Connection) -> StoredKey:
            found = rows.read_key(connection, own_id)
            if found is None:
                rows.add_key(connection, key, "")
            return found or StoredKey(key, "")

        return self._remember(own_id, await self.database.write(work)).key

    def _valid(self, key: Key) -> Key | KeyRefusal:
        return key.refused(self.now()) or key

    def _act(self, by: str, action: str, target: str, details: "dict[str, object]") -> AuditEntry:
        return AuditEntry(self.now(), by, action, target, details)

    def _remember(self, own_id: str, kept: StoredKey) -> StoredKey:
        self._known.put(own_id, kept)
        return kept


def _new_key(own_id: str, wanted: KeySpec, now: float, by: str) -> Key:
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


def _existing_key(connection: Connection, own_id: str) -> StoredKey:
    kept = rows.read_key(connection, own_id, to_change=True)
    if kept is None:
        raise UnknownKey(f"there is no key {own_id!r}")
    return kept


LOGIN_HOURS = 12.0
_MAX_LOGIN_HOURS = 2 * LOGIN_HOURS  # a login that ends later was made by a clock that was ahead
_MAX_TOKEN_LENGTH = 200


@dataclass(frozen=True, slots=True)
class NewLogin:
    """A login: the cookie's value, the token that its forms must bear, and when it ends (Unix time)."""

    token: str
    csrf: str
    expires: float


def csrf_token(token: str) -> str:
    """Return the token that the forms of this login bear."""
    return hmac.new(token.encode(), b"shikisha csrf", sha256).hexdigest()


def is_csrf_token(token: str, presented: str) -> bool:
    """Whether a form of this login bears its token."""
    return hmac.compare_digest(csrf_token(token).encode(), presented.encode("utf-8", "replace"))


class LoginSessions:
    """The logins of one database."""

    def __init__(self, manager: KeyManager) -> None:
        self._manager = manager
        self._fresh: FreshCache[tuple[str, float] | None] = FreshCache(self._ask)

    async def open_session(self, key: Key, hours: float = LOGIN_HOURS) -> NewLogin:
        """Log the holder of a key in; the login ends no later than the key. Logins that are over are swept away."""
        now, token = self._manager.now(), secrets.token_urlsafe(32)
        ends = min(now + hours * 3600, key.expires if key.expires is not None else now + hours * 3600)

        @recorded
        def work(connection: Connection) -> None:
            ahead = SESSIONS.c.expires > now + _MAX_LOGIN_HOURS * 3600
            rows.delete_recorded(connection, SESSIONS, or_(SESSIONS.c.expires <= now, ahead))
            connection.execute(insert(SESSIONS), {"hash": hash_key(token), "key": key.id, "expires": ends})
            note_rows(connection, "sessions", [(hash_key(token),)])

        await self._manager.database.write(work)
        return NewLogin(token, csrf_token(token), ends)

    async def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a login; None when it is unknown or has ended, or its key is not valid anymore."""
        if not token or len(token) > _MAX_TOKEN_LENGTH:
            return None
        found = await self._fresh.get(hash_key(token))
        if found is None or not 0 < found[1] - self._manager.now() <= _MAX_LOGIN_HOURS * 3600:
            return None
        key = await self._manager.get(found[0])
        return None if key is None or key.refused(self._manager.now()) else key.principal()

    async def close_session(self, token: str) -> None:
        """Log out."""
        name = hash_key(token)

        @recorded
        def work(connection: Connection) -> None:
            rows.delete_recorded(connection, SESSIONS, SESSIONS.c.hash == name)

        await self._manager.database.write(work)
        self._fresh.put(name, None)

    async def _ask(self, name: str) -> tuple[str, float] | None:
        def work(connection: Connection) -> tuple[str, float] | None:
            columns = select(SESSIONS.c.key, SESSIONS.c.expires).where(SESSIONS.c.hash == name)
            row = connection.execute(columns).one_or_none()
            return None if row is None else (row.key, row.expires)

        return await self._manager.database.query(work)
