"""Exploration: the probability of additionally asking a worker with few outcomes, so that more becomes known of it.

A worker is taken to be as good as it may plausibly be: the upper bound of its success given its outcomes, or its price
before there are any, but at most halfway from the best known worker to perfect. Workers that even so are no better than
cheaper ones are skipped; the others share a budget in proportion to their potential gain. Invariants: for every task
the expected cost of exploration is at most `share` of the mean cost of a run; no task is explored with a probability
above MAX_CHANCE; the same task, policy and pool lead to the same draw. `conductors` does the asking.
"""

from collections.abc import Sequence
from hashlib import sha256
from math import log, sqrt
from statistics import median

import numpy as np

from shikisha.core.budget import Usage
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.routing.policy_data import KnownWorker, Policy

# With this many outcomes a worker counts as known.
ENOUGH_OUTCOMES = 100
MAX_CHANCE = 0.25
# Kinds of workers that do not answer a whole task.
_PARTIAL_WORKERS = frozenset({"conductor", "human", "local", "mcp", "python", "vote"})
# The price of a worker counts as much as this many outcomes.
_PRIOR = 2.0
# The upper bound is this many standard deviations above the mean (one-sided 95 %).
_NORMAL_QUANTILE = 1.64
# Rough characters per token; only used to bound the cost of a prompt.
_CHARACTERS = 4
_FREE = 1e-12
_MAX_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ExplorationChance:
    """A worker with few outcomes, the probability of exploring it, and the expected dollars of asking it."""

    worker: str
    chance: float
    dollars: float


@dataclass(frozen=True, slots=True)
class ExplorationBudget:
    """Spend `share` of `run_cost`, the mean dollars of a run, on workers with fewer than `enough` outcomes.

    With more than ENOUGH_OUTCOMES, a worker that was unlucky at first is asked again while it may yet be better.
    """

    share: float
    run_cost: float
    enough: int = ENOUGH_OUTCOMES

    def chances(self, policy: Policy, cards: Sequence[Card], prompt: str) -> tuple[ExplorationChance, ...]:
        """Return the chance of each worker of the pool that may be explored on this prompt, by name."""
        input_tokens = max(len(prompt.encode()) // _CHARACTERS, typical_input_tokens(policy, cards))
        costs = {card.name: self._cost(policy, card, input_tokens) for card in cards}
        known_costs = {name: cost for name, cost in sorted(costs.items()) if cost is not None}
        compared = min(self.enough, ENOUGH_OUTCOMES)
        gains = {name: potential_gain(policy, name, cost, compared) for name, cost in known_costs.items()}
        total = sum(gains.values())
        result = []
        for name, cost in known_costs.items():
            ratio = self.run_cost / cost if cost > _FREE else 1.0  # a free worker gets `share` of the tasks
            if gains[name] > 0 and ratio > 0:
                result.append(ExplorationChance(name, gains[name] / total * min(MAX_CHANCE, self.share * ratio), cost))
        return tuple(result)

    def _cost(self, policy: Policy, card: Card, input_tokens: int) -> float | None:
        """Return the expected dollars of asking this worker with so many input tokens.

        None for a worker that has enough outcomes or may not be explored.
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
        return card.price.of(Usage(input_tokens, output))


def typical_input_tokens(policy: Policy, cards: Sequence[Card]) -> int:
    """Return the median input tokens of workers, derived from known costs and prices; 0 if unknown.

    That may exceed the prompt: instructions, examples and different tokenizers add to it.
    """
    prices = {card.name: card.price for card in cards}
    tokens = []
    for known in policy.workers:
        price = prices.get(known.name)
        if price is not None and price.input > 0 and known.tasks and known.dollars > 0:
            tokens.append(1e6 * (known.dollars - price.call) / price.input - known.tokens * price.output / price.input)
    return max(0, int(median(tokens))) if tokens else 0


def draw_worker(content_hash: str, chances: Sequence[ExplorationChance]) -> ExplorationChance | None:
    """Return the worker to explore on the task with this content, or None; deterministic."""
    index = int.from_bytes(sha256(f"explore\0{content_hash}".encode()).digest()[:6]) / 2**48
    for chance in chances:
        if index < chance.chance:
            return chance
        index -= chance.chance
    return None


def potential_gain(policy: Policy, name: str, cost: float, enough: int = ENOUGH_OUTCOMES) -> float:
    """Return how much more successful a worker may be than known workers at its cost; 0 if it cannot be better."""
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
    """Return the share that an option states, such as `0.05` or `5%`; ConfigError if it is invalid."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ConfigError(f"explore: expected a share of a run's mean cost, from 0 to 1 (or 100%), not {text!r}")
    return value


def parse_enough(text: str) -> int:
    """Return how many outcomes of a worker end exploring it, such as `300`; ConfigError if it is invalid."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text)):
        raise ConfigError(
            f"explore_until: expected a number of outcomes from 1 to {10**_MAX_DIGITS - 1:,}, not {text!r}"
        )
    return int(text)


def _expected_score(known: Sequence[KnownWorker], cost: float) -> float:
    """Return the mean success expected at this cost, by a line fitted to the known workers."""
    paid = [(log(worker.dollars), worker.score) for worker in known if worker.dollars > _FREE]
    mean = sum(worker.score for worker in known) / len(known)
    if len(paid) < 3 or cost <= _FREE:
        return mean
    places, scores = np.array(paid).T
    away = places - places.mean()
    slope = float(away @ (scores - scores.mean()) / (away @ away + 1.0))
    expected = float(scores.mean()) + slope * (log(cost) - float(places.mean()))
    return min(max(expected, float(scores.min())), float(scores.max()))
