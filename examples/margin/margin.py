"""A bounded margin: a vendor triples its price in the middle of the day, and the margin stays what it is to be.

    python examples/margin/margin.py                    # simulated models behind a simulated gateway, named so
    python examples/margin/margin.py --real             # the endpoints of real.toml: two models of this machine

A server with a rate plan (`[plans.pro]` of shikisha.toml) gets requests of two classes, several at once. At half time
the gateway states three times the cost for the best model; with `--real`, the server reads a new price from its file.
`shikisha margin` shows what came of it by class. The same requests by other rules: the best model always, the cheap
one, and, where models are simulated, the mix that was right before the price rose and a rule on keywords. `money.svg`
has what each spent.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import httpx2

from shikisha.config.container import load_config
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha_margin import RatePlanTable

HERE = Path(__file__).parent
REAL = "http://127.0.0.1:4000/v1"
DOLLARS = {"best": 0.006, "cheap": 0.0004}  # of a chat request, on average; one about code costs twice that
SKILL = {"best": 0.95, "cheap": 0.8}
CONDUCTORS = {name: f'"fixed:single?worker={name}"' for name in DOLLARS}
RISE = 3.0
AT_ONCE = 4
SLOW = 600.0  # seconds: a model of this machine answers one request after the other
KEYWORDS = re.compile(r"\b(urgent|contract|race)\b")
SUBJECTS = ("a delivery", "a contract", "an urgent refund", "a password", "an invoice", "a race condition", "a typo")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its text, its class (a task domain), and how many times the price of the beginning holds for it.

    `truth` is the word or number that a right answer of a real model holds.
    """

    text: str
    domain: str
    rise: float
    truth: str = "right"

    def is_answered_by(self, text: str) -> bool:
        """Whether an answer holds what it must, as a word."""
        return re.search(rf"(?<!\w){re.escape(self.truth)}(?!\w)", text, re.IGNORECASE) is not None

    def dollars(self, worker: str) -> float:
        """Return what this worker's answer costs."""
        spread = 0.5 + self._drawn("cost")
        return DOLLARS[worker] * spread * (2 if self.domain == "code" else 1) * (self.rise if worker == "best" else 1.0)

    def is_right(self, worker: str) -> bool:
        """Whether this worker's answer is right; what is hard is hard for both."""
        return self._drawn("skill") < SKILL[worker]

    def _drawn(self, what: str) -> float:
        return int(sha256(f"{what}|{self.text}".encode()).hexdigest()[:8], 16) / 2**32


def requests(count: int, seed: int) -> list[Asked]:
    """Return different requests, one in four about code; for the second half the price of the best model is higher."""
    drawn = random.Random(seed)  # noqa: S311  requests, no secrets
    made = []
    for number in range(count):
        domain = "code" if drawn.random() < 0.25 else "chat"
        rise = RISE if number >= count // 2 else 1.0
        made.append(Asked(f"Request {seed}-{number} ({domain}) about {drawn.choice(SUBJECTS)}.", domain, rise))
    return made


def real_requests(count: int, seed: int) -> list[Asked]:
    """Return different requests whose answers are known, one in four about code."""
    drawn, made = random.Random(seed), dict[str, Asked]()  # noqa: S311  requests, no secrets
    while len(made) < count:
        domain = "code" if drawn.random() < 0.25 else "chat"
        number, low, high = drawn.randint(10_000, 99_999), drawn.randint(2, 9), drawn.randint(11, 40)
        text, truth = drawn.choice(
            [
                (f"Which number does this Python program print? print({low} * {high})", str(low * high)),
                (f"Which number does this Python program print? print(len('{'ab' * low}'))", str(2 * low)),
            ]
            if domain == "code"
            else [
                (f"Give me the order number in this mail: 'Order {number} is late by {low} days.'", str(number)),
                (f"A box holds {high} cups. {low} of them are broken. How many are whole?", str(high - low)),
            ]
        )
        made.setdefault(text, Asked(text, domain, RISE if len(made) >= count // 2 else 1.0, truth))
    return list(made.values())


def playing(every: Sequence[Asked]) -> Callable[[ReceivedChatRequest], ScriptedAnswer]:
    """Return the simulated models and gateway."""
    known = {asked.text: asked for asked in every}

    def answer(received: ReceivedChatRequest) -> ScriptedAnswer:
        worker, asked = received.model.removeprefix("simulated-"), known[received.messages[0][1].partition("\n")[0]]
        return ScriptedAnswer(text="right" if asked.is_right(worker) else "wrong", cost=asked.dollars(worker))

    return answer


@dataclass(frozen=True, slots=True)
class Served:
    """What came of a request: whether the answer is right, its dollars, and whether there is an answer at all."""

    right: bool
    dollars: float
    answered: bool = True


async def serve(folder: Path, every: Sequence[Asked], risen: str = "") -> list[Served]:
    """Send the requests to a server, a few at once, and return what came of each; a failed one is a wrong answer.

    With `risen`, the text of a configuration, the server reads that one before the second half.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--journal", "margin.db"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    came: dict[int, Served] = {}
    try:
        assert process.stdout is not None  # noqa: S101  it is a pipe
        told = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {told['key']}"}
        async with httpx2.AsyncClient(base_url=told["url"], headers=headers, timeout=SLOW) as client:
            half = len(every) // 2
            await _send(client, list(enumerate(every))[:half], came)
            if risen:
                pinned = await _models(client)
                (folder / "shikisha.toml").write_text(risen)
                process.send_signal(signal.SIGHUP)
                async with asyncio.timeout(SLOW):
                    while await _models(client) == pinned:  # noqa: ASYNC110  a pinned name tells the prices in force
                        await asyncio.sleep(0.1)
            await _send(client, list(enumerate(every))[half:], came)
    finally:
        process.terminate()
        await process.wait()
    return [came[place] for place in range(len(every))]


async def _models(client: httpx2.AsyncClient) -> list[str]:
    return [each["id"] for each in (await client.get("/v1/models")).raise_for_status().json()["data"]]


async def _send(client: httpx2.AsyncClient, requests: Sequence[tuple[int, Asked]], came: dict[int, Served]) -> None:
    order = iter(requests)

    async def send() -> None:
        for place, asked in order:
            body = {"model": "shikisha", "messages": [{"role": "user", "content": asked.text}]}
            answer = await client.post("/v1/chat/completions", json=body, headers={"x-shikisha-domain": asked.domain})
            dollars = float(answer.headers.get("x-shikisha-cost", 0.0))
            if answer.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:  # no model answered; a 4xx is a mistake here
                came[place] = Served(right=False, dollars=dollars, answered=False)
                continue
            said = answer.raise_for_status().json()["choices"][0]["message"]["content"] or ""
            came[place] = Served(asked.is_answered_by(said), dollars)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(send())


async def show_margin(folder: Path) -> str:
    """Run `shikisha margin` as a person would."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", "margin", "--journal", "margin.db"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    return (await process.communicate())[0].decode()


def by_rule(every: Sequence[Asked], choose: Callable[[Asked], str]) -> list[Served]:
    """Return what a rule comes to by the simulated models."""
    return [Served(asked.is_right(worker), asked.dollars(worker)) for asked in every for worker in [choose(asked)]]


async def main(arguments: Sequence[str] | None = None) -> None:
    """Serve, show, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1200, help="Requests in all; the price rises at half of them.")
    parser.add_argument("--seed", type=int, default=1, help="The seed of the requests and of the random mix.")
    parser.add_argument("--real", action="store_true", help="Call the endpoints of real.toml.")
    parser.add_argument("--folder", type=Path, default=Path("margin-example"), help="Where to write.")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.real:
        every = real_requests(given.requests, given.seed)
        show(given, every, await serve_real(given.folder, every))
        return
    every = requests(given.requests, given.seed)
    async with AsyncExitStack() as stack:
        url, names = await stack.enter_async_context(chat_server(playing(every))), iter(DOLLARS)
        text = (HERE / "shikisha.toml").read_text().replace(REAL, url)
        text = re.sub(r'^model = ".*"', lambda _: f'model = "simulated-{next(names)}"', text, flags=re.M)
        (given.folder / "shikisha.toml").write_text(text)
        served = await serve(given.folder, every)
    print(await show_margin(given.folder))
    show(given, every, {"the rate plan": served, **simulated_controls(given.seed, every, served)})


async def serve_real(folder: Path, every: Sequence[Asked]) -> dict[str, list[Served]]:
    """Serve the requests by the rate plan, by the best model and by the cheap one, each with a server of its own."""
    both = CONDUCTORS["best"] + ", " + CONDUCTORS["cheap"]
    ways = {"the rate plan": both, "always the best": CONDUCTORS["best"], "always the cheap one": CONDUCTORS["cheap"]}
    found = {}
    for name, conductors in ways.items():
        own = folder / name.replace(" ", "-")
        own.mkdir()
        text = (HERE / "real.toml").read_text().replace(both, conductors)
        prices = re.search(r"price = \{ input = (\S+), output = (\S+) \}", text)  # those of the best, the first one
        assert prices is not None  # noqa: S101  real.toml has them
        risen = f"price = {{ input = {RISE * float(prices[1])}, output = {RISE * float(prices[2])} }}"
        (own / "shikisha.toml").write_text(text)
        found[name] = await serve(own, every, text.replace(prices[0], risen, 1))
        if name == "the rate plan":
            print(await show_margin(own))
    return found


def simulated_controls(seed: int, every: Sequence[Asked], served: Sequence[Served]) -> dict[str, list[Served]]:
    """Return what other rules come to by the simulated models."""
    drawn = random.Random(seed)  # noqa: S311  no secret
    half = len(every) // 2
    old = by_rule(every[:half], lambda _: "best"), by_rule(every[:half], lambda _: "cheap")
    spent = [sum(each.dollars for each in one) for one in (served[:half], *old)]
    share = (spent[0] - spent[2]) / (spent[1] - spent[2])
    return {
        "always the best": by_rule(every, lambda _: "best"),
        "always the cheap one": by_rule(every, lambda _: "cheap"),
        "the mix that was right before": by_rule(every, lambda _: "best" if drawn.random() < share else "cheap"),
        "the best where a keyword says so": by_rule(
            every, lambda asked: "best" if KEYWORDS.search(asked.text) else "cheap"
        ),
    }


def show(given: argparse.Namespace, every: Sequence[Asked], ways: Mapping[str, Sequence[Served]]) -> None:
    """Print and draw margins before and after the rise, next to the controls."""
    settings = HERE / ("real.toml" if given.real else "shikisha.toml")
    plan = RatePlanTable.model_validate(load_config(settings).settings.plans["pro"])
    half = len(every) // 2
    figures = {}
    for name, came in ways.items():
        figures[name] = {
            "right": sum(each.right for each in came) / len(came),
            **{
                f"{domain} {when}": _margin(every, came, domain, part, plan.revenue(domain))
                for domain in ("chat", "code")
                for when, part in (("before", range(half)), ("after", range(half, len(every))))
            },
        }
        shown = ", ".join(f"{place} {share:.1%}" for place, share in figures[name].items())
        failed = sum(not each.answered for each in came)
        print(f"{name:34} {shown}" + (f"; {failed} without an answer" if failed else ""))
    (given.folder / "margin.json").write_text(json.dumps(figures))
    lines = [
        Spending(name, [each.dollars for each in came], f"{figures[name]['right']:.1%} right")
        for name, came in ways.items()
    ]
    kind = "two models of this machine" if given.real else "simulated models"
    drawing = money_curve(f"{len(every)} requests, {kind}", lines, [(half, "the price triples")])
    (given.folder / "money.svg").write_text(drawing)


def _margin(every: Sequence[Asked], came: Sequence[Served], domain: str, part: range, revenue: float) -> float:
    costs = [came[place].dollars for place in part if every[place].domain == domain]
    return 1 - sum(costs) / (len(costs) * revenue) if costs else float("nan")


if __name__ == "__main__":
    asyncio.run(main())
