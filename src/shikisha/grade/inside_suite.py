"""The rest of the judge's process, for unittest suites: runs them and counts. Sent behind `inside_judge`.

Invariants: a test has passed only if unittest says so and the test's own function returned, and nothing that the
program did was refused meanwhile; a program that raises what unittest itself ends tests with has not passed (where the
tests themselves skip, skipping is theirs). What tests patch in modules is patched in the program's process too, with a
stand-in for the tests' own mock, which stays here and counts here. Deliberately absent: pytest, and fixtures of whole
modules.
"""

import functools
import re
import signal
import unittest
from collections.abc import Callable
from types import ModuleType
from unittest import mock

from shikisha.grade.inside import AGAIN, Caught, run, set_timer, told
from shikisha.grade.inside_judge import OURS, Judge, JudgeOrder, Session, gone
from shikisha.grade.inside_wire import quote

_SKIPS = re.compile(r"\b[sS]kip(Test|If|Unless)?\(")


class Tally(unittest.TestResult):
    """Counts what passed, keeps the first that did not, and gives each test its time."""

    def __init__(self, order: JudgeOrder) -> None:
        super().__init__()
        self._seconds = order["seconds"]
        self._may_skip = _SKIPS.search(order["suite"]) is not None
        self.passed = self.excused = self.returned = 0
        self.first: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether every test ran, and each that passed came to its own end."""
        return self.passed + self.excused == self.testsRun and self.passed <= self.returned

    def watched(self, method: Callable[..., object]) -> Callable[..., object]:
        """Return a test that counts its returns: some exceptions end one as if it had passed."""

        @functools.wraps(method)
        def counted(*arguments: object, **named: object) -> object:
            value = method(*arguments, **named)
            self.returned += 1
            return value

        return counted

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's names
        """Begin a test and its time."""
        super().startTest(test)
        set_timer(signal.ITIMER_REAL, self._seconds, AGAIN)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """End both."""
        set_timer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: ARG002, N802
        """Count it."""
        self.passed += 1

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: ARG002, N802
        """Count it."""
        self.excused += 1

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """Count it where the tests themselves skip; a program that skips has not passed."""
        if self._may_skip:
            self.excused += 1
        else:
            self._failed(test, f"skipped: {reason}")

    def addSubTest(self, _: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:  # noqa: N802
        """Keep a part that failed."""
        if err is not None:
            self._failed(subtest, err)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        """Keep it."""
        self._failed(test, err)

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        """Keep it."""
        self._failed(test, err)

    def _failed(self, test: unittest.TestCase, err: object) -> None:
        error = err[1] if isinstance(err, tuple) else err
        said = told(error, self._seconds) if isinstance(error, BaseException) else str(error)
        self.first = self.first or [test.id().rpartition(".")[2], said]


class _Place:
    """Where `mock.patch` finds what it patches, with the name by which the program's process finds it too."""

    def __init__(self, name: str, getter: Callable[[], object]) -> None:
        self.name = name
        self._getter = getter

    def __call__(self) -> object:
        return self._getter()


def follow_patches(judge: Judge) -> None:
    """Have every patch of a module, or of a class in one, made in the program's process too."""
    targets, begin, end = mock._get_target, mock._patch.__enter__, mock._patch.__exit__  # type: ignore[attr-defined]
    entered: dict[int, bool] = {}

    def target(name: str) -> tuple[object, str]:
        getter, attribute = targets(name)
        return _Place(name.rpartition(".")[0], getter), attribute

    def enter(patch: "mock._patch[object]") -> object:
        value = begin(patch)
        place = _place(patch)
        if place and f"{place}.{patch.attribute}" not in OURS:
            judge.ask("patch", place, patch.attribute, getattr(patch.target, patch.attribute))
            entered[id(patch)] = True
        return value

    def leave(patch: "mock._patch[object]", *error: object) -> object:
        if entered.pop(id(patch), False) and judge.fatal is None:
            judge.ask("unpatch")
        return end(patch, *error)  # type: ignore[arg-type]

    mock._get_target = target  # type: ignore[attr-defined]
    mock._patch.__enter__, mock._patch.__exit__ = enter, leave  # type: ignore[method-assign,assignment]


def _place(patch: "mock._patch[object]") -> str:
    """Return the name of what is patched; "" for what the tests' process alone has."""
    if isinstance(patch.getter, _Place):
        return patch.getter.name
    if isinstance(patch.target, ModuleType):
        return patch.target.__name__
    return f"{patch.target.__module__}.{patch.target.__qualname__}" if isinstance(patch.target, type) else ""


def suited(session: Session, order: JudgeOrder) -> str:
    """Run the suite and report on it."""
    done: list[str] = []
    with Caught(0) as caught:
        done.append(_run_suite(session, order))
    return done[0] if done else f'{{"passed":0,"first":["tests",{quote(caught.error)}]}}'


def _run_suite(session: Session, order: JudgeOrder) -> str:
    """Run the unittest cases that the tests define."""
    space = session.tests
    before = set(map(id, space.values()))
    if "mock" in order["suite"]:
        follow_patches(session.judge)
    tally, loader = Tally(order), unittest.TestLoader()
    run(order["suite"], "tests.py", space)
    for case in [value for value in space.values() if id(value) not in before]:
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == "program":
            for name in loader.getTestCaseNames(case):
                setattr(case, name, tally.watched(getattr(case, name)))
            loader.loadTestsFromTestCase(case).run(tally)
    fatal = session.judge.fatal
    if fatal is not None and not tally.first:
        tally.first = ["tests", told(fatal, order["seconds"])]
    whole = tally.whole and tally.testsRun >= order["methods"]
    first = tally.first or ([] if whole else ["tests", "not all of them ran to their end"])
    return f'{{"passed":{tally.passed},"first":{quote(first)}{gone(session)}}}'
