"""A training is read back, warned of and shown while it goes on: on any terminal, in lines, and on a board."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from made_steps import SAMPLE, STEP, learned, steps, text_of
from rich.console import Console

from shikisha.core.errors import ConfigError
from shikisha.training import metrics
from shikisha.training.console import LiveScreen, StepLines, open_view, sparkline
from shikisha.training.metrics import CompletionSample, StepMetrics, collapse_warnings
from shikisha.training.metrics_log import TensorBoardLog, read_steps, step_scalars

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


def drawn(found: list[StepMetrics], width: int = 80, height: int = 24, clock: Hands | None = None) -> list[str]:
    """The lines that are on the terminal."""
    made = console(width, height, terminal=True)
    with made.capture() as held:
        made.print(LiveScreen(made, found, clock or Hands()).draw())
    return held.get().splitlines()


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


# --- the terminal -----------------------------------------------------------------------------------------------------

COLLAPSED = steps(40, (21, {"worker_entropy": 0.1, "shapes": {"one-shot 1": 1.0}, "second_round": {"kept": 1.0}}))
MANY = steps(40, (1, {"workers": {f"worker {n}": 1 / 30 for n in range(30)}, "samples": (SAMPLE,) * 4}))
LONG = steps(40, (1, {"samples": (CompletionSample("task " * 90, "word " * 900, None, "chain 2", False),)}))


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (200, 100), (40, 24)])
@pytest.mark.parametrize("found", [steps(1), learned(), COLLAPSED, MANY, LONG], ids=range(5))
def test_the_screen_is_always_as_high_and_never_wider_than_the_terminal(
    found: list[StepMetrics], size: tuple[int, int]
) -> None:
    lines = drawn(found, *size)
    assert len(lines) == min(size[1] - 1, 44)
    assert max(map(len, lines)) < size[0]


def test_before_the_first_step_there_is_one_line() -> None:
    assert drawn([]) == ["waiting for the first step, for 0 ms"]


def test_80_columns_and_24_lines_hold_everything_that_matters() -> None:
    found = learned(40)
    screen = "\n".join(drawn([replace(step, of=80) for step in found]))
    for part in (
        "step 40 of 80",
        "32.0 s left",
        "right                73.9 %",
        "given a valid plan   75.9 %",
        "valid plans          95.0 %",
        "several steps        70.0 %",
        "format 0.610, cost -0.010",
        "validation           75.0 %  after step 40; optimum 90.0 %, rules 85.0 %",
        "workers, 1.50 bits (1.50 at first)",
        "simulated-generalist  25.0 %",
        "chain 2               50.0 %",
        "second rounds: kept 50.0 %, repaired 10.0 %, broken 2.0 %",
        "KL 0.400 · entropy 0.300 · gradient 0.50",
        "1,250 tokens/s · $10.00 (simulated) · sample and perform 500 ms, learn 300 ms",
        "✓ 0.980 Who keeps the keys of Haro?",
    ):
        assert part in screen


def test_warnings_are_on_the_screen_whole() -> None:
    screen = " ".join(line.strip(" !") for line in drawn(COLLAPSED))
    for told in collapse_warnings(COLLAPSED):
        assert told in screen


def test_a_large_terminal_shows_whole_completions() -> None:
    lines = [line.strip() for line in drawn(learned(), 140, 40)]
    first = lines.index("✓ 0.980 Who keeps the keys of Haro?")
    assert lines[first + 1 : first + 5] == SAMPLE.text.split("\n")


def test_a_step_that_takes_long_is_told_of() -> None:
    hands, made = Hands(), console(terminal=True)
    view = LiveScreen(made, [], hands)
    view(STEP)
    hands.now += 100
    with made.capture() as held:
        made.print(view.draw())
    assert "1 min 40 s since the last step" in held.get()


def test_what_a_model_writes_moves_no_cursor_and_sets_no_colour() -> None:
    sample = CompletionSample(EVIL, EVIL, None, "chain 2", False)
    evil = replace(STEP, samples=(sample,), workers={EVIL: 1.0}, parts={EVIL: 1.0}, seconds={EVIL: 1.0})
    screen = "\n".join(drawn([evil], 140, 40))
    assert "\x1b[2J" not in screen
    assert "\u202e" not in screen
    assert "␛[2J[red]evil[/red]" in screen


def test_the_terminal_is_drawn_in_place_and_keeps_the_last_screen() -> None:
    made = console(terminal=True)
    with open_view(made) as view:
        assert isinstance(view, LiveScreen)
        for step in learned():
            view(step)
    assert text_on(made).rstrip().count("step 40 of 40") > 0
    frames = text_on(made).split("\x1b[2K\x1b[1A" * 22)  # line after line is rewritten, the screen is never wiped
    assert len(frames) > 40
    assert "\x1b[2J" not in text_on(made)


@pytest.mark.parametrize(
    ("count", "row"), [(0, "    "), (2, "▁█  "), (4, "▁▁██"), (8, "▁▁██")], ids=["none", "few", "as many", "more"]
)
def test_a_row_of_blocks_is_always_as_long(count: int, row: str) -> None:
    assert sparkline([float(place >= count / 2) for place in range(count)], 4) == row


# --- lines ------------------------------------------------------------------------------------------------------------


def test_where_there_is_no_terminal_a_line_is_printed_every_few_seconds() -> None:
    made, hands = console(), Hands()
    with StepLines(made, clock=hands) as view:
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
    assert isinstance(open_view(console()), StepLines)


def test_a_training_that_goes_on_looks_like_an_unbroken_one() -> None:
    found, made = learned(), console(terminal=True)
    unbroken, resumed = (LiveScreen(made, earlier, Hands()) for earlier in ([], found[:23]))
    for step in found:
        unbroken(step)
    for step in found[20:]:
        resumed(step)
    with made.capture() as one:
        made.print(unbroken.draw())
    with made.capture() as other:
        made.print(resumed.draw())
    assert one.get() == other.get()


# --- the board --------------------------------------------------------------------------------------------------------


def test_every_figure_has_a_name_on_the_board() -> None:
    told = step_scalars(learned()[-1])
    assert told["reward/total"] == 0.6
    assert told["answers/right_if_valid"] == pytest.approx(0.82)
    assert told["workers/simulated-generalist"] == 0.25
    assert told["cost/simulated dollars"] == 0.25
    assert told["second rounds/broken"] == 0.02
    assert told["judged/optimum"] == 0.9
    assert "cost/dollars" in step_scalars(replace(STEP, workers={"gpt": 1.0}))


def test_the_board_s_files_hold_what_was_told(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with TensorBoardLog(tmp_path / "board") as board:
        for step in learned():
            board(step)
    with TensorBoardLog(tmp_path / "board") as board:  # resumed from step 30
        for step in steps(35)[30:]:
            board(step)
    found = reading.EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    assert [(event.step, round(event.value, 3)) for event in found.Scalars("answers/right")][28:] == [
        (29, 0.608),
        (30, 0.625),
        *((number, 0.2) for number in range(31, 36)),
    ]
    assert "samples/text_summary" in found.Tags()["tensors"]


def test_a_board_without_tensorboard_is_refused_by_name(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['tensorboard'] = None\n"  # what Python does for a library that is not there
        "from pathlib import Path\nfrom shikisha.training.metrics_log import TensorBoardLog\n"
        "from shikisha.core.errors import ConfigError\n"
        "try: TensorBoardLog(Path('x'))\nexcept ConfigError as error: print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)  # noqa: S603 - ours
    assert told.stdout == "TensorBoard is not installed: pip install tensorboard\n"
    assert list(tmp_path.iterdir()) == []
