"""Where texts go: the answer to stdout, everything else to stderr, reports to files.

Invariant: whatever a model, a tool or a user wrote passes `clean_text` before a terminal shows it; a pipe gets the
answer byte for byte. With --json, stdout holds exactly one JSON value, errors included. rich leaves colors out where
there is no terminal; it is imported when something is drawn, because `--help` imports this module.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shikisha.core.errors import ConfigError, TaskError
from shikisha.core.text import clean_text, one_line, to_safe_json

if TYPE_CHECKING:
    from rich.console import Console

STDOUT = "-"  # as a file's name
_MAX_LINE = 200
_GAP = 2  # between two columns
_MIN_CUT_COLUMN = 8  # characters that must be left of a column that is cut


def print_answer(text: str) -> None:
    """Print the answer to stdout."""
    _write(sys.stdout, clean_text(text) if sys.stdout.isatty() else text)


def print_json(data: object) -> None:
    """Print a JSON value to stdout."""
    _write(sys.stdout, to_safe_json(data))


def print_report(text: str) -> None:
    """Print a report to stdout, cleaned, because it quotes others, and on a terminal wrapped with its indents."""
    _write(sys.stdout, wrap_text(text, make_console(to_stdout=True).width) if sys.stdout.isatty() else clean_text(text))


def wrap_text(text: str, width: int) -> str:
    """Return the text cleaned and wrapped at words; continued lines are indented further."""
    from rich.text import Text

    lines = []
    for whole in clean_text(text).expandtabs(4).split("\n"):
        indent = min(len(whole) - len(whole.lstrip()), width // 2)
        first, *rest = Text(whole.strip()).wrap(make_console(), max(width - indent - 2, 10)) or [Text()]
        lines += [" " * indent + first.plain.rstrip(), *(" " * (indent + 2) + more.plain.rstrip() for more in rest)]
    return "\n".join(lines)


def print_line(text: str, file: TextIO | None = None) -> None:
    """Print a line to a file, byte for byte, or to stdout."""
    if file is None:
        print_answer(text)
    else:
        file.write(f"{text}\n")


def print_note(text: str) -> None:
    """Print a remark to stderr."""
    _write(sys.stderr, clean_text(text))


def print_wrapped_note(text: str) -> None:
    """Print a remark in prose to stderr, on a terminal wrapped at words; not for what people copy."""
    print_note(wrap_text(text, make_console().width) if sys.stderr.isatty() else text)


def print_note_line(text: str) -> None:
    """Print a remark to stderr on one line, on a terminal cut at its width."""
    screen, line = make_console(), one_line(text, _MAX_LINE)
    if screen.is_terminal:
        screen.print(line, no_wrap=True, overflow="ellipsis")
    else:
        _write(sys.stderr, line)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print a table to stdout; every column is as wide as its cells, but the last, which is cut on a terminal.

    A pipe gets 200 characters of the last column. A terminal without room for it does not get it.
    """
    from rich.cells import cell_len, set_cell_size

    lines = [tuple(heads), *(tuple(one_line(cell, _MAX_LINE) for cell in row) for row in rows)]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(heads) - 1)]
    room = make_console(to_stdout=True).width - sum(widths) - _GAP * len(widths) if sys.stdout.isatty() else None
    for line in lines:
        cells = [
            " " * (width - cell_len(cell)) + cell if head in right else set_cell_size(cell, width)
            for head, cell, width in zip(heads, line, widths, strict=False)
        ]
        if room is None or cell_len(line[-1]) <= room:
            cells.append(line[-1])
        elif room >= _MIN_CUT_COLUMN:
            cells.append(set_cell_size(line[-1], room - 1) + "…")
        _write(sys.stdout, (" " * _GAP).join(cells).rstrip())


def write_file(path: Path, text: str) -> None:
    """Write a file, its folder included, and say so on stderr; ConfigError when that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    print_note(f"written: {path}")


def write_new_file(path: Path, text: str, *, force: bool) -> None:
    """Write a file; TaskError when that cannot be done, or when it exists and `force` is not set."""
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise TaskError(f"{path} exists already; --force replaces it") from None
    except OSError as error:
        raise TaskError(f"{path}: cannot be written: {error.strerror}") from None


def refuse_unwritable(path: Path) -> None:
    """Refuse a path that cannot be written; what was made to find out is removed again."""
    made = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            for each in made:
                each.unlink(missing_ok=True) if each == path else each.rmdir()


def make_console(*, to_stdout: bool = False) -> "Console":
    """Return a rich console, on stderr by default, that treats no text as markup."""
    from rich.console import Console

    return Console(file=sys.stdout if to_stdout else sys.stderr, markup=False, highlight=False, emoji=False)


def escape_unencodable() -> None:
    """Make stdout and stderr escape what their encoding cannot represent, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _write(stream: TextIO, text: str) -> None:
    stream.write(text if text.endswith("\n") else text + "\n")
    stream.flush()
