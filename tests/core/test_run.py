"""A Run is its events folded: any beginning of them is a run too, and nothing is kept beside them."""

import pytest

from shikisha.checks.text_checks import FixedCheck
from shikisha.core.budget import Amount, Caps, Usage
from shikisha.core.errors import Fault, FaultKind, WorkerError
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    CheckStatus,
    Event,
    OnCheckFailure,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.run import CheckVerdict, Result, Run
from shikisha.core.task import Task
from shikisha.engine.pool import OutputCheck
from shikisha.journal.codec import decode_event
from support import member, plan_of, pool_of, run_events

PLAN = plan_of((0, []), (1, [0]))
STARTED = RunStarted(
    run="r",
    at=10.0,
    conductor="c",
    pool=("a", "b"),
    caps=Caps(),
    prompt="q",
    context="c",
    task_id="t",
    labels=("l",),
    tenant="acme",
)
PROPOSED = PlanProposed(run="r", at=11.0, round=0, conductor="c", plan=PLAN.dumps())
ASKED = QuestionAsked(
    run="r", at=15.0, round=0, step=0, worker="a", question="id", asks=QuestionKind.APPROVE, prompt="May a be called?"
)


def attempt(number: int = 0, step: int | None = 0, at: float = 12.0) -> AttemptStarted:
    return AttemptStarted(
        run="r", at=at, round=0, step=step, attempt=number, worker="a", key="k", reserved=Amount(100, 0.5)
    )


def ended(number: int = 0, step: int | None = 0, at: float = 13.0, text: str = "fine") -> AttemptFinished:
    return AttemptFinished(
        run="r", at=at, round=0, step=step, attempt=number, worker="a", text=text, usage=Usage(7, 3), dollars=0.25
    )


def failed(number: int = 0, at: float = 13.0) -> AttemptFailed:
    return AttemptFailed(
        run="r", at=at, round=0, step=0, attempt=number, worker="a", fault=FaultKind.SERVER, charged=Amount(20, None)
    )


@pytest.mark.parametrize("events", [(), (PROPOSED,), (RunResumed(run="r", at=0.0), STARTED)])
def test_a_run_begins_with_its_start(events: tuple[Event, ...]) -> None:
    with pytest.raises(ValueError, match=r"a run's first event is run\.started"):
        Run.fold(events)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (RunResumed(run="other", at=0.0), "an event of run other among those of run r"),
        (ended(), "attempt 0 of step 0 ended but never started"),
        (STARTED, "an event of unknown kind"),
    ],
)
def test_what_does_not_belong_is_refused(event: Event, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Run.fold((STARTED, event))


def test_the_task_is_as_it_was_given() -> None:
    assert Run.fold((STARTED,)).task == Task("q", "c", "t", "", ("l",), tenant="acme")


def test_what_an_attempt_without_an_outcome_may_have_used_is_what_was_reserved() -> None:
    run = Run.fold((STARTED, PROPOSED, attempt()))
    assert run.attempts[0].in_flight
    assert (run.charged, run.uncertain, run.counted) == (Amount(), Amount(100, 0.5), Amount(100, 0.5))


def test_a_failure_of_a_journal_from_before_uncertain_amounts_folds_as_it_did() -> None:
    old = decode_event(
        "attempt.failed",
        "r",
        2.0,
        '{"round":0,"step":0,"attempt":0,"worker":"w","fault":"timeout","charged":{"tokens":100,"dollars":0.5}}',
        {},
    )
    run = Run.fold((STARTED, PROPOSED, attempt(), old))
    assert (run.charged, run.uncertain) == (Amount(100, 0.5), Amount())


def test_the_charge_is_the_sum_of_all_calls_planning_included() -> None:
    planning = attempt(step=None), ended(step=None)
    run = Run.fold((STARTED, *planning, PROPOSED, attempt(), ended(), attempt(1), ended(1)))
    assert run.charged == Amount(30, 0.75)
    assert [attempt.started.step for attempt in run.attempts] == [None, 0, 0]


def test_a_charge_that_nobody_knows_makes_the_sum_unknown() -> None:
    assert Run.fold((STARTED, PROPOSED, attempt(), failed())).charged == Amount(20, None)


def test_an_outcome_settles_its_own_attempt() -> None:
    run = Run.fold((STARTED, PROPOSED, attempt(), failed(), attempt(1), ended(1)))
    assert [type(each.outcome) for each in run.attempts] == [AttemptFailed, AttemptFinished]


def test_a_result_is_the_answer_of_the_attempt_that_the_step_ended_with() -> None:
    events = (attempt(), ended(text="first"), attempt(1), ended(1, text="second"))
    run = Run.fold((STARTED, PROPOSED, *events, StepFinished(run="r", at=14.0, round=0, step=0, worker="a", attempt=1)))
    assert run.rounds[0].results == (Result("a", "second"), None)


def test_a_result_has_the_verdicts_on_its_own_attempt() -> None:
    checks = [
        CheckDecided(run="r", at=13.5, round=0, step=0, attempt=number, check="sum", status=status, reason=status)
        for number, status in enumerate((CheckStatus.FAIL, CheckStatus.PASS))
    ]
    end = StepFinished(run="r", at=14.0, round=0, step=0, worker="a", attempt=1)
    run = Run.fold((STARTED, PROPOSED, attempt(), ended(), attempt(1), ended(1), *checks, end))
    assert run.rounds[0].results[0] == Result("a", "fine", None, (CheckVerdict("sum", CheckStatus.PASS, "pass"),))


def test_invariant_6_a_failed_step_is_a_result_with_a_typed_fault_and_no_text() -> None:
    fault = StepFinished(run="r", at=14.0, round=0, step=0, worker="a", fault=FaultKind.SERVER, message="down")
    result = Run.fold((STARTED, PROPOSED, attempt(), failed(), fault)).rounds[0].results[0]
    assert result == Result("a", None, Fault(FaultKind.SERVER, "down"))
    assert not result.ok


def test_a_status_follows_pauses_and_the_end() -> None:
    paused = RunPaused(run="r", at=15.0, status=RunStatus.SUSPENDED)
    resumed = RunResumed(run="r", at=99.0)
    finished = RunFinished(run="r", at=100.0, status=RunStatus.DONE, answer="42")
    events = (STARTED, paused, resumed, finished)
    folded = [Run.fold(events[:count]) for count in range(1, 5)]
    assert [run.status for run in folded] == [RunStatus.RUNNING, RunStatus.SUSPENDED, RunStatus.RUNNING, RunStatus.DONE]
    assert [run.answer for run in folded] == [None, None, None, "42"]


def test_the_time_that_a_run_waits_or_lies_still_is_not_counted() -> None:
    answered = QuestionAnswered(run="r", at=1000.0, question="id", approved=True, actor="eve")
    events = (STARTED, PROPOSED, ASKED, answered, RunResumed(run="r", at=2000.0), attempt(at=2001.0))
    assert Run.fold(events).active_seconds == 1 + 4 + 1


def test_a_clock_that_goes_backwards_takes_no_time_away() -> None:
    assert Run.fold((STARTED, PROPOSED, attempt(at=3.0), ended(at=4.0))).active_seconds == 1 + 0 + 1


def test_a_question_is_open_until_it_is_answered() -> None:
    assert Run.fold((STARTED, PROPOSED, ASKED)).open_questions == [ASKED]
    answered = QuestionAnswered(run="r", at=16.0, question="id", approved=False, actor="eve")
    assert Run.fold((STARTED, PROPOSED, ASKED, answered)).open_questions == []


async def test_invariant_4_a_run_is_the_fold_of_its_events_and_so_is_every_beginning_of_it() -> None:
    faults = iter([WorkerError(FaultKind.SERVER), WorkerError(FaultKind.RATE_LIMITED)])
    check = OutputCheck(FixedCheck([CheckStatus.FAIL, CheckStatus.PASS], reason="too short"), OnCheckFailure.REDO)
    pool = pool_of(member("a", lambda _: next(faults, "fine")), member("b", "done", check))
    run, events = await run_events(pool, PLAN, PLAN)
    assert Run.fold(events) == run
    for count in range(1, len(events)):
        part = Run.fold(events[:count])
        assert part.id == run.id
        assert part.finished is None
        assert len(part.attempts) <= len(run.attempts)
    assert (run.status, run.answer, len(run.attempts)) == (RunStatus.DONE, "done", 7)


def test_a_server_whose_clock_is_minutes_behind_goes_on_with_a_run_and_takes_no_seconds_from_it() -> None:
    times = iter([10.0, 13.0, -290.0, -280.0])  # the second server is five minutes behind the first
    begun = RunStarted(run="r", at=next(times), conductor="c", pool=("a", "b"), caps=Caps(), prompt="q")
    proposed = PlanProposed(run="r", at=next(times), round=0, conductor="c", plan=PLAN.dumps())
    resumed = RunResumed(run="r", at=next(times))
    ended = RunFinished(run="r", at=next(times), status=RunStatus.FAILED, why="no worker")
    seconds = [Run.fold([begun, proposed, resumed, ended][:count]).active_seconds for count in range(1, 5)]
    assert seconds == [0.0, 3.0, 3.0, 13.0]
