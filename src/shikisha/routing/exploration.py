"""Exploring: how probably a worker that is hardly known is asked besides, so that something comes to be known of it.

A worker is thought as good as it may well be: the upper end of what its outcomes, and before there are any its price,
say of its success, but no nearer to perfect than half way from the best that is known. Those that even so are no better
than what costs no more are left alone; the others share a budget by how much better they may be. Which task is explored
is drawn by its content. Invariants: for every task, what exploring is expected to cost is at most `share` of what a run
costs in the mean (a worker that was never asked should write as much as the wordiest that is known); no task is
explored with more than MOST; the same task, policy and pool have the same lot. Deliberately absent: asking
(`conductors.policy`), and what an explored answer is worth besides its own success.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import log, sqrt
from statistics import median

import numpy as np

from shikisha.core.budget import Usage
from shikisha.core.errors import ConfigError
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.routing.policy_data import KnownWorker, Policy

ENOUGH_OUTCOMES = 100  # outcomes from which on a worker is known
MAX_CHANCE = 0.25
_PARTIAL_WORKERS = frozenset({"conductor", "human", "mcp", "python", "vote"})  # kinds that do not answer a whole task
_PRIOR = 2.0  # outcomes that a price is worth
_NORMAL_QUANTILE = 1.64  # standard deviations
_CHARACTERS = 4  # a token
_FREE = 1e-12


@dataclass(frozen=True, slots=True)
class ExplorationChance:
    """A worker that is hardly known, how probably it is explored, and the dollars that this should cost."""

    worker: str
    chance: float
    dollars: float


@dataclass(frozen=True, slots=True)
class ExplorationBudget:
    """Explore with `share` of `run_cost`, the dollars of a run in the mean, while a worker has fewer than `enough`."""

    share: float
    run_cost: float
    enough: int = ENOUGH_OUTCOMES

    def chances(self, policy: Policy, cards: Sequence[Card], prompt: str) -> tuple[ExplorationChance, ...]:
        """Return the lot of each worker of the pool that may be explored on this prompt, by name."""
        read = max(len(prompt.encode()) // _CHARACTERS, typical_input_tokens(policy, cards))
        costs = {card.name: self._cost(policy, card, read) for card in cards}
        told = {name: cost for name, cost in sorted(costs.items()) if cost is not None}
        hopes = {name: potential_gain(policy, name, cost, self.enough) for name, cost in told.items()}
        total = sum(hopes.values())
        found = []
        for name, cost in told.items():
            ratio = self.run_cost / cost if cost > _FREE else 1.0  # who costs nothing gets this share of the tasks
            if hopes[name] > 0 and ratio > 0:
                found.append(ExplorationChance(name, hopes[name] / total * min(MAX_CHANCE, self.share * ratio), cost))
        return tuple(found)

    def _cost(self, policy: Policy, card: Card, read: int) -> float | None:
        """Return what asking this worker should cost, who reads so many tokens.

        None for one that is known, or that is not to be explored.
        """
        if card.name in policy.names:
            known = policy.workers[policy.names.index(card.name)]
            if known.tasks >= self.enough or known.shunned:
                return None
            if known.tasks:
                return known.dollars
        if card.kind in _PARTIAL_WORKERS or card.approval is not ApprovalMode.NEVER or card.price is None:
            return None
        output = int(max(known.tokens for known in policy.workers)) or card.max_output_tokens
        return card.price.of(Usage(read, output))


def typical_input_tokens(policy: Policy, cards: Sequence[Card]) -> int:
    """Return how many tokens workers are shown in the middle, by what known ones cost and their prices; 0: unknown.

    That may be more than the prompt: instructions, examples, and how a model's tokens are counted come to it.
    """
    prices = {card.name: card.price for card in cards}
    found = []
    for known in policy.workers:
        price = prices.get(known.name)
        if price is not None and price.input > 0 and known.tasks and known.dollars > 0:
            found.append(1e6 * (known.dollars - price.call) / price.input - known.tokens * price.output / price.input)
    return max(0, int(median(found))) if found else 0


def draw_worker(content_hash: str, lots: Sequence[ExplorationChance]) -> ExplorationChance | None:
    """Return who is explored on the task of this content, or None; the same everywhere and always."""
    place = int.from_bytes(sha256(f"explore\0{content_hash}".encode()).digest()[:6]) / 2**48
    for lot in lots:
        if place < lot.chance:
            return lot
        place -= lot.chance
    return None


def potential_gain(policy: Policy, name: str, cost: float, enough: int = ENOUGH_OUTCOMES) -> float:
    """Return how much more success a worker may have than what is known to cost no more; 0 where it has no chance."""
    known = [worker for worker in policy.workers if worker.tasks >= enough and worker.name != name]
    if not known:
        return 1.0
    own = next((worker for worker in policy.workers if worker.name == name), None)
    tasks, score = (own.tasks, own.score) if own else (0, 0.0)
    mean = (tasks * score + _PRIOR * _expected_score(known, cost)) / (tasks + _PRIOR)
    spread = sqrt(mean * (1 - mean) / (tasks + _PRIOR + 1))
    best = min(mean + _NORMAL_QUANTILE * spread, (1 + max(worker.score for worker in known)) / 2)
    as_cheap = [worker.score for worker in known if worker.dollars <= cost * (1 + 1e-9)]
    return max(0.0, best - max(as_cheap, default=0.0))


def parse_share(text: str) -> float:
    """Return the share that an option states, as `0.05` or `5%`; ConfigError for what is none."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ConfigError(f"explore: expected a share of the mean cost of a run from 0 to 1 (or 100%), not {text!r}")
    return value


def _expected_score(known: Sequence[KnownWorker], cost: float) -> float:
    """Return the mean success that workers of this cost should have, by a line through those that are known."""
    paid = [(log(worker.dollars), worker.score) for worker in known if worker.dollars > _FREE]
    mean = sum(worker.score for worker in known) / len(known)
    if len(paid) < 3 or cost <= _FREE:
        return mean
    places, scores = np.array(paid).T
    away = places - places.mean()
    slope = float(away @ (scores - scores.mean()) / (away @ away + 1.0))
    told = float(scores.mean()) + slope * (log(cost) - float(places.mean()))
    return min(max(told, float(scores.min())), float(scores.max()))
