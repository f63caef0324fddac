"""Contamination: tasks of one set that are in another one too, word for word or nearly so.

The method is that of GPT-3 (arXiv 2005.14165): tasks are compared by runs of 13 words. Texts below 40 words are
compared by runs of 5, since one changed word would break most of their longer runs. The similarity is the share of the
shorter text's runs that the other text holds. Invariants: only words and numbers count, in lower case, without our
instruction; a run that more than 50 tasks of a set share is boilerplate and does not count. Only runs that both sets
share are indexed: comparing ten thousand tasks with ten thousand takes seconds. It finds no paraphrases and no
translations.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from shikisha.core.fast_dataclass import dataclass
from shikisha.core.task import Task
from shikisha.evals.taskset import TaskItem, content_key
from shikisha.evals.tasksets.layouts import strip_instruction

LONG, LONG_RUN, SHORT_RUN = 40, 13, 5  # words
_BOILERPLATE = 50  # tasks
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class TaskOverlap:
    """Two tasks' ids, how much of the shorter one the other holds (1: all), and whether their content is the same."""

    one: str
    other: str
    similarity: float
    same: bool


def find_contamination(
    one: Iterable[TaskItem], other: Iterable[TaskItem], least: float = 0.5
) -> tuple[TaskOverlap, ...]:
    """Return the pairs of tasks with a similarity of at least `least` (above 0), the most similar first."""
    mine, theirs = [_TaskWords(item.task) for item in one], [_TaskWords(item.task) for item in other]
    found: dict[tuple[int, int], float] = {}
    for run in (LONG_RUN, SHORT_RUN):
        found |= _similarities(mine, theirs, run)
    keys: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(theirs):
        keys[text.key].append(place)
    same = {(place, twin) for place, text in enumerate(mine) for twin in keys.get(text.key, ())}
    overlaps = [
        TaskOverlap(mine[a].id, theirs[b].id, 1.0 if (a, b) in same else found[a, b], (a, b) in same)
        for a, b in found.keys() | same
        if (a, b) in same or found[a, b] >= least
    ]
    return tuple(sorted(overlaps, key=lambda pair: (-pair.similarity, pair.one, pair.other)))


class _TaskWords:
    """A task's words, and the length of the runs that it is compared by when it is the shorter one."""

    __slots__ = ("id", "key", "run", "words")

    def __init__(self, task: Task) -> None:
        self.id = task.id
        self.key = content_key(task)
        self.words = _WORD.findall(f"{strip_instruction(task.prompt)} {task.context}".casefold())
        self.run = LONG_RUN if len(self.words) >= LONG else SHORT_RUN

    def runs(self, length: int) -> set[int]:
        """Return the hashes of all runs of so many words; of a shorter text, of the whole."""
        last = max(1, len(self.words) - length + 1)
        return {hash(tuple(self.words[at : at + length])) for at in range(last)}


def _similarities(
    mine: Sequence[_TaskWords], theirs: Sequence[_TaskWords], length: int
) -> Mapping[tuple[int, int], float]:
    """Return the similarity of all pairs whose shorter text is compared by runs of this length."""
    in_mine, in_theirs = _run_counts(mine, theirs, length), _run_counts(theirs, mine, length)
    shared = {
        run for run, count in in_mine.items() if count <= _BOILERPLATE and 0 < in_theirs.get(run, 0) <= _BOILERPLATE
    }
    if not shared:
        return {}
    boilerplate = {run for counts in (in_mine, in_theirs) for run, count in counts.items() if count > _BOILERPLATE}
    del in_mine, in_theirs
    left, right = _shared_runs(mine, length, shared, boilerplate), _shared_runs(theirs, length, shared, boilerplate)
    index: dict[int, list[int]] = defaultdict(list)
    for place, (runs, _) in right.items():
        for run in runs:
            index[run].append(place)
    found: dict[tuple[int, int], float] = {}
    for place, (runs, size) in left.items():
        for twin, common in Counter(at for run in runs for at in index.get(run, ())).items():
            if min(mine[place].run, theirs[twin].run) == length:
                found[place, twin] = common / min(size, right[twin][1])
    return found


def _run_counts(texts: Sequence[_TaskWords], others: Sequence[_TaskWords], length: int) -> Mapping[int, int]:
    """Count in how many texts each run occurs; none when no pair is compared by this length."""
    if not any(text.run == length for text in (*texts, *others)):
        return {}
    return Counter(run for text in texts if text.run >= length for run in text.runs(length))


def _shared_runs(
    texts: Sequence[_TaskWords], length: int, shared: Set[int], boilerplate: Set[int]
) -> Mapping[int, tuple[Set[int], int]]:
    """Return, for the texts that hold shared runs: these, and how many runs they have in all, boilerplate aside."""
    marked = {}
    for place, text in enumerate(texts):
        if text.run >= length:
            runs = text.runs(length)
            if common := runs & shared:
                marked[place] = (common, len(runs - boilerplate))
    return marked
