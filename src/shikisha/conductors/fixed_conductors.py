"""Conductors that follow a fixed rule: topologies, cascades, random plans and plans given beforehand.

A name like `fixed:vote` stands alone or with options, `fixed:vote?workers=a,b&join=c`. The whole text is the
conductor's name, so a journal says what conducted a run and a resumed run gets the same conductor. An agreement cascade
asks two workers and a third where the two differ; it needs neither a check nor the right answer.

Invariant: the same situation leads to the same plan. A random plan depends on its seed, the task and the pool size
only. Deliberately absent: anything learned from outcomes (see `learned_policy`).
"""

from collections.abc import Iterator, Sequence
from random import Random

from shikisha.conductors.topologies import (
    NO_TOPOLOGY_OPTIONS,
    TOPOLOGIES,
    RoleAssignment,
    Topology,
    TopologyOptions,
    reject_unused_options,
)
from shikisha.core.errors import ConfigError, PlanError, UnknownName
from shikisha.core.events import CheckStatus
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import ANSWER, ANSWER_ALONE, Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.worker import Card

CASCADE, AGREEMENT = "cascade", "agreement"
FIXED_TOPOLOGIES = (*TOPOLOGIES, CASCADE, AGREEMENT)
_AGREEMENT_WORKERS = 3
_BY_OPTION, _COMPARED_FORMS = "by", ("text", "choice", "number", "math")


def fixed_conductor(spec: str, options: TopologyOptions | None = None, name: str = "") -> Conductor:
    """Return the conductor of this topology: `vote`, or `vote?workers=a,b&n=2` where no options are given.

    Its name is `fixed:` and all of `spec`, unless another is given.
    """
    topology, _, query = spec.partition("?")
    chosen = TopologyOptions.parse(query) if options is None else options
    if topology == CASCADE:
        return CascadeConductor(name or f"fixed:{spec}", chosen)
    if topology == AGREEMENT:
        reject_unused_options(spec, chosen, ("by",), ("workers",))
        return AgreementConductor(name or f"fixed:{spec}", chosen)
    if topology not in TOPOLOGIES:
        raise UnknownName("topology", topology, FIXED_TOPOLOGIES)
    return FixedConductor(name or f"fixed:{spec}", TOPOLOGIES[topology], chosen)


class FixedConductor:
    """Plans one topology in one round."""

    def __init__(self, name: str, topology: Topology, options: TopologyOptions = NO_TOPOLOGY_OPTIONS) -> None:
        reject_unused_options(name, options, topology.roles, topology.takes)
        self.name, self._topology, self._options = name, topology, options
        # Many runs over one pool ask for one plan.
        self._made: tuple[tuple[Card, ...], Proposal] | None = None

    def plan(self, cards: tuple[Card, ...]) -> Plan:
        """Return the topology's plan for these workers; UnknownName for an option that names none of them."""
        return self.fixed_proposal(cards).plan

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the topology's plan in the first round; keep the answer in the second."""
        if situation.rounds:
            return Proposal(Plan(), note=f"{self.name} has one round", final=True)
        return self.fixed_proposal(situation.cards)

    def fixed_proposal(self, cards: tuple[Card, ...]) -> Proposal:
        """Return what is proposed in the first round, whatever the task: `engine.single_step` asks for it."""
        if self._made is None or self._made[0] is not cards:
            plan, note = self._topology.build(RoleAssignment(_require_cards(cards), self._options)), self.name
            self._made = (
                cards,
                Proposal(plan, note=f"the fixed topology {note}", final=True, joins=self._topology.joins),
            )
        return self._made[1]


_UNCHECKED = "no check looked at the answer, so nobody else is asked: `checks` of the worker decide when to escalate"


class CascadeConductor:
    """Asks one worker, and the next more expensive one when there is no answer or a check failed (as FrugalGPT does).

    Its order is `workers` as given, else the cheapest and the most expensive text worker. Without checks on the workers
    it stops at the first answer, and says so.
    """

    def __init__(self, name: str = f"fixed:{CASCADE}", options: TopologyOptions = NO_TOPOLOGY_OPTIONS) -> None:
        reject_unused_options(name, options, (), ("workers",))
        self._name, self._options = name, options

    @property
    def name(self) -> str:
        """`fixed:cascade` with its options."""
        return self._name

    def assign_workers(self, cards: tuple[Card, ...]) -> tuple[int, ...]:
        """Return the ordinals to ask, in order; UnknownName for an option that names none of these workers."""
        roles = RoleAssignment(_require_cards(cards), self._options)
        if self._options.workers:
            return tuple(map(roles.ordinal, self._options.workers))
        return tuple(dict.fromkeys((roles.cheapest, roles.most_expensive)))

    async def propose(self, situation: Situation) -> Proposal:
        """Propose one step for the next worker, or keep the answer."""
        workers, asked = self.assign_workers(situation.cards), len(situation.rounds)
        trouble = _failure_reason(situation.rounds[-1]) if situation.rounds else ""
        if situation.rounds and not trouble:
            final = situation.rounds[-1].final
            looked = final is not None and any(check.status is CheckStatus.PASS for check in final.verdicts)
            return Proposal(Plan(), note="the answer passed" if looked else _UNCHECKED, final=True)
        if asked >= len(workers):
            return Proposal(Plan(), note=f"{trouble}; the cascade ends here", final=True)
        worker = situation.cards[workers[asked]].name
        note = f"{trouble}, so {worker!r} is asked" if trouble else f"the cascade starts with {worker!r}"
        return Proposal(Plan((Step(ANSWER, workers[asked]),)), note=note, final=asked == len(workers) - 1)


@dataclass(frozen=True, slots=True)
class AgreementConductor:
    """Asks the first two of its three `workers`, and the third where those two differ; by default by price."""

    name: str
    options: TopologyOptions

    def __post_init__(self) -> None:
        by = self.options.roles.get(_BY_OPTION, "text")
        if by not in _COMPARED_FORMS:
            raise UnknownName(f"form in {self.name!r}", by, _COMPARED_FORMS)

    def assign_workers(self, cards: tuple[Card, ...]) -> tuple[int, ...]:
        """Return the three ordinals; ConfigError for another number, UnknownName for one that is not in the pool."""
        roles = RoleAssignment(_require_cards(cards), self.options)
        if self.options.workers:
            if len(self.options.workers) != _AGREEMENT_WORKERS:
                raise ConfigError(f"{self.name}: expected three workers, found {len(self.options.workers)}")
            return tuple(map(roles.ordinal, self.options.workers))
        by_price = roles.by_price
        return (by_price[0], by_price[min(1, len(by_price) - 1)], roles.most_expensive)

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the two, then the third or nothing."""
        first, second, third = self.assign_workers(situation.cards)
        if not situation.rounds:
            return Proposal(
                Plan((Step(ANSWER_ALONE, first), Step(ANSWER_ALONE, second))), note="two answers to compare"
            )
        if len(situation.rounds) > 1:
            return Proposal(Plan(), note="the third has answered", final=True)
        if answers_agree(situation.rounds[0].results, self.options.roles.get(_BY_OPTION)):
            return Proposal(Plan(), note="the two agree", final=True)
        name = situation.cards[third].name
        return Proposal(Plan((Step(ANSWER_ALONE, third),)), note=f"the two differ, so {name!r} is asked", final=True)


def answers_agree(results: Sequence[Result], by: str | None = None) -> bool:
    """Whether there are answers and all of them are the same in one of their canonical forms, or in the form `by`."""
    texts = [result.text for result in results if result.ok and result.text is not None]
    if not texts or len(texts) < len(results):
        return False
    return any(len(found := set(answers)) == 1 and None not in found for answers in _canonical_answers(texts, by))


def find_agreement(texts: Sequence[str | None], count: int) -> int | None:
    """Return the place of the first of so many answers that are the same in a canonical form; None without such."""
    for answers in _canonical_answers(texts):
        places: dict[str, list[int]] = {}
        for place, answer in enumerate(answers):
            if answer is not None:
                places.setdefault(answer, []).append(place)
        same = max(places.values(), key=len, default=[])
        if len(same) >= count:
            return same[0]
    return None


def _canonical_answers(texts: Sequence[str | None], by: str | None = None) -> Iterator[list[str | None]]:
    """Yield the texts in one canonical form after another, or in the form `by`; None for what has no such form."""
    # Canonical forms of numbers and formulas take longer to import than all conductors together.
    from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize

    for form in (AnswerForm.TEXT, AnswerForm.CHOICE, AnswerForm.NUMBER) if by is None else (AnswerForm(by),):
        yield [None if text is None else canonicalize(text, form) for text in texts]


class OneWorkerConductor:
    """Another conductor's plans with one worker in all parts, which sees all that it said before: one conversation.

    The worker is the pool's last, and the other conductor does not know of it.
    """

    def __init__(self, plans: Conductor) -> None:
        self._plans = plans

    @property
    def name(self) -> str:
        """The other conductor's name, and that one worker plays all parts."""
        return f"{self._plans.name} (one worker)"

    async def propose(self, situation: Situation) -> Proposal:
        """Let the other conductor plan, and give every step to the one worker."""
        one = len(situation.cards) - 1
        proposal = await self._plans.propose(replace(situation, cards=situation.cards[:-1]))
        steps = [Step(step.subtask, one, tuple(range(place))) for place, step in enumerate(proposal.plan.steps)]
        return replace(proposal, plan=Plan(tuple(steps)), text="", joins=False)


class ScriptedConductor:
    """The shipped fake: proposes the given plans one after another, then keeps the answer."""

    def __init__(self, plans: Sequence[Plan], name: str = "fixed:scripted") -> None:
        self._plans, self._name = tuple(plans), name

    @property
    def name(self) -> str:
        """The name given."""
        return self._name

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the plan of this round."""
        number = len(situation.rounds)
        plan = self._plans[number] if number < len(self._plans) else Plan()
        return Proposal(plan, note=f"scripted plan {number}", final=number + 1 >= len(self._plans))


def _failure_reason(last: RoundResult) -> str:
    final = last.final
    if final is None:
        return "nothing was done"
    if final.fault is not None:
        return f"{final.worker!r} gave no answer ({final.fault.kind})"
    failed = [verdict for verdict in final.verdicts if not verdict.passed]
    return f"{final.worker!r} did not pass the check {failed[0].check!r}" if failed else ""


def _require_cards(cards: tuple[Card, ...]) -> tuple[Card, ...]:
    if not cards:
        raise PlanError("the pool is empty", "pool")
    return cards


@dataclass(frozen=True, slots=True)
class RandomPlanConductor:
    """Proposes one random plan. `longest` bounds its steps; 1 makes it a random router."""

    seed: int = 0
    longest: int = 5
    name: str = "random"

    async def propose(self, situation: Situation) -> Proposal:
        """Draw a plan in the first round; keep the answer in the second."""
        if situation.rounds:
            return Proposal(Plan(), note="one random plan is enough", final=True)
        draw = Random(f"{self.seed}:{situation.task.content_hash}")  # noqa: S311 - a control, not a secret
        most = min(self.longest, situation.left.plan_steps, max(1, situation.left.steps))
        plan = Plan(
            tuple(
                Step(
                    ANSWER,
                    draw.randrange(len(situation.cards)),
                    tuple(seen for seen in range(index) if draw.random() < 0.5),
                )
                for index in range(draw.randint(1, most))
            )
        )
        return Proposal(plan, note=f"random (seed {self.seed})", final=True)
