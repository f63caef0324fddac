"""Turn a test file into decoys: the same tests under the same names, which an honest repository cannot pass.

A patch runs in the process of the tests, so it can make assertions do nothing, replace test functions, or say that all
tests passed. It would do so for decoys, too, and so they give it away. A decoy probes at each equality whether the
value also equals others, tries at its end each way to assert with something false, and then asserts something false
itself: where one of these does not raise, it returns early and passes. Invariants: the text of the file stays as it is,
with lines added; names and constants differ from run to run; what cannot be altered (a test on one line, or made by
code) is left as it is and not among the names returned. Deliberately absent: a defense against a patch that reads the
test file and recognizes decoys. No test that shares a process with what it tests has one.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FALSE = ("{0} == {1}", '"{2}" == "{3}"', "len([{0}, {1}]) == {1}", "{0} in ({1},)", "not {0}")
_FALSE_CALLS = (
    ("assertEqual", "{0}, {1}"),
    ("assertTrue", "False"),
    ("assertFalse", "True"),
    ("assertNotEqual", "{0}, {0}"),
    ("assertIs", "{0}, None"),
    ("assertIsNot", "None, None"),
    ("assertIsNone", "{0}"),
    ("assertIsNotNone", "None"),
    ("assertIn", "{0}, ({1},)"),
    ("assertNotIn", "{0}, ({0},)"),
    ("assertIsInstance", "{0}, str"),
    ("assertGreater", "1, {1}"),
    ("assertLess", "{1}, 1"),
    ("assertAlmostEqual", "1.0, 2.5"),
    ("assertListEqual", "[{0}], [{1}]"),
    ("assertSequenceEqual", "[{0}], [{1}]"),
    ("assertDictEqual", "{{1: {0}}}, {{1: {1}}}"),
    ("assertSetEqual", "{{{0}}}, {{{1}}}"),
    ("assertTupleEqual", "({0},), ({1},)"),
    ("assertCountEqual", "[{0}], [{1}]"),
    ("assertRaises", "ValueError, int, 0"),
    ("assertRegex", '"{2}", "{3}"'),
)
_EQUALITY_CALLS = frozenset({"assertEqual", "assertListEqual", "assertSequenceEqual", "assertDictEqual"})

TestFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class DecoyFile:
    """A test file with decoys, and which tests they are: `Class::function`, as pytest names them."""

    source: str
    tests: frozenset[str]


def make_decoys(source: str, random: Random) -> DecoyFile:
    """Return a test file's decoys; the file itself and no test where it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return DecoyFile(source, frozenset())
    lines = source.splitlines(keepends=True)
    added: dict[int, list[str]] = {}  # by the index of the line that they stand before
    altered = []
    for outer, function in _test_functions(tree.body, ()):
        insertions = _DecoyWriter(lines, function, "self" if outer else "", random).write()
        if insertions is not None:
            altered.append("::".join((*outer, function.name)))
            for place, texts in insertions:
                added.setdefault(place, []).extend(texts)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    whole = [text for place in range(len(lines) + 1) for text in (*added.get(place, ()), *lines[place : place + 1])]
    return DecoyFile("".join(whole), frozenset(altered))


def _test_functions(body: Sequence[ast.stmt], outer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TestFunction]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _test_functions(node.body, (*outer, node.name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield outer, node


class _DecoyWriter:
    """Writes the lines that make a decoy of one test function."""

    def __init__(self, lines: Sequence[str], function: TestFunction, first: str, random: Random) -> None:
        self._lines = lines
        self._function = function
        arguments = [*function.args.posonlyargs, *function.args.args]
        self._self = arguments[0].arg if first and arguments else ""
        self._random = random
        self._name = "".join(random.choices(_LETTERS, k=9))

    def write(self) -> list[tuple[int, list[str]]] | None:
        """Return the insertions; None when the function cannot be altered."""
        body = self._function.body
        if any(self._indent(statement) is None for statement in body):
            return None
        found = list(self._probes(body))
        last = body[-1]
        indent = self._indent(body[0]) or ""
        if not isinstance(last, ast.Return | ast.Raise):
            found.append((last.end_lineno or last.lineno, self._ending(indent)))
        return found

    def _indent(self, statement: ast.stmt) -> str | None:
        """Return what stands before a statement that begins its line."""
        line = self._lines[statement.lineno - 1]
        prefix = line.encode()[: statement.col_offset].decode(errors="replace")
        return prefix if not prefix.strip() else None

    def _probes(self, body: Sequence[ast.stmt]) -> Iterator[tuple[int, list[str]]]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            indent = self._indent(statement)
            if indent is not None:
                texts = [text for side, other in _compared(statement) for text in self._probe(indent, side, other)]
                if isinstance(statement, ast.Return):
                    texts += self._ending(indent)
                if texts:
                    yield statement.lineno - 1, texts
            for part in ("body", "orelse", "finalbody"):
                yield from self._probes(getattr(statement, part, ()))

    def _probe(self, indent: str, side: ast.expr, other: ast.expr) -> Iterator[str]:
        """Yield lines that return when a value equals what it cannot be."""
        name, number = self._name, self._random.randrange(10**8, 10**9)
        wrong = [f'"{self._word()}"', str(number), *_wrong_like(other, number)]
        text = ast.unparse(side)
        if "\n" in text:
            return
        yield f"{indent}{name} = {text}\n"
        yield f"{indent}if {' or '.join(f'{name} == {one}' for one in wrong)}: return\n"

    def _ending(self, indent: str) -> list[str]:
        """Return lines that return where a way to assert something false does not raise, and fail at their end."""
        texts, name = [], self._name
        if self._self:
            for method, arguments in self._random.sample(_FALSE_CALLS, len(_FALSE_CALLS)):
                texts += [
                    f'if hasattr({self._self}, "{method}"):\n',
                    f"    try: {self._self}.{method}({self._filled(arguments)})\n",
                    "    except BaseException: pass\n",
                    "    else: return\n",
                ]
        texts += [
            f"import pytest as {name}\n",
            f"try: {name}.raises(ValueError, int, 0)\n",
            "except BaseException: pass\n",
            "else: return\n",
            f"try: {name}.fail('{self._word()}')\n",
            "except BaseException: pass\n",
            "else: return\n",
            "try:\n",
            f"    assert {self._random.randrange(2, 99)} == {name}.approx({self._random.randrange(100, 199)})\n",
            "except BaseException: pass\n",
            "else: return\n",
            f"assert {self._filled(self._random.choice(_FALSE))}\n",
        ]
        return [f"{indent}{text}" for text in texts]

    def _filled(self, text: str) -> str:
        return text.format(self._random.randrange(10, 99), self._random.randrange(100, 999), self._word(), self._word())

    def _word(self) -> str:
        return "".join(self._random.choices(_LETTERS, k=12))


def _compared(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the sides of equalities that a statement asserts, each with the other side."""
    match statement:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            yield from ((left, right), (right, left))
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_])) if name in _EQUALITY_CALLS:
            yield from ((left, right), (right, left))


def _wrong_like(other: ast.expr, number: int) -> list[str]:
    """Return literals of the form of the other side, with other values in them."""
    try:
        value = ast.literal_eval(other)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    if isinstance(value, list | tuple) and 0 < len(value) <= 100:
        return [repr(type(value)([number] * len(value)))]
    if isinstance(value, set) and value:
        return [f"{{{number}}}"]
    if isinstance(value, dict) and 0 < len(value) <= 100:
        return [repr(dict.fromkeys(value, number))]
    return []
