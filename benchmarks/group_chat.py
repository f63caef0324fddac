"""Group chats: invalid speakers and chats without an end in random ones, and what a turn costs.

    python benchmarks/group_chat.py [--json]

100,000 chats of random members, options and texts are played without an engine; what a model names as the next speaker
is random too, and mostly names nobody. Then chats of 100 turns are performed by the engine, journaled with full sync.
"""

import asyncio
import tempfile
from pathlib import Path
from random import Random
from time import perf_counter

from common import Figure, Sleeper, report
from shikisha.conductors.group_chat import ChatOptions, GroupChatConductor, SpeakerOrder
from shikisha.core.budget import Caps
from shikisha.core.call import Card, Reply, Request
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.journal import open_journal

CHATS, TURNS = 100_000, 100
TEXTS = (
    "PASS",
    "",
    "DONE",
    "w1",
    '{"speaker": 99}',
    '{"speaker": 0}',
    "-1",
    "[0]",
    '{"speaker": "1"}',
    "go on",
    "x" * 500,
)


class Says:
    """Answers with any of the texts."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    async def perform(self, _: Request) -> Reply:
        """Say something."""
        return Reply(self._draw.choice(TEXTS))


async def ask(one: Member, request: Request) -> Reply:
    """Ask a model."""
    return await one.worker.perform(request)


async def play(draw: Random) -> tuple[int, bool]:
    """Play one random chat; return how many speakers were not members, and whether it was still going on at the end."""
    cards = tuple(Card(f"w{place}") for place in range(draw.randint(1, 5)))
    members = tuple(card.name for card in cards if draw.random() < 0.7)
    closer, most = draw.choice(["", draw.choice(cards).name]), draw.randint(1, 6)
    options = ChatOptions(members, {}, most, draw.randint(0, 3), draw.choice(["", "DONE"]), closer)
    chat = GroupChatConductor("chat", draw.choice(list(SpeakerOrder)), options, Member(Card("p"), Says(draw)))
    allowed = {*(members or {card.name for card in cards}), closer}
    rounds: list[RoundResult] = []
    invalid = 0
    while len(rounds) <= most:
        left = Caps(rounds=most + 5 - len(rounds), steps=most + 5 - len(rounds))
        proposal = await chat.propose(Situation(Task("What?"), cards, tuple(rounds), left, ask))
        if proposal.plan.ships:
            return invalid, False
        step = proposal.plan.steps[0]
        invalid += step.worker >= len(cards) or cards[step.worker].name not in allowed
        result = Result(cards[step.worker].name, draw.choice([None, *TEXTS]))
        rounds.append(RoundResult(Plan((Step("go", step.worker),)), (result,)))
        if proposal.final:
            return invalid, False
    return invalid, True


async def turn_seconds() -> float:
    """Return the seconds of a journaled turn, without its worker's own time."""
    pool = Pool([Member(Card(name), Sleeper()) for name in ("ann", "bob", "cyd")])
    chat = GroupChatConductor("chat", options=ChatOptions(turns=TURNS))
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(str(Path(folder) / "chat.db")) as journal:
            engine, caps = Engine(journal), Caps(steps=TURNS, rounds=TURNS)
            await engine.run(Task("What?"), pool, chat, caps)
            begun = perf_counter()
            for _ in range(5):
                await engine.run(Task("What?"), pool, chat, caps)
            return (perf_counter() - begun) / 5 / TURNS


async def measure() -> list[Figure]:
    """Measure all of it."""
    draw = Random(11)
    played = [await play(draw) for _ in range(CHATS)]
    return [
        Figure(f"invalid speakers in {CHATS:,} random chats", sum(invalid for invalid, _ in played), "", 0),
        Figure("chats without an end among them", sum(endless for _, endless in played), "", 0),
        Figure("a turn, journaled with full sync, 8 turns shown", await turn_seconds() * 1000, "ms", 2),
    ]


def main() -> None:
    """Measure and print."""
    report("Group chats", asyncio.run(measure()))


if __name__ == "__main__":
    main()
