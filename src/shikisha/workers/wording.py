"""Words from outside, made fit for a message of ours.

Invariant: keys are masked before anything is cut, and pieces of keys too, which endpoints like to repeat (8).
Deliberately absent: any judgement of what the words say.
"""

from shikisha.secrets import Vault

_AHEAD = 8  # so many times the length is looked at for pieces of keys


def clip(text: str, vault: Vault, longest: int = 300) -> str:
    """Return the text without keys, on one line, printable, and no longer than this many characters."""
    line = vault.redact(" ".join(vault.scrub(text).split())[: _AHEAD * longest])
    printable = "".join(letter if letter.isprintable() else "?" for letter in line[:longest])
    return printable + ("…" if len(line) > longest else "")
