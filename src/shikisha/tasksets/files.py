"""Rows out of files in the formats that the field uses: JSONL (also gzipped), JSON, CSV and parquet (extra `logs`).

Invariant: every row of a file comes out, in order, with its place; what is not a row is a ConfigError that names file
and line. Deliberately absent: guessing a format from content (the ending says it), writing, and the network (`hub`).
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from shikisha.errors import ConfigError, MissingExtra, UnknownName
from shikisha.tasksets.rows import Row


def read_rows(file: Path) -> Iterator[Row]:
    """Yield a file's rows."""
    ending = _ending(file)
    if ending not in FORMATS:
        raise UnknownName(f"format of {file}", ending or "(none)", FORMATS)
    return FORMATS[ending](file)


def is_rows(file: Path) -> bool:
    """Whether a file's ending says that it holds rows."""
    return _ending(file) in FORMATS


def read_json(file: Path) -> object:
    """Return a JSON file's value."""
    with _opened(file) as text:
        return _parsed(text.read(), str(file))


def _ending(file: Path) -> str:
    endings = file.suffixes[-2:] if file.suffix == ".gz" else file.suffixes[-1:]
    return "".join(endings).lower()


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    try:
        with (
            gzip.open(file, "rt", encoding="utf-8")
            if file.suffix == ".gz"
            else file.open(encoding="utf-8-sig", newline="")
        ) as text:
            yield text
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: expected UTF-8 text") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parsed(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    return value


def _lines(file: Path) -> Iterator[Row]:
    with _opened(file) as text:
        for index, line in enumerate(text):
            where = f"{file}: line {index + 1}"
            value = _parsed(line, where)
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where}: expected a JSON object")
            yield Row(value, str(file), index, index + 1)


def _array(file: Path) -> Iterator[Row]:
    value = read_json(file)
    if not isinstance(value, list):
        raise ConfigError(f"{file}: expected a JSON array of objects")
    return rows_of(value, str(file))


def rows_of(values: Iterable[object], file: str) -> Iterator[Row]:
    """Yield rows that somebody else has read already."""
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{file}: row {index}: expected an object")
        yield Row(value, file, index)


def _csv(file: Path) -> Iterator[Row]:
    with _opened(file) as text:
        reader = csv.DictReader(text, strict=True)
        try:
            names = list(reader.fieldnames or ())
            for place, name in enumerate(names):
                if name in names[:place]:
                    raise ConfigError(f"{file}: line 1: expected each name once, found {name!r} again")
            yield from (_csv_row(values, file, index, reader.line_num) for index, values in enumerate(reader))
        except csv.Error as error:
            raise ConfigError(f"{file}: line {reader.reader.line_num}: not CSV: {error}") from None


def _csv_row(values: Mapping[str | None, object], file: Path, index: int, line: int) -> Row:
    named = {name: value for name, value in values.items() if name is not None}
    if len(named) < len(values) or None in named.values():
        raise ConfigError(f"{file}: line {line}: expected as many fields as the first line names, {len(named)}")
    return Row(named, str(file), index, line)


def _parquet(file: Path) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("logs", f"reading {file.name}") from None
    index = 0
    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1024):
                for values in batch.to_pylist():
                    yield Row(values, str(file), index)
                    index += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a parquet file that can be read: {error}") from None


FORMATS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": _csv,
    ".json": _array,
    ".jsonl": _lines,
    ".jsonl.gz": _lines,
    ".parquet": _parquet,
}
