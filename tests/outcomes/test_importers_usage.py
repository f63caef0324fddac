"""Importers of what calls left behind: a proxy's spend logs and GenAI spans."""

import json
from itertools import count
from pathlib import Path

import pytest
from importing import Imported, document, imported, lines, refused, table

from shikisha.core.budget import Usage

Values = dict[str, object]


IDS = count()


def spent(**more: object) -> Values:
    row: Values = {
        "request_id": f"r{next(IDS)}",
        "call_type": "acompletion",
        "model": "azure/gpt-4o",
        "model_group": "gpt-4o",
    }
    row |= {"spend": 0.002, "total_tokens": 15, "prompt_tokens": 10, "completion_tokens": 5, "cache_hit": "False"}
    row |= {"startTime": "2025-03-01T12:00:00.000Z", "endTime": "2025-03-01T12:00:01.500Z", "status": "success"}
    row |= {"metadata": {"feedback": {"thumbs": 1}}, "messages": [{"role": "user", "content": "Hi?"}]}
    return row | {"response": {"choices": [{"message": {"role": "assistant", "content": "Ho."}}]}} | more


def logged(folder: Path, *rows: Values, options: tuple[str, ...] = ()) -> Imported:
    return imported("litellm", lines(folder / "spend.jsonl", rows), options=options)


class TestSpendLogs:
    def test_a_call(self, tmp_path: Path) -> None:
        found = logged(tmp_path, spent(), spent(model_group="", prompt_tokens=20))
        (task_id,) = found.log.task_ids
        call = found.one(task_id, "gpt-4o")
        assert found.log.task(task_id).prompt == "Hi?"
        assert (call.score, call.answer, call.usage) == (None, None, Usage(10, 5))
        assert (call.dollars, call.cost_kind) == (0.002, "recorded")
        assert found.log.responses("gpt-4o") == {task_id: "Ho."}
        assert found.more("latency_s") == [1.5, 1.5]
        assert found.one(task_id, "azure/gpt-4o").usage == Usage(20, 5)

    def test_further_calls_are_samples(self, tmp_path: Path) -> None:
        failed = spent(status="failure", response="{}", spend=0, prompt_tokens=0, completion_tokens=0, startTime=None)
        second = spent(spend=0.004, prompt_tokens=13, endTime="2025-03-01 12:00:00.5")
        graded = spent(response="Hum.", rating=0.5, startTime=0, endTime=1.0)
        found = logged(tmp_path, failed, spent(), second, graded, options=("--column", "score=rating"))
        (task_id,) = found.log.task_ids
        call = found.one(task_id, "gpt-4o")
        assert (call.score, call.usage, found.more("latency_s")) == (0.5, Usage(11, 5), [1.0])
        assert call.dollars == pytest.approx((0 + 0.002 + 0.004 + 0.002) / 4)
        assert found.log.responses("gpt-4o") == {task_id: "Hum."}  # the graded call's
        assert (found.more("samples"), found.told["merged"]) == ([4], 4)

    def test_a_row_that_stands_there_twice_is_one_call(self, tmp_path: Path) -> None:
        """A proxy's export has rows twice, whatever else differs in them."""
        twice = spent(request_id="r", rating=1.0)
        found = logged(
            tmp_path, twice, {**twice, "spend": None}, spent(rating=0.0), options=("--column", "score=rating")
        )
        assert (found.scores("gpt-4o"), found.more("samples")) == ([0.5], [2])
        assert found.told["left"] == {"calls that stand there twice": 1}

    @pytest.mark.parametrize(
        ("place", "values", "score"),
        [
            ("metadata.feedback.thumbs", {}, 1.0),
            ("rating", {"rating": 0.25}, 0.25),
            ("rating", {"rating": "true"}, 1.0),
            ("metadata.score", {"metadata": '{"score": 0}'}, 0.0),
        ],
    )
    def test_a_score_is_where_it_is_said_to_be(self, tmp_path: Path, place: str, values: Values, score: float) -> None:
        plain = spent(model_group="other", metadata={})
        found = logged(tmp_path, spent(**values), plain, options=("--column", f"score={place}"))
        assert (found.scores("gpt-4o"), found.scores("other")) == ([score], [None])
        assert found.told["graded"] == 1

    def test_what_is_left_out_is_counted(self, tmp_path: Path) -> None:
        rows = [
            spent(call_type="aembedding"),
            spent(model_group="", model=""),
            spent(cache_hit="True"),
            spent(messages="{}"),
            spent(messages={}, proxy_server_request="{}"),
            spent(messages="x ... (litellm_truncated skipped 9 chars) ... y"),
        ]
        found = logged(tmp_path, *rows, spent())
        assert (found.told["outcomes"], found.told["left"]) == (
            1,
            {
                "calls that are no chat": 1,
                "calls that reached no model": 1,
                "answers from the proxy's cache": 1,
                "calls whose prompt the proxy did not store (store_prompts_in_spend_logs)": 2,
                "calls whose prompt the proxy cut": 1,
            },
        )

    def test_a_log_without_any_prompt_is_refused_with_the_reason(self, tmp_path: Path) -> None:
        said = refused("litellm", lines(tmp_path / "x.jsonl", [spent(messages={})]))
        assert "no outcome in what was read (left out: calls whose prompt the proxy did not store" in said

    @pytest.mark.parametrize(
        ("request_body", "prompt"),
        [
            ({"messages": [{"role": "user", "content": "Hi?"}]}, "Hi?"),
            ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi?"}]}]}, "Hi?"),
            ({"input": "Hi?"}, "Hi?"),
            ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi?"}]}]}, "Hi?"),
            ({"prompt": "Hi?"}, "Hi?"),
            (
                {"system": "Be brief.", "messages": [{"role": "user", "content": "Hi?"}]},
                "[system]\nBe brief.\n\n[user]\nHi?",
            ),
            ({"instructions": "Be brief.", "input": "Hi?"}, "[system]\nBe brief.\n\n[user]\nHi?"),
        ],
    )
    def test_prompts_in_the_request(self, tmp_path: Path, request_body: Values, prompt: str) -> None:
        found = logged(tmp_path, spent(messages="{}", proxy_server_request=json.dumps(request_body)))
        assert found.log.task(found.log.task_ids[0]).prompt == prompt

    def test_a_conversation_is_told_under_its_roles(self, tmp_path: Path) -> None:
        call = {"id": "c", "function": {"name": "look"}}
        chat: list[Values] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
        chat += [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "42"}]
        found = logged(tmp_path, spent(messages=chat))
        assert found.log.task(found.log.task_ids[0]).prompt == (
            '[system]\nBe brief.\n\n[user]\nHi?\n\n[assistant]\n[{"id":"c","function":{"name":"look"}}]\n\n[tool]\n42'
        )

    @pytest.mark.parametrize(
        ("response", "text"),
        [
            ({"choices": [{"text": "Ho."}]}, "Ho."),
            (
                {
                    "output": [
                        {"type": "reasoning"},
                        {"type": "message", "content": [{"type": "output_text", "text": "Ho."}]},
                    ]
                },
                "Ho.",
            ),
            ({"content": [{"type": "text", "text": "Ho."}]}, "Ho."),
            ('{"choices": [{"message": {"content": "Ho."}}]}', "Ho."),
            ("Ho.", "Ho."),
            ("{}", None),
            (None, None),
        ],
    )
    def test_responses(self, tmp_path: Path, response: object, text: str | None) -> None:
        found = logged(tmp_path, spent(response=response), spent(model_group="other"))
        assert found.log.responses("gpt-4o") == ({found.log.task_ids[0]: text} if text else {})

    def test_csv_holds_the_same_as_text(self, tmp_path: Path) -> None:
        row = spent()
        row |= {name: json.dumps(row[name]) for name in ("metadata", "messages", "response")}
        found = imported("litellm", table(tmp_path / "spend.csv", [row | {"request_duration_ms": 250}]))
        call = found.one(found.log.task_ids[0], "gpt-4o")
        assert (call.usage, call.dollars, found.more("latency_s")) == (Usage(10, 5), 0.002, [0.25])

    def test_a_table_as_an_array_and_half_a_character(self, tmp_path: Path) -> None:
        found = imported("litellm", document(tmp_path / "spend.json", [spent(response="Ho\ud83d")]))
        assert list(found.log.responses("gpt-4o").values()) == ["Ho\ufffd"]
        assert list(json.loads(json.dumps(found.told["remarks"])).values()) == [1]


def attribute(value: object) -> Values:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [attribute(one) for one in value]}}
        case dict():
            return {"kvlistValue": {"values": attributes(value)}}
        case _:
            return {"stringValue": value}


def attributes(values: Values) -> list[Values]:
    return [{"key": name, "value": attribute(value)} for name, value in values.items()]


CHAT: Values = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4",
    "gen_ai.response.model": "gpt-4-0613",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.usage.input_tokens": 52,
    "gen_ai.usage.output_tokens": 7,
}
ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}]
TOLD = [{"role": "assistant", "parts": [{"type": "text", "content": "Rain."}], "finish_reason": "stop"}]
FULL = CHAT | {"gen_ai.input.messages": json.dumps(ASKED), "gen_ai.output.messages": json.dumps(TOLD)}


def happened(name: str, **values: object) -> Values:
    return {
        "name": name,
        "timeUnixNano": "1",
        "attributes": attributes({k.replace("__", "."): v for k, v in values.items()}),
    }


def span(values: Values, *events: Values, number: int = 1, **more: object) -> Values:
    row: Values = {"traceId": "t", "spanId": f"s{number}", "name": "chat gpt-4", "attributes": attributes(values)}
    row |= {
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000000250000000",
        "events": list(events),
    }
    return row | more


def export(*spans: Values) -> Values:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


def evaluation(value: float | None, name: str = "Correctness", response: str = "") -> Values:
    values: Values = {"gen_ai.evaluation.name": name}
    values |= {} if value is None else {"gen_ai.evaluation.score.value": value}
    values |= {"gen_ai.response.id": response} if response else {}
    return {"name": "gen_ai.evaluation.result", "attributes": attributes(values)}


def logs(*records: Values) -> Values:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}


def traced(folder: Path, *exports: Values, options: tuple[str, ...] = ()) -> Imported:
    return imported("otel", lines(folder / "traces.jsonl", exports), options=options)


class TestSpans:
    def test_a_model_call(self, tmp_path: Path) -> None:
        found = traced(tmp_path, export(span(FULL, evaluation(0.75))))
        (task_id,) = found.log.task_ids
        call = found.one(task_id, "gpt-4")
        assert found.log.task(task_id).prompt == "Weather?"
        assert (call.score, call.usage, call.dollars, call.cost_kind) == (0.75, Usage(52, 7), None, "absent")
        assert found.log.responses("gpt-4") == {task_id: "Rain."}
        assert found.more("latency_s") == [0.25]

    @pytest.mark.parametrize(
        ("values", "events"),
        [
            (CHAT | {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": TOLD}, []),
            (
                CHAT,
                [
                    happened("gen_ai.user.message", content="Weather?"),
                    happened("gen_ai.choice", index=0, message='{"role": "assistant", "content": "Rain."}'),
                ],
            ),
            (
                CHAT,
                [
                    happened("gen_ai.content.prompt", gen_ai__prompt='[{"role": "user", "content": "Weather?"}]'),
                    happened(
                        "gen_ai.content.completion", gen_ai__completion='[{"role": "assistant", "content": "Rain."}]'
                    ),
                ],
            ),
            (
                CHAT
                | {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Weather?"}
                | {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Rain."},
                [],
            ),
            (CHAT | {"gen_ai.prompt": "Weather?", "gen_ai.completion": "Rain."}, []),
        ],
    )
    def test_the_ways_in_which_messages_are_written(self, tmp_path: Path, values: Values, events: list[Values]) -> None:
        found = imported("otel", document(tmp_path / "trace.json", export(span(values, *events))))
        (task_id,) = found.log.task_ids
        assert found.log.task(task_id).prompt == "Weather?"
        assert found.log.responses("gpt-4") == {task_id: "Rain."}

    def test_system_instructions_come_first_and_other_parts_as_json(self, tmp_path: Path) -> None:
        parts = [{"type": "text", "content": "Weather?"}, {"type": "uri", "uri": "a.png"}]
        values = FULL | {"gen_ai.input.messages": [{"role": "user", "parts": parts}]}
        rules = [{"type": "text", "content": "Be brief."}]
        found = traced(tmp_path, export(span(values | {"gen_ai.system_instructions": rules})))
        prompt = found.log.task(found.log.task_ids[0]).prompt
        assert prompt == '[system]\nBe brief.\n\n[user]\nWeather?\n{"type":"uri","uri":"a.png"}'

    def test_log_records_bring_messages_and_scores(self, tmp_path: Path) -> None:
        details = attributes({"gen_ai.input.messages": ASKED, "gen_ai.output.messages": TOLD})
        by_response = evaluation(0.5, response="chatcmpl-2") | {"eventName": "gen_ai.evaluation.result"}
        records: list[Values] = [
            {
                "traceId": "t",
                "spanId": "s1",
                "eventName": "gen_ai.client.inference.operation.details",
                "attributes": details,
            },
            {"traceId": "t", "spanId": "s1", **evaluation(1.0), "eventName": "gen_ai.evaluation.result"},
            by_response,
            {"traceId": "t", "spanId": "gone", **evaluation(1.0), "eventName": "gen_ai.evaluation.result"},
            {"body": {"stringValue": "a line of text"}},
        ]
        second = FULL | {"gen_ai.request.model": "other", "gen_ai.response.id": "chatcmpl-2"}
        found = imported(
            "otel",
            lines(tmp_path / "logs.jsonl", [logs(*records)]),
            lines(tmp_path / "traces.jsonl", [export(span(CHAT)), export(span(second, number=2))]),
        )
        assert (found.scores("gpt-4"), found.scores("other")) == ([1.0], [0.5])
        assert found.told["left"] == {"evaluations of something else than a model call": 1}

    def test_older_events_are_log_records_with_a_body(self, tmp_path: Path) -> None:
        asked: Values = {"eventName": "gen_ai.user.message", "body": attribute({"content": "Weather?"})}
        body = attribute({"index": 0, "message": {"content": "Rain."}})
        told: Values = {"attributes": attributes({"event.name": "gen_ai.choice"}), "body": body}
        keyed = [{"traceId": "t", "spanId": "s1", **record} for record in (asked, told)]
        found = traced(tmp_path, export(span(CHAT)), logs(*keyed))
        assert found.log.responses("gpt-4") == {found.log.task_ids[0]: "Rain."}

    def test_what_is_left_out_is_counted_and_failed_calls_are_not(self, tmp_path: Path) -> None:
        spans = [
            span({"http.method": "GET"}, number=1),
            span(FULL | {"gen_ai.operation.name": "embeddings"}, number=2),
            span(CHAT, number=3),
            span(FULL, number=4, status={"code": 2}, endTimeUnixNano="0"),
        ]
        found = traced(tmp_path, export(*spans))
        assert found.told["left"] == {
            "spans that are no model call": 2,
            "model calls whose prompt was not captured": 1,
        }
        assert (found.told["outcomes"], found.told["responses"]) == (1, 0)

    def test_one_evaluation_of_several_is_chosen(self, tmp_path: Path) -> None:
        call = export(span(FULL, evaluation(0.0), evaluation(1.0), evaluation(0.9, "Relevance"), evaluation(None)))
        assert traced(tmp_path, call, options=("--column", "score=Correctness")).scores("gpt-4") == [0.5]

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ((), "choose one with --column score=NAME: Correctness, Relevance"),
            (("--column", "score=Truth"), "expected evaluations named 'Truth'; there are Correctness, Relevance"),
        ],
    )
    def test_it_must_be_clear_which_evaluation_is_meant(
        self, tmp_path: Path, options: tuple[str, ...], problem: str
    ) -> None:
        call = export(span(FULL, evaluation(0.0), evaluation(0.9, "Relevance")))
        assert problem in refused("otel", lines(tmp_path / "traces.jsonl", [call]), options=options)

    def test_exporters_write_lines_into_files_called_json(self, tmp_path: Path) -> None:
        exports = [export(span(FULL)), export(span(FULL | {"gen_ai.request.model": "other"}, number=2))]
        found = imported("otel", lines(tmp_path / "traces.json", exports))
        assert found.log.workers == ("gpt-4", "other")
