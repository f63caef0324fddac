"""Tables as the world writes them: battles, a column a model, scales, words, slips; a bad row stops nothing."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from importing import command, imported, lines, refused, table
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.outcomes.importers.answer_table import expected_score, fit_strengths


def scores_of(folder: Path, values: Sequence[object], *options: str, column: str = "score") -> list[float | None]:
    """The scores of a table with these values, after its import."""
    rows = [{"prompt": f"Q{number}", "model": "a", column: value} for number, value in enumerate(values)]
    return imported("table", table(folder / "x.csv", rows), options=options).scores("a")


def folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        (["0", "1", ""], [0.0, 1.0, None]),
        (["True", "FALSE", "n/a"], [1.0, 0.0, None]),
        (["correct", "Incorrect", "null"], [1.0, 0.0, None]),
        (["pass", "fail", "error"], [1.0, 0.0, 0.0]),
        (["87%", "100 %", "0%"], [0.87, 1.0, 0.0]),
        (["100", "0", "100"], [1.0, 0.0, 1.0]),
    ],
)
def test_scores_are_read_as_people_write_them(tmp_path: Path, values: list[str], scores: list[float | None]) -> None:
    assert scores_of(tmp_path, values) == scores


@pytest.mark.parametrize("column", ["resolved", "is_correct", "Rating", "verdict", "success"])
def test_columns_of_scores_have_many_names(tmp_path: Path, column: str) -> None:
    assert scores_of(tmp_path, ["1", "0"], column=column) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("values", "options", "scores"),
    [
        (["1", "10", "5.5"], ["--scale", "1:10"], [0.0, 1.0, 0.5]),
        (["35", "80"], ["--scale", "0:100"], [0.35, 0.8]),
        (["5", "1"], ["--scale", "5:1"], [0.0, 1.0]),
        (["good", "bad"], ["--scale", "bad:good"], [1.0, 0.0]),
        (["1.7", "0.5"], ["--clip"], [1.0, 0.5]),
        (["12", "5"], ["--scale", "1:10", "--clip"], [1.0, pytest.approx(4 / 9)]),
    ],
)
def test_a_person_says_what_the_scale_is(
    tmp_path: Path, values: list[str], options: list[str], scores: list[float]
) -> None:
    assert scores_of(tmp_path, values, *options) == scores


@pytest.mark.parametrize(
    ("values", "option"),
    [(["7", "9", "1"], "--scale 1:10"), (["35", "80"], "--scale 1:100"), (["3", "5", "0"], "--scale 0:5")],
)
def test_where_several_scales_fit_the_error_names_the_option(tmp_path: Path, values: list[str], option: str) -> None:
    rows = [{"prompt": f"Q{number}", "model": "a", "score": value} for number, value in enumerate(values)]
    assert option in " ".join(refused("table", table(tmp_path / "x.csv", rows)).split())


@pytest.mark.parametrize("scale", ["1", "1:", ":10", "3:3", "1:good"])
def test_a_scale_that_is_none_is_refused(tmp_path: Path, scale: str) -> None:
    file = table(tmp_path / "x.csv", [{"prompt": "Q", "model": "a", "score": "1"}])
    assert "--scale: expected WORST:BEST" in refused("table", file, options=["--scale", scale])


def test_a_slip_and_other_bad_rows_are_counted_and_named(tmp_path: Path) -> None:
    rows = [["prompt", "model", "score"], *([f"Q{number}", "a", "1"] for number in range(60))]
    rows[5], rows[9], rows[20], rows[21] = ["Q", "a", "17"], ["Q", "a"], ["Q", "", "1"], ["Q", "a", "perhaps"]
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    said, told = command("table", str(tmp_path / "x.csv"), "--out", str(tmp_path / "log"))
    assert "56 outcomes (56 graded) of 1 worker on 56 tasks" in said
    for place, problem in ((6, "score: expected a score from 0 to 1"), (10, "expected 3 cells, found 2")):
        assert f"left out: bad rows, the first at {tmp_path}/x.csv: line {place}: {problem}" in told
    assert "line 21: model: expected text, found null: 1" in told
    assert "line 22: score: expected a score (another word: --scale WORST:BEST), found 'perhaps': 1" in told


def test_a_line_that_is_no_json_is_counted(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [{"prompt": "Q", "model": "a", "score": 1}])
    file.write_text(file.read_text() + "{cut off\n[1]\n")
    found = imported("table", file)
    assert found.scores("a") == [1.0]
    left = found.told["left"]
    assert isinstance(left, dict)
    assert sum(left.values()) == 2


@pytest.mark.parametrize("separator", ["|", "_", ".", " "])
def test_a_column_a_model_with_its_costs_beside_it(tmp_path: Path, separator: str) -> None:
    rows = [{"prompt": f"Q{number}", "category": "c", "gpt-4": number % 2, "mixtral": "",
             f"gpt-4{separator}cost": 0.01, f"mixtral{separator}cost": 0.001} for number in range(4)]  # fmt: skip
    rows[3]["mixtral"] = 1
    found = imported("table", table(tmp_path / "x.csv", rows))
    assert found.scores("gpt-4") == [0.0, 1.0, 0.0, 1.0]
    assert found.scores("mixtral") == [1.0]
    assert [one.dollars for one in found.log.outcomes_of("gpt-4")] == [0.01] * 4
    assert found.log.task(found.log.task_ids[0]).domain == "c"


def test_plain_columns_of_scores_are_models_and_others_need_the_option(tmp_path: Path) -> None:
    plain = table(tmp_path / "x.csv", [{"question": "Q", "ann": "True", "bob": "False"}])
    assert imported("table", plain).scores("ann") == [1.0]
    mixed = table(
        folder(tmp_path, "y") / "y.csv", [{"question": "Q", "ann": "1", "bob": "0", "remarks": "much to say"}]
    )
    assert "a column a model: --wide MODEL,MODEL" in " ".join(refused("table", mixed).split())
    named = imported("table", mixed, options=["--wide", "ann,bob"])
    assert (named.scores("ann"), named.scores("bob")) == ([1.0], [0.0])
    wrong = table(folder(tmp_path, "z") / "z.csv", [{"question": "Q", "ann": "1", "bob": "0"}])
    assert "--wide cyd: expected one of the columns" in refused("table", wrong, options=["--wide", "ann,cyd"])


def battle(one: str, other: str, winner: str, number: int) -> dict[str, object]:
    return {"model_a": one, "model_b": other, "winner": winner, "prompt": f"Q{number}"}


@pytest.mark.parametrize("winner", ["model_a", "ann", "A", "a"])
def test_a_battle_of_two_is_a_score_for_both(tmp_path: Path, winner: str) -> None:
    rows = [battle("ann", "bob", winner, 0), battle("ann", "bob", "tie", 1), battle("ann", "bob", "model_b", 2)]
    found = imported("table", table(tmp_path / "x.csv", rows))
    assert (found.scores("ann"), found.scores("bob")) == ([1.0, 0.5, 0.0], [0.0, 0.5, 1.0])


def test_flags_of_winners_and_columns_of_other_names_are_battles_too(tmp_path: Path) -> None:
    flags = {
        "prompt": "Q",
        "model_a": "ann",
        "model_b": "bob",
        "winner_model_a": 0,
        "winner_model_b": 1,
        "winner_tie": 0,
    }
    assert imported("table", table(folder(tmp_path, "x") / "x.csv", [flags])).scores("bob") == [1.0]
    own = [{"prompt": "Q", "Wer": "ann", "Gegen": "bob", "Sieger": "Gegen"}]
    found = imported("table", table(folder(tmp_path, "y") / "y.csv", own), options=["--pairs", "Wer,Gegen,Sieger"])
    assert found.scores("bob") == [1.0]
    _, said = command("table", "x.csv", "--out", str(tmp_path / "log"), "--pairs", "Wer,Gegen", code=3)
    assert "--pairs: expected three columns" in said


def test_strengths_are_those_that_made_the_battles() -> None:
    truth, drawn, draw = {"a": 4.0, "b": 1.0, "c": 0.25}, 0.8, random.Random(0)
    wins: dict[tuple[str, str], float] = {}
    ties: dict[frozenset[str], int] = {}
    for _ in range(20_000):
        one, other = draw.sample(sorted(truth), 2)
        root = drawn * (truth[one] * truth[other]) ** 0.5
        place = draw.random() * (truth[one] + truth[other] + root)
        if place < root:
            ties[frozenset((one, other))] = ties.get(frozenset((one, other)), 0) + 1
        else:
            pair = (one, other) if place < root + truth[one] else (other, one)
            wins[pair] = wins.get(pair, 0) + 1
    strengths, common = fit_strengths(wins, ties)
    assert common == pytest.approx(drawn, rel=0.06)
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        assert strengths[one] / strengths[other] == pytest.approx(truth[one] / truth[other], rel=0.1)
    assert expected_score(1.0, 1.0, common) == pytest.approx(0.5)


def test_who_meets_strong_rivals_is_not_taken_for_weak(tmp_path: Path) -> None:
    draw, strengths, rows = random.Random(1), {"ann": 1.0, "bob": 1.0, "weak": 0.1, "strong": 10.0}, []
    for number in range(4_000):
        one = draw.choice(("ann", "bob"))
        other = draw.choices(("strong", "weak"), (9, 1) if one == "ann" else (1, 9))[0]
        won = draw.random() < strengths[one] / (strengths[one] + strengths[other])
        rows.append(battle(one, other, "model_a" if won else "model_b", number))
    found = imported("table", table(tmp_path / "x.csv", rows))
    means = {name: sum(known) / len(known) for name in strengths if (known := [s or 0.0 for s in found.scores(name)])}
    assert means["ann"] == pytest.approx(means["bob"], abs=0.06)
    assert means["weak"] < means["ann"] < means["strong"]


def test_one_request_that_a_proxy_wrote_twice_is_one_outcome(tmp_path: Path) -> None:
    row = {"request_id": "r1", "call_type": "acompletion", "model": "m", "messages": [{"role": "user", "content": "Q"}],
           "spend": 0.01, "response": {"choices": [{"message": {"content": "a"}}]}}  # fmt: skip
    late = {**row, "request_id": "r2", "startTime": "2026-11-01T00:00:02Z", "endTime": "2026-11-01T00:00:01Z"}
    found = imported("litellm", lines(tmp_path / "spend.jsonl", [row, row, late]))
    assert len(list(found.log.outcomes_of("m"))) == 1
    left = found.told["left"]
    assert isinstance(left, dict)
    assert left["calls that stand there twice"] == 1
    assert any("endTime: expected a time after startTime" in reason for reason in left)


def test_from_a_spreadsheet_to_a_verdict_in_two_commands(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = [{"prompt": f"Q{n}", "category": "ab"[n % 2], "small": draw.random() < 0.5, "large": draw.random() < 0.9,
             "small|cost": 0.01, "large|cost": 0.1} for n in range(300)]  # fmt: skip
    command("table", str(table(tmp_path / "x.csv", rows)), "--out", str(tmp_path / "log"))
    said = CliRunner().invoke(app, ["learn", str(tmp_path / "log"), "--out", str(tmp_path / "our.policy")]).stdout
    assert said.splitlines()[0] == said.splitlines()[-1] == "ask large for everything: routing gains nothing here"
