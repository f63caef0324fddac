"""`doctor`: whether everything that a run needs is there, and what to do about what is not.

Invariants: each thing is checked by itself, so that one missing key does not hide the next; nothing is called over the
network unless --call says so, and then inside an engine with caps. With --sandbox, attacks are carried out in each
sandbox on this machine now; a sandbox that fails one of them is not offered.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from shikisha import __version__
from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.first_run import found_container, nothing_found
from shikisha.cli.init import list_workers
from shikisha.cli.options import SharedOptions
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.adapters import WORKER_KINDS
from shikisha.config.container import Container, agent_tools, load_config, tool_effect
from shikisha.config.discovery import Discovery, describe_endpoint, find_endpoints
from shikisha.config.environment import find_config
from shikisha.config.preflight import conductor_notices, conductor_problems
from shikisha.config.providers import MAX_PRICE_DAYS
from shikisha.core.budget import Caps
from shikisha.core.call import ApprovalMode
from shikisha.core.errors import ConfigError, ShikishaError, TaskError
from shikisha.core.events import RunStatus
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.kinds import installed_plugins
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.core.tools import ToolEffect
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.sandbox.availability import FULL_PYTHON, SANDBOX_NAMES, SandboxReport, probe_sandbox
from shikisha.sandbox.security_probes import NOTHING_GAINED

GOOD, NOTE, BAD = "ok", "note", "FAIL"
_EXTRAS = {"pyarrow": "logs", "mcp": "mcp", "asyncpg": "postgres"}
_MAX_TOOLS_NAMED = 8
_REGISTRIES = {
    "workers": "shikisha.config.adapters:WORKER_KINDS",
    "conductors": "shikisha.config.adapters:CONDUCTOR_KINDS",
    "guards": "shikisha.config.adapters:GUARD_KINDS",
    "checks": "shikisha.config.adapters:CHECK_KINDS",
    "gatherers": "shikisha.config.adapters:GATHERER_KINDS",
    "graders": "shikisha.evals.graders.grader_registry:GRADERS",
    "tasksets": "shikisha.evals.tasksets.taskset_loader:LAYOUTS",
    "admissions": "shikisha.config.adapters:ADMISSIONS",
    "commands": "shikisha.cli:PLUGGED",
    "importers": "shikisha.outcomes.importers.importer_registry:SOURCE_KINDS",
}
_CALL_PROMPT = "Reply with the one word: ready"
_CALL_PROMPTS = {"python": 'print("ready")'}  # for kinds that do not understand prose
Call = Annotated[
    bool, typer.Option("--call", help="Ask every worker of the pool for one word; this costs a little money.")
]
Sandbox = Annotated[bool, typer.Option("--sandbox", help="Probe the sandboxes instead, by attacks.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="workers|SANDBOX",
        help="workers: list the pool. With --sandbox: monty, jail, bubblewrap, container[:IMAGE].",
    ),
]


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What was checked, the verdict, and the details."""

    subject: str
    verdict: str
    what: str


def doctor(shared: SharedOptions, name: Name = "", call: Call = False, sandbox: Sandbox = False) -> ExitCode:
    """Check that everything is there to run.

    Checks configuration, keys, workers, conductors and journal; exit code 3 if something is missing. With --sandbox it
    checks whether code is confined on this machine; exit code 3 if the sandbox NAME, or without a name every sandbox
    for full Python, fails a probe.
    """
    if name == "workers" and not sandbox:
        return list_workers(shared)
    if name and not sandbox:
        raise TaskError(f"{name!r}: expected workers; only --sandbox takes another name")
    if sandbox:
        return probe_sandboxes(name, shared.json)
    findings = list(_find_all(shared, call))
    if shared.json:
        output.print_json(
            {"findings": [{"subject": f.subject, "verdict": f.verdict, "what": f.what} for f in findings]}
        )
    else:
        for finding in findings:
            output.print_answer(f"{finding.verdict:<4}  {finding.subject}: {one_line(finding.what, 500)}")
    return ExitCode.CONFIG if any(finding.verdict == BAD for finding in findings) else ExitCode.OK


def _find_all(shared: SharedOptions, call: bool) -> Iterator[DoctorFinding]:
    yield DoctorFinding("shikisha", GOOD, f"{__version__} on Python {sys.version.split()[0]}")
    for library, extra in _EXTRAS.items():
        if find_spec(library) is None:
            yield DoctorFinding(
                f"extra {extra}", NOTE, f"not installed; pip install 'shikisha[{extra}]' brings {library}"
            )

    yield from _check_plugins()
    try:
        configured = find_config(shared.config, os.environ) is not None
        found = Discovery() if configured else find_endpoints(probe=call)
        # What a run without a configuration finds here.
        for endpoint in found.endpoints:
            label, place, models, cost = describe_endpoint(endpoint)
            yield DoctorFinding(f"found {label}", GOOD, f"{place}: {models} ({cost}); `shikisha init` writes it down")
        for remark in found.remarks:
            yield DoctorFinding("left out", NOTE, remark)
        if not configured and not found.named:
            raise nothing_found(Discovery())
        container = load_config(shared.config) if configured else found_container(found)
        container.cards()
    except ShikishaError as error:
        yield from (DoctorFinding("configuration", BAD, line) for line in str(error).splitlines())
        return
    if container.simulated_pool is not None:
        yield DoctorFinding("configuration", NOTE, f"{container.file}: simulated workers answer, as it asks")
    else:
        none = "none: what is found here answers, once you say yes"
        yield DoctorFinding("configuration", GOOD, container.file if configured else none)
    # Which prices were looked up too long ago.
    today = datetime.now(UTC).date()
    for name, table in container.workers.items():
        looked = table.price.as_of if table.price is not None else None
        days = 0 if looked is None else (today - looked).days
        if days > MAX_PRICE_DAYS:
            what = f"looked up on {looked}, {days} days ago; look again, and set price.as_of"
            yield DoctorFinding(f"price of {name}", NOTE, what)
    yield from session.run_async(lambda: _find_in_container(container, shared, call))


def _check_plugins() -> Iterator[DoctorFinding]:
    """Say which kinds are plugged in, from where, and which of them cannot be used."""
    for plugin in installed_plugins():
        what = plugin.group.rpartition(".")[2]
        module, _, name = _REGISTRIES[what].partition(":")
        try:
            registry = getattr(import_module(module), name)
            registry.refuse_clash(plugin)
            registry[plugin.name]
        except ConfigError as error:
            yield DoctorFinding(f"plug-in {what} {plugin.name}", BAD, str(error))
        else:
            yield DoctorFinding(f"plug-in {what} {plugin.name}", GOOD, f"{plugin}, at {plugin.place}")


async def _find_in_container(container: Container, shared: SharedOptions, call: bool) -> list[DoctorFinding]:
    async with aclosing(container):
        parts = (_check_workers, _check_agent_tools, _check_catalogues, _check_conductors)
        findings = [finding for check in parts for finding in check(container)]
        called = (container.settings.pool or container.default_pool) if call else ()
        for name in called:  # each by itself: a fault of one says nothing about the others
            findings += await _call_worker(container, name)
        return [*findings, await _check_journal(container, shared)]


def _check_workers(container: Container) -> Iterator[DoctorFinding]:
    capped = container.caps.dollars is not None
    for name in container.names:
        try:
            card = container.pool([name])[0].card
        except ShikishaError as error:
            yield DoctorFinding(f"worker {name}", BAD, str(error))
            continue
        if capped and card.price is None:
            yield DoctorFinding(f"worker {name}", BAD, "no price is known, so the dollar cap refuses every call to it")
        elif container.simulated_pool is None:
            window = [] if card.context_tokens is None else [f"{card.context_tokens:,} tokens"]
            able = [*window, *(["schema"] if card.schemas else []), *(["tools"] if card.tools else [])]
            yield DoctorFinding(f"worker {name}", GOOD, f"{card.kind} ({', '.join(able)})" if able else card.kind)


def _check_agent_tools(container: Container) -> Iterator[DoctorFinding]:
    """Name the tools of agents that may write without anybody's yes."""
    for name, table in container.workers.items():
        free = []
        for tool in agent_tools(table):
            if tool.startswith("@"):
                continue
            other = container.workers[tool]
            approval = other.approval or container.settings.autonomy.approval
            if tool_effect(other) is not ToolEffect.READ and approval is ApprovalMode.NEVER:
                free.append(f"{tool} ({tool_effect(other)})")
        if free:
            what = f"may call {', '.join(free)} without approval; set effect or approval of each"
            yield DoctorFinding(f"agent {name}", NOTE, what)


def _check_catalogues(container: Container) -> Iterator[DoctorFinding]:
    """Check every lock, and name the tools that write without asking a person."""
    for name, options in container.settings.catalogues.items():
        subject = f"catalogue {name}"
        try:
            lock = container.catalogue(name).read()
        except ShikishaError as error:
            yield DoctorFinding(subject, BAD, str(error))
            continue
        yield DoctorFinding(subject, GOOD, f"{len(lock.entries):,} tools pinned, {lock.pin}")
        asks = options.approval_of(container.settings.autonomy.approval)(True) is ApprovalMode.ALWAYS
        writes = [entry.tool.name for entry in lock.entries if entry.tool.writes]
        if writes and not asks:
            more = f" and {len(writes) - _MAX_TOOLS_NAMED:,} more" if len(writes) > _MAX_TOOLS_NAMED else ""
            named = ", ".join(writes[:_MAX_TOOLS_NAMED])
            yield DoctorFinding(
                subject, NOTE, f'no person approves what may write: {named}{more}; approval = "writes" changes that'
            )


def _check_conductors(container: Container) -> Iterator[DoctorFinding]:
    try:
        pool = container.pool(container.team_pool())
        yield DoctorFinding("pool", GOOD, ", ".join(pool.names))
        yield DoctorFinding("conductor", GOOD, container.conductor("", pool).name)
    except ShikishaError as error:
        yield DoctorFinding("pool and conductor", BAD, str(error))
    for where, trouble in conductor_problems(container):
        if trouble is not None and where != "conductor":
            yield DoctorFinding(where, BAD, str(trouble))
    for notice in conductor_notices(container):
        refuses = NOTE if notice.fallback else BAD
        yield DoctorFinding(notice.where, GOOD if notice.unreadable is None else refuses, str(notice))


async def _call_worker(container: Container, name: str) -> list[DoctorFinding]:
    try:
        pool = container.pool([name])
    except ShikishaError:  # reported as the finding on this worker
        return []
    subject, card = f"call {name}", pool[0].card
    if card.kind in WORKER_KINDS and (why := WORKER_KINDS[card.kind].uncalled):
        return [DoctorFinding(subject, NOTE, f"not called: {why}")]
    engine = Engine(MemoryRecorder(), secret_store=container.secret_store)
    caps = Caps(steps=1, rounds=1, seconds=None)  # each worker has its own time limit
    asked = _CALL_PROMPTS.get(card.kind, _CALL_PROMPT)
    try:
        run = await engine.run(Task(asked), pool, ScriptedConductor([Plan((Step(asked, 0),))]), caps)
    except ShikishaError as error:
        return [DoctorFinding(subject, BAD, str(error))]
    if run.answer is not None:
        return [DoctorFinding(subject, GOOD, f"{run.active_seconds:.1f} s: {run.answer}")]
    if run.status is RunStatus.SUSPENDED:
        return [DoctorFinding(subject, NOTE, "not called: a person must approve each call")]
    results = run.rounds[0].results if run.rounds else ()
    fault = results[0].fault if results and results[0] else None
    return [DoctorFinding(subject, BAD, str(fault) if fault else f"no answer ({run.status})")]


async def _check_journal(container: Container, shared: SharedOptions) -> DoctorFinding:
    try:
        url = shared.journal or container.journal_url()
        absent = _check_new_journal(url)
        if absent is not None:
            return absent
        async with session.open_command_journal(shared, container) as journal:
            newest = await journal.runs(limit=1)
        kept = [Path(url), *([container.folder / memory] if (memory := container.settings.memory.file) else [])]
        shown = [path for path in kept if "://" not in str(path) and path.exists() and path.stat().st_mode & 0o077]
        if shown and os.name == "posix":
            said = ", ".join(f"{path}: others on this machine may read it; to end that: chmod 600" for path in shown)
            return DoctorFinding("journal", NOTE, said)
        return DoctorFinding("journal", GOOD, f"{url.split('@')[-1]}{'' if newest else ', no runs yet'}")
    except ShikishaError as error:
        return DoctorFinding("journal", BAD, str(error))


def _check_new_journal(url: str) -> DoctorFinding | None:
    """Return whether a missing journal can be created; None when it exists, or is not a file."""
    path = Path(url)
    if "://" in url or path.exists():
        return None
    folder = next((parent for parent in path.absolute().parents if parent.exists()), path.parent)
    if os.access(folder, os.W_OK):
        return DoctorFinding("journal", GOOD, f"will be created at {path}")
    return DoctorFinding("journal", BAD, f"{path} cannot be created: {folder} is not writable")


_MAX_DETAIL = 120  # characters of what an attack gained, or how it ended


def probe_sandboxes(name: str, as_json: bool) -> ExitCode:
    """Probe one sandbox, or all without a name; CONFIG where it fails, or none for full Python passes."""
    verdicts = []
    for each in [name] if name else SANDBOX_NAMES:
        verdicts.append(probe_sandbox(each))
        if not as_json:
            _print_verdict(verdicts[-1])
    if as_json:
        output.print_json({"sandboxes": [_verdict_json(verdict) for verdict in verdicts]})
    offered = {verdict.name for verdict in verdicts if verdict.available}
    enough = name in offered if name else "monty" in offered and offered.intersection(FULL_PYTHON)
    return ExitCode.OK if enough else ExitCode.CONFIG


def _print_verdict(verdict: SandboxReport) -> None:
    findings = verdict.findings
    if verdict.trouble is not None:
        output.print_report(f"{verdict.name}: not offered. {one_line(verdict.trouble, 1_000)}")
        return
    blocked = sum(finding.blocked for finding in findings)
    stands = "offered" if verdict.available else "NOT OFFERED"
    output.print_report(f"{verdict.name}: {stands}. {blocked} of {len(findings)} attacks were blocked")
    output.print_report("\n".join(_verdict_lines(verdict)))


def _verdict_lines(verdict: SandboxReport) -> Sequence[str]:
    return [
        f"  {'blocked' if each.blocked else 'NOT blocked':<11}  {each.milliseconds:>6,.0f} ms  {each.probe}"
        f"{'' if each.blocked and each.what == NOTHING_GAINED else f': {one_line(each.what, _MAX_DETAIL)}'}"
        for each in verdict.findings
    ]


def _verdict_json(verdict: SandboxReport) -> dict[str, object]:
    return {
        "name": verdict.name,
        "offered": verdict.available,
        "trouble": verdict.trouble,
        "probes": [
            {"probe": each.probe, "blocked": each.blocked, "what": each.what, "ms": round(each.milliseconds, 1)}
            for each in verdict.findings
        ],
    }
