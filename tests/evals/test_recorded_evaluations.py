"""Recorded answers of real models through the engine come to what pandas computes from the same files, to the task."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import log
from pathlib import Path

import pandas as pd
import pytest
from paths import ROOT

from recorded_pools import MP13, NOT_ZE21
from shikisha.config.eval_processes import start_processes
from shikisha.config.eval_setup import EvaluationStage, open_stage
from shikisha.config.eval_tasks import EvaluationSetup
from shikisha.core.events import GradeMark
from shikisha.evals.baselines import EntrantSpec, requested_entrant, single_worker_specs
from shikisha.evals.runner import EvaluationJob
from shikisha.evals.samples import Sample
from shikisha.evals.taskset import TaskSplit

RECORDED = ROOT.parent / "shared" / "recorded"
pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded answers in {RECORDED}"),
]


def outcomes(name: str) -> pd.DataFrame:
    """A set's outcomes; an answer that nobody can see is shown in quotes, as the replay shows it."""
    table = pd.read_parquet(RECORDED / name / "outcomes.parquet")
    if "answer" in table:
        blank = table.answer.notna() & (table.answer.str.strip() == "")
        table["answer"] = table.answer.where(~blank, "'" + table.answer.fillna("") + "'")
    return table


def workers_of(name: str) -> list[str]:
    """The pool that a set is compared with."""
    everyone = list(outcomes(name).worker.unique())
    return {"mmlu-pro": list(MP13), "zeroeval": [w for w in everyone if w not in NOT_ZE21]}.get(name, everyone)


def _canon(answer: object, kind: str) -> str | None:
    """An answer in the form in which votes count it: our own reading here, so that it can differ from the engine's."""
    if not isinstance(answer, str):
        return None
    if kind != "number":
        return " ".join(answer.split()).casefold()
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?", answer.replace("$", ""))
    return str(Fraction(numbers[-1].replace(",", ""))) if numbers else None


class Table:
    """What pandas computes: scores by task id, from the files alone."""

    def __init__(self, name: str) -> None:
        table = outcomes(name)
        self.scores = table.pivot(index="task_id", columns="worker", values="score")
        self.dollars = (
            table.pivot(index="task_id", columns="worker", values="cost_usd") if "cost_usd" in table else None
        )
        if "answer" in table:
            kinds = pd.read_parquet(RECORDED / name / "tasks.parquet").set_index("task_id").answer_kind
            table["canon"] = [_canon(a, k) for a, k in zip(table.answer, table.task_id.map(kinds), strict=True)]
            self.answers = table.pivot(index="task_id", columns="worker", values="answer")
            self.canon = table.pivot(index="task_id", columns="worker", values="canon")

    def single(self, worker: str) -> pd.Series:
        """The recorded scores; a missing row is unknown."""
        return self.scores[worker].dropna()

    def vote(self, workers: Sequence[str], weights: Sequence[float]) -> pd.Series:
        """The score of the answer with the most weight; of equally many, of the one whose first giver comes first."""
        long = pd.concat(
            pd.DataFrame({"canon": self.canon[w], "score": self.scores[w], "place": place, "weight": weights[place]})
            for place, w in enumerate(workers)
        ).dropna(subset="canon")
        long = long.rename_axis("task_id").reset_index()
        groups = long.groupby(["task_id", "canon"]).agg(weight=("weight", "sum"), place=("place", "min")).reset_index()
        won = groups.sort_values(["weight", "place"], ascending=[False, True]).drop_duplicates("task_id")
        return won.merge(long, on=["task_id", "place"]).set_index("task_id").score

    def agreement(self, first: str, second: str, third: str) -> pd.Series:
        """The second's score where the first two say the same, or the third says nothing; else the third's."""
        one, two = (self.answers[w].str.split().str.join(" ").str.casefold() for w in (first, second))
        agree = one.notna() & (one == two)
        keep = agree | (self.answers[third].isna() & two.notna())
        return self.scores[second].where(keep, self.scores[third])


async def played(
    setup: EvaluationSetup, specs: Sequence[EntrantSpec]
) -> tuple[EvaluationStage, dict[str, dict[str, Sample]]]:
    """Every task through every entrant, in two processes; samples by entrant and task id."""
    found: dict[str, dict[str, Sample]] = {spec.name: {} for spec in specs}

    def heard(sample: Sample, _: str) -> None:
        found[sample.entrant][sample.task_id] = sample

    async with open_stage(setup) as stage:
        entrants = [stage.entrant(spec) for spec in specs]
        async with start_processes(setup, 2, 64, {spec.name: spec for spec in specs}) as processes:
            await processes.play([EvaluationJob(e, item) for e in entrants for item in stage.tasks.items], heard)
    return stage, found


def scores(samples: Mapping[str, Sample]) -> dict[str, float]:
    """The scores of what was graded."""
    return {task_id: sample.score for task_id, sample in samples.items() if sample.score is not None}


def expected(series: pd.Series, played: Mapping[str, Sample]) -> dict[str, float]:
    """A pandas column as a dictionary, of the tasks that were played."""
    return {str(task_id): float(score) for task_id, score in series.dropna().items() if task_id in played}


def ranked(stage: EvaluationStage, table: Table, workers: Sequence[str]) -> tuple[list[str], dict[str, float]]:
    """Workers from best to worst by their accuracy on the dev split, with it."""
    dev = [item.task.id for item in stage.tasks.items if item.split is TaskSplit.DEV]
    skill = {worker: float(table.single(worker).reindex(dev).mean()) for worker in workers}
    return sorted(workers, key=lambda worker: -skill[worker]), skill


@pytest.mark.parametrize(
    ("name", "alone", "tasks"),
    [
        ("zeroeval", 2, 600),
        pytest.param("mmlu-pro", 13, None, marks=pytest.mark.slow),
        pytest.param("zeroeval", 21, None, marks=pytest.mark.slow),
    ],
)
async def test_recorded_answers_come_to_what_pandas_computes(
    name: str, alone: int, tasks: int | None, tmp_path: Path
) -> None:
    """By the best workers alone (the slow ones: all tasks by every worker), by votes, and by the cascade."""
    workers, table = workers_of(name), Table(name)
    setup = EvaluationSetup(str(tmp_path), log=str(RECORDED / name), workers=tuple(workers), tasks=tasks)
    async with open_stage(setup, "looking") as stage:
        best, skill = ranked(stage, table, workers)
    top, weights = best[:4], [log(skill[w] / (1 - skill[w])) for w in best[:4]]
    vote, weighed = (
        f"fixed:vote?workers={','.join(best[:3])}&join=vote",
        f"fixed:fan-out-join?workers={','.join(top)}&join=weigh",
    )
    cascade = f"fixed:agreement?workers={best[3]},{best[2]},{best[0]}&by=text"
    _, found = await played(
        setup,
        [*single_worker_specs(best[:alone]), *(requested_entrant(each, skill) for each in (vote, weighed, cascade))],
    )
    for worker in best[:alone]:
        assert scores(found[worker]) == expected(table.single(worker), found[worker])
    assert table.dollars is not None
    dear = sum(sample.dollars or 0.0 for sample in found[best[0]].values())
    assert dear == pytest.approx(float(table.dollars[best[0]].reindex([*found[best[0]]]).sum()))
    assert scores(found[vote]) == zeros(table.vote(best[:3], [1.0, 1.0, 1.0]), found[vote])
    assert scores(found[weighed]) == zeros(table.vote(top, weights), found[weighed])
    assert differences(found[cascade], table.agreement(best[3], best[2], best[0])) == []


def zeros(series: pd.Series, samples: Mapping[str, Sample]) -> dict[str, float]:
    """A pandas column as a dictionary, 0 for tasks without any answer that were graded all the same."""
    told = expected(series, samples)
    return {task: told.get(task, 0.0) for task, sample in samples.items() if sample.score is not None}


def differences(samples: Mapping[str, Sample], series: pd.Series) -> list[tuple[str, object, object]]:
    """The tasks whose score is not the expected one; unknown (ungraded) and missing are the same."""
    told = expected(series, samples)
    return [(task, s.score, told.get(task)) for task, s in samples.items() if s.score != told.get(task)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "tasks"), [pytest.param("llmrouter", None, marks=pytest.mark.slow), ("routellm-mmlu", 600)]
)
async def test_single_workers_of_logs_with_scores_alone_are_what_pandas_computes(
    name: str, tasks: int | None, tmp_path: Path
) -> None:
    workers, table = workers_of(name), Table(name)
    setup = EvaluationSetup(str(tmp_path), log=str(RECORDED / name), tasks=tasks)
    _, found = await played(setup, single_worker_specs(workers))
    for worker in workers:
        assert len(found[worker]) >= (tasks or 1)
        assert scores(found[worker]) == expected(table.single(worker), found[worker])
        assert {sample.mark for sample in found[worker].values()} <= {
            GradeMark.RIGHT,
            GradeMark.WRONG,
            GradeMark.PARTIAL,
        }
