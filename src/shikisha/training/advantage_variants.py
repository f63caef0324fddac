"""What may be added to GRPO's advantage so that a policy does not collapse to one shape of plan. Pure functions.

A small policy first writes every shape of plan badly, then stops writing those that pay late. Three remedies, each off
by default. `WITHIN` compares plans only with plans of the same shape, so that each shape is learned. `BETWEEN` takes
out what the batch thinks of a shape, so that only *which shape for which question* is learned. A bonus goes to shapes
that are rare in the batch. Under the first two, a text that is no plan is compared with its whole group, or the format
would be lost. The mean of a length is taken out, or long plans would be unlearned: they break the format more often.
Exploration rollouts (`rollout.Exploration`) have an advantage of their own.

Invariant: a completion whose reward is NaN has advantage 0 and no part in any mean. Deliberately absent: the advantage
itself (`grpo`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shikisha.training.plan_reward import NO_PLAN, Floats, Ints
from shikisha.training.settings import AdvantageSettings, ComparisonScope

# Most of what centring a length leaves in each of its plans is below this.
NEGLIGIBLE = 0.02
_RARE_SHARE, _FRINGE_SHARE = 1 / 12, 0.01  # of a batch


def balance_shapes(
    advantages: Floats,
    same_shape: Floats | None,
    rewards: Floats,
    groups: Ints,
    shapes: Sequence[str],
    how: AdvantageSettings,
) -> Floats:
    """Return [N] advantages that do not favor a shape; `same_shape` are those among plans of one group and shape."""
    is_plan = np.array([not shape.startswith(NO_PLAN) for shape in shapes])
    if how.scope is not ComparisonScope.GROUP:
        counted = ~np.isnan(rewards) & np.isin(groups, groups[advantages != 0])
        if same_shape is not None:
            advantages = np.where(is_plan, same_shape, advantages)
        else:
            advantages = _centered(advantages, counted & is_plan, shapes)
        advantages = _centered(advantages, counted, [shape.rpartition(" ")[2] for shape in shapes])
    if how.shape_bonus:
        advantages = advantages + how.shape_bonus * shape_balance_bonus(shapes, is_plan & ~np.isnan(rewards))
    return np.where(np.abs(advantages) < NEGLIGIBLE, 0.0, advantages)


def shape_balance_bonus(shapes: Sequence[str], counted: NDArray[np.bool_]) -> Floats:
    """Return [N]: by how many nats a completion's shape is rarer in the batch than a twelfth of it, else 0.

    Below a hundredth of the batch the bonus fades: such shapes are mostly accidents.
    """
    bonus: Floats = np.zeros(len(shapes))
    if counted.any():
        ids = pair_ids(np.zeros(len(shapes), np.int64), shapes)
        _, inverse, counts = np.unique(ids[counted], return_inverse=True, return_counts=True)
        share = counts[inverse] / counted.sum()
        bonus[counted] = np.log(np.maximum(1.0, _RARE_SHARE / share)) * np.minimum(1.0, share / _FRINGE_SHARE)
    return bonus


def shape_rarity(groups: Ints, shapes: Sequence[str]) -> Floats:
    """Return [N]: the share of a completion's group that has another shape; 0 where the text is no plan."""
    _, inverse, counts = np.unique(pair_ids(groups, shapes), return_inverse=True, return_counts=True)
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    is_plan = np.array([not shape.startswith(NO_PLAN) for shape in shapes])
    return np.asarray(np.where(is_plan, 1 - counts[inverse] / sizes[group], 0.0), np.float64)


def exploration_advantages(
    rewards: Floats, groups: Ints, explores: NDArray[np.bool_], how: AdvantageSettings
) -> Floats:
    """Return [N]: by how many deviations of its group an exploration rollout beats the others' mean, else 0.

    What loses is nobody's fault: the policy would not have written it.
    """
    advantages: Floats = np.zeros(len(rewards))
    for name in np.unique(groups[explores]):
        group = (groups == name) & ~np.isnan(rewards)
        rows, others = np.flatnonzero(group & explores), rewards[group & ~explores]
        if len(rows) and len(others):
            scale = max(float(rewards[group].std()), how.min_std) if how.scale_by_std else 1.0
            gain = (rewards[rows] - others.mean()) / scale if scale else np.zeros(len(rows))
            advantages[rows] = np.where(gain >= NEGLIGIBLE, gain, 0.0)
    return advantages


def pair_ids(groups: Ints, shapes: Sequence[str]) -> Ints:
    """Return [N]: a number for each different pair of group and shape."""
    pairs = list(zip(groups.tolist(), shapes, strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    return np.array([numbers[pair] for pair in pairs], np.int64)


def _centered(advantages: Floats, counted: NDArray[np.bool_], names: Sequence[str]) -> Floats:
    """Return the advantages, less the mean of all that are counted and have the same name."""
    found = advantages.copy()
    ids = pair_ids(np.zeros(len(found), np.int64), names)
    for name in np.unique(ids[counted]):
        rows = counted & (ids == name)
        found[rows] -= found[rows].mean()
    return found
