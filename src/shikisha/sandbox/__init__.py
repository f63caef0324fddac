"""Sandboxes: where code that a model wrote runs, behind one method.

Each sandbox is one module (`process_sandbox`, `container`, `monty`); `availability` says which may be used on this
machine, after `security_probes` has attacked them; `child` is what runs on the inner side. Graders, checks and the
Python worker import this package and `availability`; nothing here imports them.

Invariant: code in a sandbox gets its inputs and nothing else: no environment variable, file, network or other process.
It ends within its limits, and every ending is an Execution, never an exception. Deliberately absent: installing
packages, and state between two calls. The shipped fake is `ScriptedSandbox`.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

InputValue: TypeAlias = str | int | float | bool | Sequence[str | None] | None
Inputs: TypeAlias = Mapping[str, InputValue]


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one execution: seconds (to run, and to sleep), bytes of memory, characters of output, call depth."""

    seconds: float = 5.0
    memory: int = 64 * 2**20
    output: int = 100_000
    depth: int = 200


DEFAULT_LIMITS = SandboxLimits()
FULL_PYTHON_LIMITS = SandboxLimits(seconds=5.0, memory=512 * 2**20, output=100_000, depth=1_000)


@dataclass(frozen=True, slots=True)
class Execution:
    """How code ended: its output, the text of its last expression's value (None: no value), or an error.

    `parsed` is False when the code, or code that it evaluates, has a syntax error.
    """

    printed: str = ""
    value: str | None = None
    error: str | None = None
    parsed: bool = True


@dataclass(frozen=True, slots=True)
class SandboxScript:
    """Code, and the names bound for it."""

    code: str
    inputs: Inputs


class Sandbox(Protocol):
    """Runs one program, or two that communicate."""

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code with these names bound and this text to read. Cancellation ends the code at once.

        A sandbox without standard input (Monty) returns an error if `stdin` is not empty.
        """
        ...

    async def run_pair(
        self, first: SandboxScript, second: SandboxScript, *, share: bool = True
    ) -> tuple[Execution, Execution]:
        """Run two programs at once, each confined as if alone: each reads the other's standard output.

        They can reach each other only by these two pipes and, with `share`, by files in a folder that they may have in
        common. When the first ends, the second is killed. Nothing counts as printed. A sandbox without standard input
        (Monty) returns an error.
        """
        ...


class ScriptedSandbox:
    """The shipped fake: returns known executions in order, and records code and inputs in `calls`."""

    def __init__(self, executions: Iterable[Execution]) -> None:
        self._executions = deque(executions)
        self.calls: list[tuple[str, Inputs]] = []

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:  # noqa: ARG002 - the protocol's
        """Return the next execution."""
        self.calls.append((code, inputs))
        return self._executions.popleft()

    async def run_pair(
        self,
        first: SandboxScript,
        second: SandboxScript,
        *,
        share: bool = True,  # noqa: ARG002 - the protocol's
    ) -> tuple[Execution, Execution]:
        """Return the next execution for the first program, and an empty one for the second."""
        self.calls += [(one.code, one.inputs) for one in (first, second)]
        return self._executions.popleft(), Execution()
