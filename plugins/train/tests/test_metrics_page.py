"""The page of a training: one file that needs nothing else, whatever a model wrote, with curves to the last step."""

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from html_page import ParsedPage
from made_steps import SAMPLE, STEP, learned, steps, text_of
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.errors import ConfigError
from shikisha_train.metrics import CompletionSample, StepMetrics, ValidationResult, collapse_warnings
from shikisha_train.metrics_page import render_training_page, sample_steps, table_rows
from shikisha_train.training_charts import ReferenceValues, StepSeries, line_chart, share_stack, step_chart_size

EVIL = '"><script>alert(1)</script>'
ROOM = step_chart_size(380, 240)


def hostile() -> list[StepMetrics]:
    """A training in which every name and every text is an attack."""
    sample = CompletionSample(EVIL, f"</pre>{EVIL}\n{{{{ 7 * 7 }}}}\x1b[2J\u202e", None, EVIL, False)
    names = {EVIL: 0.6, "{{ 7 * 7 }}": 0.4}
    judged = ValidationResult(3, 0.5, 1.0, 0.0, {}, {EVIL: 0.4})
    fields = {"workers": names, "shapes": names, "parts": names, "samples": (sample,), "seconds": {EVIL: 1.0}}
    return steps(30, (1, {**fields, "second_round": names, "judged": judged}))


def bare() -> list[StepMetrics]:
    """One step in which nobody was asked anything, and nothing was learned."""
    empty: dict[str, object] = {"workers": {}, "shapes": {"no plan": 1.0}, "parts": {}, "samples": (), "seconds": {}}
    return steps(1, (1, {**empty, "kl": 0.0, "tokens": 0, "right": 0.0}))


def collapsed() -> list[StepMetrics]:
    return steps(40, (21, {"worker_entropy": 0.1, "workers": {"simulated-generalist": 1.0}}))


MAKERS: dict[str, Callable[[], list[StepMetrics]]] = {
    "good": learned,
    "long": lambda: learned(700),
    "collapsed": collapsed,
    "hostile": hostile,
    "bare": bare,
}
ALL = pytest.mark.parametrize("name", MAKERS)


@cache
def html(name: str) -> str:
    return render_training_page(MAKERS[name](), EVIL if name == "hostile" else "made-up")


@ALL
def test_every_element_is_closed_and_every_id_is_there_once(name: str) -> None:
    read = ParsedPage(html(name))
    assert read.open == []
    ids = Counter(attributes["id"] for _, attributes in read.elements if "id" in attributes)
    assert [found for found, times in ids.items() if times > 1] == []
    for _, attributes in read.elements:
        assert attributes.get("aria-labelledby") in {None, *ids}


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


def test_what_a_model_writes_is_text_and_nothing_else() -> None:
    page = html("hostile")
    assert Counter(tag for tag, _ in ParsedPage(page).elements)["script"] == 1
    assert "{{ 7 * 7 }}␛[2J&lt;U+202E&gt;" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


@ALL
def test_drawings_speak_for_themselves(name: str) -> None:
    read = ParsedPage(html(name))
    for attributes in read.all("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
    for tag, attributes in read.elements:
        if "data-tip" in attributes:
            assert (tag, attributes["tabindex"], attributes["role"]) == ("g", "0", "img")


def test_it_is_read_from_the_claim_to_the_means() -> None:
    assert ParsedPage(html("good")).said("h1", "h2") == [
        "Training of made-up",
        "Right answers",
        "Workers and plan shapes",
        "Learning",
        "Speed and simulated dollars",
        "Samples",
        "All steps",
        "How to read this",
    ]


def test_warnings_stand_first() -> None:
    said = ParsedPage(html("collapsed")).said("h1", "h2", "li")
    assert said[:3] == ["Training of made-up", "Warnings", collapse_warnings(collapsed())[0]]
    assert "Warnings" not in html("good")


def test_controls_are_drawn_where_somebody_measured_them() -> None:
    read = ParsedPage(html("good"))
    labels = [attributes.get("aria-label") for attributes in read.all("g")]
    assert [label for label in labels if label and label.startswith(("optimum", "random"))] == 2 * [
        "optimum: 90.0 %",
        "random: 15.0 %",
    ]
    assert "step 40, validation: 75.0 %" in labels
    assert "optimum" not in "".join(ParsedPage(html("bare")).said("text", "th"))


@pytest.mark.parametrize("name", ["good", "long"])
def test_every_line_and_area_goes_to_the_last_step(name: str) -> None:
    read = ParsedPage(html(name))
    paths = [
        each["d"] or "" for each in read.all("path") if (each.get("class") or "").startswith(("curve mark", "raw"))
    ]
    ends = [float(re.findall(r"[ML]([\d.]+) ", path)[-1]) for path in paths]
    assert len(ends) > 20
    assert all(min(abs(end - edge) for edge in (338.0, 368.0, 1030.0)) < 2 for end in ends)
    areas = [each["d"] or "" for each in read.all("path") if (each.get("class") or "").startswith("layer")]
    assert all(area.endswith("Z") for area in areas)


def test_dollars_are_simulated_only_where_workers_are() -> None:
    assert "Simulated dollars so far" in html("good")
    real = render_training_page([replace(step, workers={"gpt": 1.0}) for step in learned()])
    assert "imulated" not in real
    assert "Dollars so far" in real


def test_samples_are_early_ones_middle_ones_and_late_ones() -> None:
    assert [(when, step.number) for when, step in sample_steps(learned())] == [
        ("early", 1),
        ("in the middle", 21),
        ("late", 40),
    ]
    assert [when for when, _ in sample_steps(steps(1))] == ["early"]
    assert sample_steps(bare()) == []
    said = ParsedPage(html("good")).said("h3")
    assert [heading for heading in said if ", step" in heading] == [
        "Early, step 1",
        "In the middle, step 21",
        "Late, step 40",
    ]


def test_a_completion_keeps_its_lines_and_a_very_long_one_says_that_it_is_cut() -> None:
    assert SAMPLE.text in html("good").replace("&#34;", '"')
    wordy = CompletionSample("task", "word " * 5_000, 0.5, "chain 2", False)
    assert "… and 23,500 more" in render_training_page([replace(STEP, samples=(wordy,))])


@pytest.mark.parametrize("count", [1, 24, 25, 700])
def test_the_table_holds_every_step_in_few_rows(count: int) -> None:
    found = list(table_rows(learned(count)))
    assert len(found) <= 24
    assert [step.number for row in found for step in row.steps] == list(range(1, count + 1))
    assert sum(row.dollars for row in found) == pytest.approx(0.25 * count)


def test_a_long_training_makes_no_large_page() -> None:
    assert len(html("long").encode()) < 400_000


def test_the_same_steps_give_the_same_page() -> None:
    assert render_training_page(learned(), "made-up") == html("good")


def test_no_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least one step"):
        render_training_page([])


# --- drawings ---------------------------------------------------------------------------------------------------------


def test_a_curve_passes_over_gaps_and_what_is_no_number() -> None:
    plot = line_chart(
        [1, 2, 3, 4], StepSeries({"a": [0.0, None, float("nan"), 1.0], "b": [None] * 4}, share=True), ROOM
    )
    assert plot.curves[0].path == "M58.0 198.0L368.0 10.0"
    assert plot.curves[0].ends == (0.5, 0.5)  # means over three steps at either end
    assert (plot.curves[1].path, plot.curves[1].ends) == ("", None)


def test_many_steps_are_drawn_as_means_of_neighbours_and_none_is_left_out() -> None:
    plot = line_chart(range(1, 1001), StepSeries({"a": [0.0] * 500 + [1.0] * 500}, share=True), ROOM)
    assert plot.curves[0].raw.count("L") == 249
    assert (plot.curves[0].path[:6], plot.curves[0].path.rpartition(" ")[2]) == ("M58.5 ", "10.0")


def test_what_is_exact_is_not_smoothed() -> None:
    values = [float(step) for step in range(40)]
    assert line_chart(range(1, 41), StepSeries({"a": values}, exact=True), ROOM).curves[0].ends == (0.0, 39.0)
    assert line_chart(range(1, 41), StepSeries({"a": values}), ROOM).curves[0].ends == (3.5, 35.5)


def test_names_of_levels_do_not_cover_each_other_and_stay_inside() -> None:
    levels = {"a": 0.52, "b": 0.51, "c": 0.5, "d": 0.01, "e": 0.0, "f": 0.005}
    plot = line_chart([1, 2], StepSeries({}, share=True), ROOM, references=ReferenceValues(levels=levels))
    heights = [level.text_y for level in plot.levels]
    assert min(low - high for high, low in pairwise(heights)) >= 13.9
    assert max(heights) <= plot.frame.bottom + 4
    assert [level.name for level in plot.levels] == ["a", "b", "c", "d", "f", "e"]


def test_a_stack_fills_the_height_and_sums_up_the_rest() -> None:
    shares = [{f"w{place}": 0.1 for place in range(10)} for _ in range(5)]
    drawn = share_stack([1, 2, 3, 4, 5], shares, ROOM, "who")
    assert [layer.name for layer in drawn.layers] == ["w0", "w1", "w2", "w3", "w4", "others"]
    assert drawn.layers[-1].ends == pytest.approx((0.5, 0.5))
    assert drawn.layers[-1].path.startswith("M58.0 10.0L")


def test_who_takes_over_late_has_a_colour_of_its_own() -> None:
    early = [{f"w{place}": 0.1 for place in range(10)}] * 90
    drawn = share_stack(range(1, 101), [*early, *[{"late": 1.0}] * 10], ROOM, "who")
    assert drawn.layers[0].name == "late"
    assert drawn.layers[0].ends == pytest.approx((0.0, 0.45), abs=0.1)


def test_steps_in_which_nobody_was_asked_are_passed_over() -> None:
    drawn = share_stack([1, 2, 3], [{"a": 1.0}, {}, {"a": 1.0}], ROOM, "who")
    assert drawn.layers[0].path == "M58.0 10.0L368.0 10.0L368.0 198.0L58.0 198.0Z"


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_how_it_goes_and_writes_the_page_beside_the_steps(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text(text_of(learned()))
    done = CliRunner().invoke(app, ["train", "page", str(tmp_path)])
    assert done.exit_code == 0
    assert "step 40 of 40" in done.stdout
    assert done.stderr == f"written: {tmp_path / 'training.html'}\n"
    assert (tmp_path / "training.html").read_text() == render_training_page(learned(), tmp_path.name)


def test_the_command_writes_where_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text(text_of(learned()))
    page = tmp_path / "new" / "page.html"
    asked = ["train-page", str(tmp_path / "steps.jsonl"), "--out", str(page)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert page.is_file()
    assert not (tmp_path / "training.html").exists()


@pytest.mark.parametrize("run", ["nothing", "empty"])
def test_the_command_refuses_what_is_no_training(tmp_path: Path, run: str) -> None:
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(app, ["train", "page", str(tmp_path / run)])
    assert done.exit_code == 3
    assert "cannot be read" in done.stderr
