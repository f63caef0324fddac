"""Lessons as tokens: chunks of like length, made here, or ahead of time by processes of their own.

A GPU takes lessons faster than one core of a processor makes them. The processes are told the settings and the
tokenizer as JSON, and answer the number of a chunk with a line of JSON: nothing is pickled. Invariant: chunk `n` is the
same wherever it was made. Deliberately absent: batches and models (`warm`), and what the lessons are.

A word-level tokenizer made for one small vocabulary: words of a corpus, and pieces of plan text as one token each.

Numbers of two digits and more are one token, `#`; words that the corpus does not have are another: a small model
spends nothing on copying what workers see anyway. Pieces ("model_id = [", a whole phrase in quotes) are kept to the
letter, so what is sampled decodes to exact plan text. Invariants: no text can spell a special token (they are no
pieces); the same corpus gives the same tokenizer. Deliberately absent: merges, subwords, byte fallback.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, cast

from shikisha.core.errors import ShikishaError
from shikisha.core.plan import MAX_STEPS
from shikisha.training.settings import WarmTable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCHES_PER_CHUNK = 16  # batches that are sorted by length together
_END_ID = 1  # the token (`rollout.END`, which torch is needed for)
_PREFETCH = 2  # chunks that a process is asked for before they are needed

TokenRow: TypeAlias = tuple[list[int], int]
"""A lesson's tokens, and how many of them are not taught."""
ChunkSource: TypeAlias = Callable[[int], Sequence[TokenRow]]


class SFTExample(Protocol):
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


SFTExamples: TypeAlias = Callable[[int, float], SFTExample]
"""(index, share of the warm start that is done) → the lesson."""


def make_chunk(number: int, lessons: SFTExamples, tokenizer: "Tokenizer", table: WarmTable) -> list[TokenRow]:
    """Return a chunk's lessons, shortest first."""
    size = BATCHES_PER_CHUNK * table.batch
    done = min(1.0, number * BATCHES_PER_CHUNK / max(1, table.steps))
    rows = [tokenize_example(lessons(index, done), tokenizer) for index in range(number * size, (number + 1) * size)]
    return sorted(rows, key=lambda row: len(row[0]))


def tokenize_example(lesson: SFTExample, tokenizer: "Tokenizer") -> TokenRow:
    """Return a lesson's tokens."""
    given = _encode(lesson.prompt, tokenizer) + _encode(lesson.shown, tokenizer)
    return given + _encode(lesson.taught, tokenizer) + [_END_ID] * lesson.whole, len(given)


def parse_tokenizer(text: str) -> "Tokenizer":
    """Return the tokenizer that was written down as JSON."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(text)


def _encode(text: str, tokenizer: "Tokenizer") -> list[int]:
    ids: list[int] = tokenizer.encode(text).ids if text else []
    return ids


@contextmanager
def prefetch_chunks(module: str, told: object, count: int, first: int) -> Iterator[ChunkSource]:
    """Yield chunks from `first` on, one after the other, as `count` processes make them.

    Each runs `module`, whose `main` hands its two pipes and a maker to `serve`; `told` is the first line it reads.
    """
    command = [sys.executable, "-m", module]
    makers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]  # noqa: S603 - our module
    try:
        for place, maker in enumerate(makers):
            asked = "\n".join(str(first + place + count * more) for more in range(_PREFETCH))
            _send(maker, f"{json.dumps(told)}\n{asked}")
        yield lambda number: _receive(makers[(number - first) % count], number, number + count * _PREFETCH)
    finally:
        for maker in makers:
            maker.kill()
        for maker in makers:
            maker.communicate()


def serve_chunks(asked: IO[str], answers: IO[str], maker: Callable[[object], ChunkSource]) -> None:
    """Make chunks for whoever asks for them, until nobody does; `maker` is given what was told at first."""
    chunks = maker(json.loads(asked.readline()))
    for line in asked:
        number = int(line)
        answers.write(json.dumps([number, chunks(number)], separators=(",", ":")) + "\n")
        answers.flush()


def _send(maker: "subprocess.Popen[str]", text: str) -> None:
    pipe = cast("IO[str]", maker.stdin)
    try:
        pipe.write(f"{text}\n")
        pipe.flush()
    except BrokenPipeError:
        raise _worker_exit(maker) from None


def _receive(maker: "subprocess.Popen[str]", number: int, following: int) -> Sequence[TokenRow]:
    line = cast("IO[str]", maker.stdout).readline()
    if not line:
        raise _worker_exit(maker)
    found, rows = cast("tuple[int, list[TokenRow]]", json.loads(line))
    if found != number:
        raise ShikishaError(f"lessons: expected chunk {number}, and process {maker.pid} made {found}")
    _send(maker, str(following))
    return rows


def _worker_exit(maker: "subprocess.Popen[str]") -> ShikishaError:
    return ShikishaError(f"lessons: process {maker.pid}, which makes them, ended with status {maker.wait()}")


if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN, NUMBER_TOKEN = "[pad]", "[end]", "[unk]", "#"
_WORD_PATTERN = r"[a-z]+|\$[0-9?]|[0-9]|\n|#|[^\sa-z0-9]"


def word_tokenizer(corpus: Iterable[str], pieces: Sequence[str], least: int = 5) -> "Tokenizer":
    """Return the tokenizer of these pieces and of every word that the corpus has `least` times or more."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    longest_first = sorted(set(pieces), key=lambda piece: (-len(piece), piece))
    pattern = "|".join([*map(_escape_piece, longest_first), _WORD_PATTERN])
    normal = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[0-9]{2,}"), NUMBER_TOKEN)])
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    counted: Counter[str] = Counter()
    for text in corpus:
        counted.update(word for word, _ in split.pre_tokenize_str(normal.normalize_str(text)))
    words = sorted(word for word, times in counted.items() if times >= least and word not in longest_first)
    vocabulary = {
        word: place for place, word in enumerate([PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN, *longest_first, *words])
    }
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_TOKEN))
    made.normalizer, made.pre_tokenizer, made.decoder = normal, split, decoders.Fuse()
    return made


def plan_pieces(phrases: Iterable[str], most_steps: int = MAX_STEPS) -> tuple[str, ...]:
    """Return the pieces that plans as three lists are made of, if their subtasks are among these phrases."""
    earlier = range(most_steps - 1)
    access = [str(list(seen)) for count in range(most_steps - 1) for seen in combinations(earlier, count)]
    lists = ("model_id = [", "\nmodel_id = [", "]\nsubtasks = [", "]\naccess_list = [", "]", ", ", '["all"]')
    return (*lists, *access, *map(str, range(10)), *(f'"{phrase}"' for phrase in phrases))


def _escape_piece(piece: str) -> str:
    """Escape for the tokenizer's regular expressions, which know no escaped blanks and line breaks."""
    return re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", piece)
