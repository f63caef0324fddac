"""Conductors that plan by a fixed rule: a named topology, a cascade, or plans given beforehand.

A name like `fixed:vote` stands bare or with options, `fixed:vote?workers=a,b&join=c`; the whole of it is the
conductor's name, so a journal tells what was conducted and a resumed run gets the same conductor. Invariant: the same
situation leads to the same plan. Deliberately absent: anything learned, and any chance.
"""

from collections.abc import Sequence

from shikisha.conductor import Conductor, Proposal, Situation
from shikisha.conductors.agreement import AGREEMENT, Agreement
from shikisha.conductors.topologies import ANSWER, NO_OPTIONS, TOPOLOGIES, Cast, Options, Topology, refuse_unused
from shikisha.errors import PlanError, UnknownName
from shikisha.plan import Plan, Step
from shikisha.run import Performed
from shikisha.worker import Card

CASCADE = "cascade"
KNOWN = (*TOPOLOGIES, CASCADE, AGREEMENT)


def fixed(spec: str, options: Options | None = None, name: str = "") -> Conductor:
    """Return the conductor of this topology: `vote`, or `vote?workers=a,b&n=2` where no options are given.

    Its name is `fixed:` and all of `spec`, unless another is given.
    """
    topology, _, query = spec.partition("?")
    chosen = Options.parse(query) if options is None else options
    if topology == CASCADE:
        return Cascade(name or f"fixed:{spec}", chosen)
    if topology == AGREEMENT:
        refuse_unused(spec, chosen, ("by",), ("workers",))
        return Agreement(name or f"fixed:{spec}", chosen)
    if topology not in TOPOLOGIES:
        raise UnknownName("topology", topology, KNOWN)
    return Fixed(name or f"fixed:{spec}", TOPOLOGIES[topology], chosen)


class Fixed:
    """Performs one topology in one round."""

    def __init__(self, name: str, topology: Topology, options: Options = NO_OPTIONS) -> None:
        refuse_unused(name, options, topology.roles, topology.takes)
        self._name, self._topology, self._options = name, topology, options
        self._made: tuple[tuple[Card, ...], Plan] | None = None  # many runs over one pool ask for one plan

    @property
    def name(self) -> str:
        """`fixed:` and the topology."""
        return self._name

    def plan(self, cards: tuple[Card, ...]) -> Plan:
        """Return the topology's plan for these workers; UnknownName for an option that names none of them."""
        if self._made is None or self._made[0] is not cards:
            self._made = (cards, self._topology.build(Cast(_some(cards), self._options)))
        return self._made[1]

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the topology's plan, and after it keep the answer."""
        if situation.rounds:
            return Proposal(Plan(), note=f"{self._name} has one round", final=True)
        note = f"the fixed topology {self._name}"
        return Proposal(self.plan(situation.cards), note=note, final=True, joins=self._topology.joins)


class Cascade:
    """Asks one worker, and the next dearer one when there is no answer or a check did not pass (FrugalGPT's shape).

    Its ladder is `workers` in the order given, else the cheapest and the dearest talker. Without checks on the workers
    it stops at the first answer.
    """

    def __init__(self, name: str = f"fixed:{CASCADE}", options: Options = NO_OPTIONS) -> None:
        refuse_unused(name, options, (), ("workers",))
        self._name, self._options = name, options

    @property
    def name(self) -> str:
        """`fixed:cascade` with its options."""
        return self._name

    def ladder(self, cards: tuple[Card, ...]) -> tuple[int, ...]:
        """Return the ordinals to ask, in order; UnknownName for an option that names none of these workers."""
        cast = Cast(_some(cards), self._options)
        if self._options.workers:
            return tuple(map(cast.ordinal, self._options.workers))
        return tuple(dict.fromkeys((cast.cheapest, cast.dearest)))

    async def propose(self, situation: Situation) -> Proposal:
        """Propose one step for the next rung, or keep the answer."""
        ladder, rung = self.ladder(situation.cards), len(situation.rounds)
        trouble = _trouble(situation.rounds[-1]) if situation.rounds else ""
        if situation.rounds and not trouble:
            return Proposal(Plan(), note="the answer passed", final=True)
        if rung >= len(ladder):
            return Proposal(Plan(), note=f"{trouble}; the ladder ends here", final=True)
        worker = situation.cards[ladder[rung]].name
        note = f"{trouble}, so {worker!r} is asked" if trouble else f"the ladder begins with {worker!r}"
        return Proposal(Plan((Step(ANSWER, ladder[rung]),)), note=note, final=rung == len(ladder) - 1)


class Scripted:
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


def _trouble(last: Performed) -> str:
    final = last.final
    if final is None:
        return "nothing was done"
    if final.fault is not None:
        return f"{final.worker!r} gave no answer ({final.fault.kind})"
    failed = [verdict for verdict in final.verdicts if not verdict.passed]
    return f"{final.worker!r} did not pass the check {failed[0].check!r}" if failed else ""


def _some(cards: tuple[Card, ...]) -> tuple[Card, ...]:
    if not cards:
        raise PlanError("the pool is empty", "pool")
    return cards
