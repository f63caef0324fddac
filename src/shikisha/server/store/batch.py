"""What the store has to say with the journal's next commit: new runs and marks, one statement for all of a kind.

Invariant: the last mark of a run stands, and each batch says the same however often it is tried. Deliberately absent:
anything that could be refused by the store (a run that is there already is left as it is).
"""

from dataclasses import dataclass, field
from functools import cache

from sqlalchemy import Connection, Insert, bindparam, update

from shikisha.journal.tables import SERVED

_MARK = update(SERVED).where(SERVED.c.run == bindparam("of_run"))
_STATE = _MARK.values({name: bindparam(f"new_{name}") for name in ("state", "owner", "updated")})
_FIGURES = _MARK.values({name: bindparam(f"new_{name}") for name in ("status", "tokens", "dollars")})


@cache
def adding(dialect: str) -> Insert:
    """Return the statement that adds served runs unless they are there."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(SERVED).on_conflict_do_nothing()
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(SERVED).on_conflict_do_nothing()


@dataclass(slots=True)
class Marks:
    """New rows, and by run the states and figures that changed."""

    rows: list[dict[str, object]] = field(default_factory=list)
    states: dict[str, dict[str, object]] = field(default_factory=dict)
    figures: dict[str, dict[str, object]] = field(default_factory=dict)

    def __call__(self, connection: Connection) -> None:
        """Say it all, in the order of the runs' names, so that nobody waits for each other crosswise."""
        if self.rows:
            connection.execute(adding(connection.dialect.name), self.rows)
        for statement, said in ((_STATE, self.states), (_FIGURES, self.figures)):
            if said:
                connection.execute(statement, [said[run] for run in sorted(said)])
