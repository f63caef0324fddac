"""What a step's completions are worth beside each other: from what came of them to their advantages.

Invariant: our loop and TRL's reckon the same. Deliberately absent: what is then learned.
"""

from collections.abc import Sequence

import numpy as np

from shikisha.train.advantage import Floats, advantages, even, rarity
from shikisha.train.explore import found_better
from shikisha.train.progress import rewards_of
from shikisha.train.scoring import Scored
from shikisha.train.settings import TrainSettings


def compared(
    found: Sequence[Sequence[Scored]], second: Sequence[bool], settings: TrainSettings, step: int
) -> tuple[Floats, float]:
    """Return the advantages [N] of groups' completions, and the share of groups from which nothing can be learned.

    `second` says which groups are second rounds, in which nobody scouts.
    """
    sizes, how = [len(group) for group in found], settings.comparison_at(step)
    numbers = np.repeat(np.arange(len(found)), sizes)
    shapes = [one.compared for group in found for one in group]
    rewards = np.concatenate([rewards_of(group) for group in found])
    last = np.concatenate([np.arange(size) - size for size in sizes])
    scouts = (last >= -settings.scouts_at(step)) & ~np.repeat(np.array(second, bool), sizes)
    worth = rewards + settings.diversity_at(step) * rarity(numbers, shapes)
    others = np.where(scouts, np.nan, worth)
    wished = np.where(scouts, found_better(worth, numbers, scouts, how), advantages(others, numbers, how, shapes))
    return wished, even(np.where(scouts, np.nan, rewards), numbers)


def by_itself(found: Sequence[Sequence[Scored]], settings: TrainSettings, step: int) -> list[Scored]:
    """Return what came of first rounds' groups by the policy itself: scouts are left out."""
    scouts = settings.scouts_at(step)
    return [one for group in found for one in group[: len(group) - scouts]]
