"""What runs in the program's own process: it loads the program, calls it, and sends back what came of it.

This file's text is sent into the sandbox behind those of `inside_proxy`, `inside_wire` and `inside_peer`, so it needs
the standard library and nothing else. Invariant: no test and no expected value is in here, so that there is nothing to
find, and nothing that is said from here is more than an answer: a program that takes this process over can only answer
for itself. Either it is handed the calls of direct tests and reports their values, which are compared outside
(`stepped`), or it answers the judge, which runs the tests in a process of its own (`attend`). Deliberately absent:
tests, verdicts, and defences.
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

from shikisha.evals.graders.harness_codec import DATA_MODULES, WireValue, to_json
from shikisha.evals.graders.harness_rpc import RpcPeer

Namespace: TypeAlias = dict[str, object]

PROGRAM_FILE = "program.py"  # the file that the program's functions say they are from
_SHOWN = 300
TIMER_REPEAT = 0.05  # seconds after which a program that swallowed its time-out is told once more
_CALL_DEPTH = 1_000  # calls within calls, as Python itself has it
_MOST_PRINTED = 1_000_000  # characters between two messages
_MOST_WARNINGS = 1_000  # warnings between two messages

set_timer = signal.setitimer


class SolutionRequest(TypedDict):
    """What the program's process is to do. Texts are Python.

    `steps`: each a `call`, and its `arguments` as JSON or as `literals`; `plain`: called by its name alone, and never a
    method of a Solution. With a judge there are none; `follow` names modules whose state both share, `common` classes
    of which both have their own, and `behind` are imports of the tests.
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
    """A test has had its time."""


class MissingDefinition(Exception):
    """The program lacks what the tests ask of it."""


class ErrorTrap:
    """A block in which whatever is raised is kept, and which ends after so many seconds (0: whenever it likes)."""

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
    """Say what an exception is, without a method of its own."""
    if isinstance(error, SolutionTimeout):
        return f"no end after {seconds:g} s"
    said = ", ".join(str(part) for part in error.args if type(part) in (str, int, float))
    name = type(error).__name__
    bare = isinstance(error, MissingDefinition) or name in {"Refused", "Gone"}
    return said if bare and said else f"{name}: {said}"[:_SHOWN] if said else name


def encode_result(value: object) -> str:
    """Return a value as JSON that `values.decoded` reads; of what is no plain data, the name of its type."""
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
    """Return a number of any library as JSON: its scalars are what they equal."""
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
    return found  # type: ignore[no-any-return]  # what a callable returns is looked at in `written`


def load_solution(order: SolutionRequest) -> Namespace:
    """Execute what the program may rely on, and the program."""
    module = ModuleType("program")
    sys.modules["program"] = module
    sys.argv = [PROGRAM_FILE]
    exec_source(order["setup"], "setup.py", module.__dict__)
    exec_source(order["program"], PROGRAM_FILE, module.__dict__)
    behind: Namespace = {}
    exec_source(order["behind"], "tests.py", behind)
    for name in behind.keys() - module.__dict__.keys():  # in their layout tests stand behind the program, with imports
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


def run_call_steps(order: SolutionRequest) -> str:
    """Load the program, do the steps up to the first that fails, and report on each, as JSON."""
    if missing := [name for name in order["needs"] if is_module_missing(name)]:
        return f'{{"missing":{to_json(missing)}}}'
    sys.stdout = sys.stderr = io.TextIOWrapper(NullStream(), write_through=True)
    seconds, spaces = order["seconds"], list[Namespace]()
    with ErrorTrap(seconds) as ready:
        exec_source(order["setup"], "setup.py", {"__name__": "program"})
    if ready.error is not None:
        return f'{{"broken":{to_json(ready.error)}}}'
    with ErrorTrap(seconds) as begun:
        spaces.append(load_solution(order))
    if begun.error is not None:
        return f'{{"unloaded":{to_json(begun.error)}}}'
    done: list[str] = []
    for step in order["steps"]:
        with ErrorTrap(seconds) as caught:
            done.append(_call_step(spaces[0], step))
        if caught.error is not None:
            done.append(f'{{"error":{to_json(caught.error)}}}')
            break
    return f'{{"steps":[{",".join(done)}]}}'


class NullStream(io.RawIOBase):
    """Takes what is printed during tests that look at values, and forgets it."""

    def writable(self) -> bool:
        """It can be written to."""
        return True

    def write(self, data: object) -> int:
        """Forget it."""
        return memoryview(data).nbytes  # type: ignore[arg-type]  # what a text stream hands on


class SolutionPeer(RpcPeer):
    """The program's end of the talk with the judge: it does what it is asked, and tells what was printed meanwhile."""

    def __init__(self, reads: int, writes: int, order: SolutionRequest) -> None:
        super().__init__(reads, writes)
        self._order = order
        self._space: Namespace = {}
        self._failed: BaseException | None = None
        self._patched: list[tuple[object, str, object]] = []
        self._printed = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        self._warned: list[WireValue] = []
        self._state = SharedState(order["follow"], seeding=False)
        sys.stdout, sys.stderr = self._printed.values()
        warnings.simplefilter("always")
        warnings.showwarning = self._warn  # type: ignore[assignment]

    def load(self) -> None:
        """Load the program; how that ended is told when the judge asks."""
        try:
            self._space = load_solution(self._order)
            kinds = {name: self._space.get(name) for name in self._order["common"]}
            self.common = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            self._failed = error

    def grant(self, operation: str, arguments: list[object]) -> Callable[..., object]:
        """Do as the judge says."""
        own = {"load": self._load, "names": self._names, "target": self._target}
        own |= {"patch": self._patch, "unpatch": self._unpatch, "assign": self._assign}
        return own.get(operation) or super().grant(operation, arguments)  # type: ignore[return-value]

    def shareable(self, value: object) -> tuple[str, str] | None:
        """Name classes of data alone: the judge takes nothing else, and calls functions over here."""
        found = super().shareable(value) if isinstance(value, type) else None
        return found if found is not None and found[0] in DATA_MODULES else None

    def _load(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _names(self, names: list[str]) -> list[tuple[str, str, object]]:
        """Return those of these names that the program binds: to a module, whose name is told, or to a value."""
        bound = [(name, self._space[name]) for name in names if name in self._space]
        return [
            (name, "module", one.__name__) if isinstance(one, ModuleType) else (name, "value", one)
            for name, one in bound
        ]

    def _target(self, name: str) -> object:
        return find_entry(self._space, name)

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
        """Tell what was printed and warned of, and how far the random numbers have come."""
        told_: dict[str, WireValue] = {}
        for name, stream in self._printed.items():
            if stream.tell():
                told_[name] = stream.getvalue()[:_MOST_PRINTED]
                stream.seek(0)
                stream.truncate()
        if self._warned:
            told_["warnings"] = self._warned[:_MOST_WARNINGS]
            self._warned = []
        return told_ | self._state.changes()

    def receive_state(self, carried: dict[str, WireValue]) -> None:
        """Take over what the tests have set beside the program."""
        self._state.apply_changes(carried)
        if "random" in carried:
            version, numbers, gauss = carried["random"]  # type: ignore[misc,str-unpack]
            sys.modules["random"].setstate((version, tuple(numbers), gauss))  # type: ignore[arg-type]
        if "stdin" in carried:
            sys.stdin = io.StringIO(str(carried["stdin"]))

    def function(self, parts: list[object]) -> object:
        """Make a function that the tests hand over; its module is the program's."""
        code, name, defaults, named, annotations, needed = parts
        space = self._space | {"__builtins__": builtins} | needed  # type: ignore[operator]
        made = FunctionType(marshal.loads(code), space, name, defaults)  # type: ignore[arg-type]  # noqa: S302 - the judge's
        made.__kwdefaults__, made.__annotations__ = named, annotations  # type: ignore[assignment]
        return made

    def module(self, name: str) -> object:
        """Return a module that the tests name."""
        return importlib.import_module(name)

    def _warn(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        line: list[WireValue] = [one.__name__ for one in type.mro(category)]
        self._warned.append([line, str(message)])


class SharedState:
    """What the two processes have in common beside calls, as far as the tests use it: whoever changes it tells."""

    def __init__(self, follow: list[str], *, seeding: bool) -> None:
        """Begin; `seeding`: random numbers here are those of the tests, which seed them for both, and nobody else."""
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
        """Return what has changed since this was last asked or told."""
        found: dict[str, WireValue] = {}
        if self._seeded:  # a seed is new each time, even if it is the same
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
        """Change here what the other process changed there."""
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
    """Return what a dotted name means: a module, or a class in one."""
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
    """Take time and depth as a test has them; memory in bytes beside the interpreter's (0: what the sandbox gives)."""
    signal.signal(signal.SIGALRM, _raise_timeout)
    sys.setrecursionlimit(_CALL_DEPTH)
    if memory:
        most = memory + 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def detach_stdio() -> tuple[int, int]:
    """Return the two pipes to the other process, out of the way of what prints and reads here."""
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return reads, writes


def run_solution(order: str, nonce: str) -> str:
    """Return the report on the steps behind its nonce."""
    given: SolutionRequest = json.loads(order)
    apply_limits(given["memory"])
    return nonce + run_call_steps(given)


def serve_solution(order: str) -> None:
    """Load the program and answer the judge until it has gone."""
    given: SolutionRequest = json.loads(order)
    attendant = SolutionPeer(*detach_stdio(), given)
    if "random" in given["follow"]:
        importlib.import_module("random")
    apply_limits(given["memory"])
    attendant.load()
    attendant.serve()
