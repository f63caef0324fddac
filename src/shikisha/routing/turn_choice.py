"""Stay with a conversation's worker, or switch: what finishing it is expected to cost with each, caches included.

A switch throws away what the provider of the worker so far keeps of the prefix, and pays for the prefix once more
elsewhere; a session ends some day, so what is cheaper per turn must earn that back in the turns that are left. A worker
whose turns bring less needs more of them: dollars are divided by how often a turn of it brings something.

Invariants: the dollars of staying are taken low and those of leaving high wherever something is not known, so that no
switch is made for a reason that nobody knows; the sums are those of the exact planner in `benchmarks/turns.py`, for
plans that switch once. Deliberately absent: what a conversation looks like (`turn_state`), and who may make a turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt

from shikisha.core.call import Card

_MOST_TURNS = 400  # of a session, in sums
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
    goes_on = max(0.0, 1 - min(1.0, brings) / max(1.0, outlook.left))
    warm = outlook.survival(terms.seconds) if warm < 0 else warm
    here = min(cached, outlook.prefix)
    total = here * terms.read + (outlook.prefix - here) * terms.write + outlook.output * terms.output + terms.call
    reaches, prefix = goes_on, outlook.prefix + outlook.growth
    for _ in range(_MOST_TURNS):
        if reaches < 1e-6:
            break
        kept = prefix - outlook.growth
        read = warm * (kept * terms.read + outlook.growth * terms.write) + (1 - warm) * prefix * terms.write
        total += reaches * (read + outlook.output * terms.output + terms.call)
        reaches, prefix = reaches * goes_on, prefix + outlook.growth
    return total


@dataclass(slots=True)
class TurnQuality:
    """How often turns of a worker bring something, as far as outcomes say: counts by worker and whether it was stuck.

    Nothing known is one turn of two for a worker, and one of five where it is stuck itself.
    """

    counts: dict[tuple[str, bool], list[float]] = field(default_factory=dict)

    def add(self, worker: str, *, stuck: bool, brought: float, weight: float = 1.0) -> None:
        """Count a turn: `brought` in [0, 1]."""
        held = self.counts.setdefault((worker, stuck), [0.0, 0.0])
        held[0] += weight * brought
        held[1] += weight * (1 - brought)

    def mean(self, worker: str, *, stuck: bool) -> float:
        """Return how often its turns bring something."""
        right, wrong = self.counts.get((worker, stuck), (0.0, 0.0))
        return (right + 1) / (right + wrong + (5 if stuck else 2))

    def cautious(self, worker: str) -> float:
        """Return the same less one and a half standard errors: what is little known is little trusted."""
        right, wrong = self.counts.get((worker, False), (0.0, 0.0))
        count, share = right + wrong + 2, (right + 1) / (right + wrong + 2)
        return max(0.02, share - 1.5 * sqrt(share * (1 - share) / count))


@dataclass(frozen=True, slots=True)
class Option:
    """A worker that may make the turn: its terms (None: no price), the tokens it has cached, its window."""

    name: str
    terms: CacheTerms | None
    cached: float = 0.0
    window: int | None = None


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
    stall: str = "",
    barred: Mapping[str, str] | None = None,
) -> TurnDecision:
    """Return whom to ask; `options` has the conversation's worker first, `barred` says why others may not act."""
    here, barred = options[0], dict(barred or {})
    dollars: dict[str, float] = {}
    stuck = bool(stall)
    room = outlook.prefix + outlook.output
    own = here.terms
    for option in options:
        if option.terms is None:
            barred.setdefault(option.name, "its price is not known")
            continue
        if option is not here and option.window is not None and room > option.window:
            barred.setdefault(option.name, f"the conversation of {outlook.prefix:,.0f} tokens does not fit its window")
            continue
        stays = option is here
        if stays:
            brings = quality.mean(option.name, stuck=stuck)
            certain = option.terms.known
            cached, warm = (option.cached, -1.0) if certain else (outlook.prefix, 1.0)
        else:
            brings = quality.mean(option.name, stuck=False) if stuck else quality.cautious(option.name)
            cached, warm = (option.cached, -1.0) if option.terms.known else (0.0, 0.0)
        dollars[option.name] = expected_dollars(option.terms, cached, brings, outlook, warm=warm)
    if own is None:
        return TurnDecision(here.name, f"stays: the price of {here.name} is not known", dollars)
    allowed = {
        name: worth
        for name, worth in dollars.items()
        if name not in barred and (not stuck or name == here.name or _is_stronger(options, name, own))
    }
    best = min(allowed, key=lambda name: allowed[name], default=here.name)
    stay = dollars.get(here.name, inf)
    if best == here.name or allowed[best] >= stay * (1 - MARGIN):
        others = [f"{name}: {barred[name]}" for name in sorted(barred) if name != here.name]
        why = "; ".join(["no other is expected to finish for less", *others])
        return TurnDecision(here.name, f"stays: {stall + ', and ' if stall else ''}{why}", dollars)
    target = next(each for each in options if each.name == best)
    if not stuck and not (own.known and target.terms is not None and target.terms.known):
        unknown = here.name if not own.known else best
        return TurnDecision(
            here.name, f"stays: what {unknown} caches is not known, so no cache justifies a switch", dollars
        )
    word = "steps up" if _is_stronger(options, best, own) else "steps down"
    why = f"{word}: {stall + '; ' if stall else ''}to finish with {best} is expected to cost ${allowed[best]:.4f}"
    return TurnDecision(best, f"{why}, with {here.name} ${stay:.4f}", dollars)


def _is_stronger(options: Sequence[Option], name: str, own: CacheTerms) -> bool:
    """Whether a worker costs more per token of output: the one sign of strength that every pool has."""
    terms = next(each.terms for each in options if each.name == name)
    return terms is not None and terms.output > own.output
