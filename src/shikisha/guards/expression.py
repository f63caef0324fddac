"""A small expression language over what a guard sees: `probe.status == "pending" and call.amount <= probe.total`.

Invariants: an expression can read the values that it is given and nothing else, its work is bounded by its own length
and the values' size, and only True holds. What is missing, or compares things of two kinds, is an error, so a guard
that cannot be evaluated refuses. The syntax is Python's and a tree walk gives it its meaning: no `eval`, no methods, no
powers, no comprehensions. Deliberately absent: regular expressions, whose work nobody bounds.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import cast

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.messages import Json

MAX_EXPRESSION = 2_000  # characters
_MAX_NODES = 300
_MAX_TEXT = 2_000_000  # characters of one text that a function reads


class GuardExpressionError(ShikishaError):
    """An expression that has no value here: a member that is not there, or two things that do not compare."""


# What each comparison wants of the sign of left minus right.
_ORDERS: Mapping[type[ast.cmpop], frozenset[int]] = {
    ast.Lt: frozenset({-1}),
    ast.LtE: frozenset({-1, 0}),
    ast.Gt: frozenset({1}),
    ast.GtE: frozenset({0, 1}),
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_NODES: frozenset[type[ast.AST]] = frozenset(
    {ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Eq, ast.NotEq, ast.In}
    | {ast.NotIn, ast.IfExp, ast.Call, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Constant, ast.List}
    | {ast.Tuple, *_ORDERS, *_ARITHMETIC}
)


class GuardExpression:
    """A checked expression; `names` are the values that it reads (`probe`, `call`)."""

    def __init__(self, text: str, known: Sequence[str], where: str = "expression") -> None:
        """Parse the text; ConfigError says what in it is not of the language, or which name nobody knows."""
        self.text = text
        self._body = _parse(text, where)
        nodes = list(ast.walk(self._body))
        if len(nodes) > _MAX_NODES:
            raise ConfigError(f"{where}: {len(nodes)} parts: expected at most {_MAX_NODES}")
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        self.names = frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called)
        for node in nodes:
            if type(node) not in _NODES:
                raise ConfigError(f"{where}: {type(node).__name__} is not part of the language of guards")
            if isinstance(node, ast.Call):
                if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
                    named = node.func.id if isinstance(node.func, ast.Name) else "a method"
                    raise ConfigError(
                        f"{where}: no function {named!r}: expected one of {', '.join(sorted(_FUNCTIONS))}"
                    )
                least, most = _ARITIES[node.func.id]
                if not least <= len(node.args) <= most:
                    raise ConfigError(f"{where}: {node.func.id} takes {least} values, not {len(node.args)}")
            if isinstance(node, ast.Constant) and not isinstance(node.value, bool | int | float | str | None):
                raise ConfigError(f"{where}: {node.value!r} is no value of JSON")
        if unknown := sorted(self.names.difference(known)):
            raise ConfigError(f"{where}: unknown name {unknown[0]!r}: known are {', '.join(known)}")

    def value(self, names: Mapping[str, Json]) -> Json:
        """Return what it comes to; GuardExpressionError when it comes to nothing."""
        try:
            return _evaluate(self._body, names)
        except GuardExpressionError:
            raise
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise GuardExpressionError(f"{self.text}: {error}") from None

    def holds(self, names: Mapping[str, Json]) -> bool:
        """Return whether it is True; GuardExpressionError when it is neither True nor False."""
        value = self.value(names)
        if not isinstance(value, bool):
            raise GuardExpressionError(f"{self.text} is {_kind(value)}, neither True nor False")
        return value


def _parse(text: str, where: str) -> ast.expr:
    if len(text) > MAX_EXPRESSION:
        raise ConfigError(f"{where}: {len(text):,} characters: expected at most {MAX_EXPRESSION:,}")
    if not text.strip():
        raise ConfigError(f"{where}: expected an expression, found nothing")
    try:
        return ast.parse(f"({text.strip()}\n)", mode="eval").body  # in brackets it may go over several lines
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{where}: {text[:80]!r} is no expression: {error}") from None


def _evaluate(node: ast.expr, names: Mapping[str, Json]) -> Json:
    match node:
        case ast.Constant():
            return cast("Json", node.value)
        case ast.Name():
            return names[node.id] if node.id in names else _missing(node.id)
        case ast.Attribute():
            return _member(_evaluate(node.value, names), node.attr, node)
        case ast.Subscript():
            return _member(_evaluate(node.value, names), _evaluate(node.slice, names), node)
        case ast.List() | ast.Tuple():
            return [_evaluate(part, names) for part in node.elts]
        case ast.BoolOp():
            wanted = isinstance(node.op, ast.Or)  # the value that decides
            return wanted if any(_truth(part, names) is wanted for part in node.values) else not wanted
        case ast.UnaryOp(op=ast.Not()):
            return not _truth(node.operand, names)
        case ast.UnaryOp():
            return -_number(_evaluate(node.operand, names))
        case ast.BinOp():
            sides = _number(_evaluate(node.left, names)), _number(_evaluate(node.right, names))
            return _ARITHMETIC[type(node.op)](*sides)
        case ast.IfExp():
            return _evaluate(node.body if _truth(node.test, names) else node.orelse, names)
        case ast.Compare():
            return _compare(node, names)
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*[_evaluate(part, names) for part in node.args])
    raise GuardExpressionError(f"{type(node).__name__} has no value")  # the constructor lets none in


def _truth(node: ast.expr, names: Mapping[str, Json]) -> bool:
    value = _evaluate(node, names)
    if not isinstance(value, bool):
        raise GuardExpressionError(f"{ast.unparse(node)} is {_kind(value)}, neither True nor False")
    return value


def _compare(node: ast.Compare, names: Mapping[str, Json]) -> bool:
    left = _evaluate(node.left, names)
    for comparison, part in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(part, names)
        if isinstance(comparison, ast.In | ast.NotIn):
            held = _is_in(left, right) is isinstance(comparison, ast.In)
        elif isinstance(comparison, ast.Eq | ast.NotEq):
            held = (left == right) is isinstance(comparison, ast.Eq)
        else:
            held = _order(left, right) in _ORDERS[type(comparison)]
        if not held:
            return False
        left = right
    return True


def _order(left: Json, right: Json) -> int:
    """Return the sign of left minus right, of two numbers or two texts."""
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if _kind(left) == _kind(right) == "a number":
        one, other = _number(left), _number(right)
        if one == one and other == other:
            return (one > other) - (one < other)
    raise GuardExpressionError(f"{_kind(left)} and {_kind(right)} do not compare")


def _is_in(part: Json, whole: Json) -> bool:
    if isinstance(whole, str):
        return _text(part) in whole
    if isinstance(whole, Mapping):
        return isinstance(part, str) and part in whole
    if isinstance(whole, Sequence):
        return part in whole
    raise GuardExpressionError(f"nothing is in {_kind(whole)}")


def _member(value: Json, key: Json, node: ast.expr) -> Json:
    if isinstance(value, Mapping) and isinstance(key, str):
        return value[key] if key in value else _missing(ast.unparse(node))
    if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else _missing(ast.unparse(node))
    raise GuardExpressionError(f"{ast.unparse(node)}: {_kind(value)} has no such member")


def _missing(name: str) -> Json:
    raise GuardExpressionError(f"{name} is not there")


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return "a number"
    return "a text" if isinstance(value, str) else "an object" if isinstance(value, Mapping) else "a list"


def _number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GuardExpressionError(f"expected a number, not {_kind(value)}")
    return value if abs(value) < 1e15 else float(value)  # an int of any length would make any work


def _text(value: Json) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise GuardExpressionError(f"expected a text of at most {_MAX_TEXT:,} characters, not {_kind(value)}")
    return value


def _length(value: Json) -> Json:
    if isinstance(value, str | Mapping | Sequence):
        return len(value)
    raise GuardExpressionError(f"{_kind(value)} has no length")


def _as_number(value: Json) -> Json:
    if isinstance(value, str):
        return float(value.replace(",", "").lstrip("$€£¥ "))
    return _number(value)


def _as_date(value: Json) -> Json:
    """Return a date or time in ISO 8601 as a text that sorts by time."""
    text = _text(value).strip()
    if len(text) == len("2026-01-01"):
        return date.fromisoformat(text).isoformat()
    when = datetime.fromisoformat(text)
    return when.replace(tzinfo=None).isoformat(" ", "seconds")


def _mentions(text: Json, phrase: Json) -> Json:
    """Return whether the words of the phrase are in the text, one after the other."""
    wanted, words = _words(phrase), _words(text)
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(words)} "


def _words(value: Json) -> list[str]:
    return "".join([c if c.isalnum() or c == "'" else " " for c in _text(value).casefold()]).split()


def _is_known(value: Json) -> Json:
    return value is not None


def _get(value: Json, key: Json, otherwise: Json = None) -> Json:
    """Return the member of an object, and `otherwise` where it is not there."""
    return value.get(key, otherwise) if isinstance(value, Mapping) and isinstance(key, str) else otherwise


def _lower(value: Json) -> Json:
    return _text(value).casefold()


def _absolute(value: Json) -> Json:
    return abs(_number(value))


_FUNCTIONS: Mapping[str, Callable[..., Json]] = {
    "len": _length,
    "number": _as_number,
    "date": _as_date,
    "lower": _lower,
    "abs": _absolute,
    "mentions": _mentions,
    "known": _is_known,
    "get": _get,
}
_ARITIES: Mapping[str, tuple[int, int]] = dict.fromkeys(_FUNCTIONS, (1, 1)) | {"mentions": (2, 2), "get": (2, 3)}
