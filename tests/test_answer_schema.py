"""An answer that must fit a schema: said to the worker, checked once more, journaled, and the same after a death."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from shikisha.call import Request
from shikisha.checker import Inspection
from shikisha.conduct import Engine
from shikisha.conductors.fixed import Scripted
from shikisha.context import turns
from shikisha.errors import FaultKind, TaskError, UnknownRun
from shikisha.events import CheckDecided, CheckStatus, OnFail, Reason, Status
from shikisha.handoff import AnswerSchema
from shikisha.pool import Pool
from shikisha.recorder import MemoryRecorder
from shikisha.scope import RetryPolicy
from shikisha.task import Task
from shikisha.turn import Json
from support import AT_ONCE, member, plan_of, seen
from test_resume import Died, Disk, World

SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TASK = Task("Where?", answer_schema=SCHEMA)
GOOD = '{"city": "Kyoto"}'
ONE = plan_of((0, ()))

UNFIT = {
    "Kyoto": "no JSON document",
    f"```json\n{GOOD}\n```": "without a fence",
    f"Here: {GOOD}": "no JSON document",
    "": "no JSON document",
    "[" * 100_000: "no JSON document",
    '{"city": NaN}': "no JSON number",
    '{"city": "kyoto"}': r"$.city",
    '{"town": "Kyoto"}': "city",
    '{"city": "Kyoto", "extra": 1}': "extra",
}


@pytest.mark.parametrize("text", UNFIT, ids=range(len(UNFIT)))
async def test_what_does_not_fit_is_told_why(text: str) -> None:
    verdict = await AnswerSchema(SCHEMA).inspect(Inspection(TASK, "s", text))
    assert (verdict.check, verdict.status) == ("answer_schema", CheckStatus.FAIL)
    assert UNFIT[text] in verdict.reason


@pytest.mark.parametrize("text", [GOOD, f"\n {GOOD}\n", '{"city":"K","age":3}'])
async def test_what_fits_passes(text: str) -> None:
    assert (await AnswerSchema(SCHEMA).inspect(Inspection(TASK, "s", text))).passed


async def test_a_worker_whose_answer_does_not_fit_is_told_and_asked_once_more() -> None:
    recorder, said = MemoryRecorder(), iter(["Kyoto", GOOD])
    pool = Pool([member("w", lambda _: next(said))])
    run = await Engine(recorder, retry=AT_ONCE).run(TASK, pool, Scripted([ONE]))
    assert (run.status, run.answer) == (Status.DONE, GOOD)
    assert [attempt.started.reason for attempt in run.attempts] == [Reason.FIRST, Reason.REDO]
    checks = [event for event in await recorder.read(run.id) if isinstance(event, CheckDecided)]
    assert [(each.check, each.status, each.leads_to) for each in checks] == [
        ("answer_schema", CheckStatus.FAIL, OnFail.REDO),
        ("answer_schema", CheckStatus.PASS, None),
    ]
    assert "not accepted: it is no JSON document" in turns(seen(pool[0])[1])[0].text


async def test_a_worker_that_fails_twice_has_failed() -> None:
    pool = Pool([member("w", "Kyoto")])
    run = await Engine(MemoryRecorder()).run(TASK, pool, Scripted([ONE]))
    assert run.finished is not None
    assert (run.status, run.finished.fault, len(seen(pool[0]))) == (Status.FAILED, FaultKind.CHECK_FAILED, 2)


async def test_only_the_last_step_is_held_to_the_schema() -> None:
    pool = Pool([member("draft", "some words"), member("final", GOOD)])
    run = await Engine(MemoryRecorder()).run(TASK, pool, Scripted([plan_of((0, []), (1, [0]))]))
    assert run.answer == GOOD
    first, last = seen(pool[0])[0], seen(pool[1])[0]
    assert (first.schema, last.schema) == (None, SCHEMA)
    assert "JSON Schema" not in turns(first)[0].text
    assert json.dumps(SCHEMA, separators=(",", ":")) in turns(last)[-1].text


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"required": "city"}])
async def test_a_schema_that_is_none_is_no_task(schema: Mapping[str, Json]) -> None:
    recorder = MemoryRecorder()
    with pytest.raises(TaskError, match="answer_schema"):
        await Engine(recorder).run(Task("q", answer_schema=schema), Pool([member("w")]), Scripted([ONE]), run_id="r")
    with pytest.raises(UnknownRun):
        await recorder.read("r")


def live(world: World) -> str | None:
    """Run or resume until the end or the next death, and return the answer."""

    def answer(request: Request) -> str:
        world.point()
        world.books[request.key] = 1
        return GOOD if request.remarks else "Kyoto"

    engine, pool = Engine(Disk(world), retry=RetryPolicy(first=0)), Pool([member("w", answer)])
    try:
        if world.disk:
            return asyncio.run(engine.resume("r", pool, Scripted([ONE]))).answer
        return asyncio.run(engine.run(TASK, pool, Scripted([ONE]), run_id="r")).answer
    except BaseException as error:
        if isinstance(error, Died) or "Died" in repr(error):
            return None
        raise


def test_invariant_4_death_at_any_point_leads_to_the_same_verdicts() -> None:
    reference = World()
    assert live(reference) == GOOD
    for fuse in range(1, reference.points + 1):
        world = World(fuse=fuse)
        assert live(world) is None
        world.fuse = None
        assert live(world) == GOOD, f"died at point {fuse}"
        checks = [(each.attempt, each.status) for each in world.disk if isinstance(each, CheckDecided)]
        assert [status for _, status in checks] == [CheckStatus.FAIL, CheckStatus.PASS], f"died at point {fuse}"
        assert len(world.books) == 2
