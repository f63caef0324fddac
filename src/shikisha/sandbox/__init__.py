"""Sandboxes: where code that a model wrote is run, behind one method.

Invariant: code that runs in a sandbox gets its inputs and nothing else: no environment variable, no file, no network,
no other process; it ends within its limits, and however it ends is an Execution, never an exception. Deliberately
absent: installing packages and keeping state between two calls. The shipped fake is `Rehearsed`.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

InputValue: TypeAlias = str | int | float | bool | Sequence[str | None] | None
Inputs: TypeAlias = Mapping[str, InputValue]


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one execution may use: seconds of running and of sleeping, bytes of memory, characters out, call depth."""

    seconds: float = 5.0
    memory: int = 64 * 2**20
    output: int = 100_000
    depth: int = 200


DEFAULT_LIMITS = SandboxLimits()


@dataclass(frozen=True, slots=True)
class Execution:
    """How code ended: what it printed, the text of its last expression's value (None: no value), or an error.

    `parsed` is False when the text, or a text that it evaluates, is no program.
    """

    printed: str = ""
    value: str | None = None
    error: str | None = None
    parsed: bool = True


@dataclass(frozen=True, slots=True)
class SandboxScript:
    """Code and the names that are bound for it."""

    code: str
    inputs: Inputs


class Sandbox(Protocol):
    """Runs one program, or two that talk."""

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code with these names bound and this text to read. Cancellation ends the code at once.

        A sandbox whose code can read nothing (Monty) answers with an error when there is something to read.
        """
        ...

    async def run_pair(self, first: SandboxScript, second: SandboxScript) -> tuple[Execution, Execution]:
        """Run two programs at once, each confined as if alone: what one writes to standard output the other reads.

        Neither can reach the other but by these two pipes, and by files in a folder that they may share. When the first
        has ended, the second is ended. Nothing counts as printed. A sandbox without standard input (Monty) answers
        with an error.
        """
        ...


class ScriptedSandbox:
    """The shipped fake: executions given beforehand, in order, and the code and inputs it was handed."""

    def __init__(self, executions: Iterable[Execution]) -> None:
        self._executions = deque(executions)
        self.calls: list[tuple[str, Inputs]] = []

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:  # noqa: ARG002 - the protocol's
        """Return the next execution."""
        self.calls.append((code, inputs))
        return self._executions.popleft()

    async def run_pair(self, first: SandboxScript, second: SandboxScript) -> tuple[Execution, Execution]:
        """Return the next execution as the first one's; the second has nothing to say."""
        self.calls += [(one.code, one.inputs) for one in (first, second)]
        return self._executions.popleft(), Execution()
