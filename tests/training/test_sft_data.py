"""Lessons as tokens, made here and by other processes."""

import json
import sys
from io import StringIO
from subprocess import run

import pytest

pytest.importorskip("tokenizers")

from shikisha.config.sft_source import chunk_maker, sft_source
from shikisha.core.errors import ShikishaError
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import BATCHES_PER_CHUNK, make_chunk, prefetch_chunks, serve_chunks, word_tokenizer

SETTINGS = TrainSettings.model_validate({"seed": 3, "warm": {"steps": 64, "batch": 2}})
TOKENIZER = word_tokenizer(["the tally of", "what is", "a strong and dear model"], ["model_id = ["], least=1)
TOLD = {"settings": SETTINGS.model_dump(mode="json"), "tokenizer": TOKENIZER.to_str()}


def test_a_chunk_holds_its_own_lessons_shortest_first() -> None:
    rows = make_chunk(1, sft_source(SETTINGS).examples, TOKENIZER, SETTINGS.warm)
    assert len(rows) == BATCHES_PER_CHUNK * SETTINGS.warm.batch
    assert [len(tokens) for tokens, _ in rows] == sorted(len(tokens) for tokens, _ in rows)
    assert all(0 < given < len(tokens) for tokens, given in rows)
    assert rows != make_chunk(2, sft_source(SETTINGS).examples, TOKENIZER, SETTINGS.warm)


def test_other_processes_make_the_same_chunks_and_end_with_the_training() -> None:
    own = chunk_maker(TOLD)
    with prefetch_chunks("shikisha.config.sft_source", TOLD, count=2, first=1) as chunks:
        found = [chunks(number) for number in range(1, 5)]
    assert [[tuple(row) for row in rows] for rows in found] == [own(number) for number in range(1, 5)]


def test_a_process_that_ends_is_an_error_and_no_wait_without_end() -> None:
    ended = pytest.raises(ShikishaError, match="which makes them, ended with status 1")
    with prefetch_chunks("shikisha.config.sft_source", {"settings": 3}, count=1, first=0) as chunks, ended:
        chunks(0)


def test_a_maker_answers_line_by_line_until_nobody_asks() -> None:
    answers = StringIO()
    serve_chunks(
        StringIO('{"of": 7}\n4\n2\n'), answers, lambda told: lambda number: [([number], 0), ([len(str(told))], 0)]
    )
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        [4, [[[4], 0], [[9], 0]]],
        [2, [[[2], 0], [[9], 0]]],
    ]


def test_making_lessons_needs_no_torch() -> None:
    code = "import sys, shikisha.config.sft_source; sys.exit('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 - our own
