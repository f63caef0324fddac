"""What a release is made of: every dependency pinned with its hash, and a wheel that anyone can build again."""

import asyncio
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

from shikisha.testing import ScriptedAnswer, chat_server

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KINDS = {
    "base": ("edge", "eval", "server"),
    "learn": ("eval", "learn", "logs", "server", "testing"),
    "train": ("eval", "train"),
    "dev": ("dev",),
    "container": ("server", "postgres", "edge", "otel"),
}


def locked(*names: str) -> dict[str, Requirement]:
    """The requirements of these files by name; each must name one version and bring a hash."""
    found: dict[str, Requirement] = {}
    for name in names:
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        for entry in re.split(r"\n(?=\S)", text.strip()):
            requirement = Requirement(entry.split(" \\")[0])
            assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), entry
            assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry
            found[canonicalize_name(requirement.name)] = requirement
    return found


def wanted(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for, the extras that an extra names included."""
    texts = list(PROJECT["dependencies"]) if "dependencies" in PROJECT else []
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            one = Requirement(text)
            texts += map(str, wanted(*one.extras)) if one.name == PROJECT["name"] else [text]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_is_asked_for_is_pinned_with_its_hash(kind: str) -> None:
    files = locked(kind, "torch")
    for requirement in wanted(*KINDS[kind]):
        pinned = files.get(canonicalize_name(requirement.name))
        assert pinned is not None, f"{requirement} is not in requirements/{kind}.txt: run scripts/lock"
        assert requirement.specifier.contains(str(pinned.specifier).removeprefix("==")), str(requirement)


def test_one_version_is_pinned_for_all_kinds() -> None:
    pinned: dict[str, set[str]] = {}
    for kind in (*KINDS, "torch", "torch-cuda"):
        for name, requirement in locked(kind).items():
            pinned.setdefault(name, set()).add(str(requirement.specifier))
    assert {name: versions for name, versions in pinned.items() if len(versions) > 1} == {}


@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed: run scripts/setup dev")
def test_the_wheel_is_the_same_to_the_byte_wherever_it_is_built(tmp_path: Path) -> None:
    built = subprocess.run([ROOT / "scripts" / "wheel", tmp_path], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert built.returncode == 0, built.stderr
    assert re.fullmatch(r"[0-9a-f]{64}  shikisha-.*\.whl\n", built.stdout)
    assert len(list(tmp_path.iterdir())) == 1


def needed_files(name: str, into: dict[str, Path]) -> None:
    """Gather by top-level name what this installed distribution and all it needs without an extra consist of."""
    if canonicalize_name(name) in into:
        return
    into[canonicalize_name(name)] = Path()
    held = distribution(name)
    for each in held.files or ():
        if each.parts[0] not in ("..", "__pycache__"):
            into[each.parts[0]] = Path(str(held.locate_file(each.parts[0])))
    for text in held.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed_files(requirement.name, into)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the wheel, and what it requires without an extra, as pip would make it."""
    site, needed = tmp_path / "site", dict[str, Path]()
    site.mkdir()
    subprocess.run([ROOT / "scripts" / "wheel", tmp_path], capture_output=True, check=True)  # noqa: S603 - our own
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed_files(requirement.name, needed)
    needed_files("greenlet", needed)  # of sqlalchemy[asyncio]
    for name, path in needed.items():
        if path != Path():
            (site / name).symlink_to(path)
    return site


@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed: run scripts/setup dev")
async def test_the_wheel_alone_answers_a_question(site: Path, tmp_path: Path) -> None:
    """As `pip install WHEEL` and `shikisha run`: no extra, no plug-in and no other package of this environment."""
    home = tmp_path / "home"
    home.mkdir()
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import shikisha, shikisha.cli; "
        f"assert shikisha.__file__.startswith({str(site)!r}); shikisha.cli.main()"
    )
    async with chat_server([ScriptedAnswer(text="Paris.")]) as url:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-S", "-c", code, "run", "What is the capital of France?", "--yes"],
            cwd=home,
            env={"HOME": str(home), "OPENAI_API_KEY": "sk-a-key-of-nobody", "OPENAI_BASE_URL": url, "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Paris.\n"
    assert not (site / "fastapi").exists()
