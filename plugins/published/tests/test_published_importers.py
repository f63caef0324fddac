"""Importers of benchmarks' results: what they make of each layout, read back as a log."""

import json
import zipfile
from pathlib import Path

import pytest
from importing import command, document, imported, lines, refused, table

from shikisha.core.budget import Price, Usage

STRONG, WEAK = "gpt-4-1106-preview", "mistralai/Mixtral-8x7B-Instruct-v0.1"


def verdicts(prompt: str, weak: object, strong: object) -> dict[str, object]:
    return {"prompt": prompt, WEAK: weak, STRONG: strong}


class TestRouteLLM:
    def test_a_folder_of_subjects(self, tmp_path: Path) -> None:
        (tmp_path / "responses").mkdir()
        table(tmp_path / "responses" / "mmlu_anatomy.csv", [verdicts('Which "bone",\nsay?\nA. x', True, False)])
        table(tmp_path / "responses" / "mmlu_virology.csv", [verdicts("Q2", False, True), verdicts("Q3", "True", 1)])
        found = imported("routellm", tmp_path / "responses")
        assert found.log.workers == (WEAK, STRONG)
        assert (found.scores(WEAK), found.scores(STRONG)) == ([1.0, 0.0, 1.0], [0.0, 1.0, 1.0])
        tasks = [found.log.task(task_id) for task_id in found.log.task_ids]
        assert [task.domain for task in tasks] == ["anatomy", "virology", "virology"]
        assert tasks[0].prompt == 'Which "bone",\nsay?\nA. x'
        assert all(task.id.startswith("routellm/") for task in tasks)

    def test_responses_beside_the_verdicts(self, tmp_path: Path) -> None:
        row = verdicts("Q", True, False) | {f"{WEAK}_response": " #### 18", f"{STRONG}_response": None}
        found = imported("routellm", table(tmp_path / "gsm8k_responses.csv", [row]))
        (task_id,) = found.log.task_ids
        assert found.log.task(task_id).domain == "gsm8k"
        assert found.log.responses(WEAK) == {task_id: " #### 18"}
        assert found.log.responses(STRONG) == {}

    def test_a_question_that_is_asked_twice_is_merged_and_counted(self, tmp_path: Path) -> None:
        rows = [verdicts("Q", True, True), verdicts("Other", True, True), verdicts("Q", False, True)]
        found = imported("routellm", table(tmp_path / "mmlu_x.csv", rows))
        assert (found.scores(WEAK), found.scores(STRONG)) == ([0.5, 1.0], [1.0, 1.0])
        assert found.more("samples") == [2, 2, 1, 1]
        assert found.told.items() >= {"tasks": 2, "outcomes": 4, "graded": 4, "merged": 4, "left": {}}.items()

    @pytest.mark.parametrize(
        ("winner", "scores"), [("model_a", (1.0, 0.0)), ("model_b", (0.0, 1.0)), ("tie", (0.5, 0.5))]
    )
    def test_battles(self, tmp_path: Path, winner: str, scores: tuple[float, float]) -> None:
        row = {"model_a": "a", "model_b": "b", "prompt": '["Hi", "More?"]', "response_a": '["Ho", null]'}
        row |= {"response_b": '["Hm", "Yes"]', **dict.fromkeys(("winner_model_a", "winner_model_b", "winner_tie"), "0")}
        found = imported("routellm", lines(tmp_path / "battles.jsonl", [row | {f"winner_{winner}": 1}]))
        (task_id,) = found.log.task_ids
        assert (found.one(task_id, "a").score, found.one(task_id, "b").score) == scores
        assert (found.log.task(task_id).prompt, found.log.task(task_id).domain) == ("Hi\n\nMore?", "battles")
        assert (found.log.responses("a"), found.log.responses("b")) == ({task_id: "Ho"}, {task_id: "Hm\n\nYes"})


WIDE = [
    {
        "sample_id": "grade-school-math.dev.0",
        "prompt": "['Two\\'s double?', 'Now halve it.']",
        "eval_name": "grade-school-math",
        "gpt-4": 1.0,
        "cheap": 0.25,
        "gpt-4|model_response": "['4']",
        "cheap|model_response": "five [or six",
        "gpt-4|total_cost": 0.002,
        "cheap|total_cost": 0.0001,
        "oracle_model_to_route_to": "gpt-4",
    },
    {
        "sample_id": "mmlu.val.3",
        "prompt": "[unfinished",
        "eval_name": "mmlu",
        "gpt-4": 0.0,
        "cheap": None,
        "gpt-4|model_response": None,
        "cheap|model_response": None,
        "gpt-4|total_cost": None,
        "cheap|total_cost": None,
        "oracle_model_to_route_to": "no_model_correct",
    },
]


class TestRouterBench:
    @pytest.mark.parametrize("name", ["wide.csv", "wide.parquet"])
    def test_a_wide_table(self, tmp_path: Path, name: str) -> None:
        found = imported("routerbench", table(tmp_path / name, WIDE))
        first, second = "routerbench/grade-school-math.dev.0", "routerbench/mmlu.val.3"
        assert found.log.task_ids == (first, second)
        assert found.log.task(first).prompt == "Two's double?\n\nNow halve it."
        assert found.log.task(second).prompt == "[unfinished"
        best, cheap, unpriced = found.one(first, "gpt-4"), found.one(first, "cheap"), found.one(second, "gpt-4")
        assert (best.score, best.dollars, best.cost_kind) == (1.0, 0.002, "derived")
        assert (cheap.score, found.log.responses("cheap")) == (0.25, {first: "five [or six"})
        assert (unpriced.score, unpriced.dollars, unpriced.cost_kind) == (0.0, None, "absent")
        assert found.log.find(second, "cheap") is None

    def test_a_pickle_is_refused_with_a_way_out(self, tmp_path: Path) -> None:
        (tmp_path / "routerbench_0shot.pkl").write_bytes(b"\x80\x04N.")
        said = refused("routerbench", tmp_path / "routerbench_0shot.pkl")
        assert f"pandas.read_pickle('{tmp_path}/routerbench_0shot.pkl').to_csv(" in said


ROUTED: dict[str, object] = {
    "task_name": "mmlu",
    "query": "Capital of France?",
    "ground_truth": "A",
    "metric": "em_mc",
    "choices": '{"text": ["Paris", "Lyon"], "labels": ["A", "B"]}',
    "task_id": None,
    "model_name": "small",
    "response": "(A)",
    "token_num": 1100,
    "input_tokens": 1000,
    "output_tokens": 100,
    "response_time": 1.5,
    "performance": 1.0,
    "embedding_id": 0,
}
CANDIDATES = {"small": {"size": "7B", "input_price": 0.2, "output_price": 0.4, "model": "x/small"}}


class TestLLMRouter:
    def test_routing_data_with_prices(self, tmp_path: Path) -> None:
        routing = lines(tmp_path / "train.jsonl", [ROUTED, ROUTED | {"model_name": "other", "performance": 0}])
        found = imported("llmrouter", routing, document(tmp_path / "llm.json", CANDIDATES))
        (task_id,) = found.log.task_ids
        assert found.log.task(task_id).prompt == "Capital of France?\nA. Paris\nB. Lyon"
        assert (found.log.gold(task_id).answer, found.log.gold(task_id).kind) == ("A", "choice")
        small, other = found.one(task_id, "small"), found.one(task_id, "other")
        assert (small.score, small.usage, small.cost_kind) == (1.0, Usage(1000, 100), "derived")
        assert small.dollars == pytest.approx(1000 * 0.2e-6 + 100 * 0.4e-6)
        assert (other.score, other.dollars, other.cost_kind) == (0.0, None, "absent")
        assert found.log.prices == {"small": Price(0.2, 0.4)}
        assert found.more("latency_s") == [1.5, 1.5]

    @pytest.mark.parametrize("choices", ["['Paris', 'Lyon']", ["Paris", "Lyon"], "{'text': ['Paris', 'Lyon']}"])
    def test_the_ways_in_which_choices_are_written(self, tmp_path: Path, choices: object) -> None:
        found = imported("llmrouter", lines(tmp_path / "x.jsonl", [ROUTED | {"choices": choices}]))
        assert found.log.task(found.log.task_ids[0]).prompt == "Capital of France?\nA. Paris\nB. Lyon"

    def test_older_names_in_csv_and_a_worked_solution(self, tmp_path: Path) -> None:
        row = {"task_name": "gsm8k", "query": "2 + 2?", "gt": "2 + 2 = <<2+2=4>>4\n#### 4", "metric": "GSM8K"}
        row |= {"choices": "", "model_name": "m", "response": "4", "performance": "0.5", "prompt_tokens": "7"}
        found = imported("llmrouter", table(tmp_path / "data.csv", [row | {"completion_tokens": "1.0"}]))
        (task_id,) = found.log.task_ids
        assert (found.log.gold(task_id).answer, found.log.gold(task_id).kind) == ("4", "number")
        assert (found.one(task_id, "m").score, found.one(task_id, "m").usage) == (0.5, Usage(7, 1))

    def test_tests_of_code_are_not_shown(self, tmp_path: Path) -> None:
        code: dict[str, object] = {
            "metric": "code_eval",
            "choices": "['assert f() == 1']",
            "ground_truth": ["assert f() == 1"],
        }
        found = imported("llmrouter", lines(tmp_path / "x.jsonl", [ROUTED | code]))
        (task_id,) = found.log.task_ids
        assert found.log.task(task_id).prompt == "Capital of France?"
        assert found.log.gold(task_id).answer == '["assert f() == 1"]'

    def test_scores_alone(self, tmp_path: Path) -> None:
        rows = [{"question": "Q", "scores": {"a": 1.0, "b": 0.25}, "cluster_id": 3}]
        found = imported("llmrouter", document(tmp_path / "train.json", rows))
        assert (found.scores("a"), found.scores("b")) == ([1.0], [0.25])


def asked(number: int, pred: str | None, **more: object) -> dict[str, object]:
    row = {"question_id": number, "question": "Which?", "options": ["x", "y", "N/A"], "answer": "B", "answer_index": 1}
    return row | {"cot_content": "", "category": "law", "pred": pred, "model_outputs": f"so ({pred})"} | more


class TestMMLUPro:
    def test_a_model_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "eval_results").mkdir()
        rows = [asked(70, "B"), asked(71, "A"), asked(72, None)]
        document(tmp_path / "eval_results" / "model_outputs_One-7b_5shots.json", rows)
        packed = tmp_path / "eval_results" / "model_outputs_two.v1_0-shots.json.zip"
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("two.json", json.dumps([asked(70, "B", generated_text="t")]))
            archive.writestr("__MACOSX/._two.json", "\x00")
        found = imported("mmlu-pro", tmp_path / "eval_results")
        assert found.log.workers == ("One-7b", "two.v1")
        assert (found.scores("One-7b"), found.scores("two.v1")) == ([1.0, 0.0, 0.0], [1.0])
        assert found.log.task("mmlu-pro/70").prompt == "Which?\nA. x\nB. y"
        assert [outcome.answer for outcome in found.log.outcomes_of("One-7b")] == ["B", "A", None]
        assert found.log.gold("mmlu-pro/71").answer == "B"

    def test_files_a_category_are_named_for_their_folder(self, tmp_path: Path) -> None:
        (tmp_path / "gpt-4o").mkdir()
        document(tmp_path / "gpt-4o" / "law_result.json", [asked(1, "B")])
        assert imported("mmlu-pro", tmp_path / "gpt-4o").log.workers == ("gpt-4o",)

    def test_a_question_that_was_corrected_is_another_task(self, tmp_path: Path) -> None:
        one = document(tmp_path / "a.json", [asked(1, "B"), asked(2, "B")])
        other = document(tmp_path / "b.json", [asked(1, "B", answer="A"), asked(2, "B", question="Which one?")])
        third = document(tmp_path / "c.json", [asked(1, "A", answer="A")])
        found = imported("mmlu-pro", one, other, third)
        assert (found.told["tasks"], found.told["apart"]) == (4, 2)
        assert (found.scores("a"), found.scores("b"), found.scores("c")) == ([1.0, 1.0], [0.0, 1.0], [1.0])
        assert sum(task_id.startswith("mmlu-pro/1~") for task_id in found.log.task_ids) == 1


def said(answer: str) -> str:
    return f'```json\n{{\n    "reasoning": "hm, {{}} \\"so\\"",\n    "answer": {answer}\n}}\n```'


class TestZeroEval:
    @pytest.mark.parametrize(
        ("dataset", "right", "output", "answer", "score"),
        [
            ("gsm", "# 18", said('"$18.00 a day"'), "$18.00 a day", 1.0),
            ("gsm", "# 1800", said("1800"), "1800", 1.0),
            ("gsm", "#1,800", said('"1,801"'), "1,801", 0.0),
            ("gsm", "# 18", said('"none"'), "none", 0.0),
            ("gsm", "# 18", "I do not know.", None, 0.0),
            ("gsm", "# 18", '{"reasoning": "cut off, "answer": "18"', "18", 1.0),
            ("gsm", "# 18", '{"reasoning": "x", "answer": 18, ', "18", 1.0),
            ("math-l5", "\\frac{1}{2}", said('"1/2"'), "1/2", 0.0),
            ("math-l5", "1/2", said('"0.5"'), "0.5", 1.0),
            ("crux", "'a b'", said('"a b"'), "a b", 1.0),
            ("crux", "[1]", said('"[1, 2]"'), "[1, 2]", 0.0),
            ("crux", "[1]", said("[1]"), "[1]", 1.0),
        ],
    )
    def test_answers_and_scores(
        self, tmp_path: Path, dataset: str, right: str, output: str, answer: str | None, score: float
    ) -> None:
        row = {"session_id": 4, "id": 4, "question": "Q?", "answer": right, "dataset": dataset, "output": [output]}
        found = imported("zeroeval", document(tmp_path / "some-model.json", [row]))
        outcome = found.one(f"zeroeval/{dataset}/4", "some-model")
        assert (outcome.answer, outcome.score) == (answer, score)
        assert found.log.responses("some-model") == {f"zeroeval/{dataset}/4": output}

    @pytest.mark.parametrize(("worker", "score"), [("Llama-3.1-8B", 1.0), ("Llama-3-8B", 0.0)])
    def test_a_boxed_answer_counts_for_the_models_for_which_the_leaderboard_lets_it(
        self, tmp_path: Path, worker: str, score: float
    ) -> None:
        row = {"id": 1, "problem": "P", "answer": "7", "dataset": "math-l5", "output": ["So it is $\\boxed{7}$."]}
        found = imported("zeroeval", document(tmp_path / f"{worker}.json", [row]))
        assert found.scores(worker) == [score]

    @pytest.mark.parametrize(("answer", "score"), [('"B"', 1.0), ('"B) y"', 1.0), ('"A"', 0.0)])
    def test_choices(self, tmp_path: Path, answer: str, score: float) -> None:
        row = {"id": "r-1", "question": "Q?", "choices": ["x", "y"], "correct_answer": "y", "dataset": "mmlu-redux"}
        found = imported("zeroeval", document(tmp_path / "m.json", [row | {"output": [said(answer)]}]))
        assert found.log.task("zeroeval/mmlu-redux/r-1").prompt == "Q?\nA. x\nB. y"
        assert (found.scores("m"), found.log.gold("zeroeval/mmlu-redux/r-1").answer) == ([score], "B")

    @pytest.mark.parametrize("start", ["", "result_dirs"])
    def test_the_repository_is_read_as_it_is_published(self, tmp_path: Path, start: str) -> None:
        row = {"id": "a", "question": "Q?", "answer": "# 4", "dataset": "gsm", "output": [said('"4"')]}
        results = tmp_path / "result_dirs"
        for dataset in ("gsm", "gsm/sampling", "zebra-grid", "alpaca_eval"):
            (results / dataset).mkdir(parents=True)
            document(results / dataset / "m.json", [row] if dataset == "gsm" else [{"instruction": "?"}])
        document(results / "gsm.summary.json", [{"Model": "m", "Acc": "90"}])
        found = imported("zeroeval", tmp_path / start)
        assert found.scores("m") == [1.0]
        left = "data sets that have no public solutions or another layout: "
        assert found.told["left"] == {f"{left}alpaca_eval": 1, f"{left}zebra-grid": 1}

    def test_samples_are_averaged(self, tmp_path: Path) -> None:
        row = {"id": "a", "question": "Q?", "answer": "# 4", "dataset": "gsm"}
        outputs = [said('"4"'), said('"5"'), "nothing", said("4")]
        found = imported("zeroeval", document(tmp_path / "m.json", [row | {"output": outputs}]))
        assert (found.scores("m"), found.more("samples"), found.told["merged"]) == ([0.5], [4], 4)
        assert found.one("zeroeval/gsm/a", "m").answer == "4"

    def test_a_set_without_public_solutions_is_not_graded(self, tmp_path: Path) -> None:
        row = {"id": "lgp-1", "puzzle": "There are 2 houses.", "dataset": "zebra-grid", "output": [said('"x"')]}
        found = imported("zeroeval", document(tmp_path / "m.json", [row]))
        assert (found.scores("m"), found.told["graded"]) == ([None], 0)


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    file = table(tmp_path / "mmlu_x.csv", [verdicts("Q", True, True), verdicts("Q", False, True)])
    out, err = command("routellm", str(file), "-o", str(tmp_path / "log"))
    assert out == f"{tmp_path}/log: 2 outcomes (2 graded) of 2 workers on 1 task, 0 responses\n"
    assert err == "merged: 4 samples in rows of several (means; the column samples says of how many)\n"


def test_a_score_is_named_only_where_there_are_several(tmp_path: Path) -> None:
    file = table(tmp_path / "mmlu_x.csv", [verdicts("Q", True, True)])
    assert "routellm: expected no --column score=NAME" in refused("routellm", file, options=["--column", "score=x"])
