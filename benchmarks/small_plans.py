"""How often a small real model writes a plan that can be performed: held to the plan's schema by its endpoint.

    python benchmarks/small_plans.py http://127.0.0.1:9301/v1 smollm2 [--tries 200]

The endpoint is a real server (llama.cpp's, or any that can be held to a JSON Schema). Each try is one question with a
pool of two to five described workers, asked as `lm:WORKER` asks: the full prompt, and one further try after a text
that is no plan. Questions and cards are everyday ones of our own; nothing is performed and nothing is graded.
"""

import argparse
import asyncio
from collections import Counter
from random import Random
from time import perf_counter

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Caps, Price
from shikisha.core.errors import PlanError, WorkerError
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


async def main() -> None:
    """Print the shares of well-formed plans, what went wrong, and the time of a plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    settings = ChatSettings(model=given.model, base_url=given.base_url, structured_output=True, temperature=0.7)
    card = fit_card(settings, Card("planner", max_output_tokens=700, timeout=600.0))
    worker = build(settings, card, SecretStore())
    draw, problems, asked = Random(given.seed), Counter[str](), 0
    first = whole = steps = 0
    began = perf_counter()

    async def ask(_: Member, request: Request) -> Reply:
        nonlocal asked
        asked += 1
        return await worker.perform(request)

    conductor = LanguageModelConductor("lm:planner", Member(card, worker), style=PromptStyle(PlanFormat.JSON))
    for _ in range(given.tries):
        cards = tuple(draw.sample(CARDS, draw.randint(2, 5)))
        try:
            proposal = await conductor.propose(Situation(Task(draw.choice(QUESTIONS)), cards, left=Caps(), ask=ask))
        except (PlanError, WorkerError) as error:
            found = getattr(error, "rejected", ())
            problems[f"{type(error).__name__}: {str(error)[:80]}"] += 1
        else:
            found, whole, steps = proposal.rejected, whole + 1, steps + len(proposal.plan)
            first += not found
        problems.update(f"{each.where}: {each.what}"[:90] for each in found)
    await worker.aclose()
    share, again = first / given.tries, whole / given.tries
    print(f"{given.model}: {share:.3f} of {given.tries} plans are well-formed at once, {again:.3f} after one more try")
    print(f"{steps / max(1, whole):.1f} steps a plan, {(perf_counter() - began) / max(1, asked):.1f} s a call")
    for what, count in problems.most_common(8):
        print(f"  {count:4} {what}")


if __name__ == "__main__":
    asyncio.run(main())
