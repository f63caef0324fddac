"""What a training run learns from: tasks with their pools and graders, what may be spent, and the curriculum.

Invariants: `stream(i)` is the same item for the same i, in this process and the next; the curriculum's draws are a
function of the stream, the seed and its updates. So a resumed run learns from what the unbroken one would have.
Deliberately absent: where tasks and workers come from (`config`), difficulty by anything but a task's label.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError
from shikisha.engine.engine import Engine
from shikisha.evals.response_cache import EvaluationBudget
from shikisha.evals.taskset import TaskItem

# Items that are checked before a run begins.
_PREVIEW = 32
# Items looked at for each that is taken.
_WINDOW_FACTOR = 4
# Of what is known of a difficulty stays at each update.
_RATE_DECAY = 0.95
_UNKNOWN_RATE = 0.5

CurriculumState = dict[str, object]


@dataclass(frozen=True, slots=True)
class TrainingOrigin:
    """What a checkpoint learned from: taskset, splits; the workers, and whether they are simulated."""

    taskset: str
    splits: Mapping[str, str]
    pool: Sequence[Mapping[str, object]]
    simulated: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingEnvironment:
    """A `stream` of tasks to learn from and `validation_tasks`; the `largest` pool; the `caps` of one run.

    `identity` distinguishes it from other environments. `purse` holds the money where calls are paid (None: the scorer
    counts what runs cost). `engine` knows the workers' keys.
    """

    origin: TrainingOrigin
    identity: Mapping[str, str]
    stream: Callable[[int], TaskItem]
    largest: int
    validation_tasks: tuple[TaskItem, ...] = ()
    caps: Caps = field(default_factory=Caps)
    purse: EvaluationBudget | None = None
    engine: Engine | None = None

    def preview(self) -> list[TaskItem]:
        """Return the first items, which stay in the stream."""
        return [self.stream(place) for place in range(_PREVIEW)]


class TaskCurriculum:
    """Chooses which task is learned from next: those near a 50 % success rate more often.

    It looks at a window of the stream. An item's chance grows with p (1 - p), p being the recent success rate of plans
    for tasks of its difficulty; `floor` of the chance is the same for all, so nothing is forgotten. `near_half` False
    takes items as they come.
    """

    def __init__(
        self, stream: Callable[[int], TaskItem], seed: int = 0, *, near_half: bool = True, floor: float = 0.3
    ) -> None:
        self._stream = stream
        self._seed = seed
        self._near_half = near_half
        self._floor = floor
        self._next = 0
        self.rates: dict[str, float] = {}

    def draw(self, count: int) -> list[TaskItem]:
        """Return the next items; ConfigError for a task that cannot be graded or has a pool of one."""
        width = count * _WINDOW_FACTOR if self._near_half else count
        window = [_require_pool(self._stream(self._next + place)) for place in range(width)]
        rng = random.Random(f"{self._seed}:{self._next}")  # noqa: S311 - a curriculum, no secret
        self._next += width
        if not self._near_half:
            return window
        keyed = sorted(((rng.random() ** (1 / self._weight(item)), place) for place, item in enumerate(window)))
        return [window[place] for place in sorted(place for _, place in keyed[-count:])]

    def update(self, items: Sequence[TaskItem], right: Sequence[float]) -> None:
        """Note what share of the plans for each item was right."""
        for item, share in zip(items, right, strict=True):
            known = self.rates.get(item.difficulty, share)
            self.rates[item.difficulty] = _RATE_DECAY * known + (1 - _RATE_DECAY) * share

    def state(self) -> CurriculumState:
        """Return everything that the next draws depend on, as JSON data."""
        return {"next": self._next, "rates": dict(self.rates)}

    def restore(self, state: CurriculumState) -> None:
        """Continue where `state` was taken."""
        place, rates = state["next"], state["rates"]
        if not isinstance(place, int) or not isinstance(rates, dict):
            raise ConfigError(f"a curriculum's state has a number `next` and a table `rates`, not {state!r}")
        self._next, self.rates = place, dict(rates)

    def _weight(self, item: TaskItem) -> float:
        rate = self.rates.get(item.difficulty, _UNKNOWN_RATE)
        return self._floor + (1 - self._floor) * 4 * rate * (1 - rate)


def _require_pool(item: TaskItem) -> TaskItem:
    if item.pool is None or len(item.pool) < 2:
        raise ConfigError(
            f"task {item.task.id}: expected a pool of two workers or more to choose from, "
            f"found {0 if item.pool is None else len(item.pool)}"
        )
    if getattr(item.grader, "shared", False):
        raise ConfigError(
            f"task {item.task.id}: its tests cannot be judged apart from the patch, so training would learn to cheat "
            "them; expected tasks that `shikisha import repository` marks `apart`"
        )
    return item
