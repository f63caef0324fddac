"""An answer that must fit a schema: said to the worker, checked once more, journaled, and the same after a death."""

import asyncio
import json
from collections.abc import Mapping

import pytest
from test_resume import Died, Disk, World

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Request
from shikisha.core.errors import FaultKind, TaskError, UnknownRun
from shikisha.core.events import AttemptReason, CheckDecided, CheckStatus, OnCheckFailure, RunStatus
from shikisha.core.messages import Json
from shikisha.core.task import Task
from shikisha.core.visibility import request_messages
from shikisha.engine.engine import Engine
from shikisha.engine.output_checks import AnswerSchema
from shikisha.engine.pool import Inspection, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.run_context import RetryPolicy
from support import AT_ONCE, member, plan_of, seen

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
    run = await Engine(recorder, retry=AT_ONCE).run(TASK, pool, ScriptedConductor([ONE]))
    assert (run.status, run.answer) == (RunStatus.DONE, GOOD)
    assert [attempt.started.reason for attempt in run.attempts] == [AttemptReason.FIRST, AttemptReason.REDO]
    checks = [event for event in await recorder.read(run.id) if isinstance(event, CheckDecided)]
    assert [(each.check, each.status, each.leads_to) for each in checks] == [
        ("answer_schema", CheckStatus.FAIL, OnCheckFailure.REDO),
        ("answer_schema", CheckStatus.PASS, None),
    ]
    assert "not accepted: it is no JSON document" in request_messages(seen(pool[0])[1])[0].text


async def test_a_worker_that_fails_twice_has_failed() -> None:
    pool = Pool([member("w", "Kyoto")])
    run = await Engine(MemoryRecorder()).run(TASK, pool, ScriptedConductor([ONE]))
    assert run.finished is not None
    assert (run.status, run.finished.fault, len(seen(pool[0]))) == (RunStatus.FAILED, FaultKind.CHECK_FAILED, 2)


async def test_only_the_last_step_is_held_to_the_schema() -> None:
    pool = Pool([member("draft", "some words"), member("final", GOOD)])
    run = await Engine(MemoryRecorder()).run(TASK, pool, ScriptedConductor([plan_of((0, []), (1, [0]))]))
    assert run.answer == GOOD
    first, last = seen(pool[0])[0], seen(pool[1])[0]
    assert (first.schema, last.schema) == (None, SCHEMA)
    assert "JSON Schema" not in request_messages(first)[0].text
    assert json.dumps(SCHEMA, separators=(",", ":")) in request_messages(last)[-1].text


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"required": "city"}])
async def test_a_schema_that_is_none_is_no_task(schema: Mapping[str, Json]) -> None:
    recorder = MemoryRecorder()
    with pytest.raises(TaskError, match="answer_schema"):
        await Engine(recorder).run(
            Task("q", answer_schema=schema), Pool([member("w")]), ScriptedConductor([ONE]), run_id="r"
        )
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
            return asyncio.run(engine.resume("r", pool, ScriptedConductor([ONE]))).answer
        return asyncio.run(engine.run(TASK, pool, ScriptedConductor([ONE]), run_id="r")).answer
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
