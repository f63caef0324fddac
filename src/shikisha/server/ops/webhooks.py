"""Webhooks: signed POST requests that report events to the receivers of the configuration.

Requests are signed as Standard Webhooks defines: HMAC-SHA256 over `id.timestamp.body`, in `webhook-signature`.
Invariants: noting an event never waits and never fails, so a receiver cannot delay a run. Each receiver has its own
bounded queue; what does not fit is dropped and logged. Addresses come from the configuration only, redirects are not
followed, and responses are not read. Without `content` no text of a task, an answer or a fault is sent. Deliveries do
not outlive the server; `/approvals` always lists what waits for a person.
"""

import asyncio
import json
import logging
import random
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from hmac import new as hmac
from secrets import token_hex
from time import time
from typing import TypeAlias
from urllib.parse import urlsplit

from shikisha.config.settings import WebhookEvent, WebhookTable
from shikisha.core.errors import ConfigError, JournalError, WorkerError
from shikisha.core.events import Event, QuestionAsked, QuestionKind, RunFinished
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.store import ServedRun
from shikisha.workers.endpoint import origin, retry_after
from shikisha.workers.http_client import HttpClient

RetryDelay: TypeAlias = Callable[[int, float | None], float]
_LOG = logging.getLogger(__name__)
_MAX_QUEUE = 1000
_MAX_ATTEMPTS = 6
_MAX_DELAY = 120.0  # seconds between two attempts
_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_SECRET_PREFIX = "whsec_"
_RUN_CAPS = frozenset({"steps", "rounds", "depth", "seconds", "tool_calls"})  # caps that are no budget of anybody's


@dataclass(frozen=True, slots=True)
class WebhookReceiver:
    """A receiver: its address, the events that it wants, and the key that signs."""

    name: str
    url: str
    key: bytes = field(repr=False)
    table: WebhookTable
    waiting: "asyncio.Queue[Event]" = field(default_factory=lambda: asyncio.Queue(_MAX_QUEUE), repr=False)

    @classmethod
    def of(cls, place: int, table: WebhookTable, secret_store: SecretStore) -> "WebhookReceiver":
        """Return the receiver that a table describes; ConfigError when its secret or its address is not there."""
        url = secret_store.read(table.url_env) if table.url_env else table.url or ""
        if not origin(url):
            raise ConfigError(f"webhooks[{place}]: {table.url_env} holds no URL")
        key = _signing_key(secret_store.read(table.secret_env), table.secret_env)
        return cls(f"webhook {place} ({urlsplit(url).hostname})", url, key, table)


class WebhookSender:
    """Tells receivers; `note` is the service's watcher, `deliver` its task."""

    def __init__(
        self, service: RunService, receivers: Sequence[WebhookReceiver], pause: RetryDelay | None = None
    ) -> None:
        self._house = service
        self._pause = pause or retry_delay
        self.receivers = tuple(receivers)

    @classmethod
    def of(cls, service: RunService) -> "WebhookSender":
        """Return those of the service's configuration; ConfigError when one cannot be used."""
        settings, secret_store = service.container.settings, service.container.secret_store
        return cls(
            service, [WebhookReceiver.of(place, table, secret_store) for place, table in enumerate(settings.webhooks)]
        )

    def note(self, event: Event) -> None:
        """Queue an event for the receivers that want it."""
        found = webhook_events(event)
        for receiver in self.receivers if found else ():
            if found.intersection(receiver.table.events):
                try:
                    receiver.waiting.put_nowait(event)
                except asyncio.QueueFull:
                    _LOG.error("%s: %d wait to be told; %s is dropped", receiver.name, _MAX_QUEUE, event.kind)

    async def deliver(self) -> None:
        """Tell receivers until cancelled; return at once where there are none."""
        async with asyncio.TaskGroup() as group:
            for receiver in self.receivers:
                group.create_task(self._serve(receiver), name=receiver.name)

    async def rest(self, seconds: float) -> None:
        """Wait until the queues are empty, this long at most."""
        try:
            async with asyncio.timeout(seconds):
                for receiver in self.receivers:
                    await receiver.waiting.join()
        except TimeoutError:
            _LOG.warning("webhooks: %d were not told", sum(receiver.waiting.qsize() for receiver in self.receivers))

    async def _serve(self, receiver: WebhookReceiver) -> None:
        card = Card(receiver.name, timeout=receiver.table.timeout)
        async with aclosing(HttpClient(card, receiver.url, 0, {}, self._house.container.secret_store)) as client:
            while True:
                event = await receiver.waiting.get()
                try:
                    await self._tell(client, receiver, event)
                except Exception as error:  # noqa: BLE001 - a receiver's trouble, whatever it is, must not end the service
                    _LOG.error("%s: %s could not be told: %s", receiver.name, event.kind, type(error).__name__)
                finally:
                    receiver.waiting.task_done()

    async def _tell(self, client: HttpClient, receiver: WebhookReceiver, event: Event) -> None:
        try:
            await self._house.journal.flush()  # the row of a run that asks at once may not be stored yet
            served = await self._house.store.find(root_run_id(event.run))
        except JournalError:
            served = None  # told without what its row says
        if receiver.table.tenant is not None and (served is None or served.tenant != receiver.table.tenant):
            return
        for occasion in sorted(webhook_events(event).intersection(receiver.table.events)):
            whole = webhook_data(self._house, event, served, content=receiver.table.content)
            body = json.dumps(
                {
                    "type": occasion,
                    "timestamp": datetime.fromtimestamp(event.at, UTC)
                    .isoformat(timespec="milliseconds")
                    .replace("+00:00", "Z"),
                    "data": whole,
                }
            ).encode()
            await self._post(client, receiver, f"msg_{token_hex(12)}", body)

    async def _post(self, client: HttpClient, receiver: WebhookReceiver, name: str, body: bytes) -> None:
        for number in range(_MAX_ATTEMPTS):
            at = int(time())
            headers = {
                "content-type": "application/json",
                "webhook-id": name,
                "webhook-timestamp": str(at),
                "webhook-signature": sign_webhook(receiver.key, name, at, body),
            }
            wish = None
            try:
                async with client.ask("POST", receiver.url, headers, body) as answer:
                    status, wish = answer.status, retry_after(answer.headers)
            except WorkerError as error:
                _LOG.info("%s: %s: no answer (%s)", receiver.name, name, error.fault.kind)
                status = 0
            if 200 <= status < 300:
                _LOG.info("%s: %s delivered, attempt %d", receiver.name, name, number + 1)
                return
            if status and status not in _RETRIED_STATUSES:
                _LOG.warning("%s: %s refused (status %d)", receiver.name, name, status)
                return
            if number + 1 < _MAX_ATTEMPTS:
                await asyncio.sleep(self._pause(number, wish))
        _LOG.error("%s: %s given up after %d attempts", receiver.name, name, _MAX_ATTEMPTS)


def webhook_events(event: Event) -> frozenset[WebhookEvent]:
    """Return what receivers call this event."""
    match event:
        case QuestionAsked(asks=asks) if asks is not QuestionKind.TOOLS:
            return frozenset({WebhookEvent.QUESTION_ASKED})
        case RunFinished(cap=cap) if event.run == root_run_id(event.run):
            refused = cap is not None and cap not in _RUN_CAPS
            return frozenset({WebhookEvent.RUN_FINISHED, *([WebhookEvent.BUDGET_REFUSED] if refused else [])})
        case _:
            return frozenset()


def webhook_data(service: RunService, event: Event, served: ServedRun | None, *, content: bool) -> Mapping[str, object]:
    """Return the `data` of an event's webhook."""
    root = root_run_id(event.run)
    known = {"tenant": served.tenant, "key": served.key, "model": served.model} if served else {}
    told: dict[str, object] = {"run": root, **known}
    base = (service.settings.url or "").rstrip("/")
    match event:
        case QuestionAsked():
            told |= {
                "approval": f"{event.run}_{event.question}",
                "asks": str(event.asks),
                "worker": event.worker,
                "step": event.step,
                "expires": event.expires or None,
                "tokens": event.bound.tokens,
                "dollars": event.bound.dollars,
                "page": f"{base}/ui/approvals/{event.run}/{event.question}",
            }
            return told | ({"prompt": event.prompt} if content else {})
        case RunFinished():
            told |= {"status": str(event.status), "cap": event.cap, "fault": event.fault and str(event.fault)}
            told["page"] = f"{base}/ui/runs/{root}"
            return told | ({"why": event.why, "answer": event.answer} if content else {})
        case _:
            return told


def sign_webhook(key: bytes, name: str, at: int, body: bytes) -> str:
    """Return the signature of a message (Standard Webhooks, version 1)."""
    return "v1," + b64encode(hmac(key, f"{name}.{at}.".encode() + body, sha256).digest()).decode()


def retry_delay(number: int, retry_after: float | None) -> float:
    """Return the seconds to wait after attempt `number` (from 0); a receiver's Retry-After counts, within limits."""
    ours: float = min(_MAX_DELAY, 2.0 * 4**number) * random.uniform(0.75, 1.0)  # noqa: S311 - chance, no secret
    return ours if retry_after is None else min(_MAX_DELAY, max(ours, retry_after))


def _signing_key(secret: str, variable: str) -> bytes:
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        return b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except NotBase64:
        raise ConfigError(
            f"environment variable {variable} begins with {_SECRET_PREFIX}, but base64 does not follow"
        ) from None
