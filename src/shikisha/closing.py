"""The end of a run: a person looks at its answer where the class of its task wants that, and effects are undone.

Invariants: what the run comes to is journaled before anybody is asked or anything undone, and a resumed run goes on
from there: no round is conducted again (4). A refused answer is no answer, and a changed one says who changed it (9).
Only the run itself is looked at, never its child runs (their answers are its own steps'). Deliberately absent: when a
person is asked (`oversight`) and how (`people`), and which calls can be undone (`undo`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from time import time

from shikisha.approval import Decision, Question, question_id
from shikisha.checker import Inspection
from shikisha.errors import FaultKind, WorkerError
from shikisha.events import EndReached, QuestionKind, RunFinished, RunPaused, Status
from shikisha.handoff import AnswerSchema
from shikisha.ledger import Ledger
from shikisha.oversight import OnFailure, reasons
from shikisha.people import no, put
from shikisha.run import Run
from shikisha.scope import Scope
from shikisha.task import Task
from shikisha.undo import Wish, roll_back

BY_CONFIGURATION = "configuration"


async def conclude(scope: Scope, end: EndReached, told: Callable[[], Run]) -> RunFinished | RunPaused:
    """Return the event with which a run that has come to this end is over, or waits for a person.

    `told` folds the run's events so far.
    """
    if scope.ledger.parent is not None:
        return _finished(end)
    if scope.past is None or scope.past.reached is None:
        asks = reasons(scope.autonomy, told(), end) if end.answer is not None and scope.autonomy.watches else ()
        end = replace(end, asks=scope.clean("; ".join(asks)))
        if asks or _rolls_back(scope, end) or (end.answer is None and scope.autonomy.watches):
            scope.recorder.add(end)  # so nothing that a worker said is taken for an answer that nobody has seen
    if end.asks:
        run = told()
        try:
            end = await _decided(end, await put(scope, _question(scope, end, run)), run.task)
        except WorkerError as error:
            if error.fault.kind is not FaultKind.WAITING:
                raise
            return RunPaused(run=end.run, at=time(), status=Status.SUSPENDED, why="the answer waits for a review")
    if _rolls_back(scope, end):
        await roll_back(_apart(scope), told(), Wish(BY_CONFIGURATION, f"the run ended without an answer: {end.why}"))
    return _finished(end)


def _rolls_back(scope: Scope, end: EndReached) -> bool:
    return end.answer is None and scope.autonomy.on_failure is OnFailure.ROLLBACK


def _apart(scope: Scope) -> Scope:
    """Return the scope of a rollback: caps as the run had them, and nothing used yet."""
    caps = scope.ledger.caps
    deadline = None if caps.seconds is None else asyncio.get_running_loop().time() + caps.seconds
    return replace(scope, ledger=Ledger(caps), deadline=deadline)


def _question(scope: Scope, end: EndReached, run: Run) -> Question:
    answer = end.answer or ""
    place = run.round(end.round).step(end.step).result if end.round is not None else None
    worker = place.worker if place else ""
    shown = sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()
    name = question_id(run.id, end.round or 0, end.step, QuestionKind.REVIEW, worker, shown)
    prompt = f"A person is asked because {end.asks}.\n\nThe task:\n{run.task.prompt}\n\nThe answer:\n{answer}"
    return Question(name, QuestionKind.REVIEW, run.id, end.round or 0, end.step, worker, scope.clean(prompt))


async def _decided(end: EndReached, decision: Decision, task: Task) -> EndReached:
    if not decision.approved:
        return _refused(end, f"the answer was refused: {no(decision)}", FaultKind.DENIED)
    if not decision.text or decision.text == end.answer:
        return replace(end, why=f"{end.why}; {decision.actor} approved the answer")
    if problem := await misfit(task, decision.text):
        return _refused(end, f"{decision.actor} changed the answer in review: {problem}", FaultKind.CHECK_FAILED)
    return replace(end, why=f"{end.why}; {decision.actor} changed the answer in review", answer=decision.text)


def _refused(end: EndReached, why: str, fault: FaultKind) -> EndReached:
    return replace(end, status=Status.FAILED, why=why, fault=fault, round=None, step=None, answer=None)


async def misfit(task: Task, text: str) -> str | None:
    """Return why a text cannot be the answer to this task, whoever wrote it: the client's schema holds for people too.

    None: nothing speaks against it.
    """
    if task.answer_schema is None:
        return None
    verdict = await AnswerSchema(task.answer_schema).inspect(Inspection(task, task.prompt, text))
    return None if verdict.passed else verdict.reason


def _finished(end: EndReached) -> RunFinished:
    return RunFinished(
        run=end.run,
        at=time(),
        status=end.status,
        why=end.why,
        cap=end.cap,
        fault=end.fault,
        round=end.round,
        step=end.step,
        answer=end.answer,
    )
