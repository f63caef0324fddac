"""Tests of code: how a task writes them, the steps that they become, and how results are compared with expectations.

    style       the layout of                             required settings
    stdio       LiveCodeBench, APPS                       `pairs` of texts: what is read, what must be printed
    function    LiveCodeBench (functional), APPS          `entry`, `pairs`: arguments and the value to return
    asserts     MBPP                                      `asserts`: one statement each
    check       HumanEval, EvalPlus                       `entry`, `source` that defines check(candidate), `prompt`
    unittest    BigCodeBench                              `source` that defines a unittest.TestCase; `needs`

Tests are direct when each is a call with literal data that must return literal data. Then only the program's process is
needed: it receives the calls, and the results are compared outside. All other tests run in the test runner's process.

Invariants: settings without a test, with tests of another style, or with tests that are not Python or JSON cannot be
created. The program's process receives nothing of a test but the arguments of its calls. Values cross as JSON; anything
but numbers, strings, None, booleans and lists is an object with one key that names its type, and what is not plain data
becomes an OpaqueValue, which equals nothing. Comparing never runs code of the program under test. Deliberately absent:
other languages, pass marks below all tests, pickles, and running anything.
"""

import ast
import builtins
import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from types import GeneratorType

from pydantic import Field, JsonValue, model_validator

from shikisha.core.toml import Table
from shikisha_code.instrumented_tests import TestInstrumenter
from shikisha_code.program_extraction import bound_names, parse_python, prompt_preamble, syntax_problem

COMMON_SETUP = """\
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from string import *
from typing import *
from builtins import pow
"""  # what programming sites import for answers; `pow` stays the built-in


class CodeTestStyle(StrEnum):
    """The layout of the tests."""

    STDIO = "stdio"  # a program that reads and prints
    # A function, or a method of a class Solution, that takes arguments and returns a value.
    FUNCTION = "function"
    ASSERTS = "asserts"  # assert statements
    # A function check(candidate) that asserts.
    CHECK = "check"
    UNITTEST = "unittest"  # a unittest.TestCase


class InputOutputPair(Table):
    """One test by its input and output.

    `stdio`: two texts. `function`: a list of arguments and the value; or, as LiveCodeBench writes them, two texts, the
    first with one JSON value a line and the second with one JSON value.
    """

    input: str | list[JsonValue]
    output: JsonValue

    def arguments(self) -> list[JsonValue]:
        """Return the arguments of a call; ValueError when they are no JSON."""
        if isinstance(self.input, list):
            return self.input
        return [json.loads(line) for line in self.input.split("\n") if line.strip()]

    def value(self) -> JsonValue:
        """Return what a call must return; ValueError when it is no JSON."""
        if isinstance(self.input, list) or not isinstance(self.output, str):
            return self.output
        value: JsonValue = json.loads(self.output)
        return value


class CodeSettings(Table):
    """The tests of one task; all must pass.

    `entry`: the function that the task names (not for `stdio`). `prompt`: code that the answer may complete, and whose
    imports and helpers it may use. `setup`: Python that runs before the program, and before the tests in their process
    (`COMMON_SETUP`, for example). `needs`: modules that must exist, or the answer stays ungraded. `seconds` and
    `memory` (bytes; None: the sandbox's limit) are for one test. `tolerance`: None compares exactly; otherwise
    numbers within it (relative to an expected number above 1) are equal however they are written ("1.0" and "1").
    """

    style: CodeTestStyle
    pairs: tuple[InputOutputPair, ...] = ()
    asserts: tuple[str, ...] = ()
    source: str = ""
    entry: str | None = None
    prompt: str = ""
    setup: str = ""
    needs: tuple[str, ...] = ()
    seconds: float = Field(default=6.0, gt=0, le=600)
    memory: int | None = Field(default=None, ge=2**24)
    tolerance: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def _fits(self) -> "CodeSettings":
        """Reject settings with missing or misplaced fields, or tests that do not fit their style."""
        wanted = _REQUIRED_FIELDS[self.style]
        for name in ("pairs", "asserts", "source"):
            if bool(getattr(self, name)) is not (name in wanted):
                what = "is missing: there is no test" if name in wanted else f"does not belong to style {self.style}"
                raise ValueError(f"{name}: {what}")
        if "entry" in wanted and not self.entry:
            raise ValueError(f"entry: style {self.style} needs the name of the function")
        if self.needs and self.style is CodeTestStyle.STDIO:
            raise ValueError("needs: does not belong to style stdio")
        if self.entry and not self.entry.isidentifier():
            raise ValueError("entry: expected a name")
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        for number, pair in enumerate(self.pairs):
            if self.style is CodeTestStyle.STDIO and not (isinstance(pair.input, str) and isinstance(pair.output, str)):
                yield f"pairs[{number}]: expected two texts"
            elif self.style is CodeTestStyle.FUNCTION and (problem := _json_problem(pair)):
                yield f"pairs[{number}]: {problem}"
        for number, text in enumerate(self.asserts):
            if problem := syntax_problem(text):
                yield f"asserts[{number}]: {problem}"
        for name in ("source", "setup"):
            if problem := syntax_problem(getattr(self, name)):
                yield f"{name}: {problem}"


_REQUIRED_FIELDS = {
    CodeTestStyle.STDIO: {"pairs"},
    CodeTestStyle.FUNCTION: {"pairs", "entry"},
    CodeTestStyle.ASSERTS: {"asserts"},
    CodeTestStyle.CHECK: {"source", "entry"},
    CodeTestStyle.UNITTEST: {"source"},
}


def _json_problem(pair: InputOutputPair) -> str | None:
    try:
        pair.arguments()
        pair.value()
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return None


# The name, inside tests, of the function that records compared values for evidence.
COMPARISON_HOOK = "_seen_"
_STATEFUL_MODULES = frozenset(
    {"os", "random", "sys"}
)  # modules whose state tests set for the program: seeds, environment, folder
_TEST_SHOWN = 300  # characters of a test
_DATA_TYPES = (
    str,
    bytes,
    list,
    dict,
    set,
    frozenset,
    tuple,
    int,
    float,
    complex,
    range,
    Counter,
    deque,
    Decimal,
    Fraction,
)
_DATA_ATTRIBUTES = frozenset(
    name for kind in (*_DATA_TYPES, datetime, timedelta, Path, GeneratorType, re.Match) for name in dir(kind)
)
_FUNCTION_ATTRIBUTES = frozenset({"cache_clear", "cache_info", *dir(ast.unparse)})
_ONLY_IN_FUNCTIONS = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class CodeTestStep:
    """One step of the tests: `wire` goes to the test runner, the rest stays here; `shown` names it in evidence.

    `test`: it is a test and not preparation for one. `valued`: it returns a value, which must equal `expected`: as JSON
    if `loose` (tuples equal lists), otherwise by Python's ==. `direct`: the same step as a call for the program's
    process; empty if it is more than a call.
    """

    wire: dict[str, str]
    shown: str
    test: bool = True
    valued: bool = False
    expected: object = None
    loose: bool = False
    direct: dict[str, str] = field(default_factory=dict)

    def passes(self, value: object, tolerance: float | None) -> bool:
        """Whether this is the expected value."""
        return same_value(self.expected, value, tolerance) if self.loose else bool(self.expected == value)


@dataclass(frozen=True, slots=True)
class CodeTestNames:
    """Names in tests: free ones, those that always mean the program's (`own`), called ones, attributes that are set
    (`stored`), imported modules, a suite's imports as source, and names used as classes.
    """

    names: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    imports: str = ""
    classes: tuple[str, ...] = ()

    @property
    def stateful_modules(self) -> list[str]:
        """Modules whose state, as the tests set it, the program's process must share."""
        return sorted(_STATEFUL_MODULES & {name.partition(".")[0] for name in self.modules})


@dataclass(frozen=True, slots=True)
class CodeTests:
    """The tests of one program: steps, or a unittest `suite` with at least `methods` test methods.

    `setup` is Python that program and tests share, `before` is further code of the tests. `entry` is the name of the
    tested function, from the settings or the first call in the tests; `candidate` is its name inside `check`. `common`:
    classes that the setup defines, once in each process. `required`: see `TestInstrumenter`.
    """

    entry: str | None
    steps: tuple[CodeTestStep, ...] = ()
    setup: str = ""
    before: str = ""
    suite: str = ""
    methods: int = 0
    candidate: str = ""
    uses: CodeTestNames = CodeTestNames()
    common: tuple[str, ...] = ()
    required: Sequence[Sequence[int | str]] = ()

    @property
    def direct(self) -> bool:
        """Whether all tests are calls with data that must return data."""
        return not self.suite and all(step.direct for step in self.steps)


def read_code_tests(settings: CodeSettings) -> CodeTests:
    """Return the tests in these settings; ValueError when there are none."""
    trial, setup = _tests_of_style(settings), settings.setup
    if settings.prompt and settings.entry:
        setup = f"{prompt_preamble(settings.prompt, settings.entry)}\n{setup}"
    own = _statements(setup)
    common = tuple(node.name for node in own if isinstance(node, ast.ClassDef))
    functions = {node.name for node in ast.walk(_parse_prompt(settings.prompt)) if isinstance(node, ast.FunctionDef)}
    uses = replace(
        trial.uses,
        modules=tuple(dict.fromkeys((*trial.uses.modules, *_names_used(own, ()).modules))),
        classes=tuple(name for name in trial.uses.classes if name not in functions),
    )
    return replace(trial, steps=tuple(_number_steps(trial.steps)), setup=setup, uses=uses, common=common)


def _parse_prompt(prompt: str) -> ast.Module:
    """Parse a prompt, which may end where the body of a function belongs."""
    return parse_python(prompt) or parse_python(f"{prompt.rstrip()}\n    pass\n") or ast.Module([], [])


def _number_steps(steps: Sequence[CodeTestStep]) -> Iterator[CodeTestStep]:
    """Yield the steps with their numbers among the tests."""
    count, number = sum(step.test for step in steps), 0
    for step in steps:
        number += step.test
        where = f"test {number} of {count}" if step.test else f"before test {number + 1}"
        yield replace(
            step, shown=f"{where}, {step.shown[:_TEST_SHOWN]}{' ...' if len(step.shown) > _TEST_SHOWN else ''}"
        )


def _tests_of_style(settings: CodeSettings) -> CodeTests:
    match settings.style:
        case CodeTestStyle.STDIO:
            return CodeTests(None)
        case CodeTestStyle.FUNCTION:
            return CodeTests(settings.entry, tuple(_call_steps(settings)))
        case CodeTestStyle.ASSERTS:
            return _tests_from_asserts(settings)
        case CodeTestStyle.CHECK:
            return _tests_from_check(settings)
        case CodeTestStyle.UNITTEST:
            body = _statements(settings.source)
            parts = [(node.name, part) for node in body if isinstance(node, ast.ClassDef) for part in node.body]
            methods = len(
                {
                    (owner, part.name)
                    for owner, part in parts
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name[:4] == "test"
                }
            )
            if not methods:
                raise ValueError("source: there is no class with a method test...")
            uses, tests = _names_used(body, [settings.entry]), _instrumenter(body, settings, set())
            suite = ast.unparse(ast.fix_missing_locations(ast.Module(tests.block(body), [])))
            imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
            uses = replace(
                uses, imports=ast.unparse(ast.Module([one for one in imports if not _imports_unittest(one)], []))
            )
            return CodeTests(settings.entry, suite=suite, methods=methods, uses=uses, required=tests.required)


def _call_steps(settings: CodeSettings) -> Iterator[CodeTestStep]:
    name = settings.entry or ""
    for pair in settings.pairs:
        arguments = pair.arguments()
        wire = {"call": name, "arguments": json.dumps(arguments)}
        shown = f"{name}({', '.join(map(repr, arguments))})"
        yield CodeTestStep(wire, shown, valued=True, expected=pair.value(), loose=True, direct=wire)


def _statements(source: str) -> list[ast.stmt]:
    tree = parse_python(source)
    return tree.body if tree else []


def _tests_from_asserts(settings: CodeSettings) -> CodeTests:
    body = _statements("\n".join(settings.asserts))
    known = bound_names(settings.setup)
    called = [name for name in _called_names(body) if name not in known]
    foreign = [name for name in called if not hasattr(builtins, name)]
    entry = settings.entry or next(iter(foreign or called), None)
    own = [entry] if settings.entry or not foreign else []
    plain = {name: {"call": name, "plain": ""} for name in called if name in own or not hasattr(builtins, name)}
    tests = _instrumenter(body, settings, set(plain))
    steps = _make_steps(body, plain, tests)
    return CodeTests(entry, steps, uses=_names_used(body, own), required=tests.required)


def _tests_from_check(settings: CodeSettings) -> CodeTests:
    """Split `check` into its statements where that changes nothing; otherwise call it."""
    body = _statements(settings.source)
    check = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check is None or len(check.args.args) != 1:
        raise ValueError("source: there is no function check(candidate)")
    name, uses = check.args.args[0].arg, _names_used(body, [settings.entry])
    flat, tests = _is_flat(check), _instrumenter(body, settings, {name})
    before = _record_comparisons(tests.block([node for node in body if node is not check or not flat]))
    steps: tuple[CodeTestStep, ...] = (CodeTestStep({"do": f"check({name})"}, "check(candidate)"),)
    if flat:
        steps = _make_steps(check.body, {name: {"call": settings.entry or ""}}, tests)
    return CodeTests(settings.entry, steps, before=before, candidate=name, uses=uses, required=tests.required)


def _instrumenter(body: Sequence[ast.stmt], settings: CodeSettings, called: set[str]) -> TestInstrumenter:
    """Return what rewrites these tests; `called` are further names that mean the program."""
    own, known = {settings.entry} if settings.entry else set(), bound_names(settings.setup) | set(dir(builtins))
    for node in (node for part in (*body, *_parse_prompt(settings.prompt).body) for node in ast.walk(part)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                known |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    return TestInstrumenter(body, called | own | (set(_names_used(body, ()).names) - known))


def _imports_unittest(node: ast.Import | ast.ImportFrom) -> bool:
    name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    return (name or "").partition(".")[0] == "unittest"


def _make_steps(
    body: Sequence[ast.stmt], calls: Mapping[str, dict[str, str]], tests: TestInstrumenter
) -> tuple[CodeTestStep, ...]:
    """Return statements as steps; `calls`: the program's functions by the names that the tests use."""
    steps = tuple(_make_step(node, calls, tests) for node in tests.hoisted(body) if not _is_no_op(node))
    if not any(step.test for step in steps):
        raise ValueError("there is no assert statement in the tests")
    return steps


def _make_step(node: ast.stmt, calls: Mapping[str, dict[str, str]], tests: TestInstrumenter) -> CodeTestStep:
    shown = ast.unparse(node)
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            for side, other in ((left, right), (right, left)):
                if _is_literal(other) and not _is_literal(side):
                    expected, direct = ast.literal_eval(other), _direct_call(side, calls)
                    return CodeTestStep(
                        {"value": ast.unparse(side)}, shown, valued=True, expected=expected, direct=direct
                    )
    test = any(isinstance(part, ast.Assert) for part in ast.walk(node))
    return CodeTestStep({"do": _record_comparisons(tests.statement(node))}, shown, test)


def _direct_call(node: ast.expr, calls: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """Return a call of the program's function with literals for the program's process; else an empty dict."""
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


def _is_no_op(node: ast.stmt) -> bool:
    """Whether this is `pass`, `assert True` or a bare string."""
    said = node.test if isinstance(node, ast.Assert) else node.value if isinstance(node, ast.Expr) else None
    return isinstance(node, ast.Pass) or (isinstance(said, ast.Constant) and bool(said.value))


def _is_flat(check: ast.FunctionDef) -> bool:
    """Whether the statements of a function mean the same outside of it."""
    waiting: list[ast.AST] = list(check.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ONLY_IN_FUNCTIONS):
            return False
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))
    return not any(isinstance(node, ast.Nonlocal) for node in ast.walk(check))


def _called_names(body: Iterable[ast.stmt]) -> list[str]:
    """Return the names that are called, the outermost calls of each statement first."""
    calls = (node for part in body for node in ast.walk(part) if isinstance(node, ast.Call))
    return list(dict.fromkeys(call.func.id for call in calls if isinstance(call.func, ast.Name)))


def _names_used(body: Sequence[ast.stmt], own: Sequence[str | None]) -> CodeTestNames:
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
    return CodeTestNames(
        tuple(free),
        tuple(name for name in own if name),
        tuple(called),
        tuple(stored),
        tuple(imported),
        classes=tuple(sorted(class_names(body))),
    )


def class_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that the tests use as classes of the program.

    A name that is only called may be a function, and a program that defines a class instead must not decide the result
    of `in` or `-` on its objects. So a class name starts with a capital, or is used as functions are not: with an
    attribute (its own, or of what it returns, other than those of plain data), as a base, or in an isinstance check.
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
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute not in _FUNCTION_ATTRIBUTES:
                found.add(name)
            case ast.Name(id=name) if name[:1].isupper():
                found.add(name)
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=attribute) if (
                attribute not in _DATA_ATTRIBUTES
            ):
                found.add(name)
            case ast.Attribute(value=one, attr=attribute) if attribute not in _DATA_ATTRIBUTES:
                found |= {made[whole]} if (whole := ast.unparse(one)) in made else set()
    return found


def _record_comparisons(body: Iterable[ast.stmt]) -> str:
    """Return these statements with every compared value recorded for evidence."""
    whole = ast.Module([_ComparisonRecorder().visit(node) for node in body if not _is_no_op(node)], [])
    return ast.unparse(ast.fix_missing_locations(whole))


class _ComparisonRecorder(ast.NodeTransformer):
    """Wraps the operands of comparisons."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        name = ast.Name(COMPARISON_HOOK, ast.Load())
        node.left, *node.comparators = [ast.Call(name, [side], []) for side in (node.left, *node.comparators)]  # type: ignore[assignment]
        return node


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?", re.ASCII)
# Digits; longer numbers are compared as text.
_LONGEST_NUMBER = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueValue:
    """A value that is not plain data: the name of its type. It equals nothing."""

    type: str

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"<an object of type {self.type}>"


def decode_value(wire: object) -> object:
    """Decode a value from the sandbox; ValueError or TypeError when it is invalid."""
    if isinstance(wire, list):
        return [decode_value(item) for item in wire]
    if not isinstance(wire, dict):
        return wire
    ((kind, body),) = wire.items()
    if kind in _SCALARS and isinstance(body, str):
        return _SCALARS[kind](body)
    if kind in _CONTAINERS and isinstance(body, list):
        return _CONTAINERS[kind]([decode_value(item) for item in body])
    raise ValueError(f"no value is written as {kind!r}")


def _decode_fraction(items: Sequence[object]) -> Fraction:
    top, bottom = items
    if not isinstance(top, int) or not isinstance(bottom, int):
        raise TypeError("a fraction has two whole numbers")
    return Fraction(top, bottom)


def _decode_dict(items: Sequence[object]) -> dict[object, object]:
    found: dict[object, object] = {}
    for item in items:
        if not isinstance(item, list):
            raise TypeError("a dictionary has pairs")
        key, value = item
        found[key] = value
    return found


_SCALARS: Mapping[str, Callable[[str], object]] = {
    "int": lambda text: int(text, 16),
    "float": float,  # inf, -inf, nan
    "complex": complex,
    "decimal": lambda text: Decimal(text) if _NUMBER.fullmatch(text) else OpaqueValue("Decimal"),
    "bytes": bytes.fromhex,
    "other": OpaqueValue,
}
_CONTAINERS: Mapping[str, Callable[[list[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": _decode_dict,
    "fraction": _decode_fraction,
}


def same_value(expected: object, found: object, tolerance: float | None = None) -> bool:
    """Whether a value is the expected one: tuples equal lists, numbers may differ within the tolerance.

    True and 1 are equal, as in Python.
    """
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(
            same_value(one, other, tolerance) for one, other in zip(expected, found, strict=True)
        )
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            same_value(value, found[key], tolerance) for key, value in expected.items()
        )
    if tolerance is not None and isinstance(expected, int | float) and isinstance(found, int | float):
        return expected == found or _is_close(expected, found, tolerance)
    return expected == found


def same_output(expected: str, printed: str, tolerance: float | None = None) -> bool:
    """Whether two outputs are equal except for trailing white space and blank lines."""
    wanted, got = _lines(expected), _lines(printed)
    return len(wanted) == len(got) and all(
        one == other or (tolerance is not None and _same_tokens(one, other, tolerance))
        for one, other in zip(wanted, got, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _same_tokens(expected: str, printed: str, tolerance: float) -> bool:
    wanted, got = expected.split(), printed.split()
    return len(wanted) == len(got) and all(
        one == other or _same_number(one, other, tolerance) for one, other in zip(wanted, got, strict=True)
    )


def _same_number(expected: str, printed: str, tolerance: float) -> bool:
    if max(len(expected), len(printed)) > _LONGEST_NUMBER:
        return False
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(printed)):
        return False
    return Decimal(expected) == Decimal(printed) or _is_close(float(expected), float(printed), tolerance)


def _is_close(expected: float, found: float, tolerance: float) -> bool:
    """Whether two unequal numbers are close; never without a tolerance above 0, however floats round."""
    if tolerance <= 0:
        return False
    try:
        gap, room = abs(expected - found), tolerance * max(1.0, abs(expected))
    except OverflowError:  # an integer beyond all floats
        return False
    return math.isfinite(gap) and gap <= room
