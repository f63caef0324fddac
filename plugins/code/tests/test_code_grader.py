"""Tests of code in a real jail: every style, every way to fail, and whose fault silence is."""

from collections.abc import Iterator

import pytest
from code_tasks import RIGHT, SPECS, STYLES, grade, grader, kept_jail, new_jail
from pydantic import ValidationError

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import GradeMark
from shikisha.sandbox import Execution, Inputs, Sandbox, SandboxScript, ScriptedSandbox
from shikisha.sandbox.availability import MontySandbox
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha_code.code_grader import CodeSettings
from shikisha_code.code_tests import COMMON_SETUP


@pytest.fixture(scope="module")
def jail() -> Iterator[ProcessSandbox]:
    yield from kept_jail()


@STYLES
async def test_a_right_program_is_right(jail: ProcessSandbox, style: str) -> None:
    grade_ = await grade(jail, style, f"Here:\n\n```python\n{RIGHT[style]}\n```\n")
    assert (grade_.mark, grade_.score, grade_.grader) == (GradeMark.RIGHT, 1.0, "code")
    assert grade_.evidence.endswith(" tests passed")
    assert RIGHT[style].strip() in str(grade_.found)
    assert not grade_.judged


@STYLES
async def test_no_program_is_no_answer(jail: ProcessSandbox, style: str) -> None:
    grade_ = await grade(jail, style, "I am afraid that I cannot do that.")
    assert (grade_.mark, grade_.score, grade_.found) == (GradeMark.NO_ANSWER, 0.0, None)


@STYLES
async def test_a_mistake_in_the_grammar_is_wrong(jail: ProcessSandbox, style: str) -> None:
    grade_ = await grade(jail, style, "```python\ndef f(x:\n    return x\n```")
    assert grade_.mark is GradeMark.WRONG
    assert grade_.evidence.startswith("SyntaxError: ")


@pytest.mark.parametrize(
    ("style", "program", "evidence"),
    [
        ("stdio", "print(3)", "test 2 of 2, input '5 6\\n': expected '11', printed '3\\n'"),
        ("stdio", "print(3)\nraise ValueError('ouch')", "test 1 of 2, input '1 2\\n': ValueError: ouch (line 2)"),
        ("stdio", "print(3)\nexit(2)", "test 1 of 2, input '1 2\\n': SystemExit: 2"),
        ("stdio", "import os\nos._exit(0)", "test 1 of 2, input '1 2\\n': expected '3\\n', printed ''"),
        ("stdio", "import os\nos._exit(3)", "test 1 of 2, input '1 2\\n': exit code 3"),
        ("stdio", "print('x' * 200_000)", "more than 100,000 characters came out"),
        ("function", "def twice(x): return x[:0]", "test 1 of 2, twice([1, 2]): expected [2, 4], got []"),
        ("function", "def twice(x): return {}[x[0]]", "test 1 of 2, twice([1, 2]): KeyError: 1"),
        ("function", "def twice(): return 1", "TypeError: twice() takes 0 positional arguments but 1 was given"),
        ("function", "def thrice(x): return x", "test 1 of 2, twice([1, 2]): the program defines no function twice"),
        ("function", "def twice(x): return object()", "expected [2, 4], got <an object of type object>"),
        ("function", "def twice(x): return twice(x)", "RecursionError: maximum recursion depth exceeded"),
        ("function", "def twice(x):\n    y = []\n    y.append(y)\n    return y", "RecursionError"),
        ("function", "import nothing_like_it\ndef twice(x): ...", "loaded: ModuleNotFoundError: No module named"),
        (
            "asserts",
            "def sq(x): return 9",
            "test 2 of 3, assert sorted([sq(2), sq(1)]) == [1, 4]: expected [1, 4], got",
        ),
        (
            "asserts",
            "def sq(x): return int(x) * x",
            "test 3 of 3, assert sq(1.5) > 2: AssertionError (compared: 1.5, 2)",
        ),
        ("check", "    return 5", "test 2 of 3, for size in range(1, 4):"),
        ("check", "    return 5", "AssertionError: along one side (compared: 4, 1e-09)"),
        ("check", "    return a", "test 1 of 3, assert candidate(3, 4) == 5: expected 5, got 3"),
        ("unittest", "def root(x): return 3", "test_close: AssertionError: False is not true"),
        ("unittest", "def root(x): return x", "test_close"),
        ("unittest", "def wurzel(x): return x", "NameError: name 'root' is not defined"),
    ],
)
async def test_a_wrong_program_is_wrong_and_the_test_that_failed_is_told(
    jail: ProcessSandbox, style: str, program: str, evidence: str
) -> None:
    grade_ = await grade(jail, style, program)
    assert (grade_.mark, grade_.score) == (GradeMark.WRONG, 0.0)
    assert evidence in grade_.evidence
    assert len(grade_.evidence) < 1_500


DEAF = "import signal\ndef twice(x):\n    signal.setitimer(signal.ITIMER_REAL, 0)\n    while True: pass"
STUBBORN = (
    "def twice(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass"
)


@pytest.mark.parametrize(
    ("style", "program"),
    [
        ("stdio", "while True: pass"),
        ("function", "def twice(x):\n    while True: pass"),
        ("function", "import time\ntime.sleep(100)"),
        ("function", STUBBORN),
        ("asserts", "def sq(x):\n    if x == 1.5:\n        while True: pass\n    return x * x"),
        ("check", "    while True: pass"),
        ("unittest", "def root(x):\n    while True: pass"),
    ],
)
async def test_an_endless_program_is_wrong_in_time(jail: ProcessSandbox, style: str, program: str) -> None:
    grade_ = await grade(jail, style, program, seconds=0.3)
    assert grade_.mark is GradeMark.WRONG
    assert "no end after 0.3 s" in grade_.evidence


@pytest.mark.full
async def test_one_that_holds_on_is_ended_by_the_sandbox_and_the_test_is_told() -> None:
    async with new_jail(seconds=2.0) as short:
        grade_ = await grade(short, "function", DEAF, seconds=0.1)
    assert grade_.mark is GradeMark.WRONG
    assert grade_.evidence == "test 1 of 2, twice([1, 2]): TimeoutError: more than 2 seconds"


@pytest.mark.full
async def test_many_slow_tests_are_no_endless_one() -> None:
    pairs = [{"input": [[number]], "output": [2 * number]} for number in range(5)]
    program = "import time\ndef twice(xs):\n    time.sleep(0.5)\n    return [2 * x for x in xs]"
    async with new_jail(seconds=2.0) as short:
        grade_ = await grade(short, "function", program, pairs=pairs)
    assert (grade_.mark, grade_.evidence) == (GradeMark.RIGHT, "5 tests passed")


@pytest.mark.parametrize(
    ("style", "call"), [("stdio", "x = "), ("function", "def twice(x): return "), ("check", "return ")]
)
async def test_memory_is_limited(jail: ProcessSandbox, style: str, call: str) -> None:
    grade_ = await grade(jail, style, f"{call}[bytearray(2**20) for _ in range(200)]", memory=2**26)
    assert grade_.mark is GradeMark.WRONG
    assert "MemoryError" in grade_.evidence


@pytest.mark.parametrize(
    ("style", "program"),
    [
        ("stdio", "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nsys.exit(0)"),
        (
            "stdio",
            "def main():\n    print(sum(map(int, open(0).read().split())))\nif __name__ == '__main__':\n    main()",
        ),
        ("stdio", "import os, sys\nprint(eval(input().replace(' ', '+')))\nsys.stdout.flush()\nos._exit(0)"),
        ("stdio", "from __future__ import annotations\na, b = input().split()\nprint(int(a) + int(b), '\\n\\n')"),
        (
            "stdio",
            "import threading\nt = threading.Thread(target=lambda: print(eval('+'.join(input().split()))))\nt.start()",
        ),
        (
            "function",
            "class Solution:\n    def twice(self, xs: List[int]) -> List[int]:\n        return [2 * x for x in xs]",
        ),
        (
            "function",
            "from functools import cache\ntwice = lambda xs: [2 * x for x in xs]\nif __name__ == '__main__': twice()",
        ),
        ("function", "def twice(xs):\n    print('debugging', xs)\n    xs[:] = [2 * x for x in xs]\n    return xs"),
        ("asserts", "from fractions import Fraction\ndef sq(x): return Fraction(x) ** 2"),
        ("check", "```python\ndef norm(a, b):\n    return (a * a + b * b) ** 0.5\n```"),
        ("unittest", "import math\nfrom math import sqrt as root"),
    ],
)
async def test_right_programs_of_every_kind_are_right(jail: ProcessSandbox, style: str, program: str) -> None:
    grade_ = await grade(jail, style, program, setup=COMMON_SETUP)
    assert grade_.mark is GradeMark.RIGHT, grade_.evidence


PAIR = "from dataclasses import dataclass\n@dataclass\nclass Pair:\n    a: int\n    b: int"
WIDE = "class Wide:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x"
MADE = "(2, [2], {2}, None, 2.5, b'2', -2j)"


@pytest.mark.parametrize(
    ("asserts", "program"),
    [
        (["assert sum(1, 2) == 3"], "def sum(a, b): return a + b"),
        (["import math", "assert math.isclose(third(1), 0.3333, rel_tol=1e-3)"], "def third(x): return x / 3"),
        (["p = Pair(1, 2)", "assert p == Pair(1, 2)", "assert p != 3"], PAIR),
        (["assert Wide(1) == Wide(1)"], WIDE),
        (["assert group('aab') == {'a': 2, 'b': 1}"], "from collections import Counter as group"),
        (["assert keys({1: 2}) == {1}"], "def keys(x): return x.keys()"),
        ([f"assert make(2) == {MADE}"], f"def make(x): return {MADE}"),
    ],
)
async def test_asserts_mean_what_they_say(jail: ProcessSandbox, asserts: list[str], program: str) -> None:
    grade_ = await grade(jail, "asserts", program, asserts=asserts)
    assert grade_.mark is GradeMark.RIGHT, grade_.evidence


async def test_a_tuple_is_no_list_to_an_assert_and_is_one_to_json(jail: ProcessSandbox) -> None:
    program = "def twice(x): return (2 * x[0],)"
    pairs = [{"input": [[5]], "output": [10]}]
    assert (await grade(jail, "function", program, pairs=pairs)).mark is GradeMark.RIGHT
    assert (await grade(jail, "asserts", program, asserts=["assert twice([5]) == [10]"])).mark is GradeMark.WRONG


async def test_a_check_that_cannot_be_taken_apart_is_called(jail: ProcessSandbox) -> None:
    source = "def check(f):\n    if f(3, 4) != 5:\n        return\n    assert f(0, 1) == 1\n    return"
    grade_ = await grade(jail, "check", RIGHT["check"], source=source)
    assert (grade_.mark, grade_.evidence) == (GradeMark.RIGHT, "1 tests passed")


SKIPPING = """
import unittest
class T(unittest.TestCase):
    @unittest.skipIf(True, "not here")
    def test_elsewhere(self):
        self.assertEqual(root(1), 2)

    @unittest.expectedFailure
    def test_known(self):
        self.assertEqual(root(1), 2)

    def test_parts(self):
        for x in range(3):
            with self.subTest(x=x):
                self.assertEqual(root(x * x), x)
"""


async def test_a_suite_s_own_skips_and_expected_failures_are_its_own(jail: ProcessSandbox) -> None:
    right = await grade(jail, "unittest", RIGHT["unittest"], source=SKIPPING)
    wrong = await grade(jail, "unittest", "def root(x): return x", source=SKIPPING)
    assert (right.mark, right.evidence) == (GradeMark.RIGHT, "1 tests passed")
    assert (wrong.mark, wrong.evidence) == (GradeMark.WRONG, "test_parts (x=2): AssertionError: 4 != 2")


async def test_what_the_tests_need_and_the_sandbox_lacks_leaves_the_answer_ungraded(jail: ProcessSandbox) -> None:
    grade_ = await grade(jail, "unittest", RIGHT["unittest"], needs=["math", "nothing_like_it", "not.there"])
    assert (grade_.mark, grade_.score) == (GradeMark.UNGRADED, None)
    assert grade_.evidence == "the sandbox lacks what the tests need: nothing_like_it, not.there"


@pytest.mark.parametrize("style", [style for style in SPECS if style != "stdio"])
async def test_a_setup_that_fails_by_itself_leaves_the_answer_ungraded(jail: ProcessSandbox, style: str) -> None:
    grade_ = await grade(jail, style, RIGHT[style], setup="import nothing_like_it")
    assert grade_.mark is GradeMark.UNGRADED
    assert "the setup of the tests fails: ModuleNotFoundError" in grade_.evidence


class Broken:
    """A sandbox that ends as it is told, whatever it is given."""

    def __init__(self, ending: Execution | Exception) -> None:
        self._ending = ending

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:  # noqa: ARG002 - the protocol's
        if isinstance(self._ending, Exception):
            raise self._ending
        return self._ending

    async def run_pair(
        self,
        first: SandboxScript,
        second: SandboxScript,
        *,
        share: bool = True,  # noqa: ARG002 - the protocol's
    ) -> tuple[Execution, Execution]:
        ending = await self.run(first.code, first.inputs)
        await self.run(second.code, second.inputs)
        return ending, ending


@STYLES
@pytest.mark.parametrize("ending", [Execution(error="gone"), OSError("gone"), RuntimeError("gone")])
async def test_a_sandbox_that_fails_leaves_the_answer_ungraded(style: str, ending: Execution | Exception) -> None:
    grade_ = await grade(Broken(ending), style, RIGHT[style])
    assert (grade_.mark, grade_.score) == (GradeMark.UNGRADED, None)
    assert "gone" in grade_.evidence


async def test_a_sandbox_that_is_refused_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not held"):
        await grade(Broken(ConfigError("not held")), "stdio", RIGHT["stdio"])


async def test_a_long_expected_output_that_does_not_come_is_ungraded() -> None:
    pairs = [{"input": "", "output": "x" * 60_000}]
    grade_ = await grade(ScriptedSandbox([Execution(error="too much came out")]), "stdio", "print(1)", pairs=pairs)
    assert grade_.mark is GradeMark.UNGRADED
    assert "60,000 characters are expected" in grade_.evidence


async def test_what_is_expected_never_enters_the_sandbox() -> None:
    for style in ("stdio", "function"):
        sandbox = ScriptedSandbox([Execution(error="?"), Execution(error="?"), Execution(error="?")])
        await grade(sandbox, style, RIGHT[style], pairs=[{"input": "[1]", "output": "123454321"}])
        assert "123454321" not in str(sandbox.calls)
    sandbox = ScriptedSandbox([Execution(error="?")] * 2)
    await grade(sandbox, "asserts", RIGHT["asserts"], asserts=["assert sq(2) == 123454321"])
    assert "123454321" not in str(sandbox.calls)


@STYLES
@pytest.mark.parametrize("sandbox", [None, MontySandbox()])
def test_without_a_sandbox_for_full_python_there_is_no_grader(style: str, sandbox: Sandbox | None) -> None:
    with pytest.raises(ConfigError, match="tests of code need a sandbox"):
        grader(sandbox, style)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"style": "stdin"}, "style"),
        ({"style": "stdio"}, "pairs: is missing: there is no test"),
        ({"style": "stdio", "pairs": [{"input": [1], "output": "1"}]}, r"pairs\[0\]: expected two texts"),
        ({"style": "stdio", **SPECS["asserts"]}, "there is no test"),
        ({"style": "stdio", **SPECS["stdio"], "asserts": ["assert 1"]}, "asserts: does not belong to style stdio"),
        ({"style": "stdio", **SPECS["stdio"], "needs": ["numpy"]}, "needs: does not belong to style stdio"),
        ({"style": "function", "pairs": [{"input": [1], "output": 1}]}, "entry: style function needs the name"),
        ({"style": "function", "entry": "f", "pairs": [{"input": "[1", "output": "1"}]}, r"pairs\[0\]: not JSON"),
        ({"style": "function", "entry": "f", "pairs": [{"input": "1", "output": "x"}]}, r"pairs\[0\]: not JSON"),
        ({"style": "function", "entry": "f()", "pairs": [{"input": [1], "output": 1}]}, "entry: expected a name"),
        ({"style": "asserts", "asserts": ["assert 1 == 1", "assert f("]}, r"asserts\[1\]: SyntaxError"),
        ({"style": "check", "source": "def check(c):\n    assert c() == 1"}, "entry: style check needs the name"),
        ({"style": "check", "source": "def check(c", "entry": "f"}, "source: SyntaxError"),
        ({"style": "stdio", **SPECS["stdio"], "setup": "import"}, "setup: SyntaxError"),
        ({"style": "stdio", **SPECS["stdio"], "seconds": 0}, "seconds"),
        ({"style": "stdio", **SPECS["stdio"], "tolerance": -1}, "tolerance"),
        ({"style": "stdio", **SPECS["stdio"], "hidden": 1}, "hidden"),
    ],
)
def test_settings_say_what_is_wrong_with_them(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        CodeSettings.model_validate(settings)


@pytest.mark.parametrize(
    ("style", "more", "problem"),
    [
        ("asserts", {"asserts": ["x = 1", "assert True"]}, "there is no assert statement"),
        ("check", {"source": "def test(candidate):\n    assert candidate(1) == 1"}, r"no function check\(candidate\)"),
        ("check", {"source": "def check(candidate):\n    pass"}, "there is no assert statement"),
        (
            "unittest",
            {"source": "import unittest\nclass A(unittest.TestCase):\n    pass"},
            "no class with a method test",
        ),
    ],
)
def test_tests_without_a_test_are_refused(style: str, more: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        grader(ScriptedSandbox([]), style, **more)
