"""Which files of a repository are its tests', and how they are separated from the package that they test.

Tests, their helpers and pytest's configuration come from the task; all else comes from the patched tree. Separated, the
test runner's process receives the first with assertions instrumented, and the other process the second without a line
of any test. Invariant: no file that a patch writes reaches the test runner's process.
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from shikisha_code.code_tests import class_names
from shikisha_code.instrumented_tests import HOOKS, TestInstrumenter
from shikisha_code.program_extraction import parse_python
from shikisha_code.unified_diff import Tree

if TYPE_CHECKING:
    from shikisha_code.harness_peer import RunnerRequest

_TEST_FOLDERS = frozenset({"test", "tests", "testing", "testdata", "test_data"})
_TEST_FILE = re.compile(r"(test_.*|.*_tests?|tests?)\.py")
_CONFIGURATION = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"}
)
_UNASKED = frozenset({"conftest.py", "sitecustomize.py", "usercustomize.py", "pytestconfig.py"})
_PLUG_INS = re.compile(r".*\.(egg-info|dist-info|pth|egg-link|pyc|so|pyd)")
# Modules that are loaded before the tests, and that nothing of a repository may stand in for.
_RESERVED = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "unittest", "doctest", "packaging", "pygments"})


def is_protected(name: str) -> bool:
    """Whether a file takes part in deciding: a test, a helper of tests, configuration, or what pytest finds unasked."""
    path = PurePosixPath(name)
    parts = [part.casefold() for part in path.parts]
    return (
        any(part in _TEST_FOLDERS for part in parts[:-1])
        or bool(_TEST_FILE.fullmatch(parts[-1]))
        or parts[-1] in _CONFIGURATION | _UNASKED
        or any(_PLUG_INS.fullmatch(part) for part in parts)
        or any(part.partition(".")[0] in _RESERVED for part in (parts[0], *parts[1:2]))
    )


def is_test_file(name: str) -> bool:
    """Whether pytest would look for tests in a file."""
    return bool(_TEST_FILE.fullmatch(PurePosixPath(name).name)) and name.endswith(".py")


def is_run(name: str, files: Iterable[str]) -> bool:
    """Whether a file is one of those that are run, or lies below one."""
    return any(name == file or name.startswith(f"{file.rstrip('/')}/") for file in files)


def protect_tests(patched: Tree, trusted: Tree) -> dict[str, bytes]:
    """Return a patched tree with every protected file as the trusted tree has it, or absent where it has none."""
    kept = {name: data for name, data in patched.items() if not is_protected(name)}
    return kept | {name: data for name, data in trusted.items() if is_protected(name)}


@dataclass(frozen=True, slots=True)
class SeparatedTree:
    """The files of the tests and those of the package, the package's top-level modules, and the runner's request."""

    tests: Mapping[str, bytes]
    package: Mapping[str, bytes]
    names: Sequence[str]
    runner: "RunnerRequest"


def separate_tests(tree: Tree, trusted: Tree, files: Sequence[str], paths: Sequence[str]) -> SeparatedTree:
    """Separate a protected tree for a run of these files, with modules below these paths."""
    known = {top for name in trusted for top in _top_module(name, paths)}
    tops = {top for name in tree if not is_protected(name) for top in _top_module(name, paths)}
    # A new file of the patch does not stand in for a library that the tests import.
    names = sorted(top for top in tops if top in known or not _is_library(top))
    tests = {name: data for name, data in trusted.items() if is_protected(name) or not name.endswith(".py")}
    # pytest takes the name of a test's module from these; an empty one stands for a package of the other process.
    packages = [name for name in trusted if name.endswith("__init__.py")]
    tests |= {name: (tests[name] or b"\n") if name in tests else b"" for name in packages}
    numbers, required, classes, texts = count(), list[list[int | str]](), set[str](), list[str]()
    for name in sorted(tests):
        if name.endswith(".py") and is_run(name, files) and (module := parse_python(_text(tests[name]))):
            body = module.body
            classes |= class_names(body) | {
                one.attr for one in ast.walk(module) if isinstance(one, ast.Attribute) and one.attr[:1].isupper()
            }
            instrumenter = TestInstrumenter(body, _package_names(module, names), f"{name}::", numbers)
            texts.append(ast.unparse(module))
            tests[name] = ast.unparse(ast.fix_missing_locations(ast.Module(instrumenter.block(body), []))).encode()
            required += instrumenter.required
    whole = "\n".join(texts)
    follow = [name for name, word in (("random", "random"), ("os", "environ"), ("os", "setenv")) if word in whole]
    runner: RunnerRequest = {
        "setup": "",
        "before": "",
        "steps": [],
        "suite": whole,
        "methods": 0,
        "entry": "",
        "candidate": "",
        "seen": "_seen_",
        "names": [],
        "allowed": [],
        "called": [],
        "classes": sorted(classes),
        "needs": [],
        "follow": follow,
        "common": [],
        "modules": [],
        "stored": [],
        "required": required,
        "hooks": HOOKS,
        "seconds": 0.0,
    }
    # A module such as pkg/testing/helpers.py may be the package's own; a test's text is not.
    package = {name: data for name, data in tree.items() if not _is_test_text(name)}
    return SeparatedTree(tests, package, names, runner)


def _is_library(name: str) -> bool:
    return name in sys.stdlib_module_names or (name.isidentifier() and find_spec(name) is not None)


def _is_test_text(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return is_test_file(name) or parts[-1] == "conftest.py" or bool({"test", "tests"} & {*parts[:-1]})


def _top_module(name: str, paths: Sequence[str]) -> Iterable[str]:
    """Yield the top-level module of a file, seen from each path that it lies below."""
    for path in paths:
        parts = PurePosixPath(name).parts
        prefix = PurePosixPath(path).parts
        if name.endswith(".py") and parts[: len(prefix)] == prefix:
            yield parts[len(prefix)].removesuffix(".py")


def _package_names(module: ast.Module, package: Sequence[str]) -> set[str]:
    """Return the names of a test module that mean the package: imported ones, and fixtures' own names."""
    found = set[str]()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=aliases):
                found |= {
                    one.asname or one.name.partition(".")[0] for one in aliases if one.name.partition(".")[0] in package
                }
            case ast.ImportFrom(module=source, level=level, names=aliases) if (
                level or (source or "").partition(".")[0] in package
            ):
                found |= {one.asname or one.name for one in aliases}
    return found


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
