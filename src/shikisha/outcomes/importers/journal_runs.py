"""Our own journal as an outcome log: what each worker did with each task that a run put to it.

Each answered or failed call for a step that is the task itself, with no other step's result to see, is a sample of
(task, worker), with its use, cost and time; what a failed call used is unknown. A call for a part of a plan, or one
that saw other results, says nothing of its worker alone: credited with the run's grade, the last worker in a chain of
right plans would seem to be right alone. Such calls are left out; each run is a row of the table `conducted` with its
conductor, grade and cost. A task without an id is named by its content.

Scores. The answer is what a grader extracted, else the text. A run's grade goes to the call whose text is the run's
answer, and to other calls as far as theirs follows from it (`infer_scores`, counted apart): the same subtask and
canonical form, or, where exactly one answer is right, a clearly different one. Nothing is inferred from answers to
other subtasks, from rejected ones, without a grade, or from numbers that differ slightly or in their unit. Where a run
of one step ended without an answer, the last worker that was really asked gets the grade. Executed grades go before
people's, and those before a language model's, which are counted apart and marked in the column `judged`. Output checks
give no score: they reject some wrong answers and never confirm a right one, so their mean would be biased against every
worker that is checked.

Propensities. A call's propensity is that of the plan which named its worker, given what came before: 1 where a policy
acted without chance, unknown where a model or a rule planned or another worker was substituted. Its turn is how many
steps were planned before, where a plan has one step; the propensities of a sequence multiply. A task has one sequence,
that of the first run whose first call has a propensity. Further runs' answers are samples, but their draws are not in
the log, since two draws in one row could not be told apart.

An agent's calls of tools are part of its answer: their tokens, cost and time are counted with it.

Left out, and counted: calls for planning and checks, calls in flight when the journal ended, calls that a person did
not allow, and runs whose texts were erased. A child run is a run of its own task.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from shikisha.conductors.topologies import asks_whole
from shikisha.core.budget import Amount
from shikisha.core.call import Request
from shikisha.core.errors import ConfigError
from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    CallRole,
    CheckStatus,
    GradeBasis,
    GradeMark,
    QuestionKind,
    ToolsOffered,
)
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Attempt, RoundRecord, Run, runs_in_scope
from shikisha.core.task import Task
from shikisha.core.text import with_confidence
from shikisha.core.visibility import PART_NOW, request_messages, view_hash
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.quantities import extract_quantity
from shikisha.journal import open_journal
from shikisha.outcomes.importers.source_files import Sources
from shikisha.outcomes.log_reader import ReferenceAnswer, RunOutcome
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer, LoggedTask

StepPosition = tuple[int, int]  # a round and a step

_ONE_RIGHT = (AnswerForm.CHOICE, AnswerForm.NUMBER)
_FORMS = {form.value for form in AnswerForm}
_OPTION = re.compile(r"^\W{0,3}([A-Z])\W{0,2}[.):]\W{0,2}\s", re.MULTILINE)
# Characters; a longer answer is not a bare number.
_SHORT = 40
# Relative difference that no grader tolerates.
_APART = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class InferredScore:
    """An inferred score, its basis, the canonical answer, and whether it `agrees` with the shipped one."""

    score: float
    basis: GradeBasis
    said: str
    agrees: bool


def infer_scores(run: Run, form: AnswerForm | None = None) -> Mapping[StepPosition, InferredScore]:
    """Return the scores that follow from the run's grade; `form` None: `answer_form_of` finds it."""
    grade, place = run.grade, shipped_step(run)
    if grade is None or grade.score is None or place is None:
        return {}
    answers = dict(_same_question(run, place))
    if place not in answers:
        return {}
    known = form or answer_form_of(run)
    found = {}
    for other, text in answers.items():
        said, right = _comparable_text(text, known), _comparable_text(answers[place], known)
        if other == place or said is None or right is None:
            continue
        if said == right:
            if known is not AnswerForm.NUMBER or _may_share_unit(text, answers[place]):
                found[other] = InferredScore(grade.score, grade.basis, said, agrees=True)
        elif known in _ONE_RIGHT and grade.score >= 1 and _surely_differ(text, answers[place], known):
            found[other] = InferredScore(0.0, grade.basis, said, agrees=False)
    return found


def answer_form_of(run: Run) -> AnswerForm | None:
    """Return the form in which answers to a run's task are compared, None where it is unknown.

    The grade's grader decides; else CHOICE if every answer chooses one of the prompt's lettered options, or NUMBER if
    every answer is a bare number.
    """
    grade, place = run.grade, shipped_step(run)
    if grade is not None and grade.checker in _FORMS:
        return AnswerForm(grade.checker)
    texts = [text for _, text in _same_question(run, place)] if place else []
    if not texts:
        return None
    options = set(_OPTION.findall(run.started.prompt))
    if {"A", "B"} <= options and all(canonicalize(text, AnswerForm.CHOICE, len(options)) for text in texts):
        return AnswerForm.CHOICE
    if all(
        len(text) <= _SHORT
        and canonicalize(text, AnswerForm.NUMBER)
        and not (len(re.findall(r"[^\W\d_]{2,}", text)) > 2)
        for text in texts
    ):
        return AnswerForm.NUMBER
    return None


def shipped_step(run: Run) -> StepPosition | None:
    """Return the round and step whose answer the run shipped."""
    end = run.finished
    if end is None or end.answer is None or end.round is None or end.step is None:
        return None
    return end.round, end.step


def _same_question(run: Run, place: StepPosition) -> Iterator[tuple[StepPosition, str]]:
    """Yield the answers of all steps with the shipped step's subtask, including its own."""
    plan = run.round(place[0]).plan
    asked = plan.step_of(place[1]).subtask if plan else None
    for turn in run.rounds:
        for index, step in enumerate(turn.plan.steps if turn.plan else ()):
            attempt = turn.steps[index].accepted_attempt if index in turn.steps else None
            if step.subtask == asked and attempt and isinstance(attempt.outcome, AttemptFinished):
                yield (turn.index, index), attempt.outcome.text


def _comparable_text(text: str, form: AnswerForm | None) -> str | None:
    """Return the canonical form, or the exact text without a form."""
    return (text.strip() or None) if form is None else canonicalize(text, form)


def _may_share_unit(one: str, other: str) -> bool:
    """Whether two numbers may have the same unit, which `canonicalize` ignores."""
    units = [
        found.unit for found in (extract_quantity(one), extract_quantity(other)) if found is not None and found.unit
    ]
    return len(set(units)) < 2


def _surely_differ(one: str, other: str, form: AnswerForm | None) -> bool:
    """Whether two answers, whose canonical forms differ, cannot both be right."""
    if form is not AnswerForm.NUMBER:
        return True
    first, second = extract_quantity(one), extract_quantity(other)
    if first is None or second is None or first.value is None or second.value is None:
        return False
    most = max(abs(first.value), abs(second.value))
    return first.unit == second.unit and abs(first.value - second.value) > _APART * most


JUDGED = "scores that a language model gave"
AGREES, DIFFERS = "scores inferred: the same as a graded answer", "scores inferred: another than the right answer"
PARTS = "calls for a part of a plan, or that saw others' results: no worker's own outcomes"
FURTHER = "further runs of a task, of which the answers count and the draws do not"
FormLookup = Callable[[Task], AnswerForm | None]
_LoggedTasks = set[tuple[str, str]]  # the tasks whose sequence is in the log


def import_journals(given: Sources, log: LogBuilder) -> None:
    """Read journals: files or database URLs. Not from within an event loop."""
    runs = list[Run]()
    for name in given.names:
        path = name.removeprefix("sqlite:///")
        if "://" not in path and not Path(path).is_file():  # opening it would make a new one
            raise ConfigError(f"{path}: there is no such journal")
        runs += asyncio.run(_read_runs(name))
    if given.labels is not None:
        every = len(runs)
        _, runs = runs_in_scope(runs, given.tenant, given.labels)
        for _ in range(every - len(runs)):
            log.skip("runs of another tenant, or with labels that are not named")
    gather_runs(runs, log)


async def _read_runs(name: str) -> list[Run]:
    async with open_journal(name) as journal:
        return await journal.all_runs()


def gather_runs(runs: Iterable[Run], log: LogBuilder, form: FormLookup | None = None) -> None:
    """Take the calls of these runs, oldest first."""
    begun: _LoggedTasks = set()
    for run in runs:
        _gather_run(run, log, form, begun)


def _gather_run(run: Run, log: LogBuilder, form: FormLookup | None, begun: _LoggedTasks) -> None:
    if run.erased is not None:
        log.skip("runs whose texts were erased")
        return
    log.scopes.add(run.scope)
    scored = _ScoredRun.of(run, form(run.task) if form else None)
    asked = LoggedTask(run.task, ReferenceAnswer(None, None if scored.form is None else str(scored.form)))
    draws = _round_draws(run, log, begun)
    for turn in run.rounds:
        for attempt in _calls(turn):
            if attempt.started.role in {CallRole.TOOL, CallRole.PROBE}:
                continue  # what an agent's calls cost is part of its answer's cost
            if attempt.started.role is not CallRole.STEP:
                log.skip("calls for planning and checks")
            elif attempt.outcome is None:
                log.skip("calls in flight when the journal ended")
            elif not _is_whole(attempt, turn, run):
                log.skip(PARTS)
            elif isinstance(attempt.outcome, AttemptFinished) and attempt.outcome.calls:
                if not _is_agent_step(attempt, turn):
                    log.skip("calls that wanted the client's tools before they answered")
            else:
                drawn = draws.get(turn.index, _NO_DRAW) if _by_planned_worker(attempt, turn, run) else _NO_DRAW
                answer = replace(_logged_answer(attempt, scored, drawn), wording=_wording(attempt, turn, run))
                log.add(asked, _with_tool_loop(answer, attempt, turn) if _is_agent_step(attempt, turn) else answer)
    if run.started.parent is None:
        log.add_run(asked, _run_outcome(run))
    _remark(scored, log)


def _is_agent_step(attempt: Attempt, turn: RoundRecord) -> bool:
    """Whether the call belongs to a step in which an agent was offered tools."""
    record = turn.steps.get(attempt.started.step) if attempt.started.step is not None else None
    return record is not None and any(isinstance(each, ToolsOffered) for each in record.tools)


def _with_tool_loop(answer: LoggedAnswer, attempt: Attempt, turn: RoundRecord) -> LoggedAnswer:
    """Return an agent's answer with what its loop used: its replies before this one, and its calls of tools."""
    mine = [
        each
        for each in turn.steps[attempt.started.step or 0].attempts
        if each.started.attempt <= attempt.started.attempt
        and (each.started.call or each.started.worker == attempt.started.worker)
    ]
    ended = [each.outcome for each in mine if isinstance(each.outcome, AttemptFinished)]
    charged = sum((each.charged for each in mine), Amount())
    return replace(
        answer,
        input_tokens=sum(each.usage.input_tokens for each in ended),
        output_tokens=sum(each.usage.output_tokens for each in ended),
        dollars=charged.dollars,
        seconds=sum(each.seconds for each in ended),
    )


def _run_outcome(run: Run) -> RunOutcome:
    parted = any(not asks_whole(step, run.task.prompt) for turn in run.rounds if turn.plan for step in turn.plan.steps)
    return RunOutcome(run.started.conductor, None, parted, run.grade.score if run.grade else None, run.charged.dollars)


def _is_whole(attempt: Attempt, turn: RoundRecord, run: Run) -> bool:
    """Whether the call is for a step that is the task itself."""
    step = attempt.started.step
    return step is not None and turn.plan is not None and asks_whole(turn.plan.step_of(step), run.task.prompt)


def _wording(attempt: Attempt, turn: RoundRecord, run: Run) -> str:
    """Return what the worker was asked besides the task; "" where it got the task in the client's own words.

    Runs of before own words were passed on put the same step in words: the hash of what was shown tells.
    """
    step = turn.plan.step_of(attempt.started.step) if turn.plan and attempt.started.step is not None else None
    if step is None:
        return ""
    request = Request(run.task, step.subtask)
    if not request.own_words:
        return step.subtask
    plain = run.task.bare and attempt.started.reason is AttemptReason.FIRST
    if plain and attempt.started.view not in ("", view_hash(request_messages(request))):
        return f"{PART_NOW}{step.subtask}"
    return ""


def _round_draws(run: Run, log: LogBuilder, begun: _LoggedTasks) -> Mapping[int, "_Draw"]:
    """Return how each round drew its worker; none without a first propensity, or where the task is in the log."""
    found, steps = {}, 0
    for turn in run.rounds:
        planned = len(turn.plan.steps) if turn.plan else 0
        if planned:
            found[turn.index] = _Draw(plan_propensity(turn), steps if planned == 1 else None)
        steps += planned
    if next((drawn.chance for drawn in found.values()), None) is None:
        return {}
    key = run.task.id, run.task.content_hash
    if key in begun:
        log.remark(FURTHER)
        return {}
    begun.add(key)
    return found


@dataclass(frozen=True, slots=True)
class _Draw:
    """With what probability, and at which turn, a worker was asked."""

    chance: float | None = None
    turn: int | None = None


_NO_DRAW = _Draw()


@dataclass(frozen=True, slots=True)
class _ScoredRun:
    """A run, its form and grade, the call that the grade is about, and what follows for others."""

    run: Run
    form: AnswerForm | None
    grade: AnswerGraded | None
    scored: Attempt | None
    others: tuple[tuple[Attempt, InferredScore], ...]

    @classmethod
    def of(cls, run: Run, form: AnswerForm | None) -> "_ScoredRun":
        known, grade = form or answer_form_of(run), run.grade
        others = []
        for (turn, step), worth in infer_scores(run, known).items():
            attempt = run.rounds[turn].steps[step].accepted_attempt
            if attempt is not None:
                others.append((attempt, worth))
        return cls(run, known, grade, None if grade is None else _graded_attempt(run), tuple(others))

    def worth(self, attempt: Attempt) -> InferredScore | None:
        """Return what follows for this call, which the grade is not about."""
        return next((worth for other, worth in self.others if other is attempt), None)


def _remark(scored: _ScoredRun, log: LogBuilder) -> None:
    run, scores = scored.run, [worth.basis for _, worth in scored.others]
    if scored.scored is not None and scored.grade is not None:
        scores.append(scored.grade.basis)
    for basis in scores:
        if basis is GradeBasis.JUDGE:
            log.remark(JUDGED)
    for _, worth in scored.others:
        log.remark(AGREES if worth.agrees else DIFFERS)
    steps = [step for turn in run.rounds for step in turn.steps.values()]
    for check in (check for step in steps for check in step.checks):
        if check.status is CheckStatus.FAIL:
            log.remark("answers that a handoff check did not pass")
    for question in (question for step in steps for question in step.questions):
        said = run.answers.get(question.question)
        if question.asks is QuestionKind.APPROVE and said is not None and not said.approved:
            log.skip("calls that a person did not allow")


def _calls(turn: RoundRecord) -> list[Attempt]:
    return [attempt for record in (turn.planning, *turn.steps.values()) for attempt in record.attempts]


def plan_propensity(turn: RoundRecord) -> float | None:
    """Return the probability with which the round's plan was drawn; None where it is unknown.

    A version stands in plans of policies, and in those that a model wrote, for which it was called.
    """
    made = turn.proposed
    if made is None:
        return None
    if made.propensity is not None:
        return made.propensity
    return 1.0 if made.version and made.substituted is None and not turn.planning.attempts else None


def _by_planned_worker(attempt: Attempt, turn: RoundRecord, run: Run) -> bool:
    """Whether this is a call of the worker that the plan names, and of none that stood in."""
    step = attempt.started.step
    if turn.plan is None or step is None:
        return False
    return attempt.started.worker == run.started.pool[turn.plan.step_of(step).worker]


def _graded_attempt(run: Run) -> Attempt | None:
    """Return the call that the run's grade is about."""
    end, place = run.finished, shipped_step(run)
    if end is not None and place is not None:
        attempt = run.round(place[0]).step(place[1]).accepted_attempt
        return attempt if attempt is not None and _text(attempt) == end.answer else None
    steps = [step for turn in run.rounds for step in turn.steps.values()]
    if end is None or end.answer is not None or len(steps) != 1:
        return None
    return next((one for one in reversed(steps[0].attempts) if _was_asked(one)), None)


def _text(attempt: Attempt) -> str | None:
    return attempt.outcome.text if isinstance(attempt.outcome, AttemptFinished) else None


def _was_asked(attempt: Attempt) -> bool:
    failed = attempt.outcome
    if attempt.started.reason is AttemptReason.AGREED:
        return False
    return not (failed is None or (isinstance(failed, AttemptFailed) and failed.fault.free))


def _logged_answer(attempt: Attempt, scored: _ScoredRun, drawn: _Draw) -> LoggedAnswer:
    where = f"run {scored.run.id}, call {attempt.started.key}"
    grade, worth = (scored.grade if attempt is scored.scored else None), scored.worth(attempt)
    score = grade.score if grade else worth.score if worth else None
    basis = grade.basis if grade else worth.basis if worth else None
    judged = None if basis is None else float(basis is GradeBasis.JUDGE)
    if not isinstance(attempt.outcome, AttemptFinished):
        seconds = None if attempt.outcome is None else attempt.outcome.seconds
        failed = LoggedAnswer(attempt.started.worker, where, score, seconds=seconds, judged=judged)
        return replace(failed, propensity=drawn.chance, turn=drawn.turn)
    done = attempt.outcome
    return LoggedAnswer(
        done.worker,
        where,
        score,
        _answer_text(done.text, grade, worth),
        with_confidence(done.text, done.confidence),
        done.usage.input_tokens,
        done.usage.output_tokens,
        done.dollars,
        seconds=done.seconds,
        propensity=drawn.chance,
        judged=judged,
        turn=drawn.turn,
    )


def _answer_text(text: str, grade: AnswerGraded | None, worth: InferredScore | None) -> str | None:
    """Return what stands for the answer: what the grader extracted, else what it was compared by, else the text."""
    if grade is not None:
        return grade.found or (None if grade.mark is GradeMark.NO_ANSWER else text)
    return worth.said if worth else text
