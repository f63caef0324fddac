"""A worker that runs code: the code in its subtask, or in the last result that it is granted.

Invariant: the code runs in a sandbox and sees `question`, `context` and `results` (the granted answers in order; None
for a step that has none), which is what a Request holds and nothing else (2). Deliberately absent: state between calls.
"""

from typing import Literal

from pydantic import Field

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.text import fenced_blocks
from shikisha.core.toml import Table
from shikisha.engine.worker import Card, Reply, Request, WorkerKind
from shikisha.sandbox import DEFAULT_LIMITS, Execution, Sandbox, SandboxLimits

_MAX_PARTIAL = 2_000


class PythonSettings(Table):
    """The sandbox, and the limits of one execution: seconds, bytes of memory, characters of output.

    `monty` runs small pure code at once; the others run full Python. Without `memory` each sandbox uses its own
    default. `image` is for containers.
    """

    sandbox: Literal["monty", "jail", "bubblewrap", "container"] = Field(
        default="monty", description="where the code runs; monty takes a subset of Python, the others run full Python"
    )
    image: str | None = Field(default=None, description="the container image, where the sandbox is container")
    seconds: float = Field(default=5.0, gt=0, le=600, description="the most seconds of one execution")
    memory: int | None = Field(
        default=None, ge=2**20, description="the most memory in bytes; by default the sandbox's own limit"
    )
    output: int = Field(default=100_000, ge=1, description="the most characters of output")


Settings = PythonSettings  # the name that `config.kinds` looks up


def build(settings: PythonSettings, card: Card, secret_store: SecretStore) -> "PythonWorker":  # noqa: ARG001 - every adapter's signature
    """Return a worker on this process's sandbox. ConfigError when the sandbox does not withstand the probes here."""
    from shikisha.sandbox.availability import limits_for, obtain_sandbox, shared_monty

    if settings.sandbox == "monty":
        memory = settings.memory or DEFAULT_LIMITS.memory
        return PythonWorker(shared_monty(SandboxLimits(settings.seconds, memory, settings.output)))
    name = f"container:{settings.image}" if settings.sandbox == "container" and settings.image else settings.sandbox
    return PythonWorker(obtain_sandbox(name, limits_for(name, settings.seconds, settings.output, settings.memory)))


KIND = WorkerKind(settings=PythonSettings, build=build, any_task=True)


class PythonWorker:
    """Answers with what the code prints, or with the value of its last expression."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def perform(self, request: Request) -> Reply:
        """Run the code; TOOL_ERROR with the code's own message when it fails or has no result."""
        blocks = fenced_blocks(request.subtask)
        execution = await self._run(blocks[0] if len(blocks) == 1 else request.subtask, request)
        if not execution.parsed:
            texts = [granted.text for granted in request.granted if granted.text is not None]
            blocks = fenced_blocks(texts[-1]) if texts else []
            earlier = blocks[-1] if blocks else None
        else:
            earlier = None
        if earlier is not None:
            execution = await self._run(earlier, request)
        return Reply(_answer(execution))

    async def _run(self, code: str, request: Request) -> Execution:
        results = [granted.text for granted in request.granted]
        inputs = {"question": request.task.prompt, "context": request.task.context, "results": results}
        return await self._sandbox.run(code, inputs)


def _answer(execution: Execution) -> str:
    if execution.error is not None:
        raise WorkerError(FaultKind.TOOL_ERROR, execution.error, partial=execution.printed[:_MAX_PARTIAL] or None)
    answer = execution.printed.rstrip("\n") or execution.value or ""
    if not answer.strip():
        raise WorkerError(FaultKind.TOOL_ERROR, "the code printed nothing and its last line has no value")
    return answer
