"""One of two processes that talk: python crew_talk.py; it says what it heard in JSON lines; then one goes."""

import asyncio
import json
import sys
from contextlib import suppress

from shikisha.core.errors import CapReached, ConfigError, ShikishaError
from shikisha_train.process_group import current_process_group


def say(what: object) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")


def ended(failure: BaseException | None) -> tuple[str, bool]:
    """What ends us, and whether the other one says so."""
    try:
        current_process_group().raise_first(failure)
    except (ShikishaError, asyncio.CancelledError) as error:
        return f"{type(error).__name__}: {error}", current_process_group().is_reported_elsewhere(error)
    return "nothing", False


if __name__ == "__main__":
    crew = current_process_group()
    say(crew.gather_texts(f"I am {crew.rank}{'é' * crew.rank}"))
    say(crew.sum(0.5 + crew.rank))
    say(ended(None))
    say(ended(None if crew.main else CapReached("dollars", "spent")))
    say(ended(ConfigError("here") if crew.main else ConfigError("there")))
    say(ended(None if crew.main else asyncio.CancelledError()))
    if crew.main:
        with suppress(ShikishaError):
            say(crew.gather_texts("anybody?"))
