"""Where keys are kept: whatever runs functions of a connection, each in a transaction (the journal does).

Deliberately absent: an implementation.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class Database(Protocol):
    """Where the journal is."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run and commit it, alone or not at all."""
        ...

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run it; it sees what is committed."""
        ...
