"""From a request, in whatever API it came, to an Order: which workers, under which caps, with which labels.

Invariant: what may be used is what all of these allow: the configuration, the key, the request's headers, the data's
labels, and what the task needs of a worker (that it takes its attachments, that it can call tools). Each can only take
away. When nothing is left the answer says who took it away, and nothing is begun or charged. Deliberately absent:
the shapes of any API, and keys' own budgets (a purse refuses each call by itself).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shikisha.call import Card
from shikisha.clearance import cleared, join
from shikisha.config.compose import Composition
from shikisha.depth import HEADER, TOO_DEEP
from shikisha.errors import ConfigError
from shikisha.server.catalogue import Catalogue, Model
from shikisha.server.narrowing import Narrowing
from shikisha.server.orders import Api, Order
from shikisha.server.principal import Principal
from shikisha.server.problems import Problem
from shikisha.task import Task
from shikisha.turn import Media

_MOST_CASTS = 1000


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for, in no API's own shape."""

    model: str
    task: Task
    api: Api
    narrowing: Narrowing
    wire: str = "{}"
    detached: bool = False
    idempotency: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class Ordering:
    """Makes orders of wishes, over one configuration."""

    def __init__(self, composition: Composition, catalogue: Catalogue) -> None:
        self.composition = composition
        self.catalogue = catalogue
        self._configured = composition.cards()
        self._caps, self._guarded = composition.caps, composition.guarded
        self._cast: set[tuple[str, tuple[str, ...]]] = set()  # what was found castable already

    def order(self, wish: Wish, by: Principal) -> Order:
        """Return the order; Problem when the model, the workers or the limits cannot be had."""
        self._deep(wish.narrowing.depth)
        model = self.catalogue.find(wish.model, by)
        labels = tuple(sorted(join(wish.task.labels, wish.narrowing.labels, by.labels)))
        domain = wish.narrowing.domain or wish.task.domain
        same = (labels, domain) == (wish.task.labels, wish.task.domain)
        task = wish.task if same else replace(wish.task, labels=labels, domain=domain)
        cards = self._cards(task, wish.narrowing, by)
        caps = wish.narrowing.narrowed(self._caps)
        spec = model.spec(cards)
        self._castable(model, spec, cards, lambda card: _lacking(card, task, wish.narrowing, by, self._guarded))
        return Order(
            task=task,
            by=by,
            model=model.name,
            conductor=spec,
            pool=tuple(card.name for card in cards),
            caps=caps,
            api=wish.api,
            detached=wish.detached,
            wire=wish.wire,
            idempotency=wish.idempotency,
            metadata=wish.metadata,
            depth=wish.narrowing.depth,
        )

    def _deep(self, depth: int) -> None:
        """Refuse a request that has come through too many servers of ours: one of them asks itself."""
        most = self.composition.settings.server.deepest
        if depth > most:
            said = f"the request has come through {depth} servers, and at most {most} may (server.deepest)"
            raise Problem(400, said, TOO_DEEP, param=HEADER)

    def _cards(self, task: Task, narrowing: Narrowing, by: Principal) -> Sequence[Card]:
        """Return the cards of the workers that all of them leave."""
        cards = _allowed(self._configured, by)
        cards = _chosen(cards, narrowing.workers, self.composition)
        cards = _cleared(cards, task, self._guarded)
        return _able(cards, task)

    def _castable(
        self, model: Model, spec: str, cards: Sequence[Card], lacking: Callable[[Card], tuple[str, str]]
    ) -> None:
        """Refuse a conductor that misses a worker, where fewer are left than are configured; say why it is not."""
        if len(cards) == len(self._configured):
            return
        names = tuple(card.name for card in cards)
        if (spec, names) in self._cast:
            return
        try:
            self.composition.conductor(spec, self.composition.pool(names))
        except ConfigError as error:
            for card in self._configured:
                if card.name not in names and repr(card.name) in str(error):
                    why, code = lacking(card)
                    raise _nobody(
                        400, f"the model {model.name!r} needs the worker {card.name!r}, {why}", code
                    ) from None
            said = f"the model {model.name!r} cannot do with the workers that may be used ({', '.join(names)}): {error}"
            raise _nobody(400, said) from None
        if len(self._cast) < _MOST_CASTS:
            self._cast.add((spec, names))


def _allowed(cards: Sequence[Card], by: Principal) -> Sequence[Card]:
    if by.workers is None:
        return cards
    left = [card for card in cards if card.name in by.workers]
    if not left:
        raise _nobody(403, "this key may use none of the workers that are configured here")
    return left


def _chosen(cards: Sequence[Card], wanted: Sequence[str] | None, composition: Composition) -> Sequence[Card]:
    if wanted is None:
        return cards
    known = [card.name for card in cards]
    for name in wanted:
        if name not in known:
            status, why = (403, "may not be used") if name in composition.names else (400, "does not exist")
            said = f"X-Shikisha-Workers: the worker {name!r} {why}; those that may be used are {', '.join(known)}"
            raise Problem(status, said, "no_worker", param="X-Shikisha-Workers")
    return [card for card in cards if card.name in wanted]


def _cleared(cards: Sequence[Card], task: Task, guarded: frozenset[str]) -> Sequence[Card]:
    left = [card for card in cards if cleared(card, task.labels, guarded)]
    if not left:
        needed = ", ".join(sorted(guarded.intersection(task.labels)))
        raise _nobody(403, f"no worker that may be used is cleared for data labelled {needed}", "not_cleared")
    return left


def _lacking(card: Card, task: Task, narrowing: Narrowing, by: Principal, guarded: frozenset[str]) -> tuple[str, str]:
    """Return why a worker may not be used or cannot be, and the code of that."""
    if by.workers is not None and card.name not in by.workers:
        return "which this key may not use", "no_worker"
    if narrowing.workers is not None and card.name not in narrowing.workers:
        return "which X-Shikisha-Workers leaves out", "no_worker"
    if not cleared(card, task.labels, guarded):
        needed = ", ".join(sorted(guarded.intersection(task.labels)))
        return f"which is not cleared for data labelled {needed}", "not_cleared"
    if missing := _attached(task) - set(card.takes):
        return f"which takes no attachments of the kind {' and '.join(sorted(missing))}", "unsupported_content"
    return "which cannot call a client's tools", "unsupported_tools"


def _attached(task: Task) -> set[Media]:
    """Return the kinds of all that is attached to the task and its history."""
    return {each.kind for turn in task.history for each in turn.attachments} | {each.kind for each in task.attachments}


def _able(cards: Sequence[Card], task: Task) -> Sequence[Card]:
    """Return the workers that can do what the task needs of them."""
    needed = _attached(task)
    left = [card for card in cards if needed <= set(card.takes)]
    if not left:
        kinds = " and ".join(sorted(needed))
        raise _nobody(400, f"no worker that may be used takes attachments of the kind {kinds}", "unsupported_content")
    if not task.tools:
        return left
    left = [card for card in left if card.tools]
    if not left:
        raise _nobody(400, "no worker that may be used can call a client's tools", "unsupported_tools")
    return left


def _nobody(status: int, why: str, code: str = "no_worker") -> Problem:
    return Problem(status, why, code)
