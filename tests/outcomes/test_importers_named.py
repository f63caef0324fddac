"""Importers told by name where things are: columns, types of tasks, kinds of answers; and OpenInference's layouts."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.errors import ConfigError
from shikisha.outcomes.importers.importer_registry import import_outcomes
from shikisha.outcomes.importers.source_files import Sources
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.outcomes.table_files import ColumnSpec, ColumnType, read_columns

START = datetime(2026, 11, 1, 12, tzinfo=UTC)


def imported(folder: Path, kind: str, file: Path, **named: object) -> OutcomeLog:
    """The log of a file."""
    import_outcomes(kind, Sources([str(file)], **named), folder / "log")  # type: ignore[arg-type]
    return OutcomeLog.read(folder / "log")


def lines(file: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def spend(tags: object, reply: str) -> Mapping[str, object]:
    """A row of LiteLLM's spend logs."""
    return {
        "request_id": "r1",
        "call_type": "acompletion",
        "model_group": "cheap",
        "spend": 0.001,
        "messages": [{"role": "user", "content": "What is 6 times 7?"}],
        "response": {"choices": [{"message": {"role": "assistant", "content": reply}}]},
        "request_tags": tags,
    }


@pytest.mark.parametrize(
    "tags", [["User-Agent: curl/8", "sums"], '["sums", "User-Agent: curl"]', '{"User-Agent: x",sums}', "sums"]
)
def test_request_tags_are_types_of_tasks_and_answers_are_found_in_responses(tags: object, tmp_path: Path) -> None:
    file = lines(tmp_path / "spend.jsonl", [spend(tags, "It is 6 * 7, so the answer is 42.")])
    log = imported(tmp_path, "litellm", file, domain="request_tags", form="number")
    (task_id,) = log.task_ids
    assert log.task(task_id).domain == "sums"
    assert log.gold(task_id).kind == "number"
    (outcome,) = log.outcomes_of("cheap")
    assert outcome.answer == "42"


def test_a_field_without_types_is_refused(tmp_path: Path) -> None:
    file = lines(tmp_path / "spend.jsonl", [spend([], "42")])
    with pytest.raises(ConfigError, match=r"expected types of tasks under 'metadata\.team' \(--column domain=\)"):
        imported(tmp_path, "litellm", file, domain="metadata.team")


def test_a_table_s_columns_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("Frage,Wer,Punkte,Team\nWas ist 6 mal 7?,cheap,1,sums\n")
    command = ["import", "outcomes", "table", str(tmp_path / "own.csv"), "--out", str(tmp_path / "log")]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 3
    assert "there are Frage, Wer, Punkte, Team; name yours with --column prompt=NAME" in " ".join(said.stderr.split())
    named = [
        "--column",
        "prompt=Frage",
        "--column",
        "worker=Wer",
        "--column",
        "score=Punkte",
        "--column",
        "domain=Team",
    ]
    assert CliRunner().invoke(app, [*command, *named]).exit_code == 0
    log = OutcomeLog.read(tmp_path / "log")
    assert [(one.worker, one.score) for one in log.outcomes_of("cheap")] == [("cheap", 1.0)]
    assert log.task(log.task_ids[0]).domain == "sums"


@pytest.mark.parametrize("named", ["prompt", "prompt=", "color=Frage", "prompt=Nothing"])
def test_a_column_that_is_none_says_what_was_expected(named: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("Frage,Wer\nWas?,cheap\n")
    command = ["import", "outcomes", "table", str(tmp_path / "own.csv"), "--out", str(tmp_path / "log")]
    said = CliRunner().invoke(app, [*command, "--column", named])
    assert said.exit_code == 3
    assert "expected" in said.stderr


def test_costs_in_another_currency_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("prompt,worker,cost,currency\nWhat?,cheap,0.1,USD\nWho?,cheap,0.2,EUR\n")
    with pytest.raises(ConfigError, match="line 3: currency: expected costs in US dollars, found 'EUR'"):
        imported(tmp_path, "table", tmp_path / "own.csv")


ASKED = [{"message.role": "user", "message.content": "What is 6 times 7?"}]
SAID = [{"message.role": "assistant", "message.content": "42"}]


def check_span(log: OutcomeLog) -> None:
    (task_id,) = log.task_ids
    assert log.task(task_id).prompt == "What is 6 times 7?"
    (outcome,) = log.outcomes_of("gpt-5-mini")
    assert (outcome.seconds, outcome.dollars, log.responses("gpt-5-mini")[task_id]) == (2.0, 0.002, "42")
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (12, 3)


def test_a_data_frame_of_spans_is_read_with_its_evaluation(tmp_path: Path) -> None:
    llm = {
        "span_kind": "LLM",
        "start_time": START,
        "end_time": START + timedelta(seconds=2),
        "status_code": "OK",
        "attributes.llm.model_name": "gpt-5-mini",
        "attributes.llm.input_messages": ASKED,
        "attributes.llm.output_messages": SAID,
        "attributes.llm.token_count.prompt": 12,
        "attributes.llm.token_count.completion": 3,
        "attributes.llm.cost.total": 0.002,
        "attributes.tag.tags": ["sums"],
        "eval.Correctness.score": 1.0,
    }
    pq.write_table(pa.Table.from_pylist([llm, {**llm, "span_kind": "CHAIN"}]), tmp_path / "spans.parquet")
    log = imported(tmp_path, "openinference", tmp_path / "spans.parquet", domain="tag.tags")
    check_span(log)
    assert next(log.outcomes_of("gpt-5-mini")).score == 1.0
    assert log.task(log.task_ids[0]).domain == "sums"


FLAT = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-5-mini",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.contents.0.message_content.type": "text",
    "llm.input_messages.0.message.contents.0.message_content.text": "What is 6 times 7?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "42",
    "llm.token_count.prompt": 12,
    "llm.token_count.completion": 3,
    "llm.cost.total": 0.002,
}


@pytest.mark.parametrize("nested", [False, True])
def test_the_sdk_s_spans_are_read(nested: bool, tmp_path: Path) -> None:
    attributes: Mapping[str, object] = FLAT
    if nested:
        attributes = {
            "openinference": {"span": {"kind": "LLM"}},
            "llm": {
                "model_name": "gpt-5-mini",
                "input_messages": [{"message": {"role": "user", "content": "What is 6 times 7?"}}],
                "output_messages": [{"message": {"role": "assistant", "content": "42"}}],
                "token_count": {"prompt": 12, "completion": 3},
                "cost": {"total": 0.002},
            },
        }
    row = {
        "name": "ChatCompletion",
        "start_time": "2026-11-01T12:00:00Z",
        "end_time": "2026-11-01T12:00:02Z",
        "status": {"status_code": "OK"},
        "attributes": attributes,
    }
    check_span(imported(tmp_path, "openinference", lines(tmp_path / "spans.jsonl", [row])))


def test_otlp_with_openinference_attributes_is_read(tmp_path: Path) -> None:
    def value(held: object) -> Mapping[str, object]:
        return {"stringValue": held} if isinstance(held, str) else {"doubleValue": held}

    span = {
        "name": "ChatCompletion",
        "startTimeUnixNano": "1000000000",
        "endTimeUnixNano": "3000000000",
        "attributes": [{"key": name, "value": value(held)} for name, held in FLAT.items()],
    }
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    check_span(imported(tmp_path, "openinference", lines(tmp_path / "spans.jsonl", [document])))


@pytest.mark.parametrize("kind", ["openinference", "otel"])
def test_a_span_that_was_exported_twice_is_one_call(kind: str, tmp_path: Path) -> None:
    asked, said = '[{"role": "user", "parts": [{"content": "Hi?"}]}]', '[{"role": "assistant", "parts": []}]'
    genai = {"gen_ai.request.model": "m", "gen_ai.operation.name": "chat", "gen_ai.input.messages": asked}
    held = FLAT if kind == "openinference" else {**genai, "gen_ai.output.messages": said}
    attributes = [{"key": name, "value": {"stringValue": str(value)}} for name, value in held.items()]
    span = {"traceId": "t", "spanId": "s", "name": "chat", "attributes": attributes}
    rows = [{"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "spanId": each}]}]}]} for each in ("s", "s", "z")]
    log = imported(tmp_path, kind, lines(tmp_path / "spans.jsonl", rows))
    assert (len(log.task_ids), len(log.workers)) == (1, 1)
    samples = [ColumnSpec("task_id"), ColumnSpec("samples", ColumnType.NUMBER, required=False, nullable=True)]
    assert list(read_columns(log.folder, "outcomes", samples).numbers["samples"]) == [2]


def test_what_is_no_span_says_what_was_expected(tmp_path: Path) -> None:
    file = lines(tmp_path / "rows.jsonl", [{"prompt": "What?", "model": "x"}])
    with pytest.raises(ConfigError, match=r"expected a span with `attributes` .* there are prompt, model"):
        imported(tmp_path, "openinference", file)
    span = {"attributes": {**FLAT, "score": 0.5}}
    with pytest.raises(ConfigError, match=r"expected scores under 'Correctness' or eval\.Correctness\.score"):
        imported(tmp_path, "openinference", lines(tmp_path / "spans.jsonl", [span]), score="Correctness")
