"""The page of a learned policy: one file that needs nothing else, and says everything that the policy file holds."""

import re
import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import sha256

import pytest
from html_page import ParsedPage, contrast, page_colors
from policies import BUDGETS, broad, policy

from shikisha.plots.charts import ChartSize
from shikisha.plots.svg import Rect
from shikisha.routing.fit.policy_figures import fixed_cost_baselines, frontier_lines, is_overspent, paid_for
from shikisha.routing.fit.policy_page import budget_checks, frontier_chart, render_policy_page
from shikisha.routing.fit.policy_report import describe_promises, usage_commands
from shikisha.routing.policy_data import Baseline, Candidate, FrontierPoint, HeldOutEvidence, Policy
from shikisha.routing.trade_off import OperatingPoint, TradeOff, parse_target

EVIL = '"><script>alert(1)</script>'
WIDE = ChartSize(1200, 560, right=150)


def hostile() -> Policy:
    """A policy whose every name is an attack."""
    made = policy()
    worker = replace(made.workers[0], name=EVIL + "\x1b[2J\u202e")
    about = replace(made.about, log=EVIL, notes=(EVIL, "{{ 7 * 7 }}"))
    yard = replace(made.yardsticks[0], name=EVIL, note=EVIL)
    types = replace(made.types, names=(EVIL, "law"))
    return replace(made, workers=(worker, *made.workers[1:]), about=about, yardsticks=(yard,), types=types)


def bare() -> Policy:
    """A policy of which nothing was measured or counted, from a log without costs."""
    made = policy()
    rung = Candidate("table", TradeOff((OperatingPoint(0, 0, 0.0, 0.7),), 0.0, 0.7))
    about = replace(made.about, notes=(), log="", log_hash="", made="", cost_kind="")
    return replace(made, about=about, rungs=(rung,), kept="table", yardsticks=(), habits=None)


@cache
def html(name: str) -> str:
    makers: dict[str, Callable[[], Policy]] = {"good": policy, "broad": broad, "hostile": hostile, "bare": bare}
    made = makers[name]()
    return render_policy_page(made, "0f0f0f0f0f0f", usage_commands(made, "made.policy", "logs/made-up"))


ALL = pytest.mark.parametrize("name", ["good", "broad", "hostile", "bare"])


@ALL
def test_every_element_is_closed_and_every_id_is_there_once(name: str) -> None:
    read = ParsedPage(html(name))
    assert read.open == []
    ids = Counter(attributes["id"] for _, attributes in read.elements if "id" in attributes)
    assert [found for found, times in ids.items() if times > 1] == []


@ALL
def test_nothing_is_loaded_and_nothing_runs_but_the_page_s_own_script(name: str) -> None:
    read = ParsedPage(html(name))
    assert {"img", "iframe", "object", "embed", "link", "base", "form"} & {tag for tag, _ in read.elements} == set()
    (script,) = (text for tag, text in read.texts if tag == "script")
    (allowed,) = (each["content"] or "" for each in read.all("meta") if each.get("http-equiv"))
    assert f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in allowed
    assert allowed.startswith("default-src 'none';")
    (style,) = (text for tag, text in read.texts if tag == "style")
    assert not re.search(r"@import|url\(", style)


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    page = html("hostile")
    assert Counter(tag for tag, _ in ParsedPage(page).elements)["script"] == 1
    assert "{{ 7 * 7 }}" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


@ALL
def test_drawings_speak_for_themselves(name: str) -> None:
    read = ParsedPage(html(name))
    for attributes in read.all("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
    for tag, attributes in read.elements:
        if "data-tip" in attributes:
            assert (tag, attributes["tabindex"], attributes["role"]) == ("g", "0", "img")
            assert attributes["aria-label"] in read.said("title")


def test_it_is_read_from_the_claim_to_the_means() -> None:
    assert ParsedPage(html("good")).said("h1", "h2") == [
        "Policy learned from made-up",
        "Caveats",
        "Cost and accuracy",
        "Results by budget",
        "Promised and measured results",
        "By type of task",
        "The pool",
        "How to use it",
        "How to read this",
    ]
    bare_headings = ParsedPage(html("bare")).said("h1", "h2")
    assert bare_headings == [
        "Policy learned from outcomes",
        "Cost and accuracy",
        "The pool",
        "How to use it",
        "How to read this",
    ]


def test_every_figure_of_the_evidence_stands_in_a_table() -> None:
    said = ParsedPage(html("good")).said()
    for line in frontier_lines(policy()):
        assert line.name in said
        assert f"{100 * line.area:.2f}" in said
        for budget in (0.05, 0.1, 0.2, 0.5, 1.0):
            met = line.at(budget)
            assert met is None or f"{100 * met.accuracy:.1f}" in said
    for text in ("a note for the reader", "logs/made-up", "0f0f0f0f0f0f"):
        assert text in said


def test_a_yardstick_of_one_cost_is_a_mark_and_no_row() -> None:
    assert [name for name, _ in fixed_cost_baselines(policy())] == ["best single worker"]
    assert "best single worker" not in [line.name for line in frontier_lines(policy())]
    assert any("whatever the budget" in text for text in ParsedPage(html("good")).said("li"))


def test_without_evidence_or_costs_there_is_no_drawing() -> None:
    assert "There is no plot: no task could be held out to measure on." in ParsedPage(html("bare")).said("p")
    free = tuple(replace(rung, dial=replace(rung.dial, unit=0.0)) for rung in policy().rungs)
    assert "There is no plot: nothing in the log costs anything." in ParsedPage(
        render_policy_page(replace(policy(), rungs=free), "v")
    ).said("p")


@pytest.mark.parametrize("made", [policy(), broad()])
def test_the_drawing_stays_inside_its_frame(made: Policy) -> None:
    size = WIDE
    plot = frontier_chart(made, size)
    assert plot is not None
    for curve in plot.curves:
        places = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", curve.path + curve.band)]
        assert all(plot.frame.holds(x, y) for x, y in places)
        assert curve.label is not None
        assert curve.label.box.beyond(Rect(0, 0, size.width, size.height)) <= 1
    assert all(plot.frame.holds(point.x, point.y) for point in plot.points)


def test_promises_stand_beside_what_was_found() -> None:
    held = budget_checks(policy().rung())
    assert [each.met.budget for each in held] == [budget for budget in BUDGETS if budget >= held[0].met.budget]
    for each in held:
        assert each.accuracy == pytest.approx(each.met.accuracy)


def test_promises_that_were_not_compared_are_not_called_kept() -> None:
    assert describe_promises(HeldOutEvidence(0.7)) == ""
    assert "1.0 points of accuracy and 2.0 %" in describe_promises(HeldOutEvidence(0.7, promised=(0.01, 0.02)))


@pytest.mark.parametrize("costs", [(0.1, 0.9), (1.0067, 1.013), (1.00001, 1.00002), (0.5, 0.5), (0.0, 0.3)])
def test_every_use_that_is_named_can_be_had(costs: tuple[float, float]) -> None:
    low, high = OperatingPoint(0, 0, costs[0], 0.6), OperatingPoint(0, 1, costs[1], 0.7)
    dial = TradeOff((low, high) if costs[0] < costs[1] else (high,), 1.0, 0.7)
    found = usage_commands(replace(bare(), rungs=(Candidate("table", dial),)), "my policy.file", "a log", ("a", "b"))
    words = [shlex.split(command) for command, _ in found]
    assert ["shikisha", "policy", "show", "my policy.file"] in words
    assert words[0][:2] == ["shikisha", "run"]
    assert words[-1][:6] == ["shikisha", "eval", "--log", "a log", "--workers", "a,b"]
    for word in (words[0], words[-1]):
        options = word[-1].removeprefix("policy:my policy.file").removeprefix("?")
        assert dial.at(parse_target([options.partition("=")[::2]] if options else [])).accuracy >= 0.6


def test_budgets_that_pay_for_a_part_of_the_tasks_only_are_not_shown() -> None:
    rising = tuple(FrontierPoint(budget, budget, 0.7 * budget, 0.0, 1.0) for budget in (0.02, 0.05, 0.5))
    whole = tuple(FrontierPoint(budget, 1.0, 0.7, 0.6, 0.8) for budget in (1.0, 2.0))
    dial = TradeOff((OperatingPoint(0, 0, 1.0, 0.7),), 1.0, 0.7)
    assert paid_for(Candidate("table", dial, HeldOutEvidence(0.3, (*rising, *whole)))) == whole
    assert fixed_cost_baselines(replace(policy(), yardsticks=(Baseline("dear", 0.3, whole),))) == (("dear", whole[1]),)


def test_what_costs_more_than_the_budget_is_said_to() -> None:
    made = policy()
    dear = FrontierPoint(0.05, 0.4, 0.7, 0.6, 0.8)
    assert is_overspent(dear, 0.05)
    assert not is_overspent(dear, 0.5)
    yard = replace(made.yardsticks[0], frontier=(dear, *made.yardsticks[0].frontier[2:]))
    assert "spent 40.0 %" in ParsedPage(render_policy_page(replace(made, yardsticks=(yard,)), "v")).said("small")


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_curves_and_their_names_can_be_seen(scheme: str) -> None:
    (style,) = (text for tag, text in ParsedPage(html("bare")).texts if tag == "style")
    found = page_colors(style, scheme)
    for name in ("asked", "fixed", "consistency", "random", "single", "quiet"):
        assert contrast(found[name], found["paper"]) >= 4.5
