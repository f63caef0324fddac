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
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, pairwise, zip_longest
from time import monotonic, time
from typing import Literal

from shikisha.core.call import Reply
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
from shikisha.routing.turn_choice import (
    AFTER,
    FINE,
    LATER,
    SETBACK,
    STUCK,
    CacheTerms,
    Option,
    Outlook,
    TurnQuality,
    decide,
)
from shikisha.routing.turn_state import TurnState, canonical_calls, conversation_key, read_state

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
