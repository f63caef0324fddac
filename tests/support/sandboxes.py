"""What tests of sandboxes share: a jail where one can be had, a sandbox without any wall, and looks at /proc."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from shikisha.sandbox import Execution, Inputs, SandboxLimits, SandboxScript, security_probes
from shikisha.sandbox.child.confinement import support_problem
from shikisha.sandbox.process_sandbox import ProcessSandbox

PATIENT = SandboxLimits(seconds=60, memory=512 * 2**20, output=100_000, depth=1_000)
NEEDS_A_JAIL = pytest.mark.skipif(support_problem() is not None, reason=str(support_problem()))
_OPEN = "import json, sys\nglobals().update(json.loads(sys.argv[1]))\nexec(sys.argv[2])"


@asynccontextmanager
async def jailed(limits: SandboxLimits = PATIENT, processes: int = 2) -> AsyncIterator[ProcessSandbox]:
    """A jail that is closed at the end."""
    async with ProcessSandbox(limits, processes) as jail:
        yield jail


def from_us() -> set[int]:
    """The processes that come from this one."""
    return {entry.process for entry in security_probes.descendant_processes(security_probes.list_processes())}


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that sends no event; a hang here is the failure."""
    while not holds():  # noqa: ASYNC110 - /proc has no events
        await asyncio.sleep(0.01)


class Open:
    """What looks like a sandbox and confines nothing but the time: its programs run as we do."""

    def __init__(self, seconds: float = 3.0) -> None:
        self._seconds = seconds

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:  # noqa: ARG002 - the protocol's
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own interpreter; a moment
                [sys.executable, "-c", _OPEN, json.dumps(dict(inputs)), code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
            )
            try:
                return await asyncio.to_thread(self._ended, process)
            finally:
                process.kill()

    async def run_pair(
        self,
        first: SandboxScript,
        second: SandboxScript,
        *,
        share: bool = True,  # noqa: ARG002 - the protocol's
    ) -> tuple[Execution, Execution]:
        """Run two programs one after the other: no probe talks with a second one."""
        return await self.run(first.code, first.inputs), await self.run(second.code, second.inputs)

    def _ended(self, process: "subprocess.Popen[bytes]") -> Execution:
        with process:
            try:
                printed, _ = process.communicate(timeout=self._seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                return Execution(error="TimeoutError: no end")
            return Execution(printed.decode(errors="replace"))
