"""The test runner's end of the connection to the program: what the program may do with objects of the tests.

This file's text is sent to the sandbox after that of `harness_solution`. Invariants: the program calls and reads what
it was given, and sets up, resets or replaces nothing; no code of its own reaches library objects here; what it wrote,
a module or a pickle, is not run in this process. Deliberately absent: the tests themselves (`harness_runner`).
"""

import copy
import importlib
import importlib.machinery
import io
import os
import pickle
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
from typing import Any, TypedDict
from unittest import mock

from shikisha_code.harness_codec import DATA_MODULES, WireValue
from shikisha_code.harness_proxy import (
    OPERATIONS,
    REVEALING_METHODS,
    ClassProxy,
    HarnessRefusal,
    PeerGone,
    Proxy,
    RemoteClass,
    proxied_object,
)
from shikisha_code.harness_rpc import RpcPeer
from shikisha_code.harness_solution import (
    SharedState,
    SolutionTimeout,
)

# The module of the tests: BigCodeBench appends them to the program.
TEST_MODULE = "program"
# What a mock keeps and how it is set up is the tests': the program may call it, and read what calls of it return.
_MOCK_ATTRIBUTES = frozenset({"side_effect", "call_args", "call_args_list", "mock_calls", "method_calls"})
_MOCK_ATTRIBUTES |= {"configure_mock", "reset_mock", "attach_mock", "mock_add_spec"}
_INTERNAL_TYPES = (GeneratorType, CoroutineType, AsyncGeneratorType, FrameType, TracebackType, CodeType, BaseException)
_NAME_ATTRIBUTES = (["__name__"], ["__qualname__"], ["__doc__"])  # what decorators copy from a function
# The program may use the public parts of objects from these modules: none executes text.
_OPEN_MODULES = frozenset({"io", "_io", "sqlite3", "argparse", "types", "collections", "random", "_random", "queue"})
_OPEN_MODULES |= {"_queue", "threading", "_thread", "logging", "csv", "_csv", "email", "xml", "configparser"}
_OPEN_MODULES |= {"pathlib", "tempfile", "array", "struct", "_struct", "zipfile", "tarfile"}
_READ_OPERATIONS = frozenset(
    {"getattr", "iter", "next", "enter", "exit", "len", "getitem", "contains", "call", "str", "repr"}
)
_READ_OPERATIONS |= {"bool", "int", "float", "index", "fspath"}
_MOST_CHANGED = 1_000  # containers of one test that the program changes
# Native code would run here.
_LOADERS = frozenset({"enable_load_extension", "load_extension"})
_WRITES = frozenset({"setattr", "delattr", "setitem", "delitem"})
ENDINGS = (StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt)  # they end what is around them
_STEPS = frozenset({"next", "send", "anext", "await"})


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
    required: list[list[int | str]]
    hooks: dict[str, str]
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
        self.asked, self.loading, self.decided = 0, True, False
        self.expected_endings = 0  # of statements that expect one
        self._changed: list[tuple[object, object]] = []
        # Objects of the program that are the difference between its object and plain data.
        self._distances: set[int] = set()

    def ask(self, operation: str, *arguments: object, **named: object) -> object:
        """Ask the program; a fatal error is kept, because tests may catch it."""
        if self.fatal is not None:
            raise self.fatal
        self.asked += 1
        if operation in {"abs", "round"} and arguments[0]._shikisha_[1] in self._distances:  # type: ignore[attr-defined]
            raise self._refused(arguments[0]._shikisha_[2], "says how far it is from plain data")  # type: ignore[attr-defined]
        try:
            for place, (module, name, value) in self.stored().items():
                if self._stored.get(place, value) is not value:
                    super().ask("assign", module.__name__, name, value)
                self._stored[place] = value
            return super().ask(operation, *arguments, **named)
        except (HarnessRefusal, PeerGone, SolutionTimeout) as error:
            self.fatal = error
            raise
        except ENDINGS as error:
            if operation in _STEPS or self.expected_endings:
                raise
            raise RuntimeError(f"the program raised {type(error).__name__}") from None

    def trusts(self, kind: RemoteClass) -> bool:
        """Whether the tests use a class as a class."""
        return kind.name in self.named

    def replace(self, one: object, contents: object) -> None:
        """Note what the program changes: what several tests share is the same for each."""
        if len(self._changed) < _MOST_CHANGED:
            self._changed.append((one, copy.copy(one)))
        super().replace(one, contents)

    def restore(self) -> None:
        """Undo, at the end of a test, what the program changed in what it was given."""
        for one, old in reversed(self._changed):
            super().replace(one, old)
        self._changed.clear()

    def array(self, made: Any) -> Any:  # noqa: ANN401 - numpy need not be installed
        """Return an array of the program's; one without items is not compared with one that has some."""
        if made.size:
            return made
        numpy = sys.modules["numpy"]

        def __array_ufunc__(_: object, function: object, method: str, *parts: Any, **named: object) -> object:  # noqa: ANN401, N807
            plain = [numpy.asarray(part) if isinstance(part, kind) else part for part in parts]
            if max(map(numpy.size, plain)) > 1:
                self.fatal = self.fatal or HarnessRefusal("an array without items is compared with one that has some")
                raise self.fatal
            return getattr(function, method)(*plain, **named)

        body = {"__array_ufunc__": __array_ufunc__, "__module__": "numpy"}
        kind = type("ndarray", (numpy.ndarray,), body)
        return made.view(kind)

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
        owner = getattr(arguments[0], "__self__", None)
        if operation == "call" and not isinstance(owner, ModuleType | None):
            module = "" if isinstance(owner, type) else type(owner).__module__
            if module != TEST_MODULE and module.partition(".")[0] != "unittest":
                return _call_with_data
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
            return operation in {"next", "iter"} or (operation == "await" and isinstance(one, CoroutineType))
        if operation in {"next", "iter", "str", "repr"}:
            return True
        if operation in _WRITES:
            return self._may_write(operation, arguments)
        is_mock = isinstance(one, mock.NonCallableMock)
        if not (
            is_mock or type(one).__module__ == TEST_MODULE or type(one).__module__.partition(".")[0] in _OPEN_MODULES
        ):
            return operation in _READ_OPERATIONS - {"getattr"}
        if operation == "getattr":
            name = more[0]
            if name in _LOADERS:
                return False
            return isinstance(name, str) and _is_public(name, is_mock) and not (is_mock and _is_mocks_own(name))
        return operation in _READ_OPERATIONS

    def _may_write(self, operation: str, arguments: list[object]) -> bool:
        """Whether the program may change a part of an object of the tests: data may become other data, no code."""
        one, name, *value = arguments
        if holds_code(value):
            return False
        is_mock, kind = isinstance(one, mock.NonCallableMock), type(one)
        if operation in {"setitem", "delitem"}:
            return is_mock or kind.__module__ == TEST_MODULE or kind.__module__.partition(".")[0] in _OPEN_MODULES
        if not isinstance(name, str) or not _is_public(name, is_mock):
            return False
        if is_mock:
            known = {"return_value", "called", "call_count", *vars(one).get("_mock_children", ())}
            return operation == "setattr" and name not in known and not _is_mocks_own(name)
        held = getattr(kind, name, None)
        stored = hasattr(held, "__set__") if held is not None or hasattr(kind, name) else True
        default = kind.__module__ == TEST_MODULE and not callable(held)  # a plain default of a class of the tests
        return (stored or default) and not callable(getattr(one, name, None))

    def shared_object(self, module: str, name: str) -> object:
        """Return a standard library class that holds data; refuse anything else that the program names."""
        found = getattr(sys.modules.get(module), name, None) if module in DATA_MODULES else None
        if not isinstance(found, type):
            raise HarnessRefusal(f"the program sent {module}.{name}, which is no data")
        return found

    # What is believed about the program's objects.

    def attribute(self, proxy: Proxy, kind: RemoteClass, name: str) -> object:
        """Return an attribute, unless using it would reveal the expected value."""
        shared = any(callable(getattr(one, name, None)) for one in self.common.values())
        if (name in REVEALING_METHODS or shared) and kind.name not in self.named:
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
        found = self.ask("equals", proxy, other)
        says, alike, discerns = found if type(found) is tuple and len(found) == 3 else (None, False, False)
        kind = proxy._shikisha_[2]
        if self._truth(says, kind) and not alike and not (discerns and kind.name in self.named):
            raise self._refused(kind, "is equal to another one by the program's word alone")
        self.decided = True
        return says is True

    def compare(self, operation: str, proxy: Proxy, other: object) -> object:
        """Ask the program only about two of its own objects."""
        if not isinstance(other, Proxy) or proxy._shikisha_[2].name not in self.named:
            raise self._refused(proxy._shikisha_[2], "is ordered by the program's word alone")
        self.decided = True
        return self._truth(self.ask(operation, proxy, other), proxy._shikisha_[2])

    def combine(self, operation: str, *operands: object) -> object:
        """Ask the program about its own objects, and about others only if the tests test its class."""
        (known, *more) = [known for one in operands if (known := proxied_object(one)) is not None]
        if len(more) + 1 == len(operands):
            return self.ask(operation, *operands)
        kind = known[2]
        result = self.ask(operation, *operands) if kind.name in self.named else None
        made = proxied_object(result)
        if kind.name not in self.named or (made is None and operation != "contains"):
            raise self._refused(kind, "is combined with plain data")
        if operation == "contains":
            self.decided = True
            if self._truth(result, kind) and all(self._contains(operands[0], one) for one in _decoys(operands[1])):
                raise self._refused(kind, "contains everything")
        elif operation == "sub" and made is not None:
            self._distances.add(made[1])
        return result

    def _contains(self, proxy: object, value: object) -> object:
        try:
            return self.ask("contains", proxy, value)
        except Exception:  # noqa: BLE001 - what cannot be looked for is not in it
            return False

    def _truth(self, value: object, kind: RemoteClass) -> bool:
        if type(value) is not bool:
            raise self._refused(kind, "compares to something that is neither True nor False")
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
            if not self.loading:  # what loading the program changes, no test may depend on
                self._state.apply_changes(carried)
            warned = [(line, str(text)) for line, text in carried.get("warnings", [])]  # type: ignore[union-attr,misc,str-unpack]
        except (ValueError, TypeError, OSError):
            raise HarnessRefusal("the program sent what cannot be read") from None
        for line, text in warned:
            known = (vars(sys.modules["builtins"]).get(str(each)) for each in line)  # type: ignore[union-attr]
            kinds = [one for one in known if isinstance(one, type) and issubclass(one, Warning)]
            warnings.warn(text, kinds[0] if kinds else UserWarning, stacklevel=2)


def _decoys(value: object) -> list[object]:
    """Return what hardly any collection contains, of the kind of a value where it is a usual one."""
    chance = os.urandom(6)
    made: list[object] = [-(2**40) - int.from_bytes(chance, "big"), chance.hex(), (None, chance)]
    return [one for one in made if type(one) is type(value)] or made


def _is_public(name: str, is_mock: bool) -> bool:
    """Whether an attribute is visible: on a mock, also those that stand for the mocked object's private ones."""
    return name[:1] != "_" or (
        is_mock and name[:2] != "__" and not hasattr(mock.MagicMock, name) and name[:5] != "_mock"
    )


def _is_mocks_own(name: str) -> bool:
    """Whether an attribute sets a mock up, or holds what it has noted, for the tests."""
    return name in _MOCK_ATTRIBUTES or name.startswith("assert")


def _refuse_access(*_: object, **__: object) -> object:
    raise AttributeError("the tests do not offer this")


def holds_code(value: object) -> bool:
    """Whether a value that the program sent would run the program's code when it is called."""
    if isinstance(value, dict):
        return holds_code([*value.keys(), *value.values()])
    if isinstance(value, list | tuple | set | frozenset | deque):
        return any(map(holds_code, value))
    return isinstance(value, Proxy | ClassProxy) and callable(value)


def _call_with_data(method: Callable[..., object], *arguments: object, **named: object) -> object:
    """Call a method of a library's object, which would call what it is given: data only."""
    if holds_code([*arguments, *named.values()]):
        return _refuse_access()
    return method(*arguments, **named)


def copied(value: object) -> object:
    """Return plain data with containers of its own; TypeError for anything else."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(map(copied, value))  # type: ignore[call-overload]
    if kind is dict:
        return {copied(key): copied(one) for key, one in value.items()}  # type: ignore[attr-defined]
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return value.copy()  # type: ignore[attr-defined]
    if value is None or kind in (str, int, float, bool, complex, bytes, range) or kind.__module__ in DATA_MODULES:
        return copy.deepcopy(value) if kind.__module__ == "collections" else value
    raise TypeError(kind.__name__)


def is_own_file(path: str) -> bool:
    """Whether a file lies on the path of this process's start, where the program cannot write."""
    return any(os.path.abspath(path).startswith(f"{folder}{os.sep}") for folder in FixedPathFinder._path if folder)


def guard_loader(load: Callable[..., None]) -> Callable[..., None]:
    """Return a loader of compiled code that refuses what the program wrote."""

    def exec_module(loader: importlib.machinery.SourcelessFileLoader, module: ModuleType) -> None:
        if not is_own_file(loader.path):
            raise HarnessRefusal("the tests load compiled code that the program wrote")
        load(loader, module)

    return exec_module


class FixedPathFinder:
    """Finds modules on the path of this process's start first; others are loaded by the program's process."""

    _path = tuple(sys.path)

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module."""
        found = PathFinder.find_spec(name, cls._path if path is None else path, target)
        return found or PathFinder.find_spec(name, [os.getcwd(), *sys.path] if path is None else path, target)

    @staticmethod
    def invalidate_caches() -> None:
        """Forget what was found before."""
        PathFinder.invalidate_caches()


class _DataUnpickler(pickle._Unpickler):
    """Reads pickles that the program may have written: data, and no code."""

    def find_class(self, module: str, name: str) -> object:
        found = getattr(sys.modules.get(module), name, None) if module in DATA_MODULES | {TEST_MODULE} else None
        imported = module == TEST_MODULE and getattr(found, "__module__", "") != TEST_MODULE
        test = isinstance(found, type) and issubclass(found, unittest.TestCase)
        if not isinstance(found, type) or imported or test or (module == "builtins" and name not in _DATA_NAMES):
            raise pickle.UnpicklingError(f"{module}.{name} is no data")
        return found


_DATA_NAMES = frozenset(
    {"complex", "set", "frozenset", "bytearray", "range", "slice", "object", "list", "dict", "tuple", "int"}
)


def restrict_pickle() -> None:
    """Restrict unpickling to data: otherwise the program could run code here by writing a file."""
    pickle.Unpickler = _DataUnpickler  # type: ignore[misc,assignment]
    # Other libraries derive their readers from this class.
    setattr(pickle._Unpickler, "find_class", _DataUnpickler.find_class)  # noqa: B010 - a method of another class
    build: Callable[[Any], None] = pickle._Unpickler.load_build  # type: ignore[attr-defined]

    def load_build(self: Any) -> None:  # noqa: ANN401 - its parts are not public
        if isinstance(self.stack[-2], type):
            raise pickle.UnpicklingError("a pickle that changes a class")
        build(self)

    pickle._Unpickler.load_build = load_build  # type: ignore[attr-defined]
    pickle._Unpickler.dispatch[pickle.BUILD[0]] = load_build
    pickle.load = lambda file, **_: _DataUnpickler(file).load()
    pickle.loads = lambda data, **_: _DataUnpickler(io.BytesIO(data)).load()
