"""A PostgreSQL server of one's own for some tests: private, on a Unix socket, thrown away at the end.

Where there is no server program, or none that may be started, the tests that ask for it are skipped and say so. initdb
refuses to be root, so root runs the programs as the user `postgres`.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shikisha.journal.drivers import parse_store_url
from shikisha.journal.drivers import store_module as kind
from shikisha.journal.schema import upgrade_tables


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server: its programs, the folder of its data and socket, and the words that run a program as its owner."""

    programs: Path
    folder: Path
    as_owner: tuple[str, ...]
    databases: list[str] = field(default_factory=list)

    def call(self, program: str, *arguments: str) -> str:
        """Run one of its programs; return what it prints."""
        command = [*self.as_owner, str(self.programs / program), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", timeout=60)  # noqa: S603
        return done.stdout

    def sql(self, database: str, statement: str) -> str:
        """Run a statement as the owner; return what it gives."""
        return self.call("psql", "-h", str(self.folder), "-d", database, "-qAtX", "-c", statement).strip()

    def server(self, action: str, *options: str) -> None:
        """Start or stop the server."""
        data = str(self.folder / "data")
        self.call("pg_ctl", "-D", data, "-w", "-l", str(self.folder / "log"), *options, action)

    def start(self) -> None:
        """Start the server; it is ready on return."""
        self.server("start", "-o", f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=100")

    def fresh(self) -> str:
        """Make a database whose tables are there, of one that was migrated once; return its URL."""
        if not self.databases:
            self.sql("postgres", "CREATE DATABASE migrated")
            url = parse_store_url(self.url("migrated"))
            with ThreadPoolExecutor(1) as thread:  # where no event loop runs
                thread.submit(kind(url).migrate, url, 5.0, upgrade_tables).result()
        name = f"fresh{len(self.databases)}"
        self.databases.append(name)
        self.sql("postgres", f"CREATE DATABASE {name} TEMPLATE migrated")
        return self.url(name)

    def url(self, database: str) -> str:
        """Return a database's URL."""
        owner = pwd.getpwuid(self.folder.stat().st_uid).pw_name
        return f"postgresql://{owner}@/{database}?host={self.folder}"


def programs() -> Path | None:
    """Where the newest server programs are."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: int(path.parent.name))


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a server and throw it away; the test is skipped where that cannot be."""
    where = programs()
    if where is None:
        pytest.skip("no PostgreSQL server program here (initdb)")
    where_to = os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")  # noqa: S108 - mkdtemp makes it ours
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=where_to))  # a short path: a socket's has 100 characters
    as_owner: tuple[str, ...] = ()
    if os.geteuid() == 0:
        try:
            shutil.chown(folder, "postgres")
        except LookupError:
            pytest.skip("PostgreSQL will not run as root, and there is no user postgres")
        as_owner = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
    server = Cluster(where, folder, as_owner)
    try:
        server.call("initdb", "-D", str(folder / "data"), "-A", "trust", "-E", "UTF8", "--no-sync")
        server.start()
        yield server
        server.server("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
