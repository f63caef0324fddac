"""Tasks, prompts and rewards of a training file, for trainers other than ours: verl, TRL's environments, verifiers.

    async with open_plan_rewards(Path("conductor.toml"), Path("rewards")) as rewards:
        row = rewards.rows(800)[0]                      # plain data: a trainer keeps it, in this process or another
        item = rewards.item(row)                        # the same task, workers and grader again
        found = await rewards.score(text, item)         # the engine performs the text; 0, 0.5 or 1 by default

Invariants: a row's task and pool are those that its prompt showed, or it is a ConfigError; a text reaches workers only
through `PlanScorer.score`, the seam of all training; no call begins once this process's share of the dollars is spent;
two processes never write the same replies. A run that a worker's fault spoiled is performed again, and in the end it
counts as a plan with a wrong answer (`spoilt` says so), because these trainers have no masks. Needs no torch.
Deliberately absent: the curriculum (trainers shuffle), sampling.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from shikisha.core.errors import ConfigError
from shikisha.core.plan import Plan
from shikisha.core.prompts import planner_instructions, planner_message
from shikisha.core.run import RoundResult
from shikisha.evals.taskset import TaskItem, content_key
from shikisha_train.environment import TrainingEnvironment
from shikisha_train.plan_reward import PlanScorer, plan_shape
from shikisha_train.settings import TrainSettings, load_settings
from shikisha_train.training_environment import open_environment

_TRIES = 3
_MAX_PROCESSES = 1_000  # that keep replies in one folder
_PLAN_SHARE = 0.5  # of the weight of the format: a plan and a wrong answer
_REMEMBERED = 4_096  # results of texts, so that what is scored for a next round is not performed again for the reward
_LOCK = "train.lock"
_KEEPING = plan_shape(Plan())


class ChatTurn(TypedDict):
    """One message of a prompt."""

    role: str
    content: str


class PlanRow(TypedDict):
    """A task as plain data: its place in the file's stream (`split` "train") or among the judged ones ("val").

    `content` is the hash of the task, `pool` the names of the workers that the prompt shows. Answers stay with graders.
    """

    prompt: list[ChatTurn]
    index: int
    split: str
    task: str
    content: str
    pool: list[str]


@dataclass(frozen=True, slots=True)
class PlanReward:
    """What a text is worth; `kept`: it kept the answer at hand; `spoilt`: a worker failed each time.

    `rounds` are all results so far, for a next prompt.
    """

    score: float
    right: bool
    valid: bool
    multi_step: bool
    kept: bool
    dollars: float
    spoilt: bool
    rounds: tuple[RoundResult, ...] = ()

    def figures(self) -> dict[str, float]:
        """Return it as numbers that a trainer can log."""
        return {
            "score": self.score,
            "acc": float(self.right),
            "valid": float(self.valid),
            "several_steps": float(self.multi_step),
            "dollars": self.dollars,
            "spoilt": float(self.spoilt),
        }


class PlanRewards:
    """The tasks and workers of a training file, open in this event loop (`open_plan_rewards`)."""

    def __init__(self, settings: TrainSettings, environment: TrainingEnvironment) -> None:
        self._environment, self._weights = environment, settings.reward.weights()
        dollars = None if environment.purse is not None else settings.spend.dollars
        self._scorer = PlanScorer(
            self._weights, environment.caps, settings.spend.at_once, dollars, environment.purse, environment.engine
        )
        self._known: dict[tuple[str, ...], asyncio.Future[PlanReward]] = {}

    @property
    def taskset(self) -> str:
        """The taskset's name."""
        return self._environment.origin.taskset

    def rows(self, count: int) -> list[PlanRow]:
        """Return so many tasks to learn from, as the stream has them."""
        return [_row(self._environment.stream(index), index, "train") for index in range(count)]

    def validation_rows(self) -> list[PlanRow]:
        """Return the tasks that the file judges by (`tasks.judged`)."""
        return [_row(item, index, "val") for index, item in enumerate(self._environment.validation_tasks)]

    def item(self, row: Mapping[str, object]) -> TaskItem:
        """Return a row's task with its pool and grader; ConfigError where it is not what the row was written from."""
        index, split, pool, content = (row.get(key) for key in ("index", "split", "pool", "content"))
        judged = self._environment.validation_tasks
        if (
            not isinstance(index, int)
            or split not in ("train", "val")
            or not isinstance(pool, Sequence)
            or not 0 <= index < (len(judged) if split == "val" else index + 1)
        ):
            raise ConfigError(
                "row: expected index (from 0), split (train, or val with one of the "
                f"{len(judged)} judged tasks) and pool as they were written, found {index!r}, {split!r} and {pool!r}"
            )
        found = self._environment.stream(index) if split == "train" else judged[index]
        names = [] if found.pool is None else list(found.pool.names)
        if content_key(found.task) != content or names != list(map(str, pool)):
            raise ConfigError(
                f"row {split} {index}: another task or pool than its prompt showed: the training file, the tasks or "
                "the workers have changed since the rows were written"
            )
        return found

    async def score(self, text: str, item: TaskItem, before: tuple[str, ...] = ()) -> PlanReward:
        """Return what the text is worth after the rounds `before`; equal texts of a task are performed once."""
        names = () if item.pool is None else item.pool.names
        key = (content_key(item.task), *names, "", *before, text)
        if key not in self._known:
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = asyncio.ensure_future(self._perform(text, item, before))
        known = self._known[key]
        try:
            found = await asyncio.shield(known)
        except BaseException:
            if known.done():
                self._known.pop(key, None)
            raise
        if found.spoilt:
            self._known.pop(key, None)
        return found

    async def _perform(self, text: str, item: TaskItem, before: tuple[str, ...]) -> PlanReward:
        found, tries = await self._scorer.score(text, item, before), 1
        while found.total is None and tries < _TRIES:
            found, tries = await self._scorer.score(text, item, before), tries + 1
        spoilt = found.total is None
        total = self._weights.format * _PLAN_SHARE if found.total is None else found.total
        kept = found.valid and found.shape == _KEEPING
        return PlanReward(total, found.right, found.valid, found.multi_step, kept, found.dollars, spoilt, found.rounds)


def _row(item: TaskItem, index: int, split: str) -> PlanRow:
    if item.pool is None:
        raise ConfigError(f"task {item.task.id}: no pool to plan for")
    return {
        "prompt": [
            {"role": "system", "content": planner_instructions()},
            {"role": "user", "content": planner_message(item.task, item.pool.cards)},
        ],
        "index": index,
        "split": split,
        "task": item.task.id,
        "content": content_key(item.task),
        "pool": list(item.pool.names),
    }


@asynccontextmanager
async def open_plan_rewards(
    file: Path, folder: Path | None = None, config: Path | None = None, processes: int = 1
) -> AsyncIterator[PlanRewards]:
    """Yield the tasks and rewards of a training file; workers are closed afterwards.

    Replies that were paid for are kept in a place of this process's own in `folder` (None: they are not kept), where a
    later start finds them. `config` is the configuration of the workers. Of `processes` each may spend an equal share
    of `spend.dollars`, and make its share of the calls at once.
    """
    settings = load_settings(file)
    if not settings.model.described:
        raise ConfigError(f"{file}: model.described: these prompts show workers' descriptions: expected true")
    if processes < 1:
        raise ConfigError(f"processes: expected 1 or more, found {processes}")
    with ExitStack() as places:
        place = Path(places.enter_context(TemporaryDirectory())) if folder is None else _claim_place(folder, places)
        async with open_environment(_share(settings, processes), place, config) as environment:
            yield PlanRewards(settings, environment)


class SharedPlanRewards:
    """Opens a file's rewards once in each event loop that asks, for trainers that only call back."""

    def __init__(self, file: Path, folder: Path | None = None, config: Path | None = None, processes: int = 1) -> None:
        self._arguments = (file, folder, config, processes)
        self._open: dict[asyncio.AbstractEventLoop, asyncio.Task[PlanRewards]] = {}
        self._stacks: dict[asyncio.AbstractEventLoop, AsyncExitStack] = {}

    async def get(self) -> PlanRewards:
        """Return this event loop's rewards."""
        loop = asyncio.get_running_loop()
        if loop not in self._open or _has_failed(self._open[loop]):
            self._open[loop] = loop.create_task(self._enter(loop))
        return await asyncio.shield(self._open[loop])

    async def _enter(self, loop: asyncio.AbstractEventLoop) -> PlanRewards:
        stack = AsyncExitStack()
        rewards = await stack.enter_async_context(open_plan_rewards(*self._arguments))
        self._stacks[loop] = stack
        return rewards

    async def aclose(self) -> None:
        """Close what this event loop opened."""
        loop = asyncio.get_running_loop()
        self._open.pop(loop, None)
        if (stack := self._stacks.pop(loop, None)) is not None:
            await stack.aclose()

    @property
    def loops(self) -> tuple[asyncio.AbstractEventLoop, ...]:
        """The event loops that have them open."""
        return tuple(self._stacks)


def _has_failed(task: "asyncio.Task[PlanRewards]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _share(settings: TrainSettings, count: int) -> TrainSettings:
    """Return the settings with what one of so many processes may spend, and ask at once."""
    spend = settings.spend
    dollars = None if spend.dollars is None else spend.dollars / count
    changed = spend.model_copy(update={"dollars": dollars, "at_once": max(1, spend.at_once // count)})
    return settings.model_copy(update={"spend": changed})


def _claim_place(folder: Path, stack: ExitStack) -> Path:
    """Return the first place in the folder that no other process holds, locked until the stack is left."""
    for number in range(_MAX_PROCESSES):
        place = folder / f"{number}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigError(f"{place}: nothing can be kept there: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        stack.callback(os.close, lock)
        return place
    raise ConfigError(f"{folder}: {_MAX_PROCESSES} processes hold a place there already")
