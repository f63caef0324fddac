"""Tasksets by name: the one way from a name to a Taskset, and which split each of its tasks is in.

A name is that of a set, followed by where its rows are: nothing (`DATA/NAME/*.jsonl`, see `task_rows` for the
formats), `:PATH` of a file or folder, `@hub` for the set's own place on the hub, or `@ID` for another dataset there or
a folder that the `datasets` library saved. A path alone is a user's own file. Invariants: an unknown name is an error
that lists the known ones; a set is read completely before anything of it is used, so that a malformed row anywhere is
an error; ids are unique; nothing is downloaded unless the name says so.

A row's own split comes first, then the split in its file's name (`train.jsonl`, `test-00000-of-00001.parquet`) where
the files name at least two, then the content hash. Where files give a train split and no dev split, dev is taken out of
train by content hash. The same content is never in two splits: a user's own set is refused with both places named; of a
published set, which users cannot mend (MMLU's dev and test share five questions), the copy nearer to training is
dropped and named.
"""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.kinds import Registry
from shikisha.core.task import Task
from shikisha.evals.graders import Grader, GraderTools
from shikisha.evals.graders.grader_registry import GRADERS
from shikisha.evals.taskset import (
    DEFAULT_SHARES,
    DIMENSIONS,
    GradeRigour,
    TaskDimensions,
    TaskEnvironment,
    TaskItem,
    Taskset,
    TaskSpecification,
    TaskSplit,
    content_key,
    content_split,
    default_dimensions,
    split_fraction,
)
from shikisha.evals.tasksets.recorded import recorded_taskset
from shikisha.evals.tasksets.task_rows import ROW_FORMATS, HubDataset, TaskRow, hub_rows, is_row_file, read_rows
from shikisha.outcomes.log_reader import open_log

# What a taskset's layout is, the names of those that plug-ins bring, and the layout of a user's own rows.
#
# A layout is a function from a row and the graders' tools to a TaskItem. Its docstring lists the columns that it reads.
# Invariants: a malformed row is a ConfigError that names the field; a reference answer or solution goes to the grader
# and never into the task; the instruction that we add is the last paragraph of a prompt, so `strip_instruction` gives
# the benchmark's own words back. A benchmark is a plug-in: `plugins/published` and `plugins/code` have those of others.

# Each instruction asks for the form that its grader reads best. They are part of task hashes: do not reword them.
CHOICE = 'End with a line "The answer is (X)", where X is the letter of the right option.'
BOXED = r"End with the final answer in \boxed{}."
NUMBER = 'End with a line "The answer is N", where N is a number without its unit.'
PROGRAM = (
    "Write a Python program that reads its input from standard input and prints the result to standard output. "
    "Answer with the whole program in one ```python block."
)
FUNCTION = "Write this in Python. Answer with all of the code, imports included, in one ```python block."
PATCH = "Answer with a patch to the repository in the unified diff format, and nothing else."
_INSTRUCTIONS = (CHOICE, BOXED, NUMBER, PROGRAM, FUNCTION, PATCH)


def with_instruction(question: str, instruction: str) -> str:
    """Return a question with one of our instructions as its last paragraph."""
    return f"{question.strip()}\n\n{instruction}"


def strip_instruction(prompt: str) -> str:
    """Return a prompt without the instruction that we added."""
    for instruction in _INSTRUCTIONS:
        prompt = prompt.removesuffix(instruction)
    return prompt.rstrip()


_OWN_TASK_FIELDS = frozenset(
    {"prompt", "context", "id", "domain", "difficulty", "split", "labels", "goal", *DIMENSIONS}
)


def own_item(row: TaskRow, tools: GraderTools, default: Mapping[str, object] | None = None) -> TaskItem:
    """A user's own row: a prompt and how its answers are graded.

    Fields: prompt; grader (a kind of `grader_registry`) with its settings next to it, or in an object `check`;
    optional: context, id, domain, difficulty, split (train, dev, test), labels (a list), environment, specification,
    rigour, goal (`dimensions`). A judge sees context and prompt. `default` is the grader of rows that bring none,
    `{"checker": KIND, ...}`; a row's further fields complete its settings. A row without any grader, or with a field
    that its grader does not know, is refused.
    """
    task = Task(
        row.text("prompt"),
        row.optional("context"),
        row.optional("id") or row.place,
        row.optional("domain"),
        row.texts("labels", least=0),
    )
    kind, spec = _own_grader(row, default)
    if kind in {"judge", "entry_point"}:
        spec = {"prompt": "\n\n".join(filter(None, (task.context, task.prompt))), **spec}
    check = row.grader("check" if row.has("check") else "checker", kind, spec, tools)
    split = row.optional("split")
    if split and split not in set(TaskSplit):
        raise row.error_at("split", f"expected {', '.join(TaskSplit)}, found {split[:40]!r}")
    said = _own_dimensions(row, check)
    return TaskItem(task, check, row.optional("difficulty"), TaskSplit(split) if split else None, said=said)


def _own_dimensions(row: TaskRow, grader: Grader) -> TaskDimensions | None:
    """Return where a row says that its task stands; None where it says nothing."""
    chosen = {name: row.text(name) for name in DIMENSIONS if row.has(name)}
    for name, value in chosen.items():
        if value not in set(DIMENSIONS[name]):
            raise row.error_at(name, f"expected {', '.join(DIMENSIONS[name])}, found {value[:40]!r}")
    goal = row.optional("goal")
    if not chosen and not goal:
        return None
    usual = default_dimensions(grader)
    return TaskDimensions(
        TaskEnvironment(chosen.get("environment", usual.environment)),
        TaskSpecification(chosen.get("specification", usual.specification)),
        GradeRigour(chosen.get("rigour", usual.rigour)),
        goal,
    )


def _own_grader(row: TaskRow, default: Mapping[str, object] | None) -> tuple[str, Mapping[str, object]]:
    """Return the kind of a row's grader and its settings."""
    others = {*_OWN_TASK_FIELDS, "checker", "check"}
    spec = {field: value for field, value in row.data.items() if row.has(field) and field not in others}
    if row.has("check"):
        if spec:
            raise row.error_at(next(iter(spec)), "expected the grader's settings inside check, not next to it")
        spec = dict(row.part("check").data)
    if row.has("checker"):
        kind = row.text("checker")
    elif default is not None:
        kind = str(default.get("checker"))
        spec = {field: value for field, value in default.items() if field != "checker"} | spec
    else:
        raise row.error_at("checker", "this row has none, and none is given for the file")
    try:
        GRADERS[kind]
    except UnknownName as error:
        raise row.error_at("checker", str(error)) from None
    return kind, spec


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """A benchmark: its place on the Hugging Face hub (None: it has none), and the function that makes a task of a row.

    `read_folder` instead: the whole set from a folder that holds more than rows. One of the two is there.
    """

    hub: HubDataset | None = None
    make_item: Callable[[TaskRow, GraderTools], TaskItem] | None = None
    read_folder: Callable[[Path, GraderTools], Taskset] | None = None


LAYOUTS: Registry[TaskLayout] = Registry(
    "tasksets",
    "taskset",
    TaskLayout,
    {},
    {
        **dict.fromkeys(
            ("bigcodebench", "humaneval", "livecodebench", "mbpp", "repository", "swebench-verified"), "shikisha-code"
        ),
        **dict.fromkeys(
            ("aime", "gpqa-diamond", "gsm8k", "math-500", "mmlu", "mmlu-pro", "rlpr"), "shikisha-published"
        ),
    },
)


# Contamination: tasks of one set that are in another one too, word for word or nearly so.
#
# The method is that of GPT-3 (arXiv 2005.14165): tasks are compared by runs of 13 words. Texts below 40 words are
# compared by runs of 5, since one changed word would break most of their longer runs. The similarity is the share of
# the shorter text's runs that the other text holds. Invariants: only words and numbers count, in lower case, without
# our instruction; a run that more than 50 tasks of a set share is boilerplate and does not count. Only runs that both
# sets share are indexed: comparing ten thousand tasks with ten thousand takes seconds. It finds no paraphrases and no
# translations.

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


OWN_SET = "own"
_REMOVED_SETS = ("rehearsal", "rehearsal-large")
BUILT_IN_SETS = (OWN_SET, "recorded")
DATA_VARIABLE = "SHIKISHA_DATA"

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """`split` None: all of it; `count` None: all tasks, else a sample that `seed` chooses.

    `shares` are those of the splits by content hash. `grader` is for a user's own rows that bring none:
    `{"checker": KIND, ...}` with the kind's settings.
    """

    split: TaskSplit | None = None
    count: int | None = None
    seed: int = 0
    shares: Mapping[TaskSplit, float] = field(default_factory=lambda: DEFAULT_SHARES)
    grader: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if any(share < 0 for share in self.shares.values()) or abs(sum(self.shares.values()) - 1) > _ROUNDING:
            raise ConfigError(f"shares of splits: expected numbers from 0 that add up to 1, found {dict(self.shares)}")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"number of tasks: expected 1 or more, found {self.count}")

    def select(self, whole: Taskset) -> Taskset:
        """Return what is wanted of a whole set; ConfigError when its split is empty."""
        if self.shares != DEFAULT_SHARES:
            whole = Taskset(
                whole.name,
                (
                    (item if item.given is not None else replace(item, given=content_split(item.task, self.shares)))
                    for item in whole
                ),
                whole.notes,
            )
        part = whole if self.split is None else whole.only(self.split)
        return part if self.count is None else part.sample(self.count, self.seed)


NO_TOOLS = GraderTools()
ALL_TASKS = TaskSelection()


class TasksetName(NamedTuple):
    """A name, taken apart: the set, and the path or the place on the hub that was given with it."""

    known: str
    path: Path | None = None
    hub: str | None = None


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item, where it came from (for errors), and the split that its file's name says."""

    item: TaskItem
    where: str
    named: TaskSplit | None = None


def load_taskset(
    name: str, data: Path | None = None, *, wanted: TaskSelection = ALL_TASKS, tools: GraderTools = NO_TOOLS
) -> Taskset:
    """Return a taskset, or the part of it that is wanted.

    `data` is the folder of all sets (by default the environment's SHIKISHA_DATA). UnknownName for a set that is not
    registered; ConfigError names file, line and field of what is wrong; MissingExtra names a library that it takes.
    """
    found = parse_taskset_name(name)
    if read := _folder_reader(found.known):
        _refuse_grader(found.known, wanted)
        if found.hub is not None:
            raise ConfigError(f"taskset {found.known}: expected {found.known}:FOLDER")
        return wanted.select(read(_set_path(found, data), tools))
    make = _item_maker(found.known, wanted)
    title = found.path.stem if found.known == OWN_SET and found.path else found.known
    placed = [
        PlacedItem(replace(make(row, tools), grading=_grading_hash(row, wanted)), row.where, named)
        for named, rows in _row_sources(found, data)
        for row in rows
    ]
    seen: dict[str, PlacedItem] = {}
    for one in placed:
        other = seen.setdefault(one.item.task.id, one)
        if other is not one:
            raise ConfigError(f"{one.where}: the id {one.item.task.id!r} is that of {other.where} too")
    items, notes = assign_splits(placed, wanted.shares, published=found.known in LAYOUTS)
    return wanted.select(Taskset(title, items, notes))


def _grading_hash(row: TaskRow, wanted: TaskSelection) -> str:
    """Return a hash of the whole row, since any of its fields may say how answers are graded."""
    whole = json.dumps([dict(row.data), wanted.grader and dict(wanted.grader)], default=repr)
    return sha256(whole.encode()).hexdigest()[:12]


def parse_taskset_name(name: str) -> TasksetName:
    """Take a name apart; UnknownName when there is no such set, ConfigError for one that left."""
    for mark in (":", "@"):
        known, _, rest = name.partition(mark)
        if (known in BUILT_IN_SETS or LAYOUTS.knows(known)) and rest:
            return TasksetName(known, Path(rest)) if mark == ":" else TasksetName(known, hub=rest)
    if name in BUILT_IN_SETS or LAYOUTS.knows(name):
        return TasksetName(name)
    if is_row_file(Path(name)):
        return TasksetName(OWN_SET, Path(name))
    if name.partition(":")[0] in _REMOVED_SETS:
        raise ConfigError(f"taskset {name}: the first simulated world left: name rows of your own, or another set")
    raise UnknownName("taskset", name, (*BUILT_IN_SETS, *LAYOUTS, "a path ending in .jsonl, .json, .csv or .parquet"))


def data_folder(data: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of all sets; ConfigError when neither option nor variable gives one."""
    if data is None and not environ.get(DATA_VARIABLE):
        raise ConfigError(f"where are the tasksets? expected {DATA_VARIABLE}=FOLDER, or the set's name as NAME:PATH")
    return data or Path(environ[DATA_VARIABLE])


def _row_sources(name: TasksetName, data: Path | None) -> Iterator[tuple[TaskSplit | None, Iterator[TaskRow]]]:
    """Yield the set's files or hub splits, each with the split that its name says, and its rows."""
    if name.hub is not None:
        for title, rows in hub_rows(_hub(name.known, name.hub)):
            yield split_from_file_name(title), rows
    else:
        for file in _files(_set_path(name, data)):
            yield split_from_file_name(file.name), read_rows(file)


def _set_path(name: TasksetName, data: Path | None) -> Path:
    return name.path or data_folder(data, os.environ) / name.known


def _files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return (path,)
    found = sorted(file for file in path.glob("*") if is_row_file(file))
    if not found:
        raise ConfigError(f"{path}: expected a file or folder of rows there ({', '.join(ROW_FORMATS)})")
    stems: dict[str, Path] = {}
    for file in found:
        other = stems.setdefault(file.name.partition(".")[0], file)
        if other is not file:
            raise ConfigError(f"{path}: expected {other.name} or {file.name}, not both")
    return found


def _hub(known: str, asked: str) -> HubDataset:
    if asked != "hub":
        return HubDataset(asked)
    hub = LAYOUTS[known].hub if known in LAYOUTS else None
    if hub is None:
        raise ConfigError(f"taskset {known}: it has no place on the hub; expected {known}@ID or {known}:PATH")
    return hub


def _item_maker(known: str, wanted: TaskSelection) -> Callable[[TaskRow, GraderTools], TaskItem]:
    if known == OWN_SET:
        return partial(own_item, default=wanted.grader)
    _refuse_grader(known, wanted)
    make = LAYOUTS[known].make_item
    if make is None:
        raise ConfigError(f"taskset {known}: its plug-in brings no function that makes a task of a row")
    return make


def _refuse_grader(known: str, wanted: TaskSelection) -> None:
    if wanted.grader is not None:
        raise ConfigError(f"taskset {known}: it brings its own graders; a grader can be given for own rows only")


def _folder_reader(known: str) -> Callable[[Path, GraderTools], Taskset] | None:
    """Return what reads a set that is made of more than rows; None for a set of rows."""
    if known == "recorded":
        return lambda folder, _: recorded_taskset(open_log(folder))
    return None if known == OWN_SET else LAYOUTS[known].read_folder


SPLIT_WORDS: Mapping[str, TaskSplit] = {
    "train": TaskSplit.TRAIN,
    "dev": TaskSplit.DEV,
    "val": TaskSplit.DEV,
    "valid": TaskSplit.DEV,
    "validation": TaskSplit.DEV,
    "test": TaskSplit.TEST,
    "heldout": TaskSplit.TEST,
}
_SPLIT_ORDER = (TaskSplit.TRAIN, TaskSplit.DEV, TaskSplit.TEST)
_MOST_NAMED = 20  # of what was dropped
_LETTERS_ONLY = re.compile(r"[a-z]+")


def split_from_file_name(name: str) -> TaskSplit | None:
    """Return the split that a file's name says; None where it says none, or two."""
    said = {SPLIT_WORDS[word] for word in _LETTERS_ONLY.findall(name.casefold()) if word in SPLIT_WORDS}
    return said.pop() if len(said) == 1 else None


def assign_splits(
    found: Sequence[PlacedItem], shares: Mapping[TaskSplit, float], *, published: bool = False
) -> tuple[tuple[TaskItem, ...], tuple[str, ...]]:
    """Return the items, each with its split settled, and notes on what was dropped.

    ConfigError when two splits share content and the set is not a published one.
    """
    named = {one.named for one in found}
    by_name = len(named - {None}) > 1
    dev = 0.0
    if by_name and TaskSplit.DEV not in named:
        dev = shares.get(TaskSplit.DEV, 0.0) / (
            (shares.get(TaskSplit.DEV, 0.0) + shares.get(TaskSplit.TRAIN, 0.0)) or 1.0
        )
    settled = [replace(one, item=_assign_split(one, by_name, dev, shares)) for one in found]
    notes: tuple[str, ...] = ()
    if published:
        settled, notes = _drop_shared(settled)
    refuse_shared(settled)
    return tuple(one.item for one in settled), notes


def _drop_shared(found: Sequence[PlacedItem]) -> tuple[list[PlacedItem], tuple[str, ...]]:
    """Drop what stands in a split that is further from training too; the notes name what was dropped."""
    kept: dict[str, PlacedItem] = {}
    for one in found:
        known = kept.setdefault(content_key(one.item.task), one)
        if _SPLIT_ORDER.index(one.item.split) > _SPLIT_ORDER.index(known.item.split):
            kept[content_key(one.item.task)] = one
    left, dropped = [], []
    for one in found:
        best = kept[content_key(one.item.task)].item
        if best.split is one.item.split:
            left.append(one)
        else:
            dropped.append(f"{one.item.task.id} ({one.item.split}) is {best.task.id} ({best.split})")
    if not dropped:
        return left, ()
    more = f", and {len(dropped) - _MOST_NAMED} more" if len(dropped) > _MOST_NAMED else ""
    what = (
        "1 task was dropped, as it stands" if len(dropped) == 1 else f"{len(dropped)} tasks were dropped, as they stand"
    )
    return left, (f"{what} in a split further from training too: {'; '.join(dropped[:_MOST_NAMED])}{more}.",)


def refuse_shared(found: Iterable[PlacedItem]) -> None:
    """Refuse items of two splits whose content is the same but for case and white space; names both places."""
    seen: dict[str, PlacedItem] = {}
    for one in found:
        other = seen.setdefault(content_key(one.item.task), one)
        if other.item.split is not one.item.split:
            first, second = f"{other.where} ({other.item.split})", f"{one.where} ({one.item.split})"
            raise ConfigError(f"splits overlap: {first} and {second} hold the same task")


def _assign_split(one: PlacedItem, by_name: bool, dev: float, shares: Mapping[TaskSplit, float]) -> TaskItem:
    if one.item.given is not None:
        return one.item
    if not by_name or one.named is None:
        given = content_split(one.item.task, shares)
    else:
        out_of_train = one.named is TaskSplit.TRAIN and split_fraction(one.item.task, "split") < dev
        given = TaskSplit.DEV if out_of_train else one.named
    return replace(one.item, given=given)
