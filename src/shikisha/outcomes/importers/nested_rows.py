"""Nested exports of gateways, traces and evaluation tools as plain rows: `vars.question`, `response.output`.

An evaluation in one JSON document has its rows in a list, and what holds for all of them beside it. Invariants: a value
keeps its place, as a name with dots; what stands beside a list is in each of its rows; depth, width and the work for a
row are bounded; a row that is plain already stays as it is.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from shikisha.outcomes.importers.chat_text import parse_json_text
from shikisha.outcomes.importers.source_files import SourceRow

_DEPTH, _MOST_FIELDS = 4, 400
# What a list of rows has to have, after the names of prompts.
_SPLIT = ("columns", "data")
# Of an object, the value that stands for it.
_STANDS_FOR = {
    "prompt": ("raw", "text", "content", "value"),
    "worker": ("id", "name", "label"),
    "score": ("value", "score", "avg", "mean"),
}


def snake_case(name: str) -> str:
    """Return a name as most files write it: `totalCost` and `Total Cost` are `total_cost`."""
    letters: list[str] = []
    for at, letter in enumerate(name.strip()):
        if letter.isupper() and at and (name[at - 1].islower() or name[at - 1].isdigit()):
            letters.append("_")
        letters.append("_" if letter == " " else letter.casefold())
    return "".join(letters)


def plain_rows(row: SourceRow, prompts: Collection[str]) -> Iterator[SourceRow]:
    """Yield the rows of a row or document; `prompts` are names of columns that a row of answers has."""
    values = row.values
    if not any(isinstance(parse_json_text(value), Mapping | list) for value in values.values()):
        yield row
        return
    names, held = (values.get(name) for name in _SPLIT)
    if isinstance(names, list) and isinstance(held, list) and held and all(isinstance(one, list) for one in held):
        for number, cells in enumerate(held):  # a data frame, split into columns and data
            yield SourceRow(f"{row.where}: data[{number}]", dict(zip(map(str, names), cells, strict=False)))
        return
    own = any(snake_case(str(name)) in prompts for name in values)
    place = None if own else _find_rows(values, prompts)
    if place is None:
        yield SourceRow(row.where, _flatten(values))
        return
    path, found = place
    shared = {name: value for name, value in _flatten(values).items() if not isinstance(value, list | Mapping)}
    for number, entry in enumerate(found):
        if isinstance(entry, Mapping):
            yield SourceRow(f"{row.where}: {path}[{number}]", {**shared, **_flatten(entry)})


def _is_answer(values: Mapping[str, object], prompts: Collection[str]) -> bool:
    return any(snake_case(name.rpartition(".")[2]) in prompts for name in _flatten(values))


def _find_rows(values: Mapping[str, object], prompts: Collection[str]) -> tuple[str, list[object]] | None:
    """Return the list of rows nearest to the top of a document, and its place; None where there is none."""
    level: list[tuple[str, object]] = [("", values)]
    for _ in range(_DEPTH):
        below: list[tuple[str, object]] = []
        for path, held in level:
            for name, value in held.items() if isinstance(held, Mapping) else ():
                at = f"{path}.{name}" if path else str(name)
                if (
                    isinstance(value, list)
                    and value
                    and isinstance(value[0], Mapping)
                    and _is_answer(value[0], prompts)
                ):
                    return at, value
                below.append((at, value))
        level = below[:_MOST_FIELDS]
    return None


def _flatten(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values with those of objects in them, by places with dots; an object stands for one of its values."""
    flat: dict[str, object] = {}
    left: list[tuple[str, object, int]] = [(str(name), value, 0) for name, value in values.items()]
    while left and len(flat) < _MOST_FIELDS:
        name, value, depth = left.pop(0)
        flat.setdefault(name, value)
        inside = parse_json_text(value)
        if isinstance(inside, Mapping) and depth < _DEPTH:
            left += [(f"{name}.{key}", held, depth + 1) for key, held in inside.items()]
    return flat


def own_value(values: Mapping[str, object], name: str, what: str) -> object:
    """Return what stands under a name; of an object that holds a prompt, worker or score (`what`), that."""
    value = values.get(name)
    if isinstance(parse_json_text(value), Mapping):
        for key in _STANDS_FOR[what]:
            held = values.get(f"{name}.{key}")
            if isinstance(held, str | int | float) and held != "":
                return held
    return value


def file_of(row: SourceRow) -> Path:
    """Return the file that a row is from."""
    return Path(row.where.partition(": ")[0])
