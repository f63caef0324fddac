"""Tests as steps: what is done one after the other, and what is expected, which never comes near the program.

Tests are direct where each is a call of the function with data, and data that it must return: then the program's
process alone is needed, is sent the calls, and what it returns is compared outside. All other tests (loops, tolerances,
unittest) are executed in a process of their own, the judge's. Invariant: nothing of a test but the arguments of its
calls is sent to the program's process. Deliberately absent: running anything.
"""

import ast
import builtins
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import GeneratorType

from shikisha.grade.code_settings import Settings, Style
from shikisha.grade.programs import names_in, parsed, preamble
from shikisha.grade.values import same_value

SEEN = "_seen_"  # what tests call the function that keeps what they compare, for evidence
_FOLLOWED = frozenset(
    {"os", "random", "sys"}
)  # modules whose state the tests set for the program: seeds, environment, folder
_SHOWN = 300  # characters of a test
_DATA = (str, bytes, list, dict, set, frozenset, tuple, int, float, complex, range, Counter, deque, Decimal, Fraction)
_OF_DATA = frozenset(
    name for kind in (*_DATA, datetime, timedelta, Path, GeneratorType, re.Match) for name in dir(kind)
)
_OF_FUNCTIONS = frozenset({"cache_clear", "cache_info", *dir(ast.unparse)})
_ONLY_IN_FUNCTIONS = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: `wire` goes to the judge, the rest stays; `shown` names it in evidence.

    `test`: it is a test and no preparation for one. `valued`: it sends a value back, which must be `expected`; `loose`:
    as JSON has it (a tuple is as good as a list), otherwise as Python's == has it. `direct`: the same as a call that
    the program's process can be sent; empty where it is more than that.
    """

    wire: dict[str, str]
    shown: str
    test: bool = True
    valued: bool = False
    expected: object = None
    loose: bool = False
    direct: dict[str, str] = field(default_factory=dict)

    def passes(self, value: object, tolerance: float | None) -> bool:
        """Whether this value is the expected one."""
        return same_value(self.expected, value, tolerance) if self.loose else bool(self.expected == value)


@dataclass(frozen=True, slots=True)
class Uses:
    """What tests use: names that they do not bind, those that mean the program's whatever else, those that are called,
    attributes that are set, modules imported, for a suite its imports as they stand, and names used as classes.
    """

    names: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    imports: str = ""
    classes: tuple[str, ...] = ()

    @property
    def followed(self) -> list[str]:
        """Modules of which the program's process is to have the state that the tests have set."""
        return sorted(_FOLLOWED & {name.partition(".")[0] for name in self.modules})


@dataclass(frozen=True, slots=True)
class Trial:
    """What one program is taken through: the steps, or a unittest `suite` of at least so many `methods`.

    `setup` is Python that program and tests share, `before` what the tests bring beside it. `entry` is the name of the
    function asked for, as the settings or the first call in the tests have it; `candidate` is what `check` calls it.
    `common`: classes that the setup defines, for program and tests apart.
    """

    entry: str | None
    steps: tuple[Step, ...] = ()
    setup: str = ""
    before: str = ""
    suite: str = ""
    methods: int = 0
    candidate: str = ""
    uses: Uses = Uses()
    common: tuple[str, ...] = ()

    @property
    def direct(self) -> bool:
        """Whether the tests are calls with data that must return data, and nothing else."""
        return not self.suite and all(step.direct for step in self.steps)


def trial_of(settings: Settings) -> Trial:
    """Return what these settings take a program through; ValueError when there is no test in them."""
    trial, setup = _trial_of(settings), settings.setup
    if settings.prompt and settings.entry:
        setup = f"{preamble(settings.prompt, settings.entry)}\n{setup}"
    own = _body(setup)
    common = tuple(node.name for node in own if isinstance(node, ast.ClassDef))
    functions = {node.name for node in ast.walk(_begun(settings.prompt)) if isinstance(node, ast.FunctionDef)}
    uses = replace(
        trial.uses,
        modules=tuple(dict.fromkeys((*trial.uses.modules, *_uses(own, ()).modules))),
        classes=tuple(name for name in trial.uses.classes if name not in functions),
    )
    return replace(trial, steps=tuple(_numbered(trial.steps)), setup=setup, uses=uses, common=common)


def _begun(prompt: str) -> ast.Module:
    """Return what a prompt defines, which may end where the body of a function is to be written."""
    return parsed(prompt) or parsed(f"{prompt.rstrip()}\n    pass\n") or ast.Module([], [])


def _numbered(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps with their numbers among the tests."""
    count, number = sum(step.test for step in steps), 0
    for step in steps:
        number += step.test
        where = f"test {number} of {count}" if step.test else f"before test {number + 1}"
        yield replace(step, shown=f"{where}, {step.shown[:_SHOWN]}{' ...' if len(step.shown) > _SHOWN else ''}")


def _trial_of(settings: Settings) -> Trial:
    match settings.style:
        case Style.STDIO:
            return Trial(None)
        case Style.FUNCTION:
            return Trial(settings.entry, tuple(_calls(settings)))
        case Style.ASSERTS:
            return _of_asserts(settings)
        case Style.CHECK:
            return _of_check(settings)
        case Style.UNITTEST:
            return _of_suite(settings)


def _calls(settings: Settings) -> Iterator[Step]:
    name = settings.entry or ""
    for pair in settings.pairs:
        arguments = pair.arguments()
        wire = {"call": name, "arguments": json.dumps(arguments)}
        shown = f"{name}({', '.join(map(repr, arguments))})"
        yield Step(wire, shown, valued=True, expected=pair.value(), loose=True, direct=wire)


def _body(source: str) -> list[ast.stmt]:
    tree = parsed(source)
    return tree.body if tree else []


def _of_asserts(settings: Settings) -> Trial:
    body = _body("\n".join(settings.asserts))
    known = names_in(settings.setup)
    called = [name for name in _called(body) if name not in known]
    foreign = [name for name in called if not hasattr(builtins, name)]
    entry = settings.entry or next(iter(foreign or called), None)
    own = [entry] if settings.entry or not foreign else []
    plain = {name: {"call": name, "plain": ""} for name in called if name in own or not hasattr(builtins, name)}
    return Trial(entry, _steps(body, plain), uses=_uses(body, own))


def _of_check(settings: Settings) -> Trial:
    """Take `check` apart into its statements, where that changes nothing; otherwise call it as it is."""
    body = _body(settings.source)
    check = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check is None or len(check.args.args) != 1:
        raise ValueError("source: there is no function check(candidate)")
    name, uses = check.args.args[0].arg, _uses(body, [settings.entry])
    if _is_flat(check):
        before = _watched(node for node in body if node is not check)
        steps = _steps(check.body, {name: {"call": settings.entry or ""}})
        return Trial(settings.entry, steps, before=before, candidate=name, uses=uses)
    whole = Step({"do": f"check({name})"}, "check(candidate)")
    return Trial(settings.entry, (whole,), before=_watched(body), candidate=name, uses=uses)


def _of_suite(settings: Settings) -> Trial:
    body = _body(settings.source)
    parts = [part for node in body if isinstance(node, ast.ClassDef) for part in node.body]
    methods = sum(isinstance(part, ast.FunctionDef) and part.name.startswith("test") for part in parts)
    if not methods:
        raise ValueError("source: there is no class with a method test...")
    suite, uses = ast.unparse(ast.Module(body, [])), _uses(body, [settings.entry])
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    uses = replace(uses, imports=ast.unparse(ast.Module([one for one in imports if not _of_unittest(one)], [])))
    return Trial(settings.entry, suite=suite, methods=methods, uses=uses)


def _of_unittest(node: ast.Import | ast.ImportFrom) -> bool:
    name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    return (name or "").partition(".")[0] == "unittest"


def _steps(body: Sequence[ast.stmt], calls: Mapping[str, dict[str, str]]) -> tuple[Step, ...]:
    """Return statements as steps; `calls`: functions of the program by the names that the tests have for them."""
    steps = tuple(_step(node, calls) for node in body if not _says_nothing(node))
    if not any(step.test for step in steps):
        raise ValueError("there is no assert statement in the tests")
    return steps


def _step(node: ast.stmt, calls: Mapping[str, dict[str, str]]) -> Step:
    shown = ast.unparse(node)
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            for side, other in ((left, right), (right, left)):
                if _is_literal(other) and not _is_literal(side):
                    expected, direct = ast.literal_eval(other), _direct(side, calls)
                    return Step({"value": ast.unparse(side)}, shown, valued=True, expected=expected, direct=direct)
    test = any(isinstance(part, ast.Assert) for part in ast.walk(node))
    return Step({"do": _watched([node])}, shown, test)


def _direct(node: ast.expr, calls: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """Return a call of the program's function with literals as the program's process is sent it; else nothing."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in calls:
            whole = ast.Tuple(arguments, ast.Load())
            return {**calls[name], "literals": ast.unparse(whole)} if _is_literal(whole) else {}
    return {}


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _says_nothing(node: ast.stmt) -> bool:
    """Whether this is `pass`, `assert True` or a text."""
    said = node.test if isinstance(node, ast.Assert) else node.value if isinstance(node, ast.Expr) else None
    return isinstance(node, ast.Pass) or (isinstance(said, ast.Constant) and bool(said.value))


def _is_flat(check: ast.FunctionDef) -> bool:
    """Whether the statements of a function mean the same outside it."""
    waiting: list[ast.AST] = list(check.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ONLY_IN_FUNCTIONS):
            return False
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))
    return not any(isinstance(node, ast.Nonlocal) for node in ast.walk(check))


def _called(body: Iterable[ast.stmt]) -> list[str]:
    """Return the names that are called, the outermost calls of each statement first."""
    calls = (node for part in body for node in ast.walk(part) if isinstance(node, ast.Call))
    return list(dict.fromkeys(call.func.id for call in calls if isinstance(call.func, ast.Name)))


def _uses(body: Sequence[ast.stmt], own: Sequence[str | None]) -> Uses:
    names, called, stored, imported = dict[str, None](), dict[str, None](), dict[str, None](), dict[str, None]()
    bound: set[str] = set()
    for node in (node for part in body for node in ast.walk(part)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                names[name] = None
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.Call(func=ast.Name(id=name)):
                called[name] = None
            case ast.Attribute(ctx=ast.Store()) if all(map(str.isidentifier, (whole := ast.unparse(node)).split("."))):
                stored[whole] = None
            case ast.Import(names=aliases):
                imported |= dict.fromkeys(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(name), level=0):
                imported[name] = None
    free = (name for name in names if name not in bound)
    return Uses(
        tuple(free),
        tuple(name for name in own if name),
        tuple(called),
        tuple(stored),
        tuple(imported),
        classes=tuple(sorted(_classes(body))),
    )


def _classes(body: Sequence[ast.stmt]) -> set[str]:
    """Return names that the tests use as classes of the program's.

    A name that they only call may be a function, and a program that hands in a class for it must not decide what `in`
    or `-` of its objects come to. So it must begin as classes do, or be used as functions are not: with an attribute
    (of its own, or of what it returns, other than those of plain data), as a base, or to ask what something is.
    """
    nodes = [node for part in body for node in ast.walk(part)]
    made: dict[str, str] = {}
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id=name))):
                made[ast.unparse(target)] = name
            case ast.withitem(context_expr=ast.Call(func=ast.Name(id=name)), optional_vars=ast.expr() as target):
                made[ast.unparse(target)] = name
            case ast.ClassDef(bases=bases):
                found |= {base.id for base in bases if isinstance(base, ast.Name)}
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, ast.Name(id=name)]):
                found.add(name)
            case ast.Call(func=ast.Attribute(attr="assertIsInstance"), args=[_, ast.Name(id=name), *_]):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute not in _OF_FUNCTIONS:
                found.add(name)
            case ast.Name(id=name) if name[:1].isupper():
                found.add(name)
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=attribute) if attribute not in _OF_DATA:
                found.add(name)
            case ast.Attribute(value=one, attr=attribute) if attribute not in _OF_DATA:
                found |= {made[whole]} if (whole := ast.unparse(one)) in made else set()
    return found


def _watched(body: Iterable[ast.stmt]) -> str:
    """Return these statements with every value that they compare kept for evidence."""
    whole = ast.Module([_Watching().visit(node) for node in body if not _says_nothing(node)], [])
    return ast.unparse(ast.fix_missing_locations(whole))


class _Watching(ast.NodeTransformer):
    """Wraps the operands of comparisons."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        name = ast.Name(SEEN, ast.Load())
        node.left, *node.comparators = [ast.Call(name, [side], []) for side in (node.left, *node.comparators)]  # type: ignore[assignment]
        return node
