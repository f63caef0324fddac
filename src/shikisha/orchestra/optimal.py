"""The best plan for a question and a pool, when kinds of work, skills and prices are known: the yardstick at the top.

It looks through every way to split the parts (some done one by one, the rest in one call), every worker for each, and,
for noisy work, every number of readings with a vote. Invariant: `Choice.success` is exact under nominal skills
(`odds`). Deliberately absent: plans that can only do worse here, as a vote where asking again brings the same answer.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from shikisha.budget import Usage
from shikisha.conductor import Proposal, Situation
from shikisha.errors import PlanError
from shikisha.orchestra.cast import Profile
from shikisha.orchestra.compose import Block, compose
from shikisha.orchestra.edition import EVERYONE
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.grammar import parse
from shikisha.orchestra.odds import plurality
from shikisha.orchestra.question import Question
from shikisha.plan import MAX_STEPS, Plan
from shikisha.worker import Card

_SHOWN_BESIDES = 16  # words that a model is shown beside the question, about
_SAID = 3  # words that it says, about
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Option:
    """A way to do a block: its chance given right inputs, and its dollars (a model's: about)."""

    block: Block
    success: float
    dollars: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The best plan, its chance of a right answer, and its dollars."""

    plan: Plan
    success: float
    dollars: float


@dataclass(frozen=True, slots=True)
class Optimal:
    """Knows the families, the skills and the prices. `thrift` is how much success a dollar must bring (0: any)."""

    thrift: float = 0.0

    @property
    def name(self) -> str:
        """The conductor's name."""
        return "rehearsal:optimal"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the best plan, and after it keep the answer."""
        if situation.rounds:
            return Proposal(Plan(), final=True)
        question = parse(situation.task.prompt)
        if question is None:
            raise PlanError("the question is none of the rehearsal world's", "task")
        choice = best(question, profiles(situation.cards), situation.left.plan_steps, self.thrift)
        note = f"expected to be right in {choice.success:.1%}"
        return Proposal(choice.plan, note=note, final=True)


def profiles(cards: Sequence[Card]) -> tuple[Profile, ...]:
    """Return the profiles behind the cards; PlanError for a worker that is none of the orchestra's."""
    strangers = [card.name for card in cards if card.name not in EVERYONE]
    if strangers:
        raise PlanError(f"not of the embedded orchestra: {', '.join(strangers)}", "pool")
    return tuple(EVERYONE[card.name] for card in cards)


def best(question: Question, pool: Sequence[Profile], most_steps: int = MAX_STEPS, thrift: float = 0.0) -> Choice:
    """Return the plan with the best chance; of equal ones the cheapest."""
    words = len(question) * _SHOWN_BESIDES
    found = [
        (round(success - thrift * dollars, 9), -dollars, number, blocks, success)
        for number, blocks in enumerate(_splits(question, pool, most_steps, words))
        for success, dollars in [_worth(blocks)]
    ]
    _, dollars, _, options, success = max(found, key=lambda one: one[:3])
    uses = [part.uses for part in question.parts]
    return Choice(compose(question.families, uses, [option.block for option in options]), success, -dollars)


def _worth(options: Sequence[Option]) -> tuple[float, float]:
    success, dollars = 1.0, 0.0
    for option in options:
        success *= option.success
        dollars += option.dollars
    return success, dollars


def _splits(question: Question, pool: Sequence[Profile], most_steps: int, words: int) -> Iterator[tuple[Option, ...]]:
    for single in _beginnings(question):
        rest = tuple(at for at in range(len(question)) if at not in single)
        spare = most_steps - len(single)  # for the rest and for readings beyond the first
        if spare >= 1:
            yield from _filled([(at,) for at in single] + [rest], question, pool, spare, words)


def _beginnings(question: Question) -> Iterator[tuple[int, ...]]:
    """Yield the sets of parts that can be done one by one before the rest is done in one call."""
    last = len(question) - 1
    for count in range(len(question)):
        for single in combinations(range(last), count):
            if all(set(question.parts[at].uses) <= set(single) for at in single):
                yield single


def _filled(
    groups: Sequence[tuple[int, ...]], question: Question, pool: Sequence[Profile], spare: int, words: int
) -> Iterator[tuple[Option, ...]]:
    """Yield the groups with the best worker for each; one noisy group with every number of readings that fits."""
    plain = [_best(parts, question, pool, words) for parts in groups]
    yield tuple(plain)
    for place, parts in enumerate(groups):
        if len(parts) == 1 and FAMILIES[question.families[parts[0]]].noisy:
            for option in _votes(parts, question.families[parts[0]], pool, spare, words):
                yield (*plain[:place], option, *plain[place + 1 :])


def _best(parts: tuple[int, ...], question: Question, pool: Sequence[Profile], words: int) -> Option:
    families = tuple(question.families[at] for at in parts)
    options = [
        Option(Block(parts, (ordinal,)), profile.skill(families), _dollars(profile, words))
        for ordinal, profile in enumerate(pool)
    ]
    return max(options, key=lambda option: (option.success, -option.dollars))


def _votes(
    parts: tuple[int, ...], family: str, pool: Sequence[Profile], most_steps: int, words: int
) -> Iterator[Option]:
    """Yield readings with a vote: the cheapest good reader some times, each model at most once beside it."""
    judges = [ordinal for ordinal, profile in enumerate(pool) if profile.vote]
    readers = [ordinal for ordinal, profile in enumerate(pool) if family in profile.skills]
    models = [ordinal for ordinal, profile in enumerate(pool) if profile.is_model]
    if not judges or not readers:
        return
    judge = max(judges, key=lambda ordinal: (pool[ordinal].vote, -_dollars(pool[ordinal], words)))
    reader = max(readers, key=lambda ordinal: (pool[ordinal].skills[family], -_dollars(pool[ordinal], words)))
    for count in range(1, most_steps):
        for guests in range(min(len(models), most_steps - 1 - count) + 1):
            for beside in combinations(models, guests):
                workers = (*beside, *(reader,) * count)
                if len(workers) > 1:
                    skills = tuple(sorted(pool[ordinal].skill((family,)) for ordinal in workers))
                    dollars = sum(_dollars(pool[ordinal], words) for ordinal in (*workers, judge))
                    yield Option(Block(parts, workers, judge), plurality(skills) * pool[judge].vote, dollars)


def _dollars(profile: Profile, words: int) -> float:
    return profile.price.of(Usage(words + _SHOWN_BESIDES, _SAID) if profile.is_model else Usage())
