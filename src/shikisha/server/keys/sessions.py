"""Logins of the pages: a cookie's token stands for a key, for a while.

Invariants: a token is 256 bits of chance, of which only a hash is kept; a login is worth no more than its key is now,
so revoking the key ends it; a form counts only with the token that was bound to this very login (`csrf_of`).
Deliberately absent: cookies (the pages set them), and passwords (a key is what one logs in with).
"""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection, delete, insert, or_, select

from shikisha.server.keys.fresh import Fresh
from shikisha.server.keys.keeper import KeyKeeper
from shikisha.server.keys.key import Key
from shikisha.server.keys.secret import digest
from shikisha.server.keys.tables import SESSIONS
from shikisha.server.principal import Principal

HOURS = 12.0
_LONGEST_HOURS = 2 * HOURS  # a login that ends later was made by a clock that was ahead
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Opened:
    """A login: the cookie's value, the token that its forms must bear, and when it ends (Unix time)."""

    token: str
    csrf: str
    expires: float


def csrf_of(token: str) -> str:
    """Return the token that the forms of this login bear."""
    return hmac.new(token.encode(), b"shikisha csrf", sha256).hexdigest()


def csrf_holds(token: str, presented: str) -> bool:
    """Whether a form of this login bears its token."""
    return hmac.compare_digest(csrf_of(token).encode(), presented.encode("utf-8", "replace"))


class Sessions:
    """The logins of one database."""

    def __init__(self, keeper: KeyKeeper) -> None:
        self._keeper = keeper
        self._fresh: Fresh[tuple[str, float] | None] = Fresh(self._ask)

    async def open_session(self, key: Key, hours: float = HOURS) -> Opened:
        """Log the holder of a key in; the login ends no later than the key. Logins that are over are swept away."""
        now, token = self._keeper.now(), secrets.token_urlsafe(32)
        ends = min(now + hours * 3600, key.expires if key.expires is not None else now + hours * 3600)

        def work(connection: Connection) -> None:
            ahead = SESSIONS.c.expires > now + _LONGEST_HOURS * 3600
            connection.execute(delete(SESSIONS).where(or_(SESSIONS.c.expires <= now, ahead)))
            connection.execute(insert(SESSIONS), {"hash": digest(token), "key": key.id, "expires": ends})

        await self._keeper.database.write(work)
        return Opened(token, csrf_of(token), ends)

    async def principal_of(self, token: str) -> Principal | None:
        """Return whose login this is; None when it is none, or over, or its key opens nothing any more."""
        if not token or len(token) > _LONGEST:
            return None
        found = await self._fresh.get(digest(token))
        if found is None or not 0 < found[1] - self._keeper.now() <= _LONGEST_HOURS * 3600:
            return None
        key = await self._keeper.get(found[0])
        return None if key is None or key.refused(self._keeper.now()) else key.principal()

    async def close_session(self, token: str) -> None:
        """Log out."""
        name = digest(token)

        def work(connection: Connection) -> None:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.hash == name))

        await self._keeper.database.write(work)
        self._fresh.put(name, None)

    async def _ask(self, name: str) -> tuple[str, float] | None:
        def work(connection: Connection) -> tuple[str, float] | None:
            columns = select(SESSIONS.c.key, SESSIONS.c.expires).where(SESSIONS.c.hash == name)
            row = connection.execute(columns).one_or_none()
            return None if row is None else (row.key, row.expires)

        return await self._keeper.database.query(work)
