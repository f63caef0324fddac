"""Small tools that answer by themselves, on this machine: a calculator, dates, units, SQL over CSV files, file search.

Each reads the question in words and answers exactly, or says that it cannot. Invariants: they call nothing and change
nothing; work and memory are bounded, whatever the question says (numbers of 1,000 digits, files of 50 MB, a second of
SQL); only files are read that the question or the configuration names, below the folder that it gives. Deliberately
absent: guessing what was meant. `can_answer` says whether a tool reads a question at all.
"""

import ast
import asyncio
import csv
import math
import operator
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Literal, TypeAlias

from pydantic import Field

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import Card, Reply, Request, WorkerKind
from shikisha.evals.graders.quantities import Unit, parse_unit

LocalTool: TypeAlias = Literal["calculator", "dates", "units", "sql", "search"]
LOCAL_TOOLS: tuple[LocalTool, ...] = ("sql", "search", "units", "dates", "calculator")  # the particular ones first
FILE_TOOLS = frozenset({"sql", "search"})


class LocalToolSettings(Table):
    """Which of the small tools, and the folder whose files it may read."""

    tool: LocalTool = Field(description="calculator, dates, units, sql (over CSV files) or search (in text files)")
    folder: Path = Field(default=Path(), description="the folder whose files sql and search may read")


def build(settings: LocalToolSettings, card: Card, secret_store: SecretStore) -> "LocalToolWorker":  # noqa: ARG001 - every adapter's signature
    """Return the tool as a worker."""
    return LocalToolWorker(settings.tool, settings.folder)


KIND = WorkerKind(
    settings=LocalToolSettings, build=build, any_task=True, uncalled="it reads questions of its own kind only"
)


class LocalToolWorker:
    """Answers the subtask where the tool reads it, else the whole question."""

    def __init__(self, tool: LocalTool, folder: Path = Path()) -> None:
        self.tool: LocalTool = tool
        self._folder = folder

    async def perform(self, request: Request) -> Reply:
        """Answer; TOOL_ERROR says why not."""
        for text in (request.subtask, request.task.prompt):
            if can_answer(self.tool, text):
                try:
                    if self.tool in FILE_TOOLS:  # which may take seconds
                        return Reply(await asyncio.to_thread(_ANSWERS[self.tool], text, self._folder))
                    return Reply(_ANSWERS[self.tool](text, self._folder))
                except _CannotError as reason:
                    raise WorkerError(FaultKind.TOOL_ERROR, f"{self.tool}: {reason}") from None
        raise WorkerError(FaultKind.TOOL_ERROR, f"{self.tool}: expected {EXAMPLES[self.tool]}")


EXAMPLES: Mapping[str, str] = {
    "calculator": '"What is 12 * 13?"',
    "dates": '"How many days are between 2026-01-31 and 2026-03-01?"',
    "units": '"Convert 5 km to miles."',
    "sql": "\"SELECT customer, sum(dollars) FROM 'sales.csv' GROUP BY 1\"",
    "search": '"Search docs for approval of writes"',
}


def can_answer(tool: LocalTool, text: str) -> bool:
    """Whether a tool reads this question; that takes little, and opens no file."""
    return len(text) <= _MAX_QUESTION and bool(_READS[tool](text))


class _CannotError(Exception):
    """Why a tool has no answer to a question that it reads."""


_MAX_QUESTION = 2_000  # characters; some patterns take time with the square of it

# The calculator

_MAX_DIGITS, _MAX_POWER, _MAX_NODES = 1_000, 4_000, 500
_NUMBER_WORDS = (
    (r"\bto the power of\b|\^", "**"),
    (r"\bdivided by\b|÷", "/"),
    (r"\bmultiplied by\b|\btimes\b|×|·", "*"),
    (r"\bplus\b", "+"),
    (r"\bminus\b|−", "-"),
    (r"(?:\bthe )?\b(?:square root|sqrt) of\s+(\d[\d.]*)", r"sqrt(\1)"),
    (r"(\d[\d.]*)\s*(?:%|percent) of\s+", r"\1 / 100 * "),
    (r"(?<=\d),(?=\d{3}\b)", ""),
)
_POLITE = re.compile(
    r"(?:please )?(?:what(?:'s| is| are)|how much is|calculate|compute|evaluate|work out)? ?(.*)", re.IGNORECASE
)
_EXPRESSION = re.compile(r"(?:[\d.\s()+\-*/%,]|\b(?:sqrt|abs|round|min|max|pi|e)\b)+")
_BINARY: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda one, other: Fraction(one // other),
    ast.Mod: operator.mod,
}
_CALLS: Mapping[str, Callable[..., Fraction]] = {
    "sqrt": lambda number: _root(number),
    "abs": abs,
    "round": lambda number, digits=Fraction(0): Fraction(round(number, max(-50, min(50, int(digits))))),
    "min": min,
    "max": max,
}


def _read_expression(text: str) -> ast.expr | None:
    """Return the expression that a question asks for, if it is nothing else."""
    found = _POLITE.match(" ".join(text.split()).rstrip("?=.! "))
    said = found[1] if found else ""
    if not re.search(r"\d", said):
        return None
    for pattern, sign in _NUMBER_WORDS:
        said = re.sub(pattern, sign, said, flags=re.IGNORECASE)
    said = " ".join(said.split())
    if not _EXPRESSION.fullmatch(said) or not re.search(r"[-+*/%(]", said):
        return None
    try:
        return ast.parse(re.sub(r"\b0+(?=\d)", "", said), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _calculate(text: str, _folder: Path) -> str:
    expression = _read_expression(text)
    if expression is None or sum(1 for _ in ast.walk(expression)) > _MAX_NODES:
        raise _CannotError("the expression is too long")
    try:
        return _number_text(_value(expression))
    except ZeroDivisionError:
        raise _CannotError("division by zero") from None
    except (OverflowError, ValueError, TypeError) as error:
        raise _CannotError(str(error) or "no such number") from None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base = _value(left)
            exponent = _value(right)
            if exponent.denominator != 1:
                return Fraction(float(base) ** float(exponent)) if base >= 0 else _root(base)
            digits = max(len(str(abs(base.numerator))), len(str(base.denominator)))
            if abs(exponent) > _MAX_POWER or digits * abs(exponent) > 2 * _MAX_DIGITS:
                raise _CannotError(f"the result has more than {_MAX_DIGITS} digits")
            return _bounded(base ** int(exponent))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _bounded(_BINARY[type(sign)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS:
            return _bounded(_CALLS[name](*map(_value, arguments)))
        case ast.Name(id="pi"):
            return Fraction(math.pi)
        case ast.Name(id="e"):
            return Fraction(math.e)
        case _:
            raise _CannotError("only numbers, + - * / // % **, sqrt, abs, round, min and max are known")


def _root(number: Fraction) -> Fraction:
    if number < 0:
        raise _CannotError("a negative number has no real root")
    exact = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
    return exact if exact * exact == number else Fraction(math.sqrt(number))


def _bounded(number: Fraction) -> Fraction:
    if max(abs(number.numerator), number.denominator).bit_length() > 4 * _MAX_DIGITS:
        raise _CannotError(f"the result has more than {_MAX_DIGITS} digits")
    return number


def _number_text(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    text = f"{float(number):.12g}"
    return text if "e" in text else text.rstrip("0").rstrip(".")


# Dates

_MONTHS = {
    name: place
    for place, month in enumerate(
        [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ],
        1,
    )
    for name in (month, month[:3])
}
_DATE = re.compile(
    r"\b(?:(\d{4})-(\d{1,2})-(\d{1,2})|(\d{1,2})\.? ([a-z]{3,9}),? (\d{4})|([a-z]{3,9}) (\d{1,2}),? (\d{4})"
    r"|(today|tomorrow|yesterday|now))\b",
    re.IGNORECASE,
)
_SPAN = re.compile(r"\b(\d{1,6}) (day|week|month|year)s?\b", re.IGNORECASE)
_WEEKDAY = re.compile(r"\b(?:(?:which|what) (?:week)?day|day of the week|weekday)\b", re.IGNORECASE)


def _dates_in(text: str) -> Iterator[date]:
    today = datetime.now(UTC).astimezone().date()
    for found in _DATE.finditer(text):
        year, month, day, day2, name2, year2, name3, day3, year3, word = found.groups()
        if word:
            yield today + timedelta({"tomorrow": 1, "yesterday": -1}.get(word.lower(), 0))
            continue
        named = name2 or name3
        if named and named.lower() not in _MONTHS:
            continue
        number = _MONTHS[named.lower()] if named else int(month)
        try:
            yield date(int(year or year2 or year3), number, int(day or day2 or day3))
        except ValueError:
            raise _CannotError(f"{found[0]!r} is no date") from None


def _reads_dates(text: str) -> bool:
    try:
        dates = list(_dates_in(text))
    except _CannotError:
        return True
    between = len(dates) == 2 and bool(re.search(r"\b(?:days?|weeks?|long|between|until|since)\b", text, re.IGNORECASE))
    asks_day = len(dates) == 1 and bool(_WEEKDAY.search(text))
    shifted = bool(_SPAN.search(text)) and bool(
        re.search(r"\b(?:after|before|from|in|ago|date)\b", text, re.IGNORECASE)
    )
    alone = bool(re.fullmatch(r"\W*what(?:'s| is) (?:today's|the) date(?: today)?\W*", text.strip(), re.IGNORECASE))
    return between or asks_day or (len(dates) == 1 and shifted) or alone


def _answer_dates(text: str, _folder: Path) -> str:
    dates = list(_dates_in(text))
    span = _SPAN.search(text)
    if len(dates) == 2:
        days = abs((dates[1] - dates[0]).days)
        if re.search(r"\bweeks?\b", text, re.IGNORECASE):
            return f"{days // 7} weeks and {days % 7} days"
        return f"{days} day{'' if days == 1 else 's'}"
    start = dates[0] if dates else datetime.now(UTC).astimezone().date()
    if span is None:
        return start.strftime("%A") if _WEEKDAY.search(text) else start.isoformat()
    back = re.search(r"\b(?:before|ago|earlier)\b", text, re.IGNORECASE)
    found = _shift(start, -int(span[1]) if back else int(span[1]), span[2].lower())
    return f"{found.isoformat()} ({found.strftime('%A')})"


def _shift(start: date, count: int, unit: str) -> date:
    try:
        if unit in ("day", "week"):
            return start + timedelta(days=count * (7 if unit == "week" else 1))
        months = start.year * 12 + start.month - 1 + count * (12 if unit == "year" else 1)
        year, month = divmod(months, 12)
        following = date(year + (month == 11), (month + 1) % 12 + 1, 1)
        last = (following - timedelta(days=1)).day
        return date(year, month + 1, min(start.day, last))
    except (OverflowError, ValueError):
        raise _CannotError("the calendar ends before that day") from None


# Units

_MEASURES = {  # what is converted: amounts of money, angles and the like are not
    unit.dimension: measure
    for name, measure in (
        *(("m", "length"), ("kg", "mass"), ("l", "volume"), ("s", "time"), ("bit", "data"), ("m^2", "area")),
        *(("m/s", "speed"), ("J", "energy"), ("K", "temperature")),
    )
    if (unit := parse_unit(name))
}
_SPELLINGS = {"c": "°c", "f": "°f", "nautical mile": "nmi", "nautical miles": "nmi"}  # not coulomb and farad
_NOT_EXACT = frozenset({"month", "months", "year", "years", "yr"})
_UNIT = r"(?:square |nautical |degrees? )?[a-z°²/0-9]{1,12}"
_CONVERSION = re.compile(
    rf"\b(?:convert |what(?:'s| is) |how much is |how many is )?(-?[\d.,]+) ?({_UNIT}) (?:in|to|into|as) ({_UNIT})\W*$",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    rf"\bhow many ({_UNIT}) (?:are )?(?:there )?(?:in|make|is) (-?[\d.,]+|an?) ?({_UNIT})\W*$", re.IGNORECASE
)


def _unit(name: str) -> Unit | None:
    name = name.strip().replace("²", "^2")
    small = name.lower()
    found = parse_unit(_SPELLINGS.get(small, name)) or parse_unit(name.upper())
    return found if found is not None and found.dimension in _MEASURES and small not in _NOT_EXACT else None


def _read_conversion(text: str) -> tuple[Fraction, str, str] | None:
    found = _CONVERSION.search(text)
    if found:
        number, one, other = found.groups()
    elif (found := _HOW_MANY.search(text)) is not None:
        other, number, one = found.groups()
        number = "1" if number.lower().startswith("a") else number
    else:
        return None
    kinds = _unit(one), _unit(other)
    try:
        amount = Fraction(number.replace(",", ""))
    except ValueError:
        return None
    return (amount, one, other) if kinds[0] and kinds[1] else None


def _convert(text: str, _folder: Path) -> str:
    read = _read_conversion(text)
    if read is None:
        raise _CannotError("no conversion was asked for")
    amount, one, other = read
    first, second = _unit(one), _unit(other)
    if first is None or second is None or first.dimension != second.dimension:
        measures = [_MEASURES[each.dimension] if each else "nothing" for each in (first, second)]
        raise _CannotError(f"{one} measures {measures[0]}, {other} {measures[1]}")
    try:
        result = float((first.base(amount) - second.offset) / second.factor)
    except OverflowError:
        raise _CannotError("the number is too large") from None
    return f"{round(result, 10):.8g} {other}"


# SQL over CSV files

_SELECT = re.compile(r"^\s*(?:select|with)\b.*\bfrom\b", re.IGNORECASE | re.DOTALL)
_TABLE_FILE = re.compile(
    r"""(\b(?:from|join)\s+)(?:'([^'\n]+\.(?:csv|tsv))'|"([^"\n]+\.(?:csv|tsv))"|([\w./-]+\.(?:csv|tsv))\b)""",
    re.IGNORECASE,
)
_MAX_FILE, _MAX_ROWS, _MAX_COLUMNS, _SQL_SECONDS = 50 * 2**20, 100, 500, 1.0
_READ_ONLY = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_NUMERIC = re.compile(r"[-+]?\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?")


def _reads_sql(text: str) -> bool:
    return bool(_SELECT.match(text)) and bool(_TABLE_FILE.search(text))


def _answer_sql(text: str, folder: Path) -> str:
    tables: dict[str, str] = {}

    def name_table(found: re.Match[str]) -> str:
        path = found[2] or found[3] or found[4]
        return f"{found[1]}{tables.setdefault(path, f'file_{len(tables) + 1}')}"

    query = _TABLE_FILE.sub(name_table, text.strip().rstrip(";"))
    database = sqlite3.connect(":memory:")
    try:
        for path, table in tables.items():
            _load_csv(database, table, _inside(folder, path))
        deadline = monotonic() + _SQL_SECONDS
        database.set_progress_handler(lambda: int(monotonic() > deadline), 10_000)
        database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READ_ONLY else sqlite3.SQLITE_DENY)
        cursor = database.execute(query)
        rows = cursor.fetchmany(_MAX_ROWS + 1)
        heads = [column[0] for column in cursor.description or ()]
    except sqlite3.Error as error:
        raise _CannotError(str(error)) from None
    finally:
        database.close()
    if len(rows) == 1 and len(heads) == 1:
        return str(rows[0][0])
    lines = [
        "\t".join(heads),
        *("\t".join("" if cell is None else str(cell) for cell in row) for row in rows[:_MAX_ROWS]),
    ]
    return "\n".join([*lines, *(["(more rows were left out)"] if len(rows) > _MAX_ROWS else [])])


def _load_csv(database: sqlite3.Connection, table: str, path: Path) -> None:
    text = _read_text(path)
    rows = csv.reader(StringIO(text), delimiter="\t" if path.suffix.lower() == ".tsv" else _delimiter(text))
    try:
        heads = next(rows, [])
        if not heads or len(heads) > _MAX_COLUMNS:
            raise _CannotError(f"{path.name}: expected a first line with 1 to {_MAX_COLUMNS} names of columns")
        seen: dict[str, int] = {}
        names = []
        for place, head in enumerate(heads):
            name = head.strip().replace('"', "") or f"column{place + 1}"
            seen[name.lower()] = seen.get(name.lower(), 0) + 1
            names.append(name if seen[name.lower()] == 1 else f"{name}_{seen[name.lower()]}")
        columns = ", ".join(f'"{name}"' for name in names)
        database.execute(f"CREATE TABLE {table} ({columns})")
        marks = ", ".join("?" * len(names))
        cells = ([_cell(cell) for cell in [*row, *[""] * len(names)][: len(names)]] for row in rows if row)
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", cells)  # noqa: S608 - a name and marks of ours
    except csv.Error as error:
        raise _CannotError(f"{path.name}: {error}") from None


def _delimiter(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _cell(text: str) -> object:
    text = text.strip()
    if not text:
        return None
    if _NUMERIC.fullmatch(text):
        return float(text) if any(mark in text for mark in ".eE") else int(text)
    return text


# Search in a folder

_SEARCH = re.compile(
    r"""^\s*(?:search|grep|look)(?:\s+(?:in|through))?\s+(?:"([^"\n]+)"|'([^'\n]+)'|(\S+))\s+for\s+(.+?)\s*$"""
    r"""|^\s*(?:find|search for)\s+(.+?)\s+in\s+(?:"([^"\n]+)"|'([^'\n]+)'|(\S*[/.]\S*|\S+/))\s*$""",
    re.IGNORECASE | re.DOTALL,
)
_TEXT_SUFFIXES = frozenset(
    [
        ".md",
        ".txt",
        ".rst",
        ".py",
        ".js",
        ".ts",
        ".html",
        ".csv",
        ".tsv",
        ".json",
        ".toml",
        ".yaml",
        ".yml",
        ".log",
        ".tex",
        ".org",
    ]
)
_MAX_FILES, _MAX_TEXT, _SHOWN = 5_000, 50 * 2**20, 5
_TERM = re.compile(r"\w+")


def _read_search(text: str) -> tuple[str, str] | None:
    found = _SEARCH.match(text)
    if not found:
        return None
    groups = found.groups()
    folder, words = (
        (groups[0] or groups[1] or groups[2], groups[3])
        if groups[3]
        else (
            groups[5] or groups[6] or groups[7],
            groups[4],
        )
    )
    words = words.strip(" ?.!\"'")
    return (folder, words) if folder and words else None


def _answer_search(text: str, folder: Path) -> str:
    read = _read_search(text)
    if read is None:
        raise _CannotError("nothing was searched for")
    root, terms = _inside(folder, read[0]), _TERM.findall(read[1])[:50]
    if not root.is_dir():
        raise _CannotError(f"{read[0]}: expected a folder")
    if not terms:
        raise _CannotError("no word was searched for")
    database = sqlite3.connect(":memory:")
    try:
        database.execute("CREATE VIRTUAL TABLE pages USING fts5(path UNINDEXED, line UNINDEXED, body)")
        database.executemany("INSERT INTO pages VALUES (?, ?, ?)", _paragraphs(root))
        wanted = " OR ".join(f'"{term}"' for term in terms)
        found = database.execute(
            "SELECT path, line, snippet(pages, 2, '', '', ' … ', 40) FROM pages WHERE pages MATCH ? "
            "ORDER BY bm25(pages) LIMIT ?",
            (wanted, _SHOWN),
        ).fetchall()
    except sqlite3.Error as error:
        raise _CannotError(str(error)) from None
    finally:
        database.close()
    if not found:
        return f"nothing in {read[0]} has any of these words"
    return "\n".join(f"{path}:{line}: {' '.join(said.split())}" for path, line, said in found)


def _paragraphs(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the paragraphs of the text files below a folder, with the line on which each begins."""
    left = _MAX_TEXT
    for count, path in enumerate(sorted(_text_files(root))):
        if count >= _MAX_FILES or left <= 0:
            return
        try:
            text = _read_text(path, min(left, 2 * 2**20))
        except _CannotError:
            continue
        left -= len(text)
        line = 1
        for paragraph in re.split(r"(\n\s*\n)", text):
            if paragraph.strip():
                yield str(path.relative_to(root)), line + len(paragraph) - len(paragraph.lstrip("\n")), paragraph
            line += paragraph.count("\n")


def _text_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if not each.startswith((".", "node_modules", "__pycache__"))]
        visible = [Path(folder, each) for each in files if not each.startswith(".")]
        yield from (each for each in visible if each.suffix.lower() in _TEXT_SUFFIXES)


def _inside(folder: Path, given: str) -> Path:
    """Return a path below the folder; a file elsewhere, or a hidden one, is not read."""
    base, path = folder.resolve(), (folder / given).resolve()
    if not path.is_relative_to(base):
        raise _CannotError(f"{given}: only what is in {base} is read")
    if any(part.startswith(".") for part in path.relative_to(base).parts):
        raise _CannotError(f"{given}: hidden files are not read")
    if not path.exists():
        raise _CannotError(f"{given}: there is no such file or folder")
    return path


def _read_text(path: Path, most: int = _MAX_FILE) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise _CannotError(f"{path.name}: cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise _CannotError(f"{path.name}: more than {most:,} bytes")
    return data.decode("utf-8-sig", errors="replace")


_READS: Mapping[LocalTool, Callable[[str], object]] = {
    "calculator": lambda text: _read_expression(text) is not None,
    "dates": _reads_dates,
    "units": _read_conversion,
    "sql": _reads_sql,
    "search": _read_search,
}
_ANSWERS: Mapping[LocalTool, Callable[[str, Path], str]] = {
    "calculator": _calculate,
    "dates": _answer_dates,
    "units": _convert,
    "sql": _answer_sql,
    "search": _answer_search,
}
