"""The first process of a container: it starts the server, passes signals on, and waits for all that the server leaves.

When a container's first process ends, every other one in it is killed at once; the server's watchdog, which blames the
run that took the server down, would not come to that. Invariant: the exit status is the server's own. Deliberately
absent: starting the server again (the container's runtime does).
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep

_PATIENCE = 15.0  # seconds that what the server left gets to end


def is_first() -> bool:
    """Whether this process is the first one of a container."""
    return os.getpid() == 1


def serve_as_child() -> int:
    """Run this very command in a child, and return its exit status once nothing of it is left."""
    server = subprocess.Popen([sys.executable, *sys.orig_argv[1:]])  # noqa: S603 - as we were started ourselves
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: server.send_signal(number))
    status = server.wait()
    until = monotonic() + _PATIENCE
    with suppress(ChildProcessError):  # until no child is left, adopted ones included
        while monotonic() < until:
            os.waitpid(-1, os.WNOHANG)
            sleep(0.05)
    return status if status >= 0 else 128 - status
