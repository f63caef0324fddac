"""What the tests of the code grader share: one small task of each style, a right program for it, and a jail."""

import asyncio
from collections.abc import Iterator

import pytest

from shikisha.evals.graders import Grade, Grader, GraderTools
from shikisha.sandbox import Sandbox, SandboxLimits
from shikisha.sandbox.child.confinement import support_problem
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha_code.code_grader import CodeSettings, build_code_grader

PROMPT = 'from math import hypot\n\ndef aid(x):\n    return x\n\ndef norm(a, b):\n    """The length of (a, b)."""\n'
CHECK = """
METADATA = {"author": "us"}

def check(candidate):
    assert candidate(3, 4) == 5
    for size in range(1, 4):
        assert abs(candidate(size, 0) - size) < 1e-9, "along one side"
    assert aid(2) == 2
    assert True, "nothing"
"""
SUITE = """
import math
import unittest

class TestCases(unittest.TestCase):
    def test_whole(self):
        self.assertEqual(root(9), 3)

    def test_close(self):
        self.assertTrue(math.isclose(root(2), 1.41421356, rel_tol=1e-6))
        with self.assertRaises(ValueError):
            root(-1)
"""
SPECS: dict[str, dict[str, object]] = {
    "stdio": {"pairs": [{"input": "1 2\n", "output": "3\n"}, {"input": "5 6\n", "output": "11"}]},
    "function": {
        "entry": "twice",
        "pairs": [{"input": "[1, 2]", "output": "[2, 4]"}, {"input": [[5]], "output": [10]}],
    },
    "asserts": {"asserts": ["assert sq(3) == 9", "assert sorted([sq(2), sq(1)]) == [1, 4]", "assert sq(1.5) > 2"]},
    "check": {"entry": "norm", "prompt": PROMPT, "source": CHECK},
    "unittest": {"entry": "root", "source": SUITE},
}
RIGHT = {
    "stdio": "a, b = map(int, input().split())\nprint(a + b)",
    "function": "def twice(xs):\n    return tuple(2 * x for x in xs)",
    "asserts": "def sq(x):\n    return x * x",
    "check": "    return hypot(a, b)\n",
    "unittest": "def root(x):\n    if x < 0:\n        raise ValueError('no')\n    return x ** 0.5",
}
STYLES = pytest.mark.parametrize("style", SPECS)


def new_jail(seconds: float = 30.0) -> ProcessSandbox:
    """A jail whose runs may take so long; skips where this system can confine nobody."""
    if trouble := support_problem():
        pytest.skip(trouble)
    return ProcessSandbox(SandboxLimits(seconds=seconds, memory=512 * 2**20, output=100_000, depth=1_000))


def kept_jail() -> Iterator[ProcessSandbox]:
    """A jail for all tests of a module, as a fixture yields it."""
    jail = new_jail()
    yield jail
    asyncio.run(jail.aclose())


def grader(sandbox: Sandbox | None, style: str, **more: object) -> Grader:
    """The grader of a style's task."""
    settings = CodeSettings.model_validate({"style": style, "seconds": 10.0, **SPECS[style], **more})
    return build_code_grader(settings, GraderTools(sandbox=sandbox))


async def grade(sandbox: Sandbox, style: str, answer: str, **more: object) -> Grade:
    """The grade of an answer to a style's task."""
    return await grader(sandbox, style, **more).grade(answer)
