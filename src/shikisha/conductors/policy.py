"""A conductor that decides by a learned policy: ask one more worker, or ship an answer, round by round.

`policy:FILE` takes the most accurate setting; `policy:FILE?quality=0.99` (of the best single worker's accuracy),
`?max_cost=20%` (of its mean cost), `?budget_per_1k=1.50` (dollars for a thousand tasks) or `?lambda=0.5` turn the dial,
and `?rung=table` takes a simpler rung. With `?explore=5%`, workers of the pool that the policy does not know, or hardly
knows, are asked first on some tasks, beside the usual course, for that share of what a run costs (`policy.exploring`).
Invariants: the same task and the same answers lead to the same plan; workers that the pool lacks are not asked; whoever
is explored changes neither whom the policy asks nor what it ships, but that a worker it would ask anyway is not asked
twice, and that the answer of one it explored is better than none. Deliberately absent: learning, and any cap: the run's
budget holds those.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shikisha.budget import Caps
from shikisha.conductor import Proposal, Situation
from shikisha.conductors.topologies import ALONE
from shikisha.errors import ConfigError, PlanError
from shikisha.plan import Plan, Step
from shikisha.policy.batch import NOBODY, NOT_ASKED, NOTHING, SHIP, Acts, Batch, Seen
from shikisha.policy.dial import Mix, Point, wish
from shikisha.policy.exploring import Exploring, Lot, drawn, share_of
from shikisha.policy.file import load
from shikisha.policy.policy import Policy
from shikisha.policy.types import coded
from shikisha.run import Performed, Result
from shikisha.worker import Card

_RUNG, _EXPLORE = "rung", "explore"
_AIMS = ("max_cost", "quality", "budget_per_1k", "lambda")
_ROUNDS = 3  # that a run must have left to be explored: one for that, one to ask whom the policy asks, one to ship
_SPARE = 10.0  # times what exploring should cost must be left under a cap


@dataclass(frozen=True, slots=True)
class PolicyConductor:
    """Acts by `policy`, whose file is of this `version`, with the settings of `mix`; `exploring` None: never is."""

    name: str
    policy: Policy
    version: str
    mix: Mix
    exploring: Exploring | None = None

    async def propose(self, situation: Situation) -> Proposal:
        """Propose a step for the worker to ask next, or the empty plan that keeps the answer to ship."""
        point = self.mix.of(situation.task.content_hash)
        lots = self._lots(situation)
        acts = self._act(self._seen(situation, point, lots), point)
        ask, ship = int(acts.ask[0]), int(acts.ship[0])
        if ask != SHIP and (situation.left.rounds > 0 or not situation.rounds):
            return self._asks(situation, point, self.policy.names[ask], lots)
        if not situation.rounds:
            raise PlanError("none of the workers that the policy knows is in the pool", self.name)
        if ship == NOBODY:
            return Proposal(Plan(), note=self._note(point, "nobody has an answer", situation), version=self.version)
        kept = _round_of(situation.rounds, situation.cards, self.policy.names[ship])
        note = self._note(point, f"ships the answer of {self.policy.names[ship]!r}", situation)
        return Proposal(Plan(), note=note, version=self.version, final=True, keeps=kept)

    def _asks(self, situation: Situation, point: Point, usual: str, lots: Sequence[Lot]) -> Proposal:
        """Propose to ask the usual one; or at first, by lot, somebody to explore. The chance is that of the plan."""
        worker, what, chance = usual, "asks", None
        if lots and not situation.rounds and _leaves_room(situation.left, lots):
            lot = drawn(situation.task.content_hash, lots)
            if lot is None or lot.worker == usual:
                chance = 1.0 - sum(each.chance for each in lots if each.worker != usual)
            else:
                worker, what, chance = lot.worker, "explores", lot.chance
        plan = Plan((Step(ALONE, _ordinal(situation.cards, worker)),))
        note = self._note(point, f"{what} {worker!r}", situation)
        return Proposal(plan, note=note, version=self.version, propensity=chance)

    def _seen(self, situation: Situation, point: Point, lots: Sequence[Lot]) -> Seen:
        """Return what the policy is to see: what was explored only once the policy itself would have asked for it."""
        seen = state(self.policy, situation)
        lot = drawn(situation.task.content_hash, lots)
        if lot is None or lot.worker not in self.policy.names or not situation.rounds:
            return seen
        column = self.policy.names.index(lot.worker)
        if situation.cards[situation.rounds[0].plan.steps[0].worker].name != lot.worker:
            return seen
        for count in range(len(situation.rounds) + 1):
            then = state(self.policy, replace(situation, rounds=situation.rounds[:count]))
            if int(self._act(_hiding(then, column), point).ask[0]) == column:
                return seen
        return _hiding(seen, column)

    def _lots(self, situation: Situation) -> tuple[Lot, ...]:
        if self.exploring is None:
            return ()
        return self.exploring.lots(self.policy, situation.cards, situation.task.prompt)

    def _act(self, seen: Seen, point: Point) -> Acts:
        return self.policy.act(seen, point.part, point.setting)

    def _note(self, point: Point, what: str, situation: Situation) -> str:
        part = self.policy.parts[point.part].kind
        return f"{part} at setting {point.setting}, {len(situation.rounds)} asked: {what}"


def policy_conductor(spec: str, name: str = "") -> PolicyConductor:
    """Return the conductor of `FILE` or `FILE?OPTION=VALUE&...`; ConfigError when there is none."""
    path, _, query = spec.partition("?")
    options = [part.partition("=")[::2] for part in query.split("&") if part]
    for option, _ in options:
        if option not in (*_AIMS, _RUNG, _EXPLORE):
            known = ", ".join((*_AIMS, _RUNG, _EXPLORE))
            raise ConfigError(f"policy:{spec}: unknown option {option!r}: known are {known}")
    policy, version = load(Path(path))
    besides = {option: value for option, value in options if option in (_RUNG, _EXPLORE)}
    rung = policy.rung(besides.get(_RUNG, ""))
    mix = policy.mix(wish([(option, value) for option, value in options if option not in besides]), rung.name)
    share = share_of(besides.get(_EXPLORE, "0"))
    exploring = Exploring(share, mix.cost * rung.dial.unit) if share else None
    return PolicyConductor(name or f"policy:{spec}", policy, version, mix, exploring)


def state(policy: Policy, situation: Situation) -> Seen:
    """Return what a policy sees of a run so far."""
    task = situation.task
    batch = Batch((task.prompt,), policy.types.of((task.domain,), (task.prompt,)))
    shape = (1, len(policy.workers))
    codes, lengths, tokens = np.full(shape, NOT_ASKED, np.int64), np.zeros(shape, np.int64), np.full(shape, np.nan)
    tells = None if policy.hearing is None else np.zeros(shape)
    given = list(_given(policy, situation.rounds, situation.cards))
    kind = int(batch.types[0])
    texts = [policy.types.canonical(result.text if result.ok else None, kind) for _, result in given]
    for (worker, result), code in zip(given, coded(texts, NOTHING), strict=True):
        codes[0, worker], lengths[0, worker] = code, len(result.text or "")
        if result.ok and result.usage is not None:
            tokens[0, worker] = result.usage.output_tokens
        if result.text and tells is not None and policy.hearing is not None:
            tells[0, worker] = policy.hearing.tell(worker, result.text, kind)
    there = policy.may_ask(tuple(card.name for card in situation.cards))
    return Seen(batch, codes, lengths, tokens, there, tells)


def _given(policy: Policy, rounds: Sequence[Performed], cards: tuple[Card, ...]) -> list[tuple[int, Result]]:
    """Return each result by the policy's place of the worker that was asked (whoever stood in for it)."""
    found = []
    for performed in rounds:
        for step, result in zip(performed.plan.steps, performed.results, strict=True):
            name = cards[step.worker].name
            if name in policy.names:
                found.append((policy.names.index(name), result))
    return found


def _hiding(seen: Seen, column: int) -> Seen:
    """Return the state as if this worker had not been asked."""
    codes = seen.codes.copy()
    codes[:, column] = NOT_ASKED
    return replace(seen, codes=codes)


def _leaves_room(left: Caps, lots: Sequence[Lot]) -> bool:
    """Whether the run's caps leave room to explore whichever of these the lot names, and to go on as usual."""
    dearest = max(lot.dollars for lot in lots)
    paid = left.dollars is None or left.dollars >= _SPARE * dearest
    return paid and min(left.rounds, left.steps) >= _ROUNDS


def _ordinal(cards: tuple[Card, ...], worker: str) -> int:
    return next(place for place, card in enumerate(cards) if card.name == worker)


def _round_of(rounds: Sequence[Performed], cards: tuple[Card, ...], worker: str) -> int | None:
    """Return the round in which this worker was asked."""
    for place, performed in enumerate(rounds):
        if performed.plan.steps and cards[performed.plan.steps[-1].worker].name == worker:
            return place
    return None
