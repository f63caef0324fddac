"""Runs as spans: the tree, what spans say, the links that make a graph of it, child runs, and runs that go on."""

import asyncio
from collections.abc import Callable
from random import Random
from time import time

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from scripted_people import ScriptedApprover
from telemetry_seen import Seen, ids, said, tree

from shikisha.checks.opinion import OpinionCheckSettings, build_opinion
from shikisha.checks.text_checks import LengthCheckSettings, build_length
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import ApprovalMode, Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import (
    AnswerGraded,
    AttemptFinished,
    AttemptStarted,
    CallRole,
    EffectKept,
    EffectUndone,
    Event,
    GradeMark,
    OnCheckFailure,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RollbackStarted,
    StepFinished,
)
from shikisha.core.plan import Plan
from shikisha.core.secrets import SecretStore
from shikisha.engine.approvals import Decision
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.telemetry.attributes import span_id, trace_id
from shikisha.telemetry.export import OTelExporter
from shikisha.telemetry.export_settings import ExportSettings
from shikisha.telemetry.observer import TelemetryObserver
from shikisha.workers.conductor import ConductorWorker
from support import AT_ONCE, TASK, member, plan_of, pool_of


def flaky(*first: Exception | str) -> Callable[[Request], str | WorkerError]:
    """An answer that begins with these and then stays the last of them."""
    left = list(first)

    def answer(_: Request) -> str | WorkerError:
        now = left.pop(0) if len(left) > 1 else left[0]
        return now if isinstance(now, str | WorkerError) else str(now)

    return answer


def checked_pool() -> Pool:
    """A cheap worker that fails once, says too little and is escalated from; a dear one; a tool."""
    long_enough = OutputCheck(
        build_length(LengthCheckSettings(min_characters=5), "long enough"), OnCheckFailure.ESCALATE, 0
    )
    cheap = member(
        "cheap", flaky(WorkerError(FaultKind.SERVER, "busy"), "ok"), long_enough, kind="chat", escalate="dear"
    )
    dear = member(
        "dear",
        lambda _: Reply("long enough", Usage(100, 20, 10, 5), 0.25, model="large-1-0901"),
        kind="chat",
        price=Price(1, 1),
    )
    return pool_of(cheap, dear, member("sum", "42", kind="python"))


async def test_a_fan_out_with_a_retry_and_an_escalation_is_this_tree() -> None:
    seen = Seen()
    plan = plan_of((0, []), (2, []), (1, [0, 1]))
    await seen.engine().run(TASK, checked_pool(), ScriptedConductor([plan]), run_id="r1")
    assert tree(seen.spans()) == [
        "invoke_workflow fixed:scripted",
        "  plan fixed:scripted",
        "  invoke_agent cheap",
        "    chat small-1 !server",
        "    chat small-1",
        "    chat large-1",
        "  invoke_agent sum",
        "    execute_tool sum",
        "  invoke_agent dear <- invoke_agent cheap, invoke_agent sum",
        "    chat large-1",
    ]


async def test_calls_say_what_the_conventions_want_of_them() -> None:
    seen = Seen()
    caps = Caps(dollars=100.0, tokens=10_000)
    await seen.engine().run(TASK, checked_pool(), ScriptedConductor([plan_of((1, []), (2, [0]))]), caps, run_id="r1")
    (chat,) = seen.named("chat large-1")
    assert chat.kind.name == "CLIENT"
    told = said(chat)
    assert len(str(told.pop("shikisha.arguments.hash"))) == 64
    assert told == {
        "openinference.span.kind": "LLM",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "large-1",
        "gen_ai.response.model": "large-1-0901",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "gen_ai.usage.cost": 0.25,
        "server.address": "api.openai.com",
        "server.port": 443,
        "shikisha.worker": "dear",
        "shikisha.run.id": "r1",
        "shikisha.round": 0,
        "shikisha.step": 0,
        "shikisha.attempt": 0,
        "shikisha.attempt.reason": "first",
        "shikisha.role": "step",
        "shikisha.charged.tokens": 120,
        "shikisha.cost.dollars": 0.25,
        "shikisha.budget.dollars_left": 99.75,
        "shikisha.budget.tokens_left": 9_880,
    }
    (tool,) = seen.named("execute_tool sum")
    assert said(tool)["gen_ai.tool.call.id"] == "r1-0-1-0"
    assert (said(tool)["gen_ai.tool.name"], said(tool)["gen_ai.tool.type"]) == ("sum", "function")
    assert (tool.kind.name, said(tool)["openinference.span.kind"]) == ("INTERNAL", "TOOL")


async def test_a_run_a_plan_and_a_step_say_who_and_what() -> None:
    seen = Seen()
    await seen.engine().run(TASK, checked_pool(), ScriptedConductor([plan_of((2, []), (1, [0]))]), run_id="r1")
    root, plan, step = (
        said(seen.named(name)[0])
        for name in ("invoke_workflow fixed:scripted", "plan fixed:scripted", "invoke_agent dear")
    )
    assert root["shikisha.run.status"] == "done"
    assert root["shikisha.pool"] == ("cheap", "dear", "sum")
    assert root["openinference.span.kind"] == plan["openinference.span.kind"] == "CHAIN"
    assert plan["shikisha.plan.hash"] == step["shikisha.plan.hash"]
    assert plan["shikisha.plan.steps"] == 2
    assert step["shikisha.access"] == (0,)
    assert (step["shikisha.step.id"], step["shikisha.attempts"]) == ("0.1", 1)


async def test_an_escalation_and_a_failed_check_are_said() -> None:
    seen = Seen()
    await seen.engine().run(TASK, checked_pool(), ScriptedConductor([plan_of((0, []))]), run_id="r1")
    (dear,) = seen.named("chat large-1")
    assert said(dear)["shikisha.escalated_from"] == "cheap"
    (step,) = seen.named("invoke_agent cheap")
    verdict = step.events[0]
    assert verdict.name == "gen_ai.evaluation.result"
    assert dict(verdict.attributes or {}) == {
        "gen_ai.evaluation.name": "long enough",
        "gen_ai.evaluation.score.label": "fail",
        "gen_ai.evaluation.score.value": 0.0,
        "shikisha.attempt": 1,
        "shikisha.check.leads_to": "escalate",
    }
    failed = seen.named("chat small-1")[0]
    assert (failed.status.status_code.name, said(failed)["error.type"]) == ("ERROR", "server")


def family() -> Pool:
    """A worker that is a child run, and one below it."""
    below = ScriptedConductor([plan_of((0, []))], "fixed:below")
    return pool_of(
        Member(Card("kid", kind="conductor"), ConductorWorker(below, ["cheap"])), member("cheap", kind="chat")
    )


@pytest.mark.parametrize(("judge", "kind"), [("dear", "LLM"), ("sum", "EVALUATOR")])
async def test_a_model_that_judges_is_a_call_to_a_model_whose_tokens_count(judge: str, kind: str) -> None:
    seen = Seen()
    asks = OutputCheck(build_opinion(OpinionCheckSettings(worker=judge), "sound"), OnCheckFailure.PASS, 0)
    pool = pool_of(member("cheap", "ok", asks, kind="chat"), member("dear", "yes", kind="chat"), member("sum", "yes"))
    await seen.engine().run(TASK, pool, ScriptedConductor([plan_of((0, ()))]))
    (judging,) = [span for span in seen.spans() if said(span).get("shikisha.role") == "check"]
    assert said(judging)["openinference.span.kind"] == kind


async def test_a_child_run_hangs_under_the_attempt_that_started_it() -> None:
    seen = Seen()
    await seen.engine().run(TASK, family(), ScriptedConductor([plan_of((0, []))]), run_id="r1")
    assert tree(seen.spans()) == [
        "invoke_workflow fixed:scripted",
        "  plan fixed:scripted",
        "  invoke_agent kid",
        "    attempt kid",
        "      invoke_workflow fixed:below",
        "        plan fixed:below",
        "        invoke_agent cheap",
        "          chat small-1",
    ]
    (child,) = seen.named("invoke_workflow fixed:below")
    assert (said(child)["gen_ai.workflow.nested"], said(child)["shikisha.depth"]) == (True, 1)
    assert {ids(span)[0] for span in seen.spans()} == {trace_id("r1")}


async def test_a_call_that_a_person_allows_says_who_did_and_for_which_call() -> None:
    seen = Seen()
    asks = pool_of(member("cheap", kind="chat", approval=ApprovalMode.ALWAYS))
    approver = ScriptedApprover({"cheap": Decision(True, "ann@example.org", via="page")})
    await seen.engine(approver=approver).run(TASK, asks, ScriptedConductor([plan_of((0, []))]), run_id="r1")
    (step,) = seen.named("invoke_agent cheap")
    assert [event.name for event in step.events] == ["shikisha.question", "shikisha.approval"]
    told = said(step)
    assert (told["shikisha.approval.decision"], told["shikisha.approval.via"]) == ("approved", "page")
    assert told["shikisha.approval.actor"] == "ann@example.org"
    assert told["shikisha.question.hash"] == approver.seen[0].id


async def test_a_grade_is_an_evaluation_under_its_run() -> None:
    seen, recorder = Seen(), MemoryRecorder()
    await seen.engine(recorder).run(TASK, pool_of(cheap="4"), ScriptedConductor([plan_of((0, []))]), run_id="r1")
    seen.observer.observe(AnswerGraded(run="r1", at=time(), checker="exact", mark=GradeMark.RIGHT, score=1.0))
    (grade,) = seen.named("evaluate exact")
    assert grade.parent is not None
    assert grade.parent.span_id == ids(seen.named("invoke_workflow fixed:scripted")[0])[1]
    assert dict(grade.events[0].attributes or {})["gen_ai.evaluation.score.value"] == 1.0


async def test_a_client_s_trace_is_gone_on_with() -> None:
    seen = Seen()
    seen.observer.adopt("r1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await seen.engine().run(TASK, family(), ScriptedConductor([plan_of((0, []))]), run_id="r1")
    assert {ids(span)[0] for span in seen.spans()} == {0x0AF7651916CD43DD8448EB211C80319C}
    (root,) = seen.named("invoke_workflow fixed:scripted")
    assert root.parent is not None
    assert (root.parent.span_id, root.parent.is_remote) == (0xB7AD6B7169203331, True)


async def journal_of(pool: Pool, *plans: Plan) -> tuple[Event, ...]:
    """The events of a run that nobody watched."""
    recorder = MemoryRecorder()
    await Engine(recorder, retry=AT_ONCE).run(TASK, pool, ScriptedConductor(plans), run_id="r1")
    return await recorder.read("r1")


@pytest.mark.parametrize("recalled", [True, False])
async def test_a_run_that_another_server_goes_on_with_stays_in_its_trace(recalled: bool) -> None:
    pool, plan = pool_of(cheap="a", dear="b"), plan_of((0, []), (1, [0]))
    events = await journal_of(pool, plan)
    died = next(i for i, event in enumerate(events) if isinstance(event, StepFinished)) + 2
    first, second, recorder = Seen(), Seen(), MemoryRecorder()
    for event in events[:died]:
        first.observer.observe(event)
        recorder.add(event)
    if recalled:
        second.observer.recall(events[:died])
    await second.engine(recorder).resume("r1", pool, ScriptedConductor([plan]))
    both = [*first.spans(), *second.spans()]
    assert {ids(span)[0] for span in both} == {trace_id("r1")}
    assert len({ids(span)[1] for span in both}) == len(both)
    roots = [span for span in second.spans() if span.name.startswith("invoke_workflow")]
    assert [link.context.span_id for link in roots[-1].links] == [span_id("r1", 0, "run")]
    if recalled:
        assert tree(both) == AFTER_A_DEATH


AFTER_A_DEATH = [
    "invoke_workflow fixed:scripted !uncertain",  # told by whoever went on, as the one that began it could not
    "  plan fixed:scripted",
    "  invoke_agent cheap",
    "    chat small-1",
    "  invoke_agent dear !uncertain <- invoke_agent cheap",
    "    chat large-1 !uncertain",
    "invoke_workflow fixed:scripted <- invoke_workflow fixed:scripted",
    "  invoke_agent dear <- invoke_agent cheap",
    "    chat large-1",
]


async def test_a_run_that_waits_is_closed_and_goes_on_as_a_further_part() -> None:
    seen, recorder = Seen(), MemoryRecorder()
    pool = pool_of(member("ann", lambda _: WorkerError(FaultKind.WAITING, "who?"), kind="human"))
    scripted = ScriptedConductor([plan_of((0, []))])
    await seen.engine(recorder).run(TASK, pool, scripted, run_id="r1")
    assert tree(seen.spans()) == [
        "invoke_workflow fixed:scripted",
        "  plan fixed:scripted",
        "  invoke_agent ann",
        "    attempt ann",
    ]
    assert said(seen.named("invoke_workflow fixed:scripted")[0])["shikisha.run.status"] == "suspended"
    approver = ScriptedApprover({"ann": Decision(True, "ann", "me")})
    await seen.engine(recorder, approver).resume("r1", pool, scripted)
    parts = seen.named("invoke_workflow fixed:scripted")
    assert [said(part).get("shikisha.run.part", 0) for part in parts] == [0, 1]
    assert parts[1].links[0].context.span_id == ids(parts[0])[1]
    assert said(parts[1])["shikisha.run.status"] == "done"


async def test_spans_of_runs_side_by_side_do_not_mix() -> None:
    seen = Seen()
    pool, scripted = checked_pool(), ScriptedConductor([plan_of((1, []), (2, []), (1, [0, 1]))])
    engine = seen.engine()
    await asyncio.gather(*[engine.run(TASK, pool, scripted, run_id=f"r{i}") for i in range(20)])
    assert len(seen.spans()) == 20 * 8
    for span in seen.spans():
        assert ids(span)[0] == trace_id(str(said(span)["shikisha.run.id"]))


def test_a_trace_id_is_the_same_everywhere() -> None:
    assert f"{trace_id('261120-114437-abcdefgh'):032x}" == "35ec53e049250867726d7cfceb469782"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx: y",
        "00-" + "a" * 100_000,
    ],
)
async def test_what_is_no_traceparent_is_as_none(header: str | None) -> None:
    seen = Seen()
    seen.observer.adopt("r1", header)
    await seen.engine().run(TASK, pool_of(cheap="4"), ScriptedConductor([plan_of((0, []))]), run_id="r1")
    (root,) = seen.named("invoke_workflow fixed:scripted")
    assert (ids(root)[0], root.parent) == (trace_id("r1"), None)


async def told(*events: Event) -> list[str]:
    """The tree of a run of one step, and of what is heard of it afterwards."""
    seen = Seen()
    for event in (*await journal_of(pool_of(cheap="a"), plan_of((0, []))), *events):
        seen.observer.observe(event)
    return tree(seen.spans())


async def test_a_rollback_and_what_it_came_to_stand_under_the_run() -> None:
    later = time()
    after: list[Event] = [
        RollbackStarted(run="r1", at=later + 1, rollback=0, actor="ann"),
        AttemptStarted(
            run="r1", at=later + 2, round=-1, step=0, attempt=0, worker="sum", key="r1--1-0-0", role=CallRole.UNDO
        ),
        AttemptFinished(run="r1", at=later + 3, round=-1, step=0, attempt=0, worker="sum", text="gone"),
        EffectUndone(run="r1", at=later + 4, rollback=0, effect="r1-0-0-0", worker="cheap", by="sum"),
        EffectKept(run="r1", at=later + 5, rollback=0, effect="x", worker="dear", by="sum", fault=FaultKind.SERVER),
    ]
    assert (await told(*after))[-4:] == ["  rollback", "  execute_tool sum", "  undo cheap", "  undo dear !server"]


async def test_a_review_of_the_answer_is_the_run_s_and_no_step_s() -> None:
    seen = Seen()
    events = await journal_of(pool_of(cheap="a"), plan_of((0, [])))
    asked = QuestionAsked(
        run="r1", at=time(), round=0, step=0, worker="cheap", question="q", asks=QuestionKind.REVIEW, prompt="well?"
    )
    answered = QuestionAnswered(run="r1", at=time(), question="q", approved=True, actor="ann", via="page")
    for event in (*events[:-1], asked, answered, events[-1]):
        seen.observer.observe(event)
    (root,) = seen.named("invoke_workflow fixed:scripted")
    assert [moment.name for moment in root.events] == ["shikisha.question", "shikisha.approval"]
    assert said(root)["shikisha.approval.actor"] == "ann"
    assert len(seen.named("invoke_agent cheap")) == 1


async def test_what_comes_in_no_order_at_all_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    events = await journal_of(checked_pool(), plan_of((0, []), (2, []), (1, [0, 1])))
    for order in range(40):
        shuffled = list(events)
        Random(order).shuffle(shuffled)
        for event in shuffled:
            seen.observer.observe(event)
    assert seen.spans()
    assert [record.getMessage() for record in caplog.records] == []


class Broken(SpanProcessor):
    """A processor that raises."""

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError(f"no room for {span.name}")


async def test_an_observer_that_breaks_is_said_once_and_breaks_no_run(caplog: pytest.LogCaptureFixture) -> None:
    observer = TelemetryObserver(OTelExporter(ExportSettings(service="tests"), Broken()), SecretStore({}), {})
    engine = Engine(MemoryRecorder(), observe=observer.observe, retry=AT_ONCE)
    run = await engine.run(TASK, checked_pool(), ScriptedConductor([plan_of((0, []), (1, [0]))]), run_id="r1")
    assert run.answer == "long enough"
    said_of_it = [record.getMessage() for record in caplog.records]
    assert said_of_it == ["telemetry: OSError; spans may be missing (logged once)"]
