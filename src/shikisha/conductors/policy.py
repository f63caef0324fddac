"""A conductor that decides by a learned policy: ask one more worker, or ship an answer, round by round.

`policy:FILE` takes the most accurate setting; `policy:FILE?quality=0.99` (of the best single worker's accuracy),
`?max_cost=20%` (of its mean cost), `?budget_per_1k=1.50` (dollars for a thousand tasks) or `?lambda=0.5` turn the dial,
and `?rung=table` takes a simpler rung. Invariants: the same task and the same answers lead to the same plan; workers
that the pool lacks are not asked, workers that the policy does not know are left alone. Deliberately absent: chance
(`exploring`), learning, and any cap: the run's budget holds those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shikisha.conductor import Proposal, Situation
from shikisha.conductors.topologies import ALONE
from shikisha.errors import ConfigError, PlanError
from shikisha.plan import Plan, Step
from shikisha.policy.batch import NOBODY, NOT_ASKED, NOTHING, SHIP, Batch, Seen
from shikisha.policy.dial import Mix, Point, wish
from shikisha.policy.file import load
from shikisha.policy.policy import Policy
from shikisha.policy.types import coded
from shikisha.run import Performed, Result
from shikisha.worker import Card

_RUNG = "rung"
_AIMS = ("max_cost", "quality", "budget_per_1k", "lambda")


@dataclass(frozen=True, slots=True)
class PolicyConductor:
    """Acts by `policy`, whose file is of this `version`, with the settings of `mix`."""

    name: str
    policy: Policy
    version: str
    mix: Mix

    async def propose(self, situation: Situation) -> Proposal:
        """Propose a step for the worker to ask next, or the empty plan that keeps the answer to ship."""
        point = self.mix.of(situation.task.content_hash)
        seen = state(self.policy, situation)
        acts = self.policy.act(seen, point.part, point.setting)
        ask, ship = int(acts.ask[0]), int(acts.ship[0])
        if ask != SHIP and (situation.left.rounds > 0 or not situation.rounds):
            worker = self.policy.names[ask]
            plan = Plan((Step(ALONE, _ordinal(situation.cards, worker)),))
            return Proposal(plan, note=self._note(point, f"asks {worker!r}", situation), version=self.version)
        if not situation.rounds:
            raise PlanError("none of the workers that the policy knows is in the pool", self.name)
        if ship == NOBODY:
            return Proposal(Plan(), note=self._note(point, "nobody has an answer", situation), version=self.version)
        kept = _round_of(situation.rounds, situation.cards, self.policy.names[ship])
        note = self._note(point, f"ships the answer of {self.policy.names[ship]!r}", situation)
        return Proposal(Plan(), note=note, version=self.version, final=True, keeps=kept)

    def _note(self, point: Point, what: str, situation: Situation) -> str:
        part = self.policy.parts[point.part].kind
        return f"{part} at setting {point.setting}, {len(situation.rounds)} asked: {what}"


def policy_conductor(spec: str, name: str = "") -> PolicyConductor:
    """Return the conductor of `FILE` or `FILE?OPTION=VALUE&...`; ConfigError when there is none."""
    path, _, query = spec.partition("?")
    options = [part.partition("=")[::2] for part in query.split("&") if part]
    for option, _ in options:
        if option not in (*_AIMS, _RUNG):
            raise ConfigError(f"policy:{spec}: unknown option {option!r}: known are {', '.join((*_AIMS, _RUNG))}")
    policy, version = load(Path(path))
    rung = next((value for option, value in options if option == _RUNG), "")
    mix = policy.mix(wish([(option, value) for option, value in options if option != _RUNG]), rung)
    return PolicyConductor(name or f"policy:{spec}", policy, version, mix)


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


def _ordinal(cards: tuple[Card, ...], worker: str) -> int:
    return next(place for place, card in enumerate(cards) if card.name == worker)


def _round_of(rounds: Sequence[Performed], cards: tuple[Card, ...], worker: str) -> int | None:
    """Return the round in which this worker was asked."""
    for place, performed in enumerate(rounds):
        if performed.plan.steps and cards[performed.plan.steps[-1].worker].name == worker:
            return place
    return None
