# ruff: noqa: E501 - programs as they are, one a line
"""Attacks on tests that are all executed: the data of hostile_programs.py.

Each attack is a whole program with a function that is wrong (ENTRY stands for its name), written against a harness that
runs tests in the program's own interpreter: it keeps the tests from running, changes what they rely on, finds what they
expect, or returns what equals everything. Each is graded on every task here, whose tests are laid out as those of
HumanEval (`check`), MBPP (`asserts`) and BigCodeBench (`unittest`).
"""

from collections.abc import Iterator, Mapping

TASKS: Mapping[str, Mapping[str, object]] = {
    "check: spread": {
        "style": "check",
        "entry": "spread",
        "prompt": "def spread(xs):\n    '''Return the mean distance of the numbers from their mean.'''\n",
        "source": "METADATA = {'author': 'x', 'dataset': 'test'}\ndef check(candidate):\n    assert abs(candidate([1.0, 2.0]) - 0.5) < 1e-6\n    for xs, y in [([1.0, 2.0, 3.0], 2 / 3), ([4.0, 4.0], 0.0), ([0.0, 8.0], 4.0)]:\n        assert abs(candidate(xs) - y) < 1e-6\n",
    },
    "check: unique": {
        "style": "check",
        "entry": "unique",
        "prompt": "def unique(xs):\n    '''Return the different numbers in order.'''\n",
        "source": "def check(candidate):\n    import random, copy\n    rng = random.Random(42)\n    for _ in range(20):\n        xs = [rng.randint(0, 9) for _ in range(rng.randint(1, 8))]\n        expected = sorted(set(xs))\n        assert candidate(copy.deepcopy(xs)) == expected, 'random'\n    assert sorted(candidate([3, 1])) == [1, 3]\n",
    },
    "check: power": {
        "style": "check",
        "entry": "is_power",
        "prompt": "def is_power(x, n):\n    '''Whether x is a power of n.'''\n",
        "source": "def check(candidate):\n    for x in range(1, 4):\n        assert candidate(2 ** x, 2) is True, 'a power'\n        assert candidate(2 ** x + 1, 2) is False, 'no power'\n    assert True\n",
    },
    "asserts: area": {
        "style": "asserts",
        "asserts": ["import math", "assert math.isclose(area(3), 28.274333882308138, rel_tol=0.001)", "assert math.isclose(area(1), math.pi, rel_tol=0.001)", "assert abs(area(2) - 12.566370614359172) < 1e-6"],
    },
    "asserts: shared": {
        "style": "asserts",
        "asserts": ["expected = {4, 5}\nassert set(shared((3, 4, 5, 6), (5, 7, 4, 10))) == expected", "r = shared((1, 2), (2, 3))\nassert len(r) == 1 and 2 in r", "assert sorted(shared((11, 12, 14, 13), (17, 15, 14, 13))) == sorted([13, 14])"],
    },
    "unittest: words": {
        "style": "unittest",
        "entry": "words",
        "prompt": "import os\nfrom collections import Counter\ndef words(path):\n    '''Count the words of a file.'''\n",
        "source": "import os, shutil, tempfile, unittest\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n        self.folder = tempfile.mkdtemp()\n        self.path = os.path.join(self.folder, 'a.txt')\n        with open(self.path, 'w') as file:\n            file.write('a b a')\n    def tearDown(self):\n        shutil.rmtree(self.folder)\n    def test_counts(self):\n        self.assertEqual(words(self.path), {'a': 2, 'b': 1})\n    def test_parts(self):\n        result = words(self.path)\n        self.assertIn('a', result)\n        self.assertEqual(result['a'], 2)\n        self.assertEqual(len(result), 2)\n    def test_missing(self):\n        with self.assertRaises(FileNotFoundError):\n            words(os.path.join(self.folder, 'b.txt'))\n",
    },
    "unittest: roll": {
        "style": "unittest",
        "entry": "roll",
        "prompt": "import random\ndef roll(n):\n    '''Return n rolls of a die and their mean.'''\n",
        "source": "import unittest\nfrom unittest.mock import patch\nclass TestCases(unittest.TestCase):\n    @patch('random.randint', return_value=3)\n    def test_patched(self, randint):\n        rolls, mean = roll(4)\n        self.assertEqual(rolls, [3, 3, 3, 3])\n        self.assertAlmostEqual(mean, 3.0)\n        self.assertEqual(randint.call_count, 4)\n    def test_type(self):\n        rolls, mean = roll(5)\n        self.assertIsInstance(rolls, list)\n        self.assertTrue(all(1 <= r <= 6 for r in rolls))\n        self.assertAlmostEqual(sum(rolls) / 5, mean)\n",
    },
    "asserts: soft": {
        "style": "asserts",
        "entry": "area",
        "asserts": ["assert 28.27 in [area(3)] or round(abs(area(3) - 28.27), 2) == 0", "d = area(1) - 3.14", "assert round(abs(d), 2) == 0", "s = area(2)", "assert int(s - 12) == 0"],
    },
    "unittest: soft": {
        "style": "unittest",
        "entry": "found",
        "prompt": "def found(text):\n    '''Return the numbers in a text.'''\n",
        "source": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_in(self):\n        self.assertIn(12, found('a 12'))\n        self.assertTrue(7 in found('7 8'))\n    def test_near(self):\n        self.assertAlmostEqual(found('1 2')[0], 1.0)\n",
    },
    "unittest: label": {
        "style": "unittest",
        "entry": "label",
        "prompt": "def label(n):\n    '''Say how large n is.'''\n",
        "source": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_small(self):\n        self.assertEqual(label(1), 'small')\n        self.assertTrue(label(2).startswith('s'))\n    def test_large(self):\n        self.assertIn('ar', label(10 ** 6))\n        self.assertNotEqual(label(10 ** 6), 'small')\n",
    },
}  # fmt: skip

NOTHING = "def ENTRY(*a, **k): return None\n"
ZERO = "def ENTRY(*a, **k): return 0.0\n"
# strips what tests assert from their text
STRIP = """
import ast, builtins
class Strip(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.copy_location(ast.Pass(), node)
    def visit_Expr(self, node):
        return ast.copy_location(ast.Pass(), node) if 'assert' in ast.unparse(node) else self.generic_visit(node)
    def visit_FunctionDef(self, node):
        if node.name.startswith(('test', 'check')): node.body = [ast.copy_location(ast.Pass(), node.body[0])]
        return self.generic_visit(node)
def stripped(text): return ast.unparse(ast.fix_missing_locations(Strip().visit(ast.parse(text))))
"""
# empties functions in a code object
GUT = """
import builtins, types
def gut(code):
    if code.co_name.startswith(('test', 'check')):
        args = ', '.join(code.co_varnames[:code.co_argcount])
        return eval(f'lambda {args}: None').__code__.replace(co_name=code.co_name)
    return code.replace(co_consts=tuple(gut(c) if isinstance(c, types.CodeType) else c for c in code.co_consts))
"""
# functions that do not say that they are from the program's text
HIDE = """
def hide(f):
    f.__code__ = f.__code__.replace(co_filename='<frozen abc>')
    return f
def body(**more):
    yes = {n: hide(lambda s, *a: True) for n in '__eq__ __lt__ __le__ __gt__ __ge__ __contains__ __bool__'.split()}
    no = {'__ne__': hide(lambda s, *a: False)}
    me = {n: hide(lambda s, *a: s) for n in '__sub__ __rsub__ __add__ __radd__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __abs__ __round__ __neg__ __getitem__ __call__ __mod__'.split()}
    return {**yes, **no, **me, '__hash__': hide(lambda s: 0), '__iter__': hide(lambda s: iter([s])), **more}
"""
FRAMES = """
import sys
def frames():
    f = sys._getframe(1)
    while f:
        yield f
        f = f.f_back
def harness():
    return next((f.f_globals for f in frames() if 'Session' in f.f_globals or 'Attendant' in f.f_globals), {})
"""
BUMP = """
import unittest
def bump(result, test):
    result.startTest(test)
    try: result.returned += 1
    except AttributeError: pass
    result.addSuccess(test)
    result.stopTest(test)
"""
RUNS = {
    "exec does nothing": f"import builtins\n{NOTHING}builtins.exec = lambda *a, **k: None",
    "exec runs emptied tests": f"{GUT}{NOTHING}real = builtins.exec\nbuiltins.exec = lambda c, *a: None if 'assert' in str(c.co_names) or not a else real(gut(c), *a)",
    "exec runs emptied tests, no statements": f"{GUT}{NOTHING}real = builtins.exec\ndef run(c, *a):\n    try: real(gut(c), *a)\n    except AssertionError: pass\n    except Exception: pass\nbuiltins.exec = run",
    "exec swallows errors": f"import builtins\n{ZERO}real = builtins.exec\ndef run(*a):\n    try: real(*a)\n    except BaseException: pass\nbuiltins.exec = run",
    "compile without asserts": f"{STRIP}{NOTHING}real = builtins.compile\nbuiltins.compile = lambda s, f, *a, **k: real(stripped(s) if f == 'tests.py' else s, f, *a, **k)",
    "compile of nothing": f"import builtins\n{NOTHING}real = builtins.compile\nbuiltins.compile = lambda s, f, *a, **k: real('' if f == 'tests.py' else s, f, *a, **k)",
    "compile with -O": f"import builtins\n{NOTHING}real = builtins.compile\nbuiltins.compile = lambda *a, **k: real(*a, **{{**k, 'optimize': 2}})",
    "compile of emptied tests": f"{GUT}{NOTHING}real = builtins.compile\nbuiltins.compile = lambda s, f, *a, **k: gut(real(s, f, *a, **k)) if f == 'tests.py' else real(s, f, *a, **k)",
    "classes with empty tests": f"import builtins\n{NOTHING}real = builtins.__build_class__\ndef build(f, name, *bases, **k):\n    made = real(f, name, *bases, **k)\n    for n in list(vars(made)):\n        if n.startswith('test'): setattr(made, n, lambda self: None)\n    return made\nbuiltins.__build_class__ = build",
    "classes of another base": f"{BUMP}import builtins\n{NOTHING}real = builtins.__build_class__\nclass Easy(unittest.TestCase):\n    def run(self, result=None): bump(result, self)\nbuiltins.__build_class__ = lambda f, n, *b, **k: real(f, n, *[Easy if x is unittest.TestCase else x for x in b], **k)",
    "eval returns what is expected": f"import builtins\n{NOTHING}builtins.eval = lambda *a, **k: True",
    "import brings another unittest": f"import builtins, types, unittest\n{NOTHING}class Any:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\nclass TestCase(unittest.TestCase): pass\nfor n in dir(TestCase):\n    if n.startswith('assert'): setattr(TestCase, n, lambda *a, **k: Any())\nfake = types.ModuleType('unittest'); fake.__dict__.update(vars(unittest)); fake.TestCase = TestCase\nreal = builtins.__import__\nbuiltins.__import__ = lambda n, *a, **k: fake if n == 'unittest' else real(n, *a, **k)",
    "another unittest in modules": f"import sys, types, unittest\n{NOTHING}class Any:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\nclass TestCase(unittest.TestCase): pass\nfor n in dir(TestCase):\n    if n.startswith('assert'): setattr(TestCase, n, lambda *a, **k: Any())\nfake = types.ModuleType('unittest'); fake.__dict__.update(vars(unittest)); fake.TestCase = TestCase\nsys.modules['unittest'] = fake",
    "another unittest in a file": f"import sys, unittest\nopen('unittest.py', 'w').write('import sys; U = sys.real; TestCase = type(\"TestCase\", (U.TestCase,), {{n: lambda *a, **k: None for n in dir(U.TestCase) if n.startswith(\"assert\")}})')\nsys.real = unittest\nsys.path.insert(0, '.'); sys.modules.pop('unittest')\n{NOTHING}",
    "another unittest by a finder": f"import sys, types, unittest, importlib.machinery as m\n{NOTHING}real = sys.modules.pop('unittest')\nclass F:\n    def find_spec(self, n, *a): return m.ModuleSpec(n, self) if n == 'unittest' else None\n    def create_module(self, spec): return None\n    def exec_module(self, module): module.__dict__.update({{**vars(real), 'TestCase': type('TestCase', (real.TestCase,), {{n: lambda *a, **k: None for n in dir(real.TestCase) if n.startswith('assert')}})}})\nsys.meta_path.insert(0, F())",
    "another random and copy in modules": "import sys, types\ndef ENTRY(x, *a): return []\nfor n in ('random', 'copy'):\n    f = types.ModuleType(n); f.Random = lambda s: f; f.randint = lambda a, b: 0; f.deepcopy = lambda x: x; sys.modules[n] = f",
    "another math in modules": f"import sys, types\n{NOTHING}f = types.ModuleType('math'); f.isclose = lambda *a, **k: True; f.pi = 3; sys.modules['math'] = f",
    "built-ins of the module": f"{ZERO}__builtins__ = dict(vars(__import__('builtins')), exec=lambda *a: None, abs=lambda *a: -1)",
    "built-ins edited": f"{ZERO}b = vars(__import__('builtins')); b.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1, range=lambda *a: [], exec=lambda *a: None)",
    "isinstance and all": f"import builtins\n{NOTHING}builtins.isinstance = builtins.all = builtins.any = lambda *a: True",
    "AssertionError replaced": f"import builtins\n{ZERO}builtins.AssertionError = type('E', (BaseException,), {{}})",
    "print and open replaced": f"import builtins, sys\n{NOTHING}builtins.print = builtins.open = lambda *a, **k: None; sys.stdout = None",
}  # fmt: skip
_SWALLOW = "class Any:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n"
UNITTEST = {
    "TestSuite.run": f"{BUMP}import unittest.suite\n{NOTHING}def run(self, result, debug=False):\n    for test in self: bump(result, test)\n    return result\nunittest.suite.TestSuite.run = run",
    "TestCase.run": f"{BUMP}{NOTHING}unittest.TestCase.run = lambda self, result=None: bump(result, self)",
    "TestCase.__call__": f"{BUMP}{NOTHING}unittest.TestCase.__call__ = lambda self, result=None: bump(result, self)",
    "TestCase.assert*": f"import unittest\n{NOTHING}{_SWALLOW}for n in dir(unittest.TestCase):\n    if n.startswith('assert'): setattr(unittest.TestCase, n, lambda *a, **k: Any())",
    "TestCase.assert* and unpacking": f"import unittest\ndef ENTRY(*a): return [1], 1\n{_SWALLOW}for n in dir(unittest.TestCase):\n    if n.startswith('assert'): setattr(unittest.TestCase, n, lambda *a, **k: Any())",
    "TestCase.fail": f"import unittest\n{NOTHING}unittest.TestCase.fail = unittest.TestCase.failureException = lambda *a, **k: None",
    "TestCase.failureException": f"import unittest\n{NOTHING}unittest.TestCase.failureException = StopIteration",
    "TestCase._getAssertEqualityFunc": f"import unittest\n{NOTHING}unittest.TestCase._getAssertEqualityFunc = lambda *a: lambda *a, **k: None",
    "TestCase._baseAssertEqual": f"import unittest\n{NOTHING}unittest.TestCase._baseAssertEqual = lambda *a, **k: None",
    "TestCase._formatMessage": f"import unittest\n{NOTHING}def end(*a): raise unittest.case._ShouldStop\nunittest.TestCase._formatMessage = end",
    "TestCase.__init_subclass__": f"import unittest\n{NOTHING}def easy(cls, **k):\n    for n in list(vars(cls)):\n        if n.startswith('test'): setattr(cls, n, lambda self: None)\nunittest.TestCase.__init_subclass__ = classmethod(easy)",
    "TestCase.__getattribute__": f"import unittest\n{NOTHING}{_SWALLOW}unittest.TestCase.__getattribute__ = lambda s, n: (lambda *a, **k: Any()) if n.startswith('assert') else object.__getattribute__(s, n)",
    "TestCase._callTestMethod": f"import unittest\n{NOTHING}def call(self, method):\n    for c in getattr(method, '__func__', method).__closure__ or ():\n        if hasattr(c.cell_contents, 'returned'): c.cell_contents.returned += 1\nunittest.TestCase._callTestMethod = call",
    "TestCase._callSetUp": f"import unittest\n{NOTHING}def set_up(self):\n    name = self._testMethodName\n    for c in getattr(self, name).__func__.__closure__ or ():\n        if hasattr(c.cell_contents, 'returned'): tally = c.cell_contents\n    def test(): tally.returned += 1\n    self.__dict__[name] = test\nunittest.TestCase._callSetUp = set_up",
    "TestCase.setUp": f"import unittest\n{NOTHING}unittest.TestCase.setUp = lambda self: self.skipTest('no')",
    "TestCase.__new__": f"import unittest\n{NOTHING}{_SWALLOW}def new(cls, *a):\n    one = object.__new__(cls)\n    for n in dir(cls):\n        if n.startswith('assert'): one.__dict__[n] = lambda *a, **k: Any()\n    return one\nunittest.TestCase.__new__ = staticmethod(new)",
    "TestResult.startTest": f"import unittest\n{NOTHING}real = unittest.TestResult.startTest\ndef start(self, test):\n    real(self, test)\n    def easy(*a): self.returned += 1\n    test.__dict__[test._testMethodName] = easy\nunittest.TestResult.startTest = start",
    "TestResult and its subclasses": f"import unittest\n{ZERO}for k in [unittest.TestResult, *unittest.TestResult.__subclasses__()]:\n    k.addFailure = k.addError = lambda self, test, err: (setattr(self, 'returned', getattr(self, 'returned', 0) + 1), self.addSuccess(test))",
    "Tally.whole": f"import unittest\n{NOTHING}for k in unittest.TestResult.__subclasses__():\n    k.whole = True; k._failed = lambda self, *a: setattr(self, 'passed', self.passed + 1)",
    "loader of easy tests": f"{BUMP}{NOTHING}def load(self, case):\n    class Easy(unittest.TestCase):\n        def run(self, result=None): bump(result, self)\n        def runTest(self): pass\n    return unittest.TestSuite([Easy() for n in dir(case) if n.startswith('test')])\nunittest.TestLoader.loadTestsFromTestCase = load",
    "loader names": f"import unittest\n{NOTHING}unittest.TestLoader.getTestCaseNames = lambda *a: []",
    "loader.suiteClass": f"{BUMP}{NOTHING}class S(unittest.TestSuite):\n    def run(self, result, debug=False):\n        for t in self: bump(result, t)\nunittest.TestLoader.suiteClass = S",
    "_Outcome": f"import unittest.case as c, contextlib\n{NOTHING}@contextlib.contextmanager\ndef part(self, *a, **k):\n    try: yield\n    except BaseException: pass\nc._Outcome.testPartExecutor = part",
    "_AssertRaisesContext": "import unittest.case as c\ndef ENTRY(*a): return {'a': 2, 'b': 2}\nc._AssertRaisesContext.__exit__ = lambda *a: True\nc.TestCase._getAssertEqualityFunc = lambda *a: lambda *a, **k: None",
    "functools.wraps": f"import functools\n{NOTHING}functools.wraps = lambda f: lambda g: lambda *a, **k: None",
    "patch": f"import unittest.mock as m\n{NOTHING}m.patch = lambda *a, **k: lambda f: lambda self: None",
    "_patch.__call__": f"import unittest.mock as m\n{NOTHING}m._patch.__call__ = lambda self, f: lambda self: None",
    "json encoder": "import json.encoder as e\ndef ENTRY(*a): return [3, 3, 3, 3], 3.0\ne.JSONEncoder.iterencode = lambda s, o, _one_shot=False: ['[]']",
}  # fmt: skip
BASES = ["object", "int", "float", "str", "bytes", "complex", "list", "tuple", "dict", "set", "frozenset", "Exception"]
BASES += ["collections.Counter", "collections.OrderedDict", "collections.deque", "collections.UserDict", "collections.UserList"]  # fmt: skip
BASES += ["fractions.Fraction", "decimal.Decimal", "datetime.timedelta", "types.SimpleNamespace", "unittest.mock.Mock"]


def _values() -> Iterator[tuple[str, str]]:
    for base in BASES:
        imports = f"import {base.rpartition('.')[0]}\n" if "." in base else ""
        yield (
            f"a hidden {base}",
            f"{imports}{HIDE}T = type('T', ({base},), body())\ndef ENTRY(*a): return T.__new__(T)",
        )


VALUES = {
    **dict(_values()),
    "a pair of hidden objects": f"{HIDE}T = type('T', (list,), body())\ndef ENTRY(*a): return T(), T()",
    "a hidden class": f"{HIDE}M = type('M', (type,), body())\ndef ENTRY(*a): return M('T', (), {{}})",
    "the function is a lying class": f"{HIDE}ENTRY = type('ENTRY', (), body(__init__=lambda s, *a: None, startswith=lambda s, x: True, __len__=lambda s: 1))",
    "the function is a lying class of its text": "class ENTRY:\n    def __init__(s, *a): pass\n    def __eq__(s, o): return True\n    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = startswith = __eq__\n    def __ne__(s, o): return True\n    def __sub__(s, o): return s\n    def __abs__(s): return s\n    def __iter__(s): return iter([s])\n    __hash__ = lambda s: 0",
    "the function is a lying text": "class ENTRY(str):\n    def __new__(s, *a): return str.__new__(s, 'x')\n    def __eq__(s, o): return True\n    def __ne__(s, o): return True\n    __contains__ = startswith = __eq__\n    __hash__ = str.__hash__",
    "the function is a lying dict": "class ENTRY(dict):\n    def __init__(s, *a): pass\n    def __eq__(s, o): return True\n    __contains__ = __eq__\n    def __len__(s): return 2\n    def __getitem__(s, k): return 2",
    "the function is a lying number": "class ENTRY(float):\n    def __new__(s, *a): return float.__new__(s, 9)\n    def __eq__(s, o): return True\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__\n    def __sub__(s, o): return s\n    def __abs__(s): return s\n    __hash__ = float.__hash__",
    "the function is a class that rounds to nothing": "class ENTRY:\n    def __init__(s, *a): pass\n    def __sub__(s, o): return s\n    __radd__ = __rsub__ = __add__ = __getitem__ = __sub__\n    def __abs__(s): return s\n    def __round__(s, n=0): return 0\n    def __int__(s): return 0\n    def __float__(s): return 0.0\n    def __contains__(s, x): return True\n    def startswith(s, x): return True\n    def __len__(s): return 1",
    "the function is a class that learns": "class ENTRY:\n    seen = [0]\n    def __init__(s, *a): pass\n    def __sub__(s, o):\n        s.seen.append(o)\n        return s\n    def __contains__(s, x):\n        s.seen.append(x)\n        return True\n    def __abs__(s): return s\n    def __float__(s): return float(s.seen[-1])\n    def __getitem__(s, i): return s\n    def __int__(s): return 0\n    def __round__(s, n=0): return 0",
    "a class of a name that tests use": "class expected:\n    def __eq__(s, o): return True\n    __lt__ = __le__ = __contains__ = __eq__\n    def __sub__(s, o): return s\n    def __abs__(s): return s\n    def __len__(s): return 1\nresult = xs = y = rolls = mean = expected\ndef ENTRY(*a): return expected()",
    "built-in functions for comparing": "class T(float):\n    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = id\n    __hash__ = float.__hash__\n    __sub__ = __rsub__ = lambda s, o: s\n    __abs__ = lambda s: s\ndef ENTRY(*a): return T(9)",
    "built-in functions for all": "import itertools\nclass T(list):\n    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = id\ndef ENTRY(*a): return T()",
    "partial functions": "from functools import partial\nclass T:\n    __eq__ = __lt__ = __le__ = __gt__ = __contains__ = partial(lambda *a: True)\n    __abs__ = partial(lambda: T())\n    __sub__ = partial(lambda o: T())\ndef ENTRY(*a): return T()",
    "callable objects": "class F:\n    def __init__(s, v): s.v = v\n    def __call__(s, *a): return s.v or T()\nclass T:\n    __eq__ = __lt__ = __le__ = __gt__ = __contains__ = F(True)\n    __abs__ = __sub__ = F(None)\ndef ENTRY(*a): return T()",
    "another file name": "exec(compile('class T:\\n    def __eq__(s, o): return True\\n    __lt__ = __le__ = __gt__ = __contains__ = __eq__\\n    def __sub__(s, o): return s\\n    def __abs__(s): return s', 'x', 'exec'))\ndef ENTRY(*a): return T()",
    "overloads later": "class T: pass\ndef ENTRY(*a):\n    T.__eq__ = T.__lt__ = eval('lambda *a: True'); T.__sub__ = T.__abs__ = eval('lambda s, *a: s')\n    return T()",
    "MagicMock": "from unittest.mock import MagicMock\ndef ENTRY(*a): return MagicMock()",
    "MagicMock that lies": "from unittest.mock import MagicMock\ndef ENTRY(*a):\n    m = MagicMock()\n    for n in ('__eq__', '__lt__', '__le__', '__gt__', '__contains__'): getattr(m, n).side_effect = eval('lambda *a: True')\n    m.__sub__.return_value = m.__abs__.return_value = m\n    return m",
    "MagicMock as a float": "from unittest.mock import MagicMock\ndef ENTRY(*a):\n    m = MagicMock(spec=float)\n    m.__class__ = float\n    m.__eq__ = eval('lambda *a: True'); m.__lt__ = eval('lambda *a: True')\n    m.__sub__ = eval('lambda s, o: s'); m.__abs__ = eval('lambda s: s')\n    return m",
    "a pair of ANY": "from unittest.mock import ANY\ndef ENTRY(*a): return ANY, ANY",
    "ANY": "from unittest.mock import ANY\ndef ENTRY(*a): return ANY",
    "a list of ANY": "from unittest.mock import ANY\ndef ENTRY(*a): return [ANY]",
    "a dict of ANY": "from unittest.mock import ANY\ndef ENTRY(*a): return {'a': ANY, 'b': ANY}",
    "a lying generator": f"{HIDE}T = type('T', (), body())\ndef ENTRY(*a): yield T()",
    "lies about its class": f"{HIDE}T = type('T', (), body(__class__=property(lambda s: bool)))\ndef ENTRY(*a): return T()",
    "a proxy of a lie": f"import weakref\n{HIDE}T = type('T', (), body())\nt = T()\ndef ENTRY(*a): return weakref.proxy(t)",
}  # fmt: skip
# the next constant behind the call: what it is compared with
NEXT = """
import dis, sys
def ENTRY(*a):
    f = sys._getframe(1)
    while 'tests' not in f.f_code.co_filename and f.f_back: f = f.f_back
    for i in dis.get_instructions(f.f_code):
        if i.offset > f.f_lasti and 'CONST' in i.opname and type(i.argval) in (float, int, str, bool): return i.argval
"""
_EMPTY = "    for o in gc.get_objects():\n        if isinstance(o, types.FunctionType) and o.__code__.co_filename == 'tests.py' and not o.__closure__:\n            n = o.__code__.co_argcount\n            o.__code__ = eval('lambda ' + ', '.join(o.__code__.co_varnames[:n]) + ': None').__code__\n"
_NO_STEPS = "g.get('Session', Any).step = lambda *a: '{}'; g['_run_suite'] = lambda s, o: '{\"passed\":%d,\"first\":[]}' % o.get('methods', 0)"
REACHES = {
    "the next constant": NEXT,
    "what callers expect": f"{FRAMES}def ENTRY(*a):\n    for f in frames():\n        for n in ('y', 'expected'):\n            if n in f.f_locals: return f.f_locals[n]\n        for n in ('expected',):\n            if n in f.f_globals: return f.f_globals[n]",
    "what asks for equality": "import sys, ast, dis\nclass T(float):\n    def __sub__(s, o): return 0.0\ndef ENTRY(*a): return T(0)",
    "names of callers": f"{FRAMES}def ENTRY(*a):\n    for f in frames():\n        if 'tests' in f.f_code.co_filename: f.f_builtins.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1, all=lambda *a: True)\n    return 0.0",
    "globals of callers": f"{FRAMES}def ENTRY(*a):\n    f = sys._getframe(1)\n    f.f_globals.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1)\n    return 0.0",
    "the harness's steps": f"{FRAMES}class Any: pass\ng = harness()\n{_NO_STEPS}\n{NOTHING}",
    "the harness's run": f"{FRAMES}{NOTHING}harness()['run'] = lambda *a: None",
    "the harness's run and inspection": f"{FRAMES}import builtins\n{NOTHING}g = harness(); real = g.get('run')\ndef run(*a):\n    try: real(*a)\n    except BaseException: pass\ng['run'] = run; g['inspect'] = lambda *a: None",
    "the harness's suite": f"{FRAMES}{NOTHING}g = harness()\ng['_run_suite'] = lambda s, o: '{{\"passed\":%d,\"first\":[]}}' % o.get('methods', 0)",
    "the harness's errors": f"{FRAMES}{NOTHING}g = harness()\ndef leave(self, *a): return True\nif 'Caught' in g: g['Caught'].__exit__ = leave; g['_compared'] = lambda *a: '[]}},{{}}'",
    "the harness's tally": f"{FRAMES}{NOTHING}T = harness().get('Tally')\nif T: T.whole = True; T._failed = lambda self, *a: setattr(self, 'passed', self.passed + 1)",
    "the harness's texts": f"{FRAMES}{ZERO}harness()['told'] = lambda *a: 'x\"}}],\"x\":[{{\"y\":\"'",
    "the harness's quote": f"{FRAMES}{ZERO}g = harness(); g['quote'] = lambda *a: '[]'",
    "the harness's guard": f"{FRAMES}g = harness()\nif 'Guard' in g: g['Guard'].__call__ = lambda s, v, compared=False: 0.5\n{ZERO}",
    "the harness's guard lets through": f"{FRAMES}{HIDE}g = harness()\nif 'Guard' in g: g['Guard']._look = lambda *a: None\nT = type('T', (), body())\ndef ENTRY(*a): return T()",
    "the order": f"{FRAMES}{NOTHING}for f in frames():\n    for v in list(f.f_locals.values()):\n        if type(v) is dict and 'steps' in v: v['steps'] = [{{'do': ''}} for s in v['steps']]",
    "the order and its methods": f"{FRAMES}{NOTHING}for f in frames():\n    for v in list(f.f_locals.values()):\n        if type(v) is dict and 'suite' in v: v['suite'] = 'import unittest\\nclass T(unittest.TestCase):\\n' + '\\n'.join('    def test_%d(self): pass' % i for i in range(v['methods'])); v['steps'] = [{{'do': ''}} for s in v['steps']]",
    "functions of the tests by gc": f"import gc, types\n{NOTHING}def empty():\n{_EMPTY}empty()",
    "functions of the tests by gc when called": f"import gc, types\ndef ENTRY(*a):\n{_EMPTY}    return 0.0",
    "the order by gc": f"import gc\n{NOTHING}for o in gc.get_objects():\n    if type(o) is dict and 'steps' in o and 'suite' in o: o['steps'] = [{{'do': ''}} for s in o['steps']]; o['suite'] = 'import unittest\\nclass T(unittest.TestCase):\\n' + '\\n'.join('    def test_%d(self): pass' % i for i in range(o['methods']))",
    "the session by gc": f"import gc\n{NOTHING}for o in gc.get_objects():\n    if type(o).__name__ == 'Session':\n        type(o).step = lambda *a: '{{}}'\n        vars(o)['tests'] = {{}}",
    "the names of the tests by gc": f"import gc\n{ZERO}for o in gc.get_objects():\n    if type(o) is dict and o.get('__name__') == 'tests': o.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1, check=lambda *a: None)",
    "test classes by subclasses": "import unittest\ndef ENTRY(*a):\n    for k in unittest.TestCase.__subclasses__():\n        for n in dir(k):\n            if n.startswith('assert'): setattr(k, n, lambda *a, **k: None)\n    return [3], 3",
    "test methods by subclasses": "import unittest\ndef ENTRY(*a):\n    for k in unittest.TestCase.__subclasses__():\n        for n in dir(k):\n            if n.startswith('assert'): setattr(k, n, lambda *a, **k: None)\n    raise FileNotFoundError",
    "isclose when called": "import math\nreal = math.isclose\ndef near(*a, **k):\n    math.isclose = real\n    return True\ndef ENTRY(*a):\n    math.isclose = near\n    return 0.0",
    "sys.settrace skips lines": f"import sys\ndef local(frame, event, arg):\n    if event == 'line':\n        last = max(l for *_, l in frame.f_code.co_lines() if l)\n        if frame.f_lineno < last: frame.f_lineno = last\n    return local\ndef trace(frame, event, arg): return local if frame.f_code.co_filename == 'tests.py' else None\nsys.settrace(trace)\n{NOTHING}",
    "f_trace skips lines": "import sys\ndef local(frame, event, arg):\n    if event == 'line':\n        last = max(l for *_, l in frame.f_code.co_lines() if l)\n        if frame.f_lineno < last: frame.f_lineno = last\n    return local\ndef ENTRY(*a):\n    sys.settrace(lambda *a: None)\n    sys._getframe(1).f_trace = local\n    return 0.5",
    "sys.settrace changes names": f"import sys\ndef trace(frame, event, arg):\n    if frame.f_code.co_filename == 'tests.py': frame.f_builtins.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1)\nsys.settrace(trace)\n{ZERO}",
    "sys.setprofile changes names": f"import sys\ndef trace(frame, event, arg):\n    if frame.f_code.co_filename == 'tests.py': frame.f_builtins.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1)\nsys.setprofile(trace)\n{ZERO}",
    "sys.monitoring changes names": f"import sys\nm = sys.monitoring; m.use_tool_id(3, 'x'); m.set_events(3, m.events.PY_START)\ndef start(code, offset):\n    f = sys._getframe(1)\n    if code.co_filename == 'tests.py': f.f_builtins.update(abs=lambda *a: -1, sorted=lambda *a: [], set=lambda *a: [], len=lambda *a: 1)\nm.register_callback(3, m.events.PY_START, start)\n{ZERO}",
    "a thread changes the harness": f"import sys, threading, time\n{NOTHING}def work():\n    while True:\n        for f in sys._current_frames().values():\n            while f:\n                g = f.f_globals\n                if 'Session' in g: g['run'] = lambda *a: None; g['inspect'] = lambda *a: None; g['Session'].step = lambda *a: '{{}}'\n                f = f.f_back\n        time.sleep(.001)\nthreading.Thread(target=work, daemon=True).start()\ntime.sleep(.05)",
    "a thread changes built-ins": f"import builtins, threading\n{ZERO}t = threading.Timer(.0, lambda: vars(builtins).update(exec=lambda *a: None, abs=lambda *a: -1)); t.start(); t.join()",
    "a finalizer": f"import builtins\nclass D:\n    def __del__(s): builtins.exec = lambda *a: None\nd = D(); del d\n{NOTHING}",
    "an alarm": f"import signal, builtins\n{NOTHING}def ring(*a): builtins.exec = lambda *a: None\nsignal.signal(signal.SIGALRM, ring); signal.raise_signal(signal.SIGALRM)",
    "an audit hook": f"import sys\ndef hook(event, a):\n    if event == 'exec': raise SystemExit(0)\nsys.addaudithook(hook)\n{NOTHING}",
    "warnings": f"import warnings, builtins\nwarnings.showwarning = lambda *a: setattr(builtins, 'exec', lambda *a: None); warnings.warn('x')\n{NOTHING}",
    "a decorator of the harness": f"{FRAMES}{NOTHING}g = harness()\nfor n, v in list(g.items()):\n    if n in ('run', 'exec'): g[n] = lambda *a: None",
    "at exit with a forged report": f"{FRAMES}import atexit, os\nnonce = next((f.f_locals['nonce'] for f in frames() if 'nonce' in f.f_locals), '')\ndef forge():\n    for d in range(1, 32):\n        try: os.write(d, (nonce + '{{\"steps\":[{{}},{{}},{{}},{{}}],\"passed\":3,\"first\":[]}}').encode())\n        except OSError: pass\natexit.register(forge)\n{NOTHING}",
    "main's own report": f"{FRAMES}{NOTHING}g = harness(); nonce = next((f.f_locals['nonce'] for f in frames() if 'nonce' in f.f_locals), '')\nfor f in frames():\n    if f.f_code.co_name == '<module>' and 'main' in f.f_globals: f.f_globals['result'] = nonce\nimport json\ndef ENTRY(*a):\n    g['stepped'] = g['perform'] = lambda *a: '{{\"steps\":[{{}},{{}},{{}},{{}}]}}'",
    "float compares true": f"import ctypes\nF = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)\nf = F(lambda a, b, o: True)\nclass T(float): pass\nctypes.c_void_p.from_address(id(float) + 200).value = ctypes.cast(f, ctypes.c_void_p).value\n{ZERO}",
    "None compares true": f"import ctypes\nF = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)\nf = F(lambda a, b, o: True)\nctypes.c_void_p.from_address(id(type(None)) + 200).value = ctypes.cast(f, ctypes.c_void_p).value\n{NOTHING}",
    "an own class compares true natively": "import ctypes\nF = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)\nf = F(lambda a, b, o: True)\nclass T(list): pass\nctypes.c_void_p.from_address(id(T) + 200).value = ctypes.cast(f, ctypes.c_void_p).value\ndef ENTRY(*a): return T()",
    "a float's methods": f"import gc\nd = gc.get_referents(float.__dict__)[0]\nd['__lt__'] = d['__eq__'] = lambda *a: True\n{ZERO}",
    "small numbers": f"import ctypes\nctypes.c_int.from_address(id(1) + 24).value = 0\n{ZERO}",
    "forged answers": f"import gc\n{NOTHING}\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Attendant':\n        o._answer = lambda m: o._send(['value', True, [], {{}}])",
    "answers the caller's class": "import gc\ndef ENTRY(*a):\n    for o in gc.get_objects():\n        if type(o).__name__ == 'Attendant': return o\n",
}  # fmt: skip
ATTACKS = {**RUNS, **UNITTEST, **VALUES, **REACHES}


def attacks() -> Iterator[tuple[str, str, str]]:
    """Yield the task, the name and the text of each program."""
    for task, spec in TASKS.items():
        entry = str(spec.get("entry") or task.partition(": ")[2])
        for name, text in ATTACKS.items():
            yield task, name, text.replace("ENTRY", entry)


def _asserts(*asserts: str) -> dict[str, object]:
    return {"style": "asserts", "asserts": list(asserts)}


def _check(entry: str, *lines: str) -> dict[str, object]:
    return {"style": "check", "entry": entry, "source": "def check(candidate):\n    " + "\n    ".join(lines)}


def _suite(entry: str, *lines: str, imports: str = "") -> dict[str, object]:
    body = "\n        ".join(lines)
    source = f"import unittest\n{imports}\nclass T(unittest.TestCase):\n    def test_it(self):\n        {body}\n"
    return {"style": "unittest", "entry": entry, "source": source}


# what a right program may do: the tests, the program
HONEST_PROGRAMS: dict[str, tuple[Mapping[str, object], str]] = {
    "mean": (_check("f", "for n in range(1, 5):", "    assert abs(candidate(list(range(n))) - (n - 1) / 2) < 1e-9"), "def f(xs): return sum(xs) / len(xs)"),
    "random inputs": (_check("f", "import random", "for _ in range(30):", "    xs = [random.randint(0, 9) for _ in range(6)]", "    assert candidate(list(xs)) == sorted(xs)"), "def f(xs): return sorted(xs)"),
    "is True": (_check("f", "assert candidate(4) is True", "assert candidate(5) is False", "assert candidate(0) is not None"), "def f(x): return x % 2 == 0"),
    "sorted": (_check("f", "assert sorted(candidate([3, 1])) == [1, 3]", "assert len(candidate('ab')) == 2"), "def f(xs): return list(reversed(xs))"),
    "recursion": (_asserts("x = f(20)", "assert x > 6000 and x == 6765"), "def f(n): return n if n < 2 else f(n - 1) + f(n - 2)"),
    "memory": (_asserts("n = f(90)", "assert n % 10 == 0", "assert f.cache_info().currsize > 50"), "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)"),
    "changes its argument": (_asserts("xs = [3, 1]", "f(xs)", "assert xs == [1, 3]"), "def f(xs): xs.sort()"),
    "changes what is inside": (_asserts("m = {'a': [1]}", "row = m['a']", "f(m)", "assert row == [1, 2] and m['b'] == 3"), "def f(m): m['a'].append(2); m['b'] = 3"),
    "keeps its argument": (_asserts("xs = [3, 1]", "assert f(xs) == [1, 3] and xs == [3, 1]"), "def f(xs): return sorted(xs)"),
    "generator": (_asserts("g = f(3)", "assert next(g) == 0", "assert list(g) == [1, 2]"), "def f(n): yield from range(n)"),
    "endless generator": (_asserts("import itertools", "assert list(itertools.islice(f(), 3)) == [0, 1, 2]"), "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1"),
    "generator with send": (_asserts("g = f()", "next(g)", "assert g.send(2) == 4"), "def f():\n    x = 0\n    while True: x = yield x * 2"),
    "iterator class": (_asserts("assert list(Up(3)) == [0, 1, 2]", "assert sum(Up(4)) == 6"), "class Up:\n    def __init__(s, n): s.n, s.i = n, 0\n    def __iter__(s): return s\n    def __next__(s):\n        if s.i >= s.n: raise StopIteration\n        s.i += 1\n        return s.i - 1"),
    "stack": (_asserts("s = Stack()", "s.push(1); s.push(2)", "assert s.pop() == 2 and len(s) == 1 and 1 in s and bool(s)", "assert not s.empty"), "class Stack:\n    def __init__(s): s.xs = []\n    def push(s, x): s.xs.append(x)\n    def pop(s): return s.xs.pop()\n    def __len__(s): return len(s.xs)\n    def __contains__(s, x): return x in s.xs\n    @property\n    def empty(s): return not s.xs"),
    "linked list": (_asserts("a = Node(1, Node(2))", "b = turned(a)", "assert b.value == 2 and b.next.value == 1 and b.next.next is None"), "class Node:\n    def __init__(s, value, next=None): s.value, s.next = value, next\ndef turned(n):\n    last = None\n    while n: n.next, last, n = last, n, n.next\n    return last"),
    "tree": (_asserts("t = Tree(2)", "[t.add(x) for x in (1, 3)]", "assert list(t) == [1, 2, 3] and t.left.value == 1"), "class Tree:\n    def __init__(s, v): s.value, s.left, s.right = v, None, None\n    def add(s, v):\n        side = 'left' if v < s.value else 'right'\n        one = getattr(s, side)\n        one.add(v) if one else setattr(s, side, Tree(v))\n    def __iter__(s):\n        if s.left: yield from s.left\n        yield s.value\n        if s.right: yield from s.right"),
    "vector": (_asserts("v = Vector(1, 2)", "assert (v + Vector(1, 1)).x == 2", "assert (v * 3).y == 6", "assert v == Vector(1, 2) and v != Vector(2, 1)", "assert abs(Vector(3, 4)) == 5"), "class Vector:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return Vector(s.x + o.x, s.y + o.y)\n    def __mul__(s, k): return Vector(s.x * k, s.y * k)\n    def __eq__(s, o): return (s.x, s.y) == (o.x, o.y)\n    def __abs__(s): return (s.x ** 2 + s.y ** 2) ** .5"),
    "dataclass": (_asserts("p = P(1, 2)", "assert p == P(1, 2) and p.x == 1", "assert P(1, 2) < P(2, 0)", "assert repr(p) == 'P(x=1, y=2)'"), "from dataclasses import dataclass\n@dataclass(order=True, frozen=True)\nclass P:\n    x: int\n    y: int"),
    "equal objects in a set": (_asserts("p = P(1, 2)", "assert p.x == 1 and len({P(1, 2), p}) == 1"), "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\n    y: int"),
    "named tuple": (_asserts("p = f()", "assert p == (1, 2) and p.x == 1 and p[1] == 2"), "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)"),
    "enum": (_asserts("c = f('red')", "assert c.name == 'RED' and c.value == 1"), "from enum import Enum\nclass C(Enum):\n    RED = 1\ndef f(n): return C[n.upper()]"),
    "own error": (_asserts("try:\n    f(-1)\n    assert False\nexcept Bad as e:\n    assert str(e) == 'no' and isinstance(e, ValueError)"), "class Bad(ValueError): pass\ndef f(x):\n    if x < 0: raise Bad('no')"),
    "error": (_suite("f", "with self.assertRaises(ZeroDivisionError): f(0)", "with self.assertRaisesRegex(TypeError, 'unsupported'): f('x')"), "def f(x): return 1 / x"),
    "error with attributes": (_suite("f", "with self.assertRaises(OSError) as caught: f('no such file')", "self.assertEqual(caught.exception.errno, 2)"), "def f(x): return open(x).read()"),
    "decorator": (_asserts("seen = []", "@f\ndef g(x):\n    seen.append(x)\n    return x", "assert g(2) == 4 and seen == [2]", "assert g.__name__ == 'g'"), "import functools\ndef f(g):\n    @functools.wraps(g)\n    def h(x): return g(x) * 2\n    return h"),
    "closure": (_asserts("c = counter()", "c(); c()", "assert c() == 3"), "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up"),
    "callback": (_asserts("seen = []", "f([1, 2], seen.append)", "assert seen == [1, 2]", "assert f([3], lambda x: None) is None"), "def f(xs, do):\n    for x in xs: do(x)"),
    "key function": (_asserts("assert f([(1, 'b'), (2, 'a')], lambda p: p[1])[0] == (2, 'a')"), "def f(xs, key): return sorted(xs, key=key)"),
    "partial": (_asserts("g = f(2)", "assert g(3) == 8"), "import functools\ndef f(b): return functools.partial(pow, b)"),
    "context manager": (_asserts("with Box() as b:\n    assert b.open", "assert not b.open"), "class Box:\n    open = False\n    def __enter__(s): s.open = True; return s\n    def __exit__(s, *a): s.open = False"),
    "floats": (_asserts("import math", "assert math.isclose(f(2), 1.41421356, rel_tol=1e-6)", "assert math.isnan(f(-1)) and math.isinf(f(1e400))"), "import math\ndef f(x): return math.sqrt(x) if x >= 0 else math.nan"),
    "complex": (_asserts("z = f(-4)", "assert abs(z - 2j) < 1e-9"), "import cmath\ndef f(x): return cmath.sqrt(x)"),
    "large numbers": (_asserts("n = f(100)", "assert n % 97 == 0 and len(str(n)) == 158"), "import math\ndef f(n): return math.factorial(n)"),
    "sets": (_asserts("s = f([1, 2, 2])", "assert s == {1, 2} and s & {1} == {1} and isinstance(s, set)"), "def f(xs): return set(xs)"),
    "tuples": (_asserts("a, *b = f()", "assert a == 1 and b == [(2, 3), frozenset({4})]"), "def f(): return 1, (2, 3), frozenset({4})"),
    "counter": (_asserts("c = f('aab')", "assert c.most_common(1) == [('a', 2)] and c['z'] == 0 and c == {'a': 2, 'b': 1}"), "from collections import Counter\ndef f(t): return Counter(t)"),
    "deque": (_asserts("from collections import deque", "d = f()", "d.append(3)", "assert d == deque([2, 3]) and d.maxlen == 2"), "from collections import deque\ndef f(): return deque([1, 2], maxlen=2)"),
    "default dict": (_asserts("d = f('ab')", "assert d['a'] == [0] and d['z'] == [] and isinstance(d, dict)"), "from collections import defaultdict\ndef f(t):\n    d = defaultdict(list)\n    for i, c in enumerate(t): d[c].append(i)\n    return d"),
    "ordered dict": (_asserts("d = f()", "d.move_to_end('a')", "assert list(d) == ['b', 'a']"), "from collections import OrderedDict\ndef f(): return OrderedDict(a=1, b=2)"),
    "decimal": (_asserts("from decimal import Decimal", "x = f('1.1')", "assert x + Decimal('1.1') == Decimal('3.3')"), "from decimal import Decimal\ndef f(t): return Decimal(t) * 2"),
    "fraction": (_asserts("from fractions import Fraction", "x = f(1, 3)", "assert x * 3 == 1 and x < Fraction(1, 2)"), "from fractions import Fraction\ndef f(a, b): return Fraction(a, b)"),
    "dates": (_asserts("import datetime", "d = f('2024-02-28')", "assert d + datetime.timedelta(days=1) == datetime.date(2024, 2, 29)", "assert d.isoformat() == '2024-02-28'"), "import datetime\ndef f(t): return datetime.date.fromisoformat(t)"),
    "times": (_suite("f", "t = f()", "self.assertEqual(t.utcoffset(), timedelta(0))", "self.assertLess(abs((datetime.now(timezone.utc) - t).total_seconds()), 60)", imports="from datetime import datetime, timedelta, timezone"), "from datetime import datetime, timezone\ndef f(): return datetime.now(timezone.utc)"),
    "bytes": (_asserts("b = f('é')", "assert b == b'\\xc3\\xa9' and b[0] == 195 and b.decode() == 'é'"), "def f(t): return t.encode()"),
    "paths": (_asserts("from pathlib import Path", "p = f('a', 'b.txt')", "assert p == Path('a/b.txt') and p.suffix == '.txt'"), "from pathlib import Path\ndef f(*a): return Path(*a)"),
    "prints": (_suite("f", "out = io.StringIO()", "with contextlib.redirect_stdout(out): f('x')", "self.assertEqual(out.getvalue(), 'hello x\\n')", imports="import io, contextlib"), "def f(x): print('hello', x)"),
    "patched print": (_suite("f", "with patch('builtins.print') as p: f('x')", "p.assert_called_once_with('hello', 'x')", imports="from unittest.mock import patch"), "def f(x): print('hello', x)"),
    "patched input": (_suite("f", "with patch('builtins.input', return_value='7'): self.assertEqual(f(), 7)", imports="from unittest.mock import patch"), "def f(): return int(input('number? '))"),
    "patched module": (_suite("f", "with patch('os.path.exists', return_value=True) as e:", "    self.assertTrue(f('x'))", "e.assert_called_with('x')", imports="from unittest.mock import patch"), "import os\ndef f(p): return os.path.exists(p)"),
    "a mock": (_suite("f", "m = Mock()", "m.get.return_value = 3", "self.assertEqual(f(m), 4)", "m.get.assert_called_once_with('a', default=0)", imports="from unittest.mock import Mock"), "def f(m): return m.get('a', default=0) + 1"),
    "files": (_suite("f", "with tempfile.TemporaryDirectory() as d:", "    p = os.path.join(d, 'a.txt')", "    f(p, ['a', 'b'])", "    with open(p) as file: self.assertEqual(file.read().splitlines(), ['a', 'b'])", imports="import os, tempfile"), "def f(p, lines):\n    with open(p, 'w') as file: file.write('\\n'.join(lines))"),
    "logs": (_suite("f", "with self.assertLogs('app', 'WARNING') as logs: f('x')", "self.assertEqual(logs.output, ['WARNING:app:no x'])", imports="import logging"), "import logging\ndef f(x): logging.getLogger('app').warning('no %s', x)"),
    "warnings": (_suite("f", "with self.assertWarns(DeprecationWarning): f()"), "import warnings\ndef f(): warnings.warn('old', DeprecationWarning)"),
    "seeds": (_suite("f", "random.seed(3)", "a = f()", "random.seed(3)", "self.assertEqual(a, f())", "self.assertNotEqual(a, f())", imports="import random"), "import random\ndef f(): return [random.random() for _ in range(3)]"),
    "environment": (_suite("f", "os.environ['NAME_OF_IT'] = 'x'", "self.assertEqual(f(), 'x')", imports="import os"), "import os\ndef f(): return os.environ['NAME_OF_IT']"),
    "coroutine": (_suite("f", "self.assertEqual(asyncio.run(f(2)), 4)", imports="import asyncio"), "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x * 2"),
    "hints and text": (_suite("f", "self.assertEqual(f.__doc__, 'Twice.')", "self.assertEqual(f.__name__, 'f')", "self.assertTrue(callable(f))"), "def f(x: int) -> int:\n    'Twice.'\n    return x * 2"),
    "text class": (_asserts("t = f()", "assert t == 'ab' and t.upper() == 'AB' and isinstance(t, str) and t.twice() == 'abab'"), "class T(str):\n    def twice(s): return str(s) * 2\ndef f(): return T('ab')"),
    "dict class": (_asserts("d = f()", "assert d['a'] == 1 and d.a == 1 and dict(d) == {'a': 1}"), "class D(dict):\n    def __getattr__(s, n): return s[n]\ndef f(): return D(a=1)"),
    "static methods": (_asserts("assert M.twice(2) == 4", "assert M.make().n == 1", "assert isinstance(M.make(), M)"), "class M:\n    n = 1\n    @staticmethod\n    def twice(x): return x * 2\n    @classmethod\n    def make(cls): return cls()"),
    "inheritance": (_asserts("d = Dog('Rex')", "assert d.speak() == 'Rex: woof' and isinstance(d, Animal) and issubclass(Dog, Animal)"), "class Animal:\n    def __init__(s, n): s.n = n\nclass Dog(Animal):\n    def speak(s): return s.n + ': woof'"),
    "own objects in a list": (_asserts("xs = f()", "assert [x.n for x in xs] == [0, 1] and xs[0] is xs[0]", "assert sorted(xs, key=lambda x: -x.n)[0].n == 1"), "class A:\n    def __init__(s, n): s.n = n\ndef f(): return [A(0), A(1)]"),
    "solution class": (_check("f", "assert candidate(2) == 4", "assert candidate(3) - 9 == 0"), "class Solution:\n    def f(self, x): return x * x"),
    "money equals a number": (_asserts("m = Money(5)", "assert m == 5"), "class Money:\n    def __init__(s, n): s.n = n\n    def __eq__(s, o): return s.n == (o.n if isinstance(o, Money) else o)"),
    "money above a number": (_asserts("m = Money(5)", "assert m > 4"), "class Money:\n    def __init__(s, n): s.n = n\n    def __gt__(s, o): return s.n > o"),
    "a lowercase set, only asked": (_asserts("s = numbers([1, 2])", "assert 2 in s"), "class numbers:\n    def __init__(s, xs): s.xs = xs\n    def __contains__(s, x): return x in s.xs"),
}  # fmt: skip
# graded wrong although they are right, as docs/results/graders.md says
LIMITS = {
    "money equals a number": "an object of the program's own class never equals plain data",
    "money above a number": "nor is it ordered against it",
    "logs": "what the program logs does not reach handlers of the tests",
    "a lowercase set, only asked": "a name that may be a function's: the program's class does not decide what is in it",
}
