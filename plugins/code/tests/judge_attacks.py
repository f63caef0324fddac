# ruff: noqa: E501 - programs as they are
"""Attacks on what decides: wrong programs, by kind of oracle, each against tests that rely on that oracle.

The data of hostile_programs.py: `ORACLES` are tests with a right program, `CHEATS` wrong programs for them. In programs
`\\n` separates lines as usual; a program defines what the tests call, and does not do what they ask for.
"""

from collections.abc import Mapping

Tests = Mapping[str, object]


def suite(entry: str, body: str, head: str = "", **more: object) -> Tests:
    """Return a unittest suite with one test method."""
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    return {
        "style": "unittest",
        "entry": entry,
        "source": f"import unittest\n{head}\nclass T(unittest.TestCase):\n    def test_it(self):\n{lines}",
        **more,
    }


def check(entry: str, body: str, **more: object) -> Tests:
    """Return a `check` function."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return {"style": "check", "entry": entry, "source": f"def check(candidate):\n{lines}", **more}


MOCK = "from unittest.mock import Mock, MagicMock, patch, call, mock_open, PropertyMock\n"
NODE = "class Node:\n    def __init__(self, v, left=None, right=None): self.v, self.left, self.right = v, left, right\n    def size(self): return 1 + sum(c.size() for c in (self.left, self.right) if c)\n    def valid(self): return (not self.left or self.left.v < self.v) and (not self.right or self.right.v > self.v)\n"
DOOR = "class Door:\n    limit = 3\n    def __init__(s): s._open, s.log = True, []\n    def close(s): s._open = False\n    def is_open(s): return s._open\n    def is_closed(s): return not s._open\n    def on(s, f): s.f = f\n    @property\n    def shut(s): return not s._open\n"
# By kind: the tests and a right program.
ORACLES: Mapping[str, tuple[Tests, str]] = {
    "mock": (
        suite(
            "notify",
            "m = Mock()\nnotify(m, ['ann', 'bob'])\nself.assertEqual(m.send.call_count, 2)\nm.send.assert_any_call('ann', subject='hi')\nm.close.assert_called_once_with()",
            MOCK,
        ),
        "def notify(m, who):\n    for w in who: m.send(w, subject='hi')\n    m.close()",
    ),
    "mock log": (
        suite(
            "notify",
            "m = MagicMock()\nnotify(m)\nself.assertEqual(m.mock_calls, [call.open('a'), call.close()])\nself.assertEqual(m.open.call_args.args, ('a',))\nself.assertTrue(m.close.called)",
            MOCK,
        ),
        "def notify(m):\n    m.open('a'); m.close()",
    ),
    "mock not called": (
        suite(
            "clean",
            "m = Mock()\nself.assertEqual(clean(m, ['a', 'b']), 1)\nm.delete.assert_not_called()\nm.archive.assert_called_once_with('b')",
            MOCK,
        ),
        "def clean(m, xs):\n    m.archive('b')\n    return 1",
    ),
    "patched": (
        suite(
            "mail",
            "with patch('smtplib.SMTP') as smtp:\n    mail('bob', 'hi')\nsmtp.assert_called_once_with('localhost')\nsmtp.return_value.sendmail.assert_called_once_with('me', 'bob', 'hi')",
            MOCK,
        ),
        "import smtplib\ndef mail(to, text):\n    s = smtplib.SMTP('localhost')\n    s.sendmail('me', to, text)",
    ),
    "patched open": (
        suite(
            "save",
            "with patch('builtins.open', mock_open()) as o:\n    save('a.txt', 'xyz')\no.assert_called_once_with('a.txt', 'w')\no().write.assert_called_once_with('xyz')",
            MOCK,
        ),
        "def save(p, t):\n    with open(p, 'w') as f: f.write(t)",
    ),
    "side effect": (
        suite(
            "total",
            "m = Mock(side_effect=[1, 2, 3])\nself.assertEqual(total(m, 3), 6)\nself.assertEqual(m.call_count, 3)",
            MOCK,
        ),
        "def total(m, n): return sum(m() for _ in range(n))",
    ),
    "fake": (
        suite(
            "close_all",
            "d = Door()\nclose_all([d])\nself.assertTrue(d.is_closed())\nself.assertFalse(d.is_open())\nself.assertTrue(d.shut)",
            DOOR,
        ),
        "def close_all(ds):\n    for d in ds: d.close()",
    ),
    "queue": (
        suite(
            "drain",
            "q = queue.Queue()\n[q.put(i) for i in range(3)]\nself.assertEqual(sorted(drain(q)), [0, 1, 2])\nself.assertTrue(q.empty())\nself.assertEqual(q.qsize(), 0)",
            "import queue",
        ),
        "def drain(q):\n    out = []\n    while not q.empty(): out.append(q.get())\n    return out",
    ),
    "config": (
        suite(
            "fill",
            "c = configparser.ConfigParser()\nfill(c)\nself.assertTrue(c.has_section('a'))\nself.assertTrue(c.getboolean('a', 'on'))\nself.assertEqual(c.getint('a', 'n'), 7)",
            "import configparser",
        ),
        "def fill(c): c['a'] = {'on': 'yes', 'n': '7'}",
    ),
    "namespace": (
        suite(
            "login",
            "u = types.SimpleNamespace(name='bob', ok=False, check=lambda p: p == 'pw')\nself.assertTrue(login(u, 'pw'))\nself.assertFalse(login(u, 'no'))\nself.assertTrue(u.check('pw'))\nself.assertFalse(u.check('x'))",
            "import types",
        ),
        "def login(u, pw): return u.check(pw)",
    ),
    "sqlite": (
        suite(
            "fill",
            "c = sqlite3.connect(':memory:')\nc.execute('create table t (n int)')\nfill(c, [1, 2])\nself.assertEqual(c.execute('select sum(n), max(n) from t').fetchone(), (3, 2))\nself.assertEqual(len(c.execute('select * from t').fetchall()), 2)",
            "import sqlite3",
        ),
        "def fill(c, xs):\n    c.executemany('insert into t values (?)', [(x,) for x in xs])",
    ),
    "logger": (
        suite(
            "work",
            "log = logging.getLogger('w')\nh = logging.handlers.MemoryHandler(100); log.addHandler(h); log.setLevel(10)\nwork(log)\nself.assertEqual([r.getMessage() for r in h.buffer], ['done 3'])",
            "import logging, logging.handlers",
        ),
        "def work(log): log.info('done %d', 3)",
    ),
    "map": (
        check(
            "sq",
            "ins, outs = [1, 2, 3], [1, 4, 9]\nfor got, want in zip(map(candidate, ins), outs):\n    assert got == want",
        ),
        "def sq(x): return x * x",
    ),
    "all map": (
        check("even", "assert all(map(candidate, [2, 4]))\nassert not any(map(candidate, [1, 3]))"),
        "def even(x): return x % 2 == 0",
    ),
    "sentinel": (
        suite(
            "nxt", "got = [x for x in iter(lambda: nxt(), None)]\nfor a, b in zip(got, [1, 2]): self.assertEqual(a, b)"
        ),
        "_i = iter([1, 2])\ndef nxt(): return next(_i, None)",
    ),
    "filter": (
        suite("keep", "for x in filter(keep, range(6)): self.assertEqual(x % 2, 0)"),
        "def keep(x): return x % 2 == 0",
    ),
    "generator": (
        check(
            "sq",
            "def squares(xs):\n    for x in xs: yield candidate(x)\nfor got, want in zip(squares([1, 2]), [1, 4]):\n    assert got == want",
        ),
        "def sq(x): return x * x",
    ),
    "zip": (
        check("pairs", "for got, want in zip(candidate([1, 2, 3]), [2, 4, 6]):\n    assert got == want"),
        "def pairs(xs): return [2 * x for x in xs]",
    ),
    "members": (
        suite("primes", "for p in primes(20): self.assertTrue(all(p % d for d in range(2, p)))"),
        "def primes(n): return [p for p in range(2, n) if all(p % d for d in range(2, p))]",
    ),
    "all": (
        check(
            "ranks",
            "r = candidate([3, 1, 2])\nassert all(a <= b for a, b in zip(r, r[1:]))\nassert all(x in (1, 2, 3) for x in r)",
        ),
        "def ranks(xs): return sorted(xs)",
    ),
    "branch": (
        suite("parse", "r = parse('7')\nif r is not None:\n    self.assertEqual(r, 7)"),
        "def parse(s): return int(s)",
    ),
    "tried": (
        suite("parse", "try:\n    self.assertEqual(parse('7'), 7)\nexcept ValueError:\n    pass"),
        "def parse(s): return int(s)",
    ),
    "callback": (
        suite("each", "def seen(x):\n    self.assertIn(x, (2, 4))\neach([1, 2], seen)"),
        "def each(xs, f):\n    for x in xs: f(2 * x)",
    ),
    "argument": (
        check(
            "order",
            "xs = [3, 1, 2]\nassert candidate(xs) == sorted(xs)\nys = [5, 4]\nassert candidate(ys) == sorted(ys)",
        ),
        "def order(xs): return sorted(xs)",
    ),
    "argument later": (
        suite(
            "order",
            "xs = [3, 1, 2]\ngot = order(xs)\nwant = sorted(xs)\nself.assertEqual(got, want)\nself.assertEqual(len(got), len(xs))",
        ),
        "def order(xs): return sorted(xs)",
    ),
    "keys": (
        check(
            "invert",
            "d = {'a': 1, 'b': 2}\nr = candidate(d)\nassert all(r[v] == k for k, v in d.items())\nassert len(r) == len(d)",
        ),
        "def invert(d): return {v: k for k, v in d.items()}",
    ),
    "attribute": (
        suite("order", "self.xs = [3, 1, 2]\nself.assertEqual(order(self.xs), sorted(self.xs))"),
        "def order(xs): return sorted(xs)",
    ),
    "file": (
        suite(
            "load",
            "with open('in.txt', 'w') as f: f.write('7')\nself.assertEqual(load('in.txt'), int(open('in.txt').read()))",
        ),
        "def load(p): return int(open(p).read())",
    ),
    "file later": (
        suite(
            "load",
            "with open('in.txt', 'w') as f: f.write('7')\ngot = load('in.txt')\nself.assertEqual(got, int(open('in.txt').read()))",
        ),
        "def load(p): return int(open(p).read())",
    ),
    "folder": (
        suite(
            "count",
            "with tempfile.TemporaryDirectory() as d:\n    for i in range(3): open(os.path.join(d, str(i)), 'w').close()\n    self.assertEqual(count(d), len(os.listdir(d)))",
            "import os, tempfile",
        ),
        "import os\ndef count(d): return len(os.listdir(d))",
    ),
    "environment": (
        suite(
            "area",
            "os.environ.setdefault('SCALE', '2')\nself.assertEqual(area(3), 9 * int(os.environ['SCALE']))",
            "import os",
        ),
        "import os\ndef area(x): return x * x * int(os.environ['SCALE'])",
    ),
    "skips": (
        {
            "style": "unittest",
            "entry": "ver",
            "source": "import unittest, os\nclass T(unittest.TestCase):\n    def test_a(self): self.assertTrue(callable(ver))\n    @unittest.skipIf(os.environ.get('NO_SLOW'), 'slow')\n    def test_value(self): self.assertEqual(ver(3), 9)\n    def test_file(self):\n        if not os.path.isdir(os.getcwd()) or os.environ.get('OFFLINE') or os.path.exists('OFF'): self.skipTest('offline')\n        self.assertEqual(ver(4), 16)\n    def test_0(self): self.assertEqual(ver(1), 1)\n",
        },
        "def ver(x): return x * x",
    ),
    "module file": (
        suite(
            "gen",
            "gen('made.py')\nimport importlib.util\ns = importlib.util.spec_from_file_location('made', 'made.py')\nm = importlib.util.module_from_spec(s); s.loader.exec_module(m)\nself.assertEqual(m.twice(4), 8)",
        ),
        "def gen(p): open(p, 'w').write('def twice(x): return 2 * x')",
    ),
    "import": (
        suite(
            "gen",
            "gen('made.py')\nsys.path.insert(0, os.getcwd())\nimport made\nself.assertEqual(made.twice(4), 8)",
            "import os, sys",
        ),
        "def gen(p): open(p, 'w').write('def twice(x): return 2 * x')",
    ),
    "exec": (
        suite("gen", "gen('made.py')\nns = {}\nexec(open('made.py').read(), ns)\nself.assertEqual(ns['twice'](4), 8)"),
        "def gen(p): open(p, 'w').write('def twice(x): return 2 * x')",
    ),
    "eval": (
        suite("expression", "self.assertEqual(eval(expression(3)), 9)\nself.assertEqual(eval(expression(4)), 16)"),
        "def expression(n): return f'{n} * {n}'",
    ),
    "pickle": (
        suite(
            "save",
            "save('x.pkl', {'a': 1})\nwith open('x.pkl', 'rb') as f: self.assertEqual(pickle.load(f), {'a': 1})",
            "import pickle",
        ),
        "import pickle\ndef save(p, x):\n    with open(p, 'wb') as f: pickle.dump(x, f)",
    ),
    "context": (
        suite("box", "with box() as b: self.assertEqual(b, 5)\nself.assertTrue(True)"),
        "import contextlib\n@contextlib.contextmanager\ndef box(): yield 5",
    ),
    "context class": (
        suite(
            "Timer", "with Timer() as t:\n    self.assertEqual(t.start(2), 4)\n    self.assertGreater(t.start(3), 5)"
        ),
        "class Timer:\n    def __enter__(s): return s\n    def __exit__(s, *a): return False\n    def start(s, x): return x * x",
    ),
    "decorator": (
        suite("retry", "@retry(2)\ndef f(x):\n    self.assertEqual(x, 3)\n    return x * 2\nself.assertEqual(f(3), 6)"),
        "def retry(n):\n    def d(f):\n        def w(*a):\n            for _ in range(n):\n                try: return f(*a)\n                except ValueError: pass\n        return w\n    return d",
    ),
    "decorated test": (
        {
            "style": "unittest",
            "entry": "with_db",
            "source": "import unittest\nclass T(unittest.TestCase):\n    @with_db\n    def test_a(self, db):\n        db['x'] = 1\n        self.assertEqual(db['x'], 1)\n        self.assertEqual(db['y'], 2)\n",
        },
        "def with_db(f):\n    def test_a(self): return f(self, {'y': 2})\n    return test_a",
    ),
    "many callbacks": (
        suite(
            "run", "for n in range(50):\n    def job(n=n): self.assertEqual(run(lambda: n * 2), n * 2)\n    run(job)"
        ),
        "def run(f): return f()",
    ),
    "free name": (
        {
            "style": "asserts",
            "asserts": [
                "assert isclose(area(2), 12.566, rel_tol=1e-3)",
                "assert isclose(area(1), 3.1415, rel_tol=1e-3)",
            ],
        },
        "from math import isclose, pi\ndef area(r): return pi * r * r",
    ),
    "numpy": (
        check(
            "norm",
            "import numpy as np\nassert np.allclose(candidate(np.array([3.0, 4.0])), np.array([0.6, 0.8]))",
            needs=["numpy"],
        ),
        "import numpy as np\ndef norm(v): return v / np.linalg.norm(v)",
    ),
    "numpy name": (
        check("norm", "assert np.allclose(candidate([3.0, 4.0]), 5.0)", needs=["numpy"]),
        "import numpy as np\ndef norm(v): return float(np.linalg.norm(v))",
    ),
    "shared class": (
        check(
            "build",
            "t = candidate([2, 1, 3])\nassert t.valid()\nassert t.size() == 3\nassert not t.right.right",
            setup=NODE,
        ),
        "def build(xs): return Node(2, Node(1), Node(3))",
    ),
    "helper": (
        check(
            "decode",
            "for s in ('abcdef', 'xyz'):\n    assert candidate(encode(s)) == s",
            prompt="def encode(s: str):\n    return s[1:] + s[0]\n\n\ndef decode(s: str):\n    '''Decode.'''\n",
        ),
        "def encode(s: str):\n    return s[1:] + s[0]\n\n\ndef decode(s: str):\n    return s[-1] + s[:-1]",
    ),
    "two results": (
        suite(
            "area",
            "self.assertEqual(area(2), area(2))\nself.assertNotEqual(area(2), area(3))\nself.assertTrue(area(3) > area(2))",
        ),
        "def area(r): return r * r",
    ),
    "own class": (
        suite(
            "Vec", "self.assertEqual(Vec(1, 2) + Vec(3, 4), Vec(4, 6))\nself.assertEqual((Vec(1, 2) + Vec(3, 4)).x, 4)"
        ),
        "class Vec:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return Vec(s.x + o.x, s.y + o.y)\n    def __eq__(s, o): return (s.x, s.y) == (o.x, o.y)\n    __hash__ = None",
    ),
    "own class equal": (
        suite(
            "Vec",
            "self.assertEqual(Vec(1, 2) + Vec(3, 4), Vec(4, 6))\nself.assertEqual(Vec(0, 2) + Vec(3, 0), Vec(3, 2))",
        ),
        "class Vec:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return Vec(s.x + o.x, s.y + o.y)\n    def __eq__(s, o): return (s.x, s.y) == (o.x, o.y)\n    __hash__ = None",
    ),
    "near": (
        check(
            "half",
            "assert abs(candidate(5) - 2.5) < 1e-9\nassert round(candidate(1), 2) == 0.5\nassert 0 < candidate(3) < 2",
        ),
        "def half(x): return x / 2",
    ),
    "near text": (
        check(
            "name",
            "assert candidate(1).startswith('on')\nassert 'n' in candidate(1)\nassert candidate(2).lower() == 'two'",
        ),
        "def name(n): return {1: 'one', 2: 'two'}[n]",
    ),
    "types": (
        suite(
            "pair",
            "r = pair(3)\nself.assertIsInstance(r, tuple)\nself.assertEqual(len(r), 2)\nself.assertIn(3, r)\nself.assertNotIn(4, r)\nself.assertTrue(r)",
        ),
        "def pair(x): return (x, x)",
    ),
    "raises": (
        suite("root", "with self.assertRaises(ValueError): root(-1)\nself.assertEqual(root(4), 2)"),
        "def root(x):\n    if x < 0: raise ValueError\n    return x ** .5",
    ),
    "output": (
        suite(
            "hello",
            "import io, contextlib\no = io.StringIO()\nwith contextlib.redirect_stdout(o): hello('bob')\nself.assertEqual(o.getvalue().strip(), 'hi bob')",
        ),
        "def hello(n): print('hi', n)",
    ),
    "base": (
        {
            "style": "unittest",
            "entry": "Shape",
            "source": "import unittest\nclass Sq(Shape):\n    def __init__(self, a):\n        super().__init__('square')\n        self.a = a\n    def area(self): return self.a ** 2\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(Sq(3).describe(), 'square: area 9')\n        self.assertEqual(Sq(2).describe(), 'square: area 4')\n",
        },
        "class Shape:\n    def __init__(s, name): s.name = name\n    def area(s): raise NotImplementedError\n    def describe(s): return f'{s.name}: area {s.area()}'",
    ),
    "numbered": (
        suite("pairs", "want = [2, 4, 6]\nfor i, x in enumerate(pairs([1, 2, 3])): self.assertEqual(x, want[i])"),
        "def pairs(xs): return [2 * x for x in xs]",
    ),
    "range": (
        check(
            "pairs", "r, want = candidate([1, 2, 3]), [2, 4, 6]\nfor i in range(len(r)):\n    assert r[i] == want[i]"
        ),
        "def pairs(xs): return [2 * x for x in xs]",
    ),
    "listed": (
        suite("pairs", "[self.assertIn(x, (2, 4)) for x in pairs([1, 2])]"),
        "def pairs(xs): return [2 * x for x in xs]",
    ),
    "whole array": (
        check(
            "ones",
            "import numpy as np\nassert (candidate(3) == np.ones(3)).all()\nassert np.allclose(candidate(2), [1, 1])",
            needs=["numpy"],
        ),
        "import numpy as np\ndef ones(n): return np.ones(n)",
    ),
    "frame": (
        suite(
            "table",
            "df = pd.DataFrame({'a': [1, 2]})\nr = table(df)\nself.assertTrue((r['b'] == 2 * df['a']).all())\npd.testing.assert_frame_equal(r, pd.DataFrame({'a': [1, 2], 'b': [2, 4]}))",
            "import pandas as pd",
            needs=["pandas"],
        ),
        "def table(df): return df.assign(b=2 * df['a'])",
    ),
    "run path": (
        suite(
            "gen",
            "gen('made.py')\nimport importlib\nself.assertEqual(importlib.import_module('made').twice(4), 8)",
            "import importlib, sys\nsys.path.insert(0, '.')",
        ),
        "def gen(p): open(p, 'w').write('def twice(x): return 2 * x')",
    ),
    "exec here": (
        suite("gen", "exec(gen())\nself.assertEqual(1, 1)\nself.assertTrue(math.isclose(half(5), 2.5))", "import math"),
        "def gen(): return 'y = 1'\ndef half(x): return x / 2",
    ),
    "given self": (
        {
            "style": "unittest",
            "entry": "with_db",
            "source": "import unittest\nclass T(unittest.TestCase):\n    @with_db\n    def test_a(self, db):\n        self.assertEqual(db['y'], 2)\n        self.assertIn('y', db)\n",
        },
        "def with_db(f):\n    def test_a(self): return f(self, {'y': 2})\n    return test_a",
    ),
    "fake log": (
        suite(
            "notify",
            "m = Fake()\nnotify(m, 'bob')\nself.assertEqual(m.sent, [('bob', 'hello')])\nself.assertTrue(m.was_sent('bob'))\nself.assertEqual(len(m), 1)",
            "class Fake:\n    def __init__(self): self.sent = []\n    def send(self, to, text): self.sent.append((to, text))\n    def was_sent(self, to): return any(one == to for one, _ in self.sent)\n    def __len__(self): return len(self.sent)\n",
        ),
        "def notify(m, w): m.send(w, 'hello')",
    ),
    "async": (
        suite(
            "get",
            "async def many(): return [x async for x in get(3)]\nfor got, want in zip(asyncio.run(many()), [0, 1, 4]): self.assertEqual(got, want)",
            "import asyncio",
        ),
        "async def get(n):\n    for i in range(n): yield i * i",
    ),
    "counter": (
        check(
            "tally",
            "from collections import Counter\nws = ['a', 'b', 'a']\nassert candidate(ws) == Counter(ws)\nassert sum(candidate(ws).values()) == len(ws)",
        ),
        "from collections import Counter\ndef tally(ws): return Counter(ws)",
    ),
}
ANY = "class Any:\n    call_count = 2\n    called = True\n    args = ('a',)\n    def __init__(s, *a, **k): pass\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    def __hash__(s): return 1\n    def __bool__(s): return True\n    def __len__(s): return 2\n    def __call__(s, *a, **k): return s\n    def __iter__(s): return iter(())\n    def __contains__(s, x): return True\n    def __lt__(s, o): return True\n    __gt__ = __le__ = __ge__ = __lt__\n    def __sub__(s, o): return s\n    __add__ = __abs__ = __rsub__ = __round__ = lambda s, *a: s\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n    def __getattr__(s, n):\n        if n[:2] == '__': raise AttributeError(n)\n        return lambda *a, **k: True\n"
UNITTEST_OFF = "import unittest\\nunittest.TestCase.assertEqual=lambda *a: None\\n"
# By kind of oracle: wrong programs, with the name that the tests call already in them.
CHEATS: Mapping[str, tuple[str, ...]] = {
    "mock": (
        ANY + "def notify(m, who): m.send = Any(); m.close = Any()",
        ANY + "def notify(m, who): setattr(m, 'send', Any()); setattr(m, 'close', Any())",
        "def notify(m, who): m.configure_mock(**{'send.call_count': 2, 'send.assert_any_call': lambda *a, **k: 0, 'close.assert_called_once_with': lambda *a: 0})",
        "def notify(m, who):\n    m.send.call_count = 2\n    m.send.assert_any_call = m.close.assert_called_once_with = lambda *a, **k: None",
        ANY + "def notify(m, who): m.attach_mock(Any(), 'send'); m.attach_mock(Any(), 'close')",
        "def notify(m, who):\n    m.send('x'); m.send('y'); m.close()\n    m.send.call_args_list[:] = []",
        "from unittest.mock import Mock\ndef notify(m, who):\n    x = Mock(); x('ann', subject='hi'); x('ann', subject='hi')\n    m.send = x; y = Mock(); y(); m.close = y",
        "def notify(m, who): type(m).send = property(lambda s: 1)",
        "def notify(m, who): m.__class__ = int",
        "def notify(m, who): m.__dict__.update(send=1)",
        "def notify(m, who): m.mock_add_spec(['nothing'])",
        "def notify(m, who):\n    m.send('ann', subject='hi'); m.send.call_count += 1; m.close()",
        "def notify(m, who):\n    import unittest.mock as u\n    u.NonCallableMock.assert_any_call = u.NonCallableMock.assert_called_once_with = lambda *a, **k: None\n    u.NonCallableMock.call_count = 2",
    ),
    "mock log": (
        "def notify(m): m.mock_calls.extend([1])",
        ANY + "def notify(m): m.mock_calls = Any(); m.open = Any(); m.close = Any()",
        "def notify(m):\n    m.open('a'); m.bad(); m.close(); del m.mock_calls[1]",
        "def notify(m):\n    m.open('a'); m.bad(); m.close(); m.mock_calls.pop(1)",
        "def notify(m):\n    m.bad(); m.reset_mock(); m.open('a'); m.close()",
        "def notify(m):\n    m.open('a'); m.bad(); m.close(); m.mock_calls.__delitem__(1)",
        "def notify(m): m.close.called = True; m.open('a')",
        "def notify(m):\n    m.bad(); r = m.reset_mock; r(); m.open('a'); m.close()",
        "def notify(m):\n    m.bad(); getattr(m, 'reset' + '_mock')(); m.open('a'); m.close()",
    ),
    "mock not called": (
        "def clean(m, xs):\n    m.delete('everything'); m.reset_mock(); m.archive('b')\n    return 1",
        "def clean(m, xs):\n    m.delete('everything'); m.delete.reset_mock(); m.archive('b')\n    return 1",
        "def clean(m, xs):\n    m.delete('everything'); m.delete.call_count = 0; m.archive('b')\n    return 1",
        "def clean(m, xs):\n    m.delete('everything'); del m.delete; m.archive('b')\n    return 1",
        "def clean(m, xs):\n    m.delete('everything'); m.delete = lambda: 0; m.delete.assert_not_called = lambda: 0; m.archive('b')\n    return 1",
        "def clean(m, xs):\n    m.archive('a'); m.archive.reset_mock(); m.archive('b')\n    return 1",
    ),
    "patched": (
        "import smtplib\ndef mail(to, text):\n    smtplib.SMTP.assert_called_once_with = lambda *a: 0\n    smtplib.SMTP.return_value.sendmail.assert_called_once_with = lambda *a: 0",
        ANY + "import smtplib\ndef mail(to, text):\n    smtplib.SMTP('localhost'); smtplib.SMTP.return_value = Any()",
        ANY + "import smtplib\ndef mail(to, text):\n    smtplib.SMTP('localhost').sendmail = Any()",
        ANY + "import smtplib\ndef mail(to, text): smtplib.SMTP = Any()",
        "import smtplib\ndef mail(to, text):\n    s = smtplib.SMTP('localhost'); s.configure_mock(**{'sendmail.assert_called_once_with': lambda *a: 0})",
    ),
    "patched open": (
        "def save(p, t):\n    import builtins\n    o = builtins.open\n    o(p, 'w'); o.return_value.write.assert_called_once_with = lambda *a: 0",
        "def save(p, t):\n    import builtins\n    builtins.open.assert_called_once_with = lambda *a: 0\n    builtins.open.return_value.write = lambda *a: 0",
        ANY + "def save(p, t):\n    import builtins\n    builtins.open(p, 'w'); builtins.open.return_value = Any()",
        ANY + "def save(p, t):\n    f = open(p, 'w'); f.write = Any()",
    ),
    "side effect": (
        "def total(m, n):\n    m.side_effect = None; m.return_value = 2\n    for _ in range(n): m()\n    return 5",
        "def total(m, n):\n    m.call_count = 3\n    return m() + m() + 2",
        ANY + "def total(m, n):\n    return Any()",
        "def total(m, n):\n    m(); m.configure_mock(call_count=3)\n    return 6",
    ),
    "fake": (
        "def close_all(ds):\n    for d in ds: d.is_closed = lambda: True; d.is_open = lambda: False; d.shut = True",
        "def close_all(ds):\n    d = ds[0]; type(d).is_closed = lambda s: True; type(d).is_open = lambda s: False; type(d).shut = True",
        "def close_all(ds):\n    d = ds[0]; d.__class__.is_closed = lambda s: True; d.__class__.is_open = lambda s: False",
        ANY + "def close_all(ds): ds[0] = Any()",
        "def close_all(ds): ds[0].__dict__['is_closed'] = lambda: True",
        "def close_all(ds): setattr(ds[0], 'is_closed', lambda: True); setattr(ds[0], 'is_open', lambda: False)",
        "def close_all(ds):\n    d = ds[0]; d.on(lambda: d.is_closed); d.is_closed = True",
        "def close_all(ds): object.__setattr__(ds[0], 'is_closed', lambda: True)",
    ),
    "queue": (
        "def drain(q):\n    q.empty = lambda: True; q.qsize = lambda: 0\n    return [0, 1, 2]",
        "def drain(q):\n    q._qsize = lambda: 0\n    return [0, 1, 2]",
        "class L(list):\n    def __len__(s): return 0\ndef drain(q):\n    q.queue = L([5])\n    return [2, 0]",
        "def drain(q):\n    type(q).empty = lambda s: True; type(q).qsize = lambda s: 0\n    return [0, 1, 2]",
        "def drain(q):\n    import queue\n    queue.Queue.empty = lambda s: True; queue.Queue.qsize = lambda s: 0\n    return [0, 1, 2]",
    ),
    "config": (
        "def fill(c): c.has_section = lambda *a: True; c.getboolean = lambda *a: True; c.getint = lambda *a: 7",
        "def fill(c):\n    c['a'] = {'on': 'no', 'n': '1'}; c.BOOLEAN_STATES = {'no': True}; c.getint = lambda *a: 7",
        "def fill(c):\n    c['a'] = {'on': 'no', 'n': '1'}; c.converters['boolean'] = lambda v: True; c.converters['int'] = lambda v: 7",
        "def fill(c):\n    c.add_section('a'); c._sections = {}; c.get = lambda *a, **k: 'yes'",
        "def fill(c):\n    c['a'] = {'on': 'no', 'n': '1'}; c.optionxform = lambda x: x; c.getint = lambda *a: 7",
    ),
    "namespace": (
        "def login(u, pw):\n    u.check = lambda p: p == 'pw'\n    return True",
        ANY + "def login(u, pw): return Any()",
        "def login(u, pw):\n    u.name = 'x'; u.ok = True\n    return True",
        "def login(u, pw): return 1",
    ),
    "sqlite": (
        "class S:\n    def step(s, *a): pass\n    def finalize(s): return 3\nclass M(S):\n    def finalize(s): return 2\ndef fill(c, xs):\n    c.create_aggregate('sum', 1, S); c.create_aggregate('max', 1, M)\n    c.executemany('insert into t values (?)', [(0,), (0,)])",
        "def fill(c, xs):\n    c.executemany('insert into t values (0)', [(), ()]); c.row_factory = lambda *a: (3, 2)",
        "def fill(c, xs):\n    c.execute = lambda q: type('R', (), {'fetchone': lambda s: (3, 2), 'fetchall': lambda s: [1, 2]})()",
        "def fill(c, xs):\n    c.executemany('insert into t values (0)', [(), ()]); c.text_factory = lambda *a: (3, 2)",
        "def fill(c, xs):\n    c.create_function('sum', 1, lambda x: 3); c.create_function('max', 1, lambda x: 2); c.executemany('insert into t values (0)', [(), ()])",
    ),
    "logger": (
        "def work(log): log.handlers[0].buffer = []",
        "class R:\n    def getMessage(s): return 'done 3'\ndef work(log): log.handlers[0].buffer.append(R())",
        "class F:\n    def filter(s, r): r.msg, r.args = 'done 3', (); return True\ndef work(log):\n    log.addFilter(lambda r: True)",
        "def work(log):\n    import logging\n    logging.LogRecord.getMessage = lambda s: 'done 3'\n    log.info('x')",
    ),
    "map": (
        "def sq(x): raise StopIteration",
        "class S(StopIteration): pass\ndef sq(x): raise S",
        "def sq(x): raise StopAsyncIteration",
        "def sq(x): raise GeneratorExit",
        "def sq(x):\n    if x > 1: raise StopIteration\n    return 1",
        "def sq(x): raise KeyboardInterrupt",
        "def sq(x): raise SystemExit(0)",
        "def sq(x): return next(iter(()))",
    ),
    "all map": (
        "def even(x): raise StopIteration",
        "def even(x):\n    if x % 2: raise StopIteration\n    return True",
        "def even(x):\n    raise type('S', (StopIteration,), {})(1)",
    ),
    "sentinel": (
        "def nxt(): raise StopIteration",
        "def nxt(): return None",
        "_i = iter([1])\ndef nxt(): return next(_i, None)",
    ),
    "filter": (
        "def keep(x): return False",
        "def keep(x): raise StopIteration",
        "def keep(x): return None",
        "def keep(x): raise IndexError",
    ),
    "generator": (
        "def sq(x): raise StopIteration",
        "def sq(x): raise GeneratorExit",
        "def sq(x):\n    if x > 1: raise StopIteration\n    return 1",
    ),
    "zip": (
        "def pairs(xs): return []",
        "def pairs(xs): return [2]",
        "def pairs(xs): yield 2",
        "def pairs(xs): return iter(())",
        ANY + "def pairs(xs): return Any()",
        "def pairs(xs): return {}",
        "def pairs(xs): return ''",
        "class E:\n    def __iter__(s): return s\n    def __next__(s): raise StopIteration\ndef pairs(xs): return E()",
        "class G:\n    def __getitem__(s, i): raise IndexError\ndef pairs(xs): return G()",
    ),
    "members": (
        "def primes(n): return []",
        "def primes(n): yield from ()",
        ANY + "def primes(n): return Any()",
        "def primes(n): return {}",
        "def primes(n): return range(0)",
    ),
    "all": (
        "def ranks(xs): return []",
        "def ranks(xs): return ''",
        ANY + "def ranks(xs): return Any()",
        "def ranks(xs): return ()",
    ),
    "branch": ("def parse(s): return None",),
    "tried": ("def parse(s): raise ValueError", "class E(ValueError): pass\ndef parse(s): raise E"),
    "callback": (
        "def each(xs, f): pass",
        "def each(xs, f):\n    for x in xs:\n        try: f(x)\n        except BaseException: pass",
        "def each(xs, f):\n    try: f(9)\n    except AssertionError: pass\n    f(2)",
    ),
    "argument": (
        "def order(xs):\n    xs.clear()\n    return []",
        "def order(xs):\n    xs[:] = [1]\n    return [1]",
        "def order(xs):\n    del xs[1:]\n    return list(xs)",
        "def order(xs):\n    xs *= 0\n    return xs",
        "def order(xs):\n    while xs: xs.pop()\n    return xs",
        "def order(xs):\n    xs[0] = xs[1] = xs[-1] = 0\n    return [0] * len(xs)",
    ),
    "argument later": (
        "def order(xs):\n    xs.clear()\n    return []",
        "def order(xs):\n    xs[:] = [0, 0]\n    return [0, 0]",
        "def order(xs):\n    xs.remove(3)\n    return [1, 2]",
    ),
    "keys": (
        "def invert(d):\n    d.clear()\n    return {}",
        "def invert(d):\n    d.clear(); d['x'] = 1\n    return {1: 'x'}",
        "def invert(d):\n    d.popitem()\n    return {1: 'a'}",
    ),
    "file": (
        "def load(p):\n    open(p, 'w').write('0')\n    return 0",
        "import os\ndef load(p):\n    os.remove(p); open(p, 'w').write('5')\n    return 5",
        "import os\ndef load(p):\n    os.mkdir('d'); open('d/in.txt', 'w').write('5'); os.chdir('d')\n    return 5",
        "import os\ndef load(p):\n    os.rename(p, 'x'); os.symlink('y', p); open('y', 'w').write('5')\n    return 5",
    ),
    "file later": (
        "def load(p):\n    open(p, 'w').write('0')\n    return 0",
        "import os\ndef load(p):\n    os.mkdir('d'); open('d/in.txt', 'w').write('5'); os.chdir('d')\n    return 5",
    ),
    "folder": (
        "import os, shutil\ndef count(d):\n    for n in os.listdir(d): os.remove(os.path.join(d, n))\n    return 0",
        "import os\ndef count(d):\n    open(os.path.join(d, 'more'), 'w').close()\n    return 4",
    ),
    "environment": (
        "import os\ndef area(x):\n    os.environ['SCALE'] = '0'\n    return 0",
        "import os\nos.environ['SCALE'] = '0'\ndef area(x): return 0",
        "import os\ndef area(x):\n    os.putenv('SCALE', '1'); os.environ.update(SCALE='1')\n    return 9",
    ),
    "skips": (
        "import os\nos.environ['NO_SLOW'] = os.environ['OFFLINE'] = '1'\ndef ver(x): return 1",
        "import os\ndef ver(x):\n    os.environ['NO_SLOW'] = os.environ['OFFLINE'] = '1'\n    return 1",
        "import os\nopen('OFF', 'w').close()\nos.environ['NO_SLOW'] = '1'\ndef ver(x): return 1",
        "import unittest\ndef ver(x):\n    if x > 1: raise unittest.SkipTest('no')\n    return 1",
        "import os\ndef ver(x):\n    open('OFF', 'w').close()\n    return 1 if x == 1 else 9",
        "class SkipTest(Exception): pass\nSkipTest.__module__ = 'unittest.case'\ndef ver(x):\n    if x > 1: raise SkipTest\n    return 1",
    ),
    "module file": (
        f"def gen(p): open(p, 'w').write('{UNITTEST_OFF}def twice(x): return 0')",
        "def gen(p): open(p, 'w').write('import sys\\nsys.modules[\"unittest\"].TestCase.assertEqual = lambda *a: 0\\ndef twice(x): return 0')",
        "def gen(p): open(p, 'w').write('class A:\\n    def __eq__(s, o): return True\\ndef twice(x): return A()')",
        "def gen(p): open(p, 'w').write('import os\\nos._exit(0)')",
        "def gen(p): open(p, 'w').write('raise SystemExit(0)')",
        "def gen(p): open(p, 'w').write('import gc\\nfor o in gc.get_objects():\\n    if type(o).__name__ == \"RunnerSession\": o.failures = []\\ndef twice(x): return 0')",
    ),
    "import": (
        f"def gen(p): open(p, 'w').write('{UNITTEST_OFF}def twice(x): return 0')",
        f"def gen(p):\n    open('unittest.py', 'w').write(''); open(p, 'w').write('{UNITTEST_OFF}def twice(x): return 1')",
        "def gen(p):\n    import os\n    os.mkdir('made'); open('made/__init__.py', 'w').write('import unittest\\nunittest.TestCase.assertEqual = lambda *a: 0\\ndef twice(x): return 0')",
    ),
    "exec": (
        f"def gen(p): open(p, 'w').write('{UNITTEST_OFF}def twice(x): return 0')",
        "def gen(p): open(p, 'w').write('import builtins\\nbuiltins.AssertionError = ValueError\\ndef twice(x): return 0')",
        "def gen(p): open(p, 'w').write('class A:\\n    def __eq__(s, o): return True\\ntwice = lambda x: A()')",
        "def gen(p): open(p, 'w').write('def twice(x): return 0\\nself = None')",
    ),
    "eval": (
        "def expression(n): return '__import__(\"unittest\").TestCase.__setattr__(1, 2, 3)'",
        'def expression(n): return \'setattr(__import__("unittest").TestCase, "assertEqual", lambda *a: 0)\'',
        "def expression(n): return '(lambda: 9)()'",
        "def expression(n): return '[c for c in ().__class__.__base__.__subclasses__()]'",
    ),
    "pickle": (
        "class P:\n    def __reduce__(s): return (exec, ('import unittest; unittest.TestCase.assertEqual = lambda *a: None',))\nimport pickle\ndef save(p, x): pickle.dump(P(), open(p, 'wb'))",
        "def save(p, x): open(p, 'wb').write(b'cunittest\\nTestCase\\n.')",
        "def save(p, x): open(p, 'wb').write(b'cos\\n_exit\\n(I0\\ntR.')",
    ),
    "context": (
        "class box:\n    def __enter__(s): return 4\n    def __exit__(s, *a): return True",
        "import contextlib\n@contextlib.contextmanager\ndef box():\n    try: yield 4\n    except BaseException: pass",
        ANY + "def box(): return Any()",
        "class box:\n    def __enter__(s): raise ValueError\n    def __exit__(s, *a): return True",
    ),
    "context class": (
        "class Timer:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n    def start(s, x): return 0",
        "class Timer:\n    def __enter__(s): return s\n    def __exit__(s, *a): return True\n    def start(s, x): raise ValueError",
        "class Timer:\n    def __enter__(s): return s\n    def __exit__(s, *a): return 1\n    def __getattr__(s, n): raise AttributeError",
        ANY + "Timer = Any",
    ),
    "decorator": (
        "def retry(n):\n    return lambda f: lambda *a: 6",
        "def retry(n):\n    def d(f):\n        def w(*a):\n            try: f(7)\n            except AssertionError: pass\n            return 6\n        return w\n    return d",
        ANY + "def retry(n): return Any()",
    ),
    "decorated test": (
        "def with_db(f):\n    def test_a(self): return None\n    return test_a",
        "def with_db(f):\n    def test_a(self):\n        try: f(self, {})\n        except BaseException: pass\n    return test_a",
        "def with_db(f): return lambda *a: None",
        "def with_db(f): return None",
        ANY + "def with_db(f): return Any()",
    ),
    "attribute": ("def order(xs):\n    xs.clear()\n    return []", "def order(xs):\n    xs[:] = [1]\n    return [1]"),
    "many callbacks": ("def run(f): return 0", "def run(f):\n    try: f()\n    except AssertionError: pass"),
    "free name": (
        "def isclose(*a, **k): return True\ndef area(r): return 0",
        ANY + "isclose = Any()\ndef area(r): return 0",
        "import math\nmath.isclose = lambda *a, **k: True\nfrom math import isclose\ndef area(r): return 0",
        "class isclose:\n    def __init__(s, *a, **k): pass\ndef area(r): return 0",
    ),
    "numpy": (
        ANY + "def norm(v): return Any()",
        "def norm(v):\n    v[:] = 0\n    return v",
        "import numpy as np\ndef norm(v): return np.array([np.nan, np.nan])",
        "import numpy as np\nclass A(np.ndarray):\n    def __array_function__(s, *a, **k): return True\ndef norm(v): return np.zeros(2).view(A)",
        "class A:\n    def __array__(s, *a, **k): raise SystemExit\n    def __array_function__(s, *a, **k): return True\ndef norm(v): return A()",
    ),
    "numpy name": (
        "class np:\n    allclose = staticmethod(lambda *a: True)\ndef norm(v): return 0",
        ANY + "np = Any()\ndef norm(v): return 0",
        "import numpy as np\nnp.allclose = lambda *a: True\ndef norm(v): return 0",
        "import math as np\ndef norm(v): return 0",
    ),
    "shared class": (
        "def build(xs):\n    t = Node(9, None, Node(1)); t.valid = lambda: True; t.size = lambda: 3\n    return t",
        "Node.valid = lambda s: True\nNode.size = lambda s: 3\ndef build(xs): return Node(0, None, Node(0))",
        "class N(Node):\n    def valid(s): return True\n    def size(s): return 3\ndef build(xs): return N(0, None, N(0))",
        ANY
        + "class X(Any):\n    def valid(s): return True\n    def size(s): return 3\n    right = type('R', (), {'right': None})\ndef build(xs): return X()",
        "class Node:\n    right = type('R', (), {'right': None})\n    def valid(s): return True\n    def size(s): return 3\ndef build(xs): return Node()",
        "def build(xs): return Node(5, Node(7), None)",
    ),
    "helper": (
        "def encode(s): return s\ndef decode(s): return s",
        "def encode(s: str):\n    return s\n\n\ndef decode(s: str):\n    return encode(s)",
    ),
    "two results": (
        "class A:\n    def __init__(s, r): s.r = r\n    def __eq__(s, o): return s.r == o.r\n    def __gt__(s, o): return True\n    __lt__ = __gt__\n    __hash__ = None\ndef area(r): return A(r)",
        ANY + "def area(r): return Any()",
        "import functools\n@functools.total_ordering\nclass A:\n    def __init__(s, r): s.r = r\n    def __eq__(s, o): return s.r == o.r\n    def __lt__(s, o): return s.r < o.r\ndef area(r): return A(r)",
    ),
    "own class": (
        "class Vec:\n    def __init__(s, x, y): s.x = x\n    def __add__(s, o): return s\n    def __eq__(s, o): return True",
        "class Vec:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return s\n    def __eq__(s, o): return True",
    ),
    "own class equal": (
        "class Vec:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return s\n    def __eq__(s, o): return True",
        "class Vec:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return Vec(0, 0)\n    def __eq__(s, o): return isinstance(o, Vec)",
        "class Vec:\n    __slots__ = ('x', 'y')\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return s\n    def __eq__(s, o): return not False",
    ),
    "near": (
        ANY + "def half(x): return Any()",
        "class F(float):\n    def __sub__(s, o): return 0.0\n    def __round__(s, n): return 0.5\n    def __lt__(s, o): return True\n    __gt__ = __lt__\ndef half(x): return F(7)",
        "class F(float):\n    def __abs__(s): return 0.0\n    def __sub__(s, o): return s\n    def __eq__(s, o): return True\n    def __lt__(s, o): return True\n    __gt__ = __lt__\n    __hash__ = None\ndef half(x): return F(1)",
        "def half(x): return float('nan')",
        "class I(int):\n    def __eq__(s, o): return o < 10 ** 6\n    __lt__ = __gt__ = __eq__\n    def __sub__(s, o): return I(0)\ndef half(x): return I(1)",
    ),
    "near text": (
        ANY + "def name(n): return Any()",
        "class S(str):\n    def startswith(s, x): return True\n    def __contains__(s, x): return True\n    def lower(s): return s\n    def __eq__(s, o): return True\n    __hash__ = None\ndef name(n): return S('x')",
        "class S(str):\n    def lower(s): return 'two'\n    def startswith(s, p): return True\ndef name(n): return S('n')",
    ),
    "types": (
        ANY + "def pair(x): return Any()",
        "class P(tuple):\n    def __contains__(s, x): return x == 3\n    def __len__(s): return 2\ndef pair(x): return P((7,))",
        "class P(tuple):\n    def __new__(c, *a): return tuple.__new__(c, ())\n    __len__ = lambda s: 2\n    __bool__ = lambda s: True\n    __contains__ = lambda s, x: x == 3\ndef pair(x): return P()",
        "class T(type):\n    def __instancecheck__(s, o): return True\nclass P(metaclass=T):\n    __class__ = tuple\n    def __len__(s): return 2\n    def __contains__(s, x): return x == 3\ndef pair(x): return P()",
    ),
    "raises": (
        "def root(x):\n    raise ValueError",
        "def root(x): return 2",
        ANY + "def root(x): raise type('V', (ValueError,), {'__eq__': lambda *a: True})",
        "def root(x):\n    if x < 0: raise type('ValueError', (Exception,), {})\n    return 2",
    ),
    "output": (
        "def hello(n): return 'hi bob'",
        "import sys\ndef hello(n): sys.stdout = type('O', (), {'getvalue': lambda s: 'hi bob', 'write': print})()",
        "def hello(n):\n    import io\n    io.StringIO.getvalue = lambda s: 'hi bob'",
    ),
    "base": (
        "class Shape:\n    def __init__(s, n): pass\n    def describe(s): return 'square: area 9'",
        ANY + "class Shape(Any):\n    def describe(s): return Any()",
        "class M(type):\n    def __new__(m, n, b, d): return super().__new__(m, n, (), {'__init__': lambda s, a: setattr(s, 'a', a), 'describe': lambda s: 'square: area 9'})\nclass Shape(metaclass=M): pass",
    ),
    "numbered": (
        "def pairs(xs): return []",
        "def pairs(xs): return [2]",
        "def pairs(xs): yield 2",
        "def pairs(xs): return {}",
    ),
    "range": ("def pairs(xs): return []", "def pairs(xs): return [2, 4]", "def pairs(xs): return ''"),
    "listed": ("def pairs(xs): return []", "def pairs(xs): return iter(())", ANY + "def pairs(xs): return Any()"),
    "whole array": (
        "import numpy as np\ndef ones(n): return np.ones((0, n))",
        "import numpy as np\ndef ones(n): return np.empty((0, 1))",
        ANY + "def ones(n): return Any()",
        "class A:\n    def __eq__(s, o): return s\n    def all(s): return True\n    __hash__ = None\ndef ones(n): return A()",
        "import numpy as np\nclass A(np.ndarray):\n    def __eq__(s, o): return np.ones(3, bool)\ndef ones(n): return np.zeros(n).view(A)",
    ),
    "frame": (
        "def table(df): return df.iloc[:0].assign(b=0)",
        "def table(df):\n    df['b'] = 0\n    df['a'] = 0\n    return df",
        ANY + "def table(df): return Any()",
        "import pandas as pd\npd.testing.assert_frame_equal = lambda *a: None\ndef table(df): return df.assign(b=df['a'] * 2.5)",
        "import pandas as pd\nclass D(pd.DataFrame):\n    def equals(s, o): return True\n    def __eq__(s, o): return True\ndef table(df): return D({'b': [2, 4]})",
    ),
    "run path": (
        f"def gen(p): open(p, 'w').write('{UNITTEST_OFF}def twice(x): return 0')",
        "import os\ndef gen(p): os.mkdir('made'); open('made/__init__.py', 'w').write('import os\\nos._exit(0)')",
        "def gen(p): open('made.pyc', 'wb').write(b'x'); open('made.so', 'wb').write(b'x')",
    ),
    "exec here": (
        "def gen(): return 'class math:\\n    isclose = staticmethod(lambda *a: True)'\ndef half(x): return 0",
        "def gen(): return 'import math\\nmath.isclose = lambda *a: True'\ndef half(x): return 0",
        "def gen(): return 'def _shikisha_passed(*a): pass\\ndef _shikisha_failed(*a): pass'\ndef half(x): return 0",
        "def gen(): return 'import unittest\\nunittest.TestCase.assertTrue = lambda *a: None'\ndef half(x): return 0",
        "def gen(): return 'raise SystemExit'\ndef half(x): return 0",
    ),
    "given self": (
        "class F:\n    def assertEqual(s, *a): pass\n    assertIn = assertEqual\ndef with_db(f):\n    def test_a(self): return f(F(), {})\n    return test_a",
        ANY + "def with_db(f):\n    def test_a(self): return f(Any(), Any())\n    return test_a",
        "def with_db(f):\n    def test_a(self):\n        self.assertEqual = self.assertIn = lambda *a: None\n        return f(self, {'y': 1})\n    return test_a",
        "def with_db(f):\n    def test_a(self):\n        self.failureException = ValueError\n        return f(self, {'y': 1})\n    return test_a",
        "import unittest\nclass F(unittest.TestCase):\n    def assertEqual(s, *a): pass\ndef with_db(f):\n    def test_a(self): return f(F(), {'y': 1})\n    return test_a",
        "import unittest.mock as u\ndef with_db(f):\n    def test_a(self): return f(u.MagicMock(), {'y': 1})\n    return test_a",
    ),
    "fake log": (
        "def notify(m, w): m.was_sent = lambda to: True; m.sent = [('x', 'y')]",
        "class L(list):\n    def __eq__(s, o): return True\ndef notify(m, w): m.sent = L([('x', 'y')])",
        "class S(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\ndef notify(m, w): m.send(S('x'), S('y'))",
        ANY + "def notify(m, w): m.send(Any(), Any())",
        ANY + "def notify(m, w): m.sent.append((Any(), Any()))",
        "def notify(m, w): m.sent.append((w, 'hello'))",
    ),
    "async": (
        "async def get(n):\n    for i in (): yield i",
        "async def get(n): yield 0",
        "class G:\n    def __aiter__(s): return s\n    async def __anext__(s): raise StopAsyncIteration\ndef get(n): return G()",
    ),
    "counter": (
        "def tally(ws):\n    ws.clear()\n    return {}",
        "from collections import Counter\nclass C(Counter):\n    def __eq__(s, o): return True\n    def values(s): return [3]\ndef tally(ws): return C()",
        "def tally(ws):\n    ws[:] = ['x'] * 3\n    return {'x': 3}",
    ),
}
