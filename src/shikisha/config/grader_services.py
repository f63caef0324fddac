"""What graders need: the judge, and the sandbox that code runs in.

Invariants: the judge is a configured worker, built (and its key read) before the first paid call, and there is none by
default; a sandbox is probed before the first code runs in it, and never used if a probe fails.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from shikisha.config.adapters import CONDUCTOR
from shikisha.config.container import Container
from shikisha.core.errors import ConfigError, UnknownName, WorkerError
from shikisha.core.json_schema import Schema
from shikisha.core.task import Task
from shikisha.engine.rate_limits import ConcurrencyLimits
from shikisha.engine.run_context import RetryPolicy
from shikisha.engine.worker import ChatMessage, Reply, Request
from shikisha.evals.graders import JudgeAsk
from shikisha.sandbox import Execution, Inputs, Sandbox, SandboxScript
from shikisha.sandbox.availability import FULL_PYTHON, available_sandbox, full_python_sandbox, limits_for

_SANDBOX_SECONDS, _SANDBOX_OUTPUT = (
    120.0,
    8_000_000,
)  # for all tests of an answer; its grader limits each test


def open_judge(composition: Container, name: str | None) -> JudgeAsk | None:
    """Return the function that asks the judge of this name; None for None."""
    if name is None:
        return None
    if name not in composition.names:
        raise UnknownName("worker (--judge)", name, composition.names)
    table = composition.workers.get(name)
    if table is not None and table.kind == CONDUCTOR:
        raise ConfigError(f"--judge {name}: a child run cannot judge: name a worker that makes its own calls")
    member = composition.pool([name])[0]
    numbers, policy, gates = count(), RetryPolicy(), ConcurrencyLimits()

    async def ask(turns: Sequence[ChatMessage], schema: Schema) -> Reply:
        key = f"judge-{next(numbers)}"
        request = Request(Task("Judge an answer."), "Judge.", turns=tuple(turns), key=key, schema=schema)
        for retry in range(member.card.attempts):
            try:
                async with gates.hold(member.card), asyncio.timeout(member.card.total):
                    # The reply with dollars by the price of the card, where it has none itself.
                    reply = await member.worker.perform(request)
                    card = member.card
                    if reply.dollars is not None or card.price is None:
                        return reply
                    return replace(reply, dollars=card.price.of(reply.usage))
            except WorkerError as error:
                pause = policy.pause(retry, error.fault.retry_after)
                if not error.fault.kind.retryable or pause is None or retry + 1 == member.card.attempts:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("a card allows at least one attempt")

    return ask


class ProbedSandbox:
    """A sandbox by name ("": the first for full Python that passes) that is probed before its first use.

    ConfigError names the attack that it does not block.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._sandbox: Sandbox | None = None
        self._lock = asyncio.Lock()

    async def probe(self) -> Sandbox:
        """Return the sandbox after its probes."""
        async with self._lock:
            if self._sandbox is None:
                name = self._name
                limits = limits_for(name or FULL_PYTHON[0], _SANDBOX_SECONDS, _SANDBOX_OUTPUT)
                self._sandbox = await (available_sandbox(name, limits) if name else full_python_sandbox(limits))
            return self._sandbox

    async def run(self, code: str, inputs: Inputs, stdin: str = "") -> Execution:
        """Run code."""
        return await (self._sandbox or await self.probe()).run(code, inputs, stdin)

    async def run_pair(
        self, first: SandboxScript, second: SandboxScript, *, share: bool = True
    ) -> tuple[Execution, Execution]:
        """Run two programs that talk to each other."""
        return await (self._sandbox or await self.probe()).run_pair(first, second, share=share)


def sandbox_named(name: str) -> ProbedSandbox:
    """Return the sandbox of this name, not probed yet."""
    return ProbedSandbox(name)
