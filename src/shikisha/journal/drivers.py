"""How a journal's store is reached, whichever it is, and what it may refuse.

A driver (`sqlite`, `postgres`) takes a function of a SQLAlchemy connection and runs it in one transaction, so every
query is written once, and synchronously. Invariant: what the store or the network refuses is JournalUnavailable, whose
message holds neither parameters nor passwords. Deliberately absent: the drivers, and which is whose (`stores`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from sqlalchemy import URL, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shikisha.errors import JournalUnavailable

T = TypeVar("T")


class Driver(Protocol):
    """Runs functions of a connection, each in a transaction."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run and commit it; from its reading the head row on, no other writer of any process comes between."""
        ...

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run it; it sees what is committed."""
        ...

    async def scour(self) -> bool:
        """See that nothing of what was deleted is left in the store's files; False when somebody was in the way."""
        ...


def shown(url: URL) -> str:
    """Return the URL as error messages may show it: without passwords."""
    return str(url.difference_update_query(["password"]))


@contextmanager
def refusals(where: str) -> Iterator[None]:
    """Turn what a store refuses into JournalUnavailable; the message holds neither parameters nor passwords."""
    try:
        yield
    except DBAPIError as error:
        raise JournalUnavailable(f"journal {where}: {error.orig}") from error
    except (OSError, PoolTimeout) as error:
        raise JournalUnavailable(f"journal {where}: {error or type(error).__name__}") from error
