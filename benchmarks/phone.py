"""On-device routing and the way to a tap, in headless Chromium.

    scripts/onnxruntime-web && python benchmarks/phone.py --tasks 200

Exports the shipped conductor with the simulation's pool as a page (`shikisha export --web`), serves it from loopback,
and lets the browser decide held-out questions of the simulation: agreement with this package's own conductor, seconds
a decision (as the page measures it), requests while private tasks are decided and performed, all seen by the browser's
network log, and the same without a network after the first load. Then `shikisha serve --host` is started as a process,
and the seconds count from its start until a second browser context, the phone, has followed the link of its QR code and
tapped a yes. Nothing is timed by a test; the machine is said.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import Request, urlopen

import psutil
from playwright.async_api import Browser, Page, async_playwright

from shikisha.conductors.onnx_checkpoint import open_onnx_checkpoint, shipped_checkpoint
from shikisha.conductors.trained_model import TrainedConductor
from shikisha.config.container import load_config
from shikisha.config.web_export import WebExport
from shikisha.core.call import Card
from shikisha.core.errors import PlanError
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.simulation.task_generator import generate_tasks
from shikisha.simulation.vocabulary import WordingSplit

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = next(iter(sorted((ROOT / ".venv").glob("onnxruntime-web-*/dist"))), ROOT / "no-onnxruntime-web")
CHROMIUM = "/usr/bin/chromium"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is measured
APPROVALS = """
pool = ["writer", "mail"]
conductor = "fixed:chain?workers=writer,mail"
[server]
port = 0
[workers.writer]
kind = "scripted"
answers = "simulated draft"
[workers.mail]
kind = "scripted"
answers = "simulated: sent"
approval = "always"
"""


REPEATS = 5  # of each decision
DECIDE = """async ([texts, hidden]) => {
  const { device } = window.shikisha, found = [];
  for (const text of texts) {
    const made = await device.decide({ text, private: hidden });
    let best = made.ms;
    for (let again = 1; again < REPEATS; again++)
      best = Math.min(best, (await device.decide({ text, private: hidden })).ms);
    const tokens = made.text ? device.tokenizer.encode(made.text).length : 0;
    found.push({ by: made.by, text: made.text ?? null, ms: made.ms, best, tokens, where: made.where });
  }
  return found;
}"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder without a line for each request; modules need their type."""

    extensions_map = {  # noqa: RUF012 - the base class has one
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


async def python_plans(cards: tuple[Card, ...], texts: Sequence[str]) -> list[str | None]:
    """Return what this package's conductor writes for each text; None where it plans nothing."""
    conductor = TrainedConductor("lm:shipped", open_onnx_checkpoint(shipped_checkpoint()))
    found: list[str | None] = []
    for text in texts:
        try:
            found.append((await conductor.propose(Situation(Task(text), cards))).text)
        except PlanError:
            found.append(None)
    return found


async def measure_page(browser: Browser, url: str, cards: tuple[Card, ...], texts: Sequence[str]) -> dict[str, object]:
    """Return the page's figures."""
    context = await browser.new_context()
    page = await context.new_page()
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    begun = monotonic()
    await page.goto(url)
    await page.wait_for_selector("#go:enabled", timeout=120_000)
    loaded = monotonic() - begun
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    begun_cpu = cpu_seconds()
    public = await decide(page, texts, private=False)
    cpu = (cpu_seconds() - begun_cpu) * 1000 / (len(texts) * REPEATS)
    expected = await python_plans(cards, texts)
    await page.wait_for_timeout(500)
    before = len(seen)
    hidden = await decide(page, texts, private=True)
    performed = await page.evaluate(
        """async () => { const { device, local } = window.shikisha; const task = {text: "12 * (30 + 4)", private: true};
        const decided = {where: "device", plan: [{worker: "calculator", subtask: task.text, access: []}]};
        return (await device.perform(task, decided, local)).answer }"""
    )
    refused = await page.evaluate(
        """async () => { try { await (await import("./device.js")).ask("", {text: "x", private: true}, ""); return "" }
        catch (error) { return error.message } }"""
    )
    requests = [each for each in seen[before:] if not each.endswith("/device.js")]
    await context.set_offline(True)
    await page.reload()
    await page.wait_for_selector("#go:enabled", timeout=120_000)
    offline = await decide(page, texts[:20], private=True)
    await context.close()
    told = [each["text"] for each in public]
    return {
        "first load, seconds": round(loaded, 2),
        "questions": len(texts),
        "planned on the device": sum(each is not None for each in told),
        "planned here": sum(each is not None for each in expected),
        "same text as here, of those planned there": sum(a == b for a, b in zip(told, expected, strict=True) if a),
        "ms a decision, median / 95 % / worst": spread([each["ms"] for each in public]),
        "the best of five of each, median / 95 % / worst": spread([each["best"] for each in public]),
        "CPU ms a decision, all processes of the browser": round(cpu, 1),
        "tokens written a decision, median": statistics.median(each["tokens"] for each in public),
        "private tasks decided to leave the device": sum(each["where"] == "server" for each in hidden),
        "requests while private tasks are decided and performed": len(requests),
        "a private calculation": performed,
        "a private task sent": refused,
        "decisions without a network": sum(each["by"] == "conductor" for each in offline),
    }


def cpu_seconds() -> float:
    """Return the CPU seconds of the browser's processes so far: the clock of a busy machine says little."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


async def decide(page: Page, texts: Sequence[str], *, private: bool) -> list[Any]:
    """Return the page's decisions."""
    found: list[Any] = await page.evaluate(DECIDE.replace("REPEATS", str(REPEATS)), [list(texts), private])
    return found


def spread(values: Sequence[float]) -> str:
    """Return the median, the 95th percentile and the largest."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.1f} / {ordered[int(0.95 * (len(ordered) - 1))]:.1f} / {ordered[-1]:.1f}"


async def measure_tap(browser: Browser, folder: Path) -> dict[str, object]:
    """Return the seconds from the start of `shikisha serve --host` to a tap on a second device, and where they went."""
    (folder / "shikisha.toml").write_text(APPROVALS)
    command = [sys.executable, "-m", "shikisha", "serve", "--host", EVERYWHERE, "--port", "0", "--phone", "--json"]
    begun = monotonic()
    process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own command; nothing else waits yet
        [*command, "--journal", str(folder / "j.db")], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        told = json.loads(await asyncio.to_thread(process.stdout.readline))
        serving = monotonic() - begun
        desk = await browser.new_context()
        await (await desk.new_page()).goto(f"{told['url']}/ui/login")
        headers = {"Authorization": f"Bearer {told['key']}", "Content-Type": "application/json"}
        body = json.dumps({"model": "shikisha", "messages": [{"role": "user", "content": "Write to Mika."}]}).encode()
        asking = threading.Thread(
            target=partial(post, f"{told['url']}/v1/chat/completions", body, headers), daemon=True
        )
        asking.start()
        phone = await browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        page = await phone.new_page()
        await page.goto(told["link"])
        await page.get_by_role("button", name="Log this device in").tap()
        await page.wait_for_url("**/ui/approvals")
        while not await page.get_by_role("button", name="Approve").count():
            await page.wait_for_timeout(200)
            await page.reload()
        await page.get_by_role("button", name="Approve").tap()
        await page.wait_for_url("**/ui/runs/**")
        return {"seconds until it serves": round(serving, 1), "seconds until the tap": round(monotonic() - begun, 1)}
    finally:
        process.terminate()
        process.wait(30)


def post(url: str, body: bytes, headers: dict[str, str]) -> None:
    """Send a request whose answer nobody waits for."""
    with closing(urlopen(Request(url, body, headers), timeout=60)) as answer:  # noqa: S310 - our own server
        answer.read()


async def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=29)
    given = parser.parse_args()
    texts = [item.task.prompt for item in generate_tasks(WordingSplit.HELDOUT, given.seed, count=given.tasks)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "empty.toml").write_text('pool = ["simulated"]\n')
        cards = load_config(folder / "empty.toml", {}).cards()
        web = WebExport(shipped_checkpoint(), cards, frozenset(card.name for card in cards), RUNTIME)
        web.write(folder / "web")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder / "web")))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with async_playwright() as started:
            browser = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            figures = await measure_page(browser, f"http://localhost:{server.server_port}/", cards, texts)
            figures |= await measure_tap(browser, folder)
            await browser.close()
        server.shutdown()
        server.server_close()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
