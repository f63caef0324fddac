# ruff: noqa: E501 - programs as they are, one a line
"""Tests run in a process of their own: programs that take over their interpreter's machinery, and what must cross."""

from collections.abc import Iterator

import pytest
from code_tasks import grade, kept_jail

from shikisha.evals.graders import GradeMark
from shikisha.sandbox.process_sandbox import ProcessSandbox

CHECK = "def check(f):\n    for n in range(1, 4):\n        assert abs(f(n) - n / 2) < 1e-9\n"
SUITE = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(half(4), 2)\n"
SPECS: dict[str, dict[str, object]] = {
    "check": {"entry": "half", "source": CHECK, "prompt": ""},
    "asserts": {"asserts": ["x = half(4)", "assert x == 2", "assert 1 < x < 3"]},
    "unittest": {"entry": "half", "source": SUITE},
}
NOTHING = "def half(x): return None\n"
LIES = "{n: lambda *a: True for n in ('__eq__', '__lt__', '__gt__', '__le__', '__ge__', '__contains__')}"
HOSTILE = {
    "exec": f"import builtins\n{NOTHING}builtins.exec = lambda *a, **k: None",
    "compile": f"import builtins\n{NOTHING}builtins.compile = lambda *a, **k: None",
    "classes": f"import builtins\n{NOTHING}builtins.__build_class__ = lambda f, n, *b: type(n, b, {{}})",
    "suite": f"import unittest.suite as s\n{NOTHING}s.TestSuite.run = lambda self, r, *a: (r.addSuccess(self), r)[1]",
    "start": f"import unittest as u\n{NOTHING}u.TestResult.startTest = lambda *a: None\nu.TestCase.run = lambda *a: None",
    "mock": "from unittest.mock import MagicMock\ndef half(x): return MagicMock()",
    "any": "from unittest.mock import ANY\ndef half(x): return ANY",
    "operand": "class N:\n    def __sub__(s, x): return 0.0\n    __lt__ = __gt__ = __eq__ = lambda *a: True\ndef half(x): return N()",
    "float": f"T = type('T', (float,), {LIES})\ndef half(x): return T(9)",
    "text": f"T = type('T', (str,), {LIES})\ndef half(x): return T('x')",
    "forged": f"import gc\n{NOTHING}for o in gc.get_objects():\n    if type(o).__name__ == 'Attendant': o._send(['value', 2, [], {{}}])",
    "reaches": "def half(x):\n    import gc\n    (p,) = [o for o in gc.get_objects() if type(o).__name__ == 'Attendant']\n"
    "    p._send(['ask', 'call', [{'global': ['os', '_exit']}, 0], {}, {}])",
    "skips": "import unittest\ndef half(x): raise unittest.SkipTest('no')",
}


LIAR = (
    "class half:\n    def __init__(s, *a): pass\n    def __sub__(s, o): return s\n    def __abs__(s): return s\n"
    "    def __round__(s, n=0): return 0\n    def __contains__(s, x): return True\n    def startswith(s, x): return True"
)
SOFT = ["round(abs(x - 2), 2) == 0", "2 in x", "x.startswith('a')", "round(x - 2) == 0"]


@pytest.fixture(scope="module")
def jail() -> Iterator[ProcessSandbox]:
    yield from kept_jail()


@pytest.mark.parametrize("style", SPECS)
@pytest.mark.parametrize("program", HOSTILE.values(), ids=HOSTILE)
async def test_a_program_that_takes_its_interpreter_over_is_wrong(
    jail: ProcessSandbox, style: str, program: str
) -> None:
    grade_ = await grade(jail, style, program, **SPECS[style])
    assert grade_.mark is GradeMark.WRONG, grade_.evidence


@pytest.mark.parametrize("soft", SOFT)
async def test_a_class_in_place_of_a_function_does_not_decide_for_it(jail: ProcessSandbox, soft: str) -> None:
    body = f"        x = half(4)\n        self.assertTrue({soft})\n"
    source = f"import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n{body}"
    suite = await grade(jail, "unittest", LIAR, entry="half", source=source)
    asserts = await grade(jail, "asserts", LIAR, asserts=["x = half(4)", f"assert {soft}"])
    assert (suite.mark, asserts.mark) == (GradeMark.WRONG, GradeMark.WRONG), (suite.evidence, asserts.evidence)


async def test_a_prompt_that_defines_a_function_makes_no_class_of_its_name(jail: ProcessSandbox) -> None:
    body = "        self.assertIn(2, Half(4))\n"
    source = f"import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n{body}"
    settings = {"entry": "Half", "source": source, "prompt": "def Half(x):\n    pass\n"}
    cheat = await grade(jail, "unittest", f"```python\n{LIAR.replace('half', 'Half')}\n```", **settings)
    assert cheat.mark is GradeMark.WRONG, cheat.evidence


CROSSING = {
    "classes that are tested": (
        "class Bag:\n    def __init__(s, x): s.x = x\n    def __contains__(s, x): return x in s.x",
        ["b = Bag([1])", "assert 1 in b and not 2 in b"],
    ),
    "equal objects in a set": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int",
        ["assert len({P(1), P(1), P(2)}) == 2", "assert 1 not in {P(1)}"],
    ),
    "names of functions": (
        "import functools\ndef f(g):\n    @functools.wraps(g)\n    def h(): return g()\n    return h",
        ["@f\ndef g():\n    'Two.'\n    return 2", "assert g() == 2 and g.__name__ == 'g' and g.__doc__ == 'Two.'"],
    ),
    "hints": ("def f(x: int): 'It.'", ["assert f.__doc__ == 'It.' and f.__annotations__ == {'x': int}"]),
    "arguments that change": ("def f(m): m[0].append(2)", ["m = [[1]]", "row = m[0]", "f(m)", "assert row == [1, 2]"]),
    "the same object": ("def f(x): return x", ["x = [1]", "assert f(x) is x"]),
    "functions": (
        "def f(g): return lambda x: g(x) + 1",
        ["seen = []", "assert f(lambda x: seen.append(x) or x)(2) == 3"],
    ),
    "own errors": (
        "class E(ValueError): pass\ndef f(): raise E('no')",
        ["try:\n    f()\n    assert 0\nexcept E as e:\n    assert e.args == ('no',)"],
    ),
    "generators": (
        "def f(n): yield from range(n)",
        ["import types", "g = f(3)", "assert isinstance(g, types.GeneratorType)", "assert sum(g) == 3"],
    ),
    "own objects": (
        "class Node:\n    def __init__(s, v): s.v, s.next = v, None",
        ["a = Node(1)", "a.next = Node(2)", "a.next.next = Node(3)", "assert a.next.next.v == 3"],
    ),
    "own containers": (
        "class Stack(list):\n    def top(s): return s[-1]",
        ["s = Stack()", "s.append(4)", "assert s.top() == 4", "assert s == [4]"],
    ),
    "seeds": (
        "import random\ndef f(): return random.random()",
        ["import random", "random.seed(1)", "x = f()", "random.seed(1)", "assert x == f()"],
    ),
    "prints": (
        "def f(): print('hi')",
        [
            "import io, contextlib",
            "o = io.StringIO()",
            "with contextlib.redirect_stdout(o): f()",
            "assert o.getvalue() == 'hi\\n'",
        ],
    ),
    "files": ("def f(): open('a', 'w').write('x')", ["f()", "assert open('a').read() == 'x'"]),
}


@pytest.mark.parametrize(("program", "asserts"), CROSSING.values(), ids=CROSSING)
async def test_what_honest_programs_and_tests_share_crosses(
    jail: ProcessSandbox, program: str, asserts: list[str]
) -> None:
    grade_ = await grade(jail, "asserts", program, asserts=asserts)
    assert grade_.mark is GradeMark.RIGHT, grade_.evidence


async def test_a_patch_of_the_tests_holds_for_the_program_and_counts_here(jail: ProcessSandbox) -> None:
    source = (
        "import unittest\nfrom unittest.mock import patch\nclass T(unittest.TestCase):\n"
        "    @patch('os.listdir', return_value=['a'])\n    def test_it(self, listed):\n"
        "        self.assertEqual(half('x'), ['a'])\n        listed.assert_called_once_with('x')\n"
    )
    right = await grade(jail, "unittest", "import os\ndef half(x): return os.listdir(x)", entry="half", source=source)
    wrong = await grade(jail, "unittest", "def half(x): return ['a']", entry="half", source=source)
    assert (right.mark, wrong.mark) == (GradeMark.RIGHT, GradeMark.WRONG), (right.evidence, wrong.evidence)


async def test_a_forged_report_of_a_direct_test_leaves_nothing_ungraded(jail: ProcessSandbox) -> None:
    program = (
        "import sys\nf = sys._getframe()\nwhile f:\n    nonce = f.f_locals.get('nonce')\n"
        "    if nonce: break\n    f = f.f_back\n"
        "sys.modules['__main__'].stepped = lambda order: '{\"missing\": [\"x\"]}'\ndef half(x): return 0"
    )
    pairs = [{"input": [4], "output": 2}]
    grade_ = await grade(jail, "function", program, entry="half", pairs=pairs)
    assert grade_.mark is GradeMark.WRONG, grade_.evidence
