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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.evals.graders import GraderTools
from shikisha.evals.taskset import (
    DEFAULT_SHARES,
    TaskItem,
    Taskset,
    TaskSplit,
    content_key,
    content_split,
    split_fraction,
)
from shikisha.evals.tasksets.layouts import LAYOUTS, own_item
from shikisha.evals.tasksets.recorded import recorded_taskset
from shikisha.evals.tasksets.task_rows import ROW_FORMATS, HubDataset, TaskRow, hub_rows, is_row_file, read_rows
from shikisha.outcomes.log_reader import open_log

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
