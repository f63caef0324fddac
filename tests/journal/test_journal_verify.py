"""`verify` finds whatever was done to a journal behind its back, and says where."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import behind, keep, started, whole

from shikisha.core.errors import JournalTampered
from shikisha.journal import ChainCheckpoint, Verification, combine_findings, open_journal, split_chain
from shikisha.journal.chain import GENESIS, chain_hash
from shikisha.journal.codec import canonical_tail

COUNT = 12  # the events of two whole runs


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A journal of two runs."""
    path = tmp_path / "journal.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("one") + whole("two", answer="That."))
    return path


async def verified(path: Path, expect: str | None = None) -> Verification:
    async with open_journal(str(path)) as journal:
        return await journal.verify(expect)


async def found_after(path: Path, *statements: str) -> list[str]:
    with behind(path) as connection:
        for statement in statements:
            connection.execute(statement)
    return [str(problem) for problem in (await verified(path)).problems]


async def test_an_untouched_journal_holds(path: Path) -> None:
    result = await verified(path)
    assert result.ok
    assert result.count == COUNT
    assert result.hash == (await verified(path, expect=result.hash)).hash


async def test_an_empty_journal_holds(tmp_path: Path) -> None:
    assert await verified(tmp_path / "empty.db") == Verification(0, GENESIS)


@pytest.mark.parametrize(
    "change",
    ["run = 'two'", "kind = 'run.resumed'", "at = at + 1e-6", "data = data || ' '", "at = 'noon'", "data = x'00'"],
)
async def test_a_changed_row_is_found(path: Path, change: str) -> None:
    found = await found_after(path, f"UPDATE events SET {change} WHERE seq = 4")  # noqa: S608 - our own words
    assert "row 4: it is not what was written, or not where it was written" in found


async def test_a_changed_hash_is_found(path: Path) -> None:
    found = await found_after(path, "UPDATE events SET hash = 'x' WHERE seq = 4")
    assert [problem.split(":")[0] for problem in found] == ["row 4", "row 5"]


async def test_a_row_changed_together_with_its_hash_is_found_at_the_next(path: Path) -> None:
    with behind(path) as connection:
        _forge(connection, 4, at=99.0)
    assert [problem.seq for problem in (await verified(path)).problems] == [5]


def _forge(connection: sqlite3.Connection, seq: int, at: float) -> None:
    previous = connection.execute("SELECT hash FROM events WHERE seq = ?", [seq - 1]).fetchone()[0]
    run, kind, data = connection.execute("SELECT run, kind, data FROM events WHERE seq = ?", [seq]).fetchone()
    forged = chain_hash(previous, seq, canonical_tail(run, kind, at, data))
    connection.execute("UPDATE events SET at = ?, hash = ? WHERE seq = ?", [at, forged, seq])


@pytest.mark.parametrize(
    ("cut", "told"),
    [
        ("seq = 0", "row 1: row 0 is missing before it"),
        ("seq = 5", "row 6: row 5 is missing before it"),
        ("seq BETWEEN 3 AND 5", "row 6: rows 3 to 5 are missing before it"),
    ],
)
async def test_a_cut_row_is_found(path: Path, cut: str, told: str) -> None:
    assert await found_after(path, f"DELETE FROM events WHERE {cut}") == [told]  # noqa: S608 - our own words


async def test_a_cut_end_is_found(path: Path) -> None:
    (told,) = await found_after(path, "DELETE FROM events WHERE seq >= 10")
    assert "should end after 12 rows" in told
    assert "ends after 10" in told


async def test_rows_in_another_order_are_found(path: Path) -> None:
    swap = ["UPDATE events SET seq = -1 WHERE seq = 3", "UPDATE events SET seq = 3 WHERE seq = 4"]
    found = await found_after(path, *swap, "UPDATE events SET seq = 4 WHERE seq = -1")
    assert [problem.split(":")[0] for problem in found] == ["row 3", "row 4", "row 5"]


@pytest.mark.parametrize("seq", [-7, COUNT, COUNT + 5])
async def test_an_inserted_row_is_found(path: Path, seq: int) -> None:
    row = f"INSERT INTO events SELECT {seq}, run, kind, at, data, hash FROM events WHERE seq = 11"  # noqa: S608 - ours
    assert await found_after(path, row)


async def test_a_changed_text_is_found_at_each_event_that_has_it(path: Path) -> None:
    found = await found_after(path, "UPDATE bodies SET body = 'This.' WHERE body = CAST('That.' AS BLOB)")
    assert [problem.split(":")[0] for problem in found] == ["row 9", "row 11"]
    assert all("is not what was written" in problem for problem in found)


async def test_a_missing_text_is_found(path: Path) -> None:
    (told, _) = await found_after(path, "DELETE FROM bodies WHERE body = CAST('That.' AS BLOB)")
    assert told.startswith("row 9: a text of it (")
    assert told.endswith("is missing")


@pytest.mark.parametrize(
    "change",
    ["UPDATE head SET count = 11", "UPDATE head SET hash = 'x'", "DELETE FROM head", "INSERT INTO head VALUES (0, '')"],
)
async def test_a_changed_head_is_found(path: Path, change: str) -> None:
    assert len(await found_after(path, change)) == 1


async def test_a_cleanly_cut_end_shows_against_a_hash_noted_earlier(path: Path) -> None:
    noted = (await verified(path)).hash
    cut = "DELETE FROM events WHERE seq >= 6"
    mend = "UPDATE head SET (count, hash) = (SELECT 6, hash FROM events WHERE seq = 5)"
    assert await found_after(path, cut, mend) == []
    (problem,) = (await verified(path, expect=noted)).problems
    assert f"the hash noted earlier ({noted}) is nowhere in the chain" in str(problem)


async def test_a_hash_noted_earlier_is_found_after_the_journal_has_grown(path: Path) -> None:
    noted = (await verified(path)).hash
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("three"))
        assert (await journal.verify(noted)).ok


async def test_a_run_whose_text_was_changed_cannot_be_read(path: Path) -> None:
    assert await found_after(path, "UPDATE bodies SET body = x'00' WHERE body = CAST('That.' AS BLOB)")
    async with open_journal(str(path)) as journal:
        with pytest.raises(JournalTampered, match=r"event 9 of run two: a text of it .* is changed"):
            await journal.read("two")
        assert await journal.read("one") == tuple(whole("one"))


async def test_a_long_journal_is_verified_in_pages(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, [started(f"r{number}") for number in range(1234)])
    assert (await verified(path)).count == 1234
    found = await found_after(path, "UPDATE events SET at = 0 WHERE seq % 5 = 0")
    assert 100 <= len(found) <= 200  # enough is enough


Change = Callable[[sqlite3.Connection, int], object]
CHANGES: dict[str, Change] = {
    "delete": lambda c, seq: c.execute("DELETE FROM events WHERE seq = ?", [seq]),
    "time": lambda c, seq: c.execute("UPDATE events SET at = at + 1 WHERE seq = ?", [seq]),
    "data": lambda c, seq: c.execute("UPDATE events SET data = replace(data, '\"', '''') || 'x' WHERE seq = ?", [seq]),
    "run": lambda c, seq: c.execute("UPDATE events SET run = run || 'x' WHERE seq = ?", [seq]),
    "forge": lambda c, seq: _forge(c, max(seq, 1), at=99.0),
    "body": lambda c, seq: c.execute(
        "UPDATE bodies SET body = CAST(body || 'x' AS BLOB) WHERE rowid = ?", [seq % 4 + 1]
    ),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(change=st.sampled_from(sorted(CHANGES)), seq=st.integers(0, COUNT - 1))
async def test_any_one_change_anywhere_is_found(path: Path, change: str, seq: int) -> None:
    copy = Path(shutil.copyfile(path, path.with_name("copy.db")))
    with behind(copy) as connection:
        CHANGES[change](connection, seq)
    assert not (await verified(copy)).ok


async def in_segments(path: Path, parts: int, expect: str | None = None) -> Verification:
    async with open_journal(str(path)) as journal:
        segments = split_chain(COUNT, parts)
        return combine_findings([await journal.audit(segment, expect) for segment in segments], expect)


@pytest.mark.parametrize("parts", [2, 5, COUNT])
@pytest.mark.parametrize(
    "change",
    [
        "",
        "UPDATE events SET at = at + 1e-6 WHERE seq = {0}",
        "UPDATE events SET hash = 'x' WHERE seq = {0}",
        "DELETE FROM events WHERE seq BETWEEN {0} AND {0} + 4",
        "UPDATE events SET seq = 100 WHERE seq = {0}",
        "UPDATE bodies SET body = x'00'",
        "DELETE FROM bodies",
        "UPDATE head SET count = 11",
    ],
)
async def test_segments_find_what_the_whole_finds(path: Path, tmp_path: Path, parts: int, change: str) -> None:
    noted = (await verified(path)).hash
    for place in (1, 4, 5, 6, COUNT - 1) if "{" in change else (0,):
        changed = Path(shutil.copy(path, tmp_path / f"{place}.db"))
        with behind(changed) as connection:
            connection.execute(change.format(place))
        for expect in (noted, "1" * 64):
            assert await in_segments(changed, parts, expect) == await verified(changed, expect)


async def test_a_text_erased_in_a_later_segment_is_no_problem(path: Path) -> None:
    async with open_journal(str(path)) as journal:
        await journal.erase(["one"], actor="tests")
        all_of_it = await journal.verify()
        for parts in (2, 5, 13):
            found = [await journal.audit(segment) for segment in split_chain(all_of_it.count, parts)]
            assert combine_findings(found) == all_of_it
    assert (all_of_it.ok, all_of_it.erased > 0) == (True, True)


async def test_after_a_checkpoint_only_what_came_later_is_read(path: Path) -> None:
    first = await verified(path)
    checkpoint = ChainCheckpoint(first.count, first.hash)
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("three"))
        later = await journal.verify(first.hash, checkpoint)
        assert later == await journal.verify()
        assert not (await journal.verify(None, ChainCheckpoint(first.count - 1, first.hash))).ok
        assert not (await journal.verify(None, ChainCheckpoint(first.count, "0" * 64))).ok
        (unread,) = (await journal.verify("1" * 64, checkpoint)).problems
        assert "only what came after the checkpoint was read" in str(unread)
    with behind(path) as connection:
        connection.execute("UPDATE events SET at = 0 WHERE seq = 3")
    async with open_journal(str(path)) as journal:
        assert (await journal.verify(None, checkpoint)).ok  # as promised: what came before was verified before
    with behind(path) as connection:
        connection.execute("UPDATE events SET at = 0 WHERE seq = 14")
    async with open_journal(str(path)) as journal:
        (problem,) = (await journal.verify(None, checkpoint)).problems
    assert problem.seq == 14
