"""Grades an outcome log: answers without a score get one from a grader or from a judge, in a new log.

Invariants: a score that is there stays; equal answers to a task are graded once; what could not be graded stays without
a score. The number of judged answers and their estimated price are known before the first call, and no call begins
after the limit is spent. A judge that is one of the judged workers is refused unless that is asked for, and every score
that a judge gave says so. Where people or programs graded at least 100 answers of the log, the judge first grades a
sample of these: the log keeps how often it agrees, and its scores are dropped if it agrees no better than by chance.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from math import ceil, sqrt
from pathlib import Path

from shikisha.config.container import Container
from shikisha.config.grader_services import open_judge, sandbox_named
from shikisha.core.budget import Usage, format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.evals.graders import Grade, Grader, GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.grader_registry import GRADERS, build_grader
from shikisha.evals.graders.judge import JudgeSettings, judge_messages
from shikisha.outcomes.log_reader import OutcomeLog, has_responses, run_outcomes
from shikisha.outcomes.log_writer import (
    CostKind,
    LogBuilder,
    LoggedAnswer,
    LoggedTask,
    LogSummary,
    check_folder_empty,
)

JUDGE = "judge"
# Tokens that a judge writes for a verdict, as estimated, and characters of a token.
_VERDICT_TOKENS, _TOKEN_CHARACTERS = 150, 4
_AT_ONCE = 8
# Answers with a score that a judge is first measured by: so many are asked about, so many must have a verdict.
_MEASURED, _LEAST_MEASURED = 120, 100
_Z, _HALF = 1.96, 0.5
# Settings of graders that come from the log: which of a task's texts each is.
_FROM_TASK: Mapping[str, Mapping[str, str]] = {
    "choice": {"answer": "gold"},
    "entry_point": {"gold": "gold", "prompt": "prompt"},
    JUDGE: {"gold": "gold", "prompt": "prompt"},
    "math": {"answer": "gold"},
    "number": {"answer": "gold"},
    "repository": {"instance": "id"},
    "text": {"answer": "gold"},
}


@dataclass(frozen=True, slots=True)
class GradingRequest:
    """Which log is graded how: `grader` with further settings, or by the worker `judge`; `dollars` limits a judge."""

    log: Path
    grader: str = JUDGE
    settings: Mapping[str, object] = field(default_factory=dict)
    judge: str | None = None
    dollars: float | None = None
    judge_itself: bool = False


@dataclass(frozen=True, slots=True)
class _AnswerToGrade:
    """A distinct answer: its task's id, prompt and gold answer, and the text that is graded."""

    task_id: str
    prompt: str
    gold: str | None
    text: str


@dataclass(slots=True)
class GradingPlan:
    """What would be graded, and at what price (None: unknown; 0 without a judge)."""

    request: GradingRequest
    log: OutcomeLog
    answers: tuple[_AnswerToGrade, ...]
    outcomes: int
    tools: GraderTools
    dollars: float | None = 0.0
    known: tuple[tuple[_AnswerToGrade, float], ...] = ()

    def describe(self) -> str:
        """Say what will be graded and what that costs."""
        counted = f"{self.outcomes:,} outcomes without a score: {len(self.answers):,} different answers"
        if self.request.grader != JUDGE:
            return f"{counted}, graded by {self.request.grader}; no model is called"
        price = "an unknown price" if self.dollars is None else f"about {format_dollars(self.dollars)}"
        measured = f"measured by {len(self.known)} answers with a score" if self.known else "agreement not measured"
        return f"{counted}, judged by {self.request.judge} ({measured}) at {price}"


def plan_grading(composition: Container, request: GradingRequest) -> GradingPlan:
    """Return what would be graded; ConfigError for what cannot be, before anything is called."""
    if request.grader not in GRADERS:
        raise ConfigError(f"--grader: expected one of {', '.join(sorted(GRADERS))}, not {request.grader!r}")
    if request.grader == JUDGE and request.judge is None:
        raise ConfigError("expected --grader KIND, or --judge WORKER for a language model's word")
    log = OutcomeLog.read(request.log)
    if request.judge is not None:
        judge = request.judge or ""
        model = getattr(composition.workers.get(judge), "model", None)
        names = {judge, *((model,) if isinstance(model, str) else ())}
        judged = sorted(names.intersection(log.workers))
        if judged and not request.judge_itself:
            raise ConfigError(
                f"--judge {judge}: {judged[0]} is one of the workers that are judged ({', '.join(log.workers)}), and "
                "models prefer their own answers: name another judge, or say --judge-itself"
            )
    answers, outcomes = _ungraded_answers(log)
    if not answers:
        raise ConfigError(f"{request.log}: every answer of its {len(log):,} outcomes has a score")
    tools = GraderTools(sandbox_named(""), open_judge(composition, request.judge))
    plan = GradingPlan(request, log, answers, outcomes, tools)
    for answer in answers:  # whatever is wrong with a task's grader is said before the first call
        _build(plan, answer)
    if request.grader == JUDGE:
        plan.known = _scored_answers(log)
        plan.dollars = _estimate(composition, plan)
        limit = plan.request.dollars
        if plan.dollars is None:
            raise ConfigError(f"{plan.describe()}: give [workers.{plan.request.judge}] a price (0 if it is free)")
        if plan.dollars and limit is None:
            enough = plan.dollars * 1.5
            # As the option takes it, and never less than needed.
            asked = f"{enough:.2g}" if enough < 1 else f"{ceil(enough)}"
            raise ConfigError(f"{plan.describe()}: say how much it may spend (--dollars {asked})")
        if limit is not None and plan.dollars > limit:
            raise ConfigError(f"{plan.describe()}: more than --dollars {limit:g}; nothing was called")
    return plan


def _ungraded_answers(log: OutcomeLog) -> tuple[tuple[_AnswerToGrade, ...], int]:
    """Return the distinct answers without a score, in the order of the tasks, and how many outcomes they are of."""
    found: dict[tuple[str, str], _AnswerToGrade] = {}
    outcomes, texts = 0, _texts(log)
    for worker in log.workers:
        for outcome in log.outcomes_of(worker):
            text = texts[worker].get(outcome.task_id) or outcome.answer
            if outcome.score is None and text is not None:
                outcomes += 1
                prompt, gold = log.task(outcome.task_id).prompt, log.gold(outcome.task_id).answer
                found.setdefault((outcome.task_id, text), _AnswerToGrade(outcome.task_id, prompt, gold, text))
    return tuple(found.values()), outcomes


def _scored_answers(log: OutcomeLog) -> tuple[tuple[_AnswerToGrade, float], ...]:
    """Return a sample of answers that people or programs graded, always the same; none where they are too few."""
    found: dict[tuple[str, str], tuple[_AnswerToGrade, float]] = {}
    texts = _texts(log)
    for worker in log.workers:
        for outcome in log.outcomes_of(worker):
            text = texts[worker].get(outcome.task_id) or outcome.answer
            if outcome.score is not None and not outcome.judged and text:
                prompt, gold = log.task(outcome.task_id).prompt, log.gold(outcome.task_id).answer
                answer = _AnswerToGrade(outcome.task_id, prompt, gold, text)
                found.setdefault((outcome.task_id, text), (answer, outcome.score))
    drawn = sorted(found, key=lambda pair: sha256("\0".join(pair).encode()).digest())[:_MEASURED]
    return tuple(found[pair] for pair in drawn) if len(drawn) >= _LEAST_MEASURED else ()


@dataclass(frozen=True, slots=True)
class _Agreement:
    """Of wrong and of right answers, as people or programs graded them: how many the judge graded, and agreed on."""

    agreed: tuple[int, int]
    graded: tuple[int, int]

    @property
    def informs(self) -> bool:
        """Whether the mean agreement on right and on wrong answers is surely above a half, which guessing reaches."""
        if not all(self.graded):
            return False
        shares = [agreed / graded for agreed, graded in zip(self.agreed, self.graded, strict=True)]
        error = sqrt(sum(share * (1 - share) / graded for share, graded in zip(shares, self.graded, strict=True))) / 2
        return sum(self.graded) >= _LEAST_MEASURED and sum(shares) / 2 - _Z * error > 0.5


def _texts(log: OutcomeLog) -> Mapping[str, Mapping[str, str | None]]:
    """Return the responses by worker and task; none where the log has no responses."""
    there = has_responses(log.folder)
    return {worker: log.responses(worker) if there else {} for worker in log.workers}


def _build(plan: GradingPlan, answer: _AnswerToGrade) -> Grader:
    known = {"gold": answer.gold, "prompt": answer.prompt, "id": answer.task_id}
    own = {name: known[what] for name, what in _FROM_TASK.get(plan.request.grader, {}).items()}
    settings = {**{name: value for name, value in own.items() if value is not None}, **plan.request.settings}
    where = f"{plan.log.folder}: task {answer.task_id}"
    if plan.request.grader in ("choice", "math", "number", "text") and "answer" not in settings:
        raise ConfigError(
            f"{where}: {plan.request.grader}: the log has no right answer (column answer of tasks): import it with "
            "one, or let a model judge (--judge WORKER)"
        )
    return build_grader(plan.request.grader, settings, plan.tools, where)


def _estimate(composition: Container, plan: GradingPlan) -> float | None:
    """Return the dollars that judging will cost, by the card's price; None where it has none."""
    (card,) = composition.cards([plan.request.judge or ""])
    if card.price is None:
        return None
    total = 0.0
    for answer in (*plan.answers, *(one for one, _ in plan.known)):
        said = judge_messages(JudgeSettings(prompt=answer.prompt, gold=answer.gold), answer.text)
        size = sum(len(message.text) for message in said)
        total += card.price.of(Usage(size // _TOKEN_CHARACTERS + 1, _VERDICT_TOKENS))
    return total


async def perform_grading(plan: GradingPlan, to: Path, report: Callable[[int], None]) -> LogSummary:
    """Grade, and write the log with its scores into another folder; `report` is told how many answers are graded."""
    check_folder_empty(to)
    gate, spent, grades = asyncio.Semaphore(_AT_ONCE), 0.0, dict[tuple[str, str], Grade]()
    measured = dict[tuple[str, str], Grade]()

    async def one(answer: _AnswerToGrade, grades: dict[tuple[str, str], Grade]) -> None:
        nonlocal spent
        async with gate:
            limit = plan.request.dollars
            if plan.request.grader == JUDGE and limit is not None and spent >= limit > 0:
                return
            grade = await _build(plan, answer).grade(answer.text)
            spent += grade.dollars or 0.0
            grades[answer.task_id, answer.text] = grade
            report(len(grades))

    async def all_of(answers: Iterable[_AnswerToGrade], grades: dict[tuple[str, str], Grade]) -> None:
        async with asyncio.TaskGroup() as group:
            for answer in answers:
                group.create_task(one(answer, grades))

    await all_of((answer for answer, _ in plan.known), measured)
    agreement = _agreement(plan, measured)
    if agreement is None or agreement.informs:
        await all_of(plan.answers, grades)
    return _write(plan, grades, agreement, to)


def _agreement(plan: GradingPlan, grades: Mapping[tuple[str, str], Grade]) -> _Agreement | None:
    if not plan.known:
        return None
    agreed, graded = [0, 0], [0, 0]
    for answer, score in plan.known:
        grade, right = grades.get((answer.task_id, answer.text)), score >= _HALF
        if grade is not None and grade.score is not None:
            graded[right] += 1
            agreed[right] += (grade.score >= _HALF) == right
    return _Agreement((agreed[0], agreed[1]), (graded[0], graded[1]))


def _write(
    plan: GradingPlan, grades: Mapping[tuple[str, str], Grade], agreement: _Agreement | None, to: Path
) -> LogSummary:
    log, texts = plan.log, _texts(plan.log)
    builder = LogBuilder("graded")
    builder.judge = log.judge
    if plan.request.grader == JUDGE:
        agreed = "not measured" if agreement is None else f"{sum(agreement.agreed)} of {sum(agreement.graded)}"
        builder.judge = f"{plan.request.judge} (agreement with other grades: {agreed})"
        builder.remark(f"the judge {builder.judge}")
        if agreement is not None and not agreement.informs:
            builder.skip("no score was taken from the judge: it agrees with other grades no better than by chance")
    for worker in log.workers:
        for outcome in log.outcomes_of(worker):
            text = texts[worker].get(outcome.task_id)
            grade = grades.get((outcome.task_id, text or outcome.answer or "")) if outcome.score is None else None
            judged = outcome.judged or None
            if grade is not None and grade.score is not None and grade.judged:
                judged = 1.0
                builder.remark("scores that a language model gave")
            if grade is not None and grade.score is None:
                builder.skip(f"grades that failed: {grade.evidence[:120]}")
            answer = outcome.answer
            if grade is not None and plan.request.grader in set(AnswerForm):
                answer = grade.found  # what the grader read in the response
            builder.add(
                _logged_task(plan, outcome.task_id),
                LoggedAnswer(
                    worker,
                    str(log.folder),
                    outcome.score if grade is None else grade.score,
                    answer,
                    text,
                    None if outcome.usage is None else outcome.usage.input_tokens,
                    None if outcome.usage is None else outcome.usage.output_tokens,
                    outcome.dollars,
                    CostKind(outcome.cost_kind) if outcome.cost_kind in set(CostKind) else CostKind.RECORDED,
                    outcome.seconds,
                    outcome.propensity,
                    judged,
                    outcome.turn,
                ),
            )
    for name, price in log.prices.items():
        builder.price(name, price)
    _copy_runs(plan, builder)
    return builder.write(to)


def _logged_task(plan: GradingPlan, task_id: str) -> LoggedTask:
    gold = plan.log.gold(task_id)
    if gold.kind is None and plan.request.grader in set(AnswerForm):
        gold = replace(gold, kind=plan.request.grader)
    return LoggedTask(plan.log.task(task_id), gold)


def _copy_runs(plan: GradingPlan, builder: LogBuilder) -> None:
    for run in run_outcomes(plan.log.folder):
        if run.task_id is not None:
            builder.add_run(_logged_task(plan, run.task_id), run)
        else:
            builder.skip("runs of tasks without an outcome")


def parse_settings(given: Sequence[str]) -> Mapping[str, object]:
    """Parse NAME=VALUE; a value that is JSON is what it stands for, any other is text."""
    settings: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--setting: expected NAME=VALUE, such as pattern=^[0-9]+$, not {text!r}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings
