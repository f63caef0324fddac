"""A journal that cannot be written, on read-only media or somebody else's, is read whole, and no write is lost in it.

Root may write everything, so commands are run in a process that gives root up once everything is imported.
"""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from journals import keep, whole
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.session import make_folder
from shikisha.journal import open_journal
from shikisha.learned.memory_index import MemoryIndex, MemoryNote

SCRIPT = """
import json, os, sys
from collections.abc import Iterator
from pathlib import Path
from typer.testing import CliRunner
from shikisha.cli import app

journal, config, *commands = sys.argv[1:]

def call(line):
    done = CliRunner().invoke(app, [*line.split(), "--journal", journal, "--config", config])
    return [done.exit_code, done.stdout, done.stderr]

import sqlalchemy.ext.asyncio, sqlalchemy.dialects.sqlite.aiosqlite, shikisha.journal.sqlite  # for its last resort
for line in commands:  # imports what it needs
    call(line)
folder = Path(journal).parent
for path in [*folder.iterdir(), folder]:
    path.chmod(0o555 if path.is_dir() else 0o444)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    before = sorted(path.name for path in folder.iterdir())
    told = [call(line) for line in commands]
    after = sorted(path.name for path in folder.iterdir())
finally:
    if os.getuid() == 0:
        os.seteuid(0)
    folder.chmod(0o755)
print(json.dumps([told, before == after]))
"""
CONFIG = """
conductor = "fixed:single?worker=a"
[workers.a]
kind = "scripted"
answers = "forty-two"
"""
READING = ("journal verify", "runs", "explain", "trace", "journal export", "runs --json")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who may write is asked of Linux")


def shikisha(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)  # noqa: S603 - ours


def read(folder: Path, *commands: str) -> list[tuple[int, str, str]]:
    """Run commands on a journal that cannot be written; nothing may appear beside it."""
    config = folder.parent / "shikisha.toml"
    done = shikisha("-c", SCRIPT, str(folder / "journal.db"), str(config), *commands)
    assert done.returncode == 0, done.stderr
    told, untouched = json.loads(done.stdout)
    assert untouched
    return [tuple(each) for each in told]


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a journal of one run."""
    made = tmp_path_factory.mktemp("one_run")
    (made / "shikisha.toml").write_text(CONFIG)
    (made / "media").mkdir()
    place = ("--config", str(made / "shikisha.toml"), "--journal", str(made / "media" / "journal.db"))
    done = shikisha("-m", "shikisha", "run", "what?", *place)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def folder(one_run: Path) -> Iterator[Path]:
    """A copy of it that everybody may enter."""
    with TemporaryDirectory() as base:
        shutil.copytree(one_run, base, dirs_exist_ok=True)
        Path(base).chmod(0o755)
        yield Path(base) / "media"


@pytest.mark.full
def test_a_journal_on_read_only_media_is_verified_and_read(folder: Path) -> None:
    verified, runs, explained, traced, exported, listed = read(folder, *READING)
    assert verified[0] == 0, verified
    assert verified[1].startswith("intact: ")
    assert "what?" in runs[1]
    assert explained[0] == traced[0] == 0, explained
    assert exported[1].count("\n") == len(exported[1].splitlines()) > 3
    assert [run["prompt"] for run in json.loads(listed[1])] == ["what?"]


def test_an_edit_is_found_there_too(folder: Path) -> None:
    with sqlite3.connect(folder / "journal.db") as opened:
        opened.execute("UPDATE events SET data = replace(data, 'done', 'gone')")
    opened.close()
    (verified,) = read(folder, "journal verify")
    assert verified[0] == 6
    assert "NOT intact" in verified[1]


@pytest.mark.full
@pytest.mark.parametrize("index", [False, True])
def test_what_is_only_in_the_log_beside_it_is_read(folder: Path, index: bool) -> None:
    """As when the media were taken from a machine that was writing."""
    file = folder / "journal.db"
    held = sqlite3.connect(file)
    held.execute("PRAGMA wal_autocheckpoint = 0")
    held.execute("SELECT count(*) FROM events").fetchone()  # as long as somebody reads, the log stays
    config = str(folder.parent / "shikisha.toml")
    done = shikisha("-m", "shikisha", "run", "later?", "--config", config, "--journal", str(file))
    assert done.returncode == 0, done.stderr
    taken = folder.parent / "taken"
    taken.mkdir()
    for end in ("", "-wal", "-shm") if index else ("", "-wal"):
        shutil.copyfile(f"{file}{end}", taken / f"journal.db{end}")
    held.close()
    assert (taken / "journal.db-wal").stat().st_size > 0
    verified, runs = read(taken, "journal verify", "runs")
    assert verified[0] == 0, verified
    assert "later?" in runs[1]


@pytest.mark.full
@pytest.mark.parametrize("command", ["feedback last --score 1", "run again"])
def test_what_would_be_written_is_refused(folder: Path, command: str) -> None:
    ((code, _, said),) = read(folder, command)
    assert code == 6, said
    assert "readonly" in said
    assert os.listdir(folder) == ["journal.db"]


def test_what_is_created_is_its_owners_alone_under_any_umask(tmp_path: Path) -> None:
    folder, before = tmp_path / "data", os.umask(0)

    async def created() -> dict[str, int]:
        make_folder(folder)
        async with open_journal(str(folder / "journal.db")) as journal:
            await keep(journal, whole("r"))
            with MemoryIndex(folder / "notes" / "memory.db") as memory:
                memory.add([MemoryNote("kestrel", ("r",), "", ())])
                return {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}

    try:
        rights = asyncio.run(created())
        out = ["-o", str(folder / "exported")]
        said = CliRunner().invoke(app, ["journal", "export", "--journal", str(folder / "journal.db"), *out])
    finally:
        os.umask(before)
    files = {f"{name}.db{side}": 0o600 for name in ("journal", "memory") for side in ("", "-wal", "-shm")}
    assert rights == {"data": 0o700, "notes": 0o700, **files}
    assert (said.exit_code, (folder / "exported").stat().st_mode & 0o777) == (0, 0o600)
