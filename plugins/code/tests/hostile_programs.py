# ruff: noqa: E501, S108, SIM115 - hostile programs as they are, one a line; files that are read once
"""Hostile programs against the code grader: none may be graded right, whatever the style of the tests.

Each program defines the functions that the tests call, wrong, and attacks what would notice: built-ins, modules,
unittest, comparison, frames, descriptors, the files of the jail, or the pipes to the judge's process. With --data a
folder with HumanEval.jsonl.gz (github.com/openai/human-eval, data/), mbpp.jsonl (github.com/google-research/
google-research, mbpp/) and BigCodeBench.jsonl.gz (github.com/bigcode-project/bigcodebench-annotation, data/) the
published reference solutions are graded too: those of BigCodeBench where its libraries are Python's own.

The attacks of hostile_attacks.py are graded on realistic tests, and those of plugins/code/tests/judge_attacks.py and
judge_attacks_read.py (by somebody who has read the judge's code) each on tests that rely on what it attacks; so are honest programs, all of which must be right but
for the documented limits. With --old, the root of another checkout, the same is graded by its code, side by side, and
--time compares the time of honest programs, in pairs, one after the other.

python plugins/code/tests/hostile_programs.py [--data DIR] [--old ROOT [--time]] [--attacks-only] [--json]
"""

import ast
import asyncio
import gzip
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from hostile_attacks import HONEST_PROGRAMS, LIMITS, TASKS, attacks
from judge_attacks import CHEATS, ORACLES
from judge_attacks_read import KINDS
from judge_attacks_read import cheats as reader_cheats

from common import Figure, report
from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.sandbox import SandboxLimits
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha_code.code_grader import CodeSettings, build_code_grader

CHECK = """
def check(candidate):
    for n in range(1, 4):
        assert abs(candidate(list(range(n))) - (n - 1) / 2) < 1e-9
    assert sorted([candidate([3]), candidate([1])]) == [1, 3]
"""
SUITE = """
import math, unittest
class T(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2]), 1.5)
    def test_near(self):
        self.assertTrue(math.isclose(mean([1, 3]), 2))
        self.assertIn(mean([4]), [4.0])
"""
ASSERTS = ["import math", "assert math.isclose(mean([1, 2]), 1.5)", "assert mean([3]) in [3]"]
PAIRS = [{"input": [[1, 2]], "output": 1.5}, {"input": [[4]], "output": 4}]
SPECS: Mapping[str, Mapping[str, object]] = {
    "check": {"style": "check", "entry": "mean", "source": CHECK},
    "asserts": {"style": "asserts", "asserts": ASSERTS},
    "unittest": {"style": "unittest", "entry": "mean", "source": SUITE},
    "function": {"style": "function", "entry": "mean", "pairs": PAIRS},
    "stdio": {"style": "stdio", "pairs": [{"input": "1 2", "output": "1.5"}]},
}
HONEST = (
    "def mean(xs): return sum(xs) / len(xs)\nif __name__ == '__main__': print(mean(list(map(int, input().split()))))"
)
OVERLOADS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__bool__", "__call__"]
BUILT_IN = [
    "exec",
    "compile",
    "__build_class__",
    "eval",
    "isinstance",
    "issubclass",
    "abs",
    "sorted",
    "range",
    "len",
    "all",
    "any",
    "sum",
    "min",
    "max",
    "list",
    "dict",
    "set",
    "tuple",
    "float",
    "int",
    "str",
    "bool",
    "type",
    "getattr",
    "setattr",
    "hasattr",
    "callable",
    "iter",
    "next",
    "zip",
    "map",
    "filter",
    "enumerate",
    "repr",
    "hash",
    "id",
    "open",
    "print",
    "input",
    "vars",
    "super",
    "object",
    "AssertionError",
    "Exception",
    "BaseException",
    "ValueError",
    "TypeError",
    "__import__",
]
CHANGED = [
    "unittest.suite.TestSuite.run",
    "unittest.TestCase.run",
    "unittest.TestCase.assertEqual",
    "unittest.TestCase.assertTrue",
    "unittest.TestCase.assertIn",
    "unittest.TestCase.fail",
    "unittest.TestResult.startTest",
    "unittest.TestResult.addFailure",
    "unittest.TestLoader.getTestCaseNames",
    "unittest.case._Outcome.testPartExecutor",
    "unittest.mock.patch",
    "math.isclose",
    "math.fabs",
    "json.loads",
    "json.dumps",
    "json.JSONDecoder.decode",
    "json.JSONEncoder.encode",
    "re.fullmatch",
    "re.match",
    "operator.eq",
    "operator.is_",
    "ast.parse",
    "ast.literal_eval",
    "signal.signal",
    "signal.setitimer",
    "sys.settrace",
    "sys.excepthook",
    "sys._getframe",
    "sys.exit",
    "os._exit",
    "os.read",
    "os.write",
    "os.dup",
    "os.dup2",
    "io.TextIOWrapper.write",
    "inspect.signature",
    "importlib.import_module",
    "functools.wraps",
    "traceback.format_exc",
    "decimal.Decimal.compare",
    "fractions.Fraction.limit_denominator",
    "copy.deepcopy",
    "collections.Counter.elements",
    "pickle.loads",
    "marshal.loads",
    "types.FunctionType",
    "random.random",
    "threading.Thread.start",
    "warnings.warn",
    "gc.get_objects",
    "atexit.register",
    "resource.setrlimit",
    "time.time",
    "itertools.chain",
    "statistics.mean",
]
BASES = [
    "int",
    "str",
    "float",
    "complex",
    "bytes",
    "bytearray",
    "list",
    "dict",
    "set",
    "frozenset",
    "tuple",
    "object",
    "Exception",
    "collections.deque",
    "collections.Counter",
    "collections.OrderedDict",
    "collections.defaultdict",
    "decimal.Decimal",
    "fractions.Fraction",
    "datetime.timedelta",
    "uuid.UUID",
    "pathlib.PurePosixPath",
    "collections.UserList",
    "collections.UserDict",
    "collections.UserString",
    "unittest.mock.MagicMock",
    "unittest.mock.Mock",
]
PEER = "import gc\npeer = next((o for o in gc.get_objects() if type(o).__name__ == 'Attendant'), None)\n"
SENT = {
    "value": ["value", True, [], {}],
    "none": ["value", None, [], {}],
    "many": ["value", {"tuple": []}, [[0, [1.5]]], {}],
    "far": ["value", None, [[99, []]], {}],
    "exec": ["ask", "call", [{"global": ["builtins", "exec"]}, "1"], {}, {}],
    "import": ["ask", "call", [{"global": ["os", "_exit"]}, 0], {}, {}],
    "globals": ["ask", "getattr", [{"yours": 0}, "__globals__"], {}, {}],
    "class": ["ask", "call", [{"type": "type"}, "x", {"tuple": []}, {"dict": []}], {}, {}],
    "code": ["value", {"code": []}, [], {}],
    "module": ["value", {"module": "os"}, [], {}],
    "skip": ["raise", {"error": [[[1, "unittest.case", "SkipTest"]], [], {}, ""]}, [], {}],
    "stop": ["raise", {"error": [[[1, "unittest.case", "_ShouldStop"]], [], {}, ""]}, [], {}],
    "exit": ["raise", {"error": [[[None, "builtins", "SystemExit"]], [0], {}, ""]}, [], {}],
    "interrupt": ["raise", {"error": [[[None, "builtins", "KeyboardInterrupt"]], [], {}, ""]}, [], {}],
    "time": ["raise", {"error": [[[1, "__main__", "TimeUp"]], [], {}, ""]}, [], {}],
    "unknown": ["value", {"own": [1, "", None, None]}, [], {}],
    "base": ["value", {"own": [1, "eval", "1", [1, "x", []]]}, [], {}],
    "mine": ["value", {"yours": 5}, [], {}],
    "empty": [],
    "word": ["verdict", "right"],
    "path": ["value", None, [], {"path": ["/tmp"], "folder": "/"}],
    "printed": ["value", None, [], {"stdout": "OK", "warnings": [[["DeprecationWarning"], "x"]]}],
    "member": ["value", {"member": ["T", "x"]}, [], {}],
    "deep": ["value", json.loads("[" * 200 + "]" * 200), [], {}],
    "not a number": ["value", {"float": "nan"}, [], {}],
    "numbers": ["value", {"decimal": "sNaN"}, [], {}],
}
LOADED = {
    "leaves": "import os; os._exit(0)",
    "exits": "raise SystemExit(0)",
    "at exit": "import atexit, os; atexit.register(os._exit, 0)",
    "thread": "import threading, os; threading.Timer(.01, lambda: os._exit(0)).start()",
    "writes a module": "for n in ('math', 'unittest', 'sitecustomize', 'program'):\n    open(n + '.py', 'w').write('isclose = 1')",
    "a pickle": "open('x.pickle', 'wb').write(b'cos\\n_exit\\n(I0\\ntR.')",
    "hooks": "import sys\nclass H:\n    def find_spec(self, *a): raise SystemExit(0)\nsys.meta_path.insert(0, H())",
    "modules": "import sys; sys.modules['math'] = sys.modules['unittest'] = None",
    "environment": "import os; os.environ.update(PYTHONPATH='.', PYTHONSTARTUP='x.py')",
    "audit": "import sys; sys.addaudithook(lambda *a: None)",
    "trace": "import sys; sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)",
    "alarm": "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)",
    "memory": "try:\n    open('/proc/self/mem', 'r+b')\nexcept OSError: pass",
    "parent": "import os, signal\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError: pass",
    "closes": "import os; os.closerange(0, 64)",
    "deep": "import sys; sys.setrecursionlimit(10**6)",
    "native": "import ctypes; ctypes.pythonapi.PyErr_SetString",
    "own name": "__name__ = 'tests'; import sys; sys.modules['tests'] = sys.modules.get('program')",
    "own suite": "import unittest\nclass T(unittest.TestCase):\n    def test_mean(self): pass\n    test_near = test_mean",
    "own check": "def check(candidate): pass\ncandidate = lambda *a: 0",
    "own math": "class math:\n    isclose = staticmethod(lambda *a: True)",
    "arguments": "import sys; sys.argv[:] = ['--help']",
}
BODIES = {
    "nothing": "return None", "truth": "return True", "itself": "return mean", "class": "return Exception",
    "not a number": "return float('nan')", "endless numbers": "return float('inf')", "not implemented": "return NotImplemented",
    "dots": "return ...", "yields": "yield 1.5", "all at once": "return [1.5, 2, 3, 4]", "gives its argument": "return xs",
    "clears it": "xs.clear(); return xs", "raises": "raise AssertionError", "skips": "import unittest; raise unittest.SkipTest('x')",
    "stops": "import unittest.case as c; raise c._ShouldStop", "leaves": "import os; os._exit(0)", "exits": "raise SystemExit(0)",
    "interrupts": "raise KeyboardInterrupt", "ends": "raise GeneratorExit", "no more": "raise StopIteration(1.5)",
    "evil text": "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})", "deep": "return mean(xs)",
    "circle": "a = []; a.append(a); return a", "huge": "return 'x' * 10**7", "module": "import unittest.mock as m; return m",
    "anything": "import unittest.mock as m; return m.ANY", "generic": "return list[int]", "memory": "return memoryview(b'x')",
    "async": "import asyncio\n    async def f(): return 1.5\n    return f()", "partial": "import functools; return functools.partial(max)",
    "weak": "import weakref\n    class A: pass\n    a = A(); mean.a = a; return weakref.proxy(a)",
    "class of another": "return type('A', (), {'__class__': property(lambda s: float)})()",
    "descriptor": "return type('A', (), {'__get__': lambda *a: 1.5, '__float__': lambda s: 1.5})()",
    "swaps frames": "import sys\n    for k in list(sys._getframe(1).f_globals): sys._getframe(1).f_globals[k] = lambda *a: True",
}  # fmt: skip
LIAR = "methods = {n: lambda *a: True for n in %r}\nmethods.update({n: (lambda s, *a: s) for n in ('__sub__', '__rsub__', '__abs__', '__radd__')}, __hash__=lambda s: 1, __len__=lambda s: 1, __iter__=lambda s: iter([s]))\n"


def programs() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each program."""
    nothing = "\ndef mean(xs): return None\n"
    for name in BUILT_IN:
        yield f"built-in {name}", f"import builtins{nothing}builtins.{name} = lambda *a, **k: True"
    for place in CHANGED:
        module = place.rpartition(".")[0] if not place.split(".")[-2][:1].isupper() else place.rsplit(".", 2)[0]
        module = module.removesuffix("._Outcome")
        change = f"try: {place} = lambda *a, **k: True\nexcept (TypeError, AttributeError): pass"
        yield f"changes {place}", f"import {module}{nothing}{change}"
    for base in BASES:
        imports = f"import {base.rpartition('.')[0]}\n" if "." in base else ""
        made = f"T = type('T', ({base},), {{k: v for k, v in methods.items()}})\n"
        yield f"a {base} that lies", f"{imports}{LIAR % OVERLOADS}{made}def mean(xs): return T.__new__(T)"
        yield f"a list of {base}", f"{imports}{LIAR % OVERLOADS}{made}def mean(xs): return [T.__new__(T)]"
    for name, sent in SENT.items():
        send = f"if peer: peer._send({sent!r})"
        yield f"sends {name} at once", f"{PEER}{nothing}{send}"
        yield f"sends {name} when called", f"{PEER}\ndef mean(xs):\n    {send}\n    return None"
    for name, text in LOADED.items():
        yield f"loaded: {name}", f"{nothing}{text}"
    for name, text in BODIES.items():
        yield f"called: {name}", f"def mean(xs):\n    {text}"
    for descriptor in range(16):
        data = b'["value", true, [], {}]\n' if descriptor % 2 else b'{"steps": [{}, {}, {}], "passed": 2, "first": []}'
        write = f"import os\ntry: os.write({descriptor}, {data!r})\nexcept OSError: pass"
        yield f"writes to {descriptor}", f"{nothing}{write}"


def published(folder: Path) -> Iterator[tuple[str, dict[str, object], str]]:
    """Yield the set, the settings and the reference solution of each task that lies in a folder."""
    if (path := folder / "HumanEval.jsonl.gz").exists():
        for row in map(json.loads, gzip.open(path, "rt", encoding="utf-8")):
            spec = {"style": "check", "source": row["test"], "entry": row["entry_point"], "prompt": row["prompt"]}
            yield "HumanEval", spec, row["prompt"] + row["canonical_solution"]
    if (path := folder / "mbpp.jsonl").exists():
        for row in map(json.loads, path.open(encoding="utf-8")):
            yield (
                "MBPP",
                {"style": "asserts", "setup": row["test_setup_code"], "asserts": row["test_list"]},
                row["code"],
            )
    if (path := folder / "BigCodeBench.jsonl.gz").exists():
        for row in map(json.loads, gzip.open(path, "rt", encoding="utf-8")):
            libraries = row["libs"] if isinstance(row["libs"], list) else ast.literal_eval(row["libs"])
            if all(name.partition(".")[0] in sys.stdlib_module_names for name in libraries):
                spec = {
                    "style": "unittest",
                    "source": row["test"],
                    "entry": row["entry_point"],
                    "prompt": row["prompt"],
                }
                yield "BigCodeBench", spec, f"{row['prompt_wo_doc']}\n{row['clean_canonical_solution']}"


async def measure(folder: Path | None) -> list[Figure]:
    """Grade everything, a few at a time."""
    room, marks = asyncio.Semaphore(2), Counter[tuple[str, GradeMark]]()
    async with ProcessSandbox(SandboxLimits(seconds=20.0, memory=512 * 2**20, output=100_000, depth=1_000)) as jail:

        async def graded(group: str, spec: Mapping[str, object], program: str, name: str, seconds: float) -> None:
            async with room:
                grader = build_code_grader(
                    CodeSettings.model_validate({**spec, "seconds": seconds}), GraderTools(sandbox=jail)
                )
                grade = await grader.grade(f"```python\n{program}\n```")
            marks[group, grade.mark] += 1
            if (grade.mark is GradeMark.RIGHT) is (group in {*SPECS, "oracles", "reader's"}):
                print(f"{group}: {name}: {grade.mark} shared={grade.shared}: {grade.evidence[:200]}\n{program}")

        made = list(programs())
        cheats = [(kind, text) for kind, texts in CHEATS.items() for text in texts]
        read = [(kind, task) for kind, tasks in KINDS.items() for task in tasks]
        await asyncio.gather(
            *(graded(kind, spec, text, name, 3.0) for kind, spec in SPECS.items() for name, text in made),
            *(graded("oracles", ORACLES[kind][0], text, kind, 5.0) for kind, text in cheats),
            *(graded("honest oracles", spec, text, kind, 30.0) for kind, (spec, text) in ORACLES.items()),
            *(graded("reader's", task[0], text, kind, 5.0) for kind, task in read for text in reader_cheats(task)),
            *(graded("reader's honest", task[0], text, kind, 30.0) for kind, task in read for text in task[1]),
            *(graded(f"honest {kind}", spec, HONEST, kind, 30.0) for kind, spec in SPECS.items()),
            *(
                graded(one, spec, text, str(spec.get("entry")), 30.0)
                for one, spec, text in published(folder or Path("?"))
            ),
        )
    if folder is None:
        print("no --data: published reference solutions are left out")
    figures = [
        Figure(f"{kind}: graded right of {len(made)} hostile programs", marks[kind, GradeMark.RIGHT], "programs", 0)
        for kind in SPECS
    ]
    groups = dict.fromkeys(group for group, _ in marks if group not in SPECS)
    for group in groups:
        total = sum(count for (one, _), count in marks.items() if one == group)
        figures.append(Figure(f"{group}: graded right of {total}", marks[group, GradeMark.RIGHT], "programs"))
    return figures


async def grade_one(jail: ProcessSandbox, spec: Mapping[str, object], program: str) -> GradeMark:
    """Grade one program."""
    grader = build_code_grader(CodeSettings.model_validate(spec), GraderTools(sandbox=jail))
    grade = await grader.grade(f"```python\n{program}\n```")
    if "--why" in sys.argv:
        print(grade.mark, grade.evidence[:300], file=sys.stderr)
    return grade.mark


def jailed() -> ProcessSandbox:
    """Return the sandbox that all of this runs in."""
    return ProcessSandbox(SandboxLimits(seconds=20.0, memory=512 * 2**20, output=100_000, depth=1_000))


async def grade_all() -> dict[str, list[str]]:
    """Return the names of the attacks and of the honest programs that are graded right, and how many did not end."""
    room, right = asyncio.Semaphore(2), dict[str, list[str]]()
    chosen = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    async with jailed() as jail:

        async def graded(group: str, name: str, spec: Mapping[str, object], program: str) -> None:
            async with room:
                mark = await grade_one(jail, spec, program)
            right.setdefault(group, []).extend([name] if mark is GradeMark.RIGHT else [])

        await asyncio.gather(
            *(
                graded(task, name, {**TASKS[task], "seconds": 3.0}, text)
                for task, name, text in attacks()
                if chosen in name
            ),
            *(
                graded("honest", name, {**spec, "seconds": 30.0}, text)
                for name, (spec, text) in HONEST_PROGRAMS.items()
                if chosen in name
            ),
        )
    return right


async def time_each() -> None:
    """Answer each line of input with the seconds that grading the honest programs once took."""
    async with jailed() as jail:
        for _ in sys.stdin:
            begun = time.perf_counter()
            for spec, text in TIMED:
                await grade_one(jail, spec, text)
            print(time.perf_counter() - begun, flush=True)


TIMED = [(spec, text) for name, (spec, text) in HONEST_PROGRAMS.items() if name not in LIMITS]


async def other(root: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start this script with the code of another checkout ("": of this one)."""
    grader = Path(root) / "plugins" / "code" / "src"
    if root and not grader.is_dir():
        raise SystemExit(f"--old {root}: expected a checkout with plugins/code; take this script of an older one")
    environment = {**os.environ, **({"PYTHONPATH": f"{root}/src{os.pathsep}{grader}"} if root else {})}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, *arguments, stdin=pipe, stdout=pipe, env=environment
    )


async def right_elsewhere(root: str) -> dict[str, list[str]]:
    """Return what another checkout's code grades right."""
    process = await other(root, "--grade-all")
    told, _ = await process.communicate()
    found: dict[str, list[str]] = json.loads(told.splitlines()[-1])
    return found


async def compare(root: str | None) -> list[Figure]:
    """Grade attacks and honest programs, by this code and by another checkout's."""
    now = await grade_all()
    then = await right_elsewhere(root) if root else {}
    figures: list[Figure] = []
    everything = Counter(task for task, _, _ in attacks())
    for style in dict.fromkeys(str(spec["style"]) for spec in TASKS.values()):
        tasks = [task for task, spec in TASKS.items() if spec["style"] == style]
        total = sum(everything[task] for task in tasks)
        for label, right, aim in [("here", now, 0), ("old", then, None)][: 2 if root else 1]:
            count = sum(len(right.get(task, [])) for task in tasks)
            figures.append(Figure(f"{style}: graded right of {total} attacks, {label}", count, "programs", aim))
            if label == "here":
                print("".join([f"{task}: {name}: right\n" for task in tasks for name in right.get(task, [])]), end="")
            attacked = len({name for task in tasks for name in right.get(task, [])})
            figures.append(Figure(f"{style}: attacks that succeed at least once, {label}", attacked, "attacks", aim))
    honest = set(HONEST_PROGRAMS) - LIMITS.keys()
    missed = sorted(honest - set(now.get("honest", [])))
    print("".join([f"honest: {name}: not right\n" for name in missed]), end="")
    figures.append(Figure(f"honest programs not right of {len(honest)}, here", len(missed), "programs", 0))
    limits = sorted(LIMITS.keys() & set(now.get("honest", [])))
    print("".join([f"limit: {name}: right after all\n" for name in limits]), end="")
    if root:
        figures.append(Figure("honest programs not right, old", len(honest - set(then.get("honest", []))), "programs"))
    return figures


async def compare_times(root: str, rounds: int = 7) -> list[Figure]:
    """Time the honest programs, the two codes by turns; the first round of each is for warming up."""
    processes = [await other("", "--time-each"), await other(root, "--time-each")]
    taken: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for which in (0, 1) if turn % 2 else (1, 0):
            process = processes[which]
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"go\n")
            taken[which].append(float(await process.stdout.readline()))
    for process in processes:
        await process.communicate()
    ratios = [here / there for here, there in zip(taken[0][1:], taken[1][1:], strict=True)]
    return [
        Figure(
            f"time of {len(TIMED)} honest programs, here ÷ old, median of {rounds}", statistics.median(ratios), "", 1.3
        ),
        Figure("seconds a program, here", statistics.median(taken[0][1:]) / len(TIMED), "s"),
    ]


async def main() -> list[Figure]:
    """Measure what the arguments say."""
    arguments = sys.argv
    data = Path(arguments[arguments.index("--data") + 1]) if "--data" in arguments else None
    root = arguments[arguments.index("--old") + 1] if "--old" in arguments else None
    figures = [] if "--attacks-only" in arguments or "--time-only" in arguments else await measure(data)
    if "--time-only" not in arguments:
        figures += await compare(root)
    if root and ("--time" in arguments or "--time-only" in arguments):
        figures += await compare_times(root)
    return figures


if __name__ == "__main__":
    if "--grade-all" in sys.argv:
        print(json.dumps(asyncio.run(grade_all())))
    elif "--time-each" in sys.argv:
        asyncio.run(time_each())
    else:
        report("Hostile programs", asyncio.run(main()))
