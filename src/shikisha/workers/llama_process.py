"""The process in which llama.cpp performs one model: `python -m shikisha.workers.llama_process FILE CONTEXT PORT NAME`.

It prints the address of its OpenAI endpoint, on loopback alone, and ends when its standard input does, which is when
the process that started it ends, however that happens. It is a process of its own because a broken file, or a processor
that the runtime was not built for, ends it at once.
"""

import os
import signal
import sys


def main() -> None:
    """Serve until nobody holds the other end of standard input."""
    from xllamacpp import CommonParams, Server

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both; the other one says when to end

    file, context, port, name = sys.argv[1:]
    params = CommonParams()
    params.model.path = file
    params.n_ctx, params.n_parallel, params.port = int(context), 1, int(port)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _processors()
    params.verbosity, params.model_alias = 0, {name}
    server = Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    os.dup2(2, 1)  # nobody reads further lines
    while os.read(0, 4096):
        pass
    os._exit(0)  # llama.cpp's threads need not be waited for


def _processors() -> int:
    """Return how many processors this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
