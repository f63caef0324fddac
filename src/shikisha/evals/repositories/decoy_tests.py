"""Turn tests into decoys: the same tests under the same names, each with one expectation that cannot hold.

A patch runs in the process of the tests, so it can make assertions do nothing, return what equals everything, replace
test functions, or say that all tests passed. It would do so for decoys, too, and so they give it away. A decoy differs
from its test in one place of one line: another constant, a wrapped value, an opposite, another error. Names, lines and
forms stay, so nothing but knowing what is right tells the two apart. Invariants: which expectation is changed, and how,
differs from run to run; what cannot be altered (a test made by code, or without an expectation on its own level) is not
among the names returned. Deliberately absent: a defense against a patch that knows the text of the test file: no
test that shares a process with what it tests has one.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

TestFunction = ast.FunctionDef | ast.AsyncFunctionDef
Edit = tuple[int, int, int, str]  # a line, the columns (in bytes) that a text replaces, and the text

_EQUALITY_CALL = re.compile("assert(|List|Sequence|Dict|Tuple|Set|Count|MultiLine|Almost)Equal")
_PAIRS = (
    *(("True", "False"), ("In", "NotIn"), ("Is", "IsNot"), ("IsNone", "IsNotNone"), ("IsInstance", "NotIsInstance")),
    *(("Regex", "NotRegex"), ("Greater", "LessEqual"), ("Less", "GreaterEqual")),
)
_OPPOSITES = {f"assert{one}": f"assert{other}" for pair in _PAIRS for one, other in (pair, pair[::-1])}
_OPPOSITES["assertNotEqual"] = "assertEqual"
_OTHER_ERRORS = ("BufferError", "RecursionError", "FloatingPointError")  # that no test expects by another name
_RAISES = frozenset({"raises", "assertRaises", "assertRaisesRegex"})


@dataclass(frozen=True, slots=True)
class DecoyFile:
    """A test file with decoys, and which tests they are: `Class::function`, as pytest names them."""

    source: str
    tests: frozenset[str]


def make_decoys(source: str, random: Random, chosen: Callable[[str], bool] = lambda _: True) -> DecoyFile:
    """Return a test file with the chosen tests as decoys; the file itself and no test where it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return DecoyFile(source, frozenset())
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    altered, edits = set[str](), []
    for name, function in _test_functions(tree.body, ()):
        found = list(_edits(function.body, lines, random))
        if found and chosen(name):
            edits.append(random.choice(found))
            altered.add(name)
    for place, first, last, text in sorted(edits, reverse=True):
        lines[place] = lines[place][:first] + text.encode() + lines[place][last:]
    return DecoyFile(b"".join(lines).decode(), frozenset(altered))


def _test_functions(body: Sequence[ast.stmt], outer: tuple[str, ...]) -> Iterator[tuple[str, TestFunction]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _test_functions(node.body, (*outer, node.name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield "::".join((*outer, node.name)), node


def _edits(body: Sequence[ast.stmt], lines: Sequence[bytes], random: Random) -> Iterator[Edit]:
    """Yield alterations of expectations that are reached whenever the test passes."""
    for statement in body:
        if isinstance(statement, ast.Return | ast.Raise):
            return
        if isinstance(statement, ast.With | ast.AsyncWith):
            raised = [edit for item in statement.items for edit in _raised(item.context_expr, random)]
            yield from (_edit(*edit, lines) for edit in raised)
            if not raised:
                yield from _edits(statement.body, lines, random)
        else:
            for node, text in _statement_edits(statement, random):
                if node.lineno == node.end_lineno:
                    yield _edit(node, text, lines)


def _edit(node: ast.expr | ast.stmt, text: str, lines: Sequence[bytes]) -> Edit:
    """Return the edit of one part, whose own text stands for `\\0`."""
    first, last = node.col_offset, node.end_col_offset or node.col_offset
    whole = lines[node.lineno - 1][first:last].decode(errors="replace")
    return node.lineno - 1, first, last, text.replace("\0", whole)


def _statement_edits(statement: ast.stmt, random: Random) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    sides: tuple[ast.expr, ...] = ()
    match statement:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            sides = (left, right)
        case ast.Assert(test=test):
            yield test, "not (\0)"
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_])) if (
            _EQUALITY_CALL.fullmatch(name)
        ):
            sides = (left, right)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) as function)) if name in _OPPOSITES:
            if function.lineno == function.end_lineno == function.value.lineno:
                yield function, f"{ast.unparse(function.value)}.{_OPPOSITES[name]}"
        case ast.Expr(value=ast.Call() as call):
            yield from _raised(call, random)
    if changed := [edit for side in sides for edit in _changed_literal(side, random)]:
        yield random.choice(changed)
    elif names := [side.id for side in sides if isinstance(side, ast.Name)]:
        yield statement, f"{names[-1]} = [{names[-1]}]; \0"  # a patch that looks for it in the test's frame finds this
    elif sides:
        yield random.choice(sides), "[\0]"


def _raised(call: ast.expr, random: Random) -> Iterator[tuple[ast.expr, str]]:
    """Yield another error for the one that a call expects."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[ast.Name() as error, *_]) if (
            name in _RAISES
        ):
            yield error, random.choice([one for one in _OTHER_ERRORS if one != error.id])


def _changed_literal(side: ast.expr, random: Random) -> Iterator[tuple[ast.expr, str]]:
    """Yield a changed constant of a side that is a literal."""
    constants = [one for one in ast.walk(side) if isinstance(one, ast.Constant)]
    if constants and (_is_literal(side) or _is_approximate(side)):
        constant = constants[0] if _is_approximate(side) else random.choice(constants)
        if (changed := _changed(constant.value, random)) is not None:
            yield constant, changed


def _is_approximate(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("approx") and bool(node.args)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _changed(value: object, random: Random) -> str | None:
    """Return a constant of the same kind and about the same size that is not this one."""
    match value:
        case bool():
            return str(not value)
        case int():
            return str(value + random.randint(1, 9))
        case float():
            return repr(value + 1 + abs(value) * random.uniform(0.1, 2))
        case str() if value and value.isascii() and value.isprintable():
            place = random.randrange(len(value))
            letter = random.choice([one for one in "abcdefghijklmnopqrstuvwxyz" if one != value[place].lower()])
            return repr(value[:place] + letter + value[place + 1 :])
        case None:
            return "0.5"
    return None
