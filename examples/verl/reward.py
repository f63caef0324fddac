"""verl's reward function: a plan is worth what came of it, performed by the real engine. Loaded by verl from this file.

    reward.custom_reward_function.path=examples/verl/reward.py   (see train.sh beside it)

The environment says the rest: SHIKISHA_TRAINING is the training file that the rows were written from (`dataset.py`),
SHIKISHA_REWARDS a folder in which workers' replies are kept, SHIKISHA_REWARD_WORKERS how many processes of verl's
(`reward.num_workers`) share the dollars and the calls at once, SHIKISHA_CONFIG the workers. What holds of rows, rewards
and dollars is said in `shikisha_train.plan_rewards`. Deliberately absent: second rounds (they take a sampler that asks
again).
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha_train.plan_rewards import SharedPlanRewards


async def compute_score(
    data_source: str,  # noqa: ARG001 - verl's names; one file has tasks of one set
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, object] | None = None,
    **_: object,
) -> dict[str, float]:
    """Return the reward of a completion (`score`) and what verl is to log; `ground_truth` is the task's hash."""
    if extra_info is None:
        raise ConfigError("extra_info: expected what dataset.py has written, found nothing")
    rewards = await shared().get()
    found = await rewards.score(solution_str, rewards.item({**extra_info, "content": ground_truth}))
    return found.figures()


@cache
def shared() -> SharedPlanRewards:
    """Return what this process scores with."""
    file = os.environ.get("SHIKISHA_TRAINING")
    if not file:
        raise ConfigError("SHIKISHA_TRAINING: expected the training file that dataset.py was given, found nothing")
    folder = Path(os.environ.get("SHIKISHA_REWARDS", "rewards"))
    return SharedPlanRewards(Path(file), folder, processes=int(os.environ.get("SHIKISHA_REWARD_WORKERS", "1")))
