"""Programs that would be graded right without being it: each is wrong, in every style of tests."""

from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from code_tasks import SPECS, STYLES, grade, kept_jail
from judge_attacks import CHEATS as ATTACKS
from judge_attacks import ORACLES, Tests
from judge_attacks_read import KINDS, Task, cheats

from shikisha.evals.graders import Grade, GradeMark, GraderTools
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha_code.code_grader import CodeSettings, build_code_grader

OVERLOADS = ("__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__")
ALWAYS = f"""
class Always:
    def __eq__(self, other): return True
    {" = ".join(OVERLOADS[1:])} = __eq__
    def __sub__(self, other): return self
    __abs__ = __iter__ = __float__ = lambda self: self
    __hash__ = lambda self: 1
"""
FORGED = '{"steps": [{}, {}, {}, {}, {}], "passed": 5, "first": []}'
CHEATS = {
    "leaves": "import os; os._exit(0)",
    "exits": "import sys; sys.exit()",
    "raises": "raise SystemExit",
    "leaves when its module ends": "import atexit, os; atexit.register(os._exit, 0)",
    "prints a report": f"print('''{FORGED}''')",
    "writes a report everywhere": f"""
import os
for descriptor in range(1, 64):
    try: os.write(descriptor, b'''{FORGED}''')
    except OSError: pass
os._exit(0)""",
    "writes the sandbox's own word": """
import json, os
for descriptor in range(3, 64):
    try: os.write(descriptor, json.dumps({"value": "{}", "error": None, "parsed": True}).encode())
    except OSError: pass
os._exit(0)""",
    "takes the harness's place": f"import __main__; __main__.main = __main__.perform = lambda *a: '''{FORGED}'''",
    "redefines built-ins": "import builtins; builtins.abs = builtins.sorted = builtins.range = lambda *a: []",
    "redefines them in its module": "def abs(x): return 0\ndef sorted(x): return [1, 4]\ndef range(*a): return []",
    "redefines the error": "import builtins; builtins.AssertionError = type('E', (Exception,), {})",
    "quietens errors": "import sys; sys.excepthook = sys.unraisablehook = lambda *a: None",
    "changes unittest": "import unittest as u; u.TestCase.assertEqual = u.TestCase.assertTrue = lambda *a: None",
    "changes unittest's runs": "import unittest as u; u.TestCase.run = lambda self, result: result.addSuccess(self)",
    "changes the loader": "import unittest as u; u.TestLoader.testMethodPrefix = 'nothing'",
    "changes math": "import math; math.isclose = lambda *a, **k: True",
    "brings a suite": "import unittest as u\nclass Mine(u.TestCase):\n    def test_a(self): pass\n    test_b = test_a",
}
BODIES = {
    "nothing": "return None",
    "anything": "return Always()",
    "a list of anything": "return [Always(), Always()]",
    "a skip": "import unittest; raise unittest.SkipTest('not now')",
    "a stop": "import unittest.case; raise unittest.case._ShouldStop",
    "an exit": "import sys; sys.exit(0)",
    "a text that equals all": "return type('T', (str,), {name: lambda *a: True for name in OVERLOADS})('x')",
    "a class of unittest's name": "return type('TestCase', (Always,), {'__module__': 'unittest.case'})()",
}


@pytest.fixture(scope="module")
def jail() -> Iterator[ProcessSandbox]:
    yield from kept_jail()


def program(cheat: str, body: str) -> str:
    functions = "".join(f"def {name}(*a):\n    {body}\n" for name in ("twice", "sq", "norm", "root"))
    return f"```python\nOVERLOADS = {OVERLOADS}\n{ALWAYS}\n{functions}\n{cheat}\n```"


@STYLES
@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
async def test_a_program_that_cheats_as_it_is_loaded_is_wrong(jail: ProcessSandbox, style: str, cheat: str) -> None:
    grade_ = await grade(jail, style, program(cheat, BODIES["nothing"]))
    assert grade_.mark is GradeMark.WRONG, grade_.evidence


@pytest.mark.parametrize("style", [style for style in SPECS if style != "stdio"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_function_that_cheats_as_it_is_called_is_wrong(jail: ProcessSandbox, style: str, body: str) -> None:
    grade_ = await grade(jail, style, program("", body))
    assert grade_.mark is GradeMark.WRONG, grade_.evidence


@pytest.mark.parametrize("name", ["size", "candidate", "abs", "range", "METADATA"])
async def test_a_class_by_a_name_that_the_tests_use_for_something_else_may_not_decide_either(
    jail: ProcessSandbox, name: str
) -> None:
    cheat = f"{ALWAYS.replace('Always', name)}def norm(a, b): return {name}() if b == 0 else 5"
    grade_ = await grade(jail, "check", cheat)
    assert grade_.mark is GradeMark.WRONG, grade_.evidence


async def test_what_the_tests_set_themselves_is_no_cheat(jail: ProcessSandbox) -> None:
    source = (
        "import math, unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n"
        "        math.sqrt = lambda x: 3\n        self.assertEqual(root(4), 3)\n"
    )
    grade_ = await grade(jail, "unittest", "import math\ndef root(x): return math.sqrt(x)", source=source)
    assert grade_.mark is GradeMark.RIGHT, grade_.evidence


async def judged(jail: ProcessSandbox, kind: str, answer: str) -> Grade:
    return await judged_by(jail, ORACLES[kind][0], answer)


async def judged_by(jail: ProcessSandbox, tests: Tests, answer: str) -> Grade:
    for needed in cast("Sequence[str]", tests.get("needs", ())):
        pytest.importorskip(needed)
    settings = CodeSettings.model_validate({**tests, "seconds": 10.0})
    return await build_code_grader(settings, GraderTools(sandbox=jail)).grade(f"```python\n{answer}\n```")


@pytest.mark.parametrize("kind", ORACLES)
async def test_the_judge_owns_what_decides(jail: ProcessSandbox, kind: str) -> None:
    right = await judged(jail, kind, ORACLES[kind][1])
    assert right.mark is GradeMark.RIGHT, right.evidence
    for cheat in ATTACKS[kind]:
        assert (await judged(jail, kind, cheat)).mark is GradeMark.WRONG, cheat


@pytest.mark.parametrize(
    "task", [pytest.param(one, id=f"{kind} {n}") for kind in KINDS for n, one in enumerate(KINDS[kind])]
)
async def test_a_reader_of_the_judges_code_finds_nothing(jail: ProcessSandbox, task: Task) -> None:
    for right in task[1]:
        assert (grade_ := await judged_by(jail, task[0], right)).mark is GradeMark.RIGHT, (right, grade_.evidence)
    wrong = [*cheats(task)]
    for cheat in wrong[:: len(wrong) // 2 + 1]:  # all of them: plugins/code/tests/hostile_programs.py
        assert (await judged_by(jail, task[0], cheat)).mark is GradeMark.WRONG, cheat


async def test_a_grade_says_when_the_programs_own_comparison_decided(jail: ProcessSandbox) -> None:
    assert (await judged(jail, "own class", ORACLES["own class"][1])).shared
    assert not (await judged(jail, "near", ORACLES["near"][1])).shared


NONCE_FINDER = """
import sys
def twice(xs):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if type(value) is str and len(value) == 32: found = value
        frame = frame.f_back
    return found
"""


async def test_even_a_program_that_finds_the_nonce_does_not_find_what_is_expected(jail: ProcessSandbox) -> None:
    grade_ = await grade(jail, "function", NONCE_FINDER)
    assert grade_.mark is GradeMark.WRONG
    assert "expected [2, 4], got '" in grade_.evidence
