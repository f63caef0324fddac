"""The browsers of a key's holder that want to be told of what waits: stored per key, erased with it.

Invariant: a subscription is given out only while its key is valid and may approve; `ops.push` seals and sends.
"""

from hashlib import sha256

from sqlalchemy import ColumnElement, Connection, func, insert, select

from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal.records import note_rows, recorded
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import KeyScope
from shikisha.server.keys.key_tables import PUSH_SUBSCRIPTIONS, delete_recorded
from shikisha.server.keys.manager import KeyManager

_MAX_DEVICES = 20  # of one key


@dataclass(frozen=True, slots=True)
class PushSubscription:
    """A browser that wants to be told, and the keys that seal messages to it."""

    hash: str
    key: str
    endpoint: str
    p256dh: bytes = field(repr=False)
    auth: bytes = field(repr=False)


class PushSubscriptions:
    """The subscriptions of one database."""

    def __init__(self, manager: KeyManager) -> None:
        self._manager = manager

    async def add(self, own_id: str, endpoint: str, p256dh: bytes, auth: bytes) -> None:
        """Keep a browser of this key; one that another key had is this one's now."""
        row = {"hash": _endpoint_hash(endpoint), "key": own_id, "endpoint": endpoint, "p256dh": p256dh, "auth": auth}
        new = {**row, "created": self._manager.now()}

        @recorded
        def work(connection: Connection) -> bool:
            delete_recorded(connection, PUSH_SUBSCRIPTIONS, PUSH_SUBSCRIPTIONS.c.hash == row["hash"])
            held = select(func.count()).where(PUSH_SUBSCRIPTIONS.c.key == own_id)
            if connection.execute(held).scalar_one() >= _MAX_DEVICES:
                return False
            connection.execute(insert(PUSH_SUBSCRIPTIONS), new)
            note_rows(connection, "push_subscriptions", [(row["hash"],)])
            return True

        if not await self._manager.database.write(work):
            raise ApiError(409, f"a key is told on at most {_MAX_DEVICES} devices", "too_many_devices")
        await self._manager.note(own_id, "push.added", own_id)

    async def remove(self, own_id: str, endpoint: str) -> None:
        """Forget a browser of this key."""
        await self._delete(PUSH_SUBSCRIPTIONS.c.hash == _endpoint_hash(endpoint), PUSH_SUBSCRIPTIONS.c.key == own_id)

    async def drop(self, hashed: str) -> None:
        """Forget a browser that is gone."""
        await self._delete(PUSH_SUBSCRIPTIONS.c.hash == hashed)

    async def _delete(self, *where: ColumnElement[bool]) -> None:
        gone = recorded(lambda connection: delete_recorded(connection, PUSH_SUBSCRIPTIONS, *where))
        await self._manager.database.write(gone)

    async def for_tenant(self, tenant: str) -> list[PushSubscription]:
        """Return the browsers of people who may approve what this tenant's runs ask."""
        columns = [PUSH_SUBSCRIPTIONS.c[name] for name in ("hash", "key", "endpoint", "p256dh", "auth")]
        asked = select(*columns)
        kept = await self._manager.database.query(
            lambda found: [PushSubscription(*row) for row in found.execute(asked)]
        )
        found = []
        for each in kept:
            key = await self._manager.get(each.key)
            if key is None or key.refused(self._manager.now()) or not key.principal().may(KeyScope.APPROVE):
                await self.drop(each.hash)
            elif key.principal().owns(tenant):
                found.append(each)
        return found


def _endpoint_hash(endpoint: str) -> str:
    return sha256(endpoint.encode("utf-8", "replace")).hexdigest()
