"""A dispatcher's phone: decides on the device, keeps private tasks there, and sends a van only with a passkey.

    scripts/onnxruntime-web && python examples/mobile/mobile.py [--tasks 60] [--folder mobile-example]
    python examples/mobile/mobile.py --real --tasks 16      # two models of this machine, which write the log too

Everything is real but the models: a policy is learned from a log, exported as a page, and run by a headless Chromium as
the phone; a server performs what the device cannot; the passkey is of the browser's virtual authenticator. The two
models are simulated behind a local endpoint and named so; with `--real` they are two of this machine (`REAL`).
`money.svg` has the dollars spent, next to the large model for every task. A task is private where it names a person:
its text must be in no request that the phone makes.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from playwright.async_api import Browser, Page, async_playwright

from shikisha import RunFailed, Shikisha
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")
PRICES = {"small": 0.4, "large": 20.0}  # dollars for a million tokens
REAL = {"small": "smollm2-135m", "large": "qwen2.5-coder-0.5b"}
SLOW = 600  # seconds that an answer may take: a model of this machine performs one call after the other
RIGHT = {  # the share of right answers by type of task, of the device's workers and the simulated models
    "calculator": {"sum": 1.0, "note": 0.0, "load": 0.0, "reply": 0.0},
    "notes": {"sum": 0.0, "note": 1.0, "load": 0.0, "reply": 0.0},
    "small": {"sum": 0.9, "note": 0.0, "load": 0.45, "reply": 0.97},
    "large": {"sum": 0.97, "note": 0.0, "load": 0.98, "reply": 0.98},
}
SETTINGS = """
pool = ["calculator", "notes", "small", "large", "van"]
conductor = "fixed:single"
[server]
port = 0
[workers.calculator]
kind = "python"
description = "Sums, on the phone."
[workers.notes]
kind = "python"
description = "Notes about customers, on the phone only."
[workers.small]
kind = "chat"
description = "Quick and cheap."
base_url = "{url}"
model = "{small}"
max_output_tokens = 60
temperature = 0.0
timeout = 300
concurrency = 1
price = {{ input = 0.4, output = 0.4 }}
[workers.large]
kind = "chat"
description = "Slow and careful."
base_url = "{url}"
model = "{large}"
max_output_tokens = 60
temperature = 0.0
timeout = 300
concurrency = 1
price = {{ input = 20.0, output = 20.0 }}
[workers.van]
kind = "scripted"
description = "Sends a van (simulated)."
answers = "simulated: the van is on its way"
approval = "always"
effect = "write"
price = {{ call = 35.0 }}
"""
PEOPLE = ("Mika Aho", "Ines Duarte", "Tom Reed", "Aya Sato", "Jon Berg")


@dataclass(frozen=True, slots=True)
class Errand:
    """A task of the day: its type, its text, the right answer, whether it is private."""

    type: str
    text: str
    answer: str
    private: bool = False


def make_errands(count: int, seed: int) -> list[Errand]:
    """Return a day's tasks."""
    rng, found = random.Random(seed), list[Errand]()  # noqa: S311 - a made-up day, the same each time
    for _ in range(count):
        crates, each, extra = rng.randint(3, 40), rng.randint(2, 30), rng.randint(1, 90)
        person, gate = rng.choice(PEOPLE), rng.randint(1000, 9999)
        total = str(crates * each + extra)
        match rng.choices(("sum", "note", "load", "reply"), (4, 2, 2, 3))[0]:
            case "sum":
                found.append(Errand("sum", f"What is {crates} * {each} + {extra}?", total, private=rng.random() < 0.3))
            case "note":
                found.append(Errand("note", f"note: gate code of {person} is {gate}", "noted", private=True))
            case "load":
                text = f"A van has {crates} crates of {each} parcels and {extra} loose ones. How many parcels?"
                found.append(Errand("load", text, total))
            case "reply":
                found.append(
                    Errand("reply", f"Tell customer {gate} in one line: we come at {each % 12 + 8}.", str(gate))
                )
    return found


def is_right(errand: Errand, answer: str) -> bool:
    """Whether an answer holds what it must."""
    return errand.answer in answer


def chance(worker: str, text: str) -> float:
    """Return a number from 0 to 1, the same each time."""
    return int(sha256(f"{worker} {text}".encode()).hexdigest()[:8], 16) / 2**32


def reply(known: dict[str, Errand], asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Return what a simulated model says: right as often as RIGHT says."""
    said = " ".join(text for _, text in asked.messages)
    errand = next((known[text] for text in sorted(known, key=len, reverse=True) if text in said), None)
    if errand is None:
        return ScriptedAnswer(text="simulated: this model knows the example's tasks only")
    text = errand.text
    worker = asked.model.removeprefix("simulated-")
    good = chance(worker, text) < RIGHT[worker][errand.type]
    return ScriptedAnswer(text=f"simulated: {errand.answer if good else 'not sure'}")


Answers = Mapping[str, tuple[str, float]]  # by worker: what it said, its dollars


def simulated_answers(place: int, errand: Errand, workers: Sequence[str]) -> Answers:
    """Return what workers said of a task of last month: right as often as RIGHT says."""
    return {
        worker: (
            errand.answer if chance(worker, f"{place} {errand.text}") < RIGHT[worker][errand.type] else "not sure",
            PRICES.get(worker, 0.0) * 40e-6,
        )
        for worker in workers
    }


def real_answers(errands: Sequence[Errand]) -> list[Answers]:
    """Return what two models of this machine say of last month's tasks, but for notes, which stay on the phone."""
    found: list[dict[str, tuple[str, float]]] = [{} for _ in errands]
    for name, model in REAL.items():
        price = {"input": PRICES[name], "output": PRICES[name]}
        worker = {"spec": f"local:{model}", "price": price, "temperature": 0.0, "max_output_tokens": 60}
        with Shikisha([{"name": name, "timeout": 300, **worker}]) as pool:
            for said, errand in zip(found, errands, strict=True):
                if errand.type != "note":
                    try:
                        result = pool.run(errand.text)
                        said[name] = result.answer, result.dollars or 0.0
                    except RunFailed as failed:  # no answer is a wrong one
                        said[name] = f"no answer: {failed.why}", 0.0
    return list(found)


def write_log(folder: Path, errands: Sequence[Errand], answers: Sequence[Answers]) -> None:
    """Write last month's tasks as a log: each by the workers that answered it."""
    folder.mkdir()
    tasks, rows = list[str](), list[str]()
    for place, (errand, said) in enumerate(zip(errands, answers, strict=True)):
        task = {"task_id": f"t{place}", "domain": errand.type, "prompt": errand.text, "answer": errand.answer}
        tasks.append(json.dumps({**task, "answer_kind": "text"}))
        for worker, (answer, dollars) in said.items():
            row = {"task_id": f"t{place}", "worker": worker, "score": float(is_right(errand, answer))}
            row |= {"input_tokens": 30, "output_tokens": 10, "cost_usd": dollars, "cost_kind": "recorded"}
            rows.append(json.dumps({**row, "answer": answer}))
    (folder / "tasks.jsonl").write_text("\n".join(tasks) + "\n")
    (folder / "outcomes.jsonl").write_text("\n".join(rows) + "\n")


async def command(folder: Path, *line: str) -> str:
    """Run a command as a person would, and show what it says."""
    print(f"\n$ shikisha {' '.join(line)}", flush=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "shikisha",
        *line,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told = (await process.communicate())[0].decode()
    print(told.rstrip())
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}")
    return told


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Run the server, with a link for a phone."""
    print("\n$ shikisha serve --phone", flush=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", "serve", "--json", "--phone", "--journal", "runs.db"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        line = b"" if process.stdout is None else await process.stdout.readline()
        yield json.loads(line)
    finally:
        process.terminate()
        await process.wait()


class PageHandler(SimpleHTTPRequestHandler):
    """Serves the page, and passes `/v1/` on to the server: a browser then has one name for both."""

    extensions_map = {  # noqa: RUF012 - the base class has one
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, server_url: str, *given: object, **more: object) -> None:
        self.server_url = server_url
        super().__init__(*given, **more)  # type: ignore[arg-type]  # the base class's own

    def do_POST(self) -> None:
        """Pass a request on."""
        names = ("Content-Type", "Authorization", "X-Shikisha-Workers", "X-Shikisha-Domain")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            asked = Request(self.server_url + self.path, body, headers)  # noqa: S310 - our own server
            answer = urlopen(asked, timeout=SLOW)  # noqa: S310
        except HTTPError as error:
            answer = error
        with answer:
            told = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "X-Shikisha-Cost", "X-Shikisha-Run-Id"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(told)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


PERFORM = """async ([tasks, key]) => {
  const { device, local } = window.shikisha, found = [];
  for (const task of tasks) {
    const decided = await device.decide(task);
    const failed = error => ({ answer: error.message, dollars: 0, failed: true });
    const done = await device.perform(task, decided, local, key).catch(failed);
    const worker = decided.plan.map(step => step.worker).join();
    found.push({ failed: false, ...done, where: decided.where, worker, ms: decided.ms });
  }
  return found;
}"""
LARGE = """async ([tasks, key]) => {
  const { ask } = await import("./device.js"), found = [];
  for (const task of tasks) found.push(await ask("", { text: task.text, type: task.type }, key, ["large"])
    .catch(error => ({ answer: error.message, dollars: 0 })));
  return found;
}"""


@dataclass(frozen=True, slots=True)
class Day:
    """What a day came to: the device's results, those of the large model, and what the phone sent."""

    device: list[dict[str, object]]
    large: list[dict[str, object]]
    private_requests: int
    leaked: int


async def work(browser: Browser, url: str, key: str, errands: Sequence[Errand]) -> Day:
    """Do the day's tasks on the phone; its network log says what was sent."""
    page = await (await browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)).new_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.url} {request.post_data or ''}"))
    await page.goto(url)
    await page.wait_for_selector("#go:enabled", timeout=120_000)
    results: list[dict[str, object]] = []
    private = 0
    for errand in errands:
        before = len(sent)
        task = {"text": errand.text, "type": errand.type, "private": errand.private}
        results += await page.evaluate(PERFORM, [[task], key])
        private += len(sent) - before if errand.private else 0
    leaked = sum(errand.text in each for errand in errands if errand.private for each in sent)
    tasks = [{"text": errand.text, "type": errand.type} for errand in errands]
    return Day(results, await page.evaluate(LARGE, [tasks, key]), private, leaked)


async def send_van(browser: Browser, at: dict[str, str]) -> str:
    """Send a van: the phone adds a passkey, and says yes with it; return what became of the run."""
    context = await browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = await context.new_page()
    cdp = await context.new_cdp_session(page)
    await cdp.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    await cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    home = at["url"].replace("127.0.0.1", "localhost")  # browsers allow passkeys there without TLS
    await page.goto(at["link"].replace("127.0.0.1", "localhost"))
    await page.get_by_role("button", name="Log this device in").tap()
    await page.wait_for_url("**/ui/approvals")
    await page.goto(f"{home}/ui/device")
    await page.get_by_role("button", name="Add a passkey").tap()
    await page.locator("article.card").wait_for()
    headers = {"Authorization": f"Bearer {at['key']}", "Content-Type": "application/json", "X-Shikisha-Workers": "van"}
    body = {"model": "shikisha", "messages": [{"role": "user", "content": "Send a van to gate 7."}]}
    asking = asyncio.create_task(asyncio.to_thread(post, f"{at['url']}/v1/chat/completions", body, headers))
    approve = page.get_by_role("button", name="Approve with your passkey")
    await page.goto(f"{home}/ui/approvals")
    while not await approve.count():
        if asking.done():
            raise SystemExit(f"the van was not asked for: {asking.exception() or asking.result()!r}")
        await page.wait_for_timeout(200)
        await page.reload()
    print("\nOn the phone:", " ".join((await page.locator("section.ask").inner_text()).split())[:240])
    await approve.tap()
    await page.wait_for_url("**/ui/runs/**")
    await asking
    return await said_yes(page)


async def said_yes(page: Page) -> str:
    """Return what the run's page says about the yes."""
    await page.wait_for_selector("text=by passkey", timeout=30_000)
    return await page.locator("text=by passkey").first.inner_text()


def post(url: str, body: object, headers: dict[str, str]) -> bytes:
    """Send JSON, and return the answer."""
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=90) as answer:  # noqa: S310 - our own server
        return bytes(answer.read())


def summary(errands: Sequence[Errand], day: Day) -> Iterator[str]:
    """Yield what the day came to."""
    device, large = day.device, day.large
    good = [is_right(errand, str(each["answer"])) for errand, each in zip(errands, device, strict=True)]
    other = [is_right(errand, str(each["answer"])) for errand, each in zip(errands, large, strict=True)]
    answered = [each["where"] for each in device if not each["failed"]]
    phone, server = answered.count("device"), answered.count("server")
    none = len(errands) - len(answered)
    yield f"{len(errands)} tasks: {phone} answered on the phone, {server} by the server, {none} by nobody"
    on_phone = sum(right and each["where"] == "device" for right, each in zip(good, device, strict=True))
    yield f"right: {sum(good)} this way ({on_phone} on the phone), {sum(other)} with the large model for every task"
    yield f"spent: ${spent(device):.4f} this way, ${spent(large):.4f} with the large model for every task"
    yield f"a decision on the phone: {median(float(str(each['ms'])) for each in device):.1f} ms (median)"
    private = sum(errand.private for errand in errands)
    yield f"private tasks: {private}; requests while they were done: {day.private_requests}; leaked: {day.leaked}"


def spent(results: Sequence[dict[str, object]]) -> float:
    """Return what results cost."""
    return sum(float(str(each["dollars"])) for each in results)


async def perform(folder: Path, runtime: Path, count: int, seed: int = 29, *, real: bool = False) -> Day:
    """Run the whole example in a folder."""
    errands, logged = make_errands(count, seed), make_errands(24 if real else 240, seed + 1)
    asked = ("calculator", "notes") if real else tuple(RIGHT)
    said = [simulated_answers(place, errand, asked) for place, errand in enumerate(logged)]
    if real:  # in a thread of its own, since a facade runs a loop of its own
        of_models = await asyncio.to_thread(real_answers, logged)
        said = [{**own, **other} for own, other in zip(said, of_models, strict=True)]
    write_log(folder / "log", logged, said)
    known = {errand.text: errand for errand in errands}
    async with AsyncExitStack() as stack:
        url = "local:" if real else await stack.enter_async_context(chat_server(partial(reply, known)))
        models = REAL if real else {name: f"simulated-{name}" for name in REAL}
        (folder / "shikisha.toml").write_text(SETTINGS.format(url=url, **models))
        await command(folder, "learn", "log", "--out", "mobile.policy", "--rung", "table")
        devices = ("--device", "calculator", "--device", "notes")
        export = ("device-export", "mobile.policy", *devices, "--runtime", str(runtime))
        await command(folder, *export, "--out", "web")
        async with serving(folder) as at, async_playwright() as started:
            handler = partial(PageHandler, at["url"], directory=str(folder / "web"))
            page_server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            Thread(target=page_server.serve_forever, daemon=True).start()
            browser = await started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
            try:
                day = await work(browser, f"http://localhost:{page_server.server_port}/", at["key"], errands)
                print("\n" + "\n".join(summary(errands, day)))
                print(await send_van(browser, at))
            finally:
                await browser.close()
                page_server.shutdown()
                page_server.server_close()
    curves = []
    for name, results in (("decided on the device", day.device), ("the large model for every task", day.large)):
        good = sum(is_right(errand, str(each["answer"])) for errand, each in zip(errands, results, strict=True))
        curves.append(Spending(name, [float(str(each["dollars"])) for each in results], f"{good} of {count} right"))
    (folder / "money.svg").write_text(
        money_curve(f"A dispatcher's day, {'real' if real else 'simulated'} models", curves)
    )
    print(f"\nwritten: {folder / 'money.svg'}")
    return day


def main() -> None:
    """Run the example from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--real", action="store_true", help="two models of this machine: " + ", ".join(REAL.values()))
    parser.add_argument("--folder", type=Path, default=Path("mobile-example"))
    parser.add_argument("--runtime", type=Path, help="the folder dist of onnxruntime-web; scripts/onnxruntime-web")
    given = parser.parse_args()
    found = given.runtime or next(iter(sorted((ROOT / ".venv").glob("onnxruntime-web-*/dist"))), None)
    if found is None or not CHROMIUM.exists():
        sys.exit("this needs onnxruntime-web (scripts/onnxruntime-web) and /usr/bin/chromium (scripts/system)")
    given.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(perform(given.folder.resolve(), found.resolve(), given.tasks, real=given.real))


if __name__ == "__main__":
    main()
