"""Counting habits: every setting of a policy's dials played on a panel, and who was asked first, second and at all.

Invariants: a setting is played as the engine would play it; tasks that were never graded are in no rate, nor is what
was filled in for newcomers. Beyond MOST tasks those of the smallest content hashes stand for all, type by type as they
come. Deliberately absent: accuracy of the settings, which on tasks that they were fitted on would flatter them (the
evidence has it on others).
"""

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import SHIP
from shikisha.policy.habits import Habits
from shikisha.policy.parts import Part
from shikisha.policy.policy import Policy

MOST = 3_000


def habits(panel: Panel, policy: Policy, filled: Panel | None = None) -> Habits:
    """Count a policy's habits on a panel of its workers and types, whom it asks as it was `filled` in (`joining`)."""
    points = [point for rung in policy.rungs for point in rung.dial.points]
    places = sorted({(point.part, point.setting) for point in points})
    some, kinds = _sample(panel if filled is None else filled), len(policy.types.names) + 1
    counted = [_asks(policy.parts[part], setting, some, kinds) for part, setting in places]
    first, second, asked = (np.array([each[order] for each in counted]) for order in range(3))
    tasks, played = (np.bincount(held.batch.types % kinds, minlength=kinds).astype(float) for held in (panel, some))
    return Habits(np.array(places, float).reshape(-1, 2), tasks, played, first, second, asked, *_said(panel, kinds))


def _sample(panel: Panel) -> Panel:
    """Return at most MOST tasks, drawn by their content, in the panel's order."""
    if len(panel) <= MOST:
        return panel
    return panel.at(np.sort(np.argsort(np.array(panel.hashes), kind="stable")[:MOST]))


def _asks(part: Part, setting: int, panel: Panel, kinds: int) -> tuple[Floats, Floats, Floats]:
    """Play one setting: [D + 1, J] tasks in which a worker is asked first, second, and at all."""
    asked = np.zeros((len(panel), len(panel.workers)), bool)
    rows, orders = np.arange(len(panel)), [np.zeros_like(asked) for _ in range(2)]
    turn = 0
    while len(rows):
        ask = part.act(panel.seen(asked).at(rows), setting).ask
        rows, ask = rows[ask != SHIP], ask[ask != SHIP]
        asked[rows, ask] = True
        if turn < len(orders):
            orders[turn][rows, ask] = True
        turn += 1
    first, second, at_all = (_by_type(panel, flags, kinds) for flags in (*orders, asked))
    return first, second, at_all


def _said(panel: Panel, kinds: int) -> tuple[Floats, ...]:
    """Return who is right alone, and in pairs that agree or differ: counts and scores won, as `Habits` has them."""
    known = ~np.isnan(panel.scores)
    answers: Flags = (panel.codes >= 0) & known
    alone = [_by_type(panel, held, kinds) for held in (known, panel.won)]
    shape = (kinds, len(panel.workers), len(panel.workers))
    agree, agreed, differ, differed = (np.zeros(shape) for _ in range(4))
    for other in range(len(panel.workers)):
        both = answers & answers[:, [other]]
        same = both & (panel.codes == panel.codes[:, [other]])
        apart = both & ~same
        for table, cells in ((agree, same), (differ, apart)):
            table[:, :, other] = _by_type(panel, cells, kinds)
        for table, cells in ((agreed, same), (differed, apart)):
            table[:, :, other] = _by_type(panel, panel.won * cells, kinds)
    return (*alone, agree, agreed, differ, differed)


def _by_type(panel: Panel, cells: Flags | Floats, kinds: int) -> Floats:
    """[D + 1, J]: the sums of [T, J] over the tasks of each type."""
    found = np.zeros((kinds, cells.shape[1]))
    types: Ints = panel.batch.types % kinds
    np.add.at(found, types, cells)
    return found
