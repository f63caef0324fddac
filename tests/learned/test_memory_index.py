"""Memory: what is found again, what nobody else finds, and what goes with the runs it came from."""

import random
import sqlite3
from pathlib import Path

import pytest

from shikisha.core.errors import ConfigError
from shikisha.learned.memory_index import MAX_NOTE, MemoryIndex, MemoryNote

TALK = (
    ("Ann", "How was the trip to the harbour?"),
    ("Bob", "Great, we went by train."),
    ("Bob", "It took four hours with two changes."),
    ("Ann", "The invoice of the hotel is still open."),
)


def talk(session: str = "s1", tenant: str = "") -> list[MemoryNote]:
    return [
        MemoryNote(text, (f"{session}.{place}",), tenant, (), "fact", speaker, session, place)
        for place, (speaker, text) in enumerate(TALK)
    ]


def texts(memory: MemoryIndex, query: str, count: int = 5, **asked: object) -> list[str]:
    asked = {"tenant": "", "labels": (), **asked}
    return [one.note.text for one in memory.recall(query, count, **asked)]  # type: ignore[arg-type]  # as given


def test_a_note_is_found_by_its_words_by_those_around_it_and_by_who_said_it() -> None:
    with MemoryIndex() as memory:
        assert memory.add(talk()) == len(TALK)
        assert texts(memory, "Is the hotel's invoice open?")[0] == TALK[3][1]
        memory.add(MemoryNote(f"Number {at} is elsewhere.", ("o",), "", (), session="s2", place=at) for at in range(20))
        near = texts(memory, "trip to the harbour", 9)
        assert set(near) == {text for _, text in TALK}  # three of them have none of these words
        assert near[0] == TALK[0][1]
        assert memory.recall("What did Bob say of the harbour?", 1, tenant="", labels=())[0].note.speaker == "Bob"
        assert texts(memory, "nothing of the kind") == []
        assert texts(memory, "") == []


def test_what_is_said_twice_is_one_note_with_both_runs_and_goes_with_the_last() -> None:
    with MemoryIndex() as memory:
        notes = [MemoryNote("The ferry is late.", (run,), "", ()) for run in ("a", "b", "a")]
        assert memory.add(notes) == 1
        assert memory.recall("ferry", tenant="", labels=())[0].note.evidence == ("a", "b")
        assert memory.forget(["a"]) == 0
        assert texts(memory, "ferry") == ["The ferry is late."]
        assert memory.forget(["b", "unknown"]) == 1
        assert texts(memory, "ferry") == []
        assert len(memory) == 0
        assert memory.add(notes[:1]) == 1


@pytest.mark.parametrize(
    "bad", [MemoryNote("", ("a",), "", ()), MemoryNote("x", (), "", ()), MemoryNote(" \n", ("a",), "", ())]
)
def test_no_note_without_a_text_or_evidence_and_then_nothing_is_added(bad: MemoryNote) -> None:
    with MemoryIndex() as memory:
        with pytest.raises(ValueError, match="the runs that it comes from"):
            memory.add([MemoryNote("fine", ("a",), "", ()), bad])
        assert len(memory) == 0
        assert texts(memory, "fine") == []


def canary(number: int) -> str:
    return "canary" + "".join("bcdfghjklm"[int(digit)] for digit in str(number)) + "x"


def test_no_other_tenant_and_no_task_without_the_labels_finds_a_note() -> None:
    rng = random.Random(0)
    names = ("medical", "legal")
    notes = [
        MemoryNote(f"{canary(at)} is secret", (f"r{at}",), tenant=f"t{at % 3}",
                   labels=tuple(rng.sample(names, rng.randrange(3))))
        for at in range(120)
    ]  # fmt: skip
    with MemoryIndex() as memory:
        memory.add(notes)
        for note in notes:
            word = note.text.split()[0]
            assert texts(memory, word, tenant=note.tenant, labels=note.labels) == [note.text]
            for query in (word, note.text, f'"{word}" OR secret', f"0x{word} 1x{word} {word}*"):
                assert note.text not in texts(memory, query, 200, tenant="t9", labels=names)
                assert note.text not in texts(memory, query, 200, tenant=f"{note.tenant}x", labels=names)
                for label in note.labels:
                    less = [each for each in note.labels if each != label]
                    assert note.text not in texts(memory, query, 200, tenant=note.tenant, labels=less)
        assert len(texts(memory, "secret", 200, tenant=None, labels=names)) == len(notes)


def test_an_admin_of_many_tenants_finds_the_notes_of_all() -> None:
    query = " ".join(f"word{canary(at)}" for at in range(48))
    with MemoryIndex() as memory:
        memory.add(MemoryNote(f"{query} {canary(at)}", (f"r{at}",), f"t{at}", ()) for at in range(100))
        assert len(texts(memory, query, 200, tenant=None)) == 100
        assert len(texts(memory, canary(99), 200, tenant=None)) == 1


def test_age_and_a_budget_of_characters_decide_what_is_shown() -> None:
    old, new = (
        MemoryNote("The ferry left.", ("a",), "", (), at=0.0),
        MemoryNote("A ferry left then.", ("b",), "", (), at=100 * 86_400),
    )
    with MemoryIndex(half_life_days=10.0) as memory:
        memory.add([old, new])
        assert texts(memory, "ferry left", now=100 * 86_400) == [new.text, old.text]
        assert texts(memory, "ferry left", now=100 * 86_400, most_characters=20) == [new.text]


def test_hostile_texts_and_queries_are_words(tmp_path: Path) -> None:
    nasty = [
        '"',
        "'; DROP TABLE notes; --",
        "a" * 9_000,
        "\x00\ud7ff* NEAR(",
        "AND OR NOT",
        "的" * 3_000,
        "^x:y -z",
        "%",
    ]
    with MemoryIndex(tmp_path / "memory.db") as memory:
        memory.add([MemoryNote(text, ("r",), "", (), speaker=text[:50], session=text[:9]) for text in nasty])
        for text in nasty:
            memory.recall(text, 3, tenant="", labels=())
        assert all(len(note.text) <= MAX_NOTE for note in memory.notes())
        assert len(memory) == len(nasty)


def test_frequent_words_still_find_what_they_name() -> None:
    with MemoryIndex() as memory:
        memory.add(
            MemoryNote(f"invoice {'paid' if at % 2 else 'open'} {at}", (f"r{at}",), "", ()) for at in range(1_000)
        )
        assert all("invoice paid" in text for text in texts(memory, "invoice paid"))
        assert texts(memory, "invoice paid 7")[0] == "invoice paid 7"


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, and long enough to be read as one" * 20)
    with pytest.raises(ConfigError, match=r"text\.db: cannot be used as a memory"):
        MemoryIndex(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "later.db") as later:
        later.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="version 1, found 99"):
        MemoryIndex(tmp_path / "later.db")
    with pytest.raises(ConfigError):
        MemoryIndex(tmp_path / "text.db" / "memory.db")
