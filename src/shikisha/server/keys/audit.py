"""Who changed what: a row for each administrative act, written in the transaction of the act itself.

Invariant: a row is added and never changed, and holds no secret: whoever writes one names what was changed, not what
opens it. Deliberately absent: runs (their journal is their audit trail).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from shikisha.server.keys.tables import AUDIT


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody did: when (Unix time), by which key's id, to what, and how."""

    at: float
    actor: str
    action: str
    target: str
    details: Mapping[str, object]
    number: int = 0


def note(connection: Connection, act: Act) -> None:
    """Add a row."""
    row = {"at": act.at, "actor": act.actor, "action": act.action, "target": act.target}
    connection.execute(insert(AUDIT), {**row, "details": json.dumps(dict(act.details), sort_keys=True)})


def acts(connection: Connection, before: int | None, limit: int) -> list[Act]:
    """Return the newest acts, or the newest before a number, newest first."""
    where = [] if before is None else [AUDIT.c.number < before]
    found = connection.execute(select(AUDIT).where(*where).order_by(AUDIT.c.number.desc()).limit(limit))
    return [Act(row.at, row.actor, row.action, row.target, json.loads(row.details), row.number) for row in found]
