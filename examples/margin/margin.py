"""A bounded margin: a vendor triples its price in the middle of the day, and the margin stays what it is to be.

    python examples/margin/margin.py                    # simulated models behind a simulated gateway, named so
    python examples/margin/margin.py --real             # the endpoints of shikisha.toml: `shikisha margin` alone

A server with a rate plan (`[plans.pro]` of shikisha.toml) gets requests of two classes, several at once. At half time
the gateway states three times the cost for the best model. `shikisha margin` shows what came of it by class. The same
requests by other rules: the best model always, the cheap one, the mix that was right before the price rose, and a rule
on keywords. `money.svg` has what each spent.
"""

import argparse
import asyncio
import json
import random
import re
import sys
from collections.abc import Callable, Sequence
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
RISE = 3.0
AT_ONCE = 4
KEYWORDS = re.compile(r"\b(urgent|contract|race)\b")
SUBJECTS = ("a delivery", "a contract", "an urgent refund", "a password", "an invoice", "a race condition", "a typo")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its text, its class (a task domain), and how many times the price of the beginning holds for it."""

    text: str
    domain: str
    rise: float

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


def playing(every: Sequence[Asked]) -> Callable[[ReceivedChatRequest], ScriptedAnswer]:
    """Return the simulated models and gateway."""
    known = {asked.text: asked for asked in every}

    def answer(received: ReceivedChatRequest) -> ScriptedAnswer:
        worker, asked = received.model.removeprefix("simulated-"), known[received.messages[0][1].partition("\n")[0]]
        return ScriptedAnswer(text="right" if asked.is_right(worker) else "wrong", cost=asked.dollars(worker))

    return answer


@dataclass(frozen=True, slots=True)
class Served:
    """What came of a request: whether the answer is right, and its dollars."""

    right: bool
    dollars: float


async def serve(folder: Path, every: Sequence[Asked]) -> list[Served]:
    """Send the requests to a server, a few at once, and return what came of each."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--journal", "margin.db"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    came: dict[int, Served] = {}
    order = iter(enumerate(every))
    try:
        assert process.stdout is not None  # noqa: S101  it is a pipe
        told = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {told['key']}"}
        async with (
            httpx2.AsyncClient(base_url=told["url"], headers=headers, timeout=60) as client,
            asyncio.TaskGroup() as group,
        ):

            async def send() -> None:
                for place, asked in order:
                    body = {"model": "shikisha", "messages": [{"role": "user", "content": asked.text}]}
                    answer = await client.post(
                        "/v1/chat/completions", json=body, headers={"x-shikisha-domain": asked.domain}
                    )
                    said = answer.raise_for_status().json()["choices"][0]["message"]["content"]
                    came[place] = Served(said == "right", float(answer.headers["x-shikisha-cost"]))

            for _ in range(AT_ONCE):
                group.create_task(send())
    finally:
        process.terminate()
        await process.wait()
    return [came[place] for place in range(len(every))]


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
    parser.add_argument("--real", action="store_true", help="Call the endpoints of shikisha.toml.")
    parser.add_argument("--folder", type=Path, default=Path("margin-example"), help="Where to write.")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    every = requests(given.requests, given.seed)
    async with AsyncExitStack() as stack:
        text = (HERE / "shikisha.toml").read_text()
        if not given.real:
            url = await stack.enter_async_context(chat_server(playing(every)))
            names = iter(DOLLARS)
            text = re.sub(
                r'^model = ".*"', lambda _: f'model = "simulated-{next(names)}"', text.replace(REAL, url), flags=re.M
            )
        (given.folder / "shikisha.toml").write_text(text)
        served = await serve(given.folder, every)
    print(await show_margin(given.folder))
    if not given.real:  # of real models nobody knows here what is right, or what another would have cost
        compare(given, every, served)


def compare(given: argparse.Namespace, every: Sequence[Asked], served: Sequence[Served]) -> None:
    """Print and draw margins before and after the rise, next to the controls."""
    plan = RatePlanTable.model_validate(load_config(given.folder / "shikisha.toml").settings.plans["pro"])
    drawn = random.Random(given.seed)  # noqa: S311  no secret
    half = len(every) // 2
    old = by_rule(every[:half], lambda _: "best"), by_rule(every[:half], lambda _: "cheap")
    spent = [sum(each.dollars for each in one) for one in (served[:half], *old)]
    share = (spent[0] - spent[2]) / (spent[1] - spent[2])
    ways = {
        "the rate plan": list(served),
        "always the best": by_rule(every, lambda _: "best"),
        "always the cheap one": by_rule(every, lambda _: "cheap"),
        "the mix that was right before": by_rule(every, lambda _: "best" if drawn.random() < share else "cheap"),
        "the best where a keyword says so": by_rule(
            every, lambda asked: "best" if KEYWORDS.search(asked.text) else "cheap"
        ),
    }
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
        print(f"{name:34} {shown}")
    (given.folder / "margin.json").write_text(json.dumps(figures))
    lines = [
        Spending(name, [each.dollars for each in came], f"{figures[name]['right']:.1%} right")
        for name, came in ways.items()
    ]
    drawing = money_curve(f"{len(every)} requests, simulated models", lines, [(half, "the price triples")])
    (given.folder / "money.svg").write_text(drawing)


def _margin(every: Sequence[Asked], came: Sequence[Served], domain: str, part: range, revenue: float) -> float:
    costs = [came[place].dollars for place in part if every[place].domain == domain]
    return 1 - sum(costs) / (len(costs) * revenue)


if __name__ == "__main__":
    asyncio.run(main())
