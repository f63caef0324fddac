"""Running a program's tests in a sandbox: programs that read and print one way, functions another.

`Printing` has one run a test, up to the first that fails; the program runs as it is. `Testing` takes functions through
all tests in one run: direct tests in the program's process, whose values are compared here, all others in the judge's,
with the program in a second process. If that ends without a report, one run a test tells which test it was, so that
many slow tests are not mistaken for a hanging one. Invariants: a report on tests is believed only of the judge's
process; before a program is blamed for a run without a result, the sandbox has shown that it still runs what does
nothing; if it does not, the finding is that nobody can tell. Deliberately absent: concurrency (the sandbox bounds its
own), and what a report means (`reports`).
"""

import json
import marshal
from binascii import b2a_base64
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from secrets import token_hex
from typing import TYPE_CHECKING

from shikisha.grade.code_settings import Settings
from shikisha.grade.reports import Finding, Report, blocked, of_steps, of_suite, short
from shikisha.grade.steps import SEEN, Step, Trial
from shikisha.grade.values import same_output
from shikisha.sandbox import Execution, Inputs, Sandbox, Script

if TYPE_CHECKING:
    from shikisha.grade.inside import Order
    from shikisha.grade.inside_judge import JudgeOrder

_PROGRAM = ("inside_proxy", "inside_wire", "inside_peer", "inside")
_JUDGE = (*_PROGRAM, "inside_judge")
_SUITE = (*_JUDGE, "inside_suite")
_LARGE = 50_000  # characters of an expected output from which it may be the sandbox's limit that a program has met


class Printing:
    """Tests of texts: what is read, what must be printed."""

    def __init__(self, settings: Settings, sandbox: Sandbox) -> None:
        self._settings = settings
        self._sandbox = sandbox

    async def of(self, program: str) -> Finding:
        """Run the program once for each pair of texts."""
        pairs = self._settings.pairs
        for number, pair in enumerate(pairs, 1):
            given, expected = str(pair.input), str(pair.output)
            execution = await self._run(program, given)
            if execution.error is not None:
                finding = await self._blame(execution.error, expected)
            else:
                same = same_output(expected, execution.printed, self._settings.tolerance)
                finding = Finding(same, f"expected {short(expected)}, printed {short(execution.printed)}")
            if not finding.passed:
                return Finding(finding.passed, f"test {number} of {len(pairs)}, input {short(given)}: {finding.why}")
        return Finding(True, f"{len(pairs)} tests passed")

    async def _blame(self, error: str, expected: str) -> Finding:
        if len(expected) > _LARGE:
            return Finding(None, f"{error} ({len(expected):,} characters are expected: does the sandbox let them out?)")
        control = await self._run("", "")
        return Finding(False, error) if control.error is None else _nobody_there(control)

    async def _run(self, program: str, stdin: str) -> Execution:
        settings = self._settings
        inputs: Inputs = {
            "setup": settings.setup,
            "program": program,
            "seconds": settings.seconds,
            "memory": settings.memory or 0,
        }
        call = "main(setup, program, seconds, memory)"
        return await self._sandbox.run(f"{_text('inside_stdio')}\n{call}\n", inputs, stdin)


class Testing:
    """Tests of functions: steps to be done, or a unittest suite."""

    __test__ = False  # for pytest: this is no class of tests

    def __init__(self, settings: Settings, trial: Trial, sandbox: Sandbox) -> None:
        self._settings = settings
        self._trial = trial
        self._sandbox = sandbox

    async def of(self, program: str) -> Finding:
        """Take the program through everything in one run, or else through one test a run."""
        report, execution = await self._report(program, self._trial.steps)
        if report is None:
            return await self._one_by_one(program, execution)
        return await self._finding(self._trial.steps, report, execution)

    async def _finding(self, steps: Sequence[Step], report: Report, execution: Execution) -> Finding:
        finding = of_suite(report) if self._trial.suite else of_steps(steps, report, self._settings.tolerance)
        if finding.passed is None and self._trial.direct:  # the program's process says so: does it without the program?
            control, execution = await self._report("", ())
            if control is None or blocked(control) is None:
                return _nobody_there(execution) if control is None else Finding(False, "the program forged a report")
        if finding.passed is False and report.get("gone"):  # the judge says so; how it ended, the sandbox says
            return await self._blame(execution, f"{finding.why}: ")
        return finding

    async def _one_by_one(self, program: str, execution: Execution) -> Finding:
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
        return Finding(True, f"{len(tests)} tests passed") if len(tests) > 1 else await self._blame(execution)

    async def _blame(self, execution: Execution, where: str = "") -> Finding:
        report, control = await self._report("", (), control=True)
        if report is None or report.get("gone"):
            return _nobody_there(control)
        return Finding(False, f"{where}{execution.error or 'the process ended before the tests did'}")

    async def _report(
        self, program: str, steps: Sequence[Step], *, control: bool = False
    ) -> tuple[Report | None, Execution]:
        """Run the tests; the report is None when there is none. `control`: nothing is tested but the sandbox."""
        order = self._order(program, [] if control else [step.direct for step in steps], control=control)
        if not self._trial.direct:
            return await self._judged(order, steps, control=control)
        nonce = token_hex(16)
        inputs = {"order": json.dumps(order), "nonce": nonce}
        execution = await self._sandbox.run(_sent("main(order, globals().pop('nonce'))", *_PROGRAM), inputs)
        text = execution.value or ""
        return (_read(text[len(nonce) :]) if text.startswith(nonce) else None), execution

    async def _judged(self, order: "Order", steps: Sequence[Step], *, control: bool) -> tuple[Report | None, Execution]:
        """Run the tests in the judge's process; whatever it says is our own harness's word."""
        judged = json.dumps(self._judge_order(steps, control=control))
        suite = self._trial.suite and not control
        code = _sent("judge(order, suited)", *_SUITE) if suite else _sent("judge(order)", *_JUDGE)
        follower = Script(_sent("attend(order)", *_PROGRAM), {"order": json.dumps(order)})
        execution, other = await self._sandbox.run_pair(Script(code, {"order": judged}), follower)
        report = None if execution.error is not None else _read(execution.value or "")
        return report, other if report is not None else execution

    def _order(self, program: str, steps: Sequence[dict[str, str]], *, control: bool) -> "Order":
        settings = self._settings
        return {
            "program": program,
            "setup": "" if control else self._trial.setup,
            "behind": "" if control else self._trial.uses.imports,
            "common": [] if control else list(self._trial.common),
            "steps": list(steps),
            "needs": [] if control else list(settings.needs),
            "follow": self._trial.uses.followed,
            "seconds": settings.seconds,
            "memory": 0 if control else settings.memory or 0,
        }

    def _judge_order(self, steps: Sequence[Step], *, control: bool) -> "JudgeOrder":
        trial, settings = (Trial(None) if control else self._trial), self._settings
        return {
            "setup": trial.setup,
            "before": trial.before,
            "steps": [step.wire for step in steps],
            "suite": trial.suite,
            "methods": trial.methods,
            "entry": settings.entry or "",
            "candidate": trial.candidate,
            "seen": SEEN,
            "names": list(trial.uses.names),
            "allowed": list(trial.uses.own),
            "called": list(trial.uses.called),
            "classes": list(trial.uses.classes),
            "needs": [] if control else list(settings.needs),
            "follow": self._trial.uses.followed,
            "common": list(trial.common),
            "modules": list(trial.uses.modules),
            "stored": list(trial.uses.stored),
            "seconds": settings.seconds,
        }


def _read(text: str) -> Report | None:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def _nobody_there(control: Execution) -> Finding:
    return Finding(None, f"the sandbox does not run a program that does nothing: {control.error or 'no report'}")


@cache
def _sent(call: str, *names: str) -> str:
    """Return what is run in the sandbox: files of ours one after the other, and a call.

    They go as text, and as what Python made of it here: the sandbox's Python takes that if it is of the same kind.
    """
    lines = "".join(f"\nsys.modules['shikisha.grade.{name}'] = sys.modules[__name__]\n{_text(name)}" for name in names)
    whole = f"import sys{lines}"
    ready = b2a_base64(marshal.dumps(compile(whole, "harness", "exec", dont_inherit=True)), newline=False).decode()
    return (
        "import _frozen_importlib_external, binascii, marshal\n"
        f"if _frozen_importlib_external.MAGIC_NUMBER == {MAGIC_NUMBER!r}:\n"
        f"    exec(marshal.loads(binascii.a2b_base64({ready!r})))\n"
        f"else:\n    exec(compile({whole!r}, 'harness', 'exec', dont_inherit=True))\n{call}\n"
    )


@cache
def _text(name: str) -> str:
    return files("shikisha.grade").joinpath(f"{name}.py").read_text(encoding="utf-8")
