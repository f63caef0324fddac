"""The part of a large pool that a conductor is shown for a task, chosen by the words of the task and of the cards.

A prompt that describes 5,000 workers costs more than what they do, and a trained conductor can name only so many. The
shortlist holds, in this order: the workers of earlier rounds; those whose cards match the task or one of its clauses
best (BM25F over names and descriptions); and, for a quarter of the places, the pool's first workers, because a worker
that can do everything matches nothing in particular. A pool that fits is shown whole, in its own order.

Invariants: the shortlist is a function of the task, the cards and the rounds, so a resumed run sees the same one. A
plan for it is mapped back to the pool's ordinals before anything else sees it. The proposal's note names who was shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING

from shikisha.core.call import Card
from shikisha.core.errors import MissingExtra
from shikisha.core.plan import Plan
from shikisha.core.run import RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation

if TYPE_CHECKING:
    from shikisha.retrieval.text_index import TextIndex

_WEIGHTS = (2.0, 1.0)  # of a name, and of a description
_QUERY_CHARACTERS = 8_000
_UNMATCHED_SHARE = 4  # one place in so many is for the pool's first workers
_NAMED_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Ordinals of a pool of `size` workers, ascending; a plan for a shortlist names places in it."""

    ordinals: tuple[int, ...]
    size: int

    @property
    def whole(self) -> bool:
        """Whether nobody is left out."""
        return len(self.ordinals) == self.size

    def narrow(self, at: Situation) -> Situation:
        """Return the situation as a pool of the shortlist would have it."""
        if self.whole:
            return at
        place = {ordinal: place for place, ordinal in enumerate(self.ordinals)}
        rounds = tuple(replace(each, plan=_renumber(each.plan, place)) for each in at.rounds)
        return replace(at, cards=tuple(at.cards[ordinal] for ordinal in self.ordinals), rounds=rounds)

    def widen(self, proposal: Proposal, cards: Sequence[Card]) -> Proposal:
        """Return the proposal in the ordinals of the pool, with a note of who was shown."""
        if self.whole:
            return proposal
        names = ", ".join(cards[ordinal].name for ordinal in self.ordinals)
        said = f"shown {len(self.ordinals)} of {self.size} workers: {names}"
        said = said if len(said) <= _NAMED_CHARACTERS else f"{said[:_NAMED_CHARACTERS]}…"
        plan = _renumber(proposal.plan, dict(enumerate(self.ordinals)))
        return replace(proposal, plan=plan, note=f"{proposal.note}; {said}" if proposal.note else said)


def choose_shortlist(task: Task, cards: Sequence[Card], rounds: Sequence[RoundResult], most: int) -> Shortlist:
    """Return at most `most` workers to show for a task, or all of them; those of earlier rounds are always shown."""
    if len(cards) <= most:
        return Shortlist(tuple(range(len(cards))), len(cards))
    seen = dict.fromkeys(step.worker for each in rounds for step in each.plan.steps)
    matching = _index_of(tuple((card.name, card.description) for card in cards)).search(task.prompt[:_QUERY_CHARACTERS])
    by_clause = [
        [int(matching.positions[row]) for row in column.argsort()[::-1] if column[row] > 0]
        for column in matching.clause_scores.T
    ]
    ranked = chain(seen, islice(_in_turns([[int(each) for each in matching.positions], *by_clause]), len(cards)))
    matched = list(dict.fromkeys(ranked))[: max(len(seen), most - most // _UNMATCHED_SHARE)]
    chosen = list(dict.fromkeys([*matched, *range(len(cards))]))[: max(most, len(seen))]
    return Shortlist(tuple(sorted(chosen)), len(cards))


def _in_turns(lists: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the first of each list, then the second of each, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield from (each[place] for each in lists if place < len(each))


@lru_cache(maxsize=4)
def _index_of(texts: tuple[tuple[str, str], ...]) -> "TextIndex":
    try:  # numpy is an extra, which only a pool that is too large to show needs
        from shikisha.retrieval.text_index import IndexedText, TextIndex
    except ModuleNotFoundError as error:
        raise MissingExtra("tools", f"a shortlist of {len(texts)} workers") from error
    return TextIndex([IndexedText("", each) for each in texts], _WEIGHTS)


def _renumber(plan: Plan, place: dict[int, int]) -> Plan:
    return Plan(tuple(replace(step, worker=place[step.worker]) for step in plan.steps))
