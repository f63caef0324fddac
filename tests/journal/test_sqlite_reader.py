"""A SQLite journal that is read with the standard library alone shows what the journal itself shows."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from journals import keep, started, whole

from shikisha.core.errors import JournalTampered, UnknownRun
from shikisha.journal import open_journal
from shikisha.journal.sqlite_reader import open_reader


async def test_it_reads_what_the_journal_reads_erased_runs_and_children_too(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, [started("a"), *whole("a-0-0-0", parent="a"), *whole("a")[1:], *whole("b", answer="Gone.")])
        await keep(journal, [started("open", prompt="Wird das noch … 指揮者?")])
        await journal.erase(["b"], actor="ann")
        for url in (str(path), f"sqlite:///{path}"):
            with open_reader(url) as reader:
                assert reader is not None
                assert reader.runs(50) == await journal.runs(limit=50)
                assert reader.runs(2) == await journal.runs(limit=2)
                for run in ("a", "a-0-0-0", "b", "open"):
                    assert reader.read(run) == await journal.read(run)
                    assert reader.children(run) == await journal.children(run)
                for read in (reader.read, reader.children):
                    with pytest.raises(UnknownRun, match="no run absent"):
                        read("absent")


async def test_a_changed_text_is_tampered_with_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("a"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE bodies SET body = 'It, changed.' WHERE CAST(body AS TEXT) = 'It.'")
    with open_reader(str(path)) as reader:
        assert reader is not None
        with pytest.raises(JournalTampered, match="is changed"):
            reader.read("a")
        with pytest.raises(JournalTampered, match="is changed"):
            reader.runs(20)


@pytest.mark.parametrize("change", ["UPDATE alembic_version SET version_num = '0007'", "DROP TABLE alembic_version"])
async def test_tables_of_another_version_are_left_to_the_journal(tmp_path: Path, change: str) -> None:
    path = tmp_path / "j.db"
    async with open_journal(str(path)):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with open_reader(str(path)) as reader:
        assert reader is None


@pytest.mark.parametrize("url", ["postgresql://u@h/d", "sqlite:///absent.db", "absent.db", "sqlite://", ""])
def test_what_is_no_file_is_left_to_the_journal(url: str) -> None:
    with open_reader(url) as reader:
        assert reader is None


def test_a_file_that_is_no_journal_is_left_to_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_text("no database, but longer than the head of one " * 30)
    with open_reader(str(path)) as reader:
        assert reader is None
