"""Memory: notes of what happened, found again by what a task says. An index over the journal, never a second truth.

A note is a text with the runs that it comes from, whose it is (a tenant, and the labels of its data), who said it, and
its place in a session. Recall is in two stages: SQLite's FTS5 finds notes with the query's rarest words; they and their
neighbors are then scored by BM25 of the note, of the notes around it and of its session (what was said next to an
answer often has the words that the answer lacks), by whether the query names who said it, and by age and importance.

Invariants: no note without evidence, and a note vanishes with its last run; each word is indexed under its scope, so
that a search cannot read what another tenant, or a task without the labels, may not see; recall does bounded work
however many notes there are; the file can be made again from the journal, and holds texts of it, so that it is erased
like one.
"""

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from math import log
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.journal import make_private
from shikisha.retrieval.text_index import split_word

MAX_NOTE = 4_000  # characters
MAX_RECALL = 200
_VERSION = 1
_MAX_QUERY_TERMS = 48
_SCOPES_PER_QUERY = 16
_HITS = 200  # notes whose words are compared
_BEST = 25  # hits whose neighbors are looked at
_AROUND = 3  # notes to either side
_SATURATION, _LENGTH = 1.2, 0.6  # k1 and b of BM25
# Weights of the parts of a score, found on the first five conversations of LoCoMo.
_OF_WINDOW, _OF_SESSION, _OF_SPEAKER, _OF_LENGTH, _OF_QUESTION, _OF_IMPORTANCE = 1.0, 0.9, 0.8, 0.2, -0.2, 0.1
_DAY = 86_400.0
_WORD = re.compile(r"[^\W_]+")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS scopes (id INTEGER PRIMARY KEY, tenant TEXT, labels TEXT, UNIQUE (tenant, labels));
CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, scope INTEGER, hash TEXT, kind TEXT, speaker TEXT,
  session TEXT, place INTEGER, at REAL, importance REAL, size INTEGER, question INTEGER, terms TEXT, text TEXT,
  UNIQUE (scope, hash));
CREATE INDEX IF NOT EXISTS notes_place ON notes (scope, session, place);
CREATE TABLE IF NOT EXISTS evidence (run TEXT, note INTEGER, PRIMARY KEY (run, note)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS evidence_note ON evidence (note);
CREATE TABLE IF NOT EXISTS frequencies (scope INTEGER, term TEXT, notes INTEGER,
  PRIMARY KEY (scope, term)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS speakers (scope INTEGER, term TEXT, name TEXT,
  PRIMARY KEY (scope, term, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sizes (scope INTEGER PRIMARY KEY, notes INTEGER, words INTEGER);
CREATE TABLE IF NOT EXISTS positions (name TEXT PRIMARY KEY, events INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
  terms, content='', columnsize=0, detail=none, tokenize="unicode61 remove_diacritics 0");
"""


@dataclass(frozen=True, slots=True)
class MemoryNote:
    """What is remembered; `session` and `place` say where it stands among others, `importance` is from 0 to 1.

    Without a place it stands behind the session's last.
    """

    text: str
    evidence: tuple[str, ...]
    tenant: str
    labels: tuple[str, ...]
    kind: str = "fact"
    speaker: str = ""
    session: str = ""
    place: int | None = None
    at: float = 0.0
    importance: float = 0.0


@dataclass(frozen=True, slots=True)
class RecalledNote:
    """A note that fits a query, and how well."""

    note: MemoryNote
    score: float


class _Hit(NamedTuple):
    id: int
    scope: int
    speaker: str
    session: str
    place: int
    at: float
    importance: float
    size: int
    question: int
    terms: str


_COLUMNS = "id, scope, speaker, session, place, at, importance, size, question, terms"
_PREFIXED = ", ".join(f"n.{name}" for name in _COLUMNS.split(", "))


class MemoryIndex:
    """Notes in a file; ConfigError where it is none. With `half_life_days` a note counts half when it is that old."""

    def __init__(self, file: Path | None = None, half_life_days: float | None = None) -> None:
        self._half_life = half_life_days
        self._file = file
        try:
            self._open = sqlite3.connect(":memory:" if file is None else make_private(file), isolation_level=None)
            self._open.execute("PRAGMA journal_mode = WAL")
            self._open.execute("PRAGMA synchronous = NORMAL")
            self._open.execute("PRAGMA secure_delete = ON")
            version: int = self._open.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise ConfigError(f"{file}: expected a memory of version {_VERSION}, found {version}: make it again")
            self._open.executescript(_SCHEMA)
            self._open.execute(f"PRAGMA user_version = {_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{file}: cannot be used as a memory: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def __len__(self) -> int:
        found: int = self._open.execute("SELECT coalesce(sum(notes), 0) FROM sizes").fetchone()[0]
        return found

    def add(self, notes: Iterable[MemoryNote]) -> int:
        """Add notes in one transaction; return how many were new. ValueError for one without text or evidence.

        A note that says what another of its scope says adds its evidence to that one.
        """
        added, frequencies, words = 0, Counter[tuple[int, str]](), Counter[int]()
        counts, scopes = Counter[int](), dict[tuple[str, str], int]()
        with self._transaction() as run:
            for note in notes:
                text = note.text.strip()[:MAX_NOTE]
                if not text or not note.evidence:
                    raise ValueError("a note has a text and the runs that it comes from")
                key = (note.tenant, _joined(note.labels))
                scope = scopes.get(key) or scopes.setdefault(key, self._scope(*key))
                terms = note_terms(text)
                told = f"{note.session}\0{note.place}\0{note.speaker}\0{text}" if note.session else text
                digest = sha256(told.encode()).hexdigest()[:32]
                found = run("SELECT id FROM notes WHERE scope = ? AND hash = ?", (scope, digest)).fetchone()
                if found is None:
                    spot = note.place if note.place is not None else self._next_place(scope, note.session)
                    row = (scope, digest, note.kind, note.speaker, note.session, spot, note.at, note.importance)
                    cursor = run(
                        "INSERT INTO notes (scope, hash, kind, speaker, session, place, at, importance, size, question,"
                        " terms, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*row, len(terms), text.endswith("?"), " ".join(terms), text),
                    )
                    place = cursor.lastrowid or 0
                    run("INSERT INTO words (rowid, terms) VALUES (?, ?)", (place, _scoped(scope, terms)))
                    frequencies.update((scope, term) for term in set(terms))
                    for term in note_terms(note.speaker):
                        run("INSERT OR IGNORE INTO speakers VALUES (?, ?, ?)", (scope, term, note.speaker))
                    words[scope] += len(terms)
                    counts[scope] += 1
                    added += 1
                else:
                    place = found[0]
                for each in dict.fromkeys(note.evidence):
                    run("INSERT OR IGNORE INTO evidence VALUES (?, ?)", (each, place))
            self._count(frequencies, counts, words)
        return added

    def forget(self, runs: Collection[str]) -> int:
        """Remove these runs, and the notes that no other run says; return how many notes went."""
        gone = 0
        frequencies, counts, words = Counter[tuple[int, str]](), Counter[int](), Counter[int]()
        with self._transaction() as run:
            for name in runs:
                places = [row[0] for row in run("SELECT note FROM evidence WHERE run = ?", (name,))]
                run("DELETE FROM evidence WHERE run = ?", (name,))
                for place in places:
                    if run("SELECT 1 FROM evidence WHERE note = ? LIMIT 1", (place,)).fetchone() is not None:
                        continue
                    scope, told = run("SELECT scope, terms FROM notes WHERE id = ?", (place,)).fetchone()
                    terms = told.split()
                    run(
                        "INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)",
                        (place, _scoped(scope, terms)),
                    )
                    run("DELETE FROM notes WHERE id = ?", (place,))
                    frequencies.subtract((scope, term) for term in set(terms))
                    counts[scope] -= 1
                    words[scope] -= len(terms)
                    gone += 1
            self._count(frequencies, counts, words)
        return gone

    def scrub(self) -> None:
        """Rewrite the index of words without those of notes that went: nothing of an erased run stays in the file."""
        try:
            self._open.execute("DELETE FROM frequencies WHERE notes <= 0")
            self._open.execute("DELETE FROM speakers WHERE (scope, name) NOT IN (SELECT scope, speaker FROM notes)")
            self._open.execute("DELETE FROM sizes WHERE notes <= 0")
            self._open.execute("DELETE FROM scopes WHERE id NOT IN (SELECT scope FROM sizes)")
            self._open.execute("INSERT INTO words (words) VALUES ('optimize')")
            if self._open.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise ConfigError(f"{self._file}: somebody reads it, so that its log cannot be emptied: try again")
        except sqlite3.Error as error:
            raise ConfigError(f"{self._file}: cannot be written: {error}") from None

    def position(self, name: str = "journal") -> int:
        """How many events of the journal have been taken in; of "erasures": have been looked through for them."""
        row = self._open.execute("SELECT events FROM positions WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    def advance(self, events: int, name: str = "journal") -> None:
        """Set a position."""
        with self._transaction() as run:
            run(
                "INSERT INTO positions VALUES (?, ?) ON CONFLICT DO UPDATE SET events = excluded.events",
                (name, events),
            )

    def labels(self) -> frozenset[str]:
        """Return all labels that notes have."""
        rows = self._open.execute("SELECT labels FROM scopes").fetchall()
        return frozenset(label for row in rows for label in _split(row[0]))

    def notes(self, tenant: str | None = None) -> Iterable[MemoryNote]:
        """Yield all notes of a tenant (all tenants' for None), in the order in which they were added."""
        where = "" if tenant is None else " WHERE scopes.tenant = :tenant"
        found = self._open.execute(
            f"SELECT notes.id FROM notes JOIN scopes ON scopes.id = notes.scope{where} ORDER BY notes.id",  # noqa: S608
            {"tenant": tenant},
        ).fetchall()
        for first in range(0, len(found), MAX_RECALL):
            read = self._read([row[0] for row in found[first : first + MAX_RECALL]])
            yield from read.values()

    def recall(
        self,
        query: str,
        count: int = 10,
        *,
        tenant: str | None,
        labels: Collection[str],
        now: float = 0.0,
        most_characters: int | None = None,
    ) -> list[RecalledNote]:
        """Return the notes that fit best, best first: those of a tenant (None: of all) whose labels the task bears.

        `now` is when age is counted from. With `most_characters` the list ends before the texts are longer.
        """
        scopes = self._readable(tenant, frozenset(labels))
        if not scopes or count < 1:
            return []
        terms, named = self._query_terms(query, scopes)
        hits, rarity = self._find(terms, scopes)
        if not hits:
            return []
        notes, words = self._sizes(scopes)
        scored = _score_hits(hits, rarity, named, words / max(1, notes) or 1.0, self._neighbors)
        scores = {hit.id: score * _freshness(now - hit.at, self._half_life) for hit, score in scored}
        best = sorted(scores, key=lambda place: (-scores[place], place))[: min(count, MAX_RECALL)]
        read = self._read(best)
        found, left = list[RecalledNote](), most_characters
        for place in best:
            note = read[place]
            if left is not None:
                left -= len(note.text)
                if left < 0:
                    break
            found.append(RecalledNote(note, scores[place]))
        return found

    def _find(self, terms: Sequence[str], scopes: Sequence[int]) -> tuple[list[_Hit], Mapping[str, float]]:
        """Return notes with the rarest of these terms, and the rarity of each term."""
        marks, own = ",".join("?" * len(terms)), ",".join("?" * len(scopes))
        rows = self._open.execute(
            f"SELECT term, sum(notes) FROM frequencies WHERE scope IN ({own}) AND term IN ({marks})"  # noqa: S608
            " AND notes > 0 GROUP BY term",
            [*scopes, *terms],
        )
        frequency = dict(rows.fetchall())
        total = max(1, self._sizes(scopes)[0])
        rarity = {term: log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in frequency.items()}
        order, chosen = _rarest_terms(frequency)
        if not chosen:
            return [], rarity
        pairs = frequency[chosen[0]] > _HITS and len(order) > 1  # all are frequent: two at once are not
        for several in (True, False) if pairs else (False,):
            found = list[_Hit]()
            for first in range(0, len(scopes), _SCOPES_PER_QUERY):
                found += self._select_hits(_match(scopes[first : first + _SCOPES_PER_QUERY], chosen, order, several))
                if len(found) >= _HITS:
                    break
            if found:
                return found, rarity
        return [], rarity

    def _select_hits(self, match: str) -> list[_Hit]:
        rows = self._open.execute(
            f"SELECT {_PREFIXED} FROM (SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?) AS w"  # noqa: S608
            " JOIN notes AS n ON n.id = w.rowid",
            (match, _HITS),
        )
        return [_Hit(*row) for row in rows]

    def _neighbors(self, hits: Sequence[_Hit]) -> list[_Hit]:
        ids = [hit.id for hit in hits if hit.session]
        marks = ",".join("?" * len(ids))
        rows = self._open.execute(
            f"SELECT DISTINCT {_PREFIXED} FROM notes AS h"  # noqa: S608 - names of columns and question marks
            " JOIN notes AS n ON n.scope = h.scope AND n.session = h.session"
            f" AND n.place BETWEEN h.place - {_AROUND} AND h.place + {_AROUND} WHERE h.id IN ({marks})",
            ids,
        )
        return [_Hit(*row) for row in rows]

    def _query_terms(self, query: str, scopes: Sequence[int]) -> tuple[list[str], frozenset[str]]:
        """Return the terms of a query without those that only name a speaker, and the one speaker that it names."""
        terms = list(dict.fromkeys(note_terms(query[:MAX_NOTE])))[:_MAX_QUERY_TERMS]
        marks, own = ",".join("?" * len(terms)), ",".join("?" * len(scopes))
        rows = self._open.execute(
            f"SELECT term, name FROM speakers WHERE scope IN ({own}) AND term IN ({marks})",  # noqa: S608
            [*scopes, *terms],
        ).fetchall()
        names, spoken = {name for _, name in rows}, {term for term, _ in rows}
        left = [term for term in terms if term not in spoken]
        return left or terms, frozenset(names) if len(names) == 1 else frozenset()

    def _sizes(self, scopes: Sequence[int]) -> tuple[int, int]:
        own = ",".join("?" * len(scopes))
        row = self._open.execute(
            f"SELECT coalesce(sum(notes), 0), coalesce(sum(words), 0) FROM sizes WHERE scope IN ({own})",  # noqa: S608
            list(scopes),
        ).fetchone()
        return int(row[0]), int(row[1])

    def _readable(self, tenant: str | None, labels: frozenset[str]) -> list[int]:
        """Return the scopes that a task of this tenant with these labels may read."""
        rows = self._open.execute("SELECT id, labels FROM scopes WHERE ? IS NULL OR tenant = ?", (tenant, tenant))
        return [scope for scope, joined in rows if set(_split(joined)) <= labels]

    def _read(self, ids: Sequence[int]) -> dict[int, MemoryNote]:
        """Return notes with their evidence, in this order."""
        marks = ",".join("?" * len(ids))
        rows = self._open.execute(
            "SELECT notes.id, text, kind, tenant, labels, speaker, session, place, at, importance FROM notes"  # noqa: S608
            f" JOIN scopes ON scopes.id = notes.scope WHERE notes.id IN ({marks})",
            list(ids),
        )
        found = {row[0]: row[1:] for row in rows}
        runs = defaultdict[int, list[str]](list)
        for run, place in self._open.execute(
            f"SELECT run, note FROM evidence WHERE note IN ({marks}) ORDER BY run",  # noqa: S608
            list(ids),
        ):
            runs[place].append(run)
        return {
            place: MemoryNote(text, tuple(runs[place]), tenant, tuple(_split(joined)), kind, *rest)
            for place in ids
            for text, kind, tenant, joined, *rest in (found[place],)
        }

    def _next_place(self, scope: int, session: str) -> int:
        if not session:
            return 0
        where = "SELECT coalesce(max(place) + 1, 0) FROM notes WHERE scope = ? AND session = ?"
        found: int = self._open.execute(where, (scope, session)).fetchone()[0]
        return found

    def _scope(self, tenant: str, labels: str) -> int:
        self._open.execute("INSERT OR IGNORE INTO scopes (tenant, labels) VALUES (?, ?)", (tenant, labels))
        found: int = self._open.execute(
            "SELECT id FROM scopes WHERE tenant = ? AND labels = ?", (tenant, labels)
        ).fetchone()[0]
        return found

    def _count(
        self, frequencies: Mapping[tuple[int, str], int], counts: Mapping[int, int], words: Mapping[int, int]
    ) -> None:
        self._open.executemany(
            "INSERT INTO frequencies VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET notes = notes + excluded.notes",
            ((scope, term, more) for (scope, term), more in frequencies.items()),
        )
        self._open.executemany(
            "INSERT INTO sizes VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET notes = notes + excluded.notes, words = words + excluded.words",
            ((scope, counts[scope], words[scope]) for scope in counts),
        )

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._open, self._file)


class _Transaction:
    """Statements that all hold, or none; ConfigError where the file cannot be written."""

    def __init__(self, connection: sqlite3.Connection, file: Path | None) -> None:
        self._connection, self._file = connection, file

    def __enter__(self) -> Callable[..., sqlite3.Cursor]:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection.execute

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise ConfigError(f"{self._file}: cannot be written: {error}") from None


def note_terms(text: str) -> list[str]:
    """Return the terms of a text, in order."""
    return list(chain.from_iterable(split_word(word) for word in _WORD.findall(text)))


def _score_hits(
    hits: Sequence[_Hit],
    rarity: Mapping[str, float],
    named: Collection[str],
    usual: float,
    find_neighbors: Callable[[list[_Hit]], list[_Hit]],
) -> list[tuple[_Hit, float]]:
    """Return the score of each hit and of the neighbors of the best hits; `usual` is the mean size of a note."""
    matched = {hit.id: _matches(hit.terms, rarity) for hit in hits}
    own = {hit.id: _bm25(matched[hit.id], hit.size / usual, rarity) for hit in hits}
    best = sorted(hits, key=lambda hit: (-own[hit.id], hit.id))[:_BEST]
    every = {hit.id: hit for hit in hits}
    for hit in find_neighbors(best):
        if hit.id not in every:
            every[hit.id] = hit
            matched[hit.id] = _matches(hit.terms, rarity)
            own[hit.id] = _bm25(matched[hit.id], hit.size / usual, rarity)
    around, sessions = _spread(every.values(), matched)
    largest = max((found[1] for found in sessions.values()), default=0) or 1
    by_session = {key: _bm25(counts, size / largest, rarity) for key, (counts, size) in sessions.items()}
    window = {place: _bm25(counts, 1.0, rarity) for place, counts in around.items() if counts}
    scales = [max(part.values(), default=0.0) or 1.0 for part in (own, window, by_session)]
    found = list[tuple[_Hit, float]]()
    for hit in every.values():
        alone = own[hit.id] / scales[0]
        score = alone + _OF_LENGTH * log(1 + hit.size) + _OF_QUESTION * hit.question
        score += _OF_SPEAKER * (hit.speaker in named) + _OF_IMPORTANCE * hit.importance
        if hit.session:
            key = (hit.scope, hit.session)
            score += _OF_WINDOW * window.get((*key, hit.place), 0.0) / scales[1]
            score += _OF_SESSION * by_session.get(key, 0.0) / scales[2]
        else:
            score += _OF_WINDOW * alone
        found.append((hit, score))
    return found


def _freshness(age: float, half_life_days: float | None) -> float:
    """Return what a note of this age in seconds counts."""
    return 1.0 if half_life_days is None else 0.5 ** (max(0.0, age) / _DAY / half_life_days)


def _rarest_terms(frequency: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return all terms, the rarest first, and the first of them: as many as have no more notes than are looked at."""
    order = sorted(frequency, key=lambda term: (frequency[term], term))
    chosen, left = list[str](), _HITS
    for term in order:
        if chosen and frequency[term] > left:
            break
        chosen.append(term)
        left -= frequency[term]
    return order, chosen


def _matches(terms: str, rarity: Mapping[str, float]) -> dict[str, int]:
    """Return how often the query's terms are among these."""
    counts = dict[str, int]()
    for term in terms.split():
        if term in rarity:
            counts[term] = counts.get(term, 0) + 1
    return counts


def _spread(
    hits: Collection[_Hit], matched: Mapping[int, Mapping[str, int]]
) -> tuple[dict[tuple[int, str, int], dict[str, int]], dict[tuple[int, str], tuple[dict[str, int], int]]]:
    """Return the terms that are matched around each place, and in each session with the number of its hits."""
    around = dict[tuple[int, str, int], dict[str, int]]()
    sessions = dict[tuple[int, str], tuple[dict[str, int], int]]()
    for hit in hits:
        if hit.session:
            around[hit.scope, hit.session, hit.place] = {}
    for hit in hits:
        if not hit.session or not (terms := matched[hit.id]):
            continue
        counts, size = sessions.get((hit.scope, hit.session), (dict[str, int](), 0))
        sessions[hit.scope, hit.session] = (counts, size + 1)
        near = ((hit.scope, hit.session, hit.place + shift) for shift in range(-_AROUND, _AROUND + 1))
        spots = [around[place] for place in near if place in around]
        for term, n in terms.items():
            counts[term] = counts.get(term, 0) + n
            for spot in spots:
                spot[term] = spot.get(term, 0) + n
    return around, sessions


def _bm25(counts: Mapping[str, int], length: float, rarity: Mapping[str, float]) -> float:
    penalty = _SATURATION * (1 - _LENGTH + _LENGTH * length)
    total = 0.0
    for term, n in counts.items():
        total += rarity[term] * n / (n + penalty)
    return total


def _match(scopes: Sequence[int], chosen: Sequence[str], order: Sequence[str], pairs: bool) -> str:
    """Return the FTS5 query of these terms in these scopes; with `pairs`, of the rarest next to one of three others."""
    if pairs:
        first = chosen[0]
        parts = [f'("{_token(at, first)}" AND "{_token(at, term)}")' for at in scopes for term in order[1:4]]
    else:
        parts = [f'"{_token(at, term)}"' for at in scopes for term in chosen]
    return " OR ".join(parts)


def _token(scope: int, term: str) -> str:
    return f"{scope:x}x{term}"


def _scoped(scope: int, terms: Iterable[str]) -> str:
    return " ".join(_token(scope, term) for term in terms)


def _joined(labels: Iterable[str]) -> str:
    return "\n".join(sorted(set(labels)))


def _split(joined: str) -> list[str]:
    return [name for name in joined.split("\n") if name]
