"""What importers refuse, and where they say it is wrong; how files are read; where a log is written."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from importing import command, document, imported, lines, refused, table
from paths import ROOT
from test_importers_usage import FULL, evaluation, export, span, spent
from test_published_importers import CANDIDATES, ROUTED, WIDE, asked, verdicts

from shikisha.core.errors import ConfigError
from shikisha.core.task import Task
from shikisha.outcomes.importers.source_files import SourceRow, Sources, read_source_rows
from shikisha.outcomes.log_reader import OutcomeLog, ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer, LoggedTask, RepeatPolicy

Write = Callable[[Path], Path]
SOURCE = ROOT / "src"
ONE, TWO = '{"answer": "1"}', '{"answer": "2"}'
ZERO: dict[str, object] = {"id": 1, "question": "Q", "answer": "# 1", "dataset": "gsm", "output": [ONE]}


def csv_of(*rows: dict[str, object]) -> Write:
    return lambda folder: table(folder / "mmlu_x.csv", rows)


def lines_of(*rows: dict[str, object]) -> Write:
    return lambda folder: lines(folder / "x.jsonl", rows)


def json_of(*values: object) -> Write:
    return lambda folder: document(folder / "x.json", list(values))


def text_of(name: str, text: str) -> Write:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(text.encode("latin-1"))
        return folder / name

    return write


def spans_of(values: dict[str, object], **more: object) -> Write:
    return lines_of(export(span(values, **more)))  # type: ignore[arg-type]  # its events are not among these


BATTLE: dict[str, object] = {"prompt": "Q", "model_a": "a", "model_b": "b", "winner_model_a": 1, "winner_model_b": 1}


@pytest.mark.parametrize(
    ("kind", "write", "problem"),
    [
        (
            "routellm",
            csv_of(verdicts("Q", "perhaps", True)),
            "line 2: mistralai/Mixtral-8x7B-Instruct-v0.1: expected a number from 0 to 1, found 'perhaps'",
        ),
        (
            "routellm",
            csv_of(verdicts("a\nb", True, True), verdicts("Q", None, True)),
            "line 4: mistralai/Mixtral-8x7B-Instruct-v0.1: expected True or False, found null",
        ),
        ("routellm", csv_of(verdicts(" ", True, True)), "line 2: prompt: the prompt is empty"),
        ("routellm", csv_of({"prompt": "Q"}), "line 2: prompt: expected columns named for models next to it"),
        (
            "routellm",
            lines_of(BATTLE),
            "line 1: winner_model_a, winner_model_b, winner_tie: expected 1 in one of them, found it in 2",
        ),
        ("routellm", text_of("x.csv", "prompt,m\nQ,True,1\n"), "line 2: expected 2 cells, found 3"),
        ("routellm", text_of("x.csv", 'prompt,m\n"Q,True\n'), "line 2: not CSV: unexpected end of data"),
        ("routellm", text_of("x.csv", "m,m\n"), "line 1: expected a name for each column, each once"),
        ("routellm", text_of("x.csv", ""), "line 1: expected a name for each column, each once"),
        ("routellm", text_of("x.csv", "prompt,m\nQ,True\n\xff"), "x.csv: expected UTF-8 text"),
        ("routerbench", csv_of(WIDE[0] | {"cheap": 7}), "line 2: cheap: expected a number from 0 to 1, found '7'"),
        (
            "routerbench",
            csv_of(WIDE[0] | {"cheap|total_cost": "-1"}),
            "line 2: cheap|total_cost: expected a number from 0, found '-1'",
        ),
        (
            "routerbench",
            csv_of({k: v for k, v in WIDE[0].items() if k != "cheap"}),
            "line 2: cheap: expected this column, as there is cheap|model_response or",
        ),
        (
            "routerbench",
            csv_of({"sample_id": 1, "prompt": "Q"}),
            "line 2: the header: expected columns named MODEL, MODEL|model_response",
        ),
        (
            "routerbench",
            csv_of(WIDE[0], WIDE[0] | {"cheap": 0.5}),
            "line 3: 'cheap' answered this task twice: score '0.5' here, '0.25' in",
        ),
        ("routerbench", text_of("x.parquet", "PAR1 but not really"), "x.parquet: not a parquet file that can be read"),
        (
            "llmrouter",
            lines_of(ROUTED, ROUTED | {"performance": 1.5}),
            "line 2: performance: expected a number from 0 to 1, found '1.5'",
        ),
        (
            "llmrouter",
            lines_of(ROUTED | {"performance": None}),
            "line 1: performance: expected a number from 0 to 1, found null",
        ),
        ("llmrouter", lines_of(ROUTED | {"model_name": " "}), "line 1: model_name: expected a name, found ' '"),
        (
            "llmrouter",
            lines_of(ROUTED | {"input_tokens": 1.5}),
            "line 1: input_tokens: expected a whole number, found '1.5'",
        ),
        (
            "llmrouter",
            lines_of(ROUTED | {"input_tokens": True}),
            "line 1: input_tokens: expected a number from 0, found 'True'",
        ),
        ("llmrouter", lines_of(ROUTED | {"input_tokens": 2**63}), "line 1: input_tokens: expected a whole number"),
        (
            "llmrouter",
            lines_of(ROUTED | {"response_time": float("inf")}),
            "line 1: response_time: expected a number from 0, found 'inf'",
        ),
        ("llmrouter", lines_of(ROUTED | {"choices": "A or B"}), "line 1: choices: expected a list of options"),
        (
            "llmrouter",
            lines_of({k: v for k, v in ROUTED.items() if k != "query"}),
            "line 1: query: expected text, found nothing",
        ),
        ("llmrouter", lines_of(ROUTED | {"query": "\x00"}), "line 1: query: the prompt holds a NUL character"),
        (
            "llmrouter",
            lines_of(ROUTED | {"query": "\ud83d", "metric": ""}),
            "line 1: query: the prompt holds half of a surrogate pair",
        ),
        (
            "llmrouter",
            lines_of(ROUTED | {"response_time": 10**400}),
            "line 1: response_time: expected a number from 0, found '1000",
        ),
        (
            "llmrouter",
            lines_of({"question": "Q", "scores": {"a": "good"}}),
            "line 1: scores: a: expected a number from 0 to 1, found 'good'",
        ),
        (
            "llmrouter",
            lines_of({"question": "Q", "scores": []}),
            "line 1: scores: expected an object of models' scores, found '[]'",
        ),
        (
            "llmrouter",
            lines_of(ROUTED, {"small": {**CANDIDATES["small"], "output_price": None}}),
            "line 2: model_name: expected text, found nothing",
        ),
        (
            "llmrouter",
            lambda folder: document(folder / "x.json", {"small": {"input_price": 1}}),
            "entry 0: small: input_price, output_price: expected two prices, found one",
        ),
        ("llmrouter", text_of("x.jsonl", '{"query": '), "line 1: not JSON"),
        ("llmrouter", text_of("x.jsonl", "[1]\n"), "line 1: expected an object, found '[1]'"),
        ("llmrouter", text_of("x.jsonl", "[" * 100_000), "line 1: not JSON"),
        ("mmlu-pro", json_of(asked(1, "B"), "total"), "entry 1: expected an object, found 'total'"),
        (
            "mmlu-pro",
            json_of(asked(1, "B"), asked(1, "A")),
            "entry 1: 'x' answered this task twice: score '0.0' here, '1.0' in",
        ),
        ("mmlu-pro", json_of(asked(1, "B", options="x")), "entry 0: options: expected a list, found 'x'"),
        ("mmlu-pro", json_of(asked(1, "B", options=["x", 2])), "entry 0: options: expected a list of texts"),
        ("mmlu-pro", json_of(asked(1, "B") | {"pred": 3}), "entry 0: pred: expected text, found '3'"),
        ("mmlu-pro", json_of(asked(1, "B", question_id=None)), "entry 0: question_id: expected text, found null"),
        ("mmlu-pro", json_of(asked(1, "B") | {"category": "l\ud800"}), "entry 0: the domain holds half of a surrogate"),
        ("mmlu-pro", json_of(asked(1, "B") | {"answer": "\ud800"}), "entry 0: the answer holds half of a surrogate"),
        ("mmlu-pro", text_of("x.json", '"text"'), "x.json: expected a list of objects"),
        ("mmlu-pro", text_of("x.json", "[{}\n"), "x.json: not JSON"),
        ("mmlu-pro", text_of("x.zip", "PK"), "x.zip: not a zip file that can be read"),
        (
            "zeroeval",
            json_of({**ZERO, "output": []}),
            "entry 0: output: expected a text or a list of texts, found '[]'",
        ),
        ("zeroeval", json_of({**ZERO, "answer": None}), "entry 0: answer: expected text, found null"),
        (
            "zeroeval",
            json_of(ZERO, {**ZERO, "output": [TWO]}),
            "entry 1: 'x' answered this task twice: score '0.0' here, '1.0' in",
        ),
        (
            "zeroeval",
            json_of(ZERO, {**ZERO, "output": [ONE, ONE]}),
            "entry 1: 'x' answered this task twice: 2 samples here, 1 in",
        ),
        (
            "zeroeval",
            json_of({**ZERO, "dataset": "mmlu-redux", "choices": ["x"], "correct_answer": "y"}),
            "entry 0: correct_answer: expected one of the choices, found 'y'",
        ),
        ("litellm", lines_of(spent(spend="much")), "line 1: spend: expected a number from 0, found 'much'"),
        ("litellm", lines_of(spent(model=7, model_group="")), "line 1: model: expected text, found '7'"),
        (
            "litellm",
            lines_of(spent(startTime="yesterday")),
            "line 1: startTime: expected a time (ISO 8601), found 'yesterday'",
        ),
        (
            "litellm",
            lines_of(spent(endTime="2025-03-01T11:00:00Z")),
            "line 1: endTime: expected a time after startTime",
        ),
        ("litellm", lines_of(spent(messages="a\x00b")), "line 1: messages: the prompt holds a NUL character"),
        (
            "otel",
            lines_of({"spans": []}),
            "line 1: expected OTLP JSON with one of resourceSpans, resourceLogs, resourceMetrics",
        ),
        ("otel", lines_of({"resourceSpans": [7]}), "line 1: resourceSpans[0]: expected an object, found '7'"),
        (
            "otel",
            lines_of(export(span(FULL, evaluation(5.0)))),
            "spans[0]: events[0]: gen_ai.evaluation.score.value: expected a number from 0 to 1, found '5.0'",
        ),
        (
            "otel",
            spans_of(FULL, endTimeUnixNano="1"),
            "spans[0]: endTimeUnixNano: expected a time after startTimeUnixNano",
        ),
        (
            "otel",
            spans_of(FULL, attributes=[{"key": "x", "value": {"intValue": "many"}}]),
            "spans[0]: attributes[0]: intValue: expected a whole number, found 'many'",
        ),
        (
            "otel",
            spans_of(FULL | {"gen_ai.usage.input_tokens": "many"}),
            "spans[0]: gen_ai.usage.input_tokens: expected a number from 0, found 'many'",
        ),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, kind: str, write: Write, problem: str) -> None:
    source = write(tmp_path)
    said = refused(kind, source)
    assert f"shikisha: {source}: " in said
    assert problem in said
    assert "Traceback" not in said


def test_a_contradiction_names_both_places(tmp_path: Path) -> None:
    said = refused("mmlu-pro", document(tmp_path / "m.json", [asked(1, "B"), asked(2, "B"), asked(1, "A")]))
    assert f"{tmp_path}/m.json: entry 2: 'm' answered this task twice" in said
    assert f"in {tmp_path}/m.json: entry 0" in said


def test_a_row_that_says_the_same_again_is_counted(tmp_path: Path) -> None:
    file = document(tmp_path / "m.json", [asked(1, "B"), asked(1, "B")])
    _, said = command("mmlu-pro", str(file), "-o", str(tmp_path / "log"))
    assert said == "repeated: 1 row with nothing new\n"


def test_score_that_nobody_has_is_said(tmp_path: Path) -> None:
    said = refused("litellm", lines(tmp_path / "x.jsonl", [spent()]), options=["--column", "score=rating"])
    assert "expected scores under 'rating': none of 1 rows has one there; what stands there is " in said
    assert all(name in said for name in spent())
    row = spent() | {"metadata": {"a": {"rating": 1}, "user": "u"}}
    said = refused("litellm", lines(tmp_path / "y.jsonl", [row]), options=["--column", "score=metadata.rating"])
    assert said.endswith("what stands there is metadata.a, metadata.user\n")
    said = refused("litellm", lines(tmp_path / "z.jsonl", [row]), options=["--column", "score=metadata.a.score"])
    assert said.endswith("what stands there is metadata.a.rating\n")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nothing.csv", "cannot be read: No such file"),
        ("x.txt", "expected a file ending in .csv, .parquet"),
        ("", "expected files ending in .csv"),
    ],
)
def test_sources_that_are_none(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "in").mkdir()
    _, said = command("routellm", str(tmp_path / "in" / name), "-o", str(tmp_path / "log"), code=3)
    assert problem in said


OWN_ROWS: list[dict[str, object]] = [
    {"Prompt": "What is 2 + 2?", "Model": "a", "Output": "It is 4.", "Correct": "true", "Notes": "x", "Cost": "0.01"},
    {"Prompt": "What is 2 + 2?", "Model": "b", "Output": "It is 5.", "Correct": "false", "Notes": "", "Cost": ""},
    {"Prompt": "What is 3 + 3?", "Model": "a", "Output": "6", "Correct": "1", "Notes": "", "Cost": "0.02"},
]


@pytest.mark.parametrize("between", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["answers.csv", "answers.tsv", "answers.csv.gz"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_table_of_ones_own_is_read_however_a_spreadsheet_saved_it(
    tmp_path: Path, name: str, between: str, mark: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(OWN_ROWS[0]), delimiter=between)
    writer.writeheader()
    writer.writerows(OWN_ROWS)
    whole = (mark + text.getvalue()).encode()
    (tmp_path / name).write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
    found = imported("table", tmp_path / name)
    assert (found.scores("a"), found.scores("b")) == ([1.0, 1.0], [0.0])
    assert set(found.log.responses("a").values()) == {"6", "It is 4."}
    assert found.told["remarks"] == {"column not taken over: Notes": 0}
    assert [outcome.dollars for outcome in found.log.outcomes_of("b")] == [None]


def test_a_table_of_ones_own_may_be_json_lines_with_odd_columns(tmp_path: Path) -> None:
    odd = {"question": "Q", "llm": "a", "rating": 0.5, "answer": 4, "tags": ["x"], "id": 7, "latency": 1.5}
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(json.dumps(odd).encode()))
    command("table", str(tmp_path / "x.jsonl.gz"), "-o", str(tmp_path / "log"), "--column", "score=rating")
    outcome = OutcomeLog.read(tmp_path / "log").find("7", "a")
    assert outcome is not None
    assert (outcome.score, outcome.answer, outcome.seconds) == (0.5, "4", 1.5)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"prompt": "Q", "score": 1}, "expected a column for the worker (worker, model, model_name, "),
        ({"worker": "a", "score": 1}, "expected a column for the prompt (prompt, question, "),
        (
            {"prompt": "Q", "model": "a", "score": 3},
            "score: expected scores from 0 to 1, found 3 to 3: say what is worst and best, as in --scale 1:5",
        ),
        ({"prompt": "Q", "model": "", "score": 1}, "model: expected text, found null"),
    ],
)
def test_what_a_table_of_ones_own_lacks_is_named(tmp_path: Path, row: dict[str, object], problem: str) -> None:
    said = refused("table", table(tmp_path / "x.csv", [row]))
    assert "x.csv: " in said
    assert problem in " ".join(said.split())


def test_a_table_that_is_none_of_the_kind_says_which_kind_it_is(tmp_path: Path) -> None:
    own = table(tmp_path / "answers.csv", OWN_ROWS)
    said = refused("litellm", own)
    assert "answers.csv: line 2: expected a row of LiteLLM's spend logs" in said
    assert "there are Prompt, Model, Output, Correct, Notes, Cost; a table of your own: `import outcomes table`" in said
    assert "a table of your own (columns like prompt, worker, answer, score): `import outcomes table" in refused(
        "mmlu-pro", own
    )
    with pytest.raises(ConfigError, match=r"not a file; one is made of .*import outcomes table .*answers\.csv --out"):
        OutcomeLog.read(own)


def test_a_spreadsheet_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "answers.xlsx").write_bytes(b"PK")
    assert "a spreadsheet is not read; save it as CSV (in Excel: CSV UTF-8)" in refused(
        "table", tmp_path / "answers.xlsx"
    )
    (tmp_path / "x.csv").write_bytes("prompt,model\nQ,ä".encode("utf-16"))
    assert "x.csv: expected UTF-8 text (in Excel: CSV UTF-8)" in refused("table", tmp_path / "x.csv")


@pytest.mark.parametrize("cut", [0, 5, 20])
def test_a_damaged_gzip_is_named(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(b"prompt,model\nQ,a\n")
    (tmp_path / "x.csv.gz").write_bytes(b"\x00" * 9 if cut == 0 else whole[:cut])
    assert "x.csv.gz: cannot be read" in refused("table", tmp_path / "x.csv.gz")


def test_a_log_without_scores_says_what_to_do_next(tmp_path: Path) -> None:
    _, said = command("litellm", str(lines(tmp_path / "x.jsonl", [spent()])), "-o", str(tmp_path / "log"))
    assert "next: no outcome has a score, so `learn` and `eval --log` have nothing to compare: import it again" in said
    assert "--column score=NAME (the field that holds the score)" in said
    ungraded = table(tmp_path / "y.csv", [{"prompt": "Q", "model": "a"}])
    _, said = command("table", str(ungraded), "-o", str(tmp_path / "other"))
    assert "next: no outcome has a score" in said


def test_a_zip_with_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.json", "[]")
        archive.writestr("b.json", "[]")
    assert "x.zip: expected one file in it, found 2" in refused("mmlu-pro", tmp_path / "x.zip")


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n{"a": "\u2028"}\nno JSON at all\n', encoding="utf-8")
    found = read_source_rows(tmp_path / "x.jsonl")
    assert [next(found).get("a"), next(found).get("a")] == [1, "\u2028"]
    with pytest.raises(ConfigError, match="line 4: not JSON"):
        next(found)


def test_a_long_cell_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f'\ufeffa,b\n"{"x" * 300_000}",\n', encoding="utf-8")
    (row,) = Sources([str(tmp_path)]).rows(".csv")
    assert (len(row.text("a")), row.get("b"), row.maybe_text("b")) == (300_000, None, None)


@pytest.mark.parametrize(
    ("value", "number"), [("12.0", 12), (12.0, 12), ("7", 7), (str(2**62 + 1), 2**62 + 1), (float("nan"), None)]
)
def test_whole_numbers_in_their_disguises(tmp_path: Path, value: object, number: int | None) -> None:
    (row,) = read_source_rows(lines(tmp_path / "x.jsonl", [{"n": value}]))
    assert row.integer("n") == number


def test_a_folder_with_something_in_it_is_left_alone_unless_forced(tmp_path: Path) -> None:
    file = table(tmp_path / "mmlu_x.csv", [verdicts("Q", True, False)])
    log = tmp_path / "log"
    command("routellm", str(file), "-o", str(log), "--jsonl")
    (log / "notes.txt").write_text("mine")
    _, said = command("routellm", str(file), "-o", str(log), code=3)
    assert "log: expected an empty folder, or none (--force replaces the log that is in it)" in said
    command("routellm", str(file), "-o", str(log), "--force")
    assert sorted(os.listdir(log)) == ["notes.txt", "outcomes.parquet", "tasks.parquet"]
    _, said = command("routellm", str(file), "-o", str(file), code=3)
    assert "mmlu_x.csv: expected a folder" in said


def test_nothing_is_written_when_a_row_is_wrong(tmp_path: Path) -> None:
    command("routellm", str(table(tmp_path / "mmlu_x.csv", [verdicts("Q", True, False)])), "-o", str(tmp_path / "log"))
    before = (tmp_path / "log" / "tasks.parquet").read_bytes()
    wrong = table(tmp_path / "mmlu_y.csv", [verdicts("Other", True, False), verdicts("Q", "?", False)])
    command("routellm", str(wrong), "-o", str(tmp_path / "log"), "--force", code=3)
    assert (tmp_path / "log" / "tasks.parquet").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "log")) == ["outcomes.parquet", "tasks.parquet"]


def test_lines_and_parquet_hold_the_same(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [spent(), spent(response="Hm."), spent(model_group="b", spend=None)])
    log = imported("litellm", file).log
    command("litellm", str(file), "-o", str(tmp_path / "lines"), "--jsonl")
    other = OutcomeLog.read(tmp_path / "lines")
    assert [list(other.outcomes_of(worker)) for worker in other.workers] == [
        list(log.outcomes_of(worker)) for worker in log.workers
    ]
    assert other.responses("gpt-4o") == log.responses("gpt-4o")
    told = json.loads((tmp_path / "lines" / "outcomes.jsonl").read_text().splitlines()[1])
    assert (told["worker"], told["cost_usd"], told["cost_kind"], told["samples"]) == ("b", None, "absent", 1)


def test_without_pyarrow_lines_are_written_and_parquet_names_the_extra(tmp_path: Path) -> None:
    """Told to a Python whose libraries are all of ours but that one."""
    file = table(tmp_path / "x.csv", OWN_ROWS)
    packages, libraries = tmp_path / "packages", Path(sysconfig.get_path("purelib"))
    packages.mkdir()
    for library in libraries.iterdir():
        if not library.name.startswith("pyarrow"):
            (packages / library.name).symlink_to(library)
    bare = [sys.executable, "-S", "-m", "shikisha", "import", "outcomes", "table"]
    where = {"PYTHONPATH": f"{SOURCE}:{packages}"}
    told = [*bare, str(file), "-o", str(tmp_path / "log")]
    subprocess.run(told, check=True, capture_output=True, timeout=300, env=where)  # noqa: S603 - our own command
    assert sorted(os.listdir(tmp_path / "log")) == ["outcomes.jsonl", "responses.jsonl", "tasks.jsonl"]
    told = [*bare, str(table(tmp_path / "x.parquet", OWN_ROWS)), "-o", str(tmp_path / "other")]
    done = subprocess.run(told, capture_output=True, timeout=300, env=where, text=True, check=False)  # noqa: S603 - our own command
    assert (done.returncode, "needs the extra 'logs'" in done.stderr) == (3, True)


def test_numbers_whose_sum_is_beyond_any_number_have_a_mean(tmp_path: Path) -> None:
    found = imported("litellm", lines(tmp_path / "x.jsonl", [spent(spend=1.5e308), spent(spend=1e308)]))
    assert found.one(found.log.task_ids[0], "gpt-4o").dollars == pytest.approx(1.25e308)


def test_a_number_beyond_whole_ones_is_brought_over_as_a_number(tmp_path: Path) -> None:
    found = imported("llmrouter", lines(tmp_path / "x.jsonl", [ROUTED | {"response_time": 2**63}]), options=["--jsonl"])
    assert found.more("latency_s") == [2.0**63]


def test_a_cost_that_comes_to_more_than_any_number_is_named(tmp_path: Path) -> None:
    prices = document(tmp_path / "llm.json", {"small": {"input_price": 1e300, "output_price": 0}})
    said = refused("llmrouter", prices, lines(tmp_path / "x.jsonl", [ROUTED | {"input_tokens": 10**18}]))
    assert "x.jsonl: line 1: dollars: expected a number, found inf" in said


def test_a_log_may_say_with_which_probability_a_worker_was_chosen(tmp_path: Path) -> None:
    log = LogBuilder("x", RepeatPolicy.MERGED)
    task = LoggedTask(Task("Q", id="x/1"))
    log.add(task, LoggedAnswer('the "one"', "here", 1.0, propensity=0.25))
    log.add(
        LoggedTask(Task("Q", id="x/1"), ReferenceAnswer("42", "number")),
        LoggedAnswer('the "one"', "there", 0.0, propensity=0.75),
    )
    written = log.write(tmp_path / "log", as_lines=True)
    told = json.loads((tmp_path / "log" / "outcomes.jsonl").read_text())
    assert (told["worker"], told["score"], told["propensity"], told["samples"]) == ('the "one"', 0.5, 0.5, 2)
    assert (written.tasks, written.merged, OutcomeLog.read(tmp_path / "log").gold("x/1").answer) == (1, 2, "42")


@pytest.mark.parametrize("worker", ["", " ", "a\x00b", "\ud83d"])
def test_a_worker_has_a_name(worker: str) -> None:
    with pytest.raises(ConfigError, match="here: worker: expected a name, found"):
        LogBuilder("x").add(LoggedTask(Task("Q")), LoggedAnswer(worker, "here"))


def test_the_first_name_under_which_something_is_known_counts() -> None:
    row = SourceRow("here", {"a": None, "b": 2, "c": 3})
    assert (row.integer("a", "b", "c"), row.first_known("a", "b"), row.first_known("x", "y")) == (2, "b", "x")


def test_an_unknown_kind_lists_the_known_ones(tmp_path: Path) -> None:
    _, err = command("routelm", "x.csv", "-o", str(tmp_path / "log"), code=3)
    assert "unknown kind of source 'routelm': known are journal, litellm" in err
    assert "did you mean 'routellm'?" in err
