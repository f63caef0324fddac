"""An evaluation is told of while it goes on: in place on a terminal, in lines elsewhere, and nothing is lost."""

from collections.abc import Callable
from io import StringIO

import pytest
from made_samples import sample
from rich.console import Console

from shikisha.core.errors import FaultKind
from shikisha.core.events import RunStatus
from shikisha.evals.terminal_report import (
    EvaluationProgress,
    ProgressCounts,
    ProgressLines,
    ProgressTable,
    console_progress,
)


class Hands:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def console(width: int = 100, height: int = 30, *, terminal: bool = False) -> Console:
    return Console(file=StringIO(), width=width, height=height, force_terminal=terminal, color_system=None)


def text_of(made: Console) -> str:
    assert isinstance(made.file, StringIO)
    return made.file.getvalue()


def drawn(live: ProgressTable, made: Console) -> list[str]:
    """The lines that are on the terminal now."""
    with made.capture() as held:
        made.print(live.draw())
    return held.get().splitlines()


def test_standings_add_up() -> None:
    tally = ProgressCounts(Hands())
    tally.begin("a", 4)
    tally.begin("b", 2)
    for task, score in enumerate((1.0, 0.5, None)):
        tally.add(sample("a", f"t{task}", score, dollars=0.25, paid=0.25), cached=False)
    tally.add(sample("b", "t0", 0.0, dollars=None, status=RunStatus.FAILED, faults=(FaultKind.TIMEOUT,)), cached=True)
    a, b = tally.standings["a"], tally.standings["b"]
    assert (a.done, a.scored, a.accuracy, a.dollars, a.failed) == (3, 2, 0.75, 0.75, 0)
    assert (b.done, b.accuracy, b.dollars, b.failed) == (1, 0.0, 0.0, 1)
    assert (tally.done, tally.total, tally.paid, tally.cached, tally.faults) == (4, 6, 0.75, 1, {"timeout": 1})


def test_samples_of_somebody_who_was_not_announced_count_for_the_last_who_was() -> None:
    tally = ProgressCounts(Hands())
    tally.begin("a", 1)
    tally.begin("topologies to choose from", 2)
    tally.add(sample("chain of b", "t0"), cached=False)
    tally.begin("a", 3)
    assert tally.standings["topologies to choose from"].done == 1
    assert tally.standings["a"].total == 4


def test_nobody_announced_is_no_crash() -> None:
    tally = ProgressCounts(Hands())
    tally.add(sample("a", "t0"), cached=False)
    assert tally.summary().startswith("1 of 1")


def test_more_samples_than_were_announced_are_never_more_than_all() -> None:
    tally = ProgressCounts(Hands())
    tally.begin("a", 24)
    for index in range(96):
        tally.add(sample("tried", f"t{index}"), cached=False)
    assert (tally.standings["a"].done, tally.standings["a"].total) == (96, 96)
    assert tally.summary().startswith("96 of 96")


def test_rate_and_time_left_are_those_of_the_last_half_minute() -> None:
    hands = Hands()
    tally = ProgressCounts(hands)
    tally.begin("a", 1000)
    for second in range(100):
        hands.now += 1
        for index in range(1 if second < 50 else 5):
            tally.add(sample("a", f"t{second}.{index}"), cached=False)
        rate = tally.rate()
    assert rate == pytest.approx(5.0)
    assert "300 of 1,000 · 5.0 a second · 2 min 20 s left · 1 min 40 s so far" in tally.summary()


def test_slow_workers_are_told_of_by_the_minute() -> None:
    hands = Hands()
    tally = ProgressCounts(hands)
    tally.begin("a", 10)
    hands.now += 20
    tally.add(sample("a", "t0"), cached=False)
    assert tally.summary().startswith("1 of 10 · 3.0 a minute · 3 min 00 s left")


def test_the_summary_names_faults_the_most_frequent_first() -> None:
    tally = ProgressCounts(Hands())
    tally.begin("a", 9)
    kinds = (FaultKind.SERVER, FaultKind.TIMEOUT, FaultKind.TIMEOUT)
    for task, kind in enumerate(kinds):
        tally.add(sample("a", f"t{task}", 0.0, status=RunStatus.FAILED, faults=(kind,)), cached=False)
    tally.add(sample("a", "t9", 0.0, status=RunStatus.CAPPED), cached=False)
    assert tally.summary().endswith("4 failures (timeout 2, server 1, capped 1)")


def test_where_there_is_no_terminal_a_line_is_printed_every_few_seconds_and_all_at_the_end() -> None:
    hands, made = Hands(), console()
    with ProgressLines(made, hands) as lines:
        lines.begin("a", 80)
        for task in range(80):
            hands.now += 0.125
            lines.add_sample(sample("a", f"t{task}", float(task % 2), dollars=0.01, paid=0.01))
    printed = text_of(made).splitlines()
    assert [line.partition(" ·")[0] for line in printed] == [
        "40 of 80",
        "80 of 80",
        "a: 80 of 80, 50.0 %, $0.80",
        "80 of 80",
    ]


def test_a_terminal_shows_everybody() -> None:
    made = console(terminal=True)
    live = ProgressTable(made)
    live.begin("cascade", 10)
    live.begin("random plans", 10)
    live.add_sample(sample("cascade", "t0", 1.0, dollars=0.5, paid=0.5))
    first, second, last = drawn(live, made)
    assert first.split() == ["cascade", "━━" + "╌" * 18, "1/10", "100.0", "%", "$0.50"]
    assert second.split()[2:] == ["╌" * 20, "0/10", "–", "$0"]
    assert last.startswith("1 of 20")


def test_a_terminal_keeps_one_line() -> None:
    made = console(terminal=True)
    with ProgressTable(made) as live:
        live.begin("cascade", 10)
        live.add_sample(sample("cascade", "t0"), cached=True)
    kept = text_of(made).splitlines()[-1]
    assert "1 of 10" in kept
    assert kept.endswith("$0 paid now · 1 from the cache")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_rows_never_wrap_and_there_are_no_more_than_the_terminal_is_high(width: int) -> None:
    made = console(width, 20)
    live = ProgressTable(made)
    for number in range(40):
        live.begin(f"entrant {number} with a name that is longer than anybody can read", 10)
        if number < 30:
            for task in range(10 if number < 25 else 5):
                live.add_sample(
                    sample(f"entrant {number} with a name that is longer than anybody can read", f"t{task}")
                )
    lines = drawn(live, made)
    assert len(lines) <= 20
    assert all(len(line) <= width for line in lines)
    assert any(line.startswith("… and 25 entrants more") for line in lines)
    assert [line.split()[1] for line in lines[:5]] == ["25", "26", "27", "28", "29"]  # who is at work comes first


HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]x[/red] \u202e"


@pytest.mark.parametrize("make", [ProgressTable, ProgressLines])
def test_a_name_moves_no_cursor_and_is_no_markup(make: Callable[[Console], EvaluationProgress]) -> None:
    made = console(terminal=True)
    with make(made) as live:
        live.begin(HOSTILE, 1)
        live.add_sample(sample(HOSTILE, "t0"))
    assert not [part for part in ("\x1b[2J", "\x1b]0", "\x07", "\u202e") if part in text_of(made)]


def test_a_name_is_shown_with_visible_signs() -> None:
    made = console(200)
    live = ProgressTable(made)
    live.begin(HOSTILE, 1)
    assert drawn(live, made)[0].startswith("␛[2J␛]0;owned␇ [red]x[/red] <U+202E>")


@pytest.mark.parametrize(("terminal", "kind"), [(True, ProgressTable), (False, ProgressLines)])
def test_the_console_decides(terminal: bool, kind: type[EvaluationProgress], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(console_progress(console(terminal=terminal)), kind)


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(console_progress(console(terminal=True)), ProgressLines)


def test_hearing_draws_nothing() -> None:
    made = console(terminal=True)
    live = ProgressTable(made)
    live.begin("a", 10_000)
    for task in range(1000):
        live.add_sample(sample("a", f"t{task}"))
    assert text_of(made) == ""
    assert live.counts.done == 1000
