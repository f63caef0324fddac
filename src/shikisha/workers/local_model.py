"""A model of this machine behind the chat worker: a server process of llama.cpp that starts at the first call.

Workers of one file share one process. Invariants: the process ends with the last worker that uses it, and with this
one; where it cannot start, the fault says why: too little memory, a processor without AVX2, a file that is no model.
"""

import asyncio
import os
import platform
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer
from weakref import WeakValueDictionary, finalize

from shikisha.core.errors import FaultKind, MissingExtra, WorkerError
from shikisha.core.text import one_line
from shikisha.workers.model_files import known_models, model_file, models_folder

_START_SECONDS = 180.0
_SPARE_BYTES = 300_000_000  # what a model needs besides its file: the context and buffers
CONTEXT = 4096
_ILLEGAL = "this processor lacks instructions that the runtime was built with (AVX2, FMA)"


def has_runtime() -> bool:
    """Whether what performs local models is installed (extra `local`)."""
    return find_spec("xllamacpp") is not None


class LocalModel:
    """One model file, and the address at which it answers."""

    def __init__(self, model: str, context: int | None) -> None:
        """Name a model; ConfigError where it is not on this machine or not what it should be."""
        if not has_runtime():
            raise MissingExtra("local", f"a model on this machine ({model})")
        known = known_models().get(model)
        self._model, self._file = model, model_file(model, models_folder())
        self.system = known.system if known else ""
        self._context = context or (known.context_tokens if known else CONTEXT)
        self._server: LlamaServer | None = None

    async def address(self) -> str:
        """Return the base URL of the running server, started where it is not; WorkerError where it cannot be."""
        if self._server is None or self._server.ended:
            self._server = await asyncio.to_thread(LlamaServer.shared, self._file, self._context, self._model)
        return f"{self._server.url}/v1"

    def close(self) -> None:
        """Let go of the server, which ends where nobody else uses it."""
        self._server = None


class LlamaServer:
    """A running server process."""

    def __init__(self, file: Path, context: int, name: str, port: int = 0) -> None:
        """Start it and wait until it answers; WorkerError says why it does not."""
        if problem := _shortage(file.stat().st_size, _available_memory()) or processor_problem(_processor_flags()):
            raise WorkerError(FaultKind.CONNECT, f"{file.name}: {problem}")
        command = [sys.executable, "-m", "shikisha.workers.llama_process", str(file), str(context), str(port), name]
        # Threads that wait spinning take the processor from all others, the other threads of the model included.
        quiet = {"OMP_WAIT_POLICY": "passive", **os.environ}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=quiet)  # noqa: S603 - our own module
        self._end = finalize(self, _end_process, self.process)
        timer = Timer(_START_SECONDS, self.process.kill)
        timer.start()
        try:
            self.url = self._read_address(file)
        finally:
            timer.cancel()
        assert self.process.stderr is not None  # noqa: S101 - it was made above
        self.process.stderr.close()

    @classmethod
    def shared(cls, file: Path, context: int, name: str) -> "LlamaServer":
        """Return the running server of a file, started where none runs."""
        with _LOCK:
            found = _RUNNING.get((file, context))
            if found is None or found.ended:
                found = _RUNNING[file, context] = cls(file, context, name)
            return found

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self.process.poll() is not None

    def close(self) -> None:
        """End the process."""
        self._end()

    def _read_address(self, file: Path) -> str:
        if self.process.stdout is not None:
            for line in self.process.stdout:
                if (address := line.decode(errors="replace").strip()).startswith("http://127.0.0.1:"):
                    return address
        said = self.process.stderr.read().decode(errors="replace") if self.process.stderr is not None else ""
        raise WorkerError(FaultKind.CONNECT, f"{file.name}: {exit_problem(self.process.wait(), said)}")


_LOCK = Lock()
_RUNNING: WeakValueDictionary[tuple[Path, int], LlamaServer] = WeakValueDictionary()


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def exit_problem(code: int, said: str) -> str:
    """Return why a server process ended before it answered, from its exit code and its last words."""
    illegal = 0xC000001D  # Windows: STATUS_ILLEGAL_INSTRUCTION
    if code in (-getattr(signal, "SIGILL", 4), illegal):
        return _ILLEGAL
    if code == -getattr(signal, "SIGKILL", 9):
        return "the system ended it: too little memory, or it did not start in time"
    last = [line for line in said.splitlines() if line.strip()]
    return f"llama.cpp cannot load it (exit code {code}): {one_line(last[-1], 200) if last else 'it said nothing'}"


def processor_problem(flags: str) -> str:
    """Return what an x86-64 processor with these flags lacks; empty where it lacks nothing or they are not known."""
    have = set(flags.split())
    missing = [each for each in ("avx2", "fma") if have and each not in have]
    return f"{_ILLEGAL}: it has no {', '.join(missing)}" if missing else ""


def _processor_flags() -> str:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")


def _shortage(size: int, available: int | None) -> str:
    """Return what is missing of the memory for a model file of this many bytes; empty where it suffices."""
    needed = size + _SPARE_BYTES
    if available is None or available >= needed:
        return ""
    return f"too little memory: it needs {needed / 1e6:,.0f} MB, and {available / 1e6:,.0f} MB are available"


def _available_memory() -> int | None:
    """Return the bytes that this process may still use, its control group's limit included; None where unknown."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        found += [int(limit) - used] if limit.isdecimal() else []
    except (OSError, ValueError):
        pass
    return min(found, default=None)
