"""Read a patch in the unified format of git, and apply it to a tree of files in memory.

Invariants: no path of a patch leaves the tree, and nothing but regular files is written: links, submodules and binary
patches are refused. A hunk fits where all its context and removed lines stand, as `git apply` has it: the nearest place
to the announced line, with no fuzz. A patch applies as a whole or not at all, and a PatchError says which file and hunk
does not. Work is bounded by the size of patch and tree. Deliberately absent: file modes, and `patch --fuzz`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

LONGEST_PATCH = 2_000_000  # characters
MOST_FILES = 1_000
_MOST_PLACES = 2_000_000  # lines that are compared in search of a hunk's place
_NULL = "/dev/null"
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_MODE = re.compile(r"(?:new file|deleted file|old|new) mode (\d+)")
_INDEX_MODE = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+ (\d+)")
_ESCAPE = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^ {0,3}\1[ \t]*$", re.DOTALL | re.MULTILINE)
_STARTS = re.compile(r"^(diff --git |--- \S)", re.MULTILINE)
_NO_NEWLINE = "\\ No newline"

Tree = Mapping[str, bytes]


class PatchError(ValueError):
    """Why a text is no patch, or a patch does not apply: the file, the hunk, and what was expected."""


@dataclass(slots=True)
class Hunk:
    """Lines that are there and lines that are to be there; `line` is where they stand, counted from 1."""

    line: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FilePatch:
    """The change of one file: `old` None: it is new; `new` None: it is deleted."""

    old: str | None
    new: str | None
    hunks: list[Hunk] = field(default_factory=list)
    copied: bool = False

    @property
    def name(self) -> str:
        """The file, as errors name it."""
        return self.new or self.old or "?"


def extract_patch(answer: str) -> str | None:
    """Return the patch in an answer: its last fenced block that is one, else the text from its first header on."""
    if len(answer) > LONGEST_PATCH:
        return answer if _STARTS.search(answer[:LONGEST_PATCH]) else None
    blocks: list[str] = [body for _, label, body in _FENCE.findall(answer) if label in ("", "diff", "patch", "udiff")]
    fitting = [body for body in blocks if _STARTS.search(body)]
    if fitting:
        return fitting[-1]
    found = _STARTS.search(answer)
    return answer[found.start() :] if found else None


def read_patch(text: str) -> list[FilePatch]:
    """Return the files that a patch changes; PatchError says which line is wrong."""
    if len(text) > LONGEST_PATCH:
        raise PatchError(f"the patch is longer than {LONGEST_PATCH:,} characters")
    files = _PatchReader(text).read()
    if not files:
        raise PatchError("there is no file header (`diff --git a/FILE b/FILE`, or `--- a/FILE` and `+++ b/FILE`)")
    return files


def apply_patch(tree: Tree, files: Sequence[FilePatch]) -> dict[str, bytes]:
    """Return the tree with a patch applied; PatchError when any part of it does not fit."""
    changed = dict(tree)
    budget = [_MOST_PLACES]
    for each in files:
        _apply_file(changed, each, budget)
    return changed


class _PatchReader:
    """Reads a patch line by line; lines end at a line feed and nowhere else."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        if self._lines[-1] == "":
            self._lines.pop()
        self._at = 0

    def read(self) -> list[FilePatch]:
        files: list[FilePatch] = []
        current: FilePatch | None = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            following = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
            if line.startswith("diff --git "):
                current = self._header(line)
                files.append(current)
            elif line.startswith("--- ") and following.startswith("+++ "):
                old, new = self._path(line[4:]), self._path(following[4:])
                if current is None or current.hunks:
                    current = FilePatch(old, new)
                    files.append(current)
                else:
                    current.old, current.new = old, new
                if old is None and new is None:
                    raise self._error("both files are /dev/null")
                self._at += 2
            elif line.startswith("@@ ") and current is not None:
                current.hunks.append(self._hunk(line))
            else:
                if line.startswith(("GIT binary patch", "Binary files ")):
                    raise self._error("a binary change cannot be applied; expected text")
                self._at += 1
            if len(files) > MOST_FILES:
                raise PatchError(f"the patch changes more than {MOST_FILES:,} files")
        return files

    def _header(self, line: str) -> FilePatch:
        """Read a `diff --git` header with what stands between it and the hunks."""
        found = FilePatch(None, None)
        names = self._header_names(line)
        found.old = found.new = names
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(("diff --git ", "--- ", "@@ ", "GIT binary patch", "Binary files ")):
                break
            if mode := (_MODE.match(line) or _INDEX_MODE.match(line)):
                if mode[1] not in ("100644", "100755", "100664"):
                    kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(mode[1], f"mode {mode[1]}")
                    raise self._error(f"{kind} cannot be written; expected a regular file")
                if line.startswith("new file"):
                    found.old = None
                elif line.startswith("deleted file"):
                    found.new = None
            elif line.startswith(("rename from ", "copy from ")):
                found.old, found.copied = self._checked(line.split(" from ", 1)[1]), line.startswith("copy")
            elif line.startswith(("rename to ", "copy to ")):
                found.new = self._checked(line.split(" to ", 1)[1])
            elif not line.startswith(("similarity index ", "dissimilarity index ", "index ")):
                break
            self._at += 1
        return found

    def _header_names(self, line: str) -> str | None:
        """Return the name in `diff --git a/NAME b/NAME`; None where it cannot be told apart (a rename says it)."""
        rest = line.removeprefix("diff --git ").rstrip("\r")
        half = len(rest) // 2
        if rest.startswith('"'):
            names = re.findall(r'"(?:[^"\\]|\\.)*"', rest)
            return self._path(names[0]) if len(names) == 2 else None
        left, right = rest[:half], rest[half + 1 :]
        return self._path(left) if left.partition("/")[2] == right.partition("/")[2] and left else None

    def _path(self, text: str) -> str | None:
        """Return a path without its first part, or None for /dev/null."""
        text = text.rstrip("\r")
        if not text.startswith('"'):
            text = text.partition("\t")[0].rstrip()
        name = self._unquoted(text)
        if name == _NULL:
            return None
        first, slash, rest = name.partition("/")
        if not slash or not first:
            raise self._error(f"expected a path such as a/FILE or b/FILE, found {name[:100]!r}")
        return self._checked(rest)

    def _checked(self, text: str) -> str:
        """Return a path; PatchError when it leads out of the tree."""
        name = self._unquoted(text.rstrip("\r"))
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name or "\\" in name or name.endswith("/"):
            raise self._error(f"the path {name[:100]!r} leads out of the repository")
        if ".git" in (part.casefold() for part in parts):
            raise self._error(f"the path {name[:100]!r} is git's own")
        return str(PurePosixPath(*parts))

    def _unquoted(self, text: str) -> str:
        if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
            return text

        def byte(found: re.Match[str]) -> str:
            code = found[1]
            return chr(_ESCAPES.get(code, 0) or (int(code, 8) & 255))

        raw = _ESCAPE.sub(byte, text[1:-1])
        try:
            return raw.encode("latin-1").decode()
        except UnicodeError:
            return raw

    def _hunk(self, line: str) -> Hunk:
        found = _HUNK.match(line)
        if not found:
            raise self._error("expected `@@ -LINE,COUNT +LINE,COUNT @@`")
        start, old, new = int(found[1]), int(found[2] or 1), int(found[4] or 1)
        if found[2] is None:
            old = 1
        hunk = Hunk(start + (1 if old == 0 else 0))
        self._at += 1
        for text, sign in self._hunk_lines(old, new):
            if sign in " -":
                hunk.old.append(text)
            if sign in " +":
                hunk.new.append(text)
        return hunk

    def _hunk_lines(self, old: int, new: int) -> Iterator[tuple[str, str]]:
        """Yield the lines of a hunk with their signs, as many as its header announces."""
        while old > 0 or new > 0:
            if self._at >= len(self._lines):
                raise self._error("the patch ends inside a hunk, before as many lines as its header announces")
            line = self._lines[self._at]
            sign, text = (line[0], line[1:]) if line.strip("\r") else (" ", line)  # some editors strip blank context
            if sign not in " +-":
                raise self._error(f"expected a line that starts with ' ', '+' or '-', found {line[:40]!r}")
            old -= sign != "+"
            new -= sign != "-"
            if old < 0 or new < 0:
                raise self._error("the hunk holds other lines than its header announces")
            self._at += 1
            ended = self._at < len(self._lines) and self._lines[self._at].startswith(_NO_NEWLINE)
            yield text if ended else f"{text}\n", sign
            self._at += ended

    def _error(self, problem: str) -> PatchError:
        return PatchError(f"line {self._at + 1} of the patch: {problem}")


def _apply_file(tree: dict[str, bytes], each: FilePatch, budget: list[int]) -> None:
    if each.old is None and each.new is None:
        raise PatchError("a file header names no file")
    if each.old is not None and each.old not in tree:
        raise PatchError(f"{each.old}: there is no such file in the repository")
    if each.new is not None and each.new != each.old and each.new in tree:
        raise PatchError(f"{each.new}: the patch makes this file, and it is there")
    before = tree[each.old] if each.old is not None else b""
    after = _apply_hunks(before, each, budget)
    if each.new is None:
        if after:
            raise PatchError(f"{each.old}: the patch deletes this file, and not all of its lines")
        del tree[each.name]
        return
    if each.old is not None and each.old != each.new and not each.copied:
        del tree[each.old]
    blocked = next((part for part in map(str, PurePosixPath(each.new).parents) if part in tree), None)
    if blocked is not None:
        raise PatchError(f"{each.new}: {blocked} is a file and no folder")
    tree[each.new] = after


def _apply_hunks(data: bytes, each: FilePatch, budget: list[int]) -> bytes:
    if not each.hunks:
        return data if each.new is not None else b""
    lines = data.decode(errors="surrogateescape").split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
    if lines[-1] == "":
        lines.pop()
    made: list[str] = []
    done = moved = 0
    for number, hunk in enumerate(each.hunks, 1):
        place = _find_place(lines, hunk, done, hunk.line - 1 + moved, budget)
        if place is None:
            raise PatchError(f"{each.name}: hunk {number} does not apply: its context is not in the file")
        moved = place - (hunk.line - 1)
        made += lines[done:place]
        made += hunk.new
        done = place + len(hunk.old)
    return "".join(made + lines[done:]).encode(errors="surrogateescape")


def _find_place(lines: Sequence[str], hunk: Hunk, first: int, expected: int, budget: list[int]) -> int | None:
    """Return where a hunk's old lines stand, the nearest place to the expected one; None where they do not."""
    last = len(lines) - len(hunk.old)
    if last < first:
        return None
    expected = min(max(expected, first), last)
    if not hunk.old:
        return expected
    for distance in range(max(expected - first, last - expected) + 1):
        for place in dict.fromkeys((expected - distance, expected + distance)):
            if first <= place <= last:
                budget[0] -= 1
                if lines[place] == hunk.old[0]:
                    budget[0] -= len(hunk.old)
                    if list(lines[place : place + len(hunk.old)]) == hunk.old:
                        return place
        if budget[0] < 0:
            raise PatchError("the places of the hunks are too far away to be searched for")
    return None
