"""Which sandboxes exist, and which are available here: those that withstood every attack on this machine.

Invariants: a sandbox that is not available is not handed out, and nothing replaces it. An unknown name is an error that
lists the known ones. Results are kept for this process only: probing takes a second or two, and kernel settings,
security modules or an engine's configuration may differ tomorrow. Monty is usually created without probing
(`sandbox.monty`), since it has no operating system beneath it that could differ; requested here, it is probed too.
"""

import asyncio
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Protocol

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.sandbox import DEFAULT_LIMITS, FULL_PYTHON_LIMITS, Sandbox, SandboxLimits
from shikisha.sandbox.container import IMAGE, container_sandbox
from shikisha.sandbox.monty import MontySandbox, shared_monty
from shikisha.sandbox.process_sandbox import ProcessSandbox, bubblewrap_sandbox
from shikisha.sandbox.security_probes import PROBE_LIMITS, ProbeResult, run_probes

FULL_PYTHON = ("jail", "bubblewrap", "container")  # full Python, the fastest first
SANDBOX_NAMES = ("monty", *FULL_PYTHON)
_ADVICE: Mapping[str, str] = {
    "jail": "it needs Linux 5.13 or newer with Landlock; where that is missing, install bubblewrap or docker",
    "bubblewrap": "install the package bubblewrap, on a system on which users may make namespaces; or use the jail",
    "container": "install docker or podman, start its service and fetch the image; or use the jail",
    "monty": "install another version of pydantic-monty",
}
_reports: dict[str, "SandboxReport"] = {}
_lock = Lock()


class ClosableSandbox(Sandbox, Protocol):
    """A sandbox that can be closed."""

    async def aclose(self) -> None:
        """Release its resources."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """The result of probing a sandbox; `trouble` when it could not be probed."""

    name: str
    findings: tuple[ProbeResult, ...] = ()
    trouble: str | None = None

    @property
    def available(self) -> bool:
        """Whether it may be used: it blocked every attack."""
        return self.trouble is None and all(finding.blocked for finding in self.findings)

    @property
    def why_not(self) -> str:
        """Explain why it is not available, and what to do about it."""
        failed = [f"{finding.probe} ({finding.what})" for finding in self.findings if not finding.blocked]
        why = self.trouble or f"it did not withstand: {'; '.join(failed)}"
        return f"the sandbox {self.name} is not available here: {why}. {_ADVICE[_kind_of(self.name)].capitalize()}"


def limits_for(name: str, seconds: float, output: int, memory: int | None = None) -> SandboxLimits:
    """Return limits, with a sandbox's own defaults for the rest (full Python needs more memory than Monty)."""
    default = _default_limits(name)
    return replace(default, seconds=seconds, output=output, memory=memory or default.memory)


def build_sandbox(name: str, limits: SandboxLimits | None = None) -> ClosableSandbox:
    """Return a sandbox, unprobed. `container:IMAGE` selects an image. ConfigError when it cannot be created."""
    kind, limits = _kind_of(name), limits or _default_limits(name)
    if kind in FULL_PYTHON and sys.platform != "linux":
        raise ConfigError(f"full Python is confined by Linux, and this is {sys.platform}")
    match kind:
        case "monty":
            return MontySandbox(limits)
        case "jail":
            return ProcessSandbox(limits)
        case "bubblewrap":
            return bubblewrap_sandbox(limits)
        case _:
            return container_sandbox(limits, name.partition(":")[2] or IMAGE)


def probe_sandbox(name: str) -> SandboxReport:
    """Probe a sandbox, or return this process's earlier result. Blocks for a second or two."""
    _kind_of(name)
    with _lock:
        if name not in _reports:
            # An event loop of its own, whether or not one runs here.
            with ThreadPoolExecutor(1) as thread:
                _reports[name] = thread.submit(asyncio.run, _probe_unshared(name)).result()
        return _reports[name]


def obtain_sandbox(name: str, limits: SandboxLimits | None = None) -> Sandbox:
    """Return a sandbox that withstands every attack here, shared in this process, or raise ConfigError. Blocks."""
    report = probe_sandbox(name)
    if not report.available:
        raise ConfigError(report.why_not)
    return _shared(name, limits or _default_limits(name))


async def available_sandbox(name: str, limits: SandboxLimits | None = None) -> Sandbox:
    """Return the result of `obtain_sandbox` without blocking the event loop."""
    return await asyncio.to_thread(obtain_sandbox, name, limits)


async def full_python_sandbox(limits: SandboxLimits | None = None) -> Sandbox:
    """Return the first available sandbox for full Python; ConfigError explains for each why it is not available."""
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
    return DEFAULT_LIMITS if _kind_of(name) == "monty" else FULL_PYTHON_LIMITS


@cache
def _shared(name: str, limits: SandboxLimits) -> Sandbox:
    return shared_monty(limits) if name == "monty" else build_sandbox(name, limits)
