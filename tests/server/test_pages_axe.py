"""Every page for people who do not see it, or use no mouse: axe-core finds nothing, and the Tab key reaches all of it.

`scripts/axe` brings axe-core and runs this with a table.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from browsing import DESK, PHONE, TABLET, chromium, needed
from playwright.async_api import Browser, ConsoleMessage, Page
from serving import At, served
from test_evaluation_pages import kept as kept_evaluation
from test_evaluation_pages import open_viewer
from test_pages_browser import HARBOUR, begin, over

from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.server.keys import KeyCaps, KeySpec
from shikisha.server.keys.key import KeyScope

AXE = Path(".venv/axe/node_modules/axe-core/axe.min.js")
SIZES, SCHEMES = {"desk": DESK, "tablet": TABLET, "phone": PHONE}, ("light", "dark")
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: scripts/axe brings it")
kept = kept_evaluation
pytestmark = [needed, pytest.mark.browser, pytest.mark.slow]


@cache
def axe_source() -> str:
    """The program that looks."""
    return AXE.read_text()


# What the Tab key reaches, in order, until it is at the page's beginning again; and what of it shows no focus.
REACH = """async () => {
  const wanted = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
    .filter(each => each.checkVisibility({visibilityProperty: true}) && !each.disabled && each.tabIndex >= 0);
  return wanted.length;
}"""
FOCUS = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const style = getComputedStyle(at), box = at.querySelector('.box');
  const shown = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
    || (box && getComputedStyle(box).strokeWidth === '2.5px');
  window.axeSeen = window.axeSeen || new Set();
  const stays = window.axeLast === at;  // a date field has several stops
  const again = window.axeSeen.has(at) && !stays;
  window.axeLast = at;
  window.axeSeen.add(at);
  return {again, stays, shown, what: at.outerHTML.slice(0, 120)};
}"""


@dataclass
class Findings:
    """What axe found, by page, window and scheme, and how many rules passed."""

    violations: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    passes: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)  # of consoles
    pages: dict[str, None] = field(default_factory=dict)

    def note(self, line: ConsoleMessage) -> None:
        """Note an error of a console, but for the page that is to be missing."""
        if line.type == "error" and "nothing-here" not in (line.page.url if line.page else ""):
            self.errors.append(line.text)

    async def look(self, page: Page, name: str, size: str, scheme: str) -> None:
        """Look at the page that is open."""
        await page.evaluate(axe_source())
        found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        told = [f"{each['id']}: {node['html'][:140]}" for each in found["violations"] for node in each["nodes"]]
        self.violations[name, size, scheme] = told
        self.passes[size, scheme] += len(found["passes"])
        self.pages[name] = None

    def table(self) -> Iterable[str]:
        """Yield the lines of a table."""
        columns = [(size, scheme) for size in SIZES for scheme in SCHEMES]
        yield f"{'page':<28}" + "".join(f"{SIZES[size]['width']} {scheme:<8}" for size, scheme in columns)
        for name in self.pages:
            yield f"{name:<28}" + "".join(f"{len(self.violations.get((name, *each), [])):<13}" for each in columns)
        looks, total = len(self.violations), sum(map(len, self.violations.values()))
        yield f"{len(self.pages)} pages, {looks} looks, {total} violations"


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[tuple[At, dict[str, str]]]:
    """A server with runs of every kind, and its pages by name."""
    steps = (Step("Draft it.", 0), Step("Read it.", 1, (0,)))
    async with served(folder, HARBOUR) as at:
        assert at.service is not None
        caps = KeyCaps(dollars=1.0, dollars_per_day=0.5)
        await at.service.keys.issue(KeySpec("team", "default", frozenset({KeyScope.RUN}), caps=caps), "tests")
        runs = [
            await begin(at, Task(f"Is harbour {number} open?"), Plan(steps[: number % 2 + 1])) for number in range(3)
        ]
        waits = await begin(at, Task("Refund it"), Plan((Step('{"order": 1182}', 2),)))
        for run in (*runs, waits):
            await over(at, run)
        (asked,) = (await at.service.read_run(waits)).open_questions
        yield (
            at,
            {
                "overview": "overview",
                "overview, 1 day": "overview?days=1",
                "runs": "runs",
                "runs, searched": "runs?text=harbour&worker=writer&sort=cost",
                "runs, none": "runs?text=nothingofthekind",
                "run": f"runs/{runs[1]}",
                "run that waits": f"runs/{waits}",
                "journal": f"runs/{runs[1]}/journal",
                "queue": "queue",
                "replay": f"runs/{runs[1]}/replay",
                "replay of a call": f"runs/{runs[1]}/replay?step=0.1",
                "sessions": "sessions",
                "chat": "try",
                "approvals": "approvals",
                "approval": f"approvals/{waits}/{asked.question}",
                "workers": "workers",
                "compare": "compare",
                "a policy on past runs": "compare/policy",
                "compare two runs": f"compare?left={runs[0]}&right={runs[1]}",
                "keys": "keys",
                "device": "device",
                "link": "link",
                "offline": "offline",
                "no such page": "nothing-here",
            },
        )


async def look_everywhere(browser: Browser, at: At, ways: dict[str, str], findings: Findings) -> None:
    """Look at all pages of a server, in every window and scheme."""
    for size, window in SIZES.items():
        for scheme in SCHEMES:
            context = await browser.new_context(
                viewport={"width": window["width"], "height": window["height"]},
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
            )
            context.on("console", findings.note)
            page = await context.new_page()
            await page.goto(f"{at.url}/ui/login")
            await findings.look(page, "login", size, scheme)
            await page.fill("#key", at.key)
            await page.click("button.go")
            await page.wait_for_url("**/ui/overview")
            for name, way in ways.items():
                await page.goto(f"{at.url}/ui/{way}")
                await findings.look(page, name, size, scheme)
            await look_at_a_chat(page, at, findings, (size, scheme))
            await context.close()


async def look_at_a_chat(page: Page, at: At, findings: Findings, of: tuple[str, str]) -> None:
    """Look at a plan that is shown, at a turn that was performed, and at its session."""
    await page.goto(f"{at.url}/ui/try")
    await page.fill("#prompt", "Is it open?")
    await page.get_by_role("button", name="Show the plan").click()
    await page.wait_for_selector(".price")
    await findings.look(page, "chat, a plan", *of)
    await page.get_by_role("button", name="Perform exactly this plan").click()
    await page.wait_for_selector("#last .said > .text")
    await findings.look(page, "chat, a turn", *of)
    await page.get_by_role("link", name="this session").click()
    await page.wait_for_selector(".turns")
    await findings.look(page, "session", *of)


async def look_at_an_evaluation(browser: Browser, address: str, report: Path, findings: Findings) -> None:
    """Look at the pages of `shikisha eval show`, and at the page of an evaluation."""
    for size, window in SIZES.items():
        for scheme in SCHEMES:
            context = await browser.new_context(
                viewport={"width": window["width"], "height": window["height"]},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page = await context.new_page()
            await page.goto(address)
            await findings.look(page, "evaluation", size, scheme)
            await page.locator("table.samples tbody a").first.click()
            await findings.look(page, "sample", size, scheme)
            await page.goto(report.as_uri())
            await findings.look(page, "eval --html", size, scheme)
            await context.close()


@needs_axe
async def test_axe_finds_nothing_on_any_page(tmp_path: Path, kept: Path) -> None:
    findings = Findings()
    async with AsyncExitStack() as stack:
        at, ways = await stack.enter_async_context(filled(tmp_path))
        browser = await stack.enter_async_context(chromium())
        await look_everywhere(browser, at, ways, findings)
        address = await stack.enter_async_context(open_viewer(kept))
        await look_at_an_evaluation(browser, address, kept.parent / "report.html", findings)
    print("\n" + "\n".join(findings.table()))  # noqa: T201 - `scripts/axe` shows it
    assert {name: told for name, told in findings.violations.items() if told} == {}
    assert findings.errors == []
    assert min(findings.passes.values()) > 100  # it did look


async def test_the_tab_key_reaches_everything_shows_where_it_is_and_is_never_caught(tmp_path: Path) -> None:
    async with filled(tmp_path) as (at, ways), chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        await page.goto(f"{at.url}/ui/login")
        await page.fill("#key", at.key)
        await page.click("button.go")
        await page.wait_for_url("**/ui/overview")
        for name, way in ways.items():
            await page.goto(f"{at.url}/ui/{way}")
            await page.evaluate("() => document.querySelectorAll('[hx-trigger]').forEach(each => each.remove())")
            wanted = await page.evaluate(REACH)
            await page.evaluate("() => document.querySelector('a[href]').focus()")  # a page may begin in its field
            reached = 1
            for _ in range(wanted + 40):
                await page.keyboard.press("Tab")
                told = await page.evaluate(FOCUS)
                if told is None or told["again"]:
                    break
                reached += not told["stays"]
                assert told["shown"], (name, told["what"])
            assert reached >= wanted - 12, (
                name,
                reached,
                wanted,
            )  # date fields and radio groups are several stops or one
