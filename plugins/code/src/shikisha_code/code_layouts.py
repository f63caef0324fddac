"""The published sets of programming tasks: how a row becomes a task with the `code` grader.

Invariants are those of `evals.tasksets.taskset_loader`. A packed test file is decoded without running what it holds.
"""

import ast
import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence

from shikisha.core.task import Task
from shikisha.evals.graders import Grade, Grader, GraderTools
from shikisha.evals.taskset import TaskItem
from shikisha.evals.tasksets.task_rows import HubDataset, TaskRow
from shikisha.evals.tasksets.taskset_loader import FUNCTION, PROGRAM, TaskLayout, with_instruction
from shikisha_code.code_tests import COMMON_SETUP


def format_function(question: str, code: str = "", tests: Sequence[str] = ()) -> str:
    """Return the prompt of a programming task; `code` is its starting point and `tests` name the function."""
    parts = [question.strip()]
    if code.strip():
        parts.append(f"Begin from this:\n```python\n{code.strip()}\n```")
    if tests:
        parts.append("Your code must pass these tests:\n" + "\n".join(tests))
    return with_instruction("\n\n".join(parts), FUNCTION)


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


BIGCODEBENCH = TaskLayout(HubDataset("bigcode/bigcodebench", splits=("v0.1.4",)), bigcodebench_item)
HUMANEVAL = TaskLayout(HubDataset("openai/openai_humaneval", splits=("test",)), humaneval_item)
LIVECODEBENCH = TaskLayout(HubDataset("livecodebench/code_generation_lite", splits=("test",)), livecodebench_item)
MBPP = TaskLayout(
    HubDataset("google-research-datasets/mbpp", "full", splits=("train", "validation", "test")), mbpp_item
)
