"""Conductors of the office: one way to turn choices into plans, and the policies that a learned one is compared with.

A `TreatmentPolicy` says, for the parts that are not done yet, which block comes next and how it is done. The conductor
turns its choices into rounds of at most five steps: it grants each step the results that the step needs and no others,
states what earlier rounds brought, ends a round where something must be known before it can go on (a condition, two
results that may differ), and ships. Baselines differ in what they go by: the truth, the cards, outcomes, or nothing.

Invariants: a plan grants a step only what it needs; only `truth_policy` sees levels, and `believed_policy` the world's
constants. Deliberately absent: reading. Every baseline is given which sentence is which part, and of which kind.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shikisha.core.plan import MAX_STEPS, Plan, Step
from shikisha.engine.conductor import Proposal, Situation
from shikisha.simulation.office.best_plan import DOLLAR_WEIGHT, BestOfficePlan, TreatmentKind, best_plan
from shikisha.simulation.office.company import WorkKind, read_value
from shikisha.simulation.office.office_tasks import OfficeTask, StaffEvidence
from shikisha.simulation.office.questions import OfficeQuestion
from shikisha.simulation.office.simulated_staff import LOST, write_subtask
from shikisha.simulation.office.staff import FEATURES, KINDS, RANDOM_WORDING_FACTOR, Crew, WordingFeature

NO_FEATURES: frozenset[WordingFeature] = frozenset()


@dataclass(frozen=True, slots=True)
class OfficeChoice:
    """The next block of parts, how it is done, by whom (places in the pool), and how each of them is told."""

    block: tuple[int, ...]
    kind: TreatmentKind
    workers: tuple[int, ...]
    features: tuple[frozenset[WordingFeature], ...]


# Given the parts still to do on the path as far as it is known: what comes next.
TreatmentPolicy = Callable[[tuple[int, ...]], OfficeChoice]


@dataclass(slots=True)
class _OfficeDraft:
    """Steps of the round that is being written, and which step gives which part."""

    steps: list[Step] = field(default_factory=list)
    gives: dict[int, int] = field(default_factory=dict)
    pending: OfficeChoice | None = None
    decided: tuple[int, ...] | None = None  # a block that has a condition's part and went on beyond it


@dataclass(slots=True)
class _OfficeProgress:
    """What the rounds so far brought: values by part, and a block with two results that may differ."""

    known: dict[int, str] = field(default_factory=dict)
    split: tuple[OfficeChoice, list[str]] | None = None
    keeps: int | None = None
    decided: tuple[int, ...] | None = None


class OfficeConductor:
    """Plans one question by a policy; the same question, crew and outcomes give the same plans."""

    def __init__(self, name: str, question: OfficeQuestion, policy: TreatmentPolicy, votes: int) -> None:
        self.name = name
        self._question, self._policy, self._votes = question, policy, votes

    async def propose(self, situation: Situation) -> Proposal:
        """Return the next round's plan; the empty plan once the last part has a value."""
        progress = self._replay(situation)
        path = self._path(progress)
        if path[-1] in progress.known and progress.split is None:
            return Proposal(Plan(), keeps=progress.keeps)
        return Proposal(Plan(tuple(self._draft(progress, path).steps)))

    def _path(self, progress: _OfficeProgress) -> tuple[int, ...]:
        """Return the parts to do as far as it can be said: up to the condition while that is open."""
        rule = self._question.condition
        if rule is None:
            return tuple(range(len(self._question)))
        if progress.decided is not None:  # whoever did the block took its branch
            branch = range(rule.first_then, rule.first_else)
            return self._question.taken(rule.threshold + 1 if progress.decided[-1] in branch else 0)
        if rule.on not in progress.known:
            return tuple(range(rule.first_then))
        return self._question.taken(read_value(progress.known[rule.on]))

    def _draft(self, progress: _OfficeProgress, path: tuple[int, ...]) -> _OfficeDraft:
        draft = _OfficeDraft()
        if progress.split is not None:  # two results differ: a third is asked for
            choice, _ = progress.split
            self._add_call(draft, choice, 2, progress.known)
            return draft
        rule = self._question.condition
        while True:
            left = tuple(part for part in path if part not in progress.known and part not in draft.gives)
            open_rest = rule is not None and rule.on not in progress.known
            if not left:
                return draft
            choice = self._policy(left)
            size = {
                TreatmentKind.CALL: 1,
                TreatmentKind.CHECK: 2,
                TreatmentKind.SECOND_OPINION: 2,
                TreatmentKind.VOTE: 4,
            }
            if len(draft.steps) + size[choice.kind] > MAX_STEPS:
                return draft
            self._add(draft, choice, progress.known)
            if choice.kind is TreatmentKind.SECOND_OPINION or (
                open_rest and rule is not None and rule.on in choice.block
            ):
                return draft

    def _add(self, draft: _OfficeDraft, choice: OfficeChoice, known: Mapping[int, str]) -> None:
        match choice.kind:
            case TreatmentKind.CALL:
                step = self._add_call(draft, choice, 0, known)
            case (
                TreatmentKind.SECOND_OPINION
            ):  # the one that wins where all differ comes last: its answer is the round's
                self._add_call(draft, choice, 1, known)
                step = self._add_call(draft, choice, 0, known)
            case TreatmentKind.VOTE:
                calls = tuple(self._add_call(draft, choice, at, known) for at in range(3))
                step = len(draft.steps)
                draft.steps.append(Step(write_subtask(self._question, choice.block), self._votes, calls))
            case TreatmentKind.CHECK:
                first = self._add_call(draft, choice, 0, known)
                step = self._add_call(draft, choice, 1, known, checks=first)
        draft.gives[choice.block[-1]] = step
        rule = self._question.condition
        for part in choice.block[:-1]:  # done within the block: nobody asks for their values, but for a condition's
            draft.gives.setdefault(part, step)
            if rule is not None and part == rule.on:
                draft.decided = choice.block

    def _add_call(
        self, draft: _OfficeDraft, choice: OfficeChoice, at: int, known: Mapping[int, str], checks: int | None = None
    ) -> int:
        question = self._question
        needs = {use for part in choice.block for use in question.parts[part].uses} - set(choice.block)
        rule = question.condition
        if rule is not None and any(part >= rule.first_then for part in choice.block) and rule.on not in choice.block:
            needs.add(rule.on)
        access = {draft.gives[part] for part in needs if part in draft.gives}
        stated = {part: known[part] for part in sorted(needs) if part in known}
        if checks is not None:
            access.add(checks)
        text = write_subtask(question, choice.block, choice.features[at], stated, check=checks is not None)
        draft.steps.append(Step(text, choice.workers[at], tuple(sorted(access))))
        return len(draft.steps) - 1

    def _replay(self, situation: Situation) -> _OfficeProgress:
        """Go through the rounds again, with the same choices, and note what each brought."""
        progress = _OfficeProgress()
        for index, turn in enumerate(situation.rounds):
            draft = self._redraft(progress)
            texts = [None if result is None else result.text for result in turn.results]
            if progress.split is not None:
                self._settle(progress, [*progress.split[1], texts[-1] or LOST], index)
                continue
            for part, step in draft.gives.items():
                progress.known[part] = texts[step] or LOST
            progress.keeps = index
            progress.decided = draft.decided or progress.decided
            if draft.pending is not None:
                pair = [texts[len(draft.steps) - 1] or LOST, texts[len(draft.steps) - 2] or LOST]
                if pair[0] != pair[1]:
                    progress.split = (draft.pending, pair)
                    progress.known.pop(draft.pending.block[-1], None)
        return progress

    def _redraft(self, progress: _OfficeProgress) -> _OfficeDraft:
        draft = self._draft(progress, self._path(progress))
        if progress.split is None and draft.steps:
            last = max(draft.gives, default=None, key=lambda part: draft.gives[part])
            choice = None if last is None else self._choice_for(last, progress, draft)
            draft.pending = choice if choice is not None and choice.kind is TreatmentKind.SECOND_OPINION else None
        return draft

    def _choice_for(self, last: int, progress: _OfficeProgress, draft: _OfficeDraft) -> OfficeChoice | None:
        path = self._path(progress)
        done = {part for part, step in draft.gives.items() if step < draft.gives[last]} | progress.known.keys()
        left = tuple(part for part in path if part not in done)
        return self._policy(left) if left else None

    def _settle(self, progress: _OfficeProgress, texts: list[str], index: int) -> None:
        """Take the majority of three results; the first where all differ."""
        if progress.split is None:
            return
        choice, _ = progress.split
        winner, votes = Counter(texts).most_common(1)[0]
        if votes == 1:
            winner = texts[0]
        else:
            progress.keeps = index if texts[2] == winner else progress.keeps
        progress.known[choice.block[-1]] = winner
        progress.split = None


def truth_policy(item: OfficeTask, dollar_weight: float = DOLLAR_WEIGHT) -> TreatmentPolicy:
    """Return the optimum's choices: it knows levels, families, wants, and which branch the answer takes."""
    return _plan_policy(best_plan(item, dollar_weight), [member.wants for member in item.crew.members])


def _plan_policy(plan: BestOfficePlan, told: Sequence[frozenset[WordingFeature]]) -> TreatmentPolicy:
    def choose(left: tuple[int, ...]) -> OfficeChoice:
        at = next((place for place, block in enumerate(plan.blocks) if left[0] in block), None)
        if at is None:  # a wrong value led to the branch that the answer does not take
            return OfficeChoice(left, TreatmentKind.CALL, (0,), (NO_FEATURES,))
        treatment = plan.treatments[at]
        features = tuple(told[worker] for worker in treatment.workers)
        return OfficeChoice(plan.blocks[at], treatment.kind, treatment.workers, features)

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
) -> TreatmentPolicy:
    """Return the optimum's choices for the crew as outcomes suggest it.

    It knows the world's constants (what a check finds, who is of which family, what a wording is worth) and which
    branch the answer takes: a ceiling of what these estimates can bring, not a fair baseline.
    """
    crew = believed_crew(item, evidence, card_weight)
    told = [member.wants for member in crew.members]
    return _plan_policy(best_plan(item.with_crew(crew), dollar_weight), told)


def checked_policy(
    item: OfficeTask, evidence: StaffEvidence, checked: frozenset[WorkKind], card_weight: float = 0.25
) -> TreatmentPolicy:
    """Return `evidence_policy` with one rule more: parts of these kinds are checked by the second-best worker."""
    scores = _evidence_scores(item, evidence, card_weight)
    told = [learned_features(evidence, at) for at in range(len(item.crew))]

    def choose(left: tuple[int, ...]) -> OfficeChoice:
        kind = item.question.parts[left[0]].kind
        order = sorted(range(len(item.crew)), key=lambda at: -scores(kind)[at])
        if kind in checked:
            workers = (order[0], order[1])
            return OfficeChoice(left[:1], TreatmentKind.CHECK, workers, tuple(told[at] for at in workers))
        return OfficeChoice(left[:1], TreatmentKind.CALL, (order[0],), (told[order[0]],))

    return choose


def score_policy(
    question: OfficeQuestion,
    scores: Callable[[WorkKind], Sequence[float]],
    features: Sequence[frozenset[WordingFeature]] | None = None,
) -> TreatmentPolicy:
    """Return the policy that gives each part to the worker with the highest score for its kind of work.

    Neighboring parts that go to the same worker are one block. `features` are how each worker is told (None: no more
    than the sentences).
    """

    def worker_for(part: int) -> int:
        values = scores(question.parts[part].kind)
        return max(range(len(values)), key=values.__getitem__)

    def choose(left: tuple[int, ...]) -> OfficeChoice:
        worker = worker_for(left[0])
        block = [left[0]]
        for part in left[1:]:
            if worker_for(part) != worker or not question.is_closed((*block, part), left):
                break
            block.append(part)
        told = NO_FEATURES if features is None else features[worker]
        return OfficeChoice(tuple(block), TreatmentKind.CALL, (worker,), (told,))

    return choose


def single_policy(worker: int, told: frozenset[WordingFeature] = NO_FEATURES) -> TreatmentPolicy:
    """Return the policy that gives everything to one worker, as far as the path is known."""
    return lambda left: OfficeChoice(left, TreatmentKind.CALL, (worker,), (told,))


def card_policy(item: OfficeTask) -> TreatmentPolicy:
    """Return the policy that believes every card: the cheapest worker that claims the kind, else the broadest."""

    def scores(kind: WorkKind) -> list[float]:
        return [
            (2.0 if kind in claimed else 0.1 * len(claimed)) - DOLLAR_WEIGHT * member.price
            for member, claimed in zip(item.crew.members, item.crew.claims, strict=True)
        ]

    return score_policy(item.question, scores)


def evidence_policy(
    item: OfficeTask, evidence: StaffEvidence, card_weight: float = 0.0, *, tells: bool = True
) -> TreatmentPolicy:
    """Return the policy that goes by outcomes: posterior means less prices; a card's claim raises the prior.

    With `tells`, each worker is told what its outcomes were better with.
    """

    told = [learned_features(evidence, at) for at in range(len(item.crew))] if tells else None
    return score_policy(item.question, _evidence_scores(item, evidence, card_weight), told)


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


def random_policy(item: OfficeTask, rng: random.Random) -> TreatmentPolicy:
    """Return a policy that draws a worker for each part."""
    drawn = [rng.randrange(len(item.crew)) for _ in item.question.parts]
    return lambda left: OfficeChoice((left[0],), TreatmentKind.CALL, (drawn[left[0]],), (NO_FEATURES,))
