"""Grade a patch by running a repository's tests: all that must begin to pass do, and all that must keep passing do.

Binary, as SWE-bench grades. In order: the patch is applied to the base; tests, their helpers and pytest's configuration
are put back as the task has them (`separated_tests`). Then the tests run in one process and the package in another
(`graders.harness_pytest`); what must begin to pass runs several times, and each assertion as often as with the right
patch. The right patch tells which tests can be judged so. The others need shared objects (files, monkeypatched
libraries, objects of the tests that the package sets, its own objects compared with data): they run in the package's
process, as plain pytest runs them, and the grade is marked (`Grade.shared`). Invariants: an answer without a patch is
no answer; a patch that does not apply, or leads out of the repository, is wrong, and its grade says where; nothing of
an answer decides which tests run; what the sandbox could not run is UNGRADED.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import Grade, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.sandbox import Sandbox
from shikisha.sandbox.availability import MontySandbox
from shikisha_code.pytest_run import (
    PASSED,
    PytestSettings,
    TestOutcomes,
    run_pytest,
    run_pytest_apart,
)
from shikisha_code.separated_tests import SeparatedTree, protect_tests, separate_tests
from shikisha_code.unified_diff import PatchError, Tree, apply_patch, extract_patch, read_patch

_PATCH_SHOWN = 2_000
_FURTHER_RUNS = 4  # of what must begin to pass: what passes by chance does not pass each time
_MOST_REPEATED = 20  # tests that run several times

Executed: TypeAlias = Mapping[str, int]  # how often each assertion of a test was executed


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """The base of a repository, its tests, which of them a right patch makes pass, and which must keep passing.

    `right`: the right patch, which tells the tests that can be judged apart from the package; "" where it is unknown.
    """

    base: Tree
    test_patch: str
    must_pass: tuple[str, ...]
    keep_passing: tuple[str, ...]
    settings: PytestSettings
    right: str = ""

    @property
    def trusted(self) -> dict[str, bytes]:
        """The base with the tests of the task."""
        return apply_patch(self.base, read_patch(self.test_patch)) if self.test_patch.strip() else dict(self.base)


def failing(outcomes: TestOutcomes, wanted: Iterable[str]) -> list[str]:
    """Return those tests that did not pass, each with how it ended."""
    ended = {name: outcomes.tests.get(name, "not run") for name in wanted}
    return [f"{name} ({how})" for name, how in ended.items() if how != PASSED]


class PatchGrader:
    """Grades patches to one task."""

    name = "repository"

    def __init__(
        self, task: RepositoryTask, sandbox: Sandbox | None, apart: Mapping[str, Executed] | None = None
    ) -> None:
        """`apart`: what `judged_apart` returned before; None: it is asked for with the first patch."""
        if sandbox is None or isinstance(sandbox, MontySandbox):
            raise ConfigError("tests of a repository need a sandbox for full Python (see shikisha doctor --sandbox)")
        self._task = task
        self._sandbox = sandbox
        self.apart = apart

    async def grade(self, answer: str) -> Grade:
        """Apply the patch of an answer, and run the tests."""
        patch = extract_patch(answer)
        if patch is None:
            return no_answer_grade(self.name, "there is no patch in the answer; expected a unified diff")
        shown = patch[:_PATCH_SHOWN]
        try:
            tree = self.patched(patch)
        except PatchError as error:
            return grade_from_score(self.name, 0.0, shown, f"the patch does not apply: {error}")
        apart = await self.judged_apart()
        outcomes, problem, shared = await self._run_apart(tree, apart)
        rest = [name for name in (*self._task.must_pass, *self._task.keep_passing) if name not in apart]
        if rest and not problem:
            outcomes = await run_pytest(
                self._sandbox, tree, self._task.settings, [name for name in self._task.must_pass if name in rest]
            )
            problem = _problem(outcomes, rest)
        if problem and not outcomes.tests and not await self._is_up():
            return ungraded_grade(self.name, f"the sandbox does not run an empty repository: {problem}")
        if problem:
            return grade_from_score(self.name, 0.0, shown, problem)
        how = f", {len(rest)} of them in the package's process: {rest[0]}" if rest else ""
        grade = grade_from_score(self.name, 1.0, shown, f"{len(apart) + len(rest)} tests passed{how}")
        return replace(grade, shared=shared or bool(rest))

    def patched(self, patch: str) -> dict[str, bytes]:
        """Return the tree that the tests run in; PatchError when the patch does not apply."""
        return protect_tests(apply_patch(self._task.base, read_patch(patch)), self._task.trusted)

    async def judged_apart(self) -> Mapping[str, Executed]:
        """Return the tests that the right patch passes from another process, with how often it executes assertions."""
        if self.apart is None:
            wanted = (*self._task.must_pass, *self._task.keep_passing)
            try:
                separated = self._separated(self.patched(self._task.right)) if self._task.right else None
            except PatchError:
                separated = None
            runs = [await self._run(separated, wanted) for _ in range(2)] if separated else []
            if separated and not all(one.tests for one in runs):
                return {}  # perhaps the sandbox is down: nothing is learned from that
            passed = [name for name in wanted if runs and all(one.tests.get(name) == PASSED for one in runs)]
            if passed:  # what passes here without any patch decides nothing here
                base = self._separated(protect_tests(self._task.base, self._task.trusted))
                before = await self._run(base, self._task.must_pass)
                idle = {one for one in self._task.must_pass if before.tests.get(one) == PASSED}
                passed = [one for one in passed if one not in idle]
            self.apart = {name: _least_executed([one.executed[name] for one in runs]) for name in passed}
        return self.apart

    def _separated(self, tree: Tree) -> SeparatedTree:
        settings = self._task.settings
        return separate_tests(tree, self._task.trusted, settings.files, settings.paths)

    async def _run(self, separated: SeparatedTree, only: Sequence[str]) -> TestOutcomes:
        return await run_pytest_apart(self._sandbox, separated, self._task.settings, only)

    async def _run_apart(self, tree: Tree, apart: Mapping[str, Executed]) -> tuple[TestOutcomes, str, bool]:
        """Return the last run, the first problem, and whether the package decided a comparison of its own objects."""
        outcomes, decided, separated = TestOutcomes({}), False, self._separated(tree)
        begin = [name for name in self._task.must_pass if name in apart][:_MOST_REPEATED]
        for only in ([*apart], *([begin] * _FURTHER_RUNS)):
            outcomes = await self._run(separated, only) if only else outcomes
            decided |= not outcomes.decided.isdisjoint(only)
            if problem := _problem(outcomes, only):
                return outcomes, problem, decided
            for name in only:
                if any(outcomes.executed[name].get(site, 0) < count for site, count in apart[name].items()):
                    return outcomes, f"{name} executes fewer assertions than with the right patch", decided
        return outcomes, "", decided

    async def _is_up(self) -> bool:
        """Whether the sandbox runs pytest at all."""
        settings = replace(self._task.settings, files=())
        return not (await run_pytest(self._sandbox, {}, settings)).problem


def _problem(outcomes: TestOutcomes, wanted: Sequence[str]) -> str:
    """Say which of these tests did not pass, and why, as far as it is known."""
    missed = failing(outcomes, wanted)
    why = next((outcomes.refused[name] for name in wanted if name in outcomes.refused), outcomes.problem)
    return f"{len(missed)} of {len(wanted)} tests fail: {missed[0]}{f': {why}' if why else ''}" if missed else ""


def _least_executed(runs: Sequence[Executed]) -> dict[str, int]:
    return {site: min(one.get(site, 0) for one in runs) for site in runs[0]}
