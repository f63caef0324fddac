"""What runs in the program's own process: load the program, call it, and send back the results.

This file's text is sent to the sandbox after those of `harness_proxy`, `harness_codec` and `harness_rpc`, so it needs
nothing but the standard library. Invariant: no test and no expected value is in this process, so there is nothing to
find, and everything it sends is only an answer: a program that takes this process over can only answer for itself. It
either receives the calls of direct tests and reports their results, which are compared outside (`run_solution`), or it
answers the test runner (`serve_solution`). Deliberately absent: tests, verdicts, and defenses.
"""

import ast
import builtins
import importlib
import importlib.util
import io
import json
import marshal
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, ItemsView, KeysView
from decimal import Decimal
from numbers import Integral, Rational, Real
from os import chdir, environ, getcwd
from types import FunctionType, ModuleType, TracebackType
from typing import TypeAlias, TypedDict

from shikisha_code.harness_codec import DATA_MODULES, WireValue, to_json
from shikisha_code.harness_rpc import RpcPeer

Namespace: TypeAlias = dict[str, object]

# The file name of the program's functions.
PROGRAM_FILE = "program.py"
_SHOWN = 300
# Seconds between further timeouts, for a program that swallowed the first.
TIMER_REPEAT = 0.05
# Python's own default, whatever the sandbox has set.
_CALL_DEPTH = 1_000
_MOST_PRINTED = 1_000_000  # characters between two messages
_MOST_WARNINGS = 1_000  # warnings between two messages

set_timer = signal.setitimer


class SolutionRequest(TypedDict):
    """The work of the program's process. Texts are Python.

    `steps`: each a `call` with its `arguments` as JSON or as `literals`; `plain`: called by its name alone, never as a
    method of a Solution class. There are none with a test runner. `follow`: modules whose state both processes share;
    `common`: classes that both define; `behind`: imports of the tests, which stand behind the program.
    """

    program: str
    setup: str
    behind: str
    common: list[str]
    steps: list[dict[str, str]]
    needs: list[str]
    follow: list[str]
    seconds: float
    memory: int


class SolutionTimeout(BaseException):
    """A test has exceeded its time. A BaseException, so that `except Exception` in a program does not swallow it."""


class MissingDefinition(Exception):
    """The program does not define what the tests call."""


class ErrorTrap:
    """A block that records whatever is raised, and ends after `seconds` (0: no limit)."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.error: str | None = None

    def __enter__(self) -> "ErrorTrap":
        set_timer(signal.ITIMER_REAL, self._seconds, TIMER_REPEAT)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        set_timer(signal.ITIMER_REAL, 0)
        if error is not None:
            self.error = describe_error(error, self._seconds)
        return True


def describe_error(error: BaseException, seconds: float) -> str:
    """Describe an exception without calling any of its own methods."""
    if isinstance(error, SolutionTimeout):
        return f"no end after {seconds:g} s"
    said = ", ".join(str(part) for part in error.args if type(part) in (str, int, float))
    name = type(error).__name__
    bare = isinstance(error, MissingDefinition) or name in {"HarnessRefusal", "PeerGone"}
    return said if bare and said else f"{name}: {said}"[:_SHOWN] if said else name


def encode_result(value: object) -> str:
    """Return a value as JSON for `code_tests.decode_value`; for anything but plain data, the name of its type."""
    match value:
        case None | bool() | str():
            return to_json(value)
        case list():
            return f"[{_encode_items(value)}]"
        case tuple() | set() | frozenset():
            kind = next(kind for kind in (tuple, set, frozenset) if isinstance(value, kind))
            return f'{{"{kind.__name__}":[{_encode_items(value)}]}}'
        case KeysView() | ItemsView():
            return encode_result(set(value))  # they equal sets
        case dict():
            return '{"dict":[' + ",".join(f"[{_encode_items(pair)}]" for pair in value.items()) + "]}"
        case bytes():
            return f'{{"bytes":"{value.hex()}"}}'
        case _:
            return _encode_number(value)


def _encode_items(values: "list[object] | tuple[object, ...] | set[object] | frozenset[object]") -> str:
    return ",".join([encode_result(value) for value in values])


def _encode_number(value: object) -> str:
    """Return a number of any library as JSON: scalars become the numbers that they equal."""
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        return encode_result(item())
    match value:
        case Integral():
            whole = int(value)
            return str(whole) if whole.bit_length() < 60 else f'{{"int":"{whole:x}"}}'
        case Rational():
            return f'{{"fraction":[{encode_result(int(value.numerator))},{encode_result(int(value.denominator))}]}}'
        case Real():
            number = float(value)
            return repr(number) if abs(number) < float("inf") else f'{{"float":"{number!r}"}}'
        case complex():
            return f'{{"complex":"{value!r}"}}'
        case Decimal():
            return f'{{"decimal":"{value}"}}'
        case _:
            return f'{{"other":{to_json(type(value).__name__)}}}'


def is_module_missing(name: str) -> bool:
    """Whether there is no module of this name."""
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return True


def exec_source(source: str, file: str, space: Namespace) -> None:
    """Execute Python in a namespace."""
    exec(compile(source, file, "exec", dont_inherit=True), space)  # noqa: S102 - what a harness is for


def find_entry(space: Namespace, name: str) -> Callable[..., object]:
    """Return the function, or the method of a new Solution."""
    solution = space.get("Solution")
    found = getattr(solution(), name, None) if isinstance(solution, type) else None
    found = found or space.get(name)
    if not callable(found):
        raise MissingDefinition(f"the program defines no function {name}")
    return found  # type: ignore[no-any-return]  # `encode_result` handles any result


def load_solution(request: SolutionRequest) -> Namespace:
    """Execute the setup and the program."""
    module = ModuleType("program")
    sys.modules["program"] = module
    sys.argv = [PROGRAM_FILE]
    exec_source(request["setup"], "setup.py", module.__dict__)
    exec_source(request["program"], PROGRAM_FILE, module.__dict__)
    behind: Namespace = {}
    exec_source(request["behind"], "tests.py", behind)
    # BigCodeBench appends its tests, with imports, to the program.
    for name in behind.keys() - module.__dict__.keys():
        module.__dict__[name] = behind[name]
    return module.__dict__


def _call_step(space: Namespace, step: dict[str, str]) -> str:
    name = step["call"]
    if "plain" not in step:
        called = find_entry(space, name)
    elif name in space or hasattr(builtins, name):
        called = space.get(name) or getattr(builtins, name)  # type: ignore[assignment]
    else:
        raise NameError(f"name '{name}' is not defined")
    arguments = ast.literal_eval(step["literals"]) if "literals" in step else json.loads(step["arguments"])
    return f'{{"value":{encode_result(called(*arguments))}}}'


def run_call_steps(request: SolutionRequest) -> str:
    """Load the program, run the steps up to the first failure, and report each as JSON."""
    if missing := [name for name in request["needs"] if is_module_missing(name)]:
        return f'{{"missing":{to_json(missing)}}}'
    sys.stdout = sys.stderr = io.TextIOWrapper(NullStream(), write_through=True)
    seconds, spaces = request["seconds"], list[Namespace]()
    with ErrorTrap(seconds) as ready:
        exec_source(request["setup"], "setup.py", {"__name__": "program"})
    if ready.error is not None:
        return f'{{"broken":{to_json(ready.error)}}}'
    with ErrorTrap(seconds) as begun:
        spaces.append(load_solution(request))
    if begun.error is not None:
        return f'{{"unloaded":{to_json(begun.error)}}}'
    done: list[str] = []
    for step in request["steps"]:
        with ErrorTrap(seconds) as caught:
            done.append(_call_step(spaces[0], step))
        if caught.error is not None:
            done.append(f'{{"error":{to_json(caught.error)}}}')
            break
    return f'{{"steps":[{",".join(done)}]}}'


class NullStream(io.RawIOBase):
    """Discards text that is printed during tests of values."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: object) -> int:
        """Discard the data."""
        return memoryview(data).nbytes  # type: ignore[arg-type]  # a text stream passes bytes


class SolutionPeer(RpcPeer):
    """The program's end of the protocol: it performs requests, and sends along what was printed meanwhile."""

    def __init__(self, reads: int, writes: int, request: SolutionRequest) -> None:
        super().__init__(reads, writes)
        self._solution = request
        self._space: Namespace = {}
        self._failed: BaseException | None = None
        self._patched: list[tuple[object, str, object]] = []
        self._streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        self._warned: list[WireValue] = []
        self._state = SharedState(request["follow"], seeding=False)
        sys.stdout, sys.stderr = self._streams.values()
        warnings.simplefilter("always")
        warnings.showwarning = self._warn  # type: ignore[assignment]

    def load(self) -> None:
        """Load the program; an error is kept until the test runner asks for it."""
        try:
            self._space = load_solution(self._solution)
            kinds = {name: self._space.get(name) for name in self._solution["common"]}
            self.common = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
        except BaseException as error:  # noqa: BLE001 - loading may raise anything
            self._failed = error

    def grant(self, operation: str, arguments: list[object]) -> Callable[..., object]:
        """Grant every request of the test runner."""
        own: dict[str, Callable[..., object]] = {"load": self._load, "names": self._names, "target": self._target}
        own |= {"patch": self._patch, "unpatch": self._unpatch, "assign": self._assign, "equals": _equals}
        own |= {"execute": self._execute, "evaluate": self._evaluate, "load_file": self._load_file}
        own |= {"subclass": _make_subclass, "super": super, "import": importlib.import_module}
        return own.get(operation) or super().grant(operation, arguments)

    def shareable(self, value: object) -> tuple[str, str] | None:
        """Name only data classes: the test runner accepts nothing else, and calls functions in this process."""
        found = super().shareable(value) if isinstance(value, type) else None
        return found if found is not None and found[0] in DATA_MODULES else None

    def _load(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _names(self, names: list[str]) -> list[tuple[str, str, object]]:
        """Return the names that the program binds, each to a value or to the name of a module."""
        bound = [(name, self._space[name]) for name in names if name in self._space]
        return [
            (name, "module", one.__name__) if isinstance(one, ModuleType) else (name, "value", one)
            for name, one in bound
        ]

    def _target(self, name: str) -> object:
        return find_entry(self._space, name)

    def _execute(self, source: str, given: Namespace, name: str = "made") -> Namespace:
        """Execute text that the program may have written, and return what it binds."""
        space = {"__name__": name, **given}
        exec_source(source, f"{name}.py", space)
        return {key: one for key, one in space.items() if key[:2] != "__" and not isinstance(one, ModuleType)}

    def _evaluate(self, source: str, given: Namespace) -> object:
        return eval(compile(source, "made.py", "eval", dont_inherit=True), {**given})  # noqa: S307 - the program's own

    def _load_file(self, path: str, name: str) -> Namespace:
        with open(path, encoding="utf-8") as file:
            return self._execute(file.read(), {"__file__": path}, name)

    def _patch(self, place: str, name: str, value: object) -> None:
        one = _resolve_dotted_name(place)
        self._patched.append((one, name, vars(one).get(name, self)))
        setattr(one, name, value)

    def _assign(self, place: str, name: str, value: object) -> None:
        setattr(_resolve_dotted_name(place), name, value)

    def _unpatch(self) -> None:
        one, name, before = self._patched.pop()
        if before is self:
            delattr(one, name)
        else:
            setattr(one, name, before)

    def outgoing_state(self) -> dict[str, WireValue]:
        """Return what was printed, warnings, and the changes to shared state."""
        state: dict[str, WireValue] = {}
        for name, stream in self._streams.items():
            if stream.tell():
                state[name] = stream.getvalue()[:_MOST_PRINTED]
                stream.seek(0)
                stream.truncate()
        if self._warned:
            state["warnings"] = self._warned[:_MOST_WARNINGS]
            self._warned = []
        return state | self._state.changes()

    def receive_state(self, carried: dict[str, WireValue]) -> None:
        """Apply the shared state that the tests have set."""
        self._state.apply_changes(carried)
        if "random" in carried:
            version, numbers, gauss = carried["random"]  # type: ignore[misc,str-unpack]
            sys.modules["random"].setstate((version, tuple(numbers), gauss))  # type: ignore[arg-type]
        if "stdin" in carried:
            sys.stdin = io.StringIO(str(carried["stdin"]))

    def function(self, parts: list[object]) -> object:
        """Build a function that the tests pass; its module is the program's."""
        code, name, defaults, named, annotations, needed = parts
        space = self._space | {"__builtins__": builtins} | needed  # type: ignore[operator]
        made = FunctionType(marshal.loads(code), space, name, defaults)  # type: ignore[arg-type] # noqa: S302 - from the test runner
        made.__kwdefaults__, made.__annotations__ = named, annotations  # type: ignore[assignment]
        return made

    def module(self, name: str) -> object:
        """Return a module that the tests named."""
        return importlib.import_module(name)

    def _warn(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        line: list[WireValue] = [one.__name__ for one in type.mro(category)]
        self._warned.append([line, str(message)])


def _make_subclass(name: str, bases: tuple[type, ...], body: list[tuple[str, str, object]]) -> type:
    """Return a class of the tests that derives from the program's: its functions are the tests' own."""

    def method(function: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments, **named: function(*arguments, **named)

    made: dict[str, Callable[..., object]] = {"function": method, "property": lambda one: property(method(one))}
    made |= {"staticmethod": lambda one: staticmethod(method(one)), "classmethod": lambda one: classmethod(method(one))}
    return type(name, bases, {key: made[kind](one) if kind in made else one for key, kind, one in body})


def _equals(one: object, other: object) -> tuple[object, bool, bool]:
    """Return what the program says, whether both hold the same data, and whether it would notice other data."""
    says, state = one == other, _state_of(other)
    alike = type(one) is type(other) and (state is None or _state_of(one) == state)
    if says is not True or alike or state is None:
        return says, alike, False
    for name, value in list(state.items()):
        other_value: object = value * 2 if isinstance(value, str | list | tuple) and value else not value
        if isinstance(value, int | float) and not isinstance(value, bool):
            other_value = value + 1
        try:
            object.__setattr__(other, name, other_value)
            if not one == other:  # noqa: SIM201 - what `==` says is what counts
                return says, alike, True
        except Exception:  # noqa: BLE001, S112 - an object that cannot hold this is no reason
            continue
        finally:
            object.__setattr__(other, name, value)
    return says, alike, False


def _state_of(one: object) -> Namespace | None:
    """Return an object's data; None for an object without any of its own."""
    slots = [name for kind in type(one).__mro__ for name in kind.__dict__.get("__slots__", ()) if name[:2] != "__"]
    if not slots and not hasattr(one, "__dict__"):
        return None
    return {name: getattr(one, name) for name in slots if hasattr(one, name)} | getattr(one, "__dict__", {})


class SharedState:
    """State that both processes share, as far as the tests use it: each side sends its changes."""

    def __init__(self, follow: list[str], *, seeding: bool) -> None:
        """`seeding`: this is the side of the tests, which seed random numbers for both."""
        self._known: dict[str, object] = {"arguments": list(sys.argv)}
        if "os" in follow:
            self._known |= {"environment": dict(environ), "folder": getcwd()}
        if "sys" in follow:
            self._known["path"] = list(sys.path)
        self._seeded: list[object] = []
        if "random" in follow and seeding:
            self._known["random"] = None
            random = sys.modules["random"]
            for name in ("seed", "setstate"):
                setattr(random, name, self._seeding(getattr(random, name)))

    def _seeding(self, method: Callable[..., None]) -> Callable[..., None]:
        def seeds(*arguments: object, **named: object) -> None:
            method(*arguments, **named)
            version, numbers, gauss = sys.modules["random"].getstate()
            self._seeded = [[version, list(numbers), gauss]]

        return seeds

    def changes(self) -> dict[str, WireValue]:
        """Return the changes since the last call or update."""
        found: dict[str, WireValue] = {}
        # Seeding is a change even with the same seed.
        if self._seeded:
            self._known["random"] = None
        for name, known in self._known.items():
            now = self._now(name)
            if now != known:
                self._known[name] = now
                found[name] = list(now.items()) if isinstance(now, dict) else now  # type: ignore[arg-type,assignment]
        self._seeded.clear()
        self._known |= {"random": None} if "random" in self._known else {}
        return found

    def apply_changes(self, changes: dict[str, WireValue]) -> None:
        """Apply changes that the other process made."""
        for name in [name for name in changes if name in self._known and name != "random"]:
            one = changes[name]
            if name == "environment":
                environ.clear()
                environ.update(dict(one))  # type: ignore[arg-type]
            elif name == "folder":
                chdir(str(one))
            else:
                (sys.argv if name == "arguments" else sys.path)[:] = one  # type: ignore[assignment]
            self._known[name] = self._now(name)

    def _now(self, name: str) -> object:
        if name == "random":
            return self._seeded[-1] if self._seeded else None
        if name == "environment":
            return dict(environ)
        if name == "folder":
            return getcwd()
        return list(sys.argv if name == "arguments" else sys.path)


def _resolve_dotted_name(place: str) -> object:
    """Return the module, or class in a module, of a dotted name."""
    parts = place.split(".")
    for count in range(len(parts), 0, -1):
        try:
            one: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            one = getattr(one, name)
        return one
    raise ModuleNotFoundError(place)


def _raise_timeout(_: int, __: object) -> None:
    raise SolutionTimeout


def apply_limits(memory: int) -> None:
    """Set a test's limits; `memory` is in bytes beyond the interpreter's own (0: the sandbox's limit)."""
    signal.signal(signal.SIGALRM, _raise_timeout)
    sys.setrecursionlimit(_CALL_DEPTH)
    if memory:
        most = memory + 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def detach_stdio() -> tuple[int, int]:
    """Return the two pipes to the other process, moved away from standard input and output."""
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return reads, writes


def run_solution(request: str, nonce: str) -> str:
    """Return the nonce followed by the report on the steps."""
    given: SolutionRequest = json.loads(request)
    apply_limits(given["memory"])
    return nonce + run_call_steps(given)


def serve_solution(request: str) -> None:
    """Load the program and answer the test runner until it has gone."""
    given: SolutionRequest = json.loads(request)
    attendant = SolutionPeer(*detach_stdio(), given)
    if "random" in given["follow"]:
        importlib.import_module("random")
    apply_limits(given["memory"])
    attendant.load()
    attendant.serve()
