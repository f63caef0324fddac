"""`shikisha eval` as a person uses it: reports, going on where it stopped, limits, and what it refuses."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.core.errors import ConfigError
from shikisha.evals.samples import lock_folder
from shikisha.sandbox.availability import full_python_sandbox

CONFIG = """
[workers.wise]
kind = "scripted"
answers = "It is 4."
price = { call = 0.25 }
[workers.rash]
kind = "scripted"
answers = "It must be 5."
price = { call = 0.01 }
[workers.broken]
kind = "scripted"
faults = ["server", "server"]
attempts = 1
answers = "4"
[workers.judge]
kind = "scripted"
answers = "VERDICT: right"
[workers.keyed]
kind = "chat"
base_url = "http://127.0.0.1:9/v1"
model = "m"
api_key_env = "NOBODY_SET_THIS"
price = { input = 1.0, output = 1.0 }
"""
ROWS = [
    {
        "id": f"t{n}",
        "prompt": f"{n}: what is 2 + 2?",
        "domain": "odd" if n % 2 else "even",
        "checker": "number",
        "answer": "4",
    }
    for n in range(40)
]


class Evaluating:
    """Runs `shikisha eval` in a folder of its own, over two scripted workers and forty tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shikisha.toml").write_text(CONFIG)
        self.rows(ROWS)
        self.said = ""

    def rows(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write the tasks."""
        (self.folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def __call__(self, *arguments: str, code: int = 0, workers: str = "wise,rash") -> str:
        """Evaluate; return stdout, keep stderr in `said`."""
        known = ["eval", "--config", str(self.folder / "shikisha.toml"), "--taskset", str(self.folder / "tasks.jsonl")]
        known += ["--workers", workers, "--keep", str(self.folder / "kept"), "--controls", "all"]
        result = CliRunner().invoke(app, [*known, *arguments], env={"COLUMNS": "120"})
        assert result.exit_code == code, (result.output, result.stderr)
        self.said = result.stderr
        return str(result.stdout)

    def report(self, *arguments: str, code: int = 0, workers: str = "wise,rash") -> dict[str, dict[str, object]]:
        """Evaluate; return the entries of the report by name."""
        data = json.loads(self("--json", "-", *arguments, code=code, workers=workers))
        return {str(entry["name"]): entry for entry in data["entries"]}

    @property
    def calls(self) -> int:
        """How many replies were paid for and kept."""
        return sum(len(path.read_text().splitlines()) for path in (self.folder / "kept").glob("calls-*.jsonl"))


@pytest.fixture
def evaluating(tmp_path: Path) -> Evaluating:
    return Evaluating(tmp_path)


def number(entry: Mapping[str, object], key: str) -> float:
    return cast("float", entry[key])


def test_every_conductor_stands_beside_single_workers_random_plans_a_fixed_topology_and_the_oracle(
    evaluating: Evaluating,
) -> None:
    found = evaluating.report("--conductor", "fixed:chain?workers=rash,wise")
    parts = {str(entry["part"]) for entry in found.values()}
    assert parts >= {"asked", "single", "random", "fixed", "oracle"}
    assert [number(found[name], "accuracy") for name in ("wise", "rash", "oracle")] == [1.0, 0.0, 1.0]
    chain = found["fixed:chain?workers=rash,wise"]
    assert (chain["accuracy"], chain["steps"], chain["topologies"]) == (1.0, 2, {"chain": 40})
    assert number(chain, "dollars") == pytest.approx(40 * 0.26)


def test_tasks_that_were_in_what_was_trained_on_are_named(evaluating: Evaluating) -> None:
    train = evaluating.folder / "train.jsonl"
    again = [{**row, "id": f"old-{row['id']}"} for row in ROWS[3:5]]
    other = {"id": "new", "prompt": "Name a river that begins with an R.", "checker": "text", "answer": "Rhine"}
    train.write_text("".join(json.dumps(row) + "\n" for row in (*again, other)))
    clean = evaluating.folder / "clean.jsonl"
    clean.write_text(json.dumps(other) + "\n")
    said = json.loads(evaluating("--json", "-", "--contamination", str(train), "--contamination", str(clean)))["notes"]
    (found,) = [note for note in said if str(train) in note]
    assert "tasks are found again in" in found
    assert "2 word for word; on these figures say little" in found
    assert "t3 (old-t3, 100%), t4 (old-t4, 100%)" in found
    assert f"None of the 40 tasks is found again in {clean}." in said


def test_an_unknown_set_to_look_for_contamination_in_is_refused_before_anything_is_played(
    evaluating: Evaluating,
) -> None:
    evaluating("--contamination", "gsm9k", code=3)
    assert "unknown taskset 'gsm9k'" in evaluating.said
    assert evaluating.calls == 0


def test_the_table_goes_to_stdout_and_progress_to_stderr(evaluating: Evaluating) -> None:
    table = evaluating("--conductor", "fixed:single?worker=rash", "--html", str(evaluating.folder / "page.html"))
    assert "accuracy" in table
    assert "samples are kept in" in evaluating.said
    assert "<svg" in (evaluating.folder / "page.html").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--conductor", "nobody"],
        ["--conductor", "fixed:single?worker=nobody"],
        ["--taskset", "nowhere.jsonl", "--conductor", "fixed:single"],
        ["--workers", "wise,keyed", "--conductor", "fixed:single"],
        ["--judge", "nobody", "--conductor", "fixed:single"],
    ],
)
def test_what_plays_nothing_leaves_nothing(evaluating: Evaluating, arguments: list[str]) -> None:
    before = sorted(evaluating.folder.rglob("*"))
    pages = [
        "--html",
        str(evaluating.folder / "deep" / "er" / "page.html"),
        "--json",
        str(evaluating.folder / "r.json"),
    ]
    known = [
        "eval",
        "--config",
        str(evaluating.folder / "shikisha.toml"),
        "--taskset",
        str(evaluating.folder / "tasks.jsonl"),
    ]
    keep = ["--workers", "wise", "--keep", str(evaluating.folder / "all" / "kept")]
    result = CliRunner().invoke(app, [*known, *keep, *pages, *arguments])
    assert result.exit_code not in (ExitCode.OK, ExitCode.INTERNAL), result.stderr
    assert sorted(evaluating.folder.rglob("*")) == before
    assert "what is played is kept" not in result.stderr


def test_a_folder_that_keeps_something_stays_whatever_goes_wrong_later(evaluating: Evaluating) -> None:
    evaluating("--conductor", "fixed:single?worker=wise")
    kept = sorted((evaluating.folder / "kept").rglob("*"))
    evaluating("--conductor", "nobody", code=ExitCode.CONFIG)
    assert sorted((evaluating.folder / "kept").rglob("*")) == kept


def test_a_page_in_a_folder_that_is_not_there_yet_is_written(evaluating: Evaluating) -> None:
    page = evaluating.folder / "deep" / "er" / "page.html"
    evaluating("--conductor", "fixed:single?worker=wise", "--html", str(page))
    assert "<svg" in page.read_text()


@pytest.mark.full
def test_what_was_played_is_neither_played_nor_paid_again(evaluating: Evaluating) -> None:
    first = evaluating.report("--conductor", "fixed:chain?workers=rash,wise")
    calls = evaluating.calls
    again = evaluating.report("--conductor", "fixed:chain?workers=rash,wise")
    assert (again, evaluating.calls) == (first, calls)
    evaluating.report("--conductor", "fixed:single?worker=wise")  # its calls are those of the single worker
    assert evaluating.calls == calls


def test_entrants_share_the_calls_they_have_in_common(evaluating: Evaluating) -> None:
    found = evaluating.report("--conductor", "fixed:single?worker=wise")
    paid = sum(number(entry, "paid") for entry in found.values())
    assert number(found["fixed:single?worker=wise"], "paid") == 0.0
    assert number(found["fixed:single?worker=wise"], "dollars") == pytest.approx(10.0)
    assert paid < sum(number(entry, "dollars") for entry in found.values())


@pytest.mark.full
def test_a_limit_of_dollars_stops_it_and_more_money_lets_it_go_on(evaluating: Evaluating) -> None:
    evaluating("--dollars", "3", code=ExitCode.CAPPED)
    assert evaluating.calls <= 3 / 0.01
    lines = (evaluating.folder / "kept" / "calls-0.jsonl").read_text().splitlines()
    spent = sum(json.loads(line)["dollars"] for line in lines)
    assert 2 < spent <= 3
    found = evaluating.report("--dollars", "100")
    assert found["wise"]["tasks"] == 40


@pytest.mark.full
def test_a_limit_of_seconds_stops_it(evaluating: Evaluating) -> None:
    slow = CONFIG.replace('answers = "It is 4."', 'answers = "It is 4."\nseconds = [30]')
    (evaluating.folder / "shikisha.toml").write_text(slow)
    evaluating("--seconds", "0.3", code=ExitCode.CAPPED)
    assert "seconds" in evaluating("--seconds", "0.3", code=ExitCode.CAPPED)


@pytest.mark.full
def test_failed_tasks_alone_are_played_again_when_asked(evaluating: Evaluating) -> None:
    first = evaluating.report(workers="broken,rash")
    assert first["broken"]["failures"] == {"server": 2}
    same = evaluating.report(workers="broken,rash")
    assert same["broken"]["failures"] == {"server": 2}
    calm = CONFIG.replace('faults = ["server", "server"]\n', "")
    (evaluating.folder / "shikisha.toml").write_text(calm)
    kept = evaluating.calls
    again = evaluating.report("--retry-failed", workers="broken,rash")
    assert again["broken"]["failures"] == {}
    assert evaluating.calls >= kept


@pytest.mark.full
@pytest.mark.parametrize(
    "spread", [pytest.param(("--processes", "2"), marks=pytest.mark.slow), ("--processes", "3", "--at-once", "1")]
)
def test_several_processes_come_to_the_same_report(
    evaluating: Evaluating, tmp_path: Path, spread: tuple[str, ...]
) -> None:
    asked = ("--conductor", "fixed:chain?workers=rash,wise")
    alone = evaluating.report(*asked)
    (tmp_path / "other").mkdir()
    spread_out = Evaluating(tmp_path / "other").report(*asked, *spread)
    timed = {"seconds_p50", "seconds_p95", "paid"}  # whose call pays for another's depends on who is first
    assert [{k: v for k, v in entry.items() if k not in timed} for entry in spread_out.values()] == [
        {k: v for k, v in entry.items() if k not in timed} for entry in alone.values()
    ]


def test_a_judge_is_always_called_one(evaluating: Evaluating) -> None:
    evaluating.rows([{"id": "j", "prompt": "Is it nice?", "checker": "judge", "rubric": "Is it?"}])
    found = evaluating.report("--judge", "judge")
    assert (found["wise"]["judged"], found["wise"]["accuracy"]) == (1, 1.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--conductor", "fixed:nothing"), "'nothing'"),
        (("--conductor", "fixed:vote?workers=wise,nobody&join=vote"), "'nobody'"),
        (("--judge", "nobody"), "'nobody'"),
        (("--split", "exam"), "unknown split"),
        (("--log", "somewhere"), "one of them"),
        (("--dollars", "1", "--processes", "2"), "one process"),
        (("--reply", "poem"), "--reply"),
    ],
)
def test_what_cannot_be_is_refused_before_anyone_is_called(
    evaluating: Evaluating, arguments: tuple[str, ...], says: str
) -> None:
    evaluating(*arguments, code=ExitCode.CONFIG)
    assert says in evaluating.said
    assert evaluating.calls == 0


def test_a_worker_or_judge_without_its_key_is_an_error_before_the_first_paid_call(evaluating: Evaluating) -> None:
    for arguments, workers in (((), "wise,keyed"), (("--judge", "keyed"), "wise,rash")):
        evaluating(*arguments, workers=workers, code=ExitCode.CONFIG)
        assert "NOBODY_SET_THIS" in evaluating.said
    assert evaluating.calls == 0


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": "x", "prompt": "Without a grader?"}, "line 2: checker"),
        ({"id": "x", "checker": "number", "answer": "4"}, "line 2: prompt"),
        ({"id": "x", "prompt": "Judged by whom?", "checker": "judge"}, "judge"),
    ],
)
def test_a_row_that_is_wrong_names_its_line_and_field(
    evaluating: Evaluating, row: dict[str, object], says: str
) -> None:
    evaluating.rows([ROWS[0], row])
    evaluating(code=ExitCode.CONFIG)
    assert says in evaluating.said


def test_a_folder_of_another_evaluation_is_refused(evaluating: Evaluating, tmp_path: Path) -> None:
    evaluating()
    (tmp_path / "other.jsonl").write_text(json.dumps(ROWS[0]))
    evaluating("--taskset", str(tmp_path / "other.jsonl"), code=ExitCode.CONFIG)
    assert "choose another folder" in evaluating.said


def test_two_processes_cannot_evaluate_in_one_folder(evaluating: Evaluating) -> None:
    with lock_folder(evaluating.folder / "kept"):
        evaluating(code=ExitCode.CONFIG)
        assert "another process" in evaluating.said
    evaluating()


def test_with_a_journal_every_run_is_there_with_its_grade_and_reward(evaluating: Evaluating) -> None:
    journal = str(evaluating.folder / "runs.db")
    evaluating("--journal", journal, "--conductor", "fixed:single?worker=rash")
    told = json.loads(CliRunner().invoke(app, ["explain", "last", "--journal", journal, "--json"]).stdout)
    assert told["grades"][0]["checker"] == "number"
    assert set(told["reward"]) <= {"format"}
    assert CliRunner().invoke(app, ["journal", "verify", "--journal", journal]).exit_code == 0


def test_predictions_are_counted_by_the_report_of_their_own_harness(tmp_path: Path) -> None:
    rows = [
        {"instance_id": f"some__repo-{n}", "model_name_or_path": model, "model_patch": f"diff {n} {model}"}
        for n in range(6)
        for model in ("mine", "yours")
    ]
    (tmp_path / "all_preds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for model, solved in (("mine", 4), ("yours", 1)):
        ids = [f"some__repo-{n}" for n in range(6)]
        report = {"schema_version": 2, "resolved_ids": ids[:solved], "unresolved_ids": ids[solved:], "error_ids": []}
        (tmp_path / f"{model}.run.json").write_text(json.dumps(report))
    line = ["eval", "--taskset", f"swebench-verified:{tmp_path}", "--keep", str(tmp_path / "kept"), "--json", "-"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    found = {entry["name"]: entry for entry in json.loads(result.stdout)["entries"]}
    assert [found[name]["accuracy"] for name in ("mine", "yours")] == pytest.approx([4 / 6, 1 / 6])


def test_rows_without_a_grader_may_be_given_one(evaluating: Evaluating) -> None:
    evaluating.rows([{"id": "x", "prompt": "2 + 2?", "answer": "4"}])
    evaluating(code=ExitCode.CONFIG)
    assert evaluating.report("--checker", "number")["wise"]["accuracy"] == 1.0


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_that_cannot_be_written_is_noticed_before_anyone_is_called(
    evaluating: Evaluating, option: str
) -> None:
    evaluating(option, str(evaluating.folder), code=ExitCode.CONFIG)  # a folder
    assert "cannot be written" in evaluating.said
    assert evaluating.calls == 0


@pytest.mark.full
def test_answers_that_are_code_are_tested_in_a_sandbox_that_holds(evaluating: Evaluating) -> None:
    trouble = asyncio.run(_no_full_python())
    if trouble:
        pytest.skip(trouble)
    coders = """
[workers.able]
kind = "scripted"
answers = "```python\\ndef add(a, b):\\n    return a + b\\n```"
[workers.endless]
kind = "scripted"
answers = "```python\\ndef add(a, b):\\n    while True: pass\\n```"
[workers.chatty]
kind = "scripted"
answers = "I would rather not."
"""
    (evaluating.folder / "shikisha.toml").write_text(coders)
    asserts = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]
    row = {
        "id": "add",
        "prompt": "Write add(a, b).",
        "checker": "code",
        "style": "asserts",
        "asserts": asserts,
        "seconds": 0.5,
    }
    evaluating.rows([row])
    found = evaluating.report(workers="able,endless,chatty")
    assert [found[name]["accuracy"] for name in ("able", "endless", "chatty")] == [1.0, 0.0, 0.0]
    assert [found[name]["no_answer"] for name in ("able", "endless", "chatty")] == [0, 0, 1]


async def _no_full_python() -> str:
    try:
        await full_python_sandbox()
    except ConfigError as error:
        return f"no sandbox for full Python: {error}"
    return ""


@pytest.mark.parametrize("dollars", [None, 0.25])
def test_a_log_without_prices_is_refused_under_a_cap_on_dollars_and_not_measured_as_wrong(
    tmp_path: Path, dollars: float | None
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    tasks = [
        {"task_id": f"t{n}", "domain": "", "prompt": f"{n}?", "answer": str(n), "answer_kind": "number"}
        for n in range(9)
    ]
    rows = [{"task_id": row["task_id"], "worker": "w", "answer": row["answer"], "score": 1.0} for row in tasks]
    (log / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tasks))
    (log / "outcomes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "shikisha.toml").write_text("" if dollars is None else f"[budgets]\ndollars = {dollars}\n")
    command = ["eval", "--config", str(tmp_path / "shikisha.toml"), "--log", str(log), "--keep", str(tmp_path / "kept")]
    result = CliRunner().invoke(app, command)
    if dollars is None:
        assert (result.exit_code, "100.0" in result.stdout) == (0, True), result.stderr
        return
    assert (result.exit_code, result.stdout) == (3, "")
    assert "workers.w: it has no price, so [budgets] dollars refuses every call to it" in result.stderr


def test_an_entrant_whose_every_call_was_refused_is_not_measured(evaluating: Evaluating) -> None:
    file = evaluating.folder / "shikisha.toml"
    file.write_text(f"{file.read_text()}\n[budgets]\nsteps = 1\n")
    found = json.loads(evaluating("--json", "-", "--conductor", "fixed:chain?workers=rash,wise", code=4))
    assert "fixed:chain?workers=rash,wise" not in {entry["name"] for entry in found["entries"]}
    assert not found["complete"]
    assert "not measured: fixed:chain?workers=rash,wise, whose every call was refused (steps cap" in found["why"]
    assert {"wise", "rash"} <= {entry["name"] for entry in found["entries"]}


def test_where_every_call_was_refused_there_is_no_report(evaluating: Evaluating) -> None:
    file = evaluating.folder / "shikisha.toml"
    file.write_text(f"{file.read_text()}\n[budgets]\ntokens = 1\n")
    assert evaluating("--conductor", "fixed:single?worker=wise", "--controls", "none", code=3) == ""
    assert "not measured: fixed:single?worker=wise" in evaluating.said
