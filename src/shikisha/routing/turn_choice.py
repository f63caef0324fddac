"""Stay with a conversation's worker, or switch: what finishing it is expected to cost with each, caches included.

A switch throws away what the provider of the worker so far keeps of the prefix, and pays for the prefix once more
elsewhere; a session ends some day, so what is cheaper per turn must earn that back in the turns that are left. A worker
whose turns bring less needs more of them: dollars are divided by how often a turn of it brings something.

Invariants: the dollars of staying are taken low and those of leaving high wherever something is not known, so that no
switch is made for a reason that nobody knows. `benchmarks/turns.py` checks each switch of simulated sessions against an
exact planner. Deliberately absent: what a conversation looks like (`turn_state`), and who may make a turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from shikisha.core.budget import format_dollars
from shikisha.core.call import Card

_UNKNOWN_READ = (
    0.1  # of the price of input: what a cache that nobody knows of is taken to cost, where that favors staying
)
MARGIN = 0.02  # of the dollars: less is no reason to switch


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """Dollars per token at one worker: read from a cache, written to it or new, and output; `call` per call.

    `seconds` is how long a prefix is kept after its use. `known`: prices and lifetime are all stated.
    """

    read: float
    write: float
    output: float
    call: float = 0.0
    seconds: float | None = None
    known: bool = True

    @classmethod
    def of(cls, card: Card) -> "CacheTerms | None":
        """Return the terms of a worker; None where it has no price."""
        price = card.price
        if price is None:
            return None
        read = price.input * _UNKNOWN_READ if price.cached is None else price.cached
        write = price.input if price.cache_write is None else max(price.input, price.cache_write)
        free = not (price.input or price.output or price.cached or price.call)
        known = free or (price.cached is not None and (price.cached >= price.input or card.cache_seconds is not None))
        return cls(read / 1e6, write / 1e6, price.output / 1e6, price.call, card.cache_seconds, known)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a conversation is expected to go on.

    `prefix` tokens are to be read in the coming turn, `growth` more in each further one, `output` are written in each.
    `left` are the turns that are still expected, the coming one included, if each brings something. `gaps` are seconds
    between turns so far.
    """

    prefix: float
    growth: float
    output: float
    left: float
    gaps: Sequence[float] = ()

    def survival(self, seconds: float | None) -> float:
        """Return how often a prefix that is kept so long is still there at the next turn."""
        if seconds is None:
            return 0.0
        kept = sum(gap <= seconds for gap in self.gaps)
        return (kept + 1.8) / (len(self.gaps) + 2)  # as if nine of ten had come in time


def expected_dollars(terms: CacheTerms, cached: float, brings: float, outlook: Outlook, *, warm: float = -1.0) -> float:
    """Return the dollars to the session's end with one worker, which has so many tokens of the prefix cached now.

    `brings` in (0, 1] is how often a turn of it brings something; `warm` how often its prefix survives, by default as
    the gaps say.
    """
    goes_on = 1 - max(1e-4, min(1.0, brings)) / max(1.0, outlook.left)
    warm = outlook.survival(terms.seconds) if warm < 0 else warm
    here = min(cached, outlook.prefix)
    total = here * terms.read + (outlook.prefix - here) * terms.write + outlook.output * terms.output + terms.call
    if not goes_on:
        return total
    # Turn k after this one costs first + k * more, and is reached with goes_on ** k.
    lost, fixed = 1 - warm, outlook.output * terms.output + terms.call
    more = outlook.growth * (warm * terms.read + lost * terms.write)
    first = warm * ((outlook.prefix - outlook.growth) * terms.read + outlook.growth * terms.write)
    first += lost * outlook.prefix * terms.write + fixed
    total += first * goes_on / (1 - goes_on) + more * goes_on / (1 - goes_on) ** 2
    return total


FINE, SETBACK, STUCK = range(3)  # how a conversation stands: as usual, after an error or red tests, and stuck
_DROPS = {FINE: 1.0, SETBACK: 0.7, STUCK: 0.3}  # of its usual share, what the worker that got there still brings


@dataclass(slots=True)
class TurnQuality:
    """How often turns of a worker bring something, as far as outcomes say: counts by worker and how it stood.

    Nothing known is one turn of two.
    """

    counts: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def add(self, worker: str, stands: int, brought: float, weight: float = 1.0) -> None:
        """Count a turn: `brought` in [0, 1]."""
        held = self.counts.setdefault((worker, stands), [0.0, 0.0])
        held[0] += weight * brought
        held[1] += weight * (1 - brought)

    def mean(self, worker: str, stands: int = FINE, *, own: bool = True) -> float:
        """Return how often its turns bring something; `own`: it is the worker that got there."""
        right, wrong = self.counts.get((worker, FINE), (0.0, 0.0))
        usual = (right + 1) / (right + wrong + 2)
        if stands == FINE:
            return usual
        right, wrong = self.counts.get((worker, stands), (0.0, 0.0))
        return (right + 2 * usual * (_DROPS[stands] if own else 1.0)) / (right + wrong + 2)

    def pace(self, first: float, worker: str) -> float:
        """Return what part of all turns of a worker bring something, if `first` of the first tries do: a turn that
        brings nothing is made again, and again, as things then stand.
        """
        again = 1 + (1 - self.mean(worker, SETBACK)) / max(0.02, self.mean(worker, STUCK))
        return min(first, 1 / (1 + (1 - first) * again))

    def cautious(self, worker: str, stands: int = FINE) -> float:
        """Return the same of another worker, less one and a half standard errors: what is little known is little
        trusted.
        """
        right, wrong = self.counts.get((worker, FINE), (0.0, 0.0))
        share = self.mean(worker, stands, own=False)
        return max(0.02, share - 1.5 * sqrt(share * (1 - share) / (right + wrong + 2)))


@dataclass(frozen=True, slots=True)
class Option:
    """A worker that may make the turn: its terms (None: no price), the tokens it has cached, its window."""

    name: str
    terms: CacheTerms | None
    cached: float = 0.0
    window: int | None = None

    @property
    def priced(self) -> CacheTerms:
        """Its terms; ValueError where it has none."""
        if self.terms is None:
            raise ValueError(f"{self.name} has no price")
        return self.terms

    def is_stronger(self, than: "Option") -> bool:
        """Whether it costs more per token of output: the one sign of strength that every pool has."""
        return self.priced.output > than.priced.output


@dataclass(frozen=True, slots=True)
class TurnDecision:
    """Whom to ask, why, and what finishing with each is expected to cost."""

    worker: str
    note: str
    dollars: Mapping[str, float]


def decide(
    options: Sequence[Option],
    outlook: Outlook,
    quality: TurnQuality,
    stands: int = FINE,
    why: str = "",
    barred: Mapping[str, str] | None = None,
) -> TurnDecision:
    """Return whom to ask; `options` has the conversation's worker first, `barred` says why others may not act.

    `why` says how it is stuck. What a worker costs is what it takes until a turn brings something, and then the rest
    of the session with it, or back with the worker so far.
    """
    here, barred = options[0], dict(barred or {})
    if here.terms is None:
        return TurnDecision(here.name, f"stays: the price of {here.name} is not known", {})
    able = [here]
    for option in options[1:]:
        if option.terms is None:
            barred.setdefault(option.name, "its price is not known")
        elif option.window is not None and outlook.prefix + outlook.output > option.window:
            barred.setdefault(option.name, f"the conversation of {outlook.prefix:,.0f} tokens does not fit its window")
        else:
            able.append(option)
    free = [option for option in able if option is here or option.name not in barred]
    dollars = {each.name: _to_finish(each, here, outlook, quality, stands) for each in able}
    stay = dollars[here.name]
    ranked = [each for each in free if each is here or stands < STUCK or each.is_stronger(here)]
    best = min(ranked, key=lambda each: dollars[each.name])
    said = f"{why}, and " if why else ""
    if best is here or dollars[best.name] >= stay * (1 - MARGIN):
        others = [f"{name}: {barred[name]}" for name in sorted(barred) if name != here.name]
        return TurnDecision(
            here.name, f"stays: {said}{'; '.join(['no other is expected to finish for less', *others])}", dollars
        )
    unknown = [each.name for each in (here, best) if each.terms is None or not each.terms.known]
    if unknown and stands < STUCK:
        note = f"stays: what {unknown[0]} caches is not known, so no cache justifies a switch"
        return TurnDecision(here.name, note, dollars)
    word = "steps up" if best.is_stronger(here) else "steps down"
    reason = f"{why}; " if why else ""
    finish = f"to finish by way of {best.name} is expected to cost {format_dollars(dollars[best.name])}"
    return TurnDecision(best.name, f"{word}: {reason}{finish}, with {here.name} {format_dollars(stay)}", dollars)


def _to_finish(first: Option, here: Option, outlook: Outlook, quality: TurnQuality, stands: int) -> float:
    """Return the dollars with `first` until a turn brings something, and then with it or back here to the end."""
    brings = _brings(first, here, quality, stands)
    cached, warm = _held(first, here, outlook.prefix)
    now = replace(outlook, left=1.0)
    spent = expected_dollars(first.priced, cached, brings, now, warm=warm)
    if outlook.left <= 1:
        return spent
    turns = 1 / brings
    rest = replace(outlook, prefix=outlook.prefix + turns * outlook.growth, left=outlook.left - 1)
    ends = []
    for option in (here,) if first is here else (here, first):
        held, warm = _held(option, here, rest.prefix)
        kept = outlook.survival(option.priced.seconds) if warm < 0 else warm
        held = (rest.prefix - outlook.growth) * kept if option is first else held * kept
        ends.append(expected_dollars(option.priced, held, _brings(option, here, quality, FINE), rest, warm=warm))
    return spent + min(ends)


def _brings(option: Option, here: Option, quality: TurnQuality, stands: int) -> float:
    share = quality.mean(option.name, stands) if option is here else quality.cautious(option.name, stands)
    return share if stands else quality.pace(share, option.name)


def _held(option: Option, here: Option, prefix: float) -> tuple[float, float]:
    """Return the tokens that a worker has cached and how often they survive: in doubt all here, and none elsewhere."""
    if option.priced.known:
        return option.cached, -1.0
    return (prefix, 1.0) if option is here else (0.0, 0.0)
