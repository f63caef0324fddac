"""What holds for every test, of the package and of its plug-ins."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from plugged import show_plugins
from postgres import Cluster, cluster

# The same cases every time, so that a change and not a chance breaks the tests; FUZZ=1 draws new ones. How long a case
# takes says how busy the machine is.
settings.register_profile(
    "tests",
    derandomize=not os.environ.get("FUZZ"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

# Where an image forbids bytecode, each program that tests start would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a test finds does not depend on the keys and servers of the machine; tests of discovery say what is there.
os.environ["SHIKISHA_DISCOVERY"] = "off"

# Journals sync every commit, and no test takes away the power: folders of tests are in memory where there is room.
_MEMORY, _ROOM = Path("/dev/shm"), 2 << 30  # noqa: S108 - pytest makes folders there that only we can read
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# The plug-ins of this tree, whatever is installed.
_PLUGINS = tempfile.TemporaryDirectory(prefix="shikisha-plugins-")
show_plugins(Path(_PLUGINS.name))


def pytest_collection_finish() -> None:
    """Leave what was imported out of every search for garbage: evaluations and trainings begin with one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Let programs that tests start hear SIGINT, which a shell's background jobs (and what they start) ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server, for all tests of a process that do not stop it."""
    with cluster() as running:
        yield running
