"""The files of an evaluation under trouble: a full disk, a stop in the middle of a write, two who want one folder."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from evaluated import Evaluated

from shikisha.cli.exit_codes import ExitCode
from shikisha.core.errors import JournalUnavailable
from shikisha.evals.response_cache import LineAppender
from shikisha.evals.samples import lock_folder


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes: what is too much is cut off, as on a full disk."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


async def test_after_a_write_that_failed_no_line_follows_the_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    file = LineAppender(path)
    file.put("whole")
    await file.sync()
    with no_file_beyond(1_000_000):
        file.put("x" * 2_000_000)
        with pytest.raises(JournalUnavailable, match="File too large"):
            await file.sync()
    with pytest.raises(JournalUnavailable):
        file.put("later")
    with pytest.raises(JournalUnavailable):
        await file.sync()
    await file.aclose()
    again = LineAppender(path)
    await again.aclose()
    assert path.read_text() == "whole\n"


async def test_lines_that_were_put_before_the_failure_was_known_are_not_appended_to_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    file = LineAppender(path)
    with no_file_beyond(1_000_000):
        file.put("x" * 2_000_000)
        first = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        file.put("another")
        second = asyncio.create_task(file.sync())
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JournalUnavailable] * 2
    await file.aclose()
    assert b"another" not in path.read_bytes()


async def test_closing_waits_for_a_write_whose_caller_was_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    file = LineAppender(path)
    file.put("x" * 50_000_000)
    saving = asyncio.create_task(file.sync())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the lines are with the writer now
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await file.aclose()
    assert path.stat().st_size == 50_000_001


def test_who_comes_second_to_a_folder_leaves_its_files_alone(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    evaluated.run()
    replies = tmp_path / "kept" / "calls-0.jsonl"
    with lock_folder(tmp_path / "kept"), replies.open("ab") as file:
        file.write(b'{"key": "half a line')  # whoever has the folder is in the middle of writing
        file.flush()
        before = replies.read_bytes()
        evaluated.run()
        assert (evaluated.code, replies.read_bytes()) == (ExitCode.CONFIG, before)
    evaluated.run()
    assert evaluated.code == ExitCode.OK


def test_a_folder_that_cannot_be_made_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    evaluated = Evaluated(tmp_path)
    evaluated.run()
    assert evaluated.code == ExitCode.CONFIG
    assert "nothing can be kept there" in evaluated.said
