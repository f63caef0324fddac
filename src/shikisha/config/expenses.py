"""What an evaluation may come to before anything is paid: how many calls of workers that cost money, and dollars.

A conductor's calls on a task are known from its kind: a topology's steps; otherwise as many as its rounds, the plan's
length and the caps allow. Dollars are what such calls reserve: the longest answer that each worker may give, on the
mean task. Invariants: both are upper bounds for one attempt at every step, and a price that nobody knows makes the
dollars unknown; replies that are kept already are paid for, so samples that are there count for nothing. Deliberately
absent: what it will come to (no one knows how long answers get), and retries.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from shikisha.budget import Amount, Caps, format_dollars
from shikisha.call import Card, Request
from shikisha.conductor import Conductor
from shikisha.conductors.agreement import Agreement
from shikisha.conductors.fixed import Cascade, Fixed
from shikisha.conductors.lm import TRIES, LmConductor
from shikisha.conductors.topologies import ANSWER
from shikisha.config.stage import Stage
from shikisha.context import bound, turns
from shikisha.evaluate.calls import FREE_KINDS
from shikisha.evaluate.casting import Spec, asked
from shikisha.evaluate.course import Controls
from shikisha.evaluate.samples import Entrant
from shikisha.plan import MAX_STEPS
from shikisha.taskset import Item

_SAMPLED = 50  # tasks from which the mean call is reckoned
_AGAIN = MAX_STEPS - 1  # calls of self-consistency at most


@dataclass(frozen=True, slots=True)
class Expense:
    """Calls, and dollars at most (None: some price is not known)."""

    calls: int = 0
    dollars: float | None = 0.0

    def __add__(self, other: "Expense") -> "Expense":
        unknown = self.dollars is None or other.dollars is None
        return Expense(self.calls + other.calls, None if unknown else (self.dollars or 0.0) + (other.dollars or 0.0))

    def __str__(self) -> str:
        calls = f"{self.calls:,} paid call{'' if self.calls == 1 else 's'}"
        return (
            f"{calls} (some price is not known)" if self.dollars is None else f"{calls}, {format_dollars(self.dollars)}"
        )


def is_paid(card: Card) -> bool:
    """Whether a call of this worker costs money, as far as anybody knows."""
    return card.kind not in FREE_KINDS and (
        card.price is None or any((card.price.input, card.price.output, card.price.call))
    )


def paid_workers(stage: Stage) -> tuple[str, ...]:
    """Return the names of the workers that cost money; none where they are simulated or replayed."""
    pool = stage.gathered.pool
    if pool is None or stage.setup.log is not None or stage.composition.orchestra is not None:
        return ()
    return tuple(card.name for card in pool.cards if is_paid(card))


def expenses(
    stage: Stage, controls: Controls, conductors: Sequence[str], missing: Callable[[Entrant, Item], bool]
) -> tuple[Expense, Expense]:
    """Return what those asked for may come to, and what the controls beside them may; `missing`: still to be played."""
    reckoned = _Reckoned(stage, missing)
    wanted = reckoned.of([asked(name, {}) for name in conductors], stage.gathered.items)
    if controls is not Controls.ALL:
        return wanted, Expense()
    gathered, casts = stage.gathered, stage.gathered.casts
    both = list({item.task.id: item for item in (*gathered.items, *gathered.dev)}.values())
    singles = casts.singles()
    fixed = casts.candidates({}) if gathered.dev else []
    beside = reckoned.of(singles, both) + reckoned.of([casts.random()], gathered.items)
    beside += reckoned.of(fixed, gathered.dev)
    dearest = max((reckoned.of([spec], gathered.items) for spec in fixed), key=_rank, default=Expense())
    again = max((reckoned.of([spec], gathered.items, _AGAIN) for spec in singles), key=_rank, default=Expense())
    return wanted, beside + dearest + again


def _rank(one: Expense) -> tuple[float, int]:
    return one.dollars or 0.0, one.calls


class _Reckoned:
    """Reckons over one stage: what a mean call of each worker may cost at most."""

    def __init__(self, stage: Stage, missing: Callable[[Entrant, Item], bool]) -> None:
        self._stage, self._missing = stage, missing
        self._dollars: dict[str, float | None] = {}

    def of(self, specs: Iterable[Spec], items: Sequence[Item], times: int = 1) -> Expense:
        """Return what these entrants may come to on these tasks, each asked so many times."""
        total = Expense()
        for spec in specs:
            entrant = self._stage.entrant(spec)
            count = times * sum(self._missing(entrant, item) for item in items)
            if count and items:
                total += _times(self._run(entrant.conductor, entrant.pool(items[0]).cards), count)
        return total

    def _run(self, conductor: Conductor, cards: tuple[Card, ...]) -> Expense:
        """Return what one run may come to at most."""
        caps = self._stage.player.caps
        match conductor:
            case Fixed():
                return self._calls([cards[step.worker] for step in conductor.plan(cards).steps])
            case Cascade():
                return self._calls([cards[ordinal] for ordinal in conductor.ladder(cards)])
            case Agreement():
                return self._calls([cards[ordinal] for ordinal in conductor.cast(cards)])
            case LmConductor():
                rounds = min(conductor.rounds, caps.rounds)
                return _times(self._calls([conductor.member.card]), TRIES * rounds) + self._most(cards, rounds, caps)
            case _:
                return self._most(cards, 1, caps)

    def _most(self, cards: Sequence[Card], rounds: int, caps: Caps) -> Expense:
        """Return what as many steps as are allowed may come to, each by the dearest worker."""
        each = max((self._calls([card]) for card in cards), key=_rank, default=Expense())
        return _times(each, min(caps.steps, rounds * caps.plan_steps))

    def _calls(self, cards: Sequence[Card]) -> Expense:
        total = Expense()
        for card in cards:
            if is_paid(card):
                total += Expense(1, self._mean(card))
        return total

    def _mean(self, card: Card) -> float | None:
        if card.name not in self._dollars:
            items = self._stage.gathered.items[:_SAMPLED]
            needs: list[Amount] = [bound(turns(Request(item.task, ANSWER)), card) for item in items]
            known = [need.dollars for need in needs if need.dollars is not None]
            self._dollars[card.name] = fmean(known) if known and len(known) == len(needs) else None
        return self._dollars[card.name]


def _times(one: Expense, count: int) -> Expense:
    return Expense(one.calls * count, None if one.dollars is None else one.dollars * count)
