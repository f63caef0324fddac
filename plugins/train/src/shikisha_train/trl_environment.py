"""The engine as an environment of TRL's GRPOTrainer: the model calls a tool with its plan, and sees what came of it.

    environments = ConductorEnvironments(Path("conductor.toml"), Path("rewards"), rounds=2)
    GRPOTrainer(
        model="Qwen/Qwen2.5-0.5B-Instruct",
        args=GRPOConfig(...),
        train_dataset=Dataset.from_list(environments.rows(800)),
        environment_factory=environments,
    )

The model must be one whose chat template has tool calls. A plan is the text that any conductor writes, so a model that
was trained here is one that `shikisha train` and `lm:WORKER` prompt, but for the tool. The first text that is no plan
ends the episode: with 0, or with the answer of the round before. After `rounds` plans nothing more is performed.
Invariants: those of `plan_rewards`; an error that must end training (money spent, changed rows) is raised where TRL
asks for the reward, because TRL hands errors of tools to the model. Deliberately absent: the engine's own conductor
loop (`training.trl` has it), masks.
"""

import asyncio
import atexit
from collections.abc import Mapping
from pathlib import Path

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.prompts import next_round_message
from shikisha.evals.taskset import TaskItem
from shikisha_train.plan_rewards import PlanReward, PlanRow, SharedPlanRewards, open_plan_rewards

_TOOL_SENTENCE = (
    "\n\nCall the tool perform_plan with the three lists as one text. It performs the plan and returns what came of it."
)
_LAST_ROUND = "The plan was performed, and its last answer is given. No round is left: say done."
_KEPT = "The answer at hand is kept: say done."
_NO_PLAN = "That is not a plan that can be performed. The task is over: say done."
_CLOSE_SECONDS = 10.0


class ConductorEnvironment:
    """One episode: `reset` with a row, then the tool `perform_plan`, then `get_reward`."""

    def __init__(self, shared: SharedPlanRewards, rounds: int) -> None:
        self._shared, self._rounds = shared, rounds
        self.reset()

    def reset(self, **row: object) -> None:
        """Begin with a row of `ConductorEnvironments.rows`; the prompt is in the row."""
        self._row: Mapping[str, object] = row
        self._texts: tuple[str, ...] = ()
        self._found: PlanReward | None = None
        self._over = False
        self._failure: ShikishaError | None = None

    async def perform_plan(self, plan: str) -> str:
        """
        Perform a plan and return what came of its steps.

        Args:
            plan: The three lists model_id, subtasks and access_list, one below the other.

        Returns:
            The answers of the steps, and whether another plan may follow.
        """
        if self._over:
            return _LAST_ROUND
        try:
            rewards = await self._shared.get()
            item = rewards.item(self._row)
            self._found = await rewards.score(plan, item, self._texts)
        except ShikishaError as error:
            self._failure, self._over = error, True
            raise
        self._texts = (*self._texts, plan)
        self._over = not self._found.valid or self._found.kept or len(self._texts) >= self._rounds
        if not self._found.valid:
            return _NO_PLAN
        return _KEPT if self._found.kept else self._told(item)

    async def get_reward(self) -> float:
        """Return what the last plan is worth; 0 where the model performed none."""
        if self._failure is not None:
            raise self._failure
        return 0.0 if self._found is None else self._found.score

    def _told(self, item: TaskItem) -> str:
        if self._over or self._found is None or item.pool is None:
            return _LAST_ROUND
        return next_round_message(item.pool.cards, self._found.rounds)


class ConductorEnvironments:
    """Makes the environments of a training file, which share workers, money and replies: TRL's `environment_factory`.

    `folder`, `config` and `processes` are those of `plan_rewards.open_plan_rewards`; `rounds` is how many plans an
    episode may perform.
    """

    def __init__(
        self, file: Path, folder: Path | None = None, config: Path | None = None, *, rounds: int = 1, processes: int = 1
    ) -> None:
        if rounds < 1:
            raise ConfigError(f"rounds: expected 1 or more, found {rounds}")
        self._file, self._config, self._rounds = file, config, rounds
        self._shared = SharedPlanRewards(file, folder, config, processes)
        atexit.register(self.close)

    def __call__(self) -> ConductorEnvironment:
        """Return a new environment."""
        return ConductorEnvironment(self._shared, self._rounds)

    def rows(self, count: int) -> list[PlanRow]:
        """Return so many tasks as rows for `datasets.Dataset.from_list`; the prompt names the tool."""
        found = asyncio.run(self._rows(count))
        for row in found:
            row["prompt"][0]["content"] += _TOOL_SENTENCE
        return found

    async def _rows(self, count: int) -> list[PlanRow]:
        async with open_plan_rewards(self._file, None, self._config) as rewards:  # no worker is asked here
            return rewards.rows(count)

    def close(self) -> None:
        """Close the workers; TRL's event loop still runs, in its own thread."""
        atexit.unregister(self.close)
        for loop in self._shared.loops:
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(self._shared.aclose(), loop).result(_CLOSE_SECONDS)
