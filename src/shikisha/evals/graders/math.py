"""Grade mathematical answers: equal to the right expression, however it is written.

Spelling comes first (`canonical_form`): it decides numbers, sets, pairs and most expressions within microseconds.
`math-verify` decides the rest, in processes of its own. Invariants: no expression hangs or slows the event loop. An
answer that cannot be shown equal in time is WRONG, as is usual in evaluations, and the evidence says so; UNGRADED means
that our own process failed. At most `size` processes run; a comparison that is cancelled ends its process. Ratios and
answers in words are compared by spelling alone: as algebra `6:1` would be 6, and a word the product of its letters.
Deliberately absent: partial credit for some members of a set.

Why processes: math-verify enforces its time limit by a signal. That works in the main thread only, would interrupt the
event loop, and is not delivered while a big number is being computed. Here the kernel limits the CPU time and memory of
each comparison, and the event loop only waits. A process serves many comparisons, since starting one takes half a
second; it has an empty environment and ends when its input does.
"""

import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec

from pydantic import Field

from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.fair_work import FairExecutor
from shikisha.core.kinds import Kind
from shikisha.core.toml import Table
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

# Characters of an expression that algebra is asked about.
_LONGEST = 1_000
_SHOWN = 200
_RELATION = re.compile(r"[=<>≤≥≠∈]|\\(?:neq?|leq?|geq?|lt|gt|in|equiv)\b")
_ORDER = re.compile(r"[<>≤≥]|\\(?:leq?|geq?|lt|gt)\b")
_MEMORY_BYTES = 2**30
_LIMIT_SIGNALS = frozenset({-signal.SIGPROF, -signal.SIGSEGV, -signal.SIGABRT})  # out of time, of stack, of memory


class MathSettings(Table):
    """The right expression, in LaTeX or plain."""

    answer: str = Field(min_length=1)


def build_math_grader(settings: MathSettings, tools: GraderTools) -> "MathGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader; MissingExtra without math-verify, ConfigError when the right answer is empty."""
    require_math_verify()
    return MathGrader(settings.answer)


KIND = Kind(settings=MathSettings, build=build_math_grader)


class MathGrader:
    """Grades the expression that an answer gives."""

    __slots__ = ("_canonical", "_comparer", "_figure", "_right")
    name = "math"
    form = AnswerForm.MATH

    def __init__(self, right: str, comparer: "ExpressionComparer | None" = None) -> None:
        written = extract_expression(right) or strip_reasoning(right)
        canonical = canonical_expression(written)
        if canonical is None:
            raise ConfigError("answer: expected an expression")
        self._right = written
        self._figure = expression_quantity(written)
        self._canonical = canonical
        self._comparer = comparer

    async def grade(self, answer: str) -> Grade:
        """Compare by spelling, then by algebra."""
        written = extract_expression(answer)
        found = None if written is None else canonical_expression(written)
        if written is None or found is None:
            return no_answer_grade(self.name, f"no expression found, expected {self._right}")
        same = self._spelled(written, found)
        if same is not None:
            return self._make_grade(found, same)
        comparer = self._comparer or shared_comparer()
        finding = await comparer.compare(to_latex(self._right), to_latex(written))
        if finding is Equivalence.EQUAL and not _RELATION.search(self._right):
            # "x - 1 = x + 1": sides that the answer equates must be equal.
            for one, other in equation_sides(written):
                finding = (
                    await comparer.compare(to_latex(one), to_latex(other)) if finding is Equivalence.EQUAL else finding
                )
        if finding is Equivalence.FAILED:
            return ungraded_grade(self.name, "the process that compares expressions failed")
        notes = {
            Equivalence.UNDECIDED: f"; not proved equal within {comparer.seconds:g} s",
            Equivalence.UNREAD: "; compared by spelling, since one of them cannot be parsed as mathematics",
        }
        return self._make_grade(found, finding is Equivalence.EQUAL, notes.get(finding, ""))

    def _spelled(self, written: str, found: str) -> bool | None:
        """Return whether they are the same, if spelling decides it."""
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
        """Whether their forms differ, though algebra would consider them equal.

        A set is not a pair or an interval, an interval is no inequality, a number in another base is not its
        digits, and an answer that equates different numbers ("4 = 5") is not the right one.
        """
        ours, theirs = outer_brackets(written), outer_brackets(self._right)
        if ours and theirs and ours != theirs:
            return True
        sides = ((written, self._right, theirs), (self._right, written, ours))
        if any(_ORDER.search(one) and not _ORDER.search(two) and (mark or "∪" in two) for one, two, mark in sides):
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


class Equivalence(StrEnum):
    """The result of a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    # One of them cannot be parsed as mathematics, so only spelling was compared.
    UNREAD = "unread"
    UNDECIDED = "undecided"  # too hard for the time and memory limits
    # No process could be started, or something else ended it.
    FAILED = "failed"


@lru_cache(maxsize=1)
def require_math_verify() -> None:
    """Raise MissingExtra when math-verify is not installed."""
    if find_spec("math_verify") is None:
        raise MissingExtra("math", "comparing mathematical expressions")


class ExpressionComparer:
    """Compares expressions, several at a time."""

    def __init__(self, size: int | None = None, seconds: float = 3.0) -> None:
        self.seconds = seconds
        self._threads = FairExecutor("algebra", size or min(4, os.cpu_count() or 1))
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
        """The ids of idle processes."""
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
            return Equivalence.FAILED  # cancelled: the result is not used
        finding = process.ask(right, found)
        if process.alive:
            self._idle.append(process)
        return finding


@lru_cache(maxsize=1)
def shared_comparer() -> ExpressionComparer:
    """Return the comparer that all graders share; its processes end with this process."""
    return ExpressionComparer()


class _ComparerProcess:
    """A child process that compares, one pair at a time."""

    def __init__(self, seconds: float) -> None:
        self._child = subprocess.Popen(  # noqa: S603 - our own code
            [sys.executable, "-I", "-c", f"{inspect.getsource(run_math_verify)}\nrun_math_verify()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # a keyboard interrupt is for the parent to handle
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
        """Compare a pair; the end of the process is a result, too."""
        reply = self._exchange({"right": right, "found": found})
        if reply is None:
            self.stop()
            return Equivalence.UNDECIDED if self._child.returncode in _LIMIT_SIGNALS else Equivalence.FAILED
        return Equivalence.EQUAL if reply["equal"] else Equivalence.DIFFERENT if reply["read"] else Equivalence.UNREAD

    def stop(self) -> None:
        """End it now, if it has not ended itself."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):  # unwritten data is not needed
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
        reply: dict[str, bool] | None = json.loads(line) if line.endswith(b"\n") else None
        return reply


class _PendingComparison:
    """One comparison and its process; it may be cancelled before, during and after."""

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


def run_math_verify() -> None:
    """Compare pairs of expressions until the input ends: one JSON line in, one out. Its source runs in a child process.

    The first line holds settings. The kernel ends the process when a comparison has used up its CPU time, even in the
    middle of raising 9 to the power of 9 to the power of 9, where no Python signal handler and no thread gets a turn.
    """
    import json
    import logging
    import resource
    import signal
    import sys

    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings["path"]
    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (settings["memory"], settings["memory"]))
    latex = [LatexExtractionConfig()]
    print("{}", flush=True)  # noqa: T201 - ready
    for line in sys.stdin:
        pair = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, settings["seconds"])  # its default action ends the process
        try:
            right, found = (
                parse(f"${pair[side]}$", extraction_config=latex, parsing_timeout=None) for side in ("right", "found")
            )
            result = {
                "equal": bool(verify(right, found, timeout_seconds=None)),
                "read": len(right) > 1 and len(found) > 1,
            }
        except (MemoryError, RecursionError):
            result = {"equal": False, "read": False}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(result), flush=True)  # noqa: T201 - the answer
