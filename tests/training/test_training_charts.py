"""The curve in the terminal: every judgement, those beside it, within the width; and where a model to begin with is."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_steps import BESIDE, learned, steps
from rich.text import Text

from shikisha.core.errors import ConfigError
from shikisha.training.metrics import ValidationResult
from shikisha.training.model_loader import resolve_start
from shikisha.training.training_charts import accuracy_curve


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("count", [1, 2, 40, 320])
def test_it_fits_into_the_width(width: int, count: int) -> None:
    lines = accuracy_curve(learned(count), width)
    assert max(line.cell_len for line in lines) <= width
    assert len(lines) <= 18


def test_every_judgement_is_a_point_with_its_figure_and_others_stand_beside() -> None:
    lines = plain(accuracy_curve(learned(40), 80))
    drawing = lines[2:]
    assert sum(line.count("●") for line in drawing) == 4
    for figure in ("19", "38", "56", "75"):
        assert any(figure in line for line in drawing)
    for name, share in BESIDE.items():
        assert sum(f"{name} {100 * share:.0f} %" in line for line in drawing) == 1
    heights = [next(row for row, line in enumerate(drawing) if name in line) for name in BESIDE]
    assert heights == sorted(heights)


def test_points_go_up_with_what_was_right_and_right_with_the_steps() -> None:
    rows = [
        (row, line.index("●")) for row, line in enumerate(plain(accuracy_curve(learned(40), 80))[2:]) if "●" in line
    ]
    assert rows == sorted(rows, key=lambda place: -place[1])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_those_who_come_to_the_same_are_named_one_below_the_other_best_first(share: float) -> None:
    found = ValidationResult(
        10, 0.5, 1.0, 0.0, {}, {name: abs(share - place / 1000) for place, name in enumerate("abcde")}
    )
    lines = plain(accuracy_curve(steps(4, (4, {"judged": found}), of=4), 80))[2:]
    rows = {name: row for row, line in enumerate(lines) for name in "abcde" if f" {name} {100 * share:.0f} %" in line}
    order = sorted(found.beside, key=lambda name: -found.beside[name])
    assert [rows[name] for name in order] == list(range(rows[order[0]], rows[order[0]] + 5))


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_the_ends_of_the_scale_are_in_the_drawing(right: float) -> None:
    found = ValidationResult(10, right, 1.0, 0.0)
    one = replace(steps(1, of=1)[0], right=right, judged=found)
    assert any("●" in line for line in plain(accuracy_curve([one], 60))[2:])


def test_without_judgements_only_what_was_sampled_is_drawn() -> None:
    text = "\n".join(plain(accuracy_curve(steps(5), 60)))
    assert "●" not in text
    assert "that it does not learn from" not in text
    assert accuracy_curve([], 60) == []


def test_a_model_stands_where_the_training_file_says(tmp_path: Path) -> None:
    (tmp_path / "recipes" / "warm").mkdir(parents=True)
    home = tmp_path / "recipes"
    assert resolve_start("warm", home) == str(home / "warm")
    assert Path(resolve_start("../recipes/warm", home)).samefile(home / "warm")
    assert resolve_start(str(home / "warm"), Path("elsewhere")) == str(home / "warm")
    assert resolve_start("owner/name", home) == "owner/name"
    for gone in ("cold", "./cold", "../warm", "a/b/c", str(tmp_path / "cold")):
        with pytest.raises(
            ConfigError, match=r"model\.start: .*: expected a folder with a model, or a name on the hub"
        ):
            resolve_start(gone, home)
