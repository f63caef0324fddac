"""The house itself: light imports, the public surface, sizes, no cycles, and a test for every invariant."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from paths import ROOT

import shikisha
from mutation import named_mutants

TESTS = ROOT / "tests"
SOURCE = TESTS.parent / "src"
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = {"torch", "transformers", "openai", "fastapi", "sqlalchemy", "pydantic", "mcp", "pyarrow", "pandas"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module(path: Path) -> str:
    """The dotted name of a source file."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}


def modules_after(*command: str) -> set[str]:
    """The top-level modules that a Python process has imported by its end."""
    # -X importtime names every module on stderr, those imported before the command's own code included
    told = [sys.executable, "-X", "importtime", *command]
    done = subprocess.run(told, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}


def test_importing_shikisha_imports_nothing_heavy() -> None:
    imported = modules_after("-c", "import shikisha")
    assert "shikisha" in imported
    assert imported & (HEAVY | {"asyncio"}) == set()


def test_help_imports_neither_torch_nor_openai_nor_fastapi() -> None:
    imported = modules_after("-m", "shikisha", "--help")
    assert "typer" in imported
    assert imported & (HEAVY - {"pydantic"}) == set()


@pytest.mark.parametrize("name", shikisha.__all__)
def test_a_public_name_comes_from_its_home_and_from_there_only(name: str) -> None:
    home = import_module(f"shikisha.{shikisha._HOMES[name]}")
    assert getattr(shikisha, name) is getattr(home, name)
    assert getattr(home, name).__module__ == home.__name__


def test_the_public_surface_is_what_all_says() -> None:
    typed = [
        alias.name
        for node in ast.walk(tree(MODULES["shikisha"]))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("shikisha.")
        for alias in node.names
    ]
    assert shikisha.__all__ == sorted(shikisha._HOMES) == sorted(typed)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = shikisha.Nothing


@pytest.mark.full
def test_every_module_says_what_it_is_for_and_is_short() -> None:
    wrong = [f"{path} says nothing of itself" for path in FILES if not ast.get_docstring(tree(path))]
    wrong += [f"{path} is long" for path in FILES if len(path.read_text().splitlines()) > 700]
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > (300 if isinstance(node, ast.ClassDef) else 80):
                    wrong.append(f"{path}: {node.name} has {lines} lines")
    assert wrong == []


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file names at its top, for types too (what stands in functions is imported later)."""
    top = tree(path).body
    for node in [*top, *(inner for each in top if isinstance(each, ast.If) for inner in each.body)]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: set(imports(path)) - {name} for name, path in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)  # CycleError names a cycle


def test_every_invariant_of_the_design_has_a_test_that_names_it() -> None:
    names = re.findall(r"def test_\w*invariant_(\d)_", "\n".join(path.read_text() for path in TESTS.rglob("test_*.py")))
    missing = sorted(set("123456789") - set(names))
    assert not missing, f"no test names invariant {', '.join(missing)} of the design"


def test_invariant_7_nothing_but_the_training_plugin_can_make_tokens_of_a_text_for_a_loss() -> None:
    roots = {"tiktoken", "tokenizers", "torch", "transformers", "trl", "vllm"}
    named = {
        (module(path), name.partition(".")[0])
        for path in FILES
        for node in ast.walk(tree(path))
        for name in imported_by(node)
    }
    # A sentence encoder that a person names reads queries and tools, and gives vectors: no loss sees its tokens.
    encoder = ("shikisha.retrieval.text_encoder", "tokenizers")
    assert [pair for pair in named if pair[1] in roots and pair != encoder] == []


def test_a_benchmark_finds_the_test_modules_that_it_imports_without_pytest() -> None:
    homes: dict[str, set[str]] = {}
    for file in (*TESTS.rglob("*.py"), *ROOT.glob("plugins/*/tests/*.py")):
        homes.setdefault(file.stem, set()).add(file.parent.relative_to(ROOT).as_posix())
    lost = []
    for script in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests" / "night").glob("*.py")):
        parsed = ast.parse(script.read_text())
        del parsed.body[0]  # what it says of itself
        code = ast.unparse(parsed).replace("' / '", "/")
        imported = set(re.findall(r"^\s*(?:from|import) (\w+)(?= |$)", code, re.MULTILINE))
        beside = {each.stem for each in script.parent.glob("*.py")}
        lost += [
            f"{script.name}: {name}"
            for name in sorted((imported & homes.keys()) - beside)
            if not any(f"{home}'" in code for home in homes[name])
        ]
    assert lost == []


def test_every_script_that_a_document_names_is_there_and_the_benchmarks_are_listed() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "recipes", "src", "benchmarks") for page in (ROOT / folder).rglob("*.md")),
    ]
    lines = [
        (page, line)
        for page in pages
        if page.name not in ("CHANGELOG.md", "research-log.md")
        for line in page.read_text().splitlines()
    ]
    named = {
        (page.name, script)
        for page, line in lines
        for script in re.findall(r"(?<!\w)((?:benchmarks|tests|scripts|plugins)/[\w/-]+\.py)", line)
    }
    assert [each for each in sorted(named) if "NAME" not in each[1] and not (ROOT / each[1]).is_file()] == []
    listed = (ROOT / "benchmarks" / "README.md").read_text()
    scripts = [path.stem for path in (ROOT / "benchmarks").rglob("*.py")]
    assert [each for each in sorted(scripts) if not re.search(rf"\b{each}\b", listed)] == []


def test_the_package_imports_none_of_its_plugins() -> None:
    names = {(module(path), name) for path in FILES for node in ast.walk(tree(path)) for name in imported_by(node)}
    assert [pair for pair in names if pair[1].startswith("shikisha_")] == []


def imported_by(node: ast.AST) -> list[str]:
    """The modules that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


SHARED_CLASS_NAMES: dict[str, str] = {}  # class names that several modules may define, and why


def test_a_class_name_means_one_thing() -> None:
    defined: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(name)
    several = {name: modules for name, modules in defined.items() if len(modules) > 1}
    assert several.keys() == SHARED_CLASS_NAMES.keys(), several
    assert len(SHARED_CLASS_NAMES) <= 10


GLOSSARY = re.findall(r"^\| ([A-Z][a-z ]+) \| `([\w.]+)` \|", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)


def test_the_glossary_is_short() -> None:
    assert 15 <= len(GLOSSARY) <= 30


@pytest.mark.parametrize(("word", "place"), GLOSSARY)
def test_each_glossary_word_is_one_class_or_module(word: str, place: str) -> None:
    parent, _, last = place.rpartition(".")
    if last[0].isupper():
        assert isinstance(getattr(import_module(f"shikisha.{parent}"), last), type), word
    else:
        assert import_module(place if place.startswith("shikisha_") else f"shikisha.{place}").__doc__, word


def test_every_named_mutant_fits_the_source_and_names_a_test() -> None:
    """Whether its test fails is for `make mutants`."""
    for mutant in named_mutants():
        file, _, node = mutant.tests[0].partition("::")
        wanted = node.partition("[")[0].rpartition("::")[2]
        names = {
            each.name
            for each in ast.walk(tree(TESTS / file))
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert not wanted or wanted in names, f"{mutant.group}: no test {wanted} in tests/{file}"
