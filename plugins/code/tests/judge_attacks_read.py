# ruff: noqa: E501 - programs and lists as they are, one a line
"""Attacks by somebody who has read the judge's code: by kind, tests with a right program and wrong programs for them.

`KINDS` maps a kind to its tasks: the tests, right programs, and cheats. Where `{}` stands in a cheat, one is made for each
gadget of its kind, so that the list stays short. Programs are text, and none computes what its tests ask for.
"""

from collections.abc import Iterator, Mapping

from judge_attacks import MOCK, Tests, check, suite

Task = tuple[Tests, list[str], list[str]]

# Objects that claim to be whatever they are compared with, each by another way.
ANY = "class Any:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__\n    def __sub__(s, o): return s\n    __rsub__ = __add__ = __radd__ = __mul__ = __mod__ = __sub__\n    def __abs__(s): return s\n    def __hash__(s): return 1\n    def __iter__(s): return iter(())\n    def __len__(s): return 0\n    def __getattr__(s, n): return lambda *a, **k: s\n    def __getitem__(s, k): return s\n    def __call__(s, *a, **k): return s\n"
OBJECTS: Mapping[str, str] = {
    "plain": f"{ANY}made = Any",
    "int": "class I(int):\n    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda s, o: True\n    __hash__ = int.__hash__\n    __sub__ = __rsub__ = lambda s, o: 0\nmade = lambda: I(77)",
    "float": "class F(float):\n    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda s, o: True\n    __hash__ = float.__hash__\n    __round__ = __abs__ = __sub__ = __rsub__ = lambda s, *o: 0.0\nmade = lambda: F(77)",
    "str": "class S(str):\n    __eq__ = __contains__ = startswith = endswith = lambda s, o: True\n    __hash__ = str.__hash__\n    lower = upper = strip = lambda s: s\n    split = lambda s, *a: [s]\nmade = lambda: S('zz')",
    "list": "class L(list):\n    __eq__ = __contains__ = lambda s, o: True\n    __iter__ = lambda s: iter(())\n    __len__ = lambda s: 3\nmade = lambda: L([77])",
    "dict": "class D(dict):\n    __eq__ = __contains__ = lambda s, o: True\n    get = __missing__ = __getitem__ = lambda s, *a: made()\nmade = lambda: D(zz=77)",
    "set": "class S(set):\n    __eq__ = __contains__ = __le__ = __ge__ = issubset = issuperset = lambda s, o: True\nmade = lambda: S([77])",
    "tuple": "class T(tuple):\n    __eq__ = __contains__ = lambda s, o: True\nmade = lambda: T((77,))",
    "metaclass": "class M(type):\n    __eq__ = __instancecheck__ = __contains__ = lambda s, o: True\n    __hash__ = type.__hash__\n    __iter__ = lambda s: iter(())\nclass A(metaclass=M): pass\nmade = lambda: A",
    "class of another": "class A:\n    __class__ = property(lambda s: int)\n    __eq__ = lambda s, o: True\n    __hash__ = None\nmade = A",
    "descriptor": "class P:\n    def __get__(s, o, t): return s\n    def __set__(s, o, v): pass\n    __eq__ = lambda s, o: True\nclass A:\n    x = P()\nmade = lambda: A().x",
    "reduced": "class A:\n    __eq__ = lambda s, o: True\n    def __reduce_ex__(s, p): return (eval, ('1',))\n    __deepcopy__ = __copy__ = lambda s, *a: s\nmade = A",
    "proxy": "import weakref\nclass A:\n    __eq__ = lambda s, o: True\n    __hash__ = None\nkept = A()\nmade = lambda: weakref.proxy(kept)",
    "mock": "from unittest import mock\nmade = lambda: mock.MagicMock(**{'__eq__.return_value': True, '__lt__.return_value': True, '__gt__.return_value': True, '__contains__.return_value': True})",
    "any of mock": "from unittest import mock\nmade = lambda: mock.ANY",
    "not implemented": "made = lambda: NotImplemented",
    "nan": "made = lambda: float('nan')",
    "decimal": "import decimal\nclass D(decimal.Decimal):\n    __eq__ = __lt__ = __gt__ = lambda s, o: True\n    __hash__ = None\nmade = lambda: D(77)",
    "fraction": "import fractions\nclass F(fractions.Fraction):\n    __eq__ = lambda s, o: True\n    __hash__ = None\nmade = lambda: F(77)",
    "counter": "from collections import Counter\nmade = lambda: Counter()",
    "default": "from collections import defaultdict\nmade = lambda: defaultdict(int)",
    "range": "made = lambda: range(-10 ** 9, 10 ** 9)",
    "generator": "def made():\n    return\n    yield",
    "date": "import datetime\nclass D(datetime.date):\n    __eq__ = __lt__ = __gt__ = lambda s, o: True\nmade = lambda: D(1999, 1, 1)",
    "enum": "import enum\nclass E(enum.IntEnum):\n    A = 77\n    __eq__ = lambda s, o: True\nmade = lambda: E.A",
    "array": "import numpy as np\nmade = lambda: np.empty((0, 1))",
    "array of its own": "import numpy as np\nclass A(np.ndarray):\n    __eq__ = lambda s, o: True\n    all = any = lambda s, *a, **k: True\nmade = lambda: np.zeros(3).view(A)",
}  # fmt: skip
# What ends something around a call.
ENDINGS = (
    "StopIteration",
    "StopIteration(9)",
    "StopAsyncIteration",
    "GeneratorExit",
    "KeyboardInterrupt",
    "SystemExit(0)",
    "type('S', (StopIteration,), {})()",
    "type('S', (GeneratorExit, ValueError), {})()",
    "__import__('unittest').SkipTest('x')",
    "__import__('unittest').case._ShouldStop()",
    "__import__('asyncio').CancelledError()",
    "IndexError",
    "AssertionError",
)
# What changes the interpreter, to no avail where no test runs in it.
CHANGES = (
    "import unittest; unittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a: None",
    "import unittest; unittest.TestCase.run = lambda s, r=None: r.addSuccess(s)",
    "import unittest.mock as m; m.NonCallableMock._mock_check_sig = m._Call.__eq__ = lambda *a: True",
    "import builtins; builtins.AssertionError = type('E', (Exception,), {})",
    "import sys; sys.modules['unittest'] = sys.modules['math'] = None",
    "import sys; sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)",
    "import sys\nf = sys._getframe()\nwhile f: f.f_globals.update(SolutionPeer=None, MessageDecoder=None); f = f.f_back",
    "import sys\nclass H:\n    def find_spec(s, *a): return None\nsys.meta_path[:] = [H()]",
    "import sys; sys.path_hooks.insert(0, lambda p: 1 / 0); sys.path[:] = ['.']",
    "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'SolutionPeer': o.must_end = o.grant = lambda *a: print",
    "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'SolutionPeer': o._answer = lambda m: o._send(['value', True, [], {}])",
    "import __main__; __main__._equals = lambda *a: (True, True, True)",
    "import __main__; __main__.encode_result = __main__.to_json = lambda *a: 'true'",
    "import __main__; __main__.describe_error = lambda *a: ''",
    "import os\nfor d in range(3, 40):\n    try: os.write(d, b'[\"value\", true, [], {}]\\n')\n    except OSError: pass",
    'import os\nfor d in range(3, 40):\n    try: os.write(d, b\'{"passed": 9, "first": []}\')\n    except OSError: pass',
    "import os; os.closerange(3, 40)",
    "import atexit, os; atexit.register(os._exit, 0)",
    "import threading, os, time; threading.Thread(target=lambda: (time.sleep(.02), os._exit(0)), daemon=True).start()",
    "import signal, os; signal.signal(signal.SIGALRM, lambda *a: os._exit(0)); signal.setitimer(signal.ITIMER_REAL, .01)",
    "import signal, os\nfor n in os.listdir('/proc') if os.path.isdir('/proc') else []:\n    try: n.isdigit() and int(n) != os.getpid() and os.kill(int(n), signal.SIGKILL)\n    except OSError: pass",
    "import os, sys\nfor n in ('sitecustomize', 'unittest', 'math', 'program', 'json', 're'): open(n + '.py', 'w').write('raise SystemExit(0)')",
    "import os; os.environ.update(PYTHONPATH='.', PYTHONINSPECT='1', PYTHONSTARTUP='program.py'); os.chdir('/')",
    "import ctypes; ctypes.pythonapi.PyErr_SetInterrupt()",
    "import random, time; random.random = lambda: 0; time.time = lambda: 0",
    "import asyncio; asyncio.run = lambda c: None",
    "import copyreg, pickle; copyreg.pickle(int, lambda i: (eval, ('1',))); pickle.loads = pickle.load = lambda *a: 9",
    "import json; json.loads = json.JSONDecoder.raw_decode = lambda *a: 9",
    "import warnings; warnings.warn = lambda *a, **k: None; warnings.simplefilter('error')",
    "import inspect; inspect.signature = inspect.stack = lambda *a: None",
)
SHADOWS = (
    *(["isclose", "abs", "round", "sorted", "len", "all", "any", "zip", "map", "isinstance", "type", "sum", "min", "max", "set", "list", "range", "enumerate"]),
    *(["print", "open", "exec", "eval", "check", "candidate", "unittest", "math", "os", "sys", "json", "mock", "T", "self"]),
)  # fmt: skip

SQUARE = "def sq(x): return x * x"


def zipped(name: str, text: str) -> str:
    """Return a program's line that writes a zip archive of this name, which holds a module with this text."""
    file = "__main__.py" if name == "made.py" else "made.py"
    return f"import zipfile\n    with zipfile.ZipFile({name!r}, 'w') as z: z.writestr({file!r}, {text!r})"


UNITTEST = "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ntwice = lambda x: 0\n"
KINDS: dict[str, list[Task]] = {
    "objects that equal": [
        (
            check(
                "sq",
                "assert candidate(3) == 9\nassert candidate(2) in (4, 5)\nassert abs(candidate(1.5) - 2.25) < 1e-9",
            ),
            [SQUARE],
            ["{object}\ndef sq(x): return made()"],
        ),
        (
            suite(
                "words",
                "r = words('a b')\nself.assertEqual(list(r), ['a', 'b'])\nself.assertIn('b', r)\nself.assertEqual(len(r), 2)",
            ),
            ["def words(s): return s.split()", "def words(s): return tuple(s.split())"],
            ["{object}\ndef words(s): return made()"],
        ),
        (
            {
                "style": "asserts",
                "asserts": [
                    "assert best([1, 5]) > 4 and best([1, 5]) < 6",
                    "assert sorted([best([2]), 3]) == [2, 3]",
                    "assert {best([7]): 1} == {7: 1}",
                ],
            },
            ["def best(xs): return max(xs)"],
            ["{object}\ndef best(xs): return made()"],
        ),
    ],
    "endings": [
        (
            check(
                "sq",
                "assert list(map(candidate, [1, 2])) == [1, 4]\nfor got, want in zip(map(candidate, [3, 4]), [9, 16]):\n    assert got == want\nassert all(candidate(x) > x for x in (2, 3))",
            ),
            [SQUARE],
            ["def sq(x): raise {ending}"],
        ),
        (
            suite(
                "sq",
                "with self.assertRaises(StopIteration): next(iter(()))\nfor got, want in zip(map(sq, [3, 4]), [9, 16]): self.assertEqual(got, want)\nself.assertTrue(all(map(lambda x: sq(x) > x, [2, 3])))",
            ),
            [SQUARE],
            ["def sq(x): raise {ending}", "def sq(x):\n    if x != 3: raise StopIteration\n    return 9"],
        ),
        (
            suite(
                "pairs",
                "for i, p in enumerate(pairs([5, 6])): self.assertEqual(p, (i, [5, 6][i]))\nself.assertEqual(sum(1 for _ in pairs([5, 6])), 2)",
            ),
            ["def pairs(xs): return list(enumerate(xs))", "def pairs(xs): yield from enumerate(xs)"],
            ["class P:\n    def __iter__(s): return s\n    def __next__(s): raise {ending}\ndef pairs(xs): return P()"],
        ),
    ],
    "nothing asserted": [
        (
            suite("sq", "for f in [lambda x: self.assertEqual(sq(x), x * x)]:\n    each([2, 3], f)"),
            ["def each(xs, f):\n    for x in xs: f(x)\n" + SQUARE],
            [
                "def each(xs, f): pass\ndef sq(x): return 0",
                "def each(xs, f):\n    for x in xs:\n        try: f(x)\n        except AssertionError: pass\ndef sq(x): return 0",
                "def each(xs, f): return [f]\ndef sq(x): return 0",
            ],
        ),
        (
            suite("each", "each([1, 2], lambda x: self.assertIn(x, (2, 4)))"),
            ["def each(xs, f):\n    for x in xs: f(2 * x)"],
            [
                "def each(xs, f): pass",
                "def each(xs, f):\n    try: f(5)\n    except BaseException: pass",
                "import contextlib\ndef each(xs, f):\n    with contextlib.suppress(AssertionError): f(9)",
                "import threading\ndef each(xs, f):\n    t = threading.Thread(target=lambda: f(9)); t.start(); t.join()",
            ],
        ),
        (
            suite(
                "evens",
                "list(map(self.assertTrue, [x % 2 == 0 for x in evens(5)]))\nlist(map(lambda a, b: self.assertEqual(a, b), evens(5), [0, 2, 4]))",
            ),
            ["def evens(n): return list(range(0, n, 2))"],
            [
                "def evens(n): return []",
                "def evens(n): return ()",
                "def evens(n): return iter(())",
                "def evens(n): return [0]",
                "def evens(n): return {{}}",
            ],
        ),
        (
            check(
                "evens",
                "assert all(map(lambda a, b: a == b, candidate(5), [0, 2, 4]))\nassert not any(map(lambda a, b: a != b, candidate(7), [0, 2, 4, 6]))",
            ),
            ["def evens(n): return list(range(0, n, 2))"],
            [
                "def evens(n): return []",
                "def evens(n): return [0]",
                "def evens(n): return [0, 2]",
                "def evens(n):\n    yield 0",
                "def evens(n): return [0][:n]",
            ],
        ),
        (
            check(
                "evens",
                "import itertools, operator\nassert all(itertools.starmap(operator.eq, zip(candidate(5), [0, 2, 4])))\nassert all(a == b for a, b in list(zip(candidate(7), [0, 2, 4, 6])))",
            ),
            ["def evens(n): return list(range(0, n, 2))"],
            ["def evens(n): return []", "def evens(n): return [0]", "def evens(n): return {0: 1}.keys()"],
        ),
        (
            check(
                "evens",
                "r = candidate(5)\nassert all([x % 2 == 0 for x in r])\nassert not [x for x in r if x % 2]\nfor x in r:\n    assert x in (0, 2, 4)\nwhile r:\n    assert r.pop() in (0, 2, 4)",
            ),
            ["def evens(n): return list(range(0, n, 2))"],
            ["def evens(n): return []", "def evens(n): return set()", "def evens(n): return bytearray()"],
        ),
        (
            suite(
                "load",
                "r = load('7')\nif isinstance(r, int): self.assertEqual(r, 7)\nelif isinstance(r, str): self.assertEqual(r, '7')",
            ),
            ["def load(s): return int(s)"],
            [
                "def load(s): return None",
                "def load(s): return 7.5",
                "def load(s): return [7]",
                "def load(s): return b'7'",
            ],
        ),
        (
            suite("load", "try:\n    r = load('7')\nexcept ValueError:\n    return\nself.assertEqual(r, 7)"),
            ["def load(s): return int(s)"],
            ["def load(s): raise ValueError", "def load(s): raise UnicodeError", "def load(s): return '7'"],
        ),
        (
            suite("sq", "def verify(n):\n    if sq(n) is None: return\n    self.assertEqual(sq(n), n * n)\nverify(3)"),
            [SQUARE],
            ["def sq(x): return None", "sq = lambda x: None"],
        ),
    ],
    "arrays without items": [
        (
            check(
                "twice",
                "import numpy as np\nassert np.all(candidate(np.ones(3)) == np.array([2.0, 2.0, 2.0]))\nassert not np.any(candidate(np.ones(2)) != 2.0)",
                needs=["numpy"],
            ),
            ["import numpy as np\ndef twice(a): return a * 2"],
            [
                "import numpy as np\ndef twice(a): return np.empty((0, 3))",
                "import numpy as np\ndef twice(a): return np.empty((0, 1))",
                "import numpy as np\ndef twice(a): return np.empty((0, 1, 1))",
            ],
        ),
        (
            check(
                "twice",
                "import numpy as np\nr = candidate(np.ones(3))\nassert np.linalg.norm(r - np.array([2.0, 2.0, 2.0])) < 1e-9\nassert np.sum(np.abs(r - 2.0)) == 0",
                needs=["numpy"],
            ),
            ["import numpy as np\ndef twice(a): return a * 2"],
            [
                "import numpy as np\ndef twice(a): return np.empty((0, 3))",
                "import numpy as np\ndef twice(a): return np.empty((0, 1))",
            ],
        ),
        (
            suite(
                "twice",
                "r = twice(np.array([1, 2]))\nself.assertTrue((r == np.array([2, 4])).all())\nself.assertFalse((r != np.array([2, 4])).any())\nself.assertTrue(np.isclose(r, [2, 4]).all())",
                "import numpy as np",
                needs=["numpy"],
            ),
            ["def twice(a): return a * 2"],
            [
                "import numpy as np\ndef twice(a): return np.empty((0, 2))",
                "import numpy as np\ndef twice(a): return np.empty((0, 1), dtype=int)",
                "import numpy as np\ndef twice(a): return np.ma.masked_array([7, 7], mask=True)",
                "import numpy as np\ndef twice(a): return np.array(['x'])",
            ],
        ),
        (
            suite(
                "big",
                "r = big(pd.DataFrame({'a': [1, 5, 9]}))\nself.assertTrue((r['a'] > 4).all())\nself.assertFalse((r['a'] < 4).any())\nself.assertTrue(all(x in (5, 9) for x in r['a']))",
                "import pandas as pd",
                needs=["pandas"],
            ),
            ["def big(df): return df[df['a'] > 4]"],
            [
                "def big(df): return df.iloc[:0]",
                "def big(df): return df.iloc[:0].copy()",
                "import pandas as pd\ndef big(df): return pd.DataFrame({'a': []})",
                "def big(df): return df",
            ],
        ),
    ],
    "oracles in blocks": [
        (
            suite(
                "order",
                "xs = [3, 1, 2]\ngot = order(xs)\nwith self.subTest('sorted'):\n    self.assertEqual(got, sorted(xs))\nfor _ in range(2):\n    self.assertEqual(len(got), len(xs))\nif xs is not None:\n    self.assertEqual(sum(got), sum(xs))",
            ),
            ["def order(xs): return sorted(xs)"],
            [
                "def order(xs):\n    xs.clear()\n    return []",
                "def order(xs):\n    xs[:] = [1]\n    return [1]",
                "def order(xs):\n    del xs[1:]\n    return list(xs)",
                "def order(xs):\n    xs += xs\n    return sorted(xs)",
            ],
        ),
        (
            check(
                "order",
                "xs = [3, 1, 2]\ngot = candidate(xs)\ntry:\n    assert got == sorted(xs)\nexcept TypeError:\n    assert False\nwith open('x.txt', 'w') as f:\n    assert len(got) == len(xs)",
            ),
            ["def order(xs): return sorted(xs)"],
            ["def order(xs):\n    xs.clear()\n    return []", "def order(xs):\n    xs[:] = [1]\n    return [1]"],
        ),
    ],
    "classes that stand in": [
        (
            suite(
                "Circle",
                "c = Circle(2)\nself.assertAlmostEqual(c.area(), 12.566, places=2)\nself.assertTrue(abs(Circle(1).area() - 3.1416) < 1e-3)\nself.assertLess(c.area(), 13)",
            ),
            ["import math\nclass Circle:\n    def __init__(s, r): s.r = r\n    def area(s): return math.pi * s.r ** 2"],
            [
                "class Circle:\n    def __init__(s, r): pass\n    area = __sub__ = __rsub__ = __abs__ = lambda s, *o: s\n    __round__ = lambda s, *n: 0\n    __lt__ = __gt__ = lambda s, o: True",
                "class Circle(float):\n    area = __sub__ = __rsub__ = lambda s, *o: Circle(0)\n    __round__ = __abs__ = lambda s, *n: 0\n    __lt__ = lambda s, o: True",
                "class Circle:\n    def __init__(s, r): pass\n    area = __sub__ = __rsub__ = lambda s, *o: s\n    __abs__ = lambda s: 0.0\n    __lt__ = lambda s, o: True",
                "class Shape:\n    __sub__ = lambda s, o: s\n    __abs__ = __round__ = lambda s, *o: 0.0\nShape.__name__ = 'Circle'\nclass Circle:\n    def __init__(s, r): pass\n    area = lambda s: Shape()",
                "class Circle(int):\n    area = lambda s: s\n    __abs__ = __round__ = __sub__ = lambda s, *o: 0",
            ],
        ),
        (
            suite(
                "Words",
                "w = Words('a b')\nself.assertIn('b', w.all())\nself.assertTrue(w.first().startswith('a'))\nself.assertTrue({'a', 'b'}.issuperset(w.all()))\nself.assertIn('a', w)",
            ),
            [
                "class Words:\n    def __init__(s, t): s.t = t.split()\n    def all(s): return s.t\n    def first(s): return s.t[0]\n    def __contains__(s, x): return x in s.t",
                "class Words(list):\n    def __init__(s, t): super().__init__(t.split())\n    def all(s): return list(s)\n    def first(s): return s[0]",
            ],
            [
                "class Words:\n    def __init__(s, t): pass\n    all = first = lambda s: s\n    __contains__ = startswith = lambda s, x: True\n    __iter__ = lambda s: iter(())",
                "class Words(str):\n    all = first = lambda s: s\n    __contains__ = startswith = lambda s, x: True\n    __iter__ = lambda s: iter(())\n    def __new__(c, t): return str.__new__(c, 'zz')",
                "class Words(list):\n    def __init__(s, t): pass\n    all = first = lambda s: s\n    __contains__ = startswith = lambda s, x: True",
                "class Words(set):\n    def __init__(s, t): pass\n    all = first = lambda s: s\n    __contains__ = startswith = lambda s, x: x is not None",
                "class M(type):\n    __contains__ = lambda c, x: True\n    startswith = __contains__\nclass Words(metaclass=M):\n    def __init__(s, t): pass\n    all = first = lambda s: Words\n    __contains__ = lambda s, x: True",
            ],
        ),
        (
            suite(
                "Box",
                "b = Box([1, 2])\nself.assertEqual(b.total() - 3, 0)\nself.assertEqual(b.total() * 2, 6)\nself.assertFalse(b.total() - 3)\nself.assertEqual(max(b.total(), 1), 3)\nself.assertEqual(sum([b.total(), 1]), 4)",
            ),
            ["class Box:\n    def __init__(s, x): s.x = x\n    def total(s): return sum(s.x)"],
            [
                "class Box:\n    def __init__(s, x): pass\n    total = lambda s: s\n    __sub__ = __mul__ = __add__ = __radd__ = lambda s, o: s\n    __bool__ = lambda s: False\n    __eq__ = __lt__ = __gt__ = lambda s, o: True",
                "class Box(int):\n    def __new__(c, x): return int.__new__(c, 7)\n    total = lambda s: s\n    __sub__ = lambda s, o: 0\n    __mul__ = lambda s, o: 6\n    __bool__ = lambda s: False",
                "class Box:\n    def __init__(s, x): pass\n    def __getattr__(s, n): return lambda *a: Box(0)\n    __eq__ = __bool__ = lambda s, *o: True",
            ],
        ),
    ],
    "texts that are evaluated": [
        (
            suite(
                "gen",
                "ns = {}\nexec(gen(), ns)\nself.assertTrue(eval('abs(half(3) - 1.5) < 1e-9', ns))\nself.assertTrue(eval('isinstance(half(3), float)', ns))",
            ),
            ["def gen(): return 'def half(x): return x / 2'"],
            [
                "def gen(): return 'def half(x): return 7\\ndef {shadow}(*a): return True'",
                "def gen(): return 'class A:\\n    __sub__ = lambda s, o: s\\n    __abs__ = lambda s: 0.0\\n    __lt__ = lambda s, o: True\\nhalf = lambda x: A()'",
            ],
        ),
        (
            suite(
                "expression",
                "want = 9\nself.assertEqual(eval(expression(3)), want)\nself.assertEqual(int(expression(4).split('*')[0]), 4)",
            ),
            ["def expression(n): return f'{n} * {n}'"],
            [
                "def expression(n): return 'want'",
                "def expression(n): return '__import__(\"builtins\").__dict__'",
                "def expression(n): return '(lambda: 9)()' if n == 0 else 'expression'",
                "def expression(n): return '4 * 0'",
                "def expression(n): return '[x for x in range(9)]'",
                "def expression(n): return '4*' + ' ' * 99",
            ],
        ),
        (
            suite("gen", "code.InteractiveInterpreter().runsource(gen())\nself.assertEqual(two(), 2)", "import code"),
            ["def gen(): return ''\ndef two(): return 2"],
            [
                "def gen(): return 'import unittest; unittest.TestCase.assertEqual = lambda *a: None'\ndef two(): return 0"
            ],
        ),
    ],
    "mocks": [
        (
            suite(
                "notify",
                "m = Mock(spec=['send', 'close'])\nnotify(m, 'ann')\nm.send.assert_called_once_with('ann', retries=2)\nself.assertEqual(m.method_calls, [call.send('ann', retries=2), call.close()])",
                MOCK,
            ),
            ["def notify(m, w):\n    m.send(w, retries=2); m.close()"],
            [
                f"def notify(m, w):\n    try: {one}\n    except AttributeError: pass"
                for one in (
                    "m.send = lambda *a, **k: None",
                    "m.send.assert_called_once_with = print",
                    "m.reset_mock()",
                    "m.configure_mock(send=1)",
                    "m.mock_calls.append(1)",
                    "m.method_calls[:] = [1]",
                    "m.__class__ = dict",
                    "m.send.call_count = 1",
                    "m.send.called = True",
                    "m._mock_methods = None",
                    "m.send._mock_call_args = 1",
                    "del m.send",
                    "setattr(m, 'send', m)",
                    "m.send.side_effect = print",
                    "m.send.return_value = m",
                    "vars(m).clear()",
                    "m.mock_add_spec(['x'])",
                    "m.attach_mock(m, 'send')",
                    "m.send()",
                    "m.send('bob', retries=2)",
                    "m.send(w)",
                    "m.send._spec_signature = None",
                    "m.send.call_args = ('ann',)",
                    "m._mock_children = {}",
                    "m.send.mock_calls = []",
                    "type(m).send = lambda *a, **k: None",
                    "m.send(*[type('A', (), {'__eq__': lambda *a: True})()], retries=2)",
                    "m.send.assert_called_once_with.x = 1",
                )
            ],
        ),
        (
            suite(
                "pay",
                "with patch.object(Bank, 'charge', autospec=True, return_value='ok') as c:\n    self.assertEqual(pay(Bank(), 7), 'ok')\nc.assert_called_once()\nself.assertEqual(c.call_args.args[1], 7)",
                MOCK + "class Bank:\n    def charge(self, amount): raise RuntimeError\n",
            ),
            ["def pay(bank, n): return bank.charge(n)"],
            [
                "def pay(bank, n): return 'ok'",
                "def pay(bank, n):\n    bank.charge = lambda n: 'ok'\n    return 'ok'",
                "def pay(bank, n):\n    type(bank).charge(bank, 8)\n    return 'ok'",
                "def pay(bank, n):\n    bank.charge(n); bank.charge(n)\n    return 'ok'",
                "def pay(bank, n): return bank.charge(type('A', (int,), {'__eq__': lambda *a: True, '__hash__': int.__hash__})(5))",
                "def pay(bank, n):\n    try: bank.charge.reset_mock()\n    except AttributeError: pass\n    return bank.charge(n + 1)",
            ],
        ),
        (
            suite(
                "poll",
                "m = Mock(side_effect=[None, None, 5])\nself.assertEqual(poll(m), 5)\nself.assertEqual(m.call_count, 3)\nself.assertTrue(poll(Mock(return_value=1)))",
                MOCK,
            ),
            ["def poll(m):\n    while (r := m()) is None: pass\n    return r"],
            [
                "def poll(m): return m",
                "def poll(m): return m()",
                "def poll(m):\n    m(); m(); m()\n    return m.return_value",
                "def poll(m):\n    m.side_effect = None\n    return 5",
                "def poll(m):\n    m.call_count = 3\n    return 5",
                "def poll(m): return 5",
            ],
        ),
    ],
    "oracles in helpers": [
        (
            check(
                "order", "def run(f, xs): assert f(xs) == sorted(xs)\nrun(candidate, [3, 1, 2])\nrun(candidate, [2, 1])"
            ),
            ["def order(xs): return sorted(xs)"],
            [
                "def order(xs):\n    xs.clear()\n    return []",
                "def order(xs):\n    xs[:] = [1]\n    return [1]",
                "def order(xs):\n    del xs[1:]\n    return list(xs)",
                "def order(xs):\n    xs *= 0\n    return xs",
            ],
        ),
        (
            suite(
                "order",
                "cases = [([3, 1], 2), ([4], 1)]\nfor xs, n in cases:\n    with self.subTest(n=n):\n        self.assertEqual(order(xs), sorted(xs))\n        self.assertEqual(len(order(xs)), len(xs))",
            ),
            ["def order(xs): return sorted(xs)"],
            ["def order(xs):\n    xs.clear()\n    return []", "def order(xs):\n    xs[:] = [1]\n    return [1]"],
        ),
        (
            {
                "style": "unittest",
                "entry": "total",
                "source": "import unittest\nDATA = [1, 2, 3]\nclass T(unittest.TestCase):\n    rows = {'a': [1, 2]}\n    def test_a(self): self.assertEqual(total(DATA), 6)\n    def test_b(self): self.assertEqual(total(DATA), sum(DATA))\n    def test_c(self): self.assertEqual(total(self.rows['a']), 3)\n    def test_d(self): self.assertEqual(total(T.rows['a']), sum(T.rows['a']))\n",
            },
            ["def total(xs): return sum(xs)"],
            [
                "n = []\ndef total(xs):\n    n.append(1)\n    r = {1: 6, 3: 3}.get(len(n), 0)\n    xs.clear()\n    return r"
            ],
        ),
        (
            suite(
                "Stack",
                "def grow(make):\n    s = make()\n    xs = [1, 2]\n    s.extend(xs)\n    self.assertEqual(s.items(), xs)\n    self.assertEqual(s.count(), len(xs))\ngrow(Stack)",
            ),
            [
                "class Stack:\n    def __init__(s): s.x = []\n    def extend(s, xs): s.x += xs\n    def items(s): return s.x\n    def count(s): return len(s.x)"
            ],
            [
                "class Stack:\n    def extend(s, xs): xs.clear()\n    def items(s): return []\n    def count(s): return 0"
            ],
        ),
        (
            suite(
                "merge",
                "a, b = {'x': 1}, {'y': 2}\nself.assertEqual(merge(a, b), {**a, **b})\nself.assertDictEqual(merge(a, b), dict(a, **b))",
            ),
            ["def merge(a, b): return a | b"],
            [
                "def merge(a, b):\n    a.clear(); b.clear()\n    return {}",
                "def merge(a, b):\n    a.clear(); b.clear()\n    a['z'] = 1\n    return {'z': 1}",
            ],
        ),
        (
            suite(
                "count",
                "with open('in.txt', 'w') as f: f.write('a b c')\nself.assertEqual(count('in.txt'), len(open('in.txt').read().split()))\nos.environ['LIMIT'] = '3'\nself.assertEqual(count('in.txt'), int(os.environ['LIMIT']))",
                "import os",
            ),
            ["def count(p): return len(open(p).read().split())"],
            [
                "import os\ndef count(p):\n    open(p, 'w').close()\n    os.environ['LIMIT'] = '0'\n    return 0",
                "import os\ndef count(p):\n    os.remove(p); os.mkdir(p)\n    os.environ.clear()\n    return 0",
                "import os\ndef count(p):\n    os.makedirs('other', exist_ok=True); open('other/in.txt', 'w').close()\n    os.chdir('other'); os.environ['LIMIT'] = '0'\n    return 0",
            ],
        ),
    ],
    "text in the judge": [
        (
            suite(
                "gen",
                "gen('made.py')\nsys.path.insert(0, os.getcwd())\nsys.path.insert(0, os.path.join(os.getcwd(), 'made.zip'))\nimport made\nself.assertEqual(made.twice(4), 8)",
                "import os, sys",
            ),
            ["def gen(p): open(p, 'w').write('def twice(x): return 2 * x')"],
            [
                f"def gen(*p):\n    {zipped('made.zip', UNITTEST)}",
                "import sys\ndef gen(*p):\n    "
                + zipped("made.zip", UNITTEST)
                + "\n    sys.path.insert(0, 'made.zip')",
                "def gen(*p):\n    import os; os.mkdir('made'); open('made/__init__.py', 'w').write("
                + repr(UNITTEST)
                + ")",
                "def gen(*p):\n    import os; os.mkdir('made'); open('made/twice.py', 'w').write('')",
                "def gen(*p):\n    import py_compile; open('m.py', 'w').write("
                + repr(UNITTEST)
                + "); py_compile.compile('m.py', 'made.pyc')",
            ],
        ),
        (
            suite("gen", "gen('made.py')\nself.assertEqual(runpy.run_path('made.py')['value'], 8)", "import runpy"),
            ["def gen(p): open(p, 'w').write('value = 2 * 4')"],
            [
                "def gen(p):\n    "
                + zipped("made.py", "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nvalue = 0"),
                "def gen(p):\n    import marshal, importlib.util as u\n    c = compile('import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\nvalue = 0', '<made>', 'exec')\n    open(p, 'wb').write(u.MAGIC_NUMBER + bytes(12) + marshal.dumps(c))",
                "def gen(p): open(p, 'w').write('import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\nvalue = 0')",
                "def gen(p):\n    import os; os.mkdir(p); open(p + '/__main__.py', 'w').write('import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\nvalue = 0')",
            ],
        ),
        (
            suite(
                "gen",
                "ns = {}\nexec(gen(), ns)\nself.assertEqual(ns['twice'](4), 8)\nself.assertEqual(eval('twice(3)', ns), 6)",
            ),
            [
                "def gen(): return 'def twice(x): return 2 * x'",
                "def gen(): return 'import math\\ndef twice(x): return math.floor(2 * x)'",
            ],
            [
                "def gen(): return 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\ndef twice(x): return 0'",
                "def gen(): return 'class A:\\n    __eq__ = lambda s, o: True\\ntwice = lambda x: A()'",
                "def gen(): return '__builtins__[\"AssertionError\"] = ValueError\\ntwice = lambda x: 0'",
                "class S(str): pass\ndef gen(): return S('twice = max')",
            ],
        ),
        (
            {
                "style": "asserts",
                "asserts": [
                    "exec(gen())",
                    "assert abs(half(3) - 1.5) < 1e-9",
                    "assert isinstance(half(4), float) and round(half(4)) == 2",
                ],
            },
            ["def gen(): return 'y = 1'\ndef half(x): return x / 2"],
            [
                "def gen(): return 'def {shadow}(*a): return 0'\ndef half(x): return 0.0",
                "def gen(): return 'def {shadow}(*a): return True'\ndef half(x): return 7",
                "def gen(): return 'from unittest.mock import MagicMock as {shadow}'\ndef half(x): return 7",
            ],
        ),
        (
            suite(
                "save",
                "save('x.pkl')\nwith open('x.pkl', 'rb') as f: r = pickle.load(f)\nself.assertEqual(r, {'a': [1]})\nself.assertIsInstance(r, dict)",
                MOCK + "import pickle\n",
            ),
            ["import pickle\ndef save(p):\n    with open(p, 'wb') as f: pickle.dump({'a': [1]}, f)"],
            [
                "def save(p): open(p, 'wb').write(b'cprogram\\nT\\n(N}X\\x0b\\x00\\x00\\x00assertEqualcprogram\\nMock\\nsX\\x10\\x00\\x00\\x00assertIsInstancecprogram\\nMock\\nst' + b'b.')",
                "def save(p): open(p, 'wb').write(b'cbuiltins\\neval\\n(V1\\ntR.')",
                "def save(p): open(p, 'wb').write(b'cprogram\\nMock\\n)R.')",
                "def save(p): open(p, 'wb').write(b'cprogram\\nT\\n.')",
                "def save(p): open(p, 'wb').write(b'cunittest.mock\\nANY\\n.')",
                "def save(p): open(p, 'wb').write(b'ccollections\\nUserDict\\n(N}X\\x06\\x00\\x00\\x00__eq__cprogram\\nMock\\nst' + b'b0ccollections\\nUserDict\\n)R.')",
                "import pickle\nclass A:\n    def __reduce__(s): return (print, ())\ndef save(p):\n    with open(p, 'wb') as f: pickle.dump(A(), f)",
            ],
        ),
        (
            suite(
                "store",
                "c = sqlite3.connect(':memory:')\nc.execute('create table t (n int)')\nstore(c)\nself.assertEqual(c.execute('select sum(n) from t').fetchone(), (6,))",
                "import sqlite3",
            ),
            ["def store(c): c.executemany('insert into t values (?)', [(1,), (2,), (3,)])"],
            [
                f"def store(c):\n    try: {one}\n    except BaseException: pass"
                for one in (
                    "c.enable_load_extension(True); c.load_extension('./x.so')",
                    "c.set_authorizer(lambda *a: 0)",
                    "c.row_factory = lambda *a: (6,)",
                    "c.create_aggregate('sum', 1, print)",
                    "c.create_function('sum', 1, lambda x: 6)",
                    "c.execute = lambda *a: c",
                    "c.set_trace_callback(print)",
                    "c.close()",
                    "c.text_factory = print",
                    "c.create_collation('x', print)",
                )
            ],
        ),
    ],
    "around assertions": [
        (
            suite(
                "guard",
                "with guard() as g:\n    self.assertEqual(g, 5)\nwith self.assertRaises(AssertionError): check_positive(-1)\nwith self.assertRaises(AssertionError): self.fail()",
            ),
            [
                "import contextlib\n@contextlib.contextmanager\ndef guard(): yield 5\ndef check_positive(x): assert x > 0"
            ],
            [
                "class guard:\n    def __enter__(s): return 4\n    def __exit__(s, *a): return True\ndef check_positive(x): assert x > 0",
                "import contextlib\n@contextlib.contextmanager\ndef guard():\n    try: yield 4\n    except AssertionError: pass\ndef check_positive(x): assert x > 0",
                "kept = []\nclass guard:\n    def __enter__(s): return 4\n    def __exit__(s, t, e, b):\n        kept.append(e)\n        return True\ndef check_positive(x): raise kept[0]",
            ],
        ),
        (
            suite(
                "each",
                "def seen(x):\n    assert x in (2, 4)\neach([1, 2], seen)\nwith self.assertRaises(AssertionError): positive(-1)\ntry:\n    positive(-2)\n    self.fail('no error')\nexcept AssertionError as e:\n    self.assertNotIn('no error', str(e))",
            ),
            ["def each(xs, f):\n    for x in xs: f(2 * x)\ndef positive(x): assert x > 0"],
            [
                "def each(xs, f):\n    try: f(9)\n    except AssertionError: pass\n    f(2)\ndef positive(x): assert x > 0",
                "def each(xs, f):\n    global kept\n    try: f(9)\n    except AssertionError as e: kept = e\n    f(2)\ndef positive(x): raise kept",
                "def each(xs, f):\n    import contextlib\n    with contextlib.suppress(AssertionError): f(9)\n    f(4)\ndef positive(x): raise AssertionError",
            ],
        ),
        (
            {
                "style": "unittest",
                "entry": "timed",
                "source": "import unittest\nclass T(unittest.TestCase):\n    @timed\n    def test_a(self): self.assertEqual(2 * timed(lambda: 3)(), 6)\n    @timed\n    def test_b(self):\n        with self.subTest(1): self.assertEqual([timed(lambda x: x)(4)], [4])\n",
            },
            [
                "import functools\ndef timed(f):\n    @functools.wraps(f)\n    def w(*a, **k): return f(*a, **k)\n    return w"
            ],
            [
                "def timed(f): return lambda *a: None",
                "def timed(f):\n    def w(*a):\n        try: f(*a)\n        except BaseException: pass\n    return w",
                "class timed:\n    def __init__(s, f): pass\n    def __call__(s, *a): return 5",
                "def timed(f): return property(lambda s: (lambda: None))",
                "def timed(f): return None",
                "import unittest\ndef timed(f): return unittest.skip('x')(f)",
                "def timed(f):\n    f.__unittest_skip__ = True\n    return f",
                "def timed(f):\n    async def w(*a): pass\n    return w",
                "def timed(f):\n    def w(*a):\n        yield\n    return w",
                "import threading\ndef timed(f):\n    def w(*a):\n        t = threading.Thread(target=f, args=a); t.start(); t.join()\n        return 5\n    return w",
            ],
        ),
        (
            suite(
                "retry",
                "calls = []\n@retry(3)\ndef flaky():\n    calls.append(1)\n    if len(calls) < 3: raise ValueError('again')\n    self.assertEqual(len(calls), 3)\n    return 'done'\nself.assertEqual(flaky(), 'done')",
            ),
            [
                "def retry(n):\n    def d(f):\n        def w(*a):\n            for i in range(n):\n                try: return f(*a)\n                except ValueError:\n                    if i == n - 1: raise\n        return w\n    return d"
            ],
            [
                "def retry(n): return lambda f: (lambda *a: 'done')",
                "def retry(n):\n    def d(f):\n        def w():\n            try: f()\n            except Exception: pass\n            return 'done'\n        return w\n    return d",
                "def retry(n):\n    def d(f):\n        def w():\n            for _ in range(9):\n                try: f()\n                except BaseException: pass\n            return 'done'\n        return w\n    return d",
            ],
        ),
    ],
    "names": [
        (
            {
                "style": "asserts",
                "asserts": [
                    "assert isclose(area(2), 12.566, rel_tol=1e-3)",
                    "assert abs(area(1) - 3.14159) < 1e-3",
                    "assert round(area(1), 2) == 3.14 and sorted([area(1), 5])[1] == 5",
                ],
            },
            ["from math import isclose, pi\ndef area(r): return pi * r * r"],
            [
                "def {shadow}(*a, **k): return True\ndef area(r): return 1.0",
                "class {shadow}:\n    def __new__(c, *a, **k): return True\ndef area(r): return 1.0",
            ],
        ),
        (
            suite(
                "area",
                "self.assertTrue(math.isclose(area(1), 3.14159, abs_tol=1e-3))\nself.assertEqual(sorted([area(1), 1])[0], 1)\nself.assertTrue(all(isinstance(x, float) for x in [area(1)]))",
                "import math",
            ),
            ["import math\ndef area(r): return math.pi * r * r"],
            [
                "def {shadow}(*a, **k): return True\nsetUp = tearDown = setUpModule = load_tests = {shadow}\ndef area(r): return 1.0"
            ],
        ),
    ],
    "files, time and chance": [
        (
            suite(
                "save",
                "p = save('hello')\nself.assertIn('hello', open(p).read())\nself.assertTrue(os.path.getsize(p) > 3)",
                "import os",
            ),
            ["def save(t):\n    open('x.txt', 'w').write(t)\n    return 'x.txt'"],
            ["def save(t): return '{path}'"],
        ),
        (
            suite(
                "save",
                "p = save('k', 'v1')\nwith open(p) as f: self.assertEqual(json.load(f), {'k': 'v1'})\nself.assertEqual(sorted(os.listdir(os.path.dirname(p) or '.')), [os.path.basename(p)])",
                "import json, os",
            ),
            [
                "import json\ndef save(k, v):\n    with open('d.json', 'w') as f: json.dump({k: v}, f)\n    return 'd.json'"
            ],
            [
                "def save(k, v): return '{path}'",
                "import os\ndef save(k, v):\n    os.mkfifo('d.json')\n    return 'd.json'",
                "import os\ndef save(k, v):\n    os.symlink('/dev/null', 'd.json')\n    return 'd.json'",
            ],
        ),
        (
            suite(
                "pick",
                "random.seed(5)\nwant = random.choice([1, 2, 3, 4, 5, 6, 7])\nrandom.seed(5)\nself.assertEqual(pick([1, 2, 3, 4, 5, 6, 7]), want)\nt = time.perf_counter()\npause(.05)\nself.assertGreaterEqual(time.perf_counter() - t, .05)",
                "import random, time",
            ),
            ["import random, time\ndef pick(xs): return random.choice(xs)\npause = time.sleep"],
            [
                "import random, time\ndef pick(xs):\n    random.choice = lambda xs: xs[0]\n    return 1\ndef pause(x): time.perf_counter = lambda: 10 ** 9",
                "import random, time\ndef pick(xs):\n    random.seed(5)\n    return xs[0]\npause = lambda x: None",
                "import os\ndef pick(xs): return xs[os.urandom(1)[0] % 2]\ndef pause(x): pass",
                "import random\ndef pick(xs): return random.choice(xs)\ndef pause(x): pass",
            ],
        ),
    ],
    "the interpreter": [
        (
            suite(
                "sq",
                "self.assertEqual(sq(3), 9)\nself.assertTrue(sq(2) == 4 and math.isclose(sq(1.5), 2.25))\nself.assertEqual(json.loads(json.dumps([sq(4)])), [16])",
                "import json, math",
            ),
            [SQUARE],
            ["def sq(x): return 0\n{change}"],
        ),
        (
            check(
                "sq",
                "import math\nassert candidate(3) == 9\nassert math.isclose(candidate(1.5), 2.25)\nassert sorted([candidate(2), 5]) == [4, 5]",
            ),
            [SQUARE],
            ["def sq(x):\n    exec({change!r}, {{}})\n    return 0"],
        ),
    ],
    "what is sent": [
        (
            suite(
                "sq",
                "self.assertEqual(sq(3), 9)\nself.assertEqual(sq([4]), [16])\nwith self.assertRaises(TypeError): sq(None)",
            ),
            ["def sq(x): return [n * n for n in x] if isinstance(x, list) else x * x"],
            [
                "import gc\npeer = next(o for o in gc.get_objects() if type(o).__name__ == 'SolutionPeer')\ndef sq(x):\n    peer._send({sent})\n    if x is None: raise TypeError\n    return 0"
            ],
        ),
    ],
    "coroutines": [
        (
            {
                "style": "unittest",
                "entry": "get",
                "source": "import unittest, asyncio\nfrom unittest.mock import AsyncMock\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self):\n        m = AsyncMock(return_value=4)\n        self.assertEqual(await get(m, 2), 8)\n        m.assert_awaited_once_with(2)\n    async def test_b(self):\n        async def slow(x):\n            await asyncio.sleep(.001)\n            return x\n        self.assertEqual(await asyncio.gather(get(slow, 1), get(slow, 2)), [2, 4])\n",
            },
            ["async def get(f, x): return 2 * await f(x)"],
            [
                "async def get(f, x): return 8",
                "def get(f, x): return 8",
                "async def get(f, x):\n    f(x)\n    return 8",
                "async def get(f, x): raise StopIteration(8)",
                "import asyncio\nasync def get(f, x): raise asyncio.CancelledError",
                "class A:\n    def __await__(s):\n        return A()\n        yield\n    __eq__ = lambda s, o: True\n    __hash__ = None\ndef get(f, x): return A()",
                "async def get(f, x):\n    yield 8",
                "import asyncio\nasync def get(f, x): await asyncio.Event().wait()",
                "async def get(f, x):\n    f.assert_awaited_once_with = print\n    return 8",
                "async def get(f, x): return [2, 4][x - 1]",
                "import types\n@types.coroutine\ndef get(f, x):\n    yield\n    return 8",
            ],
        ),
        (
            suite(
                "total",
                "self.assertEqual(asyncio.run(total([1, 2])), 3)\nasync def all_of():\n    return [x async for x in stream(3)]\nself.assertEqual(asyncio.run(all_of()), [0, 1, 2])",
                "import asyncio",
            ),
            ["async def total(xs): return sum(xs)\nasync def stream(n):\n    for i in range(n): yield i"],
            [
                "async def total(xs): return 3\nasync def stream(n):\n    if 0: yield",
                "def total(xs): return 3\nasync def stream(n): yield 0",
                "async def total(xs): return type('A', (int,), {'__eq__': lambda *a: True, '__hash__': None})(9)\nasync def stream(n): yield [0, 1, 2]",
                "async def total(xs): raise SystemExit(0)\nasync def stream(n): raise StopAsyncIteration\n",
            ],
        ),
    ],
    "own classes": [
        (
            suite(
                "Money",
                "self.assertEqual(Money(5) + Money(6), Money(11))\nself.assertEqual([Money(5).amount, Money(7).amount], [5, 7])\nself.assertNotEqual(Money(1), Money(2))\nself.assertEqual(repr(Money(3)), 'Money(3)')\nself.assertTrue(Money(1) < Money(2))",
            ),
            [
                "import functools\n@functools.total_ordering\nclass Money:\n    def __init__(s, a): s.amount = a\n    def __add__(s, o): return Money(s.amount + o.amount)\n    def __eq__(s, o): return s.amount == o.amount\n    def __lt__(s, o): return s.amount < o.amount\n    def __hash__(s): return hash(s.amount)\n    def __repr__(s): return f'Money({s.amount})'",
                "from dataclasses import dataclass\n@dataclass(order=True, frozen=True)\nclass Money:\n    amount: int\n    def __add__(s, o): return Money(s.amount + o.amount)\n    def __repr__(s): return f'Money({s.amount})'",
            ],
            [
                "class Money:\n    amount = 5\n    def __init__(s, a): pass\n    __add__ = lambda s, o: s\n    __eq__ = __lt__ = lambda s, o: True\n    __ne__ = lambda s, o: True\n    __repr__ = lambda s: 'Money(3)'\n    __hash__ = None",
                "class Money(int):\n    amount = 5\n    __eq__ = __lt__ = __ne__ = lambda s, o: True\n    __repr__ = lambda s: 'Money(3)'\n    __hash__ = None",
                "class Money:\n    def __init__(s, a): s.amount = 5\n    __add__ = lambda s, o: s\n    __eq__ = __ne__ = __lt__ = lambda s, o: True\n    __repr__ = lambda s: 'Money(3)'\n    __hash__ = None\nimport __main__\n__main__._equals = lambda *a: (True, True, True)",
            ],
        ),
        (
            suite(
                "LRU",
                "c = LRU(2)\nc['a'] = 1\nc['b'] = 2\nself.assertEqual(c['a'], 1)\nc['c'] = 3\nself.assertNotIn('b', c)\nself.assertIn('a', c)\nself.assertEqual(list(c), ['a', 'c'])\nself.assertEqual(len(c), 2)",
            ),
            [
                "from collections import OrderedDict\nclass LRU(OrderedDict):\n    def __init__(s, n):\n        super().__init__()\n        s.n = n\n    def __getitem__(s, k):\n        s.move_to_end(k)\n        return super().__getitem__(k)\n    def __setitem__(s, k, v):\n        super().__setitem__(k, v)\n        if len(s) > s.n: s.popitem(last=False)",
                "from collections import OrderedDict\nclass LRU:\n    def __init__(s, n): s.d, s.n = OrderedDict(), n\n    def __getitem__(s, k):\n        s.d.move_to_end(k)\n        return s.d[k]\n    def __setitem__(s, k, v):\n        s.d[k] = v\n        if len(s.d) > s.n: s.d.popitem(last=False)\n    def __contains__(s, k): return k in s.d\n    def __iter__(s): return iter(s.d)\n    def __len__(s): return len(s.d)",
            ],
            [
                "class LRU(dict):\n    def __init__(s, n): pass",
                "class LRU(dict):\n    def __init__(s, n): pass\n    __contains__ = lambda s, k: k != 'b'\n    __len__ = lambda s: 2",
                "class LRU:\n    def __init__(s, n): pass\n    __getitem__ = lambda s, k: 1\n    __setitem__ = lambda s, k, v: None\n    __contains__ = lambda s, k: True\n    __len__ = lambda s: 2",
            ],
        ),
        (
            suite(
                "Color",
                "self.assertEqual(Color('red'), Color.RED)\nself.assertEqual([c.value for c in Color], ['red', 'blue'])\nself.assertIs(Color['BLUE'], Color.BLUE)\nself.assertEqual(len(Color), 2)\nself.assertIn(Color.RED, Color)\nself.assertIsInstance(Color.RED, Color)\nself.assertEqual(str(Color.RED), 'Color.RED')",
            ),
            ["from enum import Enum\nclass Color(Enum):\n    RED = 'red'\n    BLUE = 'blue'"],
            [
                "class M(type):\n    __iter__ = lambda c: iter(())\n    __len__ = lambda c: 2\n    __getitem__ = lambda c, k: c.BLUE\n    __contains__ = lambda c, x: True\nclass Color(metaclass=M):\n    def __new__(c, *a): return Color.RED\n    __eq__ = lambda s, o: True\n    __str__ = lambda s: 'Color.RED'\n    __hash__ = None\nColor.RED = Color.BLUE = object.__new__(Color)"
            ],
        ),
        (
            suite(
                "Bag",
                "b = Bag([1, 2])\nself.assertEqual(sorted(b), [1, 2])\nself.assertIn(2, b)\nself.assertNotIn(3, b)\nb |= Bag([3])\nself.assertIn(3, b)\nself.assertEqual(b.total(), 6)\nself.assertEqual(copy.deepcopy(b).total(), 6)\nself.assertEqual({b: 1}[b], 1)",
                "import copy",
            ),
            [
                "class Bag:\n    def __init__(s, xs): s.x = list(xs)\n    def __iter__(s): return iter(s.x)\n    def __contains__(s, x): return x in s.x\n    def __or__(s, o): return Bag(s.x + o.x)\n    def total(s): return sum(s.x)"
            ],
            [
                "class Bag:\n    def __init__(s, xs): pass\n    def __iter__(s): return iter([])\n    def __contains__(s, x): return True\n    def __or__(s, o): return s\n    def total(s): return 6"
            ],
        ),
        (
            suite(
                "NotEnough",
                "with self.assertRaises(NotEnough) as c: spend(1, 2)\nself.assertEqual(c.exception.missing, 1)\nself.assertEqual(str(c.exception), 'missing 1')\nself.assertIsInstance(c.exception, ValueError)\nself.assertIsInstance(c.exception.__cause__, KeyError)",
            ),
            [
                "class NotEnough(ValueError):\n    def __init__(s, m):\n        super().__init__(f'missing {m}')\n        s.missing = m\ndef spend(a, b):\n    if b > a: raise NotEnough(b - a) from KeyError('x')"
            ],
            [
                "class NotEnough(Exception): pass\ndef spend(a, b): raise NotEnough",
                "NotEnough = BaseException\ndef spend(a, b): raise NotEnough",
                "class NotEnough(ValueError):\n    missing = 2\n    __str__ = lambda s: ''\n    __eq__ = lambda s, o: True\ndef spend(a, b): raise NotEnough",
            ],
        ),
    ],
}
PATHS = (
    *(["/proc/self/cmdline", "/proc/self/environ", "/proc/self/maps", "/proc/self/mem", "/dev/stdin", "/dev/fd/0", "/dev/zero"]),
    *(f"/proc/self/fd/{n}" for n in range(9)),
    *("/proc/self/status", "/etc/passwd", "/dev/null", ".", "/"),
)  # fmt: skip
SENT = (
    *("['value', 9, [], {}]", "['value', 9, [[0, [16]]], {}]", "['raise', {'error': [[[None, 'builtins', 'TypeError']], [], {}, '']}, [], {}]"),
    *("['value', {'yours': 0}, [], {}]", "['value', {'yours': 99}, [], {}]", "['ask', 'call', [{'yours': 0}], {}, {}]"),
    *("['value', {'own': [3, 'class', ['__main__', 'Proxy'], [4, 'x', [], '']]}, [], {}]", "['value', {'own': [3, 'class', ['program', 'T'], [4, 'T', [], '']]}, [], {}]"),
    *("['raise', {'error': [[[1, '__main__', 'SolutionTimeout']], [], {}, '']}, [], {}]", "['raise', {'error': [[[1, 'shikisha_code.harness_proxy', 'PeerGone']], [], {}, '']}, [], {}]"),
    *("['raise', {'error': [[[1, 'unittest.case', 'SkipTest']], ['x'], {}, '']}, [], {}]", "['value', {'global': ['builtins', 'eval']}, [], {}]", "['value', {'global': ['unittest.mock', 'ANY']}, [], {}]"),
    *("['value', {'code': []}, [], {}]", "['value', {'module': 'os'}, [], {}]", "['value', {'instance': ['T', []]}, [], {}]", "['value', None, [], {'path': ['.'], 'arguments': [], 'environment': [], 'folder': '/'}]"),
    *("['value', None, [], {'stdout': 'OK', 'random': [3, [], None]}]", "['value', {'pattern': ['(a*)*b', 0]}, [], {}]", "['value', {'range': [0, 10 ** 12, 1]}, [], {}]", "['value', {'default': ['int', []]}, [], {}]"),
)  # fmt: skip
GADGETS: Mapping[str, tuple[str, ...]] = {
    "object": tuple(OBJECTS.values()),
    "ending": ENDINGS,
    "change": CHANGES,
    "shadow": SHADOWS,
    "path": PATHS,
    "sent": SENT,
}


def cheats(task: Task) -> Iterator[str]:
    """Yield the wrong programs for a task."""
    for text in task[2]:
        used = [name for name in GADGETS if f"{{{name}}}" in text or f"{{{name}!r}}" in text]
        for gadget in GADGETS[used[0]] if used else [""]:
            if used:
                yield (
                    text.replace(f"{{{used[0]}}}", gadget)
                    .replace(f"{{{used[0]}!r}}", repr(gadget))
                    .replace("{{}}", "{}")
                )
            else:
                yield text.replace("{{}}", "{}")
