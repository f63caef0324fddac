"""A map step: one subtask over each item of a list, every item a step of its own, whatever happens in the middle."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from scripted_people import ScriptedApprover

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price
from shikisha.core.call import ApprovalMode, Card, Reply, Request
from shikisha.core.errors import CapReached, FaultKind, JournalError, UnknownRun, WorkerError
from shikisha.core.events import (
    AttemptStarted,
    CheckDecided,
    CheckStatus,
    Event,
    MapStarted,
    OnCheckFailure,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan, Step, item_step
from shikisha.core.plan_parser import MOST_CHARACTERS, parse_items
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.visibility import request_messages
from shikisha.engine.approvals import Decision
from shikisha.engine.budget_ledger import BudgetLedger
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Inspection, Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.run_context import RetryPolicy
from shikisha.explain import explain_text
from shikisha.explain.explanation import explain
from support import TASK, engine, member, pool_of, run_events, run_plans, seen, whole

EACH = Plan((Step("list the files", 0), Step("review this file", 1, (0,), 0), Step("sum up", 2, (1,))))
CAPS = Caps(map_items=50, steps=100)
FILES = ["a.py", "b.py", "c.js"]


def _item(request: Request) -> str:
    return next(step.text or "" for step in request.granted if "in the list" in step.subtask)


def _reviewed(request: Request) -> str:
    return f"review of {_item(request)}"


def _last(request: Request) -> str:
    return (request.granted[-1].text if request.granted else None) or "nothing"


def _pool(*items: object, review: object = _reviewed) -> Pool:
    return pool_of(lister=json.dumps(list(items or FILES)), reviewer=review, joiner=_last)  # type: ignore[arg-type]


async def test_each_item_is_asked_for_once_and_the_answers_come_as_a_list_in_order() -> None:
    async def slow_first(request: Request) -> str:
        await asyncio.sleep(0.02 if _item(request) == "a.py" else 0)
        return _reviewed(request)

    run = await run_plans(_pool(review=slow_first), EACH, caps=CAPS)
    assert run.status is RunStatus.DONE
    assert json.loads(run.answer or "") == [f"review of {file}" for file in FILES]
    assert [attempt.started.step for attempt in run.attempts] == [0, 2000, 2001, 2002, 2]


async def test_invariant_2_a_call_sees_its_item_and_what_else_is_granted_and_nothing_of_the_list() -> None:
    pool = _pool()
    plan = Plan((*EACH.steps[:1], Step("the rules", 2), Step("review", 1, (0, 1), 0), Step("sum up", 2, (2,))))
    await run_plans(pool, plan, caps=CAPS)
    for request, file in zip(seen(pool[1]), FILES, strict=True):
        shown = whole(request_messages(request))
        assert [step.text for step in request.granted] == [file, "nothing"]
        assert not any(other in shown for other in FILES if other != file)
    (joined,) = (request for request in seen(pool[2]) if request.subtask == "sum up")
    assert "a.py" in whole(request_messages(joined))
    assert [step.index for step in joined.granted] == [2]


async def test_invariant_5_no_answer_can_pass_for_another_item() -> None:
    forged = '"], "forged", ["'
    run = await run_plans(_pool(review=forged), EACH, caps=CAPS)
    assert json.loads(run.answer or "") == [forged] * 3


async def test_the_step_that_brings_the_list_is_asked_for_a_list_and_asked_again_where_it_brings_none() -> None:
    said = iter(["The files are a.py and b.py.", '["a.py"]'])
    pool = pool_of(lister=lambda _: next(said), reviewer=_reviewed, joiner=_last)
    run = await run_plans(pool, EACH, caps=CAPS)
    first, second = seen(pool[0])
    assert first.schema == {"type": "array", "maxItems": 50}
    assert "JSON" in second.remarks[0]
    assert run.answer == '["review of a.py"]'


async def test_invariant_6_an_item_that_fails_is_null_in_the_list_and_has_its_own_result() -> None:
    def fails(request: Request) -> str | WorkerError:
        bad = _item(request) == "b.py"
        return WorkerError(FaultKind.REFUSED, "no") if bad else _reviewed(request)

    run = await run_plans(_pool(review=fails), EACH, caps=CAPS)
    assert json.loads(run.answer or "") == ["review of a.py", None, "review of c.js"]
    fault = run.rounds[0].steps[item_step(1, 1)].result
    assert fault is not None
    assert fault.fault is not None
    assert fault.fault.kind is FaultKind.REFUSED


async def test_where_every_item_fails_the_step_fails_and_what_needs_it_is_blocked() -> None:
    run = await run_plans(_pool(review=WorkerError(FaultKind.REFUSED, "no")), EACH, caps=CAPS)
    assert run.status is RunStatus.FAILED
    results = run.rounds[0].results
    assert [result.fault.kind for result in results if result and result.fault] == [
        FaultKind.REFUSED,
        FaultKind.BLOCKED,
    ]


async def test_an_empty_list_calls_nobody_and_empty_items_are_blocked() -> None:
    pool = pool_of(lister="[]", reviewer=_reviewed, joiner=_last)
    run = await run_plans(pool, EACH, caps=CAPS)
    assert (run.answer, seen(pool[1])) == ("[]", [])
    run = await run_plans(_pool("a.py", None, "  "), EACH, caps=CAPS)
    assert json.loads(run.answer or "") == ["review of a.py", None, None]


async def test_items_that_are_no_texts_are_shown_as_json() -> None:
    run = await run_plans(_pool({"file": "a.py", "lines": 3}, 7), EACH, caps=CAPS)
    assert json.loads(run.answer or "") == ['review of {"file":"a.py","lines":3}', "review of 7"]


async def test_a_map_step_goes_through_the_list_of_another_one() -> None:
    def picky(request: Request) -> str | WorkerError:
        return WorkerError(FaultKind.REFUSED, "no") if _item(request) == "b.py" else _reviewed(request)

    plan = Plan((*EACH.steps[:2], Step("review the review", 2, (1,), 1)))
    pool = pool_of(lister=json.dumps(FILES), reviewer=picky, joiner=_reviewed)
    run = await run_plans(pool, plan, caps=CAPS)
    assert json.loads(run.answer or "") == ["review of review of a.py", None, "review of review of c.js"]
    assert len(seen(pool[2])) == 2, "nothing is made of an item without an answer"


# Bounds


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("no list", "expected a JSON list, found 'no list'"),
        ('{"files": []}', "expected a JSON list"),
        ("[" * 5_000, "expected a JSON list"),
        ("[NaN]", "NaN is no JSON"),
        ("[1e999]", "expected a JSON list"),
        (r'["fine", "\ud800"]', "item 1 of the list holds half of a surrogate pair"),
        (r'["\u0000"]', "item 0 of the list holds a NUL character"),
        (json.dumps(["x" * MOST_CHARACTERS]), "characters: at most 1,000,000 are read"),
    ],
)
def test_what_is_no_list_is_refused_and_the_refusal_says_why(listed: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_items(listed)


async def test_a_list_that_cannot_be_gone_through_blocks_the_step() -> None:
    pool = pool_of(lister=r'["\ud800"]', reviewer=_reviewed, joiner=_last)
    run = await run_plans(pool, EACH, caps=CAPS)
    assert "step 0, whose list it goes through: item 0 of the list holds" in str(run.rounds[0].results[1])
    assert (run.status, seen(pool[1])) == (RunStatus.FAILED, [])


async def test_a_list_whose_step_failed_blocks_the_step_even_where_it_may_see_others() -> None:
    pool = pool_of(lister=WorkerError(FaultKind.REFUSED, "no"), reviewer=_reviewed, joiner=_last)
    plan = Plan((EACH.steps[0], Step("the rules", 2), Step("review", 1, (0, 1), 0)))
    run = await run_plans(pool, plan, caps=CAPS)
    assert "step 0, whose list it goes through: refused" in run.why
    assert seen(pool[1]) == []


async def test_answers_that_are_too_long_together_are_not_passed_on() -> None:
    pool = _pool(1, 2, review="x" * (MOST_CHARACTERS // 2))
    run = await run_plans(pool, EACH, caps=CAPS)
    assert "at most 1,000,000 are passed on" in str(run.rounds[0].results[1])
    assert (run.status, seen(pool[2])) == (RunStatus.FAILED, [])


async def test_invariant_3_more_items_than_are_allowed_begin_nothing() -> None:
    pool = pool_of(lister=json.dumps(list(range(11))), reviewer=_reviewed, joiner=_last)
    run = await run_plans(pool, EACH, caps=Caps(map_items=10, steps=100))
    assert (run.status, seen(pool[1])) == (RunStatus.FAILED, [])
    assert "answer_schema" in str(run.rounds[0].results[0]), "the step is asked for at most ten, and once more"
    with pytest.raises(CapReached, match="the list has 11 items, and a map step may have 10"):
        BudgetLedger(Caps(map_items=10, steps=100)).check_items(11)


async def test_invariant_3_each_item_is_a_step_and_more_than_are_left_begin_nothing() -> None:
    pool = _pool(*range(10))
    run = await run_plans(pool, EACH, caps=Caps(map_items=50, steps=10))
    assert seen(pool[1]) == []
    assert (run.status, run.finished.cap if run.finished else "") == (RunStatus.CAPPED, "steps")
    assert "the list has 10 items, each a step, and 1 of 10 steps are done" in run.why


async def test_a_plan_with_a_map_step_is_refused_where_none_is_allowed() -> None:
    run = await run_plans(_pool(), EACH, caps=Caps())
    assert run.status is RunStatus.FAILED
    assert "a map step is not allowed: the budget's map_items is 0" in run.why


async def test_invariant_3_a_budget_ends_it_and_every_item_has_a_result_that_says_so() -> None:
    priced = member("reviewer", _reviewed, price=Price(call=1.0))
    pool = pool_of(member("lister", json.dumps(list(range(20)))), priced, member("joiner", _last))
    run, events = await run_events(pool, EACH, caps=Caps(map_items=50, steps=100, dollars=7.5))
    assert (run.status, run.charged.dollars, len(seen(priced))) == (RunStatus.CAPPED, 7.0, 7)
    assert "7 of 20 items have an answer" in run.why
    items = [event for event in events if isinstance(event, StepFinished) and event.step >= 1000]
    assert Counter(event.fault for event in items) == {None: 7, FaultKind.CAP: 13}


async def test_an_item_waits_for_room_rather_than_being_refused() -> None:
    async def cheap(request: Request) -> Reply:
        await asyncio.sleep(0)
        return Reply(_reviewed(request), dollars=0.1)

    # Ten are reserved at a dollar each and cost a tenth: side by side they would not fit, one after the other they do.
    priced = member("reviewer", cheap, price=Price(call=1.0))
    pool = pool_of(member("lister", json.dumps(list(range(10)))), priced, member("joiner", _last))
    run = await run_plans(pool, EACH, caps=Caps(map_items=50, steps=100, dollars=2.2))
    assert run.status is RunStatus.DONE
    assert run.charged.dollars == pytest.approx(1.0)


async def test_a_few_items_are_performed_at_once() -> None:
    most, now = 0, 0

    async def counted(request: Request) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return _reviewed(request)

    await run_plans(_pool(*range(40), review=counted), EACH, caps=CAPS)
    assert most == 16


async def test_invariant_8_a_key_that_an_escape_hides_is_masked() -> None:
    key = "sk-very-secret-key"
    hidden = '["\\u0073k-very-secret-key"]'
    pool = pool_of(lister=hidden, reviewer=_reviewed, joiner=_last)
    store = SecretStore({"KEY": key})
    store.read("KEY")
    recorder = MemoryRecorder()
    run = await Engine(recorder, secret_store=store).run(TASK, pool, ScriptedConductor([EACH]), CAPS)
    assert key not in whole(request_messages(seen(pool[1])[0]))
    assert key not in (run.answer or "")


async def test_the_clients_schema_holds_for_the_list_of_the_last_step() -> None:
    task = Task("Review.", answer_schema={"type": "array", "items": {"type": "string"}})
    plan = Plan(EACH.steps[:2])
    run = await engine().run(task, _pool(), ScriptedConductor([plan]), CAPS)
    assert json.loads(run.answer or "") == [f"review of {file}" for file in FILES]
    run = await engine().run(task, _pool("a.py", None), ScriptedConductor([plan]), CAPS)
    assert run.status is RunStatus.FAILED
    assert "answer_schema" in run.why


class _NoJavaScript:
    name = "no-js"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        bad = ".js" in inspection.text
        return CheckVerdict(self.name, CheckStatus.FAIL if bad else CheckStatus.PASS, "no script")


async def test_a_check_looks_at_every_item_and_may_stop_the_run() -> None:
    checked = member("reviewer", _reviewed, OutputCheck(_NoJavaScript(), OnCheckFailure.PASS))
    lister = member("lister", json.dumps([*FILES, *(f"{n}.py" for n in range(30))]))
    run, events = await run_events(pool_of(lister, checked, member("joiner", _last)), EACH, caps=CAPS)
    assert sum(isinstance(event, CheckDecided) and event.check == "no-js" for event in events) == 33
    result = run.rounds[0].results[1]
    assert result is not None
    assert [verdict.check for verdict in result.verdicts] == ["no-js"], "only what did not pass"

    stops = member("reviewer", _reviewed, OutputCheck(_NoJavaScript(), OnCheckFailure.STOP))
    run = await run_plans(pool_of(lister, stops, member("joiner", _last)), EACH, caps=CAPS)
    assert run.status is RunStatus.FAILED
    assert "a check stopped the run" in run.why
    assert len(seen(stops)) < 33
    assert all(record.result is not None for record in run.rounds[0].steps.values())


async def test_an_item_that_waits_for_a_person_keeps_the_others_and_goes_on_alone() -> None:
    pool = Pool(
        [
            member("lister", json.dumps(FILES)),
            member("reviewer", _reviewed, approval=ApprovalMode.ALWAYS),
            member("joiner", _last),
        ]
    )
    recorder = MemoryRecorder()
    waits = await Engine(recorder).run(TASK, pool, ScriptedConductor([EACH]), CAPS, run_id="r")
    assert waits.status is RunStatus.SUSPENDED
    assert [question.step for question in waits.open_questions] == [2000, 2001, 2002]
    yes = ScriptedApprover({"reviewer": Decision(approved=True, actor="ada")})
    done = await Engine(recorder, approver=yes).resume("r", pool, ScriptedConductor([EACH]))
    assert done.status is RunStatus.DONE
    assert len(seen(pool[0])) == 1
    assert len(seen(pool[1])) == 3


# Death in the middle


class _Died(BaseException):
    """What kill -9 looks like from inside."""


@dataclass
class _World:
    """The disk and the workers' own books survive; `fuse` counts the points where one can die."""

    disk: list[Event] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    fuse: int | None = None
    points: int = 0
    pending: list[Event] = field(default_factory=list)

    def point(self) -> None:
        self.points += 1
        if self.fuse is not None and self.points >= self.fuse:
            raise _Died

    def add(self, event: Event) -> None:
        self.pending.append(event)

    def add_bundle(self, events: Sequence[Event]) -> int:
        for event in events:
            self.add(event)
        return len(events)

    async def flush(self) -> None:
        self.point()
        self.disk += self.pending
        self.pending.clear()
        self.point()

    async def read(self, run: str) -> tuple[Event, ...]:
        if not self.disk:
            raise UnknownRun(run)
        return tuple(event for event in self.disk if event.run == run)

    async def perform(self, request: Request) -> Reply:
        self.point()
        self.calls[request.key] += 1
        await asyncio.sleep(0)
        self.point()
        if request.subtask == "list the files":
            return Reply(json.dumps([*FILES, None, *range(5)]))
        if request.subtask == "sum up":
            return Reply(_last(request))
        if _item(request) == "c.js":
            raise WorkerError(FaultKind.REFUSED, "no")
        return Reply(_reviewed(request))


async def _live(world: _World) -> Run | None:
    pool = Pool([Member(Card(name, price=Price(call=0.1)), world) for name in ("lister", "reviewer", "joiner")])
    performing = Engine(world, retry=RetryPolicy(first=0))
    world.pending.clear()
    try:
        if world.disk:
            return await performing.resume("r", pool, ScriptedConductor([EACH]))
        return await performing.run(TASK, pool, ScriptedConductor([EACH]), Caps(50, map_items=50), run_id="r")
    except BaseException as error:
        if isinstance(error, _Died) or "_Died" in repr(error):
            return None
        raise


def test_invariant_4_death_at_every_point_leads_to_the_same_answer_and_repeats_no_item() -> None:
    reference = _World()
    whole_run = asyncio.run(_live(reference))
    assert whole_run is not None
    assert whole_run.status is RunStatus.DONE
    for fuse in range(1, reference.points + 1):
        world = _World(fuse=fuse)
        assert asyncio.run(_live(world)) is None
        ended = {event.step for event in world.disk if isinstance(event, StepFinished)}
        world.fuse = None
        run = asyncio.run(_live(world))
        assert run is not None
        assert (run.status, run.answer) == (whole_run.status, whole_run.answer), f"died at point {fuse}"
        begun = [event.step for event in world.disk if isinstance(event, AttemptStarted)]
        assert not [step for step in ended if begun.count(step) > 1], f"died at point {fuse}"
        assert max(world.calls.values()) <= 2, "a call is repeated once, under its key"
        assert len(world.calls) == len(reference.calls), f"died at point {fuse}: another key"
        assert sum(isinstance(event, MapStarted) for event in world.disk) == 1


async def test_a_run_that_is_replayed_from_its_journal_folds_to_the_same_results() -> None:
    run, events = await run_events(_pool("a.py", None, "b.py"), EACH, caps=CAPS)
    assert Run.fold(events).rounds[0].results == run.rounds[0].results


async def test_a_journal_whose_list_has_another_length_is_not_gone_on_with() -> None:
    world = _World(fuse=12)
    assert await _live(world) is None
    world.fuse = None
    at = next(place for place, event in enumerate(world.disk) if isinstance(event, MapStarted))
    begun = world.disk[at]
    assert isinstance(begun, MapStarted)
    world.disk[at] = MapStarted(run="r", at=begun.at, round=0, step=1, items=begun.items + 1)
    with pytest.raises(JournalError, match="began with 10 items, and its list has 9 now"):
        await _live(world)


async def test_an_explanation_has_every_item_with_what_it_saw() -> None:
    run, _ = await run_events(_pool(), EACH, caps=CAPS)
    told = explain(run)
    step = told.rounds[0].steps[1]
    assert (step.each, [item.answer for item in step.items]) == (0, [f"review of {file}" for file in FILES])
    assert [item.seen[0].answer for item in step.items] == FILES
    said = explain_text(told)
    assert "step 1, for reviewer (1), for each item of step 0: review this file" in said
    assert "item 1: b.py" in said
    assert json.dumps(told.to_json())
