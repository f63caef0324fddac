"""[server]: how `shikisha serve` is reached, and what one server takes on.

Invariant: every default is safe on a laptop: loopback only, no key accepted that was not issued. Deliberately absent:
TLS (a reverse proxy's business) and anything about a single key (keys carry their own limits).
"""

from pydantic import Field

from shikisha.config.table import Table, Variable


class ServerTable(Table):
    """[server]."""

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(default=8100, ge=0, le=65535, description="0: any free one")
    url: str | None = Field(default=None, description="where others reach it, for links; by default host and port")
    hosts: tuple[str, ...] = Field(default=(), description="further names under which requests may come (Host header)")
    admin_key_env: Variable | None = Field(default=None, description="the environment variable with an admin key")
    most_runs: int = Field(default=1000, ge=1, description="runs performed at once; beyond it requests get a 429")
    most_bytes: int = Field(default=20 * 2**20, ge=1024, description="the largest request body")
    patience: float = Field(default=60.0, gt=0, description="seconds that a request waits for a person")
    lease: float = Field(default=10.0, gt=0, description="seconds after which a silent server's runs are taken over")
    drain: float = Field(default=10.0, ge=0, description="seconds that runs get to end when the server is stopped")
    keep_days: float | None = Field(default=None, gt=0, description="days after which texts of runs are erased")
    deepest: int = Field(default=3, ge=0, description="servers of ours that may call one another, this one last")
    waiting: float = Field(default=86400.0, gt=0, description="seconds after which a question to a person expires")
