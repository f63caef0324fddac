"""Whether a journal is still what was written: every row, its place, its texts, where the chain ends, the records.

Invariant: a changed, cut, inserted or reordered row and a changed or missing text is found and named by its place. A
text that is missing because its run was erased later, as the chain says, is counted and is no problem. One thing the
store alone cannot show: that a writer rewrote the chain from some place to its end, or cut its end and moved the head.
A head noted elsewhere earlier (`expect`) shows it. Every row holds its hash, so segments of the chain are checked
apart, in any order: each begins with the hash of the row before it, which the segment before recomputes. Deliberately
absent: repair.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from shikisha.core.events import BodiesErased
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal.chain import GENESIS, chain_hash
from shikisha.journal.codec import body_hash, body_references, canonical_tail, list_references
from shikisha.journal.queries import read_bodies
from shikisha.journal.records import NO_RECORDS, RecordFindings
from shikisha.journal.schema import EVENTS, HEAD
from shikisha.journal.stored_events import EventRow, expand_rows

_PAGE = 500  # events checked in one transaction, so that writers of PostgreSQL need not keep old rows for long
_ENOUGH = 100  # problems: a chain that is broken in a hundred places is not worth a longer list


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """Something that is not as written, at an event's place where it has one."""

    seq: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.seq is None else f"row {self.seq}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result: how many rows were read, the chain's last hash (note it elsewhere), and what is wrong.

    `erased` are places where a text was, in runs that were erased, `records` changes of governance records, which are
    chained from row `records_since` on.
    """

    count: int
    hash: str
    problems: tuple[ChainProblem, ...] = ()
    erased: int = 0
    records: int = 0
    records_since: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class ChainSegment:
    """The rows from place `start` to before `end` (None: the chain's end)."""

    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class ChainCheckpoint:
    """Where the chain stood when it was verified: after so many rows it had this hash."""

    count: int
    hash: str


@dataclass(frozen=True, slots=True)
class SegmentFindings:
    """What was found in a segment: as `Verification`, and what only the segments together tell.

    `missing` are texts (run, place, key) that no erasure of this segment accounts for; `erased_runs` were erased in it;
    `expected`: whether the hash noted earlier was met.
    """

    count: int
    hash: str
    problems: tuple[ChainProblem, ...] = ()
    erased: int = 0
    missing: tuple[tuple[str, int, str], ...] = ()
    erased_runs: frozenset[str] = frozenset()
    expected: bool = False


def split_chain(count: int, parts: int, start: int = 0) -> tuple[ChainSegment, ...]:
    """Return segments of about one length from a place to the end; the last one has no end, since the chain grows."""
    places = [start + (count - start) * part // parts for part in range(parts)]
    return tuple(
        ChainSegment(place, places[part + 1] if part + 1 < parts else None)
        for part, place in enumerate(places)
        if part + 1 == parts or place < places[part + 1]
    )


def combine_findings(
    segments: Sequence[SegmentFindings],
    expect: str | None = None,
    since: ChainCheckpoint | None = None,
    records: RecordFindings = NO_RECORDS,
) -> Verification:
    """Return the verification of segments that follow each other, in the order of the events, and of the records."""
    problems = [problem for segment in segments for problem in segment.problems]
    problems += [ChainProblem(None, what) for what in records.problems[:_ENOUGH]]
    erased, later = 0, set[str]()
    for segment in reversed(segments):
        erased += segment.erased
        for run, seq, key in segment.missing:
            if run in later:
                erased += 1
            else:
                problems.append(ChainProblem(seq, f"a text of it ({key[:12]}…) is missing"))
        later |= segment.erased_runs
    begun = ChainCheckpoint(0, GENESIS) if since is None else since
    met = expect in {None, GENESIS, begun.hash} or any(segment.expected for segment in segments)
    if not met and len(problems) < _ENOUGH:
        fate = "it was cut or rewritten" if since is None else "only what came after the checkpoint was read"
        problems.append(ChainProblem(None, f"the hash noted earlier ({expect}) is nowhere in the chain: {fate}"))
    problems.sort(key=lambda problem: (problem.seq is None, problem.seq or 0))
    counted = begun.count + sum(segment.count for segment in segments)
    return Verification(counted, segments[-1].hash, tuple(problems), erased, records.changes, records.since)


@dataclass(slots=True)
class SegmentAudit:
    """The verification of a segment under way; `step` is called with a connection until it returns True.

    `since` is a checkpoint at the segment's start, which the chain must hold there.
    """

    expect: str | None = None
    segment: ChainSegment = ChainSegment()
    since: ChainCheckpoint | None = None
    next: int = 0
    count: int = 0
    hash: str = GENESIS
    problems: list[ChainProblem] = field(default_factory=list)
    erased: int = 0
    expected: bool = False
    _last: int | None = None
    _missing: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    _erased_runs: set[str] = field(default_factory=set)

    def step(self, connection: Connection) -> bool:
        """Check one page of events, or the end of the chain when there are no more; return whether that was all."""
        heads = connection.execute(select(HEAD.c.count, HEAD.c.hash)).all()  # before the events, or it might be ahead
        if self._last is None:
            self._begin(connection)
        where = [] if self._last is None else [EVENTS.c.seq > self._last]
        if self.segment.end is not None:
            where.append(EVENTS.c.seq < self.segment.end)
        found = connection.execute(select(EVENTS).where(*where).order_by(EVENTS.c.seq).limit(_PAGE))
        page = list(map(EventRow._make, found.all()))
        if not page:
            if self.segment.end is None:
                self._check_end([(count, last) for count, last in heads])
            return True
        for row in page:
            if row.seq == self.next:
                written = chain_hash(
                    self.hash, row.seq, canonical_tail(str(row.run), str(row.kind), row.at, str(row.data))
                )
                if written != row.hash:
                    self._report(row.seq, "it is not what was written, or not where it was written")
            elif row.seq > self.next:
                gone = f"row {self.next} is" if row.seq == self.next + 1 else f"rows {self.next} to {row.seq - 1} are"
                self._report(row.seq, f"{gone} missing before it")
            else:
                self._report(row.seq, "no row was ever written in this place")
            self._last, self.next, self.hash, self.count = row.seq, row.seq + 1, str(row.hash), self.count + 1
            self.expected = self.expected or self.hash == self.expect
        self._check_texts(connection, expand_rows(page))
        return len(self.problems) >= _ENOUGH

    def findings(self) -> SegmentFindings:
        """Return what was found so far."""
        missing = tuple((run, seq, key) for run, found in self._missing.items() for seq, key in found)
        return SegmentFindings(
            self.count,
            self.hash,
            tuple(self.problems),
            self.erased,
            missing,
            frozenset(self._erased_runs),
            self.expected,
        )

    def _begin(self, connection: Connection) -> None:
        """Begin with the row before the segment: its place and its hash."""
        if not self.segment.start:
            return
        before = EVENTS.c.seq < self.segment.start
        row = connection.execute(
            select(EVENTS.c.seq, EVENTS.c.hash).where(before).order_by(EVENTS.c.seq.desc()).limit(1)
        ).first()
        if row is not None:
            self._last, self.next, self.hash = row.seq, row.seq + 1, str(row.hash)
        if self.since is not None and (self.next, self.hash) != (self.since.count, self.since.hash):
            self._report(None, f"after {self.since.count} rows the chain does not have the checkpoint's hash")

    def _check_texts(self, connection: Connection, page: list[EventRow]) -> None:
        referred = [(row, key) for row in page for key in ("", *body_references(str(row.kind), str(row.data)).values())]
        lists = [(row, key) for row in page for key in list_references(str(row.kind), str(row.data)).values()]
        found = read_bodies(connection, (key for _, key in (*referred, *lists) if key))
        wrong = {key for key, body in found.items() if body_hash(body) != key}
        for row, key in lists:  # no erasure accounts for one that is missing
            if key not in found or key in wrong:
                fate = "not what was written" if key in found else "missing"
                self._report(row.seq, f"a list of names of it ({key[:12]}…) is {fate}")
        for row, key in referred:
            if not key:  # the event itself: an erasure says that what is missing of the run so far is as it should be
                if row.kind == BodiesErased.kind:
                    self.erased += len(self._missing.pop(str(row.run), ()))
                    self._erased_runs.add(str(row.run))
            elif key not in found:
                self._missing.setdefault(str(row.run), []).append((row.seq, key))
            elif key in wrong:
                self._report(row.seq, f"a text of it ({key[:12]}…) is not what was written")

    def _check_end(self, heads: list[tuple[int, str]]) -> None:
        if len(heads) != 1:
            self._report(None, f"there is one row that says where the chain ends, not {len(heads)}")
        elif heads[0] != (self.next, self.hash):
            count, last = heads[0]
            self._report(None, f"the chain should end after {count} rows with {last[:12]}…; it ends after {self.next}")

    def _report(self, seq: int | None, what: str) -> None:
        self.problems.append(ChainProblem(seq, what))
