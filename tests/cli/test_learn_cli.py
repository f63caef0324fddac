"""`shikisha learn` as a person uses it: what it writes and says, what it warns of, and what it refuses beforehand."""

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import Made, missing, panel
from policies import lines, write
from test_house import modules_after
from test_importers_journal import Kept, keep
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.config.policy_builder import MAX_OUTCOMES
from shikisha.core.task import Task
from shikisha.journal import open_journal
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.policy_figures import ask_shares
from shikisha.routing.policy_file import load_policy
from shikisha.routing.trade_off import OperatingMix
from support import pool_of

Change = Callable[[OutcomeMatrix], OutcomeMatrix]
FEW = 60  # tasks: the rule alone is fitted, in no time


class Learning:
    """Runs `shikisha learn` on a log in a folder of its own."""

    def __init__(self, folder: Path, tasks: int = FEW) -> None:
        self.folder, self.log, self.out = folder, folder / "log", folder / "made" / "our.policy"
        write(panel(tasks=tasks), self.log)
        self.said = ""

    def __call__(self, *arguments: str, code: int = 0, log: str | None = None) -> str:
        """Learn; return stdout, keep stderr in `said`."""
        source = [str(self.log)] if log is None else [log] * bool(log)
        command = ["learn", *source, "--out", str(self.out), *arguments]
        result = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
        assert result.exit_code == code, (result.output, result.stderr)
        self.said = " ".join(result.stderr.split())
        return result.stdout

    def rows(self, file: str) -> list[dict[str, object]]:
        """The rows of one of the log's files."""
        return [json.loads(line) for line in (self.log / file).read_text().splitlines()]


@pytest.fixture
def learning(tmp_path: Path) -> Learning:
    return Learning(tmp_path)


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Learning, str]:
    """A log of enough tasks for every rung, learned from once, and what was printed."""
    learning = Learning(tmp_path_factory.mktemp("climbed"), 110)
    made = learning.out.parent
    return learning, learning("--page", str(made / "page.html"), "--json", str(made / "report.json"))


def test_every_rung_is_measured_and_one_is_kept(climbed: tuple[Learning, str]) -> None:
    learning, said = climbed
    policy, version = load_policy(learning.out)
    for rung in policy.rungs:
        (row,) = (line for line in said.splitlines() if line.split()[:1] == [rung.name])
        assert rung.evidence is not None
        assert row.split()[-1] == f"{100 * rung.evidence.area:.2f}"
        assert len(row) <= 80
    assert [rung.name for rung in policy.rungs] == ["table", "policy", "combined"]
    assert policy.about.verdict is not None
    assert said.splitlines()[0] == said.splitlines()[-1] == policy.about.verdict.text
    assert f"written: {learning.out} (version {version})" in learning.said
    assert (policy.about.log, policy.about.seed, policy.about.cost_kind) == (str(learning.log), 0, "recorded")


def test_yardsticks_stand_beside_the_rungs(climbed: tuple[Learning, str]) -> None:
    learning, said = climbed
    found = {one.name for one in load_policy(learning.out)[0].yardsticks}
    assert found == {"best single worker", "random mix"}
    assert "for comparison" in said
    assert "best single worker: " in said


def test_the_report_as_json_and_the_page_say_the_same(climbed: tuple[Learning, str]) -> None:
    learning, _ = climbed
    policy, version = load_policy(learning.out)
    report = json.loads((learning.out.parent / "report.json").read_text())
    assert (report["kept"], report["version"]) == (policy.kept, version)
    areas = {rung["name"]: rung["evidence"]["area"] for rung in report["rungs"]}
    page = (learning.out.parent / "page.html").read_text()
    assert version in page
    for name, area in areas.items():
        assert name in page
        assert f">{100 * area:.2f}<" in page


def test_the_commands_it_ends_with_work(climbed: tuple[Learning, str], tmp_path: Path) -> None:
    _, said = climbed
    commands = [shlex.split(line)[1:] for line in said.splitlines() if line.strip().startswith("shikisha ")]
    assert [command[0] for command in (commands[0], commands[1], commands[-1])] == ["run", "policy", "eval"]
    for command in commands:
        extra = ["--keep", str(tmp_path), "--tasks", "10"] if command[0] == "eval" else []
        if command[0] != "run":  # which needs endpoints
            result = CliRunner().invoke(app, [*command, *extra])
            assert result.exit_code == 0, (command, result.output, result.stderr)


def test_of_a_large_log_a_sample_is_learned_from_and_that_is_said(tmp_path: Path) -> None:
    learning = Learning(tmp_path)
    workers = len({row["worker"] for row in learning.rows("outcomes.jsonl")})
    learning("--max-outcomes", "120")
    tasks = 120 // workers
    policy = load_policy(learning.out)[0]
    assert policy.about.tasks == tasks
    assert f"learned from {tasks} of {FEW} tasks" in " ".join(policy.about.notes)
    assert f"{MAX_OUTCOMES:,}" in CliRunner().invoke(app, ["learn", "--help"], env={"COLUMNS": "120"}).stdout


def test_a_log_too_small_to_learn_from_gives_the_rule_and_a_warning(learning: Learning) -> None:
    said = learning()
    assert f"warning: {FEW} tasks are too few to learn more than the table" in learning.said
    assert load_policy(learning.out)[0].kept == "table"
    assert said.startswith("not enough evidence: some 120 more graded answers would tell\n")


def no_costs(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, dollars=np.full(held.dollars.shape, np.nan))


def free(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, dollars=np.zeros(held.dollars.shape))


def half_priced(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, dollars=np.where(np.arange(len(held))[:, None] < FEW / 2, np.nan, held.dollars))


def all_right(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, scores=np.ones(held.scores.shape))


def all_wrong(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, scores=np.zeros(held.scores.shape))


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (no_costs, "the log has no costs, so budgets do not apply"),
        (free, "every cost is 0, so budgets do not apply"),
        (half_priced, "90 of 180 outcomes have no cost: computed from tokens at the rates of the same worker's"),
        (all_right, "every outcome has the score 1: workers differ in cost only"),
        (all_wrong, "every outcome has the score 0: workers differ in cost only"),
    ],
)
def test_what_a_log_lacks_is_said_and_something_is_learned(change: Change, warning: str, learning: Learning) -> None:
    write(change(panel(tasks=FEW)), learning.log)
    learning()
    assert f"warning: {warning}" in learning.said
    policy, _ = load_policy(learning.out)
    assert [note for note in policy.about.notes if note.startswith(warning)]


def test_open_answers_are_said_to_count_only_by_checks_judges_and_feedback(learning: Learning) -> None:
    write(panel(tasks=FEW), learning.log, kind=None)
    learning()
    assert f"the answers to {FEW} tasks (100.0 %) have no canonical form" in learning.said
    assert "only checks, judges and feedback count" in learning.said


def test_nothing_is_learned_where_nothing_was_graded(learning: Learning) -> None:
    held = panel(tasks=FEW)
    write(replace(held, scores=np.full(held.scores.shape, np.nan)), learning.log)
    learning(code=ExitCode.CONFIG)
    assert "none of the 180 outcomes has a score: there is nothing to learn from" in learning.said
    assert not learning.out.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"score": 2}, "outcomes.jsonl: line 1: score: expected a number from 0 to 1, found 2"),
        ({"score": float("nan")}, "outcomes.jsonl: line 1: score"),
        ({"cost_usd": -1}, "outcomes.jsonl: line 1: cost_usd: expected a number from 0"),
        ({"worker": None}, "outcomes.jsonl: line 1: worker: expected text, found null"),
        ({"task_id": "nowhere"}, "outcomes.jsonl: line 1: task_id: 'nowhere' is not among the tasks"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_column(change: Mapping[str, object], why: str, learning: Learning) -> None:
    first, *rest = learning.rows("outcomes.jsonl")
    lines(learning.log / "outcomes.jsonl", [{**first, **change}, *rest])
    learning(code=ExitCode.CONFIG)
    assert why in learning.said
    assert not learning.out.exists()


def test_a_row_that_contradicts_another_is_named_with_it(learning: Learning) -> None:
    rows = learning.rows("outcomes.jsonl")
    lines(learning.log / "outcomes.jsonl", [*rows, {**rows[0], "score": 1 - float(str(rows[0]["score"]))}])
    learning(code=ExitCode.CONFIG)
    assert f"line {len(rows) + 1}: score: 'task-0' by 'cheap' is recorded twice" in learning.said


def test_a_missing_column_is_named(learning: Learning) -> None:
    lines(learning.log / "outcomes.jsonl", [{"task_id": "task-0", "worker": "cheap"}])
    learning(code=ExitCode.CONFIG)
    assert "outcomes.jsonl: line 1: score: this column is missing" in learning.said


def test_a_column_that_nobody_knows_is_named(learning: Learning) -> None:
    lines(learning.log / "outcomes.jsonl", [{**row, "colour": "red"} for row in learning.rows("outcomes.jsonl")])
    learning()
    assert "warning: an unused column in outcomes: colour" in learning.said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--workers", "cheap,nobody"), "unknown worker in"),
        (("--rung", "ladder"), "unknown rung 'ladder': known are table"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(arguments: Sequence[str], why: str, learning: Learning) -> None:
    learning(*arguments, code=ExitCode.CONFIG)
    assert why in learning.said
    assert not learning.out.exists()


def test_what_could_not_be_written_is_refused_before_anything_is_read(learning: Learning) -> None:
    learning.out.parent.write_text("a file where a folder should be")
    learning(code=ExitCode.CONFIG, log="/no/such/log")
    assert f"{learning.out}: cannot be written" in learning.said


def test_two_reports_in_one_file_are_refused(learning: Learning) -> None:
    learning("--page", str(learning.out), code=ExitCode.CONFIG)
    assert "expected different files" in learning.said


def test_an_old_policy_stays_where_nothing_new_could_be_learned(learning: Learning) -> None:
    learning.out.parent.mkdir()
    learning.out.write_text("old")
    learning("--workers", "nobody", code=ExitCode.CONFIG)
    assert learning.out.read_text() == "old"


def test_with_json_on_stdout_there_is_nothing_else(learning: Learning) -> None:
    report = json.loads(learning("--json", "-"))
    assert report["kept"] == "table"
    assert report["about"]["tasks"] == FEW


def test_some_workers_alone_can_be_learned_about(learning: Learning) -> None:
    learning("--workers", "dear, cheap")
    assert load_policy(learning.out)[0].names == ("dear", "cheap")


def test_a_rung_is_kept_because_it_is_asked_for(tmp_path: Path) -> None:
    learning = Learning(tmp_path, 120)
    said = " ".join(learning("--rung", "policy").split())
    assert load_policy(learning.out)[0].kept == "policy"
    assert "The policy is selected by request" in said or "The policy is selected:" in said


SLOW = {"slow": Made(0.9, 0.01, seconds=10.0), "quick": Made(0.85, 0.01, seconds=1.0)}


def asked_most(learning: Learning) -> str:
    """Whom the most accurate setting of the table asks in most tasks."""
    policy, _ = load_policy(learning.out)
    shares = ask_shares(
        policy, OperatingMix(policy.rung("table").dial.points[-1], policy.rung("table").dial.points[-1], 0.0)
    )
    assert shares is not None
    return max(shares, key=lambda name: shares[name])


@pytest.mark.parametrize(
    ("arguments", "worker", "dollars"),
    [((), "slow", 0.01), (("--second", "0.5"), "slow", 5.0)],
)
def test_waiting_can_be_given_a_price(
    arguments: Sequence[str], worker: str, dollars: float, learning: Learning
) -> None:
    write(panel(SLOW, FEW), learning.log)
    learning(*arguments)
    assert asked_most(learning) == worker
    (slow,) = (one for one in load_policy(learning.out)[0].workers if one.name == "slow")
    assert slow.dollars == pytest.approx(dollars, rel=0.1)


def test_waiting_has_no_price_where_nobody_timed_anything(learning: Learning) -> None:
    learning("--second", "0.1", code=ExitCode.CONFIG)
    assert "--second: the log has no latencies" in learning.said


def test_what_few_were_asked_for_is_no_full_log(learning: Learning) -> None:
    held = panel(tasks=FEW)
    write(missing(held, np.random.default_rng(0).random(held.codes.shape) < 0.6), learning.log)
    learning()
    assert "outcomes have no propensity" in learning.said
    assert load_policy(learning.out)[0].kept == "table"


def test_a_full_log_s_gaps_are_said(learning: Learning) -> None:
    held = panel(tasks=FEW)
    cells = np.zeros(held.codes.shape, bool)
    cells[0, 0] = True
    ungraded = replace(held, scores=np.where(np.roll(cells, 1, axis=1), np.nan, held.scores))
    write(missing(ungraded, cells), learning.log)
    learning()
    assert "warning: 0.6 % of all pairs of task and worker are not in the log" in learning.said
    assert "warning: 1 answer of 179 (0.6 %) without a grade count for nothing" in learning.said


async def perform(file: Path, tasks: int) -> None:
    """Keep a graded run of one step by each of two workers for every task."""
    async with open_journal(str(file)) as journal:
        for number in range(tasks):
            for place, name in enumerate(("ann", "bob")):
                answer = "42" if place or number % 3 else "41"
                task = Task(f"Sum {number}?", id=f"sums/{number}", domain="sums")
                await keep(journal, Kept(pool_of(**{name: answer}), task=task))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of 120 graded runs."""
    asyncio.run(perform(tmp_path / "runs.db", FEW))
    return tmp_path / "runs.db"


def test_a_journal_is_learned_from(learning: Learning, journal: Path) -> None:
    learning("--from-journal", log=str(journal))
    policy, _ = load_policy(learning.out)
    assert (policy.names, policy.about.tasks, policy.about.log) == (("ann", "bob"), FEW, str(journal))
    assert [worker.score for worker in policy.workers] == pytest.approx([2 / 3, 1.0])


def test_without_a_name_the_journal_configured_is_learned_from(learning: Learning, journal: Path) -> None:
    config = learning.folder / "shikisha.toml"
    config.write_text(f"[journal]\nfile = {str(journal)!r}\n")
    learning("--from-journal", "--config", str(config), log="")
    assert load_policy(learning.out)[0].about.tasks == FEW


def test_a_journal_that_is_not_there_is_not_made(learning: Learning) -> None:
    absent = learning.folder / "absent.db"
    learning("--from-journal", code=ExitCode.CONFIG, log=str(absent))
    assert f"{absent}: there is no such journal" in learning.said
    assert not absent.exists()


@pytest.mark.parametrize("command", [("--help",), ("run", "--help"), ("workers", "--help")])
def test_help_imports_no_numbers(command: Sequence[str]) -> None:
    heavy = {"numpy", "scipy", "sklearn", "jinja2", "pyarrow", "pandas"}
    assert modules_after("-m", "shikisha", *command) & heavy == set()


def test_progress_is_quiet_where_there_is_no_terminal(learning: Learning) -> None:
    learning()
    assert re.findall(r"fold \d|fitting|\x1b", learning.said) == []
