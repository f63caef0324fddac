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

import functools
import importlib
import io
import json
import pickle
import re
import signal
import sys
import unittest
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import TypedDict
from unittest import mock

from shikisha.evals.graders.harness_codec import DATA_MODULES, WireValue, to_json
from shikisha.evals.graders.harness_proxy import OPERATIONS, ClassProxy, HarnessRefusal, PeerGone, Proxy, RemoteClass
from shikisha.evals.graders.harness_rpc import RpcPeer
from shikisha.evals.graders.harness_solution import (
    TIMER_REPEAT,
    ErrorTrap,
    Namespace,
    NullStream,
    SharedState,
    SolutionTimeout,
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
# The module of the tests: BigCodeBench appends them to the program.
_TEST_MODULE = "program"
_ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "sns": "seaborn", "tf": "tensorflow"}
_REVEALING_METHODS = frozenset(
    {"startswith", "endswith", "issubset", "issuperset", "isdisjoint", "match", "fullmatch", "equals"}
)
_MOCK_ATTRIBUTES = frozenset(
    {"return_value", "side_effect", "called", "call_count", "call_args", "call_args_list", "mock_calls"}
)
_MOCK_ATTRIBUTES |= {"method_calls", "configure_mock", "reset_mock", "attach_mock", "mock_add_spec"}
_INTERNAL_TYPES = (GeneratorType, CoroutineType, AsyncGeneratorType, FrameType, TracebackType, CodeType, BaseException)
_NAME_ATTRIBUTES = (["__name__"], ["__qualname__"], ["__doc__"])  # what decorators copy from a function
# The program may use the public parts of objects from these modules: none executes text.
_OPEN_MODULES = frozenset({"io", "_io", "sqlite3", "argparse", "types", "collections", "random", "_random", "queue"})
_OPEN_MODULES |= {"_queue", "threading", "_thread", "logging", "csv", "_csv", "email", "xml", "configparser"}
_OPEN_MODULES |= {"pathlib", "tempfile", "array", "struct", "_struct", "zipfile", "tarfile"}
_READ_OPERATIONS = frozenset(
    {"getattr", "iter", "next", "enter", "exit", "len", "getitem", "contains", "call", "str", "repr"}
)
_READ_OPERATIONS |= {"bool", "int", "float", "index", "setitem", "delitem", "fspath"}


class RunnerRequest(TypedDict):
    """The work of the test runner. Texts are Python; a step has a `value` to evaluate or a statement to `do`."""

    setup: str
    before: str
    steps: list[dict[str, str]]
    suite: str
    methods: int
    entry: str
    candidate: str
    seen: str
    names: list[str]
    allowed: list[str]
    called: list[str]
    classes: list[str]
    needs: list[str]
    follow: list[str]
    common: list[str]
    modules: list[str]
    stored: list[str]
    seconds: float


class RunnerPeer(RpcPeer):
    """The test runner's end of the protocol with the program."""

    sends_code = True

    def __init__(self, reads: int, writes: int, request: RunnerRequest) -> None:
        super().__init__(reads, writes)
        # Classes of the program that the tests use as classes.
        self.named: set[str] = set()
        self.fatal: BaseException | None = None
        self._stored: dict[str, object] = {}
        self.stored: Callable[[], dict[str, tuple[ModuleType, str, object]]] = (
            dict  # attributes that the tests have set, by place
        )
        self._state, self._stdin = SharedState(request["follow"], seeding=True), sys.stdin

    def ask(self, operation: str, *arguments: object, **named: object) -> object:
        """Ask the program; a fatal error is kept, because tests may catch it."""
        if self.fatal is not None:
            raise self.fatal
        try:
            for place, (module, name, value) in self.stored().items():
                if self._stored.get(place, value) is not value:
                    super().ask("assign", module.__name__, name, value)
                self._stored[place] = value
            return super().ask(operation, *arguments, **named)
        except (HarnessRefusal, PeerGone, SolutionTimeout) as error:
            self.fatal = error
            raise

    def must_end(self, error: BaseException) -> bool:
        """Whether it is a timeout, which is not an answer to the program."""
        return isinstance(error, SolutionTimeout)

    # What the program may request.

    def grant(self, operation: str, arguments: list[object]) -> Callable[..., object]:
        """Grant calls of functions that the tests passed, and public parts of their objects and mocks."""
        if not arguments or id(arguments[0]) not in self._numbers:
            raise HarnessRefusal("the program asked for what it was not given")
        if operation not in OPERATIONS or not self._may(operation, arguments):
            return _refuse_access
        return OPERATIONS[operation]

    def _may(self, operation: str, arguments: list[object]) -> bool:
        one, *more = arguments
        if isinstance(one, unittest.TestCase | ModuleType):
            return False
        if isinstance(one, FunctionType | BuiltinFunctionType | MethodType):
            return operation == "call" or (operation == "getattr" and more[:1] in _NAME_ATTRIBUTES)
        if isinstance(one, type):
            return operation in {"call", "issubclass"}
        if isinstance(one, _INTERNAL_TYPES):
            return operation in {"next", "iter"}
        if operation in {"next", "iter", "str", "repr"}:
            return True
        is_mock = isinstance(one, mock.NonCallableMock)
        if not (
            is_mock or type(one).__module__ == _TEST_MODULE or type(one).__module__.partition(".")[0] in _OPEN_MODULES
        ):
            return operation in _READ_OPERATIONS - {"getattr"}
        name = more[0] if more else ""
        if operation in {"getattr", "setattr", "delattr"} and not (isinstance(name, str) and _is_public(name, is_mock)):
            return False
        if operation in {"setattr", "delattr"}:
            return not (is_mock and (name in _MOCK_ATTRIBUTES or str(name).startswith("assert")))
        return operation in _READ_OPERATIONS

    def shared_object(self, module: str, name: str) -> object:
        """Return a standard library class that holds data; refuse anything else that the program names."""
        found = getattr(sys.modules.get(module), name, None) if module in DATA_MODULES else None
        if not isinstance(found, type):
            raise HarnessRefusal(f"the program sent {module}.{name}, which is no data")
        return found

    # What is believed about the program's objects.

    def attribute(self, proxy: Proxy, kind: RemoteClass, name: str) -> object:
        """Return an attribute, unless using it would reveal the expected value."""
        if name in _REVEALING_METHODS and kind.name not in self.named:
            raise self._refused(kind, f"is asked for {name}")
        return super().attribute(proxy, kind, name)

    def equal(self, proxy: Proxy, other: object) -> bool:
        """Ask the program only about two of its own objects."""
        if proxy is other:
            return True
        if not isinstance(other, Proxy):
            return NotImplemented  # type: ignore[no-any-return]
        if "__eq__" not in proxy._shikisha_[2].methods | other._shikisha_[2].methods:
            return False
        return self._truth(super().ask("eq", proxy, other), proxy)

    def compare(self, operation: str, proxy: Proxy, other: object) -> object:
        """Ask the program only about two of its own objects."""
        if not isinstance(other, Proxy):
            raise self._refused(proxy._shikisha_[2], "is compared with plain data")
        return self._truth(self.ask(operation, proxy, other), proxy)

    def combine(self, operation: str, *operands: object) -> object:
        """Ask the program about its own objects, and about others only if the tests test its class."""
        (proxy, *_) = [one for one in operands if isinstance(one, Proxy)]
        if not all(isinstance(one, Proxy) for one in operands):
            kind = proxy._shikisha_[2]
            result = self.ask(operation, *operands) if kind.name in self.named else None
            if kind.name not in self.named or not (isinstance(result, Proxy) or operation == "contains"):
                raise self._refused(kind, "is combined with plain data")
            return result
        return self.ask(operation, *operands)

    def _truth(self, value: object, proxy: Proxy) -> bool:
        if type(value) is not bool:
            raise self._refused(proxy._shikisha_[2], "compares to something that is neither True nor False")
        return value

    def _refused(self, kind: RemoteClass, what: str) -> HarnessRefusal:
        self.fatal = self.fatal or HarnessRefusal(f"a value of the program's own class {kind.name} {what}")
        return self.fatal  # type: ignore[return-value]  # any fatal error

    # State that goes with the messages.

    def outgoing_state(self) -> dict[str, WireValue]:
        """Return the shared state that the tests have set since the last message."""
        state = self._state.changes()
        if sys.stdin is not self._stdin:
            self._stdin = sys.stdin
            state["stdin"] = str(sys.stdin.read())
        return state

    def receive_state(self, carried: dict[str, WireValue]) -> None:
        """Repeat the program's output and warnings here, and apply its changes to shared state."""
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            if isinstance(text := carried.get(name), str):
                stream.write(text)
        try:
            self._state.apply_changes(carried)
            warned = [(line, str(text)) for line, text in carried.get("warnings", [])]  # type: ignore[union-attr,misc,str-unpack]
        except (ValueError, TypeError, OSError):
            raise HarnessRefusal("the program sent what cannot be read") from None
        for line, text in warned:
            known = (vars(sys.modules["builtins"]).get(str(each)) for each in line)  # type: ignore[union-attr]
            kinds = [one for one in known if isinstance(one, type) and issubclass(one, Warning)]
            warnings.warn(text, kinds[0] if kinds else UserWarning, stacklevel=2)


def _is_public(name: str, is_mock: bool) -> bool:
    """Whether an attribute is visible: on a mock, also those that stand for the mocked object's private ones."""
    return name[:1] != "_" or (
        is_mock and name[:2] != "__" and not hasattr(mock.MagicMock, name) and name[:5] != "_mock"
    )


def _refuse_access(*_: object, **__: object) -> object:
    raise AttributeError("the tests do not offer this")


class _FixedPathFinder:
    """Finds modules on the path of this process's start, whatever the program or the tests add to it.

    That path lacks the folder that the program can write in, so no test imports what the program wrote.
    """

    _path = tuple(sys.path)

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module."""
        return PathFinder.find_spec(name, cls._path if path is None else path, target)

    @staticmethod
    def invalidate_caches() -> None:
        """Forget what was found before."""
        PathFinder.invalidate_caches()


class _DataUnpickler(pickle._Unpickler):
    """Reads pickles that the program may have written: data, and no code."""

    def find_class(self, module: str, name: str) -> object:
        found = getattr(sys.modules.get(module), name, None) if module in DATA_MODULES | {_TEST_MODULE} else None
        if not isinstance(found, type) or (module == "builtins" and name not in _DATA_NAMES):
            raise pickle.UnpicklingError(f"{module}.{name} is no data")
        return found


_DATA_NAMES = frozenset(
    {"complex", "set", "frozenset", "bytearray", "range", "slice", "object", "list", "dict", "tuple", "int"}
)


def _restrict_pickle() -> None:
    """Restrict unpickling to data: otherwise the program could run code here by writing a file."""
    pickle.Unpickler = _DataUnpickler  # type: ignore[misc,assignment]
    pickle.load = lambda file, **_: _DataUnpickler(file).load()
    pickle.loads = lambda data, **_: _DataUnpickler(io.BytesIO(data)).load()


class RunnerSession:
    """The namespace of the tests, and their connection to the program."""

    def __init__(self, peer: RunnerPeer, request: RunnerRequest) -> None:
        self._request = request
        self.peer = peer
        self.last: deque[object] = deque(maxlen=2)
        module = ModuleType(_TEST_MODULE)
        sys.modules[_TEST_MODULE] = module
        self.tests: Namespace = module.__dict__
        self.tests[request["seen"]] = self._seen
        if request["stored"]:
            peer.stored = self._stored

    def _seen(self, value: object) -> object:
        self.last.append(value)
        return value

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
        exec_source(self._request["setup"], "setup.py", self.tests)
        kinds = {name: self.tests.get(name) for name in self._request["common"]}
        self.peer.common = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
        for name in self._request["modules"]:
            importlib.import_module(name)
        exec_source(self._request["before"], "tests.py", self.tests)

    def load(self) -> None:
        """Load the program, and bind its names that the tests use; built-ins only where they mean the program's."""
        request, peer = self._request, self.peer
        peer.ask("load")
        own = set(request["allowed"])
        wanted = [
            name for name in request["names"] if name not in self.tests and (name in own or not _is_built_in(name))
        ]
        for name in [
            name for name in wanted if name in sys.stdlib_module_names and name not in own | {*request["called"]}
        ]:
            self.tests[name] = importlib.import_module(name)
            wanted.remove(name)
        for name, what, value in peer.ask("names", wanted):  # type: ignore[attr-defined]
            if name not in wanted:
                raise HarnessRefusal("the program bound a name that it was not asked for")
            if what == "module":
                value = self._module(name, str(value))
            elif name in request["classes"] and issubclass(type(value), ClassProxy):
                peer.named.add(value._shikisha_[2].name)
            self.tests[name] = value
        if request["candidate"]:
            self.tests[request["candidate"]] = peer.ask("target", request["entry"])

    def _module(self, name: str, module: str) -> object:
        """Return our own copy of a module that the program imports and the tests use, under a usual name."""
        root = module.partition(".")[0]
        known = root in sys.stdlib_module_names or root in self._request["needs"]
        if (
            not known
            or root == "unittest"
            or (name not in {module.rpartition(".")[2], module} and _ALIASES.get(name) != module)
        ):
            raise HarnessRefusal(f"the program means {module} by {name}, which the tests use")
        return importlib.import_module(module)

    def step(self, step: dict[str, str]) -> str:
        """Run one step and return its result."""
        if "value" in step:
            value = eval(compile(step["value"], "tests.py", "eval", dont_inherit=True), self.tests)  # noqa: S307 - a test
            return f'{{"value":{_encode_value(value)}}}'
        exec_source(step["do"], "tests.py", self.tests)
        return "{}"


def _encode_value(value: object) -> str:
    if isinstance(value, Proxy) or issubclass(type(value), ClassProxy):
        return f'{{"other":{to_json(value._shikisha_[2].name)}}}'  # type: ignore[attr-defined]
    return encode_result(value)


def _is_built_in(name: str) -> bool:
    return hasattr(sys.modules["builtins"], name)


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
    return f'{{"steps":[{",".join(done)}]{gone_suffix(session)}}}'


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
    """Return the report's mark for an ended program process."""
    return ',"gone":true' if isinstance(session.peer.fatal, PeerGone) else ""


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
    _restrict_pickle()
    sys.meta_path[:] = [_FixedPathFinder if one is PathFinder else one for one in sys.meta_path]
    for name in given["follow"]:
        importlib.import_module(name)
    session = RunnerSession(RunnerPeer(reads, writes, given), given)
    with ErrorTrap(given["seconds"]) as ready:
        session.prepare()
    if ready.error is not None:
        return f'{{"broken":{to_json(ready.error)}}}'
    error = run_guarded(session, given, session.load)
    if error is not None:
        return f'{{"unloaded":{to_json(error)}{gone_suffix(session)}}}'
    return tested(session, given)


_SKIPS = re.compile(r"\b[sS]kip(Test|If|Unless)?\(")


class UnittestTally(unittest.TestResult):
    """Counts passed tests, keeps the first failure, and limits the time of each test."""

    def __init__(self, request: RunnerRequest) -> None:
        super().__init__()
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

        return counted

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's names
        """Start a test and its timer."""
        super().startTest(test)
        set_timer(signal.ITIMER_REAL, self._seconds, TIMER_REPEAT)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """Stop both."""
        set_timer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: ARG002, N802
        """Count it."""
        self.passed += 1

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: ARG002, N802
        """Count it."""
        self.excused += 1

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """Count a skip of the tests themselves; a program that skips has not passed."""
        if self._may_skip:
            self.excused += 1
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


class _PatchTarget:
    """The target of a `mock.patch`, with the name by which the program's process finds it."""

    def __init__(self, name: str, getter: Callable[[], object]) -> None:
        self.name = name
        self._getter = getter

    def __call__(self) -> object:
        return self._getter()


def mirror_patches(peer: RunnerPeer) -> None:
    """Repeat every patch of a module, or of a class in one, in the program's process."""
    targets, begin, end = mock._get_target, mock._patch.__enter__, mock._patch.__exit__  # type: ignore[attr-defined]
    entered: dict[int, bool] = {}

    def target(name: str) -> tuple[object, str]:
        getter, attribute = targets(name)
        return _PatchTarget(name.rpartition(".")[0], getter), attribute

    def enter(patch: "mock._patch[object]") -> object:
        value = begin(patch)
        place = _patch_location(patch)
        if place and f"{place}.{patch.attribute}" not in SHARED_STREAMS:
            peer.ask("patch", place, patch.attribute, getattr(patch.target, patch.attribute))
            entered[id(patch)] = True
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
    tally, loader = UnittestTally(request), unittest.TestLoader()
    exec_source(request["suite"], "tests.py", space)
    for case in [value for value in space.values() if id(value) not in before]:
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == "program":
            for name in loader.getTestCaseNames(case):
                setattr(case, name, tally.count_returns(getattr(case, name)))
            loader.loadTestsFromTestCase(case).run(tally)
    fatal = session.peer.fatal
    if fatal is not None and not tally.first:
        tally.first = ["tests", describe_error(fatal, request["seconds"])]
    whole = tally.whole and tally.testsRun >= request["methods"]
    first = tally.first or ([] if whole else ["tests", "not all of them finished"])
    return f'{{"passed":{tally.passed},"first":{to_json(first)}{gone_suffix(session)}}}'
