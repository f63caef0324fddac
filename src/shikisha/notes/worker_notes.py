"""Worker notes: kept by worker and kind of subtask, asked by text, written as a file with its evidence.

A note is one worker at one wording (a subtask without names and numbers): how often it was tried, how many of these
answers were right, dollars, seconds, and the runs that say so. An estimate for a new text weighs every note by how
alike the wordings are (cosine over rare words), so there is no fixed list of kinds. What is known of a worker at all,
and of all workers, fills in where little is known (shrinkage).

Invariants: a note that was made from labeled data answers only for tasks that bear these labels; the file's version
is the hash of its content, and a file that was edited by hand is refused; nothing in it is code. Notes are made from
a journal and made again without a run that was erased. Deliberately absent: what cards say. A conductor sees both.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import log, sqrt
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.core.events import GradeBasis
from shikisha.notes.step_outcomes import StepOutcome, subtask_terms

FORMAT = "shikisha-notes/1"
_SHRINKAGE = 3.0  # outcomes that the worker's own average is worth at a kind of work
_WORKER_SHRINKAGE = 4.0  # outcomes that the average of all workers is worth for a worker
_LEAST_ALIKE = 0.15  # cosine below which two wordings have nothing to do with one another
_MOST_RUNS = 20  # run ids kept for each note; their number is kept whole
_MAX_FILE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerNote:
    """One worker at one wording: `tries`, `right` (a sum of chances), total dollars and seconds, and its evidence."""

    worker: str
    terms: tuple[str, ...]
    tries: int
    right: float
    dollars: float
    seconds: float
    bases: tuple[str, ...]
    runs: tuple[str, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteEstimate:
    """What notes say of a worker at a text: `tries` like it (weighed), `right` of them, and the shrunk chance `mean`.

    `all_tries` and `all_right` are those at any work; `dollars` are the mean of a call.
    """

    worker: str
    tries: float
    right: float
    mean: float
    all_tries: float
    all_right: float
    dollars: float


@dataclass
class WorkerNotes:
    """Notes in memory, indexed by word."""

    notes: tuple[WorkerNote, ...]
    version: str
    _postings: dict[str, list[int]] = field(default_factory=dict)
    _norms: list[float] = field(default_factory=list)
    _rarity: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        postings = defaultdict[str, list[int]](list)
        for place, note in enumerate(self.notes):
            for term in note.terms:
                postings[term].append(place)
        count = len(self.notes)
        self._postings = dict(postings)
        self._rarity = {term: log(1 + count / len(places)) for term, places in postings.items()}
        self._norms = [sqrt(sum(self._rarity[term] ** 2 for term in note.terms)) or 1.0 for note in self.notes]

    @classmethod
    def collect(cls, outcomes: Iterable[StepOutcome]) -> "WorkerNotes":
        """Return the notes that these outcomes make."""
        groups = defaultdict[tuple[str, tuple[str, ...], tuple[str, ...]], list[StepOutcome]](list)
        for one in outcomes:
            groups[one.worker, one.terms, tuple(sorted(one.labels))].append(one)
        notes = tuple(_note(key, found) for key, found in sorted(groups.items()))
        return cls(notes, _version(notes))

    def estimate(self, text: str, workers: Sequence[str], labels: Iterable[str] = ()) -> list[NoteEstimate]:
        """Return what is known of each worker at a text, in their order."""
        shown = frozenset(labels)
        alike = self._alike(text)
        tries, right = defaultdict[str, float](float), defaultdict[str, float](float)
        totals = defaultdict[str, list[float]](lambda: [0.0, 0.0, 0.0])
        for place, note in enumerate(self.notes):
            if note.worker not in workers or not shown.issuperset(note.labels):
                continue
            total = totals[note.worker]
            total[0] += note.tries
            total[1] += note.right
            total[2] += note.dollars
            weight = alike.get(place, 0.0)
            tries[note.worker] += weight * note.tries
            right[note.worker] += weight * note.right
        every = [sum(total[at] for total in totals.values()) for at in range(2)]
        average = (every[1] + 1.0) / (every[0] + 2.0)
        return [self._estimate(worker, tries[worker], right[worker], totals[worker], average) for worker in workers]

    def _estimate(
        self, worker: str, tries: float, right: float, total: Sequence[float], average: float
    ) -> NoteEstimate:
        own = (total[1] + _WORKER_SHRINKAGE * average) / (total[0] + _WORKER_SHRINKAGE)
        mean = (right + _SHRINKAGE * own) / (tries + _SHRINKAGE)
        return NoteEstimate(worker, tries, right, mean, total[0], total[1], total[2] / total[0] if total[0] else 0.0)

    def _alike(self, text: str) -> dict[int, float]:
        """Return how alike each note's wording is to a text: squared cosine over word rarity; unlike ones left out."""
        terms = [term for term in subtask_terms(text) if term in self._rarity]
        norm = sqrt(sum(self._rarity[term] ** 2 for term in terms)) or 1.0
        dots = defaultdict[int, float](float)
        for term in terms:
            for place in self._postings[term]:
                dots[place] += self._rarity[term] ** 2
        cosines = {place: dot / norm / self._norms[place] for place, dot in dots.items()}
        return {place: cosine**2 for place, cosine in cosines.items() if cosine >= _LEAST_ALIKE}

    def save(self, file: Path) -> None:
        """Write the notes as JSON, whole or not at all."""
        body = {"format": FORMAT, "version": self.version, "notes": [asdict(note) for note in self.notes]}
        part = file.with_name(f"{file.name}.part")
        part.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", "utf-8")
        part.replace(file)


def load_notes(file: Path) -> WorkerNotes:
    """Read notes; ConfigError where there are none, or where they are not what was written."""
    try:
        if file.stat().st_size > _MAX_FILE:
            raise ConfigError(f"{file}: notes have at most {_MAX_FILE} bytes")
        body = json.loads(file.read_text("utf-8"))
        if body["format"] != FORMAT:
            raise ConfigError(f"{file}: expected the format {FORMAT}, found {body['format']!r}")
        notes = tuple(_read_note(row) for row in body["notes"])
        version = str(body["version"])
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{file}: no notes of `shikisha notes`: {type(error).__name__}: {error}") from None
    if version != _version(notes):
        raise ConfigError(
            f"{file}: its content is not that of version {version[:12]}: it was changed after it was made"
        )
    return WorkerNotes(notes, version)


def _read_note(row: Mapping[str, object]) -> WorkerNote:
    terms, bases, runs, labels = (_read_texts(row[name]) for name in ("terms", "bases", "runs", "labels"))
    tries, right, dollars, seconds = (_read_number(row[name]) for name in ("tries", "right", "dollars", "seconds"))
    return WorkerNote(str(row["worker"]), terms, int(tries), right, dollars, seconds, bases, runs, labels)


def _read_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of texts, found {value!r}")
    return tuple(map(str, value))


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError(f"expected a number from 0, found {value!r}")
    return value


def _note(key: tuple[str, tuple[str, ...], tuple[str, ...]], found: Sequence[StepOutcome]) -> WorkerNote:
    worker, terms, labels = key
    bases = tuple(basis for basis in map(str, GradeBasis) if any(str(one.basis) == basis for one in found))
    runs = tuple(dict.fromkeys(one.run for one in found))
    return WorkerNote(
        worker,
        terms,
        len(found),
        round(sum(one.share for one in found), 6),
        round(sum(one.dollars for one in found), 9),
        round(sum(one.seconds for one in found), 3),
        bases,
        runs[-_MOST_RUNS:],
        labels,
    )


def _version(notes: Sequence[WorkerNote]) -> str:
    """Return the hash of the notes' content."""
    return sha256(json.dumps([asdict(note) for note in notes], sort_keys=True).encode()).hexdigest()
