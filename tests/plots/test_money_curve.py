"""The money curve: one line a way of working, with its sum and its quality, and nothing that a name could inject."""

from xml.etree import ElementTree as ET

from shikisha.plots.money_curve import Spending, money_curve


def test_every_line_begins_at_nothing_and_says_its_sum_and_quality() -> None:
    drawing = money_curve(
        "Costs", [Spending("ours", [0.5, 0.25], "90 % right"), Spending("dear", [1.0, 1.0])], [(1, "here")]
    )
    root = ET.fromstring(drawing)  # noqa: S314 - our own drawing
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours", "dear", "$0.75, 90 % right", "$2.00", "here", "Costs"} <= set(texts)
    paths = [path.get("d", "") for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("stroke-width")]
    starts = {path.split()[0].split("L")[0] for path in paths if path.count(",") > 1 or "L" in path}
    assert len(starts) == 1, "all begin at the same place"


def test_a_name_is_text_and_many_requests_are_few_points() -> None:
    drawing = money_curve("<script>", [Spending("a & b <i>", [0.001] * 50_000)])
    assert "<script>" not in drawing
    assert "a &amp; b &lt;i&gt;" in drawing
    assert len(drawing) < 20_000


def test_requests_that_cost_nothing_can_be_drawn() -> None:
    assert "$0" in money_curve("free", [Spending("free", [0.0, 0.0])])
