"""The terminal's table can be read at any width, and no name in it does anything but stand there."""

from dataclasses import replace
from io import StringIO

import pytest
from reports import hostile, report
from rich.cells import cell_len
from rich.console import Console

from shikisha.evals.entrant_metrics import EvaluationReport
from shikisha.evals.report_text import caveat_sentences, headline_sentences
from shikisha.evals.terminal_report import fit_columns, print_report, report_columns


def shown(made: EvaluationReport, width: int = 80, *, terminal: bool = False) -> str:
    file = StringIO()
    print_report(
        made, Console(file=file, width=width, force_terminal=terminal, color_system="standard" if terminal else None)
    )
    return file.getvalue()


def table(text: str) -> list[str]:
    """The lines of the table alone."""
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("entrant"))
    return lines[first : lines.index("", first)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 300])
@pytest.mark.parametrize("made", [report(), hostile()], ids=["good", "hostile"])
def test_no_line_is_wider_than_the_terminal_and_every_entrant_has_one(made: EvaluationReport, width: int) -> None:
    text = shown(made, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    head, *rows = table(text)
    assert "accuracy" in head
    assert sum("%" in row for row in rows) == len(made.entries)


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (60, ["accuracy", "difference", "95 % interval"]),
        (80, ["accuracy", "difference", "95 % interval", "$ a task"]),
        (100, ["accuracy", "95 % interval", "difference", "95 % interval", "valid", "$ a task"]),
    ],
)
def test_a_wider_terminal_shows_more(width: int, heads: list[str]) -> None:
    made = report()
    _, chosen = fit_columns(report_columns(made), made.entries, width)
    assert [column.head for column in chosen] == heads


def test_columns_are_only_added_as_the_terminal_gets_wider() -> None:
    made = report()
    before: set[str] = set()
    for width in range(30, 320, 5):
        name, chosen = fit_columns(report_columns(made), made.entries, width)
        now = {f"{column.head}{column.rank}" for column in chosen}
        assert before <= now
        assert 12 <= name <= 44
        before = now
    assert len(before) == len(report_columns(made))


def test_figures_stand_in_their_row() -> None:
    rows = [line.split() for line in table(shown(report(), 250))]
    (row,) = [row for row in rows if row[0] == "gemini-1.5-pro-002"]
    assert " ".join(row).startswith(
        "gemini-1.5-pro-002 70.3 % 69.3 to 71.3 −2.2 −3.3 to −1.1 100.0 % 70.3 % $21.00 $0.0025"
    )
    (best,) = [row for row in rows if row[0] == "gpt4o@hist"]
    assert " ".join(best).startswith("gpt4o@hist 72.5 % 71.5 to 73.5 – 100.0 %")


def test_caveats_come_first_and_the_headline_before_the_table() -> None:
    made = replace(report(), complete=False, why="its limit of dollars is reached")
    text = shown(made, 1000)
    places = [text.index(said) for said in (*caveat_sentences(made), *headline_sentences(made), "entrant ")]
    assert places == sorted(places)
    assert text.startswith("mmlu-pro[test]: 8,398 tasks\n! This evaluation is not complete: its limit of dollars")


def test_what_conductors_did_is_told_below() -> None:
    text = shown(report(), 1000)
    assert "cascade: agree 2, then gpt4o@hist: steps by Phi-3-mini-4k-instruct 52.5 %" in text
    assert "weighted vote: shapes fan-out+join 2,960, one-shot 2,820" in text
    assert "random plans: further rounds in 812 runs repaired 190 and broke 61" in text
    assert "random plans: ended without an answer, by fault: no_plan 40, timeout 12, truncated 3" in text
    assert "router similarity router from Meta-Llama-3_1-8B-Instruct to gpt4o@hist: APGR 0.625, CPT50 31.5 %" in text
    assert "AIQ of all that ran: 0.655" in text


def test_failures_of_single_workers_are_summed_up() -> None:
    made = report()
    failed = tuple(replace(entry, failures={"empty": 2}) for entry in made.entries)
    assert "single workers: ended without an answer, by fault: empty 26\n" in shown(replace(made, entries=failed), 1000)


def test_a_name_moves_no_cursor_and_is_no_markup() -> None:
    text = shown(hostile(), 200, terminal=True)
    assert not [part for part in ("\x1b[2J", "\x1b]0", "\x07", "\u202e") if part in text]
    assert "␛[2J␛]0;owned␇ <U+202E>gnp.exe" in text
    assert "[red]markup[/red]" in text


def test_wide_letters_do_not_shift_a_column() -> None:
    made = report()
    wide = replace(made, entries=tuple(replace(entry, name=f"指揮者{entry.name}") for entry in made.entries))
    head, *rows = table(shown(wide, 120))
    edge = cell_len(head[: head.index("accuracy") + len("accuracy")])
    for row in rows:
        if "%" in row:
            assert cell_len(row[: row.index("%") + 1]) == edge


def test_a_report_of_nothing_is_said_to_be_one() -> None:
    empty = EvaluationReport("nothing", "v", "", (), (), None, (), (), {}, {})
    assert shown(empty) == "nothing: 0 tasks\nNo sample was graded: there is nothing to report.\n"
