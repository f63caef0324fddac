"""What people and models wrote is in spans only where it is asked for, and keys are in nothing that leaves."""

import json

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from scripted_people import ScriptedApprover
from telemetry_seen import Seen, said

from shikisha.checks.opinion import OpinionCheckSettings, build_opinion
from shikisha.checks.text_checks import PatternCheckSettings, build_pattern
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import ApprovalMode, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import OnCheckFailure
from shikisha.core.secrets import MASK, SecretStore
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.engine.pool import OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.telemetry.attributes import describe_worker
from shikisha.telemetry.export_settings import capture_content
from support import member, plan_of, pool_of

WORDS = ("rhubarb", "quince", "medlar")  # what the user, a model and a tool say


def garden() -> Pool:
    """A model and a tool that say words of their own, and a model whose error message does."""
    return pool_of(
        member("cheap", "quince", kind="chat"),
        member("sum", "medlar", kind="python"),
        member("dear", WorkerError(FaultKind.SERVER, "quince in an error"), kind="chat", attempts=1, fallback="cheap"),
    )


def everything(spans: "list[ReadableSpan]") -> str:
    """All that spans say, as one text."""
    return json.dumps([json.loads(span.to_json()) for span in spans])


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_off_unless_it_is_asked_for(content: bool) -> None:
    seen = Seen(content=content)
    plan = plan_of((0, []), (1, [0]), (2, []), (0, [0, 1]))
    await seen.engine().run(Task("grow rhubarb"), garden(), ScriptedConductor([plan]), run_id="r1")
    told = everything(list(seen.spans()))
    assert [word in told for word in WORDS] == [content] * 3
    assert ("part 0" in told) is content


async def test_content_is_in_the_places_that_the_conventions_have_for_it() -> None:
    seen = Seen(content=True)
    await seen.engine().run(
        Task("grow rhubarb"), garden(), ScriptedConductor([plan_of((1, []), (0, [0]))]), run_id="r1"
    )
    (root,) = seen.named("invoke_workflow fixed:scripted")
    asked = json.loads(str(said(root)["gen_ai.input.messages"]))
    assert asked == [{"role": "user", "parts": [{"type": "text", "content": "grow rhubarb"}]}]
    assert (said(root)["input.value"], said(root)["output.value"]) == ("grow rhubarb", "quince")
    (answer,) = json.loads(str(said(seen.named("chat small-1")[0])["gen_ai.output.messages"]))
    assert answer["parts"] == [{"type": "text", "content": "quince"}]
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
    tool = said(seen.named("execute_tool sum")[0])
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == ("part 0", "medlar")


@pytest.mark.parametrize("ordinal", [0, 1])
async def test_a_step_says_what_its_worker_answered_and_not_what_a_judge_said_of_it(ordinal: int) -> None:
    seen = Seen(content=True)
    asks = OutputCheck(build_opinion(OpinionCheckSettings(worker="dear"), "sound"), OnCheckFailure.PASS, 0)
    answering = (member("cheap", "quince", asks, kind="chat"), member("sum", "medlar", asks, kind="python"))
    pool = pool_of(*answering, member("dear", "yes", kind="chat"))
    await seen.engine().run(Task("grow rhubarb"), pool, ScriptedConductor([plan_of((ordinal, []))]))
    (step,) = [span for span in seen.spans() if span.name.startswith("invoke_agent")]
    (answer,) = json.loads(str(said(step)["gen_ai.output.messages"]))
    assert answer["parts"] == [{"type": "text", "content": ("quince", "medlar")[ordinal]}]


@pytest.mark.parametrize(
    ("value", "captured"), [("true", True), ("TRUE ", True), ("false", False), ("1", False), ("", False), (None, False)]
)
def test_one_variable_asks_for_content(value: str | None, captured: bool) -> None:
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    assert capture_content({} if value is None else {name: value}) is captured


KEY = "planted-0123456789abcdef"


async def test_invariant_8_keys_are_in_no_span_and_no_metric_whoever_said_them() -> None:
    secret_store = SecretStore({"KEY": KEY})
    secret_store.read("KEY")
    known = (describe_worker("cheap", "chat", f"knows {KEY}", model=f"model-{KEY}", url=f"https://{KEY}.example/v1"),)
    seen = Seen(content=True, secret_store=secret_store, known=known)

    def leaks(request: Request) -> Reply | WorkerError:
        if len(request.remarks) > 0:
            return WorkerError(FaultKind.AUTH, f"bad key {KEY}")
        return Reply(f"my key is {KEY}", model=f"m-{KEY}")

    check = OutputCheck(build_pattern(PatternCheckSettings(pattern="never"), f"named {KEY}"), OnCheckFailure.REDO, 1)
    pool = pool_of(member("cheap", leaks, check, kind="chat", approval=ApprovalMode.ALWAYS))
    approver = ScriptedApprover({"cheap": Decision(True, f"ann {KEY}", via="page")})
    engine = seen.engine(MemoryRecorder(), approver, secret_store)
    await engine.run(
        Task(f"use {KEY}", f"and {KEY}"), pool, ScriptedConductor([plan_of((0, []))], f"fixed:{KEY}"), run_id="r1"
    )
    told = everything(list(seen.spans())) + str(seen.points())
    assert KEY not in told
    assert MASK in told
