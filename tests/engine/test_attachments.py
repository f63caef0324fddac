"""Attachments reach workers that can take them, with the message that they belong to; others are not called."""

from dataclasses import replace

import pytest
from scripted_people import ScriptedApprover

from shikisha.checks.opinion import OpinionCheckSettings, build_opinion
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Caps, Price
from shikisha.core.call import NO_CLIENT_OPTIONS, Request
from shikisha.core.errors import FaultKind, TaskError
from shikisha.core.events import AttemptReason, AttemptStarted, QuestionAsked, RunStatus
from shikisha.core.messages import IMAGE_TOKENS, Attachment, ChatMessage, MediaKind, Speaker
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.visibility import max_usage, request_messages
from shikisha.engine.approvals import Decision
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode
from shikisha.workers.conductor import child_task
from support import AT_ONCE, engine, member, plan_of, seen

PNG = Attachment(MediaKind.IMAGE, "image/png", "map.png", data="aGVsbG8=")
PDF = Attachment(MediaKind.FILE, "application/pdf", "a.pdf", data="aGVsbG8=")
LINK = Attachment(MediaKind.IMAGE, url="https://example.org/a.png")
TASK = Task("What is this?", attachments=(PNG,))
ONE = plan_of((0, ()))


def taking(name: str, *kinds: MediaKind, answer: str = "a map") -> Member:
    made = member(name, answer)
    return replace(made, card=replace(made.card, takes=kinds))


async def perform(task: Task, *members: Member) -> Run:
    return await engine().run(task, Pool(members), ScriptedConductor([ONE]))


@pytest.mark.parametrize("attached", [PNG, LINK])
async def test_a_worker_that_takes_images_is_shown_one_with_the_prompt(attached: Attachment) -> None:
    one = taking("w", MediaKind.IMAGE)
    task = Task("And this?", history=(ChatMessage(Speaker.USER, "Hello."),), attachments=(attached,))
    run = await perform(task, one)
    assert run.answer == "a map"
    shown = request_messages(seen(one)[0])
    assert [turn.attachments for turn in shown] == [(), (attached,)]
    assert run.task == task


async def test_every_step_is_shown_what_is_attached_once() -> None:
    pool = Pool([taking("w", MediaKind.IMAGE)])
    await engine().run(TASK, pool, ScriptedConductor([plan_of((0, []), (0, [0]))]))
    assert [sum(len(turn.attachments) for turn in request_messages(request)) for request in seen(pool[0])] == [1, 1]


@pytest.mark.parametrize(("attached", "takes"), [(PNG, ()), (PNG, (MediaKind.FILE,)), (PDF, (MediaKind.IMAGE,))])
async def test_a_worker_that_cannot_take_it_is_not_called(attached: Attachment, takes: tuple[MediaKind, ...]) -> None:
    one = taking("w", *takes)
    run = await perform(Task("What is this?", attachments=(attached,)), one)
    assert run.finished is not None
    assert (run.status, run.finished.fault, seen(one)) == (RunStatus.FAILED, FaultKind.BAD_REQUEST, [])
    assert f"w takes no attachment of kind {attached.kind}" in run.finished.why
    assert run.charged.tokens == 0


async def test_an_attachment_of_an_earlier_turn_counts_too() -> None:
    task = Task("And now?", history=(ChatMessage(Speaker.USER, "See:", attachments=(PNG,)),))
    run = await perform(task, member("w"))
    assert run.finished is not None
    assert run.finished.fault is FaultKind.BAD_REQUEST


async def test_whoever_can_take_it_stands_in() -> None:
    blind = member("blind", fallback="eyes")
    run = await perform(TASK, blind, taking("eyes", MediaKind.IMAGE))
    assert run.answer == "a map"
    assert [(each.started.worker, each.started.reason) for each in run.attempts] == [("eyes", AttemptReason.FALLBACK)]


async def test_a_check_that_cannot_see_it_gives_no_verdict() -> None:
    judged = taking("w", MediaKind.IMAGE)
    judged = replace(judged, handoffs=(OutputCheck(build_opinion(OpinionCheckSettings(worker="judge"), "opinion")),))
    pool = Pool([judged, member("judge", "PASS")])
    run = await engine().run(TASK, pool, ScriptedConductor([ONE]))
    assert seen(pool[1]) == []
    assert run.finished is not None
    assert "takes no attachment" in run.finished.why


def test_a_reservation_holds_for_pictures_links_files_and_sounds() -> None:
    card = replace(taking("w", *MediaKind).card, price=Price(1.0), max_output_tokens=10)
    long = replace(PDF, data="a" * 80_000)
    sound = Attachment(MediaKind.AUDIO, "audio/wav", data="a" * 1000)
    parts = {PNG: IMAGE_TOKENS, LINK: IMAGE_TOKENS, PDF: IMAGE_TOKENS, long: 80_000, sound: 1000}
    plain = max_usage(request_messages(Request(Task("q"), "s")), card).tokens
    for attached, tokens in parts.items():
        assert (
            max_usage(request_messages(Request(Task("q", attachments=(attached,)), "s")), card).tokens == plain + tokens
        )
    assert max_usage(request_messages(Request(TASK, "s")), replace(card, context_tokens=999)).tokens == 999 + 10


async def test_invariant_3_a_picture_is_reserved_before_it_is_sent() -> None:
    one, recorder = taking("w", MediaKind.IMAGE), MemoryRecorder()
    caps = Caps(tokens=IMAGE_TOKENS - 1)
    run = await Engine(recorder, retry=AT_ONCE).run(TASK, Pool([one]), ScriptedConductor([ONE]), caps)
    assert (run.status, seen(one)) == (RunStatus.CAPPED, [])


async def test_an_approval_fits_the_exact_attachment() -> None:
    asked = set[str]()
    for attached in (PNG, replace(PNG, data="aGVsbG9v"), LINK):
        recorder, gated = MemoryRecorder(), taking("w", MediaKind.IMAGE)
        gated = replace(gated, card=replace(gated.card, approval=ApprovalMode.ALWAYS))
        approver = ScriptedApprover({"w": Decision(True, "someone")})
        task = Task("What is this?", attachments=(attached,))
        await Engine(recorder, approver=approver).run(task, Pool([gated]), ScriptedConductor([ONE]), run_id="r")
        events = await recorder.read("r")
        asked |= {e.question for e in events if isinstance(e, QuestionAsked)}
        asked |= {e.view for e in events if isinstance(e, AttemptStarted)}
    assert len(asked) == 6


async def test_invariant_8_a_key_in_a_name_is_masked_and_one_in_the_data_is_refused() -> None:
    secret_store = SecretStore({"KEY": "abcdefgh1234"})
    secret_store.read("KEY")
    hidden, named = replace(PNG, data="AAAAabcdefgh1234AAAA"), replace(PNG, name="abcdefgh1234.png")
    recorder, pool = MemoryRecorder(), Pool([taking("w", MediaKind.IMAGE)])
    with pytest.raises(TaskError, match="base64"):
        await Engine(recorder, secret_store=secret_store).run(
            replace(TASK, attachments=(hidden,)), pool, ScriptedConductor([ONE])
        )
    run = await Engine(recorder, secret_store=secret_store).run(
        replace(TASK, attachments=(named,)), pool, ScriptedConductor([ONE])
    )
    assert "abcdefgh1234" not in repr(await recorder.read(run.id))


async def test_a_planner_reads_of_what_is_attached_and_need_not_see_it() -> None:
    planner = member("planner", 'model_id = [0]\nsubtasks = ["look"]\naccess_list = [[]]')
    task = replace(TASK, history=(ChatMessage(Speaker.USER, "Hello."),), options={"temperature": 0.0})
    run = await engine().run(
        task, Pool([taking("w", MediaKind.IMAGE)]), LanguageModelConductor("lm:p", planner, rounds=1)
    )
    assert run.answer == "a map"
    (asked,) = seen(planner)
    assert "| user: Hello." in asked.turns[1].text
    assert "| image map.png" in asked.turns[1].text
    assert asked.client_options == NO_CLIENT_OPTIONS


def test_a_child_run_is_given_the_conversation_and_what_is_attached() -> None:
    task = replace(TASK, history=(ChatMessage(Speaker.USER, "Hello."),))
    child = child_task(Request(task, "Look closely.", schema={"type": "object"}))
    assert (child.history, child.attachments) == (task.history, task.attachments)
    assert child.answer_schema == {"type": "object"}
    assert child.tools == ()


BAD = [
    ({"data": "", "url": ""}, "either data or a url"),
    ({"url": "https://example.org/a.png"}, "either data or a url"),
    ({"data": "", "url": "http://example.org/a.png"}, "begins https://"),
    ({"data": "", "url": "file:///etc/passwd"}, "begins https://"),
    ({"kind": MediaKind.FILE, "data": "", "url": "https://example.org/a.pdf"}, "only an image can be a link"),
    ({"data": "not base64!"}, "not base64"),
    ({"media_type": "png"}, "no media type"),
    ({"media_type": "image/png;x=\n"}, "no media type"),
]


@pytest.mark.parametrize(("fields", "said"), BAD)
def test_what_is_no_attachment_says_why(fields: dict[str, str], said: str) -> None:
    values = {"kind": MediaKind.IMAGE, "media_type": "image/png", "data": "aGVsbG8=", **fields}
    with pytest.raises(TaskError, match=said):
        Attachment(**values)  # type: ignore[arg-type]  # the kinds of the values are mixed
