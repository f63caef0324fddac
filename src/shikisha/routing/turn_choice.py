"""Stay with a conversation's worker, or switch: what finishing it is expected to cost with each, caches included.

A switch throws away what the provider of the worker so far keeps of the prefix, and pays for the prefix once more
elsewhere; a session ends some day, so what is cheaper per turn must earn that back in the turns that are left. A worker
whose turns bring less needs more of them. A plan says who acts as things stand: as usual, after an error, stuck, and
in the two turns after such trouble. So the expensive worker may take over for the trouble alone, and the other comes
back to a cache that is still warm. Of two workers every such plan is priced, as a Markov chain, and the best one acts.

Invariants: the dollars of staying are taken low and those of leaving high wherever something is not known, so that no
switch is made for a reason that nobody knows. `benchmarks/turns.py` checks each switch of simulated sessions against an
exact planner. Deliberately absent: what a conversation looks like (`turn_state`), and who may make a turn.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from shikisha.core.budget import format_dollars
from shikisha.core.call import Card
from shikisha.core.fast_dataclass import dataclass, field

_UNKNOWN_READ = (
    0.1  # of the price of input: what a cache that nobody knows of is taken to cost, where that favors staying
)
MARGIN = 0.04  # of the dollars: less is no reason to switch
_CAUTION = 2.0  # standard errors: what is little known is little trusted


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
        return (kept + 7.2) / (len(self.gaps) + 8)  # as if nine of ten of eight more had come in time


# As usual, after an error or red tests, stuck, and the first and the second turn after such trouble.
FINE, SETBACK, STUCK, AFTER, LATER = range(5)
_DROPS = (1.0, 0.7, 0.3, 0.8, 0.9)  # of its usual share, what the worker that got there still brings
_PLANS = np.array(list(product((0, 1), repeat=5)))  # [plans, stands]: who acts; 0 is the worker so far, 1 the other
_BEFORE = np.array([FINE, FINE, SETBACK, STUCK, AFTER])  # whose actor brought things there


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

    def brings(self, worker: str, *, cautious: bool) -> np.ndarray:
        """Return the same for [how it stands, whether it got there itself].

        `cautious` is less `_CAUTION` standard errors.
        """
        shares = np.array([[self.mean(worker, stands, own=own) for own in (False, True)] for stands in range(5)])
        if cautious:
            seen = np.array([[sum(self.counts.get((worker, stands), (0.0, 0.0)))] for stands in range(5)])
            shares -= _CAUTION * np.sqrt(shares * (1 - shares) / (seen + 2))
        trusted: np.ndarray = np.clip(shares, 0.02, 1.0)
        return trusted


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


def expected_dollars(
    options: Sequence[Option], outlook: Outlook, quality: TurnQuality, stands: int = FINE
) -> np.ndarray:
    """Return dollars to the session's end [plans, others], all priced: the first of `options` and each other as a pair.

    A session goes on from stand to stand: what brings something leads back to the usual, or ends it. Tokens are read
    from a cache where it holds them; new ones, those of a first use and those of a prefix that was lost are written.
    """
    pairs = len(options) - 1
    trusted = [quality.brings(each.name, cautious=place > 0) for place, each in enumerate(options)]
    shares = np.array([[trusted[0], each] for each in trusted[1:]])  # [others, worker, stand, own]
    own = _PLANS[:, _BEFORE] == _PLANS
    own[:, stands] = _PLANS[:, stands] == 0
    right = np.moveaxis(shares[:, _PLANS, np.arange(5), own.astype(int)], 0, 1)  # [plans, others, stands]
    chain = np.zeros((len(_PLANS), pairs, 5, 5))
    goes_on = 1 - 1 / max(1.0, outlook.left)
    for before, brought, failed in (
        (FINE, FINE, SETBACK),
        (SETBACK, AFTER, STUCK),
        (STUCK, AFTER, STUCK),
        (AFTER, LATER, SETBACK),
        (LATER, FINE, SETBACK),
    ):
        chain[..., before, brought] += goes_on * right[..., before]
        chain[..., before, failed] += 1 - right[..., before]
    visits = np.linalg.inv(np.eye(5) - chain)
    now = visits[..., stands, :]  # how often it will stand so
    places = np.einsum("...i,...ij,...jk->...k", now, chain, visits)  # and in which turns, summed up
    total = np.zeros(chain.shape[:2])
    for worker, held in enumerate(([options[0]] * pairs, list(options[1:]))):
        terms = [each.priced for each in held]
        acts = np.equal(_PLANS, worker)[:, None, :]
        # In doubt all is cached here, and nothing elsewhere.
        alive = np.array([outlook.survival(each.seconds) if each.known else 1.0 - worker for each in terms])
        cached = np.array([each.cached if each.priced.known else outlook.prefix * (1 - worker) for each in held]).clip(
            0, outlook.prefix
        )
        ever, warm = (_used_again(chain, acts, each) for each in (np.ones(pairs), alive))
        uses = (now * acts).sum(-1)
        reads = outlook.prefix * uses + outlook.growth * (places * acts).sum(-1)
        fresh = ever[..., stands] * outlook.prefix - warm[..., stands] * cached
        fresh += outlook.growth * np.einsum("...i,...ij,...j->...", now, chain, ever)
        lost = np.einsum("...i,...ij,...j->...", now * acts, chain, ever - alive[:, None] * warm)
        fresh += lost * np.maximum(0.0, reads / np.maximum(uses, 1e-9) - outlook.growth)
        read, more, each_call = np.array(
            [(each.read, each.write - each.read, outlook.output * each.output + each.call) for each in terms]
        ).T
        total += reads * read + np.minimum(fresh, reads) * more + uses * each_call
    return total


def _used_again(chain: np.ndarray, acts: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Return how often a worker makes a turn from there on, [plans, others, stands], its cache alive until then."""
    there = np.broadcast_to(acts, chain.shape[:-1])
    found: np.ndarray = np.linalg.solve(
        np.eye(5) - (~there * alive[:, None])[..., None] * chain, there[..., None] * 1.0
    )
    return found[..., 0]


def decide(
    options: Sequence[Option],
    outlook: Outlook,
    quality: TurnQuality,
    stands: int = FINE,
    why: str = "",
    barred: Mapping[str, str] | None = None,
) -> TurnDecision:
    """Return whom to ask; `options` has the conversation's worker first, `barred` says why others may not act.

    `why` says how it is stuck. The dollars of a worker are those of the best plan in which it makes the coming turn.
    """
    here, barred = options[0], dict(barred or {})
    if here.terms is None:
        return TurnDecision(here.name, f"stays: the price of {here.name} is not known", {})
    able = list[Option]()
    for option in options[1:]:
        if option.terms is None:
            barred.setdefault(option.name, "its price is not known")
        elif option.window is not None and outlook.prefix + outlook.output > option.window:
            barred.setdefault(option.name, f"the conversation of {outlook.prefix:,.0f} tokens does not fit its window")
        else:
            able.append(option)
    plans = expected_dollars([here, *(able or [here])], outlook, quality, stands)
    first = _PLANS[:, stands] == 0
    free = [place for place, each in enumerate(able) if each.name not in barred]
    stay = float(min([plans[0, 0], *plans[first][:, free].min(0)]))
    dollars = {here.name: stay} | dict(zip([each.name for each in able], plans[~first].min(0).tolist(), strict=False))
    ranked = [able[place] for place in free if stands != STUCK or able[place].is_stronger(here)]
    best = min([here, *ranked], key=lambda each: dollars[each.name])
    said = f"{why}, and " if why else ""
    if best is here or dollars[best.name] >= stay * (1 - MARGIN):
        others = [f"{name}: {barred[name]}" for name in sorted(barred) if name != here.name]
        return TurnDecision(
            here.name, f"stays: {said}{'; '.join(['no other is expected to finish for less', *others])}", dollars
        )
    unknown = [each.name for each in (here, best) if not each.priced.known]
    if unknown and stands != STUCK:
        note = f"stays: what {unknown[0]} caches is not known, so no cache justifies a switch"
        return TurnDecision(here.name, note, dollars)
    word = "steps up" if best.is_stronger(here) else "steps down"
    reason = f"{why}; " if why else ""
    finish = f"to finish by way of {best.name} is expected to cost {format_dollars(dollars[best.name])}"
    return TurnDecision(best.name, f"{word}: {reason}{finish}, with {here.name} {format_dollars(stay)}", dollars)
