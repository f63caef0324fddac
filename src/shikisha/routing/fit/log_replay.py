"""Replaying a log: what a decision rule achieves on an outcome matrix, action by action, as the engine would run it.

Invariants: a rule sees the answers asked for and nothing else; asking for a missing outcome costs nothing and gives no
answer; the shipped answer earns the score recorded for it. Usage statistics leave out tasks without a grade; beyond
MAX_REPLAYED_TASKS, a sample drawn by content hash stands for all. They hold no accuracy of settings, which would be too
high on tasks that they were fitted on.
"""

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.cost_frontier import Frontier, compute_frontier
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy, PolicyUsage
from shikisha.routing.state import NO_WORKER, SHIP, DecisionRule
from shikisha.routing.trade_off import TradeOff

MAX_REPLAYED_TASKS = 1_000


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """[T]: the score won, dollars paid, whose answer was shipped (or NO_WORKER); [T, J]: who was asked."""

    won: Floats
    paid: Floats
    shipped: Ints
    asked: Flags

    def __len__(self) -> int:
        return len(self.won)


def replay(rule: DecisionRule, setting: int, matrix: OutcomeMatrix, may_ask: Flags | None = None) -> ReplayResult:
    """Run a rule on every task of the matrix to its end."""
    asked = np.zeros((len(matrix), len(matrix.workers)), bool)
    shipped = np.full(len(matrix), NO_WORKER, np.int64)
    rows = np.arange(len(matrix))
    while len(rows):
        acts = rule.act(matrix.state_after(asked, may_ask).at(rows), setting)
        finished = acts.ask == SHIP
        shipped[rows[finished]] = acts.ship[finished]
        rows, next_workers = rows[~finished], acts.ask[~finished]
        asked[rows, next_workers] = True
    won = np.where(shipped == NO_WORKER, 0.0, matrix.won[np.arange(len(matrix)), shipped])
    return ReplayResult(won, (matrix.paid * asked).sum(axis=1), shipped, asked)


def replay_frontier(
    parts: tuple[DecisionRule, ...], trade_off: TradeOff, matrix: OutcomeMatrix, budgets: Floats
) -> Frontier:
    """Return the frontier of a trade-off over these rules, replayed on the tasks of a matrix."""
    places = [(point.part, point.setting) for point in trade_off.points]
    runs = [replay(parts[part], setting, matrix) for part, setting in places]
    won, cost = (np.stack([getattr(run, name) for run in runs], axis=1) for name in ("won", "paid"))
    return compute_frontier(trade_off, won, cost / (trade_off.unit or 1.0), places, budgets)


def count_usage(matrix: OutcomeMatrix, policy: Policy) -> PolicyUsage:
    """Count a policy's usage of workers on a matrix of its workers and types."""
    places = sorted({(point.part, point.setting) for rung in policy.rungs for point in rung.dial.points})
    some, kinds = _sample_tasks(matrix), len(policy.types.names) + 1
    asks = [_count_asks(policy.parts[part], setting, some, kinds) for part, setting in places]
    first, second, asked = (np.array([each[order] for each in asks]) for order in range(3))
    tasks, played = (
        np.bincount(source.batch.types % kinds, minlength=kinds).astype(float) for source in (matrix, some)
    )
    return PolicyUsage(np.array(places, float).reshape(-1, 2), tasks, played, first, second, asked)


def _sample_tasks(matrix: OutcomeMatrix) -> OutcomeMatrix:
    """Return at most MAX_REPLAYED_TASKS tasks, drawn by their content, in the matrix's order."""
    if len(matrix) <= MAX_REPLAYED_TASKS:
        return matrix
    return matrix.at(np.sort(np.argsort(np.array(matrix.hashes), kind="stable")[:MAX_REPLAYED_TASKS]))


def _count_asks(rule: DecisionRule, setting: int, matrix: OutcomeMatrix, kinds: int) -> tuple[Floats, Floats, Floats]:
    """Replay one setting: [D + 1, J] tasks in which a worker is asked first, second, and at all."""
    asked = np.zeros((len(matrix), len(matrix.workers)), bool)
    rows, orders = np.arange(len(matrix)), [np.zeros_like(asked) for _ in range(2)]
    turn = 0
    while len(rows):
        ask = rule.act(matrix.state_after(asked).at(rows), setting).ask
        rows, ask = rows[ask != SHIP], ask[ask != SHIP]
        asked[rows, ask] = True
        if turn < len(orders):
            orders[turn][rows, ask] = True
        turn += 1
    first, second, at_all = (_sum_by_type(matrix, flags, kinds) for flags in (*orders, asked))
    return first, second, at_all


def _sum_by_type(matrix: OutcomeMatrix, cells: Flags | Floats, kinds: int) -> Floats:
    """Return [D + 1, J]: the sums of [T, J] over the tasks of each type."""
    sums = np.zeros((kinds, cells.shape[1]))
    types: Ints = matrix.batch.types % kinds
    np.add.at(sums, types, cells)
    return sums
