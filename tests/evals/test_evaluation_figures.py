"""What must not mislead: who is paid for which cap, who was ranked on what, whose grades a model gave, who saw what."""

import asyncio
from pathlib import Path

import pytest
from evaluated import ROWS, TWO, Evaluated
from made_samples import about, report_of, samples_of

from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.events import AnswerGraded, Event
from shikisha.engine.worker import Reply
from shikisha.evals.entrant_metrics import EntrantInfo
from shikisha.evals.evaluation_comparison import compare_evaluations
from shikisha.evals.graders import no_answer_grade
from shikisha.evals.report import build_report
from shikisha.evals.reward import run_reward
from shikisha.evals.samples import EntrantRole
from shikisha.journal import open_journal
from support import member, plan_of, pool_of, run_plans


@pytest.mark.parametrize("caps", [Caps(steps=1), Caps(tokens=10), Caps(dollars=0.5)])
async def test_a_plan_that_breaks_a_cap_is_a_bad_plan_and_no_excuse(caps: Caps) -> None:
    pool = pool_of(member("ann", Reply("done", Usage(8, 0)), price=Price(call=0.4), max_output_tokens=1))
    run = await run_plans(pool, plan_of((0, ()), (0, (0,)), (0, (1,))), caps=caps)
    assert run.answer is None
    given = run_reward(run, no_answer_grade("given", ""))
    assert given is not None
    assert given.total == 0.5


def test_single_workers_that_were_ranked_on_a_few_tasks_are_said_to_be() -> None:
    samples = {"a": samples_of("a", [1.0, 0.0, 0.0, 0.0]), "b": samples_of("b", [0.0])}
    singles = [EntrantInfo(name, EntrantRole.SINGLE, name) for name in samples]
    found = build_report(singles, samples, about([f"t{n}" for n in range(4)]))
    assert any(note.endswith("all of them have a score for: 1") for note in found.notes)


def test_grades_of_a_language_model_are_not_compared_with_executed_ones_unsaid() -> None:
    executed = report_of({}, {"me": samples_of("me", [1.0, 0.0])})
    judged = report_of({}, {"me": samples_of("me", [1.0, 1.0], judged=True)})
    assert compare_evaluations(executed, executed).notes == ()
    assert compare_evaluations(executed, judged).notes == ("2 of 2 grades in B were given by a language model",)


def test_the_right_answer_is_in_no_event_before_the_grade(tmp_path: Path) -> None:
    rows = [{**row, "answer": "31415926", "split": "test"} for row in ROWS]
    evaluated, journal = Evaluated(tmp_path, rows=rows), str(tmp_path / "runs.db")
    evaluated.run("--journal", journal, "--conductor", "fixed:chain?workers=rash,wise")
    told = asyncio.run(_told(journal))
    grades = [event for event in told if isinstance(event, AnswerGraded)]
    assert len(grades) == len({event.run for event in told}) >= 12 * 4
    assert "31415926" in str(grades)
    assert "31415926" not in str([event for event in told if not isinstance(event, AnswerGraded)])


async def _told(journal: str) -> list[Event]:
    async with open_journal(journal) as opened:
        return [event for run in await opened.runs(limit=1000) for event in await opened.read(run.id)]


def test_who_is_asked_again_without_dev_tasks_is_said_to_be_chosen_on_what_is_reported(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO, [{**row, "split": "test"} for row in ROWS])
    evaluated.entries("--conductor", "fixed:chain?workers=wise,wise")
    assert "there are no dev tasks" in evaluated.notes
    assert "wise is asked again as the best on the tasks reported" in evaluated.notes
