"""Tasksets: tasks with graders and a fixed split.

Invariants: an item cannot exist without a grader; a task's split depends on its content alone, so it is the same on
every machine, whatever else is in the set and in whatever order; ids are unique. The right answer is inside the grader
and nowhere else. Sampling is not random: `sample` takes tasks by the hash of seed and content.

Three dimensions of every task: what it plays in, how exactly it says what to do, and how strictly it is graded.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import sha256

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.evals.graders import Grader


class TaskEnvironment(StrEnum):
    """What a task plays in."""

    TEXT = "text"  # a question and its answer
    TOOL = "tool"  # tools that look something up and change nothing
    STATEFUL = "stateful"  # tools that change a state which is there for this task alone
    LIVE = "live"  # systems that others use and change too


class TaskSpecification(StrEnum):
    """How exactly a task says what to do."""

    STEPS = "steps"  # step by step
    GOAL = "goal"  # what is to be reached
    OPEN = "open"  # what is wanted, with the goal to be found out


class GradeRigour(StrEnum):
    """How strictly answers are graded, the strictest first."""

    EXECUTED = "executed"  # a program runs: tests of code, a comparison of states
    MATCHED = "matched"  # the answer is compared with a right one
    PERSON = "person"  # a person says so
    JUDGE = "judge"  # a language model says so


_RIGOUR_OF_GRADERS: Mapping[str, GradeRigour] = {
    **dict.fromkeys(("code", "entry_point", "repository", "swebench", "state"), GradeRigour.EXECUTED),
    "person": GradeRigour.PERSON,
    "judge": GradeRigour.JUDGE,
}
DIMENSIONS: Mapping[str, type[StrEnum]] = {
    "environment": TaskEnvironment,
    "specification": TaskSpecification,
    "rigour": GradeRigour,
}


@dataclass(frozen=True, slots=True)
class TaskDimensions:
    """Where a task stands in each dimension; `goal` is shared by tasks that want the same in other words."""

    environment: TaskEnvironment = TaskEnvironment.TEXT
    specification: TaskSpecification = TaskSpecification.GOAL
    rigour: GradeRigour = GradeRigour.MATCHED
    goal: str = ""


def default_dimensions(grader: Grader) -> TaskDimensions:
    """Return where a task stands that says nothing else: a text with a goal, graded as its grader grades."""
    return TaskDimensions(rigour=_RIGOUR_OF_GRADERS.get(grader.name, GradeRigour.MATCHED))


class TaskSplit(StrEnum):
    """What a task is for."""

    TRAIN = "train"  # learn from it
    DEV = "dev"  # choose by it
    TEST = "test"  # report on it


HELD_OUT = "heldout"  # the test split, as the field often calls it
DEFAULT_SHARES = {TaskSplit.TRAIN: 0.6, TaskSplit.DEV: 0.2, TaskSplit.TEST: 0.2}


@dataclass(frozen=True, slots=True)
class TaskItem:
    """A task, how its answers are graded, and what reports group it by.

    `given` is the split that the set itself says (None: by content hash); `pool` is the task's own pool, where each
    task brings one (simulated tasks do), and `steady` says that its workers do the same each time. `grading` is a hash
    of what grades depend on besides the answer: with another reference answer, the same answer gets another grade.
    `said` is where the task stands in the three dimensions, where its set says so.
    """

    task: Task
    grader: Grader
    difficulty: str = ""
    given: TaskSplit | None = None
    pool: Pool | None = field(default=None, compare=False)
    grading: str = ""
    steady: bool = field(default=False, compare=False)
    said: TaskDimensions | None = None

    @property
    def split(self) -> TaskSplit:
        """The split the set gives, else the one its content falls into."""
        return self.given or content_split(self.task)

    @property
    def dimensions(self) -> TaskDimensions:
        """Where the task stands: as its set says, else as its grader suggests."""
        return self.said or default_dimensions(self.grader)


def parse_split(name: str) -> TaskSplit:
    """Return the split of this name, or the test split for `heldout`; UnknownName when it is none of them."""
    known = {**{split.value: split for split in TaskSplit}, HELD_OUT: TaskSplit.TEST}
    if name not in known:
        raise UnknownName("split", name, known)
    return known[name]


def normalize_text(text: str) -> str:
    """Return a text without the differences that make no other task of it: case and white space."""
    return " ".join(text.casefold().split())


def content_key(task: Task) -> str:
    """Return the SHA-256 (hex) by which tasks are split and compared: of prompt and context, normalised."""
    return sha256(f"{normalize_text(task.prompt)}\0{normalize_text(task.context)}".encode()).hexdigest()


def split_fraction(task: Task, salt: str = "") -> float:
    """Return this task's place in [0, 1), evenly spread over tasks and the same everywhere."""
    digest = sha256(f"{salt}\0{content_key(task)}".encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def content_split(task: Task, shares: Mapping[TaskSplit, float] = DEFAULT_SHARES) -> TaskSplit:
    """Return the split that a task's content falls into."""
    left = split_fraction(task, "split")
    for split, share in shares.items():
        if left < share:
            return split
        left -= share
    return TaskSplit.TEST


class Taskset:
    """Items in order, under a name; `version` is the SHA-256 over the tasks' content hashes in order.

    `notes` say what was left out of the published set.
    """

    def __init__(self, name: str, items: Iterable[TaskItem], notes: Iterable[str] = ()) -> None:
        self.name = name
        self.notes = tuple(notes)
        self.items = tuple(items)
        seen: dict[str, int] = {}
        for index, item in enumerate(self.items):
            if not item.task.id or seen.setdefault(item.task.id, index) != index:
                problem = "has no id" if not item.task.id else f"has the id {item.task.id!r} of another"
                raise ConfigError(f"taskset {name}: task {index} {problem}")
        if not self.items:
            raise ConfigError(f"taskset {name}: there is no task in it")

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[TaskItem]:
        return iter(self.items)

    @property
    def version(self) -> str:
        """What these tasks are, as one hash."""
        return sha256("".join(item.task.content_hash for item in self.items).encode()).hexdigest()

    def only(self, split: TaskSplit) -> "Taskset":
        """Return the items of one split; ConfigError when there are none."""
        return Taskset(f"{self.name}[{split}]", (item for item in self.items if item.split is split), self.notes)

    def sample(self, count: int, seed: int = 0) -> "Taskset":
        """Return `count` items (or all), chosen by the hash of seed and content, in the set's order."""
        ranked = sorted(range(len(self.items)), key=lambda i: split_fraction(self.items[i].task, f"sample {seed}"))
        return Taskset(self.name, (self.items[i] for i in sorted(ranked[:count])), self.notes)
