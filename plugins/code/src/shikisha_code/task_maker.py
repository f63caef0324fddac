"""Make tasks from the history of a git repository: commits that change code and its tests.

For each commit, the newest first: its parent is the base, its changes of code the right patch, its changes of tests and
their configuration the test patch, its message the problem. The test files that it changes run in the sandbox twice,
without and with the right patch: what begins to pass must pass, what passes both times must keep passing. A task is
kept if its grader then finds the right patch right. Where a test that begins to pass can be judged apart from the
package, the lists hold only such tests (`apart`). Invariants: lists come from real runs and from
nothing else; the work is bounded by commits, tasks and seconds; every commit that gives no task is counted with the
reason. Deliberately absent: issues of a forge, builds, and dependencies that are not installed.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shikisha.context.git_history import Commit, GitRepository
from shikisha.core.errors import ConfigError
from shikisha.evals.graders import GradeMark
from shikisha.sandbox import Sandbox
from shikisha_code.patch_grader import PatchGrader, RepositoryTask
from shikisha_code.pytest_run import PASSED, PytestSettings, run_pytest
from shikisha_code.repository_tasks import write_snapshot
from shikisha_code.separated_tests import is_protected, is_test_file
from shikisha_code.unified_diff import PatchError, apply_patch, read_patch

_MOST_CHANGED = 20  # files of a commit
_LONGEST_CHANGE = 60_000  # characters of a patch
_LEAST_STATEMENT = 10  # characters
_TRAILER = ("co-authored-by:", "signed-off-by:", "reviewed-by:", "acked-by:", "change-id:", "git-svn-id:")


@dataclass(frozen=True, slots=True)
class MakerLimits:
    """How many tasks, of how many commits, in how many seconds; how tests are run; the repository's name, if given."""

    tasks: int = 20
    commits: int = 400
    seconds: float = 1_800.0
    needs: tuple[str, ...] = ("pytest",)
    paths: tuple[str, ...] = (".",)
    test_seconds: int = 60
    name: str = ""


@dataclass(slots=True)
class MadeTasks:
    """Rows of tasks, and why the other commits gave none."""

    rows: list[dict[str, object]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    commits: int = 0


class _Skipped(Exception):
    """Why a commit gives no task."""


async def make_tasks(
    repository: GitRepository,
    folder: Path,
    sandbox: Sandbox,
    limits: MakerLimits,
    report: Callable[[str], None] = lambda _: None,
) -> MadeTasks:
    """Make tasks and write them into a folder; ConfigError when the repository gives none."""
    made, until = MadeTasks(), time.monotonic() + limits.seconds
    (folder / "snapshots").mkdir(parents=True, exist_ok=True)
    commits = repository.commits(limits.commits)
    if not any(is_test_file(name) for commit in commits for name in commit.files):
        raise ConfigError(
            f"{repository.path}: its newest {len(commits):,} commits change no test (expected files such as "
            "tests/test_NAME.py): a repository without tests gives no tasks"
        )
    with (folder / "tasks.jsonl").open("w", encoding="utf-8") as file:
        for commit in commits:
            if len(made.rows) >= limits.tasks or time.monotonic() > until:
                break
            made.commits += 1
            try:
                row, base = await _CommitTask(repository, commit, sandbox, limits).make()
            except _Skipped as reason:
                made.skipped[str(reason)] += 1
                continue
            write_snapshot(folder / str(row["snapshot"]), base)
            file.write(json.dumps(row) + "\n")
            file.flush()
            made.rows.append(row)
            report(f"{row['instance_id']}: {len(json.loads(str(row['FAIL_TO_PASS'])))} tests must begin to pass")
    if not made.rows:
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in made.skipped.most_common(4))
        raise ConfigError(f"{repository.path}: {made.commits:,} commits give no task ({reasons})")
    return made


class _CommitTask:
    """One commit on its way to a task."""

    def __init__(self, repository: GitRepository, commit: Commit, sandbox: Sandbox, limits: MakerLimits) -> None:
        self._repository = repository
        self._commit = commit
        self._sandbox = sandbox
        self._limits = limits

    async def make(self) -> tuple[dict[str, object], dict[str, bytes]]:
        """Return the row and the base's files."""
        commit = self._commit
        tests = [name for name in commit.files if is_protected(name)]
        code = [name for name in commit.files if not is_protected(name)]
        # A commit's message without its trailers.
        message = commit.message
        lines = [line for line in message.splitlines() if not line.casefold().startswith(_TRAILER)]
        statement = "\n".join(lines).strip()
        if len(commit.parents) != 1 or len(commit.files) > _MOST_CHANGED:
            raise _Skipped("no parent, or many files")
        if not any(is_test_file(name) for name in tests) or not any(name.endswith(".py") for name in code):
            raise _Skipped("code or tests do not change")
        if len(statement) < _LEAST_STATEMENT:
            raise _Skipped("hardly any message")
        base, patch, test_patch = self._read(code, tests)
        gold = self._applied(self._applied(base, patch), test_patch)
        files = tuple(name for name in tests if is_test_file(name) and name in gold)
        if not files:
            raise _Skipped("tests are only removed")
        settings = PytestSettings(files, self._limits.needs, self._limits.paths, float(self._limits.test_seconds))
        must_pass, keep_passing = await self._lists(self._applied(base, test_patch), gold, settings)
        task = RepositoryTask(base, test_patch, must_pass, keep_passing, settings, patch)
        known = await PatchGrader(task, self._sandbox).judged_apart()
        if apart := not known.keys().isdisjoint(task.must_pass):
            kept = [tuple(name for name in names if name in known) for names in (must_pass, keep_passing)]
            task = replace(task, must_pass=kept[0], keep_passing=kept[1])
        if (await PatchGrader(task, self._sandbox, known).grade(patch)).mark is not GradeMark.RIGHT:
            raise _Skipped("the right patch is not found right again")
        return self._row(task, statement, apart=apart), base

    def _read(self, code: Sequence[str], tests: Sequence[str]) -> tuple[dict[str, bytes], str, str]:
        parent, sha = self._commit.parents[0], self._commit.sha
        try:
            base = self._repository.tree(parent)
        except ConfigError:
            raise _Skipped("a tree that is too large") from None
        patch = self._repository.difference(parent, sha, code)
        test_patch = self._repository.difference(parent, sha, tests)
        if len(patch) + len(test_patch) > _LONGEST_CHANGE:
            raise _Skipped("a large change")
        return base, patch, test_patch

    def _applied(self, tree: Mapping[str, bytes], patch: str) -> dict[str, bytes]:
        try:
            patch.encode()
            return apply_patch(tree, read_patch(patch))
        except (PatchError, UnicodeEncodeError):
            raise _Skipped("a change that is no text") from None

    async def _lists(
        self, before: Mapping[str, bytes], gold: Mapping[str, bytes], settings: PytestSettings
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tests that begin to pass, and those that keep passing."""
        after = await run_pytest(self._sandbox, gold, settings)
        passed = {name for name, ended in after.tests.items() if ended == PASSED}
        if not passed:
            raise _Skipped("tests take too long" if after.timed_out else "no test passes with the right patch")
        first = await run_pytest(self._sandbox, before, settings)
        if first.timed_out:
            raise _Skipped("tests take too long")
        was = {name for name, ended in first.tests.items() if ended == PASSED}
        if not passed - was:
            raise _Skipped("no test begins to pass")
        return tuple(sorted(passed - was)), tuple(sorted(passed & was))

    def _row(self, task: RepositoryTask, statement: str, *, apart: bool) -> dict[str, object]:
        name, commit = self._limits.name or self._repository.origin(), self._commit
        instance = f"{name.replace('/', '__')}-{commit.sha[:10]}"
        return {
            "instance_id": instance,
            "repo": name,
            "base_commit": commit.parents[0],
            "problem_statement": statement,
            "patch": task.right,
            "test_patch": task.test_patch,
            "FAIL_TO_PASS": json.dumps(task.must_pass),
            "PASS_TO_PASS": json.dumps(task.keep_passing),
            "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(commit.seconds)),
            "snapshot": f"snapshots/{instance}.zip",
            "files": task.settings.files,
            "needs": task.settings.needs,
            "paths": task.settings.paths,
            "seconds": int(task.settings.seconds),
            "apart": apart,
        }
