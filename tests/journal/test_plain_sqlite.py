"""A SQLite journal that is read with the standard library alone shows what the journal itself shows."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from journals import keep, started, whole

from shikisha.core.errors import JournalTampered, JournalUnavailable, UnknownRun
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.journal import open_journal
from shikisha.journal.plain_sqlite import JournalReader, PlainRecorder, open_reader, open_recorder
from shikisha.journal.queries import graded_runs
from shikisha.journal.stored_events import MOST_EVENTS, EventRow


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


class CountingReader(JournalReader):
    """A reader that counts the rows that it reads."""

    read_rows = 0

    def _rows(self, where: str, values: Sequence[object]) -> list[EventRow]:
        found = super()._rows(where, values)
        self.read_rows += len(found)
        return found


async def test_children_of_a_graded_run_are_looked_for_among_the_runs_of_its_own_time(tmp_path: Path) -> None:
    """However many runs came between a run's end and its grade: counted in the rows that are read."""
    path, counts = tmp_path / "j.db", list[int]()
    graded = AnswerGraded(run="a", at=99.0, checker="text", mark=GradeMark.RIGHT, score=1.0)
    async with open_journal(str(path)) as journal:
        await keep(journal, [started("a"), *whole("a-0-0-0", parent="a"), *whole("a")[1:]])
        for later in (4, 16, 64):
            await keep(journal, [event for number in range(later) for event in whole(f"b{later}-{number}")])
            await keep(journal, [graded])
            assert [child.id for child in await journal.children("a")] == ["a-0-0-0"]
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                reader = CountingReader(connection)
                assert [child.id for child in reader.children("a")] == ["a-0-0-0"]
            counts.append(reader.read_rows)
    assert counts[2] - counts[0] == 2  # the further grades of the run itself


async def test_graded_runs_as_evidence_cost_no_more_for_long_texts_or_for_a_run_of_many_events(tmp_path: Path) -> None:
    path, long, label = tmp_path / "j.db", "A long answer. " * 1000, replace(started("c"), labels=("hr",), domain="x")
    grades = [AnswerGraded(run=run, at=99.0, checker="text", mark=GradeMark.RIGHT, score=1.0) for run in "abc"]
    async with open_journal(str(path)) as journal:
        await keep(journal, [*whole("a"), *whole("b", answer=long), label, *whole("c", answer=long)[1:], *grades])
        await keep(journal, [replace(grades[0], at=at) for at in range(MOST_EVENTS)])
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            reader = CountingReader(connection)
            assert [run.id for run in reader.graded(10_000)] == ["c", "b"]  # "a" has too many
            assert reader.read_rows == len(whole("b") + whole("c")) + 2
        async with open_journal(str(tmp_path / "k.db")) as other:
            await keep(other, [*whole("b", answer=long), label, *whole("c", answer=long)[1:], *grades[1:]])
            await other.index()
            found = await other.query(partial(graded_runs, domain="x", tenant=None, limit=9))
            with open_reader(str(tmp_path / "k.db")) as plain:
                assert plain is not None
                assert [run.id for run in plain.graded(9)] == ["c", "b"]
                found += plain.graded(1)
            with closing(sqlite3.connect(tmp_path / "k.db")) as connection, connection:
                connection.execute("DELETE FROM events WHERE run = 'c'")  # and the index still has it
            assert await other.query(partial(graded_runs, domain="x", tenant=None, limit=9)) == []
    assert [(run.id, run.started.domain, run.scope.labels, run.answer, run.grade) for run in found] == [
        ("c", "x", frozenset({"hr"}), "", grades[2])
    ] * 2


async def test_grades_of_a_language_model_displace_none_of_a_person(tmp_path: Path) -> None:
    def grade(run: str, *, judged: bool) -> AnswerGraded:
        return AnswerGraded(run=run, at=99.0, checker="x", mark=GradeMark.RIGHT, score=1.0, judged=judged)

    async with open_journal(str(tmp_path / "j.db")) as journal:
        await keep(journal, [*whole("a"), *whole("b"), grade("a", judged=False), grade("b", judged=True)])
        await journal.index()
        assert [run.id for run in await journal.graded("", None, 9)] == ["a"]


async def test_what_it_adds_is_in_the_one_chain_with_what_the_journal_adds(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("a", answer="The same."))
    async with open_recorder(str(path)) as recorder:
        assert isinstance(recorder, PlainRecorder)
        for event in [*whole("b", answer="The same."), *whole("c")]:
            recorder.add(event)
        assert list(await recorder.read("b")) == whole("b", answer="The same.")
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("d"))
        assert not (await journal.verify()).problems
        assert [run.id for run in await journal.runs()] == ["d", "c", "b", "a"]
        await journal.erase(["a"], actor="ann")  # "b" has the text too, and keeps it
        assert list(await journal.read("b")) == whole("b", answer="The same.")


async def test_a_store_that_takes_nothing_now_takes_it_with_the_next_flush(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with open_journal(str(path)):
        pass
    async with open_recorder(str(path), patience=0.1) as recorder:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for event in whole("a"):
                recorder.add(event)
            with pytest.raises(JournalUnavailable, match="locked"):
                await recorder.flush()
        await recorder.flush()
        assert list(await recorder.read("a")) == whole("a")


async def test_a_file_of_another_version_or_none_is_opened_in_the_usual_way(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with open_recorder(str(path)) as recorder:
        assert not isinstance(recorder, PlainRecorder)
        recorder.add(started("a"))
    async with open_recorder(str(path)) as recorder:
        assert isinstance(recorder, PlainRecorder)
        assert len(await recorder.read("a")) == 1
