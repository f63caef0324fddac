"""Run one program as `python program.py` would, and report how it ended on a descriptor of its own.

Invariants: the report is one JSON object (value, error, parsed), or there is none (the process ended in another way: by
a signal, by `os._exit`). It comes last, when threads have ended and everything printed is flushed. It is the program's
own word: a program that looks for the descriptor can say of itself what it likes, and of nothing else. This file must
run alone, as text, with the standard library only (`run_once`). Deliberately absent: limits (`confinement`), and
standard error, which nobody reads.
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
# Not an identifier, so not a name of the program.
_VALUE = "value of the last line"
_LONGEST_MESSAGE = 2_000
_MAIN = "__main__"
# Bytes kept free to report the end of a program that has used all other memory.
_RESERVED = 4 * 2**20
_reserve: list[bytearray] = []

# Of the length that comes first on a container's standard input.
LENGTH_DIGITS = 12
CONTAINER_FOLDER = "/tmp"  # noqa: S108 - the container's own


@dataclass(frozen=True)
class SentProgram:
    """A program from outside: code, names to bind, call depth, and the longest value in characters."""

    code: str
    inputs: dict[str, object]
    depth: int
    output: int


def receive_program(descriptor: int) -> SentProgram:
    """Read the program from a descriptor."""
    with open(descriptor, "rb") as file:
        return SentProgram(**json.load(file))


def report_end(descriptor: int, value: str | None, error: str | None, parsed: bool = True) -> None:
    """Report how a program ended."""
    report = f"{json.dumps({'value': value, 'error': error, 'parsed': parsed})}\n".encode()
    while report:
        report = report[os.write(descriptor, report) :]


def prepare_interpreter(folder: str, package: str) -> None:
    """Remove our modules, arguments and environment, and open the standard streams."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    sys.argv[:] = [""]
    os.environ.clear()
    os.environ.update(HOME=folder, TMPDIR=folder)
    os.putenv("OPENBLAS_NUM_THREADS", "1")  # numeric libraries reserve memory for each thread
    # UTC: the machine's time zone file is no longer readable.
    time.tzset()
    site.setquit()
    site.sethelper()
    _open_streams()


def run_program(sent: SentProgram, answer: int) -> None:
    """Run the program and report its end on the descriptor `answer`."""
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
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        return None, error
    finally:
        _reserve.clear()


def _exec_program(code: str, inputs: dict[str, object]) -> str | None:
    main = sys.modules[_MAIN] = ModuleType(_MAIN)
    names = main.__dict__
    names.update(inputs)
    linecache.cache[CODE_NAME] = (len(code), None, code.splitlines(keepends=True), CODE_NAME)
    exec(_compile_program(code), names)  # noqa: S102 - confined by now
    value = names.pop(_VALUE, None)
    return None if value is None else str(value)


def _compile_program(code: str) -> CodeType:
    """Compile the program, with its last expression, if any, bound to a name that no program can use."""
    try:
        tree = ast.parse(code, CODE_NAME)
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            name = ast.copy_location(ast.Name(_VALUE, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([name], last.value), last)
        return compile(tree, CODE_NAME, "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, nested too deeply
        raise SyntaxError(str(error) or "too deeply nested") from None


def _error_message(error: BaseException) -> str | None:
    """Return an error as "Type: message (line N)"; None for a successful exit."""
    if isinstance(error, SystemExit) and not error.code:
        return None
    line = error.lineno if isinstance(error, SyntaxError) else _error_line(error.__traceback__)
    text = error.msg if isinstance(error, SyntaxError) else _attempt(lambda: str(error))[0]
    message = type(error).__name__ + (f": {_shorten(text)}" if text else "")
    return message if line is None or isinstance(error, SystemExit) else f"{message} (line {line})"


def _error_line(traceback: TracebackType | None) -> int | None:
    """Return the last line of the program in a traceback."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == CODE_NAME:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "..."


def _finish_interpreter() -> None:
    """Do what an interpreter does at its end: wait for threads, run exit handlers."""
    if threading := sys.modules.get("threading"):
        threading._shutdown()
    atexit._run_exitfuncs()


def _open_streams() -> None:
    """Open the three standard streams again, on the current descriptors 0 to 2."""
    buffers: dict[str, io.BufferedReader | io.BufferedWriter] = {
        "stdin": io.BufferedReader(io.FileIO(0, closefd=False)),
        "stdout": io.BufferedWriter(io.FileIO(1, "w", closefd=False)),
        "stderr": io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
    }
    for name, buffer in buffers.items():
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogateescape")
        for each in (name, f"__{name}__"):
            setattr(sys, each, stream)


def run_once() -> None:
    """Run one program, confined, in a container of its own: this file as text is all that the container is given.

    Standard input holds the length of a JSON message, the message (the text of `confinement`, the allowance, the
    program) and then the program's own input. How the program ended goes to what was standard error, as its last line.
    """
    sent = json.loads(_read_exactly(int(_read_exactly(LENGTH_DIGITS))))
    confinement = sys.modules["confinement"] = ModuleType("confinement")
    exec(compile(sent["confinement"], "confinement", "exec"), confinement.__dict__)  # noqa: S102 - our own text
    answer = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    confinement.Confinement(contained=True).enter(confinement.Allowance(CONTAINER_FOLDER, **sent["allowance"]))
    os.write(answer, b"\n")  # the program's seconds begin
    prepare_interpreter(CONTAINER_FOLDER, "confinement")
    run_program(SentProgram(**sent["program"]), answer)
    os._exit(0)


def _read_exactly(size: int) -> bytes:
    """Read exactly `size` bytes of standard input, and leave the rest to the program."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise EOFError("standard input ended too soon")
        data += piece
    return data


if __name__ == "__main__":
    run_once()
