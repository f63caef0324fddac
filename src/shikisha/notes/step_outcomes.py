"""From finished runs to outcomes of steps: how likely each step's answer was right, given the run's grade.

A right run is taken to have right steps. A wrong run of one step had a wrong step; of several, nobody knows which one
it was: these outcomes are not `certain`, and `worker_notes` shares the blame. Steps that did the same work (votes,
second opinions, a worker's check of a result) are compared with what the run went on with: in a right run, who was
replaced was wrong. An executed check that failed is certain.

Invariants: a grade counts for steps that the answer depends on, and for no others; a run without a grade, an erased run
and a call of a check, a plan or a tool say nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shikisha.core.events import AttemptFinished, CheckStatus, GradeBasis
from shikisha.core.plan import Plan, item_place
from shikisha.core.run import Attempt, RoundRecord, Run, StepRecord
from shikisha.core.subtasks import CHECK_OPENING, subtask_core
from shikisha.core.task import Scope
from shikisha.notes.run_chances import PartForm
from shikisha.retrieval.terms import split_word

_RIGHT = 0.999  # a score from which on an answer is right
_MOST_TERMS = 24
_MOST_CHARACTERS, MOST_WORDING = 2_000, 300
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_WORD_OR_SIGN = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|[?%+*/=$-]")
_DIGIT = re.compile(r"\d")
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")
_OPENS_SENTENCE = '.?!:\n"'
_MOST_COMPARED = 200  # characters: longer texts differ where results do not


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """One answered step: `share` (0 to 1) is how likely it was right; `basis` is whose word that rests on.

    `terms` are the subtask's words without names and numbers, `scope` that of the run, `wording` the subtask
    with both masked. `run_right` is the run's grade; None where a failed check says so and the grade does not. `part`
    numbers the work in its run, and `form` says how it was done; `judges` marks a check or a count of votes, and
    `replaced` says whether the run went on with another result than this answer (None: not known).
    """

    run: str
    worker: str
    terms: tuple[str, ...]
    share: float
    certain: bool
    basis: GradeBasis
    dollars: float
    seconds: float
    scope: Scope
    wording: str = ""
    run_right: bool | None = None
    part: int | None = None
    form: PartForm = PartForm.CALL
    judges: bool = False
    replaced: bool | None = None


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
    works = _same_works(run)
    answered = [
        (turn, index, attempt) for turn, index in used if (attempt := turn.steps[index].accepted_attempt) is not None
    ]
    done = dict.fromkeys(_work_of(turn, index) for turn, index, _ in answered)
    parts = {work: part for part, work in enumerate(done)}
    several = len({(turn.index, turn.plan.step_of(index).subtask) for turn, index, _ in answered if turn.plan}) > 1
    for turn, index, attempt in answered:
        if turn.plan is None or not _counts(attempt, turn.steps[index]):
            continue
        work = _work_of(turn, index)
        answers = works[work]
        own = next(one for one in answers if one.place == (turn.index, index))
        replaced = _is_replaced(own, answers)
        certain = right or not several
        yield replace(
            _outcome(run, turn.plan, index, attempt, float(right and not replaced), grade.basis),
            certain=certain, run_right=right, part=parts[work], form=_form_of(answers), judges=own.judges is not None,
            replaced=replaced,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _WorkAnswer:
    """An answer to some work: its round and step, its text, how many others' answers it saw, and how it judges them."""

    place: tuple[int, int]
    text: str
    saw: int
    judges: PartForm | None


def _work_of(turn: RoundRecord, index: int) -> tuple[str, int]:
    """Return what says that steps did the same work: its text; each item of a map step is work of its own."""
    if turn.plan is None:
        return "", index
    return subtask_core(turn.plan.step_of(index).subtask), -1 if item_place(index) is None else index


def _same_works(run: Run) -> dict[tuple[str, int], list[_WorkAnswer]]:
    """Return the answers of all steps of a run by the work that they did, in order, used or not."""
    found = defaultdict[tuple[str, int], list[_WorkAnswer]](list)
    for turn in run.rounds:
        here = defaultdict[tuple[str, int], set[int]](set)
        for index, record in sorted(turn.steps.items()):
            attempt = record.accepted_attempt
            if turn.plan is None or attempt is None or not isinstance(attempt.outcome, AttemptFinished):
                continue
            step, work = turn.plan.step_of(index), _work_of(turn, index)
            saw = len(here[work].intersection(step.access))
            here[work].add(index)
            judges = None
            if saw and step.subtask.startswith(CHECK_OPENING):
                judges = PartForm.CHECK
            elif saw > 1:
                judges = PartForm.OPINIONS
            found[work].append(_WorkAnswer((turn.index, index), attempt.outcome.text.strip(), saw, judges))
    return found


def _form_of(answers: Sequence[_WorkAnswer]) -> PartForm:
    judges = {one.judges for one in answers}
    if PartForm.CHECK in judges:
        return PartForm.CHECK
    return PartForm.OPINIONS if PartForm.OPINIONS in judges or _opinions(answers) else PartForm.CALL


def _opinions(answers: Sequence[_WorkAnswer]) -> list[str]:
    """Return the texts of those that did the work without another's answer, if two of one round did."""
    alone = [one for one in answers if not one.saw]
    rounds = [one.place[0] for one in alone]
    return [one.text for one in alone] if len(set(rounds)) < len(rounds) else []


def _is_replaced(own: _WorkAnswer, answers: Sequence[_WorkAnswer]) -> bool | None:
    """Return whether the run went on with another result than this answer; None where nobody else gave one."""
    if own.saw:
        return None
    judge = next((one for one in reversed(answers) if one.judges is not None), None)
    if judge is not None and judge.judges is PartForm.OPINIONS:
        return judge.text != own.text
    if judge is not None:
        if max(len(judge.text), len(own.text)) > _MOST_COMPARED:
            return None
        # A check that says "Yes, 42 is right." confirms.
        said, result = _plain(judge.text), _plain(own.text)
        return re.search(rf"(?<!\w){re.escape(result)}(?!\w)", said) is None
    text, votes = Counter(_opinions(answers)).most_common(1)[0] if _opinions(answers) else ("", 0)
    return None if votes < 2 else text != own.text


def _plain(text: str) -> str:
    """Return a result without what different workers write differently: case, space, commas in numbers, a last dot."""
    return " ".join(_COMMA.sub("", text).casefold().split()).rstrip(".")


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
        scope=run.scope,
        wording=subtask_wording(plan.step_of(index).subtask),
    )
