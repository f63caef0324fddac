"""Review commits of a git repository: a specialist for every file, the failing tests, and a plan of what to change.

    python examples/review/review.py                          # the last commit here; simulated reviewers, named so
    python examples/review/review.py --repository PATH --commits 50 --tests "pytest -q {files}" --real

The plan of a commit has a list step for each language, a map step over each list (one reviewer for every file, who sees
its file and the failing tests and nothing else), the tests, and an editor. The git and test workers are real. Without
`--real`, the reviewers are simulated: they know a few rules of taste, and each overlooks some of what breaks them.
`--controls` reviews every commit again by the best reviewer, the cheapest, a random one, and by a rule on keywords, and
draws the money curve. Nothing of the repository is kept but the journal `review.db` (`shikisha explain --journal`).
"""

import argparse
import asyncio
import json
import random
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from shikisha import Card, Engine, Member, Plan, Pool, Reply, Request, Run, Step, Task
from shikisha.config.container import load_config
from shikisha.core.budget import format_dollars
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.plan import item_step
from shikisha.engine.conductor import Proposal, Situation
from shikisha.journal import open_journal
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

HERE = Path(__file__).parent
REAL = "http://127.0.0.1:11434/v1"
LANGUAGES = {".py": "python", ".pyi": "python", ".md": "prose", ".rst": "prose", ".txt": "prose"}
OTHER = "other"
REVIEWERS = ("python", "prose", "other")
MOST_DIFF = 12_000  # characters of one file's change
URGENT = re.compile(r"password|secret|token|auth|subprocess|eval\(", re.IGNORECASE)
Chooser = Callable[[str, str, str], str]  # (commit, language, all changes) → the reviewer


def git(repository: Path, *arguments: str) -> str:
    """Return what git says; WorkerError with its words where it fails."""
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603 - no shell
    if done.returncode:
        raise WorkerError(FaultKind.TOOL_ERROR, done.stderr.strip()[:300])
    return done.stdout


def language_of(path: str) -> str:
    """Return who reviews a file."""
    return LANGUAGES.get(Path(path).suffix, OTHER)


def changed_files(repository: Path, commit: str) -> list[str]:
    """Return the files that a commit adds or changes; those without text are left out."""
    lines = git(repository, "show", "--no-renames", "--diff-filter=AM", "--numstat", "--format=", commit).splitlines()
    rows = [line.split("\t") for line in lines if line.strip()]
    return [path for added, _, path in rows if added != "-"]


def change_of(repository: Path, commit: str, path: str) -> str:
    """Return how a commit changes a file."""
    return git(repository, "show", "--no-renames", "--format=", "--unified=2", commit, "--", path)[:MOST_DIFF]


# The workers that are real


@dataclass(frozen=True, slots=True)
class Changes:
    """A worker that lists the changes of a commit in one language, as JSON."""

    repository: Path

    async def perform(self, request: Request) -> Reply:
        """Return a list of what the subtask, `{"commit": ..., "language": ...}`, asks for."""
        asked = json.loads(request.subtask)
        paths = [
            path for path in changed_files(self.repository, asked["commit"]) if language_of(path) == asked["language"]
        ]
        return Reply(
            json.dumps([{"file": path, "change": change_of(self.repository, asked["commit"], path)} for path in paths])
        )


@dataclass(frozen=True, slots=True)
class FailingTests:
    """A worker that runs the tests of a commit in a tree of its own, and lists those that fail.

    Without a command, it compiles the changed Python files. The command runs what the commit holds: use it on
    repositories that you trust.
    """

    repository: Path
    command: str = ""

    async def perform(self, request: Request) -> Reply:
        """Return the failures of the commit that the subtask names, as JSON."""
        return Reply(json.dumps(await asyncio.to_thread(self._failures, json.loads(request.subtask)["commit"])))

    def _failures(self, commit: str) -> list[str]:
        paths = [path for path in changed_files(self.repository, commit) if path.endswith(".py")]
        if not self.command:
            return [
                said
                for path in paths
                if (said := compile_problem(path, git(self.repository, "show", f"{commit}:{path}")))
            ]
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "commit.tar"
            git(self.repository, "archive", "-o", str(archive), commit)
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
            tests = [path for path in paths if Path(path).name.startswith("test_")]
            words = [word for part in shlex.split(self.command) for word in (tests if part == "{files}" else [part])]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - the user's command
        return (
            []
            if not done.returncode
            else [line for line in done.stdout.splitlines() if "FAILED" in line] or [done.stdout[-500:]]
        )


def compile_problem(path: str, source: str) -> str:
    """Return why a file is no Python; empty where it is."""
    try:
        compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"{path}: {error}"
    return ""


# The conductor


@dataclass(frozen=True, slots=True)
class ReviewConductor:
    """Plans the review of one commit; `choose` names the reviewer of each language."""

    repository: Path
    choose: Chooser
    name: str = "review"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose lists, map steps, tests and the editor, as far as the commit has files."""
        if situation.rounds:
            return Proposal(Plan(), final=True)
        commit, names = situation.task.id, [card.name for card in situation.cards]
        files = Counter(language_of(path) for path in changed_files(self.repository, commit))
        changes = git(self.repository, "show", "--format=", commit)
        steps = [Step(json.dumps({"commit": commit}), names.index("tests"))]
        maps: list[int] = []
        for language in files:
            steps.append(Step(json.dumps({"commit": commit, "language": language}), names.index("changes")))
            reviewer = names.index(self.choose(commit, language, changes))
            listed = len(steps) - 1
            subtask = f"Review this change to a file ({language}). One remark a line, and nothing else."
            steps.append(Step(subtask, reviewer, (0, listed), listed))
            maps.append(len(steps) - 1)
        plan = "Make a plan of what to change, the most urgent first, from these reviews and failing tests."
        steps.append(Step(plan, names.index("editor"), (0, *maps)))
        return Proposal(Plan(tuple(steps)), note=f"{sum(files.values())} files in {len(files)} languages", final=True)


# The reviewers that are simulated

RULES = {
    "a line over 100 characters": re.compile(r"^.{101,}$"),
    "a linter is silenced": re.compile(r"# (noqa|type: ignore)"),
    "prints": re.compile(r"\bprint\("),
    "left to do": re.compile(r"\b(TODO|FIXME|XXX)\b"),
    "a broad except": re.compile(r"except( Base)?Exception|except:"),
    "an assert outside of tests": re.compile(r"^\s*assert "),
    "a number without a name": re.compile(r"[^\w.]\d{4,}\b"),
    "filler": re.compile(r"\b(very|really|simply|just|actually|basically)\b", re.IGNORECASE),
}
# The share of what breaks a rule that each one finds: in its own language, and in others.
SKILL = {"python": (0.96, 0.5), "prose": (0.96, 0.5), "other": (0.95, 0.6), "best": (0.97, 0.97), "cheap": (0.7, 0.7)}


def findings(change: str) -> list[tuple[str, str]]:
    """Return what breaks a rule among the lines that a change adds: (rule, line)."""
    added = [line[1:] for line in change.splitlines() if line.startswith("+") and not line.startswith("+++")]
    return [(rule, line.strip()) for line in added for rule, pattern in RULES.items() if pattern.search(line)]


def overlooks(reviewer: str, language: str, found: tuple[str, str]) -> bool:
    """Whether a simulated reviewer overlooks this; the same each time."""
    own, others = SKILL[reviewer]
    drawn = int(sha256("|".join((reviewer, *found)).encode()).hexdigest()[:8], 16) / 2**32
    return drawn >= (own if reviewer == language else others)


def simulated(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Answer as the simulated reviewer, or as the simulated editor, that is asked."""
    reviewer = asked.model.removeprefix("simulated-")
    if reviewer == "editor":
        return ScriptedAnswer(text=migration_plan([text for role, text in asked.messages if role == "assistant"]))
    item = next(text for role, text in reversed(asked.messages) if role == "assistant" and text.startswith("{"))
    shown = json.loads(item)
    language = language_of(shown["file"])
    kept = [each for each in findings(shown["change"]) if not overlooks(reviewer, language, each)]
    return ScriptedAnswer(text="\n".join(f"{rule}: {line[:80]}" for rule, line in kept) or "nothing to remark")


def migration_plan(said: Sequence[str]) -> str:
    """Return the remarks by rule, failing tests first, then the most frequent."""
    tests, *reviews = [json.loads(text) for text in said]
    remarks = Counter(
        line.partition(":")[0]
        for review in reviews
        for text in review
        if text
        for line in text.splitlines()
        if ":" in line
    )
    steps = [f"make it pass: {failure}" for failure in tests]
    steps += [f"{rule} ({count} places)" for rule, count in remarks.most_common()]
    return "\n".join(f"{place}. {step}" for place, step in enumerate(steps, 1)) or "nothing is to be changed"


# Putting it together


@dataclass(slots=True)
class Reviewed:
    """What a way of working came to: dollars by commit, remarks that were there to be made, and those that were."""

    dollars: list[float] = field(default_factory=list)
    there: int = 0
    made: int = 0

    @property
    def recall(self) -> float:
        """The share of the remarks that were made."""
        return self.made / self.there if self.there else 1.0


async def review(
    repository: Path, commits: Sequence[str], given: argparse.Namespace, choose: Chooser
) -> tuple[list[Run], Reviewed]:
    """Review the commits, one run each, and return the runs."""
    reviewed, runs = Reviewed(), []
    async with AsyncExitStack() as stack:
        settings = HERE / "shikisha.toml"
        if not given.real:
            url = await stack.enter_async_context(chat_server(simulated))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings = simulated_settings(folder, url)
        container = load_config(settings)
        journal = await stack.enter_async_context(open_journal(str(given.folder / "review.db")))
        tools = [
            Member(Card("changes", "Lists the changes of a commit.", kind="tool"), Changes(repository)),
            Member(
                Card("tests", "Lists failing tests.", kind="tool", timeout=400), FailingTests(repository, given.tests)
            ),
        ]
        pool = Pool([*container.pool(), *tools])
        conductor = ReviewConductor(repository, choose)
        for commit in commits:
            task = Task(f"Review commit {commit[:10]}.", id=commit, domain="review")
            run = await Engine(journal).run(task, pool, conductor, container.caps)
            runs.append(run)
            reviewed.dollars.append(run.charged.dollars or 0.0)
            count_remarks(run, reviewed)
        await container.aclose()
    return runs, reviewed


def simulated_settings(folder: Path, url: str) -> Path:
    """Write the configuration with the simulated reviewers in place of the real ones; they are named so."""
    text = (HERE / "shikisha.toml").read_text().replace(REAL, url)
    names = iter(re.findall(r"\[workers\.(\w+)\]", text))
    text = re.sub(r'^model = ".*"', lambda _: f'model = "simulated-{next(names)}"', text, flags=re.MULTILINE)
    (folder / "shikisha.toml").write_text(text)
    return folder / "shikisha.toml"


def count_remarks(run: Run, reviewed: Reviewed) -> None:
    """Count the remarks that there were to make in a commit, and those that the reviews made."""
    for turn in run.rounds:
        for index, step in enumerate(turn.plan.steps if turn.plan else ()):
            if step.each is None:
                continue
            listed = turn.steps[step.each].result
            for item, shown in enumerate(json.loads(listed.text or "[]") if listed else ()):
                there = findings(shown["change"])
                result = turn.steps[item_step(index, item)].result
                said = Counter((result.text or "").splitlines() if result else ())
                made = Counter(f"{rule}: {line[:80]}" for rule, line in there)
                reviewed.there += made.total()
                reviewed.made += (said & made).total()


def ways(seed: int) -> dict[str, Chooser]:
    """Return who reviews what, by the name of the way: ours, and the controls."""
    drawn = random.Random(seed)  # noqa: S311  no secrets
    return {
        "a specialist for each language": lambda _, language, __: language,
        "always the best": lambda *_: "best",
        "always the cheapest": lambda *_: "cheap",
        "a random reviewer": lambda *_: drawn.choice([*REVIEWERS, "best", "cheap"]),
        "the best where a keyword says so": lambda _, __, changes: "best" if URGENT.search(changes) else "cheap",
    }


async def main(arguments: Sequence[str] | None = None) -> None:
    """Review, print the plan of the last commit, and compare where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=Path(), help="A local git repository.")
    parser.add_argument("--commits", type=int, default=1, help="How many commits, the last ones without merges.")
    parser.add_argument(
        "--tests", default="", help='A command, as in "pytest -q {files}"; without, files are compiled.'
    )
    parser.add_argument("--revision", default="HEAD", help="The last commit.")
    parser.add_argument("--real", action="store_true", help="Ask the models of shikisha.toml.")
    parser.add_argument("--controls", action="store_true", help="Review by other ways too, and draw the money curve.")
    parser.add_argument("--folder", type=Path, default=Path(), help="Where to write.")
    parser.add_argument("--seed", type=int, default=1, help="The seed of the random reviewer.")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        commits = git(
            given.repository, "log", "--no-merges", f"-{given.commits}", "--format=%H", given.revision
        ).split()
    except WorkerError as error:
        sys.exit(f"{given.repository}: {error.fault.message}")
    compared: dict[str, Reviewed] = {}
    for name, choose in list(ways(given.seed).items())[: None if given.controls else 1]:
        runs, compared[name] = await review(given.repository, commits, given, choose)
        if len(compared) == 1:
            files = sum(
                len(record.items or ()) for run in runs for turn in run.rounds for record in turn.steps.values()
            )
            print(
                f"{len(runs)} commits, {files} files, each reviewed alone. "
                f"The plan for {commits[0][:10]} (run {runs[0].id}):"
            )
            print(runs[0].answer or f"no plan: {runs[0].why}")
    for name, reviewed in compared.items():
        spent = sum(reviewed.dollars)
        told = f"{reviewed.made} of {reviewed.there} remarks ({reviewed.recall:.1%})"
        print(f"{name:34} {format_dollars(spent):>10}  {told}")
    if given.controls:
        lines = [Spending(name, each.dollars, f"{each.recall:.1%} of the remarks") for name, each in compared.items()]
        (given.folder / "money.svg").write_text(
            money_curve(f"Reviewing {len(commits)} commits, simulated reviewers", lines)
        )
        (given.folder / "review.json").write_text(
            json.dumps(
                {n: {"dollars": sum(e.dollars), "recall": e.recall, "remarks": e.there} for n, e in compared.items()}
            )
        )


if __name__ == "__main__":
    asyncio.run(main())
