"""The tables of keys, beside the journal's: the keys, what they used, what servers were granted, logins, the audit.

Invariants: of keys and logins only hashes are kept; what a key used, and what each server may still use of its budget,
add up to no more than its caps (`server.purses`). Deliberately absent: secrets, and anything of a run.
"""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, Table, Text

from shikisha.journal.tables import METADATA

_COUNT = BigInteger().with_variant(Integer, "sqlite")
TOTAL = ""  # the day of the row that counts all days

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

AUDIT = Table(
    "audit",
    METADATA,
    Column("number", _COUNT, primary_key=True),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("details", Text, nullable=False),
)
