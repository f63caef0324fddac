"""Weights of success, speed and cost from people's choices: found where they are, refused where they are not."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.errors import ConfigError
from shikisha.routing.fit.fit_preference import AnswerFacts, fit_preference, read_choices
from shikisha.routing.policy_data import KnownWorker


def people(weights: tuple[float, float, float], count: int, seed: int = 0) -> list[tuple[AnswerFacts, AnswerFacts]]:
    """Choices of people who weigh success, 1 / seconds and dollars so, and choose by a logit."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        one, other = (
            AnswerFacts(rng.uniform(0.3, 1), float(rng.uniform(0.5, 8)), float(rng.uniform(0, 0.02))) for _ in range(2)
        )
        worth = sum(
            weight * (mine - theirs) for weight, mine, theirs in zip(weights, one.features, other.features, strict=True)
        )
        found.append((one, other) if rng.random() < 1 / (1 + np.exp(-worth)) else (other, one))
    return found


def test_the_weights_of_simulated_people_are_found() -> None:
    found = fit_preference(people((8.0, 2.0, 240.0), 4_000))
    assert found.speed == pytest.approx(0.25, rel=0.25)
    assert found.price == pytest.approx(30.0, rel=0.25)
    assert found.speed_interval[0] < 0.25 < found.speed_interval[1]
    assert found.kept
    assert found.foretold > found.alone
    assert found.price_of_unit(0.01) == pytest.approx(found.price / 100)


def test_people_who_look_at_success_only_teach_nothing_else() -> None:
    kept = [fit_preference(people((8.0, 0.0, 0.0), 300, seed)) for seed in range(5)]
    assert sum(one.kept for one in kept) <= 1
    assert all(one.price_interval[0] >= 0 for one in kept)


def test_choices_that_do_not_follow_success_are_refused() -> None:
    refused = 0
    for seed in range(4):
        try:
            fit_preference(people((0.0, 4.0, 0.0), 200, seed))
        except ConfigError as error:
            refused += "do not follow" in str(error)
    assert refused >= 3  # an interval errs in one of forty
    with pytest.raises(ConfigError, match="expected 50"):
        fit_preference(people((8.0, 0.0, 0.0), 10))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "c.jsonl:1"),
        ("[1]", "c.jsonl:1"),
        ('{"chosen": {"worker": "a"}}', "'rejected' is missing"),
        ('{"chosen": {"worker": "z"}, "rejected": {"worker": "a"}}', "unknown worker 'z': known are a, b"),
        (
            '{"chosen": {"worker": "a", "seconds": -1}, "rejected": {"worker": "a"}}',
            "seconds: expected a number from 0",
        ),
        ('{"chosen": {"worker": "a", "success": NaN}, "rejected": {"worker": "a"}}', "success: expected a number"),
        ('{"chosen": 3, "rejected": {"worker": "a"}}', "expected an object"),
        ("[" * 100_000, "c.jsonl:1"),
    ],
)
def test_a_line_that_is_no_choice_is_refused_with_its_place(line: str, said: str) -> None:
    workers = (KnownWorker("a", 0.9, 0.01, 10, 2.0), KnownWorker("b", 0.5, 0.001, 10, 1.0))
    with pytest.raises(ConfigError, match=r"c\.jsonl:1") as raised:
        read_choices([line], "c.jsonl", workers)
    assert said in str(raised.value)


def test_the_command_says_what_people_value(tmp_path: Path) -> None:
    file = tmp_path / "choices.jsonl"
    rows = [
        {side: {"success": each.success, "seconds": each.seconds, "dollars": each.dollars}}
        | {"rejected": {"success": other.success, "seconds": other.seconds, "dollars": other.dollars}}
        for each, other in people((8.0, 2.0, 240.0), 1_000)
        for side in ("chosen",)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shown = CliRunner().invoke(app, ["learn", "preference", str(file)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "1,000 choices" in shown.stdout
    assert "learn --speed" in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["learn", "preference", str(file), "--json"]).stdout)
    assert told["kept"] is True
