"""What a taskset's layout is, the names of those that plug-ins bring, and the layout of a user's own rows.

A layout is a function from a row and the graders' tools to a TaskItem. Its docstring lists the columns that it reads.
Invariants: a malformed row is a ConfigError that names the field; a reference answer or solution goes to the grader and
never into the task; the instruction that we add is the last paragraph of a prompt, so `strip_instruction` gives the
benchmark's own words back. A benchmark is a plug-in: `plugins/published` and `plugins/code` have those of others.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from shikisha.core.errors import UnknownName
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.kinds import Registry
from shikisha.core.task import Task
from shikisha.evals.graders import Grader, GraderTools
from shikisha.evals.graders.grader_registry import GRADERS
from shikisha.evals.taskset import (
    DIMENSIONS,
    GradeRigour,
    TaskDimensions,
    TaskEnvironment,
    TaskItem,
    Taskset,
    TaskSpecification,
    TaskSplit,
    default_dimensions,
)
from shikisha.evals.tasksets.task_rows import HubDataset, TaskRow

# Each instruction asks for the form that its grader reads best. They are part of task hashes: do not reword them.
CHOICE = 'End with a line "The answer is (X)", where X is the letter of the right option.'
BOXED = r"End with the final answer in \boxed{}."
NUMBER = 'End with a line "The answer is N", where N is a number without its unit.'
PROGRAM = (
    "Write a Python program that reads its input from standard input and prints the result to standard output. "
    "Answer with the whole program in one ```python block."
)
FUNCTION = "Write this in Python. Answer with all of the code, imports included, in one ```python block."
PATCH = "Answer with a patch to the repository in the unified diff format, and nothing else."
_INSTRUCTIONS = (CHOICE, BOXED, NUMBER, PROGRAM, FUNCTION, PATCH)


def with_instruction(question: str, instruction: str) -> str:
    """Return a question with one of our instructions as its last paragraph."""
    return f"{question.strip()}\n\n{instruction}"


def strip_instruction(prompt: str) -> str:
    """Return a prompt without the instruction that we added."""
    for instruction in _INSTRUCTIONS:
        prompt = prompt.removesuffix(instruction)
    return prompt.rstrip()


_OWN_TASK_FIELDS = frozenset(
    {"prompt", "context", "id", "domain", "difficulty", "split", "labels", "goal", *DIMENSIONS}
)


def own_item(row: TaskRow, tools: GraderTools, default: Mapping[str, object] | None = None) -> TaskItem:
    """A user's own row: a prompt and how its answers are graded.

    Fields: prompt; grader (a kind of `grader_registry`) with its settings next to it, or in an object `check`;
    optional: context, id, domain, difficulty, split (train, dev, test), labels (a list), environment, specification,
    rigour, goal (`dimensions`). A judge sees context and prompt. `default` is the grader of rows that bring none,
    `{"checker": KIND, ...}`; a row's further fields complete its settings. A row without any grader, or with a field
    that its grader does not know, is refused.
    """
    task = Task(
        row.text("prompt"),
        row.optional("context"),
        row.optional("id") or row.place,
        row.optional("domain"),
        row.texts("labels", least=0),
    )
    kind, spec = _own_grader(row, default)
    if kind in {"judge", "entry_point"}:
        spec = {"prompt": "\n\n".join(filter(None, (task.context, task.prompt))), **spec}
    check = row.grader("check" if row.has("check") else "checker", kind, spec, tools)
    split = row.optional("split")
    if split and split not in set(TaskSplit):
        raise row.error_at("split", f"expected {', '.join(TaskSplit)}, found {split[:40]!r}")
    said = _own_dimensions(row, check)
    return TaskItem(task, check, row.optional("difficulty"), TaskSplit(split) if split else None, said=said)


def _own_dimensions(row: TaskRow, grader: Grader) -> TaskDimensions | None:
    """Return where a row says that its task stands; None where it says nothing."""
    chosen = {name: row.text(name) for name in DIMENSIONS if row.has(name)}
    for name, value in chosen.items():
        if value not in set(DIMENSIONS[name]):
            raise row.error_at(name, f"expected {', '.join(DIMENSIONS[name])}, found {value[:40]!r}")
    goal = row.optional("goal")
    if not chosen and not goal:
        return None
    usual = default_dimensions(grader)
    return TaskDimensions(
        TaskEnvironment(chosen.get("environment", usual.environment)),
        TaskSpecification(chosen.get("specification", usual.specification)),
        GradeRigour(chosen.get("rigour", usual.rigour)),
        goal,
    )


def _own_grader(row: TaskRow, default: Mapping[str, object] | None) -> tuple[str, Mapping[str, object]]:
    """Return the kind of a row's grader and its settings."""
    others = {*_OWN_TASK_FIELDS, "checker", "check"}
    spec = {field: value for field, value in row.data.items() if row.has(field) and field not in others}
    if row.has("check"):
        if spec:
            raise row.error_at(next(iter(spec)), "expected the grader's settings inside check, not next to it")
        spec = dict(row.part("check").data)
    if row.has("checker"):
        kind = row.text("checker")
    elif default is not None:
        kind = str(default.get("checker"))
        spec = {field: value for field, value in default.items() if field != "checker"} | spec
    else:
        raise row.error_at("checker", "this row has none, and none is given for the file")
    try:
        GRADERS[kind]
    except UnknownName as error:
        raise row.error_at("checker", str(error)) from None
    return kind, spec


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """A benchmark: its place on the Hugging Face hub (None: it has none), and the function that makes a task of a row.

    `read_folder` instead: the whole set from a folder that holds more than rows. One of the two is there.
    """

    hub: HubDataset | None = None
    make_item: Callable[[TaskRow, GraderTools], TaskItem] | None = None
    read_folder: Callable[[Path, GraderTools], Taskset] | None = None


LAYOUTS: Registry[TaskLayout] = Registry(
    "tasksets",
    "taskset",
    TaskLayout,
    {},
    {
        **dict.fromkeys(
            ("bigcodebench", "humaneval", "livecodebench", "mbpp", "repository", "swebench-verified"), "shikisha-code"
        ),
        **dict.fromkeys(
            ("aime", "gpqa-diamond", "gsm8k", "math-500", "mmlu", "mmlu-pro", "rlpr"), "shikisha-published"
        ),
    },
)
