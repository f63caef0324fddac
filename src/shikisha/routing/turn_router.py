"""Routes the turns of agents: what became of a session so far, what finishing it is expected to cost, who may make it.

In the mode `shadow` every turn stays with the worker of the plan, and the decision is written down beside it. In the
mode `on` it is made, but only toward workers of which shadow turns have shown that they do no harm (`TurnEvidence`).
Invariants: what is learned from a tenant's runs, under their labels, decides about tasks of that very scope only; no
text is kept; memory is bounded. Wherever it is not known what a switch would do (a clock that jumped, two clients in
one session, caches that nobody reports), the turn stays, and the note says so.
"""

import json
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise, product, zip_longest
from time import monotonic, time
from typing import Literal

import numpy as np

from shikisha.core.budget import format_dollars
from shikisha.core.call import Card, Reply
from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    Event,
    GradeBasis,
    RunFinished,
    RunPaused,
    TurnRouted,
)
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import Json
from shikisha.core.run import Run
from shikisha.core.task import Scope, Task
from shikisha.engine.conductor import Turn, TurnChoice
from shikisha.evals.statistics import Bounds, difference_interval
from shikisha.journal.run_index import SESSION_NAMES
from shikisha.routing.turn_state import TurnState, canonical_calls, conversation_key, read_state

# Stay with a conversation's worker, or switch: what finishing it is expected to cost with each, caches included.
#
# A switch throws away what the provider of the worker so far keeps of the prefix, and pays for the prefix once more
# elsewhere; a session ends some day, so what is cheaper per turn must earn that back in the turns that are left. A
# worker whose turns bring less needs more of them. A plan says who acts as things stand: as usual, after an error,
# stuck, and in the two turns after such trouble. So the expensive worker may take over for the trouble alone, and the
# other comes back to a cache that is still warm. Of two workers every such plan is priced, as a Markov chain, and the
# best one acts.
#
# Invariants: the dollars of staying are taken low and those of leaving high wherever something is not known, so that no
# switch is made for a reason that nobody knows. `benchmarks/turns.py` checks each switch of simulated sessions against
# an exact planner. Deliberately absent: what a conversation looks like (`turn_state`), and who may make a turn.

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


# In the user that Claude Code names.
_CLIENT_SESSION = re.compile(r'"session_id" ?: ?"([^"\\]{1,64})"|session_([0-9A-Za-z-]{8,64})$')
RED_TURNS = 3  # red tests after so many turns in a row are a stall
HARM = 0.05  # of preference: what the interval of the shadow's verdicts must exclude
LEAST_VERDICTS = 30
SHADOW_CHECKER = "turns.shadow"  # of the grades that a blind judge gives to shadow turns
_MOST_SESSIONS, _MOST_RUNS, _MOST_TURNS = 4_096, 8_192, 64
_COMPARED = 256  # sessions that say how long one lasts
_JUMP = 5.0  # seconds between two clocks
_BUSY_SECONDS = 900.0  # after which a turn in flight is taken to be lost
_CACHEABLE = 2_048  # tokens: providers cache no shorter prefixes
_USUAL_LEFT, _USUAL_GROWTH, _USUAL_OUTPUT = 12.0, 800.0, 300.0
_DIFFERS = 0.35  # how often two workers make different calls, while nothing is known of it


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn that was made: when by two clocks, and its tokens."""

    worker: str
    at: float
    tick: float
    prompt: int
    cached: int
    output: int


@dataclass(slots=True)
class Session:
    """The newest turns of one conversation, and the runs that have a turn in flight, by when it began.

    `calm` counts the turns since one that came after an error, or while it was stuck.
    """

    past: deque[PastTurn] = field(default_factory=lambda: deque(maxlen=_MOST_TURNS))
    flying: dict[str, float] = field(default_factory=dict)
    turns: int = 0
    calm: int = 2

    def outlook(self, prefix: float, left: float) -> Outlook:
        """Return how it is expected to go on, by what it was so far, and as if four usual turns had come before."""
        grown = [later.prompt - before.prompt for before, later in pairwise(self.past) if later.prompt > before.prompt]
        growth = (sum(grown) + 4 * _USUAL_GROWTH) / (len(grown) + 4)
        output = (sum(each.output for each in self.past) + 4 * _USUAL_OUTPUT) / (len(self.past) + 4)
        return Outlook(prefix, growth, output, left, [after.at - before.at for before, after in pairwise(self.past)])


@dataclass(slots=True)
class TurnEvidence:
    """What outcomes taught about one scope's turns: how often they bring something, and the shadow's verdicts.

    `verdicts` has by worker, for each shadow turn, the judge's preference for it over the live one, from -0.5 to 0.5.
    """

    quality: TurnQuality = field(default_factory=TurnQuality)
    verdicts: dict[str, list[float]] = field(default_factory=dict)

    def interval(self, worker: str) -> Bounds:
        """Return the 95 % interval of the preference for a worker's turns; (-1, 1) while there is none."""
        return difference_interval(self.verdicts.get(worker, []))

    def harmless(self, worker: str) -> bool:
        """Whether the shadow's interval excludes harm."""
        held = self.verdicts.get(worker, [])
        return len(held) >= LEAST_VERDICTS and self.interval(worker)[0] > -HARM

    def learn(self, run: Run) -> None:
        """Take what became of a run: each of its turns is credited with a share of its grade."""
        rows = [row for turn in run.rounds for step in turn.steps.values() for row in step.tools]
        turns = [row for row in rows if isinstance(row, TurnRouted) and row.facts]
        grade = next((each for each in run.grades if each.checker == SHADOW_CHECKER and each.score is not None), None)
        if grade is not None and grade.score is not None:
            worker, live = (str(_json(grade.evidence).get(name, "")) for name in ("worker", "live"))
            self.verdicts.setdefault(worker, []).append(grade.score - 0.5)
            as_good = self.quality.mean(live) if grade.score == 0.5 else grade.score
            self.quality.add(worker, FINE, as_good)
            return
        scored = run.grade
        for row, following in zip_longest(turns, turns[1:]):
            facts = _json(row.facts)
            if following is not None:
                brought = _brought(_json(following.facts))
                self.quality.add(row.worker, _stands(facts), brought, 0.5)
            if scored is not None and scored.score is not None and scored.basis is not GradeBasis.JUDGE:
                self.quality.add(row.worker, _stands(facts), scored.score, 1 / len(turns))


def _stands(facts: Mapping[str, Json]) -> int:
    """Return how it stood before a turn, by what is journaled of it."""
    if "stall" in facts:
        return STUCK
    if facts.get("errors") or facts.get("red"):
        return SETBACK
    return AFTER if facts.get("after") == 1 else LATER if facts.get("after") == 2 else FINE


def _brought(facts: Mapping[str, Json]) -> float:
    """Return what the turn before brought, by what the tools returned after it."""
    if facts.get("repeated") or facts.get("idle") or facts.get("retried"):
        return 0.0
    if facts.get("tests") is True:
        return 1.0
    red = facts.get("red")
    return 0.0 if isinstance(red, int) and red > 1 else 0.5 if facts.get("errors") else 1.0


def _json(text: str) -> dict[str, Json]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class SessionRouter:
    """The shipped router; one for a server. `seconds` and `ticks` are the clock and one that cannot be set."""

    def __init__(
        self,
        mode: Literal["shadow", "on"],
        seconds: Callable[[], float] = time,
        ticks: Callable[[], float] = monotonic,
    ) -> None:
        self.mode = mode
        self.evidence: dict[Scope, TurnEvidence] = {}
        self._seconds, self._ticks = seconds, ticks
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._runs: OrderedDict[str, tuple[str, int]] = OrderedDict()  # by run: its session, and the attempts heard

    def named(self, metadata: Mapping[str, str], task: Task) -> Mapping[str, str]:
        """Return a run's metadata with its session: as the client names it, else by how the conversation begins."""
        if any(metadata.get(name) for name in SESSION_NAMES):
            return metadata
        found = _CLIENT_SESSION.search(metadata.get("user", ""))
        return {**metadata, SESSION_NAMES[0]: (found[1] or found[2]) if found else conversation_key(task)}

    def choose(self, turn: Turn) -> TurnChoice:
        """Return who makes the turn, with what was expected of each worker."""
        if len(turn.cards) < 2 and not turn.excluded:
            return TurnChoice(turn.worker, "stays: there is no other worker")
        key = conversation_key(turn.task)
        session = self._session(key)
        last = session.past[-1] if session.past else None
        state = read_state(turn, last.prompt + last.output if last else None)
        evidence = self.evidence.get(turn.task.scope) or TurnEvidence()
        here = (
            last.worker
            if last and self.mode == "on" and last.worker in {card.name for card in turn.cards}
            else turn.worker
        )
        stall = state.stall(RED_TURNS)
        outlook = session.outlook(state.prefix, self._left(session))
        barred = self._barred(turn, session, here)
        if self.mode == "on":
            barred |= {
                card.name: "the shadow has not shown that it does no harm"
                for card in turn.cards
                if card.name != here and not evidence.harmless(card.name) and card.name not in barred
            }
        options = self._options(turn, session, here)
        facts: dict[str, Json] = {"session": key, **state.facts(), "left": round(outlook.left, 1)}
        facts |= ({"stall": stall} if stall else {}) | ({"after": session.calm + 1} if session.calm < 2 else {})
        decision = decide(options, outlook, evidence.quality, _stands(facts), stall, barred)
        facts["dollars"] = {name: float(f"{dollars:.6g}") for name, dollars in decision.dollars.items()}
        facts["cached"] = {each.name: int(each.cached) for each in options if each.cached}
        if self.mode == "shadow":
            note = f"stays, as turns are only watched; it would do so: {decision.note}"
            return TurnChoice(turn.worker, note, {**facts, "would": decision.worker})
        return _asked_first(state, TurnChoice(decision.worker, decision.note, facts), options, barred, outlook)

    def settle(self, turn: Turn, replies: Mapping[str, Reply]) -> TurnChoice:
        """Keep the first reply where both make the same calls, else ask whom the plan names. Words are not compared."""
        (first, one), (second, other) = replies.items()
        said = canonical_calls(one.calls)
        if said and said == canonical_calls(other.calls):
            return TurnChoice(first, f"{first} and {second} make the same calls")
        others = [card.name for card in turn.cards if card.name not in replies]
        third = turn.worker if turn.worker in others else next(iter(others), first)
        return TurnChoice(third, f"{first} and {second} do not make the same calls")

    def observe(self, event: Event) -> None:
        """Take what happens in a run that is performed here."""
        match event:
            case TurnRouted(kept=False) if key := str(_json(event.facts).get("session", "")):
                self._runs[event.run] = (key, self._runs.get(event.run, ("", 0))[1])
                self._runs.move_to_end(event.run)
                while len(self._runs) > _MOST_RUNS:
                    self._runs.popitem(last=False)
                session = self._session(key)
                session.flying[event.run] = self._ticks()
                session.calm = 0 if _stands(_json(event.facts)) in (SETBACK, STUCK) else session.calm + 1
            case AttemptFinished(step=int()) if event.run in self._runs:
                self._take(event)
            case AttemptFailed() | RunFinished() | RunPaused() if event.run in self._runs:
                self._session(self._runs[event.run][0]).flying.pop(event.run, None)
            case _:
                pass

    def recall(self, events: Iterable[Event]) -> None:
        """Take the earlier events of a run that goes on here; what is known already counts once."""
        for event in events:
            if isinstance(event, TurnRouted | AttemptFinished):
                self.observe(event)
                if event.run in self._runs:
                    self._session(self._runs[event.run][0]).flying.pop(event.run, None)

    def _take(self, event: AttemptFinished) -> None:
        key, heard = self._runs[event.run]
        if event.attempt < heard:
            return
        self._runs[event.run] = (key, event.attempt + 1)
        session, used = self._session(key), event.usage
        tick = self._ticks() - max(0.0, self._seconds() - event.at)
        session.past.append(
            PastTurn(event.worker, event.at, tick, used.input_tokens, used.cached_tokens, used.output_tokens)
        )
        session.turns += 1
        session.flying.pop(event.run, None)

    def _session(self, key: str) -> Session:
        session = self._sessions.setdefault(key, Session())
        self._sessions.move_to_end(key)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _left(self, session: Session) -> float:
        """Return how many turns are still to come: what sessions of this length had left, and the usual ones beside."""
        known = islice(reversed(self._sessions.values()), _COMPARED)
        longer = [each.turns - session.turns for each in known if each.turns > session.turns]
        return (sum(longer) + 4 * _USUAL_LEFT) / (len(longer) + 4)

    def _barred(self, turn: Turn, session: Session, here: str) -> dict[str, str]:
        """Return why nobody but the session's worker may make this turn; empty where others may."""
        why, last = "", session.past[-1] if session.past else None
        since = self._ticks() - _BUSY_SECONDS
        if any(run != turn.run and begun > since for run, begun in session.flying.items()):
            why = "another client has a turn of this session in flight"
        elif last is not None:
            drift = abs((self._seconds() - last.at) - (self._ticks() - last.tick))
            why = "the clock has jumped since the last turn" if drift > _JUMP else ""
        barred = {card.name: why for card in turn.cards if card.name != here} if why else {}
        return {**turn.excluded, **barred}

    def _options(self, turn: Turn, session: Session, here: str) -> list[Option]:
        now, made = self._seconds(), []
        for card in sorted(turn.cards, key=lambda card: card.name != here):
            terms = CacheTerms.of(card)
            own = [each for each in session.past if each.worker == card.name]
            silent = [each for each in own[1:] if each.prompt >= _CACHEABLE]
            if terms is not None and terms.seconds is not None and silent and not any(each.cached for each in own):
                terms = replace(terms, known=terms.read >= terms.write)  # its provider reports no cached tokens
            kept = terms is not None and terms.seconds is not None and own and now - own[-1].at <= terms.seconds
            made.append(Option(card.name, terms, own[-1].prompt if kept else 0.0, card.context_tokens))
        return made


def _asked_first(
    state: TurnState, choice: TurnChoice, options: list[Option], barred: Mapping[str, str], outlook: Outlook
) -> TurnChoice:
    """Return the choice; where a session begins and two cheap workers may agree, those two are asked first."""
    here = options[0]
    if choice.worker != here.name or state.turn or here.terms is None:
        return choice

    def now(option: Option) -> float:
        terms = option.terms
        return 0.0 if terms is None else outlook.prefix * terms.write + outlook.output * terms.output + terms.call

    others = [each for each in options[1:] if each.terms is not None and each.name not in barred]
    cheap = sorted((each for each in others if now(each) < now(here)), key=now)[:2]
    if len(cheap) < 2 or sum(map(now, cheap)) + _DIFFERS * now(here) >= 0.8 * now(here):
        return choice
    first, second = cheap
    note = f"asks two: {first.name} and {second.name} cost less than {here.name}, which is asked if they differ"
    return TurnChoice(first.name, note, {**choice.facts, "else": here.name}, second.name)


def learn_scopes(runs: Iterable[Run]) -> dict[Scope, TurnEvidence]:
    """Return what finished and graded runs taught, by whose they are and their labels; erased ones say nothing."""
    found: dict[Scope, TurnEvidence] = {}
    for run in runs:
        if run.erased is None:
            found.setdefault(Scope(run.started.tenant, frozenset(run.started.labels)), TurnEvidence()).learn(run)
    return found


def shadow_grade(run: Run) -> AnswerGraded | None:
    """Return what the blind judge said of a shadow turn; None where it has said nothing."""
    return next((each for each in reversed(run.grades) if each.checker == SHADOW_CHECKER), None)
