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
import io
import json
import marshal
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from secrets import token_hex
from sys import implementation

from shikisha.core.errors import ConfigError
from shikisha.sandbox import Execution, Sandbox, SandboxScript
from shikisha_code.code_grader import RUNNER_MODULES, harness_code
from shikisha_code.separated_tests import SeparatedTree

PASSED = "passed"
USUAL_SECONDS = 60.0
PYTEST_MODULES = (*RUNNER_MODULES, "harness_pytest")
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

    Of a test that ran several times, `tests` has its worst end, and `ever` has it when it passed at all. Of tests apart
    from the package: why the harness `refused` one, which were `decided` by the package's own comparisons, and how
    often each assertion was `executed`.
    """

    # For pytest, which would collect it as a test class.
    __test__ = False

    tests: Mapping[str, str]
    problem: str = ""
    timed_out: bool = False
    ever: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    decided: frozenset[str] = frozenset()
    executed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


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
    request = {"files": settings.files, "again": again[:_MOST_REPEATED], "paths": settings.paths}
    execution = await sandbox.run(
        harness_code("run_pytest_here(request, tree, packages, globals().pop('nonce'))", *PYTEST_MODULES),
        {
            "request": json.dumps(request | {"seconds": settings.seconds}),
            "tree": pack_tree(tree),
            "packages": pack_distributions(settings.needs),
            "nonce": nonce,
        },
    )
    return _read_outcomes(execution, nonce, settings)


async def run_pytest_apart(
    sandbox: Sandbox, separated: SeparatedTree, settings: PytestSettings, only: Sequence[str] = ()
) -> TestOutcomes:
    """Run tests (`only` these, if there are any) in one process, and the package that they test in another one."""
    packages = pack_distributions(settings.needs)
    request = {
        "files": [*only] or settings.files,
        "paths": settings.paths,
        "names": separated.names,
        "runner": separated.runner,
        "seconds": settings.seconds,
    }
    served = {"program": "", "setup": "", "behind": "", "common": [], "steps": [], "needs": [], "memory": 0}
    served |= {"follow": separated.runner["follow"], "seconds": settings.seconds, "paths": settings.paths}
    code, texts = harness_code("run_pytest_apart(request, tree, packages)", *PYTEST_MODULES), separated.tests
    runner = SandboxScript(code, {"request": json.dumps(request), "tree": pack_tree(texts), "packages": packages})
    code, texts = harness_code("serve_package(request, tree, packages)", *PYTEST_MODULES), separated.package
    package = SandboxScript(code, {"request": json.dumps(served), "tree": pack_tree(texts), "packages": packages})
    execution, _ = await sandbox.run_pair(runner, package, share=False)
    return _read_outcomes(execution, "", settings)


def _read_outcomes(execution: Execution, nonce: str, settings: PytestSettings) -> TestOutcomes:
    """Read a report, which hostile code may have written where it ran in the same process."""
    text = execution.value or ""
    if not text or not text.startswith(nonce):
        problem = execution.error or "the process ended before pytest did"
        late = "TimeoutError" in problem or "SIGALRM" in problem
        return TestOutcomes({}, f"no end after {settings.seconds:g} s" if late else problem, timed_out=late)
    try:
        report = json.loads(text[len(nonce) :])
        tests = {str(name)[:_LONGEST_NAME]: str(end)[:20] for name, end in [*report["tests"].items()][:_MOST_TESTS]}
        return TestOutcomes(
            tests,
            "; ".join(str(problem)[:300] for problem in report["problems"][:5]),
            ever=frozenset(str(name)[:_LONGEST_NAME] for name in report["ever"][:_MOST_TESTS]),
            refused={str(name): str(why) for name, why in report.get("refused", {}).items()},
            decided=frozenset(map(str, report.get("decided", ()))),
            executed={str(name): dict(counts) for name, counts in report.get("executed", {}).items()},
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
