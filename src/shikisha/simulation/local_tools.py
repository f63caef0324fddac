"""The pool of a first run where no model is found: the simulated workers, and real small tools behind them.

Invariant: the tools stand after the simulated workers, so that a conductor of the simulation sees the pool that it
knows. A question that one of the tools reads goes to that tool; every other one to the simulation's rules.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from shikisha.core.budget import FREE
from shikisha.core.plan import Plan, Step
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card
from shikisha.workers.local_tools import EXAMPLES, FILE_TOOLS, LOCAL_TOOLS, LocalTool, LocalToolWorker, can_answer

LOCAL_KIND = "local"
_DESCRIPTIONS = {
    "calculator": "Calculates an expression exactly.",
    "dates": "Counts days between dates, and finds dates and days of the week.",
    "units": "Converts units of length, mass, volume, time, data, area, speed, energy and temperature.",
    "sql": "Answers an SQL query over CSV files that it names.",
    "search": "Searches the text files of a folder for words.",
}
_ANSWER = "Answer the question."


def with_local_tools(pool: Pool, folder: Path | None) -> Pool:
    """Return a pool with the tools at its end; without a folder none that reads files."""
    tools = [tool for tool in LOCAL_TOOLS if folder is not None or tool not in FILE_TOOLS]
    return Pool([*pool, *(_tool_member(tool, folder or Path()) for tool in tools)])


def _tool_member(tool: LocalTool, folder: Path) -> Member:
    description = f"{_DESCRIPTIONS[tool]} As in {EXAMPLES[tool]}"
    return Member(Card(tool, description, kind=LOCAL_KIND, price=FREE), LocalToolWorker(tool, folder))


def tool_for(prompt: str, names: Iterable[str]) -> LocalTool | None:
    """Return the tool of these names that answers a question by itself, if one does."""
    known = set(names)
    return next((tool for tool in LOCAL_TOOLS if tool in known and can_answer(tool, prompt)), None)


@dataclass(frozen=True, slots=True)
class LocalToolsConductor:
    """Gives a question to the tool that reads it, else lets another conductor plan for the other workers."""

    name: str
    otherwise: Conductor

    async def propose(self, situation: Situation) -> Proposal:
        """Propose one step of a tool, or what the other conductor does."""
        cards = situation.cards
        tools = {card.name: place for place, card in enumerate(cards) if card.kind == LOCAL_KIND}
        tool = tool_for(situation.task.prompt, tools)
        if tool is None:
            others = tuple(card for card in cards if card.kind != LOCAL_KIND)
            return await self.otherwise.propose(replace(situation, cards=others))
        if situation.rounds:
            return Proposal(Plan(), final=True)
        return Proposal(Plan((Step(_ANSWER, tools[tool]),)), note=f"{tool} reads this question", final=True)
