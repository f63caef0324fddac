"""Unit tests of a program, in a sandbox. All must pass.

How a program is found in an answer is said in `programs`, the layouts of tests in `code_settings`, how they are run in
`code_trials`. Invariants: the program runs in the sandbox and nowhere else; what tests expect is compared here whenever
it can be, and stays out of the sandbox then; no end of a program's process is a pass. A run without a report is the
program's doing only if the sandbox still answers: otherwise the answer is UNGRADED. What a harness beside the program
cannot keep apart is said in `inside`. Deliberately absent: a choice of sandbox (`Tools` brings one), partial marks.

Reading a harness's report: what the tests came to, with the evidence.

Invariant: a report is data that a hostile program may have written; whatever it holds is a Finding and no exception.
Nothing missing from a report counts as passed. Deliberately absent: how the report was come by (`code`).

Running a program's tests in a sandbox: programs that read and print one way, functions another.

`Printing` has one run a test, up to the first that fails; the program runs as it is. `Testing` takes functions through
all tests in one run: direct tests in the program's process, whose values are compared here, all others in the judge's,
with the program in a second process. If that ends without a report, one run a test tells which test it was, so that
many slow tests are not mistaken for a hanging one. Invariants: a report on tests is believed only of the judge's
process; before a program is blamed for a run without a result, the sandbox has shown that it still runs what does
nothing; if it does not, the finding is that nobody can tell. Deliberately absent: concurrency (the sandbox bounds its
own), and what a report means (`reports`).

What runs inside the sandbox around a program that reads and prints: as little as gives a test its limits.

This file's text is sent there whole. Nothing that is expected is in here, so there is nothing to protect: what the
program prints is compared outside, and how it ends is what the sandbox itself says. Deliberately absent: a report.
"""

import json
import marshal
import resource
import signal
import sys
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from secrets import token_hex
from types import ModuleType
from typing import TYPE_CHECKING

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.evals.graders import Grade, GraderTools, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.graders.code_tests import (
    COMPARISON_HOOK,
    CodeSettings,
    CodeTests,
    CodeTestStep,
    CodeTestStyle,
    decode_value,
    read_code_tests,
    same_output,
)
from shikisha.evals.graders.program_extraction import extract_program, syntax_problem
from shikisha.sandbox import Execution, Inputs, Sandbox, SandboxScript

Report = Mapping[str, object]

_TEXT_SHOWN = 300  # characters of an input, an output or a value


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """What tests came to: passed, not passed, or None where nobody can tell; and why."""

    passed: bool | None
    why: str


def shorten_text(text: str) -> str:
    """Return a text as it is shown in evidence: quoted, its middle left out when it is long."""
    if len(text) > _TEXT_SHOWN:
        text = f"{text[: _TEXT_SHOWN * 2 // 3]} ... {text[-_TEXT_SHOWN // 3 :]}"
    return repr(text)


def format_value(value: object) -> str:
    """Return a value as evidence shows it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, a list too deep
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN * 2 // 3]} ... {text[-_TEXT_SHOWN // 3 :]}"


def blocked_outcome(report: Report) -> CodeOutcome | None:
    """Return why the tests could not be begun; None when they were."""
    if isinstance(missing := report.get("missing"), list):
        return CodeOutcome(None, f"the sandbox lacks what the tests need: {', '.join(map(str, missing))}")
    if "broken" in report:
        return CodeOutcome(None, f"what the tests bring along fails by itself: {report['broken']}")
    if "unloaded" in report:
        return CodeOutcome(False, f"the program cannot be loaded: {report['unloaded']}")
    return None


def suite_outcome(report: Report) -> CodeOutcome:
    """Read the report of a unittest suite."""
    if (found := blocked_outcome(report)) is not None:
        return found
    passed, first = report.get("passed"), report.get("first")
    if isinstance(passed, int) and passed > 0 and first == []:
        return CodeOutcome(True, f"{passed} tests passed")
    what = ": ".join(map(str, first)) if isinstance(first, list) and first else "no test was run to its end"
    return CodeOutcome(False, what)


def steps_outcome(steps: Sequence[CodeTestStep], report: Report, tolerance: float | None) -> CodeOutcome:
    """Read the report of these steps."""
    if (found := blocked_outcome(report)) is not None:
        return found
    done = report.get("steps")
    outcomes = done if isinstance(done, list) else []
    for step, outcome in zip(steps, outcomes, strict=False):
        if (problem := _step_problem(step, outcome, tolerance)) is not None:
            return CodeOutcome(False, f"{step.shown}: {problem}")
    if len(outcomes) != len(steps):
        return CodeOutcome(False, f"{len(outcomes)} of {len(steps)} parts of the tests were run")
    return CodeOutcome(True, f"{sum(step.test for step in steps)} tests passed")


def _step_problem(step: CodeTestStep, outcome: object, tolerance: float | None) -> str | None:
    """Say what is wrong with the outcome of a step; None when nothing is."""
    if not isinstance(outcome, dict) or (step.valued and not outcome.keys() & {"value", "error"}):
        return "nothing that can be read was reported"
    try:
        if "error" in outcome:
            seen = ", ".join(format_value(decode_value(value)) for value in outcome.get("compared") or ())
            return f"{outcome['error']} (compared: {seen})" if seen else str(outcome["error"])
        value = decode_value(outcome["value"]) if step.valued else None
        if not step.valued or step.passes(value, tolerance):
            return None
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return f"a value that cannot be read was reported: {type(error).__name__}"
    return f"expected {format_value(step.expected)}, got {format_value(value)}"


if TYPE_CHECKING:
    from shikisha.evals.graders.harness_runner import RunnerRequest
    from shikisha.evals.graders.harness_solution import SolutionRequest

_SOLUTION_MODULES = ("inside_proxy", "inside_wire", "inside_peer", "inside")
_RUNNER_MODULES = (*_SOLUTION_MODULES, "inside_judge")
_SUITE_MODULES = (*_RUNNER_MODULES, "inside_suite")
_LARGE_OUTPUT = (
    50_000  # characters of an expected output from which it may be the sandbox's limit that a program has met
)


class StdioTestRun:
    """Tests of texts: what is read, what must be printed."""

    def __init__(self, settings: CodeSettings, sandbox: Sandbox) -> None:
        self._settings = settings
        self._sandbox = sandbox

    async def run(self, program: str) -> CodeOutcome:
        """Run the program once for each pair of texts."""
        pairs = self._settings.pairs
        for number, pair in enumerate(pairs, 1):
            given, expected = str(pair.input), str(pair.output)
            execution = await self._run(program, given)
            if execution.error is not None:
                finding = await self._blame(execution.error, expected)
            else:
                same = same_output(expected, execution.printed, self._settings.tolerance)
                finding = CodeOutcome(
                    same, f"expected {shorten_text(expected)}, printed {shorten_text(execution.printed)}"
                )
            if not finding.passed:
                return CodeOutcome(
                    finding.passed, f"test {number} of {len(pairs)}, input {shorten_text(given)}: {finding.why}"
                )
        return CodeOutcome(True, f"{len(pairs)} tests passed")

    async def _blame(self, error: str, expected: str) -> CodeOutcome:
        if len(expected) > _LARGE_OUTPUT:
            return CodeOutcome(
                None, f"{error} ({len(expected):,} characters are expected: does the sandbox let them out?)"
            )
        control = await self._run("", "")
        return CodeOutcome(False, error) if control.error is None else _sandbox_down(control)

    async def _run(self, program: str, stdin: str) -> Execution:
        settings = self._settings
        inputs: Inputs = {
            "setup": settings.setup,
            "program": program,
            "seconds": settings.seconds,
            "memory": settings.memory or 0,
        }
        call = "main(setup, program, seconds, memory)"
        return await self._sandbox.run(f"{_harness_source('inside_stdio')}\n{call}\n", inputs, stdin)


class FunctionTestRun:
    """Tests of functions: steps to be done, or a unittest suite."""

    __test__ = False  # for pytest: this is no class of tests

    def __init__(self, settings: CodeSettings, trial: CodeTests, sandbox: Sandbox) -> None:
        self._settings = settings
        self._trial = trial
        self._sandbox = sandbox

    async def run(self, program: str) -> CodeOutcome:
        """Take the program through everything in one run, or else through one test a run."""
        report, execution = await self._report(program, self._trial.steps)
        if report is None:
            return await self._one_by_one(program, execution)
        return await self._finding(self._trial.steps, report, execution)

    async def _finding(self, steps: Sequence[CodeTestStep], report: Report, execution: Execution) -> CodeOutcome:
        finding = suite_outcome(report) if self._trial.suite else steps_outcome(steps, report, self._settings.tolerance)
        if finding.passed is None and self._trial.direct:  # the program's process says so: does it without the program?
            control, execution = await self._report("", ())
            if control is None or blocked_outcome(control) is None:
                return (
                    _sandbox_down(execution) if control is None else CodeOutcome(False, "the program forged a report")
                )
        if finding.passed is False and report.get("gone"):  # the judge says so; how it ended, the sandbox says
            return await self._blame(execution, f"{finding.why}: ")
        return finding

    async def _one_by_one(self, program: str, execution: Execution) -> CodeOutcome:
        steps = self._trial.steps
        tests = [place for place, step in enumerate(steps) if step.test]
        for place in tests if len(tests) > 1 else ():
            chosen = [step for step in steps[:place] if not step.test] + [steps[place]]
            report, execution = await self._report(program, chosen)
            if report is None:
                return await self._blame(execution, f"{steps[place].shown}: ")
            finding = await self._finding(chosen, report, execution)
            if not finding.passed:
                return finding
        return CodeOutcome(True, f"{len(tests)} tests passed") if len(tests) > 1 else await self._blame(execution)

    async def _blame(self, execution: Execution, where: str = "") -> CodeOutcome:
        report, control = await self._report("", (), control=True)
        if report is None or report.get("gone"):
            return _sandbox_down(control)
        return CodeOutcome(False, f"{where}{execution.error or 'the process ended before the tests did'}")

    async def _report(
        self, program: str, steps: Sequence[CodeTestStep], *, control: bool = False
    ) -> tuple[Report | None, Execution]:
        """Run the tests; the report is None when there is none. `control`: nothing is tested but the sandbox."""
        order = self._order(program, [] if control else [step.direct for step in steps], control=control)
        if not self._trial.direct:
            return await self._judged(order, steps, control=control)
        nonce = token_hex(16)
        inputs = {"order": json.dumps(order), "nonce": nonce}
        execution = await self._sandbox.run(
            _harness_code("main(order, globals().pop('nonce'))", *_SOLUTION_MODULES), inputs
        )
        text = execution.value or ""
        return (_parse_report(text[len(nonce) :]) if text.startswith(nonce) else None), execution

    async def _judged(
        self, order: "SolutionRequest", steps: Sequence[CodeTestStep], *, control: bool
    ) -> tuple[Report | None, Execution]:
        """Run the tests in the judge's process; whatever it says is our own harness's word."""
        judged = json.dumps(self._judge_order(steps, control=control))
        suite = self._trial.suite and not control
        code = (
            _harness_code("judge(order, suited)", *_SUITE_MODULES)
            if suite
            else _harness_code("judge(order)", *_RUNNER_MODULES)
        )
        follower = SandboxScript(_harness_code("attend(order)", *_SOLUTION_MODULES), {"order": json.dumps(order)})
        execution, other = await self._sandbox.run_pair(SandboxScript(code, {"order": judged}), follower)
        report = None if execution.error is not None else _parse_report(execution.value or "")
        return report, other if report is not None else execution

    def _order(self, program: str, steps: Sequence[dict[str, str]], *, control: bool) -> "SolutionRequest":
        settings = self._settings
        return {
            "program": program,
            "setup": "" if control else self._trial.setup,
            "behind": "" if control else self._trial.uses.imports,
            "common": [] if control else list(self._trial.common),
            "steps": list(steps),
            "needs": [] if control else list(settings.needs),
            "follow": self._trial.uses.stateful_modules,
            "seconds": settings.seconds,
            "memory": 0 if control else settings.memory or 0,
        }

    def _judge_order(self, steps: Sequence[CodeTestStep], *, control: bool) -> "RunnerRequest":
        trial, settings = (CodeTests(None) if control else self._trial), self._settings
        return {
            "setup": trial.setup,
            "before": trial.before,
            "steps": [step.wire for step in steps],
            "suite": trial.suite,
            "methods": trial.methods,
            "entry": settings.entry or "",
            "candidate": trial.candidate,
            "seen": COMPARISON_HOOK,
            "names": list(trial.uses.names),
            "allowed": list(trial.uses.own),
            "called": list(trial.uses.called),
            "classes": list(trial.uses.classes),
            "needs": [] if control else list(settings.needs),
            "follow": self._trial.uses.stateful_modules,
            "common": list(trial.common),
            "modules": list(trial.uses.modules),
            "stored": list(trial.uses.stored),
            "seconds": settings.seconds,
        }


def _parse_report(text: str) -> Report | None:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def _sandbox_down(control: Execution) -> CodeOutcome:
    return CodeOutcome(None, f"the sandbox does not run a program that does nothing: {control.error or 'no report'}")


@cache
def _harness_code(call: str, *names: str) -> str:
    """Return what is run in the sandbox: files of ours one after the other, and a call.

    They go as text, and as what Python made of it here: the sandbox's Python takes that if it is of the same kind.
    """
    lines = "".join(
        f"\nsys.modules['shikisha.grade.{name}'] = sys.modules[__name__]\n{_harness_source(name)}" for name in names
    )
    whole = f"import sys{lines}"
    ready = b2a_base64(marshal.dumps(compile(whole, "harness", "exec", dont_inherit=True)), newline=False).decode()
    return (
        "import _frozen_importlib_external, binascii, marshal\n"
        f"if _frozen_importlib_external.MAGIC_NUMBER == {MAGIC_NUMBER!r}:\n"
        f"    exec(marshal.loads(binascii.a2b_base64({ready!r})))\n"
        f"else:\n    exec(compile({whole!r}, 'harness', 'exec', dont_inherit=True))\n{call}\n"
    )


@cache
def _harness_source(name: str) -> str:
    return files("shikisha.evals.graders").joinpath(f"{name}.py").read_text(encoding="utf-8")


__all__ = ["CodeChecker", "CodeSettings", "build_code_checker"]

_PROGRAM_SHOWN = 2_000  # characters of a program in a grade


def build_code_checker(settings: CodeSettings, tools: GraderTools) -> "CodeChecker":
    """Return the checker; ConfigError without a sandbox for full Python, or when the tests hold no test."""
    from shikisha.sandbox.monty import MontySandbox

    if tools.sandbox is None:
        raise ConfigError("tests of code need a sandbox, and there is none (see shikisha doctor --sandbox)")
    if isinstance(tools.sandbox, MontySandbox):
        raise ConfigError("tests of code need a sandbox with full Python; in Monty right programs would fail")
    if settings.style is CodeTestStyle.STDIO:
        return CodeChecker(settings, StdioTestRun(settings, tools.sandbox))
    try:
        trial = read_code_tests(settings)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return CodeChecker(settings, FunctionTestRun(settings, trial, tools.sandbox), trial.entry)


class CodeChecker:
    """Grades programs by one task's tests; `entry` is the function that an answer should define."""

    name = "code"

    def __init__(self, settings: CodeSettings, tests: StdioTestRun | FunctionTestRun, entry: str | None = None) -> None:
        self._settings = settings
        self._tests = tests
        self._entry = entry

    async def grade(self, answer: str) -> Grade:
        """Find the program, run the tests, say which one failed and how."""
        program = extract_program(answer, self._entry, self._settings.prompt)
        if program is None:
            return no_answer_grade(self.name, "nothing in the answer looks like Python")
        if problem := syntax_problem(program):
            return grade_from_score(self.name, 0.0, program[:_PROGRAM_SHOWN], problem)
        try:
            finding = await self._tests.run(program)
        except ConfigError:  # the sandbox is refused as a whole: nothing will ever be graded
            raise
        except (ShikishaError, OSError, RuntimeError) as error:
            return ungraded_grade(self.name, f"the sandbox failed: {type(error).__name__}: {error}")
        if finding.passed is None:
            return ungraded_grade(self.name, finding.why)
        return grade_from_score(self.name, float(finding.passed), program[:_PROGRAM_SHOWN], finding.why)


_CALL_DEPTH = 1_000  # calls within calls, as Python itself has it


class TimeLimitExceeded(BaseException):
    """A test has had its time."""


def run_stdio_program(setup: str, program: str, seconds: float, memory: int) -> None:
    """Run the program as a script; memory in bytes beside what is taken already (0: what the sandbox gives)."""

    def ring(_: int, __: object) -> None:
        raise TimeLimitExceeded(f"no end after {seconds:g} s")

    if memory:
        most = memory + 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    sys.setrecursionlimit(_CALL_DEPTH)
    sys.argv = ["program.py"]
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    file = run_stdio_program.__code__.co_filename  # so that an error tells the program's line
    for source in (setup, program):
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what it is for
