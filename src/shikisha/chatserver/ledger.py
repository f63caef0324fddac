"""Who was charged for what: the server's own books, by which double charges are found out.

Invariant: a key is charged once. The same key is answered again from the books, after a restart too when they are kept
in a file, and each charge is on disk (fsync) before the answer leaves. Requests without a key are charged every time.
Deliberately absent: money; a charge is a charge.
"""

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time


@dataclass(frozen=True, slots=True)
class Entry:
    """A request: its key, the hash of its messages, when it came (Unix time), if it was charged, the answer.

    `calls` are the calls of tools in the answer, as JSON.
    """

    key: str
    messages: str
    at: float
    charged: bool
    text: str
    calls: str = ""


class Ledger:
    """Entries in the order in which requests came."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: list[Entry] = []
        self._known: dict[str, Entry] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self._keep(Entry(**json.loads(line)))

    @property
    def requests(self) -> Counter[str]:
        """How often each key was asked."""
        return Counter(entry.key for entry in self.entries)

    @property
    def charges(self) -> Counter[str]:
        """How often each key was charged."""
        return Counter(entry.key for entry in self.entries if entry.charged)

    def take(self, key: str, messages: str, text: str, *, chargeable: bool, calls: str = "") -> Entry:
        """Enter a request and return its entry, with the remembered answer where the key is known."""
        known = self._known.get(key)
        said = (text, calls) if known is None else (known.text, known.calls)
        entry = Entry(key, messages, time(), chargeable and known is None, *said)
        self._write(entry)
        self._keep(entry)
        return entry

    def _keep(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.charged and entry.key:
            self._known[entry.key] = entry

    def _write(self, entry: Entry) -> None:
        """Append synchronously: nothing may come between a charge and its record."""
        if self._path is None:
            return
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())
