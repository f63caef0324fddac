"""Controls at equal dollars: mixes of settings chosen on some tasks, compared in pairs on others.

A control's settings differ in what they cost and win. `compare` mixes the two that spend, on the tasks for choosing,
what the conductor spends on the tasks reported, with the most right answers there; it chooses the strongest control on
the same tasks. Nothing is chosen on what is reported. A control whose cheapest setting costs more is played as it is,
and `spent` says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

RESAMPLES = 4_000
PAYS, COSTS, OPEN = "pays", "does not", "cannot be told"


@dataclass(frozen=True)
class Setting:
    """What came of one setting, task by task: right (0 to 1) and dollars."""

    right: Floats
    dollars: Floats

    def at(self, rows: Flags) -> "Setting":
        """Return some of its tasks."""
        return Setting(self.right[rows], self.dollars[rows])


@dataclass(frozen=True)
class Cell:
    """One level of one dimension: the conductor against the strongest control, and against the others."""

    dimension: str
    level: str
    tasks: int
    right: float
    dollars: float
    control: str
    control_right: float
    spent: float  # the control's dollars, of the conductor's
    gain: float
    low: float
    high: float
    conductor: str = ""
    others: Mapping[str, tuple[float, float, float]] = field(
        default_factory=dict
    )  # right, interval of the gain over it
    aside: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)  # what conducts too: no control

    @property
    def verdict(self) -> str:
        """Whether conducting pays here."""
        return PAYS if self.low > 0 else COSTS if self.high < 0 else OPEN

    @classmethod
    def of(cls, row: Mapping[str, object]) -> "Cell":
        """Return the cell of a record."""
        values = {name: value for name, value in row.items() if name != "verdict"}
        for name in ("others", "aside"):
            held = values[name]
            assert isinstance(held, dict)
            values[name] = {key: tuple(each) for key, each in held.items()}
        return cls(**values)  # type: ignore[arg-type]

    def as_json(self) -> dict[str, object]:
        """Return it as a record."""
        return {**asdict(self), "verdict": self.verdict}


def mixed(settings: Mapping[str, Setting], choice: Mapping[str, Setting], dollars: float) -> tuple[Setting, float]:
    """Return the mix that spends so much on the tasks for choosing, and how much is right on these."""
    names = list(settings)
    points = (
        OperatingPoint(0, at, float(choice[name].dollars.mean()), float(choice[name].right.mean()))
        for at, name in enumerate(names)
    )
    dial = TradeOff(upper_hull(points), 1.0, 1.0)
    mix = dial.for_cost(max(dollars, dial.points[0].cost))
    low, high = settings[names[mix.low.setting]], settings[names[mix.high.setting]]
    right, spent = (
        (1 - mix.share) * one + mix.share * other
        for one, other in ((low.right, high.right), (low.dollars, high.dollars))
    )
    return Setting(right, spent), mix.accuracy


def paired_interval(difference: Floats, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean difference over tasks."""
    rng, count = np.random.default_rng(seed), len(difference)
    means = np.concatenate([difference[rng.integers(0, count, (200, count))].mean(1) for _ in range(RESAMPLES // 200)])
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def compare(
    dimension: str, level: str, ours: Setting,
    held: Mapping[str, Mapping[str, Setting]], choice: Mapping[str, Mapping[str, Setting]],
    aside: Sequence[str] = (), conductor: str = "learned policy",
) -> Cell:  # fmt: skip
    """Return the cell: `held` and `choice` are by control and setting."""
    budget = float(ours.dollars.mean())
    mixes = {name: mixed(settings, choice[name], budget) for name, settings in held.items()}
    strongest = max((name for name in mixes if name not in aside), key=lambda name: mixes[name][1])
    best = mixes[strongest][0]
    told = {
        name: (float(mix.right.mean()), *paired_interval(ours.right - mix.right)) for name, (mix, _) in mixes.items()
    }
    return Cell(
        dimension, level, len(ours.right), float(ours.right.mean()), budget, strongest, float(best.right.mean()),
        float(best.dollars.mean()) / budget if budget else 1.0, float((ours.right - best.right).mean()),
        *paired_interval(ours.right - best.right), conductor,
        {name: each for name, each in told.items() if name not in aside and name != strongest},
        {name: told[name] for name in aside if name in told},
    )  # fmt: skip
