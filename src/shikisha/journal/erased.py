"""What stands in the place of erased texts, wherever they are read.

Invariant: everything that a run wrote before its last `bodies.erased` counts as erased for it, even where the store
still has the text for another run; what stands for it says so and is never taken for a text, and what programs read
(plans, the parts of a task) stays readable to them. Deliberately absent: erasing (`erasing`).
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from time import gmtime, strftime

from sqlalchemy import Connection, select

from shikisha.errors import JournalTampered
from shikisha.events import KINDS, BodiesErased, PlanProposed, QuestionAsked, QuestionKind
from shikisha.journal.codec import references
from shikisha.journal.tables import EVENTS
from shikisha.plan import Plan, Step

_AT_ONCE = 500  # values in an IN list
_READ_BY_PROGRAMS = frozenset(
    {"config", "history", "attachments", "exchanges", "tools", "answer_schema", "options", "calls"}
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A run's last erasure: its place in the journal, its time, and by hash what remains of each plan."""

    seq: int
    at: float
    plans: Mapping[str, str]

    @property
    def sign(self) -> str:
        """What is read in the place of a text."""
        return sign(self.at)


def sign(at: float) -> str:
    """Return what is read in the place of a text that was erased then."""
    return f"[erased {strftime('%Y-%m-%d', gmtime(at))}]"


def erasures(connection: Connection, runs: Collection[str]) -> dict[str, Erasure]:
    """Return the last erasure of each of these runs that was erased."""
    names, told = sorted(runs), list[tuple[int, str, float, str]]()
    for start in range(0, len(names), _AT_ONCE):
        some = EVENTS.c.run.in_(names[start : start + _AT_ONCE])
        columns = (EVENTS.c.seq, EVENTS.c.run, EVENTS.c.at, EVENTS.c.data)
        found = select(*columns).where(some, EVENTS.c.kind == BodiesErased.kind).order_by(EVENTS.c.seq)
        told += [(seq, run, at, data) for seq, run, at, data in connection.execute(found)]
    return last_of(told)


def last_of(told: Iterable[tuple[int, str, float, str]]) -> dict[str, Erasure]:
    """Return each run's last erasure, of all erasures by place: their places, runs, times and data."""
    found: dict[str, Erasure] = {}
    for seq, run, at, data in told:
        try:
            plans = {**(found[run].plans if run in found else {}), **json.loads(data).get("plans", {})}
        except (ValueError, TypeError, AttributeError) as error:
            raise JournalTampered(f"event {seq} of run {run}: it makes no event: {error!r}") from error
        found[run] = Erasure(seq, at, plans)
    return found


def stand_ins(erasure: Erasure, kind: str, data: str) -> dict[str, str]:
    """Return by hash what stands for each text of an event."""
    referred = references(kind, data)
    stand = dict.fromkeys(referred.values(), erasure.sign)
    for name in _READ_BY_PROGRAMS & referred.keys():
        stand[referred[name]] = _default(kind, name)
    if kind == PlanProposed.kind:
        stand[referred["plan"]] = erasure.plans.get(referred["plan"]) or Plan().dumps()
    if kind == QuestionAsked.kind and json.loads(data).get("asks") == QuestionKind.TOOLS:
        stand[referred["prompt"]] = "[]"
    return stand


def remains(plan: str, at: float) -> str:
    """Return a plan without its words: who was asked, and who saw what."""
    steps = Plan.loads(plan).steps
    return Plan(tuple(Step(sign(at), step.worker, step.access) for step in steps)).dumps()


def _default(kind: str, name: str) -> str:
    return next(str(field.default) for field in fields(KINDS[kind]) if field.name == name)
