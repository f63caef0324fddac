"""Worker notes: kept by worker and kind of subtask, asked by text, written as a file with its evidence.

A note is one worker at one wording (a subtask without names and numbers): how often it was tried, how many of these
answers were right, dollars, seconds, and the runs that say so. An estimate for a new text weighs every note by how
alike the wordings are (by meaning where `encode` is given, else by shared rare words), so there is no fixed list of
kinds. What is known of a worker at all, and of all workers, fills in where little is known (shrinkage).

The blame for a wrong run of several steps is shared by expectation maximization (`run_chances`): how likely was a step
of it right all the same, where its chance is the estimate for its worker at its wording so far?

A worker whose fall explains its runs better than its notes do (`worker_falls`) counts as another worker since then:
what it did before takes part in sharing blame and is in no note. The notes say since which run, and why.

Invariants: a note answers only for tasks of the tenant and the labels of its runs; the file's version
is the hash of its content, and a file that was edited by hand is refused; nothing in it is code. Notes are made from
a journal and made again without a run that was erased. Deliberately absent: what cards say. A conductor sees both.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from math import log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from shikisha.core.errors import ConfigError
from shikisha.core.events import GradeBasis
from shikisha.core.task import Scope, join_scopes, read_scope, scope_as_json
from shikisha.journal import make_private
from shikisha.notes.run_chances import PartTrial, RunModel
from shikisha.notes.step_outcomes import MOST_WORDING, WorkerOutcome, subtask_terms, subtask_wording
from shikisha.notes.worker_falls import FallWatch, WorkerFall

if TYPE_CHECKING:
    from shikisha.retrieval.text_encoder import Floats

EncodeTexts: TypeAlias = Callable[[Sequence[str]], "Floats"]
FORMAT = "shikisha-notes/3"
# Worker, terms, scope.
_NoteKey: TypeAlias = tuple[str, tuple[str, ...], Scope]
_SHRINKAGE = 1.5  # outcomes that the worker's own average is worth at a kind of work
_WORKER_SHRINKAGE = 4.0  # outcomes that the average of all workers is worth for a worker
_LEAST_ALIKE = 0.15  # cosine below which two wordings have nothing to do with one another
_SHARPNESS = 3.0  # power of the cosine
# By meaning: cosines between which two wordings go from unrelated to the same kind of work, and the power of that.
_UNRELATED, _SAME_KIND, _MEANING_SHARPNESS = 0.25, 0.65, 2.0
_MOST_NEIGHBORS = 256  # wordings that one wording is compared with
_BLAME_ROUNDS = 20  # of expectation maximization, which is slow where most runs are wrong
_MOST_RUNS = 20  # run ids kept for each note; their number is kept whole
_FORETOLD_BY = 64  # nearest wordings by which a step's chance is foretold
_PRIOR_TRIES, _PRIOR_RIGHT = 2.0, 0.6  # what is foretold of a worker that was never tried at such work
_PAST = "\0"  # between a worker's name and the number of the fall before which an outcome was
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
    scope: Scope
    wording: str = ""


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
    """Notes in memory, indexed by word, and by meaning where `encode` turns texts into unit vectors [N, d].

    `falls` say of whom something was forgotten, in the journal's order.
    """

    notes: tuple[WorkerNote, ...]
    version: str
    encode: EncodeTexts | None = None
    falls: tuple[WorkerFall, ...] = ()
    _postings: dict[str, list[int]] = field(default_factory=dict)
    _norms: list[float] = field(default_factory=list)
    _rarity: dict[str, float] = field(default_factory=dict)
    _places: dict[str, list[int]] = field(default_factory=dict)
    _vectors: "Floats | None" = None

    def __post_init__(self) -> None:
        postings = defaultdict[str, list[int]](list)
        for place, note in enumerate(self.notes):
            for term in note.terms:
                postings[term].append(place)
        count = len(self.notes)
        self._postings = dict(postings)
        self._rarity = {term: log(1 + count / len(places)) for term, places in postings.items()}
        self._norms = [sqrt(sum(self._rarity[term] ** 2 for term in note.terms)) or 1.0 for note in self.notes]
        places = defaultdict[str, list[int]](list)
        for place, note in enumerate(self.notes):
            places[note.wording or " ".join(note.terms)].append(place)
        self._places = dict(places)
        self._vectors = None if self.encode is None or not places else self.encode(list(places))

    @classmethod
    def collect(
        cls, outcomes: Sequence[WorkerOutcome], encode: EncodeTexts | None = None, *, forget: bool = True
    ) -> "WorkerNotes":
        """Return the notes that these outcomes make, in the journal's order.

        Blame for wrong runs is shared over all of them. With `forget`, what a worker did before it fell is left out.
        ValueError where they are of several tenants.
        """
        join_scopes(one.scope for one in outcomes)
        found, falls = cls._of(outcomes, encode), list[WorkerFall]()
        uncertain = any(not one.certain for one in outcomes)
        kernel, model = found._kernel() if uncertain or forget else {}, RunModel()
        if uncertain or forget:
            falls, renamed, model = _find_falls(outcomes, kernel)
            falls, outcomes = (falls, renamed) if forget else ([], outcomes)
            found = cls._of(outcomes)
        groups = defaultdict[str, list[WorkerOutcome]](list)
        for one in outcomes:
            if not one.certain:
                groups[one.run].append(one)
        certain = [one for one in outcomes if one.certain]
        for _ in range(_BLAME_ROUNDS if groups else 0):
            chances = found._chances(kernel)
            blamed = [share_blame(group, [chances[_key(one)] for one in group], model) for group in groups.values()]
            found = cls._of([*certain, *(one for group in blamed for one in group)])
        notes = tuple(note for note in found.notes if not _is_past(note.worker))
        return cls(notes, _version(notes, falls), encode, tuple(falls))

    @classmethod
    def _of(cls, outcomes: Iterable[WorkerOutcome], encode: EncodeTexts | None = None) -> "WorkerNotes":
        groups = defaultdict[_NoteKey, list[WorkerOutcome]](list)
        for one in outcomes:
            groups[_key(one)].append(one)
        keys = sorted(groups, key=lambda key: (key[0], key[1], sorted(key[2].labels)))
        notes = tuple(_note(key, groups[key]) for key in keys)
        return cls(notes, _version(notes), encode)

    def _kernel(self) -> dict[tuple[str, ...], dict[tuple[str, ...], float]]:
        """Return how alike the wordings are, for each pair that is."""
        wordings = {note.terms: note.wording for note in self.notes}
        return {
            terms: {self.notes[place].terms: weight for place, weight in self._alike(terms, wording).items()}
            for terms, wording in wordings.items()
        }

    def _chances(self, kernel: Mapping[tuple[str, ...], Mapping[tuple[str, ...], float]]) -> dict[_NoteKey, float]:
        """Return the estimate for each note's worker at its own wording."""
        at = defaultdict[tuple[str, tuple[str, ...]], list[float]](lambda: [0.0, 0.0])
        of_worker = defaultdict[str, list[float]](lambda: [0.0, 0.0])
        for note in self.notes:
            for sums in (at[note.worker, note.terms], of_worker[note.worker]):
                sums[0] += note.tries
                sums[1] += note.right
        average = _average(of_worker.values())
        found = {}
        for note in self.notes:
            near = kernel[note.terms].items()
            tries = sum(weight * at[note.worker, terms][0] for terms, weight in near if (note.worker, terms) in at)
            right = sum(weight * at[note.worker, terms][1] for terms, weight in near if (note.worker, terms) in at)
            found[note.worker, note.terms, note.scope] = _shrunk(tries, right, of_worker[note.worker], average)
        return found

    def estimate(self, text: str, workers: Sequence[str], reader: Scope) -> list[NoteEstimate]:
        """Return what a task of this scope may know of each worker at a text, in their order."""
        alike = self._alike(subtask_terms(text), subtask_wording(text))
        tries, right = defaultdict[str, float](float), defaultdict[str, float](float)
        totals = defaultdict[str, list[float]](lambda: [0.0, 0.0, 0.0])
        for place, note in enumerate(self.notes):
            if note.worker not in workers or not note.scope.admits(reader):
                continue
            total = totals[note.worker]
            total[0] += note.tries
            total[1] += note.right
            total[2] += note.dollars
            weight = alike.get(place, 0.0)
            tries[note.worker] += weight * note.tries
            right[note.worker] += weight * note.right
        average = _average(totals.values())
        return [
            NoteEstimate(
                worker,
                tries[worker],
                right[worker],
                _shrunk(tries[worker], right[worker], totals[worker], average),
                totals[worker][0],
                totals[worker][1],
                totals[worker][2] / totals[worker][0] if totals[worker][0] else 0.0,
            )
            for worker in workers
        ]

    def _alike(self, words: Sequence[str], wording: str) -> dict[int, float]:
        """Return how alike each note's wording is to this one, for those that are: by meaning, or by rare words."""
        if self.encode is not None and self._vectors is not None:
            cosines = self._vectors @ self.encode([wording or " ".join(words)])[0]
            near = (cosines > _UNRELATED).nonzero()[0]
            nearest = near[(-cosines[near]).argsort(kind="stable")][:_MOST_NEIGHBORS].tolist()
            span, places = _SAME_KIND - _UNRELATED, list(self._places.values())
            weights = [min(1.0, (float(cosines[at]) - _UNRELATED) / span) ** _MEANING_SHARPNESS for at in nearest]
            return {place: weight for at, weight in zip(nearest, weights, strict=True) for place in places[at]}
        terms = [term for term in words if term in self._rarity]
        norm = sqrt(sum(self._rarity[term] ** 2 for term in terms)) or 1.0
        dots = defaultdict[int, float](float)
        for term in terms:
            for place in self._postings[term]:
                dots[place] += self._rarity[term] ** 2
        overlaps = {place: dot / norm / self._norms[place] for place, dot in dots.items()}
        return {place: overlap**_SHARPNESS for place, overlap in overlaps.items() if overlap >= _LEAST_ALIKE}

    def without(self, erased: Collection[str]) -> "WorkerNotes":
        """Return the notes without those that any of these runs is evidence of."""
        kept = tuple(note for note in self.notes if not set(erased).intersection(note.runs))
        return WorkerNotes(kept, _version(kept, self.falls), self.encode, self.falls)

    def save(self, file: Path) -> None:
        """Write the notes as JSON, whole or not at all."""
        body: dict[str, object] = {
            "format": FORMAT,
            "version": self.version,
            "notes": [_row(note) for note in self.notes],
        }
        body |= {"falls": [asdict(fall) for fall in self.falls]} if self.falls else {}
        part = make_private(file.with_name(f".{file.name}.{os.getpid()}"))
        part.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", "utf-8")
        part.replace(file)


def is_notes(file: Path) -> bool:
    """Whether a file says that it holds notes; OSError where it cannot be read."""
    with file.open("rb") as opened:
        return b'"shikisha-notes/' in opened.read(200)


def load_notes(file: Path, encode: EncodeTexts | None = None) -> WorkerNotes:
    """Read notes; ConfigError where there are none, or where they are not what was written."""
    try:
        if file.stat().st_size > _MAX_FILE:
            raise ConfigError(f"{file}: notes have at most {_MAX_FILE} bytes")
        body = json.loads(file.read_text("utf-8"))
        if body["format"] != FORMAT:
            raise ConfigError(f"{file}: expected the format {FORMAT}, found {body['format']!r}")
        notes = tuple(_read_note(row) for row in body["notes"])
        falls = tuple(_read_fall(row) for row in body.get("falls", ()))
        version = str(body["version"])
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{file}: no notes of `shikisha notes`: {type(error).__name__}: {error}") from None
    if version != _version(notes, falls):
        raise ConfigError(
            f"{file}: its content is not that of version {version[:12]}: it was changed after it was made"
        )
    return WorkerNotes(notes, version, encode, falls)


def _row(note: WorkerNote) -> dict[str, object]:
    return {**asdict(note), "scope": scope_as_json(note.scope)}


def _read_note(row: Mapping[str, object]) -> WorkerNote:
    terms, bases, runs = (_read_texts(row[name]) for name in ("terms", "bases", "runs"))
    tries, right, dollars, seconds = (_read_number(row[name]) for name in ("tries", "right", "dollars", "seconds"))
    wording = str(row.get("wording", ""))[:MOST_WORDING]
    scope = read_scope(row["scope"])
    return WorkerNote(str(row["worker"]), terms, int(tries), right, dollars, seconds, bases, runs, scope, wording)


def _read_fall(row: Mapping[str, object]) -> WorkerFall:
    if "deviations" in row:
        raise ValueError("it says of falls what an earlier version wrote; make it again with `shikisha notes --out`")
    runs, right, foretold, probability, outcomes, outcomes_right = (
        _read_number(row[name]) for name in ("runs", "right", "foretold", "probability", "outcomes", "outcomes_right")
    )
    return WorkerFall(
        str(row["worker"]), str(row["since"]), str(row["run"]), int(runs), int(right), foretold, probability,
        int(outcomes), outcomes_right, _read_texts(row["evidence"]),
    )  # fmt: skip


def _read_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of texts, found {value!r}")
    return tuple(map(str, value))


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError(f"expected a number from 0, found {value!r}")
    return value


def share_blame(group: Sequence[WorkerOutcome], chances: Sequence[float], model: RunModel) -> list[WorkerOutcome]:
    """Return the steps of one wrong run, each with its chance of having been right all the same."""
    trials, places = _trials_of(group, chances)
    found = model.share_blame(trials, right=False)
    shares = (found[place].own if is_own else found[place].part for place, is_own in places)
    return [replace(one, share=share) for one, share in zip(group, shares, strict=True)]


def _trials_of(
    group: Sequence[WorkerOutcome], chances: Sequence[float]
) -> tuple[list[PartTrial], list[tuple[int, bool]]]:
    """Return a run's parts, and for each step which part it did, and whether it is the part's first worker's.

    Of several opinions, the one with the best chance is the first.
    """
    parts = defaultdict[object, list[int]](list)
    for at, one in enumerate(group):
        parts[at if one.part is None else (one.part,)].append(at)
    trials, places = list[PartTrial](), dict[int, tuple[int, bool]]()
    for steps in parts.values():
        works = [at for at in steps if not group[at].judges] or steps
        first = max(works, key=lambda at: chances[at])
        places |= {at: (len(trials), at == first) for at in steps}
        one = group[first]
        trials.append(PartTrial(one.worker, chances[first], one.form, one.replaced))
    return trials, [places[at] for at in range(len(group))]


def _average(totals: Iterable[Sequence[float]]) -> float:
    """Return the share that is right of all work of all workers, with one right and one wrong outcome added."""
    tries, right = 2.0, 1.0
    for total in totals:
        tries += total[0]
        right += total[1]
    return right / tries


def _shrunk(tries: float, right: float, total: Sequence[float], average: float) -> float:
    """Return a worker's chance at a kind of work, drawn to its own share, and that to the share of all."""
    own = (total[1] + _WORKER_SHRINKAGE * average) / (total[0] + _WORKER_SHRINKAGE)
    return (right + _SHRINKAGE * own) / (tries + _SHRINKAGE)


def _key(one: WorkerOutcome) -> _NoteKey:
    return one.worker, one.terms, one.scope


def _note(key: _NoteKey, found: Sequence[WorkerOutcome]) -> WorkerNote:
    worker, terms, scope = key
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
        scope,
        found[0].wording,
    )


def _version(notes: Sequence[WorkerNote], falls: Sequence[WorkerFall] = ()) -> str:
    """Return the hash of the notes' content, and of what was forgotten where something was."""
    rows = [_row(note) for note in notes]
    body: object = {"notes": rows, "falls": [asdict(fall) for fall in falls]} if falls else rows
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@dataclass
class _RunningCounts:
    """What is known of each worker before a run, by wording; `near` are the nearest wordings of each."""

    near: Mapping[tuple[str, ...], Sequence[tuple[tuple[str, ...], float]]]
    at: dict[str, dict[tuple[str, ...], list[float]]] = field(default_factory=lambda: defaultdict(dict))
    totals: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    history: dict[str, list[WorkerOutcome]] = field(default_factory=lambda: defaultdict(list))

    def chance(self, one: WorkerOutcome) -> float:
        """Return how likely this step's worker is right at its wording."""
        known, tries, right = self.at[one.worker], 0.0, 0.0
        for terms, weight in self.near[one.terms]:
            if (sums := known.get(terms)) is not None:
                tries += weight * sums[0]
                right += weight * sums[1]
        return (right + _PRIOR_RIGHT) / (tries + _PRIOR_TRIES)

    def add(self, one: WorkerOutcome) -> None:
        """Add an outcome."""
        self.history[one.worker].append(one)
        for sums in (self.at[one.worker].setdefault(one.terms, [0.0, 0.0]), self.totals[one.worker]):
            sums[0] += 1
            sums[1] += one.share

    def forget(self, worker: str, since: str) -> tuple[int, float]:
        """Forget what a worker did before a run; return how many outcomes these were, and how many of them right."""
        history = self.history.pop(worker)
        first = next(at for at, one in enumerate(history) if one.run == since)
        self.at.pop(worker)
        self.totals.pop(worker)
        for one in history[first:]:
            self.add(one)
        return first, sum(one.share for one in history[:first])


def _find_falls(
    outcomes: Sequence[WorkerOutcome], kernel: Mapping[tuple[str, ...], Mapping[tuple[str, ...], float]]
) -> tuple[list[WorkerFall], list[WorkerOutcome], RunModel]:
    """Return who fell when, the outcomes, in which a worker before its fall has another name, and how runs go."""
    near = {
        terms: sorted(weights.items(), key=lambda one: (-one[1], one[0]))[:_FORETOLD_BY]
        for terms, weights in kernel.items()
    }
    watch, counts = FallWatch(), _RunningCounts(near)
    runs, falls = defaultdict[str, list[WorkerOutcome]](list), list[WorkerFall]()
    for one in outcomes:
        runs[one.run].append(one)
    first = dict[tuple[str, str], int]()  # the worker and the first run after a fall: which fall
    for run, group in runs.items():
        graded = [one for one in group if one.run_right is not None]
        chances = [counts.chance(one) for one in group]
        trials, _ = _trials_of(graded, [p for one, p in zip(group, chances, strict=True) if one.run_right is not None])
        known = {one.worker: counts.totals[one.worker][0] for one in graded}
        blamed = [not one.certain for one in group]
        shared = iter(
            share_blame(
                [one for one, is_blamed in zip(group, blamed, strict=True) if is_blamed],
                [chance for chance, is_blamed in zip(chances, blamed, strict=True) if is_blamed],
                watch.model,
            )
        )
        for one, is_blamed in zip(group, blamed, strict=True):
            counts.add(next(shared) if is_blamed else one)
        right = any(one.run_right for one in group)
        fall = watch.observe_run(run, trials, known, right=right) if trials else None
        if fall is not None:
            tries, tries_right = counts.forget(fall.worker, fall.since)
            first[fall.worker, fall.since] = len(falls)
            falls.append(replace(fall, outcomes=tries, outcomes_right=round(tries_right, 3)))
    if not falls:
        return falls, list(outcomes), watch.model
    renamed, past = list[WorkerOutcome](), dict[str, int]()
    for group in reversed(runs.values()):
        renamed += [
            replace(one, worker=f"{one.worker}{_PAST}{past[one.worker]}") if one.worker in past else one
            for one in reversed(group)
        ]
        for one in group:
            if (number := first.get((one.worker, one.run))) is not None:
                past[one.worker] = number
    return falls, renamed[::-1], watch.model


def _is_past(worker: str) -> bool:
    return _PAST in worker
