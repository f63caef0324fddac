"""The published benchmarks, one entry each in `LAYOUTS`: where the rows are and how a row becomes a task.

A layout is a function from a row and the graders' tools to a TaskItem. Its docstring lists the columns that it reads.
Invariants: a malformed row is a ConfigError that names the field; a reference answer or solution goes to the grader and
never into the task; the instruction that we add is the last paragraph of a prompt, so `strip_instruction` gives the
benchmark's own words back. To add a benchmark, write its function here and one line in `LAYOUTS`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from shikisha.core.errors import UnknownName
from shikisha.core.kinds import Registry
from shikisha.core.task import Task
from shikisha.evals.graders import Grader, GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
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

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

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


def format_choice(question: str, options: Sequence[str]) -> str:
    """Return the prompt of a question with lettered options."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return with_instruction("\n".join([question.strip(), *lines]), CHOICE)


# --- short answers


_AIME_ANSWER = re.compile(r"\$?(\d{1,3})(\^\{?\\circ\}?)?\$?")  # one copy writes an angle with its degrees


def aime_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """AIME: mathematics problems whose answers are whole numbers from 0 to 999.

    Columns, as its many copies name them: problem (Problem, question, Question), answer (Answer); optional: id (ID),
    year (Year).
    """
    problem = row.text(row.one_of("problem", "Problem", "question", "Question"))
    field = row.one_of("answer", "Answer")
    gold = _AIME_ANSWER.fullmatch(row.name(field).strip())
    if gold is None:
        raise row.error_at(field, f"expected a whole number from 0 to 999, found {row.name(field)[:40]!r}")
    year = row.optional("year") or row.optional("Year")
    place = row.optional("id") or row.optional("ID") or row.place
    labels = (year,) if year else ()
    task = Task(with_instruction(problem, BOXED), id=f"aime/{place}", domain="aime", labels=labels)
    return TaskItem(task, row.grader(field, "number", {"answer": gold[1]}, tools))


def gsm8k_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """GSM8K: grade-school word problems (arXiv 2110.14168).

    Columns: question, answer (a worked solution whose last line is `#### N`).
    """
    _, mark, gold = row.text("answer").rpartition("####")
    if not mark or not gold.strip():
        raise row.error_at("answer", "expected a solution that ends with '#### N'")
    check = row.grader("answer", "number", {"answer": gold.strip()}, tools)
    task = Task(with_instruction(row.text("question"), NUMBER), id=f"gsm8k/{row.place}", domain="gsm8k")
    return TaskItem(task, check)


def math500_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """MATH-500: competition mathematics (arXiv 2103.03874; split of arXiv 2305.20050), graded by equivalence.

    Columns: problem, answer, subject, level (1 to 5), unique_id.
    """
    check = row.grader("answer", "math", {"answer": row.text("answer")}, tools)
    task = Task(with_instruction(row.text("problem"), BOXED), id=row.name("unique_id"), domain=row.text("subject"))
    return TaskItem(task, check, difficulty=f"level {row.integer('level', 1, 5)}")


# --- multiple choice


def mmlu_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """MMLU: four-way multiple choice in 57 subjects (arXiv 2009.03300).

    Columns: question, subject, choices (a list), answer (an index into it).
    """
    options = row.texts("choices", least=2, most=len(LETTERS))
    gold = row.integer("answer", 0, len(options) - 1)
    task = Task(format_choice(row.text("question"), options), id=f"mmlu/{row.place}", domain=row.text("subject"))
    return TaskItem(task, row.grader("answer", "choice", {"answer": LETTERS[gold], "options": options}, tools))


def mmlu_pro_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """MMLU-Pro: multiple choice with up to ten options in 14 categories (arXiv 2406.01574).

    Columns: question_id, question, options (a list), answer (a letter), answer_index (which must agree), category.
    """
    options = row.texts("options", least=2, most=len(LETTERS))
    gold = row.integer("answer_index", 0, len(options) - 1)
    if row.text("answer") != LETTERS[gold]:
        raise row.error_at("answer", f"expected {LETTERS[gold]!r}, as answer_index says, found {row.text('answer')!r}")
    prompt, number = format_choice(row.text("question"), options), row.name("question_id")
    task = Task(prompt, id=f"mmlu-pro/{number}", domain=row.text("category"))
    return TaskItem(
        task, row.grader("answer", "choice", {"answer": LETTERS[gold], "options": options, "rule": "mmlu-pro"}, tools)
    )


_GPQA_DISTRACTORS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def gpqa_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """GPQA-Diamond: graduate-level science questions (arXiv 2311.12022).

    Columns: Question, Correct Answer, Incorrect Answer 1 to 3, Record ID; optional: High-level domain, Writer's
    Difficulty Estimate.
    """
    question, right = row.text("Question").strip(), row.text("Correct Answer").strip()
    options = [right, *(row.text(field).strip() for field in _GPQA_DISTRACTORS)]
    for field, option in zip(_GPQA_DISTRACTORS, options[1:], strict=True):
        if option == right:
            raise row.error_at(field, "expected another option than the correct answer")
    # The published rows list the right answer first; a hash gives an order that is fixed and independent of it.
    options.sort(key=lambda option: sha256(f"{question}\0{option}".encode()).digest())
    domain = row.optional("High-level domain") or "gpqa"
    task = Task(format_choice(question, options), id=f"gpqa/{row.text('Record ID')}", domain=domain)
    spec = {"answer": LETTERS[options.index(right)], "options": options}
    check = row.grader("Correct Answer", "choice", spec, tools)
    return TaskItem(task, check, difficulty=row.optional("Writer's Difficulty Estimate"))


_RLPR_CHOICE_SOURCES = ("gpqa", "mmlupro", "supergpqa", "hellaswag", "webinstruct-verified-val")  # in data_source
_RLPR_ANSWER_TYPES = {
    "multiple choice": "choice",
    "integer": "number",
    "float": "number",
    "percentage": "number",
    "boolean": "text",
    "string": "text",
    "other": "text",
}


def rlpr_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """RLPR: general questions with short reference answers (arXiv 2506.18254), in training and evaluation files.

    Columns: data_source, prompt (a list of messages), ability, reward_model.ground_truth; optional: extra_info with
    answer_type and difficulty. The user's messages are the question; the system message, which holds the tags of their
    trainer, is left out. The grader is `choice` where the source is multiple choice, else what answer_type says, else
    `math`.
    """
    source, reward = row.text("data_source"), row.part("reward_model")
    extra = row.part("extra_info") if row.has("extra_info") else None
    gold = reward.name("ground_truth").strip()
    kind = _rlpr_grader(source, extra.optional("answer_type") if extra else "", gold)
    check = reward.grader("ground_truth", kind, {"answer": gold}, tools)
    # The user's messages as one text; ConfigError for a conversation with other roles.
    texts = []
    for message in row.parts("prompt"):
        role, content = message.text("role"), message.text("content")
        if role not in ("system", "user"):
            raise message.error_at("role", f"expected system or user, found {role[:40]!r}")
        if role == "user":
            texts.append(content.strip())
    if not texts:
        raise row.error_at("prompt", "expected a message of the user")
    prompt = with_instruction("\n\n".join(texts), CHOICE if kind == "choice" else BOXED)
    task = Task(prompt, id=f"rlpr/{row.place}", domain=row.optional("ability") or source, labels=(source,))
    return TaskItem(task, check, difficulty=extra.optional("difficulty") if extra else "")


def _rlpr_grader(source: str, answer_type: str, gold: str) -> str:
    """Return the kind of grader; `math` where the answer is not of the form that its type says."""
    if any(name in source.casefold() for name in _RLPR_CHOICE_SOURCES):
        return "choice"
    kind = _RLPR_ANSWER_TYPES.get(answer_type.casefold(), "math")
    return kind if canonicalize(gold, AnswerForm(kind)) is not None else "math"


# --- a user's own rows


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
    {
        "aime": TaskLayout(HubDataset("math-ai/aime25", splits=("test",)), aime_item),
        "gpqa-diamond": TaskLayout(HubDataset("Idavidrein/gpqa", "gpqa_diamond", splits=("train",)), gpqa_item),
        "gsm8k": TaskLayout(HubDataset("openai/gsm8k", "main", splits=("train", "test")), gsm8k_item),
        "math-500": TaskLayout(HubDataset("HuggingFaceH4/MATH-500", splits=("test",)), math500_item),
        "mmlu": TaskLayout(HubDataset("cais/mmlu", "all", splits=("test", "validation", "dev")), mmlu_item),
        "mmlu-pro": TaskLayout(HubDataset("TIGER-Lab/MMLU-Pro", splits=("test", "validation")), mmlu_pro_item),
        "rlpr": TaskLayout(HubDataset("openbmb/RLPR-Train-Dataset"), rlpr_item),
    },
    dict.fromkeys(
        ("bigcodebench", "humaneval", "livecodebench", "mbpp", "repository", "swebench-verified"), "shikisha-code"
    ),
)
