"""Conductors that act by policies fitted to outcomes: ask one more worker, or keep an answer, round by round.

`policy:FILE` takes the most accurate setting. `policy:FILE?quality=0.99` (of the best single worker's accuracy),
`?max_cost=20%` (of its mean cost), `?budget_per_1k=1.50` (dollars for a thousand tasks) or `?lambda=0.5` choose a
cost-quality trade-off, and `?rung=table` a simpler candidate. With `?explore=5%`, workers that the policy hardly knows
are asked first on some tasks, for that share of what a run costs. With `?balance=0.05`, a worker that is full is not
asked while another has room, and one that is nearly full costs up to .05 of accuracy more: capacity and load balance
(Switch Transformers, arXiv 2101.03961, has both for experts) in every rung. `policy:DIR` acts by a registry: the live
policy, its canary on a share of the tasks, and shadows that only say what they would do.

Invariants: the same task, answers and (with `balance`) loads lead to the same plan; workers that the pool lacks are not
asked; an explored worker changes neither whom the policy asks nor what it keeps, except that it is not asked twice and
that its answer is better than none. The registry is read at every decision, so a promotion holds from the next run on;
a run keeps the version that began it. A shadow calls nothing, and its errors harm nobody. A plan's propensity is the
probability with which chance would have led to it; it is absent where every policy would do the same. The run's budget
holds the caps.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import fsum
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError, PlanError, ShikishaError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import ANSWER, Plan, Step
from shikisha.core.run import RoundResult
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.worker import Card
from shikisha.routing.answer_evidence import read_candidates, stack_evidence
from shikisha.routing.exploration import (
    ENOUGH_OUTCOMES,
    ExplorationBudget,
    ExplorationChance,
    draw_worker,
    parse_enough,
    parse_share,
)
from shikisha.routing.policy_data import CANNOT_ACT, Policy, describe_action
from shikisha.routing.policy_file import load_policy
from shikisha.routing.policy_registry import PolicyRegistry, read_registry
from shikisha.routing.policy_registry import policy_path as policy_file_path
from shikisha.routing.state import (
    NO_ANSWER,
    NO_WORKER,
    NOT_ASKED,
    SHIP,
    Actions,
    DecisionState,
    TaskBatch,
    encode_answers,
)
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, parse_target

_RUNG, _EXPLORE, _UNTIL, _BALANCE = "rung", "explore", "explore_until", "balance"
_OTHER_OPTIONS = (_RUNG, _EXPLORE, _UNTIL, _BALANCE)
_TARGET_OPTIONS = ("max_cost", "quality", "budget_per_1k", "lambda")
# One round to explore, one for the policy's own worker, one to keep an answer.
_MIN_ROUNDS_TO_EXPLORE = 3
# Times the cost of exploring must be left under a cap.
_BUDGET_MARGIN = 10.0


@dataclass(frozen=True, slots=True)
class PolicyConductor:
    """Acts by `policy`, whose file is of this `version`, with the settings of `mix`; `exploring` may be None.

    `balance` is what a fully loaded worker's next call costs in accuracy; None: loads do not count, and calls wait.
    """

    name: str
    policy: Policy
    version: str
    mix: OperatingMix
    exploring: ExplorationBudget | None = None
    balance: float | None = None

    async def propose(self, situation: Situation) -> Proposal:
        """Propose a step for the worker to ask next, or the empty plan that keeps an answer."""
        if not self.policy.about.scope.admits(situation.task.scope):
            raise PlanError(
                "it was learned from runs that a task of this tenant and these labels may not see", self.name
            )
        point = self.mix.of(situation.task.content_hash)
        options = self._lots(situation)
        seen, full = self._balanced(self._seen(situation, point, options), situation)
        acts = self._act(seen, point)
        ask, ship = int(acts.ask[0]), int(acts.ship[0])
        if ask != SHIP and (situation.left.rounds > 0 or not situation.rounds):
            # Propose the policy's worker or, at random in the first round, one to explore.
            policy_worker = self.policy.names[ask]
            worker, what, chance = policy_worker, "asks", None
            if options and not situation.rounds and _has_budget_to_explore(situation.left, options):
                option = draw_worker(situation.task.content_hash, options)
                if option is None or option.worker == policy_worker:
                    chance = 1.0 - sum(each.chance for each in options if each.worker != policy_worker)
                else:
                    worker, what, chance = option.worker, "explores", option.chance
            plan = Plan((Step(self.policy.about.wording or ANSWER, _ordinal(situation.cards, worker)),))
            passed = f"; at capacity: {', '.join(full)}" if full else ""
            note = self._note(point, f"{what} {worker!r}{passed}", situation)
            return Proposal(plan, note=note, version=self.version, propensity=chance)
        if not situation.rounds:
            raise PlanError("none of the workers that the policy knows is in the pool", self.name)
        if ship == NO_WORKER:
            return Proposal(Plan(), note=self._note(point, "no worker has an answer", situation), version=self.version)
        kept = _round_asking(situation.rounds, situation.cards, self.policy.names[ship])
        note = self._note(point, f"ships the answer of {self.policy.names[ship]!r}", situation)
        return Proposal(Plan(), note=note, version=self.version, final=True, keeps=kept)

    def _seen(self, situation: Situation, point: OperatingPoint, options: Sequence[ExplorationChance]) -> DecisionState:
        """Return what the policy sees: an explored answer only once the policy itself would have asked that worker."""
        seen = policy_state(self.policy, situation)
        option = draw_worker(situation.task.content_hash, options)
        if option is None or option.worker not in self.policy.names or not situation.rounds:
            return seen
        column = self.policy.names.index(option.worker)
        if situation.cards[situation.rounds[0].plan.steps[0].worker].name != option.worker:
            return seen
        for count in range(len(situation.rounds) + 1):
            then = policy_state(self.policy, replace(situation, rounds=situation.rounds[:count]))
            if int(self._act(_without_worker(then, column), point).ask[0]) == column:
                return seen
        return _without_worker(seen, column)

    def _balanced(self, seen: DecisionState, situation: Situation) -> tuple[DecisionState, tuple[str, ...]]:
        """Return the state with loads in it, and who is full and passed over; all are asked where all are full."""
        if self.balance is None or not situation.loads:
            return seen, ()
        loads = np.array([situation.loads.get(name, 0.0) for name in self.policy.names])
        room = seen.may_ask & (loads < 1.0)
        has_room = bool((room & ~seen.asked[0]).any())
        full = tuple(self.policy.names[at] for at in np.flatnonzero(seen.may_ask & ~room)) if has_room else ()
        pressure = self.balance * np.minimum(loads, 1.0)
        return replace(seen, may_ask=room if has_room else seen.may_ask, pressure=pressure), full

    def _lots(self, situation: Situation) -> tuple[ExplorationChance, ...]:
        if self.exploring is None:
            return ()
        return self.exploring.chances(self.policy, situation.cards, situation.task.prompt)

    def _act(self, seen: DecisionState, point: OperatingPoint) -> Actions:
        return self.policy.act(seen, point.part, point.setting)

    def _note(self, point: OperatingPoint, what: str, situation: Situation) -> str:
        part = self.policy.parts[point.part].kind
        return f"{part} at setting {point.setting}, {len(situation.rounds)} asked: {what}"


def policy_conductor(spec: str, name: str = "") -> PolicyConductor:
    """Return the conductor of `FILE` or `FILE?OPTION=VALUE&...`; ConfigError when there is none."""
    path, _, query = spec.partition("?")
    options = [part.partition("=")[::2] for part in query.split("&") if part]
    for option, _ in options:
        if option not in (*_TARGET_OPTIONS, *_OTHER_OPTIONS):
            known = ", ".join((*_TARGET_OPTIONS, *_OTHER_OPTIONS))
            raise ConfigError(f"policy:{spec}: unknown option {option!r}: known are {known}")
    policy, version = load_policy(Path(path))
    besides = {option: value for option, value in options if option in _OTHER_OPTIONS}
    if _BALANCE in besides and _EXPLORE in besides:
        raise ConfigError(f"policy:{spec}: with {_BALANCE}, whom the load passed over would count as explored")
    rung = policy.rung(besides.get(_RUNG, ""))
    mix = policy.mix(parse_target([(option, value) for option, value in options if option not in besides]), rung.name)
    share = parse_share(besides.get(_EXPLORE, "0"))
    enough = parse_enough(besides.get(_UNTIL, str(ENOUGH_OUTCOMES)))
    exploring = ExplorationBudget(share, mix.cost * rung.dial.unit, enough) if share else None
    if _BALANCE in besides:
        text = besides[_BALANCE]
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise ConfigError(
                f"{_BALANCE}: expected what a full worker's next call costs in accuracy, from 0 to 1, not {text!r}"
            )
        balance = value
    else:
        balance = None
    return PolicyConductor(name or f"policy:{spec}", policy, version, mix, exploring, balance)


def policy_state(policy: Policy, situation: Situation) -> DecisionState:
    """Return what a policy sees of a run so far."""
    task = situation.task
    batch = TaskBatch((task.prompt,), policy.types.of((task.domain,), (task.prompt,)))
    shape = (1, len(policy.workers))
    codes, lengths, tokens = np.full(shape, NOT_ASKED, np.int64), np.zeros(shape, np.int64), np.full(shape, np.nan)
    # Each result with the policy's index of the worker that was asked, even where a fallback answered
    found = []
    for performed in situation.rounds:
        for step, result in zip(performed.plan.steps, performed.results, strict=True):
            name = situation.cards[step.worker].name
            if name in policy.names:
                found.append((policy.names.index(name), result))
    given = list(found)
    kind = int(batch.types[0])
    texts = [policy.types.canonical(result.text if result.ok else None, kind) for _, result in given]
    for (worker, result), code in zip(given, encode_answers(texts, NO_ANSWER), strict=True):
        codes[0, worker], lengths[0, worker] = code, len(result.text or "")
        if result.ok and result.usage is not None:
            tokens[0, worker] = result.usage.output_tokens
    evidence = None
    if policy.reads_answers:
        said = read_candidates(task.prompt, texts, [result.text if result.ok else None for _, result in given])
        evidence = stack_evidence([said], [worker for worker, _ in given], len(policy.workers))
    versions = policy.may_ask(tuple(card.name for card in situation.cards))
    return DecisionState(batch, codes, lengths, tokens, versions, evidence)


def _without_worker(seen: DecisionState, column: int) -> DecisionState:
    """Return the state as if this worker had not been asked."""
    codes = seen.codes.copy()
    codes[:, column] = NOT_ASKED
    return replace(seen, codes=codes)


def _has_budget_to_explore(left: Caps, options: Sequence[ExplorationChance]) -> bool:
    """Whether the run's caps leave room to explore any of these workers and then continue as usual."""
    highest = max(option.dollars for option in options)
    paid = left.dollars is None or left.dollars >= _BUDGET_MARGIN * highest
    return paid and min(left.rounds, left.steps) >= _MIN_ROUNDS_TO_EXPLORE


def _ordinal(cards: tuple[Card, ...], worker: str) -> int:
    return next(place for place, card in enumerate(cards) if card.name == worker)


def _round_asking(rounds: Sequence[RoundResult], cards: tuple[Card, ...], worker: str) -> int | None:
    """Return the round in which this worker was asked."""
    for place, performed in enumerate(rounds):
        if performed.plan.steps and cards[performed.plan.steps[-1].worker].name == worker:
            return place
    return None


# What a policy would do, or why it has nothing to offer.
PolicyDecision: TypeAlias = Proposal | str
# What a shadow may raise without harm.
_POLICY_ERRORS = (ShikishaError, ValueError, LookupError, ArithmeticError)
_CACHED_POLICIES = 16  # policies held in memory


@dataclass(frozen=True, slots=True)
class RegistryConductor:
    """Acts by the registry in `folder`; `query` holds the options of all its policies."""

    name: str
    folder: Path
    query: str = ""

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the action of the policy that acts for this task, and report what the others would do."""
        registry = read_registry(self.folder)
        first_version = situation.rounds[0].version if situation.rounds else ""
        versions = dict.fromkeys([*registry.shares, *registry.shadows])
        if registry.contains(first_version):
            versions.setdefault(first_version)
        decisions = {version: await self._decided(version, situation) for version in versions}
        acting = _acting_version(registry, first_version, decisions, situation)
        proposal = decisions[acting]
        if isinstance(proposal, str):
            raise PlanError(proposal, f"{self.folder}: {acting}")
        note = f"{_version_role(registry, acting, first_version)}: {proposal.note}"
        chance = await self._chance(registry, acting, decisions, situation)
        others = {version: decision for version, decision in decisions.items() if version != acting}
        beside = {version: _decision_text(decision, situation) for version, decision in others.items()}
        return replace(proposal, note=note, propensity=chance, beside=beside)

    async def _decided(self, version: str, situation: Situation) -> PolicyDecision:
        try:
            conductor = _cached_conductor(policy_file_path(self.folder, version), self.query)
            if conductor.version != version:
                return f"{CANNOT_ACT}: this is not what was put on the shelf: its version is {conductor.version}"
            return await conductor.propose(replace(situation, ask=None))
        except _POLICY_ERRORS as error:
            return f"{CANNOT_ACT}: {error}"

    async def _chance(
        self, registry: PolicyRegistry, acting: str, decisions: Mapping[str, PolicyDecision], situation: Situation
    ) -> float | None:
        """Return the share of policies that do this among those that may have acted so far."""
        own = decisions[acting]
        if acting not in registry.shares or len(registry.shares) == 1 or isinstance(own, str):
            return own.propensity if isinstance(own, Proposal) else None
        shares = {
            version: share
            for version, share in registry.shares.items()
            if version == acting or await self._may_have_begun(version, decisions[version], situation)
        }
        text = _decision_text(own, situation)
        same = {version: each for version, each in decisions.items() if _decision_text(each, situation) == text}
        drawn = fsum(share * _action_probability(same[version]) for version, share in shares.items() if version in same)
        chance = drawn / fsum(shares.values())
        return None if chance >= 1 else chance

    async def _may_have_begun(self, version: str, now: PolicyDecision, situation: Situation) -> bool:
        """Whether this policy, had it been drawn, would have led to the present state of the run."""
        if not situation.rounds:
            return isinstance(now, Proposal)
        left = situation.left
        for count, performed in enumerate(situation.rounds):
            later = len(situation.rounds) - count
            more = replace(left, rounds=left.rounds + later, steps=left.steps + later)
            then = replace(situation, rounds=situation.rounds[:count], left=more)
            decision = await self._decided(version, then)
            if isinstance(decision, str) or decision.plan != performed.plan:
                return False
        return True


def registry_conductor(spec: str, name: str = "") -> RegistryConductor:
    """Return the conductor of `DIR` or `DIR?OPTION=VALUE&...`; ConfigError where no policy there can act.

    Any policy that can act counts: it may have begun the run that is resumed.
    """
    path, _, query = spec.partition("?")
    folder = Path(path)
    registry, why = read_registry(folder), None
    for version in dict.fromkeys([registry.live, *(policy.version for policy in registry.policies)]):
        try:
            _cached_conductor(policy_file_path(folder, version), query)
        except ConfigError as error:
            why = why or error
        else:
            return RegistryConductor(name or f"policy:{spec}", folder, query)
    raise why or ConfigError(f"{folder}: this registry holds no policy")


@lru_cache(maxsize=_CACHED_POLICIES)
def _cached_conductor(path: Path, query: str) -> PolicyConductor:
    """Return the conductor of a policy file, which never changes."""
    return policy_conductor(f"{path}?{query}" if query else str(path))


def _action_probability(decision: PolicyDecision) -> float:
    """Return the probability with which a policy that explores would do this."""
    return 1.0 if isinstance(decision, str) or decision.propensity is None else decision.propensity


def _acting_version(
    registry: PolicyRegistry, first_version: str, decisions: Mapping[str, PolicyDecision], situation: Situation
) -> str:
    """Return the version that acts: the one that began the run, else the one drawn, else the live one."""
    if isinstance(decisions.get(first_version), Proposal):
        return first_version
    drawn = registry.assign(situation.task.content_hash)
    return drawn if isinstance(decisions[drawn], Proposal) else registry.live


def _version_role(registry: PolicyRegistry, acting: str, first_version: str) -> str:
    role = "live" if acting == registry.live else "canary" if acting in registry.shares else "began this run"
    if first_version in {"", acting}:
        return role
    return f"{role}, as {first_version}, which began this run, cannot act any more"


def _decision_text(decision: PolicyDecision, situation: Situation) -> str:
    if isinstance(decision, str):
        return decision
    plans = [performed.plan for performed in situation.rounds]
    return describe_action(decision.plan, decision.keeps, plans, [card.name for card in situation.cards])
