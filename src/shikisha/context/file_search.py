"""Rank the files of a folder for a task: by their words, by the repository's history, and by what belongs together.

A file is scored by its best part (`file_parts`), by its name, by whether past commits with like messages changed it, by
how lately it changed, and by the files that it changed together with, imports, or tests. The weights were fitted on
five public repositories (`benchmarks/context.py --fit`) and are constants here. Invariants: nothing newer than what was
given is used; the work of a search is linear in the postings of its words, and equal scores are ordered by name;
without history the scores are those of words alone. Deliberately absent: embeddings.

Cut a file into parts that can be shown: Python at its definitions, any other text into blocks of lines.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from math import exp
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from shikisha.context.git_history import Commit
from shikisha.core.fast_dataclass import dataclass
from shikisha.retrieval.text_index import IndexedText, TextIndex

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


Floats = NDArray[np.float64]

FEATURES = ("part", "name", "messages", "lately", "together", "neighbors", "tests")
# Fitted by `benchmarks/context.py --fit`; in the order of FEATURES.
WEIGHTS: Floats = np.array([2.37, 1.14, 3.27, 1.40, 0.97, 0.33, 0.58])
_PART_WEIGHTS, _MESSAGE_WEIGHTS = (1.0, 1.5, 1.0), (1.0, 0.5)
_PARTS, _MESSAGES, _SEEDS = 200, 60, 6
_LATELY, _TOGETHER = 15.0, 150.0  # commits in which a change loses most of its weight
_MOST_TOGETHER = 30  # files of a commit that still say something about one another


@dataclass(frozen=True, slots=True)
class RankedFile:
    """A file, its score, and its best parts for the task, the best first."""

    name: str
    score: float
    parts: tuple[FilePart, ...]


class FileSearch:
    """An index over texts by file name, and over the commits before now, the newest first."""

    def __init__(self, files: Mapping[str, str], history: Sequence[Commit] = ()) -> None:
        self.names = sorted(files)
        self._place = {name: place for place, name in enumerate(self.names)}
        self.parts = [part for name in self.names for part in split_file(name, files[name])]
        documents = [IndexedText(part.file, (part.file, part.names, part.text)) for part in self.parts]
        self._index = TextIndex(documents, _PART_WEIGHTS)
        self._file_of = np.array([self._place[part.file] for part in self.parts], np.int64)
        self._names = TextIndex([IndexedText("", (name,)) for name in self.names], (1.0,))
        # For each file those that it imports and those that import it
        found: list[set[int]] = [set() for _ in self.names]
        for place, name in enumerate(self.names):
            for other in imported_files(name, files[name], self._place):
                found[place].add(self._place[other])
                found[self._place[other]].add(place)
        self._neighbors = [sorted(each - {place}) for place, each in enumerate(found)]
        self._tests = self._read_tests()
        self._read_history(history)

    def features(self, query: str) -> Floats:
        """Return [N, F]: what each file has of each feature, in [0, 1]."""
        size = len(self.names)
        best = np.zeros(size)
        found = self._index.search(query, _PARTS)
        for place, score in zip(self._file_of[found.positions], found.scores, strict=True):
            best[place] = max(best[place], score)
        named = np.zeros(size)
        of_names = self._names.search(query, _PARTS)
        named[of_names.positions] = of_names.scores
        messages = np.zeros(len(self.names))
        if len(self._messages):
            found = self._messages.search(query, _MESSAGES)
            top = float(found.scores.max(initial=0.0)) or 1.0
            for position, score in zip(found.positions, found.scores, strict=True):
                changed = self._changes[int(position)]
                for place in changed:
                    messages[place] += (score / top) ** 2 / len(changed) ** 0.5
        words = [_normalized(each) for each in (best, named, messages)]
        first = words[0] + words[1] + words[2] + 0.5 * self._lately
        seeds = np.argsort(-first, kind="stable")[:_SEEDS]
        weight = first[seeds] / max(float(first.max(initial=0.0)), 1e-9)
        together, neighbors, tests = np.zeros(size), np.zeros(size), np.zeros(size)
        for seed, share in zip(seeds, weight, strict=True):
            for other, often in self._changed_together(int(seed)).items():
                together[other] = max(together[other], share * often)
            neighbors[self._neighbors[int(seed)]] += share
            tests[self._tests[int(seed)]] += share
        return np.stack([*words, self._lately, together, _normalized(neighbors), _normalized(tests)], axis=1)

    def scores(self, query: str, weights: Floats = WEIGHTS) -> Floats:
        """Return each file's score, in the order of `names`."""
        result: Floats = self.features(query) @ weights
        return result

    def rank(self, query: str, count: int, parts: int = 3) -> list[RankedFile]:
        """Return the best files with a score above 0, with their best parts for the query."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:count]
        found = self._index.search(query, _PARTS)
        fitting = defaultdict[int, list[FilePart]](list)
        for position in found.positions:
            fitting[int(self._file_of[position])].append(self.parts[int(position)])
        return [
            RankedFile(self.names[place], float(scores[place]), tuple(fitting[int(place)][:parts]))
            for place in order
            if scores[place] > 0
        ]

    def _changed_together(self, seed: int) -> dict[int, float]:
        counts, total = defaultdict[int, float](float), 0.0
        for commit in self._commits_of.get(seed, ()):
            weight = exp(-commit / _TOGETHER)
            total += weight
            for other in self._changes[commit]:
                counts[other] += weight
        counts.pop(seed, None)
        return {other: count / (total + 1.0) for other, count in counts.items()}

    def _read_history(self, history: Sequence[Commit]) -> None:
        changes = [[self._place[name] for name in commit.files if name in self._place] for commit in history]
        self._changes = [found if len(found) <= _MOST_TOGETHER else [] for found in changes]
        self._commits_of = defaultdict[int, list[int]](list)
        lately = np.zeros(len(self.names))
        for age, found in enumerate(self._changes):
            for place in found:
                self._commits_of[place].append(age)
                lately[place] += exp(-age / _LATELY)
        self._lately = _normalized(lately)
        texts = [IndexedText("", (commit.message, " ".join(commit.files[:_MOST_TOGETHER]))) for commit in history]
        self._messages = TextIndex(texts, _MESSAGE_WEIGHTS)

    def _read_tests(self) -> list[list[int]]:
        """Return for each file its tests, and for each test what it tests, by their names."""
        by_stem = defaultdict[str, list[int]](list)
        for place, name in enumerate(self.names):
            stem = PurePosixPath(name).stem.casefold().removeprefix("test_").removesuffix("_test").strip("_")
            if stem and stem != "init" and name.endswith(".py"):
                by_stem[stem].append(place)
        found: list[list[int]] = [[] for _ in self.names]
        for places in by_stem.values():
            for place in places if len(places) <= 4 else ():
                found[place] = [other for other in places if other != place]
        return found


def _normalized(scores: Floats) -> Floats:
    top = float(scores.max(initial=0.0))
    return scores / top if top > 0 else scores
