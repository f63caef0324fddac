"""A run's page while the run goes on: only the parts that changed are sent, each by its id.

Invariant: whoever listens ends up with the page that a reload would give, wherever they began to listen; a part that
did not change is not sent, so what a reader has opened stays open. Deliberately absent: patience (the connection is
kept by comments) and the growing answers of other servers' runs (the journal has whole ones).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from time import monotonic

from shikisha.events import AttemptStarted, Event
from shikisha.server.lapses import heard_next
from shikisha.server.live import Happened, Heard, Said

_GATHER = 0.15  # seconds in which what follows is sent together
_TICK = 1.0  # seconds after which a running clock is drawn anew
Parts = Mapping[str, str]
Told = Mapping[tuple[int, int], str]


def changed(before: Parts, after: Parts) -> list[str]:
    """Return the parts that changed as out-of-band swaps; a round that is new or has grown is sent whole."""
    sending: list[str] = []
    whole: set[str] = set()
    for name, html in after.items():
        if name.startswith("round-"):
            own = [part for part in after if part.endswith(name.removeprefix("round")) or _of(part, name)]
            if name not in before:
                sending.append(f'<div hx-swap-oob="beforeend:#rounds">{html}</div>')
                whole.update(own)
            elif any(part not in before for part in own):
                sending.append(_swapped(name, html))
                whole.update(own)
        elif name not in whole and before.get(name) != html:
            sending.append(_swapped(name, html))
    return sending


def _of(part: str, turn: str) -> bool:
    """Whether a part is of a step of this round."""
    return part.startswith(f"step-{turn.removeprefix('round-')}-")


def _grows(shown: Parts, place: tuple[int, int]) -> bool:
    """Whether the page has a place where this step's answer grows: it has not while the step is not performed."""
    return f'id="said-{place[0]}-{place[1]}"' in shown.get(f"step-{place[0]}-{place[1]}", "")


def _swapped(name: str, html: str) -> str:
    return html.replace(f'id="{name}"', f'id="{name}" hx-swap-oob="true"', 1)


class Growing:
    """What was heard of growing answers and not sent yet, by round and step."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], list[str]] = {}

    def hear(self, heard: Heard) -> None:
        """Take in a piece; what came of an attempt before another one begins is forgotten."""
        if isinstance(heard, Said):
            self._pieces.setdefault((heard.round, heard.step), []).append(heard.piece)
        elif isinstance(heard.event, AttemptStarted) and heard.event.step is not None:
            self._pieces.pop((heard.event.round, heard.event.step), None)

    def take(self) -> Told:
        """Return what there is, and forget it."""
        told = {place: "".join(pieces) for place, pieces in self._pieces.items()}
        self._pieces.clear()
        return told


async def follow(
    events: Sequence[Event],
    listening: AsyncIterator[Heard],
    draw: Callable[[Sequence[Event]], Parts],
    said: Callable[[Told], str],
) -> AsyncIterator[tuple[int, str]]:
    """Yield (number of the last event, what to send) until the run ends or waits.

    `draw` makes the parts of these events' page, `said` pieces of answers ready to be appended.
    """
    known = list(events)
    shown = draw(known)
    growing = Growing()
    async with aclosing(_batches(listening)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for heard in batch:
                growing.hear(heard)
                if isinstance(heard, Happened):
                    known.append(heard.event)
            fresh = draw(known)
            sending = changed(shown, fresh)
            shown = fresh
            told = said({place: text for place, text in growing.take().items() if _grows(fresh, place)})
            if sending or told:
                yield len(known) - 1, "\n".join([*sending, told])


async def _batches(listening: AsyncIterator[Heard]) -> AsyncIterator[list[Heard]]:
    """Yield what is heard in handfuls, and an empty one when nothing was heard for a while."""
    following: asyncio.Task[Heard] | None = None
    try:
        while True:
            batch: list[Heard] = []
            until = monotonic() + _TICK
            while (left := until - monotonic()) > 0:
                if following is None:
                    following = asyncio.create_task(heard_next(listening))
                done, _ = await asyncio.wait({following}, timeout=left)
                if not done:
                    break
                heard = following
                following = None
                try:
                    batch.append(heard.result())
                except EOFError:
                    yield batch
                    return
                if len(batch) == 1:
                    until = monotonic() + _GATHER
            yield batch
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
