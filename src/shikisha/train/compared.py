"""What a step's completions are worth beside each other: from what came of them to their advantages.

Invariant: our loop and TRL's reckon the same. Deliberately absent: what is then learned.
"""

from collections.abc import Sequence

import numpy as np

from shikisha.train.advantage import Floats, Ints, advantages, even, rarity
from shikisha.train.explore import found_better
from shikisha.train.progress import rewards_of
from shikisha.train.scoring import Scored
from shikisha.train.settings import TrainSettings


def compared(
    found: Sequence[Sequence[Scored]],
    second: Sequence[bool],
    settings: TrainSettings,
    step: int,
    tasks: Sequence[str] = (),
) -> tuple[Floats, float]:
    """Return the advantages [N] of groups' completions, and the share of groups from which nothing can be learned.

    `second` says which groups are second rounds, in which nobody scouts; `tasks` whose each is (none: all differ).
    """
    sizes, how = [len(group) for group in found], settings.comparison_at(step)
    numbers = np.repeat(np.arange(len(found)), sizes)
    shapes = [one.compared for group in found for one in group]
    rewards = np.concatenate([rewards_of(group) for group in found]) * np.repeat(
        _counted(second, settings, tasks), sizes
    )
    together = np.repeat(_together(second, settings, tasks), sizes)
    last = np.concatenate([np.arange(size) - size for size in sizes])
    scouts = (last >= -settings.scouts_at(step)) & ~np.repeat(np.array(second, bool), sizes)
    worth = rewards + settings.diversity_at(step) * rarity(numbers, shapes)
    others = np.where(scouts, np.nan, worth)
    wished = np.where(scouts, found_better(worth, numbers, scouts, how), advantages(others, together, how, shapes))
    return wished, even(np.where(scouts, np.nan, rewards), numbers)


def _counted(second: Sequence[bool], settings: TrainSettings, tasks: Sequence[str]) -> Floats:
    """Return [G] what a group's rewards count for: a first round's less, where a further one follows it."""
    gone_on = {task for task, later in zip(tasks, second, strict=False) if later}
    kept = 1 - settings.second.discount
    less = [kept if task in gone_on and not later else 1.0 for task, later in zip(tasks, second, strict=False)]
    return np.array(less or [1.0] * len(second))


def _together(second: Sequence[bool], settings: TrainSettings, tasks: Sequence[str]) -> Ints:
    """Return [G] a number for those whose rewards are normalized together: a group, or all rounds of its task."""
    if not (settings.second.across and tasks and any(second)):
        return np.arange(len(second))
    numbers = {task: place for place, task in enumerate(dict.fromkeys(tasks))}
    return np.array([numbers[task] for task in tasks], np.int64)


def by_itself(found: Sequence[Sequence[Scored]], settings: TrainSettings, step: int) -> list[Scored]:
    """Return what came of first rounds' groups by the policy itself: scouts are left out."""
    scouts = settings.scouts_at(step)
    return [one for group in found for one in group[: len(group) - scouts]]
