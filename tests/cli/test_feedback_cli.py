"""`shikisha runs feedback`: a person's word on a run that has ended: journal, explanation and outcome log."""

import json
from pathlib import Path

import pytest
from test_cli import Cli

from shikisha.cli.exit_codes import ExitCode


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def outcomes(cli: Cli) -> list[object]:
    """The scores in a log of the journal."""
    folder = cli.folder / "log"
    cli("import", "outcomes", "journal", str(next(cli.folder.rglob("*.db"))), "-o", str(folder), "--jsonl", "--force")
    return [json.loads(line)["score"] for line in (folder / "outcomes.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("said", "mark", "score"),
    [(["--right"], "right", 1.0), (["--wrong"], "wrong", 0.0), (["--score", "0.25"], "partial", 0.25)],
)
def test_a_word_is_a_grade_with_a_name_to_it(cli: Cli, said: list[str], mark: str, score: float) -> None:
    run = cli.json("run", "What is it?")["run"]
    told = cli.json("runs", "feedback", "last", *said, "--note", "I looked it up")
    assert (told["run"], told["mark"], told["score"]) == (run, mark, score)
    assert f"graded {mark} by {told['actor']}, a person: I looked it up" in cli("explain", "last")
    assert outcomes(cli) == [score]


def test_the_last_word_counts_and_the_journal_stays_whole(cli: Cli) -> None:
    cli("run", "What is it?")
    cli("runs", "feedback", "last", "--wrong")
    cli("runs", "feedback", "last", "--right")
    assert "is right, says " in cli.said
    assert outcomes(cli) == [1.0]
    assert "intact" in cli("journal", "verify")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "expected --right, --wrong, --score X, --accepted, --rejected or --edited FILE, one of them"),
        (["--right", "--score", "1"], "one of them"),
        (["--right", "--note", "x" * 10_001], "more than 10,000 characters"),
        (["--right", "--note", "\udcff"], "--note holds half of a surrogate pair"),
    ],
)
def test_what_is_no_word_is_refused(cli: Cli, said: list[str], why: str) -> None:
    cli("run", "What is it?")
    cli("runs", "feedback", "last", *said, code=ExitCode.INPUT)
    assert why in cli.said
    assert outcomes(cli) == [None]


@pytest.mark.parametrize(("worker", "why"), [("asks", "has not ended"), ("b", "without an answer")])
def test_there_is_nothing_to_say_of_a_run_without_an_answer(cli: Cli, worker: str, why: str) -> None:
    told = cli.json(
        "run", "What is it?", "-C", f"fixed:single?worker={worker}", code=ExitCode.WAITING if worker == "asks" else 1
    )
    cli("runs", "feedback", str(told["run"]), "--right", code=ExitCode.INPUT)
    assert why in cli.said
