"""Group chats: invalid speakers and chats without an end in random ones, and what a turn costs.

    python benchmarks/group_chat.py [--json]

100,000 chats of random members, options and texts are played without an engine; what a model names as the next speaker
is random too, and mostly names nobody. Then chats of 100 turns, of which 8 are shown, are performed by the engine,
journaled with full sync; the best of five, since other work on the machine only adds. Members that repeat all they are
shown make a turn of 120,000 characters, which the journal stores twice.
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter, process_time

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
from shikisha.engine.worker import Worker
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


@dataclass(frozen=True)
class Speaks:
    """Says the same few sentences."""

    text: str = "We should look at what it costs to change our minds later, and decide then. " * 6

    async def perform(self, _: Request) -> Reply:
        """Say them."""
        return Reply(self.text, dollars=0.0)


async def turn_seconds(worker: Worker) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a journaled turn, without its worker's own time."""
    pool = Pool([Member(Card(name), worker) for name in ("ann", "bob", "cyd")])
    chat = GroupChatConductor("chat", options=ChatOptions(turns=TURNS))
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(str(Path(folder) / "chat.db")) as journal:
            engine, caps = Engine(journal), Caps(steps=TURNS, rounds=TURNS)
            await engine.run(Task("What?"), pool, chat, caps)
            best = []
            for _ in range(5):
                begun, used = perf_counter(), process_time()
                await engine.run(Task("What?"), pool, chat, caps)
                best.append(((perf_counter() - begun) / TURNS, (process_time() - used) / TURNS))
            return min(seconds for seconds, _ in best), min(used for _, used in best)


async def measure() -> list[Figure]:
    """Measure all of it."""
    draw = Random(11)
    said, repeated = await turn_seconds(Speaks()), await turn_seconds(Sleeper())
    played = [await play(draw) for _ in range(CHATS)]
    return [
        Figure(f"invalid speakers in {CHATS:,} random chats", sum(invalid for invalid, _ in played), "", 0),
        Figure("chats without an end among them", sum(endless for _, endless in played), "", 0),
        Figure("a turn of 450 characters, journaled with full sync", said[0] * 1000, "ms", 2),
        Figure("of that CPU", said[1] * 1000, "ms"),
        Figure("a turn of members that repeat all they are shown", repeated[0] * 1000, "ms"),
        Figure("of that CPU", repeated[1] * 1000, "ms"),
    ]


def main() -> None:
    """Measure and print."""
    report("Group chats", asyncio.run(measure()))


if __name__ == "__main__":
    main()
