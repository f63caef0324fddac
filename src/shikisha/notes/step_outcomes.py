"""From finished runs to outcomes of steps: how likely each step's answer was right, given the run's grade.

A right run is taken to have right steps. A wrong run of one step had a wrong step; of several, nobody knows which one
it was: these outcomes are not `certain`, and `worker_notes` shares the blame. Two steps with the same subtask (votes,
second opinions) are compared with what the run went on with. An executed check that failed is certain.

Invariants: a grade counts for steps that the answer depends on, and for no others; a run without a grade, an erased run
and a call of a check, a plan or a tool say nothing.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shikisha.core.events import AttemptFinished, CheckStatus, GradeBasis
from shikisha.core.plan import Plan
from shikisha.core.run import Attempt, RoundRecord, Run, StepRecord
from shikisha.retrieval.terms import split_word

_RIGHT = 0.999  # a score from which on an answer is right
_MOST_TERMS = 24
_MOST_CHARACTERS, MOST_WORDING = 2_000, 300
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_WORD_OR_SIGN = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|[?%+*/=$-]")
_DIGIT = re.compile(r"\d")
_OPENS_SENTENCE = '.?!:\n"'


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """One answered step: `share` (0 to 1) is how likely it was right; `basis` is whose word that rests on.

    `terms` are the subtask's words without names and numbers, `labels` those of the task's data, `wording` the subtask
    with both masked. `run_right` is the run's grade; None where a failed check says so and the grade does not.
    """

    run: str
    worker: str
    terms: tuple[str, ...]
    share: float
    certain: bool
    basis: GradeBasis
    dollars: float
    seconds: float
    labels: frozenset[str] = frozenset()
    wording: str = ""
    run_right: bool | None = None


def subtask_wording(text: str) -> str:
    """Return a subtask with its names and digits masked: what kind of work it is, for one who reads sentences."""
    said: list[str] = []
    at = 0
    for match in _WORD_OR_SIGN.finditer(text[:_MOST_CHARACTERS]):
        opens = at == 0 or any(sign in text[at : match.start()] for sign in _OPENS_SENTENCE)
        at = match.end()
        word = match[0]
        named = word[0].isupper() and not opens and not word.isupper()
        said.append("Name" if named else _DIGIT.sub("0", word))
    return " ".join(said)[:MOST_WORDING]


def subtask_terms(text: str) -> tuple[str, ...]:
    """Return the words that say what kind of work a subtask is: no numbers, no names, each word once, in order.

    A word with a digit names a thing. So does a capitalized word that begins no sentence.
    """
    found: dict[str, None] = {}
    opens = True
    at = 0
    for match in _WORD.finditer(text):
        between = text[at : match.start()]
        opens = at == 0 or any(sign in between for sign in _OPENS_SENTENCE)
        at = match.end()
        word = match[0]
        if any(sign.isdigit() for sign in word) or (word[0].isupper() and not opens and not word.isupper()):
            continue
        found |= dict.fromkeys(split_word(word))
        if len(found) >= _MOST_TERMS:
            break
    return tuple(found)


def step_outcomes(runs: Iterable[Run]) -> list[WorkerOutcome]:
    """Return the outcomes of all steps of these runs, in their order."""
    return [one for run in runs for one in _outcomes_of(run)]


def _outcomes_of(run: Run) -> Iterator[WorkerOutcome]:
    """Yield the outcomes of one run's steps; those of a wrong run with several steps are not certain."""
    grade, end = run.grade, run.finished
    if run.erased is not None or end is None:
        return
    for turn in run.rounds:
        for index, record in turn.steps.items():
            if turn.plan is not None and (failed := _failed_check(record)) is not None:
                yield _outcome(run, turn.plan, index, failed, 0.0, GradeBasis.EXECUTED)
    if grade is None or grade.score is None or end.round is None or end.step is None:
        return
    right = grade.score >= _RIGHT
    used = [(turn, index) for turn in run.rounds for index in _used_steps(turn, run)]
    answered = [
        (turn, index, attempt) for turn, index in used if (attempt := turn.steps[index].accepted_attempt) is not None
    ]
    several = len({(turn.index, turn.plan.step_of(index).subtask) for turn, index, _ in answered if turn.plan}) > 1
    for turn, index, attempt in answered:
        if turn.plan is None or not _counts(attempt, turn.steps[index]):
            continue
        agrees = _agrees(turn, index, attempt)
        share = float(right and agrees)
        certain = right or not several
        yield replace(_outcome(run, turn.plan, index, attempt, share, grade.basis), certain=certain, run_right=right)


def _counts(attempt: Attempt, record: StepRecord) -> bool:
    """Whether a worker was asked and answered, and no check of its answer is counted already."""
    return _failed_check(record) is not attempt and isinstance(attempt.outcome, AttemptFinished)


def _used_steps(turn: RoundRecord, run: Run) -> list[int]:
    """Return the steps of a round that its last answer depends on; of an earlier round too, for the next one saw it."""
    if turn.plan is None or not turn.plan.steps:
        return []
    end = run.finished
    last = (
        end.step if end is not None and end.round == turn.index and end.step is not None else len(turn.plan.steps) - 1
    )
    needed, waiting = set[int](), [last]
    while waiting:
        at = waiting.pop()
        if at not in needed:
            needed.add(at)
            waiting += turn.plan.steps[at].access
    items = [item.index for at in needed if at in turn.steps for item in turn.steps[at].items or ()]
    return sorted(at for at in (*needed, *items) if at in turn.steps)


def _agrees(turn: RoundRecord, index: int, attempt: Attempt) -> bool:
    """Whether a later step that saw this answer, for the same subtask, came to the same; yes where there is none."""
    if turn.plan is None or not isinstance(attempt.outcome, AttemptFinished):
        return True
    own = turn.plan.step_of(index)
    twins = [at for at, step in enumerate(turn.plan.steps) if step.subtask == own.subtask and at != index]
    for at, step in enumerate(turn.plan.steps):
        sees_twin = index in step.access and any(twin in step.access for twin in twins)
        later = turn.steps[at].accepted_attempt if sees_twin and at in turn.steps else None
        if later is not None and isinstance(later.outcome, AttemptFinished):
            return later.outcome.text.strip() == attempt.outcome.text.strip()
    return True


def _failed_check(record: StepRecord) -> Attempt | None:
    """Return the attempt whose answer an executed check rejected last."""
    failed = [check.attempt for check in record.checks if check.status is CheckStatus.FAIL]
    return next((one for one in reversed(record.attempts) if one.started.attempt in failed), None)


def _outcome(run: Run, plan: Plan, index: int, attempt: Attempt, share: float, basis: GradeBasis) -> WorkerOutcome:
    done = attempt.outcome
    finished = done if isinstance(done, AttemptFinished) else None
    return WorkerOutcome(
        run.id,
        attempt.started.worker if finished is None else finished.worker,
        subtask_terms(plan.step_of(index).subtask),
        share,
        certain=True,
        basis=basis,
        dollars=attempt.charged.dollars or 0.0,
        seconds=0.0 if finished is None else finished.seconds,
        labels=frozenset(run.started.labels),
        wording=subtask_wording(plan.steps[index].subtask),
    )
