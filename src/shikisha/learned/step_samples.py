"""From finished runs to samples of steps: which worker answered which subtask, and what the run's grade says of that.

A unit is one subtask with the same inputs in one round: several workers may have answered it (second opinions, votes,
checks of a result), and one of its answers was used. Answers of one unit say something of each other even where a run
has no grade. Whether each answer was right is for `fit_step_value` to infer. Invariants: an erased run says nothing; a
grade counts for units that the answer depends on, and for no others; calls of checks, plans and tools are no samples.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shikisha.core.events import AttemptFinished, CheckStatus
from shikisha.core.plan import Plan
from shikisha.core.run import RoundRecord, Run
from shikisha.core.subtasks import CHECK_OPENING
from shikisha.core.task import Scope
from shikisha.retrieval.terms import split_clauses

_VERDICTS = (CheckStatus.PASS, CheckStatus.FAIL)
_RIGHT = 0.999  # a score from which on an answer is right
MERGED = "\nAfter that: "  # between the subtasks that one call does
_MOST_STATED = 4_000  # characters in which statements are looked for
_KNOWN = re.compile(r'Known: "(?P<asked>[^"]{1,1000})" gave (?P<value>[^"\n]{1,200}?)\. ')
_SHORT_TASK, _MOST_CLAUSES = 1_000, 5  # characters, clauses of a task that a call may do as so many subtasks
_WHOLE = ("answer the question", "solve the whole question")
DRAWN = "drawn"  # in `PlanProposed.beside`: how likely each step's worker was drawn; also the arm of such a run
ACTS = "acts"  # the arm of a run whose plan values chose
STANDS_BY = "stands by"  # in its place, where values left a task to the conductor in force
PLANNED = "planned"  # in `PlanProposed.beside`: whom the planner itself named for each step
PLANNED_ACCESS = "planned access"  # in `PlanProposed.beside`: the access lists of that plan, where steps were merged


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """One worker's answer to a unit; `proposed`: the planner named this worker; `failed`: an executed check said no.

    No executed check spoke where `failed` is None. `planned_parts` says for each subtask that the call did whether the
    planner named this worker for it. `propensity` is the chance with which it was drawn (None: it was not drawn).
    """

    worker: str
    answer: str
    dollars: float
    seconds: float
    proposed: bool = True
    failed: bool | None = None
    planned_parts: tuple[bool, ...] = ()
    propensity: float | None = None


@dataclass(frozen=True, slots=True)
class StepUnit:
    """A subtask and its answers; `used` is the place of the answer that the run went on with (None: none of them).

    With `checks`, the second answer came from a worker that saw the first and was to correct it. `together` is how many
    subtasks the answer's call did: each is a unit of its own, with its share of the dollars; `call` is all of it.
    """

    subtask: str
    answers: tuple[StepAnswer, ...]
    used: int | None
    checks: bool = False
    together: int = 1
    call: str = ""


@dataclass(frozen=True, slots=True)
class RunSample:
    """A run's units and its grade (None: not graded), its task, dollars, scope, and the propensity of its plans.

    `arm` is ACTS where values chose the plan, STANDS_BY where they left it to the conductor in force, DRAWN where
    they explored, else empty.
    """

    run: str
    task: str
    units: tuple[StepUnit, ...]
    right: float | None
    dollars: float
    scope: Scope
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
    units = tuple(_joined_units([list(_units_of(turn, run)) for turn in run.rounds], run))
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
        run.scope,
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
        parts = split_merged(subtask)
        if len(parts) > 1:
            yield from _merged_units(subtask, parts, _answer(turn, plan, planned, places[-1]), places[-1] in used)
            continue
        text = step_text(subtask, run.started.prompt)
        clauses = whole_parts(subtask, run.started.prompt)
        if len(clauses) > 1 and len(places) == 1 and not {places[0]} & (checks.keys() | joins.keys()):
            yield from _merged_units(subtask, clauses, _answer(turn, plan, planned, places[0]), places[0] in used)
            continue
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
            refused = [one for index in places for one in _refused_answers(turn, index)]
            yield StepUnit(text, (*kept, *refused), places_used[-1] if places_used else None)


def _joined_units(rounds: Sequence[Sequence[StepUnit]], run: Run) -> list[StepUnit]:
    """Return the units of all rounds; what was asked again of another worker is an answer of the same unit.

    A step that is asked again states what it is to know. Where that is not what the first one knew, it is a unit of its
    own. Used is the answer that was shipped, or that a later step was told.
    """
    end = run.finished
    shipped = None if end is None else end.round
    turn = run.rounds[shipped] if shipped is not None and shipped < len(run.rounds) else None
    plan = turn.plan if turn is not None else None
    told = set() if plan is None else {value for step in plan.steps for _, value in known_statements(step.subtask)}
    found, first = list[StepUnit](), dict[str, int]()
    for number, units in enumerate(rounds):
        values = {unit.answers[unit.used].answer for unit in found if unit.used is not None}
        for unit in units:
            core, knows = without_known(unit.subtask), {value for _, value in known_statements(unit.subtask)}
            again = replace(unit, subtask=core)
            at = first.get(core)
            if at is None or unit.together > 1 or unit.checks or found[at].checks or not knows <= values:
                first.setdefault(core, len(found))
                found.append(again)
                continue
            count, earlier = len(found[at].answers), found[at]
            is_used = unit.used is not None and (number == shipped or unit.answers[unit.used].answer in told)
            place = count + unit.used if is_used and unit.used is not None else earlier.used
            found[at] = replace(earlier, answers=(*earlier.answers, *unit.answers), used=place)
    return found


def state_known(pairs: Sequence[tuple[str, str]]) -> str:
    """Return what a step of a later round is told of earlier results."""
    return "".join(f'Known: "{asked}" gave {value}. ' for asked, value in pairs)


def known_statements(subtask: str) -> list[tuple[str, str]]:
    """Return what a subtask states of earlier results: what was asked, and what that gave."""
    return [(found["asked"], found["value"]) for found in _KNOWN.finditer(subtask[:_MOST_STATED])]


def without_known(subtask: str) -> str:
    """Return a subtask without these statements."""
    return _KNOWN.sub("", subtask[:_MOST_STATED]) + subtask[_MOST_STATED:] if subtask.startswith("Known: ") else subtask


def _merged_units(call: str, parts: Sequence[str], answer: StepAnswer | None, used: bool) -> Iterator[StepUnit]:
    """Yield a unit for each of the subtasks that one call did; its answer is that of the last of them."""
    if answer is None:
        return
    count = len(parts)
    own = answer.planned_parts if len(answer.planned_parts) == count else (answer.proposed,) * count
    for part, proposed in zip(parts, own, strict=True):
        share = replace(answer, dollars=answer.dollars / count, proposed=proposed, planned_parts=())
        yield StepUnit(part, (share,), 0 if used else None, together=count, call=call)


def _answer(turn: RoundRecord, plan: Plan, planned: Sequence[str] | None, index: int) -> StepAnswer | None:
    """Return what a step's worker answered; None where it did not."""
    record = turn.steps.get(index)
    attempt = None if record is None else record.accepted_attempt
    if record is None or attempt is None or not isinstance(attempt.outcome, AttemptFinished):
        return None
    done, step = attempt.outcome, plan.steps[index]
    named = [] if planned is None or index >= len(planned) else planned[index].split("+")
    own = planned is None or named == [str(step.worker)]
    parts = tuple(one == str(step.worker) for one in named)
    spoken = [one.status for one in record.checks if one.attempt == done.attempt and one.status in _VERDICTS]
    failed = CheckStatus.FAIL in spoken if spoken else None
    dollars = attempt.charged.dollars or 0.0
    shares = turn.proposed.beside.get(DRAWN, "").split(",") if turn.proposed is not None else []
    chance = _share(shares[index]) if index < len(shares) else None
    return StepAnswer(done.worker, done.text.strip(), dollars, done.seconds, own, failed, parts, chance)


def _share(text: str) -> float | None:
    """Return a written share; None for what is none."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _refused_answers(turn: RoundRecord, index: int) -> Iterator[StepAnswer]:
    """Yield a step's answers that a check refused, so that another attempt was made."""
    record = turn.steps.get(index)
    if record is None:
        return
    refused = {one.attempt for one in record.checks if one.status is CheckStatus.FAIL}
    for attempt in record.attempts:
        done = attempt.outcome
        if isinstance(done, AttemptFinished) and done.attempt in refused and attempt is not record.accepted_attempt:
            dollars = attempt.charged.dollars or 0.0
            yield StepAnswer(done.worker, done.text.strip(), dollars, done.seconds, proposed=False, failed=True)


def step_text(subtask: str, prompt: str) -> str:
    """Return what a step's worker is really asked: the task itself where the subtask says only that."""
    told = " ".join(subtask.split()).casefold()
    return prompt if told.startswith(_WHOLE) or told == " ".join(prompt.split()).casefold() else subtask


def whole_parts(subtask: str, prompt: str) -> list[str]:
    """Return what a step is asked, one text for each clause where it is asked the whole of a short task."""
    text = step_text(subtask, prompt)
    if text is not prompt or len(text) > _SHORT_TASK:
        return [text]
    clauses = list(split_clauses(text))
    return clauses if 2 <= len(clauses) <= _MOST_CLAUSES else [text]


def check_subtask(subtask: str) -> str:
    """Return the subtask of a step that checks the result of a step with this one."""
    return f"{CHECK_OPENING} {subtask}"


def merge_subtasks(subtasks: Sequence[str]) -> str:
    """Return the subtask of a call that does all of these, one after the other."""
    return MERGED.join(subtasks)


def split_merged(subtask: str) -> list[str]:
    """Return the subtasks that a call does."""
    return subtask.split(MERGED)


def planned_workers(performed: Plan, planned: Plan, phrases: Sequence[str] = ()) -> str:
    """Return for each step of a plan which worker the planner gave its subtask, as `2,-,0+1`: no text is repeated.

    A step that does several subtasks has several workers. `phrases` may have been added to a subtask.
    """
    by_subtask = {step.subtask: step.worker for step in planned.steps}

    def named(subtask: str) -> str:
        for phrase in reversed(phrases):
            if subtask not in by_subtask:
                subtask = subtask.removesuffix(f" {phrase}")
        return str(by_subtask.get(subtask, "-"))

    return ",".join("+".join(map(named, split_merged(step.subtask))) for step in performed.steps)


def planned_access(planned: Plan) -> str:
    """Return a plan's access lists as `;0;0 1`."""
    return ";".join(" ".join(map(str, step.access)) for step in planned.steps)


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
