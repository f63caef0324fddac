"""[server]: how `shikisha serve` is reached, and what one server takes on.

Invariant: every default is safe on a laptop: loopback only, no key accepted that was not issued. Deliberately absent:
TLS (a reverse proxy's business) and anything about a single key (keys carry their own limits).
"""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from shikisha.config.table import Table, Variable

_SHORTEST_STALL = 5.0  # seconds: a busy machine must not look like a server that hangs
_HOST = re.compile(r"\*|(\*\.)?[\w.-]+(:\d+)?|\[?[0-9a-fA-F:.]+\]?|\[[0-9a-fA-F:.]+\]:\d+")


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL such as https://ai.example.com")
    return url


def _checked_host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError("expected a name such as ai.example.com or *.example.com, without scheme and path")
    return name


class ServerTable(Table):
    """[server]."""

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(default=8100, ge=0, le=65535, description="0: any free one")
    url: Annotated[str, AfterValidator(_checked_url)] | None = Field(
        default=None, description="where others reach it, for links and as a name in the Host header"
    )
    hosts: tuple[Annotated[str, AfterValidator(_checked_host)], ...] = Field(
        default=(),
        description="names under which requests may come (Host header), beside IP addresses, localhost and url; "
        '"*" for all; by default all, unless `host` is a loopback address',
    )
    admin_key_env: Variable | None = Field(default=None, description="the environment variable with an admin key")
    most_runs: int = Field(default=1000, ge=1, description="runs performed at once; beyond it requests get a 429")
    most_connections: int | None = Field(
        default=None, ge=8, description="connections at once; by default as many as the limit on open files allows"
    )
    most_bytes: int = Field(default=20 * 2**20, ge=1024, description="the largest request body")
    most_bytes_at_once: int = Field(
        default=100 * 2**20, ge=1024, description="of all larger bodies together, until they are answered; else a 503"
    )
    patience: float = Field(default=60.0, gt=0, description="seconds that a request waits for a person")
    lease: float = Field(default=10.0, gt=0, description="seconds after which a silent server's runs are taken over")
    stall: float | None = Field(
        default=None,
        gt=0,
        description="seconds that the event loop may stand still before the watchdog ends the process; inf: for ever; "
        "by default half the lease, and no less than 5",
    )
    drain: float = Field(default=10.0, ge=0, description="seconds that runs get to end when the server is stopped")
    keep_days: float | None = Field(default=None, gt=0, description="days after which texts of runs are erased")
    deepest: int = Field(default=3, ge=0, description="servers of ours that may call one another, this one last")
    waiting: float = Field(default=86400.0, gt=0, description="seconds after which a question to a person expires")

    @property
    def longest_stall(self) -> float:
        """Seconds after which the watchdog ends this server: before others take its runs over."""
        return max(_SHORTEST_STALL, self.lease / 2) if self.stall is None else self.stall
