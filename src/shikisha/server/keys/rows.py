"""Keys as rows: each function is one transaction's work, or a part of one.

Invariant: a key's hash leaves this module only to be compared. Deliberately absent: deleting keys; a revoked one still
says who ran what.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, Row, insert, select, update

from shikisha.server.keys.key import Key, KeyCaps
from shikisha.server.keys.tables import KEYS
from shikisha.server.principal import Scope

_LISTS = ("workers", "conductors", "labels")


class Kept(NamedTuple):
    """A key and the hash of what opens it; an empty hash is of nothing."""

    key: Key
    hash: str


def one(connection: Connection, own_id: str, *, to_change: bool = False) -> Kept | None:
    """Return the key of this id; nobody else changes it meanwhile if it is asked for to be changed."""
    if not (own_id.isascii() and own_id.isalnum()):  # as all ids are, and as any store can be asked
        return None
    asked = select(KEYS).where(KEYS.c.id == own_id)
    row = connection.execute(asked.with_for_update() if to_change else asked).one_or_none()
    return None if row is None else _kept(row)


def many(connection: Connection, tenant: str | None = None) -> list[Key]:
    """Return all keys, or a tenant's, oldest first."""
    where = [] if tenant is None else [KEYS.c.tenant == tenant]
    return [
        _kept(row).key for row in connection.execute(select(KEYS).where(*where).order_by(KEYS.c.created, KEYS.c.id))
    ]


def add(connection: Connection, key: Key, kept: str) -> None:
    """Add a key with the hash of what opens it."""
    connection.execute(insert(KEYS), {**columns(key), "id": key.id, "hash": kept, "created": key.created})


def change(connection: Connection, own_id: str, columns: Mapping[str, object]) -> None:
    """Change columns of a key."""
    connection.execute(update(KEYS).where(KEYS.c.id == own_id).values(dict(columns)))


def any_key(connection: Connection) -> bool:
    """Whether there is any key at all that was issued."""
    return connection.execute(select(KEYS.c.id).where(KEYS.c.hash != "").limit(1)).first() is not None


def columns(key: Key) -> dict[str, object]:
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


def _kept(row: Row[tuple[object, ...]]) -> Kept:
    found = row._mapping
    names = {name: None if found[name] is None else tuple(json.loads(found[name])) for name in _LISTS}
    key = Key(
        id=found["id"],
        name=found["name"],
        tenant=found["tenant"],
        scopes=frozenset(map(Scope, json.loads(found["scopes"]))),
        created=found["created"],
        created_by=found["created_by"],
        workers=names["workers"],
        conductors=names["conductors"],
        labels=names["labels"] or (),
        expires=found["expires"],
        revoked=found["revoked"],
        caps=KeyCaps.of({name: found[name] for name in KeyCaps.__dataclass_fields__}),
    )
    return Kept(key, found["hash"])
