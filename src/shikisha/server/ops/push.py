"""Web push: tells the phones of people who may approve that something waits, through their browsers' push services.

Messages are sealed for one browser (RFC 8291) and signed with the server's VAPID key (RFC 8292). Invariants: noting an
event never waits and never fails, so a push service that is down delays no run; its message is tried a few times, then
logged and dropped, and `/ui/approvals` still lists what waits. A subscription goes to a named push service only, never
to an address inside this network, whatever its name resolves to; redirects are not followed, and responses are not
read. It belongs to a key: it is erased with the key, when the key may no longer approve, and when the service says that
it is gone. Without `content` no text of a task is in a message.
"""

import asyncio
import ipaddress
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from functools import partial
from time import time
from types import ModuleType
from urllib.parse import urlsplit

import aiohttp

from shikisha.config.container import Container
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError, JournalError, MissingExtra
from shikisha.core.events import Event, QuestionAsked, QuestionKind
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.text import one_line
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.push_subscriptions import PushSubscription
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.workers import http_client
from shikisha.workers.endpoint import address_problem, inside_problem, origin

_LOG = logging.getLogger(__name__)
_MAX_ENDPOINT = 2_000
_MAX_QUEUE = 1_000
_MAX_ATTEMPTS = 4
_ATTEMPT_SECONDS = 10.0
_AT_ONCE = 8  # messages under way
_MESSAGE_SECONDS = 3600  # that a push service keeps a message for a phone that is off
_TOKEN_SECONDS = 12 * 3600  # that a signature of ours holds; push services allow 24 hours
_GONE = frozenset({404, 410})
_RETRIED = frozenset({0, 408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class PushSettings:
    """Who we are to push services (`contact`, VAPID keys as base64url), and which of them may be called."""

    contact: str
    public_key: str
    private_key: str = field(repr=False)
    services: tuple[str, ...]
    content: bool

    def checked_endpoint(self, endpoint: str) -> str:
        """Return the endpoint that a browser named; ApiError (400) unless it is one of a known push service."""
        parts = urlsplit(endpoint if origin(endpoint) else "")
        host = parts.hostname or ""
        inside = host not in self.services and address_problem(host, inside_problem)
        plain = len(endpoint) <= _MAX_ENDPOINT and endpoint.isascii() and endpoint.isprintable() and "@" not in endpoint
        allowed = any(fnmatch(host, service) for service in self.services)
        secure = parts.scheme == "https" or (parts.scheme == "http" and host in self.services and _is_address(host))
        if inside or not (plain and allowed and secure):
            known = ", ".join(self.services)
            said = f"endpoint: expected an https:// address of a push service that [push] services names: {known}"
            raise ApiError(400, said, "unknown_push_service", param="subscription")
        return endpoint


def push_settings(container: Container) -> PushSettings | None:
    """Return how this server pushes; None where it is not configured. ConfigError for a key that is none."""
    table = container.settings.push
    if table is None:
        return None
    vapid, _ = _libraries()
    secret = container.secret_store.read(table.key_env)
    try:
        key = vapid.Vapid02.from_string(secret)
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        uncompressed = Encoding.X962, PublicFormat.UncompressedPoint
        public = key.public_key.public_bytes(*(uncompressed))
    except Exception as error:  # noqa: BLE001 - the library raises what its parts raise; none of it may show the key
        said = f"push: {table.key_env} holds no VAPID key ({type(error).__name__}): `shikisha init --vapid` makes one"
        raise ConfigError(said) from None
    return PushSettings(table.contact, _base64url(public), secret, table.services, table.content)


def new_vapid_key() -> str:
    """Return a fresh VAPID private key, as base64url."""
    vapid, _ = _libraries()
    made = vapid.Vapid02()
    made.generate_keys()
    return _base64url(made.private_key.private_numbers().private_value.to_bytes(32, "big"))


class PushSender:
    """Tells phones; `note` is the service's watcher, `deliver` its task."""

    def __init__(
        self, service: RunService, settings: PushSettings | None, pause: Callable[[int], float] | None = None
    ) -> None:
        self._service = service
        self.settings = settings
        self._pause = pause or (lambda number: 2.0 * 4**number)
        self.waiting: asyncio.Queue[QuestionAsked] = asyncio.Queue(_MAX_QUEUE)
        self._room = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    def of(cls, service: RunService) -> "PushSender":
        """Return that of the service's configuration; ConfigError when it cannot be used."""
        return cls(service, push_settings(service.container))

    def note(self, event: Event) -> None:
        """Queue a question to a person."""
        if isinstance(event, QuestionAsked) and event.asks is not QuestionKind.TOOLS:
            try:
                self.waiting.put_nowait(event)
            except asyncio.QueueFull:
                _LOG.error("push: %d questions wait to be told; one is dropped", _MAX_QUEUE)

    async def deliver(self) -> None:
        """Tell phones until cancelled; return at once where push is not configured."""
        if self.settings is None:
            return
        named = self.settings.checked_endpoint  # again: a service may have left the configuration since
        async with (
            http_client.open_session(lambda url: named(str(url)), PublicResolver(self.settings.services)) as client,
            asyncio.TaskGroup() as group,
        ):
            while True:
                asked = await self.waiting.get()
                try:
                    await self._tell(client, group, asked)
                except Exception as error:  # noqa: BLE001 - no trouble with a phone may end the service
                    _LOG.error("push: a question could not be told: %s", type(error).__name__)
                finally:
                    self.waiting.task_done()

    async def _tell(self, client: aiohttp.ClientSession, group: asyncio.TaskGroup, asked: QuestionAsked) -> None:
        try:
            await self._service.journal.flush()  # the row of a run that asks at once may not be stored yet
            served = await self._service.store.find(root_run_id(asked.run))
        except JournalError:
            served = None
        if served is None or self.settings is None:
            return
        message = push_message(asked, content=self.settings.content)
        for each in await self._service.subscriptions.for_tenant(served.tenant):
            await self._room.acquire()
            group.create_task(self._send(client, each, message))

    async def _send(self, client: aiohttp.ClientSession, to: PushSubscription, message: bytes) -> None:
        try:
            for number in range(_MAX_ATTEMPTS):
                status = await self._post(client, to, message)
                if 200 <= status < 300:
                    return
                if status in _GONE:
                    await self._service.subscriptions.drop(to.hash)
                    _LOG.info("push: a device of key %s is gone, and forgotten", to.key)
                    return
                if status not in _RETRIED:
                    break
                if number + 1 < _MAX_ATTEMPTS:
                    await asyncio.sleep(self._pause(number))
            host = urlsplit(to.endpoint).hostname
            _LOG.error("push: %s could not be told (status %d, 0: no answer); a device of key %s", host, status, to.key)
        except Exception as error:  # noqa: BLE001 - a subscription that cannot be sealed for, a store that is away
            _LOG.error("push: a device of key %s could not be told: %s", to.key, type(error).__name__)
        finally:
            self._room.release()

    async def _post(self, client: aiohttp.ClientSession, to: PushSubscription, message: bytes) -> int:
        """Make one attempt; return the status, 0 for no response."""
        assert self.settings is not None  # noqa: S101 - `deliver` has looked
        body, headers = await asyncio.to_thread(partial(seal_message, self.settings, to, message))
        try:
            async with (
                asyncio.timeout(_ATTEMPT_SECONDS),
                client.post(to.endpoint, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _LOG.info("push: %s: no answer (%s)", urlsplit(to.endpoint).hostname, type(error).__name__)
            return 0


class PublicResolver(http_client.ScreeningResolver):
    """A resolver that finds no address inside this network but those that the configuration spells out."""

    def __init__(self, services: Sequence[str]) -> None:
        super().__init__(lambda address: "" if address in services else inside_problem(address))


def push_message(asked: QuestionAsked, *, content: bool) -> bytes:
    """Return what a phone is told of a question: who asks, what it may cost, where the answer is given."""
    named = one_line(asked.worker, 60) or "An answer"
    what = {
        QuestionKind.APPROVE: f"May {named} be called?",
        QuestionKind.REVIEW: "May this be the answer?",
    }.get(asked.asks, "You are asked")
    dollars = asked.bound.dollars
    cost = "what it costs is unknown" if dollars is None else f"at most {format_dollars(dollars)}"
    body = one_line(asked.prompt, 200) if content else ""
    shown = {
        "title": what,
        "body": f"{cost}. {body}".rstrip()
        if asked.asks is QuestionKind.APPROVE
        else body or "Something waits for you.",
        "page": f"/ui/approvals/{asked.run}/{asked.question}",
        "tag": asked.question,
    }
    return json.dumps(shown).encode()


def seal_message(settings: PushSettings, to: PushSubscription, message: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a message sealed for one browser, and the headers that sign it."""
    from cryptography.hazmat.primitives.asymmetric import ec

    vapid, http_ece = _libraries()
    body = http_ece.encrypt(
        message, private_key=ec.generate_private_key(ec.SECP256R1()), dh=to.p256dh, auth_secret=to.auth
    )
    parts = urlsplit(to.endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "sub": settings.contact,
        "exp": int(time()) + _TOKEN_SECONDS,
    }
    signed = vapid.Vapid02.from_string(settings.private_key).sign(claims)
    kind = {"Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream"}
    return body, {**signed, **kind, "TTL": str(_MESSAGE_SECONDS), "Urgency": "high"}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _libraries() -> tuple[ModuleType, ModuleType]:
    """Return py_vapid and http_ece, imported where push is configured."""
    try:
        import http_ece
        import py_vapid
    except ImportError:
        raise MissingExtra("phone", "push") from None
    return py_vapid, http_ece
