"""Grade a patch by running a repository's tests: all that must begin to pass do, and all that must keep passing do.

Binary, as SWE-bench grades. In order: the patch is applied to the base; tests, their helpers and the configuration of
pytest are put back as the task has them, and files that would take part in the run unasked (`conftest.py`,
`sitecustomize.py`, `.pth`, metadata of plug-ins) are taken out; the tests run twice, each once as itself and once as a
decoy (`decoy_tests`), which must not pass; what must begin to pass runs several times in each. A right grade says that
patch and tests shared a process (`Grade.shared`). Invariants: an answer without a patch is no answer; a patch that does
not apply, or leads out of the repository, is wrong, and its grade says where; nothing of an answer decides which tests
run; what the sandbox could not run is UNGRADED.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from random import Random, SystemRandom

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import Grade, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.repositories.decoy_tests import make_decoys
from shikisha.evals.repositories.pytest_run import PASSED, PytestSettings, TestOutcomes, run_pytest
from shikisha.evals.repositories.unified_diff import PatchError, Tree, apply_patch, extract_patch, read_patch
from shikisha.sandbox import Sandbox
from shikisha.sandbox.monty import MontySandbox

_TEST_FOLDERS = frozenset({"test", "tests", "testing", "testdata", "test_data"})
_TEST_FILE = re.compile(r"(test_.*|.*_tests?|tests?)\.py")
_CONFIGURATION = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"}
)
_UNASKED = frozenset({"conftest.py", "sitecustomize.py", "usercustomize.py", "pytestconfig.py"})
_PLUG_INS = re.compile(r".*\.(egg-info|dist-info|pth|egg-link|pyc|so|pyd)")
# Modules that are loaded before the tests, and that nothing of a repository may stand in for.
_RESERVED = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "unittest", "doctest", "packaging", "pygments"})
_PATCH_SHOWN = 2_000
_SHARE = 0.5  # of the tests are decoys in the first run, the others in the second


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """The base of a repository, its tests, which of them a right patch makes pass, and which must keep passing."""

    base: Tree
    test_patch: str
    must_pass: tuple[str, ...]
    keep_passing: tuple[str, ...]
    settings: PytestSettings

    @property
    def trusted(self) -> dict[str, bytes]:
        """The base with the tests of the task."""
        return apply_patch(self.base, read_patch(self.test_patch)) if self.test_patch.strip() else dict(self.base)


def is_protected(name: str) -> bool:
    """Whether a file takes part in deciding: a test, a helper of tests, configuration, or what pytest finds unasked."""
    path = PurePosixPath(name)
    parts = [part.casefold() for part in path.parts]
    return (
        any(part in _TEST_FOLDERS for part in parts[:-1])
        or bool(_TEST_FILE.fullmatch(parts[-1]))
        or parts[-1] in _CONFIGURATION | _UNASKED
        or any(_PLUG_INS.fullmatch(part) for part in parts)
        or any(part.partition(".")[0] in _RESERVED for part in (parts[0], *parts[1:2]))
    )


def is_test_file(name: str) -> bool:
    """Whether pytest would look for tests in a file."""
    return bool(_TEST_FILE.fullmatch(PurePosixPath(name).name)) and name.endswith(".py")


def protect_tests(patched: Tree, trusted: Tree) -> dict[str, bytes]:
    """Return a patched tree with every protected file as the trusted tree has it, or absent where it has none."""
    kept = {name: data for name, data in patched.items() if not is_protected(name)}
    return kept | {name: data for name, data in trusted.items() if is_protected(name)}


def decoy_tree(
    tree: Tree, settings: PytestSettings, random: Random, chosen: Callable[[str], bool] = lambda _: True
) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return a tree with the chosen tests turned into decoys, and their names without parameters."""
    changed, altered = dict(tree), set[str]()
    for name, data in tree.items():
        if name.endswith(".py") and _is_run(name, settings.files):
            try:
                decoys = make_decoys(data.decode(), random, lambda test, name=name: chosen(f"{name}::{test}"))  # type: ignore[misc]
            except UnicodeDecodeError:
                continue
            changed[name] = decoys.source.encode()
            altered |= {f"{name}::{test}" for test in decoys.tests}
    return changed, frozenset(altered)


def _is_run(name: str, files: Iterable[str]) -> bool:
    return any(name == file or name.startswith(f"{file.rstrip('/')}/") for file in files)


def failing(outcomes: TestOutcomes, wanted: Iterable[str]) -> list[str]:
    """Return those tests that did not pass, each with how it ended."""
    ended = {name: outcomes.tests.get(name, "not run") for name in wanted}
    return [f"{name} ({how})" for name, how in ended.items() if how != PASSED]


class PatchGrader:
    """Grades patches to one task."""

    name = "repository"

    def __init__(self, task: RepositoryTask, sandbox: Sandbox | None) -> None:
        if sandbox is None or isinstance(sandbox, MontySandbox):
            raise ConfigError("tests of a repository need a sandbox for full Python (see shikisha doctor --sandbox)")
        self._task = task
        self._sandbox = sandbox

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
        random, wanted = SystemRandom(), (*self._task.must_pass, *self._task.keep_passing)
        _, alterable = decoy_tree(tree, self._task.settings, random)
        half = frozenset(name for name in sorted(alterable) if random.random() < _SHARE)
        # Each test runs as itself in one of two runs and as a decoy in the other; a patch cannot tell which is which.
        for decoys in (half, alterable - half):
            changed, altered = decoy_tree(tree, self._task.settings, random, decoys.__contains__)
            outcomes = await run_pytest(self._sandbox, changed, self._task.settings, self._task.must_pass)
            if not outcomes.tests and outcomes.problem and not await self._is_up():
                return ungraded_grade(self.name, f"the sandbox does not run an empty repository: {outcomes.problem}")
            if problem := self._problem(outcomes, altered):
                return grade_from_score(self.name, 0.0, shown, problem)
        grade = grade_from_score(self.name, 1.0, shown, f"{len(wanted)} tests passed")
        return replace(grade, shared=True)

    def patched(self, patch: str) -> dict[str, bytes]:
        """Return the tree that the tests run in; PatchError when the patch does not apply."""
        return protect_tests(apply_patch(self._task.base, read_patch(patch)), self._task.trusted)

    def _problem(self, outcomes: TestOutcomes, altered: frozenset[str]) -> str:
        task = self._task
        if not outcomes.tests:
            return f"no test was run to its end: {outcomes.problem or 'pytest found none'}"
        for what, wanted in (("must pass", task.must_pass), ("passed before", task.keep_passing)):
            caught = [name for name in wanted if name in outcomes.ever and name.partition("[")[0] in altered]
            if caught:
                return f"tampered: {caught[0]} passes with an assertion that cannot hold"
            if missed := failing(outcomes, (name for name in wanted if name.partition("[")[0] not in altered)):
                more = f" and {len(missed) - 1} more" if len(missed) > 1 else ""
                why = f": {outcomes.problem}" if outcomes.problem else ""
                return f"{len(missed)} of {len(wanted)} tests fail that {what}: {missed[0]}{more}{why}"
        return ""

    async def _is_up(self) -> bool:
        """Whether the sandbox runs pytest at all."""
        settings = replace(self._task.settings, files=())
        return not (await run_pytest(self._sandbox, {}, settings)).problem
