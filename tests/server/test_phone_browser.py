"""A phone in a real browser: a link, a passkey of the browser's virtual authenticator, a yes, no network."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from browsing import PHONE, chromium, foreign, needed
from playwright.async_api import Browser, Page, expect
from serving import At, served
from test_passkeys import CONFIG, MAILS, asked

from shikisha.server.keys import Key

pytest.importorskip("webauthn", reason="needs the extra phone")
pytestmark = [needed, pytest.mark.browser, pytest.mark.slow]


@asynccontextmanager
async def phone_page(browser: Browser, *, verified: bool = True) -> AsyncIterator[Page]:
    """A page of a phone whose authenticator checks its person, or fails to."""
    context = await browser.new_context(
        viewport={"width": PHONE["width"], "height": PHONE["height"]}, has_touch=True, is_mobile=True
    )
    page = await context.new_page()
    cdp = await context.new_cdp_session(page)
    await cdp.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options |= {"isUserVerified": verified, "automaticPresenceSimulation": True}
    await cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    try:
        yield page
    finally:
        await context.close()


async def linked(at: At, page: Page) -> str:
    """Log a phone in with a link, and return the server's address at which browsers allow passkeys."""
    assert at.service is not None
    key = await at.service.keys.find(at.key)
    assert isinstance(key, Key)
    url = at.url.replace("127.0.0.1", "localhost")
    await page.goto(f"{url}/ui/link#{await at.service.passkeys.open_link(key, 'tests')}")
    assert "#" not in page.url  # the token stays in no history
    await page.get_by_role("button", name="Log this device in").tap()
    await page.wait_for_url("**/ui/approvals")
    return url


async def test_a_link_a_passkey_a_yes_and_a_login_with_the_passkey(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, chromium() as browser, phone_page(browser) as page:
        assert at.service is not None
        url = await linked(at, page)
        await page.goto(f"{url}/ui/device")
        await page.get_by_role("button", name="Add a passkey").tap()
        await expect(page.locator("article.card")).to_contain_text("My phone")
        way = await asked(at, MAILS)
        await page.goto(url + way)
        await page.get_by_role("button", name="Approve with your passkey").tap()
        await page.wait_for_url("**/ui/runs/*")
        run = way.split("/")[3]
        async for _ in at.service.listen(run):
            pass
        assert (await at.service.read_run(run)).answers[way.rpartition("/")[2]].via == "passkey"
        assert await foreign(page) == []
        await page.context.clear_cookies()
        await page.goto(f"{url}/ui/login")
        await page.get_by_role("button", name="Log in with a passkey").tap()
        await page.wait_for_url("**/ui/overview")


async def test_a_device_that_does_not_check_its_person_adds_no_passkey(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, chromium() as browser, phone_page(browser, verified=False) as page:
        url = await linked(at, page)
        await page.goto(f"{url}/ui/device")
        await page.get_by_role("button", name="Add a passkey").tap()
        await expect(page.get_by_role("alert").first).to_contain_text("the passkey was not used")


async def test_the_pages_are_an_app_that_says_when_there_is_no_network(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, chromium() as browser, phone_page(browser) as page:
        url = await linked(at, page)
        cdp = await page.context.new_cdp_session(page)
        told = await cdp.send("Page.getAppManifest")
        assert told["errors"] == []
        assert json.loads(told["data"])["start_url"] == "/ui/approvals"
        blocks = (await cdp.send("Page.getInstallabilityErrors"))["installabilityErrors"]
        assert [each["errorId"] for each in blocks if each["errorId"] != "in-incognito"] == []
        await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        await page.reload()
        await page.context.set_offline(True)
        await page.goto(f"{url}/ui/approvals")
        await expect(page.locator("h1")).to_have_text("No network")
        assert re.search(
            r"ffffff|255, 255, 255|20, 23, 27", await page.evaluate("getComputedStyle(document.body).backgroundColor")
        )
        kept = await page.evaluate(
            "caches.keys().then(names => Promise.all(names.map(name => caches.open(name).then(held => held.keys())))"
            ".then(all => all.flat().map(request => new URL(request.url).pathname)))"
        )
        assert all(way.startswith("/ui/static/") or way == "/ui/offline" for way in kept)  # no run is ever kept
        await page.context.set_offline(False)
