"""Scripted gold agents through the engine's agent loop, judged by each tool benchmark's own verdict.

    PYTHONPATH=deps     python benchmarks/tool_gold.py workbench WorkBench
    python              benchmarks/tool_gold.py bfcl bfcl [--unchecked]
    PYTHONPATH=tau-deps python benchmarks/tool_gold.py tau2 tau2-bench [--guarded]

`tool_worlds.py` says where worlds and deps come from. The agent's model is a script: it asks for the gold calls one by
one, as a language model would, and the engine does the rest (offers, schemas, journal, budget, calls). So a verdict
other than right is the engine's fault, the adapter's, or that of a gold call which breaks the benchmark's own rules
(`--unchecked` does not hold it to them). With `--guarded` every tool that writes is guarded by `grounded`: on gold runs
each refusal is a false one, and the verdict says what it spoils.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from common import Always
from shikisha.core.budget import Caps
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import GuardDecided, RunStatus, ToolRefused
from shikisha.core.messages import ChatMessage, Speaker, ToolCall, dump_json
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.tools import Tool, ToolEffect
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.tools import Agent, ToolList
from shikisha.guards.grounded import GroundedGuard
from tool_worlds import Arguments, Bfcl, Tau2, WorkBench, WorldCall

CAPS = Caps(tool_calls=2_000, seconds=None)
PLAN = Plan((Step("Do what the user asks.", 0),))


@dataclass
class GoldModel:
    """A model that asks for these calls one by one, and then says that it is done."""

    calls: Sequence[WorldCall]

    async def perform(self, request: Request) -> Reply:
        """Return the next call, by how many were answered so far."""
        place = len(request.exchanges)
        if place >= len(self.calls):
            return Reply("Done.", dollars=0.0)
        call = self.calls[place]
        return Reply("", dollars=0.0, calls=(ToolCall(f"g{place}", call.name, dump_json(call.arguments)),))


@dataclass
class WorldWorker:
    """Performs a tool's calls in a world, and keeps what was called."""

    name: str
    perform_call: Callable[[str, Arguments], str]
    made: list[WorldCall]

    async def perform(self, request: Request) -> Reply:
        """Call the tool with the arguments that the engine hands over."""
        arguments = json.loads(request.subtask)
        self.made.append(WorldCall(self.name, arguments))
        return Reply(self.perform_call(self.name, arguments), dollars=0.0)


@dataclass
class Tally:
    """What came of all runs."""

    tasks: int = 0
    right: int = 0
    calls: int = 0
    turns: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def note(self, name: str, problem: str) -> None:
        """Take in a task's verdict; "" is right."""
        self.tasks += 1
        self.right += not problem
        if problem:
            self.wrong.append(f"{name}: {problem[:300]}")

    def print(self, title: str) -> None:
        """Print the counts, and why the first wrong ones are wrong."""
        cost = 1e3 * self.seconds / max(1, self.calls)
        print(
            f"{title:<28} {self.right} of {self.tasks} tasks right, {self.turns} runs, {self.calls} calls, "
            f"{cost:.2f} ms CPU a call, the world's own work included; left out: {dict(self.left_out) or 'nothing'}"
        )
        if self.refused:
            print(f"  refused: {dict(self.refused)}")
        for line in (*self.wrong[:5], *self.examples[:5]):
            print(f"  {line}")


@dataclass
class GoldRuns:
    """Runs gold agents over tools of a world; `guarded` puts `grounded` in front of every write."""

    perform_call: Callable[[str, Arguments], str]
    tally: Tally
    guarded: bool = False

    async def run(self, tools: Sequence[Tool], task: Task, gold: Sequence[WorldCall]) -> list[WorldCall]:
        """Let the engine perform one run, and return the calls that were made."""
        made: list[WorldCall] = []
        pairs = [
            (
                tool,
                Member(
                    Card(tool.name, kind="tool"),
                    WorldWorker(tool.name, self.perform_call, made),
                    guards=(GroundedGuard(),) if self.guarded and tool.effect is ToolEffect.WRITE else (),
                ),
            )
            for tool in tools
        ]
        agent = Agent((ToolList(pairs),), turns=len(gold) + 2, offer=1_000, window=10**9)
        clerk = Member(Card("clerk", kind="agent", tools=True, attempts=1), GoldModel(gold), agent=agent)
        begun = process_time()
        run = await Engine(MemoryRecorder()).run(task, Pool([clerk]), Always(PLAN), CAPS)
        self.tally.seconds += process_time() - begun
        self.tally.calls += len(made)
        self.tally.turns += 1
        self._note(run)
        return made

    def _note(self, run: Run) -> None:
        if run.status is not RunStatus.DONE:
            self.tally.refused[f"run {run.status}: {run.finished.why if run.finished else ''}"[:200]] += 1
        for turn in run.rounds:
            for step in turn.steps.values():
                for event in step.tools:
                    if isinstance(event, ToolRefused):
                        self.tally.refused[str(event.fault)] += 1
                        self.tally.examples.append(f"{event.fault}: {event.tool}: {event.message[:200]}")
                    elif isinstance(event, GuardDecided):
                        self.tally.refused["guard passed" if event.passed else "guard refused"] += 1


async def run_workbench(root: Path, *, guarded: bool, unchecked: bool) -> None:  # noqa: ARG001 - one signature
    """690 tasks, judged by the five tables."""
    world, tally = WorkBench(root), Tally()
    runs = GoldRuns(world.call, tally, guarded)
    for item in world.tasks():
        world.reset()
        calls = [call for action in item.gold if (call := world.read_call(action))]
        made = await runs.run(world.tools, Task(item.query, context=WorkBench.NOW), calls)
        right = world.right([world.write_call(call) for call in made], item.gold)
        tally.note(item.query, "" if right else f"made {made}, gold {item.gold}")
    tally.print("WorkBench")


async def run_bfcl(root: Path, *, guarded: bool, unchecked: bool) -> None:
    """800 tasks of several turns, judged after each turn by state and results."""
    world = Bfcl(root, unchecked=unchecked)
    for category in Bfcl.CATEGORIES:
        tally = Tally()
        runs = GoldRuns(world.call, tally, guarded)
        for item in world.tasks():
            if item.category != category:
                continue
            world.begin(item)
            made: list[list[WorldCall]] = []
            history: list[ChatMessage] = []
            for turn, (words, gold) in enumerate(zip(item.turns, item.gold, strict=True)):
                words = (
                    words or "The functions that you need are there now."
                )  # the turn that brings held-back functions
                task = Task(words, history=tuple(history))
                made.append(await runs.run(world.offered(item, turn), task, [world.read_call(each) for each in gold]))
                history += [ChatMessage(Speaker.USER, words), ChatMessage(Speaker.ASSISTANT, "Done.")]
            tally.note(item.id, world.verdict(item, made))
        tally.print(f"BFCL v4 multi-turn {category}")


async def run_tau2(root: Path, *, guarded: bool, unchecked: bool) -> None:  # noqa: ARG001 - one signature
    """114 tasks of retail and 97 of banking knowledge, judged by the databases."""
    world = Tau2(root)
    for domain in Tau2.DOMAINS:
        tally = Tally()
        runs = GoldRuns(world.call, tally, guarded)
        for item in world.tasks():
            if item.domain != domain:
                continue
            world.begin(item)
            gold = [
                call if who == "assistant" else WorldCall(f"user__{call.name}", call.arguments)
                for who, call in item.gold
            ]
            await runs.run(world.tools, Task(item.words), gold)
            reward, left = world.verdict(item)
            tally.left_out.update(left)
            tally.note(f"{domain} {item.task.id}", "" if reward == 1 else f"reward {reward}")
        tally.print(f"tau2 {domain}")


def main() -> None:
    """Run one benchmark's gold agents."""
    runs = {"workbench": run_workbench, "bfcl": run_bfcl, "tau2": run_tau2}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("benchmark", choices=runs)
    parser.add_argument("root", type=Path, help="where its files are")
    parser.add_argument("--guarded", action="store_true", help="put `grounded` in front of every write")
    parser.add_argument("--unchecked", action="store_true", help="bfcl: do not hold gold calls to BFCL's own schemas")
    given = parser.parse_args()
    asyncio.run(runs[given.benchmark](given.root, guarded=given.guarded, unchecked=given.unchecked))


if __name__ == "__main__":
    main()
