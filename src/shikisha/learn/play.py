"""Playing: what a part comes to on a panel, act by act, as the engine would perform it.

Invariants: a part sees what has been asked and nothing else; asking a missing row costs nothing and gives no answer;
the answer shipped is one that was given, and brings the score recorded for it. Deliberately absent: fitting.
"""

from dataclasses import dataclass

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOBODY, SHIP
from shikisha.policy.dial import Mix, lot
from shikisha.policy.parts import Part


@dataclass(frozen=True, slots=True)
class Played:
    """[T]: the score won, dollars paid, who was shipped (NOBODY: no answer); [T, J]: who was asked."""

    won: Floats
    paid: Floats
    shipped: Ints
    asked: Flags

    def __len__(self) -> int:
        return len(self.won)


def play(part: Part, setting: int, panel: Panel, may_ask: Flags | None = None) -> Played:
    """Play every task of the panel to its end."""
    asked = np.zeros((len(panel), len(panel.workers)), bool)
    shipped = np.full(len(panel), NOBODY, np.int64)
    rows = np.arange(len(panel))
    while len(rows):
        acts = part.act(panel.seen(asked, may_ask).at(rows), setting)
        ends = acts.ask == SHIP
        shipped[rows[ends]] = acts.ship[ends]
        rows, chosen = rows[~ends], acts.ask[~ends]
        asked[rows, chosen] = True
    return outcome_of(panel, asked, shipped)


def outcome_of(panel: Panel, asked: Flags, shipped: Ints) -> Played:
    """Return what it comes to that these were asked and these answers were shipped."""
    won = np.where(shipped == NOBODY, 0.0, panel.won[np.arange(len(panel)), shipped])
    return Played(won, (panel.paid * asked).sum(axis=1), shipped, asked)


def mixed(parts: tuple[Part, ...], mix: Mix, panel: Panel, may_ask: Flags | None = None) -> Played:
    """Play each task with the one of the mix's two settings that its content draws."""
    drawn = np.array([lot(content) for content in panel.hashes]) < mix.share
    low, high = (play(parts[point.part], point.setting, panel, may_ask) for point in (mix.low, mix.high))
    return Played(
        np.where(drawn, high.won, low.won),
        np.where(drawn, high.paid, low.paid),
        np.where(drawn, high.shipped, low.shipped),
        np.where(drawn[:, None], high.asked, low.asked),
    )
