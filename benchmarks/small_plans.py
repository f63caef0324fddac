"""How often a small real model writes a plan that can be performed: held to the plan's schema by its endpoint.

    python benchmarks/small_plans.py http://127.0.0.1:9301/v1 smollm2 [--tries 200] [--keep FILE]

The endpoint is a real server (llama.cpp's, or any that can be held to a JSON Schema). Each try is one question with a
pool of two to five described workers, asked as `lm:WORKER` asks: the full prompt, and one further try after a text
that is no plan. Questions and cards are everyday ones of our own; nothing is performed and nothing is graded. FILE
gets a line for each try, and a try that stands there is not made again: a broken-off run goes on. A connection that
the server dropped is asked once more, as the engine does, and counted.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Caps, Price
from shikisha.core.errors import FaultCause, PlanError, WorkerError
from shikisha.core.prompts import PlanFormat, PromptStyle
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request
from shikisha.workers.chat import ChatSettings, build, fit_card

QUESTIONS = (
    "What is 23 * 47, and is the result prime?",
    "Translate 'where is the station?' into Spanish and count the letters of the translation.",
    "Which is longer, the Nile or the Amazon, and by how many kilometers?",
    "Sort these dates: 2024-03-01, 1999-12-31, 2010-07-15. How many days lie between the first and the last?",
    "Is this review positive or negative: 'It broke on the second day, but the refund came at once.'",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey in minutes?",
    "Write a Python function that reverses a list, and say how long it takes for n elements.",
    "Summarize in one sentence: the meeting was moved from Tuesday to Thursday because the room is being painted.",
    "What is the capital of Peru?",
    "Convert 72 degrees Fahrenheit to Celsius and say whether that is warm.",
)
CARDS = (
    Card("a", "A small general model: quick, and good at short texts.", price=Price(0.05, 0.1)),
    Card("b", "A calculator: evaluates one arithmetic expression.", price=Price()),
    Card("c", "A large general model: slow, strong at reasoning and code.", price=Price(2.0, 8.0)),
    Card("d", "Looks up facts in an encyclopedia.", price=Price()),
    Card("e", "Runs a short Python program and returns what it prints.", price=Price()),
)

Perform = Callable[[Request], Awaitable[Reply]]


async def main() -> None:
    """Ask, and print the shares of well-formed plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    settings = ChatSettings(model=given.model, base_url=given.base_url, structured_output=True, temperature=0.7)
    card = fit_card(settings, Card("planner", max_output_tokens=700, timeout=600.0))
    worker = build(settings, card, SecretStore())
    member = Member(card, worker)
    conductor = LanguageModelConductor("lm:planner", member, style=PromptStyle(PlanFormat.JSON))
    rows: list[dict[str, Any]] = []
    if given.keep is not None and given.keep.exists():
        rows = [json.loads(line) for line in given.keep.read_text().splitlines()][: given.tries]
    for number in range(len(rows), given.tries):
        rows.append(await plan(conductor, worker.perform, Random(f"{given.seed}/{number}")))
        if given.keep is not None:
            with given.keep.open("a") as file:
                print(json.dumps(rows[-1]), file=file)
    await worker.aclose()
    report(given.model, rows)


async def plan(conductor: LanguageModelConductor, perform: Perform, draw: Random) -> dict[str, Any]:
    """Return what came of one try: steps, calls, dropped connections, seconds and the problems by place."""
    calls = dropped = 0
    began = perf_counter()

    async def ask(_: Member, request: Request) -> Reply:
        nonlocal calls, dropped
        calls += 1
        try:
            return await perform(request)
        except WorkerError as error:
            if error.fault.cause is not FaultCause.NETWORK:
                raise
            dropped += 1
            return await perform(request)

    cards, question, steps = tuple(draw.sample(CARDS, draw.randint(2, 5))), draw.choice(QUESTIONS), None
    try:
        proposal = await conductor.propose(Situation(Task(question), cards, left=Caps(), ask=ask))
    except (PlanError, WorkerError) as error:
        problems = [f"{type(error).__name__}: {str(error)[:80]}"]
        problems += [f"{each.where}: {each.what}"[:90] for each in getattr(error, "rejected", ())]
    else:
        steps, problems = len(proposal.plan), [f"{each.where}: {each.what}"[:90] for each in proposal.rejected]
    seconds = round(perf_counter() - began, 1)
    return {"steps": steps, "calls": calls, "dropped": dropped, "seconds": seconds, "problems": problems}


def report(model: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the shares of well-formed plans, what went wrong, and the time of a call."""
    whole = [row for row in rows if row["steps"] is not None]
    first, calls, dropped = (
        sum(not row["problems"] for row in whole),
        sum(row["calls"] for row in rows),
        sum(row["dropped"] for row in rows),
    )
    share, again = first / len(rows), len(whole) / len(rows)
    print(f"{model}: {share:.3f} of {len(rows)} plans are well-formed at once, {again:.3f} after one more try")
    steps, seconds = sum(row["steps"] for row in whole) / max(1, len(whole)), sum(row["seconds"] for row in rows)
    print(f"{steps:.1f} steps a plan, {seconds / max(1, calls):.1f} s a call, {dropped} of {calls} connections dropped")
    for what, count in Counter(each for row in rows for each in row["problems"]).most_common(8):
        print(f"  {count:4} {what}")


if __name__ == "__main__":
    asyncio.run(main())
