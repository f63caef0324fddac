"""Cut a file into parts that can be shown: Python at its definitions, any other text into blocks of lines.

Invariants: parts cover the file in order and do not overlap; no part is longer than MOST_LINES; a text that is no
Python (of another version, or broken) is cut into blocks. Nothing of a file is run. Deliberately absent: other
languages' grammars.
"""

import ast
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

MOST_LINES = 80
_LONGEST_PARSED = 600_000  # characters
_HEADING = re.compile(r"^(#+ .+|\[[\w.\-\" ]+\]\s*$|[\w-]+:\s*$)")
_NAMES_SHOWN = 40


@dataclass(frozen=True, slots=True)
class FilePart:
    """Lines `first` to `last` of a file, counted from 1, and the names that they define."""

    file: str
    first: int
    last: int
    names: str
    text: str


def split_file(name: str, text: str) -> list[FilePart]:
    """Return a file's parts; an empty file has one, for its name."""
    lines = text.splitlines()
    starts = _definitions(text) if name.endswith(".py") and len(text) <= _LONGEST_PARSED else None
    if starts is None:
        starts = [
            (line, line_text.strip("#[]: ")) for line, line_text in enumerate(lines, 1) if _HEADING.match(line_text)
        ]
    return list(_parts(name, lines, starts)) or [FilePart(name, 1, 1, "", "")]


def _definitions(text: str) -> list[tuple[int, str]] | None:
    """Return where definitions begin, with their names; None for what is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: list[tuple[int, str]] = []
    for node in tree.body:
        found += _node_starts(node)
    return found


def _node_starts(node: ast.stmt) -> Iterator[tuple[int, str]]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield _first_line(node), name
        case ast.ClassDef(name=name, body=body):
            yield _first_line(node), name
            for inner in body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield _first_line(inner), f"{name}.{inner.name}"
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield node.lineno, name


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _parts(name: str, lines: Sequence[str], starts: Sequence[tuple[int, str]]) -> Iterator[FilePart]:
    """Yield parts that begin at starts, with small ones joined."""
    first, names = 1, list[str]()
    for place, (line, defined) in enumerate([*starts, (len(lines) + 1, "")]):
        far = line - first
        end_of_next = starts[place + 1][0] if place + 1 < len(starts) else len(lines) + 1
        if far > 0 and (far >= MOST_LINES // 4 or place == len(starts) or end_of_next - first > MOST_LINES):
            yield from _blocks(name, lines, first, line, names)
            first, names = line, []
        names.append(defined)


def _blocks(name: str, lines: Sequence[str], first: int, end: int, names: Sequence[str]) -> Iterator[FilePart]:
    for start in range(first, end, MOST_LINES):
        last = min(start + MOST_LINES, end) - 1
        text = "\n".join(lines[start - 1 : last])
        if text.strip():
            yield FilePart(name, start, last, " ".join(names[:_NAMES_SHOWN]), text)


_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([^\n#]+)|import[ \t]+([^\n#]+))", re.MULTILINE)
_MOST_IMPORTS = 300


def imported_files(name: str, text: str, known: Container[str]) -> Iterator[str]:
    """Yield the known files that a Python file imports."""
    if not name.endswith(".py"):
        return
    folder = PurePosixPath(name).parent
    for place, match in enumerate(_IMPORT.finditer(text)):
        if place >= _MOST_IMPORTS:
            return
        source, taken, plain = match.groups()
        if plain:
            wanted = [piece.split()[0] for piece in plain.split(",") if piece.split()]
        else:
            wanted = [
                source,
                *(
                    f"{source.rstrip('.')}.{piece.split()[0]}" if source.strip(".") else f"{source}{piece.split()[0]}"
                    for piece in taken.strip("() ").split(",")
                    if piece.split()
                ),
            ]
        for module in wanted:
            yield from _module_files(module, folder, known)


def _module_files(module: str, folder: PurePosixPath, known: Container[str]) -> Iterator[str]:
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module.lstrip(".").split(".") if part]
    if dots:
        base = folder
        for _ in range(dots - 1):
            base = base.parent
        roots = [base]
    else:
        roots = [PurePosixPath(), PurePosixPath("src"), *folder.parents, folder]
    for root in roots:
        path = root.joinpath(*parts)
        for file in (f"{path}.py", str(path / "__init__.py")):
            if parts and file in known:
                yield file
                return
