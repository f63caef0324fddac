"""What the store has to say with the journal's next commit: new runs and marks, one statement for all of a kind.

Invariant: the last mark of a run stands, and each batch says the same however often it is tried. Deliberately absent:
anything that could be refused by the store (a run that is there already is left as it is).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, Insert, bindparam, update

from shikisha.journal.statements import Statement
from shikisha.journal.tables import SERVED

_MARK = update(SERVED).where(SERVED.c.run == bindparam("of_run"))
_STATES, _FIGURES = (
    ("state", "owner", "updated"),
    (
        "status",
        "tokens",
        "dollars",
        "uncertain_tokens",
        "uncertain_dollars",
    ),
)
_SAID: Mapping[tuple[str, ...], Statement] = {
    names: Statement.of(_MARK.values({name: bindparam(f"new_{name}") for name in names}))
    for names in (_STATES, _FIGURES, _STATES + _FIGURES)
}


def _adding(dialect: str) -> Insert:
    """Return the statement that adds served runs unless they are there."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(SERVED).on_conflict_do_nothing()
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(SERVED).on_conflict_do_nothing()


ADDING = Statement(_adding)


@dataclass(slots=True)
class Marks:
    """New rows, and by run the states and figures that changed."""

    rows: list[dict[str, object]] = field(default_factory=list)
    states: dict[str, dict[str, object]] = field(default_factory=dict)
    figures: dict[str, dict[str, object]] = field(default_factory=dict)

    def __call__(self, connection: Connection) -> None:
        """Say it all, in the order of the runs' names, so that nobody waits for each other crosswise."""
        if self.rows:
            ADDING.say(connection, self.rows)
        both = self.states.keys() & self.figures.keys()  # a run's end says both, and one statement is half of two
        whole = {run: self.states[run] | self.figures[run] for run in both}
        rest = [{run: row for run, row in part.items() if run not in both} for part in (self.states, self.figures)]
        for names, said in zip((_STATES + _FIGURES, _STATES, _FIGURES), (whole, *rest), strict=True):
            if said:
                _SAID[names].say(connection, [said[run] for run in sorted(said)])
