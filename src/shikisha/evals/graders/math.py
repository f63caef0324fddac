"""The checker of mathematical answers: equal to the right expression, however it is written.

Spelling goes first (`canon_math`): numbers, sets, pairs and most expressions are decided by it within microseconds.
What it cannot decide goes to `algebra`. Invariants: no expression hangs or slows the event loop; an answer that is so
hard that it cannot be shown equal in time is WRONG, as evaluations have it, and says so; UNGRADED is only what our own
process failed at. Ratios, and answers in words, are compared by spelling alone: as algebra `6:1` would be 6, and a word
a product of its letters. Deliberately absent: part marks for some members of a set.

Whether two expressions are equal, by `math-verify` in processes of its own.

Why processes: math-verify's own time limit is a signal, which works in the main thread only, would interrupt the event
loop, and does not come through while a big number is being computed. Here each comparison has its seconds of CPU time
and its memory, kept by the kernel, and the event loop only waits. A process is kept for the next comparison (starting
one takes half a second), knows no environment variable, and ends when its input does. Invariants: at most `size`
processes; a comparison that is cancelled ends its process. Deliberately absent: spelling (see `canon_math`), which
decides nearly all answers without coming here.

The process in which two expressions are compared; a script, started by `algebra` and by nobody else.

One JSON line in, `{"right": …, "found": …}`, one out. Invariant: no comparison outlives its seconds of CPU time,
whatever it is: the kernel ends the process, also in the middle of raising 9 to the power of 9 to the power of 9, where
no Python signal handler and no thread gets a turn. Nothing of Shikisha is imported here. Deliberately absent:
recovering; the parent starts another process.
"""

import asyncio
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.evals.graders import Grade, GraderTools, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.graders.answer_extraction import strip_reasoning
from shikisha.evals.graders.canonical_form import (
    AnswerForm,
    canonical_expression,
    equation_sides,
    expression_quantity,
    extract_expression,
    has_base,
    has_contradiction,
    outer_brackets,
    to_latex,
)
from shikisha.evals.graders.number import quantities_agree

_CHILD_SCRIPT = Path(__file__).with_name("algebra_child.py")
_MEMORY_BYTES = 2**30
_LIMIT_SIGNALS = frozenset({-signal.SIGPROF, -signal.SIGSEGV, -signal.SIGABRT})  # out of time, of stack, of memory


class Equivalence(StrEnum):
    """What came of comparing."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNREAD = "unread"  # one of them is no mathematics that can be read, so only its spelling was compared
    UNDECIDED = "undecided"  # too hard for the time and memory there is
    FAILED = "failed"  # no process could be had, or something else ended it


@lru_cache(maxsize=1)
def require_math_verify() -> None:
    """Raise MissingExtra when math-verify is not installed."""
    if find_spec("math_verify") is None:
        raise MissingExtra("math", "comparing mathematical expressions")


class ExpressionComparer:
    """Compares expressions, several at a time."""

    def __init__(self, size: int | None = None, seconds: float = 3.0) -> None:
        self.seconds = seconds
        self._threads = ThreadPoolExecutor(size or min(4, os.cpu_count() or 1), "algebra")
        self._idle: list[_ComparerProcess] = []
        weakref.finalize(self, _stop_processes, self._idle)

    async def compare(self, right: str, found: str) -> Equivalence:
        """Compare two expressions in LaTeX."""
        turn = _PendingComparison()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._compare, turn, right, found)
        except asyncio.CancelledError:
            turn.cancel()
            raise

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the processes that wait for the next comparison."""
        return tuple(process.pid for process in self._idle)

    def close(self) -> None:
        """End the processes; a later comparison starts new ones."""
        _stop_processes(self._idle)

    def _take_process(self) -> "_ComparerProcess":
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
            process.stop()
        return _ComparerProcess(self.seconds)

    def _compare(self, turn: "_PendingComparison", right: str, found: str) -> Equivalence:
        try:
            process = self._take_process()
        except (OSError, ValueError):
            return Equivalence.FAILED
        if not turn.begin(process):
            self._idle.append(process)
            return Equivalence.FAILED  # cancelled: nobody reads it
        finding = process.ask(right, found)
        if process.alive:
            self._idle.append(process)
        return finding


@lru_cache(maxsize=1)
def shared_comparer() -> ExpressionComparer:
    """Return the one that all checkers share; its processes end with this one."""
    return ExpressionComparer()


class _ComparerProcess:
    """A child process that compares, one pair at a time."""

    def __init__(self, seconds: float) -> None:
        self._child = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", str(_CHILD_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
        if self._exchange({"path": sys.path, "seconds": seconds, "memory": _MEMORY_BYTES}) is None:
            self.stop()
            raise ValueError("the process did not start")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._child.poll() is None

    def ask(self, right: str, found: str) -> Equivalence:
        """Compare a pair; when the process ends over it, that is a finding too."""
        told = self._exchange({"right": right, "found": found})
        if told is None:
            self.stop()
            return Equivalence.UNDECIDED if self._child.returncode in _LIMIT_SIGNALS else Equivalence.FAILED
        return Equivalence.EQUAL if told["equal"] else Equivalence.DIFFERENT if told["read"] else Equivalence.UNREAD

    def stop(self) -> None:
        """End it now, if it has not ended itself."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was still to be written is not wanted any more
                    pipe.close()
        self._child.wait()

    def kill(self) -> None:
        """End it in the middle of a comparison, from another thread."""
        self._child.kill()

    def _exchange(self, message: object) -> dict[str, bool] | None:
        if self._child.stdin is None or self._child.stdout is None:
            return None
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except OSError:
            return None
        told: dict[str, bool] | None = json.loads(line) if line.endswith(b"\n") else None
        return told


class _PendingComparison:
    """One comparison's hold on a process, which may be cancelled before, during and after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _ComparerProcess | None = None
        self._cancelled = False

    def begin(self, process: _ComparerProcess) -> bool:
        with self._lock:
            self._process = process
            return not self._cancelled

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()


def _stop_processes(processes: Iterable[_ComparerProcess]) -> None:
    for process in list(processes):
        process.stop()


_LONGEST = 1_000  # characters of an expression that algebra is asked about
_SHOWN = 200
_RELATION = re.compile(r"[=<>≤≥≠∈]|\\(?:neq?|leq?|geq?|lt|gt|in|equiv)\b")


class MathSettings(BaseModel):
    """The right expression, in LaTeX or plain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    answer: str = Field(min_length=1)


def build_math_checker(settings: MathSettings, tools: GraderTools) -> "MathChecker":  # noqa: ARG001 - every checker's signature
    """Return the checker; MissingExtra without math-verify, ConfigError when the right answer is empty."""
    require_math_verify()
    return MathChecker(settings.answer)


class MathChecker:
    """Grades the expression that an answer gives."""

    __slots__ = ("_algebra", "_canonical", "_figure", "_right")
    name = "math"
    form = AnswerForm.MATH

    def __init__(self, right: str, algebra: ExpressionComparer | None = None) -> None:
        written = extract_expression(right) or strip_reasoning(right)
        canonical = canonical_expression(written)
        if canonical is None:
            raise ConfigError("answer: expected an expression")
        self._right = written
        self._figure = expression_quantity(written)
        self._canonical = canonical
        self._algebra = algebra

    async def grade(self, answer: str) -> Grade:
        """Compare by spelling, then by algebra."""
        written = extract_expression(answer)
        found = None if written is None else canonical_expression(written)
        if written is None or found is None:
            return no_answer_grade(self.name, f"no expression found, expected {self._right}")
        same = self._spelled(written, found)
        if same is not None:
            return self._make_grade(found, same)
        algebra = self._algebra or shared_comparer()
        finding = await algebra.compare(to_latex(self._right), to_latex(written))
        if finding is Equivalence.EQUAL and not _RELATION.search(self._right):
            for one, other in equation_sides(written):  # "x - 1 = x + 1": what is said to be equal must be
                finding = (
                    await algebra.compare(to_latex(one), to_latex(other)) if finding is Equivalence.EQUAL else finding
                )
        if finding is Equivalence.FAILED:
            return ungraded_grade(self.name, "the process that compares expressions failed")
        notes = {
            Equivalence.UNDECIDED: f"; not shown equal within {algebra.seconds:g} s",
            Equivalence.UNREAD: "; compared by spelling, since not both can be read as mathematics",
        }
        return self._make_grade(found, finding is Equivalence.EQUAL, notes.get(finding, ""))

    def _spelled(self, written: str, found: str) -> bool | None:
        """Return whether they are the same, where spelling can tell."""
        ours = None if self._figure is None else expression_quantity(written)
        if ours is not None and self._figure is not None:
            return quantities_agree(ours, self._figure)
        if found == self._canonical:
            return True
        if self._differs(written):
            return False
        if any(_is_wording(one) for one in (found, self._canonical)) or len(written) > _LONGEST:
            return False
        return None

    def _differs(self, written: str) -> bool:
        """Return whether the forms say that they differ, though algebra would make one of them the other.

        A set is no pair or interval, a number in another base is not its digits, and of the numbers that an answer
        says to be equal none is another than the right one ("4 = 5").
        """
        ours, theirs = outer_brackets(written), outer_brackets(self._right)
        if ours and theirs and ours != theirs:
            return True
        if has_base(written) and not has_base(self._right):
            return True
        return not _RELATION.search(self._right) and has_contradiction(written)

    def _make_grade(self, found: str, right: bool, note: str = "") -> Grade:
        shown = found[:_SHOWN]
        evidence = f"found {shown}, as expected" if right else f"found {shown}, expected {self._right}{note}"
        return grade_from_score(self.name, float(right), shown, evidence)


def _is_wording(canonical: str) -> bool:
    words = canonical.replace(" ", "").replace("-", "")
    return ":" in canonical or (words.isalpha() and len(words) > 3)


def run_math_verify() -> None:
    """Take the settings line, then compare until the input ends."""
    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings["path"]
    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (settings["memory"], settings["memory"]))
    latex = [LatexExtractionConfig()]
    print("{}", flush=True)  # noqa: T201 - ready
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, settings["seconds"])  # its default action ends the process
        try:
            right, found = (
                parse(f"${asked[side]}$", extraction_config=latex, parsing_timeout=None) for side in ("right", "found")
            )
            told = {
                "equal": bool(verify(right, found, timeout_seconds=None)),
                "read": len(right) > 1 and len(found) > 1,
            }
        except (MemoryError, RecursionError):
            told = {"equal": False, "read": False}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(told), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    run_math_verify()
