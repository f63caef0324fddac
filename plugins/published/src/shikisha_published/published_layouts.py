"""Published benchmarks of short answers and of multiple choice: how a row of each becomes a task.

Invariants: those of `shikisha.evals.tasksets.taskset_loader`. To add one, write its function here, its layout at
the end, and its line in `pyproject.toml`.
"""

import re
from collections.abc import Sequence
from hashlib import sha256

from shikisha.core.task import Task
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.taskset import TaskItem
from shikisha.evals.tasksets.task_rows import HubDataset, TaskRow
from shikisha.evals.tasksets.taskset_loader import BOXED, CHOICE, NUMBER, TaskLayout, with_instruction

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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


AIME = TaskLayout(HubDataset("math-ai/aime25", splits=("test",)), aime_item)
GPQA_DIAMOND = TaskLayout(HubDataset("Idavidrein/gpqa", "gpqa_diamond", splits=("train",)), gpqa_item)
GSM8K = TaskLayout(HubDataset("openai/gsm8k", "main", splits=("train", "test")), gsm8k_item)
MATH_500 = TaskLayout(HubDataset("HuggingFaceH4/MATH-500", splits=("test",)), math500_item)
MMLU = TaskLayout(HubDataset("cais/mmlu", "all", splits=("test", "validation", "dev")), mmlu_item)
MMLU_PRO = TaskLayout(HubDataset("TIGER-Lab/MMLU-Pro", splits=("test", "validation")), mmlu_pro_item)
RLPR = TaskLayout(HubDataset("openbmb/RLPR-Train-Dataset"), rlpr_item)
