"""Plans from templates: blocks of a question's parts become steps, instructions and access lists.

Invariant: a step may see what it needs and nothing else: the steps whose values its parts take, and the readings behind
a vote where it must know which part they are of. Blocks stand in order of work; all but the last are single parts. A
form is the shape of a plan for any workers and any question, with canonical phrases as subtasks. SFT examples name the
form in a line before the lists, which no parser and no reward reads: the list of workers alone fits several forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shikisha.core.plan import Plan, Step
from shikisha.simulation.editions import Edition
from shikisha.simulation.instructions import CANONICAL_PHRASES, InstructionKind
from shikisha.simulation.questions import FAMILIES


@dataclass(frozen=True, slots=True)
class PlanBlock:
    """Parts that are done in one call each by `workers` (ordinals); several make readings that the `judge` votes on."""

    parts: tuple[int, ...]
    workers: tuple[int, ...]
    judge: int | None = None

    @property
    def steps(self) -> int:
        """How many steps of a plan it takes."""
        return len(self.workers) + (self.judge is not None)


def compose_plan(families: Sequence[str], uses: Sequence[tuple[int, ...]], blocks: Sequence[PlanBlock]) -> Plan:
    """Return the plan that these blocks make of a question with these parts."""
    steps: list[Step] = []
    # Part: the step that gives its value.
    settled: dict[int, int] = {}
    # Part: the steps that were voted on for it.
    readings: dict[int, range] = {}
    for block in blocks:
        inputs = sorted({used for part in block.parts for used in uses[part]} - set(block.parts))
        access = {settled[part] for part in inputs}
        if len(block.parts) > 1 or len(inputs) > 1:
            access |= {step for part in inputs for step in readings.get(part, ())}
        told = _block_instruction(block, families)
        first = len(steps)
        steps += [Step(told, worker, tuple(sorted(access))) for worker in block.workers]
        if block.judge is not None:
            readings[block.parts[-1]] = range(first, len(steps))
            steps.append(Step(CANONICAL_PHRASES[InstructionKind.VOTE][0], block.judge, tuple(range(first, len(steps)))))
        settled[block.parts[-1]] = len(steps) - 1
    return Plan(tuple(steps))


def _block_instruction(block: PlanBlock, families: Sequence[str]) -> str:
    if block.judge is None and len(block.parts) == len(families):
        return CANONICAL_PHRASES[InstructionKind.ANSWER][0]
    if block.judge is None and block.parts[-1] == len(families) - 1:
        return CANONICAL_PHRASES[InstructionKind.FINISH][0]
    return FAMILIES[families[block.parts[0]]].instructions[0]


_SMALL_SLOTS = 3


class PlanForm(StrEnum):
    """The shapes of plans that SFT examples show, in equal shares."""

    ONE = "one"
    CHAIN_2 = "chain of two"
    CHAIN_3 = "chain of three"
    JOIN = "two, then a join"
    VOTE = "readings and a vote"
    VOTE_FIRST = "readings, a vote, one more"
    VOTE_LAST = "one, readings, a vote"


class LongPlanForm(StrEnum):
    """Forms of more steps, only in editions with longer questions; two arms of any length before a join."""

    CHAIN_4 = "chain of four"
    CHAIN_5 = "chain of five"
    JOIN_4 = "three in two arms, then a join"
    JOIN_5 = "four in two arms, then a join"


VOTE_FORMS = frozenset({PlanForm.VOTE, PlanForm.VOTE_FIRST, PlanForm.VOTE_LAST})
_CHAIN_FORMS: tuple[PlanForm | LongPlanForm, ...] = (
    PlanForm.ONE,
    PlanForm.CHAIN_2,
    PlanForm.CHAIN_3,
    LongPlanForm.CHAIN_4,
    LongPlanForm.CHAIN_5,
)
_JOIN_FORMS: dict[int, PlanForm | LongPlanForm] = {3: PlanForm.JOIN, 4: LongPlanForm.JOIN_4, 5: LongPlanForm.JOIN_5}
_FORM_PREFIX = "as "
_LONG_FORM_STEPS = {LongPlanForm.CHAIN_4: 4, LongPlanForm.CHAIN_5: 5, LongPlanForm.JOIN_4: 4, LongPlanForm.JOIN_5: 5}


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """The worker for each kind of work, the judge, the number of readings; `beside` takes one of the readings.

    `arm` is how many kinds the first arm of a long join has (its other arm has the rest).
    """

    kinds: Sequence[str]
    can: Sequence[int]
    judge: int = 0
    readings: int = 2
    beside: int | None = None
    arm: int = 1


def edition_forms(edition: Edition) -> tuple[PlanForm | LongPlanForm, ...]:
    """Return an edition's forms."""
    return (*PlanForm, *(LongPlanForm if edition.slots > _SMALL_SLOTS else ()))


def form_line(form: PlanForm | LongPlanForm) -> str:
    """Return the line that names a plan's form; the lists follow."""
    return f"{_FORM_PREFIX}{form}\n"


def form_tokens(edition: Edition) -> tuple[str, ...]:
    """Return the beginnings of these lines, for a tokenizer that keeps each as one token."""
    return tuple(f"\n{_FORM_PREFIX}{form}" for form in edition_forms(edition))


def plain_form(count: int, *, joined: bool) -> PlanForm | LongPlanForm:
    """Return the form that does `count` kinds of work one by one; `joined`: the last one combines the others."""
    return _JOIN_FORMS[count] if joined else _CHAIN_FORMS[count - 1]


def nearest_form(plan: Plan) -> PlanForm | LongPlanForm:
    """Return the form that is nearest to a plan's."""
    last = len(plan.steps) - 1
    votes = [at for at, step in enumerate(plan.steps) if step.subtask == CANONICAL_PHRASES[InstructionKind.VOTE][0]]
    if votes:
        if votes[0] < last:
            return PlanForm.VOTE_FIRST
        return PlanForm.VOTE if len({step.subtask for step in plan.steps[:last]}) == 1 else PlanForm.VOTE_LAST
    joined = len(plan.steps[last].access) > 1 and last + 1 in _JOIN_FORMS
    return plain_form(last + 1, joined=joined)


def plan_of_form(form: PlanForm | LongPlanForm, cast: WorkerAssignment) -> Plan:
    """Return the plan of this form."""
    if isinstance(form, LongPlanForm):
        return _long_plan(form, cast)
    kinds = list(cast.kinds)
    match form:
        case PlanForm.ONE:
            return compose_plan(kinds[:1], [()], [_single_block(cast, 0)])
        case PlanForm.CHAIN_2:
            return compose_plan(kinds[:2], [(), (0,)], [_single_block(cast, 0), _single_block(cast, 1)])
        case PlanForm.CHAIN_3:
            return compose_plan(kinds[:3], [(), (0,), (1,)], [_single_block(cast, at) for at in range(3)])
        case PlanForm.JOIN:
            return compose_plan(kinds[:3], [(), (), (0, 1)], [_single_block(cast, at) for at in range(3)])
        case PlanForm.VOTE:
            return compose_plan(kinds[:1], [()], [_vote_block(cast, 0, 4)])
        case PlanForm.VOTE_FIRST:
            return compose_plan(kinds[:2], [(), (0,)], [_vote_block(cast, 0, 3), _single_block(cast, 1)])
        case PlanForm.VOTE_LAST:
            return compose_plan(kinds[:2], [(), (0,)], [_single_block(cast, 0), _vote_block(cast, 1, 3)])


def _long_plan(form: LongPlanForm, cast: WorkerAssignment) -> Plan:
    count = _LONG_FORM_STEPS[form]
    uses: list[tuple[int, ...]] = [(at - 1,) if at else () for at in range(count)]
    if form in (LongPlanForm.JOIN_4, LongPlanForm.JOIN_5):
        arm = min(max(cast.arm, 1), count - 2)
        uses[arm], uses[-1] = (), (arm - 1, count - 2)
    return compose_plan(list(cast.kinds)[:count], uses, [_single_block(cast, at) for at in range(count)])


def _single_block(cast: WorkerAssignment, part: int) -> PlanBlock:
    return PlanBlock((part,), (cast.can[part],))


def _vote_block(cast: WorkerAssignment, part: int, most: int) -> PlanBlock:
    times = min(cast.readings, most)
    others = () if cast.beside is None else (cast.beside,)
    return PlanBlock((part,), (*others, *(cast.can[part],) * (times - len(others))), cast.judge)
