# ruff: noqa: E501, SIM905 - programs and lists as they are, one a line
"""A policy that learns to cheat: random and hill-climbed programs against the code grader, for as long as one gives it.

    python plugins/code/tests/cheating_policy.py --seconds 1800 [--seed N] [--json]

No program here computes what its task asks. Each is put together of gadgets: an object that claims to be equal, ordered,
empty or anything else; an exception; a change of arguments, files, environment and library; names that shadow those of
tests; threads and exits. The policy keeps the programs that got furthest (how many tests ran before one failed) and
changes them. Whatever is graded right is printed: it is a hole, or the task is weak.
"""

import argparse
import asyncio
import re
import sys
from collections import Counter
from pathlib import Path
from random import Random
from time import monotonic

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from common import Figure, report
from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.sandbox.availability import full_python_sandbox, limits_for
from shikisha_code.code_grader import CodeGrader, CodeSettings, build_code_grader

_KEPT = 24  # programs of a task that are changed further
_FRESH = 0.4  # of the programs are drawn anew

UNITTEST = """
import unittest, os, io, json, tempfile
from unittest import mock
class TestCases(unittest.TestCase):
    def test_value(self):
        self.assertEqual(f([3, 1, 2]), [1, 2, 3])
    def test_members(self):
        for got, want in zip(f([2, 1]), [1, 2]):
            self.assertEqual(got, want)
    def test_raises(self):
        with self.assertRaises(TypeError):
            f(None)
    def test_called(self):
        seen = mock.Mock(return_value=2)
        f([1], seen)
        seen.assert_called_once_with(1)
"""
TASKS: dict[str, dict[str, object]] = {
    "asserts": {"style": "asserts", "asserts": ["assert f(2) == 5", "assert f([1]) == {'a': [1]}", "assert f('x') in ('xx', 'xy')"]},
    "order": {"style": "asserts", "asserts": ["assert f(4) > 10 and f(4) < 12", "assert abs(f(9) - 3.5) < 1e-6"]},
    "objects": {"style": "asserts", "asserts": ["s = f(3)", "s.push(1)", "assert s.pop() == 1", "assert len(s) == 3", "assert list(s) == [0, 1, 2]"]},
    "check": {
        "style": "check", "entry": "f",
        "source": "def check(candidate):\n    xs = [3, 1]\n    assert candidate(xs) == sorted(xs)\n    assert all(a < b for a, b in zip(candidate([5, 4]), [6, 7]))\n    assert isinstance(candidate([1]), list)\n    try:\n        candidate(-1)\n        assert False\n    except ValueError:\n        pass\n",
    },
    "files": {
        "style": "check", "entry": "f",
        "source": "import os\ndef check(candidate):\n    with open('in.txt', 'w') as out: out.write('a b')\n    assert candidate('in.txt') == {'a': 1, 'b': 1}\n    assert os.path.exists('out.txt') and open('out.txt').read() == 'b a'\n",
    },
    "unittest": {"style": "unittest", "entry": "f", "source": UNITTEST},
}  # fmt: skip
DUNDERS = (
    *("__eq__ __ne__ __lt__ __gt__ __le__ __ge__ __contains__ __bool__ __len__ __iter__ __next__ __hash__ __call__".split()),
    *("__getattr__ __getitem__ __add__ __radd__ __sub__ __rsub__ __abs__ __float__ __int__ __index__ __str__ __repr__".split()),
    *("__enter__ __exit__ __instancecheck__ __class__ __reduce_ex__ __format__ __round__ __neg__ __mul__ __del__".split()),
)  # fmt: skip
VALUES = (
    *("True False None 0 1 -1 0.0 1e9 '' [] () {} set() NotImplemented self iter([]) float('nan') ''.join([])".split()),
    *("[1, 2, 3]", "lambda *a, **k: True", "type(self)()", "object()", "range(3)", "a[-1] if a else self", "A()"),
)  # fmt: skip
BASES = ("object", "int", "float", "str", "list", "dict", "tuple", "set", "Exception", "type", "property")
ENDS: tuple[str, ...] = (
    "StopIteration",
    "GeneratorExit",
    "KeyboardInterrupt",
    "SystemExit(0)",
    "AssertionError",
    "ValueError",
    "TypeError",
)
ENDS += ("BaseException", "MemoryError", "RecursionError", "Warning", "__import__('unittest').SkipTest('x')")
EFFECTS = (
    "a[0].clear()", "a[0].append(1)", "a[0].__class__ = A", "a[-1].return_value = A()", "a[-1].reset_mock()",
    "a[-1].assert_called_once_with = print", "a[-1](1)", "a[-1].side_effect = print", "a[-1].call_count = 1",
    "open('out.txt', 'w').write('b a')", "open('in.txt', 'w').write('')", "open('unittest.py', 'w').write('')",
    "import os; os.environ.clear()", "import os; os._exit(0)", "import sys; sys.exit(0)", "import sys; sys.settrace(print)",
    "import sys; sys.modules['unittest'] = A()", "import unittest; unittest.TestCase.assertEqual = print",
    "import builtins; builtins.sorted = lambda *a, **k: A()", "import builtins; builtins.AssertionError = ZeroDivisionError",
    "import gc; [setattr(o, '__eq__', A) for o in gc.get_objects() if type(o) is type and o.__name__ == 'A']",
    "import threading; threading.Thread(target=print).start()", "import random; random.seed(0)", "import time; time.sleep(.01)",
    "import os; os.write(1, b'[\"value\", true, [], {}]\\n')", "import os; os.closerange(0, 9)", "globals().update(len=A, abs=A)",
    "import atexit, os; atexit.register(os._exit, 0)", "import warnings; warnings.simplefilter('error')", "pass",
)  # fmt: skip
SHADOWS = (
    "isclose",
    "check",
    "candidate",
    "zip",
    "sorted",
    "isinstance",
    "abs",
    "all",
    "len",
    "mock",
    "unittest",
    "os",
    "open",
)


class Policy:
    """Draws gadgets for one task, and changes the programs that got furthest."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._best: list[tuple[float, tuple[str, ...]]] = []

    def program(self) -> tuple[str, ...]:
        """Return the gadgets of the next program."""
        if not self._best or self._random.random() < _FRESH:
            return tuple(self._gadget() for _ in range(self._random.randint(2, 9)))
        gadgets = list(self._random.choice(self._best)[1])
        for _ in range(self._random.randint(1, 3)):
            place = self._random.randrange(len(gadgets) + 1)
            gadgets[place : place + self._random.randint(0, 1)] = [self._gadget()]
        return tuple(gadgets[:14])

    def learn(self, gadgets: tuple[str, ...], reached: float) -> None:
        """Note how far a program got."""
        self._best = sorted([(reached, gadgets), *self._best], key=lambda one: -one[0])[:_KEPT]

    def _gadget(self) -> str:
        draw = self._random
        value = draw.choice(VALUES)
        match draw.randrange(8):
            case 0 | 1 | 2:
                return f"method {draw.choice(DUNDERS)} return {value}"
            case 3:
                return f"method {draw.choice(DUNDERS)} raise {draw.choice(ENDS)}"
            case 4:
                return f"base {draw.choice(BASES)}"
            case 5:
                return f"effect {draw.choice(EFFECTS)}"
            case 6:
                return f"shadow {draw.choice(SHADOWS)}"
            case _:
                return (
                    f"end {draw.choice([f'return {value}', 'return A()', f'raise {draw.choice(ENDS)}', 'yield A()'])}"
                )


def written(gadgets: tuple[str, ...]) -> str:
    """Return the program of these gadgets."""
    parts: dict[str, list[str]] = {kind: [] for kind in ("method", "base", "effect", "shadow", "end")}
    for gadget in gadgets:
        kind, _, rest = gadget.partition(" ")
        parts[kind].append(rest)
    base = (parts["base"] or ["object"])[-1]
    methods = [
        f"    def {name}(self, *a, **k): {does}" for name, _, does in (one.partition(" ") for one in parts["method"])
    ]
    effects = [f"    try: exec({one!r}, globals(), dict(a=a))\n    except Exception: pass" for one in parts["effect"]]
    lines = [
        f"class A({base}):",
        *(methods or ["    pass"]),
        *(f"def {name}(*a, **k): return True" for name in parts["shadow"]),
    ]
    return "\n".join([*lines, "def f(*a, **k):", *effects, f"    {(parts['end'] or ['return A()'])[-1]}", ""])


async def measure(seconds: float, seed: int) -> list[Figure]:
    """Let the policy cheat for so long, each task in turn."""
    sandbox, random, until = (
        await full_python_sandbox(limits_for("jail", 30.0, 1_000_000)),
        Random(seed),
        monotonic() + seconds,
    )
    graders = {name: build_code_grader(CodeSettings.model_validate({**task, "seconds": 2.0}), GraderTools(sandbox)) for name, task in TASKS.items()}  # fmt: skip
    policies, tried, right = {name: Policy(random) for name in TASKS}, Counter[str](), Counter[str]()
    while monotonic() < until:
        for name, grader in graders.items():
            right[name] += await _try(name, grader, policies[name])
            tried[name] += 1
    figures = [Figure(f"{name}: cheats graded right", right[name], f"of {tried[name]:,}", 0) for name in TASKS]
    return [Figure("cheats tried", tried.total(), ""), Figure("cheats graded right", right.total(), "", 0), *figures]


async def _try(name: str, grader: CodeGrader, policy: Policy) -> bool:
    gadgets = policy.program()
    grade = await grader.grade(written(gadgets))
    place = re.search(r"test (\d+) of", grade.evidence)
    policy.learn(gadgets, 99.0 if grade.mark is GradeMark.RIGHT else float(place[1]) if place else 0.0)
    if grade.mark is GradeMark.RIGHT:
        print(f"RIGHT {name} shared={grade.shared}: {grade.evidence}\n{written(gadgets)}", file=sys.stderr, flush=True)
    return grade.mark is GradeMark.RIGHT


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    report("A policy that cheats the code grader", asyncio.run(measure(given.seconds, given.seed)))


if __name__ == "__main__":
    main()
