"""Every route × {no key, wrong, expired, revoked, another tenant's, low role, admin}; many wrong keys.

The table is in `doors_table`: a route without a row fails.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time

import httpx2
import pytest
from doors_table import API, PAGES, Row
from fastapi.routing import iter_route_contexts
from serving import At, served

from shikisha.server.app import create_app
from shikisha.server.keys import IssuedKey, KeySpec, LoginSessions
from shikisha.server.keys.key import KeyScope
from shikisha.server.keys.manager import WrongKeyLimiter, csrf_token
from shikisha.server.pages.login import LOGIN_COOKIE
from shikisha.server.pages.templates import STATIC_FOLDER

CONFIG = """
conductor = "fixed:single?worker=a"
[server]
port = 0
[workers.a]
kind = "scripted"
answers = "42"
[workers.asks]
kind = "scripted"
approval = "always"
answers = "allowed"
[conductors.asking]
kind = "fixed"
topology = "single"
roles = { worker = "asks" }
"""
CALLERS = ("nobody", "wrong", "expired", "revoked", "other", "low", "admin")
WRONG = "sk-shikisha-aaaaaaaaaa-" + "x" * 43


@dataclass(slots=True)
class World:
    """A server with keys of every kind, and things that belong to the tenant `default`."""

    at: At
    keys: dict[str, str] = field(default_factory=dict)
    low: dict[KeyScope, str] = field(default_factory=dict)
    things: dict[str, str] = field(default_factory=dict)

    async def issue(self, tenant: str, *scopes: KeyScope, expires: float | None = None) -> IssuedKey:
        assert self.at.service is not None
        return await self.at.service.keys.issue(KeySpec("k", tenant, frozenset(scopes), expires=expires), "tests")

    def key(self, caller: str, row: Row) -> str:
        """The key that a caller presents; "" for none."""
        return self.low[row.has] if caller == "low" else self.keys[caller]

    def forgive(self) -> None:
        """Forget the wrong keys, which come by the hundred here."""
        assert self.at.service is not None
        self.at.service.keys.wrong_keys = WrongKeyLimiter()
        self.at.service.passkeys.login_limiter = WrongKeyLimiter()

    async def post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        async with self.at.http() as client:
            answer = await client.post(path, json=body)
            told = answer.json()
            assert answer.is_success, told
            assert isinstance(told, dict)
            return told


async def build(at: At) -> World:
    """Issue the keys and begin what routes are asked for."""
    world, every = World(at), (KeyScope.RUN, KeyScope.READ, KeyScope.APPROVE)
    expired = await world.issue("default", *every, expires=time() + 60)
    revoked = await world.issue("default", *every)
    other = await world.issue("other", *every)
    keys = {"expired": expired, "revoked": revoked, "other": other}
    world.keys = {"nobody": "", "wrong": WRONG, **{name: made.secret for name, made in keys.items()}, "admin": at.key}
    world.low = {scope: (await world.issue("default", scope)).secret for scope in every}
    assert at.service is not None
    await at.service.keys.revoke(revoked.key.id, "tests")
    await at.service.keys.change(expired.key.id, lambda key: replace(key, expires=time() - 1), "tests")
    runs = [str((await world.post("/runs", {"prompt": "hello"}))["id"]) for _ in range(2)]
    waiting = str((await world.post("/runs", {"prompt": "hello", "conductor": "asking"}))["id"])
    responses = [
        str((await world.post("/v1/responses", {"model": "shikisha", "input": "x", **more}))["id"])
        for more in ({}, {"background": True}, {})
    ]
    chat = {"model": "shikisha", "messages": [{"role": "user", "content": "x"}], "store": True}
    asked = (await at.service.read_run(waiting)).open_questions[0].question
    async with at.http() as client:
        approvals = (await client.get("/approvals")).json()
    world.things = {
        "run": runs[0],
        "erased": runs[1],
        "waiting": waiting,
        "question": asked,
        "approval": approvals["data"][0]["id"],
        **dict(zip(("response", "background", "forgotten"), responses, strict=True)),
        "completion": str((await world.post("/v1/chat/completions", chat))["id"]),
        "key": (await world.issue("default", KeyScope.RUN)).key.id,
        "paged": (await world.issue("default", KeyScope.RUN)).key.id,
        "model": "shikisha",
        "version": "1",
        "file": min(path.name for path in STATIC_FOLDER.iterdir()),
        "plan": json.dumps({"steps": [{"subtask": "say it", "worker": 0, "access": []}]}),
    }
    return world


async def routes(at: At) -> set[tuple[str, str]]:
    """Every method and path of the application; its pages are imported with the first request for one."""
    assert at.service is not None
    app = create_app(at.service)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=at.url) as client:
        await client.get("/ui/")
    found = iter_route_contexts(app.routes)
    return {(method, str(route.path)) for route in found for method in (route.methods or ()) if method != "HEAD"}


def filled(text: str, things: Mapping[str, str], fill: Mapping[str, str]) -> str:
    """A path with its names filled in."""
    return re.sub(r"\{([^}]+)\}", lambda found: things[fill[found[1]]], text)


def body(row: Row, things: Mapping[str, str]) -> dict[str, object] | None:
    """A body with its names filled in."""
    if row.body is None:
        return None
    text = re.sub(r'"\{(\w+)\}"', lambda found: json.dumps(things[found[1]]), json.dumps(row.body))
    made = json.loads(text)
    assert isinstance(made, dict)
    return made


async def status(client: httpx2.AsyncClient, method: str, path: str, **sent: object) -> int:
    """The status of an answer, whose body is not waited for."""
    request = client.build_request(method, path, **sent)  # type: ignore[arg-type]  # what the table says
    answer = await client.send(request, stream=True)
    await answer.aclose()
    return answer.status_code


async def test_no_route_lacks_a_row_and_no_row_a_route(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert await routes(at) == {*API, *PAGES}


async def test_every_route_answers_every_caller_as_the_table_says(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http(None) as client:
        world = await build(at)
        found = {}
        for (method, path), row in API.items():
            world.forgive()
            where, sent = filled(path, world.things, row.fill), body(row, world.things)
            for caller in CALLERS:
                key = world.key(caller, row)
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                found[method, path, caller] = await status(client, method, where, json=sent, headers=headers)
        assert found == wanted(API)


async def test_every_page_answers_every_login_as_the_table_says(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http(None) as client:
        world = await build(at)
        found = {}
        for (method, path), row in PAGES.items():
            world.forgive()
            where = filled(path, world.things, row.fill)
            for caller in CALLERS:
                token = await login(world, caller, row)
                things = {**world.things, "secret": world.key(caller, row)}
                form = {**(body(row, things) or {}), "csrf": csrf_token(token)} if method == "POST" else None
                headers = {"Cookie": f"{LOGIN_COOKIE}={token}"} if token else {}
                found[method, path, caller] = await status(client, method, where, data=form, headers=headers)
                client.cookies.clear()
        assert found == wanted(PAGES)


async def login(world: World, caller: str, row: Row) -> str:
    """The cookie of a caller; a wrong one for a wrong key."""
    assert world.at.service is not None
    keeper = world.at.service.keys
    if caller in {"nobody", "wrong"}:
        return "" if caller == "nobody" else "x" * 43
    own_id = world.key(caller, row).split("-")[2]
    key = await keeper.get(own_id)
    assert key is not None
    return (await LoginSessions(keeper).open_session(key)).token


def wanted(table: Mapping[tuple[str, str], Row]) -> dict[tuple[str, str, str], int]:
    """The table as cells."""
    return {
        (*route, caller): cell
        for route, row in table.items()
        for caller, cell in zip(CALLERS, (*row.shut, row.other, row.low, row.admin), strict=True)
    }


REFUSED: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "no key was given"),
    ({"Authorization": "Bearer"}, "no key was given"),
    ({"Authorization": "Basic YTpi"}, "no key was given"),
    ({"Authorization": f"Bearer {WRONG}"}, "unknown to this server"),
    ({"x-api-key": "x" * 5000}, "unknown to this server"),
    ({"Authorization": "Bearer schlüssel-schlüssel"}, "unknown to this server"),
)


async def test_a_refusal_says_why_and_never_repeats_the_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path, CONFIG) as at, at.http(None) as client:
        for header, said in REFUSED:
            sent = {name.encode(): value.encode() for name, value in header.items()}
            answer = await client.get("/keys", headers=sent)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer realm=")
            assert said in answer.json()["error"]["message"]
            assert answer.json()["error"]["type"] == "authentication_error"
            for secret in [value.rpartition(" ")[2] for value in header.values() if len(value) > 12]:
                assert secret not in answer.text + str(answer.headers) + caplog.text


async def test_both_headers_open_the_door(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http(None) as client:
        for header in ({"Authorization": f"bearer {at.key}"}, {"x-api-key": at.key}):
            assert (await client.get("/keys", headers=header)).status_code == 200
        assert (await client.get(f"/keys?api_key={at.key}&key={at.key}")).status_code == 401


async def test_many_wrong_keys_are_told_to_wait_and_a_right_one_is_let_in(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http(WRONG) as client:
        assert at.service is not None
        at.service.keys.wrong_keys = WrongKeyLimiter(lambda: 0.0)
        answers = [await client.get("/keys") for _ in range(25)]
        assert [answer.status_code for answer in answers] == [401] * 20 + [429] * 5
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await client.get("/keys", headers={"Authorization": f"Bearer {at.key}"})).status_code == 200
