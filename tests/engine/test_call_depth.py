"""How deep a worker's call lies under `Engine.run`: a reader of a traceback has to follow every one of these frames."""

import asyncio
import inspect
from types import FrameType

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Reply, Request

MOST_FRAMES = 10


def own_name(frame: FrameType | None) -> str | None:
    """Return the function's qualified name if it is one of the engine's."""
    name: str = frame.f_globals["__name__"] if frame is not None else ""
    return f"{name}.{frame.f_code.co_qualname}" if frame is not None and name.startswith("shikisha.") else None


class Looking:
    """A worker that looks up from where it is called: its own task's frames, and those that await the task group."""

    def __init__(self) -> None:
        self.conducting: asyncio.Task[object] | None = None
        self.names: list[str] = []

    async def perform(self, request: Request) -> Reply:
        """Collect the names, from `Engine.run` down to here."""
        frame = inspect.currentframe()
        below: list[str | None] = []
        while frame is not None:
            below.append(own_name(frame))
            frame = frame.f_back
        assert self.conducting is not None
        above: list[str | None] = []
        awaited: object = self.conducting.get_coro()
        while inspect.iscoroutine(awaited):
            above.append(own_name(awaited.cr_frame))
            awaited = awaited.cr_await
        self.names = [name for name in (*above, *reversed(below)) if name is not None]
        return Reply(request.subtask)


async def test_few_frames_lie_between_run_and_perform() -> None:
    worker = Looking()
    pool = Pool([Member(Card("looks"), worker)])
    run = Engine(MemoryRecorder()).run(Task("what?"), pool, ScriptedConductor([Plan((Step("look", 0),))]))
    worker.conducting = asyncio.create_task(run)
    await worker.conducting
    first, *between = worker.names
    assert first == "shikisha.engine.engine.Engine.run"
    assert between[-1] == "shikisha.engine.attempt._invoke_worker"
    assert len(between) <= MOST_FRAMES, between
