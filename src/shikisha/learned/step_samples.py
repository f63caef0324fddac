"""From finished runs to samples of steps: which worker answered which subtask, and what the run's grade says of that.

A unit is one subtask with the same inputs in one round: several workers may have answered it (second opinions, votes,
checks of a result), and one of its answers was used. Answers of one unit say something of each other even where a run
has no grade. Whether each answer was right is for `fit_step_value` to infer. Invariants: an erased run says nothing; a
grade counts for units that the answer depends on, and for no others; calls of checks, plans and tools are no samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shikisha.core.events import AttemptFinished, CheckStatus
from shikisha.core.plan import Plan
from shikisha.core.run import RoundRecord, Run

_RIGHT = 0.999  # a score from which on an answer is right
CHECK_OPENING = "Check this result, and correct it if it is wrong:"
_WHOLE = ("answer the question", "solve the whole question")
DRAWN = "drawn"  # in `PlanProposed.beside`: what of a plan was drawn; also the arm of such a run
ACTS = "acts"  # the arm of a run whose plan values chose
STANDS_BY = "stands by"  # in its place, where values left a task to the conductor in force
PLANNED = "planned"  # in `PlanProposed.beside`: whom the planner itself named for each step


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """One worker's answer to a unit; `proposed`: the planner named this worker; `failed`: an executed check said no."""

    worker: str
    answer: str
    dollars: float
    seconds: float
    proposed: bool = True
    failed: bool = False


@dataclass(frozen=True, slots=True)
class StepUnit:
    """A subtask and its answers; `used` is the place of the answer that the run went on with (None: none of them).

    With `checks`, the second answer came from a worker that saw the first and was to correct it.
    """

    subtask: str
    answers: tuple[StepAnswer, ...]
    used: int | None
    checks: bool = False


@dataclass(frozen=True, slots=True)
class RunSample:
    """A run's units and its grade (None: not graded), its task, dollars, labels, and the propensity of its plans.

    `arm` is ACTS where values chose the plan, STANDS_BY where they left it to the conductor in force, DRAWN where
    they explored, else empty.
    """

    run: str
    task: str
    units: tuple[StepUnit, ...]
    right: float | None
    dollars: float
    labels: frozenset[str] = frozenset()
    propensity: float | None = None
    conductor: str = ""
    arm: str = ""


def run_samples(runs: Iterable[Run]) -> list[RunSample]:
    """Return a sample for each finished run that has units."""
    return [sample for run in runs if (sample := run_sample(run)) is not None]


def run_sample(run: Run) -> RunSample | None:
    """Return the run's sample; None where it says nothing."""
    if run.erased is not None or run.finished is None:
        return None
    grade = run.grade
    right = None if grade is None or grade.score is None else float(grade.score >= _RIGHT)
    units = tuple(unit for turn in run.rounds for unit in _units_of(turn, run))
    if not units:
        return None
    drawn = [turn.proposed.propensity for turn in run.rounds if turn.proposed is not None]
    known = [share for share in drawn if share is not None]
    chance = None
    if known:
        chance = 1.0
        for share in known:
            chance *= share
    return RunSample(
        run.id,
        run.task.content_hash,
        units,
        right,
        run.charged.dollars or 0.0,
        frozenset(run.started.labels),
        chance,
        run.started.conductor,
        _arm(run),
    )


def _arm(run: Run) -> str:
    said = [turn.proposed.beside.get(PLANNED, "") for turn in run.rounds if turn.proposed is not None]
    if any(turn.proposed is not None and DRAWN in turn.proposed.beside for turn in run.rounds):
        return DRAWN
    return STANDS_BY if STANDS_BY in said else ACTS if any(said) else ""


def _units_of(turn: RoundRecord, run: Run) -> Iterator[StepUnit]:
    """Yield a round's units: steps with one subtask and the same inputs, with what joined or checked their answers."""
    plan = turn.plan
    if plan is None or not plan.steps:
        return
    planned, used = _planned(turn), _used_steps(turn, run)
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    joins, checks = dict[int, int](), dict[int, int]()
    for index, step in enumerate(plan.steps):
        seen = [at for at in step.access if plan.steps[at].subtask == step.subtask]
        checked = [at for at in step.access if step.subtask == check_subtask(plan.steps[at].subtask)]
        if seen:
            joins |= dict.fromkeys(seen, index)
        elif checked:
            checks[checked[-1]] = index
        else:
            groups.setdefault((step.subtask, step.access), []).append(index)
    for (subtask, _), places in groups.items():
        text = step_text(subtask, run.started.prompt)
        found = {index: answer for index in places if (answer := _answer(turn, plan, planned, index)) is not None}
        if not found:
            continue
        checker = next((checks[index] for index in places if index in checks), None)
        check = None if checker is None else _answer(turn, plan, planned, checker)
        kept = list(found.values())
        join = next((joins[index] for index in places if index in joins), None)
        if check is not None:
            yield StepUnit(text, (kept[-1], check), 1 if checker in used else None, checks=True)
        elif join is not None:
            said = turn.steps[join].result if join in turn.steps else None
            joined = None if said is None or said.text is None or join not in used else said.text.strip()
            agreeing = [place for place, one in enumerate(kept) if one.answer == joined]
            yield StepUnit(text, tuple(kept), agreeing[0] if agreeing else None)
        else:
            places_used = [place for place, index in enumerate(found) if index in used]
            yield StepUnit(text, tuple(kept), places_used[-1] if places_used else None)


def _answer(turn: RoundRecord, plan: Plan, planned: Sequence[str] | None, index: int) -> StepAnswer | None:
    """Return what a step's worker answered; None where it did not."""
    record = turn.steps.get(index)
    attempt = None if record is None else record.accepted_attempt
    if record is None or attempt is None or not isinstance(attempt.outcome, AttemptFinished):
        return None
    done, step = attempt.outcome, plan.steps[index]
    own = planned is None or (index < len(planned) and planned[index] == str(step.worker))
    failed = any(one.status is CheckStatus.FAIL and one.attempt == done.attempt for one in record.checks)
    return StepAnswer(done.worker, done.text.strip(), attempt.charged.dollars or 0.0, done.seconds, own, failed)


def step_text(subtask: str, prompt: str) -> str:
    """Return what a step's worker is really asked: the task itself where the subtask says only that."""
    told = " ".join(subtask.split()).casefold()
    return prompt if told.startswith(_WHOLE) or told == " ".join(prompt.split()).casefold() else subtask


def check_subtask(subtask: str) -> str:
    """Return the subtask of a step that checks the result of a step with this one."""
    return f"{CHECK_OPENING} {subtask}"


def planned_workers(performed: Plan, planned: Plan, phrases: Sequence[str] = ()) -> str:
    """Return for each step of a plan which worker the planner gave its subtask, as `2,-,0`: no text is repeated.

    `phrases` may have been added to a subtask.
    """
    by_subtask = {step.subtask: step.worker for step in planned.steps}
    found = []
    for step in performed.steps:
        subtask = step.subtask
        for phrase in reversed(phrases):
            if subtask not in by_subtask:
                subtask = subtask.removesuffix(f" {phrase}")
        found.append(str(by_subtask.get(subtask, "-")))
    return ",".join(found)


def _planned(turn: RoundRecord) -> list[str] | None:
    """Return which worker the planner itself gave each step, where another plan was performed."""
    text = turn.proposed.beside.get(PLANNED) if turn.proposed is not None else None
    return text.split(",") if text and text != STANDS_BY else None


def _used_steps(turn: RoundRecord, run: Run) -> frozenset[int]:
    """Return the steps of a round that its last answer depends on."""
    end, plan = run.finished, turn.plan
    if plan is None or not plan.steps:
        return frozenset()
    shipped = end is not None and end.round == turn.index and end.step is not None
    last = end.step if shipped and end is not None and end.step is not None else len(plan.steps) - 1
    needed, waiting = set[int](), [last]
    while waiting:
        at = waiting.pop()
        if at not in needed:
            needed.add(at)
            waiting += plan.steps[at].access
    return frozenset(needed)
