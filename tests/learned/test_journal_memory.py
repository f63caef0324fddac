"""Memory as an index over the journal: what a run leaves, when it goes, and what a key of a server finds."""

import asyncio
import json
from pathlib import Path

from serving import served
from test_learning_cli import CONFIG, call, fill
from test_pages import begin

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.engine.conductor import Proposal, Situation
from shikisha.journal import open_journal
from shikisha.learned.journal_learner import sync_memory
from shikisha.learned.memory_index import MemoryIndex
from shikisha.server.keys.key import KeyScope

SERVED = """
[server]
port = 0
[workers.solo]
kind = "scripted"
answers = "The ferry leaves at nine."
[memory]
file = "memory.db"
"""


class Single:
    name = "single"

    async def propose(self, situation: Situation) -> Proposal:
        return Proposal(Plan() if situation.rounds else Plan((Step("Look it up.", 0),)))


class Says:
    async def perform(self, _: object) -> Reply:
        return Reply("At nine.")


def read_all(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.glob("memory.db*"))


async def test_the_index_follows_the_journal_through_grades_and_erasure(tmp_path: Path) -> None:
    async with open_journal(f"sqlite:///{tmp_path / 'runs.db'}") as journal:
        pool = Pool([Member(Card("solo"), Says())])
        run = await Engine(journal).run(Task("When does the ferry leave?", labels=("travel",)), pool, Single(), Caps())
        with MemoryIndex(tmp_path / "memory.db") as memory:
            assert (await sync_memory(memory, journal))[1] == 1
            assert memory.recall("ferry", tenant="", labels=()) == []  # it bears a label
            (fact,) = memory.recall("ferry", tenant="", labels=("travel",))
            assert (fact.note.kind, fact.note.evidence) == ("fact", (run.id,))
            assert (await sync_memory(memory, journal))[0] == 0
            mark = AnswerGraded(run=run.id, at=1.0, checker="x", mark=GradeMark.RIGHT, score=1.0, actor="me")
            journal.add(mark)
            assert (await sync_memory(memory, journal))[1] == 2
            kinds = {one.note.kind for one in memory.recall("ferry", tenant="", labels=("travel",))}
            assert kinds == {"fact", "plan"}
            await journal.erase([run.id], actor="me", why="asked to")
            assert (await sync_memory(memory, journal))[2] == 2
            assert len(memory) == 0
        assert b"ferry" not in read_all(tmp_path)


async def test_a_key_of_another_tenant_finds_nothing_unless_it_is_shared(tmp_path: Path) -> None:
    async with served(tmp_path, SERVED) as at:
        theirs, ours = await at.issue(KeyScope.RUN, tenant="other"), await at.issue(KeyScope.RUN, tenant="own")
        run = await begin(at, 0, key=ours.secret, prompt="When does the ferry leave?")
        found = []
        for key in (ours.secret, theirs.secret, at.key):
            async with at.http(key) as client:
                answer = (await client.get("/memory", params={"query": "ferry"})).json()
                found.append([each["runs"] for each in answer["data"]])
        assert found == [[[run]], [], [[run]]]
        async with at.http(at.key) as client:
            assert (await client.post("/admin/erase", json={"runs": [run]})).status_code == 200
            assert (await client.get("/memory", params={"query": "ferry"})).json()["data"] == []
    (tmp_path / "other").mkdir()
    async with (
        served(tmp_path / "other", SERVED.replace('[memory]\nfile = "memory.db"', "")) as at,
        at.http() as client,
    ):
        assert (await client.get("/memory", params={"query": "ferry"})).status_code == 404


def test_search_and_export_take_the_journal_in_first(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "shikisha.toml").write_text(CONFIG)
    asyncio.run(fill(folder, 20))
    assert "name a memory with [memory] file" in call(folder, "memory", "weekday", code=3)
    (folder / "shikisha.toml").write_text(CONFIG + '[memory]\nfile = "memory.db"\n')
    found = json.loads(call(folder, "memory", "which weekday is it", "--json"))["notes"]
    assert found
    assert all(note["evidence"] for note in found)
    rows = [json.loads(line) for line in call(folder, "memory").splitlines() if line.startswith("{")]
    assert len(rows) >= len(found)
