"""The best rules that we would write by hand: kinds of work from key words, a worker for each, a chain or a join.

They know the families and how a plan is told, and read questions and descriptions by word lists (`reading`). Invariant:
a plan for every question and pool, whatever the words are. Where no specialist offers itself the strongest model does
the part; a noisy part is read several times and voted on where a judge is at hand and the steps allow it.
"""

from collections.abc import Sequence

from shikisha.orchestra.compose import Block, compose
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.instructions import PHRASES, Verb
from shikisha.orchestra.reading import Offer, joins, kinds, offer
from shikisha.orchestra.reading_long import parts
from shikisha.plan import MAX_STEPS, Plan, Step
from shikisha.task import Task
from shikisha.worker import Card

_FEWEST_VOTES = 3  # two readings that differ decide nothing


def by_rules(task: Task, cards: tuple[Card, ...]) -> Plan:
    """Return the plan that the rules make."""
    offers = [offer(card.description) for card in cards]
    families = kinds(task.prompt)
    if not families:
        return Plan((Step(PHRASES[Verb.ANSWER][0], _stand_in(offers)),))
    joined = len(families) > 2 and joins(task.prompt)
    last = len(families) - 1
    uses: list[tuple[int, ...]] = [() if not at or (joined and at < last) else (at - 1,) for at in range(len(families))]
    if joined:
        uses[last] = tuple(range(last))
    return _composed(families, uses, offers)


def by_long_rules(task: Task, cards: tuple[Card, ...]) -> Plan:
    """Return the plan that the rules make of a question of the large edition."""
    offers = [offer(card.description) for card in cards]
    families, uses = parts(task.prompt)
    if not families:
        return Plan((Step(PHRASES[Verb.ANSWER][0], _stand_in(offers)),))
    return _composed(families, uses, offers)


def _composed(families: Sequence[str], uses: Sequence[tuple[int, ...]], offers: Sequence[Offer]) -> Plan:
    blocks = [_block(at, name, offers, len(families)) for at, name in enumerate(families)]
    return compose(families, uses, blocks)


def _block(at: int, family: str, offers: Sequence[Offer], count: int) -> Block:
    able = sorted((len(said.families), ordinal) for ordinal, said in enumerate(offers) if family in said.families)
    worker = able[0][1] if able else _stand_in(offers)
    judge = next((ordinal for ordinal, said in enumerate(offers) if said.judges), None)
    votes = MAX_STEPS - count  # what is left beside a step for every other part and one for the judge
    if FAMILIES[family].noisy and able and judge is not None and votes >= _FEWEST_VOTES:
        return Block((at,), (worker,) * votes, judge)
    return Block((at,), (worker,))


def _stand_in(offers: Sequence[Offer]) -> int:
    """Return the strongest model, else any model, else the first worker."""
    return max(range(len(offers)), key=lambda ordinal: (offers[ordinal].strong, offers[ordinal].is_model, -ordinal))
