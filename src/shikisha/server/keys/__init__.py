"""Virtual keys: who may ask, for what, and within which budget; kept beside the journal, in the same database.

Reading order: `secret` (what a key looks like), `key` (what is known of one), `tables`, `rows` (SQL), `keeper` (issue,
find, revoke), `sessions` (logins of the pages), `guesses` (wrong keys), `audit` (who changed what). Invariant 8: a
secret is shown once, to whoever asked for it, and only its hash is kept. Deliberately absent: what a key's runs use
(`server.purses`).
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
