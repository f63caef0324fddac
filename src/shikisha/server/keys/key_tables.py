"""The database tables of keys, logins, devices, spending, grants and the audit log, with queries of keys and the audit.

Invariants: the tables hold only hashes of keys, logins and codes. A revoked key is kept, since it says who ran what. An
audit row is written in the transaction of the change itself, is never changed, and holds no secret. What runs did is
in the journal, and so is a hash of every row here (`journal.records`).
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from shikisha.core.fast_dataclass import dataclass
from shikisha.journal.records import note_rows
from shikisha.journal.schema import METADATA
from shikisha.server.keys.key import Key, KeyCaps, KeyScope

_AUTO_NUMBER = BigInteger().with_variant(Integer, "sqlite")
ALL_DAYS = ""  # the day of the row that counts all days

KEYS = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("scopes", Text, nullable=False),  # this and the next three are JSON
    Column("workers", Text),
    Column("conductors", Text),
    Column("labels", Text, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
    Column("created", Double, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("dollars", BigInteger),  # caps; money is in nanodollars everywhere
    Column("tokens", BigInteger),
    Column("requests", BigInteger),
    Column("dollars_per_day", BigInteger),
    Column("tokens_per_day", BigInteger),
    Column("requests_per_day", BigInteger),
    Column("requests_per_minute", BigInteger),
    Column("runs_at_once", BigInteger),
)

SPEND = Table(  # what a key used on a UTC day, or on all days
    "spend",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("dollars", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
)

GRANTS = Table(  # what a server was granted of a key's budget on a day, and how much of that is in `spend` by now
    "grants",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("dollars", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("used_dollars", BigInteger, nullable=False),
    Column("used_tokens", BigInteger, nullable=False),
    Column("used_requests", BigInteger, nullable=False),
)
Index("grants_member", GRANTS.c.member)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("key", Text, nullable=False),
    Column("expires", Double, nullable=False),
)
Index("sessions_key", SESSIONS.c.key)

PASSKEYS = Table(  # the public half of what a person's device signs with
    "passkeys",
    METADATA,
    Column("id", Text, primary_key=True),  # the credential's id, base64url
    Column("key", Text, nullable=False),
    Column("site", Text, nullable=False),  # the host for which it was made (WebAuthn's RP id)
    Column("public_key", LargeBinary, nullable=False),
    Column("sign_count", _AUTO_NUMBER, nullable=False),
    Column("name", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("used", Double),
)
Index("passkeys_key", PASSKEYS.c.key)

CODES = Table(  # what counts once: challenges of passkeys, links that log a device in; only hashes
    "codes",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("purpose", Text, nullable=False),
    Column("key", Text, nullable=False),  # empty: of whoever proves to be somebody
    Column("site", Text, nullable=False),
    Column("nonce", LargeBinary, nullable=False),
    Column("expires", Double, nullable=False),
)
Index("codes_key", CODES.c.key, CODES.c.purpose)

PUSH_SUBSCRIPTIONS = Table(  # where a key's devices want to be told, and how messages to them are sealed
    "push_subscriptions",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("key", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("p256dh", LargeBinary, nullable=False),
    Column("auth", LargeBinary, nullable=False),
    Column("created", Double, nullable=False),
)
Index("push_subscriptions_key", PUSH_SUBSCRIPTIONS.c.key)

AUDIT = Table(
    "audit",
    METADATA,
    Column("number", _AUTO_NUMBER, primary_key=True),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("details", Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An administrative act: its time (Unix time), the acting key's id, the action, its target and details."""

    at: float
    actor: str
    action: str
    target: str
    details: Mapping[str, object]
    number: int = 0


def add_audit_entry(connection: Connection, act: AuditEntry) -> None:
    """Add a row, in a work that is `recorded`."""
    row = {"at": act.at, "actor": act.actor, "action": act.action, "target": act.target}
    added = insert(AUDIT).values(**row, details=json.dumps(dict(act.details), sort_keys=True))
    note_rows(connection, "audit", [tuple(connection.execute(added.returning(AUDIT.c.number)).one())])


def read_audit(connection: Connection, before: int | None, limit: int) -> list[AuditEntry]:
    """Return the newest acts, or the newest before a number, newest first."""
    where = [] if before is None else [AUDIT.c.number < before]
    found = connection.execute(select(AUDIT).where(*where).order_by(AUDIT.c.number.desc()).limit(limit))
    return [AuditEntry(row.at, row.actor, row.action, row.target, json.loads(row.details), row.number) for row in found]


T = TypeVar("T")


class KeyDatabase(Protocol):
    """Where the journal is."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run and commit it, alone or not at all."""
        ...

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run it; it sees what is committed."""
        ...


def forget_devices(connection: Connection, own_id: str) -> None:
    """Delete what a key's devices left here: passkeys, subscriptions, open codes."""
    for table in (PASSKEYS, CODES, PUSH_SUBSCRIPTIONS):
        delete_recorded(connection, table, table.c.key == own_id)


def delete_recorded(connection: Connection, table: Table, *where: ColumnElement[bool]) -> int:
    """Delete rows of a table whose rows are chained, in a work that is `recorded`; return how many."""
    gone = connection.execute(delete(table).where(*where).returning(*table.primary_key.columns)).all()
    note_rows(connection, table.name, map(tuple, gone))
    return len(gone)


_LIST_COLUMNS = ("workers", "conductors", "labels")


class StoredKey(NamedTuple):
    """A key and the hash of what opens it; an empty hash is of nothing."""

    key: Key
    hash: str


def read_key(connection: Connection, own_id: str, *, to_change: bool = False) -> StoredKey | None:
    """Return the key of this id; `to_change` locks its row."""
    if not (own_id.isascii() and own_id.isalnum()):  # as all ids are, and as any store can be asked
        return None
    asked = select(KEYS).where(KEYS.c.id == own_id)
    row = connection.execute(asked.with_for_update() if to_change else asked).one_or_none()
    return None if row is None else _stored_key(row)


def read_keys(connection: Connection, tenant: str | None = None) -> list[Key]:
    """Return all keys, or a tenant's, oldest first."""
    where = [] if tenant is None else [KEYS.c.tenant == tenant]
    return [
        _stored_key(row).key
        for row in connection.execute(select(KEYS).where(*where).order_by(KEYS.c.created, KEYS.c.id))
    ]


def add_key(connection: Connection, key: Key, kept: str) -> None:
    """Add a key with the hash of what opens it."""
    connection.execute(insert(KEYS), {**key_columns(key), "id": key.id, "hash": kept, "created": key.created})
    note_rows(connection, "keys", [(key.id,)])


def change_key(connection: Connection, own_id: str, columns: Mapping[str, object]) -> None:
    """Change columns of a key."""
    connection.execute(update(KEYS).where(KEYS.c.id == own_id).values(dict(columns)))
    note_rows(connection, "keys", [(own_id,)])


def has_issued_key(connection: Connection) -> bool:
    """Whether there is any key at all that was issued."""
    return connection.execute(select(KEYS.c.id).where(KEYS.c.hash != "").limit(1)).first() is not None


def key_columns(key: Key) -> dict[str, object]:
    """Return what may change of a key, as columns."""
    return {
        "name": key.name,
        "tenant": key.tenant,
        "scopes": json.dumps(sorted(key.scopes)),
        "workers": None if key.workers is None else json.dumps(key.workers),
        "conductors": None if key.conductors is None else json.dumps(key.conductors),
        "labels": json.dumps(key.labels),
        "expires": key.expires,
        "revoked": key.revoked,
        "created_by": key.created_by,
        **key.caps.row(),
    }


def _stored_key(row: Row[tuple[object, ...]]) -> StoredKey:
    found = row._mapping
    names = {name: None if found[name] is None else tuple(json.loads(found[name])) for name in _LIST_COLUMNS}
    key = Key(
        id=found["id"],
        name=found["name"],
        tenant=found["tenant"],
        scopes=frozenset(map(KeyScope, json.loads(found["scopes"]))),
        created=found["created"],
        created_by=found["created_by"],
        workers=names["workers"],
        conductors=names["conductors"],
        labels=names["labels"] or (),
        expires=found["expires"],
        revoked=found["revoked"],
        caps=KeyCaps.of({name: found[name] for name in KeyCaps.__dataclass_fields__}),
    )
    return StoredKey(key, found["hash"])
