"""Exports of gateways, traces and evaluation tools, in the layouts that their documentation shows: one command each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from importing import command, document, imported, lines, refused, table

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
REPLY = {"choices": [{"message": {"role": "assistant", "content": "4"}}], "usage": {"prompt_tokens": 9}}

LINES: Mapping[str, tuple[Mapping[str, object], Sequence[str]]] = {
    "lm-eval samples": (
        {"doc_id": 0, "doc": {"question": "2 + 2?"}, "target": "4", "arguments": [["Q: 2 + 2?", {}]],
         "resps": [["It is 4."]], "filtered_resps": ["4"], "exact_match": 1.0},
        ("--column", "worker=folder"),
    ),
    "Helicone requests": (
        {"request_id": "r", "request_body": {"model": "m", "messages": ASKED}, "response_body": REPLY,
         "request_model": "m", "cost_usd": 0.01, "delay_ms": 1200, "feedback_rating": True},
        (),
    ),
    "Langfuse observations": (
        {"id": "o", "traceId": "t", "type": "GENERATION", "model": "m", "input": ASKED,
         "output": {"role": "assistant", "content": "4"}, "totalCost": 0.01, "latency": 1.2, "scores": {"accuracy": 1}},
        (),
    ),
    "LangSmith runs": (
        {"id": "r", "name": "run", "inputs": {"question": "2 + 2?"}, "outputs": {"output": "4"}, "total_cost": 0.01,
         "extra": {"metadata": {"ls_model_name": "m"}}, "feedback_stats": {"correctness": {"n": 1, "avg": 1.0}}},
        (),
    ),
    "Portkey logs": (
        {"id": "p", "ai_model": "m", "request": {"messages": ASKED}, "response": REPLY, "cost": 0.01,
         "response_time_ms": 1200, "weighted_feedback": 1},
        (),
    ),
    "Braintrust experiment": (
        {"id": "b", "input": "2 + 2?", "output": "4", "expected": "4", "scores": {"correctness": 1},
         "metadata": {"model": "m"}, "metrics": {"prompt_tokens": 9, "completion_tokens": 1}},
        (),
    ),
    "Phoenix evals, flat": (
        {"attributes.input.value": "2 + 2?", "attributes.llm.model_name": "m", "attributes.output.value": "4",
         "label": "correct"},
        ("--column", "prompt=attributes.input.value", "--column", "response=attributes.output.value"),
    ),
    "simple-evals": ({"question": "2 + 2?", "model": "m", "is_correct": True, "response_text": "4"}, ()),
    "judgments of MT-bench": (
        {"question_id": 1, "model": "m", "user_prompt": "2 + 2?", "judgment": "[[10]]", "score": 10, "turn": 1},
        ("--scale", "1:10"),
    ),
    "RouterArena": (
        {"global_index": "A_1", "question": "2 + 2?", "llm_selected": "m", "generated_answer": "4", "provider": "g",
         "evaluation_result": {"extracted_answer": "4", "ground_truth": "4", "score": 1.0, "inference_cost": 0.01}},
        (),
    ),
    "trajectories of tau-bench": (
        {"task_id": 0, "reward": 1.0, "traj": [{"role": "user", "content": "Hi"}], "trial": 0,
         "info": {"task": {"instruction": "2 + 2?", "actions": [], "outputs": ["4"]}}},
        ("--column", "worker=folder"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_an_export_is_an_outcome(tmp_path: Path, name: str) -> None:
    row, options = LINES[name]
    (tmp_path / "m").mkdir()
    found = imported("table", lines(tmp_path / "m" / "rows.jsonl", [row]), options=options)
    assert found.log.workers == ("m",)
    assert found.scores("m") == [1.0]
    assert "2 + 2?" in found.log.task(found.log.task_ids[0]).prompt
    (one,) = found.log.outcomes_of("m")
    if "cost" in " ".join(row).casefold():
        assert one.dollars == 0.01
    if name == "RouterArena":
        assert (one.dollars, one.answer, found.log.answer_text(one)) == (0.01, "4", "4")
    if any(word in name for word in ("Helicone", "Langfuse", "Portkey")):
        assert one.seconds == 1.2


DOCUMENTS: Mapping[str, tuple[object, Sequence[str]]] = {
    "promptfoo": (
        {"evalId": "e", "results": {"version": 3, "results": [
            {"provider": {"id": "m", "label": ""}, "prompt": {"raw": "Say: 2 + 2?", "label": "p"}, "success": True,
             "vars": {"language": "en"}, "response": {"output": "4"}, "score": 1, "latencyMs": 1200, "cost": 0.01}]}},
        (),
    ),
    "Inspect": (
        {"version": 2, "eval": {"task": "sums", "model": "m"}, "samples": [
            {"id": 1, "input": "2 + 2?", "target": "4", "output": {"completion": "4"},
             "scores": {"match": {"value": "correct", "answer": "4"}}}]},
        (),
    ),
    "DeepEval": (
        {"testFile": "t", "hyperparameters": {"model": "m"}, "testCases": [
            {"name": "one", "input": "2 + 2?", "actualOutput": "4", "expectedOutput": "4", "success": True,
             "metricsData": [{"name": "Correctness", "score": 0.9, "success": True}]}]},
        (),
    ),
    "MLflow table": (
        {"columns": ["inputs", "model", "outputs", "score"], "data": [["2 + 2?", "m", "4", 1]]},
        (),
    ),
    "every-eval": (
        [{"model_info": {"model_name": "m"}, "instance_result": {"input": "2 + 2?", "is_correct": True}}],
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_rows_of_a_document_are_outcomes(tmp_path: Path, name: str) -> None:
    value, options = DOCUMENTS[name]
    found = imported("table", document(tmp_path / "export.json", value), options=options)
    assert (found.log.workers, found.scores("m")) == (("m",), [1.0])
    assert "2 + 2?" in found.log.task(found.log.task_ids[0]).prompt


REFUSED: Mapping[str, tuple[Sequence[Mapping[str, object]], str]] = {
    "OpenRouter activity": (
        [{"generation_id": "g", "created_at": "2026-01-01", "cost_total": "0.1", "model_permaslug": "m"}],
        "--column prompt=NAME",
    ),
    "Ragas": (
        [{"user_input": "2 + 2?", "response": "4", "reference": "4", "faithfulness": "0.9"}],
        "--column worker=file",
    ),
    "HELM predictions": (
        [{"instance_id": "id0", "predicted_text": "4", "train_trial_index": 0, "exact_match": 1.0}],
        "--column prompt=NAME",
    ),
    "a survey of 1 to 5": (
        [{"question": "Q", "model": "m", "rating": rating} for rating in ("1", "4", "5")],
        "--scale 1:5",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_lacks_something_names_the_option(tmp_path: Path, name: str) -> None:
    rows, option = REFUSED[name]
    assert option in " ".join(refused("table", table(tmp_path / "export.csv", rows)).split())


def test_a_file_a_model_is_one_command(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for model, score in (("small", "0,5"), ("large", "1")):
        (tmp_path / "runs" / f"{model}.csv").write_text(f"user_input;answer_correctness\n2 + 2?;{score}\n")
    found = imported("table", tmp_path / "runs", options=["--column", "worker=file"])
    assert (found.scores("small"), found.scores("large")) == ([0.5], [1.0])  # as spreadsheets of Europe write it


def test_votes_of_an_arena_with_conversations(tmp_path: Path) -> None:
    def said(answer: str) -> list[Mapping[str, str]]:
        return [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": answer}]

    row = {"model_a": "small", "model_b": "large", "winner": "model_b",
           "conversation_a": said("5"), "conversation_b": said("4")}  # fmt: skip
    found = imported("table", lines(tmp_path / "votes.jsonl", [row]))
    assert found.log.task(found.log.task_ids[0]).prompt == "2 + 2?"
    assert found.one(found.log.task_ids[0], "large").score == 1.0


def test_preferences_from_one_to_two(tmp_path: Path) -> None:
    rows = [{"instruction": "2 + 2?", "generator_1": "small", "output_1": "5", "generator_2": "large", "output_2": "4",
             "preference": preference} for preference in (2.0, 1.9, 1.5)]  # fmt: skip
    found = imported("table", document(tmp_path / "annotations.json", rows))
    assert set(found.log.workers) == {"large", "small"}
    assert found.one(found.log.task_ids[0], "large").score == pytest.approx(2.5 / 3)


def test_a_deep_or_wide_object_is_read_in_bounded_work(tmp_path: Path) -> None:
    deep: object = "x"
    for _ in range(200):
        deep = {"a": deep}
    row = {"prompt": "Q", "model": "m", "score": 1, "deep": deep, "wide": {f"k{n}": n for n in range(5_000)}}
    assert imported("table", lines(tmp_path / "x.jsonl", [row])).scores("m") == [1.0]


def test_columns_that_are_not_taken_are_named(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [{"prompt": "Q", "model": "m", "score": 1, "more": {"what": 2}}])
    said, told = command("table", str(file), "--out", str(tmp_path / "log"))
    assert "column not taken over: more.what" in said + told
