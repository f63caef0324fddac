"""Rewrite tests so that the judge, not the program, decides which assertions ran, which failed, and what was expected.

Three things are added to the tests' own statements. An assertion that fails is final, unless the tests themselves catch
it: a context manager, decorator or callback of the program cannot swallow it. Every assertion that no branch guards
must have passed at least once, so that an empty result does not skip it. What an assertion compares a result with is
computed before the program runs (its argument, a file, the environment), so that the program cannot rewrite it.
Invariants: a rewritten test passes for every program that does none of these; names that begin with `_shikisha` are the
test runner's (`harness_runner`). Deliberately absent: running anything, and an analysis of values: a name is derived
from the program when a statement of the same function says so.
"""

import ast
import builtins
import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TypeVar


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HOOKS = {
    name: f"_shikisha_{name}"
    for name in (
        *("passed", "failed", "tried", "caught", "before", "kept", "zip", "map", "any", "all", "super", "each"),
        *("whole", "close", "asserted", "asserting", "ending"),
    )
}
_PURE_BUILTINS = _words(
    "sorted len sum min max set list tuple dict str int abs round reversed repr bool float frozenset range ord chr "
    "divmod pow bytes hash complex"
)
_PURE_MODULES = _words("math statistics json copy operator itertools string re datetime np numpy")
_PURE_CALLS = _words("os.listdir os.getcwd os.getenv os.environ.get os.stat os.walk collections.Counter")
_PURE_METHODS = _words(
    "copy upper lower strip split splitlines join replace count index startswith endswith format title"
)
_FILE_METHODS = _words("read readline readlines read_text read_bytes exists is_file is_dir iterdir")
_CLOSE = _words("allclose array_equal assert_allclose assert_array_equal assert_almost_equal assert_array_almost_equal")
_FILE_MAKERS = frozenset({"open", "Path", "pathlib.Path", "io.open"})
_Node = TypeVar("_Node", bound=ast.AST)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_UNMOVABLE = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Starred)
_SAME_EVERYWHERE = frozenset(dir(builtins)) - {"open"}
_IDENTITY = frozenset({"assertIs", "assertIsNot"})
_EXPECTS_ENDING = re.compile(r"aises\w*\(.*\b(Stop(Async)?Iteration|GeneratorExit|KeyboardInterrupt)\b")
_ENDINGS = re.compile(r"\b(Stop(Async)?Iteration|GeneratorExit|KeyboardInterrupt)\b")


class TestInstrumenter:
    """Rewrites the tests of one task. `required` then holds groups of sites, of each of which one must have passed.

    `program`: the names that mean the program's. A group's first item names the function that it stands in, after
    `place`; `numbers` is where the sites' numbers come from.
    """

    # For pytest, which would collect it as a test class.
    __test__ = False

    def __init__(
        self, body: Sequence[ast.stmt], program: Iterable[str], place: str = "", numbers: Iterator[int] | None = None
    ) -> None:
        self.required: list[list[int | str]] = []
        self._numbers, self._places = count() if numbers is None else numbers, count()
        self._place, self._classes = place, list[str]()
        self._own = {
            node.name: node
            for part in body
            for node in ast.walk(part)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self._empty = {name for name, node in self._own.items() if any(map(_expects_nothing, ast.walk(node)))}
        self._used = {_last(one) for part in body for one in ast.walk(part)}
        self._shared = set(program)
        for _ in range(3):  # functions of the tests that call functions of the tests that call the program
            found = {name for name, node in self._own.items() if not names_in(node).isdisjoint(self._shared)}
            self._shared |= found | {f"self.{name}" for name in found}
        for node in self._own.values():  # what one method stores, another one reads
            self._shared |= {name for name in _derived(node, self._shared) if name.startswith("self.")}
        self._owner, self._optional = "", False
        self._derived = self._shared | _derived(ast.Module(list(body), []), self._shared)
        self._group: list[int | str] | None = None
        self._of_members, self._members = False, dict[str, list[int | str]]()

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return a block of statements with what the judge adds."""
        return [new for node in self.hoisted(body) for new in self.statement(node)]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Return a statement with what the judge adds; an assertion becomes a `try`."""
        self._rewrite_calls(node)
        if _is_assertion(node):
            number = self._number() if not _is_failure(node) else -1
            failed = [_call_statement("failed"), ast.Raise()]
            handler = ast.ExceptHandler(ast.Name("AssertionError", ast.Load()), None, failed)
            after = [_call_statement("passed", ast.Constant(number), *_receiver(node))]
            body = [_ending([node])] if _EXPECTS_ENDING.search(ast.unparse(node)) else [node]
            return [ast.copy_location(ast.Try(body, [handler], after, []), node)]
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                last = {getattr(one, "name", ""): one for one in node.body}
                for one in node.body:  # a method of the same name replaces an earlier one, which never runs
                    if isinstance(one, ast.FunctionDef) and last[one.name] is not one:
                        one.name = "_replaced"
                self._classes.append(node.name)
                node.body = self.block(node.body)
                self._classes.pop()
            case ast.If() | ast.Match():
                self._branches(node)
            case ast.Try() | ast.TryStar():
                return self._try(node)
            case ast.With() | ast.AsyncWith():
                kept = self._optional
                self._optional |= any("raises" in ast.unparse(item.context_expr).lower() for item in node.items)
                node.body = self.block(node.body)
                if any(_EXPECTS_ENDING.search(ast.unparse(item.context_expr)) for item in node.items):
                    node.body = [_ending(node.body)]
                self._optional = kept
            case ast.For() | ast.AsyncFor() | ast.While():
                kept = self._of_members
                self._of_members |= self.is_derived(node.test if isinstance(node, ast.While) else node.iter)
                node.body = self.block(node.body)
                self._of_members = kept
                node.orelse = self.block(node.orelse)
        return [node]

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        kept = self._owner, self._derived, self._optional, self._group
        # A parameter that a helper of the tests calls is the program's function.
        called = {one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
        given = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        program = self._shared | (called & given)
        self._derived = (self._derived if self._owner else set()) | program | _derived(node, program)
        self._owner = self._owner or self._place + ".".join((*self._classes, node.name))
        special = node.name.startswith(("test", "check", "setUp", "tearDown", "async"))
        self._optional = self._optional or not (special or node.name in self._used)
        first = [*node.args.posonlyargs, *node.args.args][:1]
        for one in ast.walk(node) if first else ():
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "super" and not one.args:
                one.func.id, one.args = (
                    HOOKS["super"],
                    [ast.Name(name, ast.Load()) for name in ("__class__", first[0].arg)],
                )
        node.body = self.block(node.body)
        self._owner, self._derived, self._optional, self._group = kept

    def _branches(self, node: ast.If | ast.Match) -> None:
        """Require one site of all branches where the program decides which is taken, and none where the tests do."""
        decides = node.test if isinstance(node, ast.If) else node.subject
        guarded = self.is_derived(decides) and not self._optional
        kept = self._group, self._optional
        # Of `if` and `elif`, and of branches inside of them, one takes place.
        with_group: list[int | str] = self._group if guarded and self._group is not None else [self._owner]
        self._group, self._optional = with_group if guarded else None, not guarded
        if isinstance(node, ast.If):
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        else:
            for case in node.cases:
                case.body = self.block(case.body)
        self._group, self._optional = kept
        if guarded and with_group is not self._group and len(with_group) > 1:
            self.required.append(with_group)

    def _try(self, node: ast.Try | ast.TryStar) -> list[ast.stmt]:
        fails = any(_is_failure(one) for part in node.body for one in ast.walk(part))
        group: list[int | str] = [self._owner]
        kept, own = (self._group, self._optional), bool(node.handlers) and not self._optional
        if own:
            self._group = group
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        if any(handler.type is not None and _ENDINGS.search(ast.unparse(handler.type)) for handler in node.handlers):
            node.body = [_ending(node.body)]
        mark = self.place_name()
        for handler in node.handlers:
            handler.body = self.block(handler.body)
            if fails and own:
                group.append(next(self._numbers))
                handler.body.insert(0, _call_statement("passed", ast.Constant(group[-1])))
            handler.body.insert(0, _call_statement("caught", ast.Name(mark, ast.Load())))
        self._group, self._optional = kept
        node.finalbody = self.block(node.finalbody)
        if own and len(group) > 1:
            self.required.append(group)
        begin = ast.Assign([ast.Name(mark, ast.Store())], _call("tried"))
        return [_at(begin, node), node] if node.handlers else [node]

    def _number(self, *, of_members: bool = False) -> int:
        number = next(self._numbers)
        if self._group is not None:
            self._group.append(number)
        elif not self._optional and (self._of_members or of_members):
            if re.split(r"[.:]", self._owner)[-1] in self._empty:
                return number
            if self._owner not in self._members:
                self.required.append(self._members.setdefault(self._owner, [self._owner]))
            self._members[self._owner].append(number)
        elif not self._optional:
            self.required.append([self._owner, number])
        return number

    # What an assertion says about the members of a result says nothing when it has none.

    def _rewrite_calls(self, node: ast.stmt) -> None:
        waiting: list[ast.AST] = [node]
        asserted = _is_assertion(node)
        while waiting:
            one = waiting.pop()
            waiting += [
                part
                for part in ast.iter_child_nodes(one)
                if not isinstance(part, ast.stmt | ast.excepthandler | ast.match_case)
            ]
            match one:
                case ast.ListComp(elt=ast.Call(func=ast.Attribute(attr=name)) as call) if name.startswith("assert"):
                    passed = _call("passed", ast.Constant(self._number(of_members=True)), *_receiver(ast.Expr(call)))
                    one.elt = ast.Tuple([call, passed], ast.Load())
                case ast.Lambda(body=ast.Call(func=ast.Attribute(attr=name)) as call) if name.startswith("assert"):
                    number = ast.Constant(self._number(of_members=True))
                    one.body = _call("asserted", number, _lambda(call), *_receiver(ast.Expr(call)))
                case ast.Call(args=parts) if self._asserting(one):
                    one.args = [
                        _call("asserting", ast.Constant(self._number(of_members=True)), part)
                        if isinstance(part, ast.Attribute) and part.attr.startswith("assert")
                        else part
                        for part in parts
                    ]
                case ast.Call(func=ast.Attribute(value=whole, attr="all" | "any" as name), args=parts) if (
                    asserted and len(parts) < 2 and self.is_derived(parts[0] if parts else whole)
                ):
                    one.func = ast.Name(HOOKS["whole"], ast.Load())
                    number = ast.Constant(self._number(of_members=True))
                    one.args = [number, ast.Constant(name), *([whole] if not parts else [*parts, whole])]
                case ast.Call(func=ast.Attribute(attr=name) as func, args=[_, _, *_] as parts) if (
                    name in _CLOSE and self.is_derived(one)
                ):
                    one.func, one.args = ast.Name(HOOKS["close"], ast.Load()), [func, *parts]
                case ast.For(target=target, iter=ast.Call(func=ast.Name("enumerate" | "range")) as members) if (
                    self.is_derived(members)
                ):
                    held = [part.value for part in _indexed(one, names_in(target)) if not self.is_derived(part.value)]
                    one.iter = ast.Call(ast.Name(HOOKS["each"], ast.Load()), [members, *held], [])
                case ast.Call(func=ast.Name("zip"), args=[_, _, *_] as parts, keywords=[]):
                    derived = [self.is_derived(part) for part in parts]
                    if any(derived) and not all(derived):
                        flags = ast.Constant("".join("pt"[not flag] for flag in derived))
                        one.func, one.args = ast.Name(HOOKS["zip"], ast.Load()), [flags, *parts]
                case ast.Call(func=ast.Name("map"), args=[function, _, _, *_] as parts, keywords=[]):
                    derived = [self.is_derived(part) for part in parts[1:]]
                    if any(derived) and not all(derived):
                        flags = ast.Constant("".join("pt"[not flag] for flag in derived))
                        one.func, one.args = ast.Name(HOOKS["map"], ast.Load()), [flags, function, *parts[1:]]
                case ast.Call(func=ast.Name("all" | "any" as name), args=[part], keywords=[]) if (
                    asserted and not _is_inside_lambda(node, one) and self.is_derived(part)
                ):
                    one.func, one.args = (
                        ast.Name(HOOKS[name], ast.Load()),
                        [ast.Constant(self._number(of_members=True)), part],
                    )

    def _asserting(self, call: ast.Call) -> bool:
        """Whether a call gives an assertion's method to the program, or to `map` over what it returned."""
        given = any(isinstance(part, ast.Attribute) and part.attr.startswith("assert") for part in call.args)
        return given and ((isinstance(call.func, ast.Name) and call.func.id == "map") or self.is_derived(call.func))

    # What is expected is computed before the program runs.

    def hoisted(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return a block in which what its assertions expect is computed before the calls of the program."""
        added: dict[int, list[ast.stmt]] = {}
        for place, node in enumerate(body):
            # The program was called before: in this statement, or before a block of statements.
            calls = [at for at in range(place + _is_assertion(node)) if self._calls_program(body[at])]
            for one in _assertions_in(node) if calls else ():
                if self.is_derived(one):
                    given = {name for at in calls for name in self._given_names(body[at])}
                    _OracleMover(self, body, place, calls, given, added).visit(one)
        return [one for place, node in enumerate(body) for one in (*added.get(place, ()), node)]

    def _calls_program(self, node: ast.stmt) -> bool:
        if isinstance(node, _SCOPES):
            return False
        return any(isinstance(one, ast.Call) and self.is_derived(one.func) for one in ast.walk(node))

    def _given_names(self, node: ast.stmt) -> Iterator[str]:
        """Yield the names that calls of the program are given."""
        for one in ast.walk(node):
            if isinstance(one, ast.Call) and self.is_derived(one.func):
                for part in (*one.args, *(keyword.value for keyword in one.keywords)):
                    called = (_root(call.func) for call in ast.walk(part) if isinstance(call, ast.Call))
                    yield from names_in(part).difference(called)

    def is_derived(self, node: ast.AST) -> bool:
        """Whether a part of a test mentions what the program returned, or the program."""
        return not names_in(node).isdisjoint(self._derived)

    def is_pure(self, node: ast.AST) -> bool:
        """Whether evaluating an expression earlier, or once more, changes nothing."""
        for one in ast.walk(node):
            if isinstance(one, (*_UNMOVABLE, ast.Lambda)):
                return False
            if isinstance(one, ast.Call) and not self._is_pure_call(one):
                return False
        return True

    def _is_pure_call(self, call: ast.Call) -> bool:
        name = ast.unparse(call.func)
        root, _, last = name.partition("(")[0].rpartition(".")
        if isinstance(call.func, ast.Name):
            pure = name in _PURE_BUILTINS or name in _FILE_MAKERS or (name in self._own and name not in self._shared)
            return pure and not (name == "open" and len(call.args) > 1 and "r" not in ast.unparse(call.args[1]))
        if isinstance(call.func, ast.Attribute):
            last = call.func.attr
            if last in _FILE_METHODS:
                inner = call.func.value
                return isinstance(inner, ast.Call) and ast.unparse(inner.func) in _FILE_MAKERS
            known = name in _PURE_CALLS or name in _FILE_MAKERS or name.startswith("os.path.")
            return known or root in _PURE_MODULES or last in _PURE_METHODS
        return False

    def place_name(self) -> str:
        """Return a new name for a value that is computed earlier."""
        return f"_shikisha_{next(self._places)}"


class _OracleMover(ast.NodeTransformer):
    """Moves the parts of one assertion that no result enters to before the calls of the program."""

    def __init__(
        self,
        tests: TestInstrumenter,
        body: Sequence[ast.stmt],
        place: int,
        calls: list[int],
        given: set[str],
        added: dict[int, list[ast.stmt]],
    ) -> None:
        self._tests, self._body, self._place = tests, body, place
        self._calls, self._given, self._added = calls, given, added
        whole = [] if _is_assertion(body[place]) else [*ast.walk(body[place])]
        self._bound = {_root(one) for one in whole if isinstance(getattr(one, "ctx", None), ast.Store)}
        self._inside = [one for one in whole if isinstance(one, ast.Expr | ast.AugAssign | ast.Delete)]

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Lambda):
            return node
        if isinstance(node, ast.Call) and (
            _last(node.func) in _IDENTITY or (isinstance(node.func, ast.Name) and node.func.id == "id")
        ):
            return node
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.Is | ast.IsNot) for one in node.ops):
            return node
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            kept = set(self._bound)
            self._bound |= {name for part in node.generators for name in names_in(part.target)}
            self.generic_visit(node)
            self._bound = kept
            return node
        if isinstance(node, ast.expr) and (moved := self._moved(node)) is not None:
            return moved
        if isinstance(node, ast.Call):
            if not self._tests.is_derived(node.func):  # what the program is given is not what is expected
                node.args = [self.visit(one) for one in node.args]  # type: ignore[misc]  # expressions become expressions
                for keyword in node.keywords:
                    self.generic_visit(keyword)
            if isinstance(node.func, ast.Attribute):
                self.generic_visit(node.func)
            return node
        return self.generic_visit(node)

    def _moved(self, node: ast.expr) -> ast.expr | None:
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Store) or isinstance(node, ast.Constant | ast.Slice):
            return None
        names = names_in(node)
        whole = self._inlined(node)
        used = names_in(whole)
        asked = any(isinstance(one, ast.Call) for one in ast.walk(whole)) or "environ" in ast.unparse(whole)
        if (
            self._tests.is_derived(whole)
            or not (used | names) - _SAME_EVERYWHERE
            or not self._bound.isdisjoint(used | names)
            or not (asked or not self._given.isdisjoint(used))
            or not self._tests.is_pure(whole)
            or any(self._touches(one, used) for one in self._inside)
        ):
            return None
        place = self._earliest(used)
        if place is None:
            return None
        name = self._tests.place_name()
        value = _call("before", _lambda(whole))
        self._added.setdefault(place, []).append(_at(ast.Assign([ast.Name(name, ast.Store())], value), node))
        return _at(_call("kept", ast.Name(name, ast.Load()), _lambda(node)), node)

    def _inlined(self, node: ast.expr) -> ast.expr:
        """Return an expression with the names that are computed after the first call replaced by what computes them."""
        first, values = self._calls[0], dict[str, ast.expr]()
        for one in self._body[first : self._place]:
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if not self._tests.is_derived(value):
                    values[name] = _Inliner(values).visit(copy.deepcopy(value))
        made: ast.expr = _Inliner(values).visit(copy.deepcopy(node))
        return made

    def _earliest(self, used: set[str]) -> int | None:
        """Return the first call from which on nothing that is used changes but by the program."""
        for place in self._calls:
            between = self._body[place : self._place]
            if not any(self._touches(one, used) for one in between):
                return place
        return None

    def _touches(self, node: ast.stmt, used: set[str]) -> bool:
        """Whether a statement of the tests themselves may bind or change what is used."""
        if _is_assertion(node):
            return False
        stored = {_root(one) for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Store)}
        if not stored.isdisjoint(used):
            return True
        if self._tests.is_derived(node):
            return False
        plain = isinstance(node, ast.Assign) and self._tests.is_pure(node.value)
        return not plain and (not names_in(node).isdisjoint(used) or bool(used & {"os", "open", "Path"}))


class _Inliner(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._values[node.id]) if node.id in self._values else node


def names_in(node: ast.AST) -> set[str]:
    """Return the names in a part of a program; an attribute of `self` counts as one name."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id != "self"}
    return found | {
        f"self.{one.attr}"
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }


def _derived(function: ast.AST, program: set[str]) -> set[str]:
    """Return the names that a function binds to what is derived from the program."""
    found: set[str] = set()
    for _ in range(3):
        known = program | found
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pairs = [(target, value) for target in targets]
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value)
                ):
                    pairs = [(target, value)]
                case ast.NamedExpr(target=target, value=value):
                    pairs = [(target, value)]
                case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                    pairs = [(target, value)]
                case ast.comprehension(target=target, iter=value):
                    pairs = [(target, value)]
                case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                    pairs = [(target, value)]
                case _:
                    continue
            for target, value in pairs:
                if not names_in(value).isdisjoint(known):
                    found |= _stored(target, value, known)
    return found - set(dir(builtins))


def _stored(target: ast.expr, value: ast.expr, known: set[str]) -> set[str]:
    """Return the names of a target that the derived parts of a value reach, where both have the same form."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and _last(value.func) == "zip":
        value = ast.Tuple(list(value.args), ast.Load())
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return {name for one, other in pairs if not names_in(other).isdisjoint(known) for name in names_in(one)}
    return names_in(target)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return f"self.{node.attr}"
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_assertion(node: ast.stmt) -> bool:
    """Whether a statement asserts: `assert`, or a call of something whose name begins so."""
    value = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Await) else None
    call = value or (node.value if isinstance(node, ast.Expr) else None)
    named = isinstance(call, ast.Call) and _last(call.func).startswith(("assert", "fail"))
    return isinstance(node, ast.Assert) or named


def _assertions_in(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the assertions of a statement and its blocks, but not those of functions."""
    if _is_assertion(node):
        yield node
    elif not isinstance(node, _SCOPES):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                yield from _assertions_in(part)
            elif isinstance(part, ast.ExceptHandler | ast.match_case):
                yield from (one for inner in part.body for one in _assertions_in(inner))


def _is_failure(node: ast.AST) -> bool:
    """Whether a statement can only fail: it says that it must not be reached."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant) and not node.test.value
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _last(node.value.func).startswith("fail")


def _expects_nothing(node: ast.AST) -> bool:
    """Whether a part of a test gives or expects something empty, so that assertions on members may say nothing."""
    if isinstance(node, ast.stmt) and _is_assertion(node):
        parts = list(ast.walk(node))
        zero = any(isinstance(one, ast.Constant) and one.value == 0 for one in parts)
        return zero and any(isinstance(one, ast.Call) and _last(one.func) == "len" for one in parts)
    return (isinstance(node, ast.List | ast.Tuple) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def _indexed(node: ast.For, names: set[str]) -> Iterator[ast.Subscript]:
    """Yield the items of something by the number of a loop's round."""
    for one in (one for part in node.body for one in ast.walk(part)):
        match one:
            case ast.Subscript(value=ast.Name() | ast.Attribute(), slice=ast.Name(id=name)) if name in names:
                yield one


def _is_inside_lambda(whole: ast.AST, part: ast.AST) -> bool:
    return any(part in ast.walk(one) for one in ast.walk(whole) if isinstance(one, ast.Lambda))


def _receiver(node: ast.stmt) -> list[ast.expr]:
    """Return the object whose method asserts, where looking it up again calls nothing."""
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if not isinstance(called, ast.Attribute) or any(isinstance(one, ast.Call) for one in ast.walk(called.value)):
        return []
    return [copy.deepcopy(called.value)]


def _call(hook: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(HOOKS[hook], ast.Load()), list(arguments), [])


def _call_statement(hook: str, *arguments: ast.expr) -> ast.stmt:
    return ast.Expr(_call(hook, *arguments))


def _ending(body: list[ast.stmt]) -> ast.stmt:
    """Return statements in which the program may raise StopIteration and its like."""
    return ast.With([ast.withitem(_call("ending"))], body)


def _lambda(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _at(node: _Node, where: ast.AST) -> _Node:
    return ast.fix_missing_locations(ast.copy_location(node, where))
