"""Notifications to phones: sealed for one browser, to push services only, and never in the way of a run."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web
from authenticator import decoded, encoded
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from serving import At, served
from test_pages import begin
from test_passkeys import MAILS, phone

from shikisha.server.keys import Key
from shikisha.server.keys.key import KeyScope
from shikisha.server.ops.push import PublicResolver, PushSender, PushSettings, new_vapid_key, push_settings

http_ece = pytest.importorskip("http_ece", reason="needs the extra phone")
py_vapid = pytest.importorskip("py_vapid", reason="needs the extra phone")
WORKERS = """
pool = ["solo", "mails"]
[server]
port = 0
[workers.solo]
kind = "scripted"
answers = "42"
[workers.mails]
kind = "scripted"
answers = "sent"
approval = "always"
"""
CONFIG = f"""{WORKERS}
[push]
contact = "mailto:operator@example.com"
services = ["127.0.0.1", "push.example.com"]
"""
ENVIRONMENT = {"SHIKISHA_VAPID_KEY": new_vapid_key()}


@dataclass
class PushService:
    """A browser and its push service, on loopback: opens the messages, and answers with these statuses in turn."""

    statuses: list[int] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def subscription(self) -> str:
        """What `PushSubscription.toJSON` gives."""
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": encoded(point), "auth": encoded(self.auth)}
        return json.dumps({"endpoint": f"{self.url}/device", "keys": keys})

    async def take(self, request: web.Request) -> web.Response:
        """Open a message and check who signed it."""
        opened = http_ece.decrypt(await request.read(), private_key=self.key, auth_secret=self.auth)
        token, public = (part[2:] for part in request.headers["Authorization"].removeprefix("vapid ").split(","))
        assert py_vapid.Vapid02.verify(f"vapid t={token},k={public}")
        assert json.loads(decoded(token.split(".")[1]))["aud"] == self.url
        self.messages.append(json.loads(opened))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 201)


@asynccontextmanager
async def push_service(*statuses: int) -> AsyncIterator[PushService]:
    """Run a push service."""
    made = PushService(list(statuses))
    app = web.Application()
    app.router.add_post("/device", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


@asynccontextmanager
async def told_by(at: At, service: PushService, *left: str) -> AsyncIterator[None]:
    """Send what waits to this service, and try again at once; the admin's browser is subscribed.

    `left` are the services that the configuration has by now, where they are others.
    """
    assert at.service is not None
    key = await at.service.keys.find(at.key)
    assert isinstance(key, Key)
    private = new_vapid_key()
    settings = PushSettings("mailto:operator@example.com", "", private, ("127.0.0.1",), content=False)
    sender = PushSender(at.service, replace(settings, services=left or settings.services), pause=lambda _: 0.0)
    at.service.observers.append(sender.note)
    found = json.loads(service.subscription)
    sealed = (decoded(found["keys"][name]) for name in ("p256dh", "auth"))
    await at.service.subscriptions.add(key.id, settings.checked_endpoint(found["endpoint"]), *sealed)
    task = asyncio.create_task(sender.deliver())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once this holds; TimeoutError when it never does."""
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_a_phone_is_told_what_waits_and_what_it_may_cost_and_a_gone_one_is_forgotten(tmp_path: Path) -> None:
    async with push_service(503, 201, 410) as service, served(tmp_path, WORKERS) as at, told_by(at, service):
        assert at.service is not None
        house = at.service
        run = await begin(at, MAILS)

        async def tried_again() -> bool:
            return len(service.messages) == 2

        await until(tried_again)
        told = service.messages[0]
        assert told == service.messages[1]
        assert told["title"] == "May mails be called?"
        assert told["body"].startswith("at most $0")
        assert told["page"].startswith(f"/ui/approvals/{run}/")
        assert "part 0" not in json.dumps(told)  # the call itself is shown behind the login only
        assert len(await house.subscriptions.for_tenant("default")) == 1
        await begin(at, MAILS)

        async def forgotten() -> bool:
            return not await house.subscriptions.for_tenant("default")

        await until(forgotten)  # the 410


async def test_a_service_that_left_the_configuration_is_not_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with push_service() as service, served(tmp_path, WORKERS) as at, told_by(at, service, "push.example.com"):
        await begin(at, MAILS)

        async def said() -> bool:
            return "could not be told: ApiError" in caplog.text

        await until(said)
        assert service.messages == []


async def test_a_push_service_that_is_down_delays_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path, WORKERS) as at, told_by(at, PushService(url="http://127.0.0.1:9")):
        assert at.service is not None
        run = await begin(at, MAILS)

        async def said() -> bool:
            return "127.0.0.1 could not be told (status 0" in caplog.text

        await until(said)
        assert (await at.service.read_run(run)).open_questions
        await begin(at, 0)  # other runs go on


INTERNAL = (
    "https://127.0.0.2/x",
    "https://localhost/x",
    "https://169.254.169.254/latest/meta-data",
    "https://[::1]/x",
    "https://2130706433/x",
    "https://push.example.com@127.0.0.1/x",
    "http://push.example.com/x",
    "https://push.example.com.evil.example/x",
    "ftp://push.example.com/x",
    "https://push.example.com:x/",
    "https://[/x",
    "x" * 3000,
)


async def test_only_push_services_are_ever_called(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG, ENVIRONMENT) as at, phone(at) as device:
        assert at.service is not None
        made = json.loads(PushService(url="https://push.example.com").subscription)
        for endpoint in INTERNAL:
            answer = await device.post("/ui/device/push", subscription=json.dumps({**made, "endpoint": endpoint}))
            assert answer.status_code == 400, endpoint
        for text in ("", "[]", "{}", json.dumps({**made, "keys": {"p256dh": "AA", "auth": "AA"}})):
            assert (await device.post("/ui/device/push", subscription=text)).status_code == 400
        issued = await at.issue(KeyScope.READ)
        async with phone(at, issued.secret) as reader:
            assert (await reader.post("/ui/device/push", subscription=json.dumps(made))).status_code == 403
        assert (await device.post("/ui/device/push", subscription=json.dumps(made))).status_code == 200
        approver = await at.issue(KeyScope.APPROVE)
        await at.service.subscriptions.add(approver.key.id, "https://push.example.com/2", bytes(65), bytes(16))
        assert [each.key for each in await at.service.subscriptions.for_tenant("other")].count(approver.key.id) == 1
        await at.service.keys.revoke(approver.key.id, "tests")
        assert [each.key for each in await at.service.subscriptions.for_tenant("other")].count(approver.key.id) == 0
        assert push_settings(at.service.container) is not None


async def test_a_name_that_leads_inside_finds_no_address() -> None:
    resolver = PublicResolver(["*"])
    for host in ("localhost", "127.1", "2130706433"):
        with pytest.raises(OSError, match=r"no public address|not known|resolution"):
            await resolver.resolve(host, 443)
    await resolver.close()
