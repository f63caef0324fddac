"""Code in a sandbox: what reaches it, what it may use, how it ends; and the worker that runs it."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import psutil
import pytest
import pytest_asyncio

from shikisha.core.budget import Price
from shikisha.core.call import Card, GrantedStep, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.sandbox import Execution, SandboxLimits, ScriptedSandbox
from shikisha.sandbox.availability import MontySandbox
from shikisha.workers import python
from shikisha.workers.python import PythonWorker

SMALL = SandboxLimits(seconds=0.5, memory=16 * 2**20, output=1_000, depth=50)
PATIENT = SandboxLimits(seconds=30)
CARD = Card("python", kind="python", price=Price())


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[MontySandbox]:
    async with MontySandbox(SMALL, processes=1) as opened:
        yield opened


def asked(subtask: str, *granted: str | None, question: str = "What is it?") -> Request:
    shown = tuple(GrantedStep(i, f"part {i}", text, None if text else "empty") for i, text in enumerate(granted))
    return Request(Task(question), subtask, shown)


def fenced(code: str) -> str:
    return f"Run this:\n```python\n{code}\n```\nand nothing else."


async def answer(subtask: str, *granted: str | None) -> str:
    worker = python.build(python.PythonSettings(), CARD, SecretStore({}))
    return (await worker.perform(asked(subtask, *granted))).text


@pytest.mark.parametrize(
    ("code", "execution"),
    [
        ("print('a')\n1 + 1", Execution("a\n", "2")),
        ("x = 3", Execution("", None)),
        ("question.upper()", Execution("", "WHAT")),
        ("[1, 'é', None, (2.5, True), {'k': [b'x']}]", Execution("", "[1, 'é', None, (2.5, True), {'k': [b'x']}]")),
    ],
)
async def test_code_prints_and_has_a_value(sandbox: MontySandbox, code: str, execution: Execution) -> None:
    assert await sandbox.run(code, {"question": "what"}) == execution


async def test_nothing_is_left_over_from_another_run(sandbox: MontySandbox) -> None:
    await sandbox.run("left = 1", {"given": "x"})
    assert "NameError" in str((await sandbox.run("left", {})).error)
    assert "NameError" in str((await sandbox.run("given", {})).error)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("while True: pass", "TimeoutError"),
        ("sum(range(10**12))", "TimeoutError"),
        ("import time\ntime.sleep(60)", "TimeoutError"),
        ("x = [0]\nwhile True: x = x + x", "MemoryError"),
        ("'x' * 10**9", "MemoryError"),
        ("10 ** 10 ** 9", "MemoryError"),
        ("x = [1]\nfor i in range(60): x = [x, x]\nx", "MemoryError"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("while True: print('x' * 100)", "MemoryError"),
        ("'x' * 1_001", "more than 1,000 characters"),
        ("print('x' * 600)\n'x' * 600", "more than 1,000 characters"),
        ("10 ** 5_000", "ValueError"),
    ],
)
async def test_code_that_takes_too_much_ends_with_an_error(sandbox: MontySandbox, code: str, error: str) -> None:
    begun = monotonic()
    assert error in str((await sandbox.run(code, {})).error)
    assert monotonic() - begun < 5
    assert (await sandbox.run("1 + 1", {})).value == "2"


async def test_an_interpreter_that_starts_slowly_is_not_the_fault_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "monty"
    slow.write_text(f'#!/bin/sh\nsleep 2.5\nexec {shutil.which("monty", path=Path(sys.executable).parent)} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("MONTY_BIN", str(slow))
    async with MontySandbox(SMALL, processes=1) as sandbox:
        assert (await sandbox.run("1 + 1", {})).value == "2"


async def test_inputs_too_large_for_the_memory_are_refused(sandbox: MontySandbox) -> None:
    execution = await sandbox.run("1", {"results": ["x" * 10**7]})
    assert "characters: more than" in str(execution.error)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['SECRET']",
        "import os\nos.getenv('SECRET')",
        "open('/proc/self/environ').read()",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "import os\nos.listdir('/')",
        "open('/tmp/from-the-sandbox', 'w')",
        "import socket",
        "import urllib.request",
        "import subprocess",
        "import ctypes",
        "__import__('os').system('true')",
    ],
)
async def test_invariant_8_no_key_file_or_network_reaches_a_sandbox(sandbox: MontySandbox, code: str) -> None:
    execution = await sandbox.run(code, {})
    assert execution.error is not None
    assert execution.value is None


@pytest.mark.parametrize(
    ("code", "parsed"), [("def f(", False), ("a\0b", False), ("Please compute it.", False), ("1 / 0", True)]
)
async def test_text_that_is_no_program_is_told_from_a_program_that_fails(
    sandbox: MontySandbox, code: str, parsed: bool
) -> None:
    execution = await sandbox.run(code, {})
    assert execution.error is not None
    assert execution.parsed is parsed


async def test_half_a_character_is_an_error_and_no_crash(sandbox: MontySandbox) -> None:
    assert "SyntaxError" in str((await sandbox.run("'\ud800'", {})).error)
    assert "UnicodeEncodeError" in str((await sandbox.run("x", {"x": "\ud800"})).error)


async def test_a_cancelled_run_ends_at_once_and_frees_its_process() -> None:
    begun = monotonic()
    async with MontySandbox(PATIENT, processes=1) as sandbox:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sandbox.run("while True: pass", {})
        assert (await sandbox.run("1 + 1", {})).value == "2"
    assert monotonic() - begun < PATIENT.seconds / 2


async def test_runs_that_wait_for_a_process_can_be_cancelled() -> None:
    begun = monotonic()
    async with MontySandbox(PATIENT, processes=1) as sandbox:
        runs = [asyncio.create_task(sandbox.run("while True: pass", {})) for _ in range(20)]
        await asyncio.sleep(0.05)
        for run in runs:
            run.cancel()
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert (await sandbox.run("2 + 2", {})).value == "4"
    assert monotonic() - begun < PATIENT.seconds / 2


async def test_an_interpreter_that_dies_is_an_error_and_is_replaced() -> None:
    others = set(psutil.Process().children())
    async with MontySandbox(PATIENT, processes=1) as sandbox:
        await sandbox.run("1", {})
        (interpreter,) = set(psutil.Process().children()) - others
        run = asyncio.create_task(sandbox.run("while True: pass", {}))
        await asyncio.sleep(0.05)
        interpreter.kill()
        assert "the interpreter was ended" in str((await run).error)
        assert (await sandbox.run("1 + 1", {})).value == "2"


async def test_the_event_loop_goes_on_while_code_runs(sandbox: MontySandbox) -> None:
    run = asyncio.create_task(sandbox.run("while True: pass", {}))
    ticks = 0
    while not run.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 10


def test_a_program_that_never_closes_its_sandbox_ends_well() -> None:
    program = (
        "import asyncio\n"
        "from shikisha.sandbox.availability import shared_monty\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.1): await shared_monty().run('while True: pass', {})\n"
        "    except TimeoutError: print((await shared_monty().run('6 * 7', {})).value)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-Werror", "-c", program], capture_output=True, text=True, timeout=30)  # noqa: S603 - our own code
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "42\n", "")


@pytest.mark.parametrize(
    ("subtask", "expected"),
    [
        ("6 * 7", "42"),
        (fenced("6 * 7"), "42"),
        (fenced("print('printed')\n'value'"), "printed"),
        (fenced("print('two')\nprint('lines')"), "two\nlines"),
        ("len(question)", "11"),
    ],
)
async def test_the_answer_is_what_is_printed_or_else_the_last_value(subtask: str, expected: str) -> None:
    assert await answer(subtask) == expected


async def test_code_is_taken_from_the_last_granted_answer_when_the_subtask_is_prose() -> None:
    assert await answer("Run the code above.", fenced("1"), f"First:\n{fenced('2')}\nthen:\n{fenced('3')}") == "3"
    assert await answer("Run the code above.", fenced("1"), None) == "1"
    assert await answer("40 + 2", fenced("1")) == "42"


async def test_invariant_2_code_sees_the_question_and_the_granted_answers_only() -> None:
    sandbox = ScriptedSandbox([Execution(value="x")])
    await PythonWorker(sandbox).perform(asked("x", "one", None, "three"))
    question = {"question": "What is it?", "context": ""}
    assert sandbox.calls == [("x", question | {"results": ["one", None, "three"]})]


@pytest.mark.parametrize(
    ("subtask", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("Please compute it.", "SyntaxError"),
        (f"{fenced('1')}\n{fenced('2')}", "SyntaxError"),
        ("x = 1", "printed nothing"),
        ("print()", "printed nothing"),
    ],
)
async def test_code_that_fails_is_a_tool_error_that_says_why(subtask: str, message: str) -> None:
    with pytest.raises(WorkerError, match=message) as caught:
        await answer(subtask)
    assert caught.value.fault.kind is FaultKind.TOOL_ERROR
    assert not caught.value.fault.kind.retryable


async def test_what_was_printed_before_an_error_is_kept_as_evidence() -> None:
    with pytest.raises(WorkerError) as caught:
        await answer("print('so far')\n1 / 0")
    assert caught.value.fault.partial == "so far\n"
