"""Grade a program by its tests, which run in a sandbox. All of them must pass.

Invariants: the program runs in the sandbox and nowhere else. Expected values are compared here whenever that is
possible, and then never enter the sandbox. A process that merely ends has passed no test. A report is data that a
hostile program may have written: whatever it holds becomes a CodeOutcome and never an exception, and what is missing
from it has not passed. A run without a report counts against the program only if the sandbox still runs an empty one;
otherwise the answer is UNGRADED. Deliberately absent: a choice of sandbox (`GraderTools` brings one), partial credit,
and concurrency, which the sandbox bounds itself.

`StdioTestRun` runs the program once a test, up to the first failure. `FunctionTestRun` runs all tests at once: direct
tests as calls in the program's process, all others in the test runner's process (`harness_runner`) with the program in
a second one. Only the test runner's report is believed. If a run ends without a report, each test runs alone, so that
the failing one can be named and many slow tests are not mistaken for a hanging one.
"""

import inspect
import json
import marshal
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from secrets import token_hex
from typing import TYPE_CHECKING

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.kinds import Kind
from shikisha.evals.graders import Grade, GraderTools, ScriptedGrader, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.sandbox import Execution, Inputs, Sandbox, SandboxScript
from shikisha.sandbox.availability import MontySandbox
from shikisha_code.code_tests import (
    COMPARISON_HOOK,
    CodeSettings,
    CodeTests,
    CodeTestStep,
    CodeTestStyle,
    decode_value,
    read_code_tests,
    same_output,
)
from shikisha_code.instrumented_tests import HOOKS
from shikisha_code.program_extraction import extract_program, syntax_problem

if TYPE_CHECKING:
    from shikisha_code.harness_solution import SolutionRequest

__all__ = ["CodeGrader", "CodeSettings", "build_code_grader"]

Report = Mapping[str, object]

_PROGRAM_SHOWN = 2_000  # characters of a program in a grade
# Characters of an input, an output or a value.
_TEXT_SHOWN = 300
# From this many expected characters on, a failed run may have met the sandbox's output limit instead of a fault.
_LARGE_OUTPUT = 50_000
# The harness files that each process receives, in the order in which they import one another.
_SOLUTION_MODULES = ("harness_proxy", "harness_codec", "harness_rpc", "harness_solution")
RUNNER_MODULES = (*_SOLUTION_MODULES, "harness_peer", "harness_runner")


def build_code_grader(settings: CodeSettings, tools: GraderTools) -> "CodeGrader":
    """Return the grader; ConfigError without a sandbox for full Python, or when the settings hold no test."""
    if tools.sandbox is None:
        raise ConfigError("tests of code need a sandbox, and there is none (see shikisha doctor --sandbox)")
    if isinstance(tools.sandbox, MontySandbox):
        raise ConfigError("tests of code need a sandbox with full Python; Monty would fail correct programs")
    if settings.style is CodeTestStyle.STDIO:
        return CodeGrader(settings, StdioTestRun(settings, tools.sandbox))
    try:
        tests = read_code_tests(settings)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return CodeGrader(settings, FunctionTestRun(settings, tests, tools.sandbox), tests.entry)


KIND = Kind(settings=CodeSettings, build=build_code_grader, double=lambda: ScriptedGrader({}))


class CodeGrader:
    """Grades programs by one task's tests; `entry` is the function that an answer should define."""

    name = "code"

    def __init__(
        self, settings: CodeSettings, tests: "StdioTestRun | FunctionTestRun", entry: str | None = None
    ) -> None:
        self._settings = settings
        self._tests = tests
        self._entry = entry

    async def grade(self, answer: str) -> Grade:
        """Extract the program, run its tests, and say which one failed and how."""
        program = extract_program(answer, self._entry, self._settings.prompt)
        if program is None:
            return no_answer_grade(self.name, "nothing in the answer looks like Python")
        if problem := syntax_problem(program):
            return grade_from_score(self.name, 0.0, program[:_PROGRAM_SHOWN], problem)
        try:
            outcome = await self._tests.run(program)
        except ConfigError:  # the sandbox is refused as a whole: nothing will ever be graded
            raise
        except (ShikishaError, OSError, RuntimeError) as error:
            return ungraded_grade(self.name, f"the sandbox failed: {type(error).__name__}: {error}")
        if outcome.passed is None:
            return ungraded_grade(self.name, outcome.why)
        grade = grade_from_score(self.name, float(outcome.passed), program[:_PROGRAM_SHOWN], outcome.why)
        return replace(grade, shared=outcome.shared)


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """Whether the tests passed (None: cannot be decided), and why. `shared`: as of `Grade`."""

    passed: bool | None
    why: str
    shared: bool = False


class StdioTestRun:
    """Tests of a script: the text that it reads, and the text that it must print."""

    def __init__(self, settings: CodeSettings, sandbox: Sandbox) -> None:
        self._settings = settings
        self._sandbox = sandbox

    async def run(self, program: str) -> CodeOutcome:
        """Run the program once for each pair of texts."""
        pairs = self._settings.pairs
        for number, pair in enumerate(pairs, 1):
            given, expected = str(pair.input), str(pair.output)
            execution = await self._execute(program, given)
            if execution.error is not None:
                outcome = await self._blame(execution.error, expected)
            else:
                same = same_output(expected, execution.printed, self._settings.tolerance)
                outcome = CodeOutcome(
                    same, f"expected {_shortened(expected)!r}, printed {_shortened(execution.printed)!r}"
                )
            if not outcome.passed:
                return CodeOutcome(
                    outcome.passed, f"test {number} of {len(pairs)}, input {_shortened(given)!r}: {outcome.why}"
                )
        return CodeOutcome(True, f"{len(pairs)} tests passed")

    async def _blame(self, error: str, expected: str) -> CodeOutcome:
        if len(expected) > _LARGE_OUTPUT:
            return CodeOutcome(
                None, f"{error} ({len(expected):,} characters are expected: does the sandbox let them out?)"
            )
        control = await self._execute("", "")
        return CodeOutcome(False, error) if control.error is None else _sandbox_down(control)

    async def _execute(self, program: str, stdin: str) -> Execution:
        settings = self._settings
        inputs: Inputs = {
            "setup": settings.setup,
            "program": program,
            "seconds": settings.seconds,
            "memory": settings.memory or 0,
        }
        return await self._sandbox.run(_stdio_harness(), inputs, stdin)


class FunctionTestRun:
    """Tests of functions: a sequence of steps, or a unittest suite."""

    # For pytest, which would collect it as a test class.
    __test__ = False

    def __init__(self, settings: CodeSettings, tests: CodeTests, sandbox: Sandbox) -> None:
        self._settings = settings
        self._tests = tests
        self._sandbox = sandbox

    async def run(self, program: str) -> CodeOutcome:
        """Run all tests at once, or each alone when that gives no report."""
        report, execution = await self._report(program, self._tests.steps)
        if report is None:
            steps = self._tests.steps
            tests = [place for place, step in enumerate(steps) if step.test]
            for place in tests if len(tests) > 1 else ():
                chosen = [step for step in steps[:place] if not step.test] + [steps[place]]
                report, execution = await self._report(program, chosen)
                if report is None:
                    return await self._blame(execution, f"{steps[place].shown}: ")
                outcome = await self._outcome(chosen, report, execution)
                if not outcome.passed:
                    return outcome
            return CodeOutcome(True, f"{len(tests)} tests passed") if len(tests) > 1 else await self._blame(execution)
        return await self._outcome(self._tests.steps, report, execution)

    async def _outcome(self, steps: Sequence[CodeTestStep], report: Report, execution: Execution) -> CodeOutcome:
        outcome = suite_outcome(report) if self._tests.suite else steps_outcome(steps, report, self._settings.tolerance)
        outcome = replace(outcome, shared=report.get("decided") is True)
        seen = report.get("seen")
        lent = {name.partition(".")[0] for name in self._settings.needs} & set(
            map(str, seen if isinstance(seen, list) else ())
        )
        if outcome.passed is False and lent:
            return CodeOutcome(
                None, f"objects of {', '.join(sorted(lent))} cannot be handed to the tests: {outcome.why}"
            )
        if outcome.passed is None and self._tests.direct:
            # The program's own process reports it. Does the sandbox do so without the program?
            control, execution = await self._report("", ())
            if control is None or blocked_outcome(control) is None:
                return (
                    _sandbox_down(execution) if control is None else CodeOutcome(False, "the program forged a report")
                )
        if outcome.passed is False and report.get("gone"):
            # The test runner saw the program's process end; only the sandbox knows how.
            return await self._blame(execution, f"{outcome.why}: ")
        return outcome

    async def _blame(self, execution: Execution, where: str = "") -> CodeOutcome:
        report, control = await self._report("", (), control=True)
        if report is None or report.get("gone"):
            return _sandbox_down(control)
        return CodeOutcome(False, f"{where}{execution.error or 'the process ended before the tests did'}")

    async def _report(
        self, program: str, steps: Sequence[CodeTestStep], *, control: bool = False
    ) -> tuple[Report | None, Execution]:
        """Run the tests; the report is None when there is none. `control`: test nothing but the sandbox."""
        request = json.dumps(self._solution_request(program, [] if control else steps, control=control))
        if not self._tests.direct:
            return await self._runner_report(request, steps, control=control)
        # The report must begin with the nonce, which the program never sees: so it cannot forge one by printing.
        nonce = token_hex(16)
        call = "run_solution(request, globals().pop('nonce'))"
        execution = await self._sandbox.run(
            harness_code(call, *_SOLUTION_MODULES), {"request": request, "nonce": nonce}
        )
        text = execution.value or ""
        return (_parse_report(text[len(nonce) :]) if text.startswith(nonce) else None), execution

    async def _runner_report(
        self, solution_request: str, steps: Sequence[CodeTestStep], *, control: bool
    ) -> tuple[Report | None, Execution]:
        """Run the tests in the test runner's process, which no text of the program ever reaches."""
        tests, settings = (CodeTests(None) if control else self._tests), self._settings
        runner_request = {
            "setup": tests.setup,
            "before": tests.before,
            "steps": [step.wire for step in steps],
            "suite": tests.suite,
            "methods": tests.methods,
            "entry": settings.entry or "",
            "candidate": tests.candidate,
            "seen": COMPARISON_HOOK,
            "names": list(tests.uses.names),
            "allowed": list(tests.uses.own),
            "called": list(tests.uses.called),
            "classes": list(tests.uses.classes),
            "needs": [] if control else list(settings.needs),
            "follow": self._tests.uses.stateful_modules,
            "common": list(tests.common),
            "modules": list(tests.uses.modules),
            "stored": list(tests.uses.stored),
            "required": [list(group) for group in tests.required],
            "hooks": HOOKS,
            "seconds": settings.seconds,
        }
        request = json.dumps(runner_request)
        suite = self._tests.suite and not control
        call = "run_tests(request, run_unittest_suite)" if suite else "run_tests(request)"
        runner = SandboxScript(harness_code(call, *RUNNER_MODULES), {"request": request})
        solution = SandboxScript(
            harness_code("serve_solution(request)", *_SOLUTION_MODULES), {"request": solution_request}
        )
        execution, other = await self._sandbox.run_pair(runner, solution)
        report = None if execution.error is not None else _parse_report(execution.value or "")
        return report, other if report is not None else execution

    def _solution_request(self, program: str, steps: Sequence[CodeTestStep], *, control: bool) -> "SolutionRequest":
        settings = self._settings
        return {
            "program": program,
            "setup": "" if control else self._tests.setup,
            "behind": "" if control else self._tests.uses.imports,
            "common": [] if control else list(self._tests.common),
            "steps": [step.direct for step in steps],
            "needs": [] if control else list(settings.needs),
            "follow": self._tests.uses.stateful_modules,
            "seconds": settings.seconds,
            "memory": 0 if control else settings.memory or 0,
        }


def blocked_outcome(report: Report) -> CodeOutcome | None:
    """Return why the tests could not start; None when they started."""
    if isinstance(missing := report.get("missing"), list):
        return CodeOutcome(None, f"the sandbox lacks what the tests need: {', '.join(map(str, missing))}")
    if "broken" in report:
        return CodeOutcome(None, f"the setup of the tests fails: {report['broken']}")
    if "unloaded" in report:
        return CodeOutcome(False, f"the program cannot be loaded: {report['unloaded']}")
    return None


def suite_outcome(report: Report) -> CodeOutcome:
    """Read the report of a unittest suite."""
    if (blocked := blocked_outcome(report)) is not None:
        return blocked
    passed, first = report.get("passed"), report.get("first")
    if isinstance(passed, int) and passed > 0 and first == []:
        return CodeOutcome(True, f"{passed} tests passed")
    what = ": ".join(map(str, first)) if isinstance(first, list) and first else "no test was run to its end"
    return CodeOutcome(False, what)


def steps_outcome(steps: Sequence[CodeTestStep], report: Report, tolerance: float | None) -> CodeOutcome:
    """Read the report of these steps."""
    if (blocked := blocked_outcome(report)) is not None:
        return blocked
    done = report.get("steps")
    outcomes = done if isinstance(done, list) else []
    for step, outcome in zip(steps, outcomes, strict=False):
        if (problem := _step_problem(step, outcome, tolerance)) is not None:
            return CodeOutcome(False, f"{step.shown}: {problem}")
    if len(outcomes) != len(steps):
        return CodeOutcome(False, f"{len(outcomes)} of {len(steps)} parts of the tests were run")
    if unsound := report.get("unsound"):
        return CodeOutcome(False, str(unsound))
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


def _parse_report(text: str) -> Report | None:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def _sandbox_down(control: Execution) -> CodeOutcome:
    return CodeOutcome(None, f"the sandbox does not run a program that does nothing: {control.error or 'no report'}")


def _shortened(text: str) -> str:
    """Return a text without its middle when it is too long for evidence."""
    return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN * 2 // 3]} ... {text[-_TEXT_SHOWN // 3 :]}"


def format_value(value: object) -> str:
    """Return a value as evidence shows it."""
    try:
        return _shortened(repr(value))
    except (ValueError, RecursionError):  # a number with too many digits, a list nested too deeply
        return f"a {type(value).__name__} too large to show"


@cache
def harness_code(call: str, *names: str) -> str:
    """Return the code that the sandbox runs: harness files one after the other, and a call.

    The files travel as source and as bytecode. The sandbox's Python takes the bytecode if its version is the same.
    """
    package = __name__.rpartition(".")[0]
    lines = "".join(
        f"\nsys.modules['{package}.{name}'] = sys.modules[__name__]\n"
        f"{files(package).joinpath(f'{name}.py').read_text(encoding='utf-8')}"
        for name in names
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
def _stdio_harness() -> str:
    return f"{inspect.getsource(run_stdio_program)}\n\nrun_stdio_program(setup, program, seconds, memory)\n"


def run_stdio_program(setup: str, program: str, seconds: float, memory: int) -> None:
    """Run the program as a script. This function's source is sent to the sandbox, so it imports what it needs.

    `memory` is in bytes beyond what the interpreter uses already; 0 leaves it to the sandbox. No expected value is
    sent, so there is nothing to protect: the output is compared outside, and the sandbox says how the program ended.
    """
    import resource
    import signal
    import sys
    from types import ModuleType

    class TimeLimitExceeded(BaseException):
        """A BaseException, so that a program's `except Exception` does not swallow it."""

    def ring(_: int, __: object) -> None:
        raise TimeLimitExceeded(f"no end after {seconds:g} s")

    if memory:
        most = memory + 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    # Python's own default, whatever the sandbox has set.
    sys.setrecursionlimit(1_000)
    sys.argv = ["program.py"]
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    # Under this function's own file name, so that the sandbox reports the program's line for an error.
    file = run_stdio_program.__code__.co_filename
    for source in (setup, program):
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - runs in the sandbox
