"""A bill counts every call once, the answer's own apart from all the others, and says so when nobody knows the cost."""

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Price, Usage
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import Event, RunStarted, RunStatus
from shikisha.core.run import Run
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card, Reply
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import MetadataDetail
from shikisha.server.http.run_result import (
    RunAnswer,
    RunUsage,
    answer_or_error,
    answering_call,
    api_error_of,
    finished_headers,
    run_metadata,
    run_usage,
)
from shikisha.workers.conductor import ConductorWorker
from support import TASK, engine, member, plan_of, pool_of, run_events, run_plans

CENTS = Price(call=0.01)
TWO = plan_of((0, ()), (1, (0,)))


def reply(text: str, into: int, out: int, cached: int = 0) -> Reply:
    return Reply(text, Usage(into, out, cached))


def two(first: Reply | WorkerError, last: Reply | WorkerError, price: Price | None = CENTS) -> Pool:
    return pool_of(member("first", first, price=price, attempts=1), member("last", last, price=price, attempts=1))


async def test_the_answer_s_call_stands_apart_from_the_others() -> None:
    run = await run_plans(two(reply("a", 10, 4, 2), reply("b", 20, 7, 5)), TWO)
    made = run_usage(run)
    assert (made.answer, made.others, made.dollars) == (Usage(20, 7, 5), Usage(10, 4, 2), 0.02)
    chat, responses = made.chat_fields(), made.response_fields()
    assert (chat["prompt_tokens"], chat["completion_tokens"], chat["total_tokens"]) == (20, 7, 41)
    assert chat["prompt_tokens_details"] == {
        "cached_tokens": 5,
        "orchestration_input_tokens": 10,
        "cache_write_tokens": 0,
        "orchestration_input_cached_tokens": 2,
    }
    assert (responses["input_tokens"], responses["output_tokens"], responses["cost"]) == (20, 7, 0.02)


async def test_what_fails_is_billed_too_and_an_unknown_price_is_no_free_one() -> None:
    lost = WorkerError(FaultKind.SERVER, tokens=30, dollars=0.5)
    run = await run_plans(two(lost, reply("b", 20, 7)), TWO)
    assert run_usage(run).tokens == run.charged.tokens
    unknown = await run_plans(two(reply("a", 1, 1), reply("b", 1, 1), price=None), TWO)
    assert run_usage(unknown).dollars is None
    assert finished_headers("r", run_usage(unknown))["x-shikisha-cost"] == "unknown"


def nested(conductor: ScriptedConductor) -> Member:
    return Member(Card("child", kind="conductor"), ConductorWorker(conductor, ("first", "last")))


async def family_of(pool: Pool, conductor: ScriptedConductor) -> tuple[Run, list[Run]]:
    recorder, seen = MemoryRecorder(), list[Event]()
    run = await engine(recorder).with_observers(seen.append).run(TASK, pool, conductor)
    names = [event.run for event in seen if isinstance(event, RunStarted)]
    return run, [Run.fold(await recorder.read(name)) for name in names]


async def test_a_child_run_s_calls_stand_in_the_place_of_its_parent_s_one() -> None:
    members = [*two(reply("a", 10, 4), reply("b", 20, 7)), nested(ScriptedConductor([TWO]))]
    run, family = await family_of(Pool(members), ScriptedConductor([plan_of((0, ()), (2, (0,)))]))
    made = run_usage(run, family)
    assert len(family) == 2
    assert (made.answer, made.others) == (Usage(20, 7), Usage(20, 8))
    assert made.dollars == run.charged.dollars


async def test_a_later_part_of_a_run_is_billed_without_the_earlier() -> None:
    _, events = await run_events(two(reply("a", 10, 4), reply("b", 20, 7)), TWO)
    half = next(place for place, event in enumerate(events) if event.kind == "step.finished") + 1
    earlier = run_usage(Run.fold(events[:half]))
    rest = run_usage(Run.fold(events)).less(earlier)
    assert earlier.tokens == 14
    assert rest == RunUsage(Usage(20, 7), Usage(), 0.01)


async def test_a_run_without_an_answer_has_only_other_calls_and_is_a_problem() -> None:
    run = await run_plans(two(reply("a", 1, 1), WorkerError(FaultKind.REFUSED)), TWO)
    assert answering_call(run) is None
    assert run_usage(run).answer == Usage()
    found = answer_or_error(run)
    assert isinstance(found, ApiError)
    assert (found.status, found.code) == (502, "refused")


async def test_an_earlier_round_s_answer_is_an_answer() -> None:
    last = plan_of((1, ()))
    pool = two(reply("a", 1, 1), WorkerError(FaultKind.SERVER))
    run = await run_plans(pool, plan_of((0, ())), last)
    assert run.status is RunStatus.DONE
    assert answer_or_error(run) == RunAnswer("a")
    told = run_metadata(run, MetadataDetail.SUMMARY, "https://shikisha.example/")
    assert told is not None
    assert told["trace"] == f"https://shikisha.example/ui/runs/{run.id}"


def test_problems_of_the_house_have_their_status() -> None:
    assert api_error_of(WorkerError(FaultKind.NOT_CLEARED, "no")).status == 403
    assert api_error_of(WorkerError(FaultKind.TIMEOUT, "slow")).status == 504
