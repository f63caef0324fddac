"""Webhooks: who is told what, signed so that it can be checked, again where that helps, and nobody is held up."""

import asyncio
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from serving import At, served

from shikisha.config.container import load_config
from shikisha.config.settings import WebhookEvent, WebhookTable
from shikisha.core.errors import ConfigError
from shikisha.core.events import QuestionAsked, QuestionKind, RunFinished, RunStatus
from shikisha.server.ops.webhooks import WebhookReceiver, WebhookSender, retry_delay, sign_webhook, webhook_events

KEY = b"a secret that signs webhooks"
SECRET = f"whsec_{b64encode(KEY).decode()}"
CONFIG = """
[server]
port = 0
url = "https://desk.example"
[workers.w]
kind = "scripted"
answers = "the answer is 42"
[[autonomy.classes]]
domain = "mail"
mode = "review"
[[webhooks]]
url = "http://127.0.0.1:{port}/hook"
secret_env = "HOOK_SECRET"
{more}
"""

FINISHED = RunFinished(run="261122-114437-abcdefgh", at=1.0, status=RunStatus.DONE, answer="42")


@dataclass
class Receiver:
    """A real HTTP server that keeps what it is sent, and answers with these statuses, the last one for ever."""

    statuses: Sequence[int] = (204,)
    headers: str = ""
    got: "asyncio.Queue[tuple[dict[str, str], bytes]]" = field(default_factory=asyncio.Queue)
    count: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        status = self.statuses[min(self.count, len(self.statuses) - 1)]
        self.count += 1
        writer.write(f"HTTP/1.1 {status} X\r\n{self.headers}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        self.got.put_nowait(({**headers, ":line": head[0]}, body))

    async def next(self) -> dict[str, object]:
        """What it was told next, once its signature fits."""
        async with asyncio.timeout(20):
            headers, body = await self.got.get()
        named = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
        expected = "v1," + b64encode(hmac.new(KEY, named + body, sha256).digest()).decode()
        assert hmac.compare_digest(headers["webhook-signature"], expected)
        assert headers[":line"] == "POST /hook HTTP/1.1"
        told = json.loads(body)
        assert isinstance(told, dict)
        return told


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    async with server:
        receiver.port = server.sockets[0].getsockname()[1]
        yield receiver


@asynccontextmanager
async def told(folder: Path, receiver: Receiver, more: str = "") -> AsyncIterator[At]:
    """A served service that tells this receiver."""
    async with (
        receiving(receiver),
        served(folder, CONFIG.format(port=receiver.port, more=more), {"HOOK_SECRET": SECRET}) as at,
    ):
        yield at


def table(url: str) -> WebhookTable:
    return WebhookTable.model_validate({"url": url, "secret_env": "HOOK_SECRET"})


async def ask(at: At, domain: str = "", **more: object) -> httpx2.Response:
    async with at.http() as client:
        return await client.post("/runs", json={"prompt": "what is it?", "domain": domain, **more})


async def test_a_question_is_told_with_the_page_where_it_is_answered_and_without_its_text(tmp_path: Path) -> None:
    receiver = Receiver()
    async with told(tmp_path, receiver) as at:
        run = (await ask(at, "mail", background=True)).json()["id"]
        said = await receiver.next()
    data = said["data"]
    assert isinstance(data, dict)
    assert (said["type"], data["run"], data["asks"], data["worker"]) == ("question.asked", run, "review", "w")
    assert str(data["page"]).startswith(f"https://desk.example/ui/approvals/{run}/")
    assert "the answer" not in json.dumps(data)
    assert "what is it" not in json.dumps(data)


async def test_texts_are_told_where_they_are_wanted(tmp_path: Path) -> None:
    receiver = Receiver()
    async with told(tmp_path, receiver, "content = true") as at:
        await ask(at)
        said = await receiver.next()
    data = said["data"]
    assert isinstance(data, dict)
    assert (said["type"], data["status"], data["answer"]) == ("run.finished", "done", "the answer is 42")


async def test_a_run_that_a_budget_ended_is_told_as_such(tmp_path: Path) -> None:
    receiver = Receiver()
    async with told(tmp_path, receiver, 'events = ["budget.refused"]') as at:
        await ask(at, budgets={"tokens": 1})
        await ask(at)
        said = await receiver.next()
        data = said["data"]
        assert isinstance(data, dict)
        assert (said["type"], data["cap"], data["status"]) == ("budget.refused", "tokens", "capped")
    assert receiver.got.empty()


async def test_runs_of_other_tenants_are_not_told(tmp_path: Path) -> None:
    receiver = Receiver()
    async with told(tmp_path, receiver, 'tenant = "another"') as at:
        await ask(at)
    assert receiver.count == 0


async def test_a_receiver_in_passing_trouble_is_told_again_under_the_same_name(tmp_path: Path) -> None:
    receiver, pauses = Receiver((503, 429, 200), "Retry-After: 7\r\n"), list[tuple[int, float | None]]()

    def pause(number: int, wish: float | None) -> float:
        pauses.append((number, wish))
        return 0.0

    async with receiving(receiver), served(tmp_path) as at, asyncio.TaskGroup() as group:
        assert at.service is not None
        url = f"http://127.0.0.1:{receiver.port}/hook"
        hook = WebhookReceiver("hook", url, KEY, table(url))
        telling = WebhookSender(at.service, [hook], pause)
        delivering = group.create_task(telling.deliver())
        telling.note(FINISHED)
        names = [(await receiver.got.get())[0]["webhook-id"] for _ in range(3)]
        await telling.rest(10)
        delivering.cancel()
    assert (len(set(names)), receiver.count, pauses) == (1, 3, [(0, 7.0), (1, 7.0)])


async def test_what_does_not_fit_into_the_queue_is_dropped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as at:
        assert at.service is not None
        hook = WebhookReceiver("hook", "http://127.0.0.1:9/", KEY, table("http://127.0.0.1:9/"))
        telling = WebhookSender(at.service, [hook])
        for _ in range(1001):
            telling.note(FINISHED)
    assert (hook.waiting.qsize(), "is dropped" in caplog.text) == (1000, True)


@pytest.mark.parametrize("status", [302, 401, 410])
async def test_a_receiver_that_refuses_or_points_elsewhere_is_asked_once(tmp_path: Path, status: int) -> None:
    receiver = Receiver((status, 200), "Location: http://127.0.0.1:9/elsewhere\r\n")
    async with told(tmp_path, receiver) as at:
        await ask(at)
        await receiver.got.get()
    assert receiver.count == 1


async def test_a_receiver_that_never_answers_holds_up_no_run(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, served(tmp_path, CONFIG.format(port=port, more=""), {"HOOK_SECRET": SECRET}) as at:
        done = await asyncio.gather(*(ask(at) for _ in range(5)))
        assert [each.json()["status"] for each in done] == ["done"] * 5


def test_a_signature_is_the_one_of_the_standards_example() -> None:
    """The example of the Standard Webhooks specification's reference libraries."""
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign_webhook(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == expected


def asked(kind: QuestionKind) -> QuestionAsked:
    return QuestionAsked(run="r", at=0.0, round=0, step=0, worker="w", question="q", asks=kind, prompt="?")


def test_what_receivers_are_told_of() -> None:
    assert webhook_events(asked(QuestionKind.APPROVE)) == {WebhookEvent.QUESTION_ASKED}
    assert webhook_events(asked(QuestionKind.TOOLS)) == set()
    assert webhook_events(FINISHED) == {WebhookEvent.RUN_FINISHED}
    assert webhook_events(RunFinished(run=f"{FINISHED.run}-0-0-0", at=0.0, status=RunStatus.DONE)) == set()


def test_pauses_grow_and_a_receivers_wish_counts_within_reason() -> None:
    bounds = [(1.5, 2.0), (6.0, 8.0), (24.0, 32.0), (90.0, 120.0), (90.0, 120.0)]
    assert all(least <= retry_delay(number, None) <= most for number, (least, most) in enumerate(bounds))
    assert (retry_delay(0, 60.0), retry_delay(0, 86_400.0)) == (60.0, 120.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('url = "file:///etc/passwd"\nsecret_env = "S"', "url: expected the whole URL"),
        ('url = "https://user:pass@example.com/"\nsecret_env = "S"', "holds no password"),
        ('url = "/relative"\nsecret_env = "S"', "whole URL"),
        ('secret_env = "S"', "url or url_env"),
        ('url = "https://example.com/"', "secret_env"),
        ('url = "https://example.com/"\nsecret_env = "S"\nevents = ["run.began"]', "events"),
    ],
)
def test_a_receiver_that_cannot_be_told_is_an_error_of_the_configuration(tmp_path: Path, given: str, said: str) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text(f"[[webhooks]]\n{given}\n")
    with pytest.raises(ConfigError, match=said):
        load_config(file, {})


async def test_a_secret_that_is_not_there_stops_the_server_and_is_named(tmp_path: Path) -> None:
    config = '[[webhooks]]\nurl = "https://example.com/"\nsecret_env = "HOOK_SECRET"\n'
    with pytest.raises(ConfigError, match="HOOK_SECRET"):
        async with served(tmp_path, config):
            pass
