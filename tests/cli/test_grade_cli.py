"""`shikisha eval grade`: what gets a score and from whom, what is said before a judge is paid, and what is refused."""

import json
from contextlib import aclosing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.config.container import load_config
from shikisha.config.log_grading import GradingRequest, perform_grading, plan_grading
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

CONFIG = """
[workers.fair]
kind = "scripted"
answers = '''It is so.
VERDICT: right'''
price = { input = 1.0, output = 1.0 }

[workers.cheap]
kind = "scripted"
answers = "VERDICT: right"
price = { input = 1.0, output = 1.0 }
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two tasks, two workers; one outcome has a score, two answers are the same."""
    folder = tmp_path / "log"
    folder.mkdir()
    tasks = [
        {"task_id": "t1", "domain": "sums", "prompt": "What is 6 times 7?", "answer": "42", "answer_kind": None},
        {"task_id": "t2", "domain": "sums", "prompt": "What is 6 plus 7?", "answer": "13", "answer_kind": None},
    ]
    said: list[tuple[str, str, str, float | None]] = [
        ("t1", "cheap", "It is 42.", None),
        ("t1", "dear", "It is 42.", None),
        ("t2", "cheap", "About 12, so 12.", None),
        ("t2", "dear", "13", 1.0),
    ]
    outcomes = [
        {"task_id": task, "worker": name, "answer": None, "score": score, "cost_usd": 0.01}
        for task, name, _, score in said
    ]
    responses = [{"task_id": task, "worker": name, "response": text} for task, name, text, _ in said]
    for stem, rows in (("tasks", tasks), ("outcomes", outcomes), ("responses", responses)):
        (folder / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "shikisha.toml").write_text(CONFIG)
    return folder


def grade(log: Path, *arguments: str, code: int = 0) -> str:
    """What `shikisha eval grade` says."""
    config = ["--config", str(log.parent / "shikisha.toml")]
    command = ["eval", "grade", str(log), "--out", str(log.parent / "graded"), *config, *arguments]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.stderr)
    return " ".join((result.stdout + result.stderr).split())


def scores(log: Path) -> dict[tuple[str, str], tuple[float | None, str | None]]:
    graded = OutcomeLog.read(log.parent / "graded")
    every = (one for worker in graded.workers for one in graded.outcomes_of(worker))
    return {(one.task_id, one.worker): (one.score, one.answer) for one in every}


def test_a_grader_compares_with_the_right_answers_and_reads_the_responses(log: Path) -> None:
    said = grade(log, "--grader", "number")
    assert "3 outcomes without a score: 2 different answers, graded by number; no model is called" in said
    assert "4 of 4 outcomes have a score" in said
    assert scores(log) == {
        ("t1", "cheap"): (1.0, "42"),
        ("t1", "dear"): (1.0, "42"),
        ("t2", "cheap"): (0.0, "12"),
        ("t2", "dear"): (1.0, None),
    }
    assert OutcomeLog.read(log.parent / "graded").gold("t1").kind == "number"


def test_a_form_is_checked_without_right_answers(log: Path) -> None:
    grade(log, "--grader", "regex", "--setting", "pattern=It is [0-9]+")
    assert [score for score, _ in scores(log).values()].count(1.0) == 3


def test_a_judge_is_paid_only_within_what_was_allowed_and_its_scores_say_so(log: Path) -> None:
    said = grade(log, "--judge", "fair", code=3)
    assert "2 different answers, judged by fair (agreement not measured) at about $" in said
    assert "say how much it may spend (--dollars 0.001" in said
    assert "more than --dollars 1e-06; nothing was called" in grade(log, "--judge", "fair", "--dollars", "1e-6", code=3)
    assert "judged by fair (agreement not measured) at about" in grade(log, "--judge", "fair", "--price")
    assert not (log.parent / "graded").exists()
    said = grade(log, "--judge", "fair", "--dollars", "1")
    assert "note: scores that a language model gave: 3" in said
    assert {score for score, _ in scores(log).values()} == {1.0}
    assert OutcomeLog.read(log.parent / "graded").judged_share == pytest.approx(0.75)


def graded_log(log: Path, right: float) -> None:
    """Make it a log of 130 graded answers, of which some are right, and 10 without a score."""
    tasks: list[dict[str, object]] = []
    outcomes: list[dict[str, object]] = []
    for place in range(140):
        score = None if place >= 130 else float(place < right)
        tasks.append(
            {"task_id": f"t{place}", "domain": "sums", "prompt": f"{place}?", "answer": "1", "answer_kind": None}
        )
        said = "plainly so" if place < right or place >= 130 else "plainly not"
        outcomes.append({"task_id": f"t{place}", "worker": "dear", "answer": said, "score": score, "cost_usd": 0.0})
    (log / "responses.jsonl").unlink()
    for stem, rows in (("tasks", tasks), ("outcomes", outcomes)):
        (log / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


async def test_the_agreement_of_a_judge_is_measured_before_its_scores_count_and_travels_with_them(log: Path) -> None:
    graded_log(log, 70)

    def read(asked: ReceivedChatRequest) -> ScriptedAnswer:
        verdict = "right" if "| plainly so" in asked.last else "wrong"
        return ScriptedAnswer(text=f'{{"reason": "It says so.", "verdict": "{verdict}"}}')

    async with chat_server(read) as url:
        free = "price = { input = 0.0, output = 0.0 }"
        table = f'[workers.reader]\nkind = "chat"\nmodel = "m"\nbase_url = "{url}"\n{free}\n'
        (log.parent / "shikisha.toml").write_text(table)
        async with aclosing(load_config(log.parent / "shikisha.toml")) as container:
            plan = plan_grading(container, GradingRequest(log, judge="reader"))
            assert "10 different answers, judged by reader (measured by 120 answers with a score)" in plan.describe()
            written = await perform_grading(plan, log.parent / "graded", lambda _: None)
    agreement = "reader (agreement with other grades: 120 of 120)"
    assert f"the judge {agreement}" in written.remarks
    graded = OutcomeLog.read(log.parent / "graded")
    assert (written.graded, graded.judge) == (140, agreement)
    assert graded.judged_share == pytest.approx(10 / 140)


def test_a_judge_that_always_says_the_same_gives_no_score_however_often_that_is_right(log: Path) -> None:
    graded_log(log, 117)
    said = grade(log, "--judge", "fair", "--dollars", "5")
    assert "no score was taken from the judge: it agrees with other grades no better than by chance" in said
    assert "130 of 140 outcomes have a score" in said


def test_a_judge_of_its_own_answers_is_refused_unless_told_to(log: Path) -> None:
    said = grade(log, "--judge", "cheap", "--dollars", "1", code=3)
    assert "cheap is one of the workers that are judged (cheap, dear)" in said
    assert "4 of 4" in grade(log, "--judge", "cheap", "--dollars", "1", "--judge-itself")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "expected --grader KIND, or --judge WORKER"),
        (("--grader", "nose"), "--grader: expected one of choice, code"),
        (("--grader", "regex"), "pattern"),
        (("--grader", "regex", "--setting", "pattern"), "--setting: expected NAME=VALUE"),
        (("--judge", "nobody", "--dollars", "1"), "nobody"),
        (("--grader", "number", "--judge", "fair"), "expected one of them"),
    ],
)
def test_what_cannot_be_graded_says_why(arguments: tuple[str, ...], says: str, log: Path) -> None:
    assert says in grade(log, *arguments, code=3)
    assert not (log.parent / "graded").exists()


def test_without_right_answers_it_says_what_to_do(log: Path) -> None:
    rows = [json.loads(line) | {"answer": None} for line in (log / "tasks.jsonl").read_text().splitlines()]
    (log / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "the log has no right answer" in grade(log, "--grader", "number", code=3)
