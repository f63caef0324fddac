"""One engine's figures, as a line of JSON: `python engines.py NAME`. `compare.py` runs all of them in turn.

- `step`: microseconds a step of a chain of 200 steps that take no time, in memory, the best of several.
- `runs`: runs a second, 1,000 runs of three steps of 50 ms at once, in memory.
- `durable`: the same with every step durable before the next begins, as far as the engine's SQLite store promises it.
- `straggler`: seconds of a plan in which A (.1 s) leads to C (.1 s) beside B (.3 s), over its critical path of .3 s.

Each engine does the same work in the way its documentation shows, with the workers as plain coroutines. LangGraph's
checkpointer is told to write before it goes on (`durability="sync"`). What an engine cannot do is absent.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"
import asyncio
import json
import logging
import operator
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, TypedDict

STEPS, RUNS, SECONDS = 200, 1_000, 0.05
REPEATS = 5
Chain = Callable[[int, float, str], Awaitable[object]]  # steps, seconds of each, the run's name


@dataclass
class Engine:
    """How an engine performs a chain, and a plan with a straggler; `durable` is None where it stores nothing."""

    chain: Chain
    durable: Chain | None = None
    straggler: Callable[[], Awaitable[object]] | None = None
    at_once: int = RUNS  # runs at once in the durable figure: a store that takes minutes for all gets fewer
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)


async def work(seconds: float) -> str:
    """Be a worker."""
    if seconds:
        await asyncio.sleep(seconds)
    return "done"


async def bare(_folder: Path) -> Engine:
    """Plain coroutines: the floor."""

    async def chain(steps: int, seconds: float, _: str) -> None:
        for _place in range(steps):
            await asyncio.create_task(work(seconds))

    async def straggler() -> None:
        async def first() -> None:
            await work(0.1)
            await work(0.1)

        await asyncio.gather(first(), work(0.3))

    return Engine(chain, straggler=straggler)


async def shikisha(folder: Path) -> Engine:
    """This project's engine; durable with its journal, every commit synced."""
    sys.path.append(str(Path(__file__).parents[1]))
    from common import Always, Sleeper
    from shikisha.core.budget import Caps
    from shikisha.core.call import Card
    from shikisha.core.plan import Plan, Step
    from shikisha.core.task import Task
    from shikisha.engine.engine import Engine as Conducted
    from shikisha.engine.pool import Member, Pool
    from shikisha.engine.recorder import MemoryRecorder
    from shikisha.journal import open_journal

    closing = AsyncExitStack()
    journal = await closing.enter_async_context(open_journal(str(folder / "journal.db")))
    caps = Caps(steps=STEPS, plan_steps=STEPS)

    def chain_by(engine: Conducted) -> Chain:
        async def chain(steps: int, seconds: float, _: str) -> None:
            plan = Plan(tuple(Step("next", 0, (place - 1,) if place else ()) for place in range(steps)))
            pool = Pool([Member(Card("worker"), Sleeper(seconds))])
            await engine.run(Task("what?"), pool, Always(plan), caps)

        return chain

    async def straggler() -> None:
        pool = Pool([Member(Card("short"), Sleeper(0.1)), Member(Card("long"), Sleeper(0.3))])
        plan = Plan((Step("A", 0), Step("B", 1), Step("C", 0, (0,))))
        await Conducted(MemoryRecorder()).run(Task("what?"), pool, Always(plan))

    return Engine(chain_by(Conducted(MemoryRecorder())), chain_by(Conducted(journal)), straggler, closing=closing)


async def langgraph(folder: Path) -> Engine:
    """LangGraph: a node a step; durable with its SQLite checkpointer."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        seconds: float
        said: Annotated[list[str], operator.add]

    async def node(state: State) -> dict[str, list[str]]:
        return {"said": [await work(state["seconds"])]}

    def graph(steps: int, saver: object = None) -> Any:  # noqa: ANN401 - a class of the peer's
        made = StateGraph(State)
        for place in range(steps):
            made.add_node(f"n{place}", node)
            made.add_edge(f"n{place - 1}" if place else START, f"n{place}")
        made.add_edge(f"n{steps - 1}", END)
        return made.compile(checkpointer=saver)

    closing = AsyncExitStack()
    saver = await closing.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.db")))
    long, short, stored = graph(STEPS), graph(3), graph(3, saver)

    async def chain(steps: int, seconds: float, _: str) -> None:
        taken = long if steps == STEPS else short
        await taken.ainvoke({"seconds": seconds, "said": []}, {"recursion_limit": steps + 1})

    async def durable(_: int, seconds: float, name: str) -> None:
        at = {"configurable": {"thread_id": name}}
        await stored.ainvoke({"seconds": seconds, "said": []}, at, durability="sync")

    forked = StateGraph(State)

    def node_of(seconds: float) -> Callable[[State], Awaitable[dict[str, list[str]]]]:
        async def timed(_: State) -> dict[str, list[str]]:
            return {"said": [await work(seconds)]}

        return timed

    for name, seconds in (("A", 0.1), ("B", 0.3), ("C", 0.1)):
        forked.add_node(name, node_of(seconds))
    for edge in ((START, "A"), (START, "B"), ("A", "C"), ("C", END), ("B", END)):
        forked.add_edge(*edge)
    compiled = forked.compile()
    return Engine(chain, durable, lambda: compiled.ainvoke({"seconds": 0.0, "said": []}), at_once=200, closing=closing)


async def pydantic_graph(_folder: Path) -> Engine:
    """pydantic-graph: a node a step; it stores nothing here."""
    from pydantic_graph import GraphBuilder, StepContext

    def graph(steps: int) -> Any:  # noqa: ANN401 - a class of the peer's
        made = GraphBuilder(input_type=float, output_type=float)

        async def step(context: StepContext[None, None, float]) -> float:
            await work(context.inputs)
            return context.inputs

        nodes = [made.step(step, node_id=f"n{place}") for place in range(steps)]
        edges = zip([made.start_node, *nodes], [*nodes, made.end_node], strict=True)
        made.add(*(made.edge_from(one).to(other) for one, other in edges))
        return made.build()

    long, short = graph(STEPS), graph(3)

    async def chain(steps: int, seconds: float, _: str) -> None:
        await (long if steps == STEPS else short).run(inputs=seconds)

    return Engine(chain)


async def dbos(folder: Path) -> Engine:
    """DBOS: a step a worker's call; always durable, with SQLite as its system database."""
    from dbos import DBOS, SetWorkflowID

    DBOS(config={"name": "chain", "system_database_url": f"sqlite:///{folder / 'dbos.db'}", "log_level": "ERROR"})

    @DBOS.step()
    async def step(seconds: float) -> str:
        return await work(seconds)

    @DBOS.workflow()
    async def flow(steps: int, seconds: float) -> None:
        for _ in range(steps):
            await step(seconds)

    DBOS.launch()

    async def durable(steps: int, seconds: float, name: str) -> None:
        with SetWorkflowID(name):
            await flow(steps, seconds)

    return Engine(durable, durable, at_once=200)


ENGINES = {"bare": bare, "shikisha": shikisha, "langgraph": langgraph, "pydantic-graph": pydantic_graph, "dbos": dbos}


async def crowd(chain: Chain, count: int, name: str) -> float:
    """Return runs a second of `count` 3-step runs at once."""
    begun = perf_counter()
    await asyncio.gather(*(chain(3, SECONDS, f"{name}-{number}") for number in range(count)))
    return count / (perf_counter() - begun)


async def measure(name: str, folder: Path) -> dict[str, float]:
    """Return an engine's figures."""
    engine = await ENGINES[name](folder)
    figures: dict[str, float] = {}
    async with engine.closing:
        if engine.chain is not engine.durable:
            await engine.chain(STEPS, 0.0, "warm")
            seconds = []
            for number in range(REPEATS):
                begun = perf_counter()
                await engine.chain(STEPS, 0.0, f"step-{number}")
                seconds.append(perf_counter() - begun)
            figures["step"] = min(seconds) / STEPS * 1e6
            figures["runs"] = await crowd(engine.chain, RUNS, "crowd")
        if engine.durable is not None:
            await engine.durable(3, 0.0, "warm-durable")
            figures["durable"] = await crowd(engine.durable, engine.at_once, "durable")
            figures["at_once"] = engine.at_once
        if engine.straggler is not None:
            await engine.straggler()
            begun = perf_counter()
            await engine.straggler()
            figures["straggler"] = (perf_counter() - begun) / 0.3
    return figures


def main(arguments: Sequence[str]) -> None:
    """Measure the engine that is named."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(arguments[0], Path(folder)))), flush=True)
        os._exit(0)  # some engines keep threads that wait for ever


if __name__ == "__main__":
    main(sys.argv[1:])
