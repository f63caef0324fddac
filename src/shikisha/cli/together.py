"""One command in several processes, as `accelerate launch` starts it: one of them speaks.

Invariants: what all agree on is said by the main process alone; alone, nothing of this is noticed. Deliberately absent:
starting processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from shikisha.cli.exits import of_error
from shikisha.errors import ShikishaError

if TYPE_CHECKING:
    from shikisha.train.crew import Crew


@contextmanager
def together() -> Iterator["Crew"]:
    """Be one of the processes of this training until the end; an error that the main one tells ends others quietly."""
    from shikisha.train.crew import our_crew

    crew = our_crew()
    try:
        yield crew
    except ShikishaError as error:
        if crew.hushed(error):
            raise typer.Exit(of_error(error)) from None
        raise
    finally:
        crew.leave()
