"""The pages of a real server, asked without a browser: who may see what, what forms need, what every answer bears."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from serving import At, served

from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.server.http.request import RequestOptions
from shikisha.server.keys import Key
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.authorization import Api, RequestedRun, confirmed_plan_request

CONFIG = """
[server]
port = 0
[workers.solo]
kind = "scripted"
answers = "42"
[workers.asks]
kind = "scripted"
approval = "always"
"""
STATIC = {"page.css", "htmx.min.js", "sse.min.js", "phone.js", "icon-192.png"}
WAYS = (
    "overview", "sessions", "runs", "queue", "try", "approvals", "workers", "compare", "compare/policy", "keys",
    "device",
)  # fmt: skip
CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
INLINE = re.compile(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=\"/ui/static/)|javascript:", re.IGNORECASE)


@asynccontextmanager
async def browsing(at: At, key: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the cookie of a login."""
    async with httpx2.AsyncClient(base_url=at.url, timeout=30.0) as client:
        answer = await client.post("/ui/login", data={"key": key or at.key})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/overview")
        yield client


async def begin(at: At, *workers: int, key: str = "", prompt: str = "What?") -> str:
    """Begin a run, and return its id once it has ended or waits."""
    assert at.service is not None
    found = await at.service.keys.find(key or at.key)
    assert isinstance(found, Key)
    plan = Plan(tuple(Step(f"part {index}", worker) for index, worker in enumerate(workers)))
    wish = RequestedRun(
        "shikisha", Task(prompt), Api.PAGE, RequestOptions({}), confirmed_plan_request(plan), detached=True
    )
    live = await at.service.begin(at.service.authorizer.authorize(wish, found.principal()))
    async for _ in at.service.listen(live.run):
        pass
    await at.service.journal.flush()
    return live.run


async def csrf(client: httpx2.AsyncClient, way: str = "/ui/runs") -> str:
    """The token of a login's forms."""
    found = CSRF.search((await client.get(way)).text)
    assert found is not None
    return found[1]


async def test_whoever_is_logged_out_is_led_to_the_login(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, httpx2.AsyncClient(base_url=at.url) as client:
        for way in (
            "/",
            "/ui",
            *(f"/ui/{way}" for way in WAYS),
            "/ui/runs/x",
            "/ui/approvals/x/y",
            "/ui/runs/x/live",
        ):
            answer = await client.get(way, follow_redirects=True)
            assert (answer.status_code, answer.url.path) == (200, "/ui/login"), way


async def test_a_wrong_key_opens_nothing_and_is_not_repeated(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, httpx2.AsyncClient(base_url=at.url) as client:
        answer = await client.post("/ui/login", data={"key": "sk-shikisha-wrong-and-secret"})
        assert answer.status_code == 401
        assert "wrong-and-secret" not in answer.text
        assert "set-cookie" not in answer.headers
        assert (await client.post("/ui/login", data={"key": ""})).status_code == 400


async def test_the_cookie_is_for_the_pages_only_and_for_no_script_and_no_other_site(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, httpx2.AsyncClient(base_url=at.url) as client:
        cookie = (await client.post("/ui/login", data={"key": at.key})).headers["set-cookie"]
        assert {"HttpOnly", "Path=/ui", "SameSite=strict"} <= set(cookie.split("; "))
        assert at.key not in cookie
        assert (await client.get("/v1/models")).status_code == 401  # it opens no door of the API


async def test_every_page_forbids_what_it_does_not_need_and_has_nothing_inline(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run, waits = await begin(at, 0, 0), await begin(at, 1)
        ways = [
            *WAYS,
            f"runs/{run}",
            f"runs/{run}/journal",
            f"compare?left={run}&right={waits}",
            "runs/no-such-run",
        ]
        for way in ways:
            answer = await client.get(f"/ui/{way}")
            assert answer.status_code == (404 if "no-such" in way else 200), way
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            assert INLINE.findall(answer.text) == [], way
            assert re.findall(r'(?:src|href|action)="(?!/ui|#|data:,)[^"]*', answer.text) == [], way


async def test_files_of_the_pages_are_kept_by_their_content_and_nothing_else_is_found(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, httpx2.AsyncClient(base_url=at.url) as client:
        page = (await client.get("/ui/login")).text
        found = re.findall(r'"(/ui/static/[^"]+)"', page)
        assert {way.rpartition("/")[2] for way in found} == STATIC
        for way in found:
            assert "immutable" in (await client.get(way)).headers["cache-control"]
        for way in ("/ui/static/x/..%2Frendering.py", "/ui/static/x/rendering.py", "/ui/static/x/%2e%2e/login.py"):
            assert (await client.get(way)).status_code == 404


FORMS = ("logout", "try", "try/perform", "keys", "keys/k/revoke", "keys/k/rotate", "keys/k/caps")


async def test_no_form_counts_without_the_token_of_its_own_login(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client, browsing(at) as other:
        run = await begin(at, 0)
        for way in (*FORMS, *(f"runs/{run}/{name}" for name in ("cancel", "feedback", "replay")), f"approvals/{run}/q"):
            for token in ("", "0" * 64, await csrf(other)):
                answer = await client.post(f"/ui/{way}", data={"csrf": token, "prompt": "x", "decision": "yes"})
                assert answer.status_code == 403, way
        assert (await client.get("/ui/runs")).status_code == 200


async def test_another_tenants_runs_and_questions_are_not_there(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        theirs = await at.issue(KeyScope.RUN, KeyScope.READ, KeyScope.APPROVE, tenant="other")
        run = await begin(at, 1, prompt="A secret of the service")
        async with browsing(at, theirs.secret) as client:
            for way in (
                *WAYS,
                f"runs/{run}",
                f"runs/{run}/journal",
                f"runs/{run}/live",
                f"runs/{run}/replay",
                f"queue?run={run}",
                f"compare?left={run}&right={run}",
            ):
                answer = await client.get(f"/ui/{way}")
                assert answer.status_code == (404 if run in way else 200), way
                assert "secret of the service" not in answer.text
            token = await csrf(client)
            for way in (*(f"runs/{run}/{name}" for name in ("cancel", "feedback", "replay")), f"approvals/{run}/q"):
                assert (await client.post(f"/ui/{way}", data={"csrf": token})).status_code == 404, way


async def test_an_event_s_number_that_is_none_is_passed_over(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run = await begin(at, 0)
        for number in ("9" * 5_000, "-1", "x"):
            async with client.stream("GET", f"/ui/runs/{run}/live", headers={"Last-Event-ID": number}) as answer:
                assert answer.status_code == 200


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        (KeyScope.READ, ["approvals", "queue", "try"]),
        (KeyScope.RUN, ["approvals"]),
        (KeyScope.APPROVE, ["overview", "sessions", "runs", "queue", "try", "workers", "compare", "compare/policy"]),
    ],
)
async def test_a_key_sees_what_its_scopes_allow(tmp_path: Path, scope: KeyScope, refused: list[str]) -> None:
    async with served(tmp_path, CONFIG) as at:
        issued = await at.issue(scope)
        async with browsing(at, issued.secret) as client:
            found = [way for way in WAYS if (await client.get(f"/ui/{way}")).status_code == 403]
            assert sorted(found) == sorted(refused)
            form = {"csrf": await csrf(client, "/ui/keys"), "name": "mine", "scopes": "admin"}
            assert (await client.post("/ui/keys", data=form)).status_code == 403


async def test_a_yes_goes_on_with_the_run_and_a_second_one_finds_nothing_open(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, 1)
        (asked,) = (await at.service.read_run(run)).open_questions
        form = {"csrf": await csrf(client), "decision": "yes", "remark": "go <on>"}
        way = f"/ui/approvals/{run}/{asked.question}"
        assert (await client.post(way, data={**form, "decision": "perhaps"})).status_code == 400
        assert (await client.post(way, data=form)).status_code == 303
        assert (await client.post(way, data=form)).status_code == 409
        async for _ in at.service.listen(run):
            pass
        past = await at.service.read_run(run)
        answered = past.answers[asked.question]
        assert (answered.approved, answered.via, answered.remark) == (True, "page", "go <on>")
        assert answered.actor.startswith("admin (")
        assert past.answer == "done"


async def test_feedback_is_kept_as_a_persons_grade(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, 0)
        form = {"csrf": await csrf(client), "right": "yes", "note": "well done"}
        assert (await client.post(f"/ui/runs/{run}/feedback", data=form)).status_code == 303
        grade = (await at.service.read_run(run)).grade
        assert grade is not None
        assert (grade.score, grade.evidence, grade.basis) == (1.0, "well done", "person")
        assert "well done" in (await client.get(f"/ui/runs/{run}")).text


async def test_a_secret_is_shown_once_and_opens_what_it_should(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        form = {"csrf": await csrf(client), "name": "n8n", "scopes": ["run", "read"], "dollars_per_day": "1"}
        answer = await client.post("/ui/keys", data=form)
        found = re.search(r'class="secret">([^<]+)<', answer.text)
        assert found is not None
        assert found[1] not in (await client.get("/ui/keys")).text
        async with at.http(found[1]) as api:
            assert (await api.get("/v1/models")).status_code == 200
        own_id = re.findall(r'action="/ui/keys/([^/"]+)/revoke"', answer.text)[0]
        assert (await client.post(f"/ui/keys/{own_id}/revoke", data=form)).status_code == 303
        async with at.http(found[1]) as api:
            assert (await api.get("/v1/models")).status_code == 401


async def test_a_plan_is_shown_before_anything_is_performed_and_then_just_that_is(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        form = {"csrf": await csrf(client), "prompt": "Six times seven?", "model": "shikisha"}
        answer = await client.post("/ui/try", data=form)
        assert "Planning cost nothing" in answer.text
        assert (await at.service.journal.runs()) == ()
        mine = Plan((Step("think <hard>", 0), Step("say it", 0, (0,))))
        answer = await client.post("/ui/try/perform", data={**form, "plan": mine.dumps()})
        run = re.findall(r"run=([^&#]+)", answer.headers["location"])[0]
        async for _ in at.service.listen(run):
            pass
        past = await at.service.read_run(run)
        assert [turn.plan for turn in past.rounds] == [mine]
        assert past.answer == "42"


async def test_a_turn_is_performed_at_once_and_its_steps_are_streamed_into_the_chat(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        form = {"csrf": await csrf(client), "prompt": "Six times seven?", "model": "shikisha"}
        answer = await client.post("/ui/try/perform", data=form)
        run = re.findall(r"run=([^&#]+)", answer.headers["location"])[0]
        streamed = (await client.get(f"/ui/runs/{run}/live?chat=true")).text
        assert 'id="chat-state"' in streamed
        assert 'hx-swap-oob="beforeend:#rounds"' in streamed
        assert "42" in streamed
        assert 'id="head"' not in streamed  # nothing of the run's own page
        page = (await client.get(answer.headers["location"])).text
        assert page.count('class="turn said"') == 1
        assert "sse-connect" not in page  # it is over


async def test_a_message_that_is_sent_twice_is_one_turn_and_one_that_is_refused_stays_in_the_box(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        form = {"csrf": await csrf(client), "prompt": "Six times seven?", "model": "shikisha", "once": "a"}
        ways = {(await client.post("/ui/try/perform", data=form)).headers["location"] for _ in range(2)}
        assert len(ways) == len(await at.service.journal.runs()) == 1
        assert 'name="once" value="' in (await client.get("/ui/try")).text
        refused = await client.post("/ui/try/perform", data={**form, "dollars": "much"})
        assert refused.status_code == 400
        assert "Six times seven?</textarea>" in refused.text
        assert "expected a number from 0" in refused.text


NO_PLANS = (
    "",
    '{"steps": []}',
    "{}",
    "not a plan",
    '{"steps": [{"worker": 9, "subtask": "x", "access": []}]}',
    '{"steps": [{"worker": 0, "subtask": "x", "access": [0]}]}',
)


async def test_a_plan_that_is_none_is_refused_and_nothing_is_begun(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        form = {"csrf": await csrf(client), "prompt": "x", "model": "shikisha"}
        for plan in NO_PLANS:
            assert (await client.post("/ui/try/perform", data={**form, "plan": plan})).status_code == 400, plan
        assert (await at.service.journal.runs()) == ()


async def test_logging_out_ends_the_login(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        cookie = client.cookies["shikisha_login"]
        assert (await client.post("/ui/logout", data={"csrf": await csrf(client)})).status_code == 303
        client.cookies.set("shikisha_login", cookie, path="/ui")
        assert (await client.get("/ui/runs")).status_code == 303
