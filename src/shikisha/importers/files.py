"""Rows of other people's files: JSON, JSON Lines, CSV, TSV, parquet, and a zip or gzip around one of them.

Invariants: whatever is no row is a ConfigError that names file and place (lines from 1; entries of JSON arrays and rows
of parquet from 0). JSON Lines, CSV and parquet are read row by row, however large the file is; a JSON document is read
whole. An empty cell of a CSV file, NaN and null are the same: nothing is known; cells are apart by whatever is between
the names in the first line. Deliberately absent: pickles, which run code when they are opened, and spreadsheets.
"""

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from math import isnan
from pathlib import Path
from typing import IO, TextIO

from shikisha.errors import ConfigError, MissingExtra
from shikisha.importers.row import Row

_LARGEST_CELL = 2**26  # characters in a cell of CSV: a quote that is never closed must not swallow any file
LINES = (".jsonl", ".ndjson")
CELLS = (".csv", ".tsv")
_GZIP = ".gz"
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_OWN = "; a table of your own (columns like prompt, worker, answer, score): `import outcomes table FILE --out LOG`"
_PICKLE = """\
a pickle can run any code when it is opened, so it is not read here. If you trust it, write it as CSV once:
  python -c "import pandas; pandas.read_pickle('{path}').to_csv('{to}', index=False)"
and import that file."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What to import: files, folders or URLs as the user named them, and the name under which scores are found."""

    names: Sequence[str]
    score: str | None = None

    def files(self, *suffixes: str) -> Iterator[Path]:
        """Yield the files that end like this, those of a folder in order of their names."""
        for name in self.names:
            yield from _files(Path(name), suffixes)

    def rows(self, *suffixes: str) -> Iterator[Row]:
        """Yield the rows of these files."""
        for file in self.files(*suffixes):
            yield from rows(file)


def _files_in(folder: Path, suffixes: Sequence[str]) -> Sequence[Path]:
    return sorted(file for file in folder.iterdir() if ending(file) in suffixes and file.is_file())


def _files(path: Path, suffixes: Sequence[str]) -> Sequence[Path]:
    if path.is_dir():
        found = _files_in(path, suffixes)
        if not found:
            raise ConfigError(f"{path}: expected files ending in {', '.join(suffixes)} there")
        return found
    if ending(path) in suffixes:
        return [path]
    if path.suffix in (".pkl", ".pickle"):
        raise ConfigError(f"{path}: {_PICKLE.format(path=path, to=path.with_suffix('.csv'))}")
    if path.suffix.lower() in _SPREADSHEETS:
        raise ConfigError(f"{path}: a spreadsheet is not read; save it as CSV (in Excel: CSV UTF-8) and give that file")
    own = _OWN if ending(path) in CELLS else ""
    raise ConfigError(f"{path}: expected a file ending in {', '.join(suffixes)}, or a folder of them{own}")


def ending(path: Path) -> str:
    """Return what a file's name ends in, without the `.gz` of a compressed one."""
    return (path.with_suffix("") if path.suffix == _GZIP else path).suffix


def rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file by what its name ends in."""
    with _readable(file):
        match file.suffix:
            case ".parquet":
                yield from _from_parquet(file)
            case ".zip":
                yield from _from_zip(file)
            case ".gz":
                with gzip.open(file) as unpacked:
                    yield from _from_text(str(file), ending(file), io.BufferedReader(unpacked))
            case _:
                with file.open("rb") as opened:
                    yield from _from_text(str(file), file.suffix, opened)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: expected UTF-8 text (in Excel: CSV UTF-8)") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ConfigError(f"{file}: not a zip file that can be read: {error}") from None


def _from_zip(file: Path) -> Iterator[Row]:
    with zipfile.ZipFile(file) as archive:
        inside = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        if len(inside) != 1:
            raise ConfigError(f"{file}: expected one file in it, found {len(inside)}")
        with archive.open(inside[0]) as opened:
            yield from _from_text(f"{file}: {inside[0]}", Path(inside[0]).suffix, opened)


def _from_text(where: str, suffix: str, opened: IO[bytes]) -> Iterator[Row]:
    with io.TextIOWrapper(opened, encoding="utf-8-sig", newline="" if suffix in CELLS else None) as text:
        if suffix in CELLS:
            yield from _from_csv(where, text)
        elif suffix in LINES:
            yield from _from_lines(where, enumerate(text, 1))
        else:
            yield from _from_json(where, text)


def _from_json(where: str, text: TextIO) -> Iterator[Row]:
    """Yield a document's rows; some write JSON Lines into files called .json, and the first line tells."""
    first = text.readline()
    try:
        alone = isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        alone = False
    if alone:
        yield from _from_lines(where, _after(first, text))
        return
    whole = _parsed(where, first + text.read())
    if isinstance(whole, dict):
        whole = [whole]
    if not isinstance(whole, list):
        raise ConfigError(f"{where}: expected a list of objects")
    for number, entry in enumerate(whole):
        yield _row(f"{where}: entry {number}", entry)


def _after(first: str, text: TextIO) -> Iterator[tuple[int, str]]:
    yield 1, first
    yield from enumerate(text, 2)


def _from_lines(where: str, lines: Iterator[tuple[int, str]]) -> Iterator[Row]:
    for number, line in lines:
        if line.strip():
            yield _row(f"{where}: line {number}", _parsed(f"{where}: line {number}", line))


def _parsed(where: str, text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    return parsed


def _row(where: str, entry: object) -> Row:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected an object, found {str(entry)[:40]!r}")
    return Row(where, {name: _known(value) for name, value in entry.items()})


def _from_csv(where: str, text: TextIO) -> Iterator[Row]:
    csv.field_size_limit(_LARGEST_CELL)  # 128 KiB by default; there is one limit for the whole process
    first = text.readline()
    between = max(",;\t", key=first.count)
    reader = csv.reader(chain((first,), text), strict=True, delimiter=between)
    line = 1
    try:
        names = [name.strip() for name in next(reader, [])]
        if len(set(names)) != len(names) or not names:
            raise ConfigError(f"{where}: line 1: expected a name for each column, each once")
        line = reader.line_num + 1
        for cells in reader:
            if cells and len(cells) != len(names):
                raise ConfigError(f"{where}: line {line}: expected {len(names)} cells, found {len(cells)}")
            if cells:
                yield Row(
                    f"{where}: line {line}", {name: cell or None for name, cell in zip(names, cells, strict=True)}
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{where}: line {line}: not CSV: {error}") from None


def _from_parquet(file: Path) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("logs", f"reading {file.name}") from None
    number = 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=1_000):
                for values in batch.to_pylist():
                    yield Row(f"{file}: row {number}", {name: _known(value) for name, value in values.items()})
                    number += 1
    except pa.ArrowException as error:
        raise ConfigError(f"{file}: not a parquet file that can be read: {error}") from None


def _known(value: object) -> object:
    return None if isinstance(value, float) and isnan(value) else value
