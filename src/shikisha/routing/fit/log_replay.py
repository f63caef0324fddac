"""Playing: what a part comes to on a panel, act by act, as the engine would perform it.

Invariants: a part sees what has been asked and nothing else; asking a missing row costs nothing and gives no answer;
the answer shipped is one that was given, and brings the score recorded for it. Deliberately absent: fitting.

Counting habits: every setting of a policy's dials played on a panel, and who was asked first, second and at all.

Invariants: a setting is played as the engine would play it; tasks that were never graded are in no rate, nor is what
was filled in for newcomers. Beyond MOST tasks those of the smallest content hashes stand for all, type by type as they
come. Deliberately absent: accuracy of the settings, which on tasks that they were fitted on would flatter them (the
evidence has it on others).
"""

from dataclasses import dataclass

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy, PolicyUsage
from shikisha.routing.state import NO_WORKER, SHIP, DecisionRule
from shikisha.routing.trade_off import OperatingMix, hash_to_unit


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """[T]: the score won, dollars paid, who was shipped (NOBODY: no answer); [T, J]: who was asked."""

    won: Floats
    paid: Floats
    shipped: Ints
    asked: Flags

    def __len__(self) -> int:
        return len(self.won)


def replay(part: DecisionRule, setting: int, panel: OutcomeMatrix, may_ask: Flags | None = None) -> ReplayResult:
    """Play every task of the panel to its end."""
    asked = np.zeros((len(panel), len(panel.workers)), bool)
    shipped = np.full(len(panel), NO_WORKER, np.int64)
    rows = np.arange(len(panel))
    while len(rows):
        acts = part.act(panel.state_after(asked, may_ask).at(rows), setting)
        ends = acts.ask == SHIP
        shipped[rows[ends]] = acts.ship[ends]
        rows, chosen = rows[~ends], acts.ask[~ends]
        asked[rows, chosen] = True
    return score_replay(panel, asked, shipped)


def score_replay(panel: OutcomeMatrix, asked: Flags, shipped: Ints) -> ReplayResult:
    """Return what it comes to that these were asked and these answers were shipped."""
    won = np.where(shipped == NO_WORKER, 0.0, panel.won[np.arange(len(panel)), shipped])
    return ReplayResult(won, (panel.paid * asked).sum(axis=1), shipped, asked)


def replay_mix(
    parts: tuple[DecisionRule, ...], mix: OperatingMix, panel: OutcomeMatrix, may_ask: Flags | None = None
) -> ReplayResult:
    """Play each task with the one of the mix's two settings that its content draws."""
    drawn = np.array([hash_to_unit(content) for content in panel.hashes]) < mix.share
    low, high = (replay(parts[point.part], point.setting, panel, may_ask) for point in (mix.low, mix.high))
    return ReplayResult(
        np.where(drawn, high.won, low.won),
        np.where(drawn, high.paid, low.paid),
        np.where(drawn, high.shipped, low.shipped),
        np.where(drawn[:, None], high.asked, low.asked),
    )


MAX_REPLAYED_TASKS = 3_000


def count_usage(panel: OutcomeMatrix, policy: Policy, filled: OutcomeMatrix | None = None) -> PolicyUsage:
    """Count a policy's habits on a panel of its workers and types, whom it asks as it was `filled` in (`joining`)."""
    points = [point for rung in policy.rungs for point in rung.dial.points]
    places = sorted({(point.part, point.setting) for point in points})
    some, kinds = _sample_tasks(panel if filled is None else filled), len(policy.types.names) + 1
    counted = [_count_asks(policy.parts[part], setting, some, kinds) for part, setting in places]
    first, second, asked = (np.array([each[order] for each in counted]) for order in range(3))
    tasks, played = (np.bincount(held.batch.types % kinds, minlength=kinds).astype(float) for held in (panel, some))
    return PolicyUsage(
        np.array(places, float).reshape(-1, 2), tasks, played, first, second, asked, *_count_agreement(panel, kinds)
    )


def _sample_tasks(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return at most MOST tasks, drawn by their content, in the panel's order."""
    if len(panel) <= MAX_REPLAYED_TASKS:
        return panel
    return panel.at(np.sort(np.argsort(np.array(panel.hashes), kind="stable")[:MAX_REPLAYED_TASKS]))


def _count_asks(part: DecisionRule, setting: int, panel: OutcomeMatrix, kinds: int) -> tuple[Floats, Floats, Floats]:
    """Play one setting: [D + 1, J] tasks in which a worker is asked first, second, and at all."""
    asked = np.zeros((len(panel), len(panel.workers)), bool)
    rows, orders = np.arange(len(panel)), [np.zeros_like(asked) for _ in range(2)]
    turn = 0
    while len(rows):
        ask = part.act(panel.state_after(asked).at(rows), setting).ask
        rows, ask = rows[ask != SHIP], ask[ask != SHIP]
        asked[rows, ask] = True
        if turn < len(orders):
            orders[turn][rows, ask] = True
        turn += 1
    first, second, at_all = (_sum_by_type(panel, flags, kinds) for flags in (*orders, asked))
    return first, second, at_all


def _count_agreement(panel: OutcomeMatrix, kinds: int) -> tuple[Floats, ...]:
    """Return who is right alone, and in pairs that agree or differ: counts and scores won, as `Habits` has them."""
    known = ~np.isnan(panel.scores)
    answers: Flags = (panel.codes >= 0) & known
    alone = [_sum_by_type(panel, held, kinds) for held in (known, panel.won)]
    shape = (kinds, len(panel.workers), len(panel.workers))
    agree, agreed, differ, differed = (np.zeros(shape) for _ in range(4))
    for other in range(len(panel.workers)):
        both = answers & answers[:, [other]]
        same = both & (panel.codes == panel.codes[:, [other]])
        apart = both & ~same
        for table, cells in ((agree, same), (differ, apart)):
            table[:, :, other] = _sum_by_type(panel, cells, kinds)
        for table, cells in ((agreed, same), (differed, apart)):
            table[:, :, other] = _sum_by_type(panel, panel.won * cells, kinds)
    return (*alone, agree, agreed, differ, differed)


def _sum_by_type(panel: OutcomeMatrix, cells: Flags | Floats, kinds: int) -> Floats:
    """[D + 1, J]: the sums of [T, J] over the tasks of each type."""
    found = np.zeros((kinds, cells.shape[1]))
    types: Ints = panel.batch.types % kinds
    np.add.at(found, types, cells)
    return found
