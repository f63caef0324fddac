"""What is made of stored events, whichever way they were read: their texts in place, erasures heeded, runs in a list.

Invariants: a body that is gone, or is not what its hash says, is JournalTampered and never an empty text. Everything
that a run wrote before its last `bodies.erased` counts as erased for it, even where the store still has the text for
another run: a placeholder stands for it that is never taken for a text, and what programs read (plans, the parts of a
task) stays readable to them. A RunOverview is made from a folded run, so a list says the same as `runs show`.
Deliberately absent: reading (`queries` by SQLAlchemy, `plain_sqlite` without it).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from time import gmtime, strftime
from typing import NamedTuple

from shikisha.core.budget import ZERO, Amount
from shikisha.core.errors import JournalTampered, UnknownRun
from shikisha.core.events import (
    EVENT_CLASSES,
    AnswerGraded,
    BodiesErased,
    EffectKept,
    EffectUndone,
    Event,
    PlanProposed,
    QuestionAsked,
    QuestionKind,
    RewardGiven,
    RunFinished,
    RunStarted,
    RunStatus,
)
from shikisha.core.fast_dataclass import MISSING, dataclass, field, fields
from shikisha.core.messages import encode_ascii_json
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.journal.codec import (
    body_hash,
    body_references,
    body_text,
    decode_event,
    list_references,
    split_bundle,
)

CURRENT_REVISION = "0011"  # of the tables: what `schema` makes, and what is read without it
_READ_BY_PROGRAMS = frozenset(
    {"config", "history", "attachments", "exchanges", "tools", "answer_schema", "options", "as_sent", "calls"}
    | {"domain", "labels", "task_id", "tool_choice", "beside", "found", "withheld"}
)


class EventRow(NamedTuple):
    """An event as it is stored."""

    seq: int
    run: str
    kind: str
    at: float
    data: str
    hash: str


def expand_rows(stored: Iterable[Sequence[object]]) -> list[EventRow]:
    """Return the events of stored rows, in order; those of one row share its place and its hash."""
    rows = []
    for seq, run, kind, at, data, hashed in map(EventRow._make, stored):
        if str(data).startswith("[["):
            rows += [EventRow(seq, run, *each, hashed) for each in split_bundle(kind, at, data)]
        else:
            rows.append(EventRow(seq, run, kind, at, data, hashed))
    return rows


@dataclass(frozen=True, slots=True)
class Erasure:
    """A run's last erasure: its place in the journal, its time, and by hash what remains of each plan."""

    seq: int
    at: float
    plans: Mapping[str, str]


def erased_marker(at: float) -> str:
    """Return the placeholder of a text that was erased at this Unix time."""
    return f"[erased {strftime('%Y-%m-%d', gmtime(at))}]"


def last_erasures(rows: Iterable["EventRow"]) -> dict[str, Erasure]:
    """Return each run's last erasure, of these `bodies.erased` events in the order written."""
    erasures: dict[str, Erasure] = {}
    for row in rows:
        known = erasures[row.run].plans if row.run in erasures else {}
        try:
            plans = {**known, **json.loads(row.data).get("plans", {})}
        except (ValueError, TypeError, AttributeError) as error:
            raise JournalTampered(f"event {row.seq} of run {row.run}: it makes no event: {error!r}") from error
        erasures[row.run] = Erasure(row.seq, row.at, plans)
    return erasures


def placeholder_texts(erasure: Erasure, kind: str, data: str) -> dict[str, str]:
    """Return by hash the placeholder of each text of an event."""
    references = body_references(kind, data)
    placeholders = dict.fromkeys(references.values(), erased_marker(erasure.at))
    for each in fields(EVENT_CLASSES[kind]) if references else ():
        if each.name in _READ_BY_PROGRAMS and each.name in references:
            default = each.default if each.default_factory is MISSING else each.default_factory()
            placeholders[references[each.name]] = default if isinstance(default, str) else encode_ascii_json(default)
    if kind == PlanProposed.kind:
        placeholders[references["plan"]] = erasure.plans.get(references["plan"]) or Plan().dumps()
    if kind == QuestionAsked.kind and json.loads(data).get("asks") == QuestionKind.TOOLS:
        placeholders[references["prompt"]] = "[]"
    return placeholders


def redact_plan(plan: str, at: float) -> str:
    """Return a plan without its subtasks: its workers and access lists stay."""
    steps = Plan.loads(plan).steps
    return Plan(tuple(Step(erased_marker(at), step.worker, step.access, step.each) for step in steps)).dumps()


@dataclass(frozen=True, slots=True)
class EventTexts:
    """The texts that a page of events refers to, by hash; for erased runs, their placeholders."""

    texts: Mapping[str, str]
    erasures: Mapping[str, Erasure]
    lists: Mapping[str, str] = field(default_factory=dict)

    def of(self, row: EventRow) -> Mapping[str, str]:
        """Return the texts of this event."""
        erasure = self.erasures.get(row.run)
        if erasure is None or row.seq > erasure.seq:
            return self.texts
        return {**self.lists, **placeholder_texts(erasure, row.kind, row.data)}


@dataclass(frozen=True, slots=True)
class WantedTexts:
    """The texts that a page of events refers to, each with an event that does, and the lists among them.

    `partial`: others are not wanted, and stay empty.
    """

    references: Sequence[tuple[EventRow, str]]
    lists: Sequence[str]
    partial: bool = False

    def keys(self) -> set[str]:
        """Return their hashes."""
        return {key for _, key in self.references}


EVIDENCE = frozenset({"domain", "labels", "plan"})  # fields, without which nobody can say how right a run was
MOST_EVENTS = 5_000  # of all runs together that are evidence: 50 ms


def few_enough(newest: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """Return the newest of these runs that have no more than MOST_EVENTS rows together; others are left out."""
    kept, left = list[str](), MOST_EVENTS
    for run in newest:
        if counts.get(run, 0) <= left:  # a run of the index whose rows are gone has none
            kept, left = [*kept, run], left - counts.get(run, 0)
    return kept


def wanted_texts(
    page: Sequence[EventRow], erasures: Mapping[str, Erasure], only: frozenset[str] | None = None
) -> WantedTexts:
    """Return which texts these events refer to and are not erased; `only`: of these fields."""
    unerased = [row for row in page if row.run not in erasures or row.seq > erasures[row.run].seq]
    listed = [(row, key) for row in page for key in list_references(row.kind, row.data).values()]
    references = [
        (row, key)
        for row in unerased
        for name, key in body_references(row.kind, row.data).items()
        if only is None or name in only
    ]
    return WantedTexts(references + listed, [key for _, key in listed], only is not None)


def checked_texts(wanted: WantedTexts, erasures: Mapping[str, Erasure], bodies: Mapping[str, bytes]) -> EventTexts:
    """Return the texts, of the bodies that the store has; JournalTampered where one is missing or changed."""
    for row, key in wanted.references:
        if key not in bodies or body_hash(bodies[key]) != key:
            fate = "changed" if key in bodies else "missing"
            raise JournalTampered(f"event {row.seq} of run {row.run}: a text of it ({key[:12]}…) is {fate}")
    texts = {key: body_text(body) for key, body in bodies.items()}
    lists = {key: texts[key] for key in wanted.lists}
    return EventTexts(defaultdict(str, texts) if wanted.partial else texts, erasures, lists)


def decode_rows(rows: Iterable[EventRow], texts: EventTexts) -> tuple[Event, ...]:
    """Return the events of these rows."""
    return tuple(decode_event(row.kind, row.run, row.at, row.data, texts.of(row)) for row in rows)


_EXCERPT = 80


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run in a list. `started_at` is Unix time, `prompt` its first words; `dollars` None: the cost is unknown.

    `uncertain` is what may have been used as well.
    """

    id: str
    status: RunStatus
    conductor: str
    started_at: float
    prompt: str
    tokens: int
    dollars: float | None
    parent: str | None = None
    uncertain: Amount = ZERO

    @classmethod
    def of(cls, run: Run) -> "RunOverview":
        """Return the overview of a run; its child runs' costs are in theirs."""
        begun, charged = run.started, run.charged
        words = " ".join(begun.prompt.split())
        prompt = words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"
        amounts = (charged.tokens, charged.dollars)
        return cls(run.id, run.status, begun.conductor, begun.at, prompt, *amounts, begun.parent, run.uncertain)


def events_by_run(page: Iterable[EventRow]) -> dict[str, list[EventRow]]:
    """Return the events of each run."""
    runs: dict[str, list[EventRow]] = defaultdict(list)
    for row in page:
        runs[row.run].append(row)
    return runs


def without_texts(row: EventRow) -> Event:
    """Return an event with empty texts."""
    return decode_event(row.kind, row.run, row.at, row.data, defaultdict(str))


def fold_run(events: Iterable[Event]) -> Run:
    """Return the run of these events; JournalTampered where they make none."""
    try:
        return Run.fold(events)
    except ValueError as error:
        raise JournalTampered(str(error)) from error


_ENDS = (RunFinished.kind, EffectUndone.kind, EffectKept.kind)
_FOLLOWING = (AnswerGraded.kind, RewardGiven.kind, BodiesErased.kind)


def last_of_performance(own: Sequence[EventRow]) -> int:
    """Return the place before which every child run of a run with these events began: it goes on with its parent.

    A grade, a reward and an erasure follow the end, perhaps years later, and nothing is performed for them.
    """
    performed = [row for row in own if row.kind not in _FOLLOWING]
    return performed[-1].seq if performed and performed[-1].kind in _ENDS else 2**62


def children_among(begun: Iterable[EventRow], run: str) -> list[str]:
    """Return the ids of a run's child runs among these beginnings of runs."""
    events = [without_texts(row) for row in begun if row.kind == RunStarted.kind]
    return [each.run for each in events if isinstance(each, RunStarted) and each.parent == run]


NAMED_RUNS = 1000  # the newest, among which a name is looked for


def matching_run(name: str, newest: Sequence[RunOverview], last: str) -> str:
    """Return the id of the run that is named among the newest: as `last`, or by the unambiguous beginning of its id."""
    if name == last:
        roots = [run.id for run in newest if run.parent is None]
        if not roots:
            raise UnknownRun("this journal has no runs yet")
        return roots[0]
    fitting = [run.id for run in newest if run.id.startswith(name) and name]
    if len(fitting) != 1:
        known = f"{len(fitting)} ids begin like that" if fitting else "see `shikisha runs`"
        raise UnknownRun(f"no run {name!r} in this journal: {known}")
    return fitting[0]
