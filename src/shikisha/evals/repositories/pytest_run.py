"""Run tests of a tree of files with pytest in a sandbox, and read how each of them ended.

The tree and the packages that tests need (pytest and what the task names, as they are installed here) travel into the
sandbox as archives; nothing of this machine is shared with it. Invariants: the report is data that hostile code may
have written, so whatever it holds becomes TestOutcomes or a reason why there are none; only a test that was set up, run
and torn down without a problem has `passed`, and an expected failure or a skipped test has not; packages come first in
the search path, and plug-ins of pytest are found before the tree is on it. Deliberately absent: packages with compiled
parts, network, child processes, and installing anything.
"""

import base64
import importlib.util
import inspect
import io
import json
import marshal
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from secrets import token_hex
from sys import implementation

from shikisha.core.errors import ConfigError
from shikisha.sandbox import Sandbox

PASSED = "passed"
USUAL_SECONDS = 60.0
_MOST_TESTS = 100_000
_LONGEST_NAME = 1_000
_MOST_REPEATED = 20  # tests that run several times
_LARGEST_DATA = 500_000  # bytes of a file in a package that is not Python
# What pytest installs and never imports here: most of pygments is languages and colors.
_LEFT_OUT = re.compile(
    r"pygments/(lexers/(?!__init__|_mapping|python|diff)|styles/(?!__init__|_mapping|default)"
    r"|formatters/(?!__init__|_mapping|terminal\.))|(.*/)?(tests?|__pycache__)/|.*\.(pyi|so|pyd|dll)$|\.\./"
)
_REQUIRED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)[^;]*(?:;(.*))?")


@dataclass(frozen=True, slots=True)
class TestOutcomes:
    """How each test ended, by pytest's name for it; `problem`: why there is no report, or what could not be read.

    Of a test that ran several times, `tests` has its worst end, and `ever` has it when it passed at all.
    """

    # For pytest, which would collect it as a test class.
    __test__ = False

    tests: Mapping[str, str]
    problem: str = ""
    timed_out: bool = False
    ever: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PytestSettings:
    """Which files are run, with which distributions, where modules are looked for, and for how long."""

    files: tuple[str, ...]
    needs: tuple[str, ...] = ("pytest",)
    paths: tuple[str, ...] = (".",)
    seconds: float = USUAL_SECONDS


async def run_pytest(
    sandbox: Sandbox, tree: Mapping[str, bytes], settings: PytestSettings, again: Sequence[str] = ()
) -> TestOutcomes:
    """Run tests, those named in `again` several times; ConfigError for a distribution that is missing or compiled."""
    nonce = token_hex(16)
    execution = await sandbox.run(
        _harness(),
        {
            "tree": pack_tree(tree),
            "packages": pack_distributions(settings.needs),
            "files": json.dumps(settings.files),
            "again": json.dumps(list(again[:_MOST_REPEATED])),
            "paths": json.dumps(settings.paths),
            "seconds": settings.seconds,
            "nonce": nonce,
        },
    )
    text = execution.value or ""
    if not text.startswith(nonce):
        problem = execution.error or "the process ended before pytest did"
        late = "TimeoutError" in problem or "SIGALRM" in problem
        return TestOutcomes({}, f"no end after {settings.seconds:g} s" if late else problem, timed_out=late)
    return _read_report(text[len(nonce) :])


def _read_report(text: str) -> TestOutcomes:
    try:
        report = json.loads(text)
        tests, problems = report["tests"], report["problems"]
        found = {str(name)[:_LONGEST_NAME]: str(ended)[:20] for name, ended in list(tests.items())[:_MOST_TESTS]}
        said = "; ".join(str(problem)[:300] for problem in problems[:5])
        return TestOutcomes(
            found, said, ever=frozenset(str(name)[:_LONGEST_NAME] for name in report["ever"][:_MOST_TESTS])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return TestOutcomes({}, "a report that cannot be read")


def pack_tree(tree: Mapping[str, bytes]) -> str:
    """Return files as a zip archive in base64; the same files give the same text."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(tree):
            archive.writestr(zipfile.ZipInfo(name), tree[name])
    return base64.b64encode(raw.getvalue()).decode()


@cache
def pack_distributions(names: Sequence[str]) -> str:
    """Return distributions with all that they require, as a zip archive in base64."""
    files: dict[str, bytes] = {}
    for found in _required(names).values():
        files.update(_distribution_files(found))
    return pack_tree(files)


def _required(names: Sequence[str]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, asked = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).casefold()
        if key in found:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if asked:
                raise ConfigError(
                    f"tests of this repository need the package {name}: install it next to shikisha"
                ) from None
            continue  # for another system or Python
        matches = (_REQUIRED.match(text) for text in found[key].requires or ())
        waiting += [(match[1], False) for match in matches if match and "extra" not in (match[2] or "")]
    return found


def _distribution_files(found: Distribution) -> dict[str, bytes]:
    """Return a distribution's files; Python files also compiled, since the sandbox keeps nothing between two runs."""
    files: dict[str, bytes] = {}
    for path in found.files or ():
        name, place = path.as_posix(), Path(str(found.locate_file(path)))
        if _LEFT_OUT.match(name) or PurePosixPath(name).is_absolute() or not place.is_file():
            if name.endswith((".so", ".pyd")):
                raise ConfigError(f"the package {found.name} has compiled parts; expected one that is pure Python")
            continue
        data = place.read_bytes()
        if name.endswith(".py"):
            files[name] = data
            files[_compiled_name(name)] = _compile(data, name)
        elif len(data) <= _LARGEST_DATA and not name.endswith(".pth"):
            files[name] = data
    return files


def _compiled_name(name: str) -> str:
    path = PurePosixPath(name)
    return str(path.parent / "__pycache__" / f"{path.stem}.{implementation.cache_tag}.pyc")


def _compile(data: bytes, name: str) -> bytes:
    """Return a pyc file that is not checked against its source, whose time an archive does not keep."""
    try:
        code = compile(data, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return b""
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)


@cache
def _harness() -> str:
    return (
        f"{inspect.getsource(run_repository_tests)}\n\n"
        "run_repository_tests(tree, packages, files, again, paths, seconds, globals().pop('nonce'))\n"
    )


def run_repository_tests(
    tree: str, packages: str, files: str, again: str, paths: str, seconds: float, nonce: str
) -> str:
    """Run pytest and return its report. This function's source is sent to the sandbox: it imports what it needs."""
    import base64
    import io
    import json
    import os
    import signal
    import sys
    import zipfile

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # nothing that is printed counts
        os.dup2(null, stream)
    here = os.getcwd()
    for name, data in (("packages", packages), ("repository", tree)):
        zipfile.ZipFile(io.BytesIO(base64.b64decode(data))).extractall(os.path.join(here, name))
    root = os.path.join(here, "repository")
    os.makedirs(root, exist_ok=True)
    os.chdir(root)
    sys.dont_write_bytecode = True
    sys.argv[:] = ["pytest"]
    sys.path.append(os.path.join(here, "packages"))
    import pytest

    tests: dict[str, str] = {}
    ever: list[str] = []
    problems: list[str] = []
    rank = {"passed": 0, "xfailed": 1, "skipped": 2, "error": 3, "failed": 4}

    class Recorder:
        """Notes how tests end."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self) -> None:
            sys.path[:0] = [os.path.normpath(os.path.join(root, path)) for path in json.loads(paths)]

        def pytest_collectreport(self, report: object) -> None:
            if getattr(report, "failed", False) and len(problems) < 5:
                problems.append(f"{getattr(report, 'nodeid', '?')}: {str(getattr(report, 'longrepr', ''))[-250:]}")

        def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
            ended = str(report.outcome)
            if hasattr(report, "wasxfail"):
                ended = "xfailed"
            elif report.when != "call" and ended == "failed":
                ended = "error"
            elif report.when != "call" and ended == "passed":
                if report.when == "setup":
                    tests.setdefault(report.nodeid, "started")
                elif tests.get(report.nodeid) == "called":
                    tests[report.nodeid] = "passed"
                return
            if ended == "passed":
                ended = "called"
                ever.append(report.nodeid)
            before = tests.get(report.nodeid, "started")
            if rank.get(ended, 0) >= rank.get(before, 0):
                tests[report.nodeid] = ended

    pytest.main([*json.loads(files), "--tb=no", "-q"], plugins=[Recorder()])
    for _ in range(4 if json.loads(again) and tests else 0):  # what passes by chance does not pass each time
        pytest.main([*json.loads(again), "--tb=no", "-q"], plugins=[Recorder()])
    return nonce + json.dumps({"tests": tests, "ever": ever, "problems": problems})
