"""A training is read back, warned of, and told in lines while it goes on."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from made_steps import STEP, learned, steps, text_of
from rich.console import Console

from shikisha.core.errors import ConfigError
from shikisha_train import metrics
from shikisha_train.console import StepLines
from shikisha_train.metrics import collapse_warnings
from shikisha_train.metrics_log import read_steps

EVIL = "\x1b[2J[red]evil[/red]\u202e\nmore"


class Hands:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def console(width: int = 80, height: int = 24, *, terminal: bool = False) -> Console:
    return Console(file=StringIO(), width=width, height=height, force_terminal=terminal, color_system=None)


def text_on(made: Console) -> str:
    assert isinstance(made.file, StringIO)
    return made.file.getvalue()


# --- reading back -----------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_from_the_file_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text(text_of(learned()))
    assert read_steps(tmp_path) == read_steps(tmp_path / "steps.jsonl") == learned()


def test_steps_that_were_taken_again_count_as_they_were_taken_last(tmp_path: Path) -> None:
    before, after = steps(6), steps(5, (1, {"reward": 0.9}))[3:]
    (tmp_path / "steps.jsonl").write_text(text_of([*before, *after]))
    assert [(step.number, step.reward) for step in read_steps(tmp_path)] == [
        (1, 0.6),
        (2, 0.6),
        (3, 0.6),
        (4, 0.9),
        (5, 0.9),
    ]


def test_a_line_that_is_being_written_is_no_step_yet(tmp_path: Path) -> None:
    whole = text_of(steps(3))
    (tmp_path / "steps.jsonl").write_text(whole[:-20])
    assert [step.number for step in read_steps(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected the steps of a training run, one a line, and there is none"),
        ("\n\n", "there is none"),
        (f"{STEP.dumps()}\n{{\n", "steps.jsonl, line 2: expected a step of training as JSON"),
        ("[1]\n", "line 1: expected a step of training"),
        ('{"number": 1}\n', "line 1: expected a step of training as JSON: 'samples'"),
        (STEP.dumps().replace('"kl"', '"KL"') + "\n", "line 1: .*KL"),
    ],
)
def test_what_is_no_training_is_an_error_that_says_where(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "steps.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_steps(tmp_path)


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_steps(tmp_path)
    (tmp_path / "steps.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match="expected UTF-8"):
        read_steps(tmp_path)


# --- figures and warnings ---------------------------------------------------------------------------------------------


def test_the_beginning_and_now_are_means_of_as_many_steps() -> None:
    found = learned(40)
    assert metrics.averaging_window(40) == 8
    assert metrics.mean_at_start(found, lambda step: step.number) == pytest.approx(4.5)
    assert metrics.mean_at_end(found, lambda step: step.number) == pytest.approx(36.5)
    assert [metrics.averaging_window(count) for count in (1, 2, 4, 30, 1000)] == [1, 2, 3, 6, 20]


def test_simulated_dollars_are_called_so() -> None:
    assert metrics.describe_cost(steps(4)) == "$1.00 (simulated)"
    assert metrics.describe_cost(steps(4, (1, {"workers": {"gpt": 1.0}}))) == "$1.00"


def test_a_training_that_goes_well_warns_of_nothing() -> None:
    assert collapse_warnings(learned()) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"worker_entropy": 0.3, "workers": {"simulated-generalist": 0.95, "fact": 0.05}},
            (
                "Collapse onto few workers: the entropy of calls over workers fell from 1.50 to 0.30 bits; "
                "simulated-generalist gets 95.0 % of the calls."
            ),
        ),
        (
            {"shapes": {"one-shot 1": 0.46, "no plan": 0.5, "chain 2": 0.04}},
            "Collapse onto one shape: 92.0 % of the valid plans are one-shot 1.",
        ),
        ({"valid": 0.5}, "The format is being lost: 50.0 % of the texts are valid plans, down from 90.0 %."),
        (
            {"right": 0.4, "valid": 0.95, "right_if_valid": 0.23},
            (
                "Only the format is learned: right answers rose by +20.0 points, but given a valid plan by +1.0; "
                "nearly all of the rise is plans that are valid now."
            ),
        ),
        ({"masked": 0.2}, "Workers fail: their faults spoiled 20.0 % of the plans, from which nothing is learned."),
        ({"even": 0.95}, "Little to learn from: in 95.0 % of the groups all plans have the same reward."),
        (
            {"second_round": {"kept": 0.5, "repaired": 0.02, "broken": 0.1}},
            "Second rounds do harm: 10.0 % broke a right answer, 2.0 % repaired one.",
        ),
    ],
)
def test_a_collapse_is_told_in_words(fields: Mapping[str, object], told: str) -> None:
    assert collapse_warnings(steps(40, (21, fields))) == [told]


@pytest.mark.parametrize(
    "fields",
    [
        {"worker_entropy": 0.4},  # more than a quarter of 1.5
        {"shapes": {"one-shot 1": 0.89, "chain 2": 0.11}},
        {"valid": 0.7},
        {"right": 0.4, "right_if_valid": 0.42},  # the choice rose with it
        {"right": 0.24},  # a rise too small to speak of
        {"masked": 0.1, "even": 0.9},
        {"second_round": {"kept": 0.5, "repaired": 0.1, "broken": 0.1}},
    ],
)
def test_short_of_a_collapse_nothing_is_said(fields: Mapping[str, object]) -> None:
    assert collapse_warnings(steps(40, (21, fields))) == []


def test_few_steps_and_one_odd_step_raise_no_alarm() -> None:
    odd = {"worker_entropy": 0.0, "shapes": {"chain 2": 1.0}, "even": 1.0, "masked": 1.0}
    assert collapse_warnings([]) == collapse_warnings(steps(5, (2, odd))) == []
    assert collapse_warnings(steps(40, (40, odd))) == []


def test_a_rise_within_chance_is_no_rise() -> None:
    jumpy = [replace(step, right=0.05 if step.number % 2 else 0.55, valid=0.9) for step in steps(40)]
    lucky = [replace(step, right=step.right + 0.1) if step.number > 32 else step for step in jumpy]
    assert collapse_warnings(lucky) == []


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_line_is_printed_every_few_seconds() -> None:
    made, hands = console(), Hands()
    view = StepLines(made, clock=hands)
    for step in steps(9):
        view(step)
        hands.now += 1
    told = text_on(made).splitlines()
    assert [line.partition(" · ")[0] for line in told] == ["step 1 of 40", "step 6 of 40"]
    assert told[0] == (
        "step 1 of 40 · reward 0.600 · right 20.0 %, given a valid plan 22.0 %, valid 90.0 % · workers 1.50 bits · "
        "KL 0.020 · 1,250 tokens/s · $0.25 (simulated) · 31.2 s left"
    )


def test_judgements_and_the_last_step_are_always_printed_and_a_warning_once() -> None:
    made = console()
    judged = learned(40)[9].judged
    view = StepLines(made, clock=Hands())
    for step in steps(40, (2, {"even": 0.95}), (35, {"judged": judged})):
        view(step)
    told = text_on(made).splitlines()
    assert [line[:13] for line in told if line.startswith("step")][:3] == [
        "step 1 of 40 ",
        "step 35 of 40",
        "step 36 of 40",
    ]
    assert "validation 18.8 % of 200 tasks" in told[1]
    assert [line for line in told if line.startswith("warning")] == [
        f"warning: {collapse_warnings(steps(35, (2, {'even': 0.95})))[0]}"
    ]


def test_what_a_model_writes_moves_no_cursor_and_sets_no_color() -> None:
    made = console(terminal=True)
    StepLines(made, clock=Hands())(steps(1, (1, {"workers": {EVIL: 1.0}, "parts": {EVIL: 1.0}}), of=1)[0])
    assert not set("\x1b\u202e") & set(text_on(made))
