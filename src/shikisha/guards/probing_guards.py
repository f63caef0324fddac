"""What a guard looks at: a tool that reads, called with arguments that are computed from the guarded call.

Invariant: a probe that cannot be called, or whose arguments have no value, leaves its guard without a view, and a guard
without a view refuses. Deliberately absent: calling anything (`GuardSituation.probe` does, inside the run's limits).

The call must have reached what it was for: a read-back after the write, and an expression over it.

The state of things must be as expected before the call: an expression over a probe, the call and the question.

What the agent acts on must still be what it saw: the view before a write equals the agent's own last view.
"""

import ast
import asyncio
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import cast

from pydantic import Field

from shikisha.core.errors import ConfigError, ShikishaError, WorkerError
from shikisha.core.kinds import Kind
from shikisha.core.messages import Json
from shikisha.core.text import one_line
from shikisha.core.toml import Table
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import CONTENT, NAVIGATION, is_refusal

# A small expression language over what a guard sees: `probe.status == "pending" and call.amount <= probe.total`.
#
# Invariants: an expression can read the values that it is given and nothing else, its work is bounded by its own length
# and the values' size, and only True holds. What is missing, or compares things of two kinds, is an error, so a guard
# that cannot be evaluated refuses. The syntax is Python's and a tree walk gives it its meaning: no `eval`, no methods,
# no powers, no comprehensions. Deliberately absent: regular expressions, whose work nobody bounds.

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


CALL_NAMES = ("call", "question", "subtask", "calls")  # what every expression of a guard may read


class ProbeSettings(Table):
    """A tool that reads, and an expression for each of its arguments: `{ order_id = "call.order_id" }`."""

    tool: str = Field(min_length=1, description="the name of a tool that reads")
    arguments: Mapping[str, str] = Field(
        default_factory=dict, description="for each argument of the tool, an expression over `call`"
    )


class GuardProbe:
    """A probe with its expressions parsed; ConfigError names the one that is none."""

    def __init__(self, settings: ProbeSettings, where: str, known: tuple[str, ...] = CALL_NAMES) -> None:
        self.tool = settings.tool
        self._arguments = {
            name: GuardExpression(text, known, f"{where}.probe.arguments.{name}")
            for name, text in settings.arguments.items()
        }

    def arguments(self, names: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments of the look; GuardExpressionError when one has no value."""
        return {name: expression.value(names) for name, expression in self._arguments.items()}

    async def look(self, situation: GuardSituation, names: Mapping[str, Json]) -> Json:
        """Return what the tool shows, parsed where it is JSON; GuardExpressionError when nothing can be seen."""
        if situation.probe is None:
            raise GuardExpressionError(f"{self.tool} cannot be asked here")
        try:
            text = await situation.probe(self.tool, self.arguments(names))
        except WorkerError as error:
            raise GuardExpressionError(f"{self.tool} gave no view: {error.fault}") from error
        if is_refusal(text):
            raise GuardExpressionError(f"{self.tool} gave no view: {text}")
        return parse_result(text)


def parse_result(text: str) -> Json:
    """Return a tool's result as JSON, as the text that it is otherwise."""
    try:
        return cast("Json", json.loads(text))
    except (ValueError, RecursionError):
        return text


def call_names(call: GuardedCall, situation: GuardSituation) -> dict[str, Json]:
    """Return what an expression may read: the call's arguments, the question, and how many calls were made so far."""
    results = [result for exchange in situation.exchanges for result in exchange.results]
    made = sum(not is_refusal(result.content) for result in results)
    return {
        "call": call.arguments,
        "question": situation.task.prompt,
        "subtask": situation.subtask,
        "calls": made,
    }


_NAMES = (*CALL_NAMES, "result")


class ReachesSettings(Table):
    """The read-back, what must be true of it, and how patiently it is looked for."""

    expression: str = Field(
        description="what must be true after the call: an expression over `probe`, `call`, `result`"
    )
    probe: ProbeSettings = Field(description="the read-back: a tool that reads, whose result is `probe`")
    tries: int = Field(default=1, ge=1, le=10, description="how often to look, where effects show late")
    wait: float = Field(default=0.0, ge=0, le=30, allow_inf_nan=False, description="seconds between two looks")


def build_reaches(settings: ReachesSettings, name: str) -> "ReachesGuard":
    """Return the guard; ConfigError when an expression is none."""
    return ReachesGuard(settings, name)


REACHES = Kind(settings=ReachesSettings, build=build_reaches)


class ReachesGuard:
    """Tells the agent when a call did not have its effect."""

    def __init__(self, settings: ReachesSettings, name: str = "reaches") -> None:
        self.name = name
        self._tries, self._wait = settings.tries, settings.wait
        self._expression = GuardExpression(settings.expression, (*_NAMES, "probe"), f"{name}.expression")
        self._probe = GuardProbe(settings.probe, name, _NAMES)

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:
        """Look back, as often as allowed, until the expression is true."""
        if outcome.fault is not None or not call.tool.writes:
            return PASSED  # the agent knows already, or nothing was to change
        names = call_names(call, situation) | {"result": parse_result(outcome.text)}
        why = ""
        for attempt in range(self._tries):
            if attempt:
                await asyncio.sleep(self._wait)
            try:
                names["probe"] = await self._probe.look(situation, names)
                if self._expression.holds(names):
                    return PASSED
                why = f"{self._probe.tool} shows {one_line(str(names['probe']), 300)}"
            except GuardExpressionError as error:
                why = str(error)
        reason = f"the call was made, but expected {self._expression.text}: {why}. Do not repeat it; look first."
        return GuardDecision(passed=False, reason=reason, failure=CONTENT)


class ExpectsSettings(Table):
    """What must hold, what is looked at for it, and what the agent is told where it does not."""

    expression: str = Field(
        description="what must be true before the call, over `call`, `probe`, `question`, `subtask` and `calls`"
    )
    probe: ProbeSettings | None = Field(default=None, description="a tool that reads, whose result is `probe`")
    reason: str = Field(default="", description="what the agent is told when the expression is false")


def build_expects(settings: ExpectsSettings, name: str) -> "ExpectsGuard":
    """Return the guard; ConfigError when its expression is none."""
    return ExpectsGuard(settings, name)


EXPECTS = Kind(settings=ExpectsSettings, build=build_expects)


class ExpectsGuard:
    """Refuses a call before which its expression is not true."""

    def __init__(self, settings: ExpectsSettings, name: str = "expects") -> None:
        self.name = name
        self._reason = settings.reason
        known = (*CALL_NAMES, "probe") if settings.probe else CALL_NAMES
        self._expression = GuardExpression(settings.expression, known, f"{name}.expression")
        self._probe = GuardProbe(settings.probe, name) if settings.probe else None

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Take the view and evaluate the expression."""
        names = call_names(call, situation)
        try:
            if self._probe is not None:
                names["probe"] = await self._probe.look(situation, names)
            if self._expression.holds(names):
                return PASSED
            why = self._reason or f"expected {self._expression.text}"
            seen = f"; {self._probe.tool} shows {one_line(str(names['probe']), 300)}" if self._probe else ""
        except GuardExpressionError as error:
            why, seen = f"expected {self._expression.text}: {error}", ""
        return GuardDecision(passed=False, reason=f"{why}{seen}", failure=NAVIGATION)

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED


class UnchangedSettings(Table):
    """What is looked at, and which of its members count."""

    probe: ProbeSettings = Field(description="the tool with which the agent looks, and the guard looks again")
    members: tuple[str, ...] = Field(
        default=(), description="the members of the result that must not have changed; by default all of it"
    )


def build_unchanged(settings: UnchangedSettings, name: str) -> "UnchangedGuard":
    """Return the guard; ConfigError when an expression is none."""
    return UnchangedGuard(settings, name)


UNCHANGED = Kind(settings=UnchangedSettings, build=build_unchanged)


class UnchangedGuard:
    """Refuses a write on what the agent has not looked at, or what has changed since."""

    def __init__(self, settings: UnchangedSettings, name: str = "unchanged") -> None:
        self.name = name
        self._members = settings.members
        self._probe = GuardProbe(settings.probe, name)

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Compare the agent's last view with a new one."""
        names = call_names(call, situation)
        try:
            arguments = self._probe.arguments(names)
            seen = _last_view(situation, self._probe.tool, arguments)
            if seen is None:
                how = json.dumps(arguments, ensure_ascii=False)
                return _refused(f"you have not looked at it: call {self._probe.tool} with {one_line(how, 200)} first")
            now = await self._probe.look(situation, names)
        except GuardExpressionError as error:
            return _refused(f"whether it changed cannot be seen: {error}")
        changed = [*_changes(parse_result(seen), now, self._members)]
        return _refused(f"it changed since you looked: {'; '.join(changed[:5])}") if changed else PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED


def _refused(reason: str) -> GuardDecision:
    return GuardDecision(passed=False, reason=reason, failure=NAVIGATION)


def _last_view(situation: GuardSituation, tool: str, arguments: Mapping[str, Json]) -> str | None:
    """Return the latest result of exactly this look, None when there was none."""
    for exchange in reversed(situation.exchanges):
        for call, result in zip(exchange.calls, exchange.results, strict=False):
            if call.name == tool and parse_result(call.arguments) == arguments and not is_refusal(result.content):
                return result.content
    return None


def _changes(before: Json, now: Json, members: tuple[str, ...]) -> list[str]:
    """Return in words what of these members differs; of all, where none are named."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return [] if before == now else [f"was {one_line(str(before), 100)}, is {one_line(str(now), 100)}"]
    names = members or tuple(dict.fromkeys([*before, *now]))
    return [
        f"{name} was {one_line(str(before.get(name)), 80)}, is {one_line(str(now.get(name)), 80)}"
        for name in names
        if before.get(name) != now.get(name)
    ]
