"""Answers to questions: which are taken, which are refused and why; classes in the configuration; the command line."""

import asyncio
import os
import pty
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from io import StringIO
from pathlib import Path

import pytest
from edges import ONE, Judged, Strict
from scripted_people import ScriptedApprover
from test_cli import Cli

from shikisha.cli.approval_prompt import TerminalApprover
from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.container import load_config
from shikisha.core.budget import Amount, Price
from shikisha.core.call import ApprovalMode, Card
from shikisha.core.errors import ClosedReason, ConfigError, FaultKind, QuestionClosed, TaskError, WorkerError
from shikisha.core.events import (
    CheckStatus,
    OnCheckFailure,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RunFinished,
    RunStatus,
)
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.task import Task
from shikisha.engine.approvals import EXPIRED, ApprovalQuestion, Decision, answer_question, question_id
from shikisha.engine.autonomy import AutonomyClass, AutonomyMode, AutonomyPolicy, EscalationRules, OnFailure
from shikisha.engine.pool import Inspection, Member, OutputCheck
from shikisha.server.lifecycle.questions import closed_question_error
from shikisha.workers.human import HumanWorker
from support import TASK, engine, member, plan_of, pool_of, run_plans, seen

YES = Decision(True, "ann")


async def reviewing(expires: float | None = 60.0) -> tuple[Strict, Run]:
    """A run that waits for a review since Unix time 1000."""
    autonomy = AutonomyClass(mode=AutonomyMode.REVIEW, expires=expires, clock=lambda: 1000.0)
    recorder = Strict()
    watched = engine(recorder).with_autonomy(AutonomyPolicy(otherwise=autonomy))
    return recorder, await watched.run(TASK, pool_of(w="42"), ScriptedConductor([ONE]))


def why(run: Run, question: str, at: float = 1001.0) -> ClosedReason:
    with pytest.raises(QuestionClosed) as refused:
        answer_question(run, question, YES, at)
    return refused.value.why


async def test_an_open_questions_answer_is_made_of_what_was_said() -> None:
    _, run = await reviewing()
    made = answer_question(run, run.open_questions[0].question, Decision(True, "ann", "43", "page", "better"), 1001.0)
    assert (made.run, made.actor, made.text, made.via, made.remark) == (run.id, "ann", "43", "page", "better")


async def test_why_a_question_is_not_open_is_said() -> None:
    recorder, run = await reviewing()
    name = run.open_questions[0].question
    assert (why(run, "0123456789abcdef"), why(run, name, 1060.0)) == (ClosedReason.UNKNOWN, ClosedReason.EXPIRED)
    recorder.add(answer_question(run, name, YES, 1001.0))
    assert why(Run.fold(await recorder.read(run.id)), name) is ClosedReason.ANSWERED


async def test_a_run_that_has_ended_waits_for_nothing() -> None:
    recorder, run = await reviewing()
    recorder.add(RunFinished(run=run.id, at=1001.0, status=RunStatus.FAILED, why="given up"))
    assert why(Run.fold(await recorder.read(run.id)), run.open_questions[0].question) is ClosedReason.OVER


@pytest.mark.parametrize(
    "said", [Decision(False, "ann", text="x"), Decision(True, "ann", text="\0"), Decision(True, "ann", remark="\ud800")]
)
async def test_an_answer_that_fits_no_question_is_refused(said: Decision) -> None:
    _, run = await reviewing()
    with pytest.raises(TaskError):
        answer_question(run, run.open_questions[0].question, said, 1001.0)


@pytest.mark.parametrize(
    ("reason", "status"),
    [(ClosedReason.UNKNOWN, 404), (ClosedReason.ANSWERED, 409), (ClosedReason.EXPIRED, 410), (ClosedReason.OVER, 409)],
)
def test_a_client_is_told_why_by_the_status(reason: ClosedReason, status: int) -> None:
    problem = closed_question_error(QuestionClosed(reason, "because"))
    assert (problem.status, problem.code) == (status, f"question_{reason}")


async def test_a_yes_to_one_call_is_no_yes_to_another_that_shows_the_worker_something_else() -> None:
    """A check sends the call back with a remark: the same worker, step and subtask, and another view."""
    verdicts = iter([CheckStatus.FAIL])

    async def judge(_: Inspection) -> CheckVerdict:
        return CheckVerdict("judged", next(verdicts, CheckStatus.PASS), "again")

    gated = member("gated", "done", OutputCheck(Judged(judge), OnCheckFailure.REDO, 1), approval=ApprovalMode.ALWAYS)
    approver = ScriptedApprover({"gated": Decision(True, "ann")})
    run = await run_plans(pool_of(gated), plan_of((0, ())), approver=approver)
    assert (run.answer, len(seen(gated))) == ("done", 2)
    assert len({question.id for question in approver.seen}) == 2


async def test_a_question_and_what_is_said_to_it_are_journaled_whole() -> None:
    gated = member("gated", approval=ApprovalMode.ALWAYS, price=Price(1.0, 2.0), max_output_tokens=50)
    approver = ScriptedApprover({"gated": Decision(False, "ann", via="page", remark="too risky")})
    recorder, plans = Strict(), [ONE, plan_of((0, ()), (1, (0,)))]
    run = await engine(recorder, approver).run(TASK, pool_of(member("other"), gated), ScriptedConductor(plans))
    events = await recorder.read(run.id)
    [asked] = [event for event in events if isinstance(event, QuestionAsked)]
    [said] = [event for event in events if isinstance(event, QuestionAnswered)]
    [question] = approver.seen
    assert (asked.round, asked.step, asked.worker, asked.asks, asked.expires) == (1, 1, "gated", question.asks, 0.0)
    assert asked.prompt == question.prompt == "May gated be called?\n\npart 1"
    assert (question.id, question.run, question.round, question.step) == (asked.question, run.id, 1, 1)
    assert asked.bound.tokens > 50
    assert (asked.bound.dollars or 0.0) > 100e-6
    assert (said.question, said.approved, said.actor, said.via, said.text) == (asked.question, False, "ann", "page", "")
    assert said.remark == "too risky"
    result = run.rounds[1].results[1]
    assert result is not None
    assert str(result.fault) == "denied: ann said no: too risky"
    assert seen(gated) == []


async def test_a_person_who_answers_is_shown_the_subtask_and_nothing_is_bound() -> None:
    pool = pool_of(Member(Card("ann"), HumanWorker()))
    approver = ScriptedApprover({"ann": Decision(True, "ann", "42", via="page", remark="sure")})
    recorder = Strict()
    run = await engine(recorder, approver).run(TASK, pool, ScriptedConductor([ONE]))
    [said] = [event for event in await recorder.read(run.id) if isinstance(event, QuestionAnswered)]
    assert (run.answer, said.text, said.via, said.remark) == ("42", "42", "page", "sure")
    assert (approver.seen[0].asks, run.asked[said.question].bound) == (QuestionKind.ANSWER, Amount())


async def test_a_no_in_the_journal_is_the_same_no_when_the_run_goes_on() -> None:
    pool, recorder = pool_of(member("gated", approval=ApprovalMode.ALWAYS)), Strict()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    [asked] = run.open_questions
    said = Decision(False, "ann", via="page", remark="too risky")
    recorder.add(answer_question(run, asked.question, said, at=0.0))
    resumed = await engine(recorder).resume(run.id, pool, ScriptedConductor([ONE]))
    result = resumed.rounds[0].results[0]
    assert result is not None
    assert str(result.fault) == "denied: ann said no: too risky"


async def test_a_call_that_is_tried_again_needs_no_second_yes() -> None:
    faults = iter([WorkerError(FaultKind.RATE_LIMITED)])
    gated = member("gated", lambda _: next(faults, "done"), approval=ApprovalMode.ALWAYS)
    approver = ScriptedApprover({"gated": Decision(True, "ann")})
    run = await run_plans(pool_of(gated), ONE, approver=approver)
    assert (run.answer, len(seen(gated)), len(approver.seen)) == ("done", 2, 1)


async def test_a_yes_in_one_round_is_no_yes_to_the_same_call_in_the_next() -> None:
    gated = member("gated", approval=ApprovalMode.ALWAYS)
    approver = ScriptedApprover({"gated": Decision(True, "ann")})
    run = await run_plans(pool_of(gated), ONE, ONE, approver=approver)
    assert (len(run.rounds), len(seen(gated))) == (2, 2)
    assert len({question.id for question in approver.seen}) == 2


async def test_a_question_that_nobody_answers_in_time_is_a_no_that_says_so() -> None:
    class Silent:
        async def ask(self, _: ApprovalQuestion) -> Decision | None:
            await asyncio.Event().wait()
            return None

    class Broken:
        async def ask(self, _: ApprovalQuestion) -> Decision | None:
            raise TimeoutError("the desk's own")

    gated = member("gated", approval=ApprovalMode.ALWAYS)
    expiring = AutonomyPolicy(otherwise=AutonomyClass(expires=0.05))
    run = await engine(approver=Silent()).with_autonomy(expiring).run(TASK, pool_of(gated), ScriptedConductor([ONE]))
    result = run.rounds[0].results[0]
    assert result is not None
    assert str(result.fault) == "denied: the question expired"
    later = AutonomyPolicy(otherwise=AutonomyClass(expires=60.0))
    run = await engine(approver=Broken()).with_autonomy(later).run(TASK, pool_of(gated), ScriptedConductor([ONE]))
    assert (run.status, len(run.open_questions)) == (RunStatus.SUSPENDED, 1)


def test_a_questions_id_is_of_every_part_of_the_call() -> None:
    call = ("run", 0, 0, QuestionKind.APPROVE, "worker", "view")
    others = [
        ("run2", 0, 0, QuestionKind.APPROVE, "worker", "view"),
        ("run", 1, 0, QuestionKind.APPROVE, "worker", "view"),
        ("run", 0, 1, QuestionKind.APPROVE, "worker", "view"),
        ("run", 0, None, QuestionKind.APPROVE, "worker", "view"),
        ("run", 0, 0, QuestionKind.REVIEW, "worker", "view"),
        ("run", 0, 0, QuestionKind.APPROVE, "worker2", "view"),
        ("run", 0, 0, QuestionKind.APPROVE, "worker", "view2"),
    ]
    assert len({question_id(*each) for each in (call, *others)}) == 1 + len(others)


def test_nobodys_no_is_a_no() -> None:
    assert (EXPIRED.approved, EXPIRED.actor) == (False, "nobody")


# Configuration


def written(folder: Path, text: str) -> Path:
    file = folder / "shikisha.toml"
    file.write_text('[workers.send]\nkind = "scripted"\n' + text)
    return file


def test_classes_are_read_in_order_and_questions_expire_as_the_nearest_table_says(tmp_path: Path) -> None:
    text = """
    [autonomy]
    expires = 60
    [[autonomy.classes]]
    name = "money"
    domain = ["finance", "tax"]
    labels = ["eu"]
    mode = "review"
    on_failure = "rollback"
    [[autonomy.classes]]
    conductor = "fixed:single"
    mode = "escalate"
    dollars = 0.5
    workers = ["send"]
    expires = 5
    """
    autonomy_policy = load_config(written(tmp_path, text), {}).autonomy_policy(86_400.0)
    first, second = autonomy_policy.classes
    assert (first.name, first.mode, first.expires, first.on_failure) == (
        "money",
        AutonomyMode.REVIEW,
        60,
        OnFailure.ROLLBACK,
    )
    assert (second.rules, second.expires) == (EscalationRules(dollars=0.5, workers=("send",)), 5)
    assert autonomy_policy.of(Task("x", domain="tax", labels=("eu",)), "fixed:vote") is first
    assert autonomy_policy.otherwise.expires == 60


def test_without_a_word_nobody_is_asked_and_the_callers_expiry_holds(tmp_path: Path) -> None:
    autonomy_policy = load_config(written(tmp_path, ""), {}).autonomy_policy(86_400.0)
    assert (autonomy_policy.otherwise.mode, autonomy_policy.otherwise.expires) == (AutonomyMode.AUTONOMOUS, 86_400.0)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('mode = "ask"', "autonomy.classes[0].mode"),
        ("", "mode"),
        ('mode = "escalate"', "needs a rule"),
        ('mode = "review"\ndollars = 1', "a rule is for mode"),
        ('mode = "autonomous"\nworkers = ["send"]', "asks no person"),
        ('mode = "escalate"\nworkers = ["sned"]', "did you mean 'send'"),
        ('mode = "review"\nconductor = "planer"', "unknown conductor 'planer'"),
        ('mode = "review"\nexpires = 0', "expires"),
        ('mode = "escalate"\nconfidence = 2', "confidence"),
        ('mode = "review"\n[[autonomy.classes]]\nmode = "autonomous"', "fits every task"),
    ],
)
def test_a_class_that_cannot_be_kept_as_written_is_an_error(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(written(tmp_path, f"[[autonomy.classes]]\n{table}\n"), {})
    assert said in str(refused.value)


COMPENSATED = """
[workers.book]
kind = "scripted"
compensate = "{0}"
[workers.cancel]
kind = "scripted"
[workers.person]
kind = "human"
[workers.chained]
kind = "scripted"
compensate = "cancel"
"""


def test_a_compensating_worker_undoes_and_is_in_no_plan(tmp_path: Path) -> None:
    pool = load_config(written(tmp_path, COMPENSATED.format("cancel")), {}).pool()
    undo = pool.named("book").undo
    assert undo is not None
    assert (undo.card.name, pool.names) == ("cancel", ("send", "book", "person", "chained"))


@pytest.mark.parametrize("name", ["nobody", "person", "chained"])
def test_a_worker_that_cannot_undo_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="compensate"):
        load_config(written(tmp_path, COMPENSATED.format(name)), {}).pool()


# The command line

REVIEWED = '[[autonomy.classes]]\ndomain = "mail"\nmode = "review"\n'


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    command = Cli(tmp_path)
    with command.config.open("a") as file:
        file.write(
            REVIEWED + '[workers.undo]\nkind = "scripted"\n[workers.do]\nkind = "scripted"\ncompensate = "undo"\n'
        )
    return command


@pytest.mark.parametrize(
    ("said", "code", "shown"),
    [(["yes"], ExitCode.OK, "42\n"), (["no"], ExitCode.FAILED, ""), (["--answer", "43"], ExitCode.OK, "43\n")],
)
def test_an_answer_is_reviewed_at_the_command_line(cli: Cli, said: list[str], code: int, shown: str) -> None:
    cli("run", "q", "--domain", "mail", code=ExitCode.WAITING)
    assert "yes|no|--answer TEXT" in cli.said
    cli("runs", "approve", "last", code=ExitCode.INPUT)
    cli("runs", "approve", "last", *said, "--remark", "because")
    assert cli("runs", "resume", code=code) == shown
    assert "because" in cli("explain", "last")


def test_a_question_that_expired_is_refused_at_the_command_line(cli: Cli) -> None:
    with cli.config.open("a") as file:
        file.write('[[autonomy.classes]]\nmode = "escalate"\nworkers = ["a"]\nexpires = 0.000001\n')
    cli("run", "q", code=ExitCode.FAILED)
    assert "the question expired" in cli.said


def test_a_run_is_rolled_back_at_the_command_line(cli: Cli) -> None:
    cli("run", "q", "-C", "fixed:single?worker=do")
    told = cli.json("runs", "rollback", "last", "--note", "a mistake")
    effects = told["effects"]
    assert isinstance(effects, list)
    assert [(effect["worker"], effect["by"], effect["undone"]) for effect in effects] == [("do", "undo", True)]
    cli("runs", "rollback", "last")
    assert "already rolled back" in cli.said
    assert "undo undid do's call" in cli("explain", "last")


def test_a_rollback_of_nothing_says_so(cli: Cli) -> None:
    cli("run", "q")
    cli("runs", "rollback", "last")
    assert "no effect" in cli.said


# At the terminal


@asynccontextmanager
async def approver(typed: str) -> AsyncIterator[tuple[TerminalApprover, Callable[[], str]]]:
    """A terminal at which this is typed; and what it shows."""
    ours, theirs = pty.openpty()
    screen = StringIO()
    os.write(ours, typed.encode())
    try:
        yield TerminalApprover(theirs, screen, nullcontext), screen.getvalue
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("typed", "approved", "text"),
    [("y\n", True, ""), ("what?\nno\n", False, ""), ("c\n43\n.\n", True, "43"), ("l\n", None, None)],
)
async def test_a_person_at_the_terminal_reviews(typed: str, approved: bool | None, text: str | None) -> None:
    async with approver(typed) as (terminal, shown):
        said = await terminal.ask(ApprovalQuestion("q", QuestionKind.REVIEW, "r", 0, 0, "w", "May it?"))
    assert (said.approved if said else None, said.text if said else None) == (approved, text)
    assert "May this be the answer?" in shown()


async def test_a_clients_tools_are_nobodys_business_at_the_terminal() -> None:
    async with approver("y\n") as (terminal, _):
        assert await terminal.ask(ApprovalQuestion("q", QuestionKind.TOOLS, "r", 0, 0, "w", "[]")) is None
