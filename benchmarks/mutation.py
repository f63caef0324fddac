"""Mutation testing: how many small wrong edits of the code that guards money, data and people do the tests notice?

    python benchmarks/mutation.py [--each 30] [--seed 1] [--only labels,ledger] [--jobs 2] [--json FILE]
    python benchmarks/mutation.py --named [--only vote,keys]

With --named the edits are those of tests/project/mutants.toml: each breaks one documented promise, and the test beside
it must fail. CI runs that list; --only takes parts of their names. Without it, the edits are mutmut's operators
(comparisons, boolean operators, numbers, dropped arguments, assignments of None, ...), drawn by a seed from the
functions of the modules below. Each mutant is tested in a copy of the tree by the tests named beside its module, in a
process of its own. A mutant is killed when a test fails or when the tests take far longer than they do without it. A
survivor is a gap in the tests, or an edit that changes nothing; docs/results/security.md says which.

Deliberately absent: mutants of annotations, docstrings and sentences for people, which no test should pin.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).resolve().parent.parent
_LONGER = 5  # a mutant that makes its tests this many times as slow has been noticed
_LEAST_SECONDS = 20.0
_SENTENCE = frozenset({"BaseString", "FormattedString"})
_NAMED_KEYS = ("name", "file", "old", "new", "test")
_FAILED = (1, 2)  # pytest's exit codes for failed tests and for an error while it collected them


@dataclass(frozen=True)
class Group:
    """Modules that guard one thing, and the tests that should notice an edit."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


GROUPS = {
    "labels": Group(("core/visibility.py",), ("core/test_data_labels.py",)),
    "approvals": Group(
        ("engine/approvals.py", "engine/questions.py"),
        ("engine/test_approvals.py", "engine/test_autonomy.py", "engine/test_resume_replay.py"),
    ),
    "ledger": Group(
        ("engine/budget_ledger.py",),
        ("engine/test_budget_ledger.py", "engine/test_rounds.py", "engine/test_children.py"),
    ),
    "model selection": Group(
        ("routing/fit/model_selection.py", "routing/fit/online_evaluation.py"),
        (
            "routing/test_model_selection.py",
            "routing/test_online_evaluation.py",
            "routing/test_outcome_matrix_odd_logs.py",
        ),
    ),
    "compensation": Group(("engine/compensation.py",), ("engine/test_compensation.py",)),
    "leases": Group(
        ("server/store/claims.py",),
        ("server/test_run_store.py", "server/test_store_claims.py", "server/test_quarantine.py"),
    ),
    "billing": Group(("workers/chat_reply.py",), ("workers/test_chat_reply.py", "engine/test_billing.py")),
    "graders": Group(
        tuple(f"evals/graders/{name}.py" for name in ("choice", "number", "text_match", "quantities")),
        tuple(f"evals/test_{name}.py" for name in ("graders", "grader_cases", "canonical_form", "hostile_answers")),
    ),
    "code graders": Group(
        tuple(f"../../plugins/code/src/shikisha_code/{name}.py" for name in ("code_tests", "code_grader")),
        tuple(f"../plugins/code/tests/test_{name}.py" for name in ("code_tests", "value_comparison", "harness")),
    ),
    "pools": Group(("engine/pool.py",), ("engine/test_pool.py",)),
}


@dataclass(frozen=True)
class Mutant:
    """One edit: `before` became `after` in a line of a module; `code` is the module with it."""

    group: str
    module: str
    line: int
    before: str
    after: str
    code: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, without its code."""

    group: str
    module: str
    line: int
    before: str
    after: str
    killed: bool
    how: str


class _Places(cst.CSTVisitor):
    """Collects the nodes that may be edited: those inside functions that run, but no annotation and no sentence."""

    def __init__(self) -> None:
        self.found: list[cst.CSTNode] = []
        self._functions = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: N802 - libcst's name
        self._functions += 1
        node.body.visit(self)  # neither decorators nor parameters
        self._functions -= 1
        return False

    def visit_Annotation(self, node: cst.Annotation) -> bool:  # noqa: N802, ARG002 - libcst's
        return False

    def visit_Expr(self, node: cst.Expr) -> bool:  # noqa: N802 - libcst's name
        return not isinstance(node.value, cst.SimpleString)  # a docstring

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:  # noqa: N802, ARG002 - libcst's
        return False

    def visit_Raise(self, node: cst.Raise) -> bool:  # noqa: N802, ARG002 - its words are for people; that it raises is not
        return False

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._functions and not _is_sentence(node):
            self.found.append(node)
        return super().on_visit(node)


def _is_sentence(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString) and (" " in node.value or not node.value.strip("rb'\""))


def mutants(group: str, module: str) -> Iterator[Mutant]:
    """Yield all edits of a module under src/shikisha."""
    source = (ROOT / "src" / "shikisha" / module).read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(source))
    lines, places = wrapper.resolve(PositionProvider), _Places()
    wrapper.module.visit(places)
    for node in places.found:
        for kind, operator in mutation_operators:
            if not isinstance(node, kind):
                continue
            for edited in operator(node):
                module_after = wrapper.module.deep_replace(node, edited)
                code = module_after.code if isinstance(module_after, cst.Module) else source
                if code != source and _compiles(code):
                    before, after = (_text(wrapper.module, each) for each in (node, edited))
                    yield Mutant(group, module, lines[node].start.line, before, after, code, GROUPS[group].tests)


def named_mutants() -> list[Mutant]:
    """Return the edits of tests/project/mutants.toml; ValueError names the first that does not fit the source."""
    found: list[Mutant] = []
    tables = tomllib.loads((ROOT / "tests" / "project" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    for table in tables:
        name, file, old, new, test = (table[key] for key in _NAMED_KEYS)
        source = (ROOT / "src" / "shikisha" / file).read_text(encoding="utf-8")
        if (count := source.count(old)) != 1 or len(table) != len(_NAMED_KEYS):
            msg = f"mutant {name!r}: {file} has `old` {count} times, expected once; keys: {', '.join(_NAMED_KEYS)}"
            raise ValueError(msg)
        if not _compiles(code := source.replace(old, new)) or name in {each.group for each in found}:
            msg = f"mutant {name!r}: {file} does not compile with `new`, or another mutant has this name"
            raise ValueError(msg)
        found.append(Mutant(name, file, source[: source.index(old)].count("\n") + 1, old, new, code, (test,)))
    return found


def _text(module: cst.Module, node: cst.CSTNode) -> str:
    return " ".join(module.code_for_node(node).split())[:200]


def _compiles(code: str) -> bool:
    try:
        compile(code, "mutant.py", "exec")
    except SyntaxError:
        return False
    return True


class Bench:
    """A copy of the tree in which one mutant at a time is tested."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._tree = self._folder / "tree"
        self._edits = 0
        for name in ("src", "plugins", "tests", "benchmarks", "docs", "recipes", "examples"):
            shutil.copytree(ROOT / name, self._tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conftest.py", "pyproject.toml", "README.md", "SECURITY.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, self._tree / name)
        if (shared := ROOT.parent / "shared").is_dir():
            (self._folder / "shared").symlink_to(shared.resolve())

    def passed(self, tests: Iterable[str], seconds: float) -> tuple[bool, str]:
        """Whether these tests pass within so many seconds, and what became of them in a word."""
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os._exit(self._test([str(Path("tests") / each) for each in tests]))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code == 0, "failed" if code in _FAILED else f"exit {code}"
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False, f"no end after {seconds:.0f} s"

    def _test(self, tests: list[str]) -> int:
        os.chdir(self._tree)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(self._folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.path[:0] = [str(self._tree / "src"), str(self._tree / "tests"), str(self._tree / "benchmarks")]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])
        import pytest

        return int(pytest.main(["-q", "-x", "--no-header", "-W", "ignore", *tests]))

    def judge(self, mutant: Mutant, seconds: float) -> Verdict:
        """Test one mutant."""
        file = self._tree / "src" / "shikisha" / mutant.module
        whole = file.read_text(encoding="utf-8")
        self._write(file, mutant.code)
        try:
            survived, how = self.passed(mutant.tests, seconds)
        finally:
            self._write(file, whole)
        told = {key: value for key, value in asdict(mutant).items() if key not in ("code", "tests")}
        return Verdict(**told, killed=not survived, how="survived" if survived else how)

    def _write(self, file: Path, code: str) -> None:
        """Write a module with a time of its own: bytecode of the same size and second would be taken for it."""
        file.write_text(code, encoding="utf-8")
        self._edits += 1
        os.utime(file, (self._edits, self._edits))

    @property
    def output(self) -> str:
        """What the tests printed last."""
        return (self._folder / "output").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self._folder, ignore_errors=True)


def main() -> None:
    """Draw mutants from each group, test them, and print who survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--each", type=int, default=30, help="mutants drawn from each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="groups, with commas between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where every verdict is written")
    parser.add_argument("--named", action="store_true", help="the edits of tests/project/mutants.toml")
    asked = parser.parse_args()
    parts = [part for part in asked.only.split(",") if part]
    names = [] if asked.named else parts or list(GROUPS)
    if unknown := [name for name in names if name not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}: expected some of {', '.join(GROUPS)}")
    import fastapi  # imported once, here: every mutant's process begins with a copy
    import hypothesis
    import pydantic
    import pytest_asyncio
    import sqlalchemy.ext.asyncio

    _ = fastapi, hypothesis, pydantic, pytest_asyncio, sqlalchemy
    benches = [Bench() for _ in range(asked.jobs)]
    verdicts: list[Verdict] = []
    try:
        if asked.named:
            drawn = [each for each in named_mutants() if not parts or any(part in each.group for part in parts)]
            tests = tuple(dict.fromkeys(test for each in drawn for test in each.tests))
            verdicts += _judged("named mutants", drawn, tests, benches)
        for name in names:
            verdicts += _group(name, asked.each, asked.seed, benches)
    finally:
        for bench in benches:
            bench.close()
    if not asked.named:
        _summarize(verdicts)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(each) for each in verdicts], indent=1), encoding="utf-8")
    sys.exit(any(not each.killed for each in verdicts))


def _group(name: str, most: int, seed: int, benches: list[Bench]) -> list[Verdict]:
    every = [mutant for module in GROUPS[name].modules for mutant in mutants(name, module)]
    drawn = random.Random(seed).sample(every, min(most, len(every)))
    return _judged(f"{name}, {len(every)} mutants", drawn, GROUPS[name].tests, benches)


def _judged(title: str, drawn: list[Mutant], tests: tuple[str, ...], benches: list[Bench]) -> list[Verdict]:
    """Test mutants, on as many benches at once, after `tests` pass without one; print the survivors."""
    began = time.monotonic()

    def try_without(place: int) -> None:
        bench, part = benches[place], tests[place :: len(benches)]
        passed, how = bench.passed(part, 600.0) if part else (True, "")
        if not passed:
            sys.exit(f"{bench.output[-4000:]}\n{title}: the tests do not pass without a mutant ({how})")

    with ThreadPoolExecutor(len(benches)) as threads:
        list(threads.map(try_without, range(len(benches))))
    seconds = max(_LEAST_SECONDS, _LONGER * (time.monotonic() - began))
    print(f"{title}: {len(drawn)} tested, {time.monotonic() - began:.1f} s of tests without a mutant", flush=True)
    free = list(benches)

    def judge(mutant: Mutant) -> Verdict:
        bench = free.pop()
        try:
            return bench.judge(mutant, seconds)
        finally:
            free.append(bench)

    with ThreadPoolExecutor(len(benches)) as threads:
        verdicts = list(threads.map(judge, drawn))
    for each in verdicts:
        if not each.killed:
            print(f"  survived: {each.group}: {each.module}:{each.line}: {each.before}  ->  {each.after}", flush=True)
    print(f"{title}: {sum(each.killed for each in verdicts)} killed in {time.monotonic() - began:.0f} s", flush=True)
    return verdicts


def _summarize(verdicts: list[Verdict]) -> None:
    for name in dict.fromkeys(each.group for each in verdicts):
        of_group = [each for each in verdicts if each.group == name]
        print(f"{name:<18} {sum(each.killed for each in of_group):>4} of {len(of_group)} killed")
    killed = sum(each.killed for each in verdicts)
    print(f"{'all':<18} {killed:>4} of {len(verdicts)} killed, {killed / max(1, len(verdicts)):.1%}")


if __name__ == "__main__":
    main()
