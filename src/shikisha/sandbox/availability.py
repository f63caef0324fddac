"""Which sandboxes there are, and whether one is offered here: it is, when it withstood every attack on this machine.

Invariants: what is not offered is not handed out, and nothing stands in for it; an unknown name is an error that lists
the known ones. What was found is kept for this process only: probing takes a second or two, once, and what it rests on
(kernel settings, security modules, an engine's configuration) can be another tomorrow, which a file would not know.
Monty is handed out unprobed by `sandbox.monty` itself, for it has no system beneath it that could differ from machine
to machine; asked for here, it is probed like the others.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Protocol

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.sandbox import DEFAULT_LIMITS, Sandbox, SandboxLimits
from shikisha.sandbox.security_probes import PROBE_LIMITS, ProbeResult, run_probes

FULL_PYTHON = ("jail", "bubblewrap", "container")  # full Python, the quickest first
SANDBOX_NAMES = ("monty", *FULL_PYTHON)
_ADVICE: Mapping[str, str] = {
    "jail": "it needs Linux 5.13 or newer with Landlock; where that cannot be had, install bubblewrap or docker",
    "bubblewrap": "install the package bubblewrap, on a system on which users may make namespaces; or use the jail",
    "container": "install docker or podman, start its service and fetch the image; or use the jail",
    "monty": "install another version of pydantic-monty",
}
_reports: dict[str, "SandboxReport"] = {}
_lock = Lock()


class ClosableSandbox(Sandbox, Protocol):
    """A sandbox that can be closed."""

    async def aclose(self) -> None:
        """Give up what it holds."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What probing a sandbox showed; `trouble` when it could not even be probed."""

    name: str
    findings: tuple[ProbeResult, ...] = ()
    trouble: str | None = None

    @property
    def available(self) -> bool:
        """Whether it may be used: every attack was blocked."""
        return self.trouble is None and all(finding.blocked for finding in self.findings)

    @property
    def why_not(self) -> str:
        """Say why it is not offered, and what to do about it."""
        failed = [f"{finding.probe} ({finding.what})" for finding in self.findings if not finding.blocked]
        why = self.trouble or f"it did not withstand: {'; '.join(failed)}"
        return f"the sandbox {self.name} is not offered here: {why}. {_ADVICE[_kind_of(self.name)].capitalize()}"


def limits_for(name: str, seconds: float, output: int, memory: int | None = None) -> SandboxLimits:
    """Return limits with a sandbox's own defaults for what is not said (full Python needs more memory than Monty)."""
    default = _default_limits(name)
    return replace(default, seconds=seconds, output=output, memory=memory or default.memory)


def build_sandbox(name: str, limits: SandboxLimits | None = None) -> ClosableSandbox:
    """Return a sandbox, unprobed. `container:IMAGE` names an image too. ConfigError where it cannot be had."""
    kind = _kind_of(name)
    if kind in FULL_PYTHON and sys.platform != "linux":
        raise ConfigError(f"full Python is confined by Linux, and this is {sys.platform}")
    return _BUILDERS[kind](limits or _default_limits(name), name.partition(":")[2])


def probe_sandbox(name: str) -> SandboxReport:
    """Probe a sandbox, or return what an earlier probe in this process showed. Blocks for a second or two."""
    _kind_of(name)
    with _lock:
        if name not in _reports:
            with ThreadPoolExecutor(1) as thread:  # an event loop of its own, whether or not one runs here
                _reports[name] = thread.submit(asyncio.run, _probe_unshared(name)).result()
        return _reports[name]


def obtain_sandbox(name: str, limits: SandboxLimits | None = None) -> Sandbox:
    """Return a sandbox that withstands every attack here, shared in this process; ConfigError says why not. Blocks."""
    verdict = probe_sandbox(name)
    if not verdict.available:
        raise ConfigError(verdict.why_not)
    return _shared(name, limits or _default_limits(name))


async def available_sandbox(name: str, limits: SandboxLimits | None = None) -> Sandbox:
    """Return what `obtain` does, without blocking the event loop."""
    return await asyncio.to_thread(obtain_sandbox, name, limits)


async def full_python_sandbox(limits: SandboxLimits | None = None) -> Sandbox:
    """Return the first sandbox for full Python that is offered; ConfigError says of each why it is not."""
    troubles = []
    for name in FULL_PYTHON:
        try:
            return await available_sandbox(name, limits)
        except ConfigError as error:
            troubles.append(str(error))
    raise ConfigError("; ".join(troubles))


async def _probe_unshared(name: str) -> SandboxReport:
    try:
        sandbox = build_sandbox(name, PROBE_LIMITS)
        try:
            return SandboxReport(name, tuple(await run_probes(sandbox)))
        finally:
            await sandbox.aclose()
    except ConfigError as error:
        return SandboxReport(name, trouble=str(error))


def _kind_of(name: str) -> str:
    kind, colon, _ = name.partition(":")
    if kind not in SANDBOX_NAMES or (colon and kind != "container"):
        raise UnknownName("sandbox", name, SANDBOX_NAMES)
    return kind


def _default_limits(name: str) -> SandboxLimits:
    if _kind_of(name) == "monty":
        return DEFAULT_LIMITS
    from shikisha.sandbox.process_sandbox import FULL_PYTHON_LIMITS as OF_FULL_PYTHON

    return OF_FULL_PYTHON


@cache
def _shared(name: str, limits: SandboxLimits) -> Sandbox:
    if name == "monty":
        from shikisha.sandbox.monty import shared_monty

        return shared_monty(limits)
    return build_sandbox(name, limits)


def _build_monty(limits: SandboxLimits, _: str) -> ClosableSandbox:
    from shikisha.sandbox.monty import MontySandbox

    return MontySandbox(limits)


def _build_jail(limits: SandboxLimits, _: str) -> ClosableSandbox:
    from shikisha.sandbox.process_sandbox import ProcessSandbox

    return ProcessSandbox(limits)


def _build_bubblewrap(limits: SandboxLimits, _: str) -> ClosableSandbox:
    from shikisha.sandbox import process_sandbox

    return process_sandbox.bubblewrap_sandbox(limits)


def _build_container(limits: SandboxLimits, image: str) -> ClosableSandbox:
    from shikisha.sandbox import container

    return container.container_sandbox(limits, image or container.IMAGE)


_BUILDERS: Mapping[str, Callable[[SandboxLimits, str], ClosableSandbox]] = {
    "monty": _build_monty,
    "jail": _build_jail,
    "bubblewrap": _build_bubblewrap,
    "container": _build_container,
}
