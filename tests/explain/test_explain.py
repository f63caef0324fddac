"""An explanation says why each worker acted, what it saw and what not, what was tried, and what it cost."""

import json
from dataclasses import replace

import pytest
from scripted_people import ScriptedApprover

from shikisha.checks.text_checks import FixedCheck
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import Reply
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import (
    AnswerGraded,
    AttemptFinished,
    BodiesErased,
    CheckStatus,
    GradeMark,
    OnCheckFailure,
    StepFinished,
)
from shikisha.core.messages import Attachment, ChatMessage, MediaKind, Speaker
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.engine.conductor import Proposal, Rejection, Situation
from shikisha.engine.pool import Member, OutputCheck
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.evals.graders import Grade
from shikisha.evals.reward import Reward
from shikisha.evals.reward import grade_events as grades
from shikisha.explain import TrackRecord, assurance, explain, explain_text, track_record
from shikisha.explain.explanation import GradeExplanation, StepExplanation
from shikisha.workers.conductor import ConductorWorker
from support import TASK, engine, member, plan_of, pool_of, run_events, run_plans


def steps_of(run: Run) -> tuple[StepExplanation, ...]:
    (turn,) = explain(run).rounds
    return turn.steps


def taking_turns(*answers: str | WorkerError) -> Member:
    """A worker that gives these answers one after another."""
    left = list(answers)
    return member("ann", lambda _: left.pop(0))


async def test_it_says_what_each_worker_saw_and_what_was_withheld() -> None:
    run = await run_plans(pool_of(ann="A", bob="B"), plan_of((0, ()), (1, ()), (0, (1,))))
    first, _, last = steps_of(run)
    assert (first.seen, first.withheld) == ((), ())
    assert [(seen.step, seen.subtask, seen.answer) for seen in last.seen] == [(1, "part 1", "B")]
    assert last.withheld == (0,)
    assert last.calls[0].granted == (1,)
    assert last.calls[0].view


async def test_it_says_what_was_said_before_and_what_is_attached() -> None:
    task = Task(
        "And now?",
        history=(ChatMessage(Speaker.USER, "Is it\nwet?"), ChatMessage(Speaker.ASSISTANT, "No.")),
        attachments=(Attachment(MediaKind.IMAGE, "image/png", "map.png", "aGk="),),
    )
    told = explain(await engine().run(task, pool_of(w="x"), ScriptedConductor([plan_of((0, ()))])))
    assert told.conversation == "user: Is it\nwet?\nassistant: No."
    assert "after 31 characters of conversation: …user: Is it wet? assistant: No." in explain_text(told)
    assert "attached: image map.png" in explain_text(told)
    assert told.to_json()["attached"] == ["image map.png"]


async def test_a_planned_worker_that_answers_is_the_plans_choice() -> None:
    (step,) = steps_of(await run_plans(pool_of(ann="A", bob="B"), plan_of((1, ()))))
    assert (step.planned, step.ordinal, step.worker, step.answer) == ("bob", 1, "bob", "B")
    assert [call.why for call in step.calls] == ["the plan names it"]


async def test_a_retry_names_the_fault_before_it() -> None:
    ann = taking_turns(WorkerError(FaultKind.SERVER, "overloaded"), "A")
    run = await run_plans(pool_of(ann), plan_of((0, ())))
    failed, again = steps_of(run)[0].calls
    assert failed.fault == "server: overloaded"
    assert again.why == "again, after server: overloaded"
    assert (explain(run).totals.calls, explain(run).totals.retries) == (2, 1)


async def test_a_redo_names_the_check_that_did_not_pass() -> None:
    check = FixedCheck((CheckStatus.FAIL, CheckStatus.PASS), "tidy", "too long")
    run = await run_plans(pool_of(member("ann", "A", OutputCheck(check))), plan_of((0, ())))
    (step,) = steps_of(run)
    assert step.calls[1].why == "again, and told that check tidy did not pass: too long"
    assert [(each.status, each.leads_to) for each in step.checks] == [("fail", OnCheckFailure.REDO), ("pass", None)]
    assert explain(run).totals.redone == 1


async def test_invariant_9_every_substitution_is_listed_with_its_reason() -> None:
    ann = member("ann", WorkerError(FaultKind.AUTH, "no key"), fallback="bob")
    bob = member(
        "bob", "B", OutputCheck(FixedCheck((CheckStatus.FAIL,), "tidy", "no"), OnCheckFailure.ESCALATE), escalate="cyd"
    )
    run = await run_plans(pool_of(ann, bob, cyd="C"), plan_of((0, ())))
    assert explain(run).substitutions == (
        "round 0, step 0: bob instead of ann: the fallback of ann, after auth: no key",
        "round 0, step 0: cyd instead of bob: the more expensive one for bob, after check tidy did not pass: no",
    )
    assert (explain(run).answered_by, steps_of(run)[0].planned) == ("cyd", "ann")


class Substituted:
    """A conductor whose plan another made."""

    name = "lm:planner"

    async def propose(self, situation: Situation) -> Proposal:
        assert not situation.rounds
        bad = Rejection("model_id = [9]", "no worker 9", "model_id[0]")
        plan = plan_of((0, ()))
        return Proposal(plan, note="it was no plan", rejected=(bad,), substituted="fixed:single", final=True)


async def test_invariant_9_a_substituted_plan_is_listed_with_what_was_rejected() -> None:
    told = explain(await engine().run(TASK, pool_of(ann="A"), Substituted()))
    (turn,) = told.rounds
    assert told.substitutions == ("round 0: fixed:single planned instead of lm:planner",)
    assert (turn.rejected[0].text, turn.rejected[0].what, turn.note) == (
        "model_id = [9]",
        "no worker 9",
        "it was no plan",
    )
    assert turn.shape == "one-shot"


async def test_costs_are_told_by_call_and_in_total() -> None:
    paid = member("ann", Reply("A", Usage(100, 50)), price=Price(10.0, 20.0), max_output_tokens=50)
    run = await run_plans(pool_of(paid), plan_of((0, ()), (0, ())))
    told = explain(run)
    assert [call.tokens for step in told.rounds[0].steps for call in step.calls] == [150, 150]
    assert told.totals.tokens == 300
    assert told.totals.dollars == pytest.approx(0.004)
    assert (told.totals.rounds, told.totals.steps) == (1, 2)


async def test_approvals_are_told_with_who_gave_them() -> None:
    approver = ScriptedApprover({"ann": Decision(True, "kim", "go on")})
    run = await run_plans(
        pool_of(member("ann", "A", approval=ApprovalMode.ALWAYS)), plan_of((0, ())), approver=approver
    )
    (asked,) = steps_of(run)[0].questions
    assert (asked.asks, asked.approved, asked.actor, asked.text) == ("approve", True, "kim", "go on")
    assert "kim said yes (via cli): go on" in explain_text(explain(run))


async def test_a_question_nobody_has_answered_is_told_as_open() -> None:
    run = await run_plans(pool_of(member("ann", "A", approval=ApprovalMode.ALWAYS)), plan_of((0, ())))
    (step,) = steps_of(run)
    assert (step.questions[0].approved, step.ended) == (None, False)
    assert "no answer yet" in explain_text(explain(run))


async def test_a_failed_and_a_blocked_step_say_why() -> None:
    run = await run_plans(pool_of(ann=WorkerError(FaultKind.REFUSED, "no"), bob="B"), plan_of((0, ()), (1, (0,))))
    failed, blocked = steps_of(run)
    assert failed.fault == "refused: no"
    assert blocked.fault is not None
    assert blocked.fault.startswith("blocked")
    assert (blocked.calls, blocked.seen[0].fault) == ((), "refused")


async def test_a_run_whose_journal_ends_in_the_middle_is_explained_up_to_there() -> None:
    _, events = await run_events(pool_of(ann="A"), plan_of((0, ()), (0, (0,))))
    for count in range(1, len(events)):
        told = explain(Run.fold(events[:count]))
        assert explain_text(told)
        assert (told.answer, told.answered_by) == (None, None)
    until_call = [event for event in events if not isinstance(event, AttemptFinished | StepFinished)][:3]
    (call,) = steps_of(Run.fold(until_call))[0].calls
    assert (call.ended, call.answer) == (False, None)


async def test_a_child_run_is_explained_below_its_parent() -> None:
    boss = Member(Card("boss", kind="conductor"), ConductorWorker(ScriptedConductor([plan_of((0, ()))]), ["ann"]))
    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool_of(boss, ann="A"), ScriptedConductor([plan_of((0, ()))]), Caps())
    key = run.attempts[0].started.key
    child = Run.fold(await recorder.read(key))
    told = explain(run, [child])
    assert told.rounds[0].steps[0].calls[0].child == key
    assert [below.run for below in told.children] == [key]
    assert f"  child run {key}: done" in explain_text(told)


async def test_the_json_holds_everything_and_nothing_but_json() -> None:
    run = await run_plans(pool_of(ann="A", bob="B"), plan_of((0, ()), (1, (0,))))
    told = explain(run).to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["status"] == "done"
    assert told["rounds"][0]["steps"][1]["seen"][0]["answer"] == "A"  # type: ignore[index]


async def test_the_text_tells_the_story_in_order() -> None:
    run = await run_plans(pool_of(ann="A", bob="B"), plan_of((0, ()), (1, ()), (0, (1,))))
    lines = explain_text(explain(run)).splitlines()
    assert lines[0] == f"run {run.id}: done (the conductor wants no further round)"
    start = next(index for index, line in enumerate(lines) if "step 2, for ann (0): part 2" in line)
    assert [line.strip() for line in lines[start + 1 : start + 3]] == ["saw: the task, step 1", "withheld: step 0"]
    assert lines[start + 3].strip().startswith("ann: the plan names it; answered in")
    assert lines[start + 4].strip() == "result, by ann: A"


async def test_long_answers_are_one_short_line_in_the_text() -> None:
    run = await run_plans(pool_of(ann="word\n" * 1000), plan_of((0, ())))
    assert max(map(len, explain_text(explain(run)).splitlines())) < 200
    assert explain(run).answer == "word\n" * 1000


async def test_a_grade_and_a_reward_are_told_with_the_run() -> None:
    run, events = await run_events(pool_of(ann="42"), plan_of((0, ())))
    grade = Grade("judge", GradeMark.WRONG, 0.0, "42", "expected 43", judged=True)
    told = explain(Run.fold([*events, *grades(run.id, grade, Reward({"format": 0.5, "cost": -0.1}))]))
    assert (told.grades[0].mark, told.grades[0].judged, told.reward) == (
        GradeMark.WRONG,
        True,
        {"format": 0.5, "cost": -0.1},
    )
    text = explain_text(told)
    assert "graded wrong by a language model, asked to judge: expected 43" in text
    assert "reward: 0.4 (format +0.5; cost -0.1)" in text


class Learned:
    """A conductor that asks two and keeps what the first one said; the first act was drawn by chance."""

    name = "policy:made"

    async def propose(self, situation: Situation) -> Proposal:
        if len(situation.rounds) > 1:
            return Proposal(plan_of(), version="v1", keeps=0)
        drawn = None if situation.rounds else 0.25
        plan = plan_of((len(situation.rounds), ()))
        return Proposal(plan, version="v1", propensity=drawn, beside={"v2": "asks 'bob'"})


async def test_a_policys_acts_are_told_which_round_it_keeps_its_chance_and_what_others_would_have_done() -> None:
    told = explain(await engine().run(TASK, pool_of(ann="A", bob="B"), Learned()))
    first, _, last = told.rounds
    assert (first.propensity, first.beside, first.keeps) == (0.25, {"v2": "asks 'bob'"}, None)
    assert (last.propensity, last.beside, last.keeps, told.answer) == (None, {}, 0, "A")
    lines = [line.strip() for line in explain_text(told).splitlines()]
    assert "round 2, conducted by policy:made (v1); plan: ship, keeps the answer of round 0" in lines
    assert (lines.count("drawn: with probability 0.25"), lines.count("others: v2 asks 'bob'")) == (1, 2)
    assert told.to_json()["rounds"][0]["beside"] == {"v2": "asks 'bob'"}  # type: ignore[index]


async def test_a_persons_grade_is_told_with_who_gave_it() -> None:
    run, events = await run_events(pool_of(ann="42"), plan_of((0, ())))
    word = AnswerGraded(run=run.id, at=9.0, checker="feedback", mark=GradeMark.RIGHT, score=1.0, actor="kim")
    told = explain(Run.fold([*events, word]))
    assert told.grades[0].actor == "kim"
    assert "  graded right by kim, a person" in explain_text(told).splitlines()


async def test_one_paragraph_says_why_the_answer_should_be_trusted_from_evidence_only() -> None:
    run = await run_plans(pool_of(ann="A", bob="B"), plan_of((0, ()), (1, ()), (0, (1,))))
    lines = explain_text(explain(run)).splitlines()
    assert lines[lines.index("  in short:") + 1 :] == [
        "    ann answered.",
        "    No check looked at it.",
        "    Nobody gave another answer to the same subtask.",
        "    Withheld: bob (step 1) did not see step 0; ann (step 2) did not see step 0.",
        "    Nobody judged the answer.",
    ]
    assert "How often it is right on work like this is not known." in assurance(explain(run), TrackRecord())
    word = GradeExplanation("feedback", GradeMark.RIGHT, 1.0, "A", "", False, actor="kim")
    grades = (word, replace(word, checker="code", actor="", score=0.0, mark=GradeMark.WRONG))
    judged = " ".join(assurance(replace(explain(run), grades=grades)))
    assert "judged right by kim (a person); wrong by code (execution). They disagree." in judged
    voted = await run_plans(
        pool_of(ann="A", bob="B", cy=" a."), Plan((Step("Which?", 1), Step("Which?", 2), Step("Which?", 0)))
    )
    assert "Another answer to the same subtask was given by bob (step 0)." in assurance(explain(voted))


async def test_how_often_a_worker_and_its_check_were_right_is_counted_over_graded_runs_of_its_kind_and_tenant() -> None:
    check = OutputCheck(FixedCheck((CheckStatus.PASS,) * 9, "tidy"))
    pool = pool_of(member("ann", "A", check))

    async def graded(score: float, tenant: str = "a", judged: bool = False) -> Run:
        _, events = await run_events(pool, plan_of((0, ())))
        began = replace(events[0], tenant=tenant)  # type: ignore[call-arg]
        mark = AnswerGraded(run=began.run, at=9.0, checker="code", mark=GradeMark.RIGHT, score=score, judged=judged)
        return Run.fold([began, *events[1:], mark])

    run = await graded(1.0)
    others = [await graded(1.0), await graded(0.0), await graded(1.0), await graded(0.0, judged=True)]
    erased = await graded(0.0)
    erased.erased = BodiesErased(run=erased.id, at=10.0, actor="kim")
    record = track_record(run, [run, *others, erased, await graded(0.0, tenant="b")])
    assert record == TrackRecord("", {"ann": (2, 3)}, {"tidy": (1, 3)})
    text = explain_text(explain(run), record)
    assert "to which no kind was given, 2 of 3 (67%, 95% interval 21% to 94%) were right." in text
    assert "tidy passed the last answer that it saw; 1 of 3 (33%, 95% interval 6% to 79%) of its verdicts" in text
