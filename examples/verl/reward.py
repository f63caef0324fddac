"""verl's reward function: a plan is worth what came of it, performed by the real engine. Loaded by verl from this file.

    reward.custom_reward_function.path=examples/verl/reward.py   (see train.sh beside it)

The environment says the rest: SHIKISHA_TRAINING is the training file that the rows were written from (`dataset.py`),
SHIKISHA_REWARDS a folder in which workers' replies are kept, SHIKISHA_REWARD_WORKERS how many processes of verl's
(`reward.num_workers`) share the dollars and the calls at once, SHIKISHA_CONFIG the workers. Invariants: a row's task
and pool are those that its prompt showed, or it is an error; a text reaches workers only through `Scorer.score`, the
seam of all training here; once the dollars are spent it is an error, which ends the training. Deliberately absent:
second rounds (they take a sampler that asks again), phases (verl names no step), and masks: verl has none, so a run
that a worker spoils is performed anew, and in the end counts as a plan with a wrong answer (`spoilt` says so).
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypedDict, cast

from shikisha.config.training_environment import open_environment
from shikisha.core.errors import ConfigError
from shikisha.evals.taskset import TaskItem, content_key
from shikisha.training.checkpoint import claim_folder
from shikisha.training.environment import TrainingEnvironment
from shikisha.training.plan_reward import PlanScorer, ScoredPlan
from shikisha.training.settings import TrainSettings, load_settings

_TRIES = 3
_MOST = 1_000  # processes that keep replies in one folder
_PLAN = 0.5  # of the weight of the format: a plan and a wrong answer


class Row(TypedDict):
    """What a row says besides prompt and hash: the place of its task in the stream, or among the judged ones."""

    index: int
    split: str
    pool: Sequence[str]


class Scoring:
    """The tasks and workers of the training file, open in this process until it ends or `aclose`."""

    def __init__(self, settings: TrainSettings, environment: TrainingEnvironment, stack: AsyncExitStack) -> None:
        self._environment, self._weights, self._stack = environment, settings.reward.weights(), stack
        dollars = None if environment.purse is not None else settings.spend.dollars
        self._scorer = PlanScorer(
            self._weights, environment.caps, settings.spend.at_once, dollars, environment.purse, environment.engine
        )

    def item(self, row: Row, content: str) -> TaskItem:
        """Return the row's task with its pool; ConfigError where it is not what the row was written from."""
        index = int(row["index"])
        found = (
            self._environment.stream(index) if row["split"] == "train" else self._environment.validation_tasks[index]
        )
        names = [] if found.pool is None else list(found.pool.names)
        if content_key(found.task) != content or names != list(map(str, row["pool"])):
            raise ConfigError(
                f"row {row['split']} {index}: another task or pool than its prompt showed: the training file, the "
                "tasks or the workers have changed since dataset.py was run"
            )
        return found

    async def score(self, text: str, item: TaskItem) -> dict[str, float]:
        """Return what the text is worth, as verl wants it, with figures that verl logs."""
        found, tries = await self._scorer.score(text, item), 1
        while found.total is None and tries < _TRIES:
            found, tries = await self._scorer.score(text, item), tries + 1
        return self._told(found)

    async def aclose(self) -> None:
        """Let go of everything."""
        await self._stack.aclose()

    def _told(self, found: ScoredPlan) -> dict[str, float]:
        spoilt = found.total is None
        return {
            "score": self._weights.format * _PLAN if found.total is None else found.total,
            "acc": float(found.right),
            "valid": float(found.valid),
            "several_steps": float(found.multi_step),
            "dollars": found.dollars,
            "spoilt": float(spoilt),
        }


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
    scoring = await opened()
    return await scoring.score(solution_str, scoring.item(cast("Row", extra_info), ground_truth))


_open: dict[asyncio.AbstractEventLoop, "asyncio.Task[Scoring]"] = {}


async def opened() -> Scoring:
    """Return this event loop's tasks and workers, opened once."""
    loop = asyncio.get_running_loop()
    if loop not in _open:
        _open[loop] = loop.create_task(_scoring())
    return await asyncio.shield(_open[loop])


async def _scoring() -> Scoring:
    file = os.environ.get("SHIKISHA_TRAINING")
    if not file:
        raise ConfigError("SHIKISHA_TRAINING: expected the training file that dataset.py was given, found nothing")
    count = int(os.environ.get("SHIKISHA_REWARD_WORKERS", "1"))
    settings, stack = _share(load_settings(Path(file)), count), AsyncExitStack()
    folder = _claimed(Path(os.environ.get("SHIKISHA_REWARDS", "rewards")), stack)
    return Scoring(settings, await stack.enter_async_context(open_environment(settings, folder, None)), stack)


def _share(settings: TrainSettings, count: int) -> TrainSettings:
    """Return the settings with what one of so many processes may spend, and ask at once."""
    spend = settings.spend
    dollars = None if spend.dollars is None else spend.dollars / count
    changed = spend.model_copy(update={"dollars": dollars, "at_once": max(1, spend.at_once // count)})
    return settings.model_copy(update={"spend": changed})


def _claimed(folder: Path, stack: AsyncExitStack) -> Path:
    """Return the first place in the folder that no other process holds, so that a later start finds the replies."""
    for number in range(_MOST):
        place = folder / f"{number}"
        try:
            stack.enter_context(claim_folder(place))
        except ConfigError:
            continue
        return place
    raise ConfigError(f"{folder}: {_MOST} processes hold a place there already")
