"""Rows of task files, with typed getters: JSONL (also gzipped), JSON, CSV, parquet (extra `logs`) and the hub.

Invariants: every row of a file comes out, in order, with its place; anything that is missing or wrong is a ConfigError
that names file, line (or row) and field, what was expected and what was found; nothing is skipped or filled in. Lines
are counted from 1, rows of parquet and JSON arrays from 0; `index` is counted from 0 everywhere, so that ids do not
depend on the format, which the file's ending gives. A field that must be there is neither null nor blank. Nothing is
downloaded unless a name says so (`NAME@hub`, `NAME@ID`), and no code of a dataset is ever run.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TextIO, TypeGuard

from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.task import storage_problem
from shikisha.evals.graders import Grader, GraderTools
from shikisha.evals.graders.grader_registry import build_grader

_SHOWN = 40  # characters of a wrong value


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row's fields, where it stands (`file: line 3`), and for parts of it the field that they were found in."""

    data: Mapping[str, object]
    file: str
    index: int
    line: int | None = None
    inside: str = ""

    @property
    def place(self) -> str:
        """The row's place in its set, as an id: the file's name without its endings, and the index."""
        return f"{PurePath(self.file).name.partition('.')[0]}/{self.index}"

    @property
    def where(self) -> str:
        """Where the row stands, as errors name it."""
        return f"{self.file}: row {self.index}" if self.line is None else f"{self.file}: line {self.line}"

    def at(self, field: str) -> str:
        """Return where a field stands."""
        return f"{self.where}: {self.inside}{field}"

    def error_at(self, field: str, problem: str) -> ConfigError:
        """Return the error that says what is wrong where."""
        return ConfigError(f"{self.at(field)}: {problem}")

    def has(self, field: str) -> bool:
        """Whether there is anything in a field."""
        return self.data.get(field) not in (None, "")

    def text(self, field: str) -> str:
        """Return a text that is not blank."""
        value = self.string(field)
        if not value.strip():
            raise self._expected("text", field, value)
        return value

    def name(self, field: str) -> str:
        """Return a text, or a whole number as one: what ids and levels are."""
        value = self._there(field, "text or a whole number")
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(field)

    def identifier(self, field: str) -> str:
        """Return a name as programs have them."""
        value = self.text(field)
        if not value.isidentifier():
            raise self._expected("the name of a function", field, value)
        return value

    def optional(self, field: str) -> str:
        """Return a text or whole number as text; nothing where nothing is."""
        return self.name(field) if self.has(field) else ""

    def one_of(self, *fields: str) -> str:
        """Return the name under which a field goes here, of those under which it goes in the field's variants."""
        for field in fields:
            if self.has(field):
                return field
        raise self.error_at(fields[0], f"this field is missing (also looked for: {', '.join(fields[1:])})")

    def integer(self, field: str, least: int, most: int) -> int:
        """Return a whole number in this range, also when it is written as a text."""
        wish = f"a whole number from {least} to {most}"
        value = self._there(field, wish)
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < _SHOWN:
            value = int(value.strip())  # which takes more for a space than int does
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._expected(wish, field, value)
        return value

    def string(self, field: str) -> str:
        """Return a text that may be blank."""
        return self._string(field, self._there(field, "text"))

    def day(self, field: str) -> str:
        """Return a day as `2031-05-03`, of a date and time too, whether it is written or not."""
        value = self._there(field, "a date")
        try:
            return date.fromisoformat(str(value)[:10]).isoformat()
        except ValueError:
            raise self._expected("a date", field, value) from None

    def texts(self, field: str, *, least: int = 1, most: int | None = None) -> tuple[str, ...]:
        """Return a list of so many texts; where none are needed an absent one is empty."""
        wish = f"a list of at least {least} texts" if most is None else f"a list of {least} to {most} texts"
        value = self._there(field, wish) if least else self.data.get(field) or ()
        if not _is_list(value) or len(value) < least or (most is not None and len(value) > most):
            raise self._expected(wish, field, value)
        return tuple(self._string(f"{field}[{place}]", text) for place, text in enumerate(value))

    def part(self, field: str) -> "TaskRow":
        """Return an object inside this row as a row of its own."""
        return self._part(field, self._there(field, "an object"))

    def parts(self, field: str) -> "tuple[TaskRow, ...]":
        """Return a list of objects, at least one, as rows of their own."""
        value = self._there(field, "a list of objects")
        if not _is_list(value) or not value:
            raise self._expected("a list of objects", field, value)
        return tuple(self._part(f"{field}[{place}]", entry) for place, entry in enumerate(value))

    def decode(self, field: str, decode: Callable[[str], object]) -> "TaskRow":
        """Return this row with a text replaced by what it holds; a ValueError of the decoder says what is wrong.

        What is no text is left as it is: the same set has such fields decoded in other formats.
        """
        value = self._there(field, "text")
        if not isinstance(value, str):
            return self
        try:
            return replace(self, data={**self.data, field: decode(value)})
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise self.error_at(field, f"cannot be decoded: {error}") from None

    def grader(self, field: str, kind: str, spec: Mapping[str, object], tools: GraderTools) -> Grader:
        """Build the grader whose right answer came out of this field."""
        return build_grader(kind, spec, tools, self.at(field))

    def _there(self, field: str, wish: str) -> object:
        if field not in self.data:
            raise self.error_at(field, f"this field is missing; there are {', '.join(map(str, self.data)) or 'none'}")
        if self.data[field] is None:
            raise self.error_at(field, f"expected {wish}, found null")
        return self.data[field]

    def _expected(self, wish: str, field: str, value: object) -> ConfigError:
        shown = value if isinstance(value, str) else str(value)
        return self.error_at(field, f"expected {wish}, found {shown[:_SHOWN]!r}")

    def _string(self, field: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._expected("text", field, value)
        if problem := storage_problem(value):
            raise self.error_at(field, f"holds {problem}")
        return value

    def _part(self, field: str, value: object) -> "TaskRow":
        if not isinstance(value, Mapping):
            raise self._expected("an object", field, value)
        return replace(self, data=value, inside=f"{self.inside}{field}.")


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def read_rows(file: Path) -> Iterator[TaskRow]:
    """Yield a file's rows."""
    ending = _ending(file)
    if ending not in ROW_FORMATS:
        raise UnknownName(f"format of {file}", ending or "(none)", ROW_FORMATS)
    return ROW_FORMATS[ending](file)


def is_row_file(file: Path) -> bool:
    """Whether a file's ending says that it holds rows."""
    return _ending(file) in ROW_FORMATS


def read_json(file: Path) -> object:
    """Return a JSON file's value."""
    with _open_text(file) as text:
        return _parse_json(text.read(), str(file))


def _ending(file: Path) -> str:
    endings = file.suffixes[-2:] if file.suffix == ".gz" else file.suffixes[-1:]
    return "".join(endings).lower()


@contextmanager
def _open_text(file: Path) -> Iterator[TextIO]:
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


def _parse_json(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    return value


def _jsonl_rows(file: Path) -> Iterator[TaskRow]:
    with _open_text(file) as text:
        for index, line in enumerate(text):
            where = f"{file}: line {index + 1}"
            value = _parse_json(line, where)
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where}: expected a JSON object")
            yield TaskRow(value, str(file), index, index + 1)


def _json_rows(file: Path) -> Iterator[TaskRow]:
    value = read_json(file)
    if not isinstance(value, list):
        raise ConfigError(f"{file}: expected a JSON array of objects")
    return rows_of(value, str(file))


def rows_of(values: Iterable[object], file: str) -> Iterator[TaskRow]:
    """Yield rows of values that were read elsewhere."""
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{file}: row {index}: expected an object")
        yield TaskRow(value, file, index)


def _csv_rows(file: Path) -> Iterator[TaskRow]:
    with _open_text(file) as text:
        reader = csv.DictReader(text, strict=True)
        try:
            names = list(reader.fieldnames or ())
            for place, name in enumerate(names):
                if name in names[:place]:
                    raise ConfigError(f"{file}: line 1: expected each name once, found {name!r} again")
            yield from (_csv_row(values, file, index, reader.line_num) for index, values in enumerate(reader))
        except csv.Error as error:
            raise ConfigError(f"{file}: line {reader.reader.line_num}: not CSV: {error}") from None


def _csv_row(values: Mapping[str | None, object], file: Path, index: int, line: int) -> TaskRow:
    named = {name: value for name, value in values.items() if name is not None}
    if len(named) < len(values) or None in named.values():
        raise ConfigError(f"{file}: line {line}: expected as many fields as the first line names, {len(named)}")
    return TaskRow(named, str(file), index, line)


def _parquet_rows(file: Path) -> Iterator[TaskRow]:
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
                    yield TaskRow(values, str(file), index)
                    index += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a parquet file that can be read: {error}") from None


ROW_FORMATS: Mapping[str, Callable[[Path], Iterator[TaskRow]]] = {
    ".csv": _csv_rows,
    ".json": _json_rows,
    ".jsonl": _jsonl_rows,
    ".jsonl.gz": _jsonl_rows,
    ".parquet": _parquet_rows,
}


if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Where a set lies on the hub: its id, configuration, and those of its splits that are meant (none: all)."""

    id: str
    config: str | None = None
    splits: tuple[str, ...] = ()


def hub_rows(hub: HubDataset) -> Iterator[tuple[str, Iterator[TaskRow]]]:
    """Yield the splits' names and rows; ConfigError when the library cannot load them."""
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", f"loading {hub.id}") from None
    try:
        loaded = dict(_load_splits(hub))
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{hub.id}: the datasets library cannot load it: {error}") from None
    for name, split in loaded.items():
        yield name, rows_of(split, f"{hub.id}/{name}")


def _load_splits(hub: HubDataset) -> "Mapping[str, datasets.Dataset]":
    import datasets

    folder = Path(hub.id)
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        found = datasets.load_from_disk(hub.id)
        return found if isinstance(found, Mapping) else {str(found.split or "all"): found}
    if hub.splits:
        return {name: datasets.load_dataset(hub.id, hub.config, split=name) for name in hub.splits}
    whole: Mapping[str, datasets.Dataset] = datasets.load_dataset(hub.id, hub.config)
    return whole
