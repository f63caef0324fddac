"""The tables of a journal, as the migrations leave them (a test compares the two).

Invariant: rows of `events` are only ever added, those of `bodies` too but for erasure; the one row of `head` says how
many events there are and what the last one's hash is, and whoever appends holds that row. `members` and `served` are
the servers' own (who is alive, who performs which run, what lists show) and may lag behind: a run is a fold over its
events. Deliberately absent: what a run came to, anywhere but in its events.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    literal_column,
    text,
)

METADATA = MetaData()
_COUNT = BigInteger().with_variant(Integer, "sqlite")  # in SQLite only an INTEGER key is the row's own number

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", _COUNT, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("data", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
Index("events_run", EVENTS.c.run, EVENTS.c.seq)
STARTED = EVENTS.c.kind == literal_column("'run.started'")
Index("events_started", EVENTS.c.seq)  # of started runs only; saying so here would import every dialect named

BODIES = Table(
    "bodies",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("run", Text),  # the first that referred to it; NULL: of before this was noted
    Column("shared", Boolean, nullable=False, server_default=false()),  # whether another did too
)

HEAD = Table(
    "head",
    METADATA,
    Column("count", _COUNT, nullable=False),
    Column("hash", Text, nullable=False),
)

APPLIED = Table(  # the last batch of works alone that each writer stored: a retry looks whether it was
    "applied",
    METADATA,
    Column("writer", Text, primary_key=True),
    Column("batch", _COUNT, nullable=False),
    Column("at", Double, nullable=False),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("alive_until", Double, nullable=False),  # by the store's own clock
    Column("began", Double, nullable=False),
    Column("place", Text, nullable=False),
    Column("ended", Text),  # how (`store.blame`); NULL: it lives, or nobody has judged its end yet
)

SERVED = Table(
    "served",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("owner", Text),
    Column("state", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("api", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("conductor", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("wire", Text, nullable=False),
    Column("idempotency", Text),
    Column("request_hash", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("excerpt", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("detached", Boolean, nullable=False),
    Column("status", Text, nullable=False),
    Column("tokens", _COUNT, nullable=False),
    Column("dollars", Double),
    Column("stopping", Boolean, nullable=False),  # someone wants its owner to stop it
    Column("erased", Double),
    Column("ends", Integer, nullable=False, server_default=text("0")),  # unclean ends of servers that performed it
    Column("strikes", Integer, nullable=False, server_default=text("0")),  # those for which it was the only suspect
    Column("uncertain_tokens", _COUNT, nullable=False, server_default="0"),
    Column("uncertain_dollars", Double, nullable=False, server_default="0"),
)
Index("served_created", SERVED.c.created, SERVED.c.run)
Index("served_tenant", SERVED.c.tenant, SERVED.c.created, SERVED.c.run)
Index("served_key", SERVED.c.key, SERVED.c.created, SERVED.c.run)
Index("served_state", SERVED.c.state, SERVED.c.created, SERVED.c.run)
Index("served_once", SERVED.c.key, SERVED.c.idempotency, unique=True)
