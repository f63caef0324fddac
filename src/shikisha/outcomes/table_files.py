"""Tables on disk as checked columns: `STEM.parquet` (extra `logs`) or `STEM.jsonl`, whichever is there.

Invariants: every value has its column's declared type, and null stands only where it may, also where a parquet column
is all null; a violation is a ConfigError that names file, row (counted from 0; lines of JSONL from 1) and column.
Undeclared columns are ignored.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

RowFilter: TypeAlias = Mapping[str, Collection[str]]
_MOST = 2**63 - 1  # what 64 bits hold


class ColumnType(StrEnum):
    """What stands in a column."""

    TEXT = "text"  # any text
    WHOLE = "a whole number"  # of 64 bits
    NUMBER = "a number"  # whole or not


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column's name, what it holds, whether it must be there, and whether null may stand in it."""

    name: str
    type: ColumnType = ColumnType.TEXT
    required: bool = True
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A file's columns, all of one length; `first` is how the file's first row is counted."""

    file: Path
    length: int
    texts: Mapping[str, Sequence[str | None]]
    numbers: Mapping[str, Sequence[float | None]]
    first: int = 0

    def text(self, name: str) -> Sequence[str]:
        """Return a text column in which nothing is null."""
        return [value for value in self.texts[name] if value is not None]

    def error_at(self, row: int, column: str, problem: str) -> ConfigError:
        """Return the error that says what is wrong where."""
        return ConfigError(f"{self.file}: {'line' if self.first else 'row'} {row + self.first}: {column}: {problem}")


def read_columns(folder: Path, stem: str, columns: Sequence[ColumnSpec], only: RowFilter | None = None) -> TableColumns:
    """Return the columns of the file of this name; `only` takes rows by the texts in some columns."""
    if folder.is_file():
        raise ConfigError(
            f"{folder}: expected the folder of an outcome log, not a file; one is made of a table of your own (columns "
            f"like prompt, worker, answer, score) by: shikisha import outcomes table {folder} --out {folder.stem}-log"
        )
    parquet, lines = folder / f"{stem}.parquet", folder / f"{stem}.jsonl"
    if parquet.exists() and lines.exists():
        raise ConfigError(f"{folder}: expected {parquet.name} or {lines.name}, not both")
    if parquet.exists():
        table = _from_parquet(parquet, columns, only)
    elif lines.exists():
        table = _from_lines(lines, columns, only)
    else:
        raise ConfigError(f"{folder}: expected {parquet.name} or {lines.name} there")
    for column in columns:
        values: Sequence[object] = (table.texts if column.type is ColumnType.TEXT else table.numbers)[column.name]
        if not column.nullable and None in values:
            raise table.error_at(values.index(None), column.name, f"expected {column.type}, found null")
    return table


def count_rows(folder: Path, stem: str) -> int:
    """Return how many rows the file of this name has (of JSONL: lines), without reading their values."""
    parquet, lines = folder / f"{stem}.parquet", folder / f"{stem}.jsonl"
    if parquet.exists():
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import read_metadata
        except ImportError:
            raise MissingExtra("logs", f"reading {parquet.name}") from None
        try:
            return int(read_metadata(parquet).num_rows)
        except (ArrowException, OSError) as error:
            raise ConfigError(f"{parquet}: not a parquet file that can be read: {error}") from None
    if not lines.exists():
        return 0
    with lines.open("rb") as opened:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: opened.read(1 << 20), b""))


def names_of(folder: Path, stem: str) -> tuple[str, ...]:
    """Return the names of the columns in the file of this name (of JSONL, in its first line); none without a file."""
    parquet, lines = folder / f"{stem}.parquet", folder / f"{stem}.jsonl"
    if parquet.exists():
        from pyarrow.parquet import read_schema

        return tuple(read_schema(parquet).names)
    return next((tuple(row) for _, row in _rows(lines)), ()) if lines.exists() else ()


def _from_lines(file: Path, columns: Sequence[ColumnSpec], only: RowFilter | None) -> TableColumns:
    values: dict[str, list[object]] = {column.name: [] for column in columns}
    length = 0
    for number, row in _rows(file):
        if only and not all(row.get(name) in wanted for name, wanted in only.items()):
            continue
        length += 1
        for column in columns:
            values[column.name].append(_value(row, column, f"{file}: line {number}"))
    return _split(file, length, columns, values, first=1)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ConfigError(f"{file}: line {number}: expected a JSON object")
                yield number, row
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: expected UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: line {number}: not JSON: {error}") from None


def _value(row: Mapping[str, object], column: ColumnSpec, where: str) -> object:
    if column.required and column.name not in row:
        raise ConfigError(f"{where}: {column.name}: this column is missing")
    value = row.get(column.name)
    if value is not None and not _fits(value, column.type):
        raise ConfigError(f"{where}: {column.name}: expected {column.type}, found {str(value)[:40]!r}")
    return value


def _fits(value: object, holds: ColumnType) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return holds is not ColumnType.TEXT and abs(value) <= _MOST
    return isinstance(value, str if holds is ColumnType.TEXT else float) and holds is not ColumnType.WHOLE


def _split(
    file: Path, length: int, columns: Sequence[ColumnSpec], values: Mapping[str, Sequence[object]], first: int = 0
) -> TableColumns:
    """Sort checked values by type, sharing equal texts."""
    shared: dict[str, str] = {}
    texts: dict[str, Sequence[str | None]] = {}
    numbers: dict[str, Sequence[float | None]] = {}
    for column in columns:
        found = values[column.name]
        if column.type is ColumnType.TEXT:
            texts[column.name] = [
                shared.setdefault(value, value) if isinstance(value, str) else None for value in found
            ]
        else:
            numbers[column.name] = [value if isinstance(value, int | float) else None for value in found]
    return TableColumns(file, length, texts, numbers, first)


def _from_parquet(file: Path, columns: Sequence[ColumnSpec], only: RowFilter | None) -> TableColumns:
    """Read in batches, so that no more than a batch is there twice."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("logs", f"reading {file.name}") from None
    values: dict[str, list[object]] = {column.name: [] for column in columns}
    length = 0
    try:
        with pq.ParquetFile(file, memory_map=True) as opened:
            schema = opened.schema_arrow
            there = [column for column in columns if column.name in schema.names]
            for column in columns:
                _check_type(file, column, schema)
            for batch in opened.iter_batches(columns=[column.name for column in there], use_threads=False):
                rows: Sequence[int] = range(batch.num_rows)
                for name, wanted in (only or {}).items():
                    encoded = batch.column(name).dictionary_encode()
                    taken = [word in wanted for word in encoded.dictionary.to_pylist()]
                    places = encoded.indices.to_pylist()
                    rows = [row for row in rows if places[row] is not None and taken[places[row]]]
                length += len(rows)
                for column in columns:
                    known = column.name in schema.names
                    values[column.name] += (
                        _python_values(batch.column(column.name), column, rows) if known else [None] * len(rows)
                    )
        pa.default_memory_pool().release_unused()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a parquet file that can be read: {error}") from None
    return _split(file, length, columns, values)


def _check_type(file: Path, column: ColumnSpec, schema: "pa.Schema") -> None:
    from pyarrow import types

    if column.name not in schema.names:
        if column.required:
            raise ConfigError(f"{file}: column {column.name} is missing; there are {', '.join(schema.names)}")
        return
    found = schema.field(column.name).type
    found = found.value_type if types.is_dictionary(found) else found
    if column.type is ColumnType.TEXT:
        fits = types.is_string(found) or types.is_large_string(found)
    else:
        fits = types.is_integer(found) or (types.is_floating(found) and column.type is ColumnType.NUMBER)
    if not fits and not types.is_null(found):
        raise ConfigError(f"{file}: column {column.name}: expected {column.type}, found {found}")


def _python_values(values: "pa.Array", column: ColumnSpec, rows: Sequence[int]) -> list[object]:
    """Return these rows as plain Python values; texts by way of a dictionary, so that equal ones are decoded once."""
    # Rows are taken first: responses are read worker by worker, and decoding all each time takes longest.
    import pyarrow as pa

    values = values if len(rows) == len(values) else values.take(pa.array(rows, pa.int64()))
    if column.type is not ColumnType.TEXT:
        return list(values.to_pylist())
    encoded = values.dictionary_encode()
    words, places = encoded.dictionary.to_pylist(), encoded.indices.to_pylist()
    return [None if place is None else words[place] for place in places]


TableLine = dict[str, str | float | None]

_BATCH = 5_000  # lines


def save_table(
    folder: Path, stem: str, columns: Mapping[str, ColumnType], lines: Iterable[TableLine], *, as_lines: bool = False
) -> None:
    """Write lines of these columns as JSONL if asked for or without pyarrow, else as parquet.

    The lines are taken a few thousand at a time. OSError when they cannot be written.
    """
    if as_lines or find_spec("pyarrow") is None:
        with (folder / f"{stem}.jsonl").open("w", encoding="utf-8") as opened:
            opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    else:
        _save_parquet(folder / f"{stem}.parquet", columns, iter(lines))


def _save_parquet(file: Path, columns: Mapping[str, ColumnType], lines: Iterator[TableLine]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {ColumnType.NUMBER: pa.float64(), ColumnType.WHOLE: pa.int64(), ColumnType.TEXT: pa.string()}
    schema = pa.schema([(name, types[holds]) for name, holds in columns.items()])
    with pq.ParquetWriter(file, schema) as writer:
        while batch := list(islice(lines, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
