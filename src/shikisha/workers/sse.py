"""Server-sent events as a chat endpoint sends them (WHATWG HTML, 9.2), from bytes as they come.

Invariant: an event is given the moment its blank line is there, however the bytes were cut; comments, ids and event
names are passed over. Deliberately absent: reconnecting, and any care for what the data say.
"""

from collections.abc import AsyncIterable, AsyncIterator


async def data_of(stream: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Yield the data of each event; ValueError for data that are no UTF-8."""
    held, data = b"", list[bytes]()
    async for part in stream:
        held += part
        lines = held.splitlines(keepends=True)
        held = lines.pop() if lines and not _whole(lines[-1]) else b""
        for line in lines:
            text = line.rstrip(b"\r\n")
            if text.startswith(b"data"):
                data += _data(text)
            elif not text and data:
                yield b"\n".join(data).decode()
                data = []


def _whole(line: bytes) -> bool:
    """Whether a line is there to its end; a CR may be the first half of one."""
    return line.endswith(b"\n")


def _data(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []
