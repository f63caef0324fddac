"""Rows of other people's files: JSON, JSON Lines, CSV, TSV, parquet, and a zip or gzip around one of them.

Invariants: what is no row is a ConfigError that names file and place (lines from 1; entries of JSON arrays and rows of
parquet from 0); a value has the type asked for or is a ConfigError that also names the field, what was expected and
what was found. JSON Lines, CSV and parquet are read row by row, however large the file is. An empty cell, NaN and null
are the same: unknown. CSV writes everything as text, so a number may be the text of one; its first line tells the
delimiter. Pickles are refused, since they run code when they are opened; so are spreadsheets.
"""

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import isfinite, isnan
from pathlib import Path
from string import ascii_uppercase
from typing import IO, TextIO

from shikisha.core.errors import ConfigError, MissingExtra, TaskError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.task import Task
from shikisha.outcomes.importers import chat_text
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedTask, RowError

_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
_MOST = 2**63 - 1  # what a column of whole numbers holds


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Named values and where they stand. Where a getter takes several names, the first that holds something counts.

    `problem` says why it is no row.
    """

    where: str
    values: Mapping[str, object]
    problem: str = ""

    def error_at(self, field: str, problem: str) -> RowError:
        """Return the error that says what is wrong where."""
        return RowError(f"{self.where}: {field}: {problem}")

    def type_error(self, what: str, field: str) -> RowError:
        """Return the error for a value that is not what was expected."""
        value = self.values.get(field)
        if value is None:
            return self.error_at(field, f"expected {what}, found {'null' if field in self.values else 'nothing'}")
        return self.error_at(field, f"expected {what}, found {str(value)[:40]!r}")

    def get(self, *names: str) -> object:
        """Return a value as it is, None where nothing is known."""
        return self.values.get(self.first_known(*names))

    def first_known(self, *names: str) -> str:
        """Return the first of these names under which something is known, else the first."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def text(self, *names: str) -> str:
        """Return a text."""
        name = self.first_known(*names)
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self.type_error("text", name)
        return value

    def maybe_text(self, *names: str) -> str | None:
        """Return a text, or None where nothing is known."""
        return None if self.get(*names) is None else self.text(*names)

    def label(self, *names: str) -> str:
        """Return a text or a whole number as text: what ids are written as."""
        value = self.get(*names)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        text = self.text(*names)
        if not text.strip():
            raise self.type_error("a name", self.first_known(*names))
        return text

    def number(self, *names: str, most: float | None = None) -> float | None:
        """Return a number from 0 (to `most`), or None where nothing is known."""
        name = self.first_known(*names)
        value = self.values.get(name)
        number = parse_number(value)
        if value is not None and (number is None or number < 0 or (most is not None and number > most)):
            raise self.type_error(f"a number from 0{'' if most is None else f' to {most:g}'}", name)
        return number

    def integer(self, *names: str) -> int | None:
        """Return a whole number from 0, or None where nothing is known."""
        number = self.number(*names)
        if number is not None and (number != int(number) or number > _MOST):
            raise self.type_error("a whole number", self.first_known(*names))
        return None if number is None else int(number)

    def score(self, *names: str) -> float | None:
        """Return a score in [0, 1], also where it is written as true or false, or None where nothing is known."""
        value = self.get(*names)
        if isinstance(value, bool) or (isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE)):
            return float(str(value).lower() in _TRUE)
        return self.number(*names, most=1.0)

    def items(self, *names: str) -> Sequence[object]:
        """Return a list."""
        name = self.first_known(*names)
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self.type_error("a list", name)
        return value

    def parts(self, name: str) -> "Iterator[SourceRow]":
        """Yield the objects of a list as rows of their own; none where there is no list."""
        for number, part in enumerate(self.items(name) if self.get(name) is not None else ()):
            where = f"{self.where}: {name}[{number}]"
            if not isinstance(part, dict):
                raise ConfigError(f"{where}: expected an object, found {str(part)[:40]!r}")
            yield SourceRow(where, part)

    def logged_task(
        self, prompt: str, gold: ReferenceAnswer, task: tuple[str, str] = ("", ""), field: str = "prompt"
    ) -> LoggedTask:
        """Return the task of this (id, domain); ConfigError names the field when the prompt is none."""
        try:
            return LoggedTask(Task(prompt, id=task[0], domain=task[1]), gold)
        except TaskError as error:
            raise self.error_at(field, str(error)) from None


def parse_number(value: object) -> float | None:
    """Return a number, also one that is written as text; None for what is none, or not finite."""
    if isinstance(value, str):
        try:
            value = int(value) if value.lstrip("-").isdecimal() else float(value)  # nanoseconds need every digit
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        double = float(value)
    except OverflowError:
        return None
    if not isfinite(double):
        return None
    return value if abs(value) <= _MOST else double  # beyond that no column holds whole numbers


_LARGEST_CELL = 2**26  # characters in a cell of CSV: a quote that is never closed must not swallow any file
JSON_LINES_ENDINGS = (".jsonl", ".ndjson")
CSV_ENDINGS = (".csv", ".tsv")
_GZIP = ".gz"
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_OWN_TABLE_HINT = (
    "; a table of your own (columns like prompt, worker, answer, score): `import outcomes table FILE --out LOG`"
)
_PICKLE = """\
a pickle can run any code when it is opened, so it is not read here. If you trust it, write it as CSV once:
  python -c "import pandas; pandas.read_pickle('{path}').to_csv('{to}', index=False)"
and import that file."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a person says of a table: the `scale` of its scores, whether to `clip` them, its columns of models, or of
    battles (two models and the winner)."""

    scale: str = ""
    clip: bool = False
    wide: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What to import: files, folders or URLs as the user named them.

    `score` and `domain` are the names under which scores and types of tasks are found (a place inside a column's JSON
    as in `metadata.team`), `columns` those of a table by what they hold, `form` how answers are read in responses.
    Of journals, `labels` (None: every run counts) names the labels that a run of `tenant` may have (`runs_in_scope`).
    """

    names: Sequence[str]
    score: str | None = None
    domain: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    form: str | None = None
    tenant: str | None = None
    labels: Collection[str] | None = None
    shape: TableShape = TableShape()
    bad: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)  # by what is wrong: where, and how

    def domain_of(self, row: SourceRow) -> str:
        """Return the type of a row's task: what stands where `domain` says; empty where nothing does."""
        return "" if self.domain is None else _label(value_at(row, self.domain))

    def files(self, *suffixes: str) -> Iterator[Path]:
        """Yield the files that end like this, those of a folder in order of their names."""
        for name in self.names:
            yield from _files(Path(name), suffixes)

    def rows(self, *suffixes: str) -> Iterator[SourceRow]:
        """Yield the rows of these files; what is no row is left out, and counted once however often it is read."""
        for file in self.files(*suffixes):
            for row in _read_rows(file):
                if row.problem:
                    self._leave_out(row.where, row.problem)
                else:
                    yield row

    def take(self, row: SourceRow, taking: Callable[[SourceRow], None], *, quiet: bool = False) -> None:
        """Take a row; a bad one is left out and counted, unless that is done elsewhere (`quiet`)."""
        try:
            taking(row)
        except RowError as error:
            if not quiet:
                self._leave_out(row.where, str(error).removeprefix(f"{row.where}: "))

    def _leave_out(self, where: str, problem: str) -> None:
        self.bad.setdefault(problem.partition(", found ")[0], {}).setdefault(where, problem)

    def count_bad(self, log: LogBuilder) -> None:
        """Count the bad rows as left out, and name the first of each kind; RowError where there are no others."""
        for places in self.bad.values():
            where, problem = next(iter(places.items()))
            if not len(log):
                raise RowError(f"{where}: {problem}")
            log.skip(f"bad rows, the first at {where}: {problem}", len(places))


def _files(path: Path, suffixes: Sequence[str]) -> Sequence[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file_ending(file) in suffixes and file.is_file())
        if not found:
            raise ConfigError(f"{path}: expected files ending in {', '.join(suffixes)} there")
        return found
    if file_ending(path) in suffixes:
        return [path]
    if path.suffix in (".pkl", ".pickle"):
        raise ConfigError(f"{path}: {_PICKLE.format(path=path, to=path.with_suffix('.csv'))}")
    if path.suffix.lower() in _SPREADSHEETS:
        raise ConfigError(f"{path}: a spreadsheet is not read; save it as CSV (in Excel: CSV UTF-8) and give that file")
    own = _OWN_TABLE_HINT if file_ending(path) in CSV_ENDINGS else ""
    raise ConfigError(f"{path}: expected a file ending in {', '.join(suffixes)}, or a folder of them{own}")


def file_ending(path: Path) -> str:
    """Return what a file's name ends in, without the `.gz` of a compressed one."""
    return (path.with_suffix("") if path.suffix == _GZIP else path).suffix


def read_source_rows(file: Path) -> Iterator[SourceRow]:
    """Yield the rows of a file by what its name ends in; RowError for what is no row."""
    for row in _read_rows(file):
        if row.problem:
            raise RowError(f"{row.where}: {row.problem}")
        yield row


def _read_rows(file: Path) -> Iterator[SourceRow]:
    with _read_errors(file):
        match file.suffix:
            case ".parquet":
                yield from _from_parquet(file)
            case ".zip":
                yield from _from_zip(file)
            case ".gz":
                with gzip.open(file) as unpacked:
                    yield from _from_text(str(file), file_ending(file), io.BufferedReader(unpacked))
            case _:
                with file.open("rb") as opened:
                    yield from _from_text(str(file), file.suffix, opened)


@contextmanager
def _read_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: expected UTF-8 text (in Excel: CSV UTF-8)") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ConfigError(f"{file}: not a zip file that can be read: {error}") from None


def _from_zip(file: Path) -> Iterator[SourceRow]:
    with zipfile.ZipFile(file) as archive:
        inside = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        if len(inside) != 1:
            raise ConfigError(f"{file}: expected one file in it, found {len(inside)}")
        with archive.open(inside[0]) as opened:
            yield from _from_text(f"{file}: {inside[0]}", Path(inside[0]).suffix, opened)


def _from_text(where: str, suffix: str, opened: IO[bytes]) -> Iterator[SourceRow]:
    with io.TextIOWrapper(opened, encoding="utf-8-sig", newline="" if suffix in CSV_ENDINGS else None) as text:
        if suffix in CSV_ENDINGS:
            # The default of 128 KiB is less than many model answers; the limit is one for the whole process.
            csv.field_size_limit(_LARGEST_CELL)
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
                        yield SourceRow(f"{where}: line {line}", {}, f"expected {len(names)} cells, found {len(cells)}")
                    elif cells:
                        yield SourceRow(
                            f"{where}: line {line}",
                            {name: _cell(cell, between) for name, cell in zip(names, cells, strict=True)},
                        )
                    line = reader.line_num + 1
            except csv.Error as error:
                raise ConfigError(f"{where}: line {line}: not CSV: {error}") from None
        elif suffix in JSON_LINES_ENDINGS:
            yield from _from_lines(where, enumerate(text, 1))
        else:
            yield from _from_json(where, text)


def _cell(text: str, between: str) -> str | None:
    """Return what a cell holds; where semicolons separate cells, a comma in a number is a decimal point."""
    whole, comma, part = text.partition(",") if between == ";" else (text, "", "")
    decimal = comma and part.isdecimal() and whole.lstrip("-").isdecimal()
    return (f"{whole}.{part}" if decimal else text) or None


def _from_json(where: str, text: TextIO) -> Iterator[SourceRow]:
    """Yield a document's rows; some write JSON Lines into files called .json, and the first line tells."""
    first = text.readline()
    try:
        alone = isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        alone = False
    if alone:
        yield from _from_lines(where, _after(first, text))
        return
    whole = _parse_json(where, first + text.read())
    if isinstance(whole, dict):
        whole = [whole]
    if not isinstance(whole, list):
        raise ConfigError(f"{where}: expected a list of objects")
    for number, entry in enumerate(whole):
        yield _row_from_json(f"{where}: entry {number}", entry)


def _after(first: str, text: TextIO) -> Iterator[tuple[int, str]]:
    yield 1, first
    yield from enumerate(text, 2)


def _from_lines(where: str, lines: Iterator[tuple[int, str]]) -> Iterator[SourceRow]:
    for number, line in lines:
        if line.strip():
            place = f"{where}: line {number}"
            try:
                yield _row_from_json(place, _parse_json(place, line))
            except RowError as error:
                yield SourceRow(place, {}, str(error).removeprefix(f"{place}: "))


def _parse_json(where: str, text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{where}: not JSON: {error}") from None
    return parsed


def _row_from_json(where: str, entry: object) -> SourceRow:
    if not isinstance(entry, dict):
        raise RowError(f"{where}: expected an object, found {str(entry)[:40]!r}")
    return SourceRow(where, {name: _none_if_nan(value) for name, value in entry.items()})


def _from_parquet(file: Path) -> Iterator[SourceRow]:
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
                    yield SourceRow(
                        f"{file}: row {number}", {name: _none_if_nan(value) for name, value in values.items()}
                    )
                    number += 1
    except pa.ArrowException as error:
        raise ConfigError(f"{file}: not a parquet file that can be read: {error}") from None


def _none_if_nan(value: object) -> object:
    return None if isinstance(value, float) and isnan(value) else value


# LiteLLM's proxy adds such a tag to every call.
_CLIENT_TAG = "user-agent:"


def value_at(row: SourceRow, place: str) -> object:
    """Return what stands at a place like `metadata.feedback`; None where a row has nothing there."""
    value: object = row.values
    for name in (place,) if place in row.values else place.split("."):
        value = chat_text.parse_json_text(value)
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _label(value: object) -> str:
    """Return a value as the name of a type of task; of several tags, all of them but those that name a client."""
    value = chat_text.parse_json_text(value)
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        value = value[1:-1].replace('"', "").split(",")  # an array as PostgreSQL writes it into CSV
    if isinstance(value, list | tuple):
        tags = (str(tag).strip() for tag in value)
        return ", ".join(tag for tag in tags if tag and not tag.casefold().startswith(_CLIENT_TAG))
    return "" if value is None else str(value).strip()


def format_options(question: str, options: Iterable[str]) -> str:
    """Return the question with its options; there may be 26."""
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
    return f"{question}\n{lines}"
