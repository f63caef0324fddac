"""Review commits of a git repository: tests and a linter first, and a model for the files where both are silent.

    shikisha models pull qwen2.5-coder-0.5b
    python examples/review/review.py                          # the last commit here
    python examples/review/review.py --repository PATH --commits 20 --tests "pytest -q {files}" --controls

A commit is two rounds. In the first, the tests of the commit and ruff (its rules for errors) look at it; only lines
that the commit adds count. In the second, a model reads each Python file of which nothing was said (a map step: it
sees that change and no other), and all of it becomes one list, failing tests first. Git, tests and ruff cost nothing
and are believed; a model's remarks are marked as such. `--controls` has the model read every file too, and draws the
money curve.
"""

import argparse
import asyncio
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shikisha import Card, Engine, Member, Plan, Pool, Reply, Request, Run, Step, Task
from shikisha.config.container import load_config
from shikisha.core.budget import format_dollars
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.engine.conductor import Proposal, Situation
from shikisha.journal import open_journal
from shikisha.plots.money_curve import Spending, money_curve

HERE = Path(__file__).parent
MOST_DIFF = 3_000  # characters of one file's change
RULES = "E9,F,B,PLE"  # ruff's for errors: syntax, names, likely bugs
ASK = (
    "Does this change to a Python file break something? Name the line and say why in one sentence, or answer: nothing."
)


def git(repository: Path, *arguments: str) -> str:
    """Return what git says; WorkerError with its words where it fails."""
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603 - no shell
    if done.returncode:
        raise WorkerError(FaultKind.TOOL_ERROR, done.stderr.strip()[:300])
    return done.stdout


def changed_files(repository: Path, commit: str) -> list[str]:
    """Return the Python files that a commit adds or changes."""
    listed = git(repository, "show", "--no-renames", "--diff-filter=AM", "--name-only", "--format=", commit)
    return [path for path in listed.splitlines() if path.endswith(".py")]


def added_lines(repository: Path, commit: str, path: str) -> set[int]:
    """Return the numbers of the lines that a commit adds to a file."""
    shown = git(repository, "show", "--no-renames", "--format=", "--unified=0", commit, "--", path)
    spans = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", shown, re.MULTILINE)
    return {line for start, count in spans for line in range(int(start), int(start) + int(count or 1))}


@dataclass(frozen=True, slots=True)
class Changes:
    """A worker that lists the changes of some files of a commit, as JSON."""

    repository: Path

    async def perform(self, request: Request) -> Reply:
        """Return what the subtask, `{"commit": ..., "files": [...]}`, asks for."""
        asked = json.loads(request.subtask)
        show = ("show", "--no-renames", "--format=", "--unified=4", asked["commit"], "--")
        return Reply(
            json.dumps(
                [{"file": path, "change": git(self.repository, *show, path)[:MOST_DIFF]} for path in asked["files"]]
            )
        )


@dataclass(frozen=True, slots=True)
class Linter:
    """A worker that has ruff read the files of a commit, and lists what it says of added lines, as JSON."""

    repository: Path

    async def perform(self, request: Request) -> Reply:
        """Return a list of `{"file": ..., "line": ..., "said": ...}`."""
        return Reply(json.dumps(await asyncio.to_thread(self._findings, json.loads(request.subtask)["commit"])))

    def _findings(self, commit: str) -> list[dict[str, object]]:
        found = []
        for path in changed_files(self.repository, commit):
            source = git(self.repository, "show", f"{commit}:{path}")
            added = added_lines(self.repository, commit, path)
            for line, said in lint(path, source):
                if line in added:
                    found.append({"file": path, "line": line, "said": said})
        return found


def lint(path: str, source: str) -> list[tuple[int, str]]:
    """Return what ruff says of a file: line, message. WorkerError where there is no ruff."""
    options = ["check", "--isolated", "--no-cache", "--select", RULES, "--output-format", "json"]
    command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", path, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    if not done.stdout:
        raise WorkerError(FaultKind.TOOL_ERROR, f"ruff: {done.stderr.strip()[-200:]} (pip install ruff)")
    return [(each["location"]["row"], f"{each['message']} ({each['code']})") for each in json.loads(done.stdout)]


@dataclass(frozen=True, slots=True)
class FailingTests:
    """A worker that runs the tests of a commit in a tree of its own, and lists those that fail, as JSON.

    The command runs what the commit holds: use it on repositories that you trust. Without one, no test runs.
    """

    repository: Path
    command: str = ""

    async def perform(self, request: Request) -> Reply:
        """Return the failures of the commit that the subtask names."""
        commit = json.loads(request.subtask)["commit"]
        return Reply(json.dumps(await asyncio.to_thread(self._failures, commit) if self.command else []))

    def _failures(self, commit: str) -> list[str]:
        tests = [path for path in changed_files(self.repository, commit) if Path(path).name.startswith("test_")]
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "commit.tar"
            git(self.repository, "archive", "-o", str(archive), commit)
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
            words = [word for part in shlex.split(self.command) for word in (tests if part == "{files}" else [part])]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - the user's command
        if not done.returncode:
            return []
        return [line for line in done.stdout.splitlines() if "FAILED" in line] or [done.stdout[-500:]]


class Editor:
    """A worker that makes one list of all that was said: failing tests, then the linter's, then a model's remarks."""

    async def perform(self, request: Request) -> Reply:
        """Return the list, numbered."""
        said = json.loads(request.subtask)
        lines = [f"could not look: {each}" for each in said["blind"]]
        lines += [f"make it pass: {each}" for each in said["tests"]]
        lines += [f"{each['file']}:{each['line']}: {each['said']}" for each in said["lint"]]
        remarks = json.loads(request.granted[-1].text or "[]") if request.granted else []
        for path, remark in zip(said["files"], remarks, strict=False):
            if remark and not remark.strip().lower().startswith("nothing"):
                lines.append(f"{path}: a model says: {' '.join(remark.split())[:200]}")
        return Reply("\n".join(f"{place}. {line}" for place, line in enumerate(lines, 1)) or "nothing was found")


@dataclass(frozen=True, slots=True)
class ReviewConductor:
    """Plans the review of one commit; with `everything`, the model reads every file, whatever was found in it."""

    repository: Path
    everything: bool = False
    name: str = "review"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose tests and linter, then the model where both are silent."""
        commit, names = situation.task.id, [card.name for card in situation.cards]
        if not situation.rounds:
            asked = json.dumps({"commit": commit})
            return Proposal(Plan((Step(asked, names.index("tests")), Step(asked, names.index("lint")))))
        tests, lint = ([] if each.text is None else json.loads(each.text) for each in situation.rounds[0].results)
        blind = [each.fault.message for each in situation.rounds[0].results if each.fault]
        changed = changed_files(self.repository, commit)
        loud = {each["file"] for each in lint} | {path for path in changed if any(path in each for each in tests)}
        files = [path for path in changed if self.everything or path not in loud]
        said = json.dumps({"blind": blind, "tests": tests, "lint": lint, "files": files})
        if not files:
            return Proposal(Plan((Step(said, names.index("editor")),)), final=True)
        steps = (
            Step(json.dumps({"commit": commit, "files": files}), names.index("changes")),
            Step(ASK, names.index("reviewer"), (0,), 0),
            Step(said, names.index("editor"), (1,)),
        )
        return Proposal(Plan(steps), note=f"nothing was said of {len(files)} files", final=True)


@dataclass(slots=True)
class Reviewed:
    """What a way of working came to: dollars and files read by the model, by commit, and the lists."""

    dollars: list[float] = field(default_factory=list)
    read: int = 0
    lists: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        """What was found, in words."""
        lines = [line for each in self.lists for line in each.splitlines() if line[:1].isdigit()]
        remarks = sum("a model says:" in line for line in lines)
        return f"{len(lines) - remarks} findings, {remarks} remarks, {self.read} files read by the model"


async def review(given: argparse.Namespace, commits: Sequence[str], *, everything: bool) -> tuple[list[Run], Reviewed]:
    """Review the commits, one run each, and return the runs."""
    reviewed, runs = Reviewed(), []
    container = load_config(given.settings)
    async with open_journal(str(given.folder / "review.db")) as journal:
        own = [
            Member(Card("changes", "Lists changes.", kind="tool"), Changes(given.repository)),
            Member(Card("lint", "Reads with ruff.", kind="tool"), Linter(given.repository)),
            Member(Card("tests", "Runs tests.", kind="tool", timeout=400), FailingTests(given.repository, given.tests)),
            Member(Card("editor", "Makes one list.", kind="tool"), Editor()),
        ]
        pool, conductor = Pool([*container.pool(), *own]), ReviewConductor(given.repository, everything)
        for commit in commits:
            task = Task(f"Review commit {commit[:10]}.", id=commit, domain="review")
            run = await Engine(journal).run(task, pool, conductor, container.caps)
            runs.append(run)
            reviewed.dollars.append(run.charged.dollars or 0.0)
            reviewed.lists.append(run.answer or f"no list: {run.why}")
            reviewed.read += sum(len(record.items or ()) for turn in run.rounds for record in turn.steps.values())
        await container.aclose()
    return runs, reviewed


async def main(arguments: Sequence[str] | None = None) -> None:
    """Review, print the list of each commit, and compare where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=Path(), help="A local git repository.")
    parser.add_argument("--commits", type=int, default=1, help="How many commits, the last ones without merges.")
    parser.add_argument("--tests", default="", help='A command, as in "pytest -q {files}"; without, no test runs.')
    parser.add_argument("--revision", default="HEAD", help="The last commit.")
    parser.add_argument("--settings", type=Path, default=HERE / "shikisha.toml", help="With the worker `reviewer`.")
    parser.add_argument("--controls", action="store_true", help="Have the model read every file too.")
    parser.add_argument("--folder", type=Path, default=Path(), help="Where to write.")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    asked = ("log", "--no-merges", f"-{given.commits}", "--format=%H", given.revision, "--", "*.py")
    try:
        commits = git(given.repository, *asked).split()
    except WorkerError as error:
        sys.exit(f"{given.repository}: {error.fault.message}")
    runs, ours = await review(given, commits, everything=False)
    for commit, run, listed in zip(commits, runs, ours.lists, strict=True):
        print(f"{commit[:10]} (run {run.id})\n{listed}")
    compared = {"tests and linter, a model where they are silent": ours}
    if given.controls:
        compared["a model for every file"] = (await review(given, commits, everything=True))[1]
        lines = [Spending(name, each.dollars, each.said) for name, each in compared.items()]
        (given.folder / "money.svg").write_text(money_curve(f"Reviewing {len(commits)} commits", lines))
    for name, each in compared.items():
        print(f"{name:48} {format_dollars(sum(each.dollars)):>10}  {each.said}")


if __name__ == "__main__":
    asyncio.run(main())
