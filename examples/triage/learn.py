"""Support triage that learns: does a ticket get an article of the knowledge base, a drafted answer, or a person?

    shikisha models pull qwen2.5-coder-0.5b
    python examples/triage/learn.py                                # the draft is by a real model of this machine
    python examples/triage/learn.py --model qwen2.5-coder-1.5b     # a larger one; or write your own into learning.toml

Search and drafts are real. Tickets are made of the articles, so that it is known what resolves each: an article to
read up on, one fact out of an article, or something that only a person can do. The person is played: always right, at
$2 a ticket. For the first tickets all three answer, a policy is learned of that, and it decides about the rest.
`triage.json` and `money.svg` have it next to each channel alone and to a rule.
"""

import argparse
import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shikisha import Card, Engine, Member, Pool, Reply, Request, Task
from shikisha.config.container import load_config
from shikisha.core.budget import Price
from shikisha.engine.recorder import MemoryRecorder
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.retrieval.text_index import IndexedText, TextIndex

HERE = Path(__file__).parent
KNOWLEDGE, DRAFT, PERSON = CHANNELS = ("knowledge", "draft", "person")
PERSON_DOLLARS = 2.0  # of six minutes
# What customers choose in the form, and how often they choose the wrong one.
FORM, SLIP = ("about a product", "one question", "something went wrong"), 0.1
PRODUCTS = ("Maple Account", "Maple Plus Account", "Cedar Card", "Cedar Gold Card", "Birch Savings", "Birch Junior")
FACTS = {
    "fee": ("The {p} costs {n} dollars a month.", "How many dollars does the {p} cost a month?"),
    "spending": ("With the {p} you can spend {n} dollars a day.", "How many dollars can I spend a day with the {p}?"),
    "age": ("To open the {p}, a customer is at least {n} years old.", "How old must I be to open the {p}?"),
    "closing": ("The {p} closes {n} days after the request.", "After how many days does the {p} close?"),
    "dispute": (
        "A charge on the {p} can be disputed within {n} days.",
        "How many days do I have to dispute a charge on the {p}?",
    ),
}
BRIEFLY = "Answer in a few words, from the article above."
OVERVIEW = ("Tell me all about the {p}.", "I want to read up on the {p}.", "What are the conditions of the {p}?")
TROUBLE = (
    "You charged my {p} twice, please return the money.",
    "I lost my {p}, block it now!",
    "Somebody else signed in to my {p}.",
    "Your colleague promised me a refund for the {p} last week. Where is it?",
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket, what was chosen in the form, and the numbers that an answer must name and must not name.

    Who asks for one fact is not served by an article with five; who wants to read up is not served by one fact.
    """

    name: str
    text: str
    form: str
    needed: frozenset[int]
    other: frozenset[int]

    def is_resolved(self, channel: str, answer: str) -> bool:
        """Whether this answer of a channel is what the customer needs."""
        numbers = set(map(int, re.findall(r"\d+", answer)))
        return channel == PERSON or (bool(self.needed) and self.needed <= numbers and not self.other & numbers)


def articles_and_tickets(count: int, seed: int) -> tuple[list[str], list[Ticket]]:
    """Return the articles, one for each product, and tickets about them."""
    drawn = random.Random(seed)  # noqa: S311 - an example's numbers
    numbers = {product: dict(zip(FACTS, drawn.sample(range(2, 90), len(FACTS)), strict=True)) for product in PRODUCTS}
    articles = [" ".join(FACTS[fact][0].format(p=p, n=n) for fact, n in facts.items()) for p, facts in numbers.items()]
    tickets = []
    for place in range(count):
        product, fact = drawn.choice(PRODUCTS), drawn.choice(list(FACTS))
        kind, every = drawn.choices((0, 1, 2), (3, 5, 2))[0], frozenset(numbers[product].values())
        text = (drawn.choice(OVERVIEW), FACTS[fact][1], drawn.choice(TROUBLE))[kind].format(p=product)
        form = drawn.choice(FORM) if drawn.random() < SLIP else FORM[kind]
        needed = (every, frozenset({numbers[product][fact]}), frozenset[int]())[kind]
        tickets.append(Ticket(f"ticket-{place}", text, form, needed, every - needed))
    return articles, tickets


@dataclass(frozen=True, slots=True)
class Knowledge:
    """A worker: replies with the article that fits the ticket best."""

    articles: Sequence[str]
    index: TextIndex

    def best(self, text: str) -> str:
        """Return the article; empty where nothing fits."""
        places = self.index.search(text, 1).positions
        return self.articles[int(places[0])] if len(places) else ""

    async def perform(self, request: Request) -> Reply:
        """Search."""
        return Reply(self.best(request.task.prompt) or "Nothing is known about this.")


class PlayedPerson:
    """A worker in the place of a person; a real one is `kind = "human"`."""

    async def perform(self, request: Request) -> Reply:  # noqa: ARG002 - a person reads it
        """Answer."""
        return Reply("A person has taken care of it.")


@dataclass(frozen=True, slots=True)
class Came:
    """What an answer came to."""

    channel: str
    right: bool
    dollars: float


async def answered(settings: Path, knowledge: Knowledge, tickets: Sequence[Ticket], conductor: str) -> list[Came]:
    """Have the tickets answered under this conductor."""
    container = load_config(settings)
    own = [
        Member(Card(KNOWLEDGE, "Finds the article that fits."), knowledge),
        Member(Card(PERSON, "Takes care of it.", price=Price(call=PERSON_DOLLARS)), PlayedPerson()),
    ]
    pool = Pool([*container.pool(), *own])
    conducts, came = container.conductor(conductor, pool), []
    for ticket in tickets:
        task = Task(f"{ticket.text} {BRIEFLY}", knowledge.best(ticket.text), id=ticket.name, domain=ticket.form)
        run = await Engine(MemoryRecorder()).run(task, pool, conducts, container.caps)
        last = next(turn.plan for turn in reversed(run.rounds) if turn.plan and turn.plan.steps)
        channel = pool.names[last.steps[-1].worker]
        came.append(Came(channel, ticket.is_resolved(channel, run.answer or ""), run.charged.dollars or 0.0))
    await container.aclose()
    return came


def write_log(folder: Path, tickets: Sequence[Ticket], every: Mapping[str, Sequence[Came]]) -> None:
    """Write what all channels came to as an outcome log."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [{"task_id": each.name, "domain": each.form, "prompt": f"{each.text} {BRIEFLY}"} for each in tickets]
    rows = [
        {"task_id": ticket.name, "worker": name, "score": float(one.right), "cost_usd": one.dollars}
        for name, came in every.items()
        for ticket, one in zip(tickets, came, strict=True)
    ]
    for name, lines in (("tasks", tasks), ("outcomes", rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


async def learn(folder: Path) -> None:
    """Learn a policy from the log, as a person would."""
    command = (sys.executable, "-m", "shikisha", "learn", "log", "--out", "our.policy")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    said = (await process.communicate())[0].decode()
    if process.returncode:
        sys.exit(said)


async def main(arguments: Sequence[str] | None = None) -> None:
    """Answer, learn, decide, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickets", type=int, default=300, help="Tickets in all.")
    parser.add_argument("--first", type=int, default=150, help="Of these, how many to learn from.")
    parser.add_argument("--quality", default="0.95", help="The share of a person's quality that the policy is to keep.")
    parser.add_argument("--model", default="", help="A model of this machine in place of that of learning.toml.")
    parser.add_argument("--seed", type=int, default=1, help="The seed of the tickets.")
    parser.add_argument("--folder", type=Path, default=Path("triage-example"), help="Where to write.")
    given = parser.parse_args(arguments)
    if not 100 <= given.first < given.tickets:
        sys.exit("--first: expected at least 100 tickets to learn from, and fewer than --tickets")
    given.folder.mkdir(parents=True, exist_ok=True)
    settings, text = given.folder / "learning.toml", (HERE / "learning.toml").read_text()
    settings.write_text(re.sub('^model = ".*"', f'model = "{given.model}"', text, flags=re.M) if given.model else text)
    articles, tickets = articles_and_tickets(given.tickets, given.seed)
    knowledge = Knowledge(articles, TextIndex([IndexedText("", (each,)) for each in articles], (1.0,)))
    every = {name: await answered(settings, knowledge, tickets, f"fixed:single?worker={name}") for name in CHANNELS}
    write_log(given.folder / "log", tickets[: given.first], {name: came[: given.first] for name, came in every.items()})
    await learn(given.folder)
    policy = f"policy:{given.folder / 'our.policy'}?quality={given.quality}"
    decided = await answered(settings, knowledge, tickets[given.first :], policy)
    show(given, tickets, every, decided)


def show(
    given: argparse.Namespace, tickets: Sequence[Ticket], every: Mapping[str, Sequence[Came]], decided: Sequence[Came]
) -> None:
    """Print and draw what it came to on the tickets that the policy decided, next to the controls."""
    rest = tickets[given.first :]

    def by(choose: Callable[[Ticket], str]) -> list[Came]:
        return [every[choose(ticket)][given.first + place] for place, ticket in enumerate(rest)]

    ways = {
        "the policy that was learned": list(decided),
        **{f"always {name}": by(lambda _, name=name: name) for name in CHANNELS},  # type: ignore[misc]
        "a rule: the form names the channel": by(lambda each: CHANNELS[FORM.index(each.form)]),
    }
    figures = {
        name: {"right": sum(one.right for one in came) / len(came), "dollars": sum(one.dollars for one in came)}
        for name, came in ways.items()
    }
    print(f"{given.first} tickets to learn from, {len(rest)} decided:")
    for name, figure in figures.items():
        print(f"  {name:36} {figure['right']:6.1%} resolved, ${figure['dollars']:.2f}")
    for form in FORM:
        chosen = Counter(one.channel for one, ticket in zip(decided, rest, strict=True) if ticket.form == form)
        print(f"  {form}: " + ", ".join(f"{channel} {count}" for channel, count in chosen.most_common()))
    (given.folder / "triage.json").write_text(json.dumps(figures))
    lines = [
        Spending(n, [one.dollars for one in came], f"{figures[n]['right']:.1%} resolved") for n, came in ways.items()
    ]
    (given.folder / "money.svg").write_text(money_curve(f"{len(rest)} tickets", lines))


if __name__ == "__main__":
    asyncio.run(main())
