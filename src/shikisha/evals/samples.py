"""Samples: what came of one task through one entrant, as one flat record, and the folder that keeps them.

    evaluation.json   what is evaluated: the taskset's version, the workers' settings, the caps; an evaluation of
                      anything else is refused in this folder
    samples.jsonl     one line a sample; of two for the same (entrant, task) the later one counts
    calls-*.jsonl     replies (see `response_cache`)
    runs.db           a journal of the runs, where their steps are kept for `shikisha eval show`
    evaluation.lock   held by the process that works in the folder

Invariants: a Sample holds everything that reports and comparisons count, and nothing in it is derived from another one;
a sample that `sync` has returned for is found again after a kill; nothing is ever rewritten. The answers' texts are in
journals; `found` is what the grader extracted.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import TypeVar, cast

from shikisha.core.errors import ConfigError, FaultKind
from shikisha.core.events import RunStatus
from shikisha.core.fast_dataclass import dataclass, field, fields
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.evals.graders import GradeMark
from shikisha.evals.response_cache import LineAppender
from shikisha.evals.taskset import TaskItem

FOLDER_FORMAT = "shikisha evaluation folder 1"
RUNS_FILE = "runs.db"
_EMPTY_FOLDER_FILES = frozenset(
    {"evaluation.json", "evaluation.partial", "evaluation.lock", RUNS_FILE, f"{RUNS_FILE}-wal", f"{RUNS_FILE}-shm"}
)  # what says nothing that was played
T = TypeVar("T", bound=tuple[object, ...])


class EntrantRole(StrEnum):
    """Why an entrant is there."""

    ASKED = "asked"  # named by the user
    REFERENCE = "reference"  # conducts too, in reports of versions that had a simulated taskset
    SINGLE = "single"  # one worker of the pool for everything
    RANDOM = "random"  # plans drawn at random
    FIXED = "fixed"  # the best fixed topology, chosen on other tasks
    CONSISTENCY = "consistency"  # the best worker asked again and again, at equal cost
    ONE_AGENT = "agent"  # one agent with all tools of the others
    ORACLE = "oracle"  # the best of the single workers, task by task: computed, never run


@dataclass(frozen=True, slots=True)
class Entrant:
    """A conductor in an evaluation, over which pool it plays each task, and why it is there.

    `worker` names the single worker (SINGLE) or the one asked again (CONSISTENCY); `note` says what a reader must know.
    Samples of another `version` of the same name (a rules file that was changed) do not count. `cache_only`: it plays
    as far as replies are cached, and pays for none.
    """

    name: str
    conductor: Conductor
    pool: Callable[[TaskItem], Pool] = field(compare=False)
    part: EntrantRole = EntrantRole.ASKED
    worker: str | None = None
    note: str = ""
    version: str = ""
    cache_only: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One task through one entrant.

    `valid`: the first plan proposed was the conductor's own and well formed (None: nothing was proposed, a cap or fault
    came first). `first_score` is the first round's own score, None where there was one round only. `workers` are
    those who performed steps, in order, after any substitution; `shape` is `Plan.topology()` of the first plan and
    `access` its access lists. `dollars` None: unknown; `uncertain` are those that calls without a known outcome may
    have cost besides. `seconds` are wall-clock from the run's start to its end.
    `confidence` is the share of the steps whose answer is, in canonical form, the run's answer (None with fewer than
    two answers), unless the conductor stated its own. `paid` are the dollars spent for it now, what came from the
    response cache left out. `version` is the entrant's and `grading` the item's: a sample of others does not count.
    `failure` is the class of failure of a run with tools (`runner.FailureClass`).
    """

    entrant: str
    task_id: str
    task_hash: str
    domain: str
    difficulty: str
    status: RunStatus
    mark: GradeMark
    score: float | None
    judged: bool = False
    found: str | None = None
    evidence: str = ""
    valid: bool | None = True
    first_score: float | None = None
    rounds: int = 0
    workers: tuple[str, ...] = ()
    shape: str = ""
    access: tuple[tuple[int, ...], ...] = ()
    faults: tuple[FaultKind, ...] = ()
    tokens: int = 0
    dollars: float | None = 0.0
    uncertain: float = 0.0
    paid: float = 0.0
    seconds: float = 0.0
    confidence: float | None = None
    reward: float | None = None
    version: str = ""
    grading: str = ""
    failure: str = ""

    @property
    def steps(self) -> int:
        """How many steps were performed."""
        return len(self.workers)

    def dumps(self) -> str:
        """Return it as a line of JSON."""
        return _dumps(dict(zip(_NAMES, _VALUES(self), strict=True)))

    @classmethod
    def loads(cls, line: str) -> "Sample":
        """Return the sample that `dumps` wrote; ValueError, KeyError or TypeError when it is none."""
        data = json.loads(line)
        # A quarter of a million samples repeat a few thousand texts, so equal ones are held once.
        for name in _SHARED:
            data[name] = intern(data[name])
        data["status"], data["mark"] = RunStatus(data["status"]), GradeMark(data["mark"])
        data["workers"] = _intern_tuple(tuple(data["workers"]))
        data["faults"] = tuple(map(FaultKind, data["faults"]))
        data["access"] = _intern_tuple(tuple(tuple(seen) for seen in data["access"]))
        return cls(**data)


_NAMES = tuple(each.name for each in fields(Sample))
_VALUES = attrgetter(*_NAMES)
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_SHARED = ("entrant", "task_id", "task_hash", "domain", "difficulty", "shape", "evidence", "version", "grading")
_TUPLES: dict[tuple[object, ...], tuple[object, ...]] = {}
_MOST_TUPLES = 100_000


def _intern_tuple(made: T) -> T:
    """Return the first tuple that was equal to this one, so that equal ones are kept once."""
    if len(_TUPLES) >= _MOST_TUPLES:
        _TUPLES.clear()
    return cast("T", _TUPLES.setdefault(made, made))


class SampleStore:
    """The samples of one evaluation, in memory and in its folder, which `lock_folder` holds.

    `identity` says what is evaluated, as JSON.
    """

    def __init__(self, folder: Path, identity: Mapping[str, object]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _check_identity(folder / "evaluation.json", {"format": FOLDER_FORMAT, **identity})
        self._file = LineAppender(folder / "samples.jsonl")
        self._samples: dict[tuple[str, str], Sample] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        for sample in _read_samples(folder / "samples.jsonl"):
            self._take(sample)

    def put(self, sample: Sample, line: str) -> None:
        """Add a sample, with the line that it is as JSON; it is on the disk after the next `sync`."""
        self._file.put(line)
        self._take(sample)

    async def sync(self) -> None:
        """Return when every sample so far is on the disk."""
        await self._file.sync()

    async def aclose(self) -> None:
        """Write what is left."""
        await self._file.aclose()

    def find(self, entrant: Entrant, item: TaskItem) -> Sample | None:
        """Return this entrant's sample on this task, if there is one of the same version, content and grading."""
        sample = self._samples.get((entrant.name, item.task.id))
        if sample is None or (sample.version, sample.grading) != (entrant.version, item.grading):
            return None
        return sample if sample.task_hash == item.task.content_hash else None

    def tries(self, entrant: Entrant, item: TaskItem) -> int:
        """Return how many samples of this pair there have been."""
        return self._tries[entrant.name, item.task.id]

    def samples_of(self, entrant: Entrant, items: Iterable[TaskItem]) -> list[Sample]:
        """Return this entrant's samples on these tasks, in their order; those that are missing are left out."""
        found = (self.find(entrant, item) for item in items)
        return [sample for sample in found if sample is not None]

    def _take(self, sample: Sample) -> None:
        pair = (sample.entrant, sample.task_id)
        self._samples[pair] = sample
        self._tries[pair] += 1


def run_digest(entrant: tuple[str, str], task: tuple[str, str], attempt: int) -> str:
    """Return what the id of a run ends with: of an entrant (name, version) on a task (id, content hash), for a try."""
    return sha256("\0".join((*entrant, *task, str(attempt))).encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class KeptSample:
    """A sample of a folder, and how many there were of its entrant and task before it."""

    sample: Sample
    earlier: int = 0

    def digests(self) -> tuple[str, ...]:
        """Return what its run's id may end with, the likeliest first; a try may leave no sample."""
        sample = self.sample
        of = ((sample.entrant, sample.version), (sample.task_id, sample.task_hash))
        return tuple(run_digest(*of, attempt) for attempt in reversed(range(self.earlier + 1)))


def read_kept_samples(folder: Path) -> tuple[KeptSample, ...]:
    """Return the samples of a folder that count, in the order in which their pairs were played first."""
    path = folder / "samples.jsonl"
    if not path.exists():
        raise ConfigError(
            f"{folder}: no evaluation's folder: it has no samples.jsonl (`shikisha eval --keep` makes one)"
        )
    found: dict[tuple[str, str], KeptSample] = {}
    for sample in _read_samples(path, growing=True):
        pair = (sample.entrant, sample.task_id)
        earlier = found[pair].earlier + 1 if pair in found else 0
        found[pair] = KeptSample(sample, earlier)
    return tuple(found.values())


def _read_samples(path: Path, *, growing: bool = False) -> Iterable[Sample]:
    """Yield the samples of a file; `growing`: its last line may not be whole yet."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if growing and not line.endswith("\n"):
                return
            try:
                yield Sample.loads(line)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{path}: line {number}: not a sample: {error}") from None


def _check_identity(path: Path, identity: Mapping[str, object]) -> None:
    """Write down what is evaluated, or refuse a folder in which something else was."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(identity, indent=1, ensure_ascii=False), encoding="utf-8")
        partial.replace(path)
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    for name in sorted({*identity, *there}):
        if there.get(name) != identity.get(name):
            raise ConfigError(
                f"{path}: {name}: this folder keeps an evaluation of {_short(there.get(name))}, not of "
                f"{_short(identity.get(name))}: choose another folder (--keep)"
            )


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder for this process, before any file in it is opened; ConfigError when another one works in it.

    A folder that this made, and in which nothing was kept in the end, is taken away again.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "evaluation.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConfigError(f"{folder}: nothing can be kept there: {error.strerror}") from None
    try:
        _lock(lock, folder)
        try:
            yield
        finally:
            if folder in made and not any(
                path.name not in _EMPTY_FOLDER_FILES and path.stat().st_size > 0 for path in folder.iterdir()
            ):
                _remove(made)
    finally:
        os.close(lock)


def _remove(made: Iterable[Path]) -> None:
    """Remove an evaluation's folder that keeps nothing, and the folders above it that were made for it."""
    with suppress(OSError):  # a file was put there meanwhile: it stays
        for place, folder in enumerate(made):
            for path in () if place else tuple(folder.iterdir()):
                path.unlink()
            folder.rmdir()


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"{folder}: another process evaluates in this folder") from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be locked: {error.strerror}") from None
