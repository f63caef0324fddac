"""What the pages show, without a server: states, filters, figures, forms, and what is sent while a run goes on."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from shikisha.core.budget import Caps, Usage
from shikisha.core.call import ApprovalMode, Reply
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.events import (
    AttemptFinished,
    AttemptStarted,
    MapStarted,
    PlanProposed,
    RunStarted,
    RunStatus,
    StepFinished,
)
from shikisha.core.plan import Plan, Step
from shikisha.engine.pool import Pool
from shikisha.plots.format import format_ago, format_moment, format_share, format_timestamp
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import Key, KeyCaps
from shikisha.server.keys.grants import BudgetAmount, DailySpend
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.broadcast import EventUpdate, RunUpdate, TextUpdate
from shikisha.server.pages import approvals_page, keys_page, run_page, runs_page, try_page
from shikisha.server.pages.login import _own_path
from shikisha.server.pages.run_page import StepPhase
from shikisha.server.pages.templates import template_environment
from shikisha.server.store import ServedRun
from shikisha.server.store import ServedState as Row
from shikisha.server.store.run_figures import RunFigures
from support import member, plan_of, pool_of, run_events

NOW = 1_790_000_000.0


def states(view: run_page.RunView) -> list[StepPhase]:
    return [step.state for turn in view.rounds for step in turn.steps]


async def test_a_steps_state_is_read_off_the_events_at_every_point_of_a_run() -> None:
    _, events = await run_events(pool_of(a="one", b="two"), plan_of((0, []), (1, [0])))
    told = {type(event): states(run_page.run_view(events[: place + 1], NOW)) for place, event in enumerate(events)}
    assert told[RunStarted] == []
    assert told[PlanProposed] == [StepPhase.PLANNED, StepPhase.PLANNED]
    assert told[AttemptStarted] == [StepPhase.DONE, StepPhase.RUNNING]
    assert told[AttemptFinished] == [StepPhase.DONE, StepPhase.RUNNING]  # its answer is being looked at
    assert told[StepFinished] == [StepPhase.DONE, StepPhase.DONE]


async def test_a_map_step_has_a_row_for_each_item_and_what_they_used_together() -> None:
    waits = member("reviewer", "fine", approval=ApprovalMode.ALWAYS)
    plan = Plan((Step("list", 0), Step("review", 1, (0,), 0)))
    listed = pool_of(member("lister", '["a", "b"]'))
    _, events = await run_events(Pool([*listed, waits]), plan, caps=Caps(map_items=5))
    assert states(run_page.run_view(events, NOW)) == [StepPhase.DONE, StepPhase.WAITING]
    usage = Reply("fine", Usage(3, 4))
    _, events = await run_events(Pool([*listed, member("reviewer", usage)]), plan, caps=Caps(map_items=5))
    view = run_page.run_view(events, NOW)
    step = view.rounds[0].steps[1]
    assert (step.state, step.tokens, [item.state for item in step.items]) == (StepPhase.DONE, 14, [StepPhase.DONE] * 2)
    begun = next(place for place, event in enumerate(events) if isinstance(event, MapStarted))
    assert states(run_page.run_view(events[: begun + 1], NOW)) == [StepPhase.DONE, StepPhase.RUNNING]
    parts = template_environment().get_template("run_parts.html.jinja").make_module({"home": "/ui"})
    shown = str(parts.step_of(view, view.rounds[0], step))  # type: ignore[attr-defined]
    assert shown.count('id="step-0-200') == 2
    assert "Each item of step 0" in shown


async def test_a_failed_step_and_one_that_is_left_are_told_apart() -> None:
    pool = pool_of(member("a", WorkerError(FaultKind.AUTH)), b="two")
    _, events = await run_events(pool, plan_of((0, []), (1, [0])))
    assert states(run_page.run_view(events, NOW)) == [StepPhase.FAILED, StepPhase.FAILED]
    cut = [event for event in events if event.kind not in ("step.finished", "attempt.started", "attempt.failed")]
    assert states(run_page.run_view(cut, NOW)) == [StepPhase.LEFT, StepPhase.LEFT]


async def test_a_retry_is_seen_while_it_is_waited_for() -> None:
    tries: Iterator[str | WorkerError] = iter([WorkerError(FaultKind.SERVER), "done"])
    _, events = await run_events(pool_of(member("a", lambda _: next(tries))), plan_of((0, [])))
    failed = next(place for place, event in enumerate(events) if event.kind == "attempt.failed")
    view = run_page.run_view(events[: failed + 1], NOW)
    assert (view.live, states(view)) == (True, [StepPhase.RETRYING])


async def test_a_run_that_waits_says_for_what_and_for_whom() -> None:
    pool = pool_of(member("a", "done", approval=ApprovalMode.ALWAYS))
    run, events = await run_events(pool, plan_of((0, [])))
    view = run_page.run_view(events, NOW)
    assert (view.status, states(view), view.live) == (RunStatus.SUSPENDED, [StepPhase.WAITING], False)
    asked = approvals_page.approval_view(run, *view.waiting)
    assert (asked["kind"], asked["call"], asked["arguments"]) == ("approve", "part 0", ())


async def test_a_calls_arguments_are_shown_one_by_one_and_what_it_is_shown_of_others() -> None:
    pool = pool_of(member("b", "done", approval=ApprovalMode.ALWAYS), a="read it")
    plan = plan_of((1, []), (0, [0]))
    plan = replace(plan, steps=(plan.steps[0], replace(plan.steps[1], subtask='{"order": 7, "to": "Ana"}')))
    run, _ = await run_events(pool, plan)
    asked = approvals_page.approval_view(run, *run.open_questions)
    assert asked["arguments"] == (("order", "7"), ("to", "Ana"))
    assert asked["sees"] == ((0, "a", "read it"),)


async def test_time_goes_on_while_a_run_does_and_stands_still_afterwards() -> None:
    _, events = await run_events(pool_of(a="one"), plan_of((0, [])))
    begun = run_page.run_view(events[:1], events[0].at + 5)
    assert begun.seconds == pytest.approx(5)
    ended = run_page.run_view(events, events[-1].at + 5)
    assert ended.seconds == pytest.approx(events[-1].at - events[0].at)


# lists ----------------------------------------------------------------------------------------------------------------


def served(run: str = "r", **more: object) -> ServedRun:
    told: dict[str, object] = {"run": run, "tenant": "t", "key": "k", "api": "chat", "model": "m", "conductor": "c"}
    told |= {"created": NOW, "updated": NOW + 2, "state": Row.ENDED, "status": RunStatus.DONE, "excerpt": "What?"}
    return ServedRun(**{**told, **more})  # type: ignore[arg-type]


def test_a_filter_is_an_address_and_back() -> None:
    asked = runs_page.RunListQuery.of({"text": " a&b ", "status": "done", "model": "m", "after": "2.5~run-1", "x": "y"})
    assert asked.filter("t").after == (2.5, "run-1")
    assert asked.filter(None).statuses == (RunStatus.DONE,)
    assert asked.query() == "text=a%26b&status=done&model=m"


@pytest.mark.parametrize("query", [{"status": "no such"}, {"after": "x"}, {"after": "x~y"}, {"after": "~"}])
def test_what_an_address_says_that_no_list_knows_is_as_if_it_were_not_said(query: dict[str, str]) -> None:
    asked = runs_page.RunListQuery.of(query).filter("t")
    assert (asked.statuses, asked.after) == ((), None)


def test_a_row_tells_where_a_run_stands_and_a_cursor_names_the_next_page() -> None:
    waits = served("q", state=Row.WAITING, status=RunStatus.RUNNING)
    assert [runs_page.shown_status(each) for each in (served(), waits)] == [RunStatus.DONE, RunStatus.SUSPENDED]
    assert runs_page.RunListQuery.of({"after": f"{NOW!r}~q"}).filter("t").after == (NOW, "q")


def test_two_policies_are_compared_with_intervals_and_none_is_better_by_chance() -> None:
    one = RunFigures("a", 100, 90, 10, 50, 40, 1000, 1.0, 0, {0: 100}, squares=0.011)
    other = RunFigures("b", 100, 92, 8, 50, 20, 1000, 2.0, 0, {0: 100}, squares=0.041)
    lines = {line.name: line for line in runs_page.comparison_lines(one, other)}
    assert {name: line.better for name, line in lines.items() if line.better is not None} == {
        "right, of those graded": 0,
        "cost, mean": 0,
    }
    right, cost = lines["right, of those graded"].gap, lines["cost, mean"].gap
    assert right is not None
    assert [round(value, 3) for value in right] == [-0.4, -0.552, -0.21]  # Newcombe's method 10
    assert cost is not None
    assert [round(value, 4) for value in cost] == [0.01, 0.0091, 0.0109]
    assert runs_page.comparison_lines(one, RunFigures("c"))[1].gap is None
    said = runs_page.comparison_lines(replace(one, judged=9, judged_right=9), other)[2]
    assert (said.name, said.values, said.better) == ("right, says a model", (1.0, None), None)
    few, dear = (
        RunFigures(name, 9, 9, dollars=paid, squares=paid**2 / 9) for name, paid in (("few", 0.9), ("dear", 1.8))
    )
    assert [line.better for line in runs_page.comparison_lines(few, dear)] == [None] * 6  # of equal costs, but of nine


def test_the_same_tasks_both_ways_are_paired() -> None:
    runs = [
        served("1", model="a", dollars=1.0, excerpt="same"),
        served("3", model="b", dollars=4.0, excerpt="same"),
        served("4", model="b", state=Row.OPEN, excerpt="else"),
    ]
    pairs = runs_page.shared_tasks(runs, ("a", "b"), "model")
    assert [(pair.left.run, pair.right.run) for pair in pairs] == [("1", "3")]
    assert runs_page.paired_scores(pairs, {"1": 1.0, "3": 0.0}) == (1, 1, 0)
    assert runs_page.paired_scores(pairs, {"1": 1.0}) is None


# keys -----------------------------------------------------------------------------------------------------------------


def key(name: str = "k", **more: object) -> Key:
    return replace(Key(name, name, "t", frozenset({KeyScope.RUN}), NOW - 9, "console"), **more)  # type: ignore[arg-type]


def test_a_keys_meters_tell_what_is_used_of_each_cap() -> None:
    capped = key(caps=KeyCaps(dollars_per_day=2.0, tokens=100))
    today = keys_page._shown_days(NOW)[-1]
    used = [
        DailySpend("k", "", BudgetAmount(3 * 10**9, 120, 4)),
        DailySpend("k", today, BudgetAmount(10**9, 20, 1)),
        DailySpend("x", "", BudgetAmount()),
    ]
    view = keys_page.keys_view([capped, key("gone", revoked=NOW)], used, NOW)
    one, gone = view.keys
    assert [(meter.name, meter.share, meter.level) for meter in one.meters] == [
        ("tokens in all", 1.2, "all"),
        ("dollars today", 0.5, "used"),
    ]
    assert (one.state, gone.state, view.today, view.total) == ("valid", "revoked", 1.0, 3.0)


def test_the_form_of_a_key_is_read() -> None:
    form = {"name": "n8n", "expires": "2", "dollars_per_day": "1.5", "tokens": "100", "workers": "a, b,a"}
    wanted = keys_page.read_key_form(form, ["run", "read"], NOW)
    assert (wanted.expires, wanted.workers, wanted.conductors) == (NOW + 172_800, ("a", "b"), None)
    assert wanted.caps == KeyCaps(dollars_per_day=1.5, tokens=100)


@pytest.mark.parametrize(
    ("form", "scopes", "named"),
    [
        ({}, ["run"], "name"),
        ({"name": "a", "expires": "0"}, ["run"], "expires"),
        ({"name": "a", "expires": "-1"}, ["run"], "expires"),
        ({"name": "a"}, [], "scopes"),
        ({"name": "a"}, ["root"], "scopes"),
        ({"name": "a", "tokens": "1.5"}, ["run"], "tokens"),
        ({"name": "a", "dollars": "-1"}, ["run"], "dollars"),
        ({"name": "a", "dollars": "nan"}, ["run"], "dollars"),
        ({"name": "a\nb"}, ["run"], "name"),
        ({"name": "a", "labels": "x" * 201}, ["run"], "labels"),
    ],
)
def test_what_cannot_be_read_of_a_keys_form_is_named(form: dict[str, str], scopes: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}: expected"):
        keys_page.read_key_form(form, scopes, NOW)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "x"])
def test_a_cap_in_the_box_for_a_task_is_a_number(text: str) -> None:
    told = try_page.form_fields({"prompt": "a", "model": "m", "dollars": text})
    with pytest.raises(ApiError, match="dollars: expected"):
        try_page.read_task_form(told)


# while a run goes on --------------------------------------------------------------------------------------------------


def test_only_what_changed_is_sent_and_a_round_that_has_grown_is_sent_whole() -> None:
    before = {"head": '<div id="head">a</div>', "round-0": '<p id="round-0">', "plan-0": '<p id="plan-0">'}
    assert run_page.changed_parts(before, before) == []
    assert run_page.changed_parts(before, {**before, "head": '<div id="head">b</div>'}) == [
        '<div id="head" hx-swap-oob="true">b</div>'
    ]
    grown = {**before, "round-0": '<p id="round-0">+', "step-0-0": '<p id="step-0-0">'}
    assert run_page.changed_parts(before, grown) == ['<p id="round-0" hx-swap-oob="true">+']
    new = {**before, "round-1": '<p id="round-1">', "plan-1": '<p id="plan-1">'}
    assert run_page.changed_parts(before, new) == ['<div hx-swap-oob="beforeend:#rounds"><p id="round-1"></div>']


def test_a_step_of_round_1_is_none_of_round_11() -> None:
    after = {"round-1": '<p id="round-1">', "plan-1": "", "step-11-0": '<p id="step-11-0">x'}
    before = {**after, "step-11-0": '<p id="step-11-0">'}
    assert run_page.changed_parts(before, after) == ['<p id="step-11-0" hx-swap-oob="true">x']


def test_what_an_attempt_said_is_forgotten_when_another_begins() -> None:
    again = AttemptStarted(run="r", at=1.0, round=0, step=1, attempt=1, worker="a", key="k")
    heard: list[RunUpdate] = [
        TextUpdate(0, 1, "half an "),
        TextUpdate(0, 0, "answer"),
        EventUpdate(3, again),
        TextUpdate(0, 1, "new"),
    ]
    assert run_page.growing_texts(heard) == {(0, 0): "answer", (0, 1): "new"}


# words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        "https://evil.example",
        "//evil.example",
        "/ui//evil",
        "/ui/\\evil",
        "/ui/../x",
        "/ui/login",
        "/ui/a?b",
        "",
        "/v1/x",
    ],
)
def test_after_the_login_one_is_led_to_a_page_of_ours_only(way: str) -> None:
    assert _own_path(way) == "/ui/overview"
    assert _own_path("/ui/approvals/run-1/abc") == "/ui/approvals/run-1/abc"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (lambda: format_ago(NOW - 1, NOW), "just now"),
        (lambda: format_ago(NOW - 90, NOW), "2 min ago"),
        (lambda: format_ago(NOW + 7200, NOW), "in 2 h"),
        (lambda: format_moment(0.0), "1 Jan 1970, 00:00:00 UTC"),
        (lambda: format_timestamp(0.5), "1970-01-01T00:00:00.500Z"),
        (lambda: format_share(None), "–"),
        (lambda: format_share(0.666), "67\u00a0%"),
    ],
)
def test_words(said: Callable[[], str], expected: str) -> None:
    assert said() == expected


def test_a_journals_line_holds_all_of_its_event() -> None:
    data = {"round": 0, "step": 1, "attempt": 2, "check": "c", "reason": "<b>", "config": "{}"}
    told = {"seq": 3, "run": "r", "kind": "check.decided", "at": 1.5, "hash": "ab", "data": data}
    (line,) = run_page.journal_lines([json.dumps(told)])
    assert (line["seq"], line["place"], line["what"]) == (3, "round 0, step 1, call 2", "<b> · c")
    assert '"reason": "<b>"' in str(line["data"])
