"""Passkeys on logins and approvals, and links that log a device in: what counts, and every way in which it must not."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
from authenticator import Authenticator
from serving import At, served
from sqlalchemy import func, insert, select
from test_pages import begin, csrf

from shikisha.server.keys import Key, KeyManager
from shikisha.server.keys.key import KeyScope
from shikisha.server.keys.key_tables import CODES
from shikisha.server.keys.manager import WrongKeyLimiter
from shikisha.server.keys.passkeys import (
    CHALLENGE_SECONDS,
    LINK_SECONDS,
    CodePurpose,
    Passkeys,
    PasskeySite,
    passkey_site,
)

pytest.importorskip("webauthn", reason="needs the extra phone")
CONFIG = """
pool = ["solo", "mails", "looks"]
[server]
port = 0
[workers.solo]
kind = "scripted"
answers = "42"
[workers.mails]
kind = "scripted"
answers = "sent"
approval = "always"
[workers.looks]
kind = "scripted"
answers = "seen"
approval = "always"
effect = "read"
"""
MAILS, LOOKS = 1, 2


@dataclass
class Phone:
    """A logged-in browser with a software passkey; its forms bear the login's token."""

    client: httpx2.AsyncClient
    passkey: Authenticator
    token: str = ""

    async def post(self, way: str, **fields: str) -> httpx2.Response:
        """Send a form."""
        return await self.client.post(way, data={"csrf": self.token, **fields})

    async def options(self, way: str, **fields: str) -> Mapping[str, object]:
        """Send a form, and return what a script gets."""
        answer = await self.post(way, **fields)
        assert answer.status_code == 200, answer.text
        found: Mapping[str, object] = answer.json()
        return found

    async def enroll(self, passkey: Authenticator | None = None, word: str = "") -> httpx2.Response:
        """Add the passkey."""
        options = await self.options("/ui/device/passkeys/options", passkey=word)
        made = (passkey or self.passkey).make(options)
        return await self.post("/ui/device/passkeys", passkey=made, name="phone")


@asynccontextmanager
async def phone(at: At, key: str = "") -> AsyncIterator[Phone]:
    """A phone at `localhost`, where browsers allow passkeys without TLS."""
    url = at.url.replace("127.0.0.1", "localhost")
    async with httpx2.AsyncClient(base_url=url, timeout=30.0) as client:
        assert (await client.post("/ui/login", data={"key": key or at.key})).status_code == 303
        yield Phone(client, Authenticator(url, "localhost"), await csrf(client))


async def asked(at: At, *workers: int) -> str:
    """Begin a run that waits, and return where its question is answered."""
    assert at.service is not None
    run = await begin(at, *workers)
    (question,) = (await at.service.read_run(run)).open_questions
    return f"/ui/approvals/{run}/{question.question}"


async def test_a_yes_with_consequences_counts_only_with_the_passkey_of_who_has_one(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, phone(at) as device:
        assert at.service is not None
        first = await asked(at, MAILS)
        assert (await device.post(first, decision="yes")).status_code == 303  # there is no passkey yet
        assert (await device.enroll()).status_code == 200
        way = await asked(at, MAILS)
        assert "with your passkey" in (await device.client.get("/ui/approvals")).text
        refused = await device.post(way, decision="yes")
        assert refused.status_code == 403
        assert "needs your passkey" in refused.text
        question, run = way.rpartition("/")[2], way.split("/")[3]
        headers = {"Authorization": f"Bearer {at.key}"}
        api = await device.client.post(f"/approvals/{run}_{question}", json={"approved": True}, headers=headers)
        assert (api.status_code, api.json()["error"]["code"]) == (403, "passkey_required")  # whichever door
        signed = device.passkey.sign(await device.options(f"{way}/passkey"))
        assert (await device.post(way, decision="yes", passkey=signed)).status_code == 303
        async for _ in at.service.listen(run):
            pass
        told = await at.service.read_run(run)
        assert told.answer == "sent"
        assert told.answers[question].via == "passkey"
        assert (await device.post(await asked(at, LOOKS), decision="yes")).status_code == 303  # free, and only reads
        assert (await device.post(await asked(at, MAILS), decision="no")).status_code == 303  # a no needs none


async def test_a_word_of_a_passkey_fits_one_approval_once_and_no_other(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, phone(at) as device:
        await device.enroll()
        one, other = await asked(at, MAILS), await asked(at, MAILS)
        for_one = device.passkey.sign(await device.options(f"{one}/passkey"))
        wrong = await device.post(other, decision="yes", passkey=for_one)
        assert wrong.status_code == 403
        assert "for another action" in wrong.text
        again = await device.post(one, decision="yes", passkey=for_one)
        assert again.status_code == 403  # the challenge was taken, whatever came of it
        assert "used before" in again.text
        login = await device.client.post("/ui/login/passkey/options")
        for_login = device.passkey.sign(login.json())
        assert "used before" in (await device.post(one, decision="yes", passkey=for_login)).text
        signed = device.passkey.sign(await device.options(f"{one}/passkey"))
        assert (await device.post(one, decision="yes", passkey=signed)).status_code == 303
        assert (await device.post(one, decision="yes", passkey=signed)).status_code == 409  # answered


def of_another_page(made: Authenticator) -> None:
    made.origin = "http://localhost.evil.example"


def of_another_host(made: Authenticator) -> None:
    made.host = "evil.example"


def unverified(made: Authenticator) -> None:
    made.verified = False


def copied(made: Authenticator) -> None:
    made.count = 0


def unknown(made: Authenticator) -> None:
    made.credential = b"another passkey"


def forged(made: Authenticator) -> None:
    made.key = Authenticator("", "").key


ATTACKS: list[tuple[Callable[[Authenticator], None], str]] = [
    (of_another_page, "page of another host"),
    (of_another_host, "belongs to another host"),
    (unverified, "did not check who you are"),
    (copied, "counter went back"),
    (unknown, "not one of this key"),
    (forged, "signature is wrong"),
]
NO_PASSKEYS = ("", "x", "[]", "null", '{"id": 1, "response": {"clientDataJSON": "e30"}}', "[" * 9000, "x" * 20_000)


async def test_a_passkey_that_does_not_fit_is_refused_in_words(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, phone(at) as device:
        device.passkey.count = 7
        await device.enroll()
        way = await asked(at, MAILS)
        for attack, said in ATTACKS:
            options, made = await device.options(f"{way}/passkey"), replace(device.passkey)
            attack(made)
            answer = await device.post(way, decision="yes", passkey=made.sign(options))
            assert answer.status_code == 403, said
            assert said in answer.text
        for text in NO_PASSKEYS:
            for way in ("/ui/login/passkey", "/ui/device/passkeys"):
                answer = await device.post(way, passkey=text)
                assert answer.status_code == 400, text[:20]
                assert "passkey: expected" in answer.json()["error"]["message"]


async def test_another_passkey_is_added_or_removed_only_on_the_word_of_one(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, phone(at) as device:
        await device.enroll()
        second = Authenticator(device.passkey.origin, "localhost", credential=b"second")
        assert (await device.post("/ui/device/passkeys/options", passkey="")).status_code == 400  # a stolen cookie
        word = device.passkey.sign(await device.options("/ui/device/passkeys/manage"))
        assert (await device.enroll(second, word)).status_code == 200
        named = json.loads(second.make({"challenge": ""}))["id"]
        assert (await device.post("/ui/device/passkeys/remove", id=named)).status_code == 400
        word = second.sign(await device.options("/ui/device/passkeys/manage"))
        assert (await device.post("/ui/device/passkeys/remove", id=named, passkey=word)).status_code == 200
        assert "phone" in (await device.client.get("/ui/device")).text


async def test_a_passkey_logs_its_holder_in_until_its_key_is_revoked(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        issued = await at.issue(KeyScope.APPROVE, KeyScope.READ)
        async with phone(at, issued.secret) as device:
            await device.enroll()
            device.client.cookies.clear()
            word = device.passkey.sign((await device.client.post("/ui/login/passkey/options")).json())
            answer = await device.client.post("/ui/login/passkey", data={"passkey": word})
            assert answer.status_code == 200
            assert "HttpOnly" in answer.headers["set-cookie"]
            assert (await device.client.get("/ui/approvals")).status_code == 200
            device.client.cookies.clear()
            assert (await device.client.post("/ui/login/passkey", data={"passkey": word})).status_code == 403  # again
            word = device.passkey.sign((await device.client.post("/ui/login/passkey/options")).json())
            assert at.service is not None
            await at.service.keys.revoke(issued.key.id, "tests")
            assert await at.service.passkeys.of_key(issued.key.id) == []  # erased with the key
            assert (await device.client.post("/ui/login/passkey", data={"passkey": word})).status_code == 403


async def test_a_link_logs_one_device_in_once_and_get_does_not_use_it_up(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, httpx2.AsyncClient(base_url=at.url) as client:
        assert at.service is not None
        key = await at.service.keys.find(at.key)
        assert isinstance(key, Key)
        token = await at.service.passkeys.open_link(key, "tests")
        assert (await client.get("/ui/link")).status_code == 200
        answer = await client.post("/ui/link", data={"token": token})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/approvals")
        again = await client.post("/ui/link", data={"token": token})
        assert again.status_code == 401
        assert "used before" in again.text
        assert "set-cookie" not in again.headers
        acts = [act.action for act in await at.service.keys.acts()]
        assert acts.count("link.used") == 1


async def test_failed_logins_are_counted_by_address_and_lock_nobody_else_out(tmp_path: Path) -> None:
    """Behind a proxy every connection is the proxy's; whatever a stranger sends, the logins of others go through."""

    def of(address: str) -> dict[str, str]:
        return {"X-Forwarded-For": address}

    async with served(tmp_path, CONFIG) as at, phone(at) as device:
        assert at.service is not None
        at.service.passkeys.login_limiter = WrongKeyLimiter(lambda: 0.0)
        await device.enroll()
        client = device.client
        client.cookies.clear()
        forged = Authenticator(device.passkey.origin, "localhost")  # it names the owner's passkey, and is another one
        statuses = []
        for number in range(25):  # each with another beginning of the list, which is the stranger's own word
            word = forged.sign((await client.post("/ui/login/passkey/options")).json())
            headers = of(f"198.51.100.{number}, 203.0.113.7")
            answer = await client.post("/ui/login/passkey", data={"passkey": word}, headers=headers)
            statuses.append(answer.status_code)
        assert statuses == [403] * 20 + [429] * 5
        assert (await client.post("/ui/link", data={"token": "x"}, headers=of("203.0.113.7"))).status_code == 429
        assert (await client.post("/ui/link", data={"token": "x"}, headers=of("203.0.113.8"))).status_code == 401
        for address in ("203.0.113.8", "203.0.113.7"):  # the owner, from elsewhere, and even from the same address
            word = device.passkey.sign((await client.post("/ui/login/passkey/options")).json())
            answer = await client.post("/ui/login/passkey", data={"passkey": word}, headers=of(address))
            assert answer.status_code == 200
        key = await at.service.keys.find(at.key)
        assert isinstance(key, Key)
        for _ in range(25):  # who succeeds is never limited
            token = await at.service.passkeys.open_link(key, "tests")
            assert (await client.post("/ui/link", data={"token": token}, headers=of("203.0.113.9"))).status_code == 303
        assert (await client.post("/ui/link", data={"token": "x"}, headers=of("203.0.113.9"))).status_code == 401


async def test_open_challenges_of_strangers_keep_nobody_from_logging_in(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, phone(at) as device:
        assert at.service is not None
        await device.enroll()
        device.client.cookies.clear()
        row = {
            "purpose": CodePurpose.LOGIN,
            "key": "",
            "site": "x",
            "nonce": b"",
            "expires": at.service.keys.now() + 50,
        }
        rows = [{**row, "hash": f"stranger {number}"} for number in range(1000)]  # the most that are kept
        await at.service.keys.database.write(lambda connection: connection.execute(insert(CODES), rows))
        word = device.passkey.sign((await device.client.post("/ui/login/passkey/options")).json())
        for _ in range(30):
            assert (await device.client.post("/ui/login/passkey/options")).status_code == 200
        assert (await device.client.post("/ui/login/passkey", data={"passkey": word})).status_code == 200
        left = select(func.count()).select_from(CODES)
        assert await at.service.keys.database.query(lambda found: found.execute(left).scalar_one()) == 999


async def test_links_and_challenges_count_for_minutes(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert at.service is not None
        now = at.service.keys.now()
        keys = KeyManager(at.service.journal, now=lambda: now)
        passkeys, key = Passkeys(keys), await keys.find(at.key)
        assert isinstance(key, Key)
        token, site = await passkeys.open_link(key, "tests"), PasskeySite("localhost", "http://localhost")
        made = Authenticator(site.origin, site.host)
        options = await passkeys.registration_options(key, site, "")
        now += CHALLENGE_SECONDS + 1
        with pytest.raises(Exception, match="too late"):
            await passkeys.register(key, made.make(options), "late")
        now += LINK_SECONDS
        with pytest.raises(Exception, match="its time is over"):
            await passkeys.take_link(token)


async def test_who_must_have_a_passkey_is_told_to_add_one(tmp_path: Path) -> None:
    strict = CONFIG.replace("port = 0", 'port = 0\npasskeys = "always"')
    async with served(tmp_path, strict) as at, phone(at) as device:
        way = await asked(at, MAILS)
        assert (await device.post(way, decision="yes")).status_code == 403
        answer = await device.post(f"{way}/passkey")
        assert answer.status_code == 409
        assert "no passkey for localhost yet: add one" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("url", "host", "found"),
    [
        (None, "localhost:8100", "http://localhost:8100"),
        (None, "192.168.1.4:8100", "need HTTPS"),
        (None, "evil.example", "need HTTPS"),
        ("https://10.0.0.7", "10.0.0.7", "need HTTPS"),
        ("http://ai.example.com", "ai.example.com", "need HTTPS"),
        ("https://ai.example.com", "ai.example.com", "https://ai.example.com"),
        ("https://ai.example.com:8443", "ai.example.com:8443", "https://ai.example.com:8443"),
        ("https://ai.example.com", "evil.example", "belong to https://ai.example.com"),
        ("https://ai.example.com", "ai.example.com:x", "belong to https://ai.example.com"),
    ],
)
def test_passkeys_belong_to_the_configured_address_and_never_to_a_foreign_host_header(
    url: str | None, host: str, found: str
) -> None:
    site = passkey_site(url, host)
    assert found in (site if isinstance(site, str) else site.origin)
