"""The one place that knows which strings are keys, so that everything leaving it can be scrubbed of them.

Invariant 8: keys never reach a journal, log, trace, error message, prompt or sandbox. Keys enter through
`Vault.read` (from the environment, by variable name) and whatever comes back from a worker, a user or an exception
passes `Vault.scrub` before it goes anywhere. Deliberately absent: any way to print a vault.
"""

import os
import re
from collections.abc import Callable, Mapping

from shikisha.errors import ConfigError

MASK = "[key removed]"
OURS = (
    "sk-shikisha-"  # how the keys begin that a server of ours issues; it keeps but their hashes, so by the looks only
)
_ISSUED = re.compile(rf"{OURS}[0-9a-z]+-[\w-]{{20,}}", re.ASCII)
_SHORTEST = 8  # a shorter "key" would blot out ordinary words


class Vault:
    """Keys in use, by the name of the environment variable that holds each."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._keys: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Vault({sorted(self._keys)})"

    @property
    def empty(self) -> bool:
        """Whether no key is known, so that nothing can hold one."""
        return not self._keys

    def read(self, variable: str) -> str:
        """Return the key in this environment variable; ConfigError names the variable when it is not set."""
        value = self._environment.get(variable, "").strip()
        if not value:
            raise ConfigError(f"environment variable {variable} is not set; it should hold the key")
        if len(value) < _SHORTEST:
            raise ConfigError(f"environment variable {variable} holds fewer than {_SHORTEST} characters: no key")
        keys = self._keys | {variable: value}
        self._keys = dict(sorted(keys.items(), key=lambda named: -len(named[1])))  # a key may hold a shorter one
        return value

    def scrub(self, text: str) -> str:
        """Return the text with every known key masked, and with whatever looks like a key of a server of ours."""
        for key in self._keys.values():
            if key in text:
                text = text.replace(key, MASK)
        return _ISSUED.sub(MASK, text) if OURS in text else text

    def listener(self, hear: Callable[[str], None]) -> "Listener":
        """Return a listener that passes pieces of a growing text on to `hear`, scrubbed as the whole would be."""
        return Listener(self.scrub, tuple(self._keys.values()), hear)


class Listener:
    """Scrubs a text that arrives in pieces: what may be the beginning of a key waits until it is clear."""

    def __init__(self, scrub: Callable[[str], str], keys: tuple[str, ...], hear: Callable[[str], None]) -> None:
        self._scrub = scrub
        self._keys = keys
        self._hear = hear
        self._held = ""

    def __call__(self, piece: str) -> None:
        """Take a piece; pass on what cannot be part of a key any more."""
        text = self._held + piece
        cut = self._clear(text)
        self._held = text[cut:]
        self._say(self._scrub(text[:cut]))

    def end(self) -> None:
        """Pass on what was held: nothing follows it."""
        held, self._held = self._held, ""
        self._say(self._scrub(held))

    def _clear(self, text: str) -> int:
        """Return where to cut: before what may be the beginning of a key, and through no key."""
        cut = len(text) - max((_begun(text, key) for key in self._keys), default=0)
        while True:
            starts = [text.find(key, max(0, cut - len(key) + 1), cut + len(key) - 1) for key in self._keys]
            through = [at for at in starts if 0 <= at < cut]
            if not through:
                return cut
            cut = min(through)

    def _say(self, text: str) -> None:
        if text:
            self._hear(text)


def _begun(text: str, key: str) -> int:
    """Return how many characters at the text's end are the beginning of this key."""
    return next((n for n in range(min(len(key) - 1, len(text)), 0, -1) if text.endswith(key[:n])), 0)
