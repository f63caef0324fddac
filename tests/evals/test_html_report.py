"""The page is one file that needs nothing else, whatever names are in it, and says everything that a report holds."""

import re
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from functools import cache
from hashlib import sha256

import pytest
from html_page import ParsedPage, contrast, page_colors
from made_samples import report_of, sample
from paths import ROOT
from reports import DOMAINS, hostile, report

from recorded_pools import MP13
from shikisha.evals.entrant_metrics import EvaluationReport
from shikisha.evals.html_report import render_html_report
from shikisha.evals.report import dump_report, load_report
from shikisha.evals.samples import EntrantRole
from shikisha.outcomes.log_reader import OutcomeLog

RECORDED = ROOT.parent / "shared" / "recorded"
EMPTY = EvaluationReport("nothing", "v", "", (), (), None, (), (), {}, {})


@cache
def page(name: str) -> ParsedPage:
    return ParsedPage(render_html_report(EMPTY if name == "empty" else hostile() if name == "hostile" else report()))


ALL = pytest.mark.parametrize("name", ["good", "hostile", "empty"])


@ALL
def test_every_element_is_closed_and_every_id_is_there_once(name: str) -> None:
    read = page(name)
    assert read.open == []
    ids = Counter(attributes["id"] for _, attributes in read.elements if "id" in attributes)
    assert [found for found, times in ids.items() if times > 1] == []


@ALL
def test_references_stay_inside_the_page(name: str) -> None:
    ids = {attributes.get("id") for _, attributes in page(name).elements}
    for tag, attributes in page(name).elements:
        for key in ("href", "xlink:href", "src", "action", "data", "srcset", "poster"):
            assert (attributes.get(key) or "#table")[0] == "#", f"{tag} {key}"
        if "href" in attributes:
            assert (attributes["href"] or "").removeprefix("#") in ids
        for key in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(key) in {None, *ids}


@ALL
def test_nothing_is_loaded_and_nothing_runs_but_the_page_s_own_script(name: str) -> None:
    read = page(name)
    assert {"img", "iframe", "object", "embed", "link", "base", "form"} & {tag for tag, _ in read.elements} == set()
    assert [key for _, attributes in read.elements for key in attributes if key.startswith("on")] == []
    (script,) = (text for tag, text in read.texts if tag == "script")
    (policy,) = (each["content"] or "" for each in read.all("meta") if each.get("http-equiv"))
    assert f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none';")
    (style,) = (text for tag, text in read.texts if tag == "style")
    assert not re.search(r"@import|url\(|expression", style)


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    read = page("hostile")
    assert Counter(tag for tag, _ in read.elements if tag in {"script", "style", "title", "body"})["script"] == 1
    said = "\n".join(read.said())
    for text in ('"><script>alert(1)</script>', "\" onload='alert(2)' x=\"", "<img src=x onerror=alert(3)>"):
        assert text in said
    assert "{{ 7 * 7 }} {% raw %}" in said
    labels = [attributes["aria-label"] or "" for _, attributes in read.elements if "aria-label" in attributes]
    assert any("<script>alert(1)</script>" in label for label in labels)


def test_control_characters_are_shown_and_not_obeyed() -> None:
    html = render_html_report(hostile())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    assert "␛[2J␛]0;owned␇ &lt;U+202E&gt;gnp.exe" in html
    html.encode()


def test_half_a_character_does_not_stop_the_page() -> None:
    assert "<U+D800>" in "".join(ParsedPage(render_html_report(replace(EMPTY, taskset="\ud800"))).said("h1"))


def test_the_page_of_many_entrants_and_domains_is_small() -> None:
    assert len(report().entries) >= 17
    assert len(render_html_report(report()).encode()) < 500_000


def test_the_same_report_gives_the_same_page_from_json_too() -> None:
    made = report()
    nothing = {entry.name: (None,) * len(made.tasks) for entry in made.entries}
    full = replace(made, scores=nothing, dollars=nothing)
    assert render_html_report(full) == render_html_report(load_report(dump_report(full)))


def test_it_is_read_in_the_order_of_a_careful_reviewer() -> None:
    assert page("good").said("h1", "h2") == [
        "Evaluation on mmlu-pro[test]",
        "Caveats",
        "All entrants",
        "Cost and accuracy",
        "Difference to the best single worker",
        "Calibration",
        "Who did the work",
        "Shapes of plans",
        "Router curves",
        "Accuracy by domain",
        "Accuracy by difficulty",
        "What further rounds changed",
        "Failures by kind",
        "How it was run and graded",
        "How to read this",
    ]
    assert page("empty").said("h1", "h2") == ["Evaluation on nothing", "How to read this"]


def test_the_page_says_what_was_evaluated_and_what_is_wrong_with_it() -> None:
    stopped = replace(report(), complete=False, why="its limit of dollars is reached")
    said = " ".join(ParsedPage(render_html_report(stopped)).said())
    for text in ("8,398, version", "9f2c9f2c9f2c", "2025-11-21T14:03:22+00:00", "in 5 min 12 s", ", ".join(MP13)):
        assert text in said
    assert "not complete : its limit of dollars is reached" in said
    assert "This evaluation is not complete: its limit of dollars is reached. Figures are of what was done." in said
    assert "Costs are derived from approximate list prices" in said
    assert "0, over the workers that each task brings" in page("empty").said()


def test_every_entrant_has_a_row_with_its_figures() -> None:
    said = page("good").said()
    for entry in report().entries:
        assert said.count(entry.name) >= 2
    for text in ("74.1 %", "73.1 to 75.1", "+1.6", "+0.5 to +2.7", "98.1 %", "$41.15", "$0.0049", "988 ms", "0.625"):
        assert text in said, text


@pytest.mark.parametrize("texts", [DOMAINS, ("easy", "hard"), ("timeout", "no_plan"), ("190", "61", "+129"), MP13])
def test_every_table_is_filled(texts: tuple[str, ...]) -> None:
    said = page("good").said()
    assert [text for text in texts if text not in said] == []


@ALL
def test_drawings_and_tables_speak_for_themselves(name: str) -> None:
    read = page(name)
    for attributes in read.all("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
    assert all(attributes.get("scope") in {"row", "col"} for attributes in read.all("th"))
    for tag, attributes in read.elements:
        if "data-tip" in attributes:
            assert (tag, attributes["tabindex"], attributes["role"]) == ("g", "0", "img")
            assert attributes["aria-label"] in read.said("title")
    scrolling = [attributes for attributes in read.all("div") if attributes.get("role") == "region"]
    assert all(attributes["tabindex"] == "0" for attributes in scrolling)


def test_rows_sort_by_numbers() -> None:
    values = [attributes["data-v"] for attributes in page("good").all("td") if "data-v" in attributes]
    assert len(values) > 300
    assert all(re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value or "0") for value in values)


def test_a_report_without_costs_has_no_drawing_of_them() -> None:
    made = report()
    unknown = tuple(replace(entry, dollars=0.0, unpriced=entry.tasks) for entry in made.entries)
    read = ParsedPage(render_html_report(replace(made, entries=unknown, hull=())))
    assert "There is no chart: no cost is known." in read.said("p")
    assert "$?" in read.said("td")


def test_single_workers_alone_are_a_report() -> None:
    made = report()
    alone = replace(made, entries=tuple(entry for entry in made.entries if entry.part is EntrantRole.SINGLE), curves=())
    headings = ParsedPage(render_html_report(alone)).said("h2")
    assert "Difference to the best single worker" in headings
    assert not {"Who did the work", "Shapes of plans", "Calibration", "Router curves"} & set(headings)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_everything_can_be_read_in_light_and_dark_and_on_paper(scheme: str) -> None:
    (style,) = (text for tag, text in page("empty").texts if tag == "style")
    found = page_colors(style, scheme)
    for name in ("ink", "quiet"):
        for ground in ("paper", "panel", "warn-panel"):
            assert contrast(found[name], found[ground]) >= 4.5, (name, ground)
    assert contrast(found["ink"], found["heat"]) >= 4.5
    for part in EntrantRole:
        assert contrast(found[part], found["paper"]) >= 4.5, part


def test_every_part_has_a_mark_of_its_own() -> None:
    ids = {attributes.get("id") for _, attributes in page("empty").elements}
    assert {f"m-{part}" for part in EntrantRole} <= ids


def test_without_jinja2_the_extra_is_named() -> None:
    program = """
import sys
sys.modules["jinja2"] = None
from shikisha.evals.entrant_metrics import EvaluationReport
from shikisha.evals.html_report import render_html_report
render_html_report(EvaluationReport("t", "v", "", (), (), None, (), (), {}, {}))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    assert "MissingExtra: the HTML page needs the extra 'eval': pip install 'shikisha[eval]'" in done.stderr


@pytest.mark.full
@pytest.mark.recorded
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded answers in {RECORDED}")
@pytest.mark.parametrize(
    ("name", "workers", "costs"),
    [
        pytest.param("mmlu-pro", 31, True, marks=pytest.mark.slow),
        ("zeroeval", 29, True),
        ("llmrouter", 9, False),
        ("routellm-mmlu", 2, False),
    ],
)
def test_recorded_answers_of_real_models_make_a_page(name: str, workers: int, costs: bool) -> None:
    log = OutcomeLog.read(RECORDED / name)
    held = {
        worker: [
            sample(worker, each.task_id, each.score, domain=log.task(each.task_id).domain, dollars=each.dollars)
            for each in log.outcomes_of(worker)
        ]
        for worker in log.workers
    }
    html = render_html_report(report_of(held))
    assert len(html.encode()) < 500_000
    read = ParsedPage(html)
    assert len(held) == workers
    for worker, samples in held.items():
        scores = [each.score for each in samples if each.score is not None]
        assert f"{100 * sum(scores) / len(scores):.1f} %" in read.said("td")
        assert worker in read.said("span")
    assert ("There is no chart: no cost is known." in read.said("p")) is not costs
