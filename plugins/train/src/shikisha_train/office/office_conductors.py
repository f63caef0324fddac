"""Policies of the office that a learned one is compared with: by the truth, the cards, outcomes, or nothing.

Each is a `PartPolicy`; `part_plans` turns its choices into plans.

Invariants: a plan grants a step only what it needs; only `truth_policy` sees levels, and `believed_policy` the world's
constants. Deliberately absent: reading. Every baseline is given which sentence is which part, and of which kind.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from shikisha_train.office.best_plan import BestOfficePlan, best_plan
from shikisha_train.office.company import WorkKind
from shikisha_train.office.office_tasks import OfficeTask, StaffEvidence
from shikisha_train.office.part_plans import (
    DOLLAR_WEIGHT,
    NOTHING_TOLD,
    PartChoice,
    PartCondition,
    PartedTask,
    PartPolicy,
    PartsConductor,
    TreatmentKind,
)
from shikisha_train.office.questions import OfficeQuestion
from shikisha_train.office.staff import FEATURES, KINDS, RANDOM_WORDING_FACTOR, Crew, WordingFeature


def office_parts(question: OfficeQuestion) -> PartedTask:
    """Return a question as it is read without a mistake."""
    rule = question.condition
    condition = None if rule is None else PartCondition(rule.on, rule.threshold, rule.first_then, rule.first_else)
    return PartedTask(question.sentences, tuple(part.uses for part in question.parts), condition)


def office_conductor(item: OfficeTask, policy: PartPolicy, name: str = "office") -> PartsConductor:
    """Return the conductor that plans one task by a policy."""
    return PartsConductor(name, office_parts(item.question), policy, len(item.crew))


def truth_policy(item: OfficeTask, dollar_weight: float = DOLLAR_WEIGHT) -> PartPolicy:
    """Return the optimum's choices: it knows levels, families, wants, and which branch the answer takes."""
    return _plan_policy(best_plan(item, dollar_weight), [member.wants for member in item.crew.members])


def _plan_policy(plan: BestOfficePlan, told: Sequence[frozenset[WordingFeature]]) -> PartPolicy:
    def choose(left: tuple[int, ...]) -> PartChoice:
        at = next((place for place, block in enumerate(plan.blocks) if left[0] in block), None)
        if at is None:  # a wrong value led to the branch that the answer does not take
            return PartChoice(left, TreatmentKind.CALL, (0,), (NOTHING_TOLD,))
        treatment = plan.treatments[at]
        features = tuple(told[worker] for worker in treatment.workers)
        return PartChoice(plan.blocks[at], treatment.kind, treatment.workers, features)

    return choose


def believed_crew(item: OfficeTask, evidence: StaffEvidence, card_weight: float = 0.25) -> Crew:
    """Return the crew as outcomes and cards suggest it: posterior means for levels, learned wordings for wants.

    An outcome was asked for in a random wording, so a mean is divided by what a random wording leaves of a level.
    """
    members = []
    for at, member in enumerate(item.crew.members):
        claimed = item.crew.claims[at]
        levels = {
            kind: min(0.98, evidence.mean(at, kind, 0.25 + card_weight * (kind in claimed)) / RANDOM_WORDING_FACTOR)
            for kind in KINDS
        }
        members.append(replace(member, levels=levels, wants=learned_features(evidence, at)))
    return replace(item.crew, members=tuple(members))


def believed_policy(
    item: OfficeTask, evidence: StaffEvidence, card_weight: float = 0.25, dollar_weight: float = DOLLAR_WEIGHT
) -> PartPolicy:
    """Return the optimum's choices for the crew as outcomes suggest it.

    It knows the world's constants (what a check finds, who is of which family, what a wording is worth) and which
    branch the answer takes: a ceiling of what these estimates can bring, not a fair baseline.
    """
    crew = believed_crew(item, evidence, card_weight)
    told = [member.wants for member in crew.members]
    return _plan_policy(best_plan(item.with_crew(crew), dollar_weight), told)


def checked_policy(
    item: OfficeTask, evidence: StaffEvidence, checked: frozenset[WorkKind], card_weight: float = 0.25
) -> PartPolicy:
    """Return `evidence_policy` with one rule more: parts of these kinds are checked by the second-best worker."""
    scores = _evidence_scores(item, evidence, card_weight)
    told = [learned_features(evidence, at) for at in range(len(item.crew))]

    def choose(left: tuple[int, ...]) -> PartChoice:
        kind = item.question.parts[left[0]].kind
        order = sorted(range(len(item.crew)), key=lambda at: -scores(kind)[at])
        if kind in checked:
            workers = (order[0], order[1])
            return PartChoice(left[:1], TreatmentKind.CHECK, workers, tuple(told[at] for at in workers))
        return PartChoice(left[:1], TreatmentKind.CALL, (order[0],), (told[order[0]],))

    return choose


def score_policy(
    item: OfficeTask,
    scores: Callable[[WorkKind], Sequence[float]],
    features: Sequence[frozenset[WordingFeature]] | None = None,
) -> PartPolicy:
    """Return the policy that gives each part to the worker with the highest score for its kind of work.

    Neighboring parts that go to the same worker are one block. `features` are how each worker is told (None: no more
    than the sentences).
    """

    def worker_for(part: int) -> int:
        values = scores(item.question.parts[part].kind)
        return max(range(len(values)), key=values.__getitem__)

    def choose(left: tuple[int, ...]) -> PartChoice:
        worker = worker_for(left[0])
        block = [left[0]]
        for part in left[1:]:
            if worker_for(part) != worker or not item.question.is_closed((*block, part), left):
                break
            block.append(part)
        told = NOTHING_TOLD if features is None else features[worker]
        return PartChoice(tuple(block), TreatmentKind.CALL, (worker,), (told,))

    return choose


def single_policy(worker: int, told: frozenset[str] = NOTHING_TOLD) -> PartPolicy:
    """Return the policy that gives everything to one worker, as far as the path is known."""
    return lambda left: PartChoice(left, TreatmentKind.CALL, (worker,), (told,))


def card_policy(item: OfficeTask) -> PartPolicy:
    """Return the policy that believes every card: the cheapest worker that claims the kind, else the broadest."""

    def scores(kind: WorkKind) -> list[float]:
        return [
            (2.0 if kind in claimed else 0.1 * len(claimed)) - DOLLAR_WEIGHT * member.price
            for member, claimed in zip(item.crew.members, item.crew.claims, strict=True)
        ]

    return score_policy(item, scores)


def evidence_policy(
    item: OfficeTask, evidence: StaffEvidence, card_weight: float = 0.0, *, tells: bool = True
) -> PartPolicy:
    """Return the policy that goes by outcomes: posterior means less prices; a card's claim raises the prior.

    With `tells`, each worker is told what its outcomes were better with.
    """

    told = [learned_features(evidence, at) for at in range(len(item.crew))] if tells else None
    return score_policy(item, _evidence_scores(item, evidence, card_weight), told)


def _evidence_scores(
    item: OfficeTask, evidence: StaffEvidence, card_weight: float
) -> Callable[[WorkKind], Sequence[float]]:
    return lambda kind: [
        evidence.mean(at, kind, 0.25 + card_weight * (kind in item.crew.claims[at])) - DOLLAR_WEIGHT * member.price
        for at, member in enumerate(item.crew.members)
    ]


def learned_features(evidence: StaffEvidence, worker: int) -> frozenset[WordingFeature]:
    """Return the features with which a worker's outcomes were better, by posterior means."""
    found = set[WordingFeature]()
    for feature in FEATURES:
        tries, right = evidence.by_feature[worker].get((feature, True), (0, 0))
        tries_without, right_without = evidence.by_feature[worker].get((feature, False), (0, 0))
        if (right + 2.0) / (tries + 4.0) > (right_without + 2.0) / (tries_without + 4.0) + 0.02:
            found.add(feature)
    return frozenset(found)


def random_policy(item: OfficeTask, rng: random.Random) -> PartPolicy:
    """Return a policy that draws a worker for each part."""
    drawn = [rng.randrange(len(item.crew)) for _ in item.question.parts]
    return lambda left: PartChoice((left[0],), TreatmentKind.CALL, (drawn[left[0]],), (NOTHING_TOLD,))
