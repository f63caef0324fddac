"""What an evaluation must not take from its folder: samples of other answers, other prices, other graders."""

import json
from pathlib import Path

import pytest
from evaluated import SPLIT, TWO, Evaluated, accuracies
from shelves import ME, asking, shelf_of

from shikisha.routing.policy_file import save_policy
from shikisha.routing.policy_registry import update_registry

PLANNED = """
[workers.planner]
kind = "scripted"
answers = "model_id = [0]\\nsubtasks = ['Answer.']\\naccess_list = [[]]"
[conductors.led]
kind = "lm"
endpoint = "planner"
[conductors.ruled]
kind = "rules"
file = "rules.toml"
"""
CHECKED = """
[checks.short]
kind = "length"
max_words = 200
"""


@pytest.mark.full
def test_another_right_answer_to_the_same_question_is_graded_anew_and_costs_nothing(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    assert accuracies(evaluated.entries(), "wise", "rash", "oracle") == [1.0, 0.0, 1.0]
    evaluated.rows([{**row, "answer": "5"} for row in SPLIT])
    found = evaluated.entries()
    assert accuracies(found, "wise", "rash", "oracle") == [0.0, 1.0, 1.0]
    assert [found[name]["paid"] for name in ("wise", "rash")] == [0.0, 0.0]


@pytest.mark.full
def test_another_grader_for_the_same_question_grades_anew(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    evaluated.entries()
    strict = [{**row, "checker": "text", "answer": "It must be 5."} for row in SPLIT]
    evaluated.rows(strict)
    assert accuracies(evaluated.entries(), "wise", "rash") == [0.0, 1.0]
    evaluated.rows([{key: value for key, value in row.items() if key != "checker"} for row in SPLIT])
    assert accuracies(evaluated.entries("--checker", "number"), "wise", "rash") == [1.0, 0.0]


@pytest.mark.full
def test_rows_that_did_not_change_are_not_played_again(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    evaluated.entries()
    evaluated.rows([*SPLIT, {**SPLIT[0], "id": "more", "prompt": "Again: 2 + 2?"}])
    evaluated.entries()
    lines = (tmp_path / "kept" / "samples.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["entrant"] == "wise" for line in lines) == len(SPLIT) + 1


@pytest.mark.full
def test_what_a_worker_comes_to_hangs_on_more_than_its_replies(tmp_path: Path) -> None:
    config = TWO + CHECKED
    config = config.replace("price = { call = 0.01 }", 'price = { call = 0.01 }\nchecks = ["short"]')
    evaluated = Evaluated(tmp_path, config)
    evaluated.run()
    lines = _samples(tmp_path)
    for changes, (before, after) in enumerate(
        [
            ("price = { call = 0.25 }", "price = { call = 0.5 }"),
            ("price = { call = 0.25 }", 'price = { call = 0.25 }\nfallback = "rash"'),
            ("price = { call = 0.25 }", 'price = { call = 0.25 }\nchecks = ["short"]'),
            ("max_words = 200", "max_words = 100"),
            ("price = { call = 0.25 }", 'price = { call = 0.25 }\ndescription = "Knows sums."'),
        ],
        1,
    ):
        evaluated.config(config.replace(before, after))
        evaluated.run()
        assert _samples(tmp_path) == (changes + 1) * lines, after


@pytest.mark.full
def test_how_many_calls_at_once_changes_no_sample(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    evaluated.run()
    lines = _samples(tmp_path)
    evaluated.config(TWO.replace("price = { call = 0.25 }", "price = { call = 0.25 }\nconcurrency = 2\nrate = 1000"))
    evaluated.run()
    assert _samples(tmp_path) == lines


@pytest.mark.full
def test_a_planner_outside_the_pool_that_changes_plans_anew(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO + PLANNED)
    assert accuracies(evaluated.entries("--conductor", "led"), "led") == [1.0]
    evaluated.config((TWO + PLANNED).replace("model_id = [0]", "model_id = [1]"))
    assert accuracies(evaluated.entries("--conductor", "led"), "led") == [0.0]
    assert accuracies(evaluated.entries("--conductor", "lm:planner"), "lm:planner") == [0.0]
    evaluated.config(TWO + PLANNED)
    assert accuracies(evaluated.entries("--conductor", "lm:planner"), "lm:planner") == [1.0]


@pytest.mark.full
def test_rules_that_a_table_names_are_read_for_the_version_too(tmp_path: Path) -> None:
    rules = '[[rule]]\nworker = "wise"\n'
    (tmp_path / "rules.toml").write_text(rules)
    evaluated = Evaluated(tmp_path, TWO + PLANNED)
    assert accuracies(evaluated.entries("--conductor", "ruled"), "ruled") == [1.0]
    (tmp_path / "rules.toml").write_text(rules.replace("wise", "rash"))
    assert accuracies(evaluated.entries("--conductor", "ruled"), "ruled") == [0.0]


@pytest.mark.full
def test_a_policy_file_that_changes_and_a_shelf_on_which_another_is_promoted_act_anew(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO.replace("workers.wise", "workers.ann").replace("workers.rash", "workers.bob"))
    _, second = shelf_of(tmp_path / "shelf", asking("ann"), asking("bob"))
    file, names = tmp_path / "policy-0", ("policy-0", "shelf")

    def found(name: str) -> list[object]:
        spec = f"policy:{tmp_path / name}"
        return accuracies(evaluated.entries("--conductor", spec, workers="ann,bob"), spec)

    assert [found(name) for name in names] == [[1.0], [1.0]]
    save_policy(asking("bob"), file)
    update_registry(tmp_path / "shelf", lambda shelf: shelf.with_live(second, ME))
    assert [found(name) for name in names] == [[0.0], [0.0]]


def test_a_log_that_was_written_anew_is_replayed_anew(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    (tmp_path / "log").mkdir()
    tasks = [{"task_id": f"t{n}", "domain": "d", "prompt": f"{n}?", "answer": "4"} for n in range(8)]
    (tmp_path / "log" / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    for score in (1.0, 0.0):
        outcomes = [{"task_id": f"t{n}", "worker": "a", "score": score, "answer": "4"} for n in range(8)]
        (tmp_path / "log" / "outcomes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in outcomes))
        found = evaluated.entries("--log", str(tmp_path / "log"), workers="")
        assert accuracies(found, "a") == [score]
        _forget()


def test_a_report_of_the_harness_that_came_later_counts(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    folder = tmp_path / "predictions"
    folder.mkdir()
    row = {"instance_id": "some__repo-1", "model_name_or_path": "mine", "model_patch": "diff 1"}
    (folder / "preds.jsonl").write_text(json.dumps(row))
    asked = ("--taskset", f"swebench-verified:{folder}")
    assert evaluated.entries(*asked, workers="")["mine"]["ungraded"] == 1
    (folder / "mine.run.json").write_text(json.dumps({"resolved_ids": ["some__repo-1"], "unresolved_ids": []}))
    assert evaluated.entries(*asked, workers="")["mine"]["tasks"] == 1


@pytest.mark.full
def test_another_judge_of_the_same_name_judges_anew(tmp_path: Path) -> None:
    judge = '[workers.judge]\nkind = "scripted"\nanswers = "VERDICT: right"\n'
    rows = [{"id": "j", "prompt": "Is it nice?", "checker": "judge"}]
    evaluated = Evaluated(tmp_path, TWO + judge, rows)
    assert accuracies(evaluated.entries("--judge", "judge"), "wise") == [1.0]
    evaluated.config(TWO + judge.replace("right", "wrong"))
    assert accuracies(evaluated.entries("--judge", "judge"), "wise") == [0.0]


def _samples(folder: Path) -> int:
    return len((folder / "kept" / "samples.jsonl").read_text().splitlines())


def _forget() -> None:
    """Read logs anew, as another process would."""
    from shikisha.outcomes.log_reader import open_log

    open_log.cache_clear()
