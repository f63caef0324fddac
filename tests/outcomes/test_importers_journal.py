"""From runs to a log and back: what the journal's importer makes of runs that the engine performed."""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import journals
import pytest
from importing import Imported, command, imported
from paths import ROOT
from scripted_people import ScriptedApprover
from test_children import conducting
from test_step import Wants

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import Reply
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AnswerGraded, OnCheckFailure
from shikisha.core.plan import ANSWER, ANSWER_ALONE, Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.visibility import PART_NOW
from shikisha.engine.approvals import Decision
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.pool import OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode
from shikisha.evals.graders import Grade, ScriptedGrader, grade_from_score
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.reward import grade_events
from shikisha.journal import Journal, open_journal
from shikisha.outcomes.importers.journal_runs import PARTS, gather_runs
from shikisha.outcomes.log_reader import OutcomeLog, run_outcomes
from shikisha.outcomes.log_writer import OTHER_WORDS, LogBuilder, RepeatPolicy
from support import engine, member, pool_of, whole_plan

OLD_JOURNAL = ROOT / "tests" / "data" / "v0.1" / "journal.sqlite"
TASK = Task("Six times seven?", id="sums/1", domain="sums")
ONE = whole_plan((0, ()))
CHECKER = ScriptedGrader({"42": 1.0, "so 42": 1.0, "41": 0.0})


@dataclass(frozen=True)
class Kept:
    """A run to perform and keep; it is graded by the grader unless told otherwise."""

    pool: Pool
    plan: Plan = ONE
    task: Task = TASK
    grade: bool = True
    conductor: Conductor | None = None


async def keep(journal: Journal, run: Kept) -> None:
    done = await engine(journal).run(run.task, run.pool, run.conductor or ScriptedConductor([run.plan]), Caps())
    if run.grade:
        for event in grade_events(done.id, await CHECKER.grade(done.answer or ""), None):
            journal.add(event)
    await journal.flush()


def performed(folder: Path, *runs: Kept) -> Imported:
    """Perform the runs with a journal in SQLite, import it through the command line, and read the log."""

    async def main() -> None:
        async with open_journal(str(folder / "journal.db")) as journal:
            for run in runs:
                await keep(journal, run)

    asyncio.run(main())
    return imported("journal", folder / "journal.db")


def test_a_run_of_one_step_is_its_workers_outcome(tmp_path: Path) -> None:
    worker = member("ann", Reply("42", Usage(10, 5)), price=Price(100, 200))
    found = performed(tmp_path, Kept(pool_of(worker)))
    outcome = found.one("sums/1", "ann")
    assert (outcome.score, outcome.answer, outcome.usage) == (1.0, "42", Usage(10, 5))
    assert outcome.dollars == pytest.approx(0.002)
    assert outcome.cost_kind == "recorded"
    assert found.log.responses("ann") == {"sums/1": "42"}
    assert (found.log.task("sums/1").prompt, found.log.task("sums/1").domain) == ("Six times seven?", "sums")
    assert all(seconds is not None and seconds >= 0 for seconds in found.more("latency_s"))


def test_runs_of_one_task_are_samples(tmp_path: Path) -> None:
    runs = [Kept(pool_of(ann=answer)) for answer in ("42", "41", "42", "hm")]
    found = performed(tmp_path, *runs, Kept(pool_of(bob="41")))
    assert (found.scores("ann"), found.scores("bob")) == ([0.5], [0.0])
    assert (found.more("samples"), found.told["merged"]) == ([4, 1], 4)


@pytest.mark.parametrize("last", [Step(ANSWER, 1, (0,)), Step("Add the tables up.", 1), Step("Answer it as text.", 1)])
def test_who_had_a_part_or_saw_others_results_is_not_credited_with_the_task(tmp_path: Path, last: Step) -> None:
    found = performed(tmp_path, Kept(pool_of(ann="a draft", bob="so 42"), Plan((Step(ANSWER_ALONE, 0), last))))
    assert (found.scores("ann"), found.log.workers) == ([None], ("ann",))
    assert found.log.responses("ann") == {"sums/1": "a draft"}
    assert (found.told["outcomes"], found.told["graded"], found.told["left"]) == (1, 0, {PARTS: 1})
    (run,) = run_outcomes(tmp_path / "log")
    assert (run.conductor, run.task_id, run.parted, run.score) == ("fixed:scripted", "sums/1", True, 1.0)


@pytest.mark.parametrize("subtask", [ANSWER, ANSWER_ALONE, "answer the question", "Six  times seven?"])
def test_the_task_itself_is_put_in_several_ways(tmp_path: Path, subtask: str) -> None:
    found = performed(tmp_path, Kept(pool_of(ann="42"), Plan((Step(subtask, 0),))))
    assert found.scores("ann") == [1.0]
    assert [(run.parted, run.score) for run in run_outcomes(tmp_path / "log")] == [(False, 1.0)]


def test_answers_to_other_words_are_not_merged_and_keep_their_words(tmp_path: Path) -> None:
    ways = [Kept(pool_of(ann="42"), Plan((Step(subtask, 0),))) for subtask in (ANSWER, ANSWER_ALONE, ANSWER)]
    found = performed(tmp_path, *ways, Kept(pool_of(bob="41"), Plan((Step(ANSWER_ALONE, 0),))))
    assert (found.scores("ann"), found.more("samples")) == ([1.0], [2, 1])
    assert found.told["left"] == {OTHER_WORDS: 1}
    assert found.log.wordings() == {"": 1, ANSWER_ALONE: 1}
    assert (found.one("sums/1", "ann").wording, found.one("sums/1", "bob").wording) == ("", ANSWER_ALONE)


def test_a_run_of_before_own_words_keeps_the_words_that_it_sent(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copy(OLD_JOURNAL, path)
    wordings = imported("journal", path).log.wordings()
    assert wordings[PART_NOW + ANSWER] > 0
    assert not wordings[""]


def test_a_worker_that_stood_in_gets_the_score_and_the_other_none(tmp_path: Path) -> None:
    down = WorkerError(FaultKind.AUTH, "no key")
    found = performed(tmp_path, Kept(pool_of(member("ann", down, fallback="bob"), bob="42")))
    assert (found.scores("ann"), found.scores("bob")) == ([None], [1.0])
    assert (found.one("sums/1", "ann").answer, found.one("sums/1", "ann").dollars) == (None, None)


def test_an_answer_that_a_check_rejected_has_no_score(tmp_path: Path) -> None:
    answers = iter(["41", "42"])
    worker = member("ann", lambda _: next(answers), OutputCheck(Wants("42"), OnCheckFailure.REDO))
    found = performed(tmp_path, Kept(pool_of(worker)))
    assert (found.scores("ann"), found.more("samples")) == ([1.0], [2])
    assert found.log.responses("ann") == {"sums/1": "42"}


@pytest.mark.parametrize(("fault", "score"), [(FaultKind.REFUSED, 0.0), (FaultKind.CONNECT, None)])
def test_no_answer_counts_for_a_worker_that_was_really_asked(
    tmp_path: Path, fault: FaultKind, score: float | None
) -> None:
    found = performed(tmp_path, Kept(pool_of(member("ann", WorkerError(fault), attempts=1))))
    assert found.scores("ann") == [score]
    assert (found.one("sums/1", "ann").answer, found.told["responses"]) == (None, 0)


def test_a_child_runs_calls_are_under_its_own_task(tmp_path: Path) -> None:
    found = performed(tmp_path, Kept(pool_of(conducting(["w"], ONE), w="42")))
    below = next(task_id for task_id in found.log.task_ids if task_id != "sums/1")
    assert (found.one("sums/1", "boss").score, found.one(below, "w").score) == (1.0, None)
    assert below.startswith("journal/")
    assert found.log.find("sums/1", "w") is None


def test_an_id_that_names_two_tasks_is_kept_apart(tmp_path: Path) -> None:
    other = Task("Six times six?", context="Mind the base.", id="sums/1")
    found = performed(tmp_path, Kept(pool_of(ann="42")), Kept(pool_of(ann="36"), task=other, grade=False))
    first, second = found.log.task_ids
    assert (first, second.partition("~")[0], found.told["apart"]) == ("sums/1", "sums/1", 1)
    assert found.log.task(second).prompt == "Six times six?\n\nMind the base."
    assert found.scores("ann") == [1.0, None]


@pytest.mark.parametrize(("given", "score", "remarks"), [([0.0], 0.0, 1), ([0.0, None, 0.0], 1.0, 0)])
def test_an_executed_grade_goes_before_a_language_models(
    tmp_path: Path, given: Sequence[float | None], score: float, remarks: int
) -> None:
    async def main() -> None:
        async with open_journal(str(tmp_path / "journal.db")) as journal:
            run = await engine(journal).run(TASK, pool_of(ann="42"), ScriptedConductor([ONE]))
            for each in given:
                verdict = grade_from_score("any", 1.0 if each is None else each, "42", "", judged=each is not None)
                journal.add(grade_events(run.id, verdict, None)[0])

    asyncio.run(main())
    found = imported("journal", tmp_path / "journal.db")
    assert found.scores("ann") == [score]
    assert found.told["remarks"] == ({"scores that a language model gave": 1} if remarks else {})


def test_a_url_names_a_journal_too_and_one_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    performed(tmp_path, Kept(pool_of(ann="42")))
    said, _ = command("journal", f"sqlite:///{tmp_path}/journal.db", "-o", str(tmp_path / "other"))
    assert "1 outcome (1 graded) of 1 worker on 1 task, 1 response" in said
    _, err = command("journal", str(tmp_path / "no.db"), "-o", str(tmp_path / "third"), code=3)
    assert "no.db: there is no such journal" in err
    assert not (tmp_path / "no.db").exists()


def test_calls_for_plans_and_calls_in_flight_are_left_out_and_counted(tmp_path: Path) -> None:
    plans = iter([render_plan_lists(ONE), render_plan_lists(Plan())])
    planner = LanguageModelConductor("lm:p", member("p", lambda _: next(plans)))
    performed(tmp_path, Kept(pool_of(ann="42"), conductor=planner))

    async def main() -> None:
        async with open_journal(str(tmp_path / "journal.db")) as journal:
            await journals.keep(journal, journals.whole("cut off")[:3])

    asyncio.run(main())
    said, err = command("journal", str(tmp_path / "journal.db"), "-o", str(tmp_path / "again"))
    assert said.startswith(f"{tmp_path}/again: 1 outcome (1 graded) of 1 worker")
    assert err.splitlines() == [
        "left out: calls for planning and checks: 2",
        "left out: calls in flight when the journal ended: 1",
    ]


CHOICE = Task("Which one?\nA. this\nB. that\nC. neither", id="which/1", domain="which")


@dataclass(frozen=True)
class Asking:
    """A policy's conductor that asks one worker after another, and keeps what the first of them said."""

    chances: Sequence[float | None]
    name: str = "policy:made"

    async def propose(self, situation: Situation) -> Proposal:
        asked = len(situation.rounds)
        if asked == len(self.chances):
            return Proposal(Plan(), version="v1", keeps=0)
        return Proposal(Plan((Step(ANSWER, asked),)), version="v1", propensity=self.chances[asked])


async def asked_all(task: Task, words: Sequence[AnswerGraded], *answers: str) -> Run:
    """A run in which each answer is another worker's, that keeps the first one's, and on which these words are said."""
    pool = pool_of(**dict(zip(("ann", "bob", "cyd", "dan"), answers, strict=False)))
    recorder = MemoryRecorder()
    run = await engine(recorder).run(task, pool, Asking([None] * len(answers)))
    return Run.fold([*await recorder.read(run.id), *(replace(word, run=run.id) for word in words)])


def learned(folder: Path, task: Task, grade: Grade | None, *answers: str) -> Imported:
    """The log of such a run, graded so."""
    words = () if grade is None else (word_of(grade),)
    return logged(folder, asyncio.run(asked_all(task, words, *answers)))


def logged(folder: Path, *runs: Run) -> Imported:
    """The log of these runs."""
    log = LogBuilder("journal", RepeatPolicy.MERGED)
    gather_runs(runs, log)
    written = log.write(folder / "log", as_lines=True)
    return Imported(OutcomeLog.read(folder / "log"), asdict(written))


def word_of(grade: Grade, actor: str = "") -> AnswerGraded:
    """A grade as a journal keeps it; its run is said later."""
    (event,) = grade_events("", grade, None)
    assert isinstance(event, AnswerGraded)
    return replace(event, actor=actor)


RIGHT_B = grade_from_score("choice", 1.0, "B", "")


@pytest.mark.parametrize(
    ("grade", "answers", "scores"),
    [
        (RIGHT_B, ("B", "(B) that", "C"), [1.0, 1.0, 0.0]),
        (
            grade_from_score("choice", 0.0, "A", ""),
            ("A", "a.", "C"),
            [0.0, 0.0, None],
        ),  # which of the others is right is unknown
        (RIGHT_B, ("B", "I cannot say."), [1.0, None]),
        (
            grade_from_score("any", 1.0, None, ""),
            ("B", "B.", "C"),
            [1.0, 1.0, 0.0],
        ),  # the options in the prompt say it is a choice
        (grade_from_score("any", 1.0, None, ""), ("B", "B.", "A long story."), [1.0, None, None]),
        (grade_from_score("any", 0.5, None, ""), ("B", "B", "C"), [0.5, 0.5, None]),
        (None, ("B", "B"), [None, None]),
    ],
)
def test_answers_that_agree_share_a_score_and_another_choice_than_the_right_one_is_wrong(
    tmp_path: Path, grade: Grade | None, answers: Sequence[str], scores: Sequence[float | None]
) -> None:
    found = learned(tmp_path, CHOICE, grade, *answers)
    assert [found.one("which/1", name).score for name in ("ann", "bob", "cyd")[: len(answers)]] == scores


@pytest.mark.parametrize(
    ("answers", "scores"),
    [
        (("42", "42.0", "41"), [1.0, 1.0, 0.0]),
        (("42", "42 km", "42.1"), [1.0, 1.0, None]),  # so little apart that a tolerance may let it pass
        (("1 km", "1000 m", "1 m"), [1.0, None, None]),  # in another unit it may be as long, or not
        (("42", "50 %", "the answer to all of it is 7"), [1.0, None, 0.0]),
    ],
)
def test_another_number_than_the_right_one_is_wrong_only_where_it_plainly_is(
    tmp_path: Path, answers: Sequence[str], scores: Sequence[float | None]
) -> None:
    found = learned(tmp_path, TASK, grade_from_score("number", 1.0, answers[0], ""), *answers)
    assert [found.one("sums/1", name).score for name in ("ann", "bob", "cyd")] == scores


def test_inferred_scores_are_counted_and_the_log_says_how_answers_are_compared(tmp_path: Path) -> None:
    found = learned(tmp_path, CHOICE, RIGHT_B, "B", "(B)", "C", "A")
    assert found.told["remarks"] == {
        "scores inferred: the same as a graded answer": 1,
        "scores inferred: another than the right answer": 2,
    }
    assert (found.log.gold("which/1").kind, found.log.gold("which/1").answer) == ("choice", None)
    assert [found.one("which/1", name).answer for name in ("ann", "bob", "cyd", "dan")] == ["B", "B", "C", "A"]


def test_nothing_is_inferred_for_an_answer_to_another_subtask(tmp_path: Path) -> None:
    found = performed(tmp_path, Kept(pool_of(ann="41", bob="42"), Plan((Step(ANSWER_ALONE, 0), Step(ANSWER, 1)))))
    assert (found.scores("ann"), found.scores("bob")) == ([None], [1.0])


def test_a_form_that_is_given_goes_before_what_the_answers_look_like(tmp_path: Path) -> None:
    run = asyncio.run(asked_all(CHOICE, [word_of(grade_from_score("any", 1.0, None, ""))], "B", "b", "C"))
    log = LogBuilder("journal", RepeatPolicy.MERGED)
    gather_runs([run], log, lambda task: AnswerForm.TEXT if task.domain == "which" else None)
    log.write(tmp_path, as_lines=True)
    found = OutcomeLog.read(tmp_path)
    assert [each.score for name in ("bob", "cyd") for each in found.outcomes_of(name)] == [1.0, None]


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(None, None, [1.0, 1.0]), (0.25, None, [0.25, 1.0]), (None, 0.5, [1.0, 0.5])]
)
def test_the_propensity_is_that_of_the_plan_which_named_the_worker(
    tmp_path: Path, first: float | None, second: float | None, expected: Sequence[float]
) -> None:
    found = performed(tmp_path, Kept(pool_of(ann="42", bob="41"), conductor=Asking([first, second])))
    assert found.more("propensity") == expected


def test_a_propensity_that_nobody_wrote_down_and_a_stand_ins_are_unknown(tmp_path: Path) -> None:
    down = WorkerError(FaultKind.AUTH, "no key")
    pool = pool_of(member("ann", down, fallback="bob"), bob="42")
    found = performed(tmp_path, Kept(pool, conductor=Asking([0.5])), Kept(pool_of(cyd="42")))
    assert [found.one("sums/1", name).propensity for name in ("ann", "bob", "cyd")] == [0.5, None, None]


EXECUTED = word_of(grade_from_score("any", 1.0, None, ""))
PERSON = word_of(grade_from_score("feedback", 0.0, None, ""), actor="kim")
JUDGE = word_of(grade_from_score("judge", 0.5, None, "", judged=True))


@pytest.mark.parametrize(
    ("words", "score", "judged"),
    [
        ((EXECUTED, PERSON, JUDGE), 1.0, 0.0),
        ((JUDGE, PERSON), 0.0, 0.0),
        ((PERSON, replace(PERSON, score=1.0), JUDGE), 1.0, 0.0),
        ((JUDGE,), 0.5, 1.0),
    ],
)
def test_executed_grades_go_before_peoples_and_those_before_a_language_models(
    tmp_path: Path, words: Sequence[AnswerGraded], score: float, judged: float
) -> None:
    outcome = logged(tmp_path, asyncio.run(asked_all(TASK, words, "42"))).one("sums/1", "ann")
    assert (outcome.score, outcome.judged) == (score, judged)


def test_the_log_says_which_share_of_its_scores_is_a_language_models_word_alone(tmp_path: Path) -> None:
    other = replace(CHOICE, prompt=f"{CHOICE.prompt} ", id="")
    judged = asyncio.run(
        asked_all(CHOICE, [word_of(grade_from_score("any", 1.0, None, "", judged=True))], "B", "B", "C")
    )
    found = logged(tmp_path, judged, asyncio.run(asked_all(other, [word_of(RIGHT_B)], "B")))
    assert found.log.judged_share == 0.75
    assert found.told["remarks"] == {
        "scores that a language model gave": 3,
        "scores inferred: the same as a graded answer": 1,
        "scores inferred: another than the right answer": 1,
    }


def test_what_checks_and_people_refused_is_counted_and_gives_no_score(tmp_path: Path) -> None:
    careful = member("ann", "41", OutputCheck(Wants("42"), OnCheckFailure.PASS))
    asked = member("bob", "42", approval=ApprovalMode.ALWAYS)

    async def main() -> None:
        async with open_journal(str(tmp_path / "journal.db")) as journal:
            await engine(journal, ScriptedApprover({"bob": Decision(False, "kim")})).run(
                TASK, pool_of(careful, asked), Asking([None, None])
            )

    asyncio.run(main())
    found = imported("journal", tmp_path / "journal.db")
    assert found.told["remarks"] == {"answers that a handoff check did not pass": 1}
    assert found.told["left"] == {"calls that a person did not allow": 1}
    assert (found.log.workers, found.scores("ann")) == (("ann",), [None])
