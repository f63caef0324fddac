"""The one place that knows which strings are secret keys, so that everything leaving it can be scrubbed of them.

Invariant 8: keys never reach a journal, log, trace, error message, prompt or sandbox. Keys enter through
`SecretStore.read` (from the environment, by variable name), and whatever comes back from a worker, a user or an
exception passes `SecretStore.scrub` before it goes anywhere; the beginning of a key is enough to be scrubbed. An
endpoint's error message passes `SecretStore.redact` too, since endpoints repeat parts of a key there, with stars or
without. Deliberately absent: keys in another encoding (base64, percent signs), and any way to print the store.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping

from shikisha.core.errors import ConfigError

MASK = "[key removed]"
# Of the keys that our own server issues: it keeps only their hashes, so they are known by this form alone.
ISSUED_KEY_PREFIX = "sk-shikisha-"
_ISSUED = re.compile(rf"{ISSUED_KEY_PREFIX}[0-9a-z]+-[\w-]{{20,}}", re.ASCII)
_SHORTEST = 8  # characters: a shorter "key" would mask ordinary words
_BEGINNING = 16  # first characters that are masked anywhere; providers' common prefixes are shorter
_PIECE = 8  # characters from any place of a key that are masked in an error message
_STARS = re.compile(r"\*{2,}|•{2,}|…+|\.{3,}")  # how endpoints hide the middle of a key
_LEAST_SEEN = 3  # characters next to stars that are masked as a key's
_AROUND = "'\"`()[]{}<>,;:=.!?"


class SecretStore:
    """Keys in use, by the name of the environment variable that holds each."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._keys: dict[str, str] = {}
        self._placeholders: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"SecretStore({sorted(self._keys)})"

    @property
    def empty(self) -> bool:
        """Whether no key is known, so that nothing can hold one."""
        return not self._keys

    def holds(self, variable: str) -> bool:
        """Whether this environment variable is set."""
        return bool(self._environment.get(variable, "").strip())

    def read(self, variable: str, *, short: bool = False) -> str:
        """Return the key in this environment variable; ConfigError names the variable when it is not set.

        `short`: a few characters are a key too, such as the `x` or `EMPTY` that people set for servers of their own.
        Only error messages are scrubbed of those, where they stand as a word: they are ordinary words elsewhere.
        """
        value = self._environment.get(variable, "").strip()
        if not value:
            raise ConfigError(f"environment variable {variable} is not set; it should hold the key")
        if len(value) < _SHORTEST and short:
            self._placeholders |= {value}
            return value
        if len(value) < _SHORTEST:
            raise ConfigError(f"environment variable {variable} holds fewer than {_SHORTEST} characters: no key")
        keys = self._keys | {variable: value}
        self._keys = dict(sorted(keys.items(), key=lambda named: -len(named[1])))  # a key may hold a shorter one
        return value

    def renew(self, other: "SecretStore") -> None:
        """Read keys from another store's environment from now on; all keys that are known stay known."""
        self._environment = other._environment
        self._placeholders |= other._placeholders
        keys = {**{f"{name} (earlier)": key for name, key in self._keys.items()}, **self._keys, **other._keys}
        self._keys = dict(sorted(keys.items(), key=lambda named: -len(named[1])))

    def scrub(self, text: str) -> str:
        """Return the text with every known key masked, and with whatever looks like a key of a server of ours."""
        for key in self._keys.values():
            if key in text:
                text = text.replace(key, MASK)
            if len(key) > _BEGINNING and key[:_BEGINNING] in text:
                parts, last = [], 0
                for at, end in _key_prefixes(text, key):
                    parts += [text[last:at], MASK]
                    last = end
                text = "".join([*parts, text[last:]])
        return _ISSUED.sub(MASK, text) if ISSUED_KEY_PREFIX in text else text

    def redact(self, text: str) -> str:
        """Return an error message without keys and pieces of keys, starred ones too."""
        text = self.scrub(text)
        if self._keys and _STARS.search(text):
            text = re.sub(r"\S+", self._unstarred, text)
        for key in self._keys.values():
            # The text without what it has in common with a key, wherever that is long enough to be of use.
            pieces = {key[at : at + _PIECE] for at in range(len(key) - _PIECE + 1)}
            parts, last, at = [], 0, 0
            while at <= len(text) - _PIECE:
                if text[at : at + _PIECE] not in pieces:
                    at += 1
                    continue
                parts += [text[last:at], MASK]
                while text[at : at + _PIECE] in pieces:
                    at += 1
                at = last = at + _PIECE - 1
            text = "".join([*parts, text[last:]])
        for short in self._placeholders:
            text = re.sub(rf"(?<!\w){re.escape(short)}(?!\w)", MASK, text)
        return text

    def _unstarred(self, word: re.Match[str]) -> str:
        """Mask what is left of a key whose middle is starred out."""
        whole = word[0]
        stars = [*_STARS.finditer(whole)]
        if not stars:
            return whole
        begin, end = whole[: stars[0].start()].lstrip(_AROUND), whole[stars[-1].end() :].rstrip(_AROUND)
        for key in self._keys.values():
            first = len(begin) >= _LEAST_SEEN and key.startswith(begin)
            last = len(end) >= _LEAST_SEEN and key.endswith(end)
            if first or last:
                start = stars[0].start() - len(begin) if first else stars[0].start()
                stop = stars[-1].end() + len(end) if last else stars[-1].end()
                return f"{whole[:start]}{MASK}{whole[stop:]}"
        return whole

    def listener(self, on_text: Callable[[str], None]) -> "ScrubbingCallback":
        """Return a callback that passes pieces of a growing text on to `on_text`, scrubbed as the whole would be."""
        return ScrubbingCallback(self.scrub, tuple(self._keys.values()), on_text)


class ScrubbingCallback:
    """Scrubs a text that arrives in pieces: what may be the beginning of a key waits for the next piece."""

    def __init__(self, scrub: Callable[[str], str], keys: tuple[str, ...], on_text: Callable[[str], None]) -> None:
        self._scrub = scrub
        self._keys = keys
        self._on_text = on_text
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
        cut = len(text) - max(
            (
                next((n for n in range(min(len(key) - 1, len(text)), 0, -1) if text.endswith(key[:n])), 0)
                for key in self._keys
            ),
            default=0,
        )
        while True:
            starts = [text.find(key, max(0, cut - len(key) + 1), cut + len(key) - 1) for key in self._keys]
            through = [at for at in starts if 0 <= at < cut]
            for key in self._keys:
                near = _key_prefixes(text, key, max(0, cut - len(key) + 1)) if len(key) > _BEGINNING else ()
                through += [at for at, end in near if at < cut < end]
            if not through:
                return cut
            cut = min(through)

    def _say(self, text: str) -> None:
        if text:
            self._on_text(text)


def _key_prefixes(text: str, key: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield where the text has the beginning of this key, and as far as it goes."""
    at = text.find(key[:_BEGINNING], start)
    while at >= 0:
        end = at + _common_prefix(text[at : at + len(key)], key)
        yield at, end
        at = text.find(key[:_BEGINNING], end)


def _common_prefix(text: str, key: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return next(
        (n for n, (one, other) in enumerate(zip(text, key, strict=False)) if one != other), min(len(text), len(key))
    )
