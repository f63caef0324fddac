"""Gather parts of the files in a folder, ranked by words, imports, tests and, in a git repository, by its history.

Invariants: only regular files in the folder are read, and no link is followed, so nothing outside of it is ever seen; a
folder outside of its root (by `..`, an absolute path or a link) is a ConfigError; the number and size of files are
bounded; the index is made in a thread, again only when files have changed, and at most every `refresh` seconds. Files
that git ignores are ignored where there is a repository. Deliberately absent: watching the file system.

Gather past commits whose messages are like the task: what was done then, and which files changed together.
"""

import ast
import asyncio
import os
import re
import stat
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from math import exp
from pathlib import Path, PurePosixPath
from threading import Lock
from time import monotonic, perf_counter

import numpy as np
from numpy.typing import NDArray

from shikisha.context.git_history import Commit, GitRepository
from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.task import Task, storage_problem
from shikisha.core.visibility import NO_LABELS, Labels
from shikisha.engine.gatherer import ContextPiece, GatheredContext, Gatherer, PieceLeftOut
from shikisha.retrieval.text_index import IndexedText, TextIndex

# Put the pieces of all sources together within one budget of tokens and seconds, and try now and then without some.
#
# Each source is asked at once and gets its share of the tokens; what one leaves free goes to the best pieces of the
# others. In a share of the runs a source, or half of all, is left out by a draw that the journal has, so that outcomes
# with and without it can be compared (`evals.context_audit`). Invariants: the tokens taken never exceed the budget; no
# source is waited for longer than the seconds; a piece with a guarded label that the task does not bear is left out;
# whatever is left out says why; the draw depends on the run's id alone.

_MOST_PIECES = 200  # of a source
_MOST_LEFT_OUT = 60  # that a journal keeps


@dataclass(frozen=True, slots=True)
class WeightedGatherer:
    """A source by name, and its part of the tokens in relation to the other sources'."""

    name: str
    gatherer: Gatherer
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """The shipped ContextSource."""

    sources: tuple[WeightedGatherer, ...]
    tokens: int = 4_000
    seconds: float = 2.0
    trial: float = 0.0
    guarded: Labels = NO_LABELS

    async def gather_context(self, task: Task, run: str) -> GatheredContext:
        """Ask all sources that the draw leaves, and take what fits."""
        start = perf_counter()
        dropped, propensity = self._draw(run)
        asked = [source for source in self.sources if source.name not in dropped]
        found = await asyncio.gather(*(self._ask(source, task, asked) for source in asked))
        choice = _PieceChoice(task, self.tokens, self.guarded)
        choice.left += [PieceLeftOut(name, "", "a trial left this source out") for name in dropped]
        choice.left += [out for _, problems in found for out in problems]
        queues = [(source, list(pieces)) for source, (pieces, _) in zip(asked, found, strict=True)]
        for source, pieces in queues:
            choice.take(pieces, self._room(source, asked))
        rest = sorted((piece for _, pieces in queues for piece in pieces), key=lambda piece: -piece.score)
        choice.take(rest, self.tokens)
        choice.left += [PieceLeftOut(piece.source, piece.name, f"no room for {piece.tokens} tokens") for piece in rest]
        return GatheredContext(
            tuple(choice.taken),
            tuple(choice.left[:_MOST_LEFT_OUT]),
            perf_counter() - start,
            tuple(source.name for source in self.sources),
            dropped,
            propensity,
        )

    def _room(self, source: WeightedGatherer, asked: Sequence[WeightedGatherer]) -> int:
        return int(self.tokens * source.share / sum(each.share for each in asked))

    def _draw(self, run: str) -> tuple[tuple[str, ...], float | None]:
        """Return the sources that this run does without, and with which probability these were drawn."""
        if not self.trial or not self.sources:
            return (), None
        luck = [int.from_bytes(sha256(f"{run} {part}".encode()).digest()[:6], "big") / 2**48 for part in range(4)]
        if luck[0] >= self.trial:
            return (), 1 - self.trial
        names = [source.name for source in self.sources]
        if len(names) < 3 or luck[1] < 0.5:
            halves = 1.0 if len(names) < 3 else 0.5
            return (names[int(luck[2] * len(names))],), self.trial * halves / len(names)
        ranked = sorted(names, key=lambda name: sha256(f"{run} half {name}".encode()).digest())
        return tuple(ranked[: len(names) // 2]), self.trial * 0.5

    async def _ask(
        self, source: WeightedGatherer, task: Task, asked: Sequence[WeightedGatherer]
    ) -> tuple[list[ContextPiece], list[PieceLeftOut]]:
        try:
            async with asyncio.timeout(self.seconds):
                pieces = await source.gatherer.gather(task, max(self._room(source, asked), self.tokens // 2))
            return [piece for piece in pieces[:_MOST_PIECES] if piece.text.strip()], []
        except TimeoutError:
            why = f"no answer within {self.seconds:g} s"
        except (ShikishaError, OSError, ValueError) as error:
            why = f"failed: {error}"[:300]
        return [], [PieceLeftOut(source.name, "", why)]


@dataclass(slots=True)
class _PieceChoice:
    """What is taken so far."""

    task: Task
    tokens: int
    guarded: Labels
    taken: list[ContextPiece] = field(default_factory=list)
    left: list[PieceLeftOut] = field(default_factory=list)

    def take(self, pieces: list[ContextPiece], room: int) -> None:
        """Take pieces in order while there is room, and remove from the list all that need not be looked at again."""
        room = min(room, self.tokens)
        waiting = []
        for piece in pieces:
            if why := self._refusal(piece):
                self.left.append(PieceLeftOut(piece.source, piece.name, why))
            elif piece.tokens <= room:
                self.taken.append(piece)
                room -= piece.tokens
                self.tokens -= piece.tokens
            else:
                waiting.append(piece)
        pieces[:] = waiting

    def _refusal(self, piece: ContextPiece) -> str:
        hidden = sorted(self.guarded.intersection(piece.labels).difference(self.task.labels))
        if hidden:
            return f"it has the label {hidden[0]}, which the task does not bear"
        if problem := storage_problem(piece.text + piece.name):
            return f"it holds {problem}"
        if any(_overlap(piece, other) for other in self.taken):
            return "taken already"
        return ""


def _overlap(piece: ContextPiece, other: ContextPiece) -> bool:
    if piece.name != other.name:
        return piece.text == other.text
    return not piece.first or not other.first or (piece.first <= other.last and other.first <= piece.last)


# Rank the files of a folder for a task: by their words, by the repository's history, and by what belongs together.
#
# A file is scored by its best part (`file_parts`), by its name, by whether past commits with like messages changed it,
# by how lately it changed, and by the files that it changed together with, imports, or tests. The weights were fitted
# on five public repositories (`benchmarks/context.py --fit`) and are constants here. Invariants: nothing newer than
# what was given is used; the work of a search is linear in the postings of its words, and equal scores are ordered by
# name; without history the scores are those of words alone. Deliberately absent: embeddings.
#
# Cut a file into parts that can be shown: Python at its definitions, any other text into blocks of lines.

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


_MOST_LISTED_COMMITS, _BEST, _FILES_SHOWN, _MESSAGE_SHOWN = 5_000, 12, 15, 1_200


@dataclass(slots=True)
class HistoryGatherer:
    """The newest commits of a repository; pieces have these labels."""

    source: str
    repository: GitRepository
    labels: tuple[str, ...] = ()
    refresh: float = 60.0
    _commits: list[Commit] = field(default_factory=list)
    _index: TextIndex | None = None
    _looked: float = field(default=float("-inf"))
    _lock: Lock = field(default_factory=Lock)

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:  # noqa: ARG002 - few and short
        """Return the commits most like the task."""
        return await asyncio.to_thread(self._gather, task.prompt)

    def _gather(self, query: str) -> list[ContextPiece]:
        with self._lock:
            index, commits = self._current()
        found = index.search(query, _BEST)
        top = float(found.scores.max(initial=0.0)) or 1.0
        return [
            ContextPiece(_shown(commits[at]), self.source, commits[at].sha[:12], 0, 0, float(score) / top, self.labels)
            for at, score in zip(found.positions[:_BEST].tolist(), found.scores, strict=False)
        ]

    def _current(self) -> tuple[TextIndex, list[Commit]]:
        if self._index is None or monotonic() - self._looked >= self.refresh:
            newest = self.repository.commits(1)
            if self._index is None or newest[:1] != self._commits[:1]:
                self._commits = self.repository.commits(_MOST_LISTED_COMMITS)
                texts = [IndexedText("", (one.message, " ".join(one.files[:50]))) for one in self._commits]
                self._index = TextIndex(texts, (1.0, 0.5))
            self._looked = monotonic()
        return self._index, self._commits


def _shown(commit: Commit) -> str:
    more = f" and {len(commit.files) - _FILES_SHOWN} more" if len(commit.files) > _FILES_SHOWN else ""
    files = ", ".join(commit.files[:_FILES_SHOWN])
    return f"{commit.message[:_MESSAGE_SHOWN]}\nChanged together: {files or 'nothing'}{more}"


MOST_FILES, LARGEST_FILE, MOST_BYTES = 20_000, 300_000, 200_000_000
_MOST_COMMITS = 5_000
_BEST_FILES, _PARTS_OF_FILE = 30, 3
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".tox", "dist", "build"})

Stamp = tuple[tuple[str, int, int], ...]


def folder_inside(folder: str, root: Path) -> Path:
    """Return a folder of the root; ConfigError when it is outside, by whatever path or link, or no folder."""
    given, base = Path(folder), root.resolve()
    place = (base / given).resolve()
    if not place.is_relative_to(base):
        raise ConfigError(f"{folder}: expected a folder inside {base}, and it leads to {place}")
    if not place.is_dir():
        raise ConfigError(f"{folder}: there is no such folder in {base}")
    return place


@dataclass(slots=True)
class FileGatherer:
    """Files of a folder that match `include` and not `exclude`; pieces have these labels."""

    source: str
    folder: Path
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    history: bool = True
    refresh: float = 30.0
    _search: FileSearch | None = None
    _stamp: Stamp = ()
    _looked: float = field(default=float("-inf"))
    _lock: Lock = field(default_factory=Lock)

    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:
        """Return the best parts of the best files."""
        return await asyncio.to_thread(self._gather, task.prompt, tokens)

    def _gather(self, query: str, tokens: int) -> list[ContextPiece]:
        with self._lock:
            search = self._current()
        pieces: list[ContextPiece] = []
        room = 2 * tokens  # what does not fit at once may fit where another source leaves room
        for rank, file in enumerate(search.rank(query, _BEST_FILES, _PARTS_OF_FILE)):
            for part in file.parts:
                score = file.score / (1 + 0.1 * rank)
                piece = ContextPiece(part.text, self.source, part.file, part.first, part.last, score, self.labels)
                room -= piece.tokens
                if room < 0:
                    return pieces
                pieces.append(piece)
        return pieces

    def _current(self) -> FileSearch:
        """Return the index, made again where files have changed since."""
        if self._search is not None and monotonic() - self._looked < self.refresh:
            return self._search
        found = dict(self._scan())
        stamp = tuple((name, about.st_mtime_ns, about.st_size) for name, about in sorted(found.items()))
        if self._search is None or stamp != self._stamp:
            texts = {name: text for name in found if (text := self._read(name)) is not None}
            self._search, self._stamp = FileSearch(texts, self._commits()), stamp
        self._looked = monotonic()
        return self._search

    def _scan(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the regular files, by their names in the folder."""
        waiting, count, size = [""], 0, 0
        while waiting:
            inner = waiting.pop()
            try:
                entries = sorted(os.scandir(self.folder / inner), key=lambda entry: entry.name)
            except OSError:
                continue  # removed a moment ago, or not ours to read
            for entry in entries:
                name = f"{inner}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                        waiting.append(f"{name}/")
                elif entry.is_file(follow_symlinks=False) and self._wanted(name):
                    about = entry.stat(follow_symlinks=False)
                    if about.st_size > LARGEST_FILE:
                        continue
                    count, size = count + 1, size + about.st_size
                    if count > MOST_FILES or size > MOST_BYTES:
                        raise ConfigError(
                            f"{self.folder}: more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes: narrow `folder`, "
                            "`include` or `exclude`"
                        )
                    yield name, about

    def _wanted(self, name: str) -> bool:
        matches = any(fnmatch(name, pattern) for pattern in self.include)
        return matches and not any(fnmatch(name, pattern) for pattern in self.exclude)

    def _read(self, name: str) -> str | None:
        """Return a file's text; None for what is no text, or was replaced by a link since."""
        try:
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
                data = file.read(LARGEST_FILE + 1) if regular else b"\0"
        except OSError:
            return None
        return None if b"\0" in data or len(data) > LARGEST_FILE else data.decode(errors="replace")

    def _commits(self) -> list[Commit]:
        """Return the history, where the folder is a repository of its own."""
        if not self.history or not (self.folder / ".git").exists():
            return []
        try:
            return GitRepository(self.folder).commits(_MOST_COMMITS)
        except ConfigError:
            return []  # no commit yet, or no git here: words remain
