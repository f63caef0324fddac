"""What runs cost as they grow, counted in calls of functions: nothing grows faster than n log n.

Calls of functions are what a machine's load does not change. The exponent is that from n to 16 n.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from math import log
from pathlib import Path
from types import FrameType

import pytest
from test_agent_loop import LOOK, agent, call, events, perform, tool_member, wants

from shikisha.cli.progress import LineProgress
from shikisha.core.budget import Caps
from shikisha.core.call import Reply, Request
from shikisha.core.events import CallRole, ToolResultsCut
from shikisha.core.run import Run
from shikisha.core.tools import Tool
from shikisha.core.visibility import request_messages, view_hash
from shikisha.tools.catalogue_entry import CatalogueEntry, OperationCall, OperationParameter
from shikisha.tools.lock_file import CatalogueLock, read_lock, write_lock
from support import Answers, plan_of, pool_of, run_plans

MOST_EXPONENT = 1.1
PACKAGE = str(Path(sys.modules["shikisha"].__file__ or "").parent)


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls the package makes in this work."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def asked_until(rounds: int) -> Answers:
    """A model that calls a tool in every turn but its last."""

    def answer(request: Request) -> Reply:
        count = len(request.exchanges)
        return Reply("done") if count == rounds else wants(call(id=f"c{count}"))

    return Answers(answer)


def agent_run(rounds: int) -> Coroutine[object, object, Run]:
    caps = Caps(tool_calls=rounds, seconds=None)
    return perform(agent(asked_until(rounds), [(LOOK, tool_member("look_up"))], turns=rounds + 1), caps=caps)


def show_progress(rounds: int) -> Callable[[], None]:
    """Return what shows a run of so many rounds as it goes on, event by event."""
    seen = list[object]()
    run = asyncio.run(agent_run(rounds))
    for turn in run.rounds:
        for step in turn.steps.values():
            seen += [event for each in step.attempts for event in (each.started, each.outcome) if event is not None]
    progress = LineProgress({})

    def show() -> None:
        for event in (run.started, *seen):
            progress.observe(event)  # type: ignore[arg-type]  # events of attempts

    return show


def run_in_pool(workers: int) -> Callable[[], object]:
    """Return what asks one of so many workers."""
    pool = pool_of(**{f"w{place}": "42" for place in range(workers)})
    return lambda: asyncio.run(run_plans(pool, plan_of((0, ()))))


def run_chain(steps: int) -> Callable[[], object]:
    """Return what performs a plan of so many steps, each of which sees all before."""
    plan, caps = plan_of(*((0, tuple(range(place))) for place in range(steps))), Caps(steps=steps, plan_steps=steps)
    return lambda: asyncio.run(run_plans(pool_of(w="42"), plan, caps=caps))


def read_tools(folder: Path, count: int) -> Callable[[], object]:
    """Return what reads the lock of a catalogue of so many tools."""
    call = OperationCall("GET", "/", "", (OperationParameter("a", "a", "query"),))
    entries = tuple(CatalogueEntry(Tool(f"t{number}", server="c"), "g", call) for number in range(count))
    write_lock(CatalogueLock("c", "s", entries, ""), folder / f"{count}.jsonl")
    return lambda: read_lock(folder / f"{count}.jsonl", "c")


@pytest.mark.parametrize("what", ["agent", "progress", "pool", "catalogue", "chain"])
def test_nothing_grows_faster_than_n_log_n(what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    works: Mapping[str, Callable[[int], Callable[[], object]]] = {
        "agent": lambda rounds: lambda: asyncio.run(agent_run(rounds)),
        "progress": show_progress,
        "pool": run_in_pool,
        "catalogue": partial(read_tools, tmp_path),
        "chain": run_chain,
    }
    sizes = (4, 16, 64) if what == "chain" else (16, 64, 256)
    costs = {size: calls_of(works[what](size)) for size in sizes}
    capsys.readouterr()
    exponent = log(costs[sizes[-1]] / costs[sizes[0]]) / log(16)
    # What a step that sees all before is shown is a square of the steps, of which a plan has 64 at most.
    assert exponent <= (1.3 if what == "chain" else MOST_EXPONENT), costs


async def test_an_agent_s_journaled_views_are_those_of_its_whole_requests() -> None:
    model, look = asked_until(12), tool_member("look_up", lambda _request: Reply("x" * 8_000))
    run = await perform(agent(model, [(LOOK, look)], turns=9, window=5_000))  # some are cut
    views = [each.started.view for each in run.attempts if each.started.role is CallRole.STEP]
    assert len(views) == 9
    assert events(run, ToolResultsCut)
    assert views == [view_hash(request_messages(asked), asked.client_options) for asked in model.seen]
