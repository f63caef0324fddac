"""Server-sent events as a chat endpoint sends them (WHATWG HTML, 9.2), from bytes as they come.

Invariant: an event is given the moment its blank line is there, however the bytes were cut; comments, ids and event
names are passed over, and a byte order mark at the beginning is none of the first line. Deliberately absent:
reconnecting, and any care for what the data say.
"""

from codecs import BOM_UTF8


class Events:
    """An event stream as far as it has come."""

    def __init__(self) -> None:
        self._held = b""
        self._data: list[bytes] = []
        self._begun = False

    def take(self, part: bytes) -> list[str]:
        """Take the next bytes in and return the data of each event that they complete; ValueError when they are no
        UTF-8."""
        lines = (self._held + part).splitlines(keepends=True)
        self._held = lines.pop() if lines and not _whole(lines[-1]) else b""
        events = []
        for line in lines:
            text = self._first(line.rstrip(b"\r\n"))
            if text.startswith(b"data"):
                self._data += _data(text)
            elif not text and self._data:
                events.append(b"\n".join(self._data).decode())
                self._data = []
        return events

    def rest(self) -> str:
        """Return the data of an event whose blank line never came, as the stream ends; nothing without one."""
        last = self._first(self._held.rstrip(b"\r\n"))
        return b"\n".join([*self._data, *_data(last)]).decode(errors="replace")

    def _first(self, line: bytes) -> bytes:
        """Return a line without the byte order mark that may stand before the first."""
        if self._begun:
            return line
        self._begun = True
        return line.removeprefix(BOM_UTF8)


def _whole(line: bytes) -> bool:
    """Whether a line is there to its end; a CR may be the first half of one."""
    return line.endswith(b"\n")


def _data(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []
