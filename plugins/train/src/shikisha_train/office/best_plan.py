"""The best that can be done in the office, computed from the truth: for each part whom to call, how often, what next.

A treatment does one block of parts: one call; two calls and a third where they differ (a further round); three calls
and a vote in one round; a call and a check of its result. Blocks are consecutive parts on the answer's path; a call
that does several parts costs the same. The best plan maximizes value · P(right) − `dollar_weight` · dollars over all
ways to cut the path into blocks and all treatments of each, at each worker's best wording.

A condition forgives: a wrong value on the right side of the threshold leads to the right branch. So two chances are
carried from part to part before it: a, that all is right, and b, that the right branch is taken. A part with success q
makes a ← q·a and b ← b − (1 − s)(1 − q)·a, s being the share of its wrong values from which the same branch is taken.

Invariants: `BestOfficePlan.success` and `.dollars` are exact for these treatments (what a family does not know it does
not know together; slips are independent; two wrong results never agree unless a family's ignorance gave both, which
`wrong_value` makes nearly so; s is counted from draws). The search is exact but for what a condition forgives: with all
other choices fixed the value is linear in a block's success and dollars, so only corners of the hull can be best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, permutations, product
from math import inf, prod
from typing import TypeVar

from shikisha_train.office.company import WorkKind, wrong_value
from shikisha_train.office.office_tasks import OfficeTask
from shikisha_train.office.part_plans import DOLLAR_WEIGHT, TreatmentKind
from shikisha_train.office.questions import EarlierPart, OfficeQuestion
from shikisha_train.office.simulated_staff import call_success
from shikisha_train.office.staff import CHECK_COST, CHECK_KEEPS, CHECK_POWER, Crew, StaffMember

_VOTERS = 5  # workers of a kind that votes are tried with: the most likely to be right
_WRONG_DRAWS = 400
_RIGHT = "right"


@dataclass(frozen=True, slots=True)
class OfficeTreatment:
    """One way to do a block: who is called, each part's chance to be right given right inputs, and the dollars."""

    kind: TreatmentKind
    workers: tuple[int, ...]
    successes: tuple[float, ...]
    dollars: float

    @property
    def success(self) -> float:
        """The chance that every part is right, given right inputs."""
        return prod(self.successes)


@dataclass(frozen=True, slots=True)
class BestOfficePlan:
    """Blocks of parts, a treatment for each, and what comes of them."""

    blocks: tuple[tuple[int, ...], ...]
    treatments: tuple[OfficeTreatment, ...]
    success: float
    dollars: float
    flawless: float = 1.0  # the chance that every part so far is right, where `success` counts what is forgiven

    def value(self, worth: float, dollar_weight: float = DOLLAR_WEIGHT) -> float:
        """Return the expected value of an answer that is worth so much when right."""
        return worth * self.success - dollar_weight * self.dollars


Option = TypeVar("Option", OfficeTreatment, BestOfficePlan)


@dataclass(frozen=True, slots=True)
class _OfficeVoter:
    """What matters of a worker where results are compared."""

    family: str
    knows: float
    steady: float


def best_plan(
    item: OfficeTask,
    dollar_weight: float = DOLLAR_WEIGHT,
    kinds: frozenset[TreatmentKind] = frozenset(TreatmentKind),
) -> BestOfficePlan:
    """Return the best plan for the path that the answer takes, with treatments of these kinds."""
    path, forgiven = item.question.path, forgiven_shares(item.question)
    fronts: list[list[BestOfficePlan]] = [[BestOfficePlan((), (), 1.0, 0.0)]]
    for end in range(1, len(path) + 1):
        found: list[BestOfficePlan] = []
        for start in range(end):
            block = path[start:end]
            if not item.question.is_closed(block, path):
                continue
            treatments = _block_treatments(item, block, kinds)
            found += [_extended(before, each, block, forgiven) for before in fronts[start] for each in treatments]
        fronts.append(_hull(found))
    return max(fronts[-1], key=lambda plan: plan.value(item.value, dollar_weight))


def forgiven_shares(question: OfficeQuestion) -> dict[int, float]:
    """Return for each part before a condition the share of its wrong values from which the same branch is taken."""
    rule = question.condition
    if rule is None:
        return {}
    values, shares = list(question.solve()), dict[int, float]()
    right = question.taken(values[rule.on])
    for part in range(rule.first_then):
        same = 0
        for draw in range(_WRONG_DRAWS):
            wrong = {**dict(enumerate(values)), part: wrong_value(values[part], draw, part)}
            for later in range(part + 1, rule.first_then):
                step = question.parts[later]
                if any(at >= part for at in step.uses):
                    given = [wrong[one.part] if isinstance(one, EarlierPart) else one for one in step.inputs]
                    wrong[later] = step.operation.apply(given, step.constants)
            same += question.taken(wrong[rule.on]) == right
        shares[part] = same / _WRONG_DRAWS
    return shares


def _hull(options: Sequence[Option]) -> list[Option]:
    """Keep the corners of the upper hull of (dollars, success), cheapest first: only they can be best."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda one: (one.dollars, -one.success)):
        if kept and option.success <= kept[-1].success:
            continue
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) <= _slope(kept[-1], option):
            kept.pop()
        kept.append(option)
    return kept


def _slope(one: "OfficeTreatment | BestOfficePlan", two: "OfficeTreatment | BestOfficePlan") -> float:
    rise, run = two.success - one.success, two.dollars - one.dollars
    return rise / run if run else inf


def _block_treatments(
    item: OfficeTask, block: tuple[int, ...], kinds: frozenset[TreatmentKind]
) -> Sequence[OfficeTreatment]:
    if len(block) == 1:
        return [each for each in part_treatments(item.crew, item.question.parts[block[0]].kind) if each.kind in kinds]
    return [_one_call(item, place, block) for place in range(len(item.crew))]


def _one_call(item: OfficeTask, place: int, block: tuple[int, ...]) -> OfficeTreatment:
    member = item.crew.members[place]
    successes = tuple(call_success(member, item.question, part, len(block), member.wants) for part in block)
    return OfficeTreatment(TreatmentKind.CALL, (place,), successes, member.price)


def _extended(
    before: BestOfficePlan, treatment: OfficeTreatment, block: tuple[int, ...], forgiven: Mapping[int, float]
) -> BestOfficePlan:
    """Return the plan with one more block."""
    success, flawless = before.success, before.flawless
    for part, kept in zip(block, treatment.successes, strict=True):
        if part in forgiven:
            success -= (1 - forgiven[part]) * (1 - kept) * flawless
            flawless *= kept
        else:
            success *= kept
    blocks, treatments = (*before.blocks, block), (*before.treatments, treatment)
    return BestOfficePlan(blocks, treatments, success, before.dollars + treatment.dollars, flawless)


@lru_cache(maxsize=4096)
def part_treatments(crew: Crew, kind: WorkKind) -> tuple[OfficeTreatment, ...]:
    """Return the treatments of a single part of this kind that can be best, for each kind of treatment."""
    members = crew.members
    singles = [
        OfficeTreatment(TreatmentKind.CALL, (at,), (member.levels[kind],), member.price)
        for at, member in enumerate(members)
    ]
    likely = sorted(range(len(members)), key=lambda at: -members[at].levels[kind])[:_VOTERS]
    voters = {at: _OfficeVoter(members[at].family, members[at].knows(kind), members[at].steady(kind)) for at in likely}
    opinions, votes = list[OfficeTreatment](), list[OfficeTreatment]()
    for trio in {order for drawn in combinations_with_replacement(likely, 3) for order in permutations(drawn)}:
        success, differ = vote_outcome(tuple(voters[at] for at in trio))
        prices = [members[at].price for at in trio]
        votes.append(OfficeTreatment(TreatmentKind.VOTE, trio, (success,), sum(prices)))
        expected = prices[0] + prices[1] + differ * prices[2]
        opinions.append(OfficeTreatment(TreatmentKind.SECOND_OPINION, trio, (success,), expected))
    checks = [
        OfficeTreatment(
            TreatmentKind.CHECK,
            (first, second),
            (check_success(members[first], members[second], kind),),
            members[first].price + CHECK_COST[kind] * members[second].price,
        )
        for first, second in product(likely, likely)
    ]
    return tuple(each for group in (singles, opinions, votes, checks) for each in _hull(group))


def vote_outcome(voters: tuple[_OfficeVoter, ...]) -> tuple[float, float]:
    """Return the chance that the most common result is right (the first in a tie), and that the first two differ."""
    families = sorted({voter.family for voter in voters})
    right = differ = 0.0
    for segments in product(*(_segments(voters, family) for family in families)):
        chance = 1.0
        bounds: dict[str, float] = {}
        for family, (width, bound) in zip(families, segments, strict=True):
            chance *= width
            bounds[family] = bound
        if not chance:
            continue
        knowing = [bounds[voter.family] < voter.knows for voter in voters]
        for slips in product((False, True), repeat=sum(knowing)):
            outcomes, each = list[str](), chance
            drawn = iter(slips)
            for place, (voter, known) in enumerate(zip(voters, knowing, strict=True)):
                if not known:
                    outcomes.append(voter.family)  # the family's wrong answer
                    continue
                slipped = next(drawn)
                each *= 1 - voter.steady if slipped else voter.steady
                outcomes.append(f"slip {place}" if slipped else _RIGHT)
            top = max(outcomes.count(one) for one in outcomes)
            right += each * (next(one for one in outcomes if outcomes.count(one) == top) == _RIGHT)
            differ += each * (outcomes[0] != outcomes[1])
    return right, differ


def _segments(voters: Sequence[_OfficeVoter], family: str) -> list[tuple[float, float]]:
    """Return (width, lower bound) of the ranges of a family's luck in which the same of its workers know."""
    cuts = sorted({0.0, *(voter.knows for voter in voters if voter.family == family)})
    return [(high - low, low) for low, high in zip(cuts, [*cuts[1:], 1.0], strict=True)]


def check_success(first: StaffMember, second: StaffMember, kind: WorkKind) -> float:
    """Return the chance that a result is right after another worker's check of it."""
    found = CHECK_POWER[kind] * second.levels[kind]
    same_family = first.family == second.family
    # What the checker answers where it finds the result wrong, given that the first did not know or slipped.
    right_first = first.levels[kind]
    slipped = first.knows(kind) * (1 - first.steady(kind))
    ignorant = 1 - first.knows(kind)
    if same_family:
        known_if_slipped = min(1.0, second.knows(kind) / first.knows(kind)) if first.knows(kind) else 0.0
        known_if_ignorant = max(0.0, second.knows(kind) - first.knows(kind)) / ignorant if ignorant else 0.0
    else:
        known_if_slipped = known_if_ignorant = second.knows(kind)
    redone_if_right = known_if_slipped * second.steady(kind)
    return (
        right_first * (CHECK_KEEPS + (1 - CHECK_KEEPS) * redone_if_right)
        + slipped * found * known_if_slipped * second.steady(kind)
        + ignorant * found * known_if_ignorant * second.steady(kind)
    )


def best_single(item: OfficeTask, dollar_weight: float = DOLLAR_WEIGHT) -> BestOfficePlan:
    """Return the plan that gives the whole question to the one worker that is best for it, knowing the truth."""
    path, forgiven = item.question.path, forgiven_shares(item.question)
    start = BestOfficePlan((), (), 1.0, 0.0)
    plans = [_extended(start, _one_call(item, place, path), path, forgiven) for place in range(len(item.crew))]
    return max(plans, key=lambda plan: plan.value(item.value, dollar_weight))
