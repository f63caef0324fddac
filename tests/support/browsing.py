"""A real browser for tests: Debian's Chromium, headless, driven by Playwright; and what it must never be seen to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
DESK, TABLET, PHONE = ({"width": width, "height": height} for width, height in ((1280, 900), (768, 1024), (390, 844)))
needed = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium (Debian's package chromium)")
playwright = pytest.importorskip("playwright.async_api", reason="needs the Python package playwright")

from playwright.async_api import Browser, BrowserContext, Dialog, Page, Request, async_playwright  # noqa: E402

# what model text would be if it were not escaped: anything that runs, loads, or came with a style of its own
FOREIGN = """() => [...document.querySelectorAll(
  'script:not([src^="/ui/static/"]), img, image, iframe, object, embed, video, audio, source, marquee, math, base,'
  + 'style, foreignObject, use, animate, set, dialog, keygen, [style], [srcdoc], [contenteditable],'
  + 'link:not([href^="/ui/static/"]):not([href="/ui/manifest.webmanifest"]), meta[http-equiv],'
  + 'a:not([href^="/ui/"]):not([href^="#"]), form:not([action^="/ui/"])'
)].map(each => each.outerHTML.slice(0, 200)).concat(
  [...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())
    .filter(name => /^(data-)?(on|hx-on)/i.test(name)))"""


@dataclass
class Seen:
    """What pages did: requests to elsewhere, dialogs, scripts' errors."""

    home: str
    outside: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Note what this page does from now on."""
        page.on("request", self._request)
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.home, "data:")):
            self.outside.append(request.url)

    async def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    @property
    def nothing(self) -> bool:
        """Whether nothing of it happened."""
        return not (self.outside or self.dialogs or self.errors)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start a browser, and end it."""
    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def logged_in(
    browser: Browser, url: str, key: str, size: dict[str, int] = DESK
) -> AsyncIterator[tuple[Page, Seen]]:
    """Open a page in a window of this size, and log in; what the page does is noted."""
    telephone = size is PHONE
    context: BrowserContext = await browser.new_context(
        viewport={"width": size["width"], "height": size["height"]}, has_touch=telephone, is_mobile=telephone
    )
    page = await context.new_page()
    seen = Seen(url)
    seen.watch(page)
    await page.goto(f"{url}/ui/login")
    await page.fill("#key", key)
    await page.click("button.go")
    await page.wait_for_url("**/ui/overview")
    try:
        yield page, seen
    finally:
        await context.close()


async def foreign(page: Page) -> list[str]:
    """Return what is on the page that only unescaped text can have put there, and whether a script of it ran."""
    found = await page.evaluate(FOREIGN)
    ran = await page.evaluate("() => window.pwned === undefined ? [] : ['window.pwned']")
    return [*found, *ran]
