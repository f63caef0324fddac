"""Notes of workers: what a run's grade says of its steps, and what is known of a worker at a text."""

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.cli import app
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Request
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeBasis, GradeMark
from shikisha.core.run import Run
from shikisha.core.subtasks import CHECK_OPENING
from shikisha.core.task import OPERATOR
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal import open_journal
from shikisha.notes.run_chances import PartForm
from shikisha.notes.step_outcomes import WorkerOutcome, step_outcomes, subtask_terms, subtask_wording
from shikisha.notes.worker_notes import WorkerNotes, load_notes
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.workers.vote import VoteWorker


class Says:
    """Answers with one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def perform(self, request: Request) -> Reply:  # noqa: ARG002 - a worker's signature
        return Reply(self.text)


async def graded(plan: Plan, score: float | None, says: dict[str, str], name: str = "run") -> Run:
    recorder = MemoryRecorder()
    pool = Pool(
        [Member(Card(worker), Says(text)) for worker, text in says.items()] + [Member(Card("votes"), VoteWorker())]
    )
    run = await Engine(recorder).run(Task("Do it."), pool, ScriptedConductor([plan]), Caps(), run_id=name)
    if score is not None:
        mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG
        run.grades.append(AnswerGraded(run=run.id, at=0.0, checker="feedback", mark=mark, score=score, actor="me"))
    return run


def shares(found: list[WorkerOutcome]) -> dict[str, float]:
    return {one.worker: round(one.share, 3) for one in found}


TWO = Plan((Step("Look it up.", 0), Step("Add the two.", 1, (0,))))


async def test_a_right_run_has_right_steps_and_an_ungraded_one_says_nothing() -> None:
    assert shares(step_outcomes([await graded(TWO, 1.0, {"a": "1", "b": "2"})])) == {"a": 1.0, "b": 1.0}
    assert step_outcomes([await graded(TWO, None, {"a": "1", "b": "2"})]) == []


async def test_a_wrong_run_of_one_step_is_that_worker_s_and_of_two_is_shared_by_what_others_say() -> None:
    one = await graded(Plan((Step("Add the two.", 1),)), 0.0, {"a": "1", "b": "2"})
    assert shares(step_outcomes([one])) == {"b": 0.0}
    right = [await graded(Plan((Step("Look it up.", 0),)), 1.0, {"a": "1", "b": "2"}, f"r{n}") for n in range(8)]
    wrong = await graded(TWO, 0.0, {"a": "1", "b": "2"}, "w")
    notes = WorkerNotes.collect(step_outcomes([*right, wrong])).notes
    found = {note.worker: note.right / note.tries for note in notes}
    assert found["a"] > 0.95
    assert found["b"] < 0.3


async def test_voters_that_disagree_with_a_right_vote_were_wrong() -> None:
    vote = Plan((Step("Add.", 0), Step("Add.", 1), Step("Add.", 2), Step("Add.", 3, (0, 1, 2))))
    run = await graded(vote, 1.0, {"a": "7", "b": "8", "c": "7"})
    assert shares(step_outcomes([run])) == {"a": 1.0, "b": 0.0, "c": 1.0, "votes": 1.0}


def told(found: list[WorkerOutcome]) -> dict[str, tuple[float, bool | None]]:
    return {one.worker: (one.share, one.replaced) for one in found}


CHECKED = Plan((Step("Add. Reply with the result only.", 0), Step(f"{CHECK_OPENING} Add. For example: 1234.", 1, (0,))))


async def test_who_was_corrected_in_a_right_run_was_wrong() -> None:
    found = step_outcomes([await graded(CHECKED, 1.0, {"a": "7", "b": "8"})])
    assert told(found) == {"a": (0.0, True), "b": (1.0, None)}
    assert [(one.part, one.form, one.judges) for one in found] == [
        (0, PartForm.CHECK, False),
        (0, PartForm.CHECK, True),
    ]
    for said in ("1,700", "Yes, 1700 is right."):
        found = step_outcomes([await graded(CHECKED, 1.0, {"a": "1700.", "b": said})])
        assert told(found) == {"a": (1.0, False), "b": (1.0, None)}
    found = step_outcomes([await graded(CHECKED, 1.0, {"a": "long " * 50, "b": "other " * 50})])
    assert told(found) == {"a": (1.0, None), "b": (1.0, None)}


async def test_a_wrong_run_blames_whoever_was_corrected_more() -> None:
    plan = Plan((*CHECKED.steps, Step("Look it up.", 2, (1,))))
    kept = [await graded(plan, 0.0, {"a": "7", "b": "7", "c": "9"}, f"r{at}") for at in range(4)]
    replaced = [await graded(plan, 0.0, {"a": "7", "b": "8", "c": "9"}, f"r{at}") for at in range(4)]

    def share(runs: list[Run], worker: str) -> float:
        one = WorkerNotes.collect(step_outcomes(runs)).estimate("", [worker], OPERATOR)[0]
        return one.all_right / one.all_tries

    assert share(replaced, "a") < share(kept, "a") - 0.1
    assert share(replaced, "c") != share(kept, "c")


async def test_later_opinions_tell_who_was_wrong_and_other_repeats_tell_nothing() -> None:
    """Opinions of one round that differ wait for a third; items, revisions and rounds of like words are no votes."""

    async def told_of(plans: list[Plan], says: list[str]) -> dict[str, tuple[float, bool | None]]:
        recorder = MemoryRecorder()
        pool = Pool([Member(Card(name), Says(text)) for name, text in zip("abcd", says, strict=False)])
        run = await Engine(recorder).run(Task("Do it."), pool, ScriptedConductor(plans), Caps(rounds=3, map_items=5))
        run.grades.append(
            AnswerGraded(run=run.id, at=0.0, checker="feedback", mark=GradeMark.RIGHT, score=1.0, actor="me")
        )
        return told(step_outcomes([run]))

    pair = Plan((Step("Add. For example: 1234.", 1), Step("Add.", 0)))
    assert await told_of([pair, Plan((Step("Add.", 2),))], ["7", "8", "8"]) == {"a": (0.0, True), "c": (1.0, False)}
    assert await told_of([pair, Plan((Step("Add.", 2),))], ["7", "8", "9"]) == {"a": (1.0, None), "c": (1.0, None)}
    assert await told_of([pair], ["7", "7"]) == {"a": (1.0, False)}
    revised = Plan((Step("Add.", 0), Step("Add.", 1, (0,))))
    assert await told_of([revised], ["7", "8"]) == {"a": (1.0, None), "b": (1.0, None)}
    rounds = [Plan((Step("Go on.", at),)) for at in range(3)]
    assert set((await told_of(rounds, ["1", "1", "2"])).values()) == {(1.0, None)}
    items = Plan((Step("List them.", 0), Step("Price it.", 1, (0,), each=0)))
    assert (await told_of([items], ['["x", "y"]', "3"]))["b"] == (1.0, None)


async def test_a_step_that_the_answer_does_not_depend_on_gets_no_grade() -> None:
    plan = Plan((Step("Look it up.", 0), Step("Add the two.", 1)))
    assert shares(step_outcomes([await graded(plan, 1.0, {"a": "1", "b": "2"})])) == {"b": 1.0}


def test_names_and_numbers_are_no_kind_of_work() -> None:
    assert subtask_terms("Which room is Ada Abbot in? INV-4411 costs 12.") == subtask_terms(
        "Which room is Boris Xu in? costs"
    )
    assert subtask_terms("") == ()
    assert len(subtask_terms("word " * 10 + " ".join(map(chr, range(0x4E00, 0x4E00 + 5000))))) < 40


def test_shares_converge_to_the_workers_own_under_random_chains() -> None:
    """Blame is shared as a simulation with known shares says: within .08 after 400 runs of two or three steps."""
    rng, truth = random.Random(1), {"a": 0.95, "b": 0.6, "c": 0.3}
    one = WorkerOutcome("r", "a", (), 1.0, True, GradeBasis.PERSON, 0.0, 0.0, OPERATOR)
    certain, blamed = list[WorkerOutcome](), list[list[WorkerOutcome]]()
    for at in range(600):
        chosen = rng.choices(list(truth), k=rng.choice((1, 2, 3)))
        right = [rng.random() < truth[worker] for worker in chosen]
        group = [replace(one, worker=worker, share=float(all(right))) for worker in chosen]
        if all(right) or len(chosen) == 1:
            certain += group
        else:
            blamed.append([replace(step, run=f"r{at}", certain=False) for step in group])
    notes = WorkerNotes.collect([*certain, *(step for group in blamed for step in group)])
    known = {one.worker: one.all_right / one.all_tries for one in notes.estimate("", list(truth), OPERATOR)}
    assert all(abs(known[worker] - share) < 0.08 for worker, share in truth.items()), known


def test_by_meaning_a_note_answers_for_other_words() -> None:
    one = WorkerOutcome("r", "a", (), 1.0, True, GradeBasis.PERSON, 0.0, 0.0, OPERATOR)
    said = {"Who supervises Ada Abbot?": 1.0, "What is the sum of 17 and 4?": 0.0}
    outcomes = [
        replace(one, run=f"r{at}", share=share, terms=subtask_terms(text), wording=subtask_wording(text))
        for text, share in said.items()
        for at in range(8)
    ]
    asked = {"the manager of Boris Xu, please": 1.0, "calculate 312 plus 9": 0.0}
    by_words = WorkerNotes.collect(outcomes)
    assert {round(by_words.estimate(text, ["a"], OPERATOR)[0].mean, 3) for text in asked} == {0.5}
    by_meaning = WorkerNotes.collect(outcomes, shipped_encoder().encode)
    found = [by_meaning.estimate(text, ["a"], OPERATOR)[0].mean for text in asked]
    assert found[0] > 0.55 > 0.45 > found[1]
    assert by_meaning.estimate("", ["a"], OPERATOR)[0].tries == 0
    assert by_meaning.version == by_words.version


def test_a_wording_has_no_names_and_no_digits() -> None:
    assert subtask_wording("Is INV-4411 of Ada Abbot above 12%?") == "Is INV-0000 of Name Name above 00 % ?"
    assert len(subtask_wording("word " * 10_000)) <= 300


async def test_a_file_comes_back_and_one_that_was_edited_is_refused(tmp_path: Path) -> None:
    notes = WorkerNotes.collect(step_outcomes([await graded(TWO, 1.0, {"a": "1", "b": "2"})]))
    file = tmp_path / "our.notes"
    notes.save(file)
    assert load_notes(file).notes == notes.notes
    body = json.loads(file.read_text())
    body["notes"][0]["right"] = 0.5
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="changed after it was made"):
        load_notes(file)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": "x"}', '{"format": "shikisha-notes/2", "version": "", "notes": [1]}']
)
def test_what_is_no_file_of_notes_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.notes"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.notes"):
        load_notes(file)


def test_the_command_shows_writes_and_asks(tmp_path: Path) -> None:
    database, out = tmp_path / "runs.db", tmp_path / "our.notes"

    async def record() -> None:
        async with open_journal(str(database)) as journal:
            pool = Pool([Member(Card("a"), Says("1")), Member(Card("b"), Says("2"))])
            run = await Engine(journal).run(Task("Do it."), pool, ScriptedConductor([TWO]), Caps(), run_id="one")
            journal.add(
                AnswerGraded(run=run.id, at=1.0, checker="feedback", mark=GradeMark.RIGHT, score=1.0, actor="me")
            )
            await journal.flush()

    def call(*words: str) -> str:
        done = CliRunner().invoke(app, ["notes", "--journal", str(database), *words])
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    asyncio.run(record())
    assert "all work" in call("--out", str(out))
    assert len(load_notes(out).notes) == 2
    assert json.loads(call("--json", "--for", "Add the two numbers."))["workers"][0]["worker"] == "b"
