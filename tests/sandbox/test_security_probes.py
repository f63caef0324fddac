"""Probing: an open sandbox fails every probe, real ones withstand them all, and what fails is not handed out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxes import NEEDS_A_JAIL, Open, from_us
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.secrets import SecretStore
from shikisha.sandbox import Execution, ScriptedSandbox, availability, security_probes
from shikisha.sandbox.availability import (
    FULL_PYTHON,
    SANDBOX_NAMES,
    SandboxReport,
    available_sandbox,
    limits_for,
    obtain_sandbox,
    probe_sandbox,
)
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha.sandbox.security_probes import PROBES, Probe, ProbeResult, probe_scene, run_probe, run_probes
from shikisha.workers import python

pytestmark = pytest.mark.alone

AS_ROOT = os.geteuid() == 0
IMAGE = os.environ.get("SHIKISHA_TEST_IMAGE")  # an image with Python that an engine here has
CARD = Card("python", kind="python", price=Price())


@pytest.mark.parametrize("one", [each for each in PROBES if each.name != "endless loop"], ids=lambda each: each.name)
async def test_an_open_sandbox_fails_the_probe(one: Probe) -> None:
    if one.name == "read /etc/shadow" and not AS_ROOT:
        pytest.skip("only root can read it where nothing is in the way")
    with probe_scene() as laid:
        finding = await run_probe(one, Open(), laid)
    assert not finding.blocked, finding.what
    assert finding.what != "it had no time to run"
    assert security_probes.processes_named(laid.marker) == []


async def test_what_never_ends_and_what_had_no_time_do_not_pass() -> None:
    loop = PROBES[-1]
    with probe_scene() as laid:
        finding = await run_probe(loop, Open(seconds=60), laid)
        assert (finding.blocked, finding.what.partition(" after")[0]) == (False, "still running")
        hurried = ScriptedSandbox([Execution(error="TimeoutError: no end")] * 3)
        finding = await run_probe(PROBES[0], hurried, laid)
        assert (finding.blocked, finding.what, len(hurried.calls)) == (False, "it had no time to run", 3)
        later = ScriptedSandbox([Execution(error="TimeoutError: no end"), Execution("nothing")])
        assert (await run_probe(PROBES[0], later, laid)).blocked


async def test_a_sandbox_that_runs_nothing_is_not_probed() -> None:
    with pytest.raises(ConfigError, match="does not run a simple program: broken"):
        await run_probes(ScriptedSandbox([Execution(error="broken")]))


def test_a_scene_is_cleared_away() -> None:
    before = set(Path.home().iterdir()), from_us()
    with probe_scene() as laid:
        assert laid.at_home.read_text() == laid.secret
        assert laid.kept.parent.exists()
    assert not laid.kept.parent.exists()
    assert (set(Path.home().iterdir()), from_us()) == before


@pytest.mark.parametrize(
    "name",
    [
        "monty",
        pytest.param("jail", marks=NEEDS_A_JAIL),
        pytest.param(
            "bubblewrap", marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="bwrap is not installed")
        ),
        pytest.param(
            f"container:{IMAGE}", marks=pytest.mark.skipif(not IMAGE, reason="no SHIKISHA_TEST_IMAGE is named")
        ),
    ],
)
async def test_what_is_offered_withstands_every_attack_and_runs_programs(name: str) -> None:
    before = from_us()
    verdict = probe_sandbox(name)
    assert verdict.trouble is None
    assert [(finding.probe, finding.what) for finding in verdict.findings if not finding.blocked] == []
    assert [finding.probe for finding in verdict.findings] == [one.name for one in PROBES]
    assert from_us() == before
    sandbox = availability.build_sandbox(name)
    assert (await sandbox.run("print(x)\n6 * x", {"x": 7})) == Execution("7\n", "42")
    assert "ZeroDivisionError" in str((await sandbox.run("1 / 0", {})).error)
    await sandbox.aclose()


@NEEDS_A_JAIL
async def test_a_sandbox_is_probed_once_in_a_process_and_shared() -> None:
    first, second = await available_sandbox("jail"), await available_sandbox("jail")
    assert first is second
    assert probe_sandbox("jail") is probe_sandbox("jail")
    assert isinstance(first, ProcessSandbox)
    assert first.limits.memory == 512 * 2**20
    other = obtain_sandbox("jail", limits_for("jail", seconds=1, output=10))
    assert isinstance(other, ProcessSandbox)
    assert (other.limits.seconds, other.limits.output, other.limits.memory) == (1, 10, 512 * 2**20)


@pytest.mark.parametrize("name", ["nothing", "jail:image", ""])
def test_an_unknown_sandbox_is_an_error_that_lists_the_known(name: str) -> None:
    for ask in (probe_sandbox, obtain_sandbox, availability.build_sandbox):
        with pytest.raises(UnknownName, match="known are bubblewrap, container, jail, monty"):
            ask(name)


def test_why_not_says_what_got_through_and_what_to_do() -> None:
    findings = (ProbeResult("TCP", False, "it reached our listener: TCP", 1.0), ProbeResult("UDP", True, "", 1.0))
    verdict = SandboxReport("jail", findings)
    assert not verdict.available
    assert verdict.why_not.startswith("the sandbox jail is not available here: it did not withstand: TCP (it reached")
    assert "install bubblewrap" in verdict.why_not
    assert SandboxReport("jail", findings[1:]).available
    assert not SandboxReport("jail", (), "no Landlock").available


def without_programs(*command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command where no program is on the path."""
    environment = {**os.environ, "PATH": "/nonexistent"}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120)  # noqa: S603 - ours


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("bubblewrap", "there is no program bwrap"),
        ("container", "docker is not installed; podman is not installed"),
    ],
)
def test_what_is_not_installed_is_not_offered_and_the_command_says_so(name: str, trouble: str) -> None:
    told = without_programs("-m", "shikisha", "doctor", "--sandbox", name, "--json")
    (record,) = json.loads(told.stdout)["sandboxes"]
    assert (told.returncode, record["name"], record["offered"], record["probes"]) == (3, name, False, [])
    assert trouble in record["trouble"]
    program = f"from shikisha.sandbox.availability import obtain_sandbox\nobtain_sandbox({name!r})"
    assert trouble in without_programs("-c", program).stderr


@NEEDS_A_JAIL
def test_the_doctor_lists_every_probe() -> None:
    told = CliRunner().invoke(app, ["doctor", "--sandbox", "jail"])
    first, *lines = told.stdout.splitlines()
    assert told.exit_code == 0
    assert first == f"jail: offered. {len(PROBES)} of {len(PROBES)} attacks were blocked"
    assert [line.partition(" ms  ")[2].partition(":")[0] for line in lines] == [one.name for one in PROBES]
    assert all(line.strip().startswith("blocked") for line in lines)


def test_the_doctor_takes_a_name_for_sandboxes_only() -> None:
    assert CliRunner().invoke(app, ["doctor", "jail"]).exit_code == 2
    assert CliRunner().invoke(app, ["doctor", "--sandbox", "nothing"]).exit_code == 3


@NEEDS_A_JAIL
async def test_the_python_worker_runs_full_python_where_it_is_told_to() -> None:
    settings = python.PythonSettings(sandbox="jail", seconds=20)
    worker = python.build(settings, CARD, SecretStore({}))
    execution = await worker._sandbox.run("import os, decimal\nlen(os.environ)", {})
    assert execution.value == "2"


def test_the_python_worker_is_refused_a_sandbox_that_is_not_there() -> None:
    program = (
        "from shikisha.workers import python\nfrom shikisha.core.secrets import SecretStore\n"
        "python.build(python.PythonSettings(sandbox='bubblewrap'), None, SecretStore({}))"
    )
    assert (
        "the sandbox bubblewrap is not available here: there is no program bwrap"
        in without_programs("-c", program).stderr
    )


@NEEDS_A_JAIL
async def test_full_python_is_run_by_the_quickest_that_is_offered() -> None:
    assert ("monty", *FULL_PYTHON) == SANDBOX_NAMES == ("monty", "jail", "bubblewrap", "container")
    assert (await availability.full_python_sandbox()) is (await available_sandbox("jail"))
