"""GSM8K: word problems of primary school (arXiv 2110.14168), graded by number.

Columns: question, answer. The answer is a worked solution whose last line is `#### N`.

AIME: problems of the American Invitational Mathematics Examination, whose answers are whole numbers from 0 to 999.

Columns, as its many copies have them: problem (Problem, question, Question), answer (Answer), and where there id (ID),
year (Year). Graded by number.

BigCodeBench: functions that use libraries (arXiv 2406.15877), graded by its unit tests in a sandbox.

Columns: task_id, instruct_prompt (put to workers), complete_prompt (whose head the code may need), test (a unittest
module), entry_point, libs (a list, or its text). Where the sandbox lacks a library of a task, its
answers are left ungraded.

GPQA-Diamond: graduate-level science questions (arXiv 2311.12022), graded by letter.

Columns: Question, Correct Answer, Incorrect Answer 1 to 3, Record ID, and where there High-level domain and Writer's
Difficulty Estimate. The options stand in the order of the hash of question and option: fixed, the right one anywhere.

HumanEval: functions to be written from their docstrings (arXiv 2107.03374), graded by its `check` in a sandbox.

Columns: task_id, prompt (a function's head and docstring), test (defines `check(candidate)`), entry_point; the
canonical_solution is never shown to anyone.

LiveCodeBench: problems of programming contests with their dates (arXiv 2403.07974), graded by tests in a sandbox.

Columns: question_title, question_content, starter_code, public_test_cases and private_test_cases (JSON texts: lists of
input, output, testtype `stdin` or `functional`), metadata (a JSON text; func_name for functional tests), question_id,
platform, difficulty, contest_date. The private tests may be packed: base64 of zlib of the JSON text, or, as they are
published, of the pickle of that text. Invariant: a pickle is never run. Of its many instructions only those by which a
text is written are read here, by hand; any other is an error. Deliberately absent: every other pickled value.

MATH-500: five hundred problems of MATH (arXiv 2103.03874, split of arXiv 2305.20050), graded by equivalence.

Columns: problem, solution, answer, subject, level (1 to 5), unique_id. The solution is never shown to anyone.

MBPP: short Python functions from a sentence (arXiv 2108.07732), graded by its asserts in a sandbox.

Columns: task_id, text (prompt, in the sanitized set), test_list, and where there test_setup_code or test_imports and
challenge_test_list. The tests of test_list are shown, since they alone say the function's name; `code` never is.

MMLU: four-way multiple choice in 57 subjects (arXiv 2009.03300), graded by letter.

Columns: question, subject, choices (a list), answer (an index into it).

MMLU-Pro: multiple choice with up to ten options in 14 categories (arXiv 2406.01574), graded by letter.

Columns: question_id, question, options (a list), answer (a letter), answer_index (which must agree), category.

A user's own rows, JSONL by preference: a prompt and how its answers are graded.

Fields: prompt; checker (a kind, see `grader_registry`) with its settings beside it, or in an object `check`; and where
wanted context, id, domain, difficulty, split (train, dev, test), labels (a list). A judge is shown context and prompt.
Invariant: a row without a checker is refused, unless one is given for the whole file; then the row's further fields
complete its settings. A field that is neither of these nor the checker's is an error.

RLPR: questions of general domains with short reference answers (arXiv 2506.18254), in training and evaluation files.

Columns: data_source, prompt (a list of messages), ability, reward_model.ground_truth, and where there extra_info with
answer_type, as WebInstruct-verified names them, and difficulty. The user's messages are the question; a system message
holds the tags of their trainer and is left out, since our wording says how to answer. Graded by letter where the source
is multiple choice, else as the answer's type says, else as mathematics.
"""

import ast
import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from hashlib import sha256

from shikisha.core.errors import UnknownName
from shikisha.core.task import Task
from shikisha.evals.graders import Checker, Grade, GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.code_tests import COMMON_SETUP
from shikisha.evals.graders.grader_registry import CHECKERS
from shikisha.evals.taskset import TaskItem, TaskSplit
from shikisha.evals.tasksets import question_format
from shikisha.evals.tasksets.question_format import LETTERS
from shikisha.evals.tasksets.task_rows import HubDataset, TaskRow

GSM8K_HUB = HubDataset("openai/gsm8k", "main", splits=("train", "test"))


def gsm8k_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    _, mark, gold = row.text("answer").rpartition("####")
    if not mark or not gold.strip():
        raise row.wrong("answer", "expected a solution that ends with '#### N'")
    check = row.checker("answer", "number", {"answer": gold.strip()}, tools)
    task = Task(question_format.format_number(row.text("question")), id=f"gsm8k/{row.place}", domain="gsm8k")
    return TaskItem(task, check)


AIME_HUB = HubDataset("math-ai/aime25", splits=("test",))
_AIME_ANSWER = re.compile(r"\$?(\d{1,3})(\^\{?\\circ\}?)?\$?")  # one copy writes an angle with its degrees


def aime_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    problem = row.text(row.one_of("problem", "Problem", "question", "Question"))
    field = row.one_of("answer", "Answer")
    gold = _AIME_ANSWER.fullmatch(row.name(field).strip())
    if gold is None:
        raise row.wrong(field, f"expected a whole number from 0 to 999, found {row.name(field)[:40]!r}")
    year = row.optional("year") or row.optional("Year")
    place = row.optional("id") or row.optional("ID") or row.place
    task = Task(
        question_format.format_boxed(problem), id=f"aime/{place}", domain="aime", labels=(year,) if year else ()
    )
    return TaskItem(task, row.checker(field, "number", {"answer": gold[1]}, tools))


BIGCODEBENCH_HUB = HubDataset("bigcode/bigcodebench", splits=("v0.1.4",))


def bigcodebench_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    libraries = row.decoded("libs", ast.literal_eval).texts("libs", least=0)
    spec = {
        "style": "unittest",
        "source": row.text("test"),
        "entry": row.identifier("entry_point"),
        "prompt": row.text("complete_prompt"),
        "needs": libraries,
    }
    prompt = question_format.format_function(row.text("instruct_prompt"))
    task = Task(prompt, id=row.text("task_id"), domain="bigcodebench", labels=libraries)
    return TaskItem(task, row.checker("test", "code", spec, tools))


GPQA_HUB = HubDataset("Idavidrein/gpqa", "gpqa_diamond", splits=("train",))
_GPQA_DISTRACTORS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def gpqa_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    question, right = row.text("Question").strip(), row.text("Correct Answer").strip()
    options = [right, *(row.text(field).strip() for field in _GPQA_DISTRACTORS)]
    for field, option in zip(_GPQA_DISTRACTORS, options[1:], strict=True):
        if option == right:
            raise row.wrong(field, "expected another option than the correct answer")
    options.sort(key=lambda option: sha256(f"{question}\0{option}".encode()).digest())
    task = Task(
        question_format.format_choice(question, options),
        id=f"gpqa/{row.text('Record ID')}",
        domain=row.optional("High-level domain") or "gpqa",
    )
    check = row.checker(
        "Correct Answer", "choice", {"answer": LETTERS[options.index(right)], "options": options}, tools
    )
    return TaskItem(task, check, difficulty=row.optional("Writer's Difficulty Estimate"))


HUMANEVAL_HUB = HubDataset("openai/openai_humaneval", splits=("test",))


def humaneval_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    start = row.text("prompt")
    spec = {"style": "check", "source": row.text("test"), "entry": row.identifier("entry_point"), "prompt": start}
    prompt = question_format.format_function("Complete this function.", start)
    task = Task(prompt, id=row.text("task_id"), domain="humaneval")
    return TaskItem(task, row.checker("test", "code", spec, tools))


LIVECODEBENCH_HUB = HubDataset("livecodebench/code_generation_lite", splits=("test",))
_MOST_TEST_BYTES = 2**30  # bytes of one problem's unpacked tests
_PICKLE_PROTO, _PICKLE_FRAME, _PICKLE_STOP = 0x80, 0x95, 0x2E
_PICKLE_TEXTS = {0x8C: 1, 0x58: 4, 0x8D: 8}  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8: how many bytes say the length
_PICKLE_SKIPPED = {
    _PICKLE_PROTO: 1,
    _PICKLE_FRAME: 8,
    0x94: 0,
    0x71: 1,
    0x72: 4,
}  # besides: MEMOIZE, BINPUT, LONG_BINPUT; their arguments


def livecodebench_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    check = LiveCodeBenchChecker(row, tools)
    question = f"{row.text('question_title')}\n\n{row.text('question_content')}"
    prompt = (
        question_format.format_function(question, row.text("starter_code"))
        if check.functional
        else question_format.format_program(question)
    )
    labels = (row.text("platform"), row.day("contest_date"))
    task = Task(prompt, id=f"livecodebench/{row.name('question_id')}", domain="livecodebench", labels=labels)
    return TaskItem(task, check, difficulty=row.text("difficulty"))


class LiveCodeBenchChecker:
    """Grades by a row's tests, which are unpacked for each answer: all at once would fill the memory.

    They are unpacked once on making it, so that what is wrong with them is an error then.
    """

    name = "code"

    def __init__(self, row: TaskRow, tools: GraderTools) -> None:
        self._row = row
        self._tools = tools
        spec = _livecodebench_settings(row)
        self.functional = spec["style"] == "function"
        self._built(spec)

    async def grade(self, answer: str) -> Grade:
        """Run the tests."""
        return await self._built(_livecodebench_settings(self._row)).grade(answer)

    def _built(self, spec: Mapping[str, object]) -> Checker:
        return self._row.checker("private_test_cases", "code", spec, self._tools)


def _livecodebench_settings(row: TaskRow) -> dict[str, object]:
    """Return the settings of the checker."""
    tests: list[TaskRow] = []
    for field in ("public_test_cases", "private_test_cases"):
        tests += _livecodebench_tests(row, field)
        kinds = {test.text("testtype") for test in tests}
        if len(kinds) > 1 or kinds - {"stdin", "functional"}:
            wish = "expected tests all of testtype stdin or all functional"
            raise row.wrong(field, f"{wish}, found {', '.join(sorted(kinds))}")
    if not tests:
        raise row.wrong("public_test_cases", "there is no test, and none in private_test_cases")
    pairs = [{"input": test.string("input"), "output": test.string("output")} for test in tests]
    if kinds == {"stdin"}:
        return {"style": "stdio", "pairs": pairs, "setup": COMMON_SETUP, "tolerance": 0.0}
    entry = row.decoded("metadata", _load_json).part("metadata").identifier("func_name")
    return {"style": "function", "pairs": pairs, "entry": entry, "setup": COMMON_SETUP}


def _livecodebench_tests(row: TaskRow, field: str) -> tuple[TaskRow, ...]:
    """Return the tests in a field; none where it holds an empty list."""
    found = row.decoded(field, _unpack_tests)
    return () if found.data[field] == [] else found.parts(field)


def _load_json(text: str) -> object:
    value: object = json.loads(text)
    return value


def _unpack_tests(text: str) -> object:
    """Decode JSON, plain or packed; ValueError says what else it is."""
    if text.lstrip()[:1] in ("[", "{"):
        return _load_json(text)
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_TEST_BYTES)
    except (binascii.Error, zlib.error):
        raise ValueError("neither JSON nor base64 of zlib of JSON") from None
    if not unpacking.eof:
        raise ValueError(f"cut off, or above {_MOST_TEST_BYTES:,} bytes")
    return _load_json(_read_pickled_text(plain) if plain[:1] == bytes((_PICKLE_PROTO,)) else plain.decode())


def _read_pickled_text(pickled: bytes) -> str:
    """Return the one text that a pickle holds; ValueError when it holds anything else, or more."""
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


MATH500_HUB = HubDataset("HuggingFaceH4/MATH-500", splits=("test",))


def math500_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    check = row.checker("answer", "math", {"answer": row.text("answer")}, tools)
    prompt = question_format.format_boxed(row.text("problem"))
    task = Task(prompt, id=row.name("unique_id"), domain=row.text("subject"))
    return TaskItem(task, check, difficulty=f"level {row.whole('level', 1, 5)}")


MBPP_HUB = HubDataset("google-research-datasets/mbpp", "full", splits=("train", "validation", "test"))


def mbpp_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    tests = row.texts("test_list")
    setup = [row.optional("test_setup_code"), *row.texts("test_imports", least=0)]
    spec = {
        "style": "asserts",
        "setup": "\n".join(filter(None, setup)),
        "asserts": (*tests, *row.texts("challenge_test_list", least=0)),
    }
    prompt = question_format.format_function(row.text(row.one_of("text", "prompt")), tests=tests)
    task = Task(prompt, id=f"mbpp/{row.name('task_id')}", domain="mbpp")
    return TaskItem(task, row.checker("test_list", "code", spec, tools))


MMLU_HUB = HubDataset("cais/mmlu", "all", splits=("test", "validation", "dev"))


def mmlu_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    options = row.texts("choices", least=2, most=len(LETTERS))
    gold = row.whole("answer", 0, len(options) - 1)
    task = Task(
        question_format.format_choice(row.text("question"), options),
        id=f"mmlu/{row.place}",
        domain=row.text("subject"),
    )
    return TaskItem(task, row.checker("answer", "choice", {"answer": LETTERS[gold], "options": options}, tools))


MMLU_PRO_HUB = HubDataset("TIGER-Lab/MMLU-Pro", splits=("test", "validation"))


def mmlu_pro_item(row: TaskRow, tools: GraderTools) -> TaskItem:
    """Make the row's item."""
    options = row.texts("options", least=2, most=len(LETTERS))
    gold = row.whole("answer_index", 0, len(options) - 1)
    if row.text("answer") != LETTERS[gold]:
        raise row.wrong("answer", f"expected {LETTERS[gold]!r}, as answer_index says, found {row.text('answer')!r}")
    task = Task(
        question_format.format_choice(row.text("question"), options),
        id=f"mmlu-pro/{row.name('question_id')}",
        domain=row.text("category"),
    )
    return TaskItem(task, row.checker("answer", "choice", {"answer": LETTERS[gold], "options": options}, tools))


_OWN_TASK_FIELDS = frozenset({"prompt", "context", "id", "domain", "difficulty", "split", "labels"})


def own_item(row: TaskRow, tools: GraderTools, default: Mapping[str, object] | None = None) -> TaskItem:
    """Make the row's item; `default` is the checker of rows that bring none: `{"checker": KIND, ...}`."""
    task = Task(
        row.text("prompt"),
        row.optional("context"),
        row.optional("id") or row.place,
        row.optional("domain"),
        row.texts("labels", least=0),
    )
    kind, spec = _own_checker(row, default)
    if kind in {"judge", "entry_point"}:
        spec = {"prompt": "\n\n".join(filter(None, (task.context, task.prompt))), **spec}
    check = row.checker("check" if row.has("check") else "checker", kind, spec, tools)
    return TaskItem(task, check, row.optional("difficulty"), _own_split(row))


def _own_checker(row: TaskRow, default: Mapping[str, object] | None) -> tuple[str, Mapping[str, object]]:
    spec = {
        field: row.data[field]
        for field in row.data
        if row.has(field) and field not in {*_OWN_TASK_FIELDS, "checker", "check"}
    }
    if row.has("check"):
        if spec:
            raise row.wrong(next(iter(spec)), "expected the checker's settings inside check, not beside it")
        spec = dict(row.part("check").data)
    if row.has("checker"):
        kind = row.text("checker")
    elif default is not None:
        kind = str(default.get("checker"))
        spec = {field: value for field, value in default.items() if field != "checker"} | spec
    else:
        raise row.wrong("checker", "this row has none, and none is given for the file")
    if kind not in CHECKERS:
        raise row.wrong("checker", str(UnknownName("kind of checker", kind, CHECKERS)))
    return kind, spec


def _own_split(row: TaskRow) -> TaskSplit | None:
    said = row.optional("split")
    if said and said not in set(TaskSplit):
        raise row.wrong("split", f"expected {', '.join(TaskSplit)}, found {said[:40]!r}")
    return TaskSplit(said) if said else None


RLPR_HUB = HubDataset("openbmb/RLPR-Train-Dataset")
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
    """Make the row's item."""
    source, reward = row.text("data_source"), row.part("reward_model")
    extra = row.part("extra_info") if row.has("extra_info") else None
    gold = reward.name("ground_truth").strip()
    kind = _rlpr_grader(source, extra.optional("answer_type") if extra else "", gold)
    check = reward.checker("ground_truth", kind, {"answer": gold}, tools)
    prompt = (question_format.format_lettered if kind == "choice" else question_format.format_boxed)(
        _rlpr_question(row)
    )
    task = Task(prompt, id=f"rlpr/{row.place}", domain=row.optional("ability") or source, labels=(source,))
    return TaskItem(task, check, difficulty=extra.optional("difficulty") if extra else "")


def _rlpr_grader(source: str, answer_type: str, gold: str) -> str:
    """Return the kind of checker; what is no letter or number, whatever its type says, is left to mathematics."""
    if any(name in source.casefold() for name in _RLPR_CHOICE_SOURCES):
        return "choice"
    kind = _RLPR_ANSWER_TYPES.get(answer_type.casefold(), "math")
    return kind if canonicalize(gold, AnswerForm(kind)) is not None else "math"


def _rlpr_question(row: TaskRow) -> str:
    """Return what the user says; a conversation is no question."""
    said = []
    for message in row.parts("prompt"):
        role, content = message.text("role"), message.text("content")
        if role not in ("system", "user"):
            raise message.wrong("role", f"expected system or user, found {role[:40]!r}")
        if role == "user":
            said.append(content.strip())
    if not said:
        raise row.wrong("prompt", "expected a message of the user")
    return "\n\n".join(said)
