"""The three dimensions: where tasks stand, figures by each, the cliff, and that unequal rigour is never averaged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.errors import ConfigError
from shikisha.core.events import GradeMark, RunStatus
from shikisha.evals.entrant_metrics import EntrantInfo, EvaluationReport, entrant_figures
from shikisha.evals.evaluation_comparison import compare_evaluations
from shikisha.evals.graders import GraderTools
from shikisha.evals.html_report import render_html_report
from shikisha.evals.report import EvaluationInfo, build_report, dump_report, load_report
from shikisha.evals.report_text import dimension_sentences
from shikisha.evals.samples import Sample
from shikisha.evals.taskset import GradeRigour, TaskDimensions, TaskEnvironment, TaskSpecification
from shikisha.evals.tasksets.task_rows import TaskRow
from shikisha.evals.tasksets.taskset_loader import own_item

STEPS, GOAL, OPEN = TaskSpecification.STEPS, TaskSpecification.GOAL, TaskSpecification.OPEN


def sample(task: str, score: float, dollars: float = 0.01, *, judged: bool = False, entrant: str = "a") -> Sample:
    mark = GradeMark.RIGHT if score else GradeMark.WRONG
    return Sample(entrant, task, f"hash {task}", "", "", RunStatus.DONE, mark, score, judged, dollars=dollars)


def report(samples: list[Sample], dimensions: dict[str, TaskDimensions]) -> EvaluationReport:
    tasks = {one.task_id: one.task_hash for one in samples}
    about = EvaluationInfo("set", "v", tasks, (), dimensions=dimensions)
    return build_report([EntrantInfo("a")], {"a": samples}, about)


def item_of(**fields: object) -> TaskDimensions:
    row = TaskRow({"prompt": "What?", "checker": "number", "answer": "4", **fields}, "tasks.jsonl", 0, 1)
    return own_item(row, GraderTools()).dimensions


class TestRows:
    def test_a_row_says_where_its_task_stands(self) -> None:
        said = item_of(environment="stateful", specification="steps", rigour="executed", goal="g1")
        assert said == TaskDimensions(TaskEnvironment.STATEFUL, STEPS, GradeRigour.EXECUTED, "g1")

    def test_what_it_does_not_say_follows_from_its_grader(self) -> None:
        assert item_of() == TaskDimensions(TaskEnvironment.TEXT, GOAL, GradeRigour.MATCHED)
        assert item_of(environment="tool").rigour is GradeRigour.MATCHED

    @pytest.mark.parametrize("name", ["environment", "specification", "rigour"])
    def test_a_place_that_is_none_is_refused_by_its_field(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"line 1: {name}: expected .*, found 'deep'"):
            item_of(**{name: "deep"})


class TestFigures:
    def test_accuracy_and_cost_stand_by_each_dimension(self) -> None:
        tool, text = TaskDimensions(TaskEnvironment.TOOL), TaskDimensions()
        samples = [sample("t0", 1.0, 0.01), sample("t1", 0.0, 0.03), sample("t2", 1.0, 0.05)]
        found = entrant_figures(EntrantInfo("a"), samples, dimensions={"t0": tool, "t1": tool, "t2": text})
        groups = found.dimensions["environment"]
        assert {place: (group.tasks, group.accuracy, group.dollars) for place, group in groups.items()} == {
            "text": (1, 1.0, 0.05),
            "tool": (2, 0.5, 0.02),
        }
        assert list(groups) == ["text", "tool"]
        assert groups["tool"].interval.low < 0.5 < groups["tool"].interval.high
        assert sum(group.tasks for group in found.dimensions["rigour"].values()) == found.tasks

    def test_what_a_judge_graded_is_of_that_rigour(self) -> None:
        samples = [sample("t0", 1.0, judged=True), sample("t1", 1.0)]
        strict = TaskDimensions(rigour=GradeRigour.EXECUTED)
        found = report(samples, {"t0": strict, "t1": strict})
        assert found.dimensions["rigour"] == ("judge", "executed")
        assert any("different rigour (executed, judge)" in note for note in found.notes)

    def test_the_cliff_is_paired_by_goal(self) -> None:
        places = {f"s{n}": TaskDimensions(specification=STEPS, goal=f"g{n}") for n in range(8)}
        places |= {f"o{n}": TaskDimensions(specification=OPEN, goal=f"g{n}") for n in range(6)}
        places |= {"lonely": TaskDimensions(specification=OPEN, goal="other")}
        samples = [sample(task, float(task.startswith("s") or task == "o0"), 0.02) for task in places]
        cliff = entrant_figures(EntrantInfo("a"), samples, dimensions=places).cliff
        assert cliff is not None
        assert (cliff.to, cliff.lost.tasks, cliff.steps, cliff.lost.better) == ("open", 6, 1.0, 5)
        assert cliff.other == pytest.approx(1 / 6)

    def test_they_are_said_and_drawn_and_kept(self) -> None:
        places = {"s": TaskDimensions(TaskEnvironment.TOOL, STEPS, goal="g"), "o": TaskDimensions(goal="g")}
        found = report([sample("s", 1.0), sample("o", 0.0)], places)
        assert load_report(dump_report(found)) == found
        said = "\n".join(dimension_sentences(found))
        assert "all tasks: rigour matched" in said
        assert "a by environment: text 0.0 %" in said
        assert "from given steps to the goal alone, 1 goal: 100.0 % to 0.0 %" in said
        assert "environment: tool" in render_html_report(found)


class TestCompare:
    MIXED: ClassVar = {"t0": TaskDimensions(), "t1": TaskDimensions(rigour=GradeRigour.EXECUTED)}

    def test_grades_of_different_rigour_are_not_averaged(self, tmp_path: Path) -> None:
        found = report([sample("t0", 1.0), sample("t1", 0.0)], self.MIXED)
        with pytest.raises(ConfigError, match="1 executed, 1 matched; choose one with --rigour"):
            compare_evaluations(found, found)
        assert compare_evaluations(found, found, rigour="executed").pairs[0].tasks == 1
        with pytest.raises(ConfigError, match="no common task is graded with rigour judge"):
            compare_evaluations(found, found, rigour="judge")
        path = tmp_path / "a.json"
        path.write_text(dump_report(found))
        assert CliRunner().invoke(app, ["eval", "show", str(path), str(path)]).exit_code == 3
        done = CliRunner().invoke(app, ["eval", "show", str(path), str(path), "--rigour", "matched", "--json"])
        assert json.loads(done.stdout)["pairs"][0]["accuracy"] == [1.0, 1.0]

    def test_one_task_graded_in_two_ways_is_no_pair(self) -> None:
        one = report([sample("t0", 1.0)], {"t0": TaskDimensions()})
        other = report([sample("t0", 1.0, judged=True)], {"t0": TaskDimensions()})
        with pytest.raises(ConfigError, match="1 matched in A and judge in B"):
            compare_evaluations(one, other)

    def test_a_report_from_before_is_compared_as_before(self) -> None:
        found = report([sample("t0", 1.0)], {"t0": TaskDimensions()})
        old = replace(found, dimensions={})
        assert compare_evaluations(old, found).pairs
        with pytest.raises(ConfigError, match="A does not say how its tasks are graded"):
            compare_evaluations(old, found, rigour="matched")
