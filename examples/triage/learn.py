"""Support triage as a policy that learns: whose draft does a ticket need, given what the knowledge base found?

    python examples/triage/learn.py                                       # a small knowledge base of the example's own
    python examples/triage/learn.py --documents tau2-bench                # a local clone: its 698 banking documents

The search is real (`shikisha.retrieval`). The drafting models are simulated, and named so: the small one takes what the
first article says, the large one finds the right article among the first three. For the first tickets both draft, and
the large one's draft is used; a policy is learned from that; it decides about all others. The cost of learning counts.
Controls: the large model for every ticket, the small one, a random mix of the same share, and a rule on keywords.
`--real` calls the models of learning.toml for the drafts, which then name the article that they used.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from shikisha import Engine, Task
from shikisha.config.container import load_config
from shikisha.engine.recorder import MemoryRecorder
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.retrieval.text_index import IndexedText, TextIndex
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

HERE = Path(__file__).parent
REAL = "http://127.0.0.1:11434/v1"
SMALL, LARGE = "small", "large"
BANKING = "data/tau2/domains/banking_knowledge/documents"
SHOWN = 3  # articles of a ticket
MOST_ARTICLE = 1_200  # characters of one
# Right drafts of the simulated models, by the place of the right article: first, second or third, not among them.
SKILL = {SMALL: (0.97, 0.3, 0.02), LARGE: (0.97, 0.95, 0.05)}
PRICES = {SMALL: (0.1, 0.4), LARGE: (2.5, 10.0)}  # dollars per million tokens in and out, as in learning.toml
KEYWORDS = re.compile(r"\b(fee|limit|how many|closed|dispute|why)\b", re.IGNORECASE)
SURE = (0.03, 0.08, 0.15, 0.3, 0.5)  # how far the first article is ahead: limits of the classes of tickets
_WORDS = re.compile(r"[A-Za-z][A-Za-z-]{2,}")
_OPENINGS = (
    "Hello, a question:",
    "I need help with",
    "Please explain",
    "My customer asks about",
    "What is the rule for",
)


@dataclass(frozen=True, slots=True)
class Article:
    """An article of the knowledge base."""

    name: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket: its text, the article that answers it, what the search found, and how sure the search is."""

    name: str
    text: str
    right: str
    found: tuple[Article, ...]
    sureness: str

    @property
    def place(self) -> int:
        """The place of the right article: 0 first, 1 second or third, 2 not found."""
        names = [article.name for article in self.found]
        return 2 if self.right not in names else min(1, names.index(self.right))

    @property
    def context(self) -> str:
        """What a model is shown besides the ticket."""
        return "\n\n".join(f"[{each.name}] {each.title}\n{each.text[:MOST_ARTICLE]}" for each in self.found)


def banking_articles(clone: Path) -> list[Article]:
    """Return the banking documents of a local clone of tau2-bench; nothing of them is kept."""
    show = ["git", "-C", str(clone)]
    listed = subprocess.run(  # noqa: S603 - no shell
        [*show, "ls-tree", "-r", "--name-only", "HEAD", BANKING], capture_output=True, text=True, check=False
    )
    names = listed.stdout.splitlines()
    if listed.returncode or not names:
        sys.exit(f"--documents: expected a local clone of tau2-bench with {BANKING}, found none in {clone}")
    asked = "".join(f"HEAD:{name}\n" for name in names).encode()
    packed = subprocess.run([*show, "cat-file", "--batch"], input=asked, capture_output=True, check=True).stdout  # noqa: S603 - no shell
    found, at = [], 0
    for _ in names:
        end = packed.index(b"\n", at)
        size = int(packed[at:end].split()[-1])
        document = json.loads(packed[end + 1 : end + 1 + size])
        found.append(Article(document["id"], document["title"], document["content"]))
        at = end + 2 + size
    return found


def own_articles() -> list[Article]:
    """Return the example's own small knowledge base: products by topics, in plain sentences."""
    topics = {
        "fees": "The {p} costs {n} dollars a month. The fee is waived above a balance of {m} dollars.",
        "limits": "With the {p} you can spend {m} dollars a day and withdraw {n} times a month.",
        "opening": "To open the {p}, the customer is verified, is at least {n} years old and deposits {m} dollars.",
        "closing": "The {p} closes {n} days after the request. A balance of {m} dollars or less is paid out by letter.",
        "disputes": "A charge on the {p} is disputed within {n} days. Above {m} dollars a form is signed.",
        "travel": "The {p} works abroad. Each foreign payment costs {n} per mille, at most {m} dollars.",
    }
    products = ("Maple Account", "Maple Plus Account", "Cedar Card", "Cedar Gold Card", "Birch Savings", "Birch Junior")
    drawn = random.Random(0)  # noqa: S311  numbers of an example
    return [
        Article(
            f"{product.lower().replace(' ', '-')}-{topic}",
            f"{product}: {topic}",
            text.format(p=product, n=drawn.randint(2, 60), m=50 * drawn.randint(1, 90)),
        )
        for product in products
        for topic, text in topics.items()
    ]


def tickets(articles: Sequence[Article], count: int, seed: int) -> list[Ticket]:
    """Return tickets about the articles, in words of theirs, with what the search finds for each."""
    drawn = random.Random(seed)  # noqa: S311  tickets, no secrets
    index = TextIndex([IndexedText("", (each.title, each.text)) for each in articles], (2.0, 1.0))
    made = []
    for number in range(count):
        article = drawn.choice(articles)
        words = list(dict.fromkeys(_WORDS.findall(article.text)))
        kept = drawn.sample(words, min(len(words), drawn.randint(3, 9)))
        title = drawn.sample(_WORDS.findall(article.title), 1) if drawn.random() < 0.7 else []
        text = f"{drawn.choice(_OPENINGS)} {' '.join(title + kept)}?"
        found = index.search(text, SHOWN + 1)
        scores = [float(score) for score in found.scores[: SHOWN + 1]]
        ahead = (scores[0] - scores[1]) / scores[0] if len(scores) > 1 else 1.0
        shown = tuple(articles[int(place)] for place in found.positions[:SHOWN])
        sure = sum(ahead >= limit for limit in SURE)
        made.append(Ticket(f"ticket-{number}", text, article.name, shown, f"sure-{sure}"))
    return made


def is_right(worker: str, ticket: Ticket) -> bool:
    """Whether a simulated model drafts the right answer; the same each time, and what is hard is hard for both."""
    drawn = int(sha256(ticket.text.encode()).hexdigest()[:8], 16) / 2**32
    return drawn < SKILL[worker][ticket.place]


def dollars_of(worker: str, ticket: Ticket) -> float:
    """Return about what a draft costs by the list price."""
    price = PRICES[worker]
    return (price[0] * (len(ticket.text) + len(ticket.context)) / 4 + price[1] * 60) / 1e6


def playing(every: Sequence[Ticket]) -> Callable[[ReceivedChatRequest], ScriptedAnswer]:
    """Return the simulated models: each names the article that it used."""
    known = {ticket.text: ticket for ticket in every}

    def answer(asked: ReceivedChatRequest) -> ScriptedAnswer:
        worker = asked.model.removeprefix("simulated-")
        ticket = known[asked.messages[0][1].partition("\n")[0]]
        used = ticket.right if is_right(worker, ticket) else "another article"
        return ScriptedAnswer(
            text=f"According to [{used}], this is so. " + "Please write again if that does not help. " * 4
        )

    return answer


def write_log(folder: Path, shown: Sequence[Ticket], drafts: Mapping[tuple[str, str], tuple[bool, float]]) -> None:
    """Write what both models came to as an outcome log."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [{"task_id": one.name, "domain": one.sureness, "prompt": one.text} for one in shown]
    rows = [
        {"task_id": name, "worker": worker, "score": float(right), "cost_usd": dollars}
        for (name, worker), (right, dollars) in drafts.items()
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    (folder / "outcomes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


async def learn(folder: Path) -> None:
    """Learn a policy from the log, as a person would."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", "learn", "log", "--out", "our.policy"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    if process.returncode:
        sys.exit(said)


async def draft(settings: Path, shown: Sequence[Ticket], conductor: str) -> list[tuple[bool, float]]:
    """Have the tickets drafted under this conductor; return whether each draft is right, and its dollars."""
    container = load_config(settings)
    pool = container.pool()
    conducts = container.conductor(conductor, pool)
    came = []
    for ticket in shown:
        task = Task(ticket.text, ticket.context, id=ticket.name, domain=ticket.sureness)
        run = await Engine(MemoryRecorder()).run(task, pool, conducts, container.caps)
        came.append((f"[{ticket.right}]" in (run.answer or ""), run.charged.dollars or 0.0))
    await container.aclose()
    return came


def by_rule(shown: Sequence[Ticket], choose: Callable[[Ticket], str]) -> list[tuple[bool, float]]:
    """Return what a rule comes to: by the simulated models, at list prices."""
    return [(is_right(worker, one), dollars_of(worker, one)) for one in shown for worker in [choose(one)]]


async def main(arguments: Sequence[str] | None = None) -> None:
    """Search, draft, learn, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickets", type=int, default=2000, help="Tickets in all.")
    parser.add_argument("--first", type=int, default=300, help="Of these, how many to learn from.")
    parser.add_argument("--documents", type=Path, help="A local clone of tau2-bench; without, a small set of our own.")
    parser.add_argument("--seed", type=int, default=1, help="The seed of the tickets.")
    parser.add_argument("--real", action="store_true", help="Call the models of learning.toml.")
    parser.add_argument("--folder", type=Path, default=Path("triage-example"), help="Where to write.")
    given = parser.parse_args(arguments)
    if not 50 <= given.first < given.tickets:
        sys.exit("--first: expected at least 50 tickets to learn from, and fewer than --tickets")
    given.folder.mkdir(parents=True, exist_ok=True)
    articles = banking_articles(given.documents) if given.documents else own_articles()
    every = tickets(articles, given.tickets, given.seed)
    async with AsyncExitStack() as stack:
        text = (HERE / "learning.toml").read_text()
        if not given.real:
            url = await stack.enter_async_context(chat_server(playing(every)))
            names = iter((SMALL, LARGE))
            text = re.sub(
                r'^model = ".*"', lambda _: f'model = "simulated-{next(names)}"', text.replace(REAL, url), flags=re.M
            )
        settings = given.folder / "learning.toml"
        settings.write_text(text)
        first, rest = every[: given.first], every[given.first :]
        both = {worker: await draft(settings, first, f"fixed:single?worker={worker}") for worker in (SMALL, LARGE)}
        log = {
            (one.name, name): came for name, results in both.items() for one, came in zip(first, results, strict=True)
        }
        write_log(given.folder / "log", first, log)
        await learn(given.folder)
        decided = await draft(settings, rest, f"policy:{given.folder / 'our.policy'}?quality=0.995")
    learned = [(right, dollars + both[SMALL][place][1]) for place, (right, dollars) in enumerate(both[LARGE])]
    show(given, every, [*learned, *decided], "our own articles" if given.documents is None else "banking documents")


def show(given: argparse.Namespace, every: Sequence[Ticket], ours: Sequence[tuple[bool, float]], about: str) -> None:
    """Print and draw what it came to, next to the controls."""
    drawn = random.Random(given.seed)  # noqa: S311  no secret
    large = [dollars_of(LARGE, one) for one in every]
    share = min(1.0, sum(dollars for _, dollars in ours) / sum(large))
    ways = {
        "the policy that learns": list(ours),
        "always the large model": by_rule(every, lambda _: LARGE),
        "always the small model": by_rule(every, lambda _: SMALL),
        "a random mix of the same cost": by_rule(every, lambda _: LARGE if drawn.random() < share else SMALL),
        "the large one where a keyword says so": by_rule(
            every, lambda one: LARGE if KEYWORDS.search(one.text) else SMALL
        ),
    }
    base = ways["always the large model"]
    found = sum(one.place < 2 for one in every) / len(every)
    print(f"{len(every)} tickets about {about}: the right article is among the first {SHOWN} for {found:.1%}")
    figures = {}
    for name, came in ways.items():
        right, cost = sum(right for right, _ in came) / len(came), sum(dollars for _, dollars in came) / len(came)
        saved = 1 - cost * len(came) / sum(dollars for _, dollars in base)
        differences = [float(one) - float(other) for (one, _), (other, _) in zip(came, base, strict=True)]
        mean = sum(differences) / len(differences)
        spread = (sum((each - mean) ** 2 for each in differences) / len(differences) ** 2) ** 0.5
        figures[name] = {"right": right, "cost": cost, "saved": saved, "difference": mean, "half": 1.96 * spread}
        against = f"{100 * mean:+.1f} ± {196 * spread:.1f} points"
        print(f"{name:38} {right:.1%} right ({against}), ${1000 * cost:.3f} per 1,000 tickets, {saved:.1%} saved")
    (given.folder / "triage.json").write_text(json.dumps(figures))
    lines = [
        Spending(name, [dollars for _, dollars in came], f"{figures[name]['right']:.1%} right")
        for name, came in ways.items()
    ]
    drawing = money_curve(f"{len(every)} tickets, simulated models", lines, [(given.first, "learned")])
    (given.folder / "money.svg").write_text(drawing)


if __name__ == "__main__":
    asyncio.run(main())
