"""The folder of an evaluation: what it is of, the samples so far, the replies paid for.

    evaluation.json   what is evaluated: the taskset's version, the workers' settings, the caps; whoever comes back with
                      something else is refused
    samples.jsonl     one line a sample; of two for the same (entrant, task) the later one counts
    calls-*.jsonl     replies (see `calls`)
    evaluation.lock   held by the process that works in it

Invariants: a sample that `sync` has returned for is found again after a kill; nothing is ever rewritten. Deliberately
absent: reports (they are made from samples whenever somebody asks).
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.evals.response_cache import LineAppender
from shikisha.evals.samples import Entrant, Sample
from shikisha.evals.taskset import TaskItem

FORMAT = "shikisha evaluation folder 1"
_EMPTY_FOLDER_FILES = frozenset(
    {"evaluation.json", "evaluation.partial", "evaluation.lock"}
)  # what says nothing that was played


class SampleStore:
    """The samples of one evaluation, in memory and in its folder, which is `claimed`.

    `identity` says what is evaluated, as JSON.
    """

    def __init__(self, folder: Path, identity: Mapping[str, object]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _check_identity(folder / "evaluation.json", {"format": FORMAT, **identity})
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

    def of(self, entrant: Entrant, items: Iterable[TaskItem]) -> list[Sample]:
        """Return this entrant's samples on these tasks, in their order; those that are missing are left out."""
        found = (self.find(entrant, item) for item in items)
        return [sample for sample in found if sample is not None]

    def _take(self, sample: Sample) -> None:
        pair = (sample.entrant, sample.task_id)
        self._samples[pair] = sample
        self._tries[pair] += 1


def _read_samples(path: Path) -> Iterable[Sample]:
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
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
            if folder in made and not _keeps_anything(folder):
                _remove(made)
    finally:
        os.close(lock)


def _keeps_anything(folder: Path) -> bool:
    """Whether a sample, a reply or a file of somebody else's is in the folder."""
    return any(path.name not in _EMPTY_FOLDER_FILES and path.stat().st_size > 0 for path in folder.iterdir())


def _remove(made: Iterable[Path]) -> None:
    """Remove an evaluation's folder that keeps nothing, and the folders above it that were made for it."""
    with suppress(OSError):  # somebody has put something there meanwhile: it stays
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
