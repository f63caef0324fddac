"""After an erasure nothing that a client sent is in any byte of the data folder, by whichever door it came."""

import asyncio
import os
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from journals import finished, started
from postgres import Cluster
from serving import At, served
from sqlalchemy import Connection, text

from shikisha.core.errors import JournalUnavailable
from shikisha.core.task import OPERATOR, Scope
from shikisha.journal import open_journal
from shikisha.journal.schema import METADATA
from shikisha.journal.store import UNFINISHED
from shikisha.learned.journal_learner import sync_memory
from shikisha.learned.learned_erasure import LearnedErasure, MemoryErasure
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.memory_index import MemoryIndex
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.testing.chat_script import ReceivedChatRequest, ScriptedAnswer
from shikisha.testing.chat_server import chat_server
from shikisha_classes.task_classes import ProposedClasses, TaskClass, classes_file, read_classes

CONFIG = """
pool = ["model"]
[journal]
{journal}
[memory]
file = "memory.db"
[learning]
on = true
[autonomy]
proposed = "classes.json"
[workers.model]
kind = "chat"
base_url = "{url}"
model = "m"
price = {{ input = 1.0, output = 1.0 }}
attempts = 1
takes = ["file"]
tools = true
[[autonomy.classes]]
labels = ["reviewed"]
mode = "review"
"""


NO_CLASSES = classes_file(ProposedClasses((), OPERATOR), 1.0)
LEARNED = {"class name", "example", "class domain", "learned label", "a writer that died"}


class Canaries:
    """Words that are nowhere else, one for each place that a client can write to."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        """Return a further word; it says where it was put, if it is found."""
        word = f"k{os.urandom(6).hex()}é" if place.endswith("*") else f"k{os.urandom(6).hex()}"
        self.made[place] = word
        return word

    def found(self, data: bytes) -> set[str]:
        """Return the places whose words are in these bytes, in any of the forms in which a store may have them."""
        lowered = data.lower()
        return {place for place, word in self.made.items() if any(form in lowered for form in _forms(word))}


def _forms(word: str) -> Iterator[bytes]:
    yield word.rstrip("é").encode()  # every form of UTF-8 and of JSON begins so
    yield word.rstrip("é").encode("utf-16-le")
    for shift in range(3):
        encoded = b64encode(b" " * shift + word.rstrip("é").encode())
        yield encoded[4 if shift else 0 : -4].lower()


def echo(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Say what was asked; as an error where it asks for one."""
    said = asked.messages[-1][1]
    if "fail please" in said:
        raise ValueError(f"no such thing: {said}")
    return ScriptedAnswer(text=f"You said {said}")


async def send_everything(at: At, word: Canaries) -> None:
    """Write to every door, with a word in every field that it takes."""
    headers = {
        "X-Shikisha-Domain": word("header domain"),
        "X-Shikisha-Labels": word("header labels"),
        "X-Shikisha-Session": word("header session"),
        "Idempotency-Key": word("header idempotency"),
        "User-Agent": word("header agent"),
        "X-Request-Id": word("header request"),
        "traceparent": f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01",
        "tracestate": f"a={word('header tracestate')}",
        "OpenAI-Organization": word("header organization"),
    }
    tool = word("tool name")
    function = {"name": tool, "description": word("tool text"), "parameters": {word("tool parameter"): {}}}
    chat = {
        "model": "shikisha",
        "messages": [
            {"role": "system", "content": word("system*"), "name": word("system name")},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": word("prompt*")},
                    {
                        "type": "file",
                        "file": {
                            "filename": f"{word('file name')}.txt",
                            "file_data": b64encode(word("file").encode() * 3).decode(),
                        },
                    },
                ],
                "name": word("user name"),
            },
        ],
        "metadata": {word("metadata name"): word("metadata")},
        "user": word("user"),
        "safety_identifier": word("safety identifier"),
        "prompt_cache_key": word("cache key"),
        "service_tier": word("tier"),
        "stop": [word("stop")],
    }
    called = {"id": word("call id"), "type": "function", "function": {"name": tool, "arguments": word("arguments")}}
    turns = [
        {"role": "user", "content": word("first turn")},
        {"role": "assistant", "content": word("said"), "tool_calls": [called]},
        {"role": "tool", "content": word("tool result"), "tool_call_id": word.made["call id"]},
    ]
    schema = {"name": word("schema name"), "schema": {"type": "string", "description": word("schema")}}
    bodies: list[tuple[str, object, dict[str, str]]] = [
        ("/v1/chat/completions", chat, headers),
        ("/v1/chat/completions", chat | {"messages": turns}, {}),
        ("/v1/chat/completions", {"model": "shikisha", "messages": turns[:1], "tools": [
            {"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": tool}}}, {}),
        ("/v1/chat/completions", {"model": "shikisha", "messages": turns[:1], "response_format": {
            "type": "json_schema", "json_schema": schema}}, {}),
        ("/v1/chat/completions", {"model": word("model"), "messages": turns[:1]}, {}),
        ("/v1/chat/completions", {"model": "shikisha", "messages": [
            {"role": "user", "content": f"fail please {word('failing')}"}]}, {}),
        ("/v1/responses", {"model": "shikisha", "input": word("input"), "instructions": word("instructions"),
                           "metadata": {"a": word("response metadata")}, "user": word("response user")}, {}),
        ("/v1/messages", {"model": "shikisha", "max_tokens": 9, "system": word("anthropic system"),
                          "metadata": {"user_id": word("anthropic user")},
                          "messages": [{"role": "user", "content": word("anthropic")}]}, {}),
        ("/runs", {"prompt": word("run prompt"), "context": word("context"), "domain": word("run domain"),
                   "labels": [word("run label")], "metadata": {"session": word("run session")},
                   "answer_schema": {"type": "string", "description": word("run schema")}}, {}),
        ("/runs", {"prompt": word("reviewed"), "labels": ["reviewed"], "background": True}, {}),
        ("/v1/embeddings", {"model": "shikisha", "input": word("embedding")}, {}),
    ]  # fmt: skip
    async with at.http() as client:
        for path, body, more in bodies:
            said = await client.post(path, json=body, headers=more)

            assert said.status_code != 500, (path, said.text)  # 502: the worker's answer is not what was asked for
        runs = (await client.get("/runs", params={"limit": 100})).json()["data"]
        assert len(runs) >= 8, runs
        for run in runs:
            graded = {"run": run["id"], "score": "up", "remark": word(f"feedback of {run['id']}")}
            await client.post("/feedback", json=graded)
        async with asyncio.timeout(30):
            while not (open_ones := (await client.get("/approvals")).json()["data"]):  # noqa: ASYNC110 - as clients ask
                await asyncio.sleep(0.02)
        for each in open_ones:
            decided = {"approved": True, "text": word("changed answer"), "remark": word("approval remark")}
            assert (await client.post(f"/approvals/{each['id']}", json=decided)).status_code == 200
        async with asyncio.timeout(30):
            while any(run["state"] in ("open", "waiting") for run in (await client.get("/runs")).json()["data"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def write_classes(folder: Path, run: str, word: Callable[[str], str]) -> None:
    """Write classes of tasks with words of this run."""
    scope = Scope("", frozenset({word("learned label")}))
    center = np.ones(shipped_encoder().width, np.float32)
    task_class = TaskClass(word("class name"), (), center, 2.0, (word("example"),), {word("class domain"): 1})
    write_learned(folder / "classes.json", classes_file(ProposedClasses((task_class,), scope, (run,)), 1.0))
    (folder / ".classes.json.77").write_text(word("a writer that died"))


async def erase_everything(at: At) -> None:
    async with at.http() as client:
        own = at.key.split("-")[2]
        gone = (await client.post("/admin/erase", json={"key": own})).json()
        assert (len(gone["runs"]) >= 8, gone["more"]) == (True, False)
        assert at.service is not None
        assert (await at.service.journal.verify()).ok


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.suffix != ".toml"}


async def test_no_word_of_a_client_is_in_any_byte_of_the_data_folder(tmp_path: Path) -> None:
    word = Canaries()
    async with chat_server(echo) as url:
        config = CONFIG.format(url=url, journal="")
        write_learned(tmp_path / "classes.json", NO_CLASSES)
        async with served(tmp_path, config) as at:
            assert at.service is not None
            await send_everything(at, word)
            await at.service.journal.index()
            async with at.http() as client:
                newest = (await client.get("/runs")).json()["data"][0]["id"]
            write_classes(tmp_path, newest, word)
            with MemoryIndex(tmp_path / "memory.db") as memory:
                assert (await sync_memory(memory, at.service.journal))[1]
            before = set[str]().union(*(word.found(data) for data in bytes_of(tmp_path).values()))
            assert before >= {"prompt*", "file name", "header domain", "header session", "header labels", "arguments"}
            assert before >= LEARNED
            assert word.found(bytes_of(tmp_path)["memory.db"] + bytes_of(tmp_path).get("memory.db-wal", b""))
            await erase_everything(at)
            left = {name: found for name, data in bytes_of(tmp_path).items() if (found := word.found(data))}
            assert left == {}
    assert not any(word.found(data) for data in bytes_of(tmp_path).values())


async def test_classes_go_with_any_run_that_they_are_from_and_stay_usable(tmp_path: Path) -> None:
    """Also where the process that erased died before it came to learned files, and where a command writes later."""
    file = tmp_path / "classes.json"
    async with open_journal(str(tmp_path / "journal.db")) as journal:
        for run in ("a", "b"):
            journal.add(started(run))
            journal.add(finished(run))
        write_classes(tmp_path, "a", lambda place: f"kestrel {place}")
        await journal.erase(["a"], actor="ann")  # by a process that knows no learned files, or died here
    assert b"kestrel" in file.read_bytes()
    async with open_journal(str(tmp_path / "journal.db")) as journal:
        journal.on_erased(LearnedErasure(lambda: [file], journal))
        await journal.finish_erasures()
        assert not any(b"kestrel" in data for data in bytes_of(tmp_path).values())
        (left,) = read_classes(read_learned(file), "classes").classes
        assert (left.examples, left.domains, left.name) == ((), {}, "erased-0")
        write_classes(tmp_path, "a", lambda place: f"kestrel {place}")  # read before the erasure
        await asyncio.gather(*(journal.finish_erasures() for _ in range(8)))
        assert not any(b"kestrel" in data for data in bytes_of(tmp_path).values())
        before = bytes_of(tmp_path)
        await journal.finish_erasures()
        assert bytes_of(tmp_path)["classes.json"] == before["classes.json"]
        file.write_text("kestrel")
        with pytest.raises(JournalUnavailable, match=r"classes\.json: .*correct or remove"):
            await journal.finish_erasures()


@pytest.mark.postgres
async def test_no_word_of_a_client_is_in_any_row_of_postgres(tmp_path: Path, postgres: Cluster) -> None:
    word = Canaries()

    def rows(connection: Connection) -> bytes:
        found = [connection.execute(text(f"SELECT * FROM {name}")).all() for name in METADATA.tables]  # noqa: S608
        return repr(found).encode()

    write_learned(tmp_path / "classes.json", NO_CLASSES)
    journal = f'url = "{postgres.fresh()}"'
    async with chat_server(echo) as url, served(tmp_path, CONFIG.format(url=url, journal=journal)) as at:
        assert at.service is not None
        await send_everything(at, word)
        await at.service.journal.index()
        assert len(word.found(await at.service.journal.query(rows))) >= 30
        await erase_everything(at)
        assert word.found(await at.service.journal.query(rows)) == set()


async def test_what_a_process_did_not_live_to_forget_is_forgotten_by_the_next(tmp_path: Path) -> None:
    """Every other store fails, as if the process had died between two of them; the mark of it outlives the process."""
    file, notes = tmp_path / "journal.db", tmp_path / "memory.db"

    async def fail() -> None:
        raise JournalUnavailable("the power went")

    async with open_journal(str(file)) as journal:
        for event in (started("r", prompt="kestrel"), finished("r", answer="kestrel")):
            journal.add(event)
        with MemoryIndex(notes) as memory:
            await sync_memory(memory, journal)
        await journal.index()
        journal.on_erased(fail)
        journal.on_erased(MemoryErasure(notes, journal))
        with pytest.raises(JournalUnavailable, match="the power went"):
            await journal.erase(["r"], actor="ann")
        await journal.write(
            lambda at: at.execute(MARK, {"writer": UNFINISHED}).close()
        )  # as if it died before that too
    assert b"kestrel" in notes.read_bytes()
    async with open_journal(str(file)) as journal:
        journal.on_erased(MemoryErasure(notes, journal))
        await journal.finish_erasures()
        assert not any(b"kestrel" in data for data in bytes_of(tmp_path).values())
        left = await journal.query(lambda at: at.execute(text("SELECT count(*) FROM applied")).scalar_one())
        assert left == 0


MARK = text("INSERT OR IGNORE INTO applied VALUES (:writer, 0, 1e15)")


async def test_an_erasure_is_not_over_while_a_reader_keeps_the_log(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    async with open_journal(str(file), patience=0.1) as journal:
        for event in (started("r", prompt="kestrel"), finished("r")):
            journal.add(event)
        await journal.flush()
        with closing(sqlite3.connect(file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM bodies").fetchall()
            with pytest.raises(JournalUnavailable, match="ask again"):
                await journal.erase(["r"], actor="ann")
        assert any(b"kestrel" in data for data in bytes_of(tmp_path).values())
        await journal.finish_erasures()
        assert not any(b"kestrel" in data for data in bytes_of(tmp_path).values())
