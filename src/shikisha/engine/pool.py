"""The pool: the closed, ordered registry of the workers that one run may use.

Invariant 1: a worker outside the pool is never called, whatever any text says: the engine takes workers from here
only, by ordinal (plans) or by exact name (fallbacks, escalations, checks); there is no matching of parts of names.
Deliberately absent: adding or removing. A different pool is a different object.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.engine.checker import OutputCheck
from shikisha.engine.guards import Guard
from shikisha.engine.worker import Card, Worker

if TYPE_CHECKING:
    from shikisha.core.messages import Json
    from shikisha.engine.tools import Agent


@dataclass(frozen=True, slots=True)
class Member:
    """A worker, its card, the checks on its output (`handoffs`), and the worker that undoes its effects (`undo`).

    No plan can name that one: it need not be in any pool, and only rollbacks call it. `guards` decide on each call of
    the worker as a tool. `agent`: the worker has tools, and is called until it needs none any more. `schema`: the JSON
    Schema that each of its answers must fit, whatever the client's is.
    """

    card: Card
    worker: Worker
    handoffs: tuple[OutputCheck, ...] = ()
    undo: "Member | None" = None
    guards: tuple[Guard, ...] = ()
    agent: "Agent | None" = None
    schema: "Mapping[str, Json] | None" = None


class Pool:
    """Members in order; an ordinal is a place in this order."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = tuple(members)
        self._cards = tuple(member.card for member in self._members)
        self._ordinals = {member.card.name: ordinal for ordinal, member in enumerate(self._members)}
        if len(self._ordinals) < len(self._members):
            names = [member.card.name for member in self._members]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"worker names must be unique in a pool; twice: {', '.join(twice)}")
        for card in self.cards:
            for other in (card.fallback, card.escalate):
                if other is not None and other not in self._ordinals:
                    raise UnknownName(f"stand-in of worker {card.name!r}", other, self._ordinals)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __getitem__(self, ordinal: int) -> Member:
        if not 0 <= ordinal < len(self._members):
            raise UnknownName("worker ordinal", str(ordinal), map(str, range(len(self))))
        return self._members[ordinal]

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names in order."""
        return tuple(self._ordinals)

    @property
    def cards(self) -> tuple[Card, ...]:
        """The workers' cards in order."""
        return self._cards

    def named(self, name: str) -> Member:
        """Return the member of exactly this name."""
        return self._members[self.ordinal(name)]

    def ordinal(self, name: str) -> int:
        """Return the ordinal of the worker of exactly this name."""
        if name not in self._ordinals:
            raise UnknownName("worker", name, self._ordinals)
        return self._ordinals[name]

    def subset(self, names: Sequence[str]) -> "Pool":
        """Return the pool of these members, in the order given; stand-ins outside it are cut off."""
        return Pool([cut_outside_stand_ins(self.named(name), names) for name in names])


def cut_outside_stand_ins(member: Member, names: Sequence[str]) -> Member:
    """Return the member with no stand-in that is not among these names."""
    card = member.card
    fallback = card.fallback if card.fallback in names else None
    escalate = card.escalate if card.escalate in names else None
    if (fallback, escalate) == (card.fallback, card.escalate):
        return member
    return replace(member, card=replace(card, fallback=fallback, escalate=escalate))
