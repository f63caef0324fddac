"""The fork server: one small single-threaded process that forks a process for each program.

Invariants: it runs no program, reads nothing that a program wrote, and holds nothing of ours (its environment is
empty). A program's process has its own descriptors and none of the server's. When the socket to its creator closes, the
server and all programs end. Forking a warm interpreter costs a tenth of starting one. It is safe from a process without
threads, and unsafe from a server with them.

The socket carries one JSON message for each program (folder, memory, cpu_seconds) with five descriptors: the program's
standard input, its output, what is to run, where it reports its end, and a socket for the server's own replies (first
the process, with a pidfd; then its exit code).
"""

import fcntl
import gc
import json
import os
import select
import socket
import sys
from importlib import import_module

from .confinement import (
    FIRST_FREE_DESCRIPTOR,
    Allowance,
    Confinement,
    drop_launcher_privileges,
    end_with_parent,
    support_problem,
)
from .program import prepare_interpreter, receive_program, report_end, run_program

_LONGEST_MESSAGE = 65_536
_SENT, _ANSWER = 3, 4
_MOST_DESCRIPTORS = 4_096
_PRELOADED_MODULES = (  # often imported by programs, so loaded once
    *("argparse", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "inspect", "itertools", "math", "operator", "pathlib", "random", "re", "shutil"),
    *("statistics", "string", "tempfile", "textwrap", "threading", "time", "traceback", "typing"),
    *("array", "asyncio", "json", "resource", "signal", "unittest", "unittest.mock", "uuid", "zoneinfo"),  # of tests
)


def main() -> None:
    """Serve on the socket with the second argument's descriptor; the third is the folder of the programs' folders.

    The fourth is a folder of links to installed packages, which programs may import.
    """
    control = socket.socket(fileno=fcntl.fcntl(int(sys.argv[2]), fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR))
    os.close(int(sys.argv[2]))
    if trouble := support_problem():
        control.send(json.dumps({"problem": trouble}).encode())
        return
    for name in _PRELOADED_MODULES:
        import_module(name)
    sys.path.remove(sys.argv[1])
    gc.collect()
    gc.freeze()
    drop_launcher_privileges(sys.argv[3])
    launcher = ForkServer(control, sys.argv[4])
    sys.path.append(sys.argv[4])
    control.send(json.dumps({"user": os.geteuid()}).encode())
    launcher.serve()


class ForkServer:
    """Knows the running programs: each one's process and reply socket, by pidfd."""

    def __init__(self, control: socket.socket, linked: str) -> None:
        self._control = control
        self._process = os.getpid()
        self._confinement = Confinement(linked)
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> None:
        """Start programs and report their ends until the socket closes."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                if ready in self._running:
                    poll.unregister(ready)
                    process, reply = self._running.pop(ready)
                    os.close(ready)
                    with reply:
                        _send_reply(reply, {"code": os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])})
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST_MESSAGE, 5)
                if not message:
                    return
                if (pidfd := self._launch(message, descriptors)) is not None:
                    poll.register(pidfd, select.POLLIN)

    def _launch(self, message: bytes, descriptors: list[int]) -> int | None:
        *ends, word = descriptors
        reply = socket.socket(fileno=word)
        try:
            process = os.fork()
        except OSError as error:
            process = -1
            _send_reply(reply, {"problem": f"no process could be created: {error.strerror}"})
        if process == 0:
            self._run_child(message, ends)
        for end in ends:
            os.close(end)
        if process < 0:
            reply.close()
            return None
        pidfd = os.pidfd_open(process)
        _send_reply(reply, {"process": process}, pidfd)
        self._running[pidfd] = process, reply
        return pidfd

    def _run_child(self, message: bytes, ends: list[int]) -> None:
        """Run one program in this forked process to its end; this never returns to the server's loop."""
        code = 70
        try:
            allowance = Allowance(**json.loads(message))
            os.setsid()
            # Put a program's descriptors in place: input, output, errors (discarded), the sent program, its report.
            given, printed, sent, answer = (fcntl.fcntl(end, fcntl.F_DUPFD, FIRST_FREE_DESCRIPTOR) for end in ends)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for place, end in enumerate((given, printed, nowhere, sent, answer)):
                os.dup2(end, place)
            try:
                end_with_parent(self._process)
                self._confinement.enter(allowance)
            except OSError as error:
                report_end(_ANSWER, None, f"the program could not be confined: {error}")
                return
            os.closerange(_ANSWER + 1, _MOST_DESCRIPTORS)
            prepare_interpreter(allowance.folder, __name__.partition(".")[0])
            run_program(receive_program(_SENT), _ANSWER)
            code = 0
        finally:
            os._exit(code)


def _send_reply(word: socket.socket, what: dict[str, object], *descriptors: int) -> None:
    try:
        socket.send_fds(word, [json.dumps(what).encode()], descriptors)
    except OSError:  # the receiver has gone; the program ends at its limits
        return
