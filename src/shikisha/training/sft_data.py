"""SFT data: a word-level tokenizer for a small vocabulary, and examples as tokens, in chunks of similar length.

A GPU takes examples faster than one core makes them, so processes of their own may make chunks ahead of time. They
get settings and the tokenizer as JSON and answer with lines of JSON: nothing is pickled. This module does not import
torch, which would slow their start.

Words come from a corpus; pieces ("model_id = [", a whole phrase in quotes) are one token each, kept to the letter, so
what is sampled decodes to exact plan text. Numbers of two digits and more are one token, unknown words another: a small
model spends nothing on copying what workers see anyway. Invariants: no text can spell a special token; the same corpus
gives the same tokenizer, and chunk n is the same wherever it was made. Deliberately absent: subwords, byte fallback.
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

# Batches that are sorted by length together.
BATCHES_PER_CHUNK = 16
# `rollout.END_ID`; importing it would import torch.
_END_ID = 1
# Chunks that a process makes ahead.
_PREFETCH = 2

TokenRow: TypeAlias = tuple[list[int], int]
"""An example's tokens, and how many of them are not taught."""
ChunkSource: TypeAlias = Callable[[int], Sequence[TokenRow]]


class SFTExample(Protocol):
    """A prompt, what is shown after it without being taught, and what is taught; `whole` where the text ends there."""

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
"""(index, share of the training that is done) → the example."""


def make_chunk(number: int, examples: SFTExamples, tokenizer: "Tokenizer", table: WarmTable) -> list[TokenRow]:
    """Return a chunk's examples, shortest first."""
    size = BATCHES_PER_CHUNK * table.batch
    done = min(1.0, number * BATCHES_PER_CHUNK / max(1, table.steps))
    rows = [tokenize_example(examples(index, done), tokenizer) for index in range(number * size, (number + 1) * size)]
    return sorted(rows, key=lambda row: len(row[0]))


def tokenize_example(example: SFTExample, tokenizer: "Tokenizer") -> TokenRow:
    """Return an example's tokens."""
    given = _encode(example.prompt, tokenizer) + _encode(example.shown, tokenizer)
    return given + _encode(example.taught, tokenizer) + [_END_ID] * example.whole, len(given)


def parse_tokenizer(text: str) -> "Tokenizer":
    """Return the tokenizer that this JSON describes."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(text)


def _encode(text: str, tokenizer: "Tokenizer") -> list[int]:
    ids: list[int] = tokenizer.encode(text).ids if text else []
    return ids


@contextmanager
def prefetch_chunks(module: str, settings: object, count: int, first: int) -> Iterator[ChunkSource]:
    """Yield chunks from `first` on, one after the other, as `count` processes make them.

    Each runs `module`, whose `main` passes its two pipes and a maker to `serve_chunks`; `settings` are its first line.
    """
    command = [sys.executable, "-m", module]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our module
        for _ in range(count)
    ]
    try:
        for place, maker in enumerate(workers):
            asked = "\n".join(str(first + place + count * more) for more in range(_PREFETCH))
            _send(maker, f"{json.dumps(settings)}\n{asked}")
        yield lambda number: _receive(workers[(number - first) % count], number, number + count * _PREFETCH)
    finally:
        for maker in workers:
            maker.kill()
        for maker in workers:
            maker.communicate()


def serve_chunks(requests: IO[str], replies: IO[str], maker: Callable[[object], ChunkSource]) -> None:
    """Make the chunks that are asked for, until the pipe closes; `maker` gets the settings."""
    chunks = maker(json.loads(requests.readline()))
    for line in requests:
        number = int(line)
        replies.write(json.dumps([number, chunks(number)], separators=(",", ":")) + "\n")
        replies.flush()


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
        raise ShikishaError(f"SFT examples: expected chunk {number}, and process {maker.pid} made {found}")
    _send(maker, str(following))
    return rows


def _worker_exit(maker: "subprocess.Popen[str]") -> ShikishaError:
    return ShikishaError(f"SFT examples: process {maker.pid}, which makes them, ended with status {maker.wait()}")


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
