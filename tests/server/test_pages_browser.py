"""The pages in a real browser: a run while it goes on, an approval with one thumb, and a hundred payloads."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from browsing import DESK, PHONE, TABLET, chromium, foreign, logged_in, needed
from payloads import PAYLOADS
from playwright.async_api import Browser, Error, Page, expect
from serving import At, served

from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.server.http.request import RequestOptions
from shikisha.server.keys import Key
from shikisha.server.lifecycle.authorization import Api, RequestedRun, confirmed_plan_request

pytestmark = [needed, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
SOME = pytest.param(PAYLOADS[::8], id="some")
ALL = pytest.param(PAYLOADS, id="all", marks=pytest.mark.slow)

HARBOUR = """
conductor = "chain"
[server]
port = 0
[workers.writer]
kind = "scripted"
answers = "The harbour is open on Sunday."
seconds = [0.4]
[workers.critic]
kind = "scripted"
answers = "It reads well."
seconds = [0.4]
[workers.refunds]
kind = "scripted"
answers = "Refunded."
approval = "always"
[conductors.chain]
kind = "fixed"
topology = "chain"
workers = ["writer", "critic"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all of these tests: each opens a profile of its own in it."""
    async with chromium() as started:
        yield started


async def begin(at: At, task: Task, plan: Plan, model: str = "shikisha") -> str:
    """Begin a run of this plan as the page does, and return its id."""
    assert at.service is not None
    key = await at.service.keys.find(at.key)
    assert isinstance(key, Key)
    wish = RequestedRun(model, task, Api.PAGE, RequestOptions({}), confirmed_plan_request(plan), detached=True)
    live = await at.service.begin(at.service.authorizer.authorize(wish, key.principal()))
    return live.run


async def over(at: At, run: str) -> None:
    """Return when a run has ended or waits."""
    assert at.service is not None
    async for _ in at.service.listen(run):
        pass


async def fits(page: Page) -> bool:
    """Whether nothing on the page is wider than the window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.full
async def test_a_task_is_tried_its_plan_shown_and_its_run_seen_to_its_end(tmp_path: Path, browser: Browser) -> None:
    async with (
        served(tmp_path, HARBOUR) as at,
        logged_in(browser, at.url, at.key) as (page, seen),
    ):
        await page.goto(f"{at.url}/ui/try")
        await page.fill("#prompt", "Is the harbour open?")
        await page.get_by_role("button", name="Show the plan").click()
        await expect(page.locator("svg.wide g.node")).to_have_count(2)
        assert at.service is not None
        assert at.service.running == {}  # nothing is performed yet
        await page.get_by_role("button", name="Perform exactly this plan").click()
        await page.wait_for_url("**/ui/try?*")
        await expect(page.locator("#last .said > .text")).to_have_text("It reads well.")
        await page.locator("#prompt").press_sequentially("And on Monday?")
        await page.keyboard.press("Enter")  # no plan was asked for
        await expect(page.locator(".turns > li")).to_have_count(2)
        await expect(page.locator("#last .said > .text")).to_have_text("It reads well.")
        await page.get_by_text("Who did what").first.click()
        await expect(page.locator("#head .chip")).to_have_text("done")
        await expect(page.locator("svg.wide g.node.s-done")).to_have_count(2)
        await expect(page.locator("#answer .text")).to_have_text("It reads well.")
        await page.get_by_text("Every event of this run").click()
        await expect(page.locator("#events li").first).to_contain_text("run.started")
        assert seen.nothing


def piece(text: str, finish: str | None = None) -> bytes:
    """A piece of a streamed answer, as chat endpoints send it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    told = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(told)}\n\n".encode()


@asynccontextmanager
async def hesitating(more: asyncio.Event, end: asyncio.Event) -> AsyncIterator[str]:
    """A chat endpoint on loopback that goes on with its answer, and ends it, when it is told to."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(piece("The harbour "))
        await writer.drain()
        await more.wait()
        writer.write(piece("<b>is open</b>"))
        await writer.drain()
        await end.wait()
        writer.write(piece(".") + piece("", "stop") + b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@pytest.mark.full
async def test_a_growing_answer_is_seen_and_what_a_reader_opened_stays_open(tmp_path: Path, browser: Browser) -> None:
    more, end = asyncio.Event(), asyncio.Event()
    async with hesitating(more, end) as endpoint:
        slow = f'[workers.slow]\nkind = "chat"\nmodel = "m"\nbase_url = "{endpoint}"\n'
        async with (
            served(tmp_path, HARBOUR + slow) as at,
            logged_in(browser, at.url, at.key) as (page, seen),
        ):
            run = await begin(at, Task("Is it open?"), Plan((Step("a", 0), Step("b", 3, (0,)))))
            await page.goto(f"{at.url}/ui/runs/{run}")
            await expect(page.locator("svg.wide g.node.s-running")).to_have_count(1)
            await expect(page.locator("#step-0-0 > header .chip")).to_have_text("done")
            await page.locator("#step-0-0 summary").first.click()
            clock = page.locator("#head .figures")
            await expect(clock).not_to_have_text(await clock.inner_text())  # what happens from here on is heard
            more.set()
            await expect(page.locator("#said-0-1")).to_contain_text("<b>is open</b>")
            end.set()
            await expect(page.locator("#head .chip")).to_have_text("done")
            await expect(page.locator("#answer .text")).to_have_text("The harbour <b>is open</b>.")
            await expect(page.locator("#step-0-0 details").first).to_have_attribute("open", "")
            assert seen.nothing


@pytest.mark.full
async def test_a_call_is_approved_on_a_telephone_while_somebody_watches_the_run(
    tmp_path: Path, browser: Browser
) -> None:
    plan = Plan((Step('{"order": 1182, "amount": 18.4}', 2),))
    async with (
        served(tmp_path, HARBOUR) as at,
        logged_in(browser, at.url, at.key) as (watching, seen),
        logged_in(browser, at.url, at.key, PHONE) as (page, seen_there),
    ):
        run = await begin(at, Task("Refund the order"), plan)
        await watching.goto(f"{at.url}/ui/runs/{run}")
        await expect(watching.locator("#waiting")).to_contain_text("May this call be made?")
        await page.goto(f"{at.url}/ui/approvals")
        await expect(page.locator(".ask")).to_contain_text("1182")
        assert await fits(page)
        button = page.get_by_role("button", name="Approve")
        box = await button.bounding_box()
        assert box is not None
        assert box["height"] >= 44  # a thumb's width
        await button.tap()
        await expect(watching.locator("#head .chip")).to_have_text("done")
        await expect(watching.locator("#answer .text")).to_have_text("Refunded.")
        assert seen.nothing
        assert seen_there.nothing


@pytest.mark.full
async def test_every_page_fits_its_window_and_can_be_used_by_keyboard(tmp_path: Path, browser: Browser) -> None:
    steps = [Step(f"part {index} " + "w" * 60, index % 2, tuple(range(index))) for index in range(5)]
    async with served(tmp_path, HARBOUR) as at:
        run = await begin(at, Task("Long " + "x" * 300), Plan(tuple(steps)))
        other = await begin(at, Task("Wait"), Plan((Step("y" * 300, 2),)))
        await over(at, run)
        await over(at, other)
        ways = (
            "overview",
            "sessions",
            "runs",
            "try",
            "approvals",
            "workers",
            "compare",
            "keys",
            "queue",
            f"runs/{run}",
        )
        further = (f"runs/{run}/journal", f"runs/{run}/replay", f"compare?left={run}&right={other}")
        for size in (DESK, TABLET, PHONE):
            async with logged_in(browser, at.url, at.key, size) as (page, seen):
                for way in (*ways, *further):
                    await page.goto(f"{at.url}/ui/{way}")
                    assert await fits(page), (way, size)
                    if way != "try":  # a chat begins in its field
                        await page.keyboard.press("Tab")
                        assert await page.evaluate("document.activeElement.className") == "skip", way
                assert seen.nothing


@pytest.mark.full
async def test_runs_are_judged_by_keyboard_a_draft_survives_a_reload_and_a_key_counts_once(
    tmp_path: Path, browser: Browser
) -> None:
    async with served(tmp_path, HARBOUR.replace("[0.4]", "[0.0]")) as at:
        assert at.service is not None
        runs = [await begin(at, Task(f"Question {number}?"), Plan((Step("do it", 0),))) for number in range(3)]
        for run in runs:
            await over(at, run)
        async with logged_in(browser, at.url, at.key) as (page, seen):
            await page.goto(f"{at.url}/ui/queue")
            await page.keyboard.press("c")
            await page.keyboard.type("not yet")
            await page.reload()
            await expect(page.locator("#note")).to_have_value("not yet")
            for left, key in ((2, "y"), (1, "n"), (0, "y")):
                await page.keyboard.press(key)
                await page.keyboard.press(key)  # the next run is not judged by it
                await expect(page.locator("main")).to_contain_text(f"{left} to go")
            await page.goto(f"{at.url}/ui/try")
            await page.locator("#prompt").fill("a secret draft")
            await page.locator("form.who button").click()
            await expect(page).to_have_url(f"{at.url}/ui/login")
            assert "draft" not in await page.evaluate(
                "JSON.stringify(sessionStorage)"
            )  # whoever logs in next finds no draft
            assert seen.nothing
        marks = [(await at.service.read_run(run)).grades for run in runs]
        assert sorted((each.mark, each.evidence) for (each,) in marks) == [
            ("right", ""),
            ("right", "not yet"),
            ("wrong", ""),
        ]


@pytest.mark.full
async def test_the_list_of_runs_refreshes_itself(tmp_path: Path, browser: Browser) -> None:
    async with (
        served(tmp_path, HARBOUR) as at,
        logged_in(browser, at.url, at.key) as (page, seen),
    ):
        await page.goto(f"{at.url}/ui/runs")
        await expect(page.locator("#rows")).to_contain_text("No runs yet")
        await begin(at, Task("A new one"), Plan((Step("do it", 0),)))
        await expect(page.locator("#rows")).to_contain_text("A new one", timeout=15_000)
        assert seen.nothing


@pytest.mark.full
@pytest.mark.parametrize("payloads", [SOME, ALL])
async def test_payloads_run_where_nothing_escapes_them(browser: Browser, payloads: tuple[str, ...]) -> None:
    """Without this the next tests could be blind."""
    ran = caught = 0
    context = await browser.new_context()
    await context.route("**/*", lambda route: route.abort())
    for payload in payloads:
        page = await context.new_page()
        await page.set_content(f"<body>{payload}</body>", wait_until="commit")
        try:
            found = await foreign(page)
        except Error:  # the page has been led elsewhere
            found = ["led elsewhere"]
        ran += "window.pwned" in found
        caught += bool(found)
        await page.close()
    await context.close()
    assert ran >= 0.3 * len(payloads)
    assert caught >= 0.6 * len(payloads)  # the others need an attribute or a script around them


ECHO = """
[server]
port = 0
[workers.echo]
kind = "scripted"
answers = [{answers}]
[workers.echo.price]
call = 0.001
[workers.asks]
kind = "scripted"
approval = "always"
"""


def echo(payloads: Sequence[str]) -> str:
    """A configuration whose worker answers one payload after another."""
    return ECHO.format(answers=", ".join(toml_text(payload) for payload in payloads))


def toml_text(text: str) -> str:
    """A text as TOML writes it."""
    told = "".join(char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in text)
    return f'"{told}"'


@pytest.mark.full
@pytest.mark.parametrize("payloads", [SOME, ALL])
async def test_payloads_as_tasks_and_answers_do_nothing_on_any_page(
    tmp_path: Path, browser: Browser, payloads: tuple[str, ...]
) -> None:
    async with (
        served(tmp_path, echo(payloads)) as at,
        logged_in(browser, at.url, at.key) as (page, seen),
    ):
        runs = []
        for payload in payloads:
            runs.append(await begin(at, Task(payload, payload), Plan((Step(payload, 0),))))
            await over(at, runs[-1])
        for run, payload in zip(runs, payloads, strict=True):
            await page.goto(f"{at.url}/ui/runs/{run}")
            assert await foreign(page) == [], payload
        for run in runs[::10]:
            await page.goto(f"{at.url}/ui/runs/{run}/journal")
            assert await foreign(page) == []
        await page.goto(f"{at.url}/ui/runs")
        for _ in range(len(payloads) // 50):
            assert await foreign(page) == []
            await page.get_by_text("Older ones").click()
            await page.wait_for_load_state()
        await page.goto(f"{at.url}/ui/compare?left={runs[0]}&right={runs[1]}")
        assert await foreign(page) == []
        assert seen.nothing


@pytest.mark.full
@pytest.mark.parametrize("payloads", [SOME, ALL])
async def test_payloads_in_questions_and_forms_do_nothing(
    tmp_path: Path, browser: Browser, payloads: tuple[str, ...]
) -> None:
    async with (
        served(tmp_path, echo(payloads)) as at,
        logged_in(browser, at.url, at.key) as (page, seen),
    ):
        begun = [await begin(at, Task(payload), Plan((Step(payload, 1),))) for payload in payloads]
        for run in begun:
            await over(at, run)
        for way in ("approvals", "runs?status=suspended", "workers", "compare", "keys"):
            await page.goto(f"{at.url}/ui/{way}")
            assert await foreign(page) == [], way
        for payload in payloads[::5]:
            await page.goto(f"{at.url}/ui/try")
            await page.fill("#prompt", payload)
            await page.get_by_role("button", name="Show the plan").click()
            await page.wait_for_load_state()
            assert await foreign(page) == [], payload
        assert seen.nothing


@pytest.mark.full
@pytest.mark.parametrize("payloads", [SOME, ALL])
async def test_payloads_that_arrive_while_one_watches_do_nothing(
    tmp_path: Path, browser: Browser, payloads: tuple[str, ...]
) -> None:
    slow = echo(payloads).replace('kind = "scripted"\nanswers', 'kind = "scripted"\nseconds = [0.25]\nanswers')
    async with (
        served(tmp_path, slow) as at,
        logged_in(browser, at.url, at.key) as (page, seen),
    ):
        for first in range(0, len(payloads), 5):
            some = payloads[first : first + 5]
            run = await begin(at, Task(some[0]), Plan(tuple(Step(text, 0, ()) for text in some)))
            await page.goto(f"{at.url}/ui/runs/{run}")
            await expect(page.locator("#head .chip")).to_have_text("done", timeout=15_000)
            await asyncio.sleep(0.2)
            assert await foreign(page) == [], some
        assert seen.nothing
