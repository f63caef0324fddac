"""What runs in the test runner's process: the tests, of functions and objects that live in another process.

This file's text is sent to the sandbox after that of `harness_solution`; no text of the program ever is. Invariants:
what comes from the program is plain data of built-in types, or a proxy. A proxy never equals plain data, and is never
ordered or combined with it. What could reveal the expected value (`x in it`, `it.startswith(x)`) is not asked of a
proxy, unless its class is one that the tests use as a class: then it is what they test. A refusal, a program that has
ended, and a timeout each fail the tests, whatever the tests catch. The program decides how two of its own objects
compare: it could have returned equal data for both.

A unittest test has passed only if unittest says so, its function returned, and nothing was refused meanwhile. A program
that raises what unittest uses to end tests has not passed; tests may skip themselves. What tests patch in modules is
patched in the program's process too, by a stand-in for the mock, which stays and counts here. Deliberately absent: the
verdict (`code`), pytest, and module fixtures.
"""

import ast
import builtins
import contextlib
import functools
import importlib
import importlib.machinery
import io
import json
import os
import re
import signal
import sys
import unittest
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from inspect import CO_COROUTINE
from types import FunctionType, ModuleType
from unittest import mock

from shikisha_code.harness_codec import to_json
from shikisha_code.harness_peer import (
    TEST_MODULE,
    FixedPathFinder,
    RunnerPeer,
    RunnerRequest,
    copied,
    guard_loader,
    is_own_file,
    restrict_pickle,
)
from shikisha_code.harness_proxy import ClassProxy, HarnessRefusal, PeerGone, Proxy
from shikisha_code.harness_solution import (
    TIMER_REPEAT,
    ErrorTrap,
    Namespace,
    NullStream,
    apply_limits,
    describe_error,
    detach_stdio,
    encode_result,
    exec_source,
    is_module_missing,
    set_timer,
)

_SHOWN = 300
SHARED_STREAMS = frozenset(
    {"sys.stdout", "sys.stderr", "sys.stdin", "sys.argv"}
)  # the two processes share these anyway
_ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "sns": "seaborn", "tf": "tensorflow"}
# Modules whose functions tests use to compare, so that a program's function of the same name must not stand in.
_COMPARING_MODULES = ("math", "cmath", "statistics", "operator", "copy", "itertools", "collections", "functools")


class _RemoteSuper:
    """Stands for `super()` of an object of the program, with its special methods too."""

    def __init__(self, peer: RunnerPeer, kind: type, one: Proxy) -> None:
        self._asked = lambda name: peer.ask("getattr", peer.ask("super", kind, one), name)

    def __getattribute__(self, name: str) -> object:
        found: object = object.__getattribute__(self, "_asked")(name)
        return found


class _ForeignText(str):
    """Text to execute that is not the tests' own."""

    __slots__ = ()


_SIZED = (list, tuple, str, dict)
_ARITHMETIC_NODES: tuple[type[ast.AST], ...] = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.Constant,
    ast.Tuple,
    ast.List,
)
_ARITHMETIC_NODES += (ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context)


def _named_data(space: Namespace | None) -> dict[str, object]:
    """Return what the program may see of a namespace: plain data, and its own objects."""
    found: dict[str, object] = {}
    for name, value in (space or {}).items():
        try:
            found[name] = value if isinstance(value, Proxy | ClassProxy) else copied(value)
        except TypeError:
            continue
    return found


def _size(value: object) -> int:
    return len(value) if isinstance(value, list | tuple | str | dict) else 1


def _bound_names(found: object, kept: Mapping[str, object]) -> Namespace:
    """Return the names that the program's text binds, without those that have a meaning already."""
    if not isinstance(found, dict):
        raise HarnessRefusal("the program sent what are no names")
    return {name: one for name, one in found.items() if type(name) is str and name[:1] != "_" and name not in kept}


class RunnerSession:
    """The namespace of the tests, and their connection to the program."""

    def __init__(self, peer: RunnerPeer, request: RunnerRequest) -> None:
        self._request = request
        self.peer = peer
        self.last: deque[object] = deque(maxlen=2)
        module = ModuleType(TEST_MODULE)
        sys.modules[TEST_MODULE] = module
        self.tests: Namespace = module.__dict__
        self.tests[request["seen"]] = self._seen
        self.tests |= {name: getattr(self, f"_{hook}") for hook, name in request["hooks"].items()}
        self.tests |= {"exec": self._exec, "eval": self._eval, "compile": self._compile}
        if request["stored"]:
            peer.stored = self._stored
        # Assertions that failed and that no test caught, sites that passed, and tests that skipped themselves.
        self.failures: list[BaseException] = []
        self.sites, self.skipped = Counter[int](), set[str]()

    def _seen(self, value: object) -> object:
        self.last.append(value)
        return value

    # What `instrumented_tests` adds to the tests.

    def _passed(self, site: int, receiver: object = None) -> None:
        """Note an assertion that passed, unless it is a method of the program's own that says so."""
        if not isinstance(receiver, Proxy) or receiver._shikisha_[2].name in self.peer.named:
            self.sites[site] += 1

    def _failed(self) -> None:
        self.failures += [error] if (error := sys.exc_info()[1]) is not None else []

    def _tried(self) -> int:
        return len(self.failures)

    def _caught(self, mark: int) -> None:
        self.forgive(sys.exc_info()[1], mark)

    def forgive(self, error: BaseException | None, mark: int) -> None:
        """Forget a failure that the tests themselves caught, but none of before they tried (`mark`).

        It may have come back as a copy by way of the program.
        """
        if isinstance(error, AssertionError):
            words = [one for one in error.args if type(one) is str]
            self.failures[mark:] = [
                one
                for one in self.failures[mark:]
                if one is not error and [word for word in one.args if type(word) is str] != words
            ]

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Let the program raise StopIteration and its like, which these statements expect."""
        self.peer.expected_endings += 1
        try:
            yield
        finally:
            self.peer.expected_endings -= 1

    def _asserted(self, site: int, make: Callable[[], object], receiver: object = None) -> object:
        """Evaluate an assertion that is an expression."""
        try:
            value = make()
        except AssertionError:
            self._failed()
            raise
        self._passed(site, receiver)
        return value

    def _asserting(self, site: int, method: Callable[..., object]) -> Callable[..., object]:
        return lambda *given, **named: self._asserted(site, lambda: method(*given, **named))

    @staticmethod
    def _before(make: Callable[[], object]) -> tuple[object, ...]:
        """Return plain data that the tests expect, or nothing where it cannot be known beforehand."""
        try:
            return (copied(make()),)
        except Exception:  # noqa: BLE001 - then it is computed in its own place, and fails there
            return ()

    @staticmethod
    def _kept(held: tuple[object, ...], make: Callable[[], object]) -> object:
        return held[0] if held else make()

    def _zip(self, flags: str, *parts: Iterable[object]) -> Iterator[tuple[object, ...]]:
        """Zip as usual, unless what the program returned ends before what the tests compare it with."""
        done = 0
        for row in zip(*parts, strict=False):
            done += 1
            yield row
        self._require_all(done, [one for flag, one in zip(flags, parts, strict=True) if flag == "t"])

    def _map(self, flags: str, function: Callable[..., object], *parts: Iterable[object]) -> Iterator[object]:
        return (function(*row) for row in self._zip(flags, *parts))

    def _require_all(self, done: int, expected: Sequence[object]) -> None:
        """Fail where what the program returned ended before everything that is expected."""
        sizes = [len(one) for one in expected if type(one) in _SIZED]  # type: ignore[arg-type]
        if sizes and min(sizes) > done:
            self.failures.append(AssertionError(f"{done} of {min(sizes)} expected items were returned"))
            raise self.failures[-1]

    def _each(self, members: Iterable[object], *expected: object) -> Iterator[object]:
        """Number the members of a result, which must not end before a list that is read by these numbers."""
        done = 0
        for one in members:
            done += 1
            yield one
        self._require_all(done, [one for one in expected if type(one) in (list, tuple)])

    def _whole(self, site: int, name: str, value: object, module: object = None, **named: object) -> object:
        if getattr(value, "size", 1) != 0:
            self.sites[site] += 1
        return getattr(value, name)(**named) if module is None else getattr(module, name)(value, **named)

    @staticmethod
    def _close(compare: Callable[..., object], one: object, other: object, *more: object, **named: object) -> object:
        """Compare two arrays; one without items is close to everything of another size."""
        sizes = [getattr(part, "size", None) if hasattr(part, "size") else _size(part) for part in (one, other)]
        if 0 in sizes and sizes[0] != sizes[1]:
            raise AssertionError("an array without items is compared with one that has some")
        return compare(one, other, *more, **named)

    def _all(self, site: int, parts: Iterable[object]) -> bool:
        return all(self._counted(site, parts))

    def _any(self, site: int, parts: Iterable[object]) -> bool:
        return any(self._counted(site, parts))

    def _counted(self, site: int, parts: Iterable[object]) -> Iterator[object]:
        for one in parts:
            self.sites[site] += 1
            yield one

    def _super(self, kind: type, one: object) -> object:
        """Return `super()` for an object, or a class, of the tests, or of a class of theirs that the program holds."""
        return _RemoteSuper(self.peer, kind, one) if isinstance(one, Proxy) else super(kind, one)

    def unsound(self, only: str | None = None) -> str:
        """Say why tests that passed prove nothing: a failure that the program swallowed, an assertion never reached.

        `only`: the function whose assertions count; None: those of all.
        """
        if self.failures:
            error = self.failures[0]
            return f"an assertion failed, and the program went on: {describe_error(error, 0)}"
        for owner, *sites in self._request["required"]:
            if owner not in self.skipped and only in (None, owner) and self.sites.keys().isdisjoint(sites):
                return f"an assertion{f' of {owner}' if owner else ''} was never reached"
        return ""

    # Text that the program may have written runs where the program runs.

    def _compile(self, source: object, _: str = "", mode: str = "exec", *__: object, **___: object) -> "_ForeignText":
        if not isinstance(source, str | bytes):
            raise HarnessRefusal("the tests compile what is no text")
        compile(source, "<made>", mode, dont_inherit=True)
        return _ForeignText(source if isinstance(source, str) else source.decode())

    def _exec(self, source: object, space: Namespace | None = None, *_: object) -> None:
        found = self.peer.ask("execute", str(self._compile(source)), _named_data(space))
        kept = vars(builtins) | self.tests if space is None or space is self.tests else {}
        (self.tests if space is None else space).update(_bound_names(found, kept))

    def _eval(self, source: object, space: Namespace | None = None, *_: object) -> object:
        text = str(self._compile(source, "", "eval"))
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(node, _ARITHMETIC_NODES) for node in ast.walk(tree)):
            return eval(compile(tree, "<made>", "eval", dont_inherit=True), {"__builtins__": {}})  # noqa: S307 - numbers
        if text in self._own_texts():
            given = {name: one for name, one in (space or {}).items() if not hasattr(builtins, name)}
            return eval(compile(tree, "<tests>", "eval", dont_inherit=True), self.tests | given)  # noqa: S307 - the tests' own
        return self.peer.ask("evaluate", text, _named_data(space))

    def _own_texts(self) -> set[str]:
        """Return the texts that the tests themselves hold."""
        steps = (text for step in self._request["steps"] for text in step.values())
        trees = map(ast.parse, (self._request["suite"], self._request["before"], *steps))
        constants = (one.value for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Constant))
        return {one for one in constants if isinstance(one, str)}

    def guard_imports(self) -> None:
        """Have every module from outside the interpreter's own path loaded by the program's process."""
        kind, peer = importlib.machinery.SourceFileLoader, self.peer
        usual = kind.exec_module

        def exec_module(loader: importlib.machinery.SourceFileLoader, module: ModuleType) -> None:
            if is_own_file(loader.path):
                return usual(loader, module)
            found = peer.ask("load_file", os.path.abspath(loader.path), module.__name__)
            module.__dict__.update(_bound_names(found, {}))
            return None

        def audit(event: str, arguments: tuple[object, ...]) -> None:
            file = getattr(arguments[0], "co_filename", "<") if event == "exec" else "<"
            typed = file.startswith(("<input>", "<console>", "<doctest"))
            if event == "marshal.load" or typed or (file[:1] != "<" and not is_own_file(file)):
                raise HarnessRefusal("the tests execute a file that the program may have written")

        sys.addaudithook(audit)
        # An archive is a file that the program may have written, whatever its name.
        sys.path_hooks[:] = [one for one in sys.path_hooks if getattr(one, "__name__", "") != "zipimporter"]
        sys.path_importer_cache.clear()
        runpy = importlib.import_module("runpy")
        runpy.run_path = lambda path, *_, **__: peer.ask("load_file", os.path.abspath(path), "<run_path>")  # type: ignore[attr-defined]

        kind.exec_module = exec_module  # type: ignore[method-assign,assignment]
        for other in (importlib.machinery.SourcelessFileLoader, importlib.machinery.ExtensionFileLoader):
            other.exec_module = guard_loader(other.exec_module)  # type: ignore[method-assign]

    def _stored(self) -> dict[str, tuple[ModuleType, str, object]]:
        """Return the module attributes that the tests set, and their current values."""
        found: dict[str, tuple[ModuleType, str, object]] = {}
        for place in self._request["stored"]:
            first, *between, name = place.split(".")
            one = self.tests.get(first) or sys.modules.get(first)
            for each in between:
                one = getattr(one, each, None) if isinstance(one, ModuleType) else None
            if isinstance(one, ModuleType) and hasattr(one, name) and f"{one.__name__}.{name}" not in SHARED_STREAMS:
                found[place] = one, name, getattr(one, name)
        return found

    def prepare(self) -> None:
        """Execute the setup and the tests' own definitions."""
        exec_source(self._request["setup"], "<setup>", self.tests)
        kinds = {name: self.tests.get(name) for name in self._request["common"]}
        self.peer.common = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
        for name in self._request["modules"]:
            if f"{name}.py" not in self._request["suite"]:  # otherwise it is a file that the program is to write
                importlib.import_module(name)
        exec_source(self._request["before"], "<tests>", self.tests)

    def load(self) -> None:
        """Load the program, and bind its names that the tests use; built-ins only where they mean the program's."""
        request, peer = self._request, self.peer
        peer.ask("load")
        own = set(request["allowed"])
        wanted = [
            name
            for name in request["names"]
            if name not in self.tests and (name in own or not hasattr(sys.modules["builtins"], name))
        ]
        for name in [
            name for name in wanted if name in sys.stdlib_module_names and name not in own | {*request["called"]}
        ]:
            self.tests[name] = importlib.import_module(name)
            wanted.remove(name)
        compared = {name: one for name in wanted for one in _comparing(name) if name not in own}
        if len(compared) < len(own | {name for name in request["called"] if name in wanted}):
            self.tests |= compared
            wanted = [name for name in wanted if name not in compared]
        for name, what, value in peer.ask("names", wanted):  # type: ignore[attr-defined]
            if name not in wanted:
                raise HarnessRefusal("the program bound a name that it was not asked for")
            if what == "module" or name in _ALIASES:
                value = self._module(name, str(value) if what == "module" else "")
            elif name in request["classes"] and issubclass(type(value), ClassProxy):
                peer.named.add(value._shikisha_[2].name)
            self.tests[name] = value
        if request["candidate"]:
            self.tests[request["candidate"]] = peer.ask("target", request["entry"])

    def _module(self, name: str, module: str) -> object:
        """Return our own copy of a module that the program imports and the tests use, under a usual name."""
        root = module.partition(".")[0]
        known = root in sys.stdlib_module_names or root in self._request["needs"]
        usual = known and name in {module.rpartition(".")[2], module}
        if root == "unittest" or not (usual or _ALIASES.get(name) == module):
            raise HarnessRefusal(f"the program means {module} by {name}, which the tests use")
        return importlib.import_module(module)

    def step(self, step: dict[str, str]) -> str:
        """Run one step and return its result."""
        if "value" in step:
            value = eval(compile(step["value"], "<tests>", "eval", dont_inherit=True), self.tests)  # noqa: S307 - a test
            return f'{{"value":{_encode_value(value)}}}'
        exec_source(step["do"], "<tests>", self.tests)
        return "{}"


def _encode_value(value: object) -> str:
    if isinstance(value, Proxy) or issubclass(type(value), ClassProxy):
        return f'{{"other":{to_json(value._shikisha_[2].name)}}}'  # type: ignore[attr-defined]
    return encode_result(value)


def _comparing(name: str) -> list[object]:
    """Return what a name means in the modules whose functions tests compare with: nothing, or one object."""
    found = (getattr(importlib.import_module(module), name, None) for module in _COMPARING_MODULES)
    return [one for one in found if one is not None and callable(one)][:1]


def run_test_steps(session: RunnerSession, request: RunnerRequest) -> str:
    """Run the steps up to the first failure, and report each."""
    done: list[str] = []
    for step in request["steps"]:
        error = run_guarded(session, request, lambda step=step: done.append(session.step(step)))  # type: ignore[misc]
        if error is not None:
            done[request["steps"].index(step) :] = [
                f'{{"error":{to_json(error)},"compared":{_compared_values(session, request)}}}'
            ]
            break
    unsound = f',"unsound":{to_json(session.unsound())}' if session.peer.fatal is None else ""
    return f'{{"steps":[{",".join(done)}]{unsound}{gone_suffix(session)}}}'


def run_guarded(session: RunnerSession, request: RunnerRequest, do: Callable[[], object]) -> str | None:
    """Run a call within its time and return its error, even one that the tests caught; None without one."""
    with ErrorTrap(request["seconds"]) as caught:
        do()
    if session.peer.fatal is not None:
        with ErrorTrap(request["seconds"]) as again:
            raise session.peer.fatal
        return again.error
    return caught.error


def gone_suffix(session: RunnerSession) -> str:
    """Return the report's marks: an ended program process, comparisons by the program's word, its objects' modules."""
    marks = [("gone", isinstance(session.peer.fatal, PeerGone)), ("decided", session.peer.decided)]
    seen = f',"seen":{to_json(sorted(session.peer.seen_modules))}' if session.peer.seen_modules else ""
    return "".join(f',"{name}":true' for name, holds in marks if holds) + seen


def _compared_values(session: RunnerSession, request: RunnerRequest) -> str:
    """Return the last values that the tests compared, as evidence."""
    seen: list[str] = []
    with ErrorTrap(request["seconds"]):
        seen += [_encode_value(value) for value in session.last]
    return f"[{','.join(seen)}]" if sum(map(len, seen)) <= _SHOWN else "[]"


def run_tests(request: str, tested: Callable[[RunnerSession, RunnerRequest], str] = run_test_steps) -> str:
    """Run the tests and return the report, as JSON."""
    given: RunnerRequest = json.loads(request)
    if missing := [name for name in given["needs"] if is_module_missing(name)]:
        return f'{{"missing":{to_json(missing)}}}'
    reads, writes = detach_stdio()
    sys.stdout = sys.stderr = io.TextIOWrapper(NullStream(), write_through=True)
    apply_limits(0)
    restrict_pickle()
    sys.meta_path[:] = [FixedPathFinder if one is PathFinder else one for one in sys.meta_path]
    for name in given["follow"]:
        importlib.import_module(name)
    session = RunnerSession(RunnerPeer(reads, writes, given), given)
    with ErrorTrap(given["seconds"]) as ready:
        session.prepare()
    if ready.error is not None:
        return f'{{"broken":{to_json(ready.error)}}}'
    session.guard_imports()
    error = run_guarded(session, given, session.load)
    session.peer.loading = False
    if error is not None:
        return f'{{"unloaded":{to_json(error)}{gone_suffix(session)}}}'
    return tested(session, given)


_SKIPS = re.compile(r"\b[sS]kip(Test|If|Unless)?\(")


class UnittestTally(unittest.TestResult):
    """Counts passed tests, keeps the first failure, and limits the time of each test."""

    def __init__(self, request: RunnerRequest, session: RunnerSession, *, asked_before: bool) -> None:
        """`asked_before`: the program had a say when the tests' classes were made, and so in what is skipped."""
        super().__init__()
        self._session, self._asked, self._asked_before = session, session.peer.asked, asked_before
        self._kept: tuple[dict[str, str], str, int] = ({}, "", 0)
        self._seconds = request["seconds"]
        self._may_skip = _SKIPS.search(request["suite"]) is not None
        self.passed = self.excused = self.returned = 0
        self.first: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether every test ran, and each passed one returned."""
        return self.passed + self.excused == self.testsRun and self.passed <= self.returned

    def count_returns(self, method: Callable[..., object]) -> Callable[..., object]:
        """Wrap a test to count its returns: some exceptions end one as if it had passed."""

        @functools.wraps(method)
        def counted(*arguments: object, **named: object) -> object:
            value = method(*arguments, **named)
            self.returned += 1
            return value

        @functools.wraps(method)
        async def awaited(*arguments: object, **named: object) -> object:
            value = await method(*arguments, **named)  # type: ignore[misc]
            self.returned += 1
            return value

        return awaited if isinstance(method, FunctionType) and method.__code__.co_flags & CO_COROUTINE else counted

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's names
        """Start a test and its timer."""
        super().startTest(test)
        self._kept = dict(os.environ), os.getcwd(), len(self._session.failures)
        set_timer(signal.ITIMER_REAL, self._seconds, TIMER_REPEAT)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """Stop both; the environment and the folder are again what they were."""
        set_timer(signal.ITIMER_REAL, 0)
        self._session.peer.restore()
        environment, folder, _ = self._kept
        if environment != dict(os.environ):
            os.environ.clear()
            os.environ.update(environment)
        if os.path.isdir(folder):
            os.chdir(folder)
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: ARG002, N802
        """Count it."""
        self.passed += 1

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: ARG002, N802
        """Count it."""
        self._excuse(test)

    def _excuse(self, test: unittest.TestCase) -> None:
        self.excused += 1
        method = getattr(test, getattr(test, "_testMethodName", ""), None)
        self._session.skipped.add(getattr(method, "__qualname__", ""))
        del self._session.failures[self._kept[2] :]

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """Count a skip of the tests themselves; a program that skips has not passed."""
        method = getattr(test, getattr(test, "_testMethodName", ""), None)
        declared = getattr(method, "__unittest_skip__", False) or getattr(type(test), "__unittest_skip__", False)
        asked = self._asked_before if declared else self._session.peer.asked > self._asked
        if self._may_skip and not asked:
            self._excuse(test)
        else:
            self._failed(test, f"skipped: {reason}")

    def addSubTest(self, _: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:  # noqa: N802
        """Keep a failed subtest."""
        if err is not None:
            self._failed(subtest, err)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        """Keep it."""
        self._failed(test, err)

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        """Keep it."""
        self._failed(test, err)

    def _failed(self, test: unittest.TestCase, err: object) -> None:
        error = err[1] if isinstance(err, tuple) else err
        said = describe_error(error, self._seconds) if isinstance(error, BaseException) else str(error)
        self.first = self.first or [test.id().rpartition(".")[2], said]


def _forgiving(leave: Callable[..., object], session: RunnerSession) -> Callable[..., object]:
    """Have `assertRaises` forget the failed assertion that it expects."""

    def __exit__(context: object, *error: object) -> object:  # noqa: N807 - it becomes that method
        done = leave(context, *error)
        if done and isinstance(error[1], BaseException):
            session.forgive(error[1], vars(context)["_mark"])
        return done

    return __exit__


def _marking(enter: Callable[..., object], session: RunnerSession) -> Callable[..., object]:
    """Have `assertRaises` note which assertions had failed before."""

    def __enter__(context: object) -> object:  # noqa: N807 - it becomes that method
        vars(context)["_mark"] = len(session.failures)
        return enter(context)

    return __enter__


class _PatchTarget:
    """The target of a `mock.patch`, with the name by which the program's process finds it."""

    def __init__(self, name: str, getter: Callable[[], object]) -> None:
        self.name = name
        self._getter = getter

    def __call__(self) -> object:
        return self._getter()


def mirror_patches(peer: RunnerPeer, remote: tuple[type, ...] = (Proxy,)) -> None:
    """Repeat every patch of a module, or of a class in one, in the program's process; `remote` targets are there."""
    targets, begin, end = mock._get_target, mock._patch.__enter__, mock._patch.__exit__  # type: ignore[attr-defined]
    entered: dict[int, bool] = {}

    def target(name: str) -> tuple[object, str]:
        getter, attribute = targets(name)
        return _PatchTarget(name.rpartition(".")[0], getter), attribute

    def enter(patch: "mock._patch[object]") -> object:
        value = begin(patch)
        place = "" if isinstance(patch.target, remote) else _patch_location(patch)
        if place and f"{place}.{patch.attribute}" not in SHARED_STREAMS:
            try:
                peer.ask("patch", place, patch.attribute, getattr(patch.target, patch.attribute))
                entered[id(patch)] = True
            except (AttributeError, ImportError):  # a class of the tests alone
                if not place.startswith(f"{TEST_MODULE}."):
                    raise
        return value

    def leave(patch: "mock._patch[object]", *error: object) -> object:
        if entered.pop(id(patch), False) and peer.fatal is None:
            peer.ask("unpatch")
        return end(patch, *error)  # type: ignore[arg-type]

    mock._get_target = target  # type: ignore[attr-defined]
    mock._patch.__enter__, mock._patch.__exit__ = enter, leave  # type: ignore[method-assign,assignment]


def _patch_location(patch: "mock._patch[object]") -> str:
    """Return the name of a patch's target; "" if only the tests' process has it."""
    if isinstance(patch.getter, _PatchTarget):
        return patch.getter.name
    if isinstance(patch.target, ModuleType):
        return patch.target.__name__
    return f"{patch.target.__module__}.{patch.target.__qualname__}" if isinstance(patch.target, type) else ""


def run_unittest_suite(session: RunnerSession, request: RunnerRequest) -> str:
    """Run the suite and return the report."""
    done: list[str] = []
    with ErrorTrap(0) as caught:
        done.append(_run_suite(session, request))
    return done[0] if done else f'{{"passed":0,"first":["tests",{to_json(caught.error)}]}}'


def _run_suite(session: RunnerSession, request: RunnerRequest) -> str:
    """Run the test cases that the suite defines."""
    space = session.tests
    before = set(map(id, space.values()))
    if "mock" in request["suite"]:
        mirror_patches(session.peer)
    asked = session.peer.asked
    exec_source(request["suite"], "<tests>", space)
    tally, loader = UnittestTally(request, session, asked_before=session.peer.asked > asked), unittest.TestLoader()
    context = unittest.case._AssertRaisesContext
    context.__exit__ = _forgiving(context.__exit__, session)  # type: ignore[method-assign,assignment]
    context.__enter__ = _marking(context.__enter__, session)  # type: ignore[method-assign,assignment]
    for case in [value for value in space.values() if id(value) not in before]:
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == "program":
            for name in loader.getTestCaseNames(case):
                setattr(case, name, tally.count_returns(getattr(case, name)))
            loader.loadTestsFromTestCase(case).run(tally)
    fatal = session.peer.fatal
    if fatal is not None and not tally.first:
        tally.first = ["tests", describe_error(fatal, request["seconds"])]
    if not tally.first and (unsound := session.unsound()):
        tally.first = ["tests", unsound]
    whole = tally.whole and tally.testsRun >= request["methods"]
    first = tally.first or ([] if whole else ["tests", "not all of them finished"])
    return f'{{"passed":{tally.passed},"first":{to_json(first)}{gone_suffix(session)}}}'
