"""The published benchmarks, one entry each in `LAYOUTS`: where the rows are and how a row becomes a task.

A layout is a function from a row and the graders' tools to a TaskItem. Its docstring lists the columns that it reads.
Invariants: a malformed row is a ConfigError that names the field; a reference answer or solution goes to the grader and
never into the task; the instruction that we add is the last paragraph of a prompt, so `strip_instruction` gives the
benchmark's own words back. To add a benchmark, write its function here and one line in `LAYOUTS`.
"""

import ast
import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from shikisha.core.errors import UnknownName
from shikisha.core.kinds import Registry
from shikisha.core.task import Task
from shikisha.evals.graders import Grade, Grader, GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.code_tests import COMMON_SETUP
from shikisha.evals.graders.grader_registry import GRADERS
from shikisha.evals.taskset import (
    DIMENSIONS,
    GradeRigour,
    TaskDimensions,
    TaskEnvironment,
    TaskItem,
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


def format_function(question: str, code: str = "", tests: Sequence[str] = ()) -> str:
    """Return the prompt of a programming task; `code` is its starting point and `tests` name the function."""
    parts = [question.strip()]
    if code.strip():
        parts.append(f"Begin from this:\n```python\n{code.strip()}\n```")
    if tests:
        parts.append("Your code must pass these tests:\n" + "\n".join(tests))
    return with_instruction("\n\n".join(parts), FUNCTION)


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


# --- code


def humaneval_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """HumanEval: functions to write from their docstrings (arXiv 2107.03374), graded by its `check` in a sandbox.

    Columns: task_id, prompt (a function's head and docstring), test (defines `check(candidate)`), entry_point.
    """
    start = row.text("prompt")
    spec = {"style": "check", "source": row.text("test"), "entry": row.identifier("entry_point"), "prompt": start}
    task = Task(format_function("Complete this function.", start), id=row.text("task_id"), domain="humaneval")
    return TaskItem(task, row.grader("test", "code", spec, tools))


def mbpp_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """MBPP: short Python functions from a sentence (arXiv 2108.07732), graded by its asserts in a sandbox.

    Columns: task_id, text (prompt in the sanitized set), test_list; optional: test_setup_code or test_imports,
    challenge_test_list. The prompt shows test_list, since only these tests give the function's name.
    """
    tests = row.texts("test_list")
    setup = [row.optional("test_setup_code"), *row.texts("test_imports", least=0)]
    spec = {
        "style": "asserts",
        "setup": "\n".join(filter(None, setup)),
        "asserts": (*tests, *row.texts("challenge_test_list", least=0)),
    }
    prompt = format_function(row.text(row.one_of("text", "prompt")), tests=tests)
    task = Task(prompt, id=f"mbpp/{row.name('task_id')}", domain="mbpp")
    return TaskItem(task, row.grader("test_list", "code", spec, tools))


def bigcodebench_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """BigCodeBench: functions that use libraries (arXiv 2406.15877), graded by its unit tests in a sandbox.

    Columns: task_id, instruct_prompt (shown), complete_prompt (whose head the code may need), test (a unittest
    module), entry_point, libs (a list, or its text). An answer is ungraded where the sandbox lacks one of the libs.
    """
    libraries = row.decode("libs", ast.literal_eval).texts("libs", least=0)
    spec = {
        "style": "unittest",
        "source": row.text("test"),
        "entry": row.identifier("entry_point"),
        "prompt": row.text("complete_prompt"),
        "needs": libraries,
    }
    prompt = format_function(row.text("instruct_prompt"))
    task = Task(prompt, id=row.text("task_id"), domain="bigcodebench", labels=libraries)
    return TaskItem(task, row.grader("test", "code", spec, tools))


def livecodebench_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """LiveCodeBench: dated contest problems (arXiv 2403.07974), graded by their tests in a sandbox.

    Columns: question_title, question_content, starter_code, public_test_cases and private_test_cases (JSON texts: lists
    of input, output, testtype `stdin` or `functional`), metadata (a JSON text; func_name for functional tests),
    question_id, platform, difficulty, contest_date. Private tests may be packed: see `_unpack_tests`.
    """
    check = LiveCodeBenchGrader(row, tools)
    question = f"{row.text('question_title')}\n\n{row.text('question_content')}"
    code = row.text("starter_code") if check.functional else ""
    prompt = format_function(question, code) if check.functional else with_instruction(question, PROGRAM)
    labels = (row.text("platform"), row.day("contest_date"))
    task = Task(prompt, id=f"livecodebench/{row.name('question_id')}", domain="livecodebench", labels=labels)
    return TaskItem(task, check, difficulty=row.text("difficulty"))


class LiveCodeBenchGrader:
    """Grades by a row's tests and unpacks them for each answer, since all of them at once would fill the memory.

    The constructor unpacks them once, so that malformed tests are an error while the taskset is read.
    """

    name = "code"

    def __init__(self, row: TaskRow, tools: GraderTools) -> None:
        self._row = row
        self._tools = tools
        spec = _livecodebench_settings(row)
        self.functional = spec["style"] == "function"
        self._build(spec)

    async def grade(self, answer: str) -> Grade:
        """Run the tests."""
        return await self._build(_livecodebench_settings(self._row)).grade(answer)

    def _build(self, spec: Mapping[str, object]) -> Grader:
        return self._row.grader("private_test_cases", "code", spec, self._tools)


def _livecodebench_settings(row: TaskRow) -> dict[str, object]:
    """Return the settings of the `code` grader."""
    tests: list[TaskRow] = []
    for field in ("public_test_cases", "private_test_cases"):
        unpacked = row.decode(field, _unpack_tests)
        tests += () if unpacked.data[field] == [] else unpacked.parts(field)
        kinds = {test.text("testtype") for test in tests}
        if len(kinds) > 1 or kinds - {"stdin", "functional"}:
            wish = "expected tests all of testtype stdin or all functional"
            raise row.error_at(field, f"{wish}, found {', '.join(sorted(kinds))}")
    if not tests:
        raise row.error_at("public_test_cases", "there is no test, and none in private_test_cases")
    pairs = [{"input": test.string("input"), "output": test.string("output")} for test in tests]
    if kinds == {"stdin"}:
        return {"style": "stdio", "pairs": pairs, "setup": COMMON_SETUP, "tolerance": 0.0}
    entry = row.decode("metadata", _load_json).part("metadata").identifier("func_name")
    return {"style": "function", "pairs": pairs, "entry": entry, "setup": COMMON_SETUP}


def _load_json(text: str) -> object:
    value: object = json.loads(text)
    return value


_MOST_TEST_BYTES = 2**30  # of one problem's unpacked tests
_PICKLE_PROTO, _PICKLE_FRAME, _PICKLE_STOP = 0x80, 0x95, 0x2E
# SHORT_BINUNICODE, BINUNICODE, BINUNICODE8: the number of bytes that hold the length.
_PICKLE_TEXTS = {0x8C: 1, 0x58: 4, 0x8D: 8}
# Opcodes that say nothing of the text (the last three: MEMOIZE, BINPUT, LONG_BINPUT): the length of their argument.
_PICKLE_SKIPPED = {_PICKLE_PROTO: 1, _PICKLE_FRAME: 8, 0x94: 0, 0x71: 1, 0x72: 4}


def _unpack_tests(text: str) -> object:
    """Decode JSON: plain, base64 of zlib of it, or base64 of zlib of the pickle of it, as it is published.

    ValueError says what else it is.
    """
    if text.lstrip()[:1] in ("[", "{"):
        return _load_json(text)
    try:
        stream = zlib.decompressobj()
        plain = stream.decompress(base64.b64decode(text, validate=True), _MOST_TEST_BYTES)
    except (binascii.Error, zlib.error):
        raise ValueError("neither JSON nor base64 of zlib of JSON") from None
    if not stream.eof:
        raise ValueError(f"cut off, or above {_MOST_TEST_BYTES:,} bytes")
    return _load_json(_read_pickled_text(plain) if plain[:1] == bytes((_PICKLE_PROTO,)) else plain.decode())


def _read_pickled_text(pickled: bytes) -> str:
    """Return the one text that a pickle holds, without running the pickle; ValueError for any other pickle."""
    at, text = 0, None
    while at < len(pickled):
        code, at = pickled[at], at + 1
        if code == _PICKLE_STOP and text is not None and at == len(pickled):
            return text
        if code in _PICKLE_TEXTS and text is None:
            start = at + _PICKLE_TEXTS[code]
            at = start + int.from_bytes(pickled[start - _PICKLE_TEXTS[code] : start], "little")
            if at > len(pickled):
                break
            text = pickled[start:at].decode()
        elif code in _PICKLE_SKIPPED:
            at += _PICKLE_SKIPPED[code]
        else:
            raise ValueError("a pickle of something other than one text, which is never read: it could run anything")
    raise ValueError("a pickle that is cut off, or goes on behind its end")


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


class TaskLayout(NamedTuple):
    """A benchmark: its place on the Hugging Face hub, and the function that makes a task of a row."""

    hub: HubDataset
    make_item: Callable[[TaskRow, GraderTools], TaskItem]


LAYOUTS: Registry[TaskLayout] = Registry(
    "tasksets",
    "taskset",
    TaskLayout,
    {
        "aime": TaskLayout(HubDataset("math-ai/aime25", splits=("test",)), aime_item),
        "bigcodebench": TaskLayout(HubDataset("bigcode/bigcodebench", splits=("v0.1.4",)), bigcodebench_item),
        "gpqa-diamond": TaskLayout(HubDataset("Idavidrein/gpqa", "gpqa_diamond", splits=("train",)), gpqa_item),
        "gsm8k": TaskLayout(HubDataset("openai/gsm8k", "main", splits=("train", "test")), gsm8k_item),
        "humaneval": TaskLayout(HubDataset("openai/openai_humaneval", splits=("test",)), humaneval_item),
        "livecodebench": TaskLayout(
            HubDataset("livecodebench/code_generation_lite", splits=("test",)), livecodebench_item
        ),
        "math-500": TaskLayout(HubDataset("HuggingFaceH4/MATH-500", splits=("test",)), math500_item),
        "mbpp": TaskLayout(
            HubDataset("google-research-datasets/mbpp", "full", splits=("train", "validation", "test")), mbpp_item
        ),
        "mmlu": TaskLayout(HubDataset("cais/mmlu", "all", splits=("test", "validation", "dev")), mmlu_item),
        "mmlu-pro": TaskLayout(HubDataset("TIGER-Lab/MMLU-Pro", splits=("test", "validation")), mmlu_pro_item),
        "rlpr": TaskLayout(HubDataset("openbmb/RLPR-Train-Dataset"), rlpr_item),
    },
)
