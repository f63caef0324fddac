"""Runs one program as `python program.py` would, and tells how it ended on a descriptor of its own.

Invariants: what is told is one JSON object (value, error, parsed), or nothing is told (the process ended in another
way: by a signal, by `os._exit`); it is told last, when threads have ended and everything printed is flushed. It is the
program's own word: a program that looks for the descriptor can say of itself what it likes, and of nothing else.
Deliberately absent: limits (`confine`), and standard error, which nobody reads.

Runs one program in a container of its own: what is to be run comes on standard input, before the program's own.

Invariant: this module is handed to an interpreter as text and uses no other one until it has read them, as texts too;
so a container needs no file of ours, wherever its engine is. What a program prints is standard output; how it ended is
told on what was standard error, as the last line. Deliberately absent: walls; those are the container's, and what of
the jail's confinement the kernel offers inside it.
"""

import ast
import atexit
import io
import json
import linecache
import os
import site
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, ModuleType, TracebackType

CODE_NAME = "<code>"
_VALUE = "value of the last line"  # no identifier, so no program's own name
_LONGEST_MESSAGE = 2_000
_MAIN = "__main__"
_RESERVED = 4 * 2**20  # bytes of memory in which to tell the end of a program that has taken all the rest
_reserve: list[bytearray] = []


@dataclass(frozen=True)
class SentProgram:
    """What comes from outside: code, names to bind, call depth, characters that its value may have."""

    code: str
    inputs: dict[str, object]
    depth: int
    output: int


def receive_program(descriptor: int) -> SentProgram:
    """Return what was sent on a descriptor."""
    with open(descriptor, "rb") as file:
        return SentProgram(**json.load(file))


def report_end(descriptor: int, value: str | None, error: str | None, parsed: bool = True) -> None:
    """Say how a program ended."""
    told = f"{json.dumps({'value': value, 'error': error, 'parsed': parsed})}\n".encode()
    while told:
        told = told[os.write(descriptor, told) :]


def prepare_interpreter(folder: str, package: str) -> None:
    """Leave nothing of ours to be found: modules, arguments, environment; and open the standard streams."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    sys.argv[:] = [""]
    os.environ.clear()
    os.environ.update(HOME=folder, TMPDIR=folder)
    time.tzset()  # the machine's time zone is a file that cannot be read any more: UTC
    site.setquit()
    site.sethelper()
    _open_streams()


def run_program(sent: SentProgram, answer: int) -> None:
    """Run the program that was sent and tell how it ended on the descriptor `answer`."""
    sys.setrecursionlimit(sent.depth)
    _reserve.append(bytearray(_RESERVED))
    value, raised = _attempt(lambda: _exec_program(sent.code, sent.inputs))
    parsed = not isinstance(raised, SyntaxError)
    error = None if raised is None else _error_message(raised)
    _attempt(_finish_interpreter)
    _attempt(sys.stdout.flush)
    if value is not None and len(value) > sent.output:
        value, error = None, f"more than {sent.output:,} characters came out"
    report_end(answer, value, error, parsed)


def _attempt(do: Callable[[], str | None]) -> tuple[str | None, BaseException | None]:
    try:
        return do(), None
    except BaseException as error:  # noqa: BLE001 - whatever a program raises is how it ended
        return None, error
    finally:
        _reserve.clear()


def _exec_program(code: str, inputs: dict[str, object]) -> str | None:
    main = sys.modules[_MAIN] = ModuleType(_MAIN)
    names = main.__dict__
    names.update(inputs)
    linecache.cache[CODE_NAME] = (len(code), None, code.splitlines(keepends=True), CODE_NAME)
    exec(_compile_program(code), names)  # noqa: S102 - this is what the jail is for
    value = names.pop(_VALUE, None)
    return None if value is None else str(value)


def _compile_program(code: str) -> CodeType:
    """Return the program with its last expression, if it ends in one, bound to a name that no program can write."""
    try:
        tree = ast.parse(code, CODE_NAME)
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            name = ast.copy_location(ast.Name(_VALUE, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([name], last.value), last)
        return compile(tree, CODE_NAME, "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, half characters, nested too deeply
        raise SyntaxError(str(error) or "too deeply nested") from None


def _error_message(error: BaseException) -> str | None:
    """Return an error as "Type: message (line N)"; None for an exit that is no failure."""
    if isinstance(error, SystemExit) and not error.code:
        return None
    line = error.lineno if isinstance(error, SyntaxError) else _error_line(error.__traceback__)
    text = error.msg if isinstance(error, SyntaxError) else _attempt(lambda: str(error))[0]
    told = type(error).__name__ + (f": {_shorten(text)}" if text else "")
    return told if line is None or isinstance(error, SystemExit) else f"{told} (line {line})"


def _error_line(traceback: TracebackType | None) -> int | None:
    """Return the line of the program that was reached last."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == CODE_NAME:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "..."


def _finish_interpreter() -> None:
    """Do what an interpreter does at its end: wait for threads, call what was registered."""
    if threading := sys.modules.get("threading"):
        threading._shutdown()
    atexit._run_exitfuncs()


def _open_streams() -> None:
    """Make the three standard streams anew, on whatever descriptors 0 to 2 are now."""
    buffers: dict[str, io.BufferedReader | io.BufferedWriter] = {
        "stdin": io.BufferedReader(io.FileIO(0, closefd=False)),
        "stdout": io.BufferedWriter(io.FileIO(1, "w", closefd=False)),
        "stderr": io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
    }
    for name, buffer in buffers.items():
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogateescape")
        for each in (name, f"__{name}__"):
            setattr(sys, each, stream)


PACKAGE = "cell"
MODULES_NEEDED = ("syscalls", "seccomp", "landlock", "confine", "program")  # in the order in which they use one another
LENGTH_DIGITS = 12  # digits of the length that comes first
CONTAINER_FOLDER = "/tmp"  # noqa: S108 - the container's own


def run_once() -> None:
    """Read what is to be run, confine this process, run it, and end."""
    sent = json.loads(_read_exactly(int(_read_exactly(LENGTH_DIGITS))))
    sys.modules[PACKAGE] = ModuleType(PACKAGE)
    modules = {name: _load_module(f"{PACKAGE}.{name}", sent["modules"][name]) for name in MODULES_NEEDED}
    confine, program = modules["confine"], modules["program"]
    answer = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    confine.Confinement(contained=True).enter(confine.Allowance(CONTAINER_FOLDER, **sent["allowance"]))
    os.write(answer, b"\n")  # the program's seconds begin
    program.settle(CONTAINER_FOLDER, PACKAGE)
    program.play(program.Sent(**sent["program"]), answer)
    os._exit(0)


def _load_module(name: str, text: str) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    module.__package__ = PACKAGE
    setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)
    exec(compile(text, name, "exec"), module.__dict__)  # noqa: S102 - the texts are ours
    return module


def _read_exactly(size: int) -> bytes:
    """Return exactly so many bytes of standard input and leave the rest to the program."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise EOFError("standard input ended too soon")
        data += piece
    return data


if __name__ == "__main__":
    run_once()
