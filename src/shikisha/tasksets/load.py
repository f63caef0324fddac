"""Tasksets by name: the registry, and the one way from a name to a Taskset.

A name is one of `NAMES`, followed by where its rows are: nothing (`DATA/NAME/*.jsonl`, see `files` for the formats),
`:PATH` of a file or folder, `@hub` for the set's own place on the hub, or `@ID` for another place there or a folder
that the `datasets` library saved. A path alone is a user's own file. Invariants: an unknown name is an error that lists
the known ones; a set is read whole before anything of it is used, so that a malformed row anywhere is an error; ids are
unique, and splits share no content (`splits` says what becomes of published sets that do). Deliberately absent: plug-in
discovery, and downloading unasked.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from shikisha.errors import ConfigError, UnknownName
from shikisha.grade import Tools
from shikisha.taskset import Item, Split, Taskset
from shikisha.tasksets.files import FORMATS, is_rows, read_rows
from shikisha.tasksets.hub import Hub, hub_rows
from shikisha.tasksets.rows import Row
from shikisha.tasksets.splits import Placed, divided, split_named
from shikisha.tasksets.wanted import Wanted

OWN = "own"
SETS: Mapping[str, str] = {  # a row is a task: the module's `item` makes it
    "aime": "shikisha.tasksets.aime",
    "bigcodebench": "shikisha.tasksets.bigcodebench",
    "gpqa-diamond": "shikisha.tasksets.gpqa",
    "gsm8k": "shikisha.tasksets.gsm8k",
    "humaneval": "shikisha.tasksets.humaneval",
    "livecodebench": "shikisha.tasksets.livecodebench",
    "math-500": "shikisha.tasksets.math500",
    "mbpp": "shikisha.tasksets.mbpp",
    "mmlu": "shikisha.tasksets.mmlu",
    "mmlu-pro": "shikisha.tasksets.mmlu_pro",
    "rlpr": "shikisha.tasksets.rlpr",
}
REHEARSALS = ("rehearsal", "rehearsal-large")
WHOLE = ("recorded", *REHEARSALS, "swebench-verified")  # made of more than rows
NAMES = (OWN, *SETS, *WHOLE)
DATA = "SHIKISHA_DATA"
NO_TOOLS = Tools()
ALL = Wanted()
_REHEARSED = 100  # tasks, where nobody says how many


class SetModule(Protocol):
    """What the module of a set of rows exposes."""

    HUB: Hub

    def item(self, row: Row, tools: Tools) -> Item:
        """Make the row's item; ConfigError names the field that is wrong."""
        ...


class Name(NamedTuple):
    """A name, taken apart: the set, and the path or the place on the hub that was given with it."""

    known: str
    path: Path | None = None
    hub: str | None = None


def load(name: str, data: Path | None = None, *, wanted: Wanted = ALL, tools: Tools = NO_TOOLS) -> Taskset:
    """Return a taskset, or the part of it that is wanted.

    `data` is the folder of all sets (by default the environment's SHIKISHA_DATA). UnknownName for a set that is not
    registered; ConfigError names file, line and field of what is wrong; MissingExtra names a library that it takes.
    """
    found = parse(name)
    if found.known in WHOLE:
        return _whole(found, data, wanted)
    make = _maker(found.known, wanted)
    title = found.path.stem if found.known == OWN and found.path else found.known
    placed = [
        Placed(replace(make(row, tools), grading=_grading(row, wanted)), row.where, named)
        for named, rows in _pieces(found, data)
        for row in rows
    ]
    _refuse_same_ids(placed)
    items, notes = divided(placed, wanted.shares, published=found.known in SETS)
    return wanted.of(Taskset(title, items, notes))


def _grading(row: Row, wanted: Wanted) -> str:
    """Return a hash of the whole row, since any of its fields may say how answers are graded."""
    whole = json.dumps([dict(row.data), wanted.checker and dict(wanted.checker)], default=repr)
    return sha256(whole.encode()).hexdigest()[:12]


def parse(name: str) -> Name:
    """Take a name apart; UnknownName when there is no such set."""
    for mark in (":", "@"):
        known, _, rest = name.partition(mark)
        if known in NAMES and rest:
            return Name(known, Path(rest)) if mark == ":" else Name(known, hub=rest)
    if name in NAMES:
        return Name(name)
    if is_rows(Path(name)):
        return Name(OWN, Path(name))
    raise UnknownName("taskset", name, (*NAMES, "a path ending in .jsonl, .json, .csv or .parquet"))


def data_folder(data: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of all sets; ConfigError when nobody said which."""
    if data is None and not environ.get(DATA):
        raise ConfigError(f"where are the tasksets? expected --data DIR, {DATA}, or the set's name as NAME:PATH")
    return data or Path(environ[DATA])


def _pieces(name: Name, data: Path | None) -> Iterator[tuple[Split | None, Iterator[Row]]]:
    """Yield the set's files or hub splits, each with the split that its name says, and its rows."""
    if name.hub is not None:
        for title, rows in hub_rows(_hub(name.known, name.hub)):
            yield split_named(title), rows
    else:
        for file in _files(_place(name, data)):
            yield split_named(file.name), read_rows(file)


def _place(name: Name, data: Path | None) -> Path:
    return name.path or data_folder(data, os.environ) / name.known


def _files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return (path,)
    found = sorted(file for file in path.glob("*") if is_rows(file))
    if not found:
        raise ConfigError(f"{path}: expected a file or folder of rows there ({', '.join(FORMATS)})")
    stems: dict[str, Path] = {}
    for file in found:
        other = stems.setdefault(file.name.partition(".")[0], file)
        if other is not file:
            raise ConfigError(f"{path}: expected {other.name} or {file.name}, not both")
    return found


def _hub(known: str, asked: str) -> Hub:
    if asked != "hub":
        return Hub(asked)
    if known not in SETS:
        raise ConfigError(f"taskset {known}: it has no place on the hub; expected {known}@ID or {known}:PATH")
    return set_module(known).HUB


def set_module(known: str) -> SetModule:
    """Import the module of a set of rows."""
    return cast("SetModule", import_module(SETS[known]))


def _maker(known: str, wanted: Wanted) -> Callable[[Row, Tools], Item]:
    if known == OWN:
        from shikisha.tasksets import own

        return partial(own.item, default=wanted.checker)
    _refuse_checker(known, wanted)
    return set_module(known).item


def _refuse_checker(known: str, wanted: Wanted) -> None:
    if wanted.checker is not None:
        raise ConfigError(f"taskset {known}: it brings its own checkers; a checker can be given for own rows only")


def _refuse_same_ids(found: Sequence[Placed]) -> None:
    seen: dict[str, Placed] = {}
    for one in found:
        other = seen.setdefault(one.item.task.id, one)
        if other is not one:
            raise ConfigError(f"{one.where}: the id {one.item.task.id!r} is that of {other.where} too")


def _whole(name: Name, data: Path | None, wanted: Wanted) -> Taskset:
    """Return what is wanted of a set that is made of more than rows."""
    _refuse_checker(name.known, wanted)
    drawn = name.known in REHEARSALS
    if name.hub is not None or (name.path is not None and drawn):
        raise ConfigError(f"taskset {name.known}: expected {name.known}{'' if drawn else ':FOLDER'}")
    if drawn:
        from shikisha.tasksets import rehearsal

        count = wanted.count or _REHEARSED
        return rehearsal.taskset(wanted.split or Split.DEV, wanted.seed, count, name.known)
    folder = _place(name, data)
    if name.known == "recorded":
        from shikisha.outcomes import open_log
        from shikisha.tasksets import recorded

        return wanted.of(recorded.taskset(open_log(folder)))
    from shikisha.tasksets import swebench

    return wanted.of(swebench.taskset(folder))
