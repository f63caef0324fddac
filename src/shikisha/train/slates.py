"""Lessons as tokens: chunks of like length, made here, or ahead of time by processes of their own.

A GPU takes lessons faster than one core of a processor makes them. The processes are told the settings and the
tokenizer as JSON, and answer the number of a chunk with a line of JSON: nothing is pickled. Invariant: chunk `n` is the
same wherever it was made. Deliberately absent: batches and models (`warm`), and what the lessons are.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, cast

from shikisha.errors import ShikishaError
from shikisha.train.settings import WarmTable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHUNK = 16  # batches that are sorted by length together
_END = 1  # the token (`rollout.END`, which torch is needed for)
_AHEAD = 2  # chunks that a process is asked for before they are needed

Row: TypeAlias = tuple[list[int], int]
"""A lesson's tokens, and how many of them are not taught."""
Chunks: TypeAlias = Callable[[int], Sequence[Row]]


class Lesson(Protocol):
    """A prompt, what is shown after it, and what is taught; `whole` where the text ends there."""

    @property
    def prompt(self) -> str:
        """What is read."""
        ...

    @property
    def shown(self) -> str:
        """What follows and is not taught."""
        ...

    @property
    def taught(self) -> str:
        """What is taught."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the end is taught too."""
        ...


Lessons: TypeAlias = Callable[[int, float], Lesson]
"""(index, share of the warm start that is done) → the lesson."""


def chunk_of(number: int, lessons: Lessons, tokenizer: "Tokenizer", table: WarmTable) -> list[Row]:
    """Return a chunk's lessons, shortest first."""
    size = CHUNK * table.batch
    done = min(1.0, number * CHUNK / max(1, table.steps))
    rows = [row_of(lessons(index, done), tokenizer) for index in range(number * size, (number + 1) * size)]
    return sorted(rows, key=lambda row: len(row[0]))


def row_of(lesson: Lesson, tokenizer: "Tokenizer") -> Row:
    """Return a lesson's tokens."""
    given = _ids(lesson.prompt, tokenizer) + _ids(lesson.shown, tokenizer)
    return given + _ids(lesson.taught, tokenizer) + [_END] * lesson.whole, len(given)


def tokenizer_of(text: str) -> "Tokenizer":
    """Return the tokenizer that was written down as JSON."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(text)


def _ids(text: str, tokenizer: "Tokenizer") -> list[int]:
    ids: list[int] = tokenizer.encode(text).ids if text else []
    return ids


@contextmanager
def made_ahead(module: str, told: object, count: int, first: int) -> Iterator[Chunks]:
    """Yield chunks from `first` on, one after the other, as `count` processes make them.

    Each runs `module`, whose `main` hands its two pipes and a maker to `serve`; `told` is the first line it reads.
    """
    command = [sys.executable, "-m", module]
    makers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our module
        for _ in range(count)
    ]
    try:
        for place, maker in enumerate(makers):
            asked = "\n".join(str(first + place + count * more) for more in range(_AHEAD))
            _say(maker, f"{json.dumps(told)}\n{asked}")
        yield lambda number: _answer(makers[(number - first) % count], number, number + count * _AHEAD)
    finally:
        for maker in makers:
            maker.kill()
        for maker in makers:
            maker.communicate()


def serve(asked: IO[str], answers: IO[str], maker: Callable[[object], Chunks]) -> None:
    """Make chunks for whoever asks for them, until nobody does; `maker` is given what was told at first."""
    chunks = maker(json.loads(asked.readline()))
    for line in asked:
        number = int(line)
        answers.write(json.dumps([number, chunks(number)], separators=(",", ":")) + "\n")
        answers.flush()


def _say(maker: "subprocess.Popen[str]", text: str) -> None:
    pipe = cast("IO[str]", maker.stdin)
    try:
        pipe.write(f"{text}\n")
        pipe.flush()
    except BrokenPipeError:
        raise _ended(maker) from None


def _answer(maker: "subprocess.Popen[str]", number: int, following: int) -> Sequence[Row]:
    line = cast("IO[str]", maker.stdout).readline()
    if not line:
        raise _ended(maker)
    found, rows = cast("tuple[int, list[Row]]", json.loads(line))
    if found != number:
        raise ShikishaError(f"lessons: expected chunk {number}, and process {maker.pid} made {found}")
    _say(maker, str(following))
    return rows


def _ended(maker: "subprocess.Popen[str]") -> ShikishaError:
    return ShikishaError(f"lessons: process {maker.pid}, which makes them, ended with status {maker.wait()}")
