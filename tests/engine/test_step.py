"""Who stands in for whom, and what a failed handoff check leads to."""

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptReason, CheckDecided, CheckStatus, OnCheckFailure, RunStatus
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.task import Task
from shikisha.engine.pool import Inspection, Member, OutputCheck
from support import Answer, AnswerFunction, Answers, engine, member, plan_of, pool_of, run_events, run_plans, seen

ONE = plan_of((0, ()))


class Wants:
    """A check that wants a word in the answer."""

    name = "wants"

    def __init__(self, word: str) -> None:
        self._word = word

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        status = CheckStatus.PASS if self._word in inspection.text else CheckStatus.FAIL
        return CheckVerdict(self.name, status, f"no {self._word!r} in it")


class AsksJudge:
    """A check that asks a worker."""

    name = "judge"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        assert inspection.ask is not None
        said = await inspection.ask("judge", f"Is {inspection.text} good?")
        return CheckVerdict(self.name, CheckStatus.PASS if said == "yes" else CheckStatus.FAIL, said)


def down(_: Request) -> Answer:
    return WorkerError(FaultKind.AUTH, "no key")


def in_turn(*answers: str) -> AnswerFunction:
    left = iter(answers)
    return lambda _: next(left)


def story(run: Run) -> list[tuple[str, AttemptReason, str | None]]:
    """Who was asked, why, and instead of whom."""
    return [(a.started.worker, a.started.reason, a.started.instead_of) for a in run.attempts]


async def test_invariant_9_after_a_fault_the_fallback_is_asked_and_it_shows() -> None:
    pool = pool_of(member("a", down, fallback="b"), b="from b")
    run = await run_plans(pool, ONE)
    assert run.answer == "from b"
    assert story(run) == [("a", AttemptReason.FIRST, None), ("b", AttemptReason.FALLBACK, "a")]
    result = run.rounds[0].results[0]
    assert result is not None
    assert result.worker == "b"


async def test_invariant_9_after_the_fallback_the_dearer_worker_is_asked_and_it_shows() -> None:
    pool = pool_of(member("a", down, fallback="b"), member("b", down, escalate="c"), c="from c")
    assert story(await run_plans(pool, ONE))[1:] == [
        ("b", AttemptReason.FALLBACK, "a"),
        ("c", AttemptReason.ESCALATION, "b"),
    ]


async def test_stand_ins_that_point_at_each_other_end() -> None:
    pool = pool_of(member("a", down, fallback="b"), member("b", down, fallback="a", escalate="a"))
    run = await run_plans(pool, ONE)
    assert (len(story(run)), run.status) == (2, RunStatus.FAILED)


async def test_a_failed_check_is_told_to_the_same_worker() -> None:
    one = member("a", in_turn("bad", "good"), OutputCheck(Wants("good"), OnCheckFailure.REDO))
    run = await run_plans(pool_of(one), ONE)
    assert run.answer == "good"
    assert story(run)[1] == ("a", AttemptReason.REDO, None)
    assert seen(one)[1].remarks == ("no 'good' in it",)


async def test_redoing_is_bounded_and_then_escalates() -> None:
    handoff = OutputCheck(Wants("good"), OnCheckFailure.REDO, redo=2)
    pool = pool_of(member("a", "bad", handoff, escalate="b"), b="anything")
    assert [who for who, _, _ in story(await run_plans(pool, ONE))] == ["a", "a", "a", "b"]


async def test_a_check_may_escalate_at_once() -> None:
    pool = pool_of(member("a", "bad", OutputCheck(Wants("good"), OnCheckFailure.ESCALATE), escalate="b"), b="fine")
    run = await run_plans(pool, ONE)
    assert (run.answer, story(run)[1]) == ("fine", ("b", AttemptReason.ESCALATION, "a"))


async def test_invariant_6_an_answer_that_stays_refused_is_a_fault_and_no_answer() -> None:
    run = await run_plans(pool_of(member("a", "bad", OutputCheck(Wants("good"), OnCheckFailure.ESCALATE))), ONE)
    assert (run.status, run.answer) == (RunStatus.FAILED, None)
    assert run.finished is not None
    assert run.finished.fault is FaultKind.CHECK_FAILED


async def test_a_check_may_stop_the_run_before_anything_else_starts() -> None:
    after = member("after")
    pool = pool_of(member("a", "bad", OutputCheck(Wants("good"), OnCheckFailure.STOP)), after)
    run = await run_plans(pool, plan_of((0, ()), (1, (0,))))
    assert (run.status, seen(after)) == (RunStatus.FAILED, [])


async def test_a_check_may_only_note_its_verdict() -> None:
    run = await run_plans(pool_of(member("a", "bad", OutputCheck(Wants("good"), OnCheckFailure.PASS))), ONE)
    result = run.rounds[0].results[0]
    assert result is not None
    assert (run.answer, [verdict.passed for verdict in result.verdicts]) == ("bad", [False])


async def test_a_checking_worker_is_called_inside_journal_and_budget() -> None:
    pool = pool_of(
        member("a", "bad", OutputCheck(AsksJudge(), OnCheckFailure.ESCALATE), escalate="b"), b="b", judge="no"
    )
    run, events = await run_events(pool, ONE)
    assert [who for who, _, _ in story(run)] == ["a", "judge", "b"]
    decided = [event for event in events if isinstance(event, CheckDecided)]
    assert [(check.status, check.leads_to) for check in decided] == [(CheckStatus.FAIL, OnCheckFailure.ESCALATE)]


async def test_a_check_whose_worker_is_down_has_not_passed() -> None:
    pool = pool_of(member("a", "fine", OutputCheck(AsksJudge(), OnCheckFailure.ESCALATE)), member("judge", down))
    run = await run_plans(pool, ONE)
    assert run.answer is None


@pytest.mark.parametrize("count", [1, 3])
async def test_all_checks_must_hold(count: int) -> None:
    handoffs = [OutputCheck(Wants("go"), OnCheckFailure.ESCALATE)] * count + [
        OutputCheck(Wants("good"), OnCheckFailure.ESCALATE)
    ]
    run = await run_plans(pool_of(member("a", "go", *handoffs)), ONE)
    assert run.answer is None


async def test_invariant_6_a_check_that_breaks_has_not_passed() -> None:
    class Broken:
        name = "broken"

        async def inspect(self, inspection: Inspection) -> CheckVerdict:
            raise ZeroDivisionError(inspection.text)

    run = await run_plans(pool_of(member("a", "fine", OutputCheck(Broken(), OnCheckFailure.ESCALATE))), ONE)
    assert run.finished is not None
    assert (run.status, run.finished.fault) == (RunStatus.FAILED, FaultKind.CHECK_FAILED)


async def test_invariant_2_what_a_failure_may_quote_bears_the_labels_of_its_worker() -> None:
    """A reason repeats the answer, and a fault what the worker said."""
    secret = Card("a", adds=("secret",))
    refused = Member(secret, Answers("bad"), (OutputCheck(Wants("good"), OnCheckFailure.ESCALATE),))
    for failing in (refused, Member(secret, Answers(down))):
        (result,) = (await run_plans(pool_of(failing), ONE)).rounds[0].results
        assert result is not None
        assert result.fault is not None
        assert result.labels == {"secret"}


async def test_what_the_client_reads_stands_in_no_fence() -> None:
    task = Task("q", answer_schema={"type": "object"})
    for answer, status in (("{}", RunStatus.DONE), ("```json\n{}\n```", RunStatus.FAILED)):
        run = await engine().run(task, pool_of(w=answer), ScriptedConductor([ONE]))
        assert run.status is status
