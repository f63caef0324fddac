"""From rewards to advantages: which completions are to become more likely, and by how much. Pure functions of arrays.

GRPO (arXiv 2402.03300): a completion is compared with the others of its group, (r - mean) / std. Two more ways to
compare keep a policy from collapsing to one shape of plan while it cannot yet do any of them well: `WITHIN` compares
only plans of the same shape, so that each shape learns to be done well; `BETWEEN` takes out what the batch as a whole
thinks of a shape, so that only *which shape for which question* is learned. In both, what is no plan at all is compared
with its whole group, or the format would be lost; and what the batch thinks of a length is taken out, or long plans
would be unlearned because they break the format more often. `hold` adds what keeps a shape from dying out meanwhile:
one that is hardly ever written is not learned. Invariants: a group without variance has advantage 0 throughout, but for
what `hold` adds; a masked completion (reward NaN) has advantage 0 and is no part of any mean. Deliberately absent:
critics, and models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_PLAN = "no plan"  # the shape of a text that is none
NEGLIGIBLE = 0.02  # an advantage below this is none: most of what centring a length leaves in each of its plans
_RARE_SHARE, _FRINGE_SHARE = 1 / 12, 0.01  # shares of a batch
_ZERO_STD = 1e-6  # a standard deviation below which a group is taken to be of one mind


class ComparisonScope(StrEnum):
    """With whom a completion is compared."""

    GROUP = "group"  # the others that were sampled for its prompt
    WITHIN = "within"  # those of its group whose plan has the same shape
    BETWEEN = "between"  # its group; then each shape's mean advantage over the batch is taken out


@dataclass(frozen=True, slots=True)
class AdvantageSettings:
    """How rewards become advantages.

    `scaled` divides by the group's standard deviation (GRPO), or by `least` where that is more; without it, only the
    mean is taken away (Dr. GRPO). `hold` is the weight of `scarcity`.
    """

    scope: ComparisonScope = ComparisonScope.GROUP
    scale_by_std: bool = True
    min_std: float = 0.0
    shape_bonus: float = 0.0


def compute_advantages(
    rewards: Floats, groups: Ints, how: AdvantageSettings = AdvantageSettings(), shapes: Sequence[str] = ()
) -> Floats:
    """Return [N] advantages of rewards [N]; `groups` [N] says which prompt each is for, `shapes` which shape it has:
    words of which the last is its length ("mixed 1-3-1 5"), or NO_PLAN and the length that was meant.
    """
    found = group_relative(rewards, groups, how)
    if how.scope is ComparisonScope.GROUP and not how.shape_bonus:
        return found
    planned = np.array([not shape.startswith(NO_PLAN) for shape in shapes])
    if how.scope is not ComparisonScope.GROUP:
        counted = ~np.isnan(rewards) & np.isin(groups, groups[found != 0])
        if how.scope is ComparisonScope.WITHIN:
            found = np.where(planned, group_relative(rewards, pair_ids(groups, shapes), how), found)
        else:
            _subtract_means(found, counted & planned, shapes)
        _subtract_means(found, counted, [shape.rpartition(" ")[2] for shape in shapes])
    if how.shape_bonus:
        found = found + how.shape_bonus * shape_balance_bonus(shapes, planned & ~np.isnan(rewards))
    return np.where(np.abs(found) < NEGLIGIBLE, 0.0, found)


def _subtract_means(found: Floats, counted: NDArray[np.bool_], names: Sequence[str]) -> None:
    """Take from the advantages that are counted the mean of all of the same name, in place."""
    places = pair_ids(np.zeros(len(found), np.int64), names)
    for place in np.unique(places[counted]):
        rows = counted & (places == place)
        found[rows] -= found[rows].mean()


def shape_balance_bonus(shapes: Sequence[str], counted: NDArray[np.bool_]) -> Floats:
    """Return [N]: by how many nats a completion's shape is rarer in the batch than a twelfth of it; else 0.

    Odd shapes, below a hundredth, are sought less and less.
    """
    found: Floats = np.zeros(len(shapes))
    if counted.any():
        places = pair_ids(np.zeros(len(shapes), np.int64), shapes)
        _, where, counts = np.unique(places[counted], return_inverse=True, return_counts=True)
        share = counts[where] / counted.sum()
        found[counted] = np.log(np.maximum(1.0, _RARE_SHARE / share)) * np.minimum(1.0, share / _FRINGE_SHARE)
    return found


def shape_rarity(groups: Ints, shapes: Sequence[str]) -> Floats:
    """Return [N]: the share of a completion's group that has another shape; 0 where a text is no plan."""
    places = pair_ids(groups, shapes)
    _, where, counts = np.unique(places, return_inverse=True, return_counts=True)
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    planned = np.array([not shape.startswith(NO_PLAN) for shape in shapes])
    return np.asarray(np.where(planned, 1 - counts[where] / sizes[group], 0.0), np.float64)


def zero_variance_share(rewards: Floats, groups: Ints) -> float:
    """Return the share of groups whose rewards do not vary, from which nothing can be learned."""
    names = np.unique(groups)
    flat = [not reward_std(rewards[(groups == name) & ~np.isnan(rewards)]) for name in names]
    return float(np.mean(flat)) if len(names) else 0.0


def reward_std(rewards: Floats) -> float:
    """Return the standard deviation; 0 where there is next to none."""
    spread = float(rewards.std()) if len(rewards) > 1 else 0.0
    return spread if spread >= _ZERO_STD else 0.0


def group_relative(rewards: Floats, groups: Ints, how: AdvantageSettings) -> Floats:
    found: Floats = np.zeros(len(rewards))
    for name in np.unique(groups):
        rows = np.flatnonzero((groups == name) & ~np.isnan(rewards))
        if spread := reward_std(rewards[rows]):
            found[rows] = (rewards[rows] - rewards[rows].mean()) / (
                max(spread, how.min_std) if how.scale_by_std else 1.0
            )
    return found


def pair_ids(groups: Ints, shapes: Sequence[str]) -> Ints:
    """[N]: a number for each pair of group and shape."""
    pairs = list(zip(groups.tolist(), shapes, strict=True))
    numbers = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
    return np.array([numbers[pair] for pair in pairs], np.int64)
