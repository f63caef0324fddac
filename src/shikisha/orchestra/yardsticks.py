"""What a learned conductor is held against: rules that a person wrote, simple topologies, chance.

Each is a Conductor with one round and makes a real plan through the same contract as any other. Invariant: all of them
see what every conductor sees, the question and the cards; none reads a worker's name but `Single`, which is given one.
Only `optimal` knows skills. Deliberately absent: anything learned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shikisha.budget import Usage
from shikisha.conductor import Proposal, Situation
from shikisha.errors import PlanError
from shikisha.orchestra.cast import GENERALIST, NOVICE
from shikisha.orchestra.chance import dice
from shikisha.orchestra.edition import LARGE, SMALL, Edition
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.instructions import NUMBERED, PHRASES, Verb
from shikisha.orchestra.optimal import Optimal
from shikisha.orchestra.reading import Offer, kinds, offer
from shikisha.orchestra.rules import by_long_rules, by_rules
from shikisha.plan import MAX_STEPS, Plan, Step
from shikisha.task import Task
from shikisha.worker import Card

_TYPICAL = Usage(40, 4)  # to compare prices


@dataclass(frozen=True, slots=True)
class Planned:
    """A conductor of one round whose plan is a function of the task and the cards; `note` says how it plans."""

    name: str
    plan: Callable[[Task, tuple[Card, ...]], Plan]
    note: str = ""

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the plan, and after it keep the answer."""
        if situation.rounds:
            return Proposal(Plan(), final=True)
        return Proposal(self.plan(situation.task, situation.cards), note=self.note, final=True)


def single(worker: str) -> Planned:
    """Return the conductor that asks one worker for everything; PlanError where the pool lacks it."""

    def plan(_task: Task, cards: tuple[Card, ...]) -> Plan:
        names = [card.name for card in cards]
        if worker not in names:
            raise PlanError(f"no worker {worker!r} in this pool", "pool")
        return _answer(names.index(worker))

    return Planned(f"rehearsal:{worker}", plan, "one worker for everything")


def _keyword_router(task: Task, cards: tuple[Card, ...]) -> Plan:
    """Ask the worker whose description fits most of the kinds of work that the question's words speak of."""
    wanted = set(kinds(task.prompt))
    return _answer(max(range(len(cards)), key=lambda ordinal: _fit(cards[ordinal], wanted)))


def _fit(card: Card, wanted: set[str]) -> tuple[int, bool, bool, int]:
    said = offer(card.description)
    return len(said.families & wanted), said.strong, said.weak, -len(said.families)


def _random_plan(task: Task, cards: tuple[Card, ...], edition: Edition = SMALL) -> Plan:
    """Return a plan whose length, workers, instructions and access lists are all drawn by lot."""
    draw = dice("random plan", task.prompt)
    said = [phrase for phrases in PHRASES.values() for phrase in phrases]
    said += [*NUMBERED[:3], *(phrase for name in edition.families for phrase in FAMILIES[name].tell)]
    return Plan(
        tuple(
            Step(
                draw.choice(said),
                draw.randrange(len(cards)),
                tuple(seen for seen in range(index) if draw.random() < 0.5),  # a coin for every earlier step
            )
            for index in range(draw.randint(1, MAX_STEPS))
        )
    )


def _self_consistency(_task: Task, cards: tuple[Card, ...]) -> Plan:
    """Ask the strongest model three times and take the most common answer."""
    offers = [offer(card.description) for card in cards]
    model = _strongest(cards, offers)
    judge = next((ordinal for ordinal, said in enumerate(offers) if said.judges), model)
    attempts = tuple(Step(PHRASES[Verb.ANSWER][0], model) for _ in range(3))
    return Plan((*attempts, Step(PHRASES[Verb.VOTE][0], judge, (0, 1, 2))))


def _planner_executor_verifier(_task: Task, cards: tuple[Card, ...]) -> Plan:
    """Let the strongest model plan, a cheaper one carry the plan out, and the strongest check."""
    offers = [offer(card.description) for card in cards]
    strongest = _strongest(cards, offers)
    others = [ordinal for ordinal, said in enumerate(offers) if said.is_model and ordinal != strongest]
    return Plan(
        (
            Step(PHRASES[Verb.PLAN][0], strongest),
            Step("carry out this plan and answer the question", others[0] if others else strongest, (0,)),
            Step(PHRASES[Verb.CHECK][0], strongest, (1,)),
        )
    )


def _strongest(cards: Sequence[Card], offers: Sequence[Offer]) -> int:
    """Return the dearest model; the dearest worker where there is no model."""
    return max(range(len(cards)), key=lambda ordinal: (offers[ordinal].is_model, _dollars(cards[ordinal])))


def _dollars(card: Card) -> float:
    return card.price.of(_TYPICAL) if card.price is not None else 0.0


def _answer(worker: int) -> Plan:
    return Plan((Step(PHRASES[Verb.ANSWER][0], worker),))


OPTIMAL = Optimal()
RULES = Planned(
    "rehearsal:rules",
    by_rules,
    "kinds of work by key words, a specialist for each in order of work, a vote where readings are noisy",
)
KEYWORD_ROUTER = Planned("rehearsal:keyword-router", _keyword_router, "the one worker that key words speak for")
RANDOM = Planned("rehearsal:random", _random_plan, "drawn by lot")
SELF_CONSISTENCY = Planned(
    "rehearsal:self-consistency", _self_consistency, "three answers of the strongest model and a vote"
)
PLANNER_EXECUTOR_VERIFIER = Planned(
    "rehearsal:planner-executor-verifier",
    _planner_executor_verifier,
    "the strongest model plans and checks, a cheaper one does the work",
)
ONLY_GENERALIST, ONLY_NOVICE = single(GENERALIST), single(NOVICE)
RULES_LARGE = Planned("rehearsal:rules-large", by_long_rules, RULES.note)
RANDOM_LARGE = Planned("rehearsal:random-large", partial(_random_plan, edition=LARGE), "drawn by lot")


def random_of(edition: Edition) -> Planned:
    """Return plans by lot out of an edition's phrases."""
    return RANDOM if edition is SMALL else RANDOM_LARGE


def rules_of(edition: Edition) -> Planned:
    """Return the hand-written rules that know an edition."""
    return RULES if edition is SMALL else RULES_LARGE
