"""What runs a repository's tests: pytest in a process of its own, with the package under test in another one.

This file's text is sent to the sandbox after that of `harness_runner`. In the test runner's process each module of the
package is a stand-in that asks the other process (`serve_package`), so a patch has no frame, assertion, fixture or
report within reach: it sees calls with plain data, as single programs do. A test has passed only if pytest says so, no
assertion failed that the test did not catch, and the harness refused nothing meanwhile. `run_pytest_here` runs tests
and package in one process, for tests that need shared objects; its report begins with a nonce. Deliberately absent: the
verdict, and which tests need shared objects (`repositories.patch_grader`).
"""

import base64
import builtins
import importlib
import io
import json
import os
import signal
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from shikisha_code.harness_peer import RunnerPeer, RunnerRequest
from shikisha_code.harness_proxy import ClassProxy, HarnessRefusal, Proxy
from shikisha_code.harness_runner import RunnerSession, mirror_patches
from shikisha_code.harness_solution import SolutionPeer, detach_stdio

if TYPE_CHECKING:
    import pytest

_RANK = {"passed": 0, "xfailed": 1, "skipped": 2, "error": 3, "failed": 4}
_MODULE_NAMES = ("__all__", "__version__", "__author__", "__name__")


def unpack_repository(tree: str, packages: str, paths: Sequence[str]) -> list[str]:
    """Unpack both archives below the folder of this process, go there, and return where modules are looked for."""
    here = os.getcwd()
    for name, data in (("packages", packages), ("repository", tree)):
        zipfile.ZipFile(io.BytesIO(base64.b64decode(data))).extractall(os.path.join(here, name))
    root = os.path.join(here, "repository")
    os.makedirs(root, exist_ok=True)
    os.chdir(root)
    sys.dont_write_bytecode = True
    sys.argv[:] = ["pytest"]
    sys.path.append(os.path.join(here, "packages"))
    return [os.path.normpath(os.path.join(root, path)) for path in paths]


class TestRecorder:
    """A plug-in of pytest that notes how tests end; its search path applies once pytest's plug-ins are loaded."""

    __test__ = False

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self.tests: dict[str, str] = {}
        self.ever: list[str] = []
        self.problems: list[str] = []

    def pytest_load_initial_conftests(self) -> None:
        """Look for modules in the repository."""
        sys.path[:0] = self._folders

    def pytest_collectreport(self, report: object) -> None:
        """Note why a file cannot be collected."""
        if getattr(report, "failed", False) and len(self.problems) < 5:
            self.problems.append(f"{getattr(report, 'nodeid', '?')}: {str(getattr(report, 'longrepr', ''))[-250:]}")

    def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
        """Note a phase of a test: the worst end counts, and only a test that was torn down has passed."""
        name, ended = report.nodeid, str(report.outcome)
        if hasattr(report, "wasxfail"):
            ended = "xfailed"
        elif report.when != "call" and ended == "failed":
            ended = "error"
        elif report.when != "call" and ended == "passed":
            if report.when == "setup":
                self.tests.setdefault(name, "started")
            elif self.tests.get(name) == "called":
                self.tests[name] = self._verdict(name)
            return
        if ended == "passed":
            ended = "called"
            self.ever.append(name)
        if _RANK.get(ended, 0) >= _RANK.get(self.tests.get(name, "started"), 0):
            self.tests[name] = ended

    def _verdict(self, name: str) -> str:
        del name
        return "passed"

    def report(self, **more: object) -> str:
        """Return everything noted, as JSON."""
        return json.dumps({"tests": self.tests, "ever": self.ever, "problems": self.problems, **more})


def run_pytest_here(request: str, tree: str, packages: str, nonce: str) -> str:
    """Run tests and package in this process; return the nonce and the report."""
    given = json.loads(request)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, given["seconds"])
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # nothing that is printed counts
        os.dup2(null, stream)
    recorder = TestRecorder(unpack_repository(tree, packages, given["paths"]))
    import pytest

    pytest.main([*given["files"], "--tb=no", "-q"], plugins=[recorder])
    for _ in range(4 if given["again"] and recorder.tests else 0):  # what passes by chance does not pass each time
        pytest.main([*given["again"], "--tb=no", "-q"], plugins=[recorder])
    return nonce + recorder.report()


# --- tests here, package there


class PackageModule(ModuleType):
    """Stands for a module of the package: its attributes are asked for, and set, in the other process."""

    _shikisha_module: Proxy

    def __getattr__(self, name: str) -> object:
        if name[:2] == "__" and name not in _MODULE_NAMES:
            raise AttributeError(name)
        found = self._shikisha_module.__dir__() if name == "__all__" else ()
        if name == "__all__" and "__all__" not in found:
            return [one for one in found if one[:1] != "_"]
        value = getattr(self._shikisha_module, name)
        if isinstance(value, Proxy) and value._shikisha_[2].name == "module":
            return sys.modules.get(str(value.__name__), value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if name[:2] == "__" or isinstance(value, PackageModule) or name == "_shikisha_module":
            super().__setattr__(name, value)
        else:
            setattr(self._shikisha_module, name, value)

    def __delattr__(self, name: str) -> None:
        if name[:2] == "__":
            super().__delattr__(name)
        else:
            delattr(self._shikisha_module, name)

    def __dir__(self) -> list[str]:
        return list(self._shikisha_module.__dir__())


class PackageFinder:
    """Finds the modules of the package in the other process; those that lie here are the tests' own."""

    def __init__(self, peer: RunnerPeer, names: Sequence[str], folders: Sequence[str]) -> None:
        self._peer, self._names, self._folders = peer, frozenset(names), folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module of the package; None for any other."""
        del path, target
        if name.partition(".")[0] not in self._names:
            return None
        places = [os.path.join(folder, *name.split(".")) for folder in self._folders]
        files = [file for place in places for file in (f"{place}.py", f"{place}/__init__.py")]
        if any(os.path.isfile(file) and os.path.getsize(file) for file in files):  # an empty one only names a package
            return None
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = places
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Have the other process import it."""
        made = PackageModule(spec.name)
        made._shikisha_module = self._peer.ask("import", spec.name)  # type: ignore[assignment]
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing, since its code runs over there; what is no package there is none here."""
        if "__path__" not in self._peer.ask("dir", module._shikisha_module):  # type: ignore[operator]
            del module.__path__


class _ApartRecorder(TestRecorder):
    """Also asks the harness whether a test that pytest passed has proved anything."""

    def __init__(self, folders: Sequence[str], session: RunnerSession) -> None:
        super().__init__(folders)
        self._session = session
        self._owner = ""
        self.refused: dict[str, str] = {}
        self.decided: list[str] = []
        self.executed: dict[str, dict[str, int]] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Forget what an earlier test left behind."""
        del nodeid
        session = self._session
        session.failures, session.sites, session.peer.decided = [], Counter(), False
        session.peer.restore()
        if isinstance(session.peer.fatal, HarnessRefusal):
            session.peer.fatal = None

    def pytest_runtest_setup(self, item: "pytest.Item") -> None:
        """Note which function the assertions of the test stand in."""
        function = getattr(getattr(item, "function", None), "__qualname__", "")
        self._owner = f"{item.location[0]}::{function}"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note a refusal, even one that the test caught."""
        fatal = self._session.peer.fatal
        if fatal is not None:
            self.tests[nodeid] = "failed"
            self.refused[nodeid] = f"{type(fatal).__name__}: {fatal}"[:200]

    def _verdict(self, name: str) -> str:
        session = self._session
        if session.peer.decided:
            self.decided.append(name)
        self.executed[name] = {str(site): count for site, count in session.sites.items()}
        return "failed" if session.unsound(self._owner) else "passed"


def run_pytest_apart(request: str, tree: str, packages: str) -> str:
    """Run tests here of a package that lives in the other process, and return the report."""
    given = json.loads(request)
    reads, writes = detach_stdio()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, given["seconds"])
    folders = unpack_repository(tree, packages, given["paths"])
    runner: RunnerRequest = given["runner"]
    peer = RunnerPeer(reads, writes, runner)
    peer.loading = False
    peer.named |= set(runner["classes"])
    session = RunnerSession(peer, runner)
    for hook in runner["hooks"].values():
        setattr(builtins, hook, session.tests[hook])
    import pytest

    mirror_patches(peer, (PackageModule, Proxy, ClassProxy))
    recorder = _ApartRecorder(folders, session)
    sys.meta_path.insert(0, PackageFinder(peer, given["names"], folders))
    line = ["-s", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:doctest", "--tb=no", "-q"]
    pytest.main([*given["files"], *line], plugins=[recorder])
    return recorder.report(refused=recorder.refused, decided=recorder.decided, executed=recorder.executed)


def serve_package(request: str, tree: str, packages: str) -> None:
    """Import the package when it is asked for, and answer the test runner until it has gone."""
    given = json.loads(request)
    peer = SolutionPeer(*detach_stdio(), given)
    sys.path[:0] = unpack_repository(tree, packages, given["paths"])
    if "random" in given["follow"]:
        importlib.import_module("random")
    peer.serve()
