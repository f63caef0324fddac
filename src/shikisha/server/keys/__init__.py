"""Virtual keys: who may ask, for what, and within which budget; stored in the journal's database.

Reading order: `key` (what a key is), `key_tables` (SQL), `manager` (issue, find, revoke, logins), `grants` (a
server's share of a key's budget), `budgets` (a run's view of it), `admin_routes` (`/keys`, `/budgets`, `/admin`).
Invariant 8: a secret is shown once, to whoever requested it, and only its hash is stored. The rest of the server and
`cli` import it.
"""

from shikisha.server.keys.key import Key, KeyCaps, KeyRefusal, KeySpec
from shikisha.server.keys.key_tables import AuditEntry
from shikisha.server.keys.manager import IssuedKey, KeyManager, LoginSessions, NewLogin

__all__ = [
    "AuditEntry",
    "IssuedKey",
    "Key",
    "KeyCaps",
    "KeyManager",
    "KeyRefusal",
    "KeySpec",
    "LoginSessions",
    "NewLogin",
]
