"""Patches graded by a repository's tests: against a plain pytest run, and against hostile patches.

Make tasks first, of any git repository (`shikisha import repository REPO --out FOLDER`), then:

    python benchmarks/repositories.py FOLDER... [--json]

For each task the right patch, no change, and broken forms of the right patch are graded and compared with what
`python -m pytest` prints of the listed tests, without our sandbox and harness. Hostile patches run on one task
of each folder, `--times` each.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from common import Figure, report

sys.path.append(str(Path(__file__).parent.parent / "plugins/code/tests"))
from repository_attacks import Target, attack_names, attack_patch, difference

from shikisha.evals.graders import GradeMark
from shikisha.evals.tasksets.task_rows import read_rows
from shikisha.sandbox import Sandbox
from shikisha.sandbox.availability import full_python_sandbox, limits_for
from shikisha_code.patch_grader import PatchGrader, RepositoryTask
from shikisha_code.repository_tasks import read_task
from shikisha_code.separated_tests import protect_tests
from shikisha_code.unified_diff import apply_patch, read_patch

_PLAIN_SECONDS = 60
_ATTACK_SECONDS = 10.0


@dataclass(frozen=True)
class LoadedTask:
    """A task, its right patch, and its name."""

    name: str
    task: RepositoryTask
    patch: str


def load(folder: Path) -> list[LoadedTask]:
    """Return the tasks of a folder."""
    rows = read_rows(folder / "tasks.jsonl")
    return [LoadedTask(row.text("instance_id"), read_task(row, folder), row.text("patch")) for row in rows]


def candidates(loaded: LoadedTask, luck: random.Random) -> Iterator[tuple[str, str]]:
    """Yield patches: the right one, one that changes nothing that counts, and broken forms of the right one."""
    base = loaded.task.base
    right = apply_patch(base, read_patch(loaded.patch))
    yield "right", loaded.patch
    yield "nothing", difference(base, {**base, "NOTES-of-nothing.txt": b"nothing\n"})
    changed = [name for name in right if right[name] != base.get(name) and name.endswith(".py")]
    name = luck.choice(changed)
    lines = right[name].decode().splitlines(keepends=True)
    old = set(base.get(name, b"").decode().splitlines(keepends=True))
    new = [place for place, line in enumerate(lines) if line not in old and line.strip()]
    if new:
        place = luck.choice(new)
        indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        broken = "".join([*lines[:place], f"{indent}pass\n", *lines[place + 1 :]]).encode()
        if broken != base.get(name):
            yield "a line lost", difference(base, {**right, name: broken})


def plain_verdict(loaded: LoadedTask, patch: str) -> bool:
    """Whether plain pytest, in a process of this machine, prints that all listed tests passed."""
    task = loaded.task
    tree = protect_tests(apply_patch(task.base, read_patch(patch)), task.trusted)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in tree.items():
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        paths = os.pathsep.join(str(Path(folder, path)) for path in task.settings.paths)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "PYTHONPATH": paths,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        command = [sys.executable, "-m", "pytest", "-rA", "-q", "--tb=no", *task.settings.files]
        try:
            done = subprocess.run(  # noqa: S603 - patches of this benchmark
                command, cwd=folder, env=environment, capture_output=True, timeout=_PLAIN_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    lines = done.stdout.decode(errors="replace").splitlines()
    passed = {line.removeprefix("PASSED ") for line in lines if line.startswith("PASSED ")}
    broken = {line.split(" - ")[0].partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))}
    return set(task.must_pass) | set(task.keep_passing) <= passed - broken


async def compare(tasks: list[LoadedTask], sandbox: Sandbox) -> tuple[int, int, dict[str, list[int]], float]:
    """Return gradings, those equal to plain pytest, right grades by kind of patch, and seconds of a grade."""
    luck, total, equal, spent = random.Random(7), 0, 0, 0.0
    kinds: dict[str, list[int]] = {}
    for loaded in tasks:
        grader = PatchGrader(loaded.task, sandbox)
        for what, patch in candidates(loaded, luck):
            start = perf_counter()
            grade = await grader.grade(patch)
            spent += perf_counter() - start
            verdict = await asyncio.to_thread(plain_verdict, loaded, patch)
            total += 1
            same = grade.mark is (GradeMark.RIGHT if verdict else GradeMark.WRONG)
            equal += same
            kinds.setdefault(what, [0, 0])
            kinds[what][0] += grade.mark is GradeMark.RIGHT
            kinds[what][1] += 1
            print(f"{loaded.name} {what}: {grade.mark}, shared {grade.shared}, plain {verdict}", file=sys.stderr)
            if not same:
                print(f"UNEQUAL {loaded.name} {what}: plain {verdict}, {grade.mark}: {grade.evidence}", file=sys.stderr)
    return total, equal, kinds, spent / max(1, total)


def importable_module(loaded: LoadedTask) -> str:
    """Return the module that the right patch changes: the tests import it."""
    right = apply_patch(loaded.task.base, read_patch(loaded.patch))
    changed = [name for name in right if right[name] != loaded.task.base.get(name) and name.endswith(".py")]
    return next(name for name in changed if name in loaded.task.base)


async def attack(loaded: LoadedTask, sandbox: Sandbox, names: list[str], times: int) -> dict[str, int]:
    """Return how many times each attack is graded right."""
    settings = replace(loaded.task.settings, seconds=_ATTACK_SECONDS)
    task = replace(loaded.task, settings=settings)
    test = next(name for name in task.settings.files if name in task.base)
    target = Target(task.base, importable_module(loaded), test, (*task.must_pass, *task.keep_passing))
    grader, found = PatchGrader(task, sandbox), dict[str, int]()
    for name in names:
        patch = attack_patch(name, target)
        grades = [await grader.grade(patch) for _ in range(times)]
        found[name] = sum(grade.mark is GradeMark.RIGHT for grade in grades)
        print(f"{loaded.name} {name}: {found[name]} of {times} {grades[0].evidence[:150]}", file=sys.stderr)
    return found


async def measure(folders: list[Path], attacks: list[str], times: int, compares: bool) -> list[Figure]:
    """Return the figures."""
    sandbox = await full_python_sandbox(limits_for("jail", 120.0, 8_000_000))
    sets = [load(folder) for folder in folders]
    tasks = [loaded for found in sets for loaded in found]
    figures = [Figure("tasks", len(tasks), "", 60, True), Figure("repositories", len(sets), "", 3, True)]
    if compares:
        total, equal, kinds, seconds = await compare(tasks, sandbox)
        figures += [Figure(f"graded right: {what}", right / of, f"of {of}") for what, (right, of) in kinds.items()]
        figures += [Figure("gradings", total, ""), Figure("equal to plain pytest", equal / total, "", 1.0, True)]
        figures.append(Figure("a grading", seconds, "s"))
    if attacks:
        chosen = [min(found, key=lambda one: len(one.task.keep_passing) + 10**6 * (not _known(one))) for found in sets]
        right = [count for one in chosen for count in (await attack(one, sandbox, attacks, times)).values()]
        figures += [
            Figure("hostile patches", len(attacks), "", 60, True),
            Figure("hostile gradings", len(right) * times, ""),
            Figure("hostile graded right", sum(right), "", 0),
        ]
    return figures


def _known(loaded: LoadedTask) -> bool:
    """Whether a task changes a module and tests that are there."""
    try:
        importable_module(loaded)
    except StopIteration:
        return False
    return any(name in loaded.task.base for name in loaded.task.settings.files)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--no-attacks", action="store_true")
    parser.add_argument("--only-attacks", metavar="WORD", help="only attacks whose kind has this word; * for all")
    parser.add_argument("--times", type=int, default=1)
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    word = (given.only_attacks or "").replace("*", "")
    attacks = [] if given.no_attacks else [name for name in attack_names() if word in name]
    figures = asyncio.run(measure(given.folders, attacks, given.times, given.only_attacks is None))
    report("Patches graded by a repository's tests", figures)


if __name__ == "__main__":
    main()
